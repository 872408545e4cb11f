/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/data.h: files to batches. A dataset is made by a source, refined by verbs, then read.
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
 * The order in which the verbs are called does not matter; the order in which they act is always
 *
 *     source -> permutation -> shard -> window shuffle -> transforms (the library's, then one's own)
 *            -> batch -> repeat -> prefetch
 *
 * What comes out is a pure function: the order of (seed, epoch, shard), the augmentation of a
 * sample
 * of (seed, epoch, its global index in the source). Neither the number of threads, nor how many
 * shards there are, nor a resume in the middle changes a bit of a sample.
 *   thread  one thread at a time per dataset; its own worker threads are behind the queue
 *   status  verbs give TRM_INVALID for impossible arguments, and once reading has begun
 *   files   are mapped (but for single images). One that becomes shorter is TRM_IO with both sizes at
 *           the next batch. For that the library sets the process's SIGBUS handler when it maps a
 *           file, and passes faults in all other memory on to the handler that was there before
 */
#ifndef TRIREME_DATA_H
#define TRIREME_DATA_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_dataset trm_dataset;

/* ---- sources: each gives a new dataset, sequential and of batch size 1 until refined ------- */

/* Which files are read. The default is the training set: reading all leaks the test set. */
typedef enum trm_usage { TRM_USAGE_TRAIN, TRM_USAGE_TEST, TRM_USAGE_ALL } trm_usage;

/* CIFAR-10 in its binary form: records of a label byte and 3072 planar R, G, B bytes. Train reads
 * data_batch_1..5.bin, test test_batch.bin, all every *.bin whose name contains "batch", by name.
 * Sizes and labels are checked here, so a damaged file is named before training starts. Samples
 * are uint8 images of 32 x 32 x 3. TRM_IO, TRM_CORRUPT. */
TRM_API TRM_MUST_USE trm_status trm_dataset_cifar10(const char *path, trm_usage usage,
                                                    trm_dataset **out, trm_error *err);

/* A generated set of ten shape classes in CIFAR's form (32 x 32 x 3), for machines without data:
 * place, size, angle, colours, background and noise vary. Sample i is a function of (seed, i). The
 * test set is disjoint from the training set.   error  INVALID (counts outside of 1 to 100 million), NOMEM
 */
typedef struct trm_shapes_options {
    int64_t train_count; /* 0 = 50000 */
    int64_t test_count;  /* 0 = 10000 */
    uint64_t seed;
} trm_shapes_options;
TRM_API TRM_MUST_USE trm_status trm_dataset_shapes(const trm_shapes_options *options,
                                                   trm_usage usage, trm_dataset **out,
                                                   trm_error *err);
/* Writes the set as CIFAR-10 files (five train files, test_batch.bin, batches.meta.txt, and
 * records.txt, which tells the reader how many records each file must have). Not over files that
 * are there without one: TRM_INVALID. */
TRM_API TRM_MUST_USE trm_status trm_shapes_write(const trm_shapes_options *options,
                                                 const char *path, trm_error *err);

/* The same random batch for ever, made before reading begins: a pipeline that costs nothing, for
 * benchmarks. Images are float32, roughly normal; labels uniform. Takes no transforms. */
typedef struct trm_random_options {
    int64_t count;    /* samples an epoch; 0 = 50000 */
    int64_t channels; /* 0 = 3 */
    int64_t height, width;
    int64_t classes; /* 0 = 10 */
    bool channels_last;
} trm_random_options;
TRM_API TRM_MUST_USE trm_status trm_dataset_random(const trm_random_options *options,
                                                   trm_dataset **out, trm_error *err);

/* root/class/name.jpeg (or .jpg, .png, in any case): the label is the index of the class folder in
 * byte order of
 * names. Samples are encoded; the first transform must be trm_transform_decode. If the root has
 * folders train and val (or test), the usage chooses between them; TRM_USAGE_ALL reads both.
 *   error  IO (also: no images), CORRUPT (a class that the training set lacks), UNSUPPORTED (other kinds of files), NOMEM
 */
TRM_API TRM_MUST_USE trm_status trm_dataset_image_folder(const char *path, trm_usage usage,
                                                         trm_dataset **out, trm_error *err);

/* ImageNet as TFRecords of tf.Example: train-*-of-* (train), validation-*-of-* (test). Keys
 * image/encoded and image/class/label; labels 1..1000 become 0..999, 0 (background) is an error.
 * The framing is scanned here (checksummed lengths); each record's checksum is verified when it is
 * read. */
TRM_API TRM_MUST_USE trm_status trm_dataset_tfrecord_imagenet(const char *path, trm_usage usage,
                                                              trm_dataset **out, trm_error *err);

/* ---- data of one's own ----------------------------------------------------------------------
 * All verbs below work on them as on files: order, shards, prefetch and resume. */

typedef struct trm_batch_field {
    /* Of files: "image", "label"; "dense", "keys", "offsets", "values"; "tokens", "targets". */
    const char *name;
    trm_tensor tensor;
} trm_batch_field;

#define TRM_MAX_BATCH_FIELDS 6

/* Writes sample `index` (from 0): fields[i].data has room for the i-th field of one sample. The same
 * index gives the same sample each time. Returns TRM_OK, or an error, with its sentence in
 * err->message (empty: one is written); reading the batch then fails with it.
 *   thread  called by all prefetch threads at the same time */
typedef trm_status (*trm_sample_read)(void *context, int64_t index, const trm_tensor *fields,
                                      trm_error *err);

typedef struct trm_data_source {
    int64_t samples;
    int64_t classes; /* of an int32 "label"; 0 = there are none */
    int32_t field_count;
    trm_batch_field fields[TRM_MAX_BATCH_FIELDS]; /* name, dtype and shape of one sample; no data */
    trm_sample_read read;
    void *context;
    void (*destroy)(void *context); /* called by trm_dataset_destroy; NULL = nothing to do */
} trm_data_source;

/* Samples that `source->read` writes. A batch of N has fields [N, shape of a sample]. Two fields
 * "image" (uint8 [height, width, 3]) and "label" (int32 []) take the image transforms below, too.
 *   owns    the struct and the names are copied; the context is taken, unless the call fails
 *   errors  INVALID (a field without name, type or size), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_dataset_callback(const trm_data_source *source,
                                                     trm_dataset **out, trm_error *err);

/* Samples in arrays: the first dimension of each of the `count` tensors counts the samples. `classes`
 * as in trm_data_source.
 *   owns    the arrays' data are borrowed until trm_dataset_destroy
 *   errors  INVALID (arrays of unequal length, without data or type), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_dataset_arrays(const trm_batch_field *arrays, int32_t count,
                                                   int64_t classes, trm_dataset **out,
                                                   trm_error *err);

/* Ends its threads. NULL is fine; batches of it are gone. */
TRM_API void trm_dataset_destroy(trm_dataset *dataset);

/* ---- transforms of images --------------------------------------------------------------- */

/* Bilinear sampling. Half-pixel: output i looks at (i + 0.5) * in / out - 0.5 (TF 2, PyTorch,
 * OpenCV). Original: i * in / out (TF 1 and MindSpore's first versions, kept for comparison).
 * Antialias: half-pixel with a triangle as wide as the reduction (PIL, torchvision). */
typedef enum trm_resize_align {
    TRM_RESIZE_HALF_PIXEL,
    TRM_RESIZE_ORIGINAL,
    TRM_RESIZE_ANTIALIAS
} trm_resize_align;

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

/* One step of a chain, by value: made by the functions below. */
typedef struct trm_transform {
    trm_transform_kind kind;
    int64_t height, width, padding;
    double probability;
    double scale, shift;
    double mean[3], std[3];
    double area[2], ratio[2];
    trm_resize_align align;
    trm_dtype dtype;
    bool exact;
} trm_transform;

/* JPEG and PNG, told apart by content, to RGB. Gray, palette and CMYK content is converted, alpha
 * dropped; anything else, an image that ends early, and damage that the decoders notice (JPEG has
 * no checksum) are TRM_CORRUPT naming the file. Unless `exact`, takes libjpeg-turbo's faster chroma
 * upsampling, and decodes at 1/2, 1/4 or 1/8 where the following crop or resize still shrinks the
 * result. */
TRM_API trm_transform trm_transform_decode(bool exact);
/* A uniformly placed window of height x width in the image with `padding` zeros on each side. */
TRM_API trm_transform trm_transform_random_crop(int64_t height, int64_t width, int64_t padding);
/* A window of 0.08..1 of the area and of ratio 3/4..4/3 (log-uniform; ten tries, then the largest
 * central one), resized to height x width. Change area[], ratio[], align in the returned value. */
TRM_API trm_transform trm_transform_random_resized_crop(int64_t height, int64_t width);
/* The middle of an image that is at least so large. */
TRM_API trm_transform trm_transform_center_crop(int64_t height, int64_t width);
/* Left-right, with this probability. */
TRM_API trm_transform trm_transform_random_flip(double probability);
/* To height x width. A uint8 image stays one (rounded to nearest), as in OpenCV and torchvision. */
TRM_API trm_transform trm_transform_resize(int64_t height, int64_t width, trm_resize_align align);
/* The shorter side becomes `size`, the ratio stays. */
TRM_API trm_transform trm_transform_resize_shorter(int64_t size, trm_resize_align align);
/* x * scale + shift; from here on the image is float32. */
TRM_API trm_transform trm_transform_rescale(double scale, double shift);
/* (x - mean) / std by channel R, G, B. */
TRM_API trm_transform trm_transform_normalize(const double mean[3], const double std[3]);
/* Batches are [N, C, H, W] with it and [N, H, W, C] without. */
TRM_API trm_transform trm_transform_hwc2chw(void);
/* To float32, float16 or bfloat16. Labels are int32 without it. */
TRM_API trm_transform trm_transform_type_cast(trm_dtype dtype);

/* ---- verbs ------------------------------------------------------------------------------ */

/* The seed of order and augmentation; 0 by default. */
TRM_API TRM_MUST_USE trm_status trm_dataset_seed(trm_dataset *dataset, uint64_t seed,
                                                 trm_error *err);

/* How the last samples are dealt when the count N is not a multiple of the shards S.
 *   wrap  every shard has ceil(N/S); the first samples of the order come twice (training)
 *   drop  every shard has floor(N/S); the last samples of the order are left out
 *   pad   every shard has ceil(N/S), but what is over is not counted in batch->samples (evaluation)
 */
typedef enum trm_shard_mode { TRM_SHARD_WRAP, TRM_SHARD_DROP, TRM_SHARD_PAD } trm_shard_mode;
/* A model whose program has not called this shares the data out among its ranks itself (training
 * wraps, evaluation pads); a count of 1 means that every rank reads all of it.
 * Shard `index` of `count` takes places index, index + count, ... of the one global order. */
TRM_API TRM_MUST_USE trm_status trm_dataset_shard(trm_dataset *dataset, int64_t count,
                                                  int64_t index, trm_shard_mode mode,
                                                  trm_error *err);
/* A new order each epoch: one permutation of the whole source, the same on all shards. window > 1
 * also shuffles within a window of so many samples of the shard.
 */
TRM_API TRM_MUST_USE trm_status trm_dataset_shuffle(trm_dataset *dataset, int64_t window,
                                                    trm_error *err);
/* Appends `count` transforms (copied) to the chain; at most 16 in all. Geometry comes before
 * Rescale and Normalize. */
TRM_API TRM_MUST_USE trm_status trm_dataset_map(trm_dataset *dataset,
                                                const trm_transform *transforms, int32_t count,
                                                trm_error *err);
/* Changes one sample in place, after all other transforms: fields as in the batch, shapes without its
 * first dimension. `seed` is a function of the dataset's seed, the epoch and `index`: whoever draws
 * random numbers from it gets the same ones on any thread, shard and resume. Errors as those of
 * trm_sample_read.
 *   thread  called by all prefetch threads at the same time */
typedef trm_status (*trm_sample_transform)(void *context, int64_t index, uint64_t seed,
                                           const trm_tensor *fields, trm_error *err);
/* Appends a transform of the caller's, at most 4; `context` is borrowed until trm_dataset_destroy.
 *   errors  INVALID; from trm_dataset_check, if a field has not one row a sample (ragged keys) */
TRM_API TRM_MUST_USE trm_status trm_dataset_transform(trm_dataset *dataset,
                                                      trm_sample_transform transform, void *context,
                                                      trm_error *err);
/* Without drop_remainder the last batch of an epoch keeps its shape; rows from batch->samples on
 * are zero, with int32 labels -1 (trm_xent_options.ignore_index). */
TRM_API TRM_MUST_USE trm_status trm_dataset_batch(trm_dataset *dataset, int64_t size,
                                                  bool drop_remainder, trm_error *err);
/* TRM_END comes after `passes` epochs instead of after each; 0 = never. An epoch stays one pass:
 * batch->epoch counts passes and trm_dataset_epoch_batches is of one. */
TRM_API TRM_MUST_USE trm_status trm_dataset_repeat(trm_dataset *dataset, int64_t passes,
                                                   trm_error *err);
/* `threads` workers fill whole batches ahead, `depth` of them in all (at least one a thread).
 * Without this call, or with depth 0, trm_dataset_next fills the batch itself. */
TRM_API TRM_MUST_USE trm_status trm_dataset_prefetch(trm_dataset *dataset, int64_t depth,
                                                     int64_t threads, trm_error *err);

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct trm_batch {
    int64_t epoch;   /* from 0 */
    int64_t index;   /* within the epoch, from 0 */
    int64_t samples; /* real ones; the rest is padding */
    bool last;       /* the epoch's last */
    int32_t field_count;
    trm_batch_field fields[TRM_MAX_BATCH_FIELDS];
} trm_batch;

/* The next batch, or TRM_END at the end of an epoch; the call after that begins the next epoch.
 * An unreadable sample gives TRM_IO or TRM_CORRUPT naming file and record; the position then stays
 * at that batch. After the first call nothing is allocated, except that scratch for encoded images
 * grows to the largest one seen.
 *   owns  the batch is borrowed, valid until the next call on the dataset */
TRM_API TRM_MUST_USE trm_status trm_dataset_next(trm_dataset *dataset, const trm_batch **out,
                                                 trm_error *err);
/* The field of this name, or NULL. */
TRM_API const trm_tensor *trm_batch_tensor(const trm_batch *batch, const char *name);

/* Where the next batch will be read: after the k-th batch of epoch e it is (e, k), also at its end
 * (then trm_dataset_next says TRM_END first). */
TRM_API void trm_dataset_position(const trm_dataset *dataset, int64_t *epoch, int64_t *batch_index);
/* Continues from there; the batches are bit for bit those of a run that never stopped. */
TRM_API TRM_MUST_USE trm_status trm_dataset_seek(trm_dataset *dataset, int64_t epoch,
                                                 int64_t batch_index, trm_error *err);

/* Checks that the whole pipeline fits together; what trm_dataset_next would do first. Afterwards
 * verbs are refused.   error  INVALID naming the step that does not fit, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_dataset_check(trm_dataset *dataset, trm_error *err);
/* Batches in an epoch of this shard (0 if the pipeline does not check). */
TRM_API int64_t trm_dataset_epoch_batches(trm_dataset *dataset);
/* Samples of the whole source, and classes of its label (0 if there are none). */
TRM_API int64_t trm_dataset_sample_count(const trm_dataset *dataset);
TRM_API int64_t trm_dataset_class_count(const trm_dataset *dataset);
/* Name, dtype and shape of the batch's fields; tensor.data is NULL. False once index is too big or
 * if the pipeline does not check. A ragged field shows its largest size. */
TRM_API bool trm_dataset_field(trm_dataset *dataset, int32_t index, trm_batch_field *out);
/* Bytes of the batches that reading keeps: those made ahead and the one lent out. 0 if the pipeline
 * does not check. Images under way in the workers come on top. */
TRM_API int64_t trm_dataset_buffer_bytes(trm_dataset *dataset);
/* A number of the data behind the pipeline: how many samples and classes there are, and the content
 * of some spread over them: 256 images, 1024 rows (fewer above 64 MB), 64 of callbacks and arrays. Other data
 * have another number, unless they differ in samples that are not among these; shards, order, batches and transforms do not count.   errors  NOMEM */
TRM_API TRM_MUST_USE trm_status trm_dataset_fingerprint(const trm_dataset *dataset, uint64_t *out,
                                                        trm_error *err);
/* The whole pipeline as a JSON object: source, files, count, verbs, transforms, fields.
 *   owns  caller, free with trm_free; NULL if memory is out */
TRM_API char *trm_dataset_describe(trm_dataset *dataset);

/* ---- named pipelines --------------------------------------------------------------------- */

struct trm_click_options; /* below */
struct trm_text_options;  /* below */

/* What the command line says about data, in one struct; zero means the default. */
typedef struct trm_dataset_spec {
    /* NULL or "auto" looks at the path; else synth (the generated shapes), random, cifar10,
     * imagefolder, tfrecord (of images), clicks (generated), criteo, avazu, csv, libsvm, slots,
     * tfrecord-clicks, tokens, text, jsonl. */
    const char *kind;
    const char *path; /* file or folder; "synth" gives the shapes, "clicks" the generated clicks */
    trm_usage usage;
    int64_t batch_size; /* 0 = 32 */
    int64_t image_size; /* 0 = 32 for CIFAR-10 and shapes, 224 otherwise */
    int64_t classes;    /* random only; 0 = 10 */
    /* As trm_dataset_shard; count 0: not said, a model with ranks shares the data out. */
    int64_t shard_count, shard_index;
    uint64_t seed;
    int64_t prefetch_depth, threads; /* 0 = 4 ahead by one thread; depth -1 = none */
    bool channels_last;
    bool no_augment; /* the training set in the evaluation's form, in order */
    /* A fixed recipe for CIFAR-10: every *batch*.bin file (so the test set too), mean and
     * std in B, G, R order, 224 x 224, and shuffle(10) on top of the permutation. */
    bool exact_guide;
    const struct trm_click_options *click;
    const struct trm_text_options *text; /* tokens, text, jsonl; NULL = its zeros */
    const trm_shapes_options *shapes;    /* synth; NULL = the default set */
} trm_dataset_spec;

/* The usual pipeline for this data. Train: permuted, augmented (crop and flip at 32, decode,
 * random resized crop and flip otherwise), shards wrap, the remainder is dropped. Test: in order,
 * not augmented (resize and centre crop), shards pad, the remainder is kept.
 * TRM_INVALID names what was expected when nothing fits; else as the source. */
TRM_API TRM_MUST_USE trm_status trm_dataset_open(const trm_dataset_spec *spec, trm_dataset **out,
                                                 trm_error *err);

/* ==== click data ============================================================================ */

/* Rows of click data to batches: Criteo, Avazu and other CSV, libsvm, slots,
 * tf.Example, and a generator whose best possible AUC is known. The datasets are refined and read
 * as in data.h (no image transforms). A batch has the fields
 *
 *     label    float32 [N]      0 or 1
 *     dense    float32 [N, D]   unless there are no dense columns
 *     keys     int64 [N, F]     when every row has exactly one key in each of F fields
 *
 * or, as soon as one field may hold several (a bag), ragged:
 *
 *     keys     int64 [K]        fields of row 0, then of row 1, ...
 *     offsets  int64 [N*F + 1]  bag b is keys[offsets[b] .. offsets[b+1])
 *     values   float32 [K]      libsvm only: the weight of each key
 *
 * Rows over batch->samples are zero, with empty bags. */

/* ---- how text becomes numbers ---------------------------------------------------------------- */

typedef enum trm_column_role {
    TRM_COLUMN_SKIP,
    TRM_COLUMN_LABEL,
    TRM_COLUMN_DENSE,
    TRM_COLUMN_KEY,
    TRM_COLUMN_BAG /* several keys in one field */
} trm_column_role;

typedef struct trm_column {
    const char *name; /* in the header line, or the feature's name in a tf.Example */
    trm_column_role role;
    int32_t last_chars; /* keys: only the last so many characters count; 0 = all */
} trm_column;

typedef enum trm_dense_form {
    TRM_DENSE_DEFAULT, /* log for Criteo, raw otherwise */
    TRM_DENSE_RAW,
    TRM_DENSE_LOG /* log(1 + max(x, 0)), as DLRM does */
} trm_dense_form;

typedef enum trm_header_line { TRM_HEADER_AUTO, TRM_HEADER_YES, TRM_HEADER_NO } trm_header_line;

typedef struct trm_vocabulary trm_vocabulary;

/* Values of one text in two fields are different keys, unless same_as says otherwise. Missing ones
 * are 0 where keys are bounded (buckets or vocabulary); with unbounded keys each field has a key of
 * its own for "missing". */
typedef struct trm_click_options {
    int64_t buckets;                  /* keys are 1 + hash % (buckets - 1), 0 = missing;
                                       * 0 = unbounded: 63-bit hashes, for dynamic tables */
    const trm_vocabulary *vocabulary; /* instead: ids from 1, 0 = missing or unknown. Borrowed */
    /* bounded keys of field f are moved by those of the fields before: one table */
    bool shared_table;
    /* Values of field f are keyed as those of field same_as[f]: equal texts in the two are equal
     * keys. Borrowed as long as the dataset lives; fields from same_as_count on are keyed as
     * themselves. */
    const int32_t *same_as;
    int32_t same_as_count;
    uint64_t hash_seed;
    trm_dense_form dense;
    float missing_dense;   /* the value of an empty dense column, after the form */
    float label_threshold; /* not 0: a label is 1 from this value on (ratings) */

    /* CSV and tf.Example: roles by name, or by position where there is no header. Columns that are
     * not named are skipped. Without any (CSV with header): the column label, click, target or y is
     * the label and all others are keys. */
    const trm_column *columns;
    int32_t column_count;
    char separator;         /* 0 = comma */
    char bag_separator;     /* 0 = | */
    int64_t bag_max;        /* most keys of a bag; 0 = 16. More is an error */
    trm_header_line header; /* auto: a first line whose label is no number */

    const struct trm_clicks_options *generator; /* trm_dataset_open, kind clicks */
} trm_click_options;

/* The sources below: `path` is a file, or a folder with train and test. All errors of opening name
 * the file; those of rows
 * name line or record when they are read.   error  IO, CORRUPT, INVALID (options, columns), NOMEM
 *
 * Criteo: label, 13 integers, 26 categories, tab-separated, no header. */
TRM_API TRM_MUST_USE trm_status trm_dataset_criteo(const char *path,
                                                   const trm_click_options *options,
                                                   trm_dataset **out, trm_error *err);
/* id (skipped), click, hour (its last two digits), C1 .. C21: 22 keys. With or without header. */
TRM_API TRM_MUST_USE trm_status trm_dataset_avazu(const char *path,
                                                  const trm_click_options *options,
                                                  trm_dataset **out, trm_error *err);
/* Any separator, quotes around fields (but no line breaks in them). The file is scanned for lines
 * here; a bad field is reported with line and column when it is read. */
TRM_API TRM_MUST_USE trm_status trm_dataset_csv(const char *path, const trm_click_options *options,
                                                trm_dataset **out, trm_error *err);
/* "label index:value ..." gives one field of bags, "label field:index:value ..." (libffm) one per
 * field. Labels 1 and +1, 0 and -1. Indices are the keys unless buckets or a vocabulary is given.
 */
TRM_API TRM_MUST_USE trm_status trm_dataset_libsvm(const char *path,
                                                   const trm_click_options *options,
                                                   trm_dataset **out, trm_error *err);
/* "slot:value ...", as Paddle's recommendation models read: the slot click or label is the label,
 * dense_feature or dense gives numbers (in each row as many as in the first), any other is a field
 * of bags, its values hashed. Fields are in the order of the slots' numbers, then names;
 * options->columns chooses slots, roles and their order instead. */
TRM_API TRM_MUST_USE trm_status trm_dataset_slots(const char *path,
                                                  const trm_click_options *options,
                                                  trm_dataset **out, trm_error *err);
/* TFRecords of tf.Example: options->columns names the features. Dense and label from float or int64
 * lists, keys from bytes (hashed) or int64 (as they are, unless bounded). */
TRM_API TRM_MUST_USE trm_status trm_dataset_click_tfrecord(const char *path,
                                                           const trm_click_options *options,
                                                           trm_dataset **out, trm_error *err);

/* ---- vocabularies ------------------------------------------------------------------------------
 */

/* Reads a whole file, or the training part of a folder (kind criteo, avazu, csv, libsvm, slots or
 * tfrecord-clicks; options as for reading)
 * and numbers the values that come at least min_count times, by field, in order of appearance.
 *   owns   caller, trm_vocabulary_destroy    error  those of the source, and of each row */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_build(const char *kind, const char *path,
                                                     const trm_click_options *options,
                                                     int64_t min_count, trm_vocabulary **out,
                                                     trm_error *err);
TRM_API void trm_vocabulary_destroy(trm_vocabulary *vocabulary);
/* Text: a line "trireme-vocabulary 1 FIELDS SEED", then "field hash" lines in order of the ids. The
 * file appears whole or not
 * at all.   error  IO, NOSPACE; of load IO, CORRUPT with the line, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_save(const trm_vocabulary *vocabulary,
                                                    const char *path, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_vocabulary_load(const char *path, trm_vocabulary **out,
                                                    trm_error *err);
TRM_API int32_t trm_vocabulary_fields(const trm_vocabulary *vocabulary);
/* Rows that a table of this field needs: ids and 0. */
TRM_API int64_t trm_vocabulary_rows(const trm_vocabulary *vocabulary, int32_t field);

/* ---- generated clicks
 *  ---------------------------------------------------------------------------- */

/* A planted model: logit = bias + sum of a weight per key + sum of weights times dense inputs + sum
 * over pairs of fields of <u_key, u_key'>; the label is a coin with that probability. Keys are
 * Zipf-distributed ranks, dense inputs standard normal. Row i is a function of (seed, i). */
typedef struct trm_clicks_options {
    /* 0 = 1,000,000 (training); test rows lie elsewhere and never repeat them */
    int64_t rows;
    int64_t test_rows;  /* 0 = rows / 10 */
    int32_t fields;     /* 0 = 26; -1 = none */
    int32_t dense;      /* 0 = 13; -1 = none */
    int64_t vocabulary; /* keys a field; 0 = 100,000 */
    double zipf;        /* exponent; 0 = 1.1 */
    double click_rate;  /* 0 = 0.25; sets the bias approximately */
    double key_scale;   /* deviation of the sum of key weights; 0 = 1 */
    double dense_scale; /* ... of the dense part; 0 = 0.5 */
    double pair_scale;  /* ... of the pairs; 0 = 0.5; -1 = none */
    bool wide_keys;     /* 63-bit keys without order, for dynamic tables */
    /* keys of field f are moved by f * vocabulary: one table. Not with wide_keys */
    bool shared_table;
    uint64_t seed;
} trm_clicks_options;
TRM_API TRM_MUST_USE trm_status trm_dataset_clicks(const trm_clicks_options *options,
                                                   trm_usage usage, trm_dataset **out,
                                                   trm_error *err);

/* Rows without any meaning, made before reading begins and kept: batches that cost next to nothing,
 * for measuring. Keys as numpy.random.zipf(zipf) % vocabulary, of one table (those of field f are
 * moved by f * vocabulary) unless own_tables; dense inputs uniform in [0, 1); labels are coins. */
typedef struct trm_random_clicks_options {
    int64_t count;      /* 0 = 32768 */
    int32_t fields;     /* 0 = 26 */
    int32_t dense;      /* 0 = 13; -1 = none */
    int64_t vocabulary; /* 0 = 100,000 */
    double zipf;        /* above 1; 0 = 1.2 */
    double click_rate;  /* 0 = 0.25 */
    bool own_tables;    /* keys of each field begin at 0 */
    uint64_t seed;
} trm_random_clicks_options;
TRM_API TRM_MUST_USE trm_status trm_dataset_random_clicks(const trm_random_clicks_options *options,
                                                          trm_dataset **out, trm_error *err);

/* What the planted probabilities themselves reach: nothing can do better on average. `auc` and
 * `logloss` are expectations over the coins (Monte Carlo over rows, so their only error is the
 * choice of rows); the realised ones use these rows' labels: compare a model on the same rows with
 * those. */
typedef struct trm_clicks_bayes {
    double auc, logloss, click_rate;
    double realized_auc, realized_logloss;
} trm_clicks_bayes;
/* Over the first `rows` test rows (0 = all of them).   error  INVALID, NOMEM    cost  about 8 microseconds and 24 bytes a row
 */
TRM_API TRM_MUST_USE trm_status trm_clicks_measure(const trm_clicks_options *options, int64_t rows,
                                                   trm_clicks_bayes *out, trm_error *err);

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
 * each character of a text. It gives the ids that the package gives (its `encode` without the tokens
 * that a post-processor adds). Bytes that are not UTF-8 are encoded as they are, so that decoding
 * returns every text bit for bit; the package has no such texts.
 */

/* ---- tokenizers ---------------------------------------------------------------------------- */

typedef struct trm_tokenizer trm_tokenizer;

typedef struct trm_tokenizer_options {
    int64_t vocabulary;                /* tokens at most: the special ones, 256 bytes, and merges */
    int64_t min_count;                 /* pairs that come less often are not merged; 0 = 2 */
    const char *const *special_tokens; /* "<|endoftext|>": never split; they have the first ids */
    int32_t special_count;
} trm_tokenizer_options;

/* Learns byte-level BPE from text files, line by line: the merges, in the order, of the package's
 * ByteLevelBPETokenizer. At least one line is expected.
 *   owns    *out: caller, trm_tokenizer_destroy
 *   errors  IO, INVALID (a vocabulary below 256 + special_count), NOMEM
 *   cost    memory of the distinct words of the files, not of the files */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_train(const char *const *paths, int32_t count,
                                                    const trm_tokenizer_options *options,
                                                    trm_tokenizer **out, trm_error *err);

/* Reads `path`: a tokenizer.json, or a folder with tokenizer.json, or else with vocab.json and
 * merges.txt (then as GPT-2's: its regular expression, and <|endoftext|> is special if no merge makes
 * it). TRM_UNSUPPORTED names what is not byte-level BPE of GPT-2's, Llama 3's or Qwen 2's form.
 *   errors  IO, CORRUPT, UNSUPPORTED, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_open(const char *path, trm_tokenizer **out,
                                                   trm_error *err);
/* 256 tokens: id is the byte. */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_bytes(trm_tokenizer **out, trm_error *err);
/* One token for each character that the text has, in the order of code points (nanoGPT's
 * character recipe).   errors  INVALID (an empty text), CORRUPT (not UTF-8), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_characters(const char *text, size_t bytes,
                                                         trm_tokenizer **out, trm_error *err);
/* Writes tokenizer.json, which the package and `transformers` load, vocab.json and merges.txt; makes
 * the folder.   errors  IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_save(const trm_tokenizer *tokenizer,
                                                   const char *folder, trm_error *err);
/* NULL is fine. */
TRM_API void trm_tokenizer_destroy(trm_tokenizer *tokenizer);

/* One more than the largest id. */
TRM_API int64_t trm_tokenizer_vocabulary(const trm_tokenizer *tokenizer);
/* The id of a token, as tokenizer.json spells it ("<|endoftext|>"); -1: there is none. */
TRM_API int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token);

/* A list of ids. Starts as {0}. */
typedef struct trm_tokens {
    int32_t *ids;
    int64_t count, capacity;
} trm_tokens;
/* NULL is fine. */
TRM_API void trm_tokens_free(trm_tokens *tokens);

/* Appends the tokens of a text. Special tokens in the text become their ids.
 *   thread  one at a time per tokenizer (it remembers the tokens of words)
 *   errors  INVALID (a byte or character without a token, with its offset; `tokens` then has those
 *           before it), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_encode(trm_tokenizer *tokenizer, const char *text,
                                                     size_t bytes, trm_tokens *tokens,
                                                     trm_error *err);
/* The text of `count` ids, special ones included: bytes, with a zero byte after them.
 *   owns    *out: caller, trm_free
 *   errors  INVALID (an id without a token), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_decode(const trm_tokenizer *tokenizer,
                                                     const int32_t *ids, int64_t count, char **out,
                                                     size_t *bytes, trm_error *err);

/* ---- files of tokens ----------------------------------------------------------------------- */

/* Writes ids below 65536 as nanoGPT does: uint16, little-endian, no header.
 *   errors  INVALID (an id that does not fit), IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_tokens_write(const trm_tokens *tokens, const char *path,
                                                 trm_error *err);
/* Reads a file of tokens, nanoGPT's or llm.c's.   errors  IO, CORRUPT, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokens_read(const char *path, trm_tokens *tokens,
                                                trm_error *err);

/* ---- datasets of tokens ----------------------------------------------------------------------
 * A sample is `context` tokens and, for each of them, the one that comes next: fields "tokens" and
 * "targets", both int32 [context]. Sample i begins at token i * stride of its part, and samples do not
 * reach from one file into the next. A target of -100 is to be ignored: behind the last token of a
 * test part, and in rows of a batch that have no sample.
 *
 * Training reads the first 90 % and testing the rest (nanoGPT's split: of characters, of documents, or
 * of ids), unless the files come in two kinds: those with the word "train" in their name, and those with
 * "val", "valid", "validation", "test" or "dev" ("tiny_train.bin" and "tiny_val.bin", in one folder).
 *   errors  IO (no such files), CORRUPT (damaged: file, place, found and expected), INVALID (a context
 *           that is longer than a part; ids beyond the vocabulary at the batch that has them), NOMEM */
typedef struct trm_text_options {
    const char *tokenizer;  /* folder or tokenizer.json; text needs it, or `tokens` */
    const char *tokens;     /* "characters" (numbered over all files) or "bytes" */
    const char *text_field; /* of JSON lines; NULL = "text" */
    int64_t context;        /* 0 = 256 */
    int64_t stride;         /* 0 = context; 1 = a sample begins at each token */
    int64_t vocabulary;     /* ids of token files are below it; 0 = the tokenizer's, else 65536 */
} trm_text_options;

/* Files of ids (.bin), nanoGPT's or llm.c's, mapped. */
TRM_API TRM_MUST_USE trm_status trm_dataset_tokens(const char *path, trm_usage usage,
                                                   const trm_text_options *options,
                                                   trm_dataset **out, trm_error *err);
/* Text (.txt). Characters and bytes are read from the mapped file; with a tokenizer all of the part is
 * encoded here and kept, 2 bytes a token (4 with more than 65536 ids): longer texts than that are for
 * trireme tokenizer encode, whose files are mapped. */
TRM_API TRM_MUST_USE trm_status trm_dataset_text(const char *path, trm_usage usage,
                                                 const trm_text_options *options, trm_dataset **out,
                                                 trm_error *err);
/* A JSON object on each line (.jsonl), with a document in one of its fields. Documents are joined, with
 * <|endoftext|>, <|end_of_text|> or </s> behind each if it is a token, else a line end. Kept as text. */
TRM_API TRM_MUST_USE trm_status trm_dataset_json_lines(const char *path, trm_usage usage,
                                                       const trm_text_options *options,
                                                       trm_dataset **out, trm_error *err);

/* The tokenizer of such a dataset; NULL: a file of ids without one, or other data.
 *   owns  the dataset; not to be used by several threads at a time */
TRM_API trm_tokenizer *trm_dataset_tokenizer(const trm_dataset *dataset);
/* Mean bytes of a token of its part, for bits per byte; 0: not known (ids without a tokenizer). */
TRM_API double trm_dataset_token_bytes(const trm_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
