/* SPDX-License-Identifier: Apache-2.0 */
/* links.txt, the file of network figures: parsing, writing, and the agreement of all ranks on them.
 *
 *   CLUSTER (SHA-256)  ENGINE  seconds of a round, of a byte, ...      one line, the newest last
 *
 * Rank 0 alone reads and writes the file and gives the figures to all: ranks with different figures
 * would choose different algorithms and wait for each other for ever. Figures that no machine can
 * have are ignored, as the file may be of another version. A file that cannot be written is logged;
 * the figures are then measured again next time. */
#include "comm/schedule/calibration.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 256, FILE_BYTES = 1 << 20 }; /* longest line, longest file */

/* One line of the file. */
typedef struct link_line {
    char cluster[65], engine[32]; /* cluster: SHA-256 in hexadecimal */
    trmi_model model;
} link_line;

/* Writes the digest in hexadecimal. */
static void write_hex(const uint8_t cluster[32], char text[65]) {
    for (int i = 0; i < 32; i++) {
        snprintf(text + 2 * i, 3, "%02x", cluster[i]);
    }
}

/* Returns true for figures that a machine can have: a round of 10 ns to 10 s, 1 KB/s to 10 TB/s. */
static bool is_plausible(const trmi_model *m) {
    return isfinite(m->alpha) && m->alpha >= 1e-8 && m->alpha <= 10 && isfinite(m->beta) &&
           m->beta >= 1e-13 && m->beta <= 1e-3 && isfinite(m->gamma) && m->gamma >= 1e-13 &&
           m->gamma <= 1e-3;
}

/* Parses the line at *at and advances *at past it. Returns false if it has another form. */
static bool read_line(const char **at, link_line *out) {
    char line[LINE_BYTES];
    size_t length = strcspn(*at, "\n");
    bool whole = length < sizeof line;
    if (whole) {
        memcpy(line, *at, length);
        line[length] = '\0';
    }
    *at += length;
    *at += **at != '\0';
    return whole &&
           sscanf(line, "%64s %31s %lf %lf %lf", out->cluster, out->engine, &out->model.alpha,
                  &out->model.beta, &out->model.gamma) == 5 &&
           strlen(out->cluster) == 64 && is_plausible(&out->model);
}

/* Returns whether a line is that of a cluster and an engine. */
static bool is_for(const link_line *line, const char *cluster, const char *engine) {
    return strcmp(line->cluster, cluster) == 0 && strcmp(line->engine, engine) == 0;
}

bool trmi_links_find(const char *text, const uint8_t cluster[32], const char *engine,
                     trmi_model *out) {
    char wanted[65];
    link_line line;
    write_hex(cluster, wanted);
    while (*text != '\0') {
        if (read_line(&text, &line) && is_for(&line, wanted, engine)) {
            *out = line.model;
            return true;
        }
    }
    return false;
}

/* Appends a line. */
static void put_line(trmi_text *out, const char *cluster, const char *engine, const trmi_model *m) {
    trmi_text_printf(out, "%s %s %.9g %.9g %.9g\n", cluster, engine, m->alpha, m->beta, m->gamma);
}

trm_status trmi_links_put(const char *text, const uint8_t cluster[32], const char *engine,
                          const trmi_model *model, trmi_text *out, trm_error *err) {
    char wanted[65];
    link_line line;
    int others = 0;
    write_hex(cluster, wanted);
    for (const char *at = text; *at != '\0';) {
        others += read_line(&at, &line) && !is_for(&line, wanted, engine);
    }
    /* The oldest lines are at the front: skip those beyond the limit. */
    int passed_over = others - (TRMI_LINKS_MAX - 1);
    for (const char *at = text; *at != '\0';) {
        if (read_line(&at, &line) && !is_for(&line, wanted, engine) && passed_over-- <= 0) {
            put_line(out, line.cluster, line.engine, &line.model);
        }
    }
    put_line(out, wanted, engine, model);
    return TRMI_CHECK_MEMORY(err, out, "for the figures of networks");
}

/* --- agreement of the ranks --- */

/* Writes the path of links.txt; false if there is no cache folder. */
static bool file_path(char *path, size_t size) {
    if (!trmi_os_cache_dir(path, size - 16)) {
        return false;
    }
    strcat(path, "/links.txt");
    return true;
}

/* Reads this cluster's figures from the file; false if it has none. */
static bool find_kept(const trmi_transport *transport, trmi_model *out) {
    char path[512];
    uint8_t *text = NULL;
    size_t bytes;
    if (!file_path(path, sizeof path) ||
        trmi_os_read_file(path, FILE_BYTES, &text, &bytes, NULL) != TRM_OK) {
        return false;
    }
    bool found = trmi_links_find((const char *)text, transport->group.bootstrap->cluster,
                                 transport->table->name, out);
    trmi_free(text);
    return found;
}

/* Writes this cluster's figures into the file. A failure is logged, not returned. */
static void keep_figures(const trmi_transport *transport, const trmi_model *model) {
    char path[512];
    uint8_t *text = NULL;
    size_t bytes;
    trm_error err = {.status = TRM_OK};
    trmi_text out = {0};
    if (!file_path(path, sizeof path) || !is_plausible(model)) {
        return;
    }
    (void)trmi_os_read_file(path, FILE_BYTES, &text, &bytes, NULL); /* the file may not exist yet */
    trm_status status =
        trmi_links_put(text != NULL ? (const char *)text : "", transport->group.bootstrap->cluster,
                       transport->table->name, model, &out, &err);
    if (status == TRM_OK) {
        status = trmi_os_replace_file(NULL, path, out.data, strlen(out.data), &err);
    }
    if (status != TRM_OK) {
        trmi_log(TRM_LOG_DEBUG, "comm", "the network's figures are not kept: %s", err.message);
    }
    trmi_text_free(&out);
    trmi_free(text);
}

/* Logs the figures and where they come from. */
static void log_figures(const trmi_transport *transport, const trmi_model *m, const char *how) {
    trmi_log(TRM_LOG_DEBUG, "comm", "%s, %s: %.3g us a round, %.3g GB/s, sums %.3g GB/s",
             transport->table->name, how, 1e6 * m->alpha, 1e-9 / m->beta, 1e-9 / m->gamma);
}

/* The message from rank 0 to the other ranks. */
typedef struct kept_card {
    trmi_model model;        /* valid if found is 1 */
    int32_t found, reserved; /* 1: the file has figures of this cluster; 0 */
} kept_card;

/* Contract in calibration.h. Rank 0 alone reads and writes the kept figures, and gives them to
 * all: ranks with different figures would choose different algorithms, and wait for each other. */
trm_status trmi_calibrate(trmi_transport *transport, const trmi_exchange *exchange, trmi_model *out,
                          trm_error *err) {
    /* A cluster without a digest (threads, tests) has no line: measure each time. */
    static const uint8_t unknown[32];
    const trmi_group *group = &transport->group;
    if (memcmp(group->bootstrap->cluster, unknown, 32) == 0) {
        return trmi_model_measure(transport, exchange, out, err);
    }
    kept_card mine = {.found = 0}, *all = trmi_alloc((size_t)group->size * sizeof *all);
    if (all == NULL) {
        return TRMI_NO_MEMORY(err, "for %d ranks", group->size);
    }
    if (group->rank == 0) {
        mine.found = find_kept(transport, &mine.model);
    }
    trm_status status = exchange->allgather(exchange->context, &mine, sizeof mine, all, err);
    bool found = status == TRM_OK && all[0].found != 0;
    *out = all[0].model;
    trmi_free(all);
    if (status != TRM_OK || found) {
        if (found && group->rank == 0) {
            log_figures(transport, out, "kept");
        }
        return status;
    }
    TRMI_TRY(trmi_model_measure(transport, exchange, out, err));
    if (group->rank == 0) {
        keep_figures(transport, out);
        log_figures(transport, out, "measured");
    }
    return TRM_OK;
}
