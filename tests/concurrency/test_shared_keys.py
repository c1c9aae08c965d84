"""Inserts under idempotency keys share commits, and each of them lands once, whatever comes between.

A claim names two ids: of the common commit, and of one of its own. Here a group is stopped, killed, refused
or overtaken at every durable step, and every write is repeated.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, ConstraintViolation, GraphError, OutcomeUnknown
from omnigraph.engine.write import Receipt, landed
from omnigraph.storage.claims import KeyReused
from omnigraph.storage.durability import FailpointHit, armed, names
from omnigraph.storage.manifest.chain import CommitInDoubt
from tests.concurrency.lines import (
    KEYS,
    PATIENCE_S,
    Act,
    Held,
    behind,
    die_together,
    error_of,
    group_at,
    line_up,
    note,
    wait_until,
    waiting,
)
from tests.support.contents import read
from tests.support.death import KILLED
from tests.support.graphs import chain_of
from tests.support.people import NOTE, SCHEMA, ages, q
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.workers import once

TAKE = "query take($name: String, $email: String?) { insert Person { name: $name, email: $email } }"
# What a group of inserts without a key property passes, in order.
POINTS = [
    f"{step}.{side}"
    for step in ("claim", "table_data", "table_commit", "staged_sync", "checksum", "publish", "head_sync")
    for side in ("before", "after")
]

DEATHS = ("claim.before", "claim.after", "table_commit.after", *POINTS[-4:-2], "head_sync.after")


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    """A graph whose texts have been seen: only then is it known that they insert and no more."""
    with og.init(local_place.address, SCHEMA) as made:
        made.mutate(NOTE, value="first")
        made.mutate(TAKE, name="first", email="taken")
        yield made


@pytest.fixture
def other(graph: Graph) -> Iterator[Graph]:
    """The same graph as another process has it."""
    with og.connect(graph.uri) as opened:
        opened.mutate(NOTE, value="other")
        yield opened


def things(graph: Graph) -> Counter[str]:
    """Return how often each thing is there, but for those that the tests need to begin."""
    values = (row["value"] for row in read(graph, "Thing"))
    return Counter(value for value in values if value not in ("first", "other", "leader"))


def told(receipt: Receipt) -> dict[str, Any]:
    """Return what a receipt tells of its write."""
    return {**receipt.to_json(), "cost": None, "replayed": None}


def check_once(graph: Graph, keys: tuple[str, ...] = KEYS) -> None:
    """Repeat every write: each is there once, says where, and the second repetition tells the same."""
    first = [note(graph, key) for key in keys]
    again = [note(graph, key) for key in keys]
    assert things(graph) == Counter(keys)
    assert [told(receipt) for receipt in first] == [told(receipt) for receipt in again]
    assert all(receipt.replayed for receipt in again)


def nothing() -> None:
    """Let it pass."""


# -- sharing -----------------------------------------------------------------------------------------


def test_writes_under_keys_that_wait_together_share_one_commit(graph: Graph) -> None:
    before = len(chain_of(graph.store))
    with group_at(graph, "publish.before", nothing) as futures:
        receipts = [future.result(PATIENCE_S) for future in futures]

    assert len(chain_of(graph.store)) == before + 2
    assert len({receipt.commit_id for receipt in receipts}) == 1
    assert not any(receipt.replayed for receipt in receipts)
    check_once(graph)


def test_a_repetition_gets_the_receipt_of_its_own_write(graph: Graph, other: Graph) -> None:
    two = q('insert Person { name: "x" } insert Thing { value: "z" }')
    graph.mutate(two)
    acts: list[Act] = [
        lambda: graph.mutate(TAKE, name="new", email=None, idempotency_key="new"),
        lambda: graph.mutate(TAKE, name="first", email=None, idempotency_key="known"),
        lambda: graph.mutate(two, idempotency_key="two"),
        lambda: graph.mutate(TAKE, name="unnamed", email=None),
    ]
    with group_at(graph, "publish.before", nothing, acts) as futures:
        receipts = [future.result(PATIENCE_S) for future in futures]

    assert len({receipt.commit_id for receipt in receipts}) == 1
    assert [[(c.inserted, c.updated) for c in receipt.types] for receipt in receipts] == [
        [(1, 0)],
        [(0, 1)],
        [(0, 1), (1, 0)],
        [(1, 0)],
    ]
    again = [
        other.mutate(TAKE, name="new", email=None, idempotency_key="new"),
        other.mutate(TAKE, name="first", email=None, idempotency_key="known"),
        other.mutate(two, idempotency_key="two"),
    ]
    asked = [landed(other.store, key, other.store.snapshot(), None) for key in ("new", "known", "two")]
    assert [told(receipt) for receipt in again] == [told(receipt) for receipt in receipts[:3]]
    assert [told(receipt) for receipt in asked if receipt] == [told(receipt) for receipt in receipts[:3]]


def test_one_key_twice_in_a_group_is_one_write(graph: Graph) -> None:
    acts = [partial(note, graph, key) for key in ("k0", "k1", "k0")]
    with group_at(graph, "publish.before", nothing, acts) as futures:
        receipts = [future.result(PATIENCE_S) for future in futures]

    assert [receipt.replayed for receipt in receipts].count(True) == 1
    assert told(receipts[0]) == told(receipts[2])
    check_once(graph, ("k0", "k1"))


# -- one of them is at fault -------------------------------------------------------------------------


def test_a_member_that_is_refused_does_not_hurt_the_others(graph: Graph) -> None:
    def take(name: str, email: str | None = None) -> Act:
        return lambda: graph.mutate(TAKE, name=name, email=email, idempotency_key=name)

    acts = [take("a"), take("bad", "taken"), take("b")]
    with group_at(graph, "claim.after", nothing, acts) as futures:
        receipts = [futures[0].result(PATIENCE_S), futures[2].result(PATIENCE_S)]
        error = error_of(futures[1])

    assert isinstance(error, ConstraintViolation)
    assert set(ages(graph)) == {"first", "a", "b"}
    again = [take("a")(), take("b")()]
    assert [told(receipt) for receipt in again] == [told(receipt) for receipt in receipts]
    graph.mutate(q('update Person set { email: "free" } where name = "first"'))
    assert not take("bad", "taken")().replayed  # its key stood for nothing yet
    assert take("bad", "taken")().replayed


def test_another_request_under_a_key_of_the_group_is_refused_alone(graph: Graph) -> None:
    note(graph, "k1", "something else")
    with group_at(graph, "publish.before", nothing) as futures:
        receipts = [futures[0].result(PATIENCE_S), futures[2].result(PATIENCE_S)]
        error = error_of(futures[1])

    assert isinstance(error, KeyReused)
    assert receipts[0].commit_id == receipts[1].commit_id
    assert things(graph) == Counter(["something else", "k0", "k2"])


# -- groups that are stopped -------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_whoever_was_told_of_a_failure_repeats_and_lands_once(graph: Graph, other: Graph, point: str) -> None:
    def fail() -> None:
        raise FailpointHit(point)

    with group_at(graph, point, fail) as futures:
        failures = [future.exception(PATIENCE_S) for future in futures]

    assert any(failures)
    check_once(other)


def test_a_group_that_is_killed_lands_once(tmp_path: Path) -> None:
    deaths = {point: str(tmp_path / point) for point in DEATHS}
    for address in deaths.values():
        og.init(address, SCHEMA).close()
    outcomes = run_processes(die_together, [(address, point) for point, address in deaths.items()])

    assert [outcome.exit_code for outcome in outcomes] == [KILLED] * len(deaths)
    for point, address in deaths.items():
        with og.connect(address) as graph:
            shared = {receipt.commit_id for key in KEYS if (receipt := by_key(graph, key)) is not None}
            assert len(shared) == (point in ("publish.after", "head_sync.after")), point
            check_once(graph)


def by_key(graph: Graph, key: str) -> Receipt | None:
    """Return the receipt of a write that has landed."""
    return landed(graph.store, key, graph.store.snapshot(), None)


def test_a_group_whose_swap_is_in_doubt_lands_once(graph: Graph, other: Graph) -> None:
    def lose_the_answer() -> None:
        raise CommitInDoubt("no answer")

    with group_at(graph, "publish.after", lose_the_answer) as futures:
        receipts = [future.result(PATIENCE_S) for future in futures]

    assert len({receipt.commit_id for receipt in receipts}) == 1
    check_once(other)


def test_a_group_whose_outcome_is_unknown_is_found_by_its_keys(graph: Graph, other: Graph) -> None:
    def lose_the_outcome() -> None:
        raise OutcomeUnknown("0" * 26, branch="main")

    with group_at(graph, "publish.after", lose_the_outcome) as futures:
        errors = [error_of(future) for future in futures]

    assert all(isinstance(error, OutcomeUnknown) for error in errors)
    assert all(note(other, key).replayed for key in KEYS)
    check_once(other)


@pytest.mark.parametrize("point", ["publish.before", "publish.after"])
def test_when_a_leader_is_interrupted_writes_under_keys_land_once(graph: Graph, point: str) -> None:
    """Nobody else knows whether the common commit landed; their claims tell."""
    here, stopped = threading.get_ident(), threading.Event()

    def stop_the_leader() -> None:
        if threading.get_ident() == here:
            stopped.set()
            raise KeyboardInterrupt
        held.hold()

    held = Held("publish.before")
    with ThreadPoolExecutor(4) as pool, armed({"publish.before": held.hold, point: stop_the_leader}):
        pool.submit(lambda: graph.mutate(NOTE, value="leader"))
        wait_until(lambda: held.is_reached)
        futures: list[Future[Any]] = []

        def follow() -> None:  # once the main thread stands in line
            wait_until(lambda: waiting(graph) == 1)
            futures.extend(line_up(graph, pool, partial(note, graph, key)) for key in KEYS[1:])
            held.let_go()

        follower = threading.Thread(target=follow)
        follower.start()
        with pytest.raises(KeyboardInterrupt):
            note(graph, KEYS[0])
        follower.join()
        receipts = [future.result(PATIENCE_S) for future in futures]

    assert stopped.is_set()
    assert {receipt.replayed for receipt in receipts} == {point == "publish.after"}
    check_once(graph)


# -- groups that are overtaken -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "repeated"),
    [
        *((point, ("k1",)) for point in POINTS if point != "publish.after"),
        *((point, KEYS) for point in ("claim.after", "publish.before", "head_sync.before")),
    ],
)
def test_a_repetition_that_overtakes_its_group_lands_once(
    graph: Graph, other: Graph, point: str, repeated: tuple[str, ...]
) -> None:
    """Between any two steps of the group another process repeats writes of it: as after a lost connection."""
    early: list[Receipt] = []
    with group_at(graph, point, lambda: early.extend(note(other, key) for key in repeated)) as futures:
        receipts = {key: future.result(PATIENCE_S) for key, future in zip(KEYS, futures, strict=True)}

    for key, receipt in zip(repeated, early, strict=True):
        assert told(receipt) == told(receipts[key])
        assert {receipt.replayed, receipts[key].replayed} == {True, False}
    check_once(other)


def test_a_repetition_that_its_group_overtakes_lands_once(graph: Graph, other: Graph) -> None:
    """It looked for the common commit before that was there."""
    early: list[Receipt] = []

    def go_on() -> None:  # the group waits after its claims; the repetition comes to its swap, then the group
        with armed({"publish.before": once(overtake)}):
            early.append(note(other, "k1"))

    def overtake() -> None:
        with armed(dict.fromkeys(names(), nothing)):
            graph.store.publisher.publish(*given[0])

    given: list[Any] = []
    publish = graph.store.publish

    def first_repeat(branch: str, write: Any, intent: Any = None) -> Any:
        if not intent.twins or given:
            return publish(branch, write, intent)
        given.append((branch, write, intent))
        go_on()
        return publish(branch, write, intent)

    graph.store.publish = first_repeat  # type: ignore[method-assign]
    with group_at(graph, "claim.after", nothing) as futures:
        receipts = [future.result(PATIENCE_S) for future in futures]

    assert early[0].replayed
    assert early[0].commit_id == receipts[1].commit_id
    check_once(other)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_and_whoever_repeats_every_write_lands_once(
    graph: Graph, other: Graph, seed: int
) -> None:
    """Eight writers over two handles, each key by two of them; durable steps fail at random."""
    dice, failing = random.Random(seed), random.Random(seed + 1000)
    keys = [f"k{n}" for n in range(10)] * 2
    dice.shuffle(keys)

    def fail_at_times(point: str) -> None:
        if failing.random() < 0.03:
            raise CommitInDoubt("no answer") if point.startswith("publish") else FailpointHit(point)

    def insist(number: int) -> Receipt:
        for _ in range(60):
            try:
                return note((graph, other)[number % 2], keys[number])
            except (FailpointHit, GraphError):
                continue
        raise AssertionError("never lands")

    with armed({point: partial(fail_at_times, point) for point in POINTS}), ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(insist, range(len(keys))))

    commits = {key: {r.commit_id for k, r in zip(keys, receipts, strict=True) if k == key} for key in keys}
    assert all(len(ids) == 1 for ids in commits.values())
    check_once(graph, tuple(sorted(commits)))


def test_a_group_does_not_land_on_a_branch_made_anew_since_it_claimed(graph: Graph, other: Graph) -> None:
    """Its keys stand for commits of the branch that was: a repetition would write to the new one again."""
    graph.branches.create("dev")

    def meanwhile() -> None:
        other.branches.delete("dev")
        other.branches.create("dev")

    def write(key: str) -> Receipt:
        return graph.mutate(NOTE, value=key, branch="dev", idempotency_key=key)

    acts = [partial(write, key) for key in KEYS]
    leader = partial(graph.mutate, NOTE, value="leader", branch="dev")
    with armed({"claim.after": once(meanwhile)}), behind(graph, acts, leader) as (_, futures):
        refused = [error_of(future) for future in futures]

    assert [type(error) for error in refused] == [BranchNotFound] * len(KEYS)
    assert not any(write(key).replayed for key in KEYS)
    assert sorted(row["value"] for row in read(graph, "Thing", branch="dev")) == ["first", *KEYS, "other"]
