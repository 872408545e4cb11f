/* SPDX-License-Identifier: Apache-2.0 */
/* Generated clicks: a factorisation machine with planted weights, so that the true probabilities
 * are known.
 *
 *   row i --philox--> ranks (Zipf), dense (normal) --planted weights--> logit --coin--> label
 *
 * Weights are functions of (seed, field, rank). Those of the most frequent keys are in a table; the
 * others are computed when they are needed, with the same result. */
#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/rng.h"
#include "data/click/click.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LATENT: factors of a key; TABLE_RANKS: keys of each field in the table */
enum { LATENT = 4, WEIGHTS = 1 + LATENT, TABLE_RANKS = 4096, FIELDS_MAX = 512, DENSE_MAX = 4096 };
static const int64_t rows_max = (int64_t)1 << 39, vocabulary_max = (int64_t)1 << 40;
/* Test rows have numbers from test_origin on; the rows that determine the bias from bias_origin
 * on. */
static const int64_t test_origin = (int64_t)1 << 40, bias_origin = (int64_t)1 << 41;

/* The source. */
typedef struct clicks {
    trmi_click_source click;             /* must be the first member */
    trm_click_generator_options options; /* with the defaults filled in */
    int64_t train_rows;                  /* number of training rows */
    bool with_train;                     /* training rows come before the test rows */
    /* of the inverse of the Zipf distribution: (1 + u * reach)^power, or exp(u * reach) */
    double power, reach;
    float bias;           /* gives the click rate of the options */
    float *table;         /* [fields][table_ranks][WEIGHTS] planted weights of the frequent keys */
    int64_t table_ranks;  /* keys of each field in `table` */
    float *dense_weights; /* [dense] planted weights of the dense inputs */
} clicks;

/* Planted weights and rows use different seeds. */
static uint64_t planted_seed(const clicks *set) { return trmi_mix(set->options.seed, 1); }
/* Returns the seed of a row's random numbers; another stream (2) than that of the weights. */
static uint64_t row_seed(const clicks *set, int64_t row) {
    return trmi_mix(trmi_mix(set->options.seed, 2), (uint64_t)row);
}

/* Returns four normally distributed numbers of one counter. */
static void four_normals(uint64_t seed, uint64_t counter, float out[4]) {
    uint32_t bits[4], other[4];
    trmi_philox(seed, TRMI_STREAM_SYNTH, counter, bits);
    other[0] = bits[2];
    other[1] = bits[3];
    other[2] = other[3] = 0;
    trmi_normal_pair(bits, out);
    trmi_normal_pair(other, out + 2);
}

/* Computes the weight and the LATENT factors of a key, with unit deviation. */
static void draw_weights(const clicks *set, int64_t field, int64_t rank, float out[WEIGHTS]) {
    float first[4], second[4];
    uint64_t seed = trmi_mix(planted_seed(set), (uint64_t)field);
    four_normals(seed, (uint64_t)rank * 2, first);
    four_normals(seed, (uint64_t)rank * 2 + 1, second);
    memcpy(out, first, sizeof first);
    out[4] = second[0];
}

/* Returns a rank with the Zipf distribution from 32 random bits, by inverting its continuous
 * form. */
static int64_t zipf_rank(const clicks *set, uint32_t bits) {
    double u = (double)bits * 0x1p-32;
    double x = set->power == 0 ? exp(u * set->reach) : pow(1 + u * set->reach, set->power);
    return trmi_min_i64((int64_t)x - 1, set->options.vocabulary - 1);
}

/* Draws the keys and dense inputs of a row (either may be NULL). Returns its logit without the
 * bias. */
static double draw_row(const clicks *set, int64_t row, int64_t *keys, float *dense) {
    const trm_click_generator_options *o = &set->options;
    uint64_t seed = row_seed(set, row), counter = 1; /* counter 0 is the coin */
    double key_sum = 0, dense_sum = 0, sum[LATENT] = {0}, squares = 0;
    uint32_t bits[4] = {0};
    /* Add the weights and factors of keys. */
    for (int32_t f = 0; f < o->fields; f++) {
        if (f % 4 == 0) {
            trmi_philox(seed, TRMI_STREAM_SYNTH, counter++, bits);
        }
        int64_t rank = zipf_rank(set, bits[f % 4]);
        float drawn[WEIGHTS];
        const float *w = drawn;
        if (rank < set->table_ranks) {
            w = set->table + (f * set->table_ranks + rank) * WEIGHTS;
        } else {
            draw_weights(set, f, rank, drawn);
        }
        key_sum += (double)w[0];
        for (int k = 0; k < LATENT; k++) {
            sum[k] += (double)w[1 + k];
            squares += (double)w[1 + k] * (double)w[1 + k];
        }
        if (keys != NULL) {
            keys[f] =
                o->wide_keys
                    ? (int64_t)(trmi_mix(trmi_mix(~o->seed, (uint64_t)f), (uint64_t)rank) >> 1)
                    : rank + (o->shared_table ? f * o->vocabulary : 0);
        }
    }
    float normals[4];
    /* Add the dense inputs. */
    for (int32_t d = 0; d < o->dense; d++) {
        if (d % 4 == 0) {
            four_normals(seed, counter++, normals);
        }
        dense_sum += (double)(set->dense_weights[d] * normals[d % 4]);
        if (dense != NULL) {
            dense[d] = normals[d % 4];
        }
    }
    /* The sum of inner products over all pairs is half of |sum|^2 minus the sum of |.|^2. */
    double pairs = -squares;
    for (int k = 0; k < LATENT; k++) {
        pairs += sum[k] * sum[k];
    }
    /* Each part is scaled by the root of its number of terms. */
    double fields = o->fields, count = fields * (fields - 1) / 2;
    double logit = dense_sum * o->dense_scale / sqrt(fmax(o->dense, 1));
    logit += key_sum * o->key_scale / sqrt(fmax(fields, 1));
    return logit + pairs / 2 * o->pair_scale / sqrt(fmax(count * LATENT, 1));
}

/* Returns the true probability of a click. */
static double click_probability(double logit) { return 1 / (1 + exp(-logit)); }
/* Returns the logarithm of that probability: finite also where the probability rounds to 0. */
static double log_probability(double logit) { return fmin(logit, 0) - log1p(exp(-fabs(logit))); }

/* Draws the label of a row that is clicked with probability p. */
static bool draw_label(const clicks *set, int64_t row, double p) {
    return (double)trmi_random_u32(row_seed(set, row), TRMI_STREAM_SYNTH, 0) * 0x1p-32 < p;
}

/* Returns the number of the row at `index`: training rows first, then test rows. */
static int64_t number_of(const clicks *set, int64_t index) {
    int64_t train = set->with_train ? set->train_rows : 0;
    return index < train ? index : test_origin + index - train;
}

/* Draws a row: inputs, probability, label. */
static trm_status generate_row(const trmi_click_source *source, int64_t index, trmi_row *row,
                               trm_error *err) {
    (void)err;
    const clicks *set = (const clicks *)source;
    int64_t number = number_of(set, index);
    double logit = draw_row(set, number, row->keys, row->dense) + (double)set->bias;
    row->label = draw_label(set, number, click_probability(logit));
    row->count = set->options.fields;
    return TRM_OK;
}

/* ---- making it ---- */

/* Fills in the defaults (0 means default, a negative number none) and checks the options.
 *   errors  INVALID */
static trm_status fill_options(const trm_click_generator_options *given,
                               trm_click_generator_options *o, trm_error *err) {
    /* Defaults for what is 0. */
    *o = given != NULL ? *given : (trm_click_generator_options){0};
    o->rows = o->rows == 0 ? 1000000 : o->rows;
    o->test_rows = o->test_rows == 0 ? trmi_max_i64(o->rows / 10, 1) : o->test_rows;
    o->fields = o->fields == 0 ? 26 : o->fields < 0 ? 0 : o->fields;
    o->dense = o->dense == 0 ? 13 : o->dense < 0 ? 0 : o->dense;
    o->vocabulary = o->vocabulary == 0 ? 100000 : o->vocabulary;
    o->zipf = o->zipf == 0 ? 1.1 : o->zipf;
    o->click_rate = o->click_rate == 0 ? 0.25 : o->click_rate;
    o->key_scale = o->key_scale == 0 ? 1 : o->key_scale;
    o->dense_scale = o->dense_scale == 0 ? 0.5 : o->dense_scale;
    o->pair_scale = o->pair_scale == 0 ? 0.5 : o->pair_scale < 0 ? 0 : o->pair_scale;
    /* sizes, then rates and scales */
    if (o->rows < 1 || o->rows > rows_max || o->test_rows < 1 || o->test_rows > rows_max ||
        o->fields > FIELDS_MAX || o->dense > DENSE_MAX || o->vocabulary < 1 ||
        o->vocabulary > vocabulary_max || o->fields + o->dense == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "generated clicks: %lld rows, %d fields of %lld keys, %d dense: at most "
                         "2^39, %d, 2^40 and %d",
                         (long long)o->rows, (int)o->fields, (long long)o->vocabulary,
                         (int)o->dense, FIELDS_MAX, DENSE_MAX);
    }
    if (o->shared_table && o->wide_keys) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "generated clicks: wide_keys fit no table of a given size; leave out wide_keys or "
            "shared_table");
    }
    if (!(o->zipf > 0 && o->zipf < 10) || !(o->click_rate > 0 && o->click_rate < 1) ||
        !(fabs(o->key_scale) < 100) || !(fabs(o->dense_scale) < 100) || !(o->pair_scale < 100)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "generated clicks: zipf %g (above 0, below 10 expected), click rate %g "
                         "(between 0 and 1), scales of keys, dense inputs and pairs %g, %g, %g "
                         "(below 100)",
                         o->zipf, o->click_rate, o->key_scale, o->dense_scale, o->pair_scale);
    }
    return TRM_OK;
}

/* Finds, by bisection, the bias with which the mean probability of some rows is the click rate. */
static void set_bias(clicks *set) {
    enum { ROWS = 4096, STEPS = 50 };
    double logits[ROWS], low = -60, high = 60;
    /* Logits without the bias, which are the same in each step. */
    for (int64_t i = 0; i < ROWS; i++) {
        logits[i] = draw_row(set, bias_origin + i, NULL, NULL);
    }
    for (int step = 0; step < STEPS; step++) {
        double middle = (low + high) / 2, mean = 0;
        for (int64_t i = 0; i < ROWS; i++) {
            mean += click_probability(logits[i] + middle) / ROWS;
        }
        *(mean < set->options.click_rate ? &low : &high) = middle;
    }
    set->bias = (float)((low + high) / 2);
}

/* Computes the table of weights, the parameters of the Zipf distribution and the bias. */
static trm_status make_weights(clicks *set, trm_error *err) {
    const trm_click_generator_options *o = &set->options;
    set->table_ranks = trmi_min_i64(o->vocabulary, TABLE_RANKS);
    size_t cells = (size_t)o->fields * (size_t)set->table_ranks * WEIGHTS;
    TRMI_TRY(TRMI_NEW(err, set->table, cells, "for the planted weights"));
    TRMI_TRY(TRMI_NEW(err, set->dense_weights, o->dense, "for the planted weights"));
    /* Draw the weights of the most frequent keys, and of the dense inputs. */
    for (int32_t f = 0; f < o->fields; f++) {
        for (int64_t rank = 0; rank < set->table_ranks; rank++) {
            draw_weights(set, f, rank, set->table + (f * set->table_ranks + rank) * WEIGHTS);
        }
    }
    for (int32_t d = 0; d < o->dense; d++) {
        float normals[4];
        four_normals(trmi_mix(planted_seed(set), UINT64_MAX), (uint64_t)d, normals);
        set->dense_weights[d] = normals[0];
    }
    /* Compute the inverse of the integral of x^-zipf from 1 to top. */
    double top = (double)o->vocabulary + 1;
    bool logarithmic = fabs(o->zipf - 1) < 1e-6;
    set->power = logarithmic ? 0 : 1 / (1 - o->zipf);
    set->reach = logarithmic ? log(top) : pow(top, 1 - o->zipf) - 1;
    set_bias(set);
    return TRM_OK;
}

/* The functions of a source (data/pipeline/source.h) that say what it is. */
static void write_generated_place(const trmi_source *source, int64_t index, char *text,
                                  size_t size) {
    (void)source;
    snprintf(text, size, "generated row %lld", (long long)index);
}

static void describe_generator(const trmi_source *source, trmi_report *report) {
    const trm_click_generator_options *o = &((const clicks *)source)->options;
    trmi_report_put(report, trmi_bool("generated", true), trmi_unsigned("seed", o->seed),
                    trmi_int("vocabulary", o->vocabulary), trmi_real("zipf", o->zipf),
                    trmi_int("dense", o->dense), trmi_int("key_fields", o->fields));
}

static void destroy_generator(trmi_source *source) {
    clicks *set = (clicks *)source;
    trmi_free(set->table);
    trmi_free(set->dense_weights);
    trmi_free(set);
}

static const trmi_source_ops clicks_ops = {.kind = "clicks",
                                           .fields = trmi_click_fields,
                                           .fill = trmi_click_fill,
                                           .place = write_generated_place,
                                           .describe = describe_generator,
                                           .destroy = destroy_generator};

/* Creates the source with its weights.
 *   errors  INVALID, NOMEM */
static trm_status create_generator(const trm_click_generator_options *options, trm_usage usage,
                                   clicks **out, trm_error *err) {
    trm_click_generator_options filled;
    /* Options, source, weights. */
    TRMI_TRY(fill_options(options, &filled, err));
    clicks *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "for a dataset"));
    set->options = filled;
    /* the rows of both uses have different numbers, so they are different rows */
    set->train_rows = filled.rows;
    set->with_train = usage != TRM_USAGE_TEST;
    set->click.base.ops = &clicks_ops;
    set->click.base.classes = 2;
    set->click.base.count = usage == TRM_USAGE_TRAIN  ? filled.rows
                            : usage == TRM_USAGE_TEST ? filled.test_rows
                                                      : filled.rows + filled.test_rows;
    set->click.dense_count = filled.dense;
    set->click.field_count = filled.fields;
    set->click.entries_max = filled.fields;
    set->click.parse = generate_row;
    trm_status status = make_weights(set, err);
    if (status != TRM_OK) {
        destroy_generator(&set->click.base);
        return status;
    }
    *out = set;
    return TRM_OK;
}

trm_status trm_dataset_clicks(const trm_click_generator_options *options, trm_usage usage,
                              trm_dataset **out, trm_error *err) {
    TRMI_NEED(err, out);
    clicks *set;
    TRMI_TRY(create_generator(options, usage, &set, err));
    return trmi_dataset_create(&set->click.base, out, err);
}

/* ---- what the true probabilities achieve ---- */

/* One row: its true probability, and the label that was drawn. */
typedef struct outcome {
    double probability; /* true one */
    bool clicked;       /* the label */
} outcome;

/* Sorts outcomes by probability. */
static int by_probability(const void *a, const void *b) {
    double x = ((const outcome *)a)->probability, y = ((const outcome *)b)->probability;
    return x < y ? -1 : x > y;
}

/* Returns the area under the ROC curve, over all pairs of different rows: P(a clicked, b not, p_a >
 * p_b) plus half of the ties. realized: with the labels that were drawn, otherwise with the
 * probabilities (the expected value). */
static double roc_area(const outcome *sorted, int64_t count, bool realized) {
    double below = 0, won = 0, clicked = 0, missed = 0, self = 0;
    for (int64_t i = 0; i < count;) {
        int64_t end = i;
        double hit = 0, miss = 0, own = 0;
        /* Take one group of rows with equal probability. */
        for (; end < count && sorted[end].probability <= sorted[i].probability; end++) {
            double p = realized ? sorted[end].clicked : sorted[end].probability;
            hit += p;
            miss += 1 - p;
            own += p * (1 - p);
        }
        won += hit * below + (hit * miss - own) / 2;
        below += miss;
        clicked += hit;
        missed += miss;
        self += own;
        i = end;
    }
    double pairs = clicked * missed - self;
    return pairs > 0 ? won / pairs : 0.5;
}

/* Contract in trireme/data.h. The generator knows the probability of each row, so the best possible
 * figures follow from it; the realised ones also depend on the labels that it has drawn. */
trm_status trm_clicks_measure(const trm_click_generator_options *options, int64_t rows,
                              trm_clicks_bayes *out, trm_error *err) {
    TRMI_NEED(err, out);
    clicks *set;
    TRMI_TRY(create_generator(options, TRM_USAGE_TEST, &set, err));
    int64_t count = rows == 0 ? set->click.base.count : rows;
    outcome *outcomes = NULL;
    trm_status status = TRM_OK;
    /* Draw the outcomes of the test rows. */
    if (count < 1 || count > set->click.base.count) {
        status = TRMI_FAIL(err, TRM_INVALID, "measure over %lld rows: the test set has %lld",
                           (long long)count, (long long)set->click.base.count);
    } else if ((outcomes = trmi_alloc((size_t)count * sizeof *outcomes)) == NULL) {
        status = TRMI_NO_MEMORY(err, "to measure over %lld rows", (long long)count);
    }
    if (status == TRM_OK) {
        /* Rate and losses in one pass; the areas need the outcomes in order. */
        trm_clicks_bayes bayes = {0};
        for (int64_t i = 0; i < count; i++) {
            int64_t row = number_of(set, i);
            double logit = draw_row(set, row, NULL, NULL) + (double)set->bias;
            double p = click_probability(logit), hit = log_probability(logit);
            double miss = log_probability(-logit); /* of the label 0 */
            bool clicked = draw_label(set, row, p);
            outcomes[i] = (outcome){p, clicked};
            bayes.click_rate += p / (double)count;
            bayes.logloss -= (p * hit + (1 - p) * miss) / (double)count;
            bayes.realized_logloss -= (clicked ? hit : miss) / (double)count;
        }
        qsort(outcomes, (size_t)count, sizeof *outcomes, by_probability);
        bayes.auc = roc_area(outcomes, count, false);
        bayes.realized_auc = roc_area(outcomes, count, true);
        *out = bayes;
    }
    trmi_free(outcomes);
    destroy_generator(&set->click.base);
    return status;
}
