/* SPDX-License-Identifier: Apache-2.0 */
/* Takes weight gradients that are always zero out of the reductions: a convolution's kernel
 * taps that only ever see padding.
 *
 *      3x3 with padding on an image of one pixel:    . . .      [ tap 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 ]
 *                                                    . x .      [   nothing travels  | x |  nothing     ]
 *                                                    . . .
 *
 * They are a quarter of ResNet-50's gradients at 32x32. Parameters, slices and updates do not
 * change: the optimiser reads the zeros that each rank has. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/checked.h"

#include <string.h>

enum { LEAST = 1 << 16 }; /* elements that are worth cutting a range in two */

/* Returns whether a tap meets a pixel of the image in dimension `d`. */
static bool meets_pixel(const trmi_attrs *a, int d, int64_t tap, int64_t in, int64_t out) {
    for (int64_t o = 0; o < out; o++) {
        int64_t at = o * a->conv.stride[d] - a->conv.pad[2 * d] + tap * a->conv.dilation[d];
        if (at >= 0 && at < in) {
            return true;
        }
    }
    return false;
}

/* Returns the step that computes a parameter's gradient, if it is that of a convolution whose taps
 * are its outermost dimension in memory; else NULL. */
static const trmi_step *find_gradient_step(const trm_program *p, const trmi_param *param) {
    const trmi_buffer *b = &p->buffers[param->param_buffer];
    for (int32_t i = 0; i < p->steps_count && b->shape.rank == 4 && b->layout == TRMI_CHANNELS_LAST;
         i++) {
        const trmi_step *s = &p->steps[i];
        if (s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_CONV2D_GRAD_WEIGHTS &&
            s->outputs[0] == param->grad_buffer) {
            return s;
        }
    }
    return NULL;
}

/* Returns whether the gradient of a tap is always zero: it meets padding only. */
static bool is_always_zero(const trm_program *p, const trmi_step *s, int64_t tap) {
    const trm_shape *dy = &p->buffers[s->inputs[0]].shape, *x = &p->buffers[s->inputs[1]].shape;
    int64_t width = p->buffers[s->outputs[0]].shape.dim[3];
    return !meets_pixel(s->attrs, 0, tap / width, x->dim[2], dy->dim[2]) ||
           !meets_pixel(s->attrs, 1, tap % width, x->dim[3], dy->dim[3]);
}

/* Returns the optimiser's first block that begins at element `at` or after it. */
static int64_t first_block(const trm_exec *exec, int64_t at) {
    int64_t low = 0, high = trmi_update_block_count(exec->update);
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (trmi_update_block_offset(exec->update, middle) < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Cuts [begin, end) out of the range that holds it. */
static void cut_out(trmi_parallel *p, int64_t begin, int64_t end) {
    for (int32_t i = 0; i < p->ranges_count; i++) {
        trmi_range whole = p->ranges[i];
        int64_t behind = whole.begin + whole.count;
        if (begin < whole.begin || end > behind || whole.always_zero) {
            continue;
        }
        trmi_range parts[3] = {whole, whole, whole};
        parts[0].count = begin - whole.begin;
        parts[1].begin = begin, parts[1].count = end - begin, parts[1].always_zero = true;
        parts[2].begin = end, parts[2].count = behind - end;
        int32_t first = parts[0].count == 0, more = (parts[0].count > 0) + (parts[2].count > 0);
        memmove(&p->ranges[i + 1 + more], &p->ranges[i + 1],
                (size_t)(p->ranges_count - i - 1) * sizeof *p->ranges);
        memcpy(&p->ranges[i], parts + first, (size_t)(more + 1) * sizeof *p->ranges);
        p->ranges_count += more;
        return;
    }
}

/* Cuts runs of taps whose gradients are always zero out of the ranges, at most TRMI_ZEROS_MOST runs
 * of a parameter, in whole blocks of the optimiser. */
static void cut_parameter(trm_exec *exec, const trmi_param *param) {
    const trm_program *program = exec->program;
    const trmi_step *s = find_gradient_step(program, param);
    if (s == NULL) {
        return;
    }
    const trm_shape *w = &program->buffers[s->outputs[0]].shape;
    int64_t taps = w->dim[2] * w->dim[3], each = w->dim[0] * w->dim[1], begin = 0;
    int64_t at = program->buffers[param->param_buffer].offset / (int64_t)sizeof(float);
    for (int64_t tap = 0, found = 0; tap <= taps && found < TRMI_ZEROS_MOST; tap++) {
        if (tap < taps && is_always_zero(program, s, tap)) {
            continue;
        }
        /* The run of zero taps ends before this one. Only whole blocks of the optimiser within the
         * run are cut out, and only if they are worth it. */
        int64_t last = tap == taps ? first_block(exec, at + tap * each)
                                   : first_block(exec, at + tap * each + 1) - 1;
        int64_t first =
            trmi_update_block_offset(exec->update, first_block(exec, at + begin * each));
        int64_t end = trmi_update_block_offset(exec->update, last);
        if (end - first >= LEAST) {
            found++;
            cut_out(trmi_parallel_of(exec), first, end);
        }
        begin = tap + 1;
    }
}

/* Contract in ranks_state.h. Called once the ranges are known; a range that is cut in three keeps
 * its place in their order, and each gets its counts for the ranks. */
void trmi_cut_zero_gradients(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    /* a rank's rows at a cut of the image meet other taps than those of the whole image */
    if ((p->split != NULL && !exec->program->by_samples) || exec->fixed_bits) {
        return;
    }
    for (int32_t i = 0; i < exec->program->trained_count; i++) {
        if (!p->items[i].skip ||
            trmi_param_is_cooperative(exec->program, &exec->program->params[i])) {
            cut_parameter(exec, &exec->program->params[i]);
        }
    }
    for (int32_t i = 0; i < p->ranges_count; i++) {
        p->ranges[i].counts = p->counts + (int64_t)i * p->size;
    }
}
