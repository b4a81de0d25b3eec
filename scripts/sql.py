#!/usr/bin/env python3
"""Runs the queries of docs/sql.md over the committed reference run.

Each block ```sql is run in order by DuckDB, and the block ```python by Python. The block ```text below a query
must be its result; `--update` writes it. A comment `<!-- in results.md: LABEL = COLUMN[, COLUMN] -->` above a
query says that these columns of its first row are the measured values in the row LABEL of docs/results.md.

Needs the packages duckdb, pandas and pyarrow.
"""

import argparse
import contextlib
import io
import math
import os
import re
import sys
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parent.parent
PAGE, REPORT = ROOT / "docs/sql.md", ROOT / "docs/results.md"
BLOCK = re.compile(
    r"(?:<!-- in results\.md: (?P<label>[^\n]*?) = (?P<columns>[\w, ]+) -->\n)?"
    r"```(?P<language>sql|python)\n(?P<code>.*?)```\n(?:\n```text\n(?P<result>.*?)```\n)?",
    re.S,
)
SCALES = {"ms": 1e-3, "s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "bit/s": 1, "%": 1e-2, "×": 1, "": 1}
# The report shows three digits.
ROUNDING = 0.005


def shown(value):
    if isinstance(value, float):
        if math.isinf(value):
            return "never"
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "" if value is None else str(value)


def table(relation):
    """Returns a result as aligned text, and its first row by column."""
    rows = relation.fetchall()
    names = [column[0] for column in relation.description]
    lines = [names] + [[shown(value) for value in row] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    text = "".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n" for line in lines)
    return text, dict(zip(names, rows[0])) if rows else {}


def number(cell):
    """Returns the number of a cell such as `468 kbit/s`."""
    value, _, unit = cell.strip().rstrip("¹").partition(" ")
    return float(value) * SCALES[unit]


def differences(report, label, columns, first):
    """Yields the columns of a result whose values are not those of the report."""
    rows = [row.split(" | ") for row in report.splitlines() if row.startswith(f"| {label} | ")]
    if len(rows) != 1:
        yield f"docs/results.md has {len(rows)} rows {label!r}"
        return
    # After the label: the paper, today, with Bentpipe.
    for column, cell in zip(columns, rows[0][2 : 2 + len(columns)], strict=True):
        said, found = number(cell.rstrip(" |")), first.get(column)
        if found is None or abs(found - said) > ROUNDING * abs(said):
            yield f"{label}: the report has {said:g}, column {column} has {found}"


def ran(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, PAGE.name, "exec"), {})  # the page is ours
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write the results into the page")
    update = parser.parse_args().update
    os.chdir(ROOT)
    page, report = PAGE.read_text(encoding="utf-8"), REPORT.read_text(encoding="utf-8")
    database, faults, queries, labelled, compared, written, end = duckdb.connect(), [], 0, 0, 0, "", 0
    for block in BLOCK.finditer(page):
        line = page[: block.start("code")].count("\n") + 1
        first = {}
        if block["language"] == "python":
            result = ran(block["code"])
        else:
            relation = database.execute(block["code"])
            is_query = bool(relation.description) and relation.description[0][0] not in ("Success", "Count")
            result, first = table(relation) if is_query else ("", {})
        queries += 1
        if block["label"]:
            labelled += 1
            columns = [column.strip() for column in block["columns"].split(",")]
            compared += len(columns)
            faults += [f"{PAGE.name}:{line}: {one}" for one in differences(report, block["label"], columns, first)]
        if (block["result"] or "") != result:
            stale = f"{PAGE.name}:{line}: the result differs from the block below: run scripts/sql.py --update"
            faults += [] if update else [stale]
        written += page[end : block.start()] + page[block.start() : block.end("code")] + "```\n"
        written += f"\n```text\n{result}```\n" if result else ""
        end = block.end()
    comments = page.count("<!-- in results.md")
    if comments != labelled:
        faults.append(f"{PAGE.name}: {comments} comments `in results.md`, but {labelled} of them stand above a query")
    if update:
        PAGE.write_text(written + page[end:], encoding="utf-8")
    for fault in faults:
        print(fault)
    print(f"sql: {queries} blocks, {compared} values compared with the report, {len(faults)} faults")
    return 1 if faults or not queries else 0


if __name__ == "__main__":
    sys.exit(main())
