"""The truth table of validation, written by bulk loads: the same cases, the same outcomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import Receipt
from omnigraph.pipeline.bulk.load import load
from tests.engine.truth.surfaces import Surface
from tests.engine.truth.table import SETTLED, TABLE
from tests.engine.truth.test_truth_table import planted, test_row
from tests.engine.truth.vocabulary import APPEND, MERGE, OVERWRITE, Case, Mode, Put, Step

__all__ = ["planted"]  # a fixture
pytestmark = pytest.mark.spark
check_row: Callable[..., None] = test_row
del test_row  # it is run from here with another surface, not once more as it is

MODES = (APPEND, MERGE, OVERWRITE)
NAMES = {APPEND: "append", MERGE: "merge", OVERWRITE: "overwrite"}
EVERY = [
    pytest.param(case, mode, id=f"{case} [{NAMES[mode]}]")
    for case in (*TABLE, *SETTLED)
    for mode in MODES
    if mode in case.on
]


def surface(spark: SparkSession, mode: Mode, driver_rows: int) -> Surface:
    """Return bulk loads in one mode as a surface of the table."""

    def act(graph: Graph, step: Step) -> Receipt:
        assert isinstance(step, Put)
        given: Any = NAMES[mode]
        return load(
            spark, graph, list(step.records), mode=given, replace_types=step.empty, driver_rows=driver_rows
        )

    return Surface(f"spark-{NAMES[mode]}", mode, act)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "mode"), EVERY[::20])
def test_some_rows_finished_by_the_driver(
    case: Case, mode: Mode, spark: SparkSession, planted: Callable[[Case], Path], tmp_path: Path
) -> None:
    check_row(case, surface(spark, mode, 100_000), LocalExecutor, planted, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "mode"), EVERY[5::160])
def test_some_rows_judged_and_written_by_executors(
    case: Case, mode: Mode, spark: SparkSession, planted: Callable[[Case], Path], tmp_path: Path
) -> None:
    check_row(case, surface(spark, mode, 0), LocalExecutor, planted, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("driver_rows", [0, 100_000], ids=["executors", "driver"])
@pytest.mark.parametrize(("case", "mode"), EVERY)
def test_every_row(
    case: Case,
    mode: Mode,
    driver_rows: int,
    spark: SparkSession,
    planted: Callable[[Case], Path],
    tmp_path: Path,
) -> None:
    check_row(case, surface(spark, mode, driver_rows), LocalExecutor, planted, tmp_path)
