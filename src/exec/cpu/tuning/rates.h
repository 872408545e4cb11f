/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/tuning/rates.h: measured rates of this machine, for the roofline of predictions and of
 * `bench ops`. */
#ifndef TRMI_EXEC_CPU_RATES_H
#define TRMI_EXEC_CPU_RATES_H

#include "trireme/base.h"

/* Measures the rates of `threads` threads together: float32 operations per second of the register
 * tile with data in L1, and bytes per second (read plus written) of a copy larger than the caches.
 *   cost  about 30 ms the first time for a thread count, then nothing      thread  any */
void trmi_onednn_rates(int threads, double *flops_per_second, double *bytes_per_second);

/* Returns the speed of the tile of bfloat16 pairs relative to the float32 tile, rounded to 0.5, 1,
 * 2 or 4, so that every run finds the same; 0 without such an instruction.
 *   cost  about 2 ms the first time, then nothing      thread  any */
double trmi_onednn_pairs_gain(void);

#endif
