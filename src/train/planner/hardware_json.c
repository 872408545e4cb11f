/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a plan for a machine that is not here, as one JSON object; hardware_report.c prints
 * the same facts for people.
 *
 *         {event, devices, global_batch, infeasible, model, hardware,
 *          plan, described, <price>, memory_limit_bytes, played_seconds,
 *          certificate {objective, lower_bound, gap, assumptions, ...},
 *          runners_up [...], without_memory_limit, least_memory, given, frontier [...]}
 *
 * Units are in the names: seconds of a step, bytes of one device. Scripts read the object: members
 * are added, and never renamed. */
#include "train/planner/hardware_plan.h"

#include "base/format/json_member.h"

#include <math.h>

/* Appends for each stage how many blocks it recomputes, whole and in their norms and activations,
 * and the seconds of its forward and backward of a micro-batch. */
static void put_stages(trmi_text *t, const trmi_plan_problem *problem, const trmi_parallelism *p) {
    trmi_block_price price[2];
    trmi_block_price_of(problem, p, &price[0], &price[1]);
    trmi_text_printf(t, ",\"recompute_by_stage\":[");
    for (int64_t s = 0; s < p->stages; s++) {
        const trmi_stage_again again = trmi_stage_recompute(problem, p, price, s);
        trmi_text_printf(t, "%s[%.0f,%.0f]", s > 0 ? "," : "", again.full, again.selective);
    }
    trmi_text_printf(t, "],\"stage_seconds\":[");
    for (int64_t s = 0; s < p->stages; s++) {
        double seconds[2];
        trmi_stage_seconds(problem, p, price, s, seconds);
        trmi_text_printf(t, s > 0 ? ",[" : "[");
        trmi_text_json_number(t, seconds[0]);
        trmi_text_append(t, ",", 1);
        trmi_text_json_number(t, seconds[1]);
        trmi_text_append(t, "]", 1);
    }
    trmi_text_append(t, "]", 1);
}

/* Appends the choices of a plan. */
static void put_choices(trmi_text *t, const trmi_plan_problem *problem, const trmi_parallelism *p) {
    static const char *const recompute[] = {"none", "selective", "full"};
    char words[TRMI_PARALLELISM_TEXT];
    trmi_parallelism_words(p, words, sizeof words);
    trmi_text_printf(t,
                     "{\"tp\":%lld,\"pp\":%lld,\"cp\":%lld,\"ep\":%lld,\"dp\":%lld,\"vp\":%lld,"
                     "\"micro_batch\":%lld,\"micro_batches\":%lld,\"zero\":%d,\"recompute\":\"%s\","
                     "\"recompute_blocks\":%lld,\"recompute_selective_blocks\":%lld,\"schedule\":"
                     "\"%s\",\"overlap_tp\":%s",
                     (long long)p->tensor, (long long)p->stages, (long long)p->context,
                     (long long)p->experts, (long long)p->data, (long long)p->chunks,
                     (long long)p->micro_batch, (long long)p->micro_count, (int)p->zero,
                     p->by_stage ? "by-stage" : recompute[p->recompute], (long long)p->blocks,
                     (long long)p->selective,
                     p->gpipe        ? "gpipe"
                     : p->chunks > 1 ? "interleaved"
                                     : "1f1b",
                     p->plain_tensor ? "false" : "true");
    put_stages(t, problem, p);
    trmi_text_json_string_member(t, "words", words);
    trmi_text_printf(t, "}");
}

/* Appends the members of a plan's price: rates, memory by kind, seconds by part, and the seconds of
 * one micro-batch on the stage that ends last, with those of its message to the next stage. */
static void put_price(trmi_text *t, const trm_hardware_plan *p, const trmi_step_cost *cost) {
    trmi_text_json_number_member(t, "step_seconds", cost->seconds);
    trmi_text_json_number_member(t, "tokens_per_second_per_device",
                                 trmi_hardware_plan_rate(p, cost->seconds));
    trmi_text_json_number_member(t, "mfu", trmi_plan_utilisation(&p->problem, cost->seconds));
    trmi_text_json_number_member(t, "memory_bytes", cost->bytes);
    trmi_text_printf(t, ",\"memory\":{\"reserved\":%.0f", p->hardware.reserved);
    for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
        trmi_text_json_number_member(t, trmi_memory_part_name((trmi_memory_part)i),
                                     cost->memory[i]);
    }
    trmi_text_printf(t, "},\"seconds\":{\"step\":");
    trmi_text_json_number(t, cost->seconds);
    for (int i = 0; i < TRMI_PARTS; i++) {
        trmi_text_json_number_member(t, trmi_step_part_name((trmi_step_part)i), cost->part[i]);
    }
    trmi_text_printf(t, "},\"micro_batch_seconds\":{\"forward\":");
    trmi_text_json_number(t, cost->forward);
    trmi_text_json_number_member(t, "backward", cost->backward);
    trmi_text_json_number_member(t, "message", cost->message);
    trmi_text_printf(t, "}");
}

/* Contract in hardware_plan.h. Appends one object: the choices, the same in words, and the
 * price. */
void trmi_hardware_json_plan(trmi_text *t, const trm_hardware_plan *p,
                             const trmi_priced_plan *priced) {
    char described[TRMI_PARALLELISM_TEXT];
    trmi_parallelism_describe(&p->problem, &priced->plan, described, sizeof described);
    trmi_text_printf(t, "{\"plan\":");
    put_choices(t, &p->problem, &priced->plan);
    trmi_text_json_string_member(t, "described", described);
    put_price(t, p, &priced->cost);
    trmi_text_printf(t, "}");
}

/* Appends model and machine. */
static void put_problem(trmi_text *t, const trm_hardware_plan *p) {
    const trmi_transformer *m = &p->model;
    trmi_text_printf(t, ",\"model\":{\"name\":");
    trmi_text_json_string(t, m->name);
    trmi_text_json_number_member(t, "parameters", trmi_transformer_parameters(m));
    trmi_text_json_number_member(t, "active_parameters", trmi_transformer_active(m));
    trmi_text_json_number_member(t, "flops_per_token", trmi_transformer_flops(m));
    trmi_text_printf(
        t,
        ",\"layers\":%lld,\"width\":%lld,\"heads\":%lld,\"kv_heads\":%lld,\"hidden\":%lld,"
        "\"vocabulary\":%lld,\"context\":%lld,\"experts\":%lld,\"top_experts\":%lld",
        (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->kv_heads,
        (long long)m->hidden, (long long)m->vocabulary, (long long)m->context,
        (long long)m->experts, (long long)m->top_experts);
    if (m->differs != NULL) {
        trmi_text_json_string_member(t, "differs", m->differs);
    }
    trmi_text_printf(t, "},\"hardware\":{\"name\":");
    trmi_text_json_string(t, p->hardware.name);
    trmi_text_json_number_member(t, "peak_flops", p->hardware.flops[p->problem.type]);
    trmi_text_json_number_member(t, "device_bytes", p->hardware.memory);
    trmi_text_json_string_member(t, "products", trmi_product_word(p->problem.type));
    trmi_text_printf(t, ",\"devices_per_node\":%lld}", (long long)p->hardware.per_node);
}

/* Appends the runner-up of each kind, and the plans without a limit and of least memory. */
static void put_others(trmi_text *t, const trm_hardware_plan *p) {
    int told = 0;
    trmi_text_printf(t, ",\"runners_up\":[");
    for (int k = 0; k < TRMI_KINDS; k++) {
        const trmi_priced_plan *r = &p->found.runners[k];
        if (p->found.fits && r->cost.seconds < INFINITY) {
            trmi_text_printf(t, "%s{\"kind\":\"%s\",\"slower\":", told++ > 0 ? "," : "",
                             trmi_plan_kind_name((trmi_plan_kind)k));
            trmi_text_json_number(t, r->cost.seconds / p->found.best.cost.seconds - 1);
            trmi_text_printf(t, ",\"found\":");
            trmi_hardware_json_plan(t, p, r);
            trmi_text_printf(t, "}");
        }
    }
    trmi_text_printf(t, "],\"without_memory_limit\":");
    trmi_hardware_json_plan(t, p, &p->found.unlimited);
    trmi_text_printf(t, ",\"least_memory\":");
    trmi_hardware_json_plan(t, p, &p->found.least);
    if (p->has_given) {
        trmi_text_printf(t, ",\"given\":");
        trmi_hardware_json_plan(t, p, &p->given);
        trmi_text_json_number_member(t, "given_slower",
                                     p->given.cost.seconds / p->found.best.cost.seconds - 1);
        trmi_text_printf(t, ",\"given_fits\":%s",
                         p->given.cost.bytes <= p->problem.memory ? "true" : "false");
    }
}

/* Appends the curve of memory against time: the fastest plans within falling limits. */
static void put_curve(trmi_text *t, const trm_hardware_plan *p) {
    trmi_priced_plan points[TRMI_CURVE_POINTS];
    const int count = trmi_hardware_curve(p, points);
    trmi_text_printf(t, ",\"frontier\":[");
    for (int i = 0; i < count; i++) {
        char described[TRMI_PARALLELISM_TEXT];
        trmi_parallelism_describe(&p->problem, &points[i].plan, described, sizeof described);
        trmi_text_printf(t, "%s{\"step_seconds\":", i > 0 ? "," : "");
        trmi_text_json_number(t, points[i].cost.seconds);
        trmi_text_json_number_member(t, "memory_bytes", points[i].cost.bytes);
        trmi_text_json_string_member(t, "described", described);
        trmi_text_printf(t, "}");
    }
    trmi_text_printf(t, "]");
}

/* Contract in hardware_plan.h. The search prices every plan whose blocks are cut and stored alike;
 * the bound is over plans whose blocks differ, too. */
void trmi_hardware_report_print_json(trmi_text *t, const trm_hardware_plan *p) {
    const trmi_priced_plan *best = &p->found.best;
    char described[TRMI_PARALLELISM_TEXT];
    trmi_parallelism_describe(&p->problem, &best->plan, described, sizeof described);
    trmi_text_printf(t,
                     "{\"event\":\"plan\",\"devices\":%lld,\"global_batch\":%lld,\"infeasible\":%s",
                     (long long)p->problem.devices, (long long)p->problem.batch,
                     p->found.fits ? "false" : "true");
    put_problem(t, p);
    trmi_text_printf(t, ",\"plan\":");
    put_choices(t, &p->problem, &best->plan);
    trmi_text_json_string_member(t, "described", described);
    put_price(t, p, &best->cost);
    trmi_text_json_number_member(t, "memory_limit_bytes", p->problem.memory);
    trmi_text_json_number_member(t, "played_seconds", p->played);
    trmi_text_printf(t, ",\"certificate\":{\"objective\":");
    trmi_text_json_number(t, best->cost.seconds);
    trmi_text_json_number_member(t, "lower_bound", p->found.lower_bound);
    trmi_text_json_number_member(t, "gap", trmi_hardware_plan_gap(p));
    trmi_text_json_string_member(t, "gap_reason", trmi_hardware_gap_reason(p));
    trmi_text_json_number_member(t, "solve_seconds", p->found.seconds);
    trmi_text_json_number_member(t, "plans", p->found.priced);
    trmi_text_json_number_member(t, "plans_over_memory", p->found.excluded);
    trmi_text_printf(t, ",\"assumptions\":[");
    for (int i = 0; trmi_hardware_assumption(i) != NULL; i++) {
        trmi_text_append(t, ",", i > 0);
        trmi_text_json_string(t, trmi_hardware_assumption(i));
    }
    trmi_text_printf(t, "]}");
    put_others(t, p);
    put_curve(t, p);
    trmi_text_printf(t, "}");
}
