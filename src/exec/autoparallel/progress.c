/* SPDX-License-Identifier: Apache-2.0 */
/* Progress lines of a search for a plan, and the description of a plan in words ("20 operators by
 * samples, fc by output channels").
 *
 * Lines are log lines of level INFO, one every few seconds at most, and none of a short search.
 * Texts go into memory of the caller; nothing is allocated. */
#include "exec/autoparallel/progress.h"

#include "base/log.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Seconds before the first line; between lines. */
static const double first_seconds = 1, between_seconds = 3;

/* Contract in progress.h. The first line comes late, so that a short search prints nothing. */
void trmi_progress_note(trmi_progress *p, int64_t done, int64_t total, double seconds_left,
                        const char *what) {
    double now = trmi_os_now();
    char count[48] = "", left[48] = "";
    if (p->begin == 0) {
        p->begin = now;
        p->next = now + first_seconds;
    }
    if (now < p->next) {
        return;
    }
    p->next = now + between_seconds;
    if (total > 0) {
        snprintf(count, sizeof count, ": %lld of %lld", (long long)done, (long long)total);
    }
    if (seconds_left >= 0) {
        snprintf(left, sizeof left, ", %.0f s left at most", ceil(seconds_left));
    }
    trmi_log(TRM_LOG_INFO, "plan", "%s%s%s", what, count, left);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Kinds of cuts that are counted at most, characters of a kind's words, and kinds that are
 * named. */
enum { KINDS = 8, WORDS = 96, KINDS_SHOWN = 3 };

/* The operators that a plan cuts by the same loops. */
typedef struct cut_kind {
    char words[WORDS]; /* "samples and output channels"; "" = the same on every rank */
    const char *first; /* one of them */
    int32_t count;
} cut_kind;

/* Writes the loops that the letters cut, each once: "samples and output channels"; "" if the
 * operator is not cut. */
static void words_of(const trm_graph *g, const trmi_op *op, const char *letters, char *words) {
    size_t used = 0;
    words[0] = '\0';
    for (const char *l = letters; *l != '\0'; l++) {
        const char *name =
            *l == '.' || strchr(letters, *l) != l ? NULL : trmi_partition_loop_name(g, op, *l);
        if (name != NULL && used < WORDS) {
            used +=
                (size_t)snprintf(words + used, WORDS - used, "%s%s", used > 0 ? " and " : "", name);
        }
    }
}

/* Groups the operators of a plan by the words for their cut ("samples", "channels"), sorted by
 * how often each comes. An operator of a further kind, when KINDS are known, is not counted.
 * Returns the number of kinds. */
static int32_t count_kinds(const trmi_space *s, const trmi_choice *choice, cut_kind *kinds) {
    int32_t count = 0;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        char words[WORDS];
        int32_t k = 0;
        const trmi_op *op = trmi_space_op(s, n);
        words_of(s->graph, op, trmi_space_class_of(s, n)->strategies[choice->strategy[n]].letters,
                 words);
        /* Find the kind of these words, or begin a new one. */
        while (k < count && strcmp(kinds[k].words, words) != 0) {
            k++;
        }
        if (k == KINDS) {
            continue;
        }
        if (k == count) {
            kinds[count] = (cut_kind){.first = op->name};
            memcpy(kinds[count++].words, words, sizeof words);
        }
        kinds[k].count++;
        for (; k > 0 && kinds[k].count > kinds[k - 1].count; k--) { /* the most frequent first */
            cut_kind other = kinds[k];
            kinds[k] = kinds[k - 1];
            kinds[k - 1] = other;
        }
    }
    return count;
}

/* Contract in progress.h. Lists the KINDS_SHOWN most frequent cuts; a cut of one operator names
 * the operator. */
char *trmi_plan_words(const trmi_space *s, const trmi_choice *choice, char *text, size_t size) {
    cut_kind kinds[KINDS];
    char mesh[48];
    int32_t count = count_kinds(s, choice, kinds), by_samples = 0, whole = 0;
    for (int32_t k = 0; k < count; k++) {
        by_samples += strcmp(kinds[k].words, "samples") == 0;
        whole += kinds[k].words[0] == '\0';
    }
    /* "data parallel, " or "not cut, " if that says all, then the mesh. */
    size_t used = (size_t)snprintf(text, size, "%smesh %s: ",
                                   whole == count                ? "not cut, "
                                   : by_samples + whole == count ? "data parallel, "
                                                                 : "",
                                   trmi_mesh_text(&s->mesh, mesh, sizeof mesh));
    /* Then name the kinds of cuts, with their numbers of operators. */
    for (int32_t k = 0; k < count && k < KINDS_SHOWN && used < size; k++) {
        const cut_kind *of = &kinds[k];
        used += (size_t)snprintf(text + used, size - used, "%s%d operator%s %s%s%s%.40s%s",
                                 k > 0 ? ", " : "", of->count, of->count > 1 ? "s" : "",
                                 of->words[0] != '\0' ? "by " : "the same on every rank", of->words,
                                 of->count > 1 ? "" : " (", of->count > 1 ? "" : of->first,
                                 of->count > 1 ? "" : ")");
    }
    if (count > KINDS_SHOWN && used < size) {
        snprintf(text + used, size - used, ", others in %d more ways", count - KINDS_SHOWN);
    }
    return text;
}
