/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/io.h: files that training writes and reads: checkpoints and safetensors, event files and
 * metrics, NumPy's formats, the inspection of any of them, and the export of a model's weights.
 * trireme/train.h writes most of them by itself; this header is for programs with a loop of their
 * own and for tools.
 *
 *     trm_tensor weights = {.data = w, .dtype = TRM_FLOAT32, .shape = trm_shape_of(10, 784)};
 *     trm_npy_write("fc.npy", &weights, &err);
 *
 * Sections: checkpoints and safetensors; event files and metrics; NumPy files and inspection;
 * export, also as folders of Hugging Face.
 *
 * Unless a comment says otherwise, a file appears complete or not at all, and is on the disk when
 * the function returns. */
#ifndef TRIREME_IO_H
#define TRIREME_IO_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== checkpoints and safetensors =========================================================== */

/* Safetensors files, and checkpoints made of them.
 *
 *     trm_checkpoint_writer *writer;
 *     trm_checkpoint_writer_open("out", &(trm_checkpoint_options){.keep = 3}, &writer, &err);
 *     trm_checkpoint_part parts[] = {{.name = "model", .tensors = weights, .count = n}};
 *     trm_checkpoint_save(writer, &(trm_checkpoint_info){.global_step = 100}, parts, 1, &err);
 *     trm_checkpoint_writer_close(writer, &err);
 *
 *     trm_checkpoint *found;
 *     trm_status status = trm_checkpoint_open("out", NULL, &found, &err);
 *     if (status == TRM_END) ...               no checkpoint there: start afresh
 *     else if (status != TRM_OK) ...           err names the damaged file and the place
 *     trm_safetensors_read(trm_checkpoint_part_of(found, "model"), "fc.weight", &tensor, &err);
 *     trm_checkpoint_close(found); */

/* A tensor with its name, both borrowed. */
typedef struct trm_named_tensor {
    const char *name;  /* of the tensor */
    trm_tensor tensor; /* its elements */
} trm_named_tensor;

/* Two strings, both borrowed. */
typedef struct trm_text_pair {
    const char *key;   /* its name */
    const char *value; /* its text */
} trm_text_pair;

/* ---- safetensors ----------------------------------------------------------------------- */

/* Writes a file that every safetensors reader takes: tensors ordered by the width of their type
 * (widest first), then by name; data begin at a multiple of 8. Takes one pass over the data and no
 * copy.
 *   param    tensors: [count]
 *            metadata: [metadata_count]
 *   errors   INVALID (a name that is not UTF-8 or not unique, a bad shape), IO, NOSPACE
 *   source   https://huggingface.co/docs/safetensors */
TRM_API TRM_MUST_USE trm_status trm_safetensors_write(const char *path,
                                                      const trm_named_tensor *tensors,
                                                      int64_t count, const trm_text_pair *metadata,
                                                      int64_t metadata_count, trm_error *err);

/* An open safetensors file: a mapping and its index. Several threads may read it. */
typedef struct trm_safetensors trm_safetensors;

/* One tensor of a file. All pointers belong to the file. */
typedef struct trm_safetensors_entry {
    const char *name;    /* of the tensor */
    const char *dtype;   /* in the file's words: "F32", "BF16", "BOOL", "F8_E4M3", ... */
    int32_t rank;        /* may exceed TRM_MAX_RANK */
    const int64_t *dims; /* [rank] */
    int64_t offset;      /* of the first byte in the file */
    int64_t bytes;       /* of the data */
    /* read-only view into the mapping. dtype is TRM_DTYPE_NONE where trm_dtype has no such type or
     * the rank is too high. Files of other programs may have unaligned data: trm_safetensors_read
     * copies */
    trm_tensor tensor;
} trm_safetensors_entry;

/* Maps a file and checks its header: every byte must belong to exactly one tensor.
 *   errors   CORRUPT (with the byte offset of the first fault), IO, NOMEM
 *   owns     caller: trm_safetensors_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_safetensors_open(const char *path, trm_safetensors **out,
                                                     trm_error *err);
/* Closes the file. NULL is accepted. */
TRM_API void trm_safetensors_close(trm_safetensors *file);
/* Returns the number of tensors. */
TRM_API int64_t trm_safetensors_count(const trm_safetensors *file);
/* Returns entry `index` in the order of the data; NULL after the last.
 *   owns     the file */
TRM_API const trm_safetensors_entry *trm_safetensors_at(const trm_safetensors *file, int64_t index);
/* Returns the entry of this name, in O(log n); NULL if there is none.
 *   owns     the file */
TRM_API const trm_safetensors_entry *trm_safetensors_find(const trm_safetensors *file,
                                                          const char *name);
/* Returns the number of pairs of the file's `__metadata__`. */
TRM_API int64_t trm_safetensors_metadata_count(const trm_safetensors *file);
/* Returns pair `index` of the file's `__metadata__`; both texts are NULL after the last.
 *   owns     the file */
TRM_API trm_text_pair trm_safetensors_metadata_at(const trm_safetensors *file, int64_t index);
/* Returns the value of a key of the file's `__metadata__`; NULL if there is none.
 *   owns     the file */
TRM_API const char *trm_safetensors_metadata(const trm_safetensors *file, const char *key);
/* Copies a tensor out. Floating types are converted to each other (to nearest even); other types
 * must be equal.
 *   param    into: data, dtype and shape are set by the caller; the shape must be the file's
 *   errors   INVALID (with both shapes or types, or no tensor of this name) */
TRM_API TRM_MUST_USE trm_status trm_safetensors_read(const trm_safetensors *file, const char *name,
                                                     const trm_tensor *into, trm_error *err);

/* ---- checkpoints ----------------------------------------------------------------------- */

/* Content of a checkpoint besides its tensors. Strings of an open checkpoint belong to it. */
typedef struct trm_checkpoint_info {
    int64_t global_step;     /* updates applied; names the folder: ckpt-<global_step> */
    int64_t epoch;           /* the epoch in progress */
    int64_t data_position;   /* samples of this epoch that are used, of all ranks */
    uint64_t seed;           /* with counter-based random numbers this is all of their state */
    int32_t world_size;      /* ranks of the job */
    const char *config_json; /* settings of the run, a JSON object; NULL = {} */
    /* state of the trainer (loss scale, best metric, fingerprint of the data ...), a JSON object;
     * NULL = {} */
    const char *state_json;
    int64_t sequence;          /* filled in when read: order of saving in this folder */
    double saved_unix_seconds; /* filled in when read: time of saving */
    const char *path;          /* filled in when read: its folder ("out/ckpt-100") */
    int64_t skipped; /* filled in when read: damaged checkpoints skipped before this one */
} trm_checkpoint_info;

/* One file of a checkpoint, <name>.safetensors. Usual are "model" with the names of torchvision and
 * "optimizer" with the slots ("<parameter>/momentum"); any other name is allowed. */
typedef struct trm_checkpoint_part {
    const char *name;                /* of the part */
    const trm_named_tensor *tensors; /* [count] */
    int64_t count;
    const trm_text_pair *metadata; /* [metadata_count] */
    int64_t metadata_count;
    /* gives tensors whose data are NULL, because they are too large for memory, while the file is
     * written, in order and a few megabytes at a time: rows (of the first dimension) [first, first
     * + rows) into `to`. An error ends the save. Such a checkpoint is not saved in the background.
     * NULL = none */
    trm_status (*read)(void *context, const trm_named_tensor *tensor, int64_t first, int64_t rows,
                       void *to, trm_error *err);
    void *read_context; /* for `read` */
} trm_checkpoint_part;

/* Options of a checkpoint writer. Zero means the default. */
typedef struct trm_checkpoint_options {
    int32_t keep;             /* newest checkpoints that stay; 0 = 5, TRM_ALL = all */
    double keep_every_hours;  /* beside them one in so many hours stays for ever; 0 = none */
    bool background;          /* a save copies to memory and returns; a thread writes */
    double lock_wait_seconds; /* limit of waiting for another writer to leave; at least 2 s */
    /* wait for a writer on another host while it gives no sign of life, until it counts as gone:
     * 60 s after the last one. A writer that lives gives one every 5 s */
    bool outwait_lock;
    /* limit of that wait, at least 2 s; a writer that does not count as gone by then is an error. 0
     * = until it does. Models: the limit in which the ranks must have met (trm_join_options), if
     * that is shorter */
    double outwait_seconds;
    /* called when a checkpoint is on the disk; with `background`, from the writing thread. NULL =
     * none */
    void (*on_saved)(void *context, const char *path, int64_t global_step);
    void *on_saved_context; /* for `on_saved` */
} trm_checkpoint_options;

/* The one writer of an output folder.
 *
 *   threads  one thread at a time */
typedef struct trm_checkpoint_writer trm_checkpoint_writer;

/* Makes the folder, takes its lock and removes what an interrupted writer left. The lock of a
 * dead process is taken over; on another host, after 60 s without a sign of life.
 *   param    options: NULL = defaults
 *   errors   INVALID (another process writes there, with its host, pid and start), IO, NOSPACE,
 *            NOMEM
 *   owns     caller: trm_checkpoint_writer_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_writer_open(const char *folder,
                                                           const trm_checkpoint_options *options,
                                                           trm_checkpoint_writer **out,
                                                           trm_error *err);

/* Saves <folder>/ckpt-<global_step>, replacing one of this step. When it returns TRM_OK (with
 * `background`: when trm_checkpoint_wait does), the checkpoint is complete on the disk. If anything
 * fails, or the process is killed at any point, earlier checkpoints still load. Then
 * <folder>/checkpoint names the newest, and all but the newest `keep` are removed: never one in
 * use, and never before two of those kept (one if keep is 1) have been read back and verified.
 *   param    parts: [part_count]
 *   errors   NOSPACE (before anything is written, unless 1.2 times the size is free), IO, INVALID.
 *            With `background`: this save has started, and the error may be that of the one before,
 *            which its sentence says */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_save(trm_checkpoint_writer *writer,
                                                    const trm_checkpoint_info *info,
                                                    const trm_checkpoint_part *parts,
                                                    int64_t part_count, trm_error *err);

/* Waits for the save in the background.
 *   errors   those of that save, unless they have been returned already */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_wait(trm_checkpoint_writer *writer, trm_error *err);

/* Waits for the save in the background, releases the lock and frees the writer, also after an
 * error. If saving failed, removes a folder that open made and that is empty. NULL is accepted.
 *   errors   those of trm_checkpoint_wait */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_writer_close(trm_checkpoint_writer *writer,
                                                            trm_error *err);

/* A verified checkpoint, open for reading. Several threads may read it. */
typedef struct trm_checkpoint trm_checkpoint;

/* Options of opening a checkpoint. */
typedef struct trm_checkpoint_open_options {
    /* a writer does not remove it before close; tried only, since it needs a writable folder */
    bool mark_in_use;
} trm_checkpoint_open_options;

/* Opens one checkpoint, or the newest sound one of an output folder. Each file is read and
 * compared with its checksums first. Damaged checkpoints are named in the log (WARN) and skipped.
 *   param    options: NULL = defaults
 *   errors   END (no checkpoint or no folder there: start afresh), CORRUPT (only damaged ones:
 *            file, block and offset of the newest), INVALID (no checkpoint of this name, or not a
 *            folder), UNSUPPORTED (a checkpoint of another version), IO, NOMEM
 *   owns     caller: trm_checkpoint_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_open(const char *path,
                                                    const trm_checkpoint_open_options *options,
                                                    trm_checkpoint **out, trm_error *err);
/* Closes the checkpoint. NULL is accepted. */
TRM_API void trm_checkpoint_close(trm_checkpoint *checkpoint);
/* Returns the checkpoint's step, position and settings.
 *   owns     the checkpoint */
TRM_API const trm_checkpoint_info *trm_checkpoint_get_info(const trm_checkpoint *checkpoint);
/* Returns the part of this name ("model"); NULL if there is none.
 *   owns     the checkpoint */
TRM_API const trm_safetensors *trm_checkpoint_part_of(const trm_checkpoint *checkpoint,
                                                      const char *name);

/* Gives the global step of the newest complete checkpoint in `folder`, by its manifest alone. For
 * evaluators that poll.
 *   errors   END (there is none), IO */
TRM_API TRM_MUST_USE trm_status trm_checkpoint_latest(const char *folder, int64_t *global_step,
                                                      trm_error *err);

/* ==== event files and metrics =============================================================== */

/* Records of a run, for people and tools: TensorBoard event files, and metrics as CSV or JSON
 * lines.
 *
 * Each record is appended with one write(2), so that neither a reader nor a crash sees half a
 * record in the middle. When a write fails (full disk), the file is cut back to its last whole
 * record and the next call tries again; training need not stop for it.
 *
 *   threads  one thread at a time per object */

/* A number with its name ("loss", "accuracy/top1"), borrowed. */
typedef struct trm_named_scalar {
    const char *name; /* of the number */
    double value;     /* the number */
} trm_named_scalar;

/* ---- TensorBoard ----------------------------------------------------------------------- */

/* An event file, open for writing. */
typedef struct trm_events trm_events;

/* Options of an event file. Zero: a new run. */
typedef struct trm_events_options {
    bool resumed;        /* this run continues from a checkpoint */
    int64_t resume_step; /* points of older files after this step disappear from the charts */
} trm_events_options;

/* Makes a new file <folder>/events.out.tfevents.<time>.<host>.<pid>.<n>, and the folder if it is
 * missing. TensorBoard shows the folder's name as the run's.
 *   param    options: NULL = a new run
 *   errors   IO, NOSPACE, NOMEM
 *   owns     caller: trm_events_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_events_open(const char *folder,
                                                const trm_events_options *options, trm_events **out,
                                                trm_error *err);
/* Returns the path of the file.
 *   owns     events */
TRM_API const char *trm_events_path(const trm_events *events);

/* Writes one point of each curve. After an error the file is as before.
 *   param    scalars: [count]
 *            step: global step, the horizontal axis
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_events_scalars(trm_events *events, int64_t step,
                                                   const trm_named_scalar *scalars, int64_t count,
                                                   trm_error *err);

/* Writes the distribution of a tensor's values, of any type, over TensorFlow's buckets, which grow
 * by 10 %. Infinite values and NaN are left out. Takes one pass, about 10 ns an element. After an
 * error the file is as before.
 *   param    step: global step
 *            tag: name of the histogram
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_events_histogram(trm_events *events, int64_t step,
                                                     const char *tag, const trm_tensor *values,
                                                     trm_error *err);

/* A node of a graph. Names with '/' become groups that can be opened. */
typedef struct trm_graph_event_node {
    const char *name;          /* of the node */
    const char *op;            /* "Conv2D" */
    const char *const *inputs; /* [input_count] names of nodes */
    int64_t input_count;
    const char *device;            /* "rank:0"; NULL = none */
    const trm_shape *output_shape; /* shown on the edges; NULL = unknown */
} trm_graph_event_node;
/* Writes a graph. After an error the file is as before.
 *   param    nodes: [count]
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_events_graph(trm_events *events,
                                                 const trm_graph_event_node *nodes, int64_t count,
                                                 trm_error *err);

/* Flushes to the disk (fsync). Readers see records without it.
 *   errors   IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_events_flush(trm_events *events, trm_error *err);
/* Flushes to the disk and frees the object, also after an error. NULL is accepted.
 *   errors   IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_events_close(trm_events *events, trm_error *err);

/* ---- metrics --------------------------------------------------------------------------- */

/* A file of metrics, open for writing. */
typedef struct trm_metrics trm_metrics;

/* Options of a file of metrics. */
typedef struct trm_metrics_options {
    /* [column_count] CSV: all names that will come; required there */
    const char *const *columns;
    int64_t column_count; /* 0 = none */
    bool resumed;         /* appends to an existing file; false: it is emptied */
    int64_t resume_step;  /* lines after this step are dropped: they will come again */
} trm_metrics_options;

/* Opens a file of metrics. The form follows its ending:
 *
 *   .csv     global_step,event,<columns>; values that a line lacks stay empty
 *   .jsonl   {"time":..., "event":"step", "global_step":7, "loss":2.5}; NaN and infinities: null
 *
 * Half a line at the end of an existing file (from a crash) is cut off.
 *   param    options: NULL = defaults, for .jsonl
 *   errors   INVALID (another ending, a CSV file with other columns), IO, NOMEM
 *   owns     caller: trm_metrics_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_metrics_open(const char *path,
                                                 const trm_metrics_options *options,
                                                 trm_metrics **out, trm_error *err);
/* Writes one line. A value that is a float is written with 9 digits: equal bits give equal text.
 *   param    event: "step" (also NULL), "epoch", "eval"
 *            scalars: [count]
 *   errors   INVALID (a name without a column), IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_metrics_write(trm_metrics *metrics, const char *event,
                                                  int64_t global_step,
                                                  const trm_named_scalar *scalars, int64_t count,
                                                  trm_error *err);
/* Flushes to the disk and frees the object, also after an error. NULL is accepted.
 *   errors   IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_metrics_close(trm_metrics *metrics, trm_error *err);

/* A record of a run: JSON lines that are only appended. trm_run_recorder (trireme/train.h) writes
 * it; `trireme report` and `top` read FOLDER/run.jsonl. */
typedef struct trm_record trm_record;

/* Opens or creates the record of a process in a folder, with the folder. Half a line at its end
 * (from a crash) gets a line end.
 *   param    role: the process is task `number` of it; the record is
 *            DIRECTORY/run-ROLE-NUMBER.jsonl. NULL, or "rank" with 0: DIRECTORY/run.jsonl
 *   errors   IO, NOMEM
 *   owns     caller: trm_record_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_record_open(const char *folder, const char *role,
                                                int32_t number, trm_record **out, trm_error *err);
/* Appends a JSON object by one call of write(2), with the time in front: {"time":...,"event":...}.
 *   param    json: [bytes]: an object with members, without a line end
 *   errors   INVALID (no such object), IO, NOSPACE, NOMEM
 *   threads  any */
TRM_API TRM_MUST_USE trm_status trm_record_line(trm_record *record, const char *json, size_t bytes,
                                                trm_error *err);
/* Closes the record. NULL is accepted. */
TRM_API void trm_record_close(trm_record *record);

/* ==== NumPy files and inspection ============================================================ */

/* NumPy's .npy and .npz, and the inspection of files. */

/* ---- NumPy ----------------------------------------------------------------------------- */

/* Writes one array, for numpy.load. bfloat16, which NumPy lacks, is widened to float32.
 *   errors   IO, NOSPACE
 *   source   NumPy Enhancement Proposal 1 */
TRM_API TRM_MUST_USE trm_status trm_npy_write(const char *path, const trm_tensor *array,
                                              trm_error *err);
/* Writes an uncompressed archive of arrays, as numpy.savez; members are aligned, so that they can
 * be mapped. bfloat16 is widened to float32.
 *   param    arrays: [count]
 *   errors   INVALID (names that are empty or not unique), IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_npz_write(const char *path, const trm_named_tensor *arrays,
                                              int64_t count, trm_error *err);

/* A mapped .npz or .npy file. Several threads may read it. */
typedef struct trm_npz trm_npz;

/* One array of a file. All pointers belong to the file. */
typedef struct trm_npz_entry {
    const char *name;    /* without ".npy"; "" in a .npy file */
    const char *descr;   /* NumPy's word: "<f4", "|b1" */
    bool fortran_order;  /* first dimension varies fastest */
    int32_t rank;        /* may exceed TRM_MAX_RANK */
    const int64_t *dims; /* [rank] */
    int64_t offset;      /* of the data in the file */
    int64_t bytes;       /* of the data */
    /* read-only view of the data, perhaps unaligned. dtype is TRM_DTYPE_NONE if trm_dtype has no
     * such type, the rank is above TRM_MAX_RANK, or the order is Fortran's */
    trm_tensor tensor;
} trm_npz_entry;

/* Opens an archive, or a single .npy, recognised by content, and verifies the checksums of all
 * members.
 *   errors   CORRUPT (with member and offset), UNSUPPORTED (compressed archives, big-endian and
 *            object arrays; the sentence says how to save instead), IO, NOMEM
 *   owns     caller: trm_npz_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_npz_open(const char *path, trm_npz **out, trm_error *err);
/* Closes the file. NULL is accepted. */
TRM_API void trm_npz_close(trm_npz *file);
/* Returns the number of arrays. */
TRM_API int64_t trm_npz_count(const trm_npz *file);
/* Returns array `index`; NULL after the last.
 *   owns     the file */
TRM_API const trm_npz_entry *trm_npz_at(const trm_npz *file, int64_t index);
/* Returns the array of this name; NULL if there is none.
 *   owns     the file */
TRM_API const trm_npz_entry *trm_npz_find(const trm_npz *file, const char *name);
/* Copies an array out.
 *   param    into: data, dtype and shape are set by the caller and must be the file's
 *   errors   INVALID (with both shapes or types) */
TRM_API TRM_MUST_USE trm_status trm_npz_read(const trm_npz *file, const char *name,
                                             const trm_tensor *into, trm_error *err);

/* ---- a small file ---------------------------------------------------------------------- */

/* Writes a small file, replacing the one that was there.
 *   param    data: [bytes]
 *   errors   IO (also: the path is a folder or a device), NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_file_write(const char *path, const void *data, size_t bytes,
                                               trm_error *err);

/* Checks before long work that its result can be written to a path. Changes nothing.
 *   param    folder: false = a file: its folder must be there; true = a folder, which is made with
 *            its parents
 *   errors   IO (also: a file's path is a folder or a device), INVALID (the path is too long) */
TRM_API TRM_MUST_USE trm_status trm_path_check(const char *path, bool folder, trm_error *err);

/* ---- inspect --------------------------------------------------------------------------- */

/* Receives one line of the description, without its newline. */
typedef void (*trm_line_sink)(void *context, const char *line);

/* A path that is inspected. */
typedef struct trm_probe {
    const char *path;    /* as given */
    bool is_directory;   /* there is no data then */
    const uint8_t *data; /* [bytes] the whole file, mapped; NULL if empty or a folder */
    int64_t bytes;       /* of the file */
} trm_probe;

/* A kind of file that can be inspected. */
typedef struct trm_recogniser {
    const char *kind; /* "safetensors" */
    /* part of the usual names (".safetensors"): decides when no content fits, so that a damaged
     * file gets the fitting error. NULL = none */
    const char *name_hint;
    /* returns true if the content can be of this kind */
    bool (*matches)(const trm_probe *probe);
    /* checks the file from end to end and describes it: lines for people, or one JSON object on one
     * line. The first fault ends it with TRM_CORRUPT and its place, after the lines before it */
    trm_status (*describe)(const trm_probe *probe, bool json, trm_line_sink sink, void *context,
                           trm_error *err);
} trm_recogniser;

/* Options of an inspection. Zero means the default. */
typedef struct trm_inspect_options {
    bool json;                  /* one JSON object in place of lines */
    const trm_recogniser *more; /* [more_count] recognisers, tried before the library's */
    int64_t more_count;         /* 0 = none */
    /* further kinds that the caller recognises, for the error when nothing fits; NULL = none */
    const char *other_kinds;
} trm_inspect_options;

/* Recognises a file or folder by content and describes it: safetensors, a checkpoint or a
 * folder of them, event file, TFRecord, .npy, .npz, ONNX, CIFAR-10 batch.
 *   param    options: NULL = lines, the library's kinds
 *            sink: receives each line; context: for `sink`
 *   errors   CORRUPT (nothing fits, with the kinds that were tried; or the first fault), INVALID
 *            (neither a file nor a folder), IO */
TRM_API TRM_MUST_USE trm_status trm_inspect(const char *path, const trm_inspect_options *options,
                                            trm_line_sink sink, void *context, trm_error *err);

/* ==== export ================================================================================ */

/* Weights of a model for other programs. Files appear complete or not at all. */

/* Writes parameters and states in plain float32 by the network's names (torchvision's).
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_safetensors(trm_model *model, const char *path,
                                                       trm_error *err);
/* Writes parameters and states as arrays for numpy.load.
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_npz(trm_model *model, const char *path, trm_error *err);
/* Writes the evaluation network from its input ("image", with an open batch) to "logits", opset 17.
 * The model must have been made with evaluation_only.
 *   errors   UNSUPPORTED (naming an operator that ONNX cannot express here), INVALID (no
 *            evaluation_only), IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_onnx(trm_model *model, const char *path, trm_error *err);

/* ---- Hugging Face folders -------------------------------------------------------------------- */

/* Folders as transformers writes and reads them: config.json, weights as safetensors, tokenizer.
 * There are those of language models, and of the image model vit. trm_model_load takes them, too.
 */

/* Options of an exported folder. Zero means the default, except for `model`. */
typedef struct trm_huggingface_options {
    const char *model;                   /* name of the language model, or vit */
    const trm_language_options *network; /* options that it was built with; NULL = all zeros */
    const trm_vit_options *vit;          /* vit: options that it was built with; NULL = all zeros */
    const trm_tokenizer *tokenizer;      /* written, too; NULL = none */
    int64_t shard_bytes;                 /* most bytes of a file of weights; 0 = 5e9 */
    /* a network with adapters: they are added to the weights; false: the folder has the adapters
     * alone, as peft loads them beside the weights that training began with */
    bool merge;
    /* vit: mean and deviation with which images are normalised after a factor of 1 / 255, written
     * to preprocessor_config.json; image_std all 0 = not known, not written */
    double image_mean[3], image_std[3];
} trm_huggingface_options;
/* Writes a folder that AutoModelForCausalLM.from_pretrained loads (bert: BertForMaskedLM, vit:
 * ViTForImageClassification): config.json, model.safetensors, or files of at most shard_bytes with
 * model.safetensors.index.json, the tokenizer's files, and for vit the preprocessor_config.json of
 * AutoImageProcessor. Makes the folder; config.json is the last file that is written. Adapters
 * without `merge`: adapter_model.safetensors and adapter_config.json of PeftModel.from_pretrained,
 * in a folder without the weights of a whole model.
 *   errors   UNSUPPORTED (options that transformers' model does not have), INVALID, IO, NOSPACE,
 *            NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_huggingface(trm_model *model,
                                                       const trm_huggingface_options *options,
                                                       const char *folder, trm_error *err);
/* Reads the model and its options from the folder's config.json.
 *   param    model: name of the language model, written; a static string
 *   errors   IO, CORRUPT, UNSUPPORTED (naming the setting that the model here does not have) */
TRM_API TRM_MUST_USE trm_status trm_huggingface_read(const char *folder, const char **model,
                                                     trm_language_options *network, trm_error *err);
/* Reads an image model, its options and the height and width of its images from the folder's
 * config.json.
 *   param    model: "vit", written; a static string
 *   errors   IO, CORRUPT, UNSUPPORTED (naming the setting that the model here does not have) */
TRM_API TRM_MUST_USE trm_status trm_huggingface_read_image(const char *folder, const char **model,
                                                           trm_network_options *network,
                                                           int64_t *image_size, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
