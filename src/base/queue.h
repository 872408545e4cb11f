/* SPDX-License-Identifier: Apache-2.0 */
/* base/queue.h: a bounded hand-off of pointers between threads, first in, first out.
 *
 *      producers --push--> [ slot | slot | ... ] --pop--> consumers
 *                       close(): no more pushes; pops drain, then say TRM_END
 */
#ifndef TRMI_BASE_QUEUE_H
#define TRMI_BASE_QUEUE_H

#include "trireme/base.h"

typedef struct trmi_queue trmi_queue;

trm_status trmi_queue_create(int64_t capacity, trmi_queue **out, trm_error *err);
void trmi_queue_destroy(trmi_queue *queue); /* after all threads have left */
/* Waits while full. TRM_CANCELLED once closed (the item stays the caller's). */
trm_status trmi_queue_push(trmi_queue *queue, void *item);
/* Never waits: a full queue grows. For whoever may hold what its consumer waits for.   errors as push; NOMEM
 */
trm_status trmi_queue_append(trmi_queue *queue, void *item);
/* Waits while empty. TRM_END once closed and drained. timeout_seconds < 0 waits for ever,
 * otherwise TRM_TIMEOUT. */
trm_status trmi_queue_pop(trmi_queue *queue, double timeout_seconds, void **item);
void trmi_queue_close(trmi_queue *queue);

#endif
