#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No source file or public header over 850 lines, no function over 100 lines unless
# tools/length.exceptions names it ("path:function"), no line of a comment over 100 columns, which clang-format would
# leave, but in tables and drawings (two blanks or an arrow within the line). Usage: length.sh ROOT
set -u
cd "$1" || exit 2
bad=0
while read -r lines file; do
    if [ "$lines" -gt 850 ]; then echo "$file: $lines lines, at most 850"; bad=1; fi
done < <(find src include tests/lib -name '*.[ch]' | xargs wc -l | grep -v ' total$')
long=$(find src -name '*.c' | sort | xargs awk '
FNR == 1 { inside = 0 }
/^[A-Za-z_].*\)[ \t]*\{$/ || (/^\{$/ && !inside) { start = FNR; header = $0; inside = 1 }
/^[A-Za-z_][^;]*\($/ || /^[A-Za-z_][^;{]*,$/ { if (!inside) header = $0 }
/^\}/ && inside {
    inside = 0
    if (FNR - start > 100) {
        name = header; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
        print FILENAME ":" name " " FNR - start
    }
}')
while read -r where lines; do
    [ -z "$where" ] && continue
    grep -qxF "$where" tools/length.exceptions 2>/dev/null && continue
    echo "$where: $lines lines, at most 100 (split it by meaning)"; bad=1
done <<< "$long"
wide=$(find src include tests -name '*.[ch]' | sort | xargs awk '
length > 100 && /^ *(\/\*|\*) / {
    text = $0; sub(/^ *(\/\*|\*) */, "", text)
    if (text ~ /^----/ || text !~ /[^ ]  +[^ ]| -+> |-->|<-|==>| \| | -- |──/) {
        print FILENAME ":" FNR ": " length " columns in a comment, at most 100"
    }
}')
[ -z "$wide" ] || { echo "$wide"; bad=1; }
exit $bad
