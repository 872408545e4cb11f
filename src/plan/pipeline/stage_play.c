/* SPDX-License-Identifier: Apache-2.0 */
/* Plays schedules of pipelines: each rank is a process that runs its actions in order and waits for
 * messages and for room to send.
 *
 *   check_rank   each rank alone: every forward and backward once, in order
 *   play_all     all together: ranks go on in turns until none can
 *                all actions done: ranks that meet begin the work after the last one together
 *                all done: end times of actions, most values in flight
 *                not all done: a deadlock, reported with the rank and what it waits for
 *
 * The outcome does not depend on the order in which ranks take turns, so ranks that wait for each
 * other here would do so in every run. The planner prices by the end times; the executor plays its
 * schedule once before a job begins.
 *
 * Where each rank has its own cores, an action ends a known time after it begins. Ranks that share
 * cores advance together: let_time_pass moves all that compute to the next moment at which one of
 * them begins or ends. */
#include "plan/pipeline/stage_schedule.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>

/* The messages of one edge. */
typedef struct edge_state {
    int32_t sent, asked, read; /* messages so far */
    int32_t waiting;           /* asked - read, at most */
    int32_t kept;              /* sent - asked, at most */
    double *arrives, *taken;   /* [micros] seconds of arrival; of the receiver's asking for it */
} edge_state;

/* Where one rank is in its actions. */
typedef struct rank_state {
    int32_t action; /* that is due; the number of all: the work after the last one */
    int32_t edge;   /* sends: next edge to look at; 0 with `begun` false: has not begun */
    bool begun;     /* the action that is due */
    /* the end of what the rank has done; with `left` the moment at which it begins to compute */
    double clock;
    /* seconds of work that are not done, as long as they take while all ranks compute; only where
     * ranks share cores */
    double left;
} rank_state;

/* The schedule, its messages, and the state of all ranks. */
typedef struct play {
    const trmi_pipeline *p;
    const trmi_pipeline_edge *edges;
    int32_t edges_count;
    trmi_pipeline_play *out;
    edge_state *state;
    rank_state *ranks;
    int32_t *order;      /* of all pairs of ranks, one after the other: edges of their messages */
    int32_t *begin, *at; /* [stages * stages]: where a pair's messages begin; next to ask for */
    double *times;       /* memory of arrives and taken */
    double now;          /* where ranks share cores: the time that all have reached */
    int32_t at_end;      /* ranks that have run all actions */
} play;

/* Returns the rank of a virtual stage. */
static int32_t rank_of(const play *w, int32_t virtual_stage) {
    return virtual_stage % w->p->stages;
}

int32_t trmi_pipeline_chain(const trmi_pipeline *p, trmi_pipeline_edge *out) {
    int32_t last = p->stages * p->chunks - 1, count = 0;
    for (int32_t v = 0; v < last; v++) {
        out[count++] = (trmi_pipeline_edge){.from = v, .to = v + 1};
        out[count++] = (trmi_pipeline_edge){
            .from = v + 1, .to = v, .from_backward = true, .to_backward = true};
    }
    return count;
}

/* Contract in stage_schedule.h. Sender and receiver list the messages between them in the order of
 * the sender's actions, so that both agree without names. */
int32_t trmi_pipeline_messages(const trmi_pipeline *p, const trmi_pipeline_edge *edges,
                               int32_t edges_count, int32_t from, int32_t to, int32_t *out) {
    int32_t count = 0;
    for (int32_t i = 0; i < p->count; i++) {
        const trmi_pipeline_action *a = &p->actions[from * p->count + i];
        for (int32_t e = 0; e < edges_count; e++) {
            if (trmi_pipeline_sends(&edges[e], a->chunk * p->stages + from, a->backward) &&
                edges[e].to % p->stages == to) {
                if (out != NULL) {
                    out[count] = e;
                }
                count++;
            }
        }
    }
    return count;
}

int32_t trmi_pipeline_slots(const trmi_pipeline *p, const trmi_pipeline_edge *edge, int32_t rank,
                            int32_t kept, int32_t waiting) {
    const bool sends = edge->from % p->stages == rank, receives = edge->to % p->stages == rank;
    int32_t most = sends && kept > 1 ? kept : 1;
    most = receives && waiting > most ? waiting : most;
    return sends || receives ? most : 0;
}

/* ---- each rank by itself --------------------------------------------------------------------- */

/* Checks that a rank runs each forward and each backward once, micro-batches of a chunk in order
 * and no backward before its forward; counts what is in flight. */
static trm_status check_rank(const trmi_pipeline *p, int32_t rank, int32_t *in_flight,
                             trm_error *err) {
    for (int32_t c = 0; c < p->chunks; c++) {
        int32_t done[2] = {0, 0}, most = 0;
        for (int32_t i = 0; i < p->count; i++) {
            const trmi_pipeline_action *a = &p->actions[rank * p->count + i];
            if (a->chunk != c) {
                continue;
            }
            /* Each direction must go in order, backward after forward. */
            if (a->micro != done[a->backward]++ || (a->backward && a->micro >= done[0])) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "schedule of rank %d: action %d is %s %d of chunk %d, after %d "
                                 "forwards and %d backwards of it",
                                 rank, i, a->backward ? "backward" : "forward", a->micro, c,
                                 done[0], done[1]);
            }
            /* A micro-batch is in flight when forward is done, and backward not yet. */
            most = done[0] - done[1] > most ? done[0] - done[1] : most;
        }
        if (done[0] != p->micros || done[1] != p->micros) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "schedule of rank %d: %d forwards and %d backwards of chunk %d "
                             "(expected %d)",
                             rank, done[0], done[1], c, p->micros);
        }
        in_flight[c * p->stages + rank] = most;
    }
    return TRM_OK;
}

/* ---- all together ---------------------------------------------------------------------------- */

/* Returns whether a rank sends another one any messages. */
static bool sends_any(const play *w, int32_t from, int32_t to) {
    for (int32_t e = 0; e < w->edges_count; e++) {
        if (rank_of(w, w->edges[e].from) == from && rank_of(w, w->edges[e].to) == to) {
            return true;
        }
    }
    return false;
}

/* Allocates the state of a play, and lists the messages between each pair of stages in their order.
 */
static trm_status take_memory(play *w, const int32_t *in_flight, trm_error *err) {
    int32_t pairs = w->p->stages * w->p->stages, total = 0;
    int64_t messages = (int64_t)w->edges_count * w->p->micros;
    TRMI_TRY(TRMI_NEW(err, w->state, w->edges_count + 1, "to play a schedule"));
    TRMI_TRY(TRMI_NEW(err, w->ranks, w->p->stages, "to play a schedule"));
    TRMI_TRY(TRMI_NEW(err, w->order, messages + 1, "to play a schedule"));
    TRMI_TRY(TRMI_NEW(err, w->begin, 2 * pairs, "to play a schedule"));
    TRMI_TRY(TRMI_NEW(err, w->times, 2 * messages + 1, "to play a schedule"));
    w->at = w->begin + pairs;
    for (int32_t i = 0; i < pairs; i++) {
        int32_t from = i / w->p->stages, to = i % w->p->stages;
        w->begin[i] = w->at[i] = total;
        total += sends_any(w, from, to) ? trmi_pipeline_messages(w->p, w->edges, w->edges_count,
                                                                 from, to, w->order + total)
                                        : 0;
    }
    for (int32_t e = 0; e < w->edges_count; e++) {
        w->state[e].arrives = w->times + 2 * (int64_t)e * w->p->micros;
        w->state[e].taken = w->state[e].arrives + w->p->micros;
        w->state[e].kept = in_flight[w->edges[e].from_backward ? w->edges[e].to : w->edges[e].from];
    }
    return TRM_OK;
}

/* Frees the state of a play. */
static void free_memory(play *w) {
    trmi_free(w->state);
    trmi_free(w->ranks);
    trmi_free(w->order);
    trmi_free(w->begin);
    trmi_free(w->times);
}

/* The receiver of edge `e` asks for its message `micro`, and for all that the sender sends before
 * it. */
static void ask_for(play *w, int32_t e, int32_t micro, double clock) {
    int32_t pair = rank_of(w, w->edges[e].from) * w->p->stages + rank_of(w, w->edges[e].to);
    while (w->state[e].asked <= micro) {
        edge_state *next = &w->state[w->order[w->at[pair]++]];
        next->taken[next->asked++] = clock;
        int32_t waiting = next->asked - next->read;
        next->waiting = waiting > next->waiting ? waiting : next->waiting;
    }
}

/* Lets a rank compute for `seconds` from its clock on. Where ranks share cores, let_time_pass does
 * the work. */
static void begin_work(play *w, rank_state *r, double seconds) {
    r->begun = true;
    if (w->out->crowding > 1) {
        r->left = seconds;
    } else {
        r->clock += seconds;
    }
}

/* Begins an action if its messages have been sent; returns whether it did. */
static bool begin_action(play *w, int32_t rank, const trmi_pipeline_action *a) {
    rank_state *r = &w->ranks[rank];
    int32_t v = a->chunk * w->p->stages + rank;
    bool there = true;
    /* ask for all messages that the action reads */
    for (int32_t e = 0; e < w->edges_count; e++) {
        if (trmi_pipeline_reads(&w->edges[e], v, a->backward)) {
            ask_for(w, e, a->micro, r->clock);
            there = there && w->state[e].sent > a->micro;
        }
    }
    /* All messages must be there before the first is taken, or the action would begin twice. */
    if (!there) {
        return false;
    }
    for (int32_t e = 0; e < w->edges_count; e++) {
        if (trmi_pipeline_reads(&w->edges[e], v, a->backward)) {
            r->clock = fmax(r->clock, w->state[e].arrives[a->micro]);
            w->state[e].read++;
        }
    }
    if (w->out->starts != NULL) {
        w->out->starts[rank * w->p->count + r->action] = r->clock;
    }
    /* without times a forward counts 1, a backward 2 */
    const double *seconds = a->backward ? w->out->backward : w->out->forward;
    r->edge = 0;
    begin_work(w, r, seconds != NULL ? seconds[v] : 1 + a->backward);
    return true;
}

/* Sends what an action has made; returns whether all is sent. */
static bool send_all(play *w, int32_t rank, const trmi_pipeline_action *a) {
    rank_state *r = &w->ranks[rank];
    int32_t v = a->chunk * w->p->stages + rank;
    for (; r->edge < w->edges_count; r->edge++) {
        const trmi_pipeline_edge *edge = &w->edges[r->edge];
        edge_state *s = &w->state[r->edge];
        if (!trmi_pipeline_sends(edge, v, a->backward)) {
            continue;
        }
        /* a message to another rank needs a free copy: the reader must have asked for the one that
         * is `kept` messages earlier */
        bool local = rank_of(w, edge->to) == rank;
        int32_t before = s->sent - s->kept;
        if (!local && before >= s->asked) {
            return false;
        }
        if (!local && before >= 0 && s->taken[before] > r->clock) {
            r->clock = s->taken[before];
        }
        s->arrives[s->sent++] = r->clock + edge->seconds;
        if (local) {
            ask_for(w, r->edge, s->sent - 1, r->clock);
        }
    }
    return true;
}

/* Runs a rank as far as it gets; returns whether it got further. */
static bool advance_rank(play *w, int32_t rank) {
    rank_state *r = &w->ranks[rank];
    bool moved = false;
    while (r->action < w->p->count) {
        const trmi_pipeline_action *a = &w->p->actions[rank * w->p->count + r->action];
        /* Start the next action, or the rest of its messages. */
        if (!r->begun) {
            if (!begin_action(w, rank, a)) {
                return moved;
            }
            moved = true;
        }
        if (r->left > 0) {
            return moved;
        }
        if (w->out->ends != NULL && r->edge == 0) {
            w->out->ends[rank * w->p->count + r->action] = r->clock;
        }
        int32_t before = r->edge;
        bool all = send_all(w, rank, a);
        moved = moved || r->edge > before;
        if (!all) {
            return moved;
        }
        r->begun = false;
        moved = true;
        if (++r->action == w->p->count) {
            w->at_end++;
            w->out->met = fmax(w->out->met, r->clock + TRMI_MEETINGS_BEFORE * w->out->meeting);
        }
    }
    if (!r->begun && (!w->out->meets || w->at_end == w->p->stages)) {
        r->clock = w->out->meets ? w->out->met : r->clock;
        begin_work(w, r, w->out->after != NULL ? w->out->after[rank] : 0);
        moved = true;
    }
    return moved;
}

/* Lets the ranks that compute work until one of them ends or another one begins; returns false if
 * none has work. The cores of ranks that wait serve the others. */
static bool let_time_pass(play *w) {
    double begins = INFINITY, ends = INFINITY;
    int32_t computing = 0;
    for (int32_t i = 0; i < w->p->stages; i++) {
        const rank_state *r = &w->ranks[i];
        if (r->left > 0 && r->clock > w->now) {
            begins = fmin(begins, r->clock);
        } else if (r->left > 0) {
            ends = fmin(ends, r->left);
            computing++;
        }
    }
    if (computing == 0 && begins == INFINITY) {
        return false;
    }
    /* how much faster those compute than if all ranks did (trmi_pipeline_play.crowding) */
    double rate = fmin(w->out->crowding, w->p->stages / fmax(1, computing));
    double until = fmin(begins, w->now + ends / rate), done = (until - w->now) * rate;
    for (int32_t i = 0; i < w->p->stages; i++) {
        rank_state *r = &w->ranks[i];
        if (r->left > 0 && r->clock <= w->now) {
            /* Those with the least work end exactly now, whatever rounding leaves of it. */
            bool over = r->left <= done || (r->left == ends && until < begins);
            r->left = over ? 0 : r->left - done;
            r->clock = over ? until : r->clock;
        }
    }
    w->now = until;
    return true;
}

/* Plays the schedules of all ranks until none can go on. A rank that has actions left then waits
 * for a message that never comes: the schedule has a deadlock. */
static trm_status play_all(play *w, trm_error *err) {
    w->out->met = 0;
    do {
        for (bool moved = true; moved;) {
            moved = false;
            for (int32_t r = 0; r < w->p->stages; r++) {
                moved = advance_rank(w, r) || moved;
            }
        }
    } while (let_time_pass(w));
    double last = 0, behind = 0, apart = 0; /* apart: without meetings */
    for (int32_t r = 0; r < w->p->stages; r++) {
        const rank_state *s = &w->ranks[r];
        if (s->action < w->p->count) {
            const trmi_pipeline_action *a = &w->p->actions[r * w->p->count + s->action];
            return TRMI_FAIL(err, TRM_INVALID,
                             "schedule %s of %d stages and %d micro-batches: ranks wait for each "
                             "other; rank %d waits in %s %d of chunk %d",
                             trmi_pipeline_order_name(w->p->order), w->p->stages, w->p->micros, r,
                             a->backward ? "backward" : "forward", a->micro, a->chunk);
        }
        double own = w->out->behind != NULL ? w->out->behind[r] : 0;
        last = fmax(last, s->clock);
        behind = fmax(behind, own);
        apart = fmax(apart, s->clock + own);
        if (w->out->done != NULL) {
            w->out->done[r] = s->clock;
        }
    }
    w->out->seconds = w->out->meets ? last + TRMI_MEETINGS_AFTER * w->out->meeting + behind : apart;
    for (int32_t e = 0; e < w->edges_count; e++) {
        if (w->out->waiting != NULL) {
            w->out->waiting[e] = w->state[e].waiting;
        }
        if (w->out->kept != NULL) {
            w->out->kept[e] = w->state[e].kept;
        }
    }
    return TRM_OK;
}

/* Contract in stage_schedule.h. Each rank's actions are checked first: the play would only hang on
 * an action that is missing. */
trm_status trmi_pipeline_run(const trmi_pipeline *p, const trmi_pipeline_edge *edges,
                             int32_t edges_count, trmi_pipeline_play *out, trm_error *err) {
    int32_t own[TRMI_VIRTUAL_STAGES_MAX];
    int32_t *in_flight = out->in_flight != NULL ? out->in_flight : own;
    for (int32_t r = 0; r < p->stages; r++) {
        TRMI_TRY(check_rank(p, r, in_flight, err));
    }
    play w = {.p = p, .edges = edges, .edges_count = edges_count, .out = out};
    trm_status status = take_memory(&w, in_flight, err);
    status = status == TRM_OK ? play_all(&w, err) : status;
    free_memory(&w);
    return status;
}
