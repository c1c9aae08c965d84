"""Places: where in the input the rows came from that a check of many rows found wrong.

Room    pipeline.bulk. Rows do not carry their places into the files. Fragments are in the order of the input,
        so the address of a row says which row of which piece it was; only then, and only for the rows that
        are reported, a piece is read again where its lines do not follow one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Given:
    """All rows of one type as they were given: a version that holds them, and where they are from."""

    version: int
    stretches: tuple[Stretch, ...]


class Places:
    """Finds rows of an input by their ids."""

    def __init__(self, store: GraphStore, catalog: Catalog, given: Mapping[str, Given]) -> None:
        self._store = store
        self._catalog = catalog
        self._given = given  # by type id

    def located(self, violations: Sequence[Violation]) -> list[Violation]:
        """Say of each violation where the last row is that it is about, if the input has one."""
        found = list(violations)
        for type_id, given in self._given.items():
            declared = self._catalog.table(type_id)
            for column in (ID, "src"):
                mine = {
                    n: one.entity_id
                    for n, one in enumerate(violations)
                    if (one.entity_kind, one.type_name) == (declared.kind.value, declared.name)
                    and one.entity_id is not None
                    and column_of(one) == column
                }
                if not mine:
                    continue
                handle = self._store.reads.handle(declared.table_id, given.version)
                numbers = row_numbers(handle, column, set(mine.values()))
                last = {n: max(numbers[value]) for n, value in mine.items() if value in numbers}
                places = self._places(type_id, declared.name, given.stretches, set(last.values()))
                for n, number in last.items():
                    one, place = violations[n], places[number]
                    found[n] = replace(one, place=place, message=f"{place}: {one.message}")
        return found

    def _places(
        self, type_id: str, name: str, stretches: tuple[Stretch, ...], numbers: Iterable[int]
    ) -> dict[int, str]:
        """Return the places of some rows of a type."""
        ends = list(accumulate(one.rows for one in stretches))
        by_stretch: dict[int, dict[int, int]] = defaultdict(dict)  # stretch -> row in it -> number
        for number in numbers:
            index = bisect_right(ends, number)
            by_stretch[index][number - (ends[index] - stretches[index].rows)] = number
        found: dict[int, str] = {}
        for index, wanted in by_stretch.items():
            stretch = stretches[index]
            origin = f"<{name}>" if stretch.source is None else stretch.source.name
            if stretch.runs is not None:
                found |= {n: f"{origin}:{_in_runs(stretch.runs, row)}" for row, n in wanted.items()}
            elif stretch.source is not None:
                again = _read_again(stretch.source, self._catalog, type_id, set(wanted))
                found |= {wanted[row]: place for row, place in again.items()}
        return found


def column_of(violation: Violation) -> str:
    """Return the column that holds what a violation names: cardinality names the source of edges."""
    return "src" if violation.code == "cardinality" else ID


def row_addresses(handle: Handle, column: str, values: Iterable[str]) -> dict[str, list[int]]:
    """Return where a version has rows with each value, ascending: in the order of the input."""
    fragments = [one.fragment_id for one in handle.get_fragments()]
    found = scan_where_in(handle, column, pa.array(sorted(values), pa.string()), fragments, [column, ADDRESS])
    addresses: dict[str, list[int]] = defaultdict(list)
    for value, at in zip(found[column].to_pylist(), found[ADDRESS].to_pylist(), strict=True):
        addresses[value].append(at)
    return {value: sorted(several) for value, several in addresses.items()}


def row_numbers(handle: Handle, column: str, values: Iterable[str]) -> dict[str, list[int]]:
    """Return which rows of a version have each value, counted in the order of its fragments."""
    fragments = sorted(handle.get_fragments(), key=lambda one: one.fragment_id)
    counts = accumulate((one.physical_rows for one in fragments), initial=0)
    before = dict(zip((one.fragment_id for one in fragments), counts, strict=False))
    found = row_addresses(handle, column, values)
    return {value: [before[at >> 32] + (at & OFFSET_MASK) for at in some] for value, some in found.items()}


def _read_again(source: Source, catalog: Catalog, type_id: str, rows: set[int]) -> dict[int, str]:
    """Return the places of some rows of one type."""
    found: dict[int, str] = {}
    done = 0
    for block in source.blocks(catalog, Problems(), lambda _: None):
        if block.declared.id == type_id:
            here = [row for row in rows if done <= row < done + block.rows.num_rows]
            found |= {row: block.place(row - done) for row in here}
            done += block.rows.num_rows
            if len(found) == len(rows):
                break
    return found


def _in_runs(runs: Runs, number: int) -> int:
    for first, many in runs:
        if number < many:
            return first + number
        number -= many
    raise AssertionError("a row beyond the rows of its piece")
