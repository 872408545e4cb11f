# SPDX-License-Identifier: Apache-2.0
"""Writes TFRecord files and tf.Example from their specification alone, for tests of Trireme's readers."""
import struct

_TABLE = []
for _n in range(256):
    for _ in range(8):
        _n = _n >> 1 ^ (0x82F63B78 if _n & 1 else 0)
    _TABLE.append(_n)


def _masked(data):
    """The masked CRC-32C of a record's parts."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(name, kind, values):
    """An entry of a tf.Example; kind 1: bytes, 2: floats, 3: integers; values as they lie in their list."""
    return field(1, field(1, name.encode()) + field(2, field(kind, values)))


def record(features):
    """A tf.Example of these entries, framed."""
    example = field(1, features)
    length = struct.pack("<Q", len(example))
    return length + _masked(length) + example + _masked(example)


def image(data, label, packed=True):
    """ImageNet's entries. Lists of integers are packed or, as older writers have them, one field a number."""
    numbers = field(1, varint(label)) if packed else varint(1 << 3) + varint(label)
    return feature("image/encoded", 1, field(1, data)) + feature("image/class/label", 3, numbers)
