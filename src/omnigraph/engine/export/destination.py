"""Destination: the folder that an export fills, which is whole or has no manifest.

    plan -> rows -> files -> **destination** -> report

Room    engine.export. Files are written out of sight, below a folder of this export's own; those that count
        then get their names, and `_manifest.json`, which names exactly these, comes last.
Why     a task that is tried again, or twice at once, leaves files that nobody asked for. They stay out of
        sight and are removed: neither a load of the folder nor anything else that reads it meets them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.engine.export.files import ExportedFile
from omnigraph.engine.export.plan import ExportPlan, Format
from omnigraph.engine.export.report import ExportReport, report_of
from omnigraph.storage.location import LocalObjects, Location

MANIFEST, SCHEMA = "_manifest.json", "_schema.pg"  # a load skips names that begin like these


class DestinationTaken(InvalidRequest):
    """There is something at the destination already; an export never adds to it or replaces it."""

    code = "destination_not_empty"


class Destination:
    """An empty folder that becomes an export, or stays as it was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staging = root / f"_staging-{new_id()}"

    def complete(
        self, plan: ExportPlan, format: Format, files: Mapping[str, Sequence[ExportedFile]]
    ) -> ExportReport:
        """Give the files that count their names, then say which they are."""
        report = report_of(str(self.root), plan, format, files)
        for one in report.types:
            for file in one.files:
                self._show(file)
        folder = LocalObjects(str(self.root))  # of the export: no step of the graph
        folder.create(SCHEMA, plan.catalog.source.encode())
        text = json.dumps(report.to_json(), ensure_ascii=False, indent=2)
        if not folder.create(MANIFEST, text.encode()):
            raise _taken(self.root)
        return report

    def _show(self, file: ExportedFile) -> None:
        found, shown = self.staging / file.name, self.root / file.name
        if not found.exists():
            raise InvalidRequest(
                f"{found} was written somewhere else: this machine does not see the disk of the executors",
                remedy="Export to a folder that the driver and all executors share",
            )
        shown.parent.mkdir(exist_ok=True)
        found.rename(shown)


@contextmanager
def destination_at(address: str | os.PathLike[str]) -> Iterator[Destination]:
    """Take an empty or new folder for an export; what was staged in it is gone afterwards, come what may."""
    place = Location.parse(address)
    if not place.is_local:
        raise InvalidRequest(
            f"an export is written to a folder, not to {place.uri}",
            remedy="Export to a local or mounted folder, then copy it there",
        )
    root = Path(place.uri)
    with _told(root):
        made = not root.exists()
        if not made and (not root.is_dir() or any(root.iterdir())):
            raise _taken(root)
        target = Destination(root)
        target.staging.mkdir(parents=True)
        try:
            yield target
        finally:
            shutil.rmtree(target.staging, ignore_errors=True)
            if made:
                with suppress(OSError):  # it holds an export
                    root.rmdir()


def _taken(root: Path) -> DestinationTaken:
    return DestinationTaken(
        f"{root} exists and is not an empty folder", remedy="Give a new or empty folder", path=str(root)
    )


@contextmanager
def _told(root: Path) -> Iterator[None]:
    """Say which folder it was, where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"cannot write to {str(root)!r}: {error.strerror or error}", remedy="Check the path and the disk"
        ) from error
