/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of a transformer on their way to Hugging Face's programs (adapters.h).
 *
 *      merged     W + (alpha / rank) B A           as the weights of transformers
 *      separate   base_model.model.NAME.lora_A.weight ...  as peft names them, and adapter_config.json
 *
 * peft names a layer as the modules of transformers, which for ViT are not the names of its files.
 */
#include "train/export/adapters.h"

#include "models/blocks.h"
#include "models/language/language.h"
#include "models/lora.h"

#include "base/error.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- merged ---------------------------------------------------------------------------------- */

/* Finds the tensor NAME.`part`.weight for a tensor NAME.lora_A.weight; NULL: there is none. */
static const trm_named_tensor *find_beside(const trm_named_tensor *tensors, int64_t count,
                                           const char *name, const char *part) {
    char wanted[512];
    int length = (int)(strstr(name, ".lora_A.") - name);
    if (snprintf(wanted, sizeof wanted, "%.*s.%s", length, name, part) >= (int)sizeof wanted) {
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, wanted) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* Adds scale B A to W [outputs, inputs], or its transpose to W [inputs, outputs]. */
static void add_product(const trm_tensor *a, const trm_tensor *b, double scale, bool transposed,
                        const trm_tensor *w) {
    int64_t rank = a->shape.dim[0], inputs = a->shape.dim[1], outputs = b->shape.dim[0];
    const float *down = a->data, *up = b->data;
    float *weights = w->data;
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t r = 0; r < rank; r++) {
            float by = (float)(scale * (double)up[o * rank + r]);
            for (int64_t i = 0; i < inputs; i++) {
                weights[transposed ? i * outputs + o : o * inputs + i] += by * down[r * inputs + i];
            }
        }
    }
}

trm_status trmi_adapters_merge(const trm_lora_options *lora, bool transposed,
                               trm_named_tensor *tensors, int64_t *count, trm_error *err) {
    for (int64_t i = 0; i < *count; i++) {
        const char *name = tensors[i].name;
        if (strstr(name, ".lora_A.") == NULL) {
            continue;
        }
        /* A [r, in] with B [out, r] and the weight W [out, in] beside it means W += scale B A. */
        const trm_named_tensor *b = find_beside(tensors, *count, name, "lora_B.weight"),
                               *w = find_beside(tensors, *count, name, "weight");
        const trm_shape *a = &tensors[i].tensor.shape;
        bool fits = b != NULL && w != NULL && b->tensor.shape.dim[1] == a->dim[0] &&
                    w->tensor.shape.dim[transposed ? 0 : 1] == a->dim[1] &&
                    w->tensor.shape.dim[transposed ? 1 : 0] == b->tensor.shape.dim[0];
        if (!fits) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: no weights that fit beside it", name);
        }
        add_product(&tensors[i].tensor, &b->tensor, trmi_lora_scale(lora), transposed, &w->tensor);
    }
    /* the adapters are in the weights now */
    int64_t kept = 0;
    for (int64_t i = 0; i < *count; i++) {
        if (!trmi_is_adapter(tensors[i].name)) {
            tensors[kept++] = tensors[i];
        }
    }
    *count = kept;
    return TRM_OK;
}

/* ---- separate -------------------------------------------------------------------------------- */

/* Returns a number of the configuration, whole where it can be. */
static json_t *json_number(double value) {
    return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

/* Writes the name of a layer or parameter as the module of transformers has it. */
static void name_module(const char *model, const char *name, char *text, size_t size) {
    static const char *const vit[][2] = {{"vit.encoder.layer.", "vit.layers."},
                                         {"attention.attention.query", "attention.q_proj"},
                                         {"attention.attention.key", "attention.k_proj"},
                                         {"attention.attention.value", "attention.v_proj"},
                                         {"attention.output.dense", "attention.o_proj"},
                                         {"intermediate.dense", "mlp.fc1"},
                                         {"output.dense", "mlp.fc2"}};
    bool renames = strcmp(model, "vit") == 0;
    snprintf(text, size, "%s", name);
    for (size_t i = 0; renames && i < sizeof vit / sizeof vit[0]; i++) {
        char *at = strstr(text, vit[i][0]);
        char rest[512];
        if (at != NULL) {
            snprintf(rest, sizeof rest, "%s", at + strlen(vit[i][0]));
            snprintf(at, size - (size_t)(at - text), "%s%s", vit[i][1], rest);
        }
    }
}

/* Returns the layers that have adapters, as peft finds them: the ends of their names, or for bert
 * an expression, because "output.dense" is also the end of "attention.output.dense". */
static json_t *list_layers(const char *model, const trm_lora_options *lora) {
    const trmi_language *language = trmi_language_of(model);
    const char *const *all = language != NULL ? language->layers : trmi_vit_layers;
    bool by_expression = strcmp(model, "bert") == 0;
    char expression[512] = "", name[256];
    json_t *layers = json_array();
    const char *layer;
    for (int32_t i = 0; (layer = trmi_lora_layer(all, lora, i)) != NULL; i++) {
        size_t used = strlen(expression);
        name_module(model, layer, name, sizeof name);
        json_array_append_new(layers, json_string(name));
        snprintf(expression + used, sizeof expression - used, "%s%s", i > 0 ? "|" : "", name);
    }
    if (!by_expression) {
        return layers;
    }
    json_decref(layers);
    return json_sprintf(".*\\.layer\\.\\d+\\.(%s)", expression);
}

/* Returns adapter_config.json; NULL: no memory. */
static json_t *make_config(const char *model, const trm_lora_options *lora, bool transposed) {
    bool causal = strcmp(model, "bert") != 0 && strcmp(model, "vit") != 0;
    json_t *layers = list_layers(model, lora);
    return json_pack("{s:s,s:s?,s:n,s:I,s:o,s:o,s:o,s:b,s:s,s:b}", "peft_type", "LORA", "task_type",
                     causal ? "CAUSAL_LM" : NULL, "base_model_name_or_path", "r",
                     (json_int_t)lora->rank, "lora_alpha",
                     json_number(lora->alpha > 0 ? lora->alpha : (double)lora->rank),
                     "lora_dropout", json_real(lora->dropout), "target_modules", layers,
                     "fan_in_fan_out", (int)transposed, "bias", "none", "inference_mode", 1);
}

trm_status trmi_adapters_write(const char *model, const trm_lora_options *lora, bool transposed,
                               const trm_named_tensor *tensors, int64_t count, const char *folder,
                               trm_error *err) {
    static const trm_text_pair metadata[] = {{"format", "pt"}};
    char path[4096];
    trmi_arena arena = {0};
    int64_t adapters = 0;
    trm_named_tensor *list = trmi_arena_alloc(&arena, (size_t)(count + 1) * sizeof *list);
    json_t *root = make_config(model, lora, transposed);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    trm_status status = list != NULL && text != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "for adapters");
    for (int64_t i = 0; status == TRM_OK && i < count; i++) {
        /* peft's names */
        if (trmi_is_adapter(tensors[i].name)) {
            char name[512];
            name_module(model, tensors[i].name, name, sizeof name);
            list[adapters] = tensors[i];
            list[adapters].name = trmi_arena_printf(&arena, "base_model.model.%s", name);
            status = list[adapters++].name != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "for adapters");
        }
    }
    if (status == TRM_OK) {
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
        status = trm_safetensors_write(path, list, adapters, metadata, 1, err);
    }
    if (status == TRM_OK) {
        snprintf(path, sizeof path, "%s/adapter_config.json", folder);
        status = trm_file_write(path, text, strlen(text), err);
    }
    free(text);
    json_decref(root);
    trmi_arena_free(&arena);
    return status;
}
