/* SPDX-License-Identifier: Apache-2.0 */
/* Published transformers and what they consist of: parameters of attention, dense layers, experts
 * and embeddings, and FLOPs of a token. The planner for machines that are not here prices blocks by
 * these numbers; no graph is built. `differs` of a model says what the published one has beside it.
 */
#include "plan/hardware/transformer.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* A published model: our model of its kind ("llama"), the preset's name ("8b"), sizes. */
typedef struct published_model {
    const char *model, *preset;
    trmi_transformer sizes;
} published_model;

/* name, layers, width, heads, key heads, head width, hidden, vocabulary, context, gated, tied,
 * learned positions. Sources: Llama 2 and 3 papers, Brown et al. 2020, Shoeybi et al. 2019,
 * Narayanan et al. 2021, Korthikanti et al. 2022, DeepSeek-V3 report, NVIDIA Nemotron reports. */
static const published_model published[] = {
    {"llama", "2-7b", {"Llama 2 7B", 32, 4096, 32, 32, 128, 11008, 32000, 4096, .gated = true}},
    {"llama", "2-13b", {"Llama 2 13B", 40, 5120, 40, 40, 128, 13824, 32000, 4096, .gated = true}},
    {"llama", "2-70b", {"Llama 2 70B", 80, 8192, 64, 8, 128, 28672, 32000, 4096, .gated = true}},
    {"llama", "8b", {"Llama 3 8B", 32, 4096, 32, 8, 128, 14336, 128256, 8192, .gated = true}},
    {"llama", "70b", {"Llama 3 70B", 80, 8192, 64, 8, 128, 28672, 128256, 8192, .gated = true}},
    {"llama",
     "405b",
     {"Llama 3.1 405B", 126, 16384, 128, 8, 128, 53248, 128256, 8192, .gated = true}},
    {"gpt2",
     "5b",
     {"GPT-3 5B", 24, 4096, 32, 32, 128, 16384, 51200, 2048, .tied = true, .positions = true}},
    {"gpt2",
     "20b",
     {"GPT-3 20B", 44, 6144, 48, 48, 128, 24576, 51200, 2048, .tied = true, .positions = true}},
    {"gpt2",
     "22b",
     {"GPT 22B", 48, 6144, 64, 64, 96, 24576, 51200, 2048, .tied = true, .positions = true}},
    {"gpt2",
     "175b",
     {"GPT-3 175B", 96, 12288, 96, 96, 128, 49152, 51200, 2048, .tied = true, .positions = true}},
    {"gpt2",
     "530b",
     {"MT-NLG 530B", 105, 20480, 128, 128, 160, 81920, 51200, 2048, .tied = true,
      .positions = true}},
    {"gpt2",
     "1t",
     {"GPT 1T", 128, 25600, 160, 160, 160, 102400, 51200, 2048, .tied = true, .positions = true}},
    {"gpt2",
     "nemotron-8b",
     {"Nemotron 8B", 32, 4096, 32, 32, 128, 16384, 256000, 4096, .tied = false}},
    {"gpt2",
     "nemotron-22b",
     {"Nemotron 22B", 40, 6144, 48, 48, 128, 24576, 256000, 4096, .tied = false}},
    {"gpt2",
     "nemotron-340b",
     {"Nemotron-4 340B", 96, 18432, 96, 8, 192, 73728, 256000, 4096, .tied = false}},
    {"moe",
     "deepseek-v3-shape",
     {"DeepSeek-V3 shape",
      61,
      7168,
      128,
      128,
      128,
      18432,
      129280,
      4096,
      .gated = true,
      .experts = 256,
      .top_experts = 8,
      .shared_experts = 1,
      .expert_hidden = 2048,
      .dense = 3,
      .query_rank = 1536,
      .key_rank = 512,
      .rotary_width = 64,
      .value_width = 128,
      .differs =
          "the module that predicts a second token is left out, experts have equal load, and "
          "the 3 dense blocks are spread over all stages"}},
    {"moe",
     "mixtral-8x7b",
     {"Mixtral 8x7B", 32, 4096, 32, 8, 128, 14336, 32000, 4096, .gated = true, .experts = 8,
      .top_experts = 2, .expert_hidden = 14336, .differs = "experts have equal load"}},
};
enum { PUBLISHED = sizeof published / sizeof published[0] };

/* Contract in transformer.h. `known` lists the presets of the model, for the message. */
bool trmi_transformer_preset(const char *model, const char *preset, trmi_transformer *out,
                             char known[160]) {
    size_t used = 0;
    known[0] = '\0';
    for (int i = 0; i < PUBLISHED; i++) {
        if (strcmp(published[i].model, model) != 0) {
            continue;
        }
        if (strcmp(published[i].preset, preset) == 0) {
            *out = published[i].sizes;
            return true;
        }
        if (used + strlen(published[i].preset) + 3 < 160) {
            used += (size_t)snprintf(known + used, 160 - used, "%s%s", used > 0 ? ", " : "",
                                     published[i].preset);
        }
    }
    return false;
}

/* Contract in transformer.h. With sizes below 2^26 no product of two of them overflows. */
trm_status trmi_transformer_check(const trmi_transformer *t, trm_error *err) {
    enum { MOST = 1 << 26 };
    const int64_t sizes[] = {t->layers,     t->width,  t->heads,      t->kv_heads,
                             t->head_width, t->hidden, t->vocabulary, t->context};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] < 1 || sizes[i] > MOST) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: a size is %lld, 1 to %d expected", t->name,
                             (long long)sizes[i], MOST);
        }
    }
    if (t->heads % t->kv_heads != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %lld heads found, a multiple of the %lld key heads expected", t->name,
                         (long long)t->heads, (long long)t->kv_heads);
    }
    return TRM_OK;
}

double trmi_transformer_key_width(const trmi_transformer *t) {
    return (double)(t->head_width + t->rotary_width);
}

double trmi_transformer_value_width(const trmi_transformer *t) {
    return (double)(t->value_width > 0 ? t->value_width : t->head_width);
}

double trmi_transformer_attention(const trmi_transformer *t) {
    double h = (double)t->width, heads = (double)t->heads, d = (double)t->head_width,
           norms = (t->gated ? 2 : 4) * h, q = (double)t->query_rank, c = (double)t->key_rank,
           r = (double)t->rotary_width, v = trmi_transformer_value_width(t);
    double keys = c > 0 ? h * q + q * heads * (d + r) + h * (c + r) + c * heads * (d + v)
                        : h * (heads + 2 * (double)t->kv_heads) * d;
    return keys + heads * v * h + norms;
}

/* Returns the parameters of a dense inner layer. */
static double count_dense(const trmi_transformer *t) {
    return (t->gated ? 3.0 : 2.0) * (double)t->width * (double)t->hidden;
}

double trmi_transformer_expert(const trmi_transformer *t) {
    return (t->gated ? 3.0 : 2.0) * (double)t->width * (double)t->expert_hidden;
}

double trmi_transformer_router(const trmi_transformer *t) {
    return (double)t->width * (double)t->experts;
}

/* Returns the parameters of the embeddings. */
static double count_embedding(const trmi_transformer *t) {
    return (double)t->width * ((double)t->vocabulary + (t->positions ? (double)t->context : 0));
}

/* Returns the parameters of the output layer, also where it is the embedding. */
static double count_output(const trmi_transformer *t) {
    return (double)t->width * (double)t->vocabulary;
}

/* Returns the parameters of all inner layers, with `experts` routed experts in each block of
 * experts. */
static double count_inner(const trmi_transformer *t, double experts) {
    double layers = (double)t->layers, dense = t->experts > 0 ? (double)t->dense : layers;
    return dense * count_dense(t) +
           (layers - dense) * ((experts + (double)t->shared_experts) * trmi_transformer_expert(t) +
                               trmi_transformer_router(t));
}

double trmi_transformer_parameters(const trmi_transformer *t) {
    return (double)t->layers * trmi_transformer_attention(t) + count_inner(t, (double)t->experts) +
           count_embedding(t) + (t->tied ? 0 : count_output(t));
}

double trmi_transformer_active(const trmi_transformer *t) {
    return (double)t->layers * trmi_transformer_attention(t) +
           count_inner(t, (double)t->top_experts) + count_output(t);
}

double trmi_transformer_flops(const trmi_transformer *t) {
    double widths = trmi_transformer_key_width(t) + trmi_transformer_value_width(t);
    return 6 * trmi_transformer_active(t) +
           6 * (double)t->layers * (double)t->context * (double)t->heads * widths / 2;
}
