/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of operators in the description of a job: one table, one row a setting.
 *
 *     "conv2d.stride": 1                           all convolutions have stride 1
 *     "dropout.rate": "several, digest 0f3a..."    they differ; the digest differs if one of them does
 *     "attention.causal": 12                       of a flag: how many operators have it
 *
 * Two jobs are compared by these texts when one continues the other's checkpoint. So names are part
 * of files and do not change, and only operators of the forward graph count: all others follow from
 * them. */
#include "train/job/job_operators.h"

#include "base/hash/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>

/* Types of members of trmi_attrs. */
typedef enum setting_type { REAL, INT64, INT32, FLAG } setting_type;

/* A setting of operators of one kind: `count` neighbouring members of trmi_attrs. */
typedef struct setting {
    trmi_op_kind kind;
    const char *name; /* part of files: it must not change */
    size_t offset;
    setting_type type;
    int32_t count;
} setting;

/* Where a member of the attributes lies. */
#define AT(member) offsetof(trmi_attrs, member)
/* clang-format off */
static const setting settings[] = {
    {TRMI_OP_PARAMETER, "parameters.undecayed", AT(leaf.undecayed), FLAG, 1},
    {TRMI_OP_PARAMETER, "parameters.all_rows", AT(leaf.all_rows), FLAG, 1},
    {TRMI_OP_CONV2D, "conv2d.stride", AT(conv.stride), INT64, 2},
    {TRMI_OP_CONV2D, "conv2d.dilation", AT(conv.dilation), INT64, 2},
    {TRMI_OP_CONV2D, "conv2d.pad", AT(conv.pad), INT64, 4},
    {TRMI_OP_CONV2D, "conv2d.groups", AT(conv.groups), INT64, 1},
    {TRMI_OP_MAX_POOL, "max_pool.kernel", AT(pool.kernel), INT64, 2},
    {TRMI_OP_MAX_POOL, "max_pool.stride", AT(pool.stride), INT64, 2},
    {TRMI_OP_MAX_POOL, "max_pool.pad", AT(pool.pad), INT64, 4},
    {TRMI_OP_AVG_POOL, "avg_pool.kernel", AT(pool.kernel), INT64, 2},
    {TRMI_OP_AVG_POOL, "avg_pool.stride", AT(pool.stride), INT64, 2},
    {TRMI_OP_AVG_POOL, "avg_pool.pad", AT(pool.pad), INT64, 4},
    {TRMI_OP_AVG_POOL, "avg_pool.count_padding", AT(pool.count_padding), FLAG, 1},
    {TRMI_OP_BATCH_NORM, "batch_norm.epsilon", AT(norm.epsilon), REAL, 1},
    {TRMI_OP_BATCH_NORM, "batch_norm.momentum", AT(norm.momentum), REAL, 1},
    {TRMI_OP_LAYER_NORM, "layer_norm.epsilon", AT(layer_norm.epsilon), REAL, 1},
    {TRMI_OP_RMS_NORM, "rms_norm.epsilon", AT(layer_norm.epsilon), REAL, 1},
    {TRMI_OP_GELU, "gelu.tanh", AT(gelu.tanh), FLAG, 1},
    {TRMI_OP_SCALE, "scale.factor", AT(scale.factor), REAL, 1},
    {TRMI_OP_DROPOUT, "dropout.rate", AT(dropout.rate), REAL, 1},
    {TRMI_OP_PAD, "pad.value", AT(pad.value), REAL, 1},
    {TRMI_OP_ONE_HOT, "one_hot.on", AT(one_hot.on), REAL, 1},
    {TRMI_OP_ONE_HOT, "one_hot.off", AT(one_hot.off), REAL, 1},
    {TRMI_OP_SOFTMAX_XENT, "softmax_xent.ignores", AT(xent.use_ignore_index), FLAG, 1},
    {TRMI_OP_SOFTMAX_XENT, "softmax_xent.ignore_index", AT(xent.ignore_index), INT32, 1},
    {TRMI_OP_LINEAR_XENT, "linear_xent.ignores", AT(xent.use_ignore_index), FLAG, 1},
    {TRMI_OP_LINEAR_XENT, "linear_xent.ignore_index", AT(xent.ignore_index), INT32, 1},
    {TRMI_OP_ATTENTION, "attention.heads", AT(attention.heads), INT64, 1},
    {TRMI_OP_ATTENTION, "attention.kv_heads", AT(attention.kv_heads), INT64, 1},
    {TRMI_OP_ATTENTION, "attention.causal", AT(attention.causal), FLAG, 1},
    {TRMI_OP_ATTENTION, "attention.scale", AT(attention.scale), REAL, 1},
    {TRMI_OP_ROTARY, "rotary.theta", AT(rotary.theta), REAL, 1},
    {TRMI_OP_TOP_K, "top_k.k", AT(top_k.k), INT64, 1},
    {TRMI_OP_BAG_POOL, "bag_pool.pooling", AT(bag.pooling), INT32, 1},
};
/* clang-format on */
_Static_assert(sizeof(trm_bag_pooling) == sizeof(int32_t), "the pooling is read as int32");

/* Returns number `i` of a setting. */
static double number_of(const setting *s, const trmi_op *op, int32_t i) {
    const char *at = (const char *)&op->attrs + s->offset;
    double real;
    int64_t wide;
    int32_t narrow;
    bool flag;
    switch (s->type) {
    case REAL: return memcpy(&real, at + (size_t)i * sizeof real, sizeof real), real;
    case INT64: return memcpy(&wide, at + (size_t)i * sizeof wide, sizeof wide), (double)wide;
    case INT32: return memcpy(&narrow, at + (size_t)i * sizeof narrow, sizeof narrow), narrow;
    case FLAG: return memcpy(&flag, at, sizeof flag), flag;
    }
    return 0;
}

/* Puts one setting; nothing if no operator has that kind. */
static void put_setting(trmi_report *report, const trm_graph *graph, const setting *s) {
    uint64_t digest = TRMI_HASH_BEGIN;
    double first = 0, sum = 0;
    bool any = false, equal = true;
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        for (int32_t k = 0; k < s->count && op->kind == s->kind && op->phase == TRMI_FORWARD; k++) {
            double value = number_of(s, op, k);
            first = any ? first : value;
            any = true;
            equal = equal && value == first;
            sum += value;
            digest = trmi_hash(digest, &value, sizeof value);
        }
    }
    /* Write one value if all operators agree; else a digest of all values, which differs if one of
     * them does. */
    if (!any) {
        return;
    }
    char several[40];
    snprintf(several, sizeof several, "several, digest %016" PRIx64, digest);
    trmi_report_put(report, equal || s->type == FLAG
                                ? trmi_real(s->name, s->type == FLAG ? sum : first)
                                : trmi_string(s->name, several));
}

/* Contract in job_operators.h. In the order of the table. */
void trmi_job_put_operators(trmi_report *report, const trm_graph *graph) {
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        put_setting(report, graph, &settings[i]);
    }
}
