"""Threads of one process, on one store or on several: the same promises as between processes (X-04, X-05)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

import omnigraph as og
from omnigraph.base.errors import GraphError, StaleVersion
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from tests.support.graphs import chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.workers import Increment, each_thread_once, once

THREADS = 8


def together(stores: list[GraphStore], act: Callable[[GraphStore, int], object]) -> list[object]:
    """Run one write in each of 8 threads; all stage from the same base, then all publish at once.

    Thread n uses store n, counted round; returns what each call returned, or its error.
    """
    barrier = threading.Barrier(THREADS)

    def work(number: int) -> object:
        try:
            return act(stores[number % len(stores)], number)
        except GraphError as error:
            return error

    with (
        armed({"publish.before": each_thread_once(lambda: barrier.wait(60))}),
        ThreadPoolExecutor(THREADS) as pool,
    ):
        return list(pool.map(work, range(THREADS)))


@pytest.mark.parametrize("stores", [1, 2, 8])
def test_inserts_parked_between_staging_and_publish_all_land(place: Place, stores: int) -> None:
    make_graph(place.address, **place.kwargs).close()
    with ExitStack() as stack:
        opened = [stack.enter_context(GraphStore.open(place.address, **place.kwargs)) for _ in range(stores)]

        results = together(opened, lambda store, number: upsert_person(store, f"t{number}").commit_id)

        assert set(results) < set(chain_of(opened[0]))
        assert sorted(persons(opened[0])) == [f"t{number}" for number in range(THREADS)]
        assert len(chain_of(opened[0])) == THREADS + 1


@pytest.mark.parametrize("stores", [1, 2, 8])
def test_of_strict_updates_from_one_base_one_commits_and_the_others_are_told(
    place: Place, stores: int
) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        upsert_person(store, "ada", age=0)
    with ExitStack() as stack:
        opened = [stack.enter_context(GraphStore.open(place.address, **place.kwargs)) for _ in range(stores)]

        results = together(opened, lambda store, _: store.publish("main", Increment("ada")).commit_id)

        losers = [result for result in results if isinstance(result, StaleVersion)]
        assert len(losers) == THREADS - 1
        assert persons(opened[0]) == {"ada": 1}
        assert len(chain_of(opened[0])) == 3


def test_threads_that_keep_writing_lose_no_row_and_no_receipt(place: Place) -> None:
    commits = 5
    with make_graph(place.address, **place.kwargs) as store, ThreadPoolExecutor(THREADS) as pool:

        def work(thread: int) -> list[str | None]:
            return [upsert_person(store, f"{thread}-{number}").commit_id for number in range(commits)]

        ids = [commit for commits in pool.map(work, range(THREADS)) for commit in commits]

        assert sorted(map(str, ids)) == sorted(chain_of(store)[1:])
        assert len(persons(store)) == THREADS * commits


def test_overlapping_operations_of_one_process_do_not_fail_for_each_others_bookkeeping(
    local_place: Place,
) -> None:
    """One operation begins and ends inside another; each has its receipt, and says that it was not alone."""
    with make_graph(local_place.address) as store, GraphStore.open(local_place.address) as other:

        def write_within() -> None:
            with ThreadPoolExecutor(1) as pool:  # a thread of its own is an operation of its own
                pool.submit(upsert_person, other, "inner").result()

        with armed({"table_data.before": once(write_within)}):
            receipt = upsert_person(store, "outer")

        assert receipt.cost.shared
        assert sorted(persons(store)) == ["inner", "outer"]


def test_threads_that_look_up_rows_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Lance's reader of a file refuses a second thread."""
    schema = "node P { k: String @key  n: I64? }\nedge K: P -> P"
    with og.init(tmp_path / "g.og", schema, durability="os") as graph:
        graph.load([{"type": "P", "data": {"k": f"k{i}", "n": i}} for i in range(6_000)], mode="append")

        def work(number: int) -> int:
            rnd = Random(number)
            link = "query w($a: String, $b: String) { insert K { from: $a, to: $b } }"
            names = "query q($a: String) { match { $p: P { k: $a } } return { $p.n } }"
            seen = 0
            for _ in range(40):
                a, b = (f"k{rnd.randrange(6_000)}" for _ in range(2))
                if number % 2:
                    graph.mutate(link, a=a, b=b)
                else:
                    seen += graph.query(names, a=a).scalar() == int(a[1:])
            return seen

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(4))) == [40, 0, 40, 0]
        assert graph.query("query q() { match { $a k $b } return { count($b) as n } }").scalar() == 80
