# SPDX-License-Identifier: Apache-2.0
"""Compares trireme tokenizer with the `tokenizers` package: tokenizer_peer.py TRIREME TEXT, in a scratch folder."""
import copy
import json
import os
import random
import subprocess
import sys

import tokenizers
from tokenizers import ByteLevelBPETokenizer, Tokenizer

trireme, text_file = sys.argv[1:]
text = open(text_file, encoding='utf-8').read()
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
PARTS = ["'s", "'S", " ", "  ", "\n", "\r\n", "\t", "a", "Z", "é", "9", "123", "٣", "½", "!", "..", "'ll", "'LL", "'ſ", "'",
         "\u00a0", "\u3000", "你好", "<|endoftext|>", "<|endo", "\u0301", "👍🏽", "\u2028", "'re", "<mask>", "x<mask> "]


def run(*arguments):
    done = subprocess.run([trireme, 'tokenizer', *arguments, '--quiet'], capture_output=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def encode(folder, content, *flags):
    with open('encode.txt', 'wb') as f:
        f.write(content.encode())
    lines = run('encode', 'encode.txt', '--tokenizer', folder, *flags).decode().split('\n')[:-1]
    return [[int(word) for word in line.split()] for line in lines]


def read(path):
    with open(path, 'rb') as f:
        return f.read()


def train(paths, folder, vocabulary, least, special):
    """By both; all three files are equal, byte for byte."""
    ours = ByteLevelBPETokenizer()
    ours.train(paths, vocab_size=vocabulary, min_frequency=least, special_tokens=special, show_progress=False)
    os.makedirs(folder + '.peer', exist_ok=True)
    ours.save(folder + '.peer/tokenizer.json')
    ours.save_model(folder + '.peer')
    run('train', *paths, '--vocabulary', str(vocabulary), '--min-count', str(least), '--output', folder,
        *(['--special-tokens', ','.join(special)] if special else []))
    for name in 'tokenizer.json', 'vocab.json', 'merges.txt':
        assert read(f'{folder}/{name}') == read(f'{folder}.peer/{name}'), (folder, name, vocabulary, least, special)


def random_text(pick, run_number):
    count, kind = pick.choice([1, 5, 50, 2000]), run_number % 4
    if kind == 0:
        return ''.join(chr(c) for c in (pick.randrange(0x110000) for _ in range(count)) if not 0xD800 <= c < 0xE000)
    if kind == 1:
        return bytes(pick.randrange(256) for _ in range(count)).decode('latin-1')
    if kind == 2:
        return bytes(pick.randrange(256) for _ in range(count)).decode('utf-8', 'replace')
    return ''.join(pick.choice(PARTS) for _ in range(count))


def compare(folder, runs):
    peer, pick = Tokenizer.from_file(folder + '/tokenizer.json'), random.Random(3)
    lines = text.split('\n')[:-1]
    expected = [found.ids for found in peer.encode_batch(lines, add_special_tokens=False)]
    assert encode(folder, text, '--lines') == expected, folder
    assert encode(folder, text) == [peer.encode(text, add_special_tokens=False).ids], folder
    for number in range(runs):
        sample = random_text(pick, number)
        found, expected = encode(folder, sample), [peer.encode(sample, add_special_tokens=False).ids]
        assert found == expected, (folder, sample, found, expected)


def variant(source, folder, change):
    content = copy.deepcopy(source)
    change(content)
    os.makedirs(folder, exist_ok=True)
    with open(folder + '/tokenizer.json', 'w', encoding='utf-8') as f:
        json.dump(content, f)


def llama3(content, digits='{1,3}', ignore_merges=True):
    split = {'type': 'Split', 'pattern': {'Regex': LLAMA3.replace('{1,3}', digits)}, 'behavior': 'Isolated', 'invert': False}
    level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
    content['pre_tokenizer'] = {'type': 'Sequence', 'pretokenizers': [split, level]}
    content['model']['ignore_merges'] = ignore_merges


def prefixed(content):
    content['pre_tokenizer']['add_prefix_space'] = True
    content['added_tokens'].append({'id': 600, 'content': '<mask>', 'single_word': False, 'lstrip': True, 'rstrip': True,
                                    'normalized': True, 'special': True})


def main():
    train([text_file], 'large', 8192, 2, [])
    train([text_file, text_file], 'small', 600, 1, ['<|endoftext|>'])
    pick = random.Random(5)
    for number in range(24): # pairs that overlap, equal counts, several ways to the same token
        letters = ['ab \n', 'aaab', 'abcdefgh é你\n'][number % 3]
        with open('random.txt', 'w', encoding='utf-8') as f:
            f.write(''.join(pick.choice(letters) for _ in range(3000)))
        train(['random.txt'], 'random', pick.choice([262, 300, 1000]), pick.choice([1, 2, 5]), pick.choice([[], ['aa', 'Ġb', '<s>']]))
    compare('large', 40)
    compare('small', 40)
    source = json.loads(read('small/tokenizer.json'))
    variant(source, 'llama3', llama3)
    variant(source, 'qwen2', lambda content: llama3(content, '', False))
    variant(source, 'prefixed', prefixed)
    for folder in 'llama3', 'qwen2', 'prefixed':
        compare(folder, 40)
    print('tokenizers', tokenizers.__version__, 'trains and encodes alike')


main()
