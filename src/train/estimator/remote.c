/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters on servers, as a worker's training loop uses them (states of a batch and contracts:
 * remote.h).
 *
 *       create    find the gathers in the graph, detach their tables, compile the program that computes ids
 *       bind      declare tables and dense variables on the servers; two stages with their pull requests
 *       stage     copy the fields, compute the keys, start the pull
 *       begin     wait for the pull, feed the program
 *       push      check the gradients, send them
 *
 * A dense variable is a table too: its elements lie in rows of equal width, keys 0, 1, ... Rows
 * and gradients are read and written in place in the program's arenas; a variable whose layout
 * there is not plain goes through a copy.
 *
 * Strict determinism: the program's samples lie by blocks, so keys do too, and gradients of rows
 * are pushed as sums of blocks (ps/client/client_blocks.c). Gradients of dense variables are
 * complete on every worker, which pushes a part of them. The tables' rate is 1 and a push carries
 * the rate itself, because base rate times ratio would be rounded once more. */
#include "train/estimator/remote.h"

#include "train/model.h"

#include "base/element.h"
#include "base/error.h"
#include "base/memory.h"
#include "exec/distributed/batches.h"
#include "exec/exec.h"
#include "plan/passes/pass.h"
#include "ps/client/client.h"
#include "ps/client/life.h"

#include <math.h>
#include <string.h>

/* Width of dense rows (largest, smallest tried), stages of batches, dense rows that
 * trmi_remote_counters samples. */
enum { CHUNK = 1024, CHUNK_SMALLEST = 64, STAGES = 2, COUNTED = 64 };

/* One gather of the graph. Several gathers may read the same table. */
typedef struct lookup {
    trmi_detached what;
    int32_t table;             /* table number of the client */
    float *values, *gradients; /* [count][width], in the program */
} lookup;

/* A dense variable, stored on the servers as `rows` rows of `width` values. */
typedef struct dense {
    const char *name;
    int32_t table, variable;
    int64_t count, rows;
    int32_t width;
    uint64_t *keys;
    bool frozen;               /* read once, never pushed: no gradients */
    bool direct;               /* values and gradients lie in the program as on the servers */
    float *values, *gradients; /* in the program if `direct`, else copies */
} dense;

/* A staged batch: copies of its fields, its keys, its pull request. */
typedef struct stage {
    trm_ps_batch *batch;
    trmi_staged_batch place;
    uint64_t **keys;                    /* [lookups], each as many as its gather has ids */
    void *fields[TRM_MAX_BATCH_FIELDS]; /* NULL: not used by the program */
    bool filled;
} stage;

/* A model's connection to its servers, for one thread. */
struct trmi_remote {
    trm_ps_client *client; /* borrowed */
    trm_optimizer_options optimizer;
    trm_ps_training options;
    double base_rate; /* base of the learning-rate schedule */
    uint64_t seed;
    /* [lookups_count] gathers that were taken out of the graph (graph/detach.h), and of each its
     * place here; the program that computes their ids, its inputs by field of the batch, its
     * outputs */
    trmi_detached *found;
    int32_t lookups_count;
    lookup *lookups;
    trm_graph *ids_graph;
    trm_exec *ids_exec;
    trm_tensor ids_target[TRM_MAX_BATCH_FIELDS];
    trm_node *ids_nodes;
    /* variables on the servers that are no tables */
    dense *dense;
    int32_t dense_count;
    bool read_frozen; /* the frozen ones were read */
    trmi_remote_table *tables;
    int32_t tables_count;
    trmi_compiled *compiled; /* the training program; borrowed from the model */
    stage stages[STAGES];
    int32_t next, current; /* stage to fill next; stage that was begun, -1: none */
    trm_ps_batch *reader;  /* request of trmi_remote_read_dense */
    uint64_t step;         /* asynchronous: largest global step seen; never decreases */
    trm_ps_lease_options lending;
    trm_ps_lease lease;            /* lease held now; id 0: none */
    int64_t lent_next;             /* next batch of the lease */
    int64_t read_epoch, read_next; /* next batch that the dataset will give */
    /* strict determinism (samples.count > 0): blocks of the program; how gradients are summed; of
     * each sample its place in the program's batch */
    trmi_batch_blocks samples;
    trmi_push_blocks blocks;
    int64_t *row_of;
    trmi_arena arena;
};

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
    for (int s = 0; s < STAGES; s++) {
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

/* Returns the learning rate that tables are declared with; pushes carry the ratio of the current
 * rate to it. */
static double table_rate(const trmi_remote *r) { return r->samples.count > 0 ? 1 : r->base_rate; }

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
        lookup *l = &r->lookups[i];
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
static trm_status bind_one(trmi_remote *r, int32_t variable, dense *d, trm_error *err) {
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
static trm_status declare_dense(trmi_remote *r, dense *d, const trm_placement *placement,
                                trm_error *err) {
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
    trmi_remote_rule(d->frozen ? &no_slots : &r->optimizer, table_rate(r), decay && !d->frozen,
                     false, &o);
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
static trm_status make_stage(trmi_remote *r, stage *s, trm_error *err) {
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
    for (int i = 0; i < STAGES; i++) {
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

/* ---- staging --------------------------------------------------------------------------------- */

/* Copies the fields of a batch into the stage and into the inputs of the ids program. The copy
 * is needed because the dataset's batch is borrowed, and the program's inputs still hold the
 * batch that is being computed. */
static trm_status copy_fields(trmi_remote *r, stage *s, const trm_batch *batch, trm_error *err) {
    for (int32_t f = 0; f < r->compiled->fields; f++) {
        const trm_tensor *from;
        if (s->fields[f] == NULL) {
            continue;
        }
        TRMI_TRY(trmi_fit_field(r->compiled, batch, f, &from, err));
        trmi_copy_field(from, s->fields[f], &r->compiled->target[f]);
        if (r->ids_target[f].data != NULL) {
            trmi_copy_field(from, r->ids_target[f].data, &r->ids_target[f]);
        }
    }
    return TRM_OK;
}

/* Converts the ids of one gather into keys, which lie by blocks in strict determinism.
 *   errors  INVALID: an id outside the table, as the gather itself reports it */
static trm_status take_keys(const trmi_remote *r, const trmi_detached *t, const trm_tensor *ids,
                            uint64_t *keys, trm_error *err) {
    const int64_t each = r->row_of != NULL ? t->count / r->compiled->batch : 1;
    bool wide = ids->dtype == TRM_INT64;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t id = trmi_element_id(ids->data, wide, i);
        if (id < 0 || id >= t->rows) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: id %lld at position %lld, 0 to %lld expected",
                             t->table, (long long)id, (long long)i, (long long)t->rows - 1);
        }
        keys[r->row_of != NULL ? r->row_of[i / each] * each + i % each : i] = (uint64_t)id;
    }
    return TRM_OK;
}

/* Runs the ids program and stores the keys of all gathers in the stage. */
static trm_status find_keys(trmi_remote *r, stage *s, trm_error *err) {
    if (r->lookups_count == 0) {
        return TRM_OK;
    }
    TRMI_TRY(trm_exec_forward(r->ids_exec, err));
    for (int32_t i = 0; i < r->lookups_count; i++) {
        trm_tensor ids;
        TRMI_TRY(trm_exec_output(r->ids_exec, i, &ids, err));
        TRMI_TRY(take_keys(r, &r->found[i], &ids, s->keys[i], err));
    }
    return TRM_OK;
}

/* Adds rows [begin, end) of a dense variable to the request. `pushed`: with their gradients. */
static trm_status add_rows(const dense *d, trm_ps_batch *batch, int64_t begin, int64_t end,
                           bool pushed, trm_error *err) {
    return begin == end ? TRM_OK
                        : trm_ps_batch_add(batch, d->table, d->keys + begin, end - begin,
                                           d->values + begin * d->width,
                                           pushed ? d->gradients + begin * d->width : NULL, err);
}

/* Adds a dense variable to the request. In strict determinism each worker has the complete gradient
 * and pushes a part of its rows. */
static trm_status add_dense(const trmi_remote *r, const dense *d, trm_ps_batch *batch,
                            trm_error *err) {
    const int64_t ranks = r->samples.count > 0 ? r->samples.ranks : 1, rank = r->samples.rank;
    int64_t begin = d->rows * rank / ranks, end = d->rows * (rank + 1) / ranks;
    TRMI_TRY(add_rows(d, batch, 0, begin, false, err));
    TRMI_TRY(add_rows(d, batch, begin, end, true, err));
    return add_rows(d, batch, end, d->rows, false, err);
}

/* Fills the pull request of the stage: the keys of each gather, and all rows of all dense
 * variables. The same request is pushed later, so that it names where the gradients lie too. */
static trm_status fill_batch(trmi_remote *r, stage *s, trm_error *err) {
    trm_ps_batch_clear(s->batch);
    if (r->samples.count > 0) {
        TRMI_TRY(trmi_batch_set_blocks(s->batch, &r->blocks, err));
    }
    for (int32_t i = 0; i < r->lookups_count; i++) {
        const lookup *l = &r->lookups[i];
        TRMI_TRY(trm_ps_batch_add(s->batch, l->table, s->keys[i], l->what.count, l->values,
                                  l->gradients, err));
        TRMI_TRY(trmi_batch_by_blocks(s->batch, err));
    }
    for (int32_t i = 0; i < r->dense_count; i++) {
        const dense *d = &r->dense[i];
        TRMI_TRY(d->frozen ? TRM_OK : add_dense(r, d, s->batch, err));
    }
    return TRM_OK;
}

/* Writes the copies of dense variables, trained or frozen ones, whose layout in the program is not
 * plain. */
static void put_dense(trmi_remote *r, bool frozen) {
    for (int32_t i = 0; i < r->dense_count; i++) {
        if (!r->dense[i].direct && r->dense[i].frozen == frozen) {
            trm_exec_write(r->compiled->exec, r->dense[i].variable, r->dense[i].values);
        }
    }
}

/* Reads dense variables from the servers: all, or only the frozen ones. */
static trm_status read_dense(trmi_remote *r, bool all, trm_error *err) {
    int32_t count = 0;
    trm_ps_batch_clear(r->reader);
    for (int32_t i = 0; i < r->dense_count; i++) {
        const dense *d = &r->dense[i];
        if (all || d->frozen) {
            count++;
            TRMI_TRY(trm_ps_batch_add(r->reader, d->table, d->keys, d->rows, d->values, NULL, err));
        }
    }
    TRMI_TRY(count > 0 ? trm_ps_read(r->reader, err) : TRM_OK);
    put_dense(r, true);
    if (all) {
        put_dense(r, false);
    }
    return TRM_OK;
}

/* Contract in remote.h. Copies, computes keys, sends the pull; the answer is awaited in
 * trmi_remote_begin. */
trm_status trmi_remote_stage(trmi_remote *r, const trm_batch *batch, const trm_ps_lease *lease,
                             trm_error *err) {
    stage *s = &r->stages[r->next];
    if (!r->read_frozen) { /* they are read once */
        TRMI_TRY(read_dense(r, false, err));
        r->read_frozen = true;
    }
    TRMI_TRY(copy_fields(r, s, batch, err));
    TRMI_TRY(find_keys(r, s, err));
    TRMI_TRY(fill_batch(r, s, err));
    s->place = (trmi_staged_batch){batch->epoch, batch->index, batch->samples,
                                   lease != NULL ? *lease : (trm_ps_lease){0}};
    TRMI_TRY(trm_ps_pull_start(s->batch, err));
    s->filled = true;
    return TRM_OK;
}

bool trmi_remote_is_late(const trmi_remote *r) {
    return trmi_client_mode(r->client) != TRM_PS_SYNC;
}

/* Returns whether staging ahead pays. A row of a table is seldom in two successive batches, so
 * its value is hardly older when pulled ahead. A dense variable is in every batch: without
 * synchronous steps, values pulled ahead lack the update of the batch that is being computed,
 * and twice as many updates of the other workers. */
bool trmi_remote_reads_ahead(const trmi_remote *r) {
    return r->options.prefetch != TRM_OFF && (r->lookups_count > 0 || !trmi_remote_is_late(r));
}

int64_t trmi_remote_staged_epoch(const trmi_remote *r) { return r->stages[r->next].place.epoch; }

bool trmi_remote_is_staged(const trmi_remote *r) { return r->stages[r->next].filled; }

/* ---- a step ---------------------------------------------------------------------------------- */

/* Contract in remote.h. The stage becomes the current one, and the other stage is free for the
 * next batch. */
trm_status trmi_remote_begin(trmi_remote *r, trmi_staged_batch *out, trm_error *err) {
    stage *s = &r->stages[r->next];
    TRMI_TRY(trm_ps_pull_wait(s->batch, err));
    put_dense(r, false);
    for (int32_t f = 0; f < r->compiled->fields; f++) {
        const trm_tensor *to = &r->compiled->target[f];
        if (s->fields[f] != NULL &&
            !trmi_distribution_feed(r->compiled->exec, r->compiled->inputs[f], to, s->fields[f])) {
            memcpy(to->data, s->fields[f], (size_t)trm_tensor_bytes(to));
        }
    }
    s->filled = false;
    *out = s->place;
    r->current = r->next;
    r->next = (r->next + 1) % STAGES;
    return TRM_OK;
}

/* Returns whether no value is NaN or infinite, by its exponent bits: an integer loop that
 * compilers vectorise. */
static bool all_finite(const float *x, int64_t count) {
    uint32_t found = 0; /* 1 if an exponent is all ones */
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return found == 0;
}

/* Fetches the gradients of dense variables that need a copy, and checks that the gradients are
 * finite: a NaN that reaches the servers would spoil the parameters of all workers.
 *   errors  DIVERGED */
static trm_status take_gradients(trmi_remote *r, trm_error *err) {
    for (int32_t i = 0; i < r->dense_count; i++) {
        dense *d = &r->dense[i];
        if (d->frozen) {
            continue;
        }
        if (!d->direct) {
            TRMI_TRY(trm_exec_gradient(r->compiled->exec, d->variable, d->gradients, err));
        }
        if (!all_finite(d->gradients, d->count)) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "the gradient of %s is NaN or infinite; a lower learning "
                             "rate may help",
                             d->name);
        }
    }
    /* Rows of tables are checked only in a model without dense variables: a NaN reaches a row's
     * gradient through a dense variable's. */
    for (int32_t i = 0; i < r->lookups_count && r->dense_count == 0; i++) {
        const lookup *l = &r->lookups[i];
        if (!all_finite(l->gradients, l->what.count * l->what.width)) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "a gradient of table %s is NaN or infinite; a lower "
                             "learning rate may help",
                             l->what.table);
        }
    }
    return TRM_OK;
}

/* Contract in remote.h. The servers' rows have the base rate, so the push carries the ratio of
 * the current rate to it. */
trm_status trmi_remote_push(trmi_remote *r, double rate, trm_error *err) {
    TRMI_TRY(take_gradients(r, err));
    stage *s = &r->stages[r->current];
    const trm_ps_push_options options = {.rate_scale =
                                             rate == 0 ? TRM_NONE : (float)(rate / table_rate(r)),
                                         .lease = s->place.lease,
                                         .position = (s->place.index + 1) * r->compiled->batch};
    r->current = -1;
    trm_status status = trm_ps_push(s->batch, &options, err);
    /* The servers have leased this batch's samples to other workers. For the caller that is a lost
     * connection; CANCELLED would read as a requested stop. */
    if (status == TRM_CANCELLED) {
        return TRMI_FAIL(err, TRM_PEER, "%s", err != NULL ? err->message : "");
    }
    TRMI_TRY(status);
    r->step++; /* count the own update at once; the servers' answers bring those of other workers */
    r->step = trmi_remote_step(r);
    return TRM_OK;
}

trm_status trmi_remote_flush(trmi_remote *r, trm_error *err) {
    return trm_ps_flush(r->client, err);
}

/* Reads the update counts of about COUNTED rows of each dense variable (contract in remote.h). */
trm_status trmi_remote_counters(trmi_remote *r, int64_t *least, int64_t *most, trm_error *err) {
    *least = *most = 0;
    bool first = true;
    for (int32_t i = 0; i < r->dense_count; i++) {
        const dense *d = &r->dense[i];
        int64_t step = d->rows / COUNTED + 1;
        for (int64_t k = 0; k < d->rows && !d->frozen; k += step) {
            trm_row_info info = {0};
            trm_status status = trm_ps_row(r->client, d->table, d->keys[k], &info, NULL, NULL, err);
            if (status != TRM_OK && status != TRM_END) {
                return status;
            }
            *least = first || info.count < *least ? info.count : *least;
            *most = first || info.count > *most ? info.count : *most;
            first = false;
        }
    }
    return TRM_OK;
}

trm_status trmi_remote_read_dense(trmi_remote *r, trm_error *err) {
    return read_dense(r, true, err);
}

uint64_t trmi_remote_step(const trmi_remote *r) {
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(r->client, &stats);
    uint64_t counted = (uint64_t)stats.global_step;
    if (trmi_client_mode(r->client) == TRM_PS_SYNC && r->options.lease_batches <= 0) {
        return (uint64_t)trmi_remote_position(r);
    }
    return counted > r->step ? counted : r->step;
}

/* The client counts a batch when it is staged; a staged batch is not finished yet. */
int64_t trmi_remote_position(const trmi_remote *r) {
    return trm_ps_client_next_batch(r->client) - (trmi_remote_is_staged(r) ? 1 : 0);
}

void trmi_remote_begin_at(trmi_remote *r, int64_t batch) { trmi_client_begin_at(r->client, batch); }

/* ---- leases ---------------------------------------------------------------------------------- */

/* Contract in remote.h. Leases are whole batches, so that all workers cut the samples alike. */
void trmi_remote_lend(trmi_remote *r, trm_dataset *data, int64_t epochs, int64_t steps) {
    int64_t batch = r->compiled->batch;
    /* Only asynchronous steps can be limited by samples: a synchronous step takes a batch of
     * every worker that has samples, and that number varies. */
    bool counts = trmi_client_mode(r->client) != TRM_PS_SYNC;
    r->lending = (trm_ps_lease_options){.samples = trm_dataset_epoch_batches(data) * batch,
                                        .lease_samples = r->options.lease_batches * batch,
                                        .epochs = epochs,
                                        .samples_max = counts ? steps * batch : 0,
                                        .batch = batch,
                                        .timeout_seconds = r->options.lease_seconds};
    r->read_epoch = -1;
}

/* Reads the batch of the lease that is due. The dataset seeks only where leases do not follow
 * each other.
 *   errors  INTERNAL: the dataset gave another batch */
static trm_status read_lent(trmi_remote *r, trm_dataset *data, const trm_batch **out,
                            trm_error *err) {
    if (r->read_epoch != r->lease.epoch || r->read_next != r->lent_next) {
        TRMI_TRY(trm_dataset_seek(data, r->lease.epoch, r->lent_next, err));
    }
    TRMI_TRY(trmi_next_batch(data, out, err));
    if ((*out)->epoch != r->lease.epoch || (*out)->index != r->lent_next) {
        return TRMI_FAIL(err, TRM_INTERNAL,
                         "the dataset gave batch %lld of epoch %lld, lent was %lld of %lld",
                         (long long)(*out)->index, (long long)(*out)->epoch,
                         (long long)r->lent_next, (long long)r->lease.epoch);
    }
    r->read_epoch = r->lease.epoch;
    r->read_next = r->lent_next + 1;
    return TRM_OK;
}

/* Contract in remote.h. Takes a new lease when the last one is used up. */
trm_status trmi_remote_stage_lent(trmi_remote *r, trm_dataset *data, trm_error *err) {
    int64_t size = r->compiled->batch;
    bool used = r->lease.id == 0 || r->lent_next * size >= r->lease.end;
    if (used && r->current >= 0 && trmi_client_mode(r->client) != TRM_PS_ASYNC) {
        /* Without a lease this worker would be inactive, and the servers would finish the step
         * without the gradients that it is about to push. So the next lease is taken after the
         * push. */
        return TRM_OK;
    }
    if (used) {
        TRMI_TRY(trm_ps_lease_take(r->client, &r->lending, &r->lease, err));
        r->lent_next = r->lease.begin / size;
    }
    const trm_batch *batch;
    TRMI_TRY(read_lent(r, data, &batch, err));
    TRMI_TRY(trmi_remote_stage(r, batch, &r->lease, err));
    r->lent_next++;
    return TRM_OK;
}
