/* trireme/ps_tools.h: looking into parameter servers' tables, and measuring them. */
#ifndef TRIREME_PS_TOOLS_H
#define TRIREME_PS_TOOLS_H

#include "trireme/ps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- benchmark ------------------------------------------------------------------------------ */

typedef struct trm_ps_bench_options {
    int64_t rows;       /* 0 = as many 16 x float32 rows as half the memory, at most 16 Mi */
    int64_t batch;      /* keys a call; 0 = 65536 */
    int32_t repeats;    /* 0 = 7 */
    const char *folder; /* for checkpoints; NULL = the table part only */
} trm_ps_bench_options;

/* Called once per measurement.   name  "read", "update.rowwise_adagrad", ...
 *   median, minimum, maximum of `repeats` runs in `unit` ("rows/s", "GB/s", "ratio", ...) */
typedef void (*trm_ps_bench_report)(void *context, const char *name, const char *unit,
                                    double median, double minimum, double maximum, int32_t repeats);

/* Measures this machine: plain prefetched gather, keyed reads and updates of a table far larger
 * than the cache, and their ratios to the gather of the same run.
 *   errors  NOMEM, IO   thread  one; uses one core */
TRM_API TRM_MUST_USE trm_status trm_ps_bench(const trm_ps_bench_options *options,
                                             trm_ps_bench_report report, void *context,
                                             trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
