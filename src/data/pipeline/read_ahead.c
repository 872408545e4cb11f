/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a dataset: slots, workers, position. The drawing is in dataset.h.
 *
 * Batch `number` (epoch * batches + index) is filled by worker `number` modulo the number of
 * workers, so the caller takes batches from the workers in turn and the order does not depend on
 * their speed. A slot belongs to one side at a time: idle queue, worker, ready queue, caller. The
 * contents of a batch are a function of the dataset and of its number, so reading can begin
 * anywhere. */
#include "data/pipeline/dataset.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/image/picture.h"

#include <stdio.h>
#include <string.h>

void trmi_scratch_free(trmi_picture_scratch *scratch) {
    for (int i = 0; i < TRMI_SCRATCH_KINDS; i++) {
        trmi_free(scratch->data[i]);
    }
    trmi_picture_close(scratch);
    *scratch = (trmi_picture_scratch){0};
}

/* ---- one batch --------------------------------------------------------------------------- */

/* Fills the batch of an image source: loads and transforms each sample, then pads the rest. */
static trm_status fill_images(const trm_dataset *dataset, trmi_prefetch_worker *worker,
                              const trmi_batch_work *work, trm_error *err) {
    const trmi_source *source = dataset->source;
    const trmi_chain *chain = &dataset->chain;
    /* Load the image, transform it, write the label. */
    size_t image_bytes = (size_t)(chain->height * chain->width * 3) * trm_dtype_bytes(chain->dtype);
    uint8_t *images = work->tensors[0].data;
    int32_t *labels = work->tensors[1].data;
    for (int64_t i = 0; i < work->count; i++) {
        trmi_sample sample;
        int64_t index = work->indices[i];
        TRMI_TRY(source->ops->load(source, &worker->scratch, index, &sample, err));
        trm_status status = trmi_chain_run(chain, &worker->scratch, &sample, work->epoch_seed,
                                           index, images + (size_t)i * image_bytes, err);
        /* The chain has no name of the sample's file, so its place is added here. */
        if (status != TRM_OK) {
            char place[TRMI_PLACE_BYTES];
            source->ops->place(source, index, place, sizeof place);
            (void)trmi_error_append(err, " (%s)", place);
            return status;
        }
        labels[i] = sample.label;
    }
    /* Padding rows are zero and have label -1. */
    memset(images + (size_t)work->count * image_bytes, 0,
           (size_t)(work->slots - work->count) * image_bytes);
    for (int64_t i = work->count; i < work->slots; i++) {
        labels[i] = -1;
    }
    return TRM_OK;
}

/* The dataset of which this thread fills a batch. A function of the program that asks the same
 * dataset for a batch would wait for itself. One that asks another dataset, whose function asks the
 * first one, is not found. */
static _Thread_local const trm_dataset *filling;

/* Returns INVALID in a function that the dataset itself has called to fill a batch. */
static trm_status check_not_filling(const trm_dataset *dataset, trm_error *err) {
    return filling != dataset ? TRM_OK
                              : TRMI_FAIL(err, TRM_INVALID,
                                          "a function that fills a batch of a dataset reads this "
                                          "dataset itself; use another one in it");
}

/* Contract in dataset.h. Only the slot and the worker change, so workers fill slots side by
 * side. */
void trmi_slot_fill(trm_dataset *dataset, trmi_prefetch_worker *worker, int64_t number,
                    trmi_batch_slot *slot) {
    const trmi_sample_order *order = &dataset->order;
    /* Find the samples of the batch. */
    int64_t epoch = number / dataset->epoch_batches, index = number % dataset->epoch_batches;
    int64_t first = index * dataset->batch_size;
    int64_t count = trmi_min_i64(dataset->batch_size, trmi_order_real(order) - first);
    count = trmi_max_i64(count, 0);
    trmi_cursor_read(&worker->cursor, order, epoch, first, count, slot->indices);
    trm_tensor tensors[TRM_MAX_BATCH_FIELDS];
    /* Make views of the slot's memory; ragged fields are set back to their capacity. */
    for (int32_t i = 0; i < dataset->field_count; i++) {
        tensors[i] = slot->batch.fields[i].tensor;
        tensors[i].shape = dataset->fields[i].shape;
    }
    trmi_batch_work work = {.indices = slot->indices,
                            .count = count,
                            .slots = dataset->batch_size,
                            .epoch_seed = trmi_mix(order->seed, (uint64_t)epoch),
                            .tensors = tensors};
    /* The source fills the views, then its mappings are checked, then transforms of the program
     * run. */
    const trmi_source_ops *ops = dataset->source->ops;
    const trm_dataset *outer = filling;
    filling = dataset;
    slot->status = ops->load != NULL
                       ? fill_images(dataset, worker, &work, &slot->error)
                       : ops->fill(dataset->source, &worker->scratch, &work, &slot->error);
    if (ops->check != NULL) {
        slot->status = ops->check(dataset->source, &work, slot->status, &slot->error);
    }
    if (slot->status == TRM_OK) {
        slot->status = trmi_transform_samples(dataset, &work, &slot->error);
    }
    filling = outer;
    /* Members of the batch besides the tensors. */
    slot->batch.epoch = epoch;
    slot->batch.index = index;
    slot->batch.samples = count;
    slot->batch.last = index + 1 == dataset->epoch_batches;
    /* A ragged field has become as long as its contents. */
    for (int32_t i = 0; i < dataset->field_count; i++) {
        slot->batch.fields[i].tensor.shape = tensors[i].shape;
    }
}

/* Allocates a slot's memory: the indices, and a tensor for each field with room for a full batch.
 *   errors  NOMEM; trmi_dataset_drop_buffers frees what there is */
static trm_status slot_create(const trm_dataset *dataset, trmi_batch_slot *slot, trm_error *err) {
    trm_tensor tensors[TRM_MAX_BATCH_FIELDS];
    slot->indices = trmi_alloc((size_t)dataset->batch_size * sizeof *slot->indices);
    bool short_of_memory = slot->indices == NULL;
    slot->batch.field_count = dataset->field_count;
    for (int32_t i = 0; i < dataset->field_count; i++) {
        const trmi_field *field = &dataset->fields[i];
        trm_tensor tensor = {.dtype = field->dtype, .shape = field->shape};
        slot->memory[i] = tensor.data = trmi_alloc((size_t)trm_tensor_bytes(&tensor));
        short_of_memory |= tensor.data == NULL;
        slot->batch.fields[i] = (trm_batch_field){field->name, tensor};
        tensors[i] = tensor;
    }
    if (short_of_memory) {
        return TRMI_NO_MEMORY(err, "for batches of %lld samples, %lld ahead",
                              (long long)dataset->batch_size, (long long)dataset->depth);
    }
    /* A source may write what is the same in every batch. */
    if (dataset->source->ops->prepare != NULL) {
        dataset->source->ops->prepare(dataset->source, dataset->batch_size, tensors);
    }
    return TRM_OK;
}

/* Contract in dataset.h. No worker may run. */
void trmi_dataset_drop_buffers(trm_dataset *dataset) {
    for (int64_t i = 0; i < dataset->slot_count; i++) {
        trmi_batch_slot *slot = &dataset->slots[i];
        for (int32_t k = 0; k < TRM_MAX_BATCH_FIELDS; k++) {
            trmi_free(slot->memory[k]);
        }
        trmi_free(slot->indices);
    }
    trmi_free(dataset->slots);
    dataset->slots = NULL;
    dataset->slot_count = 0;
}

/* Allocates the slots of all workers, unless they are there.
 *   errors  NOMEM */
static trm_status create_buffers(trm_dataset *dataset, int64_t count, trm_error *err) {
    if (dataset->slots != NULL) {
        TRMI_ASSERT(dataset->slot_count == count);
        return TRM_OK;
    }
    dataset->slots = trmi_alloc((size_t)count * sizeof *dataset->slots);
    if (dataset->slots == NULL) {
        return TRMI_NO_MEMORY(err, "for %lld batches", (long long)count);
    }
    dataset->slot_count = count;
    for (int64_t i = 0; i < count; i++) {
        trm_status status = slot_create(dataset, &dataset->slots[i], err);
        if (status != TRM_OK) {
            trmi_dataset_drop_buffers(dataset);
            return status;
        }
    }
    return TRM_OK;
}

/* ---- workers ------------------------------------------------------------------------------ */

/* Fills a slot as trmi_slot_fill does, and records the work in the timeline of the training, if
 * there is one. */
static void fill_recorded(trmi_prefetch_worker *worker, int64_t number, trmi_batch_slot *slot) {
    trm_dataset *dataset = worker->dataset;
    trmi_trace *trace = atomic_load(&dataset->trace);
    double begin = trace != NULL ? trmi_os_now() : 0;
    trmi_slot_fill(dataset, worker, number, slot);
    if (trace != NULL) {
        /* Tracks are numbered like the workers. */
        char track[32], name[64];
        snprintf(track, sizeof track, "data %d", (int)(worker - dataset->workers));
        snprintf(name, sizeof name, "batch %lld of epoch %lld", (long long)slot->batch.index + 1,
                 (long long)slot->batch.epoch + 1);
        trmi_trace_add(trace, &(trmi_trace_event){.category = "data",
                                                  .name = name,
                                                  .begin = begin,
                                                  .end = trmi_os_now(),
                                                  .bytes = -1,
                                                  .track = trmi_trace_track(trace, track)});
    }
}

/* Runs a prefetch thread: takes an idle slot, fills it with its next batch, and passes it on. It
 * ends when a queue is closed. */
static void *prefetch_main(void *argument) {
    trmi_prefetch_worker *worker = argument;
    void *item;
    for (int64_t number = worker->first; trmi_queue_pop(worker->idle, -1, &item) == TRM_OK;
         number += worker->stride) {
        fill_recorded(worker, number, item);
        if (trmi_queue_push(worker->ready, item) != TRM_OK) {
            break;
        }
    }
    return NULL;
}

/* Initialises a worker with `count` slots and, unless the dataset has no threads, starts it. After
 * an error, trmi_dataset_stop frees what the worker has.
 *   errors  NOMEM */
static trm_status worker_start(trm_dataset *dataset, trmi_prefetch_worker *worker,
                               trmi_batch_slot *slots, int64_t count, trm_error *err) {
    worker->dataset = dataset;
    if (!trmi_cursor_init(&worker->cursor, &dataset->order)) {
        return TRMI_NO_MEMORY(err, "for a shuffle window of %lld",
                              (long long)dataset->order.window);
    }
    /* Without threads the caller fills the only slot. */
    if (dataset->threads == 0) {
        return TRM_OK;
    }
    /* All slots begin in the idle queue; both queues have room for all of them. */
    TRMI_TRY(trmi_queue_create(count, &worker->idle, err));
    TRMI_TRY(trmi_queue_create(count, &worker->ready, err));
    for (int64_t i = 0; i < count; i++) {
        TRMI_TRY(trmi_queue_push(worker->idle, &slots[i]));
    }
    int failed = pthread_create(&worker->thread, NULL, prefetch_main, worker);
    if (failed != 0) {
        return TRMI_FAIL(
            err, TRM_NOMEM,
            "prefetch: no memory or no right for a thread (%s); fewer --workers may do",
            strerror(failed));
    }
    worker->running = true;
    return TRM_OK;
}

/* Returns the slots of a worker: its share of the depth, and one more, because the caller holds
 * one. */
static int64_t slots_each(const trm_dataset *dataset) {
    int64_t workers = trmi_max_i64(dataset->threads, 1);
    return dataset->threads == 0 ? 1 : (dataset->depth + workers) / workers;
}

/* Contract in trireme/data.h. Counts the buffers that reading will take, also before it has
 * begun. */
int64_t trm_dataset_buffer_bytes(trm_dataset *dataset) {
    TRMI_NEED_OR(0, NULL, dataset);
    if (trmi_dataset_seal(dataset, NULL) != TRM_OK) {
        return 0;
    }
    int64_t bytes = dataset->batch_size * (int64_t)sizeof(int64_t); /* indices */
    for (int32_t i = 0; i < dataset->field_count; i++) {
        const trmi_field *field = &dataset->fields[i];
        bytes += trm_shape_count(&field->shape) * (int64_t)trm_dtype_bytes(field->dtype);
    }
    return bytes * trmi_max_i64(dataset->threads, 1) * slots_each(dataset);
}

/* Contract in dataset.h. Without threads there is one worker, whose batches the caller fills
 * itself. */
trm_status trmi_dataset_start(trm_dataset *dataset, trm_error *err) {
    int64_t workers = trmi_max_i64(dataset->threads, 1), each = slots_each(dataset);
    TRMI_TRY(create_buffers(dataset, workers * each, err));
    dataset->workers = trmi_alloc((size_t)workers * sizeof *dataset->workers);
    if (dataset->workers == NULL) {
        return TRMI_NO_MEMORY(err, "for %lld prefetch threads", (long long)workers);
    }
    /* Each worker begins with its first batch from the present position on. */
    dataset->worker_count = workers;
    dataset->next_worker = 0;
    for (int64_t w = 0; w < workers; w++) {
        trmi_prefetch_worker *worker = &dataset->workers[w];
        worker->first = dataset->epoch * dataset->epoch_batches + dataset->index + w;
        worker->stride = workers;
        trm_status status = worker_start(dataset, worker, dataset->slots + w * each, each, err);
        if (status != TRM_OK) {
            trmi_dataset_stop(dataset);
            return status;
        }
    }
    return TRM_OK;
}

/* Closing the queues wakes the workers, which then end. */
void trmi_dataset_stop(trm_dataset *dataset) {
    /* First close all queues, then wait: a worker may sleep in either of its queues. */
    for (int64_t w = 0; w < dataset->worker_count; w++) {
        trmi_prefetch_worker *worker = &dataset->workers[w];
        if (worker->idle != NULL) {
            trmi_queue_close(worker->idle);
        }
        if (worker->ready != NULL) {
            trmi_queue_close(worker->ready);
        }
    }
    for (int64_t w = 0; w < dataset->worker_count; w++) {
        trmi_prefetch_worker *worker = &dataset->workers[w];
        if (worker->running) {
            pthread_join(worker->thread, NULL);
        }
        trmi_queue_destroy(worker->idle);
        trmi_queue_destroy(worker->ready);
        trmi_scratch_free(&worker->scratch);
        trmi_cursor_free(&worker->cursor);
    }
    trmi_free(dataset->workers);
    dataset->workers = NULL;
    dataset->worker_count = 0;
    dataset->given = NULL;
}

/* ---- the caller's side --------------------------------------------------------------------- */

/* Returns the slot of the next batch: fills it here, or takes it from the worker whose turn it
 * is. */
static trmi_batch_slot *next_slot(trm_dataset *dataset) {
    trmi_prefetch_worker *worker = &dataset->workers[dataset->next_worker];
    if (dataset->threads == 0) {
        fill_recorded(worker, dataset->epoch * dataset->epoch_batches + dataset->index,
                      &dataset->slots[0]);
        return &dataset->slots[0];
    }
    void *item = NULL;
    trm_status status = trmi_queue_pop(worker->ready, -1, &item);
    TRMI_ASSERT(status == TRM_OK);
    dataset->given = item;
    dataset->given_by = worker;
    return item;
}

/* Contract in trireme/data.h. The batch is borrowed from the worker that has filled it, until the
 * next call gives its slot back. */
trm_status trm_dataset_next(trm_dataset *dataset, const trm_batch **out, trm_error *err) {
    TRMI_NEED(err, dataset, out);
    TRMI_TRY(check_not_filling(dataset, err));
    TRMI_TRY(trmi_dataset_seal(dataset, err));
    /* The previous batch goes back to its worker. */
    if (dataset->given != NULL) {
        trm_status returned = trmi_queue_push(dataset->given_by->idle, dataset->given);
        TRMI_ASSERT(returned == TRM_OK);
        dataset->given = NULL;
    }
    /* The end of an epoch, perhaps of the last pass. */
    if (dataset->index == dataset->epoch_batches) {
        dataset->epoch++;
        dataset->index = 0;
        if (dataset->passes != 0 && dataset->epoch % dataset->passes == 0) {
            return TRM_END;
        }
    }
    /* The first batch after opening or seeking starts the workers. */
    if (dataset->workers == NULL) {
        TRMI_TRY(trmi_dataset_start(dataset, err));
    }
    trmi_batch_slot *slot = next_slot(dataset);
    /* The failure ends reading. The next call starts again at the same batch. */
    if (slot->status != TRM_OK) {
        trm_status status = slot->status;
        if (err != NULL) {
            *err = slot->error;
        }
        trmi_dataset_stop(dataset);
        return status;
    }
    dataset->index++;
    dataset->next_worker = (dataset->next_worker + 1) % dataset->worker_count;
    *out = &slot->batch;
    return TRM_OK;
}

const trm_tensor *trm_batch_tensor(const trm_batch *batch, const char *name) {
    TRMI_NEED_OR(NULL, NULL, batch, name);
    for (int32_t i = 0; i < batch->field_count; i++) {
        if (strcmp(batch->fields[i].name, name) == 0) {
            return &batch->fields[i].tensor;
        }
    }
    return NULL;
}

void trm_dataset_position(const trm_dataset *dataset, int64_t *epoch, int64_t *batch_index) {
    TRMI_NEED_OR(, NULL, dataset, epoch, batch_index);
    *epoch = dataset->epoch;
    *batch_index = dataset->index;
}

/* Contract in dataset.h. Used when a job goes on with another number of ranks in the middle of an
 * epoch: the new ranks share what is left of it. */
trm_status trmi_dataset_deal(trm_dataset *dataset, int64_t epoch, int64_t used, int64_t *first,
                             trm_error *err) {
    TRMI_TRY(trmi_dataset_seal(dataset, err));
    trmi_sample_order *order = &dataset->order;
    const int64_t size = dataset->batch_size;
    if (epoch < 0 || used < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%lld samples of epoch %lld: numbers >= 0 expected",
                         (long long)used, (long long)epoch);
    }
    /* The places that are left for each shard, and the batches that they make, give the position;
     * the shift makes these batches contain the samples that are left. */
    const int64_t places = trmi_order_places_of(order, trmi_max_i64(order->count - used, 0));
    const int64_t left = dataset->drop_remainder ? places / size : (places + size - 1) / size;
    trmi_dataset_stop(dataset);
    *first = dataset->epoch_batches - left;
    order->moved_epoch = epoch;
    order->moved = used - *first * size * order->shards;
    return TRM_OK;
}

/* Contract in trireme/data.h. Workers stop, and begin at the new position with the next reading. */
trm_status trm_dataset_seek(trm_dataset *dataset, int64_t epoch, int64_t batch_index,
                            trm_error *err) {
    TRMI_NEED(err, dataset);
    const int64_t epoch_max = (int64_t)1 << 31;
    TRMI_TRY(check_not_filling(dataset, err));
    TRMI_TRY(trmi_dataset_seal(dataset, err));
    if (epoch < 0 || epoch > epoch_max || batch_index < 0 || batch_index > dataset->epoch_batches) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "seek to epoch %lld, batch %lld: an epoch has %lld batches; both are counted from 0",
            (long long)epoch, (long long)batch_index, (long long)dataset->epoch_batches);
    }
    trmi_dataset_stop(dataset);
    dataset->epoch = epoch;
    dataset->index = batch_index;
    return TRM_OK;
}
