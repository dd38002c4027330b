"""Kills at a chosen instant of a run, and what the run was at: see soak.py."""

import json
import os
import signal
import subprocess
import time

from fixture import START_S, tagged

PHASES = ("start-up", "step", "checkpoint", "reconfiguration")
VICTIMS = ("rank 0", "rank 1", "supervisor", "all")


def events_bytes(run_dir):
    """Whole lines: the run may be in the middle of one."""
    path = run_dir / "events.jsonl"
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def events_from(run_dir, begin):
    """What was written from that byte on."""
    return [json.loads(line) for line in events_bytes(run_dir)[begin:].splitlines()]


def last_line(run_dir, longest=8192):
    """Of a long file in no time."""
    try:
        with open(run_dir / "events.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - longest))
            return file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except FileNotFoundError:
        return b""


def partial_folders(run_dir):
    """Of checkpoints that are being written, or were when the run was killed."""
    return list((run_dir / "checkpoints").glob(".step-*.partial"))


def phase_of(run_dir, begin):
    """What an attempt that began at that byte was at. What an earlier one left is gone by its first step."""
    events = events_from(run_dir, begin)
    moves = [event for event in events if event["event"] == "reconfigure" or event.get("action") == "switch"]
    if moves and moves[-1]["event"] == "decision":
        return "reconfiguration"
    if not any(event["event"] == "step" for event in events):
        return "start-up"
    return "checkpoint" if partial_folders(run_dir) else "step"


def wait_until(run, come, limit=START_S):
    """Polls finely: a checkpoint of a small model is written in 30 ms. False where the run is over first."""
    deadline = time.monotonic() + limit
    while run.process.poll() is None:
        if come():
            return True
        assert time.monotonic() < deadline, f"nothing to aim at in {limit} s: {' '.join(run.args)}\n{run.err}"
        time.sleep(0.0002)
    return False


def wait_seconds(run, seconds):
    try:
        run.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def wait_for_save(run, run_dir, begin, after_step, then):
    """Until so many seconds into the first save behind that step."""
    step = f'"step":{after_step},'.encode()
    return (
        wait_until(run, lambda: step in events_bytes(run_dir)[begin:])
        and wait_until(run, lambda: partial_folders(run_dir))
        and wait_seconds(run, then)
    )


def wait_for_move(run, run_dir, after_step, then):
    """Until so many seconds into a move behind that step: a decision to move is the last that was written."""
    checkpoints, step = run_dir / "checkpoints", f'"step":{after_step},'.encode()

    def come():
        last = last_line(run_dir)
        return b'"action":"switch"' in last and b'"event":"decision"' in last and any(checkpoints.glob("step-*"))

    return wait_until(run, lambda: step in events_bytes(run_dir)) and wait_until(run, come) and wait_seconds(run, then)


def strike(run, tag, victim):
    """SIGKILL. Where that rank is not there yet its supervisor takes the blow: says who did."""
    there = {"supervisor": run.process.pid}
    for pid, env in tagged(tag).items():
        if "RANK" in env:
            there[f"rank {env['RANK']}"] = pid
    if victim != "all" and victim not in there:
        victim = "supervisor"
    for pid in there.values() if victim == "all" else [there[victim]]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself since
    return victim
