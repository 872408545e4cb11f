/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/context.h: how a model is spread over ranks, by the field's names (MindSpore's
 * set_auto_parallel_context).
 *
 *     trm_context *context;
 *     trm_context_create(&context, &err);
 *     trm_context_set(context, "parallel_mode", "data_parallel", &err);
 *     trm_context_set(context, "mirror_mean", "true", &err);
 *     trm_model_create(&(trm_model_options){.parallel = {.comm = comm}, .context = context, ...},
 *     &model, &err);
 *     puts(trm_context_get(context, "device_num"));               the ranks of comm
 *     trm_context_reset(context);                                 before the next case
 *
 * A context belongs to whoever made it; there is no global one. Options are read when a model is
 * made.
 * Values are words and numbers in text, as on a command line; a table of all options is what
 * trm_context_option_at hands out (`trireme help context` prints it).
 *   thread  one at a time per context */
#ifndef TRIREME_CONTEXT_H
#define TRIREME_CONTEXT_H

#include "trireme/base.h"
#include "trireme/comm.h"
#include "trireme/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_context trm_context;

/* All options at their defaults.   owns  caller destroys    error  NOMEM */
TRM_API TRM_MUST_USE trm_status trm_context_create(trm_context **out, trm_error *err);
TRM_API void trm_context_destroy(trm_context *context);

/* Sets one option; copied. Letters of words and truth values may be large or small.
 *   error  INVALID: no such option (the nearest is named), a value outside of its range */
TRM_API TRM_MUST_USE trm_status trm_context_set(trm_context *context, const char *name,
                                                const char *value, trm_error *err);
/* What holds: the value set, else the default; device_num and global_rank are those of the
 * communicator once a model has been made. NULL: no such option.
 *   owns  the context; valid until the next call with it */
TRM_API const char *trm_context_get(const trm_context *context, const char *name);
/* Was it set since the last reset? False for names that there are not. */
TRM_API bool trm_context_is_set(const trm_context *context, const char *name);
/* Every option at its default again. */
TRM_API void trm_context_reset(trm_context *context);

/* Does the context of a split mode say that each of `ranks` ranks reads samples of its own:
 * full_batch false, dataset_strategy data_parallel, or tuples that cut each input by samples into
 * `ranks` parts? */
TRM_API bool trm_context_own_samples(const trm_context *context, int32_t ranks);

/* Holds the options against each other, before there are ranks: what trm_context_resolve would
 * refuse whatever ranks come.
 *   error  INVALID, UNSUPPORTED: as there */
TRM_API TRM_MUST_USE trm_status trm_context_check(const trm_context *context, trm_error *err);

/* Holds the options against each other and against the ranks there are, and says them in the words
 * of
 * trireme/exec.h. trm_model_create does this for a model.
 *   in     comm  NULL: one rank
 *   out    *parallel  lists in it belong to the context, until it is set, reset or destroyed;
 *                     stand_alone: comm is NULL in it; *accumulate: grad_accumulation_step
 *   error  INVALID (options that exclude each other, another number of ranks than device_num, an option
 *          of another parallel_mode), UNSUPPORTED (a value that the mode does not carry out)
 */
TRM_API TRM_MUST_USE trm_status trm_context_resolve(trm_context *context, trm_comm *comm,
                                                    trm_parallel_options *parallel,
                                                    int32_t *accumulate, trm_error *err);

/* A row of the table. */
typedef struct trm_context_option {
    const char *name;
    const char *alias;    /* an older name that is taken too; NULL = none */
    const char *values;   /* "true|false", "1 to 4096", "20,35" */
    const char *fallback; /* the default; "" = none */
    const char *modes;    /* the parallel modes in which it may be set */
    const char *meaning;
} trm_context_option;
/* Option `index`; false behind the last one.   owns  static strings   thread any */
TRM_API bool trm_context_option_at(int32_t index, trm_context_option *out);

#ifdef __cplusplus
}
#endif
#endif
