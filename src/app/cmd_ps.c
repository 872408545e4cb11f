/* `ps inspect` and `ps export`: what parameter servers have kept in a folder. */
#include "app/cmd_ps.h"

#include "trireme/save.h"
#include "trireme/save_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

const char *app_ps_rule_name(trm_row_rule rule) {
    static const char *const names[] = {"?",    "sgd",       "momentum", "adagrad", "rowwise_adagrad",
                                        "adam", "lazy_adam", "ftrl"};
    return rule >= TRM_ROW_SGD && rule <= TRM_ROW_FTRL ? names[rule] : names[0];
}

/* Keys are numbers of 64 bits: decimal, or 0x and hexadecimal. */
static trm_status read_key(const char *text, uint64_t *key, trm_error *err) {
    char *end;
    errno = 0;
    *key = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-'
               ? TRM_OK
               : app_fail(err, TRM_INVALID, "--key %s: a number from 0 to 2^64 - 1 expected", text);
}

static trm_status open_folder(app_context *app, const uint64_t *key, trm_ps_folder **out,
                              trm_error *err) {
    const app_options *o = &app->o;
    const trm_ps_folder_options options = {.cut = (uint32_t)o->cut, .table = o->table, .key = key};
    return trm_ps_folder_open(app->parsed.arguments[0], &options, out, err);
}

static int32_t find_table(const trm_ps_folder *folder, const char *name) {
    int64_t rows;
    int32_t slots, t = 0;
    const trm_table_options *o;
    while ((o = trm_ps_folder_table(folder, t, &rows, &slots)) != NULL && strcmp(o->name, name) != 0) {
        t++;
    }
    return t;
}

static void tell_folder(const trm_ps_folder *folder, const char *path, const char *only) {
    trm_ps_folder_info i;
    trm_ps_folder_get_info(folder, &i);
    app_say("%s: checkpoint %u%s of %d servers with %d shards each, global step %lld (%lld pushes from logs)\n",
            path, i.cut, i.differential ? " (differential)" : "", i.servers, i.shards,
            (long long)i.global_step, (long long)i.logged);
    for (int32_t t = 0; t < i.tables; t++) {
        int64_t rows;
        int32_t slots;
        const trm_table_options *o = trm_ps_folder_table(folder, t, &rows, &slots);
        if (only != NULL && strcmp(only, o->name) != 0) {
            continue;
        }
        app_say("  %-32s %12lld rows of %d x %s, %s, %d slots\n", o->name, (long long)rows, o->width,
                trm_dtype_name(o->dtype), app_ps_rule_name(o->optimizer.rule), slots);
        app_json_open();
        app_json_text("table", o->name);
        app_json_int("rows", rows);
        app_json_int("width", o->width);
        app_json_text("dtype", trm_dtype_name(o->dtype));
        app_json_text("rule", app_ps_rule_name(o->optimizer.rule));
        app_json_int("slots", slots);
        app_json_int("cut", i.cut);
        app_json_int("global_step", i.global_step);
        app_json_close();
    }
}

static void say_numbers(const char *what, const float *values, int32_t count) {
    if (app_out.json) {
        app_json_open_array(what);
        for (int32_t i = 0; i < count; i++) {
            app_json_open_item();
            app_json_real("value", values[i]);
            app_json_close_item();
        }
        app_json_close_array();
        return;
    }
    app_say("  %s", what);
    for (int32_t i = 0; i < count; i++) {
        app_say("%s%.9g", i % 8 == 0 ? "\n    " : " ", (double)values[i]);
    }
    app_say("%s\n", count == 0 ? " none" : "");
}

static void say_writers(const trm_ps_writer *writers, int32_t count, const int64_t *total) {
    if (total != NULL) {
        app_say("  %lld pushes of the logs changed it%s\n", (long long)*total,
                count > 0 ? ", the last first:" : " (older ones are in the checkpoint)");
    } else {
        app_say("  changed last %s\n", count > 0 ? "by" : "by a push that is no longer remembered");
    }
    app_json_open_array("last_writers");
    for (int32_t i = 0; i < count; i++) {
        const trm_ps_writer *w = &writers[i];
        app_say("    worker %u (incarnation %u), its push %llu, tick %u of the shard\n", w->worker,
                w->incarnation, (unsigned long long)w->sequence, w->tick);
        app_json_open_item();
        app_json_int("worker", w->worker);
        app_json_int("incarnation", w->incarnation);
        app_json_int("sequence", (int64_t)w->sequence);
        app_json_int("tick", w->tick);
        app_json_close_item();
    }
    app_json_close_array();
}

void app_ps_say_row(const trm_table_options *table, int32_t slot_count, const trm_row_info *info,
                    const float *values, const float *slots, const trm_ps_writer *writers, int32_t count,
                    const int64_t *total) {
    char when[32] = "";
    time_t at = info->last_time;
    struct tm parts;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&at, &parts));
    app_say("%s, key %llu: %u updates, version %u, last at tick %u, %s UTC%s\n", table->name,
            (unsigned long long)info->key, info->count, info->version, info->last_tick, when,
            info->spilled ? ", spilled" : "");
    app_json_open();
    app_json_text("table", table->name);
    app_json_int("key", (int64_t)info->key);
    app_json_int("updates", info->count);
    app_json_int("version", info->version);
    app_json_int("last_tick", info->last_tick);
    app_json_int("last_time", info->last_time);
    app_json_real("score", info->score);
    say_numbers("values", values, table->width);
    say_numbers("slots", slots, slot_count);
    say_writers(writers, count, total);
    app_json_close();
}

trm_status app_ps_no_row(const char *table, uint64_t key, trm_error *err) {
    return app_fail(err, TRM_INVALID,
                    "table '%s' has no row of key %llu: it was never pushed, not admitted, or has left",
                    table, (unsigned long long)key);
}

static trm_status tell_row(const trm_ps_folder *folder, const char *table, uint64_t key, trm_error *err) {
    int64_t rows, total;
    int32_t slots, number = find_table(folder, table);
    const trm_table_options *o = trm_ps_folder_table(folder, number, &rows, &slots);
    float *values = calloc((size_t)o->width, sizeof *values);
    float *slot = calloc((size_t)slots + 1, sizeof *slot);
    trm_row_info info;
    trm_status status = values == NULL || slot == NULL
                            ? app_fail(err, TRM_NOMEM, "no memory for a row")
                            : trm_ps_folder_row(folder, number, key, &info, values, slot, err);
    if (status == TRM_END) {
        status = app_ps_no_row(table, key, err);
    }
    if (status == TRM_OK) {
        trm_ps_writer writers[TRM_PS_WRITERS];
        int32_t count = trm_ps_folder_writers(folder, writers, &total);
        app_ps_say_row(o, slots, &info, values, slot, writers, count, &total);
    }
    free(values);
    free(slot);
    return status;
}

/* A folder, or else HOST:PORT,... of servers that run. */
static bool names_servers(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 && strchr(path, ':') != NULL;
}

int app_run_ps_inspect(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    uint64_t key = 0;
    trm_ps_folder *folder = NULL;
    trm_status status = o->key == NULL ? TRM_OK : read_key(o->key, &key, &err);
    if (status == TRM_OK && o->key != NULL && o->table == NULL) {
        status = app_fail(&err, TRM_INVALID, "--key %s: --table says of which table", o->key);
    }
    if (status == TRM_OK && names_servers(app->parsed.arguments[0])) {
        status = app_ps_inspect_servers(app, app->parsed.arguments[0], o->key == NULL ? NULL : &key, &err);
        return status == TRM_OK ? 0 : app_report(&err);
    }
    if (status == TRM_OK) {
        status = open_folder(app, o->key == NULL ? NULL : &key, &folder, &err);
    }
    if (status == TRM_OK && o->key != NULL) {
        status = tell_row(folder, o->table, key, &err);
    } else if (status == TRM_OK) {
        tell_folder(folder, app->parsed.arguments[0], o->table);
    }
    trm_ps_folder_close(folder);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- export ------------------------------------------------------------------------------------ */

typedef struct columns {
    int64_t count;
    int32_t width, slot_count;
    int64_t *keys, *updates;
    float *values, *slots;
} columns;

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

static trm_status write_columns(const columns *c, const char *path, trm_error *err) {
    const trm_named_tensor all[] = {
        {"keys", {.data = c->keys, .dtype = TRM_INT64, .shape = {.rank = 1, .dim = {c->count}}}},
        {"values",
         {.data = c->values, .dtype = TRM_FLOAT32, .shape = {.rank = 2, .dim = {c->count, c->width}}}},
        {"updates", {.data = c->updates, .dtype = TRM_INT64, .shape = {.rank = 1, .dim = {c->count}}}},
        {"slots",
         {.data = c->slots, .dtype = TRM_FLOAT32, .shape = {.rank = 2, .dim = {c->count, c->slot_count}}}}};
    int64_t count = c->slot_count > 0 ? 4 : 3;
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".npz") == 0) {
        return trm_npz_write(path, all, count, err);
    }
    if (length > 12 && strcmp(path + length - 12, ".safetensors") == 0) {
        return trm_safetensors_write(path, all, count, NULL, 0, err);
    }
    return app_fail(err, TRM_INVALID, "--output %s: a name that ends in .npz or .safetensors expected", path);
}

int app_run_ps_export(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    trm_ps_folder *folder = NULL;
    columns c = {0};
    int64_t rows = 0;
    trm_status status = o->table == NULL || o->output == NULL
                            ? app_fail(&err, TRM_INVALID, "ps export needs --table T and --output FILE")
                            : open_folder(app, NULL, &folder, &err);
    if (status == TRM_OK) {
        int32_t number = find_table(folder, o->table);
        c.width = trm_ps_folder_table(folder, number, &rows, &c.slot_count)->width;
        c.keys = calloc((size_t)rows + 1, sizeof *c.keys);
        c.updates = calloc((size_t)rows + 1, sizeof *c.updates);
        c.values = calloc((size_t)(rows + 1) * (size_t)c.width, sizeof *c.values);
        c.slots = calloc((size_t)(rows + 1) * (size_t)(c.slot_count + 1), sizeof *c.slots);
        status = c.keys == NULL || c.updates == NULL || c.values == NULL || c.slots == NULL
                     ? app_fail(&err, TRM_NOMEM, "no memory for %lld rows", (long long)rows)
                     : trm_ps_folder_each(folder, number, see_row, &c, &err);
    }
    status = status == TRM_OK ? write_columns(&c, o->output, &err) : status;
    if (status == TRM_OK) {
        app_say("%s: %lld rows of table %s (keys, values, updates%s)\n", o->output, (long long)c.count,
                o->table, c.slot_count > 0 ? ", slots" : "");
    }
    trm_ps_folder_close(folder);
    free(c.keys);
    free(c.updates);
    free(c.values);
    free(c.slots);
    return status == TRM_OK ? 0 : app_report(&err);
}
