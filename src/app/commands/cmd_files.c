/* SPDX-License-Identifier: Apache-2.0 */
/* export and import: a model's weights to and from files of other programs.
 *
 *      export   recall the options of the checkpoint -> model -> load -> file of --to
 *      import   recall the options of a Hugging Face folder -> model -> load --from -> ckpt-0
 *
 * The model exists for its weights alone: it is compiled for evaluation, on a batch of one random
 * sample. With --dry-run everything is checked and loaded, and nothing is written. import refuses a
 * folder that has a checkpoint. */
#include "app/models/models.h"

#include "trireme/io.h"
#include "trireme/train.h"

#include <stdio.h>
#include <string.h>

/* Creates a model for its weights alone, with batches of one random image. */
static trm_status weights_model(app_context *app, trm_dataset **data, app_network *network,
                                trm_model **model, trm_error *err) {
    app_options *o = &app->o;
    o->batch_size = o->batch_size == 0 ? 1 : o->batch_size;
    app_settle_data(app);
    trm_status status = app_dataset_random(app, data, err);
    return status == TRM_OK ? app_make_model(app, *data, true, network, model, err) : status;
}

/* ---- export ---------------------------------------------------------------------------------- */

/* Writes a Hugging Face folder, with the tokenizer where there is one. */
static trm_status export_folder(const app_context *app, const app_network *network,
                                trm_model *model, trm_error *err) {
    const app_options *o = &app->o;
    trm_tokenizer *tokenizer = NULL;
    trm_status status =
        o->tokenizer != NULL ? trm_tokenizer_open(o->tokenizer, &tokenizer, err) : TRM_OK;
    trm_huggingface_options options = {.model = network->model->name,
                                       .tokenizer = tokenizer,
                                       .shard_bytes = o->shard_bytes,
                                       .merge = o->merge};
    network->model->kind->export_folder(network, &options);
    status = status == TRM_OK ? trm_export_huggingface(model, &options, o->output, err) : status;
    if (status == TRM_OK && tokenizer != NULL) {
        const char *from = app_is_huggingface(o->checkpoint) ? o->checkpoint : o->tokenizer;
        status = app_ends_keep(from, tokenizer, o->output, err);
    }
    trm_tokenizer_destroy(tokenizer);
    return status;
}

/* Loads the checkpoint and writes it in the form of --to. */
static trm_status export_model(app_context *app, trm_dataset **data, app_network *network,
                               trm_model **model, trm_error *err) {
    const app_options *o = &app->o;
    if (o->checkpoint == NULL || o->to == NULL || o->output == NULL) {
        return app_fail(err, TRM_INVALID, "export needs --checkpoint, --to and --output");
    }
    bool folder = strcmp(o->to, "huggingface") == 0;
    if (folder && !(app->model != NULL && app->model->kind->export_folder != NULL)) {
        return app_fail(err, TRM_INVALID,
                        "--to huggingface is for language models and vit, not for %s",
                        app->parsed.arguments[0]);
    }
    if (o->merge && !folder) {
        return app_fail(err, TRM_INVALID, "--merge is for --to huggingface, not for --to %s",
                        o->to);
    }
    trm_status status = trm_path_check(o->output, folder, err);
    status = status == TRM_OK ? app_recall(app, app->parsed.arguments[0], err) : status;
    if (status == TRM_OK) {
        status = weights_model(app, data, network, model, err);
    }
    if (status == TRM_OK) {
        status = trm_model_load(*model, o->checkpoint, false, NULL, err);
    }
    if (status != TRM_OK || o->dry_run) {
        return status;
    }
    return folder                       ? export_folder(app, network, *model, err)
           : strcmp(o->to, "onnx") == 0 ? trm_export_onnx(*model, o->output, err)
           : strcmp(o->to, "npz") == 0  ? trm_export_npz(*model, o->output, err)
                                        : trm_export_safetensors(*model, o->output, err);
}

/* The commands export and import. With --dry-run everything is checked and nothing is written. */
int app_run_export(app_context *app) {
    trm_error err;
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    trm_status status = export_model(app, &data, &network, &model, &err);
    if (status == TRM_OK) {
        app_tell(APP_RESULT, "event", "export", app_text("path", app->o.output, "%s"),
                 app_text("to", app->o.to, NULL),
                 app_bool("dry_run", app->o.dry_run, " would be written"));
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- import ---------------------------------------------------------------------------------- */

/* Writes the weights as checkpoint of step 0. */
static trm_status save_import(const app_options *o, trm_model *model, trm_error *err) {
    trm_checkpoint_writer *writer;
    trm_status status = trm_checkpoint_writer_open(o->output, NULL, &writer, err);
    if (status != TRM_OK) {
        return status;
    }
    status = trm_model_save(model, writer, err);
    trm_status closed = trm_checkpoint_writer_close(writer, status == TRM_OK ? err : NULL);
    return status == TRM_OK ? closed : status;
}

/* Copies the tokenizer of a Hugging Face folder to the place beside the checkpoint. */
static trm_status save_tokenizer(const app_options *o, trm_error *err) {
    char folder[4096];
    trm_tokenizer *tokenizer = NULL;
    if (o->tokenizer == NULL) {
        return TRM_OK;
    }
    snprintf(folder, sizeof folder, "%s/tokenizer", o->output);
    trm_status status = trm_tokenizer_open(o->tokenizer, &tokenizer, err);
    status = status == TRM_OK ? trm_tokenizer_save(tokenizer, folder, err) : status;
    status = status == TRM_OK ? app_ends_keep(o->from, tokenizer, folder, err) : status;
    trm_tokenizer_destroy(tokenizer);
    return status;
}

/* Reads the weights of --from and writes a checkpoint to --output, which must have none. */
static trm_status import_model(app_context *app, trm_dataset **data, app_network *network,
                               trm_model **model, trm_error *err) {
    const app_options *o = &app->o;
    int64_t step;
    if (o->from == NULL || o->output == NULL) {
        return app_fail(err, TRM_INVALID, "import needs --from and --output");
    }
    if (trm_checkpoint_latest(o->output, &step, NULL) == TRM_OK) {
        return app_fail(err, TRM_INVALID, "%.120s has a checkpoint already: another --output",
                        o->output);
    }
    bool folder;
    trm_status status = app_recall_folder(app, o->from, &folder, err);
    status = status == TRM_OK ? weights_model(app, data, network, model, err) : status;
    if (status == TRM_OK) {
        status = trm_model_load(*model, o->from, false, NULL, err);
    }
    if (status == TRM_OK && !o->dry_run) {
        status = save_import(o, *model, err);
    }
    return status == TRM_OK && !o->dry_run && folder ? save_tokenizer(o, err) : status;
}

int app_run_import(app_context *app) {
    trm_error err;
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    trm_status status = import_model(app, &data, &network, &model, &err);
    if (status == TRM_OK) {
        app_tell(APP_RESULT, "event", "import", app_text("path", app->o.output, "%s/ckpt-0"),
                 app_bool("dry_run", app->o.dry_run, " would be written"));
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
