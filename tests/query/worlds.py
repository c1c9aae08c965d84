"""Worlds: small random graphs, as records to load and as plain graphs to compare with.

Room    tests.query. Values come from small pools, so that they meet: equal numbers of different types,
        parallel edges, self-loops, NULLs everywhere, ids whose order is not that of the records.
Gives   `World`: what is loaded on main, what a branch adds, which nodes it then deletes; `plain` and
        `plain_branch` are the graphs that result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

from omnigraph.catalog.query.expressions import Stored
from tests.query.plain import PlainGraph, Thing, single

SCHEMA = """
node A {
    name: String @key  n: I32? @index  f: F64? @index  g: F32?  s: String? @index  b: Bool? @index
    d: Date? @index  tags: [String]?  nums: [I64]?
}
node B { name: String @key  n: I64?  s: String? @index  u: U32? @index }
node C { n: I32? @index  k: enum(red, blue)? @index }
edge Aa: A -> A { w: I32? @index  t: String? @index }
edge Ab: A -> B { w: F64? }
edge Bb: B -> B { w: I32? }
edge Ba: B -> A
edge Ac: A -> C { w: I32? }
"""
PROPERTIES: dict[str, dict[str, str]] = {
    "A": {
        "name": "String",
        "n": "I32",
        "f": "F64",
        "g": "F32",
        "s": "String",
        "b": "Bool",
        "d": "Date",
        "tags": "[String]",
        "nums": "[I64]",
    },
    "B": {"name": "String", "n": "I64", "s": "String", "u": "U32"},
    "C": {"n": "I32", "k": "enum"},
    "Aa": {"w": "I32", "t": "String"},
    "Ab": {"w": "F64"},
    "Bb": {"w": "I32"},
    "Ba": {},
    "Ac": {"w": "I32"},
}
ENDS = {"Aa": ("A", "A"), "Ab": ("A", "B"), "Bb": ("B", "B"), "Ba": ("B", "A"), "Ac": ("A", "C")}
POOLS: dict[str, list[Any]] = {
    "String": ["", "a", "ab", "B", "b", "é", "a%"],
    "I32": [-2, 0, 1, 2, 3],
    "I64": [-2, 0, 1, 2, 2**53 + 1],
    "U32": [0, 1, 2, 4_000_000_000],
    "F64": [-1.5, 0.0, -0.0, 0.5, 1.0, 2.0],
    "F32": [0.1, 0.5, 1.0, -2.0],
    "Bool": [True, False],
    "Date": ["1969-12-31", "2024-02-29", "2024-03-01"],
    "enum": ["red", "blue"],
}
NAMES = {"A": ["a0", "A1", "a10", "a2", "é"], "B": ["b2", "b1", "B"], "C": ["c1", "c0", "c2"]}


@dataclass(frozen=True)
class World:
    """What to load, and what it amounts to."""

    main: tuple[dict[str, Any], ...]
    branch: tuple[dict[str, Any], ...]
    deleted: tuple[str, ...]  # names of A nodes

    @property
    def plain(self) -> PlainGraph:
        """The graph of main."""
        return plain(self.main)

    @property
    def plain_branch(self) -> PlainGraph:
        """The graph of the branch: deleting a node deletes its edges."""
        kept = []
        for record in (*self.main, *self.branch):
            if record.get("type") == "A" and record["data"]["name"] in self.deleted:
                continue
            if "edge" in record:
                ends = zip((record["from"], record["to"]), ENDS[record["edge"]], strict=True)
                if any(kind == "A" and end in self.deleted for end, kind in ends):
                    continue
            kept.append(record)
        return plain(kept)


def plain(records: list[dict[str, Any]] | tuple[dict[str, Any], ...]) -> PlainGraph:
    """Return records as a plain graph, with stored values."""
    nodes: dict[str, list[Thing]] = {}
    edges: dict[str, list[Thing]] = {}
    for record in records:
        kind = record.get("type") or record["edge"]
        data = record["data"]
        values = {name: stored(data.get(name), scalar) for name, scalar in PROPERTIES[kind].items()}
        identity = data["name"] if "name" in PROPERTIES[kind] else data["id"]
        thing = Thing(kind, identity, values, record.get("from", ""), record.get("to", ""))
        (edges if "edge" in record else nodes).setdefault(kind, []).append(thing)
    return PlainGraph(nodes, edges)


def stored(value: Any, scalar: str) -> Stored | None:
    """Return a loaded value as a column holds it."""
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(value)
    if scalar == "Date":
        return (date.fromisoformat(value) - date(1970, 1, 1)) // timedelta(days=1)
    if scalar == "F32":
        return single(value)
    found: Stored = value
    return found


# -- randomness --------------------------------------------------------------------------------------


def random_world(rnd: Random) -> World:
    """Return a random world; now and then a type has no entities at all."""
    records: list[dict[str, Any]] = []
    for kind, names in NAMES.items():
        for name in names[: rnd.choice([0, 2] + [len(names)] * 8)]:
            identity = {"id": name} if kind == "C" else {"name": name}
            records.append({"type": kind, "data": {**identity, **_values(kind, rnd)}})
    known = {kind: [_name(r) for r in records if r["type"] == kind] for kind in NAMES}
    for kind, (source, target) in ENDS.items():
        if not known[source] or not known[target]:
            continue
        for _ in range(rnd.choice([0, 3, 6, 9])):
            number = len(records)
            data = {"id": f"{kind}{(number * 7) % 23:02d}-{number:03d}", **_values(kind, rnd)}
            ends = rnd.choice(known[source]), rnd.choice(known[target])
            records.append({"edge": kind, "from": ends[0], "to": ends[1], "data": data})
    split = rnd.randint(0, len(records))
    deleted = tuple(sorted(rnd.sample(NAMES["A"], rnd.choice([0, 0, 1, 2]))))
    return World(tuple(records[:split]), tuple(records[split:]), deleted)


def _values(kind: str, rnd: Random) -> dict[str, Any]:
    names = [name for name in PROPERTIES[kind] if name != "name"]
    return {name: _value(PROPERTIES[kind][name], rnd) for name in names if rnd.random() < 0.8}


def _value(scalar: str, rnd: Random) -> Any:
    if not scalar.startswith("["):
        return rnd.choice(POOLS[scalar])
    return [rnd.choice(POOLS[scalar[1:-1]]) for _ in range(rnd.randint(0, 3))]


def _name(record: dict[str, Any]) -> str:
    found: str = record["data"].get("name") or record["data"]["id"]
    return found
