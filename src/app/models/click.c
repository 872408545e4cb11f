/* SPDX-License-Identifier: Apache-2.0 */
/* Recommendation models ("click models") on the command line: data, options, and the part of
 * checkpoints that describes them (contracts in app.h).
 *
 *      flags --> trm_click_options --> dataset --> its fields --> app_click_network --> graph
 *
 * The parsed options, columns and the vocabulary are static: datasets borrow them until the end
 * of the process, which has one set of flags. */
#include "app/models/models.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a table by default, and random batches that repeat (make_random_clicks). */
enum { FIELD_ROWS = 100000, PEER_REPEAT_BATCHES = 8 };

/* Sets the options of a click model that were not given. */
static void settle_click_model(app_context *app, const app_model *model) {
    app_options *o = &app->o;
    const app_parsed *p = &app->parsed;
    if (!app_given(p, "optimizer")) {
        o->optimizer = model->optimizer;
        o->learning_rate = app_given(p, "learning-rate") ? o->learning_rate : model->learning_rate;
    }
    o->batch_size = o->batch_size == 0 ? model->batch_size : o->batch_size;
    if (o->click.preset != NULL) { /* peers/wide_deep_tf.py: everything else has the default */
        o->click.zipf = app_given(p, "zipf") ? o->click.zipf : 1.2;
        o->click.hidden = app_given(p, "hidden") ? o->click.hidden : "256,128";
    }
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Returns the rows of a field's table. */
static int64_t rows_of(const app_click_flags *f) {
    return f->table_rows > 0 ? f->table_rows : FIELD_ROWS;
}

/* Returns the options of generated clicks. The flags use -1 for "not given" where 0 is a value;
 * the library uses 0, and -1 for the value 0. */
static trm_click_generator_options generator_of(const app_options *o) {
    const app_click_flags *f = &o->click;
    return (trm_click_generator_options){.rows = o->synth_train,
                                         .test_rows = o->synth_test,
                                         .fields = f->fields > 0 ? (int32_t)f->fields : 0,
                                         .dense = f->dense < 0    ? 0
                                                  : f->dense == 0 ? -1
                                                                  : (int32_t)f->dense,
                                         .vocabulary = rows_of(f),
                                         .zipf = f->zipf,
                                         .click_rate = f->click_rate,
                                         .key_scale = f->key_scale,
                                         .dense_scale = f->dense_scale,
                                         .pair_scale = f->pair_scale < 0    ? 0
                                                       : f->pair_scale == 0 ? -1
                                                                            : f->pair_scale,
                                         .shared_table = f->field_tables == NULL,
                                         .seed = (uint64_t)o->seed};
}

/* Parses --columns ("user:key,rating:label"). The names point into `text`, a copy of the list.
 *   errors  INVALID */
static trm_status parse_columns(const char *list, char *text, size_t size, trm_column *columns,
                                int32_t *count, trm_error *err) {
    static const char *const roles[] = {"skip", "label", "dense", "key", "bag"};
    static const trm_column_role kinds[] = {TRM_COLUMN_SKIP, TRM_COLUMN_LABEL, TRM_COLUMN_DENSE,
                                            TRM_COLUMN_KEY, TRM_COLUMN_BAG};
    char *next;
    if (strlen(list) >= size) {
        return app_fail(err, TRM_INVALID, "--columns: at most %zu characters", size - 1);
    }
    memcpy(text, list, strlen(list) + 1);
    *count = 0;
    for (char *word = strtok_r(text, ",", &next); word != NULL; word = strtok_r(NULL, ",", &next)) {
        /* a name may have colons: the last one is before the role */
        char *colon = strrchr(word, ':');
        size_t r = 0;
        while (colon != NULL && r < 5 && strcmp(colon + 1, roles[r]) != 0) {
            r++;
        }
        if (colon == NULL || colon == word || r == 5 || *count == APP_COLUMNS_MAX) {
            return app_fail(
                err, TRM_INVALID,
                "--columns '%.40s': NAME:ROLE expected, a role is label, dense, key, bag or skip; "
                "at most %d columns",
                word, APP_COLUMNS_MAX);
        }
        *colon = '\0';
        columns[(*count)++] = (trm_column){.name = word, .role = kinds[r]};
    }
    return TRM_OK;
}

/* the loaded vocabulary; datasets borrow it until the end of the process */
static trm_vocabulary *vocabulary;

/* Loads --vocabulary once. */
static trm_status load_vocabulary(const char *path, trm_error *err) {
    return vocabulary != NULL || path == NULL ? TRM_OK
                                              : trm_vocabulary_load(path, &vocabulary, err);
}

/* Contract in app.h. */
trm_status app_click_data(const app_context *app, trm_dataset_spec *spec, trm_error *err) {
    static trm_click_options click;
    static trm_click_generator_options generator;
    static trm_column columns[APP_COLUMNS_MAX];
    static char text[16384];
    app_field_tables *tables;
    static const char separators[] = {',', '\t', ';', ' ', '|'};
    static const char *const names[] = {"comma", "tab", "semicolon", "space", "bar"};
    const app_click_flags *f = &app->o.click;
    if (f->vocabulary != NULL && f->table_rows > 0) {
        return app_fail(err, TRM_INVALID,
                        "--vocabulary and --table-rows both size the table; give one");
    }
    /* keys are bounded by a vocabulary, or by the rows of the table */
    trm_status status = load_vocabulary(f->vocabulary, err);
    click = (trm_click_options){.vocabulary = f->vocabulary != NULL ? vocabulary : NULL,
                                .buckets = f->vocabulary != NULL ? 0 : rows_of(f),
                                .shared_table = f->field_tables == NULL,
                                .bag_max = f->bag_max,
                                .label_threshold = (float)f->label_threshold,
                                .columns = columns,
                                .generator = &generator,
                                .dense = strcmp(f->dense_form, "log") == 0   ? TRM_DENSE_LOG
                                         : strcmp(f->dense_form, "raw") == 0 ? TRM_DENSE_RAW
                                                                             : TRM_DENSE_DEFAULT,
                                .header = strcmp(f->header, "yes") == 0  ? TRM_HEADER_YES
                                          : strcmp(f->header, "no") == 0 ? TRM_HEADER_NO
                                                                         : TRM_HEADER_AUTO};
    for (size_t i = 0; i < sizeof separators; i++) {
        click.separator = strcmp(f->separator, names[i]) == 0 ? separators[i] : click.separator;
    }
    /* a bag's separator must differ from the columns' */
    click.bag_separator = click.separator == '|' ? ';' : '|';
    generator = generator_of(&app->o);
    if (status == TRM_OK && f->field_tables != NULL) {
        status = app_field_tables_of(f->field_tables, &tables, err);
        click.same_as = status == TRM_OK ? tables->same_as : NULL;
        click.same_as_count = APP_FIELDS_MAX;
    }
    if (status == TRM_OK && f->columns != NULL) {
        status = parse_columns(f->columns, text, sizeof text, columns, &click.column_count, err);
    }
    spec->click = &click;
    return status;
}

/* Creates random clicks. PEER_REPEAT_BATCHES different batches are repeated, as in
 * peers/wide_deep_tf.py. */
static trm_status make_random_clicks(const app_context *app, int64_t samples, trm_dataset **out,
                                     trm_error *err) {
    (void)samples;
    const app_options *o = &app->o;
    const trm_click_generator_options like = generator_of(o);
    /* ranks of one host draw at the same time */
    const trm_comm *comm = app_comm(app);
    const bool shares = comm != NULL && trm_comm_local_size(comm) > 1;
    const trm_click_random_options options = {.count = o->batch_size * PEER_REPEAT_BATCHES,
                                              .fields = like.fields,
                                              .dense = like.dense,
                                              .vocabulary = like.vocabulary,
                                              .zipf = like.zipf > 1 ? like.zipf : 0,
                                              .click_rate = like.click_rate,
                                              .own_tables = !like.shared_table,
                                              .seed = like.seed,
                                              .threads = o->threads > 0 ? (int32_t)o->threads
                                                         : shares       ? 1
                                                                        : 0};
    return trm_dataset_random_clicks(&options, out, err);
}

/* Contract in app.h. The generator is measured once. */
bool app_click_bayes(const app_context *app, trm_clicks_bayes *out) {
    static bool known;
    static trm_clicks_bayes bayes;
    const app_options *o = &app->o;
    const app_model *model = app->model;
    bool means_clicks = model != NULL && model->kind == &app_click_kind;
    bool generated =
        o->data != NULL && (strcmp(o->data, "clicks") == 0 || strcmp(o->dataset, "clicks") == 0 ||
                            (strcmp(o->data, "synth") == 0 && means_clicks));
    if (!generated || (app->evaluates && app_usage(o, TRM_USAGE_TEST) != TRM_USAGE_TEST)) {
        return false;
    }
    if (!known) {
        const trm_click_generator_options options = generator_of(o);
        known = trm_clicks_measure(&options, 0, &bayes, NULL) == TRM_OK;
    }
    *out = bayes;
    return known;
}

/* ---- networks -------------------------------------------------------------------------------- */

/* Parses the widths of layers: "400,400"; "none" sets *count to -1, NULL to 0 (the model's
 * default).
 *   errors  INVALID */
static trm_status parse_layers(const char *flag, const char *list, int64_t *widths, int32_t *count,
                               trm_error *err) {
    *count = 0;
    if (list != NULL && strcmp(list, "none") == 0) {
        *count = -1;
        return TRM_OK;
    }
    for (const char *at = list; at != NULL && *at != '\0';) {
        char *end;
        long long width = strtoll(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || width < 1 || width > 65536 ||
            *count == APP_LAYERS_MAX) {
            return app_fail(err, TRM_INVALID,
                            "--%s %.60s: at most %d widths of 1 to 65536, such as 256,128; "
                            "or none",
                            flag, list, APP_LAYERS_MAX);
        }
        widths[(*count)++] = width;
        at = *end == ',' ? end + 1 : end;
    }
    return TRM_OK;
}

/* Takes batch size and fields from the dataset: keys of shape [batch, fields], or a list of bags
 * with offsets.
 *   errors  INVALID without key fields */
static trm_status take_fields(trm_dataset *data, app_click_network *n, trm_error *err) {
    trm_batch_field field;
    int64_t bags = 0;
    for (int32_t i = 0; trm_dataset_field(data, i, &field); i++) {
        const trm_shape *s = &field.tensor.shape;
        if (strcmp(field.name, "label") == 0) {
            n->batch = s->dim[0];
        } else if (strcmp(field.name, "dense") == 0) {
            n->has_dense = true;
            n->dense = s->dim[1];
        } else if (strcmp(field.name, "offsets") == 0) {
            n->has_offsets = true;
            bags = s->dim[0] - 1;
        } else if (strcmp(field.name, "keys") == 0 && s->rank == 2) {
            n->fields = s->dim[1];
        } else if (strcmp(field.name, "values") == 0) {
            n->has_values = true;
        }
    }
    /* Bags have one offset for each field of each sample. */
    n->fields = n->has_offsets && n->batch > 0 ? bags / n->batch : n->fields;
    return n->fields > 0 ? TRM_OK
                         : app_fail(err, TRM_INVALID,
                                    "the data has no key fields; a recommendation model needs "
                                    "some (--dataset criteo, avazu, csv, libsvm, slots, "
                                    "tfrecord-clicks or clicks)");
}

/* Sets the tables of --field-tables with their rows. */
static trm_status take_tables(const app_click_flags *f, app_click_network *n, trm_error *err) {
    app_field_tables *t;
    trm_status status = app_field_tables_of(f->field_tables, &t, err);
    if (status != TRM_OK || t == NULL) {
        return status;
    }
    app_field_tables_fill(t, n->fields);
    for (int32_t i = 0; i < t->count; i++) {
        int32_t first = t->tables[i].fields[0];
        t->tables[i].rows =
            n->by_vocabulary ? trm_vocabulary_rows(vocabulary, first) : n->field_rows;
    }
    n->options.tables = t->tables;
    n->options.tables_count = t->count;
    n->field_tables = f->field_tables;
    return TRM_OK;
}

/* Warns about a dlrm without dense inputs under Adagrad. Each row's gradient is then a multiple
 * of another row, and all rows are small: Adagrad, whose sums start at 0.1, hardly changes them. */
static void warn_of_dots_alone(const app_context *app, const app_click_network *n) {
    const bool trains = strcmp(app->command->name, "train") == 0;
    if (trains && strcmp(app->parsed.arguments[0], "dlrm") == 0 && !n->has_dense &&
        strcmp(app->o.optimizer, "adagrad") == 0) {
        app_warn("dlrm without dense inputs has nothing but inner products of rows, which adagrad "
                 "leaves as small as they begin (AUC 0.5): "
                 "--optimizer adam --learning-rate 0.003 learns");
    }
}

/* Determines which fields of `data` the network reads. The table has the rows of the checkpoint, of
 * the vocabulary, or of all fields together. */
static trm_status settle_click_network(const app_context *app, trm_dataset *data,
                                       app_network *network, trm_error *err) {
    const app_click_flags *f = &app->o.click;
    app_click_network *n = &network->click;
    *n = (app_click_network){.field_rows = rows_of(f)};
    trm_recommender_options *o = &n->options;
    trm_status status = take_fields(data, n, err);
    status = status == TRM_OK ? parse_layers("hidden", f->hidden, n->hidden, &o->hidden_count, err)
                              : status;
    status = status == TRM_OK ? parse_layers("bottom", f->bottom, n->bottom, &o->bottom_count, err)
                              : status;
    status = status == TRM_OK ? load_vocabulary(f->vocabulary, err) : status;
    if (status != TRM_OK) {
        return status;
    }
    /* rows of the table, by what is known about the keys */
    o->hidden = n->hidden;
    o->bottom = n->bottom;
    o->rows = f->rows > 0 ? f->rows : n->fields * n->field_rows;
    n->by_vocabulary = f->vocabulary != NULL;
    if (f->vocabulary != NULL) {
        o->rows = 0;
        for (int32_t i = 0; i < trm_vocabulary_fields(vocabulary); i++) {
            o->rows += trm_vocabulary_rows(vocabulary, i);
        }
    }
    /* tables of fields, and the form of the network */
    status = take_tables(f, n, err);
    o->width = f->width;
    o->cross_layers = (int32_t)f->cross_layers;
    o->cross_rank = f->cross_rank;
    o->stacked = f->stacked;
    o->wide_dense = f->no_wide_dense ? TRM_OFF : TRM_DEFAULT;
    o->pooling = strcmp(f->pooling, "mean") == 0    ? TRM_BAG_MEAN
                 : strcmp(f->pooling, "sqrtn") == 0 ? TRM_BAG_SQRT_N
                                                    : TRM_BAG_SUM;
    if (f->preset != NULL) { /* the network of peers/wide_deep_tf.py */
        o->table_init = TRM_INIT_NORMAL_002;
        o->wide_dense = TRM_OFF;
    }
    warn_of_dots_alone(app, n);
    return status;
}

/* Builds the graph of a click model. A trm_network. Inputs that the data does not have are
 * TRM_NO_NODE. */
static trm_node build_click_model(trm_graph *graph, const trm_inputs *inputs, void *context) {
    const app_network *n = context;
    const app_click_network *c = &n->click;
    const trm_click_inputs in = {
        .keys = trm_inputs_get(inputs, "keys"),
        .offsets = c->has_offsets ? trm_inputs_get(inputs, "offsets") : TRM_NO_NODE,
        .values = c->has_values ? trm_inputs_get(inputs, "values") : TRM_NO_NODE,
        .dense = c->has_dense ? trm_inputs_get(inputs, "dense") : TRM_NO_NODE,
        .batch = trm_node_shape(graph, trm_inputs_get(inputs, "label")).dim[0]};
    return trm_recommender_build(graph, n->model->name, &in, &c->options);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Writes widths in the form of the flag: the reverse of parse_layers. */
static void print_layers(const int64_t *widths, int32_t count, char *text, size_t size) {
    size_t at = (size_t)snprintf(text, size, "%s", count < 0 ? "none" : "");
    for (int32_t i = 0; i < count && at < size; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? "," : "", (long long)widths[i]);
    }
}

/* Puts the members of the object "click". Every key is read back by recall_click below, unless its
 * flag is given. */
static void describe_click(const app_network *network) {
    static const char *const poolings[] = {"sum", "mean", "sqrtn"};
    const app_click_network *n = &network->click;
    const trm_recommender_options *o = &n->options;
    char hidden[APP_LAYERS_MAX * 8], bottom[APP_LAYERS_MAX * 8];
    print_layers(o->hidden, o->hidden_count, hidden, sizeof hidden);
    print_layers(o->bottom, o->bottom_count, bottom, sizeof bottom);
    app_put(app_int("fields", n->fields, NULL), app_int("dense", n->dense, NULL),
            app_int("table_rows", n->field_rows, NULL), app_int("rows", o->rows, NULL),
            app_int("width", o->width, NULL), app_text("hidden", hidden, NULL),
            app_text("bottom", bottom, NULL), app_text("pooling", poolings[o->pooling], NULL),
            app_int("cross_layers", o->cross_layers, NULL),
            app_int("cross_rank", o->cross_rank, NULL), app_bool("stacked", o->stacked, NULL),
            app_bool("no_wide_dense", o->wide_dense == TRM_OFF, NULL),
            app_bool("vocabulary", n->by_vocabulary, NULL),
            app_text("field_tables", n->field_tables != NULL ? n->field_tables : "", NULL));
}

/* Takes a number from the description unless the flag is given. */
static void recall_int(const app_context *app, const json_t *root, const char *key,
                       const char *flag, int64_t *into) {
    const json_t *value = json_object_get(root, key);
    if (json_is_integer(value) && !app_given(&app->parsed, flag)) {
        *into = json_integer_value(value);
    }
}

/* Takes a text from the description unless the flag is given. The description is freed, so the text
 * is copied; *copy keeps it until the next call.   errors  NOMEM */
static trm_status recall_text(const app_context *app, const json_t *root, const char *key,
                              const char *flag, char **copy, const char **into, trm_error *err) {
    const char *value = json_string_value(json_object_get(root, key));
    if (value == NULL || *value == '\0' || app_given(&app->parsed, flag)) {
        return TRM_OK;
    }
    char *text = strdup(value);
    if (text == NULL) {
        return app_fail(err, TRM_NOMEM, "no memory for the checkpoint's %s", key);
    }
    free(*copy);
    *into = *copy = text;
    return TRM_OK;
}

/* Takes the options of the network from the description of a checkpoint.
 *   errors  INVALID if --vocabulary does not fit, NOMEM */
static trm_status recall_click(app_context *app, const json_t *click, trm_error *err) {
    app_click_flags *f = &app->o.click;
    static char *kept[4]; /* until the end of the process */
    const struct {
        const char *key, *flag, **into;
    } texts[] = {{"hidden", "hidden", &f->hidden},
                 {"bottom", "bottom", &f->bottom},
                 {"field_tables", "field-tables", &f->field_tables},
                 {"pooling", "pooling", &f->pooling}};
    bool by_vocabulary = json_is_true(json_object_get(click, "vocabulary"));
    if (app->evaluates && by_vocabulary != (f->vocabulary != NULL)) {
        return app_fail(err, TRM_INVALID,
                        "the checkpoint was trained with%s --vocabulary; evaluate it likewise",
                        by_vocabulary ? "" : "out");
    }
    /* sizes, unless flags give them */
    recall_int(app, click, "fields", "fields", &f->fields);
    recall_int(app, click, "dense", "dense", &f->dense);
    if (f->vocabulary == NULL) {
        recall_int(app, click, "table_rows", "table-rows", &f->table_rows);
        recall_int(app, click, "rows", "table-rows", &f->rows);
    }
    recall_int(app, click, "width", "embedding-width", &f->width);
    recall_int(app, click, "cross_layers", "cross-layers", &f->cross_layers);
    recall_int(app, click, "cross_rank", "cross-rank", &f->cross_rank);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        trm_status status =
            recall_text(app, click, texts[i].key, texts[i].flag, &kept[i], texts[i].into, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    f->stacked = f->stacked || json_is_true(json_object_get(click, "stacked"));
    f->no_wide_dense = f->no_wide_dense || json_is_true(json_object_get(click, "no_wide_dense"));
    return TRM_OK;
}

/* Adds the sizes to the event "start". */
static void put_click_sizes(const app_context *app, const app_network *network) {
    (void)app;
    app_put(app_int("fields", network->click.fields, NULL),
            app_int("dense", network->click.dense, NULL),
            app_int("table_rows", network->click.options.rows, NULL));
}

const app_model_kind app_click_kind = {.title = "clicks",
                                       .key = "click",
                                       .unit = "samples",
                                       .rate_key = "samples_per_second",
                                       .computes_logits = true,
                                       .bench_loss = true,
                                       .synth = "clicks",
                                       .tfrecord = "tfrecord-clicks",
                                       .is_for = "recommendation models (trireme help clicks)",
                                       .build = build_click_model,
                                       .loss = trm_loss_logistic,
                                       .settle = settle_click_model,
                                       .random = make_random_clicks,
                                       .network_of = settle_click_network,
                                       .describe = describe_click,
                                       .recall = recall_click,
                                       .put_sizes = put_click_sizes};
