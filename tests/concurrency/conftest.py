"""Places that live as long as a module: a race is run once, and each promise about it is a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.places import Place
from tests.support.s3 import S3Server

NewPlace = Callable[[str], Place]


@pytest.fixture(scope="module")
def new_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewPlace:
    """Make an empty place of a kind, "local" or "s3"."""

    def make(kind: str) -> Place:
        if kind == "local":
            return Place(str(tmp_path_factory.mktemp("race") / "graph.og"), {})
        server: S3Server = request.getfixturevalue("s3_server")
        return Place(server.new_address(), server.storage_options())

    return make
