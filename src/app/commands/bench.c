/* SPDX-License-Identifier: Apache-2.0 */
/* Output shared by the bench commands (contracts in bench.h). */
#include "app/commands/bench.h"

#include "trireme/base.h"

#include "app/output/output.h"

#include <stdlib.h>

/* Compares two numbers, for a median. */
static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Contract in bench.h. The median of an even number is the mean of the two in the middle. */
app_sample app_summarise(double *values, int64_t count) {
    if (count == 0) {
        return (app_sample){0};
    }
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    double median =
        count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
    return (app_sample){median, values[0], values[count - 1], count};
}

/* Contract in bench.h. Every figure of a benchmark stands beside the machine on which it was
 * measured. */
void app_put_machine(int64_t threads) {
    trm_machine m;
    trm_machine_get(&m);
    app_open_object("machine");
    app_put(app_text("cpu", m.cpu, NULL), app_text("isa", m.isa, NULL),
            app_int("cores", m.cores, NULL),
            app_int("threads",
                    threads > 0         ? threads
                    : m.omp_threads > 0 ? m.omp_threads
                                        : m.cores,
                    NULL),
            app_text("onednn", *m.onednn != '\0' ? m.onednn : NULL, NULL));
    app_close();
}

void app_put_sample(const app_sample *s, const char *repeats, const char *median,
                    const char *minimum, const char *maximum) {
    app_put(app_int("repeats", s->repeats, repeats), app_real("median_seconds", s->median, median),
            app_real("minimum_seconds", s->minimum, minimum),
            app_real("maximum_seconds", s->maximum, maximum));
}
