"""Every command of the command line: what it does, what it prints for people and what for scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import __version__
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.formats import FORMAT
from omnigraph.storage.opener import manifest_file
from tests.support.contents import insert, objects_at
from tests.support.desk import BROKEN, GROWN, LESS, REFUSED, SCHEMA, Desk
from tests.support.places import Place

# -- init ------------------------------------------------------------------------------------------


def test_init_makes_a_graph_and_says_where(desk: Desk) -> None:
    ran = desk.run("init", desk.graph, "--schema", desk.file("s.pg", SCHEMA))

    assert ran.code == 0
    assert f"initialized {desk.graph}" in ran.out
    with og.connect(desk.graph) as graph:
        assert graph.schema.show() == SCHEMA


def test_init_tells_scripts_the_commit_and_the_types(desk: Desk) -> None:
    ran = desk.run("init", desk.graph, "--schema", desk.file("s.pg", SCHEMA), "--json")

    with og.connect(desk.graph) as graph:
        commit = graph.store.snapshot().commit_id
    assert ran.document == {
        "uri": desk.graph,
        "graph_commit_id": commit,
        "node_types": ["Person"],
        "edge_types": ["Knows"],
    }


def test_init_records_who_made_the_graph(desk: Desk) -> None:
    desk.run("init", desk.graph, "--schema", desk.file("s.pg", SCHEMA), "--as", "ada")
    with og.connect(desk.graph) as graph:
        assert graph.store.snapshot().state.commit.actor == "ada"


def test_a_dry_init_makes_nothing(desk: Desk) -> None:
    ran = desk.run("init", desk.graph, "--schema", desk.file("s.pg", SCHEMA), "--dry-run")
    assert ran.code == 0
    assert not Path(desk.graph).exists()


def test_a_dry_init_finds_the_errors_of_the_schema(desk: Desk) -> None:
    ran = desk.run("init", desk.graph, "--schema", desk.file("s.pg", BROKEN), "--dry-run")
    assert ran.code == 2
    assert "Strin" in ran.err


def test_a_second_init_is_a_conflict(desk: Desk) -> None:
    desk.started()
    ran = desk.run("init", desk.graph, "--schema", desk.file("s.pg", SCHEMA))
    assert ran.code == 5
    assert "already_initialized" in ran.err


def test_init_clears_what_a_failed_init_left_only_when_told(desk: Desk) -> None:
    desk.started()
    for manifest in Path(desk.graph, "__manifest").rglob("*.manifest"):
        manifest.unlink()
    schema = desk.file("s.pg", SCHEMA)

    assert desk.run("init", desk.graph, "--schema", schema).code != 0
    assert desk.run("init", desk.graph, "--schema", schema, "--force").code == 0


# -- show, diagram, version ------------------------------------------------------------------------


def test_show_prints_the_accepted_text(desk: Desk) -> None:
    assert desk.run("schema", "show", desk.started()).out == SCHEMA


def test_show_tells_scripts_the_text_and_its_digest(desk: Desk) -> None:
    document = desk.run("schema", "show", desk.started(), "--json").document
    assert document["schema_source"] == SCHEMA
    assert document["digest"].startswith("sha256:")


def test_show_prints_the_resolved_catalog_on_demand(desk: Desk) -> None:
    ran = desk.run("schema", "show", desk.started(), "--format", "json")
    assert [node["name"] for node in ran.document["nodes"]] == ["Person"]


def test_show_prints_the_schema_of_a_past_commit(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        commit = graph.store.snapshot().commit_id
        graph.schema.apply(GROWN)
    assert desk.run("schema", "show", desk.graph, "--snapshot", commit).out == SCHEMA
    assert desk.run("schema", "show", desk.graph).out == GROWN


def test_the_old_spelling_get_still_works_and_says_so(desk: Desk) -> None:
    ran = desk.run("schema", "get", desk.started())
    assert (ran.code, ran.out) == (0, SCHEMA)
    assert "schema show" in ran.err


@pytest.mark.parametrize(("form", "sign"), [("mermaid", "Knows"), ("dot", "digraph")])
def test_diagram_prints_a_picture(desk: Desk, form: str, sign: str) -> None:
    ran = desk.run("schema", "diagram", desk.started(), "--format", form)
    assert ran.code == 0
    assert sign in ran.out
    document = desk.run("schema", "diagram", desk.graph, "--format", form, "--json").document
    assert (document["format"], document["diagram"].strip()) == (form, ran.out.strip())


@pytest.mark.parametrize("spelling", [["version"], ["--version"], ["-v"]])
def test_version_names_the_release_and_the_storage_format(desk: Desk, spelling: list[str]) -> None:
    ran = desk.run(*spelling)
    assert (ran.code, ran.out) == (0, f"omnigraph {__version__} (storage format {FORMAT})\n")


def test_version_is_a_document_for_scripts(desk: Desk) -> None:
    assert desk.run("version", "--json").document == {"version": __version__, "storage_format": FORMAT}


# -- plan ------------------------------------------------------------------------------------------


def test_plan_lists_the_steps_with_their_cost_and_rows(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        insert(graph, {"Person": [{"slug": "b"}]})
    ran = desk.run("schema", "plan", desk.graph, "--schema", desk.file("s.pg", GROWN))

    assert ran.code == 0
    assert "supported: yes" in ran.out
    assert "alter_property  Person.age I32? -> I64?  (rewrite, 2 rows)" in ran.out
    assert "add_property  Person.nick String?  (metadata, 2 rows)" in ran.out


def test_plan_tells_scripts_every_step(desk: Desk) -> None:
    document = desk.run(
        "schema", "plan", desk.started(), "--schema", desk.file("s.pg", GROWN), "--json"
    ).document
    assert (document["uri"], document["supported"], document["step_count"]) == (desk.graph, True, 2)
    assert [step["kind"] for step in document["steps"]] == ["alter_property", "add_property"]


def test_plan_without_difference_says_so(desk: Desk) -> None:
    ran = desk.run("schema", "plan", desk.started(), "--schema", desk.file("s.pg", SCHEMA))
    assert (ran.code, ran.out) == (0, "no difference\n")


def test_an_unsupported_plan_is_shown_with_its_code_and_exits_one(desk: Desk) -> None:
    ran = desk.run("schema", "plan", desk.started(), "--schema", desk.file("s.pg", REFUSED))
    assert ran.code == 1
    assert "supported: no" in ran.out
    assert "[OG-MF-106]" in ran.out


def test_plan_writes_nothing(desk: Desk) -> None:
    place = Place(desk.started(), {})
    objects = objects_at(place)
    desk.run("schema", "plan", desk.graph, "--schema", desk.file("s.pg", GROWN))
    assert objects_at(place) == objects


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("node A { p: I32? }", 'node B @rename_from("A") { p: I32? }', "rename_type  A -> B"),
        ("node A { p: I32? }", 'node A { q: I32? @rename_from("p") }', "rename_property  A.p -> q"),
        ("node A { p: enum(x)? }", "node A { p: enum(x, y, z)? }", "extend_enum  A.p + y, z"),
        ("node A { p: I32? }", "node A { p: I32? @unique }", "add_constraint  A unique"),
        ("node A { p: I32? @index }", "node A { p: I32? }", "drop_constraint  A index"),
        ("node A { p: I32? }", "node A { p: I32? q: I32 @default(3) }", "add_property  A.q I32"),
        ("node A { p: I32? }", "node A {}", "drop_property  A.p soft"),
        ("node A {}\nnode B {}", "node A {}", "drop_type  B soft"),
        ("node A {}", 'node A @description("x") {}', "update_type_metadata  A"),
    ],
)
def test_each_kind_of_step_has_a_line_that_names_it(desk: Desk, before: str, after: str, words: str) -> None:
    ran = desk.run("schema", "plan", desk.started(before), "--schema", desk.file("s.pg", after))
    assert words in ran.out + ran.err


# -- apply -----------------------------------------------------------------------------------------


def test_apply_changes_the_schema_and_says_which_commit_did(desk: Desk) -> None:
    ran = desk.run("schema", "apply", desk.started(), "--schema", desk.file("s.pg", GROWN))

    with og.connect(desk.graph) as graph:
        assert graph.schema.show() == GROWN
        commit = graph.store.snapshot().commit_id
    assert ran.code == 0
    assert f"applied: commit {commit}" in ran.out


def test_apply_tells_scripts_whether_and_what(desk: Desk) -> None:
    schema = desk.file("s.pg", GROWN)
    first = desk.run("schema", "apply", desk.started(), "--schema", schema, "--json").document
    second = desk.run("schema", "apply", desk.graph, "--schema", schema, "--json").document

    assert (first["applied"], first["supported"], first["graph_manifest_version"]) == (True, True, 3)
    assert (second["applied"], second["step_count"]) == (False, 0)


def test_apply_again_says_that_there_is_nothing_to_do(desk: Desk) -> None:
    ran = desk.run("schema", "apply", desk.started(), "--schema", desk.file("s.pg", SCHEMA))
    assert ran.code == 0
    assert "nothing to do" in ran.out


def test_apply_records_who_and_why(desk: Desk) -> None:
    desk.run(
        "schema",
        "apply",
        desk.started(),
        "--schema",
        desk.file("s.pg", GROWN),
        "--as",
        "ada",
        "--message",
        "x",
    )
    with og.connect(desk.graph) as graph:
        commit = graph.store.snapshot().state.commit
    assert (commit.actor, commit.message) == ("ada", "x")


def test_apply_on_a_branch_changes_that_branch_only(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        graph.store.branches.create("review", "main")
    desk.run("schema", "apply", desk.graph, "--branch", "review", "--schema", desk.file("s.pg", GROWN))

    assert desk.run("schema", "show", desk.graph).out == SCHEMA
    assert desk.run("schema", "show", desk.graph, "--branch", "review").out == GROWN


def test_a_dry_apply_shows_the_plan_and_writes_nothing(desk: Desk) -> None:
    place = Place(desk.started(), {})
    objects = objects_at(place)
    ran = desk.run("schema", "apply", desk.graph, "--schema", desk.file("s.pg", GROWN), "--dry-run")

    assert ran.code == 0
    assert "alter_property" in ran.out
    assert "applied" not in ran.out
    assert objects_at(place) == objects


def test_a_dry_apply_of_an_unsupported_plan_exits_one(desk: Desk) -> None:
    schema = desk.file("s.pg", REFUSED)
    assert desk.run("schema", "apply", desk.started(), "--schema", schema, "--dry-run").code == 1


def test_data_loss_needs_a_confirmation(desk: Desk) -> None:
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", LESS), "--allow-data-loss")
    refused = desk.run(*given)
    assert refused.code == 2
    assert "--confirm" in refused.err
    assert desk.run("schema", "show", desk.graph).out == SCHEMA
    assert desk.run(*given, "--confirm").code == 0


def test_a_dry_run_of_data_loss_needs_no_confirmation_and_shows_it(desk: Desk) -> None:
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", LESS), "--allow-data-loss")
    ran = desk.run(*given, "--dry-run")
    assert ran.code == 0
    assert "drop_property  Person.age hard" in ran.out
    assert "(rewrite, 1 row; the history of Person goes with it)" in ran.out


def test_a_plan_of_data_loss_tells_scripts_whose_history_goes(desk: Desk) -> None:
    given = ("schema", "plan", desk.started(), "--schema", desk.file("s.pg", LESS), "--json")
    (soft,), (hard,) = (desk.run(*given, *loss).document["steps"] for loss in ([], ["--allow-data-loss"]))
    assert "history" not in soft
    assert (hard["mode"], hard["history"], hard["effect"]) == ("hard", "reclaimed", "rewrite")


def test_a_hard_drop_says_what_was_removed_and_who_still_holds_it(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        graph.store.branches.create("review", "main")
    given = ("schema", "apply", desk.graph, "--schema", desk.file("s.pg", LESS), "--allow-data-loss")
    ran = desk.run(*given, "--confirm")

    assert ran.code == 0
    assert re.search(r"reclaimed: Person: \d+ files, \d+ bytes", ran.out)
    assert "warning: the data of Person.age is still held by branch 'review'" in ran.err


def test_a_hard_drop_tells_scripts_what_was_removed(desk: Desk) -> None:
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", LESS), "--allow-data-loss")
    document = desk.run(*given, "--confirm", "--json").document

    (taken,) = document["reclaimed"]
    assert (taken["type_name"], document["warnings"]) == ("Person", [])
    assert taken["files_removed"] > 0
    assert taken["bytes_removed"] > 0


def test_a_hard_drop_that_could_not_reclaim_exits_one_and_says_that_the_data_is_there(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        graph.store.branches.create("review", "main")
        insert(graph, {"Person": [{"slug": "r"}]}, branch="review")
        pin = graph.store.snapshot("review").pin(graph.schema.catalog().node("Person").table_id)
    versions = Path(desk.graph, "tables", pin.table_id, "_versions")
    (versions / manifest_file(pin.version)).unlink()

    given = ("schema", "apply", desk.graph, "--schema", desk.file("s.pg", LESS), "--allow-data-loss")
    ran = desk.run(*given, "--confirm")

    assert ran.code == 1
    assert "applied: commit" in ran.out
    assert "not reclaimed: Person" in ran.out
    assert "still stored" in ran.err


def test_a_dry_apply_judges_the_rows_and_the_expected_head(desk: Desk) -> None:
    strict = desk.file("s.pg", SCHEMA.replace("age: I32?", "age: I32? @range(age, 5..)"))
    given = ("schema", "apply", desk.started(), "--dry-run", "--schema")

    broken = desk.run(*given, strict, "--json")
    stale = desk.run(*given, desk.file("g.pg", GROWN), "--if-commit", "x")

    assert (broken.code, broken.document["code"]) == (1, "constraint_violation")
    assert stale.code == 4


def test_a_dry_apply_tells_scripts_that_it_was_dry(desk: Desk) -> None:
    schema = desk.file("s.pg", GROWN)
    document = desk.run("schema", "apply", desk.started(), "--schema", schema, "--dry-run", "--json").document
    assert (document["dry_run"], document["applied"], document["step_count"]) == (True, False, 2)


@pytest.mark.parametrize("consent", [[], ["--confirm"], ["--yes"]])
def test_data_loss_on_a_remote_graph_needs_both_consents(desk: Desk, consent: list[str]) -> None:
    schema = desk.file("s.pg", LESS)
    ran = desk.run("schema", "apply", "s3://nowhere/g", "--schema", schema, "--allow-data-loss", *consent)
    assert ran.code == 2
    assert "--confirm and --yes" in ran.err
    assert "confirmation_required" in ran.err


@pytest.mark.s3
def test_data_loss_on_a_remote_graph_with_both_consents_is_done(
    desk: Desk, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_place.options.items():
        monkeypatch.setenv(name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}", value)
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        insert(graph, {"Person": [{"slug": "a", "age": 1}]})
    given = ("schema", "apply", s3_place.address, "--schema", desk.file("s.pg", LESS), "--allow-data-loss")

    ran = desk.run(*given, "--confirm", "--yes")

    assert ran.code == 0
    assert "reclaimed: Person" in ran.out


# -- lint ------------------------------------------------------------------------------------------


def test_lint_of_a_good_file_says_ok(desk: Desk) -> None:
    ran = desk.run("schema", "lint", "--schema", desk.file("s.pg", SCHEMA))
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("OK ")


def test_lint_underlines_every_error_and_exits_one(desk: Desk) -> None:
    schema = desk.file("s.pg", "node A { p: Strin }\nnode B { q: Boool }\n")
    ran = desk.run("schema", "lint", "--schema", schema)
    assert ran.code == 1
    assert f"{schema}:1:13" in ran.out
    assert f"{schema}:2:13" in ran.out
    assert ran.out.splitlines()[-1].startswith("ERROR ")


def test_lint_with_a_graph_judges_the_migration(desk: Desk) -> None:
    ran = desk.run("schema", "lint", desk.started(), "--schema", desk.file("s.pg", REFUSED))
    assert ran.code == 1
    assert "OG-MF-106" in ran.out


def test_lint_tells_scripts_every_finding(desk: Desk) -> None:
    document = desk.run("schema", "lint", "--schema", desk.file("s.pg", BROKEN), "--json").document
    assert document["status"] == "error"
    errors = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert [(finding["span"]["line"], finding["span"]["column"]) for finding in errors] == [(3, 11)]


def test_lint_counts_findings_under_names_that_no_failure_uses(desk: Desk) -> None:
    """`error` is the text of a failure; the counts are `errors`, `warnings` and `infos`."""
    document = desk.run("schema", "lint", "--schema", desk.file("s.pg", BROKEN), "--json").document
    assert {"errors", "warnings", "infos"} <= document.keys()
    assert "error" not in document


# -- optimize --------------------------------------------------------------------------------------


def scattered(desk: Desk) -> None:
    """Make a graph whose people lie in several files."""
    desk.run("init", desk.graph, "--schema", desk.file("s.pg", SCHEMA))
    with og.connect(desk.graph) as graph:
        for number in range(4):
            insert(graph, {"Person": [{"slug": f"p{number}"}]})


def test_optimize_says_what_became_of_each_type_and_then_that_there_is_nothing_to_do(desk: Desk) -> None:
    scattered(desk)

    ran, again = desk.run("optimize", desk.graph), desk.run("optimize", desk.graph)

    assert (ran.code, again.code) == (0, 0)
    assert re.search(r"node Person: 4 fragments to 1, [0-9,]+ bytes to [0-9,]+; built slug", ran.out)
    assert re.search(r"optimized main: commit [0-9A-Z]{26}", ran.out)
    assert "node Person: up to date" in again.out
    assert "nothing to do on main" in again.out


def test_optimize_tells_scripts_a_row_for_each_type_that_was_asked_for(desk: Desk) -> None:
    scattered(desk)

    ran = desk.run("optimize", desk.graph, "--type", "Person", "--concurrency", "1", "--json")

    (person,) = ran.document["types"]
    assert {
        name: person[name] for name in ("type", "fragments", "rows", "committed", "skipped", "error")
    } == {
        "type": "Person",
        "fragments": {"before": 4, "after": 1},
        "rows": 4,
        "committed": True,
        "skipped": None,
        "error": None,
    }
    assert person["bytes"].keys() == {"before", "after"}
    with og.connect(desk.graph) as graph:
        head = graph.store.snapshot().state.commit
        assert (head.id, head.actor) == (ran.document["commit_id"], "system:optimize")


def test_optimize_refuses_what_it_cannot_do(desk: Desk) -> None:
    scattered(desk)

    assert desk.run("optimize", desk.graph, "--dry-run").code == 2
    assert desk.run("optimize", desk.graph, "--concurrency", "0").code == 2
    assert desk.run("optimize", desk.graph, "--engine", "spark", "--concurrency", "2").code == 2
    assert desk.run("optimize", desk.graph, "--type", "Persn").code == 6


def test_optimize_fails_if_a_table_does_and_says_which(desk: Desk) -> None:
    scattered(desk)

    def fail() -> None:
        raise OSError("the disk is full")

    with armed({"table_data.before": fail}):
        ran = desk.run("optimize", desk.graph)

    assert ran.code == 1
    assert "failed: " in ran.out
    assert "the disk is full" in ran.out
