"""The page about the schema language knows every migration code and step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from omnigraph.catalog import steps
from omnigraph.catalog.steps import Step, UnsupportedChange

PAGE = (Path(__file__).parents[2] / "docs" / "schema.md").read_text("utf-8")


def test_the_table_of_codes_is_the_registry() -> None:
    rows = re.findall(r"^\| (OG-\w+-\d+) \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)

    assert rows == [(rule.code, rule.severity.value, rule.title) for rule in steps.REGISTRY.values()]


def test_every_step_is_in_the_table_of_changes() -> None:
    kinds = {step.kind for step in get_args(Step) if step is not UnsupportedChange}

    assert {kind for kind in kinds if f"`{kind}`" not in PAGE} == set()
