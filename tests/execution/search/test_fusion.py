"""Fusion: reciprocal ranks by hand, from section 11.2."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.execution.ranking import fuse, ranked

RANKING = st.lists(st.integers(0, 20), unique=True, max_size=12).map(lambda found: np.array(found, np.int64))


@pytest.mark.parametrize(
    ("first", "second", "k", "order", "scores"),
    [
        pytest.param([], [], 60, [], [], id="nothing"),
        pytest.param([5, 6], [], 60, [5, 6], [1 / 61, 1 / 62], id="one arm"),
        pytest.param([], [5, 6], 60, [5, 6], [1 / 61, 1 / 62], id="the other arm"),
        pytest.param([1, 2], [2, 3], 60, [2, 1, 3], [1 / 62 + 1 / 61, 1 / 61, 1 / 62], id="in both arms"),
        pytest.param([1], [2], 60, [1, 2], [1 / 61, 1 / 61], id="a tie is in the order of the first arm"),
        pytest.param(
            [1, 2], [3, 4], 60, [1, 3, 2, 4], [1 / 61, 1 / 61, 1 / 62, 1 / 62], id="then of the second's rest"
        ),
        pytest.param([1, 2], [2, 1], 60, [1, 2], [1 / 61 + 1 / 62] * 2, id="mirrored arms tie"),
        pytest.param([1, 2, 3], [3], 1, [3, 1, 2], [1 / 4 + 1 / 2, 1 / 2, 1 / 3], id="a small k"),
    ],
)
def test_fused_order_and_scores(
    first: list[int], second: list[int], k: int, order: list[int], scores: list[float]
) -> None:
    fused = fuse(np.array(first, np.int64), np.array(second, np.int64), k)

    assert fused.ordinals.tolist() == order
    assert fused.scores.tolist() == pytest.approx(scores)


@given(RANKING, RANKING, st.integers(1, 100))
def test_fusion_is_the_sum_over_the_arms(first: np.ndarray, second: np.ndarray, k: int) -> None:
    arms = [first.tolist(), second.tolist()]
    place = [*arms[0], *(e for e in arms[1] if e not in arms[0])]

    fused = fuse(first, second, k)

    expected = {e: sum(1 / (k + arm.index(e) + 1) for arm in arms if e in arm) for e in place}
    assert fused.ordinals.tolist() == sorted(
        place, key=lambda e: (-fused.of(np.array([e]))[0], place.index(e))
    )
    for entity in range(-1, 21):
        assert fused.of(np.array([entity]))[0] == pytest.approx(expected.get(entity, 0.0))
        known = entity in expected
        assert fused.positions(np.array([entity]))[0] == (
            fused.ordinals.tolist().index(entity) if known else -1
        )


def test_an_arm_is_ordered_by_value_and_then_by_id() -> None:
    entities = np.array([10, 11, 12, 13])
    ids = pa.array(["d", "c", "b", "a"])
    values = np.array([2.0, 1.0, 2.0, 3.0])

    assert ranked(entities, values, ids, descending=False).tolist() == [11, 12, 10, 13]
    assert ranked(entities, values, ids, descending=True).tolist() == [13, 12, 10, 11]
    assert ranked(entities, values, ids, descending=False, limit=2).tolist() == [11, 12]
