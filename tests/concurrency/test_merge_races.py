"""Merges that meet other writes: two processes, one target, nothing half merged."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from omnigraph.base.errors import ConflictError
from omnigraph.storage.durability import armed
from tests.support.graphs import chain_of
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.two_branches import SCHEMA, knows, person, put

BRANCHES = ("one", "two", "three", "four")


def merge_into_main(address: str, options: dict[str, str], branch: str) -> str:
    """Merge a branch, in a process of its own."""
    with og.connect(address, storage_options=options) as graph:
        try:
            done = graph.merge(branch)
        except ConflictError as error:
            return error.code
        return str(done.commit_id)


def prepare(place: Place, *, same: bool) -> None:
    """Branches that change one person each: all the same one, or each another."""
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        graph.load([person(name, age=0) for name in ("hub", *BRANCHES)], mode="append")
        for number, branch in enumerate(BRANCHES, 1):
            graph.store.branches.create(branch, "main")
            put(graph, branch, person("hub" if same else branch, age=number), knows(branch, branch, "hub"))


def test_processes_merging_different_changes_all_land(place: Place) -> None:
    prepare(place, same=False)

    outcomes = run_processes(merge_into_main, [(place.address, place.options, b) for b in BRANCHES])

    commits = {outcome.value for outcome in outcomes}
    with og.connect(place.address, **place.kwargs) as graph:
        rows = {row["id"]: row["age"] for row in graph.nodes("Person").to_arrow().to_pylist()}
        assert rows == {"hub": 0, "one": 1, "two": 2, "three": 3, "four": 4}
        assert graph.edges("Knows").to_arrow().num_rows == len(BRANCHES)
        assert commits <= set(chain_of(graph.store))
        assert len(commits) == len(BRANCHES)


def test_processes_merging_one_change_each_of_the_same_thing_leave_one_of_them(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "graph.og"), {})
    prepare(place, same=True)

    outcomes = [o.value for o in run_processes(merge_into_main, [(place.address, {}, b) for b in BRANCHES])]

    assert outcomes.count("merge_conflict") == len(BRANCHES) - 1
    with og.connect(place.address) as graph:
        rows = {row["id"]: row["age"] for row in graph.nodes("Person").to_arrow().to_pylist()}
        winner = BRANCHES[rows["hub"] - 1]
        assert [row["id"] for row in graph.edges("Knows").to_arrow().to_pylist()] == [winner]


def test_a_merge_goes_on_top_of_a_write_that_came_first(tmp_path: Path) -> None:
    """The target moves between the plan and the swap: the merge is planned again, and nothing is lost."""
    place = Place(str(tmp_path / "graph.og"), {})
    prepare(place, same=False)
    with og.connect(place.address) as graph, og.connect(place.address) as other:
        passed: list[int] = []

        def interfere() -> None:
            if not passed:
                passed.append(1)
                put(other, "main", person("late", age=9), person("one", age=0, city="x"))

        with armed({"publish.before": interfere}):
            done = graph.merge("one")
        rows = {row["id"]: (row["age"], row["city"]) for row in graph.nodes("Person").to_arrow().to_pylist()}
        assert done.outcome.value == "merged"
        assert (rows["late"], rows["one"]) == ((9, None), (1, "x"))
