"""Report: what one run of a pipeline did, as a value, as JSON and as a page for people.

Made at the end of a run, also of one that failed. The page is one file that needs nothing else: bars are SVG
inside it, there is no script, and nothing is fetched.

Rule    rows and times are those of this run. Requests are those of the driver: executors of Spark are other
        processes, and count for themselves.
Rule    every value on the page is escaped by `_text`: names, rows and errors come from data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Literal

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap

# == values ========================================================================================

RunOutcome = Literal["published", "nothing_new", "rehearsed", "failed"]
StageKind = Literal["check", "source", "transforms", "expectation", "load", "merge"]
JSON_FILE, PAGE_FILE = "report.json", "report.html"


@dataclass(frozen=True, slots=True)
class StageRun:
    """One step of a run."""

    kind: StageKind
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
    outcome: RunOutcome
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
        return sum(source.rows for source in self.sources)

    @property
    def rows_out(self) -> int:
        """The rows given to all targets."""
        return sum(target.rows for target in self.targets)

    @property
    def requests(self) -> int:
        """What the driver asked of storage."""
        return sum(stage.requests for stage in self.stages)

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
            "stages": [asdict(stage) | {"seconds": round(stage.seconds, 3)} for stage in self.stages],
            "sources": [asdict(source) for source in self.sources],
            "targets": [asdict(target) for target in self.targets],
            "expectations": [asdict(expectation) for expectation in self.expectations],
            "merge": None if self.merge is None else dict(self.merge),
            "error": None if self.error is None else dict(self.error),
            "warnings": list(self.warnings),
        }


def write_report(report: RunReport, folder: str | os.PathLike[str]) -> None:
    """Write a report as JSON and as a page; an earlier one in the folder is replaced."""
    directory = Path(folder)
    text = json.dumps(report.to_json(), ensure_ascii=False, indent=2, default=str) + "\n"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / JSON_FILE).write_text(text, encoding="utf-8")
        (directory / PAGE_FILE).write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            f"cannot write the report to {str(directory)!r}: {error.strerror}", remedy="Check the path"
        ) from error


# == the page ======================================================================================

WIDTH, ROW, LABEL, NUMBER = 720, 22, 220, 110  # of a chart: all, one bar, the words before it and after it
BAD = ' class="bad"'
STYLE = """
:root { color-scheme: light dark; --bar: #3b78c3; --bad: #c0392b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 1.8em; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 2px 10px 2px 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font-size: 13px; overflow-wrap: anywhere; white-space: pre-wrap; }
svg text { font-size: 13px; fill: currentColor; } rect { fill: var(--bar); } rect.bad { fill: var(--bad); }
.bad { color: var(--bad); }
"""
TITLES = {
    "published": "published one commit",
    "nothing_new": "found nothing new: no commit was made",
    "rehearsed": "was rehearsed: nothing was written",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One line of a chart."""

    label: str
    value: float
    shown: str
    bad: bool = False


def page(report: RunReport) -> str:
    """Return a report as HTML."""
    title = f"{report.pipeline} {TITLES[report.outcome]}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{_text(title)}</h1>",
            *_parts(report),
            "</body></html>",
            "",
        ]
    )


def _parts(report: RunReport) -> Iterator[str]:
    yield _facts(report)
    if report.error is not None:
        yield f'<h2 class="bad">Error</h2><pre>{_text(report.error.get("error"))}</pre>'
    yield from _section("Time", _chart(_times(report)))
    yield from _section("Rows", _chart(_rows(report)))
    yield from _section(
        "Sources",
        _table(
            ("source", "rows", "after", "up to"),
            [(source.name, source.rows, source.since, source.watermark) for source in report.sources],
        ),
    )
    yield from _section(
        "Targets",
        _table(
            ("type", "mode", "rows", "inserted", "updated", "deleted"),
            [
                (
                    f"{target.kind} {target.type}",
                    target.mode,
                    target.rows,
                    target.inserted,
                    target.updated,
                    target.deleted,
                )
                for target in report.targets
            ],
        ),
    )
    yield from _section("Expectations", _expectations(report))


def _facts(report: RunReport) -> str:
    started = datetime.fromtimestamp(report.started_at_us / 1e6, UTC).isoformat(timespec="seconds")
    merge = report.merge
    facts = [
        ("graph", report.graph),
        ("branch", report.branch),
        ("commit", report.commit_id),
        ("after the run of commit", report.since_commit_id),
        ("merge", None if merge is None else f"{merge['outcome']} into {merge['target']}"),
        ("started", started),
        ("seconds", f"{report.seconds:.1f}"),
        ("rows in, out, rejected", f"{report.rows_in:,}, {report.rows_out:,}, {report.rejected:,}"),
        ("rejected rows", report.rejects),
        ("requests of the driver", f"{report.requests:,}"),
        ("file", report.file),
    ]
    rows = "".join(
        f"<tr><th>{_text(name)}</th><td><code>{_text(value)}</code></td></tr>"
        for name, value in facts
        if value is not None
    )
    return f"<table>{rows}</table>"


def _times(report: RunReport) -> list[ChartBar]:
    return [
        ChartBar(f"{stage.kind} {stage.name}".strip(), stage.seconds, f"{stage.seconds:.2f} s")
        for stage in report.stages
    ]


def _rows(report: RunReport) -> list[ChartBar]:
    bars = [
        ChartBar(f"read from {source.name}", source.rows, f"{source.rows:,}") for source in report.sources
    ]
    bars += [ChartBar(f"to {target.type}", target.rows, f"{target.rows:,}") for target in report.targets]
    rejected = ChartBar("rejected", report.rejected, f"{report.rejected:,}", bad=True)
    return bars + ([rejected] if bars else [])


def _expectations(report: RunReport) -> str:
    items = []
    for expectation in report.expectations:
        kind, mark = (
            ("", "kept") if expectation.broken == 0 else (BAD, f"broken by {expectation.broken:,} rows")
        )
        items.append(f"<li{kind}>{_text(expectation.name)}: {mark}")
        items.append("".join(f"<pre>{_text(row)}</pre>" for row in expectation.first) + "</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


# -- pieces ------------------------------------------------------------------------------------------


def _section(title: str, content: str) -> Iterable[str]:
    return (f"<h2>{_text(title)}</h2>", content) if content else ()


def _chart(bars: Sequence[ChartBar]) -> str:
    """Return horizontal bars, the longest as wide as there is room."""
    if not bars:
        return ""
    longest = max((bar.value for bar in bars), default=0) or 1
    room = WIDTH - LABEL - NUMBER
    lines = [f'<svg viewBox="0 0 {WIDTH} {ROW * len(bars)}" width="100%" role="img">']
    for position, bar in enumerate(bars):
        middle = position * ROW + 15
        width = room * bar.value / longest
        kind = BAD if bar.bad else ""
        lines += [
            f'<text x="0" y="{middle}">{_text(_shortened(bar.label))}</text>',
            f'<rect{kind} x="{LABEL}" y="{position * ROW + 3}" width="{width:.1f}" height="{ROW - 6}"/>',
            f'<text x="{LABEL + width + 6:.1f}" y="{middle}">{_text(bar.shown)}</text>',
        ]
    return "\n".join([*lines, "</svg>"])


def _shortened(label: str, most: int = 30) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    numeric = [all(isinstance(row[column], int) for row in rows) for column in range(len(header))]
    kinds = [' class="n"' if is_number else "" for is_number in numeric]
    head = "".join(f"<th{kind}>{_text(name)}</th>" for name, kind in zip(header, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{_text(_cell(value))}</td>" for value, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text(value: object) -> str:
    return escape(str(value), quote=True)
