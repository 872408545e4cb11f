/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sim/saves.h: checkpoints of an elastic job, and its evaluator (saves.c). */
#ifndef TRIREME_TESTS_SIM_SAVES_H
#define TRIREME_TESTS_SIM_SAVES_H

#include "job.h"

#include "trireme/dist.h"

/* A rank's side of checkpoints: the callback that saves, and the model that it sees. */
typedef struct sim_saver sim_saver;

sim_saver *sim_saver_create(trm_elastic *elastic);
/* Call the hooks of the callback: the training begins, or does so `again` with other ranks; a
 * step is done; the training ends. */
trm_status sim_saver_begin(sim_saver *s, int64_t step, int64_t sum, bool again, trm_error *err);
trm_status sim_saver_step(sim_saver *s, int64_t step, int64_t sum, trm_error *err);
trm_status sim_saver_end(sim_saver *s, trm_error *err);
/* `status`, `err`: how the rank ends. */
void sim_saver_destroy(sim_saver *s, trm_status status, const trm_error *err);

/* Draws whether and how the job saves. */
void sim_saves_draw(void);
/* Starts the evaluator, if there is one. */
void sim_saves_start(void);
/* All ranks have ended: the newest checkpoint is compared with what was confirmed, and the
 * simulation ends. */
void sim_saves_ranks_ended(void);
/* A disk has begun to confirm what it does not write. */
void sim_saves_disk_lies(void);
/* Returns the sum that ranks have after a step (elastic.c). */
int64_t sim_elastic_sum(int64_t step);

#endif
