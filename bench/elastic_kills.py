#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks of elastic jobs at random moments, or makes them leave, and compares the weights.

    bench/elastic_kills.py --kills 100 [--leaves 0.25] [--restarts 3] [--seed 1] [--models mlp,resnet18,mlp-slices] [--ranks 4,8]

Each job trains in strict mode (batch norm over groups does not). First the undisturbed job runs, then jobs in which random ranks die at
random moments (SIGKILL), or leave (SIGTERM, --leaves: which part), each until one rank is left or the job ends. With --restarts the launcher
starts a rank that has died again, so often, and it joins the others. One process that has the state of the model is always left
alone: when the last one dies, or is asked to leave, the job ends, as it has to. Counted: jobs that hang or fail, weights
that differ from the undisturbed ones, losses of steps that differ (a lost or doubled sample changes
them) or steps that no rank has reported, steps redone (also the most that one change has cost, which is 1), changes after which the job went
back behind a step that was reported (went_back), ranks that the others have lost although they were not killed (crashes), the seconds from a kill until the others notice it (detection), from there
to the end of the next step, and the seconds that the members of the job wait while processes join. mlp-slices, mlp-split, mlp-cuts
(dataset_strategy) and mlp-stages are jobs in which no rank has the whole state; mlp-long has room for more than 100 kills in one job (--restarts 100, no --leaves). In rank-split, rank-stages and rank-slices each rank keeps its
batch (--elastic-batch rank): the weights are those of no other job, so steps and rates tell that each sample of an epoch was used once. In
resnet18-groups batch norm is over groups of ranks: losses agree up to rounding. The last line of stdout is
one JSON object; the exit code is 1 if anything was wrong.
"""
import argparse
import hashlib
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

SAMPLES, RATE = 1024, 0.01
IMAGES = ["--data", "synth", "--image-size", "32", "--synth-train", str(SAMPLES)]
SPLIT = ["--parallel-mode", "semi_auto_parallel", "--optimizer", "adam"]


class Model:
    """A kind of job: its arguments, samples of a step of all ranks, steps (a rank is killed each 4 steps in the mean, and 3 ranks that come back
    twice are killed 9 times: at least 36), how many ranks share a batch, how many ranks an epoch needs at least (group: one for each `group` ranks
    of the beginning), and what is compared with the undisturbed job: weights and losses (bits), losses up to rounding (near: at a low rate, which
    keeps differences small), or only how many samples each epoch has used (samples)."""

    def __init__(self, words, batch, steps, share=1, group=None, check="bits"):
        self.words, self.batch, self.steps, self.share, self.group, self.check = words, batch, steps, share, group, check
        self.rate = RATE / 100 if check == "near" else RATE

    def least(self, ranks):
        return ranks // self.group if self.group else 1


KEEPS = ["--elastic-batch", "rank"]
MODELS = {
    "mlp": Model(["mlp", *IMAGES], 32, 120),
    "mlp-long": Model(["mlp", *IMAGES], 32, 600),
    "mlp-slices": Model(["mlp", *IMAGES, "--shard-optimizer"], 32, 120),
    "mlp-split": Model(["mlp", *IMAGES, *SPLIT], 32, 120),
    "mlp-cuts": Model(["mlp", *IMAGES, *SPLIT, "--context", "dataset_strategy=((RANKS,1,1,1),(RANKS,))"], 32, 120),
    "mlp-stages": Model(["mlp", *IMAGES, "--stages", "2", "--optimizer", "adam"], 32, 120, share=2),
    "rank-slices": Model(["mlp", *IMAGES, *KEEPS], 32, 120, check="samples"),
    "rank-split": Model(["mlp", *IMAGES, *SPLIT, *KEEPS], 32, 120, check="samples"),
    "rank-cuts": Model(["mlp", *IMAGES, *SPLIT, *KEEPS, "--context", "dataset_strategy=((1,1,1,RANKS),(RANKS,))"], 32, 120, check="samples"),
    "rank-stages": Model(["mlp", *IMAGES, "--stages", "2", "--optimizer", "adam", *KEEPS], 32, 120, share=2, check="samples"),
    "resnet18": Model(["resnet18", *IMAGES, "--stem", "cifar"], 16, 40),
    "resnet18-groups": Model(["resnet18", *IMAGES, "--stem", "cifar", "--sync-batch-norm", "2"], 16, 40, group=2, check="near"),
    "resnet50": Model(["resnet50", *IMAGES, "--stem", "cifar"], 8, 40),
    "gpt2": Model(["gpt2", "--dataset", "text", "--data", "TEXT", "--tokens", "bytes", "--layers", "2", "--heads", "2",
                   "--width", "32", "--context", "32"], 32, 60),
}
NEAR = 0.02  # of the losses of jobs that round otherwise
SLOW_STEPS = 10


def ranks_of(launcher):
    """Returns {rank: pid} of the living ranks of a launcher."""
    return find_processes(launcher, "TRIREME_RANK")


class Job:
    def __init__(self, options, model, ranks, restarts, folder):
        kind = self.model = MODELS[model]
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder, self.ranks, self.steps, self.kills, self.leaves = folder, ranks, kind.steps, [], 0
        self.least = kind.least(ranks)
        self.hang_seconds = options.hang
        self.starts = {}  # of processes, by rank
        text = pathlib.Path(folder).parent / "text.txt"
        words = [str(text) if word == "TEXT" else word.replace("RANKS", str(ranks)) for word in kind.words]
        command = [options.program, "train", *words, "--batch-size", str(kind.batch * kind.share // ranks), "--steps", str(kind.steps),
                   "--epochs", "1000", "--learning-rate", str(kind.rate), "--log-every", "1", "-n", str(ranks), "--elastic",
                   f"{self.least}:{ranks}", "--elastic-restarts", str(restarts), "--deterministic", "true" if kind.check == "near" else "strict",
                   "--eval-every-epochs", "0",
                   "--threads", "1", "--output", f"{folder}/run", "--save-every-steps", "1000000",
                   "--launch-dir", folder, "--json"]
        self.out = open(f"{folder}/out", "wb")
        self.err = open(f"{folder}/err", "wb")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.out, stderr=self.err)

    def events(self):
        lines = pathlib.Path(self.folder, "out").read_bytes().split(b"\n")
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except ValueError:
                pass
        return events

    def last_step(self):
        steps = [e["global_step"] for e in self.events() if e.get("event") == "step"]
        return steps[-1] if steps else 0

    def running(self):
        return self.process.poll() is None and time.monotonic() - self.begin < self.hang_seconds

    def hash(self):
        total = hashlib.sha256()
        folder = pathlib.Path(self.folder, "run", f"ckpt-{self.steps}")
        for name in ("model.safetensors", "optimizer.safetensors"):
            total.update((folder / name).read_bytes())
        return total.hexdigest()

    def losses(self):
        return {e["global_step"]: e["loss"] for e in self.events() if e.get("event") == "step"}

    def disagreements(self, losses):
        """Counts the steps that no rank 0 has reported, and those whose losses are not those of the undisturbed job; where each rank keeps its
        batch, epochs with other samples."""
        steps = [e for e in self.events() if e.get("event") == "step"]
        missing = set(range(1, self.steps + 1)) - {e["global_step"] for e in steps}
        if missing:
            print(f"steps that no rank has reported: {sorted(missing)}", flush=True)
            return len(missing)
        if self.model.check == "samples":
            return self.wrong_epochs(steps)
        near = NEAR if self.model.check == "near" else 0
        return sum(1 for e in steps if not abs(losses.get(e["global_step"], 1e9) - e["loss"]) <= near)

    def crashes(self):
        """Counts the ranks that the others have lost, beyond those that this program has killed."""
        alive, lost = set(range(self.ranks)), 0
        for event in self.events():
            if event.get("event") == "membership":  # of rank 0 then; one that has just become it may name a rank again
                gone = alive & set(event["lost"])
                lost += len(gone)
                alive = alive - gone - set(event["left"]) | set(event["joined"])
        return max(0, lost - (len(self.kills) - self.leaves))

    def went_back(self):
        """Counts changes after which the first step is one before the last that had been reported: more was done again than the interrupted step.
        Where only spare ranks are left, they go back to where their epoch began."""
        count = last = 0
        change, active = None, None
        for event in self.events():
            if event.get("event") == "membership":
                gone = len(event["lost"]) + len(event["left"])
                change = event if active is None or gone < active else None
                active = event["ranks"] - event["spare"]
            elif event.get("event") == "step":
                count += change is not None and event["global_step"] < last
                change, last = None, event["global_step"]
        return count

    def wrong_epochs(self, steps):
        """Counts epochs that have used more samples than there are, or left more than a step has. The rate of a step is that of the first ranks
        times the samples of the step over theirs."""
        last = {e["global_step"]: e for e in steps}  # of a step that was done or reported again counts the last time
        samples = {step: round(self.model.batch * e["learning_rate"] / RATE) for step, e in last.items()}
        wrong = 0
        for epoch in range(1, max(e["epoch"] for e in last.values())):  # the last one may have ended early
            own = sorted(step for step, e in last.items() if e["epoch"] == epoch)
            left = SAMPLES - sum(samples[step] for step in own)
            wrong += not own or left < 0 or left >= max(samples[own[-1]], samples.get(own[-1] + 1, 0))
        return wrong


def holders_of(job, alive, marked):
    """Returns the ranks of `alive` that have the state of the model for certain, and have got no signal (pids `marked`). The log
    of a rank tells: its present process has begun as a member, or has reported the membership with which it joined."""
    holders = set()
    for rank, pid in alive.items():
        try:
            log = pathlib.Path(job.folder, f"device{rank}", f"train.log{rank}").read_bytes()
        except OSError:
            continue
        starts = log.split(b'"event":"start"')
        present = len(starts) == 1 + job.starts.get(rank, 1)  # else the process has not come so far
        if pid not in marked and present and (b'"rank":-1' not in starts[-1] or b'"event":"membership"' in starts[-1]):
            holders.add(rank)
    return holders


def wait_for_step(job, before):
    while job.running() and job.last_step() <= before:
        time.sleep(0.002)
    return job.last_step() > before


def watch_change(job, victim):
    """Waits for the end of the step after the change that `victim` was lost in. Returns when the others had noticed its death, and when that
    step had ended; None: the job has ended first."""
    noticed = None
    while job.running():
        events, now = job.events(), time.monotonic()
        for place, event in enumerate(events):
            if event.get("event") == "membership" and victim in event["lost"]:
                noticed = noticed or now - event["seconds"]
                if any(e.get("event") == "step" for e in events[place:]):
                    return noticed, now
        time.sleep(0.002)
    return None


def kill_ranks(job, random_source, ranks, options, step_seconds):
    """Ends ranks at random moments, but never the last one that has the state; returns seconds from a kill to the next step, and pairs of
    seconds from a kill until it is noticed, and from there to the end of the next step."""
    recovery, parts, waited, marked = [], [], True, set()
    wait_for_step(job, 0)
    while job.running() and len(job.kills) < (ranks - 1) * (1 + options.restarts):
        time.sleep(random_source.uniform(0, 8 * step_seconds + 0.2))
        alive = {rank: pid for rank, pid in ranks_of(job.process.pid).items() if pid not in marked}
        holders = holders_of(job, alive, marked)
        if job.last_step() >= job.steps or (len(alive) < 2 and options.restarts == 0):
            break
        if not alive:
            continue
        victims = [random_source.choice(sorted(alive))]
        if len(holders) > 3 and waited and random_source.random() < 0.1:
            victims.append(random_source.choice(sorted(set(alive) - set(victims))))
        if len(holders - set(victims)) < job.least:
            continue  # until a rank has come back
        before = job.last_step()
        killed = time.monotonic()
        number = signal.SIGTERM if random_source.random() < options.leaves else signal.SIGKILL
        for victim in victims:
            marked.add(alive[victim])
            try:
                os.kill(alive[victim], number)
            except ProcessLookupError:
                continue
            job.kills.append(victim)
            job.leaves += number == signal.SIGTERM
            job.starts[victim] = job.starts.get(victim, 1) + (number == signal.SIGKILL)
        if number == signal.SIGTERM:
            while job.running() and {alive[v] for v in victims} & set(ranks_of(job.process.pid).values()):
                time.sleep(0.002)
            wait_for_step(job, before + 1)  # the event of the change is there
            continue
        usual = waited and len(victims) == 1 and job.starts[victims[0]] == 2  # no change before has this victim, none is under way
        waited = not waited or len(holders) < 4 or random_source.random() >= 0.1
        if waited and wait_for_step(job, before):  # else the next kill may hit the recovery of this one
            recovery.append(time.monotonic() - killed)
            change = watch_change(job, victims[0]) if usual else None
            if change is not None:
                parts.append((change[0] - killed, change[1] - change[0]))
    return recovery, parts


def report(totals, name, values):
    """Adds the median of some seconds, and that of 99 %."""
    if values:
        values = sorted(values)
        totals[f"{name}_median"] = values[len(values) // 2]
        totals[f"{name}_p99"] = values[min(len(values) - 1, int(len(values) * 0.99))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/trireme")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--leaves", type=float, default=0, help="part of the ranks that leave instead")
    parser.add_argument("--restarts", type=int, default=0, help="of each rank")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default="mlp,resnet18,resnet50,gpt2")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--joins", type=int, default=0, help="go on until so many ranks have joined, too")
    parser.add_argument("--hang", type=float, default=500, help="seconds after which a job counts as one that hangs")
    parser.add_argument("--slow", type=float, default=30,
                        help="seconds and ten steps from a kill to the next step that count as a wait run into its deadline; 0: any are good")
    parser.add_argument("--keep", default=None, help="folder for the files of failed jobs")
    options = parser.parse_args()
    source = random.Random(options.seed)
    top = tempfile.mkdtemp(prefix="elastic")
    pathlib.Path(top, "text.txt").write_text(" ".join(str(i * i) for i in range(8000)))
    totals = dict(jobs=0, kills=0, leaves=0, joins=0, hangs=0, slow=0, failures=0, wrong_weights=0, wrong_losses=0,
                  crashes=0, went_back=0, memberships=0, redone_steps=0, redone_worst=0)
    recovery, noticed, waits, steps_of, references, begin = [], [], [], {}, {}, time.monotonic()
    cases = [(m, int(n)) for m in options.models.split(",") for n in options.ranks.split(",")]
    for model, ranks in cases:
        job = Job(options, model, ranks, 0, f"{top}/reference")
        job.process.wait(timeout=options.hang)
        if job.process.returncode != 0:
            sys.exit(f"undisturbed {model} with {ranks} ranks failed:\n"
                     + pathlib.Path(job.folder, "err").read_text()[-2000:])
        done = [e for e in job.events() if e.get("event") == "done"][0]
        references[model, ranks] = (job.hash(), job.losses())
        steps_of[model, ranks] = done["seconds"] / job.steps
    turn = 0
    while (totals["kills"] < options.kills or totals["joins"] < options.joins) and time.monotonic() - begin < options.seconds:
        model, ranks = cases[turn % len(cases)]
        turn += 1
        weights, losses = references[model, ranks]
        job = Job(options, model, ranks, options.restarts, f"{top}/job")
        seconds, parts = kill_ranks(job, source, ranks, options, steps_of[model, ranks])
        recovery += [(s, steps_of[model, ranks]) for s in seconds]
        noticed += parts
        bad = None
        while job.running():
            time.sleep(0.01)
        if job.process.poll() is None:
            totals["hangs"] += 1
            bad = "hang"
            job.process.send_signal(signal.SIGTERM)
            job.process.wait(timeout=60)
        elif job.process.returncode != 0:
            totals["failures"] += 1
            bad = f"exit code {job.process.returncode}"
        elif job.model.check == "bits" and job.hash() != weights:
            totals["wrong_weights"] += 1
            bad = "other weights"
        if options.slow > 0 and max(seconds, default=0) > options.slow + SLOW_STEPS * steps_of[model, ranks]:
            totals["slow"] += 1
            bad = bad or f"{max(seconds):.0f} s from a kill to the next step"
        if job.disagreements(losses):
            totals["wrong_losses"] += 1
            bad = bad or "other losses"
        changes = [e for e in job.events() if e.get("event") == "membership"]
        crashes, back = job.crashes(), job.went_back()
        bad = bad or (f"{crashes} ranks lost that were not killed" if crashes else f"{back} changes went back" if back else None)
        totals["crashes"] += crashes
        totals["went_back"] += back
        redone = max([0] + [e["redone_steps"] for e in changes])
        bad = bad or (f"{redone} steps done again in one change" if redone > 1 else None)
        totals["jobs"] += 1
        totals["kills"] += len(job.kills)
        totals["leaves"] += job.leaves
        totals["memberships"] += len(changes)
        totals["joins"] += sum(len(e["joined"]) for e in changes)
        totals["redone_steps"] += sum(e["redone_steps"] for e in changes)
        totals["redone_worst"] = max(totals["redone_worst"], redone)
        waits += [e["seconds"] for e in changes if e["joined"] and not e["lost"] and not e["left"]]
        print(f"{model} {ranks} ranks, killed {job.kills}: {bad or 'good'}", flush=True)
        if bad and options.keep:
            shutil.copytree(job.folder, f"{options.keep}/{turn}-{model}-{ranks}")
    report(totals, "recovery_seconds", [s for s, _ in recovery])
    report(totals, "beyond_two_steps", [s - 2 * step for s, step in recovery])
    report(totals, "detection_seconds", [s for s, _ in noticed])
    report(totals, "beyond_detection_seconds", [s for _, s in noticed])
    if waits:
        totals["join_waits"] = len(waits)
        totals["join_wait_seconds_median"] = sorted(waits)[len(waits) // 2]
        totals["join_wait_seconds_worst"] = max(waits)
    shutil.rmtree(top)
    print(json.dumps(totals))
    wrong = ("hangs", "slow", "failures", "wrong_weights", "wrong_losses", "crashes", "went_back")
    sys.exit(1 if any(totals[w] for w in wrong) or totals["redone_worst"] > 1 else 0)


main()
