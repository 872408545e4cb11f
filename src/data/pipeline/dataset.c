/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset object: created around a source, refined by calls (shard, shuffle, map, batch, ...),
 * and sealed by the first reading. After that, refining calls fail.
 *
 * A refining call checks its own arguments; trmi_dataset_seal checks what they mean together. No
 * call reads data. A dataset is used by one thread at a time; its own prefetch threads
 * (read_ahead.c) run only between trmi_dataset_start and trmi_dataset_stop. */
#include "data/pipeline/dataset.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

enum { PREFETCH_MAX = 1024, THREADS_MAX = 256 }; /* upper limits of the refining calls */
static const int64_t window_max = (int64_t)1 << 28, batch_max = (int64_t)1 << 24;

/* Takes over the source, which is destroyed even if this fails. The defaults: no shuffle, batches
 * of one sample, one pass. */
trm_status trmi_dataset_create(trmi_source *source, trm_dataset **out, trm_error *err) {
    trm_dataset *dataset = trmi_alloc(sizeof *dataset);
    if (dataset == NULL) {
        source->ops->destroy(source);
        return TRMI_NO_MEMORY(err, "for a dataset");
    }
    dataset->source = source;
    dataset->order = (trmi_sample_order){.count = source->count, .shards = 1};
    dataset->batch_size = 1;
    dataset->passes = 1;
    *out = dataset;
    return TRM_OK;
}

void trm_dataset_destroy(trm_dataset *dataset) {
    if (dataset == NULL) {
        return;
    }
    /* The threads use the source, so they stop first. */
    trmi_dataset_stop(dataset);
    trmi_dataset_drop_buffers(dataset);
    dataset->source->ops->destroy(dataset->source);
    trmi_free(dataset);
}

/* --- refining calls --- */

/* Fails if the dataset is sealed. `verb` names the call. */
static trm_status open_for(const trm_dataset *dataset, const char *verb, trm_error *err) {
    if (dataset->sealed) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the dataset is being read; refine it before", verb);
    }
    return TRM_OK;
}

trm_status trm_dataset_seed(trm_dataset *dataset, uint64_t seed, trm_error *err) {
    TRMI_NEED(err, dataset);
    TRMI_TRY(open_for(dataset, "seed", err));
    dataset->order.seed = seed;
    return TRM_OK;
}

/* Contract in trireme/data.h. The program's own choice has precedence over that of the model
 * (trmi_dataset_share). */
trm_status trm_dataset_shard(trm_dataset *dataset, int64_t count, int64_t index,
                             trm_shard_mode mode, trm_error *err) {
    TRMI_NEED(err, dataset);
    TRMI_TRY(open_for(dataset, "shard", err));
    if (count < 1 || index < 0 || index >= count) {
        return TRMI_FAIL(err, TRM_INVALID, "shard %lld of %lld: 0 <= index < count expected",
                         (long long)index, (long long)count);
    }
    if (mode < TRM_SHARD_WRAP || mode > TRM_SHARD_PAD) {
        return TRMI_FAIL(err, TRM_INVALID, "shard mode %d: wrap, drop or pad expected", (int)mode);
    }
    if (count > INT32_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%lld shards, at most %d expected", (long long)count,
                         INT32_MAX);
    }
    dataset->order.shards = count;
    dataset->order.shard = index;
    dataset->order.mode = mode;
    dataset->sharded = true;
    return TRM_OK;
}

/* Contract in dataset.h. The model calls this for its ranks, so a program need not know them. */
trm_status trmi_dataset_share(trm_dataset *dataset, int32_t count, int32_t index,
                              trm_shard_mode mode, trm_error *err) {
    trmi_sample_order *o = &dataset->order;
    /* The program has chosen its part: only compare it with the number of ranks. */
    if (dataset->sharded) {
        if (o->shards > 1 && o->shards != count) {
            trmi_log(
                TRM_LOG_WARN, "data",
                "the dataset is part %lld of %lld, but the model has %d ranks: make them equal, "
                "or leave trm_dataset_shard out",
                (long long)o->shard, (long long)o->shards, count);
        }
        return TRM_OK;
    }
    if (o->shards == count && o->shard == index && o->mode == mode) {
        return TRM_OK;
    }
    /* A new part changes fields and number of batches: seal again. */
    trmi_dataset_stop(dataset);
    trmi_dataset_drop_buffers(dataset);
    dataset->sealed = false;
    o->shards = count;
    o->shard = index;
    o->mode = mode;
    dataset->epoch = dataset->index = 0;
    return trmi_dataset_seal(dataset, err);
}

void trmi_dataset_group(trm_dataset *dataset, int32_t groups, int32_t takes) {
    trmi_sample_order *o = &dataset->order;
    if (o->groups != groups || o->group_takes != takes) {
        trmi_dataset_stop(dataset);
        o->groups = groups;
        o->group_takes = takes;
        dataset->epoch = dataset->index = 0;
    }
}

/* Contract in dataset.h. Buffers have the size of a batch, so they are made anew. */
trm_status trmi_dataset_rebatch(trm_dataset *dataset, int64_t size, trm_error *err) {
    if (dataset->batch_size == size) {
        return TRM_OK;
    }
    trmi_dataset_stop(dataset);
    trmi_dataset_drop_buffers(dataset);
    dataset->sealed = false;
    dataset->batch_size = size;
    dataset->epoch = dataset->index = 0;
    return trmi_dataset_seal(dataset, err);
}

/* Contract in trireme/data.h. The permutation needs no memory; a window needs one number a
 * place. */
trm_status trm_dataset_shuffle(trm_dataset *dataset, int64_t window, trm_error *err) {
    TRMI_NEED(err, dataset);
    TRMI_TRY(open_for(dataset, "shuffle", err));
    if (window < 0 || window > window_max) {
        return TRMI_FAIL(err, TRM_INVALID, "shuffle window %lld: 0..%lld expected",
                         (long long)window, (long long)window_max);
    }
    dataset->order.shuffled = true;
    dataset->order.window = window;
    return TRM_OK;
}

/* Contract in trireme/data.h. Whether the steps fit together is checked by trmi_chain_build, when
 * the source's sizes are known. */
trm_status trm_dataset_map(trm_dataset *dataset, const trm_transform *transforms, int32_t count,
                           trm_error *err) {
    TRMI_NEED(err, dataset);
    if (count > 0) {
        TRMI_NEED(err, transforms);
    }
    TRMI_TRY(open_for(dataset, "map", err));
    if (count < 0 || count > TRMI_MAX_TRANSFORMS - dataset->transform_count) {
        return TRMI_FAIL(err, TRM_INVALID, "map: %d transforms, at most %d in all", (int)count,
                         TRMI_MAX_TRANSFORMS);
    }
    /* Rows have no pixels. */
    if (count > 0 && dataset->source->ops->load == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "map: a dataset of kind %s takes no image transforms; of data of the "
                         "program's own only fields image (uint8 [height, width, 3]) and label do",
                         dataset->source->ops->kind);
    }
    for (int32_t i = 0; i < count; i++) {
        if (transforms[i].kind < TRM_TRANSFORM_DECODE ||
            transforms[i].kind > TRM_TRANSFORM_TYPE_CAST) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "map: transform %d has unknown kind %d, a trm_transform_kind expected",
                             (int)i, (int)transforms[i].kind);
        }
        dataset->transforms[dataset->transform_count + i] = transforms[i];
    }
    dataset->transform_count += count;
    return TRM_OK;
}

trm_status trm_dataset_batch(trm_dataset *dataset, int64_t size, bool drop_remainder,
                             trm_error *err) {
    TRMI_NEED(err, dataset);
    TRMI_TRY(open_for(dataset, "batch", err));
    if (size < 1 || size > batch_max) {
        return TRMI_FAIL(err, TRM_INVALID, "batch of %lld: 1..%lld expected", (long long)size,
                         (long long)batch_max);
    }
    dataset->batch_size = size;
    dataset->drop_remainder = drop_remainder;
    return TRM_OK;
}

trm_status trm_dataset_repeat(trm_dataset *dataset, int64_t passes, trm_error *err) {
    TRMI_NEED(err, dataset);
    TRMI_TRY(open_for(dataset, "repeat", err));
    if (passes < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "repeat %lld: 1 and more, or 0 for ever, expected",
                         (long long)passes);
    }
    dataset->passes = passes;
    return TRM_OK;
}

trm_status trm_dataset_prefetch(trm_dataset *dataset, int64_t depth, int64_t threads,
                                trm_error *err) {
    TRMI_NEED(err, dataset);
    TRMI_TRY(open_for(dataset, "prefetch", err));
    if (depth < 0 || depth > PREFETCH_MAX || threads < 0 || threads > THREADS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "prefetch of %lld batches by %lld threads: at most %d by %d",
                         (long long)depth, (long long)threads, PREFETCH_MAX, THREADS_MAX);
    }
    /* Without depth there are no threads; with threads, each has at least one batch. */
    dataset->threads = depth == 0 ? 0 : trmi_max_i64(threads, 1);
    dataset->depth = depth == 0 ? 0 : trmi_max_i64(depth, dataset->threads);
    return TRM_OK;
}
