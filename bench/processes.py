# SPDX-License-Identifier: Apache-2.0
"""Finds processes of a job by a variable of their environment, for benchmarks that kill them."""
import pathlib


def find_processes(root, variable):
    """Returns {number: pid} of the living processes below `root` whose environment has variable=number."""
    found, waiting, begin = {}, [root], variable.encode() + b"="
    while waiting:
        for children in pathlib.Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                pids = [int(pid) for pid in children.read_text().split()]
            except OSError:
                continue
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
