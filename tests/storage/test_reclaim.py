"""Reclaiming a table: what no live branch's head needs is gone, and everybody else is told or left whole."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.base.errors import GraphError, HistoryReclaimed, IntegrityError
from omnigraph.storage.derived.adjacency import Bases, Cover, base_of
from omnigraph.storage.derived.files import DerivedFiles, folder_of, is_derived
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.reclaim import Reclaimed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    BuildIndexes,
    DeleteIds,
    IndexSpec,
    Overwrite,
    StoredIndexKind,
    Upsert,
)
from omnigraph.storage.tables.files import referenced, stored_files
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.support.graphs import KNOWS, PERSON, knows, make_graph, people, persons, upsert_person, write
from tests.support.places import Place
from tests.support.stores import (
    Once,
    Pause,
    Scripted,
    again,
    check_error,
    everything,
    location,
    nothing_written,
    staged_versions,
)

pytestmark = pytest.mark.s3_when_full

SETTLED = 5_000  # rows enough for a fragment that has key hashes


@pytest.fixture
def deep(place: Place) -> Iterator[GraphStore]:
    """A graph whose Person table has an index, key hashes, a deletion file, a tail, and unneeded versions."""
    with make_graph(place.address, durability="os", **place.kwargs) as made:
        write(made, {PERSON: Upsert(people(f"p{n}" for n in range(SETTLED)))})
        write(made, {KNOWS: Upsert(knows({"e": ("p1", "p2")}))})
        write(made, {PERSON: DeleteIds(pa.array(["p7"]))})
        upsert_person(made, "tail")
        indexes = BuildIndexes((IndexSpec("age", StoredIndexKind.BTREE),))
        made.publish("main", PlannedWrite(PublishPlan(CommitKind.MAINTENANCE, effects={PERSON: indexes})))
        yield made


def files(place: Place, table_id: str = PERSON) -> dict[str, int]:
    """Return the stored files of a table."""
    return stored_files(location(place), table_id)


def needed_by(store: GraphStore, *branches: str) -> set[str]:
    """Return the stored files of Person that the heads of branches refer to."""
    found: set[str] = set()
    for branch in branches:
        wanted = referenced(store.table(store.snapshot(branch), PERSON))
        kept = tuple(name for name in wanted if name.endswith("/"))
        stored = stored_files(store.location, PERSON)
        found |= {file for file in stored if file in wanted or file.startswith(kept)}
    return found


def one(found: tuple[Reclaimed, ...]) -> Reclaimed:
    (only,) = found
    return only


# -- what goes and what stays


def test_only_what_the_head_refers_to_is_left(deep: GraphStore, place: Place) -> None:
    before = files(place)

    taken = one(deep.reclaim([PERSON]))

    after = files(place)
    assert set(after) == needed_by(again(place), "main")
    gone = before.keys() - after.keys()
    assert (taken.files, taken.bytes) == (len(gone), sum(before[file] for file in gone))
    assert taken.versions == sum(file.endswith(".manifest") for file in gone) > 0
    assert {f.split("/")[0] for f in after} == {
        "data",
        "_deletions",
        "_derived",
        "_indices",
        "_versions",
        "_transactions",
    }


def test_what_is_derived_from_dropped_files_goes_with_them(deep: GraphStore, place: Place) -> None:
    """Key hashes tell which values there were; adjacency which nodes were connected."""
    derived, kept = DerivedFiles(deep.location), files(place)
    data = max(kept, key=lambda file: (file.startswith("data/"), kept[file])).removeprefix("data/")
    other = Cover(PERSON, PERSON, (("other.lance", 1),), (), ())
    of_the_head = replace(other, edges=((data, SETTLED),))
    write_base(derived, of_the_head)
    write_base(derived, other)
    derived.write(PERSON, f"{folder_of('other.lance')}/keys-0", "keys", {}, {})
    derived.write(PERSON, f"{folder_of(data)}/.keys-9.unfinished", "keys", {}, {})
    deep.branches.create("side", "main")  # it holds what main gives up
    write(deep, {PERSON: Overwrite(people(["p1"]))})

    deep.reclaim([PERSON])

    assert {file for file in files(place) if is_derived(file)} == {
        of_the_head.name,
        *(file for file in kept if is_derived(file)),
    }
    deep.branches.delete("side")
    deep.reclaim([PERSON])
    assert not [file for file in files(place) if is_derived(file)]


def write_base(files: DerivedFiles, cover: Cover) -> None:
    nothing = np.zeros(0, np.int32)
    with ThreadPoolExecutor(1) as pool:
        base = base_of(cover, nothing, nothing, (0, 0), pool)
    assert Bases(files).write(PERSON, base)


def test_the_head_reads_finds_and_writes_as_before(deep: GraphStore, place: Place) -> None:
    before = persons(deep)

    deep.reclaim([PERSON])

    fresh = again(place)
    assert persons(fresh) == before
    upsert_person(fresh, "p42", age=1)
    write(fresh, {PERSON: DeleteIds(pa.array(["p43", "tail"]))})
    assert persons(deep) == {**{k: v for k, v in before.items() if k not in ("p43", "tail")}, "p42": 1}


def test_a_second_reclaim_finds_nothing(deep: GraphStore) -> None:
    deep.reclaim([PERSON])
    assert (one(deep.reclaim([PERSON])).files, one(deep.reclaim([PERSON])).bytes) == (0, 0)


def test_other_tables_are_not_touched(deep: GraphStore, place: Place) -> None:
    write(deep, {KNOWS: Upsert(knows({"f": ("p1", "p3")}))})
    before = files(place, KNOWS)

    deep.reclaim([PERSON])

    assert files(place, KNOWS) == before


def test_leftovers_of_a_write_that_failed_go_too(deep: GraphStore, place: Place) -> None:
    with armed({"publish.before": "raise"}), pytest.raises(RuntimeError):
        upsert_person(deep, "never")
    (head,) = {pin.version for i, pin in deep.snapshot().state.pins.items() if i == PERSON}
    assert len(staged_versions(place, PERSON)) > 1

    deep.reclaim([PERSON])

    assert staged_versions(place, PERSON) == {head}


def test_a_table_that_nobody_pins_goes_with_everything(deep: GraphStore, place: Place) -> None:
    deep.publish("main", PlannedWrite(PublishPlan(CommitKind.SCHEMA, drop=frozenset({PERSON}))))
    before = files(place)

    taken = one(deep.reclaim([PERSON]))

    assert files(place) == {}
    assert (taken.files, taken.bytes, dict(taken.pinned_by)) == (len(before), sum(before.values()), {})


def test_several_tables_are_reclaimed_with_one_announcement(deep: GraphStore, place: Place) -> None:
    version = deep.snapshot().state.version

    found = deep.reclaim([PERSON, KNOWS])

    assert [taken.table_id for taken in found] == [KNOWS, PERSON]
    assert deep.snapshot().state.version == version + 1


def test_a_head_that_cannot_be_traced_stops_everything(deep: GraphStore, place: Place) -> None:
    """G-24: the reachable set is known before the first deletion, for all tables."""
    deep.branches.create("dev", "main")
    upsert_person(deep, "d", branch="dev")
    (version,) = {pin.version for i, pin in deep.snapshot("dev").state.pins.items() if i == PERSON}
    location(place).objects.delete(f"tables/{PERSON}/_versions/{manifest_file(version)}")
    before = {table: files(place, table) for table in (KNOWS, PERSON)}

    with again(place) as fresh, pytest.raises(IntegrityError):
        fresh.reclaim([KNOWS, PERSON])

    assert {table: files(place, table) for table in (KNOWS, PERSON)} == before


# -- history


def test_an_old_commit_says_that_the_table_was_reclaimed_and_reads_its_other_tables(
    deep: GraphStore, place: Place
) -> None:
    rival = again(place)
    old = deep.snapshot(at=4)
    for store in (deep, rival):
        assert len(persons(store, at=4)) == SETTLED - 1  # both hold the handle

    deep.reclaim([PERSON])

    for store in (deep, rival, again(place)):
        for at in (4, old.commit_id):
            with pytest.raises(HistoryReclaimed) as caught:
                persons(store, at=at)
            check_error(caught.value, "history_reclaimed", "Person", "4")
            assert store.table(store.snapshot(at=at), KNOWS).count_rows() == 1


def test_a_snapshot_taken_before_the_reclaim_by_another_process_says_so_too(
    deep: GraphStore, place: Place
) -> None:
    rival = again(place)
    old = rival.snapshot(at=3)  # it looks at no head after this

    deep.reclaim([PERSON])

    with pytest.raises(HistoryReclaimed):
        rival.table(old, PERSON)


def test_a_table_that_is_really_lost_is_not_called_reclaimed(deep: GraphStore, place: Place) -> None:
    deep.reclaim([KNOWS])
    pin = deep.snapshot().pin(PERSON)
    location(place).objects.delete(f"tables/{PERSON}/_versions/{manifest_file(pin.version)}")

    with again(place) as fresh, pytest.raises(IntegrityError):
        fresh.table(fresh.snapshot(), PERSON)


def test_an_old_commit_with_the_very_pin_that_is_kept_can_still_be_read(deep: GraphStore) -> None:
    before = deep.snapshot()
    write(deep, {KNOWS: Upsert(knows({"f": ("p1", "p3")}))})

    deep.reclaim([PERSON])

    assert len(persons(deep, at=before.commit_id)) == SETTLED


def test_history_that_comes_after_a_reclaim_is_kept(deep: GraphStore, place: Place) -> None:
    deep.reclaim([PERSON])
    first = upsert_person(deep, "q1").commit_id
    upsert_person(deep, "q2")

    assert "q1" in persons(again(place), at=first)
    assert "q2" not in persons(again(place), at=first)


def test_a_floor_that_passes_the_reclaim_takes_its_note_along(deep: GraphStore) -> None:
    deep.reclaim([PERSON])
    since = deep.snapshot().state.reclaimed[PERSON]
    assert since == deep.snapshot().state.version
    upsert_person(deep, "q")

    deep.raise_floor("main", since)

    assert dict(deep.snapshot().state.reclaimed) == {}
    with pytest.raises(HistoryReclaimed):
        persons(deep, at=4)


# -- other branches


def test_every_live_branch_keeps_what_its_head_pins_and_nothing_older(deep: GraphStore, place: Place) -> None:
    deep.branches.create("dev", "main")
    old = upsert_person(deep, "d1", branch="dev").commit_id
    upsert_person(deep, "d2", branch="dev")
    upsert_person(deep, "m")

    taken = one(deep.reclaim([PERSON]))

    fresh = again(place)
    assert {"d1", "d2"} <= persons(fresh, "dev").keys()
    assert set(files(place)) == needed_by(fresh, "main", "dev")
    assert set(taken.pinned_by) == {"main", "dev"}
    with pytest.raises(HistoryReclaimed):
        persons(fresh, "dev", at=old)
    upsert_person(fresh, "d3", branch="dev")


def test_a_branch_whose_delete_was_interrupted_is_live_and_keeps_its_head(deep: GraphStore) -> None:
    deep.branches.create("dev", "main")
    upsert_person(deep, "d", branch="dev")
    with armed({"branch_mark.after": "raise"}), pytest.raises(RuntimeError):
        deep.branches.delete("dev")

    deep.reclaim([PERSON])

    assert "d" in persons(deep, "dev")


def test_a_deleted_branch_keeps_nothing(deep: GraphStore, place: Place) -> None:
    deep.branches.create("dev", "main")
    upsert_person(deep, "d", branch="dev")
    deep.branches.delete("dev")

    deep.reclaim([PERSON])

    assert set(files(place)) == needed_by(deep, "main")


def test_a_branch_made_during_the_announcement_is_told_and_kept(deep: GraphStore, place: Place) -> None:
    rival = again(place)

    def fork() -> None:
        rival.branches.create("dev", "main")
        upsert_person(rival, "d", branch="dev")

    with armed({"reclaim_fence.before": Once(fork)}):
        taken = one(deep.reclaim([PERSON]))

    assert set(taken.pinned_by) == {"main", "dev"}
    fresh = again(place)
    assert "d" in persons(fresh, "dev")
    assert fresh.snapshot("dev").state.swept > 0


def test_a_branch_deleted_and_made_anew_during_the_announcement_is_told_again(
    deep: GraphStore, place: Place
) -> None:
    deep.branches.create("dev", "main")
    rival = again(place)

    def recreate() -> None:
        rival.branches.delete("dev")
        rival.branches.create("dev", "main")
        upsert_person(rival, "d", branch="dev")

    with armed({"reclaim_fence.before": Once(recreate)}):
        deep.reclaim([PERSON])

    fresh = again(place)
    assert "d" in persons(fresh, "dev")
    assert fresh.snapshot("dev").state.swept > 0


def test_a_branch_deleted_during_the_announcement_does_not_stop_it(deep: GraphStore, place: Place) -> None:
    deep.branches.create("dev", "main")
    rival = again(place)

    with armed({"floor.before": Once(lambda: rival.branches.delete("dev"))}):
        taken = one(deep.reclaim([PERSON]))

    assert set(taken.pinned_by) == {"main"}


# -- writers and forks that were under way


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_writer_parked_before_its_publish_stages_again(deep: GraphStore, place: Place, branch: str) -> None:
    """G-27, on the branch that was changed and on another one: its staged files are really gone."""
    rival = again(place)
    deep.branches.create("dev", "main")
    versions: list[set[int]] = []

    def sweep() -> None:
        versions.append(staged_versions(place, PERSON))
        rival.reclaim([PERSON])
        versions.append(staged_versions(place, PERSON))

    mine = Scripted({PERSON: Upsert(people(["late"]))})
    with armed({"publish.before": Once(sweep)}):
        deep.publish(branch, mine)

    before, after = versions
    assert before - after, "what it had staged was taken away"
    assert len(mine.bases) == 2
    fresh = again(place)
    assert "late" in persons(fresh, branch)
    assert set(files(place)) >= needed_by(fresh, "main", "dev")


@pytest.mark.parametrize("point", ["table_data.after", "table_commit.after", "publish.before"])
def test_a_writer_that_decides_by_rows_stages_again_too(deep: GraphStore, place: Place, point: str) -> None:
    rival = again(place)
    rows = people(["only"])

    with armed({point: Once(lambda: rival.reclaim([PERSON]))}):
        write(deep, {PERSON: Overwrite(rows)})

    assert set(persons(again(place))) == {"only"}


def test_a_write_that_lands_between_listing_and_announcement_is_kept(deep: GraphStore, place: Place) -> None:
    rival = again(place)

    with armed({"floor.before": Once(lambda: upsert_person(rival, "just"))}):
        deep.reclaim([PERSON])

    assert "just" in persons(again(place))
    assert set(files(place)) >= needed_by(again(place), "main")


def test_files_staged_after_the_announcement_are_kept_though_nothing_names_them_yet(
    deep: GraphStore, place: Place
) -> None:
    rival, pause = again(place), Pause()

    with ThreadPoolExecutor(1) as pool:
        waiting: list[Future[object]] = []

        def stage() -> None:
            waiting.append(pool.submit(upsert_person, rival, "parked"))
            pause.wait()

        with armed({"reclaim_fence.after": Once(stage), "publish.before": pause}):
            deep.reclaim([PERSON])
            pause.let_go()
            waiting[0].result(60)

    assert "parked" in persons(again(place))


def test_a_write_that_lands_during_the_deletion_is_kept(deep: GraphStore, place: Place) -> None:
    rival = again(place)

    with armed({"reclaim_file.before": Once(lambda: upsert_person(rival, "just"))}):
        deep.reclaim([PERSON])

    assert "just" in persons(again(place))


@pytest.mark.parametrize(
    ("point", "registry_read"),
    [("branch_register.before", False), ("branch_chain.after", True)],
    ids=["registry-unseen", "registry-read-by-another-thread"],
)
def test_a_fork_that_was_under_way_starts_over_from_a_head_that_is_whole(
    deep: GraphStore, place: Place, point: str, registry_read: bool
) -> None:
    """Another thread of the same process may have seen the moved registry before the fork registers."""
    rival = again(place)

    def sweep() -> None:
        write(rival, {PERSON: Overwrite(people(["new"]))})
        rival.reclaim([PERSON])
        if registry_read:
            deep.branches.list()

    with armed({point: Once(sweep)}):
        deep.branches.create("dev", "main")

    fresh = again(place)
    assert set(persons(fresh, "dev")) == {"new"}
    assert [ref.name for ref in fresh.branches.list()] == ["dev"]


def test_a_fork_from_a_reclaimed_commit_is_refused(deep: GraphStore, place: Place) -> None:
    old = deep.snapshot(at=4).state
    deep.reclaim([PERSON])

    with nothing_written(place), pytest.raises(HistoryReclaimed):
        deep.branches.create("dev", "main", old)


def test_a_fork_from_an_old_commit_that_lost_its_race_with_a_reclaim_is_refused(
    deep: GraphStore, place: Place
) -> None:
    rival = again(place)
    old = deep.snapshot(at=4).state

    with (
        armed({"branch_register.before": Once(lambda: rival.reclaim([PERSON]))}),
        pytest.raises(HistoryReclaimed),
    ):
        deep.branches.create("dev", "main", old)

    assert again(place).branches.list() == ()


def test_a_fork_does_not_inherit_the_note_of_a_reclaim(deep: GraphStore) -> None:
    deep.reclaim([PERSON])

    deep.branches.create("dev", "main")

    assert dict(deep.snapshot("dev").state.reclaimed) == {}
    first = upsert_person(deep, "d1", branch="dev").commit_id
    upsert_person(deep, "d2", branch="dev")
    assert "d1" in persons(deep, "dev", at=first)


@pytest.mark.parametrize(
    "point", ["floor.before", "floor.after", "reclaim_fence.before", "reclaim_file.before"]
)
def test_two_reclaims_at_once_leave_whole_heads(deep: GraphStore, place: Place, point: str) -> None:
    """X-25, with a write between them, so that the two keep different versions."""
    rival = again(place)

    def sweep() -> None:
        upsert_person(rival, "between")
        rival.reclaim([PERSON])
        upsert_person(rival, "last")

    with armed({point: Once(sweep)}):
        deep.reclaim([PERSON])

    fresh = again(place)
    assert {"between", "last"} <= persons(fresh).keys()
    assert set(files(place)) >= needed_by(fresh, "main")
    for version in range(1, fresh.snapshot().state.version + 1):
        answer = "rows"
        try:
            assert len(persons(fresh, at=version)) in (0, SETTLED - 1, SETTLED, SETTLED + 1, SETTLED + 2)
        except GraphError as error:
            answer = error.code
        assert answer in ("rows", "history_reclaimed")


def test_a_retention_that_comes_first_does_not_stand_for_the_announcement(
    deep: GraphStore, place: Place
) -> None:
    """It moves the branch as well, but says nothing of the table."""
    rival = again(place)

    with armed({"floor.before": Once(lambda: rival.raise_floor("main", 1))}):
        deep.reclaim([PERSON])

    state = again(place).snapshot().state
    assert state.reclaimed[PERSON] == state.version


def test_a_reclaim_without_tables_announces_and_deletes_nothing_of_value(
    deep: GraphStore, place: Place
) -> None:
    before = {key for key in everything(place) if key.startswith("tables/")}

    assert deep.reclaim([]) == ()

    assert {key for key in everything(place) if key.startswith("tables/")} == before
