"""Ids in bulk: the same spelling as single ones, distinct and ascending by construction."""

from __future__ import annotations

import pytest
from ulid import ULID

from omnigraph.base.ids import is_id, new_id, new_ids


@pytest.mark.parametrize("count", [0, 1, 2, 70_000])
def test_ids_follow_one_another(count: int) -> None:
    found = new_ids(count)

    found.validate(full=True)
    numbers = [int(ULID.from_str(text)) for text in found.to_pylist()]
    assert numbers == list(range(numbers[0], numbers[0] + count)) if count else numbers == []
    assert all(is_id(text) for text in found.slice(0, 100).to_pylist())


def test_counting_up_carries_through_all_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    every_bit = (1 << 79) - 1
    monkeypatch.setattr("omnigraph.base.ids.secrets.randbits", lambda bits: every_bit - 2)

    found = [int(ULID.from_str(text)) for text in new_ids(6).to_pylist()]

    assert [number & ((1 << 80) - 1) for number in found] == [every_bit - 2 + n for n in range(6)]
    assert len({number >> 80 for number in found}) == 1


def test_ids_made_before_and_after_differ() -> None:
    several = [*new_ids(1000).to_pylist(), new_id(), *new_ids(1000).to_pylist()]

    assert len(set(several)) == 2001


def test_more_than_one_array_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for fewer"):
        new_ids(100_000_000)
