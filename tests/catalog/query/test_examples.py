"""Every query of the example projects parses, checks and survives printing."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.catalog.query import lint_queries
from omnigraph.language.query import parse_query, print_queries
from tests.support.catalogs import catalog

EXAMPLES = Path(__file__).resolve().parents[4] / "shared" / "examples"  # beside the project
PROJECTS = sorted(path.parent for path in EXAMPLES.glob("*/schema.pg"))
absent = pytest.mark.skipif(not PROJECTS, reason="the example projects are not on this machine")


@absent
@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_all_queries_check(project: Path) -> None:
    schema = catalog((project / "schema.pg").read_text("utf-8"))
    files = sorted(project.glob("**/*.gq"))
    assert files

    for file in files:
        text = file.read_text("utf-8")
        report = lint_queries(
            text, schema, schema_source={"kind": "file", "path": "schema.pg"}, file=file.name
        )
        assert report.ok, report.to_json()
        assert report.results
        parsed = parse_query(text)
        assert parse_query(print_queries(parsed)) == parsed
