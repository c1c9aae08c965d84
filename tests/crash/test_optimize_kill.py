"""SIGKILL at every durable step of an optimize: rows are as before, and the next one finishes the work.

The default run kills around new files, new versions and the swap; every other step is marked `full`.
"""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.durability import names
from tests.support.contents import check_whole, state
from tests.support.death import Options, die_at, die_on_copies, points_of
from tests.support.people import INSERT, SCHEMA, knows, person, q
from tests.support.places import Copies, Place

DECIDING = ("table_data.after", "table_index.after", "table_commit.after", "publish.before", "publish.after")
NEVER = ("claim", "schema_put", "refs_", "genesis", "branch_", "tag_", "floor", "reclaim_", "table_create")
POINTS = [name for name in names() if not name.startswith(NEVER)]
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("test_optimize_kill")]


def optimize(graph: Graph) -> object:
    """Rewrite files; rows that go while they are written are deleted from them before they are published."""
    gone = iter([True])

    def delete_one(now: object) -> None:
        if next(gone, False):
            graph.mutate(q('delete Person where name = "p50"'))

    return graph.optimize(policy=og.OptimizePolicy(deleted_share=0.5, concurrency=1), progress=delete_one)


def perform(address: str, options: Options, point: str, passage: int) -> None:
    """Die in the middle of it."""
    die_at(optimize, address, options, point, passage)


@pytest.fixture(scope="module")
def base(local_copies: Copies) -> Place:
    """A graph with several files of people, one of them settled, and rows that were deleted."""
    place = local_copies.empty()
    with og.init(place.address, SCHEMA, durability="os") as graph:
        graph.load([person(f"p{n}", age=n % 100) for n in range(4_200)], mode="append")
        graph.load([person("tail", age=50), knows("p2", "p3", id="e")], mode="append")
        graph.mutate(q("delete Person where age < 20"))
    return place


@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=[] if p in DECIDING else [pytest.mark.full]) for p in POINTS]
)
def test_death_at_a_step_of_optimize_changes_no_row_and_the_next_one_finishes(
    local_copies: Copies, base: Place, point: str
) -> None:
    whole = local_copies.copy(base)
    passages = points_of(optimize, whole.address, whole.options).count(point)
    assert passages
    with og.connect(whole.address) as graph:
        expected = state(graph).rows
    deaths = die_on_copies(
        perform,
        lambda: local_copies.copy(base),
        range(1, min(passages, 3) + 1),
        lambda place, passage: (place.address, place.options, point, passage),
    )
    for place, _ in deaths:
        with og.connect(place.address) as graph:
            check_whole(graph)
            graph.mutate(q('delete Person where name = "p50"'))
            assert state(graph).rows == expected
            assert not any(one.error or one.skipped for one in graph.optimize().types)
            assert state(graph).rows == expected
            assert graph.optimize().commit_id is None
            assert graph.mutate(INSERT, name="next").attempts == 1
            assert graph.verify().damaged == ()
