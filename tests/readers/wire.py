# SPDX-License-Identifier: Apache-2.0
"""The wire protocol spoken by another program: docs/reference/wire-protocol.md.

    connect, propose, prove    the proof of the token by the end that connects
    Client                     a client of one parameter server: declares a table, pulls rows, pushes gradients
    Root                       rank 0 of a job of two ranks: the end that accepts, and frames with codes

A reply that the page does not allow fails an assertion. Numbers are little-endian; offsets are those of the page.
"""
import hashlib
import hmac
import os
import socket
import struct
import time

import xxh3

HELLO, CHALLENGE, PARAMETERS = b'TRIREME\0', b'TRIRACK\0', 3  # the two magics; the service of parameter servers
KIND = {'hello': 1, 'table': 2, 'pull': 3, 'push': 4, 'rows': 5, 'done': 6}
MAGIC, FLOAT32, SGD = 0x31507254, 1, 1  # of a message ("TrP1"); a dtype; an optimiser
NOTE = 64 + 384  # bytes of a message with a note: header, 16 numbers, 256 of text


def mac(token, label, *parts):
    """The code of the parts under a label."""
    return hmac.new(token, label + b'\0' + b''.join(parts), hashlib.sha256).digest()


def connect(port):
    """A socket connected to a port of this host; waits until a process listens there."""
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(('127.0.0.1', port), 10)
        except OSError:
            assert time.monotonic() < end, 'no server'
            time.sleep(0.05)


def exactly(s, count):
    """`count` bytes, fewer only where the connection ends."""
    data = b''
    while len(data) < count:
        more = s.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def propose(port, version, service=PARAMETERS):
    """(socket, HELLO that was sent, CHALLENGE that came)."""
    s = connect(port)
    hello = HELLO + struct.pack('<HHI', version, service, 0) + os.urandom(32)
    s.sendall(hello)
    return s, hello, exactly(s, 80)


def prove(port, token, version):
    """A socket on which both ends have proved that they know the token."""
    s, hello, challenge = propose(port, version)
    assert hmac.compare_digest(challenge[48:], mac(token, b'acceptor', hello, challenge[:48])), "the server's MAC"
    s.sendall(mac(token, b'connector', hello, challenge))
    return s


def pad(data, to=64):
    return data + bytes(-len(data) % to)


class Client:
    """One worker at a server of one shard. Values travel as float32."""

    def __init__(self, port, token, version, worker):
        self.s, self.worker, self.incarnation, self.requests, self.pushes = prove(port, token, version), worker, 0, 0, 0
        note, _ = self.ask_note('hello', [worker, 1])
        self.incarnation, self.shards, self.mode = note[1], note[2], note[4]
        self.widths = {}

    def send(self, message):
        head = b'TRMF' + struct.pack('<HHQQQQQ', PARAMETERS, 0, len(message), 0, 0, 0, 0)
        self.s.sendall(head + struct.pack('<QQ', xxh3.hash64(head), 0) + message)

    def receive(self):
        head = exactly(self.s, 64)
        magic, service, kind, size = struct.unpack_from('<4sHHQ', head)
        assert (magic, service, kind) == (b'TRMF', PARAMETERS, 0), head
        assert struct.unpack_from('<QQ', head, 48) == (xxh3.hash64(head[:48]), 0), 'the check of a frame'
        return exactly(self.s, size)

    def header(self, kind, sequence, sections=0, clock=0, extra=(0, 0)):
        return struct.pack('<IHHIIQqIfIIqq', MAGIC, KIND[kind], FLOAT32, self.worker, self.incarnation, sequence, clock, sections, 1.0,
                           0, 0, *extra)

    def answer(self, kind, sequence):
        message = self.receive()
        magic, got, _, _, _, number = struct.unpack_from('<IHHIIQ', message)
        assert (magic, got, number) == (MAGIC, KIND[kind], sequence), (magic, got, number)
        if kind == 'done':
            status, = struct.unpack_from('<i', message, 40)
            assert status == 0, message[NOTE:]
        return message

    def ask_note(self, kind, values, text=b'', tail=b''):
        self.requests += 1
        note = struct.pack('<16q', *values, *[0] * (16 - len(values))) + text.ljust(256, b'\0')
        self.send(self.header(kind, self.requests) + note + tail)
        answer = self.answer('done', self.requests)
        return struct.unpack_from('<16q', answer, 64), answer[NOTE:]

    def declare(self, name, width, learning_rate, value):
        """A table of float32 rows that begin at `value` and learn by SGD: its number."""
        options = bytearray(208)
        struct.pack_into('<ii', options, 8, width, FLOAT32)
        struct.pack_into('<if', options, 32, SGD, learning_rate)
        struct.pack_into('<if', options, 80, 0, value)  # initial values: constant
        note, _ = self.ask_note('table', [0] * 15 + [len(options)], name, bytes(options))
        self.widths[note[1]] = width
        return note[1]

    def sections(self, kind, sequence, table, keys, clock, values=b''):
        head = self.header(kind, sequence, 1, clock, (0, 10000 if kind == 'pull' else 0))
        self.send(head + pad(struct.pack('<IIII', 0, table, len(keys), 0)) + pad(struct.pack(f'<{len(keys)}Q', *keys)) + pad(values))

    def pull(self, table, keys):
        self.requests += 1
        self.sections('pull', self.requests, table, keys, 0)
        rows = self.answer('rows', self.requests)
        width = self.widths[table]
        assert len(rows) == 64 + len(pad(bytes(4 * width * len(keys)))), len(rows)
        return [struct.unpack_from(f'<{width}f', rows, 64 + 4 * width * i) for i in range(len(keys))]

    def push(self, table, keys, gradients):
        self.pushes += 1
        values = b''.join(struct.pack(f'<{self.widths[table]}f', *g) for g in gradients)
        self.sections('push', self.pushes, table, keys, self.pushes, values)
        self.answer('done', self.pushes)


# ---- rendezvous ---------------------------------------------------------------------------------

RENDEZVOUS, RENDEZVOUS_VERSION = 1, 4
FRAME = {'ping': 1, 'gather': 2, 'poison': 5, 'welcome': 9}


class Root:
    """Rank 0 of a job of two ranks, at a listening socket: proves the token to rank 1 and speaks frames with it."""

    def __init__(self, listener, token):
        listener.settimeout(60)
        self.s, _ = listener.accept()
        self.s.settimeout(60)
        hello = exactly(self.s, 48)
        magic, version, service, detail = struct.unpack_from('<8sHHI', hello)
        assert (magic, version, service, detail) == (HELLO, RENDEZVOUS_VERSION, RENDEZVOUS, 208), hello
        hello += exactly(self.s, detail)
        self.rank, self.size, self.pid, self.device = struct.unpack_from('<4i', hello, 48)
        self.host_id, self.host, self.address = hello[128:160], hello[160:208].split(b'\0')[0], hello[208:256].split(b'\0')[0]
        challenge = CHALLENGE + struct.pack('<HHI', version, service, 0) + os.urandom(32)
        challenge += mac(token, b'acceptor', hello, challenge)
        self.s.sendall(challenge)
        assert hmac.compare_digest(exactly(self.s, 32), mac(token, b'connector', hello, challenge)), "rank 1's proof"
        self.up, self.down = (mac(token, label, hello, challenge) for label in (b'frames up', b'frames down'))
        self.sent = self.received = 0

    def send(self, kind, payload):
        head = b'TRMF' + struct.pack('<HHQQQQQ', RENDEZVOUS, FRAME[kind], len(payload), self.sent, 0, 0, 0)
        check = hmac.new(self.down, head + bytes(16) + payload, hashlib.sha256).digest()[:16]
        self.s.sendall(head + check + payload)
        self.sent += 1

    def receive(self):
        """(type, id, payload) of the next frame, whose number and check are right."""
        head = exactly(self.s, 64)
        magic, service, kind, size, number, exchange = struct.unpack_from('<4sHHQQQ', head)
        payload = exactly(self.s, size)
        assert (magic, service, number) == (b'TRMF', RENDEZVOUS, self.received), head
        assert head[48:] == hmac.new(self.up, head[:48] + bytes(16) + payload, hashlib.sha256).digest()[:16], 'the check of a frame'
        self.received += 1
        return kind, exchange, payload

    def poison(self, status, message):
        self.send('poison', struct.pack('<iiii', status, 0, 0, 0) + bytes(24) + message.ljust(216, b'\0'))

    def welcome(self, pid):
        """All ranks are there: rank 0 is this process, on the host of rank 1."""
        ranks = b''.join(struct.pack('<ii', p, d) + self.host_id + self.host.ljust(48, b'\0') + self.address.ljust(48, b'\0')
                         for p, d in ((pid, 0), (self.pid, self.device)))
        self.send('welcome', struct.pack('<iiii', 1, 2, 0, 0) + os.urandom(32) + ranks)
