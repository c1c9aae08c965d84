"""Merged: the outcome of a merge for one type, and how the type gets there.

Room    engine.merge. Values. A type is merged in this process (write.py) or by whoever was given for those
        that are too large for it; the plan does not see the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from omnigraph.catalog.model import TableType
from omnigraph.engine.change import TypeChange
from omnigraph.engine.merge.choices import Choices
from omnigraph.engine.merge.conflicts import Conflict
from omnigraph.engine.validate.findings import Findings
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.tables.effects import Effect
from omnigraph.storage.transaction import Adopted


@dataclass(frozen=True)
class Counts:
    """What a merge brings to one type."""

    declared: TableType
    inserted: int
    updated: int
    deleted: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Inserted, updated, deleted."""
        return self.inserted, self.updated, self.deleted


@dataclass(frozen=True, slots=True)
class Dropped:
    """What the target loses with the schema: the rows of a type, or the values of a property."""

    kind: str
    type_name: str
    property_name: str | None
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "kind": self.kind,
            "type": self.type_name,
            "property": self.property_name,
            "rows": self.rows,
        }


@dataclass(frozen=True)
class Conflicts:
    """What the sides themselves do not agree on: the first ones, and how many there are."""

    first: tuple[Conflict, ...] = ()
    total: int = 0


@dataclass(frozen=True, eq=False)
class MergedType:
    """The outcome for one type and how it gets there."""

    counts: Counts
    judged: TypeChange  # what the evaluator looks at: everything that is new to what counts as stored
    conflicts: Conflicts = Conflicts()
    met: frozenset[str] = frozenset()  # ids that a choice decided about
    adopted: Adopted | None = None
    image: Pin | None = None  # what the evaluator takes as stored, where that is not the target's version
    effect: Effect | None = None  # what is written on top of the target's version, or of the adopted one
    values: Findings = field(default_factory=Findings)  # of rows that are not in this process

    @property
    def table_id(self) -> str:
        """The table of the type."""
        return self.judged.table_id

    @property
    def changes(self) -> bool:
        """Say whether the merge brings anything to the type."""
        return any(self.counts.numbers)


@dataclass(frozen=True)
class States:
    """Where a merge starts, and the two sides of it."""

    base: ManifestState
    target: ManifestState
    source: ManifestState


class LargeTypes(Protocol):
    """Whoever merges types that are too large for this process."""

    def __call__(self, declared: TableType, states: States, choices: Choices) -> MergedType | None:
        """Merge what both sides did to a type; None if it is small enough to be merged here."""
        ...
