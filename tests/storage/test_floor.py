"""The retention floor: a writer that stalled past a cleanup never publishes files that are gone.

Retention raises the floor first and deletes afterwards. Here the deleting is done by hand, as ruthlessly
as the contract allows: every file that no version from the floor on refers to.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest

from omnigraph.base.errors import HistoryReclaimed, InvalidRequest
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.manifest.refs import REGISTRY_KEPT
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DeleteIds, Upsert
from omnigraph.storage.transaction import NewTable
from tests.support.graphs import (
    KNOWS,
    PERSON,
    PERSON_SCHEMA,
    chain_of,
    knows,
    make_graph,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server
from tests.support.stores import STAGING, Hits, Once, Scripted, again, check_error, location

pytestmark = pytest.mark.s3_when_full


def referenced(store: GraphStore, table: str, version: int) -> set[str]:
    """Return the files that one version of a table needs; "/" at the end stands for all below."""
    handle = store.opener.table(table, version)
    found = {f"_versions/d{version}.manifest", f"_versions/{manifest_file(1)}"}
    for fragment in handle.get_fragments():
        found |= {f"data/{file.path}" for file in fragment.metadata.files}
        if fragment.metadata.deletion_file is not None:
            found.add(fragment.metadata.deletion_file.path(fragment.fragment_id))
    segments = (segment for index in handle.describe_indices() for segment in index.segments)
    return found | {f"_indices/{segment.uuid}/" for segment in segments}


def reclaim(place: Place, branch: str = "main") -> None:
    """Delete every table file that no version from the floor on needs, as a cleanup without grace would."""
    store = again(place)
    head = store.snapshot(branch).state
    keep: set[str] = set()
    for version in range(max(1, head.floor), head.version + 1):
        for table, pin in store.snapshot(branch, at=version).state.pins.items():
            keep |= {f"tables/{table}/{file}" for file in referenced(store, table, pin.version)}
    objects = location(place).objects
    for key, _ in list(objects.list("tables")):
        if key not in keep and not any(key.startswith(prefix) for prefix in keep if prefix.endswith("/")):
            objects.delete(key)


def check_intact(place: Place) -> None:
    """Check that every row of every table of the head can be read, by a process that has cached nothing."""
    store = again(place)
    snapshot = store.snapshot()
    for table, pin in snapshot.state.pins.items():
        assert store.table(snapshot, table).to_table().num_rows == pin.rows


# -- the floor itself


def test_the_floor_rises_and_never_falls(store: GraphStore, rival: GraphStore) -> None:
    upsert_person(store, "c")

    assert store.raise_floor("main", 2) == 2
    assert rival.raise_floor("main", 1) == 2
    assert rival.raise_floor("main", 3) == 3
    assert store.snapshot().state.floor == 3


def test_raising_the_floor_is_no_commit_and_changes_nothing_that_is_read(store: GraphStore) -> None:
    before = store.snapshot()

    store.raise_floor("main", 2)

    after = store.snapshot()
    assert after.state.version == before.state.version + 1
    assert (after.state.commit, after.state.pins) == (before.state.commit, before.state.pins)
    assert after.state.same_content_as(before.commit_id)


def test_a_floor_past_the_head_is_refused(store: GraphStore) -> None:
    with pytest.raises(InvalidRequest, match="version 2"):
        store.raise_floor("main", 3)


def test_a_version_below_the_floor_is_reclaimed_history_by_number_and_by_id(store: GraphStore) -> None:
    old = store.snapshot(at=1).commit_id
    store.raise_floor("main", 2)

    for at in (1, old):
        with pytest.raises(HistoryReclaimed) as caught:
            store.snapshot(at=at)
        check_error(caught.value, "history_reclaimed", "2")


def test_an_id_that_was_reclaimed_is_told_from_one_that_never_was(store: GraphStore, place: Place) -> None:
    """Also by a process that starts after the cleanup, with the version's file gone (L-10)."""
    old = store.snapshot(at=1).commit_id
    upsert_person(store, "c")
    store.raise_floor("main", 2)
    location(place).objects.delete(f"{MANIFEST}/_versions/{manifest_file(1)}")

    with pytest.raises(HistoryReclaimed):
        again(place).snapshot(at=old)


def test_a_branch_forked_from_an_old_version_does_not_inherit_the_floor(store: GraphStore) -> None:
    upsert_person(store, "c")
    store.raise_floor("main", 2)

    store.branches.create("dev", "main")

    assert store.snapshot("dev").state.floor == 0
    assert upsert_person(store, "d", branch="dev").attempts == 1


# -- a writer parked between staging and publishing


def test_a_writer_overtaken_by_the_floor_stages_again_and_publishes_files_that_exist(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    """X-08: its staged files are really deleted before it resumes."""
    hits = Hits()

    def cleanup() -> None:
        write(rival, {KNOWS: Upsert(knows({"e": ("a", "b")}))})
        rival.raise_floor("main", 3)
        reclaim(place)
        hits.counts.clear()

    mine = Scripted({PERSON: Upsert(people(["c"]))})
    with armed({"publish.before": Once(cleanup), **hits.at(*STAGING)}):
        receipt = store.publish("main", mine)

    assert receipt.commit is not None
    assert mine.bases == [2, 4]
    assert hits.counts["table_data.before"] > 0, "staged again"
    assert set(persons(again(place))) == {"a", "b", "c"}
    check_intact(place)


def test_a_delete_overtaken_by_the_floor_stages_again_too(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    def cleanup() -> None:
        write(rival, {KNOWS: Upsert(knows({"e": ("a", "b")}))})
        rival.raise_floor("main", 3)
        reclaim(place)

    with armed({"publish.before": Once(cleanup)}):
        write(store, {PERSON: DeleteIds(people(["a"])["id"].combine_chunks())})

    assert set(persons(again(place))) == {"b"}
    check_intact(place)


def test_a_plan_that_creates_a_table_survives_the_floor(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    def cleanup() -> None:
        upsert_person(rival, "d")
        rival.raise_floor("main", 3)

    mine = Scripted(
        {"t-new": Upsert(people(["n"]))},
        {"kind": CommitKind.LOAD, "create": {"t-new": NewTable("New", "node", PERSON_SCHEMA)}},
    )
    with armed({"publish.before": Once(cleanup)}):
        store.publish("main", mine)

    assert store.table(store.snapshot(), "t-new").to_table()["id"].to_pylist() == ["n"]
    check_intact(place)


def test_a_writer_that_had_already_lost_once_is_overtaken_by_the_version_it_staged_on(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    """Publishing again on a newer head does not make the staged files any younger."""
    passes = iter(range(100))

    def each_time() -> None:
        attempt = next(passes)
        if attempt == 0:  # staged on version 2; lose to a write elsewhere, so that it is published again
            write(rival, {KNOWS: Upsert(knows({"e": ("a", "b")}))})
        elif attempt == 2:  # now on version 3, with the same files; the floor passes version 2
            write(rival, {KNOWS: Upsert(knows({"f": ("a", "b")}))})
            rival.raise_floor("main", 3)
            reclaim(place)

    with armed({"publish.before": each_time}):
        upsert_person(store, "c")

    assert set(persons(again(place))) == {"a", "b", "c"}
    check_intact(place)


def test_a_cleanup_right_at_the_head_does_not_cost_a_parked_writer_its_files(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    """X-08 with nothing else going on: retention keeps only the head, which is the writer's own base."""

    def cleanup() -> None:
        rival.raise_floor("main", 2)
        reclaim(place)

    with armed({"publish.before": Once(cleanup)}):
        upsert_person(store, "c")

    assert set(persons(again(place))) == {"a", "b", "c"}
    check_intact(place)


# -- a publish that stalled on its way to the store


@pytest.fixture
def stalled(s3_server: S3Server, proxy: S3Proxy, s3_place: Place) -> Iterator[GraphStore]:
    """A graph opened through the proxy, so that its publish can be held; others go straight to the store."""
    make_graph(s3_place.address, **s3_place.kwargs).close()
    slow = s3_server.storage_options(proxy.endpoint)
    policy = RetryPolicy(confirm_after_s=0)
    with GraphStore.open(s3_place.address, storage_options=slow, retry=policy) as store:
        yield store


@pytest.mark.s3
def test_a_publish_that_stalled_and_landed_is_confirmed_and_not_repeated(
    s3_place: Place, stalled: GraphStore
) -> None:
    receipt = upsert_person(stalled, "slow")

    assert receipt.attempts == 1
    assert chain_of(again(s3_place))[1:] == [receipt.commit_id]


@pytest.mark.s3
def test_a_tag_that_is_made_below_the_head_of_the_registry_is_not_believed(
    s3_place: Place, proxy: S3Proxy, stalled: GraphStore
) -> None:
    """The version of the registry that it had chosen was taken by others, and deleted by a cleanup."""
    rival = again(s3_place)
    state = stalled.snapshot().state
    proxy.pause(lambda method, key: method == "PUT" and "/__refs/_versions/" in key)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(stalled.tags.create, "late", state)
        proxy.wait_parked()
        for number in range(REGISTRY_KEPT + 1):  # a cleanup leaves so many versions
            rival.tags.create(f"r{number:02}", state)
        for version in range(1, 4):
            rival.location.objects.delete(f"__refs/_versions/{manifest_file(version)}")
        proxy.resume()
        future.result(60)

    others = [f"r{number:02}" for number in range(REGISTRY_KEPT + 1)]
    assert [tag.name for tag in again(s3_place).tags.list()] == ["late", *others]


def test_a_handle_is_not_held_by_a_version_that_a_stalled_commit_put_back(local_place: Place) -> None:
    """Its own version is there and the next is not: on local disk that says "unchanged", but not for long."""
    policy = RetryPolicy(confirm_after_s=0)
    make_graph(local_place.address).close()
    with GraphStore.open(local_place.address, retry=policy) as store:
        upsert_person(store, "a")
        version = store.snapshot().state.version
        file = Path(local_place.address, MANIFEST, "_versions", manifest_file(version))
        put_back = file.read_bytes()
        with GraphStore.open(local_place.address, retry=policy) as rival:
            for name in ("b", "c", "d"):
                upsert_person(rival, name)
            rival.cleanup(Retention(0, grace_us=0), dry_run=False)
        assert not file.exists()
        file.write_bytes(put_back)

        assert set(persons(store)) == {"a", "b", "c", "d"}


def test_a_kept_version_is_read_though_a_stalled_commit_put_another_in_its_place(
    local_place: Place, tmp_path: Path
) -> None:
    """The tag names what was committed first, not what came late to the place that a cleanup had emptied."""
    policy = RetryPolicy(confirm_after_s=0)
    make_graph(local_place.address).close()
    copytree(local_place.address, tmp_path / "stalled")
    with GraphStore.open(str(tmp_path / "stalled")) as stalled:
        upsert_person(stalled, "stalled")
        version = stalled.snapshot().state.version
        name = manifest_file(version)
    late = (tmp_path / "stalled" / MANIFEST / "_versions" / name).read_bytes()
    with GraphStore.open(local_place.address, retry=policy) as store:
        upsert_person(store, "first")
        store.tags.create("v1", store.snapshot().state)
        upsert_person(store, "second")
        store.cleanup(Retention(0, grace_us=0), dry_run=False)
    file = Path(local_place.address, MANIFEST, "_versions", name)
    assert not file.exists()
    file.write_bytes(late)

    with GraphStore.open(local_place.address) as fresh:
        assert set(persons(fresh, at=version)) == {"first"}
        fresh.cleanup(Retention(0, grace_us=0), dry_run=False)
        assert set(persons(fresh, at=version)) == {"first"}
