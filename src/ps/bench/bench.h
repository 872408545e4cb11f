/* SPDX-License-Identifier: Apache-2.0 */
/* ps/bench/bench.h: between the parts of trm_ps_bench. */
#ifndef TRMI_PS_BENCH_H
#define TRMI_PS_BENCH_H

#include "trireme/ps_tools.h"

#include "ps/client/client.h"

enum { TRMI_BENCH_REPEATS_MAX = 101 };

typedef struct trmi_bench_say {
    trm_ps_bench_report report;
    void *context;
} trmi_bench_say;

/* Median, minimum and maximum; sorts the values. */
void trmi_bench_sorted(const trmi_bench_say *say, const char *name, const char *unit,
                       double *values, int32_t count);
void trmi_bench_one(const trmi_bench_say *say, const char *name, const char *unit, double value);

/* Worker and server at Criteo's shape, `rows` rows in all.   errors  NOMEM, IO, as ps.h */
trm_status trmi_bench_service(const trm_ps_bench_options *options, int64_t rows,
                              const trmi_bench_say *say, trm_error *err);
/* A table of options->table_bytes within a budget, trained.   errors  NOMEM, IO */
trm_status trmi_bench_budget(const trm_ps_bench_options *options, const trmi_bench_say *say,
                             trm_error *err);

#endif
