"""Writers that want the same thing: everyone commits or is told why not (X-02, X-17, X-20 to X-23)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.base.errors import PreconditionFailed
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DeleteIds, Upsert
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.support import workers
from tests.support.graphs import (
    KNOWS,
    PERSON,
    chain_of,
    knows,
    make_graph,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.workers import Increment, once

pytestmark = pytest.mark.s3_when_full

PROCESSES = 4


def maintain(store: GraphStore) -> str:
    """Rewrite a person as it is, in a commit that provably changes no result."""
    ages = persons(store)
    rows = people(["ada"], ages["ada"])
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={PERSON: Upsert(rows)}, replans=True)
    commit_id = store.publish("main", PlannedWrite(plan)).commit_id
    assert commit_id is not None
    return commit_id


# -- strict writes ---------------------------------------------------------------------------------


def test_racing_strict_updates_commit_or_are_told_and_none_is_lost(place: Place) -> None:
    calls = 6
    with make_graph(place.address, **place.kwargs) as store:
        upsert_person(store, "ada", age=0)

        jobs = [(place.address, place.options, "ada", calls)] * PROCESSES
        outcomes = run_processes(workers.increment, jobs)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        committed = sum(outcome.value[0] for outcome in outcomes if outcome.value)
        conflicts = sum(outcome.value[1] for outcome in outcomes if outcome.value)
        assert committed + conflicts == PROCESSES * calls
        assert persons(store) == {"ada": committed}, "each committed increment counts exactly once"
        assert len(chain_of(store)) == committed + 2


def test_racing_deletes_remove_each_row_once(place: Place) -> None:
    ids = [f"p{number}" for number in range(5)]
    with make_graph(place.address, **place.kwargs) as store:
        write(store, {PERSON: Upsert(people([*ids, "stays"]))})

        jobs = [(place.address, place.options, ids)] * 3
        outcomes = run_processes(workers.delete_people, jobs)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        commits = sum(outcome.value[0] for outcome in outcomes if outcome.value)
        deleted = sum(outcome.value[1] for outcome in outcomes if outcome.value)
        assert (commits, deleted) == (len(ids), len(ids))
        assert sorted(persons(store)) == ["stays"]
        assert len(chain_of(store)) == commits + 2


def test_strict_update_and_maintenance_of_one_table_both_land(place: Place) -> None:
    with (
        make_graph(place.address, **place.kwargs) as store,
        GraphStore.open(place.address, **place.kwargs) as optimizer,
    ):
        upsert_person(store, "ada", age=0)

        with armed({"publish.before": once(lambda: maintain(optimizer))}):
            receipt = store.publish("main", Increment("ada"))

        assert receipt.attempts == 2
        assert persons(store) == {"ada": 1}
        assert len(chain_of(store)) == 4


# -- one id ----------------------------------------------------------------------------------------


def test_racing_upserts_of_one_id_all_commit_and_the_last_on_the_chain_is_what_is_read(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        jobs = [
            (place.address, place.options, "ada", list(range(4 * number, 4 * number + 4)))
            for number in range(4)
        ]

        outcomes = run_processes(workers.upsert_same, jobs)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        wrote = {commit: age for outcome in outcomes for commit, age in (outcome.value or {}).items()}
        chain = chain_of(store)
        assert sorted(wrote) == sorted(chain[1:])
        assert store.snapshot().pin(PERSON).rows == 1
        assert persons(store) == {"ada": wrote[chain[-1]]}


# -- one swap --------------------------------------------------------------------------------------


def test_of_publishers_from_one_base_exactly_one_swap_succeeds(place: Place, tmp_path: Path) -> None:
    number = 3
    with make_graph(place.address, **place.kwargs) as store:
        before = store.snapshot()
        directory = str(tmp_path / "meeting")
        jobs = [(place.address, place.options, directory, f"p{n}", number) for n in range(number)]

        outcomes = run_processes(workers.swap_once, jobs)

        assert (
            sorted(str(outcome.error_code) for outcome in outcomes) == ["None"] + ["publish_contention"] * 2
        )
        (winner,) = [outcome for outcome in outcomes if outcome.ok]
        after = store.snapshot()
        assert after.commit_id == winner.value
        assert after.state.version == before.state.version + 1, "the losers moved nothing"
        assert list(persons(store)) == [f"p{winner.index}"]


# -- conditional writes ----------------------------------------------------------------------------


def test_of_two_holders_of_one_expected_head_one_commits_and_the_other_learns_the_new_head(
    place: Place, tmp_path: Path
) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        held = store.snapshot().commit_id
        directory = str(tmp_path / "meeting")
        jobs = [(place.address, place.options, directory, name, held) for name in ("ada", "bob")]

        outcomes = run_processes(workers.commit_if, jobs)

        results = {outcome.value[0]: outcome.value[1] for outcome in outcomes if outcome.value}
        assert set(results) == {"ok", "precondition_failed"}
        head = store.snapshot().commit_id
        assert results == {"ok": head, "precondition_failed": head}
        assert len(persons(store)) == 1


def test_conditional_write_fails_for_an_unrelated_commit_too(local_place: Place) -> None:
    """The condition is on the branch, not on the tables that the write touches."""
    with make_graph(local_place.address) as store, GraphStore.open(local_place.address) as other:
        held = store.snapshot().commit_id
        edge = {KNOWS: Upsert(knows({"e": ("a", "b")}))}

        parked = armed({"publish.before": once(lambda: write(other, edge))})
        with parked, pytest.raises(PreconditionFailed) as refused:
            write(store, {PERSON: Upsert(people(["ada"]))}, expected_head=held)

        assert refused.value.fields["actual"] == store.snapshot().commit_id
        assert persons(store) == {}


@pytest.mark.parametrize("when", ["before it starts", "while it is parked"])
def test_conditional_write_is_not_disturbed_by_maintenance(place: Place, when: str) -> None:
    with (
        make_graph(place.address, **place.kwargs) as store,
        GraphStore.open(place.address, **place.kwargs) as optimizer,
    ):
        upsert_person(store, "ada", age=7)
        held = store.snapshot().commit_id
        points = {}
        if when == "before it starts":
            maintain(optimizer)
        else:
            points["publish.before"] = once(lambda: maintain(optimizer))

        with armed(points):
            receipt = write(store, {PERSON: Upsert(people(["bob"]))}, expected_head=held)

        assert receipt.commit is not None
        assert sorted(persons(store)) == ["ada", "bob"]
        assert len(chain_of(store)) == 4


def test_condition_on_a_maintenance_commit_holds_as_well(local_place: Place) -> None:
    with make_graph(local_place.address) as store:
        upsert_person(store, "ada")
        held = maintain(store)

        receipt = write(store, {PERSON: DeleteIds(pa.array(["ada"]))}, expected_head=held)

        assert receipt.commit is not None
        assert persons(store) == {}
