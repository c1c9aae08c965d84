"""Entities: the rows of a version by number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.execution.search.documents import Documents

SCHEMA = "node Doc { name: String @key  size: I64 }"


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Documents]:
    made = Documents(tmp_path / "graph.og", SCHEMA)
    yield made
    made.graph.close()


def test_every_row_is_found_without_a_scan_once_it_is_known_which_are_deleted(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A type whose rows are replaced now and then has deleted rows: that is the usual state."""
    documents.put({"id": f"d{n:05d}", "name": f"d{n:05d}", "size": n} for n in range(5_000))
    documents.delete([f"d{n:05d}" for n in range(0, 5_000, 7)])
    documents.put({"id": f"d{n:05d}", "name": f"d{n:05d}", "size": -n} for n in range(1, 30))
    table = documents.table()
    living = {n for n in range(5_000) if n % 7} | set(range(1, 30))
    assert table.rows == len(living) < table.span
    found = table.every()
    scans: list[Any] = []
    scanner = type(table.handle).scanner

    def counted(*given: Any, **named: Any) -> Any:
        scans.append(named)
        return scanner(*given, **named)

    monkeypatch.setattr(type(table.handle), "scanner", counted)

    assert documents.table().every().tolist() == found.tolist() == sorted(found.tolist())
    assert scans == []
    sizes = table.take("size", found).to_pylist()
    assert sorted(map(abs, sizes)) == sorted(living)
