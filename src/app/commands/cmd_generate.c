/* SPDX-License-Identifier: Apache-2.0 */
/* generate: text that a language model continues; bench generate: tokens a second, beside the time
 * that reading the weights takes.
 *
 *      checkpoint --> network, tokenizer --> model --> generator --> ids --> bytes of text --> stdout
 *
 * Ids without a text in the tokenizer are left out. A rate counts the tokens after the first one,
 * which waits for the prompt. */
#include "app/models/models.h"
#include "app/commands/bench.h"

#include "trireme/data.h"
#include "trireme/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Creates the model and a generator on it. The model's own program has `rows` tokens: its threads
 * are the generator's. */
static trm_status open_generator(app_context *app, trm_dataset **data, app_network *network,
                                 trm_model **model, trm_generator **out, trm_error *err) {
    enum { ROWS = 32 };
    const char *name = app->parsed.arguments[0];
    app_options *o = &app->o;
    o->batch_size = 1;
    if (o->context_tokens > 0 && o->transformer.positions == 0) {
        o->transformer.positions = o->context_tokens;
    }
    o->context_tokens = o->transformer.positions > 0 && o->transformer.positions < ROWS
                            ? o->transformer.positions
                            : ROWS;
    trm_status status = app_language_kind.random(app, 1, data, err);
    status = status == TRM_OK ? trm_dataset_batch(*data, 1, true, err) : status;
    if (status == TRM_OK) {
        status = app_make_model(app, *data, true, network, model, err);
    }
    if (status == TRM_OK && o->checkpoint != NULL) {
        status = trm_model_load(*model, o->checkpoint, false, NULL, err);
    }
    const trm_generator_options options = {.model = name, .network = &network->language.options};
    return status == TRM_OK ? trm_generator_create(*model, &options, out, err) : status;
}

/* ---- generate -------------------------------------------------------------------------------- */

/* The state of one `trireme generate`. */
typedef struct run {
    app_context *app;
    trm_dataset *data;
    app_network network;
    trm_model *model;
    trm_generator *generator;
    trm_tokenizer *tokenizer;
    trm_tokens prompt, made;
    int64_t added;  /* tokens before the text of the prompt, which are not printed */
    app_ends ends;  /* tokens that end the text */
    double seconds; /* of the tokens after the first, which waits for the prompt */
} run;

/* Puts a token before the prompt.
 *   errors  NOMEM */
static trm_status put_before(run *r, int32_t id, trm_error *err) {
    trm_tokens *p = &r->prompt;
    int64_t count = p->count + 1;
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    if (ids == NULL) {
        return app_no_memory(err, "for a prompt");
    }
    ids[0] = id;
    if (count > 1) {
        memcpy(ids + 1, p->ids, (size_t)p->count * sizeof *ids);
    }
    trm_tokens_free(p);
    *p = (trm_tokens){.ids = ids, .count = count, .capacity = count};
    r->added = 1;
    return TRM_OK;
}

/* Encodes the prompt: --prompt or --prompt-file, after the token that the tokenizer puts before a
 * text; without a prompt that one, or else the token between documents or a line end.
 *   errors  INVALID, IO */
static trm_status encode_prompt(run *r, trm_error *err) {
    const app_options *o = &r->app->o;
    char *text = NULL;
    if (o->prompt != NULL && o->prompt_file != NULL) {
        return app_fail(err, TRM_INVALID,
                        "--prompt and --prompt-file exclude each other; give one of them");
    }
    if (o->prompt_file != NULL) {
        trm_status status = app_read_text(o->prompt_file, &text, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    const char *prompt = text != NULL ? text : o->prompt != NULL ? o->prompt : "";
    int32_t before = trm_tokenizer_begin(r->tokenizer), end = trm_tokenizer_end(r->tokenizer);
    prompt = *prompt == '\0' && before < 0 && end < 0 ? "\n" : prompt;
    before = *prompt == '\0' && before < 0 ? end : before;
    trm_status status = trm_tokenizer_encode(r->tokenizer, prompt, strlen(prompt), &r->prompt, err);
    free(text);
    return status == TRM_OK && before >= 0 ? put_before(r, before, err) : status;
}

/* Refuses models that predict no next token.
 *   errors  INVALID */
static trm_status check_generates(const app_context *app, const char *command, trm_error *err) {
    const char *name = app->parsed.arguments[0];
    if (app->model->kind != &app_language_kind) {
        return app_fail(err, TRM_INVALID, "%s is for language models, not for %s", command, name);
    }
    if (trm_language_is_masked(name)) {
        return app_fail(err, TRM_INVALID,
                        "%s: %s predicts masked tokens from those on both sides, not the next one: "
                        "use gpt2, llama or moe",
                        command, name);
    }
    return TRM_OK;
}

/* Opens everything that generating needs.
 *   errors  INVALID, IO, CORRUPT, NOMEM */
static trm_status prepare_generation(run *r, trm_error *err) {
    app_context *app = r->app;
    app_options *o = &app->o;
    const char *name = app->parsed.arguments[0];
    trm_status status = check_generates(app, "generate", err);
    if (status == TRM_OK && o->checkpoint == NULL) {
        return app_fail(err, TRM_INVALID, "generate needs --checkpoint DIR");
    }
    if (status != TRM_OK || (status = app_recall(app, name, err)) != TRM_OK) {
        return status;
    }
    if (app_given(&app->parsed, "context") && o->transformer.positions > 0) {
        app_warn("--context has no effect here: the network has %lld positions",
                 (long long)o->transformer.positions);
    }
    if (app_given(&app->parsed, "dropout")) {
        app_warn("--dropout has no effect here: it is for training");
    }
    if (app_given(&app->parsed, "temperature") && o->temperature == 0 &&
        (o->top_k > 0 || o->top_p > 0)) {
        app_warn("--top-k and --top-p have no effect with --temperature 0, which takes the most "
                 "probable token");
    }
    if (o->tokenizer == NULL) {
        return app_fail(err, TRM_INVALID,
                        "%.140s has no tokenizer beside it; --tokenizer DIR expected",
                        o->checkpoint);
    }
    const char *folder = app_is_huggingface(o->checkpoint) ? o->checkpoint : o->tokenizer;
    if ((status = trm_tokenizer_open(o->tokenizer, &r->tokenizer, err)) != TRM_OK ||
        (status = app_ends_read(folder, &r->ends, err)) != TRM_OK ||
        (status = encode_prompt(r, err)) != TRM_OK) {
        return status;
    }
    if (r->ends.count == 0) {
        r->ends = (app_ends){.ids = {trm_tokenizer_end(r->tokenizer)}, .count = 1};
    }
    /* the checkpoint did not say how many tokens there are */
    if (o->transformer.vocabulary == 0) {
        o->transformer.vocabulary = trm_tokenizer_vocabulary(r->tokenizer);
    }
    return open_generator(app, &r->data, &r->network, &r->model, &r->generator, err);
}

/* Returns whether a token has a text: the vocabulary of a model may be larger than the tokenizer's,
 * and that of a tokenizer may have gaps. */
static bool has_text(const trm_tokenizer *tokenizer, int32_t id) {
    char *text = NULL;
    size_t bytes;
    const trm_status status = trm_tokenizer_decode(tokenizer, &id, 1, &text, &bytes, NULL);
    trm_free(text);
    return status != TRM_INVALID;
}

/* Decodes tokens. Ids that the tokenizer does not have are left out, as transformers does. */
static trm_status decode_known(const run *r, const int32_t *ids, int64_t count, char **text,
                               size_t *bytes, trm_error *err) {
    int64_t known = 0;
    int32_t *some = malloc((size_t)(count > 0 ? count : 1) * sizeof *some);
    if (some == NULL) {
        return app_no_memory(err, "for %lld tokens", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        if (has_text(r->tokenizer, ids[i])) {
            some[known++] = ids[i];
        }
    }
    trm_status status = trm_tokenizer_decode(r->tokenizer, some, known, text, bytes, err);
    free(some);
    return status;
}

/* Prints the text of some tokens as soon as they are there. */
static trm_status print_tokens(const run *r, const int32_t *ids, int64_t count, trm_error *err) {
    char *text = NULL;
    size_t bytes;
    if (r->app->o.json) {
        return TRM_OK;
    }
    trm_status status = decode_known(r, ids, count, &text, &bytes, err);
    if (status == TRM_OK && (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0)) {
        status = app_fail(err, TRM_IO, "stdout cannot be written");
    }
    trm_free(text);
    return status;
}

/* Chooses and prints up to --tokens tokens, until the one that ends documents. */
static trm_status generate_text(run *r, trm_error *err) {
    const app_options *o = &r->app->o;
    /* choosing among several tokens needs a temperature */
    bool draws = o->temperature > 0 || o->top_k > 0 || o->top_p > 0;
    const trm_sampling sampling = {.temperature = app_given(&r->app->parsed, "temperature")
                                                      ? o->temperature
                                                  : draws ? 1
                                                          : 0,
                                   .top_k = o->top_k,
                                   .top_p = o->top_p,
                                   .seed = (uint64_t)o->seed};
    trm_status status = print_tokens(r, r->prompt.ids + r->added, r->prompt.count - r->added, err);
    if (status == TRM_OK) {
        status = trm_generator_read(r->generator, r->prompt.ids, r->prompt.count, err);
    }
    r->made.ids = malloc((size_t)o->generate_tokens * sizeof *r->made.ids);
    if (r->made.ids == NULL) {
        return app_no_memory(err, "for %lld tokens", (long long)o->generate_tokens);
    }
    double begin = trm_now_seconds();
    /* the time is that of the tokens made so far, without the prompt */
    while (status == TRM_OK && r->made.count < o->generate_tokens) {
        int32_t id = trm_generator_choose(r->generator, &sampling);
        if (r->made.count > 0) {
            r->seconds = trm_now_seconds() - begin;
        }
        if (app_ends_have(&r->ends, id)) {
            break;
        }
        r->made.ids[r->made.count++] = id;
        status = print_tokens(r, &id, 1, err);
        if (status == TRM_OK && r->made.count < o->generate_tokens) {
            status = trm_generator_read(r->generator, &id, 1, err);
        }
    }
    return status;
}

/* Ends the line of the text, and prints the rate, or the JSON event "generate". */
static trm_status tell_generated(const run *r, trm_error *err) {
    const trm_tokens *made = &r->made;
    double rate = made->count > 1 && r->seconds > 0 ? (double)(made->count - 1) / r->seconds : 0;
    char *text = NULL;
    size_t bytes;
    trm_status status = decode_known(r, made->ids, made->count, &text, &bytes, err);
    if (status != TRM_OK) {
        return status;
    }
    app_print("\n");
    app_tell(APP_PROGRESS, "event", "generate", app_text("prompt", r->app->o.prompt, NULL),
             app_int("prompt_tokens", r->prompt.count, NULL), app_text("text", text, NULL),
             app_ids("token_ids", made->ids, made->count), app_int(NULL, made->count, "%d tokens"),
             app_real("tokens_per_second", rate, ", %.1f tokens/s"),
             app_int("seed", r->app->o.seed, NULL));
    trm_free(text);
    return TRM_OK;
}

/* Runs `generate`. */
int app_run_generate(app_context *app) {
    trm_error err;
    run r = {.app = app};
    trm_status status = prepare_generation(&r, &err);
    bool dry = app->o.dry_run;
    if (status == TRM_OK && dry) {
        app_tell(APP_RESULT, "event", "generate",
                 app_bool("dry_run", true,
                          "dry run: the checkpoint and its tokenizer fit; nothing "
                          "was generated"));
    }
    status = status == TRM_OK && !dry ? generate_text(&r, &err) : status;
    status = status == TRM_OK && !dry ? tell_generated(&r, &err) : status;
    trm_generator_destroy(r.generator);
    trm_model_destroy(r.model);
    trm_dataset_destroy(r.data);
    trm_tokenizer_destroy(r.tokenizer);
    trm_tokens_free(&r.prompt);
    trm_tokens_free(&r.made);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- bench generate -------------------------------------------------------------------------- */

/* Times --repeats tokens after a short prompt, and in turns with them the reading of memory. */
static trm_status time_tokens(const app_context *app, trm_generator *generator, trm_meter *meter,
                              double *seconds, trm_error *err) {
    enum { PROMPT = 16, SAMPLES = 5 };
    static const int32_t prompt[PROMPT];
    trm_status status = trm_generator_read(generator, prompt, PROMPT, err);
    int32_t id = trm_generator_choose(generator, NULL);
    status = status == TRM_OK ? trm_generator_read(generator, &id, 1, err) : status; /* warm */
    for (int64_t i = 0; i < app->o.repeats && status == TRM_OK; i++) {
        if (i % ((app->o.repeats + SAMPLES - 1) / SAMPLES) == 0) {
            trm_meter_sample(meter);
        }
        double begin = trm_now_seconds();
        id = trm_generator_choose(generator, NULL);
        status = trm_generator_read(generator, &id, 1, err);
        seconds[i] = trm_now_seconds() - begin;
    }
    return status;
}

/* Prints the result. `bytes`: of the weights that one token reads. */
static void tell_bench(const app_context *app, const char *name, const app_sample *s, int64_t bytes,
                       double bandwidth, int threads) {
    double bound = (double)bytes / bandwidth;
    app_begin(APP_RESULT, "bench", "generate");
    app_put(app_text("model", name, "%s"), app_text("precision", app->o.precision, ", %s"),
            app_real("tokens_per_second", 1 / s->median, ": %.1f tokens/s"));
    app_put_sample(s, " (median of %d", ": %.2f{1e3} ms", "; %.2f{1e3}", " to %.2f{1e3} ms)");
    app_put(app_int("weight_bytes", bytes, "\na token reads %b of weights"),
            app_real("read_gb_s", bandwidth * 1e-9, "; at %.1f GB/s"),
            app_real("bound_seconds", bound, " that takes %.2f{1e3} ms"),
            app_real("bound_fraction", bound / s->median, ": %.2f of the bound"));
    app_put_machine(threads);
    app_end();
}

/* Measures tokens and bandwidth, and prints the result. */
static trm_status measure_generation(const app_context *app, const char *name, trm_model *model,
                                     trm_generator *generator, trm_error *err) {
    trm_exec_info info;
    trm_meter *meter;
    trm_machine_peak median, best;
    trm_exec_get_info(trm_model_exec(model), &info);
    double *seconds = calloc((size_t)app->o.repeats, sizeof *seconds);
    if (seconds == NULL) {
        return app_no_memory(err, "for %lld times", (long long)app->o.repeats);
    }
    trm_status status = trm_meter_create(info.threads, &meter, err);
    if (status == TRM_OK) {
        status = time_tokens(app, generator, meter, seconds, err);
        trm_meter_get_peaks(meter, &median, &best);
        trm_meter_destroy(meter);
    }
    if (status == TRM_OK) {
        app_sample s = app_summarise(seconds, app->o.repeats);
        tell_bench(app, name, &s, trm_generator_weight_bytes(generator),
                   median.memory[median.memory_count - 1].bytes_per_second[TRM_PEAK_READ],
                   info.threads);
    }
    free(seconds);
    return status;
}

/* Runs `bench generate`. */
int app_run_bench_generate(app_context *app) {
    trm_error err;
    const char *name = app->parsed.arguments[0];
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    trm_generator *generator = NULL;
    app_network network;
    trm_status status = check_generates(app, "bench generate", &err);
    if (status == TRM_OK) {
        app_settle_data(app);
    }
    status =
        status == TRM_OK ? open_generator(app, &data, &network, &model, &generator, &err) : status;
    if (status == TRM_OK && !app->o.dry_run) {
        status = measure_generation(app, name, model, generator, &err);
    } else if (status == TRM_OK) {
        app_print_dry_run(app, "nothing was measured");
    }
    trm_generator_destroy(generator);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
