/* The heap is one, lies in pages that may be huge, and holds what is put there. */
#include "heap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "sanitizer.h"

#define BLOCKS 4000
#define BLOCK_LEN 4400

static void *other(void *arg)
{
	char *p = malloc(BLOCK_LEN);

	memset(p, 1, BLOCK_LEN);
	*(char **)arg = p;
	return NULL;
}

/* Is the mapping that holds p marked for huge pages? -1: this kernel says nothing about it. */
static int marked(const void *p)
{
	char line[512];
	unsigned long start, end, at = (unsigned long)p;
	bool inside = false;
	int ret = -1;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr(line, '-') && !strncmp(line + strcspn(line, " "), " rw", 3))
			inside = at >= start && at < end;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			ret = strstr(line, " hg") != NULL;
	}
	if (f)
		fclose(f);
	return access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) ? -1 : ret;
}

int main(void)
{
	static char *block[BLOCKS];
	char *theirs = NULL;
	pthread_t t;

	heap_prepare();
	for (int i = 0; i < BLOCKS; i++) {
		block[i] = malloc(BLOCK_LEN);
		CHECK(block[i]);
		memset(block[i], i, BLOCK_LEN);
	}
#if !defined(UNDER_ADDRESS_SANITIZER) && !defined(UNDER_THREAD_SANITIZER)
	CHECK(marked(block[BLOCKS / 2]) != 0);
#endif
	CHECK_EQ(pthread_create(&t, NULL, other, &theirs), 0);
	pthread_join(t, NULL);
#if !defined(UNDER_ADDRESS_SANITIZER) && !defined(UNDER_THREAD_SANITIZER)
	CHECK(marked(theirs) != 0);
#endif
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(block[i][0] == (char)i && block[i][BLOCK_LEN - 1] == (char)i);
		free(block[i]);
	}
	free(theirs);
	return check_result();
}
