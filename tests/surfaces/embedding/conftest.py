"""A provider of vectors for each test, and no settings of the person who runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.provider import Provider, provider_here


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take settings and keys away, and keep spools in the folder of the test."""
    for name in list(os.environ):
        if "EMBED" in name or name.endswith("_API_KEY") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider on the loopback interface."""
    with provider_here() as running:
        yield running
