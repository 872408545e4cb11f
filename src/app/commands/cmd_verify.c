/* SPDX-License-Identifier: Apache-2.0 */
/* verify: compares a plan of a split on its ranks with one device, tensor by tensor. The library
 * does the comparison (trireme/plan.h); this file prints it.
 *
 *     launcher (-n N)    checks the flags, starts N ranks and returns their exit code
 *     each rank          joins, builds data and model, verifies; rank 0 prints the result
 *
 * Losses are printed in the order of steps, other tensors worst first. A split that differs is an
 * error of the program or of the plan, not of the user: INTERNAL, exit code 1. */
#include "app/app.h"
#include "app/jobs/ranks.h"

#include "trireme/plan.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5 }; /* tensors of each kind that are printed without --verbose */

/* Compares two tensors for the order of the report: those that differ come first, then the largest
 * error. */
static int by_error(const void *a, const void *b) {
    const trm_verify_tensor *x = *(const trm_verify_tensor *const *)a,
                            *y = *(const trm_verify_tensor *const *)b;
    if (x->agrees != y->agrees) {
        return x->agrees ? 1 : -1;
    }
    return (x->error < y->error) - (x->error > y->error);
}

/* Puts the tensors of one kind, the worst first; losses in the order of steps. `list` is memory
 * for all tensors. Text has only the worst few. */
static void put_kind(const trm_verification *v, trm_verify_kind kind,
                     const trm_verify_tensor **list) {
    int32_t count = 0, bad = 0, same = 0;
    for (int32_t i = 0; i < v->count; i++) {
        const trm_verify_tensor *t = &v->tensors[i];
        if (t->kind == kind) {
            list[count++] = t;
            bad += !t->agrees;
            same += t->same_bits;
        }
    }
    if (kind != TRM_VERIFY_LOSS) {
        qsort(list, (size_t)count, sizeof *list, by_error);
    }
    const char *name = trm_verify_kind_name(kind);
    app_put(app_text(NULL, name, "\n%-9s"), app_int(NULL, count, " %d tensors"),
            app_int(NULL, same, ", %d with the same bits"), app_int(NULL, bad, ", %d differ\n"));
    /* text has the worst few, unless more than those differ */
    bool all = app_out.json || app_out.verbose || kind == TRM_VERIFY_LOSS || bad > SHOWN;
    int32_t shown = all || count < SHOWN ? count : SHOWN;
    for (int32_t i = 0; i < shown; i++) {
        const trm_verify_tensor *t = list[i];
        app_open_item();
        app_put(app_text("kind", name, NULL), app_text("name", t->name, "  %-44s"),
                app_int("elements", t->count, " %10d"),
                app_real("error", t->error, "  error %9.3g"),
                app_real("largest", t->largest, "  largest %9.3g"),
                app_real("rounding", t->rounding, "  rounding %9.3g"),
                app_bool("same_bits", t->same_bits, NULL), app_bool("agrees", t->agrees, NULL),
                app_words(t->agrees ? "\n" : "  DIFFERS\n"));
        app_close();
    }
    if (shown < count) {
        app_put(app_int(NULL, count - shown, "  and %d that are closer (--verbose shows them)\n"));
    }
}

/* Prints the whole report. A split that differs is an error.
 *   errors  INTERNAL */
static trm_status print_result(const app_context *app, const trm_verification *v, int64_t steps,
                               trm_error *err) {
    const trm_verify_tensor **list = malloc((size_t)(v->count + 1) * sizeof *list);
    if (list == NULL) {
        return app_no_memory(err, "for the report");
    }
    app_begin(APP_RESULT, "event", "verify");
    app_put(app_text("model", app->parsed.arguments[0], NULL),
            app_int("ranks", app_rank_count(app), NULL),
            app_text("plan", app->o.split_plan != NULL ? app->o.split_plan : "", NULL),
            app_int("steps", steps, NULL));
    app_open_array("tensors");
    for (int kind = 0; kind < TRM_VERIFY_KINDS; kind++) {
        put_kind(v, (trm_verify_kind)kind, list);
    }
    app_close();
    free(list);
    app_put(app_bool("agrees", v->agrees, "\nagrees with one device"),
            app_words(v->agrees ? "" : "\nDIFFERS from one device"),
            app_bool("same_bits", v->same_bits, ", bit for bit"),
            app_real("chaos", v->chaos,
                     v->chaos > 0.01 ? "\nrounding alone moves one device's loss by %.2g: later "
                                       "steps of this network say little"
                                     : NULL));
    app_end();
    return v->agrees ? TRM_OK
                     : app_fail(err, TRM_INTERNAL,
                                "the split differs from one device; the tensors are marked above");
}

/* Builds data and model and verifies the plan. Every rank reads whole batches; --batch-size is
 * the batch of one rank. */
static trm_status verify_plan(app_context *app, trm_error *err) {
    trm_dataset *data = NULL;
    app_network network;
    trm_model_options model;
    trm_verification *v = NULL;
    int64_t steps = app->o.steps > 0 ? app->o.steps : 3;
    const trm_verify_options options = {
        .steps = (int32_t)steps, .tolerance = app->o.tolerance, .bitwise = app->o.bitwise};
    trm_status status = app_dataset_or_random(app, &data, err);
    status = status == TRM_OK ? app_model_options(app, data, false, &network, &model, err) : status;
    status = status == TRM_OK ? trm_verify(&model, &options, &v, err) : status;
    if (status == TRM_OK && v != NULL) {
        status = print_result(app, v, steps, err);
    }
    trm_verification_destroy(v);
    trm_dataset_destroy(data);
    return status;
}

/* Checks flags and sets the parallel mode to semi_auto_parallel unless it is given.
 *   errors  INVALID */
static trm_status check_verify_flags(app_context *app, trm_error *err) {
    if (app_given(&app->parsed, "epochs")) {
        return app_fail(err, TRM_INVALID, "verify takes --steps, not --epochs");
    }
    if (app->o.steps > 10000) {
        return app_fail(err, TRM_INVALID, "verify: at most 10000 steps");
    }
    trm_status status = app_set_context(app, err);
    if (status == TRM_OK && !app_given(&app->parsed, "parallel-mode")) {
        status = trm_context_set(app->context, "parallel_mode", "semi_auto_parallel", err);
    }
    return status;
}

/* Runs `verify`: the launcher checks; at least two ranks verify together. Exit code 1 if they
 * differ. */
int app_run_verify(app_context *app) {
    trm_error err;
    bool launched = false;
    int code = 0;
    app_settle_data(app);
    trm_status status = check_verify_flags(app, &err);
    status =
        status == TRM_OK ? app_launch_self(app, app_check_job, &launched, &code, &err) : status;
    if (launched && status == TRM_OK) {
        return code;
    }
    status = status == TRM_OK ? app_join(app, &err) : status;
    if (status == TRM_OK && app_rank_count(app) < 2) {
        status = app_fail(&err, TRM_INVALID, "verify: -n N with at least 2 ranks expected");
    }
    status = status == TRM_OK ? app_search_stages(app, &err) : status;
    status = status == TRM_OK ? verify_plan(app, &err) : status;
    app_leave(app);
    return status == TRM_OK ? 0 : app_report(&err);
}
