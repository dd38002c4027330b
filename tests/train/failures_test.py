#!/usr/bin/env python3
"""Tests of failures and of how a run goes on after them, with real processes and real signals.

    failures_test.py [--bin build/bin/copus] [Class[.test]…]
"""

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import time

import fixture
from fixture import END_S, SEQ_LEN, START_S, TINY, LONG, RunTest, free_port, losses, main, of_kind, read_events

OPERATION = r"(all-reduce|all-gather|reduce-scatter|send|receive|broadcast) number \d+ in group "
PLACE = rf"(reading the data|in the (forward|backward) pass of micro-batch \d+|in the optimizer|in {OPERATION}.*|in other work)"


class FailureTest(RunTest):
    def checkpoints(self, run_dir="run"):
        """Returns the steps of the published checkpoints."""
        return sorted(int(path.name[5:]) for path in (self.folder / run_dir / "checkpoints").glob("step-*"))

    def wait_for_checkpoint(self, run, after=0, run_dir="run"):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and run.process.poll() is None:
            if max(self.checkpoints(run_dir), default=0) > after:
                return
            time.sleep(0.05)
        self.fail(f"no checkpoint: {' '.join(run.args)}\n{run.err}")

    def tokens(self, name, values):
        """Writes one document as Megatron-LM's token files, in uint16."""
        (self.folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(values)}H", *values))
        header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2)
        (self.folder / f"{name}.idx").write_bytes(header + struct.pack("<iqqq", len(values), 0, 0, 1))


class Restarted(FailureTest):
    """After a rank has died the run goes on from its last checkpoint, to the same result."""

    ARGS = (*TINY, "--steps", 60, "--ranks", 2, "--checkpoint-every", 10)

    def test_killed_rank(self):
        undisturbed = self.train(*self.ARGS, "--run-dir", "whole")
        self.assertEqual(undisturbed.err, "")
        run = self.start(*self.ARGS, "--max-restarts", 2, "--run-dir", "run")
        self.wait_for_checkpoint(run)
        os.kill(self.pid_of(1), signal.SIGKILL)
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, r"copus: restart 1 of 2 in 1 s, from the checkpoint of step \d+, 2 of 2 ranks: rank 1 was killed by signal 9 ")
        restarts = of_kind(self.folder / "run", "restart")
        self.assertEqual(len(restarts), 1)
        self.assertRegex(restarts[0]["why"], "rank 1 was killed by signal 9")
        self.assertGreater(restarts[0]["step"], 0)
        # The events have the steps after the checkpoint twice: the lost ones, and the repeated ones.
        last = {event["step"]: event["loss"] for event in of_kind(self.folder / "run", "step")}
        self.assertEqual([last[step] for step in range(1, 61)], losses(self.folder / "whole"))
        self.assertEqual(read_events(self.folder / "run")[-1]["reason"], "steps")

    def test_told_to_stop_after_a_failure_it_stops(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--checkpoint-every", 5, "--max-restarts", 5, "--run-dir", "run")
        self.wait_for_checkpoint(run)
        os.kill(self.pid_of(1), signal.SIGSTOP)  # so that the run ends slowly
        os.kill(self.pid_of(0), signal.SIGKILL)
        time.sleep(1)
        run.process.terminate()
        run.wait(END_S)
        self.assertNotIn("restart 1", run.err)
        self.assert_error(run, 1, "rank 0 was killed by signal 9 .*; then stopped by SIGTERM")

    def test_a_failed_run_says_where_it_can_go_on(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--checkpoint-every", 5, "--timeout", "20s", "--run-dir", "run")
        self.wait_for_checkpoint(run)
        os.kill(self.pid_of(1), signal.SIGKILL)
        run.wait(END_S)
        self.assertEqual(run.code, 1, run.err)
        self.assertRegex(read_events(self.folder / "run")[-1]["error"], r"; the last checkpoint is run/checkpoints/step-\d+$")

    def test_without_a_checkpoint_from_the_beginning(self):
        run = self.start(*TINY, "--steps", 40, "--ranks", 2, "--checkpoint-every", "off", "--max-restarts", 1,
                         "--run-dir", "run")  # fmt: skip
        self.wait_for_step(run, 3)
        os.kill(self.pid_of(0), signal.SIGKILL)
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, r"copus: restart 1 of 1 in 1 s, from the beginning, for there is no checkpoint, ")
        self.assertEqual([e["step"] for e in of_kind(self.folder / "run", "step")][-40:], list(range(1, 41)))

    def test_a_single_rank(self):
        run = self.start(*TINY, "--steps", 60, "--checkpoint-every", 10, "--max-restarts", 1, "--run-dir", "run")
        self.wait_for_checkpoint(run)
        os.kill(self.pid_of(0), signal.SIGKILL)
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)

    def test_killed_before_it_begins_it_keeps_its_new_options(self):
        self.train(*TINY, "--steps", 2, "--run-dir", "run")
        run = self.start("--resume", "--run-dir", "run", "--steps", 4, "--lr", "0.0005", "--max-restarts", 1)
        deadline = time.monotonic() + START_S
        while not self.ranks():
            self.assertLess(time.monotonic(), deadline, run.err)
            time.sleep(0.001)
        os.kill(self.pid_of(0), signal.SIGKILL)  # it is still loading libtorch
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, "copus: restart 1 of 1 in 1 s, from the checkpoint of step 2, ")
        (restart,) = of_kind(self.folder / "run", "restart")
        self.assertEqual(restart["options"]["lr"], {"from": "0.0003", "to": "0.0005"})
        self.assertEqual(len(losses(self.folder / "run")), 4)

    def test_nobody_listens(self):
        """The terminal is gone, as after a dropped ssh, or the log is on a full disk."""
        for name in "gone", "full":
            with self.subTest(name), open("/dev/full", "wb") as full:
                stderr = subprocess.STDOUT if name == "gone" else full
                run = self.start(*self.ARGS, "--max-restarts", 1, "--run-dir", name, stdout=subprocess.PIPE, stderr=stderr)
                run.process.stdout.close()
                self.wait_for_step(run, 12, name)
                os.kill(self.pid_of(1), signal.SIGKILL)
                run.wait(START_S + END_S)
                self.assertEqual(run.code, 0)
                self.assertEqual(len(of_kind(self.folder / name, "restart")), 1)

    def test_no_progress_ends_it(self):
        self.tokens("rare", [7] * 300 + [300] * 65 + [7] * 6000)
        run = self.train(*TINY, *LONG, "--data", "rare.bin", "--held-out", 0, "--ranks", 2, "--max-restarts", 50,
                         "--run-dir", "run", code=1)  # fmt: skip
        self.assertEqual(run.err.count("copus: restart "), 3, run.err)
        self.assertRegex(run.err.splitlines()[-1], "got 300; want 0 to 255.*; 3 restarts in a row have brought no new checkpoint")

    def test_a_verdict_stands(self):
        run = self.train(*TINY, "--steps", 3, "--until-loss", "0.5", "--ranks", 2, "--max-restarts", 5, "--run-dir",
                         "run", code=1)  # fmt: skip
        self.assertNotIn("restart", run.err)
        self.assertRegex(run.err, "--until-loss: 0.5 is not reached")

    def test_bad_input_is_not_tried_twice(self):
        run = self.train(*TINY, "--steps", 3, "--data", "nosuch.txt", "--ranks", 2, "--max-restarts", 5, code=2)
        self.assertEqual(run.err.count("\n"), 1)


class Hung(FailureTest):
    """The message names a rank that hangs, and what it was doing."""

    TIMEOUT_S = 6

    def test_named_and_done_without(self):
        run = self.start(*TINY, "--steps", 60, "--ranks", 2, "--checkpoint-every", 10, "--timeout", f"{self.TIMEOUT_S}s",
                         "--max-restarts", 1, "--run-dir", "run")  # fmt: skip
        self.wait_for_checkpoint(run)
        begin = time.monotonic()
        os.kill(self.pid_of(1), signal.SIGSTOP)
        while "restart 1 of 1" not in run.err and time.monotonic() < begin + END_S:
            time.sleep(0.1)
        # The limit, the roll call, and ten seconds for the rank that does not answer.
        self.assertLess(time.monotonic() - begin, 2 * self.TIMEOUT_S + 2 + 10 + 10)
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, rf"stalled: rank 0 has been waiting \d s in {OPERATION}.* of step \d+; rank 1 has been silent for \d+ s, {PLACE}")
        self.assertRegex(run.err, rf"missing: rank 1; rank 1 has been silent for \d+ s, {PLACE}")

    def test_nobody_waits_for_it(self):
        run = self.start(*TINY, *LONG, "--max-restarts", 1, "--timeout", "3s", "--run-dir", "run")
        self.wait_for_step(run, 2)
        stopped = self.pid_of(0)
        os.kill(stopped, signal.SIGSTOP)
        deadline = time.monotonic() + START_S
        while not of_kind(self.folder / "run", "restart") and time.monotonic() < deadline:
            self.assertIsNone(run.process.poll(), run.err)
            time.sleep(0.2)
        self.assertNotEqual(self.pid_of(0), stopped)
        self.assertRegex(run.err, rf"copus: restart 1 of 1 in 1 s, .*: rank 0 has been silent for \d+ s, {PLACE} of step \d+")
        run.process.terminate()
        run.wait(END_S)


class SlowDisk(FailureTest):
    """Ranks wait four times --timeout for a rank that saves."""

    TIMEOUT_S = 4

    def held_up(self):
        """Makes rank 1's shard of the second save a pipe, so that the rank blocks until a reader opens the pipe."""
        run = self.start(*TINY, "--steps", 16, "--ranks", 2, "--checkpoint-every", 4, "--timeout", f"{self.TIMEOUT_S}s",
                         "--run-dir", "run")  # fmt: skip
        self.wait_for_step(run, 1)
        pipe = self.folder / "run" / "checkpoints" / ".step-8.1.partial" / "shard-1.safetensors"
        pipe.parent.mkdir()
        os.mkfifo(pipe)
        self.wait_for_step(run, 12)  # the next save waits for the blocked one
        return run, pipe

    def test_slow_disk_ends_nothing(self):
        run, pipe = self.held_up()
        time.sleep(2 * self.TIMEOUT_S)
        self.assertIsNone(run.process.poll(), run.err)
        with open(pipe, "rb") as reader:
            reader.read()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        # The save into the pipe has failed; the later checkpoints are there.
        self.assertIn("CHECKPOINT OF STEP 8 NOT SAVED", run.out + run.err)
        self.assertEqual(self.checkpoints(), [12, 16])
        self.assertEqual(len(losses(self.folder / "run")), 16)

    def test_hung_disk_ends_the_run_in_time(self):
        run, _ = self.held_up()
        begin = time.monotonic()
        run.wait(START_S)
        # Four times the limit, the roll call, and ten seconds for the rank that does not answer.
        self.assertLess(time.monotonic() - begin, 4 * self.TIMEOUT_S + 3 + 10 + 10)
        self.assertEqual(run.code, 1, run.err)
        self.assertRegex(run.err, r"meeting number \d+ in group world .* failed; missing: rank 1; rank 1 has been saving a checkpoint of step 12 for \d+ s")


class OneFolder(FailureTest):
    """From its start to its end a run owns its folder: a second run changes nothing there."""

    def contents(self):
        """Returns every file and its content, except for the content of activity/, which changes all the time."""
        files = (path for path in (self.folder / "run").rglob("*") if path.is_file())
        return {str(path): None if path.parent.name == "activity" else path.read_bytes() for path in files}

    def test_between_two_attempts(self):
        run = self.start(*TINY, "--steps", 60, "--ranks", 2, "--checkpoint-every", 10, "--max-restarts", 1, "--run-dir", "run")
        self.wait_for_checkpoint(run)
        os.kill(self.pid_of(1), signal.SIGKILL)
        deadline = time.monotonic() + END_S
        while "restart 1 of 1" not in run.err and time.monotonic() < deadline:
            time.sleep(0.02)
        run.process.send_signal(signal.SIGSTOP)  # in the second between the two attempts
        self.assertEqual(self.ranks(), {})
        before = self.contents()
        for ranks in 1, 2:
            other = self.train("--resume", "--run-dir", "run", "--ranks", ranks, code=2)
            self.assert_error(other, 2, "run: another run is writing to it")
        self.assertEqual(self.contents(), before)
        run.process.send_signal(signal.SIGCONT)
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)

    def test_ranks_of_a_launcher(self):
        self.train(*TINY, "--steps", 2, "--run-dir", "run")
        # Another run serves the meeting point, so that it outlives rank 0, like torchrun's.
        port = str(free_port())
        server = self.start(*TINY, *LONG, "--ranks", 2, "--port", port, "--run-dir", "elsewhere")
        deadline = time.monotonic() + START_S
        while len(self.ranks()) < 2:
            self.assertLess(time.monotonic(), deadline, server.err)
            time.sleep(0.001)
        for pid in self.ranks().values():
            os.kill(pid, signal.SIGSTOP)  # before they write to the meeting point
        env = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
               "TORCHELASTIC_USE_AGENT_STORE": "True"}  # fmt: skip
        before = self.contents()
        with open(self.folder / "run" / "events.jsonl", "rb") as events:
            fcntl.flock(events, fcntl.LOCK_EX)
            args = ("--resume", "--run-dir", "run", "--steps", 4, "--timeout", "10s")
            for run in [self.start(*args, env={"RANK": r, "LOCAL_RANK": r, **env}) for r in "01"]:
                self.assert_error(run.wait(START_S), 2, "run: another run is writing to it")
        self.assertEqual(self.contents(), before)
        server.process.kill()
        server.wait(END_S)

    def test_closed_standard_streams(self):
        for name, closed in ("none", "<&- >&- 2>&-"), ("input", "<&-"), ("output", ">&-"):
            with self.subTest(name):
                args = [str(arg) for arg in (fixture.COPUS, "train", *TINY, "--steps", 3, "--ranks", 2, "--run-dir", name)]
                done = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', *args], cwd=self.folder,
                                      env=fixture.environment(self.tag, {}), capture_output=True, timeout=START_S)  # fmt: skip
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(read_events(self.folder / name)[-1]["reason"], "steps")  # every line is an event

    def test_a_run_whose_folder_is_removed_says_so(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--checkpoint-every", "off", "--max-restarts", 3, "--run-dir", "run")
        self.wait_for_step(run, 2)
        (self.folder / "run").rename(self.folder / "gone")
        shutil.rmtree(self.folder / "gone")
        run.wait(END_S)
        self.assert_error(run, 1, "run/events.jsonl: was removed while the run wrote to it")
        self.assertFalse((self.folder / "run" / "config.toml").exists())

    def test_whoever_removes_what_ranks_say_silences_nobody(self):
        run = self.start(*TINY, *LONG, "--timeout", "1s", "--max-restarts", 1, "--run-dir", "run")
        self.wait_for_step(run, 2)
        time.sleep(2)  # the supervisor has seen its activity
        shutil.rmtree(self.folder / "run" / "activity")
        time.sleep(2 * 1 + 10 + 5)
        self.assertIsNone(run.process.poll(), run.err)
        self.assertNotIn("restart", run.err)
        run.process.terminate()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)


class Preempted(FailureTest):
    """A scheduler sends a signal before it takes the machine away: the run saves, and goes on later."""

    def check(self, number, code, *args):
        run = self.start(*TINY, "--steps", 5000, *args, "--run-dir", "run")
        self.wait_for_step(run, 3)
        run.process.send_signal(number)
        run.wait(END_S)
        self.assertEqual(run.code, code, run.err)
        self.assert_nothing_runs(patience=0)
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["event"], end["reason"]), ("end", "signal"))
        self.assertEqual(self.checkpoints(), [end["step"]])
        again = self.train("--resume", "--run-dir", "run", "--steps", end["step"] + 5)
        self.assertEqual(read_events(self.folder / "run")[-1]["step"], end["step"] + 5, again.err)

    def test_termination(self):
        self.check(signal.SIGTERM, 0, "--ranks", 2)

    def test_user_signal_to_a_single_process(self):
        self.check(signal.SIGUSR1, 0)

    def test_hangup(self):
        self.check(signal.SIGHUP, 0, "--ranks", 2, "--plan", "tp=2")

    def test_interrupt(self):
        self.check(signal.SIGINT, 130, "--ranks", 2)

    def test_an_evaluation_does_not_keep_it(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--eval-every", 5, "--eval-samples", 1000000, "--run-dir", "run")
        self.wait_for_step(run, 5)
        time.sleep(0.5)
        run.process.send_signal(signal.SIGTERM)
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(of_kind(self.folder / "run", "eval"), [])
        self.assertIn("no held-out loss: asked to stop", run.out)
        self.assertEqual(self.checkpoints(), [read_events(self.folder / "run")[-1]["step"]])

    def test_the_last_evaluation_can_be_had_later(self):
        args = ("--eval-every", 5, "--until-loss", 5.5)
        run = self.start(*TINY, "--lr", "1e-3", "--steps", 5, "--ranks", 2, *args, "--eval-samples", 1000000, "--run-dir", "run")
        self.wait_for_step(run, 5)
        time.sleep(0.5)
        run.process.send_signal(signal.SIGTERM)
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["reason"], end["step"], end["held_out_loss"]), ("signal", 5, None))
        run = self.start("--resume", "--run-dir", "run")
        self.wait_for_event(run, '"event":"restart"')
        time.sleep(0.5)
        run.process.send_signal(signal.SIGTERM)
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["reason"], end["step"], end["samples"]), ("signal", 5, 40))
        self.train("--resume", "--run-dir", "run", "--eval-samples", 16)
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["reason"], end["step"]), ("loss", 5))

    def test_one_rank_is_enough(self):
        run = self.start(*TINY, *LONG, "--ranks", 2, "--run-dir", "run")
        self.wait_for_step(run, 3)
        os.kill(self.pid_of(1), signal.SIGUSR1)
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(self.checkpoints(), [read_events(self.folder / "run")[-1]["step"]])

    def test_a_reader_that_goes_away(self):
        run = self.start(*TINY, "--steps", 30, "--ranks", 2, "--run-dir", "run", stdout=subprocess.PIPE)
        run.process.stdout.close()
        run.wait(START_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(read_events(self.folder / "run")[-1]["step"], 30)


class Elastic(FailureTest):
    """With fewer ranks the run goes on at the best plan for these."""

    def go(self, ranks, batch, *args):
        run = self.start(*TINY[:-1], batch, "--steps", 60, "--ranks", ranks, "--checkpoint-every", 10, "--max-restarts", 1,
                         "--run-dir", "run", *args)  # fmt: skip
        self.wait_for_checkpoint(run)
        os.kill(self.pid_of(1), signal.SIGKILL)
        return run.wait(2 * START_S + END_S)

    def test_four_become_three(self):
        run = self.go(4, 8, "--elastic", 2, "--plan", "tp=2,pp=2")
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, "copus: restart 1 of 1 in 1 s, .*, 3 of 4 ranks: rank 1 was killed")
        [restart] = of_kind(self.folder / "run", "restart")
        self.assertEqual(restart["ranks"], 3)
        last = of_kind(self.folder / "run", "step")[-1]
        self.assertEqual(last["step"], 60)
        if last["global_batch"] != 8:
            self.assertRegex(run.err, rf"no layout of 3 ranks can train a batch of 8: going on with {last['global_batch']}")
        # No sample is repeated or left out.
        self.assertEqual(last["samples"], restart["samples"] + (60 - restart["step"]) * last["global_batch"])

    def test_too_few_are_left(self):
        run = self.go(2, 8, "--elastic", 2)
        self.assertEqual(run.code, 1, run.err)
        self.assertRegex(run.err.splitlines()[-1], "1 of 2 ranks are left, and --elastic wants 2 at least")


class BadSteps(FailureTest):
    """A bad step changes no weight. --on-bad-step decides how the run goes on."""

    def noisy(self):
        """Returns the options of a run on a text that a model learns fast, with noise in a few places. Some noise comes late."""
        values = [1, 2, 3, 4] * (SEQ_LEN // 4) * 600
        noise = random.Random(1)
        for at in range(SEQ_LEN * 50, SEQ_LEN * 600, SEQ_LEN * 100):
            values[at : at + SEQ_LEN] = [noise.randrange(256) for _ in range(SEQ_LEN)]
        self.tokens("noisy", values)
        return (*TINY, "--data", "noisy.bin", "--held-out", 0, "--lr", "3e-3", "--warmup-samples", 0, "--steps", 70,
                "--spike", 20)  # fmt: skip

    def test_spikes_are_left_out(self):
        for ranks in 1, 2:
            with self.subTest(ranks=ranks):
                run_dir = f"run{ranks}"
                run = self.train(*self.noisy(), "--on-bad-step", "skip", "--ranks", ranks, "--run-dir", run_dir)
                bad = of_kind(self.folder / run_dir, "bad_step")
                self.assertTrue(1 <= len(bad) <= 12, bad)
                self.assertEqual({event["action"] for event in bad}, {"skip"})
                for event in bad:
                    self.assertRegex(event["why"], r"the loss is [\d.]+ deviations above ")
                    self.assertEqual(event["samples"], event["step"] * 8)
                steps = of_kind(self.folder / run_dir, "step")
                self.assertEqual(len(steps) + len(bad), 70)
                self.assertEqual(steps[-1]["samples"], 560)
                self.assertIn("left out", run.out)

    def test_a_spike_stops(self):
        run = self.train(*self.noisy(), "--ranks", 2, "--run-dir", "run", code=1)
        self.assertRegex(run.err, r"step \d+: loss .*: the loss is [\d.]+ deviations above .*; the weights are as after step \d+")
        end = read_events(self.folder / "run")[-1]
        self.assertEqual(end["reason"], "spike")
        # The run has saved what it reached.
        self.assertEqual(self.checkpoints(), [end["step"]])

    def test_back_to_the_checkpoint_and_on_behind_the_bad_samples(self):
        self.train(*self.noisy(), "--on-bad-step", "rollback", "--max-rollbacks", 12, "--checkpoint-every", 10, "--keep", 100,
                   "--ranks", 2, "--run-dir", "run")  # fmt: skip
        bad = of_kind(self.folder / "run", "bad_step")
        self.assertTrue(1 <= len(bad) <= 12, bad)
        for event in bad:
            self.assertEqual(event["action"], "rollback")
            # The checkpoint at the bad step has the state that was loaded.
            before, here = self.folder / event["from"], self.folder / "run" / "checkpoints" / f"step-{event['step']}"
            self.assertLess(int(before.name[5:]), event["step"])
            for shard in "shard-0.safetensors", "shard-1.safetensors":
                self.assertEqual((before / shard).read_bytes(), (here / shard).read_bytes())
        self.assertEqual(read_events(self.folder / "run")[-1]["samples"], 560)

    def test_rollbacks_that_are_used_up_end(self):
        # A checkpoint is due at every step, also at the steps that were rolled back.
        run = self.train(*TINY, "--steps", 500, "--lr", 100, "--clip", 0, "--warmup-samples", 0, "--on-bad-step", "rollback",
                         "--max-rollbacks", 2, "--checkpoint-every", 1, "--ranks", 2, "--run-dir", "run", code=1)  # fmt: skip
        self.assertRegex(run.err, "--max-rollbacks")
        self.assertNotIn("missing", run.err)
        self.assertEqual(read_events(self.folder / "run")[-1]["reason"], "not_finite")

    def test_what_does_not_recover_ends(self):
        run = self.train(*TINY, "--steps", 500, "--lr", 100, "--clip", 0, "--warmup-samples", 0, "--on-bad-step", "skip",
                         "--max-bad-steps", 3, "--ranks", 2, "--run-dir", "run", code=1)  # fmt: skip
        self.assertRegex(run.err, r"step \d+: .* is not finite on rank \d; .*; 4 bad steps in a row; --max-bad-steps is 3")
        actions = [event["action"] for event in of_kind(self.folder / "run", "bad_step")]
        self.assertEqual(actions[-4:], ["skip", "skip", "skip", "stop"])
        self.assertEqual(read_events(self.folder / "run")[-1]["reason"], "not_finite")


if __name__ == "__main__":
    main()
