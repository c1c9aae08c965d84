"""Spark as the judge: the truth table of validation and random changes, with the same verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.base.errors import StorageError
from omnigraph.catalog.model import ID
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.evaluate import judge_sets, questions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import Answer, Read, RelationSide
from omnigraph.engine.write import ExecutorFor
from omnigraph.pipeline.bulk.executor import SparkExecutor, spark_executor
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.engine.truth.surfaces import Surface
from tests.engine.truth.table import SETTLED, TABLE
from tests.engine.truth.test_truth_table import pairs, planted, test_row
from tests.engine.truth.vocabulary import Case
from tests.engine.validate.test_executors_agree import COMMON, Judged, example, judged

__all__ = ["judged", "planted"]  # fixtures
pytestmark = pytest.mark.spark
check_row: Callable[..., None] = test_row
del test_row  # it is run from here with another executor, not once more as it is

EVERY = pairs((*TABLE, *SETTLED))
SOME = EVERY[::60]


@pytest.fixture
def executor(spark: SparkSession, tmp_path: Path) -> ExecutorFor:
    """Spark, as the judge of the graph that a case is run on."""
    return spark_executor(spark, Location.parse(tmp_path / "graph.og"))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "surface"), SOME)
def test_some_rows_of_the_truth_table(
    case: Case, surface: Surface, executor: ExecutorFor, planted: Callable[[Case], Path], tmp_path: Path
) -> None:
    check_row(case, surface, executor, planted, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("case", "surface"), EVERY)
def test_every_row_of_the_truth_table(
    case: Case, surface: Surface, executor: ExecutorFor, planted: Callable[[Case], Path], tmp_path: Path
) -> None:
    check_row(case, surface, executor, planted, tmp_path)


def check_agreement(judged: Judged, spark: SparkSession, data: st.DataObject) -> None:
    """Assert that Spark and DataFusion say the same of one example, in the same order and words."""
    committed, changes = data.draw(example(judged.catalog))
    change = ChangeSet.of(judged.catalog, [one for one in changes if one is not None])
    base = judged.base(committed)
    asked = tuple(questions(change))
    on_spark = SparkExecutor(change, base, spark=spark, location=judged.graph.store.location)
    assert judge_sets(asked, on_spark) == judge_sets(asked, LocalExecutor(change, base, -1))


@pytest.mark.slow
@settings(max_examples=1, derandomize=True, **COMMON)  # type: ignore[arg-type]
@given(data=st.data())
def test_spark_and_datafusion_find_the_same(judged: Judged, spark: SparkSession, data: st.DataObject) -> None:
    check_agreement(judged, spark, data)


@pytest.mark.full
@pytest.mark.timeout(3_000)
@settings(max_examples=100, **COMMON)  # type: ignore[arg-type]
@given(data=st.data())
def test_spark_and_datafusion_find_the_same_in_many_cases(
    judged: Judged, spark: SparkSession, data: st.DataObject
) -> None:
    check_agreement(judged, spark, data)


def test_a_scan_that_fails_is_a_typed_error(spark: SparkSession, tmp_path: Path) -> None:
    address = tmp_path / "graph.og"
    with og.init(address, "node A { k: String @key }", durability="os") as graph:
        graph.load(pa.table({"k": ["a", "b"]}), mode="append", type="A")
        declared = graph.schema.catalog().node("A")
        base = graph.store.rehearse("main", PlannedWrite(PublishPlan(CommitKind.MUTATION)))
        judge = spark_executor(spark, graph.store.location)(ChangeSet(graph.schema.catalog(), {}), base)
        every = Read(RelationSide.BEFORE, declared.table_id, ((ID, ID),))

        assert judge.ask(every, (ID,), 1) == Answer([{"id": "a"}], 2)
        for file in (address / "tables" / declared.table_id / "data").iterdir():
            file.unlink()
        with pytest.raises(StorageError, match="on Spark failed"):
            judge.ask(every, (ID,), 1)
