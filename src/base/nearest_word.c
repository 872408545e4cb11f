/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the word that was meant, for messages about a word that does not exist. */
#include "trireme/base.h"

#include "base/arguments.h"

#include <string.h>

/* Longest word that is compared; distances of longer ones mean nothing. */
enum { WORD_MAX = 48 };

/* Returns the restricted Damerau-Levenshtein distance: the least number of insertions,
 * deletions, replacements and swaps of neighbours that turn `a` into `b`. WORD_MAX for longer
 * words. */
static int word_distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n >= WORD_MAX || m >= WORD_MAX) {
        return WORD_MAX;
    }
    int d[WORD_MAX + 1][WORD_MAX + 1];
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            /* Replace, delete, insert; then swap. */
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = d[i - 2][j - 2] + 1 < best ? d[i - 2][j - 2] + 1 : best;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}

/* Returns whether the letters are the initials of the parts of `word`: "lr" of "learning-rate". */
static bool are_initials(const char *letters, const char *word) {
    for (; *letters != '\0' && word != NULL; letters++) {
        if (*letters != *word) {
            return false;
        }
        word = strpbrk(word, "-_ ");
        word += word != NULL;
    }
    return *letters == '\0' && word == NULL;
}

/* Contract in trireme/base.h. A word is near if at most a third of its letters (2 at least), and no
 * more than half of those that were given, must be edited: "foo" is not near "top". */
const char *trm_nearest_word(const char *word, const char *const *words, int32_t count) {
    TRMI_NEED_OR(NULL, NULL, word, words);
    const char *nearest = NULL;
    int best = WORD_MAX, letters = (int)strlen(word);
    for (int32_t i = 0; i < count; i++) {
        int edits = word_distance(word, words[i]);
        /* a prefix or the initials are taken as an abbreviation: --batch, --bs */
        bool beginning = letters > 2 && strncmp(word, words[i], (size_t)letters) == 0;
        int limit = (int)strlen(words[i]) / 3;
        limit = limit < 2 ? 2 : limit;
        limit = limit > letters / 2 ? letters / 2 : limit;
        if (beginning || (letters > 1 && are_initials(word, words[i]))) {
            edits = 1;
            limit = 1;
        }
        if (edits <= limit && edits < best) {
            best = edits;
            nearest = words[i];
        }
    }
    return nearest;
}
