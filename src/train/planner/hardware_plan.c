/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for machines that are not here (contracts in trireme/plan.h).
 *
 *      model name, preset, sizes --> trmi_transformer \
 *      text of a hardware file   --> trmi_hardware     >-- trmi_parallelism_search --> report, export
 *      devices, batch, options   --> trmi_plan_problem /
 *
 * A given plan is priced by the same costs as those of the search. No memory of the model's size
 * is taken. */
#include "train/planner/hardware_plan.h"

#include "base/arguments.h"
#include "base/error.h"
#include "trireme/nn.h"

#include <stdio.h>
#include <string.h>

/* Takes the sizes from trm_language_options. */
static trm_status take_sizes(const char *model, const trm_language_options *sizes,
                             trmi_transformer *out, trm_error *err) {
    trm_language_options o = *sizes;
    bool llama = strcmp(model, "llama") == 0, moe = strcmp(model, "moe") == 0;
    if (!llama && !moe && strcmp(model, "gpt2") != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "hardware: model %s found, gpt2, llama or moe expected",
                         model);
    }
    TRMI_TRY(trm_language_complete(model, &o, err));
    if (o.heads < 1 || o.width % o.heads != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: width %lld and %lld heads found, a multiple of the heads expected",
                         model, (long long)o.width, (long long)o.heads);
    }
    *out = (trmi_transformer){.layers = o.layers,
                              .width = o.width,
                              .heads = o.heads,
                              .kv_heads = o.kv_heads,
                              .head_width = o.heads > 0 ? o.width / o.heads : 0,
                              .hidden = o.hidden,
                              .vocabulary = o.vocabulary,
                              .context = o.context,
                              .gated = llama,
                              .tied = !llama || !o.untied,
                              .positions = !llama,
                              .experts = moe ? o.experts : 0,
                              .top_experts = moe ? o.top_experts : 0,
                              .expert_hidden = moe ? o.hidden : 0};
    snprintf(out->name, sizeof out->name, "%s of %lld blocks", model, (long long)o.layers);
    return TRM_OK;
}

/* Finds the model: a published one, a size of trm_language_size, or given sizes. */
static trm_status find_model(const trm_hardware_plan_options *o, trmi_transformer *out,
                             trm_error *err) {
    char known[160];
    trm_language_options sizes = o->sizes;
    if (o->preset != NULL && trmi_transformer_preset(o->model, o->preset, out, known)) {
        const bool own = sizes.layers != 0 || sizes.width != 0 || sizes.heads != 0 ||
                         sizes.kv_heads != 0 || sizes.hidden != 0 || sizes.vocabulary != 0 ||
                         sizes.experts != 0 || sizes.top_experts != 0 || sizes.untied;
        return own ? TRMI_FAIL(err, TRM_INVALID,
                               "preset '%.40s' has the sizes of %s; other sizes found beside it, "
                               "none expected",
                               o->preset, out->name)
                   : TRM_OK;
    }
    if (o->preset != NULL && trm_language_size(o->model, o->preset, &sizes, err) != TRM_OK) {
        return known[0] == '\0' ? err->status
                                : TRMI_FAIL(err, TRM_INVALID,
                                            "no %s of preset '%.40s'; there are %s, and the sizes "
                                            "of trireme train",
                                            o->model, o->preset, known);
    }
    return take_sizes(o->model, &sizes, out, err);
}

/* Fills the problem from the options and checks it. */
static trm_status settle_problem(const trm_hardware_plan_options *o, trm_hardware_plan *p,
                                 trm_error *err) {
    enum { MOST = 1 << 20 };
    const char *products = o->products != NULL ? o->products : "bf16";
    trmi_plan_problem *q = &p->problem;
    TRMI_TRY(find_model(o, &p->model, err));
    p->model.context = o->context > 0 ? o->context : p->model.context;
    TRMI_TRY(trmi_transformer_check(&p->model, err));
    TRMI_TRY(trmi_hardware_parse(o->hardware_name != NULL ? o->hardware_name : "hardware",
                                 o->hardware, &p->hardware, err));
    const trmi_hardware_level *outer = &p->hardware.levels[p->hardware.levels_count - 1];
    if (o->devices > outer->devices) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%.80s: %lld devices in \"%s\", the outermost of the links, found, at "
                         "least the %lld of the mesh expected",
                         o->hardware_name != NULL ? o->hardware_name : "hardware",
                         (long long)outer->devices, outer->name, (long long)o->devices);
    }
    if (o->devices < 1 || o->devices > MOST || o->batch < 0 || o->batch > INT64_C(1) << 32) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "plan: %lld devices and a batch of %lld samples found, 1 to %d and at most "
            "2^32 expected",
            (long long)o->devices, (long long)o->batch, MOST);
    }
    *q = (trmi_plan_problem){.model = &p->model,
                             .hardware = &p->hardware,
                             .devices = o->devices,
                             .batch = o->batch > 0 ? o->batch : o->devices,
                             .type = trmi_product_of(products),
                             .gradient_width = o->narrow_gradients ? 2 : 4,
                             .memory = o->memory_bytes > 0 ? o->memory_bytes : p->hardware.memory,
                             .zero = o->whole_optimizer ? 0 : 3};
    if (q->type == TRMI_PRODUCT_TYPES || p->hardware.flops[q->type] == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: products in %.20s found, a type with a rate expected "
                         "(bf16, fp16, fp8, fp32)",
                         p->hardware.name, products);
    }
    return TRM_OK;
}

/* Contract in trireme/plan.h. A given plan is priced by the same costs as those of the search. */
trm_status trm_hardware_plan_create(const trm_hardware_plan_options *options,
                                    trm_hardware_plan **out, trm_error *err) {
    TRMI_NEED(err, options, out);
    TRMI_NEED(err, options->model, options->hardware);
    trm_hardware_plan *p;
    TRMI_TRY(TRMI_NEW(err, p, 1, "to plan"));
    trm_status status = settle_problem(options, p, err);
    if (status == TRM_OK && options->plan != NULL) {
        p->has_given = true;
        status = trmi_parallelism_parse(options->plan, &p->given.plan, err);
        status =
            status == TRM_OK ? trmi_parallelism_complete(&p->problem, &p->given.plan, err) : status;
        if (status == TRM_OK) {
            trmi_step_price(&p->problem, &p->given.plan, &p->given.cost);
        }
    }
    status = status == TRM_OK ? trmi_parallelism_search(&p->problem, &p->found, err) : status;
    if (status == TRM_OK) { /* schedules longer than the player's limits are not played */
        trm_error long_schedule;
        const trmi_priced_plan *best = &p->found.best;
        trmi_played_step step;
        bool played =
            trmi_step_play(&p->problem, &best->plan, &best->cost, &step, &long_schedule) == TRM_OK;
        p->played = played ? step.seconds : best->cost.seconds;
        trmi_played_step_free(&step);
    }
    if (status != TRM_OK) {
        trm_hardware_plan_destroy(p);
        return status;
    }
    *out = p;
    return TRM_OK;
}

void trm_hardware_plan_destroy(trm_hardware_plan *plan) { trmi_free(plan); }

/* Contract in trireme/plan.h. Rates are for one device; time and memory are predictions. */
void trm_hardware_plan_get_info(const trm_hardware_plan *p, trm_hardware_plan_info *out) {
    TRMI_NEED_OR(, NULL, p, out);
    double seconds = p->found.best.cost.seconds;
    *out = (trm_hardware_plan_info){.fits = p->found.fits,
                                    .step_seconds = seconds,
                                    .tokens_per_second = trmi_hardware_plan_rate(p, seconds),
                                    .utilisation = trmi_plan_utilisation(&p->problem, seconds),
                                    .memory_bytes = p->found.best.cost.bytes,
                                    .priced = p->found.priced,
                                    .search_seconds = p->found.seconds,
                                    .given_seconds = p->has_given ? p->given.cost.seconds : 0};
}
