# SPDX-License-Identifier: Apache-2.0
"""A model and its training: network, loss, optimiser, learning rate.

    model = Model(lambda image: ops.mlp(image, [256, 128], 10), train, optimizer='momentum', learning_rate=0.01)
    model.train(train, until_epoch=3, callbacks=[LossMonitor()])
    print(model.evaluate(test)['top1'])
"""
import ctypes
import functools
import inspect
import threading
from collections.abc import Mapping
from ctypes import byref

from . import _c, ops
from ._call import Freed, Owner, busy, call, deferring, guarded, interruptible, plain_call, stopping, take
from ._convert import expect, fill, np, optimizer_options, options, rate_options, takes, text, view
from ._library import Error, need
from ._methods import ContextMethods, ModelMethods
from .callbacks import evaluation_dict, set_callbacks
from .data import as_dataset, batch_arrays
from .executor import Exec
from .graph import Graph, Node
from .nn import Module

LOSSES = {'softmax': 'trm_loss_softmax', 'softmax_expand': 'trm_loss_softmax_expand', 'logistic': 'trm_loss_logistic'}


class Inputs(dict):
    """The fields of a batch as nodes; a field that the dataset lacks is an error that lists its fields."""

    def __init__(self, graph, handle, names):
        super().__init__()
        self.graph, self.handle, self.names = graph, handle, names

    def __missing__(self, name):
        node = _c.trm_inputs_get(self.handle, text(name))
        if node.id == 0:
            self.graph.check()
        self[name] = Node(self.graph, node.id)
        return self[name]


def given_fields(function, inputs, first=()):
    """The arguments of a network or loss: `first`, then fields by the names of the parameters; `inputs` is all of them."""
    parameters = inspect.signature(function.forward if isinstance(function, Module) else function).parameters.values()
    found = list(first)
    for p in list(parameters)[len(first):]:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        if p.name == 'inputs':
            found.append(inputs)
        elif p.name in inputs.names:
            found.append(inputs[p.name])
        elif p.default is not p.empty:
            break
        elif not found and not first:
            found.append(inputs[inputs.names[0]])  # the one input of a network, whatever its name
        else:
            raise Error(f'{getattr(function, "__name__", type(function).__name__)}: the parameter {p.name!r} is no field of the data '
                        f'(expected {", ".join(inputs.names)}, or "inputs" for all of them)')
    return found


def of_program(method):
    """A method of a model that is the same of its program."""
    return functools.wraps(method)(lambda self, *values, **more: method(self.exec, *values, **more))


class Model(ModelMethods, Owner):
    """A network with its loss, optimiser, position and parameters.

    network: a function or nn.Module that adds the network to the graph: its parameters are fields of the data ("image",
        "keys", ...) or `inputs`, a dictionary of all of them; it returns the logits. Or the name of a network: resnet50, mlp, ...
    data: a dataset with the shapes of the inputs
    loss: softmax, softmax_expand, logistic, or a function (logits, label) that returns a scalar node
    optimizer: sgd, momentum, nesterov, adam, adamw, lars, adagrad, ftrl, or {'kind': ..., 'momentum': ..., ...}
    learning_rate: a number, or {'base': ..., 'decay': 'cosine', 'warmup_steps': ..., ...}
    metrics: Metric objects of evaluations
    context: options of parallel training by MindSpore's names: {'parallel_mode': 'data_parallel', ...}
    elastic: an Elastic: ranks may die, leave and join
    more: members of trm_model_options and of the structs inside: seed, precision, accumulate, threads, loss_scale={...},
        parallel={...}, split={...}, ...

    A process that has joined other ranks (trireme.distribute) trains with them: every call is then collective.
    """

    _graph = None  # that the library builds
    runs = None  # the function of the library that runs
    in_use = None  # while a call of the library runs: what keeps the model's memory and the data's

    @takes(_c.trm_model_options)
    def __init__(self, network, data, loss='softmax', optimizer='sgd', learning_rate=0.01, metrics=(), context=None, **more):
        self.handle, self.keep, self._failure, self.lock = None, [], None, threading.RLock()  # of the one thread that calls
        self.elastic, self.left = more.get('elastic'), False
        self.data = as_dataset(data)
        context = Context(context) if context is not None and not isinstance(context, Context) else context
        made = _c.trm_model_options()
        self.options_into(made, network, loss, metrics, dict(more, data=self.data, context=context, optimizer=optimizer_options(optimizer),
                                                             learning_rate=rate_options(learning_rate)))
        self.keep.append(made)
        self.handle, self.options_c = take(_c.trm_model_create, byref(made), run=self._call), made
        if self.elastic is not None:
            self.elastic.users += 1

    def options_into(self, made, network, loss, metrics, values):
        """Fills in a trm_model_options."""
        expect(isinstance(metrics, (list, tuple)) and len(metrics) <= len(made.metrics) and all(hasattr(m, 'c_metric') for m in metrics),
               'Model: metrics', f'at most {len(made.metrics)} Metric objects', metrics)
        for i, m in enumerate(metrics):
            made.metrics[i] = m.c_metric(self.keep, self)
        for what, given in (('network', network), ('loss', loss)):
            expect(not hasattr(given, 'named_parameters'), f'Model: {what}', 'a function or a Module of trireme.nn (torch.nn has other operators)', given)
        classes, stem = values.pop('classes', None), values.pop('stem', None)
        if isinstance(network, str):
            network = named_network(network, classes or self.data.class_count, stem)
        expect(callable(network), 'Model: network', 'a function, a Module or the name of a network', network)
        made.network = _c.trm_network(lambda graph, inputs, context: self._build(graph, inputs, network, ()))
        if callable(loss):
            made.loss = _c.trm_loss(lambda graph, logits, inputs, context: self._build(graph, inputs, loss, (logits.id,)))
        elif isinstance(loss, str) and loss in LOSSES:
            made.loss = ctypes.cast(getattr(_c.lib, LOSSES[loss]), _c.trm_loss)
        else:
            raise Error(f'Model: there is no loss {loss!r} (expected one of {", ".join(LOSSES)}, or a function)')
        self.keep += [made.network, made.loss]
        fill(made, values, self.keep)

    def _call(self, function, *arguments, data=None):
        """As call(); an exception of the network, the loss or a metric's value, which have no error record, is raised in its place. A callback may close
        the model and the data: both stay until the call ends."""
        if self.in_child() and self.handle:
            self.exec.check_child()
        if not self.lock.acquire(blocking=False):
            raise Error(f'Model: another thread is in a call of this model ({function.__name__} was called); wait for it, or make '
                        'another model')
        held = self.held()
        before = self.in_use, self.runs, self._failure  # of the call whose callback makes this one
        self.in_use, self.runs, self._failure = (held, None if data is None else data.use()), function, None
        error = None
        try:
            with deferring(), busy(self, *self.in_use):
                status = call(function, *arguments)
        except Error as caught:
            error = caught
        finally:
            error = self._failure or error
            self.end_graph()
            self.in_use, self.runs, self._failure = before
            self.lock.release()
            if self.closed and self.elastic is not None and self.in_use is None:  # by a callback: the other ranks wait for this one to leave
                held.end()
        try:
            if error is not None:
                raise error from None
        finally:
            error = None  # it has this frame: kept here it would keep the model alive
        return status

    def end_graph(self):
        """The library has compiled the graph: nodes of it serve no more."""
        if self._graph is not None:
            self._graph.end()
            self._graph = None

    def fail(self, error):
        """The call that runs raises this exception; a training ends after its step."""
        self._failure = error
        if self.runs is _c.trm_model_train:
            self.request_stop()

    def _build(self, graph_handle, inputs_handle, function, first):
        try:
            graph = self._graph
            if graph is None or not first:
                self.end_graph()
                graph = self._graph = Graph(handle=graph_handle)
            with graph:
                inputs = Inputs(graph, inputs_handle, self.data.names)
                result = interruptible(lambda: function(*given_fields(function, inputs, [Node(graph, i) for i in first])))
            what = 'loss' if first else 'network'
            if not isinstance(result, Node):
                raise Error(f'the {what} function {getattr(function, "__name__", type(function).__name__)} returned '
                            f'{type(result).__name__} (expected a node: {"a scalar" if first else "the logits"}); is a return missing?')
            return result.id
        except BaseException as error:  # nothing may pass through C
            self._failure = error
            return 0

    # ---- training

    def train(self, data=None, until_epoch=0, until_step=0, callbacks=(), sink=False, profile=None):
        """Trains until the model has done so many epochs, or steps, in its whole life. Ctrl-C ends it after its step; callbacks
        save.

        callbacks: Callback objects, or functions that are called after each step
        sink: an epoch runs without callbacks for each step
        profile: file for a timeline of this call (ui.perfetto.dev)
        """
        keep = []
        data = self.data if data is None else as_dataset(data)
        given = options(_c.trm_train_options, {'data': data, 'until_epoch': until_epoch, 'until_step': until_step, 'sink': sink, 'profile': profile}, keep)
        set_callbacks(given, callbacks, self, keep)
        with stopping(self.request_stop, self.request_leave if self.elastic is not None else None):
            self.left = self._call(_c.trm_model_train, self.handle, byref(given), data=data) == _c.TRM_END
        return self

    def evaluate(self, data, steps=0):
        """Evaluates on one pass over the data (or its first batches); returns a dictionary: loss, samples, top1, auc, ..."""
        out = _c.trm_evaluation()
        data = as_dataset(data, drop_remainder=False)
        function, count = (_c.trm_model_evaluate_steps, [steps]) if steps else (_c.trm_model_evaluate, [])
        with stopping(self.request_stop):
            self._call(function, self.handle, data.handle, *count, byref(out), data=data)
        return evaluation_dict(out)

    def predict(self, data, see=None):
        """The logits of all samples, in the order of the data, which has the fields that the network reads. see(logits, batch):
        called for each batch in place of that. Its arrays hold during the call; copy what you keep."""
        parts = []
        data = as_dataset(data, drop_remainder=False)

        def take(context, logits, samples, batch):
            array = view(logits[0], self.in_use, True)[:samples]
            if see is not None:
                see(array, batch_arrays(batch[0], self.in_use))
            else:
                parts.append(array.copy())
        hook = guarded(_c.trm_prediction_fn, take, 'the prediction function')
        with stopping(self.request_stop):
            self._call(_c.trm_model_predict, self.handle, data.handle, hook, None, None, data=data)
        return np.concatenate(parts) if parts else None

    # ---- state

    @property
    def exec(self):
        """The compiled program as an Exec. When the ranks of an elastic job change, a new program takes its place: arrays over the memory of
        the one before are not to be used any more."""
        return Exec._borrow(self)

    rank = property(lambda self: self.exec.ranks().rank, doc="This process's rank in the model's training.")

    def epoch_steps(self, data=None):
        """Updates in an epoch of the data."""
        return _c.trm_model_epoch_steps(self.handle, (self.data if data is None else data).handle)

    state_dict, load_state_dict, describe = map(of_program, (Exec.state_dict, Exec.load_state_dict, Exec.describe))

    def save(self, directory, keep=5):
        """Saves the whole state (parameters, slots, position) as directory/ckpt-STEP. Collective."""
        writer = take(_c.trm_checkpoint_writer_open, text(directory), byref(_c.trm_checkpoint_options(keep=keep))) if self.rank == 0 else None
        try:
            self._call(_c.trm_model_save, self.handle, writer)
        finally:
            if writer:
                call(_c.trm_checkpoint_writer_close, writer)

    def resume(self, path):
        """Restores the whole state from a checkpoint, or the newest sound one of a directory. False: there is none."""
        return self._call(_c.trm_model_resume, self.handle, text(path)) != _c.TRM_END

    def load(self, path, partial=False):
        """Reads parameters and states from a checkpoint or a .safetensors file; returns how many were not in it."""
        skipped = ctypes.c_int32()
        self._call(_c.trm_model_load, self.handle, text(path), partial, byref(skipped))
        return skipped.value

    def export(self, path):
        """Writes the weights for other programs, by the suffix: .safetensors, .npz, .onnx (with evaluation_only)."""
        kind = str(path).rsplit('.', 1)[-1]
        need(kind in ('safetensors', 'npz', 'onnx'),
             f'Model.export: {path}: unknown suffix (expected .safetensors, .npz or .onnx)')
        self._call(getattr(_c, 'trm_export_' + kind), self.handle, text(path))

    def _end(self, handle):
        _c.trm_model_destroy(handle)
        if self.elastic is not None:
            self.elastic.release()

    def close(self):
        """Ends the model. Its memory is freed when the last array over it (model.exec.output(), ...) is gone; at once in an elastic job."""
        if self._handle:
            held = self.held()
            self.destroy(self._end)
            if self.elastic is not None and self.in_use is None:  # the other ranks wait for this one to leave
                held.end()


class Context(ContextMethods, Freed):
    """Options of parallel training by MindSpore's names; `trireme help context` lists them."""

    free = 'trm_context_destroy'

    def __init__(self, values=()):
        expect(isinstance(values, Mapping) or values == (), 'Context', 'a dictionary of options', values)
        self.handle = take(_c.trm_context_create)
        self.set(**dict(values))

    def set(self, **values):
        """Sets options; an unknown name or value is an error."""
        for name, value in values.items():
            value = str(value).lower() if isinstance(value, bool) else str(value)
            call(_c.trm_context_set, self.handle, text(name), text(value))
        return self

    def get(self, name):
        """The value of an option, as text."""
        value = _c.trm_context_get(self.handle, text(name))
        need(value is not None, f'Context: there is no option {name!r}')
        return value.decode()


def named_network(name, classes, stem):
    """The library's network of this name; images of 32x32 take the stem of CIFAR."""
    def build(image):
        small = image.ndim == 4 and max(image.shape[2:]) <= 64
        return ops.network_build(name, image, classes=classes or None, stem=stem or ('cifar' if small else None))
    build.__name__ = name
    return build


def learning_rate_at(schedule, step):
    """The learning rate of a schedule at a global step."""
    return plain_call(_c.trm_learning_rate_at, byref(options(_c.trm_learning_rate, rate_options(schedule), [])), step)
