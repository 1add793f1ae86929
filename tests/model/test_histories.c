/* Goal: the rules of merge and shown tree, with parts sealed, sent and opened, keep what history.h says over random histories; and the
 * histories are able to notice when a rule is missing.
 * Arguments (all optional): first seed, number of seeds, replicas, steps, "partial". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "mini_ops.h"

static unsigned run(unsigned first, unsigned seeds, unsigned replicas, unsigned steps, bool partial, struct history_counts *counts)
{
	struct history_options o = {replicas, steps, partial};
	unsigned failed = 0;

	for (unsigned seed = first; seed < first + seeds; seed++)
		failed += history_run(&mini_backend, seed, &o, counts) != 0;
	return failed;
}

static unsigned report(const char *what, unsigned failed, const struct history_counts *c)
{
	printf("%s: %u failed; %llu calls, %llu shown at the end, %llu of them conflict copies\n", what, failed, (unsigned long long)c->calls,
	       (unsigned long long)c->shown, (unsigned long long)c->conflicts);
	return failed;
}

int main(int argc, char **argv)
{
	struct history_counts c = {0};
	unsigned failed = 0;

	if (crypto_init())
		return 1;
	if (argc > 4) {
		bool partial = argc > 5 && !strcmp(argv[5], "partial");
		failed = run((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]), partial, &c);
		return report("histories", failed, &c) != 0;
	}
	failed += report("3 replicas", run(0, 150, 3, 60, false, &c), &c);
	failed += report("4 replicas", run(1000, 50, 4, 80, false, &c), &c);
	failed += report("2 replicas, long", run(2000, 20, 2, 150, false, &c), &c);
	failed += report("3 replicas, parts in any portions", run(3000, 60, 3, 60, true, &c), &c);
	/* the counter-proof: without writing down, local calls change more than they should */
	mini_write_down = false;
	if (!freopen("/dev/null", "w", stderr))
		return 1;
	if (!run(0, 40, 3, 60, false, &c)) {
		printf("histories without write-down did not fail\n");
		failed++;
	}
	return failed != 0;
}
