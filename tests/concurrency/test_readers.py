"""A reader in a loop beside a writer sees whole commits only, and time never runs backwards (S-02, S-06)."""

from __future__ import annotations

import pytest

from omnigraph.storage.store import GraphStore
from tests.support import workers
from tests.support.graphs import make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.processes import run_processes

READS = 300


@pytest.mark.slow
def test_reader_never_sees_a_partial_commit_and_never_an_older_one_than_before(place: Place) -> None:
    commits = 40 if not place.options else 25
    make_graph(place.address, **place.kwargs).close()
    workers.count_in_both(place.address, place.options, 1)  # both tables agree from the start
    roles = ["writer", "reader", "reader"]
    jobs = [(role, place.address, place.options, commits, READS) for role in roles]

    writer, *readers = run_processes(workers.read_or_write, jobs)

    assert writer.ok, writer.error_text
    for reader in readers:
        assert reader.ok, reader.error_text
        seen = reader.value or []
        assert len(seen) >= READS
        assert all(person == edge for person, edge in seen)
        assert seen == sorted(seen)
        assert len(set(seen)) > 5, "the reader ran beside the writer, not after it"


def test_commit_is_seen_by_every_store_as_soon_as_it_is_acknowledged(place: Place) -> None:
    """Also by stores that are warm and have just read the state before it."""
    with (
        make_graph(place.address, **place.kwargs) as writer,
        GraphStore.open(place.address, **place.kwargs) as reader,
    ):
        for number in range(5):
            upsert_person(writer, "ada", age=number)
            assert persons(reader) == {"ada": number}
