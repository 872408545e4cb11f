# SPDX-License-Identifier: Apache-2.0
"""A second reader of vocabularies of click data: docs/reference/data-files.md.

    Vocabulary(path).row(field, value)     the row of a value in the table that all fields share

A fault raises ValueError, which names the line.
"""
MASK = 0xFFFFFFFFFFFFFFFF


def mix(a, b):
    z = (a + 0x9E3779B97F4A7C15 * (b + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def key(seed, field, value):
    """The 63-bit key of a value, given as bytes."""
    h = mix(seed, field)
    whole = len(value) // 8 * 8
    for at in range(0, whole, 8):
        h = mix(h, int.from_bytes(value[at:at + 8], 'little'))
    return mix(mix(h, int.from_bytes(value[whole:], 'little')), len(value)) >> 1


class Vocabulary:
    def __init__(self, path):
        self.ids, count = {}, []
        with open(path, encoding='ascii') as f:
            for number, line in enumerate(f, 1):
                try:
                    if number == 1:
                        name, version, fields, seed = line.split()
                        if (name, version) != ('trireme-vocabulary', '1'):
                            raise ValueError('"trireme-vocabulary 1" expected')
                        self.seed, count = int(seed), [1] * int(fields)
                        continue
                    field, k = line.split()
                    place = int(field), int(k, 16)
                    if place in self.ids:
                        raise ValueError('the same value again')
                    self.ids[place] = count[place[0]]
                    count[place[0]] += 1
                except (ValueError, IndexError) as e:
                    raise ValueError(f'{path}: line {number}: {e}') from None
        self.first = [sum(count[:field]) for field in range(len(count))]
        self.rows = sum(count)

    def row(self, field, value):
        return self.first[field] + self.ids.get((field, key(self.seed, field, value)), 0)
