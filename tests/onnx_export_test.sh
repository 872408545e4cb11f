#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exported models in ONNX Runtime: the checker passes, and logits agree with Trireme's to 1e-4, with another batch too. Needs a python
# with onnxruntime and onnx: PYTHON, Debian's, or the one that tools/readers.sh makes.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
have() { "$1" -c 'import onnx, onnxruntime; onnxruntime.InferenceSession' 2> /dev/null; }
for python in ${PYTHON:+"$PYTHON"} /usr/bin/python3 "$peers/readers/bin/python" ''; do
    [ -z "$python" ] && skip "no python with onnx and onnxruntime (tools/readers.sh makes one)"
    have "$python" && break
done
"$TRIREME_BUILD/tests/onnx_export_test" "$work" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$python" - "$work" << 'END'
import glob, os, sys
import numpy as np, onnx, onnxruntime
worst = 0
files = sorted(glob.glob(sys.argv[1] + "/*.onnx"))
assert len(files) == 10, files
for path in files:
    stem = path[:-5]
    onnx.checker.check_model(path, full_check=True)
    logits = np.load(stem + ".logits.npy")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {i.name: np.load("%s.in.%s.npy" % (stem, i.name)) for i in session.get_inputs()}
    out, = session.run(["logits"], inputs)
    scale = np.abs(logits).max()
    error = np.abs(out - logits).max() / scale
    alone, = session.run(["logits"], {name: value[:1] for name, value in inputs.items()})
    single = np.abs(alone - logits[:1]).max() / scale
    print("%-12s relative error %.1e, batch of one %.1e" % (os.path.basename(stem), error, single))
    assert error < 1e-4 and single < 1e-4
    assert np.abs(logits[0] - logits[1]).max() > 1e-3 * scale  # the inputs matter
END
