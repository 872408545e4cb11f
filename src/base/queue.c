/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue between threads (base/queue.h): a ring of slots under one mutex, with a condition
 * for "not full" and one for "not empty".
 *
 *             head                 head + count
 *               |                       |
 *               v                       v
 *     +----+----+----+----+----+----+----+----+
 *     |    |    | a  | b  | c  | d  | e  |    |   slots[capacity]; positions modulo capacity
 *     +----+----+----+----+----+----+----+----+
 *               pop takes a             push writes here
 *
 * A push waits for room; an append never waits, and has room that was reserved. A close refuses
 * further items, and wakes all that wait; what is in the queue can still be taken. Items belong to
 * the caller before and after: a queue that is destroyed with items in it frees none of them.
 * Deadlines use the monotonic clock. */
#include "base/queue.h"

#include "base/memory.h"
#include "base/os.h"

#include <pthread.h>

/* The queue. */
struct trmi_queue {
    pthread_mutex_t mutex;              /* protects all members below */
    pthread_cond_t not_full, not_empty; /* signalled by a pop, by a push; both by a close */
    int64_t capacity, count;            /* of slots (a reserve adds some); of items */
    int64_t head;                       /* slot of the oldest item */
    bool closed;                        /* pushes are refused; pops go on until it is empty */
    void **slots;                       /* [capacity], a ring; the items belong to the caller */
};

/* Contract in queue.h. The conditions use the monotonic clock, so that setting the time of day does
 * not end a wait. */
trm_status trmi_queue_create(int64_t capacity, trmi_queue **out, trm_error *err) {
    trmi_queue *queue = trmi_alloc(sizeof *queue);
    void **slots = trmi_alloc((size_t)capacity * sizeof *slots);
    if (queue == NULL || slots == NULL) {
        trmi_free(queue);
        trmi_free(slots);
        return TRMI_NO_MEMORY(err, "for a queue of %lld", (long long)capacity);
    }
    queue->capacity = capacity;
    queue->slots = slots;
    pthread_mutex_init(&queue->mutex, NULL);
    trmi_os_make_condition(&queue->not_full);
    trmi_os_make_condition(&queue->not_empty);
    *out = queue;
    return TRM_OK;
}

void trmi_queue_destroy(trmi_queue *queue) {
    if (queue == NULL) {
        return;
    }
    pthread_cond_destroy(&queue->not_full);
    pthread_cond_destroy(&queue->not_empty);
    pthread_mutex_destroy(&queue->mutex);
    trmi_free(queue->slots);
    trmi_free(queue);
}

/* Adds an item; the lock is held and there is room. */
static trm_status put_item(trmi_queue *queue, void *item) {
    if (queue->closed) {
        return TRM_CANCELLED;
    }
    queue->slots[(queue->head + queue->count) % queue->capacity] = item;
    queue->count++;
    pthread_cond_signal(&queue->not_empty);
    return TRM_OK;
}

trm_status trmi_queue_push(trmi_queue *queue, void *item) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == queue->capacity && !queue->closed) {
        pthread_cond_wait(&queue->not_full, &queue->mutex);
    }
    trm_status status = put_item(queue, item);
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* Makes the ring at least twice as large, so that many reserves copy it rarely. */
trm_status trmi_queue_reserve(trmi_queue *queue, int64_t items) {
    pthread_mutex_lock(&queue->mutex);
    trm_status status = TRM_OK;
    if (items > queue->capacity) {
        int64_t capacity = items > 2 * queue->capacity ? items : 2 * queue->capacity;
        void **slots = trmi_alloc((size_t)capacity * sizeof *slots);
        for (int64_t i = 0; slots != NULL && i < queue->count; i++) {
            slots[i] = queue->slots[(queue->head + i) % queue->capacity];
        }
        if (slots != NULL) {
            trmi_free(queue->slots);
            queue->slots = slots;
            queue->capacity = capacity;
            queue->head = 0;
            pthread_cond_broadcast(&queue->not_full);
        } else {
            status = TRM_NOMEM;
        }
    }
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

trm_status trmi_queue_append(trmi_queue *queue, void *item) {
    pthread_mutex_lock(&queue->mutex);
    trm_status status = queue->count < queue->capacity ? put_item(queue, item) : TRM_NOMEM;
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* Contract in queue.h. A closed queue still hands out what is in it. */
trm_status trmi_queue_pop(trmi_queue *queue, double timeout_seconds, void **item) {
    const double deadline = trmi_os_now() + timeout_seconds;
    trm_status status = TRM_OK;
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == 0 && !queue->closed && status == TRM_OK) {
        if (timeout_seconds < 0) {
            pthread_cond_wait(&queue->not_empty, &queue->mutex);
        } else if (!trmi_os_wait(&queue->not_empty, &queue->mutex, deadline)) {
            status = TRM_TIMEOUT;
        }
    }
    /* an item counts even if the deadline has passed; otherwise the queue is closed and empty, or
     * it is a timeout */
    if (queue->count > 0) {
        *item = queue->slots[queue->head];
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
        pthread_cond_signal(&queue->not_full);
        status = TRM_OK;
    } else if (status == TRM_OK) {
        status = TRM_END;
    }
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

void trmi_queue_close(trmi_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    queue->closed = true;
    pthread_cond_broadcast(&queue->not_full);
    pthread_cond_broadcast(&queue->not_empty);
    pthread_mutex_unlock(&queue->mutex);
}
