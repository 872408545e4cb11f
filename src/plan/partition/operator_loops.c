/* SPDX-License-Identifier: Apache-2.0 */
/* The loop nest of every operator. A function for each group of operators writes the letters of all
 * dimensions (plan/partition/operator_loops.h), and `rules` maps operators to these functions. An
 * operator without a rule is replicated on all ranks.
 *
 *   convolution  x [n c h w], w [k c - -]  ->  y [n k h w]      '-': ranks do not cut it
 *   LINEAR       x [n c],     w [k c]      ->  y [n k]          c is summed: cut by c, y is partial
 *   BCE          z [n],       t [n]        ->  loss []
 *
 * From the letters alone strategy.c derives spreads, messages and work, so an operator's cuts are
 * described in one place. A loop belongs here only where ranks can run parts of it and get the
 * result of one device: what needs a neighbour's elements has a window (conv_windows), what needs
 * statistics of all ranks is combined by the kernel itself, and the rest has no letter. */
#include "plan/partition/operator_loops.h"

#include "graph/rows.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* letters of the leading dimensions of matrices, ids and vectors */
static const char rows_of[] = "nmljiu";
/* letters of the dimensions of elementwise tensors and norms */
static const char image_of[] = "nchwuv";

/* Copies the letters of a tensor. */
static void set_letters(char *to, const char *text) {
    size_t length = strlen(text);
    TRMI_ASSERT(length < TRMI_LOOP_DIMS);
    memcpy(to, text, length + 1);
}

/* Copies the first `count` letters of `from` and appends `more` ('\0': nothing). */
static void set_first(char *to, const char *from, int32_t count, char more) {
    TRMI_ASSERT(count >= 0 && count + 1 < TRMI_LOOP_DIMS);
    memcpy(to, from, (size_t)count);
    to[count] = more;
    to[count + 1] = '\0';
}

/* Writes the letters of `rows` rows and of their columns, which are two dimensions if `parts`. */
static void set_rows(char *to, int32_t rows, bool parts, char columns) {
    set_first(to, rows_of, rows, parts ? '-' : columns);
    TRMI_ASSERT(rows + 2 < TRMI_LOOP_DIMS);
    to[rows + 1] = parts ? columns : '\0';
    to[rows + 2] = '\0';
}

/* Returns whether a loop is among the letters. */
static bool has_letter(const char *letters, char letter) {
    return letter != '-' && strchr(letters, letter) != NULL;
}

/* ---- convolution and pooling ---- */

/* Sets the windows of rows and columns of a convolution. x: image, w: weights, y: result. */
static void conv_windows(trmi_loops *l, const trmi_op *op, const trm_shape *x, const trm_shape *w,
                         const trm_shape *y) {
    l->windows = true;
    for (int i = 0; i < 2; i++) {
        l->window[i] =
            (trmi_partition_window){.stride = op->attrs.conv.stride[i],
                                    .before = op->attrs.conv.pad[2 * i],
                                    .extent = op->attrs.conv.dilation[i] * (w->dim[2 + i] - 1) + 1,
                                    .in = x->dim[2 + i],
                                    .out = y->dim[2 + i]};
    }
}

/* Gives the loops of a convolution and of its gradients. Ranks cut a grouped one between groups
 * only. */
static void loops_conv(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    /* Letters of the dimensions of x, w and y; '-' is not cut. */
    bool groups = op->attrs.conv.groups > 1;
    const char *x = groups ? "nghw" : "nchw", *w = groups ? "g---" : "kc--",
               *y = groups ? "nghw" : "nkhw";
    const trm_shape *a = &trmi_input_of(g, op, 0)->shape, *b = &trmi_input_of(g, op, 1)->shape;
    const trm_shape *out = &trmi_output_of(g, op, 0)->shape;
    strcpy(l->letters, groups ? "nghw" : "nkchw");
    l->groups = groups ? op->attrs.conv.groups : 0;
    /* forward: x, w, bias -> y; data: dy, w -> dx; weights: dy, x -> dw */
    switch (op->kind) {
    case TRMI_OP_CONV2D:
        set_letters(l->in[0], x), set_letters(l->in[1], w),
            set_letters(l->in[2], groups ? "g" : "k"), set_letters(l->out[0], y);
        l->once = 2;
        l->window_input = 0;
        conv_windows(l, op, a, b, out);
        break;
    case TRMI_OP_CONV2D_GRAD_DATA:
        set_letters(l->in[0], y), set_letters(l->in[1], w), set_letters(l->out[0], x);
        l->window_adds = true;
        conv_windows(l, op, out, b, a);
        break;
    default:
        set_letters(l->in[0], y), set_letters(l->in[1], x), set_letters(l->out[0], w);
        l->window_input = 1;
        conv_windows(l, op, b, out, a);
    }
}

/* Gives the loops of pooling with windows, and of its gradients. */
static void loops_pool(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    bool gradient = op->kind == TRMI_OP_MAX_POOL_GRAD || op->kind == TRMI_OP_AVG_POOL_GRAD;
    const trm_shape *in = &trmi_input_of(g, op, 0)->shape, *out = &trmi_output_of(g, op, 0)->shape;
    const trm_shape *x = gradient ? out : in, *y = gradient ? in : out;
    strcpy(l->letters, "nchw");
    for (int i = 0; i < 3; i++) {
        set_letters(l->in[i], "nchw");
    }
    set_letters(l->out[0], "nchw");
    l->windows = true;
    l->window_input = op->kind == TRMI_OP_MAX_POOL_GRAD ? 1 : gradient ? -1 : 0;
    l->window_adds = gradient;
    for (int i = 0; i < 2; i++) {
        l->window[i] = (trmi_partition_window){.stride = op->attrs.pool.stride[i],
                                               .before = op->attrs.pool.pad[2 * i],
                                               .extent = op->attrs.pool.kernel[i],
                                               .in = x->dim[2 + i],
                                               .out = y->dim[2 + i]};
    }
}

/* Gives the loops of the mean over an image, and of its gradient. */
static void loops_global_pool(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    (void)g;
    bool gradient = op->kind == TRMI_OP_GLOBAL_AVG_POOL_GRAD;
    strcpy(l->letters, "nchw");
    set_letters(l->in[0], gradient ? "nc" : "nchw");
    set_letters(l->out[0], gradient ? "nchw" : "nc");
}

/* ---- norm ---- */

/* Gives the loops of batch norm, with or without activation. Inputs and outputs of one dimension
 * are per channel. */
static void loops_norm(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    bool gradient = op->kind == TRMI_OP_BATCH_NORM_GRAD || op->kind == TRMI_OP_NORM_ACT_GRAD;
    char image[TRMI_LOOP_DIMS];
    set_first(image, image_of, trmi_output_of(g, op, 0)->shape.rank, '\0');
    strcpy(l->letters, image);
    for (int i = 0; i < TRMI_LOOP_TENSORS; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        set_letters(l->in[i], v != NULL && v->shape.rank == 1 ? "c" : image);
    }
    for (int i = 0; i < op->outputs_count; i++) {
        /* outputs 1 and 2 are per channel: saved statistics, or dgamma and dbeta */
        bool vector = i == 1 || i == 2;
        set_letters(l->out[i], vector ? "c" : image);
        /* the kernel combines statistics over all ranks */
        l->without[i] = vector && !gradient ? TRMI_WHOLE : TRMI_PARTIAL_SUM;
    }
}

/* Gives the loops of layer norm and RMS norm, which ranks cut by rows; sums for gamma and beta are
 * partial then. */
static void loops_row_norm(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    bool gradient = op->kind == TRMI_OP_LAYER_NORM_GRAD || op->kind == TRMI_OP_RMS_NORM_GRAD;
    int32_t rows = trmi_output_of(g, op, 0)->shape.rank - 1;
    set_first(l->letters, rows_of, rows, '\0');
    for (int i = 0; i < op->inputs_count; i++) {
        bool vector = gradient ? i == 2 : i > 0, wide = gradient ? i < 2 : i == 0;
        if (vector) {
            set_letters(l->in[i], "-");
        } else {
            set_first(l->in[i], rows_of, rows, wide ? '-' : '\0');
        }
    }
    set_first(l->out[0], rows_of, rows, '-');
    for (int i = 1; i < op->outputs_count; i++) {
        set_letters(l->out[i], gradient ? "-" : l->letters);
    }
}

/* ---- attention ---- */

/* Attention: cut by samples, by groups of heads that share keys, by queries, all of which then read
 * all keys, and by queries and keys (a ring, emit_ring.c). Packed queries, keys and values are one
 * tensor: by samples, as a ring, and by heads where the three are a dimension
 * (plan/passes/pass_fold_heads.c). */
static void loops_attention(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    bool gradient = op->kind == TRMI_OP_ATTENTION_GRAD, packed = op->inputs[gradient ? 2 : 1] == 0;
    bool folded = packed && trmi_input_of(g, op, gradient ? 1 : 0)->shape.rank == 4;
    const char *q = folded   ? "nq-g"
                    : packed ? "nq-"
                             : "nqg-",
               *k = packed ? "" : "nsg-", *y = folded ? "nqg" : q,
               *lse = packed && !folded ? "n-q" : "ngq";
    const char *forward[] = {q, k, k, "n-"}, *backward[] = {y, q, k, k, "n-", y, lse};
    for (int i = 0; i < op->inputs_count; i++) {
        set_letters(l->in[i], gradient ? backward[i] : forward[i]);
    }
    set_letters(l->out[0], gradient ? q : y);
    for (int i = 1; i < op->outputs_count; i++) {
        set_letters(l->out[i], gradient ? k : lse);
    }
    set_letters(l->letters, folded ? "nrg" : packed ? "nr" : "nqrg");
    l->groups = folded   ? op->attrs.attention.kv_heads
                : packed ? 0
                         : trmi_input_of(g, op, gradient ? 2 : 1)->shape.dim[2];
}

/* ---- experts ---- */

/* Gives the loops of the largest values of each row, which ranks cut by rows. */
static void loops_top_k(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    int32_t rows = trmi_input_of(g, op, 0)->shape.rank - 1;
    char wide[TRMI_LOOP_DIMS];
    set_first(l->letters, rows_of, rows, '\0');
    set_first(wide, rows_of, rows, '-');
    set_letters(l->in[0], wide), set_letters(l->in[1], wide), set_letters(l->out[0], wide),
        set_letters(l->out[1], wide);
}

/* Linear layers of experts: rows, outputs (k), inputs (c), and experts (e): rows of experts that
 * are elsewhere are zeros, so that the result is partial. */
static void loops_experts(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    int32_t rows = trmi_input_of(g, op, 2)->shape.rank;
    bool weights = op->kind == TRMI_OP_EXPERT_GRAD_WEIGHTS, turned = op->attrs.expert.transposed;
    set_first(l->in[0], rows_of, rows, weights || turned ? 'k' : 'c');
    set_first(weights ? l->in[1] : l->out[0], rows_of, rows, weights || turned ? 'c' : 'k');
    set_letters(weights ? l->out[0] : l->in[1], "ekc");
    set_first(l->in[2], rows_of, rows, '\0');
    snprintf(l->letters, sizeof l->letters, "%.*sekc", (int)rows, rows_of);
}

/* ---- products and tables ---- */

/* Gives the loops of a linear layer: rows x inner, weights columns x inner. */
static void loops_linear(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    int32_t rows = trmi_input_of(g, op, 0)->shape.rank - 1;
    bool parts = trmi_input_of(g, op, 1)->shape.rank > 2; /* several columns of one head */
    set_first(l->in[0], rows_of, rows, 'c');
    set_letters(l->in[1], parts ? "c-k" : op->attrs.matmul.inputs_first ? "ck" : "kc");
    set_letters(l->in[2], parts ? "-k" : "k");
    set_rows(l->out[0], rows, parts, 'k');
    snprintf(l->letters, sizeof l->letters, "%.*skc", (int)rows, rows_of);
    l->once = 2;
}

/* Gives the loops of the gradients of linear layers: rows x inner by a matrix, or the sum over the
 * rows of columns (k) by columns (c). */
static void loops_rows(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    const trm_shape *a = &trmi_input_of(g, op, 0)->shape, *b = &trmi_input_of(g, op, 1)->shape;
    int32_t rows = trmi_rows_of(&op->attrs, a, b).leading;
    bool sum = op->attrs.matmul.transpose_a, turned = op->attrs.matmul.transpose_b;
    bool left = a->rank > rows + 1, right = b->rank > rows + 1; /* columns of two dimensions */
    set_rows(l->in[0], rows, left, sum ? 'k' : 'c');
    if (sum) {
        set_rows(l->in[1], rows, right, 'c');
        set_letters(l->out[0], left ? "-kc" : right ? "k-c" : "kc");
    } else {
        set_letters(l->in[1], !turned ? "ck" : left ? "k-c" : "kc");
        set_first(l->out[0], rows_of, rows, 'k');
    }
    snprintf(l->letters, sizeof l->letters, "%.*skc", (int)rows, rows_of);
}

/* Gives the loops of a matrix product with any leading dimensions and with transposes. */
static void loops_matmul(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    if (op->attrs.matmul.rows) {
        loops_rows(g, op, l);
        return;
    }
    const char *forms[] = {op->attrs.matmul.transpose_a ? "cn" : "nc",
                           op->attrs.matmul.transpose_b ? "kc" : "ck", "nk", "nkc"};
    char *const letters[] = {l->in[0], l->in[1], l->out[0], l->letters};
    int32_t batch = trmi_input_of(g, op, 0)->shape.rank - 2;
    for (int i = 0; i < 4; i++) {
        set_first(letters[i], "bmli", batch, '\0');
        strcpy(letters[i] + batch, forms[i]);
    }
}

/* Gives the loops of an embedding and of its gradient. Ranks cut the table by rows (v) or columns
 * (d). */
static void loops_embedding(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    int32_t rank = trmi_input_of(g, op, 1)->shape.rank;
    char ids[TRMI_LOOP_DIMS], rows[TRMI_LOOP_DIMS];
    set_first(ids, rows_of, rank, '\0');
    set_first(rows, rows_of, rank, 'd');
    bool gradient = op->kind == TRMI_OP_EMBEDDING_GRAD;
    set_letters(l->in[0], gradient ? rows : "vd");
    set_letters(l->in[1], ids);
    set_letters(l->out[0], gradient ? "vd" : rows);
    snprintf(l->letters, sizeof l->letters, "%svd", ids);
}

/* Gives the loops of bag pooling. Each rank reads offsets and weights whole: the rows of a bag may
 * be anywhere, and its mean needs all of its weights. A rank has some of the rows (keys, "k"), or
 * makes some of the bags. */
static void loops_bags(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    (void)g;
    bool gradient = op->kind == TRMI_OP_BAG_POOL_GRAD;
    strcpy(l->letters, "nkd");
    set_letters(l->in[0], gradient ? "nd" : "kd");
    set_letters(l->in[1], "-"), set_letters(l->in[2], "-");
    set_letters(l->out[0], gradient ? "kd" : "nd");
}

/* Gives the loops of pairwise dot products, which ranks cut by samples, or by the columns over
 * which the products are summed. */
static void loops_pairs(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    (void)g;
    bool gradient = op->kind == TRMI_OP_PAIR_DOTS_GRAD;
    strcpy(l->letters, "nc");
    set_letters(l->in[0], gradient ? "n-" : "n-c");
    set_letters(l->in[1], "n-c");
    set_letters(l->out[0], gradient ? "n-c" : "n-");
}

/* ---- losses ---- */

/* Gives the loops of softmax cross-entropy: samples and classes. The kernel combines the loss over
 * ranks. */
static void loops_xent(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    (void)g;
    strcpy(l->letters, "nk");
    if (op->kind == TRMI_OP_SOFTMAX_XENT) {
        set_letters(l->in[0], "nk"), set_letters(l->in[1], "n"), set_letters(l->out[1], "n"),
            set_letters(l->out[2], "-");
        l->without[0] = l->without[1] = l->without[2] = TRMI_WHOLE;
    } else {
        set_letters(l->in[1], "nk"), set_letters(l->in[2], "n"), set_letters(l->in[3], "n"),
            set_letters(l->in[4], "-"), set_letters(l->out[0], "nk");
    }
}

/* Linear layer and cross-entropy: samples (the leading dimensions) and classes; the kernel combines
 * the loss over ranks. Predicted classes need all logits of a row: then only samples are cut. */
static void loops_linear_xent(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    int32_t rank = trmi_input_of(g, op, 2)->shape.rank;
    set_first(l->in[0], rows_of, rank, '-');
    bool predicts = op->attrs.xent.predicts;
    set_letters(l->in[1], predicts ? "--" : "k-");
    set_first(l->in[2], rows_of, rank, '\0');
    set_first(l->out[1], rows_of, rank, predicts ? '\0' : '-');
    set_letters(l->out[2], "k-");
    if (op->inputs_count > 3) {
        set_letters(l->in[3], predicts ? "-" : "k");
        set_letters(l->out[3], "k");
    }
    set_first(l->letters, rows_of, rank, predicts ? '\0' : 'k');
    l->without[0] = TRMI_WHOLE;
}

/* Gives the loops of binary cross-entropy, which is elementwise and then summed. */
static void loops_bce(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    bool gradient = op->kind == TRMI_OP_BCE_LOGITS_GRAD;
    int32_t rank = trmi_input_of(g, op, 1)->shape.rank;
    set_first(l->letters, rows_of, rank, '\0');
    for (int i = gradient; i < 2 + gradient; i++) {
        set_letters(l->in[i], l->letters);
    }
    set_letters(l->out[0], gradient ? l->letters : "");
}

/* ---- elementwise and movement ---- */

/* Writes the letters of a shape that is broadcast to `wide`: aligned to the right; dimensions of 1
 * are not cut. */
static void follow_broadcast(const trm_shape *wide, const trm_shape *shape, char *to) {
    for (int32_t d = 0; d < shape->rank; d++) {
        int32_t of = d + wide->rank - shape->rank;
        to[d] = shape->dim[d] == 1 ? '-' : image_of[of];
    }
    to[shape->rank] = '\0';
}

/* Gives the loops of elementwise operators; the linear ones let partial sums pass. */
static void loops_eltwise(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    const trm_shape *out = &trmi_output_of(g, op, 0)->shape;
    for (int i = 0; i < op->outputs_count; i++) {
        follow_broadcast(out, out, l->out[i]);
    }
    follow_broadcast(out, out, l->letters);
    for (int i = 0; i < op->inputs_count && i < TRMI_LOOP_TENSORS; i++) {
        follow_broadcast(out, &trmi_input_of(g, op, i)->shape, l->in[i]);
    }
    /* a cast to fewer bits rounds, so a sum of casts is not the cast of the sum */
    bool narrow = op->kind == TRMI_OP_CAST && trmi_output_of(g, op, 0)->dtype != TRM_FLOAT32;
    l->linear = op->kind == TRMI_OP_ADD || op->kind == TRMI_OP_SUB || op->kind == TRMI_OP_SCALE ||
                op->kind == TRMI_OP_BROADCAST || (op->kind == TRMI_OP_CAST && !narrow);
    /* The operator is a gradient times a number, d(loss)/d(loss): the number is whole. */
    for (int i = 0; i < 2 && op->kind == TRMI_OP_MUL && op->phase == TRMI_BACKWARD; i++) {
        if (trm_shape_count(&trmi_input_of(g, op, i)->shape) == 1) {
            l->linear = true;
            l->whole = i;
        }
    }
}

/* Gives the loops of softmax, which ranks do not cut along its own dimension. */
static void loops_softmax(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    loops_eltwise(g, op, l);
    int32_t last = trmi_output_of(g, op, 0)->shape.rank - 1;
    l->in[0][last] = l->in[1][last] = l->out[0][last] = l->letters[last] = '-';
    l->reason = last == 0 ? "softmax is not cut along its own dimension" : NULL;
}

/* Gives the loops of rotary positions. Ranks do not cut the last dimension, whose halves are
 * mixed. */
static void loops_rotary(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    loops_eltwise(g, op, l);
    int32_t last = trmi_output_of(g, op, 0)->shape.rank - 1;
    l->in[0][last] = l->out[0][last] = l->letters[last] = '-';
    l->linear = true;
}

/* Gives the loops of a transpose: the output has the letters of the input in another order. */
static void loops_transpose(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    const trm_shape *in = &trmi_input_of(g, op, 0)->shape;
    follow_broadcast(in, in, l->in[0]);
    follow_broadcast(in, in, l->letters);
    for (int32_t d = 0; d < in->rank; d++) {
        l->out[0][d] = l->in[0][op->attrs.transpose.order[d]];
    }
    l->linear = true;
}

/* Reshape: matches runs of dimensions with equal products from the left. A cut of the first
 * dimension of a run on one side is a cut of the first dimension on the other side. */
static void loops_reshape(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    const trm_shape *in = &trmi_input_of(g, op, 0)->shape, *out = &trmi_output_of(g, op, 0)->shape;
    memset(l->in[0], '-', (size_t)in->rank);
    memset(l->out[0], '-', (size_t)out->rank);
    int32_t i = 0, o = 0, used = 0;
    while (i < in->rank && o < out->rank) {
        int32_t first_in = i, first_out = o;
        /* The shortest run of dimensions on both sides that has the same number of elements. */
        int64_t a = in->dim[i++], b = out->dim[o++];
        while (a != b && (a < b ? i < in->rank : o < out->rank)) {
            if (a < b) {
                a *= in->dim[i++];
            } else {
                b *= out->dim[o++];
            }
        }
        /* skip leading dimensions of 1, which cannot be cut */
        while (first_in + 1 < i && in->dim[first_in] == 1) {
            first_in++;
        }
        while (first_out + 1 < o && out->dim[first_out] == 1) {
            first_out++;
        }
        if (a == b && in->dim[first_in] > 1 && out->dim[first_out] > 1) {
            l->in[0][first_in] = l->out[0][first_out] = image_of[used];
            l->letters[used] = image_of[used];
            used++;
        }
    }
    l->linear = true;
}

/* Gives the loops of a concatenation, which ranks do not cut along its own axis. */
static void loops_concat(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    const trm_shape *out = &trmi_output_of(g, op, 0)->shape;
    follow_broadcast(out, out, l->out[0]);
    l->out[0][op->attrs.concat.axis] = '-';
    strcpy(l->letters, l->out[0]);
    for (int i = 0; i < TRMI_LOOP_TENSORS; i++) {
        set_letters(l->in[i], l->out[0]);
    }
    l->linear = true;
    if (op->inputs_count > TRMI_PARTITION_INPUTS) {
        l->letters[0] = '\0';
        l->linear = false;
        l->reason = "more inputs than a strategy holds";
    }
}

/* Gives the loops of slice and pad. Ranks do not cut dimensions that change. */
static void loops_crop(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    const trm_shape *in = &trmi_input_of(g, op, 0)->shape, *out = &trmi_output_of(g, op, 0)->shape;
    follow_broadcast(in, in, l->in[0]);
    for (int32_t d = 0; d < in->rank; d++) {
        /* a dimension is unchanged if it is taken as a whole and not padded */
        bool touched = op->kind == TRMI_OP_SLICE
                           ? op->attrs.slice.begin[d] != 0 || in->dim[d] != out->dim[d]
                           : op->attrs.pad.before[d] != 0 || op->attrs.pad.after[d] != 0;
        l->in[0][d] = touched ? '-' : l->in[0][d];
    }
    strcpy(l->out[0], l->in[0]);
    strcpy(l->letters, l->in[0]);
    l->linear = op->kind == TRMI_OP_SLICE || op->attrs.pad.value == 0;
}

/* Gives the loops of one-hot, whose classes are cut as 'k'. */
static void loops_one_hot(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    int32_t rank = trmi_input_of(g, op, 0)->shape.rank;
    set_first(l->in[0], rows_of, rank, '\0');
    set_first(l->out[0], rows_of, rank, 'k');
    strcpy(l->letters, l->out[0]);
}

/* Reductions and the gradient of a maximum. */
static void loops_reduce(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    bool gradient = op->kind == TRMI_OP_REDUCE_MAX_GRAD;
    const trm_shape *x = &trmi_input_of(g, op, gradient ? 1 : 0)->shape;
    char whole[TRMI_LOOP_DIMS], kept[TRMI_LOOP_DIMS];
    int32_t used = 0;
    follow_broadcast(x, x, whole);
    for (int32_t d = 0; d < x->rank; d++) {
        /* reduced dimensions lose their letter in the output */
        bool reduced = op->attrs.reduce.axes >> d & 1;
        if (gradient && reduced) {
            /* equal maxima on two ranks would share the gradient, so this dimension is not cut */
            whole[d] = '-';
        }
        if (!reduced || op->attrs.reduce.keep_dims) {
            kept[used++] = reduced ? '-' : whole[d];
        }
    }
    kept[used] = '\0';
    strcpy(l->letters, whole);
    if (gradient) {
        set_letters(l->in[0], kept), set_letters(l->in[1], whole), set_letters(l->in[2], kept),
            set_letters(l->out[0], whole);
        return;
    }
    set_letters(l->in[0], whole), set_letters(l->out[0], kept);
    l->without[0] = op->kind == TRMI_OP_REDUCE_MAX ? TRMI_PARTIAL_MAX : TRMI_PARTIAL_SUM;
    l->linear = op->kind != TRMI_OP_REDUCE_MAX;
}

/* ---- all ---- */

/* Removes '-' from the letters. */
static void squeeze_letters(char *letters) {
    char *to = letters;
    for (const char *from = letters; *from != '\0'; from++) {
        if (*from != '-') {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* Custom operators are replicated. */
static void loops_custom(const trm_graph *g, const trmi_op *op, trmi_loops *l) {
    (void)g, (void)op;
    l->reason = "a custom operator has no rule for cutting";
}

/* Rules by operator. Leaves have none, nor have operators that the partition itself creates. */
static void (*const rules[])(const trm_graph *g, const trmi_op *op, trmi_loops *l) = {
    [TRMI_OP_CONV2D] = loops_conv,
    [TRMI_OP_CONV2D_GRAD_DATA] = loops_conv,
    [TRMI_OP_CONV2D_GRAD_WEIGHTS] = loops_conv,
    [TRMI_OP_MAX_POOL] = loops_pool,
    [TRMI_OP_AVG_POOL] = loops_pool,
    [TRMI_OP_MAX_POOL_GRAD] = loops_pool,
    [TRMI_OP_AVG_POOL_GRAD] = loops_pool,
    [TRMI_OP_GLOBAL_AVG_POOL] = loops_global_pool,
    [TRMI_OP_GLOBAL_AVG_POOL_GRAD] = loops_global_pool,
    [TRMI_OP_BATCH_NORM] = loops_norm,
    [TRMI_OP_BATCH_NORM_INFER] = loops_norm,
    [TRMI_OP_BATCH_NORM_GRAD] = loops_norm,
    [TRMI_OP_NORM_ACT] = loops_norm,
    [TRMI_OP_NORM_ACT_APPLY] = loops_norm,
    [TRMI_OP_NORM_ACT_INFER] = loops_norm,
    [TRMI_OP_NORM_ACT_GRAD] = loops_norm,
    [TRMI_OP_LAYER_NORM] = loops_row_norm,
    [TRMI_OP_LAYER_NORM_GRAD] = loops_row_norm,
    [TRMI_OP_RMS_NORM] = loops_row_norm,
    [TRMI_OP_RMS_NORM_GRAD] = loops_row_norm,
    [TRMI_OP_ATTENTION] = loops_attention,
    [TRMI_OP_ATTENTION_GRAD] = loops_attention,
    [TRMI_OP_ROTARY] = loops_rotary,
    [TRMI_OP_LINEAR_XENT] = loops_linear_xent,
    [TRMI_OP_TOP_K] = loops_top_k,
    [TRMI_OP_TOP_K_GRAD] = loops_top_k,
    [TRMI_OP_EXPERT_LINEAR] = loops_experts,
    [TRMI_OP_EXPERT_GRAD_WEIGHTS] = loops_experts,
    [TRMI_OP_LINEAR] = loops_linear,
    [TRMI_OP_MATMUL] = loops_matmul,
    [TRMI_OP_EMBEDDING] = loops_embedding,
    [TRMI_OP_EMBEDDING_GRAD] = loops_embedding,
    [TRMI_OP_BAG_POOL] = loops_bags,
    [TRMI_OP_BAG_POOL_GRAD] = loops_bags,
    [TRMI_OP_PAIR_DOTS] = loops_pairs,
    [TRMI_OP_PAIR_DOTS_GRAD] = loops_pairs,
    [TRMI_OP_SOFTMAX_XENT] = loops_xent,
    [TRMI_OP_SOFTMAX_XENT_GRAD] = loops_xent,
    [TRMI_OP_BCE_LOGITS] = loops_bce,
    [TRMI_OP_BCE_LOGITS_GRAD] = loops_bce,
    [TRMI_OP_SOFTMAX] = loops_softmax,
    [TRMI_OP_SOFTMAX_GRAD] = loops_softmax,
    [TRMI_OP_TRANSPOSE] = loops_transpose,
    [TRMI_OP_RESHAPE] = loops_reshape,
    [TRMI_OP_CONCAT] = loops_concat,
    [TRMI_OP_SLICE] = loops_crop,
    [TRMI_OP_PAD] = loops_crop,
    [TRMI_OP_ONE_HOT] = loops_one_hot,
    [TRMI_OP_REDUCE_SUM] = loops_reduce,
    [TRMI_OP_REDUCE_MEAN] = loops_reduce,
    [TRMI_OP_REDUCE_MAX] = loops_reduce,
    [TRMI_OP_REDUCE_MAX_GRAD] = loops_reduce,
    [TRMI_OP_ADD] = loops_eltwise,
    [TRMI_OP_SUB] = loops_eltwise,
    [TRMI_OP_MUL] = loops_eltwise,
    [TRMI_OP_DIV] = loops_eltwise,
    [TRMI_OP_RELU] = loops_eltwise,
    [TRMI_OP_RELU_GRAD] = loops_eltwise,
    [TRMI_OP_SIGMOID] = loops_eltwise,
    [TRMI_OP_SIGMOID_GRAD] = loops_eltwise,
    [TRMI_OP_TANH] = loops_eltwise,
    [TRMI_OP_TANH_GRAD] = loops_eltwise,
    [TRMI_OP_GELU] = loops_eltwise,
    [TRMI_OP_GELU_GRAD] = loops_eltwise,
    [TRMI_OP_SILU] = loops_eltwise,
    [TRMI_OP_SILU_GRAD] = loops_eltwise,
    [TRMI_OP_SWIGLU] = loops_eltwise,
    [TRMI_OP_SWIGLU_GRAD] = loops_eltwise,
    [TRMI_OP_EXP] = loops_eltwise,
    [TRMI_OP_LOG] = loops_eltwise,
    [TRMI_OP_SQRT] = loops_eltwise,
    [TRMI_OP_SCALE] = loops_eltwise,
    [TRMI_OP_CAST] = loops_eltwise,
    [TRMI_OP_DROPOUT] = loops_eltwise,
    [TRMI_OP_BROADCAST] = loops_eltwise,
    [TRMI_OP_CUSTOM] = loops_custom,
};

/* Contract in operator_loops.h. `reason` says why an operator cannot be cut, for `trireme plan`. */
void trmi_loops_of(const trm_graph *graph, const trmi_op *op, trmi_loops *out) {
    *out = (trmi_loops){.once = -1, .whole = -1, .window_input = -1};
    for (int i = 0; i < TRMI_OP_OUTPUTS_MAX; i++) {
        out->without[i] = TRMI_PARTIAL_SUM;
    }
    bool known = (size_t)op->kind < sizeof rules / sizeof rules[0] && rules[op->kind] != NULL;
    if (known) {
        rules[op->kind](graph, op, out);
    } else {
        out->reason = op->inputs_count > 0 ? "no rule for cutting it" : NULL;
    }
    squeeze_letters(out->letters);
}

/* Contract in partition.h. The search uses letters alone. */
void trmi_partition_loops(const trm_graph *graph, const trmi_op *op,
                          char letters[TRMI_PARTITION_LETTERS], const char **reason) {
    trmi_loops l;
    trmi_loops_of(graph, op, &l);
    size_t length = strlen(l.letters);
    memcpy(letters, l.letters, length + 1);
    /* The final '+' says that partial sums can pass. */
    if (l.linear) {
        memcpy(letters + length, "+", 2);
    }
    if (reason != NULL) {
        *reason = l.reason;
    }
}

/* Contract in partition.h. A letter means another loop in different operators: 'k' are classes in a
 * loss and columns in a matrix. */
const char *trmi_partition_loop_name(const trm_graph *graph, const trmi_op *op, char letter) {
    trmi_loops l;
    trmi_loops_of(graph, op, &l);
    bool matrix = op->kind == TRMI_OP_LINEAR || op->kind == TRMI_OP_MATMUL;
    bool bags = op->kind == TRMI_OP_BAG_POOL || op->kind == TRMI_OP_BAG_POOL_GRAD;
    switch (letter) {
    case 'n': return bags ? "bags" : "samples";
    case 'k':
        return bags ? "keys"
               : op->kind == TRMI_OP_SOFTMAX_XENT || op->kind == TRMI_OP_SOFTMAX_XENT_GRAD ||
                       op->kind == TRMI_OP_LINEAR_XENT || op->kind == TRMI_OP_ONE_HOT
                   ? "classes"
               : matrix ? "columns"
                        : "output channels";
    case 'c': return matrix ? "inner" : has_letter(l.letters, 'k') ? "input channels" : "channels";
    case 'g':
        return op->kind == TRMI_OP_ATTENTION || op->kind == TRMI_OP_ATTENTION_GRAD ? "heads"
                                                                                   : "groups";
    case 'q': return "queries";
    case 'r': return "queries and keys, a ring";
    case 'e': return "experts";
    case 'h': return "rows";
    case 'w': return "columns";
    case 'v': return "table rows";
    case 'd': return "table columns";
    case 'b': return "batch";
    case '+': return "partial sums";
    case '.': return "replicated";
    default: return "dimension";
    }
}
