/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/tuning/tuning.h: measured choices of algorithms, kept in a text file.
 *
 *      trireme tuning 1
 *      <machine> TAB <problem> TAB <algorithm> TAB <seconds>
 *
 * The machine is CPU model and stepping, library version, instruction set, revision of the kernels
 * and threads, so that machines can share one file. Lines of other machines are kept. A file that
 * is damaged or of another version counts as empty and is replaced. Without a file nothing is
 * measured: the built-in model chooses, which gives the same choices in every run (the gain of
 * bfloat16 pairs is rounded to a power of two for this reason, rates.h).
 *   threads  one thread at a time */
#ifndef TRMI_EXEC_CPU_TUNING_H
#define TRMI_EXEC_CPU_TUNING_H

#include "trireme/base.h"

typedef struct trmi_tuning trmi_tuning;

/* Reads the file at `path`; NULL or "" = no file; a missing file is empty. `library`, `isa`: parts
 * of the machine's name.   owns  *out: the caller    errors  NOMEM */
trm_status trmi_tuning_create(const char *path, int threads, const char *library, const char *isa,
                              trmi_tuning **out, trm_error *err);
void trmi_tuning_destroy(trmi_tuning *tuning);
/* Returns whether there is a file; without one measurements would be lost. */
bool trmi_tuning_has_file(const trmi_tuning *tuning);
/* Finds this machine's choice for a problem; false: there is none.   owns  *algorithm: the
 * tuning */
bool trmi_tuning_find(const trmi_tuning *tuning, const char *problem, const char **algorithm,
                      double *seconds);
/* Adds a choice, or replaces the older one. `seconds` is rounded as it is written to the file.
 * Without memory the choice is lost; that is no error. */
void trmi_tuning_add(trmi_tuning *tuning, const char *problem, const char *algorithm,
                     double seconds);
/* Writes the file (atomically) if a choice was added, merged with the entries that other processes
 * have written meanwhile. */
trm_status trmi_tuning_save(trmi_tuning *tuning, trm_error *err);
/* Adds the lines of a file's content; false: it is damaged (lines before the damage are added). */
bool trmi_tuning_parse(trmi_tuning *tuning, const char *text, size_t bytes);
/* Returns the number of entries of all machines. */
int64_t trmi_tuning_count(const trmi_tuning *tuning);

#endif
