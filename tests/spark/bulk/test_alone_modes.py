"""The modes of a bulk load where there is no session: the process that commits does all of it.

The tests are those of local loads; only who carries the load out is another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.engine.load.test_modes import *  # noqa: F403
from tests.engine.load.test_modes import _committed as _committed
from tests.spark.bulk.graphs import BulkGraph
from tests.support.people import SCHEMA
from tests.support.places import Place

# An iterator can only be read where it is: splits are of files, DataFrames or lists.
del test_an_input_that_can_be_read_only_once_is_a_conflict_under_another_schema  # noqa: F821


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    """An empty graph whose loads take the way of large ones, without a session."""
    og.init(local_place.address, SCHEMA, durability="os").close()
    with og.connect(local_place.address, durability="os") as opened:
        yield BulkGraph(opened.store, cast(Any, None), 0)
