# SPDX-License-Identifier: Apache-2.0
"""Jobs with roles: chief, workers, parameter servers and an evaluator, with TensorFlow's names.

    strategy = ParameterServerStrategy(mode='sync')
    config = RunConfig(model_dir='/tmp/multiworker', save_checkpoints_steps=100, distribute=strategy)
    classifier = Estimator(model_fn, config=config)
    train_and_evaluate(classifier, TrainSpec(input_fn, max_steps=1000), EvalSpec(input_fn))

model_fn(mode, params) returns an EstimatorSpec; input_fn(context) returns a Dataset, where context has mode, pipelines, index
and seed. The place of the process comes from TF_CONFIG (or any other launcher's variables).
"""
import ctypes
from ctypes import byref

from . import _c
from ._call import Freed, Owner, call, deferring, guarded, stopping, take, text_of
from ._convert import as_dict, expect, fill, optimizer_options, options, rate_options, takes, word
from ._library import Error, need
from ._methods import EstimatorMethods, EvalSpec, ParameterServerStrategy
from .callbacks import evaluation_dict, print_line, set_callbacks
from .data import Dataset, as_dataset
from .model import Model


class RunConfig:
    """Members of trm_run_config: model_dir, tf_random_seed, save_summary_steps, log_step_count_steps, precision_mode,
    iterations_per_loop, distribute=strategy, checkpoints={...}, ...; and TensorFlow's names save_checkpoints_steps,
    save_checkpoints_secs, keep_checkpoint_max, keep_checkpoint_every_n_hours, enable_data_pre_proc. session_config and
    mix_compile_mode have no effect: there is no session, and every model may be partly on a device.
    """

    NAMES = {'save_checkpoints_steps': 'every_steps', 'save_checkpoints_secs': 'every_seconds', 'keep_checkpoint_max': 'keep',
             'keep_checkpoint_every_n_hours': 'keep_every_hours'}

    @takes(_c.trm_run_config)
    def __init__(self, cluster=None, session_config=None, mix_compile_mode=True, enable_data_pre_proc=None, **more):
        self.cluster, self.prefetch = cluster, enable_data_pre_proc
        self.values = {self.NAMES.get(k, k): v for k, v in more.items()}


class EstimatorSpec:
    """The result of model_fn: the arguments of Model without its data."""

    @takes(_c.trm_model_options)
    def __init__(self, network, loss='softmax', optimizer='sgd', learning_rate=0.01, metrics=(), **more):
        self.network, self.loss, self.metrics = network, loss, metrics
        self.more = dict(more, optimizer=optimizer_options(optimizer), learning_rate=rate_options(learning_rate))


class TrainSpec:
    """What is trained: input_fn; until max_steps or epochs; hooks: Callback objects, or functions that are called after each step."""

    def __init__(self, input_fn, max_steps=0, epochs=0, hooks=()):
        self.input_fn, self.max_steps, self.epochs, self.hooks = input_fn, max_steps, epochs, hooks


class Cluster(Freed):
    """The place of this process in its job, from TF_CONFIG or another launcher's variables, or from `flags`:
    job_name, task_index, ps_hosts, worker_hosts, chief_hosts, evaluator_hosts, rank_table, ..."""

    free = 'trm_cluster_destroy'

    @takes(_c.trm_cluster_flags)
    def __init__(self, **flags):
        keep = []
        given = options(_c.trm_cluster_flags, {k: str(v) if k == 'task_index' else v for k, v in flags.items()}, keep)
        self.handle = take(_c.trm_cluster_from_env, byref(given), ctypes.cast(None, _c.trm_lookup), None)

    info = property(lambda self: as_dict(_c.trm_cluster_get(self.handle)[0]), doc='rank, size, role, source, is_chief, ... as a dictionary.')

    def __str__(self):
        return text_of(take(_c.trm_cluster_text, self.handle, False))


class InputContext:
    """The part of the data that this process reads: pipeline `index` of `pipelines`; mode: train or eval, which Dataset.open takes as usage; seed."""

    def __init__(self, c):
        self.mode, self.pipelines, self.index, self.seed = word('trm_run_mode', c.mode), c.pipelines, c.index, c.seed
        self.num_input_pipelines, self.input_pipeline_id = self.pipelines, self.index


class _Borrowed(Dataset):
    """The estimator's dataset, as a network function sees it."""

    def close(self):
        """The estimator ends it."""


class Estimator(EstimatorMethods, Owner):
    """A job of this process's role: does the work of a chief, worker, server or evaluator, or all of it in one process."""

    free = 'trm_estimator_destroy'

    def __init__(self, model_fn, model_dir=None, config=None, params=None):
        config = config or RunConfig()
        expect(callable(model_fn), 'Estimator', 'a function model_fn', model_fn)
        expect(isinstance(config, RunConfig), 'Estimator: config', 'a RunConfig', config)
        self.keep, self.models = [model_fn, config, params], []
        expect(config.cluster is None or isinstance(config.cluster, Cluster), 'RunConfig: cluster', 'a Cluster', config.cluster)
        self.cluster = config.cluster or Cluster()
        values = dict(config.values)
        if model_dir and values.setdefault('model_dir', model_dir) != model_dir:
            raise Error(f'Estimator: two model directories (found {model_dir!r}, expected that of the configuration, '
                        f'{values["model_dir"]!r})')
        strategy = values.pop('distribute', None)
        expect(strategy is None or isinstance(strategy, ParameterServerStrategy), 'RunConfig: distribute', 'a ParameterServerStrategy', strategy)
        made = options(_c.trm_run_config, values, self.keep)
        if strategy is not None and self.cluster.info['has_roles']:  # one process has no servers
            native = options(_c.trm_ps_strategy, dict({'prefetch': config.prefetch}, **strategy.values), self.keep)
            self.keep.append(native)
            made.distribute = ctypes.pointer(native)
        made.cluster = self.cluster.handle
        if not made.print:
            made.print = print_line
        self.model_fn, self.params = model_fn, params
        hook = guarded(_c.trm_model_fn, self._model, 'model_fn')
        self.keep += [hook, made]
        self.handle = take(_c.trm_estimator_create, hook, None, byref(made))

    def _model(self, mode, given, params):
        spec = self.model_fn(word('trm_run_mode', mode), self.params)
        need(isinstance(spec, EstimatorSpec),
             f'model_fn returned {type(spec).__name__} (expected an EstimatorSpec); is a return missing?')
        model = Model.__new__(Model)  # the callbacks of a Model, without one: the estimator makes it
        model.handle, model.keep, model._failure, model.data = None, [], None, _Borrowed(given[0].data)
        model.options_into(given[0], spec.network, spec.loss, spec.metrics, dict(spec.more))
        self.models.append(model)


def _input_hook(input_fn, estimator):
    expect(callable(input_fn), 'train_and_evaluate', 'a function input_fn', input_fn)

    def run(context, params, out):
        data = input_fn(InputContext(context[0]))
        need(data is not None, 'input_fn returned nothing (expected a Dataset); is a return missing?')
        data = as_dataset(data)
        estimator.keep.append(data.keep)
        out[0] = data.handle
        data.handle, data.closed = None, 'it belongs to the estimator that asked input_fn for it'  # which destroys it
    hook = guarded(_c.trm_input_fn, run, 'input_fn')
    estimator.keep.append(hook)
    return hook


def train_and_evaluate(estimator, train_spec, eval_spec=None):
    """Does the work of this process's role, to its end. Returns a dictionary: role, global_step, evaluation, ..."""
    expect(isinstance(estimator, Estimator), 'train_and_evaluate', 'an Estimator', estimator)
    expect(train_spec is None or isinstance(train_spec, TrainSpec), 'train_and_evaluate', 'a TrainSpec', train_spec)
    expect(eval_spec is None or isinstance(eval_spec, EvalSpec), 'train_and_evaluate', 'an EvalSpec', eval_spec)
    train, evaluation, keep = None, None, estimator.keep
    if train_spec is not None:
        train = fill(_c.trm_train_spec(_input_hook(train_spec.input_fn, estimator)), {'max_steps': train_spec.max_steps, 'epochs': train_spec.epochs}, keep)
        set_callbacks(train, train_spec.hooks, None, keep)
    if eval_spec is not None:
        evaluation = fill(_c.trm_eval_spec(_input_hook(eval_spec.input_fn, estimator)), eval_spec.values, keep)
    out, failure = _c.trm_job_result(), None
    with stopping(estimator.request_stop):
        try:
            with deferring():
                call(_c.trm_train_and_evaluate, estimator.handle, train and byref(train), evaluation and byref(evaluation), byref(out))
        except Error as error:
            failure = error
        for model in estimator.models:  # what a network, a loss or a metric has raised; a later call has failures of its own
            failure, model._failure = model._failure or failure, None
        try:
            if failure is not None:
                raise failure from None
        finally:
            failure = None  # it has this frame: kept here it would keep the estimator alive
    found = as_dict(out)
    found['evaluation'] = evaluation_dict(out.evaluation) if out.has_evaluation else None
    return found


__all__ = ['Cluster', 'Estimator', 'EstimatorSpec', 'EvalSpec', 'InputContext', 'ParameterServerStrategy', 'RunConfig', 'TrainSpec',
           'train_and_evaluate']
