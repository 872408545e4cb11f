#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains each recommendation model on generated clicks and compares its AUC with the best possible one (Bayes' on the same test rows), on
# one device, and with two workers and a parameter server, synchronous and asynchronous. The difference must be at most 0.001.
# usage: [MODES="device sync async"] [THREADS=1] TRIREME=build/release/trireme bench/planted_auc.sh [MODEL...]
# On two quiet cores a model takes about 20 s on one device, a minute with servers.
set -u
trireme=$(realpath "${TRIREME:-$(command -v trireme)}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
common="--data synth --fields 4 --dense 3 --table-rows 12 --synth-train ${TRAIN:-1000000} --synth-test 200000 --epochs 8 --hidden 64,32
    --bottom 32 --embedding-width 8 --optimizer adam --learning-rate 0.005 --schedule cosine --json"
for model in ${*:-widedeep deepfm dcnv2 dlrm}; do
    for mode in ${MODES:-device sync async}; do
        case $mode in
        device) how="--threads ${THREADS:-1} --batch-size 1024" ;;
        sync) how="-n 2 --ps 1 --mode sync --batch-size 512 --output sync-$model" ;;
        async) how="-n 2 --ps 1 --mode async --batch-size 1024 --output async-$model" ;;
        esac
        # shellcheck disable=SC2086
        OMP_NUM_THREADS=1 "$trireme" train "$model" $common $how > out.json 2> err || { failed=1; tail -n 3 err; }
        python3 - "$model" "$mode" "${TOLERANCE:-0.001}" << 'END' || failed=1
import json, sys
events = [json.loads(line) for line in open("out.json") if line.startswith("{")]
e = [v for v in events if v["event"] == "eval"][-1]
done = [v for v in events if v["event"] == "done"][-1]
gap = e["bayes_auc"] - e["auc"]
print(f"{sys.argv[1]:9} {sys.argv[2]:7} auc {e['auc']:.6f}, bayes {e['bayes_auc']:.6f}, short by {gap:.6f}; logloss {e['logloss']:.6f}, "
      f"bayes {e['bayes_logloss']:.6f}; calibration {e['calibration']:.4f}; {done['global_step']} updates, {done['seconds']:.0f} s",
      "" if gap <= float(sys.argv[3]) else "  TOO FAR", flush=True)
sys.exit(0 if gap <= float(sys.argv[3]) else 1)
END
    done
done
exit $failed
