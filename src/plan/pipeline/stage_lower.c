/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the steps of each chunk's forward and backward, and moves the values that live from forward
 * to backward to the arena KEPT, of which every micro-batch in flight has its own copy:
 *
 *      KEPT   [chunk 0: copy 0 | copy 1 | ... ][chunk 1: copy 0 | ... ]
 *
 * The offsets of buffers are those in copy 0; a run with micro-batch m shifts the arena's
 * address by (m mod copies) times the bytes of a copy. All other values die where they are made,
 * in a forward or a backward of one micro-batch, and share ACTIVATION over time in any order of
 * those. */
#include "plan/pipeline/stages.h"

#include "base/checked.h"
#include "base/error.h"

/* Returns the chunk of step `step` and whether it is of its backward. */
static int32_t chunk_of(const trmi_staged *s, int32_t step, bool *backward) {
    for (int32_t c = 0; c < s->pipeline.chunks; c++) {
        for (int32_t b = 0; b < 2; b++) {
            if (step >= s->chunks[c].steps[b][0] && step < s->chunks[c].steps[b][1]) {
                *backward = b;
                return c;
            }
        }
    }
    *backward = true;
    return 0; /* after the last step: backward of chunk 0 */
}

/* Finds the ends of all runs of steps. A REORDER belongs to the operator after it; those at the
 * end of the program, which move gradients, to the last backward. */
static void find_steps(trm_program *p, trmi_staged *s) {
    int32_t chunks = s->pipeline.chunks, step = 0;
    for (int32_t k = 0; k < 2 * chunks; k++) {
        bool backward = k >= chunks;
        int32_t c = backward ? 2 * chunks - 1 - k : k;
        int32_t end = s->operators[c][backward][1], next = step;
        for (int32_t i = step; i < p->steps_count; i++) {
            bool inside = p->steps[i].kind == TRMI_STEP_OP && p->steps[i].op < end;
            next = inside ? i + 1 : next;
        }
        next = k == 2 * chunks - 1 ? p->steps_count : next;
        s->chunks[c].steps[backward][0] = step;
        s->chunks[c].steps[backward][1] = next;
        step = next;
    }
}

/* Moves what lives beyond its run of steps to KEPT. */
static trm_status keep_values(trm_program *p, trmi_staged *s, int32_t chunk, trm_error *err) {
    trmi_stage_chunk *to = &s->chunks[chunk];
    int64_t begin = p->arena_bytes[TRMI_ARENA_KEPT];
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        bool made, read;
        if (b->arena != TRMI_ARENA_ACTIVATION || b->alias_of != 0 || b->last_step < 0 ||
            chunk_of(s, b->first_step, &made) != chunk) {
            continue;
        }
        /* Values of one forward or one backward run stay ACTIVATION, whose memory other runs use
         * again. */
        int32_t reader = chunk_of(s, b->last_step, &read);
        bool to_the_end = b->last_step >= p->steps_count;
        if (reader == chunk && made == read && !to_the_end) {
            continue;
        }
        if (reader != chunk && !to_the_end) {
            return TRMI_FAIL(err, TRM_INTERNAL,
                             "%s: chunk %d of a stage makes a value that chunk %d reads", b->name,
                             chunk, reader);
        }
        b->arena = TRMI_ARENA_KEPT;
        b->offset = begin + to->kept_bytes;
        to->kept_bytes += trmi_round_up(b->bytes, TRMI_BUFFER_ALIGNMENT);
    }
    p->arena_bytes[TRMI_ARENA_KEPT] += to->kept_bytes * to->copies;
    return TRM_OK;
}

/* Finds which bytes of GRAD a chunk's backward completes: parameters are in the order of the steps
 * that complete their gradients, those without gradients come last. */
static void find_gradients(const trm_program *p, trmi_staged *s) {
    for (int32_t i = 0; i < p->trained_count; i++) {
        const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
        bool backward;
        trmi_stage_chunk *c = &s->chunks[chunk_of(s, p->params[i].ready_step, &backward)];
        int64_t end = b->offset + trmi_round_up(b->bytes, TRMI_BUFFER_ALIGNMENT);
        c->gradients_begin = c->gradients_end == 0 ? b->offset : c->gradients_begin;
        c->gradients_end = end;
    }
}

trm_status trmi_stage_lower(trm_program *program, trm_error *err) {
    trmi_staged *s = program->staged;
    find_steps(program, s);
    for (int32_t c = 0; c < s->pipeline.chunks; c++) {
        TRMI_TRY(keep_values(program, s, c, err));
    }
    find_gradients(program, s);
    return TRM_OK;
}

int32_t trmi_stage_slots(const trmi_staged *s, int32_t edge) {
    const trmi_stage_message *m = &s->messages[edge];
    return trmi_pipeline_slots(&s->pipeline, &s->edges[edge], s->stage, m->kept, m->waiting);
}

int64_t trmi_staged_bytes(const trm_program *program) {
    const trmi_staged *s = program->staged;
    if (s == NULL) {
        return 0;
    }
    int64_t bytes = program->arena_bytes[TRMI_ARENA_INPUT] * s->pipeline.micros;
    for (int32_t e = 0; e < s->edges_count; e++) {
        bytes += trmi_stage_slots(s, e) * trmi_stage_message_bytes(&s->messages[e]);
    }
    return bytes;
}
