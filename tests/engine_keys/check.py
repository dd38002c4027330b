#!/usr/bin/env python3
"""Compares the keys of `copus plan --emit ENGINE --json` (standard input) with ENGINE.txt beside this file.

Prints the keys that the engine does not know, and exits with 1 if there are any; else prints their number.
"""

import json
import sys
from pathlib import Path


def keys_of_file(config: dict, prefix: str = "") -> set[str]:
    keys = set()
    for key, value in config.items():
        keys.add(prefix + key)
        if isinstance(value, dict):
            keys |= keys_of_file(value, prefix + key + ".")
    return keys


def keys_of_words(words: list[str]) -> set[str]:
    """Flags (--flag, --flag=value), settings (key=value) and subcommands (group:choice); other words are values."""
    keys = set()
    after_flag = False
    for word in words:
        if word.startswith("--"):
            keys.add(word.split("=")[0])
        elif "=" in word:
            keys.add(word.split("=")[0])
        elif not after_flag or ":" in word:
            keys.add(word)
        after_flag = word.startswith("--")
    return keys


def main() -> int:
    engine = sys.argv[1]
    table = (Path(__file__).parent / f"{engine}.txt").read_text().splitlines()
    known = {line for line in table if line and not line.startswith("#")}
    emitted = json.load(sys.stdin)
    args = emitted.get(f"{engine}_args")
    keys = keys_of_words(args) if args is not None else keys_of_file(emitted[f"{engine}_config"])
    unknown = sorted(keys - known)
    print(*(unknown or [len(keys)]))
    return 1 if unknown or not keys else 0


if __name__ == "__main__":
    sys.exit(main())
