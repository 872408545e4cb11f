/* --tables: what the embedding tables of a job on parameter servers are like. */
#include "app/app.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *name;
    int value;
} word;

static const word ROWS[] = {{"fp32", TRM_FLOAT32}, {"bf16", TRM_BFLOAT16}, {"fp16", TRM_FLOAT16}, {NULL, 0}};
static const word CAPS[] = {{"lru", TRM_CAP_LRU}, {"lfu", TRM_CAP_LFU}, {NULL, 0}};
static const word RULES[] = {{"sgd", TRM_ROW_SGD},
                             {"momentum", TRM_ROW_MOMENTUM},
                             {"adagrad", TRM_ROW_ADAGRAD},
                             {"rowwise_adagrad", TRM_ROW_ROWWISE_ADAGRAD},
                             {"adam", TRM_ROW_ADAM},
                             {"lazy_adam", TRM_ROW_LAZY_ADAM},
                             {"ftrl", TRM_ROW_FTRL},
                             {NULL, 0}};

static trm_status one_of(const char *key, const char *text, const word *words, int *out, trm_error *err) {
    char names[120] = "";
    for (; words->name != NULL; words++) {
        if (strcmp(words->name, text) == 0) {
            *out = words->value;
            return TRM_OK;
        }
        strncat(names, names[0] != '\0' ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, words->name, sizeof names - strlen(names) - 1);
    }
    return app_fail(err, TRM_INVALID, "--tables %s=%.40s: one of %s expected", key, text, names);
}

static trm_status number(const char *key, const char *text, double least, double most, double *out,
                         trm_error *err) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= most
               ? TRM_OK
               : app_fail(err, TRM_INVALID, "--tables %s=%.40s: a number from %g to %g expected", key, text, least,
                          most);
}

/* all, count:N, bloom:N, probability:P */
static trm_status admission(const char *text, trm_admission *a, trm_error *err) {
    double x;
    if (strcmp(text, "all") == 0) {
        a->kind = TRM_ADMIT_ALL;
        return TRM_OK;
    }
    const char *colon = strchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    if (length == 11 && strncmp(text, "probability", length) == 0) {
        a->kind = TRM_ADMIT_PROBABILITY;
        return number("admit=probability", colon + 1, 1e-9, 1, &a->probability, err);
    }
    if ((length == 5 && strncmp(text, "count", length) == 0) || (length == 5 && strncmp(text, "bloom", length) == 0)) {
        a->kind = text[0] == 'c' ? TRM_ADMIT_COUNT : TRM_ADMIT_BLOOM;
        trm_status status = number("admit", colon + 1, 1, 255, &x, err);
        a->min_count = status == TRM_OK ? (int32_t)x : 0;
        return status;
    }
    return app_fail(err, TRM_INVALID, "--tables admit=%.40s: all, count:N, bloom:N or probability:P expected", text);
}

static trm_status set_one(char *key, const char *text, trm_table_options *t, trm_error *err) {
    double x = 0;
    int value = 0;
    trm_status status = TRM_OK;
    if (strcmp(key, "rows") == 0) {
        status = one_of(key, text, ROWS, &value, err);
        t->dtype = (trm_dtype)value;
    } else if (strcmp(key, "rounding") == 0) {
        static const word ways[] = {{"stochastic", 0}, {"nearest", 1}, {NULL, 0}};
        status = one_of(key, text, ways, &value, err);
        t->round_to_nearest = value != 0;
    } else if (strcmp(key, "optimizer") == 0) {
        status = one_of(key, text, RULES, &value, err);
        t->optimizer.rule = (trm_row_rule)value;
    } else if (strcmp(key, "admit") == 0) {
        status = admission(text, &t->admission, err);
    } else if (strcmp(key, "expire-seconds") == 0) {
        status = number(key, text, 0, 1e12, &t->expiry.after_seconds, err);
    } else if (strcmp(key, "expire-steps") == 0) {
        status = number(key, text, 0, 1e12, &x, err);
        t->expiry.after_ticks = (int64_t)x;
    } else if (strcmp(key, "min-score") == 0) {
        status = number(key, text, 0, 1e9, &x, err);
        t->expiry.min_score = (float)x;
    } else if (strcmp(key, "score-decay") == 0) {
        status = number(key, text, 0, 1, &x, err);
        t->expiry.score_decay = (float)x;
    } else if (strcmp(key, "max-rows") == 0) {
        status = number(key, text, 0, 1e15, &x, err);
        t->expiry.max_rows = (int64_t)x;
    } else if (strcmp(key, "cap") == 0) {
        status = one_of(key, text, CAPS, &value, err);
        t->expiry.cap = (trm_cap_policy)value;
    } else {
        status = app_fail(err, TRM_INVALID, "--tables: '%.40s' is unknown: rows, rounding, optimizer, admit, "
                          "expire-seconds, expire-steps, min-score, score-decay, max-rows and cap are known", key);
    }
    return status;
}

trm_status app_table_flag(const char *text, trm_table_options *options, trm_error *err) {
    char copy[512];
    if (text == NULL) {
        return TRM_OK;
    }
    if (strlen(text) >= sizeof copy) {
        return app_fail(err, TRM_INVALID, "--tables: %zu characters, at most %zu expected", strlen(text),
                        sizeof copy - 1);
    }
    strcpy(copy, text);
    for (char *rest = copy, *part; (part = strtok_r(rest, ",", &rest)) != NULL;) {
        char *equals = strchr(part, '=');
        if (equals == NULL) {
            return app_fail(err, TRM_INVALID, "--tables: '%.40s' has no '=': name=value,name=value expected", part);
        }
        *equals = '\0';
        trm_status status = set_one(part, equals + 1, options, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    return TRM_OK;
}
