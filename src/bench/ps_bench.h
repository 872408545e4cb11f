/* SPDX-License-Identifier: Apache-2.0 */
/* bench/ps_bench.h: functions that the parts of bench_ps share. */
#ifndef TRMI_PS_BENCH_H
#define TRMI_PS_BENCH_H

#include "bench/bench.h"

enum { BENCH_REPEATS_MAX = 101 };

typedef struct bench_say {
    bench_ps_report report;
    void *context;
} bench_say;

/* Reports median, minimum and maximum; sorts the values. */
void bench_say_sorted(const bench_say *say, const char *name, const char *unit, double *values,
                      int32_t count);
void bench_say_one(const bench_say *say, const char *name, const char *unit, double value);

/* Measures a worker and a server at Criteo's shape, `rows` rows in all.   errors  NOMEM, IO, as
 * ps.h */
trm_status bench_ps_service(const bench_ps_options *options, int64_t rows, const bench_say *say,
                            trm_error *err);
/* Trains a table of options->table_bytes within a budget.   errors  NOMEM, IO */
trm_status bench_ps_budget(const bench_ps_options *options, const bench_say *say, trm_error *err);

#endif
