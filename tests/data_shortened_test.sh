#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A data file becomes shorter while a job trains on it: the job ends with exit code 3 and names the file and both sizes, without
# SIGBUS. Each form of data that is mapped is cut in the middle, at a page and within the last page.
. "$(dirname "$0")/common.sh"

# FILE BYTES ARGS...: trains for ever, and cuts the file to BYTES once the job has made steps
shortened() {
    local file=$1 bytes=$2 size code
    shift 2
    size=$(stat -c %s "$file")
    rm -f steps # those of the job before
    timeout 120 "$trireme" train "$@" --steps 100000000 --threads 1 --log-every 1 --json --learning-rate 0.01 > steps 2> err &
    local job=$!
    for _ in $(seq 1200); do
        grep -qs '"step":3,' steps && break
        kill -0 $job 2> /dev/null || break
        sleep 0.05
    done
    grep -q '"step":3,' steps || fail "$*: no steps: $(tail -2 err)"
    truncate -s "$bytes" "$file"
    wait $job
    code=$?
    [ $code = 3 ] || fail "$* with $bytes bytes: exit $code, 3 expected: $(tail -2 err)"
    grep -qF "$file: the file became shorter while it was read (found $bytes bytes, expected $size)" err ||
        fail "$*: not named: $(tail -2 err)"
}

"$trireme" data synth --output cifar --synth-train 2000 --synth-test 20 > out 2>&1 || fail "data synth: $(cat out)"
cp -r cifar again
for cut in "cifar 0" "again 300001"; do
    # shellcheck disable=SC2086
    set -- $cut
    shortened "$1/data_batch_3.bin" "$2" mlp --data "$1" --batch-size 16 --workers 2
done

python3 - << 'END' || fail "the data"
import random, tfrecord
random.seed(1)
rows = 20000
with open("rows.csv", "w") as csv, open("rows.libsvm", "w") as svm, open("rows.slots.txt", "w") as slots:
    csv.write("label,a,b\n")
    for i in range(rows):
        label, a, b = random.randrange(2), random.randrange(50), random.randrange(50)
        csv.write(f"{label},{a},{b}\n")
        svm.write(f"{label} {a}:1 {50 + b}:1\n")
        slots.write(f"click:{label} 1:{a} 2:{b}\n")
with open("rows.tfrecord", "wb") as records:
    records.write(b"".join(tfrecord.record(tfrecord.feature("label", 3, tfrecord.field(1, bytes([i % 2]))) +
                                           tfrecord.feature("a", 1, tfrecord.field(1, b"x%d" % (i % 9)))) for i in range(rows // 4)))
END
for kind in csv:$((20 * 1000)) libsvm:7 slots:$((4096 * 9)) tfrecord-clicks:$((100 * 1000)); do
    name=rows.${kind%%:*}
    [ -f "$name" ] || name=rows.slots.txt
    columns=
    [ "${kind%%:*}" = tfrecord-clicks ] && name=rows.tfrecord columns="--columns label:label,a:key"
    # shellcheck disable=SC2086
    shortened "$name" "${kind##*:}" widedeep --data "$name" --dataset "${kind%%:*}" $columns --table-rows 100 --batch-size 64
done
exit $failed
