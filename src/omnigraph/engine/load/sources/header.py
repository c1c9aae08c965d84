"""Header: what the columns of a table mean for one type.

    **column names** -> columns -> blocks

Room    engine.load.sources. For CSV, Parquet, Arrow and frames: a table of one named type.
Rule    names are property names, `id`, and for an edge `from` and `to` (or `src` and `dst`). A problem with a
        column concerns all of its rows, so it is reported once, at the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.envelopes import unknown_property
from omnigraph.engine.validate.findings import Violation
from omnigraph.engine.validate.values import INPUT_NAMES


@dataclass(frozen=True)
class Header:
    """Where the columns stand, by property name, `id`, `src` and `dst`; and whether they can be used."""

    places: dict[str, int]
    good: bool


def renamed(names: Sequence[str], columns: Mapping[str, str], origin: str) -> list[str]:
    """Return the names of columns as the caller maps them; a column that is to be mapped must be there.

    >>> renamed(["Full Name", "age"], {"Full Name": "name"}, "people.csv")
    ['name', 'age']
    """
    lost = [name for name in columns if name not in names]
    if lost:
        raise InvalidRequest(
            f"{origin} has no column {lost[0]!r} to map", remedy=f"Its columns are {', '.join(names)}"
        )
    return [columns.get(name, name) for name in names]


def read_header(
    names: Sequence[str], declared: TableType, report: Problems, origin: str, line: int
) -> Header:
    """Match column names with a type, and report those that do not."""
    places: dict[str, int] = {}
    before = report.total
    aliases = {INPUT_NAMES[end]: end for end in ENDPOINTS} if isinstance(declared, EdgeType) else {}
    for position, name in enumerate(names):
        meant = aliases.get(name, name)
        known = declared.find(meant) is not None or meant == ID or meant in aliases.values()
        if not known:
            refusal = unknown_property(name, declared)
            column_problem(report, declared, refusal.code, str(refusal), name, origin, line)
        elif meant in places:
            other = names[places[meant]]
            twice = (
                f"column '{name}' stands twice"
                if name == other
                else f"columns '{other}' and '{name}' mean the same"
            )
            column_problem(report, declared, "envelope", twice, name, origin, line)
        places.setdefault(meant, position)
    _report_missing(places, declared, report, origin, line)
    return Header(places, report.total == before)


def _report_missing(
    places: dict[str, int], declared: TableType, report: Problems, origin: str, line: int
) -> None:
    needed = [INPUT_NAMES[end] for end in ENDPOINTS if isinstance(declared, EdgeType) and end not in places]
    needed += [
        member.name
        for member in declared.properties
        if not member.type.nullable and member.default is None and member.name not in places
    ]
    for name in needed:
        message = f"non-nullable property '{name}' has null or invalid values: there is no such column"
        column_problem(report, declared, "required", message, name, origin, line)


def column_problem(
    report: Problems, declared: TableType, code: str, message: str, name: str, origin: str, line: int
) -> None:
    """Report what is wrong with a whole column."""
    place = f"{origin}:{line}"
    found = Violation(
        code, declared.kind.value, declared.name, f"{place}: {message}", property=name, place=place
    )
    report.of_columns = True
    report.add(found, origin, line)
