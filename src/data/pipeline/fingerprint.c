/* SPDX-License-Identifier: Apache-2.0 */
/* The fingerprint of a dataset: a hash of the number of samples and classes and of some samples,
 * spread evenly over the data. It distinguishes data sets without reading them completely.
 *
 *   rows     1024 samples, fewer (but at least 64) where they exceed 64 MB
 *   images   256 samples, encoded as they are stored
 *   own      64 samples of callbacks and arrays: the caller's function may be slow
 *
 * A change of one sample in a hundred is missed with probability 0.99^1024 = 3e-5 for rows,
 * 0.99^256 = 0.08 for images. */
#include "data/pipeline/dataset.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/memory.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Rows that are read at a time, samples of each form at most, and bytes of rows that are read. */
enum { CHUNK = 64, ROWS_MAX = 1024, IMAGES = 256, BYTES_MAX = 64 << 20 };

/* Adds samples of an image source. One that cannot be read counts as empty: the training that needs
 * it reports the error. */
static void add_images(const trmi_source *source, const int64_t *indices, int64_t count,
                       XXH3_state_t *state) {
    trmi_picture_scratch scratch = {0};
    for (int64_t i = 0; i < count; i++) {
        trmi_sample sample = {0};
        trm_error unheard;
        if (source->ops->load(source, &scratch, indices[i], &sample, &unheard) != TRM_OK) {
            continue;
        }
        const int64_t head[4] = {sample.label, sample.height, sample.width, (int64_t)sample.bytes};
        XXH3_64bits_update(state, head, sizeof head);
        if (sample.bytes > 0) {
            trmi_xxh3_update(state, sample.data, sample.bytes);
        }
    }
    trmi_scratch_free(&scratch);
}

/* Allocates the tensors of a batch. */
static trm_status make_tensors(const trmi_field *fields, int32_t field_count, trm_tensor *tensors,
                               trm_error *err) {
    for (int32_t i = 0; i < field_count; i++) {
        tensors[i] = (trm_tensor){.dtype = fields[i].dtype, .shape = fields[i].shape};
        tensors[i].data = trmi_alloc((size_t)trm_tensor_bytes(&tensors[i]) + 1);
        if (tensors[i].data == NULL) {
            return TRMI_NO_MEMORY(err, "for %d samples of the data", CHUNK);
        }
    }
    return TRM_OK;
}

/* Adds samples of a row source: fills batches of CHUNK with them and hashes names and contents of
 * the fields. Samples that cannot be read count as empty.
 *   errors  NOMEM */
static trm_status add_rows(const trmi_source *source, const int64_t *indices, int64_t count,
                           XXH3_state_t *state, trm_error *err) {
    trmi_field fields[TRM_MAX_BATCH_FIELDS];
    trm_tensor tensors[TRM_MAX_BATCH_FIELDS] = {0};
    trmi_picture_scratch scratch = {0};
    trm_error unheard;
    const int64_t size = trmi_min_i64(CHUNK, count);
    int32_t field_count = source->ops->fields(source, size, fields);
    trm_status status = make_tensors(fields, field_count, tensors, err);
    if (status == TRM_OK && source->ops->prepare != NULL) {
        source->ops->prepare(source, size, tensors);
    }
    for (int64_t begin = 0; status == TRM_OK && begin + size <= count; begin += size) {
        const trmi_batch_work work = {
            .indices = indices + begin, .count = size, .slots = size, .tensors = tensors};
        if (source->ops->fill(source, &scratch, &work, &unheard) != TRM_OK) {
            continue;
        }
        for (int32_t i = 0; i < field_count; i++) {
            XXH3_64bits_update(state, fields[i].name, strlen(fields[i].name));
            trmi_xxh3_update(state, tensors[i].data, (size_t)trm_tensor_bytes(&tensors[i]));
        }
    }
    for (int32_t i = 0; i < field_count; i++) {
        trmi_free(tensors[i].data);
    }
    trmi_scratch_free(&scratch);
    return status;
}

/* Returns how many samples to hash; of rows a multiple of CHUNK, or all. */
static int64_t samples_of(const trmi_source *source) {
    trmi_field fields[TRM_MAX_BATCH_FIELDS];
    int64_t bytes = 1;
    if (source->ops->load != NULL) {
        return trmi_min_i64(IMAGES, source->count);
    }
    if (source->count <= CHUNK || strcmp(source->ops->kind, "own") == 0) {
        return trmi_min_i64(CHUNK, source->count);
    }
    int32_t field_count = source->ops->fields(source, CHUNK, fields);
    for (int32_t i = 0; i < field_count; i++) {
        const trm_tensor tensor = {.dtype = fields[i].dtype, .shape = fields[i].shape};
        bytes += trm_tensor_bytes(&tensor);
    }
    int64_t most = trmi_min_i64(trmi_min_i64(ROWS_MAX, source->count), BYTES_MAX / bytes * CHUNK);
    return most < CHUNK ? CHUNK : most / CHUNK * CHUNK;
}

/* Contract in dataset.h. A source that can only be read in order is not read: its samples would be
 * lost to the training. */
trm_status trmi_dataset_fingerprint(const trm_dataset *dataset, uint64_t *out, trm_error *err) {
    const trmi_source *source = dataset->source;
    const int64_t count = source->in_order ? 0 : samples_of(source);
    const int64_t head[2] = {source->count, source->classes};
    int64_t indices[ROWS_MAX];
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, head, sizeof head);
    for (int64_t i = 0; i < count; i++) { /* includes the first and the last sample */
        indices[i] = count == 1
                         ? 0
                         : (int64_t)((double)i / (double)(count - 1) * (double)(source->count - 1));
    }
    if (count > 0 && source->ops->load != NULL) {
        add_images(source, indices, count, &state);
    } else if (count > 0) {
        TRMI_TRY(add_rows(source, indices, count, &state, err));
    }
    *out = XXH3_64bits_digest(&state);
    return TRM_OK;
}
