/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a split job with one device, and one device with itself under other rounding
 * (trireme/plan.h).
 *
 *   run 1   the split job, on all ranks               loss, gradients, parameters after STEPS steps
 *   run 2   one device                                the same, on rank 0 alone
 *   run 3   one device, parameters off by one bit     how far rounding alone takes two runs apart
 *
 * A tensor agrees if the difference of runs 1 and 2 is within the tolerance, or within a factor of
 * that of runs 2 and 3: so no fixed tolerance has to fit all models. In strict mode the bits must
 * be equal. */
#include "train/planner/verify.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/order.h"
#include "train/context/context.h"

#include <math.h>
#include <string.h>

/* Steps of each run, unless the options have another number. One step would not show whether the
 * state of the optimiser was updated. */
enum { STEPS = 3 };

const char *trm_verify_kind_name(trm_verify_kind kind) {
    static const char *const names[] = {"loss", "forward", "gradient", "variable"};
    return kind >= 0 && kind < TRM_VERIFY_KINDS ? names[kind] : "?";
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Returns the tensor of kind and name `like`; NULL: there is none. */
static const trmi_recorded *find_tensor(const trmi_recording *r, const trmi_recorded *like) {
    for (int64_t i = 0; i < r->count; i++) {
        if (r->items[i].kind == like->kind && strcmp(r->items[i].name, like->name) == 0) {
            return &r->items[i];
        }
    }
    return NULL;
}

/* Returns the relative difference |a - b| / |b| (Euclidean norms); *largest (may be NULL): the
 * largest difference of an element. NaN against a number is infinite. */
static double relative_difference(const trmi_recorded *a, const trmi_recorded *b, double *largest) {
    double difference = 0, size = 0, most = 0;
    for (int64_t i = 0; i < b->count; i++) {
        double x = (double)a->values[i], y = (double)b->values[i], d = x - y;
        bool broken = isnan(x) != isnan(y) || (!isnan(d) && isinf(d));
        d = broken ? (double)INFINITY : isnan(d) ? 0 : d;
        difference += d * d;
        size += isfinite(y) ? y * y : 0;
        most = fmax(most, fabs(d));
    }
    if (largest != NULL) {
        *largest = most;
    }
    return difference == 0 ? 0 : sqrt(difference) / fmax(sqrt(size), 1e-30);
}

/* Fills v->tensors: for each tensor of one device the difference of the split job and that of
 * the rounded run. */
static trm_status compare_tensors(const trmi_recording *split, const trmi_recording *one,
                                  const trmi_recording *rounded, trm_verification *v,
                                  trm_error *err) {
    for (int kind = 0; kind < TRM_VERIFY_KINDS; kind++) {
        for (int64_t i = 0; i < one->count; i++) {
            const trmi_recorded *b = &one->items[i];
            if ((int)b->kind != kind) {
                continue;
            }
            const trmi_recorded *a = find_tensor(split, b),
                                *c = rounded != NULL ? find_tensor(rounded, b) : NULL;
            if (a == NULL || a->count != b->count || (rounded != NULL && c == NULL)) {
                return TRMI_FAIL(err, TRM_INTERNAL,
                                 "%s %s is not in the split job with %lld elements",
                                 trm_verify_kind_name(b->kind), b->name, (long long)b->count);
            }
            trm_verify_tensor *t = &v->tensors[v->count++];
            t->kind = b->kind;
            t->name = b->name;
            t->count = b->count;
            t->error = relative_difference(a, b, &t->largest);
            t->rounding = c != NULL ? relative_difference(c, b, NULL) : 0;
            t->same_bits = memcmp(a->values, b->values, (size_t)b->count * sizeof *b->values) == 0;
        }
    }
    return TRM_OK;
}

/* Returns the median, over all tensors of a kind, of the difference that rounding makes: a
 * single tensor may have rounded luckily. `work`: room for all tensors. */
static double usual_rounding(const trm_verification *v, trm_verify_kind kind, double *work) {
    int32_t n = 0;
    for (int32_t i = 0; i < v->count; i++) {
        if (v->tensors[i].kind == kind) {
            work[n++] = v->tensors[i].rounding;
        }
    }
    return trmi_median(work, n);
}

/* Decides for each tensor whether it agrees: its error is within the tolerance, or within
 * `factor` times what rounding alone does. `bitwise`: all bits must be equal. */
static trm_status compare_tensor(trm_verification *v, const trm_verify_options *o, double tolerance,
                                 trm_error *err) {
    double *work = trmi_alloc((size_t)(v->count + 1) * sizeof *work),
           factor = o->factor > 0 ? o->factor : 16;
    if (work == NULL) {
        return TRMI_NO_MEMORY(err, "to compare %d tensors", v->count);
    }
    double common[TRM_VERIFY_KINDS];
    for (int kind = 0; kind < TRM_VERIFY_KINDS; kind++) {
        common[kind] = usual_rounding(v, (trm_verify_kind)kind, work);
    }
    trmi_free(work);
    v->agrees = v->same_bits = v->count > 0;
    for (int32_t i = 0; i < v->count; i++) {
        trm_verify_tensor *t = &v->tensors[i];
        /* Losses of later steps have grown apart by themselves: each is compared with its own
         * rounding. */
        double moved =
            t->kind == TRM_VERIFY_LOSS ? t->rounding : fmax(t->rounding, common[t->kind]);
        t->agrees = o->bitwise ? t->same_bits : t->error <= fmax(tolerance, factor * moved);
        v->agrees = v->agrees && t->agrees;
        v->same_bits = v->same_bits && t->same_bits;
        v->chaos = t->kind == TRM_VERIFY_LOSS ? fmax(v->chaos, t->rounding) : v->chaos;
    }
    return TRM_OK;
}

/* ---- the three runs -------------------------------------------------------------------------- */

/* A verification with the recording that owns the names of its tensors. */
typedef struct result {
    trm_verification public; /* must be the first member */
    trmi_recording one;      /* owns the names */
} result;

void trm_verification_destroy(trm_verification *v) {
    result *r = (result *)v;
    if (r != NULL) {
        trmi_recording_free(&r->one);
        trmi_free(v->tensors);
        trmi_free(r);
    }
}

/* Derives the options of the split job and of one device. Both read whole batches; the split job
 * keeps whole gradients, so that they can be compared. */
static trm_status prepare_options(const trm_model_options *given, trm_model_options *split,
                                  trm_model_options *one, trm_error *err) {
    *split = *given;
    if (given->context != NULL) {
        TRMI_TRY(trm_context_resolve(given->context, given->exec.parallel.comm,
                                     &split->exec.parallel, &split->exec.accumulate, err));
        split->exec.parallel.split.mesh = given->exec.parallel.split.mesh;
        split->exec.parallel.split.plan = given->exec.parallel.split.plan != NULL
                                              ? given->exec.parallel.split.plan
                                              : split->exec.parallel.split.plan;
        split->context = NULL;
    }
    split->exec.parallel.batch = TRM_BATCH_OF_JOB; /* one device needs whole batches */
    split->exec.parallel.shard_optimizer = false;  /* gradients must be whole to be compared */
    trm_comm *comm = split->exec.parallel.comm;
    split->exec.parallel.pipeline.schedule = given->exec.parallel.pipeline.schedule;
    split->exec.parallel.pipeline.chunks = given->exec.parallel.pipeline.chunks;
    split->exec.parallel.pipeline.begins = given->exec.parallel.pipeline.begins;
    if (comm == NULL || trm_comm_size(comm) < 2 ||
        split->exec.parallel.split.kind == TRM_SPLIT_NONE) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "verify holds a split job against one device: at least 2 ranks and a split "
            "(semi_auto_parallel, auto_parallel) are expected");
    }
    *one = *split;
    one->exec.parallel = (trm_parallel_options){
        .comm = NULL, .block = split->exec.parallel.block, .stand_alone = true};
    return TRM_OK;
}

/* Runs one device, and one device with nudged parameters, on rank 0 and compares both with the
 * split job. */
static trm_status against_one(const trm_model_options *one, const trm_verify_options *o,
                              int32_t steps, const trmi_recording *split, trm_verification **out,
                              trm_error *err) {
    bool mixed = one->exec.precision != TRM_PRECISION_FP32;
    double tolerance = o->tolerance > 0 ? o->tolerance : mixed ? 2e-3 : 1e-5;
    result *r = trmi_alloc(sizeof *r);
    trmi_recording rounded = {.no_outputs = split->no_outputs};
    if (r == NULL) {
        return TRMI_NO_MEMORY(err, "for a comparison");
    }
    r->one.no_outputs = split->no_outputs;
    /* One device, then one device whose parameters differ in the last place: how far both are apart
     * is what rounding alone can do. */
    trm_status status = trmi_verify_record(one, steps, 0, &r->one, err);
    if (status == TRM_OK && !o->bitwise) { /* nudge by one unit in the last place */
        status = trmi_verify_record(one, steps, mixed ? 0x1p-13 : 0x1p-23, &rounded, err);
    }
    if (status == TRM_OK) {
        r->public.tensors = trmi_alloc((size_t)(r->one.count + 1) * sizeof *r->public.tensors);
        status =
            r->public.tensors != NULL
                ? compare_tensors(split, &r->one, o->bitwise ? NULL : &rounded, &r->public, err)
                : TRMI_NO_MEMORY(err, "for a comparison");
    }
    status = status == TRM_OK ? compare_tensor(&r->public, o, tolerance, err) : status;
    trmi_recording_free(&rounded);
    if (status != TRM_OK) {
        trm_verification_destroy(&r->public);
        return status;
    }
    *out = &r->public;
    return TRM_OK;
}

/* Contract in trireme/plan.h. All ranks run the split job; rank 0 then works alone. */
trm_status trm_verify(const trm_model_options *model, const trm_verify_options *options,
                      trm_verification **out, trm_error *err) {
    TRMI_NEED(err, model, options, out);
    trm_model_options split, one;
    int32_t steps = options->steps > 0 ? options->steps : STEPS;
    TRMI_TRY(prepare_options(model, &split, &one, err));
    bool first = trm_comm_rank(split.exec.parallel.comm) == 0;
    trmi_recording recording = {.dropped = !first,
                                .no_outputs = split.exec.parallel.pipeline.stages > 1};
    *out = NULL;
    trm_status status = trmi_verify_record(&split, steps, 0, &recording, err);
    if (status == TRM_OK && first) {
        status = against_one(&one, options, steps, &recording, out, err);
    }
    trmi_recording_free(&recording);
    return status;
}
