/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/source.h: the interface of sources of samples, and what the dataset lends them.
 *
 *   trmi_source (not changed after creation, shared by all workers)
 *      | load: one encoded or raw image      fill: a whole batch of rows
 *      v
 *   trmi_picture_scratch (one for each worker: buffers that only grow)  -->  trmi_batch_slot (reused)
 *
 * A source has either `load` (image sources: the dataset transforms and batches the images) or
 * `fields` and `fill` (row sources, which write batches themselves). */
#ifndef TRMI_DATA_SOURCE_H
#define TRMI_DATA_SOURCE_H

#include "trireme/data.h"

#include "base/format/report.h"

/* transforms of a dataset; longest text of trmi_source_ops.place */
enum { TRMI_MAX_TRANSFORMS = 16, TRMI_PLACE_BYTES = 160 };

typedef struct trmi_source trmi_source;
typedef struct trmi_picture_scratch trmi_picture_scratch;

/* How a source holds an image: three planes, interleaved RGB, or an encoded file. */
typedef enum trmi_form { TRMI_FORM_PLANAR, TRMI_FORM_HWC, TRMI_FORM_ENCODED } trmi_form;

/* One image as its source holds it. It is borrowed from the source or from the scratch until the
 * next load. */
typedef struct trmi_sample {
    trmi_form form;        /* how `data` is to be read */
    const uint8_t *data;   /* pixels, or the encoded file */
    size_t bytes;          /* length of `data` */
    int64_t height, width; /* not for encoded images */
    int32_t label;         /* class, from 0 */
} trmi_sample;

/* One field of a batch. */
typedef struct trmi_field {
    const char *name; /* lives as long as the source */
    trm_dtype dtype;  /* of the elements */
    trm_shape shape;  /* of the whole batch; a ragged field has its capacity in dim 0 */
    bool ragged;      /* dim 0 differs between batches */
} trmi_field;

/* One batch to be filled: samples indices[0 .. count) of an epoch, into tensors with room for
 * `slots` rows. */
typedef struct trmi_batch_work {
    const int64_t *indices; /* [count] samples of the source */
    int64_t count;          /* samples, at most `slots` */
    int64_t slots;          /* rows of the tensors; those from `count` on are padding */
    uint64_t epoch_seed;    /* seed of augmentation in this epoch */
    trm_tensor *tensors;    /* by field; fill may reduce dim[0] of ragged ones */
} trmi_batch_work;

/* The functions of a kind of source. */
typedef struct trmi_source_ops {
    const char *kind;
    /* Image sources: reads one image. */
    trm_status (*load)(const trmi_source *source, trmi_picture_scratch *scratch, int64_t index,
                       trmi_sample *out, trm_error *err);
    /* Row sources: their fields for batches of `size`, filling a batch, and (may be NULL) what is
     * written once into each new buffer. */
    int32_t (*fields)(const trmi_source *source, int64_t size, trmi_field *fields);
    trm_status (*fill)(const trmi_source *source, trmi_picture_scratch *scratch,
                       const trmi_batch_work *work, trm_error *err);
    void (*prepare)(const trmi_source *source, int64_t size, trm_tensor *tensors);
    /* For sources that map files (NULL: none). Returns an error if a file has become shorter since
     * it was opened (base/mapping.h), otherwise `status`. Called after a batch was read; checks at
     * least the files of its samples. `work` NULL: checks all files. */
    trm_status (*check)(const trmi_source *source, const trmi_batch_work *work, trm_status status,
                        trm_error *err);
    /* Writes where sample `index` is, for messages ("data_batch_1.bin: record 17"). */
    void (*place)(const trmi_source *source, int64_t index, char *text, size_t size);
    /* Puts members into the object "source" of the dataset's description, which is open. */
    void (*describe)(const trmi_source *source, trmi_report *report);
    void (*destroy)(trmi_source *source);
} trmi_source_ops;

/* The first member of all sources. */
struct trmi_source {
    const trmi_source_ops *ops; /* functions of its kind */
    int64_t count;              /* number of samples */
    int64_t classes;            /* number of labels; 0: none */
    trmi_form form;             /* of all images */
    int64_t height, width;      /* 0: images differ in size */
    bool in_order;              /* samples can be read in rising order only */
};

/* The uses of a worker's buffers. Each buffer only grows. */
enum {
    TRMI_SCRATCH_FILE,
    TRMI_SCRATCH_PIXELS_A,
    TRMI_SCRATCH_PIXELS_B,
    TRMI_SCRATCH_RESIZE,
    TRMI_SCRATCH_WEIGHTS,
    TRMI_SCRATCH_SOURCE,
    TRMI_SCRATCH_KINDS
};
/* A worker's buffers. */
struct trmi_picture_scratch {
    void *data[TRMI_SCRATCH_KINDS];   /* by use; NULL: not used yet */
    size_t bytes[TRMI_SCRATCH_KINDS]; /* length of each buffer */
    void *decoder;                    /* a TurboJPEG handle, created on first use */
};
/* Returns at least `bytes` of buffer `which`; earlier contents are lost. NULL if there is no
 * memory. */
void *trmi_scratch_get(trmi_picture_scratch *scratch, int which, size_t bytes);
void trmi_scratch_free(trmi_picture_scratch *scratch);

/* Creates a dataset around `source` and takes ownership of it, also on failure. */
trm_status trmi_dataset_create(trmi_source *source, trm_dataset **out, trm_error *err);

/* Draws sample `index` of the shapes as 3072 planar bytes; its label is trmi_shape_label. */
void trmi_shape_draw(uint64_t seed, int64_t index, uint8_t *planar);
int32_t trmi_shape_label(uint64_t seed, int64_t index);

#endif
