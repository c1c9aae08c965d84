"""The graph of the tests of parity: people of all stored types, companies, edges, and notes to search."""

from __future__ import annotations

from typing import Any

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  height: F64?
  born: Date?
  seen: DateTime?
  member: Bool?
  tags: [String]?
  place: Vector(2)?
  mood: String? @default("calm")
  email: String? @unique
  @range(age, 0..120)
}
node Company { name: String @key }
node Note { slug: String @key  text: String  vec: Vector(16)? @embed("text") @index }
edge Knows: Person -> Person { since: I64? }
edge WorksAt: Person -> Company @card(0..1)
"""
GROWN = SCHEMA.replace("age: I32?", "age: I64?").replace("member: Bool?", "member: Bool?  nick: String?")
KEYED = SCHEMA.replace(
    "edge Knows: Person -> Person { since: I64? }",
    "edge Knows: Person -> Person { since: I64?  @key(src, dst) }",
)
REFUSED = SCHEMA.replace("height: F64?", "height: String?")


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(edge: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": edge, **data}}


RECORDS = [
    person(
        "Ada",
        age=36,
        height=1.7,
        born="1815-12-10",
        seen="2026-05-01T12:00:00.250Z",
        member=True,
        tags=["x", "y"],
        place=[0.25, -1.0],
        email="ada@example.org",
    ),
    person("Bob", age=41, tags=[]),
    person("Cy"),
    person("Zoë", age=7, mood="glad"),
    {"type": "Company", "data": {"name": "Acme"}},
    knows("ab", "Ada", "Bob", since=5_000_000_000),
    knows("bc", "Bob", "Cy"),
    {"edge": "WorksAt", "from": "Ada", "to": "Acme", "data": {"id": "aa"}},
    *(
        {"type": "Note", "data": {"slug": slug, "text": text}}
        for slug, text in {
            "dog": "the dog sleeps in the garden",
            "walk": "we walk the old dog in the park",
            "tax": "the tax return is due in May",
            "plan": "a plan for the garden in the park",
        }.items()
    ),
]
NEAREST = """query near($t: String) {
  match { $n: Note } return { $n.slug } order { nearest($n.vec, $t) } limit 3
}"""
BOTH_RANKED = NEAREST.replace("nearest($n.vec, $t)", "rrf(nearest($n.vec, $t), bm25($n.text, $t))")
ALL = "query all() { match { $p: Person } return { $p.name } }"
ROWS = """query rows() {
  match { $p: Person }
  return { $p.name, $p.age, $p.height, $p.born, $p.seen, $p.member, $p.tags, $p.place, $p.mood }
  order { $p.age desc }
}"""
BY_AGE = "query by($n: I32) { match { $p: Person  $p.age > $n } return { $p.name, $p.age } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
SET = "query set($name: String, $age: I32?) { update Person set { age: $age } where name = $name }"
DROP = "query drop($name: String) { delete Person where name = $name }"
STORED = {
    "people.gq": """query by($n: I32) @description("older than") {
  match { $p: Person  $p.age > $n } return { $p.name, $p.age } order { $p.name }
}
query everybody() { match { $p: Person } return { $p.name } }
""",
    "below/add.gq": ADD,
}
