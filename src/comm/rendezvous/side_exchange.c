/* SPDX-License-Identifier: Apache-2.0 */
/* All-gather and barrier over the control channel. Rank 0 collects one exchange at a time; a
 * barrier is an exchange of 0 bytes.
 *
 *   GATHER(number, blob) from each rank -> blobs -> all arrived -> RESULT(number, all) to each rank
 *
 * Exchanges are numbered on each rank in the order of its calls, so equal numbers belong together.
 * All functions but the two at the end are called with the lock held. */
#include "comm/rendezvous/side.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

static const double say_seconds = 10; /* interval of log messages */

/* See side.h. Ignores the result of a call that has given up. */
void trmi_exchange_finish(trmi_side *side, int64_t id, const trm_error *result, const void *all,
                          size_t bytes) {
    trmi_exchange_state *exchange = &side->exchange;
    if (exchange->waiting_id != id || exchange->done) {
        return; /* it gave up, or never asked */
    }
    exchange->result = *result;
    if (result->status == TRM_OK) {
        /* The result must have the size of this rank's buffer. */
        if (bytes == (size_t)side->base.size * exchange->waiting_bytes) {
            memcpy(exchange->waiting_all, all, bytes);
        } else {
            TRMI_FAIL(&exchange->result, TRM_CORRUPT,
                      "control channel: exchange %lld brought %zu bytes, %zu expected",
                      (long long)id, bytes, (size_t)side->base.size * exchange->waiting_bytes);
        }
    }
    exchange->done = true;
    pthread_cond_broadcast(&side->changed);
}

/* Rank 0: sends the result to one rank, or (rank < 0) to all that have arrived, which ends the
 * exchange. */
static void send_result(trmi_side *side, int32_t rank, int64_t id, const trm_error *result) {
    uint8_t wire[256];
    trmi_exchange_state *exchange = &side->exchange;
    size_t bytes = (size_t)side->base.size * exchange->bytes;
    bool good = result->status == TRM_OK;
    trmi_error_encode(result, wire);
    /* Rank 0's own result needs no frame. */
    for (int32_t r = 0; r < side->base.size; r++) {
        if (rank >= 0 ? r != rank : !exchange->arrived[r]) {
            continue;
        }
        if (r == 0) {
            trmi_exchange_finish(side, id, result, exchange->blobs, bytes);
            continue;
        }
        trmi_link_put(&side->links[r], good ? TRMI_FRAME_RESULT : TRMI_FRAME_FAILED, id,
                      good ? exchange->blobs : wire, good ? bytes : sizeof wire);
        trmi_link_flush(&side->links[r]);
    }
    trmi_side_wake(side); /* the service thread sends the rest */
    if (rank < 0) {
        exchange->id = 0;
    }
}

/* Starts to collect exchange `id`. Returns false if there is no memory. */
static bool begin_exchange(trmi_side *side, int64_t id, size_t bytes) {
    trmi_exchange_state *exchange = &side->exchange;
    size_t total = (size_t)side->base.size * bytes;
    if (!trmi_grow((void **)&exchange->blobs, &exchange->capacity, (int64_t)total + 1, 1)) {
        return false;
    }
    exchange->id = id;
    exchange->bytes = bytes;
    exchange->count = 0;
    exchange->began_time = exchange->said_time = trmi_os_now();
    memset(exchange->arrived, 0, (size_t)side->base.size * sizeof *exchange->arrived);
    return true;
}

/* Fails the exchange if it waits for a rank that has left and can never arrive. Returns true if
 * so. */
static bool fail_for_gone(trmi_side *side) {
    trmi_exchange_state *exchange = &side->exchange;
    for (int32_t r = 1; exchange->id != 0 && r < side->base.size; r++) {
        if (!exchange->arrived[r] && (side->links[r].bye || side->links[r].fd < 0)) {
            trm_error result;
            char name[112];
            TRMI_FAIL(&result, TRM_PEER, "%s has left the job; exchange %lld waits for it",
                      trmi_side_name(side, r, name), (long long)exchange->id);
            result.rank = r;
            send_result(side, -1, exchange->id, &result);
            return true;
        }
    }
    return false;
}

/* Contract in side.h. Rank 0 only. Collects the blobs of one exchange, and sends all of them to
 * all ranks with the last one. Ranks in different exchanges, or with blobs of different sizes,
 * have made different calls: that is an error of the program, told to the rank that differs. */
void trmi_exchange_arrive(trmi_side *side, int32_t rank, int64_t id, const void *blob,
                          size_t bytes) {
    trmi_exchange_state *exchange = &side->exchange;
    trm_error result = {0};
    size_t total;
    /* The first blob of an exchange starts it and determines the size of all. */
    if (__builtin_mul_overflow(bytes, (size_t)side->base.size, &total) ||
        total > TRMI_FRAME_PAYLOAD_MAX || (exchange->id == 0 && !begin_exchange(side, id, bytes))) {
        TRMI_FAIL(&result, TRM_NOMEM, "exchange %lld: %zu bytes from each of %d ranks are too many",
                  (long long)id, bytes, side->base.size);
        send_result(side, rank, id, &result);
        return;
    }
    /* With another number this rank has made other calls than the rank that started the
     * exchange. */
    if (exchange->id != id) {
        TRMI_FAIL(&result, TRM_PEER, "rank %d is in exchange %lld, others are in %lld", rank,
                  (long long)id, (long long)exchange->id);
        send_result(side, rank, id, &result);
        return;
    }
    if (exchange->arrived[rank]) {
        return;
    }
    exchange->arrived[rank] = true;
    exchange->count++;
    if (bytes != exchange->bytes) {
        TRMI_FAIL(
            &result, TRM_INVALID,
            "exchange %lld: rank %d brings %zu bytes, others %zu; all must bring equally many",
            (long long)id, rank, bytes, exchange->bytes);
        send_result(side, -1, id, &result);
        return;
    }
    if (bytes > 0) {
        memcpy(exchange->blobs + (size_t)rank * bytes, blob, bytes);
    }
    /* The last blob ends the exchange; otherwise a missing rank may have left already. */
    if (exchange->count == side->base.size) {
        send_result(side, -1, id, &result);
    } else {
        fail_for_gone(side);
    }
}

/* Writes the ranks that have not arrived: "ranks 1, 3 of 4". */
static void list_missing(const trmi_side *side, char text[160]) {
    char list[96];
    trmi_missing_ranks(side->exchange.arrived, side->base.size, list);
    snprintf(text, 160, "rank%s %s of %d", side->exchange.count + 1 == side->base.size ? "" : "s",
             list, side->base.size);
}

void trmi_exchange_send_missing(trmi_side *side, int32_t rank, int64_t id) {
    char text[160] = "";
    if (side->exchange.id == id) {
        list_missing(side, text);
    }
    trmi_link_put(&side->links[rank], TRMI_FRAME_MISSING, id, text, strlen(text));
    trmi_link_flush(&side->links[rank]);
}

void trmi_exchange_left(trmi_side *side, int32_t rank) {
    if (side->base.rank == 0) {
        fail_for_gone(side);
        return;
    }
    if (side->exchange.waiting_id != 0 && !side->exchange.done) {
        trm_error result;
        char name[112];
        TRMI_FAIL(&result, TRM_PEER, "%s has left the job; exchange %lld waits for it",
                  trmi_side_name(side, rank, name), (long long)side->exchange.waiting_id);
        result.rank = rank;
        trmi_exchange_finish(side, side->exchange.waiting_id, &result, NULL, 0);
    }
}

void trmi_exchange_tick(trmi_side *side, double now) {
    trmi_exchange_state *exchange = &side->exchange;
    char text[160];
    if (side->base.rank != 0 || exchange->id == 0 || now - exchange->said_time < say_seconds) {
        return;
    }
    exchange->said_time = now;
    list_missing(side, text);
    trmi_log(TRM_LOG_WARN, "comm", "exchange %lld waited %.0f s for %s", (long long)exchange->id,
             now - exchange->began_time, text);
}

/* Returns whether the job has failed; needs no lock. */
static bool is_poisoned(const trmi_side *side) {
    return __atomic_load_n(&side->alarm, __ATOMIC_ACQUIRE) != 0;
}

/* Writes the missing ranks as rank 0 has them. Other ranks request them from rank 0 and wait up to
 * a second. */
static void ask_missing(trmi_side *side, int64_t id, char text[160]) {
    text[0] = '\0';
    if (side->base.rank == 0) {
        if (side->exchange.id == id) {
            list_missing(side, text);
        }
        return;
    }
    /* Request them from rank 0. Without a reply, the message has no ranks. */
    double deadline = trmi_os_now() + 1;
    side->exchange.missing_id = 0;
    trmi_link_put(&side->links[0], TRMI_FRAME_WHO, id, NULL, 0);
    trmi_link_flush(&side->links[0]);
    while (side->exchange.missing_id != id && !is_poisoned(side) && !side->exchange.done &&
           trmi_os_now() < deadline) {
        (void)trmi_os_wait(&side->changed, &side->lock, deadline);
    }
    if (side->exchange.missing_id == id) {
        memcpy(text, side->exchange.missing, 160);
    }
}

/* Waits for the end of this rank's call. At the deadline it returns TIMEOUT with the missing
 * ranks. */
static trm_status wait_for_result(trmi_side *side, int64_t id, double timeout_seconds,
                                  trm_error *err) {
    trmi_exchange_state *exchange = &side->exchange;
    double deadline = trmi_os_now() + timeout_seconds;
    while (!exchange->done && !is_poisoned(side)) {
        if (trmi_os_now() >= deadline) {
            char text[160];
            ask_missing(side, id, text);
            if (exchange->done || is_poisoned(side)) {
                break;
            }
            return TRMI_FAIL(err, TRM_TIMEOUT, "rank %d waited %.1f s for %s", side->base.rank,
                             timeout_seconds, text[0] ? text : "rank 0, which does not answer");
        }
        (void)trmi_os_wait(&side->changed, &side->lock, deadline);
    }
    const trm_error *result = exchange->done ? &exchange->result : &side->cause;
    if (result->status != TRM_OK && err != NULL) {
        *err = *result;
    }
    return (trm_status)result->status;
}

/* Contract in side.h. The call registers where its result goes, sends the blob to rank 0, and
 * waits; the service thread writes the result and wakes it. */
trm_status trmi_side_allgather(trm_bootstrap *bootstrap, const void *mine, size_t bytes, void *all,
                               double timeout_seconds, trm_error *err) {
    trmi_side *side = (trmi_side *)(void *)bootstrap;
    trmi_exchange_state *exchange = &side->exchange;
    size_t total;
    /* Limits, before anything is sent. */
    if (__builtin_mul_overflow(bytes, (size_t)bootstrap->size, &total) ||
        total > TRMI_FRAME_PAYLOAD_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%zu bytes from each of %d ranks; at most %d bytes together expected",
                         bytes, bootstrap->size, TRMI_FRAME_PAYLOAD_MAX);
    }
    pthread_mutex_lock(&side->lock);
    trm_status status = TRM_OK;
    if (is_poisoned(side)) {
        if (err != NULL) {
            *err = side->cause;
        }
        status = (trm_status)side->cause.status;
        goto done;
    }
    /* Register this rank's call, so that the service thread can end it. */
    int64_t id = ++side->last_id;
    exchange->waiting_id = id;
    exchange->waiting_bytes = bytes;
    exchange->waiting_all = all;
    exchange->done = false;
    /* Rank 0 collects in memory; other ranks send their blob. */
    if (bootstrap->rank == 0) {
        trmi_exchange_arrive(side, 0, id, mine, bytes);
    } else if (side->links[0].fd < 0 || side->links[0].bye) {
        trmi_exchange_left(side, 0);
    } else if (!trmi_link_put(&side->links[0], TRMI_FRAME_GATHER, id, mine, bytes)) {
        status = TRMI_NO_MEMORY(err, "to exchange %zu bytes", bytes);
    } else {
        trmi_link_flush(&side->links[0]);
        trmi_side_wake(side);
    }
    if (status == TRM_OK) {
        status = wait_for_result(side, id, timeout_seconds, err);
    }
    exchange->waiting_id = 0;
    exchange->waiting_all = NULL;
done:
    pthread_mutex_unlock(&side->lock);
    return status;
}

trm_status trmi_side_barrier(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err) {
    uint8_t nothing[1] = {0};
    return trmi_side_allgather(bootstrap, nothing, 0, nothing, timeout_seconds, err);
}
