/* SPDX-License-Identifier: Apache-2.0 */
/* base/net/net.h: connections between the processes of a job: sockets with deadlines, and the proof
 * of the job's token that begins every connection. Rendezvous, collectives and parameter servers
 * use it; docs/reference/wire-protocol.md says what each of them sends after the proof.
 *
 * The proof (integers are little-endian; HMAC is HMAC-SHA256 under the 32 bytes of the job's
 * token):
 *
 *   connector                                acceptor
 *   HELLO (48 bytes and detail) -------->
 *     0  "TRIREME\0"
 *     8  u16 version of the service
 *    10  u16 service: 1 rendezvous, 2 collectives, 3 parameter server
 *    12  u32 bytes of detail, at most 256
 *    16  nonce, 32 random bytes
 *    48  detail: what the service must know before the proof
 *          <-------- CHALLENGE (80 bytes)
 *                      0  "TRIRACK\0"
 *                      8  u16 version, 10 u16 service, 12 zeros
 *                     16  nonce, 32 random bytes
 *                     48  HMAC("acceptor\0", HELLO, bytes 0 to 47 of the CHALLENGE)
 *   PROOF (32 bytes) -------->
 *     0  HMAC("connector\0", HELLO, CHALLENGE)
 *
 * Nonces are fresh and labels differ by direction, so that no message can be replayed or reflected.
 * An acceptor of another version sends its CHALLENGE, which names that version, and closes. Keys
 * for what follows are HMAC("frames up\0" or "frames down\0", HELLO, CHALLENGE), up being from
 * connector to acceptor.
 *
 * Invariants: a process that does not know the token learns nothing but the version, and causes
 * neither a thread nor an allocation; an acceptor holds at most TRMI_UNPROVED_MAX connections that
 * have not proved the token, each for at most TRMI_HALF_OPEN_SECONDS. When one more comes, the
 * oldest of them is closed. */
#ifndef TRMI_BASE_NET_H
#define TRMI_BASE_NET_H

#include "trireme/base.h"

enum {
    TRMI_TOKEN_BYTES = 32,
    TRMI_HELLO_HEAD = 48,
    TRMI_HELLO_DETAIL_MAX = 256,
    TRMI_CHALLENGE_BYTES = 80,
    TRMI_PROOF_BYTES = 32,
    TRMI_UNPROVED_MAX = 64,
    TRMI_NET_NAME_BYTES = 80
};
#define TRMI_HALF_OPEN_SECONDS 5.0

/* Purpose of a connection. It is part of the proof, so that a connection cannot serve another
 * purpose. */
typedef enum trmi_service {
    TRMI_SERVICE_RENDEZVOUS = 1,
    TRMI_SERVICE_COLLECTIVES = 2,
    TRMI_SERVICE_PARAMETERS = 3
} trmi_service;

/* Limit of a wait: until `deadline` (trmi_os_now()), or until `stopped` returns true. */
typedef struct trmi_wait_limit {
    double deadline;
    bool (*stopped)(void *context); /* called a few times a second; NULL: never stopped */
    void *context;
} trmi_wait_limit;

/* ---- sockets: all are non-blocking and close-on-exec ---- */

/* Splits "host:port" or "[v6]:port".   errors  INVALID */
trm_status trmi_net_split(const char *address, char host[64], int32_t *port, trm_error *err);
/* Binds a TCP socket; port 0 takes a free one. It does not listen yet.
 *   param   name: the numeric "host:port" that was bound; NULL: not wanted
 *   errors  INVALID (the name cannot be resolved), IO
 *   owns    the caller closes *fd */
trm_status trmi_net_bind(const char *host, int32_t port, int *fd, char name[TRMI_NET_NAME_BYTES],
                         trm_error *err);
/* Connects to the first address of `host` that answers: one attempt.
 *   errors  INVALID (the name cannot be resolved), PEER (no process listens there, or no answer
 *           before the deadline), CANCELLED (stopped) */
trm_status trmi_net_connect(const char *host, int32_t port, const trmi_wait_limit *patience,
                            int *fd, trm_error *err);
/* Writes the other end for messages: "10.0.0.2:4000", or "pid 7 of user 1000" at a unix socket.
 *   returns  whether it is a process of this host (at a unix socket: of this user, or root) */
bool trmi_net_peer(int fd, char name[TRMI_NET_NAME_BYTES]);
/* Writes this end, in the same way. */
void trmi_net_own(int fd, char name[TRMI_NET_NAME_BYTES]);
/* Sets after how many seconds a connection counts as broken whose other host acknowledges nothing:
 * neither data nor, while the connection is idle, the probes of the system. A host that has started
 * again answers a probe with a reset. Unix sockets ignore this. */
void trmi_net_set_patience(int fd, double seconds);
/* Sends or receives exactly `bytes`.   errors  PEER (closed), TIMEOUT, CANCELLED */
trm_status trmi_net_send(int fd, const void *data, size_t bytes, const trmi_wait_limit *patience,
                         trm_error *err);
trm_status trmi_net_receive(int fd, void *data, size_t bytes, const trmi_wait_limit *patience,
                            trm_error *err);

/* ---- the proof ---- */

/* The data that one end of a connection contributes to the proof. */
typedef struct trmi_credentials {
    uint16_t service, version;
    uint8_t token[TRMI_TOKEN_BYTES];
    const void *detail; /* a connector's */
    size_t detail_bytes;
} trmi_credentials;

/* A connection whose other end has proved the token. */
typedef struct trmi_session {
    int fd;
    bool is_local; /* see trmi_net_peer */
    char peer[TRMI_NET_NAME_BYTES];
    uint8_t up_key[32], down_key[32];
    uint8_t detail[TRMI_HELLO_DETAIL_MAX]; /* at the acceptor: the connector's */
    size_t detail_bytes;
} trmi_session;

/* Computes HMAC-SHA256(key, label with its zero, a, b). */
void trmi_net_mac(const uint8_t key[32], const char *label, const void *a, size_t a_bytes,
                  const void *b, size_t b_bytes, uint8_t out[32]);
/* Fills `out` with random bytes.   errors  IO */
trm_status trmi_net_random(void *out, size_t bytes, trm_error *err);
/* Proves the token as the connector, over a connected socket, which stays the caller's to close
 * when this fails.
 *   errors  PEER (closed or silent, or not this protocol: may be tried again), INVALID (another
 *           token), UNSUPPORTED (another version), CANCELLED, IO */
trm_status trmi_net_prove_token(int fd, const trmi_credentials *mine,
                                const trmi_wait_limit *patience, trmi_session *out, trm_error *err);

/* ---- the acceptor ---- */

typedef struct trmi_acceptor trmi_acceptor;

/* Options of an acceptor: the credentials of the job, words for the log, a test that refuses. */
typedef struct trmi_acceptor_options {
    trmi_credentials credentials;
    const char *room, *name; /* for the log: "ps", "server 0" */
    /* Called before anything is read from a connection: returns NULL, or why it is refused. */
    const char *(*refuses)(void *context, bool is_local);
    void *context;
} trmi_acceptor_options;

/* Listens on bound sockets and takes them over, also when it fails.
 *   errors  NOMEM, IO
 *   owns    *out: the caller, trmi_acceptor_destroy */
trm_status trmi_acceptor_create(const int *fds, int count, const trmi_acceptor_options *options,
                                trmi_acceptor **out, trm_error *err);
/* Returns the next connection that has proved the token; the caller closes out->fd.
 *   errors  TIMEOUT, CANCELLED (after trmi_acceptor_stop), IO
 *   threads  one at a time */
trm_status trmi_acceptor_next(trmi_acceptor *acceptor, double timeout_seconds, trmi_session *out,
                              trm_error *err);
/* Returns a descriptor that is readable when trmi_acceptor_next has something to do, for poll
 * loops. */
int trmi_acceptor_fd(const trmi_acceptor *acceptor);
/* Returns the last connection that was refused, and why; "": none was. */
const char *trmi_acceptor_refused(const trmi_acceptor *acceptor);
/* Makes trmi_acceptor_next return at once from now on.   threads  any */
void trmi_acceptor_stop(trmi_acceptor *acceptor);
void trmi_acceptor_destroy(trmi_acceptor *acceptor);

#endif
