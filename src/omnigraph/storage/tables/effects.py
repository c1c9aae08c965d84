"""Effects: what a write does to one table, as plain values; stage.py carries them out.

Rows are whole rows with an `id` column; no row is ever patched in place (lance-facts B4). An effect must be
readable more than once: a writer that lost a race stages it again. The rows of an effect may lie in files
already, written by other processes (`Written`); the indexes that a table should have are values too
(`IndexSpec`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from lance import Index, LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK, Layout, Offsets, data_files

# -- index specs -----------------------------------------------------------------------------------
#
# The indexes that a table should have, and what came of building them (indexes.py).


NO_VECTORS = "no vectors yet"


class StoredIndexKind(Enum):
    """What Lance calls the index."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    VECTOR = "IVF_FLAT"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index that a column should have."""

    column: str
    kind: StoredIndexKind

    @property
    def name(self) -> str:
        """What the index is called in the table."""
        return f"{self.column}_idx"


@dataclass(frozen=True)
class Lack:
    """What the next segment of an index must cover, the segments it replaces, and those that are stored."""

    fragments: tuple[int, ...]
    replaces: frozenset[str]
    stored: Mapping[str, frozenset[int]]  # segment -> the fragments of it that are still there


@dataclass(frozen=True, eq=False)
class Built:
    """A segment, the data files of the fragments it covers, and the segments it replaces."""

    segment: Index
    files: Mapping[int, list[str]]
    replaces: frozenset[str]

    def fits(self, layout: Layout, stored: Mapping[str, frozenset[int]]) -> bool:
        """Say whether the segment is right on another version too, given the segments that are stored there.

        Fragments that are gone do no harm; one that another segment covers by now would be found twice.
        """
        left = {n: files for n, files in self.files.items() if n in layout.parts}
        same = all(data_files(layout.parts[n].metadata) == files for n, files in left.items())
        others = {n for uuid, fragments in stored.items() if uuid not in self.replaces for n in fragments}
        return bool(left) and same and self.replaces <= stored.keys() and left.keys().isdisjoint(others)


@dataclass(eq=False)
class IndexWork:
    """What came of an effect on its last staging, and the segments it built so far."""

    created: set[IndexSpec] = field(default_factory=set)
    extended: set[IndexSpec] = field(default_factory=set)
    pending: dict[IndexSpec, str] = field(default_factory=dict)
    built: dict[IndexSpec, Built] = field(default_factory=dict)


# -- rows that are written already -----------------------------------------------------------------
#
# Bulk work writes data files in many processes, at a version that the writers agreed on, and hands over the
# fragments as text; `Append`, `Replace` and `Overwrite` take it from there. Nothing names the files until a
# manifest does. Only what a writer reports counts: attempts that failed leave files that nothing ever names.


ROWS_PER_FILE = 1 << 20
COMMIT_RETRIES = 5


@dataclass(frozen=True, eq=False)
class Written:
    """Rows that lie in files of the table already."""

    fragments: tuple[FragmentMetadata, ...]
    since: int  # the version of the branch before the first file was written: a later sweep may take them

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(fragment.num_rows for fragment in self.fragments)

    @property
    def nbytes(self) -> int:
        """How large the files are."""
        return sum(file.file_size_bytes or 0 for part in self.fragments for file in part.files)

    def files(self) -> Iterator[str]:
        """Yield what must be durable before the rows are published, relative to the table."""
        for fragment in self.fragments:
            for path in data_files(fragment):
                yield f"data/{path}"
                yield f"data/{path.removesuffix('.lance')}/"


def write_rows(base: Handle, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Write rows as new files beside those of a version; return the fragments as texts that travel."""
    schema = base.schema
    ordered = (batch.select(schema.names).cast(schema) for batch in batches)
    rows = pa.RecordBatchReader.from_batches(schema, ordered)
    with durable(Step.TABLE_DATA):
        new = write_fragments(rows, base, schema=schema, mode="append", max_rows_per_file=ROWS_PER_FILE)
    return [json.dumps(fragment.to_json()) for fragment in new]


def fragments_of(texts: Iterable[str]) -> tuple[FragmentMetadata, ...]:
    """Return fragments that came as texts."""
    return tuple(FragmentMetadata.from_json(text) for text in texts)


def alone(base: Handle, written: Written) -> Handle:
    """Return a version that has these rows and no others; nothing ever pins it."""
    operation = LanceOperation.Update(
        removed_fragment_ids=sorted(fragment.fragment_id for fragment in base.get_fragments()),
        new_fragments=list(written.fragments),
        update_mode="rewrite_rows",
    )
    return _detached(base, operation)


def without(handle: Handle, fragment_id: int, offsets: Sequence[int]) -> list[str]:
    """Write the rows of a fragment anew, but for some."""
    gone = pa.array(sorted(offsets), pa.uint64())
    scan = scanner(handle, fragments=[handle.get_fragment(fragment_id)], with_row_address=True)

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in scan.to_batches():
            row_offsets = pa.compute.bit_wise_and(batch[ADDRESS], pa.scalar(OFFSET_MASK, pa.uint64()))
            left = batch.filter(pa.compute.invert(pa.compute.is_in(row_offsets, value_set=gone)))
            yield left.drop_columns([ADDRESS])

    return write_rows(handle, kept())


def rewritten(handle: Handle, written: Written, anew: Mapping[int, Iterable[str]]) -> Written:
    """Return written rows with some fragments of the version that has them alone made anew."""
    fragments: list[FragmentMetadata] = []
    # Their numbers ascend in the order they were written.
    numbers = sorted(stored.fragment_id for stored in handle.get_fragments())
    for number, fragment in zip(numbers, written.fragments, strict=True):
        fragments += fragments_of(anew[number]) if number in anew else [fragment]
    return Written(tuple(fragments), written.since)


def drop_rows(handle: Handle, fragment_id: int, offsets: Offsets) -> str | None:
    """Write a deletion file for rows of a fragment; return the fragment as it is then, None if empty."""
    with durable(Step.TABLE_DELETIONS):
        left = handle.get_fragment(fragment_id).delete_rows(offsets.tolist())
    return None if left is None else json.dumps(left.to_json())


def _detached(base: Handle, operation: Any) -> Handle:
    with durable(Step.TABLE_COMMIT):
        return LanceDataset.commit(
            base, operation, read_version=base.version, detached=True, max_retries=COMMIT_RETRIES
        )


# -- effects -------------------------------------------------------------------------------------


ID = "id"


class RowSource(Protocol):
    """Rows too many to hold: a fresh stream on every call."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        ...

    def reader(self) -> pa.RecordBatchReader:
        """Start reading from the beginning."""
        ...


Rows: TypeAlias = "pa.Table | RowSource | Written"


@dataclass(frozen=True, eq=False)
class Append:
    """Add rows whose ids are known to be new; never probes for them."""

    rows: Rows


@dataclass(frozen=True, eq=False)
class Upsert:
    """Replace the rows that have these ids, insert the others, and remove the ids in `remove`."""

    rows: pa.Table
    remove: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


@dataclass(frozen=True, eq=False)
class Removal:
    """How a version loses rows: fragments that changed, fragments that go, and rows kept in new files."""

    rows: int
    changed: tuple[FragmentMetadata, ...] = ()
    gone: frozenset[int] = frozenset()
    kept: tuple[FragmentMetadata, ...] = ()


class Remover(Protocol):
    """Whoever takes the rows that a write replaces out of a version; asked again on a newer one."""

    def __call__(self, base: Handle) -> Removal:
        """Say how the version loses them."""
        ...


@dataclass(frozen=True, eq=False)
class Replace:
    """Replace the rows that have the ids of rows written already, insert the others."""

    rows: Written
    remover: Remover


@dataclass(frozen=True, eq=False)
class DeleteIds:
    """Remove rows by id; ids that are not there are fine."""

    ids: pa.Array


@dataclass(frozen=True, eq=False)
class Overwrite:
    """Replace the whole content."""

    rows: Rows


@dataclass(frozen=True)
class AddColumn:
    """Add a column; existing rows get `fill`, or the values of another column cast to the new type.

    With neither they get null, which touches no data file.
    """

    column: pa.Field
    fill: pa.Scalar | None = None
    copy_from: str | None = None


@dataclass(frozen=True)
class DropColumn:
    """Remove a column from the current version; earlier versions keep it."""

    name: str


@dataclass(frozen=True)
class RenameColumn:
    """Give a column another name; touches no data file."""

    name: str
    to: str


@dataclass(frozen=True)
class FillNulls:
    """Give a value to the rows that have none in a column."""

    column: str
    value: pa.Scalar


@dataclass(frozen=True, eq=False)
class BuildIndexes:
    """Bring indexes up to all rows; `work` tells what came of it. No row changes.

    Segments that are `broken` count as if they covered nothing: they are replaced.
    """

    specs: tuple[IndexSpec, ...]
    work: IndexWork = field(default_factory=IndexWork)
    broken: frozenset[str] = frozenset()
    finished: Callable[[], None] = lambda: None  # is called whenever it was staged


@dataclass(frozen=True, eq=False)
class Source:
    """A fragment that was read to be written anew, and which of its rows were deleted then."""

    files: str  # as in the key of its layout
    rows: int  # deleted ones too
    deleted: Offsets

    @property
    def kept(self) -> int:
        """How many of its rows were written anew."""
        return self.rows - len(self.deleted)


@dataclass(frozen=True, eq=False)
class Rewritten:
    """The living rows of some fragments, in their order, in new files that nothing names yet."""

    columns: bytes
    sources: tuple[Source, ...]
    written: Written


@dataclass(eq=False)
class CompactWork:
    """What is remembered between stagings: the numbers of the new fragments, and whether they have hashes."""

    numbers: tuple[int, ...] = ()
    derived: bool = False
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Compact:
    """Put rows written anew in the place of the fragments that they were read from. No row changes.

    On a version that has lost some of these rows meanwhile they are deleted from the new fragments too;
    where more than `most_lost` of them are gone, nothing happens.
    """

    rewritten: Rewritten
    most_lost: float
    work: CompactWork = field(default_factory=CompactWork)


@dataclass(frozen=True)
class SeveralEffects:
    """Effects on one table, one after the other, published together."""

    effects: tuple[Effect, ...]


Effect = (
    Append
    | Upsert
    | Replace
    | DeleteIds
    | Overwrite
    | AddColumn
    | DropColumn
    | RenameColumn
    | FillNulls
    | BuildIndexes
    | Compact
    | SeveralEffects
)


def depends_on_rows(effect: Effect) -> bool:
    """Say whether the rows found decide what is written, so that a move of the table is a conflict."""
    match effect:
        case SeveralEffects(effects):
            return any(map(depends_on_rows, effects))
        case AddColumn(_, fill, copy_from):
            return fill is not None or copy_from is not None
        case _:
            return isinstance(effect, DeleteIds | Overwrite | FillNulls)


def written_in(effect: Effect) -> tuple[Written, ...]:
    """Return the rows that an effect found written."""
    match effect:
        case SeveralEffects(effects):
            return tuple(rows for part in effects for rows in written_in(part))
        case Append(rows) | Overwrite(rows) | Replace(rows) if isinstance(rows, Written):
            return (rows,)
        case Compact(rewritten):
            return (rewritten.written,)
        case _:
            return ()
