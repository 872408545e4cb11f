/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts: generated from the table of commands, the groups of flags and the library's own
 * tables (models, options of the context), and the topics of `trireme help`. A flag that is added
 * to its group appears here by itself; only the topics are texts of their own.
 *
 * Help goes to stdout, also with --json, because it is the result that was asked for. A word that
 * is neither topic nor command ends with exit code 2 and names the nearest one. */
#include "app/models/models.h"

#include <stdio.h>
#include <string.h>

/* ---- commands -------------------------------------------------------------------------------- */

/* Prints the names of all models. */
static void print_models(void) {
    const app_model_kind *kind = NULL;
    const app_model *model;
    printf("\nMODEL:");
    for (int32_t i = 0; (model = app_model_at(i)) != NULL; i++) {
        if (model->kind != kind) {
            printf("%s %s", kind != NULL ? ";" : "", model->kind->title);
            kind = model->kind;
        }
        printf(" %s", model->name);
    }
    printf("\n");
}

/* Contract in app.h. Lists come from the tables, so they are complete by construction. */
void app_help_overview(const app_command *commands) {
    printf("trireme %s: trains deep networks on many devices from one C program, the same that "
           "trains on "
           "one\n\nUsage: trireme COMMAND [ARGUMENT] [--flag VALUE]\n\n",
           trm_version());
    for (const app_command *c = commands; c->name != NULL; c++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", c->name, c->arguments);
        printf("  %-20s %s\n", left, c->summary);
    }
    print_models();
    printf("\ntrireme COMMAND --help says more about each.\n"
           "Example: trireme train mlp --data synth --epochs 2\n");
}

/* Returns whether a command is "FAMILY ...". */
static bool of_family(const app_command *c, const char *family) {
    size_t length = strlen(family);
    return strncmp(c->name, family, length) == 0 && c->name[length] == ' ';
}

/* Contract in app.h. A family is the first word of several commands: "ps", "data", "cluster". */
bool app_help_family(const app_command *commands, const char *family, const char *flag) {
    bool any = false;
    for (const app_command *c = commands; c->name != NULL; c++) {
        any = any || of_family(c, family);
    }
    if (!any || flag == NULL || (strcmp(flag, "--help") != 0 && strcmp(flag, "-h") != 0)) {
        return false;
    }
    printf("trireme %s OBJECT [--flag VALUE]\n\n", family);
    for (const app_command *c = commands; c->name != NULL; c++) {
        if (of_family(c, family)) {
            printf("  %s %s\n      %s\n      Example: %s\n", c->name, c->arguments, c->summary,
                   c->example);
        }
    }
    printf("\ntrireme %s OBJECT --help says more about each.\n", family);
    return true;
}

/* Prints one flag and its sentence; a long flag has a line of its own. */
static void print_flag(const app_flag *flag) {
    const app_flag row = app_complete_row(flag), *f = &row;
    char left[160];
    const char *dashes = strlen(f->name) == 1 ? "-" : "--";
    bool optional = f->kind == APP_OPTIONAL;
    size_t length = strlen(f->help);
    bool has_default = f->fallback == NULL || (length > 0 && f->help[length - 1] == ')');
    snprintf(left, sizeof left, "%s%s%s%s%s", dashes, f->name,
             f->value == NULL ? ""
             : optional       ? " ["
                              : " ",
             f->value != NULL ? f->value : "", optional ? "]" : "");
    if (strlen(left) > 26) {
        printf("  %s\n", left);
        left[0] = '\0';
    }
    printf("  %-26s %s%s%s%s\n", left, f->help, has_default ? "" : " (",
           has_default ? "" : f->fallback, has_default ? "" : ")");
}

/* Prints the flags of a group. */
static void print_group(const app_group *group) {
    const app_flag *f;
    for (int i = 0; (f = app_group_flag(group, i)) != NULL; i++) {
        print_flag(f);
    }
}

/* Contract in app.h. The groups of the command come first, the flags of every command last. */
void app_help_command(const app_command *c) {
    bool behind = strncmp(c->arguments, "--", 2) == 0; /* another program's command line */
    printf("trireme %s %s%s%s\n    %s\n", c->name, behind ? "[--flag VALUE] " : c->arguments,
           behind || *c->arguments == '\0' ? "" : " ", behind ? c->arguments : "[--flag VALUE]",
           c->summary);
    if (c->text != NULL) {
        printf("\n%s\n", c->text);
    }
    if (strcmp(c->arguments, "MODEL") == 0) {
        print_models();
    }
    for (int g = 1; g < APP_GROUPS_MAX && c->groups[g] != NULL; g++) {
        const app_group *group = c->groups[g];
        printf("\n%s%s", group->title != NULL ? group->title : "",
               group->title != NULL ? "\n" : "");
        print_group(group);
    }
    printf("\n%s\n", c->groups[0]->title);
    print_group(c->groups[0]);
    printf("\nExample: %s\n", c->example);
}

/* ---- topics ---------------------------------------------------------------------------------- */

/* A text of `trireme help NAME`. */
typedef struct topic {
    const char *name, *text;
} topic;

/* Texts of `trireme help TOPIC`, which belong to no single command. */
static const topic TOPICS[] = {
    {"exit-codes",
     "Exit codes\n"
     "    0      done\n"
     "    1      the job failed (for instance: the loss became NaN), or a limit such as "
     "--min-busbw was missed\n"
     "    2      wrong use or configuration; trireme run and train -n: a rank failed, and the "
     "message names it and its exit code\n"
     "           (bench -n ends with the exit code of the rank itself)\n"
     "    3      bad data or file\n"
     "    4      out of memory or disk\n"
     "    5      a peer failed or timed out\n"
     "    128+n  ended by signal n; 130 (SIGINT), 143 (SIGTERM), 138 (SIGUSR1) after the step was "
     "finished and saved\n"
     "After 5, and after 128 and above, another start with --resume may succeed (Kubeflow's "
     "restartPolicy ExitCode reads 128 and above so).\n"
     "\n"
     "Signals of train and eval\n"
     "    SIGTERM, SIGINT   finish the step, save, end; a second one ends the process at once\n"
     "    SIGUSR1           the same, as an early warning (sbatch --signal=B:USR1@120); a SIGTERM "
     "after it counts as the first\n"
     "    SIGTERM, SIGUSR1  to one rank of --elastic: it leaves after the step, the others go on\n"
     "    SIGUSR2           print the state after this step (step, loss, speed, waiting, memory) "
     "and continue\n"
     "The launcher of -n passes them on to all ranks.\n"},
    {"data",
     "Data\n"
     "    The content of --data DIR decides the form: data_batch_1.bin or test_batch.bin: CIFAR-10 "
     "in its binary form; train-*-of-* or\n"
     "    validation-*-of-*: ImageNet as TFRecords; folders of .jpeg or .png: ImageFolder (in "
     "train and val or test, if they exist).\n"
     "    --dataset names the form where it is not clear. Without --data the variable DATA_PATH "
     "names the folder (train, eval).\n"
     "    --data synth generates ten classes of shapes, for machines without data or network.\n"
     "    Training reads the training part only; guide 002 reads all files, the test set too "
     "(--usage all).\n"
     "    CIFAR-10, training: crop of 32x32 with 4 pixels of padding, flip, resize if another size "
     "is given, scale to 0..1, normalise.\n"
     "    ImageNet, training: random resized crop, flip; evaluation: shorter side to 256/224 of "
     "the size, central crop.\n"
     "    Text: .bin files of token ids (nanoGPT's, llm.c's), .txt with --tokenizer DIR or "
     "--tokens "
     "characters|bytes, .jsonl with\n"
     "    --text-field. A sample is --context tokens and the token after each of them. The last 10 "
     "% "
     "of a file are the testing part,\n"
     "    unless the names of the files have the words train and val.\n"
     "    The order of samples depends on (seed, epoch), the augmentation of a sample on (seed, "
     "epoch, sample), never on threads.\n"},
    {"deterministic",
     "How far the same job gives the same bits\n"
     "    Always: the same seed, ranks, machine and choices of algorithms give the same losses and "
     "weights\n"
     "    again. The choices are measured for a third of a second, the rest is guessed; tuning.txt "
     "in the cache\n"
     "    keeps both, and choices.txt in --output what this run took: its --resume takes that "
     "again. Only\n"
     "    trireme bench measures later what was guessed.\n"
     "    --deterministic true: sums over ranks in a fixed order, whatever their timing.\n"
     "    --deterministic strict: the same bits on any number of ranks and threads, as long as "
     "ranks times\n"
     "    --batch-size is the same: a job of 4 ranks can be checked on, or continued by, one. "
     "Samples lie\n"
     "    in blocks of --deterministic-block, by default the largest power of 2 that cuts the "
     "global batch into\n"
     "    8 blocks or more, from 32 samples a block on into 64 or more; it must divide "
     "--batch-size on every\n"
     "    rank. Sums over samples are made block by block and added in a fixed tree. Batch norm is "
     "over the\n"
     "    global batch.\n"
     "    The price: algorithms follow a rule instead of measured times; between ranks a message "
     "for each\n"
     "    gradient and batch norm, and whole blocks to each rank where the number of ranks is no "
     "power of 2.\n"
     "    One process takes 1.1 to 1.5 times the time of the fast mode.\n"
     "    semi_auto_parallel and auto_parallel: the same bits under every plan and mesh, those of "
     "data_parallel and of\n"
     "    one process. Samples are cut where 2^k ranks have equal blocks; sums that are not over "
     "samples are made\n"
     "    whole: an operator that a plan cuts otherwise is cut by something else, which a warning "
     "names.\n"
     "    With synchronous parameter servers, also --hybrid: the same bits as one process, for any "
     "number of servers\n"
     "    and workers. Asynchronous servers are refused.\n"
     "    Evaluations, and --exact-guide, whose shuffle is each rank's own, agree to about 1e-5 "
     "only. Two kinds\n"
     "    of CPU may give different bits.\n"},
    {"clicks",
     "Recommendation models: widedeep, deepfm, dcnv2, dlrm (docs/guides/click-models.md)\n"
     "    --data DIR has train and test as .csv, .tsv, .txt or .libsvm. Criteo's and Avazu's forms "
     "are recognised; for other forms\n"
     "    --dataset csv --columns user:key,genres:bag,age:dense,liked:label names the columns and "
     "their roles.\n"
     "    Keys are hashed into --table-rows rows for each field, or numbered by --vocabulary "
     "(trireme data vocabulary). All fields\n"
     "    share one table: field f begins at row f * table-rows. Row 0 of a field is for missing "
     "and unknown values.\n"
     "    --data synth generates clicks from a planted model; evaluations then also print the best "
     "possible AUC.\n"
     "    Without --optimizer: widedeep adagrad 0.05, deepfm and dcnv2 adam 0.001, dlrm adagrad "
     "0.02; batches of 4096.\n"
     "    Evaluations have auc, logloss and calibration (mean prediction / mean label).\n"},
    {"text",
     "Language models: gpt2, llama (RMS norm, rotary positions, SwiGLU), moe (gpt2 with experts), "
     "bert (masked tokens)\n"
     "    --data FILE|DIR with --dataset text, jsonl or tokens; text needs --tokenizer DIR "
     "(trireme "
     "tokenizer train),\n"
     "    --tokens characters or --tokens bytes. --context N is the number of tokens of a sample "
     "(256).\n"
     "    --size names a published size; --layers, --width, --heads, --kv-heads, --hidden (4 times "
     "--width) and --vocabulary (the\n"
     "    tokenizer's, else 50257) set single numbers. Without --optimizer: adamw, rate 0.0006; "
     "batches of 12.\n"
     "    Evaluations have the loss of a token, perplexity, and bits per byte of the text where "
     "the "
     "bytes are known.\n"
     "    --lora r=16,alpha=32,targets=all trains adapters beside the weights of --init; export "
     "--to "
     "huggingface [--merge].\n"
     "    --recompute block keeps only the outputs of blocks and computes the rest again in "
     "backward.\n"
     "    Training keeps the tokenizer in OUTPUT/tokenizer, where eval, generate and export find "
     "it.\n"
     "    bert: --masking X of the tokens of a sample are to be predicted (0.15): 80 % are read as "
     "the mask token, 10 % as a random one,\n"
     "    10 % as they are. The mask token is --mask-token ID, the tokenizer's [MASK] or <mask>, "
     "else "
     "one id more than the tokenizer has.\n"
     "    [CLS] and [SEP] stand around samples if the tokenizer has them. --documents: each line "
     "or "
     "document is a sample of its own.\n"
     "    trireme train gpt2 --data input.txt --dataset text --tokens characters --context 64 "
     "--size "
     "tiny --steps 2000 --output runs/a\n"
     "    trireme generate gpt2 --checkpoint runs/a --prompt \"ROMEO:\" --temperature 0.8\n"},
    {"vit",
     "Vision transformer: vit, on the data of other models of images (trireme help data)\n"
     "    --size tiny, small, base or large; --patch N (16; 4 for images below 64x64) divides "
     "height "
     "and width of the images.\n"
     "    --layers, --width, --heads, --hidden (4 times --width) and --dropout set single numbers. "
     "Without --optimizer: adamw,\n"
     "    rate 0.0005. Names and initial values are those of transformers' "
     "ViTForImageClassification, whose folders\n"
     "    export --to huggingface writes, and import, --init and --checkpoint read.\n"
     "    trireme train vit --data cifar --size tiny --epochs 20 --schedule cosine --warmup-steps "
     "500 "
     "--output runs/v\n"},
    {"resume", "Stopping and continuing\n"
               "    With --output DIR checkpoints are written to DIR/ckpt-STEP: at the end of each "
               "epoch, or as --save-every-steps and\n"
               "    --save-every-seconds say, and when training ends or is stopped. A checkpoint "
               "is complete, or it does not exist.\n"
               "    --resume takes the newest undamaged checkpoint (damaged ones are named and "
               "skipped) and restores parameters, optimiser state,\n"
               "    running statistics, position in the data, schedule and random numbers: the "
               "result has the same bits as an undisturbed run.\n"
               "    --epochs and --steps count from the very beginning, not from the resume.\n"
               "    Other data, another network, precision, back-end or optimiser make another "
               "job, which is refused unless --accept-changes is\n"
               "    given; another learning rate, schedule, loss scale, clipping, number of epochs "
               "or way in which "
               "ranks share a step is a warning.\n"},
    {"roles",
     "Jobs with parameter servers: roles\n"
     "    trireme train MODEL ... -n 2 --ps 1 [--evaluator]    starts all roles on this machine "
     "and ends them together;\n"
     "    a role that dies is started again (--restarts). On several machines each process is "
     "started by itself, with\n"
     "    TF_CONFIG (both of TensorFlow's dialects, TFJob's forms) or --job_name, --task_index, "
     "--ps_hosts ... (guide 000's flags).\n"
     "    --check prints what a process would do.\n"
     "    ps         holds parameters and optimiser state, in memory and in OUTPUT/ps; ends when "
     "the chief ends the job. A server that\n"
     "               was killed and is started again has lost nothing that it had answered.\n"
     "    worker     trains and holds no state. A worker that comes after the end of the job ends "
     "at once with 0.\n"
     "    chief      (worker 0 where none is listed) also saves, writes summaries, waits for the "
     "other workers at the end, saves\n"
     "               last, ends the servers; where there is no evaluator it evaluates then.\n"
     "    evaluator  evaluates each checkpoint of OUTPUT, which is not removed meanwhile; ends "
     "after the last one.\n"
     "    --mode sync         the gradients of a batch of all workers are averaged: the numbers of "
     "one device with the whole batch.\n"
     "    --mode staleness=K  no worker is more than K batches ahead.\n"
     "    --mode async        each worker at its own pace; samples are lent in ranges, so that "
     "each is used once an epoch although\n"
     "                        workers come and go.\n"
     "    --steps counts the updates of all workers together. --batch-size is that of one worker. "
     "--resume continues with the state of\n"
     "    the servers; after a job that ended well, at any number of servers. More: "
     "docs/guides/from-guide-000.md\n"},
    {"events",
     "JSON events of train --json, one a line\n"
     "    "
     "{\"event\":\"start\",\"model\":..,\"parameters\":..,\"epoch_steps\":..,\"global_"
     "step\":..,...}\n"
     "    "
     "{\"event\":\"step\",\"epoch\":1,\"step\":1,\"global_step\":1,\"loss\":..,\"images_"
     "per_second\":..,\"learning_rate\":..}\n"
     "      (with --loss-scale also \"loss_scale\", \"skipped_updates\")\n"
     "    "
     "{\"event\":\"epoch\",\"epoch\":1,\"steps\":..,\"global_step\":..,\"loss\":..,"
     "\"seconds\":..,\"wait_seconds\":..}\n"
     "    "
     "{\"event\":\"eval\",\"epoch\":..,\"loss\":..,\"top1\":..,\"top5\":..,\"samples\":.."
     ",\"seconds\":..}\n"
     "    click models: samples_per_second for images_per_second; eval has auc, logloss, "
     "calibration (bayes_auc, bayes_logloss)\n"
     "    language models: tokens_per_second; eval has perplexity, bits_per_byte, accuracy, "
     "tokens\n"
     "    {\"event\":\"checkpoint\",\"path\":..,\"global_step\":..}\n"
     "    elastic jobs: "
     "{\"event\":\"membership\",\"epoch\":2,\"ranks\":..,\"spare\":..,\"lost\":[..],\"left\":[..],"
     "\"joined\":[..],\n"
     "      \"redone_steps\":..,\"seconds\":..,\"global_step\":..} (from a checkpoint also "
     "\"restored\"); of a rank that leaves \"left\"\n"
     "    "
     "{\"event\":\"done\",\"global_step\":..,\"seconds\":..,\"images_per_second\":..,"
     "\"peak_bytes\":..}\n"
     "      (after a signal also \"stopped\":true)\n"
     "    {\"event\":\"error\",\"status\":..,\"message\":..,\"exit_code\":..}\n"
     "    step also has step_seconds, data_wait_seconds, rank_wait_seconds (means since the report "
     "before) and peak_bytes.\n"
     "    With --output the events are also in run.jsonl there (rank N: run-rank-N.jsonl), with "
     "the "
     "time, log lines and "
     "options (trireme report, top).\n"
     "    Losses have 9 significant digits, so that equal bits print equal.\n"},
};
enum { TOPICS_COUNT = sizeof TOPICS / sizeof TOPICS[0] };

/* Prints the options of --context from the library's table. */
static void print_context(void) {
    trm_context_option o;
    printf(
        "Options of --context NAME=VALUE;NAME=VALUE, and of trm_context_set: MindSpore's names\n");
    for (int32_t i = 0; trm_context_option_at(i, &o); i++) {
        const app_flag *f = app_flag_of_option(o.name);
        printf("    %s%s%s = %s%s%s\n        %s. Modes: %s.%s%s%s\n", o.name,
               o.alias != NULL ? ", " : "", o.alias != NULL ? o.alias : "", o.values,
               o.fallback[0] != '\0' ? "; default " : "", o.fallback, o.meaning, o.modes,
               f != NULL ? " Flag: --" : "", f != NULL ? f->name : "", f != NULL ? "." : "");
    }
    printf("The defaults of the command line are parallel_mode=data_parallel and "
           "gradients_mean=true.\n");
}

/* Runs `help` for a topic, a command or a family of commands; names the nearest word if there is
 * none. */
int app_run_help(app_context *app) {
    trm_error err;
    const app_parsed *p = &app->parsed;
    if (p->arguments_count == 0) {
        app_help_overview(app->commands);
        return 0;
    }
    /* A topic or command has one or two words. A topic comes before a command of its name;
     * "context" is a topic whose text is a table of the library. */
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%s%s%s", p->arguments[0], p->arguments_count > 1 ? " " : "",
             p->arguments_count > 1 ? p->arguments[1] : "");
    for (int i = 0; i < TOPICS_COUNT; i++) {
        if (strcmp(TOPICS[i].name, wanted) == 0) {
            fputs(TOPICS[i].text, stdout);
            return 0;
        }
    }
    if (strcmp(wanted, "context") == 0) {
        print_context();
        return 0;
    }
    /* Find the command; all names are gathered for the nearest word. */
    enum { WORDS_MAX = 128 };
    const char *words[WORDS_MAX] = {"context"};
    int count = 1;
    for (int i = 0; i < TOPICS_COUNT; i++) {
        words[count++] = TOPICS[i].name;
    }
    for (const app_command *c = app->commands; c->name != NULL; c++) {
        if (strcmp(c->name, wanted) == 0) {
            app_help_command(c);
            return 0;
        }
        if (count < WORDS_MAX) {
            words[count++] = c->name;
        }
    }
    if (app_help_family(app->commands, wanted, "--help")) {
        return 0;
    }
    const char *nearest = trm_nearest_word(wanted, words, count);
    (void)app_fail(&err, TRM_INVALID, "no help on '%.60s'%s%s", wanted,
                   nearest != NULL ? "; the nearest is " : "; trireme help lists the commands",
                   nearest != NULL ? nearest : "");
    return app_report(&err);
}

/* Runs `version`: the version of the library, which is that of the program. */
int app_run_version(app_context *app) {
    (void)app;
    app_tell(APP_RESULT, "event", "version", app_text("version", trm_version(), "trireme %s"));
    return 0;
}
