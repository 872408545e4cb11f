#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks docs/guides/from-guide-000.md: runs its commands unchanged, finds the names of its C block in the headers and the flags of
# its tables in the help of train, and compares the settings of its role.sh with those of the job.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
mkdir "$work/bin" && ln -s "$trireme" "$work/bin/trireme" && PATH=$work/bin:$PATH
awk '/^```bash$/ {n++; on = 1; next} /^```$/ {on = 0} on {print > ("block" n)}' "$source/docs/guides/from-guide-000.md"
blocks=$(find . -name 'block*' | grep -c .)
[ "$blocks" -ge 7 ] || { echo "FAIL: $blocks blocks of commands found"; exit 1; }
for i in $(seq "$blocks"); do
    # Background processes must succeed too: `wait` alone would hide their exit codes.
    sed 's/&$/\&\npids="$pids $!"/; s/^wait$/for p in $pids; do wait $p || exit 1; done; pids=/' "block$i" > "run$i"
    { echo 'set -e; pids='; cat "run$i"; } > "script$i"
    timeout 200 bash "script$i" > "out$i" 2>&1 || fail "block $i: $(tail -n 5 "out$i")"
done
grep -q "this process: worker, trainer 0 of 2 (saves" out1 || { echo "FAIL: the plan: $(cat out1)"; failed=1; }
for dir in multiworker redefined oneline; do
    grep -q '"state": "done"' $dir/job.json || { echo "FAIL: $dir: $(cat $dir/job.json)"; failed=1; }
    ls $dir/events.out.tfevents.* > /dev/null || failed=1
done
ls multiworker/eval/events.out.tfevents.* > /dev/null || failed=1
grep -qE "global step (20|21): " out3 || fail "the late evaluator: $(cat out3)"
# ---- the settings of the guide's NPURunConfig, as role.sh of the second block gives them
python3 - << 'END' || fail "settings of role.sh"
import subprocess
plan = subprocess.run(["bash", "role.sh", "--job_name=worker", "--task_index=1", "--check", "--json"],
                      capture_output=True, text=True, check=True).stdout.splitlines()[-1]
import json
plan = json.loads(plan)
want = {"model_dir": "multiworker", "keep_checkpoint_max": 5, "save_summary_steps": 1, "log_step_count_steps": 1,
        "save_checkpoints_steps": 10, "iterations_per_loop": 1, "precision_mode": "allow_mix_precision", "mix_compile_mode": True}
assert {k: plan[k] for k in want} == want, plan
END
# ---- each field and function in the C block and in the tables is one of the headers'
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$source/docs/guides/from-guide-000.md" > lines.c
grep -oE "\.[a-z_]+ =|trm_[a-z_]+|TRM_[A-Z_]+" lines.c | tr -d '. =' | sort -u > names
[ "$(grep -c . names)" -ge 20 ] || fail "only $(grep -c . names) names in the block of C"
while read -r name; do
    grep -rqw -- "$name" "$source/include/trireme" || fail "docs/guides/from-guide-000.md: no header has $name"
done < names
# ---- each flag in the tables is one of train's
"$trireme" help train > help
grep -E '^\|' "$source/docs/guides/from-guide-000.md" | grep -oE -- '`[^`]*`' | grep -oE -- '--[a-z][a-z_-]+' | sort -u > flags
[ "$(grep -c . flags)" -ge 12 ] || fail "only $(grep -c . flags) flags in the tables"
while read -r flag; do
    grep -qw -- "$flag" help || fail "docs/guides/from-guide-000.md: train has no $flag"
done < flags
# ---- each setting of the guide's NPURunConfig is in the table
for name in model_dir session_config keep_checkpoint_max save_summary_steps log_step_count_steps save_checkpoints_steps \
    enable_data_pre_proc mix_compile_mode iterations_per_loop precision_mode distribute; do
    grep -qE "^\| \`$name" "$source/docs/guides/from-guide-000.md" || fail "docs/guides/from-guide-000.md: $name is not in the table"
done
exit $failed
