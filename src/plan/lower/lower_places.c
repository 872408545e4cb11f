/* SPDX-License-Identifier: Apache-2.0 */
/* Places the activations so that buffers share bytes over time.
 *
 *      bytes ^   [ a       ]     [ d ]            each rectangle: lifetime x bytes of a buffer;
 *            |        [ b          ]  [ e   ]     no two overlap. Largest first, each at the lowest
 *            |   [ c  ]   [ f        ]            offset that is free for all of its lifetime.
 *            +---------------------------> steps
 *
 * (Pisarchyk & Lee, Efficient Memory Management for Deep Neural Net Inference, 2020: greedy by
 * size.) The first pass finds the number of bytes. With several threads, a second pass stays within
 * these bytes and prefers offsets whose cache lines are in the caches of the threads that will
 * write them:
 *
 *      a buffer of 4 MB, dead         |  thread 0  |  thread 1  |      all operators divide images among threads alike
 *      one of 2 MB at its begin       | t0  |  t1 !|                   t1 writes lines that CPU 0 has: 7 GB/s where CPUs
 *      at the offset of another one         |  t0  |  t1 |             share no cache, against 150 for its own lines
 *      of 2 MB                        [     |  t0  |  t1 |     ]
 *
 * Where nothing but the optimiser reads gradients (trmi_plan_options.reuse_gradients), activations
 * also lie in the bytes of GRAD, until the gradient there is made. Backward goes through the
 * activations as it makes the gradients, so that most memory is never needed for both:
 *
 *      GRAD       |  activations of late layers  /  gradients |     GRAD lies below ACTIVATION in
 *                 |--------------------- one arena ends ------|     one range of bytes, and no buffer
 *      ACTIVATION |  activations of early layers              |     crosses the line between them
 *
 * Called by trmi_lower_memory() once all lifetimes are known. The result depends on the program and
 * the number of threads only. */
#include "plan/passes/pass.h"

#include "base/checked.h"
#include "base/memory.h"

/* Alignment in bytes; candidates of one buffer: lowest gaps, offsets near its neighbours. */
enum { GAPS = 8, SLOTS = 24 };

/* Bytes that steps move until caches have lost older lines. */
static const double CACHED = 32 << 20;
/* Cost of a byte that is in no cache, relative to one that is in another CPU's cache. */
static const double COLD = 0.2;

/* A placed buffer that was used shortly before or is used shortly after the present one. */
typedef struct neighbour {
    const trmi_buffer *buffer;
    double share; /* fraction of its lines that are still in a cache */
} neighbour;

/* State of the placement. */
typedef struct placer {
    trm_program *program;
    int threads;
    int64_t limit;         /* of the second pass; 0: first pass */
    int32_t *order, count; /* buffers to place, largest first */
    /* bytes of GRAD, which lie before those of ACTIVATION; 0: GRAD is not shared */
    int64_t line;
    trmi_buffer
        *gradients; /* of GRAD, by offset, and the line; they are placed before all others */
    int32_t gradients_count;
    const trmi_buffer **placed; /* placed buffers, by offset */
    int32_t done;
    /* [steps + 1] bytes that all earlier steps move; [steps_count]: a whole training step */
    double *moved;
    bool *of_images; /* [buffers] threads divide it by images */
    neighbour *near; /* neighbours of the buffer that is being placed */
    int32_t near_count;
} placer;

/* Returns whether two buffers live at the same time. */
static bool lives_overlap(const trmi_buffer *a, const trmi_buffer *b) {
    return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* Returns the aligned end of a buffer. */
static int64_t end_of(const trmi_buffer *b) {
    return trmi_round_up(b->offset + b->bytes, TRMI_BUFFER_ALIGNMENT);
}

/* ---- which bytes are free ---- */

/* Finds up to `most` of the lowest gaps that hold the buffer; the last one may be the end of all
 * buffers that live at the same time. Returns their number. */
static int32_t free_gaps(const placer *w, const trmi_buffer *b, int32_t most, int64_t *offsets) {
    int32_t found = 0;
    int64_t offset = 0;
    for (int32_t i = 0; i < w->done && found < most; i++) {
        const trmi_buffer *other = w->placed[i];
        if (!lives_overlap(b, other)) {
            continue;
        }
        if (offset + b->bytes <= other->offset) {
            offsets[found++] = offset;
        }
        offset = trmi_max_i64(offset, end_of(other));
    }
    if (found < most) {
        offsets[found++] = offset;
    }
    return found;
}

/* Returns whether a buffer fits at an offset, within the limit. */
static bool is_free(const placer *w, const trmi_buffer *b, int64_t offset) {
    for (int32_t i = 0; i < w->done; i++) {
        const trmi_buffer *other = w->placed[i];
        if (other->offset < offset + b->bytes && offset < end_of(other) &&
            lives_overlap(b, other)) {
            return false;
        }
    }
    return offset + b->bytes <= w->limit;
}

/* ---- what a place costs ---- */

/* Returns the length of the intersection of two intervals. */
static double common_length(double a, double a_end, double b, double b_end) {
    double from = a > b ? a : b, to = a_end < b_end ? a_end : b_end;
    return to > from ? to - from : 0;
}

/* Returns the bytes that the same thread has of both buffers, with b at `offset`. */
static double of_one_thread(const placer *w, const trmi_buffer *b, int64_t offset,
                            const trmi_buffer *other) {
    double same = 0, part = (double)b->bytes / w->threads,
           others = (double)other->bytes / w->threads;
    const trmi_buffer *all = w->program->buffers;
    for (int t = 0; t < w->threads && w->of_images[b - all] && w->of_images[other - all]; t++) {
        double at = (double)offset + t * part, its = (double)other->offset + t * others;
        same += common_length(at, at + part, its, its + others);
    }
    return same;
}

/* Returns the cost of an offset: bytes in another thread's cache, plus COLD x bytes in no cache. */
static double price_offset(const placer *w, const trmi_buffer *b, int64_t offset) {
    double moves = 0, stays = 0;
    for (int32_t i = 0; i < w->near_count; i++) {
        const trmi_buffer *other = w->near[i].buffer;
        double both = common_length((double)offset, (double)(offset + b->bytes),
                                    (double)other->offset, (double)(other->offset + other->bytes));
        double same = both > 0 ? of_one_thread(w, b, offset, other) : 0;
        moves += w->near[i].share * (both - same);
        stays = stays > w->near[i].share * same ? stays : w->near[i].share * same;
    }
    return moves + COLD * ((double)b->bytes - stays);
}

/* Returns the bytes that steps move between two lifetimes, in the shorter direction: training steps
 * repeat. */
static double bytes_between(const placer *w, const trmi_buffer *a, const trmi_buffer *b) {
    int32_t steps = w->program->steps_count;
    double whole = w->moved[steps], least = whole;
    const trmi_buffer *pair[2][2] = {{a, b}, {b, a}};
    for (int i = 0; i < 2; i++) {
        double gap = w->moved[pair[i][1]->first_step] -
                     w->moved[trmi_min_i64(steps, pair[i][0]->last_step + 1)];
        gap += gap < 0 ? whole : 0;
        least = gap < least ? gap : least;
    }
    return least;
}

/* Lists the neighbours of a buffer in time. */
static void find_near(placer *w, const trmi_buffer *b) {
    w->near_count = 0;
    for (int32_t i = 0; i < w->done; i++) {
        const trmi_buffer *other = w->placed[i];
        bool apart = other->arena == TRMI_ARENA_ACTIVATION && !lives_overlap(b, other);
        double gap = apart ? bytes_between(w, b, other) : CACHED;
        if (gap < CACHED) {
            w->near[w->near_count++] = (neighbour){other, 1 - gap / CACHED};
        }
    }
}

/* Returns the offset with the least cost among the lowest gaps, the offsets of neighbours of equal
 * size, and the ends of the other neighbours. */
static int64_t cheapest_offset(placer *w, const trmi_buffer *b) {
    int64_t offsets[GAPS + SLOTS];
    find_near(w, b);
    int32_t count = free_gaps(w, b, GAPS, offsets), slots = count + SLOTS;
    for (int32_t i = 0; i < w->near_count && count < slots; i++) {
        const trmi_buffer *other = w->near[i].buffer;
        int64_t offset = other->bytes == b->bytes ? other->offset : end_of(other);
        if (is_free(w, b, offset)) {
            offsets[count++] = offset;
        }
    }
    /* those beyond the limit of memory do not count */
    int64_t best = offsets[0];
    double least = price_offset(w, b, best);
    for (int32_t i = 1; i < count; i++) {
        double asked = offsets[i] + b->bytes <= w->limit ? price_offset(w, b, offsets[i]) : least;
        if (asked < least) {
            least = asked;
            best = offsets[i];
        }
    }
    return best;
}

/* ---- all of them ---- */

/* Places all buffers. Returns the bytes that they need. */
static int64_t place_all(placer *w) {
    int64_t bytes = w->line;
    for (w->done = 0; w->done < w->gradients_count; w->done++) {
        w->placed[w->done] = &w->gradients[w->done];
    }
    for (int32_t i = 0; i < w->count; i++) {
        trmi_buffer *b = &w->program->buffers[w->order[i]];
        if (w->limit > 0) {
            b->offset = cheapest_offset(w, b);
        } else {
            free_gaps(w, b, 1, &b->offset);
        }
        int32_t at = w->done++;
        for (; at > 0 && w->placed[at - 1]->offset > b->offset; at--) {
            w->placed[at] = w->placed[at - 1];
        }
        w->placed[at] = b;
        bytes = trmi_max_i64(bytes, end_of(b));
    }
    return bytes;
}

/* Lists the ranges of GRAD with the time from which a gradient is there: for ever, where no step
 * makes it. The line after them is always there, which keeps buffers from crossing it. */
static void list_gradients(placer *w) {
    const trm_program *p = w->program;
    w->line = p->arena_bytes[TRMI_ARENA_GRAD];
    for (int32_t i = 0; i <= p->trained_count; i++) {
        trmi_buffer *b = &w->gradients[w->gradients_count++];
        *b =
            (trmi_buffer){.arena = TRMI_ARENA_GRAD, .offset = w->line, .last_step = p->steps_count};
        if (i < p->trained_count) {
            const trmi_param *param = &p->params[i];
            b->offset = p->buffers[param->param_buffer].offset;
            b->bytes = p->buffers[param->param_buffer].bytes;
            b->first_step = param->grad_buffer != 0 ? p->buffers[param->grad_buffer].first_step : 0;
        }
    }
}

/* Sorts the buffers, largest first. Insertion sort: there are a few hundred. */
static void sort_buffers(placer *w) {
    const trmi_buffer *all = w->program->buffers;
    for (int32_t i = 1; i < w->count; i++) {
        int32_t item = w->order[i], j = i;
        for (; j > 0 && all[item].bytes > all[w->order[j - 1]].bytes; j--) {
            w->order[j] = w->order[j - 1];
        }
        w->order[j] = item;
    }
}

/* Finds the buffers that threads divide by images: everything computed from the inputs with one or
 * more rows for each image. Weights in another type are read by all threads. Also sums up the bytes
 * that steps move. */
static void find_images(placer *w) {
    const trm_program *p = w->program;
    int64_t images = p->inputs_count > 0 ? p->buffers[p->inputs[0]].shape.dim[0] : 0;
    bool *made = w->of_images;
    for (int32_t i = 0; i < p->inputs_count; i++) {
        made[p->inputs[i]] = true;
    }
    /* what is made from an input is made of images */
    for (int32_t s = 0; s < p->steps_count; s++) {
        const trmi_step *step = &p->steps[s];
        bool of_inputs = false;
        for (int32_t i = 0; i < step->inputs_count; i++) {
            of_inputs = of_inputs || made[step->inputs[i]];
        }
        for (int32_t i = 0; i < step->outputs_count; i++) {
            made[step->outputs[i]] = of_inputs && step->outputs[i] != 0;
        }
        w->moved[s + 1] = w->moved[s] + step->cost.bytes;
    }
    /* Only buffers with a whole number of rows for each image count. */
    for (int32_t i = 1; i < p->buffers_count; i++) {
        const trm_shape *shape = &p->buffers[i].shape;
        made[i] = made[i] && images > 0 && shape->rank > 0 && shape->dim[0] % images == 0;
    }
}

/* Places the activations: fewest bytes first, then within these bytes by caches. */
static void place_activations(placer *w) {
    trm_program *p = w->program;
    for (int32_t i = 1; i < p->buffers_count; i++) {
        const trmi_buffer *b = &p->buffers[i];
        if (b->arena == TRMI_ARENA_ACTIVATION && b->alias_of == 0 && b->last_step >= 0) {
            w->order[w->count++] = i;
        }
    }
    sort_buffers(w);
    int64_t least = place_all(w);
    if (w->threads > 1) {
        find_images(w);
        w->limit = least;
        /* late, small buffers did not fit: return to the first pass */
        if (place_all(w) > least + (least - w->line) / 64) {
            w->limit = 0;
            place_all(w);
        }
    }
    for (int32_t i = 0; i < w->count; i++) {
        trmi_buffer *b = &p->buffers[w->order[i]];
        if (b->offset < w->line) {
            b->arena = TRMI_ARENA_GRAD;
            p->lent_bytes = trmi_max_i64(p->lent_bytes, end_of(b));
            continue;
        }
        b->offset -= w->line;
        p->arena_bytes[TRMI_ARENA_ACTIVATION] =
            trmi_max_i64(p->arena_bytes[TRMI_ARENA_ACTIVATION], end_of(b));
    }
}

/* Contract in pass.h. All arrays are taken before anything is placed, so an error leaves the
 * program as it was. */
trm_status trmi_lower_places(trm_program *program, int threads, bool reuse_gradients,
                             trm_error *err) {
    size_t buffers = (size_t)program->buffers_count, gradients = (size_t)program->trained_count + 1;
    placer w = {.program = program, .threads = threads};
    trmi_arena room = {0};
    w.order = trmi_arena_alloc(&room, buffers * sizeof *w.order);
    w.gradients = trmi_arena_alloc(&room, gradients * sizeof *w.gradients);
    w.placed = trmi_arena_alloc(&room, (buffers + gradients) * sizeof *w.placed);
    w.near = trmi_arena_alloc(&room, buffers * sizeof *w.near);
    w.of_images = trmi_arena_alloc(&room, buffers * sizeof *w.of_images);
    w.moved = trmi_arena_alloc(&room, ((size_t)program->steps_count + 1) * sizeof *w.moved);
    bool roomy = w.order != NULL && w.placed != NULL && w.near != NULL && w.of_images != NULL &&
                 w.moved != NULL && w.gradients != NULL;
    if (roomy) {
        if (reuse_gradients) {
            list_gradients(&w);
        }
        place_activations(&w);
    }
    trmi_arena_free(&room);
    return roomy ? TRM_OK : TRMI_NO_MEMORY(err, "to place %d buffers", program->buffers_count);
}
