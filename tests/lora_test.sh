#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adapters (--lora): only they have gradients, slots and updates; resuming, two ranks, servers and recomputation give the same weights;
# eval, generate, merged and separate exports; wrong use. Where a python has peft (PYTHON, or the oracle in the cache), the exported
# folders have the same losses there. transformers_parity_test compares training with peft's.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1 PYTHONPATH=$source/tests/readers:$PYTHONPATH
python=${PYTHON:-$peers/oracle/bin/python}

write_sentences 1500 "a row" "one table" "the weights" > text.txt
data="--data text.txt --dataset text --tokens characters --context 24"
size="--layers 2 --width 32 --heads 4"
learn="--learning-rate 5e-3 --eval-every-epochs 0 --launch-dir logs --quiet"
train() { "$trireme" train "$@" > out 2>&1 || fail "train $*: $(tail -3 out)"; }
same() { cmp "$1/ckpt-12/model.safetensors" "$2/ckpt-12/model.safetensors" || fail "$1 and $2 differ"; }

# shellcheck disable=SC2086
for model in gpt2 llama; do
    lora="--lora r=4,alpha=8,dropout=0.1,targets=$([ $model = gpt2 ] && echo c_attn+mlp || echo q_proj+v_proj+mlp)"
    train $model $data $size --batch-size 8 --steps 30 $learn --output $model
    "$trireme" export $model --checkpoint $model --to huggingface --output hf-$model --quiet > /dev/null || fail "export of $model"
    train $model $data --batch-size 8 --steps 12 $learn --init hf-$model $lora --output $model-a
    ! grep -q "are missing" out || fail "adapters are counted as missing: $(cat out)"
    train $model $data --batch-size 8 --steps 5 $learn --init hf-$model $lora --output $model-b
    train $model $data --batch-size 8 --steps 12 $learn --init hf-$model $lora --output $model-b --resume
    train $model $data --batch-size 8 --steps 12 $learn --init hf-$model $lora --output $model-c --recompute block
    expect 2 "network differs" train $model $data --batch-size 8 --steps 20 --init hf-$model ${lora/alpha=8/alpha=16} --output $model-b --resume
    same $model-a $model-b
    cmp $model-a/ckpt-12/optimizer.safetensors $model-b/ckpt-12/optimizer.safetensors || fail "slots of the resumed run"
    same $model-a $model-c
    for n in 1 2; do
        train $model $data --batch-size $((8 / n)) -n $n --deterministic strict --steps 12 $learn --init hf-$model $lora --output $model-s$n
    done
    same $model-s1 $model-s2
    train $model $data --batch-size 4 -n 2 --shard-optimizer --steps 12 $learn --init hf-$model ${lora/dropout=0.1,/} --clip-norm 1 --output $model-n
    train $model $data --batch-size 8 --steps 12 $learn --init hf-$model ${lora/dropout=0.1,/} --clip-norm 1 --output $model-1
    train $model $data --batch-size 4 -n 2 --ps 1 --mode sync --steps 12 $learn --init hf-$model ${lora/dropout=0.1,/} --output $model-ps
    train $model $data --batch-size 8 --steps 12 $learn --init hf-$model ${lora/dropout=0.1,/} --output $model-2
    "$trireme" export $model --checkpoint $model-a --to huggingface --output adapter-$model --quiet > /dev/null || fail "export of adapters"
    "$trireme" export $model --checkpoint $model-a --to huggingface --merge --output merged-$model --quiet > /dev/null || fail "export --merge"
    "$trireme" generate $model --checkpoint $model-a --prompt "the" --tokens 20 > a.txt 2> /dev/null || fail "generate"
    "$trireme" generate $model --checkpoint merged-$model --prompt "the" --tokens 20 > b.txt 2> /dev/null || fail "generate of the merged weights"
    cmp a.txt b.txt || fail "generated texts differ: $(cat a.txt b.txt)"
    "$trireme" generate $model --checkpoint $model-ps --prompt "the" --tokens 20 > b.txt 2> /dev/null || fail "generate: no tokenizer beside a servers' job"
    mkdir -p parts
    head -c 3000 text.txt > parts/train.txt
    head -c 3000 text.txt > parts/test.txt
    for from in hf-$model $model-a merged-$model; do
        "$trireme" eval $model --checkpoint $from --data parts --dataset text --context 24 --json > loss-$from.json || fail "eval $from"
    done
done
python3 - << 'END' || fail "what is trained"
import checkpoint, json, struct
def read(path):
    return {name: data for name, (_, _, data) in checkpoint.open_safetensors(path).items()}
def floats(b):
    return struct.unpack(f"<{len(b) // 4}f", b)
for model in "gpt2", "llama":
    base, run = read(f"{model}/ckpt-30/model.safetensors"), read(f"{model}-a/ckpt-12/model.safetensors")
    adapters = {n for n in run if ".lora_" in n}
    assert set(run) - adapters == set(base) and all(run[n] == base[n] for n in base), model  # frozen, bit for bit
    assert len(adapters) == (12 if model == "gpt2" else 20) and all(any(run[n]) for n in adapters), sorted(adapters)
    slots = read(f"{model}-a/ckpt-12/optimizer.safetensors")
    assert {n.rsplit("/", 1)[0] for n in slots} == adapters, sorted(slots)
    for ranks, alone in (f"{model}-n", f"{model}-1"), (f"{model}-ps", f"{model}-2"):
        a, b = (read(f"{r}/ckpt-12/model.safetensors") for r in (ranks, alone))
        assert set(a) == set(b)
        for name in a:
            assert a[name] == b[name] or name in adapters, (ranks, name)
            worst = max(abs(x - y) for x, y in zip(floats(a[name]), floats(b[name])))
            assert worst < 1e-3, (ranks, name, worst)
    loss = {r: json.load(open(f"loss-{r}.json"))["loss"] for r in (f"hf-{model}", f"{model}-a", f"merged-{model}")}
    assert abs(loss[f"{model}-a"] - loss[f"merged-{model}"]) < 1e-5 and abs(loss[f"{model}-a"] - loss[f"hf-{model}"]) > 1e-3, loss
END

# ---- bert and vit: only adapters change, on two ranks as on one, after a resume, too; both exports
for model in bert vit; do
    input=$data
    [ $model = bert ] || input="--data synth --synth-train 96 --synth-test 32 --image-size 16 --patch 4 --classes 10"
    lora="--lora r=4,alpha=8,targets=$([ $model = bert ] && echo mlp+query || echo all)"
    # shellcheck disable=SC2086
    {
        train $model $input $size --batch-size 8 --steps 12 $learn --output $model
        "$trireme" export $model --checkpoint $model --to huggingface --output hf-$model --quiet > /dev/null || fail "export of $model"
        train $model $input --batch-size 8 --steps 12 $learn --init hf-$model $lora --output $model-a
        ! grep -q "are missing" out || fail "adapters are counted as missing: $(cat out)"
        train $model $input --batch-size 8 --steps 5 $learn --init hf-$model $lora --output $model-b
        train $model $input --batch-size 8 --steps 12 $learn --init hf-$model $lora --output $model-b --resume
        same $model-a $model-b
        for n in 1 2; do
            train $model $input --batch-size $((8 / n)) -n $n --deterministic strict --steps 12 $learn --init hf-$model $lora --output $model-s$n
        done
        same $model-s1 $model-s2
        "$trireme" export $model --checkpoint $model-a --to huggingface --output adapter-$model --quiet > /dev/null || fail "export of adapters"
        "$trireme" export $model --checkpoint $model-a --to huggingface --merge --output merged-$model --quiet > /dev/null || fail "export --merge"
        tested=$([ $model = bert ] && echo "--data parts --dataset text" || echo "--data synth --synth-test 32")
        for from in hf-$model $model-a merged-$model; do
            wide=$([ $model = bert ] && echo "--context 24 --tokens characters" || echo "--image-size 16")
            "$trireme" eval $model --checkpoint $from $tested $wide --json > loss-$from.json || fail "eval $from"
        done
    }
done
python3 - << 'END' || fail "bert and vit"
import checkpoint, json, struct
def read(path):
    return {name: data for name, (_, _, data) in checkpoint.open_safetensors(path).items()}
for model, count in ("bert", 2 * 2 * 3), ("vit", 2 * 2 * 6):
    base, run = read(f"{model}/ckpt-12/model.safetensors"), read(f"{model}-a/ckpt-12/model.safetensors")
    adapters = {n for n in run if ".lora_" in n}
    assert set(run) - adapters == set(base) and all(run[n] == base[n] for n in base), model
    assert len(adapters) == count and all(any(run[n]) for n in adapters), sorted(adapters)
    loss = [json.load(open(f"loss-{r}.json"))["loss"] for r in (f"hf-{model}", f"{model}-a", f"merged-{model}")]
    assert abs(loss[1] - loss[2]) < 1e-5 and abs(loss[1] - loss[0]) > 1e-4, (model, loss)
END

# ---- memory: gradients and slots of the adapters alone
for lora in "" "--lora r=4,targets=all"; do
    # shellcheck disable=SC2086
    "$trireme" plan gpt2 --size tiny --vocabulary 65 --context 64 --json $lora
done > plans.json
python3 - << 'END' || fail "memory: $(cat plans.json)"
import json
whole, lora = (json.loads(line) for line in open("plans.json"))
adapters = lora["parameters"] - whole["parameters"]
assert adapters == 4 * 4 * (128 * (1 + 1 + 1 + 4) + 3 * 128 + 128 + 512 + 128), adapters
for key, factor in ("gradient_bytes", 4), ("slot_bytes", 8):
    assert factor * adapters <= lora["memory"][key] <= factor * adapters * 1.05, (key, lora)
assert lora["flops"] < 0.75 * whole["flops"], (lora["flops"], whole["flops"])
END

# ---- wrong use
for wrong in r=0 r=1.5 r=x rank=4 r=4, r=4,alpha=-1 r=4,alpha=0 r=4,dropout=1 "r=4,targets=a b"; do
    # shellcheck disable=SC2086
    expect 2 "expected" train gpt2 $data --steps 1 --lora "$wrong"
done
# shellcheck disable=SC2086
expect 2 "r is missing" train gpt2 $data --steps 1 --lora alpha=3
# shellcheck disable=SC2086
expect 2 "gpt2 has no layer 'q_proj'; targets are attention, mlp, all, c_attn, attn.c_proj, c_fc, mlp.c_proj, joined" train gpt2 $data --steps 1 --lora r=4,targets=c_attn+q_proj
# shellcheck disable=SC2086
expect 2 "bert has no layer 'cls'; targets are attention, mlp, all, query, key, value, attention.output.dense, intermediate.dense, output.dense, joined" train bert $data $size --steps 1 --lora r=4,targets=cls
# shellcheck disable=SC2086
expect 2 "moe has no layer 'mlp'" train moe $data $size --steps 1 --lora r=4,targets=mlp
expect 2 "merged-gpt2: model.safetensors of another export is there" export gpt2 --checkpoint gpt2-a --to huggingface --output merged-gpt2
[ -e merged-gpt2/adapter_config.json ] && fail "a refused export has written"
expect 2 "merge: this gpt2 has no adapters" export gpt2 --checkpoint gpt2 --to huggingface --merge --output no
expect 2 "--merge is for --to huggingface" export gpt2 --checkpoint gpt2-a --to npz --merge --output no.npz
# shellcheck disable=SC2086
expect 2 "no tensor of gpt2" train gpt2 $data $size --lora r=4 --steps 1 --init llama
cp -r hf-gpt2 broken && sed -i 's/transformer.ln_f.bias/transformer.ln_f.bios/' broken/model.safetensors
# shellcheck disable=SC2086
expect 2 "has no tensor 'ln_f.bias'" train gpt2 $data --init broken --lora r=4 --steps 1

# ---- with peft
if ! sanitized && "$python" -c 'import torch, transformers, peft' 2> /dev/null; then
    "$python" "$source/tests/parity/lora.py" parts/test.txt gpt2 llama bert vit || fail "peft"
else
    echo "no python with peft: folders are not loaded there"
fi
exit $failed
