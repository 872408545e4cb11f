# SPDX-License-Identifier: Apache-2.0
"""Loads what lora_test has exported: adapters with peft beside the weights that training began with, and merged weights. Losses of a text
of gpt2 and llama must be those of trireme eval, logits of bert and vit those of the merged weights.
    python lora.py TEXT MODEL..."""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM, AutoTokenizer

CONTEXT = 24


def loss_of(model, ids):
    losses = tokens = 0
    with torch.no_grad():
        for i in range(0, len(ids) - 1, CONTEXT):
            s = ids[i:i + CONTEXT + 1]
            losses += torch.nn.functional.cross_entropy(model(s[None, :-1]).logits[0], s[1:], reduction="sum").item()
            tokens += len(s) - 1
    return losses / tokens


def check_logits(name, kind, *inputs):
    base, merged = (kind.from_pretrained(f"{folder}-{name}").eval() for folder in ("hf", "merged"))
    with torch.no_grad():
        before = base(*inputs).logits
        adapted = PeftModel.from_pretrained(base, f"adapter-{name}").eval()
        a, b = adapted(*inputs).logits, merged(*inputs).logits
    ups = [p for n, p in adapted.named_parameters() if ".lora_B." in n]
    assert ups and all(p.abs().max() > 0 for p in ups), name  # peft has found all of them, and made no others
    apart = (a - b).abs().max().item()
    print(f"{name}: logits of {len(ups)} adapters {apart:.1e} apart from those of merged weights, {(a - before).abs().max().item():.1e} from those before")
    assert apart < 1e-5 * max(1, a.abs().max().item()) and (a - before).abs().max() > 1e-3, (name, apart)


text = open(sys.argv[1]).read()
torch.manual_seed(1)
for name in sys.argv[2:]:
    if name == "bert":
        check_logits(name, AutoModelForMaskedLM, torch.randint(0, 20, (3, CONTEXT)))
        continue
    if name == "vit":
        check_logits(name, AutoModelForImageClassification, torch.randn(3, 3, 16, 16))
        continue
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
