"""Embedding: text to vectors, for `nearest` with a text.

Whoever opens a graph brings the embedder: "mock", "mock-hash", or a function from texts to vectors;
nothing here reaches a network. EMBEDDINGS_MOCK=1 in the environment wins over it, so that a test run
never asks a provider. A text becomes one vector of the size asked for: checked, L2-normalised, float32,
kept for the next query.

The mock hashes words into signed buckets and adds them up, so that texts that share words are near each
other, on every platform alike. `mock-hash` gives every text a direction of its own instead.

Where a property records the model of its vectors, a function must say that it is that model, by an
attribute `model`: vectors of two models do not compare. The mocks stand for every model.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import InvalidRequest

Vector = NDArray[np.float32]
EmbedTexts = Callable[[list[str]], Any]
KEPT = 1_024
MOCKED = "EMBEDDINGS_MOCK"
_WORD = re.compile(r"\w+")
_MASK = (1 << 64) - 1


class Embedder(Protocol):
    """Turns texts into vectors."""

    def check_model(self, model: str) -> None:
        """Raise unless vectors of that model may be compared with these."""
        ...

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return a vector for each text."""
        ...


class MockEmbedder:
    """No network, no key: the same text gives the same vector everywhere."""

    def check_model(self, model: str) -> None:
        """Stand for every model."""

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Add up the hashed words of each text."""
        return [_bucketed(text, size).tolist() for text in texts]


class HashEmbedder:
    """Every text a pseudo-random direction; texts that share words are no nearer than others."""

    def check_model(self, model: str) -> None:
        """Stand for every model."""

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Derive each direction from a hash of the text."""
        return [_direction(text, size) for text in texts]


class FunctionEmbedder:
    """A function of the caller's."""

    def __init__(self, function: EmbedTexts) -> None:
        self._function = function

    def check_model(self, model: str) -> None:
        """Compare with what the function says of itself."""
        own = getattr(self._function, "model", None)
        if own == model:
            return
        says = "does not say which model it is" if own is None else f"is of model {own!r}"
        raise InvalidRequest(
            f"the stored vectors were made with model {model!r}, and the embedding function {says}",
            remedy=f"Give the function the attribute model = {model!r}, if that is the model it asks",
            model=model,
        )

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Ask the function."""
        return [list(vector) for vector in self._function(texts)]


def embedder_of(choice: str | EmbedTexts | None) -> Embedder | None:
    """Return what the caller or the environment means; None is no embedder."""
    if os.environ.get(MOCKED) == "1":
        return MockEmbedder()
    if choice is None:
        return None
    if choice == "mock":
        return MockEmbedder()
    if choice == "mock-hash":
        return HashEmbedder()
    if callable(choice):
        return FunctionEmbedder(choice)
    raise InvalidRequest(
        f"unknown embedding {choice!r}", remedy="Give 'mock', 'mock-hash' or a function from texts to vectors"
    )


class Embeddings:
    """The vectors of texts asked for lately."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._known = BoundedCache[tuple[int, str], Vector](KEPT)

    def vector(self, text: str, size: int, model: str | None) -> Vector:
        """Return the vector of a text; `model` is the one that the property insists on."""
        embedder = self._embedder
        if embedder is None:
            raise InvalidRequest(
                "nearest with a text needs an embedder, and none is configured",
                remedy="Open the graph with embedding=, or give the query as a vector",
            )
        if model is not None:
            embedder.check_model(model)
        return self._known.get_or_make((size, text), lambda: _checked(embedder([text], size), size))


def _checked(vectors: Sequence[Sequence[float]], size: int) -> Vector:
    if len(vectors) != 1:
        raise InvalidRequest(f"the embedder gave {len(vectors)} vectors for one text")
    vector = np.asarray(vectors[0], dtype=np.float64)
    length = float(np.linalg.norm(vector)) if vector.ndim == 1 else 0.0
    if vector.shape != (size,) or not np.isfinite(length) or length == 0:
        raise InvalidRequest(
            f"the embedder gave no usable vector: {size} finite numbers are wanted, not all zero",
            remedy="Use the model that the vectors of the graph were made with",
        )
    return (vector / length).astype(np.float32)


def _bucketed(text: str, size: int) -> NDArray[np.float64]:
    vector = np.zeros(size)
    for word in _WORD.findall(text.lower()) or [""]:
        digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[(digest >> 1) % size] += 1.0 if digest & 1 else -1.0
    if not vector.any():  # words that cancel out
        vector[0] = 1.0
    return vector


def _direction(text: str, size: int) -> list[float]:
    seed = 0xCBF29CE484222325
    for byte in text.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & _MASK
    values = []
    for _ in range(size):
        seed ^= (seed << 13) & _MASK
        seed ^= seed >> 7
        seed ^= (seed << 17) & _MASK
        values.append(2.0 * (seed / _MASK) - 1.0)
    return values
