# SPDX-License-Identifier: Apache-2.0
"""A second reader of plan files: docs/reference/plan-file.md.

    read(path) -> Plan     .axes: [(name, size)], .graph: digest or None, .operators: {name: Operator}, .stores: {name: spread}

A fault raises ValueError, which names the line.
"""
import re
from collections import namedtuple

Plan = namedtuple('Plan', 'axes graph operators stores stages')  # stages: words of 'pipeline', then names of 'begin'
Operator = namedtuple('Operator', 'letters output again pinned')  # again: True, False, or None = as the back-end decides
SPREAD = re.compile(r'R|S\d(?:\.\d)?|P\+|Pmax|Pmin')


def name_of(word):
    return re.sub(r'%([0-9a-fA-F]{2})', lambda m: chr(int(m.group(1), 16)), word)


def mesh_of(word):
    """2x4 -> [("a", 2), ("b", 4)]; axes of size 1 are left out."""
    axes = []
    for part in re.split('[xX,]', word):
        name, size = re.fullmatch(r'([A-Za-z_]*)=?(\d+)', part).groups()
        axes += [(name or chr(ord('a') + len(axes)), int(size))] if int(size) > 1 else []
    return axes


def spread_of(word, axes):
    letters = word.split(',') if axes else []
    if len(letters) != len(axes) or not all(SPREAD.fullmatch(letter) for letter in letters):
        raise ValueError(f'{word}: one of R, S0 to S5, P+, Pmax, Pmin expected for each of {len(axes)} axes')
    return letters


def read(path):
    axes, graph, operators, stores, stages = None, None, {}, {}, []
    with open(path, encoding='utf-8') as f:
        for number, line in enumerate(f, 1):
            words = line.split('#')[0].split()
            try:
                if number == 1:
                    if words != ['trireme-plan', '1']:
                        raise ValueError('"trireme-plan 1" expected')
                elif not words:
                    continue
                elif words[0] == 'mesh':
                    axes = mesh_of(words[1])
                elif words[0] in ('pipeline', 'begin'):
                    stages.append(words[1:] if words[0] == 'pipeline' else name_of(words[1]))
                elif words[0] == 'graph':
                    graph = int(words[1], 16)
                elif words[0] == 'op':
                    rest, output = words[3:], None
                    letters = '' if not axes else words[2]
                    if len(letters) != len(axes):
                        raise ValueError(f'{words[2]}: {len(axes)} letters expected')
                    if rest[:1] == ['->']:
                        output, rest = spread_of(rest[1], axes), rest[2:]
                    again = {'again': True, 'kept': False}.get(rest[0]) if rest and rest[0] != 'pinned' else None
                    operators[name_of(words[1])] = Operator(letters, output, again, rest[-1:] == ['pinned'])
                elif words[0] == 'store':
                    if words[3:] not in ([], ['again']):
                        raise ValueError('"again" or nothing expected behind the spread')
                    stores[name_of(words[1])] = spread_of(words[2], axes)
                else:
                    raise ValueError(f'unknown word {words[0]}')
            except (ValueError, IndexError, AttributeError, TypeError) as e:
                raise ValueError(f'{path}: line {number}: {e}') from None
    return Plan(axes, graph, operators, stores, stages)
