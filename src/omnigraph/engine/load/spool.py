"""Spool: the rows of an input by type, in memory while they are few and on disk beyond.

Room    engine.load. Between reading, which happens once, and writing, which a lost race may repeat.
Gives   Arrow tables over the whole input: mapped from the file when spilled, so that the system may drop
        pages it needs for something else.
Bound   at most `limit` bytes of rows in memory for each type.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import TableType
from omnigraph.engine.load.block import Block

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

    def add(self, block: Block) -> None:
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

    def add(self, block: Block) -> None:
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
