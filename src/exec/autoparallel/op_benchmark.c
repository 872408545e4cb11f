/* SPDX-License-Identifier: Apache-2.0 */
/* Measures operators on the ranks that will run them (op_benchmark.h).
 *
 *      load          how much other processes slow the ranks down
 *      an operator   a graph of this operator alone on its local shapes --> executor --> times of
 *                    its forward and backward steps, between sweeps of the caches
 *      requests      rank 0 broadcasts what to measure; all ranks measure at the same time
 *
 * All ranks call the same functions in the same order: each measurement begins with a reduction
 * over all ranks, so that they share cores and memory as in training. */
#define _GNU_SOURCE
#include "exec/autoparallel/op_benchmark.h"

#include "comm/api/communicator.h"
#include "exec/exec.h"
#include "plan/partition/operator_loops.h"

#include "base/element.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Timed runs of an operator: in full, in a brief measurement, and the fewest for a median;
 * operators of the backward pass of one operator, at most. */
enum { REPEATS = 11, BRIEF = 5, LEAST = 3, BACKWARD_MAX = 64 };
/* Before backward, 1/BACKWARD_PART of the bytes of the sweep before forward is read. Less lies
 * between forward and backward of an operator: no slots and no update, and the backward pass of
 * late layers follows at once. */
enum { BACKWARD_PART = 4 };
static const double enough = 0.4, rough = 0.1; /* seconds for one operator */
static const double patience = 300;            /* seconds without progress of rank 0, at least */

/* Kinds of requests of rank 0 to all ranks: to end the loop, to time one operator, the messages,
 * the load of the machine, whole plans, or nothing: a sign of life. */
enum { REQUEST_END, REQUEST_OP, REQUEST_LINKS, REQUEST_LOAD, REQUEST_PLANS, REQUEST_NONE };

/* A request, as rank 0 broadcasts its bytes. */
typedef struct request {
    int32_t what; /* a REQUEST_ constant */
    /* the operator's number in the graph of a batch (micros 0) or of a micro-batch */
    int32_t op, micros;
    int64_t footprint, reach; /* trmi_op_benchmark.footprint, reach, seconds and brief of rank 0 */
    double seconds;
    bool brief;
    trmi_mesh mesh; /* with `letters`: the strategy of the operator */
    char letters[TRMI_MESH_AXES + 1];
    trmi_plan_benchmark plans; /* all pointers NULL: each rank sets its own */
} request;

/* ---- load ------------------------------------------------------------------------------------ */

/* Measures the load of the machine: all ranks compute for 30 ms of CPU time. probe->load becomes
 * the largest ratio of elapsed to CPU time, over the ratio that the ranks cause themselves where
 * they are more than the cores. */
static trm_status find_load(trmi_op_benchmark *probe, trm_error *err) {
    double wall = 0, ranks = probe->comm != NULL ? trm_comm_local_size(probe->comm) : 1;
    volatile double sum = 0;
    TRMI_TRY(trmi_op_benchmark_largest(probe, &wall, 1, err)); /* all ranks begin together */
    double begin = trmi_os_now(), own = 0, first = trmi_os_thread_now();
    while (own < 0.03 && trmi_os_now() - begin < 1) {
        for (int i = 0; i < 20000; i++) {
            sum += i;
        }
        own = trmi_os_thread_now() - first;
    }
    (void)sum;
    /* Elapsed time over CPU time: 1 if this thread had a CPU all the time. */
    wall = own > 0 ? (trmi_os_now() - begin) / own : 1;
    TRMI_TRY(trmi_op_benchmark_largest(probe, &wall, 1, err));
    probe->load = fmax(1, wall / fmax(1, ranks / probe->cores));
    return TRM_OK;
}

/* ---- an operator by itself ------------------------------------------------------------------- */

/* Adds a leaf like input i of the operator, as input `number`. Activations become parameters, so
 * that backward computes their gradients. */
static trm_node leaf_for(trm_graph *to, const trm_graph *g, const trmi_op *op, int32_t i,
                         int32_t number, trm_shape shape) {
    const trmi_value *v = trmi_input_of(g, op, i);
    /* Integers and fed inputs stay inputs: they have no gradient. */
    trmi_op_kind kind =
        trmi_parameter_of(g, op->inputs[i]) != NULL ? TRMI_OP_PARAMETER : g->ops[v->op].kind;
    char name[32];
    snprintf(name, sizeof name, "input%d", (int)number);
    if (kind == TRMI_OP_STATE) {
        return trm_state(to, name, v->dtype, shape, TRM_INIT_ONE);
    }
    if (!trmi_dtype_is_float(v->dtype) || kind == TRMI_OP_INPUT) {
        return trm_input(to, name, v->dtype, shape);
    }
    /* Images come from a 1x1 convolution, so that they have the layout that convolutions choose. */
    bool image = shape.rank == 4 && kind != TRMI_OP_PARAMETER;
    trm_shape small = image ? trm_shape_of(shape.dim[0], 4, shape.dim[2], shape.dim[3]) : shape;
    trm_node x = trm_parameter(to, name, small, TRM_INIT_LINEAR);
    if (image) {
        snprintf(name, sizeof name, "weights%d", (int)number);
        trm_node w = trm_parameter(to, name, trm_shape_of(shape.dim[1], 4, 1, 1), TRM_INIT_LINEAR);
        x = trm_conv2d(to, x, w, TRM_NO_NODE, &(trm_conv_options){.stride = {1, 1}});
    }
    return v->dtype == TRM_FLOAT32 ? x : trm_cast(to, x, v->dtype);
}

/* Returns whether an operator is a ring of queries, keys and values that are one tensor. */
static bool is_packed_ring(const trmi_op *op, const trmi_strategy *s) {
    return op->kind == TRMI_OP_ATTENTION && op->inputs[1] == 0 &&
           trmi_letters_mask(s->letters, "r") != 0;
}

/* Sets what an attention reads on the rank with the last queries, which reads most keys. A ring
 * attends to blocks of the size of one attention with all keys, which are not packed with the
 * queries. */
static void set_attention(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                          const trmi_strategy *s, trm_graph *to, trmi_attrs *attrs,
                          trm_node *inputs) {
    int32_t parts = trmi_mesh_group(mesh, trmi_letters_mask(s->letters, "g"));
    attrs->attention.heads /= parts; /* packed */
    attrs->attention.kv_heads /= parts;
    attrs->attention.begin += trmi_op_benchmark_first_query(g, op, s);
    if (!is_packed_ring(op, s)) {
        return;
    }
    const trm_shape *y = &s->local_output;
    int64_t heads = attrs->attention.heads, width = y->dim[2] / heads;
    trm_shape keys = trm_shape_of(y->dim[0], trmi_input_of(g, op, 0)->shape.dim[1],
                                  attrs->attention.kv_heads, width);
    inputs[0] = leaf_for(to, g, op, 0, 0, trm_shape_of(y->dim[0], y->dim[1], heads, width));
    inputs[1] = leaf_for(to, g, op, 0, 1, keys);
    inputs[2] = leaf_for(to, g, op, 0, 2, keys);
}

/* Builds a training graph of the operator alone: leaves of its local shapes under the strategy, the
 * operator (named "measured"), and a mean as the loss. */
static trm_status build_operator_graph(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                                       const trmi_strategy *s, trm_graph *to, trm_node *loss,
                                       trm_error *err) {
    trm_node inputs[TRMI_PARTITION_INPUTS];
    for (int32_t i = is_packed_ring(op, s) ? 3 : 0; i < op->inputs_count; i++) {
        inputs[i] = TRM_NO_NODE;
        if (op->inputs[i] != 0) {
            trmi_box box = trmi_spread_box(mesh, &trmi_input_of(g, op, i)->shape, &s->inputs[i], 0);
            inputs[i] =
                leaf_for(to, g, op, i, i, i < 4 ? s->local_inputs[i] : trmi_box_shape(&box));
        }
    }
    /* Attributes that depend on the part of the operator are those of rank 0. */
    trmi_attrs attrs = op->attrs;
    trmi_op_part part = *trmi_part_of(&op->attrs);
    attrs.attached = &part.head;
    if (op->kind == TRMI_OP_ATTENTION) {
        set_attention(g, op, mesh, s, to, &attrs, inputs);
    }
    if (op->kind == TRMI_OP_BAG_POOL) {
        attrs.bag.some = true;
        attrs.bag.bags = s->local_output.dim[0];
        part.extent = trmi_input_of(g, op, 0)->shape.dim[0];
    }
    /* The operator itself, under a name by which mark_steps finds it. */
    int32_t made = trmi_graph_add(to, op->kind, "measured", inputs, op->inputs_count,
                                  op->outputs_count, &attrs);
    TRMI_TRY(trm_graph_check(to, err));
    trm_node y = {to->ops[made].outputs[0]};
    trm_shape shape = trm_node_shape(to, y);
    /* After a ReLU the gradient of an image has the layout of the image; the gradient of the mean
     * alone would be plain. */
    bool image = shape.rank == 4 && to->values[y.id].dtype == TRM_FLOAT32;
    y = image ? trm_relu(to, y) : y;
    y = to->values[y.id].dtype != TRM_FLOAT32 ? trm_cast(to, y, TRM_FLOAT32) : y;
    *loss = trm_shape_count(&shape) == 1 ? y : trm_reduce_mean(to, y, NULL, 0, false);
    return trm_graph_check(to, err);
}

/* Returns a number for the kind of an operator. Products that compute gradients of weights
 * (transposed left operand) have another number than those that compute gradients of inputs, which
 * a first layer does not have. */
static int32_t kind_of(trmi_op_kind kind, const trmi_attrs *attrs) {
    return 2 * (int32_t)kind + (kind == TRMI_OP_MATMUL && attrs->matmul.transpose_a);
}

/* Writes the kinds of the gradient operators of `op`, and returns how many there are. */
static int32_t backward_of(const trm_graph *g, int32_t op, int32_t kinds[BACKWARD_MAX]) {
    int32_t count = 0;
    for (int64_t i = op + 1; i < g->ops_count && count < BACKWARD_MAX; i++) {
        const trmi_op *back = &g->ops[i];
        if (back->phase == TRMI_BACKWARD && back->origin != NULL &&
            strcmp(back->origin, g->ops[op].name) == 0) {
            kinds[count++] = kind_of(back->kind, &back->attrs);
        }
    }
    return count;
}

/* Marks the program steps whose times count: 0 none, 1 forward, 2 backward. Backward also has steps
 * of the casts, convolutions and the mean around the operator; the operator is the last of the
 * forward pass, so its gradients come first: each kind is marked as often as the operator has
 * it. */
static void mark_steps(const trm_program *p, const int32_t *kinds, int32_t kinds_count,
                       uint8_t *marks) {
    uint64_t found = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *step = &p->steps[i];
        /* a fed input is reordered in every training step, so its reorder counts */
        if (step->phase == TRMI_FORWARD) {
            bool brings = step->kind == TRMI_STEP_REORDER &&
                          p->buffers[step->inputs[0]].arena == TRMI_ARENA_INPUT;
            marks[i] = brings || strcmp(step->name, "measured") == 0;
            continue;
        }
        /* Find the first backward step of each kind that is not found yet. */
        for (int32_t k = 0; k < kinds_count; k++) {
            if (!(found >> k & 1) && step->kind == TRMI_STEP_OP &&
                kind_of(step->op_kind, step->attrs) == kinds[k]) {
                marks[i] = 2;
                found |= 1ull << k;
                break;
            }
        }
    }
}

/* Puts the caches into the state in which a training step leaves them: sweeps memory, then touches
 * SCRATCH, which every operator uses and which therefore stays in the caches. */
static void prepare_caches(trmi_op_benchmark *probe, trm_exec *exec, int64_t own, int part) {
    trmi_op_benchmark_sweep(probe, own, part);
    if (exec->env.arena[TRMI_ARENA_SCRATCH] != NULL) {
        memset(exec->env.arena[TRMI_ARENA_SCRATCH], 0,
               (size_t)exec->program->arena_bytes[TRMI_ARENA_SCRATCH]);
    }
}

/* Times the marked steps over several runs of the program; *out has medians of this rank. All ranks
 * begin each run together and stop after the same number of runs. */
static trm_status time_op(trmi_op_benchmark *probe, trm_exec *exec, const uint8_t *marks,
                          trmi_op_benchmark_time *out, trm_error *err) {
    double times[3][REPEATS], begin = trmi_os_now(), used = 0;
    const int64_t *arenas = exec->program->arena_bytes;
    int64_t own =
        arenas[TRMI_ARENA_PARAM] + arenas[TRMI_ARENA_GRAD] + arenas[TRMI_ARENA_ACTIVATION];
    int32_t count = 0;
    /* A single process measures for ranks that do not run, within a short time limit: rough times
     * of many operators give better plans than good times of a few. */
    bool here = probe->comm != NULL;
    int32_t most = probe->brief ? BRIEF : REPEATS;
    double left = probe->seconds > 0 ? probe->seconds : INFINITY;
    /* run -1 touches the pages and is not counted */
    for (int32_t r = -1; r < most && (r < 1 || used < left) &&
                         (r < (here ? LEAST : 1) || used < (here ? enough : rough));
         r++) {
        prepare_caches(probe, exec, own, 1);
        used = trmi_os_now() - begin;
        TRMI_TRY(trmi_op_benchmark_largest(probe, &used, 1, err)); /* all begin together */
        double sums[3] = {0, 0, 0};
        for (int32_t i = 0; i < exec->program->steps_count; i++) {
            /* a part of what forward left in the caches is replaced before backward reads it */
            if (i == exec->program->backward_begin) {
                prepare_caches(probe, exec, own, BACKWARD_PART);
            }
            double at = trmi_op_benchmark_clock(probe);
            TRMI_TRY(trmi_exec_run(exec, i, i + 1, err));
            sums[marks[i]] += trmi_op_benchmark_clock(probe) - at;
        }
        for (int k = 0; k < 3 && r >= 0; k++) {
            times[k][r] = k == 0 ? sums[1] + sums[2] : sums[k];
        }
        count = r + 1;
    }
    out->forward = trmi_op_benchmark_usual(times[1], count, NULL);
    out->backward = trmi_op_benchmark_usual(times[2], count, NULL);
    (void)trmi_op_benchmark_usual(times[0], count, &out->spread);
    return TRM_OK;
}

/* Writes offsets for bags of equal length; offsets of zero would make empty bags, which cost
 * nothing. */
static trm_status fill_bags(trm_exec *exec, const trm_graph *g, const trmi_op *op, trm_error *err) {
    trm_tensor offsets;
    int64_t rows = trmi_input_of(g, op, 0)->shape.dim[0];
    TRMI_TRY(trm_exec_input(exec, "input1", &offsets, err));
    for (int64_t i = 0, bags = offsets.shape.dim[0] - 1; i <= bags; i++) {
        int64_t at = bags > 0 ? rows * i / bags : 0;
        if (offsets.dtype == TRM_INT64) {
            ((int64_t *)offsets.data)[i] = at;
        } else {
            ((int32_t *)offsets.data)[i] = (int32_t)at;
        }
    }
    return TRM_OK;
}

/* Estimates the bytes that measuring an operator takes: inputs, outputs and their gradients, each
 * in two layouts. */
static int64_t working_set(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                           const trmi_strategy *s) {
    enum { COPIES = 4 };
    int64_t bytes = 0;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        bytes += v == NULL ? 0
                           : trmi_spread_most(mesh, &v->shape, &s->inputs[i]) *
                                 (int64_t)trm_dtype_bytes(v->dtype);
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        const trmi_value *v = trmi_output_of(g, op, i);
        bytes +=
            trmi_spread_most(mesh, &v->shape, &s->outputs[i]) * (int64_t)trm_dtype_bytes(v->dtype);
    }
    return COPIES * bytes;
}

/* Makes an executor for the operator of a request, and the marks of its steps (owned by the
 * caller).
 *   errors  INVALID: the letters do not cut this operator; UNSUPPORTED: it exceeds the limit */
static trm_status make_exec(const trmi_op_benchmark *probe, const trm_graph *g, const request *ask,
                            trmi_strategy *strategy, trm_exec **exec, uint8_t **marks,
                            trm_error *err) {
    const trmi_op *op = &g->ops[ask->op];
    trm_graph *graph;
    trm_node loss = TRM_NO_NODE;
    if (!trmi_partition_strategy(g, op, &ask->mesh, ask->letters, strategy)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s cannot be cut by '%s'", op->name, ask->letters);
    }
    if (probe->limit > 0 && working_set(g, op, &ask->mesh, strategy) > probe->limit) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s cut by '%s' needs more memory to be measured than there is", op->name,
                         ask->letters);
    }
    /* Build a graph of the operator alone, on the shapes of rank 0's part, with a loss after it. */
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &graph, err));
    trm_status status = build_operator_graph(g, op, &ask->mesh, strategy, graph, &loss, err);
    /* the gradient of a table keeps the rows of the batch, not memory of the table's size */
    const bool whole =
        op->kind != TRMI_OP_EMBEDDING && !trmi_partition_in_factors(g, op, strategy, 1);
    const trm_exec_options options = {.loss = loss,
                                      .backend = probe->backend,
                                      .threads = probe->threads,
                                      .tuning_file = probe->tuning_file,
                                      .whole_gradients = whole};
    /* Strict determinism times the kernels of one block, chosen by rule. */
    const trmi_kernel_source strict = {.backend = probe->backend, .blocks = 1};
    status = status == TRM_OK ? trmi_exec_create(graph, &options, NULL,
                                                 probe->strict ? &strict : NULL, exec, err)
                              : status;
    trm_graph_destroy(graph);
    TRMI_TRY(status);
    if (op->kind == TRMI_OP_BAG_POOL) {
        TRMI_TRY(fill_bags(*exec, g, op, err));
    }
    /* Mark the steps that count as this operator, forward and backward; the others are not
     * timed. */
    int32_t kinds[BACKWARD_MAX];
    int32_t kinds_count = backward_of(g, ask->op, kinds);
    *marks = trmi_alloc((size_t)(*exec)->program->steps_count + 1);
    if (*marks == NULL) {
        return TRMI_NO_MEMORY(err, "to measure %s", op->name);
    }
    mark_steps((*exec)->program, kinds, kinds_count, *marks);
    return TRM_OK;
}

/* Measures one operator; all ranks call it with the same request. The ranks make their executors
 * one after the other, because choosing kernels may time them and needs a quiet machine; then they
 * run at the same time. *out has the times of the slowest rank.
 *   errors  UNSUPPORTED, *together true: the operator does not run by itself on some rank, and all
 *          ranks say so */
static trm_status run_op(trmi_op_benchmark *probe, const request *ask, trmi_op_benchmark_time *out,
                         bool *together, trm_error *err) {
    trm_exec *exec = NULL;
    uint8_t *marks = NULL;
    trmi_strategy strategy;
    const trm_graph *g = probe->graph;
    if (probe->limit > 0) {
        trmi_op_benchmark_close(probe); /* the operator needs memory of the limit first */
    }
    int32_t size = probe->comm != NULL ? trm_comm_size(probe->comm) : 1,
            rank = probe->comm != NULL ? trm_comm_rank(probe->comm) : 0;
    trm_error own;
    trm_status status = TRM_OK;
    /* A micro-batch of a pipeline has a graph of its own. */
    if (ask->micros > 0) {
        g = probe->part(probe->context, ask->micros, &own);
    }
    const trmi_op *op = g != NULL ? &g->ops[ask->op] : NULL;
    const char *name = op != NULL ? op->name : "an operator of a micro-batch";
    /* One rank makes its executor while the others wait in the reduction. */
    for (int32_t r = 0; r < size; r++) {
        if (r == rank) {
            status =
                g != NULL ? make_exec(probe, g, ask, &strategy, &exec, &marks, &own) : TRM_NOMEM;
        }
        double turn = 0;
        TRMI_TRY(trmi_op_benchmark_largest(probe, &turn, 1, err));
    }
    /* If it fails on one rank, all ranks give up together. */
    double failed = status != TRM_OK;
    status = trmi_op_benchmark_largest(probe, &failed, 1, err);
    if (status == TRM_OK && failed > 0) {
        status = TRMI_FAIL(err, TRM_UNSUPPORTED, "%s cut by '%s' does not run by itself", name,
                           ask->letters);
        *together = true;
    }
    status = status == TRM_OK ? time_op(probe, exec, marks, out, err) : status;
    trm_exec_destroy(exec);
    trmi_free(marks);
    if (status == TRM_OK && trmi_partition_in_factors(g, op, &strategy, 1)) {
        status = trmi_op_benchmark_factors(probe, &strategy, trmi_input_of(g, op, 0)->dtype,
                                           &out->factors, err);
    }
    /* The slowest rank decides: a step waits for all. */
    double all[4] = {out->forward, out->backward, out->factors, out->spread};
    status = status == TRM_OK ? trmi_op_benchmark_largest(probe, all, 4, err) : status;
    *out = (trmi_op_benchmark_time){all[0], all[1], all[2], all[3]};
    if (probe->limit > 0) {
        trmi_os_trim();
    }
    return status;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Sends a request from rank 0 to all ranks. A request is a plain struct without pointers, so its
 * bytes can travel; all ranks run the same program. */
static trm_status send_request(trm_comm *comm, request *what, trm_error *err) {
    return trm_comm_broadcast(comm, what, (int64_t)sizeof *what, TRM_UINT8, 0, err);
}

/* Broadcasts a request from rank 0; on the other ranks *what receives it. */
static trm_status broadcast_request(trmi_op_benchmark *probe, request *what, trm_error *err) {
    what->reach = probe->reach;
    what->seconds = probe->seconds;
    what->brief = probe->brief;
    TRMI_TRY(probe->comm == NULL ? TRM_OK : send_request(probe->comm, what, err));
    probe->reach = what->reach;
    probe->seconds = what->seconds;
    probe->brief = what->brief;
    return TRM_OK;
}

/* Ends a measurement. A rank that has failed alone has left its collectives early: no message may
 * follow, so that the other ranks end with this error. together: all ranks have failed alike. */
static trm_status end_measuring(trmi_op_benchmark *probe, trm_status status, bool together,
                                const trm_error *err) {
    if (status != TRM_OK && !together && probe->comm != NULL && err != NULL) {
        trm_comm_abort(probe->comm, err);
    }
    return status;
}

/* Contract in op_benchmark.h. memset clears the padding, too, so that no uninitialised byte is
 * sent. Signs of life pause during the call: the communicator is in use and the other ranks take
 * part. */
trm_status trmi_op_benchmark_measure(trmi_op_benchmark *probe, int32_t op, const trmi_mesh *mesh,
                                     const char *letters, trmi_op_benchmark_time *out,
                                     trm_error *err) {
    request ask;
    bool together = false;
    memset(&ask, 0, sizeof ask);
    memset(out, 0, sizeof *out);
    ask.what = REQUEST_OP;
    ask.op = op;
    ask.micros = probe->micros;
    ask.footprint = probe->footprint;
    ask.mesh = *mesh;
    snprintf(ask.letters, sizeof ask.letters, "%s", letters);
    trmi_signs_begin(probe->signs);
    trm_status status = broadcast_request(probe, &ask, err);
    status = status == TRM_OK ? run_op(probe, &ask, out, &together, err) : status;
    status = end_measuring(probe, status, together, err);
    trmi_signs_end(probe->signs);
    return status;
}

trm_status trmi_link_benchmark(trmi_op_benchmark *probe, trmi_text *out, trm_error *err) {
    request ask = {.what = REQUEST_LINKS};
    trmi_signs_begin(probe->signs);
    trm_status status = broadcast_request(probe, &ask, err);
    status = status == TRM_OK ? trmi_link_benchmark_run(probe, out, err) : status;
    status = end_measuring(probe, status, false, err);
    trmi_signs_end(probe->signs);
    return status;
}

trm_status trmi_op_benchmark_load(trmi_op_benchmark *probe, trm_error *err) {
    request ask = {.what = REQUEST_LOAD};
    trmi_signs_begin(probe->signs);
    trm_status status = broadcast_request(probe, &ask, err);
    status = status == TRM_OK ? find_load(probe, err) : status;
    status = end_measuring(probe, status, false, err);
    trmi_signs_end(probe->signs);
    return status;
}

/* Runs a benchmark of whole plans; all ranks call it. Frees the block of the sweeps first, because
 * plans need the memory. */
static trm_status run_plans(trmi_op_benchmark *probe, const request *ask, const char *const *plans,
                            trmi_plan_times *out, trm_error *err) {
    trmi_plan_benchmark benchmark = ask->plans;
    trmi_op_benchmark_close(probe);
    benchmark.comm = probe->comm;
    benchmark.graph = probe->whole;
    benchmark.options = probe->whole_options;
    for (int32_t i = 0; i < benchmark.count; i++) {
        benchmark.plans[i] = plans != NULL ? plans[i] : NULL;
    }
    return trmi_plan_benchmark_run(&benchmark, out, err);
}

/* Contract in op_benchmark.h. Pointers of this process are cleared before the request is sent; the
 * other ranks have graph and options of their own and receive the texts of the plans afterwards. */
trm_status trmi_op_benchmark_plans(trmi_op_benchmark *probe, const trmi_plan_benchmark *benchmark,
                                   trmi_plan_times *out, trm_error *err) {
    request ask;
    memset(&ask, 0, sizeof ask);
    ask.what = REQUEST_PLANS;
    ask.plans = *benchmark;
    ask.plans.comm = NULL;
    ask.plans.graph = NULL;
    ask.plans.options = NULL;
    memset(ask.plans.plans, 0, sizeof ask.plans.plans);
    trmi_signs_begin(probe->signs);
    trm_status status = broadcast_request(probe, &ask, err);
    status = status == TRM_OK ? run_plans(probe, &ask, benchmark->plans, out, err) : status;
    status = end_measuring(probe, status, false, err);
    trmi_signs_end(probe->signs);
    return status;
}

/* Sends the sign of life of rank 0, from a thread that shares no member of the probe with the
 * search. */
static trm_status send_sign(void *context, trm_error *err) {
    request ask = {.what = REQUEST_NONE};
    return send_request(context, &ask, err);
}

/* Ends the waits of all ranks: rank 0 is stuck. */
static void give_up(void *context, const trm_error *cause) {
    trm_comm *comm = context;
    trm_error own = *cause;
    own.rank = trm_comm_rank(comm);
    trm_comm_abort(comm, &own);
}

/* Contract in op_benchmark.h. Several signs fall into the deadline of an operation, so that a busy
 * machine may delay some. */
trm_status trmi_op_benchmark_lead(trmi_op_benchmark *probe, trm_error *err) {
    if (probe->comm == NULL || trm_comm_size(probe->comm) == 1) {
        return TRM_OK;
    }
    const double deadline = probe->comm->options.timeout_seconds;
    const trmi_signs_options options = {
        .between = fmin(10, deadline / 8),
        .patience = probe->patience > 0 ? probe->patience : fmax(patience, 3 * deadline),
        .send = send_sign,
        .give_up = give_up,
        .context = probe->comm,
        .count = &probe->done};
    return trmi_signs_start(&options, &probe->signs, err);
}

trm_status trmi_op_benchmark_end(trmi_op_benchmark *probe, trm_error *err) {
    trmi_signs_stop(probe->signs);
    probe->signs = NULL;
    request ask = {.what = REQUEST_END};
    return broadcast_request(probe, &ask, err);
}

/* Contract in op_benchmark.h. Every request of rank 0 is a broadcast, followed by the
 * collectives of that measurement; all ranks therefore handle the same requests in the same
 * order. Any other request ends the loop. */
trm_status trmi_op_benchmark_serve(trmi_op_benchmark *probe, trm_error *err) {
    for (;;) {
        request ask;
        trmi_op_benchmark_time time = {.spread = 0};
        trmi_plan_times result;
        trmi_text none = {0};
        trm_status status = TRM_OK;
        bool together = false;
        TRMI_TRY(broadcast_request(probe, &ask, err));
        switch (ask.what) {
        case REQUEST_OP:
            probe->footprint = ask.footprint;
            probe->micros = ask.micros;
            status = run_op(probe, &ask, &time, &together, err);
            probe->micros = 0;
            status = together ? TRM_OK : status; /* rank 0 gets the same */
            break;
        case REQUEST_LINKS:
            status = trmi_link_benchmark_run(probe, &none, err);
            trmi_text_free(&none);
            break;
        case REQUEST_PLANS: status = run_plans(probe, &ask, NULL, &result, err); break;
        case REQUEST_LOAD: status = find_load(probe, err); break;
        case REQUEST_NONE: break; /* rank 0 is still searching */
        default: return TRM_OK;
        }
        TRMI_TRY(end_measuring(probe, status, false, err));
    }
}
