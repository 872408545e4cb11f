/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/nn.h: networks as functions that build graphs. Names of parameters are torchvision's,
 * so that checkpoints cross over.
 *
 *     trm_node logits = trm_resnet(graph, image, &(trm_resnet_options){.depth = 50, .classes =
 *     10}); */
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include "trireme/base.h"
#include "trireme/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum trm_stem {
    TRM_STEM_IMAGENET, /* 7x7 stride 2 and a 3x3 stride 2 max-pool */
    TRM_STEM_CIFAR     /* 3x3 stride 1, no pool: images of 32x32 keep their size */
} trm_stem;

typedef struct trm_resnet_options {
    int32_t depth;   /* 18, 34, 50, 101, 152 */
    int64_t classes; /* 0 = 1000 */
    trm_stem stem;
    bool zero_init_residual; /* the last norm of each block begins at 0 */
} trm_resnet_options;
/* He et al. 2015, the "v1.5" form (stride on the 3x3 of a bottleneck), as torchvision's resnet*.
 *   image [N, 3, H, W] -> logits [N, classes] */
TRM_API trm_node trm_resnet(trm_graph *graph, trm_node image, const trm_resnet_options *options);

/* Layers of `hidden` widths with ReLU, then classes. Any image or feature shape is flattened.
 * Names "fc0.weight", "fc0.bias", ... */
TRM_API trm_node trm_mlp(trm_graph *graph, trm_node x, const int64_t *hidden, int32_t count,
                         int64_t classes);

/* LeCun et al. 1998 in its usual modern form: conv 5x5 (6), pool, conv 5x5 (16), pool, 120, 84.
 *   image [N, C, H, W], H and W at least 12 */
TRM_API trm_node trm_lenet(trm_graph *graph, trm_node image, int64_t classes);

/* ---- language --------------------------------------------------------------------------------
 */

/* Zero is the small model's number: 124,439,808 parameters. Functions take NULL for zeros. */
typedef struct trm_gpt2_options {
    int64_t layers;     /* 12 */
    int64_t width;      /* 768; a multiple of heads */
    int64_t heads;      /* 12; a multiple of kv_heads */
    int64_t kv_heads;   /* heads that keys and values have; 0 = heads, as GPT-2 */
    int64_t hidden;     /* of the layers behind attention; 0 = 4 width */
    int64_t context;    /* 1024 positions */
    int64_t vocabulary; /* 50257 */
    double dropout;     /* of embeddings and of what each layer adds; 0 = none */
} trm_gpt2_options;
/* Sets layers, width and heads of a published size: small, medium, large, xl.    error  INVALID */
TRM_API TRM_MUST_USE trm_status trm_gpt2_size(const char *name, trm_gpt2_options *options,
                                              trm_error *err);
/* Radford et al. 2019: token ids int32 or int64 [B, T], T at most the context -> logits [B, T,
 * vocabulary]. The output layer is the token embedding. Names are transformers': "wte.weight",
 * "wpe.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.weight" [width, 3 width] ..., "ln_f.bias"; so are
 * initial values. */
TRM_API trm_node trm_gpt2(trm_graph *graph, trm_node ids, const trm_gpt2_options *options);
/* The same with the mean cross-entropy of targets int32 [B, T], which are the ids one position later;
 * -100 does not count. The logits never exist as a whole (trm_linear_cross_entropy). */
TRM_API trm_node trm_gpt2_loss(trm_graph *graph, trm_node ids, trm_node targets,
                               const trm_gpt2_options *options);

/* ---- recommendation ----------------------------------------------------------------------------
 */

/* The fields of a batch of click data (trireme/data.h) as nodes. Unless the options name
 * tables, those of all fields are one table: a key is a row of it (trm_click_options.shared_table),
 * so that a batch is one gather. With parameter servers a batch is one request to each, however
 * many tables. */
typedef struct trm_click_inputs {
    trm_node keys;    /* int64 [N, F]; with bags [K] */
    trm_node offsets; /* bags: int64 [N*F + 1], keys of bag b from offsets[b]; else TRM_NO_NODE */
    trm_node values;  /* bags: float32 [K], a weight per key; or TRM_NO_NODE: all 1 */
    trm_node dense;   /* float32 [N, D], or TRM_NO_NODE */
    int64_t batch;    /* N; needed with bags */
} trm_click_inputs;

/* A table of some of the fields. Fields of one table share its rows: equal keys are one row. */
typedef struct trm_field_table {
    const char *name;      /* its parameters are "embedding.NAME.weight" and "wide.NAME.weight" */
    const int32_t *fields; /* [count], 0-based; each field is in one table */
    int32_t count;
    int64_t rows;  /* 0 = those of the options */
    int64_t width; /* 0 = that of the options; DEEPFM and DLRM want one width */
    trm_init init; /* 0 = table_init */
} trm_field_table;

/* Zero is the model's default everywhere but in `rows`. */
typedef struct trm_recommender_options {
    /* of the table: those of all fields; must be given, here or by each of `tables` */
    int64_t rows;
    /* Borrowed while the graph is built; none = one table of all fields. The keys of a field then
     * begin at 0 (trm_click_options without shared_table). Not with bags. */
    const trm_field_table *tables;
    int32_t tables_count;
    int64_t width; /* of its rows: 16 */
    trm_bag_pooling pooling;
    const int64_t *hidden; /* widths of the ReLU layers before the logit: see each model */
    int32_t hidden_count;  /* -1 = none */
    const int64_t *bottom; /* DLRM: of the dense inputs' layers, before the one of `width` */
    int32_t bottom_count;
    int32_t cross_layers; /* DCNv2: 3 */
    int64_t cross_rank;   /* DCNv2: matrices U V^T of this rank; 0 = full */
    bool stacked;         /* DCNv2: the deep part reads the cross part, not beside it */
    bool no_wide_dense;   /* WIDEDEEP, DEEPFM: dense inputs go to the deep part only */
    trm_init table_init;  /* 0 = TRM_INIT_NORMAL_001 */
    trm_init layer_init;  /* of the layers' weights; 0 = Glorot's, biases begin at 0 */
} trm_recommender_options;

/* Each returns logits [N]. Names: "embedding.weight" [rows, width], "wide.weight" [rows, 1] (of
 * each table "embedding.NAME.weight", "wide.NAME.weight"), "wide_dense.weight" [1, D], "bias",
 * "deep.0.weight" ..., "bottom.0.weight", "top.0.weight", "cross.0.weight" or "cross.0.u" and ".v",
 * "out.weight".
 *
 * Cheng et al. 2016: linear in the keys (and dense inputs) plus a deep network on the embeddings.
 * hidden: 256, 128. */
TRM_API trm_node trm_widedeep(trm_graph *graph, const trm_click_inputs *inputs,
                              const trm_recommender_options *options);
/* Guo et al. 2017: linear part, factorisation machine and deep network share the embeddings.
 * hidden: 400, 400, 400. */
TRM_API trm_node trm_deepfm(trm_graph *graph, const trm_click_inputs *inputs,
                            const trm_recommender_options *options);
/* Wang et al. 2021: x(l+1) = x0 * (W x(l) + b) + x(l) on embeddings and dense inputs, and a deep
 * network beside it (or behind it). hidden: 400, 400, 400. */
TRM_API trm_node trm_dcnv2(trm_graph *graph, const trm_click_inputs *inputs,
                           const trm_recommender_options *options);
/* Naumov et al. 2019: dense inputs through the bottom layers to a row of `width`, inner products of
 * all pairs of rows, and the top layers. bottom: 512, 256, 64; hidden (top): 512, 256. */
TRM_API trm_node trm_dlrm(trm_graph *graph, const trm_click_inputs *inputs,
                          const trm_recommender_options *options);

/* By name: widedeep, deepfm, dcnv2, dlrm. An unknown name breaks the graph with the names there
 * are. */
TRM_API trm_node trm_recommender_build(trm_graph *graph, const char *name,
                                       const trm_click_inputs *inputs,
                                       const trm_recommender_options *options);
/* The index-th of these names, NULL after the last. */
TRM_API const char *trm_recommender_name(int32_t index);

/* ---- by name ------------------------------------------------------------------------------------
 */

typedef struct trm_network_options {
    int64_t classes; /* 0 = 10 */
    trm_stem stem;
    bool zero_init_residual;
} trm_network_options;
/* By name, as the command line has it: resnet18/34/50/101/152, mlp (hidden 512, 256), lenet. An
 * unknown name breaks the graph with the names there are. */
TRM_API trm_node trm_network_build(trm_graph *graph, const char *name, trm_node image,
                                   const trm_network_options *options);
/* The index-th name, NULL after the last. */
TRM_API const char *trm_network_name(int32_t index);

#ifdef __cplusplus
}
#endif
#endif
