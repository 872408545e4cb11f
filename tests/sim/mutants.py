#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants each fault of tests/sim/mutants/*.patch in the product and runs seeds of trireme-sim until one finds it: a
seed that fails with the fault, and not without it.

Usage: mutants.py BUILD [--seeds N] [--seconds S] [--first K] [--only servers|elastic|checkpoints] [--memory] [--table]
                  [--check] [NAME ...]

A patch begins with one line that says what the fault does. A second line `options: --memory` is for faults that show
only where allocations fail: these options are given to trireme-sim. Jobs that do not run the patched file are passed over:
a fault of src/ps shows in jobs of servers, one of src/comm and src/base in jobs of ranks, one of src/save and src/train in those
with checkpoints; `options: --only servers` says otherwise. --only and --memory choose other jobs for all faults.

The patched file is compiled by the build's own command, and its object replaces that of the library when trireme-sim
is linked again, so that the tree and the build stay as they are. Prints a line for each fault: its name, after how many
seeds from the first on (those of other jobs count) it was found, in which jobs, the seed, what was seen; with --table the
rows of the table in docs/internals/simulation.md. The exit status is 1 if more than one fault was not found. --check runs
no seeds: each fault must fit today's sources and compile (the test sim/mutants).
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

SEEDS_OF_RUN = 200


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def read_patch(path):
    """Returns what the fault does, the options that show it, the patched file."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    options = re.search(r'^options: (.+)$', text, re.M)
    return text.split('\n', 1)[0], options.group(1).split() if options else [], re.search(r'^\+\+\+ b/(\S+)', text, re.M).group(1)


def jobs_of(source):
    """Returns the jobs that run a file, as --only of trireme-sim names them."""
    return 'servers' if source.startswith('src/ps/') else 'elastic' if source.startswith(('src/comm/', 'src/base/')) else 'checkpoints'


def compile_fault(patch, source, root, commands, scratch, check):
    """Compiles the source with the fault; returns the object. check: only looks whether it compiles."""
    copy = os.path.join(scratch, os.path.basename(source))
    run(['patch', '-s', '-F0', '-o', copy, os.path.join(root, source), patch])
    entry = commands[os.path.realpath(os.path.join(root, source))]
    words = shlex.split(entry['command'])
    target = os.path.join(scratch, 'mutant.o')
    words[words.index('-o') + 1] = target
    words[words.index('-c') + 1] = copy
    run(words + ['-Wno-error'] + (['-fsyntax-only'] if check else []), cwd=entry['directory'])  # a fault may leave a function unused
    return target


def link_simulator(target, build, link, scratch):
    """Returns the simulator with the object in the place of the library's."""
    words = shlex.split(link)
    at = next(i for i, word in enumerate(words) if word.endswith('.o'))
    words.insert(at, target)
    simulator = os.path.join(scratch, 'trireme-sim')
    words[words.index('-o') + 1] = simulator
    run(words, cwd=build)
    return simulator


def find_fault(simulator, sound, options, args):
    """Runs seeds until one fails with the fault and not without it. Returns the number of seeds, and the line of the one that found it or None."""
    first, last, end = args.first, args.first + args.seeds, time.monotonic() + args.seconds
    while first < last and time.monotonic() < end:
        most = min(SEEDS_OF_RUN, last - first)
        seconds = str(max(1, int(end - time.monotonic())))
        result = subprocess.run([simulator, '--seeds', f'{first}:{most}', '--failures', '1', '--seconds', seconds] + options,
                                capture_output=True, text=True)
        found = re.search(r'^trireme-sim --seed (\d+)[^:]*: (.*)$', result.stdout, re.M)
        tried = re.search(r'^(\d+) seeds', result.stdout, re.M)
        if found is None and tried is None:
            raise SystemExit(f'{simulator} from seed {first}: no result (exit {result.returncode}): {result.stderr.strip()[-300:]}')
        if found is None:
            first += int(tried.group(1))
            continue
        first = int(found.group(1)) + 1
        if subprocess.run([sound, '--seed', found.group(1)] + options, capture_output=True).returncode == 0:
            return first - args.first, f'seed {found.group(1)}: {found.group(2)[:80]}'
        print(f'seed {found.group(1)} fails without a fault, too: {found.group(2)[:80]}', file=sys.stderr)
    return first - args.first, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--seeds', type=int, default=10000)
    parser.add_argument('--seconds', type=int, default=600)
    parser.add_argument('--first', type=int, default=1)
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--only', choices=['servers', 'elastic', 'checkpoints'], help='passes over seeds of other jobs')
    parser.add_argument('--memory', action='store_true', help='allocations fail in jobs of servers, for all faults')
    parser.add_argument('--table', action='store_true', help='prints rows of a Markdown table')
    args = parser.parse_intermixed_args()
    if shutil.which('patch') is None:
        print('skipped: no program patch (apt-get install patch)')
        return 77
    here = os.path.dirname(os.path.abspath(__file__))
    root, build = os.path.dirname(os.path.dirname(here)), os.path.abspath(args.build)
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        commands = {os.path.realpath(entry['file']): entry for entry in json.load(f)}
    with open(os.path.join(build, 'CMakeFiles/trireme-sim.dir/link.txt'), encoding='utf-8') as f:
        link = f.read()
    missed = 0
    names = args.names or sorted(name[:-6] for name in os.listdir(os.path.join(here, 'mutants')) if name.endswith('.patch'))
    for name in names:
        patch = os.path.join(here, 'mutants', name + '.patch')
        what, options, source = read_patch(patch)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                target = compile_fault(patch, source, root, commands, scratch, args.check)
                simulator = None if args.check else link_simulator(target, build, link, scratch)
            except subprocess.CalledProcessError as problem:
                print(f'{name:24} does not build: {problem.stderr.strip()[:200]}', flush=True)
                missed += 1
                continue
            if args.check:
                continue
            chosen = options[options.index('--only') + 1] if '--only' in options else jobs_of(source)
            jobs = ' '.join([args.only or chosen] + (['--memory'] if args.memory or '--memory' in options else []))
            count, found = find_fault(simulator, os.path.join(build, 'trireme-sim'), ['--only', *jobs.split()], args)
            missed += found is None
            if args.table:
                print(f'| `{name}` | {what} | {jobs} | {f"{count:,}" if found else f"not in {count:,}"} |', flush=True)
            else:
                print(f'{name:24} {count:>6} seeds  {jobs:18}  {found or "NOT FOUND"}', flush=True)
    print(f'{len(names) - missed} of {len(names)} planted faults {"compile" if args.check else "found"}')
    return 1 if missed > (0 if args.check else 1) else 0


if __name__ == '__main__':
    sys.exit(main())
