"""Block: rows on their way into one table, and what a source of them is.

    input -> **source -> blocks** -> set checks -> publish

Room    engine.load. The border between reading (sources/) and writing: values only, no I/O of its own.
Rule    the rows of a block fit their table exactly and satisfy every value constraint; a row that does not
        is left out and stands in `Problems`. So a block is good to write if the whole input had no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.load.problems import Problems

MAX_ROWS = 65_536
MAX_BYTES = 8 * 1024 * 1024

Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Block:
    """At most `MAX_ROWS` rows of one type, in the order of the input."""

    declared: TableType
    rows: pa.RecordBatch  # the columns of `declared.stored_schema`
    positions: pa.Array  # int64: the 1-based line (JSONL, CSV) or row (everything else) of each row
    origin: str  # a file name, or `<records>` and the like; with the position it is a place
    minted: bool  # the ids were generated here, so they collide with nothing

    def place(self, row: int) -> str:
        """Say where a row came from."""
        return f"{self.origin}:{self.positions[row].as_py()}"


class Source(Protocol):
    """An input that has been recognised, but not read."""

    @property
    def name(self) -> str:
        """What the input is called in messages."""
        ...

    @property
    def size_bytes(self) -> int | None:
        """How much there is to read, if that is known; compressed input counts as it is stored."""
        ...

    def blocks(self, catalog: Catalog, report: Problems, progress: Progress) -> Iterator[Block]:
        """Read the input, once, in blocks of bounded size.

        What is wrong with single records goes to `report`, and reading goes on; an input that cannot be
        read any further raises `UnreadableInput`. `progress` is told the bytes read so far.
        """
        ...


class UnreadableInput(InvalidRequest):
    """The input breaks off or is not what it claims to be; `fields` say where. Nothing was written."""

    code = "unreadable_input"


class InputNotFound(NotFound):
    """There is no file at the path given."""

    code = "input_not_found"
