#!/usr/bin/env python3
"""Measures the time to a loss on this machine, for runs that adapt batch and layout and for every fixed choice of a small grid.

    bench/time_to_loss.py --text FILE [--target 2.0] [--seeds 3] [--limit 120] [--rows 2 7 9]

Every run trains the same model on the same samples, with the learning rate of its batch (square-root rule). Its loss is
the mean over the last 1,024 samples, each seen for the first time. Its time counts from its start event, pauses included.
Runs of one seed follow each other, so that other work on the machine affects them alike.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
MODEL = SOURCE / "tests" / "train" / "text_llama.json"
START_BATCH, START_LR = 4, 1e-3
BATCHES = 4, 16, 64
LAYOUTS = "dp=2", "pp=2"
SPACE = ("--fix", "tp=1,vp=1,zero=0,recompute=none", "--batch-range", f"{BATCHES[0]}:{BATCHES[-1]}")
WINDOW = 1024  # samples


def choices():
    for layout in LAYOUTS:
        for batch in BATCHES:
            lr = START_LR * (batch / START_BATCH) ** 0.5
            yield f"{layout}, batch {batch}", ("--plan", layout, "--global-batch", batch, "--lr", lr)
    start = ("--global-batch", START_BATCH, "--lr", START_LR, *SPACE)
    yield "--adapt batch", (*start, "--adapt", "batch")
    yield "--adapt full --goodput plain", (*start, "--adapt", "full", "--goodput", "plain")
    yield "--adapt full", (*start, "--adapt", "full")


class Watch:
    """Follows a run's events until its mean loss is low enough."""

    def __init__(self, path, target):
        self.path, self.target = path, target
        self.read, self.window, self.samples, self.sum = 0, deque(), 0, 0.0
        self.began = None
        self.moves, self.pause_s = [], 0.0
        self.loss = float("inf")

    def reached(self):
        if not self.path.exists():
            return None
        with open(self.path, encoding="utf-8") as lines:
            lines.seek(self.read)
            for line in iter(lines.readline, ""):
                if not line.endswith("\n"):
                    break
                self.read += len(line.encode())
                event = json.loads(line)
                if event["event"] == "start":
                    self.began = event["t"]
                elif event["event"] == "reconfigure" and event["done"]:
                    self.moves.append(f"step {event['step']}: {event['to']} at {event['global_batch_to']}")
                    self.pause_s += event["pause_s"]
                elif event["event"] == "step" and self.add(event):
                    return event["t"] - self.began, event["samples"]
        return None

    def add(self, step):
        batch = step["global_batch"]
        self.window.append((batch, step["loss"]))
        self.samples += batch
        self.sum += batch * step["loss"]
        while self.samples - self.window[0][0] >= WINDOW:
            old, loss = self.window.popleft()
            self.samples -= old
            self.sum -= old * loss
        self.loss = self.sum / self.samples
        return self.samples >= WINDOW and self.loss <= self.target


def time_to_loss(copus, text, args, seed, target, limit):
    with tempfile.TemporaryDirectory(prefix="copus_ttl_") as folder:
        run_dir = Path(folder) / "run"
        command = [copus, "train", "--model", MODEL, "--data", text, "--ranks", 2, "--seq-len", 32, "--seed", seed,
                   "--warmup-samples", 128, "--decay-samples", 0, "--for", f"{limit}s", "--run-dir", run_dir, *args]  # fmt: skip
        with open(Path(folder) / "log", "w+", encoding="utf-8") as log:
            run = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
            watch = Watch(run_dir / "events.jsonl", target)
            found, deadline = None, time.monotonic() + limit + 60
            while found is None and time.monotonic() < deadline:
                found = watch.reached()
                if run.poll() is not None:
                    found = found or watch.reached()
                    break
                time.sleep(0.2)
            if run.poll() is None:
                run.send_signal(signal.SIGTERM)
            try:
                code = run.wait(60)
            except subprocess.TimeoutExpired:
                run.kill()
                code = run.wait()
            if code not in (0, 143) or (found is None and watch.loss == float("inf")):
                log.seek(0)
                sys.exit(f"exit code {code}: {' '.join(map(str, command))}\n{log.read()}")
        return found, watch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, type=Path, help="English text, a megabyte or more")
    parser.add_argument("--target", type=float, default=2.0, help="nats per byte")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds for one run")
    rows = list(choices())
    parser.add_argument("--rows", type=int, nargs="+", choices=range(1, len(rows) + 1), help="rows to run (default: all)")
    parser.add_argument("--copus", type=Path, default=SOURCE / "build" / "bin" / "copus")
    args = parser.parse_args()
    if not args.text.is_file():
        parser.error(f"--text: got {args.text}; want a file")

    rows = [rows[i - 1] for i in sorted(set(args.rows or range(1, len(rows) + 1)) | {len(rows)})]  # the last is the reference
    seconds = {name: [] for name, _ in rows}
    samples = {name: [] for name, _ in rows}
    for seed in range(1, args.seeds + 1):
        for name, flags in rows:
            found, watch = time_to_loss(args.copus, args.text.resolve(), flags, seed, args.target, args.limit)
            seconds[name].append(found[0] if found else float("inf"))
            samples[name].append(found[1] if found else float("inf"))
            moves = f"  moves: {'; '.join(watch.moves)} ({watch.pause_s * 1e3:.0f} ms)" if watch.moves else ""
            reached = f"{found[0]:.1f} s, {found[1]} samples" if found else f"not reached ({watch.loss:.3f})"
            print(f"seed {seed}  {name:28} {reached}{moves}", file=sys.stderr, flush=True)

    full = statistics.median(seconds["--adapt full"])
    print(f"Time to a loss of {args.target}, median of {args.seeds} seeds, {os.cpu_count()} cores:\n")
    print("| choice | seconds | by seed | samples | against `--adapt full` |\n| --- | --- | --- | --- | --- |")
    for name, times in seconds.items():
        middle = statistics.median(times)
        each = ", ".join(f"{t:.1f}" for t in times)
        read = statistics.median(samples[name])
        print(f"| {name} | {middle:.1f} | {each} | {read:.0f} | x{middle / full:.2f} |")


if __name__ == "__main__":
    main()
