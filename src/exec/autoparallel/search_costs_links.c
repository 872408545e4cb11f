/* SPDX-License-Identifier: Apache-2.0 */
/* The costs of messages that the search uses (search_costs.h): the description of this host's links
 * that an earlier process has measured and kept, or a new one.
 *
 *      trmi_costs_links    file of these ranks --> file of the nearest number of ranks, for ranks that wait
 *                                              --> measure (link_benchmark.c), keep
 *
 * A kept description is not used if it has another form, was cut short by a much smaller limit, or
 * was measured while the machine was busier. */
#include "exec/autoparallel/search_costs.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Time limit by the predicted step: so many steps, but seconds within these bounds. */
static const double steps_of_links = 300, shortest = 6, longest = 60;

/* Returns the kept description of links of `ranks` ranks in file `path` (owned by the caller); NULL
 * if there is none of this form and rank count, or if it should be measured again: on a quieter
 * machine, unless ranks wait for another plan, or where it was cut short by a limit of less than
 * half of `seconds`. */
static char *kept_links(const trmi_costs *c, const char *path, int32_t ranks, double seconds) {
    uint8_t *text;
    size_t bytes;
    trm_error ignored;
    trmi_links *links = trmi_alloc(sizeof *links);
    if (links == NULL || c->refresh ||
        trmi_os_read_file(path, 1 << 16, &text, &bytes, &ignored) != TRM_OK) {
        trmi_free(links);
        return NULL;
    }
    /* A description that the time limit cut short has a line with that limit. */
    const char *cut = strstr((const char *)text, TRMI_LINKS_CUT);
    bool full = cut == NULL || 2 * atof(cut + strlen(TRMI_LINKS_CUT)) >= seconds;
    /* The text must have this version's form, be of as many ranks, complete, and not from a much
     * busier machine. */
    bool usable =
        full && trmi_links_parse((const char *)text, links, &ignored) == TRM_OK &&
        links->together == ranks && (links->update.count > 0 || cut != NULL) &&
        strstr((const char *)text, TRMI_LINKS_FORM) != NULL &&
        (links->load < TRMI_COSTS_BUSY || c->probe->load > TRMI_COSTS_QUIET || c->replans);
    trmi_free(links);
    if (!usable) {
        trmi_free(text);
        return NULL;
    }
    return (char *)text;
}

/* Returns the time limit in seconds of measuring messages, before any plan is priced: by the step
 * whose operators take what the roofline says, shared out among the ranks. */
static double links_limit(const trmi_costs *c) {
    const trm_graph *g = c->probe->graph;
    double step = 0, cores = c->probe->cores;
    for (int64_t i = 1; i < g->ops_count; i++) {
        trmi_cost cost = trmi_op_cost(g, &g->ops[i]);
        step += fmax(cost.flops * c->flop, cost.bytes * c->byte);
    }
    step *= fmax(1 / (double)c->ranks, c->threads / cores);
    const double usual = fmax(shortest, fmin(longest, steps_of_links * step));
    return c->said_seconds > 0 ? fmin(usual, c->said_seconds) : usual;
}

/* Bytes of the path of the file with measured links. */
enum { LINKS_PATH = 480 };

/* Finds the kept description of `ranks` ranks, owned by the caller; NULL: none is usable. *path:
 * its file; empty: there is no cache directory. The name has everything on which message times
 * depend: host, cores, ranks, threads and engine. A description with fewer message sizes (memory
 * limit, small model) has a file of its own, because it must not replace a complete one. */
static char *find_links(const trmi_costs *c, int32_t ranks, double limit, char path[LINKS_PATH]) {
    char folder[400] = "", host[64] = "";
    path[0] = '\0';
    if (!trmi_os_cache_dir(folder, sizeof folder) || gethostname(host, sizeof host - 1) != 0) {
        return NULL;
    }
    const trmi_op_benchmark all = {.limit = 0};
    int some = trmi_link_benchmark_sizes(c->probe);
    size_t used =
        (size_t)snprintf(path, LINKS_PATH, "%s/links-%s-%d-of-%d-t%d-%s", folder, host,
                         c->probe->cores, ranks, c->threads, trm_comm_engine(c->probe->comm));
    snprintf(path + used, LINKS_PATH - used, ".txt");
    char *text = kept_links(c, path, ranks, limit);
    if (text == NULL && some < trmi_link_benchmark_sizes(&all)) {
        snprintf(path + used, LINKS_PATH - used, "-s%d.txt", some);
        text = kept_links(c, path, ranks, limit);
    }
    return text;
}

/* Finds the kept description of the number of ranks that is nearest to that of the search, the
 * larger one of two. */
static char *find_nearest_links(const trmi_costs *c, double limit) {
    enum { APART = 64 };
    char path[LINKS_PATH], *text = NULL;
    for (int32_t by = 1; text == NULL && by < APART; by++) {
        text = find_links(c, c->ranks + by, limit, path);
        text = text == NULL && c->ranks - by > 1 ? find_links(c, c->ranks - by, limit, path) : text;
    }
    return text;
}

/* Contract in search_costs.h. */
trm_status trmi_costs_links(trmi_costs *c, char **text, trm_error *err) {
    char path[LINKS_PATH];
    *text = NULL;
    if (c->probe == NULL || c->probe->comm == NULL || c->ranks < 2) {
        return TRM_OK;
    }
    const double limit = links_limit(c);
    *text = find_links(c, c->ranks, limit, path);
    if (*text == NULL && c->replans && !c->refresh) {
        *text = find_nearest_links(c, limit);
    }
    if (*text != NULL) {
        return TRM_OK;
    }
    /* There is no usable description: measure one, and keep it for later processes if it can be
     * written. */
    trmi_text out = {0};
    trm_error ignored;
    c->probe->seconds = limit;
    trm_status status = trmi_link_benchmark(c->probe, &out, err);
    c->probe->seconds = 0;
    if (status != TRM_OK) {
        trmi_text_free(&out);
        return status;
    }
    if (path[0] != '\0') {
        (void)trmi_os_replace_file(NULL, path, out.data, out.length, &ignored);
    }
    *text = out.data;
    return TRM_OK;
}
