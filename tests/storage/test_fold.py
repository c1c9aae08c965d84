"""Fold: however writes come, the tail stays short and the work of keeping it short stays bounded.

The planner is a pure function, so thousands of writes are simulated here without touching a disk.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.fragment import DataFile, FragmentMetadata

from omnigraph.storage.tables.layout import (
    FOLD_AT_ONCE,
    PER_TIER,
    ROW_WEIGHT,
    TIERS,
    FragmentLayout,
    FragmentSize,
    plan_fold,
)

SMALL_BOUND = PER_TIER * len(TIERS) + 1  # a write adds its own fragment to full tiers
sizes = st.builds(FragmentSize, rows=st.integers(1, 40_000), bytes=st.integers(200, 4 << 20))
small = st.builds(FragmentSize, rows=st.integers(1, 100), bytes=st.integers(400, 20_000))


class Tail:
    """A table as the planner sees it, and what the writes to it have cost."""

    def __init__(self) -> None:
        self.fragments: dict[int, FragmentSize] = {}
        self.written = 0
        self.rewritten = 0
        self._next = 0

    def write(self, size: FragmentSize) -> frozenset[int]:
        chosen = plan_fold(self.fragments, size)
        assert chosen <= self.fragments.keys()
        taken = [self.fragments.pop(fragment) for fragment in chosen]
        self.written += size.weight
        self.rewritten += sum(one.weight for one in taken)
        rows = size.rows + sum(one.rows for one in taken)
        self.fragments[self._next] = FragmentSize(rows, size.bytes + sum(one.bytes for one in taken))
        self._next += 1
        return chosen

    def small(self) -> int:
        return sum(one.weight < TIERS[-1] for one in self.fragments.values())


@pytest.mark.parametrize("row_bytes", [300, 900, 5_000, 60_000])
def test_thousands_of_equal_writes_keep_every_tier_short(row_bytes: int) -> None:
    tail = Tail()

    for _ in range(2_000):
        tail.write(FragmentSize(1, row_bytes))

        floor = 0
        for ceiling in TIERS:
            members = sum(floor <= one.weight < ceiling for one in tail.fragments.values())
            assert members <= PER_TIER
            floor = ceiling


@settings(max_examples=15, deadline=None)
@given(st.lists(sizes, min_size=100, max_size=300))
def test_writes_of_any_size_keep_the_small_fragments_few(writes: list[FragmentSize]) -> None:
    tail = Tail()

    for size in writes:
        tail.write(size)
        assert tail.small() <= SMALL_BOUND


@pytest.mark.parametrize("row_bytes", [300, 900, 5_000])
def test_a_byte_is_rewritten_a_bounded_number_of_times(row_bytes: int) -> None:
    """A tier that fills with PER_TIER writes rewrites its oldest byte that often: quadratic only below it."""
    amplification = []
    for writes in (1_000, 4_000):
        tail = Tail()
        for _ in range(writes):
            tail.write(FragmentSize(1, row_bytes))
        amplification.append(tail.rewritten / tail.written)

    most = TIERS[0] / (PER_TIER * (row_bytes + 64)) + PER_TIER * len(TIERS)
    assert max(amplification) <= most
    assert amplification[1] <= amplification[0] * 1.5, "the cost per byte must not grow with the history"


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(0, 500), sizes, max_size=200), sizes)
def test_one_write_takes_up_a_bounded_number_of_fragments(
    fragments: dict[int, FragmentSize], incoming: FragmentSize
) -> None:
    assert len(plan_fold(fragments, incoming)) <= FOLD_AT_ONCE


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(0, 500), sizes, max_size=100), sizes)
def test_fragments_past_the_last_tier_are_never_taken_up(
    fragments: dict[int, FragmentSize], incoming: FragmentSize
) -> None:
    assert all(fragments[chosen].weight < TIERS[-1] for chosen in plan_fold(fragments, incoming))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(0, 500), sizes, max_size=100))
def test_a_write_past_the_last_tier_takes_up_nothing(fragments: dict[int, FragmentSize]) -> None:
    assert plan_fold(fragments, FragmentSize(rows=1, bytes=TIERS[-1])) == frozenset()


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(0, 500), small, max_size=PER_TIER - 1), small)
def test_a_tier_that_is_not_full_is_left_alone(
    fragments: dict[int, FragmentSize], incoming: FragmentSize
) -> None:
    assert plan_fold(fragments, incoming) == frozenset()


@settings(max_examples=20, deadline=None)
@given(st.lists(small, min_size=20, max_size=300))
def test_a_tail_left_long_by_others_is_worked_off_by_ordinary_writes(found: list[FragmentSize]) -> None:
    """A stream append or a mass delete may leave many small ones at once; each write takes up its share."""
    tail = Tail()
    tail.fragments = dict(enumerate(found))
    tail._next = len(found)

    for _ in range(math.ceil(len(found) / (FOLD_AT_ONCE - 1)) + PER_TIER):
        tail.write(FragmentSize(1, 900))

    assert tail.small() <= SMALL_BOUND


def test_the_choice_does_not_depend_on_the_order_of_the_fragments() -> None:
    fragments = {i: FragmentSize(1, 500 + 37 * i % 200) for i in range(40)}
    backwards = dict(reversed(fragments.items()))

    assert plan_fold(fragments, FragmentSize(1, 900)) == plan_fold(backwards, FragmentSize(1, 900))


def test_a_fragment_is_settled_once_it_is_past_the_first_tier() -> None:
    def is_settled(weight: int) -> bool:
        file = DataFile("a.lance", [0], file_size_bytes=weight - ROW_WEIGHT)
        return FragmentLayout.of(FragmentMetadata(0, [file], physical_rows=1), b"").settled

    assert (is_settled(TIERS[0] - 1), is_settled(TIERS[0])) == (False, True)
