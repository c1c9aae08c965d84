"""A graph to read on the command line: people with values of every kind, and who knows whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omnigraph as og

SHELF = """
node Person {
    slug: String @key
    age: I32?
    bio: String?
    seen: DateTime?
    born: Date?
    tags: [String]?
    score: F64?
    ok: Bool?
}
edge Knows: Person -> Person { since: Date? }
"""
PEOPLE: list[dict[str, Any]] = [
    {
        "slug": "ada",
        "age": 36,
        "bio": 'two\nlines, "quoted"',
        "seen": "2026-01-02T03:04:05.006Z",
        "born": "1990-02-03",
        "tags": ["a", "ü"],
        "score": 0.5,
        "ok": True,
    },
    {"slug": "bo", "age": 9, "bio": ""},
    {"slug": "日本"},
]
RECORDS: list[dict[str, Any]] = [
    *({"type": "Person", "data": person} for person in PEOPLE),
    {"edge": "Knows", "from": "ada", "to": "bo"},
    {"edge": "Knows", "from": "bo", "to": "日本"},
]
QUERIES = """
query everyone() {
    match { $p: Person }
    return { $p.slug, $p.age, $p.bio, $p.seen, $p.born, $p.tags, $p.score, $p.ok }
    order { $p.slug }
}
query ages() { match { $p: Person } return { $p.slug as name, $p.age } order { $p.slug } }
query friends($name: String, $born: Date?, $ages: [I32]?) {
    match { $p: Person { slug: $name }  $p knows $f }
    return { $f.slug, $f.age }
}
query age($name: String, $age: I32) { update Person set { age: $age } where slug = $name }
"""


def make(path: Path) -> str:
    """Make the graph and return its address."""
    with og.init(path, SHELF, durability="os") as graph:
        graph.load(RECORDS, mode="append")
    return str(path)
