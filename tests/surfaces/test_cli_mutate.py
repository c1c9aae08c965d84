"""`omnigraph mutate`: which graph and which query, its parameters, what it prints, and how it is refused."""

from __future__ import annotations

import json

import pytest

import omnigraph as og
from tests.support.contents import objects_at
from tests.support.desk import Desk, Ran
from tests.support.places import Place
from tests.surfaces.loading import STALE, STRICT, head, people

QUERIES = """
query add($slug: String, $age: I32?) { insert Person { slug: $slug, age: $age } }
query meet($from: String, $to: String) { insert Knows { from: $from, to: $to } }
query forget($slug: String) { delete Person where slug = $slug }
query look() { match { $p: Person } return { $p.slug } }
"""
ADD = 'query add() { insert Person { slug: "b", age: 2 } }'


def mutate(desk: Desk, name: str, *more: str, text: str = QUERIES) -> Ran:
    """Run one of several queries of a file."""
    return desk.run("mutate", desk.graph, name, "--query", desk.file("q.gq", text), *more)


# -- what it prints --------------------------------------------------------------------------------


def test_people_read_what_changed_who_did_it_and_the_commit(desk: Desk) -> None:
    desk.started()
    ran = mutate(desk, "add", "--param", "slug=b", "--as", "ada")

    assert ran.code == 0
    assert ran.out.splitlines() == [
        "changed main via add: 1 node, 0 edges",
        "  actor ada",
        f"  commit {head(desk).id}",
    ]
    assert ran.err.splitlines() == [f"mutate → {desk.graph} (embedded, local)"]


def test_the_edges_that_go_with_a_node_are_counted(desk: Desk) -> None:
    desk.started()
    mutate(desk, "meet", "--param", "from=a", "--param", "to=a")
    assert "changed main via forget: 1 node, 1 edge" in mutate(desk, "forget", "--param", "slug=a").out


def test_nothing_matched_is_no_failure_and_no_commit(desk: Desk) -> None:
    desk.started()
    before = head(desk).id
    ran = mutate(desk, "forget", "--param", "slug=nobody")

    assert (ran.code, ran.out) == (0, "nothing matched forget on main: no commit was made\n")
    assert mutate(desk, "forget", "--param", "slug=nobody", "--json").document["commit"] is None
    assert head(desk).id == before


def test_scripts_get_the_shape_of_a_change(desk: Desk) -> None:
    desk.started()
    document = mutate(desk, "add", "--param", "slug=b", "--as", "ada", "--json").document

    wanted = {
        "uri": desk.graph,
        "branch": "main",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": "ada",
    }
    assert wanted.items() <= document.items()
    assert document["commit"]["graph_commit_id"] == head(desk).id
    assert document["cost"]["requests"] > 0


def test_a_dry_run_checks_counts_and_writes_nothing(desk: Desk) -> None:
    place = Place(desk.started(), {})
    before = objects_at(place)
    ran = mutate(desk, "add", "--param", "slug=b", "--dry-run", "--idempotency-key", "k")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == ["would change main via add: 1 node, 0 edges", "  nothing was written"]
    assert mutate(desk, "meet", "--param", "from=a", "--param", "to=x", "--dry-run").code == 1
    assert objects_at(place) == before


# -- which graph, which query ----------------------------------------------------------------------


def test_a_text_with_one_query_needs_no_name(desk: Desk) -> None:
    assert desk.run("mutate", desk.started(), "-e", ADD).code == 0
    assert desk.run("mutate", desk.graph, "--query-string", ADD).code == 0


@pytest.mark.parametrize(
    "line", [["kb.og", "add"], ["./kb.og", "add"], ["add", "-g", "kb.og"], ["add", "kb.og"]]
)
def test_a_path_is_the_graph_and_a_plain_word_the_query(desk: Desk, line: list[str]) -> None:
    desk.started()
    assert desk.run("mutate", *line, "-e", ADD).code == 0


def test_a_configured_name_is_the_graph(desk: Desk) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "graphs: { library: { uri: kb.og } }\n")
    assert desk.run("mutate", "library", "add", "-e", ADD).code == 0
    assert desk.run("mutate", "library", "-e", ADD).code == 0


def test_the_default_graph_leaves_the_word_to_the_query(desk: Desk) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "graphs: { library: { uri: kb.og } }\ncli: { graph: library }\n")
    assert desk.run("mutate", "add", "-e", ADD).code == 0
    assert desk.run("mutate", "-e", ADD).code == 0


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (["GRAPH", "a/b", "-e", ADD], "two addresses"),
        (["GRAPH", "add", "again", "-e", ADD], "both read as names of a query"),
        (["-e", ADD], "no graph was named"),
        (["GRAPH"], "no query text"),
        (["GRAPH", "-e", ADD, "--query", "q.gq"], "exclude each other"),
        (["GRAPH", "--query", "nowhere.gq"], "nowhere.gq"),
        (["GRAPH", "-e", ""], "no query"),
        (["GRAPH", "--query", "q.gq"], "add, meet, forget, look"),
        (["GRAPH", "look", "--query", "q.gq"], "changes nothing"),
    ],
)
def test_a_line_that_cannot_be_right_is_bad_usage_and_says_why(
    desk: Desk, line: list[str], what: str
) -> None:
    desk.started()
    desk.file("q.gq", QUERIES)
    ran = desk.run("mutate", *(desk.graph if word == "GRAPH" else word for word in line))
    assert ran.code == 2
    assert what in ran.err
    assert "mutate →" not in ran.err, "nothing was written"


def test_a_query_that_the_file_does_not_have_is_not_found(desk: Desk) -> None:
    desk.started()
    ran = mutate(desk, "ad")
    assert ran.code == 6
    assert "'add'" in ran.err


def test_a_query_file_is_looked_for_in_the_roots_of_the_project(desk: Desk) -> None:
    desk.started()
    (desk.folder / "queries").mkdir()
    desk.file("queries/q.gq", QUERIES)
    line = ("mutate", desk.graph, "add", "--query", "q.gq", "--param", "slug=b")

    assert desk.run(*line).code == 2
    desk.file("omnigraph.yaml", "query: { roots: [nowhere, queries] }\n")
    assert desk.run(*line).code == 0


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('query x() {\n  insert Persn { slug: "b" }\n}', "q.gq:2:10"),
        ("query x() {\n  insert Person { slug: 'b' }\n}", "q.gq:2:25"),
        ('query x() {\n  insert Person { slug: "b", agee: 2 }\n}', "q.gq:2:30"),
        ('query x() { insert Person { slug: "b" }\n delete Person where slug = "a" }', "q.gq:"),
    ],
)
def test_an_error_in_the_text_is_shown_at_its_place(desk: Desk, text: str, place: str) -> None:
    desk.started()
    ran = mutate(desk, "x", text=text)
    lines = ran.err.splitlines()

    assert ran.code == 2
    assert lines[0].startswith(place)
    assert any(line.endswith("^") for line in lines), "the line is underlined"
    document = mutate(desk, "x", "--json", text=text).document
    assert document["code"] == "compile_error"
    assert document["diagnostics"][0]["span"]["line"] >= 1


def test_an_error_in_a_query_of_the_line_is_shown_there(desk: Desk) -> None:
    ran = desk.run("mutate", desk.started(), "-e", ADD.replace("Person", "Persn"))
    assert ran.err.startswith("-e:1:22: error[")
    assert "did you mean 'Person'?" in ran.err


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ["--param", "slug=7", "--param", "age=36"],
        ["--param", "$slug=7", "--param", "age:=36"],
        ["--params", '{"slug": "7", "age": 36}'],
        ["--params", '{"slug": "8", "age": 36}', "--param", "slug=7"],
        ["--params", '{"slug": "7", "age": "36"}'],
        ["--params-file", "params.json"],
    ],
)
def test_a_parameter_is_what_its_declared_type_says(desk: Desk, flags: list[str]) -> None:
    desk.started()
    desk.file("params.json", '{"slug": "7", "age": 36}\n')
    assert mutate(desk, "add", *flags).code == 0
    assert people(desk.graph) == {"a": 1, "7": 36}


@pytest.mark.parametrize("flags", [[], ["--param", "age:=null"], ["--params", '{"age": null}']])
def test_a_nullable_parameter_may_be_left_out_or_null(desk: Desk, flags: list[str]) -> None:
    desk.started()
    assert mutate(desk, "add", "--param", "slug=b", *flags).code == 0
    assert people(desk.graph)["b"] is None


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ([], "parameter 'slug' not provided"),
        (["--param", "slug:=null"], "null is not accepted"),
        (["--param", "slug=b", "--param", "age=old"], "param 'age': expected integer, got string 'old'"),
        (["--param", "slug=b", "--param", "ag=3"], "unknown parameter 'ag'"),
        (["--param", "slug:=7"], "param 'slug': expected string, got number"),
        (["--param", "slug=b", "--param", "slug=c"], "given twice"),
        (["--param", "slug"], "not k=v"),
        (["--param", "slug:=b"], "not JSON"),
        (["--params", "[1]"], "must be a JSON object"),
        (["--params", '{"slug": "b", "slug": "c"}'], "duplicate"),
        (["--params", "{}", "--params-file", "x.json"], "exclude each other"),
        (["--params-file", "nowhere.json"], "nowhere.json"),
    ],
)
def test_parameters_that_do_not_fit_are_bad_usage(desk: Desk, flags: list[str], what: str) -> None:
    desk.started()
    ran = mutate(desk, "add", *flags)
    assert ran.code == 2
    assert what in ran.err
    assert "mutate →" not in ran.err, "nothing was written"
    assert people(desk.graph) == {"a": 1}


def test_everything_that_is_wrong_with_the_parameters_is_said_at_once(desk: Desk) -> None:
    desk.started()
    ran = mutate(desk, "add", "--param", "sluug=b", "--param", "name=x")
    assert all(name in ran.err for name in ("'slug' not provided", "'sluug'", "'name'"))
    problems = mutate(desk, "add", "--param", "sluug=b", "--json").document["details"]["problems"]
    assert len(problems) == 2


# -- refusals --------------------------------------------------------------------------------------


def test_a_broken_constraint_exits_one_and_is_a_table(desk: Desk) -> None:
    desk.started(STRICT)
    line = ("--param", "slug=b", "--param", "age=200")
    ran = mutate(desk, "add", *line)

    assert ran.code == 1
    (row,) = [line for line in ran.err.splitlines() if "@range" in line]
    assert row == "  node 'b'  range  Person  @range violation on Person.age: value 200 > max 120"
    details = mutate(desk, "add", *line, "--json").document["details"]
    assert (details["total"], details["violations"][0]["entity_id"]) == (1, "b")


def test_an_edge_to_nowhere_exits_one(desk: Desk) -> None:
    desk.started()
    ran = mutate(desk, "meet", "--param", "from=a", "--param", "to=x")
    assert ran.code == 1
    assert "dst 'x' not found in Person" in ran.err


def test_a_mutation_happens_only_on_the_head_that_is_named(desk: Desk) -> None:
    desk.started()
    right = head(desk).id
    lost = mutate(desk, "add", "--param", "slug=b", "--if-commit", STALE, "--json")

    assert (lost.code, lost.document["precondition_failure"]) == (4, {"expected": STALE, "actual": right})
    assert mutate(desk, "add", "--param", "slug=b", "--if-commit", right).code == 0


@pytest.mark.parametrize(
    ("flags", "code"), [(["--branch", "nowhere"], 6), (["-g", "nowhere.og"], 2), (["--loud"], 2)]
)
def test_other_failures_have_their_exit_code(desk: Desk, flags: list[str], code: int) -> None:
    desk.started()
    assert mutate(desk, "add", "--param", "slug=b", *flags).code == code


def test_a_graph_that_is_not_there_is_not_found(desk: Desk) -> None:
    assert desk.run("mutate", "nowhere.og", "-e", ADD).code == 6


# -- what is recorded ------------------------------------------------------------------------------


def test_message_actor_and_branch_are_those_of_the_line(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        graph.store.branches.create("review", "main")
    mutate(desk, "add", "--param", "slug=b", "--branch", "review", "--message", "a guest", "--as", "ada")

    commit = head(desk, "review")
    assert (commit.message, commit.actor) == ("a guest", "ada")
    assert people(desk.graph) == {"a": 1}


def test_a_repeated_key_is_answered_by_the_first_commit_and_belongs_to_its_request(desk: Desk) -> None:
    desk.started()
    line = ("--param", "from=a", "--param", "to=a", "--idempotency-key", "monday")
    first = mutate(desk, "meet", *line, "--json").document
    again = mutate(desk, "meet", *line)
    shown = mutate(desk, "meet", *line, "--json").document
    other = mutate(desk, "add", "--param", "slug=b", "--idempotency-key", "monday", "--json")

    commit = first["commit"]
    assert commit["idempotency_key"] == "monday"
    assert again.code == 0
    assert "before, under the same idempotency key" in again.out
    assert commit["graph_commit_id"] in again.out
    assert (shown["replayed"], shown["commit"], shown["affected_edges"]) == (True, commit, 1)
    assert (other.code, other.document["code"]) == (5, "idempotency_mismatch")


# -- old spellings ---------------------------------------------------------------------------------


def test_old_spellings_work_and_warn_once_each(desk: Desk) -> None:
    file = desk.file("q.gq", QUERIES)
    ran = desk.run("change", desk.started(), "--query", file, "--name", "add", "--params", '{"slug": "b"}')

    assert ran.code == 0
    warnings = [line for line in ran.err.splitlines() if "→" not in line]
    assert warnings == ["'change' is now 'mutate'", "'--name NAME' is now the word NAME alone"]
    assert (
        json.loads(desk.run("change", desk.graph, "-e", ADD, "--json", "--quiet").out)["query_name"] == "add"
    )
