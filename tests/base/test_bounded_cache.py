"""A bounded cache keeps what was used last, within its limit, whoever uses it at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from omnigraph.base.bounded_cache import BoundedCache


def test_what_was_not_used_since_goes_first() -> None:
    cache = BoundedCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)

    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_a_value_is_never_replaced() -> None:
    cache = BoundedCache[str, int](2)

    assert (cache.put("a", 1), cache.put("a", 2), cache.get("a"), cache.weight) == (1, 1, 1, 1)


def test_the_last_value_stays_however_heavy_it_is() -> None:
    cache = BoundedCache[str, str](3, weight=len)
    cache.put("a", "12")
    cache.put("b", "12345")

    assert (cache.get("a"), cache.get("b"), cache.weight) == (None, "12345", 5)
    cache.shrink(4)
    assert (cache.get("b"), cache.weight) == (None, 0)


def test_a_value_that_has_grown_is_weighed_again_and_others_go() -> None:
    cache = BoundedCache[str, list[int]](5, weight=len)
    cache.put("a", [1, 2])
    cache.put("b", [3, 4])
    grown = cache.get("a") or []
    grown += [5, 6]
    assert cache.weight == 4  # nobody said so

    cache.reweigh("a")

    assert (cache.get("a"), cache.get("b"), cache.weight) == ([1, 2, 5, 6], None, 4)
    cache.reweigh("b")  # it is gone
    assert cache.items() == [("a", [1, 2, 5, 6])]


def test_values_that_share_memory_are_weighed_together() -> None:
    cache = BoundedCache[str, frozenset[int]](3, total=lambda values: len(frozenset().union(*values)))
    cache.put("a", frozenset({1, 2}))
    cache.put("b", frozenset({1, 2, 3}))

    assert (cache.weight, cache.get("a") is not None) == (3, True)
    cache.put("c", frozenset({1, 4}))
    assert (cache.weight, cache.get("b")) == (3, None)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_uses_keeps_what_a_plain_model_keeps(seed: int) -> None:
    rnd, limit = Random(seed), 12
    cache = BoundedCache[int, int](limit, weight=lambda value: value)
    model: list[tuple[int, bool]] = []  # keys in the order they came, and whether they were used since
    for _ in range(200):
        key = rnd.randrange(8)
        keys = [known for known, _ in model]
        if rnd.random() < 0.5:
            assert cache.get(key) == (key if key in keys else None)
            model = [(known, used or known == key) for known, used in model]
        elif key not in keys:
            cache.put(key, key)
            model.append((key, False))
            while sum(known for known, _ in model) > limit and len(model) > 1:
                (oldest, used), *model = model
                model += [(oldest, False)] if used or oldest == key else []
        assert cache.weight == sum(known for known, _ in model)


def test_threads_get_one_value_for_a_key() -> None:
    cache = BoundedCache[int, object](4)

    def use(number: int) -> list[tuple[int, object]]:
        rnd = Random(number)
        return [(key, cache.get_or_make(key, object)) for key in (rnd.randrange(4) for _ in range(500))]

    with ThreadPoolExecutor(8) as pool:
        seen = {pair for pairs in pool.map(use, range(8)) for pair in pairs}

    assert len(seen) == 4
