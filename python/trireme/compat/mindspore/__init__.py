# SPDX-License-Identifier: Apache-2.0
"""MindSpore's names, as far as its guide to distributed training uses them, over Trireme.

    import trireme.compat.mindspore        # from here on `import mindspore` is this, in this process

A script that begins with this line keeps its own imports (mindspore.nn, .ops, .dataset, .train, .communication, ...).
Attributes that are not here are an error that names them.
"""
import sys
import types

from ... import _c, distribute, ops, transforms as _t
from ...callbacks import LossMonitor as _LossMonitor, ModelCheckpoint, TimeMonitor
from ...data import Dataset as _Dataset
from ...graph import as_node, current
from ...model import Context, Model as _Model
from ...nn import (AvgPool2d as _AvgPool2d, BatchNorm2d as _BatchNorm2d, Conv2d as _Conv2d, Dropout as _Dropout, Flatten, Linear,
                   MaxPool2d as _MaxPool2d, Module, ReLU, Sequential, pair)
from ..._convert import expect, np
from ..._library import Error, need


def _only(what, given, without_effect='', **as_here):
    """Raises Error for an argument that is not supported. as_here: those of which one value means what Trireme does."""
    for name, value in given.items():
        if value is not None and name not in without_effect.split() and (name not in as_here or value != as_here[name]):
            raise Error(f'{what}: {name}={value!r} is not supported{f" (expected {as_here[name]!r})" if name in as_here else ""}')


# ---- mindspore.context ------------------------------------------------------------------------

GRAPH_MODE, PYNATIVE_MODE = 0, 1
_parallel = {}


class ParallelMode:
    STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL = 'stand_alone', 'data_parallel', 'hybrid_parallel'
    SEMI_AUTO_PARALLEL, AUTO_PARALLEL = 'semi_auto_parallel', 'auto_parallel'


def set_context(mode=GRAPH_MODE, device_target='CPU', device_id=0, **more):
    """The mode must be GRAPH_MODE; the device is this process's CPUs, whatever the target."""
    need(mode == GRAPH_MODE, 'set_context: mode PYNATIVE_MODE is not supported (expected GRAPH_MODE)')
    _only('set_context', more, 'save_graphs save_graphs_path enable_dump save_dump_path enable_hccl enable_task_sink enable_loop_sink enable_mem_reuse '
          'enable_ir_fusion enable_graph_kernel enable_profiling profiling_options max_device_memory max_call_depth print_file_path')


def set_auto_parallel_context(**values):
    """The options of `trireme help context`. Each rank reads its own samples, as the guide's dataset does."""
    if 'auto_parallel' in str(values.get('parallel_mode')):
        values.setdefault('full_batch', False)
    Context(values)  # an unknown name or value is an error here
    _parallel.update(values)


def get_auto_parallel_context(name):
    return Context(_parallel).get(name)


reset_auto_parallel_context = _parallel.clear


# ---- mindspore.communication ------------------------------------------------------------------

def init(backend_name=None):
    """Meets the other ranks (RANK_TABLE_FILE, RANK_ID, RANK_SIZE, or any other launcher's variables)."""
    distribute.init()


def get_rank(group=None):
    return distribute.rank()


def get_group_size(group=None):
    return distribute.size()


# ---- mindspore.common -------------------------------------------------------------------------

int8, uint8, int32, int64, float16, float32, float64 = 'int8', 'uint8', 'int32', 'int64', 'float16', 'float32', 'float64'


class Tensor:
    """A constant."""

    def __init__(self, value, dtype=None):
        self.value = np.asarray(value, dtype)

    def asnumpy(self):
        return self.value

    def __float__(self):
        return float(self.value)

    shape = property(lambda self: self.value.shape)


class Parameter:
    """Stands for all parameters of a Cell: Trireme's optimisers update all of them by one rule."""

    requires_grad, name = True, ''


# ---- mindspore.dataset ------------------------------------------------------------------------

Decode, Normalize, HWC2CHW = _t.decode, _t.normalize, _t.hwc2chw


def RandomCrop(size, padding=0):
    padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4
    need(len(set(padding)) == 1, f'RandomCrop: one padding for all sides is supported (found {padding})')
    return _t.random_crop(*pair(size), padding[0])


def RandomHorizontalFlip(prob=0.5):
    return _t.random_flip(prob)


def Resize(size, interpolation=None):
    return _t.resize(*size) if isinstance(size, (tuple, list)) else _t.resize_shorter(size)


def Rescale(rescale, shift):
    return _t.rescale(rescale, shift)


def CenterCrop(size):
    return _t.center_crop(*pair(size))


def TypeCast(dtype):
    return int32 if dtype == int32 else _t.type_cast(dtype)  # labels are int32 already


_WORKERS = 'num_parallel_workers python_multiprocessing max_rowsize cache offload'


class _Pipeline:
    """A dataset with MindSpore's methods; each returns it."""

    def __init__(self, made, num_shards=None, shard_id=None, shuffle=None, **more):
        _only('dataset', more, _WORKERS)
        self.made = made
        if num_shards is not None:
            made.shard(num_shards, shard_id)
        if shuffle is not False:
            made.shuffle()

    def map(self, operations=None, input_columns=None, **more):
        _only('map', more, _WORKERS)
        for step in operations if isinstance(operations, (list, tuple)) else [operations]:
            need(isinstance(step, _c.trm_transform) or step is int32,
                 f'map: {step!r} is no operation of mindspore.dataset (found {type(step).__name__})')
            if step is not int32 and 'label' not in (input_columns or ()):
                self.made.map(step)
        return self

    def shuffle(self, buffer_size):
        self.made.shuffle(buffer_size)
        return self

    def batch(self, batch_size, drop_remainder=False, **more):
        _only('batch', more, _WORKERS)
        self.made.batch(batch_size, drop_remainder)
        return self

    def repeat(self, count=1):
        """Training counts passes itself: repeating changes nothing here."""
        return self

    def get_dataset_size(self):
        return len(self.made)


def Cifar10Dataset(dataset_dir, usage='all', num_shards=None, shard_id=None, shuffle=None, **more):
    """Every file whose name contains "batch", as MindSpore reads them; usage train or test reads one set."""
    return _Pipeline(_Dataset.source('cifar10', dataset_dir, usage or 'all'), num_shards, shard_id, shuffle, **more)


def ImageFolderDataset(dataset_dir, num_shards=None, shard_id=None, shuffle=None, **more):
    return _Pipeline(_Dataset.source('image_folder', dataset_dir, 'train'), num_shards, shard_id, shuffle, **more)


def NumpySlicesDataset(data, column_names=('image', 'label'), num_shards=None, shard_id=None, shuffle=None, **more):
    need(isinstance(data, dict) or len(data) == len(column_names),
         f'NumpySlicesDataset: column_names has {len(column_names)} names (found {len(data)} arrays, expected as many)')
    return _Pipeline(_Dataset.arrays(data if isinstance(data, dict) else dict(zip(column_names, data))), num_shards, shard_id, shuffle,
                     **more)


# ---- mindspore.ops ----------------------------------------------------------------------------

def _value(x):
    return float(x) if isinstance(x, Tensor) and x.value.ndim == 0 else x.value if isinstance(x, Tensor) else x


def _primitive(function):
    """Makes operators without options: P.Exp()(x)."""
    return lambda: lambda *inputs: function(*[_value(x) for x in inputs])


def _reduction(function):
    """Makes reductions: P.ReduceSum(keep_dims)(x, axis)."""
    return lambda keep_dims=False: lambda x, axis=(): function(x, None if axis == () else axis, keep_dims)


class P:
    """mindspore.ops.operations."""

    Exp, Log, Sqrt, Neg, ReLU, Sigmoid, Tanh = (_primitive(f) for f in (
        ops.exp, ops.log, ops.sqrt, ops.neg, ops.relu, ops.sigmoid, ops.tanh))
    Add = TensorAdd = _primitive(ops.add)
    Sub, Mul, Div, MatMul = _primitive(ops.sub), _primitive(ops.mul), _primitive(ops.div), _primitive(ops.matmul)
    RealDiv, Square, Softmax = Div, _primitive(lambda x: ops.mul(x, x)), _primitive(ops.softmax)
    Reshape, Transpose = _primitive(ops.reshape), _primitive(ops.transpose)
    Flatten = _primitive(lambda x: x.flatten())
    Shape, Cast = _primitive(lambda x: x.shape), _primitive(ops.cast)
    ReduceSum, ReduceMean, ReduceMax = _reduction(ops.reduce_sum), _reduction(ops.reduce_mean), _reduction(ops.reduce_max)

    def OneHot(axis=-1):
        need(axis == -1, f'OneHot: axis {axis} is not supported (expected -1)')
        return lambda indices, depth, on_value, off_value: ops.one_hot(indices, depth, float(on_value), float(off_value))

    def Concat(axis=0):
        return lambda values: ops.concat(list(values), axis)


class F:
    """mindspore.ops.functional."""

    def scalar_to_array(value):
        """A constant of rank 0."""
        return as_node(current(), float(value))

    def shape(x):
        return x.shape

    reshape, cast = ops.reshape, ops.cast


# ---- mindspore.nn -----------------------------------------------------------------------------

class Cell(Module):
    """A part of a network or a loss: construct() adds the operators."""

    def __init__(self, auto_prefix=True):
        pass

    def forward(self, *inputs):
        return self.construct(*inputs)

    def get_parameters(self):
        return iter([Parameter()])

    trainable_params = parameters_and_names = get_parameters

    def set_train(self, mode=True):
        return self


class Dense(Linear, Cell):
    def __init__(self, in_channels, out_channels, weight_init=None, bias_init=None, has_bias=True, **more):
        _only('Dense', dict(more, weight_init=weight_init, bias_init=bias_init))
        super().__init__(in_channels, out_channels, has_bias)


class Conv2d(_Conv2d, Cell):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode='same', padding=0, dilation=1, group=1, has_bias=False, **more):
        size = pair(kernel_size)
        _only('Conv2d', dict(more, pad_mode=None if pad_mode in ('same', 'valid', 'pad') else pad_mode), data_format='NCHW')
        if pad_mode == 'same':
            need(all(k % 2 for k in size) and stride == 1,
                 'Conv2d: pad_mode "same" is supported for odd kernels with stride 1; use "pad" with a padding')
            padding = [dilation * (size[0] // 2), dilation * (size[1] // 2)]
        super().__init__(in_channels, out_channels, size, stride, 0 if pad_mode == 'valid' else padding, dilation, group, has_bias)


class BatchNorm2d(_BatchNorm2d, Cell):
    def __init__(self, num_features, eps=1e-5, momentum=0.9, **more):
        _only('BatchNorm2d', more, affine=True, gamma_init='ones', beta_init='zeros', moving_mean_init='zeros', moving_var_init='ones', data_format='NCHW')
        super().__init__(num_features, eps, 1 - momentum)  # MindSpore's momentum is the weight of the old value


class MaxPool2d(_MaxPool2d, Cell):
    def __init__(self, kernel_size=1, stride=1, pad_mode='valid', **more):
        _only('MaxPool2d', dict(more, pad_mode=None if pad_mode == 'same' else pad_mode), pad_mode='valid', data_format='NCHW')
        super().__init__(kernel_size, stride, kernel_size // 2 if pad_mode == 'same' else 0)


class AvgPool2d(_AvgPool2d, Cell):
    def __init__(self, kernel_size=1, stride=1, pad_mode='valid', **more):
        _only('AvgPool2d', dict(more, pad_mode=pad_mode), pad_mode='valid', data_format='NCHW')
        super().__init__(kernel_size, stride)


class Dropout(_Dropout, Cell):
    def __init__(self, keep_prob=0.5, p=None, **more):
        _only('Dropout', more, 'dtype')
        super().__init__(1 - keep_prob if p is None else p)


class SequentialCell(Sequential, Cell):
    def __init__(self, *cells):
        super().__init__(*(cells[0] if len(cells) == 1 and isinstance(cells[0], (list, tuple)) else cells))


class SoftmaxCrossEntropyWithLogits(Cell):
    def __init__(self, is_grad=False, sparse=False, reduction='mean', **more):
        need(sparse, 'SoftmaxCrossEntropyWithLogits: labels are classes (expected sparse=True)')
        _only('SoftmaxCrossEntropyWithLogits', dict(more, reduction=reduction, is_grad=is_grad), reduction='mean', is_grad=False)

    def construct(self, logits, label):
        return ops.softmax_cross_entropy(logits, label, use_ignore_index=True, ignore_index=-1)  # -1: padding of a last batch


def _optimizer(kind, *names):
    def make(params, learning_rate=0.001, *values, weight_decay=0.0, loss_scale=1.0, **more):
        list(params)  # a filter of the script runs
        unknown = set(more) - set(names)
        need(not unknown and loss_scale == 1.0 and len(values) <= len(names),
             f'{kind}: {sorted(unknown) or "loss_scale"} is not supported (expected {", ".join(names)}, weight_decay)')
        given = {'kind': kind, 'weight_decay': weight_decay, 'decay_all': weight_decay != 0}
        given.update(zip(names, values))
        given.update(more)
        return given, learning_rate
    return make


Momentum = _optimizer('momentum', 'momentum')
SGD = _optimizer('sgd')
Adam = _optimizer('adam', 'beta1', 'beta2')


# ---- mindspore.train --------------------------------------------------------------------------

def LossMonitor(per_print_times=1):
    return _LossMonitor(per_print_times)


class Model:
    """Trains a network: train(), eval()."""

    def __init__(self, network, loss_fn=None, optimizer=None, metrics=None, **more):
        _only('Model', more, 'keep_batchnorm_fp32', amp_level='O0')
        self.network, self.loss_fn, self.optimizer, self.model = network, loss_fn, optimizer, None

    def _make(self, dataset):
        expect(isinstance(dataset, _Pipeline), 'Model', 'a dataset of mindspore.dataset', dataset)
        if self.model is None:
            kind, rate = self.optimizer or ('sgd', 0.01)
            loss = 'softmax' if self.loss_fn is None else lambda logits, label: self.loss_fn(logits, label)
            self.model = _Model(lambda image: self.network(image), dataset.made, loss=loss, optimizer=kind, learning_rate=rate,
                                context=_parallel or None)
        return self.model

    def train(self, epoch, train_dataset, callbacks=None, dataset_sink_mode=True, sink_size=-1):
        callbacks = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        self._make(train_dataset).train(train_dataset.made, until_epoch=epoch, callbacks=callbacks, sink=dataset_sink_mode)

    def eval(self, valid_dataset, **more):
        _only('Model.eval', more, 'dataset_sink_mode')
        found = self._make(valid_dataset).evaluate(valid_dataset.made)
        return dict(found, acc=found.get('top1'))


def CheckpointConfig(save_checkpoint_steps=1, keep_checkpoint_max=5, **more):
    _only('CheckpointConfig', more, 'integrated_save async_save')
    return {'every_steps': save_checkpoint_steps, 'keep': keep_checkpoint_max}


def ModelCheckpointOf(prefix='CKP', directory='.', config=None):
    return ModelCheckpoint(directory, **(config or CheckpointConfig()))


# ---- the modules ------------------------------------------------------------------------------

def _module(name, **members):
    made = types.ModuleType('mindspore' + name, f'trireme.compat.mindspore in place of mindspore{name}')
    made.__dict__.update(members)
    made.__path__ = []

    def missing(attribute):
        raise AttributeError(f'mindspore{name}.{attribute} is not in trireme.compat.mindspore; see trireme.nn, trireme.ops and '
                             f'trireme.Dataset for what Trireme has')
    made.__getattr__ = missing
    sys.modules['mindspore' + name] = made
    parent, _, last = ('mindspore' + name).rpartition('.')
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


def install():
    """Makes `import mindspore` mean this package in this process, unless MindSpore itself has been imported."""
    before = sys.modules.get('mindspore')
    if before is not None:
        if getattr(before, '_is_trireme', False):
            return
        raise Error('trireme.compat.mindspore: MindSpore itself has been imported already; import this module before it')

    def of(names):
        return {name: globals()[name] for name in names.split()}
    types_ = of('int8 uint8 int32 int64 float16 float32 float64')
    contexts = of('GRAPH_MODE PYNATIVE_MODE ParallelMode set_context set_auto_parallel_context get_auto_parallel_context reset_auto_parallel_context')
    ranks, rules = of('init get_rank get_group_size'), of('Momentum SGD Adam')
    images = of('RandomCrop RandomHorizontalFlip Resize Rescale Normalize HWC2CHW Decode CenterCrop')
    layers = of('Cell Dense Conv2d BatchNorm2d MaxPool2d AvgPool2d Dropout ReLU Flatten SequentialCell SoftmaxCrossEntropyWithLogits')
    primitives, functions = ({k: v for k, v in vars(kind).items() if k[0] != '_'} for kind in (P, F))
    calls = dict(of('LossMonitor CheckpointConfig'), TimeMonitor=lambda data_size=None: TimeMonitor(), ModelCheckpoint=ModelCheckpointOf)
    _module('', _is_trireme=True, **of('Tensor Parameter Model'), **types_, **contexts)
    for name, members in (
            ('.context', contexts), ('.communication', ranks), ('.communication.management', ranks), ('.common', types_),
            ('.common.dtype', types_), ('.dataset', of('Cifar10Dataset ImageFolderDataset NumpySlicesDataset')), ('.dataset.transforms', {}),
            ('.dataset.transforms.c_transforms', of('TypeCast')), ('.dataset.transforms.vision', {}),
            ('.dataset.transforms.vision.c_transforms', images), ('.dataset.vision', images), ('.dataset.vision.c_transforms', images),
            ('.ops', primitives), ('.ops.operations', primitives), ('.ops.functional', functions), ('.nn', dict(layers, **rules)),
            ('.nn.optim', rules), ('.nn.optim.momentum', of('Momentum')), ('.train', dict(calls, Model=Model)), ('.train.callback', calls),
            ('.train.model', of('Model ParallelMode'))):
        _module(name, **members)


install()
__all__ = ['install']
