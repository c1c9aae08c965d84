"""The report of a run: as JSON for scripts, as one page for people that fetches nothing and runs nothing."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.pipeline.declared.report import (
    ExpectationRun,
    RunReport,
    SourceRun,
    StageRun,
    TargetRun,
    page,
    write_report,
)

BAD = '<script>alert("x")</script>'
REPORT = RunReport(
    pipeline="nightly",
    file="nightly.yaml",
    graph="/data/library.og",
    branch="import",
    outcome="published",
    started_at_us=1_767_225_600_000_000,
    seconds=12.3456,
    stages=(
        StageRun("source", "raw", 1.25, 12_345, 7),
        StageRun("expectation", "no empty titles", 0.5, 0),
        StageRun("load", "import", 9.0, 12_000, 31),
    ),
    sources=(SourceRun("raw", 12_345, "2026-01-01", "2026-01-31"),),
    targets=(TargetRun("Book", "node", "merge", 12_000, 11_000, 1_000, 0),),
    expectations=(ExpectationRun("no empty titles", 0),),
    rejected=345,
    rejects="/data/rejects.parquet",
    commit_id="01COMMIT",
    since_commit_id="01BEFORE",
    merge=FrozenMap({"outcome": "fast_forward", "source": "import", "target": "main", "preview": False}),
)


class Elements(HTMLParser):
    """Everything that a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.bars: list[float] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag == "rect":
            self.bars.append(float(dict(attrs)["width"] or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_json_has_the_sums_and_every_stage() -> None:
    found = REPORT.to_json()
    sums = {name: found[name] for name in ("rows_in", "rows_out", "rejected", "requests", "seconds")}
    assert sums == {"rows_in": 12_345, "rows_out": 12_000, "rejected": 345, "requests": 38, "seconds": 12.346}
    assert found["stages"][0] == {
        "kind": "source",
        "name": "raw",
        "seconds": 1.25,
        "rows": 12_345,
        "requests": 7,
    }
    assert found["sources"] == [
        {"name": "raw", "rows": 12_345, "since": "2026-01-01", "watermark": "2026-01-31"}
    ]
    assert found["targets"][0]["inserted"] == 11_000
    assert (found["graph_commit_id"], found["since_commit_id"], found["error"]) == (
        "01COMMIT",
        "01BEFORE",
        None,
    )
    assert found["merge"]["outcome"] == "fast_forward"


def test_the_page_has_the_numbers_and_bars_to_scale() -> None:
    found = Elements(page(REPORT))
    text = " ".join(found.words)
    for words in (
        "nightly published one commit",
        "12,345, 12,000, 345",
        "1.25 s",
        "9.00 s",
        "11,000",
        "2026-01-31",
        "/data/rejects.parquet",
        "01COMMIT",
        "fast_forward into main",
        "2026-01-01T00:00:00+00:00",
        "no empty titles: kept",
        "38",
    ):
        assert words in text, words
    time, rows = found.bars[:3], found.bars[3:]
    assert time[0] / time[2] == pytest.approx(1.25 / 9, abs=0.001)
    assert rows == pytest.approx([rows[0], rows[0] * 12_000 / 12_345, rows[0] * 345 / 12_345], abs=0.1)


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    text = page(REPORT)
    found = Elements(text)
    assert found.names & {"script", "link", "img", "iframe", "object", "embed", "a", "form", "base"} == set()
    assert found.attributes & {"src", "href", "srcset", "action", "style", "onload", "onclick"} == set()
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert len(text) < 20_000


def test_values_from_data_are_escaped_wherever_they_stand() -> None:
    hostile = RunReport(
        pipeline=BAD,
        file=BAD,
        graph=BAD,
        branch=BAD,
        outcome="failed",
        started_at_us=0,
        seconds=0.0,
        stages=(StageRun("source", BAD, 0.0),),
        sources=(SourceRun(BAD, 0, BAD, BAD),),
        targets=(TargetRun(BAD, BAD, BAD, 0, 0, 0, 0),),
        expectations=(ExpectationRun(BAD, 1, (BAD, f'{{"title": "{BAD}"}}')),),
        rejects=BAD,
        commit_id=BAD,
        since_commit_id=BAD,
        merge=FrozenMap({"outcome": BAD, "target": BAD}),
        error=FrozenMap({"error": BAD, "code": BAD}),
    )
    text = page(hostile)
    assert "<script" not in text
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in text
    assert "script" not in Elements(text).names


def test_a_report_of_nothing_is_a_page_too() -> None:
    empty = RunReport("p", "p.yaml", "g", "main", "nothing_new", 0, 0.0)
    assert "found nothing new" in page(empty)
    assert "<svg" not in page(empty)


def test_reports_are_written_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    for commit in ("01ONE", "01TWO"):
        one = RunReport("p", "p.yaml", "g", "main", "published", 0, 0.0, commit_id=commit)
        write_report(one, folder)
    assert json.loads((folder / "report.json").read_text())["graph_commit_id"] == "01TWO"
    assert "01TWO" in (folder / "report.html").read_text()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot write the report"):
        write_report(REPORT, tmp_path / "file")
