/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of an elastic job in the simulator, and the evaluator that loads them.
 *
 *   rank       the callback trm_model_checkpoint, on all ranks; rank 0 of the epoch has the
 *              writer of /run
 *   evaluator  trmi_run_evaluator: it looks for a new checkpoint, marks it, loads it, evaluates
 *              it, until the last step
 *   at the end a process that loads the newest one
 *
 * Callback, writer, lock, marks and the evaluator's loop are real. Simulated are the model, whose
 * values are a function of its sum of samples (elastic.c), the data, and the collectives, which
 * go over the control channel.
 *
 * Checked: what loads has the values of its step; a checkpoint that was confirmed loads, or a
 * later one does, whatever processes and hosts have died since; only one process writes at a
 * time; the evaluator ends with the last step.
 *
 * Where a disk confirms what it has not written, and its host then loses its power, any
 * checkpoint may be lost. Then only this is checked: what loads has the values of its step, and
 * nothing hangs. */
#include "saves.h"

#include "base/error.h"
#include "comm/rendezvous/elastic.h"
#include "save/checkpoint/checkpoint_job.h"
#include "train/estimator/estimator.h"
#include "train/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char folder[] = "/run";
enum { VALUES_MAX = 40000 };

/* What a seed draws of checkpoints. */
static struct {
    int every, keep, values; /* steps between two; how many stay; numbers of a model */
    bool background, evaluates;
    double throttle; /* seconds between two evaluations */
} plan;

static struct {
    int64_t confirmed; /* sequence number of the newest checkpoint that must load; -1: none */
    bool lied;         /* a disk has confirmed what it had not written */
    bool has_last;     /* the last step was saved */
    int writer;        /* process that writes a checkpoint now; 0: none */
    int64_t saved;     /* newest step of which a checkpoint was written */
    int64_t evaluated; /* newest step that was evaluated */
    bool evaluator_over, ranks_over;
    trm_estimator *estimator; /* of the evaluator that runs */
} watch = {.confirmed = -1, .evaluated = -1};

/* A rank's side of checkpoints. */
struct sim_saver {
    trm_model model;
    trm_progress progress;
    trm_callback callback;
    trm_elastic *elastic;
    bool again;
    int64_t sum;
};

/* The evaluator's model. */
typedef struct judged {
    int64_t step;
} judged;

static sim_saver *saver_of(const trm_model *model) {
    return (sim_saver *)((char *)(uintptr_t)model - offsetof(sim_saver, model));
}

/* Fills in the values of a model after a step. */
static void fill_values(float *values, int64_t sum) {
    for (int i = 0; i < plan.values; i++) {
        values[i] = (float)((sum + i) % 65521);
    }
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Compares an open checkpoint with what its step has. */
static void check_values(const trm_checkpoint *found) {
    static float values[VALUES_MAX], expected[VALUES_MAX];
    const int64_t step = trm_checkpoint_get_info(found)->global_step;
    trm_error err;
    fill_values(expected, sim_elastic_sum(step));
    const trm_tensor into = {
        .data = values, .dtype = TRM_FLOAT32, .shape = trm_shape_of(plan.values)};
    const trm_safetensors *part = trm_checkpoint_part_of(found, "model");
    if (part == NULL || trm_safetensors_read(part, "weights", &into, &err) != TRM_OK) {
        sim_fail("the checkpoint of step %lld has no weights", (long long)step);
    } else if (memcmp(values, expected, (size_t)plan.values * sizeof *values) != 0) {
        sim_fail("the checkpoint of step %lld has other weights", (long long)step);
    }
}

/* Loads the newest checkpoint. Returns its sequence number, and its step; -1: there is none. */
static int64_t load_newest(int64_t *step) {
    trm_checkpoint *found;
    trm_error err;
    trm_status status = trm_checkpoint_open(folder, NULL, &found, &err);
    if (status != TRM_OK) {
        if (status != TRM_END && !(status == TRM_CORRUPT && watch.lied)) {
            sim_fail("the newest checkpoint does not load: %s", err.message);
        }
        return -1;
    }
    check_values(found);
    const int64_t sequence = trm_checkpoint_get_info(found)->sequence;
    *step = trm_checkpoint_get_info(found)->global_step;
    sim_trace(sim.current->process, "checkpoint %lld of step %lld loads", (long long)sequence,
              (long long)*step);
    trm_checkpoint_close(found);
    return sequence;
}

/* Loads the newest checkpoint, which is that of the newest save that was confirmed, or a later
 * one. */
static int64_t check_newest(int64_t *step) {
    const int64_t expected = watch.confirmed, sequence = load_newest(step);
    if (sequence < expected && !watch.lied) {
        sim_fail("the newest checkpoint that loads has number %lld, number %lld was confirmed",
                 (long long)sequence, (long long)expected);
    }
    return sequence;
}

void sim_saves_disk_lies(void) { watch.lied = true; }

/* ---- a rank ---------------------------------------------------------------------------------- */

/* Where ranks die only, on one host, a checkpoint that a rank has not written is made up for by
 * the next rank with its next step. (In the background it is lost with the process.) A checkpoint
 * that is written counts, also where its writer dies before it has said so. A host whose disk lies
 * has lost its power (sim_saves_disk_lies): the lock of before counts for 60 s then. */
static void check_distance(int64_t step) {
    const bool undisturbed = job.ranks_of_host >= job.workers && job.leavers == 0 &&
                             !job.comes[FAULT_DISK] && !job.comes[FAULT_POWER] && !watch.lied;
    if (undisturbed && !plan.background && step - watch.saved > plan.every + 1 + job.kills) {
        sim_fail("step %lld is saved, and step %lld before it: every %d steps expected",
                 (long long)step, (long long)watch.saved, plan.every);
    }
    watch.saved = step;
}

/* The writer says that a checkpoint is on the disk. */
static void note_saved(void *context, const char *path, int64_t step) {
    (void)context, (void)path;
    int64_t newest = -1;
    sim_trace(sim.current->process, "saved step %lld", (long long)step);
    watch.has_last = watch.has_last || step == job.batches;
    if (sim_random(DRAW_SAVES, 2) == 0) {
        const int64_t sequence = check_newest(&newest);
        watch.confirmed = sequence > watch.confirmed ? sequence : watch.confirmed;
        if (newest != step && !watch.lied) {
            sim_fail("step %lld was saved, but the newest checkpoint has step %lld",
                     (long long)step, (long long)newest);
        }
    }
}

trm_status __wrap_trmi_checkpoint_job_write(trmi_checkpoint_job *save, const char *dir,
                                            const trmi_os *os, trm_error *err);
trm_status __real_trmi_checkpoint_job_write(trmi_checkpoint_job *save, const char *dir,
                                            const trmi_os *os, trm_error *err);

/* Returns whether a process has stood still for so long that its lock counts as left: 60 s after
 * the last touch, which was at most 5 s before. Two pauses may follow each other. */
static bool has_lost_lock(const sim_process *p) {
    return p->paused_until > sim.now && sim.now - p->paused_from >= (int64_t)55e9;
}

/* A checkpoint is written: the process may die, or stand still for so long that the others go on
 * without it. */
trm_status __wrap_trmi_checkpoint_job_write(trmi_checkpoint_job *save, const char *dir,
                                            const trmi_os *os, trm_error *err) {
    const int pid = sim.current->process->pid;
    const sim_process *other = watch.writer != pid ? sim_find(watch.writer) : NULL;
    if (other != NULL && !has_lost_lock(other)) {
        sim_fail("two processes write checkpoints at a time, with the pids %d and %d", watch.writer,
                 pid);
    }
    watch.writer = pid;
    sim_job_plan_death_in(sim.current->process, 8, 80);
    if (job.comes[FAULT_PAUSE] && (job.without >> FAULT_PAUSE & 1) == 0 &&
        sim.now < job.faults_end && sim_random(DRAW_SAVES, 12) == 0) {
        sim_pause(sim.current->process, (int64_t)(50e9 * sim_unit(DRAW_SAVES)));
        sim_trace(sim.current->process, "fault: stands still while it saves");
    }
    trm_status status = __real_trmi_checkpoint_job_write(save, dir, os, err);
    watch.writer = watch.writer == pid ? 0 : watch.writer;
    if (status == TRM_OK) {
        check_distance(save->info.global_step);
    }
    return status;
}

/* All ranks bring their parts, rank 0 writes. */
trm_status __wrap_trm_model_save(trm_model *model, trm_checkpoint_writer *writer, trm_error *err);
trm_status __wrap_trm_model_save(trm_model *model, trm_checkpoint_writer *writer, trm_error *err) {
    const sim_saver *s = saver_of(model);
    trm_bootstrap *b = s->elastic->bootstrap;
    char all[JOB_PROCESSES];
    TRMI_TRY(b->table->allgather(b, "", 1, all, 60, err));
    if (b->rank != 0) {
        return TRM_OK;
    }
    float *values = malloc((size_t)plan.values * sizeof *values);
    fill_values(values, s->sum);
    const trm_named_tensor weights = {
        "weights", {.data = values, .dtype = TRM_FLOAT32, .shape = trm_shape_of(plan.values)}};
    const trm_checkpoint_part parts[] = {{.name = "model", .tensors = &weights, .count = 1},
                                         {.name = "optimizer"}};
    const trm_checkpoint_info info = {.global_step = model->epoch_step, .world_size = b->size};
    trm_status status = trm_checkpoint_save(writer, &info, parts, 2, err);
    free(values);
    return status;
}

int32_t __wrap_trmi_model_rank(const trm_model *model);
int32_t __wrap_trmi_model_rank(const trm_model *model) {
    return saver_of(model)->elastic->bootstrap->rank;
}

trm_status __wrap_trmi_model_broadcast_answer(const trm_model *model, bool *answer, trm_error *err);
trm_status __wrap_trmi_model_broadcast_answer(const trm_model *model, bool *answer,
                                              trm_error *err) {
    trm_bootstrap *b = saver_of(model)->elastic->bootstrap;
    bool all[JOB_PROCESSES];
    TRMI_TRY(b->table->allgather(b, answer, sizeof *answer, all, 60, err));
    *answer = all[0];
    return TRM_OK;
}

bool __wrap_trmi_run_is_again(const trm_progress *progress);
bool __wrap_trmi_run_is_again(const trm_progress *progress) {
    return saver_of(progress->model)->again;
}

void __wrap_trmi_run_set_checkpoints(const trm_progress *progress, const char *directory);
void __wrap_trmi_run_set_checkpoints(const trm_progress *progress, const char *directory) {
    (void)progress, (void)directory;
}

trm_status __wrap_trmi_call_checkpoint(const trm_progress *progress, const char *path,
                                       trm_error *err);
trm_status __wrap_trmi_call_checkpoint(const trm_progress *progress, const char *path,
                                       trm_error *err) {
    (void)progress, (void)path, (void)err;
    return TRM_OK;
}

sim_saver *sim_saver_create(trm_elastic *elastic) {
    sim_saver *s = calloc(1, sizeof *s);
    const trm_model_checkpoint_options o = {
        .directory = folder,
        .every_steps = plan.every,
        .writer = {.keep = plan.keep, .background = plan.background, .on_saved = note_saved}};
    s->elastic = elastic;
    s->model.elastic = (void *)elastic; /* the callback asks only whether it is there */
    s->progress.model = &s->model;
    s->callback = trm_model_checkpoint(&o);
    return s;
}

/* Tells the callback where the training is. */
static void take_position(sim_saver *s, int64_t step, int64_t sum) {
    s->model.epoch_step = step;
    s->progress.global_step = (uint64_t)step;
    s->sum = sum;
}

trm_status sim_saver_begin(sim_saver *s, int64_t step, int64_t sum, bool again, trm_error *err) {
    take_position(s, step, sum);
    s->again = again;
    return s->callback.on_begin(s->callback.context, &s->progress, err);
}

trm_status sim_saver_step(sim_saver *s, int64_t step, int64_t sum, trm_error *err) {
    take_position(s, step, sum);
    return s->callback.on_step_end(s->callback.context, &s->progress, err);
}

trm_status sim_saver_end(sim_saver *s, trm_error *err) {
    return s->callback.on_end(s->callback.context, &s->progress, err);
}

/* No fault makes checkpoints end a job whose ranks change, but a full disk the last one. A job that
 * begins anew is refused the folder of the one before. */
void sim_saver_destroy(sim_saver *s, trm_status status, const trm_error *err) {
    if (s != NULL) {
        const bool anew = s->progress.global_step == 0;
        if (s->again && !anew && (status == TRM_INVALID || status == TRM_CORRUPT)) {
            sim_fail("a rank ends: %s", err->message);
        }
        s->callback.destroy(s->callback.context);
        free(s);
    }
}

/* ---- the evaluator --------------------------------------------------------------------------- */

trm_status __wrap_trmi_estimator_data(const trm_estimator *e, trm_run_mode mode, trm_input_fn input,
                                      void *params, trm_dataset **out, trm_error *err);
trm_status __wrap_trmi_estimator_data(const trm_estimator *e, trm_run_mode mode, trm_input_fn input,
                                      void *params, trm_dataset **out, trm_error *err) {
    (void)e, (void)mode, (void)input, (void)params, (void)err;
    *out = NULL;
    return TRM_OK;
}
void __wrap_trm_dataset_destroy(trm_dataset *data);
void __wrap_trm_dataset_destroy(trm_dataset *data) { (void)data; }

trm_status __wrap_trmi_estimator_model(trm_estimator *e, trm_run_mode mode, trm_dataset *data,
                                       trm_model_options *out, trm_error *err);
trm_status __wrap_trmi_estimator_model(trm_estimator *e, trm_run_mode mode, trm_dataset *data,
                                       trm_model_options *out, trm_error *err) {
    (void)e, (void)mode, (void)data, (void)err;
    *out = (trm_model_options){0};
    return TRM_OK;
}

trm_status __wrap_trm_model_create(const trm_model_options *options, trm_model **out,
                                   trm_error *err);
trm_status __wrap_trm_model_create(const trm_model_options *options, trm_model **out,
                                   trm_error *err) {
    (void)options, (void)err;
    *out = calloc(1, sizeof(judged));
    return TRM_OK;
}
void __wrap_trm_model_destroy(trm_model *model);
void __wrap_trm_model_destroy(trm_model *model) { free(model); }

/* Returns how often hosts have lost their power. */
static int count_power_cuts(void) {
    int cuts = 0;
    for (int h = 0; h < SIM_HOSTS; h++) {
        cuts += sim.hosts[h].boots + !sim.hosts[h].up;
    }
    return cuts;
}

/* Reads a marked checkpoint for a while. Its writer may remove it only if it looked for marks
 * before this one was there, and may replace it, which takes a moment between two renames, and
 * longer where the writer dies between them: then its name ends with ".old", until the next writer
 * takes that off and replaces it. A power cut may take it, too, if its disk has lied, or its writer
 * died before it had flushed the name. */
static void read_slowly(const char *path) {
    const int cuts = count_power_cuts();
    char replaced[256]; /* its name before or after such a rename */
    const int bare = (int)strlen(path) - 4;
    const bool is_old = bare > 0 && strcmp(path + bare, ".old") == 0;
    snprintf(replaced, sizeof replaced, is_old ? "%.*s" : "%.*s.old", is_old ? bare : bare + 4,
             path);
    usleep(100000 + (useconds_t)(job.compute * 1e6 * sim_unit(DRAW_SAVES)));
    const bool there = access(path, F_OK) == 0;
    usleep((useconds_t)(4 * job.compute * 1e6 * sim_unit(DRAW_SAVES)));
    if (there && access(path, F_OK) != 0) {
        usleep(50000);
        if (access(path, F_OK) != 0 && access(replaced, F_OK) != 0 && count_power_cuts() == cuts) {
            sim_fail("%s is removed while the evaluator reads it", path);
        }
    }
}

/* Loads as the real call does: the checkpoint is opened a second time, which takes time with a
 * large one. */
trm_status __wrap_trm_model_load(trm_model *model, const char *path, bool partial, int32_t *skipped,
                                 trm_error *err);
trm_status __wrap_trm_model_load(trm_model *model, const char *path, bool partial, int32_t *skipped,
                                 trm_error *err) {
    trm_checkpoint *found;
    (void)partial, (void)skipped;
    read_slowly(path);
    TRMI_TRY(trm_checkpoint_open(path, NULL, &found, err));
    check_values(found);
    ((judged *)model)->step = trm_checkpoint_get_info(found)->global_step;
    trm_checkpoint_close(found);
    return TRM_OK;
}

trm_status __wrap_trm_model_evaluate_steps(trm_model *model, trm_dataset *data, int64_t steps,
                                           trm_evaluation *out, trm_error *err);
trm_status __wrap_trm_model_evaluate_steps(trm_model *model, trm_dataset *data, int64_t steps,
                                           trm_evaluation *out, trm_error *err) {
    (void)data, (void)steps, (void)err;
    usleep((useconds_t)(job.compute * 1e6 * sim_unit(DRAW_SAVES)));
    *out = (trm_evaluation){.loss = (double)((judged *)model)->step};
    return TRM_OK;
}

static int say_line(const char *line) {
    sim_trace(sim.current->process, "%s", line);
    return 0;
}

static void note_evaluation(void *context, uint64_t step, const trm_evaluation *evaluation) {
    (void)context;
    if (evaluation->loss != (double)step) {
        sim_fail("step %llu is evaluated with the weights of step %g", (unsigned long long)step,
                 evaluation->loss);
    }
    watch.evaluated = (int64_t)step > watch.evaluated ? (int64_t)step : watch.evaluated;
}

static int run_evaluator(void *argument) {
    (void)argument;
    trm_estimator e = {
        .config = {.model_dir = folder, .print = say_line, .on_evaluated = note_evaluation}};
    const trm_train_spec train = {.max_steps = job.batches};
    const trm_eval_spec eval = {.start_delay_secs = TRM_NONE, .throttle_secs = plan.throttle};
    trm_job_result result = {0};
    trm_error err;
    watch.estimator = &e;
    trm_status status = trmi_run_evaluator(&e, &train, &eval, &result, &err);
    watch.estimator = NULL;
    if (status != TRM_OK && status != TRM_CANCELLED && !(status == TRM_CORRUPT && watch.lied)) {
        sim_fail("the evaluator ends: %s", err.message);
    }
    if (status == TRM_OK && result.evaluated_step < (uint64_t)job.batches) {
        sim_fail("the evaluator has ended after step %llu of %d",
                 (unsigned long long)result.evaluated_step, job.batches);
    }
    return 0;
}

static void start_evaluator(void *a, uint64_t b);

static int check_at_end(void *argument) {
    (void)argument;
    int64_t step = -1;
    check_newest(&step);
    if (watch.has_last && step != job.batches && !watch.lied) {
        sim_fail("the last step was saved, but the newest checkpoint has step %lld",
                 (long long)step);
    }
    if (plan.evaluates && watch.has_last && watch.evaluated != job.batches && !watch.lied) {
        sim_fail("the last step was saved, but step %lld was evaluated last",
                 (long long)watch.evaluated);
    }
    return 0;
}

static void check_ended(sim_process *p, int code) {
    (void)p, (void)code;
    sim.over = true;
}

/* Ranks and evaluator have ended. */
static void end_if_over(void) {
    if (watch.ranks_over && watch.evaluator_over) {
        sim_spawn("reader", JOB_READER, check_at_end, NULL, check_ended);
    }
}

static void evaluator_ended(sim_process *p, int code) {
    (void)p;
    watch.estimator = NULL;
    watch.evaluator_over = code >= 0 || (watch.ranks_over && !watch.has_last);
    if (!watch.evaluator_over) { /* it has died and comes back */
        sim_at(sim.now + (int64_t)(2e9 * sim_unit(DRAW_SAVES)), start_evaluator, NULL, 0);
    }
    end_if_over();
}

static void start_evaluator(void *a, uint64_t b) {
    (void)a, (void)b;
    sim_process *p = sim_spawn("evaluator", JOB_EVALUATOR, run_evaluator, NULL, evaluator_ended);
    sim_job_plan_death_in(p, 2, 3000);
}

/* The job has not saved its last step, or a disk has lost it: the evaluator gets SIGTERM. */
static void stop_evaluator(void *a, uint64_t b) {
    (void)a, (void)b;
    if (watch.estimator != NULL) {
        sim_trace(NULL, "the evaluator gets SIGTERM");
        atomic_store(&watch.estimator->stop, 1);
    } else if (!watch.evaluator_over) {
        sim_at(sim.now + SIM_SECOND, stop_evaluator, NULL, 0);
    }
}

/* ---- the job --------------------------------------------------------------------------------- */

void sim_saves_draw(void) {
    /* nearly half of the jobs; those of seeds.txt that were found before are among the others */
    job.saves = sim_random(DRAW_SAVES, 15) / 7 == 1;
    if (!job.saves) {
        return;
    }
    plan.every = 1 + (int)sim_random(DRAW_SAVES, 6);
    plan.keep = 1 + (int)sim_random(DRAW_SAVES, 3);
    plan.values = 16 + (int)sim_random(DRAW_SAVES, sim_random(DRAW_SAVES, 2) == 0 ? 500 : 38000);
    plan.background = sim_random(DRAW_SAVES, 2) == 0;
    plan.evaluates = sim_random(DRAW_SAVES, 2) == 0;
    plan.throttle = 0.01 + 3 * job.compute * sim_unit(DRAW_SAVES);
    job.comes[FAULT_LIES] = job.durable && sim_random(DRAW_SAVES, 4) == 0;
}

void sim_saves_start(void) {
    sim_trace(NULL, "a checkpoint every %d steps, %d stay, %d values, %s%s", plan.every, plan.keep,
              plan.values, plan.background ? "in the background" : "in the foreground",
              plan.evaluates ? ", an evaluator" : "");
    watch.evaluator_over = !plan.evaluates;
    if (plan.evaluates) {
        start_evaluator(NULL, 0);
    }
}

void sim_saves_ranks_ended(void) {
    watch.ranks_over = true;
    if (!watch.has_last || watch.lied) {
        stop_evaluator(NULL, 0);
    }
    end_if_over();
}
