#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to N steps while processes are killed: an elastic job beside torchft and torchrun.

    bench/elastic_peers.py [--steps 300] [--processes 4] [--batch-size 128] [--every 10] [--seed 1] [--peers trireme,torchft,torchrun]
                           [--program build/release/trireme] [--python ~/.cache/trireme-peers/torchft/bin/python]

ResNet-18 (the stem for ImageNet, as torchvision has it) on generated images of 32x32, SGD with momentum, one thread a process.
From the first step of a job on, one process is killed (SIGKILL) every --every seconds. The numbers of the killed processes are
a function of --seed, the same for every peer; a process is started again each time.

    trireme   train --elastic 1:N --elastic-restarts
    torchft   a replica group a process, min_replica_size 1, ProcessGroupGloo; the benchmark starts dead processes again
    torchrun  --max-restarts, DistributedDataParallel over gloo, a checkpoint every 20 steps

torchft: python3 -m venv VENV && VENV/bin/pip install torch torchvision torchft-nightly. The last line of stdout is one JSON object;
`ratio` is the time of trireme over that of the fastest peer.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from processes import find_processes

LIMIT_SECONDS = 3000
CHECKPOINT_STEPS = 20


# ---- the programs of the peers -----------------------------------------------------------------------


def make_network():
    """Returns network, loss and one batch of this process."""
    import torch
    import torchvision

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torchvision.models.resnet18(num_classes=10).to(memory_format=torch.channels_last)
    batch = int(os.environ["BATCH"])
    images = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    return network, torch.nn.CrossEntropyLoss(), images, torch.randint(0, 10, (batch,))


def report(step, loss):
    print(json.dumps({"event": "step", "global_step": step, "loss": float(loss)}), flush=True)


def work_torchft():
    """One process: a replica group of torchft."""
    from datetime import timedelta

    import torch
    import torchft

    network, loss_of, images, labels = make_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def save():
        return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state):
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=10)), min_replica_size=1, state_dict=save,
                              load_state_dict=load, replica_id="worker" + os.environ["NUMBER"], store_addr="127.0.0.1",
                              store_port=store.port, rank=0, world_size=1, timeout=timedelta(seconds=20))
    parallel = torchft.DistributedDataParallel(manager, network)
    stepper = torchft.Optimizer(manager, optimizer)
    while manager.current_step() < int(os.environ["STEPS"]):
        stepper.zero_grad()
        loss = loss_of(parallel(images), labels)
        loss.backward()
        stepper.step()
        report(manager.current_step(), loss)
    manager.shutdown(wait=False)
    os._exit(0)


def work_torchrun():
    """One process of a job of torchrun."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    network, loss_of, images, labels = make_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    step, path = 0, pathlib.Path(os.environ["CHECKPOINT"])
    if path.exists():
        state = torch.load(path)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    parallel = torch.nn.parallel.DistributedDataParallel(network)
    while step < int(os.environ["STEPS"]):
        optimizer.zero_grad()
        loss = loss_of(parallel(images), labels)
        loss.backward()
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            report(step, loss)
            if step % CHECKPOINT_STEPS == 0:
                torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{path}.new")
                os.replace(f"{path}.new", path)
    dist.destroy_process_group()


# ---- jobs --------------------------------------------------------------------------------------------


class Job:
    """A job of one peer: output of all its processes in one file, read for steps."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.path = os.path.join(folder, "out")
        self.out = open(self.path, "ab")
        self.err = open(os.path.join(folder, "err"), "ab")
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", STEPS=str(options.steps), CHECKPOINT=f"{folder}/checkpoint.pt",
                                BATCH=str(options.batch_size // options.processes))
        self.start()

    def launch(self, command, **variables):
        return subprocess.Popen(command, stdout=self.out, stderr=self.err, env=dict(self.environment, **variables))

    def last_step(self):
        """Returns the newest step that a process reported."""
        step = 0
        for line in pathlib.Path(self.path).read_bytes().splitlines():
            if line.startswith(b"{") and b'"step"' in line:
                try:
                    step = max(step, json.loads(line).get("global_step", 0))
                except ValueError:
                    pass
        return step

    def keep(self):
        """Starts processes again where the peer does not do so itself."""

    def has_ended(self):
        """Returns whether the peer's launcher has ended, with all steps or without."""
        return False


class Trireme(Job):
    variable = "TRIREME_RANK"

    def start(self):
        o = self.options
        self.process = self.launch(
            [o.program, "train", "resnet18", "--data", "synth", "--synth-train", "8192", "--image-size", "32", "--stem", "imagenet",
             "--batch-size", str(o.batch_size // o.processes), "--steps", str(o.steps), "--epochs", "100000", "--learning-rate", "0.01",
             "--momentum", "0.9", "--eval-every-epochs", "0", "--log-every", "1", "--threads", "1", "-n", str(o.processes),
             "--elastic", f"1:{o.processes}", "--elastic-restarts", "1000", "--launch-dir", self.folder, "--json"])

    def pids(self):
        return find_processes(self.process.pid, self.variable)

    def has_ended(self):
        return self.process.poll() is not None

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Torchrun(Trireme):
    variable = "LOCAL_RANK"

    def start(self):
        self.process = self.launch(
            [self.options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(self.options.processes), "--max-restarts",
             "1000", "--monitor-interval", "0.1", "--standalone", os.path.abspath(__file__), "--work", "torchrun"])


class Torchft(Job):
    def start(self):
        port = 29000 + os.getpid() % 900
        lighthouse = os.path.join(os.path.dirname(self.options.python), "torchft_lighthouse")
        self.lighthouse = self.launch([lighthouse, "--bind", f"127.0.0.1:{port}", "--min_replicas", "1", "--join_timeout_ms", "1000"])
        self.environment["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{port}"
        self.workers = {}
        time.sleep(1)
        self.keep()

    def keep(self):
        for number in range(self.options.processes):
            worker = self.workers.get(number)
            if worker is None or worker.poll() not in (None, 0):
                self.workers[number] = self.launch([self.options.python, os.path.abspath(__file__), "--work", "torchft"],
                                                   NUMBER=str(number))

    def pids(self):
        return {n: w.pid for n, w in self.workers.items() if w.poll() is None}

    def stop(self):
        for process in [*self.workers.values(), self.lighthouse]:
            process.kill()
            process.wait()


PEERS = {"trireme": Trireme, "torchft": Torchft, "torchrun": Torchrun}


def run_job(kind, options):
    """Runs one job under its kills; returns seconds from its first step to its last, kills, and whether it came to its end."""
    folder = tempfile.mkdtemp(prefix=f"peer-{kind}-")
    victims = random.Random(options.seed)
    job = PEERS[kind](options, folder)
    begin, first, kills, step = time.monotonic(), None, 0, 0
    try:
        while step < options.steps and time.monotonic() - begin < LIMIT_SECONDS:
            time.sleep(0.02)
            job.keep()
            ended = job.has_ended()
            step = job.last_step()
            if ended and step < options.steps:
                print(f"{kind} has ended after step {step}; its messages are in {folder}/err", file=sys.stderr)
                break
            first = time.monotonic() if first is None and step > 0 else first
            if first is None or time.monotonic() < first + (kills + 1) * options.every:
                continue
            victim, pids = victims.randrange(options.processes), job.pids()
            kills += 1
            if pids and step < options.steps:
                os.kill(pids.get(victim, pids[min(pids)]), signal.SIGKILL)
        seconds = time.monotonic() - (first or begin)
    finally:
        job.stop()
    good = step >= options.steps
    if good:
        shutil.rmtree(folder)
    return {"peer": kind, "seconds": round(seconds, 2), "kills": kills, "steps": step, "ended": good, **({} if good else {"files": folder})}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", default="trireme,torchft,torchrun")
    parser.add_argument("--program", default="build/release/trireme")
    parser.add_argument("--python", default=os.path.expanduser("~/.cache/trireme-peers/torchft/bin/python"))
    options = parser.parse_args()
    if options.work:
        return {"torchft": work_torchft, "torchrun": work_torchrun}[options.work]()
    rows = []
    for kind in options.peers.split(","):
        rows.append(run_job(kind, options))
        print(json.dumps(rows[-1]), flush=True)
    times = {row["peer"]: row["seconds"] for row in rows if row["ended"]}
    others = [seconds for peer, seconds in times.items() if peer != "trireme"]
    if "trireme" in times and others:
        print(json.dumps({"ratio": round(times["trireme"] / min(others), 3), "wanted": 0.3}))
    return 0 if len(times) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
