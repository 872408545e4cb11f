/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of the recommendation models (models/recommender.h): checks of the inputs, look-
 * up of rows from one or several tables, layers.
 *
 *   keys [N, F] or bags (keys [K], offsets) --> rows [N, F, width] --> flat [N, F width] --> tower
 *
 * One table for all fields is one look-up; several tables are one look-up each, for the fields that
 * the options give them, joined again in the order of the fields. Errors are kept by the graph, and
 * name the model and the table. Parameter names are part of checkpoints and must not change. */
#include "models/recommender.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* ---- the inputs ---- */

/* Records an error of a model in the graph. Returns false. */
static bool fail_model(trm_graph *g, const char *model, const char *what) {
    trm_error err;
    (void)TRMI_FAIL(&err, TRM_INVALID, "%s: %s", model, what);
    trmi_graph_fail(g, &err);
    return false;
}

/* Records an error of a table in the graph. Returns false. */
static bool broken_table(trm_graph *g, const char *model, const char *table, const char *what) {
    char text[200];
    snprintf(text, sizeof text, "table '%.40s': %s", table, what);
    return fail_model(g, model, text);
}

/* Checks the tables of the options: each field is in exactly one table, each table has rows and a
 * unique name. */
static bool tables_fit(trm_graph *g, const char *model, const trm_click_inputs *in,
                       const trm_recommender_options *o, int64_t fields) {
    bool taken[TRMI_CLICK_FIELDS_MAX] = {false};
    int64_t covered = 0;
    if (o->tables_count > 0 && in->offsets.id != 0) {
        return fail_model(g, model,
                          "tables of some fields need one key a field; bags are of one table");
    }
    for (int32_t i = 0; i < o->tables_count; i++) {
        const trm_field_table *t = &o->tables[i];
        if (t->count < 1 || (t->rows < 1 && o->rows < 1) || t->width < 0 || t->width > 65536) {
            return broken_table(
                g, model, t->name,
                "at least one field and one row are needed, and rows of 1 to 65536 numbers");
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(o->tables[k].name, t->name) == 0) {
                return broken_table(g, model, t->name, "there are two of this name");
            }
        }
        /* fields exist and are in no earlier table */
        for (int32_t k = 0; k < t->count; k++, covered++) {
            int32_t f = t->fields[k];
            if (f < 0 || f >= fields || f >= TRMI_CLICK_FIELDS_MAX || taken[f]) {
                return broken_table(
                    g, model, t->name,
                    "it names a field that the data has not, or that is named already");
            }
            taken[f] = true;
        }
    }
    return o->tables_count == 0 || covered == fields
               ? true
               : fail_model(g, model, "a field is in no table; name each in one");
}

/* Contract in recommender.h. Keys are [N, F], one a field, or bags: keys [K] with offsets. */
bool trmi_click_shape_of(trm_graph *g, const char *model, const trm_click_inputs *in,
                         const trm_recommender_options *o, trmi_click_shape *out) {
    *out = (trmi_click_shape){.batch = in->batch};
    trm_shape keys = trm_node_shape(g, in->keys), dense = trm_node_shape(g, in->dense);
    if (in->keys.id == 0) {
        return fail_model(g, model,
                          "the data has no keys, and a recommendation model is about them");
    }
    bool sized = o->rows >= 1 || o->tables_count > 0;
    if (!sized || o->width < 0 || o->width > 65536) {
        return fail_model(g, model,
                          "a table needs at least one row, and rows of 1 to 65536 numbers");
    }
    /* Of bags N comes from the caller, F from the number of bags. */
    if (in->offsets.id != 0) {
        trm_shape offsets = trm_node_shape(g, in->offsets);
        int64_t bags = offsets.rank == 1 ? offsets.dim[0] - 1 : 0;
        if (keys.rank != 1 || bags < 1 || in->batch < 1 || bags % in->batch != 0) {
            return fail_model(g, model, "bags are keys [K] and offsets [N*F + 1], with N given");
        }
        out->fields = bags / in->batch;
    } else {
        if (keys.rank != 2 || (in->batch != 0 && in->batch != keys.dim[0])) {
            return fail_model(g, model, "keys [N, F] are expected where there are no offsets");
        }
        out->batch = keys.dim[0];
        out->fields = keys.dim[1];
    }
    if (in->dense.id != 0 && (dense.rank != 2 || dense.dim[0] != out->batch)) {
        return fail_model(g, model, "dense inputs [N, D] are expected");
    }
    out->dense = in->dense.id != 0 ? dense.dim[1] : 0;
    return tables_fit(g, model, in, o, out->fields);
}

bool trmi_click_one_width(trm_graph *g, const char *model, const trm_recommender_options *o) {
    for (int32_t i = 1; i < o->tables_count; i++) {
        if (trmi_click_width_of(o, i) != trmi_click_width_of(o, 0)) {
            return fail_model(g, model,
                              "inner products need rows of one width; give all tables the same");
        }
    }
    return true;
}

int64_t trmi_click_width(const trm_recommender_options *o) { return o->width == 0 ? 16 : o->width; }

/* A table and the keys that are looked up in it. */
typedef struct source {
    trm_node keys;               /* [N, fields]; of bags [K] */
    int64_t fields, rows, width; /* rows: of the table; width: floats of a row */
    trm_init init;
} source;

/* Adds the look-up [N, fields, width] in the parameter "weight" of the present scope; bags are
 * pooled. */
static trm_node add_lookup(trm_graph *g, const source *s, const trm_click_inputs *in,
                           const trm_recommender_options *o, const trmi_click_shape *shape) {
    trm_node table = trm_parameter(g, "weight", trm_shape_of(s->rows, s->width), s->init);
    trm_node rows = trm_embedding(g, table, s->keys);
    if (in->offsets.id == 0) {
        return rows;
    }
    rows = trm_bag_pool(g, rows, in->offsets, in->values, o->pooling);
    return trm_reshape(g, rows, trm_shape_of(shape->batch, s->fields, s->width));
}

/* Returns the keys of a table's fields: a slice for each run of consecutive fields. */
static trm_node keys_of(trm_graph *g, const trm_field_table *t, trm_node keys,
                        const trmi_click_shape *shape) {
    trm_node runs[TRMI_CLICK_FIELDS_MAX];
    int32_t count = 0;
    for (int32_t i = 0, next; i < t->count; i = next) {
        next = i + 1;
        while (next < t->count && t->fields[next] == t->fields[next - 1] + 1) {
            next++;
        }
        bool all = next - i == shape->fields;
        runs[count++] = all ? keys
                            : trm_slice(g, keys, (int64_t[]){0, t->fields[i]},
                                        (int64_t[]){shape->batch, next - i});
    }
    return count == 1 ? runs[0] : trm_concat(g, runs, count, 1);
}

int64_t trmi_click_width_of(const trm_recommender_options *o, int32_t table) {
    int64_t own = o->tables[table].width;
    return own == 0 ? trmi_click_width(o) : own;
}

/* Adds the look-up in the parameter `name`.weight, or in those of all tables; width 0 = that of the
 * options. Tables of different widths are flattened and joined. */
static trm_node rows_of_all(trm_graph *g, const char *name, int64_t width, trm_init init,
                            const trm_click_inputs *in, const trm_recommender_options *o,
                            const trmi_click_shape *shape) {
    trm_node parts[TRMI_CLICK_FIELDS_MAX];
    bool alike = true;
    trm_graph_push_scope(g, "%s", name);
    /* one table for all fields */
    if (o->tables_count == 0) {
        const source all = {in->keys, shape->fields, o->rows,
                            width == 0 ? trmi_click_width(o) : width, init};
        parts[0] = add_lookup(g, &all, in, o, shape);
    }
    for (int32_t i = 0; i < o->tables_count; i++) {
        const trm_field_table *t = &o->tables[i];
        const source s = {keys_of(g, t, in->keys, shape), t->count,
                          t->rows == 0 ? o->rows : t->rows,
                          width == 0 ? trmi_click_width_of(o, i) : width,
                          width == 0 && t->init != TRM_INIT_ZERO ? t->init : init};
        trm_graph_push_scope(g, "%s", t->name);
        parts[i] = add_lookup(g, &s, in, o, shape);
        trm_graph_pop_scope(g);
        alike = alike && trm_node_shape(g, parts[i]).dim[2] == trm_node_shape(g, parts[0]).dim[2];
    }
    trm_graph_pop_scope(g);
    /* rows of different widths cannot be stacked: flatten them */
    for (int32_t i = 0; i < o->tables_count && !alike; i++) {
        parts[i] = trm_reshape(g, parts[i], trm_shape_of(shape->batch, -1));
    }
    return o->tables_count > 1 ? trm_concat(g, parts, o->tables_count, 1) : parts[0];
}

trm_node trmi_click_embedding(trm_graph *g, const trm_click_inputs *in,
                              const trm_recommender_options *o, const trmi_click_shape *shape) {
    /* zero, the default, selects a normal distribution of deviation 0.01 */
    trm_init init = o->table_init == TRM_INIT_ZERO ? TRM_INIT_NORMAL_001 : o->table_init;
    return rows_of_all(g, "embedding", 0, init, in, o, shape);
}

/* ---- layers ---- */

trm_node trmi_click_layer(trm_graph *g, const char *name, trm_node x, int64_t out,
                          const trm_recommender_options *o) {
    trm_init init = o->layer_init == TRM_INIT_ZERO ? TRM_INIT_GLOROT_UNIFORM : o->layer_init;
    int64_t in = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    trm_node y = trm_linear(g, x, trm_parameter(g, "weight", trm_shape_of(out, in), init),
                            trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_ZERO));
    trm_graph_pop_scope(g);
    return y;
}

trm_node trmi_click_tower(trm_graph *g, const char *name, trm_node x, trmi_widths given,
                          trmi_widths usual, const trm_recommender_options *o) {
    const trmi_widths layers = given.count == 0 ? usual : given;
    trm_graph_push_scope(g, "%s", name);
    for (int32_t i = 0; i < layers.count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", (int)i);
        x = trm_relu(g, trmi_click_layer(g, number, x, layers.widths[i], o));
    }
    trm_graph_pop_scope(g);
    return x;
}

trm_node trmi_click_flat(trm_graph *g, trm_node rows, const trm_click_inputs *in,
                         const trmi_click_shape *shape) {
    trm_node flat = trm_reshape(g, rows, trm_shape_of(shape->batch, -1));
    return in->dense.id == 0 ? flat : trm_concat(g, (trm_node[]){flat, in->dense}, 2, 1);
}

/* Contract in recommender.h. A linear layer on one-hot keys is a table of width 1 whose rows are
 * added. */
trm_node trmi_click_linear(trm_graph *g, const trm_click_inputs *in,
                           const trm_recommender_options *o, const trmi_click_shape *shape) {
    const int32_t fields = 1;
    trm_node sum = rows_of_all(g, "wide", 1, TRM_INIT_ZERO, in, o, shape);
    sum = trm_reduce_sum(g, sum, &fields, 1, false);
    if (in->dense.id == 0 || o->wide_dense == TRM_OFF) {
        return sum;
    }
    trm_node weight =
        trm_parameter(g, "wide_dense.weight", trm_shape_of(1, shape->dense), TRM_INIT_ZERO);
    return trm_add(g, sum, trm_linear(g, in->dense, weight, TRM_NO_NODE));
}

trm_node trmi_click_logits(trm_graph *g, trm_node x, const trmi_click_shape *shape) {
    return trm_reshape(g, x, trm_shape_of(shape->batch));
}
