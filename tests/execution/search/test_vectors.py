"""Vectors: distances and the nearest entities, exactly, whatever the numbers are like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from omnigraph.execution.search.parts import SearchFragment
from omnigraph.execution.search.vectors import (
    LEAST_ROWS,
    NO_SKETCH,
    Matrix,
    VectorColumn,
    as_query,
    matrix,
    measured,
)

Floats = NDArray[np.float32]
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, 1e-3, 1e30, -1e30])
VECTORS = st.lists(st.none() | st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=12)


def column(*fragments: Sequence[Sequence[float] | None], dead: Sequence[int] = ()) -> VectorColumn:
    """Return the vectors of some fragments, without the rows of some ordinals."""
    parts: list[SearchFragment[Matrix]] = []
    start = 0
    for vectors in fragments:
        size = len(next((v for v in vectors if v is not None), (0, 0, 0)))
        stored = pa.array([None if v is None else list(v) for v in vectors], pa.list_(pa.float32(), size))
        alive = np.array([start + row not in dead for row in range(len(vectors))], dtype=bool)
        parts.append(
            SearchFragment(matrix(pa.chunked_array([stored])), start, None if alive.all() else alive)
        )
        start += len(vectors)
    return VectorColumn(start, parts)


def many(vectors: Floats, pieces: int = 2) -> VectorColumn:
    """Return a column of many vectors, in a few fragments."""
    parts: list[SearchFragment[Matrix]] = []
    start = 0
    for some in np.array_split(vectors, pieces):
        flat = pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), some.shape[1])
        parts.append(SearchFragment(matrix(pa.chunked_array([flat])), start, None))
        start += len(some)
    return VectorColumn(start, parts)


@given(st.lists(VECTORS, max_size=3), st.sets(st.integers(0, 30)), st.tuples(NUMBERS, NUMBERS, NUMBERS))
def test_distances_are_euclidean_and_unknown_without_a_vector(
    fragments: list[list[tuple[float, ...] | None]], dead: set[int], query: tuple[float, ...]
) -> None:
    every = [vector for vectors in fragments for vector in vectors]

    found = column(*fragments, dead=sorted(dead)).distances(query, np.arange(-1, len(every)))

    assert np.isnan(found[0])
    for number, vector in enumerate(every):
        if vector is None or number in dead:
            assert np.isnan(found[number + 1])
        else:
            pairs = zip(map(np.float32, vector), map(np.float32, query), strict=True)
            exact = sum((float(a) - float(b)) ** 2 for a, b in pairs) ** 0.5
            assert found[number + 1] == pytest.approx(exact)


@given(
    st.lists(VECTORS, max_size=3),
    st.sets(st.integers(0, 30)),
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    st.integers(0, 14),
    st.booleans(),
)
def test_the_nearest_are_all_that_are_not_farther_than_the_last(
    fragments: list[list[tuple[float, ...] | None]],
    dead: set[int],
    query: tuple[float, ...],
    count: int,
    some: bool,
) -> None:
    vectors = column(*fragments, dead=sorted(dead))
    span = sum(map(len, fragments))
    among = np.arange(0, span, 2)
    distances = vectors.distances(query, np.arange(span))
    candidates = [n for n in range(span) if not np.isnan(distances[n]) and (not some or n % 2 == 0)]
    ranking = sorted(candidates, key=lambda n: distances[n])
    cut = distances[ranking[count - 1]] if 0 < count <= len(ranking) else (np.inf if count else -1.0)

    found, measures = vectors.top(query, count, among if some else None)

    assert sorted(found.tolist()) == [n for n in candidates if distances[n] <= cut]
    assert measures.tolist() == distances[found].tolist()


SHAPES: dict[str, Callable[[np.random.Generator, int], NDArray[Any]]] = {
    "independent": lambda rng, n: rng.normal(size=(n, 32)),
    "in clusters": lambda rng, n: (
        rng.normal(size=(20, 32))[rng.integers(0, 20, n)] + 0.1 * rng.normal(size=(n, 32))
    ),
    "in a plane": lambda rng, n: rng.normal(size=(n, 2)) @ rng.normal(size=(2, 32)),
    "far from the origin": lambda rng, n: 1e4 + rng.normal(size=(n, 32)),
    "of unit length": lambda rng, n: (
        (v := rng.normal(size=(n, 32))) / np.linalg.norm(v, axis=1, keepdims=True)
    ),
    "few different ones": lambda rng, n: rng.integers(0, 2, size=(n, 32)) * (np.arange(32) < 4),
    "huge": lambda rng, n: rng.normal(size=(n, 32)) * 1e19,
    "tiny": lambda rng, n: rng.normal(size=(n, 32)) * 1e-30,
    "zero": lambda rng, n: np.zeros((n, 32)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 10, 300])
def test_many_vectors_are_searched_exactly(shape: str, count: int) -> None:
    rng = np.random.default_rng(7)
    vectors = SHAPES[shape](rng, 3 * LEAST_ROWS).astype(np.float32)
    stored = many(vectors)
    half = np.sort(rng.permutation(len(vectors))[: len(vectors) // 2])
    for query in (vectors[5], vectors[11] + np.float32(0.5) * vectors[17], np.ones(32, np.float32)):
        distances = measured(vectors, query)
        for among in (None, half):
            chosen = np.arange(len(vectors)) if among is None else among
            cut = np.partition(distances[chosen], count - 1)[count - 1]

            found, measures = stored.top(query.tolist(), count, among)

            assert sorted(found.tolist()) == chosen[distances[chosen] <= cut].tolist()
            assert np.array_equal(measures, distances[found])


def test_large_fragments_are_sketched_and_small_ones_are_not() -> None:
    rng = np.random.default_rng(1)
    for rows, sketched in ((LEAST_ROWS - 1, False), (LEAST_ROWS, True)):
        values = pa.array((rng.normal(size=(rows, 2)) @ rng.normal(size=(2, 32))).ravel().astype(np.float32))
        made = matrix(pa.chunked_array([pa.FixedSizeListArray.from_arrays(values, 32)]))
        assert (made.sketch is not NO_SKETCH) == sketched


def test_vectors_without_any_structure_are_not_sketched() -> None:
    values = pa.array(np.random.default_rng(1).normal(size=LEAST_ROWS * 64).astype(np.float32))

    assert matrix(pa.chunked_array([pa.FixedSizeListArray.from_arrays(values, 64)])).sketch is NO_SKETCH


def test_a_sketch_never_hides_a_neighbour() -> None:
    """The product of two sketches is at least that of their vectors: that is what the bound rests on."""
    rng = np.random.default_rng(3)
    values = (rng.normal(size=(LEAST_ROWS, 24)) * 0.6 ** np.arange(24)).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 24)
    made = matrix(pa.chunked_array([flat])).sketch
    assert made is not NO_SKETCH
    for query in rng.normal(size=(50, 24)).astype(np.float32):
        lengths = np.linalg.norm(values.astype(np.float64), axis=1)
        true = values.astype(np.float64) @ query - np.square(lengths) / 2
        bound = made.of(query) @ made.columns.astype(np.float64)
        assert (bound >= true - 1e-5 * lengths * (lengths + np.linalg.norm(query))).all()


def test_the_distance_of_an_entity_does_not_depend_on_its_company() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(500, 7)).astype(np.float32)
    stored = many(vectors, 3)
    query = [0.1] * 7

    together = stored.distances(query, np.arange(500))

    for ordinal in range(0, 500, 37):
        assert stored.distances(query, np.array([ordinal]))[0] == together[ordinal]
        near, distances = stored.top(query, 500)
        assert distances[near.tolist().index(ordinal)] == together[ordinal]


def test_a_query_is_rounded_as_vectors_are_stored() -> None:
    stored = column([(0.1, 0.2, 0.3)])

    assert stored.distances((0.1, 0.2, 0.3), np.array([0])).tolist() == [0.0]
    assert as_query((0.1,)).dtype == np.float32
