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
from ctypes import POINTER, byref
from typing import Any, Sequence, Union

from . import _c
from ._call import Single, plain_call, take, text_of
from ._convert import DTYPE_NAMES, argument, expect, np, sizes, tensor, text, whole_numbers
from ._library import Error, need
from ._methods import GraphMethods, NodeMethods

OUTPUT = object()  # stands for a further output of an operator
_current = threading.local()


class Node(NodeMethods):
    """A value of a graph. Operators: + - * / @, comparison with nodes by identity, [begin:end], and the functions of trireme.ops."""

    __slots__ = ('graph', 'id')
    __array_ufunc__ = None  # numpy_array + node is node.__radd__
    __hash__ = object.__hash__

    def __init__(self, graph, id):
        self.graph, self.id = graph, id

    c = property(lambda self: _c.trm_node(self.id), doc='The trm_node.')
    ndim = property(lambda self: len(self.shape), doc='Number of dimensions.')

    shape = property(lambda self: sizes(_c.trm_node_shape(self.graph.handle, self.c)), doc='Sizes as a tuple.')
    dtype = property(lambda self: DTYPE_NAMES.get(_c.trm_node_dtype(self.graph.handle, self.c)), doc='"float32", "int32", ...')

    def __len__(self):
        if not self.ndim:
            raise TypeError('len() of a scalar node')
        return self.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __eq__(self, other):
        if other is not None and not isinstance(other, Node):
            raise TypeError('a node has no values while the network is built: == and != cannot compare it; trireme.ops has the operators')
        return self is other

    def __lt__(self, other):
        raise TypeError('a node has no values while the network is built: <, <=, > and >= cannot compare it; trireme.ops has the operators')

    __le__ = __gt__ = __ge__ = __lt__

    def __bool__(self):
        raise TypeError('a node has no value while the network is built: `if` cannot ask for it')

    def __array__(self, *options, **more):
        raise TypeError('a node has no values while the network is built: NumPy cannot compute with it; trireme.ops has the operators')

    def __repr__(self):
        return f'<Node {self.dtype} {list(self.shape)}>'

    def __pow__(self, power):
        """Whole powers of any number by products; other powers of positive numbers, by the logarithm."""
        if not isinstance(power, numbers.Real) or power != power:
            raise TypeError(f'**: a number expected as power, found {power!r}; ops.exp(ops.log(x) * y) is x to the power of a node')
        return operate('trm_power', self, power)

    def __getitem__(self, index):
        """Elements [begin:end] of dimensions; a number removes its dimension, None adds one, ... stands for the rest."""
        index = index if isinstance(index, tuple) else (index,)
        if sum(i is Ellipsis for i in index) > 1 or any(isinstance(i, bool) for i in index):
            raise IndexError(f'{index}: whole numbers, slices, None and one ... expected')
        rest = self.ndim - sum(i is not None and i is not Ellipsis for i in index)
        if rest < 0:
            raise IndexError(f'{index}: too many indices for shape {list(self.shape)}')
        at = next((k for k, i in enumerate(index) if i is Ellipsis), len(index))
        begin, size, final, dims = [], [], [], iter(self.shape)
        for i in index[:at] + (slice(None),) * rest + index[at + 1:]:
            if i is None:
                final.append(1)
                continue
            n = next(dims)
            if isinstance(i, slice):
                first, last, step = i.indices(n)
                if step != 1:
                    raise IndexError(f'{i}: only steps of 1 are supported')
                final.append(max(0, last - first))
            else:
                first = operator.index(i)
                if not -n <= first < n:
                    raise IndexError(f'index {i} is outside of a dimension of size {n}')
                first, last = first % n, first % n + 1
            begin.append(first)
            size.append(max(0, last - first))
        part = self if tuple(size) == self.shape else operate('trm_slice', self, begin, size)
        return part if tuple(final) == part.shape else part.reshape(final)

    def reshape(self, *size):
        """The same elements in another shape; one size may be -1."""
        return operate('trm_reshape', self, size[0] if len(size) == 1 else size)

    def transpose(self, *order):
        """The dimensions in another order; reversed without one."""
        return operate('trm_transpose', self, order[0] if len(order) == 1 else order or tuple(reversed(range(self.ndim))))

    T = property(transpose)

    def flatten(self, start=1):
        """One dimension in place of those from `start` on."""
        return self.reshape(self.shape[:start] + (-1,))


Value = Union[Node, float, Sequence[float], Any]


class Graph(GraphMethods, Single):
    """A graph of operators. In `with graph:` leaves are added to it."""

    def __init__(self, training=True, handle=None):
        self.owned = handle is None
        self._handle = handle or take(_c.trm_graph_create, _c.trm_graph_options(training))

    @property
    def handle(self):
        """The trm_graph."""
        need(self._handle is not None,
             'a node of a graph that is gone: a network function may use only nodes of its own call')
        return self._handle

    def end(self):
        """The library ends the graph of a network function with the call that has built it."""
        self._handle = None

    def __enter__(self):
        _current.graphs = getattr(_current, 'graphs', []) + [self]
        return self

    def __exit__(self, *error):
        _current.graphs = _current.graphs[:-1]

    def __str__(self):
        return text_of(_c.trm_graph_to_string(self.handle))

    def gradients(self, loss, nodes):
        """Adds d(loss)/d(node) for each node; None where the loss does not depend on it."""
        for node in [loss, *nodes]:
            expect(getattr(node, 'graph', None) is self, 'Graph.gradients', 'nodes of this graph', node)
        out = (_c.trm_node * len(nodes))()
        _c.trm_gradients(self.handle, loss.c, (_c.trm_node * len(nodes))(*[node.c for node in nodes]), len(nodes), out)
        self.check()
        return [Node(self, n.id) if n.id else None for n in out]

    def __del__(self):
        if getattr(self, 'owned', False) and getattr(self, '_handle', None):
            _c.trm_graph_destroy(self._handle)
            self._handle = None


def current():
    """The graph that is being built."""
    need(getattr(_current,
         'graphs', None), 'no graph is being built; call this in a network function of a Model, or in `with trireme.Graph():`')
    return _current.graphs[-1]


INDICES = {'ids': None, 'keys': None, 'labels': 'int32'}  # arguments of operators whose type is not that of the others; None: their own


def as_node(graph, value, like=None):
    """The node of a value; numbers and arrays become constants, of the type of the operator's other input. Fractions never become integers."""
    if isinstance(value, Node):
        need(value.graph is graph,
             'the operator mixes nodes of two graphs; a network function may use only nodes of its own call')
        return value
    if isinstance(value, (int, float)) and like in (None, 'float32'):
        return Node(graph, _c.trm_scalar(graph.handle, float(value)).id)
    array = np.asarray(value)
    if like is not None and array.dtype.kind in ('biuf' if like.startswith('float') else 'biu'):
        array = array.astype(like)
    elif array.dtype == 'float64':
        array = array.astype('float32')
    return constant(np.asarray(array, order='C'), graph)


def integers(values, kind, of):
    """An array of whole numbers of the type `kind`; None is none of them. of: the value that has a dimension for each of them."""
    values = [] if values is None else whole_numbers(values, kind=kind)
    if of is not None and len(values) != (of.ndim if isinstance(of, Node) else np.ndim(of)):
        raise Error(f'{values}: one number for each dimension of {of!r} expected')
    return (kind * max(1, len(values)))(*values), len(values)


def operate(name, *arguments):
    """Adds the operator of a C function to the graph of its inputs, or a leaf to the current one. Errors are raised here, where they arise.

    Arguments are as the function declares them: values where it takes nodes, words of enums, sequences of which C gets the count, too,
    dictionaries of options, and OUTPUT for a further output.
    """
    function = getattr(_c, name)
    inside = [v for a in arguments for v in (a.values() if isinstance(a, dict) else a if isinstance(a, (list, tuple)) else [a])]
    graph = next((v.graph for v in inside if isinstance(v, Node)), None) or current()
    like = next((a.dtype for a in arguments if isinstance(a, Node)), None)
    passed, outputs, keep, rest, count = [graph.handle], [], [], iter(arguments), 0
    for index, (kind, label) in list(enumerate(zip(function.argtypes, function.names)))[1:]:
        a, below = count if label == 'count' else next(rest), getattr(kind, '_type_', None)
        if a is OUTPUT:
            outputs.append(_c.trm_node())
            a = byref(outputs[-1])
        elif kind is _c.trm_node:
            a = _c.trm_node(0) if a is None else as_node(graph, a, INDICES.get(label, like)).c
        elif below is _c.trm_node:
            a = [as_node(graph, v, like).c for v in a]
            a, count = (below * max(1, len(a)))(*a), len(a)
        elif isinstance(a, dict):
            members = dict(below._fields_)
            a = {k: as_node(graph, v) if members[k] is _c.trm_node and v is not None else v for k, v in a.items()}
            a = argument(function, index, a, keep)
        elif kind in (POINTER(ctypes.c_int32), POINTER(ctypes.c_int64)):
            counted = function.names[index + 1:index + 2] == ['count']
            a, count = integers(a, below, None if counted else arguments[0])
        else:
            a = argument(function, index, a, keep)
        passed.append(a)
    result = plain_call(function, *passed)
    if result.id == 0:
        graph.check()
        raise Error(f'{name[4:]}: the operator could not be added')
    return Node(graph, result.id) if not outputs else (Node(graph, result.id),) + tuple(Node(graph, o.id) for o in outputs)


Node._operate = staticmethod(operate)


def input(name, dtype, shape_of):
    """Adds an input that the program feeds by name before each step."""
    return operate('trm_input', name, dtype, shape_of)


def parameter(name, shape_of, init='zero'):
    """Adds a float32 parameter, which training updates.

    init: zero, one, he_normal_fan_out, he_uniform, linear, glorot_uniform, normal_001, normal_002, or ('normal', deviation)
    """
    return operate('trm_parameter', name, shape_of, init)


def state(name, shape_of, init='zero', dtype='float32'):
    """Adds a state: values that are kept between steps and saved, but not trained (running statistics)."""
    return operate('trm_state', name, dtype, shape_of, init)


def constant(value, graph=None):
    """Adds a constant with a copy of an array."""
    graph = graph or current()
    made, keep = tensor(value, 'constant')
    node = Node(graph, _c.trm_constant(graph.handle, byref(made)).id)
    if node.id == 0:
        graph.check()
    return node


@contextlib.contextmanager
def scope(name, segment=False):
    """Prefixes the names of parameters and operators with "name.".

    segment: the option recompute=True computes what is in the scope again in backward
    """
    graph = current()
    expect(name is not None, 'scope', 'a name', name)
    _c.trm_graph_push_scope(graph.handle, b'%s', ctypes.c_char_p(text(name)))
    if segment:
        _c.trm_graph_mark_segment(graph.handle)
    try:
        yield
    finally:
        _c.trm_graph_pop_scope(graph.handle)
