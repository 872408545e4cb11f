#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that neither calls between files nor includes between headers form circles: such files can only be read, tested and changed
together.

Usage: circles.py ROOT BUILD

A file depends on another when its object uses a name that the other's object defines (nm), a header when it includes the other.
Files of a strongly connected part of that graph form a circle. There are two usual remedies: move what both need into a file
below them, or pass the function that the lower file calls, with its context, as an argument.
"""
import collections
import os
import re
import subprocess
import sys


def objects(build):
    """The objects of the library and the program, by source: {'exec/optimizer/update.c': path}."""
    found = {}
    for target in ('trireme_objects', 'trireme_plain', 'trireme'):
        top = os.path.join(build, 'CMakeFiles', target + '.dir', 'src')
        for folder, _, names in os.walk(top):
            for name in names:
                if name.endswith('.c.o'):
                    path = os.path.join(folder, name)
                    found.setdefault(os.path.relpath(path, top)[:-2], path)
    return found


def calls(found, root):
    """{file: {file it calls: [names]}}, of those whose source is still there (builds keep objects of moved files)."""
    found = {k: v for k, v in found.items() if os.path.exists(os.path.join(root, 'src', k))}
    by_path = {path: source for source, path in found.items()}
    text = subprocess.run(['nm', '-A'] + sorted(by_path), capture_output=True, text=True, check=True).stdout
    home, wanted = {}, collections.defaultdict(set)
    for line in text.splitlines():
        path, rest = line.split(':', 1)
        kind, name = rest.split()[-2:]
        if kind == 'U':
            wanted[by_path[path]].add(name)
        elif kind in 'TDRBCVW':
            home[name] = by_path[path]
    graph = {source: collections.defaultdict(list) for source in found}
    for source, names in wanted.items():
        for name in sorted(names):
            if re.match('trmi?_|app_', name) and home.get(name, source) != source:
                graph[source][home[name]].append(name)
    return graph


def includes(root):
    """{header: {header it includes: ['#include']}}, of the rooms."""
    graph = {}
    for folder, _, names in os.walk(os.path.join(root, 'src')):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith('.h'):
                with open(path, encoding='utf-8') as f:
                    found = re.findall(r'^\s*#\s*include\s+"([^"]+)"', f.read(), re.M)
                graph[os.path.relpath(path, os.path.join(root, 'src'))] = {to: ['#include'] for to in found}
    return {header: {to: how for to, how in wanted.items() if to in graph} for header, wanted in graph.items()}


def circles(graph):
    """The strongly connected parts of more than one file (Tarjan)."""
    index, low, stack, parts = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                parts.append(set(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10 * len(graph) + 1000)
    for v in sorted(graph):
        if v not in index:
            visit(v)
    return parts


def shortest(graph, part, start):
    """The shortest circle through a file of a part."""
    came, queue = {}, collections.deque([start])
    while queue:
        v = queue.popleft()
        for w in sorted(graph[v]):
            if w == start:
                path = [v]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1] + [start]
            if w in part and w not in came:
                came[w] = v
                queue.append(w)
    return []


def report(graph, kind):
    """Prints the shortest circle through each file that stands in one; how many do."""
    standing, shown = 0, set()
    for part in circles(graph):
        standing += len(part)
        for source in sorted(part):
            path = shortest(graph, part, source)
            if frozenset(path) in shown:
                continue
            shown.add(frozenset(path))
            print(f'src/{source}: {kind} come back to it (the circle has {len(part)} files in all):')
            for a, b in zip(path, path[1:]):
                print(f'    {a} -> {b}: {" ".join(graph[a][b][:4])}')
    return standing


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root, build = sys.argv[1:]
    found = objects(build)
    if not found:
        sys.exit(f'{build}: no objects of the library; build it first')
    graph, headers = calls(found, root), includes(root)
    standing = report(graph, 'calls') + report(headers, 'includes')
    print(f'{len(graph)} files and {len(headers)} headers; {standing} in circles')
    sys.exit(1 if standing else 0)


if __name__ == '__main__':
    main()
