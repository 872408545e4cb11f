/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/links.h: prices of messages: from a description of the machine's levels, or from
 * curves that were measured on it.
 *
 *      text of a description --trmi_links_parse--> levels, curves --trmi_links_seconds-->
 *      trmi_prices.seconds
 *
 * trmi_links_seconds() is the callback of trmi_prices; the caller sets links.mesh before a search.
 * Curves have rising bytes and seconds that do not fall. */
#ifndef TRMI_PLAN_LINKS_H
#define TRMI_PLAN_LINKS_H

#include "plan/partition/partition.h"

/* Most levels, points of a curve, curves of a description. */
enum { TRMI_LEVELS = 4, TRMI_POINTS = 32, TRMI_CURVES = 64 };
/* A level of the machine: core, host, rack ... */
typedef struct trmi_level {
    char name[16];
    int64_t ranks;      /* ranks in one unit of this level: 8 in a host, 512 in a pod */
    double alpha, beta; /* seconds per message, per byte */
    /* beta is the bandwidth of the unit, divided among the ranks that use it at once */
    bool shared;
} trmi_level;
/* Kinds of curves beyond the moves: the optimiser (TRMI_MOVES), its slices, and adding gradients of
 * a micro-batch to those before it. */
#define TRMI_SLICED_UPDATE ((trmi_move)(TRMI_MOVES + 1))
#define TRMI_GRADIENT_SUMS ((trmi_move)(TRMI_MOVES + 2))
/* A measured curve: seconds against bytes. */
typedef struct trmi_curve {
    trmi_move move;
    int32_t ranks, count;
    double bytes[TRMI_POINTS], seconds[TRMI_POINTS]; /* bytes of the full vector */
} trmi_curve;
/* Levels and curves of a machine. */
typedef struct trmi_links {
    trmi_level levels[TRMI_LEVELS];
    int32_t levels_count;
    trmi_curve curves[TRMI_CURVES];
    int32_t curves_count;
    /* seconds of the optimiser by bytes of parameters; count 0 = not measured */
    trmi_curve update;
    trmi_curve sliced; /* the same for a rank's slice of parameters that all ranks read */
    trmi_curve sums;   /* of adding gradients to those of earlier micro-batches, by bytes */
    double overhead;   /* seconds of a step beside its operators and messages */
    /* seconds, of all ranks that share a core: what a wait costs, because other ranks fill the
     * caches meanwhile; and one end of a message between stages, with half of such a wait and
     * without copies. 0 = ranks share no cores, or not measured */
    double refill, handover;
    double flops, bytes; /* per second, of one rank; 0 = measure this machine */
    double speed;        /* speed of a rank's operators relative to this machine's; 0 = 1 */
    double overlap;      /* fraction of the gradients' messages that run beside backward, 0 to 1 */
    double slowdown;     /* factor by which operators slow down beside messages; 0 = 1 */
    int32_t cores;       /* CPU cores that the ranks of a host share; 0 = one each */
    /* number of ranks that ran while curves were measured; 0 = one group alone */
    int32_t together;
    /* load of the machine by other processes during the measurement */
    double load;
    /* factors on alpha and beta for what-if analysis; 0 = 1 */
    double scale_alpha, scale_beta;
    const trmi_mesh *mesh; /* mesh of the present search; set by the caller */
} trmi_links;

/* Parses a description (format: plan/search/links.c).
 *   errors  INVALID, with line, found and expected text */
trm_status trmi_links_parse(const char *text, trmi_links *out, trm_error *err);
/* Gives the groups of `ranks` ranks that were not measured the curves of the measured group whose
 * number of ranks is nearest: a price for a plan that is needed at once. */
void trmi_links_add_groups(trmi_links *links, int32_t ranks);
/* Fills in default levels for `ranks` ranks on one machine. */
void trmi_links_local(trmi_links *out, int32_t ranks);
/* Returns the seconds of a move of `bytes` over the mesh axes in `axes`; the callback for
 * trmi_prices.seconds. context: a trmi_links with its mesh set. */
double trmi_links_seconds(void *context, trmi_move move, uint32_t axes, double bytes);
/* Returns the seconds of one end of a message between stages where `ranks` ranks compute, beside
 * its copies (trmi_links.handover). */
double trmi_links_handover(const trmi_links *links, int32_t ranks);
/* Computes, point by point, the median of up to TRMI_LINKS_MEASUREMENTS measurements of the same
 * curves; a point that only some curves reach takes the median of these. The other members are
 * copied from list[0]. */
enum { TRMI_LINKS_MEASUREMENTS = 16 };
void trmi_links_middle(const trmi_links *list, int32_t count, trmi_links *out);
/* Returns the seconds at `bytes`: linear between points, the last slope beyond the last point. */
double trmi_curve_at(const trmi_curve *curve, double bytes);
/* Computes the line seconds = offset + slope x bytes that is nowhere above the curve and is highest
 * at `at`. */
void trmi_curve_below(const trmi_curve *curve, double at, double *slope, double *offset);
/* Returns the word of a curve in descriptions: "allreduce", "gradients" ...; "?" if there is none.
 * Static. */
const char *trmi_links_word(trmi_move move);

#endif
