/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_place.h: where ranks meet: "host:port", "unix:PATH" or "file:PATH", and who
 * may come in there without a token. */
#ifndef TRMI_COMM_SIDE_PLACE_H
#define TRMI_COMM_SIDE_PLACE_H

#include "comm/cluster/cluster_addr.h"

enum { TRMI_LISTENERS_MAX = 4 };

typedef enum trmi_place_kind { TRMI_PLACE_TCP, TRMI_PLACE_UNIX, TRMI_PLACE_FILE } trmi_place_kind;

typedef struct trmi_place {
    trmi_place_kind kind;
    char path[108];     /* unix, file */
    trmi_host_port tcp; /* tcp */
    int32_t ports;      /* consecutive ports to try */
    char text[120];     /* for messages */
} trmi_place;

/* Reads `text`.   error INVALID naming what is wrong */
trm_status trmi_place_parse(const char *text, int32_t ports, trmi_place *out, trm_error *err);

typedef struct trmi_listener {
    int fds[TRMI_LISTENERS_MAX];
    int count;
    char address[TRMI_HOST_BYTES]; /* numeric, of the first socket */
    int32_t port;
    uint8_t secret[32]; /* file: what the published file contains; otherwise zeros */
    char unlink_path[108];
    char lock_path[120];
    int lock_fd;
} trmi_listener;

/* Rank 0: opens the place. Names are resolved until `deadline` (trmi_os_now()).
 *   error  INVALID: port taken, no address of this host, path no good; TIMEOUT */
trm_status trmi_listen(const trmi_place *place, double deadline, trmi_listener *out,
                       trm_error *err);
void trmi_listener_close(trmi_listener *listener);

/* Others: one attempt at port number `attempt` of the place; a connected, non-blocking socket.
 *   out    TRM_PENDING with the reason in err: nobody there yet, try again
 *   error  INVALID */
trm_status trmi_connect(const trmi_place *place, int32_t attempt, int *fd, uint8_t secret[32],
                        trm_error *err);

/* Numeric local address of a connected socket ("127.0.0.1" for unix sockets). */
void trmi_local_address(int fd, char *text, size_t size);

#endif
