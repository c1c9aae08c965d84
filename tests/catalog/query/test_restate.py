"""A comparison restated in the type of a column holds for exactly the same values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.catalog.query.values import restate
from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.language.literals import RANGES

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
operators = st.sampled_from(list(COMPARE))
numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-10, 10),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-10, 10),
    st.sampled_from([2**31, 2**32, 2**53 + 1, 2**63, -(2**31) - 1, 2.0**63, 1e300, -1e300]),
)


@given(operators, numbers, st.sampled_from(sorted(INTEGERS, key=lambda s: s.value)), st.data())
def test_integer_columns(word: str, number: int | float, scalar: Scalar, data: st.DataObject) -> None:
    low, high = RANGES[scalar.value]
    near = min(max(int(number), low), high)
    around = st.integers(max(low, near - 2), min(high, near + 2))
    value = data.draw(st.one_of(st.integers(low, high), around))

    again, stored = restate(word, number, scalar)

    assert isinstance(stored, int)
    assert low <= stored <= high
    assert COMPARE[again](value, stored) == COMPARE[word](value, Fraction(number))


@given(operators, numbers, st.data())
def test_double_columns(word: str, number: int | float, data: st.DataObject) -> None:
    near = float(number)
    neighbours = [near, math.nextafter(near, -math.inf), math.nextafter(near, math.inf)]
    finite = st.sampled_from([n for n in neighbours if math.isfinite(n)])
    value = data.draw(st.one_of(finite, st.floats(allow_nan=False, allow_infinity=False)))

    again, stored = restate(word, number, Scalar.F64)

    assert COMPARE[again](value, stored) == COMPARE[word](Fraction(value), Fraction(number))


@given(operators, numbers, st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_columns_compare_at_their_own_precision(word: str, number: int | float, value: float) -> None:
    again, stored = restate(word, number, Scalar.F32)
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))

    assert again == word
    assert COMPARE[again](value, stored) == COMPARE[word](value, rounded)


def test_only_numbers_are_restated() -> None:
    with pytest.raises(TypeError, match="String is no number"):
        restate("=", 1, Scalar.STRING)
