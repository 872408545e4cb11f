#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each internal type name has one definition in the tree.

Usage: type_names.py ROOT [--local]

Prints each type name that several files define, with the places; exit 1 when there are any. A name is a struct, union or
enum tag with a body, or a typedef. Names that begin with trmi_, trm_ or app_ are checked; with --local also those without
a prefix, which belong to one .c file. trmi_not_*: a file's only declaration where its instruction set is not built.
"""
import collections
import os
import re
import sys

TAG = re.compile(r'\b(?:struct|union|enum)\s+(\w+)\s*\{')
TYPEDEF = re.compile(r'^\s*typedef\b(?:[^;{}]|\{(?:[^{}]|\{[^{}]*\})*\})*?(?:\(\s*\*\s*(\w+)\s*\)\s*\([^;]*|\b(\w+))\s*;', re.M)


def sources(root):
    for top in ('include', 'src'):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(('.h', '.c')) and not re.search(r'_(test|fuzz)\.c$', name):
                    yield os.path.relpath(os.path.join(folder, name), root)


def strip(text):
    """Without comments; strings stay, for no type is defined in one."""
    return re.sub(r'/\*.*?\*/|//[^\n]*', lambda m: '\n' * m.group().count('\n'), text, flags=re.S)


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ['--local']):
        sys.exit(__doc__)
    root, pattern = sys.argv[1], r'\w' if len(sys.argv) > 2 else r'trmi?_|app_'
    places = collections.defaultdict(list)
    for path in sources(root):
        with open(os.path.join(root, path), encoding='utf-8') as f:
            text = strip(f.read())
        found = {}
        for match in TAG.finditer(text):
            found.setdefault(match.group(1), text.count('\n', 0, match.start()) + 1)
        for match in TYPEDEF.finditer(text):
            name = match.group(1) or match.group(2)
            forward = re.match(r'\s*typedef\s+(?:struct|union|enum)\s+(\w+)\s+(\w+)\s*;', match.group())
            if not (forward and forward.group(1) == forward.group(2)):
                found.setdefault(name, text.count('\n', 0, match.end()) + 1)
        for name, line in found.items():
            if re.match(pattern, name) and not name.startswith('trmi_not_'):
                places[name].append(f'{path}:{line}')
    double = {name: at for name, at in places.items() if len(at) > 1}
    for name, at in sorted(double.items()):
        print(f'{name}: {len(at)} definitions: {" ".join(at)}')
    print(f'{len(places)} type names; {len(double)} with several meanings')
    sys.exit(1 if double else 0)


if __name__ == '__main__':
    main()
