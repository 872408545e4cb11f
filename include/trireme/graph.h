/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/graph.h: the mathematics. A graph is built once through calls that read like formulae,
 * checked once, then differentiated, planned and compiled (trireme/graph.h, trireme/train.h).
 *
 *     trm_graph *g;
 *     trm_graph_create(&(trm_graph_options){.training = true}, &g, &err);
 *     trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(32, 784));
 *     trm_node y = trm_input(g, "label", TRM_INT32, trm_shape_of(32));
 *     trm_node w = trm_parameter(g, "fc.weight", trm_shape_of(10, 784), TRM_INIT_LINEAR);
 *     trm_node b = trm_parameter(g, "fc.bias", trm_shape_of(10), TRM_INIT_ZERO);
 *     trm_node loss = trm_softmax_cross_entropy(g, trm_linear(g, x, w, b), y, NULL);
 *     trm_graph_check(g, &err);
 *
 * Build calls return a trm_node and never fail visibly: a broken input gives a broken output, the
 * graph keeps the FIRST error with both shapes in the sentence, and trm_graph_check reports it (with
 * a NULL graph every output is broken, and trm_graph_check says so).
 *
 * Conventions: images are [N, C, H, W], weights of convolutions [O, I/groups, KH, KW], of linear
 * layers [O, I] (torchvision's). How they lie in memory is the compiler's business.
 *   thread  one thread at a time per graph      owns  the graph owns all nodes and copies all names
 */
#ifndef TRIREME_GRAPH_H
#define TRIREME_GRAPH_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_graph trm_graph;

/* A value of the graph: the output of an operator. id 0 is broken, or "absent" where allowed. */
typedef struct trm_node {
    int32_t id;
} trm_node;
#define TRM_NO_NODE ((trm_node){0})

typedef struct trm_graph_options {
    /* batch-norm uses batch statistics and updates the running ones; dropout drops */
    bool training;
} trm_graph_options;

/* An empty graph; options NULL: for evaluation.   owns  caller, trm_graph_destroy    error  NOMEM
 */
TRM_API TRM_MUST_USE trm_status trm_graph_create(const trm_graph_options *options, trm_graph **out,
                                                 trm_error *err);
TRM_API void trm_graph_destroy(trm_graph *graph);
/* TRM_OK, or the first error of any build call. */
TRM_API TRM_MUST_USE trm_status trm_graph_check(const trm_graph *graph, trm_error *err);
TRM_API bool trm_graph_is_training(const trm_graph *graph);

/* Names of parameters and operators made until the matching pop are prefixed with "scope.". */
TRM_API void trm_graph_push_scope(trm_graph *graph, const char *format, ...) TRM_PRINTF(2, 3);
TRM_API void trm_graph_pop_scope(trm_graph *graph);

/* Shape and dtype of a node (an empty shape and TRM_DTYPE_NONE for a broken one). */
TRM_API trm_shape trm_node_shape(const trm_graph *graph, trm_node node);
TRM_API trm_dtype trm_node_dtype(const trm_graph *graph, trm_node node);
/* The text of the graph, one operator a line. owns: caller, free with trm_free. */
TRM_API char *trm_graph_to_string(const trm_graph *graph);

/* ---- leaves ---------------------------------------------------------------------------- */

/* Initial values are a pure function of (seed, name, element): the same on any rank or plan. */
typedef enum trm_init {
    TRM_INIT_ZERO,
    TRM_INIT_ONE,
    TRM_INIT_HE_NORMAL_FAN_OUT, /* N(0, 2/fan_out): torchvision's convolutions */
    TRM_INIT_HE_UNIFORM,        /* U(+-sqrt(6/fan_in)) */
    TRM_INIT_LINEAR,            /* U(+-1/sqrt(fan_in)): torch.nn.Linear's weight and bias */
    TRM_INIT_GLOROT_UNIFORM,    /* U(+-sqrt(6/(fan_in+fan_out))) */
    TRM_INIT_NORMAL_001,        /* N(0, 0.01^2) */
    TRM_INIT_NORMAL_002,        /* N(0, 0.02^2) */
    TRM_INIT_NORMAL = 1 << 30   /* trm_init_normal's values begin here */
} trm_init;
/* N(0, deviation^2), 0 <= deviation < 16, in steps of 2^-26: the deviation is part of the value. */
TRM_API trm_init trm_init_normal(double deviation);

/* Fed anew each step, by name. */
TRM_API trm_node trm_input(trm_graph *graph, const char *name, trm_dtype dtype, trm_shape shape);
/* Trained, float32; the name is unique in the graph. */
TRM_API trm_node trm_parameter(trm_graph *graph, const char *name, trm_shape shape, trm_init init);
/* Kept between steps, saved, not trained (running statistics). */
TRM_API trm_node trm_state(trm_graph *graph, const char *name, trm_dtype dtype, trm_shape shape,
                           trm_init init);
/* A copy of the tensor's elements becomes part of the graph. */
TRM_API trm_node trm_constant(trm_graph *graph, const trm_tensor *tensor);
TRM_API trm_node trm_scalar(trm_graph *graph, double value); /* float32, rank 0 */

/* ---- layers ---------------------------------------------------------------------------- */

typedef struct trm_conv_options {
    int64_t stride[2];   /* height, width; 0 = 1 */
    int64_t dilation[2]; /* 0 = 1 */
    int64_t pad[4];      /* top, bottom, left, right */
    int64_t groups;      /* 0 = 1 */
} trm_conv_options;
/* [N, C, H, W] * [O, C/groups, KH, KW] (+ [O] unless bias is TRM_NO_NODE). */
TRM_API trm_node trm_conv2d(trm_graph *graph, trm_node x, trm_node weight, trm_node bias,
                            const trm_conv_options *options);
/* [..., I] * [O, I]^T (+ [O]). */
TRM_API trm_node trm_linear(trm_graph *graph, trm_node x, trm_node weight, trm_node bias);
/* The same with weights [I, O] (the layout of GPT-2's files): [..., I] * [I, O] (+ [O]). */
TRM_API trm_node trm_linear_by_inputs(trm_graph *graph, trm_node x, trm_node weight, trm_node bias);
/* [..., M, K] * [..., K, N] after the optional transposes of the last two dimensions -> [..., M, N].
 * Leading dimensions are equal, or 1 or absent on one side, whose matrices are then used for all. */
TRM_API trm_node trm_matmul(trm_graph *graph, trm_node a, trm_node b, bool transpose_a,
                            bool transpose_b);

typedef struct trm_norm_options {
    double epsilon;  /* 0 = 1e-5 */
    double momentum; /* weight of the new value in the running statistics; 0 = 0.1 */
} trm_norm_options;
/* Over all dimensions but 1. Training: batch statistics; the running mean and the unbiased running
 * variance (states of shape [C]) are updated. Evaluation: the running ones are used. */
TRM_API trm_node trm_batch_norm(trm_graph *graph, trm_node x, trm_node gamma, trm_node beta,
                                trm_node running_mean, trm_node running_variance,
                                const trm_norm_options *options);

/* Each row of x [..., C] to mean 0 and variance 1, times gamma [C], plus beta [C] (Ba et al. 2016).
 * epsilon 0 = 1e-5. */
TRM_API trm_node trm_layer_norm(trm_graph *graph, trm_node x, trm_node gamma, trm_node beta,
                                double epsilon);
/* Each row of x [..., C] divided by the root of its mean square + epsilon, times gamma [C] (Zhang and
 * Sennrich 2019). epsilon 0 = 1e-5. */
TRM_API trm_node trm_rms_norm(trm_graph *graph, trm_node x, trm_node gamma, double epsilon);

typedef struct trm_attention_options {
    bool causal;  /* query t of T reads keys 0 to t + S - T of S */
    double scale; /* of the scores; 0 = 1 / sqrt(D) */
} trm_attention_options;
/* softmax(scale q k^T) v for each head (Vaswani et al. 2017): q [B, T, H, D], k and v [B, S, G, D] ->
 * [B, T, H, D]; query head h reads key head h / (H / G) (Ainslie et al. 2023). mask int32 [B, S]: keys
 * with 0 are not read; TRM_NO_NODE: all are. A query that may read no key gives 0. Memory grows with
 * T + S, forward and backward: scores exist in tiles only (Dao et al. 2022; Dao 2023). options NULL:
 * defaults.    error  INVALID: shapes, or a causal attention with T > S */
TRM_API trm_node trm_attention(trm_graph *graph, trm_node q, trm_node k, trm_node v, trm_node mask,
                               const trm_attention_options *options);
/* The same with queries, keys and values side by side, as one linear layer makes them: qkv
 * [B, T, (heads + 2 kv_heads) D] -> [B, T, heads D]. kv_heads 0 = heads. mask int32 [B, T]. */
TRM_API trm_node trm_attention_packed(trm_graph *graph, trm_node qkv, int64_t heads,
                                      int64_t kv_heads, trm_node mask,
                                      const trm_attention_options *options);
/* Rotary positions (Su et al. 2021) of x [B, T, ..., D], D even: elements i and i + D/2 of position t
 * are turned by the angle t theta^(-2 i / D) (the half-split convention of Llama in Hugging Face's
 * transformers). theta 0 = 10000; row 0 has position first_position. */
TRM_API trm_node trm_rotary(trm_graph *graph, trm_node x, double theta, int64_t first_position);

/* The k largest numbers of each row of x [..., C], largest first, and their columns (int32): both
 * [..., k]. Of equal numbers the one with the lower column comes first. */
TRM_API trm_node trm_top_values(trm_graph *graph, trm_node x, int64_t k, trm_node *columns);
/* x [..., I], weights [E, O, I], experts int32 [...] -> [..., O]: each row by the weights of its expert. An
 * expert outside [0, E) stops the step with TRM_INVALID. */
TRM_API trm_node trm_expert_linear(trm_graph *graph, trm_node x, trm_node weights,
                                   trm_node experts);
typedef struct trm_experts {
    trm_node router;       /* [E, C] */
    trm_node up;           /* [E, H, C] */
    trm_node gate;         /* [E, H, C]: SwiGLU; TRM_NO_NODE: GELU of `up` */
    trm_node down;         /* [E, C, H] */
    int64_t top_k;         /* experts of a row; 0 = 2 */
    bool no_normalization; /* the chosen shares are not divided by their sum */
} trm_experts;
/* Mixture of experts (Shazeer et al. 2017): x [..., C] -> [..., C], the sum of what the top_k experts of
 * each row make, each times its share (softmax of the router). No row is dropped. *load_balance, unless
 * NULL: E sum of (share of choices) (mean probability), to be added to the loss (Fedus et al. 2021). */
TRM_API trm_node trm_mixture_of_experts(trm_graph *graph, trm_node x, const trm_experts *experts,
                                        trm_node *load_balance);

typedef struct trm_pool_options {
    int64_t kernel[2];
    int64_t stride[2];  /* 0 = kernel */
    int64_t pad[4];     /* top, bottom, left, right; padding never wins a maximum */
    bool count_padding; /* average: divide by the whole window */
} trm_pool_options;
/* [N, C, H, W] -> [N, C, H', W']. */
TRM_API trm_node trm_max_pool(trm_graph *graph, trm_node x, const trm_pool_options *options);
TRM_API trm_node trm_avg_pool(trm_graph *graph, trm_node x, const trm_pool_options *options);
/* [N, C, H, W] -> [N, C]. */
TRM_API trm_node trm_global_avg_pool(trm_graph *graph, trm_node x);
/* Rows of table [V, D] by ids (int32 or int64) of any shape -> [..., D]. An id outside [0, V) stops
 * the step with TRM_INVALID. The gradient is sparse: only the rows that were used. */
TRM_API trm_node trm_embedding(trm_graph *graph, trm_node table, trm_node ids);
typedef enum trm_bag_pooling {
    TRM_BAG_SUM,
    TRM_BAG_MEAN,  /* over the sum of the weights */
    TRM_BAG_SQRT_N /* over the root of the sum of their squares */
} trm_bag_pooling;
/* Bags of rows: rows [K, D], offsets int [B + 1] -> [B, D]; bag b is rows [offsets[b], offsets[b +
 * 1]), each times its weight [K] (TRM_NO_NODE: 1; no gradient). An empty bag, or one of weight 0,
 * is 0. */
TRM_API trm_node trm_bag_pool(trm_graph *graph, trm_node rows, trm_node offsets, trm_node weights,
                              trm_bag_pooling pooling);
/* Inner products of all pairs of rows: x [N, V, W] -> [N, V (V - 1) / 2], in the order (1, 0), (2,
 * 0), (2, 1), (3, 0) ... */
TRM_API trm_node trm_pair_dots(trm_graph *graph, trm_node x);
/* Training: zeroes with probability `rate`, scales the rest by 1/(1-rate); the mask is a function
 * of (seed, step, operator, element). Evaluation: identity. */
TRM_API trm_node trm_dropout(trm_graph *graph, trm_node x, double rate);

/* ---- elementwise, with NumPy broadcasting: both inputs have one dtype (trm_cast) --------- */
TRM_API trm_node trm_add(trm_graph *graph, trm_node a, trm_node b);
TRM_API trm_node trm_sub(trm_graph *graph, trm_node a, trm_node b);
TRM_API trm_node trm_mul(trm_graph *graph, trm_node a, trm_node b);
TRM_API trm_node trm_div(trm_graph *graph, trm_node a, trm_node b);
TRM_API trm_node trm_relu(trm_graph *graph, trm_node x);
TRM_API trm_node trm_sigmoid(trm_graph *graph, trm_node x);
TRM_API trm_node trm_tanh(trm_graph *graph, trm_node x);
typedef enum trm_gelu_form {
    TRM_GELU_ERF, /* x Phi(x) */
    TRM_GELU_TANH /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GPT-2's */
} trm_gelu_form;
/* Hendrycks and Gimpel 2016. */
TRM_API trm_node trm_gelu(trm_graph *graph, trm_node x, trm_gelu_form form);
/* x / (1 + exp(-x)) */
TRM_API trm_node trm_silu(trm_graph *graph, trm_node x);
/* silu(gate) * up, both of one shape (Shazeer 2020). */
TRM_API trm_node trm_swiglu(trm_graph *graph, trm_node gate, trm_node up);
TRM_API trm_node trm_exp(trm_graph *graph, trm_node x);
TRM_API trm_node trm_log(trm_graph *graph, trm_node x);
TRM_API trm_node trm_sqrt(trm_graph *graph, trm_node x);
TRM_API trm_node trm_neg(trm_graph *graph, trm_node x);
TRM_API trm_node trm_scale(trm_graph *graph, trm_node x, double factor);
TRM_API trm_node trm_cast(trm_graph *graph, trm_node x, trm_dtype dtype);

/* ---- shape ------------------------------------------------------------------------------ */
/* One dimension may be -1: what is left. */
TRM_API trm_node trm_reshape(trm_graph *graph, trm_node x, trm_shape shape);
/* Output dimension i is input dimension order[i]. */
TRM_API trm_node trm_transpose(trm_graph *graph, trm_node x, const int32_t *order);
/* Equal shapes but along `axis` (negative = from the end). */
TRM_API trm_node trm_concat(trm_graph *graph, const trm_node *nodes, int32_t count, int32_t axis);
/* Elements [begin, begin + size) of each dimension. */
TRM_API trm_node trm_slice(trm_graph *graph, trm_node x, const int64_t *begin, const int64_t *size);
/* Adds before[i] and after[i] elements of `value` around dimension i. */
TRM_API trm_node trm_pad(trm_graph *graph, trm_node x, const int64_t *before, const int64_t *after,
                         double value);
/* int labels [...] -> float32 [..., classes]: `on` at the label, `off` elsewhere. */
TRM_API trm_node trm_one_hot(trm_graph *graph, trm_node labels, int64_t classes, double on,
                             double off);

/* ---- reductions and losses -------------------------------------------------------------- */
/* Over `count` axes (negative = from the end; count 0 = all). */
TRM_API trm_node trm_reduce_sum(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                                bool keep_dims);
TRM_API trm_node trm_reduce_mean(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                                 bool keep_dims);
TRM_API trm_node trm_reduce_max(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                                bool keep_dims);
TRM_API trm_node trm_softmax(trm_graph *graph, trm_node x); /* over the last dimension */

typedef struct trm_xent_options {
    double label_smoothing; /* 0 .. 1 */
    bool use_ignore_index;
    int32_t ignore_index; /* rows with this label count neither in the sum nor in the mean */
} trm_xent_options;
/* Mean over rows of -sum(target * log softmax(logits)): logits [N, K], labels int32 [N] -> scalar.
 */
TRM_API trm_node trm_softmax_cross_entropy(trm_graph *graph, trm_node logits, trm_node labels,
                                           const trm_xent_options *options);
/* The same for logits x weight^T that never exist as a whole: x [..., C], weight [V, C], labels int32
 * [...] -> scalar. Logits are made for some rows at a time, and gradients with them, so that memory
 * does not grow with rows times V. No label smoothing. A label outside [0, V) that is not ignored
 * stops the step with TRM_INVALID. */
TRM_API trm_node trm_linear_cross_entropy(trm_graph *graph, trm_node x, trm_node weight,
                                          trm_node labels, const trm_xent_options *options);
/* Mean of max(z,0) - z*t + log(1 + exp(-|z|)) over all elements -> scalar. */
TRM_API trm_node trm_bce_with_logits(trm_graph *graph, trm_node logits, trm_node targets);

/* ---- operators of your own --------------------------------------------------------------- */

/* Tensors are dense, row-major, float32 or integer as declared by `infer`. The struct must outlive
 * the graph and everything compiled from it. See examples/custom_operator.c. */
typedef struct trm_custom_op {
    const char *name;
    int32_t outputs; /* 1 .. 4 */
    /* Shapes and dtypes of the outputs from those of the inputs. */
    trm_status (*infer)(const struct trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                        trm_tensor *outputs, trm_error *err);
    /* Numbers. Called from one thread; may use OpenMP; must not allocate. */
    trm_status (*run)(const struct trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                      trm_tensor *outputs, trm_error *err);
    /* Builds d(inputs) from the nodes of inputs, outputs and d(outputs) (id 0 = zero); writes
     * TRM_NO_NODE for inputs without gradient. NULL: not differentiable. */
    void (*gradient)(const struct trm_custom_op *self, trm_graph *graph, const trm_node *inputs,
                     int32_t count, const trm_node *outputs, const trm_node *d_outputs,
                     trm_node *d_inputs);
    double (*flops)(const struct trm_custom_op *self, const trm_tensor *inputs, int32_t count);
    void *context;
} trm_custom_op;
/* Writes op->outputs nodes. */
TRM_API void trm_custom(trm_graph *graph, const trm_custom_op *op, const trm_node *inputs,
                        int32_t count, trm_node *outputs);

/* ---- differentiation ---------------------------------------------------------------------- */

/* Adds to the graph d(loss)/d(node) for each of `count` nodes (Griewank & Walther, reverse mode);
 * grads[i] is TRM_NO_NODE where the loss does not depend on nodes[i]. The loss is a scalar. */
TRM_API void trm_gradients(trm_graph *graph, trm_node loss, const trm_node *nodes, int32_t count,
                           trm_node *grads);

/* ==== precision ============================================================================= */

/* How a graph becomes a program. The program itself is shown by trm_exec_explain
 * (trireme/exec.h) and by `trireme plan MODEL --explain`. */

/* The types that a program computes with. */
typedef enum trm_precision {
    TRM_PRECISION_FP32 = 0,
    /* allow_mix_precision: bf16 where it is safe, fp32 masters and statistics */
    TRM_PRECISION_MIXED,
    TRM_PRECISION_ORIGIN /* must_keep_origin_dtype: each operator in the dtype of its inputs */
} trm_precision;

#ifdef __cplusplus
}
#endif
#endif
