/* Operators on local shapes, measured by the back-end that will run them:
 *
 *      leaves of the local shapes --> the operator --> mean --> gradients       profiled step by step
 *
 * Kept in "operators" of the cache directory, by machine. What was not measured is the roofline times what
 * measured operators took beyond it: the same operator's, if one of its shapes was measured, else all of them. */
#include "train/planner.h"

#include "base/error.h"
#include "base/os.h"
#ifdef TRIREME_ONEDNN
#include "exec/onednn/rates.h"
#include "exec/onednn/tuning.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 7 };
static const double worth = 20e-6; /* operators below are not measured */

#ifdef TRIREME_ONEDNN
/* Of this machine, measured once: two searches of one problem should find one plan. */
static void find_rates(trmi_costs *c, int threads, double *flops, double *bytes) {
    const char *name;
    char flops_key[40], bytes_key[40];
    double a, b;
    snprintf(flops_key, sizeof flops_key, "machine flops %d", threads);
    snprintf(bytes_key, sizeof bytes_key, "machine bytes %d", threads);
    if (c->file != NULL && trmi_tuning_find(c->file, flops_key, &name, &a) &&
        trmi_tuning_find(c->file, bytes_key, &name, &b) && a > 0 && b > 0) {
        *flops = 1e12 / a;
        *bytes = 1e12 / b;
        return;
    }
    trmi_onednn_rates(threads, flops, bytes);
    if (c->file != NULL) {
        trm_error ignored;
        trmi_tuning_add(c->file, flops_key, "tile", 1e12 / *flops);
        trmi_tuning_add(c->file, bytes_key, "copy", 1e12 / *bytes);
        (void)trmi_tuning_save(c->file, &ignored);
    }
}
#endif

/* ---- life --------------------------------------------------------------------------------------------- */

trm_status trmi_costs_open(trmi_costs *c, const trm_model_options *model, int threads, int together, trm_error *err) {
    memset(c, 0, sizeof *c);
    c->model = model;
    c->threads = threads;
    c->factor = c->share = 1;
    double flops = 5e10, bytes = 1e10;
#ifdef TRIREME_ONEDNN
    char path[512] = "";
    if (model->tuning_file == NULL && trmi_os_cache_dir(path, sizeof path - 16)) {
        strcat(path, "/operators.txt");
    }
    if (path[0] != '\0') {
        TRMI_TRY(trmi_tuning_create(path, threads, "planner", model->backend != NULL ? model->backend : "onednn", &c->file, err));
    }
    find_rates(c, threads, &flops, &bytes);
    if (together > threads) {
        double all_flops, all_bytes;
        find_rates(c, together, &all_flops, &all_bytes);
        c->share = fmax(1, bytes * together / (threads * all_bytes));
    }
#else
    (void)err, (void)together;
#endif
    c->flop = 1 / (0.6 * flops); /* of the register tile's rate real operators reach about so much */
    c->byte = 1 / bytes;
    return TRM_OK;
}

void trmi_costs_close(trmi_costs *c) {
#ifdef TRIREME_ONEDNN
    trmi_tuning_destroy(c->file);
#endif
    free(c->entries);
    trmi_arena_free(&c->arena);
}

/* ---- keys ------------------------------------------------------------------------------------------------ */

static bool can_measure(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL:
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL:
    case TRMI_OP_GLOBAL_AVG_POOL:
    case TRMI_OP_ADD:
    case TRMI_OP_MUL:
    case TRMI_OP_RELU:
    case TRMI_OP_EXP:
    case TRMI_OP_SOFTMAX_XENT:
    case TRMI_OP_EMBEDDING:
        return true;
    default:
        return false;
    }
}

static trm_shape local_shape(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh, const trmi_strategy *s,
                             int32_t input) {
    if (input < 4) {
        return s->local_inputs[input];
    }
    trmi_box box = trmi_spread_box(mesh, &trmi_input_of(g, op, input)->shape, &s->inputs[input], 0);
    return trmi_box_shape(&box);
}

/* "conv2d 89abcdef01234567 32x64x56x56:f32 ..." */
static bool key_of(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh, const trmi_strategy *s, int threads,
                   char *key, size_t size) {
    uint64_t h = 0xCBF29CE484222325ull;
    const uint8_t *attrs = (const uint8_t *)&op->attrs;
    for (size_t i = 0; i < sizeof op->attrs; i++) {
        h = (h ^ attrs[i]) * 0x100000001B3ull;
    }
    size_t used = (size_t)snprintf(key, size, "%s %016llx t%d", trmi_op_def_of(op)->name, (unsigned long long)h, threads);
    for (int32_t i = 0; i < op->inputs_count && used < size; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        char text[96] = "-";
        if (v != NULL) {
            trm_shape shape = local_shape(g, op, mesh, s, i);
            trm_shape_format(&shape, text, sizeof text);
        }
        used += (size_t)snprintf(key + used, size - used, " %s:%d", text, v != NULL ? (int)v->dtype : 0);
    }
    return used < size;
}

static const trmi_op_cost_entry *find(const trmi_costs *c, const char *key) {
    for (int64_t i = 0; i < c->count; i++) {
        if (strcmp(c->entries[i].key, key) == 0) {
            return &c->entries[i];
        }
    }
    return NULL;
}

/* `roof`: forward and backward by the roofline, without the factor. */
static trm_status remember(trmi_costs *c, const char *key, double forward, double backward, const double roof[2],
                           trm_error *err) {
    if (!trmi_grow((void **)&c->entries, &c->capacity, c->count + 1, sizeof *c->entries)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for measured operators");
    }
    trmi_op_cost_entry *e = &c->entries[c->count];
    *e = (trmi_op_cost_entry){.key = trmi_arena_strdup(&c->arena, key), .forward = forward, .backward = backward};
    e->size = roof[0];
    e->forward_ratio = forward >= 0 && roof[0] > 0 ? forward / roof[0] : 0;
    e->backward_ratio = backward > 0 && roof[1] > 0 ? backward / roof[1] : 0;
    c->count += e->key != NULL;
    return e->key != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for measured operators");
}

/* Of an earlier process. */
static bool recall(trmi_costs *c, const char *key, double *forward, double *backward) {
#ifdef TRIREME_ONEDNN
    char longer[1100];
    const char *name;
    snprintf(longer, sizeof longer, "%s forward", key);
    if (c->file == NULL || !trmi_tuning_find(c->file, longer, &name, forward)) {
        return false;
    }
    snprintf(longer, sizeof longer, "%s backward", key);
    return trmi_tuning_find(c->file, longer, &name, backward);
#else
    (void)c, (void)key, (void)forward, (void)backward;
    return false;
#endif
}

static void keep(trmi_costs *c, const char *key, double forward, double backward) {
#ifdef TRIREME_ONEDNN
    char longer[1100];
    if (c->file != NULL) {
        snprintf(longer, sizeof longer, "%s forward", key);
        trmi_tuning_add(c->file, longer, "measured", forward);
        snprintf(longer, sizeof longer, "%s backward", key);
        trmi_tuning_add(c->file, longer, "measured", backward);
    }
#else
    (void)c, (void)key, (void)forward, (void)backward;
#endif
}

/* ---- measuring --------------------------------------------------------------------------------------------- */

static bool is_float(trm_dtype dtype) { return dtype == TRM_FLOAT32 || dtype == TRM_BFLOAT16 || dtype == TRM_FLOAT16; }

/* A leaf for input i. Activations are parameters too, so that their gradients are computed. */
static trm_node leaf_for(trm_graph *to, const trm_graph *g, const trmi_op *op, int32_t i, trm_shape shape) {
    const trmi_value *v = trmi_input_of(g, op, i);
    trmi_op_kind kind = g->ops[v->op].kind;
    char name[32];
    snprintf(name, sizeof name, "input%d", (int)i);
    if (kind == TRMI_OP_STATE) {
        return trm_state(to, name, v->dtype, shape, TRM_INIT_ONE);
    }
    if (!is_float(v->dtype) || kind == TRMI_OP_INPUT) {
        return trm_input(to, name, v->dtype, shape);
    }
    /* Images come from a small convolution, in the layout that it likes. */
    bool image = shape.rank == 4 && kind != TRMI_OP_PARAMETER;
    trm_shape small = image ? trm_shape_of(shape.dim[0], 4, shape.dim[2], shape.dim[3]) : shape;
    trm_node x = trm_parameter(to, name, small, TRM_INIT_LINEAR);
    if (image) {
        snprintf(name, sizeof name, "weights%d", (int)i);
        trm_node w = trm_parameter(to, name, trm_shape_of(shape.dim[1], 4, 1, 1), TRM_INIT_LINEAR);
        x = trm_conv2d(to, x, w, TRM_NO_NODE, &(trm_conv_options){.stride = {1, 1}});
    }
    return v->dtype == TRM_FLOAT32 ? x : trm_cast(to, x, v->dtype);
}

static trm_status build(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh, const trmi_strategy *s,
                        trm_graph *to, trm_node *loss, trm_error *err) {
    trm_node inputs[TRMI_SHARD_INPUTS];
    for (int32_t i = 0; i < op->inputs_count; i++) {
        inputs[i] = TRM_NO_NODE;
        if (op->inputs[i] != 0) {
            inputs[i] = leaf_for(to, g, op, i, local_shape(g, op, mesh, s, i));
        }
    }
    int32_t made = trmi_graph_add(to, op->kind, "measured", inputs, op->inputs_count, op->outputs_count, &op->attrs);
    TRMI_TRY(trm_graph_check(to, err));
    trm_node y = {to->ops[made].outputs[0]};
    trm_shape shape = trm_node_shape(to, y);
    y = to->values[y.id].dtype != TRM_FLOAT32 ? trm_cast(to, y, TRM_FLOAT32) : y;
    *loss = trm_shape_count(&shape) == 1 ? y : trm_reduce_mean(to, y, NULL, 0, false);
    return trm_graph_check(to, err);
}

/* Seconds of the operator itself and of its gradient's kinds. */
static trm_status profile(const trmi_costs *c, const trmi_space *space, int32_t node, trm_graph *probe, trm_node loss,
                          double *forward, double *backward, trm_error *err) {
    const trm_graph *g = space->graph;
    const trm_exec_options options = {.loss = loss, .backend = c->model->backend, .threads = c->threads,
                                      .tuning_file = c->model->tuning_file};
    trm_exec *exec = NULL;
    const trm_step_profile *steps;
    int32_t count;
    TRMI_TRY(trm_exec_create(probe, &options, &exec, err));
    trm_status status = TRM_OK;
    *forward = *backward = INFINITY;
    /* The best of several: others use this machine too. */
    for (int repeat = 0; status == TRM_OK && repeat < REPEATS; repeat++) {
        double there = 0, back_again = 0;
        uint64_t found = 0; /* gradient operators */
        status = trm_exec_profile(exec, 1, &steps, &count, err);
        for (int32_t i = 0; status == TRM_OK && i < count; i++) {
            if (strcmp(steps[i].phase, "forward") == 0) {
                there += strcmp(steps[i].name, "measured") == 0 ? steps[i].seconds : 0;
                continue;
            }
            /* The gradient of the last operator comes first: each of its kinds is taken once. */
            for (int32_t k = 0; k < space->nodes[node].backward_count && k < 64; k++) {
                const trmi_op *back = &g->ops[space->nodes[node].backward[k]];
                if (!(found >> k & 1) && strcmp(steps[i].kind, trmi_op_def_of(back)->name) == 0) {
                    back_again += steps[i].seconds;
                    found |= 1ull << k;
                    break;
                }
            }
        }
        *forward = fmin(*forward, there);
        *backward = fmin(*backward, back_again);
    }
    trm_exec_destroy(exec);
    return status;
}

static trm_status measure(trmi_costs *c, const trmi_space *space, int32_t node, const trmi_strategy *s, const char *key,
                          const double roof[2], trm_error *err) {
    trm_graph *probe;
    trm_node loss;
    trm_error own;
    double forward, backward, begin = trmi_os_now();
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &probe, err));
    trm_status status = build(space->graph, trmi_space_op(space, node), &space->mesh, s, probe, &loss, &own);
    if (status == TRM_OK) {
        status = profile(c, space, node, probe, loss, &forward, &backward, &own);
    }
    trm_graph_destroy(probe);
    c->measure_seconds += trmi_os_now() - begin;
    if (status != TRM_OK) {
        return remember(c, key, -1, -1, roof, err); /* a local shape that cannot be by itself: by the roofline */
    }
    c->measured++;
    keep(c, key, forward, backward);
    return remember(c, key, forward, backward, roof, err);
}

/* ---- what the search asks -------------------------------------------------------------------------------------- */

/* The measured operator of this kind that is nearest in size; NULL: none. */
static const trmi_op_cost_entry *nearest(const trmi_costs *c, const trmi_op *op, double size) {
    const char *name = trmi_op_def_of(op)->name;
    size_t length = strlen(name);
    const trmi_op_cost_entry *best = NULL;
    double least = INFINITY;
    for (int64_t i = 0; i < c->count; i++) {
        const trmi_op_cost_entry *e = &c->entries[i];
        bool same = strncmp(e->key, name, length) == 0 && e->key[length] == ' ' && e->forward_ratio > 0;
        double far = same && size > 0 && e->size > 0 ? fabs(log(e->size / size)) : INFINITY;
        if (far < least) {
            least = far;
            best = e;
        }
    }
    return best;
}

/* Seconds for a rank by itself, known or guessed. */
static void alone(const trmi_costs *c, const trmi_space *space, const trmi_op *op, const trmi_strategy *s, double *forward,
                  double *backward) {
    char key[1024];
    double roof[2] = {*forward, *backward};
    if (!can_measure(op->kind) || !key_of(space->graph, op, &space->mesh, s, c->threads, key, sizeof key)) {
        return;
    }
    const trmi_op_cost_entry *e = find(c, key);
    if (e != NULL && e->forward >= 0) {
        *forward = e->forward;
        *backward = e->backward;
        return;
    }
    e = nearest(c, op, roof[0]);
    if (e != NULL) {
        *forward = roof[0] * e->forward_ratio;
        *backward = e->backward_ratio > 0 ? roof[1] * e->backward_ratio : *backward;
    }
}

void trmi_costs_seconds(void *context, const trmi_space *space, const trmi_space_node *node,
                        const trmi_strategy *s, double *forward, double *backward) {
    const trmi_costs *c = context;
    const trm_graph *g = space->graph;
    alone(c, space, &g->ops[node->op], s, forward, backward);
    /* What goes to memory takes longer while other ranks do the same. */
    double there = trmi_op_cost(g, &g->ops[node->op]).bytes * s->fraction * c->byte, back = 0;
    for (int32_t i = 0; i < node->backward_count; i++) {
        back += trmi_op_cost(g, &g->ops[node->backward[i]]).bytes * s->fraction * c->byte;
    }
    *forward = (*forward + (c->share - 1) * fmin(*forward, there)) * c->factor;
    *backward = (*backward + (c->share - 1) * fmin(*backward, back)) * c->factor;
}

trm_status trmi_costs_measure(trmi_costs *c, const trmi_space *space, const trmi_choice *choice, int32_t *news,
                              trm_error *err) {
    for (int32_t n = 0; n < space->nodes_count; n++) {
        const trmi_op *op = trmi_space_op(space, n);
        const trmi_strategy *s = &trmi_space_class_of(space, n)->strategies[choice->strategy[n]];
        char key[1024];
        double forward, backward, roof[2];
        if (!can_measure(op->kind) || !key_of(space->graph, op, &space->mesh, s, c->threads, key, sizeof key) ||
            find(c, key) != NULL) {
            continue;
        }
        trmi_space_roofline(space, n, choice->strategy[n], roof);
        if (roof[0] + roof[1] < worth) {
            continue;
        }
        if (recall(c, key, &forward, &backward)) {
            TRMI_TRY(remember(c, key, forward, backward, roof, err));
        } else if (c->measure_seconds < c->limit_seconds) {
            TRMI_TRY(measure(c, space, n, s, key, roof, err));
        } else {
            continue;
        }
        ++*news;
    }
#ifdef TRIREME_ONEDNN
    if (c->file != NULL && c->measured > 0) {
        trm_error ignored;
        (void)trmi_tuning_save(c->file, &ignored);
    }
#endif
    return TRM_OK;
}
