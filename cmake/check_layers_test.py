#!/usr/bin/env python3
"""Tests that the check of includes passes a tree whose dependencies point one way, and fails any other tree."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).with_name("check_layers.py")

# low <- middle <- high; a library beside low on which only a test depends; and a program.
TARGETS = """\
folder	.
folder	copus/low
target	copus_low	STATIC_LIBRARY	copus/low	low.cc;/generated/data.cc	fmt::fmt
target	low_test	EXECUTABLE	copus/low	low_test.cc	copus_low
folder	copus/side
target	copus_side	STATIC_LIBRARY	copus/side	side.cc	
folder	copus/group
folder	copus/group/middle
target	copus_middle	STATIC_LIBRARY	copus/group/middle	middle.cc;inner/part.cc	copus_low
folder	copus/high
target	copus_high	STATIC_LIBRARY	copus/high	high.cc	copus_middle
target	high_test	EXECUTABLE	copus/high	high_test.cc	copus_high;copus_side
folder	apps/tool
target	tool	EXECUTABLE	apps/tool	tool.cc	copus_high
"""


class LayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "a tree"
        self.targets = TARGETS
        for target in TARGETS.splitlines():
            what, *fields = target.split("\t")
            place = self.root / (fields[0] if what == "folder" else fields[2])
            place.mkdir(parents=True, exist_ok=True)
            (place / "CMakeLists.txt").touch()
            for source in fields[3].split(";") if what == "target" else []:
                if not source.startswith("/"):
                    self.write(f"{fields[2]}/{source}")
        for header in "low/low.h", "low/testing.h", "side/side.h", "group/middle/middle.h", "high/high.h":
            self.write(f"copus/{header}")

    def write(self, path, *includes):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text("// why\n" + "".join(f'#include "{name}"\n' for name in includes))

    def faults(self):
        (self.root / "layers.txt").write_text(self.targets)
        self.done = self.root / "layers.ok"
        self.done.unlink(missing_ok=True)
        command = [sys.executable, CHECK, "--source", self.root, "--targets", self.root / "layers.txt", "--done", self.done]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.stdout, "")
        self.assertEqual(run.returncode, 1 if run.stderr else 0, run.stderr)
        self.assertEqual(self.done.exists(), run.returncode == 0)
        return run.stderr.splitlines()

    def test_what_lies_below_may_be_included(self):
        self.write("copus/high/high.cc", "copus/high/high.h", "copus/group/middle/middle.h", "copus/low/low.h")
        self.write("copus/high/high_test.cc", "copus/high/high.h", "copus/low/testing.h", "copus/side/side.h")
        self.write("copus/group/middle/inner/part.cc", "copus/group/middle/middle.h", "copus/low/low.h")
        self.write("apps/tool/tool.cc", "copus/low/low.h", "vector", "copus.h")
        self.assertEqual(self.faults(), [])

    def test_an_include_that_points_up_fails(self):
        self.write("copus/low/low.cc", "copus/low/low.h", "copus/high/high.h")
        self.assertEqual(
            self.faults(),
            ["copus/low/low.cc:3: includes copus/high/high.h; copus_low -> copus_high would point up, because copus_high depends on copus/low"],
        )

    def test_a_dependency_that_is_not_declared_fails(self):
        self.write("copus/high/high.cc", "copus/side/side.h")
        self.assertEqual(self.faults(), ["copus/high/high.cc:2: includes copus/side/side.h; missing dependency: copus_high -> copus_side"])

    def test_a_test_that_reaches_up_fails(self):
        self.write("copus/low/low_test.cc", "copus/low/low.h", "copus/group/middle/middle.h")
        (fault,) = self.faults()
        self.assertTrue(fault.startswith("copus/low/low_test.cc:3: includes copus/group/middle/middle.h; low_test -> copus_middle would point up"))

    def test_a_header_is_judged_with_those_that_include_it(self):
        self.write("copus/high/testing.h", "copus/side/side.h")
        self.write("copus/high/high_test.cc", "copus/high/testing.h")
        self.assertEqual(self.faults(), [])
        self.write("copus/high/high.cc", "copus/high/testing.h")
        self.assertEqual(self.faults(), ["copus/high/testing.h:2: includes copus/side/side.h; missing dependency: copus_high -> copus_side"])

    def test_another_way_to_write_a_path_is_no_way_around(self):
        self.write("copus/high/high.cc", "../side/side.h")
        (self.root / "copus/high/high_test.cc").write_text(' #  include\t"copus/group/../../apps/tool/tool.cc"\n')
        faults = self.faults()
        self.assertEqual(len(faults), 2, faults)
        self.assertIn("copus/high/high.cc:2: includes copus/side/side.h", faults[0])
        self.assertIn("copus/high/high_test.cc:1: includes apps/tool/tool.cc", faults[1])

    def test_nothing_can_depend_on_a_program(self):
        self.write("apps/tool/tool.h")
        self.write("copus/side/side.cc", "apps/tool/tool.h")
        self.assertEqual(
            self.faults(), ["copus/side/side.cc:2: includes apps/tool/tool.h; apps/tool has only programs, and no target can depend on a program"]
        )

    def test_a_header_of_no_target_fails(self):
        for path in "copus/new/new.h", "copus/group/loose.h":
            self.write(path)
        self.assertEqual(
            self.faults(),
            [f"{path}:1: is in a folder that no target builds; want it in the folder of a target" for path in ("copus/group/loose.h", "copus/new/new.h")],
        )

    def test_a_file_that_nobody_includes_is_judged_too(self):
        self.write("copus/low/no_backend.cc", "copus/high/high.h")
        self.write("copus/low/lonely.h", "copus/side/side.h")
        self.assertEqual([fault.split(":")[0] for fault in self.faults()], ["copus/low/lonely.h", "copus/low/no_backend.cc"])

    def test_a_build_that_leaves_folders_out_judges_what_it_has(self):
        self.targets = "".join(line + "\n" for line in TARGETS.splitlines() if "copus/high" not in line and "tool" not in line)
        self.write("copus/low/no_backend.cc", "copus/high/high.h")
        self.write("copus/high/high.h", "apps/tool/tool.h")
        self.assertEqual(self.faults(), [])
        self.write("copus/low/low.cc", "copus/high/high.h")
        self.assertEqual(self.faults(), ["copus/low/low.cc:2: includes copus/high/high.h; no target builds copus/high"])

    def test_a_source_of_another_folder_needs_the_dependency(self):
        self.targets = TARGETS.replace("copus/low	low.cc", "copus/low	low.cc;../side/side.cc")
        self.assertEqual(self.faults(), ["copus/side/side.cc:1: is a source of copus_low; missing dependency: copus_low -> copus_side"])

    def test_targets_that_depend_on_each_other_fail(self):
        self.targets = TARGETS.replace("low.cc;/generated/data.cc	fmt::fmt", "low.cc	copus_high")
        (fault,) = self.faults()
        self.assertEqual(
            fault, "copus_low -> copus_high -> copus_middle -> copus_low: these targets depend on each other; want dependencies in one direction"
        )

    def test_the_build_is_told_what_was_read(self):
        self.write("copus/high/high.cc", "copus/high/high.h")
        self.assertEqual(self.faults(), [])
        read = self.done.with_name("layers.ok.d").read_text().replace("\\ ", "?").replace("\\\n", "").replace("?", " ")
        for path in "copus/high/high.cc", "copus/high/high.h", "copus/high", "copus":
            self.assertIn(str(self.root / path), read)


if __name__ == "__main__":
    unittest.main()
