/* SPDX-License-Identifier: Apache-2.0 */
/* app/models/click.h: flags and networks of the recommendation models ("click models"). */
#ifndef TRIREME_APP_CLICK_H
#define TRIREME_APP_CLICK_H

#include "trireme/data.h"
#include "trireme/nn.h"

/* Layers of a tower, columns of a file, and fields of a model that flags can name, at most. */
enum { APP_LAYERS_MAX = 16, APP_COLUMNS_MAX = 512, APP_FIELDS_MAX = 512 };

/* Values of the flags of click data and click models. */
typedef struct app_click_flags {
    /* data */
    int64_t table_rows, bag_max, min_count;
    const char *vocabulary, *columns, *field_tables, *separator, *header, *dense_form;
    double label_threshold;
    /* generated data; negative = not given */
    int64_t fields, dense;
    double zipf, click_rate, key_scale, dense_scale, pair_scale;
    /* model */
    int64_t width, cross_layers, cross_rank;
    int64_t rows; /* of the whole table, from a checkpoint; 0: from the fields */
    const char *hidden, *bottom, *pooling;
    bool stacked, no_wide_dense;
    const char *preset;
} app_click_flags;

/* The tables of --field-tables (field_tables.c): which fields share which table. */
typedef struct app_field_tables {
    trm_field_table tables[APP_FIELDS_MAX]; /* [count]; the numbers of rows are set later */
    int32_t count, fields_count;
    int32_t fields[APP_FIELDS_MAX], own[APP_FIELDS_MAX]; /* memory of the tables' lists of fields */
    int32_t same_as[APP_FIELDS_MAX];                     /* the first field of a field's table */
    bool alone[APP_FIELDS_MAX];                          /* in no table of the flag */
    char text[1024], names[APP_FIELDS_MAX][12];
} app_field_tables;
/* Parses the flag once for the whole process: dataset and network use the same result. text
 * NULL: *out is NULL.
 *    owns  the function, until the end of the process
 *    errors  INVALID */
trm_status app_field_tables_of(const char *text, app_field_tables **out, trm_error *err);
/* Adds, once the number of fields is known, a table for each field that has none. */
void app_field_tables_fill(app_field_tables *tables, int64_t fields);

/* The network of a click model: the fields that the data has, and the options with the memory of
 * their lists. */
typedef struct app_click_network {
    trm_recommender_options options;
    int64_t hidden[APP_LAYERS_MAX], bottom[APP_LAYERS_MAX];
    int64_t batch, fields, dense, field_rows;
    const char *field_tables; /* text of the flag; NULL: one table */
    bool has_dense, has_offsets, has_values, by_vocabulary;
} app_click_network;

#endif
