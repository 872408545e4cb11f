/* SPDX-License-Identifier: Apache-2.0 */
/* The file of kept pushes: synchronous pushes of ended lives that wait for their step.
 *
 * A worker repeats a push that was not answered, so a waiting push needs no log. When the worker
 * dies, its next life asks all servers for its last batch (BEGINS in server_front.c). Where all
 * servers have it, the life goes on with the next batch, and no process can repeat the push. Each
 * server therefore writes it here before it answers, and a server that is started again lets it
 * wait again.
 *
 *     log/kept-server-N.log    | head | message as it came | zeros to a multiple of 8 | digest | ...
 *
 * The file is replaced as a whole, which happens once in a worker's life. Pushes of steps that the
 * shards have are left out when it is read. When its worker makes a push again, the push is
 * removed from the file, even if it is in a step: the server goes back by that step and must not
 * form it from the file. */
#include "ps/shard/records.h"
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The head of a record. */
typedef struct kept_head {
    uint32_t worker, incarnation;
    uint32_t servers, shards; /* a push of a job with others cannot be divided */
    uint64_t message_bytes;
} kept_head;

/* Writes the path of the file. */
static void kept_path(const trm_ps_server *server, char path[400]) {
    snprintf(path, 400, "%s/log/kept-server-%d.log", server->folder, server->options.server);
}

/* Returns the bytes of a record with a message of `message_bytes`. */
static size_t record_bytes(uint64_t message_bytes) {
    return sizeof(kept_head) + (size_t)(message_bytes + (-message_bytes & 7)) + sizeof(uint64_t);
}

/* Writes the record of a kept push: head, message, padding, and a seal that shows a torn record. */
static void write_record(const trm_ps_server *server, const trmi_request *r, uint8_t *to) {
    const kept_head head = {.worker = r->header.worker,
                            .incarnation = r->header.incarnation,
                            .servers = (uint32_t)server->options.servers,
                            .shards = server->shards,
                            .message_bytes = r->message.bytes};
    const size_t bytes = record_bytes(head.message_bytes);
    memset(to + bytes - 2 * sizeof(uint64_t), 0, 2 * sizeof(uint64_t));
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, r->message.data, r->message.bytes);
    trmi_record_seal(to, bytes, sizeof(uint64_t));
}

/* Contract in server.h. Written before the worker gets its answer: from then on it does not repeat
 * the push. */
trm_status trmi_kept_write(const trm_ps_server *server, trm_error *err) {
    char path[400];
    size_t bytes = 0;
    if (server->options.log_pushes != TRM_ON) {
        return TRM_OK; /* a server without a log does not come back */
    }
    for (const trmi_request *r = server->waiting; r != NULL; r = r->next) {
        bytes += r->kept && !r->partial ? record_bytes(r->message.bytes) : 0;
    }
    uint8_t *data = trmi_alloc(bytes + 1), *at = data;
    if (data == NULL) {
        return TRMI_NO_MEMORY(err, "to keep a push of %zu bytes", bytes);
    }
    for (const trmi_request *r = server->waiting; r != NULL; r = r->next) {
        if (r->kept && !r->partial) {
            write_record(server, r, at);
            at += record_bytes(r->message.bytes);
        }
    }
    kept_path(server, path);
    trm_status status = trmi_os_replace_file(NULL, path, data, bytes, err);
    trmi_free(data);
    return status;
}

/* Returns the size of the record at `at`, 0 if its head is not sound. */
static size_t size_of(const uint8_t *at, size_t left) {
    kept_head head;
    if (left < sizeof head) {
        return 0;
    }
    memcpy(&head, at, sizeof head);
    return head.message_bytes > left ? 0 : record_bytes(head.message_bytes);
}

/* The records of the file that stay. */
typedef struct kept_rest {
    uint32_t worker; /* of the records that do not */
    int64_t batch;
    uint8_t *data;
    int64_t bytes, capacity;
    bool shorter; /* a record does not stay */
} kept_rest;

/* Copies a record that stays. */
static trm_status copy_record(void *context, const uint8_t *record, size_t bytes, trm_error *err) {
    kept_rest *rest = context;
    kept_head head;
    trmi_ps_header header;
    memcpy(&head, record, sizeof head);
    TRMI_TRY(trmi_ps_decode_header(record + sizeof head, head.message_bytes, &header, err));
    if (head.worker == rest->worker && header.clock == rest->batch) {
        rest->shorter = true;
        return TRM_OK;
    }
    if (!trmi_grow((void **)&rest->data, &rest->capacity, rest->bytes + (int64_t)bytes, 1)) {
        return TRMI_NO_MEMORY(err, "for the file of kept pushes");
    }
    memcpy(rest->data + rest->bytes, record, bytes);
    rest->bytes += (int64_t)bytes;
    return TRM_OK;
}

/* Contract in server.h. The file is read record by record and written again without those. */
trm_status trmi_kept_remove(const trm_ps_server *server, uint32_t worker, int64_t batch,
                            trm_error *err) {
    const trmi_record_form form = {
        .size = size_of, .check_bytes = sizeof(uint64_t), .take = copy_record};
    kept_rest rest = {.worker = worker, .batch = batch};
    char path[400];
    size_t end;
    if (server->options.log_pushes != TRM_ON) {
        return TRM_OK;
    }
    kept_path(server, path);
    trm_status status = trmi_records_each(path, SIZE_MAX / 2, &form, &rest, &end, err);
    if (status == TRM_OK && rest.shorter) {
        status = trmi_os_replace_file(NULL, path, rest.data, (size_t)rest.bytes, err);
    }
    free(rest.data);
    return status;
}

/* Makes the request of a record, as if its message had just arrived. */
static trm_status make_request(trm_ps_server *server, const kept_head *head, const uint8_t *message,
                               trmi_request **out, trm_error *err) {
    trmi_request *r = trmi_request_create(server);
    if (r == NULL) {
        return TRMI_NO_MEMORY(err, "for a kept push");
    }
    r->message = (trmi_message){trmi_alloc(head->message_bytes + 1), head->message_bytes, NULL};
    trm_status status = TRM_OK;
    if (r->message.data == NULL) {
        status = TRMI_NO_MEMORY(err, "for a kept push");
    } else {
        memcpy(r->message.data, message, head->message_bytes);
        status = trmi_ps_decode_header(r->message.data, r->message.bytes, &r->header, err);
    }
    r->header.worker = head->worker;
    status = status == TRM_OK ? trmi_request_decode(server, r, err) : status;
    if (status != TRM_OK) {
        trmi_request_forget(r);
        return status;
    }
    r->started = trmi_os_now();
    r->kept = true;
    *out = r;
    return TRM_OK;
}

/* Lets the push of a record wait again. */
static trm_status take_record(void *context, const uint8_t *record, size_t bytes, trm_error *err) {
    trm_ps_server *server = context;
    trmi_request *r = NULL;
    kept_head head;
    (void)bytes;
    memcpy(&head, record, sizeof head);
    if (head.servers != (uint32_t)server->options.servers || head.shards != server->shards) {
        return TRM_OK;
    }
    TRMI_TRY(make_request(server, &head, record + sizeof head, &r, err));
    if (r->header.clock <= server->step) {
        trmi_request_forget(r);
        return TRM_OK;
    }
    if (trmi_front_find(server, head.worker) == NULL &&
        trmi_front_worker(server, head.worker, head.incarnation, err) == NULL) {
        trmi_request_forget(r);
        return (trm_status)err->status;
    }
    /* its worker had read the rows of the step before */
    trmi_last_step_note_complete(server, head.worker, r->header.clock - 1);
    r->next = server->waiting;
    server->waiting = r;
    return TRM_OK;
}

trm_status trmi_kept_open(trm_ps_server *server, trm_error *err) {
    const trmi_record_form form = {
        .size = size_of, .check_bytes = sizeof(uint64_t), .take = take_record};
    char path[400];
    size_t end;
    if (server->options.folder == NULL || server->options.mode != TRM_PS_SYNC) {
        return TRM_OK;
    }
    kept_path(server, path);
    return trmi_records_each(path, SIZE_MAX / 2, &form, server, &end, err);
}

void trmi_kept_close(const trm_ps_server *server) {
    char path[400];
    if (server->options.folder != NULL && atomic_load(&server->stop_asked)) {
        kept_path(server, path);
        unlink(path);
    }
}
