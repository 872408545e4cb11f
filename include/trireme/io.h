/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/io.h: files that training writes and reads: checkpoints and safetensors, event files and
 * metrics, NumPy's formats, ONNX, and the inspection of any of them. */
#ifndef TRIREME_IO_H
#define TRIREME_IO_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== checkpoints and safetensors =========================================================== */

/* Numbers to disk and back: safetensors files and checkpoints.
 *
 *     trm_checkpoint_writer *writer;
 *     trm_checkpoint_writer_open("out", &(trm_checkpoint_options){.keep = 3}, &writer, &err);
 *     trm_checkpoint_part parts[] = {{.name = "model", .tensors = weights, .count = n}};
 *     trm_checkpoint_save(writer, &(trm_checkpoint_info){.global_step = 100}, parts, 1, &err);
 *     trm_checkpoint_writer_close(writer, &err);
 *
 *     trm_checkpoint *found;
 *     trm_status status = trm_checkpoint_open("out", NULL, &found, &err);
 *     if (status == TRM_END) ...               none there: start afresh
 *     else if (status != TRM_OK) ...           err says which file is damaged, and where
 *     trm_safetensors_read(trm_checkpoint_part_of(found, "model"), "fc.weight", &tensor, &err);
 *     trm_checkpoint_close(found);
 */

/* A tensor with its name. Both borrowed. */
typedef struct trm_named_tensor {
    const char *name;
    trm_tensor tensor;
} trm_named_tensor;

/* Two strings. Borrowed. */
typedef struct trm_text_pair {
    const char *key;
    const char *value;
} trm_text_pair;

/* ---- safetensors ----------------------------------------------------------------------- */

/* Writes a file that every safetensors reader takes: tensors ordered by width of their type
 * (widest first), then by name; data begin at a multiple of 8. The file appears complete or not
 * at all, and is on the disk when the call returns.
 *   errors  TRM_INVALID for a name that is not UTF-8 or not unique, or a bad shape; TRM_IO, TRM_NOSPACE
 *   cost    one pass over the data, no copy of it
 */
TRM_API TRM_MUST_USE trm_status trm_safetensors_write(const char *path,
                                                      const trm_named_tensor *tensors,
                                                      int64_t count, const trm_text_pair *metadata,
                                                      int64_t metadata_count, trm_error *err);

/* An open file: a mapping and its index. Reading it is safe from several threads. */
typedef struct trm_safetensors trm_safetensors;

/* One tensor of the file. Everything is owned by the file and lives until close. */
typedef struct trm_safetensors_entry {
    const char *name;
    const char *dtype; /* the file's word: "F32", "BF16", "BOOL", "F8_E4M3", ... */
    int32_t rank;      /* may exceed TRM_MAX_RANK */
    const int64_t *dims;
    int64_t offset; /* of the first byte in the file */
    int64_t bytes;
    trm_tensor tensor; /* view into the mapping; do not write through it. dtype is
                          TRM_DTYPE_NONE where trm_dtype has no such type or the rank is too high.
                          Files by others may leave data unaligned to its type: then use
                          trm_safetensors_read, which copies. */
} trm_safetensors_entry;

/* Maps the file and checks its header: every byte must belong to exactly one tensor.
 *   errors  TRM_CORRUPT with the byte offset of the first fault, TRM_IO
 *   owns    close with trm_safetensors_close */
TRM_API TRM_MUST_USE trm_status trm_safetensors_open(const char *path, trm_safetensors **out,
                                                     trm_error *err);
TRM_API void trm_safetensors_close(trm_safetensors *file);
TRM_API int64_t trm_safetensors_count(const trm_safetensors *file);
/* Entry `index` in the order of the data; NULL beyond the last. */
TRM_API const trm_safetensors_entry *trm_safetensors_at(const trm_safetensors *file, int64_t index);
/* The entry of this name, or NULL. O(log n). */
TRM_API const trm_safetensors_entry *trm_safetensors_find(const trm_safetensors *file,
                                                          const char *name);
/* The file's `__metadata__`: number of pairs, pair `index`, or the value of a key (NULL: none). */
TRM_API int64_t trm_safetensors_metadata_count(const trm_safetensors *file);
TRM_API trm_text_pair trm_safetensors_metadata_at(const trm_safetensors *file, int64_t index);
TRM_API const char *trm_safetensors_metadata(const trm_safetensors *file, const char *key);
/* Copies tensor `name` into `into`, whose data, dtype and shape the caller has set. The shape must
 * be the file's; the types must agree, but for the floating ones, which are converted (to nearest
 * even).
 *   errors  TRM_INVALID naming the tensor with both shapes or types, or "no tensor of this name" */
TRM_API TRM_MUST_USE trm_status trm_safetensors_read(const trm_safetensors *file, const char *name,
                                                     const trm_tensor *into, trm_error *err);

/* ---- checkpoints ----------------------------------------------------------------------- */

/* What a checkpoint says besides its tensors. Written by save; read from an open checkpoint, where
 * the strings are owned by it. */
typedef struct trm_checkpoint_info {
    int64_t global_step;   /* updates applied; names the directory: ckpt-<global_step> */
    int64_t epoch;         /* the epoch in progress */
    int64_t data_position; /* samples of this epoch that are used up, over all ranks */
    uint64_t seed;         /* with counter-based random numbers this is all of their state */
    int32_t world_size;
    const char *config_json; /* settings of the run: a JSON object, NULL = {} */
    const char *state_json;  /* what the trainer carries on (loss scale, best metric, fingerprint of
                                the data ...): a JSON object, NULL = {} */
    /* Filled when read: order of saving in this directory, and when. */
    int64_t sequence;
    double saved_unix_seconds;
} trm_checkpoint_info;

/* One file of a checkpoint: <name>.safetensors. The usual two: "model" with the names of
 * torchvision, "optimizer" with the slots ("<parameter>/momentum"). Any other name is fine. */
typedef struct trm_checkpoint_part {
    const char *name;
    const trm_named_tensor *tensors;
    int64_t count;
    const trm_text_pair *metadata;
    int64_t metadata_count;
    /* Not NULL: tensors whose data are NULL, too large for memory, are asked for while the file is
     * written, in order and a few megabytes at a time: rows (of the first dimension) [first, first
     * + rows) into `to`. An error ends the save. Such a checkpoint is not saved in the background.
     */
    trm_status (*read)(void *context, const trm_named_tensor *tensor, int64_t first, int64_t rows,
                       void *to, trm_error *err);
    void *read_context;
} trm_checkpoint_part;

typedef struct trm_checkpoint_options {
    int32_t keep; /* newest checkpoints that stay; 0 = 5, negative = all */
    /* beside them, for ever: of those that would go, one in so many hours; 0 = none */
    double keep_every_hours;
    bool background;          /* save copies to memory and returns; a thread writes */
    double lock_wait_seconds; /* how long open waits for another writer to leave; 0 = not at all */
    /* Told when a checkpoint is durable; with `background`, from the writing thread. */
    void (*on_saved)(void *context, const char *path, int64_t global_step);
    void *on_saved_context;
} trm_checkpoint_options;

/* The one writer of an output directory.
 *   thread  one at a time */
typedef struct trm_checkpoint_writer trm_checkpoint_writer;

/* Makes the directory, takes its lock and clears what an interrupted writer left behind. The lock
 * of a
 * dead process is taken over; on another host, after 60 s without a sign of life.
 *   errors  TRM_INVALID when another process writes there: names host, pid and since when
 *   owns    close with trm_checkpoint_writer_close */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_writer_open(const char *dir,
                                                           const trm_checkpoint_options *options,
                                                           trm_checkpoint_writer **out,
                                                           trm_error *err);

/* Saves <dir>/ckpt-<global_step>, replacing one of this step. When it returns TRM_OK (with
 * `background`: when trm_checkpoint_wait does) it is complete on the disk; when anything fails, or
 * the process is killed at any point, what was there before still loads. Then <dir>/checkpoint
 * names the newest and all but the newest `keep` are removed, never one in use, and never before
 * two of those kept (one if keep is 1) have been read back and verified.
 *   errors  TRM_NOSPACE before anything is written unless 1.2 times the size is free; TRM_IO;
 *           TRM_INVALID. With `background`: this save has been started, and the error may be that
 *           of
 *           the one before, whose sentence says so */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_save(trm_checkpoint_writer *writer,
                                                    const trm_checkpoint_info *info,
                                                    const trm_checkpoint_part *parts,
                                                    int64_t part_count, trm_error *err);

/* Waits for the save in the background; its error, if nobody has been told yet. */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_wait(trm_checkpoint_writer *writer, trm_error *err);

/* Waits, gives the lock back and frees, always. A directory that open made goes again where saving
 * failed and left it empty. Returns what wait would. NULL is fine. */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_writer_close(trm_checkpoint_writer *writer,
                                                            trm_error *err);

/* A verified checkpoint, open for reading. Reading it is safe from several threads. */
typedef struct trm_checkpoint trm_checkpoint;

typedef struct trm_checkpoint_open_options {
    bool mark_in_use; /* a writer does not prune it before close; needs a writable directory,
                         and is only tried */
} trm_checkpoint_open_options;

/* Opens `path`: one checkpoint, or the newest good one of an output directory. Each file is read
 * and compared with its checksums first. Damaged ones are named in the log (WARN) and skipped.
 *   errors  TRM_END if there is none (also no such directory): start afresh; TRM_CORRUPT if there
 *           are only damaged ones: names file, block and offset of the newest; TRM_IO; TRM_NOMEM
 *   owns    close with trm_checkpoint_close */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_open(const char *path,
                                                    const trm_checkpoint_open_options *options,
                                                    trm_checkpoint **out, trm_error *err);
TRM_API void trm_checkpoint_close(trm_checkpoint *checkpoint);
TRM_API const trm_checkpoint_info *trm_checkpoint_info_of(const trm_checkpoint *checkpoint);
/* Its directory: "out/ckpt-100". */
TRM_API const char *trm_checkpoint_path(const trm_checkpoint *checkpoint);
/* Damaged checkpoints that were skipped on the way to this one. */
TRM_API int64_t trm_checkpoint_skipped(const trm_checkpoint *checkpoint);
TRM_API int64_t trm_checkpoint_part_count(const trm_checkpoint *checkpoint);
TRM_API const char *trm_checkpoint_part_name(const trm_checkpoint *checkpoint, int64_t index);
/* The part of this name ("model"), or NULL. Owned by the checkpoint. */
TRM_API const trm_safetensors *trm_checkpoint_part_of(const trm_checkpoint *checkpoint,
                                                      const char *name);

/* The global step of the newest complete checkpoint in `dir`, by its manifest alone (an evaluator
 * polls this).
 *   errors  TRM_END if there is none */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_latest(const char *dir, int64_t *global_step,
                                                      trm_error *err);

/* ==== event files and metrics =============================================================== */

/* How a run went, for people and tools: TensorBoard event files, and metrics
 * as CSV or JSON lines.
 *
 * All of these are appended to a record at a time, each with one write(2): a reader, or a crash,
 * never sees half a record in the middle. When a write fails (full disk), the file is cut back to
 * its last whole record and the next call tries again; training need not stop for it.
 *   thread  one thread at a time per object
 */

/* A number with its name: "loss", "accuracy/top1". Borrowed. */
typedef struct trm_named_scalar {
    const char *name;
    double value;
} trm_named_scalar;

/* ---- TensorBoard ----------------------------------------------------------------------- */

typedef struct trm_events trm_events;

typedef struct trm_events_options {
    bool resumed;        /* this run goes on from a checkpoint: */
    int64_t resume_step; /* points of older files after this step disappear from the charts */
} trm_events_options;

/* Makes <dir>/events.out.tfevents.<time>.<host>.<pid>.<n>, always a new file; `dir` is made if
 * missing. TensorBoard takes the directory's name for the run's.
 *   errors  TRM_IO, TRM_NOSPACE
 *   owns    close with trm_events_close */
TRM_API TRM_MUST_USE trm_status trm_events_open(const char *dir, const trm_events_options *options,
                                                trm_events **out, trm_error *err);
TRM_API const char *trm_events_path(const trm_events *events);

/* One point of each curve.   errors of this and the next two  TRM_IO, TRM_NOSPACE, TRM_NOMEM: the file is as before
 */
TRM_API TRM_MUST_USE trm_status trm_events_scalars(trm_events *events, int64_t step,
                                                   const trm_named_scalar *scalars, int64_t count,
                                                   trm_error *err);

/* The distribution of a tensor's values, of any type, over TensorFlow's buckets, which grow by 10
 * %. Infinite values and
 * NaN are left out.
 *   cost    one pass, about 10 ns an element */
TRM_API TRM_MUST_USE trm_status trm_events_histogram(trm_events *events, int64_t step,
                                                     const char *tag, const trm_tensor *values,
                                                     trm_error *err);

/* A node of the graph to show. Names with '/' become groups that can be opened. */
typedef struct trm_graph_event_node {
    const char *name;
    const char *op;            /* "Conv2D" */
    const char *const *inputs; /* names of nodes */
    int64_t input_count;
    const char *device;            /* "rank:0", or NULL */
    const trm_shape *output_shape; /* shown on the edges; NULL: unknown */
} trm_graph_event_node;
TRM_API TRM_MUST_USE trm_status trm_events_graph(trm_events *events,
                                                 const trm_graph_event_node *nodes, int64_t count,
                                                 trm_error *err);

/* To the disk (fsync). Readers see records without it.   errors  TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_events_flush(trm_events *events, trm_error *err);
/* Frees always. NULL is fine.   errors  as flush */
TRM_API TRM_MUST_USE trm_status trm_events_close(trm_events *events, trm_error *err);

/* ---- metrics --------------------------------------------------------------------------- */

typedef struct trm_metrics trm_metrics;

typedef struct trm_metrics_options {
    const char *const *columns; /* CSV: all names that will come; required there */
    int64_t column_count;
    bool resumed;        /* append to an existing file; otherwise it is emptied */
    int64_t resume_step; /* lines after this step are dropped: they will come again */
} trm_metrics_options;

/* Opens `path` for lines. The form follows its ending:
 *   .csv     global_step,event,<columns>; values that a line lacks stay empty
 *   .jsonl   {"time":..., "event":"step", "global_step":7, "loss":2.5}; NaN and infinities: null
 * A half line at the end of an existing file (from a crash) is cut off.
 *   errors  TRM_INVALID for another ending, or a CSV file with other columns; TRM_IO
 *   owns    close with trm_metrics_close */
TRM_API TRM_MUST_USE trm_status trm_metrics_open(const char *path,
                                                 const trm_metrics_options *options,
                                                 trm_metrics **out, trm_error *err);
/* One line. `event` says what it is about: "step" (also NULL), "epoch", "eval". A value that is a float prints
 * with 9 digits: equal bits print equal.
 *   errors  TRM_INVALID for a name without a column */
TRM_API TRM_MUST_USE trm_status trm_metrics_write(trm_metrics *metrics, const char *event,
                                                  int64_t global_step,
                                                  const trm_named_scalar *scalars, int64_t count,
                                                  trm_error *err);
/* Flushes to the disk and frees, always. NULL is fine.   errors  TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_metrics_close(trm_metrics *metrics, trm_error *err);

/* ==== NumPy files and inspection ============================================================ */

/* NumPy's .npy and .npz, and `inspect`: what is this file, and is it sound?
 */

/* ---- NumPy ----------------------------------------------------------------------------- */

/* Writes one array (numpy.load), or a stored archive of them (numpy.savez; members are aligned, so
 * that they can be mapped). bfloat16, which NumPy does not know, is widened to float32. Complete or
 * not at all, and on the disk when the call returns.
 *   errors  TRM_INVALID for names that are empty or not unique; TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_npy_write(const char *path, const trm_tensor *array,
                                              trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_npz_write(const char *path, const trm_named_tensor *arrays,
                                              int64_t count, trm_error *err);

/* A mapped .npz or .npy file. Reading it is safe from several threads. */
typedef struct trm_npz trm_npz;

/* One array. Owned by the file. */
typedef struct trm_npz_entry {
    const char *name;  /* without ".npy"; "" in a .npy file */
    const char *descr; /* NumPy's word: "<f4", "|b1" */
    bool fortran_order;
    int32_t rank;
    const int64_t *dims;
    int64_t offset; /* of the data in the file */
    int64_t bytes;
    trm_tensor tensor; /* view of the data (perhaps unaligned; do not write). dtype TRM_DTYPE_NONE
                          if trm_dtype has no such type, the rank is above TRM_MAX_RANK, or the
                          order is Fortran's */
} trm_npz_entry;

/* Opens an archive, or a single .npy, by its content. Checksums of all members are verified.
 *   errors  TRM_CORRUPT with member and offset; TRM_UNSUPPORTED for compressed archives
 *           (numpy.savez_compressed), big-endian and object arrays (pickle): says how to save
 *           instead
 *   owns    close with trm_npz_close */
TRM_API TRM_MUST_USE trm_status trm_npz_open(const char *path, trm_npz **out, trm_error *err);
TRM_API void trm_npz_close(trm_npz *file);
TRM_API int64_t trm_npz_count(const trm_npz *file);
TRM_API const trm_npz_entry *trm_npz_at(const trm_npz *file, int64_t index);
TRM_API const trm_npz_entry *trm_npz_find(const trm_npz *file, const char *name);
/* Copies an array into `into`, whose data, dtype and shape the caller has set and which must agree.
 *   errors  TRM_INVALID naming the array with both shapes or types */
TRM_API TRM_MUST_USE trm_status trm_npz_read(const trm_npz *file, const char *name,
                                             const trm_tensor *into, trm_error *err);

/* ---- a small file ---------------------------------------------------------------------- */

/* Complete or not at all, and on the disk when the call returns; what was there before is then
 * gone.
 *   errors  TRM_IO (also: a directory or a device is there), TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_file_write(const char *path, const void *data, size_t bytes,
                                               trm_error *err);

/* ---- inspect --------------------------------------------------------------------------- */

/* Takes one line of the description, without its newline. */
typedef void (*trm_line_sink)(void *context, const char *line);

/* What a recogniser sees of a path. */
typedef struct trm_probe {
    const char *path;
    bool is_directory;
    const uint8_t *data; /* the whole file, mapped; NULL if empty or a directory */
    int64_t bytes;
} trm_probe;

/* A kind of file that inspect knows. */
typedef struct trm_recogniser {
    const char *kind; /* "safetensors" */
    /* Part of the usual names (".safetensors"): decides when no content fits, so that a damaged
     * file gets the sentence that says what is wrong. NULL: none. */
    const char *name_hint;
    /* Could this be one? Looks at the content only as far as that takes. */
    bool (*matches)(const trm_probe *probe);
    /* Checks it from end to end and describes it: lines for people, or one JSON object on one line.
     * The first fault ends it with TRM_CORRUPT and its place; what was found before is printed. */
    trm_status (*describe)(const trm_probe *probe, bool json, trm_line_sink sink, void *context,
                           trm_error *err);
} trm_recogniser;

typedef struct trm_inspect_options {
    bool json;
    const trm_recogniser *more; /* tried before the built-in ones */
    int64_t more_count;
    /* what the caller knows besides, for the sentence when nothing fits; NULL = nothing */
    const char *other_kinds;
} trm_inspect_options;

/* Recognises `path` by content and describes it: safetensors, a checkpoint or a directory of them,
 * event file, TFRecord, .npy, .npz, ONNX, CIFAR-10 batch.
 *   errors  TRM_CORRUPT when nothing fits, naming what was tried, or with the first fault */
TRM_API TRM_MUST_USE trm_status trm_inspect(const char *path, const trm_inspect_options *options,
                                            trm_line_sink sink, void *context, trm_error *err);

/* ==== ONNX ================================================================================== */

/* ONNX models, built node by node and written, or read. IR version 8, opset
 * 17. What a graph of ours means in ONNX is its caller's knowledge; this is the file.
 *
 *     trm_onnx_model *model;
 *     trm_onnx_create("mlp", &model, &err);
 *     trm_onnx_add_input(model, &(trm_onnx_value){.name = "x", .dtype = TRM_FLOAT32, .rank = 2,
 *                                                 .dims = {{.symbol = "N"}, {.size = 784}}});
 *     trm_onnx_add_initializer(model, "w", &weights);
 *     trm_onnx_attribute trans_b = trm_onnx_int("transB", 1);
 *     trm_onnx_add_node(model, &(trm_onnx_node){.op = "Gemm", .inputs = (const char *[]){"x", "w"},
 *                       .input_count = 2, .outputs = (const char *[]){"y"}, .output_count = 1,
 *                       .attributes = &trans_b, .attribute_count = 1});
 *     trm_onnx_add_output(model, &(trm_onnx_value){.name = "y", ...});
 *     trm_onnx_write(model, "mlp.onnx", NULL, &err);       the first error of any call above, if any
 *     trm_onnx_destroy(model);
 *
 *   thread  one at a time per model
 */

enum { TRM_ONNX_IR_VERSION = 8, TRM_ONNX_OPSET = 17, TRM_ONNX_RANK_MAX = 8 };

typedef struct trm_onnx_model trm_onnx_model;

typedef enum trm_onnx_attribute_kind {
    TRM_ONNX_FLOAT = 1,
    TRM_ONNX_INT = 2,
    TRM_ONNX_STRING = 3,
    TRM_ONNX_TENSOR = 4,
    TRM_ONNX_FLOATS = 6,
    TRM_ONNX_INTS = 7,
    TRM_ONNX_OTHER = 0 /* read from a file: a subgraph, strings, ...; without its value */
} trm_onnx_attribute_kind;

typedef struct trm_onnx_attribute {
    const char *name;
    trm_onnx_attribute_kind kind;
    int64_t integer;
    float number;
    const char *text;
    const int64_t *integers;
    const float *numbers;
    int64_t count; /* of integers or numbers */
    trm_tensor tensor;
} trm_onnx_attribute;

/* Attributes of one line each. Borrowed pointers, no copies. */
TRM_API trm_onnx_attribute trm_onnx_int(const char *name, int64_t value);
TRM_API trm_onnx_attribute trm_onnx_ints(const char *name, const int64_t *values, int64_t count);
TRM_API trm_onnx_attribute trm_onnx_float(const char *name, float value);
TRM_API trm_onnx_attribute trm_onnx_string(const char *name, const char *value);

typedef struct trm_onnx_node {
    const char *op;            /* "Conv" */
    const char *name;          /* may be NULL */
    const char *domain;        /* NULL or "": ONNX's own */
    const char *const *inputs; /* names of values; "" for an optional one left out */
    int64_t input_count;
    const char *const *outputs;
    int64_t output_count;
    const trm_onnx_attribute *attributes;
    int64_t attribute_count;
} trm_onnx_node;

/* A dimension: a size, or a name for one that is known at run time only. */
typedef struct trm_onnx_dim {
    int64_t size;
    const char *symbol; /* "N"; NULL: `size` counts */
} trm_onnx_dim;

/* An input or output of the model. */
typedef struct trm_onnx_value {
    const char *name;
    trm_dtype dtype; /* TRM_DTYPE_NONE when read and none of ours */
    int32_t rank;    /* -1 when read without a shape */
    trm_onnx_dim dims[TRM_ONNX_RANK_MAX];
} trm_onnx_value;

/* ---- building -------------------------------------------------------------------------- */

/* owns  caller, trm_onnx_destroy    errors  TRM_NOMEM */
TRM_API TRM_MUST_USE trm_status trm_onnx_create(const char *graph_name, trm_onnx_model **out,
                                                trm_error *err);
TRM_API void trm_onnx_destroy(trm_onnx_model *model);

/* These keep the first error for trm_onnx_write. Everything is copied but the data of initialisers,
 * which must stay until the model has been written. Nodes are added in an order in which they can
 * run. */
TRM_API void trm_onnx_add_input(trm_onnx_model *model, const trm_onnx_value *value);
TRM_API void trm_onnx_add_output(trm_onnx_model *model, const trm_onnx_value *value);
TRM_API void trm_onnx_add_initializer(trm_onnx_model *model, const char *name,
                                      const trm_tensor *tensor);
TRM_API void trm_onnx_add_node(trm_onnx_model *model, const trm_onnx_node *node);
TRM_API void trm_onnx_add_metadata(trm_onnx_model *model, const char *key, const char *value);

typedef struct trm_onnx_write_options {
    int64_t external_from; /* a model of this many bytes and more keeps its large initialisers in a
                              second file, <path>.data; 0 = 2 GB, the limit of the format */
} trm_onnx_write_options;

/* Checks the graph (each value made once and before it is used, outputs exist) and writes it. The
 * file appears complete or not at all and is on the disk when the call returns; <path>.data, if
 * any, before it.
 *   errors  TRM_INVALID naming the node and value; TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_onnx_write(const trm_onnx_model *model, const char *path,
                                               const trm_onnx_write_options *options,
                                               trm_error *err);

/* ---- reading --------------------------------------------------------------------------- */

/* Maps a model and reads all but the data. Data in other files are looked for beside it only.
 *   errors  TRM_CORRUPT with the offset; TRM_UNSUPPORTED; TRM_INVALID for data outside its folder
 *   owns    trm_onnx_destroy; everything asked for below lives until then */
TRM_API TRM_MUST_USE trm_status trm_onnx_open(const char *path, trm_onnx_model **out,
                                              trm_error *err);

TRM_API const char *trm_onnx_graph_name(const trm_onnx_model *model);
TRM_API const char *trm_onnx_producer(const trm_onnx_model *model);
TRM_API int64_t trm_onnx_ir_version(const trm_onnx_model *model);
TRM_API int64_t trm_onnx_opset(const trm_onnx_model *model); /* of ONNX's own domain */
TRM_API int64_t trm_onnx_node_count(const trm_onnx_model *model);
TRM_API const trm_onnx_node *trm_onnx_node_at(const trm_onnx_model *model, int64_t index);
TRM_API int64_t trm_onnx_input_count(const trm_onnx_model *model);
TRM_API const trm_onnx_value *trm_onnx_input_at(const trm_onnx_model *model, int64_t index);
TRM_API int64_t trm_onnx_output_count(const trm_onnx_model *model);
TRM_API const trm_onnx_value *trm_onnx_output_at(const trm_onnx_model *model, int64_t index);
TRM_API int64_t trm_onnx_metadata_count(const trm_onnx_model *model);
TRM_API trm_text_pair trm_onnx_metadata_at(const trm_onnx_model *model, int64_t index);
TRM_API const trm_onnx_attribute *trm_onnx_attribute_of(const trm_onnx_node *node,
                                                        const char *name); /* NULL: has none */
TRM_API int64_t trm_onnx_initializer_count(const trm_onnx_model *model);
/* The tensor's data may be unaligned; dtype TRM_DTYPE_NONE for types that trm_dtype lacks. */
TRM_API const trm_named_tensor *trm_onnx_initializer_at(const trm_onnx_model *model, int64_t index);
TRM_API const trm_named_tensor *trm_onnx_initializer(
    const trm_onnx_model *model, const char *name); /* NULL: none. Linear time */
/* Copies initialiser `name` into `into`, whose data, dtype and shape are set and must agree.   errors  TRM_INVALID
 */
TRM_API TRM_MUST_USE trm_status trm_onnx_read(const trm_onnx_model *model, const char *name,
                                              const trm_tensor *into, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
