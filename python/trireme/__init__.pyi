# SPDX-License-Identifier: Apache-2.0
# What `import trireme` has, for editors: parts are imported when they are first used, so that they find none in the module itself.
from . import (
    callbacks as callbacks, compat as compat, data as data, distribute as distribute, elastic as elastic, estimator as estimator,
    executor as executor, graph as graph, model as model, nn as nn, ops as ops, planner as planner, tools as tools,
    transforms as transforms)
from ._library import Error as Error
from .callbacks import (
    Callback as Callback, EarlyStop as EarlyStop, EvaluateEvery as EvaluateEvery, History as History, Lambda as Lambda,
    LossMonitor as LossMonitor, Metric as Metric, MetricsRecorder as MetricsRecorder, ModelCheckpoint as ModelCheckpoint,
    Progress as Progress, ProgressBar as ProgressBar, RunRecorder as RunRecorder, StopTraining as StopTraining,
    TensorBoard as TensorBoard, TimeMonitor as TimeMonitor)
from .data import (
    Batch as Batch, Dataset as Dataset)
from .elastic import (
    Elastic as Elastic)
from .estimator import (
    Cluster as Cluster, Estimator as Estimator, EstimatorSpec as EstimatorSpec, EvalSpec as EvalSpec,
    ParameterServerStrategy as ParameterServerStrategy, RunConfig as RunConfig, TrainSpec as TrainSpec,
    train_and_evaluate as train_and_evaluate)
from .executor import (
    Exec as Exec)
from .graph import (
    Graph as Graph, Node as Node, constant as constant, input as input, parameter as parameter, scope as scope, state as state)
from .model import (
    Context as Context, Model as Model, learning_rate_at as learning_rate_at)
from .planner import (
    Planner as Planner, read_plan as read_plan)
from .tools import (
    Tokenizer as Tokenizer, load_safetensors as load_safetensors, machine as machine, on_log as on_log)

__version__: str
