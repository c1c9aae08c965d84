"""`alias`: short names of the project file for queries, and where their parameters come from."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from tests.support.desk import Desk
from tests.surfaces.shelf import QUERIES, make

TYPED = """
query kinds($s: String?, $n: I32?, $b: Bool?, $l: [I32]?, $d: Date?) {
    match { $p: Person { slug: "ada" } }
    return { $s as s, $n as n, $b as b, $d as d }
}
"""
PROJECT = """
cli: { graph: kb.og }
query: { roots: [queries] }
aliases:
  friends: { command: read, query: q.gq, name: friends, args: [name] }
  ages: { command: query, query: q.gq, name: ages, format: kv }
  age: { command: change, query: q.gq, name: age, args: [name, age] }
  kinds: { query: typed.gq, args: [s, n, b, l, d], params: { s: fixed, n: 7 } }
  lost: { query: q.gq, name: nobody }
  bos: { query: q.gq, name: friends, params: { name: bo } }
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("shelf") / "kb.og")


@pytest.fixture
def project(desk: Desk, shelf: str) -> Desk:
    """A project whose default graph nobody changes."""
    desk.file("omnigraph.yaml", PROJECT.replace("kb.og", shelf))
    (desk.folder / "queries").mkdir()
    (desk.folder / "queries" / "q.gq").write_text(QUERIES)
    (desk.folder / "queries" / "typed.gq").write_text(TYPED)
    return desk


def kinds(desk: Desk, *line: str) -> list[object]:
    ran = desk.run("alias", "kinds", *line, "--json")
    assert ran.code == 0, ran.err
    return list(ran.document["rows"][0].values())


def test_a_read_gets_its_words_as_parameters(project: Desk) -> None:
    ran = project.run("alias", "friends", "ada")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "1 row from branch main via friends"
    assert ran.out.splitlines()[3] == "bo          9"


def test_a_mutation_runs_too(project: Desk) -> None:
    make(project.folder / "own.og")
    ran = project.run("alias", "age", "bo", "10", "-g", "own.og", "--as", "ada")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "changed main via age: 1 node, 0 edges")
    with og.connect(project.folder / "own.og") as graph:
        assert graph.query(QUERIES, {"name": "ada"}, query_name="friends").one()["f.age"] == 10
        assert graph.store.snapshot().state.commit.actor == "ada"
    document = project.run("alias", "age", "bo", "11", "-g", "own.og", "--json", "--dry-run").document
    assert (document["affected_nodes"], document["commit"]) == (1, None)


def test_words_are_json_first_and_text_otherwise(project: Desk) -> None:
    assert kinds(project, "Ada", "29", "true", "[1, 2]", "2026-05-01") == ["Ada", 29, True, "2026-05-01"]
    assert kinds(project, '"29"', "null") == ["29", None, None, None]
    ran = project.run("alias", "kinds", "29")
    assert (ran.code, "expected string" in ran.err) == (2, True)


def test_the_stronger_source_of_a_parameter_wins(project: Desk) -> None:
    assert kinds(project)[:2] == ["fixed", 7]
    assert kinds(project, "word", "8")[:2] == ["word", 8]
    assert kinds(project, "word", "8", "--params", '{"s": "object"}')[:2] == ["object", 8]
    both = ["--params", '{"s": "object", "n": 9}', "--param", "s=single"]
    assert kinds(project, "word", "8", *both)[:2] == ["single", 9]
    assert kinds(project, "word", "8", "--param", "n:=10")[:2] == ["word", 10]
    assert kinds(project, "--param", "n:=null")[:2] == ["fixed", None]
    project.file("p.json", '{"s": "file"}')
    assert kinds(project, "word", "--params-file", "p.json")[:2] == ["file", 7]


def test_fixed_parameters_suffice(project: Desk) -> None:
    assert "日本" in project.run("alias", "bos").out


def test_the_format_of_the_alias_gives_way_to_a_flag_and_precedes_the_files(project: Desk) -> None:
    text = (project.folder / "omnigraph.yaml").read_text()
    project.file("omnigraph.yaml", text.replace("cli: {", "cli: { output_format: csv,"))
    assert project.run("alias", "ages").out.startswith("row 1\n")
    assert project.run("alias", "ages", "--format", "jsonl").out.startswith("{")
    assert project.run("alias", "ages", "--json").document["row_count"] == 3
    assert project.run("alias", "friends", "ada").out.startswith("f.slug,f.age\r\n")


def test_the_flags_of_reads_work_on_an_alias(project: Desk, shelf: str) -> None:
    with og.connect(shelf) as graph:
        commit = graph.store.snapshot().commit_id
    assert f"at commit {commit}" in project.run("alias", "bos", "--snapshot", commit).out
    assert project.run("alias", "bos", "--explain").out.startswith("query friends\n")
    assert project.run("alias", "bos", "--format", "csv", "--out", "rows.csv").code == 0
    assert (project.folder / "rows.csv").read_bytes().startswith(b"f.slug,f.age\r\n")
    assert project.run("alias", "bos", "--branch", "nope").code == 6


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (["nope"], 6, "no alias 'nope'"),
        (["friend"], 6, "did you mean 'friends'?"),
        (["lost"], 6, "'nobody' not found"),
        (["friends", "a", "b"], 2, "takes 1: name"),
        (["ages", "a"], 2, "takes none"),
        (["friends"], 2, "'name' not provided"),
        (["age", "bo", "1", "--format", "csv"], 2, "--format does not go with it"),
        (["age", "bo", "1", "--explain"], 2, "--explain does not go with it"),
    ],
)
def test_calls_that_cannot_be_meant(project: Desk, line: list[str], code: int, says: str) -> None:
    ran = project.run("alias", *line)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("x", "takes a mapping, not a text"),
        ("{ command: drop, query: q.gq }", "'drop'"),
        ("{ command: read }", "needs 'query'"),
        ("{ query: q.gq, args: {name: 1} }", "'args' of 'odd'"),
        ("{ query: q.gq, args: [[1]] }", "an item of 'args'"),
        ("{ query: q.gq, params: [1] }", "'params' of 'odd'"),
        ("{ query: q.gq, name: ages, format: xml }", "the format of the alias"),
        ("{ query: none.gq }", "none.gq"),
        ("{ command: read, query: q.gq, name: age }", "with mutate"),
        ("{ command: change, query: q.gq, name: ages }", "with query"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(project: Desk, entry: str, says: str) -> None:
    text = (project.folder / "omnigraph.yaml").read_text()
    project.file("omnigraph.yaml", f"{text}  odd: {entry}\n")
    ran = project.run("alias", "odd")
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


@pytest.mark.parametrize(
    "line",
    [
        ["query", "--alias", "friends", "ada"],
        ["query", "--alias=friends", "ada"],
        ["query", "ada", "--alias", "friends"],
        ["read", "--alias", "friends", "ada"],
        ["mutate", "--alias", "friends", "ada"],
    ],
)
def test_the_old_spelling_works_and_says_so_once(project: Desk, line: list[str]) -> None:
    ran = project.run(*line)
    assert (ran.code, ran.err) == (0, "'query --alias' is now 'alias'\n")
    assert ran.out == project.run("alias", "friends", "ada").out


def test_without_a_project_file_there_are_no_aliases(desk: Desk) -> None:
    assert desk.run("alias", "any").code == 6
    assert not Path("omnigraph.yaml").exists()
