#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks tools/commands.py: the reference of commands has a section for each command, with an example and all flags of its help.
. "$(dirname "$0")/common.sh"
python3 "$source/tools/commands.py" "$trireme" commands.md || fail "tools/commands.py: $?"
"$trireme" help | sed -nE 's/^  ([a-z]+( [a-z]+)?) .*/\1/p' | grep -vx help > commands
[ "$(wc -l < commands)" -ge 25 ] || fail "only $(wc -l < commands) commands found"
while IFS= read -r command; do
    # shellcheck disable=SC2086 # two words
    "$trireme" help $command > help.txt
    awk -v title="## $command" 'index($0, "## ") == 1 || index($0, "# ") == 1 { on = $0 == title || index($0, title " ") == 1 && $0 !~ title " [a-z]" } on' commands.md > section
    grep -q '^trireme ' section || fail "$command: no example in the page"
    grep -oE '^  --?[a-z-]+' help.txt | tr -d ' ' | sort -u > flags
    grep -oE '^\| `--?[a-z-]+' section commands.md | sed -n "s/^section:| \`//p" | sort -u > page
    grep -vxFf page flags | grep -vxE -- '--(json|quiet|verbose|color|help)' > missing && fail "$command: flags that the page lacks: $(tr '\n' ' ' < missing)"
done < commands
for flag in json quiet verbose color help; do
    sed -n '/^## Flags of every command/,/^# /p' commands.md | grep -q "^| \`--$flag" || fail "no --$flag for every command"
done
for topic in exit-codes events context deterministic; do
    grep -qx "## help $topic" commands.md || fail "no topic $topic"
done
exit $failed
