/* SPDX-License-Identifier: Apache-2.0 */
/* base/order.h: the middle of a few measurements. */
#ifndef TRMI_BASE_ORDER_H
#define TRMI_BASE_ORDER_H

#include <stdint.h>

/* Into rising order, in place. */
void trmi_sort(double *values, int64_t count);
/* Of values in rising order: the one in the middle, the mean of two where their count is even; 0 of
 * none. */
double trmi_middle(const double *sorted, int64_t count);
/* Sorts them, and gives their middle. */
double trmi_median(double *values, int64_t count);

#endif
