"""The truth table of validation, written by bulk loads without a session: the same cases and outcomes."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from pathlib import Path
from typing import Any, cast

import pytest

from omnigraph import Graph
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import Receipt
from omnigraph.pipeline.bulk.load import load
from tests.engine.truth.surfaces import Surface
from tests.engine.truth.test_truth_table import planted
from tests.engine.truth.vocabulary import Case, Mode, Put, Step
from tests.spark.bulk.test_truth import EVERY, NAMES, check_row

__all__ = ["planted"]  # a fixture


def surface(mode: Mode) -> Surface:
    """Return bulk loads in one mode, without a session, as a surface of the table."""

    def act(graph: Graph, step: Step) -> Receipt:
        assert isinstance(step, Put)
        given, no_session = cast(Any, NAMES[mode]), cast(Any, None)
        records = list(step.records)
        bare: Callable[..., Receipt] = unwrap(load)  # the check of arguments takes nothing but a session
        return bare(no_session, graph, records, mode=given, replace_types=step.empty, driver_rows=0)

    return Surface(f"alone-{NAMES[mode]}", mode, act)


@pytest.mark.parametrize(("case", "mode"), EVERY[::4])
def test_some_rows(case: Case, mode: Mode, planted: Callable[[Case], Path], tmp_path: Path) -> None:
    check_row(case, surface(mode), LocalExecutor, planted, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("case", "mode"), EVERY)
def test_every_row(case: Case, mode: Mode, planted: Callable[[Case], Path], tmp_path: Path) -> None:
    check_row(case, surface(mode), LocalExecutor, planted, tmp_path)
