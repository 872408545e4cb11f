/* SPDX-License-Identifier: Apache-2.0 */
/* app/models/models.h: the models of the command line. Each model is one row, and belongs to a
 * kind: what it reads, how its graph is built, what is reported.
 *
 *      MODEL --app_model_of--> row of models.c: name, kind, usual optimiser, rate and batch
 *                                |
 *                                v
 *      kind: flags --settle--> data --network_of--> network --build, loss--> graph
 *            app_image_kind, app_vit_kind (images.c), app_click_kind (click.c), app_language_kind
 *            (language.c)
 *
 * A new model of a known kind is one row. A new kind is one table of functions and one entry in
 * app_model_kinds. */
#ifndef TRIREME_APP_MODELS_H
#define TRIREME_APP_MODELS_H

#include "app/app.h"

#include "trireme/nn.h"

#include <jansson.h>

typedef struct app_model app_model;

/* A kind of models. Functions may be NULL where a comment says so. */
typedef struct app_model_kind {
    const char *title;           /* in the list of models, and of its groups of flags: "images" */
    const char *key;             /* its object in a checkpoint's description; NULL = none */
    const char *unit, *rate_key; /* what rates count: "tokens", "tokens_per_second" */
    const char *input_key;       /* size of an input in JSON: "image_size"; NULL = none */
    const char *input_text;      /* its format in text: ", %d tokens" */
    bool reads_images;           /* the input is a square image */
    bool has_blocks;             /* equal blocks, so that stages of a pipeline may pay */
    bool counts_inputs;          /* a sample counts as many units as its input has */
    bool computes_logits;        /* --predictions is possible */
    bool bench_loss;             /* bench train prints the mean loss and the rate of windows */
    /* kinds of data (--dataset) that synth and tfrecord mean with these models; NULL = the same */
    const char *synth, *tfrecord;
    const char
        *is_for; /* of flags that only this kind reads: "--x has no effect here: it is for ..." */
    trm_network build; /* adds the graph; its context is an app_network */
    trm_loss loss;     /* NULL = by --loss */
    /* returns the size of an input */
    int64_t (*input_size)(const app_options *o);
    /* sets the options that were not given; NULL = none */
    void (*settle)(app_context *app, const app_model *model);
    /* creates a dataset of `samples` random samples in the shape that the model reads */
    trm_status (*random)(const app_context *app, int64_t samples, trm_dataset **out,
                         trm_error *err);
    /* determines the sizes of the network from flags, checkpoint and data */
    trm_status (*network_of)(const app_context *app, trm_dataset *data, app_network *out,
                             trm_error *err);
    /* put the members of the object `key` of a checkpoint's description (app/output/values.h), and
     * read the options back from it */
    void (*describe)(const app_network *network);
    trm_status (*recall)(app_context *app, const json_t *object, trm_error *err);
    /* take the options from a Hugging Face folder, unless flags give them, and set those of a
     * folder to export; NULL: there are no such folders of these models */
    trm_status (*recall_folder)(app_context *app, const char *name, const char *folder,
                                trm_error *err);
    void (*export_folder)(const app_network *network, trm_huggingface_options *out);
    /* puts the sizes into the event "start" */
    void (*put_sizes)(const app_context *app, const app_network *network);
} app_model_kind;
extern const app_model_kind app_image_kind, app_vit_kind, app_click_kind, app_language_kind;
/* All kinds, ended by NULL. */
extern const app_model_kind *const app_model_kinds[];

/* A model: one row. */
struct app_model {
    const char *name;
    const app_model_kind *kind;
    bool is_resnet;  /* has a --stem and batch norms */
    bool has_preset; /* --preset peer: the network that its peer was measured with */
    /* where flags do not give them; NULL, 0 = as for all models */
    const char *optimizer;
    double learning_rate;
    int64_t batch_size;
};

/* Returns row `index` of the table; NULL after the last. */
const app_model *app_model_at(int32_t index);
/* Returns the row of a model; NULL if there is none. */
const app_model *app_model_of(const char *name);

/* Returns the source of a dataset as trm_dataset_json describes it; NULL: no memory.
 *   owns  the caller: json_decref */
json_t *app_source_of(trm_dataset *data);

#endif
