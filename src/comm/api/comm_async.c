/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous operations: a queue and one progress thread, which the first start creates.
 *
 *   caller   start: request -> queue, pending++        wait: until request->done
 *   thread   moves message requests from the head of the queue to the list of active ones, which
 *            progress together; runs a collective when that list is empty; a finished request:
 *            done = 1, wake the caller, pending--
 *
 * The thread blocks all signals, ends in trmi_comm_stop_thread, and is the only one that touches
 * the engines while `pending` > 0. */
#include "comm/api/communicator.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/futex.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Reports a request as done. `pending` falls before `done` is set: a caller that sees `done` may
 * use the engines itself. */
static void complete_request(trm_comm *comm, trm_request *request, trm_status status) {
    request->status = status;
    atomic_fetch_sub_explicit(&comm->pending, 1, memory_order_release);
    atomic_store_explicit(&request->done, 1, memory_order_release);
    trmi_futex_wake((uint32_t *)(void *)&request->done, INT32_MAX);
}

/* Goes through the active message requests once; finished ones leave the list. If none has moved,
 * the thread sleeps. */
static void progress_active(trm_comm *comm, trm_request **active) {
    bool moved = false;
    uint32_t turn = ++comm->turn;
    for (trm_request **at = active; *at != NULL;) {
        trm_request *request = *at;
        trm_error err = {.status = TRM_OK};
        trm_status status = trmi_bootstrap_healthy(comm->bootstrap)
                                ? trmi_comm_move_messages(comm, request, turn, &moved, &err)
                                : trmi_comm_report_failure(comm, request, &err);
        if (status == TRM_PENDING) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        request->error = err;
        moved = true;
        complete_request(comm, request, status);
    }
    if (!moved && *active != NULL) {
        trm_error err;
        trm_request *first = *active;
        trm_status status = trmi_comm_idle_messages(comm, first, &err);
        if (status != TRM_OK) {
            *active = first->next;
            first->error = err;
            complete_request(comm, first, status);
        }
    }
}

/* Moves message requests from the head of the queue to the end of the active list. If that list is
 * empty and the queue begins with a collective, pops it into *collective. Waits while there is
 * neither. Returns false if nothing is left to do and the thread must end. */
static bool take_work(trm_comm *comm, trm_request **active, trm_request **collective) {
    *collective = NULL;
    pthread_mutex_lock(&comm->mutex);
    while (comm->queue_head == NULL && *active == NULL && !comm->stopping) {
        pthread_cond_wait(&comm->changed, &comm->mutex);
    }
    trm_request **end = active;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    /* Take all messages at the head of the queue; a collective waits until no message is active. */
    while (comm->queue_head != NULL) {
        trm_request *request = comm->queue_head;
        bool messages = request->kind == TRMI_WORK_MESSAGES;
        if (!messages && *active != NULL) {
            break;
        }
        comm->queue_head = request->next;
        if (comm->queue_head == NULL) {
            comm->queue_tail = &comm->queue_head;
        }
        request->next = NULL;
        if (!messages) {
            *collective = request;
            break;
        }
        *end = request;
        end = &request->next;
    }
    bool more = *collective != NULL || *active != NULL;
    pthread_mutex_unlock(&comm->mutex);
    return more;
}

/* Runs the requests of a communicator, one after the other: the main function of the progress
 * thread. */
static void *progress_main(void *context) {
    trm_comm *comm = context;
    trm_request *active = NULL, *collective = NULL;
    while (take_work(comm, &active, &collective)) {
        if (collective != NULL) {
            /* A collective runs to its end; messages make one step at a time. */
            trm_error err = {.status = TRM_OK};
            trm_status status = trmi_comm_execute(comm, collective, true, &err);
            collective->error = err;
            complete_request(comm, collective, status);
        } else {
            progress_active(comm, &active);
        }
    }
    return NULL;
}

/* Raises the progress thread's priority by one above its caller's under a real-time policy. There,
 * threads of equal priority do not preempt each other, and a computing caller would block the
 * thread. Without the permission to raise it, the priority stays as it is. */
static void raise_above_caller(pthread_t thread) {
    int policy;
    struct sched_param parameters;
    if (pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 &&
        (policy == SCHED_FIFO || policy == SCHED_RR)) {
        parameters.sched_priority++;
        (void)pthread_setschedparam(thread, policy, &parameters);
    }
}

/* Starts the progress thread with all signals blocked. */
static trm_status start_thread(trm_comm *comm, trm_error *err) {
    sigset_t all, before; /* signals are handled by the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&comm->thread, NULL, progress_main, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        errno = failed;
        return TRMI_FAIL_SYS(err, "no progress thread for '%s'", comm->name);
    }
    comm->thread_started = true;
    raise_above_caller(comm->thread);
    return TRM_OK;
}

void trmi_comm_stop_thread(trm_comm *comm) {
    if (!comm->thread_started) {
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    comm->stopping = true;
    pthread_cond_signal(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread, NULL);
    comm->thread_started = false;
}

/* Contract in communicator.h. The text of a tag may be gone when the operation fails, so the
 * request keeps a copy. `pending` rises before the thread can see the request: from then on only
 * the thread uses the engines. */
trm_status trmi_comm_enqueue(trm_comm *comm, trm_request *request, trm_error *err) {
    if (!comm->thread_started) {
        TRMI_TRY(start_thread(comm, err));
    }
    bool messages = request->kind == TRMI_WORK_MESSAGES;
    const char **tag = messages ? &request->tag : &request->op.tag;
    if (*tag != NULL && *tag != request->kept_tag) {
        snprintf(request->kept_tag, sizeof request->kept_tag, "%s", *tag);
        *tag = request->kept_tag;
    }
    request->next = NULL;
    atomic_store(&request->done, 0);
    atomic_fetch_add(&comm->pending, 1);
    pthread_mutex_lock(&comm->mutex);
    *comm->queue_tail = request;
    comm->queue_tail = &request->next;
    pthread_cond_signal(&comm->changed);
    pthread_mutex_unlock(&comm->mutex);
    if (messages) { /* the thread may be asleep in an earlier exchange */
        trmi_shm_ring_mail((trmi_shm *)(void *)comm->shm, comm->local_rank);
    }
    return TRM_OK;
}

trm_status trmi_comm_take_request(trm_comm *comm, trm_request **out, trm_error *err) {
    trm_request *request = comm->free_requests;
    if (request != NULL) {
        comm->free_requests = request->next;
    } else {
        TRMI_TRY(TRMI_NEW(err, request, 1, "for an asynchronous operation"));
        request->comm = comm;
    }
    *out = request;
    return TRM_OK;
}

void trmi_comm_free_request(trm_request *request) {
    trmi_free(request->counts);
    trmi_free(request->messages);
    trmi_free(request);
}

bool trm_request_test(const trm_request *request) {
    TRMI_NEED_OR(true, NULL, request);
    return atomic_load_explicit(&request->done, memory_order_acquire) != 0;
}

/* Waits until the request is done, or for timeout_seconds (negative: no limit). Returns whether it
 * is done. The futex sleeps at most an hour at a time, because its timeout must be finite. */
static bool wait_done(trm_request *request, double timeout_seconds) {
    if (trm_request_test(request)) {
        return true;
    }
    double start = trmi_os_now(), now = start;
    bool done = false;
    while (!(done = trm_request_test(request))) {
        double left = timeout_seconds >= 0 ? start + timeout_seconds - now : 3600;
        if (left <= 0) {
            break;
        }
        trmi_futex_wait((uint32_t *)(void *)&request->done, 0, left < 3600 ? left : 3600);
        now = trmi_os_now();
    }
    trmi_bootstrap_add_waited(request->comm->bootstrap, now - start);
    trmi_comm_record(request->comm, request, false, "waiting", start);
    return done;
}

void trmi_comm_join_request(trm_request *request) { (void)wait_done(request, -1); }

/* Contract in trireme/dist.h. A request that has ended, with an error too, goes back to the free
 * ones of its communicator; one that is still pending stays the caller's. */
trm_status trm_request_wait(trm_request *request, double timeout_seconds, trm_error *err) {
    TRMI_NEED(err, request);
    if (!wait_done(request, timeout_seconds)) {
        return TRM_PENDING;
    }
    trm_comm *comm = request->comm;
    trm_status status = request->status;
    if (status != TRM_OK && err != NULL) {
        *err = request->error;
    }
    request->next = comm->free_requests;
    comm->free_requests = request;
    return status;
}
