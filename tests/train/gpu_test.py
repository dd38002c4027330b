#!/usr/bin/env python3
"""Tests of ranks over NCCL that share one GPU, with real processes and faults. Without a GPU every test is skipped.

    gpu_test.py [--bin build/bin/copus] [Class[.test]…]

NCCL refuses two ranks on one GPU of one host. NCCL_HOSTID gives each rank a host of its own, and the ranks communicate
through sockets. The tests check results and say nothing about speed.
"""

import glob
import os
import random
import signal
import time
import unittest

from fixture import START_S, RunTest, free_port, losses, main, of_kind, read_events

RANKS = 4
TIMEOUT_S = 8
MODEL = ("--model", "tiny", "--seq-len", 64, "--lr", "1e-3", "--device", "cuda", "--timeout", f"{TIMEOUT_S}s")
SAME = ("--precision", "fp32", "--global-batch", 16, "--decay-samples", 640)
# Layouts with tp above 1 have few micro-batches: the processes take turns on the GPU, so a collective takes milliseconds.
LAYOUTS = ("dp4", "dp4.z1", "tp4.mb16", "tp4.sp.mb16", "pp4", "dp2.tp2.mb8", "dp2.tp2.z1.sp.mb4", "dp2.pp2", "dp2.pp2.z1.mb4",
           "tp2.pp2.mb8", "tp2.pp2.sp.mb4", "pp2.dp2.vp2", "dp2.pp2.rc-full")  # fmt: skip


@unittest.skipUnless(glob.glob("/dev/nvidia[0-9]*"), "no NVIDIA GPU on this machine")
class GpuTest(RunTest):
    def start_ranks(self, *args, env=None):
        where = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_RANK": "0",
                 "LOCAL_WORLD_SIZE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}  # fmt: skip
        return [
            self.start(*MODEL, *args, env={**where, "RANK": str(rank), "NCCL_HOSTID": f"host{rank}", **(env or {})})
            for rank in range(RANKS)
        ]

    def train_ranks(self, *args, limit=START_S + 60):
        """Runs the ranks; each must end with exit code 0 and print nothing on standard error."""
        runs = self.start_ranks(*args)
        deadline = time.monotonic() + limit
        for rank, run in enumerate(runs):
            run.wait(max(1, deadline - time.monotonic()))
            self.assertEqual((run.code, run.err), (0, ""), f"rank {rank}: {' '.join(run.args)}\n{run.err}")
        return runs

    def assert_close(self, mine, wanted, limit, what):
        self.assertEqual(len(mine), len(wanted), what)
        worst = max(abs(a - b) for a, b in zip(mine, wanted))
        self.assertLess(worst, limit, what)


class Layouts(GpuTest):
    """The same batch gives the same losses at every layout."""

    def test_follow_one_rank(self):
        self.train(*MODEL, *SAME, "--steps", 30, "--run-dir", "one")
        wanted = losses(self.folder / "one")
        for layout in LAYOUTS:
            with self.subTest(layout):
                self.train_ranks(*SAME, "--steps", 30, "--plan", layout, "--run-dir", layout)
                self.assert_close(losses(self.folder / layout), wanted, 1e-4, layout)


class Resumed(GpuTest):
    """A run goes on at another layout as if it had been there from the beginning."""

    def test_at_other_layouts(self):
        self.train(*MODEL, *SAME, "--steps", 40, "--run-dir", "one")
        wanted = losses(self.folder / "one")
        at = ("dp2.tp2.z1.mb8", "pp4", "dp2.pp2", "dp4")
        for count, layout in enumerate(at, start=1):
            resume = ("--resume",) if count > 1 else ()
            self.train_ranks(*SAME, "--steps", 10 * count, "--plan", layout, "--run-dir", "run", *resume)
        self.assert_close(losses(self.folder / "run"), wanted, 1e-4, "resumed")


class Adapting(GpuTest):
    """A run changes its layout. The first step at each layout loads kernels while messages are under way."""

    def test_moves_and_ends(self):
        self.train_ranks("--global-batch", 4, "--for", "30s", "--adapt", "full", "--seed", 1, "--run-dir", "run")
        moves = [event for event in of_kind(self.folder / "run", "reconfigure") if event["done"]]
        self.assertGreater(len(moves), 0)
        steps = of_kind(self.folder / "run", "step")
        self.assertEqual(steps[-1]["samples"], sum(step["global_batch"] for step in steps))
        print(f"{len(moves)} moves, {len(steps)} steps:", *(event["to"] for event in moves))


class Faults(GpuTest):
    """If a rank is lost, the others end within twice --timeout, name the lost rank, and leave no process."""

    BOUND_S = 2 * TIMEOUT_S + 3  # the watchdog looks twice a second; a process takes a while to end

    def lose(self, how, layout, seed, *more):
        chance = random.Random(seed)
        runs = self.start_ranks(
            *SAME, "--steps", 100000, "--plan", layout, "--checkpoint-every", 50, "--run-dir", "run", *more
        )
        self.wait_for_step(runs[0], 20)
        time.sleep(chance.random())
        victim = chance.randrange(RANKS)
        begin = time.monotonic()
        os.kill(runs[victim].process.pid, how)
        for rank, run in enumerate(runs):
            if rank == victim:
                continue
            run.wait(max(0.1, begin + self.BOUND_S - time.monotonic()))
            what = f"{layout}, seed {seed}, {how.name} of rank {victim}: rank {rank}"
            self.assertEqual(run.code, 1, f"{what}\n{run.err}")
            self.assertRegex(run.err, rf"copus: error: .*rank {victim}\b", what)
            self.assertNotIn("terminate called", run.err, what)
            self.assertNotIn("c10::", run.err, what)
        took = time.monotonic() - begin
        if how == signal.SIGSTOP:
            os.kill(runs[victim].process.pid, signal.SIGKILL)
        runs[victim].process.wait()
        read_events(self.folder / "run")  # checks that lines are whole
        print(f"{how.name} of rank {victim} at {layout}: the others were out after {took:.1f} s")

    def test_killed(self):
        self.lose(signal.SIGKILL, "dp4", 1)

    def test_killed_in_a_pipeline(self):
        self.lose(signal.SIGKILL, "dp2.pp2", 2)

    def test_stopped(self):
        self.lose(signal.SIGSTOP, "dp4.z1", 3)

    def test_stopped_in_a_pipeline(self):
        self.lose(signal.SIGSTOP, "tp2.pp2", 4)


if __name__ == "__main__":
    main()
