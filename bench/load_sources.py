"""How fast an input becomes blocks: JSONL records, CSV and Parquet rows, and fresh ids, on one core.

    .venv/bin/python bench/load_sources.py [rows]

Nothing is written to a graph: this is the reading half of a load.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.base.ids import new_ids
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.resolve import resolve
from omnigraph.engine.load.conform import LoadProblems
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.schema.schema import load_schema

SCHEMA = """
node Person {
  slug: String @key
  name: String
  age: I32?
  score: F64?
  kind: enum(guest, member)
  joined: DateTime?
  @range(age, 0..150)
}
edge Knows: Person -> Person { since: Date? }
"""
DEFAULT_ROWS = 200_000


def main() -> None:
    """Write the inputs, read them, print the rates."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_ROWS
    catalog = resolve(load_schema(SCHEMA), None, IdMinter("bench")).catalog
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        _jsonl(folder / "people.jsonl", rows)
        _csv(folder / "Person.csv", rows)
        _edges(folder / "Knows.parquet", rows * 10)
        _people(folder / "Person.parquet", rows * 5)
        print(f"{'input':28}{'rows':>12}{'wall s':>10}{'cpu s':>10}{'rows/s (cpu)':>16}")
        for name in ("people.jsonl", "Person.csv", "Person.parquet", "Knows.parquet"):
            _measure(name, lambda path=folder / name: _read(path, catalog))  # type: ignore[misc]
    _measure("new ids, 64K at a time", lambda: sum(len(new_ids(65_536)) for _ in range(rows * 10 // 65_536)))
    _measure("new ids, all at once", lambda: len(new_ids(rows * 10)))


def _measure(name: str, work: Callable[[], int]) -> None:
    wall, cpu = perf_counter(), process_time()
    rows = work()
    wall, cpu = perf_counter() - wall, process_time() - cpu
    print(f"{name:28}{rows:>12,}{wall:>10.2f}{cpu:>10.2f}{rows / cpu:>16,.0f}")


def _read(path: Path, catalog: Catalog) -> int:
    report = LoadProblems()
    source = open_source(path, catalog=catalog, now_ms=0)
    rows: int = sum(block.rows.num_rows for block in source.blocks(catalog, report, lambda _: None))
    report.findings().refuse("load")
    return rows


def _jsonl(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for n in range(rows):
            data = {
                "slug": f"person-{n}",
                "name": f"Person Number {n}",
                "age": n % 90,
                "score": n / 7,
                "kind": "guest",
                "joined": "2026-01-05T09:00:00Z",
            }
            file.write(json.dumps({"type": "Person", "data": data}) + "\n")


def _csv(path: Path, rows: int) -> None:
    with path.open("w") as file:
        file.write("slug,name,age,score,kind,joined\n")
        for n in range(rows):
            file.write(f"person-{n},Person Number {n},{n % 90},{n / 7},guest,2026-01-05T09:00:00Z\n")


def _people(path: Path, rows: int) -> None:
    numbers = np.arange(rows)
    pq.write_table(
        pa.table(
            {
                "slug": pa.array([f"person-{n}" for n in numbers]),
                "name": pa.array([f"Person Number {n}" for n in numbers]),
                "age": pa.array(numbers % 90),
                "score": pa.array(numbers / 7),
                "kind": pa.array(np.where(numbers % 2, "guest", "member")),
                "joined": pa.array(numbers * 1_000_000_000, pa.timestamp("us")),
            }
        ),
        path,
    )


def _edges(path: Path, rows: int) -> None:
    random = np.random.default_rng(7)
    people = pa.array([f"person-{n}" for n in range(100_000)])
    ends = [people.take(pa.array(random.integers(0, len(people), rows))) for _ in range(2)]
    since = pa.array(random.integers(0, 20_000, rows).astype(np.int32)).cast(pa.date32())
    pq.write_table(pa.table({"from": ends[0], "to": ends[1], "since": since}), path)


if __name__ == "__main__":
    main()
