# SPDX-License-Identifier: Apache-2.0
"""Networks as graphs: nodes that behave like arrays, leaves, scopes. trireme.ops has the operators.

    with trireme.Graph(training=True) as g:
        x = trireme.input('image', 'float32', (32, 784))
        y = trireme.input('label', 'int32', (32,))
        w = trireme.parameter('fc.weight', (10, 784), 'linear')
        loss = trireme.ops.softmax_cross_entropy(trireme.ops.linear(x, w), y)

A Model calls functions that build the graph, so that most programs need none of this.
"""
import contextlib
import ctypes
import numbers
import operator
import threading
from ctypes import byref
from typing import Any, Sequence, Union

from . import _c
from ._call import call, plain_call, take, text_of
from ._convert import DTYPE_NAMES, enum, is_one_number, np, options as make_options, shape, sizes, tensor, text, whole_numbers
from ._library import Error

OUTPUT = object()  # stands for a further output of an operator
_current = threading.local()


class Node:
    """A value of a graph. Operators: + - * / @, comparison by identity, [begin:end], and the functions of trireme.ops."""

    __slots__ = ('graph', 'id')
    __array_ufunc__ = None  # numpy_array + node is node.__radd__

    def __init__(self, graph, id):
        self.graph, self.id = graph, id

    @property
    def c(self):
        """The trm_node."""
        return _c.trm_node(self.id)

    @property
    def shape(self):
        """Sizes as a tuple."""
        return sizes(_c.trm_node_shape(self.graph.handle, self.c))

    @property
    def dtype(self):
        """"float32", "int32", ..."""
        return DTYPE_NAMES.get(_c.trm_node_dtype(self.graph.handle, self.c))

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self):
        if not self.ndim:
            raise TypeError('len() of a scalar node')
        return self.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __bool__(self):
        raise TypeError('a node has no value while the network is built: `if` cannot ask for it')

    def __array__(self, *options, **more):
        raise TypeError('a node has no values while the network is built: NumPy cannot compute with it; trireme.ops has the operators')

    def __repr__(self):
        return f'<Node {self.dtype} {list(self.shape)}>'

    def __add__(self, other): return operate('trm_add', self, other)
    def __radd__(self, other): return operate('trm_add', other, self)
    def __sub__(self, other): return operate('trm_sub', self, other)
    def __rsub__(self, other): return operate('trm_sub', other, self)
    def __mul__(self, other): return operate('trm_mul', self, other)
    def __rmul__(self, other): return operate('trm_mul', other, self)
    def __truediv__(self, other): return operate('trm_div', self, other)
    def __rtruediv__(self, other): return operate('trm_div', other, self)
    def __matmul__(self, other): return operate('trm_matmul', self, other, False, False)
    def __rmatmul__(self, other): return operate('trm_matmul', other, self, False, False)
    def __neg__(self): return operate('trm_neg', self)

    def __pow__(self, power):
        """Whole powers of any number by products; other powers of positive numbers, by the logarithm."""
        if not isinstance(power, numbers.Real) or power != power:
            raise TypeError(f'**: a number expected as power, found {power!r}; ops.exp(ops.log(x) * y) is x to the power of a node')
        if power == 0.5:
            return operate('trm_sqrt', self)
        if power != int(power) or abs(power) > 64:
            return operate('trm_exp', operate('trm_log', self) * power)
        if power <= 0:
            return self * 0 + 1 if power == 0 else 1 / self ** -power
        half = self if power < 2 else self ** (power // 2)
        whole = half * half if power > 1 else half
        return whole * self if power > 1 and power % 2 else whole

    def __getitem__(self, index):
        """Elements [begin:end] of dimensions; a number removes its dimension, None adds one, ... stands for the rest."""
        index = index if isinstance(index, tuple) else (index,)
        if sum(i is Ellipsis for i in index) > 1 or any(isinstance(i, bool) for i in index):
            raise IndexError(f'{index}: whole numbers, slices, None and one ... expected')
        given = sum(i is not None and i is not Ellipsis for i in index)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            index = index[:at] + (slice(None),) * (self.ndim - given) + index[at + 1:]
        index += (slice(None),) * (self.ndim - sum(i is not None for i in index))
        begin, size, final, dims = [], [], [], iter(self.shape)
        for i in index:
            if i is None:
                final.append(1)
                continue
            n = next(dims, None)
            if n is None:
                raise IndexError(f'{index}: too many indices for shape {list(self.shape)}')
            if isinstance(i, slice):
                first, last, step = i.indices(n)
                if step != 1:
                    raise IndexError(f'{i}: only steps of 1 are supported')
                begin.append(first)
                size.append(max(0, last - first))
                final.append(size[-1])
            else:
                i = operator.index(i)
                if not -n <= i < n:
                    raise IndexError(f'index {i} is outside of a dimension of size {n}')
                begin.append(i % n)
                size.append(1)
        part = self if tuple(size) == self.shape else operate('trm_slice', self, int64s(begin), int64s(size))
        return part if tuple(final) == part.shape else part.reshape(final)

    def reshape(self, *size):
        """The same elements in another shape; one size may be -1."""
        return operate('trm_reshape', self, shape(size[0] if len(size) == 1 else size))

    def transpose(self, *order):
        """The dimensions in another order; reversed without one."""
        order = order[0] if len(order) == 1 else order or tuple(reversed(range(self.ndim)))
        return operate('trm_transpose', self, int32s(order, self))

    T = property(transpose)

    def astype(self, dtype):
        """The elements converted to another type."""
        return operate('trm_cast', self, enum('trm_dtype', dtype))

    def flatten(self, start=1):
        """One dimension in place of those from `start` on."""
        return self.reshape(self.shape[:start] + (-1,))

    def sum(self, axis=None, keepdims=False):
        """The sum over an axis, several, or all."""
        return operate('trm_reduce_sum', self, int32s(axis), count(axis), keepdims)

    def mean(self, axis=None, keepdims=False):
        """The mean over an axis, several, or all."""
        return operate('trm_reduce_mean', self, int32s(axis), count(axis), keepdims)

    def max(self, axis=None, keepdims=False):
        """The largest element over an axis, several, or all."""
        return operate('trm_reduce_max', self, int32s(axis), count(axis), keepdims)


Value = Union[Node, float, Sequence[float], Any]


class Graph:
    """A graph of operators. In `with graph:` leaves are added to it."""

    def __init__(self, training=True, handle=None):
        self.owned = handle is None
        self._handle = handle or take(_c.trm_graph_create, _c.trm_graph_options(training))

    @property
    def handle(self):
        """The trm_graph."""
        if self._handle is None:
            raise Error('a node of a graph that is gone: a network function may use only nodes of its own call')
        return self._handle

    def end(self):
        """The library ends the graph of a network function with the call that has built it."""
        self._handle = None

    @property
    def training(self):
        """Whether dropout and batch norm work as in training."""
        return bool(_c.trm_graph_is_training(self.handle))

    def __enter__(self):
        _current.graphs = getattr(_current, 'graphs', []) + [self]
        return self

    def __exit__(self, *error):
        _current.graphs = _current.graphs[:-1]

    def __str__(self):
        return text_of(_c.trm_graph_to_string(self.handle))

    def check(self):
        """Raises the first error of the operators that were added."""
        call(_c.trm_graph_check, self.handle)

    def gradients(self, loss, nodes):
        """Adds d(loss)/d(node) for each node; None where the loss does not depend on it."""
        for node in [loss, *nodes]:
            if not isinstance(node, Node) or node.graph is not self:
                raise TypeError(f'Graph.gradients: nodes of this graph expected, found {node!r}')
        out = (_c.trm_node * len(nodes))()
        _c.trm_gradients(self.handle, loss.c, nodes_array(nodes), len(nodes), out)
        self.check()
        return [Node(self, n.id) if n.id else None for n in out]

    def __del__(self):
        if getattr(self, 'owned', False) and getattr(self, '_handle', None):
            _c.trm_graph_destroy(self._handle)
            self._handle = None


def current():
    """The graph that is being built."""
    if not getattr(_current, 'graphs', None):
        raise Error('no graph is being built; call this in a network function of a Model, or in `with trireme.Graph():`')
    return _current.graphs[-1]


def int64s(values, of=None, kind=ctypes.c_int64):
    """An array of whole numbers; None is none of them. of: the value that has a dimension for each of them."""
    values = [] if values is None else whole_numbers(values, kind=kind)
    if of is not None and len(values) != (of.ndim if isinstance(of, Node) else np.ndim(of)):
        raise Error(f'{values}: one number for each dimension of {of!r} expected')
    return (kind * max(1, len(values)))(*values)


def int32s(values, of=None):
    """As int64s."""
    return int64s(values, of, ctypes.c_int32)


def count(values):
    """How many numbers int64s() makes of these values."""
    return 0 if values is None else 1 if is_one_number(values) else len(values)


def nodes(values):
    """An array of nodes, made when the graph is known."""
    return _Nodes(values)


class _Nodes:
    def __init__(self, values):
        self.values = list(values)


def nodes_array(values):
    return (_c.trm_node * max(1, len(values)))(*[v.c for v in values])


class options:
    """A struct of options, made when the graph is known: members may be nodes, numbers or arrays."""

    def __init__(self, struct, **values):
        self.struct, self.values = getattr(_c, struct), values


def find_graph(arguments):
    for a in arguments:
        if isinstance(a, Node):
            return a.graph
        inner = a.values if isinstance(a, _Nodes) else a.values.values() if isinstance(a, options) else ()
        for v in inner:
            if isinstance(v, Node):
                return v.graph
    return current()


INDICES = {'ids': None, 'keys': None, 'labels': 'int32'}  # arguments of operators whose type is not that of the others; None: their own


def as_node(graph, value, like=None):
    """The node of a value; numbers and arrays become constants, of the type of the operator's other input. Fractions never become integers."""
    if isinstance(value, Node):
        if value.graph is not graph:
            raise Error('the operator mixes nodes of two graphs; a network function may use only nodes of its own call')
        return value
    if isinstance(value, (int, float)) and like in (None, 'float32'):
        return Node(graph, _c.trm_scalar(graph.handle, float(value)).id)
    array = np.asarray(value)
    if like is not None and array.dtype.kind in ('biuf' if like.startswith('float') else 'biu'):
        array = array.astype(like)
    elif array.dtype == 'float64':
        array = array.astype('float32')
    return constant(np.asarray(array, order='C'), graph=graph)


def operate(name, *arguments):
    """Adds the operator of a C function to the graph of its inputs. Errors are raised here, where they arise."""
    function = getattr(_c, name)
    graph = find_graph(arguments)
    like = next((a.dtype for a in arguments if isinstance(a, Node)), None)
    passed, outputs, keep = [graph.handle], [], []
    for kind, name_of, a in zip(function.argtypes[1:], function.names[1:], arguments):
        if a is OUTPUT:
            outputs.append(_c.trm_node())
            a = byref(outputs[-1])
        elif kind is _c.trm_node:
            a = _c.trm_node(0) if a is None else as_node(graph, a, INDICES.get(name_of, like)).c
        elif isinstance(a, _Nodes):
            a = nodes_array([as_node(graph, v, like) for v in a.values])
        elif isinstance(a, options):
            values = {k: as_node(graph, v) if dict(a.struct._fields_)[k] is _c.trm_node and v is not None else v
                      for k, v in a.values.items()}
            a = byref(make_options(a.struct, values, keep))
        passed.append(a)
    result = plain_call(function, *passed)
    if result.id == 0:
        graph.check()
        raise Error(f'{name[4:]}: the operator could not be added')
    return Node(graph, result.id) if not outputs else (Node(graph, result.id),) + tuple(Node(graph, o.id) for o in outputs)


def leaf(graph, made):
    if made.id == 0:
        graph.check()
    return Node(graph, made.id)


def input(name, dtype, shape_of):
    """Adds an input that the program feeds by name before each step."""
    graph = current()
    return leaf(graph, _c.trm_input(graph.handle, text(name), enum('trm_dtype', dtype), shape(shape_of)))


def parameter(name, shape_of, init='zero'):
    """Adds a float32 parameter, which training updates.

    init: zero, one, he_normal_fan_out, he_uniform, linear, glorot_uniform, normal_001, normal_002, or ('normal', deviation)
    """
    graph = current()
    return leaf(graph, _c.trm_parameter(graph.handle, text(name), shape(shape_of), enum('trm_init', init)))


def state(name, shape_of, init='zero', dtype='float32'):
    """Adds a state: values that are kept between steps and saved, but not trained (running statistics)."""
    graph = current()
    return leaf(graph, _c.trm_state(graph.handle, text(name), enum('trm_dtype', dtype), shape(shape_of), enum('trm_init', init)))


def constant(value, graph=None):
    """Adds a constant with a copy of an array."""
    graph = graph or current()
    made, keep = tensor(value, 'constant')
    return leaf(graph, _c.trm_constant(graph.handle, byref(made)))


@contextlib.contextmanager
def scope(name, segment=False):
    """Prefixes the names of parameters and operators with "name.".

    segment: the option recompute=True computes what is in the scope again in backward
    """
    graph = current()
    if name is None:
        raise TypeError('scope: a name expected, found None')
    _c.trm_graph_push_scope(graph.handle, b'%s', ctypes.c_char_p(text(name)))
    if segment:
        _c.trm_graph_mark_segment(graph.handle)
    try:
        yield
    finally:
        _c.trm_graph_pop_scope(graph.handle)
