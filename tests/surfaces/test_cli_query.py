"""`query`, `explain` and `profile`: which graph, which text, which state, which format, where to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.catalog.query import compile_query
from omnigraph.storage.cost import process_totals
from tests.support.desk import Desk, Ran
from tests.surfaces.shelf import QUERIES, make
from tests.surfaces.test_cli_terminal import COMMAND, at_terminal

FRIENDS = ("friends", "--param", "name=ada")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph that nobody in this file changes."""
    return make(tmp_path_factory.mktemp("shelf") / "kb.og")


@pytest.fixture
def ask(desk: Desk, shelf: str) -> Desk:
    desk.file("q.gq", QUERIES)
    return desk


def query(desk: Desk, shelf: str, *more: str) -> Ran:
    return desk.run("query", shelf, "--query", "q.gq", *more)


# -- which graph, which query ----------------------------------------------------------------------


def test_a_read_prints_a_table(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "ages")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "3 rows from branch main via ages\nname  p.age\n----  -----\nada      36\nbo        9\n日本   null\n"
    )


def test_no_rows_are_a_success(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "friends", "--param", "name=nobody")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "0 rows from branch main via friends")


def test_the_text_may_stand_on_the_line_and_needs_no_name_if_it_has_one_query(ask: Desk, shelf: str) -> None:
    ran = ask.run("query", shelf, "-e", "query q() { match { $p: Person } return { count($p) as n } }")
    assert ran.out.splitlines()[-1] == "3"


@pytest.mark.parametrize(
    "order", [["{g}", "ages"], ["ages", "{g}"], ["ages", "-g", "{g}"], ["ages", "--store", "{g}"]]
)
def test_a_word_is_the_graph_or_the_name_by_how_it_looks(ask: Desk, shelf: str, order: list[str]) -> None:
    words = [word.format(g=shelf) for word in order]
    assert "via ages" in ask.run("query", *words, "--query", "q.gq").out


def test_a_name_of_the_project_file_is_a_graph(ask: Desk, shelf: str) -> None:
    ask.file("omnigraph.yaml", f"graphs: {{ books: {{ uri: '{shelf}' }} }}\n")
    assert "via ages" in ask.run("query", "books", "ages", "--query", "q.gq").out


def test_a_file_is_looked_for_in_the_roots(ask: Desk, shelf: str) -> None:
    (ask.folder / "queries").mkdir()
    (ask.folder / "q.gq").rename(ask.folder / "queries" / "other.gq")
    ask.file("omnigraph.yaml", "query: { roots: [nowhere, queries] }\n")
    assert "via ages" in ask.run("query", shelf, "ages", "--query", "other.gq").out


def test_stored_queries_of_the_project_file_need_no_text(ask: Desk, shelf: str) -> None:
    (ask.folder / "queries").mkdir()
    (ask.folder / "q.gq").rename(ask.folder / "queries" / "other.gq")
    ask.file("omnigraph.yaml", f"graphs: {{ books: {{ uri: '{shelf}', queries: queries }} }}\n")
    for address in ("books", shelf, os.path.relpath(shelf)):
        assert "via ages" in ask.run("query", address, "ages").out
    assert [entry["name"] for entry in ask.run("queries", "list", "books", "--json").document["queries"]]
    assert ask.run("queries", "validate", "books").out == "OK\n"
    (ask.folder / "queries/broken.gq").write_text("query broken() { match { $p: Persn } return { $p.x } }")
    ran = ask.run("queries", "validate", "books", "--json")
    assert (ran.code, ran.document["breakages"][0]["query"]) == (1, "broken.gq")
    ask.file("omnigraph.yaml", f"graphs: {{ books: {{ uri: '{shelf}' }} }}\n")
    assert "no stored queries" in ask.run("queries", "list", "books").err
    assert "stored queries" in ask.run("query", "books", "ages").err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--query", "q.gq"], "multiple queries"),
        (["--query", "q.gq", "ages", "friends"], "both read as names"),
        (["--query", "q.gq", "-e", "query"], "exclude each other"),
        ([], "no query text was given"),
        (["--query", "none.gq"], "none.gq"),
        (["--query", "q.gq", "age", "--param", "name=ada", "--param", "age=1"], "with mutate"),
        (["--query", "q.gq", "age"], "with mutate"),
        (["-e", "query q() { match { $p: Persn } return { $p } }"], "error[T1]"),
        (["-e", "query q("], "error[Q000]"),
    ],
)
def test_a_call_that_cannot_be_meant_is_exit_2(ask: Desk, shelf: str, words: list[str], says: str) -> None:
    ran = ask.run("query", shelf, *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_an_unknown_name_is_exit_6(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "nobody")
    assert (ran.code, "'nobody' not found" in ran.err) == (6, True)


def test_a_fault_of_the_text_is_underlined(ask: Desk, shelf: str) -> None:
    ask.file("bad.gq", "query q() {\n  match { $p: Person }\n  return { $p.slgu }\n}\n")
    ran = ask.run("query", shelf, "--query", "bad.gq")
    place, _, line, marks = ran.err.splitlines()[:4]
    assert place.startswith("bad.gq:3:")
    assert "error[T6]" in place
    assert line == "3 |   return { $p.slgu }"
    assert marks.index("^") >= line.index("$p")
    document = ask.run("query", shelf, "--query", "bad.gq", "--json").document
    assert document["diagnostics"][0]["code"] == "T6"


def test_a_missing_graph_and_two_graphs(ask: Desk, shelf: str) -> None:
    assert ask.run("query", "none.og", "ages", "--query", "q.gq").code == 6
    assert ask.run("query", shelf, "-g", shelf, "ages", "--query", "q.gq").code == 2
    assert ask.run("query", "ages", "--query", "q.gq").code == 2


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ["--param", "name=ada"],
        ["--param", 'name:="ada"'],
        ["--params", '{"name": "ada"}'],
        ["--params-file", "p.json"],
        ["--params", '{"name": "bo"}', "--param", "name=ada"],
        ["--param", "name=ada", "--param", "born=1990-01-01", "--param", "ages:=[1, 2]"],
        ["--param", "name=ada", "--param", "born:=null"],
    ],
)
def test_parameters_come_in_every_form(ask: Desk, shelf: str, given: list[str]) -> None:
    ask.file("p.json", '{"name": "ada"}')
    assert query(ask, shelf, "friends", *given, "--format", "csv").out == "f.slug,f.age\r\nbo,9\r\n"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "'name' not provided"),
        (["--param", "nme=ada"], "nme"),
        (["--param", "name=ada", "--param", "born=soon"], "born"),
        (["--param", "name:=null"], "null"),
        (["--param", "name:=3"], "expected string"),
        (["--params", "[]"], "params must be a JSON object"),
        (["--params", "{}", "--params-file", "p.json"], "exclude"),
    ],
)
def test_parameters_that_do_not_fit_are_exit_2(ask: Desk, shelf: str, given: list[str], says: str) -> None:
    ran = query(ask, shelf, "friends", *given)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


# -- which state -----------------------------------------------------------------------------------


@pytest.fixture
def grown(ask: Desk, shelf: str) -> tuple[str, str]:
    """A graph with a branch that has more rows, and the commit before them."""
    with og.connect(make(ask.folder / "grown.og")) as graph:
        before = graph.store.snapshot().commit_id
        graph.store.branches.create("review", "main")
        graph.mutate('query q() { insert Person { slug: "cy" } }', branch="review")
    return str(ask.folder / "grown.og"), before


def test_a_branch_or_a_past_commit_is_read_on_demand(ask: Desk, grown: tuple[str, str]) -> None:
    graph, before = grown
    assert "4 rows from branch review via ages" in query(ask, graph, "ages", "--branch", "review").out
    assert "3 rows from branch main via ages" in query(ask, graph, "ages").out
    ran = query(ask, graph, "ages", "--snapshot", before)
    assert ran.out.splitlines()[0] == f"3 rows from branch main at commit {before} via ages"
    document = query(ask, graph, "ages", "--snapshot", before, "--json").document
    assert (document["graph_commit_id"], document["target"]["snapshot"]) == (before, before)


def test_a_branch_of_the_project_file_gives_way_to_a_commit(ask: Desk, grown: tuple[str, str]) -> None:
    ask.file("omnigraph.yaml", "cli: { branch: review }\n")
    assert "4 rows" in query(ask, grown[0], "ages").out
    assert "3 rows" in query(ask, grown[0], "ages", "--snapshot", grown[1]).out


def test_a_branch_and_a_commit_exclude_each_other(ask: Desk, grown: tuple[str, str]) -> None:
    for command in ("query", "explain", "profile"):
        flags = ["--query", "q.gq", "ages", "--snapshot", grown[1], "--branch", "main"]
        ran = ask.run(command, grown[0], *flags)
        assert (ran.code, "exclude each other" in ran.err) == (2, True)


def test_an_unknown_branch_or_commit_is_exit_6(ask: Desk, shelf: str) -> None:
    assert query(ask, shelf, "ages", "--branch", "nope").code == 6
    ran = query(ask, shelf, "ages", "--snapshot", "nope", "--json")
    assert (ran.code, ran.document["kind"]) == (6, "not_found")


# -- which format, where to ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "starts"),
    [
        ("table", "3 rows from branch main via ages\n"),
        ("kv", "row 1\nname: ada\n"),
        ("json", '{\n  "query_name": "ages",\n'),
        ("jsonl", '{"name": "ada", "p.age": 36}\n'),
        ("csv", "name,p.age\r\nada,36\r\n"),
    ],
)
def test_every_text_format_goes_to_stdout(ask: Desk, shelf: str, format: str, starts: str) -> None:
    ran = query(ask, shelf, "ages", "--format", format)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(starts)


def test_json_is_stronger_than_a_format_and_the_same_as_that_format(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "ages", "--json", "--format", "csv")
    assert ran.out == query(ask, shelf, "ages", "--format", "json").out
    assert list(ran.document) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]


def test_the_files_say_which_format_is_usual(ask: Desk, shelf: str, operator_home: Path) -> None:
    ask.file("omnigraph.yaml", "cli: { output_format: kv }\n")
    assert query(ask, shelf, "ages").out.startswith("row 1\n")
    (operator_home / "config.yaml").write_text("defaults: { output: csv }\n")
    assert query(ask, shelf, "ages").out.startswith("name,p.age\r\n")
    assert query(ask, shelf, "ages", "--format", "table").out.startswith("3 rows")


def test_the_files_say_how_wide_a_column_is(ask: Desk, shelf: str, operator_home: Path) -> None:
    ask.file("omnigraph.yaml", "cli: { table_max_column_width: 5, table_cell_layout: wrap }\n")
    wrapped = query(ask, shelf, "everyone").out
    assert "two\\n" in wrapped
    assert "…" not in wrapped
    (operator_home / "config.yaml").write_text("defaults: { table_cell_layout: truncate }\n")
    assert "two\\…" in query(ask, shelf, "everyone").out


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("output_format: xml", "table, kv, json, jsonl, csv, arrow"),
        ("table_max_column_width: wide", "table_max_column_width"),
        ("table_max_column_width: 0", "table_max_column_width"),
        ("table_max_column_width: true", "table_max_column_width"),
        ("table_cell_layout: fold", "truncate, wrap"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_name(
    ask: Desk, shelf: str, setting: str, says: str
) -> None:
    ask.file("omnigraph.yaml", f"cli: {{ {setting} }}\n")
    ran = query(ask, shelf, "ages")
    assert ran.code == 2
    assert says in ran.err


def test_an_unknown_format_is_exit_2(ask: Desk, shelf: str) -> None:
    assert query(ask, shelf, "ages", "--format", "xml").code == 2


def test_metadata_goes_with_jsonl_only(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "ages", "--format", "jsonl", "--with-metadata")
    assert json.loads(ran.out.splitlines()[0])["row_count"] == 3
    refused = query(ask, shelf, "ages", "--with-metadata")
    assert (refused.code, "--format jsonl" in refused.err) == (2, True)


def test_a_file_gets_what_stdout_would(ask: Desk, shelf: str) -> None:
    shown = query(ask, shelf, "ages", "--format", "csv").out
    ask.file("rows.csv", "old")
    ran = query(ask, shelf, "ages", "--format", "csv", "--out", "rows.csv")
    assert (ran.code, ran.out) == (0, "")
    assert "wrote 3 rows to rows.csv" in ran.err
    assert (ask.folder / "rows.csv").read_bytes() == shown.encode()
    assert sorted(os.listdir(ask.folder)) == ["q.gq", "rows.csv"]


def test_a_file_keeps_its_content_if_the_query_fails(ask: Desk, shelf: str) -> None:
    ask.file("rows.csv", "old")
    assert query(ask, shelf, "ages", "--branch", "nope", "--out", "rows.csv").code == 6
    assert (ask.folder / "rows.csv").read_text() == "old"


def test_a_file_that_cannot_be_written_is_exit_2(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "ages", "--out", "no/such/folder.csv")
    assert (ran.code, "cannot write" in ran.err) == (2, True)


def test_a_device_is_written_and_not_replaced(ask: Desk, shelf: str) -> None:
    assert query(ask, shelf, "ages", "--out", "/dev/null").code == 0
    assert not Path("/dev/null").is_file()


def test_arrow_goes_to_a_file_or_a_pipe_but_not_to_a_terminal(ask: Desk, shelf: str) -> None:
    line = ("query", shelf, "ages", "--query", "q.gq", "--format", "arrow")
    piped = subprocess.run([COMMAND, *line], capture_output=True, check=True).stdout
    assert pa.ipc.open_stream(piped).read_all().num_rows == 3
    assert ask.run(*line, "--out", "rows.arrow").code == 0
    assert (ask.folder / "rows.arrow").read_bytes() == piped

    code, shown = at_terminal(*line)
    assert code == 2
    assert "--out FILE" in shown


def test_a_reader_that_has_seen_enough_is_no_failure(ask: Desk, shelf: str) -> None:
    text = (
        "query q() { match { $a: Person $b: Person $c: Person $d: Person $e: Person $f: Person "
        "$g: Person $h: Person } return { $a.slug, $b.bio } }"
    )  # 6,561 rows, more than a pipe holds
    process = subprocess.Popen(
        [COMMAND, "query", shelf, "-e", text, "--format", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == (b"", 0)
    process.stderr.close()


# -- explain, profile ------------------------------------------------------------------------------


def test_explain_shows_the_plan_and_runs_nothing(ask: Desk, shelf: str) -> None:
    ran = ask.run("explain", shelf, "--query", "q.gq", *FRIENDS)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:3] == [
        "query friends",
        "  look up $p: Person by key  (~1 row)",
        "  follow $p -Knows-> $f  (~1 row)",
    ]
    assert query(ask, shelf, *FRIENDS, "--explain").out == ran.out


def test_explain_is_a_document_for_scripts(ask: Desk, shelf: str) -> None:
    document = ask.run("explain", shelf, "--query", "q.gq", *FRIENDS, "--json").document
    assert list(document) == ["query_name", "graph_commit_id", "plan"]
    assert document["plan"][0] == {"operator": "look up", "detail": "$p: Person by key", "estimate": 1}
    assert query(ask, shelf, *FRIENDS, "--explain", "--json").document == document


def test_profile_adds_what_each_step_did(ask: Desk, shelf: str) -> None:
    ran = ask.run("profile", shelf, "--query", "q.gq", *FRIENDS)
    assert "1 row, " in ran.out.splitlines()[2]
    plan = ask.run("profile", shelf, "--query", "q.gq", *FRIENDS, "--json").document["plan"]
    assert (plan[1]["operator"], plan[1]["rows"]) == ("follow", 1)
    assert plan[1]["seconds"] >= 0


@pytest.mark.parametrize("flags", [["--format", "csv"], ["--out", "f"], ["--with-metadata"]])
def test_a_plan_has_no_rows_to_write(ask: Desk, shelf: str, flags: list[str]) -> None:
    ran = query(ask, shelf, *FRIENDS, "--explain", *flags)
    assert (ran.code, ran.out) == (2, "")
    assert flags[0] in ran.err


@pytest.mark.parametrize("command", ["explain", "profile"])
def test_a_mutation_has_no_plan(ask: Desk, shelf: str, command: str) -> None:
    ran = ask.run(command, shelf, "--query", "q.gq", "age")
    assert (ran.code, "with mutate" in ran.err) == (2, True)
    assert ask.run(command, shelf, "--query", "q.gq", "friends").code == 2, "a parameter is missing"


# -- old spellings ---------------------------------------------------------------------------------


def test_read_is_query_and_says_so_once(ask: Desk, shelf: str) -> None:
    ran = ask.run("read", shelf, "--query", "q.gq", "ages")
    assert (ran.code, ran.err) == (0, "'read' is now 'query'\n")
    assert ran.out == query(ask, shelf, "ages").out
    assert ask.run("read", shelf, "--query", "q.gq", "ages", "--quiet").err == ""


def test_name_is_a_word_and_says_so_once(ask: Desk, shelf: str) -> None:
    ran = query(ask, shelf, "--name", "ages")
    assert (ran.code, ran.err) == (0, "'--name NAME' is now the word NAME alone\n")
    assert query(ask, shelf, "--name", "ages", "friends").code == 2


# -- other -----------------------------------------------------------------------------------------


def test_what_looks_like_the_name_of_an_emoji_stays_as_it_is(desk: Desk) -> None:
    schema = 'node Person @description("see :bug: and [bold]") { slug: String @key }\n'
    assert desk.run("schema", "show", desk.started(schema)).out == schema


def test_a_query_is_compiled_once_and_asks_storage_what_the_library_would(desk: Desk) -> None:
    text = "query q($k: String) { match { $p: Person { slug: $k } } return { $p.slug } }"
    desk.started()
    compiled = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal compiled
        compiled += event == "call" and frame.f_code is compile_query.__code__

    def requests(run: Callable[[], object]) -> int:
        before = process_totals().requests
        run()
        return process_totals().requests - before

    def by_library() -> None:
        with og.connect(desk.graph) as graph:
            graph.query(text, k="a")

    expected = requests(by_library)
    sys.setprofile(count)
    try:
        asked = requests(lambda: desk.run("query", desk.graph, "-e", text, "--param", "k=a"))
    finally:
        sys.setprofile(None)
    assert (compiled, asked) == (1, expected)
