#!/usr/bin/env python3
"""Checks that a target includes headers of its own folder and of the folders that it depends on, and no others.

The build runs this check on its targets, which cmake/CheckLayers.cmake lists, and fails if the check fails. A test is a target
like any other, in the folder of the library that it tests. A target's folder includes the folders below it, down to the next
CMakeLists.txt. A header counts as part of each target of its folder that includes it. A file that no target includes (the other
choice of a backend, an unused header) counts as part of all targets of its folder. Such files are checked only in a build that
has every folder, which a build without Torch has not.
"""

import argparse
import os
import re
import sys
from pathlib import Path

INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
ROOTS = ("copus", "apps", "bench", "tests")


class Target:
    def __init__(self, kind, name, folder, sources, deps):
        self.is_program, self.name, self.folder = kind == "EXECUTABLE", name, folder
        self.sources, self.deps = sources, deps
        self.all_deps = set()  # deps, and theirs in turn


def read_targets(text):
    """Returns the folders of the build, and its targets by name."""
    folders, targets = set(), {}
    for line in text.splitlines():
        what, *fields = line.split("\t")
        if what == "folder":
            folders.add(fields[0])
        else:
            name, kind, folder, sources, deps = fields
            targets[name] = Target(kind, name, folder, sources.split(";"), [dep for dep in deps.split(";") if dep])
    for target in targets.values():
        target.deps = [dep for dep in target.deps if dep in targets]
    return folders, targets


def follow_deps(targets):
    """Fills in all_deps. Returns the cycles, each as a list of names."""
    circles, done = [], set()

    def visit(name, path):
        if name in path:
            circles.append([*path[path.index(name) :], name])
        elif name not in done:
            for dep in targets[name].deps:
                visit(dep, [*path, name])
                targets[name].all_deps |= {dep} | targets[dep].all_deps
            done.add(name)

    for name in targets:
        visit(name, [])
    return circles


class Layers:
    def __init__(self, source, folders, targets):
        self.source, self.folders, self.targets = source, folders, targets
        self.faults = {}  # by file and line, so that each is reported once
        self.read = {}  # the includes of each file
        self.owners = {}  # by folder
        self.watched = []  # folders whose files were listed

    def owner(self, path):
        """Returns the folder whose CMakeLists.txt builds the file, or would build it."""
        folder = str(Path(path).parent)
        if folder not in self.owners:
            built = folder == "." or (self.source / folder / "CMakeLists.txt").is_file()
            self.owners[folder] = folder if built else self.owner(folder)
        return self.owners[folder]

    def of_folder(self, folder):
        return [target for target in self.targets.values() if target.folder == folder]

    def includes(self, path):
        """Returns the line and the path from the root of each included file of this repository."""
        if path not in self.read:
            self.read[path] = []
            text = (self.source / path).read_bytes()
            for match in INCLUDE.finditer(text):
                name = match.group(1).decode(errors="replace")
                if not (self.source / name).is_file():
                    beside = os.path.join(os.path.dirname(path), name)
                    name = beside if (self.source / beside).is_file() else name
                name = os.path.normpath(name)
                if name.split("/")[0] in ROOTS:
                    self.read[path].append((text.count(b"\n", 0, match.start()) + 1, name))
        return self.read[path]

    def missing_arrow(self, users, folder):
        """Returns "" if one of the targets depends on the folder; else the dependency that is missing."""
        given = self.of_folder(folder)
        if any(target.name in user.all_deps for target in given for user in users):
            return ""
        if not given:
            return f"no target builds {folder}"
        user = users[0]
        here = {target.name for target in self.of_folder(user.folder)}
        for target in given:
            if here & target.all_deps:
                return f"{user.name} -> {target.name} would point up, because {target.name} depends on {user.folder}"
        libraries = [target.name for target in given if not target.is_program]
        if not libraries:
            return f"{folder} has only programs, and no target can depend on a program"
        return f"missing dependency: {user.name} -> {libraries[0]}"

    def judge(self, path, users, seen):
        """Checks the includes of the file, and of the headers of its folder that it includes, as parts of these targets."""
        seen.add(path)
        for line, included in self.includes(path):
            folder = self.owner(included)
            if folder == self.owner(path):
                if included not in seen and (self.source / included).is_file():
                    self.judge(included, users, seen)
            else:
                self.accuse(path, line, f"includes {included}", self.missing_arrow(users, folder))

    def accuse(self, path, line, what, why):
        if why:
            self.faults.setdefault((path, line), f"{path}:{line}: {what}; {why}")

    def judge_all(self):
        judged = set()
        for target in self.targets.values():
            seen = set()
            for source in target.sources:
                path = os.path.relpath(self.source / target.folder / source, self.source)
                if path.split("/")[0] not in ROOTS or not (self.source / path).is_file():
                    continue  # generated, or missing, which the compiler reports
                if self.owner(path) == target.folder:
                    self.judge(path, [target], seen)
                else:
                    self.accuse(path, 1, f"is a source of {target.name}", self.missing_arrow([target], self.owner(path)))
            judged |= seen
        paths = list(self.files())
        whole = all(str(path.relative_to(self.source)) in self.folders for path in self.watched if (path / "CMakeLists.txt").is_file())
        for path in paths:
            owner = self.owner(path)
            users = self.of_folder(owner)
            if users and whole and path not in judged:
                self.judge(path, users, judged)
            elif not users and (owner == "." or (owner.startswith("copus/") and owner in self.folders)):
                self.accuse(path, 1, "is in a folder that no target builds", "want it in the folder of a target")

    def files(self):
        for root in ROOTS:
            self.watched.append(self.source / root)
            for path in sorted((self.source / root).rglob("*")):
                if path.is_dir():
                    self.watched.append(path)
                elif path.suffix in (".h", ".cc"):
                    yield str(path.relative_to(self.source))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="the root of the repository")
    parser.add_argument("--targets", type=Path, required=True, help="the targets of a build (layers.txt in its folder)")
    parser.add_argument("--done", type=Path, help="file to write if there is no fault; a .d file beside it lists what was read")
    args = parser.parse_args()
    source = args.source.resolve()
    folders, targets = read_targets(args.targets.read_text(encoding="utf-8"))
    faults = [f"{' -> '.join(circle)}: these targets depend on each other; want dependencies in one direction" for circle in follow_deps(targets)]
    layers = Layers(source, folders, targets)
    layers.judge_all()
    faults += [fault for _, fault in sorted(layers.faults.items())]
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    if args.done:
        lines = [str(path).replace(" ", "\\ ") for path in [*(source / path for path in layers.read), *layers.watched]]
        args.done.with_name(args.done.name + ".d").write_text(" \\\n  ".join([f"{args.done}:", *lines]) + "\n")
        args.done.write_text("")
    return 0


if __name__ == "__main__":
    sys.exit(main())
