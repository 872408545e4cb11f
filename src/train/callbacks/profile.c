/* SPDX-License-Identifier: Apache-2.0 */
/* Records the timeline of a training call. Executor, communicator and dataset write events into
 * one recorder while the call runs; at its end rank 0 gathers the ranks' events and writes a
 * Chrome trace file.
 *
 *     track     category        events
 *     steps     compute         each step kernel; optimizer; communication inside a kernel
 *               waiting         for a batch, for gradients of other ranks
 *     comm...   communication   operations in the background, one track a communicator
 *     data w    data            batches that prefetch thread w fills
 *
 * Invariants: ranks agree that all have memory before they exchange texts, and exchange nothing
 * after an error with which they did not all end. Times are those of rank 0's clock, and none is
 * before 0. */
#include "train/callbacks/profile.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/trace.h"
#include "comm/api/comm_trace.h"
#include "data/pipeline/dataset.h"
#include "exec/exec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EVENTS_MOST = 400000 }; /* 45 MB; some 800 steps of ResNet-50 */
/* Seconds by which clocks of ranks seem to differ though they are one host's. */
static const double clock_noise = 1e-3;

/* The recording of one training call. */
struct trmi_profile {
    trmi_trace *trace;
    const trm_model *model;
    trm_dataset *data;
    double begin; /* trmi_os_now */
    char path[4096];
};

/* Contract in profile.h. A change of ranks has made executor and communicator anew. */
void trmi_profile_attach(trmi_profile *p) {
    if (p == NULL) {
        return;
    }
    p->model->train.exec->trace = p->trace;
    atomic_store(&p->data->trace, p->trace);
    if (trmi_model_comm(p->model) != NULL) {
        trmi_comm_set_trace(trmi_model_comm(p->model), p->trace);
    }
}

/* Creates the recorder and attaches it to executor, dataset and communicator (contract in
 * profile.h). */
trm_status trmi_profile_begin(trm_model *model, trm_dataset *data, const char *path,
                              trmi_profile **out, trm_error *err) {
    trmi_profile *p;
    if (strlen(path) >= sizeof p->path) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "timeline %.100s...: a path of %zu bytes, at most %zu expected", path,
                         strlen(path), sizeof p->path - 1);
    }
    if (trmi_model_rank(model) == 0) { /* rank 0 writes the file when all has been trained */
        TRMI_TRY(trmi_os_check_path(path, false, err));
    }
    TRMI_TRY(TRMI_NEW(err, p, 1, "to record %s", path));
    trm_status status = trmi_trace_create(EVENTS_MOST, &p->trace, err);
    if (status != TRM_OK) {
        trmi_free(p);
        return status;
    }
    snprintf(p->path, sizeof p->path, "%s", path);
    p->model = model;
    p->data = data;
    p->begin = trmi_os_now();
    /* The first track stands at the top of the viewer. */
    (void)trmi_trace_track(p->trace, "steps");
    trmi_profile_attach(p);
    *out = p;
    return TRM_OK;
}

trmi_trace *trmi_profile_trace(const trmi_profile *profile) {
    return profile != NULL ? profile->trace : NULL;
}

/* Detaches the recorder, so that it can be read and freed. The seek ends the prefetch threads,
 * which may still hold it; they start again with the next batch. There is no executor where a
 * change of ranks has failed. */
static trm_status detach_recorder(trmi_profile *p, trm_error *err) {
    int64_t epoch, index;
    if (p->model->train.exec != NULL) {
        p->model->train.exec->trace = NULL;
    }
    if (trmi_model_comm(p->model) != NULL) {
        trmi_comm_set_trace(trmi_model_comm(p->model), NULL);
    }
    atomic_store(&p->data->trace, NULL);
    trm_dataset_position(p->data, &epoch, &index);
    return trm_dataset_seek(p->data, epoch, index, err);
}

/* Replaces `text` by the texts of all ranks in the order of ranks, on every rank. Collective:
 * lengths, then bytes. The ranks agree that all have memory before the bytes are exchanged. */
static trm_status gather_texts(const trm_model *model, trmi_text *text, trm_error *err) {
    trm_comm *comm = trmi_model_comm(model);
    int32_t size = trmi_model_size(model), rank = trmi_model_rank(model);
    if (comm == NULL) {
        return TRM_OK;
    }
    int64_t *counts = trmi_alloc((size_t)size * sizeof *counts), total = 0, before = 0;
    if (counts == NULL) {
        return TRMI_NO_MEMORY(err, "for the timeline of %d ranks", (int)size);
    }
    /* lengths of all ranks, and where this rank's text begins */
    counts[rank] = (int64_t)text->length;
    trm_status status = trmi_model_add_counts(model, counts, size, err);
    for (int32_t r = 0; r < size; r++) {
        before += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    char *all = status == TRM_OK ? trmi_alloc((size_t)total + 1) : NULL;
    if (status == TRM_OK && all == NULL) {
        status = TRMI_NO_MEMORY(err, "for a timeline of %lld bytes", (long long)total);
    }
    /* no rank may miss the exchange */
    status = trmi_model_agree(model, status, total, "the timeline", err);
    if (status == TRM_OK) {
        memcpy(all + before, text->data, text->length);
        const trm_collective op = {.kind = TRM_ALLGATHERV,
                                   .recv = all,
                                   .counts = counts,
                                   .dtype = TRM_UINT8,
                                   .tag = "timeline"};
        status = trm_comm_run(comm, &op, err);
    }
    if (status == TRM_OK) {
        text->length = 0;
        trmi_text_append(text, all, (size_t)total);
    }
    trmi_free(all);
    trmi_free(counts);
    return status;
}

/* Returns how many seconds a clock is ahead of another one, by what each lacks to the time of day.
 * Ranks of one host have the same monotonic clock: small differences are noise. */
static double compare_clocks(double offset, double other) {
    return fabs(offset - other) < clock_noise ? 0 : offset - other;
}

/* Sets *shift to the seconds to add to this rank's times, so that all ranks use rank 0's clock
 * and the first rank begins at 0 (viewers drop events before 0). Ranks of other hosts are aligned
 * by the time of day. */
static trm_status find_clock_shift(const trmi_profile *p, double *shift, trm_error *err) {
    int32_t rank = trmi_model_rank(p->model);
    trm_comm *comm = trmi_model_comm(p->model);
    int64_t size = comm != NULL ? trm_comm_size(comm) : 1;
    double offset = trmi_os_wall() - trmi_os_now();
    double *clocks = trmi_alloc((size_t)size * 2 * sizeof *clocks); /* [rank][offset, begin] */
    if (clocks == NULL) {
        return TRMI_NO_MEMORY(err, "for the clocks of %lld ranks", (long long)size);
    }
    memset(clocks, 0, (size_t)size * 2 * sizeof *clocks);
    /* Each rank fills its own entries; the sum over the ranks has all. */
    clocks[2 * rank] = offset;
    clocks[2 * rank + 1] = p->begin;
    trm_status status = trmi_model_add(p->model, clocks, size * 2, err);
    if (status == TRM_OK) {
        double first = INFINITY;
        for (int64_t i = 0; i < size; i++) {
            /* How far this clock is ahead of rank 0's, and when its first event would be there. */
            first = fmin(first, clocks[2 * i + 1] + compare_clocks(clocks[2 * i], clocks[0]));
        }
        *shift = compare_clocks(offset, clocks[0]) - first;
    }
    trmi_free(clocks);
    return status;
}

/* Formats this rank's events, gathers those of all ranks, and writes the file on rank 0.
 * Collective. */
static trm_status write_file(trmi_profile *p, trm_error *err) {
    trmi_text events = {0}, file = {0};
    char name[32];
    double shift = 0;
    int32_t rank = trmi_model_rank(p->model);
    TRMI_TRY(find_clock_shift(p, &shift, err));
    snprintf(name, sizeof name, "rank %d", (int)rank);
    trmi_trace_put_process(&events, rank, name);
    trmi_trace_put(p->trace, rank, shift, &events);
    /* A comma separates the events from those of the next rank. */
    trmi_text_append(&events, ",\n", rank + 1 < trmi_model_size(p->model) ? 2 : 0);
    trm_status status = TRMI_CHECK_MEMORY(err, &events, "for the timeline");
    status = trmi_model_comm(p->model) != NULL
                 ? trmi_model_agree(p->model, status, 0, "the timeline", err)
                 : status;
    status = status == TRM_OK ? gather_texts(p->model, &events, err) : status;
    if (status == TRM_OK && rank == 0) {
        trmi_trace_put_file(&file, &events);
        status = file.failed ? TRMI_NO_MEMORY(err, "for the timeline")
                             : trmi_os_replace_file(NULL, p->path, file.data, file.length, err);
    }
    if (status == TRM_OK && trmi_trace_dropped(p->trace) > 0) {
        trmi_log(TRM_LOG_WARN, "train",
                 "%s: has the first %d events of this rank; %lld later ones are left out", p->path,
                 EVENTS_MOST, (long long)trmi_trace_dropped(p->trace));
    }
    trmi_text_free(&events);
    trmi_text_free(&file);
    return status;
}

/* Contract in profile.h. An error of the timeline is returned only if training succeeded. */
trm_status trmi_profile_end(trmi_profile *p, trm_status trained, trm_error *err) {
    if (p == NULL) {
        return trained;
    }
    /* After another error the ranks did not end alike, and a collective would hang. */
    bool whole = trained == TRM_OK || trained == TRM_CANCELLED;
    trm_error own;
    trm_status status = detach_recorder(p, &own);
    status = status == TRM_OK && whole ? write_file(p, &own) : status;
    trmi_trace_destroy(p->trace);
    trmi_free(p);
    if (trained == TRM_OK && status != TRM_OK) {
        *err = own;
        return status;
    }
    return trained;
}
