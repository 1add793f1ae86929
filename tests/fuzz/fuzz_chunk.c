/* Chunks of a content that arrives, fed to the receiver over a real store with a base. Input: form u8, then (length u16, chunk) each; the
 * header of the first chunk is put in here, since nothing gets past a wrong one. Form 8: ranges, and the first piece is what an earlier try has left of them in
 * incoming/, behind its magic number and base. Whatever comes: a content is complete only with its root. */
#include <fcntl.h>
#include <unistd.h>

#include "data_env.h"
#include "transfer.h"

#define BASE_PAGES 9

/* The keyring lies in guarded memory, where the leak checker does not look: what only it points to is no leak. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:pool_new\n"; }

static struct data_env d;
static struct content base, target[3]; /* by form: whole, ranges, delta */
static uint64_t base_local;
static const struct id node = {{7}};
static const struct dot base_dot = {1, 1}, target_dot = {1, 2};

static int find(void *ctx, const struct id *n, struct dot dot, struct transfer_content *ret)
{
	struct page_map map = {.pages = (base.length + PAGE_LEN - 1) / PAGE_LEN, .holes = base.holes};
	struct content c;
	struct object *o;

	if (!id_eq(n, &node) || !dot_eq(dot, base_dot))
		return -ESTALE;
	int r = content_copy(&c, &base);
	if (r == 0)
		r = object_open(d.objects, base_local, &c.object, c.epoch, &map, &c.root, &o);
	if (r == 0)
		*ret = (struct transfer_content){.content = c, .object = o};
	return r;
}

static void finish(void)
{
	content_fini(&base);
	for (int i = 0; i < 3; i++)
		content_fini(&target[i]);
	data_env_close(&d);
}

/* The object of a snapshot is kept, the file is not. */
static void keep(struct filedata *f, struct content *ret, uint64_t *ret_local)
{
	struct filedata_snapshot s;

	data_env_commit(&d, f, &s);
	REQUIRE(content_copy(ret, &s.content) == 0);
	*ret_local = s.local;
	filedata_snapshot_fini(&s);
}

static void prepare(void)
{
	static uint8_t data[BASE_PAGES * PAGE_LEN];
	uint64_t seed = 1, local;
	struct filedata *f, *copy;

	data_env_open(&d, CIPHER_NONE, 1);
	atexit(finish);
	for (size_t i = 0; i < sizeof data; i += 8)
		le64_store(data + i, rnd_next(&seed));
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	REQUIRE(filedata_write(f, 0, data, 5 * PAGE_LEN, 1) == 0);
	REQUIRE(filedata_write(f, 7 * PAGE_LEN, data, 2 * PAGE_LEN, 1) == 0);
	keep(f, &base, &base_local);
	filedata_free(f);
	/* Ranges build on the same object: a copy of it takes the change. */
	struct transfer_content b;
	struct object *o;
	REQUIRE(find(NULL, &node, base_dot, &b) == 0);
	local = object_store_next_local(d.objects);
	REQUIRE(object_copy(b.object, local, NULL, &o) == 0);
	REQUIRE(object_flush(o) == 0);
	object_close(o);
	transfer_content_fini(&b);
	REQUIRE(filedata_new(&d.file, &base, local, &copy) == 0);
	REQUIRE(filedata_write(copy, PAGE_LEN + 9, data, 10, 1) == 0);
	REQUIRE(filedata_fallocate(copy, 3, 3 * PAGE_LEN, PAGE_LEN, 1) == 0);
	REQUIRE(filedata_truncate(copy, 10 * PAGE_LEN + 3, 1) == 0);
	keep(copy, &target[1], &local);
	filedata_free(copy);
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	REQUIRE(filedata_write(f, 3, data, 5 * PAGE_LEN, 1) == 0);
	keep(f, &target[0], &local);
	REQUIRE(content_copy(&target[2], &target[0]) == 0);
	filedata_free(f);
}

static void put_header(struct buf *out, uint8_t form, const struct content *c)
{
	buf_put_u8(out, form);
	buf_put(out, node.b, ID_LEN);
	buf_put_u64(out, target_dot.replica);
	buf_put_u64(out, target_dot.counter);
	buf_put(out, c->object.b, ID_LEN);
	buf_put_u32(out, c->epoch);
	buf_put_u64(out, c->length);
	buf_put(out, c->root.b, ROOT_LEN);
	if (form == FORM_WHOLE) {
		buf_put_u64(out, 0);
		return;
	}
	buf_put(out, node.b, ID_LEN);
	buf_put_u64(out, base_dot.replica);
	buf_put_u64(out, base_dot.counter);
	buf_put(out, base.root.b, ROOT_LEN);
}

/* What was taken for complete must be it. */
static void check_complete(struct transfer_sink *sink, const struct content *c)
{
	struct object *o = transfer_sink_take_object(sink);
	struct page_map map;
	struct root root;

	if (!o) {
		struct extents x;
		if (transfer_sink_form(sink) != FORM_RANGES || transfer_sink_changed(sink, &x) < 0)
			abort();
		extents_fini(&x);
		return;
	}
	object_map(o, &map, &root);
	if (!root_eq(&root, &c->root) || !extents_eq(&map.holes, &c->holes))
		abort();
	extents_fini(&map.holes);
	object_close(o);
}

/* What transfer_spool.c would have left. */
static void leave_spool(const uint8_t *records, size_t len)
{
	struct buf b = {0};
	char hex[ID_HEX_LEN + 1], path[128];

	buf_put(&b, "2fRANGE1", 8);
	buf_put(&b, node.b, ID_LEN);
	buf_put_u64(&b, base_dot.replica);
	buf_put_u64(&b, base_dot.counter);
	buf_put(&b, base.root.b, ROOT_LEN);
	while (b.len < 128)
		buf_put_u8(&b, 0);
	buf_put(&b, records, len);
	id_hex(&node, hex);
	snprintf(path, sizeof path, "incoming/%s-%016llx-%llu.ranges", hex, (unsigned long long)target_dot.replica, (unsigned long long)target_dot.counter);
	int fd = openat(d.dirfd, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	REQUIRE(fd >= 0 && write(fd, b.p, b.len) == (ssize_t)b.len);
	close(fd);
	buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool ready;
	struct reader r = reader_of(data, size);
	uint8_t form = read_u8(&r);
	bool left = form == FORM_RESUME_RANGES;
	form = left ? FORM_RANGES : form;
	int which = form == FORM_RANGES ? 1 : form == FORM_DELTA ? 2 : 0, e = 0;

	if (!ready)
		prepare();
	ready = true;
	struct transfer_env env = {.objects = d.objects, .keys = d.keys, .dirfd = d.dirfd};
	struct transfer_lookup l = {.find = find};
	struct transfer_sink *sink;
	uint64_t resume;
	if (left) {
		size_t len = read_u16(&r);
		len = len < r.left ? len : r.left;
		leave_spool(read_bytes(&r, len), len);
	}
	REQUIRE(transfer_sink_new(&env, &l, &node, target_dot, &target[which], &sink, &resume) == 0);
	for (bool first = true; e == 0 && r.left; first = false) {
		size_t len = read_u16(&r);
		len = len < r.left ? len : r.left;
		const uint8_t *p = read_bytes(&r, len);
		struct buf chunk = {0};
		if (first && len >= 2) {
			buf_put(&chunk, p, 2);
			put_header(&chunk, form, &target[which]);
			buf_put(&chunk, p + 2, len - 2);
		} else {
			buf_put(&chunk, p, len);
		}
		/* exactly as long as it is, for AddressSanitizer */
		uint8_t *exact = malloc(chunk.len + !chunk.len);
		REQUIRE(exact);
		if (chunk.len)
			memcpy(exact, chunk.p, chunk.len);
		e = transfer_sink_feed(sink, exact, chunk.len);
		free(exact);
		buf_fini(&chunk);
	}
	if (e == 1)
		check_complete(sink, &target[which]);
	transfer_sink_free(sink);
	object_incoming_clear(d.objects, NULL);
	return 0;
}
