#!/usr/bin/env python3
"""Checks the language of comments and pages.

Rust: an item or module doc must not open with a question word or "Of".
Markdown: a page's sentences average at most 20 words, and none has more than 45.

Files that fall short today are listed with their counts in scripts/prose-baseline.txt. A file may
not get worse. `scripts/prose.py --update` lowers the counts; it never raises them.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "scripts" / "prose-baseline.txt"
OPENINGS = "What|Who|Whom|Whose|How|Whether|Where|When|Which|Why|Of"
MAX_MEAN_WORDS = 20.0
MAX_WORDS = 45

DOC = re.compile(r"^\s*(//[/!])(?!/) ?(.*)")
OPENS_BADLY = re.compile(rf"(?:{OPENINGS})\b")


def rust_faults(text):
    """Yields (line number, message) for each doc block that opens badly."""
    before = None
    for number, line in enumerate(text.splitlines(), 1):
        doc = DOC.match(line)
        if doc and doc.group(1) != before and OPENS_BADLY.match(doc.group(2)):
            yield number, f"doc opens with a question word or 'Of': {doc.group(2)[:60]}"
        before = doc.group(1) if doc else None


def paragraphs(text):
    """Yields (line number, prose) of a Markdown page; code, tables, headings and HTML are left out."""
    held, start, fenced = [], 0, False
    for number, line in enumerate(text.splitlines() + [""], 1):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
            stripped = ""
        elif fenced or stripped.startswith(("|", "#", "<")) or line.startswith("    "):
            stripped = ""
        item = re.match(r"(?:[-*+]|\d+\.)\s+(.*)", stripped)
        if (not stripped or item) and held:
            yield start, " ".join(held)
            held = []
        if stripped:
            if not held:
                start = number
            held.append(item.group(1) if item else stripped)


def sentences(prose):
    """Splits prose at the ends of sentences. A link counts as its text, inline code as one word."""
    prose = re.sub(r"`[^`]*`", "code", prose)
    prose = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"\b(e\.g|i\.e|vs|cf|Mr|Dr|No)\.", r"\1", prose)
    for part in re.split(r"(?<=[.!?])[\"')*_]*\s+", prose):
        words = [word for word in part.split() if re.search(r"\w", word)]
        if words:
            yield words


def markdown_faults(text):
    """Yields (line number, message) for long sentences, and one for a page whose mean is too high."""
    lengths = []
    for number, prose in paragraphs(text):
        for words in sentences(prose):
            lengths.append(len(words))
            if len(words) > MAX_WORDS:
                yield number, f"{len(words)} words in a sentence: {' '.join(words[:8])} …"
    if len(lengths) >= 5 and sum(lengths) / len(lengths) > MAX_MEAN_WORDS:
        yield 1, f"mean sentence length {sum(lengths) / len(lengths):.1f} words"


def faults_by_file():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")
    for name in sorted(filter(None, listed)):
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            found = list((rust_faults if name.endswith(".rs") else markdown_faults)(text))
            if found:
                yield name, found


def read_baseline():
    lines = BASELINE.read_text(encoding="utf-8").splitlines() if BASELINE.exists() else []
    return {name: int(count) for count, name in (line.split(" ", 1) for line in lines if line)}


def main():
    allowed, found = read_baseline(), dict(faults_by_file())
    if "--update" in sys.argv[1:]:
        first = not BASELINE.exists()
        kept = {
            name: len(faults) if first else min(len(faults), allowed.get(name, 0))
            for name, faults in found.items()
        }
        lines = [f"{count} {name}\n" for name, count in sorted(kept.items()) if count]
        BASELINE.write_text("".join(lines), encoding="utf-8")
    worse = 0
    for name, faults in found.items():
        if len(faults) > read_baseline().get(name, 0):
            worse += 1
            print(f"{name}: {len(faults)} faults, {allowed.get(name, 0)} allowed")
            for number, message in faults:
                print(f"  {name}:{number}: {message}")
    total = sum(len(faults) for faults in found.values())
    print(f"prose: {total} faults known, {worse} files worse than the baseline")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
