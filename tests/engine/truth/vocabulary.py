"""The words of the truth table: a case is data, and says nothing about how a surface is driven.

Room    tests. A case is a schema, what is committed, what is done, and what is expected. `on` names the modes
        that a row speaks of; every surface of such a mode runs it (surfaces.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

Record: TypeAlias = Mapping[str, Any]  # an envelope, as a line of a data file has it
Image: TypeAlias = Mapping[str, Sequence[Record]]  # rows by type name; ids only where they matter


class Mode(Enum):
    """What a surface does with rows."""

    STATEMENTS = "statements"
    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


STATEMENTS, APPEND, MERGE, OVERWRITE = Mode
LOADS = (APPEND, MERGE, OVERWRITE)
EVERY = (STATEMENTS, *LOADS)


def node(type_name: str, **data: Any) -> Record:
    """Return a node as a data file writes it."""
    return {"type": type_name, "data": data}


def edge(type_name: str, source: str, target: str, **data: Any) -> Record:
    """Return an edge as a data file writes it."""
    return {"edge": type_name, "from": source, "to": target, "data": data}


# -- what is done ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Put:
    """Write rows, in the manner of the surface; `empty` names types that an overwrite leaves without any."""

    records: tuple[Record, ...]
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """Run statements; only for surfaces that have them."""

    body: str
    params: Mapping[str, tuple[str, Any]] = field(default_factory=dict)  # name -> (declared type, value)


Step: TypeAlias = Put | Run


def put(*records: Record, empty: tuple[str, ...] = ()) -> Put:
    """Return a step that writes rows."""
    return Put(records, empty)


def run(body: str, **params: tuple[str, Any]) -> Run:
    """Return a step that runs statements."""
    return Run(body, params)


# -- what is expected --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ok:
    """Accepted; the types named hold exactly these rows."""

    final: Image
    affected: tuple[int, int] | None = None  # nodes, edges


@dataclass(frozen=True)
class Refused:
    """Refused with these violations, in this order; `saying` is part of the message."""

    codes: tuple[str, ...]
    saying: str = ""
    entity: tuple[str, str] | None = None  # type and id of the first one


def refused(*codes: str, saying: str = "", entity: tuple[str, str] | None = None) -> Refused:
    """Return the expectation of a refusal."""
    return Refused(codes, saying, entity)


class Shape(Enum):
    """How committed rows lie in storage: look-ups go other ways for small fragments and settled ones."""

    TAIL = "tail"
    SETTLED = "settled"
    BOTH = "both"


@dataclass(frozen=True)
class Case:
    """One line of the truth table, or a part of one."""

    row: str
    title: str
    schema: str  # letters of schemas.py
    does: Step | tuple[Step, ...]  # all but the last succeed
    expect: Ok | Refused
    on: tuple[Mode, ...] = EVERY
    committed: tuple[Record, ...] = ()
    behind: tuple[Record, ...] = ()  # committed by another handle after this one was opened
    during: tuple[Record, ...] = ()  # committed by another handle between staging and publishing
    shape: Shape = Shape.TAIL

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is done, in order."""
        return self.does if isinstance(self.does, tuple) else (self.does,)

    def shaped(self, shape: Shape) -> Case:
        """Return the same case on rows that lie in another way."""
        return replace(self, shape=shape)

    def __str__(self) -> str:
        shape = "" if self.shape is Shape.TAIL else f" ({self.shape.value})"
        return f"{self.row} {self.title}{shape}"
