# SPDX-License-Identifier: Apache-2.0
"""Finds processes of a job by a variable of their environment, for benchmarks that kill them. Any process may end meanwhile."""
import os
import pathlib


def find_children(pid):
    """Returns the pids of the children of a process; none if it has ended."""
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            found += [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
        except OSError:
            continue
    return found


def find_processes(root, variable):
    """Returns {number: pid} of the living processes below `root` whose environment has variable=number."""
    found, waiting, begin = {}, [root], variable.encode() + b"="
    while waiting:
        pids = find_children(waiting.pop())
        waiting += pids
        for pid in pids:
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            for entry in environment:
                if entry.startswith(begin) and state != "Z":
                    found[int(entry[len(begin):])] = pid
    return found
