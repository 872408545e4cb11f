/* SPDX-License-Identifier: Apache-2.0 */
/* Samples for language models: windows over sequences of tokens (the drawing is in token_source.h).
 * A sample is a window of at most `window_tokens` tokens and, as targets, the tokens that begin one
 * later, or, of masked samples, some of its own; windows begin every `stride` tokens. A part is one
 * sequence, or one for each of its documents. The last window of a sequence may be shorter, and its
 * row is then filled up with the padding token and targets that no loss counts.
 *
 *   sample index -> find_part -> first token of the window -> read_tokens (ids, bytes, characters)
 *
 * Files are mapped, so a batch reads only its own windows. 16-bit ids and characters are checked
 * each time they are read: a file may hold any bytes, and another process may change it while it is
 * mapped. */
#include "data/text/token_source.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/format/endian.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/format/utf8.h"
#include "data/pipeline/dataset.h"
#include "data/text/tokenizer.h"
#include "data/text/unicode.h"

#include <stdio.h>
#include <string.h>

/* ---- reading tokens ---- */

/* Reports a fault at a byte of a part's file. */
static trm_status fail_at_byte(const trmi_token_part *p, int64_t byte, const char *found,
                               trm_error *err) {
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: byte %lld: %s", p->name, (long long)(p->offset + byte),
                     found);
}

/* Reads 16-bit ids and checks that each is in the vocabulary, because another program wrote the
 * file. The first loop only finds the largest id; if that is too large, the second finds where
 * the first such id is. */
static trm_status read_uint16(const trmi_token_source *s, const trmi_token_part *p, int64_t first,
                              int64_t count, int32_t *out, trm_error *err) {
    const uint8_t *at = p->data + 2 * first;
    int32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        out[i] = trmi_get16(at + 2 * i);
        largest = out[i] > largest ? out[i] : largest;
    }
    for (int64_t i = 0; largest >= s->base.classes && i < count; i++) {
        if (out[i] >= s->base.classes) {
            char text[96];
            snprintf(text, sizeof text, "token id %d, below %lld (the vocabulary) expected",
                     (int)out[i], (long long)s->base.classes);
            return fail_at_byte(p, 2 * (first + i), text, err);
        }
    }
    return TRM_OK;
}

/* Reads characters as ids. The part's index has the byte of every TRMI_CHARACTERS_STEP-th
 * character, so reading begins at the last indexed one and skips those before `first`. */
static trm_status read_characters(const trmi_token_source *s, const trmi_token_part *p,
                                  int64_t first, int64_t count, int32_t *out, trm_error *err) {
    const char *text = (const char *)p->data;
    size_t at = p->index[first / TRMI_CHARACTERS_STEP];
    int64_t skipped = first % TRMI_CHARACTERS_STEP;
    for (int64_t i = -skipped; i < count; i++) {
        uint32_t point;
        if (at >= p->bytes || trmi_utf8_length(text + at, p->bytes - at) == 0) {
            return fail_at_byte(p, (int64_t)at,
                                "no UTF-8; the file has changed since it was opened", err);
        }
        size_t length = trmi_char_read(text + at, p->bytes - at, &point);
        if (i >= 0 && (out[i] = trmi_character_id(s->tokenizer, point)) < 0) {
            return fail_at_byte(
                p, (int64_t)at,
                "a character without a token; the file has changed since it was opened", err);
        }
        at += length;
    }
    return TRM_OK;
}

/* Reads the ids of tokens [first, first + count), which the part must have. */
static trm_status read_tokens(const trmi_token_source *s, const trmi_token_part *p, int64_t first,
                              int64_t count, int32_t *out, trm_error *err) {
    switch (p->form) {
    case TRMI_TOKENS_UINT16: return read_uint16(s, p, first, count, out, err);
    case TRMI_TOKENS_INT32: memcpy(out, p->data + 4 * first, 4 * (size_t)count); return TRM_OK;
    case TRMI_TOKENS_CHARACTERS: return read_characters(s, p, first, count, out, err);
    default:
        for (int64_t i = 0; i < count; i++) {
            out[i] = p->data[first + i];
        }
        return TRM_OK;
    }
}

/* ---- samples ---- */

/* Returns the part that has a sample. */
static const trmi_token_part *find_part(const trmi_token_source *s, int64_t index) {
    int64_t low = 0, high = s->part_count; /* the part is in [low, high) */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (s->parts[middle].first_sample <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &s->parts[low];
}

/* Names the fields of a batch. */
static int32_t list_fields(const trmi_source *source, int64_t size, trmi_field *fields) {
    const trmi_token_source *s = (const trmi_token_source *)source;
    static const char *const names[] = {"tokens", "targets", "mask"};
    int32_t count = s->masking > 0 ? 3 : 2;
    for (int32_t i = 0; i < count; i++) {
        fields[i] = (trmi_field){
            .name = names[i], .dtype = TRM_INT32, .shape = trm_shape_of(size, s->context)};
    }
    return count;
}

/* Returns how many tokens after its last one a sample needs: the last target. */
static int64_t count_lookahead(const trmi_token_source *s) { return s->masking > 0 ? 0 : 1; }

/* Chooses the tokens of a masked sample that are targets, and replaces most of them in `tokens`.
 * Exactly the share is chosen, so that all samples of equal length have equally many: position by
 * position with the probability (targets that are missing) / (positions that are left). */
static void mask_sample(const trmi_token_source *s, uint64_t seed, int64_t index, int64_t count,
                        int32_t *tokens, int32_t *targets) {
    int64_t missing = (int64_t)((double)count * s->masking + 0.5);
    missing = count > 0 ? trmi_max_i64(1, trmi_min_i64(missing, count)) : 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t dice[4];
        trmi_philox(seed, TRMI_STREAM_AUGMENT, (uint64_t)(index * s->context + i), dice);
        targets[i] = TRMI_TOKEN_IGNORED;
        if (trmi_bounded(dice[0], (uint32_t)(count - i)) >= missing) {
            continue;
        }
        missing--;
        targets[i] = tokens[i];
        /* As in BERT (Devlin et al. 2019): 80 % become the mask token, 10 % a random one, 10 %
         * stay. */
        uint32_t way = trmi_bounded(dice[1], 10);
        tokens[i] = way < 8    ? s->mask_token
                    : way == 8 ? (int32_t)trmi_bounded(dice[2], (uint32_t)s->base.classes)
                               : tokens[i];
    }
}

/* The window of a sample. */
typedef struct window {
    const trmi_token_part *part;
    int64_t first, count; /* tokens of the part, without the last target */
} window;

/* Returns the window of a sample. */
static window find_window(const trmi_token_source *s, int64_t index) {
    const trmi_token_part *p = find_part(s, index);
    int64_t i = index - p->first_sample;
    if (p->spans.count > 0) {
        return (window){p, p->spans.items[i].begin, p->spans.items[i].count};
    }
    int64_t first = i * s->stride;
    return (window){p, first,
                    trmi_min_i64(s->window_tokens, p->count - first - count_lookahead(s))};
}

/* Writes the row of a sample: its window of ids and, if they are wanted, the boundary tokens; fills
 * it up with padding. */
static void fill_row(const trmi_token_source *s, const int32_t *ids, int64_t count, int32_t *tokens,
                     int32_t *targets) {
    int64_t at = s->bounded && count > 0, end = at + count;
    for (int64_t i = 0; i < s->context; i++) {
        bool inside = i >= at && i < end;
        tokens[i] = inside ? ids[i - at] : s->padding;
        targets[i] = inside && s->masking == 0 ? ids[i - at + 1] : TRMI_TOKEN_IGNORED;
    }
    if (at > 0) {
        tokens[0] = s->first_token;
        tokens[end] = s->last_token;
    }
}

/* Writes the tokens and targets of a batch, and the mask of masked samples. */
static trm_status fill_batch(const trmi_source *source, trmi_picture_scratch *scratch,
                             const trmi_batch_work *work, trm_error *err) {
    const trmi_token_source *s = (const trmi_token_source *)source;
    int32_t *ids =
        trmi_scratch_get(scratch, TRMI_SCRATCH_SOURCE, (size_t)(s->context + 1) * sizeof *ids);
    if (ids == NULL) {
        return TRMI_NO_MEMORY(err, "for a sample of %lld tokens", (long long)s->context);
    }
    for (int64_t row = 0; row < work->slots; row++) {
        int32_t *tokens = (int32_t *)work->tensors[0].data + row * s->context,
                *targets = (int32_t *)work->tensors[1].data + row * s->context;
        int64_t index = row < work->count ? work->indices[row] : 0;
        window w = {0}; /* of a row without a sample */
        if (row < work->count) {
            w = find_window(s, index);
            TRMI_TRY(read_tokens(s, w.part, w.first, w.count + count_lookahead(s), ids, err));
        }
        /* Rows without a sample (at the end of an evaluation) have padding and ignored targets
         * only. */
        fill_row(s, ids, w.count, tokens, targets);
        if (s->masking > 0) {
            int32_t *mask = (int32_t *)work->tensors[2].data + row * s->context;
            int64_t used = w.count > 0 && s->bounded ? w.count + 2 : w.count;
            for (int64_t i = 0; i < s->context; i++) {
                mask[i] = i < used;
            }
            mask_sample(s, s->fixed_masks ? 0 : work->epoch_seed, index, w.count,
                        tokens + s->bounded, targets + s->bounded);
        }
    }
    return TRM_OK;
}

/* Reports a mapped file that became shorter. */
static trm_status check_files(const trmi_source *source, const trmi_batch_work *work,
                              trm_status status, trm_error *err) {
    const trmi_token_source *s = (const trmi_token_source *)source;
    (void)work;
    for (int64_t i = 0; i < s->files.count; i++) {
        status = trmi_mapping_check(&s->files.files[i].mapping, status, err);
    }
    return status;
}

/* Writes where a sample begins. */
static void write_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    const trmi_token_source *s = (const trmi_token_source *)source;
    window w = find_window(s, index);
    snprintf(text, size, "%s: token %lld", w.part->name, (long long)w.first);
}

/* Puts files, tokens, context and stride. */
static void write_description(const trmi_source *source, trmi_report *report) {
    const trmi_token_source *s = (const trmi_token_source *)source;
    int64_t tokens = 0;
    trmi_report_open_array(report, "files");
    for (int64_t i = 0; i < s->part_count; i++) {
        trmi_report_put(report, trmi_string(NULL, s->parts[i].name));
        tokens += s->parts[i].count;
    }
    trmi_report_close(report);
    trmi_report_put(report, trmi_int("tokens", tokens), trmi_int("context", s->context),
                    trmi_int("stride", s->stride));
    if (s->masking > 0) {
        trmi_report_put(report, trmi_nine("masking", s->masking),
                        trmi_int("mask_token", s->mask_token));
    }
    if (s->bounded) {
        trmi_report_open_array(report, "boundary_tokens");
        trmi_report_put(report, trmi_int(NULL, s->first_token), trmi_int(NULL, s->last_token));
        trmi_report_close(report);
    }
    if (s->by_documents) {
        trmi_report_put(report, trmi_bool("documents", true));
    }
}

/* Frees the memory of a part. */
static void free_part(const trmi_token_part *part) {
    trmi_free(part->owned);
    trmi_free(part->index);
    trmi_free(part->spans.items);
}

void trmi_token_source_destroy(trmi_source *source) {
    trmi_token_source *s = (trmi_token_source *)source;
    for (int64_t i = 0; i < s->part_count; i++) {
        free_part(&s->parts[i]);
    }
    trmi_free(s->parts);
    trmi_text_files_close(&s->files);
    trm_tokenizer_destroy(s->tokenizer);
    trmi_arena_free(&s->arena);
    trmi_free(s);
}

#define TOKEN_OPS(name)                                                                            \
    {                                                                                              \
        .kind = (name), .fields = list_fields, .fill = fill_batch, .check = check_files,           \
        .place = write_place, .describe = write_description, .destroy = trmi_token_source_destroy  \
    }
const trmi_source_ops trmi_tokens_ops = TOKEN_OPS("tokens"), trmi_text_ops = TOKEN_OPS("text"),
                      trmi_json_lines_ops = TOKEN_OPS("jsonl");

/* ---- parts ---- */

/* Returns the samples of a part: those of its documents, or whole windows, and a shorter last one
 * if the source keeps it. */
static int64_t count_samples(const trmi_token_source *s, const trmi_token_part *part) {
    if (s->by_documents) {
        return part->spans.count;
    }
    int64_t last = part->count - count_lookahead(s);
    int64_t whole = (last - s->window_tokens) / s->stride + 1;
    bool tail = s->keeps_tail && whole * s->stride < last &&
                (whole - 1) * s->stride + s->window_tokens < last;
    return whole + tail;
}

/* Contract in token_source.h. A document that is too short for a token and its target gives no
 * sample. */
trm_status trmi_token_spans_add(const trmi_token_source *source, trmi_token_spans *spans,
                                int64_t begin, int64_t count, trm_error *err) {
    int64_t last = count - count_lookahead(source);
    for (int64_t at = 0, end = 0; end < last; at += source->stride) {
        TRMI_TRY(TRMI_GROW(err, spans->items, spans->capacity, spans->count + 1,
                           "for the documents of a text"));
        int64_t length = trmi_min_i64(source->window_tokens, last - at);
        spans->items[spans->count++] = (trmi_token_span){begin + at, length};
        end = at + length;
    }
    return TRM_OK;
}

/* Checks that a part has a sample.
 *   errors  INVALID */
static trm_status check_part(const trmi_token_source *s, const trmi_token_part *part,
                             trm_error *err) {
    int64_t least = s->window_tokens + count_lookahead(s);
    if (s->by_documents) {
        return part->spans.count > 0 ? TRM_OK
                                     : TRMI_FAIL(err, TRM_INVALID,
                                                 "%s: no document with tokens%s; at least one "
                                                 "expected",
                                                 part->name, s->purpose);
    }
    return part->count >= least
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "%s: %lld tokens%s, %lld (the context%s%s) expected; lower the context "
                           "or give more text",
                           part->name, (long long)part->count, s->purpose, (long long)least,
                           s->bounded ? " without the boundary tokens" : "",
                           count_lookahead(s) > 0 ? " and one more" : "");
}

/* Contract in token_source.h. Samples are numbered through the parts in the order in which they are
 * added. */
trm_status trmi_token_part_add(trmi_token_source *source, const trmi_token_part *part,
                               trm_error *err) {
    trm_status status = check_part(source, part, err);
    if (status == TRM_OK) {
        status = TRMI_GROW(err, source->parts, source->part_capacity, source->part_count + 1,
                           "for the files of a dataset");
    }
    if (status != TRM_OK) {
        free_part(part);
        return status;
    }
    trmi_token_part *p = &source->parts[source->part_count++];
    *p = *part;
    p->first_sample = source->base.count;
    p->samples = count_samples(source, p);
    source->base.count += p->samples;
    return TRM_OK;
}

/* ---- queries of a dataset of tokens ---- */

/* Returns the source of a dataset of tokens; NULL: other data. */
static const trmi_token_source *find_token_source(const trm_dataset *dataset) {
    const trmi_source_ops *ops = dataset->source->ops;
    bool is_text = ops == &trmi_tokens_ops || ops == &trmi_text_ops || ops == &trmi_json_lines_ops;
    return is_text ? (const trmi_token_source *)dataset->source : NULL;
}

trm_tokenizer *trm_dataset_tokenizer(const trm_dataset *dataset) {
    TRMI_NEED_OR(NULL, NULL, dataset);
    const trmi_token_source *s = find_token_source(dataset);
    return s != NULL ? s->tokenizer : NULL;
}

/* Returns the bytes of the text that the ids of a part stand for; 0: an id is not in the
 * vocabulary. */
static double count_decoded_bytes(const trmi_token_source *s, const trmi_token_part *p) {
    double bytes = 0;
    for (int64_t i = 0; i < p->count; i++) {
        int32_t id;
        trm_error ignored;
        if (read_tokens(s, p, i, 1, &id, &ignored) != TRM_OK ||
            id >= trm_tokenizer_vocabulary(s->tokenizer)) {
            return 0;
        }
        bytes += s->tokenizer->tokens[id].byte_count;
    }
    return bytes;
}

/* Contract in token_source.h. Texts of which neither bytes nor a tokenizer are known give 0. */
double trmi_dataset_token_bytes(const trm_dataset *dataset) {
    const trmi_token_source *s = find_token_source(dataset);
    double bytes = 0, tokens = 0;
    if (s != NULL && s->masking > 0) {
        return 0; /* the loss of masked tokens is no measure of the whole text */
    }
    for (int64_t i = 0; s != NULL && i < s->part_count; i++) {
        const trmi_token_part *p = &s->parts[i];
        double more = p->text_bytes > 0      ? p->text_bytes
                      : s->tokenizer != NULL ? count_decoded_bytes(s, p)
                                             : 0;
        if (more == 0) {
            return 0;
        }
        bytes += more;
        tokens += (double)p->count;
    }
    return tokens > 0 ? bytes / tokens : 0;
}
