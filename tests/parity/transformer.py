#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats in transformers what transformer_dump did, and compares losses, gradients and weights.
Usage: transformer.py LOSS_TOLERANCE GRADIENT_TOLERANCE DIR ..."""
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig, ViTForImageClassification

RATE = 4096  # of transformer_dump


def config_of(init):
    """The configuration and the class of the model whose parameters these are."""
    if "wte.weight" in init:
        vocabulary, width = init["wte.weight"].shape
        return GPT2LMHeadModel, GPT2Config(vocab_size=vocabulary, n_positions=init["wpe.weight"].shape[0], n_embd=width, n_layer=3, n_head=6,
                                           resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    if "vit.embeddings.cls_token" in init:
        width, _, patch, _ = init["vit.embeddings.patch_embeddings.projection.weight"].shape
        side = round((init["vit.embeddings.position_embeddings"].shape[1] - 1) ** 0.5)
        return ViTForImageClassification, ViTConfig(
            hidden_size=width, num_hidden_layers=3, num_attention_heads=4, patch_size=patch, image_size=side * patch, hidden_dropout_prob=0,
            intermediate_size=init["vit.encoder.layer.0.intermediate.dense.weight"].shape[0], num_labels=len(init["classifier.bias"]))
    if "bert.embeddings.word_embeddings.weight" in init:
        vocabulary, width = init["bert.embeddings.word_embeddings.weight"].shape
        return BertForMaskedLM, BertConfig(
            vocab_size=vocabulary, hidden_size=width, num_hidden_layers=3, num_attention_heads=6, hidden_dropout_prob=0, pad_token_id=None,
            intermediate_size=init["bert.encoder.layer.0.intermediate.dense.weight"].shape[0], attention_probs_dropout_prob=0,
            max_position_embeddings=init["bert.embeddings.position_embeddings.weight"].shape[0])
    vocabulary, width = init["model.embed_tokens.weight"].shape
    return LlamaForCausalLM, LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=init["model.layers.0.mlp.up_proj.weight"].shape[0], num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=48, rms_norm_eps=1e-5,
        tie_word_embeddings="lm_head.weight" not in init)


def model_of(init):
    """The model with these parameters, read as transformers reads a folder: it translates names."""
    kind, config = config_of(init)
    prefix = "transformer." if kind is GPT2LMHeadModel else ""
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        save_file({prefix + k: v for k, v in init.items()}, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        model, about = kind.from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"], about
    return model, prefix


def with_adapters(init):
    """The model of peft with these weights and adapters."""
    from peft import LoraConfig, get_peft_model
    base, prefix = model_of({k: v for k, v in init.items() if ".lora_" not in k})
    layers = [module_name(k).removesuffix(".lora_A.weight") for k in init if ".lora_A." in k]
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=layers, fan_in_fan_out=prefix != ""))
    theirs = {prefix + module_name(k): v for k, v in init.items() if ".lora_" in k}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            assert parameter.requires_grad == (".lora_" in name)
            if parameter.requires_grad:
                parameter.copy_(torch.from_numpy(theirs.pop(name.removeprefix("base_model.model.").replace(".default", "")).copy()))
    assert not theirs, list(theirs)
    return model, prefix


def module_name(name):
    """A parameter's name as transformers names modules, which for ViT are not those of its files."""
    if name.startswith("vit.encoder.") and hasattr(ViTForImageClassification(ViTConfig(num_hidden_layers=0)).vit, "layers"):
        for ours, theirs in (("encoder.layer.", "layers."), ("attention.attention.query", "attention.q_proj"), ("attention.attention.key", "attention.k_proj"),
                             ("attention.attention.value", "attention.v_proj"), ("attention.output.dense", "attention.o_proj"),
                             ("intermediate.dense", "mlp.fc1"), ("output.dense", "mlp.fc2")):
            name = name.replace(ours, theirs)
    return name


def adapter_gradients(model, prefix, init):
    """The gradients of adapters; frozen parameters have none: zeros."""
    found = {k.removeprefix("base_model.model." + prefix).replace(".default", ""): p.grad.numpy() for k, p in model.named_parameters() if p.requires_grad}
    return {name: found[module_name(name)] if ".lora_" in name else np.zeros_like(values) for name, values in init.items()}


def gradients_of(model, prefix):
    """The gradients under the names of files: those of a copy whose parameters are the gradients."""
    copy = type(model)(model.config)
    with torch.no_grad():
        for theirs, ours in zip(copy.parameters(), model.parameters()):
            theirs.copy_(ours.grad)
    with tempfile.TemporaryDirectory() as folder:
        copy.save_pretrained(folder)
        return {k[len(prefix):]: v for k, v in load_file(pathlib.Path(folder) / "model.safetensors").items()}


def loss_of(model, batch):
    x = {k: torch.from_numpy(v.copy()) for k, v in batch.items()}
    if "image" in x:
        return torch.nn.functional.cross_entropy(model(x["image"]).logits, x["label"].long())
    logits = model(x["tokens"].long(), **({"attention_mask": x["mask"]} if "mask" in x else {})).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), x["targets"].long().flatten(), ignore_index=-100)


def agrees(folder, loss_tolerance, gradient_tolerance):
    init, moved, batches = (load_file(f"{folder}/{n}.safetensors") for n in ("init", "sgd", "batches"))
    losses = [float(line) for line in open(f"{folder}/losses.txt")]
    adapters = any(".lora_A." in name for name in init)
    model, prefix = (with_adapters if adapters else model_of)(init)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    worst = apart = 0.0
    for step, ours in enumerate(losses):
        optimizer.zero_grad()
        loss = loss_of(model, {k: v[step] for k, v in batches.items()})
        loss.backward()
        if step == 0:
            gradients = adapter_gradients(model, prefix, init) if adapters else gradients_of(model, prefix)
            assert set(gradients) == set(init), set(gradients) ^ set(init)
            for name, theirs in gradients.items():
                # softmax does not see what is added to all scores of a query: a key's bias has gradient 0, but for rounding
                scale = np.abs(gradients[name.replace("key.bias", "query.bias")]).max()
                if scale == 0: # frozen, or A beside a B of zeros
                    assert np.array_equal(init[name], moved[name]), name
                    continue
                error = np.abs(theirs - (init[name] - moved[name]) / RATE).max() / scale
                apart = max(apart, error)
                if error > gradient_tolerance:
                    print(f"gradient of {name}: {error:.1e} apart")
                    return False
        optimizer.step()
        worst = max(worst, abs(loss.item() - ours) / abs(loss.item()))
    print(f"{folder}: {len(losses)} losses from {losses[0]:.6f} to {losses[-1]:.6f}, at most {worst:.1e} apart, gradients {apart:.1e}")
    return worst <= loss_tolerance


if __name__ == "__main__":
    sys.exit(0 if all([agrees(folder, float(sys.argv[1]), float(sys.argv[2])) for folder in sys.argv[3:]]) else 1)
