/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of collectives (schedule.h): every schedule of all ranks, by every algorithm that
 * applies, is played in memory.
 *
 * Results are compared with brute force; no step may touch what another one of its round uses;
 * and rounds and elements must be those of the cost formulas (schedule_cost.c). */
#include "check.h"

#include "comm/schedule/schedule.h"

enum { MAX_RANKS = 17 };

typedef struct player {
    trmi_schedule schedule;
    int64_t *buffer[3]; /* send, recv, temp */
    int64_t length[3];
    int64_t at, sent, summed; /* next step; totals */
    int64_t counts[4][MAX_RANKS];
} player;

static player players[MAX_RANKS];

/* The elements that one rank has sent to another: [head, tail) are on their way. */
typedef struct wire {
    int64_t *data;
    int64_t capacity, head, tail;
} wire;
static wire wires[MAX_RANKS][MAX_RANKS];

static int64_t value_of(int rank, int64_t i) { return (rank + 1) * 1000003 + i * 7; }

static int64_t *range_of(player *p, trmi_schedule_place place, int64_t at, int64_t count,
                         const char *what) {
    if (at < 0 || count < 0 || at + count > p->length[place]) {
        fail_msg("%s: [%lld, %lld) outside buffer %d of %lld", what, (long long)at,
                 (long long)(at + count), place, (long long)p->length[place]);
    }
    return p->buffer[place] + at;
}

static void play_local(player *p, int round, const char *what) {
    for (; p->at < p->schedule.count; p->at++) {
        const trmi_schedule_step *s = &p->schedule.steps[p->at];
        if (s->round != round || s->kind == TRMI_SEND || s->kind == TRMI_RECEIVE) {
            return;
        }
        int64_t *to = range_of(p, s->to_place, s->to, s->count, what);
        if (s->kind == TRMI_COPY) {
            memmove(to, range_of(p, s->from_place, s->from, s->count, what), (size_t)s->count * 8);
            continue;
        }
        int vectors = s->sources > 0 ? s->sources : 1;
        for (int64_t i = 0; i < s->count; i++) {
            int64_t sum = s->sources > 0 ? 0 : to[i];
            for (int k = 0; k < vectors; k++) {
                sum += range_of(p, s->from_place, s->from + k * s->stride, s->count, what)[i];
            }
            to[i] = sum;
        }
        p->summed += s->count * (s->sources > 0 ? s->sources - 1 : 1);
    }
}

static bool do_cross(const trmi_schedule_step *a, const trmi_schedule_step *b) {
    trmi_schedule_place ap = a->kind == TRMI_SEND ? a->from_place : a->to_place;
    trmi_schedule_place bp = b->kind == TRMI_SEND ? b->from_place : b->to_place;
    int64_t x = a->kind == TRMI_SEND ? a->from : a->to, y = b->kind == TRMI_SEND ? b->from : b->to;
    bool one_writes = a->kind == TRMI_RECEIVE || b->kind == TRMI_RECEIVE;
    return one_writes && ap == bp && x < y + b->count && y < x + a->count;
}

static void send_round(int rank, int round, const char *what) {
    player *p = &players[rank];
    int64_t first = p->at;
    for (; p->at < p->schedule.count; p->at++) {
        const trmi_schedule_step *s = &p->schedule.steps[p->at];
        if (s->round != round || (s->kind != TRMI_SEND && s->kind != TRMI_RECEIVE)) {
            break;
        }
        for (int64_t k = first; k < p->at; k++) {
            if (do_cross(s, &p->schedule.steps[k])) {
                fail_msg("%s: rank %d round %d: steps %d and %d touch the same elements", what,
                         rank, round, (int)k, (int)p->at);
            }
        }
        if (s->kind == TRMI_SEND) {
            wire *w = &wires[rank][s->peer];
            assert_true(s->peer >= 0 && s->peer < MAX_RANKS && s->peer != rank);
            if (w->tail + s->count + 1 > w->capacity) {
                w->capacity = (w->tail + s->count + 1) * 2;
                w->data = realloc(w->data, (size_t)w->capacity * 8);
            }
            w->data[w->tail++] = s->count;
            memcpy(w->data + w->tail, range_of(p, s->from_place, s->from, s->count, what),
                   (size_t)s->count * 8);
            w->tail += s->count;
            p->sent += s->count;
        }
    }
    p->at = first;
}

static void receive_round(int rank, int round, const char *what) {
    player *p = &players[rank];
    for (; p->at < p->schedule.count; p->at++) {
        const trmi_schedule_step *s = &p->schedule.steps[p->at];
        if (s->round != round || (s->kind != TRMI_SEND && s->kind != TRMI_RECEIVE)) {
            return;
        }
        if (s->kind == TRMI_RECEIVE) {
            wire *w = &wires[s->peer][rank];
            if (w->head >= w->tail || w->data[w->head] != s->count) {
                fail_msg("%s: rank %d round %d expects %lld from rank %d, which sent %lld", what,
                         rank, round, (long long)s->count, s->peer,
                         w->head < w->tail ? (long long)w->data[w->head] : -1LL);
            }
            memcpy(range_of(p, s->to_place, s->to, s->count, what), w->data + w->head + 1,
                   (size_t)s->count * 8);
            w->head += 1 + s->count;
        }
    }
}

static int64_t vary_count(int64_t count, int r) { return r % 3 == 1 ? 0 : (count + r) / (r + 1); }
static int64_t pair_count(int64_t count, int from, int to) {
    return (from + 2 * to) % 3 == 2 ? 0 : count / (from + to + 1);
}

static void prepare_rank(int n, int rank, trmi_algorithm algorithm, trm_collective_kind kind,
                         int root, int64_t count, bool in_place, const char *what) {
    player *p = &players[rank];
    bool v = kind == TRM_ALLGATHERV || kind == TRM_REDUCE_SCATTERV, vv = kind == TRM_ALLTOALLV;
    bool full = kind == TRM_ALLREDUCE || kind == TRM_REDUCE || kind == TRM_BROADCAST;
    trmi_schedule_request request = {.algorithm = algorithm,
                                     .kind = kind,
                                     .rank = rank,
                                     .size = n,
                                     .root = root,
                                     .count = count,
                                     .piece_count = 300};
    int64_t total = 0, sent = 0, received = 0;
    for (int r = 0; r < n; r++) {
        p->counts[0][r] = v ? vary_count(count, r) : pair_count(count, rank, r);
        p->counts[1][r] = v ? total : sent;
        p->counts[2][r] = pair_count(count, r, rank);
        p->counts[3][r] = received;
        total += v ? p->counts[0][r] : count;
        sent += p->counts[0][r];
        received += p->counts[2][r];
    }
    request.total = full ? count : total;
    if (v) {
        request.counts = p->counts[0], request.offsets = p->counts[1];
        request.count = p->counts[0][rank];
    } else if (vv) {
        request.send_counts = p->counts[0], request.send_offsets = p->counts[1];
        request.recv_counts = p->counts[2], request.recv_offsets = p->counts[3];
    }
    trm_error err;
    CHECK_OK(trmi_schedule_make(&request, &p->schedule, &err), err);
    p->length[0] = p->length[1] = (vv ? sent + received : request.total) + 1;
    p->length[2] = p->schedule.temp_count;
    p->at = p->sent = p->summed = 0;
    for (int k = 0; k < 3; k++) {
        p->buffer[k] = malloc((size_t)p->length[k] * 8 + 8);
        for (int64_t i = 0; i < p->length[k]; i++) {
            p->buffer[k][i] = k == 0 ? value_of(rank, i) : -77777;
        }
    }
    if (in_place) {
        memcpy(p->buffer[1], p->buffer[0], (size_t)p->length[0] * 8);
        free(p->buffer[0]);
        p->buffer[0] = p->buffer[1];
    }
}

static int64_t total_value(int n, int64_t i) {
    int64_t sum = 0;
    for (int r = 0; r < n; r++) {
        sum += value_of(r, i);
    }
    return sum;
}

static void check_element(int rank, int64_t at, int64_t expected, const char *what) {
    int64_t got = players[rank].buffer[1][at];
    if (got != expected) {
        fail_msg("%s: rank %d element %lld is %lld, not %lld", what, rank, (long long)at,
                 (long long)got, (long long)expected);
    }
}

static void check_result(int n, int rank, trm_collective_kind kind, int root, int64_t count,
                         const char *what) {
    const player *p = &players[rank];
    int64_t mine = kind == TRM_REDUCE_SCATTERV ? p->counts[0][rank] : count, at = 0;
    int64_t start = kind == TRM_REDUCE_SCATTERV ? p->counts[1][rank] : rank * count;
    switch (kind) {
    case TRM_ALLREDUCE:
    case TRM_REDUCE:
        for (int64_t i = 0; i < count && (kind == TRM_ALLREDUCE || rank == root); i++) {
            check_element(rank, i, total_value(n, i), what);
        }
        break;
    case TRM_BROADCAST:
        for (int64_t i = 0; i < count; i++) {
            check_element(rank, i, value_of(root, i), what);
        }
        break;
    case TRM_REDUCE_SCATTER:
    case TRM_REDUCE_SCATTERV:
        for (int64_t i = 0; i < mine; i++) {
            check_element(rank, i, total_value(n, start + i), what);
        }
        break;
    case TRM_SCATTER:
        for (int64_t i = 0; i < count; i++) {
            check_element(rank, i, value_of(root, start + i), what);
        }
        break;
    default:
        for (int r = 0; r < n && (kind != TRM_GATHER || rank == root); r++) {
            int64_t length = kind == TRM_ALLGATHERV  ? p->counts[0][r]
                             : kind == TRM_ALLTOALLV ? p->counts[2][r]
                             : kind == TRM_BARRIER   ? 0
                                                     : count;
            int64_t from = kind == TRM_ALLTOALL    ? rank * count
                           : kind == TRM_ALLTOALLV ? players[r].counts[1][rank]
                                                   : 0;
            for (int64_t i = 0; i < length; i++) {
                check_element(rank, at++, value_of(r, from + i), what);
            }
        }
    }
}

static void check_cost(int n, trmi_algorithm algorithm, trm_collective_kind kind, int64_t count,
                       const char *what) {
    if (kind == TRM_ALLGATHERV || kind == TRM_REDUCE_SCATTERV || kind == TRM_ALLTOALLV) {
        return; /* the formulas are for equal blocks */
    }
    trmi_schedule_cost cost = trmi_schedule_predict(algorithm, kind, n, count, 300);
    double sent = 0, summed = 0;
    for (int r = 0; r < n; r++) {
        sent = players[r].sent > sent ? (double)players[r].sent : sent;
        summed = players[r].summed > summed ? (double)players[r].summed : summed;
        if (players[r].schedule.rounds != cost.rounds && n > 1) {
            fail_msg("%s: %d rounds, formula %d", what, players[r].schedule.rounds,
                     (int)cost.rounds);
        }
    }
    bool divided = kind == TRM_ALLREDUCE || kind == TRM_BROADCAST || kind == TRM_REDUCE;
    bool even = !divided || (count % n == 0 && (n & (n - 1)) == 0) || algorithm == TRMI_TREE ||
                algorithm == TRMI_PIPELINE;
    double slack = even ? 0 : 2 * n; /* the longer parts of an uneven division */
    if (n > 1 && (sent < cost.sent - slack - 0.5 || sent > cost.sent + slack + 0.5)) {
        fail_msg("%s: busiest rank sends %.0f elements, formula %.1f", what, sent, cost.sent);
    }
    if (n > 1 && (summed < cost.reduced - slack - 0.5 || summed > cost.reduced + slack + 0.5)) {
        fail_msg("%s: busiest rank sums %.0f elements, formula %.1f", what, summed, cost.reduced);
    }
}

static void play_schedule(int n, trmi_algorithm algorithm, trm_collective_kind kind, int64_t count,
                          bool in_place) {
    int root = (int)(count % n);
    char what[128];
    snprintf(what, sizeof what, "%s by %s, n = %d, count %lld, root %d%s",
             trm_collective_name(kind), trmi_algorithm_name(algorithm), n, (long long)count, root,
             in_place ? ", in place" : "");
    int rounds = 0;
    for (int r = 0; r < n; r++) {
        prepare_rank(n, r, algorithm, kind, root, count, in_place, what);
        rounds = players[r].schedule.rounds > rounds ? players[r].schedule.rounds : rounds;
    }
    for (int round = 0; round <= rounds; round++) {
        for (int r = 0; r < n; r++) {
            play_local(&players[r], round, what);
            send_round(r, round, what);
        }
        for (int r = 0; r < n; r++) {
            receive_round(r, round, what);
            play_local(&players[r], round, what);
        }
    }
    for (int r = 0; r < n; r++) {
        if (players[r].at != players[r].schedule.count) {
            fail_msg("%s: rank %d stopped at step %d of %d", what, r, (int)players[r].at,
                     (int)players[r].schedule.count);
        }
        check_result(n, r, kind, root, count, what);
    }
    check_cost(n, algorithm, kind, count, what);
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            if (wires[a][b].head != wires[a][b].tail) {
                fail_msg("%s: rank %d never received all from rank %d", what, b, a);
            }
            wires[a][b].head = wires[a][b].tail = 0;
        }
        free(players[a].buffer[1]);
        free(players[a].buffer[2]);
        if (!in_place) {
            free(players[a].buffer[0]);
        }
    }
}

static void every_schedule(void **state) {
    int played = 0;
    for (int n = 1; n <= MAX_RANKS; n++) {
        const int64_t counts[] = {0, 1, n - 1, n, n + 1, 1000, 1009};
        for (int kind = TRM_ALLREDUCE; kind <= TRM_BARRIER; kind++) {
            for (int algorithm = 1; algorithm < TRMI_ALGORITHMS; algorithm++) {
                if (!trmi_schedule_applies(algorithm, kind, n)) {
                    continue;
                }
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    bool in_place =
                        kind == TRM_ALLREDUCE || kind == TRM_BROADCAST || kind == TRM_REDUCE;
                    play_schedule(n, algorithm, kind, counts[c], false);
                    played++;
                    if (in_place) {
                        play_schedule(n, algorithm, kind, counts[c], true);
                    }
                }
            }
        }
    }
    for (int a = 0; a < MAX_RANKS; a++) {
        trmi_schedule_free(&players[a].schedule);
        for (int b = 0; b < MAX_RANKS; b++) {
            free(wires[a][b].data);
        }
    }
    print_message("%d schedules\n", played);
    assert_true(played > 2000);
}

static void what_does_not_apply(void **state) {
    trm_error err;
    trmi_schedule schedule = {0};
    trmi_schedule_request request = {.algorithm = TRMI_PAIRWISE, .kind = TRM_ALLREDUCE, .size = 4};
    CHECK_FAILS(trmi_schedule_make(&request, &schedule, &err), TRM_UNSUPPORTED, err, "pairwise");
    request = (trmi_schedule_request){.algorithm = TRMI_HALVING, .kind = TRM_ALLGATHER, .size = 6};
    CHECK_FAILS(trmi_schedule_make(&request, &schedule, &err), TRM_UNSUPPORTED, err, "halving");
}

static void algorithms_have_names(void **state) {
    assert_int_equal(trmi_algorithm_parse("ring", 4), TRMI_RING);
    assert_int_equal(trmi_algorithm_parse("H-D_R", 5), TRMI_HALVING);
    assert_int_equal(trmi_algorithm_parse("mesh", 4), TRMI_DIRECT);
    assert_int_equal(trmi_algorithm_parse("NHR", 3), TRMI_BRUCK);
    assert_int_equal(trmi_algorithm_parse("NA", 2), TRMI_ALGORITHM_AUTO);
    assert_int_equal(trmi_algorithm_parse("rings", 5), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule),
        cmocka_unit_test(what_does_not_apply),
        cmocka_unit_test(algorithms_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
