"""The page about queries knows every code."""

from __future__ import annotations

import re
from pathlib import Path

from omnigraph.language.query import rules

PAGE = Path(__file__).parents[3] / "docs" / "query.md"


def test_the_table_of_codes_is_the_registry() -> None:
    rows = re.findall(r"^\| ([QTL]\d+) \| (\w+) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [(rule.code, rule.severity.value, rule.title) for rule in rules.REGISTRY.values()]
