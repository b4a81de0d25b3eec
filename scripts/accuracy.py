#!/usr/bin/env python3
"""Draws the accuracy of the emulator in docs/researchers.md from docs/accuracy.json.

docs/accuracy.json has the rows of `bentpipe lab measure --profile NAME --json FILE`, for each profile in turn,
without empty fields. `--check` compares the committed files and writes nothing.
"""

import argparse
import json
import math
import sys

from chart import COLOURS, FONT, IMAGES, ROOT, text

FIGURES = ROOT / "docs/accuracy.json"
PAGE = ROOT / "docs/researchers.md"
# A probe of the delay has 44 bytes (PROBE_BYTES in crates/lab/src/emu/estimate.rs), which take time at the rate.
PROBE_BITS = 8 * 44
# Bit errors lose long packets more often, and the measurement has packets of two lengths.
WITHOUT_LOSS = {"aero"}
# Metric, title, half of the range.
PANELS = [
    ("delay", "one-way delay, ms", 0.2),
    ("rate", "rate, %", 0.02),
    ("loss", "loss, percentage points", 3.0),
]
WIDTH, LABEL, PANEL, GAP, ROW, TOP = 760, 168, 160, 50, 17, 46


def errors(rows):
    """Returns {(profile, path): {metric: (difference from the declared value, 95 % margin)}}."""
    found = {}
    rates = {(row["profile"], row["workload"]): row["limit"] for row in rows if row["metric"] == "rate"}
    for row in rows:
        key, declared, measured = (row["profile"], row["workload"]), row["limit"], row["p50"]
        if row["metric"] == "delay":
            error = 1e3 * (measured - declared - PROBE_BITS / rates[key]), 0.0
        elif row["metric"] == "rate":
            error = 100 * (measured / declared - 1), 0.0
        elif declared == 0 or row["profile"] in WITHOUT_LOSS:
            continue
        else:
            error = 100 * (measured - declared), 196 * math.sqrt(declared * (1 - declared) / row["n"])
        found.setdefault(key, {})[row["metric"]] = error
    return found


def chart(found, colours):
    bottom = TOP + ROW * len(found)
    parts = []
    for index, (metric, title, most) in enumerate(PANELS):
        left = LABEL + index * (PANEL + GAP)
        middle = left + PANEL / 2
        scale = PANEL / 2 / most
        parts.append(text(middle, 14, title, colours["text"], anchor="middle", weight=600))
        for value in (-most, 0, most):
            x = middle + value * scale
            parts.append(f'<path d="M{x:.1f} {TOP - 8}V{bottom}" stroke="{colours["bar"]}" stroke-width="1"/>')
            parts.append(text(x, TOP - 14, f"{value:+g}" if value else "0", colours["quiet"], "middle", size=11))
        for row, (_, measured) in enumerate(found.items()):
            if metric not in measured:
                continue
            (error, margin), y = measured[metric], TOP + ROW * row + 8
            at = middle + error * scale
            if margin:
                low, high = (middle + max(-most, min(most, error + side * margin)) * scale for side in (-1, 1))
                parts.append(f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{colours["tail"]}" stroke-width="1.5"/>')
            parts.append(f'<circle cx="{at:.1f}" cy="{y}" r="3.5" fill="{colours["ours"]}"/>')
    for row, (profile, path) in enumerate(found):
        label = f"{profile} {path.removeprefix('radio-')}"
        parts.append(text(LABEL - 10, TOP + ROW * row + 12, label, colours["text"], anchor="end", size=11))
    note = "Measured minus declared. Lines: 95 % of what as many independent losses would give."
    parts.append(text(0, bottom + 20, note, colours["quiet"], size=12))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -4 {WIDTH + 24} {bottom + 34}" '
        f'role="img" font-family="{FONT}">\n'
        f"<title>Accuracy of the emulator</title>\n<desc>{described(found)}</desc>\n{body}\n</svg>\n"
    )


def described(found):
    """Returns the chart in words, for those who do not see it."""
    def most(metric):
        return max(abs(one[metric][0]) for one in found.values() if metric in one)

    return (
        f"In {len(found)} directions, the delay differs by at most {most('delay'):.2f} ms from the declared one, "
        f"the rate by {most('rate'):.3f} %, the loss by {most('loss'):.2f} percentage points."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the committed files; write nothing")
    check = parser.parse_args().check
    found = errors(json.loads(FIGURES.read_text(encoding="utf-8")))
    outside = [
        f"{' '.join(key)} {metric}" for key, one in found.items()
        for metric, _, most in PANELS if metric in one and abs(one[metric][0]) > most
    ]
    if outside:
        sys.exit(f"{', '.join(outside)}: beyond the range of its panel: widen it in PANELS")
    stale = []
    for name, colours in COLOURS.items():
        file, drawn = IMAGES / f"accuracy-{name}.svg", chart(found, colours)
        if not check:
            file.write_text(drawn, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != drawn:
            stale.append(file.name)
    if f'alt="{described(found)}"' not in PAGE.read_text(encoding="utf-8"):
        stale.append(f"{PAGE.name} (the picture's alt text)")
    if stale:
        print(f"{', '.join(stale)}: not drawn from {FIGURES.name} as it is: run scripts/accuracy.py, and copy the text that it prints")
    print(f"accuracy: {len(stale)} faults" if check else described(found))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
