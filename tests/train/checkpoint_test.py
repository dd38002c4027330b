#!/usr/bin/env python3
"""Tests of the checkpoints of copus train, with real processes: a killed run goes on as an undisturbed one.

    checkpoint_test.py [--bin build/bin/copus] [Class[.test]…]
"""

import json
import os
import resource
import shutil
import signal
import time

from fixture import (END_S, LONG, SEQ_LEN, START_S, TINY, RunTest, checkpoint_files, die_with_the_test, lasting_steps, main, of_kind,
                     read_events)  # fmt: skip

PAIR = (*TINY, "--lr", "1e-3", "--ranks", 2, "--plan", "dp=2,zero=1")
TWELVE = (*PAIR, "--steps", 12)


class CheckpointTest(RunTest):
    def checkpoints(self, run_dir="run"):
        folder = self.folder / run_dir / "checkpoints"
        return sorted((path.name for path in folder.glob("step-*")), key=lambda n: int(n.split("-")[1]))

    def checkpoint(self, step, run_dir="run"):
        return checkpoint_files(self.folder / run_dir, step)

    def shard(self, step, rank=0, run_dir="run"):
        return self.folder / run_dir / "checkpoints" / f"step-{step}" / f"shard-{rank}.safetensors"

    def steps(self, run_dir="run"):
        return lasting_steps(self.folder / run_dir)

    def assert_same_run(self, run_dir, other, exact=True):
        ours, theirs = self.steps(run_dir), self.steps(other)
        self.assertEqual(list(ours), list(theirs))
        for step, event in ours.items():
            for field in ("samples", "data_hash", "lr"):
                self.assertEqual(event[field], theirs[step][field], (step, field))
            if exact:
                for field in ("loss", "grad_norm", "gns"):
                    self.assertEqual(event[field], theirs[step][field], (step, field))
            self.assertAlmostEqual(event["loss"], theirs[step]["loss"], delta=1e-4)

    def damage(self, path, at=-5):
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)


class Resumed(CheckpointTest):
    def kill_after(self, step, *args):
        """Kills the supervisor and so all ranks, once a checkpoint exists. Checkpoints are written in the background."""
        run = self.start(*TWELVE, "--run-dir", "run", "--checkpoint-every", 4, *args)
        self.wait_for_step(run, step)
        self.wait_for_event(run, '"event":"checkpoint"')
        run.process.kill()
        run.wait(END_S)
        self.assert_nothing_runs()

    def test_killed_run_ends_as_an_undisturbed_one(self):
        self.train(*TWELVE, "--run-dir", "whole", "--checkpoint-every", 4)
        self.kill_after(6)
        before = read_events(self.folder / "run")
        self.train("--resume", "--run-dir", "run")  # the other options come from config.toml
        self.assertEqual(read_events(self.folder / "run")[: len(before)], before)
        restart = of_kind(self.folder / "run", "restart")[-1]
        self.assertEqual(restart["from"], f"run/checkpoints/step-{restart['step']}")
        self.assertEqual((restart["ranks"], restart["global_batch"], restart["why"]), (2, 8, "--resume"))
        self.assert_same_run("run", "whole")
        self.assertEqual(self.checkpoint(12), self.checkpoint(12, "whole"))
        self.assertEqual(self.checkpoints(), ["step-8", "step-12"])

    def test_other_ranks_and_layouts_go_on_with_the_same_samples(self):
        self.train(*TWELVE, "--run-dir", "whole")
        self.train(*PAIR, "--steps", 4, "--decay-samples", 96, "--warmup-samples", 1, "--run-dir", "run")
        self.train("--resume", "--run-dir", "run", "--steps", 8, "--ranks", 4, "--plan", "tp=2,pp=2")
        self.train("--resume", "--run-dir", "run", "--steps", 12, "--ranks", 1)
        self.assert_same_run("run", "whole", exact=False)
        plans = [event["plan"]["tp"] for event in of_kind(self.folder / "run", "restart")]
        self.assertEqual(plans, [2, 1])

    def test_run_that_is_over_stays_over(self):
        self.train(*PAIR, "--steps", 2, "--run-dir", "run")
        before = self.checkpoint(2)
        self.train("--resume", "--run-dir", "run")
        self.assertEqual(self.checkpoint(2), before)
        self.assertEqual(list(self.steps()), [1, 2])
        self.assertEqual(read_events(self.folder / "run")[-1]["loss"], self.steps()[2]["loss"])

    def test_run_that_is_over_says_why_it_does_nothing(self):
        self.train(*TWELVE, "--run-dir", "run")
        again = self.train("--resume", "--run-dir", "run", "--samples", 100000)
        self.assertIn("nothing to train: the run has reached --steps 12", again.out)

    def test_run_that_has_reached_its_loss_stays_over(self):
        self.train(*PAIR, "--until-loss", 5.2, "--run-dir", "run")
        last = max(self.steps())
        again = self.train("--resume", "--run-dir", "run")
        self.assertIn("the run has reached --until-loss 5.2", again.out)
        self.train("--resume", "--run-dir", "run", "--until-loss", 9)
        self.assertEqual(max(self.steps()), last)
        # With --eval-every, the held-out loss counts.
        self.train(*PAIR, "--until-loss", 5.2, "--eval-every", 2, "--eval-samples", 4, "--run-dir", "held")
        last = max(self.steps("held"))
        self.assertIn("the run has reached --until-loss 5.2", self.train("--resume", "--run-dir", "held").out)
        self.assertEqual(max(self.steps("held")), last)

    def test_run_that_begins_finds_no_checkpoint(self):
        self.train(*PAIR, "--steps", 2, "--run-dir", "run")
        (self.folder / "new").mkdir()
        shutil.copytree(self.folder / "run" / "checkpoints", self.folder / "new" / "checkpoints")
        run = self.train(*PAIR, "--steps", 2, "--run-dir", "new", code=2)
        self.assert_error(run, 2, "--run-dir: got new, which holds the checkpoint step-2; want --resume")
        self.assertEqual([path.name for path in (self.folder / "new").iterdir()], ["checkpoints"])

    def test_what_follows_from_an_option_follows_the_new_one(self):
        self.train(*TINY, "--lr", "1e-3", "--steps", 6, "--run-dir", "run")
        self.train("--resume", "--run-dir", "run", "--lr", "5e-5", "--steps", 12)
        self.assertLessEqual(self.steps()[12]["lr"], 5e-5)
        self.assertGreaterEqual(self.steps()[12]["lr"], 5e-6)

    def test_from_another_folder(self):
        (self.folder / "text.txt").write_text("every folder finds it again\n" * 500, encoding="utf-8")
        (self.folder / "two.json").write_text('{"name": "two", "nodes": 1, "gpus_per_node": 2, "gpu": "H100-80GB-SXM"}')
        self.train(*TINY, "--data", "text.txt", "--adapt", "batch", "--cluster", "two.json", "--ranks", 2, "--steps", 3,
                   "--run-dir", "run")  # fmt: skip
        (self.folder / "elsewhere").mkdir()
        run = self.start("--resume", "--run-dir", "../run", "--steps", 6, cwd=self.folder / "elsewhere").wait(START_S + END_S)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(max(self.steps()), 6)

    def test_run_without_a_checkpoint_begins_anew(self):
        self.train(*PAIR, "--steps", 3, "--checkpoint-every", "off", "--run-dir", "run")
        self.assertFalse((self.folder / "run" / "checkpoints").exists())
        run = self.train("--resume", "--run-dir", "run")
        self.assertIn("no checkpoint yet: beginning at step 0", run.out)
        self.assertIsNone(of_kind(self.folder / "run", "restart")[0]["from"])

    def test_what_is_no_run_is_refused(self):
        for args, says in (
            (("--resume",), "--run-dir: missing"),
            (("--resume", "--run-dir", "none"), "none has no config.toml"),
        ):
            self.assert_error(self.train(*args, code=2), 2, says)
        self.train(*PAIR, "--steps", 2, "--run-dir", "run")
        # The error is printed once, and not by every rank.
        wrong = ("--model: got one with", "--model", "gpt2-124m"), ("--seq-len: got 16", "--seq-len", 16)
        for says, *options in wrong:
            for ranks in 1, 2:
                run = self.train("--resume", "--run-dir", "run", *options, "--ranks", ranks, code=2)
                self.assertEqual((run.out + run.err).count(says), 1, run.err)
                self.assertTrue(run.err.startswith(f"copus: error: {says}"), run.err)
        # The refused options are not written to config.toml.
        before = (self.folder / "run" / "config.toml").read_text()
        run = self.train("--resume", "--run-dir", "run", "--model", "gpt2-124m", "--ranks", 1, "--lr", 5, code=2)
        self.assertEqual((self.folder / "run" / "config.toml").read_text(), before)

    def test_adapted_run_goes_on_where_it_had_got_to(self):
        args = ("--model", "tiny", "--seq-len", 32, "--global-batch", 4, "--ranks", 2, "--plan", "dp=2",
                "--calibration", 1000, "--decide-every", 5, "--dwell", 5, "--batch-margin", 0.02,
                "--adapt", "batch")  # fmt: skip
        self.train(*args, "--steps", 30, "--run-dir", "run")
        last = self.steps()[30]
        self.assertGreater(last["global_batch"], 4)
        self.train("--resume", "--run-dir", "run", "--steps", 32)
        after = self.steps()[31]
        self.assertEqual((after["global_batch"], after["plan"]), (last["global_batch"], last["plan"]))
        self.assertAlmostEqual(after["lr"], last["lr"], places=9)
        self.assertIsNotNone(after["gns_low"])  # known from the first step on
        # A config file with the initial batch, plan and rate does not change them.
        (self.folder / "run.toml").write_text('global-batch = 4\nplan = "dp=2"\nlr = 3e-4\n')
        self.train("--config", "run.toml", "--resume", "--run-dir", "run", "--steps", 33)
        again = self.steps()[33]
        self.assertEqual((again["global_batch"], again["plan"]), (last["global_batch"], last["plan"]))
        self.assertAlmostEqual(again["lr"], last["lr"], places=9)
        # A range that does not hold the batch that the run has reached is refused.
        run = self.train("--resume", "--run-dir", "run", "--steps", 34, "--batch-range", "2:4", code=2)
        self.assert_error(run, 2, f"--batch-range: got 2:4, without the run's current batch {last['global_batch']};")
        # A run that stops adapting keeps its batch and plan, also at the next resume.
        self.train("--resume", "--run-dir", "run", "--steps", 34, "--adapt", "off")
        self.train("--resume", "--run-dir", "run", "--steps", 35)
        for step in 34, 35:
            self.assertEqual((self.steps()[step]["global_batch"], self.steps()[step]["plan"]), (last["global_batch"], last["plan"]))

    def test_layout_that_is_no_longer_allowed(self):
        args = ("--model", "tiny", "--seq-len", 32, "--global-batch", 8, "--ranks", 2)
        self.train(*args, "--plan", "dp=2,zero=1", "--adapt", "full", "--steps", 2, "--run-dir", "run")
        self.train("--resume", "--run-dir", "run", "--steps", 3, "--fix", "zero=1")
        config = (self.folder / "run" / "config.toml").read_text().replace('plan = "', '# plan = "').replace('fix = "zero=1"', "")
        (self.folder / "run" / "config.toml").write_text(config)
        run = self.train("--resume", "--run-dir", "run", "--steps", 4, "--fix", "zero=0", code=2)
        self.assert_error(run, 2, "--fix: got pins that exclude dp2.tp1.pp1.mb[0-9]+.z1, the run")


class Adapted(CheckpointTest):
    """A checkpoint has the result of the decision at its step, and never the layout of a try."""

    ARGS = ("--model", "tiny", "--seq-len", 32, "--ranks", 2, "--calibration", 1000, "--dwell", 5, "--margin", 0.02,
            "--batch-margin", 0.02, "--keep", 1000)  # fmt: skip

    def manifest(self, step):
        return json.loads(self.checkpoint(step)["manifest.json"])

    def moves(self):
        return [event for event in of_kind(self.folder / "run", "reconfigure") if event["done"]]

    def test_decision_at_the_step_of_a_checkpoint(self):
        self.train(*self.ARGS, "--global-batch", 4, "--plan", "dp=2", "--adapt", "batch", "--decide-every", 5,
                   "--checkpoint-every", 5, "--steps", 100, "--run-dir", "run")  # fmt: skip
        self.assertTrue(self.moves())  # shorter runs may have too little time left to make up for a pause
        for move in self.moves():
            self.assertEqual(self.manifest(move["step"])["global_batch"], move["global_batch_to"])
        # A run that goes on from this checkpoint repeats the step exactly.
        step = self.moves()[0]["step"]
        went_on = self.steps()[step + 1]
        for later in range(step + 5, 101, 5):
            shutil.rmtree(self.folder / "run" / "checkpoints" / f"step-{later}")
        self.train("--resume", "--run-dir", "run", "--steps", step + 1)
        again = self.steps()[step + 1]
        for field in ("plan", "global_batch", "samples", "data_hash", "loss", "grad_norm"):
            self.assertEqual(again[field], went_on[field], field)

    def test_stopped_where_a_decision_is_due(self):
        run = self.start(*self.ARGS, "--global-batch", 4, "--plan", "dp=2", "--adapt", "batch", "--decide-every", 1,
                         *LONG, "--run-dir", "run")  # fmt: skip
        self.wait_for_step(run, 3)
        run.process.terminate()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        step = read_events(self.folder / "run")[-1]["step"]
        decision = [event for event in of_kind(self.folder / "run", "decision") if event["step"] == step][-1]
        self.assertIn(decision["action"], ("later", "keep"))
        at = decision["best"] if decision["action"] == "later" else self.steps()[step]
        self.assertEqual(self.manifest(step)["global_batch"], at["global_batch"])

    def test_save_in_a_try_returns(self):
        self.train(*self.ARGS, "--global-batch", 8, "--batch-range", "8:8", "--plan", "tp=2,micro_batch=1", "--adapt", "full",
                   "--probe", 0.5, "--decide-every", 8, "--checkpoint-every", 5, "--steps", 400, "--run-dir", "run")  # fmt: skip
        trying, saved_in_tries = False, 0
        for event in read_events(self.folder / "run"):
            if event["event"] == "decision":
                if ": a try;" in event["why"] and not trying:
                    trying, home = True, self.steps()[event["step"]]["plan"]
                elif event["why"].find("after ") >= 0:
                    trying = False
            if event["event"] == "step" and trying:
                self.assertNotEqual(event["plan"], home)
                if event["step"] % 5 == 0 and event["step"] % 8:  # the decision at the end of a try comes after this event
                    plan = self.manifest(event["step"])["plan"]
                    self.assertEqual(f"dp{plan['dp']}.tp{plan['tp']}.pp{plan['pp']}", ".".join(home.split(".")[:3]))
                    saved_in_tries += 1
        self.assertGreater(saved_in_tries, 0)


class Data(CheckpointTest):
    """A resumed run must have the same data, unless --other-data allows other data."""

    def setUp(self):
        super().setUp()
        (self.folder / "a.txt").write_text("a few words of text\n" * 200)
        self.train(*TINY, "--steps", 2, "--data", "a.txt", "--run-dir", "run")

    def assert_refused(self, args, *patterns):
        before = (self.folder / "run" / "config.toml").read_text()
        run = self.train("--resume", "--run-dir", "run", "--steps", 3, *args, code=2)
        self.assert_error(run, 2, "or --other-data to go on with other data", *patterns)
        self.assertEqual((self.folder / "run" / "config.toml").read_text(), before)

    def test_same_data_named_again(self):
        shutil.copy(self.folder / "a.txt", self.folder / "moved.txt")
        self.train("--resume", "--run-dir", "run", "--steps", 3, "--data", "a.txt", "--seed", 1, "--seq-len", SEQ_LEN)
        self.train("--resume", "--run-dir", "run", "--steps", 4, "--data", "moved.txt")
        self.assertEqual(list(self.steps()), [1, 2, 3, 4])

    def test_same_path_with_other_content(self):
        (self.folder / "a.txt").write_text("other words of text\n" * 200)
        self.assert_refused((), "--data: got /.*/a.txt ")
        self.assert_refused(("--data", "a.txt"), "--data: got a.txt ")
        self.train("--resume", "--run-dir", "run", "--steps", 3, "--other-data")
        self.train("--resume", "--run-dir", "run", "--steps", 4)  # the other data are the run's now

    def test_another_path(self):
        (self.folder / "b.txt").write_text("other words of text\n" * 200)
        self.assert_refused(("--data", "b.txt"), "--data: got b.txt ")
        self.train("--resume", "--run-dir", "run", "--steps", 3, "--data", "b.txt", "--other-data")

    def test_other_samples_of_it(self):
        self.assert_refused(("--seed", 2), "--seed: got 2; want 1,")
        self.assert_refused(("--seq-len", 16), f"--seq-len: got 16; want {SEQ_LEN},")
        self.assert_refused(("--held-out", 0.5), "--data: got /.*/a.txt with --held-out 0.5")
        self.train("--resume", "--run-dir", "run", "--steps", 3, "--seed", 2, "--other-data")
        # Each step's tokens count with the sequence length of that step.
        before = self.steps()[3]
        self.train("--resume", "--run-dir", "run", "--steps", 5, "--seq-len", 16, "--other-data")
        self.train("--resume", "--run-dir", "run", "--steps", 6)
        for step in 4, 5, 6:
            here = self.steps()[step]
            self.assertEqual(here["tokens"], before["tokens"] + (here["samples"] - before["samples"]) * 16)

    def test_other_data_is_meant_after_a_restart_too(self):
        (self.folder / "b.txt").write_text("other words of text\n" * 200)
        run = self.start("--resume", "--run-dir", "run", *LONG, "--data", "b.txt", "--other-data", "--max-restarts", 1,
                         "--ranks", 2)  # fmt: skip
        self.wait_for_step(run, 5)
        os.kill(self.pid_of(1), signal.SIGKILL)
        deadline = time.monotonic() + START_S
        while len(of_kind(self.folder / "run", "restart")) < 2 and time.monotonic() < deadline:
            self.assertIsNone(run.process.poll(), run.err)
            time.sleep(0.1)
        run.process.terminate()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)


class Signalled(CheckpointTest):
    def test_termination_saves_and_is_no_failure(self):
        run = self.start(*TINY, *LONG, "--run-dir", "run")
        self.wait_for_step(run, 2)
        run.process.terminate()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["event"], end["reason"]), ("end", "signal"))
        self.assertEqual(self.checkpoints(), [f"step-{end['step']}"])

    def test_interrupt_saves_too(self):
        run = self.start(*TINY, *LONG, "--run-dir", "run")
        self.wait_for_step(run, 2)
        run.process.send_signal(signal.SIGINT)
        run.wait(END_S)
        self.assertEqual(run.code, 130, run.err)
        self.assertEqual(len(self.checkpoints()), 1)


class BadWeather(CheckpointTest):
    """A damaged or incomplete checkpoint is never used."""

    def trained(self):
        self.train(*PAIR, "--steps", 4, "--checkpoint-every", 2, "--run-dir", "run")
        self.assertEqual(self.checkpoints(), ["step-2", "step-4"])

    def check_falls_back(self, says):
        run = self.train("--resume", "--run-dir", "run", "--steps", 6)
        self.assertIn("CHECKPOINT NOT USED: run/checkpoints/step-4", run.out)
        self.assertRegex(run.out, says)
        restart = of_kind(self.folder / "run", "restart")[-1]
        self.assertEqual((restart["step"], restart["from"]), (2, "run/checkpoints/step-2"))
        self.assertRegex(restart["skipped"], says)
        self.train(*PAIR, "--steps", 6, "--decay-samples", 32, "--warmup-samples", 0, "--run-dir", "whole")
        self.assert_same_run("run", "whole")
        # The damaged checkpoint is renamed: it is not used, and a user can still look into it.
        self.assertEqual(self.checkpoints(), ["step-4", "step-6"])
        self.assertTrue((self.folder / "run" / "checkpoints" / "damaged-step-4").is_dir())

    def test_flipped_bit_in_a_shard(self):
        self.trained()
        self.damage(self.shard(4, rank=1))
        self.check_falls_back("shard-1.safetensors: is damaged")

    def test_truncated_shard(self):
        self.trained()
        os.truncate(self.shard(4), 1000)
        self.check_falls_back("shard-0.safetensors: ")

    def test_flipped_bit_in_the_manifest(self):
        self.trained()
        self.damage(self.shard(4).with_name("manifest.json"), at=200)
        self.check_falls_back("manifest.json: ")

    def test_missing_shard(self):
        self.trained()
        self.shard(4, rank=1).unlink()
        self.check_falls_back("shard-1.safetensors: is damaged: the file is missing")

    def test_no_checkpoint_that_is_whole_is_no_fresh_start(self):
        self.trained()
        self.damage(self.shard(4))
        self.damage(self.shard(2))
        run = self.train("--resume", "--run-dir", "run", "--steps", 6, code=2)
        self.assertIn("no checkpoint in run can be used", run.err)

    def test_half_written_checkpoint_is_ignored_and_removed(self):
        self.trained()
        partial = self.folder / "run" / "checkpoints" / ".step-9.0.partial"
        shutil.copytree(self.folder / "run" / "checkpoints" / "step-4", partial)
        self.train("--resume", "--run-dir", "run", "--steps", 5)
        self.assertFalse(partial.exists())
        self.assertEqual(of_kind(self.folder / "run", "restart")[-1]["step"], 4)

    def test_two_runs_on_one_directory(self):
        run = self.start(*TINY, *LONG, "--run-dir", "run", "--checkpoint-every", 1)
        self.wait_for_step(run, 2)
        for ranks in 1, 2:
            other = self.train("--resume", "--run-dir", "run", "--ranks", ranks, code=2)
            self.assert_error(other, 2, "run: another run is writing to it")
        self.assertIsNone(run.process.poll())
        run.process.terminate()
        run.wait(END_S)
        self.assertEqual(run.code, 0, run.err)

    def limited(self, size):
        """Limits the size of files, so that writes beyond it fail as on a full disk."""

        def limit():
            die_with_the_test()
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        return {"preexec_fn": limit}

    def test_full_disk_is_said_and_training_goes_on(self):
        run = self.start(*PAIR, "--steps", 5, "--checkpoint-every", 2, "--run-dir", "run", **self.limited(1 << 20))
        run.wait(END_S + END_S)
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("CHECKPOINT OF STEP 2 NOT SAVED", run.out)
        self.assertRegex(run.err, "the last checkpoint was not saved: rank [01]: .*File too large")
        self.assertEqual(list(self.steps()), [1, 2, 3, 4, 5])
        events = of_kind(self.folder / "run", "checkpoint")
        self.assertEqual([(e["step"], e["path"]) for e in events], [(2, None), (4, None), (5, None)])
        self.assertRegex(events[0]["error"], "File too large")
        self.assertEqual(os.listdir(self.folder / "run" / "checkpoints"), [])
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["step"], end["samples"]), (5, 40))

    def test_checkpoints_that_cannot_be_listed_lose_no_outcome(self):
        run = self.start(*PAIR, "--steps", 200, "--checkpoint-every", 5, "--run-dir", "run")
        self.wait_for_step(run, 6)
        ranks = list(self.ranks().values())
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        (self.folder / "run" / "checkpoints").rename(self.folder / "run" / "aside")
        (self.folder / "run" / "checkpoints").write_text("in the way")
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        run.wait(START_S + END_S)
        self.assertEqual(run.code, 1, run.err)
        end = read_events(self.folder / "run")[-1]
        self.assertEqual((end["event"], end["step"], end["samples"]), ("end", 200, 1600))

    def test_place_where_none_can_be_is_refused_before_the_run(self):
        (self.folder / "run").mkdir()
        (self.folder / "run" / "checkpoints").write_text("in the way")
        run = self.train(*TINY, "--steps", 2, "--run-dir", "run", code=2)
        self.assert_error(run, 2, "run/checkpoints: cannot be")


class Kept(CheckpointTest):
    def test_last_ones_and_milestones(self):
        self.train(*TINY, "--steps", 9, "--checkpoint-every", 1, "--keep", 2, "--keep-every", 4, "--run-dir", "run")
        self.assertEqual(self.checkpoints(), ["step-4", "step-8", "step-9"])
        events = of_kind(self.folder / "run", "checkpoint")
        self.assertEqual([event["step"] for event in events], list(range(1, 10)))
        for event in events:
            self.assertGreater(event["bytes"], 0)
            self.assertIsNone(event["error"])
        manifest = json.loads(self.checkpoint(9)["manifest.json"])
        self.assertEqual((manifest["step"], manifest["samples"], manifest["optimizer"]), (9, 72, True))


if __name__ == "__main__":
    main()
