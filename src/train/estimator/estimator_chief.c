/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which trainer does the chief's work: the chief that the cluster names, or, when it
 * dies for good, a worker.
 *
 *        chief    begins with the lease; renews it before each checkpoint and before the end of the job
 *        worker   requests the lease from time to time; server 0 grants it when the chief has been silent for too long
 *                 after its last step: signs off and waits for the end of the job, during which the
 *                 chief may still die
 *
 * The lease is kept by server 0. The role is not shared in two cases: without a model_dir
 * nothing is saved that another worker could continue from, and hybrid workers cannot continue
 * without all workers. */
#include "train/estimator/estimator.h"

#include "train/callbacks/callback.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

enum { LOOKS = 4 }; /* requests in the time of one lease */
static const double look_seconds = 1, say_seconds = 10;

/* Contract in estimator.h. */
bool trmi_duty_is_shared(const trm_estimator *e) {
    return e->has_roles && !e->strategy.training.tables_only && e->config.model_dir != NULL;
}

/* Returns what this process requests: the named chief gets a free lease at once, a worker only
 * after a silence. */
static trm_ps_chief_claim wish_of(const trm_estimator *e) {
    return e->is_chief ? TRM_PS_CHIEF_IS : TRM_PS_CHIEF_STANDS_IN;
}

/* Contract in estimator.h. A change of the chief is logged. */
trm_status trmi_chief_role_query(trmi_chief_role *d, bool now, trm_error *err) {
    trm_ps_chief chief;
    trm_estimator *e = d->estimator;
    if (!trmi_duty_is_shared(e)) {
        d->mine = e->is_chief;
        return TRM_OK;
    }
    if (!now && trmi_os_now() - d->asked < d->lease_seconds / LOOKS) {
        return TRM_OK;
    }
    TRMI_TRY(trm_ps_chief_request(d->client, wish_of(e), 0, &chief, err));
    if (chief.mine != d->mine && (chief.mine ? !e->is_chief : d->mine)) {
        trmi_estimator_say(e,
                           chief.mine
                               ? "trainer %d is the chief now: the one before is silent"
                               : "trainer %d is the chief no more: another one has stood in for it",
                           e->trainer);
    }
    d->mine = chief.mine;
    d->lease_seconds = chief.lease_seconds;
    d->asked = trmi_os_now();
    return TRM_OK;
}

/* Returns whether the job has ended or this process is to stop. */
static bool is_over(const trm_estimator *e) {
    uint64_t step;
    trmi_job_state state = trmi_job_read(e, &step);
    return state == TRMI_JOB_DONE || state == TRMI_JOB_FAILED || trmi_estimator_stopped(e);
}

/* Contract in estimator.h. Queries server 0 every 0.1 s. A server that ends is normal at the end
 * of a job, so a lost connection is an error only after timeout_seconds. */
trm_status trmi_chief_role_wait(trmi_chief_role *d, trm_error *err) {
    trm_estimator *e = d->estimator;
    trm_error why;
    double answered = trmi_os_now(), said = answered;
    (void)!trm_ps_leave(d->client, &why); /* the loop below detects a server that is gone */
    while (!is_over(e)) {
        trm_ps_chief chief;
        trm_status status = trm_ps_chief_request(d->client, wish_of(e), look_seconds, &chief, &why);
        double now = trmi_os_now();
        bool gone = status == TRM_PEER || status == TRM_TIMEOUT;
        if (status == TRM_OK && chief.mine) {
            d->mine = true;
            d->asked = now;
            return TRM_OK;
        }
        /* another trainer is the chief, or no server answers */
        answered = status == TRM_OK ? now : answered;
        if (status != TRM_OK && (!gone || now - answered > e->strategy.client.timeout_seconds)) {
            return TRMI_FAIL(err, status,
                             "%s; all of this worker's batches are done, but not the job",
                             why.message);
        }
        if (now - said > say_seconds) {
            said = now;
            trmi_estimator_say(e, "waiting for the chief (trainer %d) to end the job",
                               gone ? -1 : chief.worker);
        }
        trmi_estimator_sleep(e, 0.1);
    }
    return TRM_END;
}

/* ---- callbacks of the chief alone ------------------------------------------------------------ */

/* State of a wrapped callback. Its on_begin runs when this process becomes the chief, which may
 * be in the middle of training. */
typedef struct gate {
    const trm_estimator *estimator;
    trm_callback inner;
    bool begun;
} gate;

/* Calls `hook` of the inner callback if this process is the chief, after its on_begin. */
static trm_status call_inner(gate *g, trm_hook hook, const trm_progress *p, trm_error *err) {
    if (!g->estimator->acts) {
        return TRM_OK;
    }
    if (!g->begun && g->inner.on_begin != NULL) {
        TRMI_TRY(g->inner.on_begin(g->inner.context, p, err));
    }
    g->begun = true;
    return hook == NULL ? TRM_OK : hook(g->inner.context, p, err);
}

/* The hooks of the callback that lets another callback run on the chief only. */
static trm_status gate_begin(void *c, const trm_progress *p, trm_error *err) {
    return call_inner(c, NULL, p, err);
}
static trm_status gate_step(void *c, const trm_progress *p, trm_error *err) {
    return call_inner(c, ((gate *)c)->inner.on_step_end, p, err);
}
static trm_status gate_epoch(void *c, const trm_progress *p, trm_error *err) {
    return call_inner(c, ((gate *)c)->inner.on_epoch_end, p, err);
}
static trm_status gate_end(void *c, const trm_progress *p, trm_error *err) {
    return call_inner(c, ((gate *)c)->inner.on_end, p, err);
}
static void gate_destroy(void *c) {
    gate *g = c;
    if (g->inner.destroy != NULL) {
        g->inner.destroy(g->inner.context);
    }
    trmi_free(g);
}

/* Contract in estimator.h. The gate owns the inner callback, also if it cannot be made. */
trm_callback trmi_while_chief(const trm_estimator *e, trm_callback inner) {
    gate *g = trmi_alloc(sizeof *g);
    if (g == NULL) {
        if (inner.destroy != NULL) {
            inner.destroy(inner.context);
        }
        return trmi_callback_no_memory();
    }
    *g = (gate){.estimator = e, .inner = inner};
    return (trm_callback){.on_begin = gate_begin,
                          .on_step_end = gate_step,
                          .on_epoch_end = gate_epoch,
                          .on_end = gate_end,
                          .destroy = gate_destroy,
                          .context = g};
}
