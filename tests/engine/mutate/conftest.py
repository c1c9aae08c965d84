"""A graph of people for each test of mutations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.support.people import SCHEMA
from tests.support.places import Place


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    """An empty graph."""
    with og.init(local_place.address, SCHEMA, durability="os") as made:
        yield made
