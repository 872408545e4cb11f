#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no function is dead, and that none is wider than its use: each internal function and table of the library and of
the program (trmi_*, app_*) has a user, and is static where its own file is the only one.

Usage: unused.py ROOT BUILD [--tests]

A user is another object of the library, of `trireme bench`, of the program or of a plug-in (nm), or a test, fuzz target or
benchmark, or a name that the file pastes together with ##. Names that only tests use are printed with --tests; they are no error.
"""
import collections
import os
import re
import subprocess
import sys

def objects(build):
    """{object: its source, or None for what only uses}, of all targets but the tests."""
    found = {}
    for target in os.listdir(os.path.join(build, 'CMakeFiles')):
        name = target[:-4] if target.endswith('.dir') else ''
        if name == 'trireme_scaffold' or not (name.startswith('trireme') or os.path.isdir(os.path.join(build, 'CMakeFiles', target, 'src'))):
            continue
        if re.search(r'_(test|fuzz|dump)$', name):
            continue
        top = os.path.join(build, 'CMakeFiles', target)
        for folder, _, names in os.walk(top):
            for file in names:
                if file.endswith('.c.o'):
                    path = os.path.join(folder, file)
                    found[path] = os.path.relpath(path, top)[:-2]
    return found


def names_in_texts(root):
    """The names that tests, fuzz targets and benchmarks have, and {name: the other files *.c that have it}: this build may be
    without a plug-in, or for another instruction set."""
    tests, products = set(), collections.defaultdict(set)
    for top in ('src', 'tests', 'bench'):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if not name.endswith(('.c', '.h')):
                    continue
                with open(os.path.join(folder, name), encoding='utf-8') as f:
                    found = set(re.findall(r'\b(?:trmi|app)_\w+', re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)))
                if top != 'src' or re.search(r'_(test|fuzz)\.c$', name):
                    tests |= found
                elif name.endswith('.c'):
                    for word in found:
                        products[word].add(os.path.relpath(os.path.join(folder, name), root))
    return tests, products


def main():
    if len(sys.argv) < 3 or sys.argv[3:] not in ([], ['--tests']):
        sys.exit(__doc__)
    root, build = sys.argv[1:3]
    found = {path: source for path, source in objects(build).items() if os.path.exists(os.path.join(root, source))}
    if not found:
        sys.exit(f'{build}: no objects of the library; build it first')
    home, users = {}, collections.defaultdict(set)
    text = subprocess.run(['nm', '-A'] + sorted(found), capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        path, rest = line.split(':', 1)
        kind, name = rest.split()[-2:]
        if not name.startswith(('trmi_', 'app_')):
            continue
        if kind in 'Uw':
            users[name].add(found[path])
        elif kind in 'TDRB' and found[path].startswith('src/') and '/plugins/' not in found[path]:
            home[name] = found[path]
    (in_tests, in_products), bad = names_in_texts(root), 0
    for name, source in sorted(home.items(), key=lambda item: (item[1], item[0])):
        if users[name] - {source}:
            continue
        with open(os.path.join(root, source), encoding='utf-8') as f:
            own = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)
        pasted = re.sub('_plain$', '', name) in re.findall(r'CHOICE_OF_\w+\(&?(\w+)\)', own) or any(re.fullmatch(re.escape(part) + r'\w+', name) for part in re.findall(r'\b(trmi_\w*)##', own))
        if pasted or in_products[name] - {source}:
            continue
        if name not in in_tests:
            alone = len(re.findall(r'\b' + name + r'\b', own)) > 1
            print(f'{source}: {name}: ' + ('only this file uses it: static' if alone else 'nothing uses it'))
            bad += 1
        elif len(sys.argv) > 3:
            print(f'{source}: {name}: only tests use it')
    print(f'{len(home)} internal names; {bad} without a user, or wider than their use')
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
