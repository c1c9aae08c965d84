"""Protocols: how the two sorts of providers are asked, and what their answers mean.

    texts -> Asking (path, headers, body) -> ... -> document -> vectors

Values only; provider.py does the asking.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote

from omnigraph.base.dataclass import dataclass
from omnigraph.surfaces.embedding.settings import GEMINI, ProviderSettings

QUERY, DOCUMENT = "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"
GEMINI_BATCH = 100  # requests that it takes in one


class NotUnderstood(Exception):
    """The answer is not what the protocol promises."""


@dataclass(frozen=True)
class Asking:
    """One request."""

    path: str
    body: Any


class ProviderProtocol(Protocol):
    """How a provider is asked."""

    most: int  # texts of one request

    def headers(self, key: str) -> dict[str, str]:
        """Return what carries the key."""
        ...

    def asking(self, texts: list[str], size: int, role: str) -> Asking:
        """Return the request for some texts."""
        ...

    def vectors(self, document: Any) -> list[Any]:
        """Return the vectors of an answer, in the order of the texts; raise `NotUnderstood`."""
        ...


class OpenAiProtocol:
    """`POST {base}/embeddings` for any number of texts."""

    most = 128

    def __init__(self, model: str) -> None:
        self._model = model

    def headers(self, key: str) -> dict[str, str]:
        """Return what carries the key."""
        return {"Authorization": f"Bearer {key}"}

    def asking(self, texts: list[str], size: int, role: str) -> Asking:
        """Return the request for some texts; these models do not tell queries from documents."""
        return Asking("/embeddings", {"model": self._model, "input": texts, "dimensions": size})

    def vectors(self, document: Any) -> list[Any]:
        """Return the vectors by their index, which need not be the order in which they come."""
        try:
            rows = document["data"]
            indexes = [row.get("index", at) for at, row in enumerate(rows)]
            if sorted(indexes) != list(range(len(rows))):
                raise NotUnderstood("the answer numbers its vectors wrongly")
            by_index = dict(zip(indexes, rows, strict=True))
            return [by_index[at]["embedding"] for at in range(len(rows))]
        except (AttributeError, KeyError, TypeError, IndexError) as error:
            raise NotUnderstood("the answer is not a list of embeddings") from error


class GeminiProtocol:
    """`models/{model}:embedContent` for one text, `:batchEmbedContents` for several."""

    most = GEMINI_BATCH

    def __init__(self, model: str) -> None:
        self._model = model.removeprefix("models/")

    def headers(self, key: str) -> dict[str, str]:
        """Return what carries the key; never the address, which ends up in logs."""
        return {"x-goog-api-key": key}

    def asking(self, texts: list[str], size: int, role: str) -> Asking:
        """Return the request for some texts."""
        path = f"/models/{quote(self._model, safe='')}"
        requests = [
            {
                "model": f"models/{self._model}",
                "content": {"parts": [{"text": text}]},
                "taskType": role,
                "outputDimensionality": size,
            }
            for text in texts
        ]
        if len(requests) == 1:
            return Asking(f"{path}:embedContent", requests[0])
        return Asking(f"{path}:batchEmbedContents", {"requests": requests})

    def vectors(self, document: Any) -> list[Any]:
        """Return the vectors, which come in the order of the texts."""
        try:
            rows = [document["embedding"]] if "embedding" in document else document["embeddings"]
            return [row["values"] for row in rows]
        except (KeyError, TypeError) as error:
            raise NotUnderstood("the answer is not a list of embeddings") from error


def protocol_of(settings: ProviderSettings) -> ProviderProtocol:
    """Return how the provider of some settings is asked."""
    return GeminiProtocol(settings.model) if settings.kind == GEMINI else OpenAiProtocol(settings.model)
