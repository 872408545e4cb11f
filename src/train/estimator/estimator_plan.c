/* SPDX-License-Identifier: Apache-2.0 */
/* Describes what a process will do with its configuration, as text or JSON (trm_estimator_plan,
 * the program's --check).
 *
 * Nothing is started, connected or written. Values are those that the roles will use, defaults
 * filled in; both forms have the same ones. */
#include "train/estimator/estimator.h"

#include "base/arguments.h"
#include "base/format/report.h"

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

/* Puts the plan: role, servers, evaluator, configuration, defaults included. */
static void put_plan(const trm_estimator *e, trmi_report *r) {
    const trm_run_config *c = &e->config;
    const trm_ps_strategy *s = &e->strategy;
    char mode[32], folder[4096];
    trmi_estimator_ps_folder(e, folder, sizeof folder);
    trmi_report_put(
        r, trmi_string("event", "plan"),
        trmi_string("role", e->has_roles ? trm_role_name(e->role) : "local"),
        trmi_int("trainer", e->trainer), trmi_int("trainers", e->trainers),
        trmi_bool("is_chief", e->is_chief), trmi_int("servers", e->servers),
        trmi_string("mode", trmi_estimator_mode_text(e, mode, sizeof mode)),
        trmi_bool("hybrid", s->training.tables_only), trmi_bool("evaluator", e->has_evaluator),
        trmi_string("model_dir", c->model_dir), trmi_string("ps_folder", folder),
        trmi_int("save_checkpoints_steps", c->checkpoints.every_steps),
        trmi_real("save_checkpoints_secs", c->checkpoints.every_seconds),
        trmi_int("keep_checkpoint_max", c->checkpoints.writer.keep),
        trmi_real("keep_checkpoint_every_n_hours", c->checkpoints.writer.keep_every_hours),
        trmi_int("save_summary_steps", c->save_summary_steps),
        trmi_int("log_step_count_steps", c->log_step_count_steps),
        trmi_unsigned("tf_random_seed", c->tf_random_seed),
        trmi_int("iterations_per_loop", c->iterations_per_loop),
        trmi_bool("enable_data_pre_proc", s->training.prefetch != TRM_OFF),
        trmi_bool("mix_compile_mode", e->has_roles),
        trmi_string("precision_mode", c->precision_mode),
        trmi_real("session_creation_timeout_secs", c->session_creation_timeout_secs),
        trmi_real("timeout_seconds", s->client.timeout_seconds),
        trmi_bool("lent", trmi_estimator_lends(e)),
        trmi_int("backup_workers", s->server.backup_workers),
        trmi_int("cache_rows", s->training.cache_rows));
}

/* Writes the run configuration. */
static void say_config(const trm_estimator *e, trmi_report *r) {
    const trm_run_config *c = &e->config;
    trmi_report_say(r, c->model_dir == NULL ? "model_dir: (none)"
                       : c->checkpoints.every_steps > 0
                           ? "model_dir: [model_dir]%s, a checkpoint every "
                             "[save_checkpoints_steps]%d steps"
                           : "model_dir: [model_dir]%s, a checkpoint every "
                             "[save_checkpoints_secs]%g s");
    if (c->model_dir != NULL && c->checkpoints.writer.keep > 0 &&
        c->checkpoints.writer.keep < TRM_ALL) {
        trmi_report_say(r, ", [keep_checkpoint_max]%d kept, and one in "
                           "[keep_checkpoint_every_n_hours]%g h for ever");
    }
    trmi_report_say(r, !e->has_roles             ? "\nsamples: all are this process's\n"
                       : trmi_estimator_lends(e) ? "\nsamples: lent in ranges by server 0\n"
                                                 : "\nsamples: each trainer has its part\n");
    trmi_report_say(r, c->precision_mode != NULL ? "precision: [precision_mode]%s; "
                                                 : "precision: the model's; ");
    trmi_report_say(r, "seed [tf_random_seed]%s; next batch prepared during this one: "
                       "[enable_data_pre_proc]?{yes|no}\n"
                       "every so many steps: loss [log_step_count_steps]%d, summaries "
                       "[save_summary_steps]%d (negative: none)\n");
    if (e->has_roles) {
        trmi_report_say(r, "waits for servers to come up for [session_creation_timeout_secs]%g s, "
                           "for roles that are silent for [timeout_seconds]%g s\n");
    }
}

/* Writes the plan: role, servers, evaluator, configuration. */
static void say_plan(const trm_estimator *e, trmi_report *r) {
    trmi_report_say(r, "this process: [role]%s");
    if (e->trainer > 0 || (e->has_roles && e->role <= TRM_ROLE_CHIEF)) {
        trmi_report_say(r, ", trainer [trainer]%d of [trainers]%d"
                           "[is_chief]?{ (saves, writes summaries, ends the servers)|}");
    }
    trmi_report_say(r, "\n");
    if (e->has_roles) {
        trmi_report_say(r, "servers: [servers]%d, updates [mode]%s"
                           "[hybrid]?{, dense part by all-reduce|}; files in [ps_folder]%s"
                           "[ps_folder]?{|(none: nothing is saved)}\n"
                           "evaluator: [evaluator]?{listed|none listed; the chief evaluates at "
                           "the end}\n");
    }
    say_config(e, r);
}

/* Contract in trireme/train.h. */
trm_status trm_estimator_plan(const trm_estimator *e, bool json, char **out, trm_error *err) {
    TRMI_NEED(err, e, out);
    trmi_report r;
    trmi_report_begin(&r, json);
    r.spaced = true;
    put_plan(e, &r);
    say_plan(e, &r);
    return trmi_report_give(&r, "for a plan", out, err);
}
