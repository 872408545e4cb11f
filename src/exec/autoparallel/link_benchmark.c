/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of messages between ranks, for trmi_links_parse. Small programs are made whose
 * exchanges are those of a split program, and each exchange is timed, all groups of a size at once:
 *
 *      a [r x p] . b [p x c] cut by the sum --P+--> all:   all-reduce
 *                                           --P+--> rows:  reduce-scatter --> columns: all-to-all
 *                                                                         --> all:     all-gather
 *      the same tensor, whole --> columns: local copy
 *
 * The time of a message is the mean over the ranks of what each waits: ranks that come early wait
 * for late ones. Where ranks share cores, what an early rank waits for is the computation of others
 * on its core, and the price of operators has that already (crowding). There the time counts from
 * when the last rank has begun the message to when the last one has ended it; but at least as long
 * as the cores need for the CPU seconds of all ranks: small groups are done before the last begins.
 *
 * Then buckets of gradients in shared memory, the passes of the optimiser and of adding up
 * gradients over several sizes, the overhead of a step with almost no work, and where ranks share
 * cores what a wait costs (link_benchmark_waits.c). All ranks run the same calls; rank 0 writes the
 * text.
 *
 * Time: probe->seconds is divided among the programs that are still to be run. A program runs until
 * its share is used or it has all its turns, but at least once after a warm-up, so that every
 * curve exists. The slowest rank's time counts, so that all ranks stop after the same turn. */
#include "exec/autoparallel/search_costs.h"

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

/* Numbers of a measurement:
 *
 *      SIZES, SMALL       sizes of messages; the first SMALL of them take many short turns
 *      UPDATES            sizes of the optimiser's pass
 *      TURNS, TURNS_SMALL timed turns of a size; BRIEF: a brief measurement has so many times
 *      fewer;
 *                         TURNS_LEAST: a median of fewer is marked as doubtful (links.cut)
 *      MOVES              kinds of messages; BUCKETS and SLICES are indices among them: reductions
 *                         of whole gradients, and of gradients to one slice for each rank
 *      NAME               characters of an operator's name */
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
/* Kinds of messages that are measured, in the order of the text for trmi_links_parse. */
static const trmi_move moves[MOVES] = {
    TRMI_MOVE_ALL_REDUCE,   TRMI_MOVE_ALL_GATHER,    TRMI_MOVE_REDUCE_SCATTER,
    TRMI_MOVE_ALL_TO_ALL,   TRMI_MOVE_GRADIENTS,     TRMI_MOVE_LOCAL,
    TRMI_MOVE_GATHER_STORE, TRMI_MOVE_SCATTER_STORE, TRMI_MOVE_SLICES};

static const double enough = 0.7; /* seconds for one program of messages */
/* Parts of the time limit: about how long the programs take, compared with one bucket of
 * gradients. */
enum { PART_MESSAGES = 8, PART_LARGE = 24, PART_BUCKET = 1, PART_UPDATE = 4 };

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
    double begin;      /* of the measurement */
    double until;      /* seconds after `begin` at which the present program ends */
    int least;         /* turns that the present program has however long they take */
    int parts;         /* PART_... of all programs that are still to be run */
    bool cut, over;    /* some program had less than TURNS_LEAST turns; the limit is passed */
    const char *doing; /* for the lines of progress */
    int64_t done, total;
} links;

/* Notes progress: only rank 0 prints, the other ranks would repeat its lines. */
static void note_links(const links *l) {
    if (l->probe->comm == NULL || trm_comm_rank(l->probe->comm) == 0) {
        trmi_progress_note(&l->probe->progress, l->done, l->total, -1, l->doing);
    }
}

/* Sets *used to the seconds of the measurement so far on the slowest rank, and l->over where they
 * exceed the limit. Collective, and so a barrier. */
static trm_status look_at_clock(links *l, double *used, trm_error *err) {
    *used = trmi_os_now() - l->begin;
    TRMI_TRY(trmi_op_benchmark_largest(l->probe, used, 1, err));
    l->over = l->probe->seconds > 0 && *used > l->probe->seconds;
    return TRM_OK;
}

/* Gives the next program its part of the first half of the time limit: until l->until. */
static trm_status allow_time(links *l, int part, trm_error *err) {
    double limit = l->probe->seconds, used;
    TRMI_TRY(look_at_clock(l, &used, err));
    double share = fmax(0, limit / 2 - used) * part / (l->parts > part ? l->parts : part);
    l->parts -= part;
    bool whole = limit <= 0 || share >= enough;
    l->until = used + (whole ? enough : share);
    l->least = whole ? TURNS_LEAST : 1;
    return TRM_OK;
}

/* Sets *more: whether a program that has run `turns` of `most` turns runs another one. */
static trm_status has_time(links *l, int turns, int most, bool *more, trm_error *err) {
    double used;
    TRMI_TRY(look_at_clock(l, &used, err));
    *more = !l->over && (turns < l->least || (turns < most && used < l->until));
    l->cut = l->cut || (!*more && turns < most && turns < TURNS_LEAST);
    return TRM_OK;
}

/* Waits until all ranks are here, so that what is timed next begins at the same time everywhere. */
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
    return trmi_graph_node(g, made, 0);
}

/* Sets how the plan cuts operator `what``size`: `letter` on the last axis of the mesh. */
static trm_status set_letter(trmi_partition_plan *plan, const char *what, int size,
                             const char *letter, trm_error *err) {
    char name[NAME], letters[TRMI_MESH_AXES + 1];
    snprintf(name, sizeof name, "%s%d", what, size);
    snprintf(letters, sizeof letters, "%s%s", plan->mesh.axes > 1 ? "." : "", letter);
    return trmi_partition_plan_set(plan, name, letters, false, NULL, err);
}

/* Divides a number of floats (a power of two) into rows times columns, about as many rows as
 * columns. */
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
    /* A product of two thin factors has many bytes and little arithmetic. Cut along the summed
     * dimension ("c") it is partial on the ranks, so that its readers need a sum. */
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
    /* The letters decide the messages: from a partial sum to a whole value or to rows, from columns
     * to a whole value, and so on. */
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
        /* Only a step that reads this message counts. */
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

/* Begin and end of a message in each turn, and CPU seconds of this rank in it; NULL: its work is
 * another thread's. [turns] each. */
typedef struct message_times {
    double *begin, *end, *work;
} message_times;
enum { TIMES = 3 }; /* arrays of message_times */

/* Returns the times of step `i` among those of all steps: [TIMES][steps][turns]. */
static message_times times_of(const links *l, const trm_program *p, double *times, int32_t i) {
    const int64_t all = (int64_t)p->steps_count * l->most;
    double *begin = times + (int64_t)i * l->most;
    return (message_times){begin, begin + all, begin + 2 * all};
}

typedef int classify(const trm_program *p, const trmi_step *step, int *size);
/* Runs the program once and stores when each step begins and ends (times_of). turn -1 is a warm-up,
 * which is not stored. */
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
        double begin = own ? trmi_op_benchmark_clock(l->probe) : trmi_os_now(),
               worked = trmi_op_benchmark_clock(l->probe);
        TRMI_TRY(trmi_exec_run(exec, i, i + 1, err));
        if (turn >= 0) {
            const message_times at = times_of(l, p, times, i);
            at.begin[turn] = begin;
            at.end[turn] = own ? trmi_op_benchmark_clock(l->probe) : trmi_os_now();
            at.work[turn] = trmi_op_benchmark_clock(l->probe) - worked;
        }
    }
    return TRM_OK;
}

/* Returns whether the ranks share cores. Then they are on one host, and their clocks are one. */
static bool is_crowded(const links *l) {
    return l->probe->comm != NULL && l->ranks * l->probe->threads > l->probe->cores &&
           l->ranks == trm_comm_local_size(l->probe->comm);
}

/* Returns how many threads of ranks share a core; 1: none do. */
static double find_crowd(const links *l) {
    return fmax(1, (double)l->ranks * l->probe->threads / l->probe->cores);
}

/* Sets *seconds to the median over turns of a message: of the mean over ranks of its time, or with
 * `together` from the last begin to the last end, and at least the time of the CPU seconds of all
 * ranks on their cores. Overwrites the times. */
static trm_status median_of_ranks(const links *l, message_times at, int32_t turns, bool together,
                                  double *seconds, trm_error *err) {
    trm_comm *comm = l->probe->comm;
    if (together && comm != NULL) {
        TRMI_TRY(trm_comm_allreduce(comm, at.begin, turns, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
        TRMI_TRY(trm_comm_allreduce(comm, at.end, turns, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
    }
    for (int32_t i = 0; i < turns; i++) {
        at.end[i] -= at.begin[i];
    }
    if (!together && comm != NULL) {
        TRMI_TRY(trm_comm_allreduce(comm, at.end, turns, TRM_FLOAT64, TRM_REDUCTION_MEAN, err));
    }
    *seconds = trmi_median(at.end, turns);
    if (together && comm != NULL && at.work != NULL && l->probe->threads == 1) {
        TRMI_TRY(trm_comm_allreduce(comm, at.work, turns, TRM_FLOAT64, TRM_REDUCTION_MEAN, err));
        *seconds = fmax(*seconds, find_crowd(l) * trmi_median(at.work, turns));
    }
    return TRM_OK;
}

/* Times the messages of a program over several turns, to l->seconds. */
static trm_status time_program(links *l, trm_exec *exec, classify *message, trm_error *err) {
    const trm_program *p = exec->program;
    double *times =
        trmi_alloc(TIMES * (size_t)p->steps_count * (size_t)l->most * sizeof *times + 1);
    trm_status status = times != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "to measure messages");
    bool more = true;
    int32_t turns = -1; /* the first one is a warm-up */
    int part = l->first > 0 ? PART_LARGE : PART_MESSAGES;
    status = status == TRM_OK ? allow_time(l, part, err) : status;
    while (status == TRM_OK && more && !l->over) {
        status = time_turn(l, exec, message, turns++, times, err);
        status = status == TRM_OK ? has_time(l, turns, l->most, &more, err) : status;
    }
    /* The steps that send messages, each with the median of its turns. */
    for (int32_t i = 0; status == TRM_OK && !l->over && i < p->steps_count; i++) {
        int size, what = message(p, &p->steps[i], &size);
        if (what >= 0) {
            const bool together = is_crowded(l) && moves[what] != TRMI_MOVE_LOCAL;
            status = median_of_ranks(l, times_of(l, p, times, i), turns, together,
                                     &l->seconds[what][size], err);
        }
    }
    trmi_free(times);
    return status;
}

/* Makes the mesh whose inner axis is a group of neighbouring ranks: all groups of a size exchange
 * at once, as in a training step. */
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
        return TRMI_NO_MEMORY(err, "to measure messages");
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
    TRMI_TRY(trmi_partition_plan_store(plan, w, &parts, false, err));
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
    int64_t *counts;
    TRMI_TRY(TRMI_NEW(err, counts, size, "to measure messages"));
    trm_status status = TRM_OK;
    for (int i = l->first; status == TRM_OK && !l->over && i < l->end; i++) {
        double begins[TURNS_SMALL], ends[TURNS_SMALL];
        int64_t count = sizes[i] / (int64_t)sizeof *data;
        bool more = true;
        int turns = -1;
        /* Cut slices of nearly equal length. */
        for (int32_t r = 0; r < size; r++) {
            counts[r] = count * (r + 1) / size - count * r / size;
        }
        status = allow_time(l, PART_BUCKET, err);
        for (; status == TRM_OK && more && !l->over; turns++) {
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
            if (turns >= 0) {
                begins[turns] = begin;
                ends[turns] = trmi_os_now();
            }
            status = status == TRM_OK ? has_time(l, turns + 1, l->most, &more, err) : status;
        }
        status = status == TRM_OK && !l->over
                     ? median_of_ranks(l, (message_times){.begin = begins, .end = ends}, turns,
                                       is_crowded(l), &l->seconds[move][i], err)
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
    trm_status status = data != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "to measure messages");
    status = status == TRM_OK ? time_buckets(l, group, data, BUCKETS, err) : status;
    status = status == TRM_OK ? time_buckets(l, group, data, SLICES, err) : status;
    if (data != NULL) {
        trm_comm_free_shared(group, data);
    }
    trm_comm_destroy(group);
    return status;
}

/* ---- the optimiser, and a step with nothing in it -------------------------------------------- */

/* Parameters for which the optimiser's pass is measured: rows of ROW floats. */
enum { ROW = 64 };
/* Rows of ROW elements in the optimiser's pass, one for each point of its curve. */
static const int64_t update_rows[UPDATES] = {1 << 10, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17};

/* A small training program with one parameter: CUT: partitioned by the default plan; OWN: whole on
 * every rank, each updates its own copy; SLICED: one copy, which the ranks update in slices;
 * ADDING: as OWN, but in place of the update its gradients are added to others. */
typedef enum kind { CUT, OWN, SLICED, ADDING } kind;

/* Makes an executor with one parameter of `rows` rows and next to no arithmetic: the time of its
 * step is almost only that of its update. */
static trm_status small_exec(const trmi_op_benchmark *probe, int64_t rows, kind what,
                             trm_exec **out, trm_error *err) {
    trm_graph *g;
    char mesh[16], plan[96];
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, err));
    trm_node x = trm_parameter(g, "w", trm_shape_of(rows, ROW), TRM_INIT_NORMAL_001);
    trm_node y = trm_relu(g, x), loss = trm_reduce_mean(g, y, NULL, 0, false);
    /* All but CUT leave the operator whole on every rank. CUT has no plan, so it is cut by
     * samples. */
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

/* Runs what is timed of a small program after its backward pass. `sum`: [rows * ROW] (ADDING). */
static trm_status end_small(trm_exec *exec, int64_t rows, float *sum, trm_error *err) {
    if (sum == NULL) {
        return trm_exec_update(exec, 1e-6, err);
    }
    trmi_update_accumulate(sum, trmi_exec_gradient_range(exec), rows * ROW, 1, false);
    return TRM_OK;
}

/* Sets *seconds to the median time of a step (CUT), or of its update or of adding up its gradients
 * alone, on the slowest rank. */
static trm_status time_small(links *l, int64_t rows, kind what, double *seconds, trm_error *err) {
    trmi_op_benchmark *probe = l->probe;
    double times[TURNS], none = 0;
    bool step = what == CUT, more = true;
    int most = turns_of(probe, TURNS), turns = -1;
    trm_exec *exec;
    TRMI_TRY(small_exec(probe, rows, what, &exec, err));
    float *sum = what == ADDING ? trmi_map((size_t)(rows * ROW) * sizeof *sum) : NULL;
    trm_status status = what == ADDING && sum == NULL ? TRMI_NO_MEMORY(err, "to add up gradients")
                                                      : allow_time(l, PART_UPDATE, err);
    for (; status == TRM_OK && more && !l->over; turns++) {
        note_links(l);
        trmi_op_benchmark_sweep(probe, 0, 1);
        /* A reduction serves as the barrier: all ranks begin the step together. */
        status = trmi_op_benchmark_largest(probe, &none, 1, err);
        double begin = trmi_os_now();
        status = status == TRM_OK ? trm_exec_forward_backward(exec, err) : status;
        begin = step ? begin : trmi_op_benchmark_clock(probe);
        status = status == TRM_OK ? end_small(exec, rows, sum, err) : status;
        if (turns >= 0) {
            times[turns] = (step ? trmi_os_now() : trmi_op_benchmark_clock(probe)) - begin;
        }
        status = status == TRM_OK ? has_time(l, turns + 1, most, &more, err) : status;
    }
    *seconds = status != TRM_OK || turns < 1 ? 0 : trmi_median(times, turns);
    if (sum != NULL) {
        trmi_unmap(sum, (size_t)(rows * ROW) * sizeof *sum);
    }
    trm_exec_destroy(exec);
    return status == TRM_OK ? trmi_op_benchmark_largest(probe, seconds, 1, err) : status;
}

/* ---- without curves -------------------------------------------------------------------------- */

/* Writes the shortest time of an all-reduce of `count` floats to *best; the first is a warm-up. */
static trm_status time_sum(trm_comm *comm, float *data, int64_t count, double *best,
                           trm_error *err) {
    enum { SUMS = 5 };
    *best = 1e9;
    for (int i = 0; i < SUMS; i++) {
        TRMI_TRY(trm_comm_barrier(comm, err));
        double begin = trmi_os_now();
        TRMI_TRY(trm_comm_allreduce(comm, data, count, TRM_FLOAT32, TRM_REDUCTION_SUM, err));
        double seconds = trmi_os_now() - begin;
        *best = i > 0 && seconds < *best ? seconds : *best;
    }
    return TRM_OK;
}

/* Contract in op_benchmark.h. Two all-reduces, of few and of many elements, give the line alpha +
 * beta x bytes: a ring sends 2 (n - 1) messages and 2 (n - 1) / n of the bytes a rank. */
trm_status trmi_link_benchmark_estimate(trm_comm *comm, double *alpha, double *beta,
                                        trm_error *err) {
    enum { FEW = 1024, MANY = 1 << 18 };
    float *data = trm_comm_alloc_shared(comm, MANY * sizeof *data, err);
    if (data == NULL) {
        return TRMI_NO_MEMORY(err, "to measure links");
    }
    double few = 0, many = 0, n = trm_comm_size(comm);
    trm_status status = time_sum(comm, data, FEW, &few, err);
    status = status == TRM_OK ? time_sum(comm, data, MANY, &many, err) : status;
    trm_comm_free_shared(comm, data);
    *alpha = fmax(1e-7, few / (2 * (n - 1)));
    *beta = fmax(1e-12, (many - few) / ((MANY - FEW) * 4.0 * 2 * (n - 1) / n));
    return status;
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

/* Returns the bytes of parameters in point i of the optimiser's curve. */
static int64_t update_bytes(int i) { return update_rows[i] * ROW * (int64_t)sizeof(float); }

/* Returns how many sizes of the optimiser's pass are measured: as far as memory limit and reach
 * allow. */
static int count_updates(const links *l) {
    const trmi_op_benchmark *probe = l->probe;
    int count = 2;
    /* UPDATE_COPIES: the parameter, its gradient, slots or a sum, and the ReLU with its gradient
     */
    while (count < UPDATES &&
           (probe->reach == 0 || update_bytes(count - 1) < sizes[l->count - 1]) &&
           (probe->limit == 0 || UPDATE_COPIES * update_bytes(count) <= probe->limit)) {
        count++;
    }
    return count;
}

/* Appends the curve of the optimiser's pass, or of adding up gradients, by bytes. */
static trm_status measure_updates(links *l, kind what, double crowd, trmi_text *out,
                                  trm_error *err) {
    int32_t share = what == SLICED ? l->ranks : 1;
    int64_t bytes[UPDATES];
    double seconds[UPDATES];
    int count = count_updates(l);
    for (int i = 0; i < count && !l->over; i++) {
        TRMI_TRY(time_small(l, update_rows[i], what, &seconds[i], err));
        seconds[i] *= crowd;
        bytes[i] = update_bytes(i) / share;
    }
    make_monotonic(seconds, count);
    append_curve(out,
                 what == SLICED   ? TRMI_SLICED_UPDATE
                 : what == ADDING ? TRMI_GRADIENT_SUMS
                                  : TRMI_MOVES,
                 share, bytes, seconds, count);
    return TRM_OK;
}

/* Measures and appends the curves of all moves for each group size that divides the ranks. `crowd`:
 * how many threads of ranks share a core; multiplies work that ranks do alone. */
static trm_status measure_groups(links *l, double crowd, trmi_text *out, trm_error *err) {
    static trm_status (*const programs[])(links *, trm_error *) = {run_program, run_stores,
                                                                   run_buckets};
    for (l->group = 2; l->group <= l->ranks && !l->over; l->group++) {
        if (l->ranks % l->group != 0) {
            continue;
        }
        /* Small messages first, with more turns; then large ones. */
        for (int large = 0; large < 2; large++) {
            l->first = large ? SMALL : 0;
            l->end = large ? l->count : SMALL;
            l->most = turns_of(l->probe, large ? TURNS : TURNS_SMALL);
            for (int k = 0; k < (int)(sizeof programs / sizeof *programs) && !l->over; k++) {
                TRMI_TRY(programs[k](l, err));
            }
            l->done++;
        }
        /* A longer message takes at least as long as a shorter one, whatever was measured. */
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
            /* A local copy is described once, for the largest group. */
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

/* Writes the lines of a description that stand before its curves. */
static void print_head(const links *l, double alpha, double beta, double load, trmi_text *out) {
    const trmi_op_benchmark *probe = l->probe;
    char date[32];
    time_t now = (time_t)trmi_os_wall();
    struct tm day;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M", gmtime_r(&now, &day));
    trmi_text_printf(out,
                     "# messages of %d ranks of this machine " TRMI_LINKS_FORM
                     ", measured %s UTC\nlevel host "
                     "%d %g %g\ncores %d\noverlap %d\n"
                     "together %d\nload %.3f\n",
                     (int)l->ranks, date, (int)l->ranks, alpha * 1e6, 1e-9 / beta, probe->cores,
                     l->ranks * probe->threads < probe->cores, (int)l->ranks, load);
}

/* Measures all curves; leaves early where the limit is passed. */
static trm_status measure_curves(links *l, trmi_text *out, trm_error *err) {
    double crowd = find_crowd(l), step = 0;
    bool slices = l->ranks == trm_comm_local_size(l->probe->comm);
    l->doing = "measuring messages, for all jobs";
    l->parts = PART_UPDATE * (1 + count_updates(l) * (slices ? 3 : 2));
    for (int32_t group = 2; group <= l->ranks; group++) { /* small ones and large ones of each */
        if (l->ranks % group == 0) {
            l->total += 2;
            l->parts += 2 * (PART_MESSAGES + PART_LARGE + l->count * PART_BUCKET);
        }
    }
    print_head(l, 5e-6, 1 / 4e9, l->probe->load, out);
    TRMI_TRY(measure_groups(l, crowd, out, err));
    l->doing = "measuring the optimiser, for all jobs";
    l->total = 0;
    TRMI_TRY(l->over ? TRM_OK : measure_updates(l, OWN, crowd, out, err));
    TRMI_TRY(l->over || !slices ? TRM_OK : measure_updates(l, SLICED, crowd, out, err));
    TRMI_TRY(l->over ? TRM_OK : measure_updates(l, ADDING, crowd, out, err));
    TRMI_TRY(l->over ? TRM_OK : time_small(l, 16, CUT, &step, err));
    trmi_text_printf(out, "overhead %.3f\n", step * 1e6);
    if (is_crowded(l) && !l->over) {
        double refill, handover;
        TRMI_TRY(trmi_link_benchmark_waits(l->probe, &refill, &handover, err));
        trmi_text_printf(out, "refill %.3f\nhandover %.3f\n", crowd * refill * 1e6,
                         crowd * handover * 1e6);
    }
    return TRM_OK;
}

/* Measures all curves and writes them as text. If the time limit ends the measurement too early,
 * the text has the latency and bandwidth of a model instead. */
static trm_status run_links(trmi_op_benchmark *probe, trmi_text *out, trm_error *err) {
    links l = {.probe = probe,
               .ranks = trm_comm_size(probe->comm),
               .count = trmi_link_benchmark_sizes(probe),
               .begin = trmi_os_now()};
    TRMI_TRY(measure_curves(&l, out, err));
    if (l.over) {
        /* One mechanism prices all messages: some measured curves beside a model would make what
         * was not measured look cheap. The machine counts as busy, so that a quiet one measures
         * again. */
        double alpha, beta;
        TRMI_TRY(trmi_link_benchmark_estimate(probe->comm, &alpha, &beta, err));
        out->length = 0;
        print_head(&l, alpha, beta, fmax(probe->load, TRMI_COSTS_BUSY), out);
    }
    if (l.cut || l.over) {
        trmi_text_printf(out, TRMI_LINKS_CUT "%.3f s\n", probe->seconds);
    }
    return TRMI_CHECK_MEMORY(err, out, "to measure messages");
}

trm_status trmi_link_benchmark_run(trmi_op_benchmark *probe, trmi_text *out, trm_error *err) {
    int64_t footprint = probe->footprint;
    probe->footprint = 0; /* curves are of no step, whenever they are measured */
    trm_status status = run_links(probe, out, err);
    probe->footprint = footprint;
    return status;
}
