# SPDX-License-Identifier: Apache-2.0
"""Values between Python and C: options as keyword arguments, structs as dictionaries, arrays without copies."""
import ctypes
import difflib
import functools
import inspect
import math
import operator
import os
import textwrap
from collections.abc import Mapping

from . import _c
from ._library import WHOLE, Error, check_range, need


class _Numpy:
    """NumPy, imported when it is first used: `import trireme` alone stays fast."""

    def __getattr__(self, name):
        import numpy
        value = getattr(numpy, name)
        setattr(self, name, value)
        return value


np = _Numpy()
DTYPES = {name: value for name, value in _c.ENUMS['trm_dtype'].items() if value}
DTYPE_NAMES = {value: name for name, value in DTYPES.items()}
ALSO = {('trm_usage', 'eval'): 'test'}  # the mode of an InputContext is the usage of its data


def expect(holds, what, wanted, found):
    """Raises the TypeError of an argument that is not what is expected."""
    if not holds:
        words = repr(found)
        raise TypeError(f'{what}: {wanted} expected, found {words if len(words) < 300 else words[:300] + " ..."}')


def enum(name, value):
    """The number of an enum's word: enum('trm_reduction', 'sum')."""
    if name == 'trm_dtype':
        return dtype_number(value)
    if name == 'trm_init' and isinstance(value, (tuple, list)):
        if len(value) != 2 or value[0] != 'normal' or not 0 <= value[1] < math.inf:
            raise Error(f'{name}: there is no {value!r} (expected a word, or ("normal", deviation) with a deviation of at least 0)')
        return _c.trm_init_normal(float(value[1]))
    if name == 'trm_switch' and isinstance(value, bool):
        return _c.TRM_ON if value else _c.TRM_OFF
    words = _c.ENUMS[name]
    if isinstance(value, str):
        number = words.get(ALSO.get((name, value.lower()), value.lower()))
    else:
        expect(hasattr(value, '__index__'), name, f'one of {", ".join(words)}', value)
        number = operator.index(value)
        number = number if number in words.values() or name == 'trm_init' else None  # trm_init_normal() makes numbers of its own
    need(number is not None, f'{name}: there is no {value!r} (expected one of {", ".join(words)})')
    return number


def word(name, value):
    """The word of an enum's number."""
    return next((w for w, v in _c.ENUMS[name].items() if v == value), value)


def dtype_number(value, what='dtype'):
    """The trm_dtype of a name, a NumPy or a torch type."""
    if value in DTYPE_NAMES and not isinstance(value, bool):
        return value
    name = value if isinstance(value, str) else getattr(value, 'name', None) or getattr(value, '__name__', None) or str(value)
    name = {'bool': 'uint8', 'torch.bool': 'uint8'}.get(name, name.replace('torch.', ''))
    if name not in DTYPES:
        raise Error(f'{what}: type {name} is not supported (expected one of {", ".join(DTYPES)}); convert it')
    return DTYPES[name]


def is_boolean(array):
    """Whether the elements are booleans, which the library sees as bytes."""
    if not hasattr(array, 'dtype') and hasattr(array, '__dlpack__'):
        return dl_tensor(array, 'array')[1].code == 6
    kind = array.dtype if hasattr(array, 'dtype') else np.asarray(array).dtype
    char = getattr(kind, 'char', None)  # of NumPy, whose str() is slow
    return char == '?' if char else str(kind) == 'torch.bool'


def plain(array):
    """An array, or a torch tensor as the library can read it: without gradient, dense. A copy only where it was not."""
    return array.detach().resolve_neg().contiguous() if hasattr(array, 'detach') else array


# ---- options ---------------------------------------------------------------------------------

@functools.lru_cache(None)
def fields_of(struct):
    """{name: (type, its enum or None)} of a struct's members."""
    return {name: (kind, _c.ENUM_OF.get((struct.__name__, name))) for name, kind in struct._fields_}


def paths(struct):
    """The members of the structs inside a struct: ('exec', 'optimizer', 'momentum'), ..."""
    for name, (kind, _) in fields_of(struct).items():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind not in (_c.trm_node, _c.trm_shape, _c.trm_tensor):
            for inner in fields_of(kind):
                yield (name, inner)
            for path in paths(kind):
                yield (name,) + path


def fill(target, values, keep):
    """Sets members of a struct from a dictionary; None leaves the default. `keep` holds what the struct points to.

    A name that only a struct inside has is set there: Model(..., precision='mixed') is exec.precision.
    """
    struct = type(target)
    fields = fields_of(struct)
    for name, value in values.items():
        if value is None:
            continue
        if name not in fields:
            inside = [path for path in paths(struct) if path[-1] == name]
            if len(inside) > 1:
                raise TypeError(f'{struct.__name__}: the option {name!r} is in several places (found '
                                f'{", ".join(".".join(p) for p in inside)}); give the outer one as a dictionary')
            if inside:
                inner = target
                for outer in inside[0][:-1]:
                    inner = getattr(inner, outer)
                fill(inner, {name: value}, keep)
                continue
            names = list(fields) + [p[-1] for p in paths(struct)]
            near = difflib.get_close_matches(name, names, 1)
            raise TypeError(f'{struct.__name__}: there is no option {name!r}' + (f'; the nearest is {near[0]!r}' if near else
                            f' (expected one of {", ".join(names)})'))
        kind, words = fields[name]
        try:
            set_member(target, name, kind, words, value, keep)
        except (TypeError, ValueError, ctypes.ArgumentError) as error:
            if isinstance(error, TypeError) and 'there is no option' in str(error):
                raise
            raise TypeError(f'{struct.__name__}: the option {name} cannot be {value!r} ({error})') from None
    return target


def set_member(target, name, kind, words, value, keep):
    """Sets one member of a struct."""
    now = getattr(target, name)
    kept = value
    if words:
        value = enum(words, value)
    elif kind is ctypes.c_char_p:
        kept = value = text(value)
    elif kind is ctypes.c_char:
        value = value.encode() if isinstance(value, str) else value
    elif kind is _c.trm_shape:
        value = shape(value)
    elif kind is ctypes.c_void_p:
        value = getattr(value, 'handle', value)
    elif kind in WHOLE:
        check_range(kind, operator.index(value))
    elif isinstance(now, ctypes.Array):
        values = list(value) if isinstance(value, (tuple, list)) else [value] * len(now)
        if name == 'pad' and len(values) == 2:
            values = [values[0], values[0], values[1], values[1]]
        whole = not issubclass(kind._type_, ctypes.Structure)  # an array of numbers has all of them
        if len(values) > len(now) or whole and len(values) < len(now):
            raise ValueError(f'found {len(values)}, expected {"" if whole else "at most "}{len(now)}')
        value = fill_array(now, values, keep)
    elif isinstance(now, ctypes._Pointer):
        below = kind._type_
        if isinstance(value, dict):
            kept = value = fill(below(), value, keep)
        if isinstance(value, below):
            value = ctypes.pointer(value)
        elif isinstance(value, (list, tuple)):
            array = fill_array((below * max(1, len(value)))(), value, keep)
            following = [n for n, _ in target._fields_ + [('', None)]]
            following = following[following.index(name) + 1]
            if following.endswith('count'):
                setattr(target, following, len(value))
            kept, value = array, ctypes.cast(array, kind)
    elif isinstance(now, ctypes.Structure) and not isinstance(value, kind):
        if kind is not _c.trm_node and not isinstance(value, dict):
            raise TypeError('a dictionary of its members expected')
        value = value.c if kind is _c.trm_node else fill(now, value, keep)
    keep.append(kept)
    setattr(target, name, value)


def fill_array(array, values, keep):
    """Sets the elements of an array: structs from dictionaries, texts, nodes, numbers."""
    for i, value in enumerate(values):
        if isinstance(value, dict):
            fill(array[i], value, keep)
        else:
            array[i] = text(value) if array._type_ is ctypes.c_char_p else getattr(value, 'c', value)
    return array


def options(struct, values, keep):
    """A struct of options, all zero but for `values`."""
    return fill(struct(), values, keep)


def optimizer_options(value):
    expect(isinstance(value, (str, Mapping)), 'optimizer', "a name or a dictionary of trm_optimizer_options' members", value)
    value = {'kind': value} if isinstance(value, str) else dict(value)
    if value.get('kind') == 'adamw':
        value.update(kind='adam', decoupled=True)
    if value.get('kind') in ('momentum', 'nesterov', 'lars'):
        value.setdefault('momentum', 0.9)
    return value


def rate_options(value):
    expect(hasattr(value, '__float__') or isinstance(value, Mapping), 'learning_rate',
           "a number or a dictionary of trm_learning_rate's members", value)
    return dict(value) if isinstance(value, Mapping) else {'base': float(value)}


def argument(function, index, value, keep):
    """A value as the function of the library takes it at this place: the number of a word, a text, a shape, a struct of options."""
    kind = function.argtypes[index]
    if (function.__name__, index) in _c.ENUM_OF:
        return enum(_c.ENUM_OF[function.__name__, index], value)
    if isinstance(value, dict):
        return ctypes.byref(options(kind._type_, value, keep))
    return text(value) if kind is ctypes.c_char_p else shape(value) if kind is _c.trm_shape else value


def comments(struct, title):
    """The comments of the headers for the members of a struct, and of those members that are options, or point to them."""
    said = f'{title} ({struct.__name__}):\n' + textwrap.indent(inspect.cleandoc(struct.__doc__), '    ')
    inside = [(name, getattr(kind, '_type_', kind)) for name, (kind, _) in fields_of(struct).items()]
    return '\n'.join([said] + [comments(kind, f'{title}, {name}') for name, kind in inside if isinstance(kind, type) and
                               issubclass(kind, ctypes.Structure) and kind.__name__.endswith(('options', 'strategy', 'learning_rate'))])


def takes(*structs):
    """Marks a function whose `more` are members of structs: help() shows their comments, and Tab completes their names."""
    def mark(function):
        own = inspect.signature(function)
        *given, rest = own.parameters.values()
        inside = [path[-1] for struct in structs for path in paths(struct)]
        names = [name for struct in structs for name in fields_of(struct)] + [name for name in inside if inside.count(name) == 1]
        given += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in dict.fromkeys(names)
                  if name not in own.parameters and not name.endswith('_context')]
        function.__signature__ = own.replace(parameters=given + [rest])
        function.__doc__ = '\n\n'.join(filter(None, [inspect.cleandoc(function.__doc__ or '')] + [comments(struct, 'Options') for struct in structs]))
        return function
    return mark


def text(value):
    """Text or a path as C takes it; None is NULL."""
    if value is None:
        return None
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f'a name or path expected, found {value!r}')
    found = os.fspath(value)
    found = found.encode('utf-8', 'surrogateescape') if isinstance(found, str) else found
    if b'\0' in found:
        raise ValueError(f'{value!r}: a name or path without the character 0 expected')
    return found


def shape(value):
    """A trm_shape of a sequence of sizes, or of one size."""
    if isinstance(value, _c.trm_shape):
        return value
    sizes = whole_numbers(value, 'shape')
    need(len(sizes) <= _c.TRM_MAX_RANK,
         f'shape {sizes}: too many dimensions (found {len(sizes)}, expected at most {_c.TRM_MAX_RANK})')
    made = _c.trm_shape(len(sizes))
    made.dim[:len(sizes)] = sizes
    return made


def whole_numbers(values, what='sizes or indices', kind=ctypes.c_int64):
    """A list of integers of a sequence, or of one number, that fit into the integer type; fractions are not cut."""
    try:
        one = hasattr(values, '__index__') and not getattr(values, 'ndim', 0)  # arrays say that they are integers, too
        found = [operator.index(v) for v in ([values] if one else values)]
        for number in found:
            check_range(kind, number)
        return found
    except (TypeError, ValueError):
        raise TypeError(f'{what}: whole numbers expected, found {values!r}') from None


def sizes(made):
    """A shape as a tuple."""
    return tuple(made.dim[:max(0, made.rank)])


def as_dict(struct):
    """A struct as a dictionary: texts, numbers, words of enums, lists; pointers without meaning in Python are left out."""
    found = {}
    for name, kind in struct._fields_:
        value = getattr(struct, name)
        words = _c.ENUM_OF.get((type(struct).__name__, name))
        if words:
            value = word(words, value)
        elif isinstance(value, _c.trm_shape):
            value = sizes(value)
        elif isinstance(value, ctypes.Structure):
            value = as_dict(value)
        elif isinstance(value, bytes):
            value = value.decode('utf-8', 'replace')
        elif isinstance(value, ctypes.Array):
            value = [as_dict(v) if isinstance(v, ctypes.Structure) else v for v in value]
        elif kind is ctypes.c_void_p or isinstance(value, (ctypes._Pointer, ctypes._CFuncPtr)):
            continue
        found[name] = value
    return found


# ---- arrays ----------------------------------------------------------------------------------

class _DLTensor(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('device', ctypes.c_int32), ('device_id', ctypes.c_int32), ('ndim', ctypes.c_int32),
                ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16), ('shape', ctypes.POINTER(ctypes.c_int64)),
                ('strides', ctypes.POINTER(ctypes.c_int64)), ('offset', ctypes.c_uint64)]


_DL_TYPES = {(2, 32): 1, (2, 64): 2, (4, 16): 3, (2, 16): 4, (0, 8): 5, (1, 8): 6, (0, 32): 7, (0, 64): 8, (6, 8): 6}


def dl_tensor(array, what):
    """(capsule, its tensor) of an array with DLPack."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        capsule = array.__dlpack__()
        return capsule, _DLTensor.from_address(pointer(capsule, b'dltensor'))
    except (BufferError, ValueError) as error:
        raise Error(f'{what}: the array gives no memory by DLPack ({error}); pass a copy') from None


_numbers = {}  # the trm_dtype of each NumPy type that has been seen


def described(array, what):
    """(address, dtype, shape, keep, writeable) of an array in main memory: NumPy, torch, DLPack, or the buffer protocol. No copy.

    Raises Error if the array is not dense, of another type, or on another device.
    """
    face = getattr(array, '__array_interface__', None)
    if face is not None:
        if hasattr(array, 'filled'):
            raise Error(f'{what}: the array is masked, and its mask would be lost; call .filled() first')
        if face.get('strides') is not None and not np.asarray(array).flags.c_contiguous:
            raise Error(f'{what}: the array of shape {face["shape"]} is not contiguous; call numpy.ascontiguousarray first')
        kind = array.dtype if hasattr(array, 'dtype') else np.dtype(face['typestr'])
        number = _numbers.get(kind)
        if number is None:
            if not kind.isnative:
                raise Error(f'{what}: the array has the other byte order; convert it')
            number = _numbers[kind] = dtype_number(kind, what)
        # of a NumPy scalar it is a copy, which `face` holds
        return face['data'][0], number, face['shape'], (array, face), not (face['data'][1] or '__ref' in face)
    if hasattr(array, 'data_ptr') and hasattr(array, 'is_contiguous'):  # torch: DLPack refuses tensors that need a gradient
        if array.device.type != 'cpu':
            raise Error(f'{what}: the tensor is on {array.device} (expected on the CPU); call .cpu() first')
        if str(array.layout) != 'torch.strided' or array.is_nested:
            raise Error(f'{what}: the tensor is not dense (layout {array.layout}); call .to_dense() first')
        if not array.is_contiguous():
            raise Error(f'{what}: the tensor of shape {tuple(array.shape)} is not contiguous; call .contiguous() first')
        if array.is_neg():
            raise Error(f'{what}: the tensor is a view of another one with the other sign; call .resolve_neg() first')
        if array.numel() and not array.data_ptr():
            raise Error(f'{what}: the tensor of shape {tuple(array.shape)} has no memory; it is fake, or its storage was freed')
        return array.data_ptr(), dtype_number(array.dtype, what), tuple(array.shape), array, True
    if hasattr(array, '__dlpack__'):
        capsule, tensor = dl_tensor(array, what)
        size = tuple(tensor.shape[:tensor.ndim])
        if tensor.device not in (1, 3):
            raise Error(f'{what}: the array is on a device (DLPack type {tensor.device}, expected 1, the CPU)')
        if (tensor.code, tensor.bits) not in _DL_TYPES or tensor.lanes != 1:
            raise Error(f'{what}: DLPack type {tensor.code} of {tensor.bits} bits is not supported; convert the array')
        dense = [math.prod(size[i + 1:]) for i in range(tensor.ndim)]
        if tensor.strides and 0 not in size and any(n > 1 and tensor.strides[i] != dense[i] for i, n in enumerate(size)):
            raise Error(f'{what}: the array of shape {size} is not contiguous')
        return (tensor.data or 0) + tensor.offset, _DL_TYPES[tensor.code, tensor.bits], size, (array, capsule), True
    try:
        view = np.asarray(memoryview(array))
    except TypeError:
        raise Error(f'{what}: an array is needed (found {type(array).__name__}, expected NumPy, torch, DLPack or a buffer)') from None
    return described(view, what)


def tensor(array, what='array', write=False, dtype=None, size=None):
    """(trm_tensor, keep) of an array, without a copy. write: the library writes to it."""
    address, number, found, keep, writeable = described(array, what)
    if write and not writeable:
        raise Error(f'{what}: the array is read-only, and the call writes to it; pass a copy')
    if dtype is not None and number != dtype:
        raise Error(f'{what}: another type (found {DTYPE_NAMES[number]}, expected {DTYPE_NAMES[dtype]}); '
                    f'convert it with .astype({DTYPE_NAMES[dtype]!r})')
    if size is not None and tuple(found) != tuple(size):
        raise Error(f'{what}: another shape (found {list(found)}, expected {list(size)})')
    return _c.trm_tensor(address, number, shape(found)), keep


def converted(array, number, what):
    """A NumPy array of the type `number`. Fractions never become integers, and integers are not cut."""
    if number == _c.TRM_BFLOAT16:  # NumPy has none: its bits as uint16
        return array
    wanted = np.dtype(DTYPE_NAMES[number])
    if array.dtype == wanted:
        return array
    fits = np.can_cast(array.dtype, wanted, 'same_kind') or array.dtype.kind in 'biu' and wanted.kind in 'iu'
    if fits and wanted.kind in 'iu' and array.size:
        fits = np.iinfo(wanted).min <= array.min() and array.max() <= np.iinfo(wanted).max
    if not fits:
        raise Error(f'{what}: another type (found {array.dtype}{f" from {array.min()} to {array.max()}" if array.dtype.kind in "iuf" and array.size else ""}, '
                    f'expected {wanted}); convert it')
    return array.astype(wanted, order='C')


class _Memory:
    """Memory of the library as NumPy sees it; holds what keeps it."""

    def __init__(self, address, dtype, size, held, read_only):
        self.held = held
        self.__array_interface__ = {'data': (address, read_only), 'typestr': dtype, 'shape': size, 'version': 3}


_TYPESTR = {1: '<f4', 2: '<f8', 3: '<u2', 4: '<f2', 5: '|i1', 6: '|u1', 7: '<i4', 8: '<i8'}


def view(made, held=None, read_only=False):
    """A NumPy array over a tensor of the library, without a copy (bfloat16 as uint16). held: keeps the memory."""
    size = sizes(made.shape)
    if not made.data:
        return np.empty(size, _TYPESTR[made.dtype])
    return np.asarray(_Memory(made.data, _TYPESTR[made.dtype], size, held, read_only))


def array_at(pointer, number, count, held=None):
    """A NumPy array over `count` elements of the type `number` at a pointer, without a copy."""
    return view(_c.trm_tensor(ctypes.cast(pointer, ctypes.c_void_p).value, number, shape(count)), held)
