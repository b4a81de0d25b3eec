#!/usr/bin/env python3
"""Finds circles between the modules of each crate, and between the folders that hold them.

A module depends on another if its code names an item that the other one defines. A re-export counts
only if the file uses the name itself: a facade is not a dependency. Tests are left out.

    scripts/circles.py [CRATE...]     exits with 1 if there is a circle, and says which names tie it
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ITEM = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+|const\s+|async\s+|extern\s+\"[^\"]*\"\s+)*"
    r"(?:fn|struct|enum|trait|type|const|static|union|macro_rules!)\s+(?:mut\s+)?(\w+)",
    re.M,
)
MODULE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.M)
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)
PATH = re.compile(r"(?<![\w:])((?:crate|self|super|[a-z_]\w*)(?:::\w+)+)")
# Comments, strings, character literals and raw strings: nothing in them is code.
NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\[^']+|[^'\\])'", re.S
)
TEST_CODE = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")


def without_tests(code):
    """The code without its `#[cfg(test)]` items."""
    while found := TEST_CODE.search(code):
        end, depth = found.end(), 0
        while end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            if depth == 0 and code[end] in ";}":
                break
            end += 1
        code = code[: found.start()] + code[end + 1 :]
    return code


def leaves(tree, prefix=()):
    """Each path of a use tree, with the name it gets: `a::{b, c as d}` is a::b as b and a::c as d."""
    tree = tree.strip()
    if not tree:
        return
    head, brace, rest = tree.partition("{")
    if brace:
        prefix = prefix + tuple(part for part in head.strip().split("::") if part)
        inner, depth, start = rest[: rest.rindex("}")], 0, 0
        for at, letter in enumerate(inner + ","):
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                yield from leaves(inner[start:at], prefix)
                start = at + 1
        return
    path, _, alias = tree.partition(" as ")
    parts = prefix + tuple(part.strip() for part in path.strip().split("::"))
    if parts[-1] == "self":
        parts = parts[:-1]
    yield parts, (alias.strip() or parts[-1])


class Module:
    """One file: what it defines, what it imports, and its place in the tree of modules."""

    def __init__(self, file, path, code):
        self.file, self.path = file, path
        self.children = set(MODULE.findall(code))
        self.items = set(ITEM.findall(code))
        self.uses = {}
        self.globs = []
        for visible, tree in USE.findall(code):
            for parts, name in leaves(tree):
                if name == "*":
                    self.globs.append(parts[:-1])
                else:
                    self.uses[name] = (parts, bool(visible))
        self.code = MODULE.sub("", USE.sub("", code))


def modules(source):
    """Every module of a crate by its path, tests left out."""
    found = {}

    def read(file, path):
        code = without_tests(NOISE.sub(" ", file.read_text()))
        found[path] = module = Module(file, path, code)
        folder = file.parent if file.name in ("lib.rs", "main.rs", "mod.rs") else file.with_suffix("")
        for child in module.children:
            for candidate in (folder / f"{child}.rs", folder / child / "mod.rs"):
                if candidate.exists():
                    read(candidate, path + (child,))

    for name in ("lib.rs", "main.rs"):
        if (source / name).exists():
            read(source / name, ())
            break
    return found


def resolve(tree, at, parts, seen=()):
    """The module that defines what `parts` names from module `at`, or None for another crate's."""
    if (at, parts) in seen:
        return None
    seen = seen + ((at, parts),)
    if parts[0] == "crate":
        at, parts = (), parts[1:]
    elif parts[0] == "self":
        parts = parts[1:]
    while parts and parts[0] == "super":
        at, parts = at[:-1], parts[1:]
    if not parts:
        return at
    module, name = tree[at], parts[0]
    if name in module.children and at + (name,) in tree:
        return resolve(tree, at + (name,), parts[1:], seen) if parts[1:] else at + (name,)
    # A method may have the name of an imported module: a longer path goes through the module.
    if name in module.items and not (parts[1:] and name in module.uses):
        return at
    if name in module.uses:
        return resolve(tree, at, module.uses[name][0] + parts[1:], seen)
    for glob in module.globs:
        if (target := resolve(tree, at, glob + (name,), seen)) is not None:
            return target
    return None


def arrows(tree):
    """For each module the modules it depends on, with the names."""
    out = {path: {} for path in tree}
    for at, module in tree.items():
        named = [parts for parts, visible in module.uses.values() if not visible]
        for name, (parts, visible) in module.uses.items():
            if visible and re.search(rf"\b{name}\b", module.code):
                named.append(parts)
        named += [tuple(path.split("::")) for path in PATH.findall(module.code)]
        named += [glob + ("*",) for glob in module.globs]
        for parts in named:
            first = parts[0]
            if first not in ("crate", "self", "super") and first not in module.children:
                continue
            target = resolve(tree, at, parts)
            if target is not None and target != at:
                out[at].setdefault(target, set()).add(parts[-1])
    return out


def circles(graph):
    """Strongly connected groups of more than one node (Tarjan), in a fixed order."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def folders(graph):
    """For each folder the arrows between the rooms in it: a room is a child with all that is below it."""
    levels = {}
    for source, targets in graph.items():
        for target, names in targets.items():
            depth = 0
            while depth < min(len(source), len(target)) and source[depth] == target[depth]:
                depth += 1
            if depth == len(source) or depth == len(target):
                continue  # between a module and its own inside: the circles between files show it
            level = levels.setdefault(source[:depth], {})
            a, b = source[: depth + 1], target[: depth + 1]
            level.setdefault(b, {})
            level.setdefault(a, {}).setdefault(b, set()).update(names)
    return levels


def say(kind, graph, group):
    print(f"{kind}: " + ", ".join("::".join(node) or "(root)" for node in group))
    for node in group:
        for other in group:
            if names := graph[node].get(other):
                shown = ", ".join(sorted(names)[:6]) + (", …" if len(names) > 6 else "")
                print(f"    {'::'.join(node) or '(root)'} -> {'::'.join(other) or '(root)'}: {shown}")


def main():
    sys.setrecursionlimit(10_000)
    wanted = sys.argv[1:] or sorted(crate.name for crate in (ROOT / "crates").iterdir())
    total = 0
    for crate in wanted:
        graph = arrows(modules(ROOT / "crates" / crate / "src"))
        for group in circles(graph):
            total += 1
            say(f"{crate}: circle of modules", graph, group)
        for level in folders(graph).values():
            for group in circles(level):
                total += 1
                say(f"{crate}: circle of folders", level, group)
    print(f"{total} circles")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
