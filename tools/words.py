#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what texts name exists: functions, types and macros, files, tests and their cases.

Usage: words.py ROOT

Texts are the pages (*.md, docs/man) and the comments of all sources. A name that begins with trm_, trmi_, TRM_, TRMI_ or app_
must stand in some code, and so must a name of several words beside an arrow in a comment of a .c file (a drawing of calls), unless a file is
called so; a path must be a file, from the root, src/ or include/, and a source that a comment names alone must be one; a test that a page names must be one,
and its cases, behind a colon, must begin as they are named; a link of a page must lead to a file, and to a heading in it.
No text has nobody, everybody or whoever as its subject.
The tag of a function's errors is `errors`, in sources too.
"Contract in X.h" above a function of a .c or .h file: that header has a function, or a member of a table, of this name, or of the
name in parentheses behind it. Any "contracts in X.h" names a header.
Measured rates stand in docs/reference/figures.md and in the notes only.
No source or script has a path of one machine.
"""
import glob
import os
import re
import sys

PLACEHOLDERS = {'trm_row', 'trmi_op_row', 'trmi_ref_row'}  # CONTRIBUTING.md: any operator's ...
ANY_FILE = re.compile(r'FAMILY|NAME|/x_')                  # ... and anybody's file
ROOMS = 'base|data|graph|models|plan|comm|ps|exec|save|train|app'
NAME = re.compile(r'\b(?:trmi?|TRMI?|app)_[A-Za-z0-9_]*[A-Za-z0-9]\b(?!\*)')
DRAWN = [re.compile(r'->\s*([a-z]+(?:_[a-z0-9]+)+)\b'), re.compile(r'(?<![\w/.])([a-z]+(?:_[a-z0-9]+)+)(?:\(\))?\s*-{1,2}>')]
PATH = re.compile(r'(?<![\w/.$~-])(?:src/)?(?:' + ROOMS + r'|trireme|tests|tools|bench|docs|examples|cmake)/[\w./*-]*\.(?:c|h|def|sh|py|js|md|cmake)\b')
ALONE = re.compile(r'(?<![\w/.*<>-])([a-z]\w*\.(?:c|h))\b(?!\.)')
ELSEWHERE = re.compile(r'llm\.c|llama2\.c|xxhash\.h|page_files\.c|x(_\w+)?\.[ch]')  # other projects; made by the build; any file
TEST = re.compile(r'\b(' + ROOMS + r'|script|fuzz)/(\w+_(?:test|fuzz))\b(?!\.)((?:: ?\w+(?:, \w+)*)?)')
LINK = re.compile(r'\]\(([^)\s#:]*)(?:#([^)\s]*))?\)')
RATE = re.compile(r'\d (?:images|samples|tokens)/s\b')  # a measurement
OLD_TAG = re.compile(r'(?:^|\*|   ) *error(?:  |$)|[.;)] +error(?: [A-Z]{2}|$)|\bErrors:')  # STYLE.md: `errors`
IMPERSONAL = re.compile(r'(?<![*"])\b(?:nobody|somebody|everybody|whoever)\b', re.I)  # STYLE.md: the subject is a named thing
CONTRACT = re.compile(r'/\*(?:(?!\*/).)*?\bContract\s+in\s+(?:\*\s+)?([\w/]+\.h)\b(?:\s+\((\w+)\))?(?:(?!\*/).)*\*/\s*(?:#define\s+)?[^;{}()]*?\b(\w+)\(', re.S)
CONTRACTS = re.compile(r'\b[Cc]ontracts?\s+in\s+(?:\*\s+)?([\w/]+\.h)\b')
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def comments(text):
    """A C source as (its comments, the rest), each with the lines where they were."""
    notes, code, at = [], [], 0
    for found in COMMENT.finditer(text):
        between = text[at:found.start()]
        code.append(between)
        notes.append('\n' * between.count('\n'))
        piece = found.group()
        (notes if piece[0] == '/' else code).append(piece)
        (code if piece[0] == '/' else notes).append('\n' * piece.count('\n'))
        at = found.end()
    return ''.join(notes), ''.join(code) + text[at:]


def files(root):
    found = glob.glob('*.md', root_dir=root)
    for top in ('include', 'src', 'tests', 'bench', 'examples', 'docs'):
        for folder, _, names in os.walk(os.path.join(root, top)):
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def read(root, name):
    with open(os.path.join(root, name), encoding='utf-8', errors='replace') as f:
        return f.read()


def exists(root, path):
    """A file from the root, from src/, from include/, or a pattern of some."""
    return any(glob.glob(os.path.join(root, top, path)) for top in ('', 'src', 'include'))


def anchor(heading):
    """The name that a heading has in links."""
    return re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')


def leads(root, page, link, title, texts):
    """Whether the file of a link, from the page's folder, is there, and has a heading of this name."""
    target = os.path.normpath(os.path.join(os.path.dirname(page), link)) if link else page
    headings = re.findall(r'^#+ (.*)$', texts.get(target, ''), re.M)
    return os.path.exists(os.path.join(root, target)) and (not title or title in map(anchor, headings))


def headers_of(name, header, sources):
    """The texts of the headers that a comment of file `name` can mean: those of its folder before others."""
    found = [other for other in sources if ('/' + other).endswith('/' + header)]
    near = [other for other in found if os.path.dirname(other) == os.path.dirname(name)]
    return [sources[other] for other in near or found]


def wrong_contracts(name, sources):
    """Comments that send the reader to a header which does not have the function."""
    source, bad = sources[name], []
    for found in CONTRACTS.finditer(source):
        if not headers_of(name, found.group(1), sources):
            bad.append((found.start(), f'contracts in {found.group(1)}: there is no such header'))
    for found in CONTRACT.finditer(source):
        header, given, function = found.groups()
        word = given or function
        if not any(re.search(r'\b' + word + r'\b', text) for text in headers_of(name, header, sources)):
            bad.append((found.start(), f'{header} does not have {word}, whose contract should be there'))
    return [f'{name}:{source.count(chr(10), 0, at) + 1}: {text}' for at, text in bad]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root, bad = sys.argv[1], []
    texts, known, sources = {}, set(PLACEHOLDERS), {}
    names = {os.path.basename(name) for name in files(root)}
    stems = {name.split('.')[0] for name in names}
    for name in files(root):
        if name.endswith(('.c', '.h', '.def')):
            sources[name] = read(root, name)
            texts[name], code = comments(sources[name])
            known.update(re.findall(r'\w+', code))
        elif name.endswith('.md') or name.startswith('docs/man/'):
            texts[name] = read(root, name).replace('\\-', '-')
    for name in files(root):
        if name.endswith(('.c', '.h', '.sh', '.py')) and re.search(r'(?<![\w$}.])/work/', read(root, name)):
            bad.append(f'{name}: /work/ is a path of one machine')
    for name in sorted(sources):
        bad += wrong_contracts(name, sources)
    for name, text in sorted(texts.items()):
        page = name not in sources
        for number, line in enumerate(text.split('\n'), 1):
            where = f'{name}:{number}'
            bad += [f'{where}: no code has {word}' for word in NAME.findall(line) if word not in known]
            bad += [f'{where}: {word}: name the rank, worker, server or process' for word in IMPERSONAL.findall(line)]
            bad += [f'{where}: the tag is called errors' for _ in OLD_TAG.findall(line) if not page]
            drawn = [] if page or not name.endswith('.c') else [word for form in DRAWN for word in form.findall(line)]
            bad += [f'{where}: no code has {word}' for word in drawn if word not in known and word not in stems]
            bad += [f'{where}: no file {path}' for path in PATH.findall(line) if not ANY_FILE.search(path) and not exists(root, path)]
            bad += [f'{where}: no file {file}' for file in ALONE.findall(line) if not page and file not in names and not ELSEWHERE.fullmatch(file)]
            if name.endswith('.md'):
                bad += [f'{where}: the link leads nowhere: {link}#{title}' for link, title in LINK.findall(line) if not leads(root, name, link, title, texts)]
            if name.startswith('docs/') and not name.startswith(('docs/reference/figures', 'docs/internals/notes/')):
                bad += [f'{where}: a measurement: docs/reference/figures.md has all of them, with command and date' for _ in RATE.findall(line)]
            for room, test, cases in TEST.findall(line) if page else []:
                source = f'tests/{test}.sh' if room == 'script' else ''
                found = [s for s in sources if s.endswith(f'/{test}.c')] or [s for s in [source] if s and exists(root, s)]
                if not found:
                    bad.append(f'{where}: no test {room}/{test}')
                elif room != 'script':
                    bad += [f'{where}: {test} has no case {case}' for case in re.findall(r'\w+', cases)
                            if '_' in case and not re.search(r'\b' + case, sources[found[0]])]
    print('\n'.join(bad) if bad else f'{len(texts)} texts name what is there')
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
