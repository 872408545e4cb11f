#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every #include "room/..." or "trireme/room.h" must be an arrow of LAYERS. The core of exec and the room train reach ways of training
# through their interface only, and graph knows no mesh (docs/internals/distribution.md). Usage: layers.sh ROOT
set -u
cd "$1" || exit 2
awk '
BEGIN {
    # public headers that are not named after their room
    home["plan"] = "train"
    home["dist"] = "comm"; home["nn"] = "models"; home["io"] = "save"
}
FILENAME == "LAYERS" {
    if ($0 ~ /^#/ || NF == 0) next
    room = $1; sub(":", "", room)
    known[room] = 1
    allowed[room, room] = 1
    for (i = 2; i <= NF; i++) allowed[room, $i] = 1
    next
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split(FILENAME, part, "/"); from = part[2]
    match($0, /"[^"]*"/); path = substr($0, RSTART + 1, RLENGTH - 2)
    n = split(path, piece, "/")
    if (n < 2) next
    if (from == "app") {
        if (piece[1] != "trireme" && piece[1] != "app" && path != "bench/bench.h") { print FILENAME ":" FNR ": app may include only trireme/*.h and bench/bench.h, found " path; bad = 1 }
        next
    }
    to = piece[1]
    if (to == "trireme") {
        to = piece[2]; sub(/\.h$/, "", to)
        if (to in home) to = home[to]
        # Written by a tool, of all public structs: it defines what trireme.h declares.
        if (to == "trireme" && FILENAME ~ /train\/layout\.c$/) next
        if (to == "trireme") { print FILENAME ":" FNR ": a room includes the headers it uses, not the umbrella"; bad = 1; next }
    }
    if (!(to in known)) next
    if (path ~ /^exec\/(distributed|determinism)\// && FILENAME ~ /^src\/(exec\/[^\/]*|train\/.*)$/ &&
        path !~ /\/(distribution|ways|batches|input_cuts)\.h$/) {
        print FILENAME ":" FNR ": ways of training are behind exec/distributed/distribution.h, ways.h and batches.h, found " path; bad = 1
    }
    if (!((from, to) in allowed)) { print FILENAME ":" FNR ": " from " may not include " to " (" path "), see LAYERS"; bad = 1 }
}
FILENAME ~ /^src\/graph\// && tolower($0) ~ /mesh|part\.h/ {
    print FILENAME ":" FNR ": graph knows no mesh and no parts, see docs/internals/distribution.md"; bad = 1
}
END { exit bad }
' LAYERS $(find src -name '*.c' -o -name '*.h' | grep -v '_test\.c$' | sort)
