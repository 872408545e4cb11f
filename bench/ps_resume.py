#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A synchronous job with parameter servers is killed by SIGKILL, all processes at once, and resumed: the bits must be the same.

usage: ps_resume.py [--trireme build/release/trireme] [--kills 200] [--servers 1,2] [--workers 1,2] [--steps 12] [--save-every 5]
       [--again 0] [--only-step K] [--spread 0.01] [--seed 1] [--limit 60] [--job "MODEL --flag ..."] [--pairs] [--verbose] [--keep]
For each number of servers and workers two undisturbed jobs give the expected losses and weights. Then the same job is killed at each
of its steps in turn, at a random moment within --spread seconds after the report of that step, and resumed until it is over. A kill
changed nothing when each loss that any life of the job reported, and the bytes of the last checkpoint's weights, are the expected ones.
--pairs: only one worker and one server are killed, together; the others live on, and the launcher starts the two again.
--again N: the resumed job is killed N times more, each at a random moment of --again-seconds, before it is resumed to its end.
--limit: seconds within which each job must end. --verbose: a line for each kill. --keep: folders of jobs that differ stay.
Exit code: 0 all kills were made and changed nothing, 1 not, 2 an undisturbed job differs from itself or fails.
200 kills take about eight minutes on two quiet cores.
"""
import argparse
import glob
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def events(path):
    """Return the JSON events of a log that are whole."""
    found = []
    for line in open(path) if os.path.exists(path) else []:
        try:
            found.append(json.loads(line))
        except ValueError:  # the line that was being written when its process died
            pass
    return found


class Job:
    """One job in a folder of its own, through all of its lives: each start() is one, with a log of its own."""

    def __init__(self, args, folder, servers, workers):
        self.args, self.folder, self.servers, self.workers = args, folder, servers, workers
        self.output = os.path.join(folder, "run")
        self.logs = []
        os.makedirs(folder)

    def start(self, resume):
        a = self.args
        log = os.path.join(self.folder, f"log{len(self.logs)}.json")
        self.logs.append(log)
        line = [a.trireme, "train"] + a.job.split() + [
            "--steps", str(a.steps), "-n", str(self.workers), "--ps", str(self.servers), "--mode", "sync",
            "--output", self.output, "--save-every-steps", str(a.save_every), "--log-every", "1", "--json"] + ["--resume"] * resume
        line += ["--restarts", "5"] if a.pairs else []
        self.process = subprocess.Popen(line, cwd=self.folder, stdout=open(log, "w"), stderr=open(log + ".err", "w"),
                                        env=dict(os.environ, OMP_NUM_THREADS="1"), start_new_session=True)

    def roles(self):
        """Return {"worker": [pids], "ps": [pids]} of the session that this program has started."""
        found = {}
        for folder in glob.glob("/proc/[0-9]*"):
            try:
                if int(open(folder + "/stat").read().rsplit(")", 1)[1].split()[3]) != self.process.pid:
                    continue
                environment = open(folder + "/environ", "rb").read().split(b"\0")
            except OSError:  # it has ended
                continue
            for entry in environment:
                if entry.startswith(b"TF_CONFIG={"):
                    role = json.loads(entry[10:])["task"]["type"]
                    found.setdefault("ps" if role == "ps" else "worker", []).append(int(os.path.basename(folder)))
        return found

    def victims(self, rng):
        """Choose a worker (possibly the chief) and a server to kill."""
        roles = self.roles()
        return [rng.choice(sorted(roles[r])) for r in ("worker", "ps") if roles.get(r)]

    def kill_after(self, step, delay, rng=None):
        """Kill the job `delay` seconds after this life reports a step from `step` on (0: after its start): all of its processes; with
        `rng` only one worker and one server, which it draws. Return whether they were killed before the job ended."""
        victims = []
        log = self.logs[-1]
        end = time.time() + self.args.limit
        while self.process.poll() is None and time.time() < end:
            if rng is not None and len(victims) < 2:
                victims = self.victims(rng)
            if step == 0 or any(e.get("event") == "step" and e["global_step"] >= step for e in events(log)):
                time.sleep(delay)
                break
            time.sleep(0.0005)
        over = self.process.poll() is not None
        if rng is not None:
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not over and len(victims) == 2
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        while self.roles() and time.time() < end:  # the launcher's children end a moment after it
            time.sleep(0.02)
        return not over

    def finish(self):
        """Return the reason why the job failed; empty: it did not fail."""
        try:
            code = self.process.wait(self.args.limit)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return f"no end after {self.args.limit} s"
        return "" if code == 0 else f"exit code {code}: {open(self.logs[-1] + '.err').read().strip()[-300:]}"

    def losses(self):
        """Return {step: the losses that were reported for it}."""
        found = {}
        for log in self.logs:
            for e in events(log):
                if e.get("event") == "step":
                    found.setdefault(e["global_step"], set()).add(e["loss"])
        return found

    def weights(self):
        """Return (step, digest of the weights) of the last checkpoint; None: there is none."""
        path = max(glob.glob(self.output + "/ckpt-*/model.safetensors"), key=lambda p: int(p.split("ckpt-")[1].split("/")[0]), default=None)
        return (int(path.split("ckpt-")[1].split("/")[0]), hashlib.sha256(open(path, "rb").read()).hexdigest()[:16]) if path else None


def run_undisturbed(args, work, servers, workers):
    """Run the same job twice, and return one of the two. They must have equal losses and weights; else there is nothing to compare kills
    with, and the program ends."""
    jobs = []
    for i in range(2):
        job = Job(args, os.path.join(work, f"calm-{servers}-{workers}-{i}"), servers, workers)
        job.start(False)
        why = job.finish()
        if why:
            print(f"undisturbed, {servers} ps, {workers} workers: {why}")
            sys.exit(2)
        jobs.append(job)
    if jobs[0].losses() != jobs[1].losses() or jobs[0].weights() != jobs[1].weights():
        print(f"undisturbed, {servers} ps, {workers} workers: two runs differ")
        sys.exit(2)
    return jobs[0]


def kill_and_resume(args, work, calm, number, step, rng):
    """Kill a job after `step` and resume it to its end. Return how it differs from `calm` (empty: not at all); None: it ended before it
    could be killed."""
    job = Job(args, os.path.join(work, f"kill-{number}"), calm.servers, calm.workers)
    begin = time.time()
    job.start(False)
    if not job.kill_after(step, rng.random() * args.spread, rng if args.pairs else None):
        if args.pairs:
            job.finish()
        shutil.rmtree(job.folder)
        return None
    for _ in range(args.again):
        job.start(True)
        job.kill_after(0, rng.random() * args.again_seconds)
    if not args.pairs:
        job.start(True)
    why = job.finish()
    wrong = []
    if why:
        wrong.append(why)
    else:
        expected, found = calm.losses(), job.losses()
        wrong += [f"step {s}: loss {sorted(found[s])}, expected {sorted(expected.get(s, []))}" for s in sorted(found) if found[s] != expected.get(s)]
        if job.weights() != calm.weights():
            wrong.append(f"weights {job.weights()}, expected {calm.weights()}")
    if args.verbose or wrong:
        print(f"{calm.servers} ps, {calm.workers} workers, killed after step {step}: {'; '.join(wrong) or 'same bits'} ({time.time() - begin:.1f} s)"
              f"{' ' + job.folder if wrong and args.keep else ''}", flush=True)
    if not (wrong and args.keep):
        shutil.rmtree(job.folder)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--servers", default="1,2")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--again", type=int, default=0)
    parser.add_argument("--again-seconds", type=float, default=0.4)
    parser.add_argument("--spread", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--only-step", type=int, default=0)
    parser.add_argument("--job", default="deepfm --data synth --fields 4 --dense 3 --table-rows 300 --synth-train 6400 --synth-test 100 --batch-size 64 "
                        "--epochs 100 --hidden 256,256 --embedding-width 16 --learning-rate 0.01 --seed 3 --eval-every-epochs 0")
    args = parser.parse_args()
    args.trireme = os.path.realpath(args.trireme)
    rng = random.Random(args.seed)
    kills = different = 0
    work = tempfile.mkdtemp(prefix="ps_resume_")
    try:
        patterns = [(s, w) for s in map(int, args.servers.split(",")) for w in map(int, args.workers.split(","))]
        calm = {p: run_undisturbed(args, work, *p) for p in patterns}
        count = {p: [0, 0] for p in patterns}
        tries = 0
        while kills < args.kills and tries < 3 * args.kills:
            pattern = patterns[tries % len(patterns)]
            step = args.only_step or 1 + tries // len(patterns) % (args.steps - 1)
            wrong = kill_and_resume(args, work, calm[pattern], tries, step, rng)
            tries += 1
            if wrong is None:
                continue
            kills += 1
            count[pattern][0] += 1
            count[pattern][1] += bool(wrong)
            different += bool(wrong)
        for (s, w), (all_of, bad) in count.items():
            print(f"{s} ps, {w} workers: {all_of} kills, {bad} differ")
        print(f"{kills} kills, {different} differ")
    finally:
        if not args.keep:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if different or kills < args.kills else 0)


main()
