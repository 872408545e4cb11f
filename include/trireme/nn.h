/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/nn.h: complete networks, as functions that add operators to a graph (trireme/graph.h).
 * Names of parameters are those of torchvision and transformers, so that weights can be exchanged.
 *
 *     trm_resnet_options options = {.depth = 50, .classes = 10};
 *     trm_node logits = trm_resnet(graph, image, &options);
 *
 * Sections: images; language; recommendation; by name; generating text.
 *
 * Errors are kept by the graph, as those of trireme/graph.h. */
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include "trireme/base.h"
#include "trireme/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first layers of a ResNet. */
typedef enum trm_stem {
    TRM_STEM_IMAGENET, /* 7x7 stride 2 and a 3x3 stride 2 max-pool */
    TRM_STEM_CIFAR     /* 3x3 stride 1, no pool: images of 32x32 keep their size */
} trm_stem;

/* Options of a ResNet. Zero means the default, except for `depth`. */
typedef struct trm_resnet_options {
    int32_t depth;           /* 18, 34, 50, 101 or 152 */
    int64_t classes;         /* 0 = 1000 */
    trm_stem stem;           /* the first layers */
    bool zero_init_residual; /* the last norm of each block has weight 0 at the beginning */
} trm_resnet_options;
/* Adds a ResNet in the "v1.5" form (stride on the 3x3 of a bottleneck), as torchvision's: image [N,
 * 3, H, W] -> logits [N, classes].
 *   source   He et al. 2015 */
TRM_API trm_node trm_resnet(trm_graph *graph, trm_node image, const trm_resnet_options *options);

/* Adds linear layers with ReLU of the widths hidden[count], then one of `classes` outputs: x [N,
 * ...], flattened -> logits [N, classes]. Names: "fc0.weight", "fc0.bias", ... */
TRM_API trm_node trm_mlp(trm_graph *graph, trm_node x, const int64_t *hidden, int32_t count,
                         int64_t classes);

/* Adds LeNet in its usual modern form, conv 5x5 (6), pool, conv 5x5 (16), pool, 120, 84: image [N,
 * C, H, W], H and W at least 12 -> logits [N, classes].
 *   source   LeCun et al. 1998 */
TRM_API trm_node trm_lenet(trm_graph *graph, trm_node image, int64_t classes);

/* Low-rank adapters beside the weights of linear layers, y + (alpha / rank) B A x. All other
 * parameters are frozen (trm_freeze). Zero means the default.
 *   source   Hu et al. 2021 */
typedef struct trm_lora_options {
    int64_t
        rank; /* rows of A "NAME.lora_A.weight", columns of B "NAME.lora_B.weight"; 0 = no adapters */
    double alpha;   /* 0 = rank */
    double dropout; /* rate for the input of A; 0 = none */
    /* layers that have adapters: attention, mlp, all, or names such as c_attn, q_proj, attn.c_proj;
     * several are joined by '+'; NULL = attention */
    const char *targets;
} trm_lora_options;
/* Options of a vision transformer. Zero means the default; functions accept NULL for all zeros. */
typedef struct trm_vit_options {
    int64_t layers; /* 0 = 12 */
    int64_t width;  /* values of a patch; 0 = 768; a multiple of heads */
    int64_t heads;  /* 0 = 12 */
    int64_t hidden; /* width of the layer after attention; 0 = 4 width */
    int64_t patch;  /* height and width of a patch, which divide those of the image; 0 = 16 */
    double dropout; /* rate for embeddings and for the output of each layer; 0 = none */
    double epsilon; /* of norms; 0 = 1e-12 */
    trm_lora_options lora; /* adapters, which alone are trained */
} trm_vit_options;
/* Sets the options of a published size.
 *   param    size: tiny, small, base or large
 *   errors   INVALID (another name, with the names there are) */
TRM_API TRM_MUST_USE trm_status trm_vit_size(const char *size, trm_vit_options *options,
                                             trm_error *err);
/* Replaces the zeros of *options by the defaults. */
TRM_API void trm_vit_complete(trm_vit_options *options);
/* Adds a vision transformer: image [N, C, H, W] -> logits [N, classes]. Names, shapes and initial
 * values of the parameters are those of transformers' ViTForImageClassification,
 * "vit.embeddings.cls_token", "vit.encoder.layer.0.attention.attention.query.weight" ...
 *   source   Dosovitskiy et al. 2020 */
TRM_API trm_node trm_vit(trm_graph *graph, trm_node image, int64_t classes,
                         const trm_vit_options *options);

/* ---- language ------------------------------------------------------------------------------ */

/* Language models. A model of trireme/train.h whose network ends in its loss never holds the logits
 * of a batch (examples/gpt.c):
 *
 *     trm_node network(trm_graph *g, const trm_inputs *in, void *options) {
 *         return trm_language_loss(g, "gpt2", trm_inputs_get(in, "tokens"),
 *                                  trm_inputs_get(in, "targets"), options);
 *     }
 *     trm_node loss(trm_graph *g, trm_node value, const trm_inputs *in, void *unused) {
 *         return value;
 *     } */

/* Options of a language model. Zero means the default; functions accept NULL for all zeros. */
typedef struct trm_language_options {
    int64_t layers;      /* 0 = 12 */
    int64_t width;       /* values of a position; 0 = 768; a multiple of heads */
    int64_t heads;       /* 0 = 12; a multiple of kv_heads */
    int64_t kv_heads;    /* heads of keys and values; 0 = heads */
    int64_t hidden;      /* width of the layer after attention; 0 = 4 width, llama 8/3 width */
    int64_t context;     /* most positions; 0 = 1024, bert 512 */
    int64_t vocabulary;  /* tokens; 0 = 50257, bert 30522 */
    double dropout;      /* rate for embeddings and for the output of each layer; 0 = none */
    double epsilon;      /* of norms; 0 = 1e-5, bert 1e-12 */
    double rotary_theta; /* llama: base of the angles; 0 = 10000 */
    bool untied;         /* llama: the output layer has weights of its own, lm_head.weight */
    /* llama, untied: of the token embedding only the rows of the batch are updated, as of other
     * tables (lazy Adam); false: all, as PyTorch does */
    bool lazy_embedding;
    int64_t experts;       /* moe: of each block; 0 = 8 */
    int64_t top_experts;   /* moe: that compute a token; 0 = 2 */
    double balance;        /* moe: factor of the mean load balance in the training loss; 0 = 0.01 */
    trm_lora_options lora; /* adapters, which alone are trained */
    /* bert: int32 [B, T]: tokens with 0 are not read as keys; TRM_NO_NODE = all are */
    trm_node mask;
    /* bert: share of a sample's tokens that have targets, where it is known
     * (trm_text_options.masking): the loss takes memory for as many. 0 = all may have */
    double masking;
} trm_language_options;
/* Sets the options of a published size.
 *   param    model: name of the model
 *            size: gpt2: small (also gpt2), medium, large, xl, tiny (4 layers of width 128); llama:
 *            llama15m, llama110m, 1b, 8b; moe: those of gpt2; bert: base, large, medium, small,
 *            mini, tiny
 *   errors   INVALID (another name, with the names there are) */
TRM_API TRM_MUST_USE trm_status trm_language_size(const char *model, const char *size,
                                                  trm_language_options *options, trm_error *err);
/* Returns whether the model predicts masked tokens (bert) instead of the next ones: its targets are
 * the tokens at masked positions (trm_text_options.masking), and it generates no text. False for a
 * name that is no language model.
 *   threads  any */
TRM_API bool trm_language_is_masked(const char *model);
/* Replaces the zeros of *options by the model's defaults.
 *   errors   INVALID (no such model) */
TRM_API TRM_MUST_USE trm_status trm_language_complete(const char *model,
                                                      trm_language_options *options,
                                                      trm_error *err);
/* Adds the language model of this name: token ids int32 or int64 [B, T], T at most the context ->
 * logits [B, T, vocabulary]. Names, shapes and initial values of the parameters are those of
 * transformers: gpt2 "wte.weight", "wpe.weight", "h.0.attn.c_attn.weight" [width, 3 width] ...,
 * llama "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight" ... moe is gpt2 with
 * experts in place of the layers after attention (trm_mixture_of_experts),
 * "h.0.mlp.router.weight", "h.0.mlp.experts.up", "h.0.mlp.experts.down". The output layer uses the
 * token embedding unless the options say otherwise. For another name the graph keeps an error that
 * lists the names.
 *   source   Radford et al. 2019 (gpt2); Touvron et al. 2023 (llama); Fedus et al. 2021 (moe);
 *            Devlin et al. 2018 (bert) */
TRM_API trm_node trm_language_build(trm_graph *graph, const char *model, trm_node ids,
                                    const trm_language_options *options);
/* Adds the language model with its mean cross-entropy, without keeping the logits
 * (trm_linear_cross_entropy): ids as in trm_language_build -> scalar. In a graph for training, moe
 * adds its load balance.
 *   param    targets: int32 [B, T]: the ids of the next positions, of bert those of masked ones;
 *            -100 does not count */
TRM_API trm_node trm_language_loss(trm_graph *graph, const char *model, trm_node ids,
                                   trm_node targets, const trm_language_options *options);

/* ---- recommendation ------------------------------------------------------------------------ */

/* The fields of a batch of click data (trireme/data.h) as nodes. Unless the options name tables,
 * all fields share one table: a key is a row of it (trm_click_options.shared_table), so that a
 * batch is one gather. With parameter servers a batch is one request to each server, however many
 * tables there are. */
typedef struct trm_click_inputs {
    trm_node keys; /* int64 [N, F]; with bags [K] */
    /* bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else TRM_NO_NODE */
    trm_node offsets;
    trm_node values; /* bags: float32 [K], a weight for each key; TRM_NO_NODE: all 1 */
    trm_node dense;  /* float32 [N, D], or TRM_NO_NODE */
    int64_t batch;   /* N; needed with bags */
} trm_click_inputs;

/* A table of some of the fields. Fields of one table share its rows: equal keys are one row. */
typedef struct trm_field_table {
    const char *name;      /* parameters are "embedding.NAME.weight" and "wide.NAME.weight" */
    const int32_t *fields; /* [count] numbers of fields from 0; each field is in one table */
    int32_t count;
    int64_t rows; /* 0 = rows of trm_recommender_options */
    /* values of a row; 0 = width of trm_recommender_options; DeepFM and DLRM need one width */
    int64_t width;
    trm_init init; /* initial values; 0 = table_init */
} trm_field_table;

/* Options of the four models below. Zero means the model's default, except for `rows`.
 *
 * Names of the parameters: "embedding.weight" [rows, width], "wide.weight" [rows, 1] (with `tables`
 * "embedding.NAME.weight", "wide.NAME.weight"), "wide_dense.weight" [1, D], "bias", "deep.0.weight"
 * ..., "bottom.0.weight", "top.0.weight", "cross.0.weight" or "cross.0.u" and ".v", "out.weight".
 */
typedef struct trm_recommender_options {
    /* rows of the table, the keys of all fields; must be given here or in each of `tables` */
    int64_t rows;
    /* [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of
     * each field then begin at 0 (trm_click_options without shared_table). Not with bags */
    const trm_field_table *tables;
    int32_t tables_count;    /* 0 = none */
    int64_t width;           /* values of a row; 0 = 16 */
    trm_bag_pooling pooling; /* of the rows of a bag */
    const int64_t *hidden;   /* widths of the ReLU layers before the logit; NULL = the model's */
    int32_t hidden_count;    /* number of hidden layers; 0 = the model's, TRM_NONE = none */
    /* DLRM: widths of the layers of the dense inputs, before the one of `width` */
    const int64_t *bottom;
    int32_t bottom_count; /* 0 = the model's */
    int32_t cross_layers; /* DCNv2; 0 = 3 */
    int64_t cross_rank;   /* DCNv2: matrices U V^T of this rank; 0 = full matrices */
    /* DCNv2: the deep part reads the output of the cross part; false: it stands beside it */
    bool stacked;
    /* Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on */
    trm_switch wide_dense;
    trm_init table_init; /* initial values of tables; 0 = TRM_INIT_NORMAL_001 */
    /* initial values of layers' weights; 0 = Glorot's; biases begin at 0 */
    trm_init layer_init;
} trm_recommender_options;

/* Adds Wide&Deep: a linear part on keys and dense inputs plus a deep network on the embeddings ->
 * logits [N]. Default of hidden: 256, 128.
 *   source   Cheng et al. 2016 */
TRM_API trm_node trm_widedeep(trm_graph *graph, const trm_click_inputs *inputs,
                              const trm_recommender_options *options);
/* Adds DeepFM: a linear part, a factorisation machine and a deep network that share the embeddings
 * -> logits [N]. Default of hidden: 400, 400, 400.
 *   source   Guo et al. 2017 */
TRM_API trm_node trm_deepfm(trm_graph *graph, const trm_click_inputs *inputs,
                            const trm_recommender_options *options);
/* Adds DCN-v2: cross layers x(l+1) = x0 * (W x(l) + b) + x(l) on embeddings and dense inputs, and a
 * deep network beside or after them -> logits [N]. Default of hidden: 400, 400, 400.
 *   source   Wang et al. 2021 */
TRM_API trm_node trm_dcnv2(trm_graph *graph, const trm_click_inputs *inputs,
                           const trm_recommender_options *options);
/* Adds DLRM: bottom layers turn the dense inputs into a row of `width`; the inner products of all
 * pairs of rows go through the top layers -> logits [N]. Defaults: bottom 512, 256, 64; hidden
 * (top) 512, 256.
 *   source   Naumov et al. 2019 */
TRM_API trm_node trm_dlrm(trm_graph *graph, const trm_click_inputs *inputs,
                          const trm_recommender_options *options);

/* Adds the recommender of this name: widedeep, deepfm, dcnv2 or dlrm. For another name the graph
 * keeps an error that lists the names. */
TRM_API trm_node trm_recommender_build(trm_graph *graph, const char *name,
                                       const trm_click_inputs *inputs,
                                       const trm_recommender_options *options);

/* ---- by name ------------------------------------------------------------------------------- */

/* Options of networks by name. Zero means the default. */
typedef struct trm_network_options {
    int64_t classes;         /* 0 = 10 */
    trm_stem stem;           /* ResNets: the first layers */
    bool zero_init_residual; /* ResNets, as in trm_resnet_options */
    trm_vit_options vit;     /* vit: its options */
} trm_network_options;
/* Adds the network of this name, as the command line has it: resnet18, resnet34, resnet50,
 * resnet101, resnet152, mlp (hidden 512, 256), lenet or vit. For another name the graph keeps an
 * error that lists the names.
 *   param    image: [N, C, H, W] */
TRM_API trm_node trm_network_build(trm_graph *graph, const char *name, trm_node image,
                                   const trm_network_options *options);

/* ==== generating text ======================================================================== */

/* A generator reads tokens and gives the logits of the next one. It keeps the keys and values of
 * all tokens that it has read, so that a token costs one pass over the weights.
 *
 *     trm_generator *generator;
 *     trm_generator_create(model, &(trm_generator_options){.model = "gpt2", .network = &network},
 *                          &generator, &err);
 *     trm_generator_read(generator, prompt.ids, prompt.count, &err);
 *     for (int i = 0; i < 200; i++) {
 *         int32_t id = trm_generator_choose(generator, &(trm_sampling){.temperature = 0.8});
 *         trm_generator_read(generator, &id, 1, &err);
 *     }
 *
 *   threads  one thread at a time per generator, and not while its model trains */

/* A model of trireme/train.h. */
typedef struct trm_model trm_model;

/* Options of a generator. Zero means the default, except for `model`. Borrowed during the call. */
typedef struct trm_generator_options {
    const char *model;                   /* name of the language model (gpt2, llama, moe) */
    const trm_language_options *network; /* options that it was built with; NULL = all zeros */
} trm_generator_options;

/* Tokens to logits, with a cache of keys and values. */
typedef struct trm_generator trm_generator;

/* Creates a generator that uses the parameters of `model` where they are. It computes in the
 * model's precision; the weights of bfloat16 products are converted once.
 *   param    model: made of the language model's graph; must outlive the generator
 *   errors   INVALID (no such language model, one of masked tokens, options of another network),
 *            NOMEM, those of trm_exec_create
 *   owns     caller: trm_generator_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_generator_create(trm_model *model,
                                                     const trm_generator_options *options,
                                                     trm_generator **out, trm_error *err);
/* Frees the generator. NULL is accepted. */
TRM_API void trm_generator_destroy(trm_generator *generator);

/* Forgets all tokens, and reads the parameters again, which training may have changed. */
TRM_API void trm_generator_reset(trm_generator *generator);
/* Reads tokens after those that were read before. When there are as many as the model has
 * positions, the generator forgets all but the last half of them, which it reads again.
 *   param    ids: [count]
 *   errors   INVALID (an id outside of the vocabulary; the generator is then reset) */
TRM_API TRM_MUST_USE trm_status trm_generator_read(trm_generator *generator, const int32_t *ids,
                                                   int64_t count, trm_error *err);
/* Returns the logits [vocabulary] of the token after those that were read; NULL before the first.
 *   owns     the generator: valid until its next call */
TRM_API const float *trm_generator_logits(const trm_generator *generator);
/* Returns the bytes of weights that the computation of one token reads: the weights of all
 * products, in the types in which they are kept. */
TRM_API int64_t trm_generator_weight_bytes(const trm_generator *generator);

/* Options of choosing a token from logits. Zero means the default. */
typedef struct trm_sampling {
    double temperature; /* divides the logits; 0 = the most probable token */
    int64_t top_k;      /* of the k most probable tokens only; 0 = all */
    double top_p;       /* of the fewest tokens that have this probability together; 0 = all */
    uint64_t seed;      /* the same seed chooses the same tokens */
} trm_sampling;
/* Chooses the token after those that were read: a function of their logits, the options and the
 * number of tokens that were read.
 *   param    sampling: NULL = all zeros
 *   returns  the id; -1 before the first token */
TRM_API int32_t trm_generator_choose(const trm_generator *generator, const trm_sampling *sampling);

#ifdef __cplusplus
}
#endif
#endif
