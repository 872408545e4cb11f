#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills each role of a job with parameter servers by SIGKILL in each phase of the job; the launcher starts the role again.

usage: ps_kills.py [--trireme build/release/trireme] [--mode sync|async|staleness=K] [--roles "worker 1,ps 0,..."] [--phases start,...]
       [--train 20000; asynchronous 400000] [--epochs 2] [--learning-rate 0.005] [--ps 1] [--limit 60] [--lend auto|always]
       [--calm 1; asynchronous 8] [--hybrid]
worker 0 is the chief. A line for each kill: role, phase, AUC and that of an undisturbed run (at most 0.0005 apart), how often rows of
dense variables were updated (each push once), seconds, leftovers (processes, shared memory), and errors of other roles.
Synchronous jobs must give the undisturbed numbers. Asynchronous jobs differ by the order of pushes, disturbed or not; synchronous jobs
with --lend always differ by which workers have samples in a step, and so by the number of steps. For these several undisturbed jobs run
first. Their spread is printed; the AUC must lie within 0.0005 of their mean, which proves nothing unless the spread is smaller
(exit 2: use more --train).
--hybrid: dense parameters are not on servers; the updates are those of all rows of the tables, read from the servers' folder.
The whole table takes about three minutes on two quiet cores.
"""
import argparse
import glob
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PHASES = ("start", "rendezvous", "first step", "middle", "checkpoint", "end")


def shared_names(pids):
    """Return the files in /dev/shm that these processes have mapped."""
    names = set()
    for pid in pids:
        try:
            lines = open(f"/proc/{pid}/maps").read().split("\n")
        except OSError:
            continue
        names |= {words[5] for words in (line.split(maxsplit=5) for line in lines) if words[5:] and words[5].startswith("/dev/shm/")}
    return names


def processes(output):
    """Return {"worker 0": pid, ...} of the job that writes to `output`, and all its pids with the launcher's."""
    found, all_of = {}, []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            words = open(f"{folder}/cmdline", "rb").read().split(b"\0")
            if output.encode() not in words or b"train" not in words:
                continue
            environment = open(f"{folder}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        pid = int(os.path.basename(folder))
        all_of.append(pid)
        for entry in environment:
            if entry.startswith(b"TF_CONFIG="):
                task = json.loads(entry[10:])["task"]
                found[f"{task['type']} {task['index']}"] = pid
    return found, all_of


def events(path):
    lines = open(path).read().split("\n") if os.path.exists(path) else []
    out = []
    for line in lines:
        try:
            out.append(json.loads(line))
        except ValueError:
            pass
    return out


class Job:
    def __init__(self, args, work, name):
        self.args, self.folder, self.output = args, os.path.join(work, name), os.path.join(work, name, "run")
        os.makedirs(self.folder)
        self.log = os.path.join(self.folder, "job.json")
        self.steps = args.train // 100 * args.epochs // (2 if args.mode == "sync" or args.hybrid else 1)
        line = [args.trireme, "train", "deepfm", "--data", "synth", "--fields", "4", "--dense", "3", "--table-rows", "12",
                "--synth-train", str(args.train), "--synth-test", "50000", "--batch-size", "100", "--epochs", str(args.epochs), "--hidden", "16",
                "--embedding-width", "8", "--learning-rate", str(args.learning_rate), "--schedule", "cosine", "--seed", "3", "-n", "2",
                "--ps", str(args.ps), "--mode", args.mode, "--lend", args.lend, "--evaluator", "--output", self.output, "--restarts", "5",
                "--save-every-steps", str(max(1, self.steps // 8)), "--log-every", "1", "--json"] + ["--hybrid"] * args.hybrid
        self.begin = time.time()
        self.shared = set() # files in /dev/shm that a process of the job has had, at any time when it was looked at
        self.process = subprocess.Popen(line, cwd=self.folder, stdout=open(self.log, "w"), stderr=open(self.log + ".err", "w"),
                                        env=dict(os.environ, OMP_NUM_THREADS="1"))

    def look(self):
        """Return the processes of the roles; note the shared memory of all."""
        roles, all_of = processes(self.output)
        self.shared |= shared_names(all_of)
        return roles

    def step(self):
        return max([e["global_step"] for e in events(self.log) if e.get("event") == "step"], default=0)

    def saving(self):
        return glob.glob(self.output + "/ckpt-*.tmp.*") or glob.glob(self.output + "/ps/**/*tmp*", recursive=True)

    def reached(self, phase, role):
        if phase == "start":
            return True
        if phase == "rendezvous":
            return os.path.exists(self.output + "/ps") if role.startswith("ps") else time.time() - self.begin > 0.3
        if phase == "checkpoint":
            return self.step() > self.steps // 4 and bool(self.saving())
        return self.step() >= {"first step": 1, "middle": self.steps // 2, "end": self.steps - self.steps // 20 - 1}[phase]

    def kill(self, role, phase):
        """Kill the role; return the seconds after which it was killed, or None if the job ended before."""
        while self.process.poll() is None and time.time() - self.begin < self.args.limit:
            pid = self.look().get(role)
            if pid is not None and self.reached(phase, role):
                os.kill(pid, signal.SIGKILL)
                return time.time() - self.begin
            time.sleep(0.002)
        return None

    def finish(self):
        """Return the results of the job, or the reason why it has none."""
        end = time.time() + self.args.limit
        while self.process.poll() is None and time.time() < end:
            self.look()
            time.sleep(0.05)
        code = self.process.poll()
        if code is None:
            for pid in processes(self.output)[1]: # its own processes only: the output folder is this script's
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            return None, "HANGS"
        if code != 0:
            return None, f"exit code {code}: {open(self.log + '.err').read().strip()[-200:]}"
        done = [e for e in events(self.log) if e.get("event") == "done" and ("least_updates" in e or self.args.hybrid)]
        evaluations = [e for e in events(self.log) if e.get("event") == "eval"]
        if not done or not evaluations:
            return None, "no result"
        if self.args.hybrid:
            return (evaluations[-1]["auc"], self.row_updates("embedding.weight"), self.row_updates("wide.weight")), ""
        return (evaluations[-1]["auc"], done[-1]["least_updates"], done[-1]["most_updates"]), ""

    def left(self):
        """Return what the job has left behind: processes and files in /dev/shm."""
        return [f"process {pid}" for pid in processes(self.output)[1]] + sorted(name for name in self.shared if os.path.exists(name))

    def failures(self):
        """Return the errors of roles that ended by themselves: the launcher restarts them, so the results of most jobs do not show them."""
        return [e.get("message", "") for e in events(self.log) if e.get("event") == "error"]

    def row_updates(self, table):
        """Return the number of updates of all rows; -1 if it cannot be read."""
        told = subprocess.run([self.args.trireme, "ps", "inspect", self.output + "/ps", "--table", table, "--top", "1"], capture_output=True, text=True)
        words = told.stdout.split()
        return int(words[-2]) if told.returncode == 0 and words[-1:] == ["updates"] else -1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--mode", default="sync")
    parser.add_argument("--roles", default="worker 1,ps 0,worker 0,evaluator 0")
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--train", type=int)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--lend", default="auto")
    parser.add_argument("--calm", type=int)
    parser.add_argument("--hybrid", action="store_true")
    args = parser.parse_args()
    args.trireme = os.path.realpath(args.trireme)
    lent = args.mode == "sync" and args.lend == "always"
    varies = args.mode != "sync" or lent
    args.train = args.train or (400000 if varies else 20000)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        calm = []
        for i in range(args.calm or (8 if varies else 1)):
            job = Job(args, work, f"calm{i}")
            found, why = job.finish()
            if found is None:
                sys.exit(f"the undisturbed job: {why}")
            calm.append(found[0])
            wanted = found[1:]
            print(f"{args.mode}, {args.ps} ps, undisturbed: auc {found[0]:.6f}, {found[1]} to {found[2]} updates, "
                  f"{time.time() - job.begin:.1f} s", flush=True)
        mean = statistics.mean(calm)
        if varies and len(calm) > 1:
            print(f"undisturbed: mean {mean:.6f}, deviation {statistics.stdev(calm):.6f}, {min(calm) - mean:+.6f} to {max(calm) - mean:+.6f}", flush=True)
            if max(calm) - min(calm) > 0.0005:
                sys.exit(2)
        number = 0
        for role in args.roles.split(","):
            for phase in args.phases.split(","):
                number += 1
                job = Job(args, work, f"job{number}")
                killed = job.kill(role, phase)
                found, why = job.finish()
                left = job.left()
                good = found is not None and abs(found[0] - mean) <= 0.0005 and not left
                failures = job.failures()
                good = good and not failures and killed is not None and (found[1] == found[2] if lent else found[1:] == wanted)
                failed += not good
                seen = why if found is None else f"auc {found[0]:.6f} ({found[0] - mean:+.6f}), {found[1]} to {found[2]} updates"
                when = "over before" if killed is None else f"killed after {killed:4.1f} s"
                print(f"{role:12} {phase:11} {when:18} {seen}, {time.time() - job.begin:4.1f} s"
                      f"{', left: ' + ', '.join(left) if left else ''}{', failed: ' + '; '.join(failures) if failures else ''}"
                      f"{'' if good else '   WRONG'}", flush=True)
    sys.exit(1 if failed else 0)


main()
