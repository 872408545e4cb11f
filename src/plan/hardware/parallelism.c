/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in words: reading, checking, writing (parallelism.h).
 *
 *   "tp=8,pp=4,micro-batch=1,zero=1,recompute=full:3+selective:5"
 *
 * Each word stands once; a word that is absent has the value 1 or none. Reading looks at the words
 * alone. trmi_parallelism_complete then holds the plan against a model and its devices, and fills
 * in what follows (replicas, micro-batches, blocks), so that no number is given twice. Writing
 * gives the words that reading accepts. */
#include "plan/hardware/parallelism.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

static const char expected_words[] =
    "tp, pp, cp, ep, dp, vp, micro-batch, zero, recompute, schedule, overlap-tp";

/* Parses a number from `least` to `most`. */
static bool parse_number(const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end;
    long long value = strtoll(text, &end, 10);
    bool digits = strspn(text, "0123456789") == strlen(text); /* no sign, no blank */
    if (end == text || !digits || value < least || value > most) {
        return false;
    }
    *out = value;
    return true;
}

/* As many blocks as there are, until trmi_parallelism_complete knows them: more than a plan can
 * name. */
enum { ALL_BLOCKS = 1 << 20 };

/* Parses WORD or WORD:BLOCKS at *at, up to the end or a "+", and moves *at behind it. */
static bool parse_blocks(const char **at, const char *word, int64_t *out) {
    char number[24];
    size_t length = strlen(word), all = strcspn(*at, "+");
    if (strncmp(*at, word, length) != 0 || all - length >= sizeof number) {
        return false;
    }
    snprintf(number, sizeof number, "%.*s", (int)(all - length), *at + length);
    *at += all;
    *out = ALL_BLOCKS;
    return number[0] == '\0' ||
           (number[0] == ':' && parse_number(number + 1, 1, ALL_BLOCKS - 1, out));
}

/* Parses "none", "by-stage", "selective[:N]" or "full[:N][+selective[:M]]". */
static bool parse_recompute(const char *text, trmi_parallelism *out) {
    const char *at = text;
    out->blocks = out->selective = 0;
    out->recompute = TRMI_RECOMPUTE_NONE;
    out->by_stage = strcmp(text, "by-stage") == 0;
    if (out->by_stage || strcmp(text, "none") == 0) {
        return true;
    }
    if (strncmp(at, "full", 4) == 0) {
        out->recompute = TRMI_RECOMPUTE_FULL;
        bool right = parse_blocks(&at, "full", &out->blocks);
        if (!right || *at == '\0') {
            return right;
        }
        at++; /* the "+" */
    } else {
        out->recompute = TRMI_RECOMPUTE_SELECTIVE;
    }
    return parse_blocks(&at, "selective", &out->selective) && *at == '\0';
}

/* The words of a plan that other words must agree with. */
typedef struct plan_schedule {
    bool interleaved, other;
} plan_schedule;

/* Sets one word. *expected: what the value should be, if it is wrong. */
static bool parse_word(const char *key, const char *value, trmi_parallelism *out,
                       plan_schedule *schedule, const char **expected) {
    const struct {
        const char *key;
        int64_t *to;
    } numbers[] = {{"tp", &out->tensor},
                   {"pp", &out->stages},
                   {"cp", &out->context},
                   {"ep", &out->experts},
                   {"dp", &out->data},
                   {"vp", &out->chunks},
                   {"micro-batch", &out->micro_batch}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(numbers[i].key, key) == 0) {
            *expected = "a number from 1 to 1048576";
            return parse_number(value, 1, 1 << 20, numbers[i].to);
        }
    }
    /* These words have a form of their own. */
    if (strcmp(key, "zero") == 0) {
        int64_t zero = 0;
        bool ok = parse_number(value, 0, 3, &zero);
        out->zero = (int32_t)zero;
        *expected = "0 to 3";
        return ok;
    }
    if (strcmp(key, "recompute") == 0) {
        *expected = "none, selective[:BLOCKS], full[:BLOCKS], full:BLOCKS+selective[:BLOCKS] or "
                    "by-stage";
        return parse_recompute(value, out);
    }
    if (strcmp(key, "schedule") == 0) {
        out->gpipe = strcmp(value, "gpipe") == 0;
        schedule->interleaved = strcmp(value, "interleaved") == 0;
        schedule->other = !schedule->interleaved;
        *expected = "1f1b, gpipe or interleaved";
        return out->gpipe || schedule->interleaved || strcmp(value, "1f1b") == 0;
    }
    out->plain_tensor = strcmp(value, "off") == 0;
    *expected = "on or off";
    return out->plain_tensor || strcmp(value, "on") == 0;
}

/* Returns whether a word is one of a plan. */
static bool is_known(const char *key) {
    size_t length = strlen(key);
    for (const char *at = expected_words; *at != '\0'; at++) {
        bool begins = at == expected_words || at[-1] == ' ';
        if (begins && strncmp(at, key, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return length > 0;
        }
    }
    return false;
}

/* Contract in parallelism.h. Reads words NAME=VALUE, each name once; names that are absent have the
 * value 1 or none. Whether the plan fits a model and its devices is found by
 * trmi_parallelism_complete. */
trm_status trmi_parallelism_parse(const char *text, trmi_parallelism *out, trm_error *err) {
    trmi_parallelism plan = {
        .tensor = 1, .stages = 1, .context = 1, .experts = 1, .micro_batch = 1, .chunks = 1};
    plan_schedule schedule = {false, false};
    char seen[sizeof expected_words + 2] = ",";
    for (const char *at = text; *at != '\0';) {
        char word[64], *value;
        const char *expected = "";
        size_t length = strcspn(at, ",");
        bool last = at[length] == '\0', cut = !last && at[length + 1] == '\0';
        if (length == 0 || length >= sizeof word || cut) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "plan: '%.40s' found, words NAME=VALUE separated by commas expected",
                             at);
        }
        memcpy(word, at, length);
        word[length] = '\0';
        at += length + !last;
        value = strchr(word, '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        /* A word is a known name with a value, and no name comes twice. */
        if (value == NULL || !is_known(word)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "plan: '%s' found, NAME=VALUE with a name of %s "
                             "expected",
                             word, expected_words);
        }
        char key[72];
        snprintf(key, sizeof key, ",%s,", word);
        if (strstr(seen, key) != NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "plan: '%s' found twice, once expected", word);
        }
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s,", word);
        if (!parse_word(word, value, &plan, &schedule, &expected)) {
            return TRMI_FAIL(err, TRM_INVALID, "plan: %s=%s found, %s expected", word, value,
                             expected);
        }
    }
    if ((schedule.interleaved && plan.chunks == 1) || (schedule.other && plan.chunks > 1)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "plan: vp=%lld does not fit its schedule: interleaved has vp of 2 or more, "
            "1f1b and gpipe have vp=1",
            (long long)plan.chunks);
    }
    *out = plan;
    return TRM_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* With chunks every virtual stage has the same number of blocks, or embedding and output layer
 * count as one block each. Without chunks stages differ by one block at most, and the last one has
 * no more than the others. */
bool trmi_stage_blocks(const trmi_transformer *model, const trmi_parallelism *plan, int64_t *most) {
    int64_t runs = plan->stages * plan->chunks;
    if (runs > model->layers) {
        return false;
    }
    if (plan->chunks == 1) {
        *most = (model->layers + plan->stages - 1) / plan->stages;
        return true;
    }
    int64_t even = model->layers % runs, counted = (model->layers + 2) % runs;
    *most = (model->layers + 2 * (even != 0)) / runs * plan->chunks;
    return even == 0 || (counted == 0 && (model->layers + 2) / runs > 1);
}

/* Returns an error if `value` is not a multiple of `part`. */
static trm_status check_multiple(const char *what, int64_t value, const char *word, int64_t part,
                                 trm_error *err) {
    return value % part == 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "plan: %s %lld found, a multiple of %s=%lld expected",
                           what, (long long)value, word, (long long)part);
}

/* Checks the parts that the model must be divisible by. */
static trm_status check_model(const trmi_transformer *t, const trmi_parallelism *p,
                              trm_error *err) {
    TRMI_TRY(check_multiple("heads", t->heads, "tp", p->tensor, err));
    TRMI_TRY(check_multiple("hidden width", t->hidden, "tp", p->tensor, err));
    TRMI_TRY(check_multiple("width", t->width, "tp", p->tensor, err));
    if (t->kv_heads % p->tensor != 0 && p->tensor % t->kv_heads != 0) {
        TRMI_TRY(check_multiple("key heads", t->kv_heads, "tp", p->tensor, err));
    }
    if (p->context > 1) {
        TRMI_TRY(check_multiple("context", t->context, "2cp", 2 * p->context, err));
    }
    TRMI_TRY(check_multiple("context of a device", t->context / p->context, "tp", p->tensor, err));
    if (p->experts > 1 && t->experts == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "plan: ep=%lld found, 1 expected: %s has no experts",
                         (long long)p->experts, t->name);
    }
    return p->experts > 1 ? check_multiple("experts", t->experts, "ep", p->experts, err) : TRM_OK;
}

/* Checks stages and chunks. */
static trm_status check_stages(const trmi_transformer *t, const trmi_parallelism *p,
                               trm_error *err) {
    int64_t most = 0;
    if (p->stages > t->layers) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan: pp=%lld found, at most the %lld blocks of %s "
                         "expected",
                         (long long)p->stages, (long long)t->layers, t->name);
    }
    /* interleaved schedules take micro-batches in groups of as many as there are stages */
    if (p->chunks > 1 && (p->stages == 1 || p->micro_count % p->stages != 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan: vp=%lld with %lld micro-batches on %lld stages "
                         "found; interleaved expects 2 or more stages and a multiple of them",
                         (long long)p->chunks, (long long)p->micro_count, (long long)p->stages);
    }
    if (!trmi_stage_blocks(t, p, &most)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan: pp=%lld with vp=%lld found, %lld virtual stages "
                         "do not divide the %lld blocks of %s, nor these with embedding and output "
                         "layer",
                         (long long)p->stages, (long long)p->chunks,
                         (long long)(p->stages * p->chunks), (long long)t->layers, t->name);
    }
    return TRM_OK;
}

/* Contract in parallelism.h. The number of data-parallel replicas and of micro-batches follow
 * from the rest, so that a plan states each number once. */
trm_status trmi_parallelism_complete(const trmi_plan_problem *problem, trmi_parallelism *plan,
                                     trm_error *err) {
    const trmi_transformer *t = problem->model;
    trmi_parallelism p = *plan;
    int64_t model = p.tensor * p.stages * p.context, data = problem->devices / model, most = 0;
    if (model > problem->devices || problem->devices % model != 0 ||
        (p.data > 0 && p.data != data)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan: tp x pp x cp x dp is %.0f found, the %lld devices of the mesh "
                         "expected",
                         (double)model * (double)(p.data > 0 ? p.data : 1),
                         (long long)problem->devices);
    }
    p.data = data;
    TRMI_TRY(check_model(t, &p, err));
    TRMI_TRY(
        check_multiple("devices of a stage", problem->devices / p.stages, "ep", p.experts, err));
    /* Replicas follow from the devices, micro-batches from the batch. */
    int64_t samples = p.data * p.micro_batch;
    if (problem->batch % samples != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "plan: a batch of %lld samples found, a multiple of dp x micro-batch = %lld "
            "expected",
            (long long)problem->batch, (long long)samples);
    }
    p.micro_count = problem->batch / samples;
    TRMI_TRY(check_stages(t, &p, err));
    (void)trmi_stage_blocks(t, &p, &most);
    /* blocks that the plan names, by either way; "full" leaves none for another one */
    const bool numbered = p.selective > 0 && p.selective != ALL_BLOCKS;
    const int64_t named = (p.blocks != ALL_BLOCKS ? p.blocks
                           : numbered             ? most
                                                  : 0) +
                          (numbered ? p.selective : 0);
    if (!p.by_stage && named > most) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan: recompute of %lld blocks of a stage found, at most %lld expected",
                         (long long)named, (long long)most);
    }
    /* recompute of a given number of blocks, or of all */
    p.blocks = p.recompute != TRMI_RECOMPUTE_FULL ? 0
               : p.blocks == 0 || p.blocks > most ? most
                                                  : p.blocks;
    p.selective = p.recompute == TRMI_RECOMPUTE_NONE                            ? 0
                  : p.recompute == TRMI_RECOMPUTE_SELECTIVE && p.selective == 0 ? most
                  : p.selective > most - p.blocks                               ? most - p.blocks
                                                                                : p.selective;
    if (p.by_stage) {
        trmi_block_price price[2];
        trmi_block_price_of(problem, &p, &price[0], &price[1]);
        trmi_recompute_by_stage(problem, price, problem->memory, &p);
    }
    *plan = p;
    return TRM_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes what is recomputed as trmi_parallelism_parse reads it. */
static void write_recompute(const trmi_parallelism *p, char *text, size_t size) {
    char selective[48] = "";
    if (p->selective > 0) {
        snprintf(selective, sizeof selective, "%sselective:%lld", p->blocks > 0 ? "+" : "",
                 (long long)p->selective);
    }
    if (p->by_stage) {
        snprintf(text, size, "by-stage");
    } else if (p->recompute == TRMI_RECOMPUTE_NONE) {
        snprintf(text, size, "none");
    } else if (p->recompute == TRMI_RECOMPUTE_SELECTIVE) {
        snprintf(text, size, "%s", selective);
    } else {
        snprintf(text, size, "full:%lld%s", (long long)p->blocks, selective);
    }
}

/* Contract in parallelism.h. All words are written, also those with their default, so that a report
 * can be read without knowing defaults. */
void trmi_parallelism_words(const trmi_parallelism *p, char *text, size_t size) {
    char recompute[96];
    write_recompute(p, recompute, sizeof recompute);
    snprintf(
        text, size,
        "tp=%lld,pp=%lld,cp=%lld,ep=%lld,dp=%lld,vp=%lld,micro-batch=%lld,zero=%d,recompute=%s,"
        "schedule=%s,overlap-tp=%s",
        (long long)p->tensor, (long long)p->stages, (long long)p->context, (long long)p->experts,
        (long long)p->data, (long long)p->chunks, (long long)p->micro_batch, (int)p->zero,
        recompute,
        p->gpipe        ? "gpipe"
        : p->chunks > 1 ? "interleaved"
                        : "1f1b",
        p->plain_tensor ? "off" : "on");
}

/* Describes what the first stage recomputes and what the last one does. */
static void describe_stages(const trmi_plan_problem *problem, const trmi_parallelism *p,
                            int64_t most, char *text, size_t size) {
    trmi_block_price price[2];
    trmi_block_price_of(problem, p, &price[0], &price[1]);
    const trmi_stage_again a = trmi_stage_recompute(problem, p, price, 0),
                           b = trmi_stage_recompute(problem, p, price, p->stages - 1);
    snprintf(text, size,
             "recompute by stage, the first to the last: of %.0f to %.0f of %lld blocks, and of "
             "norms and activations in %.0f to %.0f",
             a.full, b.full, (long long)most, a.selective, b.selective);
}

/* Contract in parallelism.h. Words of the field: tensor, pipeline, context, expert and data
 * parallelism, ZeRO stage. */
void trmi_parallelism_describe(const trmi_plan_problem *problem, const trmi_parallelism *p,
                               char *text, size_t size) {
    int64_t most = 0;
    char schedule[48] = "", experts[24] = "", recompute[160] = "no recompute";
    (void)trmi_stage_blocks(problem->model, p, &most);
    if (p->stages > 1 && p->chunks > 1) {
        snprintf(schedule, sizeof schedule, ", 1F1B interleaved %lld", (long long)p->chunks);
    } else if (p->stages > 1) {
        snprintf(schedule, sizeof schedule, ", %s", p->gpipe ? "GPipe" : "1F1B");
    }
    if (problem->model->experts > 0) {
        snprintf(experts, sizeof experts, ", EP %lld", (long long)p->experts);
    }
    char of_all[32] = "";
    if (p->blocks > 0 && p->blocks < most) {
        snprintf(of_all, sizeof of_all, " of %lld", (long long)most);
    }
    if (p->by_stage) {
        describe_stages(problem, p, most, recompute, sizeof recompute);
    } else if (p->recompute == TRMI_RECOMPUTE_SELECTIVE && p->selective >= most) {
        snprintf(recompute, sizeof recompute, "recompute of norms and activations");
    } else if (p->recompute == TRMI_RECOMPUTE_SELECTIVE) {
        snprintf(recompute, sizeof recompute,
                 "recompute of norms and activations in %lld of %lld blocks a stage",
                 (long long)p->selective, (long long)most);
    } else if (p->recompute == TRMI_RECOMPUTE_FULL && p->blocks >= most) {
        snprintf(recompute, sizeof recompute, "recompute of all blocks");
    } else if (p->recompute == TRMI_RECOMPUTE_FULL) {
        int used = snprintf(recompute, sizeof recompute, "recompute of %lld%s blocks a stage",
                            (long long)p->blocks, of_all);
        if (p->selective > 0) {
            snprintf(recompute + used, sizeof recompute - (size_t)used,
                     ", and of norms and activations in %lld", (long long)p->selective);
        }
    }
    snprintf(text, size,
             "TP %lld, PP %lld%s, CP %lld%s, DP %lld, ZeRO %d, micro-batch %lld x %lld, %s",
             (long long)p->tensor, (long long)p->stages, schedule, (long long)p->context, experts,
             (long long)p->data, (int)p->zero, (long long)p->micro_batch, (long long)p->micro_count,
             recompute);
}
