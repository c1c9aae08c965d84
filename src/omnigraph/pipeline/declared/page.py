"""Page: a report for people, as one file that needs nothing else.

    run -> report -> **page**

Room    pipeline.declared. Bars are SVG inside the page; there is no script, and nothing is fetched.
Rule    every value is escaped by `_text`, wherever it goes: names, rows and errors come from data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from omnigraph.pipeline.declared.report import RunReport

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
class Bar:
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
            [(one.name, one.rows, one.since, one.watermark) for one in report.sources],
        ),
    )
    yield from _section(
        "Targets",
        _table(
            ("type", "mode", "rows", "inserted", "updated", "deleted"),
            [
                (f"{one.kind} {one.type}", one.mode, one.rows, one.inserted, one.updated, one.deleted)
                for one in report.targets
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


def _times(report: RunReport) -> list[Bar]:
    return [
        Bar(f"{one.kind} {one.name}".strip(), one.seconds, f"{one.seconds:.2f} s") for one in report.stages
    ]


def _rows(report: RunReport) -> list[Bar]:
    found = [Bar(f"read from {one.name}", one.rows, f"{one.rows:,}") for one in report.sources]
    found += [Bar(f"to {one.type}", one.rows, f"{one.rows:,}") for one in report.targets]
    rejected = Bar("rejected", report.rejected, f"{report.rejected:,}", bad=True)
    return found + ([rejected] if found else [])


def _expectations(report: RunReport) -> str:
    found = []
    for one in report.expectations:
        kind, mark = ("", "kept") if one.broken == 0 else (BAD, f"broken by {one.broken:,} rows")
        found.append(f"<li{kind}>{_text(one.name)}: {mark}")
        found.append("".join(f"<pre>{_text(row)}</pre>" for row in one.first) + "</li>")
    return f"<ul>{''.join(found)}</ul>" if found else ""


# -- pieces ------------------------------------------------------------------------------------------


def _section(title: str, content: str) -> Iterable[str]:
    return (f"<h2>{_text(title)}</h2>", content) if content else ()


def _chart(bars: Sequence[Bar]) -> str:
    """Return horizontal bars, the longest as wide as there is room."""
    if not bars:
        return ""
    longest = max((bar.value for bar in bars), default=0) or 1
    room = WIDTH - LABEL - NUMBER
    lines = [f'<svg viewBox="0 0 {WIDTH} {ROW * len(bars)}" width="100%" role="img">']
    for place, bar in enumerate(bars):
        middle = place * ROW + 15
        width = room * bar.value / longest
        kind = BAD if bar.bad else ""
        lines += [
            f'<text x="0" y="{middle}">{_text(_shortened(bar.label))}</text>',
            f'<rect{kind} x="{LABEL}" y="{place * ROW + 3}" width="{width:.1f}" height="{ROW - 6}"/>',
            f'<text x="{LABEL + width + 6:.1f}" y="{middle}">{_text(bar.shown)}</text>',
        ]
    return "\n".join([*lines, "</svg>"])


def _shortened(label: str, most: int = 30) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    numeric = [all(isinstance(row[place], int) for row in rows) for place in range(len(header))]
    kinds = [' class="n"' if one else "" for one in numeric]
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
