#!/usr/bin/env python3
"""Tests of ranks on two machines whose network fails. Network namespaces of one machine stand for the two machines.

    network_test.py [--bin build/bin/copus] [Class[.test]…]
"""

import json
import statistics
import subprocess
import sys
import time

import fixture
from failures_test import FailureTest
from fixture import END_S, START_S, checkpoint_files, lasting_steps, losses, main, of_kind
from network import ADDRESSES, INTERFACE, PORT, LossyLink, Unavailable, connect, measure_gbit_per_s, two_nodes

SMALL = ("--model", "tiny", "--seq-len", "32", "--global-batch", "8", "--lr", "1e-3")


class NetworkTest(FailureTest):
    def setUp(self):
        super().setUp()
        try:
            self.nodes = two_nodes()
            for node in self.nodes:
                self.addCleanup(node.close)
            self.lay_link()
        except Unavailable as missing:
            print(f"SKIPPED: {missing}", file=sys.stderr)
            self.skipTest(str(missing))

    def lay_link(self):
        connect(self.nodes)

    def start_pair(self, *args):
        """Starts a rank on each node, with the variables of torchrun. The ranks share the run directory."""
        runs = []
        for rank, node in enumerate(self.nodes):
            env = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": ADDRESSES[0],
                   "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": INTERFACE}  # fmt: skip
            env = {name: str(value) for name, value in env.items()}
            runs.append(self.start(*args, env=env, preexec_fn=node.enter_process))
        return runs

    def train_pair(self, *args, limit=START_S + END_S):
        for run in self.start_pair(*args):
            run.wait(limit)
            self.assertEqual(run.code, 0, f"{' '.join(run.args)}\n{run.out}\n{run.err}")

    def assert_same_weights(self, steps, run_dir="run", other="whole"):
        self.assertEqual(list(lasting_steps(self.folder / run_dir)), list(range(1, steps + 1)))
        self.assertEqual(checkpoint_files(self.folder / run_dir, steps), checkpoint_files(self.folder / other, steps))


class Cut(NetworkTest):
    """Both ranks notice a broken link in time. The run goes on from its checkpoint."""

    TIMEOUT_S = 5
    STEPS = 200
    ARGS = (*SMALL, "--steps", STEPS, "--checkpoint-every", 10)

    def test_cut_off_for_good(self):
        self.train_pair(*self.ARGS, "--run-dir", "whole")
        runs = self.start_pair(*self.ARGS, "--timeout", f"{self.TIMEOUT_S}s", "--run-dir", "run")
        self.wait_for_checkpoint(runs[0])
        self.nodes[1].cut()
        begin = time.monotonic()
        for run in runs:
            run.wait(END_S)
        seconds = time.monotonic() - begin
        print(f"link cut, --timeout {self.TIMEOUT_S} s: both ranks over after {seconds:.1f} s", file=sys.stderr)
        self.assertLess(seconds, 2 * self.TIMEOUT_S + 15)  # docs/errors.md
        self.assert_error(runs[0], 1, r"number \d+ in group .* failed; missing: rank 1")
        # Rank 0 serves the meeting point. Rank 1 cannot reach it, so it cannot find out which ranks are missing.
        self.assert_error(runs[1], 1, r"number \d+ in group .* failed; no answer from the ranks' meeting point: rank 0, .* out of reach")
        self.assertLess(max(self.checkpoints()), self.STEPS)
        self.nodes[1].mend()
        self.train_pair("--resume", "--run-dir", "run")
        self.assertEqual(len(of_kind(self.folder / "run", "restart")), 1)
        self.assert_same_weights(self.STEPS)

    def test_cut_off_for_a_while(self):
        self.train_pair(*self.ARGS, "--run-dir", "whole")
        runs = self.start_pair(*self.ARGS, "--timeout", "60s", "--run-dir", "run")
        self.wait_for_checkpoint(runs[0])
        self.nodes[1].cut()
        time.sleep(2)
        self.nodes[1].mend()
        for run in runs:
            run.wait(START_S + END_S)
            self.assertEqual(run.code, 0, run.err)
        self.assertEqual(of_kind(self.folder / "run", "restart"), [])
        self.assert_same_weights(self.STEPS)


class Lossy(NetworkTest):
    """Late and lost packets cost time, and do not change losses or weights."""

    DELAY_S, LOSS, STEPS = 0.02, 0.02, 6

    def lay_link(self):
        self.link = LossyLink(self.nodes, self.DELAY_S, self.LOSS)
        self.addCleanup(self.link.close)

    def check(self, plan):
        args = (*SMALL, "--plan", plan, "--steps", self.STEPS)
        self.train(*args, "--ranks", 2, "--run-dir", "whole")
        self.train_pair(*args, "--run-dir", "run")
        self.assertGreater(self.link.dropped, 0)
        self.assertEqual(losses(self.folder / "run"), losses(self.folder / "whole"))
        self.assert_same_weights(self.STEPS)
        times = [statistics.median(e["step_time_s"] for e in of_kind(self.folder / name, "step")) for name in ("whole", "run")]
        print(f"{plan}: {self.link.dropped} of {self.link.dropped + self.link.carried} packets lost; a step "
              f"{1e3 * times[0]:.0f} ms without a network, {1e3 * times[1]:.0f} ms with this one", file=sys.stderr)  # fmt: skip

    def test_data_parallel(self):
        self.check("dp=2")

    def test_pipeline(self):
        self.check("pp=2")


class Slow(NetworkTest):
    """A slow link does not change losses. The tuner orders the layouts for its bandwidth as the measured times do."""

    MBIT_PER_S = 20
    PLANS = {"dp": "dp=2,micro_batch=4", "tp": "tp=2,micro_batch=8", "pp": "pp=2,micro_batch=4"}
    STEPS = 6

    def step_seconds(self, name):
        """Returns the median step time of each layout, without the first step, which warms up."""
        found = {}
        for layout, plan in self.PLANS.items():
            run_dir = f"{name}-{layout}"
            self.train_pair(*SMALL, "--plan", plan, "--steps", self.STEPS, "--checkpoint-every", "off", "--run-dir", run_dir)
            found[layout] = statistics.median(e["step_time_s"] for e in of_kind(self.folder / run_dir, "step")[1:])
        return found

    def cluster(self):
        """Returns the cluster that the engine measures on this machine before it adapts."""
        self.train_pair(*SMALL, "--adapt", "full", "--steps", 1, "--checkpoint-every", "off", "--run-dir", "measured")
        return of_kind(self.folder / "measured", "start")[0]["cluster"]

    def predicted(self, cluster, gbit_per_s):
        """Returns the predicted step time of each layout on a cluster with that network, in the tuner's order."""
        file = self.folder / "cluster.json"
        file.write_text(json.dumps({**cluster, "node_network_gbps": gbit_per_s}))
        out = subprocess.run([fixture.COPUS, "plan", "--cluster", file, *SMALL[:6], "--precision", "fp32", "--fix",
                              "zero=0,recompute=none,vp=1,cp=1", "--json"], check=True, capture_output=True, timeout=60).stdout  # fmt: skip
        return {next(axis for axis in self.PLANS if entry["plan"][axis] == 2): entry["estimate"]["step_time_s"]
                for entry in json.loads(out)["plans"]}  # fmt: skip

    def test_tuner_prefers_what_is_faster_there(self):
        fast = self.step_seconds("fast")
        cluster = self.cluster()
        rates = [measure_gbit_per_s(self.nodes, 200)]
        for node in self.nodes:
            node.limit(self.MBIT_PER_S)
        rates.append(measure_gbit_per_s(self.nodes, 5))
        slow = self.step_seconds("slow")
        for layout in self.PLANS:
            self.assertEqual(losses(self.folder / f"slow-{layout}"), losses(self.folder / f"fast-{layout}"))
        for rate, measured in zip(rates, (fast, slow)):
            said = self.predicted(cluster, rate)
            print(f"{rate:.3f} Gbit/s: " + ", ".join(f"{layout}=2 {1e3 * s:.0f} ms (predicted {1e3 * said[layout]:.0f})"
                                                     for layout, s in measured.items()), file=sys.stderr)  # fmt: skip
        # On the slow link the times are far apart, so that their order is no accident. It differs from that on the fast link.
        order = sorted(slow, key=slow.get)
        for faster, slower in zip(order, order[1:]):
            self.assertGreater(slow[slower] / slow[faster], 1.3, slow)
        self.assertGreater(slow["dp"] / fast["dp"], 3)
        self.assertEqual(list(said), order)


if __name__ == "__main__":
    main()
