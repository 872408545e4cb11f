# SPDX-License-Identifier: Apache-2.0
"""A graph compiled to a program, for training loops of your own.

    exec = Exec(graph, loss, optimizer='momentum')
    for images, labels in batches:
        exec.feed(image=images, label=labels)
        exec.forward_backward()
        exec.update(0.01)
        print(exec.loss)
"""
import ctypes
import difflib
from collections.abc import Mapping
from ctypes import byref

from . import _c
from ._call import Owner, call, filled, plain_call, stoppable, take
from ._convert import DTYPE_NAMES, DTYPES, array_at, as_dict, converted, expect, np, optimizer_options, options, plain, sizes, takes, tensor, text, view, word
from ._library import Error
from ._methods import ExecMethods
from .graph import Graph, Node


class Exec(ExecMethods, Owner):
    """A compiled program with its memory and optimiser. It takes all its memory here; steps allocate nothing. Arrays over that memory (of
    input, output and ranges) are valid after close(), too: it is freed when the last of them is gone.

    graph: a Graph
    loss: scalar node; None: forward only
    outputs: nodes that output() reads after a step
    optimizer: as in Model
    more: members of trm_exec_options: seed, precision, threads, accumulate, loss_scale={...}, parallel={...}, ...
    """

    free = 'trm_exec_destroy'
    lender = None  # the Model that has this program; its handle changes with the ranks of an elastic job

    @takes(_c.trm_exec_options)
    def __init__(self, graph, loss=None, outputs=(), optimizer='sgd', **more):
        expect(isinstance(graph, Graph), 'Exec: graph', 'a Graph', graph)
        outputs = [outputs] if isinstance(outputs, Node) else list(outputs or ())
        for node in outputs + ([] if loss is None else [loss]):
            if getattr(node, 'graph', None) is not graph:
                raise TypeError(f'Exec: loss and outputs: nodes of the graph expected, found {node!r}{" of another graph" if isinstance(node, Node) else ""}')
        self.graph, self.keep = graph, []
        made = options(_c.trm_exec_options, dict(more, optimizer=optimizer_options(optimizer), outputs=outputs), self.keep)
        if loss is not None:
            made.loss = loss.c
        self.handle, self.inputs = take(_c.trm_exec_create, graph.handle, byref(made)), {}
        self.keep.append(made)

    @classmethod
    def _borrow(cls, model):
        made = cls.__new__(cls)
        made.lender, made.graph, made.inputs, made.process = model, None, {}, model.process
        return made

    handle = property(lambda self: Owner.handle.fget(self) if self.lender is None else _c.trm_model_exec(self.lender.handle),
                      Owner.handle.fset, doc='The trm_exec.')

    def held(self):
        return super().held() if self.lender is None else self.lender.held()

    def ranks(self):
        """The trm_parallel_info: rank, size, ..."""
        return filled(_c.trm_parallel_info, _c.trm_exec_get_parallel_info, self.handle)

    def check_child(self):
        """Raises Error in a forked child of a process that trains with other ranks."""
        if self.in_child() and self.ranks().size > 1:
            self.refuse_child('Exec', 'ranks')

    def input(self, name):
        """The memory of an input as an array, to be written before a step."""
        if name not in self.inputs:
            out = _c.trm_tensor()
            call(_c.trm_exec_input, self.handle, text(name), byref(out))
            self.inputs[name] = view(out, self.held())
        return self.inputs[name] if self.lender is None else self.inputs.pop(name)

    def feed(self, values=None, **more):
        """Copies arrays into inputs, by name."""
        for name, array in dict(values or {}, **more).items():
            made, keep = tensor(array, f'input {name!r}')
            call(_c.trm_exec_feed, self.handle, text(name), byref(made))

    def forward_backward(self):
        """Runs forward and backward; returns the loss. With many ranks the gradients are reduced."""
        self.check_child()
        call(_c.trm_exec_forward_backward, self.handle)
        return self.loss

    def step(self, learning_rate, **values):
        """feed, forward_backward and update; returns the loss. An input that is not among the values keeps what it has (a mask, for
        example); one that never had any is an Error."""
        self.feed(values)
        loss = self.forward_backward()
        self.update(learning_rate)
        return loss

    def output(self, index=0):
        """Output `index` as an array over the program's memory; the next step changes it."""
        out = _c.trm_tensor()
        call(_c.trm_exec_output, self.handle, index, byref(out))
        return view(out, self.held())

    # ---- variables

    @property
    def variables(self):
        """{name: (kind, dtype, shape)} of parameters, states and slots."""
        every = (_c.trm_exec_variable(self.handle, i) for i in range(_c.trm_exec_variable_count(self.handle)))
        return {v.name.decode(): (word('trm_variable_kind', v.kind), DTYPE_NAMES[v.dtype], sizes(v.shape)) for v in every}

    def find(self, name):
        """(index, trm_variable) of the variable of this name."""
        index = _c.trm_exec_find(self.handle, text(name))
        if index < 0:
            raise Error(f'variable {name!r}: there is none (found {", ".join(list(self.variables)[:5])}, ...)')
        return index, _c.trm_exec_variable(self.handle, index)

    def read(self, name):
        """A copy of a variable, in plain layout."""
        index, v = self.find(name)
        array = np.empty(sizes(v.shape), DTYPE_NAMES[v.dtype])
        _c.trm_exec_read(self.handle, index, array.ctypes.data)
        return array

    def write(self, name, value):
        """Sets a variable."""
        self._write({name: value})

    def _write(self, values):
        """Sets variables, after all values were checked."""
        made = []
        for name, value in values.items():
            index, v = self.find(name)
            made.append((index, *tensor(value, f'variable {name!r}', dtype=v.dtype, size=sizes(v.shape))))
        for index, value, keep in made:
            _c.trm_exec_write(self.handle, index, value.data)

    def gradient(self, name):
        """A copy of the gradient of a parameter after forward_backward."""
        index, v = self.find(name)
        array = np.empty(sizes(v.shape), 'float32')
        call(_c.trm_exec_gradient, self.handle, index, array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
        return array

    def state_dict(self):
        """{name: array} of parameters and states; those of the library's networks have torchvision's and transformers' names."""
        self.gather()
        return {name: self.read(name) for name, (kind, _, _) in self.variables.items() if kind != 'slot'}

    def load_state_dict(self, values, strict=True):
        """Sets parameters and states from arrays or torch tensors by name; further names are ignored. strict: a missing one is an error; else
        one name at least is there."""
        expect(isinstance(values, Mapping), 'load_state_dict', 'a dictionary of arrays by name', values)
        wanted, found = {name: dtype for name, (kind, dtype, _) in self.variables.items() if kind != 'slot'}, {}
        missing = [name for name in wanted if name not in values]
        if missing and (strict or values and len(missing) == len(wanted)):
            near = difflib.get_close_matches(missing[0], [name for name in values if isinstance(name, str)], 1, 0.5)
            raise Error(f'load_state_dict: {len(missing)} variables are missing (first: {missing[0]!r}{f"; the nearest found is {near[0]!r}" if near else ""}); '
                        + ('strict=False leaves them' if len(missing) < len(wanted) else 'no name is known: rename them'))
        for name, dtype in wanted.items():
            if name in values:
                value = plain(values[name])
                if hasattr(value, 'detach'):  # torch
                    value = value.float() if dtype == 'float32' else value
                else:
                    value = converted(np.asarray(value, order='C'), DTYPES[dtype], f'variable {name!r}')
                found[name] = value
        self._write(found)

    def ranges(self):
        """(parameters, gradients): each one float32 array over the program's memory, in the order of backward."""
        parameters, gradients, count = ctypes.POINTER(ctypes.c_float)(), ctypes.POINTER(ctypes.c_float)(), ctypes.c_int64()
        _c.trm_exec_ranges(self.handle, byref(parameters), byref(gradients), byref(count))
        return array_at(parameters, 1, count.value, self.held()), array_at(gradients, 1, count.value, self.held())

    global_step = property(lambda self: _c.trm_exec_step(self.handle), lambda self, step: plain_call(_c.trm_exec_set_step, self.handle, step),
                           doc='Updates so far; schedules and checkpoints count it.')

    # ---- reports

    def describe(self):
        """Memory, work and threads of the program, the reduction of gradients, and the searched plan."""
        return {'program': as_dict(filled(_c.trm_exec_info, _c.trm_exec_get_info, self.handle)), 'parallel': as_dict(self.ranks()),
                'plan': as_dict(filled(_c.trm_searched_plan, _c.trm_exec_get_searched_plan, self.handle))}

    def profile(self, repeats=5):
        """The median time of each program step: a list of dictionaries. Ctrl-C ends it."""
        out = _c.trm_program_profile()
        with stoppable() as stop:
            call(_c.trm_exec_profile, self.handle, byref(options(_c.trm_profile_options, {'repeats': repeats, 'stop': stop}, [])), byref(out))
        return [as_dict(out.steps[i]) for i in range(out.count)]

    def close(self):
        """Ends the program; its memory is freed when the last array over it is gone."""
        self.inputs = {}
        super().close()
