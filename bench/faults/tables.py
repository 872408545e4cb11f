#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong rank tables for bench/faults.sh: badN.json in the working directory, made from good ones by one change each.
Usage: tables.py V1.json LAB.json    prints their number"""
import json
import sys

v1, lab = (json.load(open(name)) for name in sys.argv[1:])
count = 0


def put(value):
    global count
    count += 1
    with open(f"bad{count}.json", "w") as out:
        out.write(value if isinstance(value, str) else json.dumps(value))


def change(base, *changes):
    """Each change: path, value; None removes."""
    copy = json.loads(json.dumps(base))
    for path, value in changes:
        at = copy
        for key in path[:-1]:
            at = at[key]
        if value is None:
            del at[path[-1]]
        else:
            at[path[-1]] = value
    put(copy)


good = json.dumps(v1)
for text in ("", "   ", "{", "[]", "null", "3", '"table"', good[:-1], good + "x", good.replace('"completed"', "completed"), "[...]",
             good.replace('"status"', '"status": "completed", "status"'), '{"server_list": [...]}'):
    put(text)
d = ["server_list", 0, "device", 0]
for path, value in (
        (["status"], "broken"), (["status"], None), (["status"], 1), (["status"], "initializing"),
        (["version"], "9.9"), (["version"], 1.0), (["server_count"], "3"), (["server_count"], 2), (["server_count"], "two"),
        (["server_list"], None), (["server_list"], []), (["server_list"], "[...]"), (["server_list"], {}), (["server_list", 0], "a"),
        (["server_list", 0, "server_id"], ""), (["server_list", 0, "server_id"], None), (["server_list", 0, "server_id"], 7),
        (["server_list", 1, "server_id"], "10.0.0.1"), (["server_list", 0, "server_id"], "x" * 65),
        (d[:3], []), (d[:3], None), (d[:3], "0"), (d, []), (d + ["rank_id"], "1"), (d + ["rank_id"], "9"), (d + ["rank_id"], 0),
        (d + ["rank_id"], "-1"), (d + ["rank_id"], ""), (d + ["rank_id"], "0x0"), (d + ["rank_id"], None), (d + ["device_id"], "1"),
        (d + ["device_id"], "x"), (d + ["device_id"], None), (d + ["device_id"], 0), (d + ["device_ip"], "1.2.3"),
        (d + ["device_ip"], "1.2.3.4.5"), (d + ["device_port"], "99999")):
    change(v1, (path, value))
# ranks of two servers interleave: 0, 2 and 1, 3
change(v1, (["server_list", 0, "device", 1, "rank_id"], "2"), (["server_list", 1, "device", 0, "rank_id"], "1"))
g = ["group_list", 0]
i = g + ["instance_list", 0]
for path, value in (
        (["status"], "initializing"), (["group_count"], "2"), (["group_count"], 1), (["group_list"], []), (["group_list"], None),
        (g + ["device_num"], "9"), (g + ["server_num"], "1"), (g + ["instance_count"], "3"), (g + ["instance_list"], []),
        (g + ["instance_list"], "[...]"), (i + ["rank_id"], "1"), (i + ["rank_id"], "8"), (i + ["rank_id"], None), (i + ["rank_id"], 0),
        (i + ["server_id"], None), (i + ["devices"], []), (i + ["devices"], None), (i + ["devices", 0, "device_id"], "x"),
        (i + ["devices", 0, "device_id"], "1")):
    change(lab, (path, value))
pods = {"status": "completed", "group_count": "1", "group_list": [{
    "group_name": "hccl_world_group", "device_count": "2", "instance_count": "1", "instance_list": [{
        "pod_name": "pod0", "server_id": "10.0.0.1",
        "devices": [{"device_id": "0", "device_ip": "192.168.0.1"}, {"device_id": "1", "device_ip": "192.168.0.2"}]}]}]}
for path, value in (
        (["status"], None), (["group_count"], "3"), (g + ["device_count"], "3"), (g + ["instance_count"], "2"), (i + ["pod_name"], ""),
        (i + ["pod_name"], None), (i + ["server_id"], None), (i + ["devices"], []), (i + ["devices", 0, "device_ip"], "x"),
        (i + ["devices", 0, "device_id"], "1"), (i + ["devices", 1, "device_ip"], "192.168.0.1")):
    change(pods, (path, value))
print(count)
