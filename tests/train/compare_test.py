#!/usr/bin/env python3
"""Tests of copus compare without --simulate, which trains every policy, and of simulations from the recorded runs.

    compare_test.py [--bin build/bin/copus] [Class[.test]…]
"""

import json
import signal
import subprocess
import time

import fixture
from fixture import END_S, START_S, RunTest, die_with_the_test, environment, main, of_kind, read_events

CONFIG = """
model = "tiny"
ranks = 2
seq-len = 32
global-batch = 4
batch-range = "4:8"
fix = "tp=1,vp=1,zero=0"
lr = 1e-3
timeout = "2m"

[compare]
losses = [4.5, 3.3]
window = 128
limit = "3m"
margin = 0.2
"""


class Live(RunTest):
    def compare(self, *args, code=0):
        (self.folder / "run.toml").write_text(CONFIG)
        command = [str(fixture.COPUS), "compare", "--config", "run.toml", *map(str, args)]
        done = subprocess.run(command, cwd=self.folder, env=environment(self.tag, None), capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_every_policy_is_trained_and_the_records_simulated(self):
        policies = "static:4", "static:8", "cbs-pessimistic", "cbs-optimistic", "copus"
        done = self.compare("--policies", ",".join(policies), "--seeds", 1, "--run-dir", "runs", "--json")
        found = json.loads(done.stdout)
        self.assertEqual([policy["name"] for policy in found["policies"]], list(policies))
        for policy in found["policies"]:
            self.assertTrue(all(0 < reached["seconds"] < 180 for reached in policy["time_to_loss"]), policy)
        self.assertEqual([base["loss"] for base in found["fastest_baseline"]], [4.5, 3.3])
        # All policies train on the same data. The options of [compare] have reached the runs.
        starts = {name: of_kind(self.folder / "runs" / f"{name.replace(':', '-')}-seed1", "start")[0] for name in policies}
        self.assertEqual(len({start["data_tokens"] for start in starts.values()}), 1)
        self.assertEqual([start["global_batch"] for start in starts.values()], [4, 8, 4, 4, 4])
        clusters = [start["cluster"] for name, start in starts.items() if name != "cbs-optimistic"]
        # The first run measures the cluster for all.
        self.assertTrue(clusters[0])
        self.assertEqual(clusters, clusters[:1] * len(clusters))
        config = (self.folder / "runs" / "copus-seed1" / "config.toml").read_text()
        self.assertIn("margin = 0.2\n", config)
        # A folder that holds runs is refused.
        again = self.compare("--policies", "static:4", "--seeds", 1, "--run-dir", "runs", code=2)
        self.assertIn("--run-dir: got runs, which is not empty", again.stderr)
        # A simulation reads the recorded runs.
        simulated = self.compare("--simulate", "--policies", "static:4,static:8,copus", "--seeds", 2, "--from", "runs/static-4-seed1",
                                 "--from", "runs/static-8-seed1", "--json")  # fmt: skip
        for policy in json.loads(simulated.stdout)["policies"]:
            self.assertTrue(all(0 < reached["seconds"] < 180 for reached in policy["time_to_loss"]), policy)
        # The records set the engine and its precision. Other assumptions can still be changed.
        recorded = "--simulate", "--from", "runs/static-4-seed1", "--from", "runs/static-8-seed1"
        self.assertIn("--framework: got nanotron with --from", self.compare(*recorded, "--framework", "nanotron", code=2).stderr)
        self.assertIn("--precision: got bf16; want fp32", self.compare(*recorded, "--precision", "bf16", code=2).stderr)
        self.assertIn("can train in their memory", self.compare(*recorded, "--assume", "fixed_memory_gib=900", code=2).stderr)

    def test_what_no_live_run_can_do_is_refused(self):
        for policy in "oracle", "copus-free-switch":
            done = self.compare("--policies", policy, code=2)
            self.assertIn(f"--policies: got {policy}; want --simulate with it", done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["run.toml"])


class Ended(RunTest):
    """A signal that ends a comparison also ends its active run."""

    def check(self, number, code):
        (self.folder / "run.toml").write_text(CONFIG)
        command = [str(fixture.COPUS), "compare", "--config", "run.toml", "--policies", "static:4", "--losses", "0.1",
                   "--run-dir", "runs"]  # fmt: skip
        with subprocess.Popen(command, cwd=self.folder, env=environment(self.tag, None), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, preexec_fn=die_with_the_test) as process:  # fmt: skip
            deadline = time.monotonic() + START_S
            events = self.folder / "runs" / "static-4-seed1" / "events.jsonl"
            while not (events.exists() and '"step":3,' in events.read_text()) and time.monotonic() < deadline:
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            self.assertEqual(len(self.ranks()), 2)
            process.send_signal(number)
            err = process.communicate(timeout=END_S)[1]
        self.assertEqual(process.returncode, code, err)
        self.assert_nothing_runs()
        return err, self.folder / "runs" / "static-4-seed1"

    def test_termination(self):
        err, run_dir = self.check(signal.SIGTERM, 128 + signal.SIGTERM)
        self.assertIn("copus: error: stopped by SIGTERM in static:4, seed 1", err)
        self.assertEqual(read_events(run_dir)[-1]["reason"], "signal")

    def test_interrupt(self):
        err, run_dir = self.check(signal.SIGINT, 128 + signal.SIGINT)
        self.assertIn("copus: error: stopped by SIGINT", err)
        self.assertEqual(read_events(run_dir)[-1]["reason"], "signal")

    def test_kill(self):
        self.check(signal.SIGKILL, -signal.SIGKILL)


if __name__ == "__main__":
    main()
