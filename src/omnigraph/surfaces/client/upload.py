"""Upload: the data of a load as the body of a request.

Records and lines of JSON go as they are, wherever they come from; a table of one type goes as Arrow,
Parquet or CSV. Anything else (folders, mappings of types, pandas) is read here, under the graph's schema
and by the readers of an embedded load, and goes as lines.

What is no file is spooled before it is sent: a repetition of the request sends the same bytes.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.ids import SystemClock
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.export.export import named_rows
from omnigraph.engine.export.files import envelope_lines
from omnigraph.engine.load.assembly import REFUSED, LoadProgress, Report
from omnigraph.engine.load.cells import BASE64
from omnigraph.engine.load.conform import LoadProblems
from omnigraph.engine.load.sources import streams, tables
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.surfaces.client.transport import ARROW, NDJSON, Payload

CHUNK = 1 << 18
LINES = frozenset({".jsonl", ".ndjson", ".json"})
WHOLE_FILES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}
RECORDS, TABLE, BYTES = "<records>", "<table>", "<bytes>"


@dataclass(frozen=True)
class Upload:
    """A body, where it goes, and what messages call it."""

    body: Payload
    path: str
    name: str
    type: str | None = None
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True)
class LoadData:
    """What a load was given."""

    data: Any
    type: str | None
    format: str | None
    columns: Mapping[str, str] | None
    catalog: Callable[[], Catalog]  # asked for only where the schema decides how the data is read
    report: Report

    def upload(self, spool: IO[bytes]) -> Upload:
        """Return the body; what has to be spooled goes to `spool`."""
        data = self.data
        lines_wanted = self.columns is None and self.format in (None, "jsonl")
        match data:
            case str() | os.PathLike() if (path := Path(data)).is_file():
                return self._file(path, lines_wanted=lines_wanted) or self._read(data, spool)
            case bytes() | bytearray() | memoryview() if lines_wanted and _starts_a_record(bytes(data[:64])):
                spool.write(data)
                return self._spooled(spool, NDJSON, BYTES)
            case list() | tuple() if lines_wanted and data and isinstance(data[0], Mapping):
                return self._records(data, spool)
            case pa.Table() | pa.RecordBatch() | pa.RecordBatchReader() if self._is_one_type:
                return self._arrow(data, spool)
        if self._is_one_type and hasattr(data, "__arrow_c_stream__") and not tables.is_pandas(data):
            return self._arrow(data, spool)
        if lines_wanted and streams.is_file(data):
            return self._stream(data, spool)
        if lines_wanted and not isinstance(data, Mapping) and hasattr(data, "__next__"):
            return self._iterator(data, spool)
        return self._read(data, spool)

    @property
    def _is_one_type(self) -> bool:
        return self.type is not None and self.format is None

    # -- as it is ----------------------------------------------------------------------------------

    def _file(self, path: Path, *, lines_wanted: bool) -> Upload | None:
        """Return a file that goes as it is, or None."""
        suffix, size = path.suffix.lower(), path.stat().st_size
        if suffix in LINES and lines_wanted:
            return Upload(self._file_body(path, NDJSON, size), "/load/ndjson", path.name, self.type)
        if suffix in WHOLE_FILES and self._is_one_type:
            body = self._file_body(path, WHOLE_FILES[suffix], size)
            return Upload(body, "/load", path.name, self.type, self.columns)
        return None

    def _file_body(self, path: Path, media: str, size: int) -> Payload:
        def content() -> Iterator[bytes]:
            with path.open("rb") as file:
                yield from _followed(file, size, self.report)

        return Payload(content, media)

    def _records(self, records: Iterable[Any], spool: IO[bytes]) -> Upload:
        try:
            for record in records:
                spool.write(_line(record))
        except (TypeError, ValueError, RecursionError):  # the reader of records says what is wrong, and where
            spool.seek(0)
            spool.truncate()
            return self._read(self.data, spool)
        return self._spooled(spool, NDJSON, RECORDS)

    def _iterator(self, data: Iterator[Any], spool: IO[bytes]) -> Upload:
        """Send records as they come; what else an iterator gives is read here."""
        first = next(data, None)
        if isinstance(first, Mapping):
            return self._records(list(chain([first], data)), spool)
        return self._read(iter(()) if first is None else chain([first], data), spool)

    def _stream(self, file: Any, spool: IO[bytes]) -> Upload:
        """Send the lines of an open file; if it holds something else, it is read here."""
        name = streams.file_name(file)
        stream = streams.from_file(file, name)
        if self.format is None and not _starts_a_record(stream.head(64)):
            content = b"".join(streams.chunks(stream, lambda _: None))
            return self._read(content, spool)
        for chunk in streams.chunks(stream, lambda _: None):
            spool.write(chunk)
        return self._spooled(spool, NDJSON, name)

    def _arrow(self, data: Any, spool: IO[bytes]) -> Upload:
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        with pa.ipc.new_stream(spool, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return self._spooled(spool, ARROW, TABLE)

    # -- read here ---------------------------------------------------------------------------------

    def _read(self, data: Any, spool: IO[bytes]) -> Upload:
        """Read the data as an embedded load does, and write it as lines."""
        catalog = self.catalog()
        source = open_source(
            data,
            catalog=catalog,
            now_ms=SystemClock().now_us() // 1000,
            type=self.type,
            format=self.format,
            columns=self.columns,
        )
        problems, rows, done = LoadProblems(), 0, 0

        def advanced(read: int) -> None:
            nonlocal done
            done = read

        for block in source.blocks(catalog, problems, advanced):
            for line in envelope_lines(named_rows(block.rows, block.declared), block.declared):
                spool.write(f"{line}\n".encode())
            rows += block.rows.num_rows
            self.report(LoadProgress("reading", rows, done, source.size_bytes))
        problems.findings().refuse(REFUSED)
        return Upload(self._spool_body(spool, NDJSON), "/load/ndjson", source.name)

    def _spooled(self, spool: IO[bytes], media: str, name: str) -> Upload:
        is_lines = media == NDJSON
        return Upload(
            self._spool_body(spool, media),
            "/load/ndjson" if is_lines else "/load",
            name,
            self.type,
            None if is_lines else self.columns,
        )

    def _spool_body(self, spool: IO[bytes], media: str) -> Payload:
        size = spool.tell()

        def content() -> Iterator[bytes]:
            spool.seek(0)
            return _followed(spool, size, self.report)

        return Payload(content, media)


def _followed(file: IO[bytes], size: int, report: Report) -> Iterator[bytes]:
    sent = 0
    report(LoadProgress("writing", 0, 0, size))
    while chunk := file.read(CHUNK):
        yield chunk
        sent += len(chunk)
        report(LoadProgress("writing", 0, sent, size))


def _starts_a_record(head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _line(record: Any) -> bytes:
    if not isinstance(record, Mapping):
        raise TypeError(type(record).__name__)
    plain = record if isinstance(record, dict) else dict(record)
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    return f"{text}\n".encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return BASE64 + base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)
