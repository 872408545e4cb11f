# SPDX-License-Identifier: Apache-2.0
"""A second reader of checkpoint folders: docs/reference/checkpoint.md.

    newest(output) -> path              the checkpoint with the largest sequence number
    open_safetensors(path) -> tensors   {name: (dtype, shape, bytes)} of one file
    read(path) -> (manifest, parts)     parts: {"model": {name: (dtype, shape, bytes)}, ...}

Everything is checked as the C reader checks it: the manifest's own checksum, and of each file its length, the CRC-32C of
each block and XXH3-128. A fault raises ValueError, which names the file and the place.
"""
import json
import os
import struct

import xxh3

TAIL = len(',\n"checksum":""}\n') + 32


def crc32c_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


CRC_TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def read_manifest(path):
    """manifest.json of the checkpoint at `path`, checked against its last line."""
    file = os.path.join(path, 'manifest.json')
    with open(file, 'rb') as f:
        text = f.read()
    checksum = format(xxh3.hash128(text[:-TAIL]), '032x')
    if text[-TAIL:] != f',\n"checksum":"{checksum}"}}\n'.encode():
        raise ValueError(f'{file}: the checksum of bytes 0 to {len(text) - TAIL} is {checksum}; the last line says otherwise')
    manifest = json.loads(text)
    if manifest['format'] != 'trireme-checkpoint' or manifest['version'] != 1:
        raise ValueError(f'{file}: format {manifest["format"]}, version {manifest["version"]}')
    return manifest


def check_file(path, data, entry):
    """Compares the bytes of a file with its entry in the manifest."""
    if len(data) != entry['bytes']:
        raise ValueError(f'{path}: {len(data)} bytes, expected {entry["bytes"]}')
    block = entry['block_bytes']
    for i, expected in enumerate(entry['crc32c']):
        if crc32c(data[i * block:(i + 1) * block]) != expected:
            raise ValueError(f'{path}: block {i} at offset {i * block} is damaged')
    if format(xxh3.hash128(data), '032x') != entry['xxh3_128']:
        raise ValueError(f'{path}: XXH3-128 differs from the manifest')


def read_safetensors(data, path='safetensors'):
    """{name: (dtype, shape, bytes)} and the metadata of a safetensors file."""
    length, = struct.unpack_from('<Q', data)
    header = json.loads(data[8:8 + length])
    metadata = header.pop('__metadata__', {})
    tensors, body = {}, data[8 + length:]
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        if not 0 <= begin <= end <= len(body):
            raise ValueError(f'{path}: {name}: bytes {begin} to {end} of {len(body)}')
        tensors[name] = (entry['dtype'], entry['shape'], body[begin:end])
    return tensors, metadata


def open_safetensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file at a path."""
    with open(path, 'rb') as f:
        return read_safetensors(f.read(), path)[0]


def read(path):
    """The manifest and all tensors of one checkpoint."""
    manifest, parts = read_manifest(path), {}
    for name, entry in manifest['files'].items():
        file = os.path.join(path, name)
        with open(file, 'rb') as f:
            data = f.read()
        check_file(file, data, entry)
        parts[name[:-len('.safetensors')]] = read_safetensors(data, file)[0]
    return manifest, parts


def newest(output):
    """The path of the newest checkpoint of an output folder."""
    found = []
    for name in os.listdir(output):
        step = name[len('ckpt-'):]
        if name.startswith('ckpt-') and step.isdigit():
            found.append((read_manifest(os.path.join(output, name))['sequence'], name))
    if not found:
        raise ValueError(f'{output}: no checkpoint')
    return os.path.join(output, max(found)[1])
