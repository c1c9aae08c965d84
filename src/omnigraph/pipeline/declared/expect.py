"""Expect: queries of a pipeline that must find nothing.

    transforms -> **expectations** -> load

Room    pipeline.declared. Runs before anything is written. Every expectation is asked, so that all that are
        broken are told at once, each with its first rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import DataFrame

from omnigraph.base.errors import ConstraintViolation
from omnigraph.engine.validate.relation import Violation
from omnigraph.pipeline.declared.report import ExpectationRun
from omnigraph.pipeline.declared.spec import ExpectationSpec, Pipeline

SHOWN = 5
LONGEST = 300


class ExpectationFailed(ConstraintViolation):
    """Rows break an expectation of a pipeline; nothing was published. `fields["violations"]` has some."""

    @classmethod
    def raise_for(cls, pipeline: Pipeline, found: Sequence[ExpectationRun]) -> None:
        """Raise if an expectation is broken."""
        broken = {one.name: one for one in found if one.broken}
        if not broken:
            return
        violations = [
            _violation(f"{pipeline.source.file}:{spec.places['sql'].line}", spec.name, row)
            for spec in pipeline.expectations
            if spec.name in broken
            for row in broken[spec.name].first
        ]
        lines = "".join(f"\n  {one.message}" for one in violations)
        names = ", ".join(repr(name) for name in broken)
        raise cls(
            f"pipeline {pipeline.name!r} is not as expected: {names}{lines}",
            remedy="Nothing was published; mend the rows or the expectation, then run again",
            violations=[asdict(one) for one in violations],
            total=sum(one.broken for one in broken.values()),
        )


def broken_rows(spec: ExpectationSpec, frame: DataFrame) -> ExpectationRun:
    """Ask one expectation; rows are counted only where there are any."""
    first = frame.limit(SHOWN).collect()
    if not first:
        return ExpectationRun(spec.name, 0)
    return ExpectationRun(
        spec.name, frame.count(), tuple(_shown(row.asDict(recursive=True)) for row in first)
    )


def _shown(row: dict[str, object]) -> str:
    text = json.dumps(row, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _violation(place: str, name: str, row: str) -> Violation:
    return Violation("expectation", "row", "", f"{place}: {name}: {row}", place=place)
