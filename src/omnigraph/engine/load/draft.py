"""Draft: an input that was read in this process, as a change.

    source -> blocks -> **spools -> draft** -> judged, staged, published

Rows wait between reading, which happens once, and writing, which a lost race may repeat: in memory while they
are few, beyond that in a file which is mapped, so that the system may drop pages it needs for something else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import StaleVersion
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, NodeType, TableType
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.load.assembly import InputDraft, Modes, change_of_rows
from omnigraph.engine.load.conform import RowBlock
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import Findings, Violation
from omnigraph.engine.write import ExecutorFor
from omnigraph.storage.transaction import WriteTxn

# -- spools ------------------------------------------------------------------------------------------


LIMIT = 64 << 20  # bytes of rows in memory, for each type
ORIGIN, POSITION = "_origin", "_position"  # beside the stored columns, whose names never begin like this


class Spool:
    """All rows of one type, in the order of the input, each with its origin and position."""

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
        """Return all rows, with the columns `ORIGIN` and `POSITION`."""
        if self._writer is None:
            return pa.Table.from_batches(self._held, self._schema)
        if self._held:
            self._spill()
        self._writer.close()
        with pa.memory_map(str(self._path)) as mapped:
            return pa.ipc.open_file(mapped).read_all()

    def last_location(self, given: pa.Table, column: str, value: str) -> tuple[str, int] | None:
        """Return the origin and position of the last row of `table()` with a value in a column."""
        rows = given.filter(pc.equal(given[column], value)).select([ORIGIN, POSITION])
        if not rows.num_rows:
            return None
        last = rows.slice(rows.num_rows - 1).to_pylist()[0]
        return self._origins[last[ORIGIN]], last[POSITION]


class Spools:
    """The rows of a whole input, by type; whoever makes it closes it."""

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


# -- draft -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """What a source gave, under one schema."""

    catalog: Catalog
    spools: dict[str, Spool]
    fingerprint: Fingerprint | None = None  # tells this input from another, where that is wanted


class LoadDraft(InputDraft):
    """Rows in spools as a change."""

    def __init__(
        self,
        read: Input,
        modes: Modes,
        facts: Mapping[str, Any],
        executor: ExecutorFor = LocalExecutor,
    ) -> None:
        super().__init__(read.catalog, facts)
        self.executor = executor
        self._spools = read.spools
        self._fingerprint = read.fingerprint
        self._given = {type_id: spool.table() for type_id, spool in read.spools.items()}
        changes = [
            change_of_rows(spool.declared, self._given[type_id], modes.of(type_id), minted=spool.minted)
            for type_id, spool in read.spools.items()
        ]
        self.change = ChangeSet.of(read.catalog, [*changes, *modes.emptied(read.catalog, read.spools)])

    @property
    def fingerprint(self) -> Fingerprint | None:
        """What tells the input from another, where that is wanted."""
        return self._fingerprint

    @property
    def rows(self) -> int:
        """All rows of all types."""
        return sum(spool.rows for spool in self._spools.values())

    @property
    def rows_by_type(self) -> Mapping[str, int]:
        """The rows of each type id."""
        return {type_id: spool.rows for type_id, spool in self._spools.items()}

    def change_under(self, txn: WriteTxn, catalog: Catalog) -> ChangeSet:
        """Return the change; of the base, it depends on where the schema keeps what the input names."""
        return self.change if catalog.identity == self.catalog.identity else self._under(catalog)

    def _under(self, catalog: Catalog) -> ChangeSet:
        """Return the change under another schema, by the names that the input uses.

        That takes no second reading where the types, and the ends of edges, are declared as they were; and
        it is not done where rows are replaced, since these may be others than the caller saw.
        """
        before = self.catalog
        changes = []
        for change in self.change.types.values():
            declared = change.declared
            find = catalog.find_node if isinstance(declared, NodeType) else catalog.find_edge
            now = find(declared.name)
            if now is None or change.replaces or not before.declares_alike(declared, catalog, now):
                raise StaleVersion("schema", expected=before.identity, actual=catalog.identity)
            rows = _under_columns(change.rows, declared, now).select(now.stored_schema.names)
            given_rows = None if change.given is None else _under_columns(change.given, declared, now)
            changes.append(replace(change, declared=now, rows=rows, given=given_rows))
        return ChangeSet.of(catalog, changes)

    def locate(self, findings: Findings, change: ChangeSet) -> Findings:
        """Say of each violation where in the input it is."""
        return replace(findings, violations=tuple(map(self._located, findings.violations)))

    def _located(self, violation: Violation) -> Violation:
        for type_id, given in self._given.items():
            spool = self._spools[type_id]
            same = spool.declared.kind.value == violation.entity_kind
            if not same or spool.declared.name != violation.type_name or violation.entity_id is None:
                continue
            location = spool.last_location(given, entity_column(violation), violation.entity_id)
            if location is not None:
                origin, position = location
                return replace(violation, origin=origin, position=position)
        return violation


def entity_column(violation: Violation) -> str:
    """Return the column that holds what a violation names: cardinality names the source of edges."""
    return "src" if violation.code == "cardinality" else ID


def _under_columns(rows: pa.Table, declared: TableType, now: TableType) -> pa.Table:
    """Return rows of one type under the columns of another that declares the same properties."""
    columns = {p.column: q.column for p, q in zip(declared.properties, now.properties, strict=True)}
    return rows.rename_columns([columns.get(name, name) for name in rows.column_names])
