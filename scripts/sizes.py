#!/usr/bin/env python3
"""Finds Rust files above 500 lines and functions above 70 lines. Exits with 1 if there is one."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
FUNCTION = re.compile(
    r"( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"\w+\" )*fn (\w+)"
)


def functions(lines):
    """Yields (line number, name, length) of each function. rustfmt closes it at its own indentation."""
    for start, line in enumerate(lines):
        found = FUNCTION.match(line)
        if not found:
            continue
        indent = found.group(1)
        for end in range(start, len(lines)):
            # A declaration without a body ends with a semicolon.
            if lines[end] == indent + "}" or lines[end].endswith(";") and "{" not in "".join(
                lines[start : end + 1]
            ):
                yield start + 1, found.group(2), end - start + 1
                break
            if end == start and line.endswith("}"):
                break


def main():
    faults = 0
    for path in sorted(ROOT.glob("crates/**/*.rs")):
        lines = path.read_text().splitlines()
        name = path.relative_to(ROOT)
        if len(lines) > MAX_FILE_LINES:
            print(f"{name}: {len(lines)} lines, at most {MAX_FILE_LINES}")
            faults += 1
        for number, function, length in functions(lines):
            if length > MAX_FUNCTION_LINES:
                print(f"{name}:{number}: {function} has {length} lines, at most {MAX_FUNCTION_LINES}")
                faults += 1
    print(f"sizes: {faults} faults")
    sys.exit(faults > 0)


main()
