/* SPDX-License-Identifier: Apache-2.0 */
/* app/commands/bench.h: the output that all bench commands share: statistics of repeated
 * measurements, and the machine. */
#ifndef TRIREME_APP_BENCH_H
#define TRIREME_APP_BENCH_H

#include "trireme/base.h"

/* Statistics of repeated measurements of one quantity. */
typedef struct app_sample {
    double median, minimum, maximum; /* in the unit of the values, usually seconds */
    int64_t repeats;                 /* number of values */
} app_sample;
/* Computes the statistics of `count` values; sorts `values`. */
app_sample app_summarise(double *values, int64_t count);
/* Puts "machine":{...} into the open report; threads 0: the number that would be used. */
void app_put_machine(int64_t threads);
/* Puts repeats, median_seconds, minimum_seconds and maximum_seconds into the open report, in this
 * order, with the formats of their text. */
void app_put_sample(const app_sample *sample, const char *repeats, const char *median,
                    const char *minimum, const char *maximum);

#endif
