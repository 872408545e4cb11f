#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hugging Face folders of gpt2, llama, bert and vit: import, --init, export in one file and in several, wrong folders; and, where a python has
# torch and transformers (PYTHON, or the oracle in the cache), the same logits, losses and greedy texts of random models.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
python=${PYTHON:-$peers/oracle/bin/python}

for i in $(seq 60); do echo "the rank sends row $i"; echo "a server keeps the é table $((i * 7))"; done > text.txt
"$trireme" tokenizer train text.txt --vocabulary 290 --special-tokens '<|endoftext|>,[MASK],[PAD],[CLS],[SEP]' --output tokenizer --quiet > /dev/null || fail "tokenizer"

# ---- without transformers: what is exported is imported again, bit for bit
size="--layers 2 --width 32 --heads 4 --context 24"
"$trireme" train gpt2 --data text.txt --dataset text --tokenizer tokenizer $size --steps 3 --batch-size 4 --eval-every-epochs 0 --quiet --output a \
    > log.txt 2>&1 || { fail "train"; cat log.txt; }
"$trireme" train llama --data text.txt --dataset text --tokenizer tokenizer $size --kv-heads 2 --untied --rotary-theta 777 --steps 3 --batch-size 4 \
    --eval-every-epochs 0 --quiet --output b > log.txt 2>&1 || { fail "train"; cat log.txt; }
"$trireme" train bert --data text.txt --dataset text --tokenizer tokenizer $size --hidden 48 --steps 3 --batch-size 4 --eval-every-epochs 0 --quiet --output c \
    > log.txt 2>&1 || { fail "train"; cat log.txt; }
for run in "gpt2 a" "llama b" "bert c"; do
    set -- $run
    expect 0 "hf-$2" export "$1" --checkpoint $2 --to huggingface --output hf-$2
    expect 0 "cut-$2" export "$1" --checkpoint hf-$2 --to huggingface --output cut-$2 --shard-bytes 20K
    [ "$(find cut-$2 -name 'model-*-of-*.safetensors' | wc -l)" -gt 2 ] || fail "few files in cut-$2"
    expect 0 "again-$2/ckpt-0" import "$1" --from cut-$2 --output again-$2
    for from in $2 again-$2 hf-$2; do
        "$trireme" export "$1" --checkpoint $from --to safetensors --output x-$from.safetensors --quiet > /dev/null || fail "export of $from"
    done
    cmp x-$2.safetensors x-again-$2.safetensors && cmp x-$2.safetensors x-hf-$2.safetensors || fail "the weights of $1 have changed"
    "$trireme" eval "$1" --checkpoint $2 --data text.txt --dataset text --json > direct.json || fail "eval $2"
    "$trireme" eval "$1" --checkpoint hf-$2 --data text.txt --dataset text --json --context 24 > folder.json || fail "eval hf-$2"
    python3 -c 'import json; a, b = (json.loads(open(n).read())["loss"] for n in ("direct.json", "folder.json")); assert a == b, (a, b)' || fail "losses of $1"
    "$trireme" train "$1" --data text.txt --dataset text --init hf-$2 --steps 1 --batch-size 4 --learning-rate 1e-9 --eval-every-epochs 0 --json > init.json \
        || fail "train --init hf-$2"
done
# A folder that an earlier export filled has only the weights of the last one: readers prefer one file, and load adapters that lie beside.
touch hf-a/adapter_config.json hf-a/adapter_model.safetensors
cp -r hf-a over
expect 0 "over" export gpt2 --checkpoint a --to huggingface --output over --shard-bytes 20K
[ -e over/model.safetensors ] || [ -e over/adapter_config.json ] && fail "an earlier export is left: $(ls over)"
expect 0 "over" export gpt2 --checkpoint a --to huggingface --output over --shard-bytes 40K
[ "$(ls over | sed -n 's/^model-.*-of-//p' | sort -u | wc -l)" = 1 ] || fail "shards of an earlier export are left: $(ls over)"
expect 0 "over" export gpt2 --checkpoint over --to huggingface --output over
ls over | grep -q "index.json\|model-" && fail "an earlier index or its shards are left: $(ls over)"
"$trireme" export gpt2 --checkpoint over --to safetensors --output x-over.safetensors --quiet > /dev/null && cmp x-a.safetensors x-over.safetensors || fail "written over"
rm hf-a/adapter_*
"$trireme" train vit --data synth --synth-train 64 --synth-test 32 --layers 2 --width 32 --heads 4 --hidden 48 --patch 8 --classes 12 --steps 3 --batch-size 4 \
    --eval-every-epochs 0 --quiet --output v > log.txt 2>&1 || { fail "train vit"; cat log.txt; }
expect 0 "hf-v" export vit --checkpoint v --to huggingface --output hf-v
expect 0 "again-v/ckpt-0" import vit --from hf-v --output again-v
for from in v again-v hf-v; do
    "$trireme" export vit --checkpoint $from --to safetensors --output x-$from.safetensors --quiet > /dev/null || fail "export of $from"
    "$trireme" eval vit --checkpoint $from --data synth --synth-test 32 --json | sed 's/,"seconds.*//' > eval-$from.json || fail "eval $from"
done
cmp x-v.safetensors x-again-v.safetensors && cmp x-v.safetensors x-hf-v.safetensors || fail "the weights of vit have changed"
cmp eval-v.json eval-hf-v.json && cmp eval-v.json eval-again-v.json && grep -q top1 eval-v.json || fail "evaluations of vit differ: $(cat eval-*v.json)"
"$trireme" train vit --data synth --synth-train 64 --init hf-v --steps 1 --batch-size 4 --eval-every-epochs 0 --json > init.json || fail "train --init hf-v"
"$trireme" train gpt2 --data text.txt --dataset text --tokenizer tokenizer $size --kv-heads 2 --steps 1 --batch-size 4 --eval-every-epochs 0 --quiet --output g \
    > log.txt 2>&1 || { fail "train gpt2 --kv-heads"; cat log.txt; }
expect 2 "transformers has no gpt2 with fewer key heads" export gpt2 --checkpoint g --to huggingface --output hf-g
expect 2 "model_type is 'vit'; gpt2, llama, bert can be read here" import gpt2 --from hf-v --output no
expect 2 "model_type is 'gpt2'; vit can be read here" import vit --from hf-a --output no
expect 2 "'classifier.weight' has shape [12, 32], the network's has [13, 32]" train vit --data synth --init hf-v --classes 13 --steps 1
cp -r hf-v broken-v
# The folder's normalisation is that of evaluation and training: another one gives another loss, and the checkpoint keeps it.
eval_vit() { "$trireme" eval vit --checkpoint "$1" --data synth --synth-test 32 --json | sed 's/,"seconds.*//'; }
set_processor() { # JSON MEMBERS
    rm -rf norm-v norm-i && cp -r hf-v norm-v && echo "{$1}" > norm-v/preprocessor_config.json
}
set_processor '"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]'
half=$(eval_vit norm-v)
[ "$half" = "$(eval_vit hf-v)" ] && fail "the folder's normalisation is not used"
expect 0 "norm-i/ckpt-0" import vit --from norm-v --output norm-i
[ "$(eval_vit norm-i)" = "$half" ] || fail "the imported normalisation: $(eval_vit norm-i), $half expected"
"$trireme" train vit --data synth --synth-train 64 --synth-test 32 --init norm-v --steps 1 --batch-size 4 --eval-every-epochs 0 --quiet --output norm-t \
    > log.txt 2>&1 && grep -q '"image_mean":\[0.5,0.5,0.5\],"image_std":\[0.5,0.5,0.5\]' norm-t/ckpt-1/manifest.json ||
    fail "train --init norm-v: $(cat log.txt) $(grep -o 'image_mean.*' norm-t/ckpt-1/manifest.json)"
for init in "" "--init norm-v"; do # a resumed run needs no --init for it
    # shellcheck disable=SC2086
    "$trireme" train vit --data synth --synth-train 64 --synth-test 32 --layers 2 --width 32 --heads 4 --hidden 48 --patch 8 --classes 12 $init --steps 2 --batch-size 4 \
        --eval-every-epochs 0 --quiet --resume --output norm-t > log.txt 2>&1 && grep -q '"image_mean":\[0.5,0.5,0.5\]' norm-t/ckpt-2/manifest.json ||
        fail "a resumed run, $init: $(cat log.txt) $(grep -o 'image_mean.*' norm-t/ckpt-2/manifest.json)"
    rm -r norm-t/ckpt-2
done
set_processor '"do_normalize": false, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]'
[ "$(eval_vit norm-v)" = "$half" ] && fail "do_normalize is not read"
set_processor '"rescale_factor": 0.00784'
expect 2 "another factor cannot be read here" eval vit --checkpoint norm-v --data synth
sed 's/"qkv_bias": true/"qkv_bias": false/' hf-v/config.json > broken-v/config.json
expect 2 'qkv_bias is false; only true can be read here' import vit --from broken-v --output no
python3 - << 'END' # as BERT's first files name their norms
import json, struct
blob = open("hf-c/model.safetensors", "rb").read()
size = struct.unpack("<Q", blob[:8])[0]
head = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t for name, t in json.loads(blob[8:8 + size]).items()}
text = json.dumps(head).encode()
open("old.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + blob[8 + size:])
END
cp -r hf-c old-c && mv old.safetensors old-c/model.safetensors
"$trireme" export bert --checkpoint old-c --to safetensors --output x-old-c.safetensors --quiet > /dev/null && cmp x-c.safetensors x-old-c.safetensors || fail "gamma and beta"
# Tensors that the network does not have are named once, and not those that PyTorch's programs write besides.
cat > add.py << 'END'
import json, struct, sys
source, target, *names = sys.argv[1:]
blob = open(source, "rb").read()
size = struct.unpack("<Q", blob[:8])[0]
head, data = json.loads(blob[8:8 + size]), blob[8 + size:]
for name in names:
    head[name] = {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
    data += bytes(8)
text = json.dumps(head).encode()
open(target, "wb").write(struct.pack("<Q", len(text)) + text + data)
END
cp -r hf-b more
python3 add.py hf-b/model.safetensors more/model.safetensors model.layers.0.self_attn.q_proj.bias model.layers.{2,3,4}.mlp.up_proj.weight \
    model.layers.0.self_attn.rotary_emb.inv_freq
unused="4 of 26 tensors are not used, because the network has none of these names: model.layers.0.self_attn.q_proj.bias, model.layers.2.mlp.up_proj.weight,"
expect 0 "more: $unused" import llama --from more --output again-more
expect 0 "more/model.safetensors: $unused" import llama --from more/model.safetensors $size --kv-heads 2 --untied --rotary-theta 777 --vocabulary 290 --output file-more
for run in "" "-n 2 --launch-dir logs" "-n 1 --ps 1 --launch-dir logs-ps"; do
    # shellcheck disable=SC2086
    "$trireme" train llama --data text.txt --dataset text --init more --steps 1 --batch-size 4 --eval-every-epochs 0 $run > log.txt 2>&1 || { fail "more $run"; cat log.txt; }
    [ "$(grep -c "more: $unused" log.txt)" = 1 ] || fail "warnings of --init more $run: $(cat log.txt)"
done
cp -r hf-a masks
python3 add.py hf-a/model.safetensors masks/model.safetensors transformer.h.0.attn.bias transformer.h.1.attn.masked_bias
"$trireme" import gpt2 --from masks --output again-masks > log.txt 2>&1 || fail "masks"
grep -q "not used" log.txt && fail "masks are counted: $(cat log.txt)"
# A second name of a tied embedding is left out where it has the same values; else it is an output layer of its own in transformers 5.
cat > write_second_name.py << 'END'
import json, struct, sys
source, target, name, copy, same = sys.argv[1:]
blob = open(source, "rb").read()
size = struct.unpack("<Q", blob[:8])[0]
head, data = json.loads(blob[8:8 + size]), bytearray(blob[8 + size:])
begin, end = head[name]["data_offsets"]
head[copy] = {**head[name], "data_offsets": [len(data), len(data) + end - begin]}
data += data[begin:end]
if same == "other":
    data[-1] ^= 64
text = json.dumps(head).encode()
open(target, "wb").write(struct.pack("<Q", len(text)) + text + data)
END
"$trireme" train llama --data text.txt --dataset text --tokenizer tokenizer $size --steps 1 --batch-size 4 --eval-every-epochs 0 --quiet --output t > log.txt 2>&1 &&
    "$trireme" export llama --checkpoint t --to huggingface --output hf-t --quiet > log.txt 2>&1 || fail "tied llama: $(cat log.txt)"
while read -r model folder name copy; do
    for same in same other; do
        rm -rf copied no-copied && cp -r $folder copied
        python3 write_second_name.py $folder/model.safetensors copied/model.safetensors "$name" "$copy" $same || fail "write_second_name.py"
        if [ $same = same ]; then
            expect 0 "no-copied/ckpt-0" import $model --from copied --output no-copied
            grep -q "not used" out.txt && fail "$copy is counted: $(cat log.txt)"
        else
            expect 2 "'$copy' differs from '$name', of which it is a copy" import $model --from copied --output no
            expect 2 "'$copy' differs from '$name'" import $model --from copied/model.safetensors $size --hidden 48 --vocabulary 290 --output no
            for run in "-n 2 --launch-dir logs" "-n 1 --ps 1 --launch-dir logs-ps"; do
                # shellcheck disable=SC2086
                timeout 120 "$trireme" train $model --data text.txt --dataset text --init copied --steps 1 --batch-size 4 --eval-every-epochs 0 $run > log.txt 2>&1 &&
                    fail "$model $run begins with $copy"
                cat log.txt logs*/*/*log* 2> /dev/null | grep -q "'$copy' differs from '$name'" || fail "$model $run: $(cat log.txt)"
            done
        fi
    done
done << 'END'
gpt2 hf-a transformer.wte.weight lm_head.weight
llama hf-t model.embed_tokens.weight lm_head.weight
bert hf-c bert.embeddings.word_embeddings.weight cls.predictions.decoder.weight
bert hf-c cls.predictions.bias cls.predictions.decoder.bias
END
# Adapters beside the weights, which transformers would add, and a folder that lacks a tensor, with servers, too.
rm -rf copied && cp -r hf-a copied && echo '{"peft_type": "LORA"}' > copied/adapter_config.json
expect 2 "copied: adapter_config.json is there" import gpt2 --from copied --output no
rm copied/adapter_config.json
sed 's/"n_layer": 2/"n_layer": 2, "num_hidden_layers": 1/' hf-a/config.json > copied/config.json
expect 3 '"n_layer" and "num_hidden_layers" differ' import gpt2 --from copied --output no
sed 's/"n_layer": 2/"num_hidden_layers": 2/' hf-a/config.json > copied/config.json
expect 0 "alias/ckpt-0" import gpt2 --from copied --output alias
sed 's/"n_layer": 2/"n_layer": 3/' hf-a/config.json > copied/config.json
for run in "" "-n 1 --ps 1 --launch-dir logs-less"; do
    # shellcheck disable=SC2086
    timeout 120 "$trireme" train gpt2 --data text.txt --dataset text --init copied --steps 1 --batch-size 4 --eval-every-epochs 0 $run > log.txt 2>&1 && fail "lacking $run"
    cat log.txt logs-less/*/*log* 2> /dev/null | grep -q "copied has no tensor 'h.2" || fail "a folder without h.2, $run: $(cat log.txt)"
done
# Ends of a text: those of generation_config.json, else of config.json; they go through import, training and export. The token before a
# text is the post-processor's.
cp -r hf-a ends
python3 - << 'END'
import json
tokenizer = json.load(open("ends/tokenizer.json"))
tokenizer["post_processor"] = {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, {
    "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [3], "tokens": ["[CLS]"]}}}]}
json.dump(tokenizer, open("ends/tokenizer.json", "w"))
END
generate() { # FOLDER: ids that the model there adds to a prompt
    "$trireme" generate gpt2 --checkpoint "$1" --prompt "the rank" --tokens 12 --temperature 3 --seed 5 --json > event.json 2> log.txt || fail "generate $1: $(cat log.txt)"
    python3 -c 'import json; e = json.load(open("event.json")); print(e["prompt_tokens"], *e["token_ids"])'
}
read -r plain _ <<< "$(generate hf-a)"
read -r before first second third all <<< "$(generate ends)"
[ "$before" = $((plain + 1)) ] || fail "prompts of $plain and $before tokens"
"$trireme" generate gpt2 --checkpoint ends --prompt "the rank" --tokens 1 > out.txt && [ "$(head -c 8 out.txt)" = "the rank" ] || fail "$(cat out.txt)"
echo "{\"eos_token_id\": [289, $third]}" > ends/generation_config.json
expected="$before $first $second"
[ "$third" = "$first" ] || [ "$third" = "$second" ] && fail "another --seed is needed: $first $second $third $all"
[ "$(generate ends)" = "$expected" ] || fail "ends: $(generate ends), $expected expected"
expect 0 "ends-i/ckpt-0" import gpt2 --from ends --output ends-i
[ "$(generate ends-i)" = "$expected" ] || fail "imported ends: $(generate ends-i), $expected expected"
expect 0 "ends-o" export gpt2 --checkpoint ends-i --to huggingface --output ends-o
[ "$(generate ends-o)" = "$expected" ] || fail "exported ends: $(generate ends-o), $expected expected"
"$trireme" train gpt2 --data text.txt --dataset text --init ends --steps 1 --batch-size 4 --eval-every-epochs 0 --output ends-t --quiet > log.txt 2>&1 || fail "ends-t"
grep -q "$third" ends-t/tokenizer/generation_config.json || fail "a training forgets the ends of --init"
[ -e hf-a/generation_config.json ] && fail "the tokenizer's own end needs no file"
sed -i 's/"single": \[/&{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, /' ends/tokenizer.json
expect 2 "several tokens before a text" tokenizer encode text.txt --tokenizer ends --output no.bin
grep -q '"mask_token": "\[MASK\]"' hf-c/tokenizer_config.json && grep -q '"pad_token_id": 2' hf-c/config.json || fail "special tokens: $(cat hf-c/*config.json)"
expect 2 "is of gpt2, not of llama" import llama --from hf-a --output no
expect 2 "'wte.weight' has shape [290, 32], the network's has [290, 64]" train gpt2 --data text.txt --dataset text --init hf-a --width 64 --steps 1
expect 2 "is for language models and vit, not for lenet" export lenet --checkpoint a --to huggingface --output no

# ---- a folder with another configuration, or without its files, is refused
cp -r hf-b broken
set_config() { # SED-EXPRESSION: broken/config.json becomes hf-b/config.json as the expression changes it
    sed "$1" hf-b/config.json > broken/config.json
    cmp -s hf-b/config.json broken/config.json && fail "$1 changes nothing"
}
refuse_config() { # CODE MESSAGE SED-EXPRESSION: with the changed configuration the import ends with CODE and MESSAGE
    set_config "$3"
    expect "$1" "$2" import llama --from broken --output no
}
refuse_config 2 'hidden_act is "relu"; only "silu" can be read here' 's/"silu"/"relu"/'
refuse_config 3 '"num_hidden_layers": a whole number from 1 to 4096 expected' 's/"num_hidden_layers": 2/"num_hidden_layers": "2"/'
refuse_config 3 '"num_hidden_layers": a whole number from 1 to 4096 expected' 's/"num_hidden_layers": 2/"num_hidden_layers": 1000000000/'
refuse_config 2 'head_dim is 16; only hidden_size / num_attention_heads, 8, can be read here' 's/"num_hidden_layers": 2/&, "head_dim": 16.0/'
refuse_config 2 'sliding_window is set; only models without it' 's/"num_hidden_layers": 2/&, "sliding_window": 16/'
refuse_config 2 'quantization_config is set; only models without it' 's/"num_hidden_layers": 2/&, "quantization_config": {"bits": 4}/'
refuse_config 2 "rope_type is 'linear'; only default can be read here" 's/"num_hidden_layers": 2/&, "rope_parameters": {"type": "linear", "factor": 2}/'
refuse_config 3 '"rope_theta": a number above 0 expected' 's/"rope_theta": [^,]*/"rope_theta": "777"/'
refuse_config 3 '"rms_norm_eps": a number above 0 expected' 's/"rms_norm_eps": [^,]*/"rms_norm_eps": "1e-6"/'
refuse_config 2 "model_type is 'mamba'; gpt2, llama, bert can be read here" 's/"llama"/"mamba"/'
set_config '/"rms_norm_eps"/d' # then transformers' 1e-6, not the 1e-5 of new models
expect 0 "no-eps/ckpt-0" import llama --from broken --output no-eps
grep -q '"epsilon":9.99999999999999[0-9]*e-7' no-eps/ckpt-0/manifest.json || fail "epsilon: $(grep -o '"epsilon":[^,]*' no-eps/ckpt-0/manifest.json)"
echo '{' > broken/config.json
expect 3 "config.json: line" import llama --from broken --output no
cp hf-b/config.json broken/ && rm broken/model.safetensors
expect 3 "neither model.safetensors nor model.safetensors.index.json" import llama --from broken --output no
cp -r cut-b twice && for file in twice/model-0000[12]-of-*; do cp "$file" "twice/copy-${file##*/}"; done
python3 - << 'END'
import glob, json
index = json.load(open("twice/model.safetensors.index.json"))
index["weight_map"]["another"] = glob.glob("copy-*", root_dir="twice")[0]
json.dump(index, open("twice/model.safetensors.index.json", "w"))
END
expect 3 "two of its files have" import llama --from twice --output no
echo '{"weight_map": {"a": "../a.safetensors"}}' > broken/model.safetensors.index.json
expect 3 "names without '/' expected" import llama --from broken --output no
[ -e no ] && fail "a failed import has written"

# ---- with transformers
if ! sanitized && "$python" -c 'import torch, transformers' 2> /dev/null; then
    "$python" "$source/tests/parity/huggingface.py" "$trireme" tokenizer text.txt || fail "transformers"
else
    echo "no python with transformers: folders are not loaded there"
fi
exit $failed
