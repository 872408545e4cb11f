/* SPDX-License-Identifier: Apache-2.0 */
/* The UCX transport: InfiniBand, RoCE, TCP and all other transports of the installed UCX. It is
 * loaded at run time and calls the library only through the tables that it is given.
 *
 *   tag (64 bits)   part 1 | channel 1 | sender 30 | number 32
 *   transfer        part 0: head, followed by the payload if it has at most SMALL bytes
 *                   part 1: a larger payload: sent at once, but received only after the head was
 *                           checked (UCX keeps it at the sender until then)
 *
 * The head carries the transfer's tag under a check keyed with the job's secret: a damaged or
 * foreign frame is refused. UCX itself protects neither data nor peers; use it on trusted
 * networks. */
#define _GNU_SOURCE
#define PLUGIN_FILE "plugins/ucx.c"
#include "comm/plugins/frame.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { ADDRESS_MAX = 1 << 16 }; /* longest worker address that is accepted */

typedef struct ucx ucx;
/* A transfer that has been started. */
typedef struct pending {
    ucx *owner;                  /* the transport */
    trmi_net_transfer *transfer; /* the caller's, borrowed until done */
    int waiting;                 /* number of UCX requests that are not complete: head, payload */
    ucs_status_t status;         /* the first failure of a request */
    bool head_known;             /* receive: the head was checked, the payload is being received */
    uint32_t number;      /* of the transfer, among those of its peer, channel and direction */
    struct pending *next; /* in the list of active or spare ones */
    char bounce[HEAD_BYTES + SMALL]; /* part 0 */
} pending;

/* The connection to one rank. */
typedef struct peer {
    ucp_ep_h endpoint;                                     /* NULL: not connected */
    bool failed;                                           /* UCX has reported a failure */
    ucs_status_t reason;                                   /* of the failure */
    uint32_t sent[TRMI_CHANNELS], received[TRMI_CHANNELS]; /* number of transfers so far */
} peer;

/* The transport of one communicator. */
struct ucx {
    trmi_transport base;   /* must be the first member */
    ucp_context_h context; /* NULL: not initialised */
    ucp_worker_h worker;   /* receives for all peers */
    int event_fd;          /* becomes readable when the worker has something to do */
    uint64_t key;          /* of the frames' checks */
    peer *peers;           /* [size] */
    pending *active;       /* started, not done */
    pending *spare;        /* pending structs for reuse */
};

/* Packs the UCX tag of a part. */
static ucp_tag_t tag_of(uint64_t part, int32_t channel, int32_t sender, uint32_t number) {
    return part << 63 | (uint64_t)channel << 62 | (uint64_t)(uint32_t)sender << 32 | number;
}

/* --- completions --- */

/* Counts a request of `p` as complete. */
static void complete_request(pending *p, ucs_status_t status) {
    p->status = p->status == UCS_OK ? status : p->status;
    p->waiting--;
}

/* Evaluates the result of an nbx call: an error, complete already, or a request with a callback. */
static void count_posted(pending *p, ucs_status_ptr_t request) {
    p->waiting++;
    if (!UCS_PTR_IS_PTR(request)) {
        complete_request(p, UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK);
    }
}

/* Is called by UCX when a send has ended. */
static void on_sent(void *request, ucs_status_t status, void *user) {
    complete_request(user, status);
    ucp_request_free(request);
}

/* Is called by UCX when a receive has ended. */
static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *user) {
    (void)info;
    complete_request(user, status);
    ucp_request_free(request);
}

/* Is called by UCX when the connection to a peer has failed. */
static void endpoint_failed(void *argument, ucp_ep_h endpoint, ucs_status_t status) {
    (void)endpoint;
    peer *p = argument;
    p->failed = true;
    p->reason = status;
}

/* Starts to send a part of a transfer. */
static void post_send(ucx *self, pending *p, const void *data, size_t bytes, uint64_t part) {
    trmi_net_transfer *t = p->transfer;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_sent,
                                 .user_data = p};
    ucs_status_ptr_t request =
        ucp_tag_send_nbx(self->peers[t->peer].endpoint, data, bytes,
                         tag_of(part, t->channel, self->base.group.rank, p->number), &param);
    count_posted(p, request);
}

/* Starts to receive a part of a transfer. */
static void post_receive(ucx *self, pending *p, void *data, size_t bytes, uint64_t part) {
    trmi_net_transfer *t = p->transfer;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv = on_received,
                                 .user_data = p};
    ucs_status_ptr_t request =
        ucp_tag_recv_nbx(self->worker, data, bytes, tag_of(part, t->channel, t->peer, p->number),
                         UINT64_MAX, &param);
    count_posted(p, request);
}

/* --- transfers --- */

/* The functions of the transport's table (contracts in transport.h). Transfers to a peer are
 * numbered in the order of their starts, which is the same at both ends; the number is in the
 * tag. */
static trm_status ucx_start(trmi_transport *transport, trmi_net_transfer *t, trm_error *err) {
    ucx *self = (ucx *)(void *)transport;
    pending *p = self->spare;
    if (p != NULL) {
        self->spare = p->next;
    } else if ((p = malloc(sizeof *p)) == NULL) {
        return fail_plugin(err, TRM_NOMEM, "no memory for a transfer to rank %d of %d", t->peer,
                           self->base.group.size);
    }
    /* Number the transfer and put it into the list of active ones. */
    peer *with = &self->peers[t->peer];
    p->owner = self;
    p->transfer = t;
    p->waiting = 0;
    p->status = UCS_OK;
    p->head_known = false;
    p->number = t->receive ? with->received[t->channel]++ : with->sent[t->channel]++;
    p->next = self->active;
    self->active = p;
    t->done = false;
    t->moved = 0;
    t->handle = p;
    if (t->receive) {
        memset(p->bounce, 0,
               HEAD_BYTES); /* or a shorter frame would end in bytes of the one before */
        post_receive(self, p, p->bounce, sizeof p->bounce, 0);
        return TRM_OK;
    }
    size_t first = frame_seal(self->key, t, p->bounce);
    post_send(self, p, p->bounce, first, 0);
    if (t->bytes > SMALL) {
        post_send(self, p, t->data, t->bytes, 1);
    }
    return TRM_OK;
}

/* Checks a head that has arrived. *whole: the payload was after it; otherwise starts to receive
 * it. */
static trm_status open_head(ucx *self, pending *p, bool *whole, trm_error *err) {
    trmi_net_transfer *t = p->transfer;
    trm_status status = frame_open(self->key, &self->base, t, p->bounce, err);
    if (status != TRM_OK) {
        return status;
    }
    p->head_known = true;
    *whole = t->bytes <= SMALL;
    if (!*whole) {
        post_receive(self, p, t->data, t->bytes, 1);
    }
    return TRM_OK;
}

/* Returns the PEER error of a lost connection. */
static trm_status fail_lost(ucx *self, int32_t rank, ucs_status_t why, trm_error *err) {
    const trmi_group *group = &self->base.group;
    char text[96];
    snprintf(text, sizeof text, "%.80s", ucs_status_string(why));
    self->base.culprit = rank;
    return fail_plugin(err, TRM_PEER, "UCX (%s): rank %d lost its connection to rank %d", text,
                       group->members[group->rank], group->members[rank]);
}

/* Advances a transfer whose requests are all complete: a received head leads to the payload, else
 * done. */
static trm_status advance_transfer(ucx *self, pending *p, trm_error *err) {
    trmi_net_transfer *t = p->transfer;
    if (p->status != UCS_OK) {
        return fail_lost(self, t->peer, p->status, err);
    }
    if (t->receive && !p->head_known) {
        bool whole = false;
        trm_status status = open_head(self, p, &whole, err);
        if (status != TRM_OK || (!whole && p->waiting > 0)) {
            return status;
        }
        if (p->status != UCS_OK) {
            return fail_lost(self, t->peer, p->status, err);
        }
    }
    t->moved = t->bytes;
    t->done = true;
    return TRM_OK;
}

/* Lets UCX work, then goes through the active transfers. */
static trm_status ucx_progress(trmi_transport *transport, bool *moved, trm_error *err) {
    ucx *self = (ucx *)(void *)transport;
    while (ucp_worker_progress(self->worker) != 0) {
        *moved = true;
    }
    for (pending **at = &self->active; *at != NULL;) {
        pending *p = *at;
        if (p->waiting == 0) {
            trm_status status = advance_transfer(self, p, err);
            if (status != TRM_OK) {
                return status;
            }
        }
        if (p->transfer->done) {
            *moved = true;
            *at = p->next;
            p->next = self->spare;
            self->spare = p;
            continue;
        }
        if (self->peers[p->transfer->peer].failed) {
            return fail_lost(self, p->transfer->peer, self->peers[p->transfer->peer].reason, err);
        }
        at = &p->next;
    }
    return TRM_OK;
}

/* Sleeps until the worker or the job's alarm has an event, or `seconds` have passed. */
static void ucx_wait(trmi_transport *transport, double seconds) {
    ucx *self = (ucx *)(void *)transport;
    if (ucp_worker_arm(self->worker) != UCS_OK) {
        return; /* something has happened since progress(): do not sleep */
    }
    struct pollfd fds[2] = {{.fd = self->event_fd, .events = POLLIN},
                            {.fd = self->base.group.bootstrap->alarm_fd, .events = POLLIN}};
    poll(fds, fds[1].fd >= 0 ? 2 : 1, (int)(seconds * 1000) + 1);
}

/* --- creation and destruction --- */

/* Closes endpoints with a limit of tries: a peer that hangs must not hang this process. */
static void ucx_destroy(trmi_transport *transport) {
    ucx *self = (ucx *)(void *)transport;
    /* Close the endpoints: at once if something failed, else after what was sent has arrived. */
    for (int32_t r = 0; self->peers != NULL && r < self->base.group.size; r++) {
        if (self->peers[r].endpoint == NULL) {
            continue;
        }
        ucp_request_param_t param = {0};
        if (self->peers[r].failed || self->active != NULL) {
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        }
        ucs_status_ptr_t request = ucp_ep_close_nbx(self->peers[r].endpoint, &param);
        if (UCS_PTR_IS_PTR(request)) {
            for (int i = 0; i < 100000 && ucp_request_check_status(request) == UCS_INPROGRESS;
                 i++) {
                ucp_worker_progress(self->worker);
            }
            ucp_request_free(request);
        }
    }
    if (self->worker != NULL) {
        ucp_worker_destroy(self->worker);
    }
    if (self->context != NULL) {
        ucp_cleanup(self->context);
    }
    pending *lists[2] = {self->active, self->spare};
    for (int i = 0; i < 2; i++) {
        while (lists[i] != NULL) {
            pending *next = lists[i]->next;
            free(lists[i]);
            lists[i] = next;
        }
    }
    free(self->peers);
    free(self);
}

static const trmi_transport_table ucx_table = {
    .name = "ucx",
    .start = ucx_start,
    .progress = ucx_progress,
    .wait = ucx_wait,
    .destroy = ucx_destroy,
};

/* Initialises UCX with the features that are used, and creates the worker and its event
 * descriptor. */
static ucs_status_t open_worker(ucx *self) {
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }
    /* Ranks that share memory use the shm engine. If only UCX finds that two "hosts" are one
     * (containers), its shared memory may be unable to wake the other side, so it is switched off.
     * The user's own UCX_TLS has priority; UCX reads it itself. */
    if (getenv("UCX_TLS") == NULL) {
        (void)ucp_config_modify(config, "TLS", "^shm");
    }
    ucp_params_t params = {.field_mask =
                               UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)self->base.group.size};
    status = ucp_init(&params, config, &self->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return status;
    }
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    status = ucp_worker_create(self->context, &worker, &self->worker);
    return status != UCS_OK ? status : ucp_worker_get_efd(self->worker, &self->event_fd);
}

/* Exchanges the workers' addresses, padded to the longest, and connects to all other ranks. */
static trm_status connect_all(ucx *self, const trmi_exchange *exchange, trm_error *err) {
    const trmi_group *group = &self->base.group;
    size_t n = (size_t)group->size, length = 0;
    ucp_address_t *address = NULL;
    uint64_t mine, *lengths = malloc(n * sizeof *lengths), longest = 0;
    char *own = NULL, *all = NULL;
    trm_status status = TRM_OK;
    ucs_status_t got = ucp_worker_get_address(self->worker, &address, &length);
    mine = got == UCS_OK ? length : 0;
    if (lengths == NULL) {
        status = fail_plugin(err, TRM_NOMEM, "no memory to connect rank %d of %d", group->rank,
                             group->size);
        goto done;
    }
    /* Addresses differ in length, and an exchange has one length for all: exchange the lengths
     * first. A rank without an address sends 0, so that all ranks fail together. */
    status = exchange->allgather(exchange->context, &mine, sizeof mine, lengths, err);
    for (size_t r = 0; status == TRM_OK && r < n; r++) {
        longest = lengths[r] > longest ? lengths[r] : longest;
        if (lengths[r] == 0 || lengths[r] > ADDRESS_MAX) {
            status = fail_plugin(err, TRM_IO, "UCX gave rank %d of %d no usable address", (int)r,
                                 group->size);
        }
    }
    if (status != TRM_OK) {
        goto done;
    }
    /* Then exchange the addresses. */
    own = calloc(1, longest);
    all = malloc(longest * n);
    if (own == NULL || all == NULL) {
        status = fail_plugin(err, TRM_NOMEM, "no memory for the addresses of rank %d of %d",
                             group->rank, group->size);
        goto done;
    }
    memcpy(own, address, length);
    status = exchange->allgather(exchange->context, own, longest, all, err);
    /* UCX's own detection of dead peers is off: with it, TCP may not write into the receiver's
     * memory, and a gigabyte costs both sides 0.8 s of CPU time instead of 0.5 s. The job's
     * heartbeats detect deaths. */
    for (int32_t r = 0; status == TRM_OK && r < group->size; r++) {
        ucp_ep_params_t params = {
            .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
            .address = (const ucp_address_t *)(void *)(all + (size_t)r * longest),
            .err_mode = UCP_ERR_HANDLING_MODE_NONE,
            .err_handler = {.cb = endpoint_failed, .arg = &self->peers[r]}};
        if (r != group->rank) {
            got = ucp_ep_create(self->worker, &params, &self->peers[r].endpoint);
            status = got == UCS_OK
                         ? TRM_OK
                         : fail_plugin(err, TRM_IO, "UCX cannot connect (%s): rank %d to rank %d",
                                       ucs_status_string(got), group->members[group->rank],
                                       group->members[r]);
        }
    }
done:
    if (address != NULL) {
        ucp_worker_release_address(self->worker, address);
    }
    free(lengths);
    free(own);
    free(all);
    return status;
}

/* Creates the transport: worker, exchange of addresses, endpoints. */
static trm_status ucx_create(const trmi_group *group, const trmi_exchange *exchange,
                             trmi_transport **out, trm_error *err) {
    ucx *self = calloc(1, sizeof *self);
    peer *peers = calloc((size_t)group->size, sizeof *peers);
    if (self == NULL || peers == NULL) {
        free(self);
        free(peers);
        return fail_plugin(err, TRM_NOMEM, "no memory for rank %d of %d", group->rank, group->size);
    }
    uint8_t mac[32];
    self->base.table = &ucx_table;
    self->base.group = *group;
    self->base.culprit = -1;
    self->peers = peers;
    group->bootstrap->table->sign(group->bootstrap, "ucx frame heads", 15, mac);
    memcpy(&self->key, mac, sizeof self->key);
    ucs_status_t opened = open_worker(self);
    trm_status status =
        opened == UCS_OK
            ? connect_all(self, exchange, err)
            : fail_plugin(err, TRM_UNSUPPORTED, "UCX does not start (%s): rank %d of %d",
                          ucs_status_string(opened), group->rank, group->size);
    if (status != TRM_OK) {
        ucx_destroy(&self->base);
        return status;
    }
    *out = &self->base;
    return TRM_OK;
}

/* The symbol that comm/net/engines.c looks up. */
TRM_API const trmi_transport_plugin_table trmi_transport_plugin = {
    .version = TRMI_PLUGIN_VERSION,
    .name = "ucx",
    .create = ucx_create,
};
