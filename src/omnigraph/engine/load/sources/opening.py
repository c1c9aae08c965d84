"""Opening: what sort of input this is, and the source that reads it.

Where reading begins: nothing but a few first bytes is read here.

Rule    a caller's `format` decides, then the name of a file, then its first bytes. A table (CSV, Parquet,
        Arrow, a frame) needs a type: the caller's, or the one that the file is named after. What is not
        understood is refused with what would have been.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.conform import InputNotFound, LoadProblems, LoadSource, Progress, RowBlock
from omnigraph.engine.load.sources import parquet, streams, tables
from omnigraph.engine.load.sources.csv import Csv
from omnigraph.engine.load.sources.json import JsonLines, Records
from omnigraph.engine.load.sources.streams import COMPRESSED_SUFFIXES, ByteStream
from omnigraph.engine.load.sources.tables import Parts, Tabular

# -- files -------------------------------------------------------------------------------------------
#
# Several inputs as one, read one after the other. A directory, a list of files, or a mapping of types to
# tables. The order is fixed (by name in a directory, as given otherwise), so reports and last-wins are too.


@dataclass(frozen=True)
class SeveralSources:
    """Inputs that are loaded together."""

    name: str
    sources: tuple[LoadSource, ...]

    @property
    def size_bytes(self) -> int | None:
        """The sum, if every size is known."""
        sizes = [source.size_bytes for source in self.sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def blocks(self, catalog: Catalog, report: LoadProblems, progress: Progress) -> Iterator[RowBlock]:
        """Read all inputs in order."""
        read = 0
        for source in self.sources:
            before = read

            def forward(bytes_read: int, before: int = before) -> None:
                nonlocal read
                read = before + bytes_read
                progress(read)

            yield from source.blocks(catalog, report, forward)


# -- opening -----------------------------------------------------------------------------------------


FORMATS = ("jsonl", "csv", "tsv", "parquet", "arrow")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_SNIFFED = 64
_NOTHING = object()


@dataclass(frozen=True)
class _Opener:
    """What holds for every part of one input."""

    catalog: Catalog
    now_ms: int
    type: str | None
    format: str | None
    columns: Mapping[str, str]


def open_source(
    data: Any,
    *,
    catalog: Catalog,
    now_ms: int,
    type: str | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> LoadSource:
    """Return the source that reads `data`; refuses what cannot be one.

    `now_ms` is the time that `@default(now)` gives; `columns` says which property a column of a table is.
    """
    if format is not None and format not in FORMATS:
        raise InvalidRequest(
            f"there is no format {format!r}", remedy=f"The formats are {', '.join(FORMATS)}", format=format
        )
    if type is not None:
        catalog.named(type)  # a misspelt type is said before anything is read
    return _recognise(data, _Opener(catalog, now_ms, type, format, columns or {}))


def _recognise(data: Any, opener: _Opener) -> LoadSource:
    match data:
        case str() | os.PathLike():
            return _path(_local(data), opener)
        case bytes() | bytearray() | memoryview():
            return _content(bytes(data), opener)
        case Mapping():
            return _mapping(data, opener)
        case pa.Table() | pa.RecordBatch():
            table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
            return _table("<table>", table.nbytes, partial(tables.open_table, table), opener)
        case pa.RecordBatchReader():
            return _table(
                "<batches>", None, partial(tables.open_batches, data.schema.names, lambda: data), opener
            )
        case _:
            return _other(data, opener)


def _other(data: Any, opener: _Opener) -> LoadSource:
    library = tables.library_of(data)
    if tables.is_pandas(data):
        return _table("<frame>", None, partial(tables.open_pandas, data), opener, whole_floats=True)
    if hasattr(data, "__arrow_c_stream__"):
        return _table("<frame>", None, partial(tables.open_stream, data), opener)
    if library == "polars":
        raise _refusal(data, "Call .collect() first")
    if library == "pyspark":
        raise _refusal(data, "Load Spark frames with the Spark pipeline")
    if streams.is_file(data):
        return _file(data, opener)
    if isinstance(data, Iterable):
        return _iterable(data, opener)
    raise _refusal(data, None)


def _refusal(data: Any, remedy: str | None) -> InvalidRequest:
    takes = (
        "A load takes a path, a file object, bytes, an iterable of dictionaries, an Arrow table or reader, "
        "a pandas or polars frame, a list of paths, or a mapping of type names to any of these"
    )
    name = f"{tables.library_of(data)}.{data.__class__.__name__}"
    return InvalidRequest(f"cannot load a {name.removeprefix('builtins.')}", remedy=remedy or takes)


# -- paths -------------------------------------------------------------------------------------------


def _local(data: str | os.PathLike[str]) -> Path:
    text = os.fspath(data)
    if "://" in text.partition("\n")[0]:
        raise InvalidRequest(
            f"{text.partition('://')[0]}:// addresses are not read here",
            remedy="Open the object and pass the file object, or load it with Spark",
        )
    if isinstance(data, str) and ("\n" in text or text.lstrip().startswith("{")):
        raise InvalidRequest(
            "a string is taken as a path, and this looks like data",
            remedy="Pass text as io.StringIO(text), or as text.encode()",
        )
    return Path(text)


def _path(path: Path, opener: _Opener, name: str | None = None) -> LoadSource:
    if path.is_dir():
        return _directory(path, opener)
    if not path.exists():
        raise InputNotFound(f"there is no file {str(path)!r}", remedy="Check the path", path=str(path))
    name = name or path.name
    path = path.absolute()  # other processes may read it, whose working directory is another
    size = streams.size_of(path)
    format = opener.format or _format_of_name(path.name)
    if format is None:
        with streams.FileAt(path, name)() as stream:
            format = _format_of_content(stream, opener, name)
    if format == "parquet":
        return _table(name, size, parquet.ParquetFileAt(path, name, size), opener, of=path.name)
    if format == "arrow":
        return _table(name, size, partial(parquet.open_arrow, path, name, size), opener, of=path.name)
    return _text(format, name, size, streams.FileAt(path, name), opener, of=path.name)


def _format_of_name(name: str) -> str | None:
    path = Path(name)
    if path.suffix.lower() in COMPRESSED_SUFFIXES:
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower())


def _directory(directory: Path, opener: _Opener) -> LoadSource:
    """Read every file below a directory; folders may stand for types, as Spark writes them."""
    sources: list[LoadSource] = []
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith((".", "_")):
            continue  # markers and checksums that writers leave
        name = f"{directory.name}/{entry.name}"
        if entry.is_dir():
            inner = opener.type or _type_named(entry.name, opener.catalog)
            sources.append(_directory(entry, replace(opener, type=inner)))
        elif opener.format is None and _format_of_name(entry.name) is None:
            raise InvalidRequest(
                f"{name}: the format cannot be told from the name",
                remedy="Rename it (.jsonl, .csv, .parquet, .arrow; also .gz, .zst), or move it elsewhere",
                file=name,
            )
        else:
            sources.append(_path(entry, opener, name))
    return SeveralSources(directory.name, tuple(sources))


# -- content -----------------------------------------------------------------------------------------


def _content(content: bytes, opener: _Opener) -> LoadSource:
    name, size = "<bytes>", len(content)
    format = opener.format or _format_of_content(streams.from_chunks([content], name), opener, name)
    if format == "parquet":
        return _table(name, size, partial(parquet.open_parquet, content, name, size), opener)
    if format == "arrow":
        return _table(name, size, partial(parquet.open_arrow, content, name, size), opener)
    return _text(format, name, size, lambda: nullcontext(streams.from_chunks([content], name)), opener)


def _file(file: Any, opener: _Opener) -> LoadSource:
    name = streams.file_name(file)
    begin = file.tell() if parquet.can_seek(file) else None
    stream = streams.from_file(file, name)
    format = opener.format or _format_of_name(name) or _format_of_content(stream, opener, name)
    if format in ("parquet", "arrow"):
        if begin is None:
            raise InvalidRequest(
                f"{name}: {format} is read from a file object that can seek",
                remedy="Open the file in binary mode, or read it into bytes",
            )
        file.seek(begin)
        opened = parquet.open_parquet if format == "parquet" else parquet.open_arrow
        return _table(name, None, partial(opened, file, name, None), opener, of=name)
    return _text(format, name, None, lambda: nullcontext(stream), opener, of=name)


def _format_of_content(stream: ByteStream, opener: _Opener, name: str) -> str:
    head = stream.head(_SNIFFED)
    if head.startswith(parquet.PARQUET_MAGIC):
        return "parquet"
    if head.startswith((parquet.ARROW_MAGIC, b"\xff\xff\xff\xff")):
        return "arrow"
    if opener.type is None or head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return "jsonl"
    if head and not head.isascii() and head[:2] in (b"\x1f\x8b", b"\x28\xb5"):
        raise InvalidRequest(f"{name}: the format inside the compression is not known", remedy="Give format=")
    return "csv"


# -- several -----------------------------------------------------------------------------------------


def _mapping(data: Mapping[Any, Any], opener: _Opener) -> LoadSource:
    if opener.type is not None:
        raise InvalidRequest(
            "a mapping names its types itself",
            remedy="Leave out type=, or pass columns as pyarrow.table(...)",
        )
    sources = []
    for name, table in data.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"a mapping's keys are type names, not {name!r}")
        opener.catalog.named(name)
        source = _recognise(table, replace(opener, type=name))
        sources.append(_renamed(source, name))
    return SeveralSources("<mapping>", tuple(sources))


def _renamed(source: LoadSource, type_name: str) -> LoadSource:
    """Tell tables in memory apart in messages."""
    if isinstance(source, Tabular | Records) and source.name.startswith("<"):
        return replace(source, name=f"<{type_name}>")
    return source


def _iterable(data: Iterable[Any], opener: _Opener) -> LoadSource:
    iterator = iter(data)
    first = next(iterator, _NOTHING)
    rest: Iterator[Any] = chain([first], iterator)
    if first is _NOTHING:
        return Records((), opener.now_ms, opener.type)
    match first:
        case Mapping():
            records = data if isinstance(data, list | tuple) else rest
            return Records(records, opener.now_ms, opener.type)
        case bytes() | bytearray() | memoryview():
            stream = streams.from_chunks(rest, "<bytes>")
            format = opener.format or _format_of_content(stream, opener, "<bytes>")
            if format in ("parquet", "arrow"):
                raise InvalidRequest(
                    f"{format} is not read from an iterator", remedy="Join the parts into bytes"
                )
            return _text(format, "<bytes>", None, lambda: nullcontext(stream), opener)
        case pa.RecordBatch():
            same = partial(_same_schema, rest, first.schema)
            return _table("<batches>", None, partial(tables.open_batches, first.schema.names, same), opener)
        case str() | os.PathLike() if isinstance(data, list | tuple):
            paths = [_local(item) for item in data]
            names = [path.name for path in paths]
            unique = len(set(names)) == len(names)
            return SeveralSources(
                "<files>", tuple(_path(path, opener, path.name if unique else str(path)) for path in paths)
            )
        case _:
            raise _refusal(first, None)


def _same_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.schema.names != schema.names:
            raise InvalidRequest(
                "the batches have different columns", remedy="Give all of them the same schema"
            )
        yield batch


# -- the sources themselves --------------------------------------------------------------------------


def _text(
    format: str,
    name: str,
    size: int | None,
    opened: Callable[[], AbstractContextManager[ByteStream]],
    opener: _Opener,
    of: str | None = None,
) -> LoadSource:
    if format == "jsonl":
        if opener.columns:
            raise InvalidRequest(
                f"{name}: records have no columns to map",
                remedy="Only tables have columns",
            )
        return JsonLines(name, size, opened, opener.now_ms, opener.type)
    type_name = _type_for(name, of, opener)
    return Csv(name, size, opened, opener.now_ms, type_name, "\t" if format == "tsv" else ",", opener.columns)


def _table(
    name: str,
    size: int | None,
    opened: Callable[[], AbstractContextManager[Parts]],
    opener: _Opener,
    of: str | None = None,
    whole_floats: bool = False,
) -> LoadSource:
    type_name = _type_for(name, of, opener)
    return Tabular(name, size, opened, opener.now_ms, type_name, whole_floats, opener.columns)


def _type_for(name: str, of: str | None, opener: _Opener) -> str:
    """Return the type of a table: the caller's, or the one that its file is named after."""
    if opener.type is not None:
        return opener.type
    if of is not None and (named := _type_named(of, opener.catalog)) is not None:
        return named
    raise InvalidRequest(
        f"{name}: a table does not say of which type its rows are",
        remedy="Give type=, or name the file after the type (Person.parquet)",
        file=name,
    )


def _type_named(file_name: str, catalog: Catalog) -> str | None:
    stem = file_name.partition(".")[0]
    return None if catalog.find_table(stem) is None else stem
