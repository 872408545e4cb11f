/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/shared_job.h: ranks of a test as threads or forked processes of one host, without a
 * rendezvous. */
#ifndef TRMI_TESTS_SHARED_JOB_H
#define TRMI_TESTS_SHARED_JOB_H

#include "comm/rendezvous/rendezvous.h"

/*
 *   trmi_job *job;                             one, before pthread_create or fork
 *   trmi_job_create(8, 0, &job, &err);
 *   ... in each rank:  trmi_bootstrap_shared(job, rank, &bootstrap, &err);
 *   ... in each rank:  bootstrap->table->destroy(bootstrap);
 *   trmi_job_destroy(job);                     in every process that has it
 *
 * A killed process is noticed by the others' check() through its pidfd, within 0.1 s. */
typedef struct trmi_job trmi_job;

/* `ranks_per_host` > 0 pretends that ranks are spread over hosts (rank / ranks_per_host), so that
 * what goes between hosts can be tested on one; 0 means one host.
 *   errors  NOMEM, INVALID (size outside 1..4096) */
trm_status trmi_job_create(int32_t size, int32_t ranks_per_host, trmi_job **out, trm_error *err);
void trmi_job_destroy(trmi_job *job);
trm_status trmi_bootstrap_shared(trmi_job *job, int32_t rank, trm_bootstrap **out, trm_error *err);

#endif
