"""The schemas of the truth table, by the letters that the engine contract gives them.

Room    tests. Each letter also has rows that are always valid (`next`), for "the next valid write succeeds",
        and `filler`: rows that settle a table without touching what a case is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.engine.truth.vocabulary import Record, edge, node

FILLER = "filler-"


@dataclass(frozen=True)
class Letter:
    """A type of the truth table."""

    text: str
    next: tuple[Record, ...]
    filler: Callable[[int], Record]


def _named(type_name: str, text: str, **required: object) -> Letter:
    return Letter(
        f"node {type_name} {{ name: String @key {text} }}",
        (node(type_name, name="next", **required),),
        lambda n: node(type_name, name=f"{FILLER}{n}", **required),
    )


def _works(card: str) -> Letter:
    low = int(card.partition("..")[0])
    edges = tuple(edge("WorksAt", "next", "next") for _ in range(max(1, low)))
    return Letter(f"edge WorksAt: Person -> Company @card({card})", edges, _filler_edge("WorksAt"))


def _filler_edge(type_name: str, **data: object) -> Callable[[int], Record]:
    return lambda n: edge(type_name, f"{FILLER}{n}", f"{FILLER}{n}", id=f"{FILLER}{n}", **data)


def _knows(body: str = "") -> Letter:
    return Letter(
        f"edge Knows: Person -> Person {body}", (edge("Knows", "next", "next"),), _filler_edge("Knows")
    )


LETTERS = {
    "P": _named("Person", "age: I32? @range(age, 0..120)"),
    "C": _named("Company", ""),
    "U": _named("User", "email: String? @unique"),
    "E": Letter(
        "node Ext { slug: String @key a: String? b: String? @unique(a, b) }",
        (node("Ext", slug="next"),),
        lambda n: node("Ext", slug=f"{FILLER}{n}", a="w", b=f"{FILLER}{n}"),
    ),
    "T": Letter(
        "node Task { name: String @key due: Date @unique }",
        (node("Task", name="next", due="1969-01-01"),),
        lambda n: node("Task", name=f"{FILLER}{n}", due=n),
    ),
    "M": _named("Meter", "v: F64? @unique on: Bool? n: U64? @unique"),
    "D": _named("Clock", "flag: Bool? @unique at: DateTime? @unique n: U64? @unique small: F32? @unique"),
    "R": _named(
        "Member",
        'role: enum(admin, guest) tags: [String]? code: String? @check(code, "^[A-Z]+$")',
        role="guest",
    ),
    "N": Letter("node Thing { value: String }", (node("Thing", value="next"),), lambda n: node("Thing")),
    "F": _named("Gauge", "v: F64? @range(v, 0..1)"),
    "V": _named("Point", "at: Vector(3)?"),
    "KF": Letter(
        "node Level { height: F64 @key note: String? }",
        (node("Level", height=-1.0),),
        lambda n: node("Level", height=1000.0 + n, note=FILLER),
    ),
    "KK": Letter(
        "node Pair { a: String b: String @key(a, b) }",
        (node("Pair", a="next", b="next"),),
        lambda n: node("Pair", a=f"{FILLER}{n}", b="x"),
    ),
    "K": _knows(),
    "KU": _knows("{ @unique(src, dst) }"),
    "X": Letter(
        "edge Rates: Person -> Company { mood: enum(up, down) }",
        (edge("Rates", "next", "next", mood="up"),),
        _filler_edge("Rates", mood="up"),
    ),
    "W1": _works("0..1"),
    "WM": _works("1.."),
    "W2": _works("2.."),
}


def schema_text(letters: str) -> str:
    """Return the schema that some letters make."""
    return "\n".join(LETTERS[letter].text for letter in letters.split())


def next_rows(letters: str) -> list[Record]:
    """Return rows that may always be written: one of each type."""
    return [record for letter in letters.split() for record in LETTERS[letter].next]


def filler_rows(letters: str, count: int) -> list[Record]:
    """Return rows that fill every table."""
    return [LETTERS[letter].filler(n) for letter in letters.split() for n in range(count)]
