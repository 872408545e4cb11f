# SPDX-License-Identifier: Apache-2.0
"""Random models of transformers, through trireme and back: the weights of the exported folder, logits (those of onnxruntime, too, of
ViT and BERT); of GPT-2, GPT-2 with experts and Llama loss, perplexity and bits per byte of a text; of GPT-2 and Llama greedy texts.
    python huggingface.py TRIREME TOKENIZER TEXT"""
import collections
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (AutoImageProcessor, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM, AutoTokenizer, BertConfig, GPT2Config,
                          LlamaConfig, ViTConfig, ViTImageProcessor)

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

trireme, tokenizer, text = sys.argv[1:]
os.environ["TRIREME_LIBRARY"] = str(pathlib.Path(trireme).with_name("libtrireme.so.0"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from trireme import Dataset  # noqa: E402: reads the same batches as the program

VOCABULARY, CONTEXT, PROMPT = 290, 24, "the rank"


def run(*args):
    done = subprocess.run([trireme, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def random_model(kind, config, seed):
    torch.manual_seed(seed)
    model = kind.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():  # no biases of 0, and logits that differ
            p.add_(torch.randn_like(p) * (0.1 if p.dim() < 2 else 0.15))
    return model


def onnx_logits(name, kind, inputs):
    run("export", kind, "--checkpoint", f"{name}-imported", "--to", "onnx", "--output", f"{name}.onnx")
    session = onnxruntime.InferenceSession(f"{name}.onnx")
    return torch.from_numpy(session.run(None, {key: value.numpy() for key, value in inputs.items()})[0])


def check_images(name, config, seed):
    model = random_model(AutoModelForImageClassification, config, seed)
    model.save_pretrained(name, max_shard_size="60KB" if seed % 2 else "5GB")
    size = {"height": config.image_size, "width": config.image_size}
    ViTImageProcessor(size=size, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4]).save_pretrained(name)
    run("import", "vit", "--from", name, "--output", f"{name}-imported")
    run("export", "vit", "--checkpoint", f"{name}-imported", "--to", "huggingface", "--output", f"{name}-back")
    back = AutoModelForImageClassification.from_pretrained(f"{name}-back").eval()
    assert type(back) is type(model) and back.config.num_labels == config.num_labels, back.config
    raw = torch.randint(0, 256, (3, 40, 40), dtype=torch.uint8).numpy()
    processed = [AutoImageProcessor.from_pretrained(f, use_fast=False)(raw, return_tensors="np")["pixel_values"] for f in (name, f"{name}-back")]
    assert (processed[0] == processed[1]).all() and processed[0].shape[2:] == (config.image_size,) * 2, name
    images = torch.randn(3, 3, config.image_size, config.image_size)
    with torch.no_grad():
        expected, found = model(images).logits, back(images).logits
    assert torch.equal(expected, found), (name, (expected - found).abs().max())
    if onnxruntime:
        apart = (onnx_logits(name, "vit", {"image": images}) - expected).abs().max().item()
        assert apart < 1e-4 * max(1, expected.abs().max().item()), (name, apart)
        print(f"{name}: logits of onnxruntime {apart:.1e} apart")


def check_evaluation(name, kind, model, words):
    """Compares trireme eval with the model: the text in windows of CONTEXT tokens, each with the tokens that follow. Returns the loss."""
    content = open(text).read()
    every = words(content, return_tensors="pt", add_special_tokens=False).input_ids[0]
    losses, tokens = 0.0, 0
    with torch.no_grad():
        for i in range(0, len(every) - 1, CONTEXT):
            s = every[i:i + CONTEXT + 1]
            losses += torch.nn.functional.cross_entropy(model(s[None, :-1]).logits[0], s[1:], reduction="sum").item()
            tokens += len(s) - 1
    event = json.loads(run("eval", kind, "--checkpoint", f"{name}-imported", "--data", "parts", "--dataset", "text", "--context",
                           CONTEXT, "--json"))
    loss, size = losses / tokens, len(content.encode()) / len(every)  # the bytes of a token
    expected = {"loss": loss, "perplexity": math.exp(loss), "bits_per_byte": loss / math.log(2) / size}
    for key, value in expected.items():
        assert abs(event[key] / value - 1) < 1e-5, (name, key, event[key], value)
    return loss


class Experts(torch.nn.Module):
    """The layers behind attention of moe: each token's two most probable experts, by their shares of the probability."""
    def __init__(self, weights):
        super().__init__()
        self.router, self.up, self.down = weights

    def forward(self, x):
        shares, chosen = torch.softmax(x @ self.router.T, -1).topk(2)
        shares = shares / shares.sum(-1, keepdim=True)
        y = torch.einsum("btkhw,btw->btkh", self.up[chosen], x)
        y = torch.nn.functional.gelu(y, approximate="tanh")
        return torch.einsum("btkwh,btkh,btk->btw", self.down[chosen], y, shares)


def check_experts(name):
    """Compares moe with GPT-2 of transformers with these layers."""
    run("train", "moe", "--data", text, "--dataset", "text", "--tokenizer", tokenizer, "--context", CONTEXT, "--layers", 2, "--width", 32,
        "--heads", 4, "--experts", 5, "--steps", 40, "--batch-size", 4, "--learning-rate", 0.01, "--eval-every-epochs", 0, "--output",
        f"{name}-imported")
    run("export", "moe", "--checkpoint", f"{name}-imported", "--to", "safetensors", "--output", f"{name}.safetensors")
    weights = load_file(f"{name}.safetensors")
    model = AutoModelForCausalLM.from_config(GPT2Config(n_embd=32, n_layer=2, n_head=4, **gpt2)).eval()
    for i, block in enumerate(model.transformer.h):
        block.mlp = Experts([weights.pop(f"h.{i}.mlp.{part}") for part in ("router.weight", "experts.up", "experts.down")])
    about = model.transformer.load_state_dict(weights)
    assert not about.missing_keys and not about.unexpected_keys, about
    print(f"{name}: loss {check_evaluation(name, 'moe', model, AutoTokenizer.from_pretrained('gpt2-a-back')):.6f}")


def check_masked_evaluation(name, model, documents):
    """Loss, accuracy and their tokens on batches of masked samples, of which [CLS], [SEP] and padding are no targets."""
    event = json.loads(run("eval", "bert", "--checkpoint", name, "--data", "parts", "--dataset", "text", "--context", CONTEXT,
                           "--batch-size", 4, "--json", *(["--documents"] if documents else [])))
    options = {"tokenizer": tokenizer, "context": CONTEXT, "masking": 0.15, "documents": documents}
    data = Dataset.open("parts", usage="test", batch_size=4, kind="text", text=options)
    losses, hits, count, padded = 0.0, 0, 0, 0
    for _ in range(len(data)):
        batch = data.next()
        tokens, targets, mask = (torch.from_numpy(batch[key].copy()).long() for key in ("tokens", "targets", "mask"))
        with torch.no_grad():
            logits = model(tokens, attention_mask=mask).logits
        losses += torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum").item()
        hits += (logits.argmax(-1) == targets)[targets != -100].sum().item()
        count += (targets != -100).sum().item()
        padded += (mask == 0).sum().item()
        used = mask.sum(1)
        assert (tokens[used > 0, 0] == 3).all() and (tokens[used > 0, used[used > 0] - 1] == 4).all(), tokens  # [CLS], [SEP]
        assert (tokens[mask == 0] == 2).all() and (targets[:, 0] == -100).all() and (targets[mask == 0] == -100).all(), tokens
    assert padded > count if documents else padded < 4 * CONTEXT, (padded, count)
    assert event["tokens"] == count and abs(event["loss"] - losses / count) < 1e-5 * losses / count, (event, losses / count, count)
    assert abs(event["accuracy"] - hits / count) < 1e-6 and hits > 0, (event, hits, count)
    print(f"{name}: masked loss {event['loss']:.6f}, accuracy {hits} of {count}, {padded} of padding")


def check_masked(name, config, seed):
    model = random_model(AutoModelForMaskedLM, config, seed)
    ids = Tokenizer.from_file(f"{tokenizer}/tokenizer.json").encode(pathlib.Path(text).read_text()).ids
    with torch.no_grad():  # so that some predictions are right
        model.cls.predictions.bias[collections.Counter(ids).most_common(1)[0][0]] += 6
    model.save_pretrained(name, max_shard_size="60KB" if seed % 2 else "5GB")
    for file in pathlib.Path(tokenizer).iterdir():
        shutil.copy(file, name)
    run("import", "bert", "--from", name, "--output", f"{name}-imported")
    run("export", "bert", "--checkpoint", f"{name}-imported", "--to", "huggingface", "--output", f"{name}-back")
    back = AutoModelForMaskedLM.from_pretrained(f"{name}-back").eval()
    words = AutoTokenizer.from_pretrained(f"{name}-back")
    assert type(back) is type(model) and words.mask_token == "[MASK]", (type(back), words.mask_token)
    ids = torch.randint(1, VOCABULARY, (3, CONTEXT))
    mask = torch.ones_like(ids)
    mask[1, -7:] = 0
    with torch.no_grad():
        expected, found = (m(ids, attention_mask=mask).logits for m in (model, back))
    assert torch.equal(expected, found), (name, (expected - found).abs().max())
    if onnxruntime:
        found = onnx_logits(name, "bert", {"tokens": ids.int(), "mask": mask.int()})
        apart = (found - expected)[mask.bool()].abs().max().item()
        assert apart < 1e-4 * max(1, expected.abs().max().item()), (name, apart)
        print(f"{name}: logits of onnxruntime {apart:.1e} apart")
    for documents in False, True:
        check_masked_evaluation(name, model, documents)
    event = json.loads(run("eval", "bert", "--checkpoint", name, "--data", "parts", "--dataset", "text", "--context", CONTEXT, "--json"))
    assert event["tokens"] > 0 and event["perplexity"] > 1 and "bits_per_byte" not in event, event


def put_before_texts(folder, token):
    """Lets the tokenizer of a folder put a token before each text, as Llama 3's."""
    words = Tokenizer.from_file(f"{folder}/tokenizer.json")
    words.post_processor = TemplateProcessing(single=f"{token} $A", special_tokens=[(token, words.token_to_id(token))])
    words.save(f"{folder}/tokenizer.json")


def check(name, config, seed, before=None):
    kind, folder = config.model_type, pathlib.Path(name)
    model = random_model(AutoModelForCausalLM, config, seed)
    model.save_pretrained(folder, max_shard_size="60KB" if seed % 2 else "5GB")
    for file in pathlib.Path(tokenizer).iterdir():
        shutil.copy(file, folder)
    if before is not None:
        put_before_texts(folder, before)
    run("import", kind, "--from", folder, "--output", f"{name}-imported")
    run("export", kind, "--checkpoint", f"{name}-imported", "--to", "huggingface", "--output", f"{name}-back",
        *(["--shard-bytes", "50K"] if seed % 3 == 0 else []))
    back = AutoModelForCausalLM.from_pretrained(f"{name}-back").eval()
    words = AutoTokenizer.from_pretrained(f"{name}-back")
    ids = torch.randint(0, VOCABULARY, (3, CONTEXT))
    with torch.no_grad():
        expected, found = model(ids).logits, back(ids).logits
    assert torch.equal(expected, found), (name, (expected - found).abs().max())

    losses = check_evaluation(name, kind, model, words)

    prompt = words(PROMPT, return_tensors="pt").input_ids
    assert before is None or prompt[0, 0] == words.convert_tokens_to_ids(before), prompt
    many = CONTEXT - prompt.shape[1]
    with torch.no_grad():
        greedy = model.generate(prompt, max_new_tokens=many, do_sample=False, pad_token_id=0)[0, prompt.shape[1]:].tolist()
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    greedy = greedy[:-1] if greedy[-1] in ends else greedy
    for checkpoint in (folder, f"{name}-imported"):
        event = json.loads(run("generate", kind, "--checkpoint", checkpoint, "--prompt", PROMPT, "--tokens", many, "--json"))
        assert event["token_ids"] == greedy, (name, event["token_ids"], greedy)
    assert event["text"] == words.decode(greedy), (event["text"], words.decode(greedy))
    print(f"{name}: loss {losses:.6f}, {len(greedy)} tokens")


pathlib.Path("parts").mkdir()
for part in ("train", "test"):  # so that evaluation reads the whole text
    shutil.copy(text, f"parts/{part}.txt")
gpt2 = dict(vocab_size=VOCABULARY, n_positions=CONTEXT, bos_token_id=0, eos_token_id=0)
check("gpt2-a", GPT2Config(n_embd=48, n_layer=3, n_head=4, **gpt2), 1)
check("gpt2-b", GPT2Config(n_embd=32, n_layer=2, n_head=2, n_inner=40, layer_norm_epsilon=1e-3, **gpt2), 6)
check_experts("moe")
llama = dict(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT)
check("llama-a", LlamaConfig(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, eos_token_id=[0, 40],
                             **llama), 3, before="[CLS]")
check("llama-b", LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                             tie_word_embeddings=True, rope_theta=500.0, rms_norm_eps=1e-3, eos_token_id=0, **llama), 4)
bert = dict(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, hidden_size=32)
check_masked("bert-a", BertConfig(num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, pad_token_id=None, **bert), 9)
check_masked("bert-b", BertConfig(num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, layer_norm_eps=1e-3, **bert), 10)
vit = dict(num_attention_heads=4, hidden_size=32)
check_images("vit-a", ViTConfig(num_hidden_layers=2, intermediate_size=48, image_size=24, patch_size=4, num_labels=5, **vit), 7)
check_images("vit-b", ViTConfig(num_hidden_layers=3, intermediate_size=64, image_size=32, patch_size=16, num_labels=3, layer_norm_eps=1e-3, **vit), 8)
