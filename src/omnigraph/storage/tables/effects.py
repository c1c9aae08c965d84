"""Effects: what a write does to one table, as plain values.

Room    storage.tables. Pure: an effect says what, `stage.py` does it.
Rule    rows are whole rows with an `id` column; no row is ever patched in place (lance-facts B4).
        An effect must be readable more than once: a writer that lost a race stages it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa
from lance.fragment import FragmentMetadata

from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.index_specs import IndexSpec, IndexWork
from omnigraph.storage.tables.predicate import Predicate
from omnigraph.storage.tables.written import Written

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
class DeleteWhere:
    """Remove the rows for which a typed predicate is true (null keeps the row)."""

    predicate: Predicate


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
    """Bring indexes up to all rows; `work` tells what came of it. No row changes."""

    specs: tuple[IndexSpec, ...]
    work: IndexWork = field(default_factory=IndexWork)


@dataclass(frozen=True)
class Several:
    """Effects on one table, one after the other, published together."""

    effects: tuple[Effect, ...]


Effect = (
    Append
    | Upsert
    | Replace
    | DeleteIds
    | DeleteWhere
    | Overwrite
    | AddColumn
    | DropColumn
    | RenameColumn
    | FillNulls
    | BuildIndexes
    | Several
)


def depends_on_rows(effect: Effect) -> bool:
    """Say whether the rows found decide what is written, so that a move of the table is a conflict."""
    match effect:
        case Several(effects):
            return any(map(depends_on_rows, effects))
        case AddColumn(_, fill, copy_from):
            return fill is not None or copy_from is not None
        case _:
            return isinstance(effect, DeleteIds | DeleteWhere | Overwrite | FillNulls)


def written_in(effect: Effect) -> tuple[Written, ...]:
    """Return the rows that an effect found written."""
    match effect:
        case Several(effects):
            return tuple(one for part in effects for one in written_in(part))
        case Append(rows) | Overwrite(rows) | Replace(rows) if isinstance(rows, Written):
            return (rows,)
        case _:
            return ()
