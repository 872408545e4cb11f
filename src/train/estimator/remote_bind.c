/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a worker's connection to its servers (contracts: remote.h): finds the parameters of a
 * model that live on servers, and where the program has them.
 *
 *       create    find the gathers in the graph, detach their tables, compile the program that computes ids
 *       bind      declare tables and dense variables on the servers; two stages with their pull requests
 *
 * A dense variable is a table too: its elements lie in rows of equal width, keys 0, 1, ... All
 * workers declare the same tables in the same order, because they compile the same graph.
 *
 * Strict determinism: the program's samples lie by blocks, so keys do too, and gradients of rows
 * are pushed as sums of blocks (ps/client/client_blocks.c). */
#include "train/estimator/remote_state.h"

#include "base/error.h"
#include "base/memory.h"
#include "exec/exec.h"
#include "plan/passes/pass.h"

#include <string.h>

/* Width of dense rows: largest, smallest tried. */
enum { CHUNK = 1024, CHUNK_SMALLEST = 64 };

static trm_status no_memory(trm_error *err) {
    return TRMI_NO_MEMORY(err, "for the keys of a batch");
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Compiles the program that computes the ids of all gathers, from a copy of the graph.
 * Parameters are replaced by dummy constants, because no operator that makes ids reads them; the
 * program therefore takes no memory of a table's size. */
static trm_status make_ids_program(trmi_remote *r, const trm_model_options *o,
                                   const trm_graph *graph, trm_error *err) {
    TRMI_TRY(trmi_graph_clone(graph, &r->ids_graph, err));
    r->ids_nodes =
        trmi_arena_alloc(&r->arena, (size_t)(r->lookups_count + 1) * sizeof *r->ids_nodes);
    if (r->ids_nodes == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < r->lookups_count; i++) {
        r->ids_nodes[i] = r->found[i].ids;
    }
    trmi_graph_drop_parameters(r->ids_graph);
    const trm_exec_options options = {.outputs = r->ids_nodes,
                                      .outputs_count = r->lookups_count,
                                      .backend = o->exec.backend,
                                      .threads = o->exec.threads,
                                      .host_processes = o->exec.host_processes,
                                      .seed = o->exec.seed,
                                      .tuning_file = o->exec.tuning_file};
    return trm_exec_create(r->ids_graph, &options, &r->ids_exec, err);
}

/* Checks the options, finds the gathers, compiles the ids program, and only then changes the
 * graph: the ids program needs the graph with its gathers. Contract in remote.h. */
trm_status trmi_remote_create(const trm_model_options *o, trm_graph *graph, trmi_remote **out,
                              trm_error *err) {
    if (o->ps.lease_batches > 0 && o->ps.tables_only) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "lease_batches: where workers reduce gradients among each other, each has as many "
            "batches as the others: data is dealt by shards");
    }
    if (o->exec.accumulate > 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "accumulate %d: with parameter servers each batch is a step; use a larger "
                         "batch",
                         o->exec.accumulate);
    }
    trmi_remote *r = trmi_alloc(sizeof *r);
    if (r == NULL) {
        return no_memory(err);
    }
    r->client = o->ps.client;
    r->options = o->ps;
    r->optimizer = o->exec.optimizer;
    r->base_rate = o->learning_rate.base;
    r->seed = o->exec.seed;
    r->current = -1;
    /* Find the gathers; compile the ids program while the graph has them; then detach tables. */
    trm_status status = trmi_graph_find_tables(graph, &r->found, &r->lookups_count, err);
    if (status == TRM_OK && r->lookups_count > 0) {
        status = make_ids_program(r, o, graph, err);
    }
    if (status == TRM_OK) {
        trmi_graph_detach_tables(graph, r->found, r->lookups_count);
        status = trm_graph_check(graph, err);
    }
    if (status != TRM_OK) {
        trmi_remote_destroy(r);
        return status;
    }
    *out = r;
    return TRM_OK;
}

void trmi_remote_destroy(trmi_remote *r) {
    if (r == NULL) {
        return;
    }
    for (int s = 0; s < TRMI_REMOTE_STAGES; s++) {
        trm_ps_batch_destroy(r->stages[s].batch);
    }
    trm_ps_batch_destroy(r->reader);
    trm_exec_destroy(r->ids_exec);
    trm_graph_destroy(r->ids_graph);
    trmi_free(r->found);
    trmi_arena_free(&r->arena);
    trmi_free(r);
}

/* ---- strict determinism ---------------------------------------------------------------------- */

/* Prepares the sums of blocks: this worker's nodes in the tree of all workers, and the places of
 * samples.
 *   errors  NOMEM */
static trm_status bind_blocks(trmi_remote *r, trm_error *err) {
    const trm_exec *exec = r->compiled->exec;
    const trmi_batch_blocks s = r->samples = trmi_batches_of_exec(exec);
    const int64_t samples = r->compiled->batch;
    if (s.count == 0) {
        return TRM_OK;
    }
    int32_t *positions = trmi_arena_alloc(&r->arena, (size_t)s.nodes * sizeof *positions);
    r->row_of = trmi_arena_alloc(&r->arena, (size_t)samples * sizeof *r->row_of);
    if (positions == NULL || r->row_of == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < s.nodes; i++) {
        positions[i] = trmi_batches_node(exec, i);
    }
    for (int64_t i = 0; i < samples; i++) {
        r->row_of[i] = trmi_batches_row(exec, i, samples);
    }
    r->blocks = (trmi_push_blocks){
        .blocks = s.count, .nodes = s.nodes, .positions = positions, .total = s.total};
    return TRM_OK;
}

/* Checks that the ids of each gather are those of one sample after the other, so that its rows have
 * the places of their samples.
 *   errors  INVALID */
static trm_status check_ids(const trmi_remote *r, trm_error *err) {
    const trm_program *p = r->ids_exec != NULL ? r->ids_exec->program : NULL;
    trmi_arena arena = {0};
    trmi_block_marks marks;
    int64_t samples = 0;
    if (r->samples.count == 0 || p == NULL) {
        return TRM_OK;
    }
    trm_status status = trmi_block_samples(p->graph, r->samples.count, &samples, err);
    status = status == TRM_OK ? trmi_mark_blocks(p->graph, samples, &arena, &marks, err) : status;
    for (int32_t i = 0; i < r->lookups_count && status == TRM_OK; i++) {
        int32_t value = p->buffers[p->outputs[i + 1]].value;
        if (marks.rows[value] == 0 || marks.dimension[value] != 0) {
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: strict determinism needs ids of one sample after the other; "
                               "this table is looked up by others",
                               r->found[i].table);
        }
    }
    trmi_arena_free(&arena);
    return status;
}

/* Returns the rate of a table in strict determinism, for one whose options are for base_rate. */
static float strict_rate(const trmi_remote *r, float rate) {
    const float base = (float)r->base_rate;
    return rate == base ? 1 : rate / base;
}

/* ---- declaring ------------------------------------------------------------------------------- */

/* Returns the program's parameter of that name; the caller has found it before. */
static int32_t find_parameter(const trm_program *p, const char *name) {
    int32_t i = 0;
    while (i < p->params_count - 1 && strcmp(p->params[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* Declares the table of a gather on the servers, once for all gathers of the same table.
 * *number: its number. */
static trm_status declare_table(trmi_remote *r, const trmi_detached *t, int32_t *number,
                                trm_error *err) {
    for (int32_t i = 0; i < r->tables_count; i++) {
        if (strcmp(r->tables[i].name, t->table) == 0) {
            *number = r->tables[i].number;
            return TRM_OK;
        }
    }
    trm_shape shape = trm_shape_of(t->rows, t->width);
    trm_table_options o = {.name = t->table,
                           .width = t->width,
                           .seed = r->seed,
                           .init = trmi_remote_init(t->init, t->table, &shape)};
    const trm_program *p = r->compiled->exec->program;
    bool decay = trmi_exec_decays(p, find_parameter(p, t->leaf), &r->optimizer);
    trmi_remote_rule(&r->optimizer, r->base_rate, decay, true, &o);
    if (r->options.table != NULL) {
        r->options.table(r->options.context, &o);
    }
    if (r->samples.count > 0) {
        o.learning_rate = (double)strict_rate(r, (float)o.learning_rate);
    }
    TRMI_TRY(trm_ps_client_table(r->client, &o, number, err));
    TRMI_TRY(trm_ps_client_cache(r->client, *number, r->options.cache_rows, err));
    r->tables[r->tables_count++] = (trmi_remote_table){t->table, t->rows, t->width, *number};
    return TRM_OK;
}

/* Finds for each gather where its rows and their gradients lie in the program, and declares its
 * table.
 *   errors  INVALID: the loss does not depend on a table */
static trm_status bind_lookups(trmi_remote *r, trm_error *err) {
    size_t room = (size_t)r->lookups_count + 1;
    r->lookups = trmi_arena_alloc(&r->arena, room * sizeof *r->lookups);
    r->tables = trmi_arena_alloc(&r->arena, room * sizeof *r->tables);
    if (r->lookups == NULL || r->tables == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < r->lookups_count; i++) {
        trmi_remote_lookup *l = &r->lookups[i];
        bool plain;
        l->what = r->found[i];
        if (!trmi_exec_find_parameter(r->compiled->exec, l->what.leaf, &l->values, &l->gradients,
                                      &plain) ||
            !plain) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: the loss does not depend on this table",
                             l->what.table);
        }
        TRMI_TRY(declare_table(r, &l->what, &l->table, err));
    }
    return TRM_OK;
}

/* Returns the width of rows for a dense variable of `count` elements: at most CHUNK, and if
 * possible a divisor of `count`, so that no row is padded and the program's memory can be used
 * directly. */
static int32_t row_width(int64_t count) {
    if (count <= CHUNK) {
        return (int32_t)count;
    }
    for (int32_t width = CHUNK; width >= CHUNK_SMALLEST; width--) {
        if (count % width == 0) {
            return width;
        }
    }
    return CHUNK;
}

/* Describes one dense variable: row width, keys, and where values and gradients lie. A variable
 * with padded rows or with a layout of its own in the program gets copies. */
static trm_status bind_one(trmi_remote *r, int32_t variable, trmi_remote_dense *d, trm_error *err) {
    trm_exec *exec = r->compiled->exec;
    trm_variable v = trm_exec_variable(exec, variable);
    bool plain;
    d->name = v.name;
    d->variable = variable;
    d->count = trm_shape_count(&v.shape);
    d->width = row_width(d->count);
    d->rows = (d->count + d->width - 1) / d->width;
    d->keys = trmi_arena_alloc(&r->arena, (size_t)d->rows * sizeof *d->keys);
    bool trains = trmi_exec_find_parameter(exec, v.name, &d->values, &d->gradients, &plain);
    if (!trains) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the loss does not depend on this parameter",
                         v.name);
    }
    d->direct = plain && d->count % d->width == 0;
    d->frozen = d->gradients == NULL;
    if (!d->direct) {
        size_t bytes = (size_t)(d->rows * d->width) * sizeof(float);
        d->values = trmi_arena_alloc(&r->arena, bytes);
        d->gradients = d->frozen ? NULL : trmi_arena_alloc(&r->arena, bytes);
    }
    if (d->keys == NULL || d->values == NULL || (d->gradients == NULL && !d->frozen)) {
        return no_memory(err);
    }
    for (int64_t k = 0; k < d->rows; k++) {
        d->keys[k] = (uint64_t)k;
    }
    return TRM_OK;
}

/* Declares a dense variable as a table on the servers, with the graph's initialisation and the
 * optimiser's rule. Weight decay applies as on one device. */
static trm_status declare_dense(trmi_remote *r, trmi_remote_dense *d,
                                const trm_placement *placement, trm_error *err) {
    const trm_program *p = r->compiled->exec->program;
    trm_variable v = trm_exec_variable(r->compiled->exec, d->variable);
    int32_t parameter = find_parameter(p, v.name);
    bool decay = trmi_exec_decays(p, parameter, &r->optimizer);
    trm_table_options o = {.name = v.name,
                           .width = d->width,
                           .seed = r->seed,
                           .init = trmi_remote_init(p->params[parameter].init, v.name, &v.shape),
                           .placement = *placement};
    const trm_optimizer_options no_slots = {.kind = TRM_SGD};
    trmi_remote_rule(d->frozen ? &no_slots : &r->optimizer, trmi_remote_table_rate(r),
                     decay && !d->frozen, false, &o);
    return trm_ps_client_table(r->client, &o, &d->table, err);
}

/* Returns whether variable `name` is the leaf that stands for a gather's rows. */
static bool is_rows(const trmi_remote *r, const char *name) {
    for (int32_t i = 0; i < r->lookups_count; i++) {
        if (strcmp(r->found[i].leaf, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Describes, places and declares all dense variables; none in hybrid training, where they stay
 * in the workers. */
static trm_status bind_dense(trmi_remote *r, trm_error *err) {
    trm_exec *exec = r->compiled->exec;
    int32_t total = trm_exec_variable_count(exec);
    r->dense = trmi_arena_alloc(&r->arena, (size_t)(total + 1) * sizeof *r->dense);
    if (r->dense == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < total && !r->options.tables_only; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind == TRM_VARIABLE_PARAMETER && !is_rows(r, v.name)) {
            TRMI_TRY(bind_one(r, i, &r->dense[r->dense_count], err));
            r->dense_count++;
        }
    }
    /* the placement divides all variables among the servers at once */
    trm_ps_variable *variables =
        trmi_arena_alloc(&r->arena, (size_t)(total + 1) * sizeof *variables);
    trm_placement *places = trmi_arena_alloc(&r->arena, (size_t)(total + 1) * sizeof *places);
    if (variables == NULL || places == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < r->dense_count; i++) {
        variables[i] =
            (trm_ps_variable){r->dense[i].rows, r->dense[i].width * (int64_t)sizeof(float)};
    }
    if (r->options.placement != TRM_PLACE_BY_HASH) {
        TRMI_TRY(trm_ps_place(variables, r->dense_count, &r->options.partition,
                              r->options.placement, places, err));
    }
    for (int32_t i = 0; i < r->dense_count; i++) {
        TRMI_TRY(declare_dense(r, &r->dense[i], &places[i], err));
    }
    return TRM_OK;
}

/* Allocates one stage: pull request, keys of each gather, copies of the fields that the program
 * uses. */
static trm_status make_stage(trmi_remote *r, trmi_remote_batch *s, trm_error *err) {
    TRMI_TRY(trm_ps_batch_create(r->client, &s->batch, err));
    s->keys = trmi_arena_alloc(&r->arena, (size_t)(r->lookups_count + 1) * sizeof *s->keys);
    if (s->keys == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < r->lookups_count; i++) {
        s->keys[i] =
            trmi_arena_alloc(&r->arena, (size_t)(r->found[i].count + 1) * sizeof **s->keys);
        if (s->keys[i] == NULL) {
            return no_memory(err);
        }
    }
    for (int32_t f = 0; f < r->compiled->fields; f++) {
        const trm_tensor *to = &r->compiled->target[f];
        s->fields[f] =
            to->data == NULL ? NULL : trmi_arena_alloc(&r->arena, (size_t)trm_tensor_bytes(to) + 1);
        if (to->data != NULL && s->fields[f] == NULL) {
            return no_memory(err);
        }
    }
    return TRM_OK;
}

/* Contract in remote.h. The executor's step is set to the servers', so that a restarted worker
 * continues there. */
trm_status trmi_remote_bind(trmi_remote *r, trmi_compiled *compiled, trm_error *err) {
    r->compiled = compiled;
    if (r->options.tables_only && r->lookups_count == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "hybrid training keeps tables on servers, but this network has none");
    }
    for (int32_t f = 0; f < compiled->fields && r->ids_exec != NULL; f++) {
        const char *name = compiled->names[f];
        if (compiled->target[f].data != NULL) {
            TRMI_TRY(trm_exec_input(r->ids_exec, name, &r->ids_target[f], err));
        }
    }
    TRMI_TRY(bind_blocks(r, err));
    TRMI_TRY(check_ids(r, err));
    TRMI_TRY(bind_lookups(r, err));
    TRMI_TRY(bind_dense(r, err));
    for (int i = 0; i < TRMI_REMOTE_STAGES; i++) {
        TRMI_TRY(make_stage(r, &r->stages[i], err));
    }
    TRMI_TRY(trm_ps_batch_create(r->client, &r->reader, err));
    /* hybrid: the step is the number of batches, since each update contains one batch of every
     * worker */
    trm_exec_set_step(compiled->exec, r->options.tables_only ? (uint64_t)trmi_remote_position(r)
                                                             : trmi_remote_step(r));
    return TRM_OK;
}

int32_t trmi_remote_table_count(const trmi_remote *r) { return r->tables_count; }
trmi_remote_table trmi_remote_table_at(const trmi_remote *r, int32_t index) {
    return r->tables[index];
}
