/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of categorical values: unbounded hashes, the hashing trick (buckets), or ids of a
 * vocabulary. Readers of click data call trmi_key_of_text or trmi_key_of_number for each value;
 * `trireme data vocabulary` counts values and numbers them. Key 0 of bounded keys means a missing
 * or unknown value. A vocabulary file is text:
 *
 *   trireme-vocabulary 1 FIELDS SEED
 *   FIELD HASH        (one line for each value, in the order of the ids)
 */
#include "base/arguments.h"
#include "base/error.h"
#include "base/hash/hash_index.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/click/click.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* limits of a vocabulary and of its file */
enum { FIELDS_MAX = 1 << 16, FILE_BYTES_MAX = 1 << 30 };

/* Mixes 8 bytes at a time, in little-endian order on every machine. */
uint64_t trmi_key_hash(uint64_t seed, int32_t field, const void *text, size_t bytes) {
    uint64_t hash = trmi_mix(seed, (uint64_t)field);
    const uint8_t *at = text;
    size_t left = bytes;
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word = 0;
        for (int i = 7; i >= 0; i--) {
            word = word << 8 | at[i];
        }
        hash = trmi_mix(hash, word);
    }
    /* The rest, filled up with zeros. */
    uint64_t word = 0;
    for (size_t i = left; i > 0; i--) {
        word = word << 8 | at[i - 1];
    }
    /* With the length, "a" and "a\0" have different hashes. */
    return trmi_mix(trmi_mix(hash, word), (uint64_t)bytes);
}

/* One value of a vocabulary. */
typedef struct vocabulary_word {
    uint64_t hash;     /* unbounded key of the value */
    int64_t count, id; /* id 0: not numbered yet */
    int32_t field;     /* in which it occurs */
} vocabulary_word;

/* A vocabulary. Words are kept by their hash, not by their text: a hash is what a reader makes of a
 * value anyway, and has 8 bytes. */
struct trm_vocabulary {
    int32_t fields; /* number of fields */
    uint64_t seed;  /* of the hashes */
    int64_t *rows;  /* [fields] number of ids, including 0 */
    /* [fields] sum of the rows of the fields before */
    int64_t *base;
    vocabulary_word *words;            /* in order of appearance, later of ids */
    int64_t word_count, word_capacity; /* length and capacity of `words` */
    trmi_hash_index by_word;           /* finds a value by hash and field */
};

/* Returns the unbounded key of a hash: its upper 63 bits, because keys are not negative. */
static int64_t make_unbounded(uint64_t hash) { return (int64_t)(hash >> 1); }

/* Returns the bucket of a hash. Bucket 0 is left to missing values, so there are two at least. */
static int64_t choose_bucket(const trmi_keyer *keyer, uint64_t hash) {
    return 1 + (int64_t)(hash % (uint64_t)(keyer->buckets - 1));
}

/* Returns the rows of all fields before this one. */
static int64_t count_rows_before(const trm_vocabulary *v, int32_t field) {
    return field < v->fields ? v->base[field] : 0;
}

/* Returns the key of an id: with a shared table, each field's ids have an offset. */
static int64_t make_bounded(const trmi_keyer *keyer, int32_t field, int64_t id) {
    if (!keyer->shared) {
        return id;
    }
    return id + (keyer->vocabulary != NULL ? count_rows_before(keyer->vocabulary, field)
                                           : field * keyer->buckets);
}

int64_t trmi_key_missing(const trmi_keyer *keyer, int32_t field) {
    field = trmi_keyed_as(keyer, field);
    if (keyer->buckets == 0 && keyer->vocabulary == NULL) {
        return make_unbounded(trmi_key_hash(keyer->seed, field, "", 0));
    }
    return make_bounded(keyer, field, 0);
}

/* Contract in click.h. With buckets the key is that of the hash, with a vocabulary the id of the
 * unbounded key. */
int64_t trmi_key_of_text(const trmi_keyer *keyer, int32_t field, const void *text, size_t bytes) {
    /* An empty text means missing. */
    if (bytes == 0) {
        return trmi_key_missing(keyer, field);
    }
    field = trmi_keyed_as(keyer, field);
    /* Hash the text; the key is the id of a vocabulary, the hash itself, or a bucket from 1 on. */
    uint64_t hash = trmi_key_hash(keyer->seed, field, text, bytes);
    if (keyer->vocabulary != NULL) {
        return make_bounded(
            keyer, field,
            trmi_vocabulary_id(keyer->vocabulary, field, (uint64_t)make_unbounded(hash)));
    }
    return keyer->buckets == 0 ? make_unbounded(hash)
                               : make_bounded(keyer, field, choose_bucket(keyer, hash));
}

int64_t trmi_key_of_number(const trmi_keyer *keyer, int32_t field, int64_t number) {
    field = trmi_keyed_as(keyer, field);
    /* A number in a vocabulary is its own hash. */
    if (keyer->vocabulary != NULL) {
        return make_bounded(keyer, field,
                            trmi_vocabulary_id(keyer->vocabulary, field, (uint64_t)number));
    }
    /* Unbounded: the number is the key. */
    if (keyer->buckets == 0) {
        return number;
    }
    uint64_t hash = trmi_mix(trmi_mix(keyer->seed, (uint64_t)field), (uint64_t)number);
    return make_bounded(keyer, field, choose_bucket(keyer, hash));
}

/* ---- vocabularies ---- */

trm_status trmi_vocabulary_create(int32_t fields, uint64_t seed, trm_vocabulary **out,
                                  trm_error *err) {
    trm_vocabulary *v = trmi_alloc(sizeof *v);
    if (v != NULL) {
        v->fields = fields;
        v->seed = seed;
        v->rows = trmi_alloc((size_t)fields * sizeof *v->rows);
        v->base = trmi_alloc((size_t)fields * sizeof *v->base);
    }
    if (v == NULL || v->rows == NULL || v->base == NULL) {
        trm_vocabulary_destroy(v);
        return TRMI_NO_MEMORY(err, "for a vocabulary");
    }
    *out = v;
    return TRM_OK;
}

void trm_vocabulary_destroy(trm_vocabulary *vocabulary) {
    if (vocabulary == NULL) {
        return;
    }
    trmi_free(vocabulary->rows);
    trmi_free(vocabulary->base);
    trmi_hash_index_free(&vocabulary->by_word);
    trmi_free(vocabulary->words);
    trmi_free(vocabulary);
}

/* Returns the index of a value, -1 if it is not there. */
static int64_t find_word(const trm_vocabulary *v, int32_t field, uint64_t hash) {
    uint64_t probe = 0;
    int64_t i;
    do {
        i = trmi_hash_index_next(&v->by_word, trmi_mix(hash, (uint64_t)field), &probe);
    } while (i >= 0 && (v->words[i].hash != hash || v->words[i].field != field));
    return i;
}

/* Adds a value to the hash index. Returns false without memory. */
static bool index_word(trm_vocabulary *v, int64_t i) {
    const vocabulary_word *w = &v->words[i];
    return trmi_hash_index_add(&v->by_word, trmi_mix(w->hash, (uint64_t)w->field), i);
}

/* Contract in click.h. All values are kept while they are counted, and the rare ones are dropped by
 * trmi_vocabulary_number. */
bool trmi_vocabulary_count(trm_vocabulary *v, int32_t field, uint64_t hash) {
    int64_t i = find_word(v, field, hash);
    if (i >= 0) {
        v->words[i].count++;
        return true;
    }
    /* Enter a new value. */
    if (!trmi_grow((void **)&v->words, &v->word_capacity, v->word_count + 1, sizeof *v->words)) {
        return false;
    }
    v->words[v->word_count] = (vocabulary_word){.hash = hash, .count = 1, .field = field};
    if (!index_word(v, v->word_count)) {
        return false;
    }
    v->word_count++;
    return true;
}

/* Contract in click.h. Ids follow the order in which values came, so the same data give the same
 * ids. */
trm_status trmi_vocabulary_number(trm_vocabulary *v, int64_t min_count, trm_error *err) {
    /* Id 0 of each field means unknown. */
    for (int32_t f = 0; f < v->fields; f++) {
        v->rows[f] = 1;
    }
    int64_t kept = 0;
    /* Keep the frequent values, number them, and index them again. */
    for (int64_t i = 0; i < v->word_count; i++) {
        if (v->words[i].count >= min_count) {
            v->words[kept] = v->words[i];
            v->words[kept].id = v->rows[v->words[kept].field]++;
            kept++;
        }
    }
    v->word_count = kept;
    trmi_hash_index_clear(&v->by_word);
    for (int64_t i = 0; i < kept; i++) {
        if (find_word(v, v->words[i].field, v->words[i].hash) >= 0) {
            return TRMI_FAIL(err, TRM_CORRUPT, "vocabulary: word %lld comes twice", (long long)i);
        }
        if (!index_word(v, i)) {
            return TRMI_NO_MEMORY(err, "for a vocabulary");
        }
    }
    /* The first row of each field in a shared table. */
    for (int32_t f = 1; f < v->fields; f++) {
        v->base[f] = v->base[f - 1] + v->rows[f - 1];
    }
    return TRM_OK;
}

int64_t trmi_vocabulary_id(const trm_vocabulary *v, int32_t field, uint64_t hash) {
    int64_t i = field < v->fields ? find_word(v, field, hash) : -1;
    return i < 0 ? 0 : v->words[i].id;
}

uint64_t trmi_vocabulary_seed(const trm_vocabulary *v) { return v->seed; }

int32_t trm_vocabulary_fields(const trm_vocabulary *vocabulary) {
    TRMI_NEED_OR(0, NULL, vocabulary);
    return vocabulary->fields;
}

int64_t trm_vocabulary_rows(const trm_vocabulary *vocabulary, int32_t field) {
    TRMI_NEED_OR(0, NULL, vocabulary);
    return field >= 0 && field < vocabulary->fields ? vocabulary->rows[field] : 0;
}

trm_status trm_vocabulary_save(const trm_vocabulary *vocabulary, const char *path, trm_error *err) {
    TRMI_NEED(err, vocabulary, path);
    /* Write one line for each value; ids follow from the order. */
    trmi_text text = {0};
    trmi_text_printf(&text, "trireme-vocabulary 1 %d %llu\n", (int)vocabulary->fields,
                     (unsigned long long)vocabulary->seed);
    for (int64_t i = 0; i < vocabulary->word_count; i++) {
        trmi_text_printf(&text, "%d %016llx\n", (int)vocabulary->words[i].field,
                         (unsigned long long)vocabulary->words[i].hash);
    }
    trm_status status = text.failed ? TRMI_NO_MEMORY(err, "to write %s", path)
                                    : trmi_os_replace_file(NULL, path, text.data, text.length, err);
    trmi_text_free(&text);
    return status;
}

/* Reads the lines of a vocabulary file. A duplicate value is an error. */
static trm_status parse_words(trm_vocabulary *v, const char *path, const char *at, trm_error *err) {
    for (int64_t line = 2; *at != '\0'; line++) {
        char *end;
        long field = strtol(at, &end, 10);
        unsigned long long hash = *end == ' ' ? strtoull(end + 1, &end, 16) : 0;
        if (*end != '\n' || field < 0 || field >= v->fields) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld: 'field hash' expected", path,
                             (long long)line);
        }
        int64_t before = v->word_count;
        if (!trmi_vocabulary_count(v, (int32_t)field, hash)) {
            return TRMI_NO_MEMORY(err, "for the vocabulary %s", path);
        }
        if (v->word_count == before) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld: the same value again", path,
                             (long long)line);
        }
        at = end + 1;
    }
    return TRM_OK;
}

/* Contract in trireme/data.h. Numbers in the first line have a bounded length, so sscanf cannot
 * overflow. */
trm_status trm_vocabulary_load(const char *path, trm_vocabulary **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    uint8_t *bytes;
    size_t length;
    TRMI_TRY(trmi_os_read_file(path, FILE_BYTES_MAX, &bytes, &length, err));
    const char *text = (const char *)bytes;
    int fields = 0, consumed = 0;
    unsigned long long seed = 0;
    trm_vocabulary *v = NULL;
    trm_status status;
    /* Read the first line and the values; their order gives the ids. */
    if (strlen(text) != length ||
        sscanf(text, "trireme-vocabulary 1 %7d %20llu%n", &fields, &seed, &consumed) != 2 ||
        text[consumed] != '\n' || fields < 1 || fields > FIELDS_MAX) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: not a vocabulary of trireme", path);
    } else {
        status = trmi_vocabulary_create(fields, seed, &v, err);
    }
    if (status == TRM_OK) {
        status = parse_words(v, path, text + consumed + 1, err);
    }
    if (status == TRM_OK) {
        status = trmi_vocabulary_number(v, 1, err);
    }
    trmi_free(bytes);
    if (status != TRM_OK) {
        trm_vocabulary_destroy(v);
        return status;
    }
    *out = v;
    return TRM_OK;
}
