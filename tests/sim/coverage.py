#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints which lines of the protocol files seeds of trireme-sim alone run.

Usage: coverage.py BUILD [--seeds N] [--seconds S] [--missing]

The seeds run twice, the second time with --memory (allocations fail in jobs of servers) and for a CPU without AVX-512, so that the
plain loops run, too. Failing seeds count, too. --missing prints the lines that did not run.

The protocol files are compiled again with --coverage, by the build's own commands, into a folder of their own, and
replace those of the library when trireme-sim is linked; the build stays as it is.
"""
import argparse
import glob
import gzip
import json
import os
import shlex
import subprocess
import tempfile

FILES = ['src/ps/client/*.c', 'src/ps/server/*.c', 'src/ps/shard/*.c', 'src/ps/snapshot/*.c', 'src/ps/wire/channel_tcp.c', 'src/ps/wire/codec.c',
         'src/base/net/*.c', 'src/base/queue.c', 'src/comm/rendezvous/elastic*.c', 'src/comm/rendezvous/membership.c', 'src/comm/rendezvous/side*.c',
         'src/comm/rendezvous/rendezvous_tcp.c']


def print_missing(path, lines):
    with open(path, encoding='utf-8') as f:
        text = f.read().split('\n')
    for line in lines:
        if line['count'] == 0:
            print(f"        {line['line_number']:4} {text[line['line_number'] - 1]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('--seeds', type=int, default=2000)
    parser.add_argument('--seconds', type=int, default=300)
    parser.add_argument('--missing', action='store_true')
    args = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    build = os.path.abspath(args.build)
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        commands = {os.path.realpath(entry['file']): entry for entry in json.load(f)}
    with open(os.path.join(build, 'CMakeFiles/trireme-sim.dir/link.txt'), encoding='utf-8') as f:
        link = shlex.split(f.read())
    sources = [os.path.realpath(path) for pattern in FILES for path in sorted(glob.glob(os.path.join(root, pattern)))]
    sources = [path for path in sources if path in commands and not path.endswith(('_test.c', '_fuzz.c'))]
    with tempfile.TemporaryDirectory() as scratch:
        objects = []
        for source in sources:
            words = shlex.split(commands[source]['command'])
            objects.append(os.path.join(scratch, os.path.relpath(source, root).replace('/', '_')[:-2] + '.o'))
            words[words.index('-o') + 1] = objects[-1]
            subprocess.run(words[:1] + words[1:] + ['--coverage', '-O1'], check=True, cwd=commands[source]['directory'])
        at = next(i for i, word in enumerate(link) if word.endswith('.o'))
        simulator = os.path.join(scratch, 'trireme-sim')
        link[link.index('-o') + 1] = simulator
        subprocess.run(link[:at] + objects + link[at:] + ['--coverage', '-Wl,-u,__gcov_dump'], check=True, cwd=build)
        for faults, environment in [([], {}), (['--memory'], {'TRIREME_ISA': 'avx2'})]:
            subprocess.run([simulator, '--seeds', f'1:{args.seeds}', '--seconds', str(args.seconds), '--failures', '1000', *faults], check=False,
                           env={**os.environ, **environment})
        run = lines = 0
        for path in objects:
            subprocess.run(['gcov', '-j', path[:-2] + '.gcda'], check=True, cwd=scratch, capture_output=True)
        for name in sorted(glob.glob(os.path.join(scratch, '*.gcov.json.gz'))):
            with gzip.open(name) as f:
                for file in json.load(f)['files']:
                    if not file['file'].endswith('.c') or not file['lines']:
                        continue
                    hit = sum(line['count'] > 0 for line in file['lines'])
                    print(f"{100 * hit / len(file['lines']):5.1f} %  {hit:4} of {len(file['lines']):4}  {os.path.relpath(file['file'], root)}")
                    if args.missing:
                        print_missing(os.path.join(root, file['file']), file['lines'])
                    run += hit
                    lines += len(file['lines'])
        print(f'{100 * run / lines:5.1f} %  {run} of {lines} lines')


if __name__ == '__main__':
    main()
