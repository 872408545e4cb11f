/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a plan for other engines: plan.json for all of them, and what each one reads. */
#include "train/planner/hardware_plan.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "trireme/io.h"

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
    /* the model */
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
    /* ranks and batches */
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
    /* optimiser and gradients */
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
    bool spread = plan->chunks == 1 && p->model.layers - most * (plan->stages - 1) < 1;
    return plan->gpipe || spread
               ? TRMI_FAIL(
                     err, TRM_UNSUPPORTED,
                     "export megatron: %s found, 1F1B or interleaved expected, with stages of "
                     "equal blocks but the last one",
                     plan->gpipe ? "GPipe" : "uneven stages")
               : TRM_OK;
}

/* ---- MindSpore ------------------------------------------------------------------------------- */

/* Appends the shard strategies of one operator: a list of cuts for each input. */
static void put_strategy(trmi_text *t, const char *name, const char *cuts, bool first) {
    trmi_text_printf(t, "%s\n    \"%s\": %s", first ? "" : ",", name, cuts);
}

/* Appends the strategies of a block's operators in the order of MindSpore's shard(), and the
 * options of set_auto_parallel_context. */
static void put_mindspore(trmi_text *t, const trm_hardware_plan *p, const trmi_parallelism *plan) {
    long long dp = plan->data, tp = plan->tensor, cp = plan->context, ep = plan->experts;
    /* A strategy lists, for each input of an operator, into how many parts each of its dimensions
     * is cut. */
    char cuts[6][96];
    snprintf(cuts[0], sizeof cuts[0], "[[%lld, 1], [%lld, 1]]", dp * cp, tp);
    snprintf(cuts[1], sizeof cuts[1], "[[%lld, %lld], [1, %lld]]", dp * cp, tp, tp);
    snprintf(cuts[2], sizeof cuts[2],
             "[[%lld, %lld, %lld, 1], [%lld, %lld, 1, 1], [%lld, %lld, 1, 1]]", dp, tp, cp, dp, tp,
             dp, tp);
    snprintf(cuts[3], sizeof cuts[3], "[[%lld, 1], [1]]", dp * cp * tp);
    snprintf(cuts[4], sizeof cuts[4], "[[%lld, 1], [%lld, %lld]]", tp, dp, cp);
    snprintf(cuts[5], sizeof cuts[5], "[[%lld, 1, 1], [%lld, 1, 1]]", ep, ep);
    trmi_text_printf(
        t,
        "{\n  \"context\": {\"parallel_mode\": \"semi_auto_parallel\", \"full_batch\": true, "
        "\"device_num\": %lld, \"pipeline_stages\": %lld,\n    "
        "\"enable_parallel_optimizer\": %s, \"pipeline_config\": "
        "{\"pipeline_interleave\": %s, \"pipeline_scheduler\": \"%s\"}},\n",
        (long long)p->problem.devices, (long long)plan->stages, plan->zero > 0 ? "true" : "false",
        plan->chunks > 1 ? "true" : "false", plan->gpipe ? "gpipe" : "1f1b");
    trmi_text_printf(
        t, "  \"micro_batch_num\": %lld,\n  \"recompute\": {\"mode\": \"%s\", \"blocks\": %lld},\n",
        (long long)plan->micro_count,
        plan->recompute == TRMI_RECOMPUTE_FULL        ? "full"
        : plan->recompute == TRMI_RECOMPUTE_SELECTIVE ? "select"
                                                      : "none",
        (long long)plan->blocks);
    trmi_text_printf(t, "  \"strategy\": {");
    put_strategy(t, "embedding.gather", cuts[4], true);
    put_strategy(t, "block.norm", cuts[3], false);
    put_strategy(t, "block.attention.query_key_value.matmul", cuts[0], false);
    put_strategy(t, "block.attention.flash_attention", cuts[2], false);
    put_strategy(t, "block.attention.output.matmul", cuts[1], false);
    put_strategy(t, "block.mlp.up.matmul", cuts[0], false);
    put_strategy(t, "block.mlp.down.matmul", cuts[1], false);
    if (p->model.experts > 0) {
        put_strategy(t, "block.experts.batch_matmul", cuts[5], false);
    }
    put_strategy(t, "head.matmul", cuts[0], false);
    trmi_text_printf(t, "\n  }\n}\n");
}

/* ---- all ------------------------------------------------------------------------------------- */

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
    put_mindspore(&text, p, plan);
    return write_text(directory, "strategy.json", &text, err);
}

trm_status trm_hardware_plan_export(const trm_hardware_plan *plan, const char *engine,
                                    const char *directory, trm_error *err) {
    TRMI_NEED(err, plan, engine, directory);
    const trmi_priced_plan *chosen = plan->has_given ? &plan->given : &plan->found.best;
    trmi_text text = {0};
    bool torch = strcmp(engine, "torch") == 0, megatron = strcmp(engine, "megatron") == 0;
    if (!torch && !megatron && strcmp(engine, "mindspore") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "export: engine '%.40s' found, torch, megatron or mindspore expected",
                         engine);
    }
    TRMI_TRY(torch ? check_torch(plan, &chosen->plan, err) : TRM_OK);
    TRMI_TRY(megatron ? check_megatron(plan, &chosen->plan, err) : TRM_OK);
    TRMI_TRY(trmi_os_make_dirs(NULL, directory, err));
    trmi_hardware_json_plan(&text, plan, chosen);
    trmi_text_append(&text, "\n", 1);
    TRMI_TRY(write_text(directory, "plan.json", &text, err));
    return write_engine(plan, &chosen->plan, engine, directory, err);
}
