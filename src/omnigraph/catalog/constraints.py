"""Constraints: what rows must satisfy, in terms of property identity.

Room    catalog. A constraint names properties by id, so that a rename does not change it. On edges the
        endpoints `src` and `dst` may stand in place of an id.
Rule    a constraint is a set of properties: the order in which they were written has no meaning, and
        inline and body form are the same constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

ENDPOINTS = ("src", "dst")


def identity_order(identity: str) -> tuple[int, str]:
    """Sort key of ids: the order in which one change allocated them.

    Ids end in a counter of at least four digits; a longer one is a later one.
    """
    return len(identity), identity


def in_identity_order(identities: Iterable[str]) -> tuple[str, ...]:
    """Return distinct ids in the order of their allocation."""
    return tuple(sorted(set(identities), key=identity_order))


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows share the values; a row with a null among them is exempt."""

    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The properties are looked up often. Never changes a result."""

    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= value <= high`, compared as doubles; null is exempt."""

    property: str
    low: float | None
    high: float | None

    def covers(self, other: Range) -> bool:
        """Say whether every value that the other admits is admitted here."""
        low_ok = self.low is None or (other.low is not None and self.low <= other.low)
        high_ok = self.high is None or (other.high is not None and self.high >= other.high)
        return low_ok and high_ok


@dataclass(frozen=True, slots=True)
class Check:
    """The pattern matches somewhere in the value; null is exempt."""

    property: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges of a type may leave one source."""

    low: int = 0
    high: int | None = None

    @property
    def unlimited(self) -> bool:
        """Say whether this limits nothing."""
        return self.low == 0 and self.high is None

    def covers(self, other: Cardinality) -> bool:
        """Say whether every count that the other admits is admitted here."""
        return self.low <= other.low and (
            self.high is None or (other.high is not None and self.high >= other.high)
        )


UNLIMITED = Cardinality()
Constraint: TypeAlias = Unique | Index | Range | Check


def properties_of(constraint: Constraint) -> tuple[str, ...]:
    """Return the ids (or endpoints) that a constraint names."""
    match constraint:
        case Unique(properties) | Index(properties):
            return properties
        case Range(property=name) | Check(property=name):
            return (name,)
        case _:
            assert_never(constraint)


def constraint_json(constraint: Constraint, name: Callable[[str], str]) -> dict[str, Any]:
    """Return a constraint as plain JSON values; `name` says what to write for an id."""
    match constraint:
        case Unique(properties) | Index(properties):
            kind = "unique" if isinstance(constraint, Unique) else "index"
            return {"kind": kind, "properties": sorted(name(p) for p in properties)}
        case Range(column, low, high):
            return {"kind": "range", "property": name(column), "min": _number(low), "max": _number(high)}
        case Check(column, pattern):
            return {"kind": "check", "property": name(column), "pattern": pattern}
        case _:
            assert_never(constraint)


def constraint_from_json(value: dict[str, Any]) -> Constraint:
    """Read what `constraint_json` wrote with ids for names."""
    match value["kind"]:
        case "unique":
            return Unique(in_identity_order(value["properties"]))
        case "index":
            return Index(in_identity_order(value["properties"]))
        case "range":
            low, high = (None if value[side] is None else float(value[side]) for side in ("min", "max"))
            return Range(value["property"], low, high)
        case "check":
            return Check(value["property"], value["pattern"])
        case kind:
            raise ValueError(f"unknown constraint kind {kind!r}")


def card_json(card: Cardinality) -> dict[str, Any]:
    """Return a cardinality in the shape of a constraint."""
    return {"kind": "card", "min": card.low, "max": card.high}


def _number(value: float | None) -> int | float | None:
    """Write whole numbers as such, as far as a double tells them apart."""
    if value is not None and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
