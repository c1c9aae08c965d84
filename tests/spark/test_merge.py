"""Merges and diffs whose rows executors compare: the outcomes of one process, on every pair of states."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import HistoryReclaimed
from omnigraph.engine.merge.conflicts import MergeConflict
from omnigraph.engine.merge.merge import MergeOutcome
from omnigraph.pipeline import diff, load, merge, read, register
from omnigraph.pipeline.bulk.merge import LargeMerges
from omnigraph.storage.tables.effects import Replace, written_in
from omnigraph.surfaces.cli.app import app
from tests.engine.merge.test_truth import BORN, PAIRS, VALUES, expected
from tests.spark.samples import ALL, EVERY_TYPE
from tests.support.two_branches import SCHEMA, change, fork, image, knows, person, put, world

pytestmark = pytest.mark.spark


def bring(graph: Graph, branch: str, states: dict[str, str]) -> None:
    """Bring entities, each a node and an edge, into states."""
    records: list[dict[str, Any]] = []
    for name, state in states.items():
        if state == "delete":
            change(graph, branch, f'delete Person where name = "{name}"')
            change(graph, branch, f'delete Knows where note = "{name}"')
        elif state not in ("absent", "same"):
            records += entity(name, state)
    if records:
        put(graph, branch, *records)


def entity(name: str, state: str) -> list[dict[str, Any]]:
    """A person, and an edge between others that has the same values but for what finds it."""
    values = VALUES[state]
    edge = knows(f"e-{name}", "Alice", "Dan", since=values["first"], note=name)
    return [person(name, age=values["first"], city=values["second"]), edge]


def disputed(graph: Graph, *, conflicts: bool) -> None:
    """Fork, and bring one entity for each pair of states into them: those in conflict, or the others."""
    pairs = {f"x{number:02}": pair for number, pair in enumerate(PAIRS)}
    chosen = {name: pair for name, pair in pairs.items() if isinstance(expected(*pair), str) is conflicts}
    base = [record for name, (a, _) in chosen.items() if a not in BORN for record in entity(name, "same")]
    put(graph, "main", *base)
    fork(graph)
    fork(graph, "twin")  # of main, for the merge that it is compared with
    for branch, side in (("side", 0), ("main", 1), ("twin", 1)):
        bring(graph, branch, {name: pair[side] for name, pair in chosen.items()})


def told(outcome: MergeOutcome) -> dict[str, Any]:
    """What an outcome says of the merge itself."""
    shown = outcome.to_json()
    kept = ("outcome", "nodes", "edges", "total_conflicts")
    found = [{**one, "ours": None, "theirs": None} for one in shown["merge_conflicts"]]
    return {**{name: shown[name] for name in kept}, "conflicts": found}


def test_every_pair_of_states_that_can_be_merged(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        disputed(graph, conflicts=False)

        ours, theirs = merge(spark, graph, "side", "main", large_rows=0), graph.merge("side", "twin")

        assert told(ours) == told(theirs)
        assert ours.outcome.value == "merged"
        assert image(graph, "main") == image(graph, "twin")
        assert graph.store.snapshot().commit_id == ours.commit_id
        assert merge(spark, graph, "side", large_rows=0).outcome.value == "already_up_to_date"


def test_every_pair_of_states_in_conflict(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        disputed(graph, conflicts=True)

        previews = [
            merge(spark, graph, "side", preview=True, large_rows=0),
            graph.merge("side", "twin", preview=True),
        ]
        with pytest.raises(MergeConflict) as caught:
            merge(spark, graph, "side", large_rows=0)

        assert told(previews[0]) == told(previews[1])
        assert previews[0].total_conflicts == caught.value.total > 8
        for strategy in ("ours", "theirs"):
            mine = merge(spark, graph, "side", preview=True, strategy=strategy, large_rows=0)
            assert told(mine) == told(graph.merge("side", "twin", preview=True, strategy=strategy))
        merge(spark, graph, "side", strategy="theirs", large_rows=0)
        graph.merge("side", "twin", strategy="theirs")
        assert image(graph, "main") == image(graph, "twin")


def test_constraints_hold_in_the_merged_image(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", knows("ab", "Alice", "Bob"))
        change(graph, "main", 'delete Person where name = "Bob"')

        with pytest.raises(MergeConflict) as caught:
            merge(spark, graph, "side", large_rows=0)

        assert [one.kind.value for one in caught.value.conflicts] == ["orphan_edge"]


def test_rows_are_written_by_executors_and_taken_over_by_pointer_where_only_the_source_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.storage import staging

    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", knows("new", "Alice", "Dan"), person("Eve"))
        put(graph, "main", person("Fay"))
        staged: list[Any] = []
        stage = staging.stage  # type: ignore[attr-defined]

        def noted(*arguments: Any, **named: Any) -> Any:
            staged.append(arguments)
            return stage(*arguments, **named)

        monkeypatch.setattr(staging, "stage", noted)
        source = graph.store.snapshot("side")
        merge(spark, graph, "side", large_rows=0)

        catalog = graph.schema.catalog()
        head = graph.store.snapshot()
        assert head.pin(catalog.edge("Knows").id).version == source.pin(catalog.edge("Knows").id).version
        effects = [one for arguments in staged for one in arguments if isinstance(one, Replace)]
        assert [effect.rows.num_rows for effect in effects if written_in(effect)] == [1]


def test_types_with_little_to_compare_are_merged_in_this_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[LargeMerges.__module__], "for_each_partition", None)
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", person("Eve"))
        put(graph, "main", person("Fay"))

        assert merge(spark, graph, "side").outcome.value == "merged"


# -- diffs


def rows(frame: DataFrame) -> list[tuple[str, str, str, str, list[str]]]:
    return sorted((r.op, r.kind, r.type, r.id, r.fields or []) for r in frame.collect())


def test_a_diff_has_the_changes_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        disputed(graph, conflicts=True)

        found = diff(spark, graph, "main", "side")

        changes = list(graph.diff("main", "side").changes())
        assert rows(found) == sorted((c.op.value, c.kind, c.type_name, c.id, list(c.fields)) for c in changes)
        assert len(changes) > 10
        (one,) = diff(spark, graph, "main", "side", type="Knows").where("op = 'delete'").limit(1).collect()
        assert one.before.src == "Alice"
        assert one.after is None


def test_a_diff_of_what_a_hard_drop_took_away_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        before = graph.store.snapshot().commit_id
        graph.schema.apply(SCHEMA.replace("note: String?", ""), allow_data_loss=True)
        put(graph, "main", knows("ab", "Alice", "Bob"), person("Eve"))

        with pytest.raises(HistoryReclaimed, match="'Knows'"):
            diff(spark, graph, before, "main", type="Knows")
        assert [r.id for r in diff(spark, graph, before, "main", type="Person").collect()] == ["Eve"]


def test_values_of_every_type_are_compared_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    with og.init(tmp_path / "g.og", EVERY_TYPE, durability="os") as graph:
        data = [{"type": "All", "data": {**ALL, "name": name}} for name in ("a", "b", "c")]
        graph.load(data, mode="append")
        fork(graph)
        graph.load(data, mode="merge", branch="side")  # written anew, and the same
        assert diff(spark, graph, "main", "side").count() == 0

        graph.load(
            [{"type": "All", "data": {**ALL, "name": "b", "w": 1, "at": "1969-12-31T23:59:59.998Z"}}],
            mode="merge",
            branch="side",
        )
        put(graph, "main", {"type": "All", "data": {**ALL, "name": "c", "v": [9.0, 0.5]}})

        (one,) = diff(spark, graph, "main", "side", type="All").where("id = 'b'").collect()
        assert (one.op, one.fields, one.after.w) == ("update", ["at", "w"], 1)
        merge(spark, graph, "side", large_rows=0)
        found = {row["name"]: row for row in graph.nodes("All").to_arrow().to_pylist()}
        assert (found["b"]["w"], found["c"]["v"]) == (1, [9.0, 0.5])
        assert found["a"]["w"] == 2**64 - 1


def test_a_property_that_came_later_reads_as_its_default(spark: SparkSession, tmp_path: Path) -> None:
    with og.init(tmp_path / "g.og", "node P { name: String @key }", durability="os") as graph:
        graph.load([{"type": "P", "data": {"name": name}} for name in ("a", "c")], mode="append")
        fork(graph)
        graph.schema.apply(
            'node P { name: String @key  at: DateTime @default("2020-01-01T10:00:00Z") }', branch="side"
        )

        graph.load(
            [{"type": "P", "data": {"name": name}} for name in ("a", "b")], mode="merge", branch="side"
        )
        graph.load(
            [{"type": "P", "data": {"name": "c", "at": "2020-01-01T10:00:00.001Z"}}],
            mode="merge",
            branch="side",
        )

        found = diff(spark, graph, "main", "side")
        assert rows(found) == [("insert", "node", "P", "b", []), ("update", "node", "P", "c", ["at"])]


def test_values_that_only_a_wider_type_holds_are_read_compared_and_never_rounded(
    spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    narrow = "node P { name: String @key  f: F32?  n: I32?  at: Date? }"
    fine = {"f": 0.1234567890123, "n": 2**40, "at": "2020-01-01T10:00:00.001Z"}
    with og.init(tmp_path / "g.og", narrow, durability="os") as graph:
        graph.load(
            [{"type": "P", "data": {"name": "a", "f": 0.5, "n": 7, "at": "2020-01-01"}}], mode="append"
        )
        first = graph.store.snapshot().commit_id
        graph.schema.apply("node P { name: String @key  f: F64?  n: I64?  at: DateTime? }")
        widening = graph.store.snapshot().commit_id
        fork(graph)
        graph.load([{"type": "P", "data": {"name": "a", **fine}}], mode="merge", branch="side")
        graph.revert(widening)  # nothing on main needs the wider types
        wide = graph.store.snapshot("side").commit_id
        for at, types in ((first, ["float", "int", "date"]), (wide, ["double", "bigint", "timestamp"])):
            frame = read(spark, graph, "P", at=at).select("f", "n", "at")
            source = spark.read.format("omnigraph").option("uri", graph.uri).option("at", at)
            by_query = source.option(
                "query", "query q() { match { $p: P } return { $p.f, $p.n, $p.at } }"
            ).load()
            assert [kind for _, kind in frame.dtypes] == [kind for _, kind in by_query.dtypes] == types
            values = [list(row) for row in frame.collect()]
            assert values == [list(row) for row in by_query.collect()]
            assert values[0][:2] == ([0.5, 7] if at == first else [fine["f"], fine["n"]])
        for pair in (("main", "side"), ("side", "main")):
            (change,) = diff(spark, graph, *pair, type="P").collect()
            assert change.fields == ["at", "f", "n"]
            assert {change.before.f, change.after.f} == {0.5, fine["f"]}
            (told,) = diff(spark, graph, *pair).collect()
            (here,) = graph.diff(*pair)
            assert (json.loads(told.before), json.loads(told.after)) == (here.before, here.after)

        with pytest.raises(MergeConflict) as met:
            merge(spark, graph, "side", large_rows=0)
        (conflict,) = met.value.conflicts
        assert (conflict.kind.value, [one.name for one in conflict.properties]) == (
            "divergent_update",
            ["at", "f", "n"],
        )


def test_a_large_load_on_a_branch_comes_home(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        frame = spark.range(3000).selectExpr("concat('n', id) as name", "cast(id % 90 as int) as age")
        load(spark, graph, {"Person": frame}, mode="append", branch="side", driver_rows=0)
        put(graph, "main", person("n5", age=5), person("Alice", city="here"))
        told: list[tuple[int, int]] = []

        outcome = merge(spark, graph, "side", large_rows=100, progress=lambda *pair: told.append(pair))

        (count,) = outcome.types
        assert (count.inserted, count.updated, count.deleted) == (2999, 0, 0)
        assert graph.nodes("Person").to_arrow().num_rows == 4 + 3000
        assert told[-1][0] == told[-1][1] > 0


def test_the_commands_on_spark_say_what_those_of_one_process_say(spark: SparkSession, tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", person("Eve"))
        put(graph, "main", person("Fay"))
        uri = graph.uri

    merged = CliRunner().invoke(app, ["merge", uri, "side", "--engine", "spark", "--quiet"])
    built = CliRunner().invoke(app, ["optimize", uri, "--engine", "spark", "--quiet"])

    assert merged.exit_code == 0, merged.output
    assert merged.output.startswith("merged side into main: merged\n  node Person  +1 ~0 -0\n")
    assert built.exit_code == 0, built.output
    assert "node Person: " in built.output


TOWN = SCHEMA + "node Town { name: String @key  size: I32? }\n"


def town(name: str, size: int) -> dict[str, Any]:
    return {"type": "Town", "data": {"name": name, "size": size}}


def towns(graph: Graph, branch: str) -> dict[str, int]:
    rows = graph.nodes("Town", branch=branch).to_arrow().to_pylist()
    return {row["name"]: row["size"] for row in rows}


def test_a_type_that_both_sides_made_is_one_and_goes_on_as_one(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows are in two tables; what the other branch writes to its own is merged on Spark, too."""
    with world(tmp_path) as graph:
        fork(graph)
        for branch in ("main", "side"):
            graph.schema.apply(TOWN, branch=branch)
            put(graph, branch, town(branch, 1), town("both", 2))
        done = merge(spark, graph, "side", large_rows=0)
        assert [one.type_name for one in done.unified] == ["Town"]
        fork(graph, "twin", "main")
        put(graph, "side", town("side", 3), town("more", 4))
        change(graph, "side", 'delete Town where name = "both"')
        put(graph, "main", town("mine", 5))

        ours, theirs = merge(spark, graph, "side", large_rows=0), graph.merge("side", "twin")

        assert told(ours) == told(theirs)
        assert towns(graph, "main") == {"main": 1, "side": 3, "more": 4, "mine": 5}
        merge(spark, graph, "main", "side", large_rows=0)
        assert towns(graph, "side") == towns(graph, "main")
