/* SPDX-License-Identifier: Apache-2.0 */
/* Reports on an executor: its memory (trm_exec_get_info) and its program, step by step, as a table
 * or as JSON (trm_exec_explain).
 *
 * trm_exec_get_info counts the memory of one rank by itself; then each active way of training
 * corrects the numbers. Memory limits use the prediction in exec_memory.c, which must agree. */
#include "exec/exec.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "exec/exec_memory.h"

#include <stdlib.h>
#include <string.h>

/* Returns the resident bytes beside the arenas and slots: the growth of the process that
 * trmi_exec_create measured (compiled program, kernel tables), the code that has been loaded since
 * then, by creation and by steps, and the bytes by which whole pages exceed each arena and slot.
 * Code that an earlier executor of the process has loaded already is not counted again. */
static int64_t overhead_bytes(const trm_exec *exec, const trm_exec_info *info) {
    int64_t code = trmi_os_file_bytes() - exec->file_bytes,
            bytes = exec->overhead_bytes + info->overhead_bytes + (code > 0 ? code : 0);
    for (int a = 1; a < TRMI_ARENAS; a++) {
        int64_t used = exec->program->arena_bytes[a] -
                       (a == TRMI_ARENA_GRAD ? exec->program->untouched_bytes : 0);
        bytes += exec->env.arena[a] != NULL
                     ? trmi_program_arena_resident(exec->program, a, exec->owned[a] == NULL) - used
                     : 0;
    }
    /* Slots in slices (slot_bytes corrected by a way) have no page rounding of this kind. */
    int64_t slots = trmi_update_bytes(exec->update), count = trmi_update_slots(exec->update);
    for (int64_t i = 0; i < count && info->slot_bytes == slots; i++) {
        bytes += (int64_t)trmi_map_resident((size_t)(slots / count)) - slots / count;
    }
    return bytes > 0 ? bytes : 0;
}

/* Contract in trireme/exec.h. Gradients that stay in their factors take no memory, unless the
 * caller has asked for the dense range. */
void trm_exec_get_info(const trm_exec *exec, trm_exec_info *out) {
    TRMI_NEED_OR(, NULL, exec, out);
    const trm_program *p = exec->program;
    *out = (trm_exec_info){
        .parameter_count = exec->parameter_count,
        .parameter_bytes = p->arena_bytes[TRMI_ARENA_PARAM],
        .gradient_bytes = (p->arena_bytes[TRMI_ARENA_GRAD] -
                           (exec->gradients_handed_out ? 0 : p->untouched_bytes)) *
                          (exec->accumulator != NULL ? 2 : 1),
        .slot_bytes = trmi_update_bytes(exec->update),
        .activation_bytes =
            p->arena_bytes[TRMI_ARENA_ACTIVATION] + p->arena_bytes[TRMI_ARENA_COOPERATIVE],
        .other_bytes = p->arena_bytes[TRMI_ARENA_INPUT] + p->arena_bytes[TRMI_ARENA_STATE] +
                       p->arena_bytes[TRMI_ARENA_CONSTANT] + p->arena_bytes[TRMI_ARENA_SCRATCH] +
                       p->arena_bytes[TRMI_ARENA_CAST],
        .create_seconds = exec->create_seconds,
        .steps = p->steps_count,
        .threads = exec->threads,
    };
    /* Active ways correct the sizes of one rank by itself. */
    trmi_distribution_describe(exec, out);
    out->overhead_bytes = overhead_bytes(exec, out);
    out->backend = exec->backend->target.name;
    out->total_bytes = out->parameter_bytes + out->gradient_bytes + out->slot_bytes +
                       out->activation_bytes + out->other_bytes + out->overhead_bytes;
    for (int32_t i = 0; i < p->steps_count; i++) {
        out->flops += p->steps[i].cost.flops;
        out->predicted_seconds += p->steps[i].predicted_seconds;
    }
}

/* Appends one program step as a JSON object. shape, layout and offset are of its first output. */
static void step_json(const trm_exec *exec, const trmi_step *step, trmi_text *text) {
    const trm_program *p = exec->program;
    trmi_text_printf(text, "{\"name\":");
    trmi_text_json_string(text, step->name);
    trmi_text_printf(text, ",\"kind\":\"%s\",\"phase\":\"%s\"", trmi_step_kind_name(step),
                     step->phase == TRMI_FORWARD ? "forward" : "backward");
    if (step->outputs[0] != 0) {
        const trmi_buffer *b = &p->buffers[step->outputs[0]];
        trmi_text_printf(text, ",\"layout\":\"%s\",\"dtype\":\"%s\",\"shape\":[",
                         trmi_layout_name(b->layout), trm_dtype_name(b->dtype));
        for (int32_t d = 0; d < b->shape.rank; d++) {
            trmi_text_printf(text, "%s%lld", d ? "," : "", (long long)b->shape.dim[d]);
        }
        trmi_text_printf(text, "],\"offset\":%lld", (long long)b->offset);
    }
    if (step->algorithm != NULL) {
        trmi_text_printf(text, ",\"algorithm\":");
        trmi_text_json_string(text, step->algorithm);
    }
    trmi_text_printf(text,
                     ",\"flops\":%.0f,\"bytes\":%.0f,\"predicted_seconds\":", step->cost.flops,
                     step->cost.bytes);
    trmi_text_json_number(text, step->predicted_seconds);
    trmi_text_printf(text, "}");
}

/* Appends the executor as one JSON object: totals, memory in bytes, then the array of steps. */
static void explain_json(const trm_exec *exec, const trm_exec_info *info, trmi_text *text) {
    const trm_program *p = exec->program;
    trmi_text_printf(
        text,
        "{\"backend\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"memory\":{"
        "\"parameters\":%lld,\"gradients\":%lld,\"slots\":%lld,\"activations\":%lld,"
        "\"other\":%lld,\"overhead\":%lld,\"total\":%lld},\"flops\":%.0f,\"predicted_seconds\":",
        exec->backend->name, exec->env.threads, (long long)info->parameter_count,
        (long long)info->parameter_bytes, (long long)info->gradient_bytes,
        (long long)info->slot_bytes, (long long)info->activation_bytes,
        (long long)info->other_bytes, (long long)info->overhead_bytes, (long long)info->total_bytes,
        info->flops);
    trmi_text_json_number(text, info->predicted_seconds);
    trmi_text_printf(text, ",\"plan_seconds\":");
    trmi_text_json_number(text, p->plan_seconds);
    trmi_text_printf(text, ",\"create_seconds\":");
    trmi_text_json_number(text, exec->create_seconds);
    trmi_text_printf(text, ",\"steps\":[");
    for (int32_t i = 0; i < p->steps_count; i++) {
        trmi_text_append(text, ",", i > 0);
        step_json(exec, &p->steps[i], text);
    }
    trmi_text_printf(text, "]}");
}

/* Appends the program as a table, one line a step, and a summary of memory and times. */
static void explain_text(const trm_exec *exec, const trm_exec_info *info, trmi_text *text) {
    const trm_program *p = exec->program;
    trmi_text_printf(text, "%-4s %-34s %-20s %-10s %-24s %-9s %-14s %9s %9s %9s\n", "step", "name",
                     "operator", "phase", "shape", "dtype", "layout", "GFLOP", "MB", "pred. us");
    int32_t reorders = 0, fused = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *step = &p->steps[i];
        const trmi_buffer *b = &p->buffers[step->outputs[0]];
        char shape[96] = "-";
        reorders += step->kind == TRMI_STEP_REORDER;
        fused += step->kind == TRMI_STEP_OP &&
                 (step->op_kind == TRMI_OP_NORM_ACT || step->op_kind == TRMI_OP_NORM_ACT_GRAD ||
                  step->op_kind == TRMI_OP_NORM_ACT_INFER);
        if (step->outputs[0] != 0) {
            trm_shape_format(&b->shape, shape, sizeof shape);
        }
        trmi_text_printf(
            text, "%-4d %-34s %-20s %-10s %-24s %-9s %-14s %9.3f %9.2f %9.1f%s%s\n", i, step->name,
            trmi_step_kind_name(step), step->phase == TRMI_FORWARD ? "forward" : "backward", shape,
            step->outputs[0] != 0 ? trm_dtype_name(b->dtype) : "-",
            step->outputs[0] != 0 ? trmi_layout_name(b->layout) : "-", step->cost.flops / 1e9,
            step->cost.bytes / 1e6, step->predicted_seconds * 1e6,
            step->algorithm != NULL ? "  " : "", step->algorithm != NULL ? step->algorithm : "");
    }
    trmi_text_printf(
        text,
        "\n%d steps, %d reorders, %d fused norms; back-end %s, %d threads\n"
        "%lld parameters; memory: parameters %.1f MB, gradients %.1f MB, slots %.1f MB, "
        "activations %.1f MB, other %.1f MB, overhead %.1f MB, total %.1f MB\n"
        "%.2f GFLOP a step, predicted %.1f ms; planned in %.1f ms, created in %.1f ms\n",
        p->steps_count, reorders, fused, exec->backend->name, exec->env.threads,
        (long long)info->parameter_count, (double)info->parameter_bytes / 1e6,
        (double)info->gradient_bytes / 1e6, (double)info->slot_bytes / 1e6,
        (double)info->activation_bytes / 1e6, (double)info->other_bytes / 1e6,
        (double)info->overhead_bytes / 1e6, (double)info->total_bytes / 1e6, info->flops / 1e9,
        info->predicted_seconds * 1e3, p->plan_seconds * 1e3, exec->create_seconds * 1e3);
}

char *trm_exec_explain(const trm_exec *exec, bool json) {
    TRMI_NEED_OR(NULL, NULL, exec);
    trm_exec_info info;
    trmi_text text = {0};
    trm_exec_get_info(exec, &info);
    if (json) {
        explain_json(exec, &info, &text);
    } else {
        explain_text(exec, &info, &text);
    }
    if (text.failed) {
        trmi_text_free(&text);
        return NULL;
    }
    return text.data;
}
