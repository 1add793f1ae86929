/* A page fault for every 4 KiB of SQLite's cache and of the nodes in memory took a third of the processor time of a cold listing (16,100 faults for 19,390
 * entries; 3,000 on huge pages). The allocator's arenas of other threads grow by an mprotect a page besides, so there is only one. */
#include "heap.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sanitizer.h"

#define RESERVE (256u << 20) /* address space; it becomes memory where it is used, and beyond it the heap grows as always */
#define STEP (4u << 20)
#define HUGE_PAGE ((uintptr_t)2 << 20)
#define MAPPED_FROM (1u << 20) /* what is larger is mapped on its own and given back */

#if defined(UNDER_ADDRESS_SANITIZER) || defined(UNDER_THREAD_SANITIZER)
void heap_prepare(void) {}
#else
void heap_prepare(void)
{
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, MAPPED_FROM);
	mallopt(M_TRIM_THRESHOLD, 2 * RESERVE);
	mallopt(M_TOP_PAD, RESERVE);
	uintptr_t start = (uintptr_t)sbrk(0);
	void *volatile grow = malloc(MAPPED_FROM / 2); /* more than a fresh heap has left at its end; volatile: not to be optimised away */
	free(grow);
	uintptr_t end = (uintptr_t)sbrk(0);
	mallopt(M_TOP_PAD, STEP);
	start = (start + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	end = end / HUGE_PAGE * HUGE_PAGE;
	if (end > start)
		madvise((void *)start, end - start, MADV_HUGEPAGE); /* only faster */
}
#endif
