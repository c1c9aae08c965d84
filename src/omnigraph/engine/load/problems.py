"""Problems: what reading found wrong with an input, each with its place.

Room    engine.load. Filled by sources while they read; the load is refused when anything is in it.
Rule    all are counted, the first few are kept: in the order of the inputs, then of the lines, whatever
        order the checks ran in. So the same input always gives the same report.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from omnigraph.engine.validate.findings import SHOWN, Findings, Violation

# The order of report among the problems of one line; the codes are those of the engine contract.
CODES = (
    "syntax",
    "envelope",
    "unknown_type",
    "unknown_property",
    "type",
    "required",
    "enum",
    "range",
    "check",
    "key",
)


@dataclass(slots=True)
class Problems:
    """The first problems of an input, and how many there are in all."""

    shown: int = SHOWN
    total: int = 0
    _kept: list[tuple[tuple[int, int, int, str, int], Violation]] = field(default_factory=list)
    _origins: dict[str, int] = field(default_factory=dict)

    def add(self, violation: Violation, origin: str, position: int) -> None:
        """Take in one problem; `position` is the line or row, 0 for the input as a whole."""
        self.total += 1
        source = self._origins.setdefault(origin, len(self._origins))
        rank = CODES.index(violation.code) if violation.code in CODES else len(CODES)
        # The running number keeps equal problems in the order found, and violations out of the comparison.
        order = (source, position, rank, violation.property or "", self.total)
        if len(self._kept) < self.shown or order < self._kept[-1][0]:
            insort(self._kept, (order, violation), key=lambda entry: entry[0])
            del self._kept[self.shown :]

    def more(self, count: int) -> None:
        """Count problems that come after those already taken in."""
        self.total += count

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first problems, by place."""
        return tuple(violation for _, violation in self._kept)

    def findings(self) -> Findings:
        """Return the problems as validation reports them; `.refuse(...)` raises."""
        return Findings(self.violations, self.total)
