/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/callbacks.h: the callbacks that come with the library, for trm_train_options.callbacks.
 *
 *     .callbacks = {trm_loss_monitor(1, puts), trm_time_monitor(puts),
 *                   trm_model_checkpoint(&(trm_model_checkpoint_options){.directory = "run", .keep
 *                   = 5})}
 *
 * Each call makes one callback for one training call, which frees it. When there is no memory for
 * one, training fails with NOMEM before its first step; with INVALID where options, a directory,
 * path, function or dataset are NULL. Strings are copied. */
#ifndef TRIREME_CALLBACKS_H
#define TRIREME_CALLBACKS_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives one line without its newline; `puts` of stdio fits. */
typedef int (*trm_print)(const char *line);

/* "epoch: 1 step: 156, loss is 2.0084016", every `every` steps (0 = only at the end of each epoch
 * and of training);
 * in sink mode once an epoch, with the loss of its last step (or of the run's). */
TRM_API trm_callback trm_loss_monitor(int64_t every, trm_print print);
/* "epoch time: 4321.123 ms, per step time: 27.699 ms" at the end of each epoch. */
TRM_API trm_callback trm_time_monitor(trm_print print);

typedef struct trm_model_checkpoint_options {
    const char *directory;   /* locked by this process until training ends */
    int32_t keep;            /* the newest so many; 0 = 5, negative = all */
    double keep_every_hours; /* and for ever one in so many hours; 0 = none */
    int64_t every_steps;     /* any of the three; when all are 0, every epoch */
    double every_seconds;
    int64_t every_epochs;
} trm_model_checkpoint_options;
/* Saves as asked, and at the end of training or when it is stopped. In sink mode between epochs
 * only (and when stopped): at the end of the epoch in which it was due. Without room on the disk
 * (NOSPACE) a save is left out with a warning, and tried again when the next one is due; the last
 * one then fails. */
TRM_API trm_callback trm_model_checkpoint(const trm_model_checkpoint_options *options);

/* Evaluates on `data` (borrowed) at the end of every `every_epochs`-th epoch (0 = 1) and tells the
 * other callbacks (on_evaluated). */
TRM_API trm_callback trm_evaluate_every(trm_dataset *data, int64_t every_epochs);

typedef enum trm_watch {
    TRM_WATCH_EVALUATION_LOSS,
    TRM_WATCH_TOP1, /* more is better */
    TRM_WATCH_LOSS  /* of the epoch's last step */
} trm_watch;
typedef struct trm_early_stop_options {
    trm_watch watch;
    int64_t patience; /* epochs (evaluations) without an improvement until the stop; 0 = 1 */
    double min_delta; /* an improvement is more than this */
} trm_early_stop_options;
/* Stops when the watched value no longer improves. Its memory travels in checkpoints. */
TRM_API trm_callback trm_early_stop(const trm_early_stop_options *options);

/* A file of metrics (trireme/save_events.h): a line every `every` steps (0 = 1), at the end of each
 * epoch, and for each evaluation. `path` ends in .csv or .jsonl. A resumed run continues the file:
 * lines of steps that come again are dropped first. A full disk is said once in the log and does
 * not stop training. */
TRM_API trm_callback trm_metrics_recorder(const char *path, int64_t every);

typedef struct trm_tensorboard_options {
    const char *directory;
    int64_t every_steps;      /* scalars; 0 = 100 */
    int64_t histogram_epochs; /* parameters' histograms every so many epochs; 0 = none */
    bool graph;               /* the network, once */
} trm_tensorboard_options;
/* An event file: loss, learning rate, images per second, evaluation, on request histograms and the
 * graph. A resumed run begins a new file that says from which step on. */
TRM_API trm_callback trm_tensorboard(const trm_tensorboard_options *options);

#ifdef __cplusplus
}
#endif
#endif
