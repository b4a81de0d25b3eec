#!/usr/bin/env python3
"""Draws the chart of README.md from the figures of the demo.

docs/demo.json is what `bentpipe demo --quick --json docs/demo.json` wrote. The chart has one SVG for light
pages and one for dark ones, in docs/images. `--check` compares the committed files with the figures and
writes nothing.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs/demo.json"
IMAGES = ROOT / "docs/images"

SYSTEMS = [
    ("e2e-cubic", "end to end, CUBIC"),
    ("e2e-bbr", "end to end, BBR"),
    ("split-bbr", "split TCP, BBR"),
    ("bentpipe", "Bentpipe"),
]
# Workload, metric and title.
PANELS = [
    ("object-100k", "completion", "100 KB object, seconds (shorter is better)"),
    ("page-25", "plt", "page of 25 objects, seconds (shorter is better)"),
    ("bulk", "goodput", "bulk download, % of what losses leave (longer is better)"),
]
COLOURS = {
    "light": {"text": "#1f2328", "quiet": "#59636e", "bar": "#a9b4c0", "ours": "#0969da", "tail": "#59636e"},
    "dark": {"text": "#f0f6fc", "quiet": "#9198a1", "bar": "#545d68", "ours": "#58a6ff", "tail": "#9198a1"},
}
WIDTH, LABEL, BARS, ROW, BAR = 760, 150, 500, 24, 15
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"


def figures(rows, workload, metric):
    """Returns {system: (median, 95th percentile, limit)} of a panel."""
    found = {}
    for row in rows:
        if row["workload"] == workload and row["metric"] == metric:
            found[row["contender"]] = (row["p50"], row["p95"], row["limit"])
    missing = [name for name, _ in SYSTEMS if name not in found]
    if missing:
        sys.exit(f"{FIGURES.name} has no {metric} of {workload} for {', '.join(missing)}: run the demo again")
    return found


def panel(rows, workload, metric, title, top, colours):
    """Returns the elements of a panel and the height that they take."""
    found = figures(rows, workload, metric)
    share = metric == "goodput"
    scale = 1.0 if share else max(p95 for _, p95, _ in found.values())
    parts = [text(0, top + 14, title, colours["text"], weight=600)]
    for index, (name, label) in enumerate(SYSTEMS):
        median, p95, limit = found[name]
        y = top + 26 + index * ROW
        value = median / limit if share else median
        ours = name == "bentpipe"
        length = BARS * value / scale
        parts.append(text(LABEL - 10, y + 12, label, colours["text"], anchor="end", weight=600 if ours else 400))
        fill = colours["ours" if ours else "bar"]
        parts.append(f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{fill}"/>')
        end, shown = LABEL + length, f"{100 * value:.0f} %" if share else f"{value:.1f}"
        if not share:
            at = LABEL + BARS * p95 / scale
            middle = y + BAR / 2
            parts.append(
                f'<path d="M{end:.1f} {middle}H{at:.1f}M{at:.1f} {y + 3}V{y + BAR - 3}" '
                f'stroke="{colours["tail"]}" stroke-width="1.5" fill="none"/>'
            )
            end, shown = max(end, at), f"{shown} / {p95:.1f}"
        parts.append(text(end + 8, y + 12, shown, colours["text"], weight=600 if ours else 400))
    return parts, 26 + len(SYSTEMS) * ROW + 16


def text(x, y, content, colour, anchor="start", weight=400, size=13):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{content}</text>'
    )


def described(rows):
    """Returns the chart in words, for those who do not see it."""
    def of(workload, metric, unit):
        found = figures(rows, workload, metric)
        values = [found[name][0] / (found[name][2] if unit == "%" else 1) for name, _ in SYSTEMS]
        shown = [f"{100 * value:.0f} %" if unit == "%" else f"{value:.1f} s" for value in values]
        return "; ".join(f"{label}: {value}" for (_, label), value in zip(SYSTEMS, shown))

    return (
        f"Medians for a 100 KB object: {of('object-100k', 'completion', 's')}. "
        f"For a page of 25 objects: {of('page-25', 'plt', 's')}. For bulk: {of('bulk', 'goodput', '%')}."
    )


def chart(rows, colours):
    top, parts = 8, []
    for workload, metric, title in PANELS:
        drawn, height = panel(rows, workload, metric, title, top, colours)
        parts += drawn
        top += height
    note = "Bars are medians, lines reach to the 95th percentile. Emulated link: 1.89 Mbit/s, 761 ms, 6 % loss."
    parts.append(text(0, top + 8, note, colours["quiet"], size=12))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {WIDTH + 16} {top + 20}" '
        f'role="img" font-family="{FONT}">\n'
        f"<title>Bentpipe compared with TCP on a satellite link</title>\n<desc>{described(rows)}</desc>\n"
        f"{body}\n</svg>\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the committed files; write nothing")
    check = parser.parse_args().check
    rows = json.loads(FIGURES.read_text(encoding="utf-8"))
    stale = []
    for name, colours in COLOURS.items():
        file = IMAGES / f"demo-{name}.svg"
        drawn = chart(rows, colours)
        if not check:
            file.write_text(drawn, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != drawn:
            stale.append(file.name)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if f'alt="{described(rows)}"' not in readme:
        stale.append("README.md (the picture's alt text)")
    if stale:
        print(f"{', '.join(stale)}: not drawn from docs/demo.json as it is: run scripts/chart.py, and copy the text that it prints")
    print(f"chart: {len(stale)} faults" if check else described(rows))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
