#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the Python package declares of the C library, from the public headers.

Usage: python_declarations.py ROOT [--check]

Reads include/trireme/*.h with libclang (Debian: python3-clang) and writes

    python/trireme/_c.py    structs, enums, callbacks and functions for ctypes, with the comments as docstrings
    python/trireme/_c.pyi   their types, for editors and type checkers
    python/trireme/ops.py   a Python function for each operator of a graph
    python/trireme/transforms.py    and for each transform of a dataset
    python/trireme/_methods.py      methods that pass on to one function each; the hooks of a training
    python/trireme/_monitors.py     callbacks of the library
    src/train/layout.c      trm_layout: sizes and offsets of all structs, which _c.py compares when it is imported

--check writes nothing and fails if a file differs. Exit code 77: libclang is not here.
"""
import keyword
import os
import re
import sys

try:
    from clang.cindex import Config, CursorKind, Index, TypeKind
    Config.compatibility_check = False
    INDEX = Index.create()
except Exception as missing:  # no module, or clang.cindex.LibclangError: no library
    print(f'python_declarations: no libclang for Python here ({missing}); Debian: python3-clang')
    sys.exit(77)

TYPEDEFS = {'int8_t': 'c_int8', 'uint8_t': 'c_uint8', 'int16_t': 'c_int16', 'uint16_t': 'c_uint16', 'int32_t': 'c_int32',
            'uint32_t': 'c_uint32', 'int64_t': 'c_int64', 'uint64_t': 'c_uint64', 'size_t': 'c_size_t'}
BUILTINS = {TypeKind.BOOL: 'c_bool', TypeKind.INT: 'c_int', TypeKind.UINT: 'c_uint', TypeKind.FLOAT: 'c_float',
            TypeKind.DOUBLE: 'c_double', TypeKind.CHAR_S: 'c_char', TypeKind.UCHAR: 'c_uint8', TypeKind.LONG: 'c_int64',
            TypeKind.ULONG: 'c_uint64', TypeKind.SHORT: 'c_int16', TypeKind.USHORT: 'c_uint16'}
PYTHON_TYPES = {'c_bool': 'bool', 'c_float': 'float', 'c_double': 'float', 'c_char_p': 'Optional[bytes]', 'None': 'None'}
# Operators that graph.py writes by hand: leaves, and those whose arguments are no values.
BY_HAND = {'trm_input', 'trm_parameter', 'trm_state', 'trm_constant', 'trm_scalar', 'trm_loss_softmax', 'trm_loss_softmax_expand',
           'trm_loss_logistic', 'trm_inputs_get'}
DEFAULTS = {('trm_pad', 'value'): '0.0', ('trm_one_hot', 'on'): '1.0', ('trm_one_hot', 'off'): '0.0', ('trm_transform_random_flip', 'probability'): '0.5',
            ('trm_transform_rescale', 'scale'): '1 / 255', ('trm_transform_rescale', 'shift'): '0.0', ('trm_dataset_shuffle', 'window'): '0', ('trm_dataset_repeat', 'passes'): None,
            ('trm_dataset_batch', 'drop_remainder'): 'True', ('trm_dataset_prefetch', 'depth'): '4', ('trm_dataset_prefetch', 'threads'): '1',
            ('trm_planner_report', 'json'): 'True', ('trm_loss_monitor', 'every'): '1', ('trm_metrics_recorder', 'every'): '1',
            ('trm_run_recorder', 'every'): '0'}
# Other names of arguments than in C, and of methods than what follows the prefix.
RENAMED = {'json': 'json_form', ('trm_planner_save', 'file'): 'path',
           'trm_planner_get_info': 'info', 'trm_graph_is_training': 'training', 'trm_dataset_json': 'describe'}
# Classes of methods that pass on to one function each: the prefix of the functions, those after which the object is returned, the others, and
# those that are properties.
METHODS = {
    'DatasetMethods': ('trm_dataset_', 'seed shard shuffle batch repeat prefetch', 'json', 'sample_count class_count'),
    'ExecMethods': ('trm_exec_', '', 'forward update broadcast gather explain', 'loss'),
    'PlannerMethods': ('trm_planner_', '', 'report svg dot save', 'get_info'),
    'GraphMethods': ('trm_graph_', '', 'check', 'is_training'),
    'ModelMethods': ('trm_model_', '', 'request_stop request_leave', 'global_step'),
    'EstimatorMethods': ('trm_estimator_', '', 'plan request_stop', ''),
    'ElasticMethods': ('trm_elastic_', '', 'request_leave', 'wants_change'),
    'TokenizerMethods': ('trm_tokenizer_', '', 'save', ''),
    'ContextMethods': ('trm_context_', '', 'reset', ''),
}
# Operators that are methods of a node, too; and those between two values, as Python writes them.
NODE_METHODS = {'sum': 'trm_reduce_sum', 'mean': 'trm_reduce_mean', 'max': 'trm_reduce_max', 'astype': 'trm_cast'}
NODE_OPERATORS = {'add': 'trm_add', 'sub': 'trm_sub', 'mul': 'trm_mul', 'truediv': 'trm_div', 'matmul': 'trm_matmul'}
# Classes that hold members of a struct, and what comes before them.
HOLDERS = {'ParameterServerStrategy': ('trm_ps_strategy', ''), 'EvalSpec': ('trm_eval_spec', 'input_fn')}
# Callbacks of the library, and the members of their options that come first.
MONITORS = {'LossMonitor': ('trm_loss_monitor', ''), 'TimeMonitor': ('trm_time_monitor', ''), 'MetricsRecorder': ('trm_metrics_recorder', ''),
            'RunRecorder': ('trm_run_recorder', ''), 'ModelCheckpoint': ('trm_model_checkpoint', 'directory'),
            'EarlyStop': ('trm_early_stop', ''), 'TensorBoard': ('trm_tensorboard', 'directory')}
HEADER = 'Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.'


class Comments:
    """The comments of one header, by place."""

    def __init__(self, path):
        self.text = open(path, encoding='utf-8').read()
        self.found = [(m.start(), m.end(), m.group()) for m in re.finditer(r'/\*.*?\*/', self.text, re.S)]

    @staticmethod
    def clean(comment):
        lines = [re.sub(r'^\s*\*? ?', '', line).rstrip() for line in comment[2:-2].split('\n')]
        lines[0] = lines[0].strip()
        return '\n'.join(lines).strip()

    def before(self, offset):
        """The comment on lines of its own that ends right before a declaration."""
        for begin, end, text in self.found:
            alone = not self.text[self.text.rfind('\n', 0, begin) + 1:begin].strip()
            if alone and end <= offset and not self.text[end:offset].strip() and self.text[end:offset].count('\n') < 2:
                return self.clean(text)
        return ''

    def after(self, offset):
        """The comment behind a member, on its line."""
        for begin, end, text in self.found:
            if begin >= offset and not self.text[offset:begin].strip(' ;,') and '\n' not in self.text[offset:begin]:
                return self.clean(text)
        return ''


class Headers:
    """All declarations of the public headers, in their order."""

    def __init__(self, root):
        self.folder = os.path.join(root, 'include', 'trireme')
        unit = INDEX.parse(os.path.join(self.folder, 'trireme.h'), args=['-I' + os.path.join(root, 'include'), '-std=c11'])
        worst = [d for d in unit.diagnostics if d.severity >= 3]
        if worst:
            sys.exit('python_declarations: ' + '\n'.join(str(d) for d in worst))
        self.comments, self.macros = {}, []
        self.enums, self.structs, self.callbacks, self.functions, self.order = {}, {}, {}, {}, []
        self.constants, self.heads = [], {}
        for cursor in unit.cursor.get_children():
            if cursor.location.file and os.path.dirname(os.path.abspath(cursor.location.file.name)) == os.path.abspath(self.folder):
                self.take(cursor)
        for name in sorted(os.listdir(self.folder)):
            for m in re.finditer(r'^#define (TRM_\w+) (\d+)$', open(os.path.join(self.folder, name)).read(), re.M):
                self.macros.append((m.group(1), int(m.group(2))))

    def notes(self, cursor):
        path = cursor.location.file.name
        if path not in self.comments:
            self.comments[path] = Comments(path)
        return self.comments[path]

    def take(self, cursor):
        kind, name = cursor.kind, cursor.spelling
        notes = self.notes(cursor)
        doc = notes.before(cursor.extent.start.offset)
        if kind == CursorKind.ENUM_DECL:
            # A member of a list macro has the place of its expansion: the words of the list are its comment.
            members = [(c.spelling, c.enum_value, notes.after(c.extent.end.offset)) for c in cursor.get_children()]
            if name.startswith('trm_'):
                self.enums[name] = (members, doc)
            else:
                self.constants += members
        elif kind == CursorKind.STRUCT_DECL and cursor.is_definition():
            members = []
            for c in cursor.get_children():
                if c.kind != CursorKind.FIELD_DECL:
                    continue
                said = notes.after(c.extent.end.offset)
                if not said:  # `int a, b; /* ... */`: the comment is behind the last
                    rest = re.match(r'[^;\n]*;[ \t]*(/\*.*?\*/)', notes.text[c.extent.end.offset:], re.S)
                    said = notes.clean(rest.group(1)) if rest else notes.before(c.extent.start.offset)
                members.append((c.spelling, c.type, said))
            self.structs[name] = (members, doc)
            self.heads[name] = notes.before(notes.text.rfind('\n', 0, cursor.extent.start.offset) + 1)  # before `typedef`
            self.order.append(('struct', name))
        elif kind == CursorKind.TYPEDEF_DECL:
            below = cursor.underlying_typedef_type
            if below.kind == TypeKind.POINTER and below.get_pointee().get_canonical().kind == TypeKind.FUNCTIONPROTO:
                names = [c.spelling for c in cursor.get_children() if c.kind == CursorKind.PARM_DECL]
                self.callbacks[name] = (below.get_pointee(), names, doc)
                self.order.append(('callback', name))
        elif kind == CursorKind.FUNCTION_DECL and name not in self.functions:
            start = notes.text.rfind('\n', 0, cursor.extent.start.offset) + 1
            arguments = [(a.spelling, a.type) for a in cursor.get_arguments()]
            self.functions[name] = (cursor.result_type, arguments, cursor.type.is_function_variadic(), notes.before(start),
                                    os.path.basename(cursor.location.file.name))

    def struct_name(self, kind):
        canonical = kind.get_canonical()
        name = canonical.get_declaration().spelling
        return name if canonical.kind == TypeKind.RECORD and name in self.structs else None

    def ctype(self, kind, result=False):
        """The ctypes expression of a type; result: of a function's value, whose text may have to be freed."""
        if kind.kind == TypeKind.ELABORATED:
            return self.ctype(kind.get_named_type(), result)
        if kind.kind == TypeKind.TYPEDEF:
            name = kind.spelling.replace('const ', '')
            if name in TYPEDEFS:
                return TYPEDEFS[name]
            if name in self.callbacks:
                return name
        canonical = kind.get_canonical()
        if kind.kind == TypeKind.VOID:
            return 'None'
        if canonical.kind == TypeKind.ENUM:
            return 'c_int'
        if canonical.kind == TypeKind.RECORD:
            return self.struct_name(kind)
        if kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
            return f'{self.ctype(kind.element_type)} * {kind.element_count}'
        if canonical.kind == TypeKind.POINTER:
            below = kind.get_pointee() if kind.kind == TypeKind.POINTER else canonical.get_pointee()
            return self.pointer(below, result)
        if kind.kind in BUILTINS:
            return BUILTINS[kind.kind]
        if canonical.kind in BUILTINS:
            return BUILTINS[canonical.kind]
        sys.exit(f'python_declarations: no ctypes type for {kind.spelling}')

    def pointer(self, below, result):
        canonical = below.get_canonical()
        if canonical.kind == TypeKind.FUNCTIONPROTO:
            return self.prototype(canonical)
        if canonical.kind == TypeKind.CHAR_S:
            return 'c_void_p' if result and not below.is_const_qualified() else 'c_char_p'
        if canonical.kind == TypeKind.VOID or canonical.kind == TypeKind.RECORD and not self.struct_name(below):
            return 'c_void_p'
        if canonical.kind == TypeKind.POINTER and canonical.get_pointee().get_canonical().kind == TypeKind.CHAR_S:
            return 'POINTER(c_char_p)' if below.get_pointee().is_const_qualified() else 'POINTER(c_void_p)'
        return f'POINTER({self.ctype(below)})'

    def prototype(self, kind):
        # ctypes cannot return a struct from a callback. trm_node, one int32_t, is returned in the register of an int32_t.
        result = self.ctype(kind.get_result(), True)
        result = 'c_int32' if result == 'trm_node' else result
        return f'CFUNCTYPE({", ".join([result] + [self.ctype(a) for a in kind.argument_types()])})'


def quote(text, indent):
    text = text.replace('\\', '\\\\').replace('"""', "'''")
    if '\n' not in text:
        return f'"""{text}"""' if not text.endswith('"') else f'"""{text} """'
    return '"""' + ('\n' + indent).join(text.split('\n')).replace('\n' + indent + '\n', '\n\n') + '\n' + indent + '"""'


def enum_words(members):
    """The words of an enum, as Python takes them: without the longest common prefix, in small letters; TRM_X_DEFAULT is "default"."""
    names = [n for n, _, _ in members]
    prefix = os.path.commonprefix(names) if len(names) > 1 else 'TRM_'
    prefix = prefix[:prefix.rfind('_') + 1]
    return [('default' if n.endswith('_DEFAULT') else n[len(prefix):].lower(), v) for n, v, _ in members]


def write_declarations(h):
    out = ['# SPDX-License-Identifier: Apache-2.0', f'# {HEADER}',
           '"""The C library as its headers declare it: structs, enums, callbacks and functions for ctypes.',
           '', 'Functions are bound when they are first used; their docstrings are the comments of the headers.', '"""',
           'from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,',
           '                    c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof)',
           '', 'from ._library import bind, check_layout, library', '', 'lib = library()', '']
    for name, value in h.macros:
        out.append(f'{name} = {value}')
    for name, value, _ in h.constants:
        out.append(f'{name} = {value}')
    for name, (members, doc) in h.enums.items():
        out += ['', f'# {name}'] + [f'{n} = {v}' for n, v, _ in members]
    out += ['', '# The words of each enum.', 'ENUMS = {']
    for name, (members, _) in h.enums.items():
        out.append(f'    {name!r}: {dict(enum_words(members))!r},')
    out.append('}')
    out += ['', '']
    for name, (members, doc) in h.structs.items():
        text = doc + '\n\n' + '\n'.join(f'{m}: {said}'.replace('\n', ' ') for m, _, said in members)
        out += [f'class {name}(Structure):', f'    {quote(text.strip(), "    ")}', '', '']
    for what, name in h.order:
        if what == 'callback':
            out.append(f'{name} = {h.prototype(h.callbacks[name][0].get_canonical())}')
        else:
            members = h.structs[name][0]
            out.append(f'{name}._fields_ = [')
            out += [f'    ({m!r}, {h.ctype(t)}),' for m, t, _ in members]
            out.append(']')
    # Which members are enums: texts are accepted for them.
    out += ['', '# The enum of each member and argument that is one.', 'ENUM_OF = {']
    for name, (members, _) in h.structs.items():
        for m, t, _ in members:
            enum = enum_name(h, t)
            if enum:
                out.append(f'    ({name!r}, {m!r}): {enum!r},')
    for name, (_, arguments, _, _, _) in h.functions.items():
        for index, (a, t) in enumerate(arguments):
            if enum_name(h, t):
                out.append(f'    ({name!r}, {index}): {enum_name(h, t)!r},')
    out += ['}', '', '# name: (type of the value, types of the arguments, names of the arguments, docstring)', 'FUNCTIONS = {']
    for name, (result, arguments, variadic, doc, _) in h.functions.items():
        types = ''.join(h.ctype(t) + ', ' for _, t in arguments)
        names = ' '.join(a for a, _ in arguments) + (' ...' if variadic else '')
        out += [f'    {name!r}: ({h.ctype(result, True)}, ({types.strip()}),', f'        {names!r},', f'        {quote(doc, "        ")}),']
    out += ['}', '', '', 'def __getattr__(name):', '    if name in FUNCTIONS:', '        globals()[name] = function = bind(lib, name, *FUNCTIONS[name])',
            '        return function', '    raise AttributeError(f"trireme._c has no {name}")', '', '', 'def __dir__():',
            '    return sorted(list(globals()) + list(FUNCTIONS))', '', '', 'STRUCTS = (']
    out += [f'    {name},' for name in h.structs]
    out += [')', 'check_layout(lib, STRUCTS)', '']
    return '\n'.join(out)


def enum_name(h, kind):
    canonical = kind.get_canonical()
    name = canonical.get_declaration().spelling if canonical.kind == TypeKind.ENUM else ''
    return name if name in h.enums else None


def python_type(ctype):
    if ctype.startswith('c_int') or ctype.startswith('c_uint') or ctype == 'c_size_t':
        return 'int'
    return PYTHON_TYPES.get(ctype, ctype if ctype.startswith('trm_') else 'Any')


def write_stub(h):
    out = ['# SPDX-License-Identifier: Apache-2.0', f'# {HEADER}', 'from ctypes import CDLL, Structure',
           'from typing import Any, Dict, Optional, Tuple, Type', '', 'lib: CDLL', 'ENUMS: Dict[str, Dict[str, int]]',
           'ENUM_OF: Dict[Tuple[str, Any], str]', 'FUNCTIONS: Dict[str, Any]', 'STRUCTS: Tuple[Type[Structure], ...]', '']
    for name, _ in h.macros:
        out.append(f'{name}: int')
    for members in [h.constants] + [e[0] for e in h.enums.values()]:
        out += [f'{n}: int' for n, _, _ in members]
    out += [f'{name}: Any' for name in h.callbacks]
    for name, (members, _) in h.structs.items():
        out += ['', f'class {name}(Structure):']
        out += [f'    {m}: {python_type(h.ctype(t))}' for m, t, _ in members]
    out.append('')
    for name, (result, arguments, variadic, _, _) in h.functions.items():
        names = [a + ('_' if keyword.iskeyword(a) else '') + ': Any' for a, _ in arguments] + (['*arguments: Any'] if variadic else [])
        out.append(f'def {name}({", ".join(names)}) -> {python_type(h.ctype(result, True))}: ...')
    return '\n'.join(out) + '\n'


def tags(doc, tag):
    """{argument: words} of the lines of one tag."""
    found = re.search(r'^  ' + tag + r'\s+(.*?)(?=^  \w|\Z)', doc, re.S | re.M)
    parts = re.split(r'(?:^|\n\s+|; )(?=[\w, ]+: )', found.group(1)) if found else []
    said = {}
    for part in parts:
        names, _, words = part.partition(': ')
        for name in names.split(','):
            said[name.strip()] = words
    return said


def plain_argument(h, name, a, kind, said):
    """The argument of a Python function for a number, a word of an enum, a text or a shape."""
    ctype, enum, default = h.ctype(kind), enum_name(h, kind), None
    if ctype == 'c_bool':
        default = 'False'
    elif enum and enum != 'trm_dtype':
        default = repr(enum_words(h.enums[enum][0])[0][0])
    elif ctype in ('c_double', 'c_int64', 'c_int32') and re.match(r'0 =|position of row 0', said.get(a, '')):
        default = '0'
    default = DEFAULTS.get((name, a), default)
    hint = {'c_bool': 'bool', 'c_double': 'float', 'trm_shape': 'Sequence[int]', 'c_char_p': 'str',
            'c_double * 3': 'Union[float, Sequence[float]]'}.get(ctype, 'Any' if enum else 'int')
    return f'{a}: {hint}' + (f' = {default}' if default else '')


def words_of(h, a, kind):
    """The line of help for an argument that is a word of an enum."""
    enum = enum_name(h, kind)
    return [f'{a}: {", ".join(w for w, _ in enum_words(h.enums[enum][0]))}'] if enum and enum != 'trm_dtype' else []


def operator(h, name):
    """The lines of the Python function of one operator."""
    _, arguments, _, doc, _ = h.functions[name]
    said = tags(doc, 'param')
    plain, words, passed, outputs, notes = [], [], [], [], []
    skip = False
    for index, (a, kind) in enumerate(arguments[1:]):
        if skip:
            skip = False
            continue
        following = arguments[index + 2] if index + 2 < len(arguments) else ('', None)
        ctype = h.ctype(kind)
        canonical = kind.get_canonical()
        below = canonical.get_pointee() if canonical.kind == TypeKind.POINTER else None
        struct = h.struct_name(below) if below is not None else None
        if ctype == 'trm_node':
            plain.append(a + (': Optional[Value] = None' if 'TRM_NO_NODE' in said.get(a, '') else ': Value'))
            passed.append(a)
        elif struct == 'trm_node' and below.is_const_qualified():
            plain.append(f'{a}: Sequence[Value]')
            passed.append(a)
            skip = True
        elif struct == 'trm_node':
            outputs.append(a)
            passed.append('OUTPUT')
        elif struct:
            members = h.structs[struct][0]
            counts = {m for (m, t, _), (_, before, _) in zip(members[1:], members)
                      if m.endswith('count') and before.get_canonical().kind == TypeKind.POINTER}
            for m, t, note in members:
                if m in counts:
                    continue
                needed = h.ctype(t) == 'trm_node' and 'TRM_NO_NODE' not in note
                words.append(f'{m}: Any = None' if not needed else f'{m}: Value')
                notes.append(f'{m}: {note}'.replace('\n', ' '))
            passed.append('dict(' + ', '.join(f'{m}={m}' for m, _, _ in members if m not in counts) + ')')
        elif below is not None and h.ctype(below) in ('c_int64', 'c_int'):
            counted = following[0] == 'count'
            optional = counted and a == 'axes'
            plain.append(f'{a}: ' + ('Union[int, Sequence[int], None] = None' if optional else 'Sequence[int]'))
            passed.append(a)
            skip = counted
        else:
            plain.append(plain_argument(h, name, a, kind, said))
            notes += words_of(h, a, kind)
            passed.append(a)
    # An argument behind one with a default needs one too.
    seen = False
    for i, p in enumerate(plain):
        seen = seen or ' = ' in p
        if seen and ' = ' not in p:
            plain[i] = p.replace(': Value', ': Optional[Value] = None') if ': Value' in p else p + ' = 0'
    python = name[len('trm_'):]
    python += '_' if keyword.iskeyword(python) else ''
    head = ', '.join(plain + (['*'] + words if words else []))
    doc = re.sub(r'(  param   )? +options: NULL = [^\n]*\n?', '', doc + '\n').strip()
    text = (doc + ('\n\n' + '\n'.join(notes) if notes else '')).replace('TRM_NO_NODE', 'None')
    value = 'Node' if not outputs else f'Tuple[{", ".join(["Node"] * (1 + len(outputs)))}]'
    lines, line = [], f'def {python}('
    for piece in re.split(r'(?<=, )(?![^\[]*\])', head + f') -> {value}:'):
        if len(line + piece) > 120:
            lines.append(line.rstrip())
            line = ' ' * (len(python) + 5)
        line += piece
    return python, lines + [line, f'    {quote(text, "    ")}',
                            '    return operate(' + ',\n                   '.join(pack([repr(name)] + passed, 96)) + ')']


def pack(parts, width):
    lines = []
    for p in parts:
        if lines and len(lines[-1]) + len(p) + 2 <= width:
            lines[-1] += ', ' + p
        else:
            lines.append(p)
    return lines


def write_operators(h):
    names, bodies = [], []
    for name, (result, arguments, _, _, _) in h.functions.items():
        if h.ctype(result) == 'trm_node' and arguments and arguments[0][1].spelling == 'trm_graph *' and name not in BY_HAND:
            python, lines = operator(h, name)
            names.append(python)
            bodies += ['', ''] + lines
    out = ['# SPDX-License-Identifier: Apache-2.0', f'# {HEADER}',
           '"""Every operator of a graph. A value is a Node, a number or an array; each function returns a Node.',
           '', 'None stands for an absent node, and for the default of an option.', '"""', 'from typing import Any, Optional, Sequence, Tuple, Union', '',
           'from .graph import OUTPUT, Node, Value, operate', '', '__all__ = [']
    out += [f'    {line},' for line in pack([repr(n) for n in names], 110)]
    return '\n'.join(out + [']'] + bodies) + '\n'


def write_transforms(h):
    names, bodies = [], []
    for name, (result, arguments, _, doc, _) in h.functions.items():
        if h.ctype(result) == 'trm_transform':
            python = name[len('trm_transform_'):]
            names.append(python)
            head = ', '.join(plain_argument(h, name, a, kind, tags(doc, 'param')) for a, kind in arguments)
            notes = [note for a, kind in arguments for note in words_of(h, a, kind)]
            notes = [''] + notes if notes else []
            bodies += ['', '', f'def {python}({head}) -> Any:', f'    {quote(chr(10).join([doc] + notes), "    ")}',
                       f'    return transform({", ".join([repr(name)] + [a for a, _ in arguments])})']
    out = ['# SPDX-License-Identifier: Apache-2.0', f'# {HEADER}', '"""Transforms of images, for Dataset.map."""', 'from typing import Any, Sequence, Union', '',
           'from .data import transform', '', '__all__ = [']
    out += [f'    {line},' for line in pack([repr(n) for n in names], 110)]
    return '\n'.join(out + [']'] + bodies) + '\n'


def python_doc(doc, notes=()):
    """The comment of a function as help in Python: without what only C needs to know."""
    doc = re.sub(r'^  (owns |level |returns  NULL).*(\n   .*)*\n?', '', doc, flags=re.M).strip().replace('TRM_NO_NODE', 'None')
    doc = re.sub(r'^Returns (?=the |a |one |whether )', '', doc)
    doc = re.sub(r'trm_(?:dataset|exec|model|elastic|planner|estimator|tokenizer)_(?!\w*options)([a-z_]+)', r'\1()', doc)
    doc = doc.replace('trm_evaluate_every', 'EvaluateEvery').replace('trm_train_and_evaluate', 'train_and_evaluate()')
    doc = doc.replace('batch->', 'batch.').replace('false', 'False')
    return '\n'.join([doc[0].upper() + doc[1:]] + ([''] + list(notes) if notes else []))


def method(h, name, python, kind):
    """The lines of the method of a function whose first argument is the object."""
    _, arguments, _, doc, _ = h.functions[name]
    plain, passed, notes, texts = [], [], [], name.endswith('_json')
    for a, t in arguments[1:]:
        if a in ('err', 'out'):
            continue
        word = RENAMED.get((name, a), RENAMED.get(a, a))
        plain.append(plain_argument(h, name, a, t, tags(doc, 'param')).replace(a + ':', word + ':', 1))
        passed.append(word)
        notes += words_of(h, a, t)
    lines = ['    @property'] if kind == 'property' else []
    lines += [f'    def {python}({", ".join(["self"] + plain)}) -> Any:', f'        {quote(python_doc(doc, notes), "        ")}']
    value = f'pass_on({", ".join([repr(name), "self"] + passed)})'
    simple = not any(enum_name(h, t) or h.ctype(t) == 'c_char_p' for _, t in arguments[1:])
    if kind == 'method' and simple and arguments[-1][0] == 'err' and 'out' not in dict(arguments):
        return lines + ['        self.check_child()', f'        call({", ".join(["_c." + name, "self.handle"] + passed)})', '']
    if kind == 'property' and len(arguments) == 1:
        value = f'_c.{name}(self.handle)'
    if kind == 'refine':
        return lines + [f'        {value}', '        return self', '']
    value = f'json.loads({value})' if texts else f'as_json({value}, json_form)' if 'json_form' in passed else value
    return lines + [f'        return {value}', '']


def node_methods(h):
    """The lines of the class of a node's operators."""
    out = ['', 'class NodeMethods:', '    __slots__ = ()', '    _operate: Any = None  # graph.operate', '']
    for python, name in NODE_METHODS.items():
        plain, passed = [], []
        for a, t in h.functions[name][1][2:]:
            word = {'axes': 'axis', 'keep_dims': 'keepdims'}.get(a, a)
            if a != 'count':
                plain.append('axis: Union[int, Sequence[int], None] = None' if a == 'axes' else plain_argument(h, name, a, t, {}).replace(a, word, 1))
                passed.append(word)
        doc = python_doc(h.functions[name][3]).replace('`count` axes', 'axes').replace('keep_dims', 'keepdims')
        doc = doc.replace('axes: negative: from the end; count 0', 'axis: negative: from the end; None')
        out += [f'    def {python}({", ".join(["self"] + plain)}) -> Any:', f'        {quote(doc, "        ")}', f'        return self._operate({", ".join([repr(name), "self"] + passed)})', '']
    out += ['    def __neg__(self) -> Any:', "        return self._operate('trm_neg', self)", '']
    for word, name in NODE_OPERATORS.items():
        more = ', False' * (len(h.functions[name][1]) - 3)
        for python, order in ((word, 'self, other'), ('r' + word, 'other, self')):
            out += [f'    def __{python}__(self, other: Any) -> Any:', f'        return self._operate({name!r}, {order}{more})', '']
    return out


def write_holders(h):
    """The lines of the classes that hold members of a struct."""
    out = []
    for python, (struct, first) in HOLDERS.items():
        head, own = ('self, ' + (first + ': Any, ' if first else '') + '**more: Any'), [f'        self.{first} = {first}'] * bool(first)
        out += ['', f'class {python}:', f'    {quote(python_doc(h.heads[struct]), "    ")}', '', f'    @takes(_c.{struct})',
                f'    def __init__({head}) -> None:'] + own + ['        self.values = more', '']
    return out


def write_methods(h):
    out = ['# SPDX-License-Identifier: Apache-2.0', f'# {HEADER}', '"""Methods that pass on to one function of the library each, and the hooks of a training."""',
           'import json', 'from typing import Any, Sequence, Union', '', 'from . import _c', 'from ._call import call, pass_on',
           'from ._convert import takes', '', '', 'def as_json(text: str, json_form: bool) -> Any:',
           '    return json.loads(text) if json_form else text', '']
    for python, (prefix, refine, others, properties) in METHODS.items():
        out += ['', f'class {python}:']
        for kind, words in (('refine', refine), ('method', others), ('property', properties)):
            for word in words.split():
                out += method(h, prefix + word, RENAMED.get(prefix + word, word), kind)
    out += node_methods(h) + write_holders(h) + ['', 'class Hooks:']
    hooks = [(m, said) for m, t, said in h.structs['trm_callback'][0] if h.ctype(t) == 'trm_hook']
    for m, said in hooks:
        out += [f'    def {m}(self, progress: Any) -> Any:', f'        {quote(python_doc(said) + ".", "        ")}', '']
    return '\n'.join(out + ['', f'HOOKS = {tuple(m for m, _ in hooks)!r}', ''])


def write_monitors(h):
    out = ['# SPDX-License-Identifier: Apache-2.0', f'# {HEADER}', '"""Callbacks of the library: they run without Python."""',
           'from typing import Any', '', 'from . import _c', 'from ._convert import takes', 'from .callbacks import Library', '', '__all__ = [']
    out += [f'    {line},' for line in pack([repr(n) for n in MONITORS], 110)] + [']', '']
    for python, (name, first) in MONITORS.items():
        _, arguments, _, doc, _ = h.functions[name]
        arguments = [(a, t) for a, t in arguments if a != 'print']
        if [a for a, _ in arguments] == ['options']:
            head, passed = (f'{first}: str, ' if first else '') + '**more: Any', f'dict(more, {first}={first})' if first else 'more'
            out += ['', f'@takes(_c.{h.struct_name(arguments[0][1].get_canonical().get_pointee())})']
        else:
            head = ', '.join(plain_argument(h, name, a, t, tags(doc, 'param')) for a, t in arguments)
            passed = ', '.join(a for a, _ in arguments)
            out.append('')
        out += [f'def {python}({head}) -> Library:', f'    {quote(python_doc(doc), "    ")}',
                f'    return Library({", ".join(filter(None, [repr(name), passed]))})', '']
    return '\n'.join(out)


def write_layout(h):
    entries = []
    for name, (members, _) in h.structs.items():
        entries.append([f'SIZE({name})'] + [f'AT({name}, {m})' for m, _, _ in members])
    out = ['/* SPDX-License-Identifier: Apache-2.0 */',
           '/* trm_layout: the size of each public struct and the offsets of its members, as this build has',
           ' * them. A binding for another language compares them with its own when it loads the library.',
           ' * Written by tools/python_declarations.py. */',
           '#include <stddef.h>', '', '#include "base/arguments.h"', '#include "trireme/trireme.h"', '',
           '#define SIZE(type) (uint32_t)sizeof(type)', '#define AT(type, member) (uint32_t) offsetof(type, member)', '',
           '/* clang-format off */', 'static const uint32_t layout[] = {']
    for parts in entries:
        out += [f'    {line},' for line in pack(parts, 130)]
    out += ['};', '/* clang-format on */', '', 'const uint32_t *trm_layout(int32_t *count) {', '    TRMI_NEED_OR(NULL, NULL, count);',
            '    *count = (int32_t)(sizeof layout / sizeof layout[0]);', '    return layout;', '}', '']
    return '\n'.join(out)


def main():
    root = sys.argv[1]
    h = Headers(root)
    differ = []
    for path, text in (('python/trireme/_c.py', write_declarations(h)), ('python/trireme/_c.pyi', write_stub(h)),
                       ('python/trireme/ops.py', write_operators(h)), ('python/trireme/transforms.py', write_transforms(h)),
                       ('python/trireme/_methods.py', write_methods(h)), ('python/trireme/_monitors.py', write_monitors(h)),
                       ('src/train/layout.c', write_layout(h))):
        file = os.path.join(root, path)
        if os.path.exists(file) and open(file, encoding='utf-8').read() == text:
            continue
        differ.append(path)
        if '--check' not in sys.argv:
            with open(file, 'w', encoding='utf-8') as out:
                out.write(text)
    if differ and '--check' in sys.argv:
        sys.exit(f'{", ".join(differ)}: the headers declare something else; run tools/python_declarations.py {root}')
    print(f'{len(h.functions)} functions, {len(h.structs)} structs, {len(h.enums)} enums, {len(h.callbacks)} callbacks'
          + (f'; wrote {", ".join(differ)}' if differ else ''))


if __name__ == '__main__':
    main()
