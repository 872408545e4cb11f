/* SPDX-License-Identifier: Apache-2.0 */
/* tests/partition_trial.h, for tests only: one network on one device and, cut by a plan drawn at
 * random, on ranks that are threads; losses, gradients of the first step, parameters and states
 * after all steps are compared. TRIREME_SHARD_TRIALS=200 runs that many trials of each kind,
 * beginning with number TRIREME_SHARD_FIRST. TRIREME_SHARD_ONLY=OPERATOR fixes the line of that
 * operator only, to find the operator that is wrong. */
#ifndef TRMI_TESTS_SHARD_TRIAL_H
#define TRMI_TESTS_SHARD_TRIAL_H

#include "check.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/error.h"
#include "base/rng.h"
#include "ranks.h"

#include <math.h>
#include <sys/mman.h>

enum { STEPS = 3, VALUES = 330000, RANKS = 8, TEXT = 16384, PARAMETERS = 64 };

typedef trm_node (*network_function)(trm_graph *g, uint64_t variant);

typedef struct trial {
    network_function network;
    uint64_t variant;
    const char *mesh;
    const char *backend;
    char plan[TEXT];
    trm_optimizer_options optimizer;
    trm_precision precision;
    int32_t blocks; /* of samples: bit for bit */
    int threads;    /* of a rank; 0 = 1 */
    bool slices;    /* of one copy of the parameters */
    int32_t accumulate;
    trm_pipeline_options pipeline; /* stages, each on a mesh */
    char begins[TEXT];             /* of the stages; "" = chosen */
    bool whole_graphs;             /* the ranks of a stage are data parallel, not split by a plan */
} trial;

typedef struct outcome {
    float loss[STEPS];
    float gradients[VALUES], values[VALUES];
    int64_t gradients_count, values_count;
    int64_t gradient_end[PARAMETERS]; /* of each parameter, in `gradients` */
    int32_t parameters, casts;
    bool one_copy;
    int64_t own_slots; /* numbers of the first slot that this rank updates */
    trm_status status;
    trm_error error;
} outcome;

typedef struct shared {
    trial trial;
    outcome of[RANKS];
} shared;

static inline int64_t pick_number(uint64_t variant, uint64_t what, int64_t from, int64_t to) {
    return from +
           (int64_t)(trmi_random_u32(variant, TRMI_STREAM_TEST, what) % (uint32_t)(to - from + 1));
}

static inline int64_t count_trials(int64_t usual) {
    const char *more = getenv("TRIREME_SHARD_TRIALS");
    return more != NULL ? atoll(more) : usual;
}

/* ---- one job --------------------------------------------------------------------------------- */

/* Blocks of samples lie in an order of their own: `copies` feeds batches by copying. */
static inline void feed_step(trm_exec *exec, int step, bool copies) {
    trm_error err;
    static const char *const names[] = {"image", "label", "ids", "dense", "target"};
    for (int n = 0; n < 5; n++) {
        trm_tensor t;
        if (trm_exec_input(exec, names[n], &t, &err) != TRM_OK) {
            continue;
        }
        void *copy = copies ? malloc((size_t)trm_tensor_bytes(&t)) : NULL;
        t.data = copies ? copy : t.data;
        for (int64_t i = 0; i < trm_shape_count(&t.shape); i++) {
            uint32_t bits =
                trmi_random_u32((uint64_t)(step * 8 + n), TRMI_STREAM_TEST, (uint64_t)i);
            if (t.dtype == TRM_INT32) {
                ((int32_t *)t.data)[i] = (int32_t)(bits % (n == 1 ? 8 : 11));
            } else {
                ((float *)t.data)[i] = n == 4 ? (float)(bits & 1) : 2 * trmi_unit_float(bits) - 1;
            }
        }
        if (copies) {
            CHECK_OK(trm_exec_feed(exec, names[n], &t, &err), err);
            free(copy);
        }
    }
}

static inline trm_status run_trial(const trial *t, trm_comm *comm, outcome *o, trm_error *err) {
    trm_graph *g;
    trm_exec *exec = NULL;
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, err));
    trm_exec_options options = {.loss = t->network(g, t->variant),
                                .optimizer = t->optimizer,
                                .backend = t->backend,
                                .threads = t->threads > 0 ? t->threads : 1,
                                .seed = 5,
                                .tuning_file = "",
                                .precision = t->precision,
                                .accumulate = t->accumulate,
                                .blocks = t->blocks};
    if (comm != NULL) {
        options.parallel = (trm_parallel_options){
            .comm = comm,
            .split.kind = t->whole_graphs ? TRM_SPLIT_NONE : TRM_SPLIT_PLANNED,
            .split.mesh = t->mesh,
            .shard_optimizer = t->slices,
            .pipeline = t->pipeline,
            .split.plan = t->plan[0] != '\0' ? t->plan : NULL};
        options.parallel.pipeline.begins = t->begins[0] != '\0' ? t->begins : NULL;
    }
    bool staged =
        comm != NULL && t->pipeline.stages > 1; /* losses of all parts come with the last */
    int32_t parts = t->accumulate > 1 ? t->accumulate : 1;
    trm_status status = trm_exec_create(g, &options, &exec, err);
    trm_graph_destroy(g);
    for (int step = 0; status == TRM_OK && step < STEPS; step++) {
        double sum = 0;
        for (int32_t part = 0; status == TRM_OK && part < parts; part++) {
            feed_step(exec, step + part * STEPS, t->blocks > 0);
            status = trm_exec_forward_backward(exec, err);
            sum += (double)trm_exec_loss(exec);
        }
        o->loss[step] = status != TRM_OK ? NAN
                        : staged         ? trm_exec_loss(exec)
                                         : (float)(sum / parts);
        for (int32_t i = 0; status == TRM_OK && step == 0 && i < trm_exec_variable_count(exec);
             i++) {
            trm_variable v = trm_exec_variable(exec, i);
            if (v.kind == TRM_VARIABLE_PARAMETER &&
                o->gradients_count + trm_shape_count(&v.shape) <= VALUES) {
                status = trm_exec_gradient(exec, i, o->gradients + o->gradients_count, err);
                o->gradients_count += trm_shape_count(&v.shape);
                o->gradient_end[o->parameters++ % PARAMETERS] = o->gradients_count;
            }
        }
        status = status == TRM_OK ? trm_exec_update(exec, 0.05, err) : status;
    }
    status = status == TRM_OK ? trm_exec_gather(exec, err) : status;
    for (int32_t i = 0; status == TRM_OK && i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (o->values_count + trm_shape_count(&v.shape) <= VALUES) {
            trm_exec_read(exec, i, o->values + o->values_count);
            o->values_count += trm_shape_count(&v.shape);
        }
    }
    if (status == TRM_OK) {
        trm_parallel_info info;
        trm_exec_get_parallel_info(exec, &info);
        o->one_copy = info.one_copy;
        o->casts = info.casts;
        const trmi_parallel *p = trmi_parallel_of(exec);
        for (int64_t b = 0; p != NULL && b < p->blocks; b++) {
            int64_t count = trmi_update_block_offset(exec->update, b + 1) -
                            trmi_update_block_offset(exec->update, b);
            o->own_slots += !p->options.shard_optimizer || p->mine[b] ? count : 0;
        }
    }
    trm_exec_destroy(exec);
    return status;
}

static inline void rank_main(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    outcome *o = &all->of[context->rank];
    o->status = run_trial(&all->trial, comm, o, &o->error);
}

static int plans_with_repeats; /* drawn so far */

/* Stores a third of the parameters in parts along one dimension, over one axis; of half of these
 * backward gathers once more. */
static inline void store_in_parts(const trm_graph *training, const trmi_mesh *mesh,
                                  trmi_partition_plan *plan, uint64_t seed) {
    trm_error err;
    for (int64_t i = 1; i < training->ops_count; i++) {
        const trmi_op *op = &training->ops[i];
        uint32_t bits = trmi_random_u32(seed, TRMI_STREAM_TEST, (uint64_t)(1000000 + i));
        if (op->kind != TRMI_OP_PARAMETER || bits % 3 != 0 || mesh->axes == 0) {
            continue;
        }
        const trm_shape *shape = &training->values[op->outputs[0]].shape;
        trmi_spread spread = {{0}, {0}};
        int32_t dimension =
            (int32_t)((bits >> 4 & 15) % (uint32_t)(shape->rank > 0 ? shape->rank : 1));
        spread.at[(bits >> 8 & 15) % (uint32_t)mesh->axes] = (uint8_t)(TRMI_SPLIT + dimension);
        if (trmi_spread_fits(mesh, shape, &spread)) {
            CHECK_OK(
                trmi_partition_plan_store(plan, op->name, &spread, (bits >> 12 & 1) != 0, &err),
                err);
        }
    }
}

/* Runs a trial on the ranks of one host, or on hosts of one rank each, where gathers begin ahead.
 */
static inline void run_ranks(shared *all, int ranks, bool hosts) {
    joined_start start = {rank_main, all};
    ranks_run(ranks, hosts ? 1 : 0, false, rank_joined, &start, "ranks");
}

/* Draws a legal strategy for every forward operator, and whether backward recomputes its result. */
static inline void draw_plan(trial *t, uint64_t seed) {
    trm_error err;
    trm_graph *g, *training;
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_mesh mesh;
    trmi_backend *backend;
    trmi_partition_plan *plan;
    CHECK_OK(trmi_backend_ref(1, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node loss = t->network(g, t->variant);
    trmi_plan_options options = {.target = &backend->target,
                                 .loss = loss,
                                 .precision = (int32_t)t->precision,
                                 .blocks = t->blocks,
                                 .block_ranks = 1,
                                 .dense_gradients = true};
    CHECK_OK(trmi_training_graph(g, &options, &training, &roots, &arena, &err), err);
    CHECK_OK(trmi_mesh_parse(t->mesh, &mesh, &err), err);
    CHECK_OK(trmi_partition_plan_create(&mesh, &plan, &err), err);
    plan->digest = trmi_partition_digest(training);
    uint64_t counter = 0;
    bool *can = calloc((size_t)training->ops_count, sizeof *can);
    assert_true(can != NULL);
    trmi_partition_repeatable(training, can);
    for (int64_t i = 1; i < training->ops_count; i++) {
        const trmi_op *op = &training->ops[i];
        trmi_strategy *list;
        int32_t count;
        if (op->phase != TRMI_FORWARD || op->outputs_count == 0 || op->inputs_count == 0) {
            continue;
        }
        CHECK_OK(trmi_partition_strategies(training, op, &mesh, &arena, &list, &count, &err), err);
        uint32_t bits = trmi_random_u32(seed, TRMI_STREAM_TEST, counter++);
        /* only one operator's line, to find the operator that is wrong */
        const char *only = getenv("TRIREME_SHARD_ONLY");
        if (only != NULL ? strcmp(only, op->name) == 0 : bits % 8 != 0) { /* the rest follows */
            CHECK_OK(trmi_partition_plan_set(plan, op->name,
                                             list[(bits >> 8) % (uint32_t)count].letters, false,
                                             NULL, &err),
                     err);
            static const trmi_recompute_choice ways[] = {TRMI_RECOMPUTE_RULE, TRMI_RECOMPUTE_NO,
                                                         TRMI_RECOMPUTE_YES, TRMI_RECOMPUTE_YES};
            trmi_recompute_choice again = ways[bits >> 3 & 3];
            CHECK_OK(trmi_partition_plan_set_recompute(
                         plan, op->name,
                         again == TRMI_RECOMPUTE_YES && !can[i] ? TRMI_RECOMPUTE_RULE : again,
                         &err),
                     err);
        }
    }
    free(can);
    store_in_parts(training, &mesh, plan, seed);
    char *text = trmi_partition_plan_text(plan);
    assert_true(text != NULL && strlen(text) < TEXT);
    strcpy(t->plan, text);
    plans_with_repeats += strstr(text, " again") != NULL;
    trm_free(text);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    backend->destroy(backend);
}

static inline double distance_of(const float *a, const float *b, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

/* Describes the first element that differs. */
static inline void same_bits(const trial *t, int rank, uint64_t seed, const char *what,
                             const float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) {
            fail_msg("layout %d, mesh %s, %s, rank %d: element %d of %d of the %s is %.9g, on one "
                     "device %.9g\n%s",
                     (int)seed, t->mesh, t->backend, rank, (int)i, (int)count, what, (double)a[i],
                     (double)b[i], t->plan);
        }
    }
}

static inline void compare_bits(const shared *all, const outcome *one, int ranks, uint64_t seed) {
    for (int r = 0; r < ranks; r++) {
        const outcome *o = &all->of[r];
        if (o->status != TRM_OK) {
            fail_msg("layout %d, mesh %s: rank %d: %s (%s:%d)\n%s", (int)seed, all->trial.mesh, r,
                     o->error.message, o->error.file, o->error.line, all->trial.plan);
        }
        assert_int_equal(o->values_count, one->values_count);
        assert_int_equal(o->gradients_count, one->gradients_count);
        same_bits(&all->trial, r, seed, "losses", o->loss, one->loss, STEPS);
        same_bits(&all->trial, r, seed, "gradients", o->gradients, one->gradients,
                  one->gradients_count);
        same_bits(&all->trial, r, seed, "variables", o->values, one->values, one->values_count);
    }
}

/* Returns the largest relative difference of one parameter's gradient. A gradient that is tiny
 * beside the others is compared relative to the others. */
static inline double apart_each(const outcome *o, const outcome *one) {
    double worst = 0, size = 0;
    for (int64_t i = 0; i < one->gradients_count; i++) {
        size += (double)one->gradients[i] * (double)one->gradients[i];
    }
    for (int32_t k = 0; k < one->parameters && k < PARAMETERS; k++) {
        int64_t begin = k > 0 ? one->gradient_end[k - 1] : 0, count = one->gradient_end[k] - begin;
        double own = 0,
               difference = distance_of(o->gradients + begin, one->gradients + begin, count);
        for (int64_t i = begin; i < begin + count; i++) {
            own += (double)one->gradients[i] * (double)one->gradients[i];
        }
        difference *= sqrt(own > 0 ? own : 1) / sqrt(fmax(own, 1e-6 * size) + 1e-30);
        worst = fmax(worst, difference);
    }
    return worst;
}

static inline void compare_outcomes(const shared *all, const outcome *one, int ranks, uint64_t seed,
                                    double tolerance) {
    for (int r = 0; r < ranks; r++) {
        const outcome *o = &all->of[r];
        const char *where = "losses";
        double worst = distance_of(o->loss, one->loss, STEPS);
        if (o->status != TRM_OK) {
            fail_msg("seed %d, mesh %s: rank %d: %s (%s:%d)\n%s", (int)seed, all->trial.mesh, r,
                     o->error.message, o->error.file, o->error.line, all->trial.plan);
        }
        assert_int_equal(o->values_count, one->values_count);
        assert_int_equal(o->gradients_count, one->gradients_count);
        double gradients = apart_each(o, one);
        double values = distance_of(o->values, one->values, one->values_count);
        where = gradients > worst ? "gradients" : where;
        worst = fmax(worst, gradients);
        where = values > worst ? "variables" : where;
        worst = fmax(worst, values);
        if (!(worst <= tolerance)) {
            fail_msg("seed %d, mesh %s, %s, rank %d: %s differ by %.3g (losses %.9g %.9g %.9g, one "
                     "device %.9g %.9g %.9g)\n%s",
                     (int)seed, all->trial.mesh, all->trial.backend, r, where, worst,
                     (double)o->loss[0], (double)o->loss[1], (double)o->loss[2],
                     (double)one->loss[0], (double)one->loss[1], (double)one->loss[2],
                     all->trial.plan);
        }
    }
}

/* The batch of a variant; in strict trials that of the trial, whose blocks meshes can share. */
static int64_t strict_batch;
static inline int64_t batch_of(uint64_t v, int64_t from, int64_t to) {
    return strict_batch > 0 ? strict_batch : pick_number(v, 0, from, to);
}

/* Random plans of a network, `count` from seed `first` on. */
static inline void try_all(network_function network, uint64_t first, int count, const char *backend,
                           int32_t accumulate, double tolerance) {
    /* the larger ones in long runs */
    static const char *const meshes[] = {"2", "2x2", "3", "4", "2x2x2", "2x3"};
    trm_error err;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static outcome one;
    for (uint64_t seed = first; seed < first + (uint64_t)count; seed++) {
        memset(all, 0, sizeof *all);
        memset(&one, 0, sizeof one);
        all->trial = (trial){.network = network,
                             .variant = seed / 3,
                             .mesh = meshes[seed % (count > 20 ? 6 : 4)],
                             .backend = backend,
                             .accumulate = accumulate,
                             .optimizer = {.kind = TRM_MOMENTUM,
                                           .momentum = 0.9,
                                           .weight_decay = 1e-3,
                                           .clip_norm = seed % 4 == 0 ? 0.5 : 0}};
        trmi_mesh mesh;
        CHECK_OK(trmi_mesh_parse(all->trial.mesh, &mesh, &err), err);
        draw_plan(&all->trial, seed);
        CHECK_OK(run_trial(&all->trial, NULL, &one, &err), err);
        run_ranks(all, trmi_mesh_ranks(&mesh), seed % 3 == 1);
        compare_outcomes(all, &one, trmi_mesh_ranks(&mesh), seed, tolerance);
    }
    munmap(all, sizeof *all);
}

/* How one network runs under many layouts of 1 to 8 ranks. */
typedef struct bits {
    network_function network;
    uint64_t variant; /* which network of the function */
    const char *backend;
    int64_t batch;  /* samples of all ranks */
    int32_t blocks; /* of strict determinism */
    trm_optimizer_options optimizer;
    trm_precision precision;
} bits;

/* Checks that every layout of ranks has the same bits. */
static inline void try_bits(const bits *how, int layouts) {
    /* Three axes take long to partition: in long runs. */
    static const char *const meshes[] = {"2", "2x2", "3", "4", "2x3",
                                         "5", "4x2", "7", "8", "2x2x2"};
    trm_error err;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static outcome one;
    memset(&one, 0, sizeof one);
    strict_batch = how->batch;
    const trial plain = {.network = how->network,
                         .variant = how->variant,
                         .mesh = "1",
                         .backend = how->backend,
                         .precision = how->precision,
                         .blocks = how->blocks,
                         .optimizer = how->optimizer};
    CHECK_OK(run_trial(&plain, NULL, &one, &err), err);
    assert_true(isfinite(one.loss[STEPS - 1]) && one.loss[0] != one.loss[STEPS - 1]);
    for (int layout = 0; layout < layouts; layout++) {
        memset(all, 0, sizeof *all);
        all->trial = plain;
        all->trial.mesh = meshes[layout % (layouts > 20 ? 10 : 9)];
        all->trial.threads = layout % 3 == 1 ? 3 : 1;
        trmi_mesh mesh;
        CHECK_OK(trmi_mesh_parse(all->trial.mesh, &mesh, &err), err);
        draw_plan(&all->trial, (uint64_t)layout + 77);
        run_ranks(all, trmi_mesh_ranks(&mesh), layout % 3 == 2);
        compare_bits(all, &one, trmi_mesh_ranks(&mesh), (uint64_t)layout);
    }
    strict_batch = 0;
    munmap(all, sizeof *all);
}

#endif
