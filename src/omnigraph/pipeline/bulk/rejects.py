"""Rejects: rows that break a rule, set aside so that the others can be loaded.

    questions -> answers -> **culprits** -> rows that go -> asked again, until nothing is wrong

Room    pipeline.bulk.
Rule    of several rows with one id or one unique value the first is kept, by the order of the input or of the
        ids; an edge without its node goes; where the number of edges of a source is wrong, all edges of that
        source that the load brought go. What no row of the input is to blame for is raised.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlparse

import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.base.errors import ConstraintViolation, InvalidRequest, StorageError
from omnigraph.engine.validate.findings import Violation
from omnigraph.engine.validate.questions import Question
from omnigraph.engine.validate.relation import Executor, Join, Shared
from omnigraph.pipeline.bulk.places import column_of
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore

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
