/* Replays the histories that compare.py draws in the model, with the real rules, and prints what is shown. On standard input, a line each:
 *   history SEED REPLICAS                                      forget all; replicas 1 .. REPLICAS
 *   place R CLOCK COUNTER LINK NODE d|f PARENT NAME BEFORE     a change made at R ...
 *   content R CLOCK COUNTER NODE TOKEN                         ... its vector and `apart` are found here and printed
 *   gone R CLOCK COUNTER LINK NODE REPLICA:COUNTER NODE'S VECTOR   places and contents seen, "-" for none
 *   send M R                                                   message M is what R holds and knows now
 *   receive M R                                                R merges of it what it does not know
 *   tree R                                                     prints the shown tree, sorted
 * Ids are 32 hex digits; a vector is R:C,R:C or "-". Clocks are nanoseconds. Exit 2 on a line that it does not understand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mini_ops.h"

#define REPLICAS_MAX 8
#define MESSAGES_MAX 4096
#define FIELDS_MAX 12

static const struct history_backend *const b = &mini_backend;
static void *replica[REPLICAS_MAX + 1];
static void *message[MESSAGES_MAX];
static unsigned long line_no;

static void bad(const char *why)
{
	fprintf(stderr, "line %lu: %s\n", line_no, why);
	exit(2);
}

static struct mini *mini_of(void *r) { return r; } /* its first member */

static unsigned number(const char *s, unsigned most)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);
	if (*end || v > most)
		bad("number");
	return (unsigned)v;
}

static struct mini *at(const char *s)
{
	unsigned r = number(s, REPLICAS_MAX);
	if (!replica[r])
		bad("no such replica");
	return mini_of(replica[r]);
}

static struct id id(const char *s)
{
	struct id i;
	if (id_parse(s, &i))
		bad("id");
	return i;
}

static struct vector vector(char *s)
{
	struct vector v = {0};
	char *save, *t;

	if (!strcmp(s, "-"))
		return v;
	for (t = strtok_r(s, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		struct dot d;
		if (sscanf(t, "%lu:%lu", &d.replica, &d.counter) != 2 || vector_add(&v, d))
			bad("vector");
	}
	return v;
}

static struct part *new_part(uint8_t kind, const char *of)
{
	struct part *p = calloc(1, sizeof *p);
	if (!p)
		bad("memory");
	p->kind = kind;
	p->id = id(of);
	return p;
}

static void change(char **f, struct part *p)
{
	mini_change_as(at(f[1]), p, strtoull(f[2], NULL, 10), strtoull(f[3], NULL, 10));
}

static void do_place(char **f)
{
	struct part *p = new_part(PART_PLACE, f[4]);

	p->place.node = id(f[5]);
	p->place.type = *f[6] == 'd' ? S_IFDIR : S_IFREG;
	p->place.parent = id(f[7]);
	p->place.name_len = (uint8_t)strlen(f[8]);
	snprintf(p->place.name, sizeof p->place.name, "%s", f[8]);
	p->place.parent_before = id(f[9]);
	change(f, p);
}

static void print_dots(const char *what, const struct dot *e, uint32_t n, uint64_t but)
{
	const char *sep = "";

	printf(" %s ", what);
	for (uint32_t i = 0; i < n; i++) {
		if (e[i].replica == but)
			continue;
		printf("%s%lu:%lu", sep, e[i].replica, e[i].counter);
		sep = ",";
	}
	if (!*sep)
		putchar('-');
}

/* Vector but for the author's own entry (the model counts the new dot itself into it). */
static void do_content(char **f)
{
	struct mini *m = at(f[1]);
	struct part *p = new_part(PART_CONTENT, f[4]);

	p->content.length = 8;
	if (!(p->content.bytes = malloc(8)))
		bad("memory");
	le64_store(p->content.bytes, strtoull(f[5], NULL, 10));
	change(f, p);
	for (uint32_t i = 0; i < m->n; i++) {
		if (!dot_eq(m->part[i]->stamp.dot, (struct dot){m->replica, m->counter}))
			continue;
		printf("content");
		print_dots("saw", m->part[i]->vector.e, m->part[i]->vector.n, m->replica);
		print_dots("apart", m->part[i]->apart.e, m->part[i]->apart.n, 0);
		putchar('\n');
	}
}

static void do_gone(char **f)
{
	struct part *p = new_part(PART_DELETION, f[4]);

	p->deletion.node = id(f[5]);
	p->deletion.parent = p->deletion.node; /* for people to read only; the rules do not look at it */
	p->deletion.name_len = 1;
	p->deletion.name[0] = 'x';
	p->deletion.places_seen = vector(f[6]);
	p->deletion.contents_seen = vector(f[7]);
	change(f, p);
}

static int by_path(const void *x, const void *y)
{
	return strcmp(((const struct history_entry *)x)->path, ((const struct history_entry *)y)->path);
}

static void do_tree(char **f)
{
	struct mini *m = at(f[1]);
	struct history_tree t;

	if (b->list(m, &t))
		bad("list");
	if (t.n)
		qsort(t.e, t.n, sizeof *t.e, by_path);
	printf("tree %s\n", f[1]);
	for (uint32_t i = 0; i < t.n; i++) {
		if (t.e[i].is_dir)
			printf("d %s\n", t.e[i].path);
		else
			printf("f %s %lu\n", t.e[i].path, t.e[i].token);
	}
	history_tree_fini(&t);
}

static void drop_all(void)
{
	for (unsigned i = 0; i < MESSAGES_MAX; i++)
		if (message[i])
			b->drop(message[i]);
	for (unsigned i = 0; i <= REPLICAS_MAX; i++)
		if (replica[i])
			b->close(replica[i]);
	memset(message, 0, sizeof message);
	memset(replica, 0, sizeof replica);
}

static void do_history(char **f)
{
	unsigned n = number(f[2], REPLICAS_MAX);

	drop_all();
	for (unsigned r = 1; r <= n; r++)
		if (!(replica[r] = b->open(r - 1)))
			bad("memory");
	printf("history %s\n", f[1]);
}

static void do_send(char **f)
{
	unsigned i = number(f[1], MESSAGES_MAX - 1);
	if (message[i] || b->send(at(f[2]), NULL, false, 0, &message[i]))
		bad("send");
}

static void do_receive(char **f)
{
	unsigned i = number(f[1], MESSAGES_MAX - 1);
	if (!message[i] || b->receive(at(f[2]), message[i], (unsigned)line_no))
		bad("receive");
}

static const struct {
	const char *word;
	int fields;
	void (*run)(char **f);
} lines[] = {
	{"history", 3, do_history}, {"place", 10, do_place}, {"content", 6, do_content}, {"gone", 8, do_gone},
	{"send", 3, do_send},	    {"receive", 3, do_receive}, {"tree", 2, do_tree},
};

static void run_line(char *line)
{
	char *f[FIELDS_MAX], *save;
	int n = 0;

	for (char *t = strtok_r(line, " \n", &save); t && n < FIELDS_MAX; t = strtok_r(NULL, " \n", &save))
		f[n++] = t;
	for (size_t i = 0; n && i < sizeof lines / sizeof *lines; i++) {
		if (strcmp(lines[i].word, f[0]))
			continue;
		if (n != lines[i].fields)
			bad("fields");
		lines[i].run(f);
		return;
	}
	bad("word");
}

int main(void)
{
	char *line = NULL;
	size_t cap = 0;

	if (crypto_init())
		return 2;
	while (getline(&line, &cap, stdin) > 0) {
		line_no++;
		run_line(line);
	}
	drop_all();
	free(line);
	return 0;
}
