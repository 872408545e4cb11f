/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI transport: moves data through an MPI library, for systems whose network only MPI
 * supports. It is compiled once for each MPI found (trireme_comm_mpi_openmpi.so,
 * trireme_comm_mpi_mpich.so) and loaded at run time by ranks that mpirun or srun has started.
 *
 *   MPI tag    number of the transfer 13 | channel 1 | part 1        (15 bits, which every MPI has)
 *   transfer   part 0: head, followed by the payload if it has at most SMALL bytes
 *              part 1: a larger payload: sent at once, received once the head was checked; whole
 *                      blocks first, then the rest
 *
 * MPI is initialised with the first transport and finalised when the process ends, because it
 * cannot be initialised twice. After a failure it is not finalised, because that would wait for
 * ranks that have died. */
#define _GNU_SOURCE
#define PLUGIN_FILE "plugins/mpi.c"
#include "comm/plugins/frame.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* bytes of a block (counts of MPI are int); transfer numbers wrap at NUMBERS */
enum { BLOCK = 1 << 20, NUMBERS = 1 << 13, PARTS = 3 };

/* A transfer that has been started. */
typedef struct pending {
    trmi_net_transfer *transfer; /* the caller's, borrowed until done */
    MPI_Request requests[PARTS]; /* head, blocks, rest; MPI_REQUEST_NULL: none or complete */
    bool head_known;             /* receive: the head was checked */
    uint32_t number;      /* of the transfer, among those of its peer, channel and direction */
    struct pending *next; /* in the list of active or spare ones */
    char bounce[HEAD_BYTES + SMALL]; /* part 0 */
} pending;

/* The transport of one communicator. */
typedef struct mpi {
    trmi_transport base;
    MPI_Comm comm;             /* the group's ranks, in the group's order */
    MPI_Datatype block;        /* BLOCK bytes */
    uint64_t key;              /* of the frames' checks */
    uint32_t *sent, *received; /* [TRMI_CHANNELS * size] number of transfers so far */
    pending *first, **last;    /* active transfers, in order */
    pending *spare;            /* pending structs for reuse */
} mpi;

/* a transport was destroyed while transfers were active, or the job had failed */
static bool broken;

/* Returns the PEER error of a failed MPI call. */
static trm_status fail_mpi(const mpi *self, int code, int32_t peer, trm_error *err) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    text[length < 120 ? length : 120] = '\0';
    return fail_plugin(err, TRM_PEER, "MPI (%s): rank %d lost its connection to rank %d", text,
                       self->base.group.members[self->base.group.rank],
                       self->base.group.members[peer]);
}

/* Packs the MPI tag of a part. */
static int tag_of(const pending *p, int part) {
    return (int)(p->number % NUMBERS) << 2 | p->transfer->channel << 1 | part;
}

/* --- transfers --- */
/* Starts to send or receive a payload that is not in part 0: whole blocks, then the rest. */
static int post_payload(mpi *self, pending *p) {
    trmi_net_transfer *t = p->transfer;
    int blocks = (int)(t->bytes / BLOCK), rest = (int)(t->bytes % BLOCK), code = MPI_SUCCESS;
    char *end = t->data + (uint64_t)blocks * BLOCK;
    if (blocks > 0) {
        code = t->receive ? MPI_Irecv(t->data, blocks, self->block, t->peer, tag_of(p, 1),
                                      self->comm, &p->requests[1])
                          : MPI_Isend(t->data, blocks, self->block, t->peer, tag_of(p, 1),
                                      self->comm, &p->requests[1]);
    }
    if (rest > 0 && code == MPI_SUCCESS) {
        code = t->receive ? MPI_Irecv(end, rest, MPI_BYTE, t->peer, tag_of(p, 1), self->comm,
                                      &p->requests[2])
                          : MPI_Isend(end, rest, MPI_BYTE, t->peer, tag_of(p, 1), self->comm,
                                      &p->requests[2]);
    }
    return code;
}

/* Starts a transfer: part 0 with the head and a small payload; a large payload follows in parts of
 * its own. A receive waits for the head first, which has the length. */
static trm_status mpi_start(trmi_transport *transport, trmi_net_transfer *t, trm_error *err) {
    mpi *self = (mpi *)(void *)transport;
    pending *p = self->spare;
    if (p != NULL) {
        self->spare = p->next;
    } else if ((p = malloc(sizeof *p)) == NULL) {
        return fail_plugin(err, TRM_NOMEM, "no memory for a transfer to rank %d of %d", t->peer,
                           self->base.group.size);
    }
    /* The number of the transfer for this peer, direction and channel is a part of its tag. */
    uint32_t *count = t->receive ? self->received : self->sent;
    p->transfer = t;
    p->head_known = false;
    p->number = count[t->channel * self->base.group.size + t->peer]++;
    p->next = NULL;
    for (int i = 0; i < PARTS; i++) {
        p->requests[i] = MPI_REQUEST_NULL;
    }
    *self->last = p;
    self->last = &p->next;
    t->done = false;
    t->moved = 0;
    t->handle = p;
    int code;
    if (t->receive) {
        /* a shorter frame must not be completed by the bytes of an earlier one */
        memset(p->bounce, 0, HEAD_BYTES);
        code = MPI_Irecv(p->bounce, sizeof p->bounce, MPI_BYTE, t->peer, tag_of(p, 0), self->comm,
                         &p->requests[0]);
        return code == MPI_SUCCESS ? TRM_OK : fail_mpi(self, code, t->peer, err);
    }
    size_t first = frame_seal(self->key, t, p->bounce);
    code = MPI_Isend(p->bounce, (int)first, MPI_BYTE, t->peer, tag_of(p, 0), self->comm,
                     &p->requests[0]);
    if (code == MPI_SUCCESS && t->bytes > SMALL) {
        code = post_payload(self, p);
    }
    return code == MPI_SUCCESS ? TRM_OK : fail_mpi(self, code, t->peer, err);
}

/* Checks a head that has arrived and starts to receive a payload that is not after it. */
static trm_status open_head(mpi *self, pending *p, trm_error *err) {
    trmi_net_transfer *t = p->transfer;
    trm_status status = frame_open(self->key, &self->base, t, p->bounce, err);
    if (status != TRM_OK) {
        return status;
    }
    p->head_known = true;
    if (t->bytes > SMALL) {
        int code = post_payload(self, p);
        return code == MPI_SUCCESS ? TRM_OK : fail_mpi(self, code, t->peer, err);
    }
    return TRM_OK;
}

/* Tests a transfer; sets transfer->done once all of it is complete. A receive is tested again after
 * its head, because a short one is then complete. */
static trm_status advance_transfer(mpi *self, pending *p, trm_error *err) {
    trmi_net_transfer *t = p->transfer;
    MPI_Status ignored[PARTS];
    for (int looks = 0; looks < 2; looks++) {
        int complete = 0, code = MPI_Testall(PARTS, p->requests, &complete, ignored);
        if (code != MPI_SUCCESS) {
            self->base.culprit = t->peer;
            return fail_mpi(self, code, t->peer, err);
        }
        if (!complete) {
            return TRM_OK;
        }
        if (!t->receive || p->head_known) {
            break;
        }
        trm_status status = open_head(self, p, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    t->moved = t->bytes;
    t->done = true;
    return TRM_OK;
}

/* Goes through all transfers that are not done, and keeps the finished ones for later use. */
static trm_status mpi_progress(trmi_transport *transport, bool *moved, trm_error *err) {
    mpi *self = (mpi *)(void *)transport;
    for (pending **at = &self->first; *at != NULL;) {
        pending *p = *at;
        bool known = p->head_known;
        trm_status status = advance_transfer(self, p, err);
        if (status != TRM_OK) {
            return status;
        }
        *moved |= p->head_known != known;
        if (!p->transfer->done) {
            at = &p->next;
            continue;
        }
        *moved = true;
        *at = p->next;
        self->last = p->next == NULL ? at : self->last;
        p->next = self->spare;
        self->spare = p;
    }
    return TRM_OK;
}

/* MPI has no descriptor to wait for and moves data only inside calls: sleep 20 us at most. */
static void mpi_wait(trmi_transport *transport, double seconds) {
    (void)transport;
    nanosleep(&(struct timespec){.tv_nsec = seconds < 20e-6 ? (long)(seconds * 1e9) : 20000}, NULL);
}

/* --- creation and destruction --- */
/* Ends MPI at the exit of the program, unless the program has done so or a job has failed:
 * MPI_Finalize would then wait for ranks that have died. */
static void end_mpi(void) {
    int ended = 0;
    MPI_Finalized(&ended);
    if (!ended && !broken) {
        MPI_Finalize();
    }
}

/* Initialises MPI unless the program has done so. The engine calls it from one thread at a time. */
static trm_status start_mpi(trm_error *err) {
    int started = 0, level = 0;
    MPI_Initialized(&started);
    if (started) {
        MPI_Query_thread(&level);
    } else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
        return fail_plugin(err, TRM_UNSUPPORTED, "engine mpi: MPI_Init_thread failed");
    } else {
        atexit(end_mpi);
    }
    if (level < MPI_THREAD_SERIALIZED) {
        return fail_plugin(err, TRM_UNSUPPORTED,
                           "engine mpi: this MPI offers thread level %d, %d (calls "
                           "from one thread at a time) is needed",
                           level, MPI_THREAD_SERIALIZED);
    }
    return TRM_OK;
}

/* Frees the transport. After a failure, MPI may still use buffers of transfers, which are then not
 * freed. */
static void mpi_destroy(trmi_transport *transport) {
    mpi *self = (mpi *)(void *)transport;
    broken |= self->first != NULL || !trmi_bootstrap_healthy(self->base.group.bootstrap);
    if (!broken && self->comm != MPI_COMM_NULL) {
        MPI_Type_free(&self->block);
        MPI_Comm_free(&self->comm);
    }
    *self->last = self->spare;
    while (self->first != NULL) {
        pending *next = self->first->next;
        if (!broken) {
            free(self->first); /* otherwise MPI may still write into it */
        }
        self->first = next;
    }
    free(self->sent);
    free(self->received);
    free(self);
}

/* Creates the MPI communicator of this group's ranks, whose order may differ from MPI's. All of
 * them must be ranks of one MPI_COMM_WORLD. */
static trm_status make_comm(mpi *self, const trmi_exchange *exchange, trm_error *err) {
    const trmi_group *group = &self->base.group;
    int world = 0, size = 0, *ranks = malloc((size_t)group->size * sizeof *ranks);
    if (ranks == NULL) {
        return fail_plugin(err, TRM_NOMEM, "no memory for rank %d of %d", group->rank, group->size);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The rank of each member in MPI_COMM_WORLD. Each must be there once. */
    trm_status status = exchange->allgather(exchange->context, &world, sizeof world, ranks, err);
    bool *seen = calloc((size_t)size, sizeof *seen);
    for (int32_t r = 0; status == TRM_OK && r < group->size; r++) {
        bool usable = seen != NULL && ranks[r] >= 0 && ranks[r] < size && !seen[ranks[r]];
        if (!usable) {
            status = fail_plugin(err, TRM_INVALID,
                                 "engine mpi: MPI sees %d ranks where this job has %d; start "
                                 "all of them with one mpirun or srun",
                                 size, group->size);
        } else {
            seen[ranks[r]] = true;
        }
    }
    /* The communicator, with errors returned instead of ending the program. */
    if (status == TRM_OK) {
        MPI_Group all, some;
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Group_incl(all, group->size, ranks, &some);
        int code = MPI_Comm_create_group(MPI_COMM_WORLD, some, 7, &self->comm);
        MPI_Group_free(&all);
        MPI_Group_free(&some);
        if (code != MPI_SUCCESS) {
            status = fail_plugin(err, TRM_IO, "engine mpi: no communicator for rank %d of %d",
                                 group->rank, group->size);
        } else {
            MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN);
            MPI_Type_contiguous(BLOCK, MPI_BYTE, &self->block);
            MPI_Type_commit(&self->block);
        }
    }
    free(seen);
    free(ranks);
    return status;
}

static const trmi_transport_table mpi_table = {
    .name = "mpi",
    .start = mpi_start,
    .progress = mpi_progress,
    .wait = mpi_wait,
    .destroy = mpi_destroy,
};

/* Creates the transport. MPI has no secret of its own, so the job's secret gives the key of the
 * frame heads. */
static trm_status mpi_create(const trmi_group *group, const trmi_exchange *exchange,
                             trmi_transport **out, trm_error *err) {
    mpi *self = calloc(1, sizeof *self);
    uint8_t mac[32];
    if (self == NULL) {
        return fail_plugin(err, TRM_NOMEM, "no memory for rank %d of %d", group->rank, group->size);
    }
    self->base.table = &mpi_table;
    self->base.group = *group;
    self->base.culprit = -1;
    self->last = &self->first;
    self->comm = MPI_COMM_NULL;
    group->bootstrap->table->sign(group->bootstrap, "mpi frame heads", 15, mac);
    memcpy(&self->key, mac, sizeof self->key);
    self->sent = calloc((size_t)group->size * TRMI_CHANNELS, sizeof *self->sent);
    self->received = calloc((size_t)group->size * TRMI_CHANNELS, sizeof *self->received);
    trm_status status =
        self->sent != NULL && self->received != NULL
            ? start_mpi(err)
            : fail_plugin(err, TRM_NOMEM, "no memory for rank %d of %d", group->rank, group->size);
    status = status == TRM_OK ? make_comm(self, exchange, err) : status;
    if (status != TRM_OK) {
        mpi_destroy(&self->base);
        return status;
    }
    *out = &self->base;
    return TRM_OK;
}

/* The symbol that comm/net/engines.c looks up. */
TRM_API const trmi_transport_plugin_table trmi_transport_plugin = {
    .version = TRMI_PLUGIN_VERSION,
    .name = "mpi",
    .create = mpi_create,
};
