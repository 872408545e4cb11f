/* SPDX-License-Identifier: Apache-2.0 */
/* A table of parameter servers, or a row of it, as text or JSON: shared by folders and running
 * servers (contracts in cmd_ps.h). */
#include "app/commands/cmd_ps.h"

#include <time.h>

/* Returns the name of a rule ("adagrad"), as --tables has it. */
static const char *rule_name(trm_optimizer_kind kind) {
    const app_word *w = app_optimizers;
    while (w->name != NULL && w->value != (int)kind) {
        w++;
    }
    return w->name == NULL ? "?" : w->name;
}

/* Contract in cmd_ps.h. */
void app_ps_begin_table(const trm_table_options *table, int64_t rows, int32_t slots) {
    app_begin(APP_RESULT, NULL, NULL);
    app_put(app_text("table", table->name, "  %-32s"), app_int("rows", rows, " %12d rows"),
            app_int("width", table->width, " of %d"),
            app_text("dtype", trm_dtype_name(table->dtype), " x %s"),
            app_text("rule", rule_name(table->optimizer.kind), ", %s"),
            app_int("slots", slots, ", %d slots"));
}

/* Puts the numbers of a row, in text eight per line. */
static void put_numbers(const char *what, const float *values, int32_t count) {
    app_put(app_text(NULL, what, "\n  %s"), app_words(count == 0 ? " none" : ""));
    app_open_array(what);
    for (int32_t i = 0; i < count; i++) {
        app_open_item();
        app_put(app_real("value", (double)values[i], i % 8 == 0 ? "\n    %.9g" : " %.9g"));
        app_close();
    }
    app_close();
}

/* Puts the pushes that changed a row last. */
static void put_writers(const app_ps_row *row) {
    int32_t count = row->writer_count;
    if (row->pushes != NULL) {
        app_put(app_int(NULL, *row->pushes, "\n  %d pushes of the logs changed it"),
                app_words(count > 0 ? ", the last first:" : " (older ones are in the checkpoint)"));
    } else {
        app_put(app_words(count > 0 ? "\n  changed last by"
                                    : "\n  changed last by a push that is no longer remembered"));
    }
    app_open_array("last_writers");
    for (int32_t i = 0; i < count; i++) {
        const trm_ps_writer *w = &row->writers[i];
        app_open_item();
        app_put(app_int("worker", w->worker, "\n    worker %d"),
                app_int("incarnation", w->incarnation, " (incarnation %d)"),
                app_int("sequence", (int64_t)w->sequence, ", its push %d"),
                app_int("tick", w->tick, ", tick %d of the shard"));
        app_close();
    }
    app_close();
}

/* Contract in cmd_ps.h. Times are UTC, so that rows of several machines compare. */
void app_ps_print_row(const app_ps_row *row) {
    const trm_row_info *info = row->info;
    char when[32] = "";
    time_t at = info->last_time;
    struct tm parts;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&at, &parts));
    app_begin(APP_RESULT, NULL, NULL);
    app_put(app_text("table", row->table->name, "%s"),
            app_int("key", (int64_t)info->key, ", key %u"),
            app_int("updates", info->count, ": %d updates"),
            app_int("version", info->version, ", version %d"),
            app_int("last_tick", info->last_tick, ", last at tick %d"),
            app_int("last_time", info->last_time, NULL), app_text(NULL, when, ", %s UTC"),
            app_real("score", info->score, NULL), app_words(info->spilled ? ", spilled" : ""));
    put_numbers("values", row->values, row->table->width);
    put_numbers("slots", row->slots, row->slot_count);
    put_writers(row);
    app_end();
}

trm_status app_ps_no_row(const char *table, uint64_t key, trm_error *err) {
    return app_fail(
        err, TRM_INVALID,
        "table '%s' has no row of key %llu: it was never pushed, not admitted, or has left", table,
        (unsigned long long)key);
}
