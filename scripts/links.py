#!/usr/bin/env python3
"""Checks the links of all Markdown pages, and that the book has every page.

A relative link leads to a file or folder of the repository, and its anchor to a heading of that page, as
GitHub and mdBook name headings. docs/SUMMARY.md names every page of docs once. External links are not followed.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs/SUMMARY.md"
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)


def pages():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    return [ROOT / name for name in sorted(listed) if (ROOT / name).is_file()]


def prose(text):
    """Yields (line number, line) outside fenced code, with inline code removed."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """Returns the anchors of a page's headings."""
    found, seen = set(), {}
    for _, line in prose(text):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return found


def links(text):
    """Yields (line number, target) of each link that is not external."""
    for number, line in prose(text):
        for one, other in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if not EXTERNAL.match(one or other):
                yield number, one or other


def faults(page, text, known):
    for number, target in links(text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or ROOT not in [file, *file.parents]:
            yield number, f"leads nowhere: {target}"
        elif anchor and file.suffix == ".md":
            if file not in known:
                known[file] = anchors(file.read_text(encoding="utf-8"))
            if anchor not in known[file]:
                yield number, f"no such heading: {target}"


def missing(listed):
    """Yields a message for each page of docs that the book does not name exactly once."""
    named = [
        (SUMMARY.parent / target.partition("#")[0]).resolve()
        for _, target in links(SUMMARY.read_text(encoding="utf-8"))
    ]
    for page in listed:
        if SUMMARY.parent in page.parents and page != SUMMARY and named.count(page) != 1:
            yield f"names {page.relative_to(ROOT)} {named.count(page)} times"


def main():
    listed, known, total = pages(), {}, 0
    for page in listed:
        for number, message in faults(page, page.read_text(encoding="utf-8"), known):
            total += 1
            print(f"{page.relative_to(ROOT)}:{number}: {message}")
    for message in missing(listed):
        total += 1
        print(f"{SUMMARY.relative_to(ROOT)}: {message}")
    print(f"links: {total} faults in {len(listed)} pages")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
