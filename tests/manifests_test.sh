#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks examples/kubernetes: the YAML parses, the flags of the commands exist, and `trireme cluster check` accepts for each pod the
# environment that its operator would set.
. "$(dirname "$0")/common.sh"
python3 -c 'import yaml' 2> /dev/null || skip "no Python with yaml"
head -c 32 /dev/urandom > token && chmod 600 token
python3 - "$trireme" "${TRIREME_SOURCE:?}/examples/kubernetes" << 'P'
import json, os, subprocess, sys, yaml
trireme, folder = sys.argv[1:]
# Besides the operator's variables: the program's folders, and the options of a sanitizer (tools/sanitize.sh).
mine = ("PATH", "HOME", "XDG_CACHE_HOME", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "OMP_TOOL_LIBRARIES", "UCX_MEM_EVENTS")
base = {"TRIREME_TOKEN_FILE": os.getcwd() + "/token", **{name: os.environ[name] for name in mine if name in os.environ}}
failed, tried = 0, []
def check(what, env, *texts):
    global failed
    r = subprocess.run([trireme, "cluster", "check"], env={**base, **env}, capture_output=True, text=True, timeout=30)
    out = r.stdout + r.stderr
    if r.returncode != 0 or not all(t in out for t in texts):
        failed = 1
        print(f"FAIL {what}: code {r.returncode}, expected {texts}\n{out}")
def flags(what, command):
    """the same command on generated data, and nothing but checked"""
    global failed
    words = command[command.index("trireme") + 1:]
    if "--data" in words: words[words.index("--data") + 1] = "synth"
    for flag, values in (("--output", 1), ("--resume", 0)):
        if flag in words: del words[words.index(flag):words.index(flag) + 1 + values]
    if words[1].startswith("resnet"): words += ["--image-size", "32", "--batch-size", "2"] # only to be quick
    if words in tried: return
    tried.append(words)
    r = subprocess.run([trireme, *words, "--dry-run"], env=base, capture_output=True, text=True, timeout=200)
    if r.returncode != 0:
        failed = 1
        print(f"FAIL {what}: {words}: code {r.returncode}\n{r.stdout}{r.stderr}")
def containers(replica): return replica["template"]["spec"]["containers"]
seen = set()
for name in sorted(os.listdir(folder)):
    for doc in yaml.safe_load_all(open(f"{folder}/{name}")):
        kind, job, spec = doc["kind"], doc["metadata"]["name"], doc["spec"]
        seen.add(kind)
        if kind == "TFJob":
            replicas = spec["tfReplicaSpecs"]
            cluster = {r.lower(): [f"{job}-{r.lower()}-{i}.default.svc:2222" for i in range(v["replicas"])]
                       for r, v in replicas.items() if r != "Evaluator"}
            for role, replica in replicas.items():
                assert containers(replica)[0]["name"] == "tensorflow", role
                flags(f"{name} {role}", containers(replica)[0]["command"])
                for i in range(replica["replicas"]):
                    config = {"cluster": cluster, "task": {"type": role.lower(), "index": i}, "environment": "cloud"}
                    check(f"{name} {role} {i}", {"TF_CONFIG": json.dumps(config)}, "TF_CONFIG", role.lower())
        elif kind == "PyTorchJob":
            replicas = spec["pytorchReplicaSpecs"]
            # When a rank dies the other ranks end with 5: all must start again, a limited number of times.
            assert all(r["restartPolicy"] == "OnFailure" for r in replicas.values()), name
            assert spec["runPolicy"]["backoffLimit"] > 0, name
            size = sum(v["replicas"] for v in replicas.values())
            flags(name, containers(replicas["Master"])[0]["command"])
            for rank in range(size):
                check(f"{name} rank {rank}", {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_PORT": "23456",
                      "MASTER_ADDR": f"{job}-master-0" if rank else "localhost", "PYTHONUNBUFFERED": "0"}, f"{rank} of {size}")
        elif kind == "MPIJob":
            launcher, worker = (spec["mpiReplicaSpecs"][r] for r in ("Launcher", "Worker"))
            command = containers(launcher)[0]["command"]
            size = int(command[command.index("-n") + 1])
            assert size == worker["replicas"] * spec["slotsPerWorker"], "ranks and slots differ"
            flags(name, command)
            env = dict(w.split("=", 1) for w in command if w.startswith("TRIREME_RENDEZVOUS="))
            for rank in range(size):
                check(f"{name} rank {rank}", {**env, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size),
                      "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, f"{rank} of {size}")
        else:
            failed = 1
            print(f"FAIL {name}: {kind}")
assert seen == {"TFJob", "PyTorchJob", "MPIJob"}, seen
sys.exit(failed)
P
