"""Report: what an export wrote, as a value and as the manifest beside the files.

Room    engine.export. Plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.base.arguments import checked_methods
from omnigraph.engine.export.files import ExportedFile
from omnigraph.engine.export.plan import ExportPlan, Format

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
        return sum(one.rows for one in self.types)

    @property
    def bytes(self) -> int:
        """How large all files are."""
        return sum(one.bytes for one in self.types)

    def of_kind(self, kind: str) -> int:
        """Return how many nodes or edges were written."""
        return sum(one.rows for one in self.types if one.kind == kind)

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
                    "kind": one.kind,
                    "name": one.name,
                    "rows": one.rows,
                    "bytes": one.bytes,
                    "files": [
                        {"name": file.name, "rows": file.rows, "bytes": file.bytes} for file in one.files
                    ],
                }
                for one in self.types
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
