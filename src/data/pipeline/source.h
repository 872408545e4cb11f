/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/source.h: what a source of samples is, and the dataset that refines it.
 *
 *   trmi_source (read-only once made, shared by all workers)
 *      | load: one encoded or raw image      fill: a whole batch of rows
 *      v
 *   trmi_picture_scratch (one per worker: buffers that only grow)  -->  trmi_batch_slot (one batch, recycled)
 */
#ifndef TRMI_DATA_SOURCE_H
#define TRMI_DATA_SOURCE_H

#include "trireme/data.h"

#include "base/memory.h"

enum { TRMI_MAX_TRANSFORMS = 16, TRMI_PLACE_BYTES = 160 };

typedef struct trmi_source trmi_source;
typedef struct trmi_picture_scratch trmi_picture_scratch;

typedef enum trmi_form { TRMI_FORM_PLANAR, TRMI_FORM_HWC, TRMI_FORM_ENCODED } trmi_form;

/* One image as its source holds it. Borrowed from the source or the scratch until the next load. */
typedef struct trmi_sample {
    trmi_form form;
    const uint8_t *data;
    size_t bytes;
    int64_t height, width; /* unless encoded */
    int32_t label;
} trmi_sample;

/* What a batch is made of, per field; `capacity` counts elements of a whole batch. */
typedef struct trmi_field {
    const char *name;
    trm_dtype dtype;
    trm_shape shape; /* of the batch; a ragged field shows its capacity in dim 0 */
    bool ragged;
} trmi_field;

/* The work order for one batch: samples indices[0..count) of an epoch into views of `slots` rows.
 */
typedef struct trmi_batch_work {
    const int64_t *indices;
    int64_t count;
    int64_t slots;
    uint64_t epoch_seed; /* of augmentation */
    trm_tensor *tensors; /* by field; fill may shorten dim[0] of ragged ones */
} trmi_batch_work;

typedef struct trmi_source_ops {
    const char *kind;
    /* Image sources. */
    trm_status (*load)(const trmi_source *source, trmi_picture_scratch *scratch, int64_t index,
                       trmi_sample *out, trm_error *err);
    /* Row sources: their own fields for batches of `size`, the filling, and what is written once
     * into each new buffer (may be NULL). */
    int32_t (*fields)(const trmi_source *source, int64_t size, trmi_field *fields);
    trm_status (*fill)(const trmi_source *source, trmi_picture_scratch *scratch,
                       const trmi_batch_work *work, trm_error *err);
    void (*prepare)(const trmi_source *source, int64_t size, trm_tensor *tensors);
    /* Of sources that map files (NULL: none): the error of a file that has become shorter since it was
     * opened (base/mapping.h), else `status`. Called when a batch was read, for the files of its
     * samples at least; `work` NULL: for all files. */
    trm_status (*check)(const trmi_source *source, const trmi_batch_work *work, trm_status status,
                        trm_error *err);
    /* Where sample `index` lies, for error messages ("data_batch_1.bin: record 17"). */
    void (*place)(const trmi_source *source, int64_t index, char *text, size_t size);
    /* Appends ,"key":value members. */
    void (*describe)(const trmi_source *source, trmi_text *text);
    void (*destroy)(trmi_source *source);
} trmi_source_ops;

struct trmi_source {
    const trmi_source_ops *ops;
    int64_t count;
    int64_t classes;
    trmi_form form;
    int64_t height, width; /* 0 = they differ */
};

/* A worker's buffers by use; each only grows. */
enum {
    TRMI_SCRATCH_FILE,
    TRMI_SCRATCH_PIXELS_A,
    TRMI_SCRATCH_PIXELS_B,
    TRMI_SCRATCH_RESIZE,
    TRMI_SCRATCH_WEIGHTS,
    TRMI_SCRATCH_SOURCE,
    TRMI_SCRATCH_KINDS
};
struct trmi_picture_scratch {
    void *data[TRMI_SCRATCH_KINDS];
    size_t bytes[TRMI_SCRATCH_KINDS];
    void *decoder; /* a TurboJPEG handle, made on first use */
};
/* At least `bytes` of the buffer `which`; old contents are not kept. NULL when there is none. */
void *trmi_scratch_get(trmi_picture_scratch *scratch, int which, size_t bytes);
void trmi_scratch_free(trmi_picture_scratch *scratch);

/* A dataset around `source`, which it takes over (destroys on failure too). */
trm_status trmi_dataset_create(trmi_source *source, trm_dataset **out, trm_error *err);

/* Writes the 3072 planar bytes of sample `index`; its label is trmi_shape_label(...). */
void trmi_shape_draw(uint64_t seed, int64_t index, uint8_t *planar);
int32_t trmi_shape_label(uint64_t seed, int64_t index);

#endif
