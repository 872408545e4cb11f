/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collective_cases.h, for tests only: every collective x type x reduction x count x place,
 * with results computed from the definition. */
#ifndef TRMI_TESTS_COLLECTIVE_CASES_H
#define TRMI_TESTS_COLLECTIVE_CASES_H

#include "base/element.h"
#include "ranks.h"

typedef enum buffer_kind { BUFFER_PRIVATE, BUFFER_SHARED, BUFFER_KINDS } buffer_kind;

typedef struct case_run {
    trm_comm_options options;
    const int64_t *counts; /* ends with -1 */
    bool quick;            /* two types instead of eight */
    const char *address;   /* of this rank; NULL: as the bootstrap says */
    trm_bootstrap *boot;   /* the rank's own; NULL: one of context->job */
} case_run;

/* Small whole numbers, so that every sum is exact in every type. */
static inline int case_value(int rank, int64_t i, trm_reduction reduce, trm_dtype dtype) {
    unsigned mix = (unsigned)(rank * 31 + (int)(i % 1009) * 7 + (int)(i / 1009)) % 11;
    if (reduce == TRM_REDUCTION_PROD) {
        return mix % 3 == 0 ? 2 : 1;
    }
    return dtype == TRM_UINT8 ? (int)mix : (int)mix - 5;
}

/* The reduction of element i over all ranks, as stored. */
static inline void case_reduced(void *to, trm_dtype dtype, int64_t at, int size, int64_t i,
                                trm_reduction reduce) {
    int total = case_value(0, i, reduce, dtype);
    for (int r = 1; r < size; r++) {
        int next = case_value(r, i, reduce, dtype);
        switch (reduce) {
        case TRM_REDUCTION_PROD: total *= next; break;
        case TRM_REDUCTION_MAX: total = next > total ? next : total; break;
        case TRM_REDUCTION_MIN: total = next < total ? next : total; break;
        default: total += next;
        }
    }
    bool whole = dtype >= TRM_INT8;
    double value = total;
    if (reduce == TRM_REDUCTION_MEAN) {
        value = whole                  ? (double)(total / size)
                : dtype == TRM_FLOAT64 ? (double)total / size
                                       : (double)((float)total / (float)size);
    }
    trmi_element_set(to, dtype, at, value);
}

/* Length and place of rank r's block in the kinds with counts of their own. */
static inline int64_t case_block(int64_t count, int r) { return r % 3 == 1 ? 0 : count / (r + 1); }
static inline int64_t case_to(int64_t count, int from, int to) { /* all-to-allv */
    return (from + 2 * to) % 3 == 2 ? 0 : count / (from + to + 1);
}

/* The buffers of one rank, used by all its cases. */
typedef struct case_state {
    trm_comm *comm;
    int rank, size;
    char *send, *recv, *expected;
    int64_t capacity;    /* bytes of each buffer */
    buffer_kind buffers; /* where they lie */
} case_state;

/* One operation of a rank. */
typedef struct case_op {
    trm_collective c;
    int64_t counts[64], recv_counts[64]; /* that `c` points to, in kinds with counts */
    int64_t send_elements, recv_elements;
    int64_t result_at, result_elements; /* elements of recv that the operation writes */
} case_op;

/* Fills the caller's operation, its input and the expected result for one rank. */
static inline void case_prepare(case_state *s, case_op *op, trm_collective_kind kind,
                                trm_dtype dtype, trm_reduction reduce, int64_t count, int root,
                                bool in_place) {
    int n = s->size, me = s->rank;
    memset(op, 0, sizeof *op);
    op->c = (trm_collective){.kind = kind,
                             .dtype = dtype,
                             .reduce = reduce,
                             .count = count,
                             .root = root,
                             .send = s->send,
                             .recv = s->recv,
                             .tag = "case"};
    int64_t at = 0, my_at = 0, sum = 0;
    for (int r = 0; r < n; r++) {
        op->counts[r] = kind == TRM_ALLTOALLV ? case_to(count, me, r) : case_block(count, r);
        op->recv_counts[r] = case_to(count, r, me);
        my_at = r == me ? sum : my_at;
        sum += op->counts[r];
    }
    bool v = kind == TRM_ALLGATHERV || kind == TRM_REDUCE_SCATTERV || kind == TRM_ALLTOALLV;
    op->c.counts = v ? op->counts : NULL;
    op->c.recv_counts = kind == TRM_ALLTOALLV ? op->recv_counts : NULL;
    int64_t mine = v ? op->counts[me] : count, full = v ? sum : n * count;
    my_at = v ? my_at : me * count;
    bool is_root = me == root;
    int64_t send_at = 0; /* where in recv the input goes when in place */
    op->send_elements = mine, op->recv_elements = mine;
    switch (kind) {
    case TRM_ALLREDUCE:
        op->send_elements = op->recv_elements = count;
        for (int64_t i = 0; i < count; i++) {
            case_reduced(s->expected, dtype, i, n, i, reduce);
        }
        break;
    case TRM_REDUCE:
        op->send_elements = count, op->recv_elements = is_root ? count : 0;
        for (int64_t i = 0; i < op->recv_elements; i++) {
            case_reduced(s->expected, dtype, i, n, i, reduce);
        }
        break;
    case TRM_BROADCAST:
        op->send_elements = is_root ? count : 0, op->recv_elements = count;
        for (int64_t i = 0; i < count; i++) {
            trmi_element_set(s->expected, dtype, i, case_value(root, i, 0, dtype));
        }
        break;
    case TRM_ALLGATHER:
    case TRM_ALLGATHERV:
    case TRM_GATHER:
        op->recv_elements = kind == TRM_GATHER && !is_root ? 0 : full;
        send_at = kind == TRM_GATHER && !is_root ? 0 : my_at;
        for (int r = 0; r < n && op->recv_elements > 0; r++) {
            int64_t length = v ? op->counts[r] : count;
            for (int64_t i = 0; i < length; i++) {
                trmi_element_set(s->expected, dtype, at++, case_value(r, i, 0, dtype));
            }
        }
        break;
    case TRM_REDUCE_SCATTER:
    case TRM_REDUCE_SCATTERV:
        op->send_elements = full;
        op->result_at = in_place ? my_at : 0;
        for (int64_t i = 0; i < mine; i++) {
            case_reduced(s->expected, dtype, i, n, my_at + i, reduce);
        }
        break;
    case TRM_SCATTER:
        op->send_elements = is_root ? full : 0;
        op->result_at = in_place && is_root ? my_at : 0;
        for (int64_t i = 0; i < mine; i++) {
            trmi_element_set(s->expected, dtype, i, case_value(root, my_at + i, 0, dtype));
        }
        break;
    case TRM_ALLTOALL:
        op->send_elements = op->recv_elements = full;
        for (int r = 0; r < n; r++) {
            for (int64_t i = 0; i < count; i++) {
                trmi_element_set(s->expected, dtype, at++, case_value(r, me * count + i, 0, dtype));
            }
        }
        break;
    case TRM_ALLTOALLV:
        op->send_elements = full, op->recv_elements = 0;
        for (int r = 0; r < n; r++) {
            int64_t before = 0;
            for (int d = 0; d < me; d++) {
                before += case_to(count, r, d);
            }
            op->recv_elements += op->recv_counts[r];
            for (int64_t i = 0; i < op->recv_counts[r]; i++) {
                trmi_element_set(s->expected, dtype, at++, case_value(r, before + i, 0, dtype));
            }
        }
        break;
    default: break;
    }
    if (kind == TRM_BARRIER) {
        op->send_elements = op->recv_elements = 0;
    }
    op->result_elements = op->recv_elements;
    if (kind == TRM_REDUCE_SCATTER || kind == TRM_REDUCE_SCATTERV || kind == TRM_SCATTER) {
        op->result_elements = mine;
    }
    memset(s->recv, 0x5A, (size_t)s->capacity);
    char *input = s->send;
    if (in_place) {
        input = s->recv + send_at * (int64_t)trm_dtype_bytes(dtype);
        op->c.send = NULL;
    }
    for (int64_t i = 0; i < op->send_elements; i++) {
        trmi_element_set(input, dtype, i, case_value(me, i, op->c.reduce, dtype));
    }
    if (kind != TRM_ALLREDUCE && kind != TRM_REDUCE && kind != TRM_REDUCE_SCATTER &&
        kind != TRM_REDUCE_SCATTERV) {
        for (int64_t i = 0; i < op->send_elements; i++) {
            trmi_element_set(input, dtype, i, case_value(me, i, 0, dtype));
        }
    }
}

static inline bool case_correct(const case_state *s, const case_op *op) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->c.dtype);
    const char *got = s->recv + op->result_at * bytes;
    bool right = memcmp(got, s->expected, (size_t)(op->result_elements * bytes)) == 0;
    /* nothing beyond the result was touched, unless the input lay there */
    int64_t end = (op->result_at + op->result_elements) * bytes;
    for (int64_t i = end; right && op->c.send != NULL && i < end + 64; i++) {
        right = s->recv[i] == 0x5A;
    }
    return right;
}

static inline void case_loop(rank_context *context, case_state *s, const case_run *run) {
    static const trm_dtype quick_types[] = {TRM_BFLOAT16, TRM_INT32};
    trm_error err;
    for (int kind = TRM_ALLREDUCE; kind <= TRM_BARRIER; kind++) {
        bool reduces = kind == TRM_ALLREDUCE || kind == TRM_REDUCE || kind == TRM_REDUCE_SCATTER ||
                       kind == TRM_REDUCE_SCATTERV;
        for (int type = 0; type < (run->quick ? 2 : 8); type++) {
            trm_dtype dtype = run->quick ? quick_types[type] : (trm_dtype)(type + 1);
            for (int reduce = 1; reduce <= (reduces ? 5 : 1); reduce++) {
                for (const int64_t *count = run->counts; *count >= 0; count++) {
                    for (int place = 0; place < 2; place++) {
                        case_op op;
                        int root = (int)((*count + type) % s->size);
                        if (place == 1 && kind == TRM_ALLTOALLV) {
                            continue;
                        }
                        case_prepare(s, &op, kind, dtype, reduces ? reduce : 0, *count, root,
                                     place == 1);
                        EXPECT(trm_comm_run(s->comm, &op.c, &err) == TRM_OK, "%s", err.message);
                        EXPECT(
                            case_correct(s, &op), "%s %s %s count %lld root %d place %d buffers %d",
                            trm_collective_name(kind), trm_dtype_name(dtype),
                            trm_reduction_name(reduce), (long long)*count, root, place, s->buffers);
                    }
                }
            }
        }
    }
}

/* The body of a rank: all cases, on private and on shared buffers. context->arg is the case_run. */
static inline void case_body(rank_context *context) {
    const case_run *run = context->arg;
    trm_error err = {.status = 0};
    trm_bootstrap *boot = NULL;
    case_state s = {.rank = context->rank, .size = context->size};
    int64_t longest = 0;
    for (const int64_t *count = run->counts; *count >= 0; count++) {
        longest = *count > longest ? *count : longest;
    }
    s.capacity = longest * context->size * 8 + 4096;
    if (run->boot != NULL) {
        boot = run->boot;
    } else {
        EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);
    }
    boot->address = run->address != NULL ? run->address : boot->address;
    EXPECT_OK(trm_comm_create(boot, &run->options, &s.comm, &err), err);
    for (int buffers = 0; buffers < BUFFER_KINDS; buffers++) {
        s.buffers = buffers;
        bool shared = buffers == BUFFER_SHARED;
        size_t bytes = (size_t)s.capacity;
        s.send = shared ? trm_comm_alloc_shared(s.comm, bytes, &err) : malloc(bytes);
        s.recv = shared ? trm_comm_alloc_shared(s.comm, bytes, &err) : malloc(bytes);
        s.expected = malloc(bytes);
        EXPECT(s.send != NULL && s.recv != NULL && s.expected != NULL, "%s", err.message);
        case_loop(context, &s, run);
        if (context->failure[0] != '\0') {
            return;
        }
        EXPECT_OK(trm_comm_barrier(s.comm, &err), err);
        free(s.expected);
        if (shared) {
            trm_comm_free_shared(s.comm, s.send);
            trm_comm_free_shared(s.comm, s.recv);
        } else {
            free(s.send);
            free(s.recv);
        }
    }
    trm_comm_destroy(s.comm);
    if (run->boot == NULL) {
        boot->table->destroy(boot);
    }
}

#endif
