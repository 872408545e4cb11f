/* SPDX-License-Identifier: Apache-2.0 */
/* Runs candidate plans in turns on all ranks and compares the medians of their step times.
 *
 *      turn 0:  plan A  plan B  plan C       each: 1 warm-up step, then `steps` timed ones
 *      turn 1:  plan C  plan B  plan A       order reversed, so that drift of the machine cancels
 *      ...      until the plans can be distinguished, or the time is up
 *
 * Plans are compared by the ratio of their times in the same turn, because a busy machine slows all
 * plans of a turn alike. Collective: all ranks call trmi_plan_benchmark_run with the same plans. */
#include "exec/autoparallel/plan_benchmark.h"

#include "exec/autoparallel/progress.h"

#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { SETTLE = 6 };               /* turns before a plan is dropped or the run ends */
static const double little = 1e-6; /* learning rate: the cost of an update does not depend on it */

/* One plan, and its executor while it is open. */
typedef struct runner {
    char *plan;
    trm_exec *exec;
} runner;

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Returns the exclusive upper bound of the integers of an input: the rows of the embedding table,
 * or the number of classes, of the operators that read it. 1 if they need zeros. */
static uint32_t bound_of(const trm_graph *g, int32_t value) {
    int64_t least = INT32_MAX;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t k = 0; k < op->inputs_count; k++) {
            const trm_shape *first =
                op->inputs[k] == value ? &trmi_input_of(g, op, 0)->shape : NULL;
            int64_t most = first == NULL                      ? INT32_MAX
                           : op->kind == TRMI_OP_EMBEDDING    ? first->dim[0]
                           : op->kind == TRMI_OP_SOFTMAX_XENT ? first->dim[first->rank - 1]
                           : op->kind == TRMI_OP_LINEAR_XENT ? trmi_input_of(g, op, 1)->shape.dim[0]
                                                             : 1;
            least = most < least ? most : least;
        }
    }
    return least == INT32_MAX ? 1 : (uint32_t)least;
}

/* Fills a tensor with random values: floats in [0, 1), integers below `bound`. */
static void fill_random(trm_tensor *to, uint32_t bound) {
    int64_t count = trm_shape_count(&to->shape);
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = trmi_random_u32(1, TRMI_STREAM_SYNTH, (uint64_t)i);
        if (to->dtype == TRM_FLOAT32) {
            ((float *)to->data)[i] = trmi_unit_float(bits);
        } else if (to->dtype == TRM_INT32) {
            ((int32_t *)to->data)[i] = (int32_t)trmi_bounded(bits, bound);
        } else if (to->dtype == TRM_INT64) {
            ((int64_t *)to->data)[i] = (int64_t)trmi_bounded(bits, bound);
        }
    }
}

/* Contract in plan_benchmark.h. An operator that nothing reads is removed with its inputs, so an
 * input that is absent here is no error. */
trm_status trmi_plan_benchmark_feed(trm_exec *exec, const char *name, uint32_t bound,
                                    trm_error *err) {
    trm_tensor batch;
    trm_error none;
    /* the program has no input that no operator reads */
    if (trm_exec_input(exec, name, &batch, &none) != TRM_OK) {
        return TRM_OK;
    }
    batch.data = trmi_alloc((size_t)trm_tensor_bytes(&batch));
    if (batch.data == NULL) {
        return TRMI_NO_MEMORY(err, "for a batch");
    }
    fill_random(&batch, bound);
    trm_status status = trm_exec_feed(exec, name, &batch, err);
    trmi_free(batch.data);
    return status;
}

/* Feeds random values to all inputs of the graph. */
static trm_status feed_inputs(const trmi_plan_benchmark *r, trm_exec *exec, trm_error *err) {
    const trm_graph *g = r->graph;
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_INPUT) {
            TRMI_TRY(trmi_plan_benchmark_feed(exec, g->ops[i].name,
                                              bound_of(g, g->ops[i].outputs[0]), err));
        }
    }
    return TRM_OK;
}

/* ---- one plan -------------------------------------------------------------------------------- */

/* Makes the executor of a plan and feeds it. Settings that would change files or add time are
 * off. */
static trm_status open_runner(const trmi_plan_benchmark *r, runner *of, trm_error *err) {
    trm_exec_options options = *r->options;
    options.parallel.split.kind = TRM_SPLIT_PLANNED;
    options.parallel.comm = r->comm;
    options.parallel.split.plan = of->plan;
    options.parallel.split.mesh = options.parallel.split.save_plan =
        options.parallel.split.save_groups = NULL;
    options.choices_file = NULL;
    options.retune_seconds = 0;
    options.memory_bytes = 0; /* the caller lists only plans that keep the limit */
    TRMI_TRY(trmi_exec_create(r->graph, &options, NULL, NULL, &of->exec, err));
    return feed_inputs(r, of->exec, err);
}

/* Frees the memory of a plan's executor; the plan itself stays, for its next turn. */
static void close_runner(runner *of) {
    trm_exec_destroy(of->exec);
    of->exec = NULL;
}

/* Runs one training step, with all batches that it accumulates. */
static trm_status run_training_step(const trmi_plan_benchmark *r, trm_exec *exec, trm_error *err) {
    for (int32_t i = 0; i < (r->options->accumulate > 1 ? r->options->accumulate : 1); i++) {
        TRMI_TRY(trm_exec_forward_backward(exec, err));
    }
    return trm_exec_update(exec, little, err);
}

/* Times one turn of a plan: *seconds is the mean time of a step, *used the time since `start`, both
 * of the slowest rank. Makes the executor first if there is none. Collective. */
static trm_status time_turn(const trmi_plan_benchmark *r, runner *of, double start, double *seconds,
                            double *used, trm_error *err) {
    /* Warm up: two steps with a new executor, one with an executor whose data other plans have
     * evicted. */
    for (int32_t warm = of->exec == NULL ? 2 : 1; warm > 0; warm--) {
        if (of->exec == NULL) {
            TRMI_TRY(open_runner(r, of, err));
        }
        TRMI_TRY(run_training_step(r, of->exec, err));
    }
    TRMI_TRY(trm_comm_barrier(r->comm, err));
    double begin = trmi_os_now();
    for (int32_t i = 0; i < r->steps; i++) {
        TRMI_TRY(run_training_step(r, of->exec, err));
    }
    double both[2] = {(trmi_os_now() - begin) / r->steps, trmi_os_now() - start};
    if (r->one_at_a_time) {
        close_runner(of);
    }
    /* Take the maximum over ranks, so that all ranks stop after the same turn. */
    TRMI_TRY(trm_comm_allreduce(r->comm, both, 2, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
    *seconds = both[0];
    *used = both[1];
    return TRM_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Broadcasts the text of plan `index` from rank 0; of->plan owns the copy. */
static trm_status share_plan(const trmi_plan_benchmark *r, int32_t index, runner *of,
                             trm_error *err) {
    const char *text = trm_comm_rank(r->comm) == 0 ? r->plans[index] : NULL;
    int64_t length = text != NULL ? (int64_t)strlen(text) : 0;
    TRMI_TRY(trm_comm_broadcast(r->comm, &length, 1, TRM_INT64, 0, err));
    of->plan = trmi_alloc((size_t)length + 1);
    if (of->plan == NULL) {
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    if (text != NULL) {
        memcpy(of->plan, text, (size_t)length);
    }
    return trm_comm_broadcast(r->comm, of->plan, length, TRM_UINT8, 0, err);
}

/* Returns the median of `count` values, which stay unsorted; *quartiles (may be NULL): the distance
 * of the quartiles. */
static double median_of(const double *values, int32_t count, double *quartiles) {
    double sorted[TRMI_BENCHMARK_TURNS];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    trmi_sort(sorted, count);
    if (quartiles != NULL) {
        *quartiles = sorted[count * 3 / 4] - sorted[count / 4];
    }
    return trmi_middle(sorted, count);
}

/* Makes and warms up all executors. Sets *used to the seconds since `start` on the slowest rank,
 * and stops where they exceed the limit. */
static trm_status open_all(const trmi_plan_benchmark *r, runner *runners, double start,
                           double *used, trm_error *err) {
    for (int32_t i = 0; i < r->count && (*used <= r->seconds || r->at_least > 0); i++) {
        TRMI_TRY(open_runner(r, &runners[i], err));
        TRMI_TRY(run_training_step(r, runners[i].exec, err));
        *used = trmi_os_now() - start;
        TRMI_TRY(trm_comm_allreduce(r->comm, used, 1, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
    }
    return TRM_OK;
}

/* Returns whether the useful number of turns does not fit into the limit, if `used` seconds had
 * gone before this turn and it takes `turn` seconds. The first turn says nothing: executors that
 * are made first choose their kernels. */
static bool is_hopeless(const trmi_plan_benchmark *r, int32_t turns, double used, double turn) {
    return turns > 0 && turns < r->useful && used + (r->useful - turns) * turn > r->seconds;
}

/* Runs turns, in alternating order, until plans are settled, the time is up or will be before the
 * turns are of use; drops plans that are clearly slower. A turn that is not complete is not
 * counted. */
static trm_status take_turns(const trmi_plan_benchmark *r, runner *runners, trmi_plan_times *out,
                             trm_error *err) {
    double start = trmi_os_now(), used = 0, last = 0;
    TRMI_TRY(r->one_at_a_time ? TRM_OK : open_all(r, runners, start, &used, err));
    double before = used;
    bool running[TRMI_BENCHMARK_PLANS], settled = false;
    for (int32_t i = 0; i < r->count; i++) {
        running[i] = true;
    }
    trmi_progress progress = {0};
    while (!settled && out->turns < TRMI_BENCHMARK_TURNS &&
           (out->turns < r->at_least || used + last < r->seconds)) {
        for (int32_t i = 0; i < r->count; i++) {
            /* The order alternates, so that a drift of the machine's speed affects all plans
             * alike. */
            int32_t k = out->turns % 2 == 0 ? i : r->count - 1 - i;
            if (!running[k]) {
                continue;
            }
            TRMI_TRY(time_turn(r, &runners[k], start, &out->took[k][out->turns], &used, err));
            const double turn = (used - before) / (i + 1) * r->count; /* at this pace */
            if (out->turns >= r->at_least && ((used > r->seconds && i + 1 < r->count) ||
                                              is_hopeless(r, out->turns, before, turn))) {
                return TRM_OK;
            }
        }
        /* The turn is complete: count it, and stop the plans that are clearly slower. */
        out->turns++;
        for (int32_t i = 0; i < r->count; i++) {
            out->ran[i] += running[i];
        }
        settled = r->fine > 0 && trmi_plan_benchmark_settle(out, r->count, r->fine, running);
        for (int32_t i = 0; i < r->count; i++) {
            if (!running[i]) {
                close_runner(&runners[i]);
            }
        }
        last = used - before;
        before = used;
        if (trm_comm_rank(r->comm) == 0) {
            trmi_progress_note(&progress, out->turns, TRMI_BENCHMARK_TURNS,
                               fmax(0, r->seconds - used), "running plans in turns: turn");
        }
    }
    return TRM_OK;
}

/* Contract in plan_benchmark.h. Results are medians over turns: a single turn can be disturbed. */
trm_status trmi_plan_benchmark_run(const trmi_plan_benchmark *r, trmi_plan_times *out,
                                   trm_error *err) {
    runner runners[TRMI_BENCHMARK_PLANS];
    memset(runners, 0, sizeof runners);
    memset(out, 0, sizeof *out);
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < r->count; i++) {
        status = share_plan(r, i, &runners[i], err);
    }
    status = status == TRM_OK ? take_turns(r, runners, out, err) : status;
    for (int32_t i = 0; i < r->count; i++) {
        close_runner(&runners[i]);
        trmi_free(runners[i].plan);
        out->seconds[i] =
            status == TRM_OK && out->ran[i] > 0 ? median_of(out->took[i], out->ran[i], NULL) : 0;
    }
    return status;
}

/* Contract in plan_benchmark.h. A machine that other jobs slow down lengthens both times of a turn,
 * so its influence cancels in their ratio. */
double trmi_plan_benchmark_behind(const trmi_plan_times *result, int32_t a, int32_t b,
                                  double *resolution) {
    double ratios[TRMI_BENCHMARK_TURNS], spread;
    int32_t turns = result->ran[a] < result->ran[b] ? result->ran[a] : result->ran[b];
    for (int32_t i = 0; i < turns; i++) {
        ratios[i] = result->took[a][i] / result->took[b][i];
    }
    double median = median_of(ratios, turns, &spread);
    /* The resolution is twice the standard error of a median, 1.25 sigma / sqrt(count); for a
     * normal distribution the quartiles are 1.35 sigma apart. */
    if (resolution != NULL) {
        *resolution = 2 * 1.25 / 1.35 * spread / sqrt(turns);
    }
    return median - 1;
}

int32_t trmi_plan_benchmark_fastest(const trmi_plan_times *result, int32_t count) {
    int32_t first = -1;
    for (int32_t i = 0; i < count; i++) {
        bool all = result->ran[i] == result->turns;
        first = all && (first < 0 || trmi_plan_benchmark_behind(result, i, first, NULL) < 0)
                    ? i
                    : first;
    }
    return first;
}

/* Contract in plan_benchmark.h. All ranks compute this from the same times, so that they drop the
 * same plans and end after the same turn. */
bool trmi_plan_benchmark_settle(const trmi_plan_times *result, int32_t count, double fine,
                                bool *running) {
    int32_t first = trmi_plan_benchmark_fastest(result, count);
    bool known = result->turns >= SETTLE;
    for (int32_t i = 0; i < count && result->turns >= SETTLE; i++) {
        double resolution, behind = trmi_plan_benchmark_behind(result, i, first, &resolution);
        /* The test is repeated after each turn, so chance gets more opportunities: the threshold is
         * 1.5 times that of a single test. */
        running[i] = running[i] && behind <= 1.5 * resolution + fine;
        known = known && (!running[i] || resolution <= fine);
    }
    return known;
}
