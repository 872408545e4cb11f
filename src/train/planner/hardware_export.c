/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a plan for other engines: plan.json for all of them, and what each one reads.
 *
 *   torch      a module of Python that applies the plan to a model
 *   megatron   flags of Megatron-LM, one a line
 *   mindspore  a file of strategies (strategy_ckpt_config), and the arguments of
 *              set_auto_parallel_context
 *
 * A plan that an engine cannot express is refused with the word that is too much; it is never
 * weakened. Names of operators and flags are those of the engines' own sources. */
#include "train/planner/hardware_plan.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "trireme/io.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Writes a text to DIRECTORY/NAME and frees it. */
static trm_status write_text(const char *directory, const char *name, trmi_text *text,
                             trm_error *err) {
    char path[4096];
    trm_status status =
        text->failed ? TRMI_NO_MEMORY(err, "for %s", name)
        : snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path
            ? TRMI_FAIL(err, TRM_INVALID, "%.60s: a path of less than 4096 letters expected",
                        directory)
            : trm_file_write(path, text->data, text->length, err);
    trmi_text_free(text);
    return status;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* Refuses plans that the module cannot apply. */
static trm_status check_torch(const trm_hardware_plan *p, const trmi_parallelism *plan,
                              trm_error *err) {
    if (plan->context > 1 || plan->experts > 1 || p->model.experts > 0 || !p->model.gated) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "export torch: %s with cp=%lld and ep=%lld found, a llama with cp=1 and "
                         "ep=1 expected; give --plan tp=...,pp=...,cp=1",
                         p->model.name, (long long)plan->context, (long long)plan->experts);
    }
    return TRM_OK;
}

/* ---- Megatron-LM ----------------------------------------------------------------------------- */

/* Appends the flags that describe recompute. */
static void put_recompute(trmi_text *t, const trmi_parallelism *plan, bool experts) {
    if (plan->recompute == TRMI_RECOMPUTE_SELECTIVE) {
        trmi_text_printf(
            t, "--recompute-granularity selective\n--recompute-modules layernorm mlp_act%s\n",
            experts ? " moe_act" : "");
    } else if (plan->recompute == TRMI_RECOMPUTE_FULL) {
        int64_t blocks = (plan->blocks + plan->chunks - 1) / plan->chunks;
        trmi_text_printf(t,
                         "--recompute-granularity full\n--recompute-method block\n"
                         "--recompute-num-layers %lld\n",
                         (long long)blocks);
    }
}

/* Appends the flags of Megatron-LM, one a line. */
static void put_megatron(trmi_text *t, const trm_hardware_plan *p, const trmi_parallelism *plan) {
    const trmi_transformer *m = &p->model;
    int64_t runs = plan->stages * plan->chunks;
    /* Write the model. */
    trmi_text_printf(t,
                     "--num-layers %lld\n--hidden-size %lld\n--num-attention-heads %lld\n"
                     "--ffn-hidden-size %lld\n--seq-length %lld\n--max-position-embeddings %lld\n",
                     (long long)m->layers, (long long)m->width, (long long)m->heads,
                     (long long)m->hidden, (long long)m->context, (long long)m->context);
    if (m->kv_heads != m->heads) {
        trmi_text_printf(t, "--group-query-attention\n--num-query-groups %lld\n",
                         (long long)m->kv_heads);
    }
    trmi_text_printf(t, "%s%s", m->gated ? "--swiglu\n--normalization RMSNorm\n" : "",
                     m->tied ? "" : "--untie-embeddings-and-output-weights\n");
    /* Write ranks and batches. */
    trmi_text_printf(t,
                     "--tensor-model-parallel-size %lld\n--pipeline-model-parallel-size %lld\n"
                     "--context-parallel-size %lld\n--micro-batch-size %lld\n"
                     "--global-batch-size %lld\n--bf16\n",
                     (long long)plan->tensor, (long long)plan->stages, (long long)plan->context,
                     (long long)plan->micro_batch, (long long)p->problem.batch);
    trmi_text_printf(t, "%s%s", plan->tensor > 1 ? "--sequence-parallel\n" : "",
                     plan->tensor > 1 && !plan->plain_tensor ? "--tp-comm-overlap\n" : "");
    /* Layers that stages do not divide: with chunks the embedding and the loss count as layers;
     * otherwise the last stage has fewer. */
    if (plan->chunks > 1) {
        bool counted = m->layers % runs != 0;
        trmi_text_printf(t, "--num-layers-per-virtual-pipeline-stage %lld\n%s",
                         (long long)((m->layers + 2 * counted) / runs),
                         counted ? "--account-for-embedding-in-pipeline-split\n"
                                   "--account-for-loss-in-pipeline-split\n"
                                 : "");
    } else if (plan->stages > 1 && m->layers % plan->stages != 0) {
        int64_t most = (m->layers + plan->stages - 1) / plan->stages;
        trmi_text_printf(t, "--decoder-last-pipeline-num-layers %lld\n",
                         (long long)(m->layers - most * (plan->stages - 1)));
    }
    if (m->experts > 0) {
        trmi_text_printf(t,
                         "--num-experts %lld\n--moe-router-topk %lld\n--moe-ffn-hidden-size %lld\n"
                         "--expert-model-parallel-size %lld\n--expert-tensor-parallel-size 1\n"
                         "--moe-token-dispatcher-type alltoall\n--moe-grouped-gemm\n",
                         (long long)m->experts, (long long)m->top_experts,
                         (long long)m->expert_hidden, (long long)plan->experts);
    }
    /* Write optimiser and gradients. */
    trmi_text_printf(
        t, "%s", plan->zero == 1 ? "--use-distributed-optimizer\n--overlap-param-gather\n" : "");
    if (plan->zero >= 2) {
        trmi_text_printf(t,
                         "--use-megatron-fsdp\n--use-distributed-optimizer\n"
                         "--data-parallel-sharding-strategy %s\n",
                         plan->zero == 2 ? "optim_grads" : "optim_grads_params");
    }
    trmi_text_printf(t, "--overlap-grad-reduce\n");
    put_recompute(t, plan, m->experts > 0);
}

/* Refuses plans that Megatron-LM's flags do not express. */
static trm_status check_megatron(const trm_hardware_plan *p, const trmi_parallelism *plan,
                                 trm_error *err) {
    int64_t most = (p->model.layers + plan->stages - 1) / plan->stages;
    int64_t blocks = 0;
    bool spread = plan->chunks == 1 && p->model.layers - most * (plan->stages - 1) < 1;
    (void)trmi_stage_blocks(&p->model, plan, &blocks);
    bool mixed = plan->selective > 0 && (plan->blocks > 0 || plan->selective < blocks);
    return plan->gpipe || spread || mixed || plan->by_stage
               ? TRMI_FAIL(err, TRM_UNSUPPORTED,
                           "export megatron: %s found; 1F1B or interleaved, stages of equal blocks "
                           "but the last one, and recompute=none, selective, full or full:BLOCKS "
                           "expected",
                           plan->gpipe      ? "GPipe"
                           : spread         ? "uneven stages"
                           : plan->by_stage ? "recompute that differs by stage"
                                            : "recompute of both kinds, or of norms in some blocks")
               : TRM_OK;
}

/* ---- MindSpore ------------------------------------------------------------------------------- */

/* What the products of one family of MindFormers' models are called: the primitive and the first
 * parameter of an operator, which MindSpore joins to the name of its strategy
 * (mindspore/ccsrc/frontend/parallel/step_parallel_utils.cc). A weight lies as [outputs, inputs]
 * or, `turned`, as [inputs, outputs]. */
typedef struct mindspore_names {
    const char *table, *head, *block; /* embedding, output layer; of a block, with %lld */
    const char *norms[2], *columns[5], *rows[2]; /* of a block; columns: their outputs are cut */
    const char *norm;                            /* primitive of norms */
    bool turned_column[5], turned_row[2];
} mindspore_names;

static const mindspore_names mindspore_llama = {
    .table = "model.tok_embeddings.embedding_weight",
    .head = "lm_head.weight",
    .block = "model.layers.%lld.",
    .norms = {"attention_norm.weight", "ffn_norm.weight"},
    .columns = {"attention.wq.weight", "attention.wk.weight", "attention.wv.weight",
                "feed_forward.w1.weight", "feed_forward.w3.weight"},
    .rows = {"attention.wo.weight", "feed_forward.w2.weight"},
    .norm = "RmsNorm"};
static const mindspore_names mindspore_gpt2 = {
    .table = "backbone.embedding.word_embedding.embedding_table",
    .head = "head.weight",
    .block = "backbone.blocks.%lld.",
    .norms = {"layernorm1.gamma", "layernorm2.gamma"},
    .columns = {"attention.dense1.weight", "attention.dense2.weight", "attention.dense3.weight",
                "output.mapping.weight"},
    .rows = {"attention.projection.weight", "output.projection.weight"},
    .norm = "LayerNorm",
    .turned_column = {[3] = true},
    .turned_row = {true, true}};
/* Parameters of an expert that MindSpore's strategies name, in the order of its network. */
static const char *const mindspore_experts[] = {"w1", "w2", "w3"};

/* The cuts of an operator's inputs: into how many parts each dimension is cut. */
typedef struct mindspore_cuts {
    char table[64], norm[64], column[2][64], row[2][64], experts[64]; /* [1]: turned weights */
} mindspore_cuts;

/* Puts the strategy of one more operator. block: NULL, or the path of a block's parameters. */
static void put_strategy(trmi_report *r, const char *primitive, const char *block, int64_t number,
                         const char *parameter, int64_t stage, const char *cuts) {
    char path[48] = "";
    if (block != NULL) {
        snprintf(path, sizeof path, block, (long long)number);
    }
    /* names live as long as the report */
    trmi_report_open_object(r, trmi_arena_printf(&r->arena, "%s_%s%s", primitive, path, parameter));
    trmi_report_put(r, trmi_int("stage", stage), trmi_json_value("parallel_strategy", cuts));
    trmi_report_close(r);
}

/* Puts the strategies of one block. */
static void put_block(trmi_report *r, const trmi_transformer *m, const mindspore_names *names,
                      const mindspore_cuts *cuts, int64_t number, int64_t stage) {
    const bool experts = m->experts > 0 && number >= m->dense;
    const int inner = m->gated ? 2 : 1; /* columns and one row of the inner layer come last */
    for (int i = 0; i < 2; i++) {
        put_strategy(r, names->norm, names->block, number, names->norms[i], stage, cuts->norm);
    }
    for (int i = 0; i < 3 + (experts ? 0 : inner); i++) {
        put_strategy(r, "MatMul", names->block, number, names->columns[i], stage,
                     cuts->column[names->turned_column[i]]);
    }
    for (int i = 0; i < 2 - experts; i++) {
        put_strategy(r, "MatMul", names->block, number, names->rows[i], stage,
                     cuts->row[names->turned_row[i]]);
    }
    for (int i = 0; experts && i < 2 + m->gated; i++) {
        char name[64];
        snprintf(name, sizeof name, "feed_forward.routed_experts.ffn.%s.weight",
                 mindspore_experts[i]);
        put_strategy(r, "BatchMatMul", names->block, number, name, stage, cuts->experts);
    }
}

/* Puts a file of strategies as MindSpore's option strategy_ckpt_config reads it
 * (strategy_checkpoint_info.cc), for the models of MindFormers. */
static void put_mindspore(trmi_report *r, const trm_hardware_plan *p,
                          const trmi_parallelism *plan) {
    const trmi_transformer *m = &p->model;
    const mindspore_names *names = m->gated || m->experts > 0 ? &mindspore_llama : &mindspore_gpt2;
    const long long dp = plan->data, tp = plan->tensor, cp = plan->context, ep = plan->experts;
    mindspore_cuts cuts;
    snprintf(cuts.table, sizeof cuts.table, "[[%lld, 1], [%lld, %lld]]", tp, dp, cp);
    snprintf(cuts.norm, sizeof cuts.norm, "[[%lld, %lld, 1], [1]%s]", dp, cp * tp,
             names == &mindspore_gpt2 ? ", [1]" : "");
    snprintf(cuts.column[0], sizeof cuts.column[0], "[[%lld, 1], [%lld, 1]]", dp * cp, tp);
    snprintf(cuts.column[1], sizeof cuts.column[1], "[[%lld, 1], [1, %lld]]", dp * cp, tp);
    snprintf(cuts.row[0], sizeof cuts.row[0], "[[%lld, %lld], [1, %lld]]", dp * cp, tp, tp);
    snprintf(cuts.row[1], sizeof cuts.row[1], "[[%lld, %lld], [%lld, 1]]", dp * cp, tp, tp);
    snprintf(cuts.experts, sizeof cuts.experts, "[[%lld, 1, 1], [%lld, 1, 1]]", ep, ep);
    trmi_report_put(r, trmi_int("current_stage", 0));
    trmi_report_open_object(r, "parallel_strategy_item");
    trmi_report_set_rows(r);
    put_strategy(r, "Gather", NULL, 0, names->table, 0, cuts.table);
    for (int64_t v = 0, block = 0; v < plan->stages * plan->chunks; v++) {
        for (int64_t end = block + trmi_run_blocks(m, plan, v); block < end; block++) {
            put_block(r, m, names, &cuts, block, v % plan->stages);
        }
    }
    put_strategy(r, "MatMul", NULL, 0, names->head, plan->stages - 1, cuts.column[0]);
    trmi_report_close(r);
    trmi_report_put(r, trmi_json_value("parallel_layout_item", "{}"));
}

/* Puts how many blocks each stage recomputes, whole and in their norms and activations. */
static void put_mindspore_recompute(trmi_report *r, const trm_hardware_plan *p,
                                    const trmi_parallelism *plan) {
    trmi_block_price price[2];
    trmi_block_price_of(&p->problem, plan, &price[0], &price[1]);
    trmi_report_open_object(r, "recompute");
    for (int selective = 0; selective < 2; selective++) {
        trmi_report_open_array(r, selective ? "select_blocks" : "blocks");
        for (int64_t s = 0; s < plan->stages; s++) {
            const trmi_stage_again again = trmi_stage_recompute(&p->problem, plan, price, s);
            trmi_report_put(r, trmi_whole(NULL, selective ? again.selective : again.full));
        }
        trmi_report_close(r);
    }
    trmi_report_close(r);
}

/* Puts what a program gives to set_auto_parallel_context, and the strategy of attention, which has
 * no parameter and thus no name in a file of strategies. */
static void put_mindspore_context(trmi_report *r, const trm_hardware_plan *p,
                                  const trmi_parallelism *plan) {
    const long long dp = plan->data, tp = plan->tensor, cp = plan->context;
    char attention[160];
    trmi_report_open_object(r, "context");
    trmi_report_set_rows(r);
    trmi_report_put(r, trmi_string("parallel_mode", "semi_auto_parallel"),
                    trmi_bool("full_batch", true), trmi_int("device_num", p->problem.devices),
                    trmi_int("pipeline_stages", plan->stages),
                    trmi_bool("enable_parallel_optimizer", plan->zero > 0));
    trmi_report_open_object(r, "pipeline_config");
    trmi_report_put(r, trmi_bool("pipeline_interleave", plan->chunks > 1),
                    trmi_string("pipeline_scheduler", plan->gpipe ? "gpipe" : "1f1b"));
    trmi_report_close(r);
    trmi_report_open_object(r, "strategy_ckpt_config");
    trmi_report_put(r, trmi_string("load_file", "strategy.json"));
    trmi_report_close(r);
    trmi_report_close(r);
    snprintf(attention, sizeof attention,
             "[[%lld, %lld, %lld, 1], [%lld, %lld, 1, 1], [%lld, %lld, 1, 1]]", dp, tp, cp, dp, tp,
             dp, tp);
    trmi_report_put(r, trmi_int("micro_batch_num", plan->micro_count),
                    trmi_json_value("FlashAttentionScore", attention));
    put_mindspore_recompute(r, p, plan);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Writes a file of JSON that people edit, a row for each of its values. */
static trm_status write_rows(const char *directory, const char *name,
                             void (*put)(trmi_report *r, const trm_hardware_plan *p,
                                         const trmi_parallelism *plan),
                             const trm_hardware_plan *p, const trmi_parallelism *plan,
                             trm_error *err) {
    trmi_report r;
    trmi_text text = {0};
    trmi_report_begin_json(&r, &text);
    trmi_report_set_rows(&r);
    r.spaced = true;
    put(&r, p, plan);
    (void)trmi_report_end(&r);
    return write_text(directory, name, &text, err);
}

/* Writes what one engine reads. */
static trm_status write_engine(const trm_hardware_plan *p, const trmi_parallelism *plan,
                               const char *engine, const char *directory, trm_error *err) {
    trmi_text text = {0};
    if (strcmp(engine, "torch") == 0) {
        trmi_text_append(&text, trmi_torch_plan, strlen(trmi_torch_plan));
        return write_text(directory, "trireme_plan.py", &text, err);
    }
    if (strcmp(engine, "megatron") == 0) {
        put_megatron(&text, p, plan);
        return write_text(directory, "flags.txt", &text, err);
    }
    TRMI_TRY(write_rows(directory, "strategy.json", put_mindspore, p, plan, err));
    return write_rows(directory, "context.json", put_mindspore_context, p, plan, err);
}

/* Contract in trireme/plan.h. Checks run before anything is written, so a refused plan leaves no
 * folder behind. A plan that the user has given is exported as it is; else the best one that the
 * engine can express, which for Megatron-LM is the best of those that recompute alike in all
 * stages. */
trm_status trm_hardware_plan_export(const trm_hardware_plan *plan, const char *engine,
                                    const char *directory, trm_error *err) {
    TRMI_NEED(err, plan, engine, directory);
    bool torch = strcmp(engine, "torch") == 0, megatron = strcmp(engine, "megatron") == 0;
    /* flags of Megatron-LM have one way of recompute for all blocks, as many in all stages */
    bool alike = megatron && plan->found.alike.cost.seconds < INFINITY;
    const trmi_priced_plan *chosen = plan->has_given ? &plan->given
                                     : alike         ? &plan->found.alike
                                                     : &plan->found.best;
    trmi_text text = {0};
    if (!torch && !megatron && strcmp(engine, "mindspore") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "export: engine '%.40s' found, torch, megatron or mindspore expected",
                         engine);
    }
    TRMI_TRY(torch ? check_torch(plan, &chosen->plan, err) : TRM_OK);
    TRMI_TRY(megatron ? check_megatron(plan, &chosen->plan, err) : TRM_OK);
    TRMI_TRY(trmi_os_make_dirs(NULL, directory, err));
    trmi_report report;
    trmi_report_begin_json(&report, &text);
    trmi_hardware_put_plan(&report, plan, chosen);
    (void)trmi_report_end(&report);
    trmi_text_append(&text, "\n", 1);
    TRMI_TRY(write_text(directory, "plan.json", &text, err));
    return write_engine(plan, &chosen->plan, engine, directory, err);
}
