# SPDX-License-Identifier: Apache-2.0
"""A second reader of the folders of parameter servers: docs/reference/server-snapshot.md.

    read(folder) -> (manifest, tables)   the newest snapshot: {name: Table}, a full one and the differential ones after it
    read_log(path) -> [record]           a shard's log, up to a torn end
    read_steps(path), read_workers(path), read_leases(path)

A fault raises ValueError, which names the file and the block.
"""
import json
import os
import struct

import xxh3

MASK64 = 0xFFFFFFFFFFFFFFFF
HEADER, TABLE, WINDOWS, REMOVED, ROWS, WAITING, BLOOM, END, SPANS = range(1, 10)  # kinds of blocks
GOLDEN = 0x9E3779B97F4A7C15
DTYPES = {1: ('float32', 4), 2: ('float64', 8), 3: ('bfloat16', 2), 4: ('float16', 2)}
RULES = {1: 'sgd', 2: 'momentum', 3: 'adagrad', 4: 'rowwise_adagrad', 5: 'adam', 6: 'lazy_adam', 7: 'ftrl'}
HEAD_BYTES, NOTE_BYTES = 64, 128 + 256  # of a message; of its note: 16 numbers, text
OPTIONS_BYTES = 208


def round_up(x, to):
    return (x + to - 1) // to * to


def slot_count(rule, width):
    return {'sgd': 0, 'rowwise_adagrad': 1, 'momentum': width, 'adagrad': width}.get(rule, 2 * width)


class Table:
    """The options of a table that decide how its rows lie, and the rows: {key: record}."""

    def __init__(self, message):
        magic, kind = struct.unpack_from('<IH', message)
        note = message[HEAD_BYTES:HEAD_BYTES + NOTE_BYTES]
        options = message[HEAD_BYTES + NOTE_BYTES:]
        if magic != 0x31507254 or kind != 2 or struct.unpack_from('<q', note, 15 * 8)[0] != OPTIONS_BYTES:
            raise ValueError('not the options of a table')
        self.name = note[128:].split(b'\0')[0].decode()
        self.width, dtype = struct.unpack_from('<ii', options, 8)
        self.dtype, self.value_bytes = DTYPES[dtype or 1]
        self.rule = RULES[struct.unpack_from('<i', options, 32)[0] or 3]
        self.placement = struct.unpack_from('<i', options, 168)[0]
        self.slots = slot_count(self.rule, self.width)
        self.slot_offset = round_up(self.value_bytes * self.width, 4)
        self.header_offset = round_up(self.slot_offset + 4 * self.slots, 8)
        self.record_bytes = self.header_offset + 32
        self.rows = {}

    def values(self, key):
        """The bytes of a row's values."""
        return self.rows[key][:self.value_bytes * self.width]

    def slot_values(self, key):
        return struct.unpack_from(f'<{self.slots}f', self.rows[key], self.slot_offset)

    def row_header(self, key):
        """(key, last tick, last time, updates, version, score, generation)"""
        return struct.unpack_from('<QIIIIfI', self.rows[key], self.header_offset)


def key_hash(key):
    z = (key + GOLDEN) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def shard_of(key, shards):
    """Which of the job's shards holds a key of a table that is placed by hash."""
    return (key_hash(key) >> 52) * shards >> 12


def blocks(data, path):
    """The blocks of a shard file: (kind, table, count, first, body), each checked."""
    at, number = 0, 0
    while True:
        where = f'{path}: block {number} at offset {at}'
        if len(data) - at < 64:
            raise ValueError(f'{where}: the file ends')
        magic, kind, table, count, size, digest, first, total = struct.unpack_from('<IIIIQQQQ', data, at)
        body = data[at + 64:at + 64 + size]
        if magic != 0x43535054 or len(body) != size:
            raise ValueError(f'{where}: no block')
        seed = kind << 32 | table
        for part in (count, first, total):
            seed = (seed * GOLDEN + part) & MASK64
        if xxh3.hash64(body, seed) != digest:
            raise ValueError(f'{where}: the digest is wrong')
        if (number == 0) != (kind == HEADER):
            raise ValueError(f'{where}: kind {kind}')
        if kind == END:
            if count != number or at + 64 != len(data):
                raise ValueError(f'{where}: the end, after {number} of {count} blocks')
            return
        yield kind, table, count, first, body
        at += 64 + round_up(size, 8)
        number += 1


def read_shard(path, digest, tables):
    """Applies one shard file to the tables: rows that it holds replace older ones, keys that it removes go."""
    with open(path, 'rb') as f:
        data = f.read()
    if xxh3.hash64(data) != digest:
        list(blocks(data, path))  # names the block
        raise ValueError(f'{path}: not the file that the manifest names')
    mine, head = {}, None
    for kind, number, count, _, body in blocks(data, path):
        if kind == HEADER:
            head = struct.unpack_from('<10Iq', body)
            if head[0] != 1:
                raise ValueError(f'{path}: version {head[0]}')
        elif kind == TABLE:
            table = Table(body)
            mine[number] = tables.setdefault(table.name, table)
        elif kind == REMOVED:
            for key in struct.unpack(f'<{count}Q', body):
                mine[number].rows.pop(key, None)
        elif kind == ROWS:
            table = mine[number]
            if len(body) != count * table.record_bytes:
                raise ValueError(f'{path}: {count} rows of {table.record_bytes} bytes in {len(body)}')
            for i in range(count):
                record = body[i * table.record_bytes:(i + 1) * table.record_bytes]
                table.rows[struct.unpack_from('<Q', record, table.header_offset)[0]] = record
    return head


def manifests(folder):
    """{number: manifest} of all complete snapshots."""
    found = {}
    for name in os.listdir(folder):
        if name.startswith('MANIFEST-') and name.endswith('.json'):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                manifest = json.load(f)
            found[manifest['snapshot']] = manifest
    return found


def read(folder, number=None):
    """The snapshot `number` (the newest): the last full one before it, then each differential one."""
    all_of_them, tables = manifests(folder), {}
    number = number or max(all_of_them)
    first = number
    while all_of_them[first]['differential']:
        first -= 1
    for each in range(first, number + 1):
        manifest = all_of_them[each]
        ending = 'delta' if manifest['differential'] else 'full'
        for file in manifest['files']:
            path = os.path.join(folder, f'snapshot-{each:06}', f'server-{file["server"]}-shard-{file["shard"]}.{ending}')
            if os.path.getsize(path) != file['bytes']:
                raise ValueError(f'{path}: {os.path.getsize(path)} bytes, expected {file["bytes"]}')
            head = read_shard(path, int(file['digest'], 16), tables)
            expected = (each, each - manifest['differential'], manifest['differential'], file['server'], manifest['servers'])
            if head[1:6] != expected:
                raise ValueError(f'{path}: its header says {head[1:6]}, the manifest {expected}')
    return all_of_them[number], tables


# ---- logs ---------------------------------------------------------------------------------------

LOG_KINDS = {1: 'table', 2: 'push', 3: 'marked', 4: 'staged', 5: 'step', 6: 'void'}


def read_log(path):
    """A shard's log: (kind, clock, ids, sections); ids: (worker, incarnation, sequence), sections: (table, keys)."""
    records, at = [], 0
    with open(path, 'rb') as f:
        data = f.read()
    while len(data) - at >= 64:
        magic, kind, size, digest = struct.unpack_from('<IIQQ', data, at)
        _, _, _, _, _, id_count, section_count, message_bytes, clock = struct.unpack_from('<IIffIIIIq', data, at + 24)
        body = data[at + 64:at + 64 + size]
        if magic != 0x4C535054 or len(body) != size or xxh3.hash64(data[at + 24:at + 64] + body) != digest:
            break  # torn: the record was not finished
        ids, sections = [], []
        if kind == 1:
            sections = [(Table(body).name, [])]
        else:
            ids = [struct.unpack_from('<IIQ', body, 16 * i) for i in range(id_count)]
            message = body[len(body) - message_bytes:] if message_bytes else b''
            keys_at = HEAD_BYTES + round_up(16 * section_count, 64)
            for i in range(section_count):
                _, table, count, _ = struct.unpack_from('<IIII', message, HEAD_BYTES + 16 * i)
                sections.append((table, struct.unpack_from(f'<{count}Q', message, keys_at)))
                keys_at += 8 * count
        records.append((LOG_KINDS[kind], clock, ids, sections))
        at += 64 + size
    return records


def small_records(path, size, check_bytes):
    """Records that end with the lowest bytes of XXH3 of what is before them, up to a torn end."""
    found, at = [], 0
    with open(path, 'rb') as f:
        data = f.read()
    while at < len(data):
        end = at + size(data, at)
        body, check = data[at:end - check_bytes], data[end - check_bytes:end]
        if end > len(data) or xxh3.hash64(body).to_bytes(8, 'little')[:check_bytes] != check:
            break
        found.append(body)
        at = end
    return found


def read_workers(path):
    """away-server-N.log: (worker, incarnation, what)."""
    words = {0: 'here', 1: 'away', 2: 'incarnation', 3: 'chief', 4: 'was chief'}
    return [(worker, life, words[what]) for worker, life, what in
            (struct.unpack('<III', body) for body in small_records(path, lambda data, at: 16, 4))]


def read_steps(path):
    """steps-server-N.log: (step, [(worker, incarnation, sequence)], [(lease, position)])."""
    def size(data, at):
        return 16 + struct.unpack_from('<q2I', data.ljust(at + 16, b'\0'), at)[1] * 32 + 8

    steps = []
    for body in small_records(path, size, 8):
        step, count, _ = struct.unpack_from('<q2I', body)
        ids = [struct.unpack_from('<IIQ', body, 16 + 16 * i) for i in range(count)]
        leases = [struct.unpack_from('<qq', body, 16 + 16 * (count + i)) for i in range(count)]
        steps.append((step, ids, leases))
    return steps


def read_leases(path):
    """leases.log: (kind, worker, id, epoch, begin, end, position)."""
    return [struct.unpack('<II5q', body) for body in small_records(path, lambda data, at: 56, 8)]
