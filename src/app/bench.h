/* SPDX-License-Identifier: Apache-2.0 */
/* app/bench.h: shared by the measuring commands. */
#ifndef TRIREME_APP_BENCH_H
#define TRIREME_APP_BENCH_H

#include "trireme/base.h"

typedef struct app_sample {
    double median, minimum, maximum;
    int64_t repeats;
} app_sample;
/* Sorts `values`. */
app_sample app_summarise(double *values, int64_t count);
/* "machine":{...} of the open JSON object. */
void app_json_machine(int64_t threads);
/* median_seconds, minimum_seconds, maximum_seconds, repeats. */
void app_json_sample(const app_sample *sample);

#endif
