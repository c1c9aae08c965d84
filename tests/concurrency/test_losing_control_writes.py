"""Branch and retention steps that keep losing to busy writers: they say so, and leave nothing half done."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from omnigraph.base.errors import PublishContention
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from tests.support.graphs import make_graph, persons, upsert_person
from tests.support.places import Place


@pytest.fixture
def mine(local_place: Place) -> Iterator[GraphStore]:
    """A graph with a branch `review`."""
    with make_graph(local_place.address, durability="os") as store:
        store.branches.create("review", "main")
        yield store


@pytest.fixture
def busy(mine: GraphStore, local_place: Place) -> Iterator[GraphStore]:
    """Another store, always faster."""
    with GraphStore.open(local_place.address, durability="os") as store:
        yield store


def test_delete_that_always_loses_to_writers_reports_contention_and_the_branch_lives(
    mine: GraphStore, busy: GraphStore
) -> None:
    """Each lost swap is known to have changed nothing, so the outcome is not unknown."""
    numbers = count()

    def write() -> None:
        upsert_person(busy, f"w{next(numbers)}", branch="review")

    with armed({"branch_tombstone.before": write}), pytest.raises(PublishContention):
        mine.branches.delete("review")

    assert len(persons(mine, "review")) == next(numbers)
    upsert_person(mine, "next", branch="review")


def test_create_that_always_loses_to_other_creates_reports_contention(
    mine: GraphStore, busy: GraphStore
) -> None:
    numbers = count()

    def create() -> None:
        with armed({"branch_register.before": lambda: None}):
            busy.branches.create(f"b{next(numbers):03d}", "main")

    with armed({"branch_register.before": create}), pytest.raises(PublishContention):
        mine.branches.create("fresh", "main")

    assert "fresh" not in [ref.name for ref in busy.branches.list()]
    mine.branches.create("fresh", "main")


def test_floor_that_always_loses_to_writers_reports_contention(mine: GraphStore, busy: GraphStore) -> None:
    numbers = count()

    def write() -> None:
        upsert_person(busy, f"w{next(numbers)}")

    with armed({"floor.before": write}), pytest.raises(PublishContention):
        mine.raise_floor("main", 1)

    assert mine.snapshot().state.floor == 0
