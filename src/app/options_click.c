/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of click data and of recommendation models; their defaults are in options.c. */
#include "app/app.h"

#define OPTION(member) offsetof(app_options, member)
#define GROUP(name, title, table)                                                                  \
    const app_group app_group_##name = {title, table, sizeof(table) / sizeof((table)[0])}

static const app_flag CLICK_DATA[] = {
    {"table-rows", APP_INT, OPTION(click.table_rows), "N",
     "rows of the table for each field: hash buckets, or keys of generated clicks (100000)", 2,
     1e12},
    {"vocabulary", APP_TEXT, OPTION(click.vocabulary), "FILE|N",
     "file of trireme data vocabulary: number values instead of hashing them; language models: "
     "number of tokens (the tokenizer's, else 50257)",
     0, 0},
    {"field-tables", APP_TEXT, OPTION(click.field_tables), "NAME=FIELDS[:WIDTH],...",
     "fields with tables of their own (user=0:8,item=1+3-5); separate: one table for each field "
     "(one table for all)",
     0, 0},
    {"columns", APP_TEXT, OPTION(click.columns), "NAME:ROLE,...",
     "csv, tfrecord-clicks: columns and their roles label, dense, key, bag, skip", 0, 0},
    {"separator", APP_CHOICE, OPTION(click.separator), "comma|tab|semicolon|space|bar",
     "csv: separator of columns (comma)", 0, 0},
    {"header", APP_CHOICE, OPTION(click.header), "auto|yes|no",
     "csv: the first line names the columns (auto)", 0, 0},
    {"bag-max", APP_INT, OPTION(click.bag_max), "N", "largest number of keys in a bag (16)", 1,
     65536},
    {"label-threshold", APP_REAL, OPTION(click.label_threshold), "X",
     "labels of this value or more count as 1 (ratings)", -1e9, 1e9},
    {"dense-form", APP_CHOICE, OPTION(click.dense_form), "default|raw|log",
     "form of dense inputs; log: log(1 + x), negative values as 0 (criteo log, others raw)", 0, 0},
    {"fields", APP_INT, OPTION(click.fields), "N", "generated clicks: key fields (26)", 1, 512},
    {"dense", APP_INT, OPTION(click.dense), "N", "generated clicks: dense inputs (13)", 0, 4096},
    {"zipf", APP_REAL, OPTION(click.zipf), "X",
     "generated clicks: exponent of the keys' frequencies (1.1)", 0.01, 9.9},
    {"click-rate", APP_REAL, OPTION(click.click_rate), "X",
     "generated clicks: share of clicks (0.25)", 0.001, 0.999},
    {"key-scale", APP_REAL, OPTION(click.key_scale), "X",
     "generated clicks: standard deviation of the keys' part of the logit (1)", 0.001, 99},
    {"dense-scale", APP_REAL, OPTION(click.dense_scale), "X",
     "generated clicks: ... of the dense inputs' part (0.5)", 0.001, 99},
    {"pair-scale", APP_REAL, OPTION(click.pair_scale), "X",
     "generated clicks: ... of the part of pairs of keys (0.5)", 0, 99},
};
GROUP(click_data, "Click data", CLICK_DATA);

static const app_flag CLICK_MODEL[] = {
    {"embedding-width", APP_INT, OPTION(click.width), "N", "values of a row of the table (16)", 1,
     65536},
    {"hidden", APP_TEXT, OPTION(click.hidden), "A,B,...",
     "widths of the layers before the logit, or none (each model its own); language models: width "
     "of "
     "a block's inner layer (4 times --width)",
     0, 0},
    {"bottom", APP_TEXT, OPTION(click.bottom), "A,B,...",
     "dlrm: widths of the dense inputs' layers (512,256,64)", 0, 0},
    {"pooling", APP_CHOICE, OPTION(click.pooling), "sum|mean|sqrtn",
     "how the rows of a bag are combined (sum)", 0, 0},
    {"cross-layers", APP_INT, OPTION(click.cross_layers), "N", "dcnv2: number of cross layers (3)",
     1, 64},
    {"cross-rank", APP_INT, OPTION(click.cross_rank), "N",
     "dcnv2: rank of the cross matrices (full)", 1, 65536},
    {"stacked", APP_BOOL, OPTION(click.stacked), NULL,
     "dcnv2: the deep part reads the output of the cross part", 0, 0},
    {"no-wide-dense", APP_BOOL, OPTION(click.no_wide_dense), NULL,
     "widedeep, deepfm: dense inputs go to the deep part only", 0, 0},
};
GROUP(click_model, "Recommendation models", CLICK_MODEL);

static const app_flag DATASET[] = {
    {"dataset", APP_CHOICE, OPTION(dataset), "auto|criteo|avazu|csv|libsvm|slots|tfrecord-clicks",
     "form of the data (auto)", 0, 0},
};
GROUP(dataset, "Data", DATASET);

static const app_flag VOCABULARY[] = {
    {"min-count", APP_INT, OPTION(click.min_count), "N",
     "values with fewer occurrences count as unknown (2)", 1, 1e12},
    {"output", APP_TEXT, OPTION(output), "FILE", "file to write", 0, 0},
};
GROUP(vocabulary, "Vocabulary", VOCABULARY);
