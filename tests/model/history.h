/* Random histories of several replicas, and what must hold after each step and at the end (design-replication I8, section 8):
 *   - a local call changes the caller's tree exactly as POSIX says;
 *   - when everything has been exchanged all trees are the same, and nothing is left to exchange;
 *   - every edit is shown, or was overwritten or removed by someone who saw it.
 * What is driven is behind `struct history_backend`: the pure rules (mini) or a whole volume. Paths are "a/b", the root "". */
#ifndef TWOFOLD_TEST_HISTORY_H
#define TWOFOLD_TEST_HISTORY_H
#include <stdbool.h>
#include <stdint.h>

struct history_entry {
	char *path;     /* owned */
	bool is_dir;
	uint64_t token; /* of a file: the number that its content is */
	uint64_t file;  /* the same for two names of one file in one listing */
};
struct history_tree {
	struct history_entry *e; /* owned, sorted by path */
	uint32_t n;
};
/* Calls return 0 or negative errno. A message is what `from` had when it was made; it can be received any number of times or not at all. */
struct history_backend {
	void *(*open)(unsigned index);
	void (*close)(void *replica);
	void (*set_clock)(void *replica, uint64_t wall_ns);
	int (*create)(void *replica, const char *path, uint64_t token);
	int (*mkdir)(void *replica, const char *path);
	int (*write)(void *replica, const char *path, uint64_t token); /* replaces the content */
	int (*link)(void *replica, const char *from, const char *to);
	int (*unlink)(void *replica, const char *path);
	int (*rmdir)(void *replica, const char *path);
	int (*rename)(void *replica, const char *from, const char *to, bool exchange);
	int (*list)(void *replica, struct history_tree *ret); /* sorting is the caller's */
	/* partial: a random part of it, with which no knowledge goes (a step of a catching-up batch) */
	int (*send)(void *from, void *to, bool partial, unsigned seed, void **ret_message);
	int (*receive)(void *to, void *message, unsigned seed);
	void (*drop)(void *message);
	uint64_t (*parts)(void *replica);       /* how many changes it has made itself */
	int (*check)(void *replica, unsigned seed); /* 0: sound. NULL where there is nothing more to check */
};
struct history_options {
	unsigned replicas, steps;
	bool partial;
};
struct history_counts {
	uint64_t calls, conflicts, shown;
};
/* 0; 1: something did not hold, said on stderr with the seed. */
int history_run(const struct history_backend *b, unsigned seed, const struct history_options *o, struct history_counts *counts);
void history_tree_fini(struct history_tree *t);
#endif
