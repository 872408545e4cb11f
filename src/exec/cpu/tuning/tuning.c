/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning file: which algorithm is fastest for which problem on which machine (tuning.h). One
 * line an entry: machine TAB problem TAB algorithm TAB seconds. Several processes may use a file:
 * each reads it once, and merges its new entries under a lock when it saves. A file that cannot be
 * read or written is never an error of training: choices are then made again. */
#include "exec/cpu/tuning/tuning.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/hash/hash.h"
#include "base/hash/hash_index.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* Increased when the speed of kernels changes, so that older measurements are not used. */
enum { KERNELS = 17 };

/* First line of a file; a file of another version is not read. */
static const char header[] = "trireme tuning 1\n";
/* Bytes of a file and of a field that are read, at most; tries for the lock of a file, and the
 * pause between them. */
enum { FILE_LIMIT = 8 << 20, FIELD_LIMIT = 512, LOCK_TRIES = 200, LOCK_NAP_MS = 5 };

/* A line of the file. */
typedef struct entry {
    const char *machine, *problem, *algorithm; /* in the arena, or the file's own machine */
    double seconds;                            /* of one run of the problem by the algorithm */
} entry;

/* The entries of a file, those of other machines too, since saving writes them all. */
struct trmi_tuning {
    trmi_arena arena;  /* memory of path and entries' texts */
    char *path;        /* NULL: entries are not kept in a file */
    char machine[192]; /* of this process (trmi_tuning_create) */
    entry *entries;    /* [count], owned: all lines, also those of other machines */
    int64_t count, capacity;
    trmi_hash_index by_problem; /* of machine and problem */
    bool added;                 /* entries have changed since the file was read or written */
};

/* Replaces control characters, which would break the lines of the file. */
static void plain_text(char *text) {
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 127) {
            *text = ' ';
        }
    }
}

/* Contract in tuning.h. `machine` is the first column of the file: entries of another CPU,
 * library, instruction set, kernel version or thread count stay in the file and are not used. A
 * file that cannot be read or parsed counts as empty. */
trm_status trmi_tuning_create(const char *path, int threads, const char *library, const char *isa,
                              trmi_tuning **out, trm_error *err) {
    trmi_tuning *t;
    TRMI_TRY(TRMI_NEW(err, t, 1, "for the tuning cache"));
    snprintf(t->machine, sizeof t->machine, "%s %x, %s, %s, kernels %d, threads %d",
             trmi_cpu()->model, trmi_cpu()->signature, library, isa, KERNELS, threads);
    plain_text(t->machine);
    if (path != NULL && path[0] != '\0') {
        t->path = trmi_arena_strdup(&t->arena, path);
        if (t->path == NULL) {
            trmi_tuning_destroy(t);
            return TRMI_NO_MEMORY(err, "for the tuning cache");
        }
        uint8_t *bytes = NULL;
        size_t size = 0;
        if (trmi_os_read_file(t->path, FILE_LIMIT, &bytes, &size, NULL) == TRM_OK) {
            (void)trmi_tuning_parse(t, (const char *)bytes, size);
            trmi_free(bytes);
        }
    }
    *out = t;
    return TRM_OK;
}

void trmi_tuning_destroy(trmi_tuning *t) {
    if (t == NULL) {
        return;
    }
    trmi_arena_free(&t->arena);
    free(t->entries);
    trmi_hash_index_free(&t->by_problem);
    trmi_free(t);
}

bool trmi_tuning_has_file(const trmi_tuning *t) { return t->path != NULL; }
int64_t trmi_tuning_count(const trmi_tuning *t) { return t->count; }

/* Returns the hash by which an entry is found. */
static uint64_t hash_of(const char *machine, const char *problem) {
    uint64_t hash = trmi_hash(TRMI_HASH_BEGIN, machine, strlen(machine));
    return trmi_hash(hash, problem, strlen(problem));
}

/* Returns the entry of a machine and problem; NULL: none. */
static entry *look_up(const trmi_tuning *t, const char *machine, const char *problem) {
    uint64_t hash = hash_of(machine, problem), probe = 0;
    for (;;) {
        int64_t i = trmi_hash_index_next(&t->by_problem, hash, &probe);
        entry *e = i < 0 ? NULL : &t->entries[i];
        if (e == NULL || (strcmp(e->problem, problem) == 0 && strcmp(e->machine, machine) == 0)) {
            return e;
        }
    }
}

bool trmi_tuning_find(const trmi_tuning *t, const char *problem, const char **algorithm,
                      double *seconds) {
    const entry *e = look_up(t, t->machine, problem);
    if (e == NULL) {
        return false;
    }
    *algorithm = e->algorithm;
    *seconds = e->seconds;
    return true;
}

/* Adds or replaces an entry; false: no memory. */
static bool put_entry(trmi_tuning *t, const char *machine, const char *problem,
                      const char *algorithm, double seconds) {
    entry e = {.algorithm = trmi_arena_strdup(&t->arena, algorithm), .seconds = seconds};
    entry *old = look_up(t, machine, problem);
    if (e.algorithm == NULL) {
        return false;
    }
    if (old != NULL) {
        old->algorithm = e.algorithm;
        old->seconds = seconds;
        return true;
    }
    /* Most entries are of this machine and share its text. */
    e.machine =
        strcmp(machine, t->machine) == 0 ? t->machine : trmi_arena_strdup(&t->arena, machine);
    e.problem = trmi_arena_strdup(&t->arena, problem);
    if (e.machine == NULL || e.problem == NULL ||
        !trmi_grow((void **)&t->entries, &t->capacity, t->count + 1, sizeof *t->entries) ||
        !trmi_hash_index_add(&t->by_problem, hash_of(e.machine, e.problem), t->count)) {
        return false;
    }
    t->entries[t->count++] = e;
    return true;
}

void trmi_tuning_add(trmi_tuning *t, const char *problem, const char *algorithm, double seconds) {
    char text[32];
    snprintf(text, sizeof text, "%.3e", seconds);
    seconds = strtod(text, NULL);
    const entry *old = look_up(t, t->machine, problem);
    bool known = old != NULL && old->seconds == seconds && strcmp(old->algorithm, algorithm) == 0;
    if (!known && put_entry(t, t->machine, problem, algorithm, seconds)) {
        t->added = true;
    }
}

/* Copies one field, up to the character `end`, to `out`. Returns false if it is empty, too long or
 * not printable. */
static bool take_field(const char **at, const char *limit, char end, char out[FIELD_LIMIT]) {
    size_t length = 0;
    for (; *at < limit && **at != end; (*at)++) {
        if ((unsigned char)**at < ' ' || length + 1 >= FIELD_LIMIT) {
            return false;
        }
        out[length++] = **at;
    }
    if (*at == limit || length == 0) {
        return false;
    }
    (*at)++;
    out[length] = '\0';
    return true;
}

/* Contract in tuning.h. A line has four fields separated by tabs: machine, problem, algorithm,
 * seconds. Entries before a damaged line stay. */
bool trmi_tuning_parse(trmi_tuning *t, const char *text, size_t bytes) {
    const char *at = text, *limit = text + bytes;
    size_t head = sizeof header - 1;
    if (bytes < head || memcmp(text, header, head) != 0) {
        return false;
    }
    for (at += head; at < limit;) {
        char machine[FIELD_LIMIT], problem[FIELD_LIMIT], algorithm[FIELD_LIMIT],
            number[FIELD_LIMIT];
        if (!take_field(&at, limit, '\t', machine) || !take_field(&at, limit, '\t', problem) ||
            !take_field(&at, limit, '\t', algorithm) || !take_field(&at, limit, '\n', number)) {
            return false;
        }
        char *end = NULL;
        double seconds = strtod(number, &end);
        if (*end != '\0' || !(seconds >= 0 && seconds < 1e6) ||
            !put_entry(t, machine, problem, algorithm, seconds)) {
            return false;
        }
    }
    return true;
}

/* Appends an entry as a line of the file. */
static void write_entry(trmi_text *out, const entry *e) {
    trmi_text_printf(out, "%s\t%s\t%s\t%.3e\n", e->machine, e->problem, e->algorithm, e->seconds);
}

/* Writes the entries that other processes have added to the file since it was read. They are not
 * added to `t`: an algorithm that changed between planning and binding would not fit its
 * scratch. */
static void write_theirs(const trmi_tuning *t, trmi_text *out) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    trmi_tuning *theirs = NULL;
    if (trmi_os_read_file(t->path, FILE_LIMIT, &bytes, &size, NULL) != TRM_OK) {
        return;
    }
    if (trmi_tuning_create(NULL, 1, "", "", &theirs, NULL) == TRM_OK) {
        (void)trmi_tuning_parse(theirs, (const char *)bytes, size);
        for (int64_t i = 0; i < theirs->count; i++) {
            const entry *e = &theirs->entries[i];
            if (look_up(t, e->machine, e->problem) == NULL) {
                write_entry(out, e);
            }
        }
        trmi_tuning_destroy(theirs);
    }
    trmi_free(bytes);
}

/* Locks the file, so that one process at a time merges and replaces it and no line is lost. Returns
 * the descriptor of the lock, or -1 after one second (for instance: a file server that does not
 * answer). The caller then writes without the lock, which may lose lines but never damages the
 * file. */
static int lock_file(const char *path) {
    char name[4096];
    int length = snprintf(name, sizeof name, "%s.lock", path);
    if (length < 0 || (size_t)length >= sizeof name) {
        return -1;
    }
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return fd;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_NAP_MS * 1000000L}, NULL);
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* Contract in tuning.h. The file is replaced as a whole, so readers see the old one or the new one;
 * lines that other processes have added meanwhile are kept. */
trm_status trmi_tuning_save(trmi_tuning *t, trm_error *err) {
    if (!t->added || t->path == NULL) {
        return TRM_OK;
    }
    (void)trmi_os_make_parent(NULL, t->path, NULL); /* an error shows when the file is written */
    int lock = lock_file(t->path);
    trmi_text text = {0};
    trmi_text_append(&text, header, sizeof header - 1);
    for (int64_t i = 0; i < t->count; i++) {
        write_entry(&text, &t->entries[i]);
    }
    write_theirs(t, &text);
    trm_status status = text.failed
                            ? TRMI_NO_MEMORY(err, "to write %s", t->path)
                            : trmi_os_replace_file(NULL, t->path, text.data, text.length, err);
    trmi_text_free(&text);
    if (lock >= 0) {
        close(lock);
    }
    t->added = false; /* a file that cannot be written is tried once, not at every step */
    return status;
}
