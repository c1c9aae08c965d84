"""Entities: the rows of a version by number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.execution.search.documents import Documents
from tests.support.derived import EVERYTHING, small_tiers

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


def test_values_that_were_picked_before_are_right_when_more_are_picked_than_are_remembered(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiers(monkeypatch, EVERYTHING)
    monkeypatch.setattr("omnigraph.execution.columns.PICK_COST", 0)
    monkeypatch.setattr("omnigraph.execution.columns.MOST_PICKS", 10)
    documents.put({"id": f"d{n:05d}", "name": f"d{n:05d}", "size": n} for n in range(1_000))
    table = documents.table()

    for start in range(0, 60, 4):
        picked = table.take("size", np.arange(start, start + 15))
        assert picked.to_pylist() == list(range(start, start + 15))


def test_a_column_whose_values_are_known_is_not_picked_again_with_others(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiers(monkeypatch, EVERYTHING)
    monkeypatch.setattr("omnigraph.execution.columns.PICK_COST", 0)
    documents.put({"id": f"d{n:05d}", "name": f"d{n:05d}", "size": n} for n in range(1_000))
    table, picked = documents.table(), list[Any]()
    take_rows = type(table.handle)._take_rows

    def counted(handle: Any, rows: Any, **named: Any) -> Any:
        picked.append((named["columns"], len(rows)))
        return take_rows(handle, rows, **named)

    monkeypatch.setattr(type(table.handle), "_take_rows", counted)
    ordinals = np.array([3, 500, 900])
    table.take("id", ordinals)
    both = table.take_all(["id", "size"], np.array([3, 500, 900]))

    assert both["size"].to_pylist() == ordinals.tolist()
    assert both["id"].to_pylist() == [f"d{n:05d}" for n in ordinals]
    assert picked == [(["id"], 3), (["size"], 3)]
