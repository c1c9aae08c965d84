"""The cost counter: what an operation says it asked of storage is what a proxy saw it ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pytest

from omnigraph.base.errors import PreconditionFailed
from omnigraph.storage.cost import Cost, measured, process_totals, stage
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    AddColumn,
    Append,
    DeleteIds,
    DropColumn,
    Effect,
    Overwrite,
    Upsert,
)
from tests.support.graphs import (
    KNOWS,
    PERSON,
    build_history,
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
from tests.support.stores import Once, again

MANY = people(f"m{number}" for number in range(9_000))


@dataclass(frozen=True)
class Served:
    """A graph behind a proxy of its own; `store` is warm."""

    place: Place
    proxy: S3Proxy
    store: GraphStore

    def branch(self) -> str:
        """Fork a branch for one test to write on, and forget what that cost."""
        name = uuid4().hex
        self.store.branches.create(name, "main")
        self.store.snapshot(name)
        self.proxy.reset()
        return name


@pytest.fixture(scope="module")
def served(s3_server: S3Server) -> Iterator[Served]:
    """One graph for all tests of this file, with some history and a branch."""
    with S3Proxy(s3_server.endpoint) as proxy:
        place = Place(s3_server.new_address(), s3_server.storage_options(proxy.endpoint))
        with make_graph(place.address, **place.kwargs) as store:
            build_history(store, 4)
            store.branches.create("dev", "main")
            store.snapshot("dev")
            yield Served(place, proxy, store)


def counted(run: Callable[[], object]) -> Cost:
    with measured() as meter:
        run()
    return meter.cost


EFFECTS: dict[str, dict[str, Effect]] = {
    "append": {PERSON: Append(people(["x", "y"]))},
    "upsert": {PERSON: Upsert(people(["h0", "new"]))},
    "upsert of two tables": {PERSON: Upsert(people(["h0"])), KNOWS: Upsert(knows({"e": ("a", "b")}))},
    "large append with its key hashes": {PERSON: Append(MANY)},
    "delete by ids": {PERSON: DeleteIds(pa.array(["h0"]))},
    "overwrite": {PERSON: Overwrite(people(["z"]))},
    "filled column": {PERSON: AddColumn(pa.field("score", pa.float64()), pa.scalar(1.0))},
    "dropped column": {PERSON: DropColumn("age")},
    "nothing to do": {PERSON: DeleteIds(pa.array(["nobody"]))},
}


@pytest.mark.s3
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("name", EFFECTS)
def test_the_cost_on_a_receipt_is_what_the_proxy_saw(served: Served, name: str, warm: bool) -> None:
    branch = served.branch()
    store = served.store if warm else again(served.place)
    served.proxy.reset()

    cost = write(store, EFFECTS[name], branch).cost

    seen = served.proxy.requests
    assert cost.requests == len(seen)
    assert cost.bytes_written == sum(request.bytes_up for request in seen if request.method == "PUT")
    assert not cost.shared
    assert 1 <= cost.stages <= cost.requests


@pytest.mark.s3
def test_the_cost_of_a_write_that_lost_a_race_includes_its_lost_attempt(
    served: Served, s3_server: S3Server
) -> None:
    branch = served.branch()
    alone = upsert_person(served.store, "first", branch=branch).cost.requests
    rival = GraphStore.open(served.place.address, storage_options=s3_server.storage_options())
    served.proxy.reset()

    with armed({"publish.before": Once(lambda: upsert_person(rival, "rival", branch=branch))}):
        receipt = upsert_person(served.store, "mine", branch=branch)

    assert receipt.attempts == 2
    # The rival ran in the same thread, so its requests are counted too, though they passed the proxy by.
    assert receipt.cost.requests > served.proxy.count() > alone


OPERATIONS: dict[str, Callable[[GraphStore, str], object]] = {
    "snapshot": lambda store, branch: store.snapshot(),
    "snapshot of a branch": lambda store, branch: store.snapshot(branch),
    "snapshot of a version": lambda store, branch: store.snapshot(at=2),
    "snapshot of a commit": lambda store, branch: store.snapshot(at=store.snapshot(at=3).commit_id),
    "list branches": lambda store, branch: store.branches.list(),
    "create a branch": lambda store, branch: store.branches.create(f"{branch}/new", "main"),
    "fork a branch": lambda store, branch: store.branches.create(f"{branch}/fork", branch),
    "delete a branch": lambda store, branch: store.branches.delete(branch),
    "raise the floor": lambda store, branch: store.raise_floor(branch, 1),
    "read rows": lambda store, branch: persons(store, branch),
    "read the schema": lambda store, branch: store.schemas.get(store.snapshot().schema),
}


@pytest.mark.s3
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_cost_of_any_operation_is_what_the_proxy_saw(served: Served, name: str, warm: bool) -> None:
    branch = served.branch()
    store = served.store if warm else again(served.place)
    served.proxy.reset()

    cost = counted(lambda: OPERATIONS[name](store, branch))

    assert cost.requests == served.proxy.count()
    assert not cost.shared


@pytest.mark.s3
def test_the_cost_of_opening_and_of_making_a_graph_is_what_the_proxy_saw(
    counted_place: Place, proxy: S3Proxy
) -> None:
    made = counted(lambda: make_graph(counted_place.address, **counted_place.kwargs))
    assert made.requests == proxy.count()
    proxy.reset()

    opened = counted(lambda: GraphStore.open(counted_place.address, **counted_place.kwargs))

    assert opened.requests == proxy.count() == 2
    assert opened.bytes_read > 0


@pytest.mark.s3
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_warm_look_at_the_head_is_one_request(served: Served, branch: str) -> None:
    served.store.snapshot(branch)

    assert counted(lambda: served.store.snapshot(branch)).requests == 1


# -- how operations are told apart


def test_on_local_disk_requests_are_counted_as_well(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        assert upsert_person(store, "a").cost.requests > 3


def test_a_nested_operation_is_part_of_the_one_around_it(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        with measured() as outer:
            upsert_person(store, "a")
            upsert_person(store, "b")
            stage()
        with measured() as alone:
            upsert_person(store, "c")

    assert outer.cost.requests > alone.cost.requests
    assert outer.cost.stages > alone.cost.stages
    assert not outer.cost.shared


def test_operations_that_overlap_in_time_say_that_they_share_their_count(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        both, passed = threading.Barrier(2), threading.local()

        def meet() -> None:
            if not getattr(passed, "once", False):  # the loser of the race comes here again
                passed.once = True
                both.wait(60)

        with armed({"publish.before": meet}), ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(upsert_person, store, name) for name in ("a", "b")]
            costs = [future.result(60).cost for future in futures]

        assert [cost.shared for cost in costs] == [True, True]
        assert not upsert_person(store, "later").cost.shared


def test_an_operation_that_failed_stops_being_counted(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        with pytest.raises(PreconditionFailed):
            write(store, EFFECTS["append"], expected_head="0" * 26)

        assert not upsert_person(store, "a").cost.shared


def test_the_totals_of_the_process_only_grow_and_contain_every_operation(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        before = process_totals()
        costs = []
        for number in range(4):
            costs.append(upsert_person(store, f"p{number}").cost)
            now = process_totals()
            assert now.requests - before.requests == sum(cost.requests for cost in costs)
            assert now.bytes_written - before.bytes_written == sum(cost.bytes_written for cost in costs)
            assert now.bytes_read - before.bytes_read == sum(cost.bytes_read for cost in costs)


def test_costs_are_rendered_for_people() -> None:
    cost = Cost(requests=9, stages=5, bytes_read=120, bytes_written=3400, shared=True)

    assert (
        str(cost) == "9 requests in 5 stages, 120 B read, 3400 B written (shared with concurrent operations)"
    )
