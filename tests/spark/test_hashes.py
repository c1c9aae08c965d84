"""Hashes of texts: equal for equal texts, different for all others, whatever they are made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.pipeline.bulk.hash_precheck import Seeds, hash_texts

SEEDS = Seeds(1, 2)
TEXTS = st.lists(st.none() | st.text(max_size=40), min_size=1, max_size=50)


@given(TEXTS, st.integers(0, 3))
def test_a_hash_depends_on_the_text_alone(texts: list[str | None], before: int) -> None:
    first, second = hash_texts(pa.array(texts, pa.string()), SEEDS)
    shifted = pa.array(["x" * n for n in range(before)] + texts, pa.string()).slice(before)

    assert hash_texts(shifted, SEEDS) == (first, second)
    found = dict(zip(texts, zip(first.to_pylist(), second.to_pylist(), strict=True), strict=True))
    assert len(set(found.values())) == len(found)
    assert None not in found or found[None] == (None, None)


def test_a_million_texts_have_a_million_hashes() -> None:
    texts = pa.array([f"person-{n}" for n in range(1_000_000)])
    for column in hash_texts(texts, Seeds.fresh()):
        assert len(np.unique(column.to_numpy())) == len(texts)


def test_zeros_and_lengths_count() -> None:
    texts = ["", "\0", "\0\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghabcdefgh"]
    first, second = hash_texts(pa.array(texts), SEEDS)
    assert len(set(first.to_pylist())) == len(set(second.to_pylist())) == len(texts)


def test_other_seeds_give_other_hashes() -> None:
    texts = pa.array(["a", "b"])
    first, second = hash_texts(texts, SEEDS)
    assert first != second
    assert hash_texts(texts, Seeds(3, 4))[0] != first
