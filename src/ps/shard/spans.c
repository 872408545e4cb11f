/* SPDX-License-Identifier: Apache-2.0 */
/* The samples whose gradients a shard has applied, as a sorted list of disjoint spans.
 * Neighbouring spans are merged, so that a job needs few of them. All spans belong to one book
 * of leases; a newer book starts an empty list. */
#include "ps/shard/shard.h"

#include "base/checked.h"
#include "base/error.h"

/* Returns the index of the first span that ends at or after `position` (binary search). */
static int64_t first_span(const trmi_shard *shard, int64_t position) {
    int64_t low = 0, high = shard->span_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (shard->spans[middle].end < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Contract in shard.h. A push is new, applied before, or overlaps in part, which is an error. */
trm_status trmi_spans_check(const trmi_shard *shard, const trmi_push_mark *m, trm_error *err) {
    if (m->begin == m->end || m->book > shard->book) {
        return TRM_OK;
    }
    if (m->book < shard->book) {
        return TRM_END; /* a worker of an earlier book */
    }
    int64_t i = first_span(shard, m->begin + 1);
    if (i == shard->span_count || shard->spans[i].begin >= m->end) {
        return TRM_OK;
    }
    const trmi_span *s = &shard->spans[i];
    if (s->begin <= m->begin && m->end <= s->end) {
        return TRM_END;
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "a push of samples %lld to %lld, but %lld to %lld have been pushed before: "
                     "workers of one job use one batch size",
                     (long long)m->begin, (long long)m->end, (long long)s->begin,
                     (long long)s->end);
}

/* Makes room for one more span within the budget. */
static bool reserve_spans(trmi_shard *shard) {
    if (shard->span_count < shard->span_capacity) {
        return true;
    }
    int64_t capacity = trmi_max_i64(16, 2 * shard->span_capacity);
    trmi_span *larger = trmi_account_alloc(&shard->account, (size_t)capacity * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    if (shard->span_count > 0) {
        memcpy(larger, shard->spans, (size_t)shard->span_count * sizeof *larger);
    }
    trmi_account_free(&shard->account, shard->spans, (size_t)shard->span_capacity * sizeof *larger);
    shard->spans = larger;
    shard->span_capacity = capacity;
    return true;
}

/* Contract in shard.h. */
trm_status trmi_spans_add(trmi_shard *shard, const trmi_push_mark *m, trm_error *err) {
    if (m->begin >= m->end || m->book < shard->book) {
        return TRM_OK;
    }
    /* samples of a new book are other samples: the old spans are void */
    if (m->book > shard->book) {
        shard->book = m->book;
        shard->span_count = 0;
    }
    /* merge with all spans that it touches */
    int64_t first = first_span(shard, m->begin), last = first;
    trmi_span sum = {m->begin, m->end};
    while (last < shard->span_count && shard->spans[last].begin <= sum.end) {
        sum.begin = trmi_min_i64(sum.begin, shard->spans[last].begin);
        sum.end = trmi_max_i64(sum.end, shard->spans[last].end);
        last++;
    }
    /* one span takes the place of those that it was merged with */
    if (first == last && !reserve_spans(shard)) {
        return TRMI_FAIL(err, TRM_NOMEM, "shard %u: the budget has no room for a list of samples",
                         shard->number);
    }
    memmove(shard->spans + first + 1, shard->spans + last,
            (size_t)(shard->span_count - last) * sizeof *shard->spans);
    shard->spans[first] = sum;
    shard->span_count += 1 - (last - first);
    return TRM_OK;
}
