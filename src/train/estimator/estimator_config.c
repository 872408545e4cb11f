/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the configuration of an estimator: copies it, determines the place of the process in the
 * cluster, checks each field alone and in combination, and fills in defaults.
 *
 *     configuration of the caller, with the cluster of TF_CONFIG
 *         v
 *     fields by themselves: numbers, names of precisions
 *         v
 *     copies: strategy and token into the estimator, texts into its arena
 *         v
 *     place: role, number among the trainers, chief, evaluator
 *         v
 *     combinations: roles and servers; the servers' mode; lending, backup workers, cache
 *         v
 *     defaults: zeros become values, so that no later code has to know them
 *
 * Nothing is opened or connected here, so that `--check` can show every mistake of a configuration
 * before a job starts. Errors name the field as the user wrote it, and the remedy. */
#include "train/estimator/estimator.h"

#include "base/error.h"

#include <string.h>

/* ---- checks ---------------------------------------------------------------------------------- */

/* Checks the numbers of the configuration: none negative or NaN, one checkpoint interval only. */
static trm_status check_numbers(const trm_run_config *c, trm_error *err) {
    if (c->checkpoints.every_steps > 0 && c->checkpoints.every_seconds > 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "checkpoints.every_steps %lld and checkpoints.every_seconds %g: give one of the two",
            (long long)c->checkpoints.every_steps, c->checkpoints.every_seconds);
    }
    const struct {
        const char *name;
        double value;
    } counts[] = {{"checkpoints.every_steps", (double)c->checkpoints.every_steps},
                  {"checkpoints.every_seconds", c->checkpoints.every_seconds},
                  {"iterations_per_loop", (double)c->iterations_per_loop},
                  {"checkpoints.writer.keep_every_hours", c->checkpoints.writer.keep_every_hours},
                  {"session_creation_timeout_secs", c->session_creation_timeout_secs},
                  {"export_bytes", (double)c->export_bytes}};
    /* the comparison is false for NaN, too */
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (!(counts[i].value >= 0)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s is %g: 0 (the default) or more expected",
                             counts[i].name, counts[i].value);
        }
    }
    if (c->model_dir != NULL && c->model_dir[0] == '\0') {
        return TRMI_FAIL(err, TRM_INVALID,
                         "model_dir is empty; a directory that all roles share expected");
    }
    return TRM_OK;
}

/* Contract in estimator.h. The first name of each precision is that of guide 000. */
trm_status trmi_estimator_precision(const trm_run_config *c, trm_precision *out, trm_error *err) {
    static const struct {
        const char *name;
        trm_precision precision;
    } names[] = {{"allow_mix_precision", TRM_PRECISION_MIXED},
                 {"mixed", TRM_PRECISION_MIXED},
                 {"must_keep_origin_dtype", TRM_PRECISION_ORIGIN},
                 {"origin", TRM_PRECISION_ORIGIN},
                 {"force_fp32", TRM_PRECISION_FP32},
                 {"fp32", TRM_PRECISION_FP32}};
    *out = TRM_PRECISION_FP32;
    for (size_t i = 0; c->precision_mode != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(c->precision_mode, names[i].name) == 0) {
            *out = names[i].precision;
            return TRM_OK;
        }
    }
    return c->precision_mode == NULL
               ? TRM_OK
               : TRMI_FAIL(
                     err, TRM_INVALID,
                     "precision_mode \"%.40s\": allow_mix_precision, must_keep_origin_dtype or "
                     "force_fp32 expected",
                     c->precision_mode);
}

/* Checks lending, backup workers and the row cache against the mode: a cached row must not be
 * older than the mode allows, and hybrid workers need equal numbers of batches. */
static trm_status check_sharing(const trm_estimator *e, trm_error *err) {
    const trm_ps_strategy *s = &e->strategy;
    int32_t age = s->client.cache_staleness == 0 ? 1 : s->client.cache_staleness;
    if (s->training.tables_only &&
        (s->lend == TRM_PS_LEND_ALWAYS || s->server.backup_workers > 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         s->server.backup_workers > 0
                             ? "backup_workers: hybrid workers reduce their "
                               "gradients together, none can be left out"
                             : "lent samples: hybrid workers must all have the "
                               "same number of batches; leave lend as it is");
    }
    /* Check the cache of rows. */
    if (s->training.cache_rows < 0 || s->client.cache_staleness < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "cache_rows %lld, cache_staleness %d: 0 or more expected",
                         (long long)s->training.cache_rows, s->client.cache_staleness);
    }
    if (s->client.cache_staleness > 0 && s->training.cache_rows == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "cache_staleness %d: no rows are cached; set cache_rows too",
                         s->client.cache_staleness);
    }
    if (s->training.cache_rows > 0 && s->server.mode == TRM_PS_SYNC) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "cache_rows %lld: a cached row is old, and the synchronous mode allows no age: use "
            "async or staleness=K",
            (long long)s->training.cache_rows);
    }
    if (s->training.cache_rows > 0 && s->server.mode == TRM_PS_BOUNDED &&
        age > s->server.staleness) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "cache_staleness %d: rows may be at most %d batches old with staleness=%d",
                         age, s->server.staleness, s->server.staleness);
    }
    return TRM_OK;
}

/* Checks the configuration against the cluster: which roles it lists, and what the servers' mode
 * allows. */
static trm_status check_roles(const trm_estimator *e, trm_error *err) {
    const trm_run_config *c = &e->config;
    /* servers, and a strategy for them, come together */
    if (!e->has_roles) {
        return c->distribute == NULL || c->cluster == NULL
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_INVALID,
                               "distribute is set, but there is no cluster: set TF_CONFIG, or "
                               "leave it out to train in this process alone");
    }
    if (e->servers > 0 && c->distribute == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the cluster lists %d ps: set distribute to a trm_ps_strategy",
                         e->servers);
    }
    if (e->role == TRM_ROLE_EVALUATOR && c->model_dir == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "an evaluator reads checkpoints from model_dir; set it");
    }
    if (e->role == TRM_ROLE_EVALUATOR && e->servers == 0) {
        return TRM_OK; /* of a job without servers: it has no strategy */
    }
    if (e->servers == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the cluster lists %d workers and no ps; list at least one ps (or "
                         "train with all-reduce: trireme train -n)",
                         e->trainers);
    }
    if (c->iterations_per_loop > 1) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "iterations_per_loop is %lld: it must be 1 with parameter servers, because part of "
            "the model is not on the device",
            (long long)c->iterations_per_loop);
    }
    /* Check the servers' mode against the number of workers. */
    bool sparse = trm_cluster_get(c->cluster)->sparse_workers;
    if (sparse && e->strategy.server.mode != TRM_PS_ASYNC) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a sparse worker map does not say how many workers there are; only "
                         "the asynchronous mode can do without");
    }
    if (e->strategy.server.backup_workers > 0 && e->strategy.server.mode != TRM_PS_SYNC) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%d backup_workers need the synchronous mode (TRM_PS_SYNC)",
                         e->strategy.server.backup_workers);
    }
    if (e->strategy.server.backup_workers < 0 ||
        (e->strategy.server.backup_workers >= e->trainers && !sparse)) {
        return TRMI_FAIL(err, TRM_INVALID, "%d backup_workers of %d workers: fewer expected",
                         e->strategy.server.backup_workers, e->trainers);
    }
    if (e->strategy.server.staleness_aware && e->strategy.server.mode == TRM_PS_SYNC) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "staleness_aware: synchronous gradients are never late; it is of async "
                         "and staleness=K");
    }
    return check_sharing(e, err);
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Fills in defaults: TensorFlow's, where it has the field. With servers checkpoints are counted
 * in steps. */
static void fill_defaults(trm_estimator *e) {
    trm_run_config *c = &e->config;
    bool servers = e->servers > 0;
    if (c->checkpoints.every_steps == 0 && c->checkpoints.every_seconds == 0) {
        c->checkpoints.every_steps = servers ? 100 : 0;
        c->checkpoints.every_seconds = servers ? 0 : 600;
    }
    c->iterations_per_loop = c->iterations_per_loop == 0 ? 1 : c->iterations_per_loop;
    c->tf_random_seed = c->tf_random_seed == 0 ? 1 : c->tf_random_seed;
    c->save_summary_steps = c->save_summary_steps == 0 ? 100 : c->save_summary_steps;
    c->log_step_count_steps = c->log_step_count_steps == 0 ? 100 : c->log_step_count_steps;
    c->checkpoints.writer.keep = c->checkpoints.writer.keep == 0 ? 5 : c->checkpoints.writer.keep;
    c->checkpoints.writer.keep_every_hours = c->checkpoints.writer.keep_every_hours == 0
                                                 ? 10000
                                                 : c->checkpoints.writer.keep_every_hours;
    c->session_creation_timeout_secs =
        c->session_creation_timeout_secs == 0 ? 7200 : c->session_creation_timeout_secs;
    e->strategy.client.timeout_seconds =
        e->strategy.client.timeout_seconds > 0 ? e->strategy.client.timeout_seconds : 120;
}

/* Finds the place of this process in the cluster: role, number among the trainers, chief,
 * evaluator. */
static void find_place(trm_estimator *e) {
    const trm_cluster *cluster = e->config.cluster;
    e->trainers = 1;
    e->is_chief = true;
    if (cluster == NULL || !trm_cluster_get(cluster)->has_roles) {
        return;
    }
    const trm_cluster_info *me = trm_cluster_get(cluster);
    int32_t chiefs = trm_cluster_task_count(cluster, TRM_ROLE_CHIEF);
    e->has_roles = true;
    e->role = me->role;
    e->trainers = chiefs + trm_cluster_task_count(cluster, TRM_ROLE_WORKER);
    e->trainer = me->role == TRM_ROLE_CHIEF    ? 0
                 : me->role == TRM_ROLE_WORKER ? me->task_index + chiefs
                                               : -1;
    e->is_chief = me->is_chief;
    e->servers = trm_cluster_task_count(cluster, TRM_ROLE_PS);
    e->has_evaluator = trm_cluster_task_count(cluster, TRM_ROLE_EVALUATOR) > 0;
    /* A cluster of one trainer without servers runs as a job of one process (TensorFlow's rule). */
    if (e->servers == 0 && e->trainers == 1 && e->trainer == 0) {
        e->has_roles = false;
    }
}

/* Replaces *text by a copy in the estimator's arena; NULL stays. */
static trm_status copy_text(trm_estimator *e, const char **text, trm_error *err) {
    if (*text != NULL && (*text = trmi_arena_strdup(&e->arena, *text)) == NULL) {
        return TRMI_NO_MEMORY(err, "for a configuration");
    }
    return TRM_OK;
}

/* Contract in estimator.h. model_dir may come from the configuration or from TF_CONFIG, and must
 * be equal in both. */
trm_status trmi_estimator_take_config(trm_estimator *e, const trm_run_config *config,
                                      trm_error *err) {
    trm_run_config *c = &e->config;
    trm_precision precision;
    *c = *config;
    /* copies of strategy and token: the caller's may go */
    if (c->distribute != NULL) {
        e->strategy = *c->distribute;
        c->distribute = &e->strategy;
    }
    if (c->token != NULL) {
        memcpy(e->token, c->token, sizeof e->token);
        c->token = e->token;
    }
    /* the folder is given here or by the cluster */
    if (c->cluster != NULL && c->model_dir != NULL &&
        trm_cluster_get(c->cluster)->model_dir != NULL &&
        strcmp(c->model_dir, trm_cluster_get(c->cluster)->model_dir) != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "model_dir is \"%.80s\" here and \"%.80s\" in TF_CONFIG; make them "
                         "equal, or give one",
                         c->model_dir, trm_cluster_get(c->cluster)->model_dir);
    }
    if (c->model_dir == NULL && c->cluster != NULL) {
        c->model_dir = trm_cluster_get(c->cluster)->model_dir;
    }
    /* fields by themselves, copies of texts, then the cluster, which determines the defaults */
    TRMI_TRY(check_numbers(c, err));
    TRMI_TRY(trmi_estimator_precision(c, &precision, err));
    TRMI_TRY(copy_text(e, &c->model_dir, err));
    TRMI_TRY(copy_text(e, &c->precision_mode, err));
    TRMI_TRY(copy_text(e, &c->warm_start_from, err));
    TRMI_TRY(copy_text(e, &e->strategy.server.folder, err));
    TRMI_TRY(copy_text(e, &e->strategy.server.spill_folder, err));
    find_place(e);
    TRMI_TRY(check_roles(e, err));
    fill_defaults(e);
    return TRM_OK;
}
