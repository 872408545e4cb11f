# SPDX-License-Identifier: Apache-2.0
# Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.
"""Callbacks of the library: they run without Python."""
from typing import Any

from . import _c
from ._convert import takes
from .callbacks import Library

__all__ = [
    'LossMonitor', 'TimeMonitor', 'MetricsRecorder', 'RunRecorder', 'ModelCheckpoint', 'EarlyStop', 'TensorBoard',
]


def LossMonitor(every: int = 1) -> Library:
    """Prints "epoch: 1 step: 156, loss is 2.0084016" every `every` steps; in sink mode once an epoch,
    with the loss of the epoch's (or run's) last step.
      param    every: steps; 0 = only at the end of each epoch and of training
               print: receives the lines
    """
    return Library('trm_loss_monitor', every)


def TimeMonitor() -> Library:
    """Prints "epoch time: 4321.123 ms, per step time: 27.699 ms" at the end of each epoch.
      param    print: receives the lines
    """
    return Library('trm_time_monitor')


def MetricsRecorder(path: str, every: int = 1) -> Library:
    """Writes a file of metrics (trireme/io.h): a line every `every` steps, at the end of each epoch,
    and for each evaluation. A resumed run continues the file; lines of steps that come again are
    dropped first. A full disk is logged once and does not stop training.
      param    path: ends in .csv or .jsonl
               every: 0 = 1
    """
    return Library('trm_metrics_recorder', path, every)


def RunRecorder(directory: str, every: int = 0) -> Library:
    """Appends the events of training to DIRECTORY/run.jsonl, which `trireme report` and `trireme top`
    read (docs/guides/reports.md): start, steps, evaluations, checkpoints, changes of ranks, end.
    Rank N writes run-rank-N.jsonl beside it, from which reports have its waiting. A line that cannot
    be written is logged once, and training goes on.
      param    every: a step is written every `every` steps, the first, and the last of an epoch; 0 =
               100
    """
    return Library('trm_run_recorder', directory, every)


@takes(_c.trm_model_checkpoint_options)
def ModelCheckpoint(directory: str, **more: Any) -> Library:
    """Saves checkpoints as the options say, and at the end of training or when it is stopped. Sink
    mode: only between epochs (and when stopped), at the end of the epoch in which one was due. If
    the disk is full (NOSPACE), a save is left out with a warning and tried again when the next one
    is due; the last one then fails. An elastic job that begins at step 0 fails (INVALID) where the
    directory has checkpoints: its ranks may be those of an ended job, started again.
    """
    return Library('trm_model_checkpoint', dict(more, directory=directory))


@takes(_c.trm_early_stop_options)
def EarlyStop(**more: Any) -> Library:
    """Stops training when the watched value no longer improves. Its state is kept in checkpoints. A
    value of evaluations needs EvaluateEvery in the same list (else INVALID).
    """
    return Library('trm_early_stop', more)


@takes(_c.trm_tensorboard_options)
def TensorBoard(directory: str, **more: Any) -> Library:
    """Writes an event file: loss, learning rate, images per second, evaluation, on request histograms
    and the graph. A resumed run begins a new file that says from which step on.
    """
    return Library('trm_tensorboard', dict(more, directory=directory))
