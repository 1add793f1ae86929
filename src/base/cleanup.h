/* Scope-bound cleanup of locals. The attribute's handlers keep errno.
 * Use these for locals that every exit releases; use one `fail:` label for undoing; never both in one function. */
#ifndef TWOFOLD_CLEANUP_H
#define TWOFOLD_CLEANUP_H
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_(void *p)
{
	int saved = errno;
	free(*(void **)p);
	errno = saved;
}

static inline void cleanup_close_(int *fd)
{
	int saved = errno;
	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void cleanup_unlock_(pthread_mutex_t **m)
{
	if (*m)
		pthread_mutex_unlock(*m);
}

#define CLEANUP_FREE __attribute__((cleanup(cleanup_free_)))
#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close_)))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#endif
