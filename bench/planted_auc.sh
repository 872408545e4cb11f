#!/usr/bin/env bash
# Each recommendation model on generated clicks against the best AUC that there is (Bayes' on the same test rows): the
# difference must be at most 0.001. About a minute a model on one core; usage: TRIREME=build/release/trireme planted_auc.sh [MODEL...]
set -u
trireme=${TRIREME:-trireme}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0
for model in "${@:-widedeep deepfm dcnv2 dlrm}"; do
    for name in $model; do
        "$trireme" train "$name" --threads "${THREADS:-1}" --data synth --fields 4 --dense 3 --table-rows 12 --synth-train 1000000 \
            --synth-test 200000 --batch-size 1024 --epochs 5 --hidden 64,32 --bottom 32 --embedding-width 8 --optimizer adam \
            --learning-rate 0.005 --schedule cosine --json > "$out" || failed=1
        python3 - "$name" "$out" << 'END' || failed=1
import json, sys
events = [json.loads(line) for line in open(sys.argv[2])]
e = [v for v in events if v["event"] == "eval"][-1]
done = events[-1]
gap = e["bayes_auc"] - e["auc"]
print(f"{sys.argv[1]:9} auc {e['auc']:.6f}, bayes {e['bayes_auc']:.6f}, short by {gap:.6f}; logloss {e['logloss']:.6f}, bayes {e['bayes_logloss']:.6f}; "
      f"calibration {e['calibration']:.4f}; {done['seconds']:.0f} s")
sys.exit(0 if gap <= 0.001 else 1)
END
    done
done
exit $failed
