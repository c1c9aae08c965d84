"""A graph with a value of every kind, and the whole content of any graph to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.times import At
from omnigraph.storage.location import Objects

SCHEMA = """
node All {
  name: String @key
  b: Bool?  i: I32?  l: I64?  u: U32?  w: U64?  f: F32?  d: F64?
  day: Date?  at: DateTime?  raw: Blob?  v: Vector(3)?  mood: enum(calm, wild)?
  bools: [Bool]?  ints: [I32]?  longs: [I64]?  units: [U32]?  wides: [U64]?  floats: [F32]?  doubles: [F64]?
  days: [Date]?  times: [DateTime]?  texts: [String]?
}
node Room { house: String  number: U32  @key(house, number) }
node Note { text: String? }
node Nobody { name: String @key  v: Vector(2)? }
edge About: Note -> All { weight: F64?  seen: DateTime?  raw: Blob? }
edge Inside: All -> Room
"""
FIRST: dict[str, Any] = {
    "name": 'x/"\\\n\u2028\u0085é😀',
    "b": True,
    "i": -(2**31),
    "l": -(2**63),
    "u": 2**32 - 1,
    "w": 2**64 - 1,
    "f": 0.1,
    "d": 5e-324,
    "day": -719_162,  # the first day of year 1
    "at": 253_402_300_799_999,  # the last instant of year 9999
    "raw": "base64:AP8=",
    "v": [0.1, -1.5, 3e38],
    "mood": "wild",
    "bools": [True, False],
    "ints": [-1, 2**31 - 1],
    "longs": [2**63 - 1],
    "units": [0, 2**32 - 1],
    "wides": [2**64 - 1],
    "floats": [0.1, -0.0],
    "doubles": [1e308, 0.1],
    "days": [-1, 0, "2024-02-29"],
    "times": [-1, "2024-02-29T12:00:00.001Z"],
    "texts": ["", "a\nb", "ß"],
}
LISTS = ("bools", "ints", "longs", "units", "wides", "floats", "doubles", "days", "times", "texts")
EMPTY: dict[str, Any] = {
    "name": "",
    "raw": "base64:",
    **{name: [] for name in LISTS},
}
RECORDS: list[dict[str, Any]] = [
    {"type": "All", "data": FIRST},
    {"type": "All", "data": EMPTY},
    {"type": "All", "data": {"name": "nothing"}},
    {"type": "Room", "data": {"house": 'we"st', "number": 12}},
    {"type": "Note", "data": {"id": "n1", "text": "first"}},
    {"type": "Note", "data": {"id": "n2"}},
    {
        "edge": "About",
        "from": "n1",
        "to": FIRST["name"],
        "data": {"weight": 0.1, "seen": -1, "raw": "base64:AA=="},
    },
    {"edge": "About", "from": "n1", "to": FIRST["name"], "data": {"weight": 0.2}},
    {"edge": "About", "from": "n2", "to": "nothing"},
    {"edge": "Inside", "from": "nothing", "to": '["we\\"st","12"]'},
]


def make(path: Path | str, **options: Any) -> Graph:
    """Make the graph, with two commits of it in several fragments."""
    graph = og.init(path, SCHEMA, durability="os", **options)
    graph.load(RECORDS, mode="append")
    graph.load([{"type": "Note", "data": {"id": f"m{n}", "text": "x" * n}} for n in range(50)], mode="append")
    return graph


def content(graph: Graph, at: At | None = None) -> dict[str, pa.Table]:
    """Return everything that a graph holds at a commit, by type."""
    catalog = graph.schema.catalog(at=at)
    nodes = {f"node {t.name}": graph.nodes(t.name, at=at).to_arrow() for t in catalog.nodes}
    return nodes | {f"edge {t.name}": graph.edges(t.name, at=at).to_arrow() for t in catalog.edges}


def reloaded(folder: Any, path: Path, schema: str | Path = SCHEMA) -> dict[str, pa.Table]:
    """Return the content of a new graph that an export was loaded into."""
    with og.init(path, schema, durability="os") as copy:
        copy.load(folder, mode="append")
        return content(copy)


def fetched(objects: Objects, folder: Path) -> Path:
    """Return a folder with a copy of everything that lies on an object store."""
    for key, _ in objects.list():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects.read(key) or b"")
    return folder
