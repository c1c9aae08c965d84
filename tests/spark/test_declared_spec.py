"""A pipeline file is read strictly: what it says becomes a value, everything else a finding at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import Diagnostic
from omnigraph.pipeline.declared import PipelineError, parse_pipeline, read_pipeline
from omnigraph.pipeline.declared.spec import (
    ExpectationSpec,
    Pipeline,
    PythonSpec,
    SourceSpec,
    SqlSpec,
    TargetSpec,
    ThenSpec,
)

FULL = """\
name: nightly
graph: library.og
branch: import/2026-01
from: staging
message: nightly import
sources:
  raw: {format: csv, path: b.csv, options: {header: true, sep: ";", maxColumns: 20}, watermark: updated_at}
  sales: {format: jdbc, options: {url: "jdbc:x", dbtable: sales}, schema: "isbn string, price double"}
  old: {format: parquet, path: [a.parquet, s3a://bucket/b.parquet]}
transforms:
  books: {sql: "select isbn, title from raw where title is not null"}
  clean: {python: "lib.transforms:clean", inputs: [books, old]}
targets:
  - {type: Book, from: clean, mode: merge, columns: {isbn_13: isbn}}
  - {type: Sold, from: sales, mode: append}
expectations:
  - {name: no empty titles, sql: "select * from books where title = ''"}
on_violation: reject
rejects: out/rejects.parquet
then: {merge: main}
"""
GOOD = "sources: {raw: {format: csv}}\ntargets: [{type: Book, from: raw, mode: merge}]\n"


def refused(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text, file="p.yaml")
    assert caught.value.code == "pipeline_invalid"
    return caught.value.diagnostics


def placed(found: tuple[Diagnostic, ...]) -> list[tuple[str, int | None, int | None]]:
    return [
        (one.code, None if one.span is None else one.span.line, None if one.span is None else one.span.column)
        for one in found
    ]


def test_everything_that_a_file_says_is_in_the_value() -> None:
    found = parse_pipeline(FULL, file="p.yaml", folder=Path("/data"))

    assert found == Pipeline(
        name="nightly",
        folder=Path("/data"),
        graph="library.og",
        branch="import/2026-01",
        from_branch="staging",
        message="nightly import",
        sources=(
            SourceSpec(
                "raw",
                "csv",
                ("b.csv",),
                {"header": "true", "sep": ";", "maxColumns": "20"},
                watermark="updated_at",
            ),
            SourceSpec(
                "sales",
                "jdbc",
                options={"url": "jdbc:x", "dbtable": "sales"},
                schema="isbn string, price double",
            ),
            SourceSpec("old", "parquet", ("a.parquet", "s3a://bucket/b.parquet")),
        ),
        transforms=(
            SqlSpec("books", "select isbn, title from raw where title is not null"),
            PythonSpec("clean", "lib.transforms", "clean", ("books", "old")),
        ),
        targets=(
            TargetSpec("Book", "clean", "merge", {"isbn_13": "isbn"}),
            TargetSpec("Sold", "sales", "append"),
        ),
        expectations=(ExpectationSpec("no empty titles", "select * from books where title = ''"),),
        on_violation="reject",
        rejects="out/rejects.parquet",
        then=ThenSpec("merge", "main"),
    )
    assert [one.name for one in found.watermarks] == ["raw"]


def test_little_has_to_be_said() -> None:
    found = parse_pipeline(GOOD, file="some/where/books.yaml")
    assert (found.name, found.branch, found.from_branch, found.graph) == ("books", "main", "main", None)
    assert (found.on_violation, found.then, found.expectations) == ("fail", None, ())


def test_a_file_is_read_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.yaml").write_text("\ufeff" + GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = read_pipeline("p.yaml")
    assert (found.folder, found.source.file) == (tmp_path, "p.yaml")
    assert found.address("a.csv") == str(tmp_path / "a.csv")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read pipeline .*No such file"):
        read_pipeline(tmp_path / "p.yaml")


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"name: \xff")
    with pytest.raises(PipelineError, match=r"PL001.*broken UTF-8 at byte 6"):
        read_pipeline(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a: [1, 2\nb: 3\n", ("PL001", 2, 2)),
        ("a: 1\n\ttabs: 2\n", ("PL001", 2, 1)),
        ("- a list\n", ("PL001", None, None)),
        ("", ("PL001", None, None)),
        ("name: a\x00b\n", ("PL001", None, None)),
        ("a: !!python/object:os.system x\n", ("PL002", 1, 1)),
    ],
)
def test_what_is_not_yaml_is_one_finding(text: str, at: tuple[str, int | None, int | None]) -> None:
    assert at in placed(refused(text))


@pytest.mark.parametrize(
    ("text", "code", "place", "words"),
    [
        pytest.param(GOOD + "branchh: x\n", "PL002", (3, 1), "no key 'branchh'", id="unknown-key"),
        pytest.param(
            "sources: {raw: {format: csv, opts: {}}}\n" + GOOD[30:],
            "PL002",
            (1, 30),
            "source 'raw' has no key 'opts'; the keys are format, path, options, schema, watermark",
            id="unknown-key-of-a-source",
        ),
        pytest.param(GOOD + "<<: {name: x}\n", "PL002", (3, 1), "'<<'", id="merge-keys-are-unknown"),
        pytest.param(GOOD + "branch: [a]\n", "PL003", (3, 9), "takes a text, not a list", id="a-list"),
        pytest.param(GOOD + "branch: no\n", "PL003", (3, 9), "not a boolean", id="a-bare-no"),
        pytest.param(GOOD + "branch:\n", "PL003", (3, 8), "not nothing", id="nothing"),
        pytest.param(GOOD + "branch: ''\n", "PL003", (3, 9), "an empty text", id="an-empty-text"),
        pytest.param(GOOD + "sources: raw\n", "PL005", (3, 1), "'sources' stands twice", id="twice"),
        pytest.param(GOOD + "[a]: x\n", "PL003", (3, 1), "a key of the pipeline is not a text", id="key"),
        pytest.param(GOOD + "transforms: []\n", "PL003", (3, 13), "takes a mapping, not a list", id="map"),
        pytest.param(GOOD + "expectations: {}\n", "PL003", (3, 15), "takes a list, not a mapping", id="list"),
        pytest.param(
            GOOD + "expectations: [x]\n", "PL003", (3, 16), "an expectation takes a mapping", id="item"
        ),
        pytest.param(
            "sources: {raw: {format: csv, path: [[a]]}}\n" + GOOD[30:],
            "PL003",
            (1, 37),
            "an item of 'path'",
            id="path",
        ),
        pytest.param(
            "sources: {raw: {format: csv, options: {header: }}}\n" + GOOD[30:],
            "PL003",
            (1, 48),
            "'header' of 'options' takes a text, a number or a boolean",
            id="option",
        ),
        pytest.param("sources: {raw: {}}\n" + GOOD[30:], "PL004", (1, 16), "needs 'format'", id="format"),
        pytest.param("name: x\n", "PL004", (1, 1), "needs 'targets'", id="targets"),
        pytest.param("targets: []\n", "PL004", (1, 1), "needs 'targets'", id="no-targets"),
        pytest.param(
            GOOD[:30] + "targets: [{from: raw, mode: merge}]\n",
            "PL004",
            (2, 11),
            "a target needs 'type'",
            id="type",
        ),
        pytest.param(
            GOOD.replace("merge", "upsert"),
            "PL003",
            (2, 41),
            "is 'upsert', and takes append or merge or overwrite",
            id="mode",
        ),
        pytest.param(
            GOOD[:-2] + ", {type: Book, from: raw, mode: append}]\n",
            "PL005",
            (2, 56),
            "'Book' is the target of two entries",
            id="two-targets",
        ),
        pytest.param(
            GOOD + "transforms: {raw: {sql: select 1}}\n",
            "PL005",
            (3, 14),
            "'raw' is the name of a source already",
            id="two-names",
        ),
        pytest.param(
            GOOD + "expectations: [{name: a, sql: b}, {name: a, sql: c}]\n",
            "PL005",
            (3, 42),
            "two expectations have the name 'a'",
            id="two-expectations",
        ),
        pytest.param(
            GOOD + "transforms: {my-rows: {sql: select 1}}\n", "PL006", (3, 14), "'my-rows'", id="bad-name"
        ),
        pytest.param(
            GOOD.replace("from: raw", "from: row"),
            "PL007",
            (2, 30),
            "is 'row', which is no",
            id="unknown-rows",
        ),
        pytest.param(
            GOOD + "transforms: {a: {python: 'm:f', inputs: [raw, b]}}\n",
            "PL007",
            (3, 41),
            "an input of 'a' is 'b'",
            id="unknown-input",
        ),
        pytest.param(
            GOOD + "transforms: {a: {}}\n", "PL003", (3, 14), "neither 'sql' nor 'python'", id="neither"
        ),
        pytest.param(
            GOOD + "transforms: {a: {sql: x, python: 'm:f'}}\n", "PL003", (3, 14), "both 'sql'", id="both"
        ),
        pytest.param(
            GOOD + "transforms: {a: {sql: x, inputs: [raw]}}\n",
            "PL003",
            (3, 34),
            "names its inputs itself",
            id="inputs-of-sql",
        ),
        pytest.param(
            GOOD + "transforms: {a: {python: clean}}\n",
            "PL003",
            (3, 26),
            "not MODULE:FUNCTION",
            id="function",
        ),
        pytest.param(GOOD + "on_violation: skip\n", "PL003", (3, 15), "fail or reject", id="on-violation"),
        pytest.param(
            GOOD + "rejects: here\n", "PL003", (3, 10), "with 'on_violation: reject' only", id="rejects"
        ),
        pytest.param(GOOD + "on_violation: reject\n", "PL004", (1, 1), "needs 'rejects'", id="nowhere-to"),
        pytest.param(
            GOOD + "on_violation: reject\nrejects: ftp://b/r\n",
            "PL003",
            (4, 10),
            "unsupported address",
            id="rejects-elsewhere",
        ),
        pytest.param(
            GOOD + "on_violation: reject\nrejects: s3://b\n",
            "PL003",
            (4, 10),
            "the reject table is a file",
            id="rejects-everywhere",
        ),
        pytest.param(GOOD + "then: {}\n", "PL003", (3, 7), "{merge: BRANCH} or {preview: BRANCH}", id="then"),
        pytest.param(
            GOOD + "branch: b\nthen: {merge: main, preview: main}\n",
            "PL003",
            (4, 7),
            "one of them",
            id="thens",
        ),
        pytest.param(
            GOOD + "then: {merge: main}\n", "PL009", (3, 15), "the rows go to 'main'", id="into-itself"
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_place(text: str, code: str, place: tuple[int, int], words: str) -> None:
    found = refused(text)
    assert (code, *place) in placed(found)
    assert words in next(one.message for one in found if one.code == code)


def test_misspelt_words_get_a_suggestion() -> None:
    wrong = GOOD.replace("format", "formatt").replace("from: raw", "from: raww") + "messagee: x\n"
    hints = {one.suggestion for one in refused(wrong)}
    assert hints >= {"did you mean 'format'?", "did you mean 'raw'?", "did you mean 'message'?"}


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "branchh: x\nsources:\n  my-raw: {path: a}\ntargets:\n  - {type: Book, from: raw, mode: upsert}\n"
    assert placed(refused(text)) == [
        ("PL002", 1, 1),
        ("PL006", 3, 3),
        ("PL004", 3, 11),
        ("PL003", 5, 35),
    ]


def test_the_file_and_the_line_are_shown() -> None:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(GOOD + "branchh: x\n", file="p.yaml")
    assert "p.yaml:3:1" in str(caught.value)
    assert str(caught.value) == (
        "p.yaml:3:1: error[PL002]: the pipeline has no key 'branchh'; the keys are name, graph, branch, "
        "from, message, sources, transforms, targets, expectations, on_violation, rejects, then\n"
        "  |\n3 | branchh: x\n  | ^^^^^^^\n  = help: did you mean 'branch'?"
    )


def test_a_text_that_refers_to_itself_ends() -> None:
    assert "PL003" in {one.code for one in refused("sources: &a {raw: *a}\ntargets: *a\n")}


def test_lists_in_lists_without_end_are_a_finding() -> None:
    assert [one.code for one in refused("a: " + "[" * 200_000)] == ["PL001"]
