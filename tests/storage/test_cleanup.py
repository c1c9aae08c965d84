"""Cleanup: what no retained version of any branch needs is gone; everything else reads as before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.base.errors import GraphError, HistoryReclaimed, IntegrityError, InvalidRequest, StorageError
from omnigraph.base.ids import SystemClock
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.cleanup import Cleaned, CleanupProgress
from omnigraph.storage.durability import armed
from omnigraph.storage.garbage import Listing
from omnigraph.storage.history import merge_bases
from omnigraph.storage.manifest.chain import KEPT, MANIFEST, versions
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import DAY_US, Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DeleteIds, Upsert
from omnigraph.storage.tables.files import referenced, stored_files
from omnigraph.storage.transaction import NewTable, PinnedSnapshot, PlannedWrite, PublishPlan
from tests.support.graphs import (
    KNOWS,
    PERSON,
    PERSON_SCHEMA,
    build_history,
    knows,
    make_graph,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.stores import Once, again, check_error, everything, location, nothing_written

pytestmark = pytest.mark.s3_when_full

IMPATIENT = RetryPolicy(confirm_after_s=0)  # versions of chains go at once


class Later(SystemClock):
    """A clock that is ahead by some days."""

    def __init__(self, days: float) -> None:
        self._ahead_us = round(days * DAY_US)

    def now_us(self) -> int:
        """Return the time, some days ahead."""
        return super().now_us() + self._ahead_us


@pytest.fixture
def store(place: Place) -> Iterator[GraphStore]:
    """A graph with twelve commits that folded, deleted and replaced rows."""
    with make_graph(place.address, durability="os", retry=IMPATIENT, **place.kwargs) as made:
        build_history(made, 10)
        write(made, {KNOWS: Upsert(knows({"e": ("h0", "h1")}))})
        write(made, {PERSON: DeleteIds(people(["h1"])["id"].combine_chunks())})
        yield made


def test_progress_counts_versions_that_are_traced_and_files_that_are_deleted(store: GraphStore) -> None:
    told: list[CleanupProgress] = []

    report = store.cleanup(Retention(1, grace_us=0), dry_run=False, progress=told.append)

    stages = [now.stage for now in told]
    assert sorted(set(stages), reverse=True) == list(dict.fromkeys(stages)) == ["tracing", "deleting"]
    last = {now.stage: (now.done, now.total) for now in told}
    assert last["tracing"][0] == last["tracing"][1] > 0
    assert last["deleting"][0] == last["deleting"][1] >= report.files > 0


def clean(
    store: GraphStore,
    keep: int | None = 0,
    *,
    older_than_us: int | None = None,
    grace_us: int = 0,
    dry_run: bool = False,
) -> Cleaned:
    """Clean up, without a grace period unless told."""
    return store.cleanup(Retention(keep, older_than_us, grace_us), dry_run=dry_run)


def sizes(place: Place) -> dict[str, int]:
    """Return every stored file with its size."""
    return dict(location(place).objects.list())


def needed(store: GraphStore, table_id: str, *states: tuple[str, int | str | None]) -> set[str]:
    """Return the stored files of a table that some states refer to."""
    wanted: set[str] = set()
    for branch, at in states:
        wanted |= referenced(store.table(store.snapshot(branch, at=at), table_id))
    folders = tuple(name for name in wanted if name.endswith("/"))
    return {
        file for file in stored_files(store.location, table_id) if file in wanted or file.startswith(folders)
    }


def is_readable(store: GraphStore, at: int | str, branch: str = "main") -> bool:
    """Say whether a state can be read whole; one that cannot must say that it was reclaimed."""
    try:
        snapshot = (
            PinnedSnapshot(*store.history.get(at, branch))
            if isinstance(at, str)
            else store.snapshot(branch, at=at)
        )
        for table_id, pin in snapshot.state.pins.items():
            assert store.table(snapshot, table_id).to_table().num_rows == pin.rows
    except HistoryReclaimed:
        return False
    return True


# -- what goes and what stays


def test_without_history_only_what_the_head_refers_to_is_left(store: GraphStore, place: Place) -> None:
    before = persons(store)

    clean(store)

    fresh = again(place)
    for table_id in (PERSON, KNOWS):
        assert set(stored_files(fresh.location, table_id)) == needed(fresh, table_id, ("main", None))
    assert persons(fresh) == before
    upsert_person(fresh, "next")
    assert persons(store) == {**before, "next": 30}


def test_the_report_is_what_was_freed_and_the_preview_is_the_report(store: GraphStore, place: Place) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "d", branch="dev")
    before = sizes(place)

    preview = clean(store, 2, dry_run=True)
    assert sizes(place) == before
    report = clean(store, 2)

    after = sizes(place)
    assert report.parts == preview.parts
    assert (report.dry_run, preview.dry_run) == (False, True)
    gone = before.keys() - after.keys()
    logs = [key for key in after.keys() - before.keys() if key.startswith("__checksums")]
    assert report.files == len(gone) - len(logs) > 20
    assert report.bytes == sum(before[key] for key in gone) - sum(after[key] for key in logs)
    assert report.versions == sum(key.endswith(".manifest") for key in gone)
    assert report.ok
    assert [part.name for part in report.parts if part.kind in ("node", "edge")] == ["Knows", "Person"]


def test_what_is_given_up_is_told_by_the_preview_and_by_the_run(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    commits = [commit_id for _, commit_id in store.history.own_commits(store.snapshot().state)]

    for dry_run in (True, False):
        report = clean(store, 3, dry_run=dry_run)
        assert [(one.branch, one.commits) for one in report.given_up] == [("main", len(commits) - 3)]
        assert report.given_up[0].oldest_kept == commits[2]
    assert is_readable(store, commits[2])
    assert not is_readable(store, commits[3])
    assert clean(store, 3, dry_run=True).given_up == ()


@pytest.mark.parametrize("keep", [0, 1, 3, 12, 500])
def test_the_newest_commits_stay_and_the_others_say_that_they_were_reclaimed(
    store: GraphStore, place: Place, keep: int
) -> None:
    commits = [store.snapshot(at=version).commit_id for version in range(1, 14)]

    clean(store, keep)

    for reader in (store, again(place)):
        kept = max(1, keep)
        assert [is_readable(reader, commit) for commit in reversed(commits)] == [
            number < kept for number in range(13)
        ]


@pytest.mark.parametrize("keep", [0, 1])
def test_a_second_cleanup_finds_nothing_and_writes_nothing(
    store: GraphStore, place: Place, keep: int
) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "d", branch="dev")
    assert clean(store, keep).files > 0

    with nothing_written(place):
        assert clean(store, keep).parts == ()
        assert clean(again(place, IMPATIENT), keep).parts == ()


def test_a_cleanup_that_keeps_everything_still_takes_leftovers(store: GraphStore, place: Place) -> None:
    with armed({"publish.before": "raise"}), pytest.raises(RuntimeError):
        upsert_person(store, "never")
    history = [store.snapshot(at=version).commit_id for version in range(1, 14)]

    report = clean(store, 500)

    assert report.files > 0
    assert all(is_readable(again(place), commit) for commit in history)
    assert store.snapshot().state.floor == 0


def test_a_branch_can_be_cleaned_alone(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    for name in ("d1", "d2", "d3"):
        upsert_person(store, name, branch="dev")

    store.cleanup(Retention(1, grace_us=0, branch="dev"), dry_run=False)

    assert store.snapshot("dev").state.floor > 0
    assert store.snapshot().state.floor == 0
    assert is_readable(store, 3)
    with pytest.raises(GraphError, match="no branch 'other'"):
        store.cleanup(Retention(1, branch="other"), dry_run=True)


def test_a_cleanup_must_be_told_what_to_keep() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Retention()
    check_error(caught.value, "bad_request", "keep", "older_than")
    with pytest.raises(InvalidRequest):
        Retention(1, grace_us=-1)


# -- time


def test_commits_younger_than_the_age_stay_whatever_their_number(place: Place, store: GraphStore) -> None:
    with GraphStore.open(place.address, clock=Later(5), retry=IMPATIENT, **place.kwargs) as later:
        assert clean(later, None, older_than_us=6 * DAY_US).parts == ()
        assert clean(later, 1, older_than_us=6 * DAY_US).parts == ()
        clean(later, 2, older_than_us=4 * DAY_US)
        assert later.snapshot().state.floor == 12
        clean(later, None, older_than_us=4 * DAY_US)
        assert later.snapshot().state.floor == 13


def test_a_commit_that_was_begun_long_ago_does_not_take_younger_ones_with_it(
    place: Place, store: GraphStore
) -> None:
    """Its id is from when it began: those before it on the chain may be younger."""
    claimed = "00" + store.snapshot().commit_id[2:]
    write(store, {PERSON: Upsert(people(["slow"]))}, commit_id=claimed)

    assert clean(store, None, older_than_us=DAY_US).parts == ()

    assert is_readable(again(place), 5)


def test_files_and_commits_younger_than_the_grace_period_stay(store: GraphStore, place: Place) -> None:
    before = sizes(place)

    report = clean(store, 1, grace_us=DAY_US)

    assert (report.parts, report.given_up) == ((), ())
    assert sizes(place) == before
    assert is_readable(store, 3), "all of it was the head within the grace period"
    with GraphStore.open(place.address, clock=Later(2), retry=IMPATIENT, **place.kwargs) as later:
        assert clean(later, 1, grace_us=DAY_US).files > 20
        assert not is_readable(later, 3)


def test_a_file_that_is_being_written_stays_for_an_hour_whatever_the_grace_period(
    store: GraphStore, place: Place
) -> None:
    """Lance writes under another name first: a writer whose file is gone then fails."""
    unfinished = f"tables/{PERSON}/data/.tmpAb12"
    location(place).objects.create(unfinished, b"half")

    clean(store)
    assert unfinished in sizes(place)

    with GraphStore.open(place.address, clock=Later(0.1), retry=IMPATIENT, **place.kwargs) as later:
        clean(later)
    assert unfinished not in sizes(place)


def test_versions_of_a_chain_stay_until_no_commit_that_stalled_could_take_their_names(place: Place) -> None:
    with make_graph(place.address, durability="os", **place.kwargs) as patient:
        build_history(patient, 5)

        report = clean(patient)

        assert "manifest" not in [part.name for part in report.parts]
        assert len(versions(patient.location, MANIFEST)) >= 6
    with GraphStore.open(place.address, clock=Later(1), **place.kwargs) as later:
        assert "manifest" in [part.name for part in clean(later).parts]
        assert versions(later.location, MANIFEST)[0] == 6


def test_claims_stay_for_a_week_and_go_then(store: GraphStore, place: Place) -> None:
    claims = Claims(store.location, store.syncer)
    claim = Claim("key", store.snapshot(), None, b"request")
    commit_id = claims.take(claim).alone
    clean(store)
    known = claims.find(claim)
    assert known is not None
    assert known.alone == commit_id

    with GraphStore.open(place.address, clock=Later(8), retry=IMPATIENT, **place.kwargs) as later:
        report = clean(later)

    assert [part.files for part in report.parts if part.name == "claims"] == [1]
    assert claims.find(claim) is None


# -- tags, forks, merges


def test_a_tag_keeps_its_commit_below_the_floor(store: GraphStore, place: Place) -> None:
    tagged = store.snapshot(at=4)
    before = persons(store, at=4)
    store.tags.create("v1", tagged.state)

    clean(store)

    for reader in (store, again(place)):
        tag = reader.tags.get("v1")
        state = reader.history.published(tag.incarnation, tag.version, tag.commit_id)
        assert state.pins == tagged.state.pins
        assert persons(reader, at=4) == persons(reader, at=tagged.commit_id) == before
        assert [is_readable(reader, version) for version in (3, 5)] == [False, False]
        assert reader.history.get(tagged.commit_id)[1].version == 4


def test_a_commit_that_a_tag_keeps_is_found_by_its_id_however_old_it_is(place: Place) -> None:
    with make_graph(place.address, durability="os", retry=IMPATIENT, **place.kwargs) as store:
        build_history(store, 45)
        commits = [store.snapshot(at=version).commit_id for version in range(1, 46)]
        for version in (4, 5, 9, 20):
            store.tags.create(f"v{version}", store.snapshot(at=version).state)
        clean(store, 2)

        fresh = again(place)
        found = [version for version, commit in enumerate(commits, 1) if is_readable(fresh, commit)]

        assert found == [4, 5, 9, 20, 45]
        for version in (4, 20):
            assert fresh.history.get(commits[version - 1])[1].version == version


def test_a_tag_that_is_deleted_keeps_nothing_any_more(store: GraphStore, place: Place) -> None:
    store.tags.create("v1", store.snapshot(at=4).state)
    clean(store)
    store.tags.delete("v1")

    report = clean(store)

    assert report.files > 0
    assert not is_readable(again(place), 4)
    assert not [key for key in sizes(place) if key.startswith(KEPT)]
    assert clean(store).parts == ()


def test_a_commit_below_the_floor_cannot_be_tagged_or_forked(store: GraphStore) -> None:
    old = store.snapshot(at=4).state
    clean(store)

    with pytest.raises(HistoryReclaimed):
        store.tags.create("late", old)
    with pytest.raises(HistoryReclaimed):
        store.branches.create("late", "main", old)


def test_a_branch_can_be_forked_from_a_commit_that_a_tag_keeps(store: GraphStore, place: Place) -> None:
    store.tags.create("v1", store.snapshot(at=4).state)
    before = persons(store, at=4)
    clean(store)

    fresh = again(place)
    fresh.branches.create("fix", "main", fresh.snapshot(at=4).state)
    upsert_person(fresh, "fixed", branch="fix")
    store.tags.delete("v1")
    clean(store)

    assert persons(again(place), "fix") == {**before, "fixed": 30}


def test_what_a_merge_starts_from_stays(store: GraphStore, place: Place) -> None:
    store.branches.create("dev", "main")
    forked_at = persons(store)
    upsert_person(store, "d", branch="dev")
    for name in ("m1", "m2"):
        upsert_person(store, name)

    clean(store)

    fresh = again(place)
    (base,) = merge_bases(fresh.branches, fresh.snapshot().state, fresh.snapshot("dev").state)
    table = fresh.opener.table(PERSON, base.pins[PERSON].version).to_table()
    assert set(table["id"].to_pylist()) == set(forked_at)
    log = [commit.id for commit in fresh.history.page(fresh.snapshot("dev").state)]
    assert log == [fresh.snapshot("dev").commit_id, base.commit.id], "as far as it is kept"


def test_the_fork_of_a_live_branch_stays_though_a_merge_would_start_later(
    store: GraphStore, place: Place
) -> None:
    store.branches.create("dev", "main")
    fork = store.snapshot("dev").state.line.fork_version
    assert fork is not None
    upsert_person(store, "m")
    main = store.snapshot().state
    taken = PublishPlan(
        CommitKind.MERGE,
        effects={PERSON: Upsert(people(["m"]))},
        merged=main.ancestry,
        merged_parent=main.head,
    )
    store.publish("dev", PlannedWrite(taken))
    upsert_person(store, "n")

    clean(store)

    assert is_readable(again(place), fork)


def test_what_a_merge_starts_from_stays_on_the_chain_of_a_deleted_branch(
    store: GraphStore, place: Place
) -> None:
    """Two branches took in the same state of a third one, which is gone."""
    for name in ("a", "b", "feature"):
        store.branches.create(name, "main")
    upsert_person(store, "f", branch="feature")
    feature = store.snapshot("feature").state
    for name in ("a", "b"):
        taken = PublishPlan(
            CommitKind.MERGE,
            effects={PERSON: Upsert(people(["f"]))},
            merged=feature.ancestry,
            merged_parent=feature.head,
        )
        store.publish(name, PlannedWrite(taken))
    store.branches.delete("feature")

    clean(store)

    fresh = again(place)
    states = [fresh.snapshot(name).state for name in ("a", "b")]
    (base,) = merge_bases(fresh.branches, *states)
    assert base.head == feature.head
    assert "f" in fresh.opener.table(PERSON, base.pins[PERSON].version).to_table()["id"].to_pylist()
    fresh.branches.delete("a")
    clean(store)
    assert len(versions(store.location, f"{MANIFEST}/tree/{feature.line.incarnation}")) == 1


# -- branches, tables and schemas that are gone


def test_what_a_deleted_branch_held_goes_but_for_the_note_that_it_is_gone(
    store: GraphStore, place: Place
) -> None:
    store.branches.create("dev", "main")
    for name in ("d1", "d2"):
        upsert_person(store, name, branch="dev")
    chain = store.snapshot("dev").state.line.incarnation
    store.branches.delete("dev")

    clean(store, 500)

    history = [("main", version) for version in range(1, 14)]
    assert set(stored_files(store.location, PERSON)) == needed(again(place), PERSON, *history)
    assert len(versions(store.location, f"{MANIFEST}/tree/{chain}")) == 1
    assert clean(store, 500).parts == ()


def test_the_chain_of_a_branch_that_was_never_given_its_name_goes(store: GraphStore, place: Place) -> None:
    with armed({"branch_register.before": "raise"}), pytest.raises(RuntimeError):
        store.branches.create("dev", "main")
    assert [key for key in sizes(place) if key.startswith(f"{MANIFEST}/tree/")]

    clean(store, 500)

    assert not [key for key in sizes(place) if key.startswith(f"{MANIFEST}/tree/")]
    store.branches.create("dev", "main")
    upsert_person(store, "d", branch="dev")


def test_a_dropped_type_and_its_schema_go_when_no_commit_has_them(store: GraphStore, place: Place) -> None:
    city = {"t-city": NewTable("City", "node", PERSON_SCHEMA)}
    added = PublishPlan(
        CommitKind.SCHEMA, effects={"t-city": Upsert(people(["delft"]))}, create=city, schema=b'{"n": 2}'
    )
    store.publish("main", PlannedWrite(added))
    dropped = PublishPlan(CommitKind.SCHEMA, drop=frozenset({"t-city"}), schema=b'{"n": 3}')
    store.publish("main", PlannedWrite(dropped))
    clean(store, 2)
    assert stored_files(store.location, "t-city")

    report = clean(store, 1)

    assert stored_files(store.location, "t-city") == {}
    assert [key for key in sizes(place) if key.startswith("__checksums/t-city")] == []
    assert [part.name for part in report.parts if part.kind == "table"] == ["t-city"]
    assert [key for key in sizes(place) if key.startswith("__schema/")] == [
        f"__schema/{store.snapshot().schema}.json"
    ]


def test_a_schema_that_comes_back_while_it_is_deleted_is_stored_anew(store: GraphStore, place: Place) -> None:
    """Its object is found by the writer, and deleted before the writer publishes."""
    rival = again(place)
    first = store.schemas.get(store.snapshot().schema)
    store.publish("main", PlannedWrite(PublishPlan(CommitKind.SCHEMA, schema=b'{"n": 2}')))

    def come_back() -> None:
        rival.publish("main", PlannedWrite(PublishPlan(CommitKind.SCHEMA, schema=first)))

    with armed({"reclaim_file.before": Once(come_back)}):
        clean(store)

    fresh = again(place)
    assert fresh.schemas.get(fresh.snapshot().schema).rstrip() == first
    assert is_readable(fresh, fresh.snapshot().state.version)


def test_a_schema_that_was_not_announced_stays_until_the_next_time(store: GraphStore, place: Place) -> None:
    """The branch that had it is deleted while the cleanup is announced."""
    rival = again(place)
    store.branches.create("dev", "main")
    store.publish("dev", PlannedWrite(PublishPlan(CommitKind.SCHEMA, schema=b'{"n": 2}')))
    schema = f"__schema/{store.snapshot('dev').schema}.json"

    with armed({"floor.after": Once(lambda: rival.branches.delete("dev"))}):
        clean(store)

    assert schema in sizes(place)
    clean(store)
    assert schema not in sizes(place)


# -- refusals


def test_a_retained_version_that_cannot_be_read_stops_everything(store: GraphStore, place: Place) -> None:
    """G-24: also one that only a tag keeps, on any branch, and before the floor moves."""
    store.tags.create("v1", store.snapshot(at=4).state)
    version = store.snapshot(at=4).pin(PERSON).version
    location(place).objects.delete(f"tables/{PERSON}/_versions/{manifest_file(version)}")

    with again(place, IMPATIENT) as fresh, nothing_written(place), pytest.raises(IntegrityError):
        clean(fresh)


def test_a_table_that_fails_is_in_the_report_and_the_others_go_on(store: GraphStore, place: Place) -> None:
    write(store, {KNOWS: Upsert(knows({"f": ("h2", "h3")}))})

    def refuse() -> None:
        raise StorageError("the store is busy", remedy="Try again", storage_kind="transient")

    with armed({"reclaim_file.before": Once(refuse)}):
        report = clean(store)

    assert [part.name for part in report.parts if part.error] == ["Knows"]
    assert not report.ok
    assert sum(part.files for part in report.parts if part.name == "Person") > 0
    assert set(stored_files(store.location, PERSON)) == needed(again(place), PERSON, ("main", None))
    assert clean(store).ok
    assert clean(store).parts == ()


def test_hard_drops_that_history_remembers_do_not_stop_a_cleanup(store: GraphStore, place: Place) -> None:
    store.tags.create("v1", store.snapshot(at=5).state)
    store.reclaim([PERSON])
    upsert_person(store, "after")

    for keep in (3, 1):
        clean(store, keep)

        fresh = again(place)
        assert "after" in persons(fresh)
        with pytest.raises(HistoryReclaimed):
            persons(fresh, at=5)
        assert fresh.table(fresh.snapshot(at=5), KNOWS).count_rows() == 0
        assert clean(store, keep).parts == ()


# -- readers and depth


def test_what_this_process_is_reading_stays_until_it_is_done(store: GraphStore, place: Place) -> None:
    old = store.snapshot(at=4)
    with store.reading(old.state):
        clean(store)
        assert again(place).opener.table(PERSON, old.pin(PERSON).version).count_rows() == old.pin(PERSON).rows

    assert clean(store).files > 0
    assert old.pin(PERSON).version not in {
        int(file.removeprefix("_versions/d").removesuffix(".manifest"))
        for file in stored_files(store.location, PERSON)
        if file.startswith("_versions/d")
    }


def test_what_another_handle_of_this_process_is_reading_stays_too(store: GraphStore, place: Place) -> None:
    with again(place) as reader:
        old = reader.snapshot(at=4)
        with reader.reading(old.state):
            clean(store)
            assert again(place).opener.table(PERSON, old.pin(PERSON).version).count_rows() > 0


def test_a_stray_file_among_the_tables_is_left_alone(store: GraphStore) -> None:
    stray = "tables/.DS_Store"
    store.location.objects.create(stray, b"of a file manager")

    assert clean(store).files > 0

    assert store.location.objects.read(stray) is not None


def test_a_snapshot_from_before_says_that_its_history_was_reclaimed(store: GraphStore, place: Place) -> None:
    rival = again(place)
    old = rival.snapshot(at=4)

    clean(store)

    with pytest.raises(HistoryReclaimed):
        rival.table(old, PERSON)


def test_a_stale_handle_sees_the_newest_head_after_a_cleanup(store: GraphStore, place: Place) -> None:
    """It had last seen a version that a tag keeps: what follows that one in the chain is gone."""
    stale = again(place)
    assert stale.snapshot().state.version == 13
    store.tags.create("v1", store.snapshot().state)
    for name in ("x", "y", "z"):
        upsert_person(store, name)

    clean(store)

    assert {"x", "y", "z"} <= persons(stale).keys()


def test_the_chain_is_as_short_as_what_is_kept(store: GraphStore, place: Place) -> None:
    for _ in range(3):
        build_history(store, 5)
        clean(store, 2)
    assert len(versions(store.location, MANIFEST)) <= 2 + 3
    assert len([key for key in everything(place) if key.startswith(f"{MANIFEST}/_transactions/")]) <= 2 + 3


def test_the_registry_is_trimmed_once_it_is_long(store: GraphStore) -> None:
    for number in range(20):
        store.tags.create(f"t{number}", store.snapshot().state)
        store.tags.delete(f"t{number}")

    clean(store)

    assert len(versions(store.location, "__refs")) <= 20
    assert clean(store).parts == ()
    store.tags.create("last", store.snapshot().state)
    assert [tag.name for tag in store.tags.list()] == ["last"]


# -- what was in force within the grace period


HOUR_US = 3_600_000_000


def age_everything(place: Place, hours: float = 1) -> None:
    """Make every stored file older, as if nothing had been written since."""
    for path in Path(place.address).rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - hours * 3600
            os.utime(path, (then, then))


@pytest.fixture
def aged(local_place: Place) -> Iterator[GraphStore]:
    """A graph whose twelve commits are an hour old."""
    with make_graph(local_place.address, durability="os", retry=IMPATIENT) as made:
        build_history(made, 11)
        age_everything(local_place)
        yield made


def replace_all(store: GraphStore, branch: str = "main") -> None:
    """Replace every row, so that the state before needs files which the next one does not."""
    for person in list(persons(store, branch)):
        write(store, {PERSON: DeleteIds(people([person])["id"].combine_chunks())}, branch)
    upsert_person(store, "new", branch=branch)


def test_what_was_the_head_within_the_grace_period_stays_for_its_readers(
    aged: GraphStore, local_place: Place
) -> None:
    """Another process opened it a moment ago; all its files are old, and later heads need none of them."""
    with again(local_place) as reader:
        opened = reader.snapshot()
        before = persons(aged)
        replace_all(aged)

        preview = clean(aged, grace_us=HOUR_US // 2, dry_run=True)
        done = clean(aged, grace_us=HOUR_US // 2)

        assert done.parts == preview.parts != ()
        rows = reader.table(opened, PERSON).to_table()
        assert dict(zip(rows["id"].to_pylist(), rows["age"].to_pylist(), strict=True)) == before
        assert reader.table(opened, KNOWS).count_rows() == 0
    fresh = again(local_place)
    versions_read = [is_readable(fresh, version) for version in range(1, opened.state.version + 1)]
    assert versions_read == [False] * 11 + [True], "what was superseded before that is given up"
    assert clean(aged, grace_us=HOUR_US // 2).parts == ()


def test_once_it_was_superseded_for_longer_than_the_grace_period_it_goes(
    aged: GraphStore, local_place: Place
) -> None:
    opened = aged.snapshot().state.version
    replace_all(aged)
    clean(aged, grace_us=HOUR_US // 2)
    age_everything(local_place)

    report = clean(aged, grace_us=HOUR_US // 2)

    assert sum(part.files for part in report.parts if part.name == "Person") > 0
    assert not is_readable(again(local_place), opened)
    assert set(stored_files(aged.location, PERSON)) == needed(again(local_place), PERSON, ("main", None))


def test_what_is_superseded_while_the_files_are_listed_stays(aged: GraphStore, local_place: Place) -> None:
    """Its successor is on no listing: only the head from before tells that it was in force."""
    opened = aged.snapshot().state.version
    listed = Listing.of

    def then_replaced(*arguments: Any) -> Listing:
        listing = listed(*arguments)
        with again(local_place) as rival:
            replace_all(rival)
        return listing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Listing, "of", then_replaced)
        clean(aged, grace_us=HOUR_US // 2)

    assert is_readable(again(local_place), opened)


def test_a_branch_that_comes_up_while_files_are_listed_gives_up_nothing(
    aged: GraphStore, local_place: Place
) -> None:
    listed = Listing.of

    def then_forked(*arguments: Any) -> Listing:
        listing = listed(*arguments)
        with again(local_place) as rival:
            rival.branches.create("late", "main")
            for name in ("l1", "l2", "l3"):
                upsert_person(rival, name, branch="late")
        return listing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Listing, "of", then_forked)
        clean(aged, grace_us=HOUR_US // 2)

    late = again(local_place).snapshot("late").state
    assert [version for version in range(1, late.version) if not late.keeps(version)] == []


@pytest.mark.parametrize("deleted", ["before the cleanup", "while files are listed"])
def test_what_a_branch_had_that_was_deleted_within_the_grace_period_stays_for_its_readers(
    aged: GraphStore, local_place: Place, deleted: str
) -> None:
    aged.branches.create("dev", "main")
    upsert_person(aged, "d1", branch="dev")
    replace_all(aged, branch="dev")
    age_everything(local_place)
    listed = Listing.of

    def then_deleted(*arguments: Any) -> Listing:
        listing = listed(*arguments)
        with again(local_place) as rival:
            rival.branches.delete("dev")
        return listing

    with again(local_place) as reader, pytest.MonkeyPatch.context() as patch:
        opened = reader.snapshot("dev")
        if deleted == "before the cleanup":
            aged.branches.delete("dev")
        else:
            patch.setattr(Listing, "of", then_deleted)
        clean(aged, grace_us=HOUR_US // 2)
        patch.undo()

        assert reader.table(opened, PERSON).to_table()["id"].to_pylist() == ["new"]
        age_everything(local_place)
        clean(aged, grace_us=HOUR_US // 2)
        chain = f"{MANIFEST}/tree/{opened.state.line.incarnation}"
        assert len(versions(aged.location, chain)) == 1, "but for the note that it is gone"
    assert set(stored_files(aged.location, PERSON)) == needed(again(local_place), PERSON, ("main", None))
