# SPDX-License-Identifier: Apache-2.0
# Sourced after common.sh by tests that kill roles of a job that trireme has launched.
# Process of a role ("worker 0") of the job that writes to a folder: the one whose TF_CONFIG says so.
process() { # FOLDER ROLE
    local p task="\"task\": {\"type\": \"${2% *}\", \"index\": ${2#* }}"
    for p in $(pgrep -f "$trireme train .*--output $1"); do
        tr '\0' '\n' 2> /dev/null < "/proc/$p/environ" | grep -qF "$task" && echo "$p" && return
    done
}
