/* SPDX-License-Identifier: Apache-2.0 */
/* app/click.h: flags and networks of the recommendation models. */
#ifndef TRIREME_APP_CLICK_H
#define TRIREME_APP_CLICK_H

#include "trireme/data_click.h"
#include "trireme/models.h"

enum { APP_LAYERS_MAX = 16, APP_COLUMNS_MAX = 512, APP_FIELDS_MAX = 512 };

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
    int64_t rows; /* of the whole table, as a checkpoint says; 0 = by fields */
    const char *hidden, *bottom, *pooling;
    bool stacked, no_wide_dense;
    const char *preset;
} app_click_flags;

/* What --field-tables says (field_tables.c). */
typedef struct app_field_tables {
    trm_field_table tables[APP_FIELDS_MAX]; /* [count]; no rows */
    int32_t count, fields_count;
    int32_t fields[APP_FIELDS_MAX], own[APP_FIELDS_MAX]; /* what the tables point to */
    int32_t same_as[APP_FIELDS_MAX];                     /* the first field of a field's table */
    bool alone[APP_FIELDS_MAX];                          /* no table was named for it */
    char text[1024], names[APP_FIELDS_MAX][12];
} app_field_tables;
/* The flag's words taken apart, once for the whole run: data and network read the same. NULL: none,
 * *out is NULL.
 *   in     text  stays as long as the program      owns  nobody      errors  INVALID */
trm_status app_field_tables_of(const char *text, app_field_tables **out, trm_error *err);
/* When it is known how many fields there are: a table for each that has none yet. */
void app_field_tables_fill(app_field_tables *tables, int64_t fields);

/* What the builder reads: which fields the data has, and the model's options with their lists. */
typedef struct app_click_network {
    trm_recommender_options options;
    int64_t hidden[APP_LAYERS_MAX], bottom[APP_LAYERS_MAX];
    int64_t batch, fields, dense, field_rows;
    const char *field_tables; /* the flag's words; NULL = one table */
    bool has_dense, has_offsets, has_values, by_vocabulary;
} app_click_network;

#endif
