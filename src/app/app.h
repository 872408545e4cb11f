/* SPDX-License-Identifier: Apache-2.0 */
/* app/app.h: the program: its options, its commands, and what commands share.
 *
 *      main ---> find the row of app_commands ---> app_parse by the row's groups --->
 *      row->run(&app) */
#ifndef TRIREME_APP_APP_H
#define TRIREME_APP_APP_H

#include "trireme/context.h"
#include "trireme/train.h"

#include "app/click.h"
#include "app/flags.h"
#include "app/output.h"

/* Every flag of every command; a row's groups say which of them it takes. */
typedef struct app_options {
    /* all commands */
    bool help, json, quiet, verbose;
    const char *color;
    bool dry_run;
    /* data */
    const char *data, *dataset, *usage;
    int64_t image_size, classes, workers, synth_train, synth_test;
    bool exact_guide, read;
    /* network */
    const char *stem;
    int64_t batch_size;
    /* execution */
    const char *precision, *backend;
    int64_t threads, seed;
    bool no_fusion;
    const char *tuning_file, *choices_file;
    double retune_seconds; /* set by the commands that measure */
    /* training */
    int64_t epochs, steps, accumulate, warmup_steps, decay_steps;
    const char *optimizer, *schedule, *loss, *loss_scale;
    double learning_rate, momentum, weight_decay, end_learning_rate, gamma, power, warmup_start;
    double label_smoothing, clip_norm;
    bool sink;
    /* output */
    const char *output, *init, *metrics, *profile;
    bool resume, accept_changes, tensorboard;
    int64_t save_every_steps, keep, log_every, summary_every, eval_every_epochs, early_stop,
        histogram_epochs;
    double save_every_seconds, keep_every_hours;
    /* other commands */
    const char *checkpoint, *predictions, *to, *from, *file;
    bool explain;
    int64_t repeats, rows;
    /* many ranks */
    int64_t ranks;
    const char *split_plan, *split_mesh; /* semi_auto_parallel, auto_parallel */
    const char *parallel_mode, *reduce, *wire, *bucket, *sync_batch_norm, *layerwise, *rank_table;
    const char *deterministic, *context, *hosts, *launch_directory;
    int64_t deterministic_block;
    bool shard_optimizer, any_address;
    double timeout, start_timeout, role_timeout;
    const char *op, *sizes, *engine, *algorithm, *dtype, *redop;
    double min_busbw;
    bool private_buffers;
    app_click_flags click;
    /* parameter servers */
    int64_t servers, restarts, backup_workers, ps_shards, ps_memory, export_bytes, table_bytes,
        row_width;
    const char *mode, *placement, *job_name, *task_index, *ps_hosts, *worker_hosts, *chief_hosts,
        *evaluator_hosts;
    const char *export_latest, *export_best, *export_final;
    const char *token_file, *listen, *connect, *table, *key, *tables, *ps_spill, *lend;
    int64_t hot_rows, hot_age, top;
    int64_t cut;
    bool tcp_only, prometheus;
    bool evaluator, check, no_ps_log, hybrid, staleness_aware;
    /* planning */
    int64_t plan_ranks, plan_hosts, plan_memory;
    const char *plan_mesh, *plan_search, *plan_given, *plan_save, *plan_picture, *plan_links,
        *plan_trace;
    bool plan_no_measure, plan_validate, plan_refresh, plan_profile;
    int64_t plan_others;
    double plan_trial; /* -1: as the library likes */
    double plan_straggler, tolerance;
    bool bitwise, full_batch;
    int64_t plan_largest;
} app_options;

/* --trial-seconds as the library takes it. */
static inline double app_trial_seconds(const app_options *o) {
    return o->plan_trial < 0 ? 0 : o->plan_trial > 0 ? o->plan_trial : -1;
}

typedef struct app_command app_command;
typedef struct app_context {
    const app_command *commands; /* all of them, with an end row without a name */
    const app_command *command;
    double begin; /* of main: trm_now_seconds */
    app_options o;
    app_parsed parsed;
    char **argv;             /* the whole command line, NULL-terminated */
    bool evaluates;          /* a checkpoint that was trained before */
    int32_t shards, shard;   /* of the data, where ranks do not say; 0 = by rank */
    struct app_ranks *ranks; /* after app_join: NULL with one rank */
    trm_context *context;    /* after app_set_context */
} app_context;

struct app_command {
    const char *name;      /* "train", or two words: "data synth" */
    const char *arguments; /* "MODEL", "" */
    int arguments_min, arguments_max;
    const char *summary; /* one line */
    const char *text;    /* a paragraph more, or NULL */
    const char *example;
    const app_group *groups[APP_GROUPS_MAX]; /* NULL-terminated, app_group_common first */
    int (*run)(app_context *app);
};
extern const app_command app_commands[];

extern const app_group app_group_common, app_group_plain, app_group_dry_run, app_group_data,
    app_group_network, app_group_exec, app_group_train, app_group_output, app_group_log,
    app_group_checkpoint, app_group_eval, app_group_export, app_group_import, app_group_plan,
    app_group_planner, app_group_simulate, app_group_verify, app_group_bench_plan,
    app_group_bench_split, app_group_bench, app_group_preset, app_group_synth, app_group_info,
    app_group_dataset, app_group_click_data, app_group_click_model, app_group_vocabulary,
    app_group_ranks, app_group_roles, app_group_job, app_group_launch, app_group_cluster,
    app_group_cluster_make, app_group_cluster_output, app_group_bench_comm, app_group_bench_ps,
    app_group_ps, app_group_ps_inspect, app_group_ps_export;

/* The values that flags have when they are not given. */
void app_defaults(app_options *o);
/* --usage, or `otherwise` when it is not given. */
trm_usage app_usage(const app_options *o, trm_usage otherwise);

/* ---- help (help.c) ----------------------------------------------------------------------------
 */
void app_help_overview(const app_command *commands);
void app_help_command(const app_command *command);
/* "trireme data --help": the commands that begin with the word; false when it is no such line. */
bool app_help_family(const app_command *commands, const char *family, const char *flag);
int app_run_help(app_context *app);
int app_run_version(app_context *app);

/* ---- datasets (pipeline.c)
 *  ----------------------------------------------------------------------- */

/* Is --data given?   errors  INVALID */
TRM_MUST_USE trm_status app_check_data(const app_context *app, trm_error *err);
/* True where the data are generated (--data synth or clicks), not read. */
bool app_generates(const app_options *o);
/* The set that --data and --dataset name, with its transforms, in batches; a training set is
 * shuffled and augmented. INVALID, IO, CORRUPT. */
TRM_MUST_USE trm_status app_dataset(const app_context *app, trm_usage usage, bool training,
                                    trm_dataset **out, trm_error *err);
/* Random batches of the model's shape, for commands that need no data. */
TRM_MUST_USE trm_status app_dataset_random(const app_context *app, trm_dataset **out,
                                           trm_error *err);
/* Sets what depends on the data and was not given: image and batch size, and the guide's numbers.
 */
void app_settle_data(app_context *app);
/* An image folder without train and val (or test) in it: every usage reads the same images. */
bool app_has_one_folder(const app_options *o, trm_dataset *data);

/* ---- models (setup.c)
 *  ------------------------------------------------------------------------------ */

/* The network that MODEL names, with its options: context of the function that builds it. */
typedef struct app_network {
    const char *name;
    int64_t classes;
    const char *stem;
    trm_xent_options xent;
    app_click_network click; /* recommendation models */
} app_network;
/* Is there a model of this name? INVALID with the nearest, or all. */
TRM_MUST_USE trm_status app_check_model_name(const char *name, trm_error *err);
TRM_MUST_USE trm_status app_make_model(app_context *app, const char *name, trm_dataset *data,
                                       bool evaluation_only, app_network *network, trm_model **out,
                                       trm_error *err);

/* Takes stem, classes and image size from the description of --checkpoint where flags do not give
 * them; a directory of checkpoints becomes the newest sound one in it, for all that follows.
 * INVALID when it is of another model. */
TRM_MUST_USE trm_status app_recall(app_context *app, const char *name, trm_error *err);
enum { APP_DESCRIPTION_BYTES = 4096 };
/* The options of such a model; `description` (APP_DESCRIPTION_BYTES) must live as long as they are
 * used. */
TRM_MUST_USE trm_status app_model_options(app_context *app, const char *name, trm_dataset *data,
                                          bool evaluation_only, app_network *network,
                                          char *description, trm_model_options *out,
                                          trm_error *err);

/* ---- flags without effect (idle.c)
 *  ---------------------------------------------------------------------- */

/* Warns of each flag that was given and that this model, optimiser, schedule or data does not look
 * at. */
void app_tell_idle_flags(const app_context *app, const char *model);
/* The same of flags about ranks, after app_join. */
void app_tell_idle_rank_flags(const app_context *app);
/* Is this a job with parameter servers: --ps, guide 000's flags, or a TF_CONFIG with roles? */
bool app_is_job(const app_context *app);
/* Refuses flags that only such jobs look at. */
TRM_MUST_USE trm_status app_refuse_job_flags(const app_context *app, trm_error *err);

/* ---- recommendation models (click.c)
 *  ---------------------------------------------------------------- */

bool app_is_recommender(const char *model);
/* "images" or "samples", and the key of their rate in JSON. */
const char *app_unit(const app_context *app);
const char *app_rate_key(const app_context *app);
/* Defaults of the model, where flags are not given. */
void app_click_settle(app_context *app);
/* What --columns, --vocabulary and so on say, for spec->click; sets spec->kind and path where the
 * model says what "synth" means. Valid until the next call. INVALID, IO, CORRUPT. */
TRM_MUST_USE trm_status app_click_data(const app_context *app, trm_dataset_spec *spec,
                                       trm_error *err);
/* Generated clicks of the model's shape, for commands that need no data. */
TRM_MUST_USE trm_status app_click_random(const app_context *app, trm_dataset **out, trm_error *err);
/* What the network reads from this data, and the size of its table. */
TRM_MUST_USE trm_status app_click_network_of(const app_context *app, trm_dataset *data,
                                             app_click_network *out, trm_error *err);
trm_node app_click_build(trm_graph *graph, const trm_inputs *inputs, void *app_network);
/* Generated clicks: what nothing can be better than on the test rows; false with other data. */
bool app_click_bayes(const app_context *app, trm_clicks_bayes *out);
/* The "click" object of a checkpoint's description, and back. */
void app_click_describe(const app_network *network, char *text, size_t size);
TRM_MUST_USE trm_status app_click_recall(app_context *app, const char *description, trm_error *err);

/* ---- options of the run (context.c)
 *  ------------------------------------------------------------------- */

/* Makes the context from the flags, once. INVALID for impossible words. */
TRM_MUST_USE trm_status app_set_context(app_context *app, trm_error *err);
/* What an option of it is; only for names that there are. */
const char *app_holds(const app_context *app, const char *option);
/* --plan and --mesh are for the modes that split; after app_set_context. */
TRM_MUST_USE trm_status app_check_split_flags(const app_context *app, trm_error *err);
/* Do flags and --context go with each other and with the parallel mode, whatever ranks come?
 * INVALID, UNSUPPORTED. */
TRM_MUST_USE trm_status app_check_modes(app_context *app, trm_error *err);

/* ---- files (files.c)
 *  ---------------------------------------------------------------------------------- */

/* A whole text file, at most 1 MB; the caller frees it. IO, CORRUPT, NOMEM. */
TRM_MUST_USE trm_status app_read_text(const char *path, char **out, trm_error *err);
/* Has a path this ending (".npz"), and a name before it? */
bool app_ends_in(const char *path, const char *ending);
/* A plan file's text; what is wrong with it is told with its name.   owns  *out: caller, trm_free
 */
TRM_MUST_USE trm_status app_read_plan(const char *path, char **out, trm_error *err);

/* ---- many ranks (ranks.c)
 *  --------------------------------------------------------------------------- */

typedef trm_status app_check(app_context *app, trm_error *err);
/* -n N where this process is no rank of a job yet: starts the same command N times and waits, after
 *  `check` (may be NULL).
 * *launched: it did, and *code is the exit code. INVALID, IO, and what `check` returns. */
TRM_MUST_USE trm_status app_launch_self(app_context *app, app_check *check, bool *launched,
                                        int *code, trm_error *err);
/* Finds out who this process is, meets the other ranks, makes the communicator; nothing of it with
 * one rank, or with --parallel-mode stand_alone. INVALID, TIMEOUT, PEER. */
TRM_MUST_USE trm_status app_join(app_context *app, trm_error *err);
void app_leave(app_context *app);
int32_t app_rank(const app_context *app);
int32_t app_rank_count(const app_context *app);
trm_comm *app_comm(const app_context *app); /* NULL with one rank */
/* semi_auto_parallel or auto_parallel on many ranks: each reads the whole batch, -n times
 * --batch-size. */
bool app_splits(app_context *app);
/* Samples of a step over all ranks, and of one batch of this rank's dataset: --batch-size times the
 * ranks, and
 * --batch-size, unless the graph is split (then the whole), or --full-batch makes --batch-size the
 *  whole. */
int64_t app_whole_batch(app_context *app);
int64_t app_read_batch(app_context *app);
/* Does each rank of a split read its own samples (full_batch=false)? */
bool app_reads_own(app_context *app);
/* Once ranks are known: many of them slice the optimiser unless they are told otherwise. */
TRM_MUST_USE trm_status app_settle_slices(app_context *app, trm_error *err);
/* What ranks waited for each other; collective. All zero with one rank, and where not all of them
 * come to this. */
void app_waiting(const app_context *app, trm_exec *exec, trm_waiting *out);
/* rank, ranks, mode, buckets, waiting_fraction and its two parts: into the open JSON object, with
 * many ranks. */
void app_json_parallel(const app_context *app, const trm_exec *exec, const trm_waiting *waiting);

/* ---- what a training tells (report.c)
 *  ----------------------------------------------------------------- */

typedef struct app_report_state {
    app_context *app;
    uint64_t first_step; /* of this process; the time that is left is reckoned from there */
    int64_t reported_samples;
    double reported_seconds;
    trm_progress last;
} app_report_state;
/* Tells of steps, epochs, evaluations and checkpoints; `state` must live as long as the training.
 */
trm_callback app_reporter(app_report_state *state);
/* The line, or the JSON event, of an evaluation; epoch 0 = none. */
void app_tell_evaluation(app_context *app, int64_t epoch, const trm_evaluation *evaluation);

/* ---- predictions (predictions.c)
 *  ----------------------------------------------------------------------- */

/* Gathers logits and labels of an evaluation; see is a trm_prediction_fn. NOMEM, IO. */
typedef struct app_predictions app_predictions;
TRM_MUST_USE trm_status app_predictions_create(app_predictions **out, trm_error *err);
void app_predictions_destroy(app_predictions *predictions);
trm_status app_predictions_see(void *predictions, const trm_tensor *logits, int64_t samples,
                               const trm_batch *batch, trm_error *err);
TRM_MUST_USE trm_status app_predictions_write(const app_predictions *predictions, const char *path,
                                              trm_error *err);

/* ---- rank tables (cmd_cluster.c)
 *  ----------------------------------------------------------------------- */

/* Prints what is in a rank table, warnings among it; one that is damaged or not finished is
 * reported as `wrong`: configuration (TRM_INVALID) or a bad file (TRM_CORRUPT). Returns the exit
 * code. */
int app_tell_rank_table(app_context *app, const char *path, trm_status wrong);

/* ---- tables of a job (table_flag.c)
 *  ------------------------------------------------------------------- */

/* What --tables says of the table options->name (NULL: of any), over what is in *options; text NULL
 * says nothing. The
 * bits of the parts that were about it are set in *used.   errors  INVALID */
trm_status app_table_flag(const char *text, trm_table_options *options, uint64_t *used,
                          trm_error *err);
/* After all tables: INVALID if a part was about none of them. */
trm_status app_table_flag_used(const char *text, uint64_t used, trm_error *err);

/* ---- roles (roles.c, role.c)
 *  ---------------------------------------------------------------------------------- */

/* Starts all roles on this machine (--ps), or does the part of one. */
int app_run_job(app_context *app);
/* ---- dry runs (dry_run.c)
 *  ------------------------------------------------------------------------------- */

/* Tells that --dry-run has left something out. Returns 0, the exit code. */
int app_tell_dry_run(const app_context *app, const char *left_out);
/* The same once the model, its options and its batches were found to be possible; otherwise tells
 * why not. */
int app_dry_run_model(app_context *app, const char *left_out);
/* Before processes are started: is there such a model, and do flags and context go with the
 * parallel mode? On a dry run, when none will say it: the checkpoint, the data and the model's
 * options, too. */
TRM_MUST_USE trm_status app_check_job(app_context *app, trm_error *err);

/* ---- signals (signals.c)
 *  ------------------------------------------------------------------------------ */

/* SIGINT, SIGTERM and SIGUSR1 ask the model to stop after its step; a second SIGINT or SIGTERM ends
 * the program at once. SIGUSR2 asks for the state. */
void app_signals_begin(trm_model *model);
struct trm_estimator;
void app_signals_begin_job(struct trm_estimator *estimator);
void app_signals_end(void);
/* At the start of main: what is never the end of the program. */
void app_signals_prepare(void);
/* 128 + the signal, 0 when there was none. */
int app_signal_exit_code(void);
/* SIGUSR2 has come since the last call. */
bool app_signal_wants_state(void);

/* ---- commands
 *  ------------------------------------------------------------------------------------------- */
int app_run_train(app_context *app);
int app_run_eval(app_context *app);
int app_run_plan(app_context *app);
int app_run_planner(app_context *app); /* plan with -n or --mesh */
int app_run_simulate(app_context *app);
int app_run_verify(app_context *app);
int app_run_bench_plan(app_context *app);
int app_run_bench_split(app_context *app);
int app_run_export(app_context *app);
int app_run_ps_inspect(app_context *app);
int app_run_ps_export(app_context *app);
int app_run_import(app_context *app);
int app_run_inspect(app_context *app);
int app_run_data_synth(app_context *app);
int app_run_data_info(app_context *app);
int app_run_data_fetch(app_context *app);
int app_run_data_vocabulary(app_context *app);
int app_run_bench_train(app_context *app);
int app_run_bench_ops(app_context *app);
int app_run_bench_data(app_context *app);
int app_run_doctor(app_context *app);
int app_run_run(app_context *app);
int app_run_cluster_check(app_context *app);
int app_run_cluster_show(app_context *app);
int app_run_cluster_make(app_context *app);
int app_run_cluster_merge(app_context *app);
int app_run_bench_comm(app_context *app);
int app_run_bench_ps(app_context *app);

#endif
