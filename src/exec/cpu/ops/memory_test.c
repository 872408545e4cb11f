/* SPDX-License-Identifier: Apache-2.0 */
/* The memory-bound kernels against the reference ones: graphs of random shapes with their gradients
 * are interpreted, then each operator is run alone on what it saw there: both layouts, float32 and
 * bfloat16, one thread and three (the same bits), in place where the back-end says so, every
 * instruction set. */
#include "kernel_run.h"

#include "exec/convert.h"
#include "exec/cpu/dnnl/onednn.h"
#include "tests/lib/interpret.h"

#include "base/cpu.h"
#include "base/format/half.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAVES_MAX = 16, SEED = 9, STEP = 4 };

static int64_t tested[TRMI_OP_KINDS];

/* ---- random graphs --------------------------------------------------------------------------- */

typedef struct world {
    trm_graph *graph;
    uint64_t seed, drawn;
    trm_node leaves[LEAVES_MAX];
    int64_t limits[LEAVES_MAX]; /* integers below this; 0 = floats; -1 = positive floats */
    int count;
} world;

static int64_t any_int(world *w, int64_t low, int64_t high) {
    return low + (int64_t)trmi_bounded(trmi_random_u32(w->seed, TRMI_STREAM_TEST, w->drawn++),
                                       (uint32_t)(high - low + 1));
}
static trm_node new_leaf(world *w, trm_dtype dtype, trm_shape shape, int64_t limit) {
    char name[16];
    snprintf(name, sizeof name, "x%d", w->count);
    w->limits[w->count] = limit;
    return w->leaves[w->count++] = trm_input(w->graph, name, dtype, shape);
}
static trm_node new_var(world *w, trm_shape shape) { return new_leaf(w, TRM_FLOAT32, shape, 0); }
static trm_node above_0(world *w, trm_shape shape) { return new_leaf(w, TRM_FLOAT32, shape, -1); }

static trm_shape any_shape(world *w, int low, int high) {
    trm_shape shape = {.rank = (int32_t)any_int(w, low, high)};
    for (int32_t i = 0; i < shape.rank; i++) {
        shape.dim[i] = any_int(w, 0, 5) == 0 ? 1 : any_int(w, 1, shape.rank > 3 ? 9 : 40);
    }
    return shape;
}
static trm_shape image_shape(world *w) {
    return trm_shape_of(any_int(w, 1, 3),
                        any_int(w, 1, 3) == 1 ? any_int(w, 1, 5) : any_int(w, 14, 80),
                        any_int(w, 3, 11), any_int(w, 3, 11));
}

static trm_node narrow_of(world *w, trm_shape x, bool over_zero) {
    int drop = (int)any_int(w, 0, x.rank);
    trm_shape y = {.rank = x.rank - drop};
    for (int32_t i = 0; i < y.rank; i++) {
        y.dim[i] = any_int(w, 0, 2) == 0 ? 1 : x.dim[i + drop];
    }
    return over_zero ? above_0(w, y) : new_var(w, y);
}

static trm_node add_arithmetic(world *w) {
    trm_graph *g = w->graph;
    trm_shape shape = any_int(w, 0, 1) ? image_shape(w) : any_shape(w, 0, 5);
    trm_node x = new_var(w, shape);
    trm_node sum = trm_add(g, narrow_of(w, shape, false), x);
    trm_node product = trm_mul(g, sum, narrow_of(w, shape, false));
    trm_node quotient = trm_div(g, product, narrow_of(w, shape, true));
    return trm_sub(g, trm_scale(g, quotient, 0.3), trm_sub(g, x, narrow_of(w, shape, false)));
}
static trm_node add_activations(world *w) {
    trm_graph *g = w->graph;
    trm_shape shape = any_int(w, 0, 1) ? image_shape(w) : any_shape(w, 0, 4);
    trm_node x = trm_scale(g, new_var(w, shape), 3);
    trm_node y = trm_add(g, trm_sigmoid(g, x), trm_tanh(g, x));
    y = trm_add(g, y, trm_exp(g, trm_relu(g, x)));
    trm_node p = above_0(w, shape);
    y = trm_add(g, y, trm_mul(g, trm_log(g, p), trm_sqrt(g, p)));
    return trm_cast(g, trm_cast(g, y, TRM_BFLOAT16), TRM_FLOAT32);
}
static trm_node add_dropout(world *w) {
    return trm_dropout(w->graph, new_var(w, any_shape(w, 1, 3)), any_int(w, 0, 9) == 0 ? 0 : 0.37);
}
static trm_node add_moves(world *w) {
    trm_graph *g = w->graph;
    trm_shape shape = any_int(w, 0, 1) ? image_shape(w) : any_shape(w, 1, 5);
    trm_node x = new_var(w, shape);
    int32_t order[TRM_MAX_RANK], axis = (int32_t)any_int(w, 0, shape.rank - 1);
    int64_t begin[TRM_MAX_RANK], size[TRM_MAX_RANK], before[TRM_MAX_RANK], after[TRM_MAX_RANK];
    trm_shape other = shape;
    other.dim[axis] = any_int(w, 1, 9);
    trm_node joined = trm_concat(g, (trm_node[]){x, new_var(w, other), x}, 3, axis);
    shape = trm_node_shape(g, joined);
    for (int32_t i = 0; i < shape.rank; i++) {
        order[i] = (int32_t)trmi_permute(w->seed, 8, (uint64_t)shape.rank, (uint64_t)i);
        begin[i] = any_int(w, 0, shape.dim[i] - 1);
        size[i] = any_int(w, 1, shape.dim[i] - begin[i]);
        before[i] = any_int(w, 0, 2);
        after[i] = any_int(w, 0, 2);
    }
    trm_node cut = trm_slice(g, joined, begin, size);
    return trm_transpose(g, trm_pad(g, cut, before, after, -0.75), order);
}
static trm_node add_reductions(world *w) {
    trm_graph *g = w->graph;
    trm_shape shape = any_int(w, 0, 1) ? image_shape(w) : any_shape(w, 1, 5);
    trm_node x = new_var(w, shape), sum = trm_scalar(g, 0);
    for (int kind = 0; kind < 3; kind++) {
        int32_t axes[TRM_MAX_RANK], count = 0;
        for (int32_t i = 0; i < shape.rank; i++) {
            if (any_int(w, 0, 1)) {
                axes[count++] = i;
            }
        }
        bool keep = any_int(w, 0, 1);
        trm_node y = kind == 0   ? trm_reduce_sum(g, x, axes, count, keep)
                     : kind == 1 ? trm_reduce_mean(g, x, axes, count, keep)
                                 : trm_reduce_max(g, x, axes, count, keep);
        sum = trm_add(g, sum, trm_reduce_sum(g, y, NULL, 0, false));
    }
    return sum;
}
static trm_node long_reductions(world *w) {
    trm_graph *g = w->graph;
    trm_node rows = new_var(w, trm_shape_of(any_int(w, 900, 2000), any_int(w, 1, 40)));
    trm_node run = new_var(w, trm_shape_of(any_int(w, 1, 3), any_int(w, 9000, 20000)));
    trm_node wide = new_var(w, trm_shape_of(any_int(w, 2, 40), any_int(w, 2040, 5000)));
    int32_t first = 0, last = 1;
    trm_node a = trm_reduce_sum(g, rows, &first, 1, false),
             b = trm_reduce_mean(g, run, &last, 1, true);
    trm_node c = trm_reduce_sum(g, wide, &first, 1, false),
             d = trm_reduce_max(g, run, NULL, 0, false);
    trm_node sums =
        trm_add(g, trm_reduce_sum(g, a, NULL, 0, false), trm_reduce_sum(g, b, NULL, 0, false));
    return trm_add(g, trm_add(g, sums, d), trm_reduce_sum(g, c, NULL, 0, false));
}
/* Numbers that multiply what lies in the output already: 1, which changes nothing, and another. */
static trm_node multiply_numbers(world *w) {
    trm_graph *g = w->graph;
    trm_node y = trm_mul(g, new_var(w, any_shape(w, 1, 4)), trm_scalar(g, 1));
    return trm_mul(g, trm_scalar(g, 2), y);
}
static trm_node add_windows(world *w) {
    trm_graph *g = w->graph;
    trm_node x = trm_relu(g, new_var(w, image_shape(w))); /* ties at zero */
    trm_pool_options o = {.count_padding = any_int(w, 0, 1)};
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = any_int(w, 1, 3);
        o.stride[i] = any_int(w, 1, 4);
        o.pad[2 * i] = any_int(w, 0, o.kernel[i] - 1);
        o.pad[2 * i + 1] = any_int(w, 0, o.kernel[i] - 1);
    }
    trm_node most = trm_reduce_sum(g, trm_max_pool(g, x, &o), NULL, 0, false);
    trm_node mean = trm_reduce_sum(g, trm_avg_pool(g, x, &o), NULL, 0, false);
    trm_node all = trm_global_avg_pool(g, x);
    trm_node weighted =
        trm_reduce_sum(g, trm_mul(g, all, new_var(w, trm_node_shape(g, all))), NULL, 0, false);
    return trm_add(g, trm_add(g, most, mean), weighted);
}
static trm_node add_losses(world *w) {
    trm_graph *g = w->graph;
    int64_t rows = any_int(w, 1, 40), classes = any_int(w, 1, 70);
    trm_node z = trm_scale(g, new_var(w, trm_shape_of(rows, classes)), 4);
    trm_node labels = new_leaf(w, TRM_INT32, trm_shape_of(rows), classes);
    trm_xent_options o = {.label_smoothing = any_int(w, 0, 1) ? 0.1 : 0,
                          .use_ignore_index = any_int(w, 0, 1),
                          .ignore_index = 0};
    trm_node loss = trm_softmax_cross_entropy(g, z, labels, &o);
    trm_node hot = trm_one_hot(g, labels, classes, 0.9, 0.1);
    loss = trm_add(g, loss, trm_bce_with_logits(g, z, hot));
    return trm_add(g, loss, trm_reduce_sum(g, trm_mul(g, trm_softmax(g, z), hot), NULL, 0, false));
}
static trm_node add_embeddings(world *w) {
    int64_t rows = any_int(w, 1, 50), width = any_int(w, 1, 70);
    trm_node table = new_var(w, trm_shape_of(rows, width));
    trm_node ids = new_leaf(w, any_int(w, 0, 1) ? TRM_INT32 : TRM_INT64, any_shape(w, 1, 3), rows);
    trm_node gathered = trm_embedding(w->graph, table, ids);
    if (any_int(w, 0, 1)) { /* a gradient of the table that is added to another one */
        trmi_attrs attrs = {.embed = {.rows = rows}};
        trmi_graph_add1(w->graph, TRMI_OP_EMBEDDING_GRAD, NULL,
                        (trm_node[]){gathered, ids, new_var(w, trm_shape_of(rows, width))}, 3,
                        &attrs);
    }
    return gathered;
}

static trm_node add_pairs(world *w) {
    return trm_pair_dots(
        w->graph, new_var(w, trm_shape_of(any_int(w, 1, 4), any_int(w, 2, 40), any_int(w, 1, 40))));
}
static trm_node add_bags(world *w) {
    int64_t ends[41] = {any_int(w, 0, 2)}, count = any_int(w, 1, 40), weighted = any_int(w, 0, 1);
    for (int64_t i = 0; i < count; i++) {
        ends[i + 1] = ends[i] + any_int(w, 0, 5);
    }
    int64_t rows = ends[count] + any_int(w, 1, 5);
    trm_tensor tensor = {.data = ends, .dtype = TRM_INT64, .shape = trm_shape_of(count + 1)};
    trm_node weights = weighted ? above_0(w, trm_shape_of(rows)) : TRM_NO_NODE;
    return trm_bag_pool(w->graph, new_var(w, trm_shape_of(rows, any_int(w, 1, 40))),
                        trm_constant(w->graph, &tensor), weights,
                        (trm_bag_pooling)any_int(w, 0, 2));
}

static trm_node transformer_parts(world *w) {
    trm_graph *g = w->graph;
    trm_shape shape = any_shape(w, 2, 4);
    shape.dim[shape.rank - 1] = any_int(w, 2, 90);
    trm_shape channels = trm_shape_of(shape.dim[shape.rank - 1]);
    trm_node x = trm_scale(g, new_var(w, shape), 3);
    trm_node y = trm_layer_norm(g, x, new_var(w, channels), new_var(w, channels), 0);
    y = trm_add(g, y, trm_rms_norm(g, x, new_var(w, channels), 0));
    y = trm_add(g, y, trm_gelu(g, x, TRM_GELU_ERF));
    y = trm_add(g, y, trm_gelu(g, x, TRM_GELU_TANH));
    y = trm_add(g, y, trm_silu(g, x));
    return trm_add(g, y, trm_swiglu(g, x, new_var(w, shape)));
}
static trm_node add_rotations(world *w) {
    trm_shape shape =
        trm_shape_of(any_int(w, 1, 3), any_int(w, 1, 40), any_int(w, 1, 3), 2 * any_int(w, 1, 20));
    return trm_rotary(w->graph, new_var(w, shape), 0, any_int(w, 0, 30));
}
/* More keys than a block and more queries than a task, sometimes. */
static trm_node add_attentions(world *w) {
    int64_t batch = any_int(w, 1, 2),
            queries = any_int(w, 0, 2) == 0 ? any_int(w, 190, 260) : any_int(w, 1, 90);
    int64_t keys = queries + any_int(w, 0, 1) * any_int(w, 1, 80), kv_heads = any_int(w, 1, 2),
            heads = kv_heads * any_int(w, 1, 2), width = any_int(w, 1, 36);
    const trm_attention_options o = {.causal = any_int(w, 0, 1)};
    bool masked = any_int(w, 0, 1), packed = any_int(w, 0, 1);
    trm_shape shape = trm_shape_of(batch, packed ? queries : keys);
    trm_node mask = masked ? new_leaf(w, TRM_INT32, shape, 2) : TRM_NO_NODE;
    if (packed) {
        return trm_attention_packed(
            w->graph, new_var(w, trm_shape_of(batch, queries, (heads + 2 * kv_heads) * width)),
            heads, kv_heads, mask, &o);
    }
    trm_shape kv = trm_shape_of(batch, keys, kv_heads, width);
    return trm_attention(w->graph, new_var(w, trm_shape_of(batch, queries, heads, width)),
                         new_var(w, kv), new_var(w, kv), mask, &o);
}
/* Experts with many rows and with none. */
static trm_node expert_layers(world *w) {
    int64_t count = any_int(w, 1, 6), ins = any_int(w, 1, 70), outs = any_int(w, 1, 70);
    trm_shape rows =
        any_int(w, 0, 1) ? trm_shape_of(any_int(w, 1, 400)) : trm_shape_of(3, any_int(w, 1, 9));
    trm_shape shape = rows;
    shape.dim[shape.rank++] = ins;
    trm_node ids = new_leaf(w, TRM_INT32, rows, any_int(w, 1, count));
    return trm_expert_linear(w->graph, new_var(w, shape),
                             new_var(w, trm_shape_of(count, outs, ins)), ids);
}
/* Labels are below `most`: label 0 is ignored. As many rows count as expected, fewer, or more. */
static trm_node output_loss_of(world *w, int64_t rows, int64_t classes, int64_t width,
                               int64_t most) {
    trm_node x = new_var(w, trm_shape_of(1, rows, width)),
             weights = new_var(w, trm_shape_of(classes, width));
    const trm_xent_options o = {.use_ignore_index = true,
                                .ignore_index = 0,
                                .bias = any_int(w, 0, 1) ? new_var(w, trm_shape_of(classes))
                                                         : TRM_NO_NODE,
                                .counted_share = any_int(w, 0, 1) * any_int(w, 1, 20) / 20.0};
    return trm_linear_cross_entropy(w->graph, x, weights,
                                    new_leaf(w, TRM_INT32, trm_shape_of(1, rows), most), &o);
}
static trm_node output_losses(world *w) {
    int64_t classes = any_int(w, 0, 1) ? any_int(w, 2, 70) : any_int(w, 500, 1300);
    return output_loss_of(w, any_int(w, 1, 90), classes, any_int(w, 1, 40), classes);
}
/* In graphs for evaluation the operator predicts classes. */
static trm_node output_predictions(world *w) {
    w->graph->training = false;
    trm_node loss = output_losses(w);
    w->graph->training = true;
    return loss;
}
/* Labels of few rows in several hundred, or of none, count. */
static trm_node output_losses_of_few(world *w) {
    int64_t classes = any_int(w, 3, 700);
    return output_loss_of(w, any_int(w, 1, 300), classes, any_int(w, 1, 40), any_int(w, 1, 2));
}
/* Has so many blocks of classes that each thread takes some of its own. */
static trm_node output_loss_of_threads(world *w) { return output_loss_of(w, 70, 7001, 33, 7001); }
/* Has so many classes that the rows are done in two chunks. */
static trm_node output_loss_in_chunks(world *w) { return output_loss_of(w, 65, 270000, 1, 270000); }

/* Few ids and many, so that both ways are taken. */
static trm_node add_keyed(world *w) {
    int64_t samples = any_int(w, 1, 90), fields = any_int(w, 1, 5), width = any_int(w, 1, 40),
            vocabulary = any_int(w, 0, 1) ? 5 : 3000;
    int64_t outputs = any_int(w, 1, 3) == 1 ? any_int(w, 1, 9) : any_int(w, 97, 140),
            dense = any_int(w, 0, 2) * any_int(w, 1, 20);
    trm_node ids = new_leaf(w, any_int(w, 0, 1) ? TRM_INT32 : TRM_INT64,
                            trm_shape_of(samples, fields), vocabulary);
    trm_node rows = trm_embedding(w->graph, new_var(w, trm_shape_of(vocabulary, width)), ids);
    trm_node weights = new_var(w, trm_shape_of(outputs, fields * width + dense));
    trm_node more = dense > 0 ? new_var(w, trm_shape_of(samples, dense)) : TRM_NO_NODE;
    trm_node bias = any_int(w, 0, 1) ? new_var(w, trm_shape_of(outputs)) : TRM_NO_NODE;
    return trmi_graph_keyed_linear(w->graph, rows, ids, weights, more, bias);
}

/* ---- one operator, fast and slow ------------------------------------------------------------- */

typedef struct bench {
    trm_program program;
    trmi_step step;
    trmi_buffer buffers[LEAVES_MAX];
    int32_t in[LEAVES_MAX], out[TRMI_OP_OUTPUTS_MAX];
    const trm_tensor *seen[LEAVES_MAX]; /* by buffer: the value in the interpreted graph */
    int64_t bytes;
} bench;

static bool is_loss(trmi_op_kind kind) {
    return kind == TRMI_OP_SOFTMAX_XENT || kind == TRMI_OP_SOFTMAX_XENT_GRAD ||
           kind == TRMI_OP_BCE_LOGITS || kind == TRMI_OP_BCE_LOGITS_GRAD;
}

/* Parameters, statistics and sums stay float32 beside bfloat16 activations. */
static bool stays_float(const trmi_op *op, int32_t value, int32_t rank) {
    switch (op->kind) {
    case TRMI_OP_LAYER_NORM:
    case TRMI_OP_RMS_NORM: return value != op->inputs[0] && value != op->outputs[0];
    case TRMI_OP_LAYER_NORM_GRAD:
    case TRMI_OP_RMS_NORM_GRAD:
        return value != op->inputs[0] && value != op->inputs[1] && value != op->outputs[0];
    case TRMI_OP_ATTENTION: return value == op->outputs[1];
    case TRMI_OP_ATTENTION_GRAD: return value == op->inputs[6];
    case TRMI_OP_EXPERT_LINEAR: return value == op->inputs[1];
    case TRMI_OP_EXPERT_GRAD_WEIGHTS: return value == op->outputs[0];
    case TRMI_OP_LINEAR_XENT: return value != op->inputs[0] && value != op->outputs[1];
    default: return is_loss(op->kind) && rank < 2; /* a cast keeps one side */
    }
}

static int32_t add_buffer(bench *b, trmi_interpreter *run, const trmi_op *op, int32_t value,
                          bool half, trmi_layout layout) {
    if (value == 0) {
        return 0;
    }
    int32_t i = ++b->program.buffers_count;
    const trm_tensor *t = trmi_interpreter_value(run, (trm_node){value});
    trm_dtype dtype = t->dtype;
    bool keeps = stays_float(op, value, t->shape.rank);
    if (half && dtype == TRM_FLOAT32 && !keeps && op->kind != TRMI_OP_CAST &&
        op->kind != TRMI_OP_ONE_HOT) {
        dtype = TRM_BFLOAT16;
    }
    trmi_buffer *buffer = &b->buffers[i];
    b->bytes = kernel_place(buffer, dtype, &t->shape, b->bytes);
    buffer->layout = t->shape.rank == 4 ? layout : TRMI_PLAIN;
    b->seen[i] = t;
    return i;
}

static void convert_tensor(const trm_tensor *from, trm_dtype dtype, void *to) {
    int64_t count = trm_shape_count(&from->shape);
    if (from->dtype == TRM_FLOAT32 && dtype == TRM_BFLOAT16) {
        for (int64_t i = 0; i < count; i++) {
            ((uint16_t *)to)[i] = trmi_float_to_bf16(((const float *)from->data)[i]);
        }
    } else {
        assert_int_equal(from->dtype, dtype);
        memcpy(to, from->data, (size_t)trm_tensor_bytes(from));
    }
}

/* The reference kernel on plain copies, its outputs in the fast layout; garbage elsewhere. */
static void run_reference(bench *b, char *memory) {
    trm_error err;
    trm_tensor in[LEAVES_MAX] = {{0}}, out[TRMI_OP_OUTPUTS_MAX] = {{0}};
    for (int i = 0; i < b->step.inputs_count; i++) {
        const trmi_buffer *f = &b->buffers[b->in[i]];
        if (b->in[i] != 0) {
            in[i] = (trm_tensor){
                .data = malloc((size_t)f->bytes + 1), .dtype = f->dtype, .shape = f->shape};
            convert_tensor(b->seen[b->in[i]], f->dtype, in[i].data);
            trmi_convert_from_plain(f, in[i].data, memory + f->offset);
        }
    }
    for (int i = 0; i < b->step.outputs_count; i++) {
        const trmi_buffer *f = &b->buffers[b->out[i]];
        out[i] = (trm_tensor){
            .data = malloc((size_t)f->bytes + 1), .dtype = f->dtype, .shape = f->shape};
    }
    trmi_ref_args args = {.attrs = b->step.attrs,
                          .inputs = in,
                          .outputs = out,
                          .inputs_count = b->step.inputs_count,
                          .outputs_count = b->step.outputs_count,
                          .seed = SEED,
                          .step = STEP,
                          .training = true};
    CHECK_OK(trmi_ref_table[b->step.op_kind](&args, &err), err);
    for (int i = 0; i < b->step.outputs_count; i++) {
        const trmi_buffer *f = &b->buffers[b->out[i]];
        trmi_convert_from_plain(f, out[i].data, memory + f->offset);
        free(out[i].data);
    }
    for (int i = 0; i < b->step.inputs_count; i++) {
        free(in[i].data);
    }
}

static trm_status run_fast(bench *b, char *memory, int threads, trm_error *err) {
    const trmi_kernel_env env = {.threads = threads, .seed = SEED, .step = STEP};
    return kernel_run(&b->program, &b->step, memory, env, err);
}

static void compare_buffer(const bench *b, int32_t buffer, const char *fast, const char *slow,
                           const char *how) {
    const trmi_buffer *f = &b->buffers[buffer];
    int64_t count = trm_shape_count(&f->shape);
    if (f->dtype == TRM_INT32) {
        assert_memory_equal(fast + f->offset, slow + f->offset, (size_t)f->bytes);
        return;
    }
    float *x = malloc(((size_t)count + 1) * 2 * sizeof *x), *y = x + count;
    trmi_convert_to_float(fast + f->offset, f->dtype, x, count);
    trmi_convert_to_float(slow + f->offset, f->dtype, y, count);
    double largest = 1, most = 0;
    /* results of operands that the kernel rounds: linear_loss_test.c, experts_test.c */
    bool layer =
        b->step.op_kind == TRMI_OP_LINEAR_XENT && (buffer == b->out[1] || buffer == b->out[2]);
    bool elsewhere = (layer || b->step.op_kind == TRMI_OP_EXPERT_LINEAR) &&
                     trmi_onednn_of(backend)->pairs && b->buffers[b->in[0]].dtype == TRM_BFLOAT16;
    if (b->step.op_kind == TRMI_OP_REDUCE_SUM) { /* terms may cancel */
        const trmi_buffer *in = &b->buffers[b->in[0]];
        for (int64_t k = 0; k < trm_shape_count(&in->shape) && in->dtype == TRM_FLOAT32; k++) {
            largest += fabs((double)((const float *)(const void *)(slow + in->offset))[k]) / 16;
        }
    }
    for (int64_t k = 0; k < count; k++) {
        most = fmax(most, fabs((double)y[k]));
    }
    for (int64_t k = 0; k < count && !elsewhere; k++) {
        double unit = f->dtype == TRM_BFLOAT16 ? 0.016 * fabs((double)y[k]) + 0.01
                                               : 3e-6 * fmax(largest, most);
        if (!(fabs((double)x[k] - (double)y[k]) <= unit)) {
            char text[96];
            fail_msg("%s (%s, %s %s %s) element %ld: fast %.9g, reference %.9g",
                     trmi_op_table[b->step.op_kind]->name, how,
                     trm_shape_format(&f->shape, text, sizeof text), trm_dtype_name(f->dtype),
                     trmi_layout_name(f->layout), (long)k, (double)x[k], (double)y[k]);
        }
    }
    free(x);
}

/* Puts the sum of each group of KEYED_LINEAR_GRAD's rows at its first sample: only the sum is the
 * same in all kernels. */
static void fold_groups(const bench *b, char *memory) {
    const trmi_buffer *rows = &b->buffers[b->out[1]];
    const int64_t *dim = rows->shape.dim, width = dim[2];
    float *x = (float *)(void *)(memory + rows->offset);
    for (int64_t f = 0; f < dim[1]; f++) {
        const int32_t *of = (const int32_t *)(const void *)(memory + b->buffers[b->in[4]].offset) +
                            f * (2 * dim[0] + 1) + 1;
        for (int64_t n = 0; n < dim[0]; n++) {
            int64_t first = of[dim[0] + of[n]];
            for (int64_t j = 0; first != n && j < width; j++) {
                x[(first * dim[1] + f) * width + j] += x[(n * dim[1] + f) * width + j];
                x[(n * dim[1] + f) * width + j] = 0;
            }
        }
    }
}

/* Fills the inputs of `memory`; with `garbage` in everything else. */
static char *inputs_of(const bench *b, const char *reference) {
    char *memory = trmi_alloc((size_t)b->bytes + 64);
    memset(memory, 0x7F, (size_t)b->bytes);
    for (int i = 0; i < b->step.inputs_count; i++) {
        const trmi_buffer *f = &b->buffers[b->in[i]];
        memcpy(memory + f->offset, reference + f->offset, (size_t)f->bytes);
    }
    return memory;
}

static void check_in_place(bench *b, const trm_graph *graph, const trmi_op *op, const char *slow) {
    for (int i = 0; i < op->inputs_count; i++) {
        trm_error err;
        trmi_buffer *x = &b->buffers[b->in[i]], *y = &b->buffers[b->out[0]];
        bool twice = false;
        for (int j = 0; j < op->inputs_count; j++) {
            twice = twice || (j != i && op->inputs[j] == op->inputs[i]);
        }
        if (b->in[i] == 0 || twice || x->bytes != y->bytes || x->dtype != y->dtype ||
            !backend->target.in_place(backend->target.context, graph, op, i)) {
            continue;
        }
        char *memory = inputs_of(b, slow);
        int64_t offset = y->offset;
        y->offset = x->offset;
        CHECK_OK(run_fast(b, memory, KERNEL_THREADS, &err), err);
        char *moved = trmi_alloc((size_t)b->bytes + 64);
        memcpy(moved + offset, memory + x->offset, (size_t)y->bytes);
        y->offset = offset;
        compare_buffer(b, b->out[0], moved, slow, "in place");
        trmi_free(memory);
        trmi_free(moved);
    }
}

static void check_op(world *w, trmi_interpreter *run, const trmi_op *op, bool half,
                     trmi_layout layout) {
    trm_error err;
    bool last = layout == TRMI_CHANNELS_LAST;
    if (last && !backend->target.supports(backend->target.context, w->graph, op, layout)) {
        return;
    }
    bench b = {.step = {.kind = TRMI_STEP_OP,
                        .op_kind = op->kind,
                        .name = op->name,
                        .attrs = &op->attrs,
                        .inputs_count = op->inputs_count,
                        .outputs_count = op->outputs_count}};
    for (int i = 0; i < op->inputs_count; i++) {
        b.in[i] = add_buffer(&b, run, op, op->inputs[i], half, layout);
    }
    for (int i = 0; i < op->outputs_count; i++) {
        b.out[i] = add_buffer(&b, run, op, op->outputs[i], half, layout);
    }
    b.step.inputs = b.in;
    b.step.outputs = b.out;
    b.program.buffers = b.buffers;
    char *slow = trmi_alloc((size_t)b.bytes + 64);
    run_reference(&b, slow);
    char *one = inputs_of(&b, slow), *three = inputs_of(&b, slow);
    trm_status status = run_fast(&b, one, 1, &err);
    if (status == TRM_UNSUPPORTED && !last) {
        goto done; /* the reference kernel serves it */
    }
    CHECK_OK(status, err);
    CHECK_OK(run_fast(&b, three, KERNEL_THREADS, &err), err);
    if (op->kind == TRMI_OP_KEYED_LINEAR_GRAD) {
        fold_groups(&b, one);
        fold_groups(&b, three);
    }
    for (int i = 0; i < op->outputs_count; i++) {
        const trmi_buffer *f = &b.buffers[b.out[i]];
        compare_buffer(&b, b.out[i], one, slow, "alone");
        assert_memory_equal(one + f->offset, three + f->offset, (size_t)f->bytes);
    }
    check_in_place(&b, w->graph, op, slow);
    tested[op->kind]++;
done:
    trmi_free(slow);
    trmi_free(one);
    trmi_free(three);
}

static bool is_leaf(trmi_op_kind kind) {
    return kind == TRMI_OP_INPUT || kind == TRMI_OP_CONSTANT || kind == TRMI_OP_RESHAPE;
}

static void fill_leaves(world *w, trmi_interpreter *run) {
    for (int i = 0; i < w->count; i++) {
        int64_t count = trm_shape_count(&trmi_interpreter_value(run, w->leaves[i])->shape);
        for (int64_t j = 0; j < count; j++) {
            uint32_t bits = trmi_random_u32(w->seed, 5, (uint64_t)i << 32 | (uint64_t)j);
            double u = (double)trmi_unit_float(bits);
            /* Multiples of 1/8: exact in bfloat16, with ties for the maxima. */
            double value = w->limits[i] > 0   ? (double)trmi_bounded(bits, (uint32_t)w->limits[i])
                           : w->limits[i] < 0 ? 0.5 + floor(u * 8) / 8
                                              : floor(u * 17 - 8) / 8;
            trmi_interpreter_set(run, w->leaves[i], j, value);
        }
    }
}

static void check_graph(trm_node (*build)(world *), uint64_t seed) {
    trm_error err;
    world w = {.seed = seed};
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &w.graph, &err), err);
    trm_node y = build(&w), loss = y;
    CHECK_OK(trm_graph_check(w.graph, &err), err);
    trm_shape shape = trm_node_shape(w.graph, y);
    if (shape.rank != 0) {
        loss = trm_reduce_sum(w.graph, trm_mul(w.graph, y, new_var(&w, shape)), NULL, 0, false);
    }
    trm_node grads[LEAVES_MAX];
    trm_gradients(w.graph, loss, w.leaves, w.count, grads);
    CHECK_OK(trm_graph_check(w.graph, &err), err);
    trmi_interpreter *run;
    CHECK_OK(trmi_interpreter_create(w.graph, &(trmi_interpret_options){.seed = SEED, .step = STEP},
                                     &run, &err),
             err);
    fill_leaves(&w, run);
    CHECK_OK(trmi_interpreter_run(run, &err), err);
    for (int64_t i = 1; i < w.graph->ops_count; i++) {
        for (int half = 0; half < 2 && !is_leaf(w.graph->ops[i].kind); half++) {
            check_op(&w, run, &w.graph->ops[i], half, TRMI_PLAIN);
            check_op(&w, run, &w.graph->ops[i], half, TRMI_CHANNELS_LAST);
        }
    }
    trmi_interpreter_destroy(run);
    trm_graph_destroy(w.graph);
}

static void fast_kernels_are_the_reference_ones(void **state) {
    trm_node (*const builders[])(world *) = {
        add_arithmetic, add_activations,    add_dropout,     add_moves,
        add_reductions, add_windows,        add_losses,      add_embeddings,
        add_pairs,      add_bags,           add_keyed,       transformer_parts,
        add_rotations,  add_attentions,     output_losses,   output_losses_of_few,
        expert_layers,  output_predictions, multiply_numbers};
    for (uint64_t seed = 1; seed <= 14; seed++) {
        for (size_t i = 0; i < sizeof builders / sizeof builders[0]; i++) {
            check_graph(builders[i], seed * 100 + i);
        }
    }
    check_graph(long_reductions, 1);
    check_graph(long_reductions, 2);
    check_graph(output_loss_in_chunks, 1);
    check_graph(output_loss_of_threads, 1);
    check_graph(output_loss_of_threads, 2);
    static const trmi_op_kind kinds[] = {TRMI_OP_ADD,
                                         TRMI_OP_SUB,
                                         TRMI_OP_MUL,
                                         TRMI_OP_DIV,
                                         TRMI_OP_RELU,
                                         TRMI_OP_RELU_GRAD,
                                         TRMI_OP_SIGMOID,
                                         TRMI_OP_SIGMOID_GRAD,
                                         TRMI_OP_TANH,
                                         TRMI_OP_TANH_GRAD,
                                         TRMI_OP_GELU,
                                         TRMI_OP_GELU_GRAD,
                                         TRMI_OP_SILU,
                                         TRMI_OP_SILU_GRAD,
                                         TRMI_OP_SWIGLU,
                                         TRMI_OP_SWIGLU_GRAD,
                                         TRMI_OP_LAYER_NORM,
                                         TRMI_OP_LAYER_NORM_GRAD,
                                         TRMI_OP_RMS_NORM,
                                         TRMI_OP_RMS_NORM_GRAD,
                                         TRMI_OP_ROTARY,
                                         TRMI_OP_ATTENTION,
                                         TRMI_OP_ATTENTION_GRAD,
                                         TRMI_OP_LINEAR_XENT,
                                         TRMI_OP_EXPERT_LINEAR,
                                         TRMI_OP_EXPERT_GRAD_WEIGHTS,
                                         TRMI_OP_EXP,
                                         TRMI_OP_LOG,
                                         TRMI_OP_SQRT,
                                         TRMI_OP_SCALE,
                                         TRMI_OP_CAST,
                                         TRMI_OP_DROPOUT,
                                         TRMI_OP_TRANSPOSE,
                                         TRMI_OP_CONCAT,
                                         TRMI_OP_SLICE,
                                         TRMI_OP_PAD,
                                         TRMI_OP_ONE_HOT,
                                         TRMI_OP_BROADCAST,
                                         TRMI_OP_REDUCE_SUM,
                                         TRMI_OP_REDUCE_MEAN,
                                         TRMI_OP_REDUCE_MAX,
                                         TRMI_OP_REDUCE_MAX_GRAD,
                                         TRMI_OP_MAX_POOL,
                                         TRMI_OP_MAX_POOL_GRAD,
                                         TRMI_OP_AVG_POOL,
                                         TRMI_OP_AVG_POOL_GRAD,
                                         TRMI_OP_GLOBAL_AVG_POOL,
                                         TRMI_OP_GLOBAL_AVG_POOL_GRAD,
                                         TRMI_OP_SOFTMAX,
                                         TRMI_OP_SOFTMAX_GRAD,
                                         TRMI_OP_SOFTMAX_XENT,
                                         TRMI_OP_SOFTMAX_XENT_GRAD,
                                         TRMI_OP_BCE_LOGITS,
                                         TRMI_OP_BCE_LOGITS_GRAD,
                                         TRMI_OP_EMBEDDING,
                                         TRMI_OP_EMBEDDING_GRAD,
                                         TRMI_OP_PAIR_DOTS,
                                         TRMI_OP_PAIR_DOTS_GRAD,
                                         TRMI_OP_BAG_POOL,
                                         TRMI_OP_BAG_POOL_GRAD,
                                         TRMI_OP_KEYED_LINEAR,
                                         TRMI_OP_KEYED_LINEAR_GRAD};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (tested[kinds[i]] < 10) {
            fail_msg("%s: only %ld fast runs", trmi_op_table[kinds[i]]->name,
                     (long)tested[kinds[i]]);
        }
    }
}

/* ---- reorders -------------------------------------------------------------------------------- */

static void reorders_are_the_reference_ones(void **state) {
    trm_error err;
    world w = {.seed = 77};
    static const trm_dtype dtypes[] = {TRM_FLOAT32, TRM_BFLOAT16, TRM_UINT8, TRM_FLOAT64};
    for (int round = 0; round < 64; round++) {
        bench b = {
            .step = {
                .kind = TRMI_STEP_REORDER, .name = "r", .inputs_count = 1, .outputs_count = 1}};
        trm_shape shape = trm_shape_of(any_int(&w, 1, 3), any_int(&w, 1, 70), any_int(&w, 1, 40),
                                       any_int(&w, 1, 9));
        bool weights = any_int(&w, 0, 1), back = any_int(&w, 0, 1), copy = any_int(&w, 0, 7) == 0;
        trm_dtype dtype = dtypes[round % 4];
        int64_t bytes = trm_shape_count(&shape) * (int64_t)trm_dtype_bytes(dtype);
        for (int i = 1; i <= 2; i++) {
            b.buffers[i] =
                (trmi_buffer){.name = "t",
                              .dtype = dtype,
                              .shape = shape,
                              .weights = weights,
                              .arena = TRMI_ARENA_ACTIVATION,
                              .bytes = bytes,
                              .layout = (i == 1) == back && !copy ? TRMI_CHANNELS_LAST : TRMI_PLAIN,
                              .offset = (i - 1) * ((bytes + 63) / 64 * 64)};
        }
        b.in[0] = 1;
        b.out[0] = 2;
        b.step.inputs = b.in;
        b.step.outputs = b.out;
        b.program.buffers = b.buffers;
        int64_t all = b.buffers[2].offset + bytes;
        char *memory = trmi_alloc((size_t)all), *expected = trmi_alloc((size_t)bytes);
        for (int64_t i = 0; i < bytes; i++) {
            memory[i] = (char)trmi_random_u32(5, 6, (uint64_t)i);
        }
        trmi_convert_layout(memory, b.buffers[1].layout, expected, b.buffers[2].layout, dtype,
                            &shape, weights);
        CHECK_OK(run_fast(&b, memory, 1 + round % 3, &err), err);
        assert_memory_equal(memory + b.buffers[2].offset, expected, (size_t)bytes);
        trmi_free(memory);
        trmi_free(expected);
    }
}

/* ---- special values -------------------------------------------------------------------------- */

static float unary_at(trmi_op_kind kind, float x) {
    trm_error err;
    bench b = {.step = {.kind = TRMI_STEP_OP,
                        .op_kind = kind,
                        .name = "u",
                        .inputs_count = 1,
                        .outputs_count = 1}};
    for (int i = 1; i <= 2; i++) {
        b.buffers[i] = (trmi_buffer){.name = "t",
                                     .dtype = TRM_FLOAT32,
                                     .shape = trm_shape_of(21),
                                     .arena = TRMI_ARENA_ACTIVATION,
                                     .bytes = 84,
                                     .offset = (i - 1) * 128};
    }
    b.in[0] = 1;
    b.out[0] = 2;
    b.step.inputs = b.in;
    b.step.outputs = b.out;
    b.program.buffers = b.buffers;
    float *memory = trmi_alloc(256), y;
    for (int i = 0; i < 21; i++) {
        memory[i] = x;
    }
    CHECK_OK(run_fast(&b, (char *)memory, 1, &err), err);
    assert_memory_equal(&memory[32], &memory[52], sizeof y); /* full vector and tail */
    y = memory[32];
    trmi_free(memory);
    return y;
}

static void special_values_are_kept(void **state) {
    assert_true(isnan(unary_at(TRMI_OP_RELU, NAN)));
    assert_true(isnan(unary_at(TRMI_OP_EXP, NAN)) && isnan(unary_at(TRMI_OP_LOG, NAN)));
    assert_true(isnan(unary_at(TRMI_OP_LOG, -1)) && isnan(unary_at(TRMI_OP_SIGMOID, NAN)));
    assert_true(isnan(unary_at(TRMI_OP_TANH, NAN)));
    assert_true(unary_at(TRMI_OP_LOG, 0) == -INFINITY &&
                unary_at(TRMI_OP_LOG, INFINITY) == INFINITY);
    assert_true(unary_at(TRMI_OP_EXP, -INFINITY) == 0 &&
                unary_at(TRMI_OP_EXP, INFINITY) == INFINITY);
    assert_true(unary_at(TRMI_OP_EXP, 89) == INFINITY && unary_at(TRMI_OP_EXP, 0) == 1);
    assert_true(unary_at(TRMI_OP_TANH, INFINITY) == 1 && unary_at(TRMI_OP_TANH, -100) == -1);
    assert_true(unary_at(TRMI_OP_SIGMOID, -200) < 1e-37f && unary_at(TRMI_OP_SIGMOID, 200) == 1);
    for (float x = -87; x < 88; x += 0.37f) {
        assert_true(fabs((double)unary_at(TRMI_OP_EXP, x) / exp((double)x) - 1) < 4e-7);
    }
    for (float x = 1e-41f; x < 1e38f; x *= 1.7f) { /* denormals too */
        assert_true(fabs((double)unary_at(TRMI_OP_LOG, x) - log((double)x)) <
                    2e-7 * (1 + fabs(log((double)x))));
    }
    for (float x = 1e-6f; x < 12; x *= 1.3f) {
        assert_true(fabs((double)unary_at(TRMI_OP_TANH, x) / tanh((double)x) - 1) < 4e-7);
        assert_true(fabs((double)unary_at(TRMI_OP_SIGMOID, -x) * (1 + exp((double)x)) - 1) < 4e-7);
    }
}

static void other_instruction_sets_pass_too(void **state) {
    static const char *const sets[] = {"plain", "avx2", "avx512"};
    if (getenv("TRIREME_ISA") != NULL) {
        return; /* this is one of them */
    }
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("TRIREME_ISA", sets[i], 1);
            execl("/proc/self/exe", "memory_test", (char *)NULL);
            _exit(127);
        }
        int result = -1;
        assert_int_equal(waitpid(child, &result, 0), child);
        if (result != 0) {
            fail_msg("TRIREME_ISA=%s: status %d", sets[i], result);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_kernels_are_the_reference_ones),
        cmocka_unit_test(reorders_are_the_reference_ones),
        cmocka_unit_test(special_values_are_kept),
        cmocka_unit_test(other_instruction_sets_pass_too),
    };
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
