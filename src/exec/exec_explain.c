/* The program as people and scripts read it. */
#include "exec/exec.h"
#include "exec/peak.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "exec/exec_memory.h"

#include <stdlib.h>
#include <string.h>

/* Kernels' tables, the compiled program and the back-end's code, as creation found them; the graph
 * of another exec may have brought some of it before. And the ends of the last pages. */
static int64_t overhead_bytes(const trm_exec *exec) {
    int64_t bytes = exec->overhead_bytes;
    for (int a = 1; a < TRMI_ARENAS; a++) {
        int64_t used = exec->program->arena_bytes[a] - (a == TRMI_ARENA_GRAD ? exec->program->untouched_bytes : 0);
        bytes += exec->env.arena[a] != NULL ? trmi_program_arena_resident(exec->program, a, exec->owned[a] == NULL) - used : 0;
    }
    int64_t slots = trmi_update_bytes(exec->update), count = trmi_update_slots(exec->update);
    for (int64_t i = 0; i < count; i++) {
        bytes += (int64_t)trmi_map_resident((size_t)(slots / count)) - slots / count;
    }
    return bytes > 0 ? bytes : 0;
}

static int64_t fed_bytes(const trm_exec *exec) {
    const trmi_parallel *p = exec->parallel;
    return exec->whole_inputs == NULL ? 0 : trmi_program_fed_bytes(exec->program, p != NULL ? p->size : 1, p != NULL && p->options.own_samples);
}

void trm_exec_describe(const trm_exec *exec, trm_exec_info *out) {
    const trm_program *p = exec->program;
    *out = (trm_exec_info){
        .parameter_count = exec->parameter_count,
        .parameter_bytes = p->arena_bytes[TRMI_ARENA_PARAM],
        .gradient_bytes = (p->arena_bytes[TRMI_ARENA_GRAD] - (exec->gradients_handed_out ? 0 : p->untouched_bytes)) *
                          (exec->accumulator != NULL ? 2 : 1),
        .slot_bytes = trmi_update_bytes(exec->update),
        .activation_bytes = p->arena_bytes[TRMI_ARENA_ACTIVATION] +
                            (exec->lanes != NULL ? trmi_lanes_bytes(exec->lanes) : 0),
        .other_bytes = p->arena_bytes[TRMI_ARENA_INPUT] + p->arena_bytes[TRMI_ARENA_STATE] +
                       p->arena_bytes[TRMI_ARENA_CONSTANT] + p->arena_bytes[TRMI_ARENA_SCRATCH] +
                       p->arena_bytes[TRMI_ARENA_CAST] + fed_bytes(exec),
        .overhead_bytes = overhead_bytes(exec),
        .create_seconds = exec->create_seconds,
        .steps = p->steps_count,
    };
    out->backend = exec->backend->target.name;
    out->total_bytes = out->parameter_bytes + out->gradient_bytes + out->slot_bytes +
                       out->activation_bytes + out->other_bytes + out->overhead_bytes;
    for (int32_t i = 0; i < p->steps_count; i++) {
        out->flops += p->steps[i].cost.flops * (exec->lanes != NULL ? exec->lanes->count : 1);
        out->predicted_seconds += p->steps[i].predicted_seconds;
    }
}

static const char *kind_of(const trmi_step *step) {
    return step->kind == TRMI_STEP_OP ? trmi_op_table[step->op_kind]->name : "reorder";
}

static void step_json(const trm_exec *exec, const trmi_step *step, trmi_text *text) {
    const trm_program *p = exec->program;
    trmi_text_printf(text, "{\"name\":");
    trmi_text_json_string(text, step->name);
    trmi_text_printf(text, ",\"kind\":\"%s\",\"phase\":\"%s\"", kind_of(step),
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
    trmi_text_printf(text, ",\"flops\":%.0f,\"bytes\":%.0f,\"predicted_seconds\":", step->cost.flops,
                     step->cost.bytes);
    trmi_text_json_number(text, step->predicted_seconds);
    trmi_text_printf(text, "}");
}

static void explain_json(const trm_exec *exec, const trm_exec_info *info, trmi_text *text) {
    const trm_program *p = exec->program;
    trmi_text_printf(text,
                     "{\"backend\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"memory\":{"
                     "\"parameters\":%lld,\"gradients\":%lld,\"slots\":%lld,\"activations\":%lld,"
                     "\"other\":%lld,\"overhead\":%lld,\"total\":%lld},\"flops\":%.0f,\"predicted_seconds\":",
                     exec->backend->name, exec->env.threads, (long long)info->parameter_count,
                     (long long)info->parameter_bytes, (long long)info->gradient_bytes,
                     (long long)info->slot_bytes, (long long)info->activation_bytes,
                     (long long)info->other_bytes, (long long)info->overhead_bytes,
                     (long long)info->total_bytes, info->flops);
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
        trmi_text_printf(text, "%-4d %-34s %-20s %-10s %-24s %-9s %-14s %9.3f %9.2f %9.1f%s%s\n", i,
                         step->name, kind_of(step),
                         step->phase == TRMI_FORWARD ? "forward" : "backward", shape,
                         step->outputs[0] != 0 ? trm_dtype_name(b->dtype) : "-",
                         step->outputs[0] != 0 ? trmi_layout_name(b->layout) : "-",
                         step->cost.flops / 1e9, step->cost.bytes / 1e6,
                         step->predicted_seconds * 1e6, step->algorithm != NULL ? "  " : "",
                         step->algorithm != NULL ? step->algorithm : "");
    }
    trmi_text_printf(text,
                     "\n%d steps, %d reorders, %d fused norms; back-end %s, %d threads\n"
                     "%lld parameters; memory: parameters %.1f MB, gradients %.1f MB, slots %.1f MB, "
                     "activations %.1f MB, other %.1f MB, overhead %.1f MB, total %.1f MB\n"
                     "%.2f GFLOP a step, predicted %.1f ms; planned in %.1f ms, created in %.1f ms\n",
                     p->steps_count, reorders, fused, exec->backend->name, exec->env.threads,
                     (long long)info->parameter_count, (double)info->parameter_bytes / 1e6,
                     (double)info->gradient_bytes / 1e6, (double)info->slot_bytes / 1e6,
                     (double)info->activation_bytes / 1e6, (double)info->other_bytes / 1e6,
                     (double)info->overhead_bytes / 1e6, (double)info->total_bytes / 1e6, info->flops / 1e9,
                     info->predicted_seconds * 1e3, p->plan_seconds * 1e3,
                     exec->create_seconds * 1e3);
}

char *trm_exec_explain(const trm_exec *exec, bool json) {
    trm_exec_info info;
    trmi_text text = {0};
    trm_exec_describe(exec, &info);
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

/* ---- profile -------------------------------------------------------------------------------------- */

/* How many steps are as this one, and the first of them. */
static int32_t equal_steps(const trm_program *p, const trmi_step *step, int32_t *first) {
    int32_t same = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *other = &p->steps[i];
        bool equal = other->kind == step->kind && other->op_kind == step->op_kind &&
                     other->inputs_count == step->inputs_count;
        for (int32_t j = 0; equal && j < step->inputs_count; j++) {
            const trmi_buffer *a = &p->buffers[step->inputs[j]], *b = &p->buffers[other->inputs[j]];
            equal = (step->inputs[j] == 0) == (other->inputs[j] == 0) &&
                    (step->inputs[j] == 0 ||
                     (trm_shape_equal(&a->shape, &b->shape) && a->layout == b->layout));
        }
        if (equal && step->outputs[0] != 0 && other->outputs[0] != 0) {
            equal = trm_shape_equal(&p->buffers[step->outputs[0]].shape,
                                    &p->buffers[other->outputs[0]].shape);
        }
        *first = equal && same == 0 ? i : *first;
        same += equal;
    }
    return same;
}

static bool touches(const trm_program *p, const trmi_step *step, const trmi_buffer *b) {
    for (int32_t i = 0; i < step->inputs_count + step->outputs_count; i++) {
        int32_t other = i < step->inputs_count ? step->inputs[i] : step->outputs[i - step->inputs_count];
        if (other != 0 && p->buffers[other].arena == b->arena && p->buffers[other].offset == b->offset) {
            return true;
        }
    }
    return false;
}

/* The farthest of the inputs that are at least half as large as the largest; one step is behind us
 * when a step is repeated, so that the search goes around. */
static double reuse_bytes(const trm_program *p, int32_t index) {
    const trmi_step *step = &p->steps[index];
    int64_t largest = 0;
    double farthest = 0;
    for (int32_t i = 0; i < step->inputs_count; i++) {
        largest = trmi_max_i64(largest, p->buffers[step->inputs[i]].bytes);
    }
    for (int32_t i = 0; i < step->inputs_count; i++) {
        const trmi_buffer *b = &p->buffers[step->inputs[i]];
        if (step->inputs[i] == 0 || 2 * b->bytes < largest) {
            continue;
        }
        double bytes = step->cost.bytes;
        for (int32_t back = 1; back < p->steps_count; back++) {
            const trmi_step *before = &p->steps[(index - back + p->steps_count) % p->steps_count];
            if (touches(p, before, b)) {
                break;
            }
            bytes += before->cost.bytes;
        }
        farthest = bytes > farthest ? bytes : farthest;
    }
    return farthest;
}

static double written_bytes(const trm_program *p, const trmi_step *step) {
    double bytes = 0;
    for (int32_t i = 0; i < step->outputs_count; i++) {
        bytes += step->outputs[i] != 0 ? (double)p->buffers[step->outputs[i]].bytes : 0;
    }
    return bytes < step->cost.bytes ? bytes : step->cost.bytes;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Rarely: while a sample runs, others who share the caches empty them. After each operator it cost a tenth of them. */
static const double between_samples = 0.05; /* seconds */

trm_status trm_exec_profile(trm_exec *exec, int repeats, trm_machine *beside, const trm_step_profile **out,
                            int32_t *count, trm_error *err) {
    const trm_program *p = exec->program;
    repeats = repeats < 1 ? 1 : repeats;
    double *times = trmi_alloc((size_t)p->steps_count * (size_t)repeats * sizeof *times);
    trmi_free(exec->profile);
    exec->profile = trmi_alloc((size_t)(p->steps_count + 1) * sizeof *exec->profile);
    trm_status status = TRM_OK;
    if (times == NULL || exec->profile == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "no memory to profile");
        goto done;
    }
    double sampled = trmi_os_now();
    /* Whole steps in order, so that every operator meets the caches that it meets in training. */
    for (int r = 0; r < repeats; r++) {
        for (int32_t i = 0; i < p->steps_count; i++) {
            double begin = trmi_os_now();
            TRMI_TRY_GOTO(status, trmi_exec_run(exec, i, i + 1, err), done);
            times[(size_t)i * (size_t)repeats + (size_t)r] = trmi_os_now() - begin;
            if (beside != NULL && trmi_os_now() > sampled + between_samples) {
                trmi_machine_sample_arithmetic(beside);
                sampled = trmi_os_now();
            }
        }
        if (beside != NULL) {
            trm_machine_sample(beside);
        }
    }
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *step = &p->steps[i];
        double *mine = times + (size_t)i * (size_t)repeats;
        qsort(mine, (size_t)repeats, sizeof *mine, by_value);
        int32_t first = i, same = equal_steps(p, step, &first);
        exec->profile[i] = (trm_step_profile){
            .name = step->name, .kind = kind_of(step), .algorithm = step->algorithm,
            .phase = step->phase == TRMI_FORWARD ? "forward" : "backward",
            .seconds = mine[repeats / 2], .flops = step->cost.flops, .bytes = step->cost.bytes,
            .written_bytes = written_bytes(p, step),
            .first_bytes = step->cost.first_read + step->cost.first_written,
            .first_written_bytes = step->cost.first_written,
            .work_flops = step->work_flops > 0 ? step->work_flops : step->cost.flops,
            .work_float32 = step->work_float32,
            .bfloat16 = step->inputs_count > 0 && p->buffers[step->inputs[0]].dtype == TRM_BFLOAT16,
            .reuse_bytes = reuse_bytes(p, i),
            .same = same, .first_same = first};
    }
    *out = exec->profile;
    *count = p->steps_count;
done:
    trmi_free(times);
    return status;
}
