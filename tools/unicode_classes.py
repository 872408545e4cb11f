#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/data/text/unicode_table.c: which code points are letters (L*), numbers (N*) and white space.

Usage: unicode_classes.py > src/data/text/unicode_table.c

The `tokenizers` package splits text by Unicode 16.0 (its regular expressions are Oniguruma's), so the table has
that version: of Python's own module (3.14), or of unicodedata2 16.0.0 (pip install unicodedata2==16.0.0).
"""
import sys
import unicodedata

VERSION = '16.0.0'
# The property White_Space (PropList.txt), which no Python module has.
SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
OTHER, LETTER, NUMBER, SPACE = range(4)


def database():
    if unicodedata.unidata_version == VERSION:
        return unicodedata
    try:
        import unicodedata2
    except ImportError:
        sys.exit(f'unicodedata has Unicode {unicodedata.unidata_version}, {VERSION} expected: pip install unicodedata2=={VERSION}')
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f'unicodedata2 has Unicode {unicodedata2.unidata_version}, {VERSION} expected')
    return unicodedata2


def class_of(data, point):
    if point in SPACES:
        return SPACE
    return {'L': LETTER, 'N': NUMBER}.get(data.category(chr(point))[0], OTHER)


def main():
    data, ranges, last = database(), [], None
    for point in range(0x110000):
        found = class_of(data, point)
        if found != last:
            ranges.append(point << 2 | found)
            last = found
    print('/* SPDX-License-Identifier: Apache-2.0 */')
    print(f'/* Classes of code points, Unicode {VERSION}. Written by tools/unicode_classes.py: do not edit. */')
    print('#include "data/text/unicode.h"\n\n/* clang-format off */')
    print('const uint32_t trmi_char_ranges[] = {')
    for at in range(0, len(ranges), 10):
        print('    ' + ' '.join(f'0x{value:X},' for value in ranges[at:at + 10]))
    print('};\n/* clang-format on */')
    print('const int32_t trmi_char_range_count = sizeof trmi_char_ranges / sizeof trmi_char_ranges[0];')


main()
