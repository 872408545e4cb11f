/* SPDX-License-Identifier: Apache-2.0 */
/* Learns byte-level BPE, with the result of the `tokenizers` package's BpeTrainer.
 *
 *   files --> lines --> pieces --> distinct words with their counts, as symbols
 *                                        |
 *      heap of (count, pair, words) --> merge the first pair in its words --> changed counts, new pairs
 *
 * The most frequent pair is merged, of equal ones that with the smaller ids. Counts in the heap may
 * be out of date: an entry is then put back with the present count. As in the package, the count of
 * a pair stays when it is merged, and a pair that comes up again merges once more, in its new
 * words, and takes its last place in the order. */
#include "data/text/tokenizer.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/mapping.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* A distinct piece of the text. */
typedef struct word {
    const char *text; /* in the arena */
    int32_t *symbols; /* ids; merged pairs become one */
    uint32_t bytes, symbol_count;
    int64_t count; /* in the files */
} word;

/* A pair of symbols, and the words in which it came up since its entries were put into the heap. */
typedef struct pair {
    int32_t left, right;
    int64_t count;
    int64_t merge; /* index of its merge, -1: none */
    int32_t *words;
    int64_t word_count, word_capacity;
    bool changed; /* is in trainer.changed */
} pair;

/* An entry of the heap: it owns `words`. */
typedef struct candidate {
    int64_t count;
    int64_t pair; /* index */
    int32_t *words;
    int64_t word_count;
} candidate;

/* The state of one training. */
typedef struct trainer {
    const trm_tokenizer_options *options;
    trmi_arena arena;
    word *words;
    int64_t word_count, word_capacity;
    trmi_hash_index word_index;
    pair *pairs;
    int64_t pair_count, pair_capacity;
    trmi_hash_index pair_index;
    /* indices of pairs whose count has changed since their last entry in the heap */
    int64_t *changed; /* pairs with new words */
    int64_t changed_count, changed_capacity;
    candidate *heap; /* largest count first */
    int64_t heap_count, heap_capacity;
    trm_tokenizer *t;         /* what is made; the caller's when it is complete */
    int64_t token_count;      /* tokens of `t` so far */
    trmi_token_merge *merges; /* result -1: made again later */
    int64_t merge_count, merge_capacity;
} trainer;

/* ---- words ---- */

/* Counts a piece of the text. */
static trm_status add_word(trainer *tr, const char *text, size_t bytes, trm_error *err) {
    uint64_t hash = XXH3_64bits(text, bytes), probe = 0;
    int64_t i;
    /* Find the word among those with the same hash. */
    while ((i = trmi_hash_index_next(&tr->word_index, hash, &probe)) >= 0 &&
           (tr->words[i].bytes != bytes || memcmp(tr->words[i].text, text, bytes) != 0)) {
    }
    if (i >= 0) {
        tr->words[i].count++;
        return TRM_OK;
    }
    if (bytes > INT32_MAX || tr->word_count >= INT32_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a word of %zu bytes, or more than 2^31 distinct words: too long a text",
                         bytes);
    }
    /* a new word */
    char *copy;
    TRMI_TRY(TRMI_NEW_IN(err, &tr->arena, copy, bytes, "for the words of a text"));
    TRMI_TRY(TRMI_GROW(err, tr->words, tr->word_capacity, tr->word_count + 1,
                       "for the words of a text"));
    memcpy(copy, text, bytes);
    tr->words[tr->word_count] = (word){.text = copy, .bytes = (uint32_t)bytes, .count = 1};
    return trmi_hash_index_add(&tr->word_index, hash, tr->word_count++)
               ? TRM_OK
               : TRMI_NO_MEMORY(err, "for the words of a text");
}

/* A line ends after its \n: the package splits each line for itself. */
static trm_status add_text(trainer *tr, const char *text, size_t bytes, trm_error *err) {
    for (size_t at = 0; at < bytes;) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - text) + 1 : bytes;
        while (at < end) {
            size_t length = trmi_split_next(TRMI_SPLIT_GPT2, text + at, end - at);
            TRMI_TRY(add_word(tr, text + at, length, err));
            at += length;
        }
    }
    return TRM_OK;
}

/* Counts the pieces of all files. */
static trm_status read_files(trainer *tr, const char *const *paths, int32_t count, trm_error *err) {
    for (int32_t i = 0; i < count; i++) {
        trmi_mapping mapping;
        TRMI_TRY(trmi_mapping_open(paths[i], &mapping, err));
        trm_status status =
            mapping.bytes == 0
                ? TRMI_FAIL(err, TRM_CORRUPT, "%s: an empty file; text expected", paths[i])
                : add_text(tr, (const char *)mapping.data, mapping.bytes, err);
        status = trmi_mapping_check(&mapping, status, err);
        trmi_mapping_close(&mapping);
        TRMI_TRY(status);
    }
    return TRM_OK;
}

/* ---- the first tokens ---- */

/* Finds or adds the token of a text. */
static trm_status add_token(trainer *tr, const char *text, bool plain, int32_t *id,
                            trm_error *err) {
    *id = trm_tokenizer_find(tr->t, text);
    if (*id >= 0) {
        return TRM_OK;
    }
    *id = (int32_t)tr->token_count;
    return trmi_tokenizer_set(tr->t, (int32_t)tr->token_count++, text, plain, err);
}

/* Gives the special tokens the first ids. */
static trm_status add_special_tokens(trainer *tr, trm_error *err) {
    const trm_tokenizer_options *o = tr->options;
    json_t *list = json_object_get(tr->t->settings, "added_tokens");
    TRMI_TRY(TRMI_NEW_IN(err, &tr->t->arena, tr->t->added, o->special_count, "for special tokens"));
    for (int32_t i = 0; i < o->special_count; i++) {
        int32_t id;
        const char *text = o->special_tokens[i];
        if (text == NULL || text[0] == '\0' || trm_tokenizer_find(tr->t, text) >= 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "special token %d: '%.60s' is empty or there twice; leave it out",
                             (int)i, text != NULL ? text : "");
        }
        TRMI_TRY(add_token(tr, text, true, &id, err));
        tr->t->added[tr->t->added_count++] =
            (trmi_added_token){.text = tr->t->tokens[id].text, .bytes = strlen(text), .id = id};
        json_t *entry =
            json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", text,
                      "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
        if (json_array_append_new(list, entry) != 0) {
            return TRMI_FAIL(err, TRM_INVALID, "special token '%.60s' is not UTF-8", text);
        }
    }
    return TRM_OK;
}

/* Adds all 256 bytes, in the order of the characters that spell them. */
static trm_status add_bytes(trainer *tr, trm_error *err) {
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 256; i++) {
            char byte = (char)i, text[5];
            size_t length = trmi_bytes_to_text(&byte, 1, text);
            text[length] = '\0';
            /* those of U+0100 onwards, which take two bytes from 0xC4 on, come last */
            bool itself = length == 1 || (unsigned char)text[0] < 0xC4;
            if (itself == (round == 0)) {
                TRMI_TRY(add_token(tr, text, false, &tr->t->byte_ids[i], err));
            }
        }
    }
    return TRM_OK;
}

/* Writes the words as tokens of bytes. */
static trm_status set_symbols(trainer *tr, trm_error *err) {
    for (int64_t w = 0; w < tr->word_count; w++) {
        word *at = &tr->words[w];
        TRMI_TRY(TRMI_NEW_IN(err, &tr->arena, at->symbols, at->bytes, "for the words of a text"));
        at->symbol_count = at->bytes;
        for (uint32_t i = 0; i < at->bytes; i++) {
            at->symbols[i] = tr->t->byte_ids[(unsigned char)at->text[i]];
        }
    }
    return TRM_OK;
}

/* ---- pairs ---- */

/* Finds or adds a pair. */
static trm_status find_pair(trainer *tr, int32_t left, int32_t right, pair **out, trm_error *err) {
    uint64_t hash =
                 ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9E3779B97F4A7C15),
             probe = 0;
    int64_t i;
    while ((i = trmi_hash_index_next(&tr->pair_index, hash, &probe)) >= 0 &&
           (tr->pairs[i].left != left || tr->pairs[i].right != right)) {
    }
    if (i < 0) {
        i = tr->pair_count;
        TRMI_TRY(TRMI_GROW(err, tr->pairs, tr->pair_capacity, i + 1, "for pairs of tokens"));
        if (!trmi_hash_index_add(&tr->pair_index, hash, i)) {
            return TRMI_NO_MEMORY(err, "for pairs of tokens");
        }
        tr->pairs[i] = (pair){.left = left, .right = right, .merge = -1};
        tr->pair_count++;
    }
    *out = &tr->pairs[i];
    return TRM_OK;
}

/* Counts a pair that has come into a word (sign > 0) or has left it (sign < 0). */
static trm_status change_pair(trainer *tr, int32_t left, int32_t right, int32_t in, int64_t sign,
                              trm_error *err) {
    pair *p;
    TRMI_TRY(find_pair(tr, left, right, &p, err));
    p->count += sign * tr->words[in].count;
    if (sign < 0 || (p->word_count > 0 && p->words[p->word_count - 1] == in)) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_GROW(err, p->words, p->word_capacity, p->word_count + 1,
                       "for the words of a pair of tokens"));
    p->words[p->word_count++] = in;
    if (!p->changed) {
        TRMI_TRY(TRMI_GROW(err, tr->changed, tr->changed_capacity, tr->changed_count + 1,
                           "for pairs of tokens"));
        tr->changed[tr->changed_count++] = p - tr->pairs;
        p->changed = true;
    }
    return TRM_OK;
}

/* Returns whether `a` is merged before `b`: the more frequent pair; of equal ones the smaller. */
static bool is_before(const trainer *tr, const candidate *a, const candidate *b) {
    const pair *p = &tr->pairs[a->pair], *q = &tr->pairs[b->pair];
    return a->count != b->count ? a->count > b->count
           : p->left != q->left ? p->left < q->left
                                : p->right < q->right;
}

/* Adds an entry to the heap. */
static trm_status push_candidate(trainer *tr, candidate entry, trm_error *err) {
    TRMI_TRY(
        TRMI_GROW(err, tr->heap, tr->heap_capacity, tr->heap_count + 1, "for pairs of tokens"));
    int64_t at = tr->heap_count++;
    while (at > 0 && is_before(tr, &entry, &tr->heap[(at - 1) / 2])) {
        tr->heap[at] = tr->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    tr->heap[at] = entry;
    return TRM_OK;
}

/* Takes the entry that is merged first. */
static candidate pop_candidate(trainer *tr) {
    candidate first = tr->heap[0], last = tr->heap[--tr->heap_count];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < tr->heap_count) {
        child +=
            child + 1 < tr->heap_count && is_before(tr, &tr->heap[child + 1], &tr->heap[child]);
        if (!is_before(tr, &tr->heap[child], &last)) {
            break;
        }
        tr->heap[at] = tr->heap[child];
        at = child;
    }
    tr->heap[at] = last;
    return first;
}

/* Pairs with new words become candidates. */
static trm_status offer_changed(trainer *tr, trm_error *err) {
    for (int64_t i = 0; i < tr->changed_count; i++) {
        pair *p = &tr->pairs[tr->changed[i]];
        candidate entry = {p->count, tr->changed[i], p->words, p->word_count};
        p->changed = false;
        p->words = NULL;
        p->word_count = p->word_capacity = 0;
        trm_status status = p->count > 0 ? push_candidate(tr, entry, err) : TRM_OK;
        if (p->count <= 0 || status != TRM_OK) {
            trmi_free(entry.words);
        }
        TRMI_TRY(status);
    }
    tr->changed_count = 0;
    return TRM_OK;
}

/* Counts the pairs of all words and makes them candidates. */
static trm_status count_pairs(trainer *tr, trm_error *err) {
    for (int64_t w = 0; w < tr->word_count; w++) {
        const word *at = &tr->words[w];
        for (uint32_t i = 0; i + 1 < at->symbol_count; i++) {
            TRMI_TRY(change_pair(tr, at->symbols[i], at->symbols[i + 1], (int32_t)w, 1, err));
        }
    }
    return offer_changed(tr, err);
}

/* ---- merges ---- */

/* Replaces the pair in a word. */
static trm_status merge_word(trainer *tr, int32_t in, const trmi_token_merge *m, trm_error *err) {
    word *w = &tr->words[in];
    int32_t *s = w->symbols;
    uint32_t to = 0;
    for (uint32_t from = 0; from < w->symbol_count; to++) {
        if (from + 1 == w->symbol_count || s[from] != m->left || s[from + 1] != m->right) {
            s[to] = s[from++];
            continue;
        }
        /* The pairs with both neighbours change their left or right symbol. */
        if (to > 0) {
            TRMI_TRY(change_pair(tr, s[to - 1], m->left, in, -1, err));
            TRMI_TRY(change_pair(tr, s[to - 1], m->result, in, 1, err));
        }
        from += 2;
        if (from < w->symbol_count) {
            TRMI_TRY(change_pair(tr, m->right, s[from], in, -1, err));
            TRMI_TRY(change_pair(tr, m->result, s[from], in, 1, err));
        }
        /* Write the result to the place of the pair. */
        s[to] = m->result;
    }
    w->symbol_count = to;
    return TRM_OK;
}

/* Makes the token of a pair, a new one unless other tokens make the same text. */
static trm_status make_token(trainer *tr, const pair *p, int32_t *id, trm_error *err) {
    const char *left = tr->t->tokens[p->left].text, *right = tr->t->tokens[p->right].text;
    size_t length = strlen(left), rest = strlen(right);
    char *text;
    TRMI_TRY(TRMI_NEW(err, text, length + rest + 1, "for a token"));
    memcpy(text, left, length);
    memcpy(text + length, right, rest);
    trm_status status = add_token(tr, text, false, id, err);
    trmi_free(text);
    return status;
}

/* Makes the merge of a candidate, in its words. */
static trm_status merge_pair(trainer *tr, const candidate *top, trm_error *err) {
    pair *p = &tr->pairs[top->pair];
    int32_t id;
    TRMI_TRY(make_token(tr, p, &id, err));
    TRMI_TRY(TRMI_GROW(err, tr->merges, tr->merge_capacity, tr->merge_count + 1, "for merges"));
    if (p->merge >= 0) {
        tr->merges[p->merge].result = -1;
    }
    p->merge = tr->merge_count;
    const trmi_token_merge merge = {p->left, p->right, id};
    tr->merges[tr->merge_count++] = merge;
    for (int64_t i = 0; i < top->word_count; i++) {
        TRMI_TRY(merge_word(tr, top->words[i], &merge, err));
    }
    return offer_changed(tr, err);
}

/* Merges until the vocabulary is full or no pair comes often enough. */
static trm_status merge_all(trainer *tr, trm_error *err) {
    int64_t least = tr->options->min_count > 0 ? tr->options->min_count : 2;
    while (tr->token_count < tr->options->vocabulary && tr->heap_count > 0) {
        candidate top = pop_candidate(tr);
        int64_t count = tr->pairs[top.pair].count;
        bool stale = top.count != count;
        trm_status status = TRM_OK;
        /* Counts fall as other pairs are merged. A candidate whose count is old goes back with the
         * new one; the top with a right count is the most frequent pair. */
        if (stale) {
            top.count = count;
            status = push_candidate(tr, top, err);
        } else if (count >= least) {
            status = merge_pair(tr, &top, err);
        }
        if (!stale || status != TRM_OK) {
            trmi_free(top.words);
        }
        TRMI_TRY(status);
        if (!stale && count < least) {
            break;
        }
    }
    return TRM_OK;
}

/* Gives the tokenizer the merges that were not made again later. */
static trm_status keep_merges(trainer *tr, trm_error *err) {
    trm_tokenizer *t = tr->t;
    t->vocabulary = tr->token_count;
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->merges, tr->merge_count, "for merges"));
    for (int64_t i = 0; i < tr->merge_count; i++) {
        if (tr->merges[i].result >= 0) {
            t->merges[t->merge_count++] = tr->merges[i];
        }
    }
    return trmi_tokenizer_index(t, err);
}

/* ---- training ---- */

/* Reads the files, then merges. */
static trm_status train_tokenizer(trainer *tr, const char *const *paths, int32_t count,
                                  trm_error *err) {
    const trm_tokenizer_options *o = tr->options;
    int64_t least = 256 + (int64_t)o->special_count;
    if (o->vocabulary < least || o->vocabulary > 1 << 24 || o->special_count < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a vocabulary of %lld tokens: %lld (256 bytes and %d special tokens) to "
                         "16777216 expected",
                         (long long)o->vocabulary, (long long)least, (int)o->special_count);
    }
    TRMI_TRY(trmi_tokenizer_new(&tr->t, err));
    tr->t->style = TRMI_SPLIT_GPT2;
    tr->t->settings = trmi_tokenizer_settings(false);
    if (tr->t->settings == NULL) {
        return TRMI_NO_MEMORY(err, "for a tokenizer");
    }
    TRMI_TRY(trmi_tokenizer_reserve(tr->t, o->vocabulary, err));
    /* Count the words; ids 0 and up are special tokens, then the 256 bytes, then merges. */
    TRMI_TRY(read_files(tr, paths, count, err));
    TRMI_TRY(add_special_tokens(tr, err));
    TRMI_TRY(add_bytes(tr, err));
    TRMI_TRY(set_symbols(tr, err));
    TRMI_TRY(count_pairs(tr, err));
    TRMI_TRY(merge_all(tr, err));
    return keep_merges(tr, err);
}

/* Frees everything but the tokenizer. */
static void free_trainer(trainer *tr) {
    for (int64_t i = 0; i < tr->pair_count; i++) {
        trmi_free(tr->pairs[i].words);
    }
    for (int64_t i = 0; i < tr->heap_count; i++) {
        trmi_free(tr->heap[i].words);
    }
    trmi_hash_index_free(&tr->word_index);
    trmi_hash_index_free(&tr->pair_index);
    trmi_free(tr->words);
    trmi_free(tr->pairs);
    trmi_free(tr->changed);
    trmi_free(tr->heap);
    trmi_free(tr->merges);
    trmi_arena_free(&tr->arena);
}

trm_status trm_tokenizer_train(const char *const *paths, int32_t count,
                               const trm_tokenizer_options *options, trm_tokenizer **out,
                               trm_error *err) {
    TRMI_NEED(err, paths, options, out);
    trainer tr = {.options = options};
    trm_status status = train_tokenizer(&tr, paths, count, err);
    if (status == TRM_OK) {
        *out = tr.t;
    } else {
        trm_tokenizer_destroy(tr.t);
    }
    free_trainer(&tr);
    return status;
}
