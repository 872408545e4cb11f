#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Another program speaks docs/reference/wire-protocol.md (tests/readers/wire.py) to a running server: the proof of the token, then messages.
. "$(dirname "$0")/common.sh"
export PYTHONPATH=$source/tests/readers:$PYTHONPATH
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
read -r port <<< "$(free_ports 1)"
"$trireme" bench ps --listen "127.0.0.1:$port" --quiet > server.out 2>&1 &
python3 - "$port" << 'P' || fail "the proof: see above"
import hmac, os, socket, struct, sys
import wire
from wire import CHALLENGE, HELLO, PARAMETERS, connect, mac

port = int(sys.argv[1])
path = f"/tmp/trireme-{os.geteuid()}/token-127.0.0.1:{port}"


def propose(version, service=PARAMETERS):
    return wire.propose(port, version, service)


def is_closed(s):
    try:
        return s.recv(1) == b""
    except ConnectionError:
        return True


# The server's version, from its answer to another version.
s, hello, challenge = propose(0)
version, service = struct.unpack("<HH", challenge[8:12])
assert challenge[:8] == CHALLENGE and service == PARAMETERS and version > 0, challenge
assert is_closed(s), "it goes on with another version"

token = open(path, "rb").read()
assert len(token) == 32 and os.stat(path).st_mode & 0o777 == 0o600, path

# The server proves that it knows the token, and accepts a client that knows it.
s, hello, challenge = propose(version)
assert hmac.compare_digest(challenge[48:], mac(token, b"acceptor", hello, challenge[:48])), "the server's MAC"
s.sendall(mac(token, b"connector", hello, challenge))
s.settimeout(0.5)
try:
    assert s.recv(1) != b"", "it has closed a proven connection"
except socket.timeout:
    pass
# After the handshake the server expects a frame.
s.settimeout(10)
s.sendall(b"TRMF" + bytes(60))
assert is_closed(s), "a head without its check"

# A wrong token, and the server's own MAC sent back.
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
    s = connect(port)
    s.sendall(first)
    assert is_closed(s), first

# ---- messages: a worker in Python declares a table, reads rows and trains them
client = wire.Client(port, token, version, 0)
assert (client.incarnation, client.shards, client.mode) == (1, 1, 0), vars(client)
table = client.declare(b"numbers", 3, 0.5, 2.0)
assert table == 0 and client.pull(table, [7, 1 << 60]) == [(2.0, 2.0, 2.0)] * 2
client.push(table, [7, 9], [(1.0, 2.0, 4.0), (-2.0, 0.0, 0.0)])
client.push(table, [7], [(1.0, 0.0, 0.0)])
assert client.pull(table, [7, 8, 9]) == [(1.0, 1.0, 0.0), (2.0, 2.0, 2.0), (3.0, 2.0, 2.0)], client.pull(table, [7, 8, 9])
# A push that is sent again (its answer was lost) is answered again and changes nothing.
client.pushes = 1
client.push(table, [7], [(1.0, 0.0, 0.0)])
assert client.pull(table, [7]) == [(1.0, 1.0, 0.0)], client.pull(table, [7])
# A new process of the same worker has a higher incarnation.
assert wire.Client(port, token, version, 0).incarnation == 2
P

# ---- rendezvous: this Python is rank 0; the program is rank 1, as Open MPI would start it
head -c 32 /dev/urandom > token
chmod 600 token
python3 - "$trireme" << 'P' || fail "the rendezvous: see above"
import os, socket, subprocess, sys
import wire

token = open("token", "rb").read()
job = "train lenet --data synth --synth-train 64 --synth-test 16 --batch-size 8 --steps 1 --start-timeout 60".split()


def rank_1(listener):
    at = "127.0.0.1:%d" % listener.getsockname()[1]
    return subprocess.Popen([sys.argv[1], *job], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(
        os.environ, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="1",
        OMPI_COMM_WORLD_LOCAL_SIZE="2", TRIREME_RENDEZVOUS=at, TRIREME_TOKEN_FILE="token", OMP_NUM_THREADS="1"))


with socket.create_server(("127.0.0.1", 0)) as listener:
    # A poisoned job ends rank 1 with the reason and the exit code of a failed peer.
    process = rank_1(listener)
    root = wire.Root(listener, token)
    assert (root.rank, root.size, root.pid) == (1, 2, process.pid), vars(root)
    assert root.address == b"127.0.0.1" and root.host, vars(root)
    root.poison(-7, b"rank 0 is a page of documentation")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 5 and "rank 0 is a page of documentation" in out, (process.returncode, out)

    # A welcomed rank begins its first exchange, in frames with its own key and numbers; then rank 0 dies.
    process = rank_1(listener)
    root = wire.Root(listener, token)
    root.welcome(os.getpid())
    kind = None
    while kind != wire.FRAME["gather"]:
        kind, exchange, payload = root.receive()
        assert kind in (wire.FRAME["ping"], wire.FRAME["gather"]), kind
    assert payload, "an exchange of nothing"
    root.s.close()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 5 and "rank 0" in out, (process.returncode, out)
P
exit $failed
