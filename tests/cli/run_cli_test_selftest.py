#!/usr/bin/env python3
"""Tests of the runner of text tests: it passes and fails the right files."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUNNER = Path(__file__).with_name("run_cli_test.py")


class RunnerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "bin").mkdir()
        copus = self.folder / "bin" / "copus"
        copus.write_text('#!/bin/sh\necho "copus got $*"\n')
        copus.chmod(0o755)

    def run_text(self, text, *options, name="case.test"):
        path = self.folder / name
        path.write_text(text)
        command = [sys.executable, RUNNER, "--bin", self.folder / "bin", *options, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.output, self.rewritten = done.stdout + done.stderr, path.read_text()
        return done.returncode == 0

    def assert_passes(self, text, *options, **kwargs):
        self.assertTrue(self.run_text(text, *options, **kwargs), getattr(self, "output", ""))

    def assert_fails(self, text, *options, **kwargs):
        self.assertFalse(self.run_text(text, *options, **kwargs), getattr(self, "output", ""))

    def test_equal_output_passes(self):
        self.assert_passes("# why\n$ echo a; echo b >&2\na\nb\n\n$ copus 1\ncopus got 1\n")

    def test_other_output_fails_and_shows_both(self):
        self.assert_fails("$ echo a\nb\n")
        self.assertIn("- b", self.output)
        self.assertIn("+ a", self.output)

    def test_missing_and_extra_lines_fail(self):
        self.assert_fails("$ echo a\n")
        self.assert_fails("$ echo a\na\nb\n")
        self.assert_fails("$ true\na\n")

    def test_exit_code_must_be_stated(self):
        self.assert_passes("$ exit 3\n[exit 3]\n")
        self.assert_fails("$ exit 3\n")
        self.assert_fails("$ exit 3\n[exit 2]\n")
        self.assert_fails("$ true\n[exit 2]\n")

    def test_dots_match_text_inside_a_line_and_nothing_more(self):
        self.assert_passes("$ echo took 12 ms.\ntook ... ms.\n")
        self.assert_fails("$ echo took 12 s.\ntook ... ms.\n")
        self.assert_fails("$ echo a; echo b\na...b\n")

    def test_dots_alone_match_any_lines_also_none(self):
        self.assert_passes("$ seq 5\n1\n...\n3\n...\n5\n...\n")
        self.assert_passes("$ true\n...\n")
        self.assert_fails("$ seq 5\n...\n3\n")

    def test_many_dots_do_not_take_for_ever(self):
        self.assert_fails("$ seq 2000\n" + "...\n" * 200 + "x\n", "--timeout", "10")

    def test_backslash_makes_a_line_literal(self):
        self.assert_passes("$ echo '# a'; echo '...'\n\\# a\n\\...\n")
        self.assert_fails("$ echo b\n\\...\n")

    def test_a_command_may_go_on_in_the_next_line(self):
        self.assert_passes("$ copus a \\\n    b\ncopus got a b\n")

    def test_commands_of_a_file_share_a_fresh_folder(self):
        self.assert_passes("$ ls\n$ echo a > f\n$ ls\nf\n")

    def test_a_file_without_commands_fails(self):
        self.assert_fails("# nothing here\n")
        self.assert_fails("echo a\n")

    def test_a_hanging_command_fails(self):
        self.assert_fails("$ sleep 30 | cat\n", "--timeout", "0.2")
        self.assertIn("timed out", self.output)

    def test_documents_run_only_copus_in_console_blocks(self):
        text = "$ false\n```\n$ copus 0\n```\n```console\n$ make x\nno\n$ copus 1 | cat\ncopus ... 1\n```\nEnd.\n"
        self.assert_passes(text, name="doc.md")
        self.assertIn("1 of 1", self.output)
        self.assert_fails(text.replace("... 1", "... 2"), name="doc.md")
        self.assert_passes("No commands.\n", name="doc.md")

    def test_tables_of_documents_are_what_the_command_above_prints(self):
        text = "Text.\n<!-- $ copus a -->\ncopus got a\n\nMore.\n<!-- a comment -->\n"
        self.assert_passes(text, name="doc.md")
        self.assertIn("1 of 1", self.output)
        self.assert_fails(text.replace("got a", "got ..."), name="doc.md")
        self.assert_fails(text.replace("got a\n", "got a\nand more\n"), name="doc.md")
        self.assert_passes(text.replace("got a", "got b"), "--update", name="doc.md")
        self.assertEqual(self.rewritten, text)

    def test_update_rewrites_what_fails_and_keeps_what_holds(self):
        text = "# c\n$ seq 2\n1\n...\n\n# d\n$ echo '# a'; exit 2\nold\n\n$ echo end\n"
        self.assert_passes(text, "--update")
        wanted = "# c\n$ seq 2\n1\n...\n\n# d\n$ echo '# a'; exit 2\n\\# a\n[exit 2]\n\n$ echo end\nend\n"
        self.assertEqual(self.rewritten, wanted)
        self.assert_passes(wanted)


if __name__ == "__main__":
    unittest.main()
