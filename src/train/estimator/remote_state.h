/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/remote_state.h: the state of a worker's connection to its servers, for remote.c
 * (the step) and remote_bind.c (creation). Other files use remote.h.
 *
 * Rows and gradients are read and written in place in the program's arenas; a variable whose layout
 * there is not plain goes through a copy. Memory of the state is from its arena and lives as long
 * as it. */
#ifndef TRMI_TRAIN_REMOTE_STATE_H
#define TRMI_TRAIN_REMOTE_STATE_H

#include "train/estimator/remote.h"

#include "train/model.h"

#include "exec/distributed/batches.h"
#include "ps/client/client.h"

/* Stages: the batch that is computed, and the one that is pulled meanwhile. */
enum { TRMI_REMOTE_STAGES = 2 };

/* One gather of the graph. Several gathers may read the same table. */
typedef struct trmi_remote_lookup {
    trmi_detached what;
    int32_t table;             /* table number of the client */
    float *values, *gradients; /* [count][width], in the program */
} trmi_remote_lookup;

/* A dense variable, stored on the servers as `rows` rows of `width` values. */
typedef struct trmi_remote_dense {
    const char *name;
    int32_t table, variable;
    int64_t count, rows;
    int32_t width;
    uint64_t *keys;
    bool frozen;               /* read once, never pushed: no gradients */
    bool direct;               /* values and gradients lie in the program as on the servers */
    float *values, *gradients; /* in the program if `direct`, else copies */
} trmi_remote_dense;

/* A stage: copies of the fields of a batch, its keys, its pull request. */
typedef struct trmi_remote_batch {
    trm_ps_batch *batch;
    trmi_staged_batch place;
    uint64_t **keys;                    /* [lookups], each as many as its gather has ids */
    void *fields[TRM_MAX_BATCH_FIELDS]; /* NULL: not used by the program */
    bool filled;
} trmi_remote_batch;

/* A model's connection to its servers, for one thread. */
struct trmi_remote {
    trm_ps_client *client; /* borrowed */
    trm_optimizer_options optimizer;
    trm_ps_training options;
    double base_rate; /* base of the learning-rate schedule */
    uint64_t seed;
    /* [lookups_count] gathers that were taken out of the graph (graph/detach.h), and of each its
     * place here; the program that computes their ids, its inputs by field of the batch, its
     * outputs */
    trmi_detached *found;
    int32_t lookups_count;
    trmi_remote_lookup *lookups;
    trm_graph *ids_graph;
    trm_exec *ids_exec;
    trm_tensor ids_target[TRM_MAX_BATCH_FIELDS];
    trm_node *ids_nodes;
    /* variables on the servers that are no tables */
    trmi_remote_dense *dense;
    int32_t dense_count;
    bool read_frozen; /* the frozen ones were read */
    trmi_remote_table *tables;
    int32_t tables_count;
    trmi_compiled *compiled; /* the training program; borrowed from the model */
    trmi_remote_batch stages[TRMI_REMOTE_STAGES];
    int32_t next, current; /* stage to fill next; stage that was begun, -1: none */
    trm_ps_batch *reader;  /* request of trmi_remote_read_dense */
    uint64_t step;         /* asynchronous: largest global step seen; never decreases */
    trm_ps_lease_options lending;
    trm_ps_lease lease;            /* lease held now; id 0: none */
    int64_t lent_next;             /* next batch of the lease */
    int64_t read_epoch, read_next; /* next batch that the dataset will give */
    /* strict determinism (samples.count > 0): blocks of the program; how gradients are summed; of
     * each sample its place in the program's batch */
    trmi_batch_blocks samples;
    trmi_push_blocks blocks;
    int64_t *row_of;
    trmi_arena arena;
};

/* Returns the learning rate that tables are declared with; pushes carry the ratio of the current
 * rate to it. In strict determinism it is 1 and a push carries the rate itself, because base rate
 * times ratio would be rounded once more. */
static inline double trmi_remote_table_rate(const trmi_remote *r) {
    return r->samples.count > 0 ? 1 : r->base_rate;
}

#endif
