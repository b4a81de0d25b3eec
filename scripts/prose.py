#!/usr/bin/env python3
"""Checks the language of comments and pages.

Rust: an item or module doc must not open with a question word or "Of", and no sentence of a comment has
more than 45 words.
Comments of configurations and scripts: the same, and no sentence has more than 45 words.
Markdown: a page's sentences average at most 20 words, and none has more than 45. Relative links and
paths in back-ticks lead somewhere.
Comments and Markdown: no archaisms, and no "is no X" in place of "is not an X".
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPENINGS = "What|Who|Whom|Whose|How|Whether|Where|When|Which|Why|Of"
MAX_MEAN_WORDS = 20.0
MAX_WORDS = 45

RUST_COMMENT = re.compile(r"^\s*(//[/!]?)(?!/) ?(.*)")
DOC = re.compile(r"^\s*(//[/!])(?!/) ?(.*)")
OPENS_BADLY = re.compile(rf"(?:{OPENINGS})\b")
ARCHAISM = re.compile(
    r"\b(as ever|anew|in vain|of late(?=[,.;]|$)|at a stretch|be it|heeds?|vouch(?:es)?|befalls?|bears)\b", re.I
)
# "There is no X" is plain English, and so are the comparisons.
IS_NO = re.compile(
    r"(?<!\bthere )\b(?:is|are) no (?!(?:longer|more|less|fewer|better|worse|greater|larger|other)\b)\w+",
    re.I,
)

HASH_SUFFIXES = {".toml", ".yaml", ".yml", ".sh", ".service", ".Dockerfile"}
HASH_NAMES = {"Makefile", "Dockerfile", "bench-dns", "run"}
HASH_COMMENT = re.compile(r"(?:^|\s)#+(?![!\w])\s?(.*)")

LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")
PATH = re.compile(
    r"`((?:crates|deploy|docs|examples|experiments|fuzz|profiles|scripts)/[\w./-]+|[a-z-]+/(?:src|tests)/[\w./-]+)`"
)


def sentences(prose):
    """Splits prose at the ends of sentences. A link counts as its text, inline code as one word, and a
    label in italics or bold that ends with a colon as a sentence."""
    prose = re.sub(r"`[^`]*`", "code", prose)
    prose = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"\b(e\.g|i\.e|vs|cf|Mr|Dr|No)\.", r"\1", prose)
    for part in re.split(r"(?:(?<=[.!?])[\"')*_]*|(?<=:)[*_]+)\s+", prose):
        words = [word for word in part.split() if re.search(r"\w", word)]
        if words:
            yield words


def long_sentences(number, prose):
    for words in sentences(prose):
        if len(words) > MAX_WORDS:
            yield number, f"{len(words)} words in a sentence: {' '.join(words[:8])} …"


def wordings(number, prose):
    """Yields a fault for each archaism and each "is no X"."""
    prose = re.sub(r"`[^`]*`", "code", prose)
    for found in [*ARCHAISM.finditer(prose), *IS_NO.finditer(prose)]:
        yield number, f"write it plainly: {prose[max(0, found.start() - 20) : found.end() + 20].strip()}"


def opening(number, prose):
    if OPENS_BADLY.match(prose):
        yield number, f"opens with a question word or 'Of': {prose[:60]}"


def rust_faults(text):
    """Yields (line number, message) for each doc block that opens badly, and for each long sentence and
    wording of a comment."""
    before = None
    for number, line in enumerate(text.splitlines(), 1):
        doc = DOC.match(line)
        if doc and doc.group(1) != before:
            yield from opening(number, doc.group(2))
        before = doc.group(1) if doc else None
    for number, block in rust_comments(text):
        for offset, prose in paragraphs(block):
            yield from long_sentences(number + offset - 1, prose)
            yield from wordings(number + offset - 1, prose)


def rust_comments(text):
    """Yields (line number, text) of each block of Rust comments of one kind."""
    held, kind, start = [], None, 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = RUST_COMMENT.match(line)
        if held and (not found or found.group(1) != kind):
            yield start, "\n".join(held)
            held = []
        if found:
            kind, start = found.group(1), start if held else number
            held.append(found.group(2))


def comments(text):
    """Yields (line number, prose) of each block of comments that begin with '#'."""
    held, start = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = HASH_COMMENT.search(line)
        stands_alone = line.lstrip().startswith("#")
        words = found.group(1).strip() if found else ""
        # An indented line is an example, and a line with quotes before its '#' may hold a text.
        if stands_alone and found and found.group(1).startswith("  "):
            words = ""
        elif not stands_alone and line.split("#")[0].count('"') % 2:
            words = ""
        if held and not (stands_alone and words):
            yield start, " ".join(held)
            held = []
        if stands_alone and words:
            start = start if held else number
            held.append(words)
        elif words:
            yield number, words


def comment_faults(text):
    for number, prose in comments(text):
        yield from opening(number, prose)
        yield from long_sentences(number, prose)
        yield from wordings(number, prose)


def paragraphs(text):
    """Yields (line number, prose) of a Markdown page; code, tables, headings and HTML are left out."""
    held, start, fenced = [], 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
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


def dead_ends(page, text):
    """Yields (line number, message) for each relative link and each path that leads nowhere."""
    for number, line in enumerate(text.splitlines(), 1):
        targets = [page.parent / link for link in LINK.findall(line)]
        targets += [ROOT / path for path in PATH.findall(line)]
        yield from ((number, f"leads nowhere: {path}") for path in targets if not path.exists())


def markdown_faults(text):
    """Yields (line number, message) for each sentence and wording, and one for a page whose mean is too
    high."""
    lengths = []
    for number, prose in paragraphs(text):
        lengths += [len(words) for words in sentences(prose)]
        yield from long_sentences(number, prose)
        yield from wordings(number, prose)
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|"):
            yield from wordings(number, line)
    if len(lengths) >= 5 and sum(lengths) / len(lengths) > MAX_MEAN_WORDS:
        yield 1, f"mean sentence length {sum(lengths) / len(lengths):.1f} words"


def faults(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        return list(rust_faults(text))
    if path.suffix == ".md":
        return [*markdown_faults(text), *dead_ends(path, text)]
    return list(comment_faults(text))


def files():
    """Files of the project that have prose."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    for path in (ROOT / name for name in sorted(listed)):
        known = path.suffix in {".rs", ".md"} | HASH_SUFFIXES or path.name in HASH_NAMES
        if known and path.is_file():
            yield path


def main():
    total = 0
    for path in files():
        for number, message in sorted(faults(path)):
            total += 1
            print(f"{path.relative_to(ROOT)}:{number}: {message}")
    print(f"prose: {total} faults")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
