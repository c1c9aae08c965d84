"""Every interleaving of two writers, a cleaner and a branch deleter keeps the promises (X-42).

And each rule of the protocol is needed: without it the same exploration finds a broken promise.
"""

from __future__ import annotations

import pytest

from tests.concurrency.model import Rules, explore, start

SCHEDULES = [
    pytest.param(("a", "a"), False, id="one-table"),
    pytest.param(("a", "b"), False, id="two-tables"),
    pytest.param(("a", "a"), True, id="strict-writes"),
]


@pytest.mark.parametrize(("tables", "strict"), SCHEDULES)
def test_no_interleaving_loses_a_write_a_file_or_the_line(tables: tuple[str, ...], strict: bool) -> None:
    found = explore(start(tables, strict=strict), Rules())

    assert found.broken == frozenset()
    assert found.states > 1000, "the exploration really happened"


@pytest.mark.parametrize(("tables", "strict"), SCHEDULES)
def test_some_interleaving_lets_every_writer_finish_and_some_ends_them_all(
    tables: tuple[str, ...], strict: bool
) -> None:
    """Otherwise a protocol that refuses everything would pass."""
    found = explore(start(tables, strict=strict), Rules())

    assert {frozenset(), frozenset({"w0", "w1"})} <= found.ends


BROKEN = [
    pytest.param(
        Rules(swap_needs_the_head=False),
        {"no acknowledged write is lost", "every commit follows the one before it"},
        id="swap-without-the-head-key",
    ),
    pytest.param(
        Rules(sweep_restages=False),
        {"every file that a retained version needs is there"},
        id="losers-ignore-the-sweep",
    ),
    pytest.param(
        Rules(every_sweep_is_written=False),
        {"every file that a retained version needs is there"},
        id="sweep-without-a-write",
    ),
    pytest.param(
        Rules(list_before_sweep=False),
        {"every file that a retained version needs is there"},
        id="files-listed-after-the-sweep",
    ),
    pytest.param(
        Rules(tombstone_ends_writes=False),
        {"nothing is committed after the tombstone"},
        id="writers-ignore-the-tombstone",
    ),
]


@pytest.mark.parametrize(("rules", "promises"), BROKEN)
def test_without_any_one_rule_some_interleaving_breaks_a_promise(rules: Rules, promises: set[str]) -> None:
    found = explore(start(("a", "a"), strict=False), rules, wanted=frozenset(promises))

    assert promises <= found.broken
