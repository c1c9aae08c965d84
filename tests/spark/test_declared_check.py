"""`check` says what is wrong with a pipeline before it runs: every kind of finding, at its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.declared import PipelineCheck, check
from omnigraph.pipeline.declared.spec import REGISTRY
from tests.spark.library import BASIC, Library, make_template

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """One graph for all: a check changes nothing."""
    folder = tmp_path_factory.mktemp("library [1]")  # with what would be a pattern
    found = Library.at(folder, make_template(tmp_path_factory.mktemp("template")))
    found.write(
        "steps.py",
        """
from __future__ import annotations
from dataclasses import dataclass
from pyspark.sql import functions as f

@dataclass
class Prefix:
    text: str

def titled(spark, books):
    assert books.count() == 0, "a check gives no rows"
    return books.withColumn("title", f.concat(f.lit(Prefix("T ").text), "title"))

def nothing(spark):
    return None

def failing(spark, books):
    raise KeyError("no such thing")

def slow(spark, books):
    return books.select("nowhere")

number = 3
""",
    )
    found.write("broken.py", "def f(:\n")
    found.write("raising.py", "1 / 0\n")
    yield found
    found.graph.close()


def checked(spark: SparkSession, library: Library, text: str) -> PipelineCheck:
    before = library.commits()
    found = check(spark, library.graph, library.pipeline(text))
    assert library.commits() == before
    return found


def only(found: PipelineCheck) -> tuple[str, str, str]:
    """Return the code, the words of the file and the message of the one finding."""
    assert len(found.diagnostics) == 1, found.render()
    one = found.diagnostics[0]
    assert one.span is not None
    return one.code, found.pipeline.source.text[one.span.start : one.span.end], one.message


def test_a_good_pipeline_has_no_findings(spark: SparkSession, library: Library) -> None:
    found = checked(spark, library, BASIC)

    assert (found.diagnostics, found.errors, found.order) == ((), (), ("books",))
    assert found.to_json() == {
        "status": "ok",
        "pipeline": "p",
        "file": "p.yaml",
        "branch": "main",
        "errors": 0,
        "warnings": 0,
        "diagnostics": [],
        "sources": [
            {"name": "raw", "columns": "struct<isbn:string,title:string,pages:string,updated:string>"}
        ],
        "transforms": ["books"],
        "targets": [{"type": "Book", "from": "books", "mode": "merge"}],
    }


# -- sources -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{format: csv, path: nowhere.csv}", "nowhere.csv"),
        ("{format: csv, path: [books.csv, '*.tsv']}", "["),
        ("{format: parquet, path: books.csv}", "books.csv"),
        ("{format: nosuchformat, path: books.csv}", "books.csv"),
        ("{format: jdbc}", "raw"),
        ("{format: csv, path: books.csv, schema: 'isbn strng'}", "books.csv"),
        ("{format: csv, path: 's3a://bucket/b.csv'}", "'s3a://bucket/b.csv'"),
        ("{format: omnigraph, path: library.og, options: {type: Bok}}", "library.og"),
    ],
)
def test_a_source_that_cannot_be_read(spark: SparkSession, library: Library, source: str, words: str) -> None:
    text = f"sources:\n  raw: {source}\ntargets: [{{type: Book, from: raw, mode: merge}}]\n"
    code, at, message = only(checked(spark, library, text))
    assert (code, at) == ("PL101", words)
    assert "\n" not in message


def test_a_type_of_a_graph_is_a_source_too(spark: SparkSession, library: Library) -> None:
    text = (
        "sources: {old: {format: omnigraph, path: library.og, options: {type: Reader}}}\n"
        "transforms: {readers: {sql: 'select name, born from old'}}\n"
        "targets: [{type: Reader, from: readers, mode: merge}]\n"
    )
    assert checked(spark, library, text).diagnostics == ()


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("updated_", "has no column 'updated_'"),
        ("score", "column 'score' of source 'raw' is double"),
    ],
)
def test_a_watermark_that_is_none(spark: SparkSession, library: Library, column: str, said: str) -> None:
    text = (
        "sources:\n  raw: {format: csv, path: books.csv, schema: 'isbn string, title string, score double', "
        f"watermark: {column}}}\n"
        "transforms: {books: {sql: 'select isbn, title from raw'}}\n"
        "targets: [{type: Book, from: books, mode: merge}]\n"
    )
    code, at, message = only(checked(spark, library, text))
    assert (code, at) == ("PL102", column)
    assert said in message


# -- transforms ----------------------------------------------------------------------------------------


def with_books(sql: str) -> str:
    return BASIC.replace("select isbn, title, cast(pages as int) as pages from raw", sql)


@pytest.mark.parametrize(
    ("sql", "at", "said"),
    [
        ("select isbn, titel as title from raw", "titel", "transform 'books': "),
        ("select isbn, title, title as titel from raw where titel = 1 and titel > 2", "titel", "titel"),
        ("select isbn, title from rwa", "rwa", "there is no source or transform 'rwa'"),
        ("select isbn, title frm raw", None, "transform 'books': "),
        ("drop table raw", None, "transform 'books': "),
        ("insert into raw select * from raw", None, "transform 'books': "),
        ("set spark.sql.ansi.enabled = false", None, "transform 'books': "),
        ("select isbn, title from raw) union (select isbn, nope from raw", "nope", "nope"),
        ("select isbn, nosuchfunction(title) as title from raw", "nosuchfunction(title)", "nosuchfunction"),
        ("select 1; select 2", None, "transform 'books': "),
    ],
)
def test_sql_that_spark_refuses_is_pointed_at(
    spark: SparkSession, library: Library, sql: str, at: str | None, said: str
) -> None:
    code, found, message = only(checked(spark, library, with_books(sql)))
    assert code == "PL103"
    assert said in message
    assert "SQLSTATE" not in message
    assert found == (at or f'"{sql}"')


def test_a_folded_text_is_pointed_at_in_its_own_line(spark: SparkSession, library: Library) -> None:
    text = BASIC.replace(
        '{sql: "select isbn, title, cast(pages as int) as pages from raw"}',
        "\n    sql: |\n      -- titles\n      select isbn, title\n      from raw\n      where titel = 'x'\n",
    )
    found = checked(spark, library, text)
    code, at, _ = only(found)
    assert (code, at) == ("PL103", "titel")
    span = found.diagnostics[0].span
    assert span is not None
    assert found.pipeline.source.line(span.line) == "      where titel = 'x'"
    assert "where titel = 'x'" in found.render()


def test_a_semicolon_and_a_last_comment_do_no_harm(spark: SparkSession, library: Library) -> None:
    assert checked(spark, library, with_books("select isbn, title from raw;")).errors == ()
    assert checked(spark, library, with_books("select isbn, title from raw -- all")).errors == ()


def test_transforms_come_in_the_order_of_need(spark: SparkSession, library: Library) -> None:
    text = """\
sources:
  raw: {format: csv, path: books.csv, options: {header: true}}
transforms:
  last: {sql: "with raw as (select * from middle) select isbn, title from raw, (select 1 from first)"}
  middle: {sql: "select *, (select count(*) from first) as many, many + 1 as more from first"}
  first: {sql: "select isbn, title from raw"}
targets:
  - {type: Book, from: last, mode: merge}
"""
    found = checked(spark, library, text)
    assert (found.diagnostics, found.order) == ((), ("first", "middle", "last"))


@pytest.mark.parametrize(
    ("transforms", "ring"),
    [
        ("a: {sql: select * from a}", "a -> a"),
        ("a: {sql: select * from b}\n  b: {sql: select * from raw join a}", "a -> b -> a"),
        ("a: {python: 'steps:titled', inputs: [b]}\n  b: {sql: select * from a}", "a -> b -> a"),
    ],
)
def test_transforms_that_need_each_other(
    spark: SparkSession, library: Library, transforms: str, ring: str
) -> None:
    text = BASIC.replace("transforms:\n", f"transforms:\n  {transforms}\n").replace("from: books", "from: a")
    code, at, message = only(checked(spark, library, text))
    assert (code, at) == ("PL008", "a")
    assert message.endswith(ring)


def test_what_follows_from_a_finding_is_no_finding(spark: SparkSession, library: Library) -> None:
    text = with_books("select nope from raw").replace(
        "targets:", "  more: {sql: select * from books}\ntargets:"
    )
    assert only(checked(spark, library, text))[0] == "PL103"


def python(said: str, inputs: str = "[raw]") -> str:
    return BASIC.replace(
        '{sql: "select isbn, title, cast(pages as int) as pages from raw"}',
        f"{{python: '{said}', inputs: {inputs}}}",
    )


def test_a_python_transform_is_called_without_rows(spark: SparkSession, library: Library) -> None:
    text = BASIC.replace("targets:", "  all: {python: 'steps:titled', inputs: [books]}\ntargets:").replace(
        "from: books,", "from: all,"
    )
    assert checked(spark, library, text).diagnostics == ()
    assert not list(library.folder.glob("__pycache__"))


@pytest.mark.parametrize(
    ("said", "inputs", "words"),
    [
        ("nowhere:f", "[]", "there is no file"),
        ("broken:f", "[]", "is not Python"),
        ("raising:f", "[]", "failed: ZeroDivisionError"),
        ("steps:titledd", "[]", "has no function 'titledd'; did you mean 'titled'?"),
        ("steps:number", "[]", "has no function 'number'"),
        ("steps:nothing", "[]", "it returned NoneType, not a DataFrame"),
        ("steps:failing", "[raw]", "it raised TypeError: failing() got an unexpected keyword argument 'raw'"),
        ("steps:titled", "[]", "it raised TypeError: titled() missing 1 required"),
    ],
)
def test_a_python_transform_that_is_none(
    spark: SparkSession, library: Library, said: str, inputs: str, words: str
) -> None:
    code, at, message = only(checked(spark, library, python(said, inputs)))
    assert (code, at) == ("PL104", f"'{said}'")
    assert words in message


def test_what_a_python_transform_raises_is_told(spark: SparkSession, library: Library) -> None:
    for function, words in (("failing", "KeyError: 'no such thing'"), ("slow", "nowhere")):
        text = BASIC.replace("targets:", f"  all: {{python: 'steps:{function}', inputs: [books]}}\ntargets:")
        code, _, message = only(checked(spark, library, text.replace("from: books,", "from: all,")))
        assert code == "PL104"
        assert words in message


def test_a_name_that_spark_has_a_table_for(spark: SparkSession, library: Library) -> None:
    spark.createDataFrame([("9", "Nine")], "isbn string, title string").createOrReplaceTempView("raw")
    spark.sql("create table books (isbn string, title string) using parquet")
    try:
        code, at, message = only(checked(spark, library, BASIC))
    finally:
        spark.sql("drop table books")
        spark.catalog.dropTempView("raw")
    assert (code, at, message) == ("PL105", "books", "Spark has a table 'books' of its own")


# -- targets -------------------------------------------------------------------------------------------


def to(target: str, sql: str, more: str = "") -> str:
    return (
        "sources:\n  raw: {format: csv, path: books.csv, options: {header: true}}\n"
        f'transforms:\n  made: {{sql: "{sql}"}}\n'
        f"targets:\n  - {{{target}}}\n{more}"
    )


@pytest.mark.parametrize(
    ("target", "sql", "code", "at", "said"),
    [
        pytest.param(
            "type: Bookk, from: made, mode: merge", "select isbn, title from raw", "PL202", "Bookk",
            "the schema has no type 'Bookk'", id="unknown-type",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge, columns: {number: isbn}", "select isbn, title from raw",
            "PL203", "isbn", "the rows of 'made' have no column 'number'; they have isbn, title",
            id="unknown-column",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select isbn, title, title as titel from raw",
            "PL204", "made", "'titel'", id="unknown-property",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge, columns: {t: titel}",
            "select isbn, title, title as t from raw", "PL204", "titel", "'titel'", id="mapped-to-nothing",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select isbn, title, 'x' as pages from raw",
            "PL205", "made", "Book.pages is of type U32? and takes integers", id="text-is-no-number",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge, columns: {p: pages}",
            "select isbn, title, cast(1.5 as double) as p from raw", "PL205", "pages", "takes integers",
            id="a-float-is-no-integer",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select isbn, title, map(1, 2) as pages from raw",
            "PL205", "made", "Book.pages", id="a-map-is-nothing",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge",
            "select isbn, title, interval 1 month as pages from raw", "PL205", "made",
            "", id="an-interval-is-nothing",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select isbn, title, 7 as id from raw", "PL205", "made",
            "'id' of Book", id="ids-are-text",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select isbn from raw", "PL206", "made",
            "Book needs 'title', which is required and has no default", id="required",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select title from raw", "PL207", "made",
            "Book needs 'isbn', which its key has", id="key",
        ),
        pytest.param(
            "type: Borrowed, from: made, mode: append", "select 'Ada' as `from` from raw", "PL208", "made",
            "Borrowed needs 'to'", id="an-edge-without-an-end",
        ),
        pytest.param(
            "type: Borrowed, from: made, mode: append, columns: {b: to}",
            "select 'Ada' as `from`, 7 as b from raw", "PL209", "to",
            "'to' of Borrowed holds the ids of Book nodes, which are text, not int32", id="ends-are-text",
        ),
        pytest.param(
            "type: StandsOn, from: made, mode: append",
            "select isbn as `from`, cast(1.5 as double) as `to` from raw", "PL209", "made", "takes integers",
            id="ends-are-keys",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge", "select isbn, isbn, title from raw", "PL210", "made",
            "column 'isbn' stands twice", id="column-twice",
        ),
        pytest.param(
            "type: Book, from: made, mode: merge, columns: {pages: title}",
            "select isbn, title, pages from raw", "PL210", "title", "stands twice", id="mapped-twice",
        ),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_their_type(
    spark: SparkSession, library: Library, target: str, sql: str, code: str, at: str, said: str
) -> None:
    found = checked(spark, library, to(target, sql))
    errors = found.errors
    assert [one.code for one in errors] == [code], found.render()
    assert said in errors[0].message
    assert errors[0].span is not None
    assert found.pipeline.source.text[errors[0].span.start : errors[0].span.end] == at


def test_ends_by_the_value_of_a_key_fit(spark: SparkSession, library: Library) -> None:
    text = to(
        "type: StandsOn, from: made, mode: append, columns: {b: from, s: to}",
        "select isbn as b, cast(pages as bigint) as s from raw",
    )
    assert checked(spark, library, text).errors == ()


def test_all_findings_come_at_once(spark: SparkSession, library: Library) -> None:
    text = """\
sources:
  raw: {format: csv, path: books.csv, options: {header: true}}
  gone: {format: csv, path: gone.csv}
transforms:
  bad: {sql: select nope from raw}
targets:
  - {type: Book, from: raw, mode: merge}
  - {type: Nothing, from: gone, mode: merge}
expectations:
  - {name: e, sql: select nope from raw}
"""
    found = checked(spark, library, text)
    assert [one.code for one in found.errors] == ["PL101", "PL103", "PL204", "PL205", "PL202", "PL103"]
    assert found.to_json()["status"] == "error"
    assert [one["name"] for one in found.to_json()["sources"]] == ["raw"]


def test_two_spellings_of_one_edge_type_are_one_target(spark: SparkSession, library: Library) -> None:
    edge = "from: made, mode: append"
    text = to(
        f"type: Borrowed, {edge}",
        "select 'Ada' as `from`, isbn as `to` from raw",
        f"  - {{type: borrowed, {edge}}}\n  - {{type: Book, from: raws, mode: merge}}\n",
    ).replace("  made:", "  raws: {sql: 'select isbn, title from raw'}\n  made:")
    code, at, message = only(checked(spark, library, text))
    assert (code, at) == ("PL005", "borrowed")
    assert message == "'borrowed' and 'Borrowed' are the same type"


# -- branches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        ("branch: new\nfrom: nowhere\n", "nowhere"),
        ("branch: new\nthen: {merge: nowhere}\n", "{"),
        ("branch: __new\n", "__new"),
    ],
)
def test_branches_that_do_not_exist(spark: SparkSession, library: Library, lines: str, at: str) -> None:
    code, found, _ = only(checked(spark, library, BASIC + lines))
    assert (code, found) == ("PL201", at)


def test_a_branch_that_will_be_made_is_no_finding(spark: SparkSession, library: Library) -> None:
    assert checked(spark, library, BASIC + "branch: new\nthen: {merge: main}\n").diagnostics == ()


# -- advice --------------------------------------------------------------------------------------------


def test_edges_without_nodes_are_worth_a_word(spark: SparkSession, library: Library) -> None:
    text = to("type: Borrowed, from: made, mode: append", "select 'Ada' as `from`, isbn as `to` from raw")
    found = checked(spark, library, text)
    code, at, message = only(found)
    assert (code, at) == ("PL301", "Borrowed")
    assert message == "Borrowed edges need Book nodes: the branch has none, and no target loads them"
    assert (found.errors, len(found.warnings), found.to_json()["status"]) == ((), 1, "ok")


def test_rows_that_nothing_uses_are_worth_a_word(spark: SparkSession, library: Library) -> None:
    idle = "  idle: {sql: select 1 as one}\n  asked: {sql: select 1 as one}\n"
    text = BASIC.replace("targets:", f"{idle}targets:")
    text += "expectations: [{name: e, sql: select * from asked where one = 2}]\n"
    assert only(checked(spark, library, text)) == ("PL302", "idle", "nothing uses 'idle'")


def test_replacing_a_type_by_new_rows_is_worth_a_word(spark: SparkSession, library: Library) -> None:
    text = BASIC.replace("}}\n", "}, watermark: updated}\n", 1).replace("mode: merge", "mode: overwrite")
    code, at, _ = only(checked(spark, library, text))
    assert (code, at) == ("PL303", "overwrite")


def test_every_rule_has_a_test() -> None:
    here = Path(__file__)
    texts = here.read_text() + here.with_name("test_declared_spec.py").read_text()
    assert [code for code in REGISTRY if code not in texts] == []
