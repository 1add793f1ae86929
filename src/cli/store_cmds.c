/* init and key: what works on a store that nobody serves. */
#include "cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "header.h"
#include "invite.h"
#include "progress.h"

static int make_store(const char *store, const char *name, enum cipher cipher, const struct key_source *key)
{
	struct header h = {.cipher = cipher};
	struct secret s = {0};
	struct progress_wait wait;
	int r = secret_get(key, true, &s);

	if (r)
		return r == -ENOKEY ? EXIT_KEY : EXIT_USAGE;
	uint8_t *master = sodium_malloc(KEY_LEN);
	if (!master) {
		secret_fini(&s);
		return complain(-ENOMEM, store);
	}
	randombytes_buf(master, KEY_LEN);
	randombytes_buf(h.volume.b, ID_LEN);
	strcpy(h.name, name);
	progress_wait_begin(&wait, "deriving the key");
	r = slot_make(h.slot[0], 1, s.kind, slot_cost_from_env(), &h.volume, s.p, s.len, master);
	secret_fini(&s);
	if (!r)
		r = volume_create(store, &h, master, true, NULL);
	progress_wait_end(&wait);
	sodium_free(master);
	if (r == -EEXIST || r == -ENOTEMPTY) {
		fprintf(stderr, "twofold: %s: exists and is not empty; a store needs an empty or a new directory\n", store);
		return EXIT_FAILED;
	}
	if (r)
		return complain(r, store);
	char hex[ID_HEX_LEN + 1];
	id_hex(&h.volume, hex);
	printf("volume %s, replica %s, cipher %s: %s\n", hex, name, cipher_name(cipher), store);
	if (cipher == CIPHER_NONE)
		fprintf(stderr, "twofold: WARNING: cipher none does not encrypt file contents. It is for measuring only.\n");
	else if (cipher == CIPHER_XCHACHA20POLY1305 && cipher_available(CIPHER_AES256GCM))
		printf("This CPU has AES instructions: --cipher aes256gcm would be faster, where every member's CPU has them.\n");
	return EXIT_DONE;
}

int cmd_init(int argc, char **argv)
{
	static const struct option options[] = {{"name", 1, NULL, 'n'}, {"cipher", 1, NULL, 'c'}, {"passfile", 1, NULL, 'p'},
		{"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}, {0}};
	char name[REPLICA_NAME_MAX + 1];
	enum cipher cipher = CIPHER_XCHACHA20POLY1305;
	struct key_source key = {0};
	int c;

	replica_name_default(name);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'n':
			if (!replica_name_valid(optarg))
				return usage_error("--name %s: 1 to 32 of A-Z a-z 0-9 _ -", optarg);
			strcpy(name, optarg);
			break;
		case 'c':
			if (cipher_parse(optarg, &cipher))
				return usage_error("--cipher %s: xchacha20poly1305, aes256gcm or none", optarg);
			if (!cipher_available(cipher))
				return usage_error("--cipher %s: this CPU lacks the AES instructions for it", optarg);
			break;
		case 'p':
			key.passfile = optarg;
			break;
		case 'k':
			key.keyfile = optarg;
			break;
		case 'e':
			key.extpass = optarg;
			break;
		default:
			return EXIT_USAGE;
		}
	if (argc - optind != 1)
		return usage_error("init: one STORE is needed");
	return make_store(argv[optind], name, cipher, &key);
}

struct key_args {
	struct key_source old, fresh;
	const char *label;
};

static int key_list(const struct header *h)
{
	struct slot_info info;

	for (int i = 0; i < HEADER_SLOTS; i++)
		if (!slot_parse(h->slot[i], &info) && info.kind != SLOT_FREE)
			printf("%" PRIu32 "\t%s\t%s\n", info.slot_id, info.kind == SLOT_PASSPHRASE ? "passphrase" : "keyfile", info.name);
	return EXIT_DONE;
}

static int unlock(const struct header *h, const struct key_source *src, uint8_t *ret_master)
{
	struct secret s = {0};
	struct progress_wait wait;
	int r = secret_get(src, false, &s);

	if (!r) {
		progress_wait_begin(&wait, "deriving the key");
		r = header_unlock(h, s.p, s.len, s.kind, ret_master);
		progress_wait_end(&wait);
		secret_fini(&s);
	}
	return r;
}

static int key_add(int dirfd, struct header *h, const struct key_args *a, const char *store)
{
	uint8_t *master = sodium_malloc(KEY_LEN);
	struct secret s = {0};
	struct progress_wait wait;
	struct slot_info info;
	uint32_t id = 1;
	int at = -1, r;

	for (int i = 0; i < HEADER_SLOTS; i++) {
		if (slot_parse(h->slot[i], &info))
			continue;
		if (info.kind == SLOT_FREE && at < 0)
			at = i;
		if (info.kind != SLOT_FREE && info.slot_id >= id)
			id = info.slot_id + 1;
	}
	if (at < 0) {
		sodium_free(master);
		fprintf(stderr, "twofold: %s: all %d key slots are in use; remove one first\n", store, HEADER_SLOTS);
		return EXIT_FAILED;
	}
	r = master ? unlock(h, &a->old, master) : -ENOMEM;
	if (!r)
		r = secret_get(&a->fresh, true, &s);
	if (!r) {
		progress_wait_begin(&wait, "deriving the new key");
		r = slot_make(h->slot[at], id, s.kind, slot_cost_from_env(), &h->volume, s.p, s.len, master);
		progress_wait_end(&wait);
	}
	if (!r && a->label)
		r = slot_set_name(h->slot[at], a->label);
	secret_fini(&s);
	sodium_free(master);
	if (!r)
		r = header_write(dirfd, h);
	if (r)
		return complain(r, store);
	printf("key %" PRIu32 " added\n", id);
	return EXIT_DONE;
}

static int key_remove(int dirfd, struct header *h, const struct key_args *a, const char *store, const char *which)
{
	uint8_t *master = sodium_malloc(KEY_LEN);
	struct slot_info info;
	unsigned used = 0;
	int at = -1, r;

	for (int i = 0; i < HEADER_SLOTS; i++)
		if (!slot_parse(h->slot[i], &info) && info.kind != SLOT_FREE) {
			used++;
			if (info.slot_id == strtoul(which, NULL, 10))
				at = i;
		}
	if (at < 0 || used < 2) {
		sodium_free(master);
		fprintf(stderr, at < 0 ? "twofold: %s: no key %s\n" : "twofold: %s: key %s is the last one and stays\n", store, which);
		return EXIT_FAILED;
	}
	/* a key that is left must be at hand: it opens the volume before the other is wiped */
	memset(h->slot[at], 0, SLOT_LEN);
	r = master ? unlock(h, &a->old, master) : -ENOMEM;
	sodium_free(master);
	if (!r)
		r = header_write(dirfd, h);
	if (r)
		return complain(r, store);
	printf("key %s removed. An older copy of the file %s/volume would still open with it.\n", which, store);
	return EXIT_DONE;
}

int cmd_key(int argc, char **argv)
{
	static const struct option options[] = {{"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'},
		{"new-passfile", 1, NULL, 'P'}, {"new-keyfile", 1, NULL, 'K'}, {"new-extpass", 1, NULL, 'E'}, {"label", 1, NULL, 'l'}, {0}};
	struct key_args a = {0};
	struct header h;
	int c, dirfd = -1, lockfd = -1, r;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'p': a.old.passfile = optarg; break;
		case 'k': a.old.keyfile = optarg; break;
		case 'e': a.old.extpass = optarg; break;
		case 'P': a.fresh.passfile = optarg; break;
		case 'K': a.fresh.keyfile = optarg; break;
		case 'E': a.fresh.extpass = optarg; break;
		case 'l': a.label = optarg; break;
		default: return EXIT_USAGE;
		}
	const char *verb = argc > optind ? argv[optind] : "", *store = argc > optind + 1 ? argv[optind + 1] : NULL;
	bool removing = !strcmp(verb, "remove");
	if (!store || (strcmp(verb, "list") && strcmp(verb, "add") && !removing) || argc != optind + 2 + removing)
		return usage_error("key list|add STORE, or key remove STORE ID");
	r = store_lock(store, 0, &dirfd, &lockfd);
	if (!r)
		r = header_read(dirfd, &h);
	if (r)
		r = complain(r == -ENOENT ? -EUCLEAN : r, store);
	else if (removing)
		r = key_remove(dirfd, &h, &a, store, argv[optind + 2]);
	else
		r = !strcmp(verb, "add") ? key_add(dirfd, &h, &a, store) : key_list(&h);
	if (lockfd >= 0)
		close(lockfd);
	if (dirfd >= 0)
		close(dirfd);
	return r;
}
