"""One process cleans up without a grace period, while others read and write: nothing false is ever said."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import BranchNotFound, HistoryReclaimed, StagedFilesGone
from omnigraph.storage.durability import Action, armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import DAY_US, Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, Upsert, Written, fragments_of, write_rows
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan
from tests.concurrency.tasks import ADD, GROUPS, NAMES, PEOPLE, make_people, run_beside
from tests.support import workers
from tests.support.contents import check_whole
from tests.support.graphs import (
    PERSON,
    PERSON_SCHEMA,
    build_history,
    chain_of,
    make_graph,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.stores import Once, Scripted, again, staged_versions

pytestmark = [pytest.mark.s3_when_full, pytest.mark.slow]

IMPATIENT = RetryPolicy(confirm_after_s=0)
OLDER = 'query older() { update Person set { age: 99 } where name = "p1" }'


@pytest.fixture
def deep(place: Place) -> GraphStore:
    """A graph with a history and a branch."""
    store = make_graph(place.address, durability="os", **place.kwargs)
    build_history(store, 6)
    store.branches.create("dev", "main")
    upsert_person(store, "d", branch="dev")
    return store


def clean_now(place: Place, keep: int = 0) -> None:
    """Clean up from a store of its own, without grace, trimming chains at once."""
    with again(place, IMPATIENT) as cleaner:
        assert cleaner.cleanup(Retention(keep, grace_us=0), dry_run=False).ok


def check_heads(place: Place, *branches: str) -> None:
    """Check that every row of every head can be read, by a process that has cached nothing."""
    with again(place) as fresh:
        for branch in branches:
            snapshot = fresh.snapshot(branch)
            for table_id, pin in snapshot.state.pins.items():
                assert fresh.table(snapshot, table_id).to_table().num_rows == pin.rows


# -- a writer parked before its publish


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_parked_writer_whose_files_are_deleted_stages_again(
    deep: GraphStore, place: Place, branch: str
) -> None:
    """X-08."""
    versions: list[set[int]] = []

    def clean() -> None:
        versions.append(staged_versions(place, PERSON))
        clean_now(place)
        versions.append(staged_versions(place, PERSON))

    mine = Scripted({PERSON: Upsert(people(["late"]))})
    with armed({"publish.before": Once(clean)}):
        receipt = deep.publish(branch, mine)

    assert versions[0] - versions[1], "what it had staged was taken away"
    assert len(mine.bases) == 2
    with again(place) as fresh:
        assert fresh.snapshot(branch).commit_id == receipt.commit_id
        assert "late" in persons(fresh, branch)
    check_heads(place, "main", "dev")


def test_a_writer_that_wakes_before_it_looks_loses_to_versions_that_were_trimmed_and_lands_on_the_new_head(
    deep: GraphStore, place: Place
) -> None:
    """The name of its version is free again, and Lance finds a newer one. What happens to one that sleeps
    after that look is in test_false_success.py.
    """

    def others() -> None:
        with again(place) as rival:
            build_history(rival, 8, prefix="r")
        clean_now(place)

    with armed({"publish.before": Once(others)}):
        receipt = upsert_person(deep, "late")

    with again(place) as fresh:
        assert fresh.snapshot().commit_id == receipt.commit_id
        assert {"late", "r0"} <= persons(fresh).keys()
    check_heads(place, "main", "dev")


def test_a_writer_on_a_branch_that_was_deleted_and_cleaned_is_told(deep: GraphStore, place: Place) -> None:
    def delete() -> None:
        with again(place) as rival:
            rival.branches.delete("dev")
        clean_now(place)

    with armed({"publish.before": Once(delete)}), pytest.raises(BranchNotFound):
        upsert_person(deep, "late", branch="dev")
    with pytest.raises(BranchNotFound):
        deep.snapshot("dev")
    clean_now(place)
    with pytest.raises(BranchNotFound):
        upsert_person(deep, "later", branch="dev")


def test_a_schema_change_whose_new_table_was_deleted_fails_typed_or_publishes_it_whole(
    deep: GraphStore, place: Place
) -> None:
    def adding(table_id: str) -> PlannedWrite:
        create = {table_id: NewTable("New", "node", PERSON_SCHEMA)}
        effects = {table_id: Upsert(people(["n"]))}
        return PlannedWrite(
            PublishPlan(CommitKind.SCHEMA, effects=effects, create=create, schema=b'{"n": 2}')
        )

    with armed({"publish.before": Once(lambda: clean_now(place))}), pytest.raises(StagedFilesGone) as caught:
        deep.publish("main", adding("t-new"))

    assert "repeat the write" in str(caught.value)
    assert "t-new" not in again(place).snapshot().state.pins
    deep.publish("main", adding("t-again"))  # whoever repeats it gets a new id
    check_heads(place, "main", "dev")


# -- files that wait for their publish


def written_rows(store: GraphStore) -> Written:
    """Write rows as an executor does: into files that nothing names yet."""
    base = store.snapshot().state
    handle = store.table(store.snapshot(), PERSON)
    return Written(tuple(fragments_of(write_rows(handle, people(["bulk"]).to_batches()))), base.version)


def test_files_that_wait_for_their_publish_are_safe_within_the_grace_period(
    deep: GraphStore, place: Place
) -> None:
    """A load that takes hours is not refused because a cleanup ran beside it."""
    rows = written_rows(deep)
    with again(place, IMPATIENT) as cleaner:
        assert cleaner.cleanup(Retention(1, grace_us=DAY_US), dry_run=False).ok

    write(deep, {PERSON: Append(rows)})

    assert "bulk" in persons(again(place))


def test_files_that_wait_for_longer_than_the_grace_period_are_refused(deep: GraphStore, place: Place) -> None:
    rows = written_rows(deep)
    clean_now(place)

    with pytest.raises(StagedFilesGone):
        write(deep, {PERSON: Append(rows)})


# -- names that come up meanwhile


def test_a_branch_that_is_being_made_gets_a_chain_that_is_left(deep: GraphStore, place: Place) -> None:
    """Its chain is stored and has no name yet: it is deleted as a leftover."""
    with armed({"branch_register.before": Once(lambda: clean_now(place))}):
        deep.branches.create("new", "main")

    upsert_person(deep, "n", branch="new")
    assert "n" in persons(again(place), "new")
    clean_now(place)
    check_heads(place, "main", "dev", "new")


@pytest.mark.parametrize("point", ["floor.before", "floor.after", "reclaim_fence.before"])
def test_a_fork_and_a_tag_made_while_a_cleanup_is_announced_are_whole(
    deep: GraphStore, place: Place, point: str
) -> None:
    """X-41: a commit that is about to expire."""
    rival = again(place)
    old = rival.snapshot(at=3).state
    outcomes: list[str] = []

    def name_it() -> None:
        for act in (
            lambda: rival.branches.create("fork", "main", old),
            lambda: rival.tags.create("tag", old),
        ):
            try:
                act()
                outcomes.append("made")
            except HistoryReclaimed:
                outcomes.append("refused")

    with armed({point: Once(name_it)}):
        clean_now(place)

    assert outcomes == (["made"] * 2 if point == "floor.before" else outcomes)
    fresh = again(place)
    names = [ref.name for ref in fresh.branches.list()] + [tag.name for tag in fresh.tags.list()]
    assert [name in names for name in ("fork", "tag")] == [outcome == "made" for outcome in outcomes]
    if "fork" in names:
        check_heads(place, "fork")
        upsert_person(fresh, "f", branch="fork")
    if "made" in outcomes:
        assert len(persons(fresh, at=3)) == old.pins[PERSON].rows, "it is kept below the floor"
    check_heads(place, "main", "dev")


def test_a_tag_made_while_a_cleanup_of_one_branch_is_announced_keeps_its_commit(place: Place) -> None:
    with make_graph(place.address, durability="os", **place.kwargs) as store:
        build_history(store, 6)
        before = persons(store, at=3)

        with armed({"floor.before": Once(lambda: store.tags.create("tag", store.snapshot(at=3).state))}):
            clean_now(place)

    assert persons(again(place), at=3) == before


@pytest.mark.parametrize("commits", [0, 12])
def test_a_branch_made_anew_while_a_cleanup_is_announced_keeps_its_own_history(
    deep: GraphStore, place: Place, commits: int
) -> None:
    """The floor of the one that is gone means nothing on the chain that has its name now."""
    deep.branches.create("name", "main")
    build_history(deep, 5, branch="name", prefix="old")
    rival = again(place)

    def make_anew() -> None:
        rival.branches.delete("name")
        rival.branches.create("name", "main")
        build_history(rival, commits, branch="name", prefix="new")

    with armed({"floor.after": Once(make_anew)}):  # main was told, or dev: "name" comes after both
        clean_now(place)

    with again(place) as fresh:
        assert fresh.snapshot("name").state.floor == 0
        assert len(chain_of(fresh, "name")) == commits + 1
    check_heads(place, "main", "dev", "name")


def test_a_merge_takes_nothing_over_that_was_deleted_meanwhile(place: Place) -> None:
    """The source moves on, just before its version of before becomes main's."""
    make_people(place)
    with og.connect(place.address, **place.kwargs) as graph:
        graph.branches.create("source")
        graph.mutate(ADD, name="theirs", branch="source")

        def move_and_clean() -> None:
            with og.connect(place.address, **place.kwargs) as other:
                other.mutate(OLDER, branch="source")
            clean_now(place)

        with armed({"publish.before": Once(move_and_clean)}):
            graph.merge("source", "main")
    with og.connect(place.address, **place.kwargs) as fresh:
        check_whole(fresh)
        assert "theirs" in {row["name"] for row in fresh.query(NAMES).rows}


@pytest.mark.parametrize("lands", ["after it", "when the source was told and the target was not"])
def test_what_a_merge_has_taken_in_stays_the_base_of_the_next_one(place: Place, lands: str) -> None:
    """The source moves on, and a cleanup gives up the commit that is being merged.

    With a worse base the next merge would bring back what was deleted, or find conflicts that are none.
    """
    make_people(place)
    with (
        og.connect(place.address, **place.kwargs) as graph,
        og.connect(place.address, **place.kwargs) as other,
    ):
        graph.branches.create("side")
        graph.mutate(ADD, name="mine", branch="side")
        graph.mutate(ADD, name="kept")
        graph.mutate(ADD, name="deleted")
        parked, go = threading.Event(), threading.Event()

        def park() -> None:
            parked.set()
            assert go.wait(60)

        merge = threading.Thread(target=lambda: graph.merge("main", "side"))

        def land() -> None:
            go.set()
            merge.join()

        points: dict[str, Action] = {"publish.before": Once(park)}
        if lands != "after it":
            points["floor.after"] = Once(land)
        with armed(points):
            merge.start()
            assert parked.wait(60)
            other.mutate(ADD, name="later")
            clean_now(place)
            land()
        graph.mutate('query gone() { delete Person where name = "deleted" }')
        graph.mutate('query older() { update Person set { age: 7 } where name = "kept" }')
        graph.merge("side", "main")

    with og.connect(place.address, **place.kwargs) as fresh:
        check_whole(fresh)
        names = {row["name"] for row in fresh.query(NAMES).rows}
        assert {"mine", "kept", "later"} <= names
        assert "deleted" not in names


# -- several cleanups, beside everybody else


def test_a_cleanup_goes_on_when_another_one_takes_what_it_would_have_kept(
    deep: GraphStore, place: Place
) -> None:
    """A version comes up and goes while the first is announced, for the second time where there are two."""
    rival = again(place)

    def overtake() -> None:
        for name in ("y", "z"):
            upsert_person(rival, name)
        clean_now(place)

    points: dict[str, Action] = {
        "reclaim_fence.after": Once(lambda: upsert_person(rival, "x")),
        "floor.before": Second(overtake),
    }
    with armed(points):
        clean_now(place, keep=3)

    assert {"x", "y", "z"} <= persons(again(place)).keys()
    check_heads(place, "main", "dev")


class Second:
    """A failpoint action that runs a function when both branches were told, and the first is told again."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do
        self._hits = 0

    def __call__(self) -> None:
        self._hits += 1
        if self._hits == 3:
            self._do()


def clean_repeatedly(
    address: str, options: dict[str, Any], keep: int, times: int, done: str
) -> dict[str, Any]:
    """Clean up over and over, without grace; return what went wrong."""
    errors: list[str] = []
    try:
        with og.connect(address, **options) as graph:
            for _ in range(times):
                report = graph.cleanup(keep=keep, grace=timedelta(0), dry_run=False)
                errors += [f"{part.name}: {part.error}" for part in report.parts if part.error]
    finally:
        Path(done).touch()
    return {"errors": errors}


@pytest.mark.parametrize("group", GROUPS)
def test_beside_two_cleanups_everybody_gets_an_answer_or_the_reason(
    place: Place, group: str, tmp_path: Path
) -> None:
    make_people(place)
    options = {"durability": "os", **place.kwargs}
    done = str(tmp_path / "done")
    times = 3 if place.options else 6
    cleaners: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (clean_repeatedly, (place.address, options, keep, times, done)) for keep in (0, 3)
    ]

    run_beside(cleaners, place, group, done)

    with og.connect(place.address, **place.kwargs) as graph:
        graph.cleanup(keep=0, grace="0s", dry_run=False)
        assert graph.cleanup(keep=0, grace="0s", dry_run=False).parts == ()
        assert len(graph.query(NAMES)) >= PEOPLE
        assert graph.verify().ok


def test_what_one_cleanup_keeps_apart_is_not_deleted_by_another_one_that_keeps_it_in_the_history(
    local_place: Place,
) -> None:
    """The second one lists what the first has put apart, and deletes after the first has raised the floor."""
    store = make_graph(local_place.address, durability="os")
    build_history(store, 3)
    store.branches.create("dev", "main")
    forked_at = store.snapshot().state.version
    build_history(store, 3, prefix="later")
    about_to_delete, may_delete = threading.Event(), threading.Event()
    with again(local_place, IMPATIENT) as other:
        sweeper = other._cleaner._sweeper
        delete = sweeper.try_delete

        def later(keys: Any) -> Any:
            about_to_delete.set()
            may_delete.wait(60)
            return delete(keys)

        sweeper.try_delete = later  # type: ignore[method-assign]

        def clean() -> None:
            other.cleanup(Retention(100, grace_us=0), dry_run=False)
            about_to_delete.set()  # it had nothing to delete

        second = threading.Thread(target=clean)

        def start_second() -> None:
            time.sleep(0.05)  # without a grace period a file goes once it is older than the listing
            second.start()
            about_to_delete.wait(60)

        with armed({"kept.after": Once(start_second)}):
            clean_now(local_place)
        may_delete.set()
        second.join(60)

    assert again(local_place).snapshot(at=forked_at).state.version == forked_at


def test_files_that_a_cleanup_takes_before_they_are_synced_are_staged_again(local_place: Place) -> None:
    make_graph(local_place.address).close()
    with GraphStore.open(local_place.address, durability="sync") as store:
        upsert_person(store, "first")
        with armed({"staged_sync.before": Once(lambda: clean_now(local_place))}):
            receipt = upsert_person(store, "second")

        assert receipt.attempts == 2
        assert set(persons(store)) == {"first", "second"}
    check_heads(local_place, "main")


def read_late(address: str, folder: str) -> list[str]:
    """Open the head, tell, wait for the cleanup, and read all of it."""
    with og.connect(address) as graph:
        view = graph.at(graph.commits.list(limit=1)[0].id)
        Path(folder, "opened").touch()
        wait_for(Path(folder, "cleaned"))
        return sorted(row["name"] for row in view.query(NAMES).rows)


def replace_and_clean(address: str, folder: str) -> tuple[list[str], int]:
    """Once the reader has opened it, replace everybody, and clean with a grace period that covers that."""
    with og.connect(address, durability="os") as graph:
        before = sorted(row["name"] for row in graph.query(NAMES).rows)
        for path in Path(address).rglob("*"):
            if path.is_file():
                os.utime(path, (path.stat().st_mtime - 3600,) * 2)
        wait_for(Path(folder, "opened"))
        for name in before:
            graph.mutate("query gone($n: String) { delete Person where name = $n }", n=name)
        graph.mutate(ADD, name="new")
        report = graph.cleanup(keep=0, grace="30m", dry_run=False)
    Path(folder, "cleaned").touch()
    return before, report.files


def wait_for(path: Path) -> None:
    for _ in range(6_000):
        if path.exists():
            return
        time.sleep(0.01)
    raise TimeoutError(path.name)


def test_what_another_process_opened_as_the_head_is_read_whole_after_a_cleanup(
    local_place: Place, tmp_path: Path
) -> None:
    make_people(local_place)
    calls: list[tuple[Any, ...]] = [
        (target, (local_place.address, str(tmp_path))) for target in (read_late, replace_and_clean)
    ]

    outcomes = run_processes(run_one, calls, timeout_s=120)

    assert [one.trace for one in outcomes if not one.ok] == []
    read, written = (one.value for one in outcomes)
    before, files = written or ([], 0)
    assert files > 0, "what was superseded before that went"
    assert read == before != []
    with og.connect(local_place.address) as fresh:
        assert [row["name"] for row in fresh.query(NAMES).rows] == ["new"]


def test_writers_beside_a_cleanup_lose_nothing(place: Place, tmp_path: Path) -> None:
    """Separate processes: every acknowledged row is there, and all files of every head."""
    make_graph(place.address, durability="os", **place.kwargs).close()
    options = {"durability": "os", **place.kwargs}
    count = 6 if place.options else 40
    calls: list[tuple[Any, ...]] = [
        (clean_repeatedly, (place.address, options, 1, count // 2, str(tmp_path / "done")))
    ]
    calls += [
        (workers.commit_people, (place.address, place.options, PERSON, prefix, count)) for prefix in "ab"
    ]

    outcomes = run_processes(run_one, calls, timeout_s=240)

    assert [one.trace for one in outcomes if not one.ok] == []
    assert outcomes[0].value == {"errors": []}
    expected = {f"{prefix}-{number}" for prefix in "ab" for number in range(count)}
    assert persons(again(place)).keys() == expected
    check_heads(place, "main")


def run_one(target: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return target(*arguments)
