"""Derived files: where they lie, how they are opened and written, and columns as data files hold them.

    tables/<table>/_derived/<data file>/keys-<field>         key hashes of one column (key_hashes.py)
    tables/<table>/_derived/<data file>/spans-<field>        instead, for ids of edges that ascend
    tables/<edge table>/_derived/adjacency/<rows>-<digest>   adjacency over large files (adjacency.py)

A data file never changes, so what is derived from it is good in every version, branch and process that holds
it: names are made of data files and field numbers alone. Folders are those of the table, so whatever lists,
copies or deletes the files of a table finds them. Writing one is never needed for anything: a store that
refuses it, or a disk that is full, stands in nobody's way.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import InvalidRequest, StorageError
from omnigraph.base.ids import new_id
from omnigraph.storage.cost import count_object_request
from omnigraph.storage.derived.blocks import Array, BlockFile, Ranges, Unreadable, Unusable, encoded
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import Location

FOLDER = "_derived"
READERS = 64
FOLDER_SETTING, SIZE_SETTING = "OMNIGRAPH_CACHE", "OMNIGRAPH_CACHE_BYTES"
KEPT_BYTES = 4 << 30


def is_derived(file: str) -> bool:
    """Say whether a file of a table is a derived one."""
    return file.startswith(f"{FOLDER}/")


def is_unfinished(file: str) -> bool:
    """Say whether a derived file is still being written, or was when its writer died."""
    return file.rpartition("/")[2].startswith(".")


def folder_of(data_file: str) -> str:
    """Return the folder of what is derived from one data file, inside its table."""
    return f"{FOLDER}/{data_file.removesuffix('.lance')}"


def spans_name(data_file: str, field_id: int) -> str:
    """Return the name of the spans of ascending ids of a data file, inside its table."""
    return f"{folder_of(data_file)}/spans-{field_id}"


def keys_name(data_file: str, field_id: int) -> str:
    """Return the name of the key hashes of one column of a data file, inside its table."""
    return f"{folder_of(data_file)}/keys-{field_id}"


class CacheFolder:
    """A local folder that keeps what was fetched of derived files on object stores, up to a size.

    Sparse files, of which only the blocks that were fetched take room. One that is taken away while a process
    has it mapped stays with that process.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    @classmethod
    def of_environment(cls, graph: str) -> CacheFolder | None:
        """Return the folder for a graph that the environment names, or the usual one; None if it says off."""
        named = os.environ.get(FOLDER_SETTING, "")
        if named == "off":
            return None
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        root = Path(named or Path(home, "omnigraph"))
        try:
            limit = int(os.environ.get(SIZE_SETTING, KEPT_BYTES))
        except ValueError as error:
            raise InvalidRequest(
                f"{SIZE_SETTING} is no number of bytes: {os.environ[SIZE_SETTING]!r}",
                remedy=f"Set it to a number, or {FOLDER_SETTING}=off to keep nothing",
            ) from error
        return cls(root / hashlib.sha256(graph.encode()).hexdigest()[:16], limit)

    def path(self, table_id: str, name: str) -> Path:
        """Return where a file is kept; others make room where the folder is full."""
        path = self._folder / table_id / name.replace("/", "-")
        if not path.exists():
            self._make_room()
        return path

    def _make_room(self) -> None:
        with suppress(OSError):
            kept = [(entry.stat(), entry) for entry in self._folder.parent.rglob("*") if entry.is_file()]
            size = sum(stat.st_blocks * 512 for stat, _ in kept)
            for stat, entry in sorted(kept, key=lambda pair: pair[0].st_atime):
                if size <= self._limit:
                    break
                entry.unlink(missing_ok=True)
                size -= stat.st_blocks * 512


class DerivedFiles:
    """The derived files of one graph."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._cache = None if location.is_local else CacheFolder.of_environment(location.uri)
        self._readers = BoundedCache[tuple[str, str, tuple[str, ...]], LanceFileReader](READERS)

    @property
    def is_local(self) -> bool:
        """Whether files are mapped, and not fetched."""
        return self._location.is_local

    def open(self, table_id: str, name: str) -> BlockFile:
        """Open a file, or say that there is none that can be used."""
        key = f"tables/{table_id}/{name}"
        if self._location.is_local:
            return BlockFile.mapped(Path(self._location.uri, key))
        kept_in = None if self._cache is None else self._cache.path(table_id, name)
        return BlockFile.fetched(_Object(self._location, key), kept_in)

    def is_whole(self, table_id: str, name: str) -> bool:
        """Say whether a file is undamaged; one that was deleted meanwhile is not damaged."""
        try:
            self.open(table_id, name).check()
        except Unusable:
            return self._location.objects.ranges(f"tables/{table_id}/{name}", [(0, 1)]) is None
        return True

    def write(
        self, table_id: str, name: str, kind: str, covers: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> bool:
        """Write a file if that can be done; say whether it was."""
        parts = encoded(kind, covers, arrays)
        key = f"tables/{table_id}/{name}"
        with suppress(OSError, StorageError), durable(Step.DERIVED):
            if self._location.is_local:
                count_object_request(written=sum(map(len, parts)))
                self._write_local(Path(self._location.uri, key), parts)
            else:
                with self._location.below(*key.split("/")).new_file() as file:
                    for part in parts:
                        file.write(part)
            return True
        return False

    def delete(self, table_id: str, name: str) -> None:
        """Delete a file if that can be done; whoever has mapped it keeps what it has."""
        with suppress(StorageError), durable(Step.DERIVED):
            self._location.objects.delete(f"tables/{table_id}/{name}")

    def names(self, table_id: str, folder: str) -> list[str]:
        """Return the names of the files in a folder of a table."""
        prefix = f"tables/{table_id}/"
        try:
            return [key.removeprefix(prefix) for key, _ in self._location.objects.list(prefix + folder)]
        except StorageError:
            return []

    def _write_local(self, path: Path, parts: Iterable[memoryview]) -> None:
        """Write a file under another name first: a mapped file must never change or shrink."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{new_id()}")
        try:
            with unfinished.open("wb", buffering=0) as file:
                for part in parts:
                    left = part
                    while left:  # a call may write less than it was given
                        left = left[file.write(left) :]
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def column(self, table_id: str, data_file: str, column: str) -> pa.ChunkedArray:
        """Return a column of a data file with all its rows, those that versions have deleted among them."""
        path = self._location.join("tables", table_id, "data", data_file)
        try:
            reader = LanceFileReader(path, storage_options=self._location.lance_options, columns=[column])
            return reader.read_all(batch_size=1 << 16).to_table()[column]
        except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise Unreadable(f"{data_file} has no column {column} that can be read") from error

    def rows(self, table_id: str, data_file: str, offsets: Array, columns: Sequence[str]) -> pa.Table:
        """Return some columns of rows of a data file, by their ascending offsets."""
        try:
            reader = self._reader(table_id, data_file, tuple(columns))
            return reader.take_rows(offsets.tolist()).to_table()
        except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise Unreadable(f"rows of {data_file} cannot be read") from error

    def stretch(self, table_id: str, data_file: str, column: str, start: int, rows: int) -> pa.Array:
        """Return some rows of a column of a data file, one after another."""
        try:
            batches = self._reader(table_id, data_file, (column,)).read_range(start, rows).to_table()
        except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise Unreadable(f"rows of {data_file} cannot be read") from error
        return pa.concat_arrays(batches[column].chunks)

    def _reader(self, table_id: str, data_file: str, columns: tuple[str, ...]) -> LanceFileReader:
        path = self._location.join("tables", table_id, "data", data_file)
        options = self._location.lance_options
        return self._readers.get_or_make(
            (table_id, data_file, columns),
            lambda: LanceFileReader(path, storage_options=options, columns=list(columns)),
        )


class _Object:
    """Ranges of one object."""

    def __init__(self, location: Location, key: str) -> None:
        self._objects = location.objects
        self._key = key

    def ranges(self, ranges: Ranges) -> list[bytes]:
        """Return the bytes from each start to its stop."""
        try:
            parts = self._objects.ranges(self._key, ranges)
        except StorageError as error:
            raise Unusable("it cannot be read") from error
        if parts is None:
            raise Unusable("there is none")
        return parts
