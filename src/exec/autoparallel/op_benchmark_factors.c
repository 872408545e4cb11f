/* SPDX-License-Identifier: Apache-2.0 */
/* Times the optimiser on weights whose gradient stays in factors (exec/optimizer/update_factors.c).
 * A formula is not enough: with few factors memory bandwidth bounds the update, with many factors
 * the multiplication does, and small weights stay in the caches. So the update is measured, with
 * caches in the state in which a training step leaves them. */
#include "exec/autoparallel/op_benchmark.h"
#include "exec/optimizer/update.h"

#include "base/memory.h"
#include "base/error.h"
#include "base/os.h"

#include <string.h>

/* SOME: a byte whose repetition is about 0.01, as float32 and as bfloat16 */
enum { REPEATS = 11, LEAST = 3, SOME = 0x3c };
static const double enough = 0.2, little = 1e-6; /* seconds; learning rate */

/* Weights, an optimiser for them and the factors of their gradient. Everything is owned. */
typedef struct weights {
    trmi_update *update;
    float *parameters;  /* [count] */
    void *left, *right; /* [factors][rows], [factors][columns], in the dtype of the gradient */
    int64_t count;      /* rows x columns */
} weights;

/* Makes weights of the local shape of the strategy. Left factor: [factors][rows], right:
 * [factors][columns]. */
static trm_status make_weights(const trmi_op_benchmark *probe, const trmi_strategy *strategy,
                               trm_dtype dtype, weights *w, trm_error *err) {
    int64_t factors = strategy->local_inputs[0].dim[0], columns = strategy->local_inputs[1].dim[1];
    size_t element = trm_dtype_bytes(dtype);
    w->count = trm_shape_count(&strategy->local_inputs[1]);
    size_t left = (size_t)(factors * w->count / columns) * element,
           right = (size_t)(factors * columns) * element;
    const trmi_update_segment segment = {
        .count = w->count, .decay = true, .factors = factors, .columns = columns};
    w->parameters = trmi_map((size_t)w->count * sizeof(float));
    w->left = trmi_alloc(left);
    w->right = trmi_alloc(right);
    if (w->parameters == NULL || w->left == NULL || w->right == NULL) {
        return TRMI_NO_MEMORY(err, "to measure an update");
    }
    memset(w->left, SOME, left);
    memset(w->right, SOME, right);
    TRMI_TRY(trmi_update_create(&probe->optimizer, &segment, 1, w->count, &w->update, err));
    trmi_update_factors(w->update, 0, w->left, w->right, dtype);
    return TRM_OK;
}

/* Writes the median time of an update to *seconds; all ranks begin each run together. */
static trm_status time_updates(trmi_op_benchmark *probe, const weights *w, double *seconds,
                               trm_error *err) {
    double times[REPEATS], begin = trmi_os_now(), used = 0;
    int64_t own = w->count * (int64_t)sizeof(float) * (1 + trmi_update_slots(w->update));
    int32_t count = 0;
    /* run -1 touches the pages and is not counted */
    for (int32_t r = -1; r < REPEATS && (r < LEAST || used < enough); r++) {
        trmi_op_benchmark_sweep(probe, own, 1);
        used = trmi_os_now() - begin;
        TRMI_TRY(trmi_op_benchmark_largest(probe, &used, 1, err)); /* all begin together */
        double at = trmi_op_benchmark_clock(probe);
        TRMI_TRY(trmi_update_run(w->update, w->parameters, w->parameters, little, (uint64_t)(r + 2),
                                 err));
        if (r >= 0) {
            times[r] = trmi_op_benchmark_clock(probe) - at;
        }
        count = r + 1;
    }
    *seconds = trmi_op_benchmark_usual(times, count, NULL);
    return TRM_OK;
}

/* Contract in op_benchmark.h. A rank without memory tells the others before any of them times, so
 * that all of them leave together and no reduction is left without a partner. */
trm_status trmi_op_benchmark_factors(trmi_op_benchmark *probe, const trmi_strategy *strategy,
                                     trm_dtype dtype, double *seconds, trm_error *err) {
    weights w = {.update = NULL};
    trm_error own;
    trm_status status = make_weights(probe, strategy, dtype, &w, &own);
    double failed = status != TRM_OK;
    status = trmi_op_benchmark_largest(probe, &failed, 1, err);
    if (status == TRM_OK && failed > 0) {
        status = TRMI_FAIL(err, TRM_UNSUPPORTED,
                           "there is no memory to measure an update of %lld weights",
                           (long long)w.count);
    }
    status = status == TRM_OK ? time_updates(probe, &w, seconds, err) : status;
    trmi_update_destroy(w.update);
    trmi_free(w.left);
    trmi_free(w.right);
    trmi_unmap(w.parameters, (size_t)w.count * sizeof(float));
    return status;
}
