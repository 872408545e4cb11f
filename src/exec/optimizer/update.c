/* SPDX-License-Identifier: Apache-2.0 */
/* One update:
 *
 *      gradient --squares by block--> finite? norms --clip, trust ratios--> rule by block
 *
 * The sweep for the norms and the pass of the rule each read the ranges once. Blocks are fixed
 * (BLOCK elements of one segment) and sums are added in the order of blocks, so the bits do not
 * depend on the number of threads.
 *
 * Callers: exec/exec.c; the planner, to time an update (exec/autoparallel/). With sliced
 * optimiser state each rank updates its own blocks (trmi_update_share), but norms are of all. */
#include "exec/optimizer/update_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/shm/shared_buffers.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 16384, /* elements: 64 KB of each range, so that a block's ranges fit in L2 */
    PIECE = TRMI_UPDATE_PIECE, /* elements that a watcher sees at once: their ranges fit in L1 */
    BLOCK_PIECES = BLOCK / PIECE
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Copies the segments, checks that each lies in the range of `count` elements, and counts
 * blocks. */
static trm_status copy_segments(trmi_update *u, const trmi_update_segment *segments, int64_t count,
                                trm_error *err) {
    for (int32_t i = 0; i < u->segments_count; i++) {
        int64_t end;
        if (segments[i].offset < 0 || segments[i].count < 0 ||
            !trmi_add_i64(segments[i].offset, segments[i].count, &end) || end > count) {
            return TRMI_FAIL(
                err, TRM_INVALID, "optimizer: segment %d is [%lld, +%lld), the range has %lld", i,
                (long long)segments[i].offset, (long long)segments[i].count, (long long)count);
        }
        u->segments[i] = segments[i];
        u->blocks_count += segments[i].sparse ? 0 : (segments[i].count + BLOCK - 1) / BLOCK;
    }
    return TRM_OK;
}

/* Cuts dense segments into blocks and takes the memory for their sums. */
static trm_status make_blocks(trmi_update *u, trm_error *err) {
    size_t blocks = (size_t)u->blocks_count;
    TRMI_TRY(TRMI_NEW(err, u->blocks, blocks, "for the optimiser's blocks"));
    TRMI_TRY(TRMI_NEW(err, u->block_gradient, 2 * blocks, "for the optimiser's blocks"));
    u->block_weight = u->block_gradient + blocks;
    int64_t at = 0;
    for (int32_t i = 0; i < u->segments_count; i++) {
        const trmi_update_segment *s = &u->segments[i];
        for (int64_t done = 0; done < s->count && !s->sparse; done += BLOCK) {
            u->blocks[at++] = (trmi_update_block){.offset = s->offset + done,
                                                  .count = trmi_min_i64(s->count - done, BLOCK),
                                                  .segment = i};
        }
    }
    return TRM_OK;
}

/* Takes all memory of an optimiser whose options are set; an update allocates nothing. */
static trm_status create_memory(trmi_update *u, const trmi_update_segment *segments,
                                trm_error *err) {
    size_t n = (size_t)u->segments_count;
    u->segments = trmi_alloc(n * sizeof *u->segments);
    bool sparse = false; /* the state of sparse rows is large and few models need it */
    for (size_t i = 0; i < n; i++) {
        sparse = sparse || segments[i].sparse;
    }
    u->rows = sparse ? trmi_alloc(n * sizeof *u->rows) : NULL;
    u->pairs = trmi_alloc(n * sizeof *u->pairs);
    u->segment_gradient = trmi_alloc(n * sizeof *u->segment_gradient);
    u->segment_weight = trmi_alloc(n * sizeof *u->segment_weight);
    if (u->segments == NULL || (sparse && u->rows == NULL) || u->pairs == NULL ||
        u->segment_gradient == NULL || u->segment_weight == NULL) {
        return TRMI_NO_MEMORY(err, "for an optimiser");
    }
    TRMI_TRY(copy_segments(u, segments, u->count, err));
    TRMI_TRY(make_blocks(u, err));
    for (int32_t i = 0; i < u->segments_count; i++) {
        if (u->segments[i].sparse) {
            TRMI_TRY(trmi_update_rows_reserve(&u->rows[i], u->segments[i].rows,
                                              u->segments[i].width, err));
        }
        if (u->segments[i].factors > 0) {
            TRMI_TRY(trmi_update_product_reserve(u, i, err));
        }
    }
    return trmi_update_make_slots(u, err);
}

/* Contract in update.h. Until a run or trmi_update_set_scale sets them, the factor of clipping and
 * the scale of gradients are 1. */
trm_status trmi_update_create(const trm_optimizer_options *options,
                              const trmi_update_segment *segments, int32_t segments_count,
                              int64_t count, trmi_update **out, trm_error *err) {
    trm_optimizer_options checked;
    TRMI_TRY(trmi_optimizer_check(options, false, "optimizer", &checked, err));
    trmi_update *u;
    TRMI_TRY(TRMI_NEW(err, u, 1, "for an optimiser"));
    u->options = checked;
    u->kernels = trmi_update_kernels_best();
    u->segments_count = segments_count;
    u->slots_count = trmi_optimizer_of(checked.kind)->slots;
    u->count = count;
    u->clip = 1;
    u->scale = 1;
    trm_status status = create_memory(u, segments, err);
    if (status != TRM_OK) {
        trmi_update_destroy(u);
        return status;
    }
    *out = u;
    return TRM_OK;
}

/* Contract in update.h. Frees also an optimiser whose creation has failed, in which members may
 * still be NULL. */
void trmi_update_destroy(trmi_update *u) {
    if (u == NULL) {
        return;
    }
    for (int32_t i = 0; u->rows != NULL && i < u->segments_count; i++) {
        trmi_update_rows_free(&u->rows[i]);
    }
    for (int32_t i = 0; u->pairs != NULL && i < u->segments_count; i++) {
        trmi_update_product_free(u, i);
    }
    for (int32_t s = 0; s < TRMI_SLOTS_MAX && !u->borrows_slots; s++) {
        trmi_unmap(u->slots[s], (size_t)u->count * sizeof(float));
    }
    trmi_free(u->rows);
    trmi_free(u->pairs);
    trmi_free(u->segments);
    trmi_free(u->segment_gradient);
    trmi_free(u->segment_weight);
    trmi_free(u->blocks);
    trmi_free(u->block_gradient);
    trmi_free(u);
}

int32_t trmi_update_slots(const trmi_update *u) { return u->slots_count; }
const char *trmi_update_slot_name(const trmi_update *u, int32_t slot) {
    return slot >= 0 && slot < u->slots_count ? trmi_optimizer_of(u->options.kind)->slot_names[slot]
                                              : NULL;
}
int64_t trmi_update_bytes(const trmi_update *u) {
    return u->count * u->slots_count * (int64_t)sizeof(float);
}

int64_t trmi_update_block_count(const trmi_update *u) { return u->blocks_count; }
int64_t trmi_update_block_offset(const trmi_update *u, int64_t index) {
    if (index < u->blocks_count) {
        return u->blocks[index].offset;
    }
    return u->blocks_count > 0
               ? u->blocks[u->blocks_count - 1].offset + u->blocks[u->blocks_count - 1].count
               : 0;
}
/* Contract in update.h. The last block that begins at or before the element, by bisection; between
 * blocks there may be elements of none (sparse segments). */
int64_t trmi_update_find_block(const trmi_update *u, int64_t at, int64_t *end) {
    int64_t low = -1, high = u->blocks_count;
    while (low + 1 < high) {
        int64_t middle = (low + high) / 2;
        if (u->blocks[middle].offset <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *end = low < 0 ? 0 : u->blocks[low].offset + u->blocks[low].count;
    return at < *end ? low : -1;
}

int64_t trmi_update_find_piece(const trmi_update *u, int64_t at, int64_t *end) {
    const int64_t block = trmi_update_find_block(u, at, end);
    if (block < 0) {
        return -1;
    }
    const int64_t offset = u->blocks[block].offset, piece = (at - offset) / PIECE;
    *end = trmi_min_i64(*end, offset + (piece + 1) * PIECE);
    return block * BLOCK_PIECES + piece;
}

int64_t trmi_update_turn_bytes(const trmi_update *u, int64_t at) {
    int64_t end;
    const int64_t block = u->takes_turns ? trmi_update_find_block(u, at, &end) : -1;
    return block >= 0 && trmi_update_is_in_turns(u, u->blocks[block].segment)
               ? (int64_t)sizeof(float) * (u->seconds[0] - u->slots[0])
               : 0;
}

float *trmi_update_slot(const trmi_update *u, int32_t slot, int64_t at) {
    const bool second = u->in_second && trmi_update_turn_bytes(u, at) != 0;
    return slot >= 0 && slot < u->slots_count ? trmi_update_half(u, second)[slot] + at : NULL;
}

/* Slots outside of this rank's blocks are never touched. A huge page that holds own and other
 * blocks would become resident as a whole, so ranges of other ranks use small pages. */
static void split_pages(trmi_update *u) {
    enum { EACH = TRMI_HUGE_PAGE_BYTES / sizeof(float) };
    for (int64_t i = 0, done = 0; i < u->blocks_count; i++) {
        int64_t begin = trmi_max_i64(done, u->blocks[i].offset / EACH * EACH),
                end = trmi_round_up(u->blocks[i].offset + u->blocks[i].count, EACH);
        if (u->mine[i] == 0 && end > begin) {
            for (int32_t s = 0; s < u->slots_count; s++) {
                trmi_use_small_pages(u->slots[s] + begin,
                                     (size_t)(trmi_min_i64(end, u->count) - begin) * sizeof(float));
            }
            done = end;
        }
    }
}

void trmi_update_share(trmi_update *u, const uint8_t *mine, trmi_update_exchange exchange,
                       void *context) {
    u->mine = mine;
    if (mine != NULL && !u->borrows_slots) {
        split_pages(u);
    }
    u->exchange = exchange;
    u->exchange_context = context;
}
void trmi_update_watch(trmi_update *u, trmi_update_watcher *watcher, void *context) {
    u->watcher = watcher;
    u->watcher_context = context;
}

void trmi_update_set_own_blocks(trmi_update *u, const uint8_t *own_blocks,
                                trmi_update_exchange total, void *context) {
    u->own_blocks = own_blocks;
    u->total = total;
    u->total_context = context;
}
void trmi_update_join(trmi_update *u, trmi_update_exchange total, void *context) {
    u->joined = total;
    u->joined_context = context;
}
void trmi_update_set_scale(trmi_update *u, double scale) { u->scale = scale; }
void trmi_update_set_blocks(trmi_update *u, const trmi_tree *tree) { u->tree = *tree; }
double trmi_update_norm(const trmi_update *u) { return u->norm; }

/* ---- one step -------------------------------------------------------------------------------- */

/* Contract in update_state.h. The second sum is rare: finite values whose squares overflow
 * float32. */
double trmi_update_squares(const trmi_update_kernels *kernels, const float *x, int64_t count) {
    double sum = (double)kernels->squares(x, count);
    if (isfinite(sum)) {
        return sum;
    }
    sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

/* Returns the sum of squares of a block's gradient. Of a gradient that is kept in two factors, the
 * first block of the segment has the squares of the whole product, its other blocks 0. */
static double gradient_squares(const trmi_update *u, const trmi_update_block *b,
                               const float *gradients) {
    if (!trmi_update_in_factors(u, b->segment)) {
        return trmi_update_squares(u->kernels, gradients + b->offset, b->count);
    }
    bool first = b->offset == u->segments[b->segment].offset;
    return first ? trmi_update_product_squares(u, b->segment) : 0;
}

/* Measures norms: sums of squares of gradients (LARS: also of parameters) by block, then by
 * segment, then of all, always in the same order. Collective where u->exchange or u->total is set.
 * Sets u->norm, the global norm of unscaled gradients. */
static trm_status measure_norms(trmi_update *u, const float *parameters, const float *gradients,
                                trm_error *err) {
    bool weights = u->options.kind == TRM_LARS;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->blocks_count; i++) {
        const trmi_update_block *b = &u->blocks[i];
        bool mine = trmi_update_is_mine(u, i);
        u->block_gradient[i] = mine ? gradient_squares(u, b, gradients) : 0;
        if (weights) {
            u->block_weight[i] =
                mine ? trmi_update_squares(u->kernels, parameters + b->offset, b->count) : 0;
        }
    }
    /* With slices each rank has the sums of its own blocks; the exchange adds those of the
     * others. */
    if (u->exchange != NULL) {
        TRMI_TRY(u->exchange(u->exchange_context, u->block_gradient,
                             u->blocks_count * (weights ? 2 : 1), err));
    }
    memset(u->segment_gradient, 0, (size_t)u->segments_count * sizeof *u->segment_gradient);
    memset(u->segment_weight, 0, (size_t)u->segments_count * sizeof *u->segment_weight);
    /* Sums in the order of blocks. Parameters that only this rank has are added over all ranks. */
    double all = u->rows_squares, own = 0;
    for (int64_t i = 0; i < u->blocks_count; i++) {
        u->segment_gradient[u->blocks[i].segment] += u->block_gradient[i];
        u->segment_weight[u->blocks[i].segment] += u->block_weight[i];
        *(u->own_blocks != NULL && u->own_blocks[i] ? &own : &all) += u->block_gradient[i];
    }
    if (u->own_blocks != NULL && u->options.clip_norm > 0) {
        TRMI_TRY(u->total(u->total_context, &own, 1, err));
    }
    /* Ranks that update other parameters (stages of a pipeline) add theirs, so that all clip
     * alike. */
    if (u->joined != NULL) {
        all += own;
        own = 0;
        TRMI_TRY(u->joined(u->joined_context, &all, 1, err));
    }
    u->norm = sqrt(all + own) * u->scale;
    u->rows_squares = 0;
    u->sweeps++;
    return TRM_OK;
}

/* Returns the trust ratio of LARS (You et al. 2017, section 4) for a segment:
 * trust * |w| / (|g| + decay * |w|). It is 1 where a norm is zero and for parameters without weight
 * decay (scales and shifts of norms, biases). */
static double trust_ratio(const trmi_update *u, int32_t segment) {
    const trm_optimizer_options *o = &u->options;
    double weight = sqrt(u->segment_weight[segment]);
    double gradient = sqrt(u->segment_gradient[segment]) * (double)u->clip;
    if (!u->segments[segment].decay || weight == 0 || gradient == 0) {
        return 1;
    }
    return o->trust_coefficient * weight / (gradient + o->weight_decay * weight + o->epsilon);
}

/* Contract in update_state.h. Decay and trust ratio differ between segments. */
trmi_rule trmi_update_rule(const trmi_update *u, int32_t segment, double learning_rate,
                           uint64_t step) {
    const bool table = u->segments[segment].sparse || u->segments[segment].table_width > 0;
    const trm_optimizer_options *o = &u->options;
    /* servers get the rate in float32, as the options: the same values here make the same rule */
    learning_rate = (float)learning_rate;
    trmi_rule rule = trmi_rule_of(o, &(trmi_rule_step){.rate = learning_rate,
                                                       .scale = u->clip,
                                                       .decays = u->segments[segment].decay,
                                                       .number = step,
                                                       .sparse = table});
    /* LARS gives each layer a rate of its own, but not tables. */
    if (o->kind == TRM_LARS && !table) {
        rule.local = (float)(learning_rate * trust_ratio(u, segment));
    }
    return rule;
}

/* A run's pass over one block. */
typedef struct block_pass {
    const trmi_update *update;
    const trmi_update_block *block;
    trmi_rule rule;
    float *parameters;
    const float *gradients;
    bool in_turns; /* the slots of the block take turns */
} block_pass;

/* Applies the rule to elements [at, at + count) of the ranges. old: where it copies the parameters,
 * if their slots take turns or there are none. */
static void run_pass(const block_pass *pass, int64_t at, int64_t count,
                     const trmi_update_old *old) {
    const trmi_update *u = pass->update;
    if (pass->in_turns || old->place != NULL) {
        const trmi_slot_turn turn = trmi_update_find_turn(u, at);
        u->kernels->turn[u->options.kind](&pass->rule, pass->parameters + at, pass->gradients + at,
                                          &turn, old, count);
        return;
    }
    u->kernels->rule[u->options.kind](&pass->rule, pass->parameters + at, pass->gradients + at,
                                      u->slots[0] == NULL ? NULL : u->slots[0] + at,
                                      u->slots[1] == NULL ? NULL : u->slots[1] + at, count);
}

/* A pass copies no parameters. */
static const trmi_update_old no_copy;

/* Keeps the slots of elements [at, at + count), which have no gradient. */
static void keep_slots(const block_pass *pass, int64_t at, int64_t count) {
    const trmi_slot_turn turn = trmi_update_find_turn(pass->update, at);
    for (int32_t s = 0; s < pass->update->slots_count && pass->in_turns; s++) {
        memcpy(turn.to[s], turn.from[s], (size_t)count * sizeof(float));
    }
}

/* Returns whether a row of a table has no gradient: the batch did not use it. */
static bool all_zero(const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (x[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Applies the rule to the rows of a block of a dense table gradient that are not all zero, in
 * stretches as long as possible. A row without a gradient was not used by the batch: it keeps its
 * values and slots, as with sparse gradients. */
static void run_table(const block_pass *pass) {
    const trmi_update_block *b = pass->block;
    const trmi_update_segment *s = &pass->update->segments[b->segment];
    int64_t end = b->offset + b->count, begin = b->offset; /* of the stretch */
    for (int64_t at = b->offset; at < end;) {
        int64_t next = trmi_min_i64(at + s->table_width - (at - s->offset) % s->table_width, end);
        if (all_zero(pass->gradients + at, next - at)) {
            run_pass(pass, begin, at - begin, &no_copy);
            keep_slots(pass, at, next - at);
            begin = next;
        }
        at = next;
    }
    run_pass(pass, begin, end - begin, &no_copy);
}

/* Calls the watcher, if there is one, for the piece that begins at element `at` of a block. count:
 * elements of the piece that the run can copy. Returns where the run copies them to. */
static trmi_update_old watch_piece(const trmi_update *u, int64_t block, int64_t at, int64_t count) {
    return u->watcher == NULL
               ? no_copy
               : u->watcher(u->watcher_context, block * BLOCK_PIECES + at / PIECE, count);
}

/* Applies the rule to a block. A gradient has one of three forms: two factors, rows of a table, or
 * a range of the array. */
static void run_block(const block_pass *pass) {
    const trmi_update *u = pass->update;
    const trmi_update_block *b = pass->block;
    const int64_t number = b - u->blocks;
    const bool factors = trmi_update_in_factors(u, b->segment);
    if (factors || u->segments[b->segment].table_width > 0) {
        for (int64_t at = 0; at < b->count; at += PIECE) {
            (void)watch_piece(u, number, at, 0);
        }
        if (factors) {
            trmi_update_product_rule(u, b->segment, &pass->rule, pass->parameters, b->offset,
                                     b->count);
        } else {
            run_table(pass);
        }
        return;
    }
    const bool copies = pass->in_turns || u->slots_count == 0;
    const int64_t piece = u->watcher != NULL ? PIECE : BLOCK;
    for (int64_t at = 0; at < b->count; at += piece) {
        const int64_t count = trmi_min_i64(b->count - at, piece);
        const trmi_update_old old = watch_piece(u, number, at, copies ? count : 0);
        run_pass(pass, b->offset + at, count, &old);
    }
}

/* Contract in update.h. Norms are measured before any parameter changes, so that a gradient that
 * is not finite leaves the model as it was. Blocks are independent, and threads take them in any
 * order. */
trm_status trmi_update_run(trmi_update *u, float *parameters, const float *gradients,
                           double learning_rate, uint64_t step, trm_error *err) {
    if (!(learning_rate >= 0 && isfinite(learning_rate))) {
        return TRMI_FAIL(err, TRM_INVALID, "learning rate %g, a finite number >= 0 expected",
                         learning_rate);
    }
    for (int32_t i = 0; i < u->segments_count; i++) {
        if (trmi_update_in_factors(u, i)) {
            trmi_update_load_factors(u, i);
        }
    }
    TRMI_TRY(measure_norms(u, parameters, gradients, err));
    if (!isfinite(u->norm)) {
        return TRMI_FAIL(
            err, TRM_DIVERGED,
            "a gradient is NaN or infinite at step %llu; lower the learning rate, or set clip_norm",
            (unsigned long long)step);
    }
    /* u->clip divides by the loss scale, too. */
    double limit = u->options.clip_norm;
    u->clip = (float)((limit > 0 && u->norm > limit ? limit / u->norm : 1) * u->scale);
    if (u->options.kind == TRM_FTRL && learning_rate == 0) {
        return TRM_OK; /* its rule divides by the rate; a step of no length changes nothing */
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->blocks_count; i++) {
        const trmi_update_block *b = &u->blocks[i];
        if (!trmi_update_is_mine(u, i)) {
            continue;
        }
        const block_pass pass = {.update = u,
                                 .block = b,
                                 .rule = trmi_update_rule(u, b->segment, learning_rate, step),
                                 .parameters = parameters,
                                 .gradients = gradients,
                                 .in_turns = trmi_update_is_in_turns(u, b->segment)};
        run_block(&pass);
    }
    u->in_second = u->takes_turns && !u->in_second;
    return TRM_OK;
}

void trmi_update_copy_aside(float *to, const float *from, int64_t count) {
    trmi_update_kernels_best()->copy_aside(to, from, count);
}

void trmi_update_accumulate(float *sum, const float *gradient, int64_t count, float scale,
                            bool first) {
    const trmi_update_kernels *kernels = trmi_update_kernels_best();
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += BLOCK) {
        kernels->accumulate(sum + at, gradient + at, trmi_min_i64(count - at, BLOCK), scale, first);
    }
}
