#!/usr/bin/env python3
"""Checks that the messages which docs/troubleshooting.md quotes are those of the program.

A message is a line of a block ```text. `…` stands for a value that the program fills in. It must be part of one
string of a crate's source, tests left out.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/troubleshooting.md"
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)


def strings(text):
    """Yields the string literals of Rust source as the program prints them, with `…` for each value."""
    for literal in STRING.findall(re.sub(r"^\s*//.*$", "", text, flags=re.M)):
        literal = re.sub(r"\\\n\s*", "", literal).replace("\\n", " ").replace('\\"', '"')
        yield re.sub(r"\{[^{}]*\}", "…", literal)


def quoted(page):
    """Yields (line number, message) of each message in the page."""
    inside = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```text"
        elif inside and line.strip():
            yield number, line.strip()


def main():
    known = []
    for file in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        if not re.search(r"(^|[/_])tests?([/._]|$)", str(file.relative_to(ROOT / "crates"))):
            source = file.read_text(encoding="utf-8").split("#[cfg(test)]\nmod tests {")[0]
            known += strings(source)
    text = "\n".join(known)
    messages = list(quoted(PAGE.read_text(encoding="utf-8")))
    faults = [(number, message) for number, message in messages if message.strip("… ") not in text]
    for number, message in faults:
        print(f"docs/troubleshooting.md:{number}: the program does not say: {message}")
    print(f"messages: {len(messages)} quoted, {len(faults)} faults")
    return 1 if faults or not messages else 0


if __name__ == "__main__":
    sys.exit(main())
