/* SPDX-License-Identifier: Apache-2.0 */
/* train/elastic_position.h: where the training of an elastic job is. */
#ifndef TRMI_TRAIN_ELASTIC_POSITION_H
#define TRMI_TRAIN_ELASTIC_POSITION_H

#include "train/model.h"

/* What the hooks of a step see, and where the training was when they began: at the end of an epoch
 * the hooks of the epoch come next. */
typedef struct trmi_elastic_step_end {
    uint64_t step;
    int64_t epoch, epoch_step, epoch_samples;
    int64_t samples; /* of the step */
    double rate;
} trmi_elastic_step_end;

/* The state that a rank sends to the others beside the variables. Sent as bytes: all ranks run the
 * same program. */
typedef struct trmi_elastic_position {
    uint64_t step; /* updates applied */
    /* of a step of all ranks: see trmi_elastic_model */
    int64_t samples, blocks, rank_samples;
    int64_t epoch, epoch_step, epoch_samples;
    trmi_elastic_step_end ended; /* `step` */
    int64_t data_samples;
    int32_t first_ranks; /* as in trm_model */
    int32_t norm_groups; /* as in trmi_elastic_model */
    int32_t batch;       /* the trm_batch_scope of the first ranks: all read in the same way */
    float loss;
    int32_t notes_count;
    trmi_note notes[TRMI_NOTES_MAX];
    trm_loss_scale_state scale;
} trmi_elastic_position;

#endif
