#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats in transformers what language_dump did, and compares losses, gradients and weights.
Usage: language.py LOSS_TOLERANCE GRADIENT_TOLERANCE DIR ..."""
import sys

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def model_of(init):
    """The model whose parameters these are, and the module that has their names."""
    if "wte.weight" in init:
        vocabulary, width = init["wte.weight"].shape
        model = GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_positions=init["wpe.weight"].shape[0], n_embd=width, n_layer=3, n_head=6,
                                           resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
        assert model.lm_head.weight is model.transformer.wte.weight
        return model, model.transformer
    vocabulary, width = init["model.embed_tokens.weight"].shape
    model = LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=init["model.layers.0.mlp.up_proj.weight"].shape[0],
                                         num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=48,
                                         rms_norm_eps=1e-5, tie_word_embeddings=True))
    return model, model


def agrees(folder, loss_tolerance, gradient_tolerance):
    init, moved, batches = (load_file(f"{folder}/{n}.safetensors") for n in ("init", "sgd", "batches"))
    losses = [float(line) for line in open(f"{folder}/losses.txt")]
    model, named = model_of(init)
    model.train()
    missing, unexpected = named.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in init.items()}, strict=False)
    assert not set(missing) - {"lm_head.weight"} and not unexpected, (missing, unexpected)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    worst = 0.0
    for step, ours in enumerate(losses):
        optimizer.zero_grad()
        logits = model(torch.from_numpy(batches["tokens"][step].copy()).long()).logits
        target = torch.from_numpy(batches["targets"][step].copy()).long()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
        loss.backward()
        if step == 0:
            for name, parameter in named.named_parameters():
                theirs = parameter.grad.numpy()
                error = np.abs(theirs - (init[name] - moved[name])).max() / max(np.abs(theirs).max(), 1e-6)
                if error > gradient_tolerance:
                    print(f"gradient of {name}: {error:.1e} apart")
                    return False
        optimizer.step()
        worst = max(worst, abs(loss.item() - ours) / abs(loss.item()))
    print(f"{folder}: {len(losses)} losses from {losses[0]:.6f} to {losses[-1]:.6f}, at most {worst:.1e} apart")
    return worst <= loss_tolerance


if __name__ == "__main__":
    sys.exit(0 if all([agrees(folder, float(sys.argv[1]), float(sys.argv[2])) for folder in sys.argv[3:]]) else 1)
