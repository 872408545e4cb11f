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
#include "base/format/report.h"
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
    /* Correct the sizes of one rank by itself by what the active ways add. */
    out->gradient_bytes += exec->added.gradient_bytes;
    out->slot_bytes += exec->added.slot_bytes;
    out->activation_bytes += exec->added.activation_bytes;
    out->other_bytes += exec->added.other_bytes;
    out->overhead_bytes = overhead_bytes(exec, out);
    out->backend = exec->backend->target.name;
    out->total_bytes = out->parameter_bytes + out->gradient_bytes + out->slot_bytes +
                       out->activation_bytes + out->other_bytes + out->overhead_bytes;
    for (int32_t i = 0; i < p->steps_count; i++) {
        out->flops += p->steps[i].cost.flops;
        out->predicted_seconds += p->steps[i].predicted_seconds;
    }
}

/* Puts one program step. shape, layout and offset are of its first output. */
static void put_step(trmi_report *r, const trm_program *p, int32_t index) {
    const trmi_step *step = &p->steps[index];
    char shape[96];
    trmi_report_open_object(r, NULL);
    trmi_report_put(r, trmi_int("#step", index), trmi_string("name", step->name),
                    trmi_string("kind", trmi_step_kind_name(step)),
                    trmi_string("phase", step->phase == TRMI_FORWARD ? "forward" : "backward"));
    if (step->outputs[0] != 0) {
        const trmi_buffer *b = &p->buffers[step->outputs[0]];
        trmi_report_put(r, trmi_string("layout", trmi_layout_name(b->layout)),
                        trmi_string("dtype", trm_dtype_name(b->dtype)),
                        trmi_string("#shape", trm_shape_format(&b->shape, shape, sizeof shape)));
        trmi_report_open_array(r, "shape");
        for (int32_t d = 0; d < b->shape.rank; d++) {
            trmi_report_put(r, trmi_int(NULL, b->shape.dim[d]));
        }
        trmi_report_close(r);
        trmi_report_put(r, trmi_int("offset", b->offset));
    }
    if (step->algorithm != NULL) {
        trmi_report_put(r, trmi_string("algorithm", step->algorithm));
    }
    trmi_report_put(r, trmi_whole("flops", step->cost.flops), trmi_whole("bytes", step->cost.bytes),
                    trmi_real("predicted_seconds", step->predicted_seconds));
    trmi_report_say_of(r, trmi_report_close(r),
                       "[#step]%-4d [name]%-34s [kind]%-20s [phase]%-10s [#shape]%-24s [dtype]%-9s "
                       "[layout]%-14s [flops]%9.3f{/1e9} [bytes]%9.2f{/1e6} "
                       "[predicted_seconds]%9.1f{1e6}");
    trmi_report_tell(r, step->algorithm != NULL ? "  [algorithm]%s\n" : "\n",
                     trmi_string("algorithm", step->algorithm));
}

/* Writes the summary of memory and times. */
static void say_summary(trmi_report *r, const trm_program *p) {
    int32_t reorders = 0, fused = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *step = &p->steps[i];
        reorders += step->kind == TRMI_STEP_REORDER;
        fused += step->kind == TRMI_STEP_OP &&
                 (step->op_kind == TRMI_OP_NORM_ACT || step->op_kind == TRMI_OP_NORM_ACT_GRAD ||
                  step->op_kind == TRMI_OP_NORM_ACT_INFER);
    }
    trmi_report_tell(
        r,
        "\n[count]%d steps, [reorders]%d reorders, [fused]%d fused norms; back-end [backend]%s, "
        "[threads]%d threads\n"
        "[parameters]%d parameters; memory: parameters [memory.parameters]%.1f{/1e6} MB, "
        "gradients [memory.gradients]%.1f{/1e6} MB, slots [memory.slots]%.1f{/1e6} MB, "
        "activations [memory.activations]%.1f{/1e6} MB, other [memory.other]%.1f{/1e6} MB, "
        "overhead [memory.overhead]%.1f{/1e6} MB, total [memory.total]%.1f{/1e6} MB\n"
        "[flops]%.2f{/1e9} GFLOP a step, predicted [predicted_seconds]%.1f{1e3} ms; planned in "
        "[plan_seconds]%.1f{1e3} ms, created in [create_seconds]%.1f{1e3} ms\n",
        trmi_int("count", p->steps_count), trmi_int("reorders", reorders),
        trmi_int("fused", fused));
}

/* Contract in trireme/exec.h. Totals, memory in bytes, then the steps; as text a table, one line a
 * step, and a summary. */
char *trm_exec_explain(const trm_exec *exec, bool json) {
    TRMI_NEED_OR(NULL, NULL, exec);
    const trm_program *p = exec->program;
    trm_exec_info info;
    trmi_report r;
    trm_exec_get_info(exec, &info);
    trmi_report_begin(&r, json);
    trmi_report_put(&r, trmi_string("backend", exec->backend->name),
                    trmi_int("threads", exec->env.threads),
                    trmi_int("parameters", info.parameter_count));
    trmi_report_open_object(&r, "memory");
    trmi_report_put(&r, trmi_int("parameters", info.parameter_bytes),
                    trmi_int("gradients", info.gradient_bytes), trmi_int("slots", info.slot_bytes),
                    trmi_int("activations", info.activation_bytes),
                    trmi_int("other", info.other_bytes), trmi_int("overhead", info.overhead_bytes),
                    trmi_int("total", info.total_bytes));
    trmi_report_close(&r);
    trmi_report_put(&r, trmi_whole("flops", info.flops),
                    trmi_real("predicted_seconds", info.predicted_seconds),
                    trmi_real("plan_seconds", p->plan_seconds),
                    trmi_real("create_seconds", exec->create_seconds));
    trmi_report_say(&r,
                    "step name                               operator             phase      shape "
                    "                   dtype     layout             GFLOP        MB  pred. us\n");
    trmi_report_open_array(&r, "steps");
    for (int32_t i = 0; i < p->steps_count; i++) {
        put_step(&r, p, i);
    }
    trmi_report_close(&r);
    say_summary(&r, p);
    return trmi_report_end(&r);
}
