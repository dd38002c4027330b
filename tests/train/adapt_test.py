#!/usr/bin/env python3
"""Tests of copus train --adapt: it carries out and records its decisions, and they do not change the samples.

    adapt_test.py [--bin build/bin/copus] [Class[.test]…]
"""

import ctypes
import math
import os
import signal
import time

from fixture import END_S, RunTest, main, of_kind, read_events

LR = 1e-3
# The calibration puts the critical batch far above every batch, so that a larger batch pays whenever it gives more samples/s.
# One step has few tokens and so a poor estimate of the noise scale: every step is measured.
EAGER = ("--model", "tiny", "--seq-len", 32, "--lr", LR, "--warmup-samples", 0, "--decay-samples", 0, "--noise-every", 1,
         "--calibration", 1000, "--decide-every", 5, "--dwell", 5, "--margin", 0.02, "--batch-margin", 0.02)  # fmt: skip


def hash_at(run_dir, samples):
    return next(event["data_hash"] for event in of_kind(run_dir, "step") if event["samples"] == samples)


def siblings_read_each_other():
    """Returns whether this system lets a process read the memory of another child of the same parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.create_string_buffer(b"proof")
    parent = os.getpid()

    class Segment(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    ready, say_ready = os.pipe()
    target = os.fork()
    if target == 0:
        libc.prctl(0x59616D61, ctypes.c_ulong(parent), 0, 0, 0)  # PR_SET_PTRACER
        os.write(say_ready, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    reader = os.fork()
    if reader == 0:
        got = ctypes.create_string_buffer(5)
        here, there = Segment(ctypes.addressof(got), 5), Segment(ctypes.addressof(word), 5)
        done = libc.process_vm_readv(target, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        os._exit(0 if done == 5 and got.raw == b"proof" else 1)
    _, status = os.waitpid(reader, 0)
    os.kill(target, signal.SIGKILL)
    os.waitpid(target, 0)
    return status == 0


class Adapting(RunTest):
    def check_events(self, start_batch):
        """Checks that every step has the plan and batch of the last move, and the learning rate of its batch."""
        events = read_events(self.folder / "run")
        plan, batch, samples, decision = None, start_batch, 0, None
        for event in events:
            if event["event"] == "step":
                plan = plan or event["plan"]
                samples += batch
                self.assertEqual((event["plan"], event["global_batch"], event["samples"]), (plan, batch, samples))
                self.assertAlmostEqual(event["lr"], LR * math.sqrt(batch / start_batch), places=9)
            elif event["event"] == "decision":
                decision = event
                self.assertEqual(event["step"] % 5, 0)
                self.assertTrue(event["why"])
            elif event["event"] == "reconfigure":
                self.assertEqual(decision["action"], "switch")
                self.assertEqual(decision["best"], {"plan": event["to"], "global_batch": event["global_batch_to"]})
                self.assertEqual((event["from"], event["global_batch_from"]), (plan, batch))
                self.assertTrue(event["done"], event)
                phases = sum(event[name] for name in ("groups_s", "allocate_s", "transfer_s", "commit_s"))
                self.assertLessEqual(phases, event["pause_s"] + 1e-6)
                plan, batch = event["to"], event["global_batch_to"]
        return events

    def test_moves_batch_and_layout(self):
        # Between processes on CPUs, tp=2 is the slowest layout, because it splits every layer over the ranks.
        run = self.train(*EAGER, "--global-batch", 4, "--batch-range", "4:32", "--steps", 120, "--ranks", 2,
                         "--plan", "tp=2,micro_batch=1", "--adapt", "full", "--run-dir", "run")  # fmt: skip
        events = self.check_events(4)
        moves = [event for event in events if event["event"] == "reconfigure"]
        self.assertTrue(any(move["global_batch_to"] > move["global_batch_from"] for move in moves), moves)
        self.assertTrue(any(".tp2." in move["from"] and ".tp1." in move["to"] for move in moves), moves)
        end = events[-1]
        self.assertEqual((end["event"], end["reason"], end["moves"]), ("end", "steps", len(moves)))
        self.assertAlmostEqual(end["pause_s"], sum(move["pause_s"] for move in moves))
        # The table of phases has a line for each move.
        self.assertRegex(run.out, r"(?m)^from step  layout +batch  steps  samples/s +loss +pause  why$")
        for move in moves:
            self.assertRegex(run.out, rf"(?m)^{move['step'] + 1} +{move['to']} +{move['global_batch_to']} ")
        self.assertRegex(run.out, r"(?m)^Estimated progress, with .* of pauses: \d+\.\d\d times that of a run that stays where it began")
        if siblings_read_each_other() and sum(move["bytes_moved"] for move in moves) > 0:
            self.assertGreater(sum(move["bytes_read"] for move in moves), 0)
        # The samples are the same as in a run that never moves.
        samples = end["samples"]
        step = samples & -samples
        self.train(*EAGER, "--global-batch", step, "--samples", samples, "--run-dir", "fixed")
        self.assertEqual(hash_at(self.folder / "run", samples), hash_at(self.folder / "fixed", samples))

    def test_batch_alone_leaves_the_layout(self):
        self.train(*EAGER, "--global-batch", 4, "--batch-range", "4:32", "--steps", 60, "--ranks", 2,
                   "--plan", "pp=2,micro_batch=2", "--adapt", "batch", "--run-dir", "run")  # fmt: skip
        events = self.check_events(4)
        moves = [event for event in events if event["event"] == "reconfigure"]
        self.assertTrue(moves)
        for move in moves:
            self.assertIn("dp1.tp1.pp2.", move["to"])
            self.assertEqual(move["bytes_moved"], 0)

    def test_off_decides_nothing_and_still_measures(self):
        self.train(*EAGER, "--global-batch", 8, "--steps", 30, "--ranks", 2, "--run-dir", "run")
        events = self.check_events(8)
        self.assertEqual({event["event"] for event in events}, {"start", "step", "checkpoint", "end"})
        last = [event for event in events if event["event"] == "step"][-1]
        self.assertGreater(last["gns"], 0)
        self.assertAlmostEqual(last["bcrit"] / last["gns"], 1000)
        self.assertGreater(last["goodput"], 0)
        # Events have the norms before smoothing: each is [samples, value, how many].
        taken = [event for event in events if event.get("norms")]
        self.assertGreater(len(taken), 5)
        for event in taken:
            self.assertEqual(event["norms"][-1][0], 8)
            self.assertAlmostEqual(math.sqrt(event["norms"][-1][1]), event["grad_norm"], places=9)

    def test_one_rank_adapts_its_batch(self):
        self.train(*EAGER, "--global-batch", 4, "--batch-range", "2:16", "--steps", 40, "--adapt", "full",
                   "--run-dir", "run")  # fmt: skip
        events = self.check_events(4)
        self.assertTrue([event for event in events if event["event"] == "reconfigure"])

    def test_schedule_does_not_end_with_the_first_batch(self):
        # The number of steps does not give the number of samples: without --decay-samples the rate does not decay.
        flags = [flag for flag in EAGER if flag not in ("--decay-samples", "--warmup-samples", 0)]
        self.train(*flags, "--global-batch", 4, "--batch-range", "4:32", "--steps", 60, "--ranks", 2,
                   "--plan", "pp=2,micro_batch=2", "--adapt", "batch", "--run-dir", "run")  # fmt: skip
        self.check_events(4)

    def test_probe_tries_layouts(self):
        self.train(*EAGER, "--global-batch", 8, "--batch-range", "8:8", "--steps", 500, "--ranks", 2, "--probe", 0.5,
                   "--plan", "tp=2,micro_batch=1", "--adapt", "full", "--run-dir", "run")  # fmt: skip
        events = self.check_events(8)
        # A trial begins with a try and ends with a verdict. On a machine that changes its speed a later trial may try a
        # layout again; the tests of the controller say when.
        trials, running = [], None
        for event in of_kind(self.folder / "run", "decision"):
            if ": a try; " in event["why"]:
                if running is None:
                    running = []
                    trials.append(running)
                self.assertNotIn(event["best"], running, "a configuration was tried twice in one trial")
                running.append(event["best"])
            elif " measured layout" in event["why"]:
                running = None
            elif running is not None:
                self.assertIn("measuring this layout", event["why"])
        self.assertTrue(trials)
        self.assertEqual(events[-1]["moves"], len(of_kind(self.folder / "run", "reconfigure")))

    def test_learns_its_critical_batch(self):
        # Only a batch that changes shows what it is worth. The belief is in the events and survives restarts.
        flags = [flag for flag in EAGER if flag not in ("--calibration", 1000)]
        self.train(*flags, "--global-batch", 32, "--steps", 150, "--run-dir", "run")
        self.assertEqual([], of_kind(self.folder / "run", "calibration"))
        self.train("--resume", "--run-dir", "run", "--global-batch", 64, "--steps", 250)
        events = read_events(self.folder / "run")
        said = [event for event in events if event["event"] == "calibration"]
        self.assertTrue(said)
        for event in said:
            self.assertLess(0, event["low"])
            self.assertLess(event["low"], event["calibration"])
            self.assertLess(event["calibration"], event["high"])
            self.assertTrue(0 <= event["lr_aware"] <= 1)
        for before, after in zip(said, said[1:]):
            changed = max(abs(math.log(after[end] / before[end])) for end in ("calibration", "low", "high"))
            self.assertGreater(changed, math.log(1.1))
        last = [event for event in events if event["event"] == "step"][-1]
        self.assertLess(abs(math.log(last["bcrit"] / last["gns"] / said[-1]["calibration"])), math.log(1.1))
        lines = len(events)
        self.train("--resume", "--run-dir", "run", "--steps", 251)
        after = read_events(self.folder / "run")[lines:]
        going_on = [event for event in after if event["event"] == "calibration"][0]
        for end in ("calibration", "low", "high"):
            self.assertLess(abs(math.log(going_on[end] / said[-1][end])), math.log(1.2))

    def test_config_has_it_all(self):
        self.train(*EAGER, "--global-batch", 4, "--batch-range", "4:8", "--steps", 6, "--ranks", 2, "--adapt", "full",
                   "--goodput", "lr-aware", "--fix", "tp=1", "--run-dir", "run")  # fmt: skip
        text = (self.folder / "run" / "config.toml").read_text(encoding="utf-8")
        for line in ('adapt = "full"', 'goodput = "lr-aware"', 'fix = "tp=1"', 'batch-range = "4:8"', "dwell = 5"):
            self.assertIn(line, text)
        self.train("--config", "run/config.toml", "--run-dir", "again")
        for event in of_kind(self.folder / "again", "step"):
            self.assertIn(".tp1.", event["plan"])

    def test_killed_while_adapting_ends_the_run(self):
        run = self.start(*EAGER, "--global-batch", 4, "--batch-range", "4:32", "--steps", 100000, "--ranks", 2,
                         "--plan", "tp=2,micro_batch=1", "--adapt", "full", "--run-dir", "run")  # fmt: skip
        self.wait_for_step(run, 20)
        os.kill(self.pid_of(1), signal.SIGKILL)
        run.wait(END_S)
        self.assert_error(run, 1, "rank 1 was killed by signal 9")


if __name__ == "__main__":
    main()
