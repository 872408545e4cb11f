/* SPDX-License-Identifier: Apache-2.0 */
/* train/context/context.h: the table of context options and what a context holds.
 *
 *      set: text --check by its row--> text kept       resolve: texts, ranks --> trm_parallel_options
 */
#ifndef TRMI_TRAIN_CONTEXT_H
#define TRMI_TRAIN_CONTEXT_H

#include "trireme/context.h"

typedef enum trmi_context_form {
    TRMI_CONTEXT_BOOL,
    TRMI_CONTEXT_INT,    /* from `low` to `high` */
    TRMI_CONTEXT_WORD,   /* one of `words`, "a|b|c" */
    TRMI_CONTEXT_TEXT,   /* anything: a file, a strategy */
    TRMI_CONTEXT_CUTS,   /* ascending numbers: "20,35" */
    TRMI_CONTEXT_FUSION, /* auto, off, size:MB, index:20,35 */
    TRMI_CONTEXT_NORM,   /* off, on, or the ranks of a group */
    TRMI_CONTEXT_FIXED   /* only its default; `words` says why */
} trmi_context_form;

/* The parallel modes; a row has a bit for each in which its option may be set. */
enum {
    TRMI_STAND_ALONE,
    TRMI_DATA_PARALLEL,
    TRMI_HYBRID_PARALLEL,
    TRMI_SEMI_AUTO,
    TRMI_AUTO,
    TRMI_MODES
};

typedef struct trmi_context_row {
    const char *name, *alias;
    trmi_context_form form;
    int64_t low, high;
    const char *words;
    const char *fallback;
    uint32_t modes;
    const char *meaning;
} trmi_context_row;

/* The rows, by number: context_table.c. */
/* clang-format off */
#define TRMI_CONTEXT_OPTIONS(X)                                                                    \
    X(PARALLEL_MODE) X(DEVICE_NUM) X(GLOBAL_RANK) X(GRADIENTS_MEAN) X(GRADIENT_FP32_SYNC)          \
    X(GRADIENT_WIRE) X(PARAMETER_BROADCAST) X(ALL_REDUCE_FUSION_CONFIG) X(COMM_FUSION)             \
    X(ENABLE_PARALLEL_OPTIMIZER) X(JOINT_GRADIENTS) X(PARALLEL_OPTIMIZER_THRESHOLD) X(OPTIMIZER_WEIGHT_SHARD_SIZE)    \
    X(GRADIENT_ACCUMULATION_SHARD) X(GRAD_ACCUMULATION_STEP) X(SYNC_BATCH_NORM)                    \
    X(LAYERWISE_PARAMETERS) X(DETERMINISTIC) X(DETERMINISTIC_BLOCK) X(SEARCH_MODE)                 \
    X(LOSS_REPEATED_MEAN) X(STRATEGY_LOAD) X(STRATEGY_SAVE) X(STRATEGY_ONLY_TRAINABLE)             \
    X(FULL_BATCH) X(DATASET_STRATEGY) X(ENABLE_ALLTOALL) X(PIPELINE_STAGES)                        \
    X(PIPELINE_RESULT_BROADCAST) X(GROUP_CKPT_SAVE_FILE)
/* clang-format on */
typedef enum trmi_context_id {
#define TRMI_CONTEXT_ID(name) TRMI_CONTEXT_##name,
    TRMI_CONTEXT_OPTIONS(TRMI_CONTEXT_ID)
#undef TRMI_CONTEXT_ID
        TRMI_CONTEXT_COUNT
} trmi_context_id;
extern const trmi_context_row trmi_context_rows[TRMI_CONTEXT_COUNT];

enum { TRMI_CONTEXT_TEXT_MAX = 512, TRMI_CONTEXT_LIST_MAX = 64 };

typedef struct trmi_context_value {
    char text[TRMI_CONTEXT_TEXT_MAX];
    bool set;
} trmi_context_value;

struct trm_context {
    trmi_context_value values[TRMI_CONTEXT_COUNT];
    int32_t cuts[TRMI_CONTEXT_LIST_MAX]; /* what resolve hands out */
    char names_text[TRMI_CONTEXT_TEXT_MAX];
    const char *names[TRMI_CONTEXT_LIST_MAX];
    char *plan_text; /* of strategy_ckpt_load_file, as resolve read it; owned */
};

/* The row's number by name or alias, -1 if there is none. */
int32_t trmi_context_find(const char *name);
/* context_values.c: `value` in the row's form, as kept (words small, truth values true or false).
 * INVALID */
trm_status trmi_context_take(const trmi_context_row *row, const char *value, char *text,
                             trm_error *err);
/* Ascending numbers, at least 1: their count, -1 when it is no such list. */
int32_t trmi_context_cuts(const char *text, int32_t cuts[TRMI_CONTEXT_LIST_MAX]);
/* Bytes of "size:MB", -1 when it is no such text. */
int64_t trmi_context_size(const char *text);
/* 0 off, -1 on, the ranks of a group; -2 when it is none of them. */
int32_t trmi_context_norm(const char *text);
/* "data_parallel" of a TRMI_ mode. */
const char *trmi_context_mode_name(int mode);

#endif
