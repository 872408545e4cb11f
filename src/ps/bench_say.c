/* What a benchmark of this room has to say. */
#include "ps/bench.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void trmi_bench_sorted(const trmi_bench_say *say, const char *name, const char *unit,
                       double *values, int32_t count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    say->report(say->context, name, unit, values[count / 2], values[0], values[count - 1], count);
}

void trmi_bench_one(const trmi_bench_say *say, const char *name, const char *unit, double value) {
    say->report(say->context, name, unit, value, value, value, 1);
}
