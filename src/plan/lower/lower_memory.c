/* SPDX-License-Identifier: Apache-2.0 */
/* Places every buffer in its arena. PARAM and GRAD are ordered by the time at which backward
 * finishes the gradients; activations share bytes over time (lower_places.c). This file computes
 * lifetimes, lets outputs take the bytes of inputs that die, and computes the offsets of all other
 * arenas. The back-end reports its scratch when layouts and aliases are known. */
#include "plan/passes/pass.h"
#include "plan/pipeline/stages.h"

#include "base/checked.h"
#include "base/error.h"

/* ---- liveness ---- */

/* Extends the lifetime of a buffer to a step. */
static void extend_lifetime(trm_program *p, int32_t buffer, int32_t step) {
    if (buffer == 0) {
        return;
    }
    trmi_buffer *b = &p->buffers[trmi_buffer_root(p, buffer)];
    b->last_step = step > b->last_step ? step : b->last_step;
    b->first_step = step < b->first_step ? step : b->first_step;
}

/* Computes the lifetimes of all buffers. Outputs live until the end, and so do gradients that stay
 * in factors. */
static void find_lifetimes(trm_program *p) {
    for (int32_t i = 1; i < p->buffers_count; i++) {
        p->buffers[i].first_step = p->steps_count;
        p->buffers[i].last_step = -1;
    }
    for (int32_t s = 0; s < p->steps_count; s++) {
        for (int32_t i = 0; i < p->steps[s].inputs_count; i++) {
            extend_lifetime(p, p->steps[s].inputs[i], s);
        }
        for (int32_t i = 0; i < p->steps[s].outputs_count; i++) {
            extend_lifetime(p, p->steps[s].outputs[i], s);
            extend_lifetime(p, p->steps[s].outputs[i], s - p->steps[s].ahead);
        }
    }
    for (int32_t i = 0; i < p->outputs_count; i++) {
        extend_lifetime(p, p->outputs[i], p->steps_count);
    }
    for (int32_t i = 0; i < p->params_count; i++) {
        extend_lifetime(p, p->params[i].sparse_ids, p->steps_count);
        extend_lifetime(p, p->params[i].sparse_rows, p->steps_count);
        extend_lifetime(p, p->params[i].factor_left, p->steps_count);
        extend_lifetime(p, p->params[i].factor_right, p->steps_count);
    }
}

/* ---- in place ---- */

/* Lets output 0 of a step share the bytes of an input that dies there, where the back-end allows
 * it. A gradient keeps its place in GRAD, and the input moves there; not with blocks of samples,
 * whose outputs the executor sums in a tree, and not in a pipeline, where each micro-batch in
 * flight has an input of its own. */
static void share_in_place(trm_program *p, const trmi_target *target, bool into_gradients) {
    if (target->in_place == NULL) {
        return;
    }
    for (int32_t s = 0; s < p->steps_count; s++) {
        const trmi_step *step = &p->steps[s];
        if (step->kind != TRMI_STEP_OP || step->outputs[0] == 0) {
            continue;
        }
        trmi_buffer *out = &p->buffers[step->outputs[0]];
        for (int32_t i = 0; i < step->inputs_count; i++) {
            int32_t root = step->inputs[i] == 0 ? 0 : trmi_buffer_root(p, step->inputs[i]);
            const trmi_buffer *in = &p->buffers[root];
            bool dies = root != 0 && in->last_step == s && in->arena == TRMI_ARENA_ACTIVATION;
            /* an input that the step reads twice cannot be overwritten */
            for (int32_t j = 0; j < step->inputs_count && dies; j++) {
                dies =
                    j == i || step->inputs[j] == 0 || trmi_buffer_root(p, step->inputs[j]) != root;
            }
            bool gradient = into_gradients && out->arena == TRMI_ARENA_GRAD;
            if (dies && out->alias_of == 0 && in->bytes == out->bytes &&
                (gradient || out->arena == TRMI_ARENA_ACTIVATION) &&
                target->in_place(target->context, p->graph, &p->graph->ops[step->op], i)) {
                if (gradient) {
                    p->buffers[root].alias_of = step->outputs[0];
                    out->first_step =
                        in->first_step < out->first_step ? in->first_step : out->first_step;
                } else {
                    out->alias_of = root;
                    p->buffers[root].last_step = out->last_step;
                }
                break;
            }
        }
    }
}

/* ---- offsets ---- */

/* Places the buffers of an arena one after another, each with room for `copies` of it. */
static void place_in_sequence(trm_program *p, trmi_arena_id arena, int32_t copies) {
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        if (b->arena == arena && b->alias_of == 0) {
            b->offset = p->arena_bytes[arena];
            p->arena_bytes[arena] += trmi_round_up(b->bytes * copies, TRMI_BUFFER_ALIGNMENT);
        }
    }
}

/* Returns whether a comes after b: by the time at which gradients are ready; those in factors
 * after these, so that the end of GRAD is never written; frozen ones last. */
static bool is_later(const trmi_param *a, const trmi_param *b) {
    if (a->frozen || b->frozen) {
        return a->frozen && !b->frozen;
    }
    bool factors = a->factor_left != 0, other = b->factor_left != 0;
    return factors != other ? factors : a->ready_step > b->ready_step;
}

/* Sorts the parameters and gives PARAM and GRAD the same offsets. */
static void place_parameters(trm_program *p) {
    /* A gradient is complete after the last step that touches its buffer. */
    for (int32_t i = 0; i < p->params_count; i++) {
        trmi_param *param = &p->params[i];
        param->ready_step =
            param->grad_buffer == 0 ? p->steps_count : p->buffers[param->grad_buffer].last_step;
    }
    for (int32_t i = 0; i < p->params_count; i++) {
        /* Insertion sort (is_later): gradients in the order in which they are complete, then those
         * in factors, then frozen parameters. */
        trmi_param item = p->params[i];
        int32_t j = i;
        for (; j > 0 && is_later(&p->params[j - 1], &item); j--) {
            p->params[j] = p->params[j - 1];
        }
        p->params[j] = item;
        p->trained_count += item.frozen ? 0 : 1;
    }
    for (int32_t i = 0; i < p->params_count; i++) {
        trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
        b->offset = p->arena_bytes[TRMI_ARENA_PARAM];
        p->arena_bytes[TRMI_ARENA_PARAM] += trmi_round_up(b->bytes, TRMI_BUFFER_ALIGNMENT);
        p->untouched_bytes +=
            p->params[i].factor_left != 0 ? trmi_round_up(b->bytes, TRMI_BUFFER_ALIGNMENT) : 0;
        if (p->params[i].grad_buffer != 0) {
            p->buffers[p->params[i].grad_buffer].offset = b->offset;
        }
        if (p->training && i < p->trained_count) {
            p->arena_bytes[TRMI_ARENA_GRAD] = p->arena_bytes[TRMI_ARENA_PARAM];
        }
    }
}

/* ---- scratch ---- */

/* From OWN_SCRATCH bytes on a step's scratch lies among the activations, for the time of the step:
 * memory that no other step would use for its scratch is then free for values of other steps. So
 * does scratch from ALONE_SCRATCH bytes on that is ALONE times that of any other step. Less is
 * SCRATCH, which steps find in the caches. */
enum { OWN_SCRATCH = 32 << 20, ALONE_SCRATCH = 2 << 20, ALONE = 4 };

/* Gets the scratch of all steps from the back-end. Returns from how many bytes on it lies among the
 * activations. */
static int64_t ask_scratch(trm_program *p, const trmi_target *target) {
    int64_t most = 0, second = 0; /* of those below OWN_SCRATCH */
    for (int32_t i = 0; i < p->steps_count && target->scratch != NULL; i++) {
        trmi_step *step = &p->steps[i];
        step->scratch_bytes = target->scratch(target->context, p, step);
        if (step->scratch_bytes < OWN_SCRATCH) {
            second = trmi_max_i64(second, trmi_min_i64(most, step->scratch_bytes));
            most = trmi_max_i64(most, step->scratch_bytes);
        }
    }
    return most >= ALONE_SCRATCH && most >= ALONE * second ? most : OWN_SCRATCH;
}

/* Gives scratch that lies among the activations buffers, and finds the bytes of SCRATCH. Aliases
 * must be known: a step in place may need other scratch. */
static trm_status add_scratch(trm_program *p, const trmi_target *target, trm_error *err) {
    int64_t shared = 0, capacity = p->buffers_count, own = ask_scratch(p, target);
    for (int32_t i = 0; i < p->steps_count; i++) {
        trmi_step *step = &p->steps[i];
        if (step->scratch_bytes < own) {
            shared = trmi_max_i64(shared, step->scratch_bytes);
            continue;
        }
        TRMI_TRY(TRMI_GROW(err, p->buffers, capacity, p->buffers_count + 1, "for the program"));
        step->scratch = p->buffers_count++;
        p->buffers[step->scratch] = (trmi_buffer){.name = step->name,
                                                  .dtype = TRM_UINT8,
                                                  .shape = trm_shape_of(step->scratch_bytes),
                                                  .arena = TRMI_ARENA_ACTIVATION,
                                                  .bytes = step->scratch_bytes,
                                                  .first_step = i,
                                                  .last_step = i};
    }
    p->arena_bytes[TRMI_ARENA_SCRATCH] = trmi_round_up(shared, TRMI_BUFFER_ALIGNMENT);
    return TRM_OK;
}

/* Gives aliases the arena, offset and lifetime of the buffer that they alias. */
static void resolve_aliases(trm_program *p) {
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        if (b->alias_of != 0) {
            const trmi_buffer *root = &p->buffers[trmi_buffer_root(p, i)];
            b->arena = root->arena;
            b->offset = root->offset;
            b->first_step = root->first_step;
            b->last_step = root->last_step;
        }
    }
}

/* Contract in plan/passes/pass.h. Parameters, inputs, states and constants live as long as the
 * program, and lie one after the other. Activations share memory by their lives
 * (trmi_lower_places). One scratch area serves all steps but those that need a large one. */
trm_status trmi_lower_memory(trm_program *program, const trmi_plan_options *options,
                             const trmi_roots *roots, trm_error *err) {
    (void)roots;
    find_lifetimes(program);
    share_in_place(program, options->target, options->blocks == 0 && program->staged == NULL);
    place_parameters(program);
    place_in_sequence(program, TRMI_ARENA_INPUT, 1);
    place_in_sequence(program, TRMI_ARENA_STATE, 1);
    place_in_sequence(program, TRMI_ARENA_CONSTANT, 1);
    place_in_sequence(program, TRMI_ARENA_COOPERATIVE, program->cooperative_ranks);
    if (program->staged != NULL) {
        TRMI_TRY(trmi_stage_lower(program, err));
    }
    TRMI_TRY(add_scratch(program, options->target, err));
    TRMI_TRY(trmi_lower_places(
        program, options->target->threads,
        options->reuse_gradients && options->blocks == 0 && program->staged == NULL, err));
    resolve_aliases(program);
    return TRM_OK;
}
