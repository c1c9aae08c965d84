"""Every request of every kind of write fails once, or storage goes away from there on (X-38).

A call that meets a fault succeeds, or fails with a typed error; either way the graph is as before or as
after, never between, and the next call finds nothing to repair. Lance repeats a request that was answered
with 503 or cut off; a refusal (403) is final, so it shows what happens when an operation cannot be finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from omnigraph.base.errors import GraphError
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Upsert
from omnigraph.storage.transaction import NewTable, PinnedSnapshot, PlannedWrite, PublishPlan
from tests.support.faults import Fault, Match
from tests.support.graphs import PERSON, PERSON_SCHEMA, make_graph, people, persons, upsert_person
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]
SINGLE = [Fault.ERROR_503, Fault.CUT_BEFORE, Fault.CUT_AFTER]
FOREVER = 10_000


@dataclass
class Graph:
    """A graph as seen through the failing proxy, and as anybody else sees it."""

    store: GraphStore
    place: Place  # past the proxy
    number: int = 0

    def look(self) -> dict[str, Any]:
        """Return what there is to read, from a process that has cached nothing.

        Main is read row by row; other branches, which share its versions, by what they pin.
        """
        with GraphStore.open(self.place.address, **self.place.kwargs) as fresh:
            head = fresh.snapshot()
            found: dict[str, Any] = {
                table: sorted(fresh.table(head, table).to_table()["id"].to_pylist())
                for table in head.state.pins
            }
            for ref in fresh.branches.list():
                found[ref.name] = _versions(fresh.snapshot(ref.name))
            return {**found, "pins": _versions(head), "version": head.state.version}


def _versions(snapshot: PinnedSnapshot) -> dict[str, int]:
    return {table: pin.version for table, pin in snapshot.state.pins.items()}


Operation = Callable[[Graph], object]


def write_one(graph: Graph) -> object:
    """Upsert a new row."""
    return upsert_person(graph.store, f"row {graph.number}")


def add_table(graph: Graph) -> object:
    """Accept a schema with one more table, and fill it."""
    table = f"t-new-{graph.number}"
    new = NewTable(f"New{graph.number}", "node", PERSON_SCHEMA)
    effects = {table: Upsert(people(["first"]))}
    schema = f"schema {graph.number}".encode()
    plan = PublishPlan(CommitKind.SCHEMA, effects=effects, create={table: new}, schema=schema)
    return graph.store.publish("main", PlannedWrite(plan))


def create_branch(graph: Graph) -> object:
    """Fork main."""
    return graph.store.branches.create(f"branch {graph.number}", "main")


def delete_branch(graph: Graph) -> None:
    """Delete a branch that was made past the proxy, and is known here."""
    graph.store.branches.delete(f"doomed {graph.number}")


def raise_floor(graph: Graph) -> object:
    """Move the floor to the head."""
    return graph.store.raise_floor("main", graph.store.snapshot().state.version)


OPERATIONS = [
    pytest.param(write_one, id="write"),
    pytest.param(create_branch, id="create-branch"),
    pytest.param(delete_branch, id="delete-branch"),
    pytest.param(add_table, id="add-table", marks=pytest.mark.full),
    pytest.param(raise_floor, id="raise-floor", marks=pytest.mark.full),
]
LOST = [
    pytest.param(
        *operation.values,
        fault,
        id=f"{operation.id}-{fault.name}",
        # For a branch step the lost answer is the interesting fault; the others are left to the full run.
        marks=operation.marks
        if operation.values[0] is write_one or fault is Fault.CUT_AFTER
        else pytest.mark.full,
    )
    for operation in OPERATIONS
    for fault in SINGLE
]
REFUSED = [
    pytest.param(write_one, id="write"),
    pytest.param(create_branch, id="create-branch", marks=pytest.mark.full),
    pytest.param(delete_branch, id="delete-branch", marks=pytest.mark.full),
    pytest.param(add_table, id="add-table", marks=pytest.mark.full),
    pytest.param(raise_floor, id="raise-floor", marks=pytest.mark.full),
]


@pytest.fixture
def graph(s3_place: Place, s3_server: S3Server, proxy: S3Proxy) -> Iterator[Graph]:
    """A small graph with a warm handle."""
    make_graph(s3_place.address, **s3_place.kwargs).close()
    options = s3_server.storage_options(proxy.endpoint)
    with GraphStore.open(s3_place.address, storage_options=options) as store:
        upsert_person(store, "ada")
        store.branches.list()
        yield Graph(store, s3_place)


def prepare(graph: Graph, operation: Operation) -> dict[str, Any]:
    """Make ready for one more run of an operation; return the state before it."""
    graph.number += 1
    if operation is delete_branch:
        with GraphStore.open(graph.place.address, **graph.place.kwargs) as other:
            other.branches.create(f"doomed {graph.number}", "main")
        graph.store.snapshot(f"doomed {graph.number}")
    return graph.look()


def expected_after(graph: Graph, operation: Operation, before: dict[str, Any]) -> dict[str, Any]:
    """Return the state that the operation leads to."""
    after = dict(before)
    if operation not in (create_branch, delete_branch):
        after["version"] += 1  # exactly one commit, or one control write
    if operation is write_one:
        after[PERSON] = sorted([*before[PERSON], f"row {graph.number}"])
    elif operation is add_table:
        after[f"t-new-{graph.number}"] = ["first"]
    elif operation is create_branch:
        after[f"branch {graph.number}"] = before["pins"]
    elif operation is delete_branch:
        del after[f"doomed {graph.number}"]
    return after


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Compare two states by their content."""
    return {**found, "pins": None} == {**wanted, "pins": None}


def requests_of(graph: Graph, proxy: S3Proxy, operation: Operation) -> int:
    """Return how many requests the operation makes when nothing fails."""
    prepare(graph, operation)
    proxy.reset()
    operation(graph)
    return proxy.count()


def from_request(index: int) -> Match:
    """Match the request with this index, and all later ones."""
    passed = 0

    def match(method: str, key: str) -> bool:
        nonlocal passed
        passed += 1
        return passed > index

    return match


def meet_faults(graph: Graph, proxy: S3Proxy, operation: Operation, fault: Fault, times: int) -> list[str]:
    """Run the operation once for each of its requests, failing from that one on; return what was wrong."""
    problems: list[str] = []
    for index in range(requests_of(graph, proxy, operation)):
        before = prepare(graph, operation)
        after = expected_after(graph, operation, before)
        proxy.fail(from_request(index), fault, times)
        try:
            operation(graph)
            allowed = [after]
        except GraphError:
            allowed = [before, after]
        except Exception as error:  # noqa: BLE001 - an untyped error is what this looks for
            problems.append(f"request {index}: untyped {type(error).__name__}: {error}"[:200])
            allowed = [before, after]
        proxy.clear_faults()
        found = graph.look()
        if not any(same(found, wanted) for wanted in allowed):
            problems.append(f"request {index}: neither before nor after: {found}")
        problems += carry_on(graph, operation, index)
    return problems


def carry_on(graph: Graph, operation: Operation, index: int) -> list[str]:
    """Write at once through the same handle, and repeat a branch step; return what was in the way."""
    try:
        upsert_person(graph.store, "next")
        if operation in (create_branch, delete_branch):
            graph.store.branches.create(f"branch next {graph.number}", "main")
            graph.store.branches.delete(f"branch next {graph.number}")
    except Exception as error:  # noqa: BLE001 - whatever stands in the way is reported
        return [f"request {index}: the next call failed: {error!r}"[:200]]
    finally:
        tidy(graph)
    return []


def tidy(graph: Graph) -> None:
    """Remove the branches of this round, past the proxy."""
    with GraphStore.open(graph.place.address, **graph.place.kwargs) as other:
        for ref in other.branches.list():
            other.branches.delete(ref.name)


@pytest.mark.parametrize(("operation", "fault"), LOST)
def test_one_lost_request_ends_in_success_or_a_typed_error_and_never_between(
    graph: Graph, proxy: S3Proxy, operation: Operation, fault: Fault
) -> None:
    assert meet_faults(graph, proxy, operation, fault, times=1) == []


@pytest.mark.parametrize("operation", REFUSED)
def test_storage_that_refuses_from_some_request_on_ends_in_a_typed_error_and_never_between(
    graph: Graph, proxy: S3Proxy, operation: Operation
) -> None:
    assert meet_faults(graph, proxy, operation, Fault.DENY_403, FOREVER) == []


def test_a_row_written_through_any_single_fault_is_committed_once(graph: Graph, proxy: S3Proxy) -> None:
    requests = requests_of(graph, proxy, write_one)
    for fault in SINGLE:
        for index in range(requests):
            graph.number += 1
            version = graph.store.snapshot().state.version
            proxy.fail(from_request(index), fault, 1)
            receipt = write_one(graph)
            proxy.clear_faults()
            head = graph.store.snapshot()
            assert head.state.version == version + 1
            assert head.commit_id == getattr(receipt, "commit_id", None)
            assert f"row {graph.number}" in persons(graph.store)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_swap_that_landed_unseen_is_found_by_reading_back(
    graph: Graph, proxy: S3Proxy, operation: Operation
) -> None:
    """The answer is lost, and so is every attempt of Lance to find out: the outcome is ours to resolve."""
    problems = []
    for index in range(swaps_of(graph, proxy, operation)):
        before = prepare(graph, operation)
        lost = LostSwap(index)
        proxy.fail(lost.swap, Fault.CUT_AFTER, 1)
        proxy.fail(lost.verification, Fault.DENY_403, FOREVER)
        try:
            operation(graph)
        except Exception as error:  # noqa: BLE001 - any error is wrong here
            problems.append(f"swap {index}: {error!r}"[:200])
        assert lost.denied > 0, "Lance was to be left in doubt"
        proxy.clear_faults()
        if not same(graph.look(), expected_after(graph, operation, before)):
            problems.append(f"swap {index}: not done")
        tidy(graph)
    assert problems == []


class LostSwap:
    """Matches one swap of an operation, and then whatever Lance asks to learn how it went."""

    def __init__(self, index: int) -> None:
        self.left = index
        self.key = ""
        self.denied = 0

    def swap(self, method: str, key: str) -> bool:
        """Match the swap itself."""
        if not is_swap(method, key):
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        self.key = key
        return True

    def verification(self, method: str, key: str) -> bool:
        """Match the repeated swap and the look at what is there; reading it as the newest version is fine."""
        asked = key == self.key and method in ("PUT", "HEAD")
        self.denied += asked
        return asked


def is_swap(method: str, key: str) -> bool:
    """Say whether a request is the one that decides a race: the manifest of a new version."""
    return method == "PUT" and "/_versions/" in key and "/tables/" not in key


def swaps_of(graph: Graph, proxy: S3Proxy, operation: Operation) -> int:
    """Return how many swaps the operation makes when nothing fails."""
    requests_of(graph, proxy, operation)
    return sum(is_swap(request.method, request.key) for request in proxy.requests)


def test_init_whose_last_answer_was_lost_is_not_mistaken_for_somebody_elses(
    s3_place: Place, s3_server: S3Server, proxy: S3Proxy
) -> None:
    """The graph that is found there is its own."""
    lost = LostSwap(1)  # the registry of branches comes first, the manifest last
    proxy.fail(lost.swap, Fault.CUT_AFTER, 1)
    proxy.fail(lost.verification, Fault.DENY_403, FOREVER)

    make_graph(s3_place.address, storage_options=s3_server.storage_options(proxy.endpoint)).close()

    assert "/__manifest/" in lost.key
