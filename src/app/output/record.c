/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a run (contract and drawing in record.h).
 *
 * A process has at most one record. Threads of the library log while the training reports, so
 * app_record_line may be called by any of them; the main thread alone opens and closes a record. A
 * line that cannot be written is reported once and stops nothing. */
#include "app/output/record.h"

#include "app/options/flags.h"
#include "app/output/json.h"

#include "trireme/io.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(trm_record *) record; /* NULL: none is open */
static atomic_bool failed;           /* a line could not be written */
static int32_t recorded;             /* number of the role whose record is open */

/* ---- opening --------------------------------------------------------------------------------- */

/* Contract in record.h. A new record is opened before the old one is closed, so that an error
 * leaves the old one in use. */
trm_status app_record_open(const char *folder, const char *role, int32_t number, trm_error *err) {
    trm_record *opened;
    trm_status status = trm_record_open(folder, role, number, &opened, err);
    if (status != TRM_OK) {
        return status;
    }
    app_record_close();
    atomic_store(&failed, false);
    recorded = number;
    atomic_store(&record, opened);
    return TRM_OK;
}

void app_record_close(void) { trm_record_close(atomic_exchange(&record, NULL)); }

bool app_record_is_open(void) { return atomic_load(&record) != NULL; }

bool app_record_is_of(int32_t number) { return app_record_is_open() && recorded == number; }

/* ---- lines ----------------------------------------------------------------------------------- */

bool app_record_line(const char *json, size_t bytes) {
    trm_error err;
    trm_record *to = atomic_load(&record);
    return to == NULL || trm_record_line(to, json, bytes, &err) == TRM_OK ||
           atomic_exchange(&failed, true);
}

/* Contract in record.h. A line that cannot be written is left out: training reports that. */
void app_record_log(const char *level, const char *room, const char *text) {
    char *line = app_record_is_open()
                     ? app_object(app_text("event", "log", NULL), app_text("level", level, NULL),
                                  app_text("room", room, NULL), app_text("text", text, NULL))
                     : NULL;
    if (line != NULL) {
        (void)app_record_line(line, strlen(line));
    }
    free(line);
}
