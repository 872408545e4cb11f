# SPDX-License-Identifier: Apache-2.0
# Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.
"""Methods that pass on to one function of the library each, and the hooks of a training."""
import json
from typing import Any, Sequence, Union

from . import _c
from ._call import call, pass_on
from ._convert import takes


def as_json(text: str, json_form: bool) -> Any:
    return json.loads(text) if json_form else text


class DatasetMethods:
    def seed(self, seed: int) -> Any:
        """Sets the seed of order and augmentation; without this call it is 0.
          errors   INVALID
        """
        pass_on('trm_dataset_seed', self, seed)
        return self

    def shard(self, count: int, index: int, mode: Any = 'wrap') -> Any:
        """Reads shard `index` of `count`: places index, index + count, ... of the one global order. A model
        with ranks shards a dataset itself unless the program has called this (training wraps, evaluation
        pads).
          param    count: 1: every rank reads all of it
                   index: 0 to count - 1
                   mode: how the last samples are shared
          errors   INVALID

        mode: wrap, drop, pad
        """
        pass_on('trm_dataset_shard', self, count, index, mode)
        return self

    def shuffle(self, window: int = 0) -> Any:
        """Reads in a new order each epoch: one permutation of the whole source, the same on all shards.
          param    window: above 1: also shuffles within a window of so many samples of the shard
          errors   INVALID
        """
        pass_on('trm_dataset_shuffle', self, window)
        return self

    def batch(self, size: int, drop_remainder: bool = True) -> Any:
        """Sets the number of samples in a batch.
          param    size: samples of this shard, at least 1
                   drop_remainder: False = the last batch of an epoch keeps its shape; rows from
                   batch.samples on are zero, with int32 labels -1 (trm_xent_options.ignore_index)
          errors   INVALID
        """
        pass_on('trm_dataset_batch', self, size, drop_remainder)
        return self

    def repeat(self, passes: int) -> Any:
        """Ends after `passes` epochs (TRM_END) in place of each one. An epoch stays one pass: batch.epoch
        counts passes, and epoch_batches() is of one.
          param    passes: 0 = it never ends
          errors   INVALID
        """
        pass_on('trm_dataset_repeat', self, passes)
        return self

    def prefetch(self, depth: int = 4, threads: int = 1) -> Any:
        """Fills whole batches ahead with `threads` threads. Without this call next() fills the
        batch itself.
          param    depth: batches in all, at least one a thread; 0 = no prefetch
          errors   INVALID
        """
        pass_on('trm_dataset_prefetch', self, depth, threads)
        return self

    def describe(self) -> Any:
        """The whole pipeline as a JSON object: source, files, count, refinements, transforms,
        fields.
        """
        return json.loads(pass_on('trm_dataset_json', self))

    @property
    def sample_count(self) -> Any:
        """The samples of the whole source."""
        return _c.trm_dataset_sample_count(self.handle)

    @property
    def class_count(self) -> Any:
        """The classes of the source's label; 0 if there are none."""
        return _c.trm_dataset_class_count(self.handle)


class ExecMethods:
    def forward(self) -> Any:
        """Runs the forward steps only. For evaluation graphs. With a training graph the gradients of the
        last forward_backward() may be lost, because activations take their memory:
        update() and gradient() are then refused until its next call. Dense gradients stay
        with trm_exec_options.whole_gradients, and accumulated ones.
          errors   INVALID (an input that never got values, an id outside of a table), the error of an
                   operator of the program's own, with many ranks those of trm_comm_run
        """
        self.check_child()
        call(_c.trm_exec_forward, self.handle)

    def update(self, learning_rate: float) -> Any:
        """Applies the optimiser to all parameters and readies the gradient range for the next step. It uses
        the gradients of the last forward_backward(), again if it is called twice; before the
        first one they are 0.
          param    learning_rate: of this update
          errors   INVALID (a graph without a loss, updated_elsewhere, too few accumulated calls,
                   gradients that forward() has overwritten),
                   DIVERGED (a gradient is NaN or infinite, with a loss scale: at scale 1; the sentence
                   names the first operator, for which all ranks repeat the step; in a pipeline, and
                   where the next batch was fed on any rank, the first parameter), with many ranks those
                   of trm_comm_run
        """
        self.check_child()
        call(_c.trm_exec_update, self.handle, learning_rate)

    def broadcast(self) -> Any:
        """Copies rank 0's parameters, states, slots and step to all ranks, except layerwise parameters.
          errors   those of trm_comm_run
        """
        self.check_child()
        call(_c.trm_exec_broadcast, self.handle)

    def gather(self) -> Any:
        """Completes on every rank the variables of which a rank holds a part, so that read() returns
        them whole: slots with shard_optimizer, all variables of a split graph.
          errors   NOMEM (also of another rank), those of trm_comm_run
        """
        self.check_child()
        call(_c.trm_exec_gather, self.handle)

    def explain(self, json_form: bool = False) -> Any:
        """The program as text, or as one JSON object: operators, layouts, fusions, memory by
        category, FLOPs, predicted time.
        """
        return as_json(pass_on('trm_exec_explain', self, json_form), json_form)

    @property
    def loss(self) -> Any:
        """The loss of the last forward pass; once gradients are reduced, the mean of all ranks."""
        return _c.trm_exec_loss(self.handle)


class PlannerMethods:
    def report(self, json_form: bool = True) -> Any:
        """The whole report, for people or as one JSON object."""
        return as_json(pass_on('trm_planner_report', self, json_form), json_form)

    def svg(self) -> Any:
        """A picture of the operators, by how they are cut, as SVG."""
        return pass_on('trm_planner_svg', self)

    def dot(self) -> Any:
        """The graph of the operators, by how they are cut, as DOT."""
        return pass_on('trm_planner_dot', self)

    def save(self, path: str) -> Any:
        """Writes the chosen plan to a file, complete or not at all.
          errors   IO, NOSPACE, NOMEM
        """
        return pass_on('trm_planner_save', self, path)

    @property
    def info(self) -> Any:
        """Describes the chosen plan and the search."""
        return pass_on('trm_planner_get_info', self)


class GraphMethods:
    def check(self) -> Any:
        """The first error of all functions that added to the graph; TRM_OK if there was none.
          errors   INVALID (an operator's input, shape, type or name, with the sentence), NOMEM
        """
        self.check_child()
        call(_c.trm_graph_check, self.handle)

    @property
    def training(self) -> Any:
        """Returns true if the graph was created for training."""
        return _c.trm_graph_is_training(self.handle)


class ModelMethods:
    def request_stop(self) -> Any:
        """Ends the running train() after its current step, in sink mode too: callbacks save, and it
        returns TRM_CANCELLED; with many ranks on all of them, one step later. Without a running call the
        next one returns at once.
          threads  any; may be called from a signal handler
        """
        return pass_on('trm_model_request_stop', self)

    def request_leave(self) -> Any:
        """Makes this rank leave its elastic job after the current step; its train() returns
        TRM_END, and the others go on. Where too few ranks would be left, all stop as by
        request_stop(); so does a model of no elastic job.
          threads  any; may be called from a signal handler
        """
        return pass_on('trm_model_request_leave', self)

    @property
    def global_step(self) -> Any:
        """The steps since the initial values."""
        return _c.trm_model_global_step(self.handle)


class EstimatorMethods:
    def plan(self, json_form: bool = False) -> Any:
        """Describes what this process will do, checked as far as possible without the other processes:
        lines for people, or one JSON object.
          errors   NOMEM
        """
        return as_json(pass_on('trm_estimator_plan', self, json_form), json_form)

    def request_stop(self) -> Any:
        """Ends the running train_and_evaluate() soon.
          threads  any; may be called from a signal handler
        """
        return pass_on('trm_estimator_request_stop', self)


class ElasticMethods:
    def request_leave(self) -> Any:
        """Makes this process leave the job with the next recover(), which then returns END. Where
        fewer than `least` ranks would be left, it stays, and its wish is over: trm_membership has
        `stays`, and the program may end the job on all ranks.
          threads  any; may be called from a signal handler
        """
        return pass_on('trm_elastic_request_leave', self)

    @property
    def wants_change(self) -> Any:
        """Whether a process wants to leave or to join, as far as this rank knows. The ranks agree
        on it between two steps, and all call recover().
          threads  any
        """
        return _c.trm_elastic_wants_change(self.handle)


class TokenizerMethods:
    def save(self, folder: str) -> Any:
        """Writes tokenizer.json, which the package and `transformers` load, vocab.json and merges.txt;
        makes the folder.
          errors   IO, NOSPACE, NOMEM
        """
        return pass_on('trm_tokenizer_save', self, folder)


class ContextMethods:
    def reset(self) -> Any:
        """Sets every option to its default."""
        return pass_on('trm_context_reset', self)


class NodeMethods:
    __slots__ = ()
    _operate: Any = None  # graph.operate

    def sum(self, axis: Union[int, Sequence[int], None] = None, keepdims: bool = False) -> Any:
        """Adds the sum over axes.
          param    axis: negative: from the end; None: all axes
                   keepdims: reduced dimensions stay, with size 1
        """
        return self._operate('trm_reduce_sum', self, axis, keepdims)

    def mean(self, axis: Union[int, Sequence[int], None] = None, keepdims: bool = False) -> Any:
        """Adds the mean over axes; parameters as in trm_reduce_sum."""
        return self._operate('trm_reduce_mean', self, axis, keepdims)

    def max(self, axis: Union[int, Sequence[int], None] = None, keepdims: bool = False) -> Any:
        """Adds the maximum over axes; parameters as in trm_reduce_sum."""
        return self._operate('trm_reduce_max', self, axis, keepdims)

    def astype(self, dtype: Any) -> Any:
        """Adds a conversion of x to another type."""
        return self._operate('trm_cast', self, dtype)

    def __neg__(self) -> Any:
        return self._operate('trm_neg', self)

    def __add__(self, other: Any) -> Any:
        return self._operate('trm_add', self, other)

    def __radd__(self, other: Any) -> Any:
        return self._operate('trm_add', other, self)

    def __sub__(self, other: Any) -> Any:
        return self._operate('trm_sub', self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._operate('trm_sub', other, self)

    def __mul__(self, other: Any) -> Any:
        return self._operate('trm_mul', self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._operate('trm_mul', other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._operate('trm_div', self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._operate('trm_div', other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._operate('trm_matmul', self, other, False, False)

    def __rmatmul__(self, other: Any) -> Any:
        return self._operate('trm_matmul', other, self, False, False)


class ParameterServerStrategy:
    """Parameter servers of a job, as TensorFlow's tf.distribute.experimental.ParameterServerStrategy.
    Zero means the default.
    """

    @takes(_c.trm_ps_strategy)
    def __init__(self, **more: Any) -> None:
        self.values = more


class EvalSpec:
    """The data of the evaluator, and how often it evaluates."""

    @takes(_c.trm_eval_spec)
    def __init__(self, input_fn: Any, **more: Any) -> None:
        self.input_fn = input_fn
        self.values = more


class Hooks:
    def on_begin(self, progress: Any) -> Any:
        """After the position is known, before the first step."""

    def on_epoch_begin(self, progress: Any) -> Any:
        """Before an epoch's first step."""

    def on_gradients(self, progress: Any) -> Any:
        """Gradients are complete, parameters still old (ranges())."""

    def on_step_end(self, progress: Any) -> Any:
        """After each step; sink mode: once, after the epoch's last step, or where the run ends inside
        it.
        """

    def on_epoch_end(self, progress: Any) -> Any:
        """After an epoch's last step."""

    def on_evaluated(self, progress: Any) -> Any:
        """After an evaluation by a callback."""

    def on_checkpoint(self, progress: Any) -> Any:
        """After a checkpoint was written."""

    def on_membership(self, progress: Any) -> Any:
        """The ranks of an elastic job have changed; then on_begin again."""

    def on_end(self, progress: Any) -> Any:
        """All epochs done, or stopped; not after an error."""


HOOKS = ('on_begin', 'on_epoch_begin', 'on_gradients', 'on_step_end', 'on_epoch_end', 'on_evaluated', 'on_checkpoint', 'on_membership', 'on_end')
