#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# NumPy (and PyTorch, if it is installed) read Trireme's files, and Trireme reads theirs. Needs Debian's python3-numpy; skips (77)
# without it.
. "$(dirname "$0")/common.sh"
python=/usr/bin/python3
"$python" -c 'import numpy' 2> /dev/null || skip "no python3-numpy"
program="$TRIREME_BUILD/tests/save_interop_test"
"$program" write "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

"$python" - "$work" <<'PYTHON' || exit 1
import json, os, struct, sys
import numpy as np
work = sys.argv[1]

half = np.array([1, -2, np.inf], '<f2')
expected = {
    'conv1.weight': (np.arange(24, dtype='<f4') / 2 - 3).reshape(2, 3, 2, 2),
    'wide': np.arange(6, dtype='<f8') / 2 - 3,
    'bn1.num_batches_tracked': np.array(1234567890123, '<i8'),
    'index': np.array([[-2, -1], [0, 2147483647]], '<i4'),
    'brain': np.array([0x3f80, 0xc000, 0x7f80], '<u2'),
    'half': half,
    'small': np.array([-128, 127], 'i1'),
    'ü.bytes': np.array([[0, 1, 255]], 'u1'),
}

# A reader of safetensors in a few lines, by the published format.
words = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'BF16': '<u2', 'I64': '<i8', 'I32': '<i4',
         'I8': 'i1', 'U8': 'u1'}
def load(path):
    raw = open(path, 'rb').read()
    n, = struct.unpack('<Q', raw[:8])
    header = json.loads(raw[8:8 + n])
    meta = header.pop('__metadata__', {})
    out, covered = {}, 0
    for name, e in sorted(header.items(), key=lambda kv: kv[1]['data_offsets']):
        begin, end = e['data_offsets']
        assert begin == covered, name
        covered = end
        data = np.frombuffer(raw, words[e['dtype']], offset=8 + n + begin,
                             count=int(np.prod(e['shape'], dtype=np.int64)))
        assert data.nbytes == end - begin, name
        out[name] = data.reshape(e['shape'])
    assert 8 + n + covered == len(raw) and n % 8 == 0
    return out, meta

def save(path, arrays, meta):
    header, data, at = {'__metadata__': meta}, b'', 0
    word = {v: k for k, v in words.items()}
    for name, a in arrays.items():
        text = 'BF16' if name == 'brain' else word[a.dtype.str.replace('|', '')]
        header[name] = {'dtype': text, 'shape': list(a.shape), 'data_offsets': [at, at + a.nbytes]}
        data += a.tobytes()
        at += a.nbytes
    text = json.dumps(header).encode()      # spaces after separators, \u escapes, no padding
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)

def same(got, want, names):
    assert set(got) == set(names), (sorted(got), sorted(names))
    for name in names:
        assert got[name].shape == want[name].shape, name
        assert got[name].dtype == want[name].dtype, name
        assert got[name].tobytes() == want[name].tobytes(), name

for path in ('c.safetensors', 'out/ckpt-7/model.safetensors'):
    got, meta = load(os.path.join(work, path))
    same(got, expected, expected)
assert load(work + '/c.safetensors')[1] == {'format': 'pt'}

wide = dict(expected, brain=np.array([1, -2, np.inf], '<f4'))   # bfloat16 is widened
for path in ('c.npz', 'c64.npz'):
    with np.load(os.path.join(work, path)) as z:
        same({k: z[k] for k in z.files}, wide, wide)
    import zipfile
    assert zipfile.ZipFile(os.path.join(work, path)).testzip() is None
a = np.load(work + '/c.npy')
assert (a == expected['conv1.weight']).all() and a.dtype == np.float32
m = np.load(work + '/c.npy', mmap_mode='r')
assert (m == a).all()
assert np.load(work + '/scalar.npy') == 1234567890123 and np.load(work + '/scalar.npy').shape == ()

manifest = json.load(open(work + '/out/ckpt-7/manifest.json'))
assert manifest['global_step'] == 7 and manifest['seed'] == '0x%016x' % 42
assert manifest['files']['model.safetensors']['bytes'] == os.path.getsize(
    work + '/out/ckpt-7/model.safetensors')
state = open(work + '/out/checkpoint').read()
assert state.startswith('model_checkpoint_path: "ckpt-7"\n'), state

save(work + '/py.safetensors', expected, {'format': 'pt'})
np.savez(work + '/py.npz', **expected)
np.savez_compressed(work + '/py_compressed.npz', a=np.zeros(100))
np.save(work + '/py_object.npy', np.array([{}], dtype=object), allow_pickle=True)
np.save(work + '/py_fortran.npy', np.asfortranarray(expected['index']))
print('NumPy', np.__version__, 'agrees')

try:
    import torch
except ImportError:
    print('PyTorch: not installed, left out')
    sys.exit(0)
got, _ = load(work + '/c.safetensors')
conv = torch.nn.Conv2d(3, 2, 2, bias=False)
conv.load_state_dict({'weight': torch.from_numpy(got['conv1.weight'].copy())}, strict=True)
assert torch.equal(conv.weight.detach(), torch.arange(24.).reshape(2, 3, 2, 2) / 2 - 3)
brain = torch.from_numpy(got['brain'].view('<i2').copy()).view(torch.bfloat16)
assert torch.equal(brain.float(), torch.tensor([1, -2, float('inf')]))
print('PyTorch', torch.__version__, 'agrees')
PYTHON

if command -v xxh128sum >/dev/null; then # the checksum of the manifest is that tool's
    sum=$(xxh128sum "$work/out/ckpt-7/model.safetensors" | cut -d' ' -f1)
    grep -q "\"xxh3_128\":\"$sum\"" "$work/out/ckpt-7/manifest.json" || { echo "xxh128sum: $sum"; exit 1; }
fi
"$program" read "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
