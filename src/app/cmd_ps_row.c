/* SPDX-License-Identifier: Apache-2.0 */
/* A table of parameter servers, or a row of it, as text or JSON: shared by folders and running
 * servers (contracts in cmd_ps.h). */
#include "app/cmd_ps.h"

#include <time.h>

/* Returns the name of a rule ("adagrad"), as --tables has it. */
static const char *rule_name(trm_row_rule rule) {
    static const char *const names[] = {
        "?", "sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "lazy_adam", "ftrl"};
    return rule >= TRM_ROW_SGD && rule <= TRM_ROW_FTRL ? names[rule] : names[0];
}

/* Contract in cmd_ps.h. Text and JSON are written side by side; only one of them is printed. */
void app_ps_begin_table(const trm_table_options *table, int64_t rows, int32_t slots) {
    const char *rule = rule_name(table->optimizer.rule), *dtype = trm_dtype_name(table->dtype);
    app_print("  %-32s %12lld rows of %d x %s, %s, %d slots", table->name, (long long)rows,
              table->width, dtype, rule, slots);
    app_json_open();
    app_json_text("table", table->name);
    app_json_int("rows", rows);
    app_json_int("width", table->width);
    app_json_text("dtype", dtype);
    app_json_text("rule", rule);
    app_json_int("slots", slots);
}

/* Prints the numbers of a row, eight per line, or as a JSON array. */
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
    app_print("  %s", what);
    for (int32_t i = 0; i < count; i++) {
        app_print("%s%.9g", i % 8 == 0 ? "\n    " : " ", (double)values[i]);
    }
    app_print("%s\n", count == 0 ? " none" : "");
}

/* Prints the pushes that changed a row last. */
static void say_writers(const trm_ps_writer *writers, int32_t count, const int64_t *total) {
    if (total != NULL) {
        app_print("  %lld pushes of the logs changed it%s\n", (long long)*total,
                  count > 0 ? ", the last first:" : " (older ones are in the checkpoint)");
    } else {
        app_print("  changed last %s\n",
                  count > 0 ? "by" : "by a push that is no longer remembered");
    }
    app_json_open_array("last_writers");
    for (int32_t i = 0; i < count; i++) {
        const trm_ps_writer *w = &writers[i];
        app_print("    worker %u (incarnation %u), its push %llu, tick %u of the shard\n",
                  w->worker, w->incarnation, (unsigned long long)w->sequence, w->tick);
        app_json_open_item();
        app_json_int("worker", w->worker);
        app_json_int("incarnation", w->incarnation);
        app_json_int("sequence", (int64_t)w->sequence);
        app_json_int("tick", w->tick);
        app_json_close_item();
    }
    app_json_close_array();
}

/* Contract in cmd_ps.h. Times are UTC, so that rows of several machines compare. */
void app_ps_say_row(const trm_table_options *table, int32_t slot_count, const trm_row_info *info,
                    const float *values, const float *slots, const trm_ps_writer *writers,
                    int32_t count, const int64_t *total) {
    char when[32] = "";
    time_t at = info->last_time;
    struct tm parts;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&at, &parts));
    app_print("%s, key %llu: %u updates, version %u, last at tick %u, %s UTC%s\n", table->name,
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
    return app_fail(
        err, TRM_INVALID,
        "table '%s' has no row of key %llu: it was never pushed, not admitted, or has left", table,
        (unsigned long long)key);
}
