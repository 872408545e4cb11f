# SPDX-License-Identifier: Apache-2.0
"""Loads what lora_test has exported: adapters with peft beside the weights that training began with, and merged weights. Their losses of
a text must be those of trireme eval.
    python lora.py TEXT MODEL..."""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

CONTEXT = 24


def loss_of(model, ids):
    losses = tokens = 0
    with torch.no_grad():
        for i in range(0, len(ids) - 1, CONTEXT):
            s = ids[i:i + CONTEXT + 1]
            losses += torch.nn.functional.cross_entropy(model(s[None, :-1]).logits[0], s[1:], reduction="sum").item()
            tokens += len(s) - 1
    return losses / tokens


text = open(sys.argv[1]).read()
for name in sys.argv[2:]:
    ids = AutoTokenizer.from_pretrained(f"adapter-{name}")(text, return_tensors="pt").input_ids[0]
    base = AutoModelForCausalLM.from_pretrained(f"hf-{name}").eval()
    before = loss_of(base, ids)
    adapted = PeftModel.from_pretrained(base, f"adapter-{name}").eval()
    merged = AutoModelForCausalLM.from_pretrained(f"merged-{name}").eval()
    with torch.no_grad():
        a, b = adapted(ids[None, :CONTEXT]).logits, merged(ids[None, :CONTEXT]).logits
    apart = (a - b).abs().max().item()
    found = [loss_of(model, ids) for model in (adapted, merged)]
    ours = [json.load(open(f"loss-{run}.json"))["loss"] for run in (f"hf-{name}", f"{name}-a", f"merged-{name}")]
    print(f"{name}: {before:.6f} before, {found[0]:.6f} with adapters, {found[1]:.6f} merged; logits {apart:.1e} apart; trireme {ours}")
    assert abs(before - ours[0]) < 1e-5 and abs(found[0] - ours[1]) < 1e-5 and abs(found[1] - ours[2]) < 1e-5 and apart < 1e-4
