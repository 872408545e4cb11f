# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libtrireme, binds its functions, and compares the layout of its structs with the declarations."""
import ctypes
import os

WHOLE = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64)

STATUS_NAMES = {1: 'end', 2: 'pending', -1: 'invalid', -2: 'nomem', -3: 'io', -4: 'corrupt', -5: 'unsupported', -6: 'timeout',
                -7: 'peer', -8: 'cancelled', -9: 'internal', -10: 'nospace', -11: 'diverged'}


class Error(Exception):
    """An error of the library: the sentence of the function that detected it.

    message: one sentence: what is wrong, found and expected, what to do
    code: the trm_status, a negative number; status: its name ("invalid", "io", "peer", ...)
    rank: the rank that detected the error; -1 when there is only one
    file, line: the place in the library's source
    """

    def __init__(self, message, code=-1, rank=-1, file='', line=0):
        super().__init__(message)
        self.message, self.code, self.rank, self.file, self.line = message, code, rank, file, line

    status = property(lambda self: STATUS_NAMES.get(self.code, str(self.code)), doc='The name of the code: "invalid", "io", "peer", ...')

    def __reduce__(self):
        return Error, (self.message, self.code, self.rank, self.file, self.line)


def need(holds, sentence):
    """Raises the Error of a value that is wrong."""
    if not holds:
        raise Error(sentence)


def places(name):
    """Where a file of the library may be: in the package, and in the build folder of the source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(here, 'lib', name), os.path.join(os.path.dirname(os.path.dirname(here)), 'build', 'release', name)]


def candidates():
    """Where the library is looked for, in this order; torch_trireme looks there, too."""
    given = os.environ.get('TRIREME_LIBRARY')
    return [given] if given else places('libtrireme.so.0') + ['libtrireme.so.0']


def library():
    """The library, loaded."""
    tried = []
    for path in candidates():
        try:
            return let_fork(ctypes.CDLL(path))
        except OSError as error:
            tried.append(f'{path} ({error})')
    raise Error(f'libtrireme.so.0: not found (tried {", ".join(tried)}); install the package again, build the library with '
                f'`make`, or set TRIREME_LIBRARY to its path')


def let_fork(lib):
    """Before this process forks, its OpenMP threads end, and begin again when they are needed: a child would wait for them for ever."""
    pause = getattr(lib, 'omp_pause_resource_all', None)
    if pause is not None:
        os.register_at_fork(before=lambda: pause(1) and None)
    return lib


def check_range(kind, value):
    """Raises ValueError if a number does not fit into an integer type: ctypes would cut it."""
    if hasattr(value, '__index__') and kind(value).value != value:
        low = 0 if kind(-1).value > 0 else -(1 << 8 * ctypes.sizeof(kind) - 1)
        raise ValueError(f'{low} to {low + (1 << 8 * ctypes.sizeof(kind)) - 1} expected')


class _Checked:
    """An integer type of arguments, whose numbers are not cut."""

    def __init__(self, kind):
        self.kind = kind

    def from_param(self, value):
        check_range(self.kind, value)
        return self.kind.from_param(value)


_checked = {kind: _Checked(kind) for kind in WHOLE}


def bind(lib, name, result, arguments, names, doc):
    """The function of this name with its types; `names` and `doc` are for people."""
    try:
        function = getattr(lib, name)
    except AttributeError:
        raise Error(f'{lib._name}: it has no function {name}, the library is of another version than this package; '
                    f'install both from one source') from None
    function.restype, function.argtypes, function.names = result, [_checked.get(kind, kind) for kind in arguments], names.split()
    function.__name__, function.__doc__ = name, f'{name}({", ".join(names.split())})\n\n{doc}'
    return function


def check_layout(lib, structs):
    """Compares sizes and offsets of all structs with those of the library."""
    count = ctypes.c_int32()
    try:
        lib.trm_layout.restype = ctypes.POINTER(ctypes.c_uint32)
        numbers = lib.trm_layout(ctypes.byref(count))
    except AttributeError:
        count.value, numbers = 0, []
    theirs, at = numbers[:count.value], 0
    for struct in structs:
        ours = [ctypes.sizeof(struct)] + [getattr(struct, field[0]).offset for field in struct._fields_]
        found, at = theirs[at:at + len(ours)], at + len(ours)
        if found != ours or struct is structs[-1] and at != len(theirs):
            raise Error(f'{lib._name}: struct {struct.__name__} has another layout (found {found[:1]} bytes, expected {ours[0]}), the '
                        f'library is of another version than this package; install both from one source')
