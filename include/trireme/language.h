/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/language.h: what language models do besides training (door train): they generate text,
 * and exchange weights with Hugging Face. A generator reads tokens and gives the logits of the next
 * one. It keeps the keys and values of all tokens that it has read, so that a token costs one pass
 * over the weights.
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
#ifndef TRIREME_LANGUAGE_H
#define TRIREME_LANGUAGE_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/nn.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of a generator. Zero means the default, except for `model`. */
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

/* ---- Hugging Face folders -------------------------------------------------------------------- */

/* Folders as transformers writes and reads them: config.json, weights as safetensors, tokenizer.
 * There are those of language models, and of the image model vit. trm_model_load takes them, too.
 */

/* Options of an exported folder. Zero means the default, except for `model`. */
typedef struct trm_huggingface_options {
    const char *model;                   /* name of the language model, or vit */
    const trm_language_options *network; /* options that it was built with; NULL = all zeros */
    const trm_vit_options *vit;          /* vit: options that it was built with; NULL = all zeros */
    const trm_tokenizer *tokenizer;      /* written, too; NULL = none */
    int64_t shard_bytes;                 /* most bytes of a file of weights; 0 = 5e9 */
    /* a network with adapters: they are added to the weights; false: the folder has the adapters
     * alone, as peft loads them beside the weights that training began with */
    bool merge;
    /* vit: mean and deviation with which images are normalised after a factor of 1 / 255, written
     * to preprocessor_config.json; image_std all 0 = not known, not written */
    double image_mean[3], image_std[3];
} trm_huggingface_options;
/* Writes a folder that AutoModelForCausalLM.from_pretrained loads (bert: BertForMaskedLM, vit:
 * ViTForImageClassification): config.json, model.safetensors, or files of at most shard_bytes with
 * model.safetensors.index.json, the tokenizer's files, and for vit the preprocessor_config.json of
 * AutoImageProcessor. Makes the folder; config.json is the last file that is written. Adapters
 * without `merge`: adapter_model.safetensors and adapter_config.json of PeftModel.from_pretrained.
 *   errors   UNSUPPORTED (options that transformers' model does not have), INVALID, IO, NOSPACE,
 *            NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_huggingface(trm_model *model,
                                                       const trm_huggingface_options *options,
                                                       const char *folder, trm_error *err);
/* Reads the model and its options from the folder's config.json.
 *   param    model: name of the language model, written; a static string
 *   errors   IO, CORRUPT, UNSUPPORTED (naming the setting that the model here does not have) */
TRM_API TRM_MUST_USE trm_status trm_huggingface_read(const char *folder, const char **model,
                                                     trm_language_options *network, trm_error *err);
/* Reads an image model, its options and the height and width of its images from the folder's
 * config.json.
 *   param    model: "vit", written; a static string
 *   errors   IO, CORRUPT, UNSUPPORTED (naming the setting that the model here does not have) */
TRM_API TRM_MUST_USE trm_status trm_huggingface_read_image(const char *folder, const char **model,
                                                           trm_network_options *network,
                                                           int64_t *image_size, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
