/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as texts that executors and planners take: of files, which need no model, and of rank 0's
 * planner for all ranks.
 *
 *     file  ------- trm_plan_read ----+--> trm_plan_info   what a program shows, and what it needs to
 *                                     |                    make a model (ranks, stages, micro-batches)
 *     planner of rank 0 -- _share ----+--> text            what the executor parses once more, with
 *                                                          the graph at hand: trm_plan_follow
 *
 * A text of a plan is passed on and not the parsed plan, so that one parser checks all plans
 * wherever they come from, and errors of any later stage name file and line. The caller owns the
 * text. */
#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "train/planner/planner.h"

#include <string.h>

/* Bytes of a plan file at most; a larger file is no plan. */
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

/* Describes a parsed plan.
 *   errors  CORRUPT: its names are too long for trm_plan_info */
static trm_status describe_plan(const trmi_partition_plan *plan, const char *file,
                                trm_plan_info *out, trm_error *err) {
    const char *begins = plan->staged.stages > 0 ? plan->staged.begins : "";
    if (strlen(begins) >= sizeof out->begins) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: names of the lines 'begin' take %zu letters, at most %zu expected",
                         file, strlen(begins), sizeof out->begins - 1);
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
    memcpy(out->begins, begins, strlen(begins) + 1);
    trmi_mesh_text(&plan->mesh, out->mesh, sizeof out->mesh);
    /* An operator whose letters are all "." is whole on every rank. */
    for (int64_t i = 0; i < plan->choices_count; i++) {
        const trmi_partition_choice *c = &plan->choices[i];
        out->cut += strspn(c->letters, ".") != strlen(c->letters);
        out->pinned += c->pinned;
    }
    return TRM_OK;
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
    if (status == TRM_OK && text != NULL && lines == NULL) {
        status = TRMI_NO_MEMORY(err, "for the text of %s", file);
    }
    status = status == TRM_OK ? describe_plan(plan, file, out, err) : status;
    trmi_partition_plan_destroy(plan);
    if (status != TRM_OK) {
        trm_free(lines);
        return status;
    }
    if (text != NULL) {
        *text = lines;
    }
    return TRM_OK;
}

/* Broadcasts rank 0's text; *own is that text there, and a copy of it on the other ranks. */
static trm_status send_text(trm_comm *comm, char **own, trm_error *err) {
    int64_t length = *own != NULL ? (int64_t)strlen(*own) : 0;
    TRMI_TRY(trm_comm_broadcast(comm, &length, 1, TRM_INT64, 0, err));
    if (length == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "rank 0 found no plan for all ranks");
    }
    if (*own == NULL) {
        TRMI_TRY(TRMI_NEW(err, *own, (size_t)length + 1, "for a plan"));
    }
    return trm_comm_broadcast(comm, *own, length, TRM_UINT8, 0, err);
}

/* Contract in trireme/plan.h. Rank 0 sends its plan as the text of a plan file and each rank, rank
 * 0 too, parses that text: so all ranks have one plan, and one parser checks it. If rank 0 has no
 * plan, it sends that, and the call fails on all ranks. */
trm_status trm_planner_share(const trm_planner *p, trm_comm *comm, trm_plan_info *out, char **text,
                             trm_error *err) {
    TRMI_NEED(err, comm, out, text);
    trmi_partition_plan *plan = NULL;
    char *lines = NULL;
    if (p != NULL && trmi_planner_chosen(p, &plan, err) == TRM_OK) {
        lines = trmi_partition_plan_text(plan);
        trmi_partition_plan_destroy(plan);
        plan = NULL;
    }
    trm_status status = send_text(comm, &lines, err);
    status = status == TRM_OK
                 ? trmi_partition_plan_parse(lines, strlen(lines), "the plan of rank 0", &plan, err)
                 : status;
    status = status == TRM_OK ? describe_plan(plan, "the plan of rank 0", out, err) : status;
    trmi_partition_plan_destroy(plan);
    if (status != TRM_OK) {
        trm_free(lines);
        return status;
    }
    *text = lines;
    return TRM_OK;
}

/* Contract in trireme/plan.h. A plan with stages also fixes the number of micro-batches and what is
 * recomputed, because its times and its memory hold for these only. */
void trm_plan_follow(const trm_plan_info *plan, const char *text, trm_model_options *model) {
    TRMI_NEED_OR(, NULL, plan, text, model);
    trm_parallel_options *parallel = &model->exec.parallel;
    parallel->split.kind = TRM_SPLIT_PLANNED;
    parallel->split.plan = text;
    parallel->split.mesh = NULL;
    parallel->pipeline =
        (trm_pipeline_options){.stages = plan->stages,
                               .schedule = plan->schedule,
                               .chunks = plan->chunks,
                               .begins = plan->begins[0] != '\0' ? plan->begins : NULL};
    if (plan->stages > 0) {
        model->exec.accumulate = plan->micro_batches;
        model->exec.recompute = plan->recompute;
    }
}
