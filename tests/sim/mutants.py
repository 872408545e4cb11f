#!/usr/bin/env python3
"""Plants each fault of tests/sim/mutants/*.patch in the product and runs seeds of trireme-sim until one finds it: a
seed that fails with the fault, and not without it.

Usage: mutants.py BUILD [--seeds N] [--seconds S] [--first K] [--only servers|elastic|checkpoints] [--check] [NAME ...]

The patched file is compiled by the build's own command, and its object replaces that of the library when trireme-sim
is linked again, so that the tree and the build stay as they are. Prints a table: fault, the seed that found it, after
how many seeds, what was seen. The exit status is 1 if more than one fault was not found. --check runs no seeds: each fault
must fit today's sources and compile (the test sim/mutants).
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


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def compile_fault(patch, root, commands, scratch, check):
    """Compiles the source with the fault; returns the object. check: only looks whether it compiles."""
    with open(patch, encoding='utf-8') as f:
        source = re.search(r'^\+\+\+ b/(\S+)', f.read(), re.M).group(1)
    copy = os.path.join(scratch, os.path.basename(source))
    run(['patch', '-s', '-o', copy, os.path.join(root, source), patch])
    entry = commands[os.path.realpath(os.path.join(root, source))]
    words = shlex.split(entry['command'])
    target = os.path.join(scratch, 'mutant.o')
    words[words.index('-o') + 1] = target
    words[words.index('-c') + 1] = copy
    run(words + (['-fsyntax-only'] if check else []), cwd=entry['directory'])
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


def find_fault(simulator, sound, args):
    """Runs seeds until one fails with the fault and not without it. Returns the number of seeds, and the line of the one that found it or None."""
    first, count, end = args.first, 0, time.monotonic() + args.seconds
    only = ['--only', args.only] if args.only else []
    while True:
        left = end - time.monotonic()
        result = subprocess.run([simulator, '--seeds', f'{first}:{args.first + args.seeds - first}', '--failures', '1', '--seconds', str(max(1, left))] + only,
                                capture_output=True, text=True)
        seeds = re.search(r'^(\d+) seeds', result.stdout, re.M)
        found = re.search(r'^trireme-sim --seed (\d+): (.*)$', result.stdout, re.M)
        count += int(seeds.group(1)) if seeds else 0
        if found is None:
            return count, None
        if subprocess.run([sound, '--seed', found.group(1)], capture_output=True).returncode == 0:
            return count, f'seed {found.group(1)}: {found.group(2)[:80]}'
        print(f'seed {found.group(1)} fails without a fault, too: {found.group(2)[:80]}', file=sys.stderr)
        first = int(found.group(1)) + 1
        if first >= args.first + args.seeds or time.monotonic() >= end:
            return count, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--seeds', type=int, default=10000)
    parser.add_argument('--seconds', type=int, default=600)
    parser.add_argument('--first', type=int, default=1)
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--only', choices=['servers', 'elastic', 'checkpoints'], help='passes over seeds of other jobs, and does not count them')
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
        with tempfile.TemporaryDirectory() as scratch:
            try:
                target = compile_fault(os.path.join(here, 'mutants', name + '.patch'), root, commands, scratch, args.check)
                simulator = None if args.check else link_simulator(target, build, link, scratch)
            except subprocess.CalledProcessError as problem:
                print(f'{name:24} does not build: {problem.stderr.strip()[:200]}', flush=True)
                missed += 1
                continue
            if args.check:
                continue
            count, found = find_fault(simulator, os.path.join(build, 'trireme-sim'), args)
            missed += found is None
            print(f'{name:24} {count:>6} seeds  {found or "NOT FOUND"}', flush=True)
    print(f'{len(names) - missed} of {len(names)} planted faults {"compile" if args.check else "found"}')
    return 1 if missed > (0 if args.check else 1) else 0


if __name__ == '__main__':
    sys.exit(main())
