#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encodes a text by libtrireme.so and by the `tokenizers` package in turns, on one thread: MB/s and ratios.

Usage: tokenizer.py LIBTRIREME.SO TEXT [VOCABULARY]      (a python with tokenizers)
"""
import ctypes
import os
import statistics
import sys
import tempfile
import time

os.environ['TOKENIZERS_PARALLELISM'] = 'false'
os.environ['RAYON_NUM_THREADS'] = '1'
from tokenizers import Tokenizer  # noqa: E402  (after the environment)


class Tokens(ctypes.Structure):
    _fields_ = [('ids', ctypes.POINTER(ctypes.c_int32)), ('count', ctypes.c_int64), ('capacity', ctypes.c_int64)]


class Options(ctypes.Structure):
    _fields_ = [('vocabulary', ctypes.c_int64), ('min_count', ctypes.c_int64), ('special', ctypes.c_void_p),
                ('special_count', ctypes.c_int32)]


def check(status, error):
    if status != 0:
        sys.exit(f'status {status}: {error.raw!r}')


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    library, error = ctypes.CDLL(sys.argv[1]), ctypes.create_string_buffer(256)
    with open(sys.argv[2], 'rb') as f:
        data = f.read()
    text, ours = data.decode(), ctypes.c_void_p()
    lines = text.splitlines(keepends=True)
    raw_lines = [line.encode() for line in lines]
    paths = (ctypes.c_char_p * 1)(sys.argv[2].encode())
    options = Options(int(sys.argv[3]) if len(sys.argv) > 3 else 8192, 0, None, 0)
    check(library.trm_tokenizer_train(paths, 1, ctypes.byref(options), ctypes.byref(ours), error), error)
    with tempfile.TemporaryDirectory() as folder:
        check(library.trm_tokenizer_save(ours, folder.encode(), error), error)
        peer = Tokenizer.from_file(folder + '/tokenizer.json')

    def encode_ours(texts):
        tokens = Tokens()
        for part in texts:
            check(library.trm_tokenizer_encode(ours, part, ctypes.c_size_t(len(part)), ctypes.byref(tokens), error), error)
        count = tokens.count
        library.trm_tokens_free(ctypes.byref(tokens))
        return count

    cases = {'whole text': (lambda: encode_ours([data]), lambda: len(peer.encode(text).ids)),
             'line by line': (lambda: encode_ours(raw_lines), lambda: sum(len(peer.encode(line).ids) for line in lines)),
             'batch of lines': (lambda: encode_ours(raw_lines), lambda: sum(len(found.ids) for found in peer.encode_batch(lines))),
             'batch, no offsets': (lambda: encode_ours(raw_lines),
                                   lambda: sum(len(found.ids) for found in peer.encode_batch_fast(lines)))}
    for name, calls in cases.items():
        times = [[], []]
        for _ in range(5):
            for which in 0, 1:
                begin = time.perf_counter()
                count = calls[which]()
                times[which].append(time.perf_counter() - begin)
        a, b = (statistics.median(values) for values in times)
        print(f'{name:18} {count} tokens: trireme {len(data) / a / 1e6:.1f} MB/s, tokenizers {len(data) / b / 1e6:.1f} MB/s, ratio {b / a:.1f}')


main()
