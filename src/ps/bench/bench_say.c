/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark of this room has to say. */
#include "ps/bench/bench.h"

#include "base/order.h"

void trmi_bench_sorted(const trmi_bench_say *say, const char *name, const char *unit,
                       double *values, int32_t count) {
    double median = trmi_median(values, count);
    say->report(say->context, name, unit, median, values[0], values[count - 1], count);
}

void trmi_bench_one(const trmi_bench_say *say, const char *name, const char *unit, double value) {
    say->report(say->context, name, unit, value, value, value, 1);
}
