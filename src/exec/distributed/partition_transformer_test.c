/* SPDX-License-Identifier: Apache-2.0 */
/* Small transformers of random sizes, cut by random plans and by the plans that the literature names,
 * run on threads as ranks, against one device (tests/partition_trial.h): losses, gradients of the
 * first step, parameters after three steps. TRIREME_SHARD_TRIALS=300 tries that many of each model. */
#include "partition_trial.h"

#include "trireme/nn.h"

/* One network under one plan: its lines of operators. */
static void try_plan(network_function network, const char *mesh, const char *lines,
                     double tolerance) {
    trm_error err;
    trmi_mesh parsed;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static outcome one;
    memset(&one, 0, sizeof one);
    all->trial = (trial){.network = network,
                         .variant = 1,
                         .mesh = mesh,
                         .backend = "onednn",
                         .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}};
    CHECK_OK(trmi_mesh_parse(mesh, &parsed, &err), err);
    CHECK_OK(run_trial(&all->trial, NULL, &one, &err), err);
    snprintf(all->trial.plan, TEXT, "trireme-plan 1\nmesh %s\n%s", mesh, lines);
    ranks_run_joined(trmi_mesh_ranks(&parsed), false, rank_main, all, "ranks");
    compare(all, &one, trmi_mesh_ranks(&parsed), 0, tolerance);
    munmap(all, sizeof *all);
}

static trm_node ids_of(trm_graph *g, int64_t batch, int64_t tokens) {
    return trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, tokens));
}

/* A published model with sizes that meshes cut unevenly, too. */
static trm_node language(trm_graph *g, uint64_t v, const char *model, bool shared_keys) {
    int64_t batch = batch_of(v, 4, 6), tokens = pick(v, 1, 5, 9), heads = 2 * pick(v, 2, 1, 2);
    const trm_language_options o = {.layers = pick(v, 3, 1, 2),
                                    .width = heads * 2 * pick(v, 4, 1, 3),
                                    .heads = heads,
                                    .kv_heads = shared_keys && v % 2 ? heads / 2 : heads,
                                    .hidden = pick(v, 5, 5, 12),
                                    .context = tokens + (int64_t)(v % 3),
                                    .vocabulary = pick(v, 6, 11, 19),
                                    .dropout = v % 2 ? 0.2 : 0,
                                    .untied = v % 4 == 1};
    trm_node ids = ids_of(g, batch, tokens);
    return trm_language_loss(g, model, ids,
                             trm_input(g, "label", TRM_INT32, trm_shape_of(batch, tokens)), &o);
}
static trm_node llama(trm_graph *g, uint64_t v) { return language(g, v, "llama", true); }
static trm_node gpt2(trm_graph *g, uint64_t v) { return language(g, v, "gpt2", v % 3 == 0); }
static trm_node bert(trm_graph *g, uint64_t v) { return language(g, v, "bert", false); }

/* Words, a norm and the fused loss with ignored labels: nothing but the vocabulary. */
static trm_node words(trm_graph *g, uint64_t v) {
    int64_t batch = batch_of(v, 4, 6), tokens = pick(v, 1, 3, 7), width = pick(v, 2, 4, 9);
    trm_node table =
        trm_parameter(g, "words", trm_shape_of(pick(v, 3, 11, 23), width), TRM_INIT_LINEAR);
    trm_node x = trm_embedding(g, table, ids_of(g, batch, tokens));
    x = trm_rms_norm(g, x, trm_parameter(g, "norm", trm_shape_of(width), TRM_INIT_ONE), 0);
    return trm_linear_cross_entropy(
        g, x, table, trm_input(g, "label", TRM_INT32, trm_shape_of(batch, tokens)),
        &(trm_xent_options){.use_ignore_index = v % 2, .ignore_index = 1});
}

/* So many words that the logits of a rank exist in two chunks of rows, of the larger part of the
 * vocabulary alone. */
static trm_node many_words(trm_graph *g, uint64_t v) {
    enum { BATCH = 5, TOKENS = 671, WORDS = 10001, WIDTH = 4 };
    (void)v;
    trm_node table = trm_parameter(g, "words", trm_shape_of(WORDS, WIDTH), TRM_INIT_LINEAR);
    return trm_linear_cross_entropy(g, trm_embedding(g, table, ids_of(g, BATCH, TOKENS)), table,
                                    trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH, TOKENS)),
                                    NULL);
}

static void chunks_of_uneven_vocabularies_are_alike(void **state) {
    (void)state;
    try_plan(many_words, "2", "op embedding0 v\nop linear_xent0 k\n", 1e-5);
}

static void words_cut_at_random(void **state) {
    (void)state;
    try_all(words, 5000, (int)trials(6), "onednn", 1, 1e-5);
    try_all(words, 5500, (int)trials(3), "ref", 1, 1e-5);
}
static void llama_cut_at_random(void **state) {
    (void)state;
    try_all(llama, 6000, (int)trials(8), "onednn", 1, 1e-5);
}
static void gpt2_cut_at_random(void **state) {
    (void)state;
    try_all(gpt2, 7000, (int)trials(8), "onednn", 1, 1e-5);
    try_all(gpt2, 7500, (int)trials(2), "ref", 1, 1e-5);
}
static void bert_cut_at_random(void **state) {
    (void)state;
    try_all(bert, 8000, (int)trials(4), "onednn", 1, 1e-5);
}

/* ---- the plans of the literature ------------------------------------------------------------- */

/* Sequence parallel: products by columns and by inputs, attention by heads, all else by tokens.
 * Context: all by tokens, attention by heads. */
typedef enum form { SEQUENCE, CONTEXT } form;

static char letter_of(const trmi_op *op, form form) {
    bool second = strstr(op->name, "c_proj") != NULL || strstr(op->name, "o_proj") != NULL ||
                  strstr(op->name, "down_proj") != NULL;
    switch (op->kind) {
    case TRMI_OP_LINEAR: return form == CONTEXT ? 'm' : second ? 'c' : 'k';
    case TRMI_OP_LINEAR_XENT: return form == CONTEXT ? 'm' : 'k';
    case TRMI_OP_ATTENTION: return 'g';
    case TRMI_OP_GELU:
    case TRMI_OP_SWIGLU:
    case TRMI_OP_RESHAPE:
    case TRMI_OP_ROTARY: return form == CONTEXT ? 'c' : 'h';
    case TRMI_OP_ADD:
    case TRMI_OP_DROPOUT: return 'c';
    case TRMI_OP_EMBEDDING:
    case TRMI_OP_LAYER_NORM:
    case TRMI_OP_RMS_NORM: return 'm';
    default: return '.';
    }
}

/* A model of one block with even sizes. */
static trm_node even(trm_graph *g, const char *model) {
    enum { BATCH = 2, TOKENS = 8 };
    const trm_language_options o = {.layers = 1,
                                    .width = 16,
                                    .heads = 4,
                                    .kv_heads = 4,
                                    .context = TOKENS,
                                    .vocabulary = 12,
                                    .dropout = 0.1};
    trm_node ids = ids_of(g, BATCH, TOKENS);
    return trm_language_loss(g, model, ids,
                             trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH, TOKENS)), &o);
}
static trm_node even_gpt2(trm_graph *g, uint64_t v) { return (void)v, even(g, "gpt2"); }
static trm_node even_llama(trm_graph *g, uint64_t v) { return (void)v, even(g, "llama"); }

/* Writes the plan's lines, and counts the messages of activations that it needs on two ranks. */
static void name_plan(network_function network, form form, char *lines, int moves[TRMI_MOVES]) {
    trm_error err;
    trm_graph *g, *training;
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_mesh mesh;
    trmi_backend *backend;
    trmi_partition_plan *plan;
    trm_program *program;
    trmi_partition_report report = {.messages = NULL};
    CHECK_OK(trmi_backend_ref(1, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trmi_plan_options options = {
        .target = &backend->target, .loss = network(g, 1), .dense_gradients = true};
    CHECK_OK(trmi_training_graph(g, &options, &training, &roots, &arena, &err), err);
    CHECK_OK(trmi_mesh_parse("2", &mesh, &err), err);
    CHECK_OK(trmi_partition_plan_create(&mesh, &plan, &err), err);
    size_t used = 0;
    for (int64_t i = 1; i < training->ops_count; i++) {
        const trmi_op *op = &training->ops[i];
        char letters[] = {letter_of(op, form), '\0'};
        if (op->phase == TRMI_FORWARD && op->inputs_count > 0 && letters[0] != '.') {
            CHECK_OK(trmi_partition_plan_set(plan, op->name, letters, false, NULL, &err), err);
            used += (size_t)snprintf(lines + used, TEXT - used, "op %s %s\n", op->name, letters);
        }
    }
    options.partition = plan;
    options.report = &report;
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    memset(moves, 0, TRMI_MOVES * sizeof *moves);
    enum { SCALARS = 64 }; /* losses and their gradients */
    for (int64_t i = 0; i < report.messages_count; i++) {
        const trmi_partition_message *m = &report.messages[i];
        bool activation = !m->gradient && m->bytes > SCALARS && strncmp(m->what, "loss", 4) != 0;
        moves[m->move] += activation;
    }
    trmi_partition_report_free(&report);
    trmi_plan_destroy(program);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    backend->destroy(backend);
}

/* Of a block: before each first product a gather, behind each second one a reduce-scatter, and the
 * same in backward, the other way round; the output layer has one of each. No all-reduce. */
static void sequence_parallel_needs_no_all_reduce(void **state) {
    (void)state;
    static const network_function networks[] = {even_gpt2, even_llama};
    for (int i = 0; i < 2; i++) {
        char lines[TEXT] = "";
        int moves[TRMI_MOVES];
        name_plan(networks[i], SEQUENCE, lines, moves);
        assert_int_equal(moves[TRMI_MOVE_ALL_REDUCE], 0);
        assert_int_equal(moves[TRMI_MOVE_ALL_TO_ALL] + moves[TRMI_MOVE_EXCHANGE], 0);
        assert_int_equal(moves[TRMI_MOVE_ALL_GATHER], 5);
        /* where several layers read one value, their gradients are added before they travel */
        assert_int_equal(moves[TRMI_MOVE_REDUCE_SCATTER], 5);
        try_plan(networks[i], "2", lines, 1e-5);
    }
}

/* Heads are exchanged for tokens before attention and behind it, and in backward. */
static void a_context_in_parts_exchanges_heads(void **state) {
    (void)state;
    static const network_function networks[] = {even_gpt2, even_llama};
    static const int tensors[] = {2, 4}; /* packed queries, keys and values are one tensor */
    for (int i = 0; i < 2; i++) {
        char lines[TEXT] = "";
        int moves[TRMI_MOVES];
        name_plan(networks[i], CONTEXT, lines, moves);
        assert_int_equal(moves[TRMI_MOVE_ALL_REDUCE] + moves[TRMI_MOVE_ALL_GATHER] +
                             moves[TRMI_MOVE_REDUCE_SCATTER],
                         0);
        assert_int_equal(moves[TRMI_MOVE_ALL_TO_ALL], 2 * tensors[i]);
        try_plan(networks[i], "2", lines, 1e-5);
    }
}

static void bit_for_bit(void **state) {
    (void)state;
    const trm_optimizer_options adam = {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true};
    try_bits(&(bits){llama, 3, "onednn", 8, 8, adam, TRM_PRECISION_FP32}, (int)trials(9));
    try_bits(&(bits){gpt2, 2, "onednn", 8, 4, adam, TRM_PRECISION_FP32}, (int)trials(9));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_uneven_vocabularies_are_alike),
        cmocka_unit_test(words_cut_at_random),
        cmocka_unit_test(llama_cut_at_random),
        cmocka_unit_test(gpt2_cut_at_random),
        cmocka_unit_test(bert_cut_at_random),
        cmocka_unit_test(sequence_parallel_needs_no_all_reduce),
        cmocka_unit_test(a_context_in_parts_exchanges_heads),
        cmocka_unit_test(bit_for_bit),
    };
    cmocka_set_test_filter(getenv("TRIREME_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
