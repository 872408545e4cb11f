# SPDX-License-Identifier: Apache-2.0
"""A second reader of token files and tokenizers: docs/reference/token-files.md.

    read_ids(path) -> [id, ...]
    part(items, usage) -> those of training or testing, of a file that is divided
    sample_count(tokens, context, stride, usage) -> samples of a part of so many tokens
    Tokenizer(folder) -> encode(ASCII text) -> [id, ...];  decode(ids) -> bytes

The naive way throughout: each merge looks at all pairs of the piece again. A fault raises ValueError.
"""
import json
import os
import re
import struct

SPELLED = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [b for b in range(256) if b not in SPELLED]
CHARACTER = {b: chr(b) for b in SPELLED} | {b: chr(256 + i) for i, b in enumerate(OTHERS)}
BYTE = {c: b for b, c in CHARACTER.items()}
GPT2 = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.A)


def read_ids(path):
    with open(path, 'rb') as f:
        data = f.read()
    if len(data) >= 4 and struct.unpack_from('<i', data)[0] == 20240520:
        if len(data) < 1024:
            raise ValueError(f'{path}: a header of 1024 bytes expected')
        _, version, count = struct.unpack_from('<3i', data)
        if version != 1 or len(data) != 1024 + 2 * count:
            raise ValueError(f'{path}: version {version}, {count} ids in {len(data)} bytes')
        data = data[1024:]
    if not data or len(data) % 2:
        raise ValueError(f'{path}: {len(data)} bytes')
    return list(struct.unpack(f'<{len(data) // 2}H', data))


def part(items, usage):
    cut = int(0.9 * len(items))
    return items[:cut] if usage == 'train' else items[cut:]


def sample_count(tokens, context, stride, usage):
    whole = (tokens - 1 - context) // stride + 1
    last = (whole - 1) * stride + context  # the last target
    return whole + (usage == 'test' and last < tokens - 1)


class Tokenizer:
    def __init__(self, folder):
        with open(os.path.join(folder, 'tokenizer.json'), encoding='utf-8') as f:
            content = json.load(f)
        if content['pre_tokenizer'] is None:
            raise ValueError(f'{folder}: no byte-level BPE')
        self.vocabulary = content['model']['vocab']
        self.ranks = {tuple(pair): i for i, pair in enumerate(content['model']['merges'])}
        self.added = {token['content']: token['id'] for token in content['added_tokens']}
        self.bytes = {i: bytes(BYTE[c] for c in token) for token, i in self.vocabulary.items() if token not in self.added}
        self.bytes |= {i: token.encode() for token, i in self.added.items()}
        with open(os.path.join(folder, 'vocab.json'), encoding='utf-8') as f:
            if json.load(f) != self.vocabulary:
                raise ValueError(f'{folder}: vocab.json differs')
        with open(os.path.join(folder, 'merges.txt'), encoding='utf-8') as f:
            if f.read() != '#version: 0.2\n' + ''.join(f'{a} {b}\n' for a, b in self.ranks):
                raise ValueError(f'{folder}: merges.txt differs')

    def encode_piece(self, piece):
        symbols = [CHARACTER[b] for b in piece.encode()]
        while True:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in zip(symbols, symbols[1:])]
            if not ranks or min(ranks) == len(self.ranks):
                return [self.vocabulary[s] for s in symbols]
            at = ranks.index(min(ranks))
            symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]

    def encode(self, text):
        if not text.isascii():
            raise ValueError('this reader knows the letters of ASCII only')
        cut = sorted(self.added, key=len, reverse=True)
        ids = []
        for between in re.split('(' + '|'.join(map(re.escape, cut)) + ')', text) if cut else [text]:
            if between in self.added:
                ids.append(self.added[between])
            else:
                for piece in GPT2.findall(between):
                    ids += self.encode_piece(piece)
        return ids

    def decode(self, ids):
        return b''.join(self.bytes[i] for i in ids)
