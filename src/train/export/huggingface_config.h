/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/huggingface_config.h: the config.json of a Hugging Face folder. A dialect is a model
 * in the words of transformers; settings are its numbers in the words of this library. */
#ifndef TRMI_TRAIN_HUGGINGFACE_CONFIG_H
#define TRMI_TRAIN_HUGGINGFACE_CONFIG_H

#include "trireme/io.h"

#include <jansson.h>

/* The settings of a config.json. */
typedef struct trmi_huggingface_settings {
    trm_language_options language;
    trm_vit_options vit;
    int64_t image_size, classes; /* of an image model */
} trmi_huggingface_settings;

/* A whole number of config.json and its member of the settings. */
typedef struct trmi_huggingface_number {
    const char *key;
    size_t at;        /* offset of an int64_t in trmi_huggingface_settings */
    bool needed;      /* else absent or null means the model's default */
    const char *also; /* another key of transformers for it; NULL: none */
} trmi_huggingface_number;

/* A setting of which the models here have only one value: reading refuses others. */
typedef struct trmi_huggingface_fixed {
    const char *key, *value; /* JSON; absent is the same */
    const char *also;        /* another value with the same meaning; NULL = none */
} trmi_huggingface_fixed;

/* A model in the words of transformers. Lists end with a row without key. */
typedef struct trmi_huggingface_dialect {
    const char *model, *architecture, *prefix; /* prefix of the names of parameters */
    bool reads_images;
    bool inputs_first;      /* weights of layers are [in, out] */
    const char *epsilon;    /* key */
    size_t epsilon_at;      /* offset of a double */
    double epsilon_default; /* transformers' where config.json has none */
    trmi_huggingface_number numbers[10];
    trmi_huggingface_fixed fixed[8];
} trmi_huggingface_dialect;

/* Returns the dialect of a model; NULL: it is not translated. */
const trmi_huggingface_dialect *trmi_huggingface_find(const char *model);
/* Returns whether queries may share keys (kv_heads below heads) in a model of transformers. */
bool trmi_huggingface_shares_keys(const trmi_huggingface_dialect *dialect);
/* Returns the config.json of a model; NULL: no memory.
 *   param  tokenizer: NULL = none
 *   owns   caller: json_decref */
json_t *trmi_huggingface_config(const trmi_huggingface_dialect *dialect,
                                const trmi_huggingface_settings *given,
                                const trm_tokenizer *tokenizer);

#endif
