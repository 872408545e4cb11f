/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of new keys: a table that would give a row to every key that is seen once would be full
 * of rows that are never trained again. Three rules decide: exact counts in sets of 8, a counting
 * Bloom filter, or a random choice (contracts in admit.h). Memory is taken once; a table under
 * pressure (`level`) requires more occurrences. */
#include "ps/table/admit.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/rng.h"

/* Sizes of the two counting rules. */
enum {
    WAYS = 8,          /* counted keys of one set */
    HASHES = 4,        /* counters of a key in the Bloom filter */
    COUNT_MAX = 255,   /* largest value of such a counter, and so of min_count */
    COUNTERS_A_KEY = 8 /* counters of the filter for each key of the capacity */
};
/* separates the random numbers of admission from others of the same seed */
static const uint64_t RANDOM_DOMAIN = 0xAD417;

/* Returns the bytes of the counters of a rule. */
static size_t count_state_bytes(const trmi_admitter *a) {
    switch (a->rule.kind) {
    case TRM_ADMIT_COUNT: return (size_t)a->size * WAYS * sizeof(trmi_counted_key);
    case TRM_ADMIT_BLOOM: return (size_t)a->size;
    default: return 0;
    }
}

int64_t trmi_admitter_bytes(const trmi_admitter *admitter) {
    return (int64_t)count_state_bytes(admitter);
}

void trmi_admission_defaults(trm_admission *rule) {
    rule->min_count = rule->min_count == 0 ? 2 : rule->min_count;
    rule->capacity = rule->capacity == 0 ? 1 << 20 : rule->capacity;
}

/* Checks a rule and fills in its defaults.
 *   errors  INVALID */
static trm_status check_rule(trm_admission *rule, const char *table, trm_error *err) {
    trmi_admission_defaults(rule);
    if (rule->kind < TRM_ADMIT_ALL || rule->kind > TRM_ADMIT_PROBABILITY) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%.40s': admission kind %d, %d to %d expected",
                         table, (int)rule->kind, TRM_ADMIT_ALL, TRM_ADMIT_PROBABILITY);
    }
    if (rule->min_count < 1 || rule->min_count > COUNT_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%.40s': min_count is %d, 1 to %d expected",
                         table, rule->min_count, COUNT_MAX);
    }
    if (rule->capacity < 1 || rule->capacity > (int64_t)1 << 36) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%.40s': admission capacity is %lld, 1 to 2^36 expected", table,
                         (long long)rule->capacity);
    }
    if (rule->kind == TRM_ADMIT_PROBABILITY && !(rule->probability > 0 && rule->probability <= 1)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%.40s': admission probability is %g, more than 0 and at most 1 "
                         "expected",
                         table, rule->probability);
    }
    return TRM_OK;
}

/* Contract in admit.h. Sizes are powers of two, so that a hash is reduced by a mask. */
trm_status trmi_admitter_init(trmi_admitter *admitter, trmi_account *account,
                              const trm_admission *rule, uint64_t seed, uint32_t shards,
                              const char *table, trm_error *err) {
    trmi_admitter a = {.account = account, .rule = *rule, .seed = seed, .size = 1};
    TRMI_TRY(check_rule(&a.rule, table, err));
    /* each shard has its part of the capacity */
    int64_t keys = (a.rule.capacity + shards - 1) / shards;
    int64_t wanted =
        a.rule.kind == TRM_ADMIT_BLOOM ? keys * COUNTERS_A_KEY : (keys + WAYS - 1) / WAYS;
    while (a.size < wanted) {
        a.size *= 2;
    }
    /* rules without counters (all, probability) need no memory */
    if (count_state_bytes(&a) > 0) {
        void *memory = trmi_account_alloc(account, count_state_bytes(&a));
        if (memory == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM,
                             "table '%.40s': admission needs %zu bytes, the budget has %lld left: "
                             "lower its capacity",
                             table, count_state_bytes(&a),
                             (long long)(account->limit - account->used));
        }
        a.waiting = a.rule.kind == TRM_ADMIT_COUNT ? memory : NULL;
        a.counters = a.rule.kind == TRM_ADMIT_BLOOM ? memory : NULL;
    }
    *admitter = a;
    return TRM_OK;
}

void trmi_admitter_free(trmi_admitter *admitter) {
    trmi_account_free(admitter->account, admitter->waiting, count_state_bytes(admitter));
    trmi_account_free(admitter->account, admitter->counters, count_state_bytes(admitter));
    admitter->waiting = NULL;
    admitter->counters = NULL;
}

/* Returns the place of a key in its set: its own, else a free one, else the one with the fewest
 * and oldest occurrences. */
static trmi_counted_key *find_waiting(trmi_admitter *a, uint64_t key) {
    uint64_t set = trmi_mix(trmi_key_hash(key), a->seed) & (uint64_t)(a->size - 1);
    trmi_counted_key *first = a->waiting + set * WAYS, *best = first;
    for (int i = 0; i < WAYS; i++) {
        trmi_counted_key *w = first + i;
        if (w->count > 0 && w->key == key) {
            return w;
        }
        bool worse = w->count < best->count || (w->count == best->count && w->tick < best->tick);
        best = worse ? w : best;
    }
    if (best->count > 0 && best->key != key) {
        *best = (trmi_counted_key){0};
    }
    return best;
}

/* Counts a key exactly, as long as its set has room; admits it at `needed` occurrences. */
static bool admit_by_count(trmi_admitter *a, uint64_t key, uint32_t tick, uint32_t needed) {
    trmi_counted_key *w = find_waiting(a, key);
    uint32_t count = w->count + 1;
    *w = count >= needed ? (trmi_counted_key){0} : (trmi_counted_key){key, tick, count};
    return count >= needed;
}

/* Computes the counters of a key. */
static void find_counters(const trmi_admitter *a, uint64_t key, uint64_t places[HASHES]) {
    uint64_t h = trmi_mix(trmi_key_hash(key), a->seed);
    uint64_t step = trmi_mix(h, 1) | 1;
    for (uint64_t i = 0; i < HASHES; i++) {
        places[i] = (h + i * step) & (uint64_t)(a->size - 1);
    }
}

/* Counts a key in a counting Bloom filter with conservative update: only the smallest counters
 * grow. Collisions may admit a key too early, never too late. */
static bool admit_by_bloom(trmi_admitter *a, uint64_t key, uint32_t needed) {
    uint64_t places[HASHES];
    find_counters(a, key, places);
    uint8_t smallest = COUNT_MAX;
    for (int i = 0; i < HASHES; i++) {
        uint8_t c = a->counters[places[i]];
        smallest = c < smallest ? c : smallest;
    }
    uint32_t count = (uint32_t)smallest + 1;
    for (int i = 0; i < HASHES && smallest < COUNT_MAX; i++) {
        if (a->counters[places[i]] == smallest) {
            a->counters[places[i]] = (uint8_t)count;
        }
    }
    return count >= needed;
}

/* Contract in admit.h. The random rule depends on seed, tick and key only, so that a replay
 * admits the same keys. */
bool trmi_admit(trmi_admitter *a, uint64_t key, uint32_t tick) {
    if (a->rule.kind == TRM_ADMIT_ALL && a->level == 0) {
        return true;
    }
    uint32_t needed = (uint32_t)a->rule.min_count << a->level;
    needed = needed > COUNT_MAX ? COUNT_MAX : needed;
    switch (a->rule.kind) {
    case TRM_ADMIT_COUNT: return admit_by_count(a, key, tick, needed);
    case TRM_ADMIT_BLOOM: return admit_by_bloom(a, key, needed);
    case TRM_ADMIT_PROBABILITY:
    case TRM_ADMIT_ALL: break;
    }
    double probability = a->rule.kind == TRM_ADMIT_ALL ? 1.0 : a->rule.probability;
    probability /= (double)(1u << a->level);
    uint32_t bits = trmi_random_u32(a->seed ^ RANDOM_DOMAIN, tick, key);
    return probability >= 1.0 || (double)bits * 0x1p-32 < probability;
}

void trmi_admitter_restore(trmi_admitter *a, const trmi_counted_key *entry) {
    if (a->rule.kind == TRM_ADMIT_COUNT && entry->count > 0) {
        *find_waiting(a, entry->key) = *entry;
    }
}
