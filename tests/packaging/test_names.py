"""One word, one idea: names and sizes that the package holds itself to."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import omnigraph

PACKAGE = Path(omnigraph.__file__).parent
LONGEST = 600  # lines: near that there is a second idea inside
# Words that only their author would search for.
PRIVATE = frozenset({"door", "room", "suspicion", "patience", "turnstile", "moments", "piece", "places"})


def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its path."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text()) for file in files}


def public_classes(found: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield (class, file) of the classes that other modules may import."""
    for file, tree in found.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, file


def defined_twice(found: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return the public class names that more than one file defines."""
    files: dict[str, list[str]] = defaultdict(list)
    for name, file in public_classes(found):
        files[name].append(file)
    return {name: where for name, where in files.items() if len(where) > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    assert defined_twice(modules()) == {}


def test_the_check_finds_a_name_that_is_defined_twice() -> None:
    one, other = ast.parse("class Plan: ..."), ast.parse("class Plan: ...\nclass _Own: ...")
    assert defined_twice({"a.py": one, "b.py": other}) == {"Plan": ["a.py", "b.py"]}


def test_files_are_chapters_with_names_that_say_what_is_inside() -> None:
    sizes = {file: len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py")}
    assert {file.name: size for file, size in sizes.items() if size > LONGEST} == {}
    assert {file.name for file in sizes if file.stem in PRIVATE} == set()


def test_every_file_that_the_architecture_page_names_is_there() -> None:
    page = (PACKAGE.parents[1] / "docs/developers/architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)`", page))
    files = [file.relative_to(PACKAGE.parents[1]).as_posix() for file in PACKAGE.rglob("*.py")]
    outside = {name for name in named if name.startswith(("scripts/", "tests/"))}
    missing = {name for name in named - outside if not any(file.endswith(f"/{name}") for file in files)}
    assert len(named) > 50
    assert missing == set()
