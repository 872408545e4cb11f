/* SPDX-License-Identifier: Apache-2.0 */
/* plan and simulate with --hardware: a transformer on a machine that is not here.
 *
 *      sizes or preset, file of the machine, mesh --> trm_hardware_plan --> report, --svg, --export
 *                                                                       --> simulate: fewer and more devices
 *                                                                       --> --html, with both */
#include "app/output/page.h"
#include "app/commands/planning.h"
#include "app/models/models.h"

#include "trireme/io.h"
#include "trireme/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes the sizes of the model from the flags. */
static trm_language_options read_sizes(const app_transformer_flags *f) {
    return (trm_language_options){.layers = f->layers,
                                  .width = f->width,
                                  .heads = f->heads,
                                  .kv_heads = f->kv_heads,
                                  .hidden = f->hidden,
                                  .vocabulary = f->vocabulary,
                                  .experts = f->experts,
                                  .top_experts = f->top_experts,
                                  .untied = f->untied};
}

/* Sets the devices: those of --mesh or -n.
 *   errors  INVALID */
static trm_status find_devices(const app_options *o, int64_t *devices, trm_error *err) {
    int32_t ranks = 0;
    *devices = o->plan_ranks;
    if (o->plan_mesh == NULL) {
        return o->plan_ranks > 0
                   ? TRM_OK
                   : app_fail(err, TRM_INVALID, "--hardware: --mesh 64x8 (or -n 512) expected");
    }
    trm_status status = trm_mesh_ranks(o->plan_mesh, &ranks, err);
    *devices = ranks;
    return status == TRM_OK && o->plan_ranks > 0 && o->plan_ranks != ranks
               ? app_fail(err, TRM_INVALID,
                          "mesh %s has %d ranks, -n is %lld; give one of the two, or equal numbers",
                          o->plan_mesh, (int)ranks, (long long)o->plan_ranks)
               : status;
}

/* Returns whether plans for a machine that is not here read a flag. */
static bool reads_flag(const app_flag *flag) {
    const app_flag *f;
    for (int i = 0; (f = app_group_flag(&app_group_hardware, i)) != NULL; i++) {
        if (f == flag) {
            return true;
        }
    }
    return false;
}

/* Refuses flags that these plans do not read: what is planned would differ from what was asked for.
 */
static trm_status check_flags(const app_context *app, trm_error *err) {
    for (int i = 0; i < app->parsed.given_count; i++) {
        const app_flag *flag = app->parsed.given[i].flag;
        if (!reads_flag(flag)) {
            return app_fail(err, TRM_INVALID,
                            "--%s has no effect on the plan of a language model for --hardware; "
                            "stages, micro-batches, ZeRO and recompute are in the words of --plan "
                            "(pp=4,micro-batch=1,zero=1,recompute=full)",
                            flag->name);
        }
    }
    return TRM_OK;
}

/* Refuses files that are not written for these plans. */
static trm_status check_outputs(const app_options *o, trm_error *err) {
    if (o->plan_save != NULL) {
        return app_fail(err, TRM_INVALID,
                        "--hardware: --save found, which is for plans that ranks here can run; "
                        "--export, --html, --svg or --json expected");
    }
    if (o->plan_picture != NULL && app_ends_in(o->plan_picture, ".dot")) {
        return app_fail(err, TRM_INVALID,
                        "--hardware: --svg %.80s found, which is a graph of operators; a file.svg "
                        "expected",
                        o->plan_picture);
    }
    if (o->plan_links != NULL) {
        return app_fail(err, TRM_INVALID, "--hardware and --links found, one of them expected");
    }
    if (o->plan_preset != NULL && o->transformer.size != NULL) {
        return app_fail(err, TRM_INVALID, "--preset and --size found, one of them expected");
    }
    if (o->plan_export == NULL && o->output != NULL) {
        return app_fail(err, TRM_INVALID,
                        "--output %.80s found, which is the folder of --export; --export torch, "
                        "megatron or mindspore expected",
                        o->output);
    }
    return o->plan_export != NULL && o->output == NULL
               ? app_fail(err, TRM_INVALID, "--export: --output DIR expected")
               : TRM_OK;
}

/* Fills the options of the plan. *text: the hardware file, for free(). */
static trm_status fill_options(app_context *app, trm_hardware_plan_options *out, char **text,
                               trm_error *err) {
    const app_options *o = &app->o;
    const char *preset = o->plan_preset != NULL ? o->plan_preset : o->transformer.size;
    int64_t devices = 0;
    trm_status status = find_devices(o, &devices, err);
    status = status == TRM_OK ? app_read_text(o->plan_hardware, text, err) : status;
    int64_t each = o->batch_size > 0 ? o->batch_size : 1;
    *out = (trm_hardware_plan_options){.model = app->parsed.arguments[0],
                                       .preset = preset,
                                       .sizes = read_sizes(&o->transformer),
                                       .hardware = *text,
                                       .hardware_name = o->plan_hardware,
                                       .devices = devices,
                                       .batch = o->full_batch ? each : each * devices,
                                       .context = o->context_tokens,
                                       .products = o->plan_products,
                                       .memory_bytes = (double)o->plan_memory,
                                       .narrow_gradients = strcmp(o->wire, "fp32") != 0,
                                       .plan = o->plan_given};
    return status;
}

/* Returns an error, after the report, if no plan fits. */
static trm_status check_memory(const trm_hardware_plan *plan, trm_error *err) {
    trm_hardware_plan_info info;
    char least[32];
    trm_hardware_plan_get_info(plan, &info);
    return info.fits
               ? TRM_OK
               : app_fail(err, TRM_NOMEM,
                          "no plan fits the memory of a device; the one of least memory takes %s",
                          app_bytes(info.memory_bytes, least, sizeof least));
}

/* Plans for other numbers of devices. */
typedef struct scaling {
    struct {
        int64_t devices;
        trm_hardware_plan_info info;
    } rows[32];
    int count;
} scaling;

/* Puts a plan for a number of devices: a line of text, members of JSON. */
static void put_row(int64_t devices, const trm_hardware_plan_info *info) {
    app_put(app_int("devices", devices, "%8d devices"), app_bool("fits", info->fits, NULL),
            app_real("step_seconds", info->step_seconds, "  %.3f s a step"),
            app_real("tokens_per_second_per_device", info->tokens_per_second,
                     "  %.0f tokens/s a device"),
            app_real("mfu", info->utilisation, "  MFU %.1f{1e2} %%"),
            app_real("memory_bytes", info->memory_bytes, "  %.1f{1e-9} GB"),
            app_text(NULL, info->fits ? "" : "  does not fit", "%s"));
}

/* Writes the page of --html: the report, and as its member "scaling" the rows of a simulation. */
static trm_status write_page(const char *path, const trm_hardware_plan *plan,
                             const scaling *simulated, trm_error *err) {
    char *json = trm_hardware_plan_report(plan, true);
    if (json == NULL) {
        return app_no_memory(err, "for the page");
    }
    json[strlen(json) - 1] = '\0'; /* its members stand between braces */
    app_begin(APP_KEPT, NULL, NULL);
    app_put(app_members(json + 1));
    if (simulated->count > 0) {
        app_open_array("scaling");
        for (int i = 0; i < simulated->count; i++) {
            app_open_item();
            put_row(simulated->rows[i].devices, &simulated->rows[i].info);
            app_close();
        }
        app_close();
    }
    char *all = app_end_kept();
    trm_free(json);
    trm_status status = all != NULL
                            ? app_write_page(path, APP_PAGE_CLUSTER, "Plan for a cluster", all, err)
                            : app_no_memory(err, "for the page");
    free(all);
    return status;
}

/* Writes the picture of --svg. */
static trm_status write_picture(const char *path, const trm_hardware_plan *plan, trm_error *err) {
    char *picture = trm_hardware_plan_svg(plan);
    trm_status status = picture != NULL ? trm_file_write(path, picture, strlen(picture), err)
                                        : app_no_memory(err, "for the picture");
    trm_free(picture);
    return status;
}

/* Prints the report, and writes the files of --svg and --export. */
static trm_status print_plan(const app_options *o, const trm_hardware_plan *plan, trm_error *err) {
    char *report = trm_hardware_plan_report(plan, app_out.json);
    if (report == NULL) {
        return app_no_memory(err, "for the report");
    }
    app_print_report(report);
    trm_free(report);
    trm_status status =
        o->plan_picture != NULL ? write_picture(o->plan_picture, plan, err) : TRM_OK;
    if (status != TRM_OK || o->plan_export == NULL) {
        return status;
    }
    /* A plan that was searched is exported where it fits; a given one is the user's decision. */
    status = o->plan_given == NULL ? check_memory(plan, err) : TRM_OK;
    return status == TRM_OK ? trm_hardware_plan_export(plan, o->plan_export, o->output, err)
                            : status;
}

/* Plans fewer and more devices for the same batch, prints a line for each, and keeps it. */
static trm_status print_scaling(trm_hardware_plan_options options, int64_t largest, scaling *out,
                                trm_error *err) {
    trm_status status = TRM_OK;
    int64_t first = options.devices > 8 ? options.devices / 8 : 1;
    if (largest < first) {
        return app_fail(err, TRM_INVALID,
                        "--largest %lld found, at least %lld expected: plans are priced from an "
                        "eighth of the mesh on",
                        (long long)largest, (long long)first);
    }
    for (options.devices = first; options.devices <= largest && status == TRM_OK;
         options.devices *= 2) {
        trm_hardware_plan *plan = NULL;
        trm_hardware_plan_info info;
        trm_error cause;
        /* a number of devices without a possible plan is reported, and the next one tried */
        if (trm_hardware_plan_create(&options, &plan, &cause) != TRM_OK) {
            app_tell(APP_RESULT, "event", "simulation",
                     app_int("devices", options.devices, "%8d devices"),
                     app_text("impossible", cause.message, "  %s"));
            status = cause.status == TRM_INVALID ? TRM_OK
                                                 : app_fail(err, cause.status, "%s", cause.message);
            continue;
        }
        trm_hardware_plan_get_info(plan, &info);
        app_begin(APP_RESULT, "event", "simulation");
        put_row(options.devices, &info);
        app_end();
        if (out->count < (int)(sizeof out->rows / sizeof out->rows[0])) {
            out->rows[out->count].devices = options.devices;
            out->rows[out->count++].info = info;
        }
        trm_hardware_plan_destroy(plan);
    }
    return status;
}

trm_status app_check_preset(const app_context *app, trm_error *err) {
    if (app->o.plan_preset != NULL && app->model->kind != &app_language_kind) {
        return app_fail(err, TRM_INVALID,
                        "--preset %.40s: model %s found, gpt2, llama or moe expected",
                        app->o.plan_preset, app->parsed.arguments[0]);
    }
    static const char *const only[] = {"preset", "products", "export", "output"};
    for (size_t i = 0; i < sizeof only / sizeof only[0]; i++) {
        if (app_given(&app->parsed, only[i]) && app->o.plan_hardware == NULL) {
            return app_fail(err, TRM_INVALID,
                            "--%s is for machines of accelerators: --hardware FILE expected; "
                            "models for ranks here have --size, their plans --save",
                            only[i]);
        }
    }
    return TRM_OK;
}

/* Contract in planning.h. */
int app_run_hardware(app_context *app, bool simulate) {
    const app_options *o = &app->o;
    trm_hardware_plan_options options;
    trm_hardware_plan *plan = NULL;
    trm_error err;
    char *text = NULL;
    scaling simulated = {.count = 0};
    trm_status status = check_flags(app, &err);
    status = status == TRM_OK ? check_outputs(o, &err) : status;
    status = status == TRM_OK ? fill_options(app, &options, &text, &err) : status;
    if (status == TRM_OK && o->dry_run) {
        free(text);
        return app_print_dry_run(app, "nothing was searched");
    }
    status = status == TRM_OK ? trm_hardware_plan_create(&options, &plan, &err) : status;
    status = status == TRM_OK ? print_plan(o, plan, &err) : status;
    if (status == TRM_OK && simulate) {
        options.plan = NULL;
        status = print_scaling(options, o->plan_largest, &simulated, &err);
    }
    if (status == TRM_OK && o->html != NULL) {
        status = write_page(o->html, plan, &simulated, &err);
    }
    status = status == TRM_OK && o->plan_export == NULL ? check_memory(plan, &err) : status;
    trm_hardware_plan_destroy(plan);
    free(text);
    return status == TRM_OK ? 0 : app_report(&err);
}
