/* SPDX-License-Identifier: Apache-2.0 */
/* Describes what a process will do with its configuration, as text or JSON (trm_estimator_plan,
 * the program's --check).
 *
 * Nothing is started, connected or written. Values are those that the roles will use, defaults
 * filled in; both forms have the same ones. */
#include "train/estimator/estimator.h"

#include "base/arguments.h"
#include "base/memory.h"

#include <stdio.h>

/* Contract in estimator.h. */
const char *trmi_estimator_mode_text(const trm_estimator *e, char *text, size_t size) {
    if (e->strategy.server.mode == TRM_PS_BOUNDED &&
        e->strategy.server.staleness == TRM_STALENESS_ANY) {
        return "asynchronous, tables bounded";
    }
    if (e->strategy.server.mode == TRM_PS_BOUNDED) {
        snprintf(text, size, "staleness %d", e->strategy.server.staleness);
        return text;
    }
    if (e->strategy.server.backup_workers > 0) {
        snprintf(text, size, "synchronous, %d needed",
                 e->trainers - e->strategy.server.backup_workers);
        return text;
    }
    return e->strategy.server.mode == TRM_PS_SYNC ? "synchronous" : "asynchronous";
}

/* Appends the run configuration in lines, defaults included. */
static void plan_config(const trm_estimator *e, trmi_text *text) {
    const trm_run_config *c = &e->config;
    trmi_text_printf(text, "model_dir: %s", c->model_dir != NULL ? c->model_dir : "(none)");
    if (c->model_dir != NULL && c->checkpoints.every_steps > 0) {
        trmi_text_printf(text, ", a checkpoint every %lld steps",
                         (long long)c->checkpoints.every_steps);
    } else if (c->model_dir != NULL) {
        trmi_text_printf(text, ", a checkpoint every %g s", c->checkpoints.every_seconds);
    }
    if (c->model_dir != NULL && c->checkpoints.writer.keep > 0 &&
        c->checkpoints.writer.keep < TRM_ALL) {
        trmi_text_printf(text, ", %d kept, and one in %g h for ever", c->checkpoints.writer.keep,
                         c->checkpoints.writer.keep_every_hours);
    }
    trmi_text_printf(text, "\nsamples: %s\n",
                     !e->has_roles             ? "all are this process's"
                     : trmi_estimator_lends(e) ? "lent in ranges by server 0"
                                               : "each trainer has its part");
    trmi_text_printf(text, "precision: %s; seed %llu; next batch prepared during this one: %s\n",
                     c->precision_mode != NULL ? c->precision_mode : "the model's",
                     (unsigned long long)c->tf_random_seed,
                     e->strategy.training.prefetch != TRM_OFF ? "yes" : "no");
    trmi_text_printf(text, "every so many steps: loss %lld, summaries %lld (negative: none)\n",
                     (long long)c->log_step_count_steps, (long long)c->save_summary_steps);
    if (e->has_roles) {
        trmi_text_printf(
            text, "waits for servers to come up for %g s, for roles that are silent for %g s\n",
            c->session_creation_timeout_secs, e->strategy.client.timeout_seconds);
    }
}

/* Appends the plan as lines for people: role, servers, evaluator, configuration. */
static void plan_lines(const trm_estimator *e, trmi_text *text) {
    char mode[32], folder[4096];
    trmi_estimator_ps_folder(e, folder, sizeof folder);
    trmi_text_printf(text, "this process: %s", e->has_roles ? trm_role_name(e->role) : "local");
    if (e->trainer > 0 || (e->has_roles && e->role <= TRM_ROLE_CHIEF)) {
        trmi_text_printf(text, ", trainer %d of %d%s", e->trainer, e->trainers,
                         e->is_chief ? " (saves, writes summaries, ends the servers)" : "");
    }
    trmi_text_printf(text, "\n");
    if (e->has_roles) {
        trmi_text_printf(text, "servers: %d, updates %s%s; files in %s\n", e->servers,
                         trmi_estimator_mode_text(e, mode, sizeof mode),
                         e->strategy.training.tables_only ? ", dense part by all-reduce" : "",
                         folder[0] != '\0' ? folder : "(none: nothing is saved)");
        trmi_text_printf(text, "evaluator: %s\n",
                         e->has_evaluator ? "listed"
                                          : "none listed; the chief "
                                            "evaluates at the end");
    }
    plan_config(e, text);
}

/* Appends the second half of the JSON object. */
static void plan_json_more(const trm_estimator *e, trmi_text *text) {
    const trm_run_config *c = &e->config;
    const trm_ps_strategy *s = &e->strategy;
    trmi_text_printf(
        text,
        ", \"tf_random_seed\": %llu, \"iterations_per_loop\": %lld, \"enable_data_pre_proc\": %s, "
        "\"mix_compile_mode\": %s, \"precision_mode\": ",
        (unsigned long long)c->tf_random_seed, (long long)c->iterations_per_loop,
        s->training.prefetch != TRM_OFF ? "true" : "false", e->has_roles ? "true" : "false");
    if (c->precision_mode != NULL) {
        trmi_text_json_string(text, c->precision_mode);
    } else {
        trmi_text_printf(text, "null");
    }
    trmi_text_printf(
        text,
        ", \"session_creation_timeout_secs\": %g, \"timeout_seconds\": %g, \"lent\": %s, "
        "\"backup_workers\": %d, \"cache_rows\": %lld}\n",
        c->session_creation_timeout_secs, s->client.timeout_seconds,
        trmi_estimator_lends(e) ? "true" : "false", s->server.backup_workers,
        (long long)s->training.cache_rows);
}

/* Appends the plan as one JSON object. */
static void plan_json(const trm_estimator *e, trmi_text *text) {
    char mode[32], folder[4096];
    trmi_estimator_ps_folder(e, folder, sizeof folder);
    trmi_text_printf(
        text,
        "{\"event\": \"plan\", \"role\": \"%s\", \"trainer\": %d, \"trainers\": %d, "
        "\"is_chief\": %s, \"servers\": %d, \"mode\": \"%s\", \"hybrid\": %s, \"evaluator\": %s",
        e->has_roles ? trm_role_name(e->role) : "local", e->trainer, e->trainers,
        e->is_chief ? "true" : "false", e->servers, trmi_estimator_mode_text(e, mode, sizeof mode),
        e->strategy.training.tables_only ? "true" : "false", e->has_evaluator ? "true" : "false");
    trmi_text_printf(text, ", \"model_dir\": ");
    if (e->config.model_dir != NULL) {
        trmi_text_json_string(text, e->config.model_dir);
    } else {
        trmi_text_printf(text, "null");
    }
    trmi_text_printf(text, ", \"ps_folder\": ");
    trmi_text_json_string(text, folder);
    trmi_text_printf(
        text,
        ", \"save_checkpoints_steps\": %lld, \"save_checkpoints_secs\": %g, "
        "\"keep_checkpoint_max\": %d, \"keep_checkpoint_every_n_hours\": %g, "
        "\"save_summary_steps\": %lld, \"log_step_count_steps\": "
        "%lld",
        (long long)e->config.checkpoints.every_steps, e->config.checkpoints.every_seconds,
        e->config.checkpoints.writer.keep, e->config.checkpoints.writer.keep_every_hours,
        (long long)e->config.save_summary_steps, (long long)e->config.log_step_count_steps);
    plan_json_more(e, text);
}

/* Contract in trireme/estimator.h. */
trm_status trm_estimator_plan(const trm_estimator *e, bool json, char **out, trm_error *err) {
    TRMI_NEED(err, e, out);
    trmi_text text = {0};
    if (json) {
        plan_json(e, &text);
    } else {
        plan_lines(e, &text);
    }
    if (text.failed || text.data == NULL) {
        trmi_text_free(&text);
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    *out = text.data;
    return TRM_OK;
}
