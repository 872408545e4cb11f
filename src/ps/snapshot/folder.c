/* SPDX-License-Identifier: Apache-2.0 */
/* A job's folder without a server, for audits: creates all shards of the job in this process,
 * loads each shard's chain of snapshot files and replays its log (trireme/ps.h). Nothing
 * in the folder is changed.
 *
 *      load_chain: full snapshot, then each differential one --> replay_logs: the pushes since
 *
 * A snapshot of another number of servers or shards is loaded into all shards; each selects its
 * own rows. */
#include "trireme/ps.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "ps/snapshot/snapshot.h"
#include "ps/snapshot/snapshot_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* An open folder: all shards in this process. */
struct trm_ps_folder {
    char path[256];
    trm_ps_folder_options options;
    trm_ps_folder_info info;
    trmi_shard **shards; /* [servers * shards] */
    uint32_t count;
    trmi_watch watch;
    int32_t only; /* number of the selected table; -1: all are */
};

/* The selection of one shard from a file. */
typedef struct wish {
    const trm_ps_folder *folder;
    const trmi_shard *shard;
    uint32_t index; /* number of the shard in the job */
    bool sorts;     /* the file may contain rows of other shards */
} wish;

/* Returns whether a row belongs to the shard and to the selected table and key. */
static bool wants_row(void *context, uint32_t table, uint64_t key) {
    const wish *w = context;
    const trm_ps_folder_options *o = &w->folder->options;
    const trm_ps_folder_info *info = &w->folder->info;
    return (!w->sorts ||
            trmi_shard_of_row(&w->shard->tables[table]->options.placement, key,
                              (uint32_t)info->servers, (uint32_t)info->shards) == w->index) &&
           (o->table == NULL || strcmp(w->shard->tables[table]->name, o->table) == 0) &&
           (o->key == NULL || *o->key == key);
}

/* Creates the shards of the job. */
static trm_status make_shards(trm_ps_folder *f, trm_error *err) {
    f->count = (uint32_t)(f->info.servers * f->info.shards);
    TRMI_TRY(TRMI_NEW(err, f->shards, f->count, "for the shards of %s", f->path));
    trmi_row_table_place place = {.shards = f->count, .initial = f->options.initial};
    for (uint32_t i = 0; i < f->count; i++) {
        TRMI_TRY(trmi_shard_create(INT64_MAX / 2, &place, i % (uint32_t)f->info.shards,
                                   &f->shards[i], err));
        f->shards[i]->watch = f->options.key != NULL ? &f->watch : NULL;
    }
    return TRM_OK;
}

/* Loads a file into the shard that wrote it; for a job of another form, into all shards, each of
 * which selects its rows. */
static trm_status load_file(trm_ps_folder *f, const trmi_snapshot_manifest *m, uint32_t writer,
                            const char *path, uint64_t digest, trm_error *err) {
    const bool same =
        (int32_t)m->servers == f->info.servers && (int32_t)m->shards == f->info.shards;
    trmi_snapshot_use use = TRMI_SNAPSHOT_LOAD;
    for (uint32_t i = same ? writer : 0; i < (same ? writer + 1 : f->count); i++) {
        wish w = {f, f->shards[i], i, !same};
        const trmi_snapshot_filter filter = {wants_row, &w};
        int64_t rows = 0;
        TRMI_TRY(trmi_snapshot_load(f->shards[i], path, digest, &filter, use, &rows, err));
        use = TRMI_SNAPSHOT_LOAD_VERIFIED;
    }
    return TRM_OK;
}

/* Loads all files of one snapshot. */
static trm_status load_snapshot(trm_ps_folder *f, const trmi_snapshot_manifest *m, trm_error *err) {
    json_t *files = json_object_get(m->root, "files"), *file;
    size_t i;
    json_array_foreach(files, i, file) {
        json_int_t server = -1, shard = -1;
        const char *digest = NULL;
        char path[400];
        if (json_unpack(file, "{s:I,s:I,s:s}", "server", &server, "shard", &shard, "digest",
                        &digest) != 0 ||
            server < 0 || server >= m->servers || shard < 0 || shard >= m->shards) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: file %zu is no file", m->path, i);
        }
        trmi_snapshot_file_path(f->path, m, (uint32_t)server, (uint32_t)shard, path, sizeof path);
        TRMI_TRY(load_file(f, m, (uint32_t)(server * m->shards + shard), path,
                           strtoull(digest, NULL, 16), err));
    }
    return TRM_OK;
}

/* Loads a snapshot: first the snapshots that it is based on, then itself (recursion over
 * differential snapshots). */
static trm_status load_chain(trm_ps_folder *f, uint32_t snapshot, trm_error *err) {
    trmi_snapshot_manifest m;
    if (snapshot == 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: the full snapshot below snapshot %u is missing",
                         f->path, f->info.snapshot);
    }
    TRMI_TRY(trmi_manifest_read(f->path, snapshot, &m, err));
    trm_status status = TRM_OK;
    if (f->shards == NULL) {
        f->info.servers = (int32_t)m.servers;
        f->info.shards = (int32_t)m.shards;
        f->info.differential = m.differential;
        status = make_shards(f, err);
    }
    if (status == TRM_OK && m.differential) {
        status = load_chain(f, snapshot - 1, err);
    }
    status = status == TRM_OK ? load_snapshot(f, &m, err) : status;
    json_decref(m.root);
    return status;
}

/* Notes the newest log. */
static trm_status note_newest(void *context, const trmi_log_name *log, const char *path,
                              trm_error *err) {
    uint32_t *newest = context;
    (void)path, (void)err;
    *newest = log->snapshot > *newest ? log->snapshot : *newest;
    return TRM_OK;
}

/* Replays the logs of all shards since the snapshot, the last step included. A number between is
 * missing where a server did not begin a snapshot that was given up. Where the log of the snapshot
 * itself is missing, the job made none, or has later snapshots, which need it no more. */
static trm_status replay_logs(trm_ps_folder *f, trm_error *err) {
    uint32_t newest = 0;
    char path[400];
    snprintf(path, sizeof path, "%s/log", f->path);
    TRMI_TRY(access(path, F_OK) == 0 ? trmi_logs_each(f->path, note_newest, &newest, err) : TRM_OK);
    for (uint32_t i = 0; i < f->count; i++) {
        int64_t pushes = 0, valid;
        trmi_log_name log = {i / (uint32_t)f->info.shards, (uint32_t)f->info.servers,
                             i % (uint32_t)f->info.shards, (uint32_t)f->info.shards,
                             f->info.snapshot};
        for (bool any = true; any && log.snapshot <= newest; log.snapshot++) {
            trmi_log_name_path(f->path, &log, path, sizeof path);
            bool here = access(path, F_OK) == 0;
            TRMI_TRY(here ? trmi_shard_replay(f->shards[i], path, &pushes, &valid, err) : TRM_OK);
            any = here || log.snapshot > f->info.snapshot;
        }
        TRMI_TRY(trmi_shard_apply_held(f->shards[i], &pushes, err));
        f->info.logged = i == 0 ? pushes : f->info.logged;
    }
    return TRM_OK;
}

/* Finds the selected table.
 *   errors  INVALID with the names that exist */
static trm_status find_table(trm_ps_folder *f, trm_error *err) {
    const char *name = f->options.table;
    char names[200] = "";
    size_t used = 0;
    f->only = -1;
    for (int32_t t = 0; name != NULL && t < f->info.tables; t++) {
        const char *have = f->shards[0]->tables[t]->name;
        if (strcmp(have, name) == 0) {
            f->only = t;
            return TRM_OK;
        }
        int some = snprintf(names + used, sizeof names - used, "%s%s", t > 0 ? ", " : "", have);
        used += (size_t)some < sizeof names - used ? (size_t)some : 0;
    }
    return name == NULL ? TRM_OK
                        : TRMI_FAIL(err, TRM_INVALID, "%s has no table '%s': there are %s", f->path,
                                    name, names);
}

/* Returns whether a row is one that was asked for. Of other rows the shards have what the logs say
 * of them, without the snapshot. */
static bool is_selected(const trm_ps_folder *f, int32_t table, uint64_t key) {
    return f->only < 0 || (table == f->only && (f->options.key == NULL || key == f->watch.key));
}

/* Contract in trireme/ps.h. With a table or a key only those rows are taken from the snapshot, but
 * all of the logs are replayed. */
trm_status trm_ps_folder_open(const char *path, const trm_ps_folder_options *options,
                              trm_ps_folder **out, trm_error *err) {
    TRMI_NEED(err, path, options, out);
    trm_ps_folder *f = trmi_alloc(sizeof *f);
    trm_status status = TRM_OK;
    uint32_t snapshot = options->snapshot;
    if (f == NULL || strlen(path) >= sizeof f->path) {
        trmi_free(f);
        return TRMI_FAIL(err, f == NULL ? TRM_NOMEM : TRM_INVALID, "%.60s: cannot be opened", path);
    }
    snprintf(f->path, sizeof f->path, "%s", path);
    f->options = *options;
    f->watch = (trmi_watch){.table = options->table == NULL ? "" : options->table,
                            .key = options->key == NULL ? 0 : *options->key};
    if (options->key != NULL && options->table == NULL) {
        status = TRMI_FAIL(err, TRM_INVALID, "a key without a table");
        goto failed;
    }
    /* Take the snapshot of the options, or the newest whose manifest is complete. */
    if (snapshot == 0) {
        TRMI_TRY_GOTO(status, trmi_manifest_newest(path, &snapshot, err), failed);
    }
    if (snapshot == 0) {
        status = TRMI_FAIL(err, TRM_INVALID,
                           "%s holds no checkpoint of parameter servers: MANIFEST-*.json expected",
                           path);
        goto failed;
    }
    /* The last full snapshot, the differential ones since, and what the logs have after them. */
    f->info.snapshot = snapshot;
    TRMI_TRY_GOTO(status, load_chain(f, snapshot, err), failed);
    if (options->logs != TRM_OFF) {
        TRMI_TRY_GOTO(status, replay_logs(f, err), failed);
    }
    f->info.tables = (int32_t)f->shards[0]->table_count;
    f->info.global_step = f->shards[0]->tick;
    TRMI_TRY_GOTO(status, find_table(f, err), failed);
    *out = f;
    return TRM_OK;
failed:
    trm_ps_folder_close(f);
    return status;
}

void trm_ps_folder_close(trm_ps_folder *f) {
    if (f == NULL) {
        return;
    }
    for (uint32_t i = 0; f->shards != NULL && i < f->count; i++) {
        trmi_shard_destroy(f->shards[i]);
    }
    trmi_free(f->shards);
    trmi_free(f);
}

void trm_ps_folder_get_info(const trm_ps_folder *f, trm_ps_folder_info *out) {
    TRMI_NEED_OR(, NULL, f, out);
    *out = f->info;
}

/* Contract in trireme/ps.h. Where one table or one key was asked for, only that was loaded, and
 * only its rows are counted. */
const trm_table_options *trm_ps_folder_table(const trm_ps_folder *f, int32_t table, int64_t *rows,
                                             int32_t *slots) {
    TRMI_NEED_OR(NULL, NULL, f, rows, slots);
    trm_row_info one;
    if (table < 0 || table >= f->info.tables) {
        return NULL;
    }
    *rows = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        trmi_row_table *t = f->shards[i]->tables[table];
        if (f->only < 0 || (table == f->only && f->options.key == NULL)) {
            *rows += t->rows.count;
        } else if (table == f->only) {
            *rows += trmi_row_table_peek(t, f->watch.key, &one, NULL, NULL);
        }
    }
    *slots = f->shards[0]->tables[table]->layout.slot_count;
    return &f->shards[0]->tables[table]->options;
}

/* Contract in trireme/ps.h. The row is on one shard; all are searched. */
trm_status trm_ps_folder_row(const trm_ps_folder *f, int32_t table, uint64_t key,
                             trm_row_info *info, float *values, float *slots, trm_error *err) {
    TRMI_NEED(err, f);
    if (table < 0 || table >= f->info.tables) {
        return TRMI_FAIL(err, TRM_INVALID, "table %d: the folder has %d tables, counted from 0",
                         table, f->info.tables);
    }
    for (uint32_t i = 0; i < f->count && is_selected(f, table, key); i++) {
        if (trmi_row_table_peek(f->shards[i]->tables[table], key, info, values, slots)) {
            return TRM_OK;
        }
    }
    return TRM_END;
}

int32_t trm_ps_folder_writers(const trm_ps_folder *f, trm_ps_writer out[TRM_PS_WRITERS],
                              int64_t *total) {
    TRMI_NEED_OR(0, NULL, f, out, total);
    int32_t count = 0;
    *total = f->watch.count;
    for (int64_t i = f->watch.count; i-- > 0 && count < TRM_PS_WRITERS;) {
        out[count++] = f->watch.last[i % TRM_PS_WRITERS];
    }
    return count;
}

/* Calls `see` for each selected row of a table on one shard. */
static trm_status each_of_shard(const trm_ps_folder *f, uint32_t shard, int32_t number,
                                trm_ps_row_fn see, void *context, float *values, float *slots) {
    trmi_row_table *table = f->shards[shard]->tables[number];
    for (uint32_t p = 0; p < table->rows.page_count; p++) {
        const trmi_rows_page *page = &table->rows.pages[p];
        for (uint32_t i = 0; i < page->places; i++) {
            char *record = trmi_rows_at(&table->rows, page, i);
            trm_row_info info;
            if (record == NULL) {
                continue;
            }
            const uint64_t key = trmi_row_header_of(&table->layout, record)->key;
            if (is_selected(f, number, key) &&
                trmi_row_table_peek(table, key, &info, values, slots)) {
                TRMI_TRY(see(context, &info, values, slots));
            }
        }
    }
    return TRM_OK;
}

/* Contract in trireme/ps.h. */
trm_status trm_ps_folder_each(const trm_ps_folder *f, int32_t table, trm_ps_row_fn see,
                              void *context, trm_error *err) {
    TRMI_NEED(err, f, (const void *)(uintptr_t)see);
    if (table < 0 || table >= f->info.tables) {
        return TRMI_FAIL(err, TRM_INVALID, "table %d: the folder has %d tables, counted from 0",
                         table, f->info.tables);
    }
    const trmi_row_layout *layout = &f->shards[0]->tables[table]->layout;
    float *values = trmi_alloc((size_t)layout->width * sizeof *values);
    float *slots = trmi_alloc(((size_t)layout->slot_count + 1) * sizeof *slots);
    trm_status status = values == NULL || slots == NULL ? TRMI_NO_MEMORY(err, "for a row") : TRM_OK;
    for (uint32_t i = 0; i < f->count && status == TRM_OK; i++) {
        status = each_of_shard(f, i, table, see, context, values, slots);
    }
    trmi_free(values);
    trmi_free(slots);
    return status;
}
