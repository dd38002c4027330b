"""Shared code of the tests of copus train, which run real processes. Each test has a folder of its own.

Every wait has a limit, and each test checks at its end that none of its processes is left.
"""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
COPUS = SOURCE / "build" / "bin" / "copus"
TEXT_MODEL = Path(__file__).resolve().parent / "text_llama.json"
LAUNCHERS = ("OMPI_", "SLURM_", "COPUS_", "TORCHELASTIC_", "MASTER_", "PMI_")
RANK_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}

PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))  # above 1 if the program is slow, as under a sanitizer
START_S = 90 * PATIENCE  # until the first steps are done, on a busy machine
END_S = 60 * PATIENCE  # from a fault to the end of the run, whose own limits are far lower
SEQ_LEN = 32
TINY = ("--model", "tiny", "--seq-len", str(SEQ_LEN), "--global-batch", "8")
LONG = ("--steps", "100000")


def environment(tag, extra):
    """Returns the variables of a process: one thread per rank, and no variables of another launcher."""
    env = {k: v for k, v in os.environ.items() if k not in RANK_NAMES and not k.startswith(LAUNCHERS)}
    env.update(OMP_NUM_THREADS="1", TERM="dumb", LC_ALL="C.UTF-8", RUN_TEST_TAG=tag)
    env.update(extra or {})
    return env


def tagged(tag):
    """Returns the live processes of a test by their ids, with their environments."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RUN_TEST_TAG={tag}".encode() in variables:
            found[int(folder.name)] = dict(v.decode("utf-8", "replace").partition("=")[::2] for v in variables)
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_events(run_dir):
    """Returns all events of a run. Checks that the last line is whole."""
    text = (Path(run_dir) / "events.jsonl").read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n"), f"half a line at the end: {text[-200:]!r}"
    return [json.loads(line) for line in text.splitlines()]


def of_kind(run_dir, kind):
    return [event for event in read_events(run_dir) if event["event"] == kind]


def losses(run_dir):
    return [event["loss"] for event in of_kind(run_dir, "step")]


def lasting_steps(run_dir):
    """Returns the final event of each step by its number. Drops the steps that a restart has undone."""
    found = {}
    for event in read_events(run_dir):
        if event["event"] == "restart":
            found = {step: e for step, e in found.items() if step <= event["step"]}
        if event["event"] == "step":
            assert event["step"] not in found, f"step {event['step']} is there twice"
            found[event["step"]] = event
    return found


def checkpoint_files(run_dir, step):
    folder = Path(run_dir) / "checkpoints" / f"step-{step}"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_the_test():
    """Makes a process die with the test, also if the test is killed at its limit. Ranks die with their supervisor."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Run:
    """A process of copus train. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, folder, tag, args, env=None, **options):
        self.args = [str(COPUS), "train", *map(str, args)]
        self.out_file = tempfile.TemporaryFile()
        self.err_file = tempfile.TemporaryFile()
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", self.out_file)
        options.setdefault("stderr", self.err_file)
        options.setdefault("preexec_fn", die_with_the_test)
        options.setdefault("cwd", folder)
        self.process = subprocess.Popen(self.args, env=environment(tag, env), **options)

    def wait(self, limit):
        try:
            self.code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not over after {limit} s: {' '.join(self.args)}\n{self.err}") from None
        return self

    @staticmethod
    def _text(file):
        file.seek(0)
        return file.read().decode("utf-8", "replace")

    @property
    def out(self):
        return self._text(self.out_file)

    @property
    def err(self):
        return self._text(self.err_file)


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="copus_run_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tag = uuid.uuid4().hex
        self.addCleanup(self.kill_what_is_left)
        self.runs = []

    def tearDown(self):
        self.assert_nothing_runs()

    def kill_what_is_left(self):
        for pid in tagged(self.tag):
            os.kill(pid, signal.SIGKILL)
        for run in self.runs:
            run.process.wait()
            run.out_file.close()
            run.err_file.close()

    def assert_nothing_runs(self, patience=5):
        """Checks that no process is left. Waits a while, because children die after a parent that was killed."""
        deadline = time.monotonic() + patience
        while (left := tagged(self.tag)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual({}, {pid: env.get("RANK", "supervisor") for pid, env in left.items()})

    def start(self, *args, env=None, **options):
        run = Run(self.folder, self.tag, args, env, **options)
        self.runs.append(run)
        return run

    def train(self, *args, code=0, env=None, limit=START_S + END_S):
        run = self.start(*args, env=env).wait(limit)
        self.assertEqual(run.code, code, f"{' '.join(run.args)}\n{run.out}\n{run.err}")
        return run

    def wait_for_step(self, run, step, run_dir="run"):
        """Waits until the events have this step, so that the run has started."""
        self.wait_for_event(run, f'"step":{step},', run_dir)

    def wait_for_event(self, run, text, run_dir="run"):
        events = self.folder / run_dir / "events.jsonl"
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if events.exists() and text in events.read_text(encoding="utf-8"):
                return
            if run.process.poll() is not None:
                break
            time.sleep(0.05)
        self.fail(f"no {text}: {' '.join(run.args)}\n{run.err}")

    def ranks(self):
        return {env["RANK"]: pid for pid, env in tagged(self.tag).items() if "RANK" in env}

    def pid_of(self, rank):
        return self.ranks()[str(rank)]

    def assert_error(self, run, code, *patterns):
        """Checks that the last line of stderr is the error, and that no line is a stack trace or a library's log.

        Ignores the lines that newer versions of libtorch log as warnings or errors."""
        self.assertEqual(run.code, code, run.err)
        lines = [line for line in run.err.splitlines() if not re.match(r"(rank \d+: )?\[[WE]\d{4} ", line)]
        self.assertTrue(lines, "nothing on standard error")
        self.assertTrue(lines[-1].startswith("copus: error: "), run.err)
        for pattern in patterns:
            self.assertRegex(lines[-1], pattern)
        for line in lines:
            self.assertRegex(line, r"^(rank \d+: )?copus: (error|stalled): ")


def main():
    """Runs unittest. --bin PATH names another program than that of the release build."""
    global COPUS
    arguments = sys.argv[1:]
    if "--bin" in arguments:
        at = arguments.index("--bin")
        COPUS = Path(arguments[at + 1]).resolve()
        del arguments[at : at + 2]
    unittest.main(module="__main__", argv=[sys.argv[0], *arguments], verbosity=2)  # names the skipped tests
