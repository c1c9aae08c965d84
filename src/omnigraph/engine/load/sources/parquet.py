"""Parquet and Arrow files: tables on disk, read in parts of bounded size.

Opened by path, from bytes, or from a file object that can seek.

Rule    how many Parquet rows make a part is found out by decoding a few of them: the sizes in the file are
        those before dictionaries are undone. What an Arrow file says of itself is checked before it is used.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
from pyarrow import ipc
from pyarrow import parquet as pq
from pyarrow import types as kinds

from omnigraph.base.dataclass import dataclass
from omnigraph.engine.load.conform import MAX_BYTES, MAX_ROWS, InputNotFound, UnreadableInput
from omnigraph.engine.load.sources.tables import Parts, TablePart

PARQUET_MAGIC, ARROW_MAGIC = b"PAR1", b"ARROW1"
_PROBED_ROWS = 1024
_BUFFER = 1 << 20
_BATCHES_AHEAD = 3

Content: TypeAlias = Path | bytes | IO[bytes]


@contextmanager
def open_parquet(
    content: Content, name: str, size: int | None, groups: Sequence[int] | None = None
) -> Iterator[Parts]:
    """Open a Parquet file, or some of its row groups."""
    with ExitStack() as stack:
        with _explained(name):
            file = stack.enter_context(_file(content))
            table = stack.enter_context(pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False))
            names = table.schema_arrow.names
        parts = stack.enter_context(closing(_parquet_parts(table, size or 0, name, groups)))
        yield Parts(names, parts)


@dataclass(frozen=True)
class ParquetFileAt:
    """A Parquet file, or some of its row groups, to be opened when it is read; travels to other processes."""

    path: Path
    name: str
    size: int | None
    groups: tuple[int, ...] | None = None

    def __call__(self) -> AbstractContextManager[Parts]:
        """Open it."""
        return open_parquet(self.path, self.name, self.size, self.groups)


def _parquet_parts(
    table: pq.ParquetFile, size: int, name: str, groups: Sequence[int] | None
) -> Generator[TablePart]:
    done, rows = 0, table.metadata.num_rows
    with _explained(name):
        for batch in _ahead(table.iter_batches(batch_size=_batch_rows(table, rows), row_groups=groups)):
            done += batch.num_rows
            yield TablePart(batch.columns, batch.num_rows, size * done // max(rows, 1))


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches that a thread decodes while the ones before them are worked on."""
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(next, batches, None) for _ in range(_BATCHES_AHEAD))
        while (batch := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, batches, None))
            yield batch


def _batch_rows(table: pq.ParquetFile, rows: int) -> int:
    if rows <= _PROBED_ROWS:
        return _PROBED_ROWS
    probe = next(table.iter_batches(batch_size=_PROBED_ROWS))
    stored = sum(table.metadata.row_group(g).total_byte_size for g in range(table.metadata.num_row_groups))
    per_row: int = max(probe.nbytes // max(probe.num_rows, 1), stored // rows, 1)
    return max(1, min(MAX_ROWS, MAX_BYTES // per_row))


@contextmanager
def open_arrow(content: Content, name: str, size: int | None) -> Iterator[Parts]:
    """Open an Arrow file or stream."""
    with ExitStack() as stack:
        with _explained(name):
            file = stack.enter_context(_file(content))
            names, batches = _arrow_batches(file)
        yield Parts(names, _arrow_parts(batches, file, name))


def _arrow_batches(file: pa.NativeFile) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    is_file = file.read(len(ARROW_MAGIC)) == ARROW_MAGIC
    file.seek(0)
    if not is_file:
        stream = ipc.open_stream(file)
        return stream.schema.names, iter(stream)
    reader = ipc.open_file(file)
    return reader.schema.names, map(reader.get_batch, range(reader.num_record_batches))


def _arrow_parts(batches: Iterator[pa.RecordBatch], file: pa.NativeFile, name: str) -> Iterator[TablePart]:
    with _explained(name):
        for batch in batches:
            for column in batch.columns:
                column.validate(full=_has_offsets(column.type))
            yield TablePart(batch.columns, batch.num_rows, file.tell())


def _has_offsets(kind: pa.DataType) -> bool:
    """Say whether wrong numbers in the file could lead outside its buffers."""
    if kinds.is_dictionary(kind):
        return True
    if kinds.is_nested(kind):
        # Full validation refuses a date64 that is not midnight; ours hold milliseconds.
        return not any(kinds.is_date64(kind.field(child).type) for child in range(kind.num_fields))
    return not (kinds.is_primitive(kind) or kinds.is_null(kind))


@contextmanager
def _file(content: Content) -> Iterator[pa.NativeFile]:
    if isinstance(content, Path):
        with pa.OSFile(str(content), "rb") as file:
            yield file
    elif isinstance(content, bytes):
        yield pa.BufferReader(content)
    else:
        yield pa.PythonFile(content, mode="r")


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Say which file it was, when it is not what it should be."""
    try:
        yield
    except FileNotFoundError:
        raise InputNotFound(f"there is no file {name!r}", remedy="Check the path", path=name) from None
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UnreadableInput(
            f"{name}: broken, cut off or of another format: {reason}",
            remedy="Make the file again or transfer it again",
            file=name,
        ) from error


def can_seek(file: Any) -> bool:
    """Say whether a file object can be read in any order."""
    return isinstance(file, io.IOBase) and file.seekable() and not isinstance(file, io.TextIOBase)
