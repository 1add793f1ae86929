/* The inside of healing: heal_serve.c (what a file holds, for peers and for who looks), heal.c (asking peers and writing back), heal_queue.c (what waits, and its thread). */
#ifndef TWOFOLD_HEAL_INTERNAL_H
#define TWOFOLD_HEAL_INTERNAL_H
#include "check_volume.h"
#include "filedata_internal.h"
#include "heal.h"
#include "internal.h"

struct item {
	inum ino;
	uint64_t page;      /* looked at first */
	uint64_t tries;     /* that were over without success */
	uint64_t due_ms;
	bool page_good;     /* the rest goes on */
};
struct healer {
	pthread_t thread;
	pthread_mutex_t mu; /* protects the rest; innermost */
	pthread_cond_t wake, news;
	bool runs, stop;
	struct item *item; /* owned */
	uint32_t n, cap;
	uint64_t rounds;
	pthread_mutex_t fetch_mu; /* held while a peer is asked */
	heal_fetch_fn *fetch;
	void *fetch_ctx;
	struct heal_status status;
};


/* A file whose content is held as it is. */
struct opened {
	struct volume *v;
	inum ino;
	struct filedata *f;
	struct object *o; /* NULL: inline */
	struct heal_need need;
};


/* heal: makes the object's file again where it is missing or another one. 0: to be closed; else -EBADMSG among others. */
int opened_get(struct volume *v, inum ino, bool heal, struct opened *ret);
void opened_close(struct opened *x);

/* heal.c: ino 0: records. page is looked at first where it was queued. 0; -ENOTCONN: no peer. */
int heal_item(struct volume *v, inum ino, uint64_t page, bool queued);

/* heal_queue.c */
bool healer_stops(struct healer *h);
void healer_page_is_good(struct healer *h, inum ino);
#endif
