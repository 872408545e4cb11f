/* SPDX-License-Identifier: Apache-2.0 */
/* plan -n N and simulate: the split of a model over ranks.
 *
 *      begin_planning --> trm_planner (search) --> report, --save, --svg, --html --> plan --validate, or simulate
 *
 * With up to MEASURED_RANKS ranks, plan starts itself on as many processes: they measure
 * operators and messages together. Otherwise costs come from --links or are guessed, and one
 * process is enough. Rank 0 prints.
 *
 * Invariant: a plan is priced with the options with which a job would run it. */
#include "app/models/models.h"
#include "app/output/page.h"
#include "app/commands/planning.h"

#include "trireme/base.h"
#include "trireme/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranks up to which costs are measured, and plans run, by as many processes of this machine. */
enum { MEASURED_RANKS = 8 };

/* Returns the number of ranks: of --mesh if it is valid, else of -n; 0 if both disagree (the
 * library reports what is wrong). */
static int64_t ranks_of(const app_options *o) {
    int32_t ranks = 0;
    if (o->plan_mesh == NULL || o->plan_stages != NULL) { /* with stages the mesh is of one stage */
        return o->plan_ranks;
    }
    return trm_mesh_ranks(o->plan_mesh, &ranks, NULL) == TRM_OK &&
                   (o->plan_ranks == 0 || o->plan_ranks == ranks)
               ? ranks
               : 0;
}

/* ---- creating the planner -------------------------------------------------------------------- */

/* The planner and what it borrows; ended by destroy_planning. */
typedef struct planning {
    trm_dataset *data;   /* random samples of the model's shapes */
    app_network network; /* `model` points to it */
    trm_model_options model;
    char *links, *given; /* text of --links or --hardware, text of --plan; NULL: none. Owned */
    trm_planner *planner;
} planning;

/* Destroys the planner and its inputs. */
static void destroy_planning(planning *p) {
    trm_planner_destroy(p->planner);
    trm_dataset_destroy(p->data);
    free(p->links);
    trm_free(p->given);
}

/* Returns whether ranks of this machine measure the costs. */
static bool measured_here(const app_context *app, int64_t ranks) {
    bool links = app->o.plan_links != NULL || app->o.plan_hardware != NULL;
    return !links && !app->o.plan_no_measure && ranks > 1 && ranks <= MEASURED_RANKS;
}

/* Contract in planning.h. A plan is priced with the same options with which a job would run it. */
void app_split_options(const app_context *app, trm_model_options *model) {
    const char *wire = app->o.wire != NULL ? app->o.wire : "fp32";
    bool local = strcmp(app->o.sync_batch_norm, "off") == 0;
    model->exec.parallel.wire = strcmp(wire, "bf16") == 0   ? TRM_BFLOAT16
                                : strcmp(wire, "fp16") == 0 ? TRM_FLOAT16
                                                            : 0;
    model->exec.parallel.sync_batch_norm = local ? TRM_NORM_LOCAL : 0;
    model->exec.parallel.shard_optimizer = app->o.shard_optimizer;
    model->exec.parallel.cooperative =
        TRM_COOPERATIVE_CONV; /* as jobs of one host have it (app_settle_slices) */
}

/* Returns the order of sums of the jobs that are planned, and sets the size of strict blocks. */
static trm_deterministic settle_order(const app_options *o, trm_model_options *model) {
    bool strict = strcmp(o->deterministic, "strict") == 0;
    model->exec.parallel.block = !strict                      ? 0
                                 : o->deterministic_block > 0 ? (int32_t)o->deterministic_block
                                                              : -1; /* by the global batch */
    return strict                                  ? TRM_DETERMINISTIC_STRICT
           : strcmp(o->deterministic, "true") == 0 ? TRM_DETERMINISTIC_TRUE
                                                   : TRM_DETERMINISTIC_FALSE;
}

/* Sets the number of stages of plans, and by what part of a step those must be faster. Without
 * --stages any number is searched where jobs search them. */
static trm_status settle_stages(const app_context *app, bool simulate, int32_t *stages,
                                double *gain, trm_error *err) {
    enum { MOST_RANKS = 64 }; /* with more the search takes longer than one without stages */
    const app_options *o = &app->o;
    if (o->plan_stages != NULL) {
        return app_read_stages(o->plan_stages, o->plan_ranks, stages, err);
    }
    if (!simulate && o->plan_ranks <= MOST_RANKS && app_implies_stages(app)) {
        *stages = TRM_ALL;
        *gain = APP_LEAST_GAIN;
    }
    return TRM_OK;
}

/* Builds data, model options and planner; the planner searches when it is created. `simulate`:
 * every rank is a device of its own. */
static trm_status begin_planning(app_context *app, bool simulate, planning *p, trm_error *err) {
    const app_options *o = &app->o;
    memset(p, 0, sizeof *p);
    app_settle_data(app);
    trm_status status = app_dataset_random(app, &p->data, err);
    if (status == TRM_OK) {
        status = app_model_options(app, p->data, false, &p->network, &p->model, err);
    }
    app_split_options(app, &p->model);
    if (status == TRM_OK && o->plan_given != NULL) {
        status = app_read_plan(o->plan_given, &p->given, err);
    }
    /* The links come from a file, are guessed, or are NULL to be measured. */
    bool guess = o->plan_links != NULL && strcmp(o->plan_links, "guess") == 0;
    if (status == TRM_OK && o->plan_hardware != NULL && o->plan_links != NULL) {
        return app_fail(err, TRM_INVALID, "--hardware and --links found, one of them expected");
    }
    const char *machine = o->plan_hardware != NULL ? o->plan_hardware : o->plan_links;
    if (status == TRM_OK && machine != NULL && !guess) {
        status = app_read_text(machine, &p->links, err);
    }
    if (status != TRM_OK) {
        return status;
    }
    /* the ranks, their memory, and what the user has fixed */
    trm_parallel_options *parallel = &p->model.exec.parallel;
    p->model.exec.memory_bytes = o->plan_memory;
    parallel->comm = simulate ? NULL : app_comm(app);
    parallel->batch = o->full_batch ? TRM_BATCH_OF_JOB : TRM_BATCH_DEFAULT;
    parallel->split.mesh = o->plan_mesh;
    parallel->split.search = o->plan_search;
    parallel->split.plan = p->given;
    int32_t stages = 0;
    double gain = 0;
    status = settle_stages(app, simulate, &stages, &gain, err);
    if (status != TRM_OK) {
        return status;
    }
    const trm_deterministic order = settle_order(o, &p->model);
    const trm_planner_options options = {.ranks = (int32_t)o->plan_ranks,
                                         .stages = stages,
                                         .stages_gain = gain,
                                         .micro_batches = (int32_t)o->plan_micros,
                                         .chunks = (int32_t)o->plan_chunks,
                                         .schedule = o->plan_schedule,
                                         .stage_begins = o->plan_begins,
                                         .hosts = (int32_t)o->plan_hosts,
                                         .links = p->links,
                                         .guess_links = guess,
                                         .own_devices = simulate,
                                         .measure = o->plan_no_measure ? TRM_OFF : TRM_ON,
                                         .frontier = simulate ? TRM_OFF : TRM_ON,
                                         .refresh = o->plan_refresh,
                                         .remeasures = o->plan_validate,
                                         .deterministic = order,
                                         .extra_candidates =
                                             o->plan_validate ? (int32_t)o->plan_others : 0};
    trm_error why;
    status = trm_planner_create(&p->model, &options, &p->planner, &why);
    /* the library knows the text of the file, and not its name */
    bool file = p->links != NULL && (strncmp(why.message, "links", 5) == 0 ||
                                     strncmp(why.message, "hardware,", 9) == 0);
    return status == TRM_OK ? TRM_OK
                            : app_fail(err, status, "%.80s%s%s", file ? machine : "",
                                       file ? ": " : "", why.message);
}

/* Checks --deterministic with the other options of a job, as the job would. */
static trm_status check_order(app_context *app, trm_error *err) {
    bool asked =
        app_given(&app->parsed, "deterministic") || app_given(&app->parsed, "deterministic-block");
    return asked ? app_check_modes(app, err) : TRM_OK;
}

/* Writes the page of --html: the report of the plan, and with `simulation` (or NULL) its report. */
static trm_status write_page(const app_context *app, const trm_planner *planner,
                             const char *simulation, trm_error *err) {
    char title[160];
    char *plan = trm_planner_report(planner, true);
    const char *model = app->model->name;
    app_begin(APP_KEPT, NULL, NULL);
    app_put(app_text("model", model, NULL), app_raw("plan", plan),
            app_raw("simulation", simulation));
    char *json = app_end_kept();
    trm_status status = TRM_OK;
    if (plan == NULL || json == NULL) {
        status = app_no_memory(err, "for the page");
    } else {
        snprintf(title, sizeof title, "%s: %s", model, simulation != NULL ? "simulation" : "plan");
        status = app_write_page(app->o.html, APP_PAGE_PLAN, title, json, err);
    }
    free(json);
    trm_free(plan);
    return status;
}

/* Writes the files of --save and --svg. */
static trm_status save_plan_files(const app_options *o, const trm_planner *planner,
                                  trm_error *err) {
    trm_status status =
        o->plan_save != NULL ? trm_planner_save(planner, o->plan_save, err) : TRM_OK;
    if (status != TRM_OK || o->plan_picture == NULL) {
        return status;
    }
    bool dot = app_ends_in(o->plan_picture, ".dot");
    char *picture = dot ? trm_planner_dot(planner) : trm_planner_svg(planner);
    status = picture != NULL ? trm_file_write(o->plan_picture, picture, strlen(picture), err)
                             : app_no_memory(err, "for the picture");
    trm_free(picture);
    return status;
}

/* Prints the report and writes the files; called by rank 0, or the only process. */
static trm_status print_result(app_context *app, planning *p, trm_error *err) {
    char *report = trm_planner_report(p->planner, app_out.json);
    if (report == NULL) {
        return app_no_memory(err, "for the report");
    }
    app_print_report(report);
    trm_free(report);
    trm_status status = save_plan_files(&app->o, p->planner, err);
    return status == TRM_OK && app->o.html != NULL ? write_page(app, p->planner, NULL, err)
                                                   : status;
}

/* Returns an error, after the report, if no plan fits into the memory.
 *   errors  NOMEM */
static trm_status check_limit(const app_context *app, const trm_planner *planner, trm_error *err) {
    trm_planner_info info;
    trm_planner_get_info(planner, &info);
    char limit[32], least[32];
    return info.infeasible
               ? app_fail(
                     err, TRM_NOMEM, "no plan fits %s a rank; the one of least memory takes %s",
                     app_bytes((double)app->o.plan_memory, limit, sizeof limit),
                     app_bytes(info.compiled_bytes > 0 ? info.compiled_bytes : info.memory_bytes,
                               least, sizeof least))
               : TRM_OK;
}

/* Plans, prints, validates and checks the memory. Collective. */
static trm_status run_planner(app_context *app, trm_error *err) {
    planning p;
    trm_status status = begin_planning(app, false, &p, err);
    bool leads = app_rank(app) == 0;
    if (status == TRM_OK && leads) {
        status = print_result(app, &p, err);
    }
    if (status == TRM_OK && app->o.plan_validate) {
        status = app_validate(app, p.planner, &p.model, err);
    }
    status = status == TRM_OK && leads ? check_limit(app, p.planner, err) : status;
    destroy_planning(&p);
    return status;
}

/* Checks the file of --plan before ranks are started, so that an error is reported once, with the
 * exit code of a bad file.
 *   errors  those of trm_plan_read */
static trm_status check_given(const app_options *o, trm_error *err) {
    trm_plan_info info;
    return o->plan_given != NULL ? trm_plan_read(o->plan_given, &info, NULL, err) : TRM_OK;
}

/* Runs `plan` with -n, --mesh or --plan. The planner runs on ranks where they measure, or where
 * --validate runs the plans. */
int app_run_planner(app_context *app) {
    trm_error err;
    bool launched = false;
    int code = 0;
    int64_t ranks = ranks_of(&app->o);
    trm_status status = check_given(&app->o, &err);
    if (status != TRM_OK) {
        return app_report(&err);
    }
    if (app->o.dry_run) {
        return app_dry_run_model(app, "nothing was measured or searched");
    }
    /* whether measuring, or running plans, needs the ranks on this machine */
    bool here =
        measured_here(app, ranks) || (app->o.plan_validate && ranks > 1 && ranks <= MEASURED_RANKS);
    if ((status = check_order(app, &err)) != TRM_OK) {
        return app_report(&err);
    }
    if (app->o.plan_validate && app->o.full_batch) {
        status =
            app_fail(&err, TRM_INVALID, "--validate runs batches of one rank: remove --full-batch");
    } else if (app->o.plan_validate && !here) {
        status = app_fail(&err, TRM_INVALID,
                          "--validate runs the plans on ranks of this machine: -n 2 to %d",
                          MEASURED_RANKS);
    } else if (here) {
        app->o.ranks = ranks;
        status = app_launch_self(app, NULL, &launched, &code, &err);
    }
    if (launched && status == TRM_OK) {
        return code;
    }
    status = status == TRM_OK && here ? app_join(app, &err) : status;
    status = status == TRM_OK ? run_planner(app, &err) : status;
    app_leave(app);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* Writes the page of a simulation. It needs the report as JSON; where text was printed, the planner
 * has the simulation still. */
static trm_status write_simulation(app_context *app, planning *p, const char *printed,
                                   trm_error *err) {
    const trm_simulation_options options = {
        .largest = (int32_t)app->o.plan_largest, .straggler = app->o.plan_straggler, .json = true};
    char *json = NULL;
    trm_status status =
        app_out.json ? TRM_OK : trm_planner_simulate(p->planner, &options, &json, err);
    status =
        status == TRM_OK ? write_page(app, p->planner, json != NULL ? json : printed, err) : status;
    trm_free(json);
    return status;
}

/* Runs `simulate`, in one process, however many ranks it simulates. */
int app_run_simulate(app_context *app) {
    trm_error err;
    planning p;
    char *text = NULL;
    if (app->o.plan_hardware != NULL && app->model->kind == &app_language_kind) {
        return app_run_hardware(app, true);
    }
    memset(&p, 0, sizeof p);
    trm_status status = app_check_preset(app, &err);
    if (status == TRM_OK && app->o.plan_mesh == NULL && !app_given(&app->parsed, "n")) {
        status = app_fail(&err, TRM_INVALID, "simulate: --mesh 64x8 (or -n 512) expected");
    }
    status = status == TRM_OK ? check_given(&app->o, &err) : status;
    if (status == TRM_OK && app->o.dry_run) {
        return app_dry_run_model(app, "nothing was searched or simulated");
    }
    status = status == TRM_OK ? check_order(app, &err) : status;
    status = status == TRM_OK ? begin_planning(app, true, &p, &err) : status;
    if (status == TRM_OK) {
        const trm_simulation_options options = {.largest = (int32_t)app->o.plan_largest,
                                                .straggler = app->o.plan_straggler,
                                                .json = app_out.json,
                                                .trace = app->o.plan_trace};
        status = trm_planner_simulate(p.planner, &options, &text, &err);
    }
    if (status == TRM_OK) {
        app_print_report(text);
        status = save_plan_files(&app->o, p.planner, &err);
        status = status == TRM_OK && app->o.html != NULL ? write_simulation(app, &p, text, &err)
                                                         : status;
    }
    status = status == TRM_OK ? check_limit(app, p.planner, &err) : status;
    trm_free(text);
    destroy_planning(&p);
    return status == TRM_OK ? 0 : app_report(&err);
}
