/* SPDX-License-Identifier: Apache-2.0 */
/* Small transformers of random sizes, cut by random plans and by the plans that the literature
 * names, run on threads as ranks, against one device (tests/partition_trial.h): losses, gradients
 * of the first step, parameters after three steps. TRIREME_SHARD_TRIALS=300 tries that many of each
 * model. */
#include "partition_trial.h"

#include "trireme/nn.h"

/* One network under one plan: its lines of operators. hosts: each rank is a host of its own.
 * blocks: of samples, bit for bit; 0 = to rounding. */
static void try_plan_on(bool hosts, network_function network, const char *mesh, const char *lines,
                        int32_t blocks, double tolerance) {
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
                         .blocks = blocks,
                         .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}};
    CHECK_OK(trmi_mesh_parse(mesh, &parsed, &err), err);
    CHECK_OK(run_trial(&all->trial, NULL, &one, &err), err);
    snprintf(all->trial.plan, TEXT, "trireme-plan 1\nmesh %s\n%s", mesh, lines);
    run_ranks(all, trmi_mesh_ranks(&parsed), hosts);
    if (blocks > 0) {
        compare_bits(all, &one, trmi_mesh_ranks(&parsed), 0);
    } else {
        compare_outcomes(all, &one, trmi_mesh_ranks(&parsed), 0, tolerance);
    }
    munmap(all, sizeof *all);
}

/* Tries a plan (try_plan_on) with all ranks on one host. */
static void try_plan(network_function network, const char *mesh, const char *lines, int32_t blocks,
                     double tolerance) {
    try_plan_on(false, network, mesh, lines, blocks, tolerance);
}

static trm_node ids_of(trm_graph *g, int64_t batch, int64_t tokens) {
    return trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, tokens));
}

/* A published model with sizes that meshes cut unevenly, too. */
static trm_node build_language(trm_graph *g, uint64_t v, const char *model, bool shared_keys) {
    int64_t batch = batch_of(v, 4, 6), tokens = pick_number(v, 1, 5, 9),
            heads = 2 * pick_number(v, 2, 1, 2);
    const trm_language_options o = {.layers = pick_number(v, 3, 1, 2),
                                    .width = heads * 2 * pick_number(v, 4, 1, 3),
                                    .heads = heads,
                                    .kv_heads = shared_keys && v % 2 ? heads / 2 : heads,
                                    .hidden = pick_number(v, 5, 5, 12),
                                    .context = tokens + (int64_t)(v % 3),
                                    .vocabulary = pick_number(v, 6, 11, 19),
                                    .dropout = v % 2 ? 0.2 : 0,
                                    .untied = v % 4 == 1};
    trm_node ids = ids_of(g, batch, tokens);
    return trm_language_loss(g, model, ids,
                             trm_input(g, "label", TRM_INT32, trm_shape_of(batch, tokens)), &o);
}
static trm_node build_llama(trm_graph *g, uint64_t v) {
    return build_language(g, v, "llama", true);
}
static trm_node build_gpt2(trm_graph *g, uint64_t v) {
    return build_language(g, v, "gpt2", v % 3 == 0);
}
static trm_node build_bert(trm_graph *g, uint64_t v) { return build_language(g, v, "bert", false); }

/* Words, a norm and the fused loss with ignored labels: nothing but the vocabulary. */
static trm_node build_words(trm_graph *g, uint64_t v) {
    int64_t batch = batch_of(v, 4, 6), tokens = pick_number(v, 1, 3, 7),
            width = pick_number(v, 2, 4, 9);
    trm_node table =
        trm_parameter(g, "words", trm_shape_of(pick_number(v, 3, 11, 23), width), TRM_INIT_LINEAR);
    trm_node x = trm_embedding(g, table, ids_of(g, batch, tokens));
    x = trm_rms_norm(g, x, trm_parameter(g, "norm", trm_shape_of(width), TRM_INIT_ONE), 0);
    return trm_linear_cross_entropy(
        g, x, table, trm_input(g, "label", TRM_INT32, trm_shape_of(batch, tokens)),
        &(trm_xent_options){.use_ignore_index = v % 2, .ignore_index = 1});
}

/* Has so many words that a rank makes its logits in two chunks of rows, but only the rank with the
 * larger part of the vocabulary. */
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
    try_plan(many_words, "2", "op embedding0 v\nop linear_xent0 k\n", 0, 1e-5);
}

static void words_cut_at_random(void **state) {
    (void)state;
    try_all(build_words, 5000, (int)count_trials(6), "onednn", 1, 1e-5);
    try_all(build_words, 5500, (int)count_trials(3), "ref", 1, 1e-5);
}
static void llama_cut_at_random(void **state) {
    (void)state;
    try_all(build_llama, 6000, (int)count_trials(8), "onednn", 1, 1e-5);
}
static void gpt2_cut_at_random(void **state) {
    (void)state;
    try_all(build_gpt2, 7000, (int)count_trials(8), "onednn", 1, 1e-5);
    try_all(build_gpt2, 7500, (int)count_trials(2), "ref", 1, 1e-5);
}
static void bert_cut_at_random(void **state) {
    (void)state;
    try_all(build_bert, 8000, (int)count_trials(4), "onednn", 1, 1e-5);
}

/* ---- the plans of the literature ------------------------------------------------------------- */

/* Sequence parallel: products by columns and by inputs, attention by heads, all else by tokens.
 * Context: all by tokens, attention by heads. Ring: all by tokens, attention, too. */
typedef enum form { SEQUENCE, CONTEXT, RING } form;

static char letter_of(const trmi_op *op, form form) {
    if (form == RING) {
        return op->kind == TRMI_OP_ATTENTION ? 'r' : letter_of(op, CONTEXT);
    }
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
static trm_node build_even(trm_graph *g, const char *model) {
    enum { BATCH = 2, TOKENS = 16 };
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
static trm_node even_gpt2(trm_graph *g, uint64_t v) { return (void)v, build_even(g, "gpt2"); }
static trm_node even_llama(trm_graph *g, uint64_t v) { return (void)v, build_even(g, "llama"); }

/* A model of one block whose heads and tokens no mesh divides. */
static trm_node build_uneven(trm_graph *g, const char *model, int64_t kv_heads) {
    enum { BATCH = 2, TOKENS = 15 };
    const trm_language_options o = {.layers = 1,
                                    .width = 12,
                                    .heads = 3,
                                    .kv_heads = kv_heads,
                                    .context = TOKENS,
                                    .vocabulary = 12,
                                    .dropout = 0.1};
    trm_node ids = ids_of(g, BATCH, TOKENS);
    return trm_language_loss(g, model, ids,
                             trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH, TOKENS)), &o);
}
static trm_node uneven_gpt2(trm_graph *g, uint64_t v) {
    return (void)v, build_uneven(g, "gpt2", 3);
}
static trm_node grouped_gpt2(trm_graph *g, uint64_t v) {
    return (void)v, build_uneven(g, "gpt2", 1);
}
static trm_node uneven_llama(trm_graph *g, uint64_t v) {
    return (void)v, build_uneven(g, "llama", 1);
}
static trm_node uneven_bert(trm_graph *g, uint64_t v) {
    return (void)v, build_uneven(g, "bert", 3);
}

/* Writes the plan's lines, and counts the messages of activations that it needs. Returns the bytes
 * of activations of rank 0. */
static int64_t name_plan(network_function network, form form, const char *mesh_text, char *lines,
                         int moves[TRMI_MOVES]) {
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
    CHECK_OK(trmi_mesh_parse(mesh_text, &mesh, &err), err);
    CHECK_OK(trmi_partition_plan_create(&mesh, &plan, &err), err);
    size_t used = 0;
    for (int64_t i = 1; i < training->ops_count; i++) {
        const trmi_op *op = &training->ops[i];
        char letters[TRMI_MESH_AXES + 1] = "";
        memset(letters, letter_of(op, form), (size_t)mesh.axes);
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
    int64_t bytes = program->arena_bytes[TRMI_ARENA_ACTIVATION];
    trmi_partition_report_free(&report);
    trmi_plan_destroy(program);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    backend->destroy(backend);
    return bytes;
}

/* A block has a gather before each first product and a reduce-scatter behind each second one, and
 * in backward both the other way round; the output layer has one of each. No all-reduce. */
static void sequence_parallel_needs_no_all_reduce(void **state) {
    (void)state;
    static const network_function networks[] = {even_gpt2, even_llama};
    for (int i = 0; i < 2; i++) {
        char lines[TEXT] = "";
        int moves[TRMI_MOVES];
        name_plan(networks[i], SEQUENCE, "2", lines, moves);
        assert_int_equal(moves[TRMI_MOVE_ALL_REDUCE], 0);
        assert_int_equal(moves[TRMI_MOVE_ALL_TO_ALL] + moves[TRMI_MOVE_EXCHANGE], 0);
        assert_int_equal(moves[TRMI_MOVE_ALL_GATHER], 5);
        /* where several layers read one value, their gradients are added before they travel */
        assert_int_equal(moves[TRMI_MOVE_REDUCE_SCATTER], 5);
        try_plan(networks[i], "2", lines, 0, 1e-5);
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
        name_plan(networks[i], CONTEXT, "2", lines, moves);
        assert_int_equal(moves[TRMI_MOVE_ALL_REDUCE] + moves[TRMI_MOVE_ALL_GATHER] +
                             moves[TRMI_MOVE_REDUCE_SCATTER],
                         0);
        assert_int_equal(moves[TRMI_MOVE_ALL_TO_ALL], 2 * tensors[i]);
        try_plan(networks[i], "2", lines, 0, 1e-5);
    }
}

/* Keys and values pass from neighbour to neighbour, forward and backward: nothing else is sent.
 * Heads need not be divisible, and a rank has less memory than where heads are exchanged. */
static void a_ring_passes_keys_around(void **state) {
    (void)state;
    static const network_function networks[] = {even_gpt2,    even_llama,   uneven_gpt2,
                                                grouped_gpt2, uneven_llama, uneven_bert};
    static const char *const meshes[] = {"2", "4", "2x2"};
    for (int i = 0; i < 6; i++) {
        for (int m = 0; m < 3; m++) {
            char lines[TEXT] = "", other[TEXT] = "";
            int moves[TRMI_MOVES];
            int64_t ring = name_plan(networks[i], RING, meshes[m], lines, moves);
            assert_int_equal(moves[TRMI_MOVE_EXCHANGE], 2);
            assert_int_equal(moves[TRMI_MOVE_ALL_REDUCE] + moves[TRMI_MOVE_ALL_GATHER] +
                                 moves[TRMI_MOVE_REDUCE_SCATTER] + moves[TRMI_MOVE_ALL_TO_ALL],
                             0);
            if (i < 2) {
                int64_t heads = name_plan(networks[i], CONTEXT, meshes[m], other, moves);
                print_message("mesh %s: %lld bytes of activations as a ring, %lld by heads\n",
                              meshes[m], (long long)ring, (long long)heads);
                assert_true(ring < heads);
            }
            try_plan(networks[i], meshes[m], lines, 0, 1e-5);
            try_plan_on(true, networks[i], meshes[m], lines, 0, 1e-5); /* messages begin ahead */
        }
    }
}

/* Compiles rank 0's program of a plan, with messages that begin ahead. */
static trm_program *compile_ahead(network_function network, const char *mesh, const char *lines) {
    trm_error err;
    trm_graph *g;
    trmi_backend *backend;
    trmi_partition_plan *plan;
    trm_program *program;
    static char text[TEXT + 64];
    snprintf(text, sizeof text, "trireme-plan 1\nmesh %s\n%s", mesh, lines);
    CHECK_OK(trmi_backend_ref(1, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    CHECK_OK(trmi_partition_plan_parse(text, strlen(text), "test", &plan, &err), err);
    const trmi_plan_options options = {.target = &backend->target,
                                       .loss = network(g, 1),
                                       .dense_gradients = true,
                                       .partition = plan,
                                       .messages_ahead = true};
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(g);
    backend->destroy(backend);
    return program;
}

/* No step between the begin of a message and its place uses the memory of its result. */
static void check_room_for_result(const trm_program *p, int32_t s) {
    const trmi_buffer *out = &p->buffers[p->steps[s].outputs[0]];
    int32_t begin = s - p->steps[s].ahead;
    assert_true(begin >= 0 && out->first_step <= begin);
    for (int32_t b = 1; b < p->buffers_count; b++) {
        const trmi_buffer *other = &p->buffers[b];
        bool together = other->arena == TRMI_ARENA_ACTIVATION &&
                        trmi_buffer_root(p, b) != trmi_buffer_root(p, p->steps[s].outputs[0]) &&
                        other->first_step <= s && other->last_step >= begin;
        assert_false(together && other->offset < out->offset + out->bytes &&
                     out->offset < other->offset + other->bytes);
    }
}

/* The next keys travel during a turn, and gradients during the turn behind theirs; those of the
 * last turn of backward travel behind it. */
static void a_ring_attends_while_messages_travel(void **state) {
    (void)state;
    static const network_function networks[] = {even_gpt2, even_llama, uneven_bert};
    static const char *const meshes[] = {"2", "4"};
    for (int i = 0; i < 6; i++) {
        char lines[TEXT] = "";
        int moves[TRMI_MOVES], turns = i < 3 ? 1 : 3, hidden = 0, exposed = 0;
        name_plan(networks[i % 3], RING, meshes[i / 3], lines, moves);
        trm_program *p = compile_ahead(networks[i % 3], meshes[i / 3], lines);
        for (int32_t s = 0; s < p->steps_count; s++) {
            const trmi_step *step = &p->steps[s];
            bool passes = step->op_kind == TRMI_OP_EXCHANGE && step->kind == TRMI_STEP_OP &&
                          trmi_exchange_passes_on(trmi_exchange_of(step->attrs));
            int attends = 0;
            for (int32_t t = s - step->ahead; passes && t < s; t++) {
                attends += p->steps[t].op_kind == TRMI_OP_ATTENTION ||
                           p->steps[t].op_kind == TRMI_OP_ATTENTION_GRAD;
            }
            if (passes) {
                hidden += attends > 0;
                exposed += attends == 0;
                check_room_for_result(p, s);
            }
        }
        assert_int_equal(exposed, 2);
        assert_int_equal(hidden + exposed, (2 + 4) * turns);
        trmi_plan_destroy(p);
    }
}

/* ---- parameters in parts --------------------------------------------------------------------- */

enum { BLOCKS = 4, LAYERS_EACH = 4, AHEAD_MOST = 2 };

/* Four blocks whose weights are larger than their values. */
static trm_node heavy_gpt2(trm_graph *g, uint64_t v) {
    (void)v;
    const trm_language_options o = {
        .layers = BLOCKS, .width = 64, .heads = 4, .kv_heads = 4, .context = 4, .vocabulary = 12};
    trm_node ids = ids_of(g, 2, 4);
    return trm_language_loss(g, "gpt2", ids, trm_input(g, "label", TRM_INT32, trm_shape_of(2, 4)),
                             &o);
}

/* Returns the plan of two ranks that have samples each and the weights of all layers in parts, if
 * `parts`. */
static trmi_partition_plan *plan_parts(const trm_graph *g, bool parts, bool again) {
    trm_error err;
    trmi_mesh mesh;
    trmi_partition_plan *plan;
    const trmi_spread cut = {.at = {TRMI_SPLIT}};
    static const char *const layers[LAYERS_EACH] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc",
                                                    "mlp.c_proj"};
    CHECK_OK(trmi_mesh_parse("2", &mesh, &err), err);
    CHECK_OK(trmi_partition_plan_samples(g, &mesh, &plan, &err), err);
    plan->digest = 0; /* of the graph before differentiation */
    for (int i = 0; parts && i < BLOCKS * LAYERS_EACH; i++) {
        char name[64];
        snprintf(name, sizeof name, "h.%d.%s.weight", i / LAYERS_EACH, layers[i % LAYERS_EACH]);
        CHECK_OK(trmi_partition_plan_store(plan, name, &cut, again, &err), err);
    }
    return plan;
}

/* Compiles rank 0's program of such a plan. */
static trm_program *compile_parts(bool again, bool ahead, trm_precision precision) {
    trm_error err;
    trm_graph *g;
    trmi_backend *backend;
    trm_program *program;
    CHECK_OK(trmi_backend_ref(1, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node loss = heavy_gpt2(g, 1);
    trmi_partition_plan *plan = plan_parts(g, true, again);
    trmi_plan_options options = {.target = &backend->target,
                                 .loss = loss,
                                 .dense_gradients = true,
                                 .precision = (int32_t)precision,
                                 .partition = plan,
                                 .messages_ahead = ahead};
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(g);
    backend->destroy(backend);
    return program;
}

/* Returns whether a step gathers the weight of a layer. */
static bool gathers_weight(const trm_program *p, int32_t s) {
    return p->steps[s].op_kind == TRMI_OP_EXCHANGE && strstr(p->steps[s].name, ".weight") != NULL;
}

/* Counts the gathers of weights of one phase. */
static int count_gathers(const trm_program *p, trmi_phase phase) {
    int count = 0;
    for (int32_t s = 0; s < p->steps_count; s++) {
        count += gathers_weight(p, s) && p->steps[s].phase == phase;
    }
    return count;
}

/* Counts the casts of weights; each is of one rank's part. */
static int count_casts(const trm_program *p) {
    int count = 0;
    for (int32_t s = 0; s < p->steps_count; s++) {
        count +=
            trmi_is_parameter_cast(p, &p->steps[s]) && strstr(p->steps[s].name, ".weight") != NULL;
    }
    return count;
}

/* The promise of ZeRO-3: whole weights exist around their use only, in both precisions. In mixed
 * precision each rank casts its part before each gather, so that messages have two bytes a
 * number. */
static void weights_are_gathered_again_in_backward(void **state) {
    (void)state;
    static const trm_precision precisions[] = {TRM_PRECISION_FP32, TRM_PRECISION_MIXED};
    static const trm_dtype types[] = {TRM_FLOAT32, TRM_BFLOAT16};
    for (int i = 0; i < 2; i++) {
        trm_program *kept = compile_parts(false, false, precisions[i]),
                    *again = compile_parts(true, false, precisions[i]);
        int64_t all = kept->arena_bytes[TRMI_ARENA_ACTIVATION],
                some = again->arena_bytes[TRMI_ARENA_ACTIVATION];
        print_message("%lld bytes where gathered weights are kept, %lld where they are not\n",
                      (long long)all, (long long)some);
        assert_int_equal(count_gathers(kept, TRMI_FORWARD), BLOCKS * LAYERS_EACH);
        assert_int_equal(count_gathers(kept, TRMI_BACKWARD), 0);
        assert_int_equal(count_gathers(again, TRMI_FORWARD), BLOCKS * LAYERS_EACH);
        assert_int_equal(count_gathers(again, TRMI_BACKWARD), BLOCKS * LAYERS_EACH);
        assert_true(some < all / 2);
        for (int32_t s = 0; s < again->steps_count; s++) {
            if (gathers_weight(again, s)) {
                assert_int_equal(again->buffers[again->steps[s].outputs[0]].dtype, types[i]);
            }
        }
        assert_int_equal(count_casts(again), 2 * i * BLOCKS * LAYERS_EACH);
        trmi_plan_destroy(kept);
        trmi_plan_destroy(again);
    }
}

/* Each gather but the first two begins in front of another layer's product; two are under way at
 * most; no step between its begin and its place uses the memory of its result. */
static void check_gathers_ahead(trm_precision precision) {
    trm_program *kept = compile_parts(false, false, precision),
                *p = compile_parts(true, true, precision);
    int64_t bytes = p->arena_bytes[TRMI_ARENA_ACTIVATION];
    int seen = 0;
    for (int32_t s = 0; s < p->steps_count; s++) {
        if (!gathers_weight(p, s)) {
            assert_int_equal(p->steps[s].ahead, 0);
            continue;
        }
        int32_t begin = s - p->steps[s].ahead, products = 0, under_way = 0;
        for (int32_t t = begin; t < s; t++) {
            products +=
                p->steps[t].op_kind == TRMI_OP_LINEAR || p->steps[t].op_kind == TRMI_OP_MATMUL;
        }
        /* a cast of backward stays behind forward, whose last operator is the fused loss */
        bool behind_loss = precision == TRM_PRECISION_MIXED && seen == BLOCKS * LAYERS_EACH;
        assert_true(seen++ < AHEAD_MOST || products > 0 || behind_loss);
        for (int32_t t = s; t < p->steps_count;
             t++) { /* those that have begun before this one's place */
            under_way += gathers_weight(p, t) && t - p->steps[t].ahead <= s;
        }
        assert_true(under_way <= AHEAD_MOST);
        check_room_for_result(p, s);
    }
    assert_int_equal(seen, 2 * BLOCKS * LAYERS_EACH);
    print_message("%lld bytes where gathers begin ahead\n", (long long)bytes);
    assert_true(bytes < kept->arena_bytes[TRMI_ARENA_ACTIVATION] / 2);
    trmi_plan_destroy(kept);
    trmi_plan_destroy(p);
}

static void gathers_begin_in_front_of_other_products(void **state) {
    (void)state;
    check_gathers_ahead(TRM_PRECISION_FP32);
    check_gathers_ahead(TRM_PRECISION_MIXED);
}

/* Trains with weights whole, in parts, and gathered again: in mixed precision a cast of parts that
 * is gathered has the bits of a cast of the whole. */
static void parts_of_casts_change_no_bit(void **state) {
    (void)state;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static outcome whole;
    for (int i = 0; i < 5; i++) {
        trm_error err;
        trm_graph *g;
        CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
        (void)heavy_gpt2(g, 1);
        trmi_partition_plan *plan = plan_parts(g, i > 0, i > 2);
        char *text = trmi_partition_plan_text(plan);
        assert_non_null(text);
        all->trial = (trial){.network = heavy_gpt2,
                             .mesh = "2",
                             .backend = "onednn",
                             .optimizer = {.kind = TRM_ADAM},
                             .precision = TRM_PRECISION_MIXED};
        assert_true(strlen(text) < TEXT);
        memcpy(all->trial.plan, text, strlen(text) + 1);
        trm_free(text);
        trmi_partition_plan_destroy(plan);
        trm_graph_destroy(g);
        run_ranks(all, 2, i % 2 == 0); /* hosts: gathers begin ahead */
        const outcome *now = &all->of[0];
        CHECK_OK(now->status, now->error);
        whole = i == 0 ? *now : whole;
        assert_int_equal(now->values_count, whole.values_count);
        assert_true(whole.values_count > 3 * BLOCKS * 64 * 64);
        assert_memory_equal(now->loss, whole.loss, sizeof whole.loss);
        assert_memory_equal(now->values, whole.values,
                            (size_t)whole.values_count * sizeof *whole.values);
    }
    munmap(all, sizeof *all);
}

/* Strict determinism has no order of keys that ranks share: they gather the keys instead, or, where
 * one layer makes queries, keys and values, cut samples. */
static void a_strict_ring_gathers(void **state) {
    (void)state;
    static const network_function networks[] = {even_gpt2, uneven_llama};
    for (int i = 0; i < 2; i++) {
        char lines[TEXT] = "";
        int moves[TRMI_MOVES];
        name_plan(networks[i], RING, "2", lines, moves);
        try_plan(networks[i], "2", lines, 2, 0);
    }
}

static void bit_for_bit(void **state) {
    (void)state;
    const trm_optimizer_options adam = {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true};
    try_bits(&(bits){build_llama, 3, "onednn", 8, 8, adam, TRM_PRECISION_FP32},
             (int)count_trials(9));
    try_bits(&(bits){build_gpt2, 2, "onednn", 8, 4, adam, TRM_PRECISION_FP32},
             (int)count_trials(9));
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
        cmocka_unit_test(a_ring_passes_keys_around),
        cmocka_unit_test(a_ring_attends_while_messages_travel),
        cmocka_unit_test(a_strict_ring_gathers),
        cmocka_unit_test(weights_are_gathered_again_in_backward),
        cmocka_unit_test(gathers_begin_in_front_of_other_products),
        cmocka_unit_test(parts_of_casts_change_no_bit),
        cmocka_unit_test(bit_for_bit),
    };
    cmocka_set_test_filter(getenv("TRIREME_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
