/* SPDX-License-Identifier: Apache-2.0 */
/* ps/wire/channel.h: messages between a worker and a server, in order, over shared memory or
 * TCP.
 *
 *     ring   rings in memory: two threads of a process, or two processes of a host     channel_ring.c
 *     tcp    a socket                                                                  channel_tcp.c
 *
 * Sender and receiver work in place: a message is built in a reserved block and read where it
 * lies.
 *
 *     reserve --> fill --> commit   =====>   receive --> read --> release */
#ifndef TRMI_PS_CHANNEL_H
#define TRMI_PS_CHANNEL_H

#include "trireme/base.h"

#include <string.h>

/* Bytes of a peer's name and of a message, at most. */
enum { TRMI_PEER_NAME_BYTES = 80, TRMI_MESSAGE_BYTES_MAX = 1 << 30 };

/* A message in the channel's memory. */
typedef struct trmi_message {
    uint8_t *data; /* 64-byte aligned */
    size_t bytes;
    void *block; /* the channel's handle */
} trmi_message;

typedef struct trmi_channel trmi_channel;

/* The functions of a kind of channel. */
typedef struct trmi_channel_table {
    const char *name;
    /* Reserves a block for a message of at most `bytes`; waits for room. Several may be reserved
     * at once; they arrive in the order of reservation.
     *   errors  TIMEOUT (naming the peer), PEER (it is gone), INVALID (too large), NOMEM
     *   thread  one at a time */
    trm_status (*reserve)(trmi_channel *channel, size_t bytes, double timeout_seconds,
                          trmi_message *out, trm_error *err);
    /* Sends a reserved block, message->bytes of it (0: nothing, the reservation is withdrawn).
     *   thread  any */
    trm_status (*commit)(trmi_channel *channel, trmi_message *message, double timeout_seconds,
                         trm_error *err);
    /* Receives the next message.
     *   errors  TIMEOUT, END (the peer has closed), PEER (it is gone), CORRUPT
     *   thread  one at a time */
    trm_status (*receive)(trmi_channel *channel, double timeout_seconds, trmi_message *out,
                          trm_error *err);
    /* Releases a received message.
     *   thread  any */
    void (*release)(trmi_channel *channel, trmi_message *message);
    /* Announces that no more messages will be sent; the peer's receive then returns END.
     *   thread  any */
    void (*shut)(trmi_channel *channel);
    /* Frees the channel; no other call may be under way. */
    void (*destroy)(trmi_channel *channel);
    /* A client's end: sends a whole message without a copy. NULL: trmi_channel_send copies. */
    trm_status (*send)(trmi_channel *channel, const uint8_t *data, size_t bytes,
                       double timeout_seconds, trm_error *err);
} trmi_channel_table;

/* Implementations embed this as their first member. */
struct trmi_channel {
    const trmi_channel_table *table;
    char peer[TRMI_PEER_NAME_BYTES]; /* "server 1 (10.0.0.2:4000)": errors name it */
};

/* Sends a message that the client keeps: by the channel's send, or by reserve, copy and commit.
 *   errors  as these
 *   threads  as reserve */
static inline trm_status trmi_channel_send(trmi_channel *channel, const uint8_t *data, size_t bytes,
                                           double timeout_seconds, trm_error *err) {
    const trmi_channel_table *t = channel->table;
    trmi_message m;
    if (t->send != NULL) {
        return t->send(channel, data, bytes, timeout_seconds, err);
    }
    trm_status status = t->reserve(channel, bytes, timeout_seconds, &m, err);
    if (status == TRM_OK) {
        memcpy(m.data, data, bytes);
        status = t->commit(channel, &m, timeout_seconds, err);
    }
    return status;
}

/* Creates two ends in one process, with rings of `ring_bytes` (a power of two; messages up to
 * half of it).
 *   errors  NOMEM */
trm_status trmi_channel_pair(size_t ring_bytes, trmi_channel **a, trmi_channel **b, trm_error *err);

/* Wraps a connected socket whose other end has proved the job's token; takes `fd` over, also on
 * failure.
 *   errors  NOMEM */
trm_status trmi_tcp_wrap(int fd, const char *peer, trmi_channel **out, trm_error *err);

/* --- from tcp to shared memory -------------------------------------------------------------------
 * Both ends talk over tcp first. The client makes a sealed memory file of two rings and tells the
 * server where it has it open (comm/shm/shared_memory.h); if the server can map it (same host, same
 * user), both go on through it and keep the socket only to notice each other's death. */
typedef struct trmi_ring_place {
    int64_t pid;
    int32_t fd; /* in that process */
} trmi_ring_place;

/* Creates the client's end of rings; the memory file stays open until trmi_ring_settle.
 *   owns  the caller   errors  NOMEM, IO */
trm_status trmi_ring_offer(trmi_channel *tcp, size_t ring_bytes, trmi_channel **out,
                           trmi_ring_place *place, trm_error *err);
/* Settles an offer after the server's answer: an accepted one takes `tcp` over, a rejected one is
 * destroyed. */
void trmi_ring_settle(trmi_channel *offer, trmi_channel *tcp, bool accepted);
/* Maps the offered rings as the server's end; takes `tcp` over on success.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_ring_accept(trmi_channel *tcp, trmi_ring_place place, size_t ring_bytes,
                            trmi_channel **out, trm_error *err);
/* Sets after how many seconds without acknowledgement a connection counts as broken, also an idle
 * one, which the system probes (trmi_net_set_patience).
 *   threads  any */
void trmi_tcp_patience(trmi_channel *tcp, double seconds);
/* Makes commit never wait for the client; called on a server's end before anything is sent. Data
 * that the socket does not take at once is sent by the thread that calls receive (call it often).
 * At most `bytes_most` bytes are reserved or waiting (one message always may); beyond that reserve
 * returns TIMEOUT at once. A client that takes none of them for `silence_seconds` is disconnected,
 * which is logged: receive and commit return PEER.
 *   errors  IO */
trm_status trmi_tcp_never_wait(trmi_channel *tcp, size_t bytes_most, double silence_seconds,
                               trm_error *err);
/* Returns whether the other end of a TCP channel has gone or closed. */
bool trmi_tcp_gone(const trmi_channel *tcp);

#endif
