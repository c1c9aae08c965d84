"""Indexes: they cover what they say, and find what a scan finds.

What an index lacks is harmless: reads look at the rest by themselves, and maintenance completes it. An index
that does not find a row that it covers is not: queries would miss it. So rows of the fragments that it covers
are looked for through it. Without `deep` these are a few of each fragment; with `deep` all, but for vectors,
of which a bounded number is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import TableType
from omnigraph.engine.doctor.examination import Examination, ExaminedTable
from omnigraph.engine.doctor.lineage import told
from omnigraph.engine.doctor.report import DoctorFinding
from omnigraph.engine.indexes import declared_indexes
from omnigraph.engine.validate.executors import bounded_context, streamed
from omnigraph.engine.validate.values import shown
from omnigraph.execution.search.text_index import plain_word, words
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import IndexSpec, StoredIndexKind
from omnigraph.storage.tables.indexes import Coverage, coverage
from omnigraph.storage.tables.inspection import addressed, nearest, rows_with, rows_with_words
from omnigraph.storage.tables.layout import ADDRESS, Layout
from omnigraph.storage.tables.predicate import quoted

SAMPLED_FRAGMENTS, SAMPLED_ROWS = 8, 16  # that are looked for without `deep`
VALUES_AT_ONCE = 1_000
MOST_WORDS = 4  # of a sampled text
WORDS_AT_ONCE = 500
MOST_VECTORS = 10_000  # that are looked for with `deep`
NEIGHBOURS = 16
TEXTS_AT_ONCE = 1 << 16
REBUILD = "Let 'omnigraph doctor --fix' build it anew"
OPTIMIZE = "Run 'omnigraph optimize' when convenient; no answer depends on it"


@dataclass(frozen=True)
class _Index:
    """One index of one version, and the fragments of it that are looked at."""

    handle: Handle
    declared: TableType
    spec: IndexSpec
    fragments: tuple[int, ...]
    deep: bool

    @property
    def name(self) -> str:
        """The property that it is of."""
        return next(
            (p.name for p in self.declared.properties if p.column == self.spec.column), self.spec.column
        )

    @property
    def rows(self) -> int | None:
        """How many rows of each fragment are looked for; None means all."""
        return None if self.deep else SAMPLED_ROWS


def indexes(exam: Examination, unit: tuple[ExaminedTable, TableType]) -> Iterator[DoctorFinding]:
    """Check the indexes that the schema asks for."""
    table, declared = unit
    if not table.pin.rows:
        return
    handle = exam.handle(table)
    layout, lacking = exam.store.reads.layout(handle), []
    stored = coverage(handle, layout)
    for spec in declared_indexes(declared):
        covers = stored.get(spec.name, Coverage({}))
        fragments = _chosen(exam, covers, layout, spec)
        index = _Index(handle, declared, spec, fragments, exam.deep)
        if layout.parts.keys() - covers.fragments:
            lacking.append(index.name)
        segments = {(declared.id, uuid) for uuid in covers.segments}
        if not segments or segments & exam.broken_indexes:
            continue  # none is stored, or a file of it is damaged, which is reported already
        problem = _problem(exam, table, index)
        if problem is not None:
            exam.broken_indexes |= segments
            code, what = problem
            yield DoctorFinding(code, "error", what, REBUILD, table.place())
    heads = exam.heads_of(table)
    if lacking and heads:
        exam.behind.update(heads)
        what = f"indexes of {declared.name!r} do not cover all rows: {', '.join(sorted(lacking))}"
        yield DoctorFinding("index_behind", "info", what, OPTIMIZE, table.place())


def _chosen(exam: Examination, coverage: Coverage, layout: Layout, spec: IndexSpec) -> tuple[int, ...]:
    """Return the fragments to look at; rows of a file that these segments found before are found again."""
    segments, covered = tuple(sorted(coverage.segments)), []
    for fragment in sorted(coverage.fragments & layout.parts.keys()):
        seen = (spec.column, segments, layout.parts[fragment].key[1])
        if seen not in exam.looked_up:
            exam.looked_up.add(seen)
            covered.append(fragment)
    if exam.deep or len(covered) <= SAMPLED_FRAGMENTS:
        return tuple(covered)
    return tuple(covered[at] for at in np.linspace(0, len(covered) - 1, SAMPLED_FRAGMENTS).astype(int))


def _problem(exam: Examination, table: ExaminedTable, index: _Index) -> tuple[str, str] | None:
    """Say what is wrong with an index."""
    subject = f"{index.declared.name}.{index.name}"
    try:
        match index.spec.kind:
            case StoredIndexKind.BTREE:
                lost = _lost_values(exam, table, index)
            case StoredIndexKind.INVERTED:
                lost = _lost_texts(index)
            case StoredIndexKind.VECTOR:
                lost = _lost_vectors(exam, index)
    except Exception as error:  # noqa: BLE001 - reported here
        return "index_unreadable", f"the index of {subject} cannot be read: {told(error)}"
    return None if lost is None else ("index_wrong", f"the index of {subject} {lost}")


# -- ordered -----------------------------------------------------------------------------------------


def _lost_values(exam: Examination, table: ExaminedTable, index: _Index) -> str | None:
    """Look values up; each must be found where it stands, and nothing else."""
    if index.deep:
        return _lost_counts(exam, table, index)
    column = index.spec.column
    for fragment in index.fragments:
        for batch in addressed(index.handle, column, fragment, SAMPLED_ROWS):
            lost = _lost_among(index, batch.filter(batch[column].is_valid()))
            if lost is not None:
                return lost
    return None


def _lost_among(index: _Index, rows: pa.RecordBatch) -> str | None:
    """Look for some rows, by their values."""
    column = index.spec.column
    if not rows.num_rows:
        return None
    sought = pc.unique(rows[column])
    hits = rows_with(index.handle, column, sought)
    missed = pc.invert(pc.is_in(rows[ADDRESS], value_set=hits[ADDRESS].combine_chunks()))
    if pc.any(missed).as_py():
        return f"does not find a row with the value {shown(rows[column].filter(missed)[0].as_py())}"
    return _others(hits[column], sought)


def _lost_counts(exam: Examination, table: ExaminedTable, index: _Index) -> str | None:
    """Look every value up: as many rows as a scan counts must be found, and all must have the value.

    Rows that are found are different rows, so as many as there are, with the right value, are the right ones.
    """
    for values, counts in _counted_values(exam, table, index.spec.column):
        hits = rows_with(index.handle, index.spec.column, values)[index.spec.column]
        tallies = pc.value_counts(hits.combine_chunks()).to_pylist() if len(hits) else []
        by_value = {tally["values"]: tally["counts"] for tally in tallies}
        for value, count in zip(values.to_pylist(), counts, strict=True):
            hit = by_value.get(value, 0)
            if hit != count:
                return f"finds {hit} rows with the value {shown(value)}, and there are {count}"
        lost = _others(hits, values)
        if lost is not None:
            return lost
    return None


def _others(hits: pa.ChunkedArray, sought: pa.Array) -> str | None:
    others = pc.invert(pc.is_in(hits, value_set=sought))
    return "finds rows that have another value" if pc.any(others).as_py() else None


def _counted_values(
    exam: Examination, table: ExaminedTable, column: str
) -> Iterator[tuple[pa.Array, list[int]]]:
    """Yield all values of a column with the number of their rows, some at a time; groups spill to disk."""
    from datafusion import col
    from datafusion import functions as f

    context = bounded_context()
    rows = exam.store.reads.frame(context, *table.key).select(col(quoted(column)).alias("value"))
    grouped = rows.filter(col("value").is_not_null()).aggregate([col("value")], [f.count().alias("n")])
    kind = exam.handle(table).schema.field(column).type
    for batch in streamed(grouped):
        values, counts = batch["value"].cast(kind), batch["n"]
        if pa.types.is_floating(kind):  # both zeros are one value to a filter, and two to a group
            kept = pc.not_equal(values, pa.scalar(0, kind))
            values, counts = values.filter(kept), counts.filter(kept)
        for start in range(0, len(values), VALUES_AT_ONCE):
            part = slice(start, start + VALUES_AT_ONCE)
            yield values[part], counts[part].to_pylist()


# -- texts -------------------------------------------------------------------------------------------


def _lost_texts(index: _Index) -> str | None:
    """Look words up: the index may find more than search means, and never less (decision 0012)."""
    column = index.spec.column
    for fragment in index.fragments:
        postings: dict[str, list[int]] = {}
        texts = 0
        for batch in addressed(index.handle, column, fragment, index.rows):
            for text, address in zip(batch[column].to_pylist(), batch[ADDRESS].to_pylist(), strict=True):
                for word in _looked_up(text, index.deep):
                    postings.setdefault(word, []).append(address)
            texts += batch.num_rows
            if texts >= TEXTS_AT_ONCE:
                lost = _lost_words(index, postings)
                if lost is not None:
                    return lost
                postings, texts = {}, 0
        lost = _lost_words(index, postings)
        if lost is not None:
            return lost
    return None


def _looked_up(text: str | None, every: bool) -> list[str]:
    """Return the words of a text that the index is asked for, each once."""
    if text is None:
        return []
    plain = dict.fromkeys(plain_word(word) for word in words(text) if word.isascii())
    asked_for = [word for word in plain if word is not None]
    return asked_for if every else asked_for[:MOST_WORDS]


def _lost_words(index: _Index, postings: dict[str, list[int]]) -> str | None:
    for asked in _apart(postings):
        hits = rows_with_words(index.handle, index.spec.column, asked)
        expected = [address for word in asked for address in postings[word]]
        if not np.isin(expected, hits).all():
            hit_rows = set(hits.tolist())
            word = next(word for word in asked if not hit_rows.issuperset(postings[word]))
            return f"does not find a text that has the word {word!r}"
    return None


def _apart(postings: dict[str, list[int]]) -> Iterator[list[str]]:
    """Put words together that no text has two of: asked for at once, each must find its texts by itself."""
    left = sorted(postings, key=lambda word: (len(postings[word]), word))
    while left:
        taken: set[int] = set()
        asked: list[str] = []
        later: list[str] = []
        for place, word in enumerate(left):
            if len(asked) == WORDS_AT_ONCE:
                later += left[place:]
                break
            if taken.isdisjoint(postings[word]):
                asked.append(word)
                taken.update(postings[word])
            else:
                later.append(word)
        yield asked
        left = later


# -- vectors -----------------------------------------------------------------------------------------


def _lost_vectors(exam: Examination, index: _Index) -> str | None:
    """Look vectors up: the nearest row to a stored vector is itself, or one that has the same vector."""
    left = MOST_VECTORS
    for fragment in index.fragments:
        for batch in addressed(index.handle, index.spec.column, fragment, index.rows):
            present = batch.filter(batch[index.spec.column].is_valid()).slice(0, left)
            left -= present.num_rows
            pairs = zip(present[index.spec.column].to_pylist(), present[ADDRESS].to_pylist(), strict=True)
            for vector, address in pairs:
                hits = nearest(index.handle, index.spec.column, vector, NEIGHBOURS)
                same = (
                    hits.filter(pc.less_equal(hits["_distance"], hits["_distance"][0])) if len(hits) else hits
                )
                is_there = address in same["_rowid"].to_pylist()
                if not is_there and len(same) < NEIGHBOURS:
                    return f"does not find the vector of row {address}"
    if left <= 0:
        exam.limits.append(f"{index.declared.name}.{index.name}: {MOST_VECTORS} vectors were looked for")
    return None
