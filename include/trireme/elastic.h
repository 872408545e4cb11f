/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/elastic.h: a job that goes on when ranks die, leave or join (door: dist). A model of
 * trireme/train.h needs only exec.parallel.elastic; the calls below are for training loops of your
 * own.
 *
 * The ranks of the job form *epochs*: in each epoch the ranks are numbered anew, in their old
 * order, and have a communicator of their own.
 *
 *     trm_elastic_create(cluster, &options, &job, &err);
 *     status = TRM_OK;
 *     if (membership.epoch == 0) {
 *         status = trm_elastic_recover(job, NULL, &err);        joins a running job
 *     }
 *     while (status == TRM_OK && step < steps) {
 *         status = one_step(trm_elastic_comm(job), ..., &err);
 *         if (trm_elastic_can_recover(status) || (all ranks have agreed that one wants a change)) {
 *             status = trm_elastic_recover(job, &err, &err);    a new communicator, other ranks
 *             ... END: this rank has left, else agree on the step, hand over the state, go on ...
 *         }
 *     }
 */
#ifndef TRIREME_ELASTIC_H
#define TRIREME_ELASTIC_H

#include "trireme/dist.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process's place in an elastic job. */
typedef struct trm_elastic trm_elastic;

/* Options of an elastic job. */
typedef struct trm_elastic_options {
    int32_t least; /* the job fails with PEER when fewer ranks are left; 0 = 1 */
    int32_t most;  /* no process joins while the job has so many ranks; 0 = 1024 */
    /* a rank that does not come to the decision about the next epoch is given up after so long, or
     * after join.stall_seconds if its process is stopped or its host silent, and ended with SIGKILL
     * if it is on this host; 0 = 120 */
    double decision_seconds;
    trm_join_options join; /* of each epoch; its texts are borrowed until trm_elastic_destroy */
    trm_comm_options comm; /* of each epoch; borrowed as `join` */
} trm_elastic_options;

/* The ranks of an epoch. */
typedef struct trm_membership {
    int64_t epoch; /* 1 = the first, 0 = this process has not joined yet */
    int32_t rank;  /* of this process; -1 = it is in no epoch */
    int32_t ranks; /* of the epoch */
    /* numbers of the ranks that the last epoch had and this one has not, because they were lost or
     * have left in order, and of those that are new: a number is the rank in the first epoch, and
     * stays the same. Texts "2, 5" */
    char lost[96], left[96], joined[96];
    int32_t lost_count, left_count, joined_count;
    double seconds; /* that the last trm_elastic_recover took; of a model, until it could go on */
    /* of a model: steps that were computed again; ranks at the end without samples, which wait */
    int32_t redone_steps, spare_ranks;
    /* of a model: step of the checkpoint from which the ranks went on, because a part of the state
     * was lost; 0 = none */
    int64_t restored_step;
    /* whether this process has asked to leave and had to stay, because fewer than `least` ranks
     * would have been left */
    bool stays;
} trm_membership;

/* Meets the other ranks of an elastic job (trm_cluster_join). Where the job runs already, this
 * process comes later: it is alone, with a communicator of its own, until trm_elastic_recover has
 * made it a member. It needs what the first ranks had: the rendezvous, and the token if it is on
 * another host. Where more than half of the ranks have come to a TCP address or a file, and
 * `least`, and no other one for 10 s (a quarter of join.timeout_seconds, if that is less), the job
 * begins without the others, which join when they come.
 *   param    cluster: may be destroyed afterwards
 *            options: NULL = defaults
 *   errors   INVALID (least above most), those of trm_cluster_join and trm_comm_create
 *   owns     caller: trm_elastic_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_elastic_create(const trm_cluster *cluster,
                                                   const trm_elastic_options *options,
                                                   trm_elastic **out, trm_error *err);
/* Leaves the job in order and frees it. NULL is accepted. */
TRM_API void trm_elastic_destroy(trm_elastic *elastic);
/* Returns the communicator of the present epoch; NULL while there is none, after a failed recovery.
 *   owns     the elastic job, until the next trm_elastic_recover */
TRM_API trm_comm *trm_elastic_comm(const trm_elastic *elastic);
/* Describes the present epoch. */
TRM_API void trm_elastic_get_membership(const trm_elastic *elastic, trm_membership *out);
/* Returns whether an operation failed for a reason that a new epoch removes: a rank that died or
 * does not answer (PEER, TIMEOUT). */
TRM_API bool trm_elastic_can_recover(trm_status status);
/* Makes this process leave the job with the next trm_elastic_recover, which then returns END. Where
 * fewer than `least` ranks would be left, it stays, and its wish is over: trm_membership has
 * `stays`, and the program may end the job on all ranks.
 *   threads  any; may be called from a signal handler */
TRM_API void trm_elastic_request_leave(trm_elastic *elastic);
/* Returns whether a process wants to leave or to join, as far as this rank knows. The ranks agree
 * on it between two steps, and all call trm_elastic_recover.
 *   threads  any */
TRM_API bool trm_elastic_wants_change(trm_elastic *elastic);
/* Decides with the other survivors on the ranks of the next epoch and makes its communicator. Every
 * communicator of the old epoch is gone: those split from it must be destroyed before the call.
 *   param    cause: error of the operation that failed; NULL = not known, or none failed
 *   errors   END (this process has left: trm_elastic_request_leave), TIMEOUT (no place became free
 *            in join.timeout_seconds), PEER (fewer than `least` ranks; the survivors are no
 *            majority and the death of the others is not proven; this rank was given up by the
 *            others), INVALID (this process has come with other options of the communicator than
 *            the ranks have, which go on without it: it calls trm_elastic_destroy), NOMEM, IO */
TRM_API TRM_MUST_USE trm_status trm_elastic_recover(trm_elastic *elastic, const trm_error *cause,
                                                    trm_error *err);

#ifdef __cplusplus
}
#endif

#endif
