/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a server from its folder, and removes what no restart can need.
 *
 *     MANIFEST-000002.json           complete snapshots, written last
 *     snapshot-000002/server-0-shard-1.full | .delta
 *     log/server-0-of-1-shard-1-of-2-snapshot-000002.log   pushes since the snapshot
 *     server-0.lock                  locked while a process is server 0 of this folder
 *
 * Start: load the newest manifest whose files are all intact (a differential one back to its full
 * one), then replay the logs from that snapshot on. The logs of the one before it are kept too, so
 * that falling back by one snapshot loses nothing.
 *
 * The state that is restored: rows and windows on the shards; tables, workers and clocks in the
 * front. */
#include "ps/snapshot/snapshot_manifest.h"
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <jansson.h>

/* Differential snapshots above one full snapshot, at most. */
enum { CHAIN_MAX = 100000 };
static const uint32_t all_shards = UINT32_MAX;

/* Contract in server.h. The name holds the job's form (servers, shards), so that a job of another
 * form recognises logs that it cannot replay. */
void trmi_log_path(const trm_ps_server *server, uint32_t shard, uint32_t snapshot, char *path,
                   size_t size) {
    const trmi_log_name log = {(uint32_t)server->options.server, (uint32_t)server->options.servers,
                               shard, server->shards, snapshot};
    trmi_log_name_path(server->folder, &log, path, size);
}

/* ---- pruning --------------------------------------------------------------------------------- */

/* Removes the manifest, then the files of a snapshot. */
static void remove_snapshot(const trm_ps_server *server, uint32_t snapshot) {
    char path[400];
    trmi_manifest_path(server->folder, snapshot, path, sizeof path);
    unlink(path);
    trmi_snapshot_folder(server->folder, snapshot, path, sizeof path);
    (void)!trmi_os_remove_tree(NULL, path, NULL);
}

/* Contract in server.h. Kept: the logs since the complete snapshot before this one, and all
 * snapshots from the last full one but one on. */
trm_status trmi_manifest_write(trm_ps_server *server, uint32_t snapshot, bool differential,
                               const char *text, size_t bytes, trm_error *err) {
    char path[400];
    trmi_manifest_path(server->folder, snapshot, path, sizeof path);
    TRMI_TRY(trmi_os_replace_file(NULL, path, text, bytes, err));
    for (; server->oldest_log < server->complete_snapshot; server->oldest_log++) {
        for (uint32_t s = 0; s < server->shards; s++) {
            trmi_log_path(server, s, server->oldest_log, path, sizeof path);
            unlink(path); /* a snapshot that this server did not begin has none */
        }
    }
    server->complete_snapshot = snapshot;
    if (!differential) {
        server->older_full_snapshot = server->full_snapshot;
        server->full_snapshot = snapshot;
        for (uint32_t old = server->oldest_snapshot; old > 0 && old < server->older_full_snapshot;
             old++) {
            remove_snapshot(server, old);
            server->oldest_snapshot = old + 1;
        }
    }
    server->oldest_snapshot = server->oldest_snapshot == 0 ? snapshot : server->oldest_snapshot;
    return TRM_OK;
}

/* ---- manifests ------------------------------------------------------------------------------- */

/* Calls `use` on each file of a manifest that shard `into` of this server needs: its own file
 * if the job has the same servers and shards, else all files, whose rows are then filtered.
 *   errors  CORRUPT, those of `use` */
static trm_status use_each_file(trm_ps_server *server, const trmi_snapshot_manifest *m,
                                uint32_t into,
                                trm_status (*use)(trm_ps_server *server, uint32_t into,
                                                  const char *path, uint64_t digest,
                                                  trm_error *err),
                                trm_error *err) {
    bool same = m->servers == (uint32_t)server->options.servers && m->shards == server->shards;
    json_t *files = json_object_get(m->root, "files"), *file;
    size_t i;
    json_array_foreach(files, i, file) {
        json_int_t from = -1, shard = -1;
        const char *digest = NULL;
        char path[400], *end;
        if (json_unpack(file, "{s:I,s:I,s:s}", "server", &from, "shard", &shard, "digest",
                        &digest) != 0 ||
            from < 0 || from >= m->servers || shard < 0 || shard >= m->shards) {
            return TRMI_FAIL(
                err, TRM_CORRUPT,
                "%s: file %zu: a server below %u, a shard below %u and a digest expected", m->path,
                i, (unsigned)m->servers, (unsigned)m->shards);
        }
        /* with the same shape each file belongs to one shard */
        if (same && (from != server->options.server || (into != all_shards && shard != into))) {
            continue;
        }
        trmi_snapshot_file_path(server->folder, m, (uint32_t)from, (uint32_t)shard, path,
                                sizeof path);
        uint64_t value = strtoull(digest, &end, 16);
        if (*end != '\0' || end == digest) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: file %zu: digest '%.40s'", m->path, i, digest);
        }
        TRMI_TRY(use(server, into, path, value, err));
    }
    return TRM_OK;
}

/* Checks a file's digest without loading it. */
static trm_status verify_file(trm_ps_server *server, uint32_t into, const char *path,
                              uint64_t digest, trm_error *err) {
    (void)into;
    return trmi_snapshot_load(server->runners[0].shard, path, digest, NULL, TRMI_SNAPSHOT_VERIFY,
                              NULL, err);
}

/* Returns whether a row belongs to this shard; filter for files of a job of another form. */
static bool is_row_of_shard(void *context, uint32_t table, uint64_t key) {
    const trmi_shard_thread *runner = context;
    return trmi_shard_of_row(&runner->shard->tables[table]->options.placement, key,
                             (uint32_t)runner->server->options.servers, runner->server->shards) ==
           (uint32_t)runner->server->options.server * runner->server->shards +
               runner->shard->number;
}

/* Loads a verified file into a shard. */
static trm_status load_file(trm_ps_server *server, uint32_t into, const char *path, uint64_t digest,
                            trm_error *err) {
    trmi_shard_thread *runner = &server->runners[into];
    const trmi_snapshot_filter filter = {is_row_of_shard, runner};
    int64_t rows = 0;
    return trmi_snapshot_load(runner->shard, path, digest, &filter, TRMI_SNAPSHOT_LOAD_VERIFIED,
                              &rows, err);
}

/* Reads the manifests from a snapshot back to the full one below it, newest first, and verifies all
 * files.
 * The caller frees *out with free_chain, also after an error. */
static trm_status read_chain(trm_ps_server *server, uint32_t snapshot, trmi_snapshot_manifest **out,
                             uint32_t *count, trm_error *err) {
    trmi_snapshot_manifest *chain = NULL;
    int64_t capacity = 0;
    trm_status status = TRM_OK;
    *count = 0;
    /* each differential snapshot builds on the number before it */
    for (uint32_t at = snapshot;; at--) {
        if (at == 0 || *count == CHAIN_MAX) {
            status = TRMI_FAIL(err, TRM_CORRUPT,
                               "snapshot %u: the full snapshot below it is missing", snapshot);
            break;
        }
        if (!trmi_grow((void **)&chain, &capacity, (int64_t)*count + 1, sizeof *chain)) {
            status = TRMI_NO_MEMORY(err, "for manifests");
            break;
        }
        status = trmi_manifest_read(server->folder, at, &chain[*count], err);
        if (status != TRM_OK) {
            break;
        }
        ++*count;
        status = use_each_file(server, &chain[*count - 1], all_shards, verify_file, err);
        if (status != TRM_OK || !chain[*count - 1].differential) {
            break;
        }
    }
    *out = chain;
    return status;
}

/* Frees manifests that read_chain has read. */
static void free_chain(trmi_snapshot_manifest *chain, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        json_decref(chain[i].root);
    }
    free(chain);
}

/* The part of a chain that one shard loads, with its thread. */
typedef struct shard_load {
    trm_ps_server *server;
    const trmi_snapshot_manifest *chain;
    uint32_t count, into;
    pthread_t thread;
    bool has_thread; /* a thread of its own runs */
    trm_status status;
    trm_error err;
} shard_load;

/* Loads the files of a chain into one shard, oldest first. */
static void *load_shard(void *context) {
    shard_load *l = context;
    for (uint32_t i = l->count; l->status == TRM_OK && i-- > 0;) {
        l->status = use_each_file(l->server, &l->chain[i], l->into, load_file, &l->err);
    }
    return NULL;
}

/* Loads a chain into all shards in parallel; the last shard is loaded by the calling thread. */
static trm_status load_shards(trm_ps_server *server, const trmi_snapshot_manifest *chain,
                              uint32_t count, trm_error *err) {
    shard_load *shards = trmi_alloc(server->shards * sizeof *shards);
    trm_status status =
        shards == NULL ? TRMI_NO_MEMORY(err, "to load %u shards", server->shards) : TRM_OK;
    for (uint32_t s = 0; status == TRM_OK && s < server->shards; s++) {
        shards[s] = (shard_load){.server = server, .chain = chain, .count = count, .into = s};
        shards[s].has_thread = s + 1 < server->shards &&
                               pthread_create(&shards[s].thread, NULL, load_shard, &shards[s]) == 0;
        /* the last one, or one whose thread could not be started */
        if (!shards[s].has_thread) {
            load_shard(&shards[s]);
        }
    }
    /* Join all; return the error of the first shard that failed. */
    for (uint32_t s = 0; shards != NULL && s < server->shards; s++) {
        if (shards[s].has_thread) {
            pthread_join(shards[s].thread, NULL);
        }
        if (status == TRM_OK && shards[s].status != TRM_OK) {
            status = shards[s].status;
            *err = shards[s].err;
        }
    }
    trmi_free(shards);
    return status;
}

/* Loads one snapshot with the differential and full snapshots that it is based on. */
static trm_status load_chain(trm_ps_server *server, uint32_t snapshot, trm_error *err) {
    trmi_snapshot_manifest *chain;
    uint32_t count;
    trm_status status = read_chain(server, snapshot, &chain, &count, err);
    status = status == TRM_OK ? load_shards(server, chain, count, err) : status;
    if (status == TRM_OK) {
        server->last_snapshot = server->complete_snapshot = snapshot;
        server->full_snapshot = chain[count - 1].snapshot;
        server->oldest_snapshot = server->full_snapshot;
    }
    free_chain(chain, count);
    return status;
}

/* ---- logs ------------------------------------------------------------------------------------ */

/* The numbers that a server finds in the names of its logs. */
typedef struct log_search {
    trm_ps_server *server;
    uint32_t from, newest; /* snapshot that was loaded; newest log since */
} log_search;

/* Notes a log. One of a job with other servers or shards is an error if it has pushes: a push
 * cannot be divided among other shards. */
static trm_status note_log(void *context, const trmi_log_name *log, const char *path,
                           trm_error *err) {
    log_search *c = context;
    trm_ps_server *server = c->server;
    const bool same =
        log->servers == (uint32_t)server->options.servers && log->shards == server->shards;
    const bool mine = log->server == (uint32_t)server->options.server;
    if (mine && same) {
        server->oldest_log =
            log->snapshot < server->oldest_log ? log->snapshot : server->oldest_log;
    }
    /* No push came after the snapshot: that job ended with a snapshot. */
    bool matters = log->snapshot >= c->from;
    if (matters && !same) {
        TRMI_TRY(trmi_shard_log_has_pushes(path, &matters, err));
    }
    if (!matters) {
        return TRM_OK;
    }
    c->newest = mine && log->snapshot > c->newest ? log->snapshot : c->newest;
    return same ? TRM_OK
                : TRMI_FAIL(err, TRM_INVALID,
                            "%s: a log of %u servers with %u shards; this job has %d with "
                            "%u: start once as before, take a checkpoint, then change",
                            path, log->servers, log->shards, server->options.servers,
                            server->shards);
}

/* Finds this server's newest log since the snapshot that was loaded, and the oldest one. */
static trm_status find_logs(trm_ps_server *server, trm_error *err) {
    char path[300];
    log_search c = {server, server->last_snapshot, server->last_snapshot};
    snprintf(path, sizeof path, "%s/log", server->folder);
    TRMI_TRY(trmi_os_make_dirs(NULL, path, err));
    server->oldest_log = server->last_snapshot;
    TRMI_TRY(trmi_logs_each(server->folder, note_log, &c, err));
    server->newest_number = c.newest;
    return TRM_OK;
}

/* Replays the logs of one shard, cuts torn ends off, and opens the newest log for appending. */
static trm_status replay_shard(trm_ps_server *server, uint32_t s, uint32_t from, uint32_t newest,
                               int64_t *pushes, trm_error *err) {
    char path[400];
    for (uint32_t snapshot = from; snapshot <= newest; snapshot++) {
        int64_t valid = 0;
        trmi_log_path(server, s, snapshot, path, sizeof path);
        if (access(path, F_OK) != 0) {
            continue;
        }
        TRMI_TRY(trmi_shard_replay(server->runners[s].shard, path, pushes, &valid, err));
        if (truncate(path, valid) != 0) {
            return TRMI_FAIL_SYS(err, "%s: cannot cut off a torn end", path);
        }
    }
    if (server->options.log_pushes == TRM_ON) {
        trmi_log_path(server, s, newest, path, sizeof path);
        TRMI_TRY(trmi_shard_log_open(server->runners[s].shard, NULL, path, server->options.log_sync,
                                     err));
    }
    return TRM_OK;
}

/* Replays the logs of all shards and decides about the last step. */
static trm_status replay_logs(trm_ps_server *server, uint32_t from, uint32_t newest,
                              trm_error *err) {
    int64_t pushes = 0;
    for (uint32_t s = 0; s < server->shards; s++) {
        TRMI_TRY(replay_shard(server, s, from, newest, &pushes, err));
    }
    TRMI_TRY(trmi_last_step_open(server, &pushes, err));
    if (pushes > 0) {
        trmi_log(TRM_LOG_INFO, "ps", "server %d: snapshot %u and %lld pushes from the logs",
                 server->options.server, from, (long long)(pushes / server->shards));
    }
    return TRM_OK;
}

/* Sets the step to the smallest of all shards. A push that reached only some logs before the
 * death was never answered: its worker sends it again, and the shards that have it recognise it. */
static void align_shards(trm_ps_server *server) {
    uint32_t tick = 0;
    server->step = INT64_MAX;
    for (uint32_t s = 0; s < server->shards; s++) {
        const trmi_shard *shard = server->runners[s].shard;
        tick = shard->tick > tick ? shard->tick : tick;
        server->step = shard->clock < server->step ? shard->clock : server->step;
    }
    server->done_step = server->step;
    for (uint32_t s = 1; s < server->shards; s++) {
        if (server->runners[s].shard->tick != server->runners[0].shard->tick) {
            trmi_log(TRM_LOG_INFO, "ps",
                     "server %d: shard %u is at tick %u of %u: its last push "
                     "will come again",
                     server->options.server, s, server->runners[s].shard->tick, tick);
        }
    }
}

/* Returns how many batches of a worker all shards have. */
static int64_t count_finished_batches(const trm_ps_server *server, uint32_t worker) {
    int64_t least = INT64_MAX;
    for (uint32_t s = 0; s < server->shards; s++) {
        const trmi_window *w = trmi_shard_window(server->runners[s].shard, worker);
        least = trmi_min_i64(least, w == NULL ? 0 : w->clock);
    }
    return least;
}

/* Returns the last push of a window. */
static uint64_t find_last_push(const trmi_window *w) {
    uint64_t last = w->base;
    for (uint64_t i = 0; i < TRMI_WINDOW_PUSHES; i++) {
        last = (w->bits >> i & 1) != 0 ? w->base + 1 + i : last;
    }
    return last;
}

/* Finds the last push of a worker's life up to which all pushes are on all shards, and the last one
 * that is at the end of some logs only. */
static void find_last_pushes(const trm_ps_server *server, trmi_worker *worker) {
    const trmi_window none = {.worker = worker->worker};
    uint64_t settled = UINT64_MAX, least = UINT64_MAX, most = 0;
    for (uint32_t s = 0; s < server->shards; s++) {
        const trmi_window *w = trmi_shard_window(server->runners[s].shard, worker->worker);
        w = w == NULL || w->incarnation != worker->incarnation ? &none : w;
        const uint64_t last = find_last_push(w);
        settled = w->base < settled ? w->base : settled;
        least = last < least ? last : least;
        most = last > most ? last : most;
    }
    worker->dispatched = settled;
    worker->begun = most > least ? most : 0;
}

/* Declares on all shards the tables that any shard has: a table declared at the moment of death
 * may be in some logs only. */
static trm_status align_tables(trm_ps_server *server, trm_error *err) {
    const trmi_shard *most = server->runners[0].shard;
    for (uint32_t s = 1; s < server->shards; s++) {
        const trmi_shard *shard = server->runners[s].shard;
        most = shard->table_count > most->table_count ? shard : most;
    }
    for (uint32_t s = 0; s < server->shards; s++) {
        trmi_shard *shard = server->runners[s].shard;
        while (shard->table_count < most->table_count) {
            TRMI_TRY(trmi_shard_add_table(shard, &most->tables[shard->table_count]->options, err));
        }
    }
    return TRM_OK;
}

/* Creates the front's entry of a worker found in the logs. */
static trm_status adopt_worker(trm_ps_server *server, uint32_t number, uint32_t incarnation,
                               trmi_worker **out, trm_error *err) {
    *out = trmi_front_worker(server, number, incarnation, err);
    if (*out == NULL) {
        return (trm_status)err->status;
    }
    /* in a job continued with fewer workers, this one is not waited for unless it sends
     * something */
    (*out)->left = server->counted && (int64_t)number >= server->options.workers;
    (*out)->active = !(*out)->left;
    return TRM_OK;
}

/* Reads the workers: each shard keeps a window of the pushes that it has of them. The first push of
 * a life may be on some shards only; in synchronous mode it is in no step then. */
static trm_status adopt_windows(trm_ps_server *server, trm_error *err) {
    const bool synchronous = server->options.mode == TRM_PS_SYNC;
    for (uint32_t s = 0; s < (synchronous ? 1 : server->shards); s++) {
        const trmi_shard *shard = server->runners[s].shard;
        for (int64_t i = 0; i < shard->window_count; i++) {
            const trmi_window *w = &shard->windows[i];
            trmi_worker *worker = trmi_front_find(server, w->worker);
            if (worker == NULL || worker->incarnation < w->incarnation) {
                TRMI_TRY(adopt_worker(server, w->worker, w->incarnation, &worker, err));
            }
        }
    }
    for (int64_t i = 0; i < server->worker_count; i++) {
        trmi_worker *worker = &server->workers[i];
        find_last_pushes(server, worker);
        worker->done = count_finished_batches(server, worker->worker);
        worker->clock = synchronous ? server->step : worker->done;
    }
    return TRM_OK;
}

/* Builds the front's state from the shards: tables, global step, workers with their clocks. */
static trm_status adopt_state(trm_ps_server *server, trm_error *err) {
    trmi_worker *worker;
    TRMI_TRY(align_tables(server, err));
    const trmi_shard *first = server->runners[0].shard;
    /* the tables of shard 0 are those of all shards now */
    for (uint32_t i = 0; i < first->table_count; i++) {
        const trm_table_options *o = &first->tables[i]->options;
        char *name = trmi_alloc(strlen(o->name) + 1);
        if (name == NULL) {
            return TRMI_NO_MEMORY(err, "for table '%s'", o->name);
        }
        memcpy(name, o->name, strlen(o->name) + 1);
        server->tables[i] = *o;
        server->tables[i].name = name;
        server->tables[i].staleness = 0; /* set when a worker declares the table again */
        server->widths[i] = o->width;
        server->table_count++;
    }
    align_shards(server);
    atomic_store(&server->global_step, first->tick);
    TRMI_TRY(adopt_windows(server, err));
    /* the members of an undecided step */
    for (uint32_t i = 0; i < server->last.count; i++) {
        const trmi_push_id *id = &server->last.members[i].id;
        TRMI_TRY(adopt_worker(server, id->worker, id->incarnation, &worker, err));
        worker->clock = server->step;
    }
    return TRM_OK;
}

/* Contract in server.h. A new file survives a power failure only if the folder that names it was
 * flushed too: the folder of the logs, the server's folder, and the folder above, which names
 * it. */
trm_status trmi_server_flush_names(const trm_ps_server *server, trm_error *err) {
    char path[300];
    if (server->options.folder == NULL || !server->options.log_sync) {
        return TRM_OK;
    }
    snprintf(path, sizeof path, "%s/log", server->folder);
    TRMI_TRY(trmi_os_fsync_dir(NULL, path, err));
    TRMI_TRY(trmi_os_fsync_dir(NULL, server->folder, err));
    snprintf(path, sizeof path, "%s", server->folder);
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return trmi_os_fsync_dir(NULL, ".", err);
    }
    slash[slash == path] = '\0'; /* the root keeps its slash */
    return trmi_os_fsync_dir(NULL, path, err);
}

/* Takes the lock of this server number in the folder: a second process would cut and append to the
 * logs of the first. A process that was killed may hold it for a moment longer, so the call waits.
 * Folders without locks (some network file systems) are used unlocked. */
static trm_status lock_folder(trm_ps_server *server, trm_error *err) {
    enum { WAIT_SECONDS = 10 };
    char path[400];
    snprintf(path, sizeof path, "%s/server-%d.lock", server->folder, server->options.server);
    server->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (server->lock_fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot be made", path);
    }
    double until = trmi_os_now() + WAIT_SECONDS;
    bool warned = false;
    while (flock(server->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (trmi_os_now() >= until) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: another process is server %d of this folder; stop it first, or "
                             "give this one another folder or number",
                             path, server->options.server);
        }
        if (!warned) {
            warned = true;
            trmi_log(TRM_LOG_WARN, "ps", "server %d: another process holds %s; waiting for %d s",
                     server->options.server, path, WAIT_SECONDS);
        }
        usleep(50000);
    }
    return TRM_OK;
}

/* Contract in server.h. Closing the file releases the lock, as the end of the process does. */
void trmi_server_unlock_folder(trm_ps_server *server) {
    if (server->lock_fd >= 0) {
        close(server->lock_fd);
        server->lock_fd = -1;
    }
}

/* Applies the logs since the snapshot that was loaded, then restores the state of the front. */
static trm_status restore_from_logs(trm_ps_server *server, trm_error *err) {
    TRMI_TRY(find_logs(server, err));
    TRMI_TRY(replay_logs(server, server->last_snapshot, server->newest_number, err));
    return adopt_state(server, err);
}

/* Contract in server.h. A snapshot that does not load is skipped with a log line, as long as an
 * older one loads. The logs that the older one needs may be gone: the error is then that of the
 * snapshot which was skipped. */
trm_status trmi_server_restore(trm_ps_server *server, trm_error *err) {
    if (server->options.folder == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_os_make_dirs(NULL, server->folder, err));
    TRMI_TRY(lock_folder(server, err));
    if (server->options.server == 0) {
        trmi_manifest_tidy(server->folder);
    }
    /* Find the newest chain of snapshots that loads. */
    uint32_t newest = 0, snapshot;
    trm_error skipped = {0};
    TRMI_TRY(trmi_manifest_newest(server->folder, &newest, err));
    trm_status status = TRM_END;
    for (snapshot = newest; snapshot > 0 && status != TRM_OK; snapshot--) {
        char path[400];
        trmi_manifest_path(server->folder, snapshot, path, sizeof path);
        if (access(path, F_OK) != 0) {
            continue;
        }
        status = load_chain(server, snapshot, err);
        if (status == TRM_INVALID || status == TRM_NOMEM || status == TRM_UNSUPPORTED) {
            return status; /* an older one would not be accepted either */
        }
        if (status != TRM_OK) {
            skipped = skipped.status == TRM_OK ? *err : skipped;
            trmi_log(TRM_LOG_ERROR, "ps",
                     "server %d: snapshot %u does not load: %s; trying an older one",
                     server->options.server, snapshot, err->message);
        }
    }
    if (status < 0) {
        return trmi_error_append(err, ": no complete checkpoint is left in %s", server->folder);
    }
    status = restore_from_logs(server, err);
    if (status != TRM_OK && skipped.status != TRM_OK) {
        *err = skipped;
        return trmi_error_append(err, "; older snapshots lack logs in %s", server->folder);
    }
    return status;
}
