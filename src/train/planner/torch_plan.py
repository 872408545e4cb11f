# SPDX-License-Identifier: Apache-2.0
"""Applies the plan of plan.json, which `trireme plan --export torch` has written beside this file, to a
Llama of Hugging Face's transformers: tensor and sequence parallel by DTensor, data parallel by FSDP2,
stages by torch.distributed.pipelining, recompute by activation checkpointing.

    torchrun --nproc-per-node 8 your_training.py

    import trireme_plan
    trainer = trireme_plan.Trainer(LlamaForCausalLM(config), device="cuda")    # equal weights on all ranks
    optimizer = torch.optim.AdamW(trainer.parameters(), lr=3e-4)
    loss = trainer.step(tokens, targets)      # of this data-parallel rank; sums the gradients
    optimizer.step(); optimizer.zero_grad()
"""
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

PLAN = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plan.json")))["plan"]
IGNORED = -100


class Run(torch.nn.Module):
    """A run of blocks; the first has the embedding, the last norm and output layer."""
    def __init__(self, model, begin, end):
        super().__init__()
        inner = model.model
        self.embed_tokens = inner.embed_tokens if begin == 0 else None
        self.layers = torch.nn.ModuleList(inner.layers[begin:end])
        last = end == len(inner.layers)
        self.norm, self.lm_head = (inner.norm, model.lm_head) if last else (None, None)
        self.rotary_emb = inner.rotary_emb

    def forward(self, x):
        length = x.shape[1] if self.embed_tokens is not None else x.shape[1] * PLAN["tp"]
        positions = torch.arange(length, device=x.device).unsqueeze(0)
        x = self.embed_tokens(x) if self.embed_tokens is not None else x
        angles = self.rotary_emb(x, positions)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_ids=positions, position_embeddings=angles)
            x = x[0] if isinstance(x, tuple) else x
        return self.lm_head(self.norm(x)) if self.lm_head is not None else x


def loss_of(logits, targets):
    """Mean cross-entropy of the targets that are not IGNORED."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


def blocks_of_runs(layers, runs):
    """[(begin, end)] of each virtual stage, as the plan counts them."""
    stages, chunks = PLAN["pp"], PLAN["vp"]
    if chunks > 1:
        counted = layers % runs != 0
        counts = [(layers + 2 * counted) // runs - (counted and v in (0, runs - 1)) for v in range(runs)]
    else:
        most = -(-layers // stages)
        last = layers - most * (stages - 1)
        counts = [most] * (stages - 1) + [last]
        if last < 1:
            counts = [most if v < layers % stages else most - 1 for v in range(stages)]
    ends = [sum(counts[:i + 1]) for i in range(runs)]
    return list(zip([0] + ends[:-1], ends))


def cut_tensors(run, mesh):
    """Tensor and sequence parallel: columns, then rows; between them tokens are cut."""
    plan = {}
    if run.embed_tokens is not None:
        plan["embed_tokens"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if run.lm_head is not None:
        plan["norm"] = SequenceParallel()
        plan["lm_head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    for i in range(len(run.layers)):
        whole = {"hidden_states": Shard(1)}, {"hidden_states": Replicate()}
        plan.update({
            f"layers.{i}.input_layernorm": SequenceParallel(),
            f"layers.{i}.self_attn": PrepareModuleInput(input_kwarg_layouts=whole[0], desired_input_kwarg_layouts=whole[1]),
            f"layers.{i}.self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            f"layers.{i}.post_attention_layernorm": SequenceParallel(),
            f"layers.{i}.mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            f"layers.{i}.mlp.down_proj": RowwiseParallel(output_layouts=Shard(1))})
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            plan[f"layers.{i}.{name}"] = ColwiseParallel()
    parallelize_module(run, mesh, plan)


def prepare(run, mesh, again, dtype):
    """Cuts, recomputes and shards one run."""
    if PLAN["tp"] > 1:
        cut_tensors(run, mesh["tp"])
    for i in range(min(again, len(run.layers))):
        run.layers[i] = checkpoint_wrapper(run.layers[i])
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in [*run.layers, run]:
        fully_shard(module, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=PLAN["zero"] == 3)
    return run


class Trainer:
    def __init__(self, model, device="cuda", dtype=torch.bfloat16):
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
        self.mesh = init_device_mesh(device, (PLAN["pp"], PLAN["dp"], PLAN["tp"]), mesh_dim_names=("pp", "dp", "tp"))
        self.device = torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device)
        stages, chunks, rank = PLAN["pp"], PLAN["vp"], self.mesh["pp"].get_local_rank()
        bounds = blocks_of_runs(len(model.model.layers), stages * chunks)
        model.config.use_cache = False
        if model.config.tie_word_embeddings and stages > 1:
            raise ValueError("tie_word_embeddings: True found, False expected for stages")
        again = sum(PLAN["recompute_by_stage"][rank])
        self.runs = []
        for v in range(rank, stages * chunks, stages):
            run = Run(model, *bounds[v]).to(self.device)
            self.runs.append(prepare(run, self.mesh, again - sum(len(r.layers) for r in self.runs), dtype))
        if stages > 1:
            parts = [PipelineStage(r, rank + i * stages, stages * chunks, self.device, group=self.mesh["pp"].get_group())
                     for i, r in enumerate(self.runs)]
            kind = ScheduleGPipe if PLAN["schedule"] == "gpipe" else Schedule1F1B
            args = dict(n_microbatches=PLAN["micro_batches"], loss_fn=loss_of)
            self.schedule = ScheduleInterleaved1F1B(parts, **args) if chunks > 1 else kind(parts[0], **args)
            self.first, self.last = rank == 0, rank == stages - 1

    def parameters(self):
        return [p for r in self.runs for p in r.parameters()]

    def step(self, tokens, targets):
        """Forward and backward of a batch of micro_batch x micro_batches samples; returns its loss (last stage)."""
        if PLAN["pp"] > 1:
            losses = []
            given = {"target": targets, "losses": losses} if self.last else {}
            self.schedule.step(*([tokens] if self.first else []), **given)
            return torch.stack(losses).mean().detach() if self.last else None
        parts = list(zip(tokens.chunk(PLAN["micro_batches"]), targets.chunk(PLAN["micro_batches"])))
        total = 0.0
        for i, (x, y) in enumerate(parts):
            self.runs[0].set_requires_gradient_sync(PLAN["zero"] >= 2 or i == len(parts) - 1)
            loss = loss_of(self.runs[0](x), y) / len(parts)
            loss.backward()
            total += loss.detach()
        return total
