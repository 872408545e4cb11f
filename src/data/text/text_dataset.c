/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of tokens: files of ids, text, JSON lines.
 *
 *   files (text_files.h) --> a tokenizer, if there is one --> for each file the part of the usage
 *                                                               --> trmi_token_part_add
 *
 * Invariants: a file that both usages share is divided between documents or characters, never
 * inside of one. Tokens of characters are numbered over the files of both usages. Bytes and
 * characters are read where they lie in a mapped file; encoded tokens are in memory, and their
 * files are closed. */
#include "base/arguments.h"
#include "base/checked.h"
#include "base/format/endian.h"
#include "base/error.h"
#include "base/format/utf8.h"
#include "data/text/json_lines.h"
#include "data/text/token_file.h"
#include "data/text/token_source.h"
#include "data/text/tokenizer.h"
#include "data/text/unicode.h"

#include <string.h>

/* Tokens of a sample unless the options say otherwise, and at most; tokens that are encoded at a
 * time. */
enum { CONTEXT = 256, CONTEXT_MAX = 1 << 24, PORTION = 1 << 16 };

static const trm_text_options no_options;

/* A dataset under construction. */
typedef struct opening {
    trmi_token_source *source;
    const trm_text_options *options;
    trm_usage usage;
    trmi_documents *documents; /* of JSON lines and of lines of a text, by file; NULL: other data */
} opening;

/* A range of the lines or tokens of a file. */
typedef struct range {
    int64_t begin, end;
} range;

/* Returns the range of the file's `count` lines or tokens that the usage reads. */
static range choose_range(const opening *o, const trmi_text_file *file, int64_t count) {
    int64_t cut = file->is_split ? trmi_text_train_count(count) : count;
    return !file->is_split || o->usage == TRM_USAGE_ALL ? (range){0, count}
           : o->usage == TRM_USAGE_TRAIN                ? (range){0, cut}
                                                        : (range){cut, count};
}

/* ---- tokenizers ---- */

/* Opens the tokenizer that the options name; tokens of characters are numbered later, from the
 * files. */
static trm_status open_tokenizer(opening *o, trm_error *err) {
    const trm_text_options *options = o->options;
    trmi_token_source *s = o->source;
    const char *tokens = options->tokens;
    if (options->tokenizer != NULL && tokens != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "a tokenizer (%s) and tokens of %s: give one of both",
                         options->tokenizer, tokens);
    }
    if (options->tokenizer != NULL) {
        TRMI_TRY(trm_tokenizer_open(options->tokenizer, &s->tokenizer, err));
    } else if (tokens != NULL && strcmp(tokens, "bytes") == 0) {
        TRMI_TRY(trm_tokenizer_bytes(&s->tokenizer, err));
        s->reads_bytes = true;
    } else if (tokens != NULL && strcmp(tokens, "characters") != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "tokens of '%.40s': characters or bytes expected",
                         tokens);
    }
    return TRM_OK;
}

/* Returns whether the options ask for tokens of characters. */
static bool wants_characters(const opening *o) {
    return o->options->tokens != NULL && strcmp(o->options->tokens, "characters") == 0;
}

/* Numbers the characters of all files, those of the other usage, too. */
static trm_status number_characters(opening *o, trm_error *err) {
    uint8_t *seen;
    const trmi_text_files *files = &o->source->files;
    TRMI_TRY(TRMI_NEW(err, seen, TRMI_CHARACTER_SET_BYTES, "to number characters"));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < files->count && status == TRM_OK; i++) {
        const trmi_text_file *f = &files->files[i];
        const trmi_text *text = o->documents != NULL ? &o->documents[i].text : NULL;
        status = trmi_characters_survey(text != NULL ? text->data : (const char *)f->mapping.data,
                                        text != NULL ? text->length : f->mapping.bytes, seen, err);
        if (status != TRM_OK) {
            trmi_error_append(err, " (in %s)", f->path);
        }
        status = trmi_mapping_check(&f->mapping, status, err);
    }
    if (o->documents != NULL) {
        seen['\n' >> 3] |= 1u << ('\n' & 7); /* between documents */
    }
    status =
        status == TRM_OK ? trmi_tokenizer_of_characters(seen, &o->source->tokenizer, err) : status;
    trmi_free(seen);
    return status;
}

/* Makes sure that text has a tokenizer. */
static trm_status need_tokenizer(opening *o, trm_error *err) {
    if (wants_characters(o)) {
        return number_characters(o, err);
    }
    return o->source->tokenizer != NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "%s: text needs a tokenizer, or tokens of characters or bytes "
                           "(--tokenizer DIR, --tokens characters|bytes)",
                           o->source->files.files[0].path);
}

/* ---- tokens in memory ---- */

/* Ids of 2 or 4 bytes, appended. */
typedef struct packed_ids {
    uint8_t *data;
    int64_t bytes, capacity;
    bool is_wide;
    trmi_token_spans spans; /* of documents that are samples */
} packed_ids;

/* Returns how many ids are there. */
static int64_t count_packed(const packed_ids *packed) {
    return packed->bytes / (packed->is_wide ? 4 : 2);
}

/* Appends ids. */
static trm_status pack_ids(packed_ids *packed, const trm_tokens *tokens, trm_error *err) {
    int64_t width = packed->is_wide ? 4 : 2;
    TRMI_TRY(TRMI_GROW(err, packed->data, packed->capacity, packed->bytes + width * tokens->count,
                       "for the tokens of a text"));
    for (int64_t i = 0; i < tokens->count; i++, packed->bytes += width) {
        if (packed->is_wide) {
            memcpy(packed->data + packed->bytes, &tokens->ids[i], 4);
        } else {
            trmi_put16(packed->data + packed->bytes, (uint16_t)tokens->ids[i]);
        }
    }
    return TRM_OK;
}

/* Encodes a text in portions. */
static trm_status encode_text(trm_tokenizer *t, const char *text, size_t bytes, packed_ids *packed,
                              trm_error *err) {
    trmi_encoding encoding;
    trm_tokens tokens = {0};
    trm_status status = TRM_OK;
    trmi_encoding_begin(t, text, bytes, &encoding);
    while (encoding.at < bytes && status == TRM_OK) {
        tokens.count = 0;
        status = trmi_encode_some(t, &encoding, PORTION, &tokens, err);
        status = status == TRM_OK ? pack_ids(packed, &tokens, err) : status;
    }
    trm_tokens_free(&tokens);
    return status;
}

/* Adds a part with tokens in memory, which the source takes over. */
static trm_status add_packed(trmi_token_source *s, const trmi_text_file *file,
                             const packed_ids *packed, double text_bytes, trm_error *err) {
    const trmi_token_part part = {.name = file->path,
                                  .spans = packed->spans,
                                  .form = packed->is_wide ? TRMI_TOKENS_INT32 : TRMI_TOKENS_UINT16,
                                  .data = packed->data,
                                  .bytes = (size_t)packed->bytes,
                                  .count = count_packed(packed),
                                  .owned = packed->data,
                                  .text_bytes = text_bytes};
    return trmi_token_part_add(s, &part, err);
}

/* Returns an empty list of ids, as wide as the vocabulary needs. */
static packed_ids begin_packed(const trm_tokenizer *t) {
    return (packed_ids){.is_wide = trm_tokenizer_vocabulary(t) > 65536};
}

/* ---- text ---- */

/* Returns the bytes of the first `count` characters. */
static size_t skip_characters(const char *text, size_t bytes, int64_t count) {
    size_t at = 0;
    uint32_t point;
    while (at < bytes && count-- > 0) {
        at += trmi_char_read(text + at, bytes - at, &point);
    }
    return at;
}

/* Counts characters; each that is not UTF-8 is one. */
static int64_t count_characters(const char *text, size_t bytes) {
    int64_t count = 0;
    uint32_t point;
    for (size_t at = 0; at < bytes; count++) {
        at += trmi_char_read(text + at, bytes - at, &point);
    }
    return count;
}

/* Checks that all characters have tokens, and notes where each 1024th begins. */
static trm_status index_characters(const trm_tokenizer *t, trmi_token_part *p, trm_error *err) {
    int64_t most = trmi_pieces(p->count, TRMI_CHARACTERS_STEP), count = 0;
    TRMI_TRY(TRMI_NEW(err, p->index, most, "to read %s", p->name));
    for (size_t at = 0; at < p->bytes; count++) {
        uint32_t point;
        const char *text = (const char *)p->data + at;
        if (count % TRMI_CHARACTERS_STEP == 0 && count / TRMI_CHARACTERS_STEP < most) {
            p->index[count / TRMI_CHARACTERS_STEP] = at;
        }
        bool valid = trmi_utf8_length(text, p->bytes - at) > 0;
        size_t length = trmi_char_read(text, p->bytes - at, &point);
        if (!valid || trmi_character_id(t, point) < 0) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: byte %lld: %s", p->name,
                             (long long)(p->offset + (int64_t)at),
                             valid ? "a character that the tokenizer has no token for"
                                   : "this is not UTF-8, characters expected");
        }
        at += length;
    }
    return TRM_OK;
}

/* Adds the part of a mapped text whose bytes or characters are the tokens: it is read where it
 * lies. */
static trm_status add_mapped(opening *o, const trmi_text_file *file, trm_error *err) {
    trmi_token_source *s = o->source;
    const char *text = (const char *)file->mapping.data;
    size_t bytes = file->mapping.bytes;
    bool characters = !s->reads_bytes;
    range r = choose_range(o, file, characters ? count_characters(text, bytes) : (int64_t)bytes);
    size_t begin = characters ? skip_characters(text, bytes, r.begin) : (size_t)r.begin;
    size_t end = characters ? begin + skip_characters(text + begin, bytes - begin, r.end - r.begin)
                            : (size_t)r.end;
    trmi_token_part part = {.name = file->path,
                            .form = characters ? TRMI_TOKENS_CHARACTERS : TRMI_TOKENS_BYTES,
                            .data = file->mapping.data + begin,
                            .bytes = end - begin,
                            .offset = (int64_t)begin,
                            .count = r.end - r.begin,
                            .text_bytes = (double)(end - begin)};
    trm_status status = characters ? index_characters(s->tokenizer, &part, err) : TRM_OK;
    if (status != TRM_OK) {
        trmi_free(part.index);
        return status;
    }
    return trmi_token_part_add(s, &part, err);
}

/* Adds the part of a mapped text that a tokenizer encodes. */
static trm_status add_encoded(opening *o, const trmi_text_file *file, trm_error *err) {
    trmi_token_source *s = o->source;
    const char *text = (const char *)file->mapping.data;
    size_t bytes = file->mapping.bytes;
    range r =
        choose_range(o, file, file->is_split ? count_characters(text, bytes) : (int64_t)bytes);
    /* A file that both usages share is divided at a character, not within one. */
    if (file->is_split) {
        r.begin = (int64_t)skip_characters(text, bytes, r.begin);
        r.end = o->usage == TRM_USAGE_TRAIN ? (int64_t)skip_characters(text, bytes, r.end)
                                            : (int64_t)bytes;
    }
    packed_ids packed = begin_packed(s->tokenizer);
    size_t length = (size_t)(r.end - r.begin);
    trm_status status = encode_text(s->tokenizer, text + r.begin, length, &packed, err);
    if (status != TRM_OK) {
        trmi_free(packed.data);
        return trmi_error_append(err, " (in %s, from byte %lld on)", file->path,
                                 (long long)r.begin);
    }
    return add_packed(s, file, &packed, (double)length, err);
}

/* Adds the part of a text: mapped for bytes and characters, else encoded. */
static trm_status add_text(opening *o, trmi_text_file *file, int64_t index, trm_error *err) {
    (void)index;
    return o->source->reads_bytes || o->source->tokenizer->characters ? add_mapped(o, file, err)
                                                                      : add_encoded(o, file, err);
}

/* ---- documents: JSON lines, lines of a text ---- */

/* Ends a document with the tokenizer's own end token, or with a line end if it has none. */
static trm_status end_document(trm_tokenizer *t, packed_ids *packed, trm_error *err) {
    int32_t id = trm_tokenizer_end(t);
    const trm_tokens token = {.ids = &id, .count = 1};
    return id >= 0 ? pack_ids(packed, &token, err) : encode_text(t, "\n", 1, packed, err);
}

/* Encodes a document and what stands after it. Masked documents that are samples have nothing
 * there. */
static trm_status add_document(opening *o, const char *text, size_t length, packed_ids *packed,
                               trm_error *err) {
    const trmi_token_source *s = o->source;
    int64_t begin = count_packed(packed);
    if (length > 0) {
        TRMI_TRY(encode_text(s->tokenizer, text, length, packed, err));
    }
    if (!s->by_documents || s->masking == 0) {
        TRMI_TRY(end_document(s->tokenizer, packed, err));
    }
    return s->by_documents
               ? trmi_token_spans_add(s, &packed->spans, begin, count_packed(packed) - begin, err)
               : TRM_OK;
}

/* Adds the part of a file of documents. */
static trm_status add_documents(opening *o, trmi_text_file *file, int64_t index, trm_error *err) {
    const trmi_documents *d = &o->documents[index];
    trm_tokenizer *t = o->source->tokenizer;
    range r = choose_range(o, file, d->count);
    packed_ids packed = begin_packed(t);
    trm_status status = TRM_OK;
    size_t first = r.begin > 0 ? d->ends[r.begin - 1] : 0, begin = first;
    for (int64_t i = r.begin; i < r.end && status == TRM_OK; begin = d->ends[i++]) {
        status = add_document(o, d->text.data + begin, d->ends[i] - begin, &packed, err);
        if (status != TRM_OK) {
            trmi_error_append(err, " (in %s, document %lld)", file->path, (long long)i);
        }
    }
    if (status != TRM_OK) {
        trmi_free(packed.data);
        trmi_free(packed.spans.items);
        return status;
    }
    return add_packed(o->source, file, &packed, (double)(begin - first), err);
}

/* Parses all mapped files of JSON lines, or takes each line of texts. */
static trm_status read_documents(opening *o, bool is_json, trm_error *err) {
    trmi_text_files *files = &o->source->files;
    const char *field = o->options->text_field != NULL ? o->options->text_field : "text";
    TRMI_TRY(TRMI_NEW(err, o->documents, files->count, "for documents"));
    for (int64_t i = 0; i < files->count; i++) {
        const trmi_text_file *f = &files->files[i];
        trmi_documents *d = &o->documents[i];
        const char *text = (const char *)f->mapping.data;
        trm_status status =
            f->mapping.file == NULL ? TRM_OK
            : is_json ? trmi_json_lines_parse(f->path, text, f->mapping.bytes, field, d, err)
                      : trmi_documents_add_lines(d, text, f->mapping.bytes, err);
        TRMI_TRY(trmi_mapping_check(&f->mapping, status, err));
        if (f->mapping.file != NULL && d->count == 0) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: no documents in its %zu bytes", f->path,
                             f->mapping.bytes);
        }
    }
    return TRM_OK;
}

/* Frees the documents of all files. */
static void free_documents(opening *o) {
    for (int64_t i = 0; o->documents != NULL && i < o->source->files.count; i++) {
        trmi_documents_free(&o->documents[i]);
    }
    trmi_free(o->documents);
}

/* ---- files of ids ---- */

/* Adds the part of a file of ids. */
static trm_status add_ids(opening *o, trmi_text_file *file, int64_t index, trm_error *err) {
    (void)index;
    trmi_token_file ids;
    trm_status status =
        trmi_token_file_parse(file->path, file->mapping.data, file->mapping.bytes, &ids, err);
    TRMI_TRY(trmi_mapping_check(&file->mapping, status, err));
    range r = choose_range(o, file, ids.count);
    int64_t offset = ids.offset + TRMI_TOKEN_BYTES * r.begin;
    const trmi_token_part part = {.name = file->path,
                                  .form = TRMI_TOKENS_UINT16,
                                  .data = file->mapping.data + offset,
                                  .bytes = TRMI_TOKEN_BYTES * (size_t)(r.end - r.begin),
                                  .offset = offset,
                                  .count = r.end - r.begin};
    return trmi_token_part_add(o->source, &part, err);
}

/* ---- opening ---- */

/* A kind of dataset. */
typedef struct text_kind {
    const trmi_source_ops *ops; /* names the kind, too */
    const char *endings[2];     /* of the files' names; unused ones are NULL */
    /* Adds the parts of file number `index`.
     *   errors  those of reading it */
    trm_status (*add)(opening *o, trmi_text_file *file, int64_t index, trm_error *err);
} text_kind;

static const text_kind tokens_kind = {&trmi_tokens_ops, {".bin"}, add_ids},
                       plain_kind = {&trmi_text_ops, {".txt"}, add_text},
                       text_lines_kind = {&trmi_text_ops, {".txt"}, add_documents},
                       lines_kind = {&trmi_json_lines_ops, {".jsonl"}, add_documents};

/* Takes context, masking and tokenizer from the options. */
static trm_status settle_options(opening *o, trm_error *err) {
    trmi_token_source *s = o->source;
    const trm_text_options *options = o->options;
    s->context = options->context != 0 ? options->context : CONTEXT;
    s->by_documents = options->documents;
    s->keeps_tail = s->fixed_masks = o->usage == TRM_USAGE_TEST;
    s->purpose = o->usage == TRM_USAGE_TRAIN  ? " for training"
                 : o->usage == TRM_USAGE_TEST ? " for evaluation"
                                              : "";
    s->masking = options->masking;
    if (!(s->masking >= 0 && s->masking < 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "a share %g of masked tokens: 0 to 1 expected",
                         s->masking);
    }
    return open_tokenizer(o, err);
}

/* Finds the tokens that stand around masked samples: those of BERT or of RoBERTa. Returns false if
 * the tokenizer has neither. */
static bool find_boundaries(const trm_tokenizer *t, int32_t *first, int32_t *last) {
    static const char *const names[][2] = {{"[CLS]", "[SEP]"}, {"<s>", "</s>"}};
    for (size_t i = 0; t != NULL && i < sizeof names / sizeof names[0]; i++) {
        *first = trm_tokenizer_find(t, names[i][0]);
        *last = trm_tokenizer_find(t, names[i][1]);
        if (*first >= 0 && *last >= 0) {
            return true;
        }
    }
    return false;
}

/* Sets what a row has besides the tokens of its window, and how long windows are. */
static trm_status settle_rows(opening *o, trm_error *err) {
    static const char *const paddings[] = {"[PAD]", "<pad>"};
    trmi_token_source *s = o->source;
    const trm_text_options *options = o->options;
    trm_switch wanted = s->masking > 0 ? options->boundary_tokens : TRM_OFF;
    for (size_t i = 0; s->tokenizer != NULL && i < sizeof paddings / sizeof paddings[0]; i++) {
        int32_t id = trm_tokenizer_find(s->tokenizer, paddings[i]);
        s->padding = s->padding == 0 && id > 0 ? id : s->padding;
    }
    s->bounded =
        wanted != TRM_OFF && find_boundaries(s->tokenizer, &s->first_token, &s->last_token);
    if (!s->bounded && options->boundary_tokens == TRM_ON) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "boundary tokens: masked samples and a tokenizer with [CLS] and [SEP], or "
                         "<s> and </s>, expected");
    }
    /* The boundary tokens leave the rest of the context to tokens of the text. */
    s->window_tokens = s->context - (s->bounded ? 2 : 0);
    s->stride = options->stride != 0 ? options->stride : s->window_tokens;
    if (s->window_tokens < 1 || s->context > CONTEXT_MAX || s->stride < 1 ||
        s->stride > s->window_tokens) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a context of %lld tokens and a stride of %lld: %d to %d, and 1 to the "
                         "context%s expected",
                         (long long)s->context, (long long)s->stride, s->bounded ? 3 : 1,
                         CONTEXT_MAX, s->bounded ? " without the boundary tokens" : "");
    }
    return TRM_OK;
}

/* Returns the tokenizer's token for masked ones; -1 without one. */
static int32_t find_mask_token(const trm_tokenizer *t) {
    int32_t id = t != NULL ? trm_tokenizer_find(t, "[MASK]") : -1;
    return id < 0 && t != NULL ? trm_tokenizer_find(t, "<mask>") : id;
}

/* Sets the number that all ids are below, and the id of masked tokens. */
static trm_status settle_vocabulary(opening *o, trm_error *err) {
    trmi_token_source *s = o->source;
    int64_t own = s->tokenizer != NULL ? trm_tokenizer_vocabulary(s->tokenizer) : 65536,
            asked = o->options->vocabulary, mask = o->options->mask_token;
    if (s->masking > 0 && mask == 0) {
        mask = find_mask_token(s->tokenizer);
        own += mask < 0 && s->tokenizer != NULL; /* one more */
    }
    /* The caller may ask for more ids than the tokenizer has (a multiple of 64, for instance), not
     * for fewer. */
    if (asked < 0 || (asked > 0 && asked < own && s->tokenizer != NULL)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a vocabulary of %lld ids: the tokenizer has %lld, no fewer expected",
                         (long long)asked, (long long)own);
    }
    s->base.classes = asked > 0 ? asked : own;
    s->mask_token = (int32_t)(mask < 0 ? s->base.classes - 1 : mask);
    if (s->masking > 0 && mask >= s->base.classes) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "mask token %lld: an id below %lld (the vocabulary) expected",
                         (long long)mask, (long long)s->base.classes);
    }
    return TRM_OK;
}

/* Finds and maps the files, then adds the part of each file that the usage reads. */
static trm_status open_parts(opening *o, const char *path, const text_kind *kind, trm_error *err) {
    trmi_token_source *s = o->source;
    bool is_text = kind != &tokens_kind;
    TRMI_TRY(settle_options(o, err));
    TRMI_TRY(settle_rows(o, err));
    TRMI_TRY(trmi_text_files_find(path, o->usage, kind->endings, &s->arena, &s->files, err));
    TRMI_TRY(trmi_text_files_map(&s->files, is_text && wants_characters(o), err));
    if (kind->add == add_documents) {
        TRMI_TRY(read_documents(o, kind == &lines_kind, err));
    }
    /* A tokenizer of characters is made of all files, so they are mapped first. */
    if (is_text) {
        TRMI_TRY(need_tokenizer(o, err));
    }
    TRMI_TRY(settle_vocabulary(o, err));
    for (int64_t i = 0; i < s->files.count; i++) {
        trmi_text_file *f = &s->files.files[i];
        if (f->is_read) {
            TRMI_TRY(trmi_mapping_check(&f->mapping, kind->add(o, f, i, err), err));
        }
    }
    return TRM_OK;
}

/* Opens the files and makes the dataset. Encoded tokens are in memory, so their files are
 * closed. */
static trm_status open_dataset(const char *path, trm_usage usage, const trm_text_options *options,
                               const text_kind *kind, trm_dataset **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    opening o = {.options = options != NULL ? options : &no_options, .usage = usage};
    TRMI_TRY(TRMI_NEW(err, o.source, 1, "to open %s", path));
    o.source->base.ops = kind->ops;
    trm_status status = open_parts(&o, path, kind, err);
    free_documents(&o);
    if (status != TRM_OK) {
        trmi_token_source_destroy(&o.source->base);
        return status;
    }
    if (o.source->parts[0].owned != NULL) {
        trmi_text_files_close(&o.source->files);
    }
    return trmi_dataset_create(&o.source->base, out, err);
}

trm_status trm_dataset_tokens(const char *path, trm_usage usage, const trm_text_options *options,
                              trm_dataset **out, trm_error *err) {
    if (options != NULL && options->documents) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: ids have no documents: text or JSON lines expected for samples of "
                         "documents",
                         path != NULL ? path : "");
    }
    return open_dataset(path, usage, options, &tokens_kind, out, err);
}

trm_status trm_dataset_text(const char *path, trm_usage usage, const trm_text_options *options,
                            trm_dataset **out, trm_error *err) {
    const text_kind *kind = options != NULL && options->documents ? &text_lines_kind : &plain_kind;
    return open_dataset(path, usage, options, kind, out, err);
}

trm_status trm_dataset_json_lines(const char *path, trm_usage usage,
                                  const trm_text_options *options, trm_dataset **out,
                                  trm_error *err) {
    return open_dataset(path, usage, options, &lines_kind, out, err);
}
