/* SPDX-License-Identifier: Apache-2.0 */
/* Writes into the steps of a program whose samples lie in equal blocks (strict determinism) what
 * plan/passes/mark_blocks.c has found in its graph: which steps sum over samples, of how many
 * blocks they have samples, and how far apart blocks lie in their inputs and outputs. */
#include "plan/passes/pass.h"

#include "base/error.h"
#include "base/memory.h"

/* The program whose steps are numbered, and what was found in its graph. */
typedef struct numbering {
    trm_program *program;
    const trmi_block_marks *marks;
} numbering;

/* Returns the rows of one block in a buffer; 0: no samples. */
static int64_t rows_of(const numbering *n, int32_t buffer) {
    return buffer != 0 ? n->marks->rows[n->program->buffers[buffer].value] : 0;
}

/* Returns the blocks in a buffer; 0: no samples, or no whole number of blocks. */
static int64_t blocks_of(const numbering *n, int32_t buffer) {
    int64_t rows = rows_of(n, buffer);
    const trmi_buffer *b = &n->program->buffers[buffer];
    int64_t all = rows > 0 ? b->shape.dim[n->marks->dimension[b->value]] : 0;
    return rows > 0 && all % rows == 0 ? all / rows : 0;
}

/* Writes, for each of `buffers`, the bytes from a block to the next. */
static trm_status add_strides(const numbering *n, const int32_t *buffers, int32_t count,
                              const int64_t **out, trm_error *err) {
    int64_t *stride;
    TRMI_TRY(TRMI_NEW_IN(err, &n->program->arena, stride, count + 1, "to plan"));
    for (int32_t i = 0; i < count; i++) {
        int64_t blocks = blocks_of(n, buffers[i]);
        stride[i] = blocks > 0 ? n->program->buffers[buffers[i]].bytes / blocks : 0;
    }
    *out = stride;
    return TRM_OK;
}

/* Sets into how many blocks of samples a program step is cut, and for sums over samples the strides
 * from one block to the next.
 *   errors  INTERNAL: a sum reads parts of blocks */
static trm_status number_step(const numbering *n, trmi_step *s, trm_error *err) {
    int64_t blocks = 0;
    bool whole = true;
    for (int32_t i = 0; i < s->inputs_count; i++) {
        int64_t rows = rows_of(n, s->inputs[i]), here = blocks_of(n, s->inputs[i]);
        s->block_rows = s->block_rows == 0 ? rows : s->block_rows;
        blocks = blocks == 0 ? here : blocks;
        whole = whole && (rows == 0 || (here > 0 && here == blocks));
    }
    s->blocks = (int32_t)blocks;
    if (s->kind != TRMI_STEP_OP || !n->marks->over_samples[s->op]) {
        return TRM_OK;
    }
    s->over_samples = true;
    if (!whole) {
        return TRMI_FAIL(err, TRM_INTERNAL, "%s: a sum over parts of blocks of samples", s->name);
    }
    TRMI_TRY(add_strides(n, s->inputs, s->inputs_count, &s->block_stride, err));
    return add_strides(n, s->outputs, s->outputs_count, &s->block_out_stride, err);
}

/* Contract in pass.h. Nothing to do without blocks, or in a program without a batch. */
trm_status trmi_lower_blocks(trm_program *p, const trmi_plan_options *options, trm_error *err) {
    p->blocks = options->blocks;
    if (p->blocks == 0 || p->inputs_count == 0) {
        return TRM_OK;
    }
    trmi_arena arena = {0};
    trmi_block_marks marks;
    trm_status status = trmi_mark_blocks(p->graph, p->block_samples, &arena, &marks, err);
    const numbering n = {.program = p, .marks = &marks};
    for (int32_t i = 0; i < p->steps_count && status == TRM_OK; i++) {
        status = number_step(&n, &p->steps[i], err);
    }
    trmi_arena_free(&arena);
    return status;
}
