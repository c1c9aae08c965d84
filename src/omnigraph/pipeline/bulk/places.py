"""Places: where in the input a row came from that a check of many rows found wrong.

Room    pipeline.bulk. Rows do not carry their places into the files. Fragments are in the order of the input,
        so the address of a row says which row of which piece it was; only then, and only for the few rows
        that are reported, a piece is read again where its lines are not in a row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.engine.load.block import Source
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.validate.findings import Violation
from omnigraph.pipeline.bulk.piece import Runs
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.keys import scan_where_in
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK


@dataclass(frozen=True)
class Stretch:
    """The rows of one type that one piece of the input gave."""

    source: Source | None  # None: a DataFrame
    rows: int
    runs: Runs | None


class Places:
    """Finds rows of an input by their ids."""

    def __init__(
        self, store: GraphStore, catalog: Catalog, stretches: Mapping[str, tuple[int, tuple[Stretch, ...]]]
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._stretches = stretches  # by type id: a version with the rows as given, and where they are from

    def located(self, violation: Violation) -> Violation:
        """Say where the last row is that a violation is about, if the input has one."""
        if violation.entity_id is None:
            return violation
        for type_id, (version, stretches) in self._stretches.items():
            declared = self._catalog.table(type_id)
            if (declared.kind.value, declared.name) != (violation.entity_kind, violation.type_name):
                continue
            column = "src" if violation.code == "cardinality" else ID
            handle = self._store.reads.handle(declared.table_id, version)
            numbers = row_numbers(handle, column, violation.entity_id)
            if numbers:
                place = self._place(type_id, declared.name, stretches, max(numbers))
                return replace(violation, place=place, message=f"{place}: {violation.message}")
        return violation

    def _place(self, type_id: str, name: str, stretches: tuple[Stretch, ...], number: int) -> str:
        """Return the place of the n-th row of a type."""
        ends = list(accumulate(one.rows for one in stretches))
        index = bisect_right(ends, number)
        stretch = stretches[index]
        within = number - (ends[index] - stretch.rows)
        if stretch.runs is not None:
            return f"{_name(stretch, name)}:{_in_runs(stretch.runs, within)}"
        assert stretch.source is not None
        return next(
            place for n, place in enumerate(_places(stretch.source, self._catalog, type_id)) if n == within
        )


def row_numbers(handle: Handle, column: str, value: str) -> list[int]:
    """Return which rows of a version have a value, counted in the order of its fragments."""
    fragments = list(handle.get_fragments())
    values = pa.array([value], pa.string())
    found = scan_where_in(handle, column, values, [one.fragment_id for one in fragments], [column, ADDRESS])
    before = dict(
        zip(
            (one.fragment_id for one in fragments),
            accumulate((one.physical_rows for one in fragments), initial=0),
            strict=False,
        )
    )
    return sorted(before[at >> 32] + (at & OFFSET_MASK) for at in found[ADDRESS].to_pylist())


def _places(source: Source, catalog: Catalog, type_id: str) -> Iterator[str]:
    """Yield the places of the rows of one type, in order."""
    for block in source.blocks(catalog, Problems(), lambda _: None):
        if block.declared.id == type_id:
            for row in range(block.rows.num_rows):
                yield block.place(row)


def _in_runs(runs: Runs, number: int) -> int:
    for first, many in runs:
        if number < many:
            return first + number
        number -= many
    raise AssertionError("a row beyond the rows of its piece")


def _name(stretch: Stretch, type_name: str) -> str:
    return f"<{type_name}>" if stretch.source is None else stretch.source.name
