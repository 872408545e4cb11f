/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and parses the texts of context options, by the form of their row (contracts in
 * context.h). Words and lists are compared in lower case.
 *
 * A value is stored only after it was checked, in the one spelling that its readers compare with.
 * So the functions that parse for readers (trmi_context_cuts, _size, _norm) cannot fail there. */
#include "train/context/context.h"

#include "base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Returns the entry of words[0 .. count) that equals `word`; NULL: there is none. */
static const char *one_of(const char *word, const char *const *words, int count) {
    for (int i = 0; i < count; i++) {
        if (strcmp(word, words[i]) == 0) {
            return words[i];
        }
    }
    return NULL;
}

/* Returns whether `word` is one of "a|b|c". */
static bool is_word_of(const char *word, const char *words) {
    size_t length = strlen(word);
    for (const char *at = words; at != NULL && *at != '\0'; at = strchr(at, '|')) {
        at += *at == '|';
        if (length > 0 && strncmp(at, word, length) == 0 &&
            (at[length] == '|' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Contract in context.h. Numbers must ascend, because they are positions in one list of
 * gradients. */
int32_t trmi_context_cuts(const char *text, int32_t cuts[TRMI_CONTEXT_LIST_MAX]) {
    int32_t count = 0;
    char *end;
    for (const char *at = text; *at != '\0'; at = *end == ',' ? end + 1 : end) {
        long cut = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || cut > 1 << 20 ||
            count == TRMI_CONTEXT_LIST_MAX || cut <= (count > 0 ? cuts[count - 1] : 0)) {
            return -1;
        }
        cuts[count++] = (int32_t)cut;
    }
    return count > 0 ? count : -1;
}

int64_t trmi_context_size(const char *text) {
    char *end;
    double mb = strncmp(text, "size:", 5) == 0 ? strtod(text + 5, &end) : -1;
    return mb > 1e-5 && mb < 1e9 && *end == '\0' ? (int64_t)(mb * 1e6) : -1;
}

int32_t trmi_context_norm(const char *text) {
    char *end;
    if (strcmp(text, "off") == 0 || strcmp(text, "on") == 0) {
        return strcmp(text, "on") == 0 ? 0 : TRM_NORM_LOCAL;
    }
    long group = strtol(text, &end, 10);
    return end != text && *end == '\0' && group >= 2 && group <= 4096 ? (int32_t)group
                                                                      : TRMI_CONTEXT_NO_NORM;
}

/* Returns whether `text` is a value of comm_fusion. */
static bool is_fusion(const char *text) {
    int32_t cuts[TRMI_CONTEXT_LIST_MAX];
    return strcmp(text, "auto") == 0 || strcmp(text, "off") == 0 || trmi_context_size(text) > 0 ||
           (strncmp(text, "index:", 6) == 0 && trmi_context_cuts(text + 6, cuts) > 0);
}

/* Returns INVALID with the expected values. */
static trm_status fail_value(const trmi_context_row *row, const char *value, const char *expected,
                             trm_error *err) {
    return TRMI_FAIL(err, TRM_INVALID, "%s '%.40s': %.110s", row->name, value, expected);
}

/* Checks a number within the limits of the row.
 *   errors  INVALID */
static trm_status take_int(const trmi_context_row *row, const char *value, trm_error *err) {
    char *end;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || number < row->low || number > row->high) {
        return TRMI_FAIL(err, TRM_INVALID, "%s '%.40s': a number from %lld to %lld", row->name,
                         value, (long long)row->low, (long long)row->high);
    }
    return TRM_OK;
}

/* Replaces a word for yes or no by "true" or "false".
 *   errors  INVALID */
static trm_status take_bool(const trmi_context_row *row, char *text, trm_error *err) {
    static const char *const yes[] = {"true", "1", "on", "yes"}, *const no[] = {"false", "0", "off",
                                                                                "no"};
    bool is_yes = one_of(text, yes, 4) != NULL;
    if (!is_yes && one_of(text, no, 4) == NULL) {
        return fail_value(row, text, "true or false", err);
    }
    strcpy(text, is_yes ? "true" : "false");
    return TRM_OK;
}

/* Contract in context.h. Free texts keep their case, all other values become lower case. */
trm_status trmi_context_take(const trmi_context_row *row, const char *value, char *text,
                             trm_error *err) {
    int32_t cuts[TRMI_CONTEXT_LIST_MAX];
    size_t length = strlen(value);
    if (length >= TRMI_CONTEXT_TEXT_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a value has at most %d characters, this one %zu",
                         row->name, TRMI_CONTEXT_TEXT_MAX - 1, length);
    }
    bool keep = row->form == TRMI_CONTEXT_TEXT;
    for (size_t i = 0; i <= length; i++) {
        text[i] = (char)(keep ? value[i] : tolower((unsigned char)value[i]));
    }
    switch (row->form) {
    case TRMI_CONTEXT_BOOL: return take_bool(row, text, err);
    case TRMI_CONTEXT_INT: return take_int(row, text, err);
    case TRMI_CONTEXT_WORD:
        return is_word_of(text, row->words) ? TRM_OK : fail_value(row, value, row->words, err);
    case TRMI_CONTEXT_CUTS:
        return trmi_context_cuts(text, cuts) > 0
                   ? TRM_OK
                   : fail_value(row, value,
                                "at most 64 numbers of gradients, ascending, from 1: 20,35", err);
    case TRMI_CONTEXT_FUSION:
        return is_fusion(text)
                   ? TRM_OK
                   : fail_value(row, value,
                                "auto, off, size:MB, or index: and ascending numbers of gradients",
                                err);
    case TRMI_CONTEXT_NORM:
        return trmi_context_norm(text) != TRMI_CONTEXT_NO_NORM
                   ? TRM_OK
                   : fail_value(row, value, "off, on, or the ranks of a group (2 to 4096)", err);
    case TRMI_CONTEXT_FIXED:
        return strcmp(text, row->fallback) == 0
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_UNSUPPORTED, "%s is always %s: %s", row->name,
                               row->fallback, row->words);
    default: return TRM_OK;
    }
}
