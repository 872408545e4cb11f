#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/reference/wire-protocol.md, read by another program: the proof of the token against a running server.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
read -r port <<< "$(free_ports 1)"
"$trireme" bench ps --listen "127.0.0.1:$port" --quiet > server.out 2>&1 &
python3 - "$port" << 'P' || fail "the proof: see above"
import hashlib, hmac, os, socket, struct, sys, time

port = int(sys.argv[1])
path = f"/tmp/trireme-{os.geteuid()}/token-127.0.0.1:{port}"
HELLO, CHALLENGE, PARAMETERS = b"TRIREME\0", b"TRIRACK\0", 3


def mac(token, label, *parts):
    return hmac.new(token, label + b"\0" + b"".join(parts), hashlib.sha256).digest()


def connect():
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 10)
        except OSError:
            assert time.monotonic() < end, "no server"
            time.sleep(0.05)


def exactly(s, count):
    data = b""
    while len(data) < count:
        more = s.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def propose(version, service=PARAMETERS):
    s = connect()
    hello = HELLO + struct.pack("<HHI", version, service, 0) + os.urandom(32)
    s.sendall(hello)
    return s, hello, exactly(s, 80)


def is_closed(s):
    try:
        return s.recv(1) == b""
    except ConnectionError:
        return True


# The version that the server speaks, from its answer to one that it does not.
s, hello, challenge = propose(0)
version, service = struct.unpack("<HH", challenge[8:12])
assert challenge[:8] == CHALLENGE and service == PARAMETERS and version > 0, challenge
assert is_closed(s), "it goes on with another version"

token = open(path, "rb").read()
assert len(token) == 32 and os.stat(path).st_mode & 0o777 == 0o600, path

# The server knows the token, and believes who knows it.
s, hello, challenge = propose(version)
assert hmac.compare_digest(challenge[48:], mac(token, b"acceptor", hello, challenge[:48])), "the server's MAC"
s.sendall(mac(token, b"connector", hello, challenge))
s.settimeout(0.5)
try:
    assert s.recv(1) != b"", "it has closed a proven connection"
except socket.timeout:
    pass
# What follows must be a frame.
s.settimeout(10)
s.sendall(b"TRMF" + bytes(60))
assert is_closed(s), "a head without its check"

# Another token, and the server's own MAC sent back.
s, hello, challenge = propose(version)
s.sendall(mac(bytes(32), b"connector", hello, challenge))
assert is_closed(s), "a token of zeros"
s, hello, challenge = propose(version)
s.sendall(challenge[48:])
assert is_closed(s), "its own words"
# Another service, a detail that is too long, and no hello at all.
s, hello, challenge = propose(version, 1)
assert challenge == b"", "the rendezvous at a server"
for first in (HELLO + struct.pack("<HHI", version, PARAMETERS, 257) + bytes(32), b"GET / HTTP/1.1\r\n\r\n"):
    s = connect()
    s.sendall(first)
    assert is_closed(s), first
P
exit $failed
