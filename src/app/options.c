/* SPDX-License-Identifier: Apache-2.0 */
/* All flags in the groups that commands accept, each with its limits and the sentence that
 * --help prints; at the end the defaults. A new flag needs a row here, a member in app_options
 * and, unless the default is zero, a line in app_defaults. */
#include "app/app.h"

#include <stdlib.h>
#include <string.h>

#define OPTION(member) offsetof(app_options, member)
#define GROUP(name, title, table)                                                                  \
    const app_group app_group_##name = {title, table, sizeof(table) / sizeof((table)[0])}

static const app_flag COMMON[] = {
    {"json", APP_BOOL, OPTION(json), NULL, "one JSON object a line on stdout, nothing else", 0, 0},
    {"quiet", APP_BOOL, OPTION(quiet), NULL, "no progress, no warnings", 0, 0},
    {"verbose", APP_BOOL, OPTION(verbose), NULL, "print the log of the library too", 0, 0},
    {"color", APP_CHOICE, OPTION(color), "auto|always|never", "colours on stderr (auto)", 0, 0},
    {"help", APP_BOOL, OPTION(help), NULL, "this text", 0, 0},
};
GROUP(common, "Every command", COMMON);

/* for commands that print text only */
static const app_flag PLAIN[] = {
    {"color", APP_CHOICE, OPTION(color), "auto|always|never", "colours on stderr (auto)", 0, 0},
    {"help", APP_BOOL, OPTION(help), NULL, "this text", 0, 0},
};
GROUP(plain, "Every command", PLAIN);

static const app_flag DRY_RUN[] = {
    {"dry-run", APP_BOOL, OPTION(dry_run), NULL,
     "check everything, print what would run, change nothing", 0, 0},
};
GROUP(dry_run, NULL, DRY_RUN);

/* data, network, execution, training: for commands that build a model */
static const app_flag DATA[] = {
    {"data", APP_TEXT, OPTION(data), "DIR|synth",
     "folder of the data; synth: generated shapes or clicks", 0, 0},
    {"dataset", APP_CHOICE, OPTION(dataset),
     "auto|cifar10|imagefolder|tfrecord|clicks|criteo|avazu|csv|libsvm|slots|tfrecord-clicks|"
     "tokens|text|jsonl",
     "form of the data (auto); clicks: generated, with a known best AUC", 0, 0},
    {"usage", APP_CHOICE, OPTION(usage), "train|test|all", "part of the data (train; eval: test)",
     0, 0},
    {"workers", APP_INT, OPTION(workers), "N", "threads that prepare batches (1)", 1, 64},
    {"synth-train", APP_INT, OPTION(synth_train), "N",
     "samples of the generated training set (50000)", 1, 1e8},
    {"synth-test", APP_INT, OPTION(synth_test), "N", "samples of the generated test set (10000)", 1,
     1e8},
    {"exact-guide", APP_BOOL, OPTION(exact_guide), NULL,
     "guide 002's settings: 224x224, batch 32, all files, its normalisation, rate 0.01, 10 epochs, "
     "sink",
     0, 0},
};
GROUP(data, "Data", DATA);

static const app_flag NETWORK[] = {
    {"batch-size", APP_INT, OPTION(batch_size), "N",
     "samples of a batch (128; 32 for images of 128x128 or more; clicks 4096; text 12)", 1, 65536},
    {"image-size", APP_INT, OPTION(image_size), "N",
     "height and width (CIFAR and synth 32, else 224)", 1, 8192},
    {"classes", APP_INT, OPTION(classes), "N", "outputs of the network (the dataset's, else 10)", 2,
     1e6},
    {"stem", APP_CHOICE, OPTION(stem), "imagenet|cifar", "first layers of a resnet (imagenet)", 0,
     0},
};
GROUP(network, "Network", NETWORK);

static const app_flag EXEC[] = {
    {"precision", APP_CHOICE, OPTION(precision),
     "fp32|mixed|origin|allow_mix_precision|must_keep_origin_dtype",
     "precision of the arithmetic (fp32)", 0, 0},
    {"backend", APP_CHOICE, OPTION(backend), "onednn|ref", "kernels that compute (onednn)", 0, 0},
    {"threads", APP_INT, OPTION(threads), "N",
     "compute threads (as many as speed up a step; at most OMP_NUM_THREADS, or the CPUs of this "
     "process)",
     1, 1024},
    {"seed", APP_INT, OPTION(seed), "N", "seed of initial values, order, augmentation, dropout (1)",
     0, 9e15},
    {"no-fusion", APP_BOOL, OPTION(no_fusion), NULL, "run each operator by itself, for comparison",
     0, 0},
    {"tuning-file", APP_TEXT, OPTION(tuning_file), "FILE",
     "file of measured kernel choices (in the cache)", 0, 0},
};
GROUP(exec, "Execution", EXEC);

static const app_flag TRAIN[] = {
    {"epochs", APP_INT, OPTION(epochs), "N", "passes over the data in total (1)", 1, 1e6},
    {"steps", APP_INT, OPTION(steps), "N", "stop after N steps in total", 1, 1e12},
    {"optimizer", APP_CHOICE, OPTION(optimizer),
     "momentum|sgd|nesterov|adam|adamw|lars|adagrad|ftrl",
     "optimiser (momentum; click models: each its own; language models adamw)", 0, 0},
    {"learning-rate", APP_REAL, OPTION(learning_rate), "X",
     "learning rate after warm-up (0.01; click models: each its own; language models 0.0006)",
     1e-12, 1e3},
    {"momentum", APP_REAL, OPTION(momentum), "X", "momentum (0.9)", 0, 0.99999},
    {"weight-decay", APP_REAL, OPTION(weight_decay), "X",
     "weight decay; norms, biases and embeddings of tokens have none (0; adamw 0.01)", 0, 1},
    {"betas", APP_TEXT, OPTION(betas), "A,B", "adam, adamw: decay of the moments (0.9,0.999)", 0,
     0},
    {"schedule", APP_CHOICE, OPTION(schedule), "constant|step|cosine|polynomial|wsd",
     "schedule of the learning rate; wsd: constant, at last linear (constant)", 0, 0},
    {"warmup-steps", APP_INT, OPTION(warmup_steps), "N",
     "steps of linear warm-up from --warmup-start (0)", 0, 1e12},
    {"warmup-start", APP_REAL, OPTION(warmup_start), "X", "learning rate before the first step (0)",
     0, 1e3},
    {"end-learning-rate", APP_REAL, OPTION(end_learning_rate), "X",
     "cosine, polynomial, wsd: last learning rate (0)", 0, 1e3},
    {"decay-steps", APP_INT, OPTION(decay_steps), "N",
     "step: steps between decays (a third of all steps); wsd: steps of the last decay (a tenth)", 1,
     1e12},
    {"gamma", APP_REAL, OPTION(gamma), "X", "step: factor of each decay (0.1)", 1e-9, 1},
    {"power", APP_REAL, OPTION(power), "X", "polynomial: exponent (1)", 1e-3, 100},
    {"loss", APP_CHOICE, OPTION(loss), "fused|expand",
     "loss as one operator, or as guide 002's small operators (fused)", 0, 0},
    {"label-smoothing", APP_REAL, OPTION(label_smoothing), "X", "label smoothing (0)", 0, 0.999},
    {"clip-norm", APP_REAL, OPTION(clip_norm), "X",
     "limit of the global norm of the gradients (none)", 1e-12, 1e12},
    {"loss-scale", APP_TEXT, OPTION(loss_scale), "off|fixed[:X]|dynamic[:X]",
     "half precision: scale gradients by X until the update (off; X 65536)", 0, 0},
    {"accumulate", APP_INT, OPTION(accumulate), "N", "batches for one update (1)", 1, 65536},
    {"sink", APP_BOOL, OPTION(sink), NULL, "run each epoch without per-step reports; the same bits",
     0, 0},
};
GROUP(train, "Training", TRAIN);

/* files that commands read and write */
static const app_flag OUTPUT[] = {
    {"output", APP_TEXT, OPTION(output), "DIR",
     "folder for checkpoints and records (without it nothing is saved)", 0, 0},
    {"resume", APP_BOOL, OPTION(resume), NULL,
     "continue the newest checkpoint of --output, if there is one", 0, 0},
    {"accept-changes", APP_BOOL, OPTION(accept_changes), NULL,
     "resume although data, network, precision, backend or optimizer have changed", 0, 0},
    {"init", APP_TEXT, OPTION(init), "FILE",
     "begin with the weights of a checkpoint or .safetensors file (with servers all roles must "
     "reach it)",
     0, 0},
    {"save-every-steps", APP_INT, OPTION(save_every_steps), "N",
     "steps between checkpoints (each epoch, and at the end); with --sink only at ends of epochs",
     1, 1e12},
    {"save-every-seconds", APP_REAL, OPTION(save_every_seconds), "N", "", 0.001, 1e9},
    {"keep", APP_INT, OPTION(keep), "N", "newest checkpoints that are kept (5)", 1, 1e6},
    {"keep-every-hours", APP_REAL, OPTION(keep_every_hours), "H",
     "also keep one checkpoint in H hours for ever (none; with servers 10000)", 1e-6, 1e9},
    {"eval-every-epochs", APP_INT, OPTION(eval_every_epochs), "N",
     "epochs between evaluations on the test set (at the end; 0: never)", 0, 1e6},
    {"early-stop", APP_INT, OPTION(early_stop), "N",
     "stop after N evaluations without a better loss", 1, 1e6},
};
GROUP(output, "Output", OUTPUT);

static const app_flag LOG[] = {
    {"log-every", APP_INT, OPTION(log_every), "N",
     "steps between reports (20); the first and the last step are reported too", 1, 1e9},
    {"tensorboard", APP_BOOL, OPTION(tensorboard), NULL, "write an event file into --output", 0, 0},
    {"histogram-epochs", APP_INT, OPTION(histogram_epochs), "N",
     "add histograms of the parameters every N epochs", 1, 1e6},
    {"metrics", APP_TEXT, OPTION(metrics), "FILE",
     "write reported steps and evaluations to FILE.csv or FILE.jsonl", 0, 0},
    {"profile", APP_TEXT, OPTION(profile), "FILE",
     "write the timeline of each rank for ui.perfetto.dev: kernels, waiting, communication, data",
     0, 0},
};
GROUP(log, "Records", LOG);

static const app_flag CHECKPOINT[] = {
    {"checkpoint", APP_TEXT, OPTION(checkpoint), "DIR|FILE",
     "a checkpoint, a folder of checkpoints, a .safetensors file or a Hugging Face folder", 0, 0},
};
GROUP(checkpoint, "Weights", CHECKPOINT);
static const app_flag EVAL[] = {
    {"predictions", APP_TEXT, OPTION(predictions), "FILE.npz",
     "write logits and label of each sample, for NumPy", 0, 0},
};
GROUP(eval, "Predictions", EVAL);

static const app_flag EXPORT[] = {
    {"to", APP_CHOICE, OPTION(to), "safetensors|onnx|npz|huggingface",
     "form of the file; huggingface: a folder for transformers, of a language model", 0, 0},
    {"output", APP_TEXT, OPTION(output), "FILE|DIR", "the file or folder to write", 0, 0},
    {"shard-bytes", APP_BYTES, OPTION(shard_bytes), "BYTES",
     "huggingface: most bytes of a file of weights (5GB)", 1, 1e15},
};
GROUP(export, "Export", EXPORT);

static const app_flag IMPORT[] = {
    {"from", APP_TEXT, OPTION(from), "FILE|DIR",
     "a .safetensors file with torchvision's names, or a Hugging Face folder", 0, 0},
    {"output", APP_TEXT, OPTION(output), "DIR", "folder of the new checkpoint", 0, 0},
};
GROUP(import, "Import", IMPORT);

/* the planner */
static const app_flag PLAN[] = {
    {"explain", APP_BOOL, OPTION(explain), NULL,
     "print each program step: layout, kernel, memory, time", 0, 0},
    {"trial-seconds", APP_REAL, OPTION(plan_trial), "X",
     "with -n: run plans with nearly equal predictions in turns, for at most X seconds; 0: "
     "predictions decide (10; 40 for long steps)",
     0, 3600},
    {"validate", APP_BOOL, OPTION(plan_validate), NULL,
     "with -n: run plans and baselines and compare them with their predictions; with --refresh "
     "costs are measured again between the runs",
     0, 0},
    {"repeats", APP_INT, OPTION(repeats), "N", "--validate: steps of each plan (10)", 3, 1e6},
    {"others", APP_INT, OPTION(plan_others), "N", "--validate: further plans to run (16)", 0, 48},
};
GROUP(plan, "Plan", PLAN);

static const app_flag PLANNER[] = {
    {"n", APP_INT, OPTION(plan_ranks), "N",
     "ranks: print the best split of the model and the proof", 1, 1 << 20},
    {"mesh", APP_TEXT, OPTION(plan_mesh), "2x4",
     "mesh of the ranks (default: every factorisation is searched)", 0, 0},
    {"host-count", APP_INT, OPTION(plan_hosts), "N",
     "hosts of the ranks, for the choice of meshes (1)", 1, 1 << 16},
    {"memory", APP_BYTES, OPTION(plan_memory), "BYTES", "memory limit of a rank, for instance 4GB",
     0, 0},
    {"search", APP_CHOICE, OPTION(plan_search), "optimal|recursive|propagation",
     "search algorithm (optimal)", 0, 0},
    {"links", APP_TEXT, OPTION(plan_links), "FILE",
     "file of links of another machine; 'guess': do not measure messages", 0, 0},
    {"plan", APP_TEXT, OPTION(plan_given), "FILE",
     "a plan to compare with; its pinned operators are kept", 0, 0},
    {"full-batch", APP_BOOL, OPTION(full_batch), NULL, "--batch-size is that of all ranks together",
     0, 0},
    {"wire", APP_CHOICE, OPTION(wire), "fp32|bf16|fp16", "type in which gradients travel (fp32)", 0,
     0},
    {"sync-batch-norm", APP_CHOICE, OPTION(sync_batch_norm), "on|off",
     "batch norm over the samples of all ranks, or of each rank (on)", 0, 0},
    {"shard-optimizer", APP_BOOL, OPTION(shard_optimizer), NULL,
     "several hosts (--host-count, --links): each rank updates a slice of the optimiser, as train "
     "--shard-optimizer does",
     0, 0},
    {"no-measure", APP_BOOL, OPTION(plan_no_measure), NULL,
     "price operators by the machine's rates only", 0, 0},
    {"refresh", APP_BOOL, OPTION(plan_refresh), NULL,
     "measure operators and messages again and ignore the cache", 0, 0},
    {"save", APP_TEXT, OPTION(plan_save), "FILE", "write the plan, for train --plan", 0, 0},
    {"svg", APP_TEXT, OPTION(plan_picture), "FILE",
     "write a picture; FILE.dot: write a graph for Graphviz", 0, 0},
};
GROUP(planner, "Many ranks", PLANNER);

/* bench plan, bench split */
static const app_flag BENCH_PLAN[] = {
    {"mesh", APP_TEXT, OPTION(plan_mesh), "8x16x32", "one mesh (default: 8, 2x4, 8x8 and 8x16x32)",
     0, 0},
};
GROUP(bench_plan, "Mesh", BENCH_PLAN);

static const app_flag BENCH_SPLIT[] = {
    {"plans", APP_TEXT, OPTION(plan_given), "FILE,...", "plan files for this number of ranks", 0,
     0},
    {"wire", APP_CHOICE, OPTION(wire), "fp32|bf16|fp16", "type in which gradients travel (fp32)", 0,
     0},
    {"sync-batch-norm", APP_CHOICE, OPTION(sync_batch_norm), "on|off",
     "batch norm over the samples of all ranks, or of each rank (on)", 0, 0},
    {"profile", APP_BOOL, OPTION(plan_profile), NULL,
     "print each program step of rank 0 with its time", 0, 0},
};
GROUP(bench_split, "Plans", BENCH_SPLIT);

static const app_flag SIMULATE[] = {
    {"trace", APP_TEXT, OPTION(plan_trace), "FILE",
     "write the step for chrome://tracing or Perfetto", 0, 0},
    {"straggler", APP_REAL, OPTION(plan_straggler), "X",
     "slow rank: its operators take X times as long (2)", 1, 1e6},
    {"largest", APP_INT, OPTION(plan_largest), "N",
     "largest number of ranks in the scaling tables (16384)", 1, 1 << 20},
};
GROUP(simulate, "Simulation", SIMULATE);

/* every bench command */
static const app_flag BENCH[] = {
    {"repeats", APP_INT, OPTION(repeats), "N", "measurements; the median is reported (10)", 3, 1e6},
};
GROUP(bench, "Measuring", BENCH);

static const app_flag PRESET[] = {
    {"preset", APP_CHOICE, OPTION(click.preset), "peer",
     "widedeep as measured for TensorFlow's Estimator: 26 tables of 100,000 x 16; gpt2 as measured "
     "for PyTorch: 1,024 positions, adamw 0.9,0.95 with decay 0.1, clip 1",
     0, 0},
};
GROUP(preset, "Model", PRESET);

static const app_flag SYNTH[] = {
    {"output", APP_TEXT, OPTION(output), "DIR", "folder to write", 0, 0},
    {"synth-train", APP_INT, OPTION(synth_train), "N", "training samples (50000)", 1, 1e8},
    {"synth-test", APP_INT, OPTION(synth_test), "N", "test samples (10000)", 1, 1e8},
    {"seed", APP_INT, OPTION(seed), "N", "seed (1)", 0, 9e15},
};
GROUP(synth, "Generated data", SYNTH);

static const app_flag INFO[] = {
    {"read", APP_BOOL, OPTION(read), NULL, "read and decode each sample, and name all damaged ones",
     0, 0},
};
GROUP(info, "Reading", INFO);

/* training on many ranks */
static const app_flag RANKS[] = {
    {"n", APP_INT, OPTION(ranks), "N",
     "ranks on this machine, one process each; --batch-size is that of one rank (1)", 1, 1024},
    {"parallel-mode", APP_CHOICE, OPTION(parallel_mode),
     "stand_alone|data_parallel|hybrid_parallel|semi_auto_parallel|auto_parallel",
     "how ranks share the work; the last two modes split the graph operator by operator "
     "(data_parallel with many ranks)",
     0, 0},
    {"plan", APP_TEXT, OPTION(split_plan), "FILE",
     "semi_auto_parallel, auto_parallel: a plan from trireme plan --save", 0, 0},
    {"mesh", APP_TEXT, OPTION(split_mesh), "AxB",
     "semi_auto_parallel, auto_parallel: mesh of the ranks (the plan's; else searched, or one "
     "axis)",
     0, 0},
    {"full-batch", APP_BOOL, OPTION(full_batch), NULL,
     "semi_auto_parallel, auto_parallel: --batch-size is that of all ranks together", 0, 0},
    {"memory", APP_BYTES, OPTION(plan_memory), "BYTES",
     "memory limit of a rank, for instance 4GB: auto_parallel searches within it, one process "
     "recomputes results, other modes refuse a larger program",
     0, 0},
    {"trial-seconds", APP_REAL, OPTION(plan_trial), "X",
     "auto_parallel: run plans with nearly equal predictions in turns, for at most X seconds; 0: "
     "predictions decide (10; 40 for long steps)",
     0, 3600},
    {"reduce", APP_CHOICE, OPTION(reduce), "mean|sum", "mean or sum of the ranks' gradients (mean)",
     0, 0},
    {"wire", APP_CHOICE, OPTION(wire), "fp32|bf16|fp16", "type in which gradients travel (fp32)", 0,
     0},
    {"bucket", APP_TEXT, OPTION(bucket), "auto|off|MB",
     "size of the messages of gradients; or a list of cuts: 20,35, (auto)", 0, 0},
    {"shard-optimizer", APP_BOOL, OPTION(shard_optimizer), NULL,
     "each rank keeps and updates a slice of the optimiser; the same bits (on one host)", 0, 0},
    {"sync-batch-norm", APP_TEXT, OPTION(sync_batch_norm), "off|on|GROUP",
     "batch norm over the samples of all ranks, of each rank, or of groups of GROUP ranks (on)", 0,
     0},
    {"layerwise", APP_TEXT, OPTION(layerwise), "A,B",
     "hybrid_parallel: parameters that each rank keeps for itself", 0, 0},
    {"deterministic", APP_OPTIONAL, OPTION(deterministic), "false|true|strict",
     "true: fixed order of sums, kernel choices kept in --output; strict: the same bits on any "
     "number of ranks (false)",
     0, 0},
    {"deterministic-block", APP_INT, OPTION(deterministic_block), "N",
     "strict: samples computed together (trireme help deterministic)", 1, 65536},
    {"context", APP_TEXT, OPTION(context), "N|A=B;C=D",
     "tokens a sample (256); or options with MindSpore's names (trireme help context)", 0, 0},
    {"engine", APP_TEXT, OPTION(engine), "auto|shm|tcp|ucx|mpi",
     "transport of the data; mpi under mpirun or srun (auto)", 0, 0},
    {"algorithm", APP_TEXT, OPTION(algorithm), "NAME",
     "algorithm of collectives between hosts, in the forms of HCCL_ALGO: ring, "
     "level0:NA;level1:H-D_R (HCCL_ALGO, or by cost)",
     0, 0},
    {"rank-table", APP_TEXT, OPTION(rank_table), "FILE", "rank table (RANK_TABLE_FILE)", 0, 0},
    {"start-timeout", APP_REAL, OPTION(start_timeout), "S",
     "seconds for all ranks to meet; missing ranks are logged every 10 s (HCCL_CONNECT_TIMEOUT, or "
     "120)",
     0.1, 1e6},
    {"launch-dir", APP_TEXT, OPTION(launch_directory), "DIR",
     "folder in which -n makes device0, device1 ... with the logs of the ranks (OUTPUT/logs, else "
     ".)",
     0, 0},
    {"timeout", APP_REAL, OPTION(timeout), "S", "seconds after which the job fails (none)", 0.1,
     1e9},
};
GROUP(ranks, "Many ranks", RANKS);

static const app_flag VERIFY[] = {
    {"plan", APP_TEXT, OPTION(split_plan), "FILE",
     "a plan from trireme plan --save (every operator by samples)", 0, 0},
    {"mesh", APP_TEXT, OPTION(split_mesh), "AxB", "mesh of the ranks (the plan's; else one axis)",
     0, 0},
    {"tolerance", APP_REAL, OPTION(tolerance), "X",
     "relative error that is always accepted (1e-5; mixed precision 2e-3)", 1e-12, 1},
    {"bitwise", APP_BOOL, OPTION(bitwise), NULL, "require equal bits (with --deterministic strict)",
     0, 0},
    {"parallel-mode", APP_CHOICE, OPTION(parallel_mode), "semi_auto_parallel|auto_parallel",
     "auto_parallel searches the plan (semi_auto_parallel)", 0, 0},
    {"deterministic", APP_OPTIONAL, OPTION(deterministic), "false|true|strict",
     "as in train (false)", 0, 0},
    {"full-batch", APP_BOOL, OPTION(full_batch), NULL, "--batch-size is that of all ranks together",
     0, 0},
    {"wire", APP_CHOICE, OPTION(wire), "fp32|bf16|fp16", "type in which gradients travel (fp32)", 0,
     0},
    {"context", APP_TEXT, OPTION(context), "N|A=B;C=D",
     "tokens a sample (256); or options with MindSpore's names (trireme help context)", 0, 0},
};
GROUP(verify, "Comparison", VERIFY);

/* the options of ranks for commands other than train */
static const app_flag JOB[] = {
    {"n", APP_INT, OPTION(ranks), "N",
     "ranks on this machine, one process each; --batch-size is that of one rank (1)", 1, 1024},
    {"rank-table", APP_TEXT, OPTION(rank_table), "FILE", "rank table (RANK_TABLE_FILE)", 0, 0},
    {"launch-dir", APP_TEXT, OPTION(launch_directory), "DIR",
     "folder in which -n makes device0, device1 ... with the logs of the ranks (OUTPUT/logs, else "
     ".)",
     0, 0},
    {"timeout", APP_REAL, OPTION(timeout), "S", "seconds after which the job fails (none)", 0.1,
     1e9},
};
GROUP(job, "Many ranks", JOB);

/* jobs with parameter servers */
static const app_flag ROLES[] = {
    {"ps", APP_INT, OPTION(servers), "N",
     "start N parameter servers and -n workers on this machine", 1, 256},
    {"mode", APP_TEXT, OPTION(mode), "sync|async|staleness=K",
     "how far workers may run apart (async)", 0, 0},
    {"staleness-aware", APP_BOOL, OPTION(staleness_aware), NULL,
     "divide the learning rate of a late push by 1 + the updates since its rows were read: large "
     "networks, async and staleness=K",
     0, 0},
    {"backup-workers", APP_INT, OPTION(backup_workers), "N",
     "sync: a step does not wait for the slowest N workers; their gradients are in the next step",
     0, 255},
    {"evaluator", APP_BOOL, OPTION(evaluator), NULL,
     "also start a process that evaluates each checkpoint", 0, 0},
    {"hybrid", APP_BOOL, OPTION(hybrid), NULL,
     "dense parameters are reduced among the workers; only tables are on servers", 0, 0},
    {"lend", APP_CHOICE, OPTION(lend), "auto|always|never",
     "lend samples to workers in ranges, and to another worker when one dies (auto: async, or with "
     "backup workers)",
     0, 0},
    {"hot-rows", APP_INT, OPTION(hot_rows), "N",
     "rows of each embedding table that a worker keeps for some batches (none)", 0, 1e9},
    {"hot-age", APP_INT, OPTION(hot_age), "K",
     "batches for which hot rows are kept; at most K with --mode staleness=K (1)", 1, 1e6},
    {"placement", APP_CHOICE, OPTION(placement), "by_hash|round_robin|by_size",
     "placement of dense variables on servers (by_hash: rows are spread over all servers)", 0, 0},
    {"restarts", APP_INT, OPTION(restarts), "N",
     "how often each role that dies is started again; never after exit code 1 (3)", 0, 1000},
    {"role-timeout", APP_REAL, OPTION(role_timeout), "S",
     "seconds to wait for a server or worker; a chief that is silent for half of them is replaced "
     "(120)",
     1, 1e6},
    {"ps-shards", APP_INT, OPTION(ps_shards), "N", "threads of a server that own rows (its CPUs)",
     1, 256},
    {"ps-memory", APP_BYTES, OPTION(ps_memory), "BYTES",
     "memory limit of one server (80 % of the machine's memory)", 1e6, 1e15},
    {"ps-spill", APP_TEXT, OPTION(ps_spill), "DIR",
     "folder for cold rows beyond --ps-memory (without it they are evicted)", 0, 0},
    {"export-bytes", APP_BYTES, OPTION(export_bytes), "BYTES",
     "largest tables that checkpoints contain, for evaluation (what fits on the disk twice)", 1,
     1e18},
    {"tables", APP_TEXT, OPTION(tables), "A=X,...;TABLE:B=Y",
     "options of all tables or of one (rows=bf16, optimizer, rate, admit=count:2, max-rows ...; "
     "wide*:optimizer=ftrl)",
     0, 0},
    {"no-ps-log", APP_BOOL, OPTION(no_ps_log), NULL,
     "keep no log: a killed server goes back to its last checkpoint", 0, 0},
    {"export-latest", APP_CHOICE, OPTION(export_latest), "safetensors|npz|onnx",
     "export each evaluated checkpoint to OUTPUT/export/latest", 0, 0},
    {"export-best", APP_TEXT, OPTION(export_best), "FORMAT[:METRIC]",
     "export the best checkpoint to OUTPUT/export/best, by loss, logloss, auc, accuracy or top5 "
     "(loss)",
     0, 0},
    {"export-final", APP_CHOICE, OPTION(export_final), "safetensors|npz|onnx",
     "export the last checkpoint to OUTPUT/export/final", 0, 0},
    {"job_name", APP_TEXT, OPTION(job_name), "ps|worker|chief|evaluator",
     "the role of this process (guide 000)", 0, 0},
    {"task_index", APP_TEXT, OPTION(task_index), "I", "index of this process in its role (0)", 0,
     0},
    {"ps_hosts", APP_TEXT, OPTION(ps_hosts), "A:P,B:P", "addresses of the servers", 0, 0},
    {"worker_hosts", APP_TEXT, OPTION(worker_hosts), "A:P,B:P", "addresses of the workers", 0, 0},
    {"chief_hosts", APP_TEXT, OPTION(chief_hosts), "A:P", "address of the chief, if there is one",
     0, 0},
    {"evaluator_hosts", APP_TEXT, OPTION(evaluator_hosts), "A:P",
     "address of the evaluator, if there is one", 0, 0},
    {"model_dir", APP_TEXT, OPTION(output), "DIR", "guide 000's name of --output", 0, 0},
    {"token-file", APP_TEXT, OPTION(token_file), "FILE",
     "file with the job's token, for roles on several hosts (MODEL_DIR/job.token, made by the "
     "first role)",
     0, 0},
    {"summary-every", APP_INT, OPTION(summary_every), "N",
     "steps between summaries for TensorBoard (100; with --tensorboard as --log-every)", 1, 1e9},
    {"check", APP_BOOL, OPTION(check), NULL, "print what this process would do, and end", 0, 0},
};
GROUP(roles, "Parameter servers", ROLES);

/* run: the launcher alone */
static const app_flag LAUNCH[] = {
    {"n", APP_INT, OPTION(ranks), "N", "ranks on this machine, one process each", 1, 1024},
    {"threads", APP_INT, OPTION(threads), "N",
     "OMP_NUM_THREADS of each rank (its share of the CPUs)", 1, 1024},
    {"rank-table", APP_TEXT, OPTION(rank_table), "FILE", "RANK_TABLE_FILE of each rank", 0, 0},
    {"launch-dir", APP_TEXT, OPTION(launch_directory), "DIR",
     "folder in which device0, device1 ... are made (.)", 0, 0},
    {"timeout", APP_REAL, OPTION(timeout), "S", "seconds after which the job fails (none)", 0.1,
     1e9},
};
GROUP(launch, "Job", LAUNCH);

/* rank tables */
static const app_flag CLUSTER[] = {
    {"rank-table", APP_TEXT, OPTION(rank_table), "FILE", "rank table (RANK_TABLE_FILE)", 0, 0},
    {"any-address", APP_BOOL, OPTION(any_address), NULL,
     "accept a table without an address of this host", 0, 0},
};
GROUP(cluster, "Cluster", CLUSTER);

static const app_flag CLUSTER_MAKE[] = {
    {"hosts", APP_TEXT, OPTION(hosts), "A:8,B:8",
     "hosts and their numbers of devices, in rank order", 0, 0},
    {"to", APP_CHOICE, OPTION(to), "lab|v1", "guide 002's form, or version 1.0 (lab)", 0, 0},
};
GROUP(cluster_make, "Hosts", CLUSTER_MAKE);

static const app_flag CLUSTER_OUTPUT[] = {
    {"output", APP_TEXT, OPTION(output), "FILE", "file to write (standard output)", 0, 0},
};
GROUP(cluster_output, "Table", CLUSTER_OUTPUT);

/* bench comm, bench ps */
static const app_flag BENCH_COMM[] = {
    {"n", APP_INT, OPTION(ranks), "N", "ranks on this machine, one process each", 1, 1024},
    {"op", APP_CHOICE, OPTION(op),
     "allreduce|broadcast|reduce|allgather|reducescatter|alltoall|scatter|gather",
     "collective (allreduce)", 0, 0},
    {"sizes", APP_TEXT, OPTION(sizes), "4,1K,64K,1M,8M",
     "bytes of the full vector (4,1K,64K,1M,8M,102M)", 0, 0},
    {"dtype", APP_CHOICE, OPTION(dtype), "fp32|bf16|fp16|fp64|int8|int32|int64|uint8",
     "data type (fp32)", 0, 0},
    {"redop", APP_CHOICE, OPTION(redop), "sum|mean|prod|max|min",
     "reduction of allreduce, reduce, reducescatter (sum)", 0, 0},
    {"engine", APP_TEXT, OPTION(engine), "auto|shm|tcp|ucx|mpi",
     "transport of the data; mpi under mpirun or srun (auto)", 0, 0},
    {"algorithm", APP_TEXT, OPTION(algorithm), "NAME",
     "algorithm between hosts or with tcp, ucx, mpi: ring, allreduce=ring/allgather=bruck "
     "(HCCL_ALGO, or by cost)",
     0, 0},
    {"private-buffers", APP_BOOL, OPTION(private_buffers), NULL,
     "use private buffers instead of shared memory", 0, 0},
    {"min-busbw", APP_REAL, OPTION(min_busbw), "GB/S",
     "fail (exit code 1) if the bus bandwidth of a size is lower", 0, 1e6},
    {"start-timeout", APP_REAL, OPTION(start_timeout), "S",
     "seconds for all ranks to meet; missing ranks are logged every 10 s (HCCL_CONNECT_TIMEOUT, or "
     "120)",
     0.1, 1e6},
    {"launch-dir", APP_TEXT, OPTION(launch_directory), "DIR",
     "folder in which -n makes device0, device1 ... with the logs of the ranks (OUTPUT/logs, else "
     ".)",
     0, 0},
    {"timeout", APP_REAL, OPTION(timeout), "S", "seconds after which the job fails (none)", 0.1,
     1e9},
};
GROUP(bench_comm, "Measuring", BENCH_COMM);

static const app_flag BENCH_PS[] = {
    {"rows", APP_INT, OPTION(rows), "N", "rows of the table (half the memory, at most 16 Mi)", 1,
     1e12},
    {"batch-size", APP_INT, OPTION(batch_size), "N", "keys of a call (65536)", 1, 1e9},
    {"repeats", APP_INT, OPTION(repeats), "N", "measurements (7)", 3, 1e6},
    {"output", APP_TEXT, OPTION(output), "DIR", "also measure checkpoints in this folder", 0, 0},
    {"role-timeout", APP_REAL, OPTION(role_timeout), "S",
     "seconds to wait for a server or worker; a chief that is silent for half of them is replaced "
     "(120)",
     1, 1e6},
    {"ps-shards", APP_INT, OPTION(ps_shards), "N",
     "threads of the server that own rows (1; with --table-bytes the best number)", 1, 256},
    {"wire", APP_CHOICE, OPTION(wire), "fp32|bf16|fp16",
     "type in which rows and gradients travel (fp32)", 0, 0},
    {"tcp-only", APP_BOOL, OPTION(tcp_only), NULL, "use TCP on one host too", 0, 0},
    {"table-bytes", APP_BYTES, OPTION(table_bytes), "BYTES",
     "instead fill and train a table of this size", 1e6, 1e15},
    {"ps-memory", APP_BYTES, OPTION(ps_memory), "BYTES",
     "memory limit of that table; further rows are spilled to --output (the forecast and 5 %)", 1e6,
     1e15},
    {"row-width", APP_INT, OPTION(row_width), "N", "numbers in a row of that table (16)", 1,
     1048576},
    {"listen", APP_TEXT, OPTION(listen), "HOST:PORT",
     "instead be the server of --connect until it has measured", 0, 0},
    {"connect", APP_TEXT, OPTION(connect), "HOST:PORT", "measure with the server at this address",
     0, 0},
    {"token-file", APP_TEXT, OPTION(token_file), "FILE",
     "file with the token of both processes, needed between hosts", 0, 0},
};
GROUP(bench_ps, "Measuring", BENCH_PS);

/* ps inspect, ps export */
static const app_flag PS[] = {
    {"table", APP_TEXT, OPTION(table), "T", "name of the table", 0, 0},
    {"cut", APP_INT, OPTION(cut), "N", "number of the snapshot (the newest)", 1, 4e9},
};
GROUP(ps, "Parameter servers", PS);

static const app_flag PS_INSPECT[] = {
    {"key", APP_TEXT, OPTION(key), "K", "print one row of --table: slots, counts and last writers",
     0, 0},
    {"top", APP_INT, OPTION(top), "N",
     "print the N rows of --table with the most updates, and their part of all updates", 1, 1e6},
    {"prometheus", APP_BOOL, OPTION(prometheus), NULL,
     "print counters of running servers in Prometheus' format", 0, 0},
    {"token-file", APP_TEXT, OPTION(token_file), "FILE",
     "file with the token of the running job, needed between hosts", 0, 0},
};
GROUP(ps_inspect, "Looking", PS_INSPECT);

static const app_flag PS_EXPORT[] = {
    {"output", APP_TEXT, OPTION(output), "FILE", "the file to write: .npz or .safetensors", 0, 0},
};
GROUP(ps_export, "Export", PS_EXPORT);

/* Contract in app.h. -1 stands for "not given" where 0 is a value. */
void app_defaults(app_options *o) {
    memset(o, 0, sizeof *o);
    o->color = "auto";
    o->dataset = "auto";
    o->workers = 1;
    o->seed = 1;
    o->generate_tokens = 200;
    o->stem = "imagenet";
    o->precision = "fp32";
    o->optimizer = "momentum";
    o->learning_rate = 0.01;
    o->momentum = 0.9;
    o->schedule = "constant";
    o->loss = "fused";
    o->keep = 5;
    o->log_every = 20;
    o->reduce = "mean";
    o->redop = "sum";
    o->wire = "fp32";
    o->bucket = "auto";
    o->sync_batch_norm = "on";
    o->deterministic = "false";
    o->op = "allreduce";
    o->sizes = "4,1K,64K,1M,8M,102M";
    o->plan_straggler = 2;
    o->plan_others = 16;
    o->plan_trial = -1;
    o->plan_largest = 16384;
    o->mode = "async";
    o->placement = "by_hash";
    o->lend = "auto";
    o->restarts = 3;
    o->eval_every_epochs = -1; /* at the end */
    o->repeats = 10;
    o->click.fields = o->click.dense = -1;
    o->click.pair_scale = -1;
    o->click.separator = "comma";
    o->click.header = "auto";
    o->click.dense_form = "default";
    o->click.pooling = "sum";
    o->click.min_count = 2;
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
