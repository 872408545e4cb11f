#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Doxygen's input filter: plain C comments of a header become documentation comments.

A comment on lines of its own describes what follows it; one behind code describes that code. Lines
that are indented stay as they are set, the rest is running text. Usage: doc_comments.py FILE
"""
import re
import sys

SPECIAL = re.compile(r'([\\@<>&#%])')


def split_lines(comment):
    text = comment[2:-2].strip('\n')
    return [re.sub(r'^\s*\* ?', '', line, count=1).rstrip() if i else line.strip()
            for i, line in enumerate(text.split('\n'))]


def render(lines):
    out, fixed = [], False
    for line in lines:
        indented = line.startswith('  ')
        if indented and not fixed:
            out.append('\\verbatim')
        if fixed and not indented and line:
            out.append('\\endverbatim')
        fixed = indented or (fixed and not line)
        out.append(line if fixed else SPECIAL.sub(r'\\\1', line))
    if fixed:
        out.append('\\endverbatim')
    return '\n'.join(out)


def convert(text, name):
    result, at, first = [], 0, True
    for match in re.finditer(r'/\*.*?\*/', text, flags=re.S):
        before = text[at:match.start()]
        result.append(before)
        at = match.end()
        line = text[text.rfind('\n', 0, match.start()) + 1:match.start()]
        lines = split_lines(match.group())
        if 'SPDX' in lines[0] or lines[0].startswith('----') or lines[0].startswith('---') or \
           text[at:at + 2].strip().startswith('\\') or line.lstrip().startswith('#'):
            result.append(match.group())
        elif first:
            first = False
            result.append('/** \\file %s\n%s\n*/' % (name, render(lines)))
        elif line.strip():
            result.append('/**< %s */' % render(lines))
        else:
            result.append('/** %s */' % render(lines))
    result.append(text[at:])
    return ''.join(result)


if __name__ == '__main__':
    path = sys.argv[1]
    with open(path, encoding='utf-8') as file:
        sys.stdout.write(convert(file.read(), 'trireme/' + path.rsplit('/', 1)[-1]))
