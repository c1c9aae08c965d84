"""`lint`: query files checked against a schema file or a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.desk import BROKEN, Desk, Ran
from tests.surfaces.shelf import QUERIES, SHELF

GOOD = "query all() { match { $p: Person } return { $p.slug } }\n"
BAD = "query bad() {\n  match { $p: Person }\n  return { $p.slgu }\n}\n"
HARD = 'query hard() { insert Person { slug: "x" } }\n'


def lint(desk: Desk, text: str, *more: str) -> Ran:
    desk.file("q.gq", text)
    return desk.run("lint", "--query", "q.gq", "--schema", desk.file("s.pg", SHELF), *more)


def test_queries_that_would_run_are_ok(desk: Desk) -> None:
    ran = lint(desk, GOOD)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "OK    all (read)\nOK    q.gq: 1 query, 0 errors, 0 warnings, 0 infos\n"


def test_a_fault_is_underlined_and_is_exit_1(desk: Desk) -> None:
    ran = lint(desk, GOOD + BAD)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith("q.gq:4:")
    assert "error[T6]: type error: T6: " in lines[0]
    assert lines[2] == "4 |   return { $p.slgu }"
    assert "^^^^" in lines[3]
    assert "did you mean 'slug'?" in ran.out
    assert lines[-3:] == [
        "OK    all (read)",
        "ERROR bad (read)",
        "ERROR q.gq: 2 queries, 1 error, 0 warnings, 0 infos",
    ]


def test_scripts_get_the_report_of_the_specification(desk: Desk) -> None:
    document = lint(desk, GOOD + BAD + HARD, "--json").document
    assert list(document) == [
        "status",
        "schema_source",
        "query_path",
        "queries_processed",
        "errors",
        "warnings",
        "infos",
        "results",
        "findings",
    ]
    assert (document["status"], document["queries_processed"]) == ("error", 3)
    assert (document["errors"], document["warnings"], document["infos"]) == (1, 1, 0)
    assert document["schema_source"] == {"kind": "file", "path": str(desk.folder / "s.pg")}
    assert document["query_path"] == "q.gq"
    good, bad, hard = document["results"]
    assert good == {
        "name": "all",
        "kind": "read",
        "status": "ok",
        "operation": {
            "result": [{"name": "p.slug", "kind": "string", "nullable": False}],
            "reads": [{"kind": "node", "type_name": "Person"}],
            "writes": [],
        },
    }
    assert (bad["status"], list(bad)) == ("error", ["name", "kind", "status", "error"])
    assert "T6" in bad["error"]
    assert hard["warnings"] == ["mutation declares no params; hardcoded mutations are easy to miss"]


def test_warnings_are_no_failure(desk: Desk) -> None:
    ran = lint(desk, HARD)
    assert ran.code == 0
    assert "WARN  hard (mutation): mutation declares no params" in ran.out
    assert ran.out.endswith("OK    q.gq: 1 query, 0 errors, 1 warning, 0 infos\n")


def test_properties_that_no_update_sets_are_advice(desk: Desk) -> None:
    ran = lint(desk, QUERIES)
    assert ran.code == 0
    assert "WARN  Person.bio exists in schema but no update query sets it [L201] (age)" in ran.out
    finding = lint(desk, QUERIES, "--json").document["findings"][0]
    assert finding == {
        "severity": "warning",
        "code": "L201",
        "message": "Person.bio exists in schema but no update query sets it",
        "type_name": "Person",
        "property": "bio",
        "query_names": ["age"],
    }


@pytest.mark.parametrize("text", ["query q(", "query q() { match { $p: Person } return { 'x' } }", "\x00"])
def test_a_text_that_does_not_parse_is_one_finding(desk: Desk, text: str) -> None:
    ran = lint(desk, text)
    assert ran.code == 1
    assert "error[Q000]" in ran.out
    document = lint(desk, text, "--json").document
    assert (document["results"], [one["code"] for one in document["findings"]]) == ([], ["Q000"])
    assert document["errors"] == 1


def test_a_text_that_is_not_utf_8_is_a_finding_too(desk: Desk) -> None:
    (desk.folder / "q.gq").write_bytes(b"query q() \xff")
    ran = desk.run("lint", "--query", "q.gq", "--schema", desk.file("s.pg", SHELF))
    assert ran.code == 1
    assert "Q000" in ran.out


def test_the_schema_is_checked_too(desk: Desk) -> None:
    desk.file("q.gq", GOOD)
    line = ("lint", "--query", "q.gq", "--schema", desk.file("s.pg", BROKEN))
    ran = desk.run(*line)
    assert ran.code == 1
    assert "error[PG105]" in ran.out
    assert "Strin" in ran.out
    document = desk.run(*line, "--json").document
    assert (document["status"], document["errors"], document["queries_processed"]) == ("error", 1, 0)
    assert document["findings"][0]["code"] == "PG105"


def test_a_graph_stands_for_a_schema_file(desk: Desk) -> None:
    desk.file("q.gq", GOOD + "query aged() { match { $p: Person } return { $p.bio } }")
    ran = desk.run("lint", "--query", "q.gq", desk.started(), "--json")
    assert ran.code == 1
    assert ran.document["schema_source"] == {"kind": "graph", "uri": desk.graph}
    assert [one["status"] for one in ran.document["results"]] == ["ok", "error"]
    desk.file("omnigraph.yaml", "cli: { graph: kb.og }\n")
    assert desk.run("lint", "--query", "q.gq").code == 1
    assert desk.run("lint", "--query", "q.gq", "--branch", "nope").code == 6


# -- folders ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(desk: Desk) -> Path:
    made = desk.folder / "queries" / "deep"
    made.mkdir(parents=True)
    (made / "b.gq").write_text(
        "query bio($s: String, $b: String) { update Person set { bio: $b } where slug = $s }"
    )
    (made.parent / "a.gq").write_text(QUERIES)
    (made.parent / "readme.md").write_text("no query")
    return made.parent


def test_a_folder_is_checked_as_a_whole(desk: Desk, folder: Path) -> None:
    line = ("lint", "--query", "queries", "--schema", desk.file("s.pg", SHELF))
    document = desk.run(*line, "--json").document
    assert (document["queries_processed"], document["query_path"]) == (5, "queries")
    assert [one["query_path"] for one in document["results"]] == ["queries/a.gq"] * 4 + ["queries/deep/b.gq"]
    unset = {one["property"] for one in document["findings"]}
    assert unset == {"born", "ok", "score", "seen", "tags"}, (
        "an update in one file may set what another leaves"
    )
    assert document["findings"][0]["query_names"] == ["age", "bio"]


def test_one_bad_file_does_not_hide_the_others(desk: Desk, folder: Path) -> None:
    (folder / "aa.gq").write_text("query q(")
    ran = desk.run("lint", "--query", "queries", "--schema", desk.file("s.pg", SHELF))
    assert ran.code == 1
    assert "queries/aa.gq:1:" in ran.out
    assert "OK    bio (mutation)" in ran.out
    assert "ERROR queries: 5 queries, 1 error" in ran.out


# -- bad calls, old spellings ----------------------------------------------------------------------


def test_calls_that_cannot_be_meant_are_exit_2(desk: Desk) -> None:
    schema = desk.file("s.pg", SHELF)
    desk.file("q.gq", GOOD)
    (desk.folder / "empty").mkdir()
    for line in (
        ["--schema", schema],
        ["--query", "q.gq"],
        ["--query", "none.gq", "--schema", schema],
        ["--query", "empty", "--schema", schema],
        ["--query", "q.gq", "--schema", "none.pg"],
        ["--query", "q.gq", "--schema", schema, "kb.og"],
    ):
        assert desk.run("lint", *line).code == 2, line


def test_a_file_is_looked_for_in_the_roots(desk: Desk, folder: Path) -> None:
    desk.file("omnigraph.yaml", "query: { roots: [queries] }\n")
    line = ("lint", "--schema", desk.file("s.pg", SHELF), "--query")
    assert [desk.run(*line, name).code for name in ("a.gq", "deep")] == [0, 0]


@pytest.mark.parametrize("spelling", [["check"], ["query", "lint"], ["query", "check"]])
def test_old_spellings_work_and_say_so_once(desk: Desk, spelling: list[str]) -> None:
    desk.file("q.gq", BAD)
    ran = desk.run(*spelling, "--query", "q.gq", "--schema", desk.file("s.pg", SHELF))
    assert (ran.code, ran.err) == (1, f"'{' '.join(spelling)}' is now 'lint'\n")
    assert "ERROR bad (read)" in ran.out


def test_old_spellings_are_not_in_the_help(desk: Desk) -> None:
    shown = desk.run("--help").out
    listed = {line.split()[1] for line in shown.splitlines() if line.startswith("│ ") and line.split()[1:]}
    assert {"lint", "query", "alias"} <= listed
    assert not {"check", "read"} & listed
    assert not any(old in shown for old in ("query lint", "query check", "--alias"))
