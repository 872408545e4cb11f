/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small GPT-2 with both back-ends and both precisions. The losses agree and fall, the loss
 * that does not store logits equals the one that does, and both uses of the tied table train it. */
#include "check.h"

#include "trireme/trireme.h"

#include "base/rng.h"

#include <math.h>

enum { BATCH = 3, CONTEXT = 20, VOCABULARY = 61, STEPS = 6 };

static const trm_language_options small = {
    .layers = 2, .width = 32, .heads = 4, .context = 24, .vocabulary = VOCABULARY};

typedef struct job {
    const char *backend;
    trm_precision precision;
    bool logits; /* the loss of logits that exist */
    int threads;
} job;

/* Returns token i of a periodic text, which a network can learn; some targets are ignored. */
static void fill_tokens(int32_t *ids, int32_t *targets) {
    for (int32_t i = 0; i < BATCH * CONTEXT; i++) {
        ids[i] = (i * 7 + i / CONTEXT) % VOCABULARY;
        targets[i] = i % 11 == 3 ? -100 : (ids[i] + 7) % VOCABULARY;
    }
}

static trm_node loss_of(trm_graph *g, const job *j) {
    trm_shape shape = trm_shape_of(BATCH, CONTEXT);
    trm_node ids = trm_input(g, "tokens", TRM_INT32, shape),
             targets = trm_input(g, "targets", TRM_INT32, shape);
    if (!j->logits) {
        return trm_language_loss(g, "gpt2", ids, targets, &small);
    }
    trm_node logits =
        trm_reshape(g, trm_language_build(g, "gpt2", ids, &small), trm_shape_of(-1, VOCABULARY));
    return trm_softmax_cross_entropy(
        g, logits, trm_reshape(g, targets, trm_shape_of(-1)),
        &(trm_xent_options){.use_ignore_index = true, .ignore_index = -100});
}

static void train_steps(const job *j, double losses[STEPS]) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    int32_t ids[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_exec_options options = {.loss = loss_of(g, j),
                                .seed = 3,
                                .backend = j->backend,
                                .threads = j->threads,
                                .tuning_file = "",
                                .precision = j->precision,
                                .optimizer = {.kind = TRM_ADAM}};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    fill_tokens(ids, targets);
    trm_tensor a = {ids, TRM_INT32, trm_shape_of(BATCH, CONTEXT)},
               b = {targets, TRM_INT32, trm_shape_of(BATCH, CONTEXT)};
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(trm_exec_feed(exec, "tokens", &a, &err), err);
        CHECK_OK(trm_exec_feed(exec, "targets", &b, &err), err);
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        losses[i] = (double)trm_exec_loss(exec);
        CHECK_OK(trm_exec_update(exec, 0.01, &err), err);
    }
    trm_exec_destroy(exec);
}

static void compare_losses(const double *a, const double *b, double tolerance, const char *what) {
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(a[i] - b[i]) <= tolerance * fabs(b[i]))) {
            fail_msg("%s, step %d: %.9g, %.9g expected", what, i, a[i], b[i]);
        }
    }
}

static void both_back_ends_and_losses_agree(void **state) {
    double slow[STEPS], fast[STEPS], other[STEPS];
    train_steps(&(job){.backend = "ref", .threads = 1}, slow);
    train_steps(&(job){.backend = "onednn", .threads = 1}, fast);
    assert_true(fabs(slow[0] - log(VOCABULARY)) < 0.2); /* weights are small: nearly uniform */
    assert_true(slow[STEPS - 1] < 0.7 * slow[0]);
    compare_losses(fast, slow, 1e-4, "onednn beside ref");
    train_steps(&(job){.backend = "onednn", .threads = 3}, other);
    compare_losses(other, fast, 0, "three threads beside one");
    train_steps(&(job){.backend = "onednn", .threads = 1, .logits = true}, other);
    compare_losses(other, fast, 1e-4, "logits beside none");
    train_steps(&(job){.backend = "onednn", .threads = 1, .precision = TRM_PRECISION_MIXED}, other);
    compare_losses(other, fast, 3e-2, "mixed beside fp32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_back_ends_and_losses_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
