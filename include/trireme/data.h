/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/data.h: files to batches, for all doors: trireme/train.h reads a dataset itself, other
 * programs call trm_dataset_next. A source makes a dataset, further calls refine it, then it is
 * read.
 *
 *     trm_dataset *data;
 *     trm_dataset_cifar10("cifar-10-batches-bin", TRM_USAGE_TRAIN, &data, &err);
 *     trm_dataset_shuffle(data, 0, &err);
 *     trm_dataset_shard(data, world_size, rank, TRM_SHARD_WRAP, &err);
 *     trm_dataset_map(data, (trm_transform[]){trm_transform_random_crop(32, 32, 4),
 *                     trm_transform_random_flip(0.5), trm_transform_rescale(1 / 255.0, 0),
 *                     trm_transform_normalize(mean, std), trm_transform_hwc2chw()}, 5, &err);
 *     trm_dataset_batch(data, 128, true, &err);
 *     trm_dataset_prefetch(data, 4, 1, &err);
 *     while ((status = trm_dataset_next(data, &batch, &err)) == TRM_OK) { ... }
 *
 * The order of the refining calls does not matter; the steps always run in the order
 *
 *     source -> permutation -> shard -> window shuffle -> transforms (the library's, then the
 *            program's) -> batch -> repeat -> prefetch
 *
 * The result is a pure function: the order of (seed, epoch, shard), the augmentation of a sample of
 * (seed, epoch, its global index in the source). Neither the number of threads or shards nor a
 * resume changes a bit of a sample.
 *
 * Refining calls return TRM_INVALID for impossible arguments, and after reading has begun. Files
 * are mapped (except single images). A file that becomes shorter is TRM_IO with both sizes at the
 * next batch: the library sets the process's SIGBUS handler when it maps a file, and passes faults
 * in other memory on to the handler that was there before.
 *
 * Sections:
 *
 *   sources           files of images, generated sets; data of the program's own
 *   transforms        of images
 *   refining          order, shards, transforms, batches, prefetch
 *   reading           batches and positions
 *   named pipelines   a dataset by name, with the usual pipeline
 *   click data        Criteo, CSV, libsvm and others; vocabularies; a generator
 *   text              tokenizers, files of tokens, datasets of tokens
 *
 *   threads  one thread at a time per dataset; prefetch threads are inside */
#ifndef TRIREME_DATA_H
#define TRIREME_DATA_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dataset: a source with its refinements, position and prefetch threads. */
typedef struct trm_dataset trm_dataset;

/* ---- sources: each makes a dataset in the source's order, of batch size 1 until refined ---- */

/* The part of a data set that a source reads. The default is the training set: a program that
 * forgets the option must not train on test samples. */
typedef enum trm_usage { TRM_USAGE_TRAIN, TRM_USAGE_TEST, TRM_USAGE_ALL } trm_usage;

/* Opens CIFAR-10 in its binary form: records of a label byte and 3072 planar R, G, B bytes. Train
 * reads data_batch_1.bin to data_batch_5.bin, test test_batch.bin, all every *.bin whose name
 * contains "batch", by name. Sizes and labels are checked here, so that a damaged file is named
 * before training starts. Samples are uint8 images [32, 32, 3].
 *   param    path: folder
 *   errors   IO, CORRUPT (with file and place), NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_cifar10(const char *path, trm_usage usage,
                                                    trm_dataset **out, trm_error *err);

/* A generated set of ten shape classes in CIFAR's form, for machines without data: place, size,
 * angle, colours, background and noise vary. Sample i is a function of (seed, i). The test set is
 * disjoint from the training set. Zero means the default. */
typedef struct trm_shapes_options {
    int64_t train_count; /* samples; 0 = 50000 */
    int64_t test_count;  /* samples; 0 = 10000 */
    uint64_t seed;       /* of all samples */
} trm_shapes_options;
/* Opens the generated set of shapes. Samples are uint8 images [32, 32, 3].
 *   param    options: NULL = defaults
 *   errors   INVALID (a count outside of 1 to 100 million), NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_shapes(const trm_shapes_options *options,
                                                   trm_usage usage, trm_dataset **out,
                                                   trm_error *err);
/* Writes the generated set as CIFAR-10 files: five train files, test_batch.bin, batches.meta.txt,
 * and records.txt, which holds the number of records of each file.
 *   param    options: NULL = defaults
 *            path: folder
 *   errors   INVALID (there are such files without records.txt), IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_shapes_write(const trm_shapes_options *options,
                                                 const char *path, trm_error *err);

/* A random batch that repeats for ever, made before reading begins: a pipeline without cost, for
 * benchmarks. Zero means the default. */
typedef struct trm_random_options {
    int64_t count;         /* samples an epoch; 0 = 50000 */
    int64_t channels;      /* 0 = 3 */
    int64_t height, width; /* of an image; must be given */
    int64_t classes;       /* 0 = 10 */
    bool channels_last;    /* images are [H, W, C]; false: [C, H, W] */
} trm_random_options;
/* Opens a random batch that repeats for ever: float32 images, roughly normal, and uniform labels.
 * Takes no transforms.
 *   errors   INVALID, NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_random(const trm_random_options *options,
                                                   trm_dataset **out, trm_error *err);

/* Opens a folder of images, path/class/name.jpeg (or .jpg, .png, in upper or lower case): the label
 * is the index of the class folder in byte order of the names. Samples are encoded; the first
 * transform must be trm_transform_decode.
 *   param    usage: if the folder has subfolders train and val (or test): which one; TRM_USAGE_ALL
 *            reads both
 *   errors   IO (also: no images), CORRUPT (a class that the training set lacks), UNSUPPORTED
 *            (other kinds of files), NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_image_folder(const char *path, trm_usage usage,
                                                         trm_dataset **out, trm_error *err);

/* Opens ImageNet as TFRecords of tf.Example: train-*-of-* (train), validation-*-of-* (test), with
 * the keys image/encoded and image/class/label. Labels 1 to 1000 become 0 to 999; 0 (background) is
 * an error. Checksums of the records' lengths are checked here, those of their content when they
 * are read.
 *   errors   IO, CORRUPT (with file and offset), NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_tfrecord_imagenet(const char *path, trm_usage usage,
                                                              trm_dataset **out, trm_error *err);

/* ---- data of the program's own ------------------------------------------------------------ */

/* One named tensor of a sample or batch. */
typedef struct trm_batch_field {
    /* of files: "image", "label"; "dense", "keys", "offsets", "values"; "tokens", "targets" */
    const char *name;
    trm_tensor tensor; /* its elements */
} trm_batch_field;

/* The most fields of a batch. */
#define TRM_MAX_BATCH_FIELDS 6

/* Writes sample `index` (from 0) of the program's own data. The same index gives the same sample
 * each time.
 *   param    fields: data of the i-th one has room for the i-th field of one sample
 *   returns  TRM_OK, or an error with its sentence in err->message (empty: one is written): reading
 *            the batch then fails with it
 *   threads  all prefetch threads call it at the same time */
typedef trm_status (*trm_sample_read)(void *context, int64_t index, const trm_tensor *fields,
                                      trm_error *err);

/* Data of the program's own, sample by sample. */
typedef struct trm_data_source {
    int64_t samples;     /* number of samples */
    int64_t classes;     /* of an int32 field "label"; 0 = none */
    int32_t field_count; /* number of fields */
    /* name, type and shape of one sample; no data */
    trm_batch_field fields[TRM_MAX_BATCH_FIELDS];
    trm_sample_read read;           /* writes one sample */
    void *context;                  /* for both functions */
    void (*destroy)(void *context); /* called by trm_dataset_destroy; NULL = nothing to do */
    /* a stream: indices come in rising order only, from 0 in each epoch. Not shuffled, at most one
     * prefetch thread; a resume does not notice other contents */
    bool in_order;
} trm_data_source;

/* Opens a dataset of samples that `source->read` writes. A batch of N has fields [N, shape of a
 * sample]. Two fields "image" (uint8 [height, width, 3]) and "label" (int32 []) take the image
 * transforms, too.
 *   errors   INVALID (a field without name, type or size), NOMEM
 *   owns     caller: trm_dataset_destroy(*out); struct and names are copied, the context is taken
 *            unless the call fails */
TRM_API TRM_MUST_USE trm_status trm_dataset_callback(const trm_data_source *source,
                                                     trm_dataset **out, trm_error *err);

/* Opens a dataset of samples in arrays.
 *   param    arrays: [count]; the first dimension of each counts the samples
 *            classes: of an int32 field "label"; 0 = none
 *   errors   INVALID (arrays of unequal length, without data or type), NOMEM
 *   owns     caller: trm_dataset_destroy(*out); the arrays' data are borrowed until then */
TRM_API TRM_MUST_USE trm_status trm_dataset_arrays(const trm_batch_field *arrays, int32_t count,
                                                   int64_t classes, trm_dataset **out,
                                                   trm_error *err);

/* Ends the dataset's threads and frees it with its batches. NULL is accepted. */
TRM_API void trm_dataset_destroy(trm_dataset *dataset);

/* ---- transforms of images --------------------------------------------------------------- */

/* The positions that bilinear sampling reads. Half-pixel: output i reads at (i + 0.5) * in / out -
 * 0.5 (TensorFlow 2, PyTorch, OpenCV). Original: at i * in / out (TensorFlow 1 and MindSpore's
 * first versions, for comparison). Antialias: half-pixel with a triangle as wide as the reduction
 * (PIL, torchvision). */
typedef enum trm_resize_align {
    TRM_RESIZE_HALF_PIXEL,
    TRM_RESIZE_ORIGINAL,
    TRM_RESIZE_ANTIALIAS
} trm_resize_align;

/* Kinds of transforms; a function below makes each. */
typedef enum trm_transform_kind {
    TRM_TRANSFORM_DECODE = 1,
    TRM_TRANSFORM_RANDOM_CROP,
    TRM_TRANSFORM_RANDOM_RESIZED_CROP,
    TRM_TRANSFORM_CENTER_CROP,
    TRM_TRANSFORM_RANDOM_FLIP,
    TRM_TRANSFORM_RESIZE,
    TRM_TRANSFORM_RESIZE_SHORTER,
    TRM_TRANSFORM_RESCALE,
    TRM_TRANSFORM_NORMALIZE,
    TRM_TRANSFORM_HWC2CHW,
    TRM_TRANSFORM_TYPE_CAST
} trm_transform_kind;

/* One step of a chain of transforms, a value that the functions below make. */
typedef struct trm_transform {
    trm_transform_kind kind;        /* the step; the other members are used as its function says */
    int64_t height, width, padding; /* in pixels */
    double probability;             /* of a flip, 0 to 1 */
    double scale, shift;            /* of rescaling */
    double mean[3], std[3];         /* of channels R, G, B */
    double area[2], ratio[2]; /* least and greatest: part of the image's area; width / height */
    trm_resize_align align;   /* positions that resizing reads */
    trm_dtype dtype;          /* of the result of a cast */
    bool exact;               /* decoding without shortcuts */
} trm_transform;

/* Decodes JPEG and PNG, recognised by content, to RGB. Gray, palette and CMYK content is converted,
 * alpha dropped. Other content, an image that ends early, and damage that the decoders notice (JPEG
 * has no checksum) are TRM_CORRUPT with the file's name.
 *   param    exact: false = uses libjpeg-turbo's faster chroma upsampling, and decodes at 1/2, 1/4
 *            or 1/8 where the following crop or resize still shrinks the result */
TRM_API trm_transform trm_transform_decode(bool exact);
/* Cuts out a uniformly placed window of height x width pixels.
 *   param    width: 0 = height
 *            padding: 0 = none; zeros added on each side first */
TRM_API trm_transform trm_transform_random_crop(int64_t height, int64_t width, int64_t padding);
/* Cuts out a window of 0.08 to 1 of the area and of ratio 3/4 to 4/3 (log-uniform; ten tries, then
 * the largest central one), resized to height x width. The caller may change area, ratio and align
 * in the returned value.
 *   param    width: 0 = height */
TRM_API trm_transform trm_transform_random_resized_crop(int64_t height, int64_t width);
/* Cuts out the middle of an image that is at least height x width.
 *   param    width: 0 = height */
TRM_API trm_transform trm_transform_center_crop(int64_t height, int64_t width);
/* Mirrors left and right with a probability. */
TRM_API trm_transform trm_transform_random_flip(double probability);
/* Resizes to height x width. A uint8 image stays uint8 (rounded to nearest), as in OpenCV and
 * torchvision.
 *   param    width: 0 = height
 *            align: where bilinear sampling reads */
TRM_API trm_transform trm_transform_resize(int64_t height, int64_t width, trm_resize_align align);
/* Resizes so that the shorter side has `size` pixels and the ratio stays.
 *   param    align: where bilinear sampling reads */
TRM_API trm_transform trm_transform_resize_shorter(int64_t size, trm_resize_align align);
/* Computes x * scale + shift; from here on the image is float32. */
TRM_API trm_transform trm_transform_rescale(double scale, double shift);
/* Computes (x - mean) / std for each of the channels R, G, B. */
TRM_API trm_transform trm_transform_normalize(const double mean[3], const double std[3]);
/* Makes batches [N, C, H, W]; without it they are [N, H, W, C]. */
TRM_API trm_transform trm_transform_hwc2chw(void);
/* Converts the image to float32, float16 or bfloat16. */
TRM_API trm_transform trm_transform_type_cast(trm_dtype dtype);

/* ---- refining a dataset ------------------------------------------------------------------- */

/* Sets the seed of order and augmentation; without this call it is 0.
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_seed(trm_dataset *dataset, uint64_t seed,
                                                 trm_error *err);

/* The rule for the last samples when the count N is no multiple of the number of shards S.
 *
 *   wrap  every shard has ceil(N/S); the first samples of the order come twice (training)
 *   drop  every shard has floor(N/S); the last samples of the order are left out
 *   pad   every shard has ceil(N/S); the surplus is not counted in batch->samples (evaluation) */
typedef enum trm_shard_mode { TRM_SHARD_WRAP, TRM_SHARD_DROP, TRM_SHARD_PAD } trm_shard_mode;
/* Reads shard `index` of `count`: places index, index + count, ... of the one global order. A model
 * with ranks shards a dataset itself unless the program has called this (training wraps, evaluation
 * pads).
 *   param    count: 1: every rank reads all of it
 *            index: 0 to count - 1
 *            mode: how the last samples are shared
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_shard(trm_dataset *dataset, int64_t count,
                                                  int64_t index, trm_shard_mode mode,
                                                  trm_error *err);
/* Reads in a new order each epoch: one permutation of the whole source, the same on all shards.
 *   param    window: above 1: also shuffles within a window of so many samples of the shard
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_shuffle(trm_dataset *dataset, int64_t window,
                                                    trm_error *err);
/* Appends transforms of images to the chain, at most 16 in all. Geometry comes before rescaling and
 * normalising.
 *   param    transforms: [count], copied
 *   errors   INVALID, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_dataset_map(trm_dataset *dataset,
                                                const trm_transform *transforms, int32_t count,
                                                trm_error *err);
/* Changes one sample in place, after all other transforms.
 *   param    seed: function of the dataset's seed, the epoch and `index`: random numbers drawn from
 *            it are the same on any thread, on any shard and after a resume
 *            fields: as in the batch, shapes without the first dimension
 *   returns  as trm_sample_read
 *   threads  all prefetch threads call it at the same time */
typedef trm_status (*trm_sample_transform)(void *context, int64_t index, uint64_t seed,
                                           const trm_tensor *fields, trm_error *err);
/* Appends a transform of the program's own, at most 4. Fields without one row a sample (ragged
 * keys) are an error of trm_dataset_check.
 *   errors   INVALID
 *   owns     context is borrowed until trm_dataset_destroy */
TRM_API TRM_MUST_USE trm_status trm_dataset_transform(trm_dataset *dataset,
                                                      trm_sample_transform transform, void *context,
                                                      trm_error *err);
/* Sets the number of samples in a batch.
 *   param    size: samples of this shard, at least 1
 *            drop_remainder: false = the last batch of an epoch keeps its shape; rows from
 *            batch->samples on are zero, with int32 labels -1 (trm_xent_options.ignore_index)
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_batch(trm_dataset *dataset, int64_t size,
                                                  bool drop_remainder, trm_error *err);
/* Ends after `passes` epochs (TRM_END) in place of each one. An epoch stays one pass: batch->epoch
 * counts passes, and trm_dataset_epoch_batches is of one.
 *   param    passes: 0 = it never ends
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_repeat(trm_dataset *dataset, int64_t passes,
                                                   trm_error *err);
/* Fills whole batches ahead with `threads` threads. Without this call trm_dataset_next fills the
 * batch itself.
 *   param    depth: batches in all, at least one a thread; 0 = no prefetch
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_prefetch(trm_dataset *dataset, int64_t depth,
                                                     int64_t threads, trm_error *err);

/* ---- reading ---------------------------------------------------------------------------- */

/* One batch. */
typedef struct trm_batch {
    int64_t epoch;                                /* from 0 */
    int64_t index;                                /* within the epoch, from 0 */
    int64_t samples;                              /* real ones; further rows are padding */
    bool last;                                    /* the epoch's last batch */
    int32_t field_count;                          /* number of fields */
    trm_batch_field fields[TRM_MAX_BATCH_FIELDS]; /* [field_count] */
} trm_batch;

/* Gives the next batch. The call after TRM_END begins the next epoch. An unreadable sample is an
 * error with file and record, and the position stays at that batch. After the first call nothing is
 * allocated, except that scratch memory for encoded images grows to the largest image.
 *   errors   END (the epoch is over), IO, CORRUPT, NOMEM, those of trm_dataset_check
 *   owns     the dataset: *out is valid until the next call on it */
TRM_API TRM_MUST_USE trm_status trm_dataset_next(trm_dataset *dataset, const trm_batch **out,
                                                 trm_error *err);
/* Returns the field of this name; NULL if there is none.
 *   owns     the batch */
TRM_API const trm_tensor *trm_batch_tensor(const trm_batch *batch, const char *name);

/* Gives the position of the next batch: after the k-th batch of epoch e it is (e, k), also at its
 * end (trm_dataset_next then returns TRM_END first).
 *   param    epoch, batch_index: both from 0, written */
TRM_API void trm_dataset_position(const trm_dataset *dataset, int64_t *epoch, int64_t *batch_index);
/* Continues from a position; the batches are bit for bit those of a run without a stop.
 *   param    epoch, batch_index: both from 0, as trm_dataset_position gives them
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_dataset_seek(trm_dataset *dataset, int64_t epoch,
                                                 int64_t batch_index, trm_error *err);

/* Checks that the whole pipeline fits together, as trm_dataset_next does first. Refining calls are
 * errors afterwards.
 *   errors   INVALID (naming the step that does not fit), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_dataset_check(trm_dataset *dataset, trm_error *err);
/* Returns the batches in an epoch of this shard; 0 if the pipeline does not check. */
TRM_API int64_t trm_dataset_epoch_batches(trm_dataset *dataset);
/* Returns the samples of the whole source. */
TRM_API int64_t trm_dataset_sample_count(const trm_dataset *dataset);
/* Returns the classes of the source's label; 0 if there are none. */
TRM_API int64_t trm_dataset_class_count(const trm_dataset *dataset);
/* Gives name, type and shape of a field of a batch; tensor.data is NULL. A ragged field has its
 * largest size.
 *   param    index: from 0
 *   returns  false after the last field, or if the pipeline does not check */
TRM_API bool trm_dataset_field(trm_dataset *dataset, int32_t index, trm_batch_field *out);
/* Returns the bytes of all batches that reading keeps: those made ahead and the current one,
 * without images that threads are decoding; 0 if the pipeline does not check. */
TRM_API int64_t trm_dataset_buffer_bytes(trm_dataset *dataset);
/* Returns the whole pipeline as a JSON object: source, files, count, refinements, transforms,
 * fields.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free */
TRM_API char *trm_dataset_json(trm_dataset *dataset);

/* ---- named pipelines --------------------------------------------------------------------- */

struct trm_click_options; /* below */
struct trm_text_options;  /* below */

/* A dataset by name, as the command line has it. Zero means the default. */
typedef struct trm_dataset_spec {
    /* synth (the generated shapes), random, cifar10, imagefolder, tfrecord (of images), clicks
     * (generated), criteo, avazu, csv, libsvm, slots, tfrecord-clicks, tokens, text, jsonl; NULL or
     * "auto" = recognised by the path */
    const char *kind;
    const char *path;   /* file or folder; "synth" and "clicks" are the generated sets */
    trm_usage usage;    /* which part */
    int64_t batch_size; /* 0 = 32 */
    int64_t image_size; /* 0 = 32 for CIFAR-10 and shapes, 224 otherwise */
    int64_t classes;    /* random only; 0 = 10 */
    /* as trm_dataset_shard; count 0 = not set: a model with ranks shards the data */
    int64_t shard_count, shard_index;
    uint64_t seed;                   /* of order and augmentation */
    int64_t prefetch_depth, threads; /* 0 = 4 batches ahead by one thread; depth TRM_NONE = none */
    bool channels_last;              /* images are [H, W, C] */
    /* by which images are normalised, channels R, G, B; std 0 = those of the kind */
    double image_mean[3], image_std[3];
    trm_switch augment; /* TRM_OFF: the training set in the form of the test set, in order */
    /* a fixed recipe for CIFAR-10: every *batch*.bin file (so the test set too), mean and std in B,
     * G, R order, 224 x 224, and shuffle(10) on top of the permutation */
    bool fixed_recipe;
    const struct trm_click_options *click; /* options of click data; NULL = defaults */
    const struct trm_text_options *text;   /* of tokens, text and jsonl; NULL = defaults */
    const trm_shapes_options *shapes;      /* of synth; NULL = the default set */
} trm_dataset_spec;

/* Opens a dataset with the usual pipeline. Train: permuted, augmented (32 pixels: crop and flip;
 * else decode, random resized crop and flip), shards wrap, the remainder is dropped. Test: in
 * order, not augmented (resize and centre crop), shards pad, the remainder is kept.
 *   errors   INVALID (nothing recognised, with what was expected), those of the source
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_open(const trm_dataset_spec *spec, trm_dataset **out,
                                                 trm_error *err);

/* ==== click data ============================================================================ */

/* Click data: Criteo, Avazu and other CSV, libsvm, slots, tf.Example, and a generator whose best
 * possible AUC is known. The datasets are refined and read as all others (without image
 * transforms). A batch has the fields
 *
 *     label    float32 [N]      0 or 1
 *     dense    float32 [N, D]   unless there are no dense columns
 *     keys     int64 [N, F]     when every row has exactly one key in each of F fields
 *
 * or, if a field may hold several keys (a bag), ragged:
 *
 *     keys     int64 [K]        fields of row 0, then of row 1, ...
 *     offsets  int64 [N*F + 1]  bag b is keys[offsets[b] .. offsets[b+1])
 *     values   float32 [K]      libsvm only: the weight of each key
 *
 * Rows from batch->samples on are zero, with empty bags. */

/* ---- how text becomes numbers ---------------------------------------------------------------- */

/* Use of a column. */
typedef enum trm_column_role {
    TRM_COLUMN_SKIP,
    TRM_COLUMN_LABEL,
    TRM_COLUMN_DENSE,
    TRM_COLUMN_KEY,
    TRM_COLUMN_BAG /* several keys in one field */
} trm_column_role;

/* A column of CSV or a feature of tf.Example. */
typedef struct trm_column {
    const char *name;     /* in the header line, or of the feature in a tf.Example */
    trm_column_role role; /* use of the column */
    int32_t last_chars;   /* keys: only the last so many characters are used; 0 = all */
} trm_column;

/* The transform of dense inputs. */
typedef enum trm_dense_form {
    TRM_DENSE_DEFAULT, /* log for Criteo, raw otherwise */
    TRM_DENSE_RAW,
    TRM_DENSE_LOG /* log(1 + max(x, 0)), as DLRM */
} trm_dense_form;

/* Presence of a header line in a CSV file. AUTO: the first line decides. */
typedef enum trm_header_line { TRM_HEADER_AUTO, TRM_HEADER_YES, TRM_HEADER_NO } trm_header_line;

/* A vocabulary: for each field of click data, the values that have an id. */
typedef struct trm_vocabulary trm_vocabulary;

/* Options of turning text into keys and numbers. Equal texts in two fields are different keys,
 * unless same_as says otherwise. A missing value is key 0 where keys are bounded (buckets or
 * vocabulary); with unbounded keys each field has a key for "missing". Zero means the default. */
typedef struct trm_click_options {
    /* keys are 1 + hash % (buckets - 1), 0 = missing; 0 = unbounded: 63-bit hashes, for dynamic
     * tables */
    int64_t buckets;
    /* in place of buckets: ids from 1, 0 = missing or unknown. Borrowed; NULL = none */
    const trm_vocabulary *vocabulary;
    /* bounded keys of field f begin after those of the fields before: one table */
    bool shared_table;
    /* [same_as_count]: texts of field f have the keys of field same_as[f]. Borrowed while the
     * dataset lives; further fields have their own keys */
    const int32_t *same_as;
    int32_t same_as_count; /* 0 = none */
    uint64_t hash_seed;    /* of the hash of texts */
    trm_dense_form dense;  /* form of dense inputs */
    float missing_dense;   /* value of an empty dense column, after the form */
    /* a label is 1 from this value on (ratings); 0 = labels are 0 or 1 */
    float label_threshold;

    /* [column_count], CSV and tf.Example: roles by name, or by position where there is no header.
     * Other columns are skipped. NULL (CSV with header): the column label, click, target or y is
     * the label and all others are keys */
    const trm_column *columns;
    int32_t column_count;   /* 0 = none */
    char separator;         /* 0 = comma */
    char bag_separator;     /* 0 = | */
    int64_t bag_max;        /* most keys of a bag, more is an error; 0 = 16 */
    trm_header_line header; /* auto: the first line is a header if its label is no number */

    /* trm_dataset_open, kind clicks; NULL = defaults */
    const struct trm_click_generator_options *generator;
} trm_click_options;

/* Opens files of click data. A bad row is reported with its line or record when it is read.
 *
 *   criteo            label, 13 integers, 26 categories, tab-separated, no header
 *   avazu             id (skipped), click, hour (its last two digits), C1 to C21: 22 keys; with or
 *                     without a header
 *   csv               any separator, quotes around fields (but no line breaks in them)
 *   libsvm            "label index:value ..." gives one field of bags, "label field:index:value ..."
 *                     (libffm) one for each field. Labels are 1 and +1, 0 and -1. Indices are the
 *                     keys unless buckets or a vocabulary is given
 *   slots             "slot:value ...", as Paddle's recommendation models read: the slot click or
 *                     label is the label, dense_feature or dense has numbers (in each row as many
 *                     as in the first), any other is a field of bags whose values are hashed.
 *                     Fields are in the order of the slots' numbers, then names; options->columns
 *                     chooses slots, roles and their order
 *   tfrecord-clicks   TFRecords of tf.Example; options->columns names the features. Dense inputs and
 *                     label are float or int64 lists, keys are bytes (hashed) or int64 (as they
 *                     are, unless bounded)
 *   param    kind: a name of the list
 *            path: a file, or a folder with train and test, whose training part is read
 *            options: NULL = defaults
 *   errors   IO, CORRUPT, INVALID (kind, options, columns), NOMEM, with the file
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_click_file(const char *kind, const char *path,
                                                       const trm_click_options *options,
                                                       trm_dataset **out, trm_error *err);

/* ---- vocabularies --------------------------------------------------------------------------- */

/* Reads a whole file, or the training part of a folder, and numbers the values that come at least
 * min_count times, by field, in order of appearance.
 *   param    kind: as for trm_dataset_click_file
 *            options: as for reading
 *   errors   those of the source and of its rows
 *   owns     caller: trm_vocabulary_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_build(const char *kind, const char *path,
                                                     const trm_click_options *options,
                                                     int64_t min_count, trm_vocabulary **out,
                                                     trm_error *err);
/* Frees the vocabulary. NULL is accepted. */
TRM_API void trm_vocabulary_destroy(trm_vocabulary *vocabulary);
/* Writes a vocabulary as text, complete or not at all: a line "trireme-vocabulary 1 FIELDS SEED",
 * then "field hash" lines in order of the ids.
 *   errors   IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_save(const trm_vocabulary *vocabulary,
                                                    const char *path, trm_error *err);
/* Reads a vocabulary.
 *   errors   IO, CORRUPT (with the line), NOMEM
 *   owns     caller: trm_vocabulary_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_load(const char *path, trm_vocabulary **out,
                                                    trm_error *err);
/* Returns the number of fields. */
TRM_API int32_t trm_vocabulary_fields(const trm_vocabulary *vocabulary);
/* Returns the rows that a table of this field needs: its ids and 0.
 *   param    field: 0 to trm_vocabulary_fields - 1 */
TRM_API int64_t trm_vocabulary_rows(const trm_vocabulary *vocabulary, int32_t field);

/* ---- generated clicks ----------------------------------------------------------------------- */

/* A planted model: logit = bias + sum of a weight per key + sum of weights times dense inputs + sum
 * over pairs of fields of <u_key, u_key'>; the label is 1 with that probability. Keys are
 * Zipf-distributed ranks, dense inputs standard normal. Row i is a function of (seed, i). Zero
 * means the default. */
typedef struct trm_click_generator_options {
    int64_t rows;       /* training rows; 0 = 1,000,000. Test rows are disjoint from them */
    int64_t test_rows;  /* 0 = rows / 10 */
    int32_t fields;     /* 0 = 26; TRM_NONE = none */
    int32_t dense;      /* inputs; 0 = 13; TRM_NONE = none */
    int64_t vocabulary; /* keys a field; 0 = 100,000 */
    double zipf;        /* exponent; 0 = 1.1 */
    double click_rate;  /* approximate; sets the bias; 0 = 0.25 */
    double key_scale;   /* deviation of the sum of key weights; 0 = 1 */
    double dense_scale; /* of the dense part; 0 = 0.5 */
    double pair_scale;  /* of the pairs; 0 = 0.5; TRM_NONE = none */
    bool wide_keys;     /* 63-bit keys without order, for dynamic tables */
    /* keys of field f begin at f * vocabulary: one table. Not with wide_keys */
    bool shared_table;
    uint64_t seed; /* of model and rows */
} trm_click_generator_options;
/* Opens generated clicks of a planted model.
 *   param    options: NULL = defaults
 *   errors   INVALID, NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_clicks(const trm_click_generator_options *options,
                                                   trm_usage usage, trm_dataset **out,
                                                   trm_error *err);

/* Random rows, made before reading begins and kept: batches at almost no cost, for measuring. Keys
 * as numpy.random.zipf(zipf) % vocabulary, dense inputs uniform in [0, 1), labels random. Zero
 * means the default. */
typedef struct trm_click_random_options {
    int64_t count;      /* rows; 0 = 32768 */
    int32_t fields;     /* 0 = 26 */
    int32_t dense;      /* inputs; 0 = 13; TRM_NONE = none */
    int64_t vocabulary; /* keys a field; 0 = 100,000 */
    double zipf;        /* exponent above 1; 0 = 1.2 */
    double click_rate;  /* 0 = 0.25 */
    /* keys of each field begin at 0; false: those of field f at f * vocabulary, one table */
    bool own_tables;
    uint64_t seed; /* of all rows */
    /* that draw the rows at creation; 0 = OMP_NUM_THREADS, or without it the CPUs that this process
     * may use. The rows do not depend on it */
    int32_t threads;
} trm_click_random_options;
/* Opens random click rows.
 *   param    options: NULL = defaults
 *   errors   INVALID, NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_random_clicks(const trm_click_random_options *options,
                                                          trm_dataset **out, trm_error *err);

/* Metrics of the planted probabilities: the best that a model can reach on average. auc and logloss
 * are expectations over the labels (their only error is the choice of rows); compare a model on the
 * same rows with the realised ones, which use the rows' labels. */
typedef struct trm_clicks_bayes {
    double auc, logloss, click_rate;       /* expectations */
    double realized_auc, realized_logloss; /* with the labels of the rows */
} trm_clicks_bayes;
/* Computes the best possible AUC and log loss of generated clicks, in about 8 microseconds and 24
 * bytes a row.
 *   param    rows: first test rows; 0 = all
 *   errors   INVALID, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_clicks_measure(const trm_click_generator_options *options,
                                                   int64_t rows, trm_clicks_bayes *out,
                                                   trm_error *err);

/* ==== text ================================================================================== */

/* Text for language models: tokenizers, and datasets of tokens.
 *
 *     trm_tokenizer *tokenizer;
 *     trm_tokenizer_train((const char *[]){"input.txt"}, 1,
 *                         &(trm_tokenizer_options){.vocabulary = 8192}, &tokenizer, &err);
 *     trm_tokenizer_save(tokenizer, "tokenizer", &err);
 *     trm_dataset_text("input.txt", TRM_USAGE_TRAIN,
 *                      &(trm_text_options){.tokenizer = "tokenizer", .context = 256}, &data, &err);
 *
 * A tokenizer is byte-level BPE as Hugging Face's `tokenizers` package writes it, or one token for
 * each character of a text. It gives the ids of the package (its `encode` without the tokens that a
 * post-processor adds). Bytes that are not UTF-8 are encoded as they are, so that decoding returns
 * every text bit for bit; the package has no such texts. */

/* ---- tokenizers ---------------------------------------------------------------------------- */

/* A tokenizer: text to ids and back. */
typedef struct trm_tokenizer trm_tokenizer;

/* Options of learning a tokenizer. Zero means the default, except for `vocabulary`. */
typedef struct trm_tokenizer_options {
    int64_t vocabulary; /* most tokens: the special ones, 256 bytes, and merges */
    int64_t min_count;  /* pairs that come less often are not merged; 0 = 2 */
    /* [special_count]: "<|endoftext|>": never split, have the first ids */
    const char *const *special_tokens;
    int32_t special_count; /* 0 = none */
} trm_tokenizer_options;

/* Learns byte-level BPE from text files, line by line: the same merges in the same order as the
 * package's ByteLevelBPETokenizer. At least one line is needed. Memory grows with the distinct
 * words of the files.
 *   param    paths: [count]
 *   errors   IO, INVALID (a vocabulary below 256 + special_count), CORRUPT (an empty file), NOMEM
 *   owns     caller: trm_tokenizer_destroy(*out)
 *   source   Sennrich et al. 2016 */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_train(const char *const *paths, int32_t count,
                                                    const trm_tokenizer_options *options,
                                                    trm_tokenizer **out, trm_error *err);

/* Reads a tokenizer.json, or a folder with tokenizer.json, or else with vocab.json and merges.txt
 * (then as GPT-2's: its regular expression, and <|endoftext|> is special if no merge makes it).
 *   errors   IO, CORRUPT, UNSUPPORTED (naming the part that is not byte-level BPE of GPT-2's, Llama
 *            3's or Qwen 2's form), NOMEM
 *   owns     caller: trm_tokenizer_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_open(const char *path, trm_tokenizer **out,
                                                   trm_error *err);
/* Makes a tokenizer of 256 tokens: the id is the byte.
 *   errors   NOMEM
 *   owns     caller: trm_tokenizer_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_bytes(trm_tokenizer **out, trm_error *err);
/* Makes a tokenizer with one token for each character of a text, in the order of code points
 * (nanoGPT's character recipe).
 *   param    text: [bytes]
 *   errors   INVALID (an empty text), CORRUPT (not UTF-8), NOMEM
 *   owns     caller: trm_tokenizer_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_characters(const char *text, size_t bytes,
                                                         trm_tokenizer **out, trm_error *err);
/* Writes tokenizer.json, which the package and `transformers` load, vocab.json and merges.txt;
 * makes the folder.
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_save(const trm_tokenizer *tokenizer,
                                                   const char *folder, trm_error *err);
/* Frees the tokenizer. NULL is accepted. */
TRM_API void trm_tokenizer_destroy(trm_tokenizer *tokenizer);

/* Returns one more than the largest id. */
TRM_API int64_t trm_tokenizer_vocabulary(const trm_tokenizer *tokenizer);
/* Returns the id of a token, spelled as in tokenizer.json ("<|endoftext|>"); -1 if there is none.
 */
TRM_API int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token);
/* Returns the id of the token that the post-processor of tokenizer.json puts before a text
 * (<|begin_of_text|> of Llama 3); -1 if there is none. Encoding does not add it. */
TRM_API int32_t trm_tokenizer_begin(const trm_tokenizer *tokenizer);
/* Returns the id of the token after a document: <|endoftext|>, <|end_of_text|> or </s>; -1 if the
 * tokenizer has none of them. */
TRM_API int32_t trm_tokenizer_end(const trm_tokenizer *tokenizer);

/* A list of ids. Starts as {0}. */
typedef struct trm_tokens {
    int32_t *ids;            /* [count] */
    int64_t count, capacity; /* ids; room for ids */
} trm_tokens;
/* Frees the ids and empties the list. */
TRM_API void trm_tokens_free(trm_tokens *tokens);

/* Appends the tokens of a text. Special tokens in the text become their ids.
 *   param    text: [bytes]
 *   errors   INVALID (a byte or character without a token, with its offset; `tokens` then has those
 *            before it), NOMEM
 *   owns     caller: trm_tokens_free(tokens)
 *   threads  one thread at a time per tokenizer (it caches the tokens of words) */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_encode(trm_tokenizer *tokenizer, const char *text,
                                                     size_t bytes, trm_tokens *tokens,
                                                     trm_error *err);
/* Gives the text of ids, special ones included: bytes, and a zero byte after them.
 *   param    ids: [count]
 *            bytes: length of the text, written
 *   errors   INVALID (an id without a token), NOMEM
 *   owns     caller: trm_free(*out) */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_decode(const trm_tokenizer *tokenizer,
                                                     const int32_t *ids, int64_t count, char **out,
                                                     size_t *bytes, trm_error *err);

/* ---- files of tokens ----------------------------------------------------------------------- */

/* Writes ids below 65536 as nanoGPT does: uint16, little-endian, no header.
 *   errors   INVALID (an id that does not fit), IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_tokens_write(const trm_tokens *tokens, const char *path,
                                                 trm_error *err);
/* Appends the ids of a file of tokens, nanoGPT's or llm.c's. After an error `tokens` is unchanged.
 *   errors   IO, CORRUPT, UNSUPPORTED (llm.c's form with ids of 32 bits), NOMEM
 *   owns     caller: trm_tokens_free(tokens) */
TRM_API TRM_MUST_USE trm_status trm_tokens_read(const char *path, trm_tokens *tokens,
                                                trm_error *err);

/* ---- datasets of tokens -------------------------------------------------------------------- */
/* Options of cutting text into samples. A sample is `context` tokens and, for each, the next token:
 * fields "tokens" and "targets", both int32 [context]. Sample i begins at token i * stride of its
 * part; samples do not reach from one file into the next. A target of -100 is to be ignored: after
 * the last token of a sample that is shorter than the context, and in rows of a batch that have no
 * sample. There the token is the tokenizer's [PAD] or <pad>, else 0.
 *
 * With `masking` the tokens to predict are in the sample itself: of n tokens round(n * masking), at
 * least one, are targets, and the others' targets are to be ignored. Of these tokens 80 % are read
 * as the mask token, 10 % as a random one and 10 % as they are (Devlin et al. 2018). The choice is
 * a function of the sample's number, in training also of seed and epoch. A field "mask", int32
 * [context], has 1 for tokens of the sample and 0 after its last one. With `boundary_tokens` [CLS]
 * and [SEP] (or <s> and </s>) stand around the tokens of a sample, two fewer; they are no targets.
 *
 * Training reads the first 90 % and testing the rest (nanoGPT's split: of characters, of documents,
 * or of ids), unless the files come in two kinds: those with "train" in their name, and those with
 * "val", "valid", "validation", "test" or "dev". Zero means the default. */
typedef struct trm_text_options {
    const char *tokenizer; /* folder or tokenizer.json; text needs this or `tokens` */
    /* "characters" (numbered over all files) or "bytes"; NULL = by the tokenizer */
    const char *tokens;
    const char *text_field; /* of JSON lines; NULL = "text" */
    int64_t context;        /* tokens of a sample; 0 = 256 */
    int64_t stride;         /* tokens between the beginnings of samples; 0 = context */
    int64_t vocabulary;     /* ids of token files are below it; 0 = the tokenizer's, else 65536 */
    /* share of a sample's tokens that are to be predicted, for bert: 0.15. 0 = the next ones are */
    double masking;
    /* each line of a text, each document of JSON lines, is a sample of its own, or several if it is
     * longer; empty lines are skipped. Else samples are windows over the whole text */
    bool documents;
    trm_switch boundary_tokens; /* default: on, with `masking` and a tokenizer that has them */
    /* id that stands for masked tokens; 0 = the tokenizer's "[MASK]" or "<mask>", else the
     * vocabulary's last id, one more than the tokenizer has */
    int64_t mask_token;
} trm_text_options;

/* Opens files of ids (.bin), nanoGPT's or llm.c's, which are mapped. Ids beyond the vocabulary are
 * an error of the batch that has them.
 *   errors   IO (no such files), CORRUPT (file, place, found and expected), INVALID (a context that
 *            is longer than a part), UNSUPPORTED (as trm_tokens_read), NOMEM
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_tokens(const char *path, trm_usage usage,
                                                   const trm_text_options *options,
                                                   trm_dataset **out, trm_error *err);
/* Opens text files (.txt). Characters and bytes are read from the mapped file; with a tokenizer the
 * whole part is encoded here and kept, 2 bytes a token (4 with more than 65536 ids). For longer
 * texts, `trireme tokenizer encode` writes files of ids, which are mapped.
 *   errors   as trm_dataset_tokens
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_text(const char *path, trm_usage usage,
                                                 const trm_text_options *options, trm_dataset **out,
                                                 trm_error *err);
/* Opens files with a JSON object on each line (.jsonl), with a document in one of its fields, kept
 * as text. Documents are joined, with trm_tokenizer_end after each, or else a line end.
 *   errors   as trm_dataset_tokens
 *   owns     caller: trm_dataset_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_dataset_json_lines(const char *path, trm_usage usage,
                                                       const trm_text_options *options,
                                                       trm_dataset **out, trm_error *err);

/* Returns the tokenizer of a dataset of tokens; NULL for ids without one, and for other data.
 *   owns     the dataset */
TRM_API trm_tokenizer *trm_dataset_tokenizer(const trm_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
