#!/usr/bin/env python3
"""Checks the limits that keep documents readable. README has fewer than 120 lines, and its sentences at most 30 words.
Guides have at most 150 lines. The first paragraph of a document asks the question that the document answers. Also checks
that docs/architecture.md lists the same dependencies of the engine's folders as the build.

    tests/document_limits_test.py [--source FOLDER]
"""

import argparse
import pathlib
import re
import sys

GUIDES = ("adapting", "checkpoints", "comparing", "data", "errors", "failures", "frameworks", "install", "schedules", "training")
README_LINES, GUIDE_LINES, SENTENCE_WORDS = 120, 150, 30


def prose_blocks(text):
    """Yields paragraphs, list items and cells of tables, without code, comments and headings."""
    text = re.sub(r"^```.*?^```[^\n]*$", "\n", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    block = []
    for line in [*text.splitlines(), ""]:
        line = line.strip()
        if line.startswith("|"):
            yield from (cell.strip() for cell in line.strip("|").split("|"))
        ends = not line or line.startswith(("|", "#")) or re.match(r"([-*]|\d+\.)\s", line)
        if ends and block:
            yield " ".join(block)
            block = []
        if line and not line.startswith(("|", "#")):
            block.append(re.sub(r"^([-*]|\d+\.)\s+", "", line))


def sentences(text):
    for block in prose_blocks(text):
        block = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)  # a link counts as its text
        block = re.sub(r"`[^`]*`", "code", block)
        yield from re.split(r"(?<=[.!?])[)\"*]*\s+", block)


def words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def limits(source):
    readme = (source / "README.md").read_text()
    if readme.count("\n") >= README_LINES:
        yield f"README.md: {readme.count(chr(10))} lines; want less than {README_LINES}"
    for sentence in sentences(readme):
        if words(sentence) > SENTENCE_WORDS:
            yield f"README.md: {words(sentence)} words; want at most {SENTENCE_WORDS}: {sentence}"
    for name in GUIDES:
        count = (source / f"docs/{name}.md").read_text().count("\n")
        if count > GUIDE_LINES:
            yield f"docs/{name}.md: {count} lines; want at most {GUIDE_LINES}"
    for document in [source / "CONTRIBUTING.md", *sorted(source.glob("docs/*.md"))]:
        if "?" not in next(prose_blocks(document.read_text())):
            yield f"{document.relative_to(source)}: the first paragraph asks no question"


def engine_folders(source):
    """Compares the rows of docs/architecture.md, a folder and the targets it includes, with the DEPS in the build."""
    text = (source / "docs/architecture.md").read_text()
    said = {}
    for names, includes in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\w, ]+) \|$", text, re.M):
        for name in re.findall(r"`(\w+)`", names):
            said.setdefault(name, set(includes.split(", ")))
    for build in sorted(source.glob("copus/train/*/CMakeLists.txt")):
        name = build.parent.name
        library = re.search(rf"copus_(?:torch_)?library\({name}\s.*?DEPS ([\w \n]+)\)", build.read_text(), re.S)
        if not library:
            yield f"{build.relative_to(source)}: has no library {name}"
            continue
        has = {target.removeprefix("copus_") for target in library[1].split() if target.startswith("copus_")} - {"torch"}
        if said.get(name) != has:
            yield f"docs/architecture.md: {name} includes {', '.join(sorted(said.get(name, [])))}; the build has {', '.join(sorted(has))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    source = parser.parse_args().source.resolve()
    found = [*limits(source), *engine_folders(source)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
