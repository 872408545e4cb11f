/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, and the groups that commands accept. One row has everything about an
 * option: name, type, member of app_options, value, limits, default, help, and when it has an
 * effect. Options of parallel training are rows of the library's table (`trireme help context`):
 * the row here (OPTION) names that one and says only what differs on a command line.
 *
 *      row --> app_parse (flags.c), app_defaults, --help and manual pages (help.c), warnings about
 *              flags without effect (idle.c), --context (context.c)
 *
 * A new option is a row here and a member in app_options. A group names its rows; "output@export"
 * is the row of `output` with the tag `export`: the same name with another meaning. */
#include "app/app.h"

#include <stdlib.h>
#include <string.h>

/* name, member, value, limits, default, help; then by name: tag, use, context. The default is in
 * the words of the flag; NULL = 0 or none. Limits 0 and 0: any number. */
#define BOOL(flag, member, text, ...)                                                              \
    { .name = flag, APP_BOOL, offsetof(app_options, member), .help = text, __VA_ARGS__ }
#define INT(flag, member, form, least, most, preset, text, ...)                                    \
    {                                                                                              \
        .name = flag, APP_INT, offsetof(app_options, member), form, preset, text, least, most,     \
        __VA_ARGS__                                                                                \
    }
#define REAL(flag, member, form, least, most, preset, text, ...)                                   \
    {                                                                                              \
        .name = flag, APP_REAL, offsetof(app_options, member), form, preset, text, least, most,    \
        __VA_ARGS__                                                                                \
    }
#define BYTES(flag, member, text, ...)                                                             \
    { .name = flag, APP_BYTES, offsetof(app_options, member), "BYTES", .help = text, __VA_ARGS__ }
#define TEXT(flag, member, form, preset, text, ...)                                                \
    {                                                                                              \
        .name = flag, APP_TEXT, offsetof(app_options, member), form, preset, .help = text,         \
        __VA_ARGS__                                                                                \
    }
#define CHOICE(flag, member, words, preset, text, ...)                                             \
    {                                                                                              \
        .name = flag, APP_CHOICE, offsetof(app_options, member), words, preset, .help = text,      \
        __VA_ARGS__                                                                                \
    }

/* name, member, type, option of --context: what the row does not name is that option's, in the
 * library's table (trm_context_option_at). */
#define OPTION(flag, member, type, option, ...)                                                    \
    { .name = flag, type, offsetof(app_options, member), .context = option, __VA_ARGS__ }

/* clang-format off */
static const app_flag flag_table[] = {
    /* ---- Every command */
    BOOL("json", json, "one JSON object a line on stdout, nothing else"),
    BOOL("quiet", quiet, "no progress, no warnings"),
    BOOL("verbose", verbose, "print the log of the library too"),
    CHOICE("color", color, "auto|always|never", "auto", "colours on stderr"),
    BOOL("help", help, "this text"),
    /* ---- dry run */
    BOOL("dry-run", dry_run, "check everything, print what would run, change nothing"),
    /* ---- Data */
    TEXT("data", data, "DIR|synth", NULL, "folder of the data; synth: generated shapes or clicks"),
    CHOICE("dataset", dataset, "auto|cifar10|imagefolder|tfrecord|clicks|criteo|avazu|csv|libsvm|slots|tfrecord-clicks|tokens|text|jsonl", "auto", "form of the data; clicks: generated, with a known best AUC"),
    CHOICE("usage", usage, "train|test|all", NULL, "part of the data (train; eval: test)"),
    INT("workers", workers, "N", 1, 64, "1", "threads that prepare batches"),
    INT("synth-train", synth_train, "N", 1, 1e8, NULL, "samples of the generated training set (50000)", .use = "generated"),
    INT("synth-test", synth_test, "N", 1, 1e8, NULL, "samples of the generated test set (10000)", .use = "generated"),
    BOOL("exact-guide", fixed_recipe, "guide 002's settings: 224x224, batch 32, all files, its normalisation, rate 0.01, 10 epochs, sink"),
    /* ---- Network */
    INT("batch-size", batch_size, "N", 1, 65536, NULL, "samples of a batch (128; 32 for images of 128x128 or more; clicks 4096; text 12)"),
    INT("image-size", image_size, "N", 1, 8192, NULL, "height and width (CIFAR and synth 32, else 224)", .use = "images"),
    INT("classes", classes, "N", 2, 1e6, NULL, "outputs of the network (the dataset's, else 10)", .use = "images"),
    CHOICE("stem", stem, "imagenet|cifar", "imagenet", "first layers of a resnet", .use = "resnet"),
    /* ---- Execution */
    CHOICE("precision", precision, "fp32|mixed|origin|allow_mix_precision|must_keep_origin_dtype", "fp32", "precision of the arithmetic"),
    CHOICE("backend", backend, "onednn|ref", NULL, "kernels that compute (onednn)"),
    INT("threads", threads, "N", 1, 1024, NULL, "compute threads (as many as speed up a step; at most OMP_NUM_THREADS, or the CPUs of this process)"),
    INT("seed", seed, "N", 0, 9e15, "1", "seed of initial values, order, augmentation, dropout"),
    BOOL("no-fusion", no_fusion, "run each operator by itself, for comparison"),
    TEXT("tuning-file", tuning_file, "FILE", NULL, "file of measured kernel choices (in the cache)", .use = "!backend=ref:--backend onednn"),
    /* ---- Training */
    INT("epochs", epochs, "N", 1, 1e6, NULL, "passes over the data in total (1)", .use = "command=train:train"),
    INT("steps", steps, "N", 1, 1e12, NULL, "stop after N steps in total", .use = "command=train|verify|bench train:train and verify"),
    CHOICE("optimizer", optimizer, "momentum|sgd|nesterov|adam|adamw|lars|adagrad|ftrl", "momentum", "optimiser (momentum; click models: each its own; transformers adamw)"),
    REAL("learning-rate", learning_rate, "X", 1e-12, 1e3, "0.01", "learning rate after warm-up (0.01; click models: each its own; language models 0.0006; vit 0.0005)", .use = "command=train|verify|bench train:commands that train"),
    REAL("momentum", momentum, "X", 0, 0.99999, "0.9", "momentum, nesterov, lars: share of the last step that is repeated", .use = "optimizer=momentum|nesterov|lars"),
    REAL("weight-decay", weight_decay, "X", 0, 1, NULL, "weight decay; norms, biases and embeddings of tokens have none (0; adamw 0.01)"),
    TEXT("betas", betas, "A,B", NULL, "adam, adamw: decay of the moments (0.9,0.999)", .use = "optimizer=adam|adamw"),
    CHOICE("schedule", schedule, "constant|step|cosine|polynomial|wsd", "constant", "schedule of the learning rate; wsd: constant, at last linear", .use = "command=train|verify|bench train:commands that train"),
    INT("warmup-steps", warmup_steps, "N", 0, 1e12, NULL, "steps of linear warm-up from --warmup-start (0)", .use = "command=train|verify|bench train:commands that train"),
    REAL("warmup-start", warmup_start, "X", 0, 1e3, NULL, "learning rate before the first step (0)", .use = "command=train|verify|bench train:commands that train;warmup-steps"),
    REAL("end-learning-rate", end_learning_rate, "X", 0, 1e3, NULL, "cosine, polynomial, wsd: last learning rate (0)", .use = "command=train|verify|bench train:commands that train;schedule=cosine|polynomial|wsd"),
    INT("decay-steps", decay_steps, "N", 1, 1e12, NULL, "step: steps between decays (a third of all steps); wsd: steps of the last decay (a tenth)", .use = "command=train|verify|bench train:commands that train;schedule=step|wsd"),
    REAL("gamma", gamma, "X", 1e-9, 1, NULL, "step: factor of each decay (0.1)", .use = "command=train|verify|bench train:commands that train;schedule=step"),
    REAL("power", power, "X", 1e-3, 100, NULL, "polynomial: exponent (1)", .use = "command=train|verify|bench train:commands that train;schedule=polynomial"),
    CHOICE("loss", loss, "fused|expand", "fused", "loss as one operator, or as guide 002's small operators", .use = "images"),
    REAL("label-smoothing", label_smoothing, "X", 0, 0.999, NULL, "label smoothing (0)", .use = "images"),
    REAL("clip-norm", clip_norm, "X", 1e-12, 1e12, NULL, "limit of the global norm of the gradients (none)"),
    TEXT("loss-scale", loss_scale, "off|fixed[:X]|dynamic[:X]", NULL, "half precision: scale gradients by X until the update (off; X 65536)"),
    CHOICE("recompute", recompute, "off|block", NULL, "block: a block's values are computed again in backward instead of kept: less memory, more time, the same bits (off)"),
    OPTION("accumulate", accumulate, APP_INT, "grad_accumulation_step", .value = "N"),
    BOOL("sink", sink, "run each epoch without per-step reports; the same bits", .use = "command=train:train"),
    /* ---- Output */
    TEXT("output", output, "DIR", NULL, "folder for checkpoints and records (without it nothing is saved)"),
    BOOL("resume", resume, "continue the newest checkpoint of --output, if there is one"),
    BOOL("accept-changes", accept_changes, "resume although data, network, precision, backend or optimizer have changed"),
    TEXT("init", init, "FILE", NULL, "begin with the weights of a checkpoint or .safetensors file (with servers all roles must reach it)"),
    INT("save-every-steps", save_every_steps, "N", 1, 1e12, NULL, "steps between checkpoints (each epoch, and at the end); with --sink only at ends of epochs"),
    REAL("save-every-seconds", save_every_seconds, "N", 0.001, 1e9, NULL, "seconds between checkpoints, beside --save-every-steps or alone (none; with servers one of the two)"),
    INT("keep", keep, "N", 1, 1e6, "5", "newest checkpoints that are kept"),
    REAL("keep-every-hours", keep_every_hours, "H", 1e-6, 1e9, NULL, "also keep one checkpoint in H hours for ever (none; with servers 10000)"),
    INT("eval-every-epochs", eval_every_epochs, "N", 0, 1e6, NULL, "epochs between evaluations on the test set (at the end; 0: never)"),
    INT("early-stop", early_stop, "N", 1, 1e6, NULL, "stop after N evaluations without a better loss"),
    /* ---- Records */
    INT("log-every", log_every, "N", 1, 1e9, "20", "steps between reports; the first and the last step are reported too", .use = "!sink:training without --sink"),
    BOOL("tensorboard", tensorboard, "write an event file into --output"),
    INT("histogram-epochs", histogram_epochs, "N", 1, 1e6, NULL, "add histograms of the parameters every N epochs"),
    TEXT("metrics", metrics, "FILE", NULL, "write reported steps and evaluations to FILE.csv or FILE.jsonl"),
    TEXT("profile", profile, "FILE", NULL, "write the timeline of each rank for ui.perfetto.dev: kernels, waiting, communication, data"),
    /* ---- Weights */
    TEXT("checkpoint", checkpoint, "DIR|FILE", NULL, "a checkpoint, a folder of checkpoints, a .safetensors file or a Hugging Face folder"),
    /* ---- Predictions */
    TEXT("predictions", predictions, "FILE.npz", NULL, "write logits and label of each sample, for NumPy", .writes = APP_WRITES_FILE),
    /* ---- Export */
    CHOICE("to", to, "safetensors|onnx|npz|huggingface", NULL, "form of the file; huggingface: a folder for transformers, of a language model or vit"),
    TEXT("output", output, "FILE|DIR", NULL, "the file or folder to write", .tag = "export"),
    BOOL("merge", merge, "huggingface: add the adapters of --lora to the weights (write them alone, as peft loads them)"),
    BYTES("shard-bytes", shard_bytes, "huggingface: most bytes of a file of weights (5GB)"),
    /* ---- Import */
    TEXT("from", from, "FILE|DIR", NULL, "a .safetensors file with torchvision's names, or a Hugging Face folder"),
    TEXT("output", output, "DIR", NULL, "folder of the new checkpoint", .tag = "import", .writes = APP_WRITES_FOLDER),
    /* ---- Plan */
    BOOL("explain", explain, "print each program step: layout, kernel, memory, time", .use = "alone"),
    REAL("trial-seconds", plan_trial, "X", 0, 3600, NULL, "with -n: run plans with nearly equal predictions in turns, for at most X seconds; 0: predictions decide (as long as 240 steps, from 3 s to 40 s; 60 steps, if those take longer)", .use = "many"),
    BOOL("validate", plan_validate, "with -n: run plans and baselines and compare them with their predictions; with --refresh costs are measured again between the runs", .use = "many"),
    INT("repeats", repeats, "N", 3, 1e6, "10", "--validate: steps of each plan", .use = "validates"),
    INT("others", plan_others, "N", 0, 48, "16", "--validate: further plans to run", .use = "validates"),
    /* ---- Many ranks */
    INT("n", plan_ranks, "N", 1, 1 << 20, NULL, "ranks: print the best split of the model and the proof"),
    TEXT("mesh", plan_mesh, "2x4", NULL, "mesh of the ranks (default: every factorisation is searched)"),
    INT("host-count", plan_hosts, "N", 1, 1 << 16, NULL, "hosts of the ranks, for the choice of meshes (1)", .use = "many"),
    BYTES("memory", plan_memory, "memory limit of a rank, for instance 4GB"),
    TEXT("stages", plan_stages, "N|auto", NULL, "pipeline: search plans with N stages, or with any number of them that is better than none (models with blocks, -n of 64 at most: those that are 15 % faster than none); --mesh is then that of a stage, and the batch of all ranks stays the same", .tag = "plan", .use = "many"),
    INT("micro-batches", plan_micros, "N", 1, 65536, NULL, "equal parts of the batch of all ranks that go through the stages (any power of 2)", .tag = "plan", .use = "many;stages"),
    CHOICE("pipeline-schedule", plan_schedule, "1f1b|gpipe|interleaved", NULL, "order of the micro-batches (any)", .tag = "plan", .use = "many;stages"),
    INT("chunks", plan_chunks, "N", 1, 64, NULL, "runs of operators on each stage (any)", .tag = "plan", .use = "many;stages"),
    TEXT("stage-begins", plan_begins, "A,B", NULL, "operators with which the second and further runs begin: prices these stages (any)", .tag = "plan", .use = "many;stages"),
    CHOICE("search", plan_search, "optimal|recursive|propagation", NULL, "search algorithm (optimal)", .use = "many"),
    TEXT("links", plan_links, "FILE", NULL, "file of links of another machine; 'guess': do not measure messages", .use = "many"),
    TEXT("hardware", plan_hardware, "FILE", NULL, "hardware file of a machine that is not here (docs/reference/hardware-files.md): plans gpt2, llama and moe in the words of Megatron-LM; nothing is measured or allocated", .use = "many"),
    TEXT("preset", plan_preset, "NAME", NULL, "--hardware: a published model: llama 8b, 70b, 405b; gpt2 175b; moe deepseek-v3-shape ...", .tag = "hardware", .use = "hardware"),
    CHOICE("products", plan_products, "bf16|fp16|fp8|fp32", "bf16", "--hardware: type of the products", .use = "hardware"),
    CHOICE("export", plan_export, "torch|megatron|mindspore", NULL, "--hardware: write the plan (the one of --plan, if given) for another engine into --output", .use = "hardware"),
    TEXT("output", output, "DIR", NULL, "folder of --export", .tag = "hardware", .use = "export", .writes = APP_WRITES_FOLDER),
    TEXT("plan", plan_given, "FILE|WORDS", NULL, "a plan to compare with; its pinned operators are kept; --hardware: tp=8,pp=4,cp=1,micro-batch=1,recompute=full"),
    OPTION("full-batch", full_batch, APP_BOOL, "full_batch", .help = "--batch-size is that of all ranks together", .use = "many"),
    OPTION("wire", wire, APP_CHOICE, "gradient_wire", .use = "ranks;many"),
    OPTION("sync-batch-norm", sync_batch_norm, APP_CHOICE, "sync_batch_norm", .value = "on|off", .help = "batch norm over the samples of all ranks, or of each rank", .use = "many"),
    OPTION("shard-optimizer", shard_optimizer, APP_BOOL, "enable_parallel_optimizer", .help = "several hosts (--host-count, --links): each rank updates a slice of the optimiser, as train --shard-optimizer does", .use = "many"),
    OPTION("deterministic", deterministic, APP_OPTIONAL, "deterministic", .help = "plan jobs of train --deterministic: true stages whole sums, which takes memory; strict has fewer cuts", .tag = "plan", .use = "many;!hardware:jobs of trireme, without --hardware"),
    OPTION("deterministic-block", deterministic_block, APP_INT, "deterministic_block", .value = "N", .tag = "plan", .use = "many;deterministic=strict"),
    BOOL("no-measure", plan_no_measure, "price operators by the machine's rates only", .use = "many"),
    BOOL("refresh", plan_refresh, "measure operators and messages again and ignore the cache", .use = "many"),
    TEXT("save", plan_save, "FILE", NULL, "write the plan, for train --plan", .use = "many", .writes = APP_WRITES_FILE),
    TEXT("svg", plan_picture, "FILE", NULL, "write a picture: operators with their cuts, or stages, meshes and one step; FILE.dot: write a graph for Graphviz", .use = "many", .writes = APP_WRITES_FILE),
    /* ---- Pages */
    TEXT("html", html, "FILE", NULL, "write one page with mesh, timeline, memory and a table of operators, for a browser", .use = "many", .writes = APP_WRITES_FILE),
    TEXT("html", html, "FILE", NULL, "write one page with curves and tables, for a browser", .tag = "report", .writes = APP_WRITES_FILE),
    BOOL("once", once, "print the state once (as where stdout is no terminal)"),
    /* ---- Mesh */
    TEXT("mesh", plan_mesh, "8x16x32", NULL, "one mesh (default: 8, 2x4, 8x8 and 8x16x32)", .tag = "bench-plan"),
    /* ---- Plans */
    TEXT("plans", plan_given, "FILE,...", NULL, "plan files for this number of ranks"),
    BOOL("profile", plan_profile, "print each program step of rank 0 with its time", .tag = "bench-split"),
    /* ---- Simulation */
    TEXT("trace", plan_trace, "FILE", NULL, "write the step for chrome://tracing or Perfetto", .writes = APP_WRITES_FILE),
    REAL("straggler", plan_straggler, "X", 1, 1e6, "2", "slow rank: its operators take X times as long"),
    INT("largest", plan_largest, "N", 1, 1 << 20, "16384", "largest number of ranks in the scaling tables"),
    /* ---- Measuring */
    INT("repeats", repeats, "N", 3, 1e6, "10", "measurements; the median is reported", .tag = "bench"),
    /* ---- Model */
    CHOICE("preset", click.preset, "peer", NULL, "widedeep as measured for TensorFlow's Estimator: 26 tables of 100,000 x 16; language models as measured for PyTorch: 1,024 positions (bert 512), adamw 0.9,0.95 with decay 0.1, clip 1"),
    /* ---- Generated data */
    TEXT("output", output, "DIR", NULL, "folder to write", .tag = "synth", .writes = APP_WRITES_FOLDER),
    INT("synth-train", synth_train, "N", 1, 1e8, NULL, "training samples (50000)", .tag = "synth"),
    INT("synth-test", synth_test, "N", 1, 1e8, NULL, "test samples (10000)", .tag = "synth"),
    INT("seed", seed, "N", 0, 9e15, "1", "seed", .tag = "synth"),
    /* ---- Reading */
    BOOL("read", read, "read and decode each sample, and name all damaged ones"),
    /* ---- Many ranks */
    INT("n", ranks, "N", 1, 1024, NULL, "ranks on this machine, one process each; --batch-size is that of one rank (1)", .tag = "ranks"),
    OPTION("parallel-mode", parallel_mode, APP_CHOICE, "parallel_mode", .fallback = "", .help = "how ranks share the work; the last two modes split the graph operator by operator (data_parallel with many ranks)"),
    TEXT("plan", split_plan, "FILE", NULL, "semi_auto_parallel, auto_parallel: a plan from trireme plan --save", .tag = "ranks", .use = "ranks"),
    TEXT("mesh", split_mesh, "AxB", NULL, "semi_auto_parallel, auto_parallel: mesh of the ranks (the plan's; else searched, or one axis)", .tag = "ranks", .use = "ranks"),
    INT("global-batch", global_batch, "N", 1, 1 << 24, NULL, "samples of a step of all ranks, in place of --batch-size; with --elastic it stays when ranks change"),
    OPTION("full-batch", full_batch, APP_BOOL, "full_batch", .help = "semi_auto_parallel, auto_parallel: --batch-size is that of all ranks together", .tag = "ranks", .use = "ranks"),
    BYTES("memory", plan_memory, "memory limit of a rank, for instance 4GB: auto_parallel searches within it, one process recomputes results, other modes refuse a larger program", .tag = "ranks"),
    REAL("trial-seconds", plan_trial, "X", 0, 3600, NULL, "auto_parallel: run plans with nearly equal predictions in turns, for at most X seconds; 0: predictions decide (as long as 240 steps, from 3 s to 40 s; 60 steps, if those take longer)", .tag = "ranks", .use = "ranks;searched"),
    TEXT("stages", stages_text, "N|auto", NULL, "stages of a pipeline: runs of operators, each on its share of the ranks, which train it by --parallel-mode; auto_parallel: search plans with N stages, or with any number of them that is better than none (1; auto_parallel of models with blocks: those that are 15 % faster than none)", .use = "ranks"),
    OPTION("micro-batches", micro_batches, APP_INT, "grad_accumulation_step", .value = "N", .fallback = "", .help = "equal parts of --batch-size that go through the stages one behind the other; as --accumulate N with a batch as large as one of them (1)"),
    CHOICE("pipeline-schedule", pipeline_schedule, "1f1b|gpipe|interleaved", "1f1b", "order of the micro-batches; interleaved: several runs of operators on each stage", .use = "ranks;stages"),
    INT("chunks", chunks, "N", 1, 64, NULL, "runs of operators on each stage (2)", .use = "ranks;stages;pipeline-schedule=interleaved"),
    TEXT("stage-begins", stage_begins, "A,B", NULL, "operators with which the second and further runs begin (runs of equal time; trireme train --explain has the names)", .use = "ranks;stages"),
    OPTION("reduce", reduce, APP_CHOICE, "gradients_mean", .value = "mean|sum", .fallback = "mean", .help = "mean or sum of the ranks' gradients", .use = "ranks"),
    OPTION("bucket", bucket, APP_TEXT, "comm_fusion", .value = "auto|off|MB", .help = "megabytes of a message of gradients; or the numbers of the gradients before which a message ends: 20,35; one number: 20,", .use = "ranks"),
    OPTION("shard-optimizer", shard_optimizer, APP_BOOL, "enable_parallel_optimizer", .tag = "ranks", .use = "ranks"),
    OPTION("sync-batch-norm", sync_batch_norm, APP_TEXT, "sync_batch_norm", .tag = "ranks", .use = "normalises;ranks"),
    OPTION("layerwise", layerwise, APP_TEXT, "layerwise_parameters", .value = "A,B", .use = "ranks"),
    OPTION("deterministic", deterministic, APP_OPTIONAL, "deterministic", .help = "true: fixed order of sums, kernel choices kept in --output; strict: the same bits on any number of ranks; see trireme help deterministic"),
    OPTION("deterministic-block", deterministic_block, APP_INT, "deterministic_block", .value = "N"),
    TEXT("context", context, "N;A=B;C=D", NULL, "tokens a sample (256), options with MindSpore's names (trireme help context), or both"),
    TEXT("engine", engine, "auto|shm|tcp|ucx|mpi", NULL, "transport of the data; mpi under mpirun or srun (auto)", .use = "ranks"),
    TEXT("algorithm", algorithm, "NAME", NULL, "algorithm of collectives between hosts, in the forms of HCCL_ALGO: ring, level0:NA;level1:H-D_R (HCCL_ALGO, or by cost)", .use = "ranks"),
    TEXT("rank-table", rank_table, "FILE", NULL, "rank table (RANK_TABLE_FILE)"),
    TEXT("elastic", elastic, "LEAST:MOST", NULL, "the job goes on when ranks die or leave, while LEAST of them are left, and up to MOST join", .use = "ranks"),
    CHOICE("elastic-batch", elastic_batch, "global|rank", "global", "elastic: what stays when ranks change: the batch of all ranks, or that of each rank; then the learning rate is multiplied by ranks now / ranks at the beginning", .use = "ranks;elastic"),
    REAL("elastic-deadline", elastic_deadline, "S", 0.5, 1e6, "30", "elastic: a rank without a sign of life for so long is given up, and ended if it is on this machine", .use = "ranks;elastic"),
    INT("elastic-restarts", elastic_restarts, "N", 0, 1000, "0", "elastic: how often each rank that has died is started again, to join the others", .use = "ranks;elastic"),
    REAL("start-timeout", start_timeout, "S", 0.1, 1e6, NULL, "seconds for all ranks to meet; missing ranks are logged every 10 s (HCCL_CONNECT_TIMEOUT, or 120)", .use = "ranks"),
    TEXT("launch-dir", launch_directory, "DIR", NULL, "folder in which -n makes device0, device1 ... with the logs of the ranks (OUTPUT/logs, else .)", .use = "launched"),
    REAL("timeout", timeout, "S", 0.1, 1e9, NULL, "seconds after which the job fails (none)", .use = "launched"),
    /* ---- Comparison */
    TEXT("plan", split_plan, "FILE", NULL, "a plan from trireme plan --save (every operator by samples)", .tag = "verify", .use = "ranks"),
    TEXT("mesh", split_mesh, "AxB", NULL, "mesh of the ranks (the plan's; else one axis)", .tag = "verify", .use = "ranks"),
    REAL("tolerance", tolerance, "X", 1e-12, 1, NULL, "relative error that is always accepted (1e-5; mixed precision 2e-3)"),
    BOOL("bitwise", bitwise, "require equal bits (with --deterministic strict)"),
    OPTION("parallel-mode", parallel_mode, APP_CHOICE, "parallel_mode", .value = "semi_auto_parallel|auto_parallel", .fallback = "", .help = "auto_parallel searches the plan (semi_auto_parallel)", .tag = "verify"),
    OPTION("deterministic", deterministic, APP_OPTIONAL, "deterministic", .tag = "verify"),
    /* ---- Parameter servers */
    INT("ps", servers, "N", 1, 256, NULL, "start N parameter servers and -n workers on this machine"),
    TEXT("mode", mode, "sync|async|staleness=K", "async", "how far workers may run apart"),
    BOOL("staleness-aware", staleness_aware, "divide the learning rate of a late push by 1 + the updates since its rows were read: large networks, async and staleness=K"),
    INT("backup-workers", backup_workers, "N", 0, 255, NULL, "sync: a step does not wait for the slowest N workers; their gradients are in the next step"),
    BOOL("evaluator", evaluator, "also start a process that evaluates each checkpoint"),
    BOOL("hybrid", hybrid, "dense parameters are reduced among the workers; only tables are on servers"),
    CHOICE("lend", lend, "auto|always|never", "auto", "lend samples to workers in ranges, and to another worker when one dies (auto: async, or with backup workers)"),
    INT("hot-rows", hot_rows, "N", 0, 1e9, NULL, "rows of each embedding table that a worker keeps for some batches (none)"),
    INT("hot-age", hot_age, "K", 1, 1e6, NULL, "batches for which hot rows are kept; at most K with --mode staleness=K (1)"),
    CHOICE("placement", placement, "by_hash|round_robin|by_size", "by_hash", "placement of dense variables on servers (by_hash: rows are spread over all servers)"),
    INT("restarts", restarts, "N", 0, 1000, "3", "how often each role that dies is started again; never after exit code 1"),
    REAL("role-timeout", role_timeout, "S", 1, 1e6, NULL, "seconds to wait for a server or worker; a chief that is silent for half of them is replaced (120)"),
    INT("ps-shards", ps_shards, "N", 1, 256, NULL, "threads of a server that own rows (its CPUs)"),
    BYTES("ps-memory", ps_memory, "memory limit of one server (80 % of the machine's memory)"),
    TEXT("ps-spill", ps_spill, "DIR", NULL, "folder for cold rows beyond --ps-memory (without it they are evicted)"),
    BYTES("export-bytes", export_bytes, "largest tables that checkpoints contain, for evaluation (what fits on the disk twice)"),
    TEXT("tables", tables, "A=X,...;TABLE:B=Y", NULL, "options of all tables or of one (rows=bf16, optimizer, rate, admit=count:2, max-rows ...; wide*:optimizer=ftrl)"),
    BOOL("no-ps-log", no_ps_log, "keep no log: a killed server goes back to its last checkpoint"),
    CHOICE("export-latest", export_latest, "safetensors|npz|onnx", NULL, "export each evaluated checkpoint to OUTPUT/export/latest"),
    TEXT("export-best", export_best, "FORMAT[:METRIC]", NULL, "export the best checkpoint to OUTPUT/export/best, by loss, logloss, auc, accuracy or top5 (loss)"),
    CHOICE("export-final", export_final, "safetensors|npz|onnx", NULL, "export the last checkpoint to OUTPUT/export/final"),
    TEXT("job_name", job_name, "ps|worker|chief|evaluator", NULL, "the role of this process (guide 000)"),
    TEXT("task_index", task_index, "I", NULL, "index of this process in its role (0)"),
    TEXT("ps_hosts", ps_hosts, "A:P,B:P", NULL, "addresses of the servers"),
    TEXT("worker_hosts", worker_hosts, "A:P,B:P", NULL, "addresses of the workers"),
    TEXT("chief_hosts", chief_hosts, "A:P", NULL, "address of the chief, if there is one"),
    TEXT("evaluator_hosts", evaluator_hosts, "A:P", NULL, "address of the evaluator, if there is one"),
    TEXT("model_dir", output, "DIR", NULL, "guide 000's name of --output"),
    TEXT("token-file", token_file, "FILE", NULL, "file with the job's token, for roles on several hosts (MODEL_DIR/job.token, made by the first role)"),
    INT("summary-every", summary_every, "N", 1, 1e9, NULL, "steps between summaries for TensorBoard (100; with --tensorboard as --log-every)"),
    BOOL("check", check, "print what this process would do, and end"),
    /* ---- Job */
    INT("n", ranks, "N", 1, 1024, NULL, "ranks on this machine, one process each", .tag = "launch"),
    INT("threads", threads, "N", 1, 1024, NULL, "OMP_NUM_THREADS of each rank (its share of the CPUs)", .tag = "launch"),
    TEXT("rank-table", rank_table, "FILE", NULL, "RANK_TABLE_FILE of each rank", .tag = "launch"),
    TEXT("launch-dir", launch_directory, "DIR", NULL, "folder in which device0, device1 ... are made (.)", .tag = "launch"),
    TEXT("elastic", elastic, "LEAST:MOST", NULL, "ranks that die do not end the job while LEAST are left (for programs that call trm_elastic_create, and trireme train --elastic)", .tag = "launch"),
    INT("elastic-restarts", elastic_restarts, "N", 0, 1000, "0", "elastic: how often each rank that has died is started again, to join the others", .tag = "launch", .use = "elastic"),
    /* ---- Cluster */
    BOOL("any-address", any_address, "accept a table without an address of this host"),
    /* ---- Hosts */
    TEXT("hosts", hosts, "A:8,B:8", NULL, "hosts and their numbers of devices, in rank order"),
    CHOICE("to", to, "lab|v1", NULL, "guide 002's form, or version 1.0 (lab)", .tag = "cluster-make"),
    /* ---- Table */
    TEXT("output", output, "FILE", NULL, "file to write (standard output)", .tag = "cluster-output"),
    /* ---- Measuring */
    CHOICE("op", op, "allreduce|broadcast|reduce|allgather|reducescatter|alltoall|scatter|gather", "allreduce", "collective"),
    TEXT("sizes", sizes, "4,1K,64K,1M,8M", "4,1K,64K,1M,8M,102M", "bytes of the full vector"),
    CHOICE("dtype", dtype, "fp32|bf16|fp16|fp64|int8|int32|int64|uint8", NULL, "data type (fp32)"),
    CHOICE("redop", redop, "sum|mean|prod|max|min", "sum", "reduction of allreduce, reduce, reducescatter"),
    TEXT("algorithm", algorithm, "NAME", NULL, "algorithm between hosts or with tcp, ucx, mpi: ring, allreduce=ring/allgather=bruck (HCCL_ALGO, or by cost)", .tag = "bench-comm"),
    BOOL("private-buffers", private_buffers, "use private buffers instead of shared memory"),
    REAL("min-busbw", min_busbw, "GB/S", 0, 1e6, NULL, "fail (exit code 1) if the bus bandwidth of a size is lower"),
    /* ---- Measuring */
    INT("rows", rows, "N", 1, 1e12, NULL, "rows of the table (half the memory, at most 16 Mi)"),
    INT("batch-size", batch_size, "N", 1, 1e9, NULL, "keys of a call (65536)", .tag = "bench-ps"),
    INT("repeats", repeats, "N", 3, 1e6, "10", "measurements (7)", .tag = "bench-ps"),
    TEXT("output", output, "DIR", NULL, "also measure checkpoints in this folder", .tag = "bench-ps", .writes = APP_WRITES_FOLDER),
    INT("ps-shards", ps_shards, "N", 1, 256, NULL, "threads of the server that own rows (1; with --table-bytes the best number)", .tag = "bench-ps"),
    CHOICE("wire", wire, "fp32|bf16|fp16", "fp32", "type in which rows and gradients travel", .tag = "bench-ps"),
    BOOL("tcp-only", tcp_only, "use TCP on one host too"),
    BYTES("table-bytes", table_bytes, "instead fill and train a table of this size"),
    BYTES("ps-memory", ps_memory, "memory limit of that table; further rows are spilled to --output (the forecast and 5 %)", .tag = "bench-ps"),
    INT("row-width", row_width, "N", 1, 1048576, NULL, "numbers in a row of that table (16)"),
    TEXT("listen", listen, "HOST:PORT", NULL, "instead be the server of --connect until it has measured"),
    TEXT("connect", connect, "HOST:PORT", NULL, "measure with the server at this address"),
    TEXT("token-file", token_file, "FILE", NULL, "file with the token of both processes, needed between hosts", .tag = "bench-ps"),
    /* ---- Parameter servers */
    TEXT("table", table, "T", NULL, "name of the table"),
    INT("snapshot", snapshot, "N", 1, 4e9, NULL, "number of the snapshot (the newest)"),
    /* ---- Looking */
    TEXT("key", key, "K", NULL, "print one row of --table: slots, counts and last writers"),
    INT("top", top, "N", 1, 1e6, NULL, "print the N rows of --table with the most updates, and their part of all updates"),
    BOOL("prometheus", prometheus, "print counters of running servers in Prometheus' format"),
    TEXT("token-file", token_file, "FILE", NULL, "file with the token of the running job, needed between hosts", .tag = "ps-inspect"),
    /* ---- Export */
    TEXT("output", output, "FILE", NULL, "the file to write: .npz or .safetensors", .tag = "ps-export", .writes = APP_WRITES_FILE),
    /* ---- Click data */
    INT("table-rows", click.table_rows, "N", 2, 1e12, NULL, "rows of the table for each field: hash buckets, or keys of generated clicks (100000)"),
    TEXT("vocabulary", click.vocabulary, "FILE", NULL, "file of trireme data vocabulary: number values instead of hashing them"),
    TEXT("field-tables", click.field_tables, "NAME=FIELDS[:WIDTH],...", NULL, "fields with tables of their own (user=0:8,item=1+3-5); separate: one table for each field (one table for all)"),
    TEXT("columns", click.columns, "NAME:ROLE,...", NULL, "csv, tfrecord-clicks: columns and their roles label, dense, key, bag, skip"),
    CHOICE("separator", click.separator, "comma|tab|semicolon|space|bar", "comma", "csv: separator of columns"),
    CHOICE("header", click.header, "auto|yes|no", "auto", "csv: the first line names the columns"),
    INT("bag-max", click.bag_max, "N", 1, 65536, NULL, "largest number of keys in a bag (16)"),
    REAL("label-threshold", click.label_threshold, "X", -1e9, 1e9, NULL, "labels of this value or more count as 1 (ratings)"),
    CHOICE("dense-form", click.dense_form, "default|raw|log", "default", "form of dense inputs; log: log(1 + x), negative values as 0 (criteo log, others raw)"),
    INT("fields", click.fields, "N", 1, 512, NULL, "generated clicks: key fields (26)"),
    INT("dense", click.dense, "N", 0, 4096, NULL, "generated clicks: dense inputs (13)"),
    REAL("zipf", click.zipf, "X", 0.01, 9.9, NULL, "generated clicks: exponent of the keys' frequencies (1.1)"),
    REAL("click-rate", click.click_rate, "X", 0.001, 0.999, NULL, "generated clicks: share of clicks (0.25)"),
    REAL("key-scale", click.key_scale, "X", 0.001, 99, NULL, "generated clicks: standard deviation of the keys' part of the logit (1)"),
    REAL("dense-scale", click.dense_scale, "X", 0.001, 99, NULL, "generated clicks: ... of the dense inputs' part (0.5)"),
    REAL("pair-scale", click.pair_scale, "X", 0, 99, NULL, "generated clicks: ... of the part of pairs of keys (0.5)"),
    /* ---- Recommendation models */
    INT("embedding-width", click.width, "N", 1, 65536, NULL, "values of a row of the table (16)"),
    TEXT("hidden", click.hidden, "A,B,...", NULL, "widths of the layers before the logit, or none (each model its own)"),
    TEXT("bottom", click.bottom, "A,B,...", NULL, "dlrm: widths of the dense inputs' layers (512,256,64)"),
    CHOICE("pooling", click.pooling, "sum|mean|sqrtn", "sum", "how the rows of a bag are combined"),
    INT("cross-layers", click.cross_layers, "N", 1, 64, NULL, "dcnv2: number of cross layers (3)"),
    INT("cross-rank", click.cross_rank, "N", 1, 65536, NULL, "dcnv2: rank of the cross matrices (full)"),
    BOOL("stacked", click.stacked, "dcnv2: the deep part reads the output of the cross part"),
    BOOL("no-wide-dense", click.no_wide_dense, "widedeep, deepfm: dense inputs go to the deep part only"),
    /* ---- Data */
    CHOICE("dataset", dataset, "auto|criteo|avazu|csv|libsvm|slots|tfrecord-clicks", "auto", "form of the data", .tag = "dataset"),
    /* ---- Vocabulary */
    INT("min-count", click.min_count, "N", 1, 1e12, "2", "values with fewer occurrences count as unknown"),
    TEXT("output", output, "FILE", NULL, "file to write", .tag = "vocabulary", .writes = APP_WRITES_FILE),
    /* ---- Text */
    TEXT("tokenizer", tokenizer, "DIR", NULL, "text, jsonl: a tokenizer's folder (trireme tokenizer train)"),
    CHOICE("tokens", tokens, "characters|bytes", NULL, "text, jsonl: instead of a tokenizer"),
    INT("stride", stride, "N", 1, 1 << 24, NULL, "tokens from one sample's begin to the next one's (the context)"),
    BOOL("documents", transformer.documents, "text, jsonl: each line or document is a sample of its own"),
    TEXT("text-field", text_field, "NAME", NULL, "jsonl: the field with the text (text)", .use = "json-lines"),
    /* ---- text context */
    INT("context", context_tokens, "N", 1, 1 << 24, NULL, "tokens a sample (256)", .tag = "text-context"),
    /* ---- Transformers */
    TEXT("size", transformer.size, "NAME", NULL, "published size: layers, width and heads; gpt2, moe: small, medium, large, xl, tiny (4, 128, 4); llama: llama15m, llama110m, 1b, 8b; bert: base, large, medium, small, mini, tiny; vit: tiny, small, base, large"),
    INT("layers", transformer.layers, "N", 1, 4096, NULL, "number of blocks (12)"),
    INT("width", transformer.width, "N", 1, 1 << 20, NULL, "values of a position (768)"),
    INT("heads", transformer.heads, "N", 1, 1 << 16, NULL, "heads of attention (12)"),
    INT("hidden", transformer.hidden, "N", 1, 1 << 24, NULL, "width of a block's inner layer (4 times --width)", .tag = "transformer"),
    REAL("dropout", transformer.dropout, "X", 0, 0.99, NULL, "rate of dropout (0)"),
    /* ---- Vision transformers */
    INT("patch", transformer.patch, "N", 1, 8192, NULL, "height and width of a patch, which divide those of the image (16; images below 64x64: 4)"),
    /* ---- Language models */
    INT("kv-heads", transformer.kv_heads, "N", 1, 1 << 16, NULL, "heads of keys and values (as many as --heads)"),
    REAL("rotary-theta", transformer.rotary_theta, "X", 1, 1e12, NULL, "llama: base of the rotary angles (10000)", .use = "llama"),
    BOOL("untied", transformer.untied, "llama: the output layer has weights of its own", .use = "llama"),
    BOOL("lazy-embedding", transformer.lazy_embedding, "llama --untied: only the token embeddings of the batch are updated, on servers as a table (all)", .use = "llama"),
    INT("experts", transformer.experts, "N", 1, 1 << 16, NULL, "moe: experts of a block (8)", .use = "experts"),
    INT("top-experts", transformer.top_experts, "N", 1, 1 << 16, NULL, "moe: experts that compute a token (2)", .use = "experts"),
    REAL("masking", transformer.masking, "X", 1e-3, 0.99, NULL, "bert: share of the tokens that are to be predicted (0.15)", .use = "masked"),
    INT("mask-token", transformer.mask_token, "ID", 1, 1 << 24, NULL, "bert: the id that stands for masked tokens (the tokenizer's [MASK] or <mask>, else the last id of the vocabulary)", .use = "masked"),
    CHOICE("boundary-tokens", transformer.boundary_tokens, "on|off", NULL, "bert: [CLS] and [SEP], or <s> and </s>, around samples (on, if the tokenizer has them)", .use = "masked"),
    REAL("balance", transformer.balance, "X", 1e-9, 1000, NULL, "moe: factor of the load balance in the training loss (0.01)", .use = "experts"),
    TEXT("lora", transformer.lora, "r=N[,alpha=X][,dropout=X][,targets=NAME+...]", NULL, "train adapters of rank N beside frozen weights, times alpha/N (N); targets: attention, mlp, all, or layers such as q_proj (attention)"),
    INT("vocabulary", transformer.vocabulary, "N", 1, 1 << 24, NULL, "number of tokens (the tokenizer's, else 50257; bert 30522)", .tag = "language"),
    /* ---- Text */
    TEXT("prompt", prompt, "TEXT", NULL, "text to continue (the token between documents, or a line end)"),
    TEXT("prompt-file", prompt_file, "FILE", NULL, "the prompt, at most 1 MB"),
    INT("tokens", generate_tokens, "N", 1, 1e9, "200", "most tokens to generate; the token that ends documents ends them earlier", .tag = "generate"),
    REAL("temperature", temperature, "X", 0, 1000, NULL, "divides the logits; 0: the most probable token (0; with --top-k or --top-p 1)"),
    INT("top-k", top_k, "N", 1, 1 << 24, NULL, "draw from the N most probable tokens only"),
    REAL("top-p", top_p, "X", 1e-6, 1, NULL, "draw from the fewest tokens that have probability X together"),
    TEXT("tokenizer", tokenizer, "DIR", NULL, "the tokenizer's folder (the one beside the checkpoint)", .tag = "generate"),
    /* ---- Tokenizer */
    INT("vocabulary", token_vocabulary, "N", 256, 1 << 24, NULL, "tokens: special ones, 256 bytes and merges (needed)", .tag = "tokenizer-train"),
    TEXT("output", output, "DIR", NULL, "the folder to write (needed)", .tag = "tokenizer-train", .writes = APP_WRITES_FOLDER),
    INT("min-count", token_min_count, "N", 1, 1e12, NULL, "pairs that come less often are not merged (2)", .tag = "tokenizer-train"),
    TEXT("special-tokens", special_tokens, "A,B,...", NULL, "never split, e.g. '<|endoftext|>'"),
    /* ---- Tokenizer */
    TEXT("tokenizer", tokenizer, "DIR", NULL, "with tokenizer.json, or vocab.json and merges.txt (needed)", .tag = "tokenizer"),
    TEXT("output", output, "FILE", NULL, "write there instead of stdout", .tag = "tokenizer-encode", .writes = APP_WRITES_FILE),
    TEXT("output", output, "FILE", NULL, "write there instead of stdout", .tag = "tokenizer-decode"),
    BOOL("lines", by_line, "encode: each line for itself, without its end; its ids on a line"),
    {.name = NULL},
};

#define GROUP(group, title, kind, names) const app_group app_group_##group = {title, names, flag_table, kind}
GROUP(common, "Every command", NULL, "json quiet verbose color help");
GROUP(plain, "Every command", NULL, "color help");
GROUP(dry_run, NULL, NULL, "dry-run");
GROUP(data, "Data", NULL, "data dataset usage workers synth-train synth-test exact-guide");
GROUP(network, "Network", NULL, "batch-size image-size classes stem");
GROUP(exec, "Execution", NULL, "precision backend threads seed no-fusion tuning-file");
GROUP(train, "Training", NULL, "epochs steps optimizer learning-rate momentum weight-decay betas schedule warmup-steps warmup-start end-learning-rate decay-steps gamma power loss label-smoothing clip-norm loss-scale accumulate recompute sink");
GROUP(output, "Output", NULL, "output resume accept-changes init save-every-steps save-every-seconds keep keep-every-hours eval-every-epochs early-stop");
GROUP(log, "Records", NULL, "log-every tensorboard histogram-epochs metrics profile");
GROUP(checkpoint, "Weights", NULL, "checkpoint");
GROUP(eval, "Predictions", NULL, "predictions");
GROUP(export, "Export", NULL, "to output@export merge shard-bytes");
GROUP(import, "Import", NULL, "from output@import");
GROUP(plan, "Plan", NULL, "explain trial-seconds validate repeats others");
GROUP(planner, "Many ranks", NULL, "n mesh host-count memory stages@plan micro-batches@plan pipeline-schedule@plan chunks@plan stage-begins@plan search links hardware preset@hardware products export output@hardware plan full-batch wire sync-batch-norm shard-optimizer deterministic@plan deterministic-block@plan no-measure refresh save svg html");
/* of plan and simulate: what plans for --hardware read; app_run_hardware refuses all others */
GROUP(hardware, NULL, NULL, "json quiet verbose color help dry-run size layers width heads hidden@transformer kv-heads untied experts top-experts vocabulary@language context@text-context preset@hardware batch-size full-batch n mesh memory hardware products wire plan export output@hardware svg html save links largest");
GROUP(bench_plan, "Mesh", NULL, "mesh@bench-plan");
GROUP(bench_split, "Plans", NULL, "plans wire sync-batch-norm profile@bench-split");
GROUP(report, "Page", NULL, "html@report");
GROUP(top, "Screen", NULL, "once");
GROUP(simulate, "Simulation", NULL, "trace straggler largest");
GROUP(bench, "Measuring", NULL, "repeats@bench");
GROUP(preset, "Model", NULL, "preset");
GROUP(synth, "Generated data", NULL, "output@synth synth-train@synth synth-test@synth seed@synth");
GROUP(info, "Reading", NULL, "read");
GROUP(ranks, "Many ranks", NULL, "n@ranks parallel-mode plan@ranks mesh@ranks global-batch full-batch@ranks memory@ranks trial-seconds@ranks stages micro-batches pipeline-schedule chunks stage-begins reduce wire bucket shard-optimizer@ranks sync-batch-norm@ranks layerwise deterministic deterministic-block context engine algorithm rank-table elastic elastic-batch elastic-deadline elastic-restarts start-timeout launch-dir timeout");
GROUP(verify, "Comparison", NULL, "plan@verify mesh@verify stages micro-batches pipeline-schedule chunks stage-begins tolerance bitwise parallel-mode@verify deterministic@verify full-batch wire context");
GROUP(job, "Many ranks", NULL, "n@ranks rank-table launch-dir timeout");
GROUP(roles, "Parameter servers", NULL, "ps mode staleness-aware backup-workers evaluator hybrid lend hot-rows hot-age placement restarts role-timeout ps-shards ps-memory ps-spill export-bytes tables no-ps-log export-latest export-best export-final job_name task_index ps_hosts worker_hosts chief_hosts evaluator_hosts model_dir token-file summary-every check");
GROUP(launch, "Job", NULL, "n@launch threads@launch rank-table@launch elastic@launch elastic-restarts@launch launch-dir@launch timeout");
GROUP(cluster, "Cluster", NULL, "rank-table any-address");
GROUP(cluster_make, "Hosts", NULL, "hosts to@cluster-make");
GROUP(cluster_output, "Table", NULL, "output@cluster-output");
GROUP(bench_comm, "Measuring", NULL, "n@launch op sizes dtype redop engine algorithm@bench-comm private-buffers min-busbw start-timeout launch-dir timeout");
GROUP(bench_ps, "Measuring", NULL, "rows batch-size@bench-ps repeats@bench-ps output@bench-ps role-timeout ps-shards@bench-ps wire@bench-ps tcp-only table-bytes ps-memory@bench-ps row-width listen connect token-file@bench-ps");
GROUP(ps, "Parameter servers", NULL, "table snapshot");
GROUP(ps_inspect, "Looking", NULL, "key top prometheus token-file@ps-inspect");
GROUP(ps_export, "Export", NULL, "output@ps-export");
GROUP(click_data, "Click data", "clicks", "table-rows vocabulary field-tables columns separator header bag-max label-threshold dense-form fields dense zipf click-rate key-scale dense-scale pair-scale");
GROUP(click_model, "Recommendation models", "clicks", "embedding-width hidden bottom pooling cross-layers cross-rank stacked no-wide-dense");
GROUP(dataset, "Data", NULL, "dataset@dataset");
GROUP(vocabulary, "Vocabulary", NULL, "min-count output@vocabulary");
GROUP(text_data, "Text", "text", "tokenizer tokens stride documents text-field");
GROUP(text_context, "Samples of text", NULL, "context@text-context");
GROUP(transformer, "Transformers", "text|patches of images", "size layers width heads hidden@transformer dropout lora");
GROUP(vit, "Vision transformers", "patches of images", "patch");
GROUP(language, "Language models", "text", "kv-heads rotary-theta untied lazy-embedding experts top-experts balance masking mask-token boundary-tokens vocabulary@language");
GROUP(generate, "Text", NULL, "prompt prompt-file tokens@generate temperature top-k top-p tokenizer@generate");
GROUP(tokenizer_train, "Tokenizer", NULL, "vocabulary@tokenizer-train output@tokenizer-train min-count@tokenizer-train special-tokens");
GROUP(tokenizer_encode, "Tokenizer", NULL, "tokenizer@tokenizer output@tokenizer-encode lines");
GROUP(tokenizer_decode, "Tokenizer", NULL, "tokenizer@tokenizer output@tokenizer-decode lines");
/* clang-format on */

/* Contract in app.h. -1 stands for "not given" where 0 is a value. */
void app_defaults(app_options *o) {
    memset(o, 0, sizeof *o);
    for (const app_flag *f = flag_table; f->name != NULL; f++) {
        const char *fallback = app_complete_row(f).fallback;
        if (fallback != NULL) {
            (void)!app_store(f, fallback, o, NULL);
        }
    }
    o->plan_trial = -1;
    o->eval_every_epochs = -1;
    o->click.fields = o->click.dense = -1;
    o->click.pair_scale = -1;
}

const app_flag *app_flag_of_option(const char *option) {
    const app_flag *f = flag_table;
    while (f->name != NULL && (f->context == NULL || strcmp(f->context, option) != 0)) {
        f++;
    }
    return f->name != NULL ? f : NULL;
}

trm_usage app_usage(const app_options *o, trm_usage otherwise) {
    return o->usage == NULL                 ? otherwise
           : strcmp(o->usage, "train") == 0 ? TRM_USAGE_TRAIN
           : strcmp(o->usage, "test") == 0  ? TRM_USAGE_TEST
                                            : TRM_USAGE_ALL;
}

bool app_is_job(const app_context *app) {
    const app_options *o = &app->o;
    const char *text = getenv("TF_CONFIG");
    return o->servers > 0 || o->job_name != NULL || o->task_index != NULL || o->ps_hosts != NULL ||
           o->evaluator || o->evaluator_hosts != NULL ||
           (text != NULL && strstr(text, "\"ps\"") != NULL);
}
