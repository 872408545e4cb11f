/* SPDX-License-Identifier: Apache-2.0 */
/* From one command to many ranks and back.
 *
 *      trireme train ... -n 4        no rank of any job: checks, starts itself 4 times, waits (app_launch_self)
 *        trireme train ... -n 4      rank r of 4 (environment): joins, makes the communicator, trains (app_join)
 *
 * Both processes run the same command line; the environment alone determines which of the two a
 * process is. Contracts in app.h and ranks.h. */
#include "app/jobs/ranks.h"

#include "trireme/dist.h"
#include "trireme/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* How this process is connected to the other ranks. */
typedef struct app_ranks {
    trm_bootstrap *bootstrap; /* NULL in an elastic job */
    trm_comm *made;           /* NULL in an elastic job */
    trm_elastic *elastic;     /* NULL: the ranks do not change */
    int32_t first;            /* ranks with which an elastic job was to begin */
} app_ranks;

/* Returns the communicator of all ranks; in an elastic job it changes with them. */
static trm_comm *comm_of(const app_ranks *r) {
    return r == NULL ? NULL : r->elastic != NULL ? trm_elastic_comm(r->elastic) : r->made;
}

/* Sets *least and *most to the ranks of --elastic; 0 without it.
 *   errors  INVALID: no range, or -n outside of it */
static trm_status read_elastic_range(const app_context *app, int32_t *least, int32_t *most,
                                     trm_error *err) {
    const char *text = app->o.elastic;
    int low = 0, high = 0, end = 0;
    *least = *most = 0;
    if (text == NULL) {
        return TRM_OK;
    }
    if (sscanf(text, "%d:%d%n", &low, &high, &end) != 2 || text[end] != '\0' || low < 1 ||
        high < low || high > 1024) {
        return app_fail(err, TRM_INVALID,
                        "--elastic %.40s: the least and the most ranks, such as 2:8, expected",
                        text);
    }
    if (app->o.ranks > high || (app->o.ranks > 0 && app->o.ranks < low)) {
        return app_fail(err, TRM_INVALID, "--elastic %.40s: -n %lld is not in this range", text,
                        (long long)app->o.ranks);
    }
    *least = low;
    *most = high;
    return TRM_OK;
}

/* Determines the rank of this process from the environment and --rank-table. */
static trm_status resolve_cluster(const app_context *app, trm_cluster **out, trm_error *err) {
    const trm_cluster_flags flags = {.rank_table = app->o.rank_table};
    return trm_cluster_from_env(&flags, NULL, NULL, out, err);
}

/* Contract in ranks.h. Lines of the launcher itself go through this program's output; bytes of
 * the ranks are copied. */
void app_write_through(void *context, trm_launch_stream stream, const char *data, size_t bytes) {
    (void)context;
    if (stream == TRM_LAUNCH_NOTE) {
        app_print_progress("%.*s\n", (int)bytes, data);
        return;
    }
    if (stream == TRM_LAUNCH_FAILURE) {
        app_print_failure("%.*s\n", (int)bytes, data);
        return;
    }
    FILE *to = stream == TRM_LAUNCH_OUT ? stdout : stderr;
    fwrite(data, 1, bytes, to);
    fflush(to);
}

/* Contract in ranks.h. Only train puts logs into --output. */
const char *app_log_directory(const app_context *app) {
    static char logs[4096];
    const app_options *o = &app->o;
    if (o->launch_directory != NULL || o->output == NULL ||
        strcmp(app->command->name, "train") != 0) {
        return o->launch_directory != NULL ? o->launch_directory : ".";
    }
    snprintf(logs, sizeof logs, "%s/logs", o->output);
    return logs;
}

/* Contract in ranks.h. The launcher forwards signals and ends with the first rank that fails; its
 * message names this rank. */
trm_status app_launch(const app_context *app, const char *const *command, int *code,
                      trm_error *err) {
    const app_options *o = &app->o;
    trm_launch_options options = {.ranks = (int32_t)(o->ranks > 0 ? o->ranks : 1),
                                  .command = command,
                                  .environment = (const char *const *)environ,
                                  .directory = app_log_directory(app),
                                  .rank_table = o->rank_table,
                                  .threads = (int32_t)o->threads,
                                  .timeout_seconds = o->timeout,
                                  .dry_run = o->dry_run,
                                  .write = app_write_through};
    trm_launch_result result;
    int32_t least, most;
    trm_status status = read_elastic_range(app, &least, &most, err);
    options.elastic_least = least;
    options.elastic_restarts = (int32_t)o->elastic_restarts;
    status = status == TRM_OK ? trm_launch(&options, &result, err) : status;
    if (status == TRM_OK) {
        /* The launcher's code is 2 for every failure; a measurement ends with the code of the
         * failed rank. */
        bool own = strncmp(app->command->name, "bench", 5) == 0 && result.exit_code == 2 &&
                   result.failed_code > 0;
        *code = own ? result.failed_code : result.exit_code;
    }
    return status;
}

/* Contract in ranks.h. */
trm_status app_self(const app_context *app, const char *const **out, trm_error *err) {
    static char self[4096];
    static const char *command[APP_FLAGS_MAX * 2 + APP_ARGUMENTS_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return app_fail(err, TRM_IO,
                        "/proc/self/exe cannot be read: start the ranks with trireme run");
    }
    self[length] = '\0';
    int count = 0;
    command[count++] = self;
    for (char **a = app->argv + 1;
         *a != NULL && count < (int)(sizeof command / sizeof *command) - 1; a++) {
        command[count++] = *a;
    }
    command[count] = NULL;
    *out = command;
    return TRM_OK;
}

/* Checks that --plan and --mesh have as many ranks as -n.
 *   errors  INVALID */
static trm_status check_meshes(const app_options *o, trm_error *err) {
    trm_plan_info plan;
    int64_t expected = o->stages > 1 ? o->ranks / o->stages : o->ranks; /* of a stage */
    const char *of = o->stages > 1 ? " for each of the stages" : "";
    /* a plan with stages has the mesh of one stage, and its ranks are those of all */
    if (o->split_plan != NULL) {
        trm_status status = trm_plan_read(o->split_plan, &plan, NULL, err);
        if (status != TRM_OK) {
            return status;
        }
        int64_t wanted = plan.stages > 0 ? o->ranks : expected;
        if (plan.ranks != wanted) {
            return app_fail(err, TRM_INVALID, "%.150s: mesh %s%s has %d ranks; -n says %lld%s",
                            o->split_plan, plan.mesh, plan.stages > 0 ? " of each stage" : "",
                            plan.ranks, (long long)wanted, plan.stages > 0 ? "" : of);
        }
    }
    int32_t ranks = (int32_t)expected;
    trm_status status = o->split_mesh != NULL ? trm_mesh_ranks(o->split_mesh, &ranks, err) : TRM_OK;
    if (status == TRM_OK && ranks != expected) {
        status = app_fail(err, TRM_INVALID, "--mesh %.40s has %d ranks; -n says %lld%s",
                          o->split_mesh, ranks, (long long)expected, of);
    }
    return status;
}

/* Checks that the groups of --sync-batch-norm divide the ranks.
 *   errors  INVALID */
static trm_status check_groups(const app_context *app, trm_error *err) {
    const char *group = app_context_option(app, "sync_batch_norm");
    long ranks = strtol(group, NULL, 10);
    return ranks <= 0 || app->o.ranks % ranks == 0
               ? TRM_OK
               : app_fail(
                     err, TRM_INVALID,
                     "--sync-batch-norm %ld: groups of %ld ranks; the %lld of -n do not divide",
                     ranks, ranks, (long long)app->o.ranks);
}

/* Returns whether this process is one of several ranks, or the first one of an elastic job that
 * others may join. */
static bool has_ranks(const app_context *app, const trm_cluster *cluster) {
    const trm_cluster_info *me = trm_cluster_get(cluster);
    return me->size > 1 || (app->o.elastic != NULL && me->others_may_join);
}

/* Contract in app.h. All checks run in this one process, so that a wrong option costs no job. */
trm_status app_launch_self(app_context *app, app_check *check, bool *launched, int *code,
                           trm_error *err) {
    trm_cluster *cluster;
    *launched = false;
    if (app->o.ranks < 1 || (app->o.ranks == 1 && app->o.elastic == NULL)) {
        return TRM_OK;
    }
    /* A rank table alone does not make a process a rank: RANK_ID or the like must determine
     * which. The flags are therefore left out here. */
    trm_cluster_flags none = {0};
    trm_status status = trm_cluster_from_env(&none, NULL, NULL, &cluster, err);
    if (status != TRM_OK) {
        return status;
    }
    int32_t size = trm_cluster_get(cluster)->size;
    const bool is_rank = has_ranks(app, cluster);
    trm_cluster_destroy(cluster);
    /* this process is a rank of the job already */
    if (size == app->o.ranks && is_rank) {
        return TRM_OK;
    }
    if (size > 1) {
        return app_fail(err, TRM_INVALID, "-n %lld, but this process is one of %d ranks already",
                        (long long)app->o.ranks, size);
    }
    /* checks before processes are started */
    const char *const *command;
    status = app_self(app, &command, err);
    status = status == TRM_OK ? app_set_context(app, err) : status;
    const trm_comm_options words = {.engine = app->o.engine, .algorithm = app->o.algorithm};
    int32_t least, most;
    status = status == TRM_OK ? trm_comm_check(&words, err) : status;
    status = status == TRM_OK ? read_elastic_range(app, &least, &most, err) : status;
    status = status == TRM_OK ? check_meshes(&app->o, err) : status;
    status = status == TRM_OK ? check_groups(app, err) : status;
    status = status == TRM_OK && check != NULL ? check(app, err) : status;
    if (status != TRM_OK) {
        return status;
    }
    *launched = true;
    return app_launch(app, command, code, err);
}

/* Returns the order of sums that --deterministic requires. */
static trm_deterministic order_of(const app_context *app) {
    const char *word = app_context_option(app, "deterministic");
    return strcmp(word, "strict") == 0 ? TRM_DETERMINISTIC_STRICT
           : strcmp(word, "true") == 0 ? TRM_DETERMINISTIC_TRUE
                                       : TRM_DETERMINISTIC_FALSE;
}

/* Meets the other ranks and creates the communicator; app->ranks keeps both. Warns if
 * --algorithm has no effect. */
static trm_status meet_ranks(app_context *app, const trm_cluster *cluster, trm_error *err) {
    app_ranks *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return app_no_memory(err, "for the ranks of the job");
    }
    app->ranks = r;
    r->first = trm_cluster_get(cluster)->size;
    trm_elastic_options elastic = {.join = {.timeout_seconds = app->o.start_timeout},
                                   .comm = {.engine = app->o.engine,
                                            .algorithm = app->o.algorithm,
                                            .deterministic = order_of(app)}};
    trm_status status = read_elastic_range(app, &elastic.least, &elastic.most, err);
    /* silent ranks are noticed in the time of --elastic-deadline */
    if (app->o.elastic != NULL) {
        elastic.join.stall_seconds = app->o.elastic_deadline;
        elastic.join.heartbeat_seconds = app->o.elastic_deadline < 5 ? 0.1 : 1;
    }
    if (status == TRM_OK && app->o.elastic != NULL) {
        status = trm_elastic_create(cluster, &elastic, &r->elastic, err);
    } else if (status == TRM_OK) {
        status = trm_cluster_join(cluster, &elastic.join, &r->bootstrap, err);
        status =
            status == TRM_OK ? trm_comm_create(r->bootstrap, &elastic.comm, &r->made, err) : status;
    }
    if (status == TRM_OK && app->o.algorithm != NULL && app_rank(app) == 0 &&
        strcmp(trm_comm_engine(comm_of(r)), "shm") == 0) {
        app_warn("--algorithm %.60s has no effect: ranks of one host sum in each other's memory "
                 "(--engine tcp sends messages)",
                 app->o.algorithm);
    }
    return status;
}

/* Waits as the scheduler of msrun, which starts that process with the same program, and ends the
 * process. It takes no part in the work. The exit code is 0 once the workers' job is over, even
 * if it failed: each worker has its own exit code. */
static trm_status wait_as_scheduler(const app_context *app, const trm_cluster *cluster,
                                    trm_error *err) {
    trm_bootstrap *none;
    const trm_join_options join = {.timeout_seconds = app->o.start_timeout};
    app_print_progress("MS_ROLE=MS_SCHED: this process waits until the job of %d workers ends\n",
                       trm_cluster_get(cluster)->size);
    trm_status status = trm_cluster_join(cluster, &join, &none, err);
    if (status != TRM_END) {
        return status;
    }
    app_print_progress("%s\n", err->message);
    exit(app_output_end(0));
}

/* Contract in app.h. On a shared console only rank 0 prints, unless --verbose. */
trm_status app_join(app_context *app, trm_error *err) {
    trm_cluster *cluster;
    trm_status status = app_set_context(app, err);
    if (status == TRM_OK && strcmp(app_context_option(app, "parallel_mode"), "stand_alone") == 0) {
        return TRM_OK;
    }
    status = status == TRM_OK ? resolve_cluster(app, &cluster, err) : status;
    if (status != TRM_OK) {
        return status;
    }
    const trm_cluster_info *me = trm_cluster_get(cluster);
    /* The environment hints at a rank without making one: show why. */
    for (int32_t i = 0; me->size == 1 && i < me->warning_count; i++) {
        app_warn("%s", me->warnings[i]);
    }
    /* this process is MindSpore's scheduler, a role that does not train, or a rank */
    if (me->role == TRM_ROLE_SCHEDULER) {
        status = wait_as_scheduler(app, cluster, err);
    } else if (has_ranks(app, cluster) && me->role != TRM_ROLE_WORKER &&
               me->role != TRM_ROLE_CHIEF) {
        status = app_fail(err, TRM_INVALID, "%s makes this process a %s, which does not train",
                          me->source, trm_role_name(me->role));
    } else if (has_ranks(app, cluster)) {
        status = meet_ranks(app, cluster, err);
        if (status == TRM_OK && app_rank(app) == 0) {
            app_output_show(); /* of an elastic job whose rank 0 has died before */
        }
        if (status == TRM_OK && me->one_console && app_rank(app) != 0 && !app_out.verbose) {
            status = app_output_mute(err);
        }
    }
    trm_cluster_destroy(cluster);
    return status;
}

/* Contract in app.h. The communicator is destroyed before the ranks part. */
void app_leave(app_context *app) {
    trm_context_destroy(app->context);
    app->context = NULL;
    if (app->ranks == NULL) {
        return;
    }
    trm_comm_destroy(app->ranks->made);
    trm_cluster_leave(app->ranks->bootstrap);
    trm_elastic_destroy(app->ranks->elastic);
    free(app->ranks);
    app->ranks = NULL;
}

/* Returns the membership of an elastic job; in other jobs that of a rank of the first epoch. */
static trm_membership membership_of(const app_context *app) {
    trm_membership m = {.epoch = 1};
    if (app_elastic(app) != NULL) {
        trm_elastic_get_membership(app_elastic(app), &m);
    }
    return m;
}

bool app_is_newcomer(const app_context *app) { return membership_of(app).epoch == 0; }

trm_comm *app_comm(const app_context *app) { return comm_of(app->ranks); }
int32_t app_rank(const app_context *app) {
    if (membership_of(app).rank < 0) {
        return -1;
    }
    return app_comm(app) != NULL ? trm_comm_rank(app_comm(app)) : 0;
}
int32_t app_rank_count(const app_context *app) {
    return app_comm(app) != NULL ? trm_comm_size(app_comm(app)) : 1;
}
trm_elastic *app_elastic(const app_context *app) {
    return app->ranks != NULL ? app->ranks->elastic : NULL;
}

/* Returns the number of ranks for which options are chosen: in an elastic job more than one, also
 * for a process that has no other ranks yet. */
static int32_t count_wanted_ranks(const app_context *app) {
    int32_t ranks = app_rank_count(app);
    return app_elastic(app) != NULL && ranks < 2 ? 2 : ranks;
}

/* Returns whether so many ranks split one graph. One rank never splits. */
static bool is_split_by(app_context *app, int64_t ranks) {
    trm_error err;
    if (ranks < 2 || app_set_context(app, &err) != TRM_OK) {
        return false;
    }
    const char *mode = app_context_option(app, "parallel_mode");
    return strcmp(mode, "semi_auto_parallel") == 0 || strcmp(mode, "auto_parallel") == 0;
}

/* Contract in app.h. */
bool app_splits(app_context *app) { return is_split_by(app, count_wanted_ranks(app)); }

/* Returns whether an option of the context is set to `value`. */
static bool option_equals(const app_context *app, const char *option, const char *value) {
    return trm_context_is_set(app->context, option) &&
           strcmp(app_context_option(app, option), value) == 0;
}

/* Returns the ranks of this job, those that an elastic one was to begin with: its batch is that of
 * all ranks, also where some have never come. */
static int32_t count_first_ranks(const app_context *app) {
    return app_elastic(app) != NULL ? app->ranks->first : app_rank_count(app);
}

/* Returns how many of so many ranks feed different samples. */
static int64_t count_feeding(app_context *app, int64_t ranks) {
    trm_error err;
    int64_t stages = ranks > 1 && app_set_context(app, &err) == TRM_OK
                         ? atoi(app_context_option(app, "pipeline_stages"))
                         : 1;
    return stages > 1 && ranks >= stages ? ranks / stages : ranks;
}

int32_t app_feeding_ranks(app_context *app) {
    return (int32_t)count_feeding(app, count_first_ranks(app));
}

bool app_reads_own(app_context *app) {
    return app_splits(app) && trm_context_own_samples(app->context, count_wanted_ranks(app));
}

/* Returns whether --batch-size is the batch of all of so many ranks, which split a graph. */
static bool is_full(app_context *app, int64_t ranks) {
    return is_split_by(app, ranks) && (option_equals(app, "full_batch", "true") ||
                                       option_equals(app, "dataset_strategy", "full_batch"));
}

int64_t app_whole_batch(app_context *app) {
    return app->o.batch_size * (is_full(app, count_wanted_ranks(app)) ? 1 : app_feeding_ranks(app));
}

/* Counts the parts into which the ranks divide a step's samples, those of this job or, in the
 * launcher, those that it is to have: one for each rank that feeds others, and for each batch.
 *   errors  INVALID: more stages than ranks */
static trm_status count_batch_parts(app_context *app, int64_t *out, trm_error *err) {
    const app_options *o = &app->o;
    const bool launches = app->ranks == NULL && o->ranks > 1;
    trm_status status = app_set_context(app, err);
    if (status != TRM_OK) {
        return status;
    }
    const int64_t ranks = launches ? o->ranks : count_first_ranks(app),
                  stages = atoi(app_context_option(app, "pipeline_stages"));
    if (ranks > 1 && stages > ranks) {
        return app_fail(err, TRM_INVALID,
                        "pipeline_stages=%lld: each stage needs a rank, and the job has %lld (-n)",
                        (long long)stages, (long long)ranks);
    }
    const bool full = is_full(app, launches ? ranks : count_wanted_ranks(app));
    /* a search of stages plans the whole batch, whatever --micro-batches says */
    const int64_t batches = o->accumulate > 1 && !o->stages_searched ? o->accumulate : 1;
    *out = (full ? 1 : count_feeding(app, ranks)) * batches;
    return TRM_OK;
}

/* Contract in app.h. --global-batch keeps the result of a training the same for any number of
 * ranks, so it must be divided exactly. */
trm_status app_settle_batch(app_context *app, trm_error *err) {
    app_options *o = &app->o;
    if (o->global_batch == 0) {
        return TRM_OK;
    }
    if (app_given(&app->parsed, "batch-size")) {
        return app_fail(err, TRM_INVALID,
                        "--global-batch is the batch of all ranks, --batch-size that of one: give "
                        "one of them");
    }
    if (o->elastic_batch != NULL && strcmp(o->elastic_batch, "rank") == 0) {
        return app_fail(err, TRM_INVALID,
                        "--global-batch keeps the batch of all ranks, --elastic-batch rank that of "
                        "each: give one of them");
    }
    int64_t parts = 0;
    trm_status status = count_batch_parts(app, &parts, err);
    if (status != TRM_OK) {
        return status;
    }
    if (o->global_batch % parts != 0) {
        return app_fail(err, TRM_INVALID,
                        "--global-batch %lld: its %lld parts (ranks that feed samples, times "
                        "batches of a step) do not divide it",
                        (long long)o->global_batch, (long long)parts);
    }
    o->batch_size = o->global_batch / parts;
    return TRM_OK;
}

int64_t app_read_batch(app_context *app) {
    return app_splits(app) && !app_reads_own(app) ? app_whole_batch(app) : app->o.batch_size;
}

/* Contract in app.h. A model of an elastic job chooses slices itself, each time ranks change. On
 * one host, slices of the optimiser cost less than a whole optimiser on every rank: the parameters
 * exist once in shared memory and are not copied. Between hosts the all-gathers of the slices would
 * come on top. The bits are the same. On one host the gradients of late convolutions are also
 * computed jointly, with or without slices. */
trm_status app_settle_slices(app_context *app, trm_error *err) {
    static const char slices[] = "enable_parallel_optimizer",
                      cooperative[] = "cooperative_gradients";
    trm_comm *comm = app_comm(app);
    const bool elastic = app_elastic(app) != NULL;
    const bool one_host =
        elastic || (comm != NULL && trm_comm_local_size(comm) == trm_comm_size(comm));
    if (!one_host || !(app_splits(app) ||
                       strcmp(app_context_option(app, "parallel_mode"), "data_parallel") == 0)) {
        return TRM_OK;
    }
    trm_status status = elastic || trm_context_is_set(app->context, slices)
                            ? TRM_OK
                            : trm_context_set(app->context, slices, "true", err);
    return status != TRM_OK || trm_context_is_set(app->context, cooperative)
               ? status
               : trm_context_set(app->context, cooperative, "conv", err);
}

void app_waiting(const app_context *app, trm_exec *exec, trm_waiting *out) {
    trm_error ignored; /* the failure of another rank is reported where it happened */
    if (app->ranks == NULL || trm_exec_get_waiting(exec, out, &ignored) != TRM_OK) {
        *out = (trm_waiting){0};
    }
}

/* Contract in app.h. Fractions are of the mean step. */
void app_put_parallel(const app_context *app, const trm_exec *exec, const trm_waiting *waiting) {
    trm_parallel_info info;
    if (app->ranks == NULL) {
        return;
    }
    trm_exec_get_parallel_info(exec, &info);
    const char *asked = app_context_option(app, "enable_parallel_optimizer");
    const bool sliced = strcmp(asked, "true") == 0 || info.one_copy;
    double step = waiting->step_seconds > 0 ? waiting->step_seconds : 1;
    double communication = waiting->communication_seconds / step,
           imbalance = waiting->imbalance_seconds / step;
    /* With stages of a pipeline only the ranks of one stage are measured, and one rank waits for
     * no other, so no sentence says it. */
    bool all = info.size > 1 && info.size == app_rank_count(app);
    app_put(app_int("rank", app_rank(app), NULL),
            app_int("ranks", app_rank_count(app), all ? "\n%d ranks wait" : NULL),
            app_text("parallel_mode", app_context_option(app, "parallel_mode"), NULL),
            app_bool("shard_optimizer", sliced, NULL),
            app_text("engine", trm_comm_engine(comm_of(app->ranks)), NULL),
            app_int("buckets", info.buckets, NULL), app_int("reduced_bytes", info.bytes, NULL),
            app_int("cooperative_bytes", info.cooperative_bytes, NULL),
            app_real("waiting_fraction", communication + imbalance,
                     all ? " for each other for %.1f{100} %% of a step" : NULL),
            app_real("exposed_comm_fraction", communication,
                     all ? ": %.1f{100} %% for communication" : NULL),
            app_real("imbalance_fraction", imbalance,
                     all ? ", %.1f{100} %% for those that come later" : NULL));
}
