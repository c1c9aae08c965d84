"""Report: what one run of a pipeline did, as a value.

    run -> **report** -> JSON, page

Room    pipeline.declared. Made at the end of a run, also of one that failed; page.py shows it to people.
Rule    rows and times are those of this run. Requests are those of the driver: executors of Spark are other
        processes, and count for themselves.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap

Outcome = Literal["published", "nothing_new", "rehearsed", "failed"]
Kind = Literal["check", "source", "transforms", "expectation", "load", "merge"]
JSON_FILE, PAGE_FILE = "report.json", "report.html"


@dataclass(frozen=True, slots=True)
class StageRun:
    """One step of a run."""

    kind: Kind
    name: str
    seconds: float
    rows: int | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class SourceRun:
    """What was read of a source; with a watermark, from where to where."""

    name: str
    rows: int
    since: str | None = None
    watermark: str | None = None


@dataclass(frozen=True, slots=True)
class TargetRun:
    """What became of the rows of a target."""

    type: str
    kind: str
    mode: str
    rows: int
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class ExpectationRun:
    """How many rows broke an expectation, and the first of them."""

    name: str
    broken: int
    first: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunReport:
    """One run of one pipeline."""

    pipeline: str
    file: str
    graph: str
    branch: str
    outcome: Outcome
    started_at_us: int
    seconds: float
    stages: tuple[StageRun, ...] = ()
    sources: tuple[SourceRun, ...] = ()
    targets: tuple[TargetRun, ...] = ()
    expectations: tuple[ExpectationRun, ...] = ()
    rejected: int = 0
    rejects: str | None = None
    commit_id: str | None = None
    since_commit_id: str | None = None  # the run that this one went on from
    merge: FrozenMap[str, Any] | None = None
    error: FrozenMap[str, Any] | None = None
    warnings: tuple[str, ...] = field(default=())

    @property
    def rows_in(self) -> int:
        """The rows read of all sources."""
        return sum(one.rows for one in self.sources)

    @property
    def rows_out(self) -> int:
        """The rows given to all targets."""
        return sum(one.rows for one in self.targets)

    @property
    def requests(self) -> int:
        """What the driver asked of storage."""
        return sum(one.requests for one in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "pipeline": self.pipeline,
            "file": self.file,
            "graph": self.graph,
            "branch": self.branch,
            "outcome": self.outcome,
            "started_at": self.started_at_us,
            "seconds": round(self.seconds, 3),
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rejected": self.rejected,
            "rejects": self.rejects,
            "requests": self.requests,
            "graph_commit_id": self.commit_id,
            "since_commit_id": self.since_commit_id,
            "stages": [asdict(one) | {"seconds": round(one.seconds, 3)} for one in self.stages],
            "sources": [asdict(one) for one in self.sources],
            "targets": [asdict(one) for one in self.targets],
            "expectations": [asdict(one) for one in self.expectations],
            "merge": None if self.merge is None else dict(self.merge),
            "error": None if self.error is None else dict(self.error),
            "warnings": list(self.warnings),
        }


def write_report(report: RunReport, page: str, folder: str | os.PathLike[str]) -> None:
    """Write a report as JSON and as a page; an earlier one in the folder is replaced."""
    place = Path(folder)
    text = json.dumps(report.to_json(), ensure_ascii=False, indent=2, default=str) + "\n"
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / JSON_FILE).write_text(text, encoding="utf-8")
        (place / PAGE_FILE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            f"cannot write the report to {str(place)!r}: {error.strerror}", remedy="Check the path"
        ) from error
