"""Guards, manifests: what Lance does with metadata commits and branches, and the rules we keep for it.

A manifest is a dataset without rows whose schema metadata is a map. The compare-and-swap rests on this:
any two changes made from one version conflict, whichever keys they touch, and creation has one winner.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.commit import CommitConflictError

from omnigraph.base.errors import BranchNotFound
from omnigraph.storage.manifest.chain import MANIFEST, chain_path
from omnigraph.storage.store import GraphStore
from tests.storage.bare import change_config, change_map, new_map, read_map
from tests.support.graphs import make_graph, upsert_person
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.stores import again

Outcome = Any


def attempt(do: Callable[[], Outcome]) -> Outcome:
    """Return what a call returns, or the error it raises."""
    try:
        return do()
    except OSError as error:
        return error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a map with two keys is."""
    new_map(tmp_path / "map", {"graph_head": "c0", "other": "x"})
    return tmp_path / "map"


# -- the compare-and-swap


@pytest.mark.parametrize(
    "second",
    [
        {"graph_head": "c2"},
        {"graph_head": "c1"},
        {"another": "y"},
        {"other": None},
        {"absent": None},
        {},
    ],
    ids=["same key", "equal value", "other key", "removal", "removal of nothing", "no keys"],
)
def test_any_two_changes_from_one_version_conflict(path: Path, second: Mapping[str, str | None]) -> None:
    first, stale = lance.dataset(str(path)), lance.dataset(str(path))
    change_map(first, {"graph_head": "c1"})

    with pytest.raises(CommitConflictError):
        change_map(stale, second)

    assert read_map(path) == {"graph_head": "c1", "other": "x"}


@pytest.mark.s3
def test_any_two_changes_from_one_version_conflict_on_an_object_store(s3_place: Place) -> None:
    uri, options = f"{s3_place.address}/map", s3_place.kwargs
    new_map(uri, {"a": "1"}, **options)
    first, stale = lance.dataset(uri, **options), lance.dataset(uri, **options)
    change_map(first, {"a": "2"})

    with pytest.raises(CommitConflictError):
        change_map(stale, {"b": "3"})

    assert read_map(uri, **options) == {"a": "2"}


def test_of_racing_changes_one_wins_and_the_losers_are_told_by_type(path: Path) -> None:
    handles = [lance.dataset(str(path)) for _ in range(8)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: attempt(lambda: change_map(handles[i], {f"k{i}": "1"})), range(8)))

    errors = [one for one in found if isinstance(one, OSError)]
    assert len(errors) == 7
    assert all(isinstance(error, CommitConflictError) for error in errors)
    assert lance.dataset(str(path)).version == 2


def test_a_key_is_removed_with_none_and_the_others_stay(path: Path) -> None:
    change_map(lance.dataset(str(path)), {"other": None})

    assert read_map(path) == {"graph_head": "c0"}


def test_the_map_keeps_any_text(path: Path) -> None:
    odd = {"": "empty key", "nul\0": "\0", "ünï/🜁": "line\nbreak", "big": "x" * 200_000}

    change_map(lance.dataset(str(path)), odd)

    assert read_map(path) == {"graph_head": "c0", "other": "x", **odd}


def test_a_change_of_the_map_writes_no_rows_and_no_files_of_data(path: Path) -> None:
    handle = lance.dataset(str(path))
    for number in range(20):
        handle = change_map(handle, {"graph_head": f"c{number}"})

    assert (handle.count_rows(), len(handle.get_fragments())) == (0, 0)
    assert not (path / "data").exists()


# -- creation


def test_of_racing_creations_exactly_one_wins_and_carries_its_whole_map(tmp_path: Path) -> None:
    for number in range(6):
        where = tmp_path / str(number)
        with ThreadPoolExecutor(8) as pool:
            found = list(
                pool.map(lambda i, at=where: attempt(lambda: new_map(at, {"who": str(i)})), range(8))
            )

        winners = [str(i) for i, one in enumerate(found) if not isinstance(one, OSError)]
        assert len(winners) == 1
        assert read_map(where) == {"who": winners[0]}
        assert lance.dataset(str(where)).version == 1


def test_a_creation_over_a_dataset_is_refused_whatever_its_version(path: Path) -> None:
    change_map(lance.dataset(str(path)), {"graph_head": "c1"})

    with pytest.raises(OSError, match=r"already exists|not found"):
        new_map(path, {"who": "late"})

    assert read_map(path)["graph_head"] == "c1"


def test_what_is_missing_raises_value_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(str(path), version=9)


# -- cost


@pytest.mark.s3
def test_a_probe_is_one_listing_and_a_commit_three_requests_at_any_depth(
    counted_place: Place, proxy: S3Proxy
) -> None:
    uri, options = f"{counted_place.address}/map", counted_place.kwargs
    handle = new_map(uri, {"n": "0"}, **options)
    for number in range(25):
        proxy.reset()
        handle = change_map(handle, {"n": str(number)})
        assert proxy.by_method() == {"LIST": 1, "PUT": 2}
        proxy.reset()
        handle = handle.checkout_version((None, None))
        assert proxy.by_method() == {"LIST": 1}
    proxy.reset()
    lance.dataset(uri, **options)
    assert proxy.by_method() == {"LIST": 1, "GET": 1}


@pytest.mark.s3
@pytest.mark.parametrize("live", [1, 16])
def test_b14_our_list_of_branches_is_flat_and_lances_own_is_not(
    counted_place: Place, proxy: S3Proxy, live: int
) -> None:
    with make_graph(counted_place.address, **counted_place.kwargs) as store:
        for number in range(live):
            store.branches.create(f"b{number}", "main")
        with again(counted_place) as cold:
            proxy.reset()
            assert len(cold.branches.list()) == live
            assert proxy.count() == 2
    uri, options = f"{counted_place.address}-lance", counted_place.kwargs
    handle = new_map(uri, {}, **options)
    for number in range(live):
        handle.create_branch(f"b{number}")
    proxy.reset()

    lance.dataset(uri, **options).branches.list()

    assert proxy.count() >= 1 + 2 * live


# -- B1: nothing is synced, and a cut-off manifest cannot be opened


WRITES_EVERYTHING = """
import sys, lance, pyarrow as pa
from lance import LanceDataset, LanceOperation as Op
from lance.fragment import write_fragments
rows = pa.table({"id": ["a", "b"]})
base = LanceDataset.commit(sys.argv[1] + "/t", Op.Overwrite(rows.schema, []), max_retries=0)
new = write_fragments(rows, base, schema=base.schema, mode="append")
done = LanceDataset.commit(base, Op.Append(new), read_version=1, detached=True)
done.get_fragments()[0].delete_rows([0])
done.create_index_uncommitted("id", "BTREE", name="i", fragment_ids=[0])
change = Op.UpdateConfig(schema_metadata_updates=Op.UpdateMap({"k": "v"}))
LanceDataset.commit(base, change, read_version=1, max_retries=0)
"""


def test_b1_lance_syncs_nothing_that_it_writes(tmp_path: Path) -> None:
    """Traced from outside, since Lance writes from native code."""
    tracer = shutil.which("strace")
    if tracer is None:
        pytest.skip("strace is not installed, so the system calls of native code cannot be seen")
    log, child = tmp_path / "calls", [sys.executable, "-W", "ignore", "-c", WRITES_EVERYTHING, str(tmp_path)]
    calls = "trace=fsync,fdatasync,syncfs,sync_file_range,msync,linkat,renameat2,rename,link"
    done = subprocess.run([tracer, "-f", "-e", calls, "-o", log, *child], capture_output=True, text=True)
    if "PTRACE" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("this system does not let one process trace another")

    assert done.returncode == 0, done.stderr
    seen = log.read_text()
    assert ".manifest" in seen, "the trace shows the commits themselves"
    assert not re.findall(r"\b(?:fsync|fdatasync|syncfs|sync_file_range|msync)\(", seen)


def test_b1_a_newest_version_without_content_cannot_be_opened_but_the_one_before_can(path: Path) -> None:
    change_map(lance.dataset(str(path)), {"graph_head": "c1"})
    newest = min((path / "_versions").glob("*.manifest"))
    newest.write_bytes(b"")

    with pytest.raises((OSError, ValueError)):
        lance.dataset(str(path))

    assert lance.dataset(str(path), version=1).schema.metadata[b"graph_head"] == b"c0"


# -- B7, B8: Lance's own branches


def test_b7_a_branch_without_its_ref_can_neither_be_made_nor_deleted_yet_opens(path: Path) -> None:
    """As after a crash between the two steps of `create_branch`."""
    lance.dataset(str(path)).create_branch("feature")
    (path / "_refs" / "branches" / "feature.json").unlink()

    with pytest.raises(OSError, match=r"Clone operation|already exists|not found"):
        lance.dataset(str(path)).create_branch("feature")
    with pytest.raises(ValueError, match="does not exist"):
        lance.dataset(str(path)).branches.delete("feature")
    assert read_map(path / "tree" / "feature")["graph_head"] == "c0"


def test_b7_we_make_no_lance_branches_and_use_no_id_twice(local_place: Place) -> None:
    with make_graph(local_place.address) as store:
        incarnations = []
        for _ in range(3):
            incarnations.append(store.branches.create("dev", "main").incarnation)
            store.branches.delete("dev")
    manifest = Path(local_place.address, MANIFEST)

    assert lance.dataset(str(manifest)).branches.list() == {}
    assert not list(Path(local_place.address).rglob("_refs"))
    assert len(set(incarnations)) == 3
    assert {one.name for one in (manifest / "tree").iterdir()} == set(incarnations)


def test_b8_a_commit_through_a_handle_of_a_deleted_branch_succeeds(path: Path) -> None:
    handle: Any = lance.dataset(str(path)).create_branch("feature")
    lance.dataset(str(path)).branches.delete("feature")

    change_map(handle, {"graph_head": "zombie"})

    assert read_map(path / "tree" / "feature")["graph_head"] == "zombie"


def test_b8_a_write_through_a_handle_of_our_deleted_branch_is_refused(
    place: Place, store: GraphStore
) -> None:
    store.branches.create("dev", "main")
    with again(place) as other:
        other.snapshot("dev")
        store.branches.delete("dev")

        with pytest.raises(BranchNotFound):
            upsert_person(other, "x", branch="dev")


def test_b8_the_tombstone_is_what_refuses_so_it_must_outlive_every_writer(local_place: Place) -> None:
    """A reminder for whoever reclaims deleted chains: with the tombstone gone, a late commit would land."""
    with make_graph(local_place.address) as store:
        incarnation = store.branches.create("dev", "main").incarnation
        chain = Path(local_place.address, chain_path(incarnation))
        stale = lance.dataset(str(chain))
        store.branches.delete("dev")
        with pytest.raises(CommitConflictError):
            change_map(stale, {"graph_head": "zombie"})

        shutil.rmtree(chain)

        assert change_map(stale, {"graph_head": "zombie"}).version == 2


# -- B9, B10: holes in the swap


def test_b9_the_config_map_lets_a_stale_writer_through_after_a_cleanup(path: Path) -> None:
    """Why the map is not kept in the config: only equal keys conflict there."""
    stale = lance.dataset(str(path))
    newer = change_config(change_config(stale, {"graph_head": "c1"}), {"other": "y"})
    newer.cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)

    change_config(stale, {"graph_head": "lost update"})

    assert lance.dataset(str(path)).config()["graph_head"] == "lost update"


@pytest.mark.parametrize("key", ["graph_head", "unrelated"])
def test_b9_our_map_refuses_a_stale_writer_after_a_cleanup_too(path: Path, key: str) -> None:
    stale = lance.dataset(str(path))
    newer = change_map(change_map(change_map(stale, {"graph_head": "c1"}), {"other": "y"}), {"third": "z"})
    newer.cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)
    assert [version["version"] for version in newer.versions()] == [4]

    with pytest.raises(CommitConflictError):
        change_map(stale, {key: "lost update"})


def test_b9_our_map_refuses_a_stale_writer_when_versions_in_between_are_gone(path: Path) -> None:
    """Retention may delete any version below the floor, one file at a time."""
    stale = lance.dataset(str(path))
    handle = stale
    for number in range(5):
        handle = change_map(handle, {f"k{number}": "1"})
    for file in sorted((path / "_versions").glob("*.manifest"))[1:]:
        file.unlink()

    with pytest.raises(CommitConflictError):
        change_map(stale, {"graph_head": "lost update"})


def test_b10_replacing_the_config_map_erases_a_concurrent_write(path: Path) -> None:
    stale = lance.dataset(str(path))
    change_config(stale, {"graph_head": "c1"})

    change_config(stale, {"mine": "1"}, replace=True)

    assert lance.dataset(str(path)).config() == {"mine": "1"}


def test_b10_replacing_our_map_conflicts_but_would_erase_every_other_key(path: Path) -> None:
    """We never do; test_source_rules.py refuses `replace=True`."""
    first, stale = lance.dataset(str(path)), lance.dataset(str(path))
    replaced = change_map(first, {"mine": "1"}, replace=True)

    with pytest.raises(CommitConflictError):
        change_map(stale, {"other": "y"}, replace=True)
    assert read_map(path) == {"mine": "1"}
    assert replaced.version == 2


def test_every_version_of_our_chains_is_a_change_of_the_map_and_nothing_else(local_place: Place) -> None:
    """PT-07: content commits and control writes alike."""
    with make_graph(local_place.address) as store:
        for number in range(5):
            upsert_person(store, f"p{number}")
        store.raise_floor("main", 2)
        incarnation = store.branches.create("dev", "main").incarnation
        upsert_person(store, "d", branch="dev")
        store.branches.delete("dev")
        for where in (MANIFEST, chain_path(incarnation), "__refs"):
            handle: Any = lance.dataset(store.location.join(where))
            for version in range(2, handle.version + 1):
                operation = handle.read_transaction(version).operation
                assert type(operation).__name__ == "UpdateConfig"
                assert operation.schema_metadata_updates.replace is False
                assert operation.config_updates is None
            assert (handle.count_rows(), len(handle.get_fragments())) == (0, 0)
