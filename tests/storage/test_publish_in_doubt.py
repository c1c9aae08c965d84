"""Publish: a reply that never came. A commit that may have landed is found again, or named in the error.

Lance itself repeats a request whose reply was lost, and then looks whether the file there is its own. So
only the loss of the reply, followed by refusals of both, leaves the outcome open.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.base.errors import (
    BranchNotFound,
    Kind,
    OutcomeUnknown,
    StorageError,
)
from omnigraph.base.ids import SystemClock
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import RECENT
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from tests.support.faults import Match
from tests.support.graphs import chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.proxy import Fault, S3Proxy
from tests.support.stores import again, check_error

pytestmark = pytest.mark.s3

FOR_EVER = 10_000
LOOKS = 3  # how often Lance looks for its own file before it says that the outcome is unknown


def version_of(path: str, *methods: str) -> Match:
    """Match requests for one version of a metadata dataset: with PUT, the one that publishes it."""
    return lambda method, key: method in methods and f"{path}/_versions/" in key and key.endswith(".manifest")


def leave_in_doubt(proxy: S3Proxy, path: str) -> None:
    """Let the next publish to a metadata dataset land, but fail the call that made it."""
    proxy.fail(version_of(path, "PUT"), Fault.CUT_AFTER)
    proxy.fail(version_of(path, "PUT"), Fault.DENY_403)
    proxy.fail(version_of(path, "HEAD"), Fault.DENY_403, LOOKS)


PUBLISHES = version_of("/__manifest", "PUT")


@pytest.fixture
def graph(counted_place: Place) -> GraphStore:
    """A graph behind the proxy, with one person and two commits; its handles are warm."""
    made = make_graph(counted_place.address, **counted_place.kwargs)
    upsert_person(made, "a")
    return made


def healthy(place: Place, proxy: S3Proxy) -> GraphStore:
    """Return the graph as another process finds it after the storm."""
    proxy.clear_faults()
    return again(place)


# -- a publish that landed


def test_a_publish_that_lost_its_reply_is_not_published_twice(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place
) -> None:
    proxy.fail(PUBLISHES, Fault.CUT_AFTER)

    receipt = upsert_person(graph, "b")

    assert proxy.pending_faults == 0
    assert chain_of(healthy(counted_place, proxy))[2:] == [receipt.commit_id]


def test_a_publish_that_landed_though_the_call_failed_is_recognised_by_its_id(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place
) -> None:
    leave_in_doubt(proxy, "/__manifest")

    receipt = upsert_person(graph, "b")

    assert proxy.pending_faults == 0
    other = healthy(counted_place, proxy)
    assert receipt.attempts == 1
    assert receipt.commit == other.snapshot().state.commit, "the receipt is the record that was published"
    assert chain_of(other)[2:] == [receipt.commit_id]
    assert set(persons(other)) == {"a", "b"}


class Interlude(SystemClock):
    """A clock whose first pause, the one between a lost publish and the look back, is used by others."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] | None = None

    def sleep(self, seconds: float) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


@pytest.mark.parametrize("followers", [1, RECENT + 2])
def test_a_publish_that_landed_is_recognised_even_after_others_followed(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place, followers: int
) -> None:
    clock = Interlude()
    mine = GraphStore.open(counted_place.address, clock=clock, **counted_place.kwargs)
    clock.meanwhile = lambda: [upsert_person(graph, f"later{n}") for n in range(followers)]
    leave_in_doubt(proxy, "/__manifest")

    receipt = upsert_person(mine, "b")

    chain = chain_of(healthy(counted_place, proxy))
    assert (chain[2], len(chain)) == (receipt.commit_id, 3 + followers)


def test_a_publish_whose_trace_a_cleanup_took_before_it_was_looked_for_is_not_made_twice(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place
) -> None:
    """So many others followed that no state names it any more, and the floor has passed its version."""
    clock = Interlude()
    mine = GraphStore.open(counted_place.address, clock=clock, **counted_place.kwargs)

    def meanwhile() -> None:
        for number in range(RECENT + 2):
            upsert_person(graph, "b", age=number)
        graph.cleanup(Retention(0, grace_us=0), dry_run=False)

    clock.meanwhile = meanwhile
    leave_in_doubt(proxy, "/__manifest")

    with pytest.raises(OutcomeUnknown):
        upsert_person(mine, "b", age=99)

    assert persons(healthy(counted_place, proxy))["b"] == RECENT + 1, "what came later stands"


@pytest.mark.parametrize("recreated", [False, True])
def test_a_publish_that_landed_is_recognised_though_its_branch_was_renamed_meanwhile(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place, recreated: bool
) -> None:
    ref = graph.branches.create("dev", "main")
    clock = Interlude()
    mine = GraphStore.open(counted_place.address, clock=clock, **counted_place.kwargs)
    mine.snapshot("dev")

    def rename() -> None:
        graph.branches.rename("dev", "kept")
        if recreated:
            graph.branches.create("dev", "main")

    clock.meanwhile = rename
    leave_in_doubt(proxy, f"/__manifest/tree/{ref.incarnation}")

    receipt = upsert_person(mine, "b", branch="dev")

    other = healthy(counted_place, proxy)
    assert other.snapshot("kept").commit_id == receipt.commit_id
    assert set(persons(other, "kept")) == {"a", "b"}


# -- a publish that did not land


def test_a_publish_that_was_refused_once_is_tried_again(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place
) -> None:
    proxy.fail(PUBLISHES, Fault.DENY_403)

    receipt = upsert_person(graph, "b")

    assert receipt.attempts == 2
    assert chain_of(healthy(counted_place, proxy))[2:] == [receipt.commit_id]


def test_a_publish_that_is_always_refused_ends_in_a_storage_error_and_no_effect(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place
) -> None:
    proxy.fail(PUBLISHES, Fault.DENY_403, FOR_EVER)

    with pytest.raises(StorageError) as caught:
        upsert_person(graph, "b")

    check_error(caught.value, "storage")
    assert "Nothing was published" in str(caught.value)
    assert set(persons(healthy(counted_place, proxy))) == {"a"}
    assert upsert_person(graph, "b").attempts == 1, "the next write needs no repair"


# -- an outcome that cannot be known


@pytest.mark.parametrize(
    ("fault", "landed"), [(Fault.CUT_AFTER, True), (Fault.DENY_403, False)], ids=["landed", "did not land"]
)
def test_an_outcome_that_cannot_be_read_back_is_reported_with_the_id_to_look_up(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place, fault: Fault, landed: bool
) -> None:
    arrived: list[str] = []

    def from_the_publish_on(method: str, key: str) -> bool:
        if PUBLISHES(method, key):
            arrived.append(key)
        return bool(arrived)

    proxy.fail(from_the_publish_on, fault)
    proxy.fail(from_the_publish_on, Fault.DENY_403, FOR_EVER)

    with pytest.raises(OutcomeUnknown) as caught:
        upsert_person(graph, "b")

    error = caught.value
    commit_id = error.fields["graph_commit_id"]
    check_error(error, "outcome_unknown", commit_id, "main")
    assert error.kind is Kind.UNAVAILABLE
    assert "look the commit id up" in str(error)
    other = healthy(counted_place, proxy)
    assert (commit_id in chain_of(other)) == landed
    assert ("b" in persons(other)) == landed
    if landed:
        assert other.snapshot(at=commit_id).commit_id == commit_id
    assert upsert_person(graph, "c").attempts == 1, "the store is usable as soon as storage answers again"


# -- branches


def test_a_branch_whose_registration_lost_its_reply_is_created_once(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place
) -> None:
    leave_in_doubt(proxy, "/__refs")

    ref = graph.branches.create("dev", "main")

    assert proxy.pending_faults == 0
    assert [one.incarnation for one in healthy(counted_place, proxy).branches.list()] == [ref.incarnation]


@pytest.mark.parametrize("step", ["mark", "tombstone", "unregister"])
def test_a_delete_that_lost_a_reply_on_its_way_is_acknowledged_and_done(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place, step: str
) -> None:
    ref = graph.branches.create("dev", "main")
    chain = f"/__manifest/tree/{ref.incarnation}"

    with armed(
        {f"branch_{step}.before": lambda: leave_in_doubt(proxy, chain if step == "tombstone" else "/__refs")}
    ):
        graph.branches.delete("dev")

    assert proxy.pending_faults == 0
    other = healthy(counted_place, proxy)
    assert other.branches.list() == ()
    with pytest.raises(BranchNotFound):
        other.snapshot("dev")


# -- a fault at any request


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.ERROR_503], ids=lambda f: f.name)
def test_one_fault_at_any_request_of_a_write_is_survived_and_makes_one_commit(
    graph: GraphStore, proxy: S3Proxy, counted_place: Place, fault: Fault
) -> None:
    proxy.reset()
    upsert_person(graph, "warm")
    requests = proxy.count()
    acknowledged = []
    for number in range(requests):
        seen = iter(range(10_000))
        proxy.fail(lambda method, key, at=number, seen=seen: next(seen) == at, fault)  # type: ignore[misc]
        acknowledged.append(upsert_person(graph, f"p{number}").commit_id)
        assert proxy.pending_faults == 0
        proxy.clear_faults()

    other = again(counted_place)
    assert chain_of(other)[3:] == acknowledged
    assert len(persons(other)) == 2 + requests
