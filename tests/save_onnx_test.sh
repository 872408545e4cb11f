#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checker and shape inference of the onnx package accept Trireme's models, and Trireme reads models of the package. Needs Debian's
# python3-onnx; skips (77) without it.
. "$(dirname "$0")/common.sh"
python=/usr/bin/python3
"$python" -c 'import onnx' 2> /dev/null || skip "no python3-onnx"
program="$TRIREME_BUILD/tests/save_interop_test"
"$program" write "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

"$python" - "$work" <<'PYTHON' || exit 1
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
work = sys.argv[1]

for name in ('c.onnx', 'external.onnx', 'types.onnx'):
    onnx.checker.check_model(work + '/' + name, full_check=True)
model = onnx.load(work + '/c.onnx')
assert model.ir_version == 8 and model.opset_import[0].version == 17
assert model.producer_name == 'trireme' and model.metadata_props[0].value == 'a test'
assert [n.op_type for n in model.graph.node] == [
    'Conv', 'BatchNormalization', 'Relu', 'MaxPool', 'GlobalAveragePool', 'Flatten', 'Gemm']
inferred = shape_inference.infer_shapes(model, strict_mode=True)
shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
          for v in inferred.graph.value_info}
assert shapes['c'] == ['N', 4, 4, 4] and shapes['m'] == ['N', 4, 2, 2], shapes
kernel = numpy_helper.to_array(model.graph.initializer[0])
assert (kernel.ravel() == np.arange(108) % 7 - 3).all()

outside = onnx.load(work + '/external.onnx')       # reads external.onnx.data
unused = [i for i in outside.graph.initializer if i.name == 'unused'][0]
assert (numpy_helper.to_array(unused) == np.zeros(600)).all()

types = {i.name: i for i in onnx.load(work + '/types.onnx').graph.initializer}
assert types['brain'].data_type == TensorProto.BFLOAT16
assert numpy_helper.to_array(types['bn1.num_batches_tracked']) == 1234567890123
assert numpy_helper.to_array(types['half']).dtype == np.float16
assert numpy_helper.to_array(types['ü.bytes']).tolist() == [[0, 1, 255]]

# Models of the package: typed data for some tensors, raw data for others.
def typed(name, kind, dims, values):
    return helper.make_tensor(name, kind, dims, values)
floats = (np.arange(24, dtype=np.float32) / 2 - 3)
half = np.array([1, -2, np.inf], np.float16)
initializers = [
    typed('conv1.weight', TensorProto.FLOAT, [2, 3, 2, 2], floats.tolist()),
    numpy_helper.from_array(np.arange(6) / 2 - 3, 'wide'),
    typed('bn1.num_batches_tracked', TensorProto.INT64, [], [1234567890123]),
    typed('index', TensorProto.INT32, [2, 2], [-2, -1, 0, 2147483647]),
    typed('half', TensorProto.FLOAT16, [3], half.tolist()),
    typed('small', TensorProto.INT8, [2], [-128, 127]),
    numpy_helper.from_array(np.array([[0, 1, 255]], np.uint8), 'ü.bytes'),
]
node = helper.make_node('Conv', ['x', 'conv1.weight'], ['y'], pads=[1, 2, 3, 4])
graph = helper.make_graph(
    [node], 'theirs', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['batch', 3, 8, 8])],
    [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['batch', 2, 11, 13])], initializers)
theirs = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
onnx.checker.check_model(theirs)
onnx.save(theirs, work + '/py.onnx')
print('onnx', onnx.__version__, 'agrees')
PYTHON
"$program" read "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
