/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a state and their copies, of every way of training that has parts: whatever ranks are
 * gone, the values that were written come back, or the whole is known to be incomplete. */
#include "ranks.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/api/communicator.h"
#include "base/rng.h"
#include "exec/distributed/ranks_state.h"
#include "exec/exec.h"
#include "train/elastic_copies.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

enum { RANKS = 4, BATCH = 8, WIDE = 4000, VARIABLES_MOST = 100 };

/* A way of training, and which ranks of a job are gone (bits). */
typedef struct trial {
    const char *name;
    trm_parallel_options parallel;
    uint32_t gone;
    bool lost;               /* a part with its copy, that no other rank has */
    bool forked;             /* ranks are processes of one host */
    trm_optimizer_kind rule; /* of interrupted updates */
    int steps, death;        /* before them; where rank 0 dies */
    int skipped;             /* the step of these that is skipped; 0: none */
} trial;

static const char plan[] =
    "trireme-plan 1\nmesh 2x2\nop c0.conv2d0 kn\nop c1.conv2d1 kk\nop linear0 kc\n";

static trm_node build_block(trm_graph *g, const char *name, trm_node x, int64_t in, int64_t out) {
    trm_graph_push_scope(g, "%s", name);
    x = trm_conv2d(
        g, x, trm_parameter(g, "weight", trm_shape_of(out, in, 3, 3), TRM_INIT_HE_NORMAL_FAN_OUT),
        TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
    x = trm_batch_norm(g, x, trm_parameter(g, "gamma", trm_shape_of(out), TRM_INIT_ONE),
                       trm_parameter(g, "beta", trm_shape_of(out), TRM_INIT_ZERO),
                       trm_state(g, "mean", TRM_FLOAT32, trm_shape_of(out), TRM_INIT_ZERO),
                       trm_state(g, "var", TRM_FLOAT32, trm_shape_of(out), TRM_INIT_ONE), NULL);
    trm_graph_pop_scope(g);
    return trm_relu(g, x);
}

/* Channels that are no multiple of a block: layouts have padding. */
static trm_node build_network(trm_graph *g) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(BATCH, 3, 6, 6));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH));
    x = build_block(g, "c0", x, 3, 24);
    x = build_block(g, "c1", x, 24, 24);
    x = trm_linear(g, trm_global_avg_pool(g, x), /* so large that each rank has a slice */
                   trm_parameter(g, "wide.weight", trm_shape_of(WIDE, 24), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    x = trm_linear(g, trm_relu(g, x),
                   trm_parameter(g, "fc.weight", trm_shape_of(10, WIDE), TRM_INIT_LINEAR),
                   trm_parameter(g, "fc.bias", trm_shape_of(10), TRM_INIT_ZERO));
    return trm_softmax_cross_entropy(g, x, label, NULL);
}

static trm_status make_exec(const trial *t, trm_comm *comm, trm_exec **out, trm_error *err) {
    trm_graph *g;
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, err));
    trm_exec_options options = {.loss = build_network(g),
                                .threads = 1,
                                .seed = 3,
                                .tuning_file = "",
                                .optimizer = {.kind = t->rule, .momentum = 0.9},
                                .share_slots = TRM_ON,
                                .loss_scale = {.on = t->skipped > 0, .dynamic = true},
                                .accumulate = t->parallel.pipeline.stages > 1 ? 2 : 1,
                                .parallel = t->parallel};
    options.parallel.comm = comm;
    options.parallel.split.plan = t->parallel.split.kind != TRM_SPLIT_NONE ? plan : NULL;
    trm_status status = trm_exec_create(g, &options, out, err);
    trm_graph_destroy(g);
    return status;
}

/* Fills `values` with those of a variable after a step. No two elements of the state are equal. */
static void fill_variable(float *values, int64_t begin, int64_t count, int step) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(begin + i) + (float)step / 4;
    }
}

/* Writes the values of a step to all variables; or compares them with those of `whole`, whose first
 * difference is returned; -1: none. */
static int64_t visit_state(trm_exec *exec, const int64_t *begins, int step, const float *whole) {
    int64_t wrong = -1;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        int64_t count = trm_shape_count(&v.shape);
        float *values = trmi_alloc((size_t)count * sizeof *values);
        fill_variable(values, begins[i], count, step);
        if (whole == NULL) {
            trm_exec_write(exec, i, values);
        } else if (memcmp(values, whole + begins[i], (size_t)count * sizeof *values) != 0) {
            wrong = begins[i];
        }
        trmi_free(values);
    }
    return wrong;
}

/* Writes other words over the first `words` words of a run. */
static void spoil_run(const trmi_elastic_copies *copies, int64_t i, int64_t words) {
    memset((char *)(uintptr_t)copies->own.places[i], 0x5a, (size_t)words * sizeof(float));
}

/* Does what an update does to a part of which ranks die: of each second piece the old words are
 * kept and new ones written; in some the update has copied half of them, and changed fewer. */
static void interrupt_update(trmi_elastic_copies *copies) {
    for (int64_t p = 0; p < copies->pieces; p += 2) {
        const int64_t first = copies->first_runs[p];
        const int64_t count = first >= 0 && p % 4 == 0 ? copies->own.runs[first].words : 0;
        const trmi_update_old old = trmi_copies_keep_piece(copies, p, count);
        if (old.place != NULL) {
            memcpy(old.place, copies->own.places[first], (size_t)(count / 2) * sizeof(float));
            atomic_store(old.count, count / 2);
            spoil_run(copies, first, count / 3);
        }
        for (int64_t i = first; i >= 0 && old.place == NULL; i = copies->next_runs[i]) {
            spoil_run(copies, i, copies->own.runs[i].words);
        }
    }
}

/* Returns of how many runs of this rank an update has copied and changed a part after `step`. */
static int count_torn(const trmi_elastic_copies *copies, int64_t step) {
    int torn = 0;
    for (int64_t i = 0; i < copies->own.runs_count; i++) {
        const trmi_old_words *old = &copies->kept[0].old_words[i];
        const int64_t count = atomic_load(&old->count);
        torn +=
            atomic_load(&old->step) == step + 1 && count > 0 && count < copies->own.runs[i].words;
    }
    return torn;
}

/* Reads all variables; of split programs as they were gathered. */
static void read_state(const trm_exec *exec, const int64_t *begins, float *out) {
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_exec_read(exec, i, out + begins[i]);
    }
}

/* Spoils the state of a program, and fills the part of this rank in again. */
static void fill_program(rank_context *context, const trmi_elastic_copies *copies, trm_comm *comm,
                         trm_exec *exec, const int64_t *begins, const char *whole) {
    trm_error err;
    int32_t order[VARIABLES_MOST];
    EXPECT(trm_exec_variable_count(exec) <= VARIABLES_MOST, "more variables");
    for (int32_t i = 0; i < VARIABLES_MOST; i++) {
        order[i] = i;
    }
    (void)visit_state(exec, begins, 9, NULL);
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    trmi_copies_fill(copies, exec, order, begins, whole);
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
}

/* Joins the parts of one step without the ranks that are gone, which only listen: in *shared, one
 * memory of the ranks of one host, or else in `own`. *complete: all words were there. */
static void join_parts(rank_context *context, const trial *t, const trmi_elastic_copies *copies,
                       trm_comm *comm, const int64_t *begins, int64_t words, int step,
                       trmi_shm_segment *shared, float *own, bool *complete) {
    trm_error err;
    trmi_copies_owner owners[RANKS], mine = trmi_copies_describe(copies);
    mine.newest = (t->gone >> context->rank & 1) != 0 ? -1 : mine.newest;
    const trm_collective gather = {.kind = TRM_ALLGATHER,
                                   .send = &mine,
                                   .recv = owners,
                                   .count = sizeof mine,
                                   .dtype = TRM_UINT8};
    EXPECT_OK(trm_comm_run(comm, &gather, &err), err);
    EXPECT(trmi_copies_has_all(owners, RANKS) || !t->forked, "ranks of one host read all parts");
    if (trmi_copies_has_all(owners, RANKS)) {
        EXPECT_OK(trmi_comm_make_segment(comm, (size_t)words * sizeof(float), shared, &err), err);
    }
    EXPECT((shared->data != NULL) == t->forked, "one whole for the ranks of one host");
    const trmi_whole_state state = {.step = step,
                                    .begins = begins,
                                    .words = words,
                                    .data = t->forked ? (char *)shared->data : (char *)own,
                                    .shared = t->forked};
    EXPECT_OK(trmi_copies_join(copies, comm, owners, &state, complete, &err), err);
}

/* Joins the parts of one step, and compares them with the values of that step. */
static void join_step(rank_context *context, const trial *t, const trmi_elastic_copies *copies,
                      trm_comm *comm, trm_exec *exec, const int64_t *begins, int64_t words,
                      int step, bool fills) {
    trm_error err;
    const trmi_copies_owner mine = trmi_copies_describe(copies);
    EXPECT(mine.newest == 2 && mine.older == (t->forked ? -1 : 1), "generations");
    trmi_shm_segment shared = {0}; /* the memory of the whole, as of an elastic job */
    float *own = trmi_alloc((size_t)words * sizeof *own);
    bool complete = false;
    join_parts(context, t, copies, comm, begins, words, step, &shared, own, &complete);
    if (context->failure[0] != '\0') {
        return;
    }
    float *whole = t->forked ? (float *)(void *)shared.data : own;
    int64_t wrong = complete ? visit_state(exec, begins, step, whole) : -1;
    if (complete && fills) {
        fill_program(context, copies, comm, exec, begins, (const char *)whole);
        EXPECT_OK(trm_exec_gather(exec, &err), err);
        read_state(exec, begins, own);
        EXPECT(visit_state(exec, begins, step, own) < 0, "%s: a part is not filled", t->name);
    }
    trmi_free(own);
    trmi_shm_segment_release(&shared);
    EXPECT(complete == !t->lost, "%s, step %d, gone %x: complete %d", t->name, step,
           (unsigned)t->gone, complete);
    EXPECT(wrong < 0, "%s, step %d: the variable at %lld", t->name, step, (long long)wrong);
}

/* Finds where each variable begins in the whole. Returns the words of the whole. */
static int64_t place_variables(const trm_exec *exec, int64_t *begins, int32_t *order) {
    int64_t words = 0;
    assert_true(trm_exec_variable_count(exec) <= VARIABLES_MOST);
    for (int32_t i = 0; i < VARIABLES_MOST; i++) {
        order[i] = i;
    }
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        const trm_variable v = trm_exec_variable(exec, i);
        begins[i] = words;
        words += trm_shape_count(&v.shape);
    }
    return words;
}

static void keep_and_join(rank_context *context) {
    const trial *t = context->arg;
    const rank_setup setup = {.options = {.timeout_seconds = 60}};
    context->arg = (void *)&setup;
    OPEN_COMM();
    trm_exec *exec = NULL;
    EXPECT_OK(make_exec(t, comm, &exec, &err), err);
    int64_t begins[VARIABLES_MOST];
    int32_t order[VARIABLES_MOST];
    const int64_t words = place_variables(exec, begins, order);
    trmi_elastic_copies copies = {.on = false};
    EXPECT_OK(trmi_copies_open(&copies, exec, comm, order, &err), err);
    EXPECT((copies.shared.data != NULL) == t->forked, "ranks of one host share their parts");
    EXPECT((copies.pieces > 0) == t->forked, "parameters and slots are kept in place");
    for (int step = 0; step < 3; step++) {
        for (int64_t p = 0; p < copies.pieces; p++) {
            (void)trmi_copies_keep_piece(&copies, p, 0);
        }
        EXPECT_OK(trm_comm_barrier(comm, &err), err); /* ranks of one host may have one copy */
        (void)visit_state(exec, begins, step, NULL);
        EXPECT_OK(trm_comm_barrier(comm, &err), err);
        EXPECT_OK(trmi_copies_keep(&copies, comm, (uint64_t)step, &err), err);
    }
    if (!t->forked) { /* copies do not change when the state does */
        (void)visit_state(exec, begins, 3, NULL);
    }
    for (int step = t->forked ? 2 : 1; step < 3 && context->failure[0] == '\0'; step++) {
        join_step(context, t, &copies, comm, exec, begins, words, step, false);
    }
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    interrupt_update(&copies);
    EXPECT(!t->forked || count_torn(&copies, 2) > 0, "%s: no piece is torn", t->name);
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    join_step(context, t, &copies, comm, exec, begins, words, 2, true);
    trmi_copies_close(&copies);
    trm_exec_destroy(exec);
    CLOSE_COMM();
}

/* Makes one step of training. Where the ranks have one copy of the parameters, its end is marked by
 * all of them when the update returns; else when the ranks keep it. */
static void update_once(rank_context *context) {
    const trial *t = context->arg;
    const rank_setup setup = {.options = {.timeout_seconds = 60}};
    context->arg = (void *)&setup;
    OPEN_COMM();
    trm_exec *exec = NULL;
    EXPECT_OK(make_exec(t, comm, &exec, &err), err);
    trm_tensor zeros;
    EXPECT_OK(trm_exec_input(exec, "image", &zeros, &err), err);
    EXPECT_OK(trm_exec_input(exec, "label", &zeros, &err), err);
    int32_t order[VARIABLES_MOST];
    for (int32_t i = 0; i < VARIABLES_MOST; i++) {
        order[i] = i;
    }
    trmi_elastic_copies copies = {.on = false};
    EXPECT_OK(trmi_copies_open(&copies, exec, comm, order, &err), err);
    EXPECT_OK(trmi_copies_keep(&copies, comm, trm_exec_step(exec), &err), err);
    EXPECT_OK(trm_exec_forward_backward(exec, &err), err);
    EXPECT_OK(trm_exec_update(exec, 0.1, &err), err);
    const int64_t step = (int64_t)trm_exec_step(exec);
    EXPECT((trmi_copies_find(&copies, step) >= 0) == t->forked, "an update marks its step");
    if (!t->forked) {
        EXPECT_OK(trmi_copies_keep(&copies, comm, trm_exec_step(exec), &err), err);
    }
    EXPECT(trmi_copies_describe(&copies).newest == step, "all ranks have marked the step");
    trmi_copies_close(&copies);
    trm_exec_destroy(exec);
    CLOSE_COMM();
}

static void updates_mark_their_steps(void **state) {
    (void)state;
    for (int forked = 0; forked < 2; forked++) {
        trial t = {.name = "slices",
                   .parallel = {.shard_optimizer = true},
                   .forked = forked == 1,
                   .rule = TRM_ADAM};
        ranks_run(RANKS, 0, forked == 1, update_once, &t, t.name);
    }
}

/* ---- ranks that die in an update ------------------------------------------------------------- */

/* Where a process dies: while it updates its first, middle or last block; when it has updated all;
 * when it has marked the step, too. */
enum { IN_FIRST, IN_MIDDLE, IN_LAST, BEFORE_MARK, AFTER_MARK, DEATHS };

/* Writes a batch that differs between ranks and steps. */
static trm_status feed_batch(trm_exec *exec, int rank, int step, trm_error *err) {
    trm_tensor image, label;
    TRMI_TRY(trm_exec_input(exec, "image", &image, err));
    TRMI_TRY(trm_exec_input(exec, "label", &label, err));
    for (int64_t i = 0; i < trm_shape_count(&image.shape); i++) {
        ((float *)image.data)[i] =
            trmi_unit_float(trmi_random_u32((uint32_t)rank + 1, (uint64_t)step, (uint64_t)i));
    }
    for (int64_t i = 0; i < trm_shape_count(&label.shape); i++) {
        ((int32_t *)label.data)[i] = (int32_t)(i + step) % 10;
    }
    return TRM_OK;
}

/* Computes the gradients of a step. Rank 1 has an infinite one in the step that is skipped. */
static trm_status compute_gradients(const trial *t, trm_exec *exec, int rank, int step,
                                    trm_error *err) {
    for (int i = 0; i < (t->parallel.pipeline.stages > 1 ? 2 : 1); i++) {
        TRMI_TRY(feed_batch(exec, rank, 2 * step + i, err));
        if (t->skipped == step + 1 && rank == 1) {
            trm_tensor image;
            TRMI_TRY(trm_exec_input(exec, "image", &image, err));
            ((float *)image.data)[0] = INFINITY;
        }
        TRMI_TRY(trm_exec_forward_backward(exec, err));
    }
    return TRM_OK;
}

/* Leaves the sums of a process that is alone as they are: trmi_update_exchange. */
static trm_status exchange_nothing(void *context, double *sums, int64_t count, trm_error *err) {
    (void)context, (void)sums, (void)count, (void)err;
    return TRM_OK;
}

/* Updates the blocks of a rank in a process of its own, which has the rank's memory, and kills it.
 * In a block it dies at the instruction that reads a slot of the middle of it; in a large one this
 * is in the middle of a piece, too. */
static void update_and_die(trm_exec *exec, int death) {
    trm_error err;
    const trmi_parallel *p = trmi_parallel_of(exec);
    const uint8_t *mine = p != NULL && p->options.shard_optimizer ? p->mine : NULL;
    const int64_t blocks = trmi_update_block_count(exec->update);
    int64_t *own = trmi_alloc((size_t)(blocks + 1) * sizeof *own), count = 0;
    for (int64_t b = 0; b < blocks; b++) {
        if (mine == NULL || mine[b] != 0) {
            own[count++] = b;
        }
    }
    const struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL);
    trmi_update_share(exec->update, mine, exchange_nothing, NULL);
    trmi_update_join(exec->update, NULL, NULL);
    if (death <= IN_LAST && count > 0) {
        int64_t end;
        const int64_t block = own[death == IN_FIRST    ? 0
                                  : death == IN_MIDDLE ? count / 2
                                                       : count - 1],
                      begin = trmi_update_block_offset(exec->update, block);
        (void)trmi_update_find_block(exec->update, begin, &end);
        const int64_t middle = (end - begin) / 2;
        const float *slot = trmi_update_slot(exec->update, 0, begin) + middle +
                            (middle > TRMI_UPDATE_PIECE ? TRMI_UPDATE_PIECE / 2 : 0);
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (mprotect((void *)((uintptr_t)slot / page * page), page, PROT_NONE) != 0) {
            _exit(2);
        }
    }
    const trm_status status =
        trmi_update_run(exec->update, (float *)(void *)exec->env.arena[TRMI_ARENA_PARAM],
                        trmi_exec_gradient_range(exec), 0.1, exec->env.step + 1, &err);
    if (death == AFTER_MARK && exec->watcher.updated != NULL) {
        exec->watcher.updated(exec->watcher.context, exec->env.step + 1);
    }
    if (status == TRM_OK && (death > IN_LAST || count == 0)) {
        raise(SIGKILL);
    }
    _exit(1);
}

/* Trains some steps, lets all ranks die in the next update, each elsewhere, and joins the parts of
 * the step before it. The ranks go on as those that are left. */
static void die_and_join(rank_context *context) {
    const trial *t = context->arg;
    const rank_setup setup = {.options = {.timeout_seconds = 60}};
    context->arg = (void *)&setup;
    OPEN_COMM();
    trm_exec *exec = NULL;
    EXPECT_OK(make_exec(t, comm, &exec, &err), err);
    int64_t begins[VARIABLES_MOST];
    int32_t order[VARIABLES_MOST];
    const int64_t words = place_variables(exec, begins, order);
    trmi_elastic_copies copies = {.on = false};
    EXPECT_OK(trmi_copies_open(&copies, exec, comm, order, &err), err);
    EXPECT_OK(trmi_copies_keep(&copies, comm, 0, &err), err);
    for (int step = 0; step < t->steps; step++) {
        EXPECT_OK(compute_gradients(t, exec, rank, step, &err), err);
        EXPECT_OK(trm_exec_update(exec, 0.1, &err), err);
        if (trmi_copies_find(&copies, step + 1) < 0) {
            EXPECT_OK(trmi_copies_keep(&copies, comm, (uint64_t)step + 1, &err), err);
        }
    }
    const int updates = t->steps - (t->skipped > 0);
    EXPECT(trmi_state_in_second(exec) == (updates % 2 == 1), "slots take turns");
    float *expected = trmi_alloc((size_t)words * sizeof *expected);
    float *found = trmi_alloc((size_t)words * sizeof *found);
    EXPECT_OK(trm_exec_gather(exec, &err), err);
    read_state(exec, begins, expected);
    EXPECT_OK(compute_gradients(t, exec, rank, t->steps, &err), err);
    EXPECT_OK(trm_comm_barrier(comm, &err), err); /* no rank reads parameters any more */
    const pid_t pid = fork();
    if (pid == 0) {
        update_and_die(exec, (t->death + rank) % DEATHS);
    }
    int status = 0;
    EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "status %x", status);
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    if (t->death == IN_MIDDLE && t->parallel.shard_optimizer && t->parallel.pipeline.stages == 0 &&
        rank == 0) {
        EXPECT(count_torn(&copies, t->steps) == 1, "a piece is torn");
    }
    trmi_shm_segment shared = {0};
    bool complete = false;
    join_parts(context, t, &copies, comm, begins, words, t->steps, &shared, NULL, &complete);
    if (context->failure[0] != '\0') {
        return;
    }
    EXPECT(complete && memcmp(shared.data, expected, (size_t)words * sizeof *found) == 0,
           "%s: the state after step %d", t->name, t->steps);
    fill_program(context, &copies, comm, exec, begins, (const char *)(void *)shared.data);
    EXPECT_OK(trm_exec_gather(exec, &err), err);
    read_state(exec, begins, found);
    EXPECT(memcmp(found, expected, (size_t)words * sizeof *found) == 0, "%s: filled", t->name);
    trmi_free(expected);
    trmi_free(found);
    trmi_shm_segment_release(&shared);
    trmi_copies_close(&copies);
    trm_exec_destroy(exec);
    CLOSE_COMM();
}

/* Updates with one slot and with two, from either place of the slots; each rank dies everywhere in
 * turn. */
static void deaths_in_an_update_lose_nothing(void **state) {
    (void)state;
    const trial ways[] = {
        {.name = "slices", .parallel = {.shard_optimizer = true}},
        {.name = "split", .parallel = {.split = {.kind = TRM_SPLIT_PLANNED, .mesh = "2x2"}}},
        {.name = "4 stages", .parallel = {.pipeline = {.stages = 4}}},
        {.name = "2 stages, slices",
         .parallel = {.pipeline = {.stages = 2}, .shard_optimizer = true}}};
    const trm_optimizer_kind rules[] = {TRM_MOMENTUM, TRM_ADAM};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        for (int k = 0; k < 2 * 2 * (w == 0 ? DEATHS : 1); k++) {
            trial t = ways[w];
            t.gone = 6;
            t.forked = true;
            t.rule = rules[k % 2];
            t.steps = 1 + k / 2 % 2;
            t.death = k / 4;
            ranks_run(RANKS, 0, true, die_and_join, &t, t.name);
        }
    }
    /* a step that is skipped leaves the slots where they are */
    for (int skipped = 1; skipped <= 3; skipped++) {
        trial t = ways[0];
        t.gone = 6;
        t.forked = true;
        t.rule = TRM_ADAM;
        t.steps = 3;
        t.skipped = skipped;
        ranks_run(RANKS, 0, true, die_and_join, &t, "a skipped step");
    }
}

/* ---- ways of training ------------------------------------------------------------------------ */

/* Runs a way of training without each rank, without two that are no neighbours, and without two
 * neighbours. As threads, ranks send each other copies, as on several hosts: two neighbours take a
 * part with its copy along, unless other ranks have it (lost_pairs: which pairs). As processes of
 * one host they read each other's memory, and one rank that is left has everything. */
static void try_way(const char *name, trm_parallel_options parallel, uint32_t lost_pairs) {
    static const uint32_t gone[] = {0, 1, 2, 4, 8, 5, 10, 3, 6, 12, 9};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        const bool lost = i >= 7 && (lost_pairs >> (i - 7) & 1) != 0;
        trial t = {name, parallel, gone[i], lost, .rule = TRM_ADAM};
        ranks_run(RANKS, 0, false, keep_and_join, &t, name);
    }
    static const uint32_t of_host[] = {0, 2, 3, 12, 7, 14};
    for (size_t i = 0; i < sizeof of_host / sizeof of_host[0]; i++) {
        trial t = {name, parallel, of_host[i], .forked = true, .rule = TRM_ADAM};
        ranks_run(RANKS, 0, true, keep_and_join, &t, name);
    }
}

static void slices_come_back(void **state) {
    (void)state;
    try_way("slices", (trm_parallel_options){.shard_optimizer = true}, 0xf);
}

/* Every rank of the mesh 2x2 has a part of c1 of its own. */
static void split_graphs_come_back(void **state) {
    (void)state;
    const trm_split_options split = {.kind = TRM_SPLIT_PLANNED, .mesh = "2x2"};
    try_way("split", (trm_parallel_options){.split = split}, 0xf);
}

static void pipelines_come_back(void **state) {
    (void)state;
    try_way("4 stages", (trm_parallel_options){.pipeline = {.stages = 4}}, 0xf);
    /* both ranks of a stage */
    try_way("2 stages", (trm_parallel_options){.pipeline = {.stages = 2}}, 1 | 4);
    try_way("2 stages, slices",
            (trm_parallel_options){.pipeline = {.stages = 2}, .shard_optimizer = true}, 0xf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_come_back),
        cmocka_unit_test(split_graphs_come_back),
        cmocka_unit_test(pipelines_come_back),
        cmocka_unit_test(updates_mark_their_steps),
        cmocka_unit_test(deaths_in_an_update_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
