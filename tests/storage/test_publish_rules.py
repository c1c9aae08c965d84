"""Publish: conditions on the head, bounded retries, writes that do nothing, writes that fail."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from omnigraph.base.errors import (
    InvalidRequest,
    Kind,
    PreconditionFailed,
    PublishContention,
)
from omnigraph.base.ids import SystemClock
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent, RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    Append,
    DeleteIds,
    DropColumn,
    Effect,
    Upsert,
)
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.support.graphs import (
    KNOWS,
    PERSON,
    chain_of,
    knows,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.stores import (
    Always,
    Once,
    Scripted,
    again,
    check_error,
    nothing_written,
    tidy,
)

pytestmark = pytest.mark.s3_when_full

EDGE = knows({"e1": ("a", "b")})


# -- the head that the caller expects


def test_a_write_on_the_expected_head_lands(store: GraphStore) -> None:
    receipt = write(store, {PERSON: Upsert(people(["c"]))}, expected_head=store.snapshot().commit_id)

    assert receipt.commit_id == store.snapshot().commit_id


def test_another_head_than_expected_is_refused_before_anything_is_prepared(
    place: Place, store: GraphStore
) -> None:
    stale = store.snapshot(at=1).commit_id
    mine = Scripted({PERSON: Upsert(people(["c"]))})

    with nothing_written(place), pytest.raises(PreconditionFailed) as caught:
        store.publish("main", mine, Intent(expected_head=stale))

    check_error(caught.value, "precondition_failed", "main", stale, store.snapshot().commit_id)
    assert caught.value.kind is Kind.CONFLICT
    assert caught.value.fields["actual"] == store.snapshot().commit_id
    assert mine.bases == []


def test_an_expected_head_is_enforced_by_the_publish_itself_even_for_unrelated_tables(
    store: GraphStore, rival: GraphStore
) -> None:
    base = store.snapshot().commit_id
    mine = Scripted({PERSON: Upsert(people(["c"]))})
    with (
        armed({"publish.before": Once(lambda: write(rival, {KNOWS: Upsert(EDGE)}))}),
        pytest.raises(PreconditionFailed) as caught,
    ):
        store.publish("main", mine, Intent(expected_head=base))

    assert caught.value.fields["actual"] == rival.snapshot().commit_id
    assert len(mine.bases) == 1, "never tried again"
    assert set(persons(store)) == {"a", "b"}


@pytest.mark.parametrize("when", ["before", "during"])
def test_an_expected_head_that_differs_only_by_maintenance_is_accepted(
    store: GraphStore, rival: GraphStore, when: str
) -> None:
    base = store.snapshot().commit_id
    if when == "before":
        tidy(rival)
    race = Once(lambda: tidy(rival) if when == "during" else None)
    with armed({"publish.before": race}):
        receipt = write(store, {PERSON: Upsert(people(["c"]))}, expected_head=base)

    assert receipt.attempts == (2 if when == "during" else 1)
    assert set(persons(store)) == {"a", "b", "c"}


def test_a_write_with_nothing_to_do_still_checks_the_expected_head(store: GraphStore) -> None:
    stale = store.snapshot(at=1).commit_id

    with pytest.raises(PreconditionFailed):
        write(store, {PERSON: DeleteIds(pa.array(["nobody"]))}, expected_head=stale)


# -- retries


def test_a_write_that_keeps_losing_gives_up_with_a_retryable_error_and_no_effect(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    impatient = again(place, RetryPolicy(attempts=2))
    race = Always(lambda: write(rival, {KNOWS: Upsert(EDGE)}))

    with armed({"publish.before": race}), pytest.raises(PublishContention) as caught:
        upsert_person(impatient, "c")

    check_error(caught.value, "publish_contention", "main", "2 attempts")
    assert caught.value.retryable
    assert caught.value.fields["attempts"] == race.times == 2
    assert set(persons(store)) == {"a", "b"}
    assert upsert_person(impatient, "c").attempts == 1, "trying again is safe"


def test_the_time_allowed_is_a_limit_of_its_own(place: Place, store: GraphStore, rival: GraphStore) -> None:
    impatient = again(place, RetryPolicy(seconds=0))

    with armed({"publish.before": Once(lambda: upsert_person(rival, "d"))}), pytest.raises(PublishContention):
        upsert_person(impatient, "c")


class Leaping(SystemClock):
    """A clock that can be put forward."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        """Return the time, so much ahead."""
        return super().monotonic() + self.ahead_s


def test_the_time_to_prepare_is_no_part_of_the_time_allowed(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    clock = Leaping()

    def an_hour_and_a_rival() -> None:
        clock.ahead_s += 3600
        upsert_person(rival, "d")

    first, forever = Once(an_hour_and_a_rival), Always(an_hour_and_a_rival)
    with (
        GraphStore.open(place.address, durability="os", clock=clock, **place.kwargs) as slow,
        armed({"publish.before": first}),
    ):
        assert upsert_person(slow, "c").attempts == 2

    with (
        GraphStore.open(place.address, durability="os", clock=clock, **place.kwargs) as slow,
        armed({"publish.before": forever}),
        pytest.raises(PublishContention),
    ):
        upsert_person(slow, "f")
    assert forever.times == 2, "an hour after the first loss"


@pytest.mark.parametrize("one_store", [True, False], ids=["threads of one store", "separate stores"])
def test_writers_parked_before_publishing_all_land_when_released_together(
    place: Place, store: GraphStore, one_store: bool
) -> None:
    writers = 6
    stores = [store if one_store else again(place) for _ in range(writers)]
    barrier, passed = threading.Barrier(writers), threading.local()

    def meet() -> None:
        if not getattr(passed, "once", False):
            passed.once = True
            barrier.wait(60)

    with armed({"publish.before": meet}), ThreadPoolExecutor(writers) as pool:
        receipts = list(pool.map(lambda i: upsert_person(stores[i], f"w{i}"), range(writers)))

    assert set(persons(store)) == {"a", "b"} | {f"w{i}" for i in range(writers)}
    assert sorted(chain_of(store)[2:]) == sorted(str(receipt.commit_id) for receipt in receipts)
    assert sum(receipt.attempts > 1 for receipt in receipts) == writers - 1


# -- writes that do nothing, or fail


@pytest.mark.parametrize(
    "effect",
    [
        Upsert(people([])),
        Append(people([])),
        DeleteIds(pa.array([], pa.string())),
        DeleteIds(pa.array(["nobody"])),
    ],
    ids=["empty upsert", "empty append", "no ids", "unknown ids"],
)
def test_a_write_with_nothing_to_do_makes_no_commit_and_writes_nothing(
    place: Place, store: GraphStore, effect: Effect
) -> None:
    head = store.snapshot()

    with nothing_written(place):
        receipt = write(store, {PERSON: effect})

    assert (receipt.commit, receipt.commit_id, receipt.tables) == (None, None, ())
    assert store.snapshot() == head


def test_a_load_of_nothing_is_still_a_commit(store: GraphStore) -> None:
    head = store.snapshot()
    plan = PublishPlan(CommitKind.LOAD, effects={PERSON: Upsert(people([]))}, always_commit=True)

    receipt = store.publish("main", PlannedWrite(plan))

    assert receipt.commit is not None
    assert receipt.commit.parent == head.commit_id
    assert store.snapshot().state.pins == head.state.pins


def test_a_write_that_fails_on_one_of_its_tables_leaves_the_others_alone(store: GraphStore) -> None:
    head = store.snapshot()

    with pytest.raises(InvalidRequest):
        write(store, {PERSON: Upsert(people(["c"])), KNOWS: DropColumn("no such column")})

    assert store.snapshot() == head
    assert upsert_person(store, "c").attempts == 1


def test_a_reserved_actor_is_refused_before_anything_is_written(place: Place, store: GraphStore) -> None:
    with nothing_written(place), pytest.raises(InvalidRequest) as caught:
        write(store, {PERSON: Upsert(people(["c"]))}, actor="system:cleanup")

    check_error(caught.value, "bad_request", "system:cleanup")
