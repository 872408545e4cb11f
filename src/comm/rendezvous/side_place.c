/* SPDX-License-Identifier: Apache-2.0 */
/* The places where ranks meet. Paths must be in a folder that only this user can write
 * (trmi_os_private_dir), so that no other user can answer as rank 0.
 *
 *   host:port    rank 0 binds all addresses of the name on the first free of the ports
 *   unix:PATH    a socket file of mode 0600, beside a lock file PATH.lock
 *   file:PATH    a TCP port of 127.0.0.1 that the kernel chooses; PATH (mode 0600) contains it
 *                and a random secret, which serves as the token
 */
#include "comm/rendezvous/side_place.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/os.h"
#include "comm/cluster/cluster_json.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

trm_status trmi_place_parse(const char *text, int32_t ports, trmi_place *out, trm_error *err) {
    char part[64];
    memset(out, 0, sizeof *out);
    trmi_printable(text, out->text, sizeof out->text);
    trmi_printable(text, part, sizeof part);
    bool is_unix = strncmp(text, "unix:", 5) == 0, is_file = strncmp(text, "file:", 5) == 0;
    /* A path, whose names for locks and temporary files must fit too. */
    if (is_unix || is_file) {
        out->kind = is_unix ? TRMI_PLACE_UNIX : TRMI_PLACE_FILE;
        if (text[5] != '/' || strlen(text + 5) >= sizeof out->path - 8) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "rendezvous \"%s\": an absolute path of at most %zu characters "
                             "expected",
                             part, sizeof out->path - 9);
        }
        strcpy(out->path, text + 5);
        return TRM_OK;
    }
    const char *problem = trmi_host_port_parse(text, false, &out->tcp);
    if (problem != NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "rendezvous \"%s\": %s (host:port, unix:/path or file:/path expected)",
                         part, problem);
    }
    out->kind = TRMI_PLACE_TCP;
    out->ports = ports > 0 ? ports : 1;
    return TRM_OK;
}

/* Sleeps for less than a second. */
static void sleep_seconds(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

/* Opens a non-blocking stream socket. */
static int open_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Takes the lock file of a path: one rank 0 for each path. A process that holds the lock is alive,
 * so without the lock an existing socket file belongs to a dead process. Compares the inode,
 * because the former owner may have removed the file between open and flock. */
static trm_status take_lock(const char *path, trmi_listener *out, trm_error *err) {
    char name[48];
    snprintf(out->lock_path, sizeof out->lock_path, "%s.lock", path);
    out->lock_fd = open(out->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (out->lock_fd < 0) {
        out->lock_path[0] = '\0';
        return TRMI_FAIL(err, TRM_INVALID, "rendezvous %s cannot be made (%s)",
                         trmi_short_name(path, name), strerror(errno));
    }
    struct stat held, named;
    if (flock(out->lock_fd, LOCK_EX | LOCK_NB) != 0 || fstat(out->lock_fd, &held) != 0 ||
        stat(out->lock_path, &named) != 0 || held.st_ino != named.st_ino) {
        close(out->lock_fd);
        out->lock_fd = -1;
        out->lock_path[0] = '\0';
        return TRMI_FAIL(err, TRM_INVALID,
                         "another job of yours already meets at %s, or another process is rank 0 "
                         "of this one; set "
                         "TRIREME_RENDEZVOUS to a place of this job's own, or each process's rank",
                         trmi_short_name(path, name));
    }
    return TRM_OK;
}

/* Listens at a unix socket in a folder of this user. Other hosts cannot reach it, so the address
 * for peers is the loopback address.
 *   errors  INVALID, IO */
static trm_status listen_unix(const char *path, trmi_listener *out, trm_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[48];
    TRMI_TRY(trmi_os_private_dir(path, err));
    TRMI_TRY(take_lock(path, out, err));
    strcpy(address.sun_path, path);
    int fd = open_socket(AF_UNIX);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "no unix socket");
    }
    /* With the lock, an existing socket file belongs to a dead process. */
    unlink(path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || chmod(path, 0600) != 0 ||
        listen(fd, 1024) != 0) {
        trm_status status = TRMI_FAIL(err, TRM_INVALID, "rendezvous %s cannot be opened (%s)",
                                      trmi_short_name(path, name), strerror(errno));
        close(fd);
        return status;
    }
    out->fds[out->count++] = fd;
    strcpy(out->unlink_path, path);
    strcpy(out->address, "127.0.0.1");
    return TRM_OK;
}

/* Resolves a host name until it succeeds or the deadline passes: the DNS names of pods appear
 * late. */
static trm_status resolve_host(const char *host, int32_t port, double deadline,
                               struct addrinfo **out, trm_error *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    char service[8], part[64];
    snprintf(service, sizeof service, "%d", port);
    if (trmi_ip_family(host) != 0) {
        hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
    }
    for (;;) {
        int code = getaddrinfo(host, service, &hints, out);
        if (code == 0) {
            return TRM_OK;
        }
        if (trmi_os_now() >= deadline) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "host name \"%s\" is not known (%s)",
                             trmi_printable(host, part, sizeof part), gai_strerror(code));
        }
        sleep_seconds(0.2);
    }
}

/* Writes an address in numeric form, without a scope ("%eth0"). */
static void format_address(const struct sockaddr *address, socklen_t bytes, char *text,
                           size_t size) {
    if (getnameinfo(address, bytes, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0) {
        snprintf(text, size, "?");
    }
    text[strcspn(text, "%")] = '\0'; /* scope of link-local addresses */
}

/* Binds all addresses of the list on one port. Returns 0 if at least one was bound, otherwise
 * errno. */
static int bind_all(struct addrinfo *list, int32_t port, trmi_listener *out) {
    int problem = EADDRNOTAVAIL;
    out->count = 0;
    /* A name may have several addresses, such as one of IPv4 and one of IPv6. */
    for (struct addrinfo *one = list; one != NULL && out->count < TRMI_LISTENERS_MAX;
         one = one->ai_next) {
        int yes = 1, fd = open_socket(one->ai_family);
        if (fd < 0) {
            problem = errno;
            continue;
        }
        if (one->ai_family == AF_INET6) {
            ((struct sockaddr_in6 *)(void *)one->ai_addr)->sin6_port = htons((uint16_t)port);
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
        } else {
            ((struct sockaddr_in *)(void *)one->ai_addr)->sin_port = htons((uint16_t)port);
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, one->ai_addr, one->ai_addrlen) != 0 || listen(fd, 1024) != 0) {
            /* Another error explains the address better than "not available". */
            problem = errno == EADDRNOTAVAIL && problem != EADDRNOTAVAIL ? problem : errno;
            close(fd);
            continue;
        }
        if (out->count == 0) {
            format_address(one->ai_addr, one->ai_addrlen, out->address, sizeof out->address);
        }
        out->fds[out->count++] = fd;
    }
    return out->count > 0 ? 0 : problem;
}

/* Listens at the first of `ports` ports that is free, on all addresses of `host`. The name is
 * resolved until `deadline`.
 *   errors  INVALID, TIMEOUT */
static trm_status listen_tcp(const char *host, int32_t port, int32_t ports, double deadline,
                             trmi_listener *out, trm_error *err) {
    struct addrinfo *list;
    char part[64];
    int problem = 0;
    TRMI_TRY(resolve_host(host, port, deadline, &list, err));
    /* A port that is taken leads to the next; an address that this host lacks does not. */
    for (int32_t p = 0; p < ports; p++) {
        problem = bind_all(list, port == 0 ? 0 : port + p, out);
        if (problem == 0 || problem == EADDRNOTAVAIL) {
            out->port = port + p;
            break;
        }
    }
    freeaddrinfo(list);
    trmi_printable(host, part, sizeof part);
    if (problem == EADDRNOTAVAIL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "rank 0 is to listen on %s, but this host has no such address; start rank "
                         "0 there or correct the address",
                         part);
    }
    if (problem == EADDRINUSE) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "port %d of %s is taken by another program%s; name another port", port,
                         part, ports > 1 ? ", and so are the next ones" : "");
    }
    if (problem != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "rank 0 cannot listen on %s port %d (%s)", part, port,
                         strerror(problem));
    }
    return TRM_OK;
}

/* Listens at a port that the kernel chooses, and publishes it in a file together with a secret. The
 * file is written under another name and then renamed, so that a peer never reads half of it. */
static trm_status listen_file(const char *path, double deadline, trmi_listener *out,
                              trm_error *err) {
    char text[160];
    struct sockaddr_in bound;
    socklen_t bytes = sizeof bound;
    int used;
    TRMI_TRY(trmi_os_private_dir(path, err));
    TRMI_TRY(take_lock(path, out, err));
    /* Listen on loopback only: the secret is for processes of this host. */
    TRMI_TRY(listen_tcp("127.0.0.1", 0, 1, deadline, out, err));
    if (getsockname(out->fds[0], (struct sockaddr *)&bound, &bytes) != 0 ||
        trmi_net_random(out->secret, 32, NULL) != TRM_OK) {
        return TRMI_FAIL_SYS(err, "rendezvous file");
    }
    out->port = ntohs(bound.sin_port);
    /* The file has three lines: the version, the address, the secret. */
    used = snprintf(text, sizeof text, "trireme 1\n127.0.0.1 %d\n", out->port);
    for (int i = 0; i < 32; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, "%02x", out->secret[i]);
    }
    used += snprintf(text + used, sizeof text - (size_t)used, "\n");
    /* O_EXCL and O_NOFOLLOW: never write to a file or link that existed before. */
    char temporary[120];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "rendezvous file %s", temporary);
    }
    trm_status status = trmi_os_write_all(NULL, fd, text, (size_t)used, temporary, err);
    close(fd);
    explicit_bzero(text, sizeof text);
    if (status == TRM_OK && rename(temporary, path) != 0) {
        status = TRMI_FAIL_SYS(err, "rendezvous file %s", path);
    }
    if (status == TRM_OK) {
        strcpy(out->unlink_path, path);
    }
    return status;
}

/* Contract in side_place.h. A listener that could be made in part is closed again. */
trm_status trmi_listen(const trmi_place *place, double deadline, trmi_listener *out,
                       trm_error *err) {
    memset(out, 0, sizeof *out);
    out->lock_fd = -1;
    trm_status status;
    if (place->kind == TRMI_PLACE_UNIX) {
        status = listen_unix(place->path, out, err);
    } else if (place->kind == TRMI_PLACE_FILE) {
        status = listen_file(place->path, deadline, out, err);
    } else {
        status = listen_tcp(place->tcp.host, place->tcp.port, place->ports, deadline, out, err);
    }
    if (status != TRM_OK) {
        trmi_listener_close(out);
    }
    return status;
}

uint64_t trmi_listener_file(const trmi_listener *listener) {
    struct stat info;
    return listener->unlink_path[0] != '\0' && lstat(listener->unlink_path, &info) == 0
               ? (uint64_t)info.st_ino
               : 0;
}

/* Contract in side_place.h. May be called in any state. */
void trmi_listener_close(trmi_listener *listener) {
    for (int i = 0; i < listener->count; i++) {
        close(listener->fds[i]);
    }
    listener->count = 0;
    /* The file is removed before the lock, so that the next owner's file is never removed. */
    if (listener->unlink_path[0] != '\0') {
        unlink(listener->unlink_path);
        listener->unlink_path[0] = '\0';
    }
    if (listener->lock_fd >= 0) {
        unlink(listener->lock_path);
        close(listener->lock_fd);
        listener->lock_fd = -1;
    }
    explicit_bzero(listener->secret, sizeof listener->secret);
}

/* Connects to a unix socket. Returns TRM_PENDING if no process answers. */
static trm_status connect_unix(const char *path, const char *text, int *out, trm_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = open_socket(AF_UNIX);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "no socket for the rendezvous");
    }
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        trm_status status =
            TRMI_FAIL(err, TRM_PENDING, "no process answers at %s (%s)", text, strerror(errno));
        close(fd);
        return status;
    }
    *out = fd;
    return TRM_OK;
}

/* Connects within 3 s. Returns TRM_PENDING if no process answers. */
static trm_status connect_tcp(const char *host, int32_t port, int *fd, trm_error *err) {
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + 3};
    if (trmi_net_connect(host, port, &patience, fd, err) == TRM_OK) {
        return TRM_OK;
    }
    if (err != NULL) { /* sys_errno stays */
        err->status = TRM_PENDING;
    }
    return TRM_PENDING;
}

/* Reads what listen_file has published. Returns TRM_PENDING while the file does not exist, INVALID
 * if it belongs to another user or has another form. */
static trm_status read_published(const char *path, char host[TRMI_HOST_BYTES], int32_t *port,
                                 uint8_t secret[32], trm_error *err) {
    char text[161], hex[65], name[48];
    struct stat info;
    /* The checks are made on the open file, so that it cannot be exchanged in between. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return TRMI_FAIL(err, TRM_PENDING, "rank 0 has not written %s yet",
                         trmi_short_name(path, name));
    }
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 077) == 0 &&
                info.st_uid == geteuid();
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (!good) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "rendezvous file %s: a file of yours with mode 0600 expected",
                         trmi_short_name(path, name));
    }
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "trireme 1\n%63s %d\n%64[0-9a-f]\n", host, port, hex) != 3 ||
        strlen(hex) != 64 || *port < 1 || *port > 65535) {
        return TRMI_FAIL(err, TRM_INVALID, "%s is not a rendezvous file of trireme; remove it",
                         trmi_short_name(path, name));
    }
    for (int i = 0; i < 32; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        secret[i] = (uint8_t)byte;
    }
    return TRM_OK;
}

trm_status trmi_connect(const trmi_place *place, int32_t attempt, int *fd, uint8_t secret[32],
                        trm_error *err) {
    memset(secret, 0, 32);
    if (place->kind == TRMI_PLACE_UNIX) {
        return connect_unix(place->path, place->text, fd, err);
    }
    if (place->kind == TRMI_PLACE_FILE) {
        char host[TRMI_HOST_BYTES];
        int32_t port;
        TRMI_TRY(read_published(place->path, host, &port, secret, err));
        return connect_tcp(host, port, fd, err);
    }
    return connect_tcp(place->tcp.host, place->tcp.port + attempt % place->ports, fd, err);
}

/* ---- what became of the processes of a job --------------------------------------------------- */

/* The lines of the list that are no numbers of ranks. */
static const char met_line[] = "met\n", ended_line[] = "ended\n", left_line[] = "left\n";

/* Opens the list beside a place; -1 where there is no place (path ""). */
static int open_list(const char *path, int flags) {
    char name[120];
    if (path[0] == '\0') {
        return -1;
    }
    snprintf(name, sizeof name, "%s.lost", path);
    return open(name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Appends a line; one write, so that lines of several processes do not mix. */
static void add_line(const char *path, const char *line) {
    int fd = open_list(path, O_WRONLY | O_APPEND);
    if (fd >= 0) {
        (void)!write(fd, line, strlen(line));
        close(fd);
    }
}

void trmi_place_begin_list(const char *path) {
    int fd = trmi_os_private_dir(path, NULL) == TRM_OK
                 ? open_list(path, O_WRONLY | O_CREAT | O_EXCL)
                 : -1;
    if (fd >= 0) {
        close(fd);
    }
}

void trmi_place_add_lost(const char *path, int32_t rank) {
    char line[16];
    snprintf(line, sizeof line, "%d\n", rank);
    add_line(path, line);
}

void trmi_place_add_ended(const char *path) { add_line(path, ended_line); }

void trmi_place_add_left(const trmi_place *place) {
    if (place->kind == TRMI_PLACE_UNIX) {
        add_line(place->path, left_line);
    }
}

void trmi_place_end_lost(const trmi_place *place) {
    if (place->kind == TRMI_PLACE_UNIX) {
        add_line(place->path, met_line);
    }
}

/* Counts of the lines of a list. */
typedef struct place_list {
    bool begun; /* a launcher has made it */
    int32_t lost, met, ended, left;
} place_list;

/* Reads the list; sets lost[rank] for each rank below `size` that is in it. */
static place_list read_list(const char *path, bool *lost, int32_t size) {
    int fd = open_list(path, O_RDONLY);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    char line[16];
    place_list list = {.begun = fd >= 0};
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *end;
        const long rank = strtol(line, &end, 10);
        list.met += strcmp(line, met_line) == 0;
        list.ended += strcmp(line, ended_line) == 0;
        list.left += strcmp(line, left_line) == 0;
        if (end > line && *end == '\n' && rank >= 0 && rank < size && !lost[rank]) {
            lost[rank] = true;
            list.lost++;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return list;
}

int32_t trmi_place_read_lost(const trmi_place *place, bool *lost, int32_t size) {
    memset(lost, 0, (size_t)size * sizeof *lost);
    if (place->kind != TRMI_PLACE_UNIX) {
        return 0;
    }
    const place_list list = read_list(place->path, lost, size);
    if (list.met > 0) {
        memset(lost, 0, (size_t)size * sizeof *lost);
    }
    return list.met > 0 ? 0 : list.lost;
}

bool trmi_place_may_have_met(const trmi_place *place) {
    if (place->kind != TRMI_PLACE_UNIX) {
        return true;
    }
    const place_list list = read_list(place->path, NULL, 0);
    return !list.begun || list.met > 0;
}

bool trmi_place_has_ended(const trmi_place *place) {
    return place->kind == TRMI_PLACE_UNIX && read_list(place->path, NULL, 0).ended > 0;
}

int32_t trmi_place_count_left(const char *path) { return read_list(path, NULL, 0).left; }

void trmi_local_address(int fd, char *text, size_t size) {
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0 || own.ss_family == AF_UNIX) {
        snprintf(text, size, "127.0.0.1");
        return;
    }
    format_address((struct sockaddr *)&own, bytes, text, size);
}
