# SPDX-License-Identifier: Apache-2.0
"""Trireme: distributed deep-learning training.

    import trireme
    from trireme import ops

    train = trireme.Dataset.open('synth', batch_size=64)
    test = trireme.Dataset.open('synth', usage='test')
    model = trireme.Model(lambda image: ops.mlp(image, [256, 128], 10), train, optimizer='momentum', learning_rate=0.01)
    model.train(until_epoch=3, callbacks=[trireme.LossMonitor(0)])
    print(model.evaluate(test)['top1'])

Model        a network that the library trains; callbacks, checkpoints, exports
Exec, Graph  a training loop of your own
distribute   three calls for a program of any framework; Elastic: ranks that die, leave and join
nn, ops      networks as classes and functions; Dataset, transforms: data
Planner      plans for many ranks; Estimator and its family: jobs with parameter servers
_c           every public function of the C library
"""
from ._library import Error

__version__ = '0.2.0'

_WHERE = {
    'data': ('Batch', 'Dataset'), 'elastic': ('Elastic',), 'model': ('Context', 'Model', 'learning_rate_at'), 'executor': ('Exec',), 'planner': ('Planner', 'read_plan'),
    'graph': ('Graph', 'Node', 'constant', 'input', 'parameter', 'scope', 'state'),
    'callbacks': ('Callback', 'EarlyStop', 'EvaluateEvery', 'History', 'Lambda', 'LossMonitor', 'Metric', 'MetricsRecorder', 'ModelCheckpoint',
                  'Progress', 'ProgressBar', 'RunRecorder', 'StopTraining', 'TensorBoard', 'TimeMonitor'),
    'estimator': ('Cluster', 'Estimator', 'EstimatorSpec', 'EvalSpec', 'ParameterServerStrategy', 'RunConfig', 'TrainSpec', 'train_and_evaluate'),
    'tools': ('Tokenizer', 'load_safetensors', 'machine', 'on_log'),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}
_MODULES = ('callbacks', 'compat', 'data', 'distribute', 'elastic', 'estimator', 'executor', 'graph', 'model', 'nn', 'ops', 'planner', 'tools', 'transforms')
__all__ = ['Error'] + sorted(_HOME) + list(_MODULES)


def __getattr__(name):
    """Parts are imported when they are first used."""
    import importlib
    if name in _HOME:
        value = getattr(importlib.import_module('.' + _HOME[name], __name__), name)
    elif name in _MODULES or name == '_c':
        value = importlib.import_module('.' + name, __name__)
    else:
        raise AttributeError(f'module trireme has no {name!r}')
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
