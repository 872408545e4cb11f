# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama by the exported plan on processes of this machine and compares its losses with one process.
usage: torchrun --nproc-per-node 4 hardware_torch.py FOLDER_OF_THE_PLAN"""
import os
import sys

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, sys.argv[1])
import trireme_plan  # noqa: E402

STEPS, LENGTH, VOCABULARY = 4, 16, 96
PLAN = trireme_plan.PLAN


def make_model():
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, max_position_embeddings=LENGTH, tie_word_embeddings=False, attn_implementation="sdpa"))


def train_alone(batches):
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens, targets in batches:
        loss = trireme_plan.loss_of(model(tokens, use_cache=False).logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    samples = PLAN["dp"] * PLAN["micro_batch"] * PLAN["micro_batches"]
    torch.manual_seed(11)
    x = torch.randint(0, VOCABULARY, (samples, LENGTH + 1))
    batches = [(x[:, :-1], x[:, 1:])] * STEPS
    trainer = trireme_plan.Trainer(make_model(), device="cpu", dtype=torch.float32)
    optimizer = torch.optim.AdamW(trainer.parameters(), lr=1e-2)
    own = trainer.mesh["dp"].get_local_rank()
    losses = []
    for tokens, targets in batches:
        loss = trainer.step(tokens.chunk(PLAN["dp"])[own], targets.chunk(PLAN["dp"])[own])
        optimizer.step()
        optimizer.zero_grad()
        if loss is not None:  # the last stage has it: mean over its data-parallel ranks
            dist.all_reduce(loss, group=trainer.mesh["dp"].get_group())
            losses.append(loss.item() / PLAN["dp"])
    if losses and dist.get_rank() == dist.get_world_size() - 1:
        expected = train_alone(batches)
        worst = max(abs(a - b) for a, b in zip(losses, expected))
        print(f"losses {losses} alone {expected} difference {worst:.2e}")
        if worst > 1e-4 or expected[0] - expected[-1] < 0.05:
            os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


main()
