"""Files: rows of one type, written as one Parquet or JSON lines file.

    plan -> rows -> **files** -> destination -> report

The same for every engine: a file is written by whoever has the rows.

Given   batches under the names of the properties, a place that nobody else writes to.
Gives   what was written: rows and bytes. Files end at about a GiB: stores copy objects up to a size only.
Rule    Parquet holds the types that other programs read: moments are timestamps (UTC, milliseconds), vectors
        are lists. A load casts them back without a loss.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import IntegrityError, InvalidRequest, StorageError
from omnigraph.base.ids import SystemClock, new_id
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.catalog.types import numbers_in, readable
from omnigraph.engine.export.plan import ExportPlan, Format, schema_of
from omnigraph.engine.load.cells import BASE64
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import BEING_WRITTEN_US, Location, Objects, RemoteObjects

# -- lines -------------------------------------------------------------------------------------------
#
# Entities as the envelopes of data files, one JSON object on a line. What schema language section 16 reads,
# written: `data` has the id, then every property in the order of names; days and moments are numbers, bytes
# are base64. Nothing is lost. A null is written, too; but where a property has a default, a load puts the
# default in its place, as it does for every null. Values become text a column at a time, which takes a
# fraction of the time of a row at a time.


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def envelope_lines(batch: pa.RecordBatch, declared: TableType) -> Iterator[str]:
    """Yield one line for each row, without its line end."""
    texts = [_json_texts(column) for column in batch.columns]
    members = [f"{_encode(name)}:%s" for name in batch.schema.names]
    head = f'"type":{_encode(declared.name)}'
    if isinstance(declared, EdgeType):  # the columns are id, src, dst; the line has its ends first
        head = f'"edge":{_encode(declared.name)},"from":%s,"to":%s'
        texts = [*texts[1:3], texts[0], *texts[3:]]
        members = [members[0], *members[3:]]
    line = f'{{{head},"data":{{{",".join(members)}}}}}'
    return map(line.__mod__, zip(*texts, strict=True))


def _json_texts(column: pa.Array) -> list[str]:
    write = _writer(column)
    plain = column.cast(numbers_in(column.type)).to_pylist()
    return ["null" if value is None else write(value) for value in plain]


def _writer(column: pa.Array) -> Callable[[Any], str]:
    """Return what makes JSON of one value of a column."""
    kind = column.type
    if pa.types.is_string(kind):
        return encode_basestring
    if pa.types.is_large_binary(kind):
        return _base64
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return str
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        return repr
    return _any


def _base64(value: bytes) -> str:
    return f'"{BASE64}{base64.b64encode(value).decode()}"'


def _any(value: Any) -> str:
    try:
        return _encode(value)
    except ValueError as error:
        raise IntegrityError(
            f"a stored number is not finite, which JSON does not have: {value}",
            remedy="Export as Parquet, and mend the values",
        ) from error


# -- files -------------------------------------------------------------------------------------------


COMPRESSION = "zstd"
FILE_BYTES = 1 << 30
Write = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file, by its place below the destination."""

    name: str
    rows: int
    bytes: int


def write_files(
    place: Location,
    new_name: Callable[[], str],
    batches: Iterable[pa.RecordBatch],
    declared: TableType,
    format: Format,
    most: int = FILE_BYTES,
) -> list[ExportedFile]:
    """Write the rows of some batches below a place: one file, and another whenever one has `most` bytes."""
    left = iter(batches)
    ahead = next(left, None)
    files: list[ExportedFile] = []
    while not files or ahead is not None:
        name, rows = new_name(), 0
        with place.below(name).new_file() as sink:
            with (_parquet if format == "parquet" else _jsonl)(sink, declared) as write:
                while ahead is not None and (rows == 0 or sink.tell() < most):
                    write(ahead)
                    rows += ahead.num_rows
                    ahead = next(left, None)
            files.append(ExportedFile(name, rows, sink.tell()))
    return files


def file_name(catalog: Catalog, declared: TableType, number: int, format: Format) -> str:
    """Return a name that no other task uses, also not another try of the same task.

    A load takes the type of a table from its folder, and of records from each line, where no folder may say
    otherwise: so Parquet has a folder for each type, and JSON lines stand side by side.
    """
    kind, name, part = declared.kind.value, declared.name, f"part-{number:05d}-{new_id()}"
    if format == "jsonl":
        return f"{kind}-{name}-{part}.jsonl"
    shared = catalog.find_node(name) is not None and catalog.find_edge(name) is not None
    return f"{kind}:{name}/{part}.parquet" if shared else f"{name}/{part}.parquet"


@contextmanager
def _parquet(sink: BinaryIO, declared: TableType) -> Iterator[Write]:
    portable = pa.schema([pa.field(field.name, _portable(field.type)) for field in schema_of(declared)])
    with pq.ParquetWriter(sink, portable, compression=COMPRESSION) as writer:
        yield lambda batch: writer.write_batch(batch.cast(portable))


@contextmanager
def _jsonl(sink: BinaryIO, declared: TableType) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        lines = (f"{line}\n" for line in envelope_lines(batch, declared))
        sink.write("".join(lines).encode())

    yield write


def _portable(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_type) if pa.types.is_fixed_size_list(kind) else readable(kind)


# -- report ------------------------------------------------------------------------------------------
#
# What an export wrote, as a value and as the manifest beside the files.


MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ExportedType:
    """The files of one type."""

    name: str
    kind: str
    files: tuple[ExportedFile, ...]

    @property
    def rows(self) -> int:
        """How many entities they hold."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(file.bytes for file in self.files)


@checked_methods
@dataclass(frozen=True, slots=True)
class ExportReport:
    """One export."""

    destination: str
    format: Format
    commit_id: str
    branch: str
    schema_digest: str
    types: tuple[ExportedType, ...]

    @property
    def rows(self) -> int:
        """How many entities were written."""
        return sum(exported.rows for exported in self.types)

    @property
    def bytes(self) -> int:
        """How large all files are."""
        return sum(exported.bytes for exported in self.types)

    def of_kind(self, kind: str) -> int:
        """Return how many nodes or edges were written."""
        return sum(exported.rows for exported in self.types if exported.kind == kind)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values, without the place: files may be moved together."""
        return {
            "omnigraph_export": MANIFEST_FORMAT,
            "format": self.format,
            "graph_commit_id": self.commit_id,
            "branch": self.branch,
            "schema_digest": self.schema_digest,
            "rows": self.rows,
            "bytes": self.bytes,
            "types": [
                {
                    "kind": exported.kind,
                    "name": exported.name,
                    "rows": exported.rows,
                    "bytes": exported.bytes,
                    "files": [
                        {"name": file.name, "rows": file.rows, "bytes": file.bytes} for file in exported.files
                    ],
                }
                for exported in self.types
            ],
        }


def report_of(
    destination: str, plan: ExportPlan, format: Format, files: Mapping[str, Sequence[ExportedFile]]
) -> ExportReport:
    """Return the report of a plan, given the files of each type by its id."""
    return ExportReport(
        destination,
        format,
        plan.snapshot.commit_id,
        plan.snapshot.branch,
        plan.catalog.declaration_digest,
        tuple(ExportedType(t.name, t.kind.value, tuple(files.get(t.id, ()))) for t in plan.types),
    )


# -- destination -------------------------------------------------------------------------------------
#
#   plan -> rows -> files -> **destination** -> report
#
# The folder that an export fills, which is whole or has no manifest. Files are written out of sight, below
# a folder that only one export can make; those that count then get their names, and `_manifest.json`, which
# names exactly these, comes last. The folder is local or on an object store. A task that is tried again, or
# runs twice at once, leaves files that nothing names. They stay out of sight and are removed: neither a load
# of the folder nor anything else that reads it meets them.
#
# An export that was killed leaves its folder without a manifest, and what it had staged. Once nothing was
# written there for an hour, the next export to that folder takes it over, and what the first one left goes.
# Exactly one does: the rename of a folder, or the creation of the next claim, succeeds once. One that only
# slept finds its files gone and fails; what the other one has staged is not its own to remove.


MANIFEST, SCHEMA, STAGING = "_manifest.json", "_schema.pg", "_staging"  # a load skips names like these
CLAIM = f"{STAGING}/_claim"
OURS = re.compile(rf"([^/]+/|[^/]+-)part-\d{{5}}-[0-9A-Z]{{26}}\.(parquet|jsonl)|{re.escape(SCHEMA)}")
REQUESTS_AT_ONCE = 16


class DestinationTaken(InvalidRequest):
    """There is something at the destination already; an export never adds to it or replaces it."""

    code = "destination_not_empty"


class Destination(ABC):
    """An empty folder that becomes an export, or stays as it was."""

    def __init__(self, root: Location) -> None:
        self.root = root
        self.staging = root.below(STAGING)  # where files lie until it is known which of them count

    def complete(
        self, plan: ExportPlan, format: Format, files: Mapping[str, Sequence[ExportedFile]]
    ) -> ExportReport:
        """Give the files that count their names, then say which they are."""
        report = report_of(self.root.uri, plan, format, files)
        folder = self.root.objects
        text = json.dumps(report.to_json(), ensure_ascii=False, indent=2)
        with durable(Step.EXPORT_NAMES):
            self._show([file.name for exported in report.types for file in exported.files])
            folder.create(SCHEMA, plan.catalog.source.encode())
        with durable(Step.EXPORT_MANIFEST):
            if not _made_here(folder, MANIFEST, text.encode()):
                raise _taken(self.root)
        return report

    @abstractmethod
    def _show(self, names: Sequence[str]) -> None:
        """Move staged files to where they belong."""


@contextmanager
def destination_at(
    address: str | os.PathLike[str], graph: Location, options: Mapping[str, str] | None = None
) -> Iterator[Destination]:
    """Take an empty or new folder for an export; what was staged in it is gone afterwards, come what may."""
    root = graph.reach(address, options)
    with (_folder if root.is_local else _bucket)(root) as target:
        yield target


# -- a folder on a disk ------------------------------------------------------------------------------


class _Folder(Destination):
    def _show(self, names: Sequence[str]) -> None:
        for name in names:
            staged, final = Path(self.staging.uri, name), Path(self.root.uri, name)
            if not staged.exists():
                raise InvalidRequest(
                    f"{staged} was written elsewhere: this machine does not see the disk of the executors",
                    remedy="Export to an object store, or to a folder that driver and executors share",
                )
            final.parent.mkdir(exist_ok=True)
            staged.rename(final)


@contextmanager
def _folder(root: Location) -> Iterator[Destination]:
    path = Path(root.uri)
    with _refusals_named(path):
        is_new = not path.exists()
        if not is_new and (not path.is_dir() or any(path.iterdir())) and not _taken_over(path):
            raise _taken(root)
        staging = path / STAGING
        path.mkdir(parents=True, exist_ok=True)
        try:
            staging.mkdir()
        except FileExistsError:
            raise _taken(root) from None  # by another export, just now
        mine = staging / f"_claim-{new_id()}"
        mine.touch()
        try:
            if any(entry != staging for entry in path.iterdir()):
                raise _taken(root)
            yield _Folder(root)
        finally:
            if mine.exists():
                shutil.rmtree(staging, ignore_errors=True)
            if is_new:
                with suppress(OSError):  # it holds an export
                    path.rmdir()


def _taken_over(path: Path) -> bool:
    """Clear a folder of what a killed export left there, if that is all; say whether it is empty now."""
    left = path / f"{STAGING}-{new_id()}"
    if not (path / STAGING).is_dir():
        return False
    entries = [entry for entry in path.rglob("*") if entry.is_file()]
    staged = [entry for entry in entries if entry.is_relative_to(path / STAGING)]
    shown = [entry for entry in entries if entry not in staged]
    written_us = max(
        round(entry.stat().st_mtime * 1e6) for entry in (path / STAGING, *(path / STAGING).rglob("*"), *shown)
    )
    if not _is_abandoned([entry.relative_to(path).as_posix() for entry in shown], written_us):
        return False
    try:
        (path / STAGING).rename(left)
    except FileNotFoundError:
        return False  # another export was quicker
    for entry in shown:
        entry.unlink()
        if entry.parent != path:
            with suppress(OSError):  # it has others
                entry.parent.rmdir()
    shutil.rmtree(left, ignore_errors=True)
    return not any(path.iterdir())


def _is_abandoned(shown: Iterable[str], written_us: int) -> bool:
    """Say whether an export was killed that staged something: quiet for long, and all else is its own."""
    return written_us < SystemClock().now_us() - BEING_WRITTEN_US and all(map(OURS.fullmatch, shown))


@contextmanager
def _refusals_named(root: Path) -> Iterator[None]:
    """Say which folder it was, where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"cannot write to {str(root)!r}: {error.strerror or error}", remedy="Check the path and the disk"
        ) from error


# -- a folder on an object store ---------------------------------------------------------------------


class _Bucket(Destination):
    def _show(self, names: Sequence[str]) -> None:
        bucket = RemoteObjects(self.root)
        _at_once(lambda name: bucket.move(f"{STAGING}/{name}", name), names)


@contextmanager
def _bucket(root: Location) -> Iterator[Destination]:
    bucket = RemoteObjects(root)  # of the export: no step of the graph
    mine = new_id().encode()
    if not _made_here(bucket, CLAIM, mine) and not _claimed_over(bucket, mine):
        raise _taken(root)  # by another export
    try:
        if any(not key.startswith(CLAIM) for key, _ in bucket.list()):
            raise _taken(root)
        yield _Bucket(root)
    finally:
        with suppress(StorageError):  # what is left over is out of sight
            staged = [key for key, _ in bucket.list(STAGING)]
            if bucket.read(_claim(sum(key.startswith(CLAIM) for key in staged) - 1)) == mine:
                _at_once(bucket.delete, [key for key in staged if key != CLAIM])
                bucket.delete(CLAIM)  # last: who can make it finds nothing


def _claim(number: int) -> str:
    """Return the claim of an export: the first one's, and then those of whoever took the folder over."""
    return CLAIM if number < 1 else f"{CLAIM}-{number}"


def _claimed_over(bucket: RemoteObjects, mine: bytes) -> bool:
    """Take the place of an export that was killed, and delete what it left; say whether that was possible."""
    entries = list(bucket.entries())
    claims = [entry.key for entry in entries if entry.key.startswith(CLAIM)]
    shown = [entry.key for entry in entries if not entry.key.startswith(f"{STAGING}/")]
    if not claims or not _is_abandoned(shown, max(entry.modified_us for entry in entries)):
        return False
    if not _made_here(bucket, _claim(len(claims)), mine):
        return False  # another export was quicker
    _at_once(bucket.delete, [entry.key for entry in entries if entry.key not in claims])
    return True


def _made_here(folder: Objects, key: str, data: bytes) -> bool:
    """Make an object whose content is this export's alone; where the answer was lost, it is there already."""
    return folder.create(key, data) or folder.read(key) == data


def _at_once(action: Callable[[str], None], names: Sequence[str]) -> None:
    """Do something for many objects side by side; each is a request or two."""
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        list(pool.map(action, names))


def _taken(root: Location) -> DestinationTaken:
    return DestinationTaken(
        f"{root.uri} exists and is not an empty folder", remedy="Give a new or empty folder", path=root.uri
    )
