/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the options of two declarations of a table (contract in table.h). All options shape the
 * rows, so all must agree; one option is named for the message. */
#include "ps/table/table.h"

#include "base/optimizer_rule.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* How an option is stored. */
typedef enum option_type { FLAG, INT32, INT64, UINT64, FLOAT, DOUBLE, WORD } option_type;

/* An option of trm_table_options. */
typedef struct option {
    const char *name; /* without "kind", as --tables and messages have it */
    size_t at;
    option_type type;
    const char *(*word)(int32_t value); /* WORD: the name of an enumerator; NULL = unknown */
} option;

static const char *name_dtype(int32_t value) { return trm_dtype_name((trm_dtype)value); }

static const char *name_rule(int32_t value) {
    const trmi_optimizer *rule = trmi_optimizer_of((trm_optimizer_kind)value);
    return rule != NULL ? rule->name : NULL;
}

static const char *name_init(int32_t value) {
    return value == TRM_ROW_INIT_CONSTANT  ? "constant"
           : value == TRM_ROW_INIT_UNIFORM ? "uniform"
           : value == TRM_ROW_INIT_NORMAL  ? "normal"
                                           : NULL;
}

static const char *name_admission(int32_t value) {
    return value == TRM_ADMIT_ALL           ? "all"
           : value == TRM_ADMIT_COUNT       ? "count"
           : value == TRM_ADMIT_BLOOM       ? "bloom"
           : value == TRM_ADMIT_PROBABILITY ? "probability"
                                            : NULL;
}

static const char *name_cap(int32_t value) { return value == TRM_CAP_LRU ? "lru" : "lfu"; }

static const char *name_placement(int32_t value) {
    return value == TRM_PLACE_BY_HASH       ? "by_hash"
           : value == TRM_PLACE_ROUND_ROBIN ? "round_robin"
           : value == TRM_PLACE_BY_SIZE     ? "by_size"
                                            : NULL;
}

/* All options but the name and the staleness, which trmi_lag_declare compares. */
static const option OPTIONS[] = {
#define OPTION(member, type)                                                                       \
    { #member, offsetof(trm_table_options, member), type, NULL }
#define KIND(name, member, word)                                                                   \
    { name, offsetof(trm_table_options, member), WORD, word }
    OPTION(width, INT32),
    KIND("dtype", dtype, name_dtype),
    KIND("optimizer", optimizer.kind, name_rule),
    OPTION(learning_rate, DOUBLE),
    OPTION(optimizer.momentum, DOUBLE),
    OPTION(optimizer.beta1, DOUBLE),
    OPTION(optimizer.beta2, DOUBLE),
    OPTION(optimizer.epsilon, DOUBLE),
    OPTION(optimizer.weight_decay, DOUBLE),
    OPTION(optimizer.decoupled, FLAG),
    OPTION(optimizer.initial_accumulator, DOUBLE),
    OPTION(optimizer.l1, DOUBLE),
    OPTION(optimizer.l2, DOUBLE),
    OPTION(optimizer.beta, DOUBLE),
    OPTION(seed, UINT64),
    OPTION(round_to_nearest, FLAG),
    KIND("init", init.kind, name_init),
    OPTION(init.value, FLOAT),
    OPTION(init.scale, FLOAT),
    OPTION(init.stream, UINT64),
    KIND("admission", admission.kind, name_admission),
    OPTION(admission.min_count, INT32),
    OPTION(admission.capacity, INT64),
    OPTION(admission.probability, DOUBLE),
    OPTION(expiry.after_seconds, DOUBLE),
    OPTION(expiry.after_ticks, INT64),
    OPTION(expiry.min_score, FLOAT),
    OPTION(expiry.score_decay, FLOAT),
    OPTION(expiry.max_rows, INT64),
    KIND("expiry.cap", expiry.cap, name_cap),
    OPTION(expiry.min_norm, FLOAT),
    KIND("placement", placement.kind, name_placement),
    OPTION(placement.parts, INT32),
    OPTION(placement.first, INT32),
    OPTION(placement.rows, INT64),
    OPTION(placement.begin, DOUBLE),
    OPTION(placement.end, DOUBLE),
#undef OPTION
#undef KIND
};

/* Writes the value of an option: numbers with `digits` digits. */
static void write_value(const option *o, const trm_table_options *table, int digits,
                        char out[TRMI_TABLE_VALUE_TEXT]) {
    const void *from = (const char *)table + o->at;
    const size_t size = TRMI_TABLE_VALUE_TEXT;
    const char *word = o->type == WORD ? o->word(*(const int32_t *)from) : NULL;
    switch (o->type) {
    case FLAG: snprintf(out, size, "%s", *(const bool *)from ? "on" : "off"); break;
    case INT64: snprintf(out, size, "%lld", (long long)*(const int64_t *)from); break;
    case UINT64: snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)from); break;
    case FLOAT: snprintf(out, size, "%.*g", digits, (double)*(const float *)from); break;
    case DOUBLE: snprintf(out, size, "%.*g", digits, *(const double *)from); break;
    case INT32:
    case WORD:
        if (word != NULL) {
            snprintf(out, size, "%s", word);
        } else {
            snprintf(out, size, "%d", *(const int32_t *)from);
        }
        break;
    }
}

/* Contract in table.h. Two values are equal if 17 digits of them are; a message has 6 where those
 * differ, because options of a rule are rounded to float32. */
const char *trmi_row_table_difference(const trm_table_options *a, const trm_table_options *b,
                                      char value_a[TRMI_TABLE_VALUE_TEXT],
                                      char value_b[TRMI_TABLE_VALUE_TEXT]) {
    trm_table_options x = *a, y = *b;
    trmi_admission_defaults(&x.admission);
    trmi_admission_defaults(&y.admission);
    for (size_t i = 0; i < sizeof OPTIONS / sizeof OPTIONS[0]; i++) {
        static const int digits[] = {6, 17};
        bool differ = false;
        for (int d = 0; d < 2 && !differ; d++) {
            write_value(&OPTIONS[i], &x, digits[d], value_a);
            write_value(&OPTIONS[i], &y, digits[d], value_b);
            differ = strcmp(value_a, value_b) != 0;
        }
        if (differ) {
            return OPTIONS[i].name;
        }
    }
    return NULL;
}
