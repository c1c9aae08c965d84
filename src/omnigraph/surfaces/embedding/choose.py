"""Choose: from what a caller or the environment says to the embedder that a graph is opened with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from omnigraph.execution.search.embedding import EmbeddingChoice
from omnigraph.surfaces.embedding.settings import (
    KINDS,
    LOCAL,
    Environment,
    kind_of_environment,
    read_settings,
)

MOCKS = ("mock", "mock-hash")
ProviderChoice = EmbeddingChoice | Mapping[str, Any]


def embedder_from(choice: ProviderChoice, environment: Environment = os.environ) -> EmbeddingChoice:
    """Return what `Graph` takes: names and settings of providers become embedders, the rest stays.

    Without a choice the environment decides; if it says nothing either, there is no embedder.
    """
    if choice is None:
        kind = kind_of_environment(environment)
        choice = kind if kind is None or kind in MOCKS else {"kind": kind}
    if isinstance(choice, str) and choice in KINDS:
        choice = {"kind": choice}
    if not isinstance(choice, Mapping):
        return choice
    if choice.get("kind") in MOCKS and len(choice) == 1:
        return str(choice["kind"])
    settings = read_settings(choice, environment)
    if settings.kind == LOCAL:
        from omnigraph.surfaces.embedding.local import LocalEmbedder

        return LocalEmbedder(settings)
    from omnigraph.surfaces.embedding.provider import HttpEmbedder

    return HttpEmbedder(settings)
