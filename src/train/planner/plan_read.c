/* SPDX-License-Identifier: Apache-2.0 */
/* Reads plan files without a model: for inspecting them, and as the text that executors and
 * planners take. */
#include "trireme/plan.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "plan/partition/partition.h"

#include <string.h>

enum { FILE_LIMIT = 64 << 20 };

/* Returns a copy of the file's text with "# from FILE" added to its first line, so that later
 * errors can name file and line. NULL without memory. */
static char *lines_of(const uint8_t *data, size_t bytes, const char *file) {
    const uint8_t *end = memchr(data, '\n', bytes);
    size_t first = end != NULL ? (size_t)(end - data) : bytes;
    const char *comment = memchr(data, '#', first);
    size_t words = comment != NULL ? (size_t)(comment - (const char *)data) : first;
    trmi_text text = {0};
    trmi_text_append(&text, (const char *)data, words);
    trmi_text_printf(&text, "%s# from %s", words > 0 && data[words - 1] == ' ' ? "" : " ", file);
    trmi_text_append(&text, (const char *)data + first, bytes - first);
    if (text.failed) {
        trmi_text_free(&text);
        return NULL;
    }
    return text.data;
}

/* Contract in trireme/plan.h. The file is parsed without a graph, so only its form is
 * checked. */
trm_status trm_plan_read(const char *file, trm_plan_info *out, char **text, trm_error *err) {
    TRMI_NEED(err, file, out);
    trmi_partition_plan *plan = NULL;
    uint8_t *data;
    size_t bytes;
    TRMI_TRY(trmi_os_read_file(file, FILE_LIMIT, &data, &bytes, err));
    trm_status status = trmi_partition_plan_parse((const char *)data, bytes, file, &plan, err);
    char *lines = status == TRM_OK && text != NULL ? lines_of(data, bytes, file) : NULL;
    trmi_free(data);
    TRMI_TRY(status);
    if (text != NULL && lines == NULL) {
        trmi_partition_plan_destroy(plan);
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for its text", file);
    }
    *out = (trm_plan_info){.ranks = trmi_partition_plan_ranks(plan),
                           .graph = plan->digest,
                           .operators = plan->choices_count,
                           .stores = plan->stores_count,
                           .stages = plan->staged.stages,
                           .chunks = plan->staged.chunks,
                           .micro_batches = plan->staged.micros,
                           .schedule = (trm_schedule)plan->staged.order,
                           .recompute = plan->staged.recompute};
    const char *begins = plan->staged.stages > 0 ? plan->staged.begins : "";
    if (strlen(begins) >= sizeof out->begins) {
        trmi_partition_plan_destroy(plan);
        trm_free(lines);
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: names of the lines 'begin' take %zu letters, at most %zu expected",
                         file, strlen(begins), sizeof out->begins - 1);
    }
    memcpy(out->begins, begins, strlen(begins) + 1);
    trmi_mesh_text(&plan->mesh, out->mesh, sizeof out->mesh);
    for (int64_t i = 0; i < plan->choices_count; i++) {
        const trmi_partition_choice *c = &plan->choices[i];
        out->cut += strspn(c->letters, ".") != strlen(c->letters);
        out->pinned += c->pinned;
    }
    if (text != NULL) {
        *text = lines;
    }
    trmi_partition_plan_destroy(plan);
    return TRM_OK;
}
