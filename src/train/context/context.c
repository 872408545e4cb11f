/* SPDX-License-Identifier: Apache-2.0 */
/* A context: the texts of options, the rules between them, and their translation into
 * trm_parallel_options.
 *
 *      trm_context_set       one option: its name, and its value by the form of its row (context_values.c)
 *      trm_context_check     combinations: the mode, pairs of options, options that a split graph cannot honour
 *      trm_context_resolve   against the communicator, then into trm_parallel_options
 *
 * Combinations are checked in trm_context_check, because the order of setting is free. Unset
 * options have the default of the mode. Rows of the table are in context_table.c. */
#include "train/context/context.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "exec/distributed/input_cuts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- create, set, get, reset ----------------------------------------------------------------- */

trm_status trm_context_create(trm_context **out, trm_error *err) {
    TRMI_NEED(err, out);
    trm_context *c;
    TRMI_TRY(TRMI_NEW(err, c, 1, "for a context"));
    trm_context_reset(c);
    *out = c;
    return TRM_OK;
}

void trm_context_destroy(trm_context *c) {
    if (c != NULL) {
        trmi_free(c->plan_text);
        trmi_free(c);
    }
}

void trm_context_reset(trm_context *c) {
    TRMI_NEED_OR(, NULL, c);
    trmi_free(c->plan_text);
    c->plan_text = NULL;
    for (int32_t i = 0; i < TRMI_CONTEXT_COUNT; i++) {
        snprintf(c->values[i].text, sizeof c->values[i].text, "%s", trmi_context_rows[i].fallback);
        c->values[i].set = false;
    }
}

/* Fails because no option has this name, with the nearest name if one is near. */
static trm_status fail_unknown(const char *name, trm_error *err) {
    const char *names[TRMI_CONTEXT_COUNT];
    for (int32_t i = 0; i < TRMI_CONTEXT_COUNT; i++) {
        names[i] = trmi_context_rows[i].name;
    }
    const char *nearest = trm_nearest_word(name, names, TRMI_CONTEXT_COUNT);
    return nearest != NULL
               ? TRMI_FAIL(err, TRM_INVALID, "no context option '%.60s'; the nearest is %s", name,
                           nearest)
               : TRMI_FAIL(err, TRM_INVALID,
                           "no context option '%.60s'; trireme help context lists them", name);
}

/* Contract in trireme/exec.h. Nothing changes after an error. */
trm_status trm_context_set(trm_context *c, const char *name, const char *value, trm_error *err) {
    TRMI_NEED(err, c, name, value);
    int32_t index = trmi_context_find(name);
    char text[TRMI_CONTEXT_TEXT_MAX];
    if (index < 0) {
        return fail_unknown(name, err);
    }
    TRMI_TRY(trmi_context_take(&trmi_context_rows[index], value, text, err));
    memcpy(c->values[index].text, text, strlen(text) + 1);
    c->values[index].set = true;
    return TRM_OK;
}

/* Returns the text of an option, as it was set or else its default. */
static const char *text_of(const trm_context *c, trmi_context_id id) { return c->values[id].text; }
/* Returns whether the program has set an option. */
static bool is_set(const trm_context *c, trmi_context_id id) { return c->values[id].set; }
/* Returns the value of an option that is true or false. */
static bool truth_of(const trm_context *c, trmi_context_id id) {
    return strcmp(text_of(c, id), "true") == 0;
}

/* Returns the parallel mode, a TRMI_ constant. */
static int mode_of(const trm_context *c) {
    int mode = 0;
    while (strcmp(trmi_context_mode_name(mode), text_of(c, TRMI_CONTEXT_PARALLEL_MODE)) != 0) {
        mode++;
    }
    return mode;
}

/* Returns whether the graph is split in this mode. */
static bool is_split(int mode) { return mode == TRMI_SEMI_AUTO || mode == TRMI_AUTO; }

/* Returns the value of an unset option. For three options it depends on the mode or on the
 * ranks. */
static const char *default_text(const trm_context *c, trmi_context_id id) {
    int mode = mode_of(c);
    if (id == TRMI_CONTEXT_PARAMETER_BROADCAST) {
        return mode == TRMI_DATA_PARALLEL || mode == TRMI_HYBRID_PARALLEL ? "true" : "false";
    }
    if (text_of(c, id)[0] == '\0' &&
        (id == TRMI_CONTEXT_DEVICE_NUM || id == TRMI_CONTEXT_GLOBAL_RANK)) {
        return id == TRMI_CONTEXT_DEVICE_NUM ? "1" : "0";
    }
    return text_of(c, id);
}

const char *trm_context_get(const trm_context *c, const char *name) {
    TRMI_NEED_OR(NULL, NULL, c, name);
    int32_t index = trmi_context_find(name);
    if (index < 0) {
        return NULL;
    }
    return is_set(c, (trmi_context_id)index) ? text_of(c, (trmi_context_id)index)
                                             : default_text(c, (trmi_context_id)index);
}

bool trm_context_is_set(const trm_context *c, const char *name) {
    TRMI_NEED_OR(false, NULL, c, name);
    int32_t index = trmi_context_find(name);
    return index >= 0 && c->values[index].set;
}

/* ---- options that exclude each other --------------------------------------------------------- */

/* Checks that every set option may be set in the mode. */
static trm_status check_modes(const trm_context *c, trm_error *err) {
    int mode = mode_of(c);
    for (int32_t i = 0; i < TRMI_CONTEXT_COUNT; i++) {
        const trmi_context_row *row = &trmi_context_rows[i];
        if (c->values[i].set && (row->modes & (1u << mode)) == 0) {
            trm_context_option option;
            (void)trm_context_option_at(i, &option);
            return TRMI_FAIL(err, TRM_INVALID, "%s is for parallel_mode %s; the mode is %s",
                             row->name, option.modes, trmi_context_mode_name(mode));
        }
    }
    return TRM_OK;
}

/* Checks pairs of options that contradict each other. */
static trm_status check_pairs(const trm_context *c, trm_error *err) {
    bool strict = strcmp(text_of(c, TRMI_CONTEXT_DETERMINISTIC), "strict") == 0;
    bool wide = strcmp(text_of(c, TRMI_CONTEXT_GRADIENT_WIRE), "fp32") == 0;
    if (is_set(c, TRMI_CONTEXT_ALL_REDUCE_FUSION_CONFIG) && is_set(c, TRMI_CONTEXT_COMM_FUSION)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "all_reduce_fusion_config and comm_fusion both say where gradients "
                         "are cut; one of them");
    }
    /* two options for the dtype of gradients */
    if (is_set(c, TRMI_CONTEXT_GRADIENT_WIRE) && is_set(c, TRMI_CONTEXT_GRADIENT_FP32_SYNC) &&
        wide != truth_of(c, TRMI_CONTEXT_GRADIENT_FP32_SYNC)) {
        return TRMI_FAIL(err, TRM_INVALID, "gradient_fp32_sync is %s, but gradient_wire is %s",
                         text_of(c, TRMI_CONTEXT_GRADIENT_FP32_SYNC),
                         text_of(c, TRMI_CONTEXT_GRADIENT_WIRE));
    }
    if (is_set(c, TRMI_CONTEXT_DETERMINISTIC_BLOCK) && !strict) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "deterministic_block is for deterministic strict; it is %s",
                         text_of(c, TRMI_CONTEXT_DETERMINISTIC));
    }
    /* two options for the samples that a rank reads */
    if (is_set(c, TRMI_CONTEXT_FULL_BATCH) && is_set(c, TRMI_CONTEXT_DATASET_STRATEGY) &&
        truth_of(c, TRMI_CONTEXT_FULL_BATCH) !=
            (strcmp(text_of(c, TRMI_CONTEXT_DATASET_STRATEGY), "full_batch") == 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "full_batch is %s, but dataset_strategy is %.60s",
                         text_of(c, TRMI_CONTEXT_FULL_BATCH),
                         text_of(c, TRMI_CONTEXT_DATASET_STRATEGY));
    }
    return TRM_OK;
}

/* Returns whether dataset_strategy lists cuts of the inputs, instead of one of its two words. */
static bool has_tuples(const trm_context *c) {
    const char *cuts = text_of(c, TRMI_CONTEXT_DATASET_STRATEGY);
    return strcmp(cuts, "data_parallel") != 0 && strcmp(cuts, "full_batch") != 0;
}

/* Rejects values that the modes with a split graph cannot honour, instead of ignoring them. */
static trm_status check_split(const trm_context *c, trm_error *err) {
    static const struct {
        trmi_context_id id;
        const char *honoured, *why;
    } options[] = {
        {TRMI_CONTEXT_STRATEGY_ONLY_TRAINABLE, NULL, "plans name operators"},
        {TRMI_CONTEXT_LOSS_REPEATED_MEAN, "true", "what several ranks compute alike counts once"},
        {TRMI_CONTEXT_ENABLE_ALLTOALL, "true",
         "layouts change by the cheapest route, all-to-all among them"},
        {TRMI_CONTEXT_GRADIENTS_MEAN, "true", "gradients are one device's with the whole batch"}};
    if (!is_split(mode_of(c))) {
        return TRM_OK;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        /* An option that was set must have the one value that the mode carries out. */
        const char *value = text_of(c, options[i].id), *honoured = options[i].honoured;
        if (is_set(c, options[i].id) && (honoured == NULL || strcmp(value, honoured) != 0)) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s %.60s is not carried out in %s: %s",
                             trmi_context_rows[options[i].id].name, value,
                             trmi_context_mode_name(mode_of(c)), options[i].why);
        }
    }
    trmi_input_cuts cuts;
    return has_tuples(c)
               ? trmi_input_cuts_parse(text_of(c, TRMI_CONTEXT_DATASET_STRATEGY), &cuts, err)
               : TRM_OK;
}

trm_status trm_context_check(const trm_context *c, trm_error *err) {
    TRMI_NEED(err, c);
    TRMI_TRY(check_modes(c, err));
    TRMI_TRY(check_pairs(c, err));
    return check_split(c, err);
}

/* Checks device_num and global_rank against the communicator, and fills them in where they are
 * unset. */
static trm_status check_ranks(trm_context *c, trm_comm *comm, trm_error *err) {
    int32_t here[2] = {comm != NULL ? trm_comm_size(comm) : 1,
                       comm != NULL ? trm_comm_rank(comm) : 0};
    static const trmi_context_id ids[2] = {TRMI_CONTEXT_DEVICE_NUM, TRMI_CONTEXT_GLOBAL_RANK};
    static const char *const what[2] = {"the job has %d ranks", "this process is rank %d"};
    static const char *const remedy[2] = {"start as many", "give each rank its own"};
    for (int i = 0; i < 2; i++) {
        trmi_context_value *v = &c->values[ids[i]];
        if (v->set && atoi(v->text) != here[i]) {
            char found[48];
            snprintf(found, sizeof found, what[i], here[i]);
            return TRMI_FAIL(err, TRM_INVALID, "%s is %s, but %s; leave it out, or %s",
                             trmi_context_rows[ids[i]].name, v->text, found, remedy[i]);
        }
        if (!v->set) {
            snprintf(v->text, sizeof v->text, "%d", here[i]);
        }
    }
    return TRM_OK;
}

/* Checks that the communicator was made deterministic if the context requires it. */
static trm_status check_order(const trm_context *c, trm_comm *comm, trm_error *err) {
    bool needs = comm != NULL && strcmp(text_of(c, TRMI_CONTEXT_DETERMINISTIC), "true") == 0;
    if (needs && trm_comm_deterministic(comm) == TRM_DETERMINISTIC_FALSE) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "deterministic is true, but the communicator was made without: "
                         "trm_comm_options.deterministic");
    }
    return TRM_OK;
}

/* ---- conversion to options of trireme/exec.h ------------------------------------------------- */

/* Returns the stages of the pipeline; 0 = none. */
static int32_t stages_of(const trm_context *c) {
    int32_t stages = atoi(text_of(c, TRMI_CONTEXT_PIPELINE_STAGES));
    return stages > 1 ? stages : 0;
}

/* Translates the two options of gradient fusion into the bucket options. */
static void fusion_of(trm_context *c, trm_parallel_options *out) {
    const char *text = text_of(c, TRMI_CONTEXT_COMM_FUSION);
    const char *list = is_set(c, TRMI_CONTEXT_ALL_REDUCE_FUSION_CONFIG)
                           ? text_of(c, TRMI_CONTEXT_ALL_REDUCE_FUSION_CONFIG)
                       : strncmp(text, "index:", 6) == 0 ? text + 6
                                                         : NULL;
    if (list != NULL) {
        out->bucket = TRM_BUCKET_LIST;
        out->bucket_list = c->cuts;
        out->bucket_list_count = trmi_context_cuts(list, c->cuts);
    } else if (strcmp(text, "off") == 0) {
        out->bucket = TRM_BUCKET_OFF;
    } else if (strcmp(text, "auto") != 0) {
        out->bucket = TRM_BUCKET_SIZE;
        out->bucket_bytes = trmi_context_size(text);
    }
}

/* Returns the dtype in which gradients are sent. */
static trm_dtype wire_of(const trm_context *c) {
    const char *text = text_of(c, TRMI_CONTEXT_GRADIENT_WIRE);
    if (!is_set(c, TRMI_CONTEXT_GRADIENT_WIRE) && !truth_of(c, TRMI_CONTEXT_GRADIENT_FP32_SYNC)) {
        return TRM_BFLOAT16;
    }
    return strcmp(text, "bf16") == 0   ? TRM_BFLOAT16
           : strcmp(text, "fp16") == 0 ? TRM_FLOAT16
                                       : TRM_FLOAT32;
}

/* Splits layerwise_parameters into names, which the context keeps.
 *   errors  INVALID: too many */
static trm_status names_of(trm_context *c, trm_parallel_options *out, trm_error *err) {
    const char *text = text_of(c, TRMI_CONTEXT_LAYERWISE_PARAMETERS);
    char *rest = NULL;
    memcpy(c->names_text, text, strlen(text) + 1);
    out->layerwise = c->names;
    for (char *name = strtok_r(c->names_text, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        if (out->layerwise_count == TRMI_CONTEXT_LIST_MAX) {
            return TRMI_FAIL(err, TRM_INVALID, "layerwise_parameters: at most %d names",
                             TRMI_CONTEXT_LIST_MAX);
        }
        c->names[out->layerwise_count++] = name;
    }
    return TRM_OK;
}

/* Returns whether the user has set the option to `value`. */
static bool option_equals(const trm_context *c, trmi_context_id id, const char *value) {
    return is_set(c, id) && strcmp(text_of(c, id), value) == 0;
}

/* Contract in trireme/exec.h. In a split program a rank reads samples of its own only where the
 * options say that it feeds its part of the batch. */
bool trm_context_own_samples(const trm_context *c, int32_t ranks) {
    TRMI_NEED_OR(false, NULL, c);
    trmi_input_cuts cuts;
    if (!is_split(mode_of(c)) || ranks < 2) {
        return false;
    }
    return option_equals(c, TRMI_CONTEXT_FULL_BATCH, "false") ||
           option_equals(c, TRMI_CONTEXT_DATASET_STRATEGY, "data_parallel") ||
           (has_tuples(c) &&
            trmi_input_cuts_parse(text_of(c, TRMI_CONTEXT_DATASET_STRATEGY), &cuts, NULL) ==
                TRM_OK &&
            trmi_input_cuts_by_samples(&cuts, ranks));
}

/* Reads the plan file, if one is given, and sets where plan and groups are written. */
static trm_status strategy_of(trm_context *c, trm_parallel_options *out, trm_error *err) {
    enum { MOST = 1 << 20 };
    const char *from = text_of(c, TRMI_CONTEXT_STRATEGY_LOAD),
               *to = text_of(c, TRMI_CONTEXT_STRATEGY_SAVE);
    size_t bytes;
    if (from[0] != '\0') {
        uint8_t *text = NULL;
        TRMI_TRY(trmi_os_read_file(from, MOST, &text, &bytes, err));
        trmi_free(c->plan_text);
        c->plan_text = (char *)text;
        out->split.plan = c->plan_text;
    }
    const char *groups = text_of(c, TRMI_CONTEXT_GROUP_CKPT_SAVE_FILE);
    out->split.save_plan = to[0] != '\0' ? to : NULL;
    out->split.save_groups = groups[0] != '\0' ? groups : NULL;
    out->split.search = text_of(c, TRMI_CONTEXT_SEARCH_MODE);
    return TRM_OK;
}

/* Returns which gradients are computed cooperatively. */
static trm_cooperative cooperative_of(const trm_context *c) {
    const char *word = text_of(c, TRMI_CONTEXT_COOPERATIVE_GRADIENTS);
    return strcmp(word, "all") == 0    ? TRM_COOPERATIVE_ALL
           : strcmp(word, "conv") == 0 ? TRM_COOPERATIVE_CONV
                                       : TRM_COOPERATIVE_OFF;
}

/* Returns the samples of a block in strict determinism (-1: the size follows from the global
 * batch); 0: the mode is not strict. */
static int32_t block_of(const trm_context *c) {
    if (strcmp(text_of(c, TRMI_CONTEXT_DETERMINISTIC), "strict") != 0) {
        return 0;
    }
    return is_set(c, TRMI_CONTEXT_DETERMINISTIC_BLOCK)
               ? atoi(text_of(c, TRMI_CONTEXT_DETERMINISTIC_BLOCK))
               : -1;
}

/* Sets which samples each rank of a split program reads: its part by given cuts of the inputs,
 * samples of its own, or the whole batch. */
static void settle_samples(const trm_context *c, trm_comm *comm, trm_parallel_options *out) {
    const bool many = comm != NULL && trm_comm_size(comm) > 1, tuples = has_tuples(c);
    const bool own = comm != NULL && trm_context_own_samples(c, many ? trm_comm_size(comm) : 2);
    const bool whole = comm != NULL && !own &&
                       (tuples || option_equals(c, TRMI_CONTEXT_FULL_BATCH, "true") ||
                        option_equals(c, TRMI_CONTEXT_DATASET_STRATEGY, "full_batch"));
    out->split.input_cuts = many && tuples ? text_of(c, TRMI_CONTEXT_DATASET_STRATEGY) : NULL;
    out->batch = own ? TRM_BATCH_OF_RANK : whole ? TRM_BATCH_OF_JOB : TRM_BATCH_DEFAULT;
}

/* Sets the members that only modes with a split graph have. The plan determines most others. */
static trm_status resolve_split(trm_context *c, trm_comm *comm, trm_parallel_options *out,
                                trm_error *err) {
    out->cooperative = cooperative_of(c);
    out->split.kind = comm == NULL              ? TRM_SPLIT_NONE
                      : mode_of(c) == TRMI_AUTO ? TRM_SPLIT_SEARCHED
                                                : TRM_SPLIT_PLANNED;
    settle_samples(c, comm, out);
    return strategy_of(c, out, err);
}

/* Sets the members that only stand_alone and the data-parallel modes have. */
static trm_status resolve_data_parallel(trm_context *c, trm_parallel_options *out, trm_error *err) {
    out->sum = !truth_of(c, TRMI_CONTEXT_GRADIENTS_MEAN);
    out->cooperative = mode_of(c) == TRMI_DATA_PARALLEL ? cooperative_of(c) : TRM_COOPERATIVE_OFF;
    out->broadcast =
        strcmp(trm_context_get(c, "parameter_broadcast"), "true") == 0 ? TRM_ON : TRM_OFF;
    return names_of(c, out, err);
}

/* Contract in trireme/exec.h. The outputs are written last, after every check. */
trm_status trm_context_resolve(trm_context *c, trm_comm *comm, trm_parallel_options *parallel,
                               int32_t *accumulate, trm_error *err) {
    TRMI_NEED(err, c, parallel, accumulate);
    comm = mode_of(c) == TRMI_STAND_ALONE ? NULL : comm;
    TRMI_TRY(trm_context_check(c, err));
    TRMI_TRY(check_ranks(c, comm, err));
    TRMI_TRY(check_order(c, comm, err));
    trm_parallel_options o = {
        .comm = comm,
        .wire = wire_of(c),
        .block = block_of(c),
        .pipeline.stages = stages_of(c),
        .shard_optimizer = truth_of(c, TRMI_CONTEXT_ENABLE_PARALLEL_OPTIMIZER),
        .sync_batch_norm = trmi_context_norm(text_of(c, TRMI_CONTEXT_SYNC_BATCH_NORM))};
    fusion_of(c, &o);
    TRMI_TRY(is_split(mode_of(c)) ? resolve_split(c, comm, &o, err)
                                  : resolve_data_parallel(c, &o, err));
    *parallel = o;
    *accumulate = atoi(text_of(c, TRMI_CONTEXT_GRAD_ACCUMULATION_STEP));
    return TRM_OK;
}
