"""A diff reads what changed, not the table: ten rows of a large table cost a small part of its bytes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.storage.cost import process_totals

SCHEMA = "node Person { name: String @key  age: I32?  city: String?  bio: String? }"
# A row that lies alone costs about 50 KB to fetch, by the pages of its columns: small tables pay more.
SHARES = [
    pytest.param(100_000, 0.05, marks=pytest.mark.slow),
    pytest.param(1_000_000, 0.02, marks=[pytest.mark.full, pytest.mark.timeout(900)]),
]


def people(rows: int) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "name": [f"person-{n:07d}" for n in numbers],
            "age": pa.array([n % 90 for n in numbers], pa.int32()),
            "city": [f"city {n * 7919 % 1000}" for n in numbers],
            "bio": [
                "".join(sha256(f"{n} {part}".encode()).hexdigest() for part in range(4)) for n in numbers
            ],
        }
    )


def stored_bytes(folder: Path) -> int:
    """Return the size of the rows alone, without indexes."""
    return sum(file.stat().st_size for file in folder.glob("tables/*/data/*.lance"))


def change_ten(graph: Graph, rows: int, branch: str) -> set[str]:
    """Update, insert and delete a few rows, spread over the table."""
    names = [f"person-{n * rows // 10:07d}" for n in range(10)]
    updated = [{"type": "Person", "data": {"name": name, "age": 91}} for name in names[:6]]
    new = [{"type": "Person", "data": {"name": f"new-{n}"}} for n in range(2)]
    graph.load(updated + new, mode="merge", branch=branch)
    for name in names[6:8]:
        graph.mutate(f'query q() {{ delete Person where name = "{name}" }}', branch=branch)
    return {*names[:8], "new-0", "new-1"}


@pytest.mark.parametrize(("rows", "share"), SHARES)
def test_ten_rows_cost_a_small_part_of_the_table(tmp_path: Path, rows: int, share: float) -> None:
    place = tmp_path / "graph.og"
    with og.init(place, SCHEMA, durability="os") as graph:
        graph.load(people(rows), type="Person", mode="append")
        graph.ensure_indexes()
        whole = stored_bytes(place)
        graph.branches.create("side")
        changed = change_ten(graph, rows, "side")

    with og.connect(place) as graph:  # a process that knows nothing yet
        before = process_totals().bytes_read
        diff = graph.diff("main", "side")
        counts = [(one.inserted, one.updated, one.deleted) for one in diff.types]
        found = {change.id for change in diff}
        read = process_totals().bytes_read - before

    assert counts == [(2, 6, 2)]
    assert found == changed
    print(f"{rows} rows, {whole} bytes: the diff read {read} bytes, {read / whole:.2%}")
    assert read < share * whole
