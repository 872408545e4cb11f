/* SPDX-License-Identifier: Apache-2.0 */
/* ps inspect and ps export: the content of parameter servers' folders. A folder is read as a
 * restart would: the checkpoint, then the logs since. Running servers are in cmd_ps_live.c.
 *
 *   inspect   tables, one row (--key), or the rows with the most updates (--top)
 *   export    all rows of one table as arrays: .npz or .safetensors, by the file's ending
 *
 * Neither changes the folder. Rows that only the logs create need the initial values of the job;
 * where the job's file is missing, a warning says so. */
#include "app/commands/cmd_ps.h"

#include "trireme/train.h"
#include "trireme/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Parses a key: 64 bits, decimal, or hexadecimal with 0x.
 *   errors  INVALID */
static trm_status read_key(const char *text, uint64_t *key, trm_error *err) {
    char *end;
    errno = 0;
    *key = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-'
               ? TRM_OK
               : app_fail(err, TRM_INVALID, "--key %s: a number from 0 to 2^64 - 1 expected", text);
}

/* Returns the servers' folder: `path` itself, or the folder ps in a job's model_dir. */
static const char *folder_of(const char *path) {
    static char below[4096];
    struct stat info;
    snprintf(below, sizeof below, "%s/ps", path);
    return stat(below, &info) == 0 && S_ISDIR(info.st_mode) ? below : path;
}

/* Opens the folder of the command line. Rows that the logs create need the initial values that
 * the job wrote; without them a warning says that their values are wrong. */
static trm_status open_folder(app_context *app, const uint64_t *key, trm_ps_folder **out,
                              trm_error *err) {
    const app_options *o = &app->o;
    const char *path = folder_of(app->parsed.arguments[0]);
    trm_ps_folder_options options = {
        .snapshot = (uint32_t)o->snapshot, .table = o->table, .key = key};
    trm_error why;
    if (trm_ps_initial_open(path, &options.initial, &why) != TRM_OK) {
        app_warn("rows that were made since the checkpoint have the wrong values here: %s",
                 why.message);
    }
    /* opening creates all rows of the logs, so the initial values are no longer needed */
    trm_status status = trm_ps_folder_open(path, &options, out, err);
    trm_ps_initial_close(&options.initial);
    return status;
}

/* Returns the number of the table `name`; the folder was opened with it. */
static int32_t find_table(const trm_ps_folder *folder, const char *name) {
    int64_t rows;
    int32_t slots, t = 0;
    const trm_table_options *o;
    while ((o = trm_ps_folder_table(folder, t, &rows, &slots)) != NULL &&
           strcmp(o->name, name) != 0) {
        t++;
    }
    return t;
}

/* Prints the checkpoint and all tables, or one of them. */
static void tell_folder(const trm_ps_folder *folder, const char *path, const char *only) {
    trm_ps_folder_info i;
    trm_ps_folder_get_info(folder, &i);
    app_print("%s: snapshot %u%s of %d servers with %d shards each, global step %lld (%lld pushes "
              "from logs)\n",
              path, i.snapshot, i.differential ? " (differential)" : "", i.servers, i.shards,
              (long long)i.global_step, (long long)i.logged);
    for (int32_t t = 0; t < i.tables; t++) {
        int64_t rows;
        int32_t slots;
        const trm_table_options *o = trm_ps_folder_table(folder, t, &rows, &slots);
        if (only != NULL && strcmp(only, o->name) != 0) {
            continue;
        }
        app_ps_begin_table(o, rows, slots);
        app_put(app_int("snapshot", i.snapshot, NULL), app_int("global_step", i.global_step, NULL));
        app_end();
    }
}

/* Prints one row with the last pushes to it. */
static trm_status tell_row(const trm_ps_folder *folder, const char *table, uint64_t key,
                           trm_error *err) {
    int64_t rows, total;
    int32_t slots, number = find_table(folder, table);
    const trm_table_options *o = trm_ps_folder_table(folder, number, &rows, &slots);
    float *values = calloc((size_t)o->width, sizeof *values);
    float *slot = calloc((size_t)slots + 1, sizeof *slot);
    trm_row_info info;
    trm_status status = values == NULL || slot == NULL
                            ? app_no_memory(err, "for a row")
                            : trm_ps_folder_row(folder, number, key, &info, values, slot, err);
    if (status == TRM_END) {
        status = app_ps_no_row(table, key, err);
    }
    if (status == TRM_OK) {
        trm_ps_writer writers[TRM_PS_WRITERS];
        int32_t count = trm_ps_folder_writers(folder, writers, &total);
        app_ps_print_row(&(app_ps_row){.table = o,
                                       .info = &info,
                                       .values = values,
                                       .slots = slot,
                                       .slot_count = slots,
                                       .writers = writers,
                                       .writer_count = count,
                                       .pushes = &total});
    }
    free(values);
    free(slot);
    return status;
}

/* ---- the hottest rows ------------------------------------------------------------------------ */

/* The rows with the most updates so far, and the totals of the table. */
typedef struct hot_rows {
    trm_row_info *rows; /* [count], most updates first */
    int64_t count, capacity, seen, updates;
} hot_rows;

/* Inserts a row at its place if it belongs to the hottest; for trm_ps_folder_each. */
static trm_status see_hot(void *context, const trm_row_info *info, const float *values,
                          const float *slots) {
    hot_rows *h = context;
    (void)values;
    (void)slots;
    h->seen++;
    h->updates += info->count;
    if (h->count == h->capacity && info->count <= h->rows[h->count - 1].count) {
        return TRM_OK;
    }
    int64_t at = h->count < h->capacity ? h->count++ : h->count - 1;
    for (; at > 0 && h->rows[at - 1].count < info->count; at--) {
        h->rows[at] = h->rows[at - 1];
    }
    h->rows[at] = *info;
    return TRM_OK;
}

/* Prints the hottest rows with the share of updates up to each. */
static void say_hot(const hot_rows *h, const char *table) {
    int64_t sum = 0;
    for (int64_t i = 0; i < h->count; i++) {
        sum += h->rows[i].count;
        double share = h->updates > 0 ? (double)sum / (double)h->updates : 0;
        app_tell(APP_RESULT, NULL, NULL, app_text("table", table, "%s"),
                 app_int("key", (int64_t)h->rows[i].key, ", key %20u"),
                 app_int("updates", h->rows[i].count, ": %10d updates"),
                 app_int(NULL, i + 1, "; the first %d have"),
                 app_real("share_so_far", share, " %.2f{100} %% of all"));
    }
    app_print("%s: %lld rows, %lld updates\n", table, (long long)h->seen, (long long)h->updates);
}

/* Prints the `top` rows with the most updates. */
static trm_status tell_hot(const trm_ps_folder *folder, const char *table, int64_t top,
                           trm_error *err) {
    hot_rows h = {.rows = calloc((size_t)top, sizeof *h.rows), .capacity = top};
    trm_status status =
        h.rows == NULL ? app_no_memory(err, "for %lld rows", (long long)top)
                       : trm_ps_folder_each(folder, find_table(folder, table), see_hot, &h, err);
    if (status == TRM_OK) {
        say_hot(&h, table);
    }
    free(h.rows);
    return status;
}

/* Returns whether the argument means running servers: no such file, and a colon in it. */
static bool names_servers(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 && strchr(path, ':') != NULL;
}

/* Runs `ps inspect`: prints servers, a row, the hottest rows, or the tables of a folder, as the
 * flags say. */
int app_run_ps_inspect(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    uint64_t key = 0;
    trm_ps_folder *folder = NULL;
    trm_status status = o->key == NULL ? TRM_OK : read_key(o->key, &key, &err);
    /* Check flags that need others. */
    if (status == TRM_OK && o->key != NULL && o->table == NULL) {
        status = app_fail(&err, TRM_INVALID, "--key %s: --key needs --table", o->key);
    }
    if (status == TRM_OK && o->top > 0 &&
        (o->table == NULL || o->key != NULL || names_servers(app->parsed.arguments[0]))) {
        status = app_fail(&err, TRM_INVALID,
                          "--top %lld: of one table (--table) in a folder, without --key",
                          (long long)o->top);
    }
    if (status == TRM_OK && o->prometheus &&
        (app_out.json || o->key != NULL || !names_servers(app->parsed.arguments[0]))) {
        status =
            app_fail(&err, TRM_INVALID,
                     "--prometheus: of running servers (HOST:PORT,...), without --key and --json");
    }
    /* Read running servers, or a folder. */
    if (status == TRM_OK && names_servers(app->parsed.arguments[0])) {
        status = app_ps_inspect_servers(app, app->parsed.arguments[0], o->key == NULL ? NULL : &key,
                                        &err);
        return status == TRM_OK ? 0 : app_report(&err);
    }
    if (status == TRM_OK) {
        status = open_folder(app, o->key == NULL ? NULL : &key, &folder, &err);
    }
    if (status == TRM_OK && o->key != NULL) {
        status = tell_row(folder, o->table, key, &err);
    } else if (status == TRM_OK && o->top > 0) {
        status = tell_hot(folder, o->table, o->top, &err);
    } else if (status == TRM_OK) {
        tell_folder(folder, app->parsed.arguments[0], o->table);
    }
    trm_ps_folder_close(folder);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- export ---------------------------------------------------------------------------------- */

/* All rows of a table as arrays, in the order of the folder. */
typedef struct columns {
    int64_t count;           /* rows so far */
    int32_t width;           /* floats of a row */
    int32_t slot_count;      /* floats of a row's slots, all of them together */
    int64_t *keys, *updates; /* [count]; updates: of the row since it was made */
    float *values, *slots;   /* [count, width], [count, slot_count] */
} columns;

/* Appends a row; for trm_ps_folder_each. */
static trm_status see_row(void *context, const trm_row_info *info, const float *values,
                          const float *slots) {
    columns *c = context;
    c->keys[c->count] = (int64_t)info->key;
    c->updates[c->count] = info->count;
    memcpy(c->values + c->count * c->width, values, (size_t)c->width * sizeof *values);
    memcpy(c->slots + c->count * c->slot_count, slots, (size_t)c->slot_count * sizeof *slots);
    c->count++;
    return TRM_OK;
}

/* Writes the arrays in the form that the file's ending names.
 *   errors  INVALID, IO */
static trm_status write_columns(const columns *c, const char *path, trm_error *err) {
    const trm_named_tensor all[] = {
        {"keys", {.data = c->keys, .dtype = TRM_INT64, .shape = {.rank = 1, .dim = {c->count}}}},
        {"values",
         {.data = c->values,
          .dtype = TRM_FLOAT32,
          .shape = {.rank = 2, .dim = {c->count, c->width}}}},
        {"updates",
         {.data = c->updates, .dtype = TRM_INT64, .shape = {.rank = 1, .dim = {c->count}}}},
        {"slots",
         {.data = c->slots,
          .dtype = TRM_FLOAT32,
          .shape = {.rank = 2, .dim = {c->count, c->slot_count}}}}};
    int64_t count = c->slot_count > 0 ? 4 : 3;
    if (app_ends_in(path, ".npz")) {
        return trm_npz_write(path, all, count, err);
    }
    if (app_ends_in(path, ".safetensors")) {
        return trm_safetensors_write(path, all, count, NULL, 0, err);
    }
    return app_fail(err, TRM_INVALID,
                    "--output %s: a name that ends in .npz or .safetensors expected", path);
}

/* Runs `ps export`: writes one table as arrays. */
int app_run_ps_export(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    trm_ps_folder *folder = NULL;
    columns c = {0};
    int64_t rows = 0;
    trm_status status =
        o->table == NULL || o->output == NULL
            ? app_fail(&err, TRM_INVALID, "ps export needs --table T and --output FILE")
            : open_folder(app, NULL, &folder, &err);
    if (status == TRM_OK) {
        int32_t number = find_table(folder, o->table);
        /* room for all rows of the table, then one pass over them */
        c.width = trm_ps_folder_table(folder, number, &rows, &c.slot_count)->width;
        c.keys = calloc((size_t)rows + 1, sizeof *c.keys);
        c.updates = calloc((size_t)rows + 1, sizeof *c.updates);
        c.values = calloc((size_t)(rows + 1) * (size_t)c.width, sizeof *c.values);
        c.slots = calloc((size_t)(rows + 1) * (size_t)(c.slot_count + 1), sizeof *c.slots);
        status = c.keys == NULL || c.updates == NULL || c.values == NULL || c.slots == NULL
                     ? app_no_memory(&err, "for %lld rows", (long long)rows)
                     : trm_ps_folder_each(folder, number, see_row, &c, &err);
    }
    status = status == TRM_OK ? write_columns(&c, o->output, &err) : status;
    if (status == TRM_OK) {
        app_print("%s: %lld rows of table %s (keys, values, updates%s)\n", o->output,
                  (long long)c.count, o->table, c.slot_count > 0 ? ", slots" : "");
    }
    trm_ps_folder_close(folder);
    free(c.keys);
    free(c.updates);
    free(c.values);
    free(c.slots);
    return status == TRM_OK ? 0 : app_report(&err);
}
