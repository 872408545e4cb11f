/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all context options, in the order in which help shows them: options of every
 * mode, of the data-parallel modes, of plans. `modes` names the modes in which an option may be
 * set; options with a single possible value (FIXED) are listed so that ported programs get a
 * reason instead of an unknown name. */
#include "train/context/context.h"

#include "base/arguments.h"

#include <string.h>

#define BIT(mode) (1u << TRMI_##mode)
#define ANY (BIT(STAND_ALONE) | RANKS)
#define SAME_GRAPH (BIT(DATA_PARALLEL) | BIT(HYBRID_PARALLEL))
#define PLANS (BIT(SEMI_AUTO) | BIT(AUTO))
#define RANKS (SAME_GRAPH | PLANS)
#define BOOL(name, alias, fallback, modes, meaning)                                                \
    { name, alias, TRMI_CONTEXT_BOOL, 0, 0, NULL, fallback, modes, meaning }
#define TEXT(name, fallback, modes, meaning)                                                       \
    { name, NULL, TRMI_CONTEXT_TEXT, 0, 0, NULL, fallback, modes, meaning }
#define INT(name, low, high, fallback, modes, meaning)                                             \
    { name, NULL, TRMI_CONTEXT_INT, low, high, #low " to " #high, fallback, modes, meaning }
#define FIXED(name, fallback, modes, why, meaning)                                                 \
    { name, NULL, TRMI_CONTEXT_FIXED, 0, 0, why, fallback, modes, meaning }
#define WORD(name, alias, words, fallback, modes, meaning)                                         \
    { name, alias, TRMI_CONTEXT_WORD, 0, 0, words, fallback, modes, meaning }

/* clang-format off */
const trmi_context_row trmi_context_rows[TRMI_CONTEXT_COUNT] = {
    [TRMI_CONTEXT_PARALLEL_MODE] = WORD("parallel_mode", NULL,
        "stand_alone|data_parallel|hybrid_parallel|semi_auto_parallel|auto_parallel", "stand_alone", ANY,
        "parallelisation mode: none, data parallel, data parallel except for named parameters, or by a plan"),
    [TRMI_CONTEXT_DEVICE_NUM] = INT("device_num", 1, 4096, "", ANY,
        "required number of ranks; default: any"),
    [TRMI_CONTEXT_GLOBAL_RANK] = INT("global_rank", 0, 4095, "", ANY,
        "required rank of this process; default: any"),
    [TRMI_CONTEXT_GRADIENTS_MEAN] = BOOL("gradients_mean", "mirror_mean", "false", RANKS,
        "gradients are averaged over the ranks; false: summed; split modes: gradients of one device, as with true"),
    [TRMI_CONTEXT_GRADIENT_FP32_SYNC] = BOOL("gradient_fp32_sync", NULL, "true", RANKS,
        "gradients travel as float32; false: as bfloat16"),
    [TRMI_CONTEXT_GRADIENT_WIRE] = WORD("gradient_wire", NULL, "fp32|bf16|fp16", "fp32", RANKS,
        "type in which gradients travel; they are summed in float32"),
    [TRMI_CONTEXT_PARAMETER_BROADCAST] = BOOL("parameter_broadcast", NULL, "", RANKS,
        "rank 0 sends its parameters and states to all ranks before training; default: true in data_parallel and hybrid_parallel"),
    [TRMI_CONTEXT_ALL_REDUCE_FUSION_CONFIG] = {"all_reduce_fusion_config", NULL, TRMI_CONTEXT_CUTS, 0, 0, NULL, "",
        SAME_GRAPH, "gradients are cut into buckets before these numbers"},
    [TRMI_CONTEXT_COMM_FUSION] = {"comm_fusion", NULL, TRMI_CONTEXT_FUSION, 0, 0, NULL, "auto", RANKS,
        "which gradients travel together: chosen by measured cost, none, by size, by number"},
    [TRMI_CONTEXT_ENABLE_PARALLEL_OPTIMIZER] = BOOL("enable_parallel_optimizer", NULL, "false", RANKS,
        "each rank keeps and updates a slice of the optimiser's state; the same bits (split modes: where a plan leaves all parameters whole)"),
    [TRMI_CONTEXT_COOPERATIVE_GRADIENTS] = WORD("cooperative_gradients", NULL, "off|conv|all", "off", BIT(DATA_PARALLEL) | PLANS,
        "cooperative gradients, with enable_parallel_optimizer on one host: ranks compute large weight gradients together from all ranks' "
        "samples; conv: not those of fully connected layers"),
    [TRMI_CONTEXT_PARALLEL_OPTIMIZER_THRESHOLD] = FIXED("parallel_optimizer_threshold", "0", RANKS,
        "slices are of bytes, across parameters: no parameter is too small for them",
        "parameters of fewer KB stay whole"),
    [TRMI_CONTEXT_OPTIMIZER_WEIGHT_SHARD_SIZE] = FIXED("optimizer_weight_shard_size", "-1", RANKS,
        "the optimiser's state is sliced over all ranks", "ranks that share one copy of the optimiser's state"),
    [TRMI_CONTEXT_GRADIENT_ACCUMULATION_SHARD] = FIXED("gradient_accumulation_shard", "false", RANKS,
        "accumulated gradients stay whole on each rank, so that they travel once a step",
        "accumulated gradients are sliced too"),
    [TRMI_CONTEXT_GRAD_ACCUMULATION_STEP] = INT("grad_accumulation_step", 1, 65536, "1", ANY,
        "batches whose gradients are averaged before an update"),
    [TRMI_CONTEXT_SYNC_BATCH_NORM] = {"sync_batch_norm", NULL, TRMI_CONTEXT_NORM, 0, 0, NULL, "on", RANKS,
        "batch norm over the samples of all ranks (on), of each rank (off), or, not in split modes, of RANKS neighbouring ranks"},
    [TRMI_CONTEXT_LAYERWISE_PARAMETERS] = {"layerwise_parameters", "layerwise_parallel", TRMI_CONTEXT_TEXT, 0, 0, NULL,
        "", BIT(HYBRID_PARALLEL), "hybrid_parallel: parameters, by name or by the first parts of the name, that each rank keeps for itself"},
    [TRMI_CONTEXT_DETERMINISTIC] = WORD("deterministic", NULL, "false|true|strict", "false", ANY,
        "sums in a fixed order; strict: the same bits on any number of ranks and threads"),
    [TRMI_CONTEXT_DETERMINISTIC_BLOCK] = INT("deterministic_block", 1, 65536, "", ANY,
        "strict: samples that are computed together, a block; default: chosen by the global batch"),
    [TRMI_CONTEXT_SEARCH_MODE] = WORD("search_mode", "auto_parallel_search_mode",
        "optimal|dynamic_programming|recursive_programming|sharding_propagation", "optimal", BIT(AUTO),
        "search algorithm"),
    [TRMI_CONTEXT_LOSS_REPEATED_MEAN] = BOOL("loss_repeated_mean", NULL, "true", PLANS,
        "gradients of an operator that several ranks compute alike are divided by the number of these ranks"),
    [TRMI_CONTEXT_STRATEGY_LOAD] = TEXT("strategy_ckpt_load_file", "", PLANS, "the plan file to follow"),
    [TRMI_CONTEXT_STRATEGY_SAVE] = TEXT("strategy_ckpt_save_file", "", PLANS, "the file to which the plan is written"),
    [TRMI_CONTEXT_STRATEGY_ONLY_TRAINABLE] = BOOL("strategy_ckpt_only_trainable_params", NULL, "true", PLANS,
        "these files contain trained parameters only"),
    [TRMI_CONTEXT_FULL_BATCH] = BOOL("full_batch", NULL, "false", PLANS, "every rank reads the whole batch"),
    [TRMI_CONTEXT_DATASET_STRATEGY] = TEXT("dataset_strategy", "data_parallel", PLANS,
        "how ranks read batches: each rank its samples, each the whole batch, or the number of parts of each dimension of each input: ((1,1,1,2),(2,))"),
    [TRMI_CONTEXT_ENABLE_ALLTOALL] = BOOL("enable_alltoall", NULL, "true", PLANS,
        "layouts may change by all-to-all, where that is cheapest"),
    [TRMI_CONTEXT_PIPELINE_STAGES] = INT("pipeline_stages", 1, 64, "1", RANKS,
        "stages of a pipeline: runs of operators, each on its own ranks; the batches of an update are its micro-batches"),
    [TRMI_CONTEXT_PIPELINE_RESULT_BROADCAST] = FIXED("pipeline_result_broadcast", "true", RANKS,
        "every rank gets the loss", "the last stage sends its result to all ranks"),
    [TRMI_CONTEXT_GROUP_CKPT_SAVE_FILE] = TEXT("group_ckpt_save_file", "", PLANS,
        "the file to which rank 0 writes which ranks hold the same parameters, one line for each group"),
};
/* clang-format on */

/* Names of the modes, as MindSpore has them. */
static const char *const mode_names[TRMI_MODES] = {
    "stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel"};

const char *trmi_context_mode_name(int mode) { return mode_names[mode]; }

int32_t trmi_context_find(const char *name) {
    for (int32_t i = 0; i < TRMI_CONTEXT_COUNT; i++) {
        const trmi_context_row *row = &trmi_context_rows[i];
        if (strcmp(row->name, name) == 0 || (row->alias != NULL && strcmp(row->alias, name) == 0)) {
            return i;
        }
    }
    return -1;
}

/* Returns the possible values of an option as help shows them. */
static const char *values_of(const trmi_context_row *row) {
    switch (row->form) {
    case TRMI_CONTEXT_BOOL: return "true|false";
    case TRMI_CONTEXT_INT:
    case TRMI_CONTEXT_WORD: return row->words;
    case TRMI_CONTEXT_CUTS: return "20,35";
    case TRMI_CONTEXT_FUSION: return "auto|off|size:MB|index:20,35";
    case TRMI_CONTEXT_NORM: return "off|on|RANKS";
    case TRMI_CONTEXT_FIXED: return row->fallback;
    default: return "text";
    }
}

/* Returns the modes of an option as help shows them. */
static const char *modes_of(uint32_t modes) {
    return modes == (ANY)          ? "all"
           : modes == (RANKS)      ? "all but stand_alone"
           : modes == (SAME_GRAPH) ? "data_parallel, hybrid_parallel"
           : modes == (PLANS)      ? "semi_auto_parallel, auto_parallel"
           : modes == BIT(AUTO)    ? "auto_parallel"
           : modes == (BIT(DATA_PARALLEL) | PLANS)
               ? "data_parallel, semi_auto_parallel, auto_parallel"
               : "hybrid_parallel";
}

/* Contract in trireme/exec.h. All texts are static. */
bool trm_context_option_at(int32_t index, trm_context_option *out) {
    TRMI_NEED_OR(false, NULL, out);
    if (index < 0 || index >= TRMI_CONTEXT_COUNT) {
        return false;
    }
    const trmi_context_row *row = &trmi_context_rows[index];
    *out = (trm_context_option){.name = row->name,
                                .alias = row->alias,
                                .values = values_of(row),
                                .least = row->low,
                                .most = row->high,
                                .fallback = row->fallback,
                                .modes = modes_of(row->modes),
                                .meaning = row->meaning};
    return true;
}
