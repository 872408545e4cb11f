/* SPDX-License-Identifier: Apache-2.0 */
/* The disk of the simulator (sim.h): one file system that all hosts see, in memory.
 *
 *   inode    content, and what undoes each write since its last fsync
 *   changes  names added and removed since the last fsync of their directory, in order
 *
 * A power cut of a host keeps a prefix of its changes of names, and of each file that it wrote a
 * prefix of its writes, of which the last is torn. Where its disk has lied, bytes within a write
 * may be others, too. */
#include "sim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define WRAP(result, name, parameters)                                                             \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters

/* The record that undoes a write or a truncation: the length before, and the bytes that it
 * replaced. */
typedef struct undo {
    struct undo *before;
    size_t offset, bytes, size; /* of the write; length of the file before */
    size_t old_bytes;
    uint8_t old[];
} undo;

typedef struct entry {
    char *name;
    sim_inode *inode;
} entry;

struct sim_inode {
    sim_inode *next; /* all inodes */
    int number, host;
    bool is_dir;
    const sim_file *locked; /* the file that has its lock (flock); NULL: none */
    int64_t changed;        /* by the clock of the file system, which is that of no host */
    uint8_t *data;
    size_t size, room;
    undo *undos;
    entry *entries;
    int entry_count, entry_room;
};

typedef struct change {
    struct change *before;
    int host;
    uint64_t group; /* of one rename */
    bool added;
    sim_inode *dir, *inode;
    char name[];
} change;

static sim_inode *inodes, *root;
static change *changes;
static int inode_count;
static uint64_t group_count;

/* ---- names ----------------------------------------------------------------------------------- */

static int64_t disk_now(void) { return sim.now + 1700000000 * SIM_SECOND; }

static sim_inode *make_inode(bool is_dir) {
    sim_inode *i = calloc(1, sizeof *i);
    *i = (sim_inode){.next = inodes, .number = ++inode_count, .is_dir = is_dir};
    i->changed = disk_now();
    inodes = i;
    return i;
}

static entry *find_entry(const sim_inode *dir, const char *name) {
    for (int i = 0; i < dir->entry_count; i++) {
        if (strcmp(dir->entries[i].name, name) == 0) {
            return &dir->entries[i];
        }
    }
    return NULL;
}

static void set_name(sim_inode *dir, const char *name, sim_inode *inode) {
    if (dir->entry_count == dir->entry_room) {
        dir->entry_room = 2 * dir->entry_room + 8;
        dir->entries = realloc(dir->entries, (size_t)dir->entry_room * sizeof *dir->entries);
    }
    dir->entries[dir->entry_count++] = (entry){strdup(name), inode};
}

static void drop_name(sim_inode *dir, const char *name) {
    entry *e = find_entry(dir, name);
    if (e != NULL) {
        free(e->name);
        *e = dir->entries[--dir->entry_count];
    }
}

static void remember_entry(uint64_t group, bool added, sim_inode *dir, const char *name,
                           sim_inode *inode) {
    change *c = malloc(sizeof *c + strlen(name) + 1);
    *c = (change){.before = changes,
                  .host = sim.current == NULL ? 0 : sim.current->process->host,
                  .group = group,
                  .added = added,
                  .dir = dir,
                  .inode = inode};
    memcpy(c->name, name, strlen(name) + 1);
    changes = c;
}

static void add_name(uint64_t group, sim_inode *dir, const char *name, sim_inode *inode) {
    set_name(dir, name, inode);
    remember_entry(group, true, dir, name, inode);
}

static void remove_name(uint64_t group, sim_inode *dir, const char *name, sim_inode *inode) {
    remember_entry(group, false, dir, name, inode);
    drop_name(dir, name);
}

/* Finds the directory of a path, and the last name. Returns NULL with errno. */
static sim_inode *find_parent(const char *path, char name[256]) {
    if (root == NULL) {
        root = make_inode(true);
        set_name(root, "tmp", make_inode(true));
    }
    sim_inode *at = root;
    name[0] = '\0';
    for (const char *p = path; *p != '\0';) {
        p += strspn(p, "/");
        size_t length = strcspn(p, "/");
        if (length == 0) {
            break;
        }
        if (name[0] != '\0') {
            const entry *e = strcmp(name, ".") == 0 ? NULL : find_entry(at, name);
            if (e == NULL || !e->inode->is_dir) {
                errno = e == NULL ? ENOENT : ENOTDIR;
                return NULL;
            }
            at = e->inode;
        }
        if (length > 255) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        memcpy(name, p, length);
        name[length] = '\0';
        p += length;
    }
    return at;
}

static sim_inode *find_inode(const char *path) {
    char name[256];
    sim_inode *dir = find_parent(path, name);
    if (dir == NULL) {
        return NULL;
    }
    const entry *e = name[0] == '\0' ? NULL : find_entry(dir, name);
    errno = ENOENT;
    return name[0] == '\0' ? root : e == NULL ? NULL : e->inode;
}

/* Returns whether a call fails, because the disk of the host does not answer as it should. */
static bool call_fails(void) {
    const bool fails =
        sim.hosts[sim.current->process->host].disk_fails && sim_random(DRAW_TOOLS, 2) == 0;
    errno = fails ? EIO : errno;
    return fails;
}

/* ---- content --------------------------------------------------------------------------------- */

static void resize_file(sim_inode *i, size_t size) {
    if (size > i->room) {
        i->room = 2 * size + 256;
        i->data = realloc(i->data, i->room);
    }
    if (size > i->size) {
        memset(i->data + i->size, 0, size - i->size);
    }
    i->size = size;
}

/* Keeps what [offset, offset + bytes) was, before it changes. */
static void keep_old(sim_inode *i, size_t offset, size_t bytes, size_t old_bytes) {
    undo *last = i->undos;
    i->host = sim.current->process->host;
    i->changed = disk_now();
    if (last != NULL && old_bytes == 0 && last->old_bytes == 0 && bytes > 0 &&
        last->offset + last->bytes == offset && offset == i->size) {
        last->bytes += bytes; /* goes on where the last write ended */
        return;
    }
    undo *u = malloc(sizeof *u + old_bytes);
    *u = (undo){i->undos, offset, bytes, i->size, old_bytes};
    if (old_bytes > 0) {
        memcpy(u->old, i->data + offset, old_bytes);
    }
    i->undos = u;
}

static void truncate_inode(sim_inode *i, size_t size) {
    if (size < i->size) {
        keep_old(i, size, 0, i->size - size);
    } else if (size > i->size) {
        keep_old(i, i->size, size - i->size, 0);
    }
    resize_file(i, size);
}

ssize_t sim_disk_write(sim_file *file, const void *data, size_t bytes, int64_t at) {
    sim_inode *i = file->inode;
    size_t offset = at >= 0 ? (size_t)at : (file->flags & O_APPEND) != 0 ? i->size : file->offset;
    const sim_host *host = &sim.hosts[file->owner->host];
    if (call_fails()) {
        return -1;
    }
    if (host->disk_full && offset + bytes > i->size) {
        bytes = bytes / 2; /* a part still fits now and then */
        if (bytes == 0 || sim_random(DRAW_DISK, 2) == 0) {
            errno = ENOSPC;
            return -1;
        }
    }
    size_t old = offset >= i->size ? 0 : i->size - offset < bytes ? i->size - offset : bytes;
    keep_old(i, offset, bytes, old);
    if (offset + bytes > i->size) {
        resize_file(i, offset + bytes);
    }
    memcpy(i->data + offset, data, bytes);
    if (at < 0) {
        file->offset = offset + bytes;
    }
    return (ssize_t)bytes;
}

ssize_t sim_disk_read(sim_file *file, void *data, size_t bytes, int64_t at) {
    const sim_inode *i = file->inode;
    size_t offset = at >= 0 ? (size_t)at : file->offset;
    if (i->is_dir) {
        errno = EISDIR;
        return -1;
    }
    size_t left = offset >= i->size ? 0 : i->size - offset, got = bytes < left ? bytes : left;
    if (got > 0) {
        memcpy(data, i->data + offset, got);
    }
    if (at < 0) {
        file->offset += got;
    }
    return (ssize_t)got;
}

/* ---- flush, power cut ------------------------------------------------------------------------ */

static void forget_undos(sim_inode *i) {
    while (i->undos != NULL) {
        undo *u = i->undos;
        i->undos = u->before;
        free(u);
    }
}

static bool is_settled(uint64_t group, const uint64_t *groups, int count) {
    for (int i = 0; i < count; i++) {
        if (groups[i] == group) {
            return true;
        }
    }
    return false;
}

/* Makes the names of a directory durable; a rename is durable as a whole. */
static void settle_names(const sim_inode *dir) {
    uint64_t groups[4096];
    int count = 0;
    for (const change *c = changes; c != NULL; c = c->before) {
        if (c->dir == dir && count < 4096) {
            groups[count++] = c->group;
        }
    }
    for (change **at = &changes; *at != NULL;) {
        change *c = *at;
        if (is_settled(c->group, groups, count)) {
            *at = c->before;
            free(c);
        } else {
            at = &c->before;
        }
    }
}

static int flush_file(int fd) {
    sim_enter();
    sim_file *file = sim_file_of(fd);
    if (file == NULL || file->kind != KIND_DISK) {
        return -1;
    }
    sim_inode *i = file->inode;
    const sim_process *p = file->owner;
    sim_block(SIM_SLEEPS, NULL, sim.now + 20000 + (int64_t)sim_random(DRAW_DISK, 400000));
    sim_trace(p, "fsync of inode %d, %zu bytes%s", i->number, i->size,
              sim.hosts[p->host].disk_lies ? ", which lies" : "");
    if (call_fails()) {
        return -1;
    }
    if (!sim.hosts[p->host].disk_lies) {
        forget_undos(i);
        if (i->is_dir) {
            settle_names(i);
        }
    }
    return 0;
}

/* Takes back writes of a file from a random one on; a part of that one stays. */
static void lose_writes(sim_inode *i) {
    int count = 0;
    for (undo *u = i->undos; u != NULL; u = u->before) {
        count++;
    }
    int lost = (int)sim_random(DRAW_DISK, (uint64_t)count + 1);
    for (int k = 0; k < lost; k++) {
        undo *u = i->undos;
        i->undos = u->before;
        size_t torn = k == lost - 1 && u->bytes > 0 ? sim_random(DRAW_DISK, u->bytes + 1) : 0;
        bool zeros = sim_random(DRAW_DISK, 4) == 0; /* the length is there, the content is not */
        uint8_t *stays = malloc(torn + 1);
        size_t there = u->offset >= i->size ? 0 : i->size - u->offset;
        torn = torn < there ? torn : there;
        memcpy(stays, i->data + u->offset, torn);
        resize_file(i, u->size);
        memcpy(i->data + u->offset, u->old, u->old_bytes);
        if (torn > 0) {
            resize_file(i, u->offset + torn > i->size ? u->offset + torn : i->size);
            if (!zeros || u->old_bytes > 0) {
                memcpy(i->data + u->offset, stays, torn);
            }
        }
        free(stays);
        free(u);
    }
    forget_undos(i);
    sim_trace(NULL, "inode %d keeps %zu bytes, %d of %d writes lost", i->number, i->size, lost,
              count);
}

/* Damages a few bytes of a write: the disk has not written all of its sectors. Files are small
 * here, and so are sectors. */
static void damage_write(const sim_inode *i) {
    const undo *u = i->undos;
    for (uint64_t seen = 1; u->before != NULL && sim_random(DRAW_LIES, ++seen) != 0;) {
        u = u->before;
    }
    const size_t end = u->offset + u->bytes < i->size ? u->offset + u->bytes : i->size;
    if (u->offset >= end) {
        return; /* a truncation */
    }
    const size_t at = u->offset + sim_random(DRAW_LIES, end - u->offset);
    const size_t bytes = 1 + sim_random(DRAW_LIES, 64);
    const bool zeros = sim_random(DRAW_LIES, 4) == 0;
    for (size_t k = at; k < end && k < at + bytes; k++) {
        i->data[k] = zeros ? 0 : (uint8_t)sim_random(DRAW_LIES, 256);
    }
    sim_trace(NULL, "inode %d: %zu bytes at %zu are %s", i->number, bytes, at,
              zeros ? "zeros" : "of another file");
}

void sim_disk_damage(int host) {
    for (sim_inode *i = inodes; i != NULL; i = i->next) {
        if (i->undos != NULL && i->host == host && !i->is_dir && sim_random(DRAW_LIES, 2) == 0) {
            damage_write(i);
        }
    }
}

void sim_disk_lose(int host) {
    uint64_t first = group_count + 1, seen = 0;
    for (const change *c = changes; c != NULL; c = c->before) {
        if (c->host == host && sim_random(DRAW_DISK, ++seen + 1) == 0) {
            first = c->group;
        }
    }
    for (change **at = &changes; *at != NULL;) {
        change *c = *at;
        if (c->host != host) {
            at = &c->before;
            continue;
        }
        entry *e = find_entry(c->dir, c->name);
        if (c->group >= first && c->added && e != NULL && e->inode == c->inode) {
            drop_name(c->dir, c->name);
        } else if (c->group >= first && !c->added && e == NULL) {
            set_name(c->dir, c->name, c->inode);
        }
        *at = c->before;
        free(c);
    }
    for (sim_inode *i = inodes; i != NULL; i = i->next) {
        if (i->undos != NULL && i->host == host) {
            lose_writes(i);
        }
    }
}

int sim_disk_newest_inode(void) { return inode_count; }

/* ---- calls ----------------------------------------------------------------------------------- */

/* Returns whether a path is for the simulated disk, and begins the call. */
static bool enter_path(void) {
    if (sim.current == NULL) {
        return false;
    }
    sim_enter();
    return true;
}

static int open_file(const char *path, int flags) {
    char name[256];
    sim_inode *dir = find_parent(path, name), *i = NULL;
    if (dir == NULL || call_fails()) {
        return -1;
    }
    const entry *e = name[0] == '\0' ? NULL : find_entry(dir, name);
    i = name[0] == '\0' ? root : e == NULL ? NULL : e->inode;
    if (i == NULL && (flags & O_CREAT) == 0) {
        errno = ENOENT;
        return -1;
    }
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (i != NULL && ((flags & O_CREAT && flags & O_EXCL) || (i->is_dir && writes) ||
                      (!i->is_dir && flags & O_DIRECTORY))) {
        errno = i->is_dir && writes ? EISDIR : flags & O_DIRECTORY ? ENOTDIR : EEXIST;
        return -1;
    }
    if (i == NULL) {
        i = make_inode(false);
        add_name(++group_count, dir, name, i);
        sim_trace(sim.current->process, "creates %s, inode %d", path, i->number);
    } else if ((flags & O_TRUNC) != 0) {
        truncate_inode(i, 0);
    }
    sim_file *file = sim_file_new(KIND_DISK, flags);
    file->inode = i;
    return file->fd;
}

WRAP(int, open, (const char *path, int flags, ...)) {
    if (!enter_path()) {
        va_list args;
        va_start(args, flags);
        int mode = (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
        va_end(args);
        return __real_open(path, flags, mode);
    }
    return open_file(path, flags);
}

WRAP(off_t, lseek, (int fd, off_t offset, int from)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_lseek(fd, offset, from);
    }
    sim_file *file = sim_file_of(fd);
    const off_t begin = from == SEEK_SET   ? 0
                        : from == SEEK_CUR ? (off_t)file->offset
                                           : (off_t)file->inode->size;
    file->offset = (size_t)(begin + offset);
    return begin + offset;
}

WRAP(int, mkstemp, (char *path)) {
    enter_path();
    for (int i = 0, n = inode_count + 1; i < 6; i++, n /= 10) {
        path[strlen(path) - 1 - (size_t)i] = (char)(0x30 + n % 10);
    }
    return open_file(path, O_RDWR | O_CREAT | O_EXCL);
}

/* Exclusive locks, for which no caller waits. */
WRAP(int, flock, (int fd, int operation)) {
    if (sim.current == NULL) {
        return __real_flock(fd, operation);
    }
    const sim_file *file = sim_file_of(fd);
    if (file->inode->locked != NULL && file->inode->locked != file) {
        errno = EWOULDBLOCK;
        return -1;
    }
    file->inode->locked = file;
    return 0;
}

void sim_disk_close(sim_file *file) {
    if (file->inode->locked == file) {
        file->inode->locked = NULL;
    }
}

int sim_disk_make_socket(const char *path) {
    char name[256];
    sim_inode *dir = find_parent(path, name);
    if (dir == NULL || find_entry(dir, name) != NULL) {
        errno = dir == NULL ? errno : EADDRINUSE;
        return 0;
    }
    sim_inode *i = make_inode(false);
    add_name(++group_count, dir, name, i);
    return i->number;
}

int sim_disk_inode(const char *path) {
    const sim_inode *i = find_inode(path);
    return i == NULL ? 0 : i->number;
}

WRAP(int, chmod, (const char *path, mode_t mode)) {
    return !enter_path() ? __real_chmod(path, mode) : find_inode(path) != NULL ? 0 : -1;
}

WRAP(int, fsync, (int fd)) { return sim.current == NULL ? __real_fsync(fd) : flush_file(fd); }
WRAP(int, fdatasync, (int fd)) {
    return sim.current == NULL ? __real_fdatasync(fd) : flush_file(fd);
}

WRAP(ssize_t, pread, (int fd, void *data, size_t bytes, off_t offset)) {
    sim_enter();
    sim_file *file = sim_file_of(fd);
    return file == NULL ? -1 : sim_disk_read(file, data, bytes, offset);
}
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t offset)) {
    sim_enter();
    sim_file *file = sim_file_of(fd);
    return file == NULL ? -1 : sim_disk_write(file, data, bytes, offset);
}
WRAP(int, ftruncate, (int fd, off_t size)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_ftruncate(fd, size);
    }
    sim_enter();
    if (call_fails()) {
        return -1;
    }
    truncate_inode(sim_file_of(fd)->inode, (size_t)size);
    return 0;
}
WRAP(int, truncate, (const char *path, off_t size)) {
    enter_path();
    sim_inode *i = find_inode(path);
    if (i == NULL || call_fails()) {
        return -1;
    }
    truncate_inode(i, (size_t)size);
    return 0;
}

static int fill_stat(const sim_inode *i, struct stat *out) {
    if (i == NULL) {
        return -1;
    }
    *out = (struct stat){.st_dev = 1,
                         .st_ino = (ino_t)i->number,
                         .st_mode = i->is_dir ? S_IFDIR | 0700 : S_IFREG | 0600,
                         .st_nlink = 1,
                         .st_uid = geteuid(),
                         .st_size = (off_t)i->size,
                         .st_blksize = 4096,
                         .st_blocks = (blkcnt_t)(i->size + 511) / 512};
    out->st_mtim.tv_sec = i->changed / SIM_SECOND;
    out->st_mtim.tv_nsec = i->changed % SIM_SECOND;
    out->st_ctim = out->st_atim = out->st_mtim;
    return 0;
}
WRAP(int, stat, (const char *path, struct stat *out)) {
    return enter_path() ? fill_stat(find_inode(path), out) : __real_stat(path, out);
}
WRAP(int, lstat, (const char *path, struct stat *out)) {
    return enter_path() ? fill_stat(find_inode(path), out) : __real_lstat(path, out);
}
WRAP(int, fstat, (int fd, struct stat *out)) {
    return sim.current == NULL || !sim_is_simulated(fd) ? __real_fstat(fd, out)
                                                        : fill_stat(sim_file_of(fd)->inode, out);
}
WRAP(int, access, (const char *path, int mode)) {
    return !enter_path() ? __real_access(path, mode) : find_inode(path) != NULL ? 0 : -1;
}

WRAP(int, mkdir, (const char *path, mode_t mode)) {
    if (!enter_path()) {
        return __real_mkdir(path, mode);
    }
    char name[256];
    sim_inode *dir = find_parent(path, name);
    if (dir == NULL || name[0] == '\0' || find_entry(dir, name) != NULL) {
        errno = dir == NULL ? errno : EEXIST;
        return -1;
    }
    if (call_fails()) {
        return -1;
    }
    add_name(++group_count, dir, name, make_inode(true));
    return 0;
}

static int remove_path(const char *path, bool is_dir) {
    char name[256];
    sim_inode *dir = find_parent(path, name);
    const entry *e = dir == NULL ? NULL : find_entry(dir, name);
    if (e == NULL || e->inode->is_dir != is_dir || (is_dir && e->inode->entry_count > 0)) {
        errno = e == NULL                    ? ENOENT
                : e->inode->is_dir == is_dir ? ENOTEMPTY
                : is_dir                     ? ENOTDIR
                                             : EISDIR;
        return -1;
    }
    if (call_fails()) {
        return -1;
    }
    remove_name(++group_count, dir, name, e->inode);
    return 0;
}
WRAP(int, unlink, (const char *path)) {
    return enter_path() ? remove_path(path, false) : __real_unlink(path);
}
WRAP(int, rmdir, (const char *path)) {
    return enter_path() ? remove_path(path, true) : __real_rmdir(path);
}

WRAP(int, rename, (const char *from, const char *to)) {
    if (!enter_path()) {
        return __real_rename(from, to);
    }
    char name[256], new_name[256];
    sim_inode *dir = find_parent(from, name), *new_dir = find_parent(to, new_name);
    const entry *e = dir == NULL ? NULL : find_entry(dir, name);
    if (e == NULL || new_dir == NULL) {
        errno = ENOENT;
        return -1;
    }
    if (call_fails()) {
        return -1;
    }
    sim_inode *moved = e->inode;
    const entry *old = find_entry(new_dir, new_name);
    if (old != NULL && (old->inode->is_dir != moved->is_dir || old->inode->entry_count > 0)) {
        errno = old->inode->is_dir ? ENOTEMPTY : ENOTDIR;
        return -1;
    }
    uint64_t group = ++group_count;
    if (old != NULL) {
        remove_name(group, new_dir, new_name, old->inode);
    }
    remove_name(group, dir, name, moved);
    add_name(group, new_dir, new_name, moved);
    sim_trace(sim.current->process, "renames %s to %s", from, to);
    return 0;
}
WRAP(int, link, (const char *from, const char *to)) {
    enter_path();
    char name[256];
    sim_inode *i = find_inode(from), *dir = find_parent(to, name);
    if (i == NULL || dir == NULL || find_entry(dir, name) != NULL) {
        errno = i == NULL || dir == NULL ? ENOENT : EEXIST;
        return -1;
    }
    add_name(++group_count, dir, name, i);
    return 0;
}

/* A listing: the names as they were when it began. */
typedef struct listing {
    int count, at;     /* names; the next one that readdir returns */
    struct dirent one; /* returned by readdir */
    char names[][256];
} listing;

WRAP(DIR *, opendir, (const char *path)) {
    if (!enter_path()) {
        return __real_opendir(path);
    }
    const sim_inode *dir = find_inode(path);
    if (dir == NULL || !dir->is_dir) {
        errno = dir == NULL ? ENOENT : ENOTDIR;
        return NULL;
    }
    if (call_fails()) {
        return NULL;
    }
    listing *l = calloc(1, sizeof *l + (size_t)dir->entry_count * 256);
    l->count = dir->entry_count;
    for (int i = 0; i < l->count; i++) {
        snprintf(l->names[i], 256, "%s", dir->entries[i].name);
    }
    return (DIR *)l;
}
WRAP(struct dirent *, readdir, (DIR * dir)) {
    if (sim.current == NULL) {
        return __real_readdir(dir);
    }
    listing *l = (listing *)dir;
    if (l->at == l->count) {
        return NULL;
    }
    snprintf(l->one.d_name, sizeof l->one.d_name, "%s", l->names[l->at++]);
    return &l->one;
}
WRAP(int, closedir, (DIR * dir)) {
    if (sim.current == NULL) {
        return __real_closedir(dir);
    }
    free(dir);
    return 0;
}

static FILE *open_text(const void *data, size_t bytes) {
    FILE *file = fmemopen(NULL, bytes + 1, "w+"); /* ends behind what is written */
    fwrite(data, 1, bytes, file);
    rewind(file);
    return file;
}

/* Opens what the kernel tells of this boot of the host and of its processes; NULL: another path, or
 * no such process. */
static FILE *open_proc(const char *path) {
    char text[128] = "";
    int pid, host = sim.current->process->host;
    if (strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
        snprintf(text, sizeof text, "host%d-boot%d", host, sim.hosts[host].boots);
    } else if (sscanf(path, "/proc/%d/stat", &pid) == 1) {
        const sim_process *p = sim_find(pid);
        if (p != NULL && p->host == host) { /* a pid is used once: it is the start time, too */
            snprintf(text, sizeof text, "%d (%s) %c 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %d ", pid,
                     p->name, p->paused_until > sim.now ? 'T' : 'S', pid);
        }
    }
    return text[0] == '\0' ? NULL : open_text(text, strlen(text));
}

WRAP(FILE *, fopen, (const char *path, const char *mode)) {
    if (!enter_path()) {
        return __real_fopen(path, mode);
    }
    if (strncmp(path, "/proc/", 6) == 0) {
        return open_proc(path);
    }
    const sim_inode *i = find_inode(path);
    if (mode[0] != 'r') {
        sim_fail("fopen of %s for writing is not simulated", path);
    }
    if (i == NULL || i->is_dir || mode[0] != 'r') {
        return NULL;
    }
    return open_text(i->data, i->size);
}

WRAP(ssize_t, readlink, (const char *path, char *text, size_t bytes)) {
    if (sim.current == NULL) {
        return __real_readlink(path, text, bytes);
    }
    if (strcmp(path, "/proc/self/ns/pid") != 0) {
        errno = ENOENT;
        return -1;
    }
    return snprintf(text, bytes, "pid:[1]");
}

/* jansson opens files by itself. */
WRAP(json_t *, json_load_file, (const char *path, size_t flags, json_error_t *problem)) {
    if (!enter_path()) {
        return __real_json_load_file(path, flags, problem);
    }
    const sim_inode *i = find_inode(path);
    return i == NULL ? NULL : json_loadb((const char *)i->data, i->size, flags, problem);
}

WRAP(int, utimensat, (int dir, const char *path, const struct timespec times[2], int flags)) {
    if (!enter_path()) {
        return __real_utimensat(dir, path, times, flags);
    }
    sim_inode *i = find_inode(path);
    if (i != NULL) {
        i->changed = disk_now();
    }
    return i == NULL ? -1 : 0;
}

/* A full disk does not always say so before a write fails. */
WRAP(int, statvfs, (const char *path, struct statvfs *out)) {
    if (!enter_path()) {
        return __real_statvfs(path, out);
    }
    bool full = sim.hosts[sim.current->process->host].disk_full && sim_random(DRAW_SAVES, 2) == 0;
    *out = (struct statvfs){.f_frsize = 4096, .f_bsize = 4096, .f_bavail = full ? 1 : 1 << 20};
    return 0;
}

/* Huge pages would be cleared for each table of each simulated life. */
WRAP(int, madvise, (void *at, size_t bytes, int advice)) {
    return sim.current == NULL ? __real_madvise(at, bytes, advice) : 0;
}

WRAP(void *, mmap, (void *at, size_t bytes, int protection, int flags, int fd, off_t offset)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_mmap(at, bytes, protection, flags, fd, offset);
    }
    sim_enter();
    const sim_file *file = sim_file_of(fd);
    void *memory =
        __real_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t there = (size_t)offset < file->inode->size ? file->inode->size - (size_t)offset : 0;
    memcpy(memory, file->inode->data + offset, there < bytes ? there : bytes);
    return memory;
}
