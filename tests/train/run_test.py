#!/usr/bin/env python3
"""Tests of copus train with real processes, real signals and real faults.

    run_test.py [--bin build/bin/copus] [Class[.test]…]
"""

import fcntl
import json
import math
import os
import pty
import re
import signal
import socket
import stat
import struct
import termios
import time
from collections import Counter
from pathlib import Path

from fixture import SOURCE, TEXT_MODEL, SEQ_LEN, START_S, END_S, TINY, LONG, free_port, read_events, of_kind, losses, die_with_the_test, RunTest, main


class Killed(RunTest):
    """kill -9 of one rank ends the run, and the message names the rank."""

    def check(self, plan, rank):
        run = self.start(*TINY, *LONG, "--ranks", 4, "--plan", plan, "--run-dir", "run")
        self.wait_for_step(run, 2)
        os.kill(self.pid_of(rank), signal.SIGKILL)
        run.wait(END_S)
        self.assert_error(run, 1, rf"^copus: error: rank {rank} was killed by signal 9 ")
        self.assert_nothing_runs(patience=0)
        ends = of_kind(self.folder / "run", "end")
        if rank == 0:
            self.assertEqual(ends, [])
        else:
            self.assertEqual([end["reason"] for end in ends], ["failed"])
            self.assertRegex(ends[0]["error"], r"number \d+ in group .* failed; missing: rank ")

    def test_first_of_tensor_and_pipeline_ranks(self):
        self.check("tp=2,pp=2", 0)

    def test_middle_of_tensor_and_pipeline_ranks(self):
        self.check("tp=2,pp=2", 1)

    def test_last_of_tensor_and_pipeline_ranks(self):
        self.check("tp=2,pp=2", 3)

    def test_first_of_replicas(self):
        self.check("dp=4", 0)

    def test_middle_of_replicas(self):
        self.check("dp=4", 2)

    def test_last_of_replicas(self):
        self.check("dp=4", 3)

    def test_one_that_dies_before_the_ranks_have_met(self):
        run = self.start(*TINY, *LONG, "--ranks", 4, "--run-dir", "run")
        deadline = time.monotonic() + START_S
        while not (ranks := self.ranks()).get("2") and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(ranks["2"], signal.SIGKILL)
        run.wait(END_S)  # takes the grace: a rank that waits to meet the others does not react to SIGTERM
        self.assertEqual(run.code, 1, run.err)
        self.assertRegex(run.err, r"copus: error: rank 2 was killed by signal 9 \(Killed\)\n$")
        self.assert_nothing_runs(patience=0)

    def test_no_rank_outlives_its_supervisor(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--run-dir", "run")
        self.wait_for_step(run, 2)
        run.process.kill()
        run.wait(END_S)
        self.assert_nothing_runs()
        self.assertEqual(of_kind(self.folder / "run", "end"), [])


class Stopped(RunTest):
    """If a rank hangs, the others wait for --timeout and name it."""

    TIMEOUT_S, GRACE_S, ROLL_CALL_S = 5, 10, 2

    def check(self, plan, rank):
        run = self.start(*TINY, *LONG, "--ranks", 4, "--plan", plan, "--run-dir", "run",
                         "--timeout", f"{self.TIMEOUT_S}s")  # fmt: skip
        self.wait_for_step(run, 2)
        begin = time.monotonic()
        os.kill(self.pid_of(rank), signal.SIGSTOP)
        run.wait(END_S)
        # If ranks wait for each other, they may give up one after the other.
        self.assertLess(time.monotonic() - begin, 2 * (self.TIMEOUT_S + self.ROLL_CALL_S) + self.GRACE_S + 10)
        operation = r"(all-reduce|all-gather|reduce-scatter|send|receive|broadcast) number \d+"
        self.assert_error(run, 1, rf"{operation} in group .* \(ranks [\d,]+\) failed; missing: rank ")
        self.assertRegex(run.err, rf"{operation} in group .* \(ranks [\d,]+\) failed; missing: rank ([\d, ]*, )?{rank}\b")
        self.assert_nothing_runs(patience=0)

    def test_last_of_tensor_and_pipeline_ranks(self):
        self.check("tp=2,pp=2", 3)

    def test_first_of_replicas(self):
        self.check("dp=4", 0)


class Signals(RunTest):
    """SIGINT and SIGTERM end a run after its present step. A run that may not save ends with an error."""

    def check_end(self, run, number, says="stopped by"):
        self.assert_error(run, 128 + number, f"^copus: error: {says}")
        self.assert_nothing_runs(patience=0)
        events = read_events(self.folder / "run")
        self.assertEqual((events[-1]["event"], events[-1]["reason"]), ("end", "signal"))
        self.assertIsNone(events[-1]["error"])
        self.assertRegex(run.out, r"\d+ steps, \d+ samples, loss ")

    def check(self, number, *args):
        run = self.start(*TINY, *LONG, *args, "--checkpoint-every", "off", "--run-dir", "run")
        self.wait_for_step(run, 2)
        run.process.send_signal(number)
        run.wait(END_S)
        self.check_end(run, number, f"stopped by {signal.Signals(number).name}$")

    def test_interrupt_ends_all_ranks(self):
        self.check(signal.SIGINT, "--ranks", 2)

    def test_termination_ends_all_ranks(self):
        self.check(signal.SIGTERM, "--ranks", 4, "--plan", "tp=2,pp=2")

    def test_interrupt_ends_a_single_process(self):
        self.check(signal.SIGINT, "--ranks", 1)

    def test_termination_ends_a_single_process(self):
        self.check(signal.SIGTERM)

    def test_one_rank_stops_all(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--run-dir", "run", "--for", "10m", "--checkpoint-every", "off")
        self.wait_for_step(run, 2)
        os.kill(self.pid_of(1), signal.SIGTERM)
        run.wait(END_S)
        self.check_end(run, signal.SIGTERM, r"rank \d ended with exit code 143")

    def test_control_c_at_a_terminal(self):
        for ranks in 1, 2:
            with self.subTest(ranks=ranks):
                self.check_terminal(ranks)

    def check_terminal(self, ranks):
        run_dir = f"run{ranks}"
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)

        def own_the_terminal():
            die_with_the_test()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        run = self.start(*TINY, *LONG, "--ranks", ranks, "--run-dir", run_dir, stdin=theirs, stdout=theirs,
                         stderr=theirs, env={"TERM": "xterm"}, start_new_session=True,
                         preexec_fn=own_the_terminal)  # fmt: skip
        os.close(theirs)
        os.set_blocking(ours, False)
        shown, sent = b"", False
        deadline = time.monotonic() + START_S + END_S
        while run.process.poll() is None and time.monotonic() < deadline:
            try:
                shown += os.read(ours, 65536)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # the other end is closed
                time.sleep(0.02)
            if not sent and re.search(rb"step ([2-9]|\d\d+)/", shown):  # not every step is shown
                os.write(ours, b"\x03")
                sent = True
        run.wait(1)
        try:
            shown += os.read(ours, 65536)
        except OSError:
            pass
        self.assertEqual(run.code, 130, shown)
        self.assertIn(b"copus: error: stopped by SIGINT", shown)
        self.assertIn(b"\r", shown)  # the progress is one line, rewritten in place
        self.assertEqual(read_events(self.folder / run_dir)[-1]["reason"], "signal")


class BadInput(RunTest):
    """Bad input gives one line and exit code 2, and leaves no process."""

    def refused(self, pattern, *args, both=True, env=None):
        """Checks the error with one process and with two ranks. Only one of the ranks may print it."""
        for extra in ([], ["--ranks", 2]) if both else ([],):
            run = self.train(*TINY, "--steps", 3, *extra, *args, code=2, env=env)
            self.assert_error(run, 2, pattern)
            self.assertEqual(run.err.count("\n"), 1, run.err)
            self.assert_nothing_runs(patience=0)

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refused(rf"port: got {port}.*in use", "--ranks", 2, "--port", port, "--run-dir", "run", both=False)
            env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
            self.refused(rf"port: got {port}.*in use", "--run-dir", "run2", both=False, env=env)
            # The other rank finds a foreign server at the port, which does not answer.
            env.update(RANK="1", LOCAL_RANK="1")
            run = self.start(*TINY, "--steps", 3, "--run-dir", "run2", "--timeout", "3s", env=env).wait(END_S)
            self.assert_error(run, 1, "group world|meeting point")

    def test_data_that_is_not_there(self):
        self.refused(r"nosuch\.txt: cannot open: No such file", "--data", "nosuch.txt", "--run-dir", "run")
        self.assertFalse((self.folder / "run").exists())

    def test_sequence_longer_than_the_data(self):
        (self.folder / "short.txt").write_text("too short\n" * 5)
        self.refused(rf"short\.txt: got 50 tokens; want {2 * SEQ_LEN + 1}", "--data", "short.txt", "--run-dir", "run")

    def test_plan_for_other_ranks(self):
        self.refused("--plan: got .* = 4 .*; want a divisor of the [12] ranks?", "--plan", "tp=4", "--run-dir", "run")
        self.refused(r"plan: tp\*cp\*pp\*dp = 8 .*; want [12]", "--plan", "dp=8", "--run-dir", "run")

    def test_ranks_against_the_launcher(self):
        env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.refused("--ranks: got 4; torchrun started 2", "--ranks", 4, "--run-dir", "run", both=False, env=env)

    def test_run_directory_that_cannot_be(self):
        (self.folder / "file").write_text("")
        self.refused("file/run: cannot be created: Not a directory", "--run-dir", "file/run")
        self.refused("file: cannot be created", "--run-dir", "file")

    def test_run_directory_that_cannot_be_written(self):
        if os.geteuid() == 0:
            self.skipTest("root can write everywhere, so a read-only run directory is not tested")
        (self.folder / "run").mkdir()
        (self.folder / "run").chmod(stat.S_IRUSR | stat.S_IXUSR)
        self.refused("run/events.jsonl: cannot be opened: Permission denied", "--run-dir", "run")

    def test_run_directory_of_an_earlier_run(self):
        self.train(*TINY, "--steps", 1, "--run-dir", "run")
        before = (self.folder / "run" / "events.jsonl").read_bytes()
        self.refused("run: holds the events of an earlier run", "--run-dir", "run")
        self.assertEqual((self.folder / "run" / "events.jsonl").read_bytes(), before)

    def test_run_directory_of_a_run_that_goes_on(self):
        run = self.start(*TINY, *LONG, "--run-dir", "run")
        self.wait_for_step(run, 1)
        for ranks in 1, 2:
            other = self.train(*TINY, "--steps", 3, "--ranks", ranks, "--run-dir", "run", code=2)
            self.assert_error(other, 2, "^copus: error: run: another run is writing to it")
        run.process.terminate()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)  # it has saved

    def test_one_held_out_sequence_is_enough_to_evaluate(self):
        (self.folder / "little.txt").write_text("a few sequences\n" * 100)
        self.train(*TINY, "--steps", 3, "--data", "little.txt", "--eval-every", 1000, "--ranks", 2, "--run-dir", "run")
        self.assertEqual(len(of_kind(self.folder / "run", "eval")), 1)


class Broken(RunTest):
    """A fault after the start of a run gives exit code 1, and an `end` event if it can be written."""

    def tokens(self, name, values):
        """Writes one document as Megatron-LM's token files, in uint16."""
        (self.folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(values)}H", *values))
        header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2)
        (self.folder / f"{name}.idx").write_bytes(header + struct.pack("<iqqq", len(values), 0, 0, 1))

    def test_full_disk(self):
        for ranks in 1, 2:
            with self.subTest(ranks=ranks):
                run_dir = self.folder / f"run{ranks}"
                run_dir.mkdir()
                (run_dir / "events.jsonl").symlink_to("/dev/full")
                run = self.train(*TINY, *LONG, "--ranks", ranks, "--run-dir", run_dir.name, code=1)
                self.assert_error(run, 1, f"{run_dir.name}/events.jsonl: an event cannot be written: No space left on device$")

    def test_tokens_of_another_vocabulary(self):
        self.tokens("wrong", [40000] * 5000)
        for ranks in 1, 2:
            run = self.train(*TINY, *LONG, "--data", "wrong.bin", "--ranks", ranks, "--run-dir", "run", code=2)
            self.assert_error(run, 2, r"^copus: error: wrong\.bin: token \d+: got 40000; want 0 to 255")
            self.assertEqual(run.err.count("\n"), 1, run.err)

    def test_one_token_of_another_vocabulary(self):
        self.tokens("rare", [7] * 300 + [300] * 65 + [7] * 6000)
        for ranks in 1, 2:
            with self.subTest(ranks=ranks):
                run_dir = f"run{ranks}"
                run = self.train(*TINY, *LONG, "--data", "rare.bin", "--ranks", ranks, "--held-out", 0, "--run-dir",
                                 run_dir, code=1)  # fmt: skip
                self.assert_error(run, 1, r"rare\.bin: token \d+: got 300; want 0 to 255")
                self.assertEqual(of_kind(self.folder / run_dir, "end")[0]["reason"], "failed")

    def test_losses_that_blow_up(self):
        for ranks in 1, 2:
            with self.subTest(ranks=ranks):
                run_dir = f"run{ranks}"
                run = self.train(*TINY, "--steps", 500, "--lr", 100, "--clip", 0, "--warmup-samples", 0, "--ranks", ranks,
                                 "--run-dir", run_dir, code=1)  # fmt: skip
                cause = r"step (\d+): loss [^-]*, gradient norm [^-]*: .* is not finite on rank \d"
                self.assert_error(run, 1, cause)
                events = read_events(self.folder / run_dir)
                end, done = events[-1], len(losses(self.folder / run_dir))
                self.assertEqual((end["event"], end["reason"], end["step"]), ("end", "not_finite", done))
                self.assertEqual(int(re.match(cause, end["error"]).group(1)), done + 1)
                self.assertIn(end["error"], run.err)
                self.assertTrue(all(math.isfinite(x) for x in losses(self.folder / run_dir)))


class Launchers(RunTest):
    """Two ranks give the same losses under every launcher."""

    ARGS = (*TINY, "--steps", 5, "--plan", "tp=2")

    def launched(self, name, *environments):
        # Starts the last rank first: ranks must wait for rank 0, which serves the meeting point.
        runs = []
        for env in reversed(environments):
            runs.append(self.start(*self.ARGS, "--run-dir", name, env=env))
            time.sleep(0.3)
        for run in runs:
            run.wait(START_S)
            self.assertEqual(run.code, 0, run.err)
        self.assertEqual(runs[0].out, "")  # only rank 0 prints
        self.assertRegex(runs[1].out, r"\n5 steps, 40 samples, loss ")
        return losses(self.folder / name)

    def test_all_give_the_same_losses(self):
        run = self.train(*self.ARGS, "--ranks", 2, "--run-dir", "copus")
        self.assertEqual(run.err, "")
        expected = losses(self.folder / "copus")
        self.assertEqual(len(expected), 5)
        meeting = lambda: {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        there = meeting()
        torchrun = [{"RANK": r, "WORLD_SIZE": "2", "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": "2", **there} for r in "01"]
        self.assertEqual(self.launched("torchrun", *torchrun), expected)
        there = {"MASTER_PORT": str(free_port())}
        openmpi = [{"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": r,
                    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", **there} for r in "01"]  # fmt: skip
        self.assertEqual(self.launched("openmpi", *openmpi), expected)
        there = meeting()
        slurm = [{"SLURM_PROCID": r, "SLURM_NTASKS": "2", "SLURM_LOCALID": r, "SLURM_NODEID": "0", "SLURM_JOB_ID": "17",
                  "SLURM_TASKS_PER_NODE": "2", "SLURM_JOB_NODELIST": "localhost", **there} for r in "01"]  # fmt: skip
        self.assertEqual(self.launched("slurm", *slurm), expected)

    def test_ranks_with_other_options_are_refused(self):
        env = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        args = (*TINY, *LONG, "--timeout", "4s", "--run-dir", "run")
        first = self.start(*args, env={"RANK": "0", **env})
        second = self.start(*args, "--seed", 2, env={"RANK": "1", **env})
        self.assert_error(second.wait(END_S), 2, "rank 1: got seed = 2; want seed = 1, as rank 0 has it")
        self.assert_error(first.wait(END_S), 1, "in group world .* missing: rank 1")


class Repeatable(RunTest):
    """The same run repeats its losses to the last digit; another layout has them up to rounding."""

    def test_same_run_same_losses(self):
        args = (*TINY, "--steps", 10, "--lr", "1e-3")
        self.train(*args, "--ranks", 2, "--run-dir", "dp")
        self.train(*args, "--ranks", 2, "--run-dir", "again")
        first = losses(self.folder / "dp")
        self.assertEqual(len(first), 10)
        self.assertEqual(first, losses(self.folder / "again"))
        self.train("--config", "dp/config.toml", "--run-dir", "config")
        self.assertEqual(first, losses(self.folder / "config"))
        config = [(self.folder / name / "config.toml").read_text() for name in ("dp", "config")]
        self.assertEqual(config[0], config[1].replace('"config"', '"dp"'))
        self.train(*args, "--ranks", 2, "--run-dir", "seed", "--seed", 2)
        self.assertNotEqual(first, losses(self.folder / "seed"))
        self.train(*args, "--ranks", 2, "--plan", "tp=2", "--run-dir", "tp")
        self.assertNotEqual(first, losses(self.folder / "tp"))
        for one, other in zip(first, losses(self.folder / "tp")):
            self.assertAlmostEqual(one, other, delta=1e-4)


class Limits(RunTest):
    """The limits that end a run, and the outcome that it reports."""

    def end(self, run_dir="run"):
        return read_events(self.folder / run_dir)[-1]

    def test_loss_reached(self):
        self.train(*TINY, "--steps", 500, "--lr", "3e-3", "--until-loss", 5, "--ranks", 2, "--run-dir", "run")
        self.assertEqual(self.end()["reason"], "loss")
        self.assertLessEqual(self.end()["loss"], 5)
        self.assertTrue(all(loss > 5 for loss in losses(self.folder / "run")[:-1]))

    def test_loss_not_reached(self):
        for ranks in 1, 2:
            run_dir = f"run{ranks}"
            run = self.train(*TINY, "--steps", 3, "--until-loss", "0.5", "--ranks", ranks, "--run-dir", run_dir, code=1)
            self.assert_error(run, 1, "--until-loss: 0.5 is not reached")
            self.assertRegex(run.out, r"\n3 steps, 24 samples, loss ")
            self.assertEqual(self.end(run_dir)["reason"], "steps")

    def test_time(self):
        self.train(*TINY, "--for", "3s", "--ranks", 2, "--run-dir", "run")
        self.assertEqual(self.end()["reason"], "time")
        self.assertGreaterEqual(self.end()["seconds"], 3)
        slowest = max(event["step_time_s"] for event in of_kind(self.folder / "run", "step"))
        self.assertLess(self.end()["seconds"], 3 + 3 * slowest + 1)

    def test_samples(self):
        run = self.train(*TINY, "--samples", 20, "--steps", 100, "--run-dir", "run", "--json")
        self.assertEqual((self.end()["reason"], self.end()["samples"]), ("samples", 24))
        outcome = json.loads(run.out)  # the JSON is all of standard output
        self.assertEqual((outcome["reason"], outcome["steps"], outcome["samples"]), ("samples", 3, 24))
        self.assertEqual(outcome["loss"], losses(self.folder / "run")[-1])

    def test_held_out_loss_falls(self):
        self.train(*TINY, "--steps", 25, "--lr", "3e-3", "--eval-every", 10, "--eval-samples", 16, "--ranks", 2,
                   "--run-dir", "run")  # fmt: skip
        evaluations = of_kind(self.folder / "run", "eval")
        self.assertEqual([event["step"] for event in evaluations], [10, 20, 25])
        self.assertEqual([event["samples"] for event in evaluations], [80, 160, 200])
        self.assertLess(evaluations[-1]["loss"], evaluations[0]["loss"])
        self.assertLess(evaluations[-1]["loss"], losses(self.folder / "run")[0] - 0.5)
        self.assertEqual(self.end()["held_out_loss"], evaluations[-1]["loss"])


class Events(RunTest):
    """Tests events.jsonl, which every view of a run reads."""

    NUMBERS = ("t", "loss", "grad_norm", "lr", "step_time_s", "tokens_per_s")
    LATER = ("gns", "g2", "s", "bcrit", "goodput")  # null until known

    def test_steps(self):
        self.train(*TINY, "--steps", 6, "--ranks", 4, "--plan", "pp=2,micro_batch=2", "--run-dir", "run")
        events = read_events(self.folder / "run")
        self.assertEqual([event["event"] for event in events], ["start", *["step"] * 6, "checkpoint", "end"])
        for before, after in zip(events, events[1:]):
            self.assertLess(before["t"], after["t"])
        for number, event in enumerate(events[1:-2], start=1):
            self.assertEqual((event["step"], event["samples"], event["tokens"]), (number, number * 8, number * 8 * SEQ_LEN))
            self.assertEqual((event["global_batch"], event["plan"]), (8, "dp2.tp1.pp2.mb2"))
            for name in self.NUMBERS:
                self.assertIsInstance(event[name], float, name)
                self.assertTrue(event[name] >= 0 and math.isfinite(event[name]), name)
            for name in self.LATER:
                self.assertIn(name, event)
        self.assertEqual((events[-1]["step"], events[-1]["samples"]), (6, 48))
        self.assertEqual((events[-1]["reason"], events[-1]["error"]), ("steps", None))


class RealText(RunTest):
    """A model of two million parameters learns English, with nearly the same losses at two layouts."""

    # At twice this rate the loss jumps early on. Each jump multiplies rounding errors: the layouts then differ by 3e-3.
    ARGS = ("--model", TEXT_MODEL, "--seq-len", 128, "--global-batch", 8, "--steps", 300, "--lr", "5e-4",
            "--warmup-samples", 240, "--eval-every", 300)  # fmt: skip

    def test_learns_more_than_letters(self):
        text = Path(os.environ.get("COPUS_TEXT", SOURCE.parent / "shared" / "data" / "wikitext2_valid.txt"))
        if not text.is_file():
            self.skipTest(f"{text}: not found (COPUS_TEXT names another): training on real text is left out")
        counts = Counter(text.read_bytes())
        total = sum(counts.values())
        entropy = -sum(n / total * math.log(n / total) for n in counts.values())  # in nats, of single bytes
        for name, plan in ("dp", "dp=2"), ("tp", "tp=2"):
            self.train(*self.ARGS, "--data", text.resolve(), "--ranks", 2, "--plan", plan, "--run-dir", name, limit=1500)
        dp, tp = losses(self.folder / "dp"), losses(self.folder / "tp")
        held_out = of_kind(self.folder / "dp", "end")[0]["held_out_loss"]
        last = sum(dp[-20:]) / 20
        widest = max(abs(one - other) / one for one, other in zip(dp, tp))
        print(f"byte entropy {entropy:.3f}, loss {last:.3f}, held-out {held_out:.3f}, layouts differ by {widest:.1e}")
        self.assertEqual(len(dp), 300)
        self.assertLess(last, entropy - 0.6)
        self.assertLess(held_out, entropy - 0.6)
        self.assertLess(widest, 1e-3)


if __name__ == "__main__":
    main()
