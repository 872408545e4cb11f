/* SPDX-License-Identifier: Apache-2.0 */
/* Parses descriptions of links, combines measurements, and computes prices from them.
 *
 *      # lines of a description; '#' begins a comment
 *      level NAME RANKS ALPHA_US GB_S [shared]     innermost first: RANKS that share it, a message, a byte
 *      points OP RANKS BYTES:US BYTES:US ...       measured: allreduce allgather reducescatter alltoall, gradients
 *                                                  (all-reduce of a bucket), slices (its
 *                                                  reduce-scatter),
 *                                                  gatherstore scatterstore (parameters in parts),
 *                                                  copy (RANKS 1),
 *                                                  update (RANKS 1; bytes of parameters),
 *                                                  sliceupdate (a rank's slice of
 *                                                  parameters that all ranks read),
 *                                                  sums (RANKS 1; bytes of gradients that are
 *                                                  added to those of earlier micro-batches)
 *      flops X | bytes X | speed X | overlap X | slowdown X | cores N | together N | load X |
 *      overhead US | refill US | handover US
 *
 * A hardware file (plan/hardware/hardware.h) is a description, too: its levels, its rate of bf16
 * products at the longest point of its curve, its memory.
 *
 * A price comes from the measured curve of the move and group size if there is one, else from the
 * level that contains the group. The text comes from a file or a user, so every number is checked
 * against a range. */
#include "plan/search/links.h"

#include "plan/hardware/hardware.h"

#include "base/error.h"
#include "base/order.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trmi_links_local(trmi_links *out, int32_t ranks) {
    memset(out, 0, sizeof *out);
    out->levels[0] =
        (trmi_level){.name = "shared memory", .ranks = ranks, .alpha = 3e-6, .beta = 1 / 4e9};
    out->levels_count = 1;
}

/* Reports a bad line: what was found and what was expected. */
static trm_status report_line(int line, const char *found, const char *expected, trm_error *err) {
    char text[61];
    snprintf(text, sizeof text, "%s", found);
    for (char *c = text; *c != '\0'; c++) {
        *c = *c >= ' ' && *c < 127 ? *c : '?';
    }
    return TRMI_FAIL(err, TRM_INVALID, "links, line %d: '%s' found, %s expected", line, text,
                     expected);
}

/* Parses a line "level ..."; levels come innermost first. */
static trm_status parse_level(trmi_links *l, int number, const char *line, trm_error *err) {
    static const char form[] = "level NAME RANKS ALPHA_US GB_S [shared]";
    trmi_level *v = &l->levels[l->levels_count];
    char shared[16] = "", rest[2] = "";
    long long ranks = 0;
    double alpha = 0, rate = 0;
    if (l->levels_count == TRMI_LEVELS) {
        return report_line(number, line, "at most 4 levels", err);
    }
    int fields = sscanf(line, "level %15s %lld %lf %lf %15s %1s", v->name, &ranks, &alpha, &rate,
                        shared, rest);
    /* The file has microseconds and GB/s, the links seconds and seconds a byte. */
    bool ok = fields >= 4 && fields <= 5 && ranks >= 1 && ranks <= 1 << 20 && alpha >= 0 &&
              alpha < 1e9 && rate > 1e-6 && rate < 1e6 &&
              (fields == 4 || strcmp(shared, "shared") == 0);
    if (!ok) {
        return report_line(number, line, form, err);
    }
    if (l->levels_count > 0 && ranks < l->levels[l->levels_count - 1].ranks) {
        return report_line(number, line, "levels from the innermost outwards, ranks not falling",
                           err);
    }
    v->ranks = ranks;
    v->alpha = alpha * 1e-6;
    v->beta = 1e-9 / rate;
    v->shared = fields == 5;
    l->levels_count++;
    return TRM_OK;
}

/* Words of curves in descriptions. */
static const struct {
    const char *name;
    trmi_move move;
} words[] = {{"allreduce", TRMI_MOVE_ALL_REDUCE},
             {"allgather", TRMI_MOVE_ALL_GATHER},
             {"reducescatter", TRMI_MOVE_REDUCE_SCATTER},
             {"alltoall", TRMI_MOVE_ALL_TO_ALL},
             {"gradients", TRMI_MOVE_GRADIENTS},
             {"gatherstore", TRMI_MOVE_GATHER_STORE},
             {"scatterstore", TRMI_MOVE_SCATTER_STORE},
             {"slices", TRMI_MOVE_SLICES},
             {"copy", TRMI_MOVE_LOCAL},
             {"update", TRMI_MOVES},
             {"sliceupdate", TRMI_SLICED_UPDATE},
             {"sums", TRMI_GRADIENT_SUMS}};
enum { WORDS = sizeof words / sizeof *words };

const char *trmi_links_word(trmi_move move) {
    for (int i = 0; i < WORDS; i++) {
        if (words[i].move == move) {
            return words[i].name;
        }
    }
    return "?";
}

/* Returns the curve that a line "points" of this name fills; NULL: unknown name, wrong number of
 * ranks, or no room. */
static trmi_curve *curve_for(trmi_links *l, const char *name, int ranks) {
    for (int i = 0; i < WORDS; i++) {
        bool alone = words[i].move == TRMI_MOVE_LOCAL || words[i].move == TRMI_MOVES ||
                     words[i].move == TRMI_GRADIENT_SUMS;
        if (strcmp(words[i].name, name) == 0 && (alone ? ranks == 1 : ranks >= 2)) {
            trmi_curve *c = words[i].move == TRMI_MOVES           ? &l->update
                            : words[i].move == TRMI_SLICED_UPDATE ? &l->sliced
                            : words[i].move == TRMI_GRADIENT_SUMS ? &l->sums
                            : l->curves_count < TRMI_CURVES       ? &l->curves[l->curves_count++]
                                                                  : NULL;
            if (c != NULL) {
                *c = (trmi_curve){.move = words[i].move, .ranks = ranks};
            }
            return c;
        }
    }
    return NULL;
}

/* Parses a line "points ...": at least two points, bytes rising. */
static trm_status parse_points(trmi_links *l, int number, const char *line, trm_error *err) {
    static const char form[] = "points "
                               "allreduce|allgather|reducescatter|alltoall|gradients|slices|"
                               "gatherstore|scatterstore|sliceupdate RANKS "
                               "BYTES:US ... rising (copy, update and sums: RANKS 1)";
    char name[16];
    int ranks = 0, used = 0;
    if (sscanf(line, "points %15s %d %n", name, &ranks, &used) < 2 || used == 0) {
        return report_line(number, line, form, err);
    }
    trmi_curve *c = curve_for(l, name, ranks);
    if (c == NULL) {
        return report_line(number, line, form, err);
    }
    /* Read pairs BYTES:US, which rise. */
    for (const char *at = line + used; *at != '\0';) {
        double bytes, us;
        int step = 0;
        bool ok = c->count < TRMI_POINTS && sscanf(at, "%lf:%lf %n", &bytes, &us, &step) == 2 &&
                  step > 0 && bytes >= 0 && us >= 0 && us < 1e12 &&
                  (c->count == 0 || bytes > c->bytes[c->count - 1]);
        if (!ok) {
            return report_line(number, at, form, err);
        }
        c->bytes[c->count] = bytes;
        double before = c->count > 0 ? c->seconds[c->count - 1] : 0;
        c->seconds[c->count++] = fmax(us * 1e-6, before); /* more bytes are never cheaper */
        at += step;
    }
    return c->count >= 2 ? TRM_OK : report_line(number, line, form, err);
}

/* Parses a line with a name and one number. */
static trm_status parse_number(trmi_links *l, int number, const char *line, trm_error *err) {
    char name[16] = "", rest[2],
         form[112] =
             "level, points, flops, bytes, speed, overlap, slowdown, cores, together, load, "
             "overhead, refill or handover";
    double value = NAN, cores = l->cores, together = l->together;
    /* a number in the file: from `least` to `most`; *to receives it times `unit` */
    const struct {
        const char *name;
        double *to, least, most, unit;
    } table[] = {{"flops", &l->flops, 1, 1e18, 1},          {"bytes", &l->bytes, 1, 1e18, 1},
                 {"speed", &l->speed, 1e-6, 1e6, 1},        {"overlap", &l->overlap, 0, 1, 1},
                 {"slowdown", &l->slowdown, 1, 1e6, 1},     {"cores", &cores, 1, 1e6, 1},
                 {"together", &together, 1, 1e6, 1},        {"load", &l->load, 0, 1e6, 1},
                 {"overhead", &l->overhead, 0, 1e12, 1e-6}, {"refill", &l->refill, 0, 1e12, 1e-6},
                 {"handover", &l->handover, 0, 1e12, 1e-6}};
    int words_found = sscanf(line, "%15s %lf %1s", name, &value, rest);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].name, name) != 0) {
            continue;
        }
        if (words_found == 2 && value >= table[i].least && value <= table[i].most) {
            *table[i].to = value * table[i].unit;
            l->cores = (int32_t)cores;
            l->together = (int32_t)together;
            return TRM_OK;
        }
        snprintf(form, sizeof form, "%s and a number from %g to %g", name, table[i].least,
                 table[i].most);
    }
    return report_line(number, line, form, err);
}

/* Takes what the search of operators needs from a hardware file. */
static trm_status take_hardware(const char *text, trmi_links *out, trm_error *err) {
    trmi_hardware h;
    TRMI_TRY(trmi_hardware_parse("hardware", text, &h, err));
    for (int32_t i = 0; i < h.levels_count; i++) {
        trmi_level *level = &out->levels[i];
        snprintf(level->name, sizeof level->name, "%s", h.levels[i].name);
        level->ranks = h.levels[i].devices;
        level->alpha = h.levels[i].latency;
        level->beta = 1 / h.levels[i].bandwidth;
    }
    out->levels_count = h.levels_count;
    out->flops = h.flops[TRMI_PRODUCT_BF16] * h.efficiency[h.points - 1];
    out->bytes = h.bandwidth * h.streaming;
    out->overlap = h.hide_data;
    out->overhead = h.step;
    return TRM_OK;
}

/* Contract in links.h. The text is a hardware file (JSON), or a description of lines "level",
 * "points" and "NAME NUMBER". */
trm_status trmi_links_parse(const char *text, trmi_links *out, trm_error *err) {
    memset(out, 0, sizeof *out);
    out->overlap = 1;
    if (trmi_hardware_is(text)) {
        return take_hardware(text, out, err);
    }
    int number = 0;
    for (const char *at = text; *at != '\0';) {
        char line[4096];
        size_t length = strcspn(at, "\n");
        number++;
        if (length >= sizeof line) {
            return report_line(number, at, "a line of less than 4096 letters", err);
        }
        memcpy(line, at, length);
        /* A comment begins with #. */
        line[strcspn(at, "#\n") < length ? strcspn(at, "#\n") : length] = '\0';
        at += length + (at[length] == '\n');
        const char *start = line + strspn(line, " \t\r");
        if (*start == '\0') {
            continue;
        }
        /* the first word says which kind of line it is */
        trm_status status = strncmp(start, "level ", 6) == 0 ? parse_level(out, number, start, err)
                            : strncmp(start, "points ", 7) == 0
                                ? parse_points(out, number, start, err)
                                : parse_number(out, number, start, err);
        TRMI_TRY(status);
    }
    if (out->levels_count == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "links: no line 'level NAME RANKS ALPHA_US GB_S [shared]'");
    }
    return TRM_OK;
}

/* Returns which of the first `count` curves is one of `move` in groups nearest to `ranks`, the
 * larger ones of two; NULL: none. */
static const trmi_curve *nearest_curve(const trmi_links *l, int32_t count, trmi_move move,
                                       int32_t ranks) {
    const trmi_curve *best = NULL;
    for (int32_t i = 0; i < count; i++) {
        const trmi_curve *c = &l->curves[i];
        int32_t far = abs(c->ranks - ranks), least = best != NULL ? abs(best->ranks - ranks) : 0;
        if (c->move == move &&
            (best == NULL || far < least || (far == least && c->ranks > best->ranks))) {
            best = c;
        }
    }
    return best;
}

/* Contract in links.h. Groups of a size that was not measured get the curve of the nearest size. */
void trmi_links_add_groups(trmi_links *l, int32_t ranks) {
    const int32_t measured = l->curves_count;
    for (int32_t group = 2; group <= ranks; group++) {
        for (int32_t move = 0; ranks % group == 0 && move < TRMI_MOVES; move++) {
            const trmi_curve *near = nearest_curve(l, measured, (trmi_move)move, group);
            bool exact = near != NULL && near->ranks == group;
            if (near != NULL && move != TRMI_MOVE_LOCAL && !exact &&
                l->curves_count < TRMI_CURVES) {
                l->curves[l->curves_count] = *near;
                l->curves[l->curves_count++].ranks = group;
            }
        }
    }
}

/* ---- several measurements ---- */

/* Sets each point of *out to the median of that point in all descriptions. offset: position of the
 * curve in trmi_links. */
static void middle_of(const trmi_links *list, int32_t count, size_t offset, trmi_curve *out) {
    double seen[TRMI_LINKS_MEASUREMENTS];
    for (int32_t i = 0; i < out->count; i++) {
        int32_t some = 0;
        for (int32_t k = 0; k < count; k++) {
            const trmi_curve *c = (const trmi_curve *)((const char *)&list[k] + offset);
            if (i < c->count && c->bytes[i] == out->bytes[i] && c->move == out->move &&
                c->ranks == out->ranks) {
                seen[some++] = c->seconds[i];
            }
        }
        double before = i > 0 ? out->seconds[i - 1] : 0;
        out->seconds[i] = fmax(before, trmi_median(seen, some));
    }
}

/* Returns the median of a number in all descriptions. offset: its position in trmi_links. */
static double middle_number(const trmi_links *list, int32_t count, size_t offset) {
    double seen[TRMI_LINKS_MEASUREMENTS];
    for (int32_t k = 0; k < count; k++) {
        seen[k] = *(const double *)(const void *)((const char *)&list[k] + offset);
    }
    return trmi_median(seen, count);
}

/* Contract in links.h. The median is taken point by point, because a disturbance seldom covers a
 * whole measurement. */
void trmi_links_middle(const trmi_links *list, int32_t count, trmi_links *out) {
    count = count < TRMI_LINKS_MEASUREMENTS ? count : TRMI_LINKS_MEASUREMENTS;
    *out = list[0];
    for (int32_t i = 0; i < out->curves_count; i++) {
        middle_of(list, count, offsetof(trmi_links, curves) + (size_t)i * sizeof out->curves[i],
                  &out->curves[i]);
    }
    middle_of(list, count, offsetof(trmi_links, update), &out->update);
    middle_of(list, count, offsetof(trmi_links, sliced), &out->sliced);
    middle_of(list, count, offsetof(trmi_links, sums), &out->sums);
    out->overhead = middle_number(list, count, offsetof(trmi_links, overhead));
    out->refill = middle_number(list, count, offsetof(trmi_links, refill));
    out->handover = middle_number(list, count, offsetof(trmi_links, handover));
}

/* ---- prices ---- */

/* Contract in links.h. Linear between points; beyond the last one its slope goes on, before the
 * first one its time stays. */
double trmi_curve_at(const trmi_curve *c, double bytes) {
    int32_t i = 1;
    while (i < c->count - 1 && c->bytes[i] < bytes) {
        i++;
    }
    if (bytes <= c->bytes[0]) {
        return c->seconds[0];
    }
    double slope = (c->seconds[i] - c->seconds[i - 1]) / (c->bytes[i] - c->bytes[i - 1]);
    return c->seconds[i - 1] + slope * (bytes - c->bytes[i - 1]);
}

/* Returns whether a line is nowhere above the points and not steeper than the end of the curve. */
static bool is_below(const trmi_curve *c, double slope, double offset) {
    double last = c->count > 1 ? (c->seconds[c->count - 1] - c->seconds[c->count - 2]) /
                                     (c->bytes[c->count - 1] - c->bytes[c->count - 2])
                               : c->seconds[0] / c->bytes[0];
    for (int32_t i = 0; i < c->count; i++) {
        if (offset + slope * c->bytes[i] > c->seconds[i] * (1 + 1e-9)) {
            return false;
        }
    }
    return slope <= last * (1 + 1e-9) && offset <= 0;
}

/* Candidates are the line through the origin and the lines through two points. */
void trmi_curve_below(const trmi_curve *c, double at, double *slope, double *offset) {
    *slope = INFINITY;
    *offset = 0;
    for (int32_t i = 0; i < c->count; i++) {
        *slope = fmin(*slope, c->seconds[i] / c->bytes[i]);
    }
    for (int32_t i = 0; i < c->count; i++) {
        for (int32_t k = i + 1; k < c->count; k++) {
            double own = (c->seconds[k] - c->seconds[i]) / (c->bytes[k] - c->bytes[i]),
                   from = c->seconds[i] - own * c->bytes[i];
            if (is_below(c, own, from) && from + own * at > *offset + *slope * at) {
                *slope = own;
                *offset = from;
            }
        }
    }
}

/* Returns the measured curve of a move in groups of `ranks`, or of the most similar move; NULL:
 * none. */
static const trmi_curve *curve_of(const trmi_links *l, trmi_move move, int32_t ranks) {
    trmi_move like = move == TRMI_MOVE_EXCHANGE ? TRMI_MOVE_ALL_TO_ALL : move;
    for (int32_t i = 0; i < l->curves_count; i++) {
        if (l->curves[i].move == like && l->curves[i].ranks == ranks) {
            return &l->curves[i];
        }
    }
    return move == TRMI_MOVE_GRADIENTS       ? curve_of(l, TRMI_MOVE_ALL_REDUCE, ranks)
           : move == TRMI_MOVE_GATHER_STORE  ? curve_of(l, TRMI_MOVE_ALL_GATHER, ranks)
           : move == TRMI_MOVE_SCATTER_STORE ? curve_of(l, TRMI_MOVE_REDUCE_SCATTER, ranks)
           : move == TRMI_MOVE_SLICES        ? curve_of(l, TRMI_MOVE_SCATTER_STORE, ranks)
                                             : NULL;
}

/* Returns how much slower `ranks` ranks are, because they share CPU cores, than those that ran
 * while curves were measured: `n` where the description does not say how many. */
static double crowd_factor(const trmi_links *l, double ranks, double n) {
    double cores = l->cores > 0 ? l->cores : 1e9, then = l->together > 0 ? l->together : n;
    return fmax(1, ranks / cores) / fmax(1, then / cores);
}

/* Contract in links.h. */
double trmi_links_handover(const trmi_links *l, int32_t ranks) {
    return l->handover * crowd_factor(l, ranks, ranks);
}

/* Returns the seconds that ranks lose by a wait for a move that stands between two operators.
 * Gradients and stored parameters are moved before and after all of them. */
static double refill_of(const trmi_links *l, trmi_move move) {
    return move == TRMI_MOVE_ALL_REDUCE || move == TRMI_MOVE_ALL_GATHER ||
                   move == TRMI_MOVE_REDUCE_SCATTER || move == TRMI_MOVE_ALL_TO_ALL ||
                   move == TRMI_MOVE_EXCHANGE
               ? l->refill
               : 0;
}

/* Returns the innermost level that contains a group of the axes; *sharing: number of ranks that
 * share one of its links. */
static const trmi_level *level_of(const trmi_links *l, uint32_t axes, double *sharing) {
    /* how far apart the first and the last rank of a group are */
    int64_t stride = 1, span = 1;
    for (int32_t i = l->mesh->axes - 1; i >= 0; i--) {
        stride *= l->mesh->size[i];
        span = axes >> i & 1 ? stride : span;
    }
    int32_t at = 0;
    while (at < l->levels_count - 1 && l->levels[at].ranks < span) {
        at++;
    }
    *sharing = 1;
    /* ranks below that are in different groups send over the same link at the same time */
    if (l->levels[at].shared && at > 0) {
        int64_t below = l->levels[at - 1].ranks, inside = 1;
        stride = 1;
        for (int32_t i = l->mesh->axes - 1; i >= 0; i--) {
            stride *= l->mesh->size[i];
            inside *= (axes >> i & 1) && stride <= below ? l->mesh->size[i] : 1;
        }
        int64_t ranks = trmi_mesh_ranks(l->mesh);
        *sharing = (double)(below < ranks ? below : ranks) / (double)inside;
    }
    return &l->levels[at];
}

/* Contract in links.h. In this order: a copy within the rank, a measured curve, the model alpha
 * + bytes * beta of the level that the axes cross. The scales serve the question "what if this
 * link were faster", without new measurements. */
double trmi_links_seconds(void *context, trmi_move move, uint32_t axes, double bytes) {
    const trmi_links *l = context;
    double n = trmi_mesh_group(l->mesh, axes), ranks = trmi_mesh_ranks(l->mesh), sharing;
    double alpha_scale = l->scale_alpha > 0 ? l->scale_alpha : 1,
           beta_scale = l->scale_beta > 0 ? l->scale_beta : 1;
    /* A copy within a rank needs no link. */
    if (move == TRMI_MOVE_LOCAL || n < 2) {
        const trmi_curve *copy = curve_of(l, TRMI_MOVE_LOCAL, 1);
        return copy != NULL ? trmi_curve_at(copy, bytes) * crowd_factor(l, ranks, 1)
                            : bytes * (l->bytes > 0 ? 1 / l->bytes : 1 / 5e9);
    }
    /* measured curve */
    const trmi_curve *curve = curve_of(l, move, (int32_t)n);
    if (curve != NULL) {
        double load = crowd_factor(l, ranks, n);
        bool pairs = move == TRMI_MOVE_ALL_TO_ALL || move == TRMI_MOVE_EXCHANGE;
        double full = pairs ? bytes * n / (n - 1) : bytes, start = trmi_curve_at(curve, 0);
        return load * (alpha_scale * start + beta_scale * (trmi_curve_at(curve, full) - start) +
                       refill_of(l, move));
    }
    /* The model is alpha + beta of the level. */
    const trmi_level *level = level_of(l, axes, &sharing);
    double alpha = level->alpha * alpha_scale, beta = level->beta * beta_scale * sharing;
    switch (move) {
    case TRMI_MOVE_ALL_REDUCE:
    case TRMI_MOVE_GRADIENTS: {
        /* Take the cheaper of a ring (large messages) and a tree (small messages). */
        double ring = 2 * (n - 1) * alpha, tree = 2 * ceil(log2(n)) * alpha;
        double volume = 2 * (n - 1) / n * bytes * beta;
        return fmin(ring + volume, tree + ceil(log2(n)) * 2 * bytes * beta);
    }
    case TRMI_MOVE_ALL_GATHER:
    case TRMI_MOVE_REDUCE_SCATTER:
    case TRMI_MOVE_GATHER_STORE:
    case TRMI_MOVE_SCATTER_STORE:
    case TRMI_MOVE_SLICES: return ceil(log2(n)) * alpha + (n - 1) / n * bytes * beta;
    default: return fmin(n - 1, ceil(log2(n)) * 2) * alpha + bytes * beta;
    }
}
