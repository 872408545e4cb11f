/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a table, written and read (contracts in table_wire.h). */
#include "ps/wire/table_wire.h"

/* Contract in table_wire.h. Where the wire has another form than the options: Nesterov is momentum
 * with a flag, and l2 is McMahan's lambda2, twice the option. */
void trmi_ps_put_table(const trm_table_options *t, trmi_ps_wire_table *out) {
    const trm_optimizer_options *o = &t->optimizer;
    const bool nesterov = o->kind == TRM_NESTEROV;
    *out = (trmi_ps_wire_table){.width = t->width,
                                .dtype = (int32_t)t->dtype,
                                .round_to_nearest = t->round_to_nearest,
                                .staleness = t->staleness,
                                .seed = t->seed,
                                .rule = (int32_t)(nesterov ? TRM_MOMENTUM : o->kind),
                                .learning_rate = (float)t->learning_rate,
                                .momentum = (float)o->momentum,
                                .nesterov = nesterov,
                                .decoupled = o->decoupled,
                                .beta1 = (float)o->beta1,
                                .beta2 = (float)o->beta2,
                                .epsilon = (float)o->epsilon,
                                .initial_accumulator = (float)o->initial_accumulator,
                                .l1 = (float)o->l1,
                                .l2 = (float)(2 * o->l2),
                                .beta = (float)o->beta,
                                .weight_decay = (float)o->weight_decay,
                                .init = (int32_t)t->init.kind,
                                .init_value = t->init.value,
                                .init_scale = t->init.scale,
                                .init_stream = t->init.stream,
                                .admission = (int32_t)t->admission.kind,
                                .min_count = t->admission.min_count,
                                .capacity = t->admission.capacity,
                                .probability = t->admission.probability,
                                .after_seconds = t->expiry.after_seconds,
                                .after_ticks = t->expiry.after_ticks,
                                .min_score = t->expiry.min_score,
                                .score_decay = t->expiry.score_decay,
                                .max_rows = t->expiry.max_rows,
                                .cap = (int32_t)t->expiry.cap,
                                .min_norm = t->expiry.min_norm,
                                .placement = (int32_t)t->placement.kind,
                                .parts = t->placement.parts,
                                .first = t->placement.first,
                                .variable_rows = t->placement.rows,
                                .begin = t->placement.begin,
                                .end = t->placement.end};
}

/* Contract in table_wire.h. Bytes of a bool other than 0 count as 1. */
void trmi_ps_get_table(const trmi_ps_wire_table *w, trm_table_options *out) {
    const bool nesterov = w->rule == TRM_MOMENTUM && w->nesterov != 0;
    *out = (trm_table_options){
        .width = w->width,
        .dtype = (trm_dtype)w->dtype,
        .round_to_nearest = w->round_to_nearest != 0,
        .staleness = w->staleness,
        .seed = w->seed,
        .learning_rate = (double)w->learning_rate,
        .optimizer = {.kind = nesterov ? TRM_NESTEROV : (trm_optimizer_kind)w->rule,
                      .momentum = (double)w->momentum,
                      .beta1 = (double)w->beta1,
                      .beta2 = (double)w->beta2,
                      .epsilon = (double)w->epsilon,
                      .weight_decay = (double)w->weight_decay,
                      .decoupled = w->decoupled != 0,
                      .initial_accumulator = (double)w->initial_accumulator,
                      .l1 = (double)w->l1,
                      .l2 = (double)w->l2 / 2,
                      .beta = (double)w->beta},
        .init = {.kind = (trm_row_init_kind)w->init,
                 .value = w->init_value,
                 .scale = w->init_scale,
                 .stream = w->init_stream},
        .admission = {.kind = (trm_admission_kind)w->admission,
                      .min_count = w->min_count,
                      .capacity = w->capacity,
                      .probability = w->probability},
        .expiry = {.after_seconds = w->after_seconds,
                   .after_ticks = w->after_ticks,
                   .min_score = w->min_score,
                   .score_decay = w->score_decay,
                   .max_rows = w->max_rows,
                   .cap = (trm_cap_policy)w->cap,
                   .min_norm = w->min_norm},
        .placement = {.kind = (trm_placement_kind)w->placement,
                      .parts = w->parts,
                      .first = w->first,
                      .rows = w->variable_rows,
                      .begin = w->begin,
                      .end = w->end}};
}
