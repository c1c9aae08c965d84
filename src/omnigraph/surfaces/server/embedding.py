"""Embedding: the provider of vectors that a server asks for its callers, by its environment, and a count.

One for all graphs of the process; opened with the settings that `og.connect` reads (docs/search.md).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from omnigraph.base.errors import GraphError
from omnigraph.execution.search.embedding import Embedder, embedder_of
from omnigraph.surfaces.embedding.choose import embedder_from

OK = "ok"
Vectors = Sequence[Sequence[float]]


class CountedEmbedder:
    """An embedder, and how often it was asked with which outcome. As safe for threads as it."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self.provider = embedder.provider
        self.batch = embedder.batch
        self.concurrency = embedder.concurrency

    @property
    def model(self) -> str | None:
        """The model that is asked."""
        return self._embedder.model

    @property
    def calls(self) -> Mapping[str, int]:
        """How often it was asked, by outcome: `ok`, or the code of the error."""
        with self._lock:
            return dict(self._calls)

    def check_model(self, model: str) -> None:
        """Raise unless vectors of that model may be compared with these."""
        self._embedder.check_model(model)

    def __call__(self, texts: list[str], size: int) -> Vectors:
        """Return vectors of texts that are searched with."""
        return self._counted(lambda: self._embedder(texts, size))

    def documents(self, texts: list[str], size: int) -> Vectors:
        """Return vectors of texts that are searched for."""
        return self._counted(lambda: self._embedder.documents(texts, size))

    def _counted(self, ask: Callable[[], Vectors]) -> Vectors:
        outcome = "internal"
        try:
            vectors = ask()
            outcome = OK
            return vectors
        except GraphError as error:
            outcome = error.code
            raise
        finally:
            with self._lock:
                self._calls[outcome] += 1


def embedder_for(environment: Mapping[str, str]) -> CountedEmbedder | None:
    """Return the embedder that an environment means, if any; raises InvalidRequest if it is set wrongly."""
    embedder = embedder_of(embedder_from(None, environment))
    return None if embedder is None else CountedEmbedder(embedder)
