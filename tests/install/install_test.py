#!/usr/bin/env python3
"""Tests of the files and messages that `make install`, `make package` and the configuration by cmake produce.

    install_test.py --build FOLDER --source FOLDER [Class[.test]…]

A test that needs a program that is not installed (mandoc, zsh, dpkg-deb) is skipped, and says so.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = SOURCE = Path()
WITH_TORCH = WITH_GLOO = False
PATIENCE_S = 300


def cached(name):
    """Returns a variable of the build's CMake cache; empty if it is not set."""
    found = re.search(rf"^{re.escape(name)}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def run(*command, cwd="/", env=None, user=None, stdin=None):
    """Runs a command and returns the finished process. Its stdout has stderr in it. `user`: (uid, gid)."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        user=user[0] if user else None,
        group=user[1] if user else None,
        extra_groups=[] if user else None,
    )


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class InFolder(unittest.TestCase):
    """Gives every class a temporary folder that all users may read."""

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="copus-install-")
        cls.folder = Path(cls.holder.name)
        cls.folder.chmod(0o755)
        cls.addClassCleanup(cls.holder.cleanup)

    def check(self, process, code=0):
        self.assertEqual(process.returncode, code, process.stdout)
        return process.stdout

    def must(self, *command, **how):
        return self.check(run(*command, **how))


def another_user(test):
    """Returns the user `nobody` if the test runs as root. Other users cannot switch users, so the test is skipped."""
    if os.geteuid() != 0:
        test.skipTest("not root, so the installation is not tried as another user")
    return 65534, 65534


class Installed(InFolder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.folder / "prefix"
        done = run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
        cls.copus = cls.prefix / "bin" / "copus"
        cls.home = cls.folder / "home"
        cls.home.mkdir(mode=0o777)
        cls.home.chmod(0o777)

    def as_user(self, *command, code=0):
        """Runs a command as another user (if this is root), in that user's folder and without variables of the build."""
        user = another_user(self) if os.geteuid() == 0 else None
        environment = {"PATH": f"{self.prefix}/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return self.check(run(*command, cwd=self.home, env=environment, user=user), code)

    def test_everything_is_in_its_standard_place(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}
        for name in (
            "bin/copus",
            "share/bash-completion/completions/copus",
            "share/zsh/site-functions/_copus",
            "share/fish/vendor_completions.d/copus.fish",
            "share/doc/copus/LICENSE",
            "share/doc/copus/README.md",
            "share/doc/copus/docs/install.md",
            "share/doc/copus/examples/train/tiny.toml",
        ):
            self.assertIn(name, files)
        if WITH_TORCH:
            self.assertIn("lib/copus/copus-train", files)
        for path in self.prefix.rglob("*"):
            self.assertEqual(path.stat().st_mode & 0o444, 0o444, f"{path} cannot be read by all")

    def test_there_is_a_page_for_each_command(self):
        shown = re.findall(r"^  (\w+) ", self.must(self.copus, "--help").split("Subcommands:")[1], re.MULTILINE)
        self.assertIn("plan", shown)
        pages = {path.name.removesuffix(".gz") for path in (self.prefix / "share/man/man1").iterdir()}
        self.assertLessEqual({"copus.1"} | {f"copus-{name}.1" for name in shown}, pages)
        self.assertIn("copus-checkpoint-export.1", pages)
        self.assertFalse({"copus-options.1", "copus-man.1"} & pages)

    def page(self, name):
        path = self.prefix / "share/man/man1" / name
        packed = path.with_name(name + ".gz")
        return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text()

    @needs("mandoc")
    def test_mandoc_accepts_every_page(self):
        for path in sorted((self.prefix / "share/man/man1").iterdir()):
            text = self.page(path.name.removesuffix(".gz"))
            said = run("mandoc", "-T", "lint", "-W", "warning", stdin=text).stdout.splitlines()
            # The pages have no date, because a date would differ from build to build.
            self.assertEqual([line for line in said if "missing date" not in line], [], path.name)

    @needs("man")
    def test_man_shows_every_option_that_help_has(self):
        shown = self.as_user("man", "-l", self.prefix / "share/man/man1" / next(
            path.name for path in (self.prefix / "share/man/man1").iterdir() if path.name.startswith("copus-train.1")))
        flags = set(re.findall(r"^  (--[a-z0-9-]+)", self.must(self.copus, "train", "--help"), re.MULTILINE))
        self.assertGreater(len(flags), 40)
        self.assertLessEqual(flags, set(re.findall(r"--[a-z0-9-]+", shown)))

    def test_another_user_plans_from_another_folder(self):
        plan = json.loads(self.as_user("copus", "plan", "--model", "llama-3.2-3b", "--cluster", "1x8xH100-80GB-SXM", "--json"))
        self.assertGreater(plan["feasible"], 0)

    def test_another_user_trains_from_another_folder(self):
        if not WITH_GLOO:
            self.skipTest("this build trains no ranks on CPUs")
        self.as_user("copus", "train", "--model", "tiny", "--ranks", 2, "--steps", 2, "--seq-len", 32, "--global-batch", 4,
                     "--run-dir", "run")
        events = [json.loads(line) for line in (self.home / "run/events.jsonl").read_text().splitlines()]
        self.assertEqual([event["step"] for event in events if event["event"] == "step"], [1, 2])

    def test_the_engine_is_found_through_a_link_in_another_folder(self):
        if not WITH_GLOO:
            self.skipTest("this build trains no ranks on CPUs")
        link = self.folder / "links" / "planner"
        link.parent.mkdir()
        link.symlink_to(self.copus)
        said = self.as_user(link, "train", "--model", "tiny", "--steps", 1, "--seq-len", 32, "--global-batch", 2, "--run-dir", "linked")
        self.assertIn("step 1/1", said)

    def test_the_tokenizer_is_found(self):
        if json.loads(self.must(self.copus, "--version", "--json"))["sentencepiece"] is None:
            self.skipTest("this build has no SentencePiece")
        (self.home / "broken.model").write_text("this is no model\n")
        said = self.as_user("copus", "data", "--tokenizer", "broken.model", "--input", "/etc/hostname", "--output", "x", code=2)
        self.assertIn("broken.model: got something else; want a SentencePiece model", said)

    def test_without_the_engine_it_plans_and_says_what_to_install(self):
        alone = self.folder / "alone"
        alone.mkdir()
        shutil.copy(self.copus, alone / "copus")
        self.assertIn("copus 0.", self.as_user(alone / "copus", "--version"))
        said = self.as_user(alone / "copus", "train", "--model", "tiny", "--steps", 1, code=2)
        self.assertIn("want the package copus-train", said)

    def test_bash_completes_commands_flags_and_names(self):
        script = f"source {self.prefix}/share/bash-completion/completions/copus\n" + (
            'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _copus; echo "${COMPREPLY[@]}"; }\n'
            "ask copus pl; ask copus plan --sw; ask copus plan --model llama-3.2-\n"
        )
        said = self.as_user("bash", "--norc", "-c", script)
        self.assertEqual(said.splitlines(), ["plan", "--sweep-batch", "llama-3.2-1b llama-3.2-3b"])

    @needs("zsh")
    def test_zsh_knows_whose_completion_it_is(self):
        script = f"fpath=({self.prefix}/share/zsh/site-functions $fpath); autoload -U compinit; compinit -D -u; echo $_comps[copus]"
        self.assertEqual(self.as_user("zsh", "-f", "-c", script).strip(), "_copus")
        script = f"autoload -U compinit; compinit -D -u; source {self.prefix}/share/zsh/site-functions/_copus; echo $_comps[copus]"
        self.assertEqual(self.as_user("zsh", "-f", "-c", script).strip(), "_copus")

    @needs("fish")
    def test_fish_completes_commands_flags_and_values(self):
        script = f"source {self.prefix}/share/fish/vendor_completions.d/copus.fish; " + "; ".join(
            f'complete -C "{line}"' for line in ("copus pl", "copus plan --sw", "copus plan --precision b", "copus checkpoint exp"))
        said = self.as_user("fish", "-N", "-c", script)
        self.assertEqual([line.split("\t")[0] for line in said.splitlines()], ["plan", "--sweep-batch", "bf16", "export"])

    def test_no_program_says_where_it_was_built(self):
        for path in [self.copus, *(self.prefix / "lib/copus").glob("*")]:
            data = path.read_bytes()
            self.assertNotIn(str(BUILD).encode() + b"/", data, f"{path} has the build folder in it")
            self.assertNotIn(str(SOURCE).encode() + b"/", data, f"{path} has the sources' folder in it")


class Version(InFolder):
    """Compares `copus --version` with the CMake cache of the build and with git."""

    def test_text_and_json_say_the_same(self):
        text = dict(line.split(maxsplit=1) for line in self.must(BUILD / "bin/copus", "--version").splitlines())
        facts = json.loads(self.must(BUILD / "bin/copus", "--version", "--json"))
        self.assertEqual(list(text), ["copus", "commit", "libtorch", "CUDA", "NCCL", "Gloo", "SentencePiece", "Ceres"])
        self.assertEqual(text.pop("copus"), facts.pop("version"))
        self.assertEqual({name.lower(): None if value == "none" else value for name, value in text.items()}, facts)

    def test_libraries_are_those_that_the_build_has(self):
        facts = json.loads(self.must(BUILD / "bin/copus", "--version", "--json"))
        self.assertEqual(facts["libtorch"] is not None, WITH_TORCH)
        self.assertEqual(facts["gloo"] is not None, WITH_GLOO)
        ceres = cached("Ceres_DIR")
        self.assertEqual(facts["ceres"] is not None, bool(ceres) and not ceres.endswith("NOTFOUND"))
        for name in ("libtorch", "cuda", "nccl", "gloo", "ceres"):
            if facts[name] is not None:
                self.assertRegex(facts[name], r"^\d+\.\d+")

    def test_the_engine_says_the_same(self):
        if not WITH_TORCH:
            self.skipTest("this build has no engine")
        self.assertEqual(self.must(BUILD / "bin/copus-train", "--version"), self.must(BUILD / "bin/copus", "--version"))

    def test_other_words_behind_it_are_refused(self):
        said = self.check(run(BUILD / "bin/copus", "--version", "plan"), 2)
        self.assertEqual(said, "copus: error: --version: got plan behind it; want nothing, or --json\n")

    def commit_of(self, tree):
        out = self.folder / "commit.cc"
        self.must("cmake", f"-DSOURCE={tree}", f"-DGIT={shutil.which('git') or ''}", f"-DOUT={out}",
                  "-P", SOURCE / "cmake/WriteCommit.cmake")
        return re.search(r'return "(.*)"', out.read_text())[1], out.stat().st_mtime_ns

    @needs("git")
    def test_the_commit_follows_the_tree_and_its_file_only_the_commit(self):
        tree = self.folder / "tree"
        tree.mkdir()
        self.assertEqual(self.commit_of(tree)[0], "unknown")
        git = ("git", "-C", tree, "-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "commit.gpgsign=false")
        self.must(*git, "init", "-q")
        self.assertEqual(self.commit_of(tree)[0], "unknown")  # no commit yet
        (tree / "file").write_text("one\n")
        self.must(*git, "add", "file")
        self.must(*git, "commit", "-q", "-m", "first")
        commit, written = self.commit_of(tree)
        self.assertEqual(commit, self.must(*git, "rev-parse", "--short=12", "HEAD").strip())
        (tree / "new").write_text("not tracked\n")
        self.assertEqual(self.commit_of(tree), (commit, written))
        (tree / "file").write_text("two\n")
        self.assertEqual(self.commit_of(tree)[0], commit + "+changes")
        inner = tree / "unpacked"  # an archive of the sources that is unpacked inside another clone
        inner.mkdir()
        self.assertEqual(self.commit_of(inner)[0], "unknown")


class Packaged(InFolder):
    """Unpacks the packages that cpack makes into a folder without the sources."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        done = run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder, cwd=cls.folder)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
        shutil.rmtree(cls.folder / "_CPack_Packages", ignore_errors=True)

    def only(self, pattern):
        found = list(self.folder.glob(pattern))
        self.assertEqual(len(found), 1, f"{pattern}: {[path.name for path in self.folder.iterdir()]}")
        return found[0]

    def works(self, prefix, copus="bin/copus"):
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        user = (65534, 65534) if os.geteuid() == 0 else None
        said = self.check(run(prefix / copus, "plan", "--model", "llama-3.2-3b", "--cluster", "1x8xH100-80GB-SXM", "--json",
                              env=environment, user=user))
        self.assertGreater(json.loads(said)["feasible"], 0)

    def test_the_archive_has_all_and_its_copus_runs(self):
        archive = self.only("copus-*.tar.gz")
        into = self.folder / "unpacked"
        into.mkdir()
        self.must("tar", "-xzf", archive, "-C", into)
        (prefix,) = into.iterdir()
        self.works(prefix)
        self.assertEqual((prefix / "lib/copus/copus-train").exists(), WITH_TORCH)
        if WITH_GLOO:
            said = self.must(prefix / "bin/copus", "train", "--model", "tiny", "--steps", 1, "--seq-len", 32, "--global-batch", 2,
                             "--run-dir", self.folder / "run")
            self.assertIn("step 1/1", said)

    def debs(self):
        if "DEB" not in (BUILD / "CPackConfig.cmake").read_text().split("CPACK_GENERATOR")[1].splitlines()[0]:
            self.skipTest("this build makes no .deb: dpkg-shlibdeps is missing, or libtorch does not come from a package")

    @needs("dpkg-deb")
    def test_the_planner_is_a_package_that_needs_no_libtorch(self):
        self.debs()
        deb = self.only("copus_*.deb")
        depends = self.must("dpkg-deb", "--field", deb, "Depends")
        self.assertRegex(depends, r"\blibc6 \(>= ")
        self.assertRegex(depends, r"\blibfmt\d+")
        self.assertNotIn("torch", depends)
        self.assertRegex(self.must("dpkg-deb", "--info", deb), r"(?m)^ Package: copus$")
        listed = self.must("dpkg-deb", "--contents", deb)
        for name in ("./usr/bin/copus", "./usr/share/man/man1/copus-plan.1.gz", "./usr/share/bash-completion/completions/copus",
                     "./usr/share/zsh/vendor-completions/_copus", "./usr/share/doc/copus/copyright"):
            self.assertRegex(listed, rf"(?m) {re.escape(name)}$")
        self.assertNotIn("copus-train", listed.replace("copus-train.1", ""))
        self.assertNotIn("site-functions", listed)
        into = self.folder / "deb"
        self.must("dpkg-deb", "-x", deb, into)
        self.works(into / "usr")

    @needs("dpkg-deb")
    def test_the_engine_is_a_package_of_its_own(self):
        self.debs()
        if not WITH_TORCH:
            self.skipTest("this build has no engine")
        deb = self.only("copus-train_*.deb")
        depends = self.must("dpkg-deb", "--field", deb, "Depends")
        self.assertRegex(depends, r"\blibtorch\d")
        self.assertRegex(depends, r"\bcopus \(= ")
        into = self.folder / "both"
        self.must("dpkg-deb", "-x", self.only("copus_*.deb"), into)
        self.must("dpkg-deb", "-x", deb, into)
        said = self.must(into / "usr/bin/copus", "train", "--model", "tiny", "--steps", 1, "--seq-len", 32, "--global-batch", 2,
                         "--run-dir", self.folder / "deb-run")
        self.assertIn("step 1/1", said)


class Configured(InFolder):
    """Tests what cmake prints if a library is missing, or if COPUS_TORCH names a libtorch."""

    # Uses the compiler of the build.
    def configure(self, *options, code=1):
        build = Path(tempfile.mkdtemp(dir=self.folder))
        return self.check(run("cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", *options, env=os.environ | {"CXX": cached("CMAKE_CXX_COMPILER")}), code)

    def missing(self, said):
        """Returns the lines of the list of missing libraries: (library, package)."""
        return re.findall(r"^ +([^:\n]+): package ([\w+-]+)", said.split("These libraries are missing:")[1], re.MULTILINE)

    def test_all_that_is_missing_is_listed_at_once_with_its_package(self):
        empty = self.folder / "empty"
        empty.mkdir()
        only = [f"-DCMAKE_FIND_ROOT_PATH_MODE_{kind}=ONLY" for kind in ("PACKAGE", "INCLUDE", "LIBRARY", "PROGRAM")]
        said = self.configure("-DCOPUS_TORCH=OFF", f"-DCMAKE_FIND_ROOT_PATH={empty}", "-DCMAKE_DISABLE_FIND_PACKAGE_Python3=ON",
                              f"-DCMAKE_MAKE_PROGRAM={cached('CMAKE_MAKE_PROGRAM')}", *only)
        self.assertEqual([package for _, package in self.missing(said)], [
            "libcli11-dev", "nlohmann-json3-dev", "libfmt-dev", "libeigen3-dev", "libtomlplusplus-dev", "libxxhash-dev",
            "libgtest-dev", "python3"])
        self.assertIn("scripts/install_deps.sh", said)
        for line in ("Google Benchmark (package libbenchmark-dev): the benches", "Ceres 2.1 or later (package libceres-dev): ",
                     "SentencePiece (package libsentencepiece-dev): "):
            self.assertIn(line, said)

    def test_one_that_is_missing_is_one_line(self):
        said = self.configure("-DCOPUS_TORCH=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Ceres=ON")
        self.assertEqual(self.missing(said), [("Eigen 3.4 or later", "libeigen3-dev")])

    def test_every_package_that_a_line_names_is_one_that_the_script_installs(self):
        named = set(re.findall(r"package ([\w+-]+)[,)]", (SOURCE / "cmake/Dependencies.cmake").read_text()))
        self.assertGreater(len(named), 10)
        script = (SOURCE / "scripts/install_deps.sh").read_text()
        self.assertLessEqual(named, set(re.findall(r'^  "([\w+-]+) \S+"$', script, re.MULTILINE)))

    def test_a_libtorch_that_is_named_and_is_none_is_said(self):
        said = self.configure(f"-DCOPUS_TORCH={self.folder}")
        self.assertIn("COPUS_TORCH: got", said)
        self.assertIn("has no\n", said)
        said = self.configure("-DCOPUS_TORCH=/nonexistent/python3")
        self.assertIn("COPUS_TORCH: got /nonexistent/python3; want a folder with libtorch", said)

    def test_a_libtorch_that_is_too_old_is_said(self):
        old = self.folder / "old/share/cmake/Torch"
        old.mkdir(parents=True)
        (old / "TorchConfig.cmake").write_text("")
        (old / "TorchConfigVersion.cmake").write_text("set(PACKAGE_VERSION 1.12.1)\n")
        said = self.configure(f"-DCOPUS_TORCH={self.folder}/old")
        self.assertIn(f"libtorch: got 1.12.1 in {old}; want 1.13 or later, or -DCOPUS_TORCH=OFF\n", said)

    def test_a_python_with_torch_says_where_libtorch_is(self):
        config = cached("Torch_DIR")
        if not WITH_TORCH or not config:
            self.skipTest("this build has no libtorch")
        # A Python with a torch module that, like a wheel's, names the libtorch of this build.
        python = self.folder / "python"
        python.write_text(f"#!/bin/sh\nPYTHONPATH={self.folder} exec {sys.executable} \"$@\"\n")
        python.chmod(0o755)
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "utils.py").write_text(f"cmake_prefix_path = {str(Path(config).parent)!r}\n")
        said = self.configure(f"-DCOPUS_TORCH={python}", "-DBUILD_TESTING=OFF", code=0)
        self.assertIn(f"libtorch: {config}", said)

    def test_warnings_are_errors_in_our_presets_and_not_for_users(self):
        presets = {each["name"]: each for each in json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]}

        def strict(name):
            own = presets[name].get("cacheVariables", {})
            return own["COPUS_WERROR"] == "ON" if "COPUS_WERROR" in own else "inherits" in presets[name] and strict(presets[name]["inherits"])

        self.assertEqual({name for name in presets if strict(name) and not presets[name].get("hidden")}, {"ci", "dev", "tsan", "tidy", "fuzz"})
        make = ("make", "-C", SOURCE, "-n", "build")
        quiet = {name: value for name, value in os.environ.items() if name not in ("CI", "MAKEFLAGS", "MAKELEVEL")}
        self.assertIn("cmake --preset release", self.must(*make, env=quiet))
        for ci, preset in ("true", "ci"), ("1", "ci"), ("false", "release"), ("0", "release"), ("", "release"):
            self.assertIn(f"cmake --preset {preset} ", self.must(*make, env=quiet | {"CI": ci}), ci)

    def test_a_package_is_made_where_dpkg_dev_cannot_be_installed(self):
        programs = self.folder / "programs"
        programs.mkdir()
        for name in "dpkg", "cpack":
            (programs / name).write_text(f"#!/bin/sh\necho {name} was called\n")
            (programs / name).chmod(0o755)
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        said = self.must("make", "-C", SOURCE, "package", "DEPS=false", "MAKE=true", env=os.environ | path)
        self.assertIn("package: going on without dpkg-dev: no .deb is made\n", said)
        self.assertIn("cpack was called\n", said)


def main():
    global BUILD, SOURCE, WITH_TORCH, WITH_GLOO
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--source", required=True, type=Path)
    options, names = parser.parse_known_args()
    BUILD, SOURCE = options.build.resolve(), options.source.resolve()
    WITH_TORCH = (BUILD / "bin/copus-train").exists()
    gloo = cached("COPUS_GLOO_HEADERS")
    WITH_GLOO = WITH_TORCH and bool(gloo) and not gloo.endswith("NOTFOUND")
    os.umask(0o022)  # as in make install
    unittest.main(argv=[sys.argv[0], *names], verbosity=1)


if __name__ == "__main__":
    main()
