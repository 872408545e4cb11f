/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what a rank loses when it waits while other ranks use its core, for trmi_links.refill
 * and .handover.
 *
 *      refill     | reads its block, again |  all ranks meet  | reads its block |
 *                            warm              others run here      cold             cold - warm
 *      handover   a ring of messages between stages, each rank reads its block after each of them:
 *                 CPU seconds of the rank and of its communicator's thread, without the reading
 *
 * The block is as large as a core's own cache, so that a rank that shares its core finds none of
 * it after the others have read theirs. Only CPU seconds count: the ranks compute in the meantime.
 * Messages are small, because the copies of large ones have a price of their own (TRMI_MOVE_LOCAL).
 * Collective: all ranks call the same functions. */
#define _GNU_SOURCE
#include "exec/autoparallel/op_benchmark.h"

#include "comm/api/communicator.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Waits of a turn; turns, after one for warming up; bytes of a message; a rank's block is at most
 * 1/SHARE of its memory limit. */
enum { WAITS = 8, TURNS = 9, MESSAGE = 4096, SHARE = 8 };

/* A rank's block, and the two ends of its message. */
typedef struct waits {
    trm_comm *comm;
    char *block, *sent, *received;
    size_t bytes; /* of the block */
} waits;

/* Returns the CPU seconds of this rank: of its own thread and of its communicator's. */
static double read_rank_clock(const trm_comm *comm) {
    clockid_t behind;
    struct timespec t = {0};
    if (comm->thread_started && pthread_getcpuclockid(comm->thread, &behind) == 0) {
        clock_gettime(behind, &t);
    }
    return trmi_os_thread_now() + (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the block once, one load for each cache line. */
static void read_block(const waits *w) {
    volatile long kept = 0;
    long sum = 0;
    for (size_t i = 0; i < w->bytes; i += 64) {
        sum += w->block[i];
    }
    kept += sum;
    (void)kept;
}

/* Returns the CPU seconds of reading the block once while nothing else has run on this core. */
static double time_warm(const waits *w) {
    read_block(w);
    double begin = trmi_os_thread_now();
    for (int i = 0; i < WAITS; i++) {
        read_block(w);
    }
    return (trmi_os_thread_now() - begin) / WAITS;
}

/* Sets *seconds to those in which a rank reads its block after a meeting of all ranks, beyond those
 * of a warm block. */
static trm_status time_refill(const waits *w, double *seconds, trm_error *err) {
    double warm = time_warm(w), cold = 0;
    for (int i = 0; i < WAITS; i++) {
        TRMI_TRY(trm_comm_barrier(w->comm, err));
        double begin = trmi_os_thread_now();
        read_block(w);
        cold += trmi_os_thread_now() - begin;
    }
    *seconds = cold / WAITS - warm;
    return TRM_OK;
}

/* Starts this rank's end of a message of the ring. */
static trm_status start_message(const waits *w, bool receive, trm_request **out, trm_error *err) {
    const int32_t ranks = trm_comm_size(w->comm), rank = trm_comm_rank(w->comm);
    const trm_message message = {.receive = receive,
                                 .peer = (rank + (receive ? ranks - 1 : 1)) % ranks,
                                 .buffer = receive ? w->received : w->sent,
                                 .count = MESSAGE,
                                 .dtype = TRM_UINT8,
                                 .tag = "stages"};
    return trm_comm_start_exchange(w->comm, &message, 1, out, err);
}

/* Sets *seconds to those of one message, of its sender and its receiver together: each rank sends
 * to the next one, waits for the message of the one before, and reads its block. */
static trm_status time_message(const waits *w, double *seconds, trm_error *err) {
    double warm = time_warm(w);
    TRMI_TRY(trm_comm_barrier(w->comm, err));
    double begin = read_rank_clock(w->comm);
    for (int i = 0; i < WAITS; i++) {
        trm_request *sent = NULL, *received = NULL;
        trm_error later;
        TRMI_TRY(start_message(w, false, &sent, err));
        trm_status status = start_message(w, true, &received, err);
        status = status == TRM_OK ? trm_request_wait(received, -1, err) : status;
        read_block(w);
        trm_status ended = trm_request_wait(sent, -1, status == TRM_OK ? err : &later);
        TRMI_TRY(status == TRM_OK ? ended : status);
    }
    *seconds = (read_rank_clock(w->comm) - begin) / WAITS - warm;
    return TRM_OK;
}

/* Sets *seconds to the median over turns of the mean over ranks of what `time` finds; 0 where noise
 * makes it negative. */
static trm_status find_usual(const waits *w,
                             trm_status (*time)(const waits *, double *, trm_error *),
                             double *seconds, trm_error *err) {
    double times[TURNS], warm_up;
    for (int i = -1; i < TURNS; i++) {
        TRMI_TRY(time(w, i < 0 ? &warm_up : &times[i], err));
    }
    TRMI_TRY(trm_comm_allreduce(w->comm, times, TURNS, TRM_FLOAT64, TRM_REDUCTION_MEAN, err));
    const double usual = trmi_median(times, TURNS);
    *seconds = usual > 0 ? usual : 0;
    return TRM_OK;
}

/* Contract in op_benchmark.h. */
trm_status trmi_link_benchmark_waits(trmi_op_benchmark *probe, double *refill, double *handover,
                                     trm_error *err) {
    waits w = {.comm = probe->comm, .bytes = (size_t)trmi_cpu()->l2_bytes};
    if (probe->limit > 0 && w.bytes > (size_t)probe->limit / SHARE) {
        w.bytes = (size_t)probe->limit / SHARE;
    }
    double both = 0;
    w.block = trmi_alloc(w.bytes + 1);
    w.sent = trm_comm_alloc_shared(w.comm, (size_t)2 * MESSAGE, err);
    trm_status status = w.block != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "to measure waits");
    status = w.sent != NULL ? status : TRM_NOMEM;
    if (status == TRM_OK) {
        memset(w.block, 1, w.bytes); /* else all reads would hit the one shared zero page */
        w.received = w.sent + MESSAGE;
        status = find_usual(&w, time_refill, refill, err);
    }
    status = status == TRM_OK ? find_usual(&w, time_message, &both, err) : status;
    *handover = both / 2;
    if (w.sent != NULL) {
        trm_comm_free_shared(w.comm, w.sent);
    }
    trmi_free(w.block);
    return status;
}
