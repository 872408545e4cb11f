/* SPDX-License-Identifier: Apache-2.0 */
/* ps/wire/channel.h: messages between a worker and a server, in order, over whatever connects them.
 *
 *   ring   rings in memory: two threads of a process, or two processes of a host     channel_ring.c
 *   tcp    a socket                                                                  channel_tcp.c
 *
 * Sender and receiver work in place: a message is built in a reserved block and read where it lies.
 *
 *   reserve --> fill --> commit   =====>   receive --> read --> release
 */
#ifndef TRMI_PS_CHANNEL_H
#define TRMI_PS_CHANNEL_H

#include "trireme/base.h"

#include <string.h>

enum { TRMI_PEER_NAME_BYTES = 80, TRMI_MESSAGE_BYTES_MAX = 1 << 30 };

typedef struct trmi_message {
    uint8_t *data; /* 64-byte aligned */
    size_t bytes;
    void *block; /* the channel's own */
} trmi_message;

typedef struct trmi_channel trmi_channel;

typedef struct trmi_channel_table {
    const char *name;
    /* A block for a message of at most `bytes`; waits for room. Several may be out at once; they
     * arrive in the order of their reservation.
     *   errors  TIMEOUT (naming the peer), PEER (it is gone), INVALID (too large), NOMEM
     *   thread  one at a time */
    trm_status (*reserve)(trmi_channel *channel, size_t bytes, double timeout_seconds,
                          trmi_message *out, trm_error *err);
    /* Sends a reserved block, `message->bytes` of it (0 = nothing: it is taken back).   thread any
     */
    trm_status (*commit)(trmi_channel *channel, trmi_message *message, double timeout_seconds,
                         trm_error *err);
    /* The next message.   errors  TIMEOUT, END (the peer has closed), PEER (it is gone), CORRUPT
     *   thread  one at a time */
    trm_status (*receive)(trmi_channel *channel, double timeout_seconds, trmi_message *out,
                          trm_error *err);
    /* Done with a received message.   thread any */
    void (*release)(trmi_channel *channel, trmi_message *message);
    /* Tells the peer that no more will come; its receive then says END.   thread any */
    void (*shut)(trmi_channel *channel);
    /* Frees; no other call may be under way. */
    void (*destroy)(trmi_channel *channel);
    /* A client's end: a whole message from where it lies, without a copy. NULL = see
     * trmi_channel_send. */
    trm_status (*send)(trmi_channel *channel, const uint8_t *data, size_t bytes,
                       double timeout_seconds, trm_error *err);
} trmi_channel_table;

/* Implementations embed this as their first member. */
struct trmi_channel {
    const trmi_channel_table *table;
    char peer[TRMI_PEER_NAME_BYTES]; /* "server 1 (10.0.0.2:4000)": errors name it */
};

/* A client sends what it keeps: by the channel's send, or reserve, copy, commit.   errors  as these   thread as reserve
 */
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

/* Two ends in one process, with rings of `ring_bytes` (a power of two; messages up to half of it).
 *   errors  NOMEM */
trm_status trmi_channel_pair(size_t ring_bytes, trmi_channel **a, trmi_channel **b, trm_error *err);

/* Listens on a numeric or named address; port 0 takes a free one (*port says which). */
typedef struct trmi_channel_listener trmi_channel_listener;
trm_status trmi_channel_listen(const char *host, int32_t port, trmi_channel_listener **out,
                               int32_t *bound_port, trm_error *err);
/* The next connection as a tcp channel.   errors  TIMEOUT, CANCELLED (after
 * trmi_channel_listener_shut)
 */
trm_status trmi_channel_listener_accept(trmi_channel_listener *listener, double timeout_seconds,
                                        trmi_channel **out, trm_error *err);
void trmi_channel_listener_shut(trmi_channel_listener *listener);
void trmi_channel_listener_destroy(trmi_channel_listener *listener);
/* Who waits may be told not to. */
typedef struct trmi_stop {
    bool (*asked)(void *context); /* NULL = never */
    void *context;
} trmi_stop;
static inline bool trmi_stop_asked(const trmi_stop *stop) {
    return stop->asked != NULL && stop->asked(stop->context);
}

/* "host:port" or "[v6]:port".   errors  INVALID, TIMEOUT, PEER, CANCELLED (stopped) */
trm_status trmi_channel_connect(const char *address, double timeout_seconds, const trmi_stop *stop,
                                trmi_channel **out, trm_error *err);

/* --- from tcp to shared memory
 * --------------------------------------------------------------------- Both ends talk over tcp
 * first. The client makes a file of two rings and names it to the server; if the server can map it
 * (same host, same user), both go on through it and keep the socket only to notice each other's
 * death. */

/* The client's end: *path[128] names the file (give it to the server, then call trmi_shm_seal).
 *   owns  the new channel takes `tcp` over when sealed with true */
trm_status trmi_shm_offer(trmi_channel *tcp, size_t ring_bytes, trmi_channel **out, char path[128],
                          trm_error *err);
/* After the server's answer: the file's name is removed; `accepted` false destroys the offer. */
void trmi_shm_seal(trmi_channel *offer, bool accepted);
/* The server's end; takes `tcp` over on success.   errors  IO, CORRUPT, NOMEM */
trm_status trmi_shm_accept(trmi_channel *tcp, const char *path, size_t ring_bytes,
                           trmi_channel **out, trm_error *err);
/* Longest message that a tcp channel takes; 4096 bytes until this is called (after the handshake).
 */
void trmi_tcp_trust(trmi_channel *tcp);
/* Not acknowledged for so long, a connection is broken.   thread any */
void trmi_tcp_patience(trmi_channel *tcp, double seconds);
/* A server's end, before anything is sent: commit never waits for the client, whoever receives
 * sends what the socket did not
 * take (receive often). At most `bytes_most` are reserved or wait (one message always may): reserve
 * then says TIMEOUT at
 * once. A client that takes nothing of them for `silence_seconds` is cut off, which is logged: receive and commit say PEER.   errors  IO
 */
trm_status trmi_tcp_never_wait(trmi_channel *tcp, size_t bytes_most, double silence_seconds,
                               trm_error *err);
/* True once the other end of a tcp channel has gone or closed. */
bool trmi_tcp_gone(const trmi_channel *tcp);

#endif
