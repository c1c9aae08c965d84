"""`omnigraph load`: what it prints for people and for scripts, and every flag."""

from __future__ import annotations

import io
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.support.desk import Desk
from tests.surfaces.loading import EDGE, STALE, TWO, head, load, people


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


# -- what it prints --------------------------------------------------------------------------------


def test_one_line_sums_up_and_the_commit_is_named(desk: Desk) -> None:
    desk.started()
    ran = load(desk, TWO + EDGE)

    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"loaded {desk.folder / 'data.jsonl'} into main (merge): 2 nodes, 1 edge",
        f"  commit {head(desk).id}",
    ]
    assert people(desk.graph) == {"a": 1, "b": 2, "c": 3}


def test_on_a_pipe_stderr_has_the_target_and_no_bar(desk: Desk) -> None:
    desk.started()
    assert load(desk, TWO).err.splitlines() == [f"load → {desk.graph} (embedded, local)"]
    assert load(desk, TWO, "--quiet").err == ""


def test_scripts_get_the_shape_of_a_load(desk: Desk) -> None:
    desk.started()
    document = load(desk, TWO + EDGE, "--json", "--as", "ada").document

    commit = document.pop("commit")
    wanted = {
        "uri": desk.graph,
        "branch": "main",
        "base_branch": None,
        "branch_created": False,
        "mode": "merge",
        "total_entities": 3,
        "actor_id": "ada",
        "replayed": False,
        "dry_run": False,
    }
    assert wanted.items() <= document.items()
    assert [(one["name"], one["entities_loaded"]) for one in document["nodes"]] == [("Person", 2)]
    assert [(one["name"], one["entities_loaded"]) for one in document["edges"]] == [("Knows", 1)]
    assert commit["graph_commit_id"] == head(desk).id
    assert document["cost"]["requests"] > 0


def test_a_commit_has_the_names_of_the_wire(desk: Desk) -> None:
    desk.started()
    before = head(desk).id
    commit = load(desk, TWO, "--json", "--message", "more people").document["commit"]

    now = head(desk)
    assert commit == {
        "graph_commit_id": now.id,
        "graph_branch": "main",
        "graph_manifest_version": now.manifest_version,
        "parent_commit_id": before,
        "merged_parent_commit_id": None,
        "kind": "load",
        "actor_id": None,
        "created_at": now.authored_at_us,
        "message": "more people",
    }


def test_lines_are_counted_even_where_the_last_of_several_wins(desk: Desk) -> None:
    desk.started()
    twice = '{"edge":"Knows","from":"a","to":"a","data":{"id":"k"}}\n' * 2
    (edges,) = load(desk, twice, "--json").document["edges"]
    assert (edges["entities_loaded"], edges["inserted"]) == (2, 1)


# -- modes -----------------------------------------------------------------------------------------


def test_merge_replaces_an_entity_whole(desk: Desk) -> None:
    desk.started()
    assert load(desk, '{"type":"Person","data":{"slug":"a"}}').code == 0
    assert people(desk.graph) == {"a": None}


def test_append_of_an_id_that_exists_is_a_conflict_that_names_it(desk: Desk) -> None:
    desk.started()
    again = TWO + '{"type":"Person","data":{"slug":"a"}}\n'

    ran = load(desk, again, mode="append")
    assert ran.code == 5
    assert "data.jsonl:3: node 'a' of type Person exists already" in ran.err
    assert "merge" in ran.err, "what to do"
    document = load(desk, again, "--json", mode="append").document
    assert document["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "a"}
    assert people(desk.graph) == {"a": 1}


def test_overwrite_says_how_many_rows_it_replaces(desk: Desk) -> None:
    desk.started()
    load(desk, TWO + EDGE)
    ran = load(desk, TWO + '{"edge":"Knows","from":"c","to":"b"}\n', mode="overwrite")

    assert ran.code == 0
    assert "  replaced 3 nodes, 1 edge" in ran.out.splitlines()
    assert people(desk.graph) == {"b": 2, "c": 3}


def test_a_dry_overwrite_says_how_many_rows_it_would_replace(desk: Desk) -> None:
    desk.started()
    load(desk, EDGE.replace("b", "a"))
    ran = load(desk, TWO, "--dry-run", "--replace-type", "Knows", mode="overwrite")

    assert ran.code == 0
    assert ran.out.splitlines()[1:] == ["  would replace 1 node, 1 edge", "  nothing was written"]
    assert people(desk.graph) == {"a": 1}


def test_overwrite_empties_the_types_that_it_is_told_to(desk: Desk) -> None:
    desk.started()
    load(desk, TWO + EDGE)
    assert load(desk, "", "--replace-type", "Knows", mode="overwrite").code == 0
    with og.connect(desk.graph) as graph:
        assert graph.edges("Knows").to_arrow().num_rows == 0
    assert len(people(desk.graph)) == 3


def test_only_overwrite_empties_types(desk: Desk) -> None:
    desk.started()
    ran = load(desk, TWO, "--replace-type", "Knows")
    assert ran.code == 2
    assert "overwrite" in ran.err


@pytest.mark.parametrize("mode", [[], ["--mode", "replace"]])
def test_the_mode_is_always_said_and_known(desk: Desk, mode: list[str]) -> None:
    ran = desk.run("load", desk.started(), "--data", desk.file("data.jsonl", TWO), *mode)
    assert ran.code == 2
    assert "overwrite" in ran.err, "the choices"


# -- branches and preconditions --------------------------------------------------------------------


def test_a_missing_branch_is_not_found(desk: Desk) -> None:
    desk.started()
    assert load(desk, TWO, "--branch", "review").code == 6


def test_a_missing_branch_is_made_from_a_base_and_that_is_said(desk: Desk) -> None:
    desk.started()
    ran = load(desk, TWO, "--branch", "review", "--from", "main")

    assert ran.code == 0
    assert "  created branch review from main" in ran.out.splitlines()
    assert len(people(desk.graph, "review")) == 3
    assert people(desk.graph) == {"a": 1}
    again = load(desk, TWO, "--branch", "review", "--from", "main", "--json").document
    assert (again["branch_created"], again["base_branch"]) == (False, "main")


def test_a_load_that_fails_says_that_the_branch_made_for_it_stays(desk: Desk) -> None:
    desk.started()
    ran = load(desk, EDGE, "--branch", "review", "--from", "main", "--json")

    assert ran.code == 1
    assert "'review' was created from 'main' and stays" in ran.err
    assert ran.document["details"]["branch_created"] == "review"
    assert people(desk.graph, "review") == {"a": 1}


def test_a_load_happens_only_on_the_head_that_is_named(desk: Desk) -> None:
    desk.started()
    right = head(desk).id

    lost = load(desk, TWO, "--if-commit", STALE, "--json")
    assert (lost.code, lost.document["precondition_failure"]) == (4, {"expected": STALE, "actual": right})
    assert load(desk, TWO, "--if-commit", "yesterday").code == 2
    assert load(desk, TWO, "--if-commit", right).code == 0


def test_the_message_and_the_actor_are_recorded(desk: Desk) -> None:
    desk.started()
    load(desk, TWO, "--message", "more people", "--as", "ada")
    assert (head(desk).message, head(desk).actor) == ("more people", "ada")


def test_a_repeated_key_is_not_loaded_twice_and_other_data_is_refused(desk: Desk) -> None:
    desk.started()
    first = load(desk, EDGE.replace("b", "a"), "--idempotency-key", "monday", "--json").document
    again = load(desk, EDGE.replace("b", "a"), "--idempotency-key", "monday")
    other = load(desk, TWO, "--idempotency-key", "monday", "--json")

    assert again.code == 0
    assert "before, under the same idempotency key" in again.out
    assert first["commit"]["graph_commit_id"] in again.out
    assert (other.code, other.document["code"]) == (5, "idempotency_mismatch")
    with og.connect(desk.graph) as graph:
        assert graph.edges("Knows").to_arrow().num_rows == 1


# -- inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "flags"),
    [
        ("Person.csv", "slug,age\nb,2\n", []),
        ("rows.csv", "slug,age\nb,2\n", ["--type", "Person"]),
        ("Person.tsv", "slug\tage\nb\t2\n", []),
        ("rows.txt", "slug,age\nb,2\n", ["--type", "Person", "--format", "csv"]),
        ("rows.txt", '{"slug":"b","age":2}\n', ["--type", "Person", "--format", "jsonl"]),
        ("rows.ndjson", '\n{"type":"Person","data":{"slug":"b","age":2}}\r\n\n', []),
    ],
)
def test_text_is_read_as_its_name_or_the_flag_says(
    desk: Desk, name: str, text: str, flags: list[str]
) -> None:
    desk.started()
    assert load(desk, text, *flags, name=name).code == 0
    assert people(desk.graph) == {"a": 1, "b": 2}


@pytest.mark.parametrize("flags", [[], ["--format", "parquet"]])
def test_parquet_is_read_from_a_file_and_from_a_folder(desk: Desk, flags: list[str]) -> None:
    desk.started()
    folder = desk.folder / "tables"
    folder.mkdir()
    pq.write_table(pa.table({"slug": ["b"], "age": pa.array([2], pa.int32())}), folder / "Person.parquet")
    pq.write_table(pa.table({"from": ["a"], "to": ["b"]}), folder / "Knows.parquet")

    ran = desk.run("load", desk.graph, "--data", str(folder), "--mode", "append", *flags)
    assert (ran.code, "1 node, 1 edge" in ran.out) == (0, True)
    file = str(folder / "Person.parquet")
    assert desk.run("load", desk.graph, "--data", file, "--mode", "merge", *flags).code == 0


def test_standard_input_is_json_lines(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.started()
    given(monkeypatch, TWO)
    ran = desk.run("load", desk.graph, "--data", "-", "--mode", "merge")
    assert ran.code == 0
    assert "loaded standard input into main (merge): 2 nodes, 0 edges" in ran.out


def test_standard_input_may_be_a_table(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.started()
    given(monkeypatch, "slug,age\nb,2\n")
    flags = ("--format", "csv", "--type", "Person")
    assert desk.run("load", desk.graph, "--data", "-", "--mode", "merge", *flags).code == 0
    assert people(desk.graph) == {"a": 1, "b": 2}


def test_a_problem_on_standard_input_has_its_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.started()
    given(monkeypatch, TWO + "nonsense\n")
    assert ":3" in desk.run("load", desk.graph, "--data", "-", "--mode", "merge").err


@pytest.mark.parametrize(
    ("flags", "code", "name"),
    [
        (["--data", "nowhere.jsonl"], 6, "input_not_found"),
        (["--data", "rows.csv"], 2, "bad_request"),
        (["--data", "rows.csv", "--type", "Persn"], 6, "type_not_found"),
        (["--data", "broken.jsonl"], 2, "unreadable_input"),
        (["--data", "Person.parquet"], 2, "unreadable_input"),
        (["--data", "s3://bucket/rows.jsonl"], 2, "bad_request"),
        ([], 2, "bad_request"),
    ],
)
def test_an_input_that_cannot_be_read_is_said_so(desk: Desk, flags: list[str], code: int, name: str) -> None:
    desk.file("rows.csv", "slug,age\nb,2\n")
    desk.file("Person.parquet", "no parquet")
    (desk.folder / "broken.jsonl").write_bytes(b'{"type":"Person","data":{"slug":"\xff"}}\n')
    ran = desk.run("load", desk.started(), *flags, "--mode", "merge", "--json")
    assert (ran.code, ran.document["code"]) == (code, name)


def test_two_addresses_are_never_a_silent_choice(desk: Desk) -> None:
    desk.started()
    assert load(desk, TWO, "-g", desk.graph).code == 2
    file = desk.file("data.jsonl", TWO)
    assert desk.run("load", "-g", desk.graph, "--data", file, "--mode", "merge").code == 0


# -- the old spelling ------------------------------------------------------------------------------


def test_ingest_is_load_from_main_by_merge_and_says_so(desk: Desk) -> None:
    desk.started()
    ran = desk.run("ingest", desk.graph, "--data", desk.file("data.jsonl", TWO), "--branch", "review")

    assert ran.code == 0
    assert [line for line in ran.err.splitlines() if "load →" not in line] == [
        "'ingest' is now 'load --from main --mode merge'"
    ]
    assert "created branch review from main" in ran.out
    assert len(people(desk.graph, "review")) == 3


def test_old_spellings_are_not_in_the_help(desk: Desk) -> None:
    shown = [line.split()[1:2] for line in desk.run("--help").out.splitlines()]
    assert ["load"] in shown
    assert ["ingest"] not in shown
    assert ["change"] not in shown


def test_columns_are_mapped_on_the_line(desk: Desk) -> None:
    desk.file("s.pg", "node Person { name: String @key }\nedge Knows: Person -> Person\n")
    desk.file("people.csv", "Full Name\nAda\nBo\n")
    desk.file("pairs.csv", "a,b\nAda,Bo\n")
    assert desk.run("init", desk.graph, "--schema", "s.pg").code == 0
    load = ("load", desk.graph, "--mode", "append", "--data")

    assert desk.run(*load, "people.csv", "--type", "Person", "--map", "Full Name=name").code == 0
    assert desk.run(*load, "pairs.csv", "--type", "Knows", "--from-col", "a", "--to-col", "b").code == 0
    ran = desk.run(*load, "people.csv", "--type", "Person", "--map", "name")
    assert (ran.code, "--map COLUMN=PROPERTY" in ran.err) == (2, True)
    with og.connect(desk.graph) as graph:
        assert graph.edges("Knows").to_arrow()["dst"].to_pylist() == ["Bo"]
