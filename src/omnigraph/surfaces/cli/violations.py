"""Violations: the rows that a write was refused for, as a table that people can work through.

Room    surfaces.cli. Shows what validation found; the same facts go to scripts with `--json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from omnigraph.base.errors import GraphError

HEADER = ("place", "code", "type", "what")
GAP = "  "
ADVICE = {
    "syntax": "a data file has one JSON object on each line",
    "envelope": 'a record is {"type": T, "data": {...}} or {"edge": E, "from": id, "to": id, "data": {...}}',
    "unknown_type": "`omnigraph schema show` prints the types",
    "unknown_property": "`omnigraph schema show` prints the properties",
    "orphan_edge": "load the nodes with the edges, or before them; an id is the text of the node's key",
    "unique": "one of the two must change, or both are the same entity and need the same id",
    "cardinality": "remove edges of the source, or widen @card in the schema",
}


def violation_lines(error: GraphError) -> Iterator[Text | str]:
    """Yield the report of a refused write: how many, the first of them, what to do."""
    found: Sequence[Mapping[str, Any]] = error.fields["violations"]
    total: int = error.fields["total"]
    rows = [HEADER, *(_row(one) for one in found)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(HEADER) - 1)]
    yield Text(f"  {_line(rows[0], widths)}", style="bold")
    for row in rows[1:]:
        yield f"  {_line(row, widths)}"
    if total > len(found):
        yield f"  and {total - len(found)} more"
    for code in dict.fromkeys(one["code"] for one in found):
        if code in ADVICE:
            yield f"  {code}: {ADVICE[code]}"


def _row(violation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells; without a place in an input the entity stands for it, and needs no second mention."""
    kind, entity, place = violation["entity_kind"], violation["entity_id"], violation["place"]
    what = str(violation["message"])
    if place is None:
        place = f"{kind} {entity!r}"
        what = what.removesuffix(f" ({place})")
    else:
        what = what.removeprefix(f"{place}: ")
    return place, violation["code"], violation["type_name"] or "-", what


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False)]
    return GAP.join([*cells, row[-1]])
