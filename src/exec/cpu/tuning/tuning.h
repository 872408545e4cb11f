/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/tuning/tuning.h: measured choices, kept in a small text file.
 *
 *      trireme tuning 1
 *      <machine> TAB <problem> TAB <algorithm> TAB <seconds>
 *
 * The machine is CPU model and stepping, library version, instruction set, the revision of our
 * kernels and
 * threads, so that one file serves a shared home directory. Lines of other machines are kept. A
 * file that is damaged, or of another
 * version, counts as empty and is replaced. Without a file no algorithm is measured: choices are
 * then the
 * built-in ones, the same in every run where each process finds that pairs of bfloat16 gain the
 * same (rates.h: a power of two).
 *   thread  one thread at a time */
#ifndef TRMI_EXEC_ONEDNN_TUNING_H
#define TRMI_EXEC_ONEDNN_TUNING_H

#include "trireme/base.h"

typedef struct trmi_tuning trmi_tuning;

/* `path` NULL or "" = no file; a missing file is an empty one.  NOMEM. owns: caller destroys */
trm_status trmi_tuning_create(const char *path, int threads, const char *library, const char *isa,
                              trmi_tuning **out, trm_error *err);
void trmi_tuning_destroy(trmi_tuning *tuning);
/* Is there a file, so that measuring pays? */
bool trmi_tuning_has_file(const trmi_tuning *tuning);
/* This machine's choice for the problem; false when there is none. owns: the tuning */
bool trmi_tuning_find(const trmi_tuning *tuning, const char *problem, const char **algorithm,
                      double *seconds);
/* Remembers a choice, replacing an older one if it differs, with `seconds` as they will be read
 * from the file. Lack of memory only loses it. */
void trmi_tuning_add(trmi_tuning *tuning, const char *problem, const char *algorithm,
                     double seconds);
/* Writes the file (atomically) if something was added, together with what others wrote meanwhile.
 */
trm_status trmi_tuning_save(trmi_tuning *tuning, trm_error *err);
/* Adds the lines of a file's bytes; false when they are damaged (what came before is kept). */
bool trmi_tuning_parse(trmi_tuning *tuning, const char *text, size_t bytes);
int64_t trmi_tuning_count(const trmi_tuning *tuning);

#endif
