#!/usr/bin/env python3
"""Draws the animation of README.md: one lost packet of an object, with TCP and with Bentpipe.

It is a drawing to scale, not a measurement: the delay is that of profiles/mss.toml (380.5 ms one way), and time is
stretched. TCP repeats the packet when three later ones are acknowledged (RFC 6675, section 4). Bentpipe sends
repair packets after the last packet (docs/decisions/0002-repairs.md), so nobody has to ask. One SVG is for light
pages and one for dark ones, in docs/images. `--check` compares the committed files and writes nothing.
"""

import argparse
import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
ONE_WAY_S = 0.3805
# Between two packets. It is 6.3 ms on the link; 40 ms can be seen.
SPACING_S = 0.040
PACKETS, LOST = 6, 2
REPAIRS = 2
# Seconds of the drawing for a second of the link, the length of a round, and the number of rounds.
STRETCH, ROUND_S, ROUNDS = 5.0, 10.0, 3
START_S = 0.5
LEFT, RIGHT, RISE, ROW = 116, 560, 66, 156
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
COLOURS = {
    "light": {"text": "#1f2328", "quiet": "#59636e", "line": "#d1d9e0", "data": "#59636e", "ours": "#0969da",
              "repair": "#8250df", "lost": "#cf222e"},
    "dark": {"text": "#f0f6fc", "quiet": "#9198a1", "line": "#3d444d", "data": "#9198a1", "ours": "#58a6ff",
             "repair": "#bc8cff", "lost": "#ff7b72"},
}


def share(seconds):
    """Share of a round at `seconds` of the link."""
    return round((START_S + STRETCH * seconds) / ROUND_S, 4)


def text(x, y, content, colour, size=13, anchor="start", inner="", weight=400):
    return (f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}">{content}{inner}</text>')


def animate(element, more):
    return f'<{element} dur="{ROUND_S:g}s" repeatCount="{ROUNDS}" fill="freeze" {more}/>'


def shown(begin, end=None):
    """Makes an element visible from `begin` to `end`, or to the end of the round."""
    times, values = [0, share(begin)], [0, 1]
    if end is not None:
        times, values = times + [share(end)], values + [0]
    times = ";".join(str(time) for time in times)
    values = ";".join(str(value) for value in values)
    return animate("animate", f'attributeName="opacity" calcMode="discrete" keyTimes="{times}" values="{values}"')


def packet(base, sent, colour, lost=False, back=False, radius=6):
    """A packet on the arc over the satellite; a lost one ends half-way."""
    ends = (RIGHT, LEFT) if back else (LEFT, RIGHT)
    path = f"M{ends[0]} {base}Q{(LEFT + RIGHT) / 2:g} {base - 2 * RISE} {ends[1]} {base}"
    arrived = sent + ONE_WAY_S * (0.5 if lost else 1.0)
    motion = animate("animateMotion", f'path="{path}" calcMode="linear" '
                     f'keyTimes="0;{share(sent)};{share(arrived)};1" '
                     f'keyPoints="0;0;{0.5 if lost else 1};{0.5 if lost else 1}"')
    return f'<circle r="{radius}" fill="{colour}" opacity="0">{motion}{shown(sent, arrived)}</circle>'


def row(base, name, colours, ours):
    """A row of the drawing. Returns its elements."""
    data = colours["ours"] if ours else colours["data"]
    sent = [number * SPACING_S for number in range(PACKETS)]
    middle = (LEFT + RIGHT) / 2
    parts = [
        text(0, base - 84, name, colours["text"], weight=600),
        f'<path d="M{LEFT} {base}Q{middle:g} {base - 2 * RISE} {RIGHT} {base}" fill="none" '
        f'stroke="{colours["line"]}" stroke-width="1.5"/>',
        text(LEFT - 14, base + 4, "server", colours["quiet"], 12, "end"),
    ]
    arrivals = [time + ONE_WAY_S for time in sent]
    for number, time in enumerate(sent):
        parts.append(packet(base, time, data, lost=number + 1 == LOST))
    # The lost packet is repaired by the first repair packet, or repeated after three acknowledgements.
    if ours:
        repairs = [sent[-1] + (number + 1) * SPACING_S for number in range(REPAIRS)]
        parts += [packet(base, time, colours["repair"]) for time in repairs]
        arrivals[LOST - 1] = repairs[0] + ONE_WAY_S
    else:
        acknowledged = [arrivals[number] for number in range(PACKETS) if number + 1 != LOST]
        parts += [packet(base, time, colours["quiet"], back=True, radius=3) for time in acknowledged]
        repeated = arrivals[LOST + 2] + ONE_WAY_S
        parts.append(packet(base, repeated, data))
        arrivals[LOST - 1] = repeated + ONE_WAY_S
    half_way = sent[LOST - 1] + ONE_WAY_S / 2
    parts.append(text(middle, base - RISE - 10, "lost", colours["lost"], 12, "middle", shown(half_way, half_way + 0.25))
                 .replace("<text ", '<text opacity="0" '))
    for number, time in enumerate(arrivals):
        x = RIGHT + 16 + 18 * number
        frame = f'fill="none" stroke="{colours["line"]}" stroke-width="1.5"'
        fill = colours["repair"] if ours and number + 1 == LOST else data
        parts.append(f'<rect x="{x}" y="{base - 8}" width="14" height="14" rx="2" {frame}/>')
        parts.append(f'<rect x="{x}" y="{base - 8}" width="14" height="14" rx="2" fill="{fill}" opacity="0">'
                     f"{shown(time)}</rect>")
    done = max(arrivals)
    parts.append(text(RIGHT + 16, base + 24, f"complete after {done:.1f} s", colours["text"], 13, "start", shown(done))
                 .replace("<text ", '<text opacity="0" '))
    return parts


def drawing(colours):
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 776 326" role="img" '
        f'font-family="{FONT}">',
        "<title>A lost packet over a geostationary satellite</title>",
        "<desc>Six packets of an object, of which the second is lost. TCP repeats it after a round trip. Bentpipe has "
        "sent two repair packets after the last one, and rebuilds it from the first of them.</desc>",
    ]
    parts += row(104, "TCP repeats what is reported as lost", colours, ours=False)
    parts += row(104 + ROW, "Bentpipe has sent repair packets (violet)", colours, ours=True)
    note = "Drawn to scale: 380 ms each way, 40 ms between packets, time five times as slow."
    parts += [text(0, 316, note, colours["quiet"], 12), "</svg>\n"]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    for name, colours in COLOURS.items():
        file, drawn = IMAGES / f"lost-packet-{name}.svg", drawing(colours)
        if not check:
            file.write_text(drawn, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{file.name} is not what scripts/animation.py draws: run it")


if __name__ == "__main__":
    main()
