#!/usr/bin/env python3
"""Kills runs with SIGKILL at random instants and resumes each to its end. Nothing may be lost, repeated or changed.

    soak.py [--runs 100] [--seed N] [--copus build/bin/copus]

The decisions of a run with --adapt depend on step times, so no two such runs are the same. Therefore a run that is killed
while it moves goes on at a fixed layout, twice: once with another kill, and once undisturbed, in a copy of its folder. The
soak test compares the two, and compares their samples with those of a run that never moved. If anything differs, the exit
code is 1 and the folders of the run stay.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import fixture
from fixture import END_S, START_S, checkpoint_files, lasting_steps, of_kind, tagged
from kills import (PHASES, VICTIMS, events_bytes, events_from, partial_folders, phase_of, strike, wait_for_move,
                   wait_for_save, wait_seconds)  # fmt: skip

LAYOUTS = {"dp2": "dp=2", "tp2": "tp=2", "pp2": "pp=2", "dp2.zero1": "dp=2,zero=1"}
AIMS = ("checkpoint", "reconfiguration", "any", "any", "checkpoint")

STEPS = 48
COMMON = ("--model", "tiny", "--seq-len", 32, "--lr", "1e-3")
FIXED = (*COMMON, "--global-batch", 8, "--steps", STEPS, "--ranks", 2, "--checkpoint-every", 3)
# This run will move: between processes on CPUs tp=2 is the slowest layout, and with this calibration a larger batch pays.
MOVING = (*COMMON, "--global-batch", 4, "--batch-range", "4:32", "--steps", 100000, "--ranks", 2, "--checkpoint-every", 1,
          "--plan", "tp=2,micro_batch=1", "--adapt", "full", "--warmup-samples", 0, "--decay-samples", 0, "--calibration",
          1000, "--noise-every", 1, "--decide-every", 5, "--dwell", 5, "--margin", 0.02, "--batch-margin", 0.02)  # fmt: skip
STEPS_AFTER_A_MOVE = 12
MOST_MISSES = 10


class Soak:
    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.seconds = {}  # by layout: the time of the undisturbed run
        self.kills = []  # (phase, victim)

    def start(self, *args):
        self.tag = uuid.uuid4().hex
        return fixture.Run(self.folder, self.tag, args)

    def finish(self, run):
        run.wait(START_S + END_S)
        deadline = time.monotonic() + END_S
        while left := tagged(self.tag):  # ranks die after their supervisor
            assert time.monotonic() < deadline, f"processes {list(left)} outlive their run: {' '.join(run.args)}"
            time.sleep(0.01)
        err = run.err
        run.out_file.close()
        run.err_file.close()
        return run.code, err

    def whole(self, *args):
        code, err = self.finish(self.start(*args))
        assert code == 0, f"an undisturbed run has exit code {code}: {err}"

    def reference(self, layout):
        run_dir = self.folder / f"whole-{layout}"
        if layout not in self.seconds:
            begin = time.monotonic()
            self.whole(*FIXED, "--plan", LAYOUTS[layout], "--run-dir", run_dir.name)
            self.seconds[layout] = time.monotonic() - begin
        return run_dir

    def sample_hashes(self):
        """Returns the hash of the first N samples by N, from a run of one rank that never moves."""
        run_dir = self.folder / "whole-samples"
        if not run_dir.exists():
            self.whole(*COMMON, "--global-batch", 4, "--steps", 400, "--checkpoint-every", "off", "--run-dir", run_dir.name)
        return {event["samples"]: event["data_hash"] for event in of_kind(run_dir, "step")}

    def disturb(self, run_dir, first, again, instants):
        """Runs to the end, with one kill for each instant. Returns the kills: (phase, victim, bytes of events so far)."""
        kills = []
        for number in itertools.count():
            begin, struck = len(events_bytes(run_dir)), False
            run = self.start(*(again if (run_dir / "config.toml").exists() else first))
            if number < len(instants) and instants[number](run, begin):
                victim = strike(run, self.tag, self.random.choice(VICTIMS))
                struck = True
                kills.append((phase_of(run_dir, begin), victim, len(events_bytes(run_dir))))
            code, err = self.finish(run)
            if code == 0:
                return kills
            assert struck, f"exit code {code} without a kill: {err}"

    def report(self, name, layout, run_dir, kills):
        """Prints the kills and returns their number. A kill after the end of the run does not count."""
        hits = 0
        for phase, victim, at in kills:
            later = {event["event"]: event for event in reversed(events_from(run_dir, at))}  # the first event of each kind
            if "restart" not in later and "start" not in later:
                continue
            since = f"from step {later['restart']['step']}" if "restart" in later else "anew"
            print(f"{name:<8} {layout:<10} {victim:<11} killed in: {phase:<16} resumed {since}", flush=True)
            self.kills.append((phase, victim))
            hits += 1
        return hits

    def fixed(self, name, aim, layout):
        whole, run_dir, draw = self.reference(layout), self.folder / name, self.random

        def any_time(run, begin):
            return wait_seconds(run, draw.uniform(0, self.seconds[layout]))

        def in_a_save(run, begin):
            return wait_for_save(run, run_dir, begin, draw.randrange(1, STEPS - 3), draw.uniform(0, 0.03))

        instants = [in_a_save if aim == "checkpoint" else any_time]
        if draw.random() < 0.25:
            instants.append(any_time)
        first = (*FIXED, "--plan", LAYOUTS[layout], "--run-dir", name)
        if draw.random() < 0.25:
            first += ("--max-restarts", 5)  # if a rank is killed, the supervisor resumes the run
        kills = self.disturb(run_dir, first, ("--resume", "--run-dir", name), instants)
        return self.report(name, layout, run_dir, kills), differences(run_dir, whole, STEPS)

    def moving(self, name):
        run_dir, copy, draw = self.folder / name, self.folder / f"{name}-undisturbed", self.random
        run = self.start(*MOVING, "--run-dir", name)
        assert wait_for_move(run, run_dir, draw.randrange(1, 5), draw.uniform(0, 0.03)), run.err
        victim = strike(run, self.tag, draw.choice(VICTIMS))
        kill = (phase_of(run_dir, 0), victim, len(events_bytes(run_dir)))
        code, err = self.finish(run)
        assert code != 0, f"a killed run has exit code 0: {err}"
        shutil.copytree(run_dir, copy)
        newest = max((copy / "checkpoints").glob("step-*"), key=lambda folder: int(folder.name[5:]))
        manifest = json.loads((newest / "manifest.json").read_bytes())
        (copy / "plan.json").write_text(json.dumps(manifest["plan"]))
        steps = manifest["step"] + STEPS_AFTER_A_MOVE
        again = ("--resume", "--adapt", "off", "--plan", f"{copy.name}/plan.json", "--global-batch",
                 manifest["global_batch"], "--steps", steps)  # fmt: skip
        begin = time.monotonic()
        self.whole(*again, "--run-dir", copy.name)
        seconds = time.monotonic() - begin
        again += ("--run-dir", name)
        kills = self.disturb(run_dir, again, again, [lambda run, begin: wait_seconds(run, draw.uniform(0, seconds))])
        hits = self.report(name, "moving", run_dir, [kill, *kills])
        hashes = self.sample_hashes()
        return hits, differences(run_dir, copy, steps) + [
            f"the first {event['samples']} samples are not those of a run that never moved"
            for event in lasting_steps(run_dir).values()
            if event["data_hash"] != hashes[event["samples"]]
        ]


    def one(self, name, aim, layout):
        """Makes one run. Returns the number of kills, and the differences after them."""
        try:
            return self.fixed(name, aim, layout) if layout else self.moving(name)
        except AssertionError as error:  # the run did not start, or did not end well
            for pid in tagged(self.tag):
                os.kill(pid, signal.SIGKILL)
            return 0, [str(error)]


def differences(run_dir, whole, steps):
    """Returns the differences between a disturbed run and an undisturbed one, in all steps and in the last checkpoint."""
    ours, theirs = lasting_steps(run_dir), lasting_steps(whole)
    wrong = [] if list(ours) == list(range(1, steps + 1)) else [f"steps {list(ours)}; want 1 to {steps}"]
    samples = 0
    for step, event in ours.items():
        samples += event["global_batch"]
        if event["samples"] != samples:
            wrong.append(f"step {step}: {event['samples']} samples consumed; want {samples}")
        for field in ("data_hash", "loss", "grad_norm", "lr"):
            if event[field] != theirs[step][field]:
                wrong.append(f"step {step}: {field} {event[field]}; undisturbed {theirs[step][field]}")
    mine, others = checkpoint_files(run_dir, steps), checkpoint_files(whole, steps)
    wrong += [f"{name} differs" for name in sorted(mine.keys() | others.keys()) if mine.get(name) != others.get(name)]
    return wrong + [f"half a checkpoint is left: {left}" for left in partial_folders(run_dir)]


def print_table(kills):
    counts = Counter(kills)
    print(f"\n| killed in | {' | '.join(VICTIMS)} | kills |\n| --- {'| ---: ' * (len(VICTIMS) + 1)}|")
    for phase in PHASES:
        row = [counts[phase, victim] for victim in VICTIMS]
        print(f"| {phase} | {' | '.join(map(str, row))} | {sum(row)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="seed of the victims and instants")
    parser.add_argument("--copus", type=Path, default=fixture.COPUS)
    options = parser.parse_args()
    fixture.COPUS = options.copus.resolve()
    folder = Path(tempfile.mkdtemp(prefix="copus_soak_"))
    soak, different = Soak(folder, options.seed), 0
    begin, layouts = time.monotonic(), itertools.cycle(LAYOUTS)
    for number in range(options.runs):
        aim = AIMS[number % len(AIMS)]
        layout = "" if aim == "reconfiguration" else next(layouts)
        for attempt in range(1, MOST_MISSES + 2):
            name = f"run-{number + 1}" if attempt == 1 else f"run-{number + 1}.{attempt}"
            hits, wrong = soak.one(name, aim, layout)
            for line in wrong:
                print(f"{name}: DIFFERENT: {line}", flush=True)
            different += bool(wrong)
            if not wrong:
                shutil.rmtree(folder / name)
                shutil.rmtree(folder / f"{name}-undisturbed", ignore_errors=True)
            if hits or wrong:
                break  # else the run was over before the kill
        else:
            print(f"run-{number + 1}: over before the kill, {attempt} times")
            different += 1
    print_table(soak.kills)
    outcome = f"{different} DIFFERENT, left in {folder}" if different else "no run differs from an undisturbed one"
    print(f"\n{options.runs} runs, {len(soak.kills)} kills, {time.monotonic() - begin:.0f} s, seed {options.seed}: {outcome}")
    if not different:
        shutil.rmtree(folder)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
