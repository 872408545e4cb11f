/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a trainer or an evaluator to the servers of its job. A client polls while it waits: is
 * the job over, has a stop been requested, has another worker died that this one computes with.
 *
 * Every wait has a deadline, and ends earlier with one of these causes. job.json in the job's
 * folder says whether the job is over; it may still be that of an earlier run, so it must say so
 * for some seconds. */
#include "train/estimator/estimator.h"

#include "base/error.h"
#include "base/os.h"
#include "ps/client/life.h"

static const double say_seconds = 10;
enum { LATE_WAITS = 2, CHIEF_WAITS = 10 }; /* seconds to wait for servers of a job that is over */

/* Returns whether a stop was requested. Polled by the client while it waits. */
static bool is_stopped(void *estimator) { return trmi_estimator_stopped(estimator); }

/* Returns whether another worker has died that this one computes with. Server 0 waits for all
 * workers and this worker waits for the server; only the broken connection to the dead worker shows
 * why. Polled by the client while it waits. */
static bool is_lost(void *estimator) {
    const trm_estimator *e = estimator;
    return e->workers != NULL && trm_comm_health(e->workers, NULL) != TRM_OK;
}

/* Returns whether the job has ended, well or badly. */
static bool is_over(trmi_job_state state) {
    return state == TRMI_JOB_DONE || state == TRMI_JOB_FAILED;
}

/* Returns whether job.json has shown for some seconds that the job is over. The delay is needed
 * because job.json of a continued job shows the end of the earlier run until the chief begins.
 * Polled by the client while it waits. */
static bool job_is_over(void *estimator) {
    trm_estimator *e = estimator;
    uint64_t step;
    double now = trmi_os_now();
    e->over_since = !is_over(trmi_job_read(e, &step)) ? 0
                    : e->over_since == 0              ? now
                                                      : e->over_since;
    return e->over_since != 0 && now - e->over_since > (e->is_chief ? CHIEF_WAITS : LATE_WAITS);
}

/* Tries once, for `timeout` seconds, to connect to all servers. */
static trm_status connect_once(const trm_estimator *e, double timeout, trm_ps_client **out,
                               trm_error *err) {
    const char *addresses[1024];
    if (e->servers > (int32_t)(sizeof addresses / sizeof addresses[0])) {
        return TRMI_FAIL(err, TRM_INVALID, "%d servers, at most 1024 expected", e->servers);
    }
    for (int32_t i = 0; i < e->servers; i++) {
        addresses[i] = trm_cluster_task_address(e->config.cluster, TRM_ROLE_PS, i);
        if (addresses[i] == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "ps %d has no address in the cluster", i);
        }
    }
    const trm_ps_client_options options = {.addresses = addresses,
                                           .servers = e->servers,
                                           .worker = e->trainer,
                                           .wire = e->strategy.client.wire,
                                           .cache_staleness = e->strategy.client.cache_staleness,
                                           .ring_bytes = e->ring_bytes,
                                           .timeout_seconds = timeout,
                                           .token = e->config.token,
                                           .job_id = e->job_id,
                                           .job_origin = e->job_origin,
                                           .stopped = is_stopped,
                                           .lost = trmi_estimator_joins(e) ? is_lost : NULL,
                                           .over = job_is_over,
                                           .context = (void *)(uintptr_t)e};
    return trm_ps_client_create(&options, out, err);
}

/* Contract in estimator.h. An evaluator need not know the servers: then nothing is compared. */
trm_status trmi_estimator_meet_servers(trm_estimator *e, bool *met, trm_error *err) {
    trm_ps_client *client = NULL;
    trm_error why = {0};
    *met = e->servers == 0 || trm_cluster_task_address(e->config.cluster, TRM_ROLE_PS, 0) == NULL;
    if (*met) {
        return TRM_OK;
    }
    trmi_estimator_read_job_id(e);
    trm_status status = connect_once(e, 1, &client, &why);
    *met = status == TRM_OK;
    trm_ps_client_destroy(client);
    if (status == TRM_INVALID && err != NULL) {
        *err = why;
    }
    return status == TRM_INVALID ? status : TRM_OK;
}

/* Contract in estimator.h. Where job.json says that the job is over, servers that do not answer
 * have ended, and the wait is short. */
trm_status trmi_estimator_connect(trm_estimator *e, trm_ps_client **out, trm_error *err) {
    double begin = trmi_os_now(), said = begin;
    uint64_t step;
    trmi_estimator_read_job_id(e);
    for (;;) {
        bool over = is_over(trmi_job_read(e, &step));
        trm_status status =
            connect_once(e, over ? 1 : e->strategy.client.timeout_seconds, out, err);
        double waited = trmi_os_now() - begin;
        if (over && (status == TRM_TIMEOUT || status == TRM_PEER) &&
            waited > (e->is_chief ? CHIEF_WAITS : LATE_WAITS)) {
            return TRM_END;
        }
        bool again = (status == TRM_TIMEOUT || status == TRM_PEER) && !trmi_estimator_stopped(e) &&
                     waited < e->config.session_creation_timeout_secs;
        if (status == TRM_OK) {
            trmi_client_set_timeout(*out, e->strategy.client.timeout_seconds);
        }
        if (!again) {
            return status;
        }
        if (trmi_os_now() - said > say_seconds) {
            said = trmi_os_now();
            trmi_estimator_say(e, "waiting for the servers since %.0f s: %s", waited,
                               err != NULL ? err->message : "no answer");
        }
        trmi_estimator_sleep(e, 0.2);
    }
}
