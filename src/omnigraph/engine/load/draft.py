"""Draft: an input that has been read, as a change in one of the three modes.

    source -> blocks -> spools -> **draft** -> judged, staged, published

Room    engine.load.
Modes   append     every id is new
        merge      an id that exists is replaced, whole; of several rows with one id the last counts
        overwrite  the types that appear (or are named) get exactly these rows
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.errors import InvalidRequest, ReadSetConflict
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType, NodeType, TableType
from omnigraph.engine.change import ChangeSet, TypeChange, last_of_each
from omnigraph.engine.load.conform import RowBlock
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.receipt import Loaded, TypeCount
from omnigraph.engine.validate.relation import Findings, Violation
from omnigraph.engine.write import Draft
from omnigraph.storage.transaction import WriteTxn

# -- spool ---------------------------------------------------------------------------------------
#
# The rows of an input by type, in memory while they are few and on disk beyond.
# Between reading, which happens once, and writing, which a lost race may repeat.
# Gives   Arrow tables over the whole input: mapped from the file when spilled, so that the system may
# drop
# pages it needs for something else.
# Bound   at most `limit` bytes of rows in memory for each type.


LIMIT = 64 << 20
ORIGIN, POSITION = "_origin", "_position"  # beside the stored columns, whose names never begin like this


class Spool:
    """All rows of one type, in the order given, each with its place."""

    def __init__(self, declared: TableType, folder: Path, limit: int = LIMIT) -> None:
        self.declared = declared
        self.minted = True
        self.rows = 0
        self._folder = folder
        self._limit = limit
        self._origins: list[str] = []
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._schema = pa.schema(
            [*declared.stored_schema, pa.field(ORIGIN, pa.int32()), pa.field(POSITION, pa.int64())]
        )

    @property
    def _path(self) -> Path:
        return self._folder / f"{self.declared.id}.arrow"

    def add(self, block: RowBlock) -> None:
        """Take in a block."""
        if not self._origins or self._origins[-1] != block.origin:
            self._origins.append(block.origin)
        origin = pa.repeat(pa.scalar(len(self._origins) - 1, pa.int32()), block.rows.num_rows)
        batch = pa.RecordBatch.from_arrays(
            [*block.rows.columns, origin, block.positions.cast(pa.int64())], schema=self._schema
        )
        self.minted = self.minted and block.minted
        self.rows += batch.num_rows
        self._bytes += batch.nbytes
        self._held.append(batch)
        if self._bytes > self._limit:
            self._spill()

    def _spill(self) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._path), self._schema)
        for batch in self._held:
            self._writer.write_batch(batch)
        self._held, self._bytes = [], 0

    def table(self) -> pa.Table:
        """Return all rows with their places."""
        if self._writer is None:
            return pa.Table.from_batches(self._held, self._schema)
        if self._held:
            self._spill()
        self._writer.close()
        with pa.memory_map(str(self._path)) as mapped:
            return pa.ipc.open_file(mapped).read_all()

    def place(self, row: dict[str, int]) -> str:
        """Say where a row came from."""
        return f"{self._origins[row[ORIGIN]]}:{row[POSITION]}"


class Spools:
    """The rows of a whole input. Use it as a context manager: the folder goes at the end."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._folder = tempfile.TemporaryDirectory(prefix="omnigraph-load-", ignore_cleanup_errors=True)
        self.by_type: dict[str, Spool] = {}

    def add(self, block: RowBlock) -> None:
        """Take in a block."""
        spool = self.by_type.get(block.declared.id)
        if spool is None:
            spool = Spool(block.declared, Path(self._folder.name), self._limit)
            self.by_type[block.declared.id] = spool
        spool.add(block)

    def close(self) -> None:
        """Remove what was spilled."""
        self._folder.cleanup()


def last_place(spool: Spool, given: pa.Table, column: str, value: str) -> str | None:
    """Say where the last row with a value in a column came from."""
    mask = pc.equal(given[column], value)
    rows = given.filter(mask).select([ORIGIN, POSITION])
    return spool.place(rows.slice(rows.num_rows - 1).to_pylist()[0]) if rows.num_rows else None


# -- draft ---------------------------------------------------------------------------------------


class WriteMode(Enum):
    """What happens to an id that exists."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"

    @classmethod
    def read(cls, text: str) -> WriteMode:
        """Return the mode of a name."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidRequest(
                f"there is no load mode {text!r}", remedy="Use 'append', 'merge' or 'overwrite'"
            ) from None


@dataclass(frozen=True)
class Input:
    """What a source gave, under one schema."""

    catalog: Catalog
    spools: dict[str, Spool]
    fingerprint: Fingerprint | None = None  # tells this input from another, where that was asked for

    @property
    def rows(self) -> int:
        """All rows of all types."""
        return sum(spool.rows for spool in self.spools.values())


class LoadDraft:
    """A load as a drafter; the same rows on every base."""

    def __init__(self, read: Input, mode: WriteMode, replaced: Iterable[str]) -> None:
        self._input = read
        self._mode = mode
        self._given = {type_id: spool.table() for type_id, spool in read.spools.items()}
        self._change = ChangeSet.of(read.catalog, self._changes(replaced))

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Return the change; of the base, it depends on where the schema keeps what the input names."""
        change = self._change
        if catalog.identity != self._input.catalog.identity:
            change = self._under(catalog)
        decided = frozenset(t for t, one in change.types.items() if one.replaces)
        return Draft(change, decided, self._rows_of(NodeType), self._rows_of(EdgeType), values_judged=True)

    def _under(self, catalog: Catalog) -> ChangeSet:
        """Return the change under another schema, by the names that the input uses.

        That takes no second reading where the types, and the ends of edges, are declared as they were; and
        it is not done where rows are replaced, since these may be others than the caller saw.
        """
        before = self._input.catalog
        changes = []
        for change in self._change.types.values():
            declared = change.declared
            find = catalog.find_node if isinstance(declared, NodeType) else catalog.find_edge
            now = find(declared.name)
            if now is None or change.replaces or not before.declares_alike(declared, catalog, now):
                raise ReadSetConflict("schema", expected=before.identity, actual=catalog.identity)
            rows = _under_columns(change.rows, declared, now).select(now.stored_schema.names)
            placed = None if change.given is None else _under_columns(change.given, declared, now)
            changes.append(replace(change, declared=now, rows=rows, given=placed))
        return ChangeSet.of(catalog, changes)

    def _rows_of(self, kind: type[TableType]) -> int:
        return sum(spool.rows for spool in self._input.spools.values() if isinstance(spool.declared, kind))

    def loaded(self, facts: Mapping[str, Any]) -> Loaded:
        """Say what the receipt has of the input; records that a later one replaces change nothing."""
        types = []
        for spool in self._input.spools.values():
            declared, written = spool.declared, self._change.rows(spool.declared.table_id)
            types.append(
                TypeCount(
                    declared.name, declared.kind.value, given=spool.rows, unchanged=spool.rows - written
                )
            )
        nodes, edges = self._rows_of(NodeType), self._rows_of(EdgeType)
        return Loaded(nodes, edges, tuple(types), {**facts, "total_entities": nodes + edges})

    def _changes(self, replaced: Iterable[str]) -> Iterator[TypeChange]:
        for type_id, given in self._given.items():
            yield self._one(self._input.spools[type_id], given)
        for type_id in replaced:
            if type_id not in self._given:
                declared = self._input.catalog.table(type_id)
                yield TypeChange(declared, declared.stored_schema.empty_table(), replaces=True)

    def _one(self, spool: Spool, given: pa.Table) -> TypeChange:
        declared = spool.declared
        rows = given.select(declared.stored_schema.names).cast(declared.stored_schema)
        if self._mode is WriteMode.MERGE and not spool.minted and not _keyed(declared):
            rows = last_of_each(rows)
        return TypeChange(
            declared,
            rows,
            given=given,
            replaces=self._mode is WriteMode.OVERWRITE,
            strict=self._mode is WriteMode.APPEND,
            minted=spool.minted,
        )

    def locate(self, found: Findings, change: ChangeSet) -> Findings:
        """Say of each violation where in the input it is."""
        return replace(found, violations=tuple(map(self._located, found.violations)))

    def _located(self, violation: Violation) -> Violation:
        for type_id, given in self._given.items():
            spool = self._input.spools[type_id]
            same = spool.declared.kind.value == violation.entity_kind
            if not same or spool.declared.name != violation.type_name or violation.entity_id is None:
                continue
            column = "src" if violation.code == "cardinality" else ID
            place = last_place(spool, given, column, violation.entity_id)
            if place is not None:
                return replace(violation, place=place, message=f"{place}: {violation.message}")
        return violation


def _keyed(declared: TableType) -> bool:
    return isinstance(declared, NodeType) and bool(declared.key)


def _under_columns(rows: pa.Table, declared: TableType, now: TableType) -> pa.Table:
    """Return rows of one type under the columns of another that declares the same properties."""
    columns = {p.column: q.column for p, q in zip(declared.properties, now.properties, strict=True)}
    return rows.rename_columns([columns.get(name, name) for name in rows.column_names])
