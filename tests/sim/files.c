/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of simulated processes (sim.h): the table, poll, epoll, eventfd, and the calls that
 * serve all kinds. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WRAP(result, name, parameters)                                                             \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters

static sim_file *files[SIM_FILES];
static sim_file *first_open, *last_open; /* in the order of their descriptors */
static int file_count;

bool sim_is_simulated(int fd) { return fd >= SIM_FD && fd < SIM_FD + file_count; }

sim_file *sim_file_new(sim_kind kind, int flags) {
    if (file_count == SIM_FILES) {
        sim_fail("more than %d descriptors", SIM_FILES);
        errno = EMFILE;
        return NULL;
    }
    sim_file *file = calloc(1, sizeof *file);
    file->kind = kind;
    file->flags = flags;
    file->owner = sim.current->process;
    file->fd = SIM_FD + file_count;
    files[file_count++] = file;
    file->previous = last_open;
    *(last_open == NULL ? &first_open : &last_open->next) = file;
    last_open = file;
    return file;
}

sim_file *sim_file_of(int fd) {
    sim_file *file = sim_is_simulated(fd) ? files[fd - SIM_FD] : NULL;
    if (file == NULL || (sim.current != NULL && file->owner != sim.current->process)) {
        sim_fail("descriptor %d is used after its end", fd);
        errno = EBADF;
        return NULL;
    }
    return file;
}

static void stop_watching(sim_file *epoll, int fd) {
    for (int i = 0; i < epoll->watched_count; i++) {
        if (epoll->watched[i].fd == fd) {
            epoll->watched[i] = epoll->watched[--epoll->watched_count];
        }
    }
}

void sim_file_close(sim_file *file) {
    files[file->fd - SIM_FD] = NULL;
    *(file->previous == NULL ? &first_open : &file->previous->next) = file->next;
    *(file->next == NULL ? &last_open : &file->next->previous) = file->previous;
    /* an epoll watches a descriptor until it is closed */
    for (sim_file *open = first_open; open != NULL; open = open->next) {
        if (open->kind == KIND_EPOLL && open->owner == file->owner) {
            stop_watching(open, file->fd);
        }
    }
    if (file->kind == KIND_STREAM) {
        sim_stream_close(file->stream);
    } else if (file->kind == KIND_LISTENER) {
        sim_listener_close(file);
    } else if (file->kind == KIND_DISK) {
        sim_disk_close(file);
    }
    free(file);
}

void sim_files_close_all(sim_process *process) {
    for (sim_file *file = first_open; file != NULL;) {
        sim_file *next = file->next;
        if (file->owner == process) {
            sim_file_close(file);
        }
        file = next;
    }
}

/* ---- poll ------------------------------------------------------------------------------------ */

static bool epoll_has(const sim_file *epoll, int fd) {
    for (int i = 0; i < epoll->watched_count; i++) {
        if (epoll->watched[i].fd == fd) {
            return true;
        }
    }
    return false;
}

void sim_file_changed(const sim_file *file) {
    if (file == NULL || file->owner->dead) {
        return;
    }
    for (sim_task *t = file->owner->tasks; t != NULL; t = t->next) {
        for (int i = 0; t->wait == SIM_POLL && !t->ready && i < t->poll_count; i++) {
            int fd = t->polls[i].fd;
            const sim_file *polled = sim_is_simulated(fd) ? files[fd - SIM_FD] : NULL;
            if (polled == file ||
                (polled != NULL && polled->kind == KIND_EPOLL && epoll_has(polled, file->fd))) {
                sim_wake(t);
            }
        }
    }
}

short sim_file_ready(const sim_file *file) {
    switch (file->kind) {
    case KIND_STREAM: return sim_stream_ready(file->stream);
    case KIND_LISTENER: return file->backlog != NULL ? POLLIN : 0;
    case KIND_EVENT: return (short)(POLLOUT | (file->counter > 0 ? POLLIN : 0));
    case KIND_SOCKET: return POLLOUT | POLLHUP;
    case KIND_DISK: return POLLIN | POLLOUT;
    case KIND_EPOLL: break;
    }
    for (int i = 0; i < file->watched_count; i++) {
        const sim_file *one = files[file->watched[i].fd - SIM_FD];
        if (one != NULL && (sim_file_ready(one) & ~POLLOUT) != 0) {
            return POLLIN;
        }
    }
    return 0;
}

static int look_at_polls(struct pollfd *polls, nfds_t count) {
    int found = 0;
    for (nfds_t i = 0; i < count; i++) {
        polls[i].revents = 0;
        const sim_file *file = polls[i].fd < 0 ? NULL : sim_file_of(polls[i].fd);
        if (file != NULL) {
            polls[i].revents =
                (short)(sim_file_ready(file) & (polls[i].events | POLLERR | POLLHUP));
        }
        found += polls[i].revents != 0;
    }
    return found;
}

static int poll_until(struct pollfd *polls, nfds_t count, int64_t until) {
    for (;;) {
        int found = look_at_polls(polls, count);
        if (found > 0 || sim.now >= until || sim.over) {
            return found;
        }
        sim.current->polls = polls;
        sim.current->poll_count = (int)count;
        sim_block(SIM_POLL, NULL, until);
        sim.current->poll_count = 0;
    }
}

WRAP(int, poll, (struct pollfd * polls, nfds_t count, int milliseconds)) {
    if (sim.current == NULL) {
        return __real_poll(polls, count, milliseconds);
    }
    sim_enter();
    return poll_until(polls, count,
                      milliseconds < 0 ? SIM_NEVER : sim.now + (int64_t)milliseconds * 1000000);
}

WRAP(int, epoll_create1, (int flags)) {
    (void)flags;
    sim_enter();
    return sim_file_new(KIND_EPOLL, 0)->fd;
}

WRAP(int, epoll_ctl, (int epoll, int operation, int fd, struct epoll_event *event)) {
    sim_file *e = sim_file_of(epoll);
    stop_watching(e, fd);
    if (operation == EPOLL_CTL_ADD) {
        if (e->watched_count == 128) {
            sim_fail("more than 128 descriptors in an epoll");
            errno = ENOSPC;
            return -1;
        }
        e->watched[e->watched_count].fd = fd;
        e->watched[e->watched_count++].data = event->data.u64;
    }
    return 0;
}

WRAP(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int milliseconds)) {
    sim_enter();
    struct pollfd wait = {.fd = epoll, .events = POLLIN};
    poll_until(&wait, 1, milliseconds < 0 ? SIM_NEVER : sim.now + (int64_t)milliseconds * 1000000);
    const sim_file *e = sim_file_of(epoll);
    int found = 0;
    for (int i = 0; i < e->watched_count && found < most; i++) {
        const sim_file *file = files[e->watched[i].fd - SIM_FD];
        short ready = file == NULL ? 0 : (short)(sim_file_ready(file) & ~POLLOUT);
        if (ready != 0) {
            events[found].events = (uint32_t)ready; /* EPOLLIN is POLLIN, and so on */
            events[found++].data.u64 = e->watched[i].data;
        }
    }
    return found;
}

WRAP(int, eventfd, (unsigned value, int flags)) {
    sim_enter();
    sim_file *file = sim_file_new(KIND_EVENT, flags & EFD_NONBLOCK ? O_NONBLOCK : 0);
    file->counter = value;
    return file->fd;
}

/* ---- calls of all kinds ---------------------------------------------------------------------- */

WRAP(ssize_t, read, (int fd, void *data, size_t bytes)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_read(fd, data, bytes);
    }
    sim_enter();
    sim_file *file = sim_file_of(fd);
    if (file == NULL) {
        return -1;
    }
    if (file->kind == KIND_STREAM) {
        return sim_stream_read(file, data, bytes, 0);
    }
    if (file->kind == KIND_DISK) {
        return sim_disk_read(file, data, bytes, -1);
    }
    if (file->counter == 0) {
        errno = EAGAIN;
        return -1;
    }
    *(uint64_t *)data = file->counter;
    file->counter = 0;
    return sizeof file->counter;
}

WRAP(ssize_t, write, (int fd, const void *data, size_t bytes)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_write(fd, data, bytes);
    }
    sim_enter();
    sim_file *file = sim_file_of(fd);
    if (file == NULL) {
        return -1;
    }
    if (file->kind == KIND_STREAM) {
        return sim_stream_write(file, data, bytes, 0);
    }
    if (file->kind == KIND_DISK) {
        return sim_disk_write(file, data, bytes, -1);
    }
    file->counter += *(const uint64_t *)data;
    sim_file_changed(file);
    return sizeof file->counter;
}

WRAP(int, close, (int fd)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_close(fd);
    }
    sim_enter();
    sim_file *file = sim_file_of(fd);
    if (file == NULL) {
        return -1;
    }
    sim_file_close(file);
    return 0;
}

WRAP(int, fcntl, (int fd, int command, ...)) {
    va_list args;
    va_start(args, command);
    long value = va_arg(args, long);
    va_end(args);
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_fcntl(fd, command, value);
    }
    sim_file *file = sim_file_of(fd);
    if (command == F_SETFL) {
        file->flags = (int)value;
    }
    return command == F_GETFL ? file->flags : 0;
}
