#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy text of transformers' GPT-2 (random weights) with its KV cache, one sequence; the peer of generation in bench/gpt_table.py.

    python peer_transformers_generate.py make FOLDER SIZE
    python peer_transformers_generate.py generate FOLDER PROMPT THREADS fp32|mixed TOKENS

"make" writes a folder of Hugging Face with random weights of SIZE (gpt2, medium, large, xl) and a tokenizer: its ids are the 256 bytes, then words that
no text has, so that every id has a text. "generate" prints one JSON object: the ids, and the tokens a second behind the first one, which
waits for the prompt, as `trireme generate --json` prints them. mixed: the weights are bfloat16."""
import json
import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {"gpt2": (768, 12, 12), "medium": (1024, 24, 16), "large": (1280, 36, 20), "xl": (1600, 48, 25)}


def byte_characters():
    """Returns the characters that stand for the 256 bytes in the files of byte-level tokenizers."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def make(folder, size):
    width, layers, heads = SIZES[size]
    torch.manual_seed(1)
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads)
    GPT2LMHeadModel(config).save_pretrained(folder)
    words = byte_characters() + [f"word{i}" for i in range(256, config.vocab_size)]
    with open(os.path.join(folder, "vocab.json"), "w") as file:
        json.dump({word: i for i, word in enumerate(words)}, file)
    with open(os.path.join(folder, "merges.txt"), "w") as file:
        file.write("#version: 0.2\n")


class Clock:
    """A streamer of transformers: the moment of each token."""

    def __init__(self):
        self.moments = []

    def put(self, value):
        self.moments.append(time.perf_counter())

    def end(self):
        pass


def generate(folder, prompt, threads, precision, tokens):
    torch.set_num_threads(threads)
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16 if precision == "mixed" else torch.float32).eval()
    ids = torch.tensor([[*prompt.encode()]])
    for count in (2, tokens):  # the first is a warm-up
        clock = Clock()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, use_cache=True, eos_token_id=None,
                                 pad_token_id=0, streamer=clock)
    first, last = clock.moments[1], clock.moments[-1]  # moment 0 is the prompt's
    print(json.dumps({"tokens_per_second": (tokens - 1) / (last - first), "token_ids": out[0, ids.shape[1]:].tolist(), "torch": torch.__version__}))


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    generate(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
