"""Rows: no id stands twice, every edge has its ends, keys derive, and every constraint holds.

Rows are judged by the evaluator of writes (engine/validate), as if they were written now. Ids and ends are
looked at in all rows. Values are looked at in all rows where those are few, or in a deep examination; of
more, in the first ones of each fragment. Everything streams: no table has to fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.keys import derive_ids
from omnigraph.catalog.model import (
    ENDPOINTS,
    ID,
    Cardinality,
    EdgeType,
    Property,
    TableType,
    Unique,
)
from omnigraph.catalog.types import FLOATS, Scalar
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.doctor.examination import Examination, ExaminedTable
from omnigraph.engine.doctor.report import DoctorFinding
from omnigraph.engine.validate.evaluate import (
    Question,
    in_order,
    judge_sets,
    question_of_ids,
    questions_of_ends,
    questions_of_stored,
)
from omnigraph.engine.validate.executors import FrameExecutor
from omnigraph.engine.validate.relation import Findings
from omnigraph.engine.validate.values import value_findings
from omnigraph.storage.derived.key_hashes import hashes_of
from omnigraph.storage.tables.inspection import some_rows
from omnigraph.storage.transaction import PinnedSnapshot

if TYPE_CHECKING:
    from datafusion import SessionContext

    from omnigraph.storage.tables.reads import TableReads

FEW_ROWS = 1_000_000  # of a type: so many are all judged, whatever was asked for
SAMPLED = 100_000  # rows of a larger type that are judged
HASHED = 1 << 25  # hashes of ids that are held at once, 8 bytes each
MEND = "Write the rows anew through the engine, or delete them; something else than this engine wrote them"
SHOWN = 20
TableAndType = tuple[ExaminedTable, TableType]


@dataclass(frozen=True)
class _StoredRows:
    """The rows of a state, as the executor of questions takes them."""

    reads: TableReads
    snapshot: PinnedSnapshot

    def frame(self, context: SessionContext, table_id: str) -> Any:
        """Return all rows of a table."""
        return self.reads.frame(context, table_id, self.snapshot.pin(table_id).version)


def _asked(exam: Examination, table: ExaminedTable, questions: Iterable[Question]) -> Findings:
    catalog = exam.catalogs.get(table.snapshot.schema)
    stored = _StoredRows(exam.store.reads, table.snapshot)
    return judge_sets(questions, FrameExecutor(ChangeSet(catalog, {}), stored))


def _reported(table: ExaminedTable, findings: Findings, code: str | None = None) -> Iterator[DoctorFinding]:
    for violation in findings.violations:
        where = table.place(row=violation.entity_id)
        yield DoctorFinding(code or violation.code, "error", violation.message, MEND, where)
    more = findings.total - len(findings.violations)
    if more:
        what = f"{more} more rows of {table.pin.name!r} are wrong in the same way"
        yield DoctorFinding(code or findings.violations[0].code, "error", what, MEND, table.place())


# -- ids and ends ------------------------------------------------------------------------------------


def ids(exam: Examination, unit: TableAndType) -> Iterator[DoctorFinding]:
    """Check that no two rows of a type have one id."""
    table, declared = unit
    if _all_differ(exam, table):
        return
    yield from _reported(table, _asked(exam, table, [question_of_ids(declared)]), "duplicate_id")


def _all_differ(exam: Examination, table: ExaminedTable) -> bool:
    """Say whether all ids differ for certain: those with different hashes do. A share of them at a time."""
    shares = table.pin.rows // HASHED + 1
    for share in range(shares):
        kept: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
        for batch in exam.store.reads.scan(*table.key, [ID]):
            if batch[ID].null_count:
                return False
            hashes = hashes_of(batch[ID])
            kept.append(hashes if shares == 1 else hashes[hashes % np.uint64(shares) == share])
        every = np.concatenate(kept) if kept else np.zeros(0, np.uint64)
        every.sort()
        if bool((every[1:] == every[:-1]).any()):
            return False
    return True


def ends(exam: Examination, unit: tuple[ExaminedTable, EdgeType]) -> Iterator[DoctorFinding]:
    """Check that every edge has both its nodes."""
    table, declared = unit
    catalog = exam.catalogs.get(table.snapshot.schema)
    for node in dict.fromkeys((declared.source, declared.target)):
        pin = table.snapshot.state.pins.get(node)
        if pin is None or (node, pin.version) in exam.broken:
            exam.limits.append(f"{declared.name}: the nodes at its ends cannot be read")
            return
    findings = _asked(exam, table, questions_of_ends(catalog, declared))
    yield from _reported(table, findings, "dangling_edge")


# -- keys and constraints ----------------------------------------------------------------------------


def keys(exam: Examination, unit: TableAndType) -> Iterator[DoctorFinding]:
    """Check that ids are made of the keys."""
    table, declared = unit
    if not declared.key:
        return
    columns = [member.column for member in declared.key_members]
    wrong: list[tuple[str, str]] = []
    total = 0
    for batch in _judged(exam, table, [ID, *columns]):
        whole = batch.filter(_has_key(batch, declared))
        derived = derive_ids(whole, declared)
        differs = pc.fill_null(pc.not_equal(whole[ID], derived), True)
        count = int(pc.sum(differs).as_py() or 0)
        total += count
        if count and len(wrong) < SHOWN:
            pairs = zip(
                whole[ID].filter(differs).to_pylist(), derived.filter(differs).to_pylist(), strict=True
            )
            wrong += list(pairs)[: SHOWN - len(wrong)]
    for found, expected in wrong:
        what = f"the id of a {declared.name} is {found!r}, its key makes {expected!r}"
        yield DoctorFinding("wrong_id", "error", what, MEND, table.place(row=found))
    if total > len(wrong):
        what = f"{total - len(wrong)} more rows of {declared.name!r} have an id that their key does not make"
        yield DoctorFinding("wrong_id", "error", what, MEND, table.place())


def _has_key(batch: pa.RecordBatch, declared: TableType) -> pa.Array:
    """Mask the rows whose key is whole; the others break `required` or `key`, which constraints report."""
    whole = pa.repeat(pa.scalar(True), batch.num_rows)
    for member in declared.key_members:
        values = batch[member.column]
        present = pc.is_finite(values) if member.type.scalar in FLOATS else values.is_valid()
        whole = pc.and_(whole, pc.fill_null(present, False))
    return whole


def values(exam: Examination, unit: TableAndType) -> Iterator[DoctorFinding]:
    """Check what one row can break by itself: required, types, enums, ranges, patterns."""
    table, declared = unit
    fixed = [ID, *ENDPOINTS] if isinstance(declared, EdgeType) else [ID]
    columns = [*fixed, *(member.column for member in declared.properties if not _is_blob(member))]
    plain = declared if not any(map(_is_blob, declared.properties)) else _without_blobs(declared)
    parts = (value_findings(batch, plain) for batch in _judged(exam, table, columns))
    yield from _reported(table, in_order(part for part in parts if part.total))


def _is_blob(member: Property) -> bool:
    return member.type.scalar is Scalar.BLOB


def _without_blobs(declared: TableType) -> TableType:
    """Return a type less its blobs, whose content no constraint looks at."""
    kept = tuple(member for member in declared.properties if not _is_blob(member))
    return replace(declared, properties=kept)


def sets(exam: Examination, unit: TableAndType) -> Iterator[DoctorFinding]:
    """Check what rows can break together: unique values, and how many edges leave a node."""
    table, declared = unit
    constraints: list[Unique | Cardinality] = [c for c in declared.constraints if isinstance(c, Unique)]
    if isinstance(declared, EdgeType) and not declared.card.unlimited:
        constraints.append(declared.card)
    if not constraints or not table.pin.rows:
        return
    if not exam.deep and table.pin.rows > FEW_ROWS:
        exam.limits.append(
            f"{declared.name}: {table.pin.rows} rows; only --deep compares so many with each other"
        )
        return
    yield from _reported(table, _asked(exam, table, questions_of_stored(declared, constraints)))


def _judged(exam: Examination, table: ExaminedTable, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are judged one by one."""
    if exam.deep or table.pin.rows <= FEW_ROWS:
        yield from exam.store.reads.scan(*table.key, columns)
        return
    exam.limits.append(f"{table.pin.name}: {SAMPLED} of {table.pin.rows} rows were judged; --deep judges all")
    yield from some_rows(exam.handle(table), columns, SAMPLED)
