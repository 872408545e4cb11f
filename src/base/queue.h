/* SPDX-License-Identifier: Apache-2.0 */
/* base/queue.h: a bounded queue of pointers between threads, first in, first out.
 *
 *      producers --push--> [ slot | slot | ... ] --pop--> consumers
 *                       close(): no more pushes; pops drain the queue, then return TRM_END */
#ifndef TRMI_BASE_QUEUE_H
#define TRMI_BASE_QUEUE_H

#include "trireme/base.h"

typedef struct trmi_queue trmi_queue;

/* Creates a queue for `capacity` items.   owns  caller.   errors  NOMEM */
trm_status trmi_queue_create(int64_t capacity, trmi_queue **out, trm_error *err);
/* Frees the queue; no thread may use it any more. */
void trmi_queue_destroy(trmi_queue *queue);
/* Adds an item; waits while the queue is full.
 *   errors  CANCELLED: closed; the caller keeps the item */
trm_status trmi_queue_push(trmi_queue *queue, void *item);
/* Makes room for so many items, so that an append finds room as long as no more are in the queue.
 *   errors  NOMEM */
trm_status trmi_queue_reserve(trmi_queue *queue, int64_t items);
/* Adds an item without waiting. For producers that may hold something that the consumer waits for,
 * and that have made room (reserve).   errors  CANCELLED; NOMEM: the queue is full */
trm_status trmi_queue_append(trmi_queue *queue, void *item);
/* Removes the oldest item; waits while the queue is empty. timeout_seconds < 0: without limit.
 *   errors  END (closed and empty), TIMEOUT */
trm_status trmi_queue_pop(trmi_queue *queue, double timeout_seconds, void **item);
/* Closes the queue and wakes all waiting threads. */
void trmi_queue_close(trmi_queue *queue);

#endif
