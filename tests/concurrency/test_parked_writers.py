"""A writer between staging and publishing, a reader that holds on: nobody is in their way (X-06, X-40)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph.base.errors import GraphError
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Upsert
from tests.support import workers
from tests.support.graphs import (
    KNOWS,
    PERSON,
    build_history,
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
from tests.support.workers import once


def test_parked_writer_publishes_as_staged_after_another_process_came_wrote_elsewhere_and_left(
    place: Place, tmp_path: Path
) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        upsert_person(store, "ada")

        def visit(_: list[int]) -> None:
            workers.wait_until((tmp_path / "parked").exists, "the writer to park")
            with GraphStore.open(place.address, **place.kwargs) as visitor:
                assert list(persons(visitor)) == ["ada"], "what is staged is not visible"
                write(visitor, {KNOWS: Upsert(knows({"e": ("ada", "ada")}))})
            (tmp_path / "go").touch()

        job = (place.address, place.options, str(tmp_path), "bob")
        (outcome,) = run_processes(workers.commit_when_told, [job], meanwhile=visit)

        assert outcome.value == 2, outcome.error_text
        assert sorted(persons(store)) == ["ada", "bob"]
        assert store.snapshot().pin(KNOWS).rows == 1
        assert len(chain_of(store)) == 4


def test_reader_that_holds_a_snapshot_sees_the_same_rows_while_a_hundred_commits_land(
    local_place: Place,
) -> None:
    with (
        make_graph(local_place.address) as store,
        GraphStore.open(local_place.address, durability="os") as writer,
    ):
        build_history(store, 8)
        held = store.snapshot()
        before = store.table(held, PERSON).to_table()
        scan = store.table(held, PERSON).scanner(batch_size=1).to_reader()
        first = scan.read_next_batch()

        build_history(writer, 100)

        with GraphStore.open(local_place.address) as cold:  # a snapshot is a value: any process may use it
            assert cold.table(held, PERSON).to_table() == before
        assert store.table(held, PERSON).to_table() == before
        assert first.num_rows + sum(batch.num_rows for batch in scan) == before.num_rows
        assert store.snapshot().state.version == held.state.version + 100


def test_reader_that_holds_a_snapshot_is_not_disturbed_when_every_row_is_replaced(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        write(store, {PERSON: Upsert(people(["a", "b"], age=1))})
        held = store.snapshot()

        for age in range(2, 12):  # often enough that fragments are folded away
            write(store, {PERSON: Upsert(people(["a", "b"], age))})

        with GraphStore.open(place.address, **place.kwargs) as cold:
            assert cold.table(held, PERSON).to_table()["age"].to_pylist() == [1, 1]


# -- retention without grace -----------------------------------------------------------------------


def reclaim_people(store: GraphStore, listed: list[str]) -> None:
    """Delete the listed files of the Person table that its head does not need."""
    handle = store.table(store.snapshot(), PERSON)
    needed = {f"data/{file.path}" for part in handle.get_fragments() for file in part.metadata.files}
    needed.add(f"_versions/d{handle.version}.manifest")
    for key in listed:
        if not any(key.endswith(one) for one in needed):
            store.location.objects.delete(key)


def staged_files(store: GraphStore) -> list[str]:
    """List the data files and detached versions of the Person table."""
    found = [key for key, _ in store.location.objects.list(f"tables/{PERSON}")]
    return [key for key in found if "/data/" in key or "/_versions/d" in key]


@pytest.mark.parametrize("sweeps", [1, 2])
def test_writer_whose_staged_files_were_reclaimed_is_refused_or_stages_again(
    place: Place, sweeps: int
) -> None:
    """The second sweep finds the floor where it wants it; it must be noticed all the same (X-08)."""
    with make_graph(place.address, **place.kwargs) as store:
        upsert_person(store, "ada")
        with GraphStore.open(place.address, **place.kwargs) as cleaner:
            floor = cleaner.snapshot().state.version  # keep the newest commit only

            def sweep() -> None:
                listed = staged_files(cleaner)
                cleaner.raise_floor("main", floor)
                reclaim_people(cleaner, listed)

            for _ in range(sweeps - 1):
                sweep()
            with armed({"publish.before": once(sweep)}), suppress(GraphError):
                upsert_person(store, "bob")

    with GraphStore.open(place.address, **place.kwargs) as fresh:
        assert "ada" in persons(fresh)
        assert len(persons(fresh)) == len(chain_of_after(fresh, floor))


def chain_of_after(store: GraphStore, floor: int) -> list[str]:
    """Return the ids of the commits from the floor on."""
    versions = range(floor, store.snapshot().state.version + 1)
    return list(dict.fromkeys(store.snapshot(at=version).commit_id for version in versions))
