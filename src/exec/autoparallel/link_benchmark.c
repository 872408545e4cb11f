/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of messages between ranks, for trmi_links_parse. Small programs are made whose
 * exchanges are those of a split program, and each exchange is timed, all groups of a size at once:
 *
 *      a [r x p] . b [p x c] cut by the sum --P+--> all:   all-reduce
 *                                           --P+--> rows:  reduce-scatter --> columns: all-to-all
 *                                                                         --> all:     all-gather
 *      the same tensor, whole --> columns: local copy
 *
 * Then buckets of gradients in shared memory, the pass of the optimiser over several sizes, and the
 * overhead of a step with almost no work. All ranks run the same calls; rank 0 writes the text. */
#include "exec/autoparallel/op_benchmark.h"

#include "exec/exec.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SIZES = 6,
    SMALL = 3,
    UPDATES = 6,
    TURNS = 9,
    TURNS_SMALL = 33,
    BRIEF = 3,
    TURNS_LEAST = 3,
    MOVES = 9,
    NAME = 32,
    BUCKETS = 4,
    SLICES = 8
};
/* Copies of a vector in memory while it is measured, at most. */
enum { MESSAGE_COPIES = 8, UPDATE_COPIES = 6 };
/* Bytes of messages; the first SMALL are repeated TURNS_SMALL times, the others TURNS times. */
static const int64_t sizes[SIZES] = {4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20};
static const trmi_move moves[MOVES] = {
    TRMI_MOVE_ALL_REDUCE,   TRMI_MOVE_ALL_GATHER,    TRMI_MOVE_REDUCE_SCATTER,
    TRMI_MOVE_ALL_TO_ALL,   TRMI_MOVE_GRADIENTS,     TRMI_MOVE_LOCAL,
    TRMI_MOVE_GATHER_STORE, TRMI_MOVE_SCATTER_STORE, TRMI_MOVE_SLICES};

static const double enough = 0.7; /* seconds for one program of messages */

/* Returns the number of turns of this measurement: fewer if it is one of several (probe->brief). */
static int turns_of(const trmi_op_benchmark *probe, int turns) {
    return probe->brief ? (turns + BRIEF - 1) / BRIEF : turns;
}

/* The state of a measurement. seconds[move][size]: results for the present group size. */
typedef struct links {
    trmi_op_benchmark *probe;
    int32_t ranks, group;
    int count;            /* of the sizes, as memory allows */
    int first, end, most; /* sizes of the present program; turns */
    double seconds[MOVES][SIZES];
    const char *doing; /* for the lines of progress */
    int64_t done, total;
} links;

static void note_links(const links *l) {
    if (l->probe->comm == NULL || trm_comm_rank(l->probe->comm) == 0) {
        trmi_progress_note(&l->probe->progress, l->done, l->total, -1, l->doing);
    }
}

static trm_status wait_for_ranks(const links *l, trm_error *err) {
    note_links(l);
    return l->probe->comm != NULL ? trm_comm_barrier(l->probe->comm, err) : TRM_OK;
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Adds an operator named `what` and the index of its size. */
static trm_node add_sized(trm_graph *g, trmi_op_kind kind, const char *what, int size,
                          const trm_node *inputs, int count) {
    char name[NAME];
    snprintf(name, sizeof name, "%s%d", what, size);
    int32_t made = trmi_graph_add(g, kind, name, inputs, count, 1, NULL);
    return (trm_node){made != 0 ? g->ops[made].outputs[0] : 0};
}

/* Sets how the plan cuts operator `what``size`: `letter` on the last axis of the mesh. */
static trm_status set_letter(trmi_partition_plan *plan, const char *what, int size,
                             const char *letter, trm_error *err) {
    char name[NAME], letters[TRMI_MESH_AXES + 1];
    snprintf(name, sizeof name, "%s%d", what, size);
    snprintf(letters, sizeof letters, "%s%s", plan->mesh.axes > 1 ? "." : "", letter);
    return trmi_partition_plan_set(plan, name, letters, false, NULL, err);
}

/* Factors a number of floats (a power of two) into rows and columns, about equal. */
static void sides_of(int64_t bytes, int64_t *rows, int64_t *columns) {
    *rows = *columns = 1;
    for (int64_t count = bytes / (int64_t)sizeof(float); count > 1; count /= 4) {
        *rows *= 2;
        *columns *= count > 2 ? 2 : 1;
    }
}

/* Adds the operators of one message size to the graph and to the plan (drawing above). */
static trm_status add_size(const links *l, trm_graph *g, trmi_partition_plan *plan, int i,
                           trm_node outputs[4], trm_error *err) {
    char a[NAME], b[NAME];
    int64_t rows, columns;
    sides_of(sizes[i], &rows, &columns);
    snprintf(a, sizeof a, "a%d", i);
    snprintf(b, sizeof b, "b%d", i);
    trm_node factors[2] = {
        trm_parameter(g, a, trm_shape_of(rows, l->group), TRM_INIT_NORMAL_001),
        trm_parameter(g, b, trm_shape_of(l->group, columns), TRM_INIT_NORMAL_001)};
    /* If a value is whole already, its columns are cut locally and nothing is sent. So there are
     * two sums, and the columns are taken before the gathered value. */
    for (int k = 0; k < 2; k++) {
        trm_node sum = trm_matmul(g, factors[0], factors[1], false, false);
        TRMI_TRY(trm_graph_check(g, err));
        char letters[TRMI_MESH_AXES + 1];
        snprintf(letters, sizeof letters, "%sc", plan->mesh.axes > 1 ? "." : "");
        TRMI_TRY(trmi_partition_plan_set(plan, g->ops[g->values[sum.id].op].name, letters, false,
                                         NULL, err));
        outputs[k] = add_sized(g, TRMI_OP_RELU, k == 0 ? "all" : "rows", i, &sum, 1);
    }
    trm_node parts = outputs[1];
    outputs[1] = add_sized(g, TRMI_OP_RELU, "columns", i, &parts, 1);
    outputs[2] = add_sized(g, TRMI_OP_RELU, "gathered", i, &parts, 1);
    outputs[3] = add_sized(g, TRMI_OP_RELU, "local", i, &outputs[0], 1);
    TRMI_TRY(trm_graph_check(g, err));
    TRMI_TRY(set_letter(plan, "all", i, ".", err));
    TRMI_TRY(set_letter(plan, "rows", i, "n", err));
    TRMI_TRY(set_letter(plan, "gathered", i, ".", err));
    TRMI_TRY(set_letter(plan, "columns", i, "c", err));
    return set_letter(plan, "local", i, "c", err);
}

/* Returns the index in `moves` of a step of the program with stored parts: a gather of a parameter
 * (6) or a scatter of a gradient (7); -1: neither. *size: its index in `sizes`. */
static int store_message_of(const trm_program *p, const trmi_step *step, int *size) {
    if (step->kind != TRMI_STEP_OP || step->op_kind != TRMI_OP_EXCHANGE) {
        return -1;
    }
    bool scatter = trmi_exchange_of(step->attrs)->combine == TRMI_COMBINE_SUM,
         stored = p->buffers[step->inputs[0]].arena == TRMI_ARENA_PARAM;
    const trmi_buffer *whole = &p->buffers[scatter ? step->inputs[0] : step->outputs[0]];
    for (*size = 0; *size < SIZES; ++*size) {
        if (trm_shape_count(&whole->shape) * (int64_t)sizeof(float) == sizes[*size] &&
            (scatter || stored)) {
            return scatter ? 7 : 6;
        }
    }
    return -1;
}

/* Returns the index in `moves` of an exchange, and in *size its index in `sizes`; -1: no message
 * that is measured. Exchanges are named after the producer of the value ("matmul0 -> S0"), so the
 * reader identifies them. The exchanges that make outputs whole have no reader and are not
 * counted. */
static int message_of(const trm_program *p, const trmi_step *step, int *size) {
    if (step->kind != TRMI_STEP_OP ||
        (step->op_kind != TRMI_OP_EXCHANGE && step->op_kind != TRMI_OP_ALL_REDUCE)) {
        return -1;
    }
    /* The name of the first reader is that of the move, with the index of the size. */
    for (const trmi_step *reader = step + 1; reader < p->steps + p->steps_count; reader++) {
        static const char *const names[] = {"all", "gathered", "rows", "columns", "", "local"};
        if (reader->inputs_count < 1 || reader->inputs[0] != step->outputs[0]) {
            continue;
        }
        for (int m = 0; m < (int)(sizeof names / sizeof *names); m++) {
            size_t length = strlen(names[m]);
            if (length > 0 && strncmp(reader->name, names[m], length) == 0 &&
                reader->name[length] >= '0' && reader->name[length] <= '9') {
                *size = reader->name[length] - '0';
                return *size < SIZES ? m : -1;
            }
        }
    }
    return -1;
}

typedef int classify(const trm_program *p, const trmi_step *step, int *size);
/* One pass over the program; times[step][turn]. */
static trm_status time_turn(links *l, trm_exec *exec, classify *message, int turn, double *times,
                            trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->steps_count; i++) {
        int size, what = message(p, &p->steps[i], &size);
        /* A local copy is timed by this rank's own clock. Producers of values start after a barrier
         * with cold caches; they end at different times on the ranks, as in training, so the time
         * of a message includes the wait. */
        bool own = what >= 0 && moves[what] == TRMI_MOVE_LOCAL;
        if (what < 0) {
            TRMI_TRY(wait_for_ranks(l, err));
            trmi_op_benchmark_sweep(l->probe, 0, 1);
        }
        double begin = own ? trmi_op_benchmark_clock(l->probe) : trmi_os_now();
        TRMI_TRY(trmi_exec_run(exec, i, i + 1, err));
        if (turn >= 0) {
            times[(int64_t)i * l->most + turn] =
                (own ? trmi_op_benchmark_clock(l->probe) : trmi_os_now()) - begin;
        }
    }
    return TRM_OK;
}

/* Sets *seconds to the median over turns of the mean over ranks. The mean, because early ranks also
 * wait for late ones. */
static trm_status median_of_mean(const links *l, double *times, int32_t turns, double *seconds,
                                 trm_error *err) {
    trm_status status = l->probe->comm == NULL
                            ? TRM_OK
                            : trm_comm_allreduce(l->probe->comm, times, turns, TRM_FLOAT64,
                                                 TRM_REDUCTION_MEAN, err);
    *seconds = trmi_median(times, turns);
    return status;
}

/* Times the messages of a program over several turns, to l->seconds. */
static trm_status time_program(links *l, trm_exec *exec, classify *message, trm_error *err) {
    const trm_program *p = exec->program;
    double *times = trmi_alloc((size_t)p->steps_count * (size_t)l->most * sizeof *times + 1),
           begin = trmi_os_now(), used = 0;
    trm_status status =
        times != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory to measure messages");
    int32_t turns = 0;
    for (int turn = -1;
         status == TRM_OK && turn < l->most && (turn < TURNS_LEAST || used < enough);) {
        status = time_turn(l, exec, message, turn, times, err);
        used = trmi_os_now() - begin;
        /* the maximum over ranks, so that all stop after the same turn */
        status = status == TRM_OK ? trmi_op_benchmark_largest(l->probe, &used, 1, err) : status;
        turns = ++turn;
    }
    for (int32_t i = 0; status == TRM_OK && i < p->steps_count; i++) {
        int size, what = message(p, &p->steps[i], &size);
        if (what >= 0) {
            status = median_of_mean(l, times + (int64_t)i * l->most, turns, &l->seconds[what][size],
                                    err);
        }
    }
    trmi_free(times);
    return status;
}

static trm_status mesh_of(const links *l, trmi_mesh *mesh, trm_error *err) {
    char text[48];
    if (l->group < l->ranks) {
        snprintf(text, sizeof text, "%dx%d", (int)(l->ranks / l->group), (int)l->group);
    } else {
        snprintf(text, sizeof text, "%d", (int)l->group);
    }
    return trmi_mesh_parse(text, mesh, err);
}

/* Runs a graph partitioned by the plan on all ranks, and times its messages. */
static trm_status run_graph(links *l, const trm_graph *g, const trmi_partition_plan *plan,
                            trm_exec_options *options, classify *message, trm_error *err) {
    trm_exec *exec = NULL;
    char *words = trmi_partition_plan_text(plan);
    if (words == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure messages");
    }
    options->backend = l->probe->backend;
    options->threads = l->probe->threads;
    options->tuning_file = l->probe->tuning_file;
    options->fusion = TRM_OFF;
    options->parallel = (trm_parallel_options){
        .comm = l->probe->comm, .split.kind = TRM_SPLIT_PLANNED, .split.plan = words};
    trm_status status = trmi_exec_create(g, options, NULL, NULL, &exec, err);
    status = status == TRM_OK ? time_program(l, exec, message, err) : status;
    trm_exec_destroy(exec);
    trm_free(words);
    return status;
}

/* Measures the moves between forms of a value, for the sizes [l->first, l->end). */
static trm_status run_program(links *l, trm_error *err) {
    trm_graph *g = NULL;
    trmi_partition_plan *plan = NULL;
    trm_node outputs[4 * SIZES];
    trmi_mesh mesh;
    TRMI_TRY(mesh_of(l, &mesh, err));
    TRMI_TRY(trmi_partition_plan_create(&mesh, &plan, err));
    trm_status status = trm_graph_create(&(trm_graph_options){.training = false}, &g, err);
    for (int i = l->first; status == TRM_OK && i < l->end; i++) {
        status = add_size(l, g, plan, i, outputs + 4 * (i - l->first), err);
    }
    trm_exec_options options = {.outputs = outputs, .outputs_count = 4 * (l->end - l->first)};
    status = status == TRM_OK ? run_graph(l, g, plan, &options, message_of, err) : status;
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(g);
    return status;
}

/* Adds x [p x c] . w [r x c]', cut by the rows of x, with w stored by rows: w is gathered before
 * the product, and its gradient is reduce-scattered after it. */
static trm_status add_store(const links *l, trm_graph *g, trmi_partition_plan *plan, int i,
                            trm_node *sum, trm_error *err) {
    char w[NAME], x[NAME], letters[TRMI_MESH_AXES + 1];
    int64_t rows, columns;
    trmi_spread parts = {{0}, {0}};
    sides_of(sizes[i], &rows, &columns);
    snprintf(w, sizeof w, "w%d", i);
    snprintf(x, sizeof x, "x%d", i);
    snprintf(letters, sizeof letters, "%sn", plan->mesh.axes > 1 ? "." : "");
    parts.at[plan->mesh.axes - 1] = TRMI_SPLIT;
    trm_node y = trm_linear(
        g, trm_parameter(g, x, trm_shape_of(l->group, columns), TRM_INIT_NORMAL_001),
        trm_parameter(g, w, trm_shape_of(rows, columns), TRM_INIT_NORMAL_001), TRM_NO_NODE);
    TRMI_TRY(trm_graph_check(g, err));
    TRMI_TRY(
        trmi_partition_plan_set(plan, g->ops[g->values[y.id].op].name, letters, false, NULL, err));
    TRMI_TRY(trmi_partition_plan_store(plan, w, &parts, err));
    trm_node mean = trm_reduce_mean(g, y, NULL, 0, false);
    *sum = sum->id == 0 ? mean : trm_add(g, *sum, mean);
    return trm_graph_check(g, err);
}

/* Measures gathers and scatters of parameters that are stored in parts. */
static trm_status run_stores(links *l, trm_error *err) {
    trm_graph *g = NULL;
    trmi_partition_plan *plan = NULL;
    trm_node sum = TRM_NO_NODE;
    trmi_mesh mesh;
    TRMI_TRY(mesh_of(l, &mesh, err));
    TRMI_TRY(trmi_partition_plan_create(&mesh, &plan, err));
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &g, err);
    for (int i = l->first; status == TRM_OK && i < l->end; i++) {
        status = add_store(l, g, plan, i, &sum, err);
    }
    trm_exec_options options = {.loss = sum};
    status = status == TRM_OK ? run_graph(l, g, plan, &options, store_message_of, err) : status;
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(g);
    return status;
}

/* ---- buckets of gradients -------------------------------------------------------------------- */

/* Times gradient buckets of each size: an all-reduce (BUCKETS), or a reduce-scatter to one slice
 * for each rank (SLICES). */
static trm_status time_buckets(links *l, trm_comm *group, float *data, int move, trm_error *err) {
    int32_t size = trm_comm_size(group);
    int64_t *counts = trmi_alloc((size_t)size * sizeof *counts);
    if (counts == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure messages");
    }
    trm_status status = TRM_OK;
    for (int i = l->first; status == TRM_OK && i < l->end; i++) {
        double times[TURNS_SMALL];
        int64_t count = sizes[i] / (int64_t)sizeof *data;
        for (int32_t r = 0; r < size; r++) {
            counts[r] = count * (r + 1) / size - count * r / size;
        }
        for (int turn = -1; status == TRM_OK && turn < l->most; turn++) {
            status = wait_for_ranks(l, err);
            trmi_op_benchmark_sweep(l->probe, 0, 1);
            memset(data, 0, (size_t)sizes[i]); /* backward leaves gradients in its rank's cache */
            /* Through a request, as a training step does it: the communicator's thread wakes up. */
            const trm_collective op = {.kind = move == SLICES ? TRM_REDUCE_SCATTERV : TRM_ALLREDUCE,
                                       .recv = data,
                                       .count = count,
                                       .counts = move == SLICES ? counts : NULL,
                                       .dtype = TRM_FLOAT32,
                                       .reduce = TRM_REDUCTION_SUM,
                                       .tag = "gradients"};
            trm_request *request = NULL;
            double begin = trmi_os_now();
            status = status == TRM_OK ? trm_comm_start(group, &op, &request, err) : status;
            status = request != NULL ? trm_request_wait(request, -1, err) : status;
            if (turn >= 0) {
                times[turn] = trmi_os_now() - begin;
            }
        }
        status = status == TRM_OK ? median_of_mean(l, times, l->most, &l->seconds[move][i], err)
                                  : status;
    }
    trmi_free(counts);
    return status;
}

/* Measures gradient buckets in groups of l->group ranks, in memory that the group shares. */
static trm_status run_buckets(links *l, trm_error *err) {
    trm_comm *group;
    int32_t rank = trm_comm_rank(l->probe->comm);
    TRMI_TRY(trm_comm_split(l->probe->comm, rank / l->group, rank, &group, err));
    float *data = trm_comm_alloc_shared(group, (size_t)sizes[l->end - 1], err);
    trm_status status =
        data != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory to measure messages");
    status = status == TRM_OK ? time_buckets(l, group, data, BUCKETS, err) : status;
    status = status == TRM_OK ? time_buckets(l, group, data, SLICES, err) : status;
    if (data != NULL) {
        trm_comm_free_shared(group, data);
    }
    trm_comm_destroy(group);
    return status;
}

/* ---- the optimiser, and a step with nothing in it -------------------------------------------- */

/* A small training program with one parameter: CUT: partitioned by the default plan; OWN: whole on
 * every rank, each updates its own copy; SLICED: one copy, which the ranks update in slices. */
typedef enum kind { CUT, OWN, SLICED } kind;

static trm_status small_exec(const trmi_op_benchmark *probe, int64_t rows, kind what,
                             trm_exec **out, trm_error *err) {
    trm_graph *g;
    char mesh[16], plan[96];
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, err));
    trm_node x = trm_parameter(g, "w", trm_shape_of(rows, 64), TRM_INIT_NORMAL_001);
    trm_node y = trm_relu(g, x), loss = trm_reduce_mean(g, y, NULL, 0, false);
    snprintf(mesh, sizeof mesh, "%d", (int)trm_comm_size(probe->comm));
    snprintf(plan, sizeof plan, "trireme-plan 1\nmesh %s\nop %.40s .\n", mesh,
             g->ops[g->values[y.id].op].name);
    const trm_exec_options options = {.loss = loss,
                                      .optimizer = probe->optimizer,
                                      .backend = probe->backend,
                                      .threads = probe->threads,
                                      .tuning_file = probe->tuning_file,
                                      .parallel = {.comm = probe->comm,
                                                   .split.kind = TRM_SPLIT_PLANNED,
                                                   .split.plan = what == CUT ? NULL : plan,
                                                   .shard_optimizer = what == SLICED}};
    trm_status status = trm_graph_check(g, err);
    status = status == TRM_OK ? trmi_exec_create(g, &options, NULL, NULL, out, err) : status;
    trm_graph_destroy(g);
    return status;
}

/* Sets *seconds to the median time of a step (CUT) or of its update alone, on the slowest rank. */
static trm_status time_small(const links *l, int64_t rows, kind what, double *seconds,
                             trm_error *err) {
    trmi_op_benchmark *probe = l->probe;
    double times[TURNS], none = 0;
    bool step = what == CUT;
    int turns = turns_of(probe, TURNS);
    trm_exec *exec;
    TRMI_TRY(small_exec(probe, rows, what, &exec, err));
    trm_status status = TRM_OK;
    for (int turn = -1; status == TRM_OK && turn < turns; turn++) {
        note_links(l);
        trmi_op_benchmark_sweep(probe, 0, 1);
        status = trmi_op_benchmark_largest(probe, &none, 1, err);
        double begin = trmi_os_now();
        status = status == TRM_OK ? trm_exec_forward_backward(exec, err) : status;
        begin = step ? begin : trmi_op_benchmark_clock(probe);
        status = status == TRM_OK ? trm_exec_update(exec, 1e-6, err) : status;
        if (turn >= 0) {
            times[turn] = (step ? trmi_os_now() : trmi_op_benchmark_clock(probe)) - begin;
        }
    }
    *seconds = status != TRM_OK ? 0 : trmi_median(times, turns);
    trm_exec_destroy(exec);
    return status == TRM_OK ? trmi_op_benchmark_largest(probe, seconds, 1, err) : status;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Makes a curve monotonic: costs rise with bytes, so a point above a later one was disturbed and
 * takes the later one's time. */
static void make_monotonic(double *seconds, int32_t count) {
    for (int32_t i = count - 1; i > 0; i--) {
        seconds[i - 1] = fmin(seconds[i - 1], seconds[i]);
    }
}

/* Appends a curve: move, ranks, then bytes:microseconds. */
static void append_curve(trmi_text *out, trmi_move move, int32_t ranks, const int64_t *bytes,
                         const double *seconds, int32_t count) {
    trmi_text_printf(out, "points %s %d", trmi_links_word(move), (int)ranks);
    for (int32_t i = 0; i < count; i++) {
        trmi_text_printf(out, " %lld:%.3f", (long long)bytes[i], fmax(0.01, seconds[i] * 1e6));
    }
    trmi_text_printf(out, "\n");
}

/* Appends the curve of the optimiser's pass by bytes, as far as memory limit and reach allow. */
static trm_status measure_updates(const links *l, kind what, double crowd, trmi_text *out,
                                  trm_error *err) {
    static const int64_t rows[UPDATES] = {1 << 10, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17};
    trmi_op_benchmark *probe = l->probe;
    int32_t share = what == SLICED ? l->ranks : 1;
    int64_t bytes[UPDATES];
    double seconds[UPDATES];
    int count = 0;
    /* UPDATE_COPIES: the parameter, its gradient, slots, and the ReLU with its gradient */
    for (; count < UPDATES; count++) {
        bytes[count] = rows[count] * 64 * (int64_t)sizeof(float);
        bool beyond = count > 0 && probe->reach > 0 &&
                      rows[count - 1] * 64 * (int64_t)sizeof(float) >= sizes[l->count - 1];
        if (count >= 2 &&
            (beyond || (probe->limit > 0 && UPDATE_COPIES * bytes[count] > probe->limit))) {
            break;
        }
        TRMI_TRY(time_small(l, rows[count], what, &seconds[count], err));
        seconds[count] *= crowd;
        bytes[count] /= share;
    }
    make_monotonic(seconds, count);
    append_curve(out, what == SLICED ? TRMI_SLICED_UPDATE : TRMI_MOVES, share, bytes, seconds,
                 count);
    return TRM_OK;
}

/* Measures and appends the curves of all moves for each group size that divides the ranks. `crowd`:
 * how many threads of ranks share a core; multiplies work that ranks do alone. */
static trm_status measure_groups(links *l, double crowd, trmi_text *out, trm_error *err) {
    for (l->group = 2; l->group <= l->ranks; l->group++) {
        if (l->ranks % l->group != 0) {
            continue;
        }
        for (int large = 0; large < 2; large++) {
            l->first = large ? SMALL : 0;
            l->end = large ? l->count : SMALL;
            l->most = turns_of(l->probe, large ? TURNS : TURNS_SMALL);
            TRMI_TRY(run_program(l, err));
            TRMI_TRY(run_stores(l, err));
            TRMI_TRY(run_buckets(l, err));
            l->done++;
        }
        for (int m = 0; m < MOVES; m++) {
            bool alone = moves[m] == TRMI_MOVE_LOCAL;
            for (int i = 0; alone && i < l->count; i++) {
                l->seconds[m][i] *= crowd;
            }
            make_monotonic(l->seconds[m], l->count);
            int64_t bytes[SIZES];
            for (int i = 0; i < l->count; i++) { /* of a copy: what it makes */
                bytes[i] = sizes[i] / (alone ? l->group : 1);
            }
            if (!alone || l->group == l->ranks) {
                append_curve(out, moves[m], alone ? 1 : l->group, bytes, l->seconds[m], l->count);
            }
        }
    }
    return TRM_OK;
}

int64_t trmi_op_benchmark_longest(const trm_graph *g) {
    int64_t longest = 0, parameters = 0;
    for (int64_t v = 1; v < g->values_count; v++) {
        int64_t bytes = trm_shape_count(&g->values[v].shape) * (int64_t)sizeof(float);
        longest = trmi_max_i64(longest, bytes);
        parameters += g->ops[g->values[v].op].kind == TRMI_OP_PARAMETER ? bytes : 0;
    }
    return trmi_max_i64(longest, parameters);
}

int trmi_link_benchmark_sizes(const trmi_op_benchmark *probe) {
    int count = trmi_op_benchmark_affords(probe, sizes, SIZES, SMALL + 1, MESSAGE_COPIES);
    /* sizes above the first one that reaches the longest message are not needed */
    while (count > SMALL + 1 && probe->reach > 0 && sizes[count - 2] >= probe->reach) {
        count--;
    }
    return count;
}

static trm_status run_links(trmi_op_benchmark *probe, trmi_text *out, trm_error *err) {
    links l = {.probe = probe,
               .ranks = trm_comm_size(probe->comm),
               .count = trmi_link_benchmark_sizes(probe)};
    double step;
    char date[32];
    time_t now = (time_t)trmi_os_wall();
    struct tm day;
    int cores = probe->cores;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M", gmtime_r(&now, &day));
    trmi_text_printf(out,
                     "# messages of %d ranks of this machine (form 5), measured %s UTC\nlevel host "
                     "%d 5 4\ncores %d\noverlap %d\n"
                     "together %d\nload %.3f\n",
                     (int)l.ranks, date, (int)l.ranks, cores, l.ranks * probe->threads < cores,
                     (int)l.ranks, probe->load);
    double crowd = fmax(1, (double)l.ranks * probe->threads / cores);
    l.doing = "measuring messages, for all jobs";
    for (int32_t group = 2; group <= l.ranks; group++) { /* small ones and large ones of each */
        l.total += l.ranks % group == 0 ? 2 : 0;
    }
    TRMI_TRY(measure_groups(&l, crowd, out, err));
    l.doing = "measuring the optimiser, for all jobs";
    l.total = 0;
    TRMI_TRY(measure_updates(&l, OWN, crowd, out, err));
    TRMI_TRY(l.ranks == trm_comm_local_size(probe->comm)
                 ? measure_updates(&l, SLICED, crowd, out, err)
                 : TRM_OK);
    TRMI_TRY(time_small(&l, 16, CUT, &step, err));
    trmi_text_printf(out, "overhead %.3f\n", step * 1e6);
    return out->failed ? TRMI_FAIL(err, TRM_NOMEM, "no memory to measure messages") : TRM_OK;
}

trm_status trmi_link_benchmark_run(trmi_op_benchmark *probe, trmi_text *out, trm_error *err) {
    int64_t footprint = probe->footprint;
    probe->footprint = 0; /* curves are of no step, whenever they are measured */
    trm_status status = run_links(probe, out, err);
    probe->footprint = footprint;
    return status;
}
