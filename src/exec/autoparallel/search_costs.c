/* SPDX-License-Identifier: Apache-2.0 */
/* The costs of operators that the search uses: measured ones where there are any, else scaled from
 * a similar measured operator, else by the roofline. Those of messages are in search_costs_links.c.
 *
 *      the search asks   trmi_costs_seconds    find --> nearest, scaled --> roofline
 *      the search asks   trmi_costs_measure    recall (file) --> measure (op_benchmark.c) --> keep
 *
 * Operators are kept in "operators.txt" of the cache directory, by machine, key, and how many ranks
 * ran:
 *
 *      <machine> TAB conv2d 89abcdef... t1 x2 32x64x56x56:1 ... forward TAB 2026-11-21;spread
 *      0.02;load 1.01 TAB seconds
 *
 * An entry is measured again if its spread was wide, or the machine was busy then and is less busy
 * now, or its ratio to the roofline differs from that of all similar operators. */
#include "exec/autoparallel/search_costs.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"
#ifdef TRIREME_ONEDNN
#include "exec/cpu/tuning/rates.h"
#include "exec/cpu/tuning/tuning.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double worth = 4e-6; /* seconds: faster operators are not measured */
/* Time limits by the predicted step: so many steps, but seconds within these bounds. */
static const double steps_measured = 500, steps_long = 40;
static const double shortest = 3, longest = 30;

#ifdef TRIREME_ONEDNN
/* Returns the rates of this machine with so many threads. They are measured once and kept in the
 * file, so that two searches of the same problem find the same plan. */
static void find_rates(trmi_costs *c, int threads, double *flops, double *bytes) {
    const char *name;
    char flops_key[40], bytes_key[40];
    double a, b;
    snprintf(flops_key, sizeof flops_key, "machine flops %d", threads);
    snprintf(bytes_key, sizeof bytes_key, "machine bytes %d", threads);
    if (c->file != NULL && trmi_tuning_find(c->file, flops_key, &name, &a) &&
        trmi_tuning_find(c->file, bytes_key, &name, &b) && a > 0 && b > 0) {
        *flops = 1e12 / a;
        *bytes = 1e12 / b;
        return;
    }
    trmi_onednn_rates(threads, flops, bytes);
    if (c->file != NULL) {
        trm_error ignored;
        trmi_tuning_add(c->file, flops_key, "tile", 1e12 / *flops);
        trmi_tuning_add(c->file, bytes_key, "copy", 1e12 / *bytes);
        (void)trmi_tuning_save(c->file, &ignored);
    }
}
#endif

/* ---- life ------------------------------------------------------------------------------------ */

/* Contract in search_costs.h. The rates of the roofline are measured where the fast back-end is
 * built in, else two fixed numbers. `share` is the factor by which memory becomes slower for a
 * rank when all ranks of the host use it together. */
trm_status trmi_costs_open(trmi_costs *c, const trmi_costs_options *o, trm_error *err) {
    memset(c, 0, sizeof *c);
    c->probe = o->probe;
    c->threads = o->threads;
    c->ranks = o->ranks > 1 ? o->ranks : 1;
    c->refresh = o->refresh;
    c->factor = c->share = 1;
    c->limit_seconds = longest;
    c->said_seconds = o->limit_seconds;
    c->replans = o->replans;
    double flops = 5e10, bytes = 1e10;
#ifdef TRIREME_ONEDNN
    char path[512] = "";
    if (o->tuning_file == NULL && trmi_os_cache_dir(path, sizeof path - 16)) {
        strcat(path, "/operators.txt");
    }
    if (path[0] != '\0') {
        TRMI_TRY(trmi_tuning_create(path, o->threads, "planner",
                                    o->backend != NULL ? o->backend : "onednn", &c->file, err));
    }
    find_rates(c, o->threads, &flops, &bytes);
    /* Bandwidth of a rank alone over its part of what all ranks reach together. */
    if (o->together > o->threads) {
        double all_flops, all_bytes;
        find_rates(c, o->together, &all_flops, &all_bytes);
        c->share = fmax(1, bytes * o->together / (o->threads * all_bytes));
    }
#else
    (void)err;
#endif
    /* kernels reach a part of the peak; reading and writing reaches the measured rate */
    c->flop = 1 / (TRMI_COSTS_REACHED * flops);
    c->byte = 1 / bytes;
    return TRM_OK;
}

void trmi_costs_close(trmi_costs *c) {
#ifdef TRIREME_ONEDNN
    trmi_tuning_destroy(c->file);
#endif
    free(c->entries);
    trmi_arena_free(&c->arena);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Returns whether an operator of this kind runs alone with representative cost. */
static bool can_measure(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL:
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_LAYER_NORM:
    case TRMI_OP_RMS_NORM:
    case TRMI_OP_ATTENTION:
    case TRMI_OP_LINEAR_XENT:
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL:
    case TRMI_OP_GLOBAL_AVG_POOL:
    case TRMI_OP_ADD:
    case TRMI_OP_MUL:
    case TRMI_OP_RELU:
    case TRMI_OP_EXP:
    case TRMI_OP_GELU:
    case TRMI_OP_SILU:
    case TRMI_OP_SWIGLU:
    case TRMI_OP_ROTARY:
    case TRMI_OP_SOFTMAX_XENT:
    case TRMI_OP_EMBEDDING: return true;
    default: return false;
    }
}

/* Returns rank 0's part of an input under a strategy. */
static trm_shape local_shape(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                             const trmi_strategy *s, int32_t input) {
    if (input < 4) {
        return s->local_inputs[input];
    }
    trmi_box box = trmi_spread_box(mesh, &trmi_input_of(g, op, input)->shape, &s->inputs[input], 0);
    return trmi_box_shape(&box);
}

/* Writes the key of an operator under a strategy: "conv2d 89abcdef01234567 t1 x2 s24 p10
 * 32x64x56x56:1 ...": name, hash of the attributes, threads, ranks, footprint (s24m: of a
 * micro-batch), version of the measuring method, local shapes and types of the inputs. Returns
 * false if `size` is too small. */
static bool key_of(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                   const trmi_strategy *s, const trmi_costs *c, char *key, size_t size) {
    uint64_t h = trmi_hash(TRMI_HASH_BEGIN, &op->attrs, offsetof(trmi_attrs, attached));
    /* The footprint enters as a power of two: how much of an operator's data stays in the caches
     * depends on little more. */
    int class =
        c->probe != NULL && c->probe->footprint > 0 ? ilogb((double)c->probe->footprint) : 0;
    const bool staged = c->probe != NULL && g != c->probe->graph;
    size_t used =
        (size_t)snprintf(key, size, "%s %016llx t%d x%d s%d%s p10", trmi_op_def_of(op)->name,
                         (unsigned long long)h, c->threads, c->ranks, class, staged ? "m" : "");
    for (int32_t i = 0; i < op->inputs_count && used < size; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        char text[96] = "-";
        if (v != NULL) {
            trm_shape shape = local_shape(g, op, mesh, s, i);
            trm_shape_format(&shape, text, sizeof text);
        }
        used += (size_t)snprintf(key + used, size - used, " %s:%d", text,
                                 v != NULL ? (int)v->dtype : 0);
    }
    /* The time also depends on the position of the first query, strict kernels, gradients in
     * factors. */
    int64_t first = op->kind == TRMI_OP_ATTENTION ? trmi_op_benchmark_first_query(g, op, s) : 0;
    if (used < size && first > 0) {
        used += (size_t)snprintf(key + used, size - used, " from %lld", (long long)first);
    }
    if (used < size && c->probe != NULL && c->probe->strict) {
        used += (size_t)snprintf(key + used, size - used, " strict");
    }
    if (used < size && trmi_partition_in_factors(g, op, s, 1)) {
        used += (size_t)snprintf(key + used, size - used, " factors");
    }
    return used < size;
}

/* Returns the entry of a key; NULL: unknown. Valid until an entry is added, which may move all. */
static trmi_op_cost_entry *find_cost(const trmi_costs *c, const char *key) {
    for (int64_t i = 0; i < c->count; i++) {
        if (strcmp(c->entries[i].key, key) == 0) {
            return &c->entries[i];
        }
    }
    return NULL;
}

/* Returns how many times longer than its roofline an operator takes; 0: one of the two is
 * unknown. */
static double ratio_of(double seconds, double roof) {
    return seconds > 0 && roof > 0 ? seconds / roof : 0;
}

/* Sets the ratios of measured time to roofline. */
static void update_roofline_ratio(trmi_op_cost_entry *e, const trmi_node_seconds *roof) {
    e->ratio = (trmi_node_seconds){.forward = ratio_of(e->seconds.forward, roof->forward),
                                   .backward = ratio_of(e->seconds.backward, roof->backward),
                                   .factors = ratio_of(e->seconds.factors, roof->factors)};
}

/* Adds an entry. `roof`: seconds by the roofline, without c->factor. */
static trm_status add_entry(trmi_costs *c, const char *key, const trmi_node_seconds *seconds,
                            const trmi_node_seconds *roof, trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, c->entries, c->capacity, c->count + 1, "for measured operators"));
    trmi_op_cost_entry *e = &c->entries[c->count];
    *e = (trmi_op_cost_entry){
        .key = trmi_arena_strdup(&c->arena, key), .seconds = *seconds, .size = roof->forward};
    e->round = c->round;
    e->seen[e->measurements++] = *seconds;
    update_roofline_ratio(e, roof);
    c->count += e->key != NULL;
    return e->key != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "for measured operators");
}

/* Reads the times of an earlier process from the file. Returns false if there are none, or if they
 * should be measured again: a wide spread or a busy machine then, a quiet one now. Update times are
 * needed only where roof->factors is positive. */
static bool load_cost(trmi_costs *c, const char *key, const trmi_node_seconds *roof,
                      trmi_node_seconds *out) {
#ifdef TRIREME_ONEDNN
    char longer[1100];
    const char *how;
    double spread = 0, load = 1;
    snprintf(longer, sizeof longer, "%s forward", key);
    if (c->file == NULL || c->refresh || !trmi_tuning_find(c->file, longer, &how, &out->forward)) {
        return false;
    }
    /* The entry's method has date, spread and load: they say how far it can be trusted. */
    const char *at = strstr(how, "spread ");
    if (at != NULL && sscanf(at, "spread %lf;load %lf", &spread, &load) != 2) {
        return false;
    }
    double now = c->probe != NULL ? c->probe->load : load;
    if (c->probe != NULL && (spread > 0.4 || load > TRMI_COSTS_BUSY) && now < TRMI_COSTS_QUIET) {
        return false;
    }
    /* Reports name the oldest measurement that was used. */
    bool dated = strlen(how) >= 10 && how[4] == '-' && how[7] == '-';
    if (dated && (c->oldest[0] == '\0' || strncmp(how, c->oldest, 10) < 0)) {
        snprintf(c->oldest, sizeof c->oldest, "%.10s", how);
    }
    snprintf(longer, sizeof longer, "%s update", key);
    if (roof->factors > 0 && !trmi_tuning_find(c->file, longer, &how, &out->factors)) {
        return false;
    }
    snprintf(longer, sizeof longer, "%s backward", key);
    return trmi_tuning_find(c->file, longer, &how, &out->backward);
#else
    (void)c, (void)key, (void)roof, (void)out;
    return false;
#endif
}

/* Adds times to the file; written by trmi_tuning_save. */
static void store_cost(trmi_costs *c, const char *key, const trmi_op_benchmark_time *time) {
#ifdef TRIREME_ONEDNN
    char longer[1100], how[80], date[32];
    time_t now = (time_t)trmi_os_wall();
    struct tm day;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    if (c->file != NULL) {
        snprintf(how, sizeof how, "%s;spread %.3f;load %.3f", date, time->spread, c->probe->load);
        snprintf(longer, sizeof longer, "%s forward", key);
        trmi_tuning_add(c->file, longer, how, time->forward);
        snprintf(longer, sizeof longer, "%s backward", key);
        trmi_tuning_add(c->file, longer, how, time->backward);
        if (time->factors > 0) {
            snprintf(longer, sizeof longer, "%s update", key);
            trmi_tuning_add(c->file, longer, how, time->factors);
        }
    }
#else
    (void)c, (void)key, (void)time;
#endif
}

/* ---- measuring ------------------------------------------------------------------------------- */

static const trmi_op_cost_entry *nearest_cost(const trmi_costs *c, const trmi_op *op,
                                              const char *key, double size);

/* Returns whether a measurement should be repeated: its spread is wide, or it is much faster than
 * the roofline, or much slower although a similar operator is not. */
static bool is_doubtful(const trmi_costs *c, const trmi_op *op, const char *key,
                        const trmi_op_benchmark_time *time, const trmi_node_seconds *roof) {
    double ratio = (time->forward + time->backward) / fmax(1e-12, roof->forward + roof->backward);
    const trmi_op_cost_entry *like = nearest_cost(c, op, key, roof->forward);
    double usual = like != NULL ? like->ratio.forward : 1;
    return time->spread > 0.4 || ratio < 0.2 || (ratio > 6 && ratio > 3 * usual);
}

/* Returns the smaller of two measurements, member by member. */
static trmi_op_benchmark_time least_times(const trmi_op_benchmark_time *a,
                                          const trmi_op_benchmark_time *b) {
    return (trmi_op_benchmark_time){fmin(a->forward, b->forward), fmin(a->backward, b->backward),
                                    fmin(a->factors, b->factors), fmin(a->spread, b->spread)};
}

/* Returns whether the time that may be spent on measuring is not used up. */
static bool has_time(const trmi_costs *c) { return c->spent_seconds < c->limit_seconds; }

/* Measures an operator once, within the time that is left, and adds to the time that is used. */
static trm_status measure_once(trmi_costs *c, const trmi_space *space, int32_t node,
                               const trmi_strategy *s, trmi_op_benchmark_time *out,
                               trm_error *err) {
    double begin = trmi_os_now();
    c->probe->seconds = c->limit_seconds - c->spent_seconds;
    trm_status status = trmi_op_benchmark_measure(c->probe, space->nodes[node].op, &space->mesh,
                                                  s->letters, out, err);
    c->probe->seconds = 0;
    c->spent_seconds += trmi_os_now() - begin;
    return status;
}

/* Measures an operator, up to three times while the result is doubtful, and keeps it. An operator
 * that cannot run alone gets an entry without times. Fails only if the communicator is broken. */
static trm_status measure_cost(trmi_costs *c, const trmi_space *space, int32_t node,
                               const trmi_strategy *s, const char *key,
                               const trmi_node_seconds *roof, trm_error *err) {
    trmi_op_benchmark_time time = {.forward = -1};
    trm_error own;
    trm_status status = measure_once(c, space, node, s, &time, &own);
    bool again = status == TRM_OK && is_doubtful(c, trmi_space_op(space, node), key, &time, roof);
    for (int i = 0; again && i < 2 && has_time(c); i++) { /* a disturbance is usually short */
        trmi_op_benchmark_time other;
        status = measure_once(c, space, node, s, &other, &own);
        if (status != TRM_OK) {
            break;
        }
        time = least_times(&time, &other);
        again = is_doubtful(c, trmi_space_op(space, node), key, &time, roof);
        c->doubted += i == 0;
    }
    /* An operator that cannot run alone is no error; a broken communicator is. */
    if (status != TRM_OK && c->probe->comm != NULL &&
        trm_comm_health(c->probe->comm, err) != TRM_OK) {
        return err != NULL ? err->status : TRM_PEER;
    }
    if (status != TRM_OK) {
        /* the operator does not run alone with this local shape: the roofline prices it */
        return add_entry(c, key, &(trmi_node_seconds){.forward = -1}, roof, err);
    }
    c->measured++;
    store_cost(c, key, &time);
    return add_entry(c, key, &(trmi_node_seconds){time.forward, time.backward, time.factors}, roof,
                     err);
}

/* Returns the time of an entry from all its measurements: of two the mean (the minimum would make
 * sums too small), of three or more the median, because CPU steal, or two ranks on one CPU, can
 * spoil a whole measurement. */
static trmi_node_seconds middle_of(const trmi_op_cost_entry *e) {
    double forward[TRMI_COSTS_MEASUREMENTS], backward[TRMI_COSTS_MEASUREMENTS],
        factors[TRMI_COSTS_MEASUREMENTS];
    for (int i = 0; i < e->measurements; i++) {
        forward[i] = e->seen[i].forward;
        backward[i] = e->seen[i].backward;
        factors[i] = e->seen[i].factors;
    }
    return (trmi_node_seconds){trmi_median(forward, e->measurements),
                               trmi_median(backward, e->measurements),
                               trmi_median(factors, e->measurements)};
}

/* Measures an entry once more: a disturbance rarely repeats. */
static trm_status measure_again(trmi_costs *c, const trmi_space *space, int32_t node,
                                const trmi_strategy *s, trmi_op_cost_entry *e,
                                const trmi_node_seconds *roof, trm_error *err) {
    trmi_op_benchmark_time time;
    trm_error own;
    trm_status status = measure_once(c, space, node, s, &time, &own);
    e->round = c->round;
    if (status != TRM_OK) {
        return c->probe->comm != NULL && trm_comm_health(c->probe->comm, err) != TRM_OK
                   ? (err != NULL ? err->status : TRM_PEER)
                   : TRM_OK;
    }
    e->seen[e->measurements++] = (trmi_node_seconds){time.forward, time.backward, time.factors};
    e->seconds = middle_of(e);
    update_roofline_ratio(e, roof);
    store_cost(c, e->key,
               &(trmi_op_benchmark_time){e->seconds.forward, e->seconds.backward,
                                         e->seconds.factors, time.spread});
    return TRM_OK;
}

double trmi_costs_limit(double said, double step) {
    double usual = fmax(shortest, fmin(longest, steps_measured * step));
    return said > 0 ? said : fmax(usual, steps_long * step);
}

/* ---- what the search asks -------------------------------------------------------------------- */

/* Returns the n-th word of a key (from 0), with its length; length 0 if the key has fewer words. */
static const char *key_word(const char *key, int n, size_t *length) {
    for (; n > 0 && *key != '\0'; n--) {
        key += strcspn(key, " ");
        key += *key == ' ';
    }
    *length = strcspn(key, " ");
    return key;
}

/* Returns whether word n of two keys is equal; words of a key describe the operator, see
 * key_of(). */
static bool same_word(const char *a, const char *b, int n) {
    size_t x, y;
    const char *from = key_word(a, n, &x), *to = key_word(b, n, &y);
    return x == y && strncmp(from, to, x) == 0;
}

/* Returns the measured operator of the same kind whose size is nearest (distance: logarithm of the
 * ratio). Other attributes add 1, other weights 0.5 to the distance, so that the same operator cut
 * in another way is preferred. NULL: there is none. */
static const trmi_op_cost_entry *nearest_cost(const trmi_costs *c, const trmi_op *op,
                                              const char *key, double size) {
    enum { ATTRIBUTES = 1, WEIGHTS = 7 }; /* words of a key */
    const char *name = trmi_op_def_of(op)->name;
    size_t length = strlen(name);
    const trmi_op_cost_entry *best = NULL;
    double least = INFINITY;
    for (int64_t i = 0; i < c->count; i++) {
        const trmi_op_cost_entry *e = &c->entries[i];
        bool same =
            strncmp(e->key, name, length) == 0 && e->key[length] == ' ' && e->ratio.forward > 0;
        double far = same && size > 0 && e->size > 0 ? fabs(log(e->size / size)) : INFINITY;
        far +=
            same ? !same_word(e->key, key, ATTRIBUTES) + 0.5 * !same_word(e->key, key, WEIGHTS) : 0;
        if (far < least) {
            least = far;
            best = e;
        }
    }
    return best;
}

/* Scales a measured time to the roofline `roof` of another size. `ratio` is measured time over
 * roofline. The part beyond `usual` times the roofline is taken as start-up, which does not grow
 * with the size. */
static double scale_time(double roof, double measured, double ratio) {
    static const double usual = 4;
    double grows = fmin(ratio, usual);
    return ratio > 0 ? grows * roof + measured * (1 - grows / ratio) : roof;
}

/* Sets *out to the measured seconds, or to an estimate from `roof`. Returns whether they were
 * measured (or scaled from times measured) while all ranks ran, so that shared bandwidth is
 * included. */
static bool estimate_seconds(const trmi_costs *c, const trmi_space *space, const trmi_op *op,
                             const trmi_strategy *s, const trmi_node_seconds *roof,
                             trmi_node_seconds *out) {
    char key[1024];
    *out = *roof;
    out->factors = roof->factors / c->factor; /* roof->factors includes the factor */
    if (c->count == 0 || !can_measure(op->kind) ||
        !key_of(space->graph, op, &space->mesh, s, c, key, sizeof key)) {
        return false;
    }
    const trmi_op_cost_entry *e = find_cost(c, key);
    if (e != NULL && e->seconds.forward >= 0) {
        *out = e->seconds;
        return c->ranks > 1;
    }
    /* no such operator was measured: one like it says how far it is from its roofline */
    e = nearest_cost(c, op, key, roof->forward);
    if (e != NULL) {
        out->forward = scale_time(roof->forward, e->seconds.forward, e->ratio.forward);
        out->backward = scale_time(roof->backward, e->seconds.backward, e->ratio.backward);
        out->factors = e->ratio.factors > 0 ? e->ratio.factors * roof->factors : out->factors;
    }
    return e != NULL && c->ranks > 1;
}

/* Contract in search_costs.h. The factor of memory traffic stretches only that part of an
 * operator's time which is traffic, so operators that compute keep their time. */
void trmi_costs_seconds(void *context, const trmi_space *space, const trmi_space_node *node,
                        const trmi_strategy *s, trmi_node_seconds *out) {
    const trmi_costs *c = context;
    const trm_graph *g = space->graph;
    const trmi_node_seconds roof = *out;
    /* Not measured with all ranks: memory traffic takes c->share times as long. */
    double share = estimate_seconds(c, space, &g->ops[node->op], s, &roof, out) ? 1 : c->share;
    /* `there` and `back` are seconds of memory traffic, which are at most the operator's own. */
    double there = trmi_op_cost(g, &g->ops[node->op]).bytes * s->fraction * c->byte, back = 0;
    for (int32_t i = 0; i < node->backward_count; i++) {
        back += trmi_op_cost(g, &g->ops[node->backward[i]]).bytes * s->fraction * c->byte;
    }
    out->forward = (out->forward + (share - 1) * fmin(out->forward, there)) * c->factor;
    out->backward = (out->backward + (share - 1) * fmin(out->backward, back)) * c->factor;
    out->factors *= c->factor;
}

/* A node of a plan, and the seconds of all nodes of its class by the roofline. */
typedef struct wanted {
    int32_t node;
    double work;
} wanted;

/* Compares operators by work, the largest first: if time runs out, only small ones are guessed.
 * Ties are ordered by node, so that all runs measure in the same order. */
static int by_work(const void *a, const void *b) {
    const wanted *x = a, *y = b;
    return x->work != y->work ? (x->work < y->work) - (x->work > y->work) : x->node - y->node;
}

/* Lists the nodes of a plan that can be measured, those with the most work first, so that little is
 * unmeasured if the time runs out. Returns how many. */
static int32_t list_wanted(const trmi_space *space, const trmi_choice *choice, wanted *list) {
    int32_t count = 0;
    for (int32_t n = 0; n < space->nodes_count; n++) {
        trmi_node_seconds roof;
        if (can_measure(trmi_space_op(space, n)->kind)) {
            trmi_space_roofline(space, n, choice->strategy[n], &roof);
            list[count++] = (wanted){n, (roof.forward + roof.backward) *
                                            trmi_space_class_of(space, n)->members};
        }
    }
    qsort(list, (size_t)count, sizeof *list, by_work);
    return count;
}

/* Measures, or reads from the file, one node of a plan, unless its cost is known or negligible.
 * Increments *news if a cost has changed. */
static trm_status measure_node(trmi_costs *c, const trmi_space *space, int32_t n,
                               const trmi_choice *choice, int32_t *news, trm_error *err) {
    const trmi_strategy *s = &trmi_space_class_of(space, n)->strategies[choice->strategy[n]];
    char key[1024];
    trmi_node_seconds seconds = {.forward = 0}, roof;
    if (!key_of(space->graph, trmi_space_op(space, n), &space->mesh, s, c, key, sizeof key)) {
        return TRM_OK;
    }
    trmi_op_cost_entry *known = find_cost(c, key);
    bool again = known != NULL && known->round < c->round &&
                 known->measurements < TRMI_COSTS_MEASUREMENTS && c->probe != NULL && has_time(c) &&
                 known->seconds.forward >= 0;
    trmi_space_roofline(space, n, choice->strategy[n], &roof);
    /* Try in this order: measure a known cost again, keep a known or negligible one, read the file,
     * measure. */
    if (again) {
        TRMI_TRY(measure_again(c, space, n, s, known, &roof, err));
    } else if (known != NULL || roof.forward + roof.backward < worth) {
        return TRM_OK;
    } else if (load_cost(c, key, &roof, &seconds)) {
        TRMI_TRY(add_entry(c, key, &seconds, &roof, err));
    } else if (c->probe != NULL && has_time(c)) {
        TRMI_TRY(measure_cost(c, space, n, s, key, &roof, err));
    } else {
        return TRM_OK;
    }
    ++*news;
    return TRM_OK;
}

/* Contract in search_costs.h. Operators are measured in the order of list_wanted until the time
 * limit is used up. Measured costs are saved at the end of each call, so that an interrupted
 * search does not lose them. */
trm_status trmi_costs_measure(trmi_costs *c, const trmi_space *space, const trmi_choice *choice,
                              int32_t *news, trm_error *err) {
    wanted *list;
    trm_status status = TRMI_NEW(err, list, (size_t)space->nodes_count + 1, "to measure operators");
    int32_t count = status == TRM_OK ? list_wanted(space, choice, list) : 0;
    double begin = trmi_os_now();
    for (int32_t i = 0; status == TRM_OK && i < count; i++) {
        /* the time left, by the mean of those measured so far */
        if (c->probe != NULL && has_time(c)) {
            double each = i > 0 ? (trmi_os_now() - begin) / i : INFINITY;
            trmi_progress_note(&c->probe->progress, i, count,
                               fmin(each * (count - i), c->limit_seconds - c->spent_seconds),
                               "measuring the operators of a plan");
        }
        if (c->probe != NULL) {
            trmi_signs_note(c->probe->signs, "measuring the operators of a plan");
        }
        status = trmi_stop_check(c->probe != NULL ? c->probe->stop : NULL, "search of plans", err);
        status =
            status == TRM_OK ? measure_node(c, space, list[i].node, choice, news, err) : status;
    }
    trmi_free(list);
#ifdef TRIREME_ONEDNN
    if (status == TRM_OK && c->file != NULL && c->measured > 0) {
        trm_error ignored;
        (void)trmi_tuning_save(c->file, &ignored);
    }
#endif
    return status;
}

/* Contract in search_costs.h. The share is of time, not of operators: many small estimates matter
 * less than a large one. */
double trmi_costs_share_known(const trmi_costs *c, const trmi_space *space,
                              const trmi_choice *choice) {
    double all = 0, known = 0;
    for (int32_t n = 0; n < space->nodes_count; n++) {
        const trmi_space_class *of = trmi_space_class_of(space, n);
        const trmi_strategy *s = &of->strategies[choice->strategy[n]];
        double seconds = of->forward[choice->strategy[n]] + of->backward[choice->strategy[n]];
        char key[1024];
        bool can =
            can_measure(trmi_space_op(space, n)->kind) &&
            key_of(space->graph, trmi_space_op(space, n), &space->mesh, s, c, key, sizeof key);
        const trmi_op_cost_entry *e = can ? find_cost(c, key) : NULL;
        all += seconds;
        known += e != NULL && e->seconds.forward >= 0 ? seconds : 0;
    }
    return all > 0 ? known / all : 0;
}
