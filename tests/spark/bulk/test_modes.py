"""What each mode of a bulk load does with an id that is absent, committed, or given twice.

The tests are those of local loads; only who carries the load out is another.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import Graph
from tests.engine.load.test_modes import *  # noqa: F403
from tests.engine.load.test_modes import _committed as _committed
from tests.spark.bulk.graphs import BulkGraph
from tests.support.people import SCHEMA
from tests.support.places import Place

# An iterator can only be read where it is: executors are given files, DataFrames or lists.
del test_an_input_that_can_be_read_only_once_is_a_conflict_under_another_schema  # noqa: F821

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.fixture(params=[100_000, 0], ids=["driver", "executors"])
def graph(request: pytest.FixtureRequest, local_place: Place, spark: SparkSession) -> Iterator[Graph]:
    """An empty graph, loaded by Spark: small loads finished by the driver, or by executors to the end."""
    og.init(local_place.address, SCHEMA, durability="os").close()
    with og.connect(local_place.address, durability="os") as opened:
        yield BulkGraph(opened.store, spark, request.param)
