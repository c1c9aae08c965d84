"""The page of errors has every code there is, with its kind, and each error is raised by some test."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import omnigraph
from omnigraph.base.errors import GraphError, Kind
from omnigraph.surfaces.cli.support.output import EXIT_BY_CODE, EXIT_BY_KIND

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errors.md").read_text()
ROW = re.compile(r"^\| (?P<codes>`[a-z_`, ]+`) \| (?P<kinds>[a-z_, ]+) \| .+ \| .+ \|$", re.MULTILINE)
INTERNAL = {  # caught by whoever called for what raises them; users never see them
    "CannotShare",
    "Gap",
    "TooManyAtOnce",
}


def all_errors() -> list[type[GraphError]]:
    """Return every class of errors in the package."""
    for module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
        importlib.import_module(module.name)

    def below(error: type[GraphError]) -> Iterator[type[GraphError]]:
        yield error
        for further in error.__subclasses__():
            yield from below(further)

    # Classes that are made while a program runs, for codes of later releases, are in no module.
    def is_ours(error: type[GraphError]) -> bool:
        module = error.__module__
        return module.startswith("omnigraph.") and vars(sys.modules[module]).get(error.__name__) is error

    return sorted(filter(is_ours, below(GraphError)), key=lambda error: error.__name__)


def listed() -> dict[str, set[str]]:
    """Return the kinds of each code that the page lists."""
    kinds: dict[str, set[str]] = {}
    for row in ROW.finditer(PAGE):
        for code in re.findall(r"`([a-z_]+)`", row["codes"]):
            assert code not in kinds, f"{code} is listed twice"
            kinds[code] = set(row["kinds"].split(", "))
    return kinds


def test_the_page_lists_every_code_with_its_kinds_and_no_other() -> None:
    kinds: dict[str, set[str]] = {}
    for error in all_errors():
        if error.__name__ not in INTERNAL and error.code != "internal":
            kinds.setdefault(error.code, set()).add(error.kind.value)
    assert listed() == {**kinds, "internal": {"corrupt"}}


def test_the_page_has_the_exit_code_of_each_kind() -> None:
    for kind in Kind:
        assert f"| `{kind.value}` |" in PAGE
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind.value}` |"))
        assert re.search(rf"\| {EXIT_BY_KIND[kind]}\b", row), row
    assert {code: EXIT_BY_CODE[code] for code in ("precondition_failed", "constraint_violation")} == {
        "precondition_failed": 4,
        "constraint_violation": 1,
    }


def test_each_error_is_met_by_a_test() -> None:
    texts = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    unmet = [
        error.__name__
        for error in all_errors()
        if error.__name__ not in INTERNAL
        and not re.search(rf"\b{error.__name__}\b", texts)
        and not re.search(rf"""["'`]{error.code}["'`]""", texts)
    ]
    assert not unmet
