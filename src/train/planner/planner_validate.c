/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plans for real: the time of a step on the ranks of a communicator, of one plan
 * (trm_planner_run) or of several plans in turns (trm_planner_compare). Predictions are compared
 * with these times; they never enter the costs. Both functions are collective: every rank builds
 * the same graph and runs the same plans. */
#include "train/planner/planner.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/order.h"
#include "base/os.h"
#include "exec/autoparallel/plan_benchmark.h"
#include "exec/autoparallel/near_ties.h"
#include "train/model.h"

#include <string.h>

/* Builds the training graph of the global batch; inputs->graph is owned by the caller. */
static trm_status build_graph(const trm_model_options *model, int32_t ranks, trm_inputs *inputs,
                              trm_node *loss, trm_error *err) {
    trm_batch_field first;
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &inputs->graph, err));
    TRMI_TRY(trm_dataset_check(model->data, err));
    if (!trm_dataset_field(model->data, 0, &first)) {
        return TRMI_FAIL(err, TRM_INVALID, "the dataset has no fields");
    }
    int64_t batch = first.tensor.shape.dim[0] * ranks;
    while (inputs->count < TRM_MAX_BATCH_FIELDS &&
           trm_dataset_field(model->data, inputs->count, &inputs->fields[inputs->count])) {
        inputs->fields[inputs->count++].tensor.shape.dim[0] = batch;
    }
    trm_node logits = model->network(inputs->graph, inputs, model->network_context);
    trm_loss make = model->loss != NULL ? model->loss : trm_loss_softmax;
    *loss = make(inputs->graph, logits, inputs, model->loss_context);
    return trm_graph_check(inputs->graph, err);
}

/* Returns the options with which a plan is run: those of the model, with slices of the
 * optimiser. */
static trm_exec_options options_of(const trm_model_options *model, trm_comm *comm, const char *plan,
                                   trm_node loss) {
    return (trm_exec_options){.loss = loss,
                              .optimizer = model->exec.optimizer,
                              .backend = model->exec.backend,
                              .precision = model->exec.precision,
                              .threads = model->exec.threads,
                              .seed = 1,
                              .fusion = model->exec.fusion,
                              .tuning_file = model->exec.tuning_file,
                              .parallel = {.comm = comm,
                                           .split.kind = TRM_SPLIT_PLANNED,
                                           .split.plan = plan,
                                           .shard_optimizer = true,
                                           .wire = model->exec.parallel.wire,
                                           .block = model->exec.parallel.block,
                                           .sync_batch_norm = model->exec.parallel.sync_batch_norm,
                                           .cooperative = model->exec.parallel.cooperative}};
}

/* Runs one step and sets *seconds to the time of the slowest rank. */
static trm_status time_step(trm_exec *exec, trm_comm *comm, double *seconds, trm_error *err) {
    TRMI_TRY(comm != NULL ? trm_comm_barrier(comm, err) : TRM_OK);
    double begin = trmi_os_now();
    TRMI_TRY(trm_exec_forward_backward(exec, err));
    TRMI_TRY(trm_exec_update(exec, 1e-3, err));
    *seconds = trmi_os_now() - begin;
    return comm != NULL ? trm_comm_allreduce(comm, seconds, 1, TRM_FLOAT64, TRM_REDUCTION_MAX, err)
                        : TRM_OK;
}

/* Runs two steps for warming up and `steps` timed ones; returns median and lower quartile. */
static trm_status time_steps(trm_exec *exec, trm_comm *comm, int32_t steps,
                             trm_planner_run_result *out, trm_error *err) {
    double *times = trmi_alloc((size_t)steps * sizeof *times), warm_up;
    if (times == NULL) {
        return TRMI_NO_MEMORY(err, "to time steps");
    }
    trm_status status = TRM_OK;
    for (int32_t i = -2; status == TRM_OK && i < steps; i++) {
        status = time_step(exec, comm, i < 0 ? &warm_up : &times[i], err);
    }
    if (status == TRM_OK) {
        out->median_seconds = trmi_median(times, steps); /* trmi_median sorts `times` */
        out->seconds = times[steps / 4];
    }
    trmi_free(times);
    return status;
}

/* Calls `profile` for each kernel of the program, and with the median time of the update. */
static trm_status tell_profile(trm_exec *exec, const trm_planner_run_options *o, trm_error *err) {
    int32_t steps = o->steps < 1 ? 1 : o->steps;
    trm_program_profile program;
    TRMI_TRY(trm_exec_profile(exec, &(trm_profile_options){.repeats = steps}, &program, err));
    for (int32_t i = 0; i < program.count; i++) {
        const trm_step_profile *s = &program.steps[i];
        o->profile(o->context, s->phase, s->name, s->kind, s->seconds);
    }
    double *times;
    trm_status status = TRMI_NEW(err, times, steps, "to time the optimiser");
    for (int32_t i = 0; status == TRM_OK && i < steps; i++) {
        status = trm_exec_forward_backward(exec, err);
        double begin = trmi_os_now();
        status = status == TRM_OK ? trm_exec_update(exec, 1e-3, err) : status;
        times[i] = trmi_os_now() - begin;
    }
    if (status == TRM_OK) {
        o->profile(o->context, "update", "update", "optimiser", trmi_median(times, steps));
    }
    trmi_free(times);
    return status;
}

/* Contract in trireme/plan.h. Memory is measured as the growth of the process around creation
 * and steps. */
trm_status trm_planner_run(const trm_model_options *model, trm_comm *comm,
                           const trm_planner_run_options *options, trm_planner_run_result *out,
                           trm_error *err) {
    TRMI_NEED(err, model, options, out);
    trm_inputs *inputs;
    trm_exec *exec = NULL;
    trm_node loss;
    TRMI_TRY(TRMI_NEW(err, inputs, 1, "to run a plan"));
    /* memory that was freed before must not count */
    trmi_os_trim();
    int64_t before = trmi_os_own_bytes() + trmi_os_file_bytes();
    trm_status status =
        build_graph(model, comm != NULL ? trm_comm_size(comm) : 1, inputs, &loss, err);
    if (status == TRM_OK) {
        const trm_exec_options of_exec = options_of(model, comm, options->plan, loss);
        status = trm_exec_create(inputs->graph, &of_exec, &exec, err);
    }
    /* Make random inputs; keys and labels are below the number of classes. */
    for (int32_t i = 0; status == TRM_OK && i < inputs->count; i++) {
        int64_t classes = trm_dataset_class_count(model->data);
        if (inputs->nodes[i].id != 0) {
            status = trmi_plan_benchmark_feed(
                exec, inputs->fields[i].name,
                classes > 0 && classes < INT32_MAX ? (uint32_t)classes : 1, err);
        }
    }
    /* Measure the time first: profiling adds clocks to each step. */
    trm_planner_run_result result = {.seconds = 0};
    int32_t steps = options->steps < 1 ? 1 : options->steps;
    status = status == TRM_OK ? time_steps(exec, comm, steps, &result, err) : status;
    if (status == TRM_OK && options->profile != NULL) {
        status = tell_profile(exec, options, err);
    }
    if (status == TRM_OK) {
        trm_exec_info info;
        trm_exec_get_info(exec, &info);
        result.parameter_bytes = info.parameter_bytes;
        result.gradient_bytes = info.gradient_bytes;
        result.slot_bytes = info.slot_bytes;
        result.activation_bytes = info.activation_bytes;
        result.total_bytes = info.total_bytes;
        trmi_os_trim(); /* give back what choosing kernels used for a moment */
        result.resident_bytes = trmi_os_own_bytes() + trmi_os_file_bytes() - before;
        result.loss = trm_exec_loss(exec);
        *out = result;
    }
    trm_exec_destroy(exec);
    trm_graph_destroy(inputs->graph);
    trmi_free(inputs);
    return status;
}

/* Contract in trireme/plan.h. The benchmark (exec/autoparallel/near_ties.h) decides how many
 * turns are needed. */
trm_status trm_planner_compare(const trm_model_options *model, trm_comm *comm,
                               const trm_planner_compare_options *options,
                               trm_planner_comparison *out, trm_error *err) {
    TRMI_NEED(err, model, options, out);
    int32_t count = options->count;
    if (count > 0) {
        TRMI_NEED(err, options->plans);
    }
    if (comm == NULL || count < 2 || count > TRM_COMPARED_PLANS || options->steps < 1) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "to compare: ranks, 2 to %d plans and a step or more; found %d plans, %d steps",
            TRM_COMPARED_PLANS, (int)count, (int)options->steps);
    }
    trm_inputs *inputs;
    trm_node loss;
    TRMI_TRY(TRMI_NEW(err, inputs, 1, "to compare plans"));
    /* rank 0 has the texts of the plans; the benchmark broadcasts them */
    trmi_plan_times result;
    trm_status status = build_graph(model, trm_comm_size(comm), inputs, &loss, err);
    if (status == TRM_OK) {
        const trm_exec_options of_exec = options_of(model, comm, NULL, loss);
        trmi_plan_benchmark benchmark = {.comm = comm,
                                         .graph = inputs->graph,
                                         .options = &of_exec,
                                         .count = count,
                                         .steps = options->steps,
                                         .seconds = options->seconds,
                                         .at_least = 4,
                                         .fine = TRMI_TIES_FINE};
        for (int32_t i = 0; i < count && trm_comm_rank(comm) == 0; i++) {
            benchmark.plans[i] = options->plans[i];
        }
        status = trmi_plan_benchmark_run(&benchmark, &result, err);
    }
    trm_graph_destroy(inputs->graph);
    trmi_free(inputs);
    TRMI_TRY(status);
    /* Count everything relative to the first plan. */
    memset(out, 0, sizeof *out);
    out->turns = result.turns;
    out->fastest = result.turns > 0 ? trmi_plan_benchmark_fastest(&result, count) : 0;
    for (int32_t i = 0; i < count && result.turns > 0; i++) {
        out->seconds[i] = result.seconds[i];
        out->ahead[i] = trmi_plan_benchmark_behind(&result, 0, i, &out->resolution[i]);
    }
    return TRM_OK;
}
