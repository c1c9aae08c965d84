"""Findings: what validation found wrong, as values.

Room    engine.validate. Checks return findings, they never raise; whoever asked decides what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from omnigraph.base.errors import ConstraintViolation

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One row, or one set of rows, that breaks one constraint."""

    code: str
    entity_kind: str
    type_name: str
    message: str
    entity_id: str | None = None
    property: str | None = None
    value: str | None = None  # as shown to people, shortened
    place: str | None = None  # "file:line", where the row was read from one


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
        lines = "".join(f"\n  {violation.message}" for violation in self.violations)
        more = f"\n  ... and {self.total - len(self.violations)} more" if self.total > SHOWN else ""
        raise ConstraintViolation(
            f"{doing}: {self.total} violation{'s' if self.total != 1 else ''}{lines}{more}",
            remedy="Nothing was changed; mend the rows and try again",
            violations=[asdict(violation) for violation in self.violations],
            total=self.total,
        )
