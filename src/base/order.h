/* SPDX-License-Identifier: Apache-2.0 */
/* base/order.h: sorting and medians of a few measurements. */
#ifndef TRMI_BASE_ORDER_H
#define TRMI_BASE_ORDER_H

#include <stdint.h>

/* Sorts values into rising order, in place. */
void trmi_sort(double *values, int64_t count);
/* Returns the median of sorted values: the middle one, or the mean of the two middle ones; 0 if
 * there are none. */
double trmi_middle(const double *sorted, int64_t count);
/* Sorts values in place and returns their median. */
double trmi_median(double *values, int64_t count);

#endif
