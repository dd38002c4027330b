#!/usr/bin/env python3
"""Checks that every path in backticks in a document exists, and that every link between documents has a target.

    tests/document_paths_test.py [--source FOLDER]
"""
import argparse
import pathlib
import re
import sys

FOLDERS = "apps|bench|catalog|cmake|copus|docs|examples|scripts|tests"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./{{}},*-]*)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def alternatives(path):
    """Expands braces: copus/base/json.{h,cc} is two paths."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [p for choice in braces[1].split(",")
            for p in alternatives(path[:braces.start()] + choice + path[braces.end():])]


def anchors(text):
    """Returns the anchors of a document's headings, as GitHub names them."""
    headings = re.findall(r"^#+ +(.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def problems(source):
    documents = sorted(source.glob("*.md")) + sorted(source.glob("docs/*.md"))
    if not documents:
        yield f"{source}: no documents"
    for document in documents:
        text = document.read_text()
        prose = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
        for number, line in enumerate(prose.splitlines(), 1):
            where = f"{document.relative_to(source)}:{number}"
            for named in PATH.findall(line):
                for path in alternatives(named.rstrip(".,")):
                    if not any(source.glob(path.rstrip("/"))):
                        yield f"{where}: {path} is not there"
            for link in LINK.findall(line):
                if re.match(r"[a-z]+:", link):
                    continue
                file, _, anchor = link.partition("#")
                target = document.parent / file if file else document
                if not target.exists():
                    yield f"{where}: {file} is not there"
                elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                    yield f"{where}: {link}: no such heading"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    found = list(problems(parser.parse_args().source.resolve()))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
