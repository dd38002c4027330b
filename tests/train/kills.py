"""Kills a run at a chosen instant, and finds out what the run was doing. Used by soak.py."""

import json
import os
import signal
import subprocess
import time

from fixture import START_S, tagged

PHASES = ("start-up", "step", "checkpoint", "reconfiguration")
VICTIMS = ("rank 0", "rank 1", "supervisor", "all")


def events_bytes(run_dir):
    """Returns the whole lines of events.jsonl. The run may be in the middle of the last line."""
    path = run_dir / "events.jsonl"
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def events_from(run_dir, begin):
    """Returns the events that were written from byte `begin` on."""
    return [json.loads(line) for line in events_bytes(run_dir)[begin:].splitlines()]


def last_line(run_dir, longest=8192):
    """Returns the last whole line. Reads only the end of the file, because the caller polls."""
    try:
        with open(run_dir / "events.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - longest))
            return file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except FileNotFoundError:
        return b""


def partial_folders(run_dir):
    """Returns the folders of checkpoints that the run is writing, or was writing when it was killed."""
    return list((run_dir / "checkpoints").glob(".step-*.partial"))


def phase_of(run_dir, begin):
    """Returns the phase of the attempt whose events begin at byte `begin`. By its first step, the attempt has removed the
    partial folders of earlier ones."""
    events = events_from(run_dir, begin)
    moves = [event for event in events if event["event"] == "reconfigure" or event.get("action") == "switch"]
    if moves and moves[-1]["event"] == "decision":
        return "reconfiguration"
    if not any(event["event"] == "step" for event in events):
        return "start-up"
    return "checkpoint" if partial_folders(run_dir) else "step"


def wait_until(run, come, limit=START_S):
    """Waits until `come` is true; returns false if the run ends first. Polls often: a small checkpoint takes 30 ms."""
    deadline = time.monotonic() + limit
    while run.process.poll() is None:
        if come():
            return True
        assert time.monotonic() < deadline, f"the instant for the kill did not come in {limit} s: {' '.join(run.args)}\n{run.err}"
        time.sleep(0.0002)
    return False


def wait_seconds(run, seconds):
    try:
        run.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def wait_for_save(run, run_dir, begin, after_step, then):
    """Waits until `then` seconds into the first save after the step."""
    step = f'"step":{after_step},'.encode()
    return (
        wait_until(run, lambda: step in events_bytes(run_dir)[begin:])
        and wait_until(run, lambda: partial_folders(run_dir))
        and wait_seconds(run, then)
    )


def wait_for_move(run, run_dir, after_step, then):
    """Waits until `then` seconds into a move after the step. During a move the last event is the decision for it."""
    checkpoints, step = run_dir / "checkpoints", f'"step":{after_step},'.encode()

    def come():
        last = last_line(run_dir)
        return b'"action":"switch"' in last and b'"event":"decision"' in last and any(checkpoints.glob("step-*"))

    return wait_until(run, lambda: step in events_bytes(run_dir)) and wait_until(run, come) and wait_seconds(run, then)


def strike(run, tag, victim):
    """Sends SIGKILL to the victim, or to the supervisor if that rank does not exist yet. Returns the name of the victim."""
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
            pass  # it has ended by itself
    return victim
