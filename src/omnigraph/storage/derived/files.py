"""Derived files: where they lie, how they are opened and written, and columns as data files hold them.

    tables/<table>/_derived/<data file>/keys-<field>         key hashes of one column (key_hashes.py)
    tables/<table>/_derived/<data file>/spans-<field>        instead, for ids of edges that ascend
    tables/<edge table>/_derived/adjacency/<rows>-<digest>   adjacency over large files (adjacency.py)

A data file never changes, so what is derived from it is good in every version, branch and process that holds
it: names are made of data files and field numbers alone. Folders are those of the table, so whatever lists,
copies or deletes the files of a table finds them. A failed write is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import StorageError
from omnigraph.base.ids import new_id
from omnigraph.base.panics import panics_caught
from omnigraph.storage.cost import asks_lance, count_object_request
from omnigraph.storage.derived.blocks import Array, BlockFile, Ranges, Unreadable, Unusable, encoded
from omnigraph.storage.derived.fetched import CacheFolder, FetchedFile
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import Location, storage_failure

FOLDER = "_derived"
READERS = 64  # files and columns whose readers are kept
IDLE_READERS = 4  # of each


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


class DerivedFiles:
    """The derived files of one graph."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._cache = None if location.is_local else CacheFolder.of_environment(location.uri)
        self._readers = BoundedCache[tuple[str, str, tuple[str, ...]], list[LanceFileReader]](READERS)

    @property
    def is_local(self) -> bool:
        """Whether files are mapped, and not fetched."""
        return self._location.is_local

    def open(self, table_id: str, name: str) -> BlockFile:
        """Open a file, or say that there is none that can be used."""
        return self._open(table_id, name, self._cache)

    def _open(self, table_id: str, name: str, cache: CacheFolder | None) -> BlockFile:
        key = f"tables/{table_id}/{name}"
        if self._location.is_local:
            return BlockFile.mapped(Path(self._location.uri, key))
        return FetchedFile.open(_Object(self._location, key), cache, f"{table_id}-{name}")

    def is_whole(self, table_id: str, name: str) -> bool:
        """Say whether a file is stored undamaged; one that was deleted meanwhile is not damaged."""
        try:
            self._open(table_id, name, None).check()
        except Unreadable as error:
            raise storage_failure(f"reading {name}", error) from error
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
        asks_lance()
        try:
            with panics_caught():
                reader = LanceFileReader(path, storage_options=self._location.lance_options, columns=[column])
                return reader.read_all(batch_size=1 << 16).to_table()[column]
        except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise Unreadable(f"{data_file} has no column {column} that can be read") from error

    def rows(self, table_id: str, data_file: str, offsets: Array, columns: Sequence[str]) -> pa.Table:
        """Return some columns of rows of a data file, by their ascending offsets."""
        try:
            with panics_caught(), self._reader(table_id, data_file, tuple(columns)) as reader:
                return reader.take_rows(offsets.tolist()).to_table()
        except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise Unreadable(f"rows of {data_file} cannot be read") from error

    def stretch(self, table_id: str, data_file: str, column: str, start: int, rows: int) -> pa.Array:
        """Return some rows of a column of a data file, one after another."""
        try:
            with panics_caught(), self._reader(table_id, data_file, (column,)) as reader:
                batches = reader.read_range(start, rows).to_table()
        except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise Unreadable(f"rows of {data_file} cannot be read") from error
        return pa.concat_arrays(batches[column].chunks)

    @contextmanager
    def _reader(self, table_id: str, data_file: str, columns: tuple[str, ...]) -> Iterator[LanceFileReader]:
        """Lend a reader of some columns to one caller at a time: Lance refuses a second thread in one."""
        asks_lance()
        idle = self._readers.get_or_make((table_id, data_file, columns), list[LanceFileReader])
        try:
            reader = idle.pop()
        except IndexError:
            path = self._location.join("tables", table_id, "data", data_file)
            options = self._location.lance_options
            reader = LanceFileReader(path, storage_options=options, columns=list(columns))
        yield reader
        if len(idle) < IDLE_READERS:  # one that failed is let go
            idle.append(reader)


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
            raise Unreadable("it cannot be read") from error
        if parts is None:
            raise Unusable("there is none")
        return parts
