"""Groups: the first row stands for a group, however late it comes."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.execution import group
from omnigraph.execution.group import Groups


@pytest.mark.parametrize("seed", range(20))
def test_the_first_row_of_each_group(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "FIRST_ROWS", 4)
    rnd = np.random.default_rng(seed)
    count = int(rnd.integers(1, 12))
    of = np.concatenate([np.sort(rnd.integers(0, count, 60)), rnd.integers(0, count, 60), np.arange(count)])
    rows = of.tolist()
    assert Groups(of, count).first.tolist() == [rows.index(number) for number in range(count)]


def test_without_rows_there_is_no_first_one() -> None:
    assert Groups(np.zeros(0, np.int64), 1).first.tolist() == []


@pytest.mark.parametrize("of", [[], [0], [2, 0, 2], [0, 1, 2], [1, 1], [3, 0]])
def test_groups_without_rows_get_no_number(of: list[int]) -> None:
    numbers, count = group._without_empty(np.array(of, np.int64), 5)
    assert count == len(set(of))
    assert [sorted(set(of))[number] for number in numbers.tolist()] == of
