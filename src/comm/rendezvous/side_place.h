/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_place.h: the places where ranks meet: "host:port", "unix:PATH" or
 * "file:PATH". Rank 0 listens there and the others connect. */
#ifndef TRMI_COMM_SIDE_PLACE_H
#define TRMI_COMM_SIDE_PLACE_H

#include "comm/cluster/cluster_addr.h"

/* sockets of one listener, at most (one for each address of a name) */
enum { TRMI_LISTENERS_MAX = 4 };

/* How a place is reached. */
typedef enum trmi_place_kind { TRMI_PLACE_TCP, TRMI_PLACE_UNIX, TRMI_PLACE_FILE } trmi_place_kind;

/* A parsed place. */
typedef struct trmi_place {
    trmi_place_kind kind;
    char path[108];     /* of a unix socket or rendezvous file */
    trmi_host_port tcp; /* of a TCP place */
    int32_t ports;      /* number of consecutive ports to try */
    char text[120];     /* the place as given, printable, for messages */
} trmi_place;

/* Parses `text`. `ports`: consecutive ports that rank 0 may use (0: one).
 *   errors  INVALID */
trm_status trmi_place_parse(const char *text, int32_t ports, trmi_place *out, trm_error *err);

/* Rank 0's open place. */
typedef struct trmi_listener {
    int fds[TRMI_LISTENERS_MAX];   /* listening sockets */
    int count;                     /* length of `fds` */
    char address[TRMI_HOST_BYTES]; /* numeric address of the first socket */
    int32_t port;                  /* of a TCP place */
    uint8_t secret[32];            /* "file:" only: the secret in the rendezvous file; else zeros */
    /* files to remove at the end, and the lock that this process holds */
    char unlink_path[108];
    char lock_path[120]; /* "": no lock */
    int lock_fd;         /* -1: no lock */
} trmi_listener;

/* Rank 0: opens the place. Host names are resolved again and again until `deadline` (trmi_os_now).
 *   errors  INVALID (the port is taken, the address is not of this host, the path cannot be used),
 *           TIMEOUT. trmi_listener_close frees *out */
trm_status trmi_listen(const trmi_place *place, double deadline, trmi_listener *out,
                       trm_error *err);
/* Returns the inode of the socket or rendezvous file by which other processes find the place, as it
 * is now. 0: a TCP place has none, or the file was removed, for instance by a program that cleans
 * /tmp. */
uint64_t trmi_listener_file(const trmi_listener *listener);
/* Closes the sockets and removes the files. */
void trmi_listener_close(trmi_listener *listener);

/* Other ranks: makes one attempt, at port number `attempt` (modulo the number of ports) of the
 * place. *fd is a connected, non-blocking socket; `secret` is that of a rendezvous file. Returns
 * TRM_PENDING with the reason in `err` if no process answers yet, at TCP also its sys_errno.
 *   errors  INVALID */
trm_status trmi_connect(const trmi_place *place, int32_t attempt, int *fd, uint8_t secret[32],
                        trm_error *err);

/* ---- what became of the processes of a job --------------------------------------------------- */

/* A list in a file beside a unix socket (PATH.lost), one line each; empty at other kinds of place,
 * and for the path "", which is none. A launcher notes the ranks that have died and those that have
 * ended well, a rank of an elastic job that it leaves. There is a list only where a launcher has
 * begun one, because it removes it. */
void trmi_place_begin_list(const char *path);
void trmi_place_add_lost(const char *path, int32_t rank);
void trmi_place_add_ended(const char *path);
void trmi_place_add_left(const trmi_place *place);
/* Rank 0 ends the list of the dead before the ranks have met, because later deaths are none of the
 * meeting. */
void trmi_place_end_lost(const trmi_place *place);
/* Sets lost[rank] for the ranks below `size` that have died before the meeting. Returns their
 * number. */
int32_t trmi_place_read_lost(const trmi_place *place, bool *lost, int32_t size);
/* Returns whether a job may run whose ranks have met at the place: nothing tells but a list. */
bool trmi_place_may_have_met(const trmi_place *place);
/* Returns whether a rank of the job has ended well; how many have left it. */
bool trmi_place_has_ended(const trmi_place *place);
int32_t trmi_place_count_left(const char *path);

/* Writes the numeric local address of a connected socket ("127.0.0.1" for unix sockets). */
void trmi_local_address(int fd, char *text, size_t size);

#endif
