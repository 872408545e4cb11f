/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files, and the SIGBUS handler that keeps the process alive when a mapped file becomes
 * shorter than its mapping (base/mapping.h has the life of a mapping).
 *
 * The handler looks its address up in a table of regions. A region is a slot that is written under
 * a lock and read without one: slots live in chunks that are never freed, so that a handler can
 * walk them at any time. The handler calls nothing but mmap, which is a plain system call. */
#include "base/mapping.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Regions of a chunk; a chunk more is made when all are used. */
enum { REGIONS_IN_CHUNK = 256 };

/* Addresses of one mapping, from the first page to the end of the last; begin 0: the slot is
 * free. */
typedef struct region {
    atomic_uintptr_t begin, end;
    atomic_bool lost; /* a page had no content */
} region;

/* A part of the table; the first one is static, so that the handler always finds a table. */
typedef struct chunk {
    region regions[REGIONS_IN_CHUNK];
    _Atomic(struct chunk *) next;
} chunk;

/* A mapping and its place in the table. */
struct trmi_mapped_file {
    region *region;
    dev_t device; /* with the inode: whether the path still names this file */
    ino_t inode;
    char path[];
};

static chunk first_chunk;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous_action;
static uintptr_t page_bytes;
/* Set while a fault is passed on: the other handler may call the one that it replaced, which is
 * this one. */
static _Thread_local volatile sig_atomic_t passing_fault_on
    __attribute__((tls_model("initial-exec")));

/* ---- the handler ---- */

/* Returns the region that contains an address; NULL: none. Safe in a signal handler. */
static region *find_region(uintptr_t address) {
    for (chunk *c = &first_chunk; c != NULL; c = atomic_load(&c->next)) {
        for (int i = 0; i < REGIONS_IN_CHUNK; i++) {
            region *r = &c->regions[i];
            uintptr_t begin = atomic_load(&r->begin);
            if (begin != 0 && address >= begin && address < atomic_load(&r->end)) {
                return r;
            }
        }
    }
    return NULL;
}

/* Replaces the mapping by zeros from the page of the fault to the end, so that the reader continues
 * and then finds the error in trmi_mapping_check(). */
static bool replace_rest(region *r, uintptr_t address) {
    uintptr_t page = address & ~(page_bytes - 1);
    void *at = mmap((void *)page, atomic_load(&r->end) - page, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    atomic_store(&r->lost, true);
    return at != MAP_FAILED;
}

/* Does what would have happened without this handler: calls the previous one, or restores the
 * default. A fault repeats when the handler returns; a signal sent by a process does not, and is
 * raised again. */
static void pass_fault_on(int number, siginfo_t *info, void *context) {
    const struct sigaction *p = &previous_action;
    bool sent = info->si_code <= 0, is_nested = passing_fault_on;
    passing_fault_on = true;
    if (!is_nested && (p->sa_flags & SA_SIGINFO) != 0) {
        p->sa_sigaction(number, info, context);
    } else if (!is_nested && p->sa_handler != SIG_DFL && p->sa_handler != SIG_IGN) {
        p->sa_handler(number);
    } else if (is_nested || p->sa_handler == SIG_DFL || !sent) {
        signal(number, SIG_DFL);
        if (sent) {
            raise(number);
        }
    }
    passing_fault_on = false;
}

/* Handles SIGBUS: replaces pages of mapped files, passes all other faults on. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
    int saved = errno;
    region *r = info->si_code > 0 ? find_region((uintptr_t)info->si_addr) : NULL;
    bool replaced = r != NULL && replace_rest(r, (uintptr_t)info->si_addr);
    errno = saved;
    if (!replaced) {
        pass_fault_on(number, info, context);
    }
}

/* Installs the handler unless it is installed. Called for each mapping, because the program may
 * have set another handler since. */
static void install_handler(void) {
    struct sigaction current;
    pthread_mutex_lock(&table_lock);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, NULL, &current);
    if ((current.sa_flags & SA_SIGINFO) == 0 || current.sa_sigaction != on_bus_error) {
        previous_action = current;
        struct sigaction action = {.sa_sigaction = on_bus_error,
                                   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, NULL);
    }
    pthread_mutex_unlock(&table_lock);
}

/* ---- the table ---- */

/* Returns a free slot of the table, which the caller has locked; NULL: no memory. */
static region *find_free_slot(void) {
    for (chunk *c = &first_chunk;; c = atomic_load(&c->next)) {
        for (int i = 0; i < REGIONS_IN_CHUNK; i++) {
            if (atomic_load(&c->regions[i].begin) == 0) {
                return &c->regions[i];
            }
        }
        if (atomic_load(&c->next) == NULL) {
            chunk *more = trmi_alloc(sizeof *more);
            if (more == NULL) {
                return NULL;
            }
            atomic_store(&c->next, more);
        }
    }
}

/* Registers a mapping; NULL: no memory. `begin` is written last: from then on the handler sees it.
 */
static region *add_region(const void *data, size_t bytes) {
    uintptr_t begin = (uintptr_t)data;
    pthread_mutex_lock(&table_lock);
    region *r = find_free_slot();
    if (r != NULL) {
        atomic_store(&r->lost, false);
        atomic_store(&r->end, (begin + bytes + page_bytes - 1) & ~(page_bytes - 1));
        atomic_store(&r->begin, begin);
    }
    pthread_mutex_unlock(&table_lock);
    return r;
}

/* ---- mappings ---- */

/* Maps an open file and registers it. */
static trm_status map_open_file(int fd, const char *path, int64_t bytes, trmi_mapping *out,
                                trm_error *err) {
    struct stat info;
    size_t name_bytes = strlen(path) + 1;
    if (fstat(fd, &info) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot read its size", path);
    }
    trmi_mapped_file *file = trmi_alloc(sizeof *file + name_bytes);
    if (file == NULL) {
        return TRMI_NO_MEMORY(err, "to map %s", path);
    }
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        trmi_free(file);
        return TRMI_FAIL_SYS(err, "%s: cannot map", path);
    }
    /* Device and inode tell later whether the path still names this file (trmi_mapping_check). The
     * region is registered for the handler of SIGBUS. */
    memcpy(file->path, path, name_bytes);
    file->device = info.st_dev;
    file->inode = info.st_ino;
    file->region = add_region(data, (size_t)bytes);
    if (file->region == NULL) {
        munmap(data, (size_t)bytes);
        trmi_free(file);
        return TRMI_NO_MEMORY(err, "to map %s", path);
    }
    *out = (trmi_mapping){.data = data, .bytes = (size_t)bytes, .file = file};
    return TRM_OK;
}

trm_status trmi_mapping_open(const char *path, trmi_mapping *out, trm_error *err) {
    *out = (trmi_mapping){0};
    int fd;
    int64_t bytes;
    TRMI_TRY(trmi_os_open_regular(path, &fd, &bytes, err));
    install_handler();
    trm_status status = bytes > 0 ? map_open_file(fd, path, bytes, out, err) : TRM_OK;
    close(fd);
    return status;
}

/* Contract in mapping.h. A file that became shorter explains a failure better than what the reader
 * found in its missing pages. */
trm_status trmi_mapping_check(const trmi_mapping *mapping, trm_status status, trm_error *err) {
    const trmi_mapped_file *file = mapping->file;
    struct stat info;
    if (file == NULL) {
        return status;
    }
    /* if the path names another file now, its size is of no interest */
    bool known =
        stat(file->path, &info) == 0 && info.st_dev == file->device && info.st_ino == file->inode;
    if (known && info.st_size < (off_t)mapping->bytes) {
        return TRMI_FAIL(
            err, TRM_IO,
            "%s: the file became shorter while it was read (found %lld bytes, expected "
            "%zu); restore it, then run again",
            file->path, (long long)info.st_size, mapping->bytes);
    }
    if (atomic_load(&file->region->lost)) {
        return TRMI_FAIL(
            err, TRM_IO,
            "%s: a part of its %zu bytes could not be read: it was shortened for a while, "
            "or its disk failed; run again",
            file->path, mapping->bytes);
    }
    return status;
}

void trmi_mapping_close(trmi_mapping *mapping) {
    if (mapping->file != NULL) {
        atomic_store(&mapping->file->region->begin, 0);
        munmap((void *)(uintptr_t)mapping->data, mapping->bytes);
        trmi_free(mapping->file);
    }
    *mapping = (trmi_mapping){0};
}
