/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a plan for a machine that is not here (a hardware file describes it). It reads
 * trm_hardware_plan only and computes nothing that the search has not found.
 *
 *         {event, devices, global_batch, infeasible, model, hardware,
 *          plan, described, <price>, memory_limit_bytes, played_seconds,
 *          certificate {objective, lower_bound, gap, assumptions, ...},
 *          runners_up [...], without_memory_limit, least_memory, given, frontier [...]}
 *
 * Units are in the names: seconds of a step, bytes of one device. Scripts read the object: members
 * are added, and never renamed. TP, PP, CP, EP, DP: tensor, pipeline, context, expert and data
 * parallel. MFU: model FLOPs of a step over the peak of the devices. */
#include "train/planner/hardware_plan.h"

#include "base/arguments.h"

#include <math.h>

/* ---- sentences ------------------------------------------------------------------------------- */

/* Assumptions of the bound, which is worth as much as they are. */
static const char *const assumptions[] = {
    "every plan of these choices is priced: TP, PP, CP, EP and DP that divide the devices, "
    "micro-batches of powers of 2 up to 64, interleaving up to 32, ZeRO 0 to 3, recompute of "
    "as few blocks as fit, whole or their norms and activations",
    "tensor parallel has sequence parallel; context parallel is a ring with balanced causal "
    "halves",
    "all blocks have one price; of a plan they are cut and stored alike, and each stage "
    "recomputes what it must. The bound is over plans whose blocks differ in all choices, "
    "without the messages between blocks that are cut differently; output layer and tables are "
    "cut as a block of their stage",
    "costs are those of the hardware file; shares of messages run beside operators as it says",
    "memory is counted, not compiled: parameters in 16 bits, gradients, masters and moments in "
    "32, values that backward reads, reserved_bytes of the file",
};
enum { ASSUMPTIONS = sizeof assumptions / sizeof assumptions[0] };

/* Returns why there is a gap; "": there is none. Three cases: no plan fits and none with other
 * blocks could; no plan of equal blocks fits; a plan was found, and only plans of unequal blocks
 * are left below it. */
static const char *gap_reason(const trm_hardware_plan *p) {
    if (!p->found.fits) {
        return p->found.bounds.all < INFINITY ? "no plan fits whose blocks are cut and stored "
                                                "alike; one whose blocks differ may "
                                                "fit, and takes at least the bound"
                                              : "no plan fits, nor one whose blocks differ: the "
                                                "least memory of a stage is above "
                                                "the limit in all of them";
    }
    if (trmi_hardware_plan_gap(p) <= 1e-9) {
        return "";
    }
    const bool stopped = p->found.bounds.stopped;
    if (p->found.bounds.cut_alike > p->found.bounds.all) {
        return stopped
                   ? "most of it is of plans whose blocks are cut each in another way, which "
                     "are bounded without the messages between such blocks, and not searched, "
                     "and bounding them stopped at its limit of work; gap_cut_alike is that of "
                     "plans whose blocks are all cut alike, and stored or recomputed each in "
                     "another way; no plan whose blocks are cut and stored alike is faster"
                   : "most of it is of plans whose blocks are cut each in another way, which "
                     "are bounded without the messages between such blocks, and not searched; "
                     "gap_cut_alike is that of plans whose blocks are all cut alike, and stored "
                     "or recomputed each in another way; no plan whose blocks are cut and "
                     "stored alike is faster";
    }
    return stopped
               ? "plans whose blocks are cut or stored each in another way are bounded, and not "
                 "searched, and bounding them stopped at its limit of work; no plan whose "
                 "blocks are cut and stored alike is faster"
               : "plans are bounded, and not searched, whose blocks are cut or stored each in "
                 "another way; no plan whose blocks are cut and stored alike is faster";
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Puts for each stage how many blocks it recomputes, whole and in their norms and activations, and
 * the seconds of its forward and backward of a micro-batch. */
static void put_stages(trmi_report *r, const trmi_plan_problem *problem,
                       const trmi_parallelism *plan) {
    trmi_block_price price[2];
    trmi_block_price_of(problem, plan, &price[0], &price[1]);
    trmi_report_open_array(r, "recompute_by_stage");
    for (int64_t s = 0; s < plan->stages; s++) {
        const trmi_stage_again again = trmi_stage_recompute(problem, plan, price, s);
        trmi_report_open_array(r, NULL);
        trmi_report_put(r, trmi_whole(NULL, again.full), trmi_whole(NULL, again.selective));
        trmi_report_close(r);
    }
    trmi_report_close(r);
    trmi_report_open_array(r, "stage_seconds");
    for (int64_t s = 0; s < plan->stages; s++) {
        double seconds[2];
        trmi_stage_seconds(problem, plan, price, s, seconds);
        trmi_report_open_array(r, NULL);
        trmi_report_put(r, trmi_real(NULL, seconds[0]), trmi_real(NULL, seconds[1]));
        trmi_report_close(r);
    }
    trmi_report_close(r);
}

/* Puts the choices of a plan, and all of them in words. */
static void put_choices(trmi_report *r, const trmi_plan_problem *problem,
                        const trmi_parallelism *plan) {
    static const char *const recompute[] = {"none", "selective", "full"};
    char words[TRMI_PARALLELISM_TEXT];
    trmi_parallelism_words(plan, words, sizeof words);
    trmi_report_open_object(r, "plan");
    trmi_report_put(
        r, trmi_int("tp", plan->tensor), trmi_int("pp", plan->stages),
        trmi_int("cp", plan->context), trmi_int("ep", plan->experts), trmi_int("dp", plan->data),
        trmi_int("vp", plan->chunks), trmi_int("micro_batch", plan->micro_batch),
        trmi_int("micro_batches", plan->micro_count), trmi_int("zero", plan->zero),
        trmi_string("recompute", plan->by_stage ? "by-stage" : recompute[plan->recompute]),
        trmi_int("recompute_blocks", plan->blocks),
        trmi_int("recompute_selective_blocks", plan->selective),
        trmi_string("schedule", plan->gpipe        ? "gpipe"
                                : plan->chunks > 1 ? "interleaved"
                                                   : "1f1b"),
        trmi_bool("overlap_tp", !plan->plain_tensor));
    put_stages(r, problem, plan);
    trmi_report_put(r, trmi_string("words", words));
    trmi_report_close(r);
}

/* Puts the price of a plan: rates, memory by kind, seconds by part, and the seconds of one
 * micro-batch on the stage that ends last, with those of its message to the next stage. */
static void put_price(trmi_report *r, const trm_hardware_plan *p, const trmi_step_cost *cost) {
    trmi_report_put(
        r, trmi_real("step_seconds", cost->seconds),
        trmi_real("tokens_per_second_per_device", trmi_hardware_plan_rate(p, cost->seconds)),
        trmi_real("mfu", trmi_plan_utilisation(&p->problem, cost->seconds)),
        trmi_real("memory_bytes", cost->bytes));
    trmi_report_open_object(r, "memory");
    trmi_report_put(r, trmi_whole("reserved", p->hardware.reserved));
    for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
        trmi_report_put(r, trmi_real(trmi_memory_part_name((trmi_memory_part)i), cost->memory[i]));
    }
    trmi_report_close(r);
    trmi_report_open_object(r, "seconds");
    trmi_report_put(r, trmi_real("step", cost->seconds));
    for (int i = 0; i < TRMI_PARTS; i++) {
        trmi_report_put(r, trmi_real(trmi_step_part_name((trmi_step_part)i), cost->part[i]));
    }
    trmi_report_close(r);
    trmi_report_open_object(r, "micro_batch_seconds");
    trmi_report_put(r, trmi_real("forward", cost->forward), trmi_real("backward", cost->backward),
                    trmi_real("message", cost->message));
    trmi_report_close(r);
}

/* Contract in hardware_plan.h. */
void trmi_hardware_put_plan(trmi_report *r, const trm_hardware_plan *p,
                            const trmi_priced_plan *priced) {
    char described[TRMI_PARALLELISM_TEXT];
    trmi_parallelism_describe(&p->problem, &priced->plan, described, sizeof described);
    put_choices(r, &p->problem, &priced->plan);
    trmi_report_put(r, trmi_string("described", described));
    put_price(r, p, &priced->cost);
}

/* Puts a plan with its price as an object. */
static void put_named_plan(trmi_report *r, const char *key, const trm_hardware_plan *p,
                           const trmi_priced_plan *priced) {
    trmi_report_open_object(r, key);
    trmi_hardware_put_plan(r, p, priced);
    trmi_report_close(r);
}

/* Puts model and machine. */
static void put_problem(trmi_report *r, const trm_hardware_plan *p) {
    const trmi_transformer *m = &p->model;
    trmi_report_open_object(r, "model");
    trmi_report_put(
        r, trmi_string("name", m->name), trmi_real("parameters", trmi_transformer_parameters(m)),
        trmi_real("active_parameters", trmi_transformer_active(m)),
        trmi_real("flops_per_token", trmi_transformer_flops(m)), trmi_int("layers", m->layers),
        trmi_int("width", m->width), trmi_int("heads", m->heads), trmi_int("kv_heads", m->kv_heads),
        trmi_int("hidden", m->hidden), trmi_int("vocabulary", m->vocabulary),
        trmi_int("context", m->context), trmi_int("experts", m->experts),
        trmi_int("top_experts", m->top_experts));
    if (m->differs != NULL) {
        trmi_report_put(r, trmi_string("differs", m->differs));
    }
    trmi_report_close(r);
    trmi_report_open_object(r, "hardware");
    trmi_report_put(r, trmi_string("name", p->hardware.name),
                    trmi_real("peak_flops", p->hardware.flops[p->problem.type]),
                    trmi_real("device_bytes", p->hardware.memory),
                    trmi_string("products", trmi_product_word(p->problem.type)),
                    trmi_int("devices_per_node", p->hardware.per_node));
    trmi_report_close(r);
}

/* Puts the bound and what it assumes. */
static void put_certificate(trmi_report *r, const trm_hardware_plan *p) {
    trmi_report_open_object(r, "certificate");
    trmi_report_put(
        r, trmi_real("objective", p->found.best.cost.seconds),
        trmi_real("lower_bound", p->found.bounds.all), trmi_real("gap", trmi_hardware_plan_gap(p)),
        trmi_real("gap_cut_alike",
                  p->found.fits ? 1 - p->found.bounds.cut_alike / p->found.best.cost.seconds : NAN),
        trmi_string("gap_reason", gap_reason(p)), trmi_real("solve_seconds", p->found.seconds),
        trmi_real("plans", p->found.priced), trmi_real("plans_over_memory", p->found.excluded));
    trmi_report_open_array(r, "assumptions");
    for (int i = 0; i < ASSUMPTIONS; i++) {
        trmi_report_put(r, trmi_string(NULL, assumptions[i]));
    }
    trmi_report_close(r);
    trmi_report_close(r);
}

/* Puts the runner-up of each kind, the plans without a limit and of least memory, and the given
 * one. */
static void put_others(trmi_report *r, const trm_hardware_plan *p) {
    trmi_report_open_array(r, "runners_up");
    for (int k = 0; k < TRMI_KINDS; k++) {
        const trmi_priced_plan *runner = &p->found.runners[k];
        if (p->found.fits && runner->cost.seconds < INFINITY) {
            trmi_report_open_object(r, NULL);
            trmi_report_put(
                r, trmi_string("kind", trmi_plan_kind_name((trmi_plan_kind)k)),
                trmi_real("slower", runner->cost.seconds / p->found.best.cost.seconds - 1));
            put_named_plan(r, "found", p, runner);
            trmi_report_close(r);
        }
    }
    trmi_report_close(r);
    put_named_plan(r, "without_memory_limit", p, &p->found.unlimited);
    put_named_plan(r, "least_memory", p, &p->found.least);
    if (p->has_given) {
        put_named_plan(r, "given", p, &p->given);
        trmi_report_put(
            r, trmi_real("given_slower", p->given.cost.seconds / p->found.best.cost.seconds - 1),
            trmi_bool("given_fits", p->given.cost.bytes <= p->problem.memory));
    }
}

/* Puts the curve of memory against time: the fastest plans within falling limits. */
static void put_curve(trmi_report *r, const trm_hardware_plan *p) {
    trmi_priced_plan points[TRMI_CURVE_POINTS];
    const int count = trmi_hardware_curve(p, points);
    trmi_report_open_array(r, "frontier");
    for (int i = 0; i < count; i++) {
        char described[TRMI_PARALLELISM_TEXT];
        trmi_parallelism_describe(&p->problem, &points[i].plan, described, sizeof described);
        trmi_report_open_object(r, NULL);
        trmi_report_put(r, trmi_real("step_seconds", points[i].cost.seconds),
                        trmi_real("memory_bytes", points[i].cost.bytes),
                        trmi_string("described", described));
        trmi_report_close(r);
    }
    trmi_report_close(r);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes the parts of the step that take at least 0.1 %, largest first. */
static void say_parts(trmi_report *r, const trmi_step_cost *cost) {
    bool told[TRMI_PARTS] = {false};
    for (int n = 0; n < TRMI_PARTS; n++) {
        int most = -1;
        for (int i = 0; i < TRMI_PARTS; i++) {
            if (!told[i] && (most < 0 || cost->part[i] > cost->part[most])) {
                most = i;
            }
        }
        told[most] = true;
        if (cost->part[most] < cost->seconds * 1e-3) {
            break;
        }
        trmi_report_tell(r, "[more]?{, |}[part]%s [share]%.1f %%", trmi_bool("more", n > 0),
                         trmi_string("part", trmi_step_part_name((trmi_step_part)most)),
                         trmi_real("share", 100 * cost->part[most] / cost->seconds));
    }
}

/* Writes what limits the step: memory, and the largest part that is no product. */
static void say_limit(trmi_report *r, const trm_hardware_plan *p) {
    const trmi_step_cost *cost = &p->found.best.cost;
    double free = p->found.unlimited.cost.seconds;
    int most = TRMI_PART_ATTENTION;
    for (int i = most; i < TRMI_PARTS; i++) {
        most = cost->part[i] > cost->part[most] ? i : most;
    }
    trmi_report_tell(r, "limited by    products [products]%.1f %%, then [part]%s [share]%.1f %%",
                     trmi_real("products", 100 * cost->part[TRMI_PART_PRODUCTS] / cost->seconds),
                     trmi_string("part", trmi_step_part_name((trmi_step_part)most)),
                     trmi_real("share", 100 * cost->part[most] / cost->seconds));
    if (cost->seconds > free * 1.001) {
        trmi_report_tell(r,
                         "; memory: without its limit [less]%.1f %% less time by "
                         "[without_memory_limit.described]%s",
                         trmi_real("less", 100 * (1 - free / cost->seconds)));
    }
    trmi_report_say(r, "\n");
}

/* Writes the given plan and where the best one saves time. */
static void say_given(trmi_report *r, const trm_hardware_plan *p) {
    const trmi_step_cost *own = &p->given.cost, *best = &p->found.best.cost;
    trmi_report_say(
        r, "\ngiven plan    [given.described]%s\n"
           "              [given.step_seconds]%T a step, [given.tokens_per_second_per_device]%.0f "
           "tokens/s a device, MFU [given.mfu]%.1f{1e2} %%, [given.memory_bytes]%b a device"
           "[given_fits]?{|, which does not fit}\n              ");
    say_parts(r, own);
    trmi_report_tell(r,
                     "\nthe best plan takes [saved]%.1f %% [less]?{less|more} time than the "
                     "given plan[less]?{|, which does not fit}",
                     trmi_real("saved", 100 * fabs(1 - best->seconds / own->seconds)),
                     trmi_bool("less", best->seconds <= own->seconds));
    for (int i = 0, told = 0; i < TRMI_PARTS; i++) {
        double saved = own->part[i] - best->part[i];
        if (fabs(saved) > 0.005 * own->seconds) {
            trmi_report_tell(r, "[more]?{,|:} [part]%s [saved]%T [less]?{less|more}",
                             trmi_bool("more", told++ > 0),
                             trmi_string("part", trmi_step_part_name((trmi_step_part)i)),
                             trmi_real("saved", fabs(saved)), trmi_bool("less", saved > 0));
        }
    }
    trmi_report_say(r, "\n");
}

/* Writes one line for each fact: machine, model, plan, step, memory, time, proof; then the plans
 * that come next, and the given one. */
static void say_lines(trmi_report *r, const trm_hardware_plan *p) {
    trmi_report_say(
        r, "machine       [devices]%d x [hardware.name]%s: [hardware.peak_flops]%.0f{1e-12} "
           "TFLOP/s [hardware.products]%s, [hardware.device_bytes]%b a device\n"
           "model         [model.name]%s: [model.parameters]%.4g{1e-9} billion parameters, "
           "[global_batch]%d samples of [model.context]%d tokens\n");
    if (p->model.differs != NULL) {
        trmi_report_say(r, "              ([model.differs]%s)\n");
    }
    trmi_report_say(r, "plan          [described]%s\n");
    if (!p->found.fits) {
        trmi_report_say(r, "              no plan fits; this is the one of least memory "
                           "([certificate.gap_reason]%s)\n");
    }
    trmi_report_say(r, "step          [step_seconds]%T predicted, "
                       "[tokens_per_second_per_device]%.0f tokens/s a device, MFU "
                       "[mfu]%.1f{1e2} %%\n"
                       "memory        [memory_bytes]%b of [memory_limit_bytes]%b a device: ");
    trmi_report_say_each(r, "memory", "[@]%s []%b", ", ");
    trmi_report_say(r, "\ntime          ");
    say_parts(r, &p->found.best.cost);
    trmi_report_say(r, "\n");
    say_limit(r, p);
    trmi_report_say(r, "proof         [certificate.plans]%.0f plans priced in "
                       "[certificate.solve_seconds]%T, [certificate.plans_over_memory]%.0f over "
                       "the memory");
    if (p->found.fits) {
        trmi_report_say(r, "; no other one is faster by these costs, ");
        trmi_report_say(r, trmi_hardware_plan_gap(p) > 1e-9
                               ? "and none whose blocks differ by more than "
                                 "[certificate.gap]%.2f{1e2} %% "
                                 "([certificate.gap_cut_alike]%.2f{1e2} %% where all are cut alike)"
                               : "nor one whose blocks differ: gap 0");
    }
    trmi_report_say(r, "; the schedule, played, takes [played_seconds]%T\n"
                       "MFU           model FLOPs / peak: 6 x parameters in products + 6 x blocks "
                       "x context x heads x head width (causal) a token\n"
                       "assuming      ");
    trmi_report_say_each(r, "certificate.assumptions", "[]%s\n", "              ");
    if (p->found.fits) {
        trmi_report_say(r, "\nfastest plan with another ...\n");
        trmi_report_say_each(r, "runners_up",
                             "  [kind]%-17s +[slower]%.2f{1e2} %%  [found.described]%s\n", NULL);
    }
    if (p->has_given) {
        say_given(r, p);
    }
}

/* Contract in trireme/plan.h. The search prices every plan whose blocks are cut and stored alike;
 * the bound is over plans whose blocks differ, too. */
char *trm_hardware_plan_report(const trm_hardware_plan *p, bool json) {
    TRMI_NEED_OR(NULL, NULL, p);
    trmi_report r;
    trmi_report_begin(&r, json);
    trmi_report_put(&r, trmi_string("event", "plan"), trmi_int("devices", p->problem.devices),
                    trmi_int("global_batch", p->problem.batch),
                    trmi_bool("infeasible", !p->found.fits));
    put_problem(&r, p);
    trmi_hardware_put_plan(&r, p, &p->found.best);
    trmi_report_put(&r, trmi_real("memory_limit_bytes", p->problem.memory),
                    trmi_real("played_seconds", p->played));
    put_certificate(&r, p);
    put_others(&r, p);
    if (json) {
        put_curve(&r, p);
    } else {
        say_lines(&r, p);
    }
    return trmi_report_end(&r);
}
