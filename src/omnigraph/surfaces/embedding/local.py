"""Local: vectors from a model on this machine, by the optional package sentence-transformers.

The caller supplies the weights, as a folder. Nothing is ever downloaded: a name that is no folder is refused
before the package is imported, which happens when the first vector is wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omnigraph.base.errors import InvalidRequest
from omnigraph.execution.search.embedding import EmbeddingRefused
from omnigraph.surfaces.embedding.settings import ProviderSettings


class LocalEmbedder:
    """An embedder that runs a model in this process, one batch after the other."""

    def __init__(self, settings: ProviderSettings) -> None:
        if not Path(settings.path).is_dir():
            raise EmbeddingRefused(
                f"there is no folder {settings.path!r} with a model",
                remedy="Give the folder into which the weights were put; nothing is downloaded",
            )
        self._path = settings.path
        self._lock = threading.Lock()
        self._encoder: Any = None
        self.provider = settings.kind
        self.model: str | None = settings.model
        self.batch = settings.batch
        self.concurrency = 1

    def check_model(self, model: str) -> None:
        """Refuse to compare vectors of this model with those of another."""
        if model != self.model:
            raise InvalidRequest(
                f"the stored vectors are of model {model!r}, and the local one is called {self.model!r}",
                remedy=f"Give {{'kind': 'local', 'path': ..., 'model': {model!r}}}, if that is the model",
                model=model,
                active=self.model,
            )

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return the vectors of texts that are searched with."""
        return self._encode(texts, "encode_query")

    def documents(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return the vectors of texts that are searched for."""
        return self._encode(texts, "encode_document")

    def _encode(self, texts: list[str], method: str) -> Sequence[Sequence[float]]:
        with self._lock:
            if self._encoder is None:
                self._encoder = _loaded(self._path)
            encode = getattr(self._encoder, method, None) or self._encoder.encode  # before release 5
            vectors: Sequence[Sequence[float]] = encode(texts, show_progress_bar=False)
            return vectors


def _loaded(path: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise EmbeddingRefused(
            "embedding 'local' needs the package sentence-transformers, which is not installed",
            remedy="pip install sentence-transformers",
        ) from error
    return SentenceTransformer(path, local_files_only=True)
