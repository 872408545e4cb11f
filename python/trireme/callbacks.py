# SPDX-License-Identifier: Apache-2.0
"""Callbacks of a training: Python objects with hooks, and the library's own."""
import ctypes
import inspect
import itertools
import math
import sys
import time

from . import _c
from ._call import guarded, plain_call
from ._convert import argument, as_dict, expect, text, view
from ._library import need
from ._methods import HOOKS, Hooks


def refuse_unknown(names, what):
    """Raises TypeError for a name that is no hook: it would never be called."""
    for name in names:
        if name not in HOOKS:
            raise TypeError(f'{what}: there is no hook {name!r} (expected {", ".join(HOOKS)})')


class StopTraining(Exception):
    """Raised by a hook: training ends after this step, without an error. With many ranks their hooks raise it after the same step, else
    train() fails on all of them; one rank alone calls progress.model.request_stop(), which all follow."""


class Progress:
    """The state of training as hooks receive it; valid during the hook. Members: help(trireme._c.trm_progress).

    evaluation: the last evaluation as a dictionary, as evaluate() returns it; None before the first
    membership: the ranks since the last change of an elastic job, as Elastic.membership; None before the first change
    loss_scale: the loss scale of mixed precision as a dictionary; None without one
    """

    __slots__ = ('c', 'model')

    def __init__(self, c, model):
        self.c, self.model = c, model

    def __getattr__(self, name):
        value = getattr(self.c, name)
        if isinstance(value, ctypes._Pointer):
            return STRUCTS[name](value[0]) if value else None
        return value.decode() if isinstance(value, bytes) else value

    def __dir__(self):
        return [name for name, _ in _c.trm_progress._fields_]

    samples_per_second = property(lambda self: self.c.samples / self.c.busy_seconds if self.c.busy_seconds > 0 else 0.0,
                                  doc='Samples per second of this call, without the time of callbacks.')


def evaluation_dict(e):
    """An evaluation as a dictionary of what is valid in it."""
    found = {'loss': e.loss, 'samples': e.samples, 'seconds': e.seconds}
    for flag, names in (('has_top', ('top1', 'top5')), ('has_auc', ('auc', 'logloss', 'calibration')),
                        ('has_tokens', ('tokens', 'perplexity', 'bits_per_byte')), ('has_accuracy', ('accuracy',))):
        if getattr(e, flag):
            found.update((name, getattr(e, name)) for name in names)
    found.update((e.metrics[i].name.decode(), e.metrics[i].value) for i in range(e.metric_count))
    return found


def membership_dict(m):
    """A trm_membership as a dictionary; lost, left and joined are lists of ranks' numbers."""
    found = as_dict(m)
    for name in ('lost', 'left', 'joined'):
        found[name] = [int(number) for number in found[name].split(',') if number.strip().isdigit()]
    return found


STRUCTS = {'evaluation': evaluation_dict, 'membership': membership_dict, 'loss_scale': as_dict}


class Callback(Hooks):
    """Hooks of a training: override those that are wanted. A hook gets a Progress. It ends training by raising
    StopTraining or returning True; any other exception ends it on all ranks, and train() raises it.
    """

    last = False  # its hooks run after those of all others

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        refuse_unknown([name for name in vars(cls) if name.startswith('on_')], cls.__name__)

    def c_callback(self, model, keep):
        """The trm_callback that calls the hooks of the class and of the object. It has one at least: one without ends the library's list."""
        hooks = {name: f'{type(self).__name__}.{name}' for name in HOOKS if getattr(type(self), name) is not getattr(Callback, name)}
        hooks.update((name, f'the {name} function') for name in HOOKS if vars(self).get(name) is not None)
        made = _c.trm_callback(last=self.last)
        for name in hooks or ('on_begin',):
            hook = hook_of(getattr(self, name), hooks.get(name), model)
            keep.append(hook)
            setattr(made, name, hook)
        return made


def hook_of(method, what, model):
    """The trm_hook of a method or function; `what` is its name in errors."""
    def run(context, progress):
        try:
            found = method(Progress(progress[0], model))
        except StopTraining:
            return _c.TRM_END
        if isinstance(found, Callback):
            raise TypeError('it returned a callback, at each step; put the callback itself in the list of callbacks')
        if inspect.isgenerator(found) or inspect.iscoroutine(found):
            raise TypeError(f'it is no plain function: it returned a {type(found).__name__}, of which nothing has run')
        return _c.TRM_END if found is True or type(found).__name__ in ('bool', 'bool_') and found else _c.TRM_OK
    return guarded(_c.trm_hook, run, what)


class Lambda(Callback):
    """A callback of functions: Lambda(on_step_end=lambda p: print(p.loss))."""

    def __init__(self, **hooks):
        refuse_unknown(hooks, 'Lambda')
        for name, function in hooks.items():
            expect(callable(function), f'Lambda: {name}', 'a function', function)
        vars(self).update(hooks)


def set_callbacks(made, given, model, keep):
    """Fills in the callbacks of a struct from Callback objects, and functions that are called after each step."""
    listed = given is None or hasattr(given, '__iter__') and not isinstance(given, Callback)
    expect(listed, 'callbacks', 'a list of Callback objects and functions', given)
    given = list(itertools.islice(given or (), len(made.callbacks) + 1))
    need(len(given) <= len(made.callbacks), f'callbacks: found more than {len(made.callbacks)}, expected at most so many')
    for i, c in enumerate(given):
        if isinstance(c, type) and issubclass(c, Callback) or inspect.isfunction(c) and c.__module__.startswith('trireme.'):
            raise TypeError(f'callbacks: write {c.__name__}(), with brackets, in the list of callbacks')
        expect(not isinstance(c, type) and (hasattr(c, 'c_callback') or callable(c)), 'callbacks', 'a Callback object or a function', c)
        made.callbacks[i] = (c if hasattr(c, 'c_callback') else Lambda(on_step_end=c)).c_callback(model, keep)


print_line = _c.trm_print(lambda line: print(line.decode('utf-8', 'replace'), flush=True) or 0)


class Library(Callback):
    """A callback of the library: the name of the function that makes it, and its arguments. It runs without Python."""

    def __init__(self, name, *values):
        self.function, self.values = getattr(_c, name), values

    def c_callback(self, model, keep):
        passed, values = [], iter(self.values)
        for index, name in enumerate(self.function.names):
            value = print_line if name == 'print' else next(values)
            if name == 'data':
                keep.append(value.use())
                value = value.handle
            passed.append(argument(self.function, index, value, keep))
        return plain_call(self.function, *passed)


def EvaluateEvery(data, every_epochs=1):
    """Evaluates on `data` at the end of every `every_epochs`-th epoch."""
    from .data import as_dataset
    return Library('trm_evaluate_every', as_dataset(data, drop_remainder=False), every_epochs)


class ProgressBar(Callback):
    """One line with step, loss and rate, renewed on a terminal; nothing elsewhere, and nothing on ranks other than 0."""

    def __init__(self, every_seconds=0.2, file=None):
        expect(isinstance(every_seconds, (int, float)), 'ProgressBar: every_seconds', 'a number', every_seconds)
        expect(file is None or hasattr(file, 'isatty'), 'ProgressBar: file', 'a text file', file)
        self.file, self.every, self.shown = file or sys.stderr, every_seconds, 0.0

    def on_begin(self, p):
        self.on = self.file.isatty() and (p.model is None or p.model.rank == 0)

    def on_step_end(self, p):
        now = time.monotonic()
        if not self.on or now - self.shown < self.every and p.step != p.epoch_steps:
            return
        self.shown = now
        done = int(20 * p.step / max(1, p.epoch_steps))
        self.file.write(f'\r\033[Kepoch {p.epoch}/{p.epochs or "?"} [{"=" * done}{" " * (20 - done)}] {p.step}/{p.epoch_steps} '
                        f'loss {p.loss:.4f} {p.samples_per_second:.0f} samples/s')
        if p.step == p.epoch_steps:
            self.file.write('\n')
        self.file.flush()


class History(Callback):
    """Keeps loss and learning rate of each step and all evaluations; shows them as a curve in a notebook."""

    def __init__(self):
        self.steps, self.losses, self.rates, self.evaluations = [], [], [], []

    def on_step_end(self, p):
        self.steps.append(p.global_step)
        self.losses.append(p.loss)
        self.rates.append(p.learning_rate)

    def on_evaluated(self, p):
        self.evaluations.append((p.global_step, p.evaluation))

    def _repr_svg_(self):
        curve = [(step, loss) for step, loss in zip(self.steps, self.losses) if math.isfinite(loss)]
        if not curve:
            words = 'no loss is a finite number' if self.losses else 'no steps yet'
            return f'<svg xmlns="http://www.w3.org/2000/svg" width="480" height="40"><text x="8" y="24">{words}</text></svg>'
        low, high = min(loss for _, loss in curve), max(loss for _, loss in curve)
        first, last = self.steps[0], max(self.steps[-1], self.steps[0] + 1)
        stride = max(1, len(curve) // 1000)
        points = ' '.join(f'{50 + 420 * (s - first) / (last - first):.1f},{170 - 150 * (v - low) / ((high - low) or 1):.1f}'
                          for s, v in curve[::stride])
        return ('<svg xmlns="http://www.w3.org/2000/svg" width="480" height="200" font-family="sans-serif" font-size="11">'
                f'<polyline fill="none" stroke="#1f77b4" points="{points}"/><text x="4" y="24">{high:.4g}</text>'
                f'<text x="4" y="170">{low:.4g}</text><text x="50" y="192">step {first}</text>'
                f'<text x="470" y="192" text-anchor="end">{self.steps[-1]}</text><text x="240" y="12">loss</text></svg>')


class Metric:
    """A metric of the program's own: add(logits, batch) returns one number or several, which are summed over batches and ranks;
    value(sums) makes the metric of them (two numbers: the first divided by the second).
    """

    def __init__(self, name, add, sums=2, value=None):
        if sums > 2 and value is None:
            raise TypeError(f'Metric {name!r}: a function value expected, which makes the metric of its {sums} sums')
        self.name, self.add, self.sums, self.value = name, add, sums, value

    def c_metric(self, keep, model):
        """The trm_metric of this metric; `keep` holds what it points to."""
        from .data import batch_arrays

        def add(context, logits, samples, batch, sums):
            held = model.in_use  # an estimator's model has none: nothing keeps its memory, so that the metric gets copies
            own = (lambda array: array[:samples]) if held is not None else (lambda array: array[:samples].copy())
            arrays = {k: own(v) for k, v in batch_arrays(batch[0], held).items()}
            values = self.add(own(view(logits[0], held, True)), arrays)
            values = list(values) if isinstance(values, (tuple, list)) or getattr(values, 'ndim', 0) else [values]
            if len(values) != self.sums:
                raise ValueError(f'add() returned {len(values)} numbers, expected {self.sums} (sums={self.sums})')
            for i, v in enumerate(values):
                sums[i] += v

        def value(context, sums):
            try:
                return float(self.value([sums[i] for i in range(self.sums)]))
            except BaseException as error:  # there is no error record: the model raises it when the call ends
                model.fail(error)
                return float('nan')
        kinds = dict(_c.trm_metric._fields_)
        made = _c.trm_metric(name=text(self.name), sum_count=self.sums, add=guarded(kinds['add'], add, f'the metric {self.name}'))
        if self.value is not None:
            made.value = kinds['value'](value)
        keep.append(made)
        return made


from ._monitors import *  # noqa: E402, F403: they need Library

__all__ = [name for name in dir() if name[0].isupper()]
