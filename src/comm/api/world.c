/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs that this process has joined, in a table of fixed size under one mutex, each with its
 * first communicator: a program that names no communicator uses that one (comm/api/world.h). A job
 * belongs to the process that joined it: a forked child finds none. */
#include "comm/api/world.h"

#include <pthread.h>
#include <unistd.h>

/* Jobs of a process, at most: tests join several at a time, programs one. */
enum { JOBS_MAX = 16 };

/* A job that this process has joined. */
typedef struct job {
    trm_bootstrap *bootstrap; /* NULL: a free entry */
    trm_comm *comm;           /* the first communicator over all ranks of the job; NULL: none */
    bool owned;               /* the job destroys `comm` */
    pid_t process;            /* that joined the job */
} job;

static pthread_mutex_t jobs_mutex = PTHREAD_MUTEX_INITIALIZER;
static job jobs[JOBS_MAX];

/* Returns the job's entry (of NULL: a free one), or NULL if there is none. The mutex is held. */
static job *find_job(const trm_bootstrap *bootstrap) {
    job *found = NULL;
    for (int i = 0; i < JOBS_MAX; i++) {
        found = jobs[i].bootstrap == bootstrap ? &jobs[i] : found;
    }
    return found;
}

void trmi_world_add(trm_bootstrap *bootstrap) {
    pthread_mutex_lock(&jobs_mutex);
    job *place = find_job(NULL);
    if (place != NULL) {
        *place = (job){.bootstrap = bootstrap, .process = getpid()};
    }
    pthread_mutex_unlock(&jobs_mutex);
}

trm_comm *trmi_world_remove(trm_bootstrap *bootstrap) {
    pthread_mutex_lock(&jobs_mutex);
    job *j = find_job(bootstrap);
    trm_comm *owned = j != NULL && j->owned ? j->comm : NULL;
    if (j != NULL) {
        *j = (job){.bootstrap = NULL};
    }
    pthread_mutex_unlock(&jobs_mutex);
    return owned;
}

void trmi_world_note(trm_bootstrap *bootstrap, trm_comm *comm) {
    pthread_mutex_lock(&jobs_mutex);
    job *j = find_job(bootstrap);
    if (j != NULL && j->comm == NULL) {
        j->comm = comm;
    }
    pthread_mutex_unlock(&jobs_mutex);
}

void trmi_world_forget(const trm_comm *comm) {
    pthread_mutex_lock(&jobs_mutex);
    for (int i = 0; i < JOBS_MAX; i++) {
        if (jobs[i].comm == comm) {
            jobs[i].comm = NULL;
            jobs[i].owned = false;
        }
    }
    pthread_mutex_unlock(&jobs_mutex);
}

void trmi_world_own(trm_bootstrap *bootstrap) {
    pthread_mutex_lock(&jobs_mutex);
    job *j = find_job(bootstrap);
    if (j != NULL) {
        j->owned = true;
    }
    pthread_mutex_unlock(&jobs_mutex);
}

/* Jobs that a parent process joined before a fork do not count. */
int32_t trmi_world_find(trm_bootstrap **bootstrap, trm_comm **comm) {
    int32_t count = 0;
    *bootstrap = NULL;
    *comm = NULL;
    pthread_mutex_lock(&jobs_mutex);
    for (int i = 0; i < JOBS_MAX; i++) {
        if (jobs[i].bootstrap != NULL && jobs[i].process == getpid()) {
            count++;
            *bootstrap = jobs[i].bootstrap;
            *comm = jobs[i].comm;
        }
    }
    pthread_mutex_unlock(&jobs_mutex);
    return count;
}
