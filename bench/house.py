"""House: how the code is cut, and how much of it a one-row mutation passes through.

    python bench/house.py [SOURCE_FOLDER]

Files, lines, modules that only one other imports, public class names that are defined twice, and the files
and functions of this package that a warm one-row mutation calls. Figures to compare, not to pass.
"""

from __future__ import annotations

import ast
import statistics
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

SCHEMA = "node Person { name: String @key  email: String? @unique }"
INSERT = "query add($name: String, $email: String?) { insert Person { name: $name, email: $email } }"


def modules(root: Path) -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    named = {}
    for path in sorted((root / "omnigraph").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def shape(root: Path) -> None:
    """Print how the code is cut."""
    known = modules(root)
    lines = {name: len(path.read_text().splitlines()) for name, path in known.items()}
    importers: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, list[str]] = defaultdict(list)
    for name, path in known.items():
        tree = ast.parse(path.read_text())
        for imported in imports(tree, known):
            importers[imported].add(name)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
    twice = {name: where for name, where in classes.items() if len(where) > 1}
    print(f"files                         {len(known)}")
    print(f"lines                         {sum(lines.values())}")
    print(f"median file                   {statistics.median(lines.values()):.0f} lines")
    print(f"under 60 lines                {sum(count < 60 for count in lines.values())}")
    print(f"over 600 lines                {sum(count > 600 for count in lines.values())}")
    print(f"modules with one importer     {sum(len(importers[name]) == 1 for name in known)}")
    print(f"public class names twice      {len(twice)} {sorted(twice)}")


def walk() -> None:
    """Print how many files and functions a warm one-row mutation passes through."""
    import omnigraph

    package = str(Path(omnigraph.__file__).parent)
    called: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            code = frame.f_code
            called.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    with tempfile.TemporaryDirectory() as folder, omnigraph.init(f"{folder}/g", SCHEMA) as graph:
        threading.setprofile(note)  # for threads that the first mutation starts
        for number in range(3):
            graph.mutate(INSERT, name=f"p{number}", email=f"{number}@example.org")
        called.clear()
        sys.setprofile(note)
        graph.mutate(INSERT, name="one more", email="more@example.org")
        sys.setprofile(None)
        threading.setprofile(None)
    functions = {entry for entry in called if "<" not in entry[1].rpartition(".")[2]}
    print(f"files in a one-row mutation   {len({file for file, _, _ in functions})}")
    print(f"functions in it               {len(functions)}")


if __name__ == "__main__":
    shape(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src")
    walk()
