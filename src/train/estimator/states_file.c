/* SPDX-License-Identifier: Apache-2.0 */
/* Two slots of equal size, by the parity of the batch. A slot that was written in part has a wrong
 * digest and counts as absent; the other slot has the batch before.
 *
 *   slot   magic, batch, bytes, digest of all that follows and of the batch | values of the states
 *
 * Written without a flush: the file survives the process, not the host. */
#include "train/estimator/states_file.h"

#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/memory.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t magic = 0x3153657461745354u;

/* The head of a slot, as it is in the file. */
typedef struct slot_head {
    uint64_t magic;
    int64_t batch;          /* number of the batch after which the states had these values */
    uint64_t bytes, digest; /* of the values; of batch, bytes and values */
} slot_head;

/* The file, and memory for one slot. */
struct trmi_states_file {
    int fd;
    size_t bytes;    /* of the values */
    uint8_t *slot;   /* a slot in memory: head and values */
    char path[4096]; /* of the file, for errors */
};

/* Returns whether a variable is a running statistic. */
static bool is_state(const trm_variable *v) { return v->kind == TRM_VARIABLE_STATE; }

/* Return the bytes of a variable, and of all states. */
static size_t bytes_of(const trm_variable *v) {
    const trm_tensor tensor = {.dtype = v->dtype, .shape = v->shape};
    return (size_t)trm_tensor_bytes(&tensor);
}

static size_t count_bytes(const trm_exec *exec) {
    size_t bytes = 0;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        const trm_variable v = trm_exec_variable(exec, i);
        bytes += is_state(&v) ? bytes_of(&v) : 0;
    }
    return bytes;
}

/* Returns the digest of a slot. The batch is its seed, so that a slot of another batch is
 * recognised. */
static uint64_t digest_of(const slot_head *head, const uint8_t *values) {
    return trmi_xxh3(values, head->bytes, (uint64_t)head->batch);
}

/* Contract in states_file.h. A program without states has no file. */
trm_status trmi_states_open(const char *model_dir, const trm_exec *exec, trmi_states_file **out,
                            trm_error *err) {
    trmi_states_file *f;
    const size_t bytes = count_bytes(exec);
    *out = NULL;
    if (bytes == 0) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_NEW(err, f, 1, "for a file of running statistics"));
    f->bytes = bytes;
    f->slot = trmi_alloc(sizeof(slot_head) + bytes);
    snprintf(f->path, sizeof f->path, "%.4000s/states.bin", model_dir);
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (f->slot == NULL || f->fd < 0) {
        trm_status status = f->slot == NULL ? TRMI_NO_MEMORY(err, "for running statistics")
                                            : TRMI_FAIL_SYS(err, "%s cannot be written", f->path);
        trmi_states_close(f);
        return status;
    }
    *out = f;
    return TRM_OK;
}

void trmi_states_close(trmi_states_file *f) {
    if (f != NULL) {
        if (f->fd >= 0) {
            close(f->fd);
        }
        trmi_free(f->slot);
        trmi_free(f);
    }
}

/* Contract in states_file.h. Head and values are written by one call. */
trm_status trmi_states_write(trmi_states_file *f, const trm_exec *exec, int64_t batch,
                             trm_error *err) {
    const size_t size = sizeof(slot_head) + f->bytes;
    uint8_t *at = f->slot + sizeof(slot_head);
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        const trm_variable v = trm_exec_variable(exec, i);
        if (is_state(&v)) {
            trm_exec_read(exec, i, at);
            at += bytes_of(&v);
        }
    }
    slot_head head = {.magic = magic, .batch = batch, .bytes = f->bytes};
    head.digest = digest_of(&head, f->slot + sizeof head);
    memcpy(f->slot, &head, sizeof head);
    const off_t begin = (off_t)((size_t)(batch & 1) * size);
    return pwrite(f->fd, f->slot, size, begin) == (ssize_t)size
               ? TRM_OK
               : TRMI_FAIL_SYS(err, "%s cannot be written", f->path);
}

/* Contract in states_file.h. Nothing is written to the program unless the digest is right. */
bool trmi_states_load(const char *model_dir, trm_exec *exec, int64_t batch) {
    const size_t bytes = count_bytes(exec), size = sizeof(slot_head) + bytes;
    char path[4096];
    uint8_t *slot = trmi_alloc(size);
    slot_head head;
    snprintf(path, sizeof path, "%.4000s/states.bin", model_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    /* Even and odd batches have slots of their own: a crash while one is written leaves the
     * other. */
    bool good = bytes > 0 && slot != NULL && fd >= 0 &&
                pread(fd, slot, size, (off_t)((size_t)(batch & 1) * size)) == (ssize_t)size;
    if (good) {
        memcpy(&head, slot, sizeof head);
        good = head.magic == magic && head.batch == batch && head.bytes == bytes &&
               head.digest == digest_of(&head, slot + sizeof head);
    }
    /* Read the states in the order of the variables. */
    const uint8_t *at = slot + sizeof head;
    for (int32_t i = 0; good && i < trm_exec_variable_count(exec); i++) {
        const trm_variable v = trm_exec_variable(exec, i);
        if (is_state(&v)) {
            trm_exec_write(exec, i, at);
            at += bytes_of(&v);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    trmi_free(slot);
    return good;
}
