/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that come to an elastic job are compared with its ranks (contracts in elastic_state.h).
 *
 *      before a run     each process describes its job, as checkpoints have it (job/job.h)
 *      next epoch       terms of all -> the lowest rank that has not come sends its text
 *                       -> each process that has come compares -> all learn who fits
 *
 * A process that comes is started by hand or by another launcher, where a wrong flag is easily
 * made. It would train on other samples, or by another rule, and no sum would tell; or it would
 * save or evaluate after other steps than the ranks, and all would fail. The samples of a step need
 * no comparison: they come with the state. */
#include "train/elastic_state.h"
#include "train/job/job.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "comm/api/communicator.h"
#include "data/pipeline/dataset.h"
#include "exec/exec.h"

#include <stdio.h>
#include <string.h>

/* What a process tells of its job beside the text. Sent as bytes. */
typedef struct admission_terms {
    int64_t comes, bytes; /* bytes: of the text */
    int64_t seed, order, until_epoch, until_step, accumulate, sink, profile;
    uint64_t ways; /* hash of how ranks share the work */
    uint64_t together;
    /* texts of the callbacks (trm_callback), cut at the end of the array, and their hash */
    char callbacks[320];
} admission_terms;

trm_status trmi_elastic_describe(trm_model *model, const trm_dataset *data, trm_error *err) {
    trmi_text_free(&model->elastic->described);
    return trmi_job_describe(model, data, &model->elastic->described, err);
}

/* Hashes a text that may be absent. */
static uint64_t hash_text(uint64_t hash, const char *text) {
    return text == NULL ? trmi_hash_number(hash, 1) : trmi_hash(hash, text, strlen(text) + 1);
}

/* Returns a hash of what the user has asked for: all that the programs of the ranks must have in
 * common, since ranks that find a difference there (digest_of of exec/distributed/ranks.c) all
 * fail. */
static uint64_t hash_ways(const trm_parallel_options *asked) {
    uint64_t hash = trmi_hash_parallel(TRMI_HASH_BEGIN, asked);
    hash = hash_text(hash, asked->split.mesh);
    hash = hash_text(hash, asked->split.plan);
    return hash_text(hash, asked->pipeline.begins);
}

/* Joins the texts of what the callbacks of a run do together. */
static void describe_callbacks(const trm_train_options *run, admission_terms *terms) {
    size_t used = 0;
    terms->together = TRMI_HASH_BEGIN;
    for (int32_t i = 0; i < TRM_MAX_CALLBACKS; i++) {
        const char *text = run->callbacks[i].together;
        if (text == NULL) {
            continue;
        }
        terms->together = hash_text(terms->together, text);
        if (used < sizeof terms->callbacks) {
            used += (size_t)snprintf(terms->callbacks + used, sizeof terms->callbacks - used,
                                     "%s%s", used > 0 ? "; " : "", text);
        }
    }
}

/* Describes this process. */
static admission_terms make_terms(const trm_model *model, const trm_train_options *run) {
    const trmi_elastic_model *e = model->elastic;
    admission_terms terms = {.comes = e->comes,
                             .bytes = (int64_t)e->described.length + 1,
                             .seed = (int64_t)model->options.exec.seed,
                             .order = (int64_t)run->data->order.seed,
                             .until_epoch = run->until_epoch,
                             .until_step = run->until_step,
                             .accumulate = trmi_accumulate(model),
                             .sink = run->sink,
                             .profile = run->profile != NULL,
                             .ways = hash_ways(&e->asked)};
    describe_callbacks(run, &terms);
    return terms;
}

/* Compares the terms of this process with those of the job.   errors  INVALID */
static trm_status compare_terms(const admission_terms *mine, const admission_terms *job,
                                trm_error *err) {
    const struct {
        const char *name;
        int64_t found, expected;
    } numbers[] = {{"the seed", mine->seed, job->seed},
                   {"the seed of the order of samples", mine->order, job->order},
                   {"the last epoch (until_epoch)", mine->until_epoch, job->until_epoch},
                   {"the last step (until_step)", mine->until_step, job->until_step},
                   {"batches of an update (accumulate)", mine->accumulate, job->accumulate},
                   {"sink mode", mine->sink, job->sink},
                   {"whether a timeline is recorded", mine->profile, job->profile}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].found != numbers[i].expected) {
            return TRMI_FAIL(err, TRM_INVALID, "%s differs (found %lld, the job has %lld)",
                             numbers[i].name, (long long)numbers[i].found,
                             (long long)numbers[i].expected);
        }
    }
    if (mine->together != job->together) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "callbacks of all ranks differ (found \"%s\", the job has \"%s\")",
                         mine->callbacks, job->callbacks);
    }
    return mine->ways == job->ways
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "how ranks share the work differs (parallel mode, mesh, plan, stages, "
                           "reduction, wire, buckets, batch norm, blocks)");
}

/* Compares this process with the job, whose text `source` sends. *fits: it may join.
 *   errors  those of collectives */
static trm_status compare_job(trm_model *model, trm_comm *comm, const admission_terms *mine,
                              const admission_terms *job, int32_t source, trm_error *why,
                              bool *fits, trm_error *err) {
    trmi_elastic_model *e = model->elastic;
    const bool gives = trm_comm_rank(comm) == source;
    char *text = e->described.data;
    TRMI_TRY(gives ? TRM_OK
                   : TRMI_NEW(err, text, (size_t)job->bytes, "for a description of a job"));
    trm_status status = trm_comm_broadcast(comm, text, job->bytes, TRM_UINT8, source, err);
    *fits = true;
    if (status == TRM_OK && e->comes) {
        *fits = trmi_job_compare_ranks(e->described.data, text, why) == TRM_OK &&
                compare_terms(mine, job, why) == TRM_OK;
    }
    if (!gives) {
        trmi_free(text);
    }
    return status;
}

/* Fails where a process does not fit: on the process itself with what differs. `fit`: of all ranks.
 */
static trm_status refuse_misfits(trm_comm *comm, const uint8_t *fit, const trm_error *why,
                                 trm_error *err) {
    const int32_t me = trm_comm_rank(comm);
    if (!fit[me] && why->status != TRM_INVALID) { /* it could not compare */
        *err = *why;
        return (trm_status)why->status;
    }
    if (!fit[me]) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "this process does not fit the job that it joins: %s; start it with the "
                         "command line of the job",
                         why->message);
    }
    for (int32_t r = 0; r < trm_comm_size(comm); r++) {
        if (!fit[r]) {
            TRMI_FAIL(err, TRM_PEER,
                      "rank %d has come with other options, model or data than the "
                      "job has, and is not let in",
                      r);
            err->rank = r;
            if (me == 0) {
                trmi_log(TRM_LOG_WARN, "train", "%s (its own log says what differs)", err->message);
            }
            return TRM_PEER;
        }
    }
    return TRM_OK;
}

trm_status trmi_elastic_admit(trm_model *model, const trm_train_options *run, trm_comm *comm,
                              trm_error *err) {
    const admission_terms mine = make_terms(model, run);
    void *gathered;
    int32_t source = -1;
    bool any = false;
    TRMI_TRY(trmi_elastic_gather(comm, &mine, sizeof mine, &gathered, err));
    const admission_terms *all = gathered;
    for (int32_t r = trm_comm_size(comm) - 1; r >= 0; r--) {
        source = all[r].comes ? source : r;
        any = any || all[r].comes;
    }
    const admission_terms job = all[source < 0 ? 0 : source];
    trmi_free(gathered);
    if (!any || source < 0) {
        return TRM_OK;
    }
    trm_error why = {.rank = -1};
    bool fits;
    TRMI_TRY(compare_job(model, comm, &mine, &job, source, &why, &fits, err));
    const uint8_t answer = fits;
    TRMI_TRY(trmi_elastic_gather(comm, &answer, sizeof answer, &gathered, err));
    trm_status status = refuse_misfits(comm, gathered, &why, err);
    trmi_free(gathered);
    model->elastic->comes = model->elastic->comes && status != TRM_OK;
    return status;
}
