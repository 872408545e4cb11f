/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/checkpoint.h: what the writing and the reading side of checkpoints share.
 *
 *     out/
 *       checkpoint                    names the newest and the kept ones (TensorFlow's text form)
 *       ckpt-100/  model.safetensors  optimizer.safetensors  manifest.json
 *       ckpt-200/  ...
 *     temporary:
 *       ckpt-300.tmp.PID/             being written; renamed when complete
 *       ckpt-300.old/                 the former ckpt-300, until the new one is durable
 *       .trash-*                      being removed
 *       .in-use-ckpt-100-HOST-PID-N   mark of a reader
 *       .trireme.lock                 lock of the writer (lock.h)
 *       .kept-ckpt-100                mark of a checkpoint that is never removed
 *
 * The newest checkpoint is the one with the largest sequence number in its manifest, not with the
 * largest step: a run that went back to an older checkpoint continues from there.
 *
 * Invariants: a directory named ckpt-N is complete, because it is renamed only after all of its
 * files are flushed. One process writes in a directory (the lock); any number may read. */
#ifndef TRMI_SAVE_CHECKPOINT_H
#define TRMI_SAVE_CHECKPOINT_H

#include "trireme/io.h"

#include "base/os.h"
#include "save/file_out.h"
#include "save/checkpoint/checkpoint_manifest.h"

/* Bytes of a name such as "ckpt-100.old", with its '\0'. */
enum { TRMI_CHECKPOINT_NAME_BYTES = 64 };

/* Opens as trm_checkpoint_writer_open does, on another platform (base/os.h), with which tests
 * inject failures. */
trm_status trmi_checkpoint_writer_open_on(const trmi_os *os, const char *dir,
                                          const trm_checkpoint_options *options,
                                          trm_checkpoint_writer **out, trm_error *err);

/* A directory that is named like a checkpoint. */
typedef struct trmi_checkpoint_slot {
    char name[TRMI_CHECKPOINT_NAME_BYTES]; /* of the directory, "ckpt-100" */
    int64_t step;                          /* from the name */
    int64_t sequence;                      /* -1: the manifest cannot be used; `problem` says why */
    double saved_unix_seconds;             /* from the manifest */
    trm_error problem;                     /* of an unusable manifest */
} trmi_checkpoint_slot;

/* The checkpoints of a directory. */
typedef struct trmi_checkpoint_list {
    trmi_checkpoint_slot *slots; /* newest first; those without a usable manifest last */
    int64_t count, capacity;
} trmi_checkpoint_list;

/* Returns whether `name` is "ckpt-<step>" or "ckpt-<step>.old"; *step is then its number. */
bool trmi_checkpoint_is_name(const char *name, int64_t *step);
/* Lists the checkpoints of `dir` and reads their manifests. A missing directory gives an empty
 * list. */
trm_status trmi_checkpoint_list_dir(const char *dir, trmi_checkpoint_list *out, trm_error *err);
/* Frees the list, which is then empty. */
void trmi_checkpoint_list_free(trmi_checkpoint_list *list);

/* Reads and checks <path>/manifest.json.
 *   errors  CORRUPT (missing or damaged), UNSUPPORTED (written by a newer version), NOMEM, IO
 *   owns    the caller: trmi_manifest_free */
trm_status trmi_checkpoint_read_manifest(const char *path, trmi_checkpoint_manifest *out,
                                         trm_error *err);
/* Reads every file of the checkpoint and compares it with the manifest.
 *   errors  CORRUPT, IO, NOMEM */
trm_status trmi_checkpoint_verify(const char *path, const trmi_checkpoint_manifest *manifest,
                                  trm_error *err);

/* Returns the number of parts of an open checkpoint. */
int64_t trmi_checkpoint_part_count(const trm_checkpoint *checkpoint);
/* Returns the name of part `index`; NULL after the last. */
const char *trmi_checkpoint_part_name(const trm_checkpoint *checkpoint, int64_t index);

/* Returns whether a live reader uses this checkpoint. Removes the marks of dead readers. */
bool trmi_checkpoint_in_use(const char *dir, const char *name, const trmi_os *os);
#define TRMI_IN_USE_PREFIX ".in-use-"
#define TRMI_TRASH_PREFIX ".trash-"
#define TRMI_KEPT_PREFIX                                                                           \
    ".kept-" /* an empty file: this checkpoint is never removed (keep_every_hours) */

/* Removes what an interrupted writer has left, and restores a checkpoint that was being replaced.
 * The caller holds the lock. Failures are only logged. */
void trmi_checkpoint_tidy(const char *dir, const trmi_os *os);
/* Renames <dir>/<name> to a hidden name, then removes it, so that no reader sees half of it. */
trm_status trmi_checkpoint_trash(const char *dir, const char *name, const trmi_os *os,
                                 trm_error *err);

#endif
