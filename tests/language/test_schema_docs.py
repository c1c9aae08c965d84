"""The page about the schema language says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.language.schema import load, rules

PAGE = Path(__file__).parents[2] / "docs" / "schema.md"
BLOCKS = re.findall(r"^```pg\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.split()[1])
def test_examples_are_valid_schemas(text: str) -> None:
    load(text)


def test_the_table_of_codes_is_the_registry() -> None:
    rows = re.findall(r"^\| (PG\d+) \| (\w+) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [(rule.code, rule.severity.value, rule.title) for rule in rules.REGISTRY.values()]
