"""A graph with two people in it, and the same graph as another process sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, Upsert
from tests.storage.docs import DOC, START, make_docs, table
from tests.support.graphs import PERSON, make_graph, people, write
from tests.support.places import Place
from tests.support.stores import again


@pytest.fixture
def store(place: Place) -> Iterator[GraphStore]:
    """A graph with two people, as one process sees it."""
    with make_graph(place.address, durability="os", **place.kwargs) as made:
        write(made, {PERSON: Upsert(people(["a", "b"], age=1))})
        yield made


@pytest.fixture
def rival(place: Place, store: GraphStore) -> Iterator[GraphStore]:
    """The same graph, as another process sees it: nothing shared but the address."""
    with again(place) as other:
        yield other


@pytest.fixture
def docs(place: Place) -> Iterator[GraphStore]:
    """A graph with one table of three documents."""
    with make_docs(place.address, **place.kwargs) as made:
        write(made, {DOC: Append(table(START))})
        yield made
