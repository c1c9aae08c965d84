"""The formats of rows, byte for byte."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.cells import cell_len

import omnigraph as og
from omnigraph.catalog.query.expressions import OutputColumn
from omnigraph.execution import result as result_module
from omnigraph.execution.result import Result
from omnigraph.surfaces.cli.support.formats import Cells, Form, ResultFormat
from tests.surfaces.shelf import QUERIES, SHELF, make


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.connect(make(tmp_path_factory.mktemp("shelf") / "kb.og")) as opened:
        yield opened


@pytest.fixture(scope="module")
def everyone(graph: og.Graph) -> Result:
    return graph.query(QUERIES, query_name="everyone")


@pytest.fixture(scope="module")
def nobody(graph: og.Graph) -> Result:
    return graph.query(QUERIES, {"name": "nobody"}, query_name="friends")


def written(result: Result, format: ResultFormat, **form: object) -> str:
    sink = BytesIO()
    replace(Form(format), **form).write(result, sink)  # type: ignore[arg-type]
    return sink.getvalue().decode()


def _without(result: Result, name: str) -> tuple[OutputColumn, ...]:
    return tuple(column for column in result.described if column.name != name)


# -- table -----------------------------------------------------------------------------------------


def test_a_table_has_its_facts_its_columns_and_a_line_for_each_row(everyone: Result) -> None:
    narrow = replace(
        everyone, table=everyone.table.drop_columns("p.born"), described=_without(everyone, "p.born")
    )
    assert written(narrow, ResultFormat.TABLE).splitlines() == [
        "3 rows from branch main via everyone",
        "p.slug  p.age  p.bio                 p.seen                    p.tags      p.score  p.ok",
        "------  -----  --------------------  ------------------------  ----------  -------  ----",
        'ada        36  two\\nlines, "quoted"  2026-01-02T03:04:05.006Z  ["a", "ü"]      0.5  true',
        "bo          9                        null                      null           null  null",
        "日本     null  null                  null                      null           null  null",
    ]


def test_a_table_names_the_commit_if_one_was_asked_for(everyone: Result) -> None:
    first = written(everyone, ResultFormat.TABLE, past=True).splitlines()[0]
    assert first == f"3 rows from branch main at commit {everyone.commit_id} via everyone"


def test_a_table_of_no_rows_still_shows_its_columns(nobody: Result) -> None:
    assert written(nobody, ResultFormat.TABLE) == (
        "0 rows from branch main via friends\nf.slug  f.age\n------  -----\n"
    )


def test_a_column_is_at_most_80_wide(graph: og.Graph) -> None:
    result = graph.query(
        'query q() { match { $p: Person { slug: "bo" } } return { $p.slug, "' + "x" * 81 + '" as long } }'
    )
    lines = written(result, ResultFormat.TABLE).splitlines()
    assert lines[2] == "------  " + "-" * 80
    assert lines[3] == "bo      " + "x" * 79 + "…"
    exact = graph.query(
        'query q() { match { $p: Person { slug: "bo" } } return { "' + "x" * 80 + '" as long } }'
    )
    assert written(exact, ResultFormat.TABLE).splitlines()[3] == "x" * 80


def test_a_wide_value_wraps_on_demand(everyone: Result) -> None:
    lines = written(everyone, ResultFormat.TABLE, width=10, cells=Cells.WRAP).splitlines()
    bio = lines[1].index("p.bio")
    assert [line[bio : bio + 10].strip() for line in lines[3:6]] == ["two\\nlines", ', "quoted"', ""]
    assert lines[4].startswith(" " * bio), "other columns are blank there"
    assert written(everyone, ResultFormat.TABLE, width=10).splitlines()[3][bio : bio + 10] == "two\\nline…"


@pytest.mark.parametrize("cells", Cells)
@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_wide_characters_never_make_a_column_too_wide(everyone: Result, cells: Cells, width: int) -> None:
    lines = written(everyone, ResultFormat.TABLE, width=width, cells=cells).splitlines()[1:]
    rule = next(line for line in lines if set(line) <= {"-", " "})
    assert all(len(part) <= max(width, 2) for part in rule.split())
    assert all(cell_len(line) <= len(rule) for line in lines)


def test_nothing_in_a_value_reaches_the_terminal_as_a_command(graph: og.Graph) -> None:
    text = "a\x1b[31mb\x00c\x85d\u2028e\tf\rg"
    result = graph.query(
        "query q($t: String) { match { $p: Person } return { $p.slug, $t as t } limit 1 }", t=text
    )
    safe = "a\\u001b[31mb\\u0000c\\u0085d\\u2028e\\tf\\rg"
    assert written(result, ResultFormat.TABLE).split("\n")[3].endswith(safe)
    assert written(result, ResultFormat.KV).split("\n")[2] == f"t: {safe}"


def test_a_node_is_shown_as_its_json(graph: og.Graph) -> None:
    result = graph.query('query q() { match { $p: Person { slug: "bo" } } return { $p } }')
    row = written(result, ResultFormat.TABLE, width=500).splitlines()[3]
    assert json.loads(row)["id"] == "bo"


# -- kv --------------------------------------------------------------------------------------------


def test_kv_is_a_block_for_each_row(graph: og.Graph) -> None:
    assert written(graph.query(QUERIES, query_name="ages"), ResultFormat.KV) == (
        "row 1\nname: ada\np.age: 36\n\nrow 2\nname: bo\np.age: 9\n\nrow 3\nname: 日本\np.age: null\n"
    )


def test_kv_of_no_rows_is_empty(nobody: Result) -> None:
    assert written(nobody, ResultFormat.KV) == ""


# -- json, jsonl -----------------------------------------------------------------------------------


def test_json_is_the_document_of_a_read(everyone: Result) -> None:
    text = written(everyone, ResultFormat.JSON)
    assert text == json.dumps(everyone.to_json(), ensure_ascii=False, indent=2) + "\n"
    document = json.loads(text)
    assert list(document) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert document["target"] == {"branch": "main", "snapshot": everyone.commit_id}
    assert document["rows"][0]["p.seen"] == "2026-01-02T03:04:05.006Z"


def test_jsonl_is_an_object_for_each_row(graph: og.Graph) -> None:
    assert written(graph.query(QUERIES, query_name="ages"), ResultFormat.JSONL) == (
        '{"name": "ada", "p.age": 36}\n{"name": "bo", "p.age": 9}\n{"name": "日本", "p.age": null}\n'
    )


def test_jsonl_has_the_facts_of_the_read_first_on_demand(everyone: Result) -> None:
    lines = written(everyone, ResultFormat.JSONL, with_metadata=True).splitlines()
    facts = everyone.to_json()
    del facts["rows"]
    assert json.loads(lines[0]) == facts
    assert lines[1:] == written(everyone, ResultFormat.JSONL).splitlines()


# -- csv -------------------------------------------------------------------------------------------


def test_csv_is_rfc_4180_with_null_as_an_empty_field(everyone: Result) -> None:
    assert written(everyone, ResultFormat.CSV) == (
        "p.slug,p.age,p.bio,p.seen,p.born,p.tags,p.score,p.ok\r\n"
        'ada,36,"two\nlines, ""quoted""",2026-01-02T03:04:05.006Z,1990-02-03,"[""a"", ""ü""]",0.5,true\r\n'
        'bo,9,"",,,,,\r\n'
        "日本,,,,,,,\r\n"
    )


def test_csv_is_read_back_as_it_was(everyone: Result) -> None:
    rows = list(csv.reader(StringIO(written(everyone, ResultFormat.CSV), newline="")))
    assert rows[1][2] == 'two\nlines, "quoted"'
    assert [len(row) for row in rows] == [8] * 4


def test_csv_of_no_rows_is_its_header(nobody: Result) -> None:
    assert written(nobody, ResultFormat.CSV) == "f.slug,f.age\r\n"


def test_csv_loads_into_a_graph_again(graph: og.Graph, tmp_path: Path) -> None:
    result = graph.query(
        "query q() { match { $p: Person } return { $p.slug as slug, $p.age as age, $p.bio as bio, "
        "$p.seen as seen, $p.born as born, $p.score as score, $p.ok as ok } order { $p.slug } }"
    )
    (tmp_path / "Person.csv").write_bytes(written(result, ResultFormat.CSV).encode())
    with og.init(tmp_path / "copy.og", SHELF, durability="os") as copy:
        copy.load(tmp_path / "Person.csv", mode="append", type="Person")
        again = copy.query(
            "query q() { match { $p: Person } return { $p.slug as slug, $p.age as age, $p.seen as seen, "
            "$p.born as born, $p.score as score, $p.ok as ok } order { $p.slug } }"
        )
    wanted = [{key: value for key, value in row.items() if key != "bio"} for row in result.rows]
    assert again.rows == wanted


# -- arrow -----------------------------------------------------------------------------------------


def test_arrow_is_a_typed_stream_that_names_its_query_and_commit(everyone: Result) -> None:
    sink = BytesIO()
    Form(ResultFormat.ARROW).write(everyone, sink)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert table.replace_schema_metadata(None).equals(everyone.to_arrow())
    assert table.schema.metadata == {
        b"query_name": b"everyone",
        b"branch": b"main",
        b"graph_commit_id": everyone.commit_id.encode(),
    }


def test_arrow_of_no_rows_is_typed(nobody: Result) -> None:
    sink = BytesIO()
    Form(ResultFormat.ARROW).write(nobody, sink)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert (table.num_rows, table.schema.field("f.age").type) == (0, pa.int32())


# -- all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [one for one in ResultFormat if one is not ResultFormat.ARROW])
def test_pages_of_rows_are_not_seen(
    everyone: Result, format: ResultFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = written(everyone, format)
    monkeypatch.setattr(result_module, "PAGE", 2)
    assert written(everyone, format) == whole
