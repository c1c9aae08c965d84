"""Places: where in the input the rows came from that a check of many rows found wrong.

Room    pipeline.bulk. Rows do not carry their places into the files. Fragments are in the order of the input,
        so the address of a row says which row of which piece it was; only then, and only for the rows that
        are reported, a piece is read again where its lines do not follow one another.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from urllib.parse import urlparse

import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.base.errors import ConstraintViolation, InvalidRequest, StorageError
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.validate.evaluate import Question
from omnigraph.engine.validate.relation import Executor, Join, Shared, Violation
from omnigraph.pipeline.bulk.load_task import Runs
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.keys import scan_where_in
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK


@dataclass(frozen=True)
class Stretch:
    """The rows of one type that one piece of the input gave."""

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


def _read_again(source: LoadSource, catalog: Catalog, type_id: str, rows: set[int]) -> dict[int, str]:
    """Return the places of some rows of one type."""
    found: dict[int, str] = {}
    done = 0
    for block in source.blocks(catalog, LoadProblems(), lambda _: None):
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


# -- rejects -------------------------------------------------------------------------------------
#
# Rows that break a rule, set aside so that the others can be loaded.
# questions -> answers -> **culprits** -> rows that go -> asked again, until nothing is wrong
#
# Rule    of several rows with one id or one unique value the first is kept, by the order of the input or
# of the
# ids; an edge without its node goes; where the number of edges of a source is wrong, all edges of that
# source that the load brought go. What no row of the input is to blame for is raised.


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


def culprits(asked: Iterable[Question], executor: Executor) -> list[Culprit]:
    """Return the rows that break the first rule that is broken, of all types: other rules depend on it."""
    wrong: list[Culprit] = []
    for question in asked:
        relation = question.relation
        if isinstance(relation, Shared):
            found = _sharers(question, relation, executor)
        else:
            answer = executor.ask(relation, question.order, MOST)
            _check_total(answer.total)
            found = [_culprit(question.means(row)) for row in answer.rows]
        if not wrong or (found and found[0].violation.code == wrong[0].violation.code):
            wrong += found
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
    return Culprit(violation, column_of(violation), violation.entity_id, but_first)


def check_any_went(found: Sequence[Culprit], went: int) -> None:
    """Raise what no row of the input is to blame for."""
    if went == 0:
        first = found[0].violation
        raise ConstraintViolation(
            f"stored rows would break a rule, which rejecting rows of the input cannot mend: {first.message}",
            remedy="Nothing was changed",
            violations=[asdict(one.violation) for one in found[:20]],
            total=len(found),
        )


def _check_total(total: int) -> None:
    if total > MOST:
        raise ConstraintViolation(
            f"{total} rows would be rejected, more than {MOST}",
            remedy="Nothing was changed; look at what the input is",
            violations=[],
            total=total,
        )


def write_rejects(place: str, store: GraphStore, rejected: Sequence[Violation]) -> None:
    """Write the reject table to a file, or to an object of a store; when it returns, the table is durable."""
    columns = [
        [one.type_name for one in rejected],
        [one.entity_id for one in rejected],
        [one.property for one in rejected],
        [one.code for one in rejected],
        [one.value for one in rejected],
        [one.message for one in rejected],
        [one.place for one in rejected],
    ]
    table = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)
    target = store.location.reach(place)
    try:
        with target.new_file() as file:
            pq.write_table(table, file)
    except OSError as error:
        raise StorageError(
            f"the reject table cannot be written to {place!r}: {error}",
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
    place = Location.parse(rejects)
    if not place.is_local and not urlparse(place.uri).path.strip("/"):
        raise InvalidRequest(f"the reject table is a file, not {rejects!r}", remedy="Name a file below it")
    return place.uri
