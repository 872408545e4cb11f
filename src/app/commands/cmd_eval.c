/* SPDX-License-Identifier: Apache-2.0 */
/* eval: metrics of a checkpoint on the test part, by one process or by ranks that share the
 * data. The options of the network come from the checkpoint (recall.c).
 *
 * The order matters: the checkpoint's description is read first, because it determines the size of
 * images and the fields of the data. Nothing of the checkpoint is changed. The ranks of a job read
 * different samples and have the same result. */
#include "app/models/models.h"

#include <stdio.h>
#include <string.h>

/* Opens data and model and loads the weights. The checkpoint's description is read before the
 * data is opened, because it determines image size and fields. */
static trm_status prepare_evaluation(app_context *app, trm_dataset **data, app_network *network,
                                     trm_model **model, trm_error *err) {
    app_options *o = &app->o;
    const char *name = app->parsed.arguments[0];
    trm_status status;
    if (o->checkpoint == NULL) {
        return app_fail(err, TRM_INVALID,
                        "eval needs --checkpoint: a directory or a .safetensors file");
    }
    if (o->data == NULL) {
        return app_fail(err, TRM_INVALID, "eval needs --data: a directory, or synth");
    }
    /* take model and data from the checkpoint, where flags do not name them */
    if ((status = app_recall(app, name, err)) != TRM_OK) {
        return status;
    }
    /* Make the ranks, then the data that each of them reads. */
    app_settle_data(app);
    if ((status = app_join(app, err)) != TRM_OK) {
        return status;
    }
    app_warn_idle_flags(app, APP_STAGE_RANKS);
    if (o->predictions != NULL && !app->model->kind->computes_logits) {
        return app_fail(err, TRM_INVALID,
                        "--predictions is for models with labels; %s computes no logits here",
                        name);
    }
    if (o->predictions != NULL && app_rank_count(app) > 1) {
        return app_fail(err, TRM_INVALID,
                        "--predictions has every sample in the order of the data; each of %d ranks "
                        "sees its part: evaluate "
                        "on one",
                        (int)app_rank_count(app));
    }
    if ((status = app_dataset(app, app_usage(o, TRM_USAGE_TEST), false, data, err)) != TRM_OK ||
        (status = app_make_model(app, *data, true, network, model, err)) != TRM_OK) {
        return status;
    }
    return trm_model_load(*model, o->checkpoint, false, NULL, err);
}

/* Evaluates, and writes --predictions if given. */
static trm_status evaluate_model(app_context *app, trm_model *model, trm_dataset *data,
                                 trm_evaluation *out, trm_error *err) {
    app_predictions *predictions = NULL;
    const char *path = app->o.predictions;
    if (path == NULL) {
        return trm_model_evaluate(model, data, out, err);
    }
    trm_status status = app_predictions_create(&predictions, err);
    if (status == TRM_OK) {
        status = trm_model_predict(model, data, app_predictions_see, predictions, out, err);
    }
    if (status == TRM_OK) {
        status = app_predictions_write(predictions, path, err);
    }
    app_predictions_destroy(predictions);
    return status;
}

/* Runs `eval`. The launcher of many ranks only checks; the ranks evaluate together and have the
 * same result. */
int app_run_eval(app_context *app) {
    trm_error err;
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    trm_evaluation evaluation;
    bool launched;
    int code = 0;
    app->evaluates = true;
    trm_status status = app_launch_self(app, app_check_job, &launched, &code, &err);
    if (launched && status == TRM_OK) {
        return code;
    }
    status = status == TRM_OK ? prepare_evaluation(app, &data, &network, &model, &err) : status;
    if (status == TRM_OK && app->o.dry_run) {
        app_tell(APP_RESULT, "event", "eval",
                 app_bool("dry_run", true, "dry run: the checkpoint fits; nothing was evaluated"));
    } else if (status == TRM_OK) {
        app_signals_begin(model);
        status = evaluate_model(app, model, data, &evaluation, &err);
        app_signals_end();
        if (status == TRM_OK) {
            app_print_evaluation(app, 0, 0, &evaluation);
        }
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    app_leave(app);
    if (status == TRM_CANCELLED && app_signal_exit_code() != 0) {
        return app_signal_exit_code();
    }
    return status == TRM_OK ? 0 : app_report(&err);
}
