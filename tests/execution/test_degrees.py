"""Degrees: what versions share, corrected by what one changed, is what counting node by node gives."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.execution.degrees import Degrees, SharedDegrees, exact_sum_of_products


def random_degrees(seed: int, largest: int) -> tuple[Degrees, list[int]]:
    """Return degrees of 40 nodes, of which 30 are shared and some changed, and the same as plain numbers."""
    numbers = np.random.default_rng(seed)
    shared, span = numbers.integers(0, largest, 30), 40
    nodes = np.sort(numbers.choice(span, 7, replace=False))
    values = numbers.integers(0, largest, 7)
    plain = [*shared.tolist(), *[0] * 10]
    for node, value in zip(nodes.tolist(), values.tolist(), strict=True):
        plain[node] = value
    return Degrees(SharedDegrees(shared), nodes, values, span), plain


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("largest", [5, 2**40])  # products that fit into 64 bits, and some that do not
def test_degrees_of_a_version_are_the_shared_ones_with_its_changes(seed: int, largest: int) -> None:
    first, plain = random_degrees(seed, largest)
    second, other = random_degrees(seed + 100, largest)
    asked = np.random.default_rng(seed).integers(0, 40, 60)

    assert first.dense().tolist() == plain
    assert first.of(asked).tolist() == [plain[node] for node in asked.tolist()]
    expected = sum(a * b for a, b in zip(plain, other, strict=True))
    assert first.sum_of_products(second) == expected
    assert first.sum_of_products(second) == expected  # the shared part is remembered


def test_sums_beyond_64_bits_are_exact() -> None:
    large = np.array([2**40, 2**40, 3])

    assert exact_sum_of_products(large, large) == 2 * 2**80 + 9
    assert exact_sum_of_products(large[:0], large[:0]) == 0
