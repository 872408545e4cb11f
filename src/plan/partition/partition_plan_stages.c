/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a plan file that state its stages:
 *
 *      pipeline stages=2 chunks=1 micro-batches=4 schedule=1f1b recompute=off
 *      begin block6.norm1                operator with which the second run begins, and so on */
#include "plan/partition/partition_plan_stages.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Micro-batches of a plan, at most. */
enum { MOST_MICROS = 65536 };

/* Contract in partition.h. Every run of operators but the first begins with a named operator. */
trm_status trmi_partition_plan_stage(trmi_partition_plan *plan, const trmi_plan_stages *from,
                                     trm_error *err) {
    int32_t names = 0;
    for (const char *at = from->begins != NULL ? from->begins : ""; *at != '\0'; at++) {
        names += *at == ',' || at == from->begins;
    }
    if (from->stages < 1 || from->stages > TRMI_STAGES_MAX || from->chunks < 1 ||
        from->chunks > TRMI_VIRTUAL_STAGES_MAX / from->stages || from->micros < 1 ||
        from->micros > MOST_MICROS || (from->chunks > 1 && from->order != TRMI_ORDER_INTERLEAVED) ||
        names != from->stages * from->chunks - 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan of %d stages with %d chunks, %d micro-batches, schedule %s and %d "
                         "lines 'begin': 1 to %d stages, 1 to %d micro-batches, chunks only if "
                         "interleaved, a line for each run but the first expected",
                         from->stages, from->chunks, from->micros,
                         trmi_pipeline_order_name(from->order), names, TRMI_STAGES_MAX,
                         MOST_MICROS);
    }
    const char *begins = trmi_arena_strdup(&plan->arena, from->begins != NULL ? from->begins : "");
    if (begins == NULL) {
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    plan->staged = *from;
    plan->staged.begins = begins;
    return TRM_OK;
}

/* Special characters are written as %xx. */
void trmi_plan_name_write(trmi_text *text, const char *name, size_t length) {
    for (const char *end = name + length; name < end; name++) {
        if ((uint8_t)*name <= ' ' || *name == '#' || *name == '%') {
            trmi_text_printf(text, "%%%02x", (unsigned)(uint8_t)*name);
        } else {
            trmi_text_append(text, name, 1);
        }
    }
}

/* Contract in partition_plan_stages.h. Names of begins are kept in one text, separated by
 * commas. */
void trmi_plan_stages_write(const trmi_plan_stages *s, trmi_text *text) {
    if (s->stages == 0) {
        return;
    }
    trmi_text_printf(
        text, "pipeline stages=%d chunks=%d micro-batches=%d schedule=%s recompute=%s\n", s->stages,
        s->chunks, s->micros, trmi_pipeline_order_name(s->order), s->recompute ? "block" : "off");
    for (const char *at = s->begins; *at != '\0';) {
        size_t length = strcspn(at, ",");
        trmi_text_printf(text, "begin ");
        trmi_plan_name_write(text, at, length);
        trmi_text_printf(text, "\n");
        at += length + (at[length] == ',');
    }
}

/* Reads a number after '='. */
static bool read_number(const char *word, const char *key, int32_t *out) {
    size_t length = strlen(key);
    char *end;
    if (strncmp(word, key, length) != 0) {
        return false;
    }
    long value = strtol(word + length, &end, 10);
    *out = value >= 1 && value <= MOST_MICROS && *end == '\0' ? (int32_t)value : 0;
    return *out > 0;
}

/* Contract in partition_plan_stages.h. The words have a fixed order, as they were written. */
bool trmi_plan_stages_read(trmi_plan_stages *out, char *const *words, int count) {
    bool ok = count == 6 && out->stages == 0 && read_number(words[1], "stages=", &out->stages) &&
              read_number(words[2], "chunks=", &out->chunks) &&
              read_number(words[3], "micro-batches=", &out->micros);
    bool order = false;
    for (int i = 0; ok && i <= TRMI_ORDER_INTERLEAVED; i++) {
        if (strncmp(words[4], "schedule=", 9) == 0 &&
            strcmp(words[4] + 9, trmi_pipeline_order_name((trmi_pipeline_order)i)) == 0) {
            out->order = (trmi_pipeline_order)i;
            order = true;
        }
    }
    out->recompute = ok && strcmp(words[5], "recompute=block") == 0;
    return ok && order && (out->recompute || strcmp(words[5], "recompute=off") == 0);
}
