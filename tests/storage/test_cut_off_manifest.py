"""A power cut without sync can leave the newest manifest cut off. It is reported with a remedy that works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.base.errors import GraphError, IntegrityError, Kind
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.chain import chain_path
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.store import GraphStore
from tests.support.graphs import chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.stores import nothing_written

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "a few bytes": lambda content: content[:7],
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.fixture
def graph(local_place: Place) -> GraphStore:
    """A graph with four versions on main, and a branch with three."""
    made = make_graph(local_place.address)
    for number in range(3):
        upsert_person(made, f"p{number}")
    made.branches.create("dev", "main")
    for number in range(2):
        upsert_person(made, f"d{number}", branch="dev")
    return made


def damage(root: str, folder: str, how: str) -> Path:
    """Spoil the newest version below a folder; return its file."""
    newest = min(Path(root, folder, "_versions").glob("*.manifest"))
    newest.write_bytes(DAMAGES[how](newest.read_bytes()))
    return newest


def use(root: str, branch: str) -> GraphStore:
    """Open a graph and a branch of it, as a process that starts after the power cut."""
    store = GraphStore.open(root)
    store.snapshot(branch)
    return store


def follow(remedy: str, root: str) -> None:
    """Do what the remedy says, to the letter."""
    found = re.search(r"Delete (\S+\.manifest)", remedy)
    assert found, remedy
    Path(root, found[1]).unlink()


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_cut_off_newest_manifest_is_reported_and_nothing_is_written(
    local_place: Place, graph: GraphStore, how: str, branch: str
) -> None:
    folder = chain_path("main" if branch == "main" else graph.branches.list()[0].incarnation)
    spoilt = damage(local_place.address, folder, how)

    with nothing_written(local_place), pytest.raises(IntegrityError) as caught:
        use(local_place.address, branch)

    error = caught.value
    assert (error.code, error.kind) == ("integrity", Kind.CORRUPT)
    assert local_place.address in str(error)
    assert f"{folder}/_versions/{spoilt.name}" in (error.remedy or "")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_following_the_remedy_brings_the_version_before_back_and_writes_go_on(
    local_place: Place, graph: GraphStore, how: str, branch: str
) -> None:
    before = chain_of(graph, branch)[:-1]
    folder = chain_path("main" if branch == "main" else graph.branches.list()[0].incarnation)
    damage(local_place.address, folder, how)
    with pytest.raises(GraphError) as caught:
        use(local_place.address, branch)

    follow(caught.value.remedy or "", local_place.address)

    with use(local_place.address, branch) as mended:
        assert chain_of(mended, branch) == before
        receipt = upsert_person(mended, "after", branch=branch)
        assert receipt.commit is not None
        assert receipt.commit.parent == before[-1]
        assert "after" in persons(mended, branch)
        assert chain_of(mended, branch) == [*before, receipt.commit_id]


@pytest.mark.parametrize("how", DAMAGES)
def test_the_version_before_can_be_read_even_before_anything_is_mended(
    local_place: Place, graph: GraphStore, how: str
) -> None:
    expected = graph.snapshot(at=3)
    damage(local_place.address, "__manifest", how)

    with GraphStore(Location.parse(local_place.address)) as unopened:
        state = unopened.branches.chain("main").at(3)

        assert state == expected.state
        assert unopened.opener.table("t-person", state.pins["t-person"].version).count_rows() == 2


def test_a_cut_off_older_manifest_spoils_only_that_version(local_place: Place, graph: GraphStore) -> None:
    Path(local_place.address, "__manifest", "_versions", manifest_file(2)).write_bytes(b"")

    with GraphStore.open(local_place.address) as store:
        assert set(persons(store)) == {"p0", "p1", "p2"}
        assert set(persons(store, at=3)) == {"p0", "p1"}
        with pytest.raises(GraphError):
            store.snapshot(at=2)
        assert upsert_person(store, "more").attempts == 1


@pytest.mark.parametrize("how", DAMAGES)
def test_a_cut_off_registry_of_branches_is_reported_with_what_to_do_and_main_still_works(
    local_place: Place, graph: GraphStore, how: str
) -> None:
    spoilt = damage(local_place.address, "__refs", how)
    with GraphStore.open(local_place.address) as store:
        assert set(persons(store)) == {"p0", "p1", "p2"}
        upsert_person(store, "more")

        with pytest.raises(IntegrityError) as caught:
            store.branches.list()

        assert f"__refs/_versions/{spoilt.name}" in (caught.value.remedy or "")


def test_a_graph_with_a_single_version_that_is_cut_off_says_that_nothing_is_left(local_place: Place) -> None:
    """There is no version before: deleting the file would leave no graph at all."""
    make_graph(local_place.address).close()
    damage(local_place.address, "__manifest", "empty")

    with pytest.raises(IntegrityError) as caught:
        GraphStore.open(local_place.address)

    assert "version 0 is intact" not in str(caught.value)
