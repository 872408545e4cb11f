/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/links.h: what messages cost: levels of a machine, or curves that were measured on it.
 *
 *      text of a description --trmi_links_parse--> levels, curves --trmi_links_seconds-->
 *      trmi_prices.seconds */
#ifndef TRMI_PLAN_LINKS_H
#define TRMI_PLAN_LINKS_H

#include "plan/shard/sharding.h"

enum { TRMI_LEVELS = 4, TRMI_POINTS = 32, TRMI_CURVES = 64 };
typedef struct trmi_level {
    char name[16];
    int64_t ranks;      /* ranks that such a unit holds: 8 in a host, 512 in a pod */
    double alpha, beta; /* seconds a message, a byte */
    bool shared;        /* beta is the unit's, divided among the ranks of the unit below */
} trmi_level;
/* Curves that are no moves: of the optimiser (TRMI_MOVES) and of its slices. */
#define TRMI_SLICED_UPDATE ((trmi_move)(TRMI_MOVES + 1))
/* Seconds by bytes, both not falling. */
typedef struct trmi_curve {
    trmi_move move;
    int32_t ranks, count;
    double bytes[TRMI_POINTS], seconds[TRMI_POINTS]; /* of the full vector */
} trmi_curve;
typedef struct trmi_links {
    trmi_level levels[TRMI_LEVELS];
    int32_t levels_count;
    trmi_curve curves[TRMI_CURVES];
    int32_t curves_count;
    trmi_curve update;   /* the optimiser's pass, by bytes of parameters; count 0 = not measured */
    trmi_curve sliced;   /* the same of a rank's slice of parameters that all ranks read */
    double overhead;     /* seconds that every step takes beside its operators and messages */
    double flops, bytes; /* a second, of one rank; 0 = this machine's, measured */
    double speed;        /* of a rank's operators against this machine's, measured; 0 = 1 */
    double overlap, slowdown;
    int32_t cores; /* that ranks of a host share; 0 = each its own */
    /* curves were measured while so many ranks ran; 0 = one group by itself */
    int32_t together;
    double load;                    /* of the machine, by others, while they were measured */
    double scale_alpha, scale_beta; /* what-if */
    const trmi_mesh *mesh;          /* of the present search */
} trmi_links;

/* INVALID with line, found and expected. */
trm_status trmi_links_parse(const char *text, trmi_links *out, trm_error *err);
/* Guesses for ranks of this machine. */
void trmi_links_local(trmi_links *out, int32_t ranks);
/* trmi_prices.seconds; `context`: the links with their mesh set. */
double trmi_links_seconds(void *context, trmi_move move, uint32_t axes, double bytes);
/* Of measurements of the same curves at several times, point by point the median, of shorter ones
 * as far as they reach; the rest is the first one's. At most TRMI_LINKS_LOOKS. */
enum { TRMI_LINKS_LOOKS = 16 };
void trmi_links_middle(const trmi_links *list, int32_t count, trmi_links *out);
/* Between points: a line; beyond the last: the last slope. */
double trmi_curve_at(const trmi_curve *curve, double bytes);
/* A straight line that lies nowhere above the curve, and as high as one can at `at`: seconds =
 * offset + slope x bytes. */
void trmi_curve_below(const trmi_curve *curve, double at, double *slope, double *offset);
/* The word of a curve in a description: "allreduce", "gradients" ... */
const char *trmi_links_word(trmi_move move);

#endif
