/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/graph.h: networks as graphs of operators. A program builds a graph once by calls that
 * read like formulae, checks it once, and gives it to a training door: trireme/train.h calls a
 * function that builds it, trireme/exec.h compiles a finished one. trireme/nn.h has complete
 * networks.
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
 * Functions that add an operator return its output and report no error themselves: with a broken
 * input they return a broken node (id 0). The graph keeps the first error, a sentence with the
 * shapes, and trm_graph_check returns it (for a NULL graph, too). Comments below give shapes as
 * input -> output.
 *
 * Images are [N, C, H, W], weights of convolutions [O, I / groups, KH, KW], weights of linear
 * layers [O, I], as in torchvision. The compiler chooses the layout in memory.
 *
 *   owns     the graph owns all nodes and copies all names
 *   threads  one thread at a time per graph */
#ifndef TRIREME_GRAPH_H
#define TRIREME_GRAPH_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A graph of operators and their values. */
typedef struct trm_graph trm_graph;

/* A value of the graph: the output of an operator. id 0 is a broken node, or an absent one where a
 * comment allows TRM_NO_NODE. */
typedef struct trm_node {
    int32_t id; /* 0 = broken or absent */
} trm_node;
/* No node, where a comment allows it. */
#define TRM_NO_NODE ((trm_node){0})

/* Options of a graph. */
typedef struct trm_graph_options {
    /* batch norm uses batch statistics and updates the running ones, dropout drops; false:
     * evaluation */
    bool training;
} trm_graph_options;

/* Creates an empty graph.
 *   param    options: NULL = a graph for evaluation
 *   errors   NOMEM
 *   owns     caller: trm_graph_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_graph_create(const trm_graph_options *options, trm_graph **out,
                                                 trm_error *err);
/* Frees the graph with its nodes and names. NULL is accepted. */
TRM_API void trm_graph_destroy(trm_graph *graph);
/* Returns the first error of all functions that added to the graph; TRM_OK if there was none.
 *   errors   INVALID (an operator's input, shape, type or name, with the sentence), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_graph_check(const trm_graph *graph, trm_error *err);
/* Returns true if the graph was created for training. */
TRM_API bool trm_graph_is_training(const trm_graph *graph);

/* Prefixes the names of parameters and operators with "scope." until the matching pop. Scopes nest.
 *   param    format: as in printf */
TRM_API void trm_graph_push_scope(trm_graph *graph, const char *format, ...) TRM_PRINTF(2, 3);
/* Ends the innermost scope; without one the graph keeps an error. */
TRM_API void trm_graph_pop_scope(trm_graph *graph);
/* Marks the open scope as a segment, for instance a block of a network: with
 * trm_exec_options.recompute its values are not kept for backward, but computed again there. */
TRM_API void trm_graph_mark_segment(trm_graph *graph);

/* Returns the shape of a node; an empty one for a broken node. */
TRM_API trm_shape trm_node_shape(const trm_graph *graph, trm_node node);
/* Returns the type of a node; TRM_DTYPE_NONE for a broken node. */
TRM_API trm_dtype trm_node_dtype(const trm_graph *graph, trm_node node);
/* Returns the graph as text, one operator a line.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free */
TRM_API char *trm_graph_to_string(const trm_graph *graph);

/* ---- leaves ---------------------------------------------------------------------------- */

/* The distribution of initial values. Each value is a pure function of (seed, name, element), the
 * same on every rank and under every plan. */
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
/* Returns the initialiser N(0, deviation^2). The value carries the deviation, in steps of 2^-26.
 *   param    deviation: 0 <= deviation < 16
 *   threads  any */
TRM_API trm_init trm_init_normal(double deviation);

/* Adds an input that the program feeds by name before each step. Its shape is that of a whole batch
 * and does not change; the name is unique in the graph. */
TRM_API trm_node trm_input(trm_graph *graph, const char *name, trm_dtype dtype, trm_shape shape);
/* Adds a float32 parameter, which training updates. The name is unique in the graph. */
TRM_API trm_node trm_parameter(trm_graph *graph, const char *name, trm_shape shape, trm_init init);
/* Excludes a parameter from weight decay (embeddings), as vectors are by default; the option
 * decay_all includes it.
 *   returns  the parameter */
TRM_API trm_node trm_exclude_from_decay(trm_graph *graph, trm_node parameter);
/* Freezes a parameter: training reads it and does not change it. It has neither a gradient nor
 * optimiser state. Checkpoints contain it.
 *   returns  the parameter */
TRM_API trm_node trm_freeze(trm_graph *graph, trm_node parameter);
/* Lets the optimiser update all rows of an embedding table in each step, as PyTorch does. Without
 * it only the rows that the batch looks up are updated, and their moments (lazy Adam).
 *   returns  the parameter */
TRM_API trm_node trm_update_all_rows(trm_graph *graph, trm_node parameter);
/* Adds a state: values that are kept between steps and saved, but not trained (running statistics).
 */
TRM_API trm_node trm_state(trm_graph *graph, const char *name, trm_dtype dtype, trm_shape shape,
                           trm_init init);
/* Adds a constant with a copy of the tensor's elements. */
TRM_API trm_node trm_constant(trm_graph *graph, const trm_tensor *tensor);
/* Adds a float32 constant of rank 0. */
TRM_API trm_node trm_scalar(trm_graph *graph, double value);

/* ---- layers ---------------------------------------------------------------------------- */

/* Options of a convolution. Zero means the default. */
typedef struct trm_conv_options {
    int64_t stride[2];   /* height, width; 0 = 1 */
    int64_t dilation[2]; /* height, width; 0 = 1 */
    int64_t pad[4];      /* zeros added: top, bottom, left, right */
    int64_t groups;      /* 0 = 1 */
} trm_conv_options;
/* Adds a convolution: x [N, C, H, W], weight [O, C / groups, KH, KW], bias [O] -> [N, O, H', W'],
 * H' = (H + pads - dilation (KH - 1) - 1) / stride + 1, rounded down.
 *   param    bias: TRM_NO_NODE = none
 *            options: NULL = stride 1, no padding */
TRM_API trm_node trm_conv2d(trm_graph *graph, trm_node x, trm_node weight, trm_node bias,
                            const trm_conv_options *options);
/* Adds a linear layer: x [..., I], weight [O, I], bias [O] -> x weight^T + bias [..., O].
 *   param    bias: TRM_NO_NODE = none */
TRM_API trm_node trm_linear(trm_graph *graph, trm_node x, trm_node weight, trm_node bias);
/* Adds a linear layer with weights [I, O], the layout of GPT-2's files: x [..., I], bias [O] ->
 * [..., O].
 *   param    bias: TRM_NO_NODE = none */
TRM_API trm_node trm_linear_by_inputs(trm_graph *graph, trm_node x, trm_node weight, trm_node bias);
/* Adds a matrix product: [..., M, K] * [..., K, N] -> [..., M, N], after the transposes of the last
 * two dimensions. Leading dimensions are equal, or 1 or absent on one side, whose matrices are then
 * used for all. */
TRM_API trm_node trm_matmul(trm_graph *graph, trm_node a, trm_node b, bool transpose_a,
                            bool transpose_b);

/* Options of a batch norm. Zero means the default. */
typedef struct trm_norm_options {
    double epsilon;  /* added to the variance; 0 = 1e-5 */
    double momentum; /* weight of the new value in the running statistics; 0 = 0.1 */
} trm_norm_options;
/* Adds a batch norm of x [N, C, ...] over all dimensions but the second. Training uses batch
 * statistics and updates the running mean and the running unbiased variance; evaluation uses the
 * running ones.
 *   param    gamma, beta: parameters [C]
 *            running_mean, running_variance: states [C]
 *            options: NULL = defaults
 *   source   Ioffe and Szegedy 2015 */
TRM_API trm_node trm_batch_norm(trm_graph *graph, trm_node x, trm_node gamma, trm_node beta,
                                trm_node running_mean, trm_node running_variance,
                                const trm_norm_options *options);

/* Adds a layer norm: scales each row of x [..., C] to mean 0 and variance 1, times gamma [C], plus
 * beta [C].
 *   param    epsilon: 0 = 1e-5
 *   source   Ba et al. 2016 */
TRM_API trm_node trm_layer_norm(trm_graph *graph, trm_node x, trm_node gamma, trm_node beta,
                                double epsilon);
/* Adds an RMS norm: divides each row of x [..., C] by the root of its mean square + epsilon, times
 * gamma [C].
 *   param    epsilon: 0 = 1e-5
 *   source   Zhang and Sennrich 2019 */
TRM_API trm_node trm_rms_norm(trm_graph *graph, trm_node x, trm_node gamma, double epsilon);

/* Options of attention. Zero means the default. */
typedef struct trm_attention_options {
    bool causal;  /* query t of T reads keys 0 to t + S - T of S */
    double scale; /* factor of the scores; 0 = 1 / sqrt(D) */
} trm_attention_options;
/* Adds attention, softmax(scale q k^T) v for each head: q [B, T, H, D], k and v [B, S, G, D] -> [B,
 * T, H, D]. Query head h reads key head h / (H / G). Scores exist in tiles only, so memory grows
 * with T + S, forward and backward. A query that may read no key gives 0. A causal attention with T
 * > S breaks the graph.
 *   param    mask: int32 [B, S]: keys with 0 are not read; TRM_NO_NODE = all are read
 *            options: NULL = defaults
 *   source   Vaswani et al. 2017; Ainslie et al. 2023 (heads that share keys); Dao et al. 2022, Dao
 *            2023 (tiles) */
TRM_API trm_node trm_attention(trm_graph *graph, trm_node q, trm_node k, trm_node v, trm_node mask,
                               const trm_attention_options *options);
/* Adds attention whose queries, keys and values lie side by side, as one linear layer makes them:
 * qkv [B, T, (heads + 2 kv_heads) D] -> [B, T, heads D].
 *   param    kv_heads: 0 = heads
 *            mask: int32 [B, T], as in trm_attention */
TRM_API trm_node trm_attention_packed(trm_graph *graph, trm_node qkv, int64_t heads,
                                      int64_t kv_heads, trm_node mask,
                                      const trm_attention_options *options);
/* Adds rotary positions: x [B, T, ..., D], D even. Rotates elements i and i + D/2 of position t by
 * the angle t theta^(-2 i / D) (the half-split convention of Llama in Hugging Face's transformers).
 *   param    theta: 0 = 10000
 *            first_position: position of row 0
 *   source   Su et al. 2021 */
TRM_API trm_node trm_rotary(trm_graph *graph, trm_node x, double theta, int64_t first_position);

/* Adds the k largest numbers of each row, largest first: x [..., C] -> [..., k]. Of equal numbers
 * the one with the lower column comes first.
 *   param    columns: int32 [..., k] columns of these numbers, written */
TRM_API trm_node trm_top_values(trm_graph *graph, trm_node x, int64_t k, trm_node *columns);
/* Adds a linear layer that applies to each row the weights of its expert: x [..., I], weights [E,
 * O, I], experts int32 [...] -> [..., O]. An expert outside [0, E) ends the step with TRM_INVALID.
 */
TRM_API trm_node trm_expert_linear(trm_graph *graph, trm_node x, trm_node weights,
                                   trm_node experts);
/* Parameters and options of a mixture of experts. */
typedef struct trm_experts {
    trm_node router; /* [E, C] */
    trm_node up;     /* [E, H, C] */
    trm_node gate;   /* [E, H, C]: SwiGLU; TRM_NO_NODE: GELU of `up` */
    trm_node down;   /* [E, C, H] */
    int64_t top_k;   /* experts of a row; 0 = 2 */
    /* the shares of the chosen experts are divided by their sum. Default: on */
    trm_switch normalize;
} trm_experts;
/* Adds a mixture of experts: x [..., C] -> [..., C], the sum of the outputs of each row's top_k
 * experts, each times its share (softmax of the router). No row is dropped.
 *   param    load_balance: E * sum over experts of (share of choices) * (mean probability), to be
 *            added to the loss, written; NULL = not wanted
 *   source   Shazeer et al. 2017; Fedus et al. 2021 (load balance) */
TRM_API trm_node trm_mixture_of_experts(trm_graph *graph, trm_node x, const trm_experts *experts,
                                        trm_node *load_balance);

/* Options of a pooling. */
typedef struct trm_pool_options {
    int64_t kernel[2]; /* height, width of the window */
    int64_t stride[2]; /* height, width; 0 = kernel */
    /* top, bottom, left, right, each below the kernel's; padding never is the maximum */
    int64_t pad[4];
    /* average pooling divides by the whole window; false: by the elements inside the image */
    bool count_padding;
} trm_pool_options;
/* Adds a maximum pooling: [N, C, H, W] -> [N, C, H', W'], H' = (H + pads - kernel) / stride + 1,
 * rounded down.
 *   param    options: `kernel` must be given */
TRM_API trm_node trm_max_pool(trm_graph *graph, trm_node x, const trm_pool_options *options);
/* Adds an average pooling: [N, C, H, W] -> [N, C, H', W'], as trm_max_pool.
 *   param    options: `kernel` must be given */
TRM_API trm_node trm_avg_pool(trm_graph *graph, trm_node x, const trm_pool_options *options);
/* Adds the mean over each channel's image: [N, C, H, W] -> [N, C]. */
TRM_API trm_node trm_global_avg_pool(trm_graph *graph, trm_node x);
/* Adds a lookup of rows: table [V, D], ids int32 or int64 of any shape -> [..., D]. An id outside
 * [0, V) ends the step with TRM_INVALID. The gradient is sparse: it has only the rows that were
 * read. */
TRM_API trm_node trm_embedding(trm_graph *graph, trm_node table, trm_node ids);
/* Adds a pooling of bags of rows: rows [K, D], offsets int [B + 1] -> [B, D]. Bag b is rows
 * [offsets[b], offsets[b + 1]), each times its weight. An empty bag, or one whose weights are 0,
 * gives 0.
 *   param    weights: float32 [K], which get no gradient; TRM_NO_NODE = all 1 */
TRM_API trm_node trm_bag_pool(trm_graph *graph, trm_node rows, trm_node offsets, trm_node weights,
                              trm_bag_pooling pooling);
/* Adds the inner products of all pairs of rows: x [N, V, W] -> [N, V (V - 1) / 2], in the order (1,
 * 0), (2, 0), (2, 1), (3, 0) ... */
TRM_API trm_node trm_pair_dots(trm_graph *graph, trm_node x);
/* Adds dropout. Training: sets elements to zero with probability `rate` and multiplies the others
 * by 1 / (1 - rate); the mask is a function of (seed, step, operator, element). Evaluation:
 * identity.
 *   source   Srivastava et al. 2014 */
TRM_API trm_node trm_dropout(trm_graph *graph, trm_node x, double rate);

/* ---- elementwise, with NumPy's broadcasting; both inputs have one type (trm_cast) ---------- */
/* Adds a + b. */
TRM_API trm_node trm_add(trm_graph *graph, trm_node a, trm_node b);
/* Adds a - b. */
TRM_API trm_node trm_sub(trm_graph *graph, trm_node a, trm_node b);
/* Adds a * b. */
TRM_API trm_node trm_mul(trm_graph *graph, trm_node a, trm_node b);
/* Adds a / b. */
TRM_API trm_node trm_div(trm_graph *graph, trm_node a, trm_node b);
/* Adds max(x, 0). */
TRM_API trm_node trm_relu(trm_graph *graph, trm_node x);
/* Adds 1 / (1 + exp(-x)). */
TRM_API trm_node trm_sigmoid(trm_graph *graph, trm_node x);
/* Adds tanh(x). */
TRM_API trm_node trm_tanh(trm_graph *graph, trm_node x);
/* Forms of GELU. */
typedef enum trm_gelu_form {
    TRM_GELU_ERF, /* x Phi(x) */
    TRM_GELU_TANH /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GPT-2's */
} trm_gelu_form;
/* Adds a GELU of x, of either form.
 *   source   Hendrycks and Gimpel 2016 */
TRM_API trm_node trm_gelu(trm_graph *graph, trm_node x, trm_gelu_form form);
/* Adds x / (1 + exp(-x)). */
TRM_API trm_node trm_silu(trm_graph *graph, trm_node x);
/* Adds silu(gate) * up; both have one shape.
 *   source   Shazeer 2020 */
TRM_API trm_node trm_swiglu(trm_graph *graph, trm_node gate, trm_node up);
/* Adds exp(x). */
TRM_API trm_node trm_exp(trm_graph *graph, trm_node x);
/* Adds the natural logarithm of x. */
TRM_API trm_node trm_log(trm_graph *graph, trm_node x);
/* Adds the square root of x. */
TRM_API trm_node trm_sqrt(trm_graph *graph, trm_node x);
/* Adds x to a constant power. A whole power of at most 64 is made of products, so that negative
 * numbers have it, too; 0.5 is the square root; another one is exp(power * log(x)), for positive
 * numbers. */
TRM_API trm_node trm_power(trm_graph *graph, trm_node x, double power);
/* Adds -x. */
TRM_API trm_node trm_neg(trm_graph *graph, trm_node x);
/* Adds factor * x. */
TRM_API trm_node trm_scale(trm_graph *graph, trm_node x, double factor);
/* Adds a conversion of x to another type. */
TRM_API trm_node trm_cast(trm_graph *graph, trm_node x, trm_dtype dtype);

/* ---- shape ------------------------------------------------------------------------------ */
/* Adds a view of x with another shape of the same element count. One dimension may be -1: it is
 * computed. */
TRM_API trm_node trm_reshape(trm_graph *graph, trm_node x, trm_shape shape);
/* Adds a permutation of dimensions: output dimension i is input dimension order[i].
 *   param    order: [rank of x] */
TRM_API trm_node trm_transpose(trm_graph *graph, trm_node x, const int32_t *order);
/* Adds the concatenation of `count` nodes, whose shapes are equal except along `axis`.
 *   param    axis: negative: from the end */
TRM_API trm_node trm_concat(trm_graph *graph, const trm_node *nodes, int32_t count, int32_t axis);
/* Adds elements [begin, begin + size) of each dimension.
 *   param    begin, size: [rank of x] */
TRM_API trm_node trm_slice(trm_graph *graph, trm_node x, const int64_t *begin, const int64_t *size);
/* Adds x with before[i] and after[i] elements of `value` around dimension i.
 *   param    before, after: [rank of x] */
TRM_API trm_node trm_pad(trm_graph *graph, trm_node x, const int64_t *before, const int64_t *after,
                         double value);
/* Adds one-hot rows: int labels [...] -> float32 [..., classes], `on` at the label and `off`
 * elsewhere. */
TRM_API trm_node trm_one_hot(trm_graph *graph, trm_node labels, int64_t classes, double on,
                             double off);

/* ---- reductions and losses -------------------------------------------------------------- */
/* Adds the sum over `count` axes.
 *   param    axes: negative: from the end; count 0: all axes
 *            keep_dims: reduced dimensions stay, with size 1 */
TRM_API trm_node trm_reduce_sum(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                                bool keep_dims);
/* Adds the mean over `count` axes; parameters as in trm_reduce_sum. */
TRM_API trm_node trm_reduce_mean(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                                 bool keep_dims);
/* Adds the maximum over `count` axes; parameters as in trm_reduce_sum. */
TRM_API trm_node trm_reduce_max(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                                bool keep_dims);
/* Adds softmax over the last dimension. */
TRM_API trm_node trm_softmax(trm_graph *graph, trm_node x);

/* Options of the softmax cross-entropy. Zero means the default. */
typedef struct trm_xent_options {
    double label_smoothing; /* weight of the uniform distribution in the target, 0 to 1 */
    bool use_ignore_index;  /* rows whose label is ignore_index do not count */
    int32_t ignore_index;   /* such a label; the rows are neither in the sum nor in the mean */
    trm_node bias; /* trm_linear_cross_entropy: [V], added to the logits; TRM_NO_NODE = none */
    /* trm_linear_cross_entropy: share of the rows that count, where it is known: memory is taken
     * for as many. More may count, which takes longer. 0 = all */
    double counted_share;
} trm_xent_options;
/* Adds the mean over rows of -sum(target * log softmax(logits)): logits [N, K], labels int32 [N] ->
 * scalar. A label outside [0, K) that is not ignored ends the step with TRM_INVALID.
 *   param    options: NULL = no smoothing, every row counts */
TRM_API trm_node trm_softmax_cross_entropy(trm_graph *graph, trm_node logits, trm_node labels,
                                           const trm_xent_options *options);
/* Adds the softmax cross-entropy of the logits x weight^T without keeping them: x [..., C], weight
 * [V, C], labels int32 [...] -> scalar. Logits and their gradients are computed for some rows at a
 * time, so memory does not grow with rows times V. In a graph for evaluation of a trm_model, the
 * largest logits give its accuracy. A label outside [0, V) that is not ignored ends
 * the step with TRM_INVALID.
 *   param    options: as in trm_softmax_cross_entropy, without label smoothing */
TRM_API trm_node trm_linear_cross_entropy(trm_graph *graph, trm_node x, trm_node weight,
                                          trm_node labels, const trm_xent_options *options);
/* Adds the mean binary cross-entropy of logits z and targets t of equal shapes, max(z, 0) - z t +
 * log(1 + exp(-|z|)) -> scalar. */
TRM_API trm_node trm_bce_with_logits(trm_graph *graph, trm_node logits, trm_node targets);

/* ---- operators of your own --------------------------------------------------------------- */

/* An operator of the program's own. Its tensors are dense, row-major, and of the types that `infer`
 * declares. The struct must outlive the graph and everything compiled from it. See
 * examples/custom_operator.c. */
typedef struct trm_custom_op {
    const char *name; /* shown in errors and reports */
    int32_t outputs;  /* number of outputs, 1 to 4 */
    /* computes shapes and types of the outputs from those of the inputs */
    trm_status (*infer)(const struct trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                        trm_tensor *outputs, trm_error *err);
    /* computes the outputs; called from one thread, may use OpenMP, must not allocate */
    trm_status (*run)(const struct trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                      trm_tensor *outputs, trm_error *err);
    /* adds operators for d(inputs), from the nodes of inputs, outputs and d(outputs) (id 0 = zero);
     * writes TRM_NO_NODE for inputs without a gradient. NULL: not differentiable */
    void (*gradient)(const struct trm_custom_op *self, trm_graph *graph, const trm_node *inputs,
                     int32_t count, const trm_node *outputs, const trm_node *d_outputs,
                     trm_node *d_inputs);
    /* returns the operations of one run, for reports; NULL = none */
    double (*flops)(const struct trm_custom_op *self, const trm_tensor *inputs, int32_t count);
    void *context; /* for the functions above */
} trm_custom_op;
/* Adds an operator of the program's own.
 *   param    inputs: [count]
 *            outputs: [op->outputs], written */
TRM_API void trm_custom(trm_graph *graph, const trm_custom_op *op, const trm_node *inputs,
                        int32_t count, trm_node *outputs);

/* ---- differentiation ---------------------------------------------------------------------- */

/* Adds the derivatives d(loss)/d(node) of a scalar loss for each of `count` nodes, by reverse-mode
 * differentiation.
 *   param    grads: [count], written; TRM_NO_NODE where the loss does not depend on the node
 *   source   Griewank and Walther 2008 */
TRM_API void trm_gradients(trm_graph *graph, trm_node loss, const trm_node *nodes, int32_t count,
                           trm_node *grads);

/* ==== precision ============================================================================= */

/* How a graph becomes a program. trm_exec_explain (trireme/exec.h) and `trireme plan MODEL
 * --explain` show the program. */

/* The types that a program computes with. */
typedef enum trm_precision {
    TRM_PRECISION_FP32 = 0, /* float32 everywhere */
    /* bfloat16 where it is safe, float32 for master weights and statistics (allow_mix_precision) */
    TRM_PRECISION_MIXED,
    TRM_PRECISION_ORIGIN /* each operator in the type of its inputs (must_keep_origin_dtype) */
} trm_precision;

#ifdef __cplusplus
}
#endif
#endif
