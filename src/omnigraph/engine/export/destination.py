"""Destination: the folder that an export fills, which is whole or has no manifest.

    plan -> rows -> files -> **destination** -> report

Room    engine.export. Files are written out of sight, below a folder that only one export can make; those
        that count then get their names, and `_manifest.json`, which names exactly these, comes last.
Given   a local folder, or one on an object store.
Why     a task that is tried again, or twice at once, leaves files that nobody asked for. They stay out of
        sight and are removed: neither a load of the folder nor anything else that reads it meets them.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from omnigraph.base.errors import InvalidRequest, StorageError
from omnigraph.engine.export.files import ExportedFile
from omnigraph.engine.export.plan import ExportPlan, Format
from omnigraph.engine.export.report import ExportReport, report_of
from omnigraph.storage.location import Location, RemoteObjects

MANIFEST, SCHEMA, STAGING = "_manifest.json", "_schema.pg", "_staging"  # a load skips names like these
CLAIM = f"{STAGING}/_claim"
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
        self._show([file.name for one in report.types for file in one.files])
        folder = self.root.objects  # of the export: no step of the graph
        folder.create(SCHEMA, plan.catalog.source.encode())
        text = json.dumps(report.to_json(), ensure_ascii=False, indent=2)
        if not folder.create(MANIFEST, text.encode()):
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
            found, shown = Path(self.staging.uri, name), Path(self.root.uri, name)
            if not found.exists():
                raise InvalidRequest(
                    f"{found} was written elsewhere: this machine does not see the disk of the executors",
                    remedy="Export to an object store, or to a folder that driver and executors share",
                )
            shown.parent.mkdir(exist_ok=True)
            found.rename(shown)


@contextmanager
def _folder(root: Location) -> Iterator[Destination]:
    path = Path(root.uri)
    with _told(path):
        made = not path.exists()
        if not made and (not path.is_dir() or any(path.iterdir())):
            raise _taken(root)
        staging = path / STAGING
        path.mkdir(parents=True, exist_ok=True)
        try:
            staging.mkdir()
        except FileExistsError:
            raise _taken(root) from None  # by another export, just now
        try:
            if any(entry != staging for entry in path.iterdir()):
                raise _taken(root)
            yield _Folder(root)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            if made:
                with suppress(OSError):  # it holds an export
                    path.rmdir()


@contextmanager
def _told(root: Path) -> Iterator[None]:
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
    if not bucket.create(CLAIM, b""):
        raise _taken(root)  # by another export, or by what is left of one that was killed
    try:
        if any(key != CLAIM for key, _ in bucket.list()):
            raise _taken(root)
        yield _Bucket(root)
    finally:
        with suppress(StorageError):  # what is left over is out of sight
            staged = [key for key, _ in bucket.list(STAGING) if key != CLAIM]
            _at_once(bucket.delete, [*staged, CLAIM])


def _at_once(action: Callable[[str], None], names: Sequence[str]) -> None:
    """Do something for many objects side by side; each is a request or two."""
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        list(pool.map(action, names))


def _taken(root: Location) -> DestinationTaken:
    return DestinationTaken(
        f"{root.uri} exists and is not an empty folder", remedy="Give a new or empty folder", path=root.uri
    )
