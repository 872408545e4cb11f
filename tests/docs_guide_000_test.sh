#!/usr/bin/env bash
# The commands of docs/from-guide-000.md, as they stand there.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
mkdir "$work/bin" && ln -s "$trireme" "$work/bin/trireme" && PATH=$work/bin:$PATH
awk '/^```bash$/ {n++; on = 1; next} /^```$/ {on = 0} on {print > ("block" n)}' "$source/docs/from-guide-000.md"
blocks=$(find . -name 'block*' | grep -c .)
[ "$blocks" -ge 6 ] || { echo "FAIL: $blocks blocks of commands found"; exit 1; }
for i in $(seq "$blocks"); do
    # Background processes count, too: an exit status of `wait` alone would hide them.
    sed 's/&$/\&\npids="$pids $!"/; s/^wait$/for p in $pids; do wait $p || exit 1; done; pids=/' "block$i" > "run$i"
    { echo 'set -e; pids='; cat "run$i"; } > "script$i"
    timeout 60 bash "script$i" > "out$i" 2>&1 || { echo "FAIL: block $i: $(tail -n 5 "out$i")"; failed=1; }
done
grep -q "this process: worker, trainer 0 of 2 (saves" out1 || { echo "FAIL: the plan: $(cat out1)"; failed=1; }
for dir in multiworker redefined oneline; do
    grep -q '"state": "done"' $dir/job.json || { echo "FAIL: $dir: $(cat $dir/job.json)"; failed=1; }
    ls $dir/events.out.tfevents.* > /dev/null || failed=1
done
ls multiworker/eval/events.out.tfevents.* > /dev/null || failed=1
exit $failed
