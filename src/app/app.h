/* SPDX-License-Identifier: Apache-2.0 */
/* app/app.h: the program `trireme`: its options, its commands, and the functions that commands
 * share.
 *
 *        main ---> find the row of app_commands ---> app_parse with the groups of that row ---> row->run(&app)
 *
 * Every function of a command returns the exit code of the program; other functions that can fail
 * return a trm_status and fill `err`. A command never prints an error itself: it passes `err` to
 * app_report, which also determines the exit code. Results go to stdout, everything else to stderr
 * (output.h). */
#ifndef TRIREME_APP_APP_H
#define TRIREME_APP_APP_H

#include "trireme/train.h"

#include "app/models/click.h"
#include "app/options/flags.h"
#include "app/models/language.h"
#include "app/output/output.h"

/* Values of all flags of all commands. The groups of a command determine which of them its
 * command line may set; the remaining ones keep the values of app_defaults. The help text of its
 * flag (options.c) describes each member; most members have the
 * name of their flag. Texts are borrowed from argv or static. */
typedef struct app_options {
    /* all commands */
    bool help, json, quiet, verbose;
    const char *color;
    bool dry_run;
    /* data */
    const char *data, *dataset, *usage;
    int64_t image_size, classes, workers, synth_train, synth_test;
    bool fixed_recipe, read;
    /* network */
    const char *stem;
    int64_t batch_size, global_batch;
    /* execution */
    const char *precision, *backend;
    int64_t threads, seed;
    bool no_fusion;
    const char *tuning_file, *choices_file;
    double retune_seconds; /* set by the commands that measure, not by a flag */
    /* training */
    int64_t epochs, steps, accumulate, warmup_steps, decay_steps;
    const char *optimizer, *betas, *schedule, *loss, *loss_scale, *recompute;
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
    int64_t shard_bytes;
    bool merge;
    bool explain;
    int64_t repeats, rows;
    /* many ranks */
    int64_t ranks;
    const char *split_plan, *split_mesh;   /* semi_auto_parallel, auto_parallel */
    const char *stages_text;               /* --stages of commands that train */
    int64_t stages, micro_batches, chunks; /* pipeline; 0 = not given */
    bool stages_searched;                  /* auto_parallel: `stages` is what the search may take */
    double stages_gain;                    /* without --stages: by what part they must be faster */
    const char *found_plan;                /* text of the plan that app_search_stages has found */
    const char *pipeline_schedule, *stage_begins;
    int64_t plan_micros, plan_chunks; /* plan --stages; 0 = any */
    const char *plan_stages, *plan_schedule, *plan_begins;
    bool stages_of_plan;     /* the plan file of --plan has stages */
    bool micro_batches_done; /* batch_size is that of one micro-batch */
    const char *parallel_mode, *reduce, *wire, *bucket, *sync_batch_norm, *layerwise, *rank_table;
    const char *deterministic, *context, *hosts, *launch_directory;
    int64_t deterministic_block;
    bool shard_optimizer, any_address;
    /* seconds: for the whole job, for meeting the other ranks, for roles that are silent */
    double timeout, start_timeout, role_timeout;
    const char *elastic; /* least and most ranks */
    const char *elastic_batch;
    double elastic_deadline;
    int64_t elastic_restarts;
    /* collectives: bench comm; engine and algorithm of every command with ranks */
    const char *op, *sizes, *engine, *algorithm, *dtype, *redop;
    double min_busbw;
    bool private_buffers;
    /* recommendation models (click.h) */
    app_click_flags click;
    /* text */
    const char *tokenizer, *tokens, *text_field, *special_tokens;
    app_transformer_flags transformer; /* language models and vit (language.h) */
    int64_t context_tokens, stride, token_vocabulary, token_min_count;
    const char *prompt, *prompt_file; /* generate */
    int64_t generate_tokens, top_k;
    double temperature, top_p;
    bool by_line;
    /* parameter servers */
    int64_t servers, restarts, backup_workers, ps_shards, ps_memory, export_bytes, table_bytes,
        row_width;
    const char *mode, *placement, *job_name, *task_index, *ps_hosts, *worker_hosts, *chief_hosts,
        *evaluator_hosts;
    /* exporters of the evaluator: FORMAT[:METRIC] */
    const char *export_latest, *export_best, *export_final;
    /* secret, addresses and tables of the servers */
    const char *token_file, *listen, *connect, *table, *key, *tables, *ps_spill, *lend;
    /* cached rows and their age in batches; rows of ps inspect --top */
    int64_t hot_rows, hot_age, top;
    /* number of the snapshot that ps inspect and ps export read; 0: the newest */
    int64_t snapshot;
    bool tcp_only, prometheus;
    bool evaluator, check, no_ps_log, hybrid, staleness_aware;
    /* planning */
    int64_t plan_ranks, plan_hosts, plan_memory;
    const char *plan_mesh, *plan_search, *plan_given, *plan_save, *plan_picture, *plan_links,
        *plan_trace, *plan_hardware, *plan_preset, *plan_products, *plan_export;
    const char *html; /* report, plan, simulate: file of the page */
    bool once;        /* top */
    bool plan_no_measure, plan_validate, plan_refresh, plan_profile;
    int64_t plan_others;
    double plan_trial; /* -1: the default of the library */
    double plan_straggler, tolerance;
    bool bitwise, full_batch;
    int64_t plan_largest;
} app_options;

typedef struct app_command app_command;
/* The state of one run of the program: what was asked for, and what has been made so far. main()
 * makes one and passes it to every function of a command. */
typedef struct app_context {
    const app_command *commands; /* all commands; a row without a name ends the list */
    const app_command *command;
    double begin; /* trm_now_seconds at the start of main */
    app_options o;
    app_parsed parsed;
    /* row of MODEL (models.h); NULL for commands without one, and for a wrong name */
    const struct app_model *model;
    char **argv;             /* the whole command line, NULL-terminated */
    bool evaluates;          /* the command evaluates a checkpoint instead of training */
    int32_t shards, shard;   /* shard of the data where the role sets it; 0: by rank */
    struct app_ranks *ranks; /* set by app_join; NULL with one rank */
    trm_context *context;    /* after app_set_context */
} app_context;

/* One row of the table of commands. Dispatch, --help and error messages read the same row. */
struct app_command {
    const char *name;      /* "train", or two words: "data synth" */
    const char *arguments; /* "MODEL", "" */
    int arguments_min, arguments_max;
    const char *summary; /* one line */
    const char *text;    /* a further paragraph, or NULL */
    const char *example;
    const app_group *groups[APP_GROUPS_MAX]; /* NULL-terminated, app_group_common first */
    int (*run)(app_context *app);
};
/* A word of a flag and its enumerator. */
typedef struct app_word {
    const char *name;
    int value;
} app_word;
/* Optimisers and their trm_optimizer_kind, ended by a row without a name (setup.c). */
extern const app_word app_optimizers[];

/* All commands (commands.c); a row without a name ends the table. */
extern const app_command app_commands[];

/* The groups of the table of options (options.c). */
extern const app_group app_group_common, app_group_plain, app_group_dry_run, app_group_data,
    app_group_network, app_group_exec, app_group_train, app_group_output, app_group_log,
    app_group_checkpoint, app_group_eval, app_group_export, app_group_import, app_group_plan,
    app_group_planner, app_group_report, app_group_top, app_group_simulate, app_group_verify,
    app_group_bench_plan, app_group_bench_split, app_group_bench, app_group_preset, app_group_synth,
    app_group_info, app_group_dataset, app_group_click_data, app_group_click_model,
    app_group_vocabulary, app_group_ranks, app_group_roles, app_group_job, app_group_launch,
    app_group_cluster, app_group_cluster_make, app_group_cluster_output, app_group_bench_comm,
    app_group_bench_ps, app_group_ps, app_group_ps_inspect, app_group_ps_export,
    app_group_text_data, app_group_text_context, app_group_transformer, app_group_vit,
    app_group_language, app_group_tokenizer_encode, app_group_tokenizer_decode,
    app_group_tokenizer_train, app_group_generate, app_group_hardware;

/* Sets the values that flags have when they are not given. */
void app_defaults(app_options *o);
/* Returns the first row that sets this option of --context; NULL if there is none. */
const app_flag *app_flag_of_option(const char *option);
/* Returns the part of the data that --usage names, `otherwise` without the flag. */
trm_usage app_usage(const app_options *o, trm_usage otherwise);

/* ---- help (help.c) --------------------------------------------------------------------------- */

/* Prints the list of commands and of models. */
void app_help_overview(const app_command *commands);
/* Prints usage, text and flags of one command. */
void app_help_command(const app_command *command);
/* Prints the commands of a family for "trireme data --help". Returns false, and prints nothing,
 * if `family` begins no command or `flag` is not --help or -h. */
bool app_help_family(const app_command *commands, const char *family, const char *flag);
/* Run the commands help and version. */
int app_run_help(app_context *app);
int app_run_version(app_context *app);

/* ---- datasets (app/models/dataset.c) --------------------------------------------------------- */

/* Checks that --data is given.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_check_data(const app_context *app, trm_error *err);
/* Returns whether the data is generated (--data synth or clicks) instead of read. */
bool app_generates(const app_options *o);
/* Opens the dataset that --data and --dataset name, with its transforms, in batches. `training`:
 * shuffled and augmented. Each rank gets its shard of the data, or the whole data where a split
 * of the graph reads whole batches.
 *   errors  INVALID, IO, CORRUPT */
TRM_MUST_USE trm_status app_dataset(const app_context *app, trm_usage usage, bool training,
                                    trm_dataset **out, trm_error *err);
/* Creates a dataset of random batches in the shape that the model reads, for commands that need
 * no data. */
TRM_MUST_USE trm_status app_dataset_random(const app_context *app, trm_dataset **out,
                                           trm_error *err);
/* Opens the data for training that flags name, or without --data random batches.
 *   errors  those of app_dataset */
TRM_MUST_USE trm_status app_dataset_or_random(const app_context *app, trm_dataset **out,
                                              trm_error *err);
/* Sets the options that depend on the data and were not given: image size, batch size, the
 * numbers of --exact-guide. */
void app_settle_data(app_context *app);
/* Returns whether the data is an image folder without train and val (or test), or a single file:
 * every usage then reads the same samples. */
bool app_has_one_folder(const app_options *o, trm_dataset *data);

/* ---- models (setup.c, models.c) -------------------------------------------------------------- */

/* Bytes of the part of a checkpoint that describes its model. */
enum { APP_DESCRIPTION_BYTES = 4096 };
/* The network that MODEL names, with its options: the context of the function that builds the
 * graph. */
typedef struct app_network {
    const struct app_model *model; /* row of models.c */
    int64_t classes;
    const char *stem;
    trm_xent_options xent;
    app_click_network click;            /* recommendation models */
    trm_vit_options vit;                /* complete */
    double image_mean[3], image_std[3]; /* vit: as images are normalised; std 0: unknown */
    const char *lora;                   /* value of --lora; NULL: not given */
    app_language_network language;
    char description[APP_DESCRIPTION_BYTES]; /* of the model, for its checkpoints */
} app_network;
/* Checks that a model of this name exists; the message names the nearest one, or all of them.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_check_model_name(const char *name, trm_error *err);
/* Creates the model that the command names, the first argument, with the options of the flags on
 * `data`. `network` must live as long as the model. */
TRM_MUST_USE trm_status app_make_model(app_context *app, trm_dataset *data, bool evaluation_only,
                                       app_network *network, trm_model **out, trm_error *err);

/* Takes stem, classes, image size and the options of click models from the description in
 * --checkpoint, where flags do not give them. Replaces a directory in --checkpoint by the newest
 * sound checkpoint in it.
 *   errors  INVALID if it is of another model, IO */
TRM_MUST_USE trm_status app_recall(app_context *app, const char *name, trm_error *err);
/* Warns, on rank 0, of what differs from the checkpoint or folder in --init, and no shape of a
 * weight shows: heads, epsilon, rotary positions, normalisation of images, tokens of the data. */
void app_compare_start(const app_context *app, const app_network *network, const trm_dataset *data);
/* Return what rates count ("images", "samples" or "tokens"), the key of the rate in JSON, and how
 * many a sample has. */
const char *app_unit(const app_context *app);
const char *app_rate_key(const app_context *app);
double app_units_a_sample(const app_context *app);
/* Puts the size of the model's inputs (", 32x32", ", 64 tokens"; nothing for click models) into
 * the open report. */
void app_put_input(const app_context *app);
/* Fills in the options of that model without creating it. `network` must live as long as the
 * options are used. Warns about flags without effect. */
TRM_MUST_USE trm_status app_model_options(app_context *app, trm_dataset *data, bool evaluation_only,
                                          app_network *network, trm_model_options *out,
                                          trm_error *err);

/* ---- flags without effect (idle.c) ----------------------------------------------------------- */

/* When conditions of flags (app_flag.use) are checked. */
typedef enum app_stage {
    APP_STAGE_MODEL, /* once the model is known */
    APP_STAGE_RANKS, /* after app_join */
    APP_STAGE_PLAN   /* at the start of `plan` */
} app_stage;
/* Warns about each given flag whose conditions of this stage do not hold. */
void app_warn_idle_flags(const app_context *app, app_stage stage);
/* Refuses such flags, where a script expects the flag's file.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_refuse_idle_flags(const app_context *app, app_stage stage,
                                              trm_error *err);
/* Returns whether this is a job with parameter servers: --ps, the flags of guide 000, or a
 * TF_CONFIG that names servers. */
bool app_is_job(const app_context *app);
/* Refuses flags that only such jobs read.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_refuse_job_flags(const app_context *app, trm_error *err);

/* ---- recommendation models (click.c) --------------------------------------------------------- */

/* Sets spec->click by --columns, --vocabulary and the like. The result is valid until the next
 * call.
 *   errors  INVALID, IO, CORRUPT */
TRM_MUST_USE trm_status app_click_data(const app_context *app, trm_dataset_spec *spec,
                                       trm_error *err);
/* Returns the best metrics that any model can reach on the test rows of generated clicks; false
 * with other data. */
bool app_click_bayes(const app_context *app, trm_clicks_bayes *out);

/* ---- language models (language.c) ------------------------------------------------------------ */

/* Takes the number of tokens from --context N or N;NAME=VALUE. Called once, after parsing.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_take_context_tokens(app_context *app, trm_error *err);
/* Returns whether `path` is a Hugging Face folder; NULL is none. */
bool app_is_huggingface(const char *path);
/* Takes the options of the network of MODEL, and the tokenizer, from `folder` if it is a Hugging
 * Face folder and the model can be of one, unless flags give them. Sets *found if it did so.
 *   errors  INVALID if it is of another model; those of trm_huggingface_read */
TRM_MUST_USE trm_status app_recall_folder(app_context *app, const char *folder, bool *found,
                                          trm_error *err);
/* Takes the normalisation of images from the newest checkpoint that a vit resumes, so that it does
 * not depend on --init being given again. */
void app_recall_normalization(app_context *app);
/* Writes the data's tokenizer, if it has one, to tokenizer beside the checkpoints of a folder,
 * where app_recall finds it; nothing with --dry-run. One process of a job calls it.
 *   param  folder: NULL = there are no checkpoints
 *   errors  IO, NOSPACE, NOMEM */
TRM_MUST_USE trm_status app_language_keep_tokenizer(const app_context *app, const char *folder,
                                                    trm_dataset *data, trm_error *err);

/* ---- options of the run (context.c) ---------------------------------------------------------- */

/* Creates app->context from the flags and --context; a second call does nothing.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_set_context(app_context *app, trm_error *err);
/* Returns the value of an option of the context; `option` must exist. */
const char *app_context_option(const app_context *app, const char *option);
/* Checks that micro-batches divide the batch.   errors  INVALID */
TRM_MUST_USE trm_status app_check_pipeline(const app_context *app, trm_error *err);
/* Refuses --plan and --mesh in modes that do not split the graph; call it after app_set_context.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_check_split_flags(const app_context *app, trm_error *err);
/* Checks that the flags and --context agree with each other and with the parallel mode,
 * independent of the number of ranks.
 *   errors  INVALID, UNSUPPORTED */
TRM_MUST_USE trm_status app_check_modes(app_context *app, trm_error *err);

/* ---- files (files.c) ------------------------------------------------------------------------- */

/* Reads a whole text file of at most 1 MB.
 *   owns  *out: caller, free   errors  IO, CORRUPT, NOMEM */
TRM_MUST_USE trm_status app_read_text(const char *path, char **out, trm_error *err);
/* Returns whether a path has this ending (".npz") after a name. */
bool app_ends_in(const char *path, const char *ending);
/* Reads the text of a plan file and checks its form; messages name the file.
 *   owns  *out: caller, trm_free */
TRM_MUST_USE trm_status app_read_plan(const char *path, char **out, trm_error *err);

/* ---- stages of a pipeline (stages.c) --------------------------------------------------------- */

/* Reads "auto" (TRM_ALL) or a number of stages that divides `ranks` (0 = any).
 *   errors  INVALID */
TRM_MUST_USE trm_status app_read_stages(const char *text, int64_t ranks, int32_t *out,
                                        trm_error *err);
/* Returns whether stages are searched without --stages, too, by jobs in the mode auto_parallel and
 * by plan: of models with blocks, unless an option says how the job is planned or fed. */
bool app_implies_stages(const app_context *app);
/* Takes --stages, then the stages of --plan's file as if they were given as flags: stages,
 * micro-batches, schedule, chunks, begins, recompute. Once.   errors  those of reading it; INVALID
 * (flags that differ) */
TRM_MUST_USE trm_status app_take_stages(app_context *app, trm_error *err);
/* Sets the options of the context that say the stages. errors  those of trm_context_set */
TRM_MUST_USE trm_status app_set_stages(app_context *app, trm_error *err);
/* Divides the batch by the micro-batches, once, if they divide it. */
void app_settle_micro_batches(app_options *o);
/* search_stages.c: auto_parallel with --stages: searches stages and cuts on the joined ranks, and
 * sets the options to the plan that was found. Without effect in other modes. Collective.
 *   errors  those of trm_planner_create and trm_planner_share */
TRM_MUST_USE trm_status app_search_stages(app_context *app, trm_error *err);

/* ---- many ranks (ranks.c) -------------------------------------------------------------------- */

/* A check that runs before processes are started. */
typedef trm_status app_check(app_context *app, trm_error *err);
/* With -n N in a process that is no rank of a job yet: runs `check` (may be NULL), starts the
 * same command N times and waits for all of them. Sets *launched if it did so, and *code to the
 * exit code of the job.
 *   errors  INVALID, IO, errors of `check` */
TRM_MUST_USE trm_status app_launch_self(app_context *app, app_check *check, bool *launched,
                                        int *code, trm_error *err);
/* Determines the rank of this process from the environment, meets the other ranks and creates
 * the communicator. Does nothing with one rank, or with --parallel-mode stand_alone.
 *   errors  INVALID, TIMEOUT, PEER */
TRM_MUST_USE trm_status app_join(app_context *app, trm_error *err);
/* Destroys the communicator and the context. */
void app_leave(app_context *app);
/* Return this process's rank, the number of ranks, and the communicator (NULL with one rank). */
int32_t app_rank(const app_context *app);
int32_t app_rank_count(const app_context *app);
/* Returns the ranks that feed different samples: those of one stage of a pipeline, else all. */
int32_t app_feeding_ranks(app_context *app);
trm_comm *app_comm(const app_context *app);       /* Returns NULL with one rank. */
trm_elastic *app_elastic(const app_context *app); /* NULL without --elastic */
/* Returns whether this process has come to an elastic job that runs already, and has not joined
 * it. */
bool app_is_newcomer(const app_context *app);
/* Returns whether many ranks split one graph (semi_auto_parallel, auto_parallel). A step then
 * has -n times --batch-size samples. */
bool app_splits(app_context *app);
/* Return the samples of a step over all ranks, and of one batch of this rank's dataset. They are
 * --batch-size times the ranks, and --batch-size. Where the graph is split, a rank reads the
 * whole batch, unless each rank reads its own samples; with --full-batch the whole batch has
 * --batch-size samples. */
int64_t app_whole_batch(app_context *app);
int64_t app_read_batch(app_context *app);
/* Makes --batch-size that of --global-batch on the ranks of this job, or on those that it is to
 * have.
 *   errors  INVALID: they do not divide it; --batch-size or --elastic-batch rank is given, too */
TRM_MUST_USE trm_status app_settle_batch(app_context *app, trm_error *err);
/* Returns whether each rank of a split reads its own samples (full_batch=false). */
bool app_reads_own(app_context *app);
/* Sets the options that depend on where the ranks are: on one host the optimiser is sliced
 * unless the option is given. */
TRM_MUST_USE trm_status app_settle_slices(app_context *app, trm_error *err);
/* Measures how long the ranks waited for each other. Collective. All zero with one rank, or if a
 * rank failed before. */
void app_waiting(const app_context *app, trm_exec *exec, trm_waiting *out);
/* Puts the values of many ranks into the open report: rank, ranks, mode, buckets,
 * waiting_fraction and its two parts. Does nothing with one rank. */
void app_put_parallel(const app_context *app, const trm_exec *exec, const trm_waiting *waiting);

/* ---- progress of a training (report.c) ------------------------------------------------------- */

/* State of the progress report of one training. */
typedef struct app_report_state {
    app_context *app;
    uint64_t first_step;  /* first of this process; the remaining time is computed from it */
    trm_report_mark mark; /* at the report before */
    bool is_spare;        /* of an elastic job: this rank has no samples */
    trm_progress last;
} app_report_state;
/* Returns the callback that reports steps, epochs, evaluations and checkpoints. `state` must
 * live as long as the training. */
trm_callback app_reporter(app_report_state *state);
/* Prints the line, or the JSON event, of an evaluation; epoch and step 0: without them. */
void app_print_evaluation(app_context *app, int64_t epoch, int64_t global_step,
                          const trm_evaluation *evaluation);

/* Opens the record of this run in `folder` (record.h) and writes its first line: the command, the
 * machine, all options. Does nothing with --dry-run.
 *   param  folder: NULL = there is no record; role, number: as in app_record_open
 *   errors  those of app_record_open */
TRM_MUST_USE trm_status app_begin_record(const app_context *app, const char *folder,
                                         const char *role, int32_t number, trm_error *err);
/* Opens the record of a rank in --output unless it is open.
 *   errors  those of app_record_open, for rank 0; other ranks warn */
TRM_MUST_USE trm_status app_begin_rank_record(const app_context *app, int32_t rank, trm_error *err);

/* ---- predictions (predictions.c) ------------------------------------------------------------- */

/* The logits and labels of an evaluation, gathered for --predictions. */
typedef struct app_predictions app_predictions;
/* Creates an empty collection.
 *   errors  NOMEM */
TRM_MUST_USE trm_status app_predictions_create(app_predictions **out, trm_error *err);
void app_predictions_destroy(app_predictions *predictions);
/* Appends one batch: a trm_prediction_fn.
 *   errors  NOMEM */
trm_status app_predictions_see(void *predictions, const trm_tensor *logits, int64_t samples,
                               const trm_batch *batch, trm_error *err);
/* Writes all predictions to an .npz file.
 *   errors  IO */
TRM_MUST_USE trm_status app_predictions_write(const app_predictions *predictions, const char *path,
                                              trm_error *err);

/* ---- rank tables (cmd_cluster.c) ------------------------------------------------------------- */

/* Prints the content of a rank table and its warnings. Reports a table that is damaged or
 * unfinished with the status `wrong`: TRM_INVALID where the table is configuration, TRM_CORRUPT
 * where it is a file to inspect. Returns the exit code. */
int app_print_rank_table(app_context *app, const char *path, trm_status wrong);

/* ---- tables of a job (table_flag.c) ---------------------------------------------------------- */

/* Applies --tables to *options: the parts for all tables and those for the table options->name
 * (NULL: all parts). Sets in *used the bit of each part that was applied. `text` may be NULL.
 *   errors  INVALID */
trm_status app_table_flag(const char *text, trm_table_options *options, uint64_t *used,
                          trm_error *err);
/* Checks, once all tables are known, that each part was applied to a table.
 *   errors  INVALID */
trm_status app_table_flag_used(const char *text, uint64_t used, trm_error *err);

/* ---- roles (roles.c, role.c) ----------------------------------------------------------------- */

/* Starts all roles of a job with parameter servers on this machine (--ps), or runs the one role
 * of this process. */
int app_run_job(app_context *app);
/* ---- dry runs (dry_run.c) -------------------------------------------------------------------- */

/* Reports what --dry-run has left out. Returns the exit code, 0. */
int app_print_dry_run(const app_context *app, const char *left_out);
/* Checks that the model, its options and its batches are possible, and reports like
 * app_print_dry_run, or the error. */
int app_dry_run_model(app_context *app, const char *left_out);
/* Checks, before processes are started, the model's name, and that flags and context agree with
 * the parallel mode. On a dry run, where no rank will check them, also the checkpoint, the data
 * and the model's options. */
TRM_MUST_USE trm_status app_check_job(app_context *app, trm_error *err);

/* ---- signals (signals.c) --------------------------------------------------------------------- */

/* Let SIGINT, SIGTERM and SIGUSR1 stop the model (or the job) after the current step; a second
 * SIGINT or SIGTERM ends the program at once. */
void app_signals_begin(trm_model *model);
struct trm_estimator;
void app_signals_begin_job(struct trm_estimator *estimator);
/* Restores the default handling of these signals. */
void app_signals_end(void);
/* Sets, at the start of main, the handling of signals that never end the program: SIGXFSZ and
 * SIGUSR2, which requests the state. */
void app_signals_prepare(void);
/* Returns 128 + the signal that stopped the run, 0 without one. */
int app_signal_exit_code(void);
/* Returns whether SIGUSR2 has arrived since the last call. */
bool app_signal_wants_state(void);

/* ---- commands -------------------------------------------------------------------------------- */

/* The functions of the commands; each returns the exit code. */
int app_run_train(app_context *app);
int app_run_eval(app_context *app);
int app_run_plan(app_context *app);
int app_run_planner(app_context *app); /* Runs plan with -n, --mesh or --plan. */
int app_run_simulate(app_context *app);
int app_run_verify(app_context *app);
int app_run_bench_plan(app_context *app);
int app_run_bench_split(app_context *app);
int app_run_export(app_context *app);
int app_run_ps_inspect(app_context *app);
int app_run_ps_export(app_context *app);
int app_run_import(app_context *app);
int app_run_inspect(app_context *app);
int app_run_report(app_context *app);
int app_run_top(app_context *app);
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
int app_run_generate(app_context *app);
int app_run_bench_generate(app_context *app);
int app_run_tokenizer_train(app_context *app);
int app_run_tokenizer_encode(app_context *app);
int app_run_tokenizer_decode(app_context *app);

#endif
