/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/token_source.h: a source of samples over parts of files, each a sequence of tokens.
 *
 *   part 0   [ sample 0 | sample 1 | ... ]         a window of context + 1 tokens: the last target of
 *   part 1   [ sample k | ...        tail ]        one sample is the first token of the next. Masked
 *                                                  samples: of context tokens
 *   by documents: each is a sequence of its own, whose last window may be shorter (spans)
 *   boundary tokens: [CLS] and [SEP] stand around the window in its row, which has room for two
 *   less
 *
 * Tokens lie in a mapped file (ids, bytes or characters) or in memory (text that was encoded).
 */
#ifndef TRMI_DATA_TOKEN_SOURCE_H
#define TRMI_DATA_TOKEN_SOURCE_H

#include "trireme/data.h"

#include "base/mapping.h"
#include "data/pipeline/source.h"
#include "data/text/text_files.h"

/* The target that no loss counts (as PyTorch has it); characters from one known position in a file
 * of characters to the next. */
enum { TRMI_TOKEN_IGNORED = -100, TRMI_CHARACTERS_STEP = 1024 };

/* How tokens lie in memory. */
typedef enum trmi_token_form {
    TRMI_TOKENS_UINT16, /* little-endian */
    TRMI_TOKENS_INT32,
    TRMI_TOKENS_BYTES,     /* each is its own id */
    TRMI_TOKENS_CHARACTERS /* UTF-8, by the tokenizer */
} trmi_token_form;

/* A window that is a sample. */
typedef struct trmi_token_span {
    int64_t begin, count; /* tokens of the part, without the last target */
} trmi_token_span;

/* Windows of the documents of a part. Starts as {0}. */
typedef struct trmi_token_spans {
    trmi_token_span *items;
    int64_t count, capacity;
} trmi_token_spans;

/* A file, or a part of it, as one sequence of tokens or one for each document. */
typedef struct trmi_token_part {
    const char *name; /* of the file */
    trmi_token_form form;
    const uint8_t *data;
    size_t bytes;
    int64_t offset;         /* of `data` in the file */
    int64_t count;          /* tokens */
    size_t *index;          /* characters: where each 1024th one begins */
    void *owned;            /* freed with the source */
    trmi_token_spans spans; /* freed with the source; none: windows from one end to the other */
    int64_t first_sample, samples;
    double text_bytes; /* of its tokens; 0: not known */
} trmi_token_part;

/* The source. Read only once all parts are added, so that prefetch threads share it. */
typedef struct trmi_token_source {
    trmi_source base;
    trmi_arena arena;
    trmi_text_files files;
    trm_tokenizer *tokenizer; /* NULL: none */
    bool reads_bytes;         /* ids are bytes */
    int64_t context, stride;
    int64_t window_tokens; /* the context, less the boundary tokens */
    bool bounded, by_documents;
    int32_t first_token, last_token; /* the boundary tokens */
    int32_t padding;                 /* token after the last one of a row */
    bool keeps_tail;                 /* a last, shorter window is a sample */
    const char *purpose;             /* " for training", for messages; "" = all of the files */
    double masking; /* share of the tokens that are targets; 0: the next tokens are */
    int32_t mask_token;
    bool fixed_masks; /* those of test parts do not depend on seed and epoch */
    trmi_token_part *parts;
    int64_t part_count, part_capacity;
} trmi_token_source;

/* Adds a part. Its file must be mapped as long as the source lives, or `owned`, which the source
 * takes over, on failure too, as the spans.   errors INVALID (shorter than context + 1), NOMEM */
trm_status trmi_token_part_add(trmi_token_source *source, const trmi_token_part *part,
                               trm_error *err);
/* Adds the windows of a document of tokens [begin, begin + count) to the spans of its part: one, or
 * several if it is longer than a sample.   errors NOMEM */
trm_status trmi_token_spans_add(const trmi_token_source *source, trmi_token_spans *spans,
                                int64_t begin, int64_t count, trm_error *err);
/* Returns the mean bytes of a token of the dataset's part, for bits per byte; 0 if unknown (ids
 * without a tokenizer). */
double trmi_dataset_token_bytes(const trm_dataset *dataset);
/* The kind of dataset, once its parts are there. */
extern const trmi_source_ops trmi_tokens_ops, trmi_text_ops, trmi_json_lines_ops;
/* Ends a source that did not become a dataset, too. */
void trmi_token_source_destroy(trmi_source *source);

#endif
