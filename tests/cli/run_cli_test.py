#!/usr/bin/env python3
"""Runs text tests: files of commands with the output that each must print.

A .test file:
    # A comment.
    $ copus --version
    copus 0.1.0
    $ copus plan --model nothing
    error: ...
    [exit 2]

Each line that begins with `$ ` is a command. A command that ends in a backslash continues in the next line. sh runs it in
a temporary directory that all commands of the file share, with COPUS_SOURCE_DIR set. The lines below it are the expected
output: stdout and stderr together. `...` alone on a line matches any number of lines, `...` inside a line matches any
text. `[exit N]` is the last line if the exit code is not 0. A backslash at the start of any other line makes the rest
literal. Blank lines at the end of an output and trailing spaces do not count.

In a document (.md) the runner reads only the ```console blocks, and runs only the commands that start with `copus`. It
links the repository's examples/ into the directory. A line `<!-- $ copus … -->` is a command too: it must print exactly
the table below it, up to the next blank line.

--update rewrites the expectations that fail, in place. It leaves expectations that hold, with their `...`, unchanged.
"""

import argparse
import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ANY = "..."


@dataclass
class Command:
    text: str
    line: int  # the number of its `$ ` line, from 1
    expected: list[str] = field(default_factory=list)
    begin: int = 0  # the expectation's lines in the file: [begin, end)
    end: int = 0
    exact: bool = False  # `...` matches only itself


def is_comment(line: str) -> bool:
    return line == "#" or line.startswith("# ")


def read_commands(lines: list[str], is_document: bool) -> list[Command]:
    """Returns the commands with their expectations, without the blank lines and comments after an expectation."""
    commands: list[Command] = []
    current = None
    in_console = not is_document
    i = 0
    while i < len(lines):
        line = lines[i]
        if is_document and line.startswith("```"):
            in_console = not in_console and line.strip() == "```console"
            current = None
        elif is_document and not in_console and (hidden := re.fullmatch(r"<!-- \$ (.*) -->", line)):
            begin = i + 1
            while i + 1 < len(lines) and lines[i + 1].strip():
                i += 1
            commands.append(Command(hidden[1], begin, begin=begin, end=i + 1, exact=True))
        elif in_console and line.startswith("$ "):
            text = line[2:]
            current = Command(text, i + 1)
            while text.endswith("\\") and i + 1 < len(lines):
                i += 1
                text = text[:-1] + lines[i].strip()
            current.text = text
            current.begin = current.end = i + 1
            commands.append(current)
        elif in_console and not is_document and is_comment(line):
            current = None
        elif in_console and current is not None and line.strip():
            current.end = i + 1
        elif in_console and current is None and line.strip() and not is_document:
            raise ValueError(f"line {i + 1}: output before any command: {line}")
        i += 1
    for command in commands:
        command.expected = [line.rstrip() for line in lines[command.begin : command.end]]
    return commands


def line_matches(pattern: str, line: str) -> bool:
    if pattern.startswith("\\"):
        return pattern[1:] == line
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), line) is not None


def output_matches(expected: list[str], actual: list[str]) -> bool:
    """Matches lines like a glob: after a mismatch, the last `...` takes one more line."""
    e = a = 0
    star, swallowed = -1, 0
    while a < len(actual):
        if e < len(expected) and expected[e] == ANY:
            star, swallowed = e, a
            e += 1
        elif e < len(expected) and line_matches(expected[e], actual[a]):
            e += 1
            a += 1
        elif star >= 0:
            swallowed += 1
            e, a = star + 1, swallowed
        else:
            return False
    return all(line == ANY for line in expected[e:])


def run(text: str, cwd: str, env: dict[str, str], timeout: float) -> list[str]:
    """Runs a command and returns its output in the form of an expectation."""
    process = subprocess.Popen(
        ["sh", "-c", text],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that a timeout ends the whole pipeline and not only the shell
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        ending = [f"[exit {process.returncode}]"] if process.returncode != 0 else []
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        ending = [f"[timed out after {timeout:g} s]"]
    lines = [line.rstrip() for line in output.decode("utf-8", "replace").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines + ending


def escaped(line: str) -> str:
    special = line.startswith(("$ ", "\\", "```")) or is_comment(line) or line == ANY
    return "\\" + line if special else line


def show_difference(expected: list[str], actual: list[str]) -> None:
    """Prints a diff in which lines that match with `...` count as the same."""
    patterns = [line for line in expected if line != ANY]
    canonical = [next((p for p in patterns if line_matches(p, line)), line) for line in actual]
    for line in difflib.ndiff(expected, canonical):
        if line.startswith("?"):
            continue
        print("    " + ("  " + ANY if line[2:] == ANY else line))


def environment(bin_dir: Path, source: Path, home: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COPUS_", "MAKE", "MFLAGS"))}
    env.update(
        PATH=f"{bin_dir}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        COPUS_SOURCE_DIR=str(source),
        HOME=home,
        LC_ALL="C.UTF-8",
        TERM="dumb",
        COLUMNS="120",
    )
    return env


def test_file(path: Path, args: argparse.Namespace) -> bool:
    is_document = path.suffix == ".md"
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        commands = read_commands(lines, is_document)
    except ValueError as error:
        print(f"{path}: {error}")
        return False
    if is_document:
        commands = [c for c in commands if c.text.split()[:1] == ["copus"]]
    elif not commands:
        print(f"{path}: no commands")
        return False

    failed: list[tuple[Command, list[str]]] = []
    with tempfile.TemporaryDirectory(prefix="copus_cli_") as work:
        if is_document and (args.source / "examples").is_dir():
            os.symlink(args.source / "examples", Path(work) / "examples")
        env = environment(args.bin, args.source, work)
        for command in commands:
            actual = run(command.text, work, env, args.timeout)
            if command.expected == actual or (not command.exact and output_matches(command.expected, actual)):
                continue
            failed.append((command, actual))
            if not args.update:
                print(f"{path}:{command.line}: $ {command.text}")
                print("    (- expected, + printed)")
                show_difference(command.expected, actual)

    if args.update and failed:
        for command, actual in reversed(failed):
            lines[command.begin : command.end] = map(escaped, actual)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{path}: {len(failed)} of {len(commands)} expectations rewritten")
        return True
    print(f"{path}: {len(commands) - len(failed)} of {len(commands)} commands as expected")
    return not failed


def main() -> int:
    source = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--bin", type=Path, default=source / "build" / "bin", help="folder to put first on PATH")
    parser.add_argument("--source", type=Path, default=source, help="value of COPUS_SOURCE_DIR")
    patience = float(os.environ.get("TEST_PATIENCE", "1"))  # above 1 for slow builds, see tests/train/fixture.py
    parser.add_argument("--timeout", type=float, default=60 * patience, help="seconds per command")
    parser.add_argument("--update", action="store_true", help="rewrite expectations that fail")
    args = parser.parse_args()
    args.bin, args.source = args.bin.resolve(), args.source.resolve()
    results = [test_file(path, args) for path in args.files]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
