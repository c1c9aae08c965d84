"""Writes that are each allowed and together are not: one of them is refused (X-11 to X-17).

The first writer has judged its change and staged its rows; then another one commits; then the first goes on.
No schedule lets both through, and none refuses a write that harms nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError, StaleVersion
from omnigraph.engine.write import Receipt
from omnigraph.storage.durability import armed
from tests.support.contents import read
from tests.support.graphs import chain_of
from tests.support.people import (
    INSERT,
    SCHEMA,
    ages,
    company,
    knows,
    pairs,
    person,
    q,
    thing,
    works,
)
from tests.support.places import Place
from tests.support.workers import each_thread_once, once
from tests.support.writers import outcome

Act = Callable[[Graph], Receipt]
THREADS = 16


@pytest.fixture(params=["local", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.full])])
def place(request: pytest.FixtureRequest) -> Place:
    """Local disk, and in the full run the S3 API too: the swap itself is raced on both elsewhere."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def graph(place: Place) -> Iterator[Graph]:
    """Alice, Bob and Carl, who know nobody; two companies."""
    with og.init(place.address, SCHEMA, **place.kwargs) as made:
        made.load(
            [person("alice"), person("bob"), person("carl"), company("acme"), company("beta")], mode="append"
        )
        yield made


@contextmanager
def coming_first(place: Place, act: Act) -> Iterator[list[str]]:
    """Let another handle commit when the first writer is about to publish; yield what came of that."""
    said: list[str] = []

    def come() -> None:
        with og.connect(place.address, **place.kwargs) as other:
            said.append(outcome(other, act))

    with armed({"publish.before": once(come)}):
        yield said
    assert said, "nobody came in between"


def schedule(graph: Graph, place: Place, first: Act, then: Act) -> tuple[str, str]:
    """Return what came of the write that was overtaken, and of the one that overtook it."""
    with coming_first(place, then) as said:
        overtaken = outcome(graph, first)
    return overtaken, said[0]


def no_orphan(graph: Graph) -> bool:
    """Say whether every edge finds its nodes."""
    names, companies = set(ages(graph)), {row["name"] for row in read(graph, "Company")}
    ends = all(source in names and target in names for source, target in pairs(graph))
    return ends and all(s in names and t in companies for s, t in pairs(graph, "WorksAt"))


# -- an edge against the removal of its endpoint -----------------------------------------------------


def edge_by_statement(source: str, target: str) -> Act:
    """Insert an edge."""
    return lambda g: g.mutate(q(f'insert Knows {{ from: "{source}", to: "{target}" }}'))


def edge_by_load(source: str, target: str) -> Act:
    """Append an edge."""
    return lambda g: g.load([knows(source, target)], mode="append")


def without_bob(graph: Graph) -> Receipt:
    """Replace all people by others, Bob not among them."""
    return graph.load([person("alice"), person("carl")], mode="overwrite")


def delete_bob(graph: Graph) -> Receipt:
    """Delete Bob, and the edges that name him."""
    return graph.mutate(q('delete Person where name = "bob"'))


edges = pytest.mark.parametrize("edge", [edge_by_statement, edge_by_load], ids=["statement", "load"])
ends = pytest.mark.parametrize(("source", "target"), [("bob", "alice"), ("alice", "bob")])


@edges
@ends
def test_an_edge_is_refused_whose_endpoint_was_replaced_meanwhile(
    graph: Graph, place: Place, edge: Callable[[str, str], Act], source: str, target: str
) -> None:
    assert schedule(graph, place, edge(source, target), without_bob) == ("orphan_edge", "ok")
    assert set(ages(graph)) == {"alice", "carl"}
    assert pairs(graph) == []


@edges
@ends
def test_a_replacement_is_refused_whose_victim_got_an_edge_meanwhile(
    graph: Graph, place: Place, edge: Callable[[str, str], Act], source: str, target: str
) -> None:
    assert schedule(graph, place, without_bob, edge(source, target)) == ("orphan_edge", "ok")
    assert set(ages(graph)) == {"alice", "bob", "carl"}
    assert pairs(graph) == [(source, target)]


@edges
def test_an_edge_that_names_nobody_who_goes_is_in_nobodys_way(
    graph: Graph, place: Place, edge: Callable[[str, str], Act]
) -> None:
    assert schedule(graph, place, edge("alice", "carl"), without_bob) == ("ok", "ok")
    assert pairs(graph) == [("alice", "carl")]


@edges
def test_a_replacement_is_not_disturbed_by_an_edge_that_it_does_not_concern(
    graph: Graph, place: Place, edge: Callable[[str, str], Act]
) -> None:
    assert schedule(graph, place, without_bob, edge("alice", "carl")) == ("ok", "ok")
    assert set(ages(graph)) == {"alice", "carl"}
    assert pairs(graph) == [("alice", "carl")]


@edges
def test_a_deletion_whose_victim_got_an_edge_meanwhile_is_told_and_cascades_on_retry(
    graph: Graph, place: Place, edge: Callable[[str, str], Act]
) -> None:
    with coming_first(place, edge("alice", "bob")), pytest.raises(StaleVersion) as caught:
        delete_bob(graph)

    assert caught.value.fields["member"] == "Knows"
    assert caught.value.retryable
    again = delete_bob(graph)
    assert (again.affected_nodes, again.affected_edges) == (1, 1)
    assert no_orphan(graph)


@edges
@ends
def test_an_edge_is_refused_whose_endpoint_was_deleted_meanwhile(
    graph: Graph, place: Place, edge: Callable[[str, str], Act], source: str, target: str
) -> None:
    assert schedule(graph, place, edge(source, target), delete_bob) == ("orphan_edge", "ok")
    assert pairs(graph) == []


def test_a_violation_found_on_the_second_look_is_reported_as_a_violation(graph: Graph, place: Place) -> None:
    """Not as a conflict: reading again and repeating would not help (W-31)."""
    with coming_first(place, without_bob), pytest.raises(GraphError) as caught:
        edge_by_statement("bob", "alice")(graph)

    assert caught.value.code == "constraint_violation"
    assert not caught.value.retryable


# -- one place, two who want it ----------------------------------------------------------------------


def hire(at: str) -> Act:
    """Give Alice one more employer."""
    return lambda g: g.mutate(q(f'insert WorksAt {{ from: "alice", to: "{at}" }}'))


def hire_by_load(at: str) -> Act:
    """The same by a load."""
    return lambda g: g.load([works("alice", at)], mode="merge")


@pytest.mark.parametrize("one", [hire, hire_by_load])
@pytest.mark.parametrize("other", [hire, hire_by_load])
def test_of_two_edges_for_one_place_one_is_refused(
    graph: Graph, place: Place, one: Callable[[str], Act], other: Callable[[str], Act]
) -> None:
    hire("acme")(graph)

    assert schedule(graph, place, one("beta"), other("acme")) == ("cardinality", "ok")
    assert pairs(graph, "WorksAt") == [("alice", "acme")] * 2


def take(name: str) -> Act:
    """Take an address under a name."""
    return lambda g: g.mutate(q(f'insert Person {{ name: "{name}", email: "x" }}'))


def take_by_load(name: str) -> Act:
    """The same by a load."""
    return lambda g: g.load([person(name, email="x")], mode="append")


def take_by_update(name: str) -> Act:
    """The same by an update."""
    return lambda g: g.mutate(q(f'update Person set {{ email: "x" }} where name = "{name}"'))


@pytest.mark.parametrize("one", [take, take_by_load])
@pytest.mark.parametrize("other", [take, take_by_load])
def test_of_two_who_want_one_unique_value_one_is_refused(
    graph: Graph, place: Place, one: Callable[[str], Act], other: Callable[[str], Act]
) -> None:
    assert schedule(graph, place, one("dan"), other("eve")) == ("unique", "ok")
    assert [row["name"] for row in read(graph, "Person") if row["email"] == "x"] == ["eve"]


def test_of_two_updates_to_one_unique_value_one_is_told_of_the_other(graph: Graph, place: Place) -> None:
    assert schedule(graph, place, take_by_update("bob"), take_by_update("alice")) == (
        "read_set_conflict",
        "ok",
    )
    assert outcome(graph, take_by_update("bob")) == "unique"


def test_a_value_that_was_freed_meanwhile_can_be_taken(graph: Graph, place: Place) -> None:
    """The first look found it taken, so there is no second: that is the caller's to decide."""
    take("dan")(graph)

    assert outcome(graph, take("eve")) == "unique"
    graph.mutate(q('delete Person where name = "dan"'))
    assert outcome(graph, take("eve")) == "ok"


# -- many at once ------------------------------------------------------------------------------------


def all_at_once(place: Place, act: Callable[[Graph, int], Receipt]) -> list[str]:
    """Run a write in each of 16 threads on 4 handles; all stage on one base, then all publish."""
    barrier = threading.Barrier(THREADS)
    with ExitStack() as stack:
        handles = [stack.enter_context(og.connect(place.address, **place.kwargs)) for _ in range(4)]
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        stack.enter_context(armed({"publish.before": each_thread_once(lambda: barrier.wait(60))}))
        return list(pool.map(lambda n: outcome(handles[n % 4], lambda g: act(g, n)), range(THREADS)))


def test_of_sixteen_strict_inserts_of_one_id_one_commits(local_place: Place) -> None:
    with og.init(local_place.address, SCHEMA, durability="os") as graph:
        said = all_at_once(local_place, lambda g, n: g.load([person("x", age=n)], mode="append"))

        assert sorted(said) == ["key_conflict"] * (THREADS - 1) + ["ok"]
        assert ages(graph) == {"x": said.index("ok")}
        assert len(chain_of(graph.store)) == 2


def test_of_sixteen_strict_inserts_of_different_ids_all_commit(local_place: Place) -> None:
    with og.init(local_place.address, SCHEMA, durability="os") as graph:
        said = all_at_once(
            local_place, lambda g, n: g.load([person(f"x{n}"), thing("t", id=f"{n}")], mode="append")
        )

        assert said == ["ok"] * THREADS
        assert len(ages(graph)) == THREADS
        assert len(chain_of(graph.store)) == THREADS + 1


def test_of_sixteen_upserts_of_one_key_all_commit_and_one_row_is_left(local_place: Place) -> None:
    with og.init(local_place.address, SCHEMA, durability="os") as graph:
        said = all_at_once(local_place, lambda g, n: g.load([person("x", age=n)], mode="merge"))

        assert said == ["ok"] * THREADS
        last = graph.store.snapshot().state.commit
        assert list(ages(graph)) == ["x"]
        assert ages(graph, at=last.id) == ages(graph)


def test_sixteen_takers_of_one_value_leave_one_holder(local_place: Place) -> None:
    with og.init(local_place.address, SCHEMA, durability="os") as graph:
        said = all_at_once(local_place, lambda g, n: take_by_load(f"x{n}")(g))

        assert sorted(said) == ["ok"] + ["unique"] * (THREADS - 1)
        assert list(ages(graph)) == [f"x{said.index('ok')}"]


def test_inserts_of_nobody_in_particular_never_meet(local_place: Place) -> None:
    with og.init(local_place.address, SCHEMA, durability="os") as graph:
        graph.mutate(INSERT, name="first")
        said = all_at_once(local_place, lambda g, n: g.load([thing(str(n))], mode="merge"))

        assert said == ["ok"] * THREADS
        assert len(read(graph, "Thing")) == THREADS
