#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference of commands as one page of Markdown, from the program's own help.

Usage: commands.py PROGRAM FILE

A section for each command with its flags, then the help topics. The program's table of options is the only source.
"""
import re
import subprocess
import sys


def help_of(program, *words):
    done = subprocess.run([program, 'help', *words], capture_output=True, text=True, check=True)
    return done.stdout.rstrip('\n').split('\n')


def line_of(overview, first):
    """The overview's line that begins with `first`."""
    return next(line for line in overview if line.strip().startswith(first))


def commands_of(overview):
    """[(name, arguments, summary)] in the order of the overview."""
    found = []
    for line in overview:
        match = re.match(r'  ([a-z]+(?: [a-z]+)*) ?((?:-- )?[A-Z\[][A-Z|\[\].]*)? +(\S.*)$', line)
        if match:
            found.append((match.group(1), match.group(2) or '', match.group(3)))
    return found


def escape(text):
    return text.replace('|', '\\|')


def flag_rows(lines):
    """Table rows of one group: a flag begins in column 2, its meaning in column 29 or on the next line."""
    rows = []
    for line in lines:
        match = re.match(r'  (-\S+(?: (?:\S+|\[[^\]]*\]))*?)(?: {2,}(.*))?$', line)
        if match:
            rows.append([match.group(1), match.group(2) or ''])
        elif rows:
            rows[-1][1] = (rows[-1][1] + ' ' + line.strip()).strip()
    return [f'| `{escape(flag)}` | {escape(meaning)} |' for flag, meaning in rows]


def section(program, name, arguments, summary, common):
    """The section of one command; the flags of every command are kept in `common` instead."""
    text = [f'## {name} {arguments}'.rstrip(), '', summary[0].upper() + summary[1:] + '.', '']
    lines = help_of(program, *name.split())[2:]
    group, flags, prose = '', [], []

    def close():
        if group == 'Every command':
            common[:] = flag_rows(flags)
        elif flags:
            text.extend([f'**{group or "Before it runs"}**', '', '| Flag | Meaning |', '|---|---|', *flag_rows(flags), ''])

    for i, line in enumerate(lines):
        if line.startswith('Example: '):
            close()
            text.extend(['```', line[len('Example: '):], '```', ''])
            flags = []
        elif line.startswith('  '):
            flags.append(line)
        elif line and i + 1 < len(lines) and lines[i + 1].startswith('  '):
            close()
            group, flags = line, []
        elif line and not line.startswith('MODEL:'):
            prose.append(line)
    if prose:
        text[4:4] = [*prose, '']
    return text


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, file = sys.argv[1:]
    overview, common, sections = help_of(program), [], []
    commands = commands_of(overview)
    for name, arguments, summary in commands:
        if name != 'help':
            sections += section(program, name, arguments, summary, common)
    topics = re.search(r'help on a command, or on (.*)$', line_of(overview, 'help')).group(1).split(', ')
    page = ['# Commands', '', overview[0][0].upper() + overview[0][1:] + '. Written by `tools/commands.py` from the help of the program.', '',
            f'    {overview[2][len("Usage: "):]}', '', line_of(overview, 'MODEL:'), '', *sections,
            '## Flags of every command', '', '| Flag | Meaning |', '|---|---|', *common, '', '# Topics', '']
    for topic in topics:
        lines = help_of(program, topic)
        page += [f'## help {topic}', '', lines[0], '', '```', *lines[1:], '```', '']
    with open(file, 'w', encoding='utf-8') as f:
        f.write('\n'.join(page))


if __name__ == '__main__':
    main()
