/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all readers of click data share: the layout of batches, options, parsing of
 * numbers, and the index of lines.
 *
 *   batch: label [n] | dense [n, d] | keys [n, fields], or, if rows are ragged, keys [total] and
 *          offsets [n * fields + 1] (bag b has keys offsets[b] .. offsets[b + 1] - 1) | values [total]
 *
 * A reader has only to parse one row (click->parse); trmi_click_fill does the rest. Numbers are
 * parsed here and not with strtod, because texts in mapped files have no end mark and locales must
 * not matter. */
#include "data/click/click.h"

#include "base/checked.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- batches --------------------------------------------------------------------------------- */

/* Lists the fields that the source's rows have. */
int32_t trmi_click_fields(const trmi_source *source, int64_t size, trmi_field *fields) {
    const trmi_click_source *click = (const trmi_click_source *)source;
    int32_t count = 0;
    fields[count++] =
        (trmi_field){.name = "label", .dtype = TRM_FLOAT32, .shape = trm_shape_of(size)};
    if (click->dense_count > 0) {
        fields[count++] = (trmi_field){
            .name = "dense", .dtype = TRM_FLOAT32, .shape = trm_shape_of(size, click->dense_count)};
    }
    if (click->field_count == 0) {
        return count;
    }
    /* Ragged keys: as many as all rows may have together. */
    int64_t entries;
    if (!trmi_mul_i64(size, click->entries_max, &entries)) {
        entries = INT64_MAX; /* too large; the caller refuses it */
    }
    trm_shape flat = trm_shape_of(entries);
    fields[count++] =
        (trmi_field){.name = "keys",
                     .dtype = TRM_INT64,
                     .shape = click->ragged ? flat : trm_shape_of(size, click->field_count),
                     .ragged = click->ragged};
    if (click->ragged) {
        fields[count++] = (trmi_field){.name = "offsets",
                                       .dtype = TRM_INT64,
                                       .shape = trm_shape_of(size * click->field_count + 1)};
    }
    if (click->weighted) {
        fields[count++] =
            (trmi_field){.name = "values", .dtype = TRM_FLOAT32, .shape = flat, .ragged = true};
    }
    return count;
}

/* Fills a batch: each row is parsed directly into the batch's memory, then the rest is padded. */
trm_status trmi_click_fill(const trmi_source *source, trmi_picture_scratch *scratch,
                           const trmi_batch_work *work, trm_error *err) {
    (void)scratch;
    const trmi_click_source *click = (const trmi_click_source *)source;
    const int64_t dense_count = click->dense_count, field_count = click->field_count;
    /* the tensors, in the order of trmi_click_fields */
    int32_t next = 0;
    float *labels = work->tensors[next++].data;
    float *dense = dense_count > 0 ? work->tensors[next++].data : NULL;
    trm_tensor *key_tensor = field_count > 0 ? &work->tensors[next++] : NULL;
    int64_t *keys = key_tensor != NULL ? key_tensor->data : NULL;
    int64_t *offsets = click->ragged ? work->tensors[next++].data : NULL;
    trm_tensor *value_tensor = click->weighted ? &work->tensors[next++] : NULL;
    int64_t used = 0;
    for (int64_t i = 0; i < work->count; i++) {
        trmi_row row = {.dense = dense != NULL ? dense + i * dense_count : NULL,
                        .keys = keys != NULL ? keys + used : NULL,
                        .values = value_tensor != NULL ? (float *)value_tensor->data + used : NULL,
                        .ends = click->ragged ? offsets + 1 + i * field_count : NULL,
                        .capacity = click->entries_max};
        TRMI_TRY(click->parse(click, work->indices[i], &row, err));
        labels[i] = row.label;
        /* the ends of a row's fields become offsets in the batch */
        for (int64_t f = 0; click->ragged && f < field_count; f++) {
            row.ends[f] += used;
        }
        used += row.count;
    }
    /* Padding rows have zeros, and empty bags. */
    int64_t rest = work->slots - work->count;
    memset(labels + work->count, 0, (size_t)rest * sizeof *labels);
    if (dense != NULL) {
        memset(dense + work->count * dense_count, 0, (size_t)(rest * dense_count) * sizeof *dense);
    }
    if (click->ragged) {
        offsets[0] = 0;
        for (int64_t b = work->count * field_count; b < work->slots * field_count; b++) {
            offsets[b + 1] = used;
        }
        key_tensor->shape.dim[0] = used;
        if (value_tensor != NULL) {
            value_tensor->shape.dim[0] = used;
        }
    } else if (keys != NULL) {
        memset(keys + used, 0, (size_t)(rest * field_count) * sizeof *keys);
    }
    return TRM_OK;
}

/* Contract in click.h. */
void trmi_click_describe(const trmi_source *source, trmi_report *report) {
    const trmi_click_source *click = (const trmi_click_source *)source;
    const trmi_keyer *keyer = &click->keyer;
    trmi_report_put(report, trmi_int("dense", click->dense_count),
                    trmi_int("key_fields", click->field_count),
                    trmi_string("keys", keyer->vocabulary != NULL ? "vocabulary"
                                        : keyer->buckets > 0      ? "buckets"
                                                                  : "unbounded"));
    if (keyer->buckets > 0) {
        trmi_report_put(report, trmi_int("buckets", keyer->buckets));
    }
}

bool trmi_row_add(trmi_row *row, int64_t key, float value) {
    if (row->count == row->capacity) {
        return false;
    }
    if (row->values != NULL) {
        row->values[row->count] = value;
    }
    row->keys[row->count++] = key;
    return true;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Checks that bounded keys are in range, that there is one kind of keys, and that same_as has no
 * chains. */
trm_status trmi_click_configure(trmi_click_source *source, const trm_click_options *options,
                                bool log_by_default, trm_error *err) {
    static const trm_click_options defaults = {0};
    const trm_click_options *o = options != NULL ? options : &defaults;
    /* Check which kind of keys is asked for. */
    if (o->buckets != 0 && (o->buckets < 2 || o->buckets > (int64_t)1 << 48)) {
        return TRMI_FAIL(err, TRM_INVALID, "%lld hash buckets: 2..2^48, or 0 for unbounded keys",
                         (long long)o->buckets);
    }
    if (o->buckets != 0 && o->vocabulary != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "buckets and a vocabulary: choose one");
    }
    if (o->shared_table && o->buckets == 0 && o->vocabulary == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a shared table needs bounded keys: give buckets or a vocabulary");
    }
    if (o->bag_max < 0 || o->bag_max > 65536 || o->column_count < 0 || o->column_count > 4096 ||
        !isfinite(o->missing_dense) || !isfinite(o->label_threshold)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "click options: bag_max %lld, %d columns, missing_dense %g, threshold %g",
                         (long long)o->bag_max, (int)o->column_count, (double)o->missing_dense,
                         (double)o->label_threshold);
    }
    /* a field may be keyed as another one, which is keyed as itself */
    for (int32_t f = 0; f < o->same_as_count; f++) {
        if (o->same_as[f] < 0 || o->same_as[f] >= o->same_as_count ||
            o->same_as[o->same_as[f]] != o->same_as[f]) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "same_as: field %d as %d: a field from 0 to %d that is keyed as itself "
                "expected",
                f, o->same_as[f], o->same_as_count - 1);
        }
    }
    /* All options are good: take them over. */
    source->keyer = (trmi_keyer){.buckets = o->buckets,
                                 .vocabulary = o->vocabulary,
                                 .shared = o->shared_table,
                                 .same_as = o->same_as,
                                 .same_as_count = o->same_as_count,
                                 .seed = o->vocabulary != NULL ? trmi_vocabulary_seed(o->vocabulary)
                                                               : o->hash_seed};
    source->dense_form = o->dense != TRM_DENSE_DEFAULT ? o->dense
                         : log_by_default              ? TRM_DENSE_LOG
                                                       : TRM_DENSE_RAW;
    source->missing_dense = o->missing_dense;
    source->label_threshold = o->label_threshold;
    return TRM_OK;
}

trm_status trmi_click_ready(const trmi_click_source *source, const char *path, trm_error *err) {
    const trm_vocabulary *v = source->keyer.vocabulary;
    if (v != NULL && trm_vocabulary_fields(v) != source->field_count) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %d key fields, but a vocabulary of %d", path,
                         (int)source->field_count, (int)trm_vocabulary_fields(v));
    }
    return TRM_OK;
}

float trmi_click_dense(const trmi_click_source *source, double value) {
    return source->dense_form == TRM_DENSE_LOG ? logf(1.0f + (float)(value > 0 ? value : 0))
                                               : (float)value;
}

bool trmi_click_label(const trmi_click_source *source, double value, float *out) {
    if (source->label_threshold != 0) {
        *out = value >= (double)source->label_threshold;
        return true;
    }
    *out = value == 1;
    return value == 0 || value == 1;
}

/* ---- numbers ---- */

/* Contract in click.h. The whole text must be the number. */
bool trmi_parse_integer(const char *at, const char *end, int64_t *out) {
    bool negative = at < end && *at == '-';
    at += negative || (at < end && *at == '+');
    if (at == end) {
        return false;
    }
    int64_t value = 0;
    for (; at < end; at++) {
        int digit = *at - '0';
        if (digit < 0 || digit > 9 || !trmi_mul_i64(value, 10, &value) ||
            !trmi_add_i64(value, digit, &value)) {
            return false;
        }
    }
    *out = negative ? -value : value;
    return true;
}

/* Adds decimal digits to the mantissa as far as it can hold them, and counts the decimal exponent.
 * Returns the first character that is no digit. */
static const char *read_digits(const char *at, const char *end, bool fraction, uint64_t *mantissa,
                               int *exponent, int *seen) {
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        ++*seen;
        if (*mantissa < UINT64_MAX / 10 - 1) {
            *mantissa = *mantissa * 10 + (uint64_t)(*at - '0');
            *exponent -= fraction;
        } else {
            *exponent += !fraction;
        }
    }
    return at;
}

/* Contract in click.h. Does not depend on the locale, as strtod does. */
bool trmi_parse_number(const char *at, const char *end, double *out) {
    enum { EXPONENT_MAX = 400 };
    /* Whole numbers are the usual case and exact. */
    int64_t whole;
    if (trmi_parse_integer(at, end, &whole)) {
        *out = (double)whole;
        return true;
    }
    /* Read sign, digits, fraction, exponent. */
    bool negative = at < end && *at == '-';
    at += negative || (at < end && *at == '+');
    uint64_t mantissa = 0;
    int exponent = 0, seen = 0;
    at = read_digits(at, end, false, &mantissa, &exponent, &seen);
    if (at < end && *at == '.') {
        at = read_digits(at + 1, end, true, &mantissa, &exponent, &seen);
    }
    if (seen == 0) {
        return false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        int64_t shift;
        if (!trmi_parse_integer(at + 1, end, &shift) || shift > EXPONENT_MAX ||
            shift < -EXPONENT_MAX) {
            return false;
        }
        exponent += (int)shift;
        at = end;
    }
    /* A division is exact for powers of ten up to 10^22; a multiplication by an inverse is not. */
    double value = (double)mantissa;
    if (value != 0) {
        value = exponent < 0 ? value / pow(10, -exponent) : value * pow(10, exponent);
    }
    *out = negative ? -value : value;
    return at == end && isfinite(value);
}

/* ---- lines ---- */

/* Returns the end of a line without its line break; *next is the start of the following line. */
static const char *line_end(const char *line, const char *limit, const char **next) {
    const char *end = memchr(line, '\n', (size_t)(limit - line));
    *next = end != NULL ? end + 1 : limit;
    end = end != NULL ? end : limit;
    return end > line && end[-1] == '\r' ? end - 1 : end;
}

/* Removes every second anchor, and doubles the stride. */
static void thin_out(trmi_lines *lines) {
    lines->anchor_count = (lines->anchor_count + 1) / 2;
    for (int64_t i = 0; i < lines->anchor_count; i++) {
        lines->anchors[i] = lines->anchors[2 * i];
    }
    lines->stride *= 2;
}

/* Contract in click.h. Anchors use 8 bytes for each `stride` lines; with more than 4 million of
 * them the stride doubles, so an index has a bounded size whatever the file. A line is then found
 * by a walk of at most `stride` lines. */
trm_status trmi_lines_index(const char *data, size_t bytes, trmi_lines *out, trmi_line_visit visit,
                            void *context, trm_error *err) {
    enum { STRIDE = 16 };
    const int64_t anchors_max = (int64_t)1 << 22;
    trmi_lines lines = {.data = data, .bytes = bytes, .stride = STRIDE};
    const char *limit = data + bytes, *next;
    for (const char *line = data; line < limit; line = next) {
        const char *end = line_end(line, limit, &next);
        /* empty lines are no rows */
        if (end == line) {
            continue;
        }
        /* Keep an anchor for each `stride` rows; with too many anchors, each second one is
         * removed. */
        if (lines.rows % lines.stride == 0) {
            if (lines.anchor_count == anchors_max) {
                thin_out(&lines);
            }
            if (lines.rows % lines.stride == 0) {
                if (!trmi_grow((void **)&lines.anchors, &lines.anchor_capacity,
                               lines.anchor_count + 1, sizeof *lines.anchors)) {
                    trmi_lines_free(&lines);
                    return TRMI_NO_MEMORY(err, "for an index of %lld lines", (long long)lines.rows);
                }
                lines.anchors[lines.anchor_count++] = (size_t)(line - data);
            }
        }
        lines.rows++;
        if (visit != NULL) {
            visit(context, line, end);
        }
    }
    *out = lines;
    return TRM_OK;
}

void trmi_lines_free(trmi_lines *lines) {
    free(lines->anchors);
    lines->anchors = NULL;
}

/* Goes to the anchor, then skips rows. */
void trmi_lines_at(const trmi_lines *lines, int64_t index, const char **line, const char **end) {
    const char *limit = lines->data + lines->bytes;
    const char *next = lines->data + lines->anchors[index / lines->stride];
    int64_t skip = index % lines->stride;
    for (;;) {
        *line = next;
        *end = line_end(*line, limit, &next);
        if (*line == limit || (*end != *line && skip-- == 0)) {
            /* the limit is reached only if the file has become shorter: zeros contain no lines */
            return;
        }
    }
}

int64_t trmi_lines_number(const trmi_lines *lines, const char *line) {
    int64_t number = 1;
    for (const char *at = lines->data; at < line; at++) {
        number += *at == '\n';
    }
    return number;
}
