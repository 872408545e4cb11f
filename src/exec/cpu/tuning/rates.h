/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/tuning/rates.h: what this machine can do, measured: the roofline of predictions and of
 * `bench ops`. */
#ifndef TRMI_EXEC_ONEDNN_RATES_H
#define TRMI_EXEC_ONEDNN_RATES_H

#include "trireme/base.h"

/* Of `threads` threads together: float32 operations per second of the register tile in L1, and
 * bytes
 * per second (read plus written) of a copy that fits no cache.
 *   cost  some 30 ms the first time for a thread count, then nothing      thread  any */
void trmi_onednn_rates(int threads, double *flops_per_second, double *bytes_per_second);

/* How many times as fast as the float32 tile the tile of bfloat16 pairs is: 0.5, 1, 2 or 4, so that
 * every run finds the
 * same; 0 without such an instruction.
 *   cost  some 2 ms the first time, then nothing      thread  any */
double trmi_onednn_pairs_gain(void);

#endif
