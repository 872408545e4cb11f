/* SPDX-License-Identifier: Apache-2.0 */
/* The callback that keeps the record of a run, which `trireme report` and `top` read. Rank 0 writes
 * run.jsonl, rank N run-rank-N.jsonl. When the ranks of an elastic job change, each process goes on
 * with the file of the rank that it is from then on.
 *
 *      on_begin    options, start          on_checkpoint  checkpoint
 *      on_step_end step, every N-th one    on_membership  membership
 *      on_evaluated eval                   on_end         done;   destroy without on_end: error
 *
 * A line that cannot be written is logged once, and training goes on. */
#include "trireme/io.h"
#include "trireme/train.h"

#include "train/callbacks/callback.h"
#include "train/callbacks/event.h"
#include "train/model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/distributed/batches.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* State of trm_run_recorder. */
typedef struct run_record {
    char *directory;
    int64_t every;
    trm_record *record; /* NULL: not open */
    int32_t rank;       /* whose record is open */
    bool ended, warned;
    uint64_t first_step;  /* global step at which this call began */
    trm_report_mark mark; /* at the step that was written last */
} run_record;

/* ---- lines ----------------------------------------------------------------------------------- */

/* Begins an object. Names of metrics are the user's. */
static void begin_line(trmi_report *line, const char *event) {
    trmi_report_begin(line, true);
    line->foreign = true;
    trmi_report_put(line, trmi_string("event", event));
}

/* Writes the line. Its first failure is logged. */
static void end_line(run_record *r, trmi_report *line) {
    trm_error err;
    char *json;
    trm_status status = trmi_report_give(line, "for the record of a run", &json, &err);
    if (status == TRM_OK) {
        status = trm_record_line(r->record, json, strlen(json), &err);
        trm_free(json);
    }
    if (status != TRM_OK && !r->warned) {
        trmi_log(TRM_LOG_WARN, "train", "%s; training goes on", err.message);
        r->warned = true;
    }
}

/* ---- hooks ----------------------------------------------------------------------------------- */

/* Writes what is known before the first step: the machine and the model, as the program does. */
static void write_start(run_record *r, const trm_progress *p) {
    char host[256] = "";
    trm_machine machine;
    trm_exec_info info;
    (void)gethostname(host, sizeof host - 1);
    trm_machine_get(&machine);
    trm_exec_get_info(trm_model_exec(p->model), &info);
    trm_comm *comm = trmi_model_comm(p->model);
    trmi_report line;
    begin_line(&line, "options");
    trmi_report_put(&line, trmi_string("version", trm_version()), trmi_string("host", host),
                    trmi_int("cores", machine.cores),
                    trmi_int("ranks", comm != NULL ? trm_comm_size(comm) : 1),
                    trmi_string("unit", "samples"));
    end_line(r, &line);
    begin_line(&line, "start");
    trmi_report_put(&line, trmi_int("parameters", info.parameter_count),
                    trmi_int("predicted_bytes", info.total_bytes), trmi_int("epochs", p->epochs),
                    trmi_int("epoch_steps", p->epoch_steps),
                    trmi_bool("resumed", p->global_step > 0),
                    trmi_int("global_step", (int64_t)p->global_step));
    end_line(r, &line);
}

/* Opens the record of a rank, in place of an open one of another rank.
 *   errors  those of trm_record_open */
static trm_status open_record(run_record *r, const trm_progress *p, int32_t rank, trm_error *err) {
    if (r->record != NULL && r->rank == rank) {
        return TRM_OK;
    }
    trm_record *opened = NULL;
    trm_status status = trm_record_open(r->directory, "rank", rank, &opened, err);
    if (status == TRM_OK) {
        trm_record_close(r->record);
        r->record = opened;
        r->rank = rank;
        r->first_step = r->mark.step = p->global_step;
    }
    return status;
}

/* Opens the record of this rank and writes its first lines. */
static trm_status begin_record(void *context, const trm_progress *p, trm_error *err) {
    run_record *r = context;
    if (r->record == NULL) {
        TRMI_TRY(open_record(r, p, trmi_model_rank(p->model), err));
        write_start(r, p);
    }
    return TRM_OK;
}

/* Writes an event, if the record is open.
 *   param  mean: of a step; NULL = none */
static void write_event(run_record *r, trm_training_event event, const trm_progress *p,
                        const trm_mean_step *mean) {
    if (r->record != NULL) {
        trmi_report line;
        begin_line(&line, trm_event_name(event));
        trmi_report_event(&line, event, p, mean);
        if (mean != NULL && mean->samples_per_second > 0) {
            trmi_report_put(&line, trmi_real("samples_per_second", mean->samples_per_second));
        }
        end_line(r, &line);
    }
}

/* Writes a step every `every` steps, the first, and the last of an epoch, with means since the line
 * before. */
static trm_status record_step(void *context, const trm_progress *p, trm_error *err) {
    run_record *r = context;
    (void)err;
    bool due =
        p->step % r->every == 0 || p->step == p->epoch_steps || p->global_step == r->first_step + 1;
    if (due) {
        trm_mean_step mean = trm_take_mean_step(&r->mark, p);
        write_event(r, TRM_EVENT_STEP, p, &mean);
    }
    return TRM_OK;
}

/* The hooks of the callback: each writes the event of its moment, and never fails the training. */
static trm_status record_epoch(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    write_event(context, TRM_EVENT_EPOCH, p, NULL);
    return TRM_OK;
}

static trm_status record_evaluation(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    write_event(context, TRM_EVENT_EVALUATION, p, NULL);
    return TRM_OK;
}

static trm_status record_checkpoint(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    write_event(context, TRM_EVENT_CHECKPOINT, p, NULL);
    return TRM_OK;
}

/* Writes which ranks were lost and have joined, in the record of the rank that this process is
 * now. */
static trm_status record_membership(void *context, const trm_progress *p, trm_error *err) {
    run_record *r = context;
    TRMI_TRY(open_record(r, p, p->membership->rank, err));
    write_event(r, TRM_EVENT_MEMBERSHIP, p, NULL);
    return TRM_OK;
}

/* Writes the line "done" at the end of a training that has not failed. */
static trm_status end_record(void *context, const trm_progress *p, trm_error *err) {
    run_record *r = context;
    (void)err;
    if (r->record != NULL) {
        trmi_report line;
        begin_line(&line, "done");
        trmi_report_put(&line, trmi_int("global_step", (int64_t)p->global_step),
                        trmi_real("seconds", p->seconds), trmi_bool("stopped", p->stopping));
        end_line(r, &line);
    }
    r->ended = true;
    return TRM_OK;
}

/* Closes the record. Training that did not come to on_end has failed. */
static void close_record(void *context) {
    run_record *r = context;
    if (r->record != NULL && !r->ended) {
        trmi_report line;
        begin_line(&line, "error");
        trmi_report_put(&line, trmi_string("message", "training has ended with an error"));
        end_line(r, &line);
    }
    trm_record_close(r->record);
    trmi_free(r->directory);
    trmi_free(r);
}

/* Contract in trireme/train.h. A callback that cannot be made says so when training begins, because
 * this call returns no status. */
trm_callback trm_run_recorder(const char *directory, int64_t every) {
    enum { EVERY = 100 };
    if (directory == NULL || every < 0) {
        return trmi_callback_unusable();
    }
    size_t bytes = strlen(directory) + 1;
    run_record *r = trmi_alloc(sizeof *r);
    char *copy = trmi_alloc(bytes);
    if (r == NULL || copy == NULL) {
        trmi_free(r);
        trmi_free(copy);
        return trmi_callback_no_memory();
    }
    memcpy(copy, directory, bytes);
    *r = (run_record){.directory = copy, .every = every > 0 ? every : EVERY};
    return (trm_callback){.on_begin = begin_record,
                          .on_step_end = record_step,
                          .on_epoch_end = record_epoch,
                          .on_evaluated = record_evaluation,
                          .on_checkpoint = record_checkpoint,
                          .on_membership = record_membership,
                          .on_end = end_record,
                          .destroy = close_record,
                          .context = r};
}
