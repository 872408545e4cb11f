/* app/click.h: flags and networks of the recommendation models. */
#ifndef TRIREME_APP_CLICK_H
#define TRIREME_APP_CLICK_H

#include "trireme/data_click.h"
#include "trireme/models.h"

enum { APP_LAYERS_MAX = 16, APP_COLUMNS_MAX = 512 };

typedef struct app_click_flags {
    /* data */
    int64_t table_rows, bag_max, min_count;
    const char *vocabulary, *columns, *separator, *header, *dense_form;
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

/* What the builder reads: which fields the data has, and the model's options with their lists. */
typedef struct app_click_network {
    trm_recommender_options options;
    int64_t hidden[APP_LAYERS_MAX], bottom[APP_LAYERS_MAX];
    int64_t batch, fields, dense, field_rows;
    bool has_dense, has_offsets, has_values, by_vocabulary;
} app_click_network;

#endif
