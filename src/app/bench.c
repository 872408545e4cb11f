/* SPDX-License-Identifier: Apache-2.0 */
/* Output shared by the bench commands (contracts in bench.h). */
#include "app/bench.h"

#include "trireme/base.h"

#include "app/output.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Contract in bench.h. The median of an even number is the mean of the two in the middle. */
app_sample app_summarise(double *values, int64_t count) {
    if (count == 0) {
        return (app_sample){0};
    }
    qsort(values, (size_t)count, sizeof *values, compare);
    double median =
        count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
    return (app_sample){median, values[0], values[count - 1], count};
}

void app_json_machine(int64_t threads) {
    trm_machine m;
    trm_machine_get(&m);
    app_json_open_object("machine");
    app_json_text("cpu", m.cpu);
    app_json_text("isa", m.isa);
    app_json_int("cores", m.cores);
    app_json_int("threads", threads > 0 ? threads : m.omp_threads > 0 ? m.omp_threads : m.cores);
    app_json_text("onednn", *m.onednn != '\0' ? m.onednn : NULL);
    app_json_close_object();
}

void app_json_sample(const app_sample *s) {
    app_json_real("median_seconds", s->median);
    app_json_real("minimum_seconds", s->minimum);
    app_json_real("maximum_seconds", s->maximum);
    app_json_int("repeats", s->repeats);
}
