"""Inserts that wait at the same time share a commit; each has its own receipt, and its own error.

One writer is held at its publish; the others line up behind it, in an order that the test decides; then all
go on. What lined up goes out together, where it can.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, OutcomeUnknown
from omnigraph.engine.write import Receipt
from omnigraph.storage.durability import FailpointHit, armed
from tests.concurrency.lines import PATIENCE_S, Act, Held, behind, error_of, line_up, wait_until, waiting
from tests.support.contents import read
from tests.support.graphs import chain_of
from tests.support.people import SCHEMA, ages, head, q
from tests.support.places import Place

TAKE = "query take($name: String, $email: String?) { insert Person { name: $name, email: $email } }"
NOTE = "query note($value: String) { insert Thing { value: $value } }"


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    """An empty graph whose texts have been seen: only then is it known that they insert and no more."""
    with og.init(local_place.address, SCHEMA, durability="os") as made:
        made.mutate(TAKE, name="first", email="taken")
        made.mutate(NOTE, value="first")
        yield made


def take(graph: Graph, name: str, email: str | None = None, **options: Any) -> Act:
    """Return an insert of a person."""
    return lambda: graph.mutate(TAKE, name=name, email=email, **options)


# -- sharing -----------------------------------------------------------------------------------------


def test_writers_that_wait_together_share_one_commit(graph: Graph) -> None:
    before = len(chain_of(graph.store))
    with behind(graph, [take(graph, f"p{n}") for n in range(7)], take(graph, "leader")) as (first, others):
        leader, rest = first.result(), [future.result() for future in others]

    assert len(chain_of(graph.store)) == before + 2
    (shared,) = {receipt.commit_id for receipt in rest}
    assert shared == head(graph)
    assert rest[0].parents == (leader.commit_id,)
    assert set(ages(graph)) == {"first", "leader", *(f"p{n}" for n in range(7))}


def test_each_receipt_counts_its_own_rows(graph: Graph) -> None:
    both = q('insert Person { name: "x" } insert Person { name: "y" } insert Thing { value: "z" }')
    graph.mutate(both)
    acts = [
        take(graph, "new"),
        take(graph, "first"),
        lambda: graph.mutate(both),
        lambda: graph.mutate(NOTE, value="n"),
    ]
    with behind(graph, acts, take(graph, "leader")) as (_, others):
        receipts = [future.result() for future in others]

    assert len({receipt.commit_id for receipt in receipts}) == 1
    assert [(r.affected_nodes, r.affected_edges) for r in receipts] == [(1, 0), (1, 0), (3, 0), (1, 0)]
    counts = [[(c.name, c.inserted, c.updated) for c in r.types] for r in receipts]
    assert counts == [
        [("Person", 1, 0)],
        [("Person", 0, 1)],
        [("Person", 0, 2), ("Thing", 1, 0)],
        [("Thing", 1, 0)],
    ]
    commit = receipts[0].commit
    assert commit is not None
    assert {t.name: (t.inserted, t.updated) for t in commit.tables} == {"Person": (1, 3), "Thing": (2, 0)}


def test_a_commit_has_one_actor_and_one_message(graph: Graph) -> None:
    acts = [take(graph, f"p{n}", actor="ada" if n % 2 else "bob", message="m") for n in range(6)]
    with behind(graph, acts, take(graph, "leader", actor="ada", message="m")) as (_, others):
        receipts = [future.result() for future in others]

    assert [receipt.actor for receipt in receipts] == ["bob", "ada"] * 3
    by_actor = {receipt.actor: receipt.commit_id for receipt in receipts}
    assert all(by_actor[receipt.actor] == receipt.commit_id for receipt in receipts if receipt.actor == "ada")
    assert len(set(by_actor.values())) == 2


def test_branches_have_lines_of_their_own(graph: Graph) -> None:
    graph.store.branches.create("review", "main")
    with behind(graph, [take(graph, "a"), take(graph, "b")], take(graph, "leader")) as (_, others):
        elsewhere = graph.mutate(TAKE, name="c", email=None, branch="review")
        receipts = [future.result() for future in others]

    assert elsewhere.branch == "review"
    assert set(ages(graph, branch="review")) == {"first", "c"}
    assert len({receipt.commit_id for receipt in receipts}) == 1


def test_edges_may_go_out_with_their_nodes(graph: Graph) -> None:
    edge = "query know($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
    graph.mutate(edge, a="first", b="first")
    acts = [take(graph, "a"), lambda: graph.mutate(edge, a="a", b="first")]
    with behind(graph, acts, take(graph, "leader")) as (_, others):
        receipts = [future.result() for future in others]

    assert receipts[0].commit_id == receipts[1].commit_id
    assert receipts[1].affected_edges == 1


# -- faults of one member ----------------------------------------------------------------------------


def test_a_member_that_breaks_a_constraint_fails_alone(graph: Graph) -> None:
    acts = [take(graph, "a"), take(graph, "bad", "taken"), take(graph, "b")]
    with behind(graph, acts, take(graph, "leader")) as (_, others):
        receipts = [others[0].result(), others[2].result()]
        error = error_of(others[1])

    assert isinstance(error, ConstraintViolation)
    assert set(ages(graph)) == {"first", "leader", "a", "b"}
    assert all(receipt.commit is not None for receipt in receipts)


def test_of_two_members_that_exclude_each_other_the_first_to_come_wins(graph: Graph) -> None:
    acts = [take(graph, "a", "x"), take(graph, "b", "x")]
    with behind(graph, acts, take(graph, "leader")) as (_, others):
        first = others[0].result()
        error = error_of(others[1])

    assert first.commit is not None
    assert isinstance(error, ConstraintViolation)
    assert set(ages(graph)) == {"first", "leader", "a"}


def test_members_that_write_one_entity_go_out_in_the_order_of_arrival(graph: Graph) -> None:
    acts = [take(graph, "same", f"{n}") for n in range(4)]
    with behind(graph, acts, take(graph, "leader")) as (_, others):
        commits = [future.result().commit_id for future in others]

    assert [commit for commit in chain_of(graph.store) if commit in commits] == commits
    assert [row["email"] for row in read(graph, "Person") if row["name"] == "same"] == ["3"]


def test_a_member_with_parameters_that_do_not_fit_fails_alone(graph: Graph) -> None:
    acts = [take(graph, "a"), lambda: graph.mutate(TAKE, name=7, email=None), take(graph, "b")]
    with behind(graph, acts, take(graph, "leader")) as (_, others):
        error = error_of(others[1])
        receipts = [others[0].result(), others[2].result()]

    assert "param 'name'" in str(error)
    assert all(receipt.affected_nodes == 1 for receipt in receipts)


# -- writes that go alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", [{}, {"idempotency_key": "k"}], ids=["no key", "key"])
def test_a_write_with_a_condition_goes_alone(graph: Graph, key: dict[str, str]) -> None:
    options = {"if_commit": head(graph), **key}
    held = Held("publish.before")
    with held.armed, ThreadPoolExecutor(1) as pool:
        leader = pool.submit(take(graph, "leader"))
        held.reached()
        alone = take(graph, "alone", **options)()  # does not line up
        held.let_go()
        leader.result()

    assert leader.result().parents == (alone.commit_id,)


def test_an_update_goes_alone(graph: Graph) -> None:
    text = q('update Person set { age: 5 } where name = "first"')
    graph.mutate(text)
    held = Held("publish.before")
    with held.armed, ThreadPoolExecutor(1) as pool:
        leader = pool.submit(lambda: graph.mutate(NOTE, value="leader"))
        held.reached()
        alone = graph.mutate(text)
        held.let_go()

    assert leader.result().parents == (alone.commit_id,)


# -- leaders that come to grief ----------------------------------------------------------------------


def test_when_a_leader_fails_the_others_go_on(graph: Graph) -> None:
    hits: list[str] = []

    def fail_first() -> None:
        if not hits:
            hits.append("hit")
            wait_until(lambda: waiting(graph) == 2)
            raise FailpointHit("publish.before")

    with armed({"publish.before": fail_first}), ThreadPoolExecutor(3) as pool:
        leader = pool.submit(take(graph, "leader"))
        wait_until(lambda: bool(hits))
        others = [line_up(graph, pool, take(graph, name)) for name in "ab"]

        assert isinstance(error_of(leader), FailpointHit)
        assert [future.result(PATIENCE_S).affected_nodes for future in others] == [1, 1]
    assert set(ages(graph)) == {"first", "a", "b"}


def test_when_a_leader_fails_for_all_each_is_told_and_the_next_write_goes_on(graph: Graph) -> None:
    passed: list[str] = []

    def fail_second() -> None:
        passed.append("passed")
        if len(passed) == 2:
            raise FailpointHit("table_commit.before")

    acts = [take(graph, name) for name in "abc"]
    with (
        armed({"table_commit.before": fail_second}),
        behind(graph, acts, take(graph, "leader")) as (first, others),
    ):
        assert first.result(PATIENCE_S).commit is not None
        errors = [error_of(future) for future in others]

    assert all(isinstance(error, FailpointHit) for error in errors)
    assert set(ages(graph)) == {"first", "leader"}
    assert graph.mutate(TAKE, name="next", email=None).commit is not None
    assert waiting(graph) == 0


def test_a_shared_commit_whose_outcome_is_unknown_is_not_written_a_second_time(graph: Graph) -> None:
    """It may have landed, as it did here; publishing each write alone would make every thing twice."""
    passed: list[str] = []

    def lose_the_answer() -> None:
        passed.append("passed")
        if len(passed) == 2:
            raise OutcomeUnknown("0" * 26, branch="main")

    acts: list[Act] = [lambda n=n: graph.mutate(NOTE, value=f"{n}") for n in range(3)]  # type: ignore[misc]
    with (
        armed({"publish.after": lose_the_answer}),
        behind(graph, acts, lambda: graph.mutate(NOTE, value="leader")) as (_, others),
    ):
        errors = [error_of(future) for future in others]

    assert all(isinstance(error, OutcomeUnknown) for error in errors)
    assert sorted(row["value"] for row in read(graph, "Thing")) == ["0", "1", "2", "first", "leader"]


# -- interruptions -----------------------------------------------------------------------------------


def interrupt_when(true: Callable[[], bool]) -> threading.Thread:
    """Send this process the signal of Ctrl-C while something is so; the main thread gets it."""

    def wait_and_send() -> None:
        wait_until(true)
        while true():  # a signal that comes just before the thread goes to sleep does not wake it up
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    return thread


@pytest.mark.usefixtures("interruptible")
def test_whoever_is_interrupted_in_line_leaves_it_to_the_others(graph: Graph) -> None:
    held = Held("publish.before")
    with held.armed, ThreadPoolExecutor(2) as pool:
        leader = pool.submit(take(graph, "leader"))
        held.reached()
        sender = interrupt_when(lambda: waiting(graph) == 1)
        with pytest.raises(KeyboardInterrupt):
            take(graph, "interrupted")()
        sender.join()
        later = line_up(graph, pool, take(graph, "later"))
        held.let_go()

        assert leader.result(PATIENCE_S).commit is not None
        assert later.result(PATIENCE_S).commit is not None
    assert set(ages(graph)) == {"first", "leader", "later"}
    assert graph.mutate(TAKE, name="next", email=None).commit is not None


def test_when_a_leader_is_interrupted_the_others_are_told_that_they_cannot_tell(graph: Graph) -> None:
    """The interruption is the leader's alone; whether the shared commit landed, the others can look up."""
    here = threading.main_thread().ident
    passed: list[str] = []

    def stop_the_leader() -> None:
        if threading.get_ident() == here:
            passed.append("passed")
            raise KeyboardInterrupt

    held = Held("publish.before")
    with ThreadPoolExecutor(3) as pool, held.armed:
        first = pool.submit(take(graph, "leader"))
        held.reached()
        futures: list[Future[Receipt]] = []
        starter = threading.Thread(target=lambda: _then(graph, pool, futures, held))
        with armed({"publish.after": stop_the_leader}):
            starter.start()
            with pytest.raises(KeyboardInterrupt):
                take(graph, "mine")()  # lines up first, so it leads the next commit
            starter.join()
            errors = [error_of(future) for future in futures]

    assert passed == ["passed"]
    assert first.result().commit is not None
    assert [type(error) for error in errors] == [OutcomeUnknown] * 2
    assert {
        str(error.fields["graph_commit_id"]) for error in errors if isinstance(error, OutcomeUnknown)
    } == {head(graph)}
    assert set(ages(graph)) == {"first", "leader", "mine", "a", "b"}
    assert graph.mutate(TAKE, name="next", email=None).commit is not None


def _then(graph: Graph, pool: ThreadPoolExecutor, futures: list[Future[Receipt]], held: Held) -> None:
    """Line two writers up behind the main thread, then let the held one go."""
    wait_until(lambda: waiting(graph) == 1)
    futures.extend(line_up(graph, pool, take(graph, name)) for name in "ab")
    held.let_go()
