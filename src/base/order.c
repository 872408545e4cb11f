/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting and medians of a few measurements. */
#include "base/order.h"

#include <stdlib.h>

/* Compares two numbers. */
static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void trmi_sort(double *values, int64_t count) {
    if (count > 0) { /* qsort requires a valid pointer even for 0 items */
        qsort(values, (size_t)count, sizeof *values, by_value);
    }
}

double trmi_middle(const double *sorted, int64_t count) {
    return count > 0 ? (sorted[(count - 1) / 2] + sorted[count / 2]) / 2 : 0;
}

double trmi_median(double *values, int64_t count) {
    trmi_sort(values, count);
    return trmi_middle(values, count);
}
