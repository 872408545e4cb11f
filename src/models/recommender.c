#include "models/recommender.h"

#include "base/error.h"

#include <stdio.h>

/* ---- the inputs ------------------------------------------------------------------------------- */

static bool broken(trm_graph *g, const char *model, const char *what) {
    trm_error err;
    (void)TRMI_FAIL(&err, TRM_INVALID, "%s: %s", model, what);
    trmi_graph_fail(g, &err);
    return false;
}

bool trmi_click_shape_of(trm_graph *g, const char *model, const trm_click_inputs *in,
                         const trm_recommender_options *o, trmi_click_shape *out) {
    *out = (trmi_click_shape){.batch = in->batch};
    trm_shape keys = trm_node_shape(g, in->keys), dense = trm_node_shape(g, in->dense);
    if (in->keys.id == 0) {
        return broken(g, model, "the data has no keys, and a recommendation model is about them");
    }
    if (o->rows < 1 || o->width < 0 || o->width > 65536) {
        return broken(g, model, "a table needs at least one row, and rows of 1 to 65536 numbers");
    }
    if (in->offsets.id != 0) {
        trm_shape offsets = trm_node_shape(g, in->offsets);
        int64_t bags = offsets.rank == 1 ? offsets.dim[0] - 1 : 0;
        if (keys.rank != 1 || bags < 1 || in->batch < 1 || bags % in->batch != 0) {
            return broken(g, model, "bags are keys [K] and offsets [N*F + 1], with N given");
        }
        out->fields = bags / in->batch;
    } else {
        if (keys.rank != 2 || (in->batch != 0 && in->batch != keys.dim[0])) {
            return broken(g, model, "keys [N, F] are expected where there are no offsets");
        }
        out->batch = keys.dim[0];
        out->fields = keys.dim[1];
    }
    if (in->dense.id != 0 && (dense.rank != 2 || dense.dim[0] != out->batch)) {
        return broken(g, model, "dense inputs [N, D] are expected");
    }
    out->dense = in->dense.id != 0 ? dense.dim[1] : 0;
    return true;
}

trm_init trmi_click_table_init(const trm_recommender_options *o) {
    return o->table_init == TRM_INIT_ZERO ? TRM_INIT_NORMAL_001 : o->table_init;
}

int64_t trmi_click_width(const trm_recommender_options *o) { return o->width == 0 ? 16 : o->width; }

trm_node trmi_click_rows(trm_graph *g, const char *name, int64_t width, trm_init init,
                         const trm_click_inputs *in, const trm_recommender_options *o,
                         const trmi_click_shape *shape) {
    trm_graph_push_scope(g, "%s", name);
    trm_node table = trm_parameter(g, "weight", trm_shape_of(o->rows, width), init);
    trm_node rows = trm_embedding(g, table, in->keys);
    trm_graph_pop_scope(g);
    if (in->offsets.id == 0) {
        return rows;
    }
    rows = trm_bag_pool(g, rows, in->offsets, in->values, o->pooling);
    return trm_reshape(g, rows, trm_shape_of(shape->batch, shape->fields, width));
}

/* ---- layers ------------------------------------------------------------------------------------- */

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

trm_node trmi_click_tower(trm_graph *g, const char *name, trm_node x, const int64_t *widths,
                          int32_t count, const int64_t *usual, int32_t usual_count,
                          const trm_recommender_options *o) {
    if (count == 0) {
        widths = usual;
        count = usual_count;
    }
    trm_graph_push_scope(g, "%s", name);
    for (int32_t i = 0; i < count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", (int)i);
        x = trm_relu(g, trmi_click_layer(g, number, x, widths[i], o));
    }
    trm_graph_pop_scope(g);
    return x;
}

trm_node trmi_click_flat(trm_graph *g, trm_node rows, const trm_click_inputs *in,
                         const trmi_click_shape *shape) {
    trm_node flat = trm_reshape(g, rows, trm_shape_of(shape->batch, -1));
    return in->dense.id == 0 ? flat : trm_concat(g, (trm_node[]){flat, in->dense}, 2, 1);
}

trm_node trmi_click_linear(trm_graph *g, const trm_click_inputs *in,
                           const trm_recommender_options *o, const trmi_click_shape *shape) {
    const int32_t fields = 1;
    trm_node sum = trmi_click_rows(g, "wide", 1, TRM_INIT_ZERO, in, o, shape);
    sum = trm_reduce_sum(g, sum, &fields, 1, false);
    if (in->dense.id == 0 || o->no_wide_dense) {
        return sum;
    }
    trm_node weight =
        trm_parameter(g, "wide_dense.weight", trm_shape_of(1, shape->dense), TRM_INIT_ZERO);
    return trm_add(g, sum, trm_linear(g, in->dense, weight, TRM_NO_NODE));
}

trm_node trmi_click_logits(trm_graph *g, trm_node x, const trmi_click_shape *shape) {
    return trm_reshape(g, x, trm_shape_of(shape->batch));
}
