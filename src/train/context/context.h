/* SPDX-License-Identifier: Apache-2.0 */
/* train/context/context.h: the options of a context (trireme/exec.h), as a table and as
 * texts.
 *
 *        set: text --checked by its row--> text kept       resolve: texts, ranks --> trm_parallel_options
 *
 *   context_table.c     the table: name, form, default, modes, meaning
 *   context_values.c    checks and parses the text of one option
 *   context.c           a context: set, get, checks between options, resolve
 *
 * Invariant: an option is checked by its row when it is set, and against other options when all
 * are resolved, so that the order in which a program sets them does not matter. */
#ifndef TRMI_TRAIN_CONTEXT_H
#define TRMI_TRAIN_CONTEXT_H

#include "trireme/exec.h"

/* Forms of values. */
typedef enum trmi_context_form {
    TRMI_CONTEXT_BOOL,
    TRMI_CONTEXT_INT,    /* from `low` to `high` */
    TRMI_CONTEXT_WORD,   /* one of `words`, "a|b|c" */
    TRMI_CONTEXT_TEXT,   /* any text: a file, a strategy */
    TRMI_CONTEXT_CUTS,   /* ascending numbers from 1: "20,35" */
    TRMI_CONTEXT_FUSION, /* auto, off, size:MB, index:20,35 */
    TRMI_CONTEXT_NORM,   /* off, on, or the ranks of a group */
    TRMI_CONTEXT_FIXED   /* only its default is accepted; `words`: why */
} trmi_context_form;

/* The parallel modes; row.modes has bit 1 << mode if the option may be set in that mode. */
enum {
    TRMI_STAND_ALONE,
    TRMI_DATA_PARALLEL,
    TRMI_HYBRID_PARALLEL,
    TRMI_SEMI_AUTO,
    TRMI_AUTO,
    TRMI_MODES
};

/* One option. */
typedef struct trmi_context_row {
    const char *name, *alias; /* alias: another name, or NULL */
    trmi_context_form form;
    int64_t low, high;    /* of numbers: the least and the largest value */
    const char *words;    /* of WORD, INT (the limits as text) and FIXED */
    const char *fallback; /* the text of the default */
    uint32_t modes;       /* modes in which it may be set, as bits */
    const char *meaning;  /* for help */
} trmi_context_row;

/* The rows, by number: context_table.c. */
/* clang-format off */
#define TRMI_CONTEXT_OPTIONS(X)                                                                    \
    X(PARALLEL_MODE) X(DEVICE_NUM) X(GLOBAL_RANK) X(GRADIENTS_MEAN) X(GRADIENT_FP32_SYNC)          \
    X(GRADIENT_WIRE) X(PARAMETER_BROADCAST) X(ALL_REDUCE_FUSION_CONFIG) X(COMM_FUSION)             \
    X(ENABLE_PARALLEL_OPTIMIZER) X(COOPERATIVE_GRADIENTS) X(PARALLEL_OPTIMIZER_THRESHOLD) X(OPTIMIZER_WEIGHT_SHARD_SIZE)    \
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

/* Bytes of a value, and numbers of a list, at most. */
enum { TRMI_CONTEXT_TEXT_MAX = 512, TRMI_CONTEXT_LIST_MAX = 64 };

/* The text of one option; `set`: by the user. */
typedef struct trmi_context_value {
    char text[TRMI_CONTEXT_TEXT_MAX];
    bool set;
} trmi_context_value;

/* The values that were set; texts are copies. */
struct trm_context {
    trmi_context_value values[TRMI_CONTEXT_COUNT];
    int32_t cuts[TRMI_CONTEXT_LIST_MAX]; /* lists that resolve lends to trm_parallel_options */
    char names_text[TRMI_CONTEXT_TEXT_MAX];
    const char *names[TRMI_CONTEXT_LIST_MAX];
    char *plan_text; /* plan file that resolve has read; owned */
};

/* Returns the number of an option by name or alias, -1 if there is none. */
int32_t trmi_context_find(const char *name);
/* context_values.c: checks `value` against its row and writes the normal form to `text` (lower
 * case, truth values true or false).
 *   errors  INVALID, UNSUPPORTED: an option with only one value */
trm_status trmi_context_take(const trmi_context_row *row, const char *value, char *text,
                             trm_error *err);
/* Parses ascending numbers; returns their count, -1 if `text` is no such list. */
int32_t trmi_context_cuts(const char *text, int32_t cuts[TRMI_CONTEXT_LIST_MAX]);
/* Returns the bytes of "size:MB", -1 if `text` is none. */
int64_t trmi_context_size(const char *text);
/* Returns trm_parallel_options.sync_batch_norm for off, on, or the ranks of a group;
 * TRMI_CONTEXT_NO_NORM for other texts. */
enum { TRMI_CONTEXT_NO_NORM = INT32_MIN };
int32_t trmi_context_norm(const char *text);
/* Returns the name of a mode. */
const char *trmi_context_mode_name(int mode);

#endif
