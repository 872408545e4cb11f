/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a plan for a machine that is not here (a hardware file describes it), as lines for
 * people; hardware_json.c prints the same figures for scripts. Both read trm_hardware_plan only and
 * compute nothing that the search has not found.
 *
 * TP, PP, CP, EP, DP: tensor, pipeline, context, expert and data parallel. MFU: model FLOPs of a
 * step over the peak of the devices. */
#include "train/planner/hardware_plan.h"

#include <math.h>
#include <stdio.h>

/* Contract in hardware_plan.h. Text and JSON list the same sentences: a bound is worth as much as
 * its assumptions. */
const char *trmi_hardware_assumption(int index) {
    static const char *const list[] = {
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
    enum { COUNT = sizeof list / sizeof list[0] };
    return index >= 0 && index < COUNT ? list[index] : NULL;
}

/* Contract in hardware_plan.h. Three cases: no plan fits and none with other blocks could; no plan
 * of equal blocks fits; a plan was found, and only plans of unequal blocks are left below it. */
const char *trmi_hardware_gap_reason(const trm_hardware_plan *p) {
    if (!p->found.fits) {
        return p->found.lower_bound < INFINITY ? "no plan fits whose blocks are cut and stored "
                                                 "alike; one whose blocks differ may "
                                                 "fit, and takes at least the bound"
                                               : "no plan fits, nor one whose blocks differ: the "
                                                 "least memory of a stage is above "
                                                 "the limit in all of them";
    }
    return trmi_hardware_plan_gap(p) > 1e-9
               ? "plans are bounded, and not searched, whose blocks are cut or stored each in "
                 "another "
                 "way; no plan whose blocks are cut and stored alike is faster"
               : "";
}

/* Writes seconds with a unit. */
static const char *time_text(double seconds, char text[24]) {
    snprintf(text, 24, seconds < 1 ? "%.1f ms" : "%.3f s", seconds < 1 ? seconds * 1e3 : seconds);
    return text;
}

/* Appends the parts of the step that take at least 0.1 %, largest first. */
static void print_parts(trmi_text *t, const trmi_step_cost *cost) {
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
        trmi_text_printf(t, "%s%s %.1f %%", n > 0 ? ", " : "",
                         trmi_step_part_name((trmi_step_part)most),
                         100 * cost->part[most] / cost->seconds);
    }
}

/* Appends the memory by kind. */
static void print_memory(trmi_text *t, const trm_hardware_plan *p, const trmi_step_cost *cost) {
    char a[24], b[24];
    trmi_text_printf(t, "memory        %s of %s a device: reserved ",
                     trmi_bytes_text(cost->bytes, a), trmi_bytes_text(p->problem.memory, b));
    trmi_text_printf(t, "%s", trmi_bytes_text(p->hardware.reserved, a));
    for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
        trmi_text_printf(t, ", %s %s", trmi_memory_part_name((trmi_memory_part)i),
                         trmi_bytes_text(cost->memory[i], a));
    }
    trmi_text_printf(t, "\n");
}

/* Appends what keeps the step from being shorter: memory, and the largest part that is no
 * product. */
static void print_limit(trmi_text *t, const trm_hardware_plan *p) {
    const trmi_step_cost *cost = &p->found.best.cost;
    double free = p->found.unlimited.cost.seconds;
    int most = TRMI_PART_ATTENTION;
    for (int i = most; i < TRMI_PARTS; i++) {
        most = cost->part[i] > cost->part[most] ? i : most;
    }
    trmi_text_printf(t, "limited by    products %.1f %%, then %s %.1f %%",
                     100 * cost->part[TRMI_PART_PRODUCTS] / cost->seconds,
                     trmi_step_part_name((trmi_step_part)most),
                     100 * cost->part[most] / cost->seconds);
    if (cost->seconds > free * 1.001) {
        char words[TRMI_PARALLELISM_TEXT];
        trmi_parallelism_describe(&p->problem, &p->found.unlimited.plan, words, sizeof words);
        trmi_text_printf(t, "; memory: without its limit %.1f %% less time by %s",
                         100 * (1 - free / cost->seconds), words);
    }
    trmi_text_printf(t, "\n");
}

/* Appends the fastest plan that differs in each choice. */
static void print_runners(trmi_text *t, const trm_hardware_plan *p) {
    char words[TRMI_PARALLELISM_TEXT];
    trmi_text_printf(t, "\nfastest plan with another ...\n");
    for (int k = 0; k < TRMI_KINDS; k++) {
        const trmi_priced_plan *r = &p->found.runners[k];
        if (r->cost.seconds < INFINITY) {
            trmi_parallelism_describe(&p->problem, &r->plan, words, sizeof words);
            trmi_text_printf(t, "  %-17s +%.2f %%  %s\n", trmi_plan_kind_name((trmi_plan_kind)k),
                             100 * (r->cost.seconds / p->found.best.cost.seconds - 1), words);
        }
    }
}

/* Appends the given plan and where the best one saves time. */
static void print_given(trmi_text *t, const trm_hardware_plan *p) {
    char words[TRMI_PARALLELISM_TEXT], a[24], b[24];
    const trmi_step_cost *own = &p->given.cost, *best = &p->found.best.cost;
    trmi_parallelism_describe(&p->problem, &p->given.plan, words, sizeof words);
    trmi_text_printf(t, "\ngiven plan    %s\n", words);
    trmi_text_printf(
        t, "              %s a step, %.0f tokens/s a device, MFU %.1f %%, %s a device%s\n",
        time_text(own->seconds, a), trmi_hardware_plan_rate(p, own->seconds),
        100 * trmi_plan_utilisation(&p->problem, own->seconds), trmi_bytes_text(own->bytes, b),
        own->bytes > p->problem.memory ? ", which does not fit" : "");
    trmi_text_printf(t, "              ");
    print_parts(t, own);
    bool less = best->seconds <= own->seconds;
    trmi_text_printf(t, "\nthe best plan takes %.1f %% %s time than the given plan%s",
                     100 * fabs(1 - best->seconds / own->seconds), less ? "less" : "more",
                     less ? "" : ", which does not fit");
    for (int i = 0, told = 0; i < TRMI_PARTS; i++) {
        double saved = own->part[i] - best->part[i];
        if (fabs(saved) > 0.005 * own->seconds) {
            trmi_text_printf(t, "%s%s %s %s", told++ > 0 ? ", " : ": ",
                             trmi_step_part_name((trmi_step_part)i), time_text(fabs(saved), a),
                             saved > 0 ? "less" : "more");
        }
    }
    trmi_text_printf(t, "\n");
}

/* Contract in hardware_plan.h. Prints one line for each fact: machine, model, plan, step, memory,
 * time, proof; then the plans that come next, and the given one. */
void trmi_hardware_report_print(trmi_text *t, const trm_hardware_plan *p) {
    const trmi_step_cost *cost = &p->found.best.cost;
    char words[TRMI_PARALLELISM_TEXT], a[24], b[24];
    trmi_parallelism_describe(&p->problem, &p->found.best.plan, words, sizeof words);
    trmi_text_printf(t, "machine       %lld x %s: %.0f TFLOP/s %s, %s a device\n",
                     (long long)p->problem.devices, p->hardware.name,
                     p->hardware.flops[p->problem.type] * 1e-12, trmi_product_word(p->problem.type),
                     trmi_bytes_text(p->hardware.memory, a));
    trmi_text_printf(t, "model         %s: %.4g billion parameters, %lld samples of %lld tokens\n",
                     p->model.name, trmi_transformer_parameters(&p->model) * 1e-9,
                     (long long)p->problem.batch, (long long)p->model.context);
    if (p->model.differs != NULL) {
        trmi_text_printf(t, "              (%s)\n", p->model.differs);
    }
    trmi_text_printf(t, "plan          %s\n", words);
    if (!p->found.fits) {
        trmi_text_printf(t, "              no plan fits; this is the one of least memory (%s)\n",
                         trmi_hardware_gap_reason(p));
    }
    trmi_text_printf(t, "step          %s predicted, %.0f tokens/s a device, MFU %.1f %%\n",
                     time_text(cost->seconds, a), trmi_hardware_plan_rate(p, cost->seconds),
                     100 * trmi_plan_utilisation(&p->problem, cost->seconds));
    print_memory(t, p, cost);
    trmi_text_printf(t, "time          ");
    print_parts(t, cost);
    trmi_text_printf(t, "\n");
    print_limit(t, p);
    trmi_text_printf(t, "proof         %.0f plans priced in %s, %.0f over the memory",
                     p->found.priced, time_text(p->found.seconds, a), p->found.excluded);
    if (p->found.fits && trmi_hardware_plan_gap(p) > 1e-9) {
        trmi_text_printf(t,
                         "; no other one is faster by these costs, and none whose blocks differ by "
                         "more than %.2f %%",
                         100 * trmi_hardware_plan_gap(p));
    } else if (p->found.fits) {
        trmi_text_printf(t, "; no other one is faster by these costs, nor one whose blocks differ: "
                            "gap 0");
    }
    trmi_text_printf(t, "; the schedule, played, takes %s\n", time_text(p->played, b));
    trmi_text_printf(t,
                     "MFU           model FLOPs / peak: 6 x parameters in products + 6 x blocks x "
                     "context x heads x head width (causal) a token\n");
    for (int i = 0; trmi_hardware_assumption(i) != NULL; i++) {
        trmi_text_printf(t, "%-14s%s\n", i == 0 ? "assuming" : "", trmi_hardware_assumption(i));
    }
    if (p->found.fits) {
        print_runners(t, p);
    }
    if (p->has_given) {
        print_given(t, p);
    }
}
