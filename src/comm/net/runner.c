/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter of schedules. A schedule's steps are in rounds; each round is
 *
 *   start all sends and receives -> move them until all are done -> reduce and copy, in order
 *
 * While the transfers move, a received vector is already added in pieces (add_arrived), so that the
 * sum of a ring step overlaps with its transfer. */
#include "comm/net/runner.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* longest sleep between checks; time to wait for a better explanation of a lost peer */
static const double slice_seconds = 0.05, grace_seconds = 0.5;
/* received vectors are added in pieces of this size, which are still in the cache */
enum { STREAM_BYTES = 1 << 17 };

trm_status trmi_runner_init(trmi_runner *runner, trmi_transport *transport, trm_error *err) {
    size_t n = (size_t)transport->group.size;
    *runner = (trmi_runner){.transport = transport};
    runner->missing = trmi_alloc(n * sizeof *runner->missing);
    runner->steps_out = trmi_alloc(n * sizeof *runner->steps_out);
    runner->steps_in = trmi_alloc(n * sizeof *runner->steps_in);
    runner->sources = trmi_alloc((n + 1) * sizeof *runner->sources);
    if (runner->missing == NULL || runner->steps_out == NULL || runner->steps_in == NULL ||
        runner->sources == NULL) {
        trmi_runner_free(runner);
        return TRMI_NO_MEMORY(err, "to play schedules of %zu ranks", n);
    }
    return TRM_OK;
}

void trmi_runner_free(trmi_runner *runner) {
    free(runner->transfers);
    trmi_free(runner->temp);
    trmi_free(runner->missing);
    trmi_free(runner->steps_out);
    trmi_free(runner->steps_in);
    trmi_free(runner->sources);
    *runner = (trmi_runner){0};
}

/* Returns the address of element `at` of one of the schedule's three buffers. */
static char *place_of(const trmi_runner *runner, const trmi_play *play, trmi_schedule_place place,
                      int64_t at) {
    char *base = place == TRMI_SEND_BUFFER   ? (char *)(uintptr_t)play->send
                 : place == TRMI_RECV_BUFFER ? play->recv
                                             : runner->temp;
    return base + at * (int64_t)trm_dtype_bytes(play->dtype);
}

/* --- local steps --- */

/* Does elements [from, to) of a reduce step with one source. */
static void add_part(trmi_runner *runner, const trmi_play *play, const trmi_schedule_step *s,
                     int64_t from, int64_t to) {
    if (from >= to) {
        return;
    }
    void *target = place_of(runner, play, s->to_place, s->to + from);
    const void *sources[2] = {target, place_of(runner, play, s->from_place, s->from + from)};
    trmi_reduce_find(play->dtype, play->reduce)(&target, 1, sources, 2, to - from, 1);
}

/* Does a copy or reduce step. The first `already` elements of a reduce step with one source are
 * done. */
static void run_local(trmi_runner *runner, const trmi_play *play, const trmi_schedule_step *s,
                      int64_t already) {
    char *to = place_of(runner, play, s->to_place, s->to);
    if (s->kind == TRMI_COPY) {
        const char *from = place_of(runner, play, s->from_place, s->from);
        if (from != to) {
            memmove(to, from, (size_t)s->count * trm_dtype_bytes(play->dtype));
        }
    } else if (s->sources == 0) {
        add_part(runner, play, s, already, s->count);
    } else {
        for (int32_t k = 0; k < s->sources; k++) {
            runner->sources[k] = place_of(runner, play, s->from_place, s->from + k * s->stride);
        }
        void *target = to;
        trmi_reduce_find(play->dtype, play->final_reduce)(&target, 1, runner->sources, s->sources,
                                                          s->count, play->divisor);
    }
}

/* --- errors and waiting --- */

/* Contract in runner.h. A frame that arrived in place of the expected one shows that ranks disagree
 * or that a frame was lost; otherwise the cause remains that of the transport. */
trm_status trmi_runner_explain(trmi_transport *transport, trm_status status,
                               const trmi_engine_call *op, trm_error *cause, trm_error *err) {
    const trmi_group *group = &transport->group;
    const trmi_net_transfer *expected = transport->expected;
    /* A frame with an unexpected tag: the ranks run different operations, or a frame was lost. */
    if (status == TRM_INVALID && expected != NULL && transport->culprit >= 0) {
        const trmi_tag *found = &transport->found;
        bool message = expected->channel == TRMI_CHANNEL_MESSAGE;
        if (!message && op != NULL &&
            (found->signature[0] != op->signature[0] || found->signature[1] != op->signature[1])) {
            return trmi_op_mismatch(group, op, transport->culprit, found->sequence,
                                    found->signature, err);
        }
        if (message && found->sequence == expected->tag.sequence) {
            TRMI_FAIL(cause, TRM_INVALID,
                      "ranks disagree: rank %d sends %llu bytes of %s, rank %d "
                      "expects %llu bytes of %s",
                      group->members[transport->culprit],
                      (unsigned long long)transport->found_bytes,
                      trm_dtype_name((trm_dtype)found->signature[0]), group->members[group->rank],
                      (unsigned long long)expected->bytes,
                      trm_dtype_name((trm_dtype)expected->tag.signature[0]));
        } else {
            TRMI_FAIL(cause, TRM_CORRUPT,
                      "rank %d expected frame %llu.%llu of %llu bytes from rank "
                      "%d and got %llu.%llu of %llu: lost, repeated or out of order",
                      group->members[group->rank], (unsigned long long)expected->tag.sequence,
                      (unsigned long long)expected->tag.step, (unsigned long long)expected->bytes,
                      group->members[transport->culprit], (unsigned long long)found->sequence,
                      (unsigned long long)found->step, (unsigned long long)transport->found_bytes);
        }
    }
    /* the launcher may report the cause, for instance a signal: wait for it */
    if (cause->status == TRM_PEER) {
        double start = trmi_os_now();
        while (trmi_bootstrap_healthy(group->bootstrap) && trmi_os_now() - start < grace_seconds &&
               group->bootstrap->table->check(group->bootstrap, NULL) == TRM_OK) {
            struct timespec pause = {.tv_nsec = 10000000};
            nanosleep(&pause, NULL);
        }
        cause->rank = transport->culprit >= 0 ? group->members[transport->culprit] : -1;
    }
    status = trmi_group_poison(group, cause, err);
    if (op != NULL && err != NULL) {
        char what[112];
        trmi_op_format(op, what, sizeof what);
        if (strstr(err->message, what) == NULL) {
            trmi_error_append(err, "; rank %d was in %s", group->members[group->rank], what);
        }
    }
    return status;
}

/* Checks a wait for `count` transfers: failure of the job, deadline, report. */
static trm_status check_wait(trmi_runner *runner, const trmi_play *play, int64_t count,
                             trmi_wait *wait, trm_error *err) {
    const trmi_group *group = &runner->transport->group;
    memset(runner->missing, 0, (size_t)group->size * sizeof(bool));
    for (int64_t i = 0; i < count; i++) {
        const trmi_net_transfer *t = &runner->transfers[i];
        runner->missing[t->peer] |= !t->done;
    }
    char what[112];
    return trmi_wait_check(wait, group, runner->missing,
                           trmi_op_format(play->op, what, sizeof what), err);
}

/* --- one round --- */

/* Returns whether a step needs no transport. */
static bool is_local(const trmi_schedule_step *s) {
    return s->kind == TRMI_REDUCE || s->kind == TRMI_COPY;
}

/* Starts the `count` transfers of a round. All of them are filled in before the first is started,
 * because the array must not move while the transport has pointers into it. */
static trm_status start_transfers(trmi_runner *runner, const trmi_play *play,
                                  const trmi_schedule_step *steps, int64_t count, trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, runner->transfers, runner->transfer_capacity, count,
                       "for %lld transfers", (long long)count));
    uint64_t element = trm_dtype_bytes(play->dtype);
    /* A number for each peer and direction, in the order of the steps, detects a lost frame. */
    for (int64_t i = 0; i < count; i++) {
        const trmi_schedule_step *s = &steps[i];
        bool receive = s->kind == TRMI_RECEIVE;
        int32_t peer = play->ranks != NULL ? play->ranks[s->peer] : s->peer;
        uint64_t *number = receive ? &runner->steps_in[peer] : &runner->steps_out[peer];
        runner->transfers[i] = (trmi_net_transfer){
            .receive = receive,
            .peer = peer,
            .channel = TRMI_CHANNEL_COLLECTIVE,
            .data = receive ? place_of(runner, play, s->to_place, s->to)
                            : place_of(runner, play, s->from_place, s->from),
            .bytes = (uint64_t)s->count * element,
            .tag = {.sequence = play->op->sequence,
                    .signature = {play->op->signature[0], play->op->signature[1]},
                    .step = play->part << 24 | (*number)++},
        };
    }
    for (int64_t i = 0; i < count; i++) {
        TRMI_TRY(runner->transport->table->start(runner->transport, &runner->transfers[i], err));
    }
    return TRM_OK;
}

/* Adds the arrived part of a vector that the first local step of the round adds (reduce steps with
 * one source follow their receives in the same order). The first *first_done elements are already
 * added; a new part is added when it has STREAM_BYTES or is the last. */
static void add_arrived(trmi_runner *runner, const trmi_play *play, const trmi_schedule_step *steps,
                        int64_t transfers, const trmi_schedule_step *local, int64_t local_count,
                        int64_t *first_done) {
    int64_t element = (int64_t)trm_dtype_bytes(play->dtype);
    if (local_count == 0 || local->kind != TRMI_REDUCE || local->sources != 0) {
        return;
    }
    for (int64_t i = 0; i < transfers; i++) {
        const trmi_schedule_step *s = &steps[i];
        if (s->kind == TRMI_RECEIVE && s->to_place == local->from_place && s->to == local->from &&
            s->count == local->count) {
            int64_t have = (int64_t)runner->transfers[i].moved / element;
            if (runner->transfers[i].done || (have - *first_done) * element >= STREAM_BYTES) {
                add_part(runner, play, local, *first_done, have);
                *first_done = have;
            }
            return;
        }
    }
}

/* Moves the round's `count` transfers until all are done. Polls for spin_seconds after the last
 * movement, then sleeps in the transport; checks for failure and deadline every 50 ms. */
static trm_status finish_transfers(trmi_runner *runner, const trmi_play *play,
                                   const trmi_schedule_step *steps, int64_t count,
                                   const trmi_schedule_step *local, int64_t local_count,
                                   int64_t *first_done, trm_error *err) {
    trmi_transport *transport = runner->transport;
    trmi_wait wait = {.start = trmi_os_now()};
    double sleep_time = 0, check_time = wait.start + slice_seconds;
    int64_t done = 0;
    for (;;) {
        bool moved = false;
        trm_error cause = {.status = TRM_OK};
        trm_status status = transport->table->progress(transport, &moved, &cause);
        if (status != TRM_OK) {
            return trmi_runner_explain(transport, status, play->op, &cause, err);
        }
        /* Add what has come. */
        if (moved) {
            sleep_time = 0;
            add_arrived(runner, play, steps, count, local, local_count, first_done);
        }
        /* Transfers end in any order: `done` counts the first ones that have ended. */
        while (done < count && runner->transfers[done].done) {
            done++;
        }
        if (done == count) {
            if (!play->background) {
                trmi_bootstrap_add_waited(transport->group.bootstrap, trmi_os_now() - wait.start);
            }
            return TRM_OK;
        }
        /* Poll, then sleep. */
        double now = trmi_os_now();
        if (!moved) {
            if (sleep_time == 0) {
                sleep_time = now + (play->background ? 0 : runner->spin_seconds);
            } else if (now >= sleep_time) {
                transport->table->wait(transport, slice_seconds);
                now = trmi_os_now();
            }
        }
        /* Checks. */
        if (now >= check_time || !trmi_bootstrap_healthy(transport->group.bootstrap)) {
            check_time = now + slice_seconds;
            TRMI_TRY(check_wait(runner, play, count, &wait, err));
        }
    }
}

/* First the temporary buffer, which grows to the largest schedule; then round by round. */
trm_status trmi_runner_play(trmi_runner *runner, const trmi_play *play, trm_error *err) {
    const trmi_schedule *schedule = play->schedule;
    size_t bytes = (size_t)schedule->temp_count * trm_dtype_bytes(play->dtype);
    if (bytes > runner->temp_bytes) {
        trmi_free(runner->temp);
        runner->temp_bytes = 0;
        runner->temp = trmi_alloc(bytes);
        if (runner->temp == NULL) {
            trm_error cause;
            TRMI_FAIL(&cause, TRM_NOMEM, "rank %d has no memory for %zu bytes of partial results",
                      runner->transport->group.members[runner->transport->group.rank], bytes);
            return trmi_group_poison(&runner->transport->group, &cause, err);
        }
        runner->temp_bytes = bytes;
    }
    size_t n = (size_t)runner->transport->group.size;
    memset(runner->steps_out, 0, n * sizeof *runner->steps_out);
    memset(runner->steps_in, 0, n * sizeof *runner->steps_in);
    for (int64_t at = 0; at < schedule->count;) {
        const trmi_schedule_step *s = &schedule->steps[at];
        if (is_local(s)) {
            run_local(runner, play, s, 0);
            at++;
            continue;
        }
        /* The transfers of the round are steps [at, end), its local steps [end, after). */
        int64_t end = at, after;
        while (end < schedule->count && !is_local(&schedule->steps[end]) &&
               schedule->steps[end].round == s->round) {
            end++;
        }
        for (after = end; after < schedule->count && is_local(&schedule->steps[after]) &&
                          schedule->steps[after].round == s->round;) {
            after++;
        }
        int64_t first_done = 0;
        TRMI_TRY(start_transfers(runner, play, s, end - at, err));
        TRMI_TRY(finish_transfers(runner, play, s, end - at, &schedule->steps[end], after - end,
                                  &first_done, err));
        for (int64_t i = end; i < after; i++) {
            run_local(runner, play, &schedule->steps[i], i == end ? first_done : 0);
        }
        at = after;
    }
    return TRM_OK;
}
