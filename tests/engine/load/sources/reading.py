"""Inputs for tests of reading: one schema with every type, and what a load would get of an input."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.conform import MAX_ROWS, LoadProblems, RowBlock
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.validate.relation import SHOWN
from tests.support.catalogs import catalog

NOW_MS = 1_767_603_600_123  # 2026-01-05T09:00:00.123Z
SCHEMA = """
node Person {
  slug: String @key
  age: I32?
  role: enum(admin, guest)?
  code: String?
  joined: DateTime @default(now)
  level: I64 @default(7)
  @range(age, 0..120)
  @check(code, "^[A-Z]+$")
}
node Slot { day: Date row: I32 note: String? @key(day, row) }
node Note { text: String }
node Every {
  name: String @key
  s: String?
  b: Bool?
  i: I32?
  j: I64?
  u: U32?
  v: U64?
  f: F32?
  g: F64?
  d: Date?
  t: DateTime?
  x: Vector(3)?
  o: Blob?
  ls: [String]?
  lb: [Bool]?
  li: [I32]?
  lg: [F64]?
  ld: [Date]?
  lt: [DateTime]?
}
node Gauge { at: F64 @key level: F64? rate: F64? @unique @range(level, 0..1) }
node Day { on: Date @key }
node Number { n: I64 @key }
edge Knows: Person -> Person { since: Date? mood: enum(up, down)? }
edge OnDay: Note -> Day {}
edge Counts: Note -> Number {}
edge Measures: Note -> Gauge {}
edge Takes: Note -> Slot {}
"""
CATALOG = catalog(SCHEMA)


@dataclass
class Reading:
    """What an input gave."""

    report: LoadProblems
    blocks: list[RowBlock]
    progress: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, under property names, without what is null."""
        found = []
        for block in self.blocks:
            names = {p.column: p.name for p in block.declared.properties}
            for row in block.rows.to_pylist():
                found.append({names.get(key, key): value for key, value in row.items() if value is not None})
        return found

    @property
    def problems(self) -> list[tuple[str, str]]:
        """The code and message of each problem that is kept."""
        return [(violation.code, violation.message) for violation in self.report.violations]


def read(
    data: Any, *, using: Catalog = CATALOG, now_ms: int = NOW_MS, shown: int = SHOWN, **options: Any
) -> Reading:
    """Read an input to its end; every block must fit its table."""
    found = Reading(LoadProblems(shown=shown), [])
    source = open_source(data, catalog=using, now_ms=now_ms, **options)
    for block in source.blocks(using, found.report, found.progress.append):
        assert block.rows.schema.equals(block.declared.stored_schema)
        assert 0 < block.rows.num_rows == len(block.positions) <= MAX_ROWS
        block.rows.validate()
        found.blocks.append(block)
    assert found.progress == sorted(found.progress)
    return found


def read_good(data: Any, **options: Any) -> list[dict[str, Any]]:
    """Read an input that has no problem, and return its rows."""
    found = read(data, **options)
    assert found.problems == []
    return found.rows


def lines(*records: Any) -> bytes:
    """Return records as JSONL; text stands for itself."""
    return b"".join((r if isinstance(r, str) else json.dumps(r)).encode() + b"\n" for r in records)


def node(name: str, /, **data: Any) -> dict[str, Any]:
    """Return the envelope of a node."""
    return {"type": name, "data": data}


def edge(name: str, source: Any, target: Any, /, **data: Any) -> dict[str, Any]:
    """Return the envelope of an edge."""
    return {"edge": name, "from": source, "to": target, "data": data}
