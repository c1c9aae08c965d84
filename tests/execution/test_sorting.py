"""The order of result rows: first rows are the beginning of all of them, whatever the keys hold."""

from __future__ import annotations

import math
from random import Random

import pyarrow as pa
import pytest

from omnigraph.execution.ranking import FEW_ROWS, Key, sort

TEXTS = ["", "a", "A", "ab", "é", "z", "\U0001f600", "\uffff", "\u00e9"]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("numbers", [[math.nan, 1.0, -0.0], [math.nan, None, 2.0], [None, 1.0], [math.nan]])
def test_the_first_rows_are_the_beginning_of_all_rows(numbers: list[float | None], descending: bool) -> None:
    rnd = Random(7)
    keys = [
        Key(pa.array([rnd.choice(numbers) for _ in range(200)], pa.float64()), descending),
        Key(pa.array([f"{n:03d}" for n in rnd.sample(range(200), 200)])),
    ]
    every = sort(keys, 200).tolist()
    assert [sort(keys, 200, first).tolist() for first in range(0, 201, 4)] == [
        every[:first] for first in range(0, 201, 4)
    ]


def test_a_few_texts_are_sorted_as_many_are() -> None:
    rnd = Random(3)
    few = [rnd.choice(TEXTS) for _ in range(FEW_ROWS)]
    order = sort([Key(pa.array(few))], len(few)).tolist()
    beyond = sort([Key(pa.array([*few, "\U0010ffff"]))], len(few) + 1).tolist()
    assert order == beyond[:-1]
    assert sort([Key(pa.array(few))], len(few), 3).tolist() == order[:3]
