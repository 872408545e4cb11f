/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/checkpoint.h: what the writing and the reading side of checkpoints share.
 *
 *     out/
 *       checkpoint                    names the newest and the kept ones (TensorFlow's text form)
 *       ckpt-100/  model.safetensors  optimizer.safetensors  manifest.json
 *       ckpt-200/  ...
 *     in passing:
 *       ckpt-300.tmp.PID/             being written; renamed when complete
 *       ckpt-300.old/                 what was called ckpt-300 before, until the new one is there
 *       .trash-*                      being removed
 *       .in-use-ckpt-100-HOST-PID-N   a reader's mark
 *       .trireme.lock                 the writer's
 *
 * The newest is the one with the largest sequence number in its manifest, not the largest step: a
 * run that went back to an older checkpoint goes on from there.
 */
#ifndef TRMI_SAVE_CHECKPOINT_H
#define TRMI_SAVE_CHECKPOINT_H

#include "trireme/save.h"

#include "base/os.h"
#include "save/file_out.h"
#include "save/checkpoint/manifest.h"

enum { TRMI_CHECKPOINT_NAME_BYTES = 64 };

/* trm_checkpoint_writer_open on another platform (base/os.h), so that tests see failures. */
trm_status trmi_checkpoint_writer_open_on(const trmi_os *os, const char *dir,
                                          const trm_checkpoint_options *options,
                                          trm_checkpoint_writer **out, trm_error *err);

/* One directory called like a checkpoint. */
typedef struct trmi_checkpoint_slot {
    char name[TRMI_CHECKPOINT_NAME_BYTES];
    int64_t step;
    int64_t sequence; /* -1 if the manifest cannot be used; `problem` says why */
    double saved_unix_seconds;
    trm_error problem;
} trmi_checkpoint_slot;

typedef struct trmi_checkpoint_list {
    trmi_checkpoint_slot *slots; /* newest first; those without a usable manifest at the end */
    int64_t count, capacity;
} trmi_checkpoint_list;

/* Is `name` "ckpt-<step>" or "ckpt-<step>.old"? */
bool trmi_checkpoint_is_name(const char *name, int64_t *step);
/* Looks at all manifests of `dir`. A missing directory is an empty list. */
trm_status trmi_checkpoint_list_dir(const char *dir, trmi_checkpoint_list *out, trm_error *err);
void trmi_checkpoint_list_free(trmi_checkpoint_list *list);

/* Reads and checks <path>/manifest.json. */
trm_status trmi_checkpoint_read_manifest(const char *path, trmi_checkpoint_manifest *out,
                                         trm_error *err);
/* Holds every file of the checkpoint against the manifest. */
trm_status trmi_checkpoint_verify(const char *path, const trmi_checkpoint_manifest *manifest,
                                  trm_error *err);

/* Is some live reader using this checkpoint? Removes the marks of dead ones. */
bool trmi_checkpoint_in_use(const char *dir, const char *name, const trmi_os *os);
#define TRMI_IN_USE_PREFIX ".in-use-"
#define TRMI_TRASH_PREFIX ".trash-"
#define TRMI_KEPT_PREFIX                                                                           \
    ".kept-" /* an empty file: this checkpoint stays for ever (keep_every_hours) */

/* Removes what an interrupted writer left and brings back a checkpoint that was being replaced.
 * The caller holds the lock. Trouble is logged, nothing more. */
void trmi_checkpoint_tidy(const char *dir, const trmi_os *os);
/* Moves <dir>/<name> out of sight, then removes it. */
trm_status trmi_checkpoint_trash(const char *dir, const char *name, const trmi_os *os,
                                 trm_error *err);

#endif
