"""The grounds of the fault matrix, and the line that says how much of it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.faults.cells import Store
from tests.faults.ground import Ground
from tests.support.places import Copies
from tests.support.proxy import S3Proxy


@pytest.fixture(scope="session")
def grounds(request: pytest.FixtureRequest) -> Callable[[Store], Ground]:
    """A ground for each kind of store, made when it is first asked for."""
    made: dict[Store, Ground] = {}

    def ground(store: Store) -> Ground:
        if store not in made:
            copies: Copies = request.getfixturevalue(f"{store}_copies")
            made[store] = Ground(copies, store)
        return made[store]

    return ground


@pytest.fixture
def new_proxy(request: pytest.FixtureRequest) -> Iterator[Callable[[], S3Proxy]]:
    """Start a proxy in front of the S3 API when one is asked for."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(S3Proxy(request.getfixturevalue("s3_server").endpoint))
