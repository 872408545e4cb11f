/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/dataset.h: the dataset object, shared by the files that build, run and describe it.
 *
 *   consumer                       worker w (of T): batches w, w+T, w+2T, ... from the position on
 *   trm_dataset_next  <--ready[w]--  fill slot  <--idle[w]--+
 *        |                                                  |
 *        +---------- the previous slot goes back -----------+
 *
 * Batch numbers are assigned to the workers round robin, so the delivered order needs no sorting.
 * Everything in a batch is a function of its number, so threads change the time and nothing else.
 *
 * Files: dataset.c (creation and the refining calls), dataset_seal.c (checks, fields,
 * description), sample_order.c (which sample comes when), read_ahead.c (workers and reading),
 * own.c and own_transform.c (functions of the caller's), open.c (datasets by name),
 * fingerprint.c, scratch.c. */
#ifndef TRMI_DATA_DATASET_H
#define TRMI_DATA_DATASET_H

#include "data/pipeline/sample_order.h"
#include "data/pipeline/source.h"
#include "data/image/transform.h"

#include "base/queue.h"
#include "base/trace.h"

#include <pthread.h>
#include <stdatomic.h>

/* One batch and the memory that it is filled into. Slots are reused. */
typedef struct trmi_batch_slot {
    trm_batch batch;                    /* as the caller sees it */
    void *memory[TRM_MAX_BATCH_FIELDS]; /* [field] memory of the batch's tensors */
    int64_t *indices;                   /* [batch_size] samples of the batch */
    trm_status status; /* outcome of filling it, delivered together with the batch */
    trm_error error;   /* if `status` is not OK */
} trmi_batch_slot;

/* One prefetch thread, or, without threads, the caller's own state. */
typedef struct trmi_prefetch_worker {
    trm_dataset *dataset;         /* to which it belongs */
    pthread_t thread;             /* if the dataset has threads */
    bool running;                 /* `thread` exists */
    int64_t first, stride;        /* it fills the batches first, first + stride, ... */
    trmi_queue *idle, *ready;     /* slots to be filled, and filled ones, in order */
    trmi_picture_scratch scratch; /* used by this worker only */
    trmi_cursor cursor;           /* of the sample order */
} trmi_prefetch_worker;

/* A function of the caller's that changes samples in place (own_transform.c). */
enum { TRMI_MAX_OWN_TRANSFORMS = 4 };
/* A function of the caller's that changes samples. */
typedef struct trmi_own_transform {
    trm_sample_transform transform; /* the caller's function */
    void *context;                  /* its first argument */
} trmi_own_transform;

/* The dataset. Members above "once the dataset is sealed" are set by refining calls, those below by
 * trmi_dataset_seal and by reading. */
struct trm_dataset {
    trmi_source *source;                             /* owned */
    trmi_sample_order order;                         /* seed, shuffle and shard */
    trm_transform transforms[TRMI_MAX_TRANSFORMS];   /* image transforms, as given */
    int32_t transform_count;                         /* length of `transforms` */
    trmi_own_transform own[TRMI_MAX_OWN_TRANSFORMS]; /* applied after `transforms` */
    int32_t own_count;                               /* length of `own` */
    int64_t batch_size, passes;  /* passes over the data until the end; 0: for ever */
    bool drop_remainder, sealed; /* no short last batch; refining calls fail */
    bool sharded;                /* the program has chosen its part (trm_dataset_shard) */
    int64_t depth, threads;      /* batches prepared ahead; threads (0: none) */

    /* Set once the dataset is sealed. */
    /* the transforms in executable form */
    trmi_chain chain;
    int32_t field_count;                     /* length of `fields` */
    trmi_field fields[TRM_MAX_BATCH_FIELDS]; /* of a full batch */
    int64_t epoch_batches;                   /* batches of one epoch */

    /* Set while the dataset is read. */
    int64_t epoch, index; /* position: the next batch */
    /* [slot_count] slots of all workers, one worker's after the other's. They stay when the workers
     * end, because the caller may look at its batches after a seek. */
    trmi_batch_slot *slots;
    int64_t slot_count;            /* length of `slots` */
    trmi_prefetch_worker *workers; /* [worker_count] NULL: not started */
    /* length of `workers`; index of the one that has the next batch */
    int64_t worker_count, next_worker;
    trmi_batch_slot *given;         /* slot of the batch that the caller has */
    trmi_prefetch_worker *given_by; /* the worker that the slot belongs to */
    _Atomic(trmi_trace *) trace;    /* records each batch that is filled; NULL: no recording */
    bool failed;                    /* the last batch failed, and the workers have ended */
};

/* Continues an epoch with another number of shards. All shards together have used the first `used`
 * samples of the epoch's order; the rest is distributed over the present shards, as the last
 * batches of the epoch. *first is the first of these batches. Other epochs do not change. (A window
 * shuffle mixes samples across the boundary.) The position is undefined until the next seek.
 *   errors  INVALID */
trm_status trmi_dataset_deal(trm_dataset *dataset, int64_t epoch, int64_t used, int64_t *first,
                             trm_error *err);
/* Gives this rank part `index` of `count`, unless the program has chosen its part itself. The
 * position is undefined until the next seek.
 *   errors  those of trm_dataset_check */
trm_status trmi_dataset_share(trm_dataset *dataset, int32_t count, int32_t index,
                              trm_shard_mode mode, trm_error *err);
/* Makes `groups` groups of neighbouring parts, each of which has the same samples with any number
 * of parts: as with `takes` parts. groups 0: none. The position is undefined until the next
 * seek. */
void trmi_dataset_group(trm_dataset *dataset, int32_t groups, int32_t takes);
/* Changes the batch size of a dataset that is being read. The position is undefined until the next
 * seek.
 *   errors  those of trm_dataset_check */
trm_status trmi_dataset_rebatch(trm_dataset *dataset, int64_t size, trm_error *err);
/* Computes a digest that identifies the data, so that a resume can detect another data set. It
 * covers the counts of samples and classes, and the content of samples spread over the source (256
 * images, 1024 rows, fewer above 64 MB, 64 of callbacks and arrays): two data sets that differ only
 * in other samples have one digest. Shards, order, batches and transforms have no effect.
 *   errors  NOMEM, those of reading a sample of the program's own data */
trm_status trmi_dataset_fingerprint(const trm_dataset *dataset, uint64_t *out, trm_error *err);
/* Checks the pipeline and computes chain, fields and epoch_batches. Does nothing if they are
 * known. */
trm_status trmi_dataset_seal(trm_dataset *dataset, trm_error *err);
/* Fills `slot` with batch `number` (epoch * epoch_batches + index). Status and error are in the
 * slot. */
void trmi_slot_fill(trm_dataset *dataset, trmi_prefetch_worker *worker, int64_t number,
                    trmi_batch_slot *slot);
/* Completes the error of a function of the caller's (`what`) for sample `index`: an error without a
 * text gets one, and each gets the sample's number. Returns the status. */
trm_status trmi_name_sample(trm_status status, int64_t index, const char *what, trm_error *err);
/* own_transform.c: checks that every field has one row for each sample, and applies the caller's
 * functions to the samples of a batch. */
trm_status trmi_check_transforms(const trm_dataset *dataset, trm_error *err);
trm_status trmi_transform_samples(const trm_dataset *dataset, const trmi_batch_work *work,
                                  trm_error *err);
/* Creates buffers, unless there are some, and workers, starting at the present position. */
trm_status trmi_dataset_start(trm_dataset *dataset, trm_error *err);
/* Ends the workers. */
void trmi_dataset_stop(trm_dataset *dataset);
/* Frees the buffers of a dataset whose workers have ended. */
void trmi_dataset_drop_buffers(trm_dataset *dataset);

#endif
