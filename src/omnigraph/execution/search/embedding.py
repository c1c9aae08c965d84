"""Embedding: text to vectors, for `nearest` with a text.

Whoever opens a graph brings the embedder: "mock", "mock-hash", a function from texts to vectors, or an
`Embedder`, as the surfaces make of a provider (surfaces/embedding); nothing here reaches a network.
EMBEDDINGS_MOCK=1 in the environment wins over it, so that a test run never asks a provider. A text becomes
one vector of the size asked for: checked, L2-normalised, float32, kept for the next query.

The mock hashes words into signed buckets and adds them up, so that texts that share words are near each
other, on every platform alike. `mock-hash` gives every text a direction of its own instead.

Where a property records the model of its vectors, a function must say that it is that model, by an
attribute `model`: vectors of two models do not compare. The mocks stand for every model.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import GraphError, InvalidRequest, Kind, counted

Vector = NDArray[np.float32]
EmbedTexts = Callable[[list[str]], Any]
KEPT = 1_024
MOCKED = "EMBEDDINGS_MOCK"
_WORD = re.compile(r"\w+")
_MASK = (1 << 64) - 1


log = logging.getLogger(__name__)


class EmbeddingUnavailable(GraphError):
    """A provider of vectors did not answer in time, however often it was asked; try again later."""

    code = "embedding_unavailable"
    kind = Kind.UNAVAILABLE
    retryable = True


class EmbeddingRefused(InvalidRequest):
    """A provider of vectors refused what it was asked, or has no key: the remedy names the variable."""

    code = "embedding_refused"


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors: one at a time for queries, many at a time to fill a graph."""

    provider: str  # who does it, as people call it
    batch: int  # texts of one request, at most
    concurrency: int  # requests under way at the same time, at most

    @property
    def model(self) -> str | None:
        """The model that it asks; None if it does not say."""
        ...

    def check_model(self, model: str) -> None:
        """Raise unless vectors of that model may be compared with these."""
        ...

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return a vector for each text that is searched with."""
        ...

    def documents(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return a vector for each text that is searched for; some models tell the two apart."""
        ...


EmbeddingChoice = str | EmbedTexts | Embedder | None  # what a graph is opened with


class MockEmbedder:
    """No network, no key: the same text gives the same vector everywhere."""

    provider = "mock"
    model: str | None = "mock"
    batch = 128
    concurrency = 1

    def check_model(self, model: str) -> None:
        """Stand for every model."""

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Add up the hashed words of each text."""
        return [_bucketed(text, size).tolist() for text in texts]

    def documents(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Do the same: a question is a text like any other."""
        return self(texts, size)


class HashEmbedder(MockEmbedder):
    """Every text a pseudo-random direction; texts that share words are no nearer than others."""

    provider = "mock-hash"
    model: str | None = "mock-hash"

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Derive each direction from a hash of the text."""
        return [_direction(text, size) for text in texts]


class FunctionEmbedder:
    """A function of the caller's."""

    provider = "function"
    batch = 128
    concurrency = 1  # nobody said that it may be called by several threads

    def __init__(self, function: EmbedTexts) -> None:
        self._function = function

    @property
    def model(self) -> str | None:
        """What the function says of itself."""
        model = getattr(self._function, "model", None)
        return None if model is None else str(model)

    def check_model(self, model: str) -> None:
        """Compare with what the function says of itself."""
        own = self.model
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

    def documents(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Ask the function, which does not tell the two apart."""
        return self(texts, size)


def embedder_of(choice: EmbeddingChoice) -> Embedder | None:
    """Return what the caller or the environment means; None is no embedder."""
    if any(os.environ.get(prefix + MOCKED) == "1" for prefix in ("", "OG_", "OMNIGRAPH_")):
        return _mock_instead_of(choice)
    if choice is None:
        return None
    if choice == "mock":
        return MockEmbedder()
    if choice == "mock-hash":
        return HashEmbedder()
    if isinstance(choice, Embedder):
        return choice
    if callable(choice):
        return FunctionEmbedder(choice)
    raise InvalidRequest(
        f"unknown embedding {choice!r}",
        remedy="Give 'openai-compatible', 'openai', 'gemini', 'local', 'mock', 'mock-hash' or a function "
        "from texts to vectors",
    )


def _mock_instead_of(choice: EmbeddingChoice) -> Embedder:
    """Return a mock, and say so where something else was asked for."""
    if choice == "mock-hash" or isinstance(choice, HashEmbedder):
        return HashEmbedder()
    if choice is not None and choice != "mock" and not isinstance(choice, MockEmbedder):
        provider = getattr(choice, "provider", None) or FunctionEmbedder.provider
        name = choice if isinstance(choice, str) else provider
        log.warning("%s=1: vectors of the mock are used instead of those of %r", MOCKED, name)
    return MockEmbedder()


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
                remedy="Open the graph with embedding=, or set EMBED_PROVIDER or the key of a provider "
                "(OPENROUTER_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY), or give the query as a vector",
            )
        if model is not None:
            embedder.check_model(model)
        return self._known.get_or_make((size, text), lambda: unit_vectors(embedder([text], size), 1, size)[0])


def unit_vectors(vectors: Sequence[Sequence[float]], count: int, size: int) -> NDArray[np.float32]:
    """Return vectors as rows of length one, or say why they cannot be used."""
    if len(vectors) != count:
        texts = "one text" if count == 1 else f"{count} texts"
        raise InvalidRequest(
            f"the embedder gave {counted(len(vectors), 'vector')} for {texts}",
            remedy="Nothing of it was used; whoever answers must give a vector for each text, in their order",
        )
    usable = [_unit(vector, size) for vector in vectors]
    return np.stack(usable) if usable else np.zeros((0, size), np.float32)


def _unit(vector: Sequence[float], size: int) -> Vector:
    try:
        numbers = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    length = float(np.linalg.norm(numbers)) if numbers.shape == (size,) else 0.0
    if not np.isfinite(length) or length == 0:
        came = "" if numbers.shape == (size,) or numbers.ndim != 1 else f" (it has {len(numbers)})"
        raise InvalidRequest(
            f"the embedder gave no usable vector: {size} finite numbers are wanted, not all zero{came}",
            remedy="Use the model that the vectors of the graph were made with, and the length of the schema",
        )
    return (numbers / length).astype(np.float32)


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
