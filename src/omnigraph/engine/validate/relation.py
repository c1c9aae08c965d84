"""Relation: the questions that set checks ask, and what validation finds, as values.

A small algebra over five sources of rows. evaluate.py builds the questions from the catalog; an executor
answers them: here on Python's sets or DataFusion, on Spark in the pipeline. Columns have plain names of our
own (`id`, `node`, `k0`), so that no executor has to quote one, and no value is ever part of a question. Days
and instants are read as the numbers that are stored, both zeros of a float as one value: so every executor
compares alike.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any, Protocol, TypeAlias, assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import ConstraintViolation


class RelationSide(Enum):
    """Where rows come from."""

    GIVEN = "given"  # the records as given: an id may stand there twice
    CHANGED = "changed"  # the rows to be written, one for each id
    REMOVED = "removed"  # ids to be removed
    COMMITTED = "committed"  # what is stored and stays visible to the checks: nothing, if it is replaced
    BEFORE = "before"  # what is stored, replaced or not


STORED = frozenset({RelationSide.COMMITTED, RelationSide.BEFORE})


@dataclass(frozen=True, slots=True)
class Read:
    """Some columns of one table, each as (name here, stored column)."""

    side: RelationSide
    table: str
    columns: tuple[tuple[str, str], ...]
    label: tuple[tuple[str, str], ...] = ()  # constant columns
    complete: bool = False  # without the rows that have a null among the columns


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows that agree on `on`: the columns of the left, then the other columns of the right."""

    left: Relation
    right: Relation
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Semi:
    """The rows of the left that have a partner on the right."""

    left: Relation
    right: Relation
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Anti:
    """The rows of the left that have none."""

    left: Relation
    right: Relation
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of several relations with the same columns."""

    parts: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Some columns, each combination once."""

    of: Relation
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """The combinations of `by` that more than one row has: how many (`n`), and the `least` and `greatest`
    value of `holder` among them.
    """

    of: Relation
    by: tuple[str, ...]
    holder: str


@dataclass(frozen=True, slots=True)
class Outside:
    """The rows of `of` whose number `n` of partners in `rows` is not between `low` and `high`."""

    of: Relation
    rows: Relation
    on: str
    low: int
    high: int | None


Relation: TypeAlias = Read | Join | Semi | Anti | Union | Pick | Shared | Outside


@dataclass(frozen=True, slots=True)
class Answer:
    """The first rows of an answer, in order, and how many there are."""

    rows: Sequence[Mapping[str, Any]]
    total: int


class Executor(Protocol):
    """Whoever can answer questions about one change."""

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total."""
        ...


def reads(relation: Relation) -> frozenset[Read]:
    """Return every source that a question reads."""
    match relation:
        case Read():
            return frozenset({relation})
        case Join(left, right) | Semi(left, right) | Anti(left, right):
            return reads(left) | reads(right)
        case Union(parts):
            return frozenset().union(*map(reads, parts))
        case Pick(of) | Shared(of):
            return reads(of)
        case Outside(of, rows):
            return reads(of) | reads(rows)
        case _:
            assert_never(relation)


def names(relation: Relation) -> tuple[str, ...]:
    """Return the columns of a relation, in order."""
    match relation:
        case Read(_, _, columns, label):
            return tuple(name for name, _ in (*columns, *label))
        case Join(left, right, on):
            return (*names(left), *(name for name in names(right) if name not in on))
        case Semi(left) | Anti(left):
            return names(left)
        case Union(parts):
            return names(parts[0])
        case Pick(_, columns):
            return columns
        case Shared(_, by):
            return (*by, "n", "least", "greatest")
        case Outside(of):
            return (*names(of), "n")
        case _:
            assert_never(relation)


# -- findings --------------------------------------------------------------------------------------
#
# Checks return findings and never raise; the caller decides what to do with them.


SHOWN = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One row, or one set of rows, that breaks one constraint.

    Of a row that was read from an input, `origin` says from which one and `position` at which line or row.
    """

    code: str
    entity_kind: str
    type_name: str
    message: str
    entity_id: str | None = None
    property: str | None = None
    value: str | None = None  # as shown to people, shortened
    origin: str | None = None  # the name of a file, or "<records>" and the like
    position: int | None = None  # the 1-based line of a text file, or row of anything else

    @builtins.property  # the name is a field of this class
    def place(self) -> str | None:
        """Where the row was read, as people write it: "people.csv:12"."""
        return None if self.origin is None else f"{self.origin}:{self.position}"

    @builtins.property
    def text(self) -> str:
        """The message behind its place, as one line."""
        return self.message if self.origin is None else f"{self.place}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {**asdict(self), "place": self.place}


@dataclass(frozen=True, slots=True)
class Findings:
    """The first violations of a check, and how many there are in all."""

    violations: tuple[Violation, ...] = ()
    total: int = 0

    def __add__(self, other: Findings) -> Findings:
        return Findings((self.violations + other.violations)[:SHOWN], self.total + other.total)

    @classmethod
    def of(cls, violations: Sequence[Violation], total: int | None = None) -> Findings:
        """Keep the first few."""
        return cls(tuple(violations[:SHOWN]), len(violations) if total is None else total)

    def refuse(self, doing: str) -> None:
        """Raise if anything was found."""
        if self.total == 0:
            return
        raise ConstraintViolation(
            f"{doing}: {self.total} violation{'s' if self.total != 1 else ''}",
            remedy="Nothing was changed; mend the rows and try again",
            violations=[violation.to_json() for violation in self.violations],
            total=self.total,
        )


NO_FINDINGS = Findings()
