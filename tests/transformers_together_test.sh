#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dropout, accumulation, mixed precision and recomputation together, for all transformers, against plain runs: recomputation changes no
# bit; two accumulated halves are one batch; mixed precision stays near. Strict, on two ranks, has the bits of one, with all of them. A tied
# parameter is one: in the plan, in the checkpoint, in the optimiser's state.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
python3 -c "
import random
random.seed(4)
print('\n'.join(''.join(random.choice('abcdefgh ') for _ in range(47)) for _ in range(200)))" > text.txt
small="--layers 2 --width 32 --heads 2 --hidden 64 --seed 3 --optimizer adamw --learning-rate 0.002 --eval-every-epochs 0 --log-every 1 --json"
text="--data text.txt --tokens bytes --context 24"
declare -A job
job[gpt2]="$text"
job[llama]="$text --kv-heads 1 --untied"
job[bert]="$text --masking 0.3"
job[moe]="$text --experts 4 --top-experts 2"
job[vit]="--data synth --synth-train 96 --image-size 16 --patch 4 --classes 10"
# Writes the losses of a run into FILE.
losses() { # FILE MODEL ARGS...
    local file=$1 model=$2
    shift 2
    # shellcheck disable=SC2086
    timeout 120 "$trireme" train $model ${job[$model]} $small --steps 4 "$@" > out.txt 2> err.txt || fail "$model $*: $(tail -n 2 err.txt)"
    grep '"event":"step"' out.txt | grep -o '"loss":[^,]*' > "$file"
    [ "$(wc -l < "$file")" = 4 ] || fail "$model $*: $(cat "$file" err.txt)"
}
same() { cmp -s "$1" "$2" || fail "$3: $(paste "$1" "$2")"; }
near() { # FILE FILE RELATIVE WHAT
    paste "$1" "$2" | tr -d '":los' | awk -v most="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= most * $1)) bad = 1 } END { exit bad }' ||
        fail "$4: $(paste "$1" "$2")"
}
for model in gpt2 llama bert moe vit; do
    losses plain $model --batch-size 4
    losses halves $model --batch-size 2 --accumulate 2
    # moe's balance and bert's mean over masked tokens are of a batch: halves are not the whole
    case $model in
        gpt2 | llama | vit) near plain halves 2e-5 "$model: two halves" ;;
        *) near plain halves 0.1 "$model: two halves" ;;
    esac
    for precision in fp32 mixed; do
        for dropout in 0 0.1; do
            for accumulate in 1 2; do
                way=(--batch-size $((4 / accumulate)) --accumulate $accumulate --precision $precision --dropout $dropout)
                losses kept $model "${way[@]}"
                losses again $model "${way[@]}" --recompute block
                same kept again "$model ${way[*]}: recomputed"
                if [ $dropout = 0 ]; then
                    near plain kept "$([ $precision = mixed ] && echo 0.02 || echo 0.1)" "$model ${way[*]}: beside plain"
                else
                    cmp -s plain kept && fail "$model ${way[*]}: dropout has no effect"
                fi
            done
        done
    done
    together=(--accumulate 2 --dropout 0.1 --recompute block --deterministic strict --deterministic-block 1)
    losses one $model "${together[@]}" --batch-size 4
    losses two $model "${together[@]}" --batch-size 2 -n 2
    same one two "$model: strict on two ranks"
done

# ---- tied parameters
for tie in "" --untied; do
    "$trireme" plan llama --layers 1 --width 32 --heads 2 --vocabulary 5000 --context 24 --json $tie
done > plans.json
for model in gpt2 llama bert moe; do
    # shellcheck disable=SC2086
    timeout 120 "$trireme" train $model $text $small --steps 1 --batch-size 2 --output tied-$model > out.txt 2>&1 || fail "$model: $(cat out.txt)"
done
python3 - << 'END' || fail "tied parameters"
import json, struct
tied, untied = (json.loads(line) for line in open("plans.json"))
table = 5000 * 32
assert untied["parameters"] - tied["parameters"] == table
for key, bytes_each in ("parameter_bytes", 4), ("gradient_bytes", 4), ("slot_bytes", 8):
    apart = untied["memory"][key] - tied["memory"][key]
    assert apart == bytes_each * table, (key, apart)
for model in "gpt2", "llama", "bert", "moe":
    for file, count in ("model", 1), ("optimizer", 2):
        with open(f"tied-{model}/ckpt-1/{file}.safetensors", "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        tables = [name for name, t in header.items() if name != "__metadata__" and len(t["shape"]) == 2 and t["shape"][0] >= 256]
        assert len(tables) == count, (model, file, tables)
END
exit $failed
