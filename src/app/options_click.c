/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of click data and of recommendation models; their defaults are in options.c. */
#include "app/app.h"

#define OPTION(member) offsetof(app_options, member)
#define GROUP(name, title, table)                                                                  \
    const app_group app_group_##name = {title, table, sizeof(table) / sizeof((table)[0])}

static const app_flag CLICK_DATA[] = {
    {"table-rows", APP_INT, OPTION(click.table_rows), "N",
     "rows of the table a field: hash buckets, or keys of generated clicks (100000)", 2, 1e12},
    {"vocabulary", APP_TEXT, OPTION(click.vocabulary), "FILE",
     "of trireme data vocabulary: rows by value instead of by hash", 0, 0},
    {"field-tables", APP_TEXT, OPTION(click.field_tables), "NAME=FIELDS[:WIDTH],...",
     "tables of their own, shared by fields (user=0:8,item=1+3-5); separate: each field's (one "
     "table)",
     0, 0},
    {"columns", APP_TEXT, OPTION(click.columns), "NAME:ROLE,...",
     "csv, tfrecord-clicks; roles label, dense, key, bag, skip", 0, 0},
    {"separator", APP_CHOICE, OPTION(click.separator), "comma|tab|semicolon|space|bar",
     "csv: between columns (comma)", 0, 0},
    {"header", APP_CHOICE, OPTION(click.header), "auto|yes|no",
     "csv: the first line names the columns (auto)", 0, 0},
    {"bag-max", APP_INT, OPTION(click.bag_max), "N", "keys of a bag at most (16)", 1, 65536},
    {"label-threshold", APP_REAL, OPTION(click.label_threshold), "X",
     "a label is 1 from this number on (ratings)", -1e9, 1e9},
    {"dense-form", APP_CHOICE, OPTION(click.dense_form), "default|raw|log",
     "log: log(1 + x), negative as 0 (criteo log, others raw)", 0, 0},
    {"fields", APP_INT, OPTION(click.fields), "N", "generated clicks: key fields (26)", 1, 512},
    {"dense", APP_INT, OPTION(click.dense), "N", "generated clicks: dense inputs (13)", 0, 4096},
    {"zipf", APP_REAL, OPTION(click.zipf), "X",
     "generated clicks: exponent of the keys' frequencies (1.1)", 0.01, 9.9},
    {"click-rate", APP_REAL, OPTION(click.click_rate), "X",
     "generated clicks: share of clicks (0.25)", 0.001, 0.999},
    {"key-scale", APP_REAL, OPTION(click.key_scale), "X",
     "generated clicks: deviation of the keys' part of the logit (1)", 0.001, 99},
    {"dense-scale", APP_REAL, OPTION(click.dense_scale), "X", "... of the dense inputs' part (0.5)",
     0.001, 99},
    {"pair-scale", APP_REAL, OPTION(click.pair_scale), "X", "... of the pairs of keys (0.5)", 0,
     99},
};
GROUP(click_data, "Click data", CLICK_DATA);

static const app_flag CLICK_MODEL[] = {
    {"embedding-width", APP_INT, OPTION(click.width), "N", "numbers a row of the table (16)", 1,
     65536},
    {"hidden", APP_TEXT, OPTION(click.hidden), "A,B,...",
     "widths of the layers before the logit; none (by model)", 0, 0},
    {"bottom", APP_TEXT, OPTION(click.bottom), "A,B,...",
     "dlrm: widths of the dense inputs' layers (512,256,64)", 0, 0},
    {"pooling", APP_CHOICE, OPTION(click.pooling), "sum|mean|sqrtn", "of a bag's rows (sum)", 0, 0},
    {"cross-layers", APP_INT, OPTION(click.cross_layers), "N", "dcnv2 (3)", 1, 64},
    {"cross-rank", APP_INT, OPTION(click.cross_rank), "N",
     "dcnv2: rank of the cross matrices (full)", 1, 65536},
    {"stacked", APP_BOOL, OPTION(click.stacked), NULL,
     "dcnv2: the deep part behind the cross part, not beside it", 0, 0},
    {"no-wide-dense", APP_BOOL, OPTION(click.no_wide_dense), NULL,
     "widedeep, deepfm: dense inputs go to the deep part only", 0, 0},
};
GROUP(click_model, "Recommendation models", CLICK_MODEL);

static const app_flag DATASET[] = {
    {"dataset", APP_CHOICE, OPTION(dataset), "auto|criteo|avazu|csv|libsvm|slots|tfrecord-clicks",
     "its form (auto)", 0, 0},
};
GROUP(dataset, "Data", DATASET);

static const app_flag VOCABULARY[] = {
    {"min-count", APP_INT, OPTION(click.min_count), "N",
     "values that come less often are unknown (2)", 1, 1e12},
    {"output", APP_TEXT, OPTION(output), "FILE", "the vocabulary to write", 0, 0},
};
GROUP(vocabulary, "Vocabulary", VOCABULARY);
