"""Row locations: where in the input a row stood that breaks a rule, and the table of rows that were rejected.

Rows do not carry their origin and position into the files. Fragments are in the order of the input, so the
address of a row says which row of which split it was; only then, and only for the rows that are reported, a
split is read again where its lines do not follow one another.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from urllib.parse import urlparse

import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import ConstraintViolation, InvalidRequest, StorageError
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.load.draft import entity_column
from omnigraph.engine.validate.evaluate import Question
from omnigraph.engine.validate.relation import SHOWN, Executor, Join, Shared, Violation
from omnigraph.pipeline.bulk.load_task import Runs
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.keys import scan_where_in
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK

RowLocation = tuple[str, int]  # the origin of a row and its position there


@dataclass(frozen=True)
class Stretch:
    """The rows of one type that one split, or partition, of the input gave."""

    source: LoadSource | None  # None: a DataFrame
    rows: int
    runs: Runs | None


@dataclass(frozen=True)
class StagedRows:
    """All rows of one type as they were given: a version that holds them, and where they are from."""

    version: int
    stretches: tuple[Stretch, ...]


class RowLocations:
    """Finds rows of an input by their ids."""

    def __init__(self, store: GraphStore, catalog: Catalog, given: Mapping[str, StagedRows]) -> None:
        self._store = store
        self._catalog = catalog
        self._given = given  # by type id

    def located(self, violations: Sequence[Violation]) -> list[Violation]:
        """Say of each violation where the last row is that it is about, if the input has one."""
        located = list(violations)
        for type_id, given in self._given.items():
            declared = self._catalog.table(type_id)
            for column in (ID, "src"):
                entity_ids = {
                    n: violation.entity_id
                    for n, violation in enumerate(violations)
                    if (violation.entity_kind, violation.type_name) == (declared.kind.value, declared.name)
                    and violation.entity_id is not None
                    and entity_column(violation) == column
                }
                if not entity_ids:
                    continue
                handle = self._store.reads.handle(declared.table_id, given.version)
                numbers = row_numbers(handle, column, set(entity_ids.values()))
                last = {n: max(numbers[value]) for n, value in entity_ids.items() if value in numbers}
                locations = self._locations(type_id, declared.name, given.stretches, set(last.values()))
                for n, number in last.items():
                    origin, position = locations[number]
                    located[n] = replace(violations[n], origin=origin, position=position)
        return located

    def _locations(
        self, type_id: str, name: str, stretches: tuple[Stretch, ...], numbers: Iterable[int]
    ) -> dict[int, RowLocation]:
        """Return the locations of some rows of a type."""
        ends = list(accumulate(stretch.rows for stretch in stretches))
        by_stretch: dict[int, dict[int, int]] = defaultdict(dict)  # stretch -> row in it -> number
        for number in numbers:
            index = bisect_right(ends, number)
            by_stretch[index][number - (ends[index] - stretches[index].rows)] = number
        locations: dict[int, RowLocation] = {}
        for index, rows in by_stretch.items():
            stretch = stretches[index]
            origin = f"<{name}>" if stretch.source is None else stretch.source.name
            if stretch.runs is not None:
                locations |= {n: (origin, _in_runs(stretch.runs, row)) for row, n in rows.items()}
            elif stretch.source is not None:
                again = _read_again(stretch.source, self._catalog, type_id, set(rows))
                locations |= {rows[row]: location for row, location in again.items()}
        return locations


def row_addresses(handle: Handle, column: str, values: Iterable[str]) -> dict[str, list[int]]:
    """Return where a version has rows with each value, ascending: in the order of the input."""
    fragments = [fragment.fragment_id for fragment in handle.get_fragments()]
    rows = scan_where_in(handle, column, pa.array(sorted(values), pa.string()), fragments, [column, ADDRESS])
    addresses: dict[str, list[int]] = defaultdict(list)
    for value, address in zip(rows[column].to_pylist(), rows[ADDRESS].to_pylist(), strict=True):
        addresses[value].append(address)
    return {value: sorted(of_value) for value, of_value in addresses.items()}


def row_numbers(handle: Handle, column: str, values: Iterable[str]) -> dict[str, list[int]]:
    """Return which rows of a version have each value, counted in the order of its fragments."""
    fragments = sorted(handle.get_fragments(), key=lambda fragment: fragment.fragment_id)
    counts = accumulate((fragment.physical_rows for fragment in fragments), initial=0)
    before = dict(zip((fragment.fragment_id for fragment in fragments), counts, strict=False))
    addresses = row_addresses(handle, column, values)
    return {
        value: [before[address >> 32] + (address & OFFSET_MASK) for address in of_value]
        for value, of_value in addresses.items()
    }


def _read_again(source: LoadSource, catalog: Catalog, type_id: str, rows: set[int]) -> dict[int, RowLocation]:
    """Return the locations of some rows of one type."""
    locations: dict[int, RowLocation] = {}
    done = 0
    for block in source.blocks(catalog, LoadProblems(), lambda _: None):
        if block.declared.id == type_id:
            here = [row for row in rows if done <= row < done + block.rows.num_rows]
            locations |= {row: (block.origin, block.position(row - done)) for row in here}
            done += block.rows.num_rows
            if len(locations) == len(rows):
                break
    return locations


def _in_runs(runs: Runs, number: int) -> int:
    for first, many in runs:
        if number < many:
            return first + number
        number -= many
    raise AssertionError("a row beyond the rows of its split")


# -- rejected rows -----------------------------------------------------------------------------------
#
#   questions -> answers -> **culprits** -> rows that are left out -> asked again, until nothing is wrong
#
# Of several rows with one id or one unique value the first is kept, by the order of the input or of the ids;
# an edge without its node is left out; where the number of edges of a source is wrong, all edges of that
# source that the load brought are left out. What no row of the input is to blame for is raised.


MOST = 1_000_000  # beyond this an input is wrong as a whole
COLUMNS = ("type", "id", "property", "code", "value", "message", "place")
SCHEMA = pa.schema([pa.field(name, pa.string()) for name in COLUMNS])


@dataclass(frozen=True)
class Culprit:
    """Rows of the input to set aside: those with a value in a column, or all of them but the first."""

    violation: Violation
    column: str
    value: str
    but_first: bool = False


def culprits(every: Iterable[Question], executor: Executor) -> list[Culprit]:
    """Return the rows that break the first rule that is broken, of all types: other rules depend on it."""
    wrong: list[Culprit] = []
    for question in every:
        relation = question.relation
        if isinstance(relation, Shared):
            rows = _sharers(question, relation, executor)
        else:
            answer = executor.ask(relation, question.order, MOST)
            _check_total(answer.total)
            rows = [_culprit(question.means(row)) for row in answer.rows]
        if not wrong or (rows and rows[0].violation.code == wrong[0].violation.code):
            wrong += rows
    return wrong


def _sharers(question: Question, relation: Shared, executor: Executor) -> list[Culprit]:
    """Return all rows that share something but the first."""
    if relation.by == (relation.holder,):
        answer = executor.ask(relation, question.order, MOST)
        _check_total(answer.total)
        return [_culprit(question.means(row), but_first=True) for row in answer.rows]
    every = Join(relation.of, relation, relation.by)
    answer = executor.ask(every, (*relation.by, relation.holder), MOST)
    _check_total(answer.total)
    return [
        _culprit(question.means({**row, "least": row[relation.holder], "greatest": row["least"]}))
        for row in answer.rows
        if row[relation.holder] != row["least"]
    ]


def _culprit(violation: Violation, but_first: bool = False) -> Culprit:
    if violation.entity_id is None:
        raise AssertionError("a set check that names no entity")
    return Culprit(violation, entity_column(violation), violation.entity_id, but_first)


def check_any_removed(wrong: Sequence[Culprit], removed: int) -> None:
    """Raise what no row of the input is to blame for."""
    if removed == 0:
        first = wrong[0].violation
        raise ConstraintViolation(
            f"stored rows would break a rule, which rejecting rows of the input cannot mend: {first.text}",
            remedy="Nothing was changed",
            violations=[culprit.violation.to_json() for culprit in wrong[:SHOWN]],
            total=len(wrong),
        )


def _check_total(total: int) -> None:
    if total > MOST:
        raise ConstraintViolation(
            f"{total} rows would be rejected, more than {MOST}",
            remedy="Nothing was changed; look at what the input is",
            violations=[],
            total=total,
        )


def write_rejects(path: str, store: GraphStore, rejected: Sequence[Violation]) -> None:
    """Write the reject table to a file, or to an object of a store; when it returns, the table is durable."""
    rows = [(v.type_name, v.entity_id, v.property, v.code, v.value, v.message, v.place) for v in rejected]
    columns = zip(*rows, strict=True)
    table = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)
    target = store.location.reach(path)
    try:
        with target.new_file() as file:
            pq.write_table(table, file)
    except OSError as error:
        raise StorageError(
            f"the reject table cannot be written to {path!r}: {error}",
            remedy="Nothing was published; give a file that can be written, then try again",
            storage_kind="permanent",
        ) from error
    if target.is_local:
        store.syncer.files([target.uri])


def reject_file(rejects: str | os.PathLike[str] | None) -> str:
    """Return where the reject table goes, if it can be a file."""
    if rejects is None:
        raise InvalidRequest(
            "rows are to be rejected, and nothing says where to",
            remedy="Give rejects='path/to/rejects.parquet'",
        )
    location = Location.parse(rejects)
    if not location.is_local and not urlparse(location.uri).path.strip("/"):
        raise InvalidRequest(f"the reject table is a file, not {rejects!r}", remedy="Name a file below it")
    return location.uri
