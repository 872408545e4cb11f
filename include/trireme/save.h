/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/save.h: numbers to disk and back: safetensors files and checkpoints.
 * Event files and metrics are in save_events.h, NumPy's formats and `inspect` in save_files.h, ONNX
 * in save_onnx.h.
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
#ifndef TRIREME_SAVE_H
#define TRIREME_SAVE_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
