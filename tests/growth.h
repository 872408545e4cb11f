/* SPDX-License-Identifier: Apache-2.0 */
/* How the work of a function grows with the size of its input: a check that holds on any machine,
 * because both sizes are measured on it, in CPU time, in turns. */
#ifndef TRIREME_GROWTH_H
#define TRIREME_GROWTH_H

#include "check.h"

#include <time.h>

/* Returns the CPU time of work(context, size), in seconds. */
static inline double growth_seconds(void (*work)(void *context, int64_t size), void *context,
                                    int64_t size) {
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    work(context, size);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

/* Checks that 16 times the input costs less than 64 times as much: work in proportion costs 16
 * times, work by the square 256 times. The least of three measurements counts. */
static inline void check_growth(void (*work)(void *context, int64_t size), void *context,
                                int64_t size) {
    double small = 1e30, large = 1e30;
    for (int i = 0; i < 3; i++) {
        double seconds = growth_seconds(work, context, size);
        small = seconds < small ? seconds : small;
        seconds = growth_seconds(work, context, 16 * size);
        large = seconds < large ? seconds : large;
    }
    if (large > 64 * small) {
        fail_msg("%lld: %.6f s, 16 times as many: %.6f s (%.0f times, at most 64 expected)",
                 (long long)size, small, large, large / small);
    }
}

#endif
