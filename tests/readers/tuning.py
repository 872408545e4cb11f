# SPDX-License-Identifier: Apache-2.0
"""A second reader of the tuning cache: docs/reference/tuning-cache.md.

    read(path) -> {(machine, problem): (algorithm, seconds)}     tuning.txt, operators.txt, choices.txt

A fault raises ValueError, which names the line. (trireme itself takes a damaged file for an empty one.)
"""


def read(path):
    entries = {}
    with open(path, encoding='utf-8') as f:
        if f.readline() != 'trireme tuning 1\n':
            raise ValueError(f'{path}: the first line is not "trireme tuning 1"')
        for number, line in enumerate(f, 2):
            fields = line.rstrip('\n').split('\t')
            if len(fields) != 4 or not all(fields) or not line.endswith('\n') or not 0 <= float(fields[3]) < 1e6:
                raise ValueError(f'{path}: line {number}: machine, problem, algorithm and seconds expected')
            entries[fields[0], fields[1]] = (fields[2], float(fields[3]))
    return entries
