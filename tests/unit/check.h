/* The few macros of the unit tests: a failed check prints where and what, counts, and goes on. main ends with
 * `return check_result();`. */
#ifndef TWOFOLD_CHECK_H
#define TWOFOLD_CHECK_H
#include <stdio.h>
#include <stdlib.h>

static int check_failures_;
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);         \
			check_failures_++;                                                         \
		}                                                                                  \
	} while (0)
#define CHECK_EQ(a, b)                                                                             \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_) {                                                                    \
			fprintf(stderr, "%s:%d: failed: %s is %lld, %s is %lld\n", __FILE__, __LINE__, #a, a_, #b, b_); \
			check_failures_++;                                                         \
		}                                                                                  \
	} while (0)
/* For what the rest of the test cannot do without. */
#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: failed, giving up: %s\n", __FILE__, __LINE__, #cond); \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
static inline int check_result(void)
{
	if (check_failures_)
		fprintf(stderr, "%d checks failed\n", check_failures_);
	return check_failures_ ? 1 : 0;
}
#endif
