#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that static functions are named by a verb and an object: that no name is a single word.

Usage: function_names.py ROOT

Prints each static function of src/, bench/ and tests/ whose name has no underscore, with its place; exit 1 when there are
any. A case of a test is named by what it shows. Left out are main and the kernels of src/exec/ref: a scalar function that is
the mathematics of an operator (relu, gelu) has the operator's name (STYLE.md).
"""
import os
import re
import sys

STATIC = re.compile(r'^(?:static|TRMI_INLINE)\b[\w\s*]*?\b([A-Za-z]\w*)\(', re.M)
NO_TYPES = ('__attribute__',)
KERNELS = os.path.join('src', 'exec', 'ref', '')


def sources(root):
    for top in ('src', 'bench', 'tests'):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                kernel = path.startswith(KERNELS) and not name.endswith('_test.c')
                if name.endswith(('.h', '.c')) and not kernel:
                    yield path


def strip(text):
    """Without comments and line ends of macros; the lines stay."""
    return re.sub(r'/\*.*?\*/|//[^\n]*', lambda m: '\n' * m.group().count('\n'), text, flags=re.S)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root, functions, bad = sys.argv[1], 0, set()
    for path in sources(root):
        with open(os.path.join(root, path), encoding='utf-8') as f:
            text = strip(f.read())
        for match in STATIC.finditer(text):
            name = match.group(1)
            functions += name not in NO_TYPES
            if '_' not in name and name != 'main':
                bad.add((path, text.count('\n', 0, match.start(1)) + 1, name))
    for path, line, name in sorted(bad):
        print(f'{path}:{line}: {name}: one word; name the function by a verb and an object')
    print(f'{functions} static functions; {len(bad)} of one word')
    sys.exit(1 if bad or functions == 0 else 0)


if __name__ == '__main__':
    main()
