/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of attention, forward and backward, and of rotary positions: one query row of
 * one head at a time, in double.
 *
 *   forward   s = scale q k + mask over the keys that the query may read, y = sum of softmax(s) v
 *   backward  p again from s and the log-sum-exp that forward wrote, so that no matrix of
 *             probabilities is kept; dv += p dy, ds = p (dy v - e), dq += ds k, dk += ds q
 *   join      two results over different keys, weighed by their shares of the whole sum
 *
 * A query without any key gives zeros, and gradients of zero. */
#include "exec/attention.h"
#include "exec/ref/ref.h"

#include "base/memory.h"

#include <math.h>

/* One query row of one head. */
typedef struct row {
    const trmi_ref_args *args;
    const trm_tensor *q, *k, *v, *mask;
    trmi_attention_shape s;
    int64_t b, h, t;
    double *scores; /* [keys] room */
} row;

/* Opens the tensors of an attention, of which q is input number `first`. */
static row open_row(const trmi_ref_args *args, int first) {
    const trm_tensor *in = args->inputs + first;
    bool packed = in[1].data == NULL;
    return (row){
        .args = args,
        .q = &in[0],
        .k = packed ? &in[0] : &in[1],
        .v = packed ? &in[0] : &in[2],
        .mask = &in[3],
        .s = trmi_attention_shape_of(args->attrs, &in[0].shape, packed ? NULL : &in[1].shape)};
}

/* Return the place of this row in a tensor: of queries; of results; of key or value number `key`,
 * where a group of query heads reads one head; and of the row's log-sum-exp. */
static int64_t q_at(const row *r) { return trmi_attention_at(&r->s, &r->s.q, r->b, r->t, r->h); }
static int64_t y_at(const row *r) { return trmi_attention_at(&r->s, &r->s.y, r->b, r->t, r->h); }
static int64_t kv_at(const row *r, const trmi_attention_view *view, int64_t key) {
    return trmi_attention_at(&r->s, view, r->b, key, r->h / (r->s.heads / r->s.kv_heads));
}
static int64_t lse_at(const row *r) { return (r->b * r->s.heads + r->h) * r->s.queries + r->t; }

/* Returns the inner product of two vectors of a head. */
static double dot_product(const row *r, const trm_tensor *x, int64_t i, const trm_tensor *y,
                          int64_t j) {
    double sum = 0;
    for (int64_t d = 0; d < r->s.width; d++) {
        sum += trmi_ref_get(x, i + d) * trmi_ref_get(y, j + d);
    }
    return sum;
}

/* Returns the score of a key; minus infinity where the query may not read it. */
static double score_key(const row *r, int64_t key) {
    bool hidden = key >= trmi_attention_limit(&r->s, r->args->attrs, r->t) ||
                  (r->mask->data != NULL && trmi_ref_get_int(r->mask, r->b * r->s.keys + key) == 0);
    return hidden ? (double)-INFINITY
                  : r->args->attrs->attention.scale *
                        dot_product(r, r->q, q_at(r), r->k, kv_at(r, &r->s.k, key));
}

/* Computes one query's output and log-sum-exp in double precision. A query without any key gives
 * zeros. */
static void attend_row(const row *r) {
    double most = -INFINITY, sum = 0;
    for (int64_t key = 0; key < r->s.keys; key++) {
        r->scores[key] = score_key(r, key);
        most = fmax(most, r->scores[key]);
    }
    /* Scores are taken relative to the largest, so that no exponential overflows. Hidden keys have
     * -infinity. */
    bool any = most > (double)-INFINITY;
    for (int64_t key = 0; any && key < r->s.keys; key++) {
        r->scores[key] = exp(r->scores[key] - most);
        sum += r->scores[key];
    }
    trmi_ref_set(&r->args->outputs[1], lse_at(r), any ? most + log(sum) : TRMI_ATTENTION_NO_KEYS);
    for (int64_t d = 0; d < r->s.width; d++) {
        double y = 0;
        for (int64_t key = 0; any && key < r->s.keys; key++) {
            y += r->scores[key] / sum * trmi_ref_get(r->v, kv_at(r, &r->s.v, key) + d);
        }
        trmi_ref_set(&r->args->outputs[0], y_at(r) + d, y);
    }
}

/* Computes softmax(scale q k^T + mask) v for each batch, head and query (Vaswani et al. 2017). The
 * second output is the log-sum-exp of each query's scores, which the gradient and attention_join
 * read. */
trm_status trmi_ref_attention(const trmi_ref_args *args, trm_error *err) {
    row r = open_row(args, 0);
    r.scores = trmi_alloc((size_t)r.s.keys * sizeof *r.scores + 1);
    if (r.scores == NULL) {
        return TRMI_NO_MEMORY(err, "for a reference attention");
    }
    for (r.b = 0; r.b < r.s.batch; r.b++) {
        for (r.h = 0; r.h < r.s.heads; r.h++) {
            for (r.t = 0; r.t < r.s.queries; r.t++) {
                attend_row(&r);
            }
        }
    }
    trmi_free(r.scores);
    return TRM_OK;
}

/* Adds the gradients of one query. With p = exp(score - log_sum_exp) and e = sum of dy y: dv += p
 * dy, ds = p (dy v - e) scale, dq += ds k, dk += ds q. */
static void attend_back(const row *r, double *dq, double *dk, double *dv) {
    const trm_tensor *dy = &r->args->inputs[0], *y = &r->args->inputs[5];
    double e = dot_product(r, dy, y_at(r), y, y_at(r)),
           lse = trmi_ref_get(&r->args->inputs[6], lse_at(r));
    for (int64_t key = 0; key < r->s.keys; key++) {
        int64_t k = kv_at(r, &r->s.k, key), v = kv_at(r, &r->s.v, key);
        double p = exp(score_key(r, key) - lse);
        double ds =
            p * (dot_product(r, dy, y_at(r), r->v, v) - e) * r->args->attrs->attention.scale;
        for (int64_t d = 0; d < r->s.width; d++) {
            dv[v + d] += p * trmi_ref_get(dy, y_at(r) + d);
            dq[q_at(r) + d] += ds * trmi_ref_get(r->k, k + d);
            dk[k + d] += ds * trmi_ref_get(r->q, q_at(r) + d);
        }
    }
}

/* Adds the contributions of all queries to dQ, dK and dV in double precision. In the packed form
 * all three are in one tensor and share one array of sums. */
trm_status trmi_ref_attention_grad(const trmi_ref_args *args, trm_error *err) {
    row r = open_row(args, 1);
    double *sums[3] = {NULL, NULL, NULL};
    trm_status status = TRM_OK;
    for (int i = 0; i < args->outputs_count; i++) {
        int64_t count = trm_shape_count(&args->inputs[1 + i].shape);
        sums[i] = trmi_alloc((size_t)count * sizeof *sums[i] + 1);
        if (sums[i] == NULL) {
            status = TRMI_NO_MEMORY(err, "for a reference attention");
            goto done;
        }
    }
    for (r.b = 0; r.b < r.s.batch; r.b++) {
        for (r.h = 0; r.h < r.s.heads; r.h++) {
            for (r.t = 0; r.t < r.s.queries; r.t++) {
                attend_back(&r, sums[0], sums[r.s.packed ? 0 : 1], sums[r.s.packed ? 0 : 2]);
            }
        }
    }
    for (int i = 0; i < args->outputs_count; i++) {
        for (int64_t j = 0; j < trm_shape_count(&args->inputs[1 + i].shape); j++) {
            trmi_ref_set(&args->outputs[i], j, sums[i][j]);
        }
    }
done:
    for (int i = 0; i < 3; i++) {
        trmi_free(sums[i]);
    }
    return status;
}

/* Weighs both results by their shares of the sum over all keys. */
trm_status trmi_ref_attention_join(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *in = args->inputs;
    const int64_t *dim = in[0].shape.dim;
    for (int64_t i = 0; i < dim[0] * dim[1] * dim[2]; i++) {
        int64_t h = i % dim[2], t = i / dim[2] % dim[1], b = i / dim[2] / dim[1],
                at = (b * dim[2] + h) * dim[1] + t;
        /* Read the log-sum-exp of both parts of the keys; each part's output counts by its
         * share. */
        double first = trmi_ref_get(&in[1], at), second = trmi_ref_get(&in[3], at),
               most = fmax(first, second), sum = exp(first - most) + exp(second - most);
        trmi_ref_set(&args->outputs[1], at, most + log(sum));
        for (int64_t d = i * dim[3]; d < (i + 1) * dim[3]; d++) {
            trmi_ref_set(&args->outputs[0], d,
                         exp(first - most) / sum * trmi_ref_get(&in[0], d) +
                             exp(second - most) / sum * trmi_ref_get(&in[2], d));
        }
    }
    return TRM_OK;
}

/* Computes the rotary position embedding (Su et al. 2021): element i and element i + width / 2 of a
 * row turn as a pair by position * theta^(-2 i / width). `inverse` turns back: the gradient. */
trm_status trmi_ref_rotary(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0];
    int32_t rank = x->shape.rank;
    int64_t width = x->shape.dim[rank - 1], half = width / 2, count = trm_shape_count(&x->shape);
    int64_t positions = x->shape.dim[1], each = 1; /* rows of one position */
    for (int32_t i = 2; i < rank - 1; i++) {
        each *= x->shape.dim[i];
    }
    for (int64_t r = 0; width > 0 && r < count / width; r++) {
        double position = (double)(args->attrs->rotary.begin + r / each % positions);
        for (int64_t i = 0; i < half; i++) {
            double angle =
                position * pow(args->attrs->rotary.theta, -2.0 * (double)i / (double)width);
            double c = cos(angle), s = args->attrs->rotary.inverse ? -sin(angle) : sin(angle);
            double a = trmi_ref_get(x, r * width + i), b = trmi_ref_get(x, r * width + half + i);
            trmi_ref_set(&args->outputs[0], r * width + i, a * c - b * s);
            trmi_ref_set(&args->outputs[0], r * width + half + i, b * c + a * s);
        }
    }
    return TRM_OK;
}
