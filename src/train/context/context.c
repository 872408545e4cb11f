/* SPDX-License-Identifier: Apache-2.0 */
/* A context: texts of options, and what they say together. */
#include "train/context/context.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life, set, get, reset
 *  -------------------------------------------------------------------------- */

trm_status trm_context_create(trm_context **out, trm_error *err) {
    trm_context *c = trmi_alloc(sizeof *c);
    if (c == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a context");
    }
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
    trmi_free(c->plan_text);
    c->plan_text = NULL;
    for (int32_t i = 0; i < TRMI_CONTEXT_COUNT; i++) {
        snprintf(c->values[i].text, sizeof c->values[i].text, "%s", trmi_context_rows[i].fallback);
        c->values[i].set = false;
    }
}

/* Letters to add, drop or change to make one word of the other. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    int row[LONGEST + 1], columns = (int)strlen(b);
    columns = columns > LONGEST ? LONGEST : columns;
    for (int j = 0; j <= columns; j++) {
        row[j] = j;
    }
    for (int i = 1; a[i - 1] != '\0'; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= columns; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            int other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < other ? change : other;
        }
    }
    return row[columns];
}

static trm_status no_such(const char *name, trm_error *err) {
    const char *nearest = trmi_context_rows[0].name;
    int best = 1000;
    for (int32_t i = 0; i < TRMI_CONTEXT_COUNT; i++) {
        int d = distance(name, trmi_context_rows[i].name);
        if (d < best) {
            best = d;
            nearest = trmi_context_rows[i].name;
        }
    }
    return 2 * best <= (int)strlen(name)
               ? TRMI_FAIL(err, TRM_INVALID, "no context option '%.60s'; the nearest is %s", name,
                           nearest)
               : TRMI_FAIL(err, TRM_INVALID,
                           "no context option '%.60s'; trireme help context lists them", name);
}

trm_status trm_context_set(trm_context *c, const char *name, const char *value, trm_error *err) {
    int32_t index = trmi_context_find(name);
    char text[TRMI_CONTEXT_TEXT_MAX];
    if (index < 0) {
        return no_such(name, err);
    }
    TRMI_TRY(trmi_context_take(&trmi_context_rows[index], value, text, err));
    memcpy(c->values[index].text, text, strlen(text) + 1);
    c->values[index].set = true;
    return TRM_OK;
}

static const char *text_of(const trm_context *c, trmi_context_id id) { return c->values[id].text; }
static bool is_set(const trm_context *c, trmi_context_id id) { return c->values[id].set; }
static bool truth_of(const trm_context *c, trmi_context_id id) {
    return strcmp(text_of(c, id), "true") == 0;
}

static int mode_of(const trm_context *c) {
    int mode = 0;
    while (strcmp(trmi_context_mode_name(mode), text_of(c, TRMI_CONTEXT_PARALLEL_MODE)) != 0) {
        mode++;
    }
    return mode;
}

static bool is_split(int mode) { return mode == TRMI_SEMI_AUTO || mode == TRMI_AUTO; }

/* Three that nobody need say depend on the mode. */
static const char *unset(const trm_context *c, trmi_context_id id) {
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
    int32_t index = trmi_context_find(name);
    if (index < 0) {
        return NULL;
    }
    return is_set(c, (trmi_context_id)index) ? text_of(c, (trmi_context_id)index)
                                             : unset(c, (trmi_context_id)index);
}

bool trm_context_is_set(const trm_context *c, const char *name) {
    int32_t index = trmi_context_find(name);
    return index >= 0 && c->values[index].set;
}

/* ---- what excludes each other
 *  --------------------------------------------------------------------- */

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

static trm_status check_pairs(const trm_context *c, trm_error *err) {
    bool strict = strcmp(text_of(c, TRMI_CONTEXT_DETERMINISTIC), "strict") == 0;
    bool wide = strcmp(text_of(c, TRMI_CONTEXT_GRADIENT_WIRE), "fp32") == 0;
    if (is_set(c, TRMI_CONTEXT_ALL_REDUCE_FUSION_CONFIG) && is_set(c, TRMI_CONTEXT_COMM_FUSION)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "all_reduce_fusion_config and comm_fusion both say where gradients "
                         "are cut; one of them");
    }
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
    if (is_set(c, TRMI_CONTEXT_FULL_BATCH) && is_set(c, TRMI_CONTEXT_DATASET_STRATEGY) &&
        truth_of(c, TRMI_CONTEXT_FULL_BATCH) !=
            (strcmp(text_of(c, TRMI_CONTEXT_DATASET_STRATEGY), "full_batch") == 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "full_batch is %s, but dataset_strategy is %.60s",
                         text_of(c, TRMI_CONTEXT_FULL_BATCH),
                         text_of(c, TRMI_CONTEXT_DATASET_STRATEGY));
    }
    return TRM_OK;
}

/* Values that the modes which split operators do not carry out: said, not swallowed. */
static trm_status check_split(const trm_context *c, trm_error *err) {
    static const struct {
        trmi_context_id id;
        const char *honoured, *why;
    } options[] = {
        {TRMI_CONTEXT_STRATEGY_ONLY_TRAINABLE, NULL, "plans name operators"},
        {TRMI_CONTEXT_LOSS_REPEATED_MEAN, "true", "what several ranks compute alike counts once"},
        {TRMI_CONTEXT_ENABLE_ALLTOALL, "true",
         "layouts change by the cheapest route, all-to-all among them"},
        {TRMI_CONTEXT_GRADIENTS_MEAN, "true", "gradients are one device's with the whole batch"},
        {TRMI_CONTEXT_DETERMINISTIC_BLOCK, NULL, "strict needs no blocks there"}};
    if (!is_split(mode_of(c))) {
        return TRM_OK;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const char *value = text_of(c, options[i].id), *honoured = options[i].honoured;
        if (is_set(c, options[i].id) && (honoured == NULL || strcmp(value, honoured) != 0)) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s %.60s is not carried out in %s: %s",
                             trmi_context_rows[options[i].id].name, value,
                             trmi_context_mode_name(mode_of(c)), options[i].why);
        }
    }
    const char *cuts = text_of(c, TRMI_CONTEXT_DATASET_STRATEGY);
    if (strcmp(cuts, "data_parallel") != 0 && strcmp(cuts, "full_batch") != 0) {
        return TRMI_FAIL(
            err, TRM_UNSUPPORTED,
            "dataset_strategy %.60s: data_parallel and full_batch are carried out; how inputs "
            "are cut is for the plan to say",
            cuts);
    }
    return TRM_OK;
}

trm_status trm_context_check(const trm_context *c, trm_error *err) {
    TRMI_TRY(check_modes(c, err));
    TRMI_TRY(check_pairs(c, err));
    return check_split(c, err);
}

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

static trm_status check_order(const trm_context *c, trm_comm *comm, trm_error *err) {
    bool needs = comm != NULL && strcmp(text_of(c, TRMI_CONTEXT_DETERMINISTIC), "true") == 0;
    if (needs && trm_comm_deterministic(comm) == TRM_DETERMINISTIC_FALSE) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "deterministic is true, but the communicator was made without: "
                         "trm_comm_options.deterministic");
    }
    return TRM_OK;
}

/* ---- in the words of trireme/exec.h
 *  ----------------------------------------------------------------- */

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

static trm_dtype wire_of(const trm_context *c) {
    const char *text = text_of(c, TRMI_CONTEXT_GRADIENT_WIRE);
    if (!is_set(c, TRMI_CONTEXT_GRADIENT_WIRE) && !truth_of(c, TRMI_CONTEXT_GRADIENT_FP32_SYNC)) {
        return TRM_BFLOAT16;
    }
    return strcmp(text, "bf16") == 0   ? TRM_BFLOAT16
           : strcmp(text, "fp16") == 0 ? TRM_FLOAT16
                                       : TRM_FLOAT32;
}

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

static bool said(const trm_context *c, trmi_context_id id, const char *value) {
    return is_set(c, id) && strcmp(text_of(c, id), value) == 0;
}

/* Plans come from files and go to files. */
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
        out->plan = c->plan_text;
    }
    const char *groups = text_of(c, TRMI_CONTEXT_GROUP_CKPT_SAVE_FILE);
    out->save_plan = to[0] != '\0' ? to : NULL;
    out->save_groups = groups[0] != '\0' ? groups : NULL;
    out->search = text_of(c, TRMI_CONTEXT_SEARCH_MODE);
    return TRM_OK;
}

static trm_joint joint_of(const trm_context *c) {
    const char *word = text_of(c, TRMI_CONTEXT_JOINT_GRADIENTS);
    return strcmp(word, "all") == 0    ? TRM_JOINT_ALL
           : strcmp(word, "conv") == 0 ? TRM_JOINT_CONV
                                       : TRM_JOINT_OFF;
}

trm_status trm_context_resolve(trm_context *c, trm_comm *comm, trm_parallel_options *parallel,
                               int32_t *accumulate, trm_error *err) {
    int mode = mode_of(c);
    comm = mode == TRMI_STAND_ALONE ? NULL : comm;
    TRMI_TRY(trm_context_check(c, err));
    TRMI_TRY(check_ranks(c, comm, err));
    TRMI_TRY(check_order(c, comm, err));
    bool strict = strcmp(text_of(c, TRMI_CONTEXT_DETERMINISTIC), "strict") == 0;
    if (is_split(mode)) {
        bool many = comm != NULL && trm_comm_size(comm) > 1;
        *parallel = (trm_parallel_options){.comm = comm,
                                           .wire = wire_of(c),
                                           .exact = strict,
                                           .shard_optimizer =
                                               truth_of(c, TRMI_CONTEXT_ENABLE_PARALLEL_OPTIMIZER),
                                           .joint = joint_of(c),
                                           .split = !many               ? TRM_SPLIT_NONE
                                                    : mode == TRMI_AUTO ? TRM_SPLIT_SEARCHED
                                                                        : TRM_SPLIT_PLANNED};
        parallel->own_samples = many && (said(c, TRMI_CONTEXT_FULL_BATCH, "false") ||
                                         said(c, TRMI_CONTEXT_DATASET_STRATEGY, "data_parallel"));
        parallel->whole_batch = many && (said(c, TRMI_CONTEXT_FULL_BATCH, "true") ||
                                         said(c, TRMI_CONTEXT_DATASET_STRATEGY, "full_batch"));
        if (is_set(c, TRMI_CONTEXT_SYNC_BATCH_NORM)) {
            int32_t norm = trmi_context_norm(text_of(c, TRMI_CONTEXT_SYNC_BATCH_NORM));
            parallel->sync_batch_norm = norm == 0 ? TRM_NORM_LOCAL : norm;
        }
        fusion_of(c, parallel);
        TRMI_TRY(strategy_of(c, parallel, err));
        *accumulate = atoi(text_of(c, TRMI_CONTEXT_GRAD_ACCUMULATION_STEP));
        return TRM_OK;
    }
    int block = is_set(c, TRMI_CONTEXT_DETERMINISTIC_BLOCK)
                    ? atoi(text_of(c, TRMI_CONTEXT_DETERMINISTIC_BLOCK))
                    : -1;
    trm_parallel_options o = {
        .comm = comm,
        .sum = !truth_of(c, TRMI_CONTEXT_GRADIENTS_MEAN),
        .wire = wire_of(c),
        .shard_optimizer = truth_of(c, TRMI_CONTEXT_ENABLE_PARALLEL_OPTIMIZER),
        .joint = mode == TRMI_DATA_PARALLEL ? joint_of(c) : TRM_JOINT_OFF,
        .sync_batch_norm = trmi_context_norm(text_of(c, TRMI_CONTEXT_SYNC_BATCH_NORM)),
        .no_broadcast = strcmp(trm_context_get(c, "parameter_broadcast"), "true") != 0,
        .block = strict ? block : 0};
    fusion_of(c, &o);
    TRMI_TRY(names_of(c, &o, err));
    *parallel = o;
    *accumulate = atoi(text_of(c, TRMI_CONTEXT_GRAD_ACCUMULATION_STEP));
    return TRM_OK;
}
