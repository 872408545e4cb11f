/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of this process. A child that was forked off has joined none. */
#include "comm/api/world.h"

#include <pthread.h>
#include <unistd.h>

enum { JOBS_MAX = 16 };

typedef struct job {
    trm_bootstrap *bootstrap; /* NULL: a free place */
    trm_comm *comm;
    bool owned;
    pid_t process;
} job;

static pthread_mutex_t jobs_mutex = PTHREAD_MUTEX_INITIALIZER;
static job jobs[JOBS_MAX];

/* With the mutex held; NULL: there is none. */
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
