"""Problems: what reading found wrong with an input, each with its place.

Room    engine.load. Filled by sources while they read; the load is refused when anything is in it.
Rule    all are counted, the first few are kept: in the order of the inputs, then of the lines, whatever
        order the checks ran in. So the same input always gives the same report.
        Rows that are left out are counted by their type; a row may have several problems.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.catalog.model import TableType
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.validate.findings import SHOWN, Findings, Violation
from omnigraph.engine.validate.values import Breach, code_rank, violation


@dataclass(slots=True)
class Problems:
    """The first problems of an input, and how many there are in all."""

    shown: int = SHOWN
    total: int = 0
    of_columns: bool = False  # a whole column is wrong, so that no row could be good
    left_out: Counter[str] = field(default_factory=Counter)  # rows by type id; "" where it is not known
    fingerprint: Fingerprint | None = None  # of the rows as they were given, where one is wanted
    _kept: list[tuple[tuple[int, int, int, str, int], Violation]] = field(default_factory=list)
    _origins: dict[str, int] = field(default_factory=dict)

    def add(self, violation: Violation, origin: str, position: int) -> None:
        """Take in one problem; `position` is the line or row, 0 for the input as a whole."""
        self.total += 1
        source = self._origins.setdefault(origin, len(self._origins))
        # The running number keeps equal problems in the order found, and violations out of the comparison.
        order = (source, position, code_rank(violation.code), violation.property or "", self.total)
        if len(self._kept) < self.shown or order < self._kept[-1][0]:
            insort(self._kept, (order, violation), key=lambda entry: entry[0])
            del self._kept[self.shown :]

    def keeps(self, origin: str, position: int) -> bool:
        """Say whether a problem there would be kept; the others are only counted, and need no words."""
        if len(self._kept) < self.shown:
            return True
        source = self._origins.get(origin, len(self._origins))
        return (source, position) <= self._kept[-1][0][:2]

    def count(self, more: int) -> None:
        """Take in problems that would not be kept."""
        self.total += more

    def leave_out(self, declared: TableType | None, rows: int) -> None:
        """Take in that rows are left out."""
        self.left_out["" if declared is None else declared.id] += rows

    def breach(
        self, breach: Breach, declared: TableType, ids: pa.Array | None, origin: str, positions: pa.Array
    ) -> None:
        """Take in the rows that break a rule; rows are in the order of their positions."""
        rows = breach.rows()
        for row in rows[: self.shown]:
            position = positions[int(row)].as_py()
            if not self.keeps(origin, position):
                self.count(1)
                continue
            row_id = None if ids is None else ids[int(row)].as_py()
            found = violation(breach, int(row), declared, row_id, f"{origin}:{position}")
            self.add(found, origin, position)
        self.count(max(len(rows) - self.shown, 0))

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first problems, by place."""
        return tuple(violation for _, violation in self._kept)

    def findings(self) -> Findings:
        """Return the problems as validation reports them; `.refuse(...)` raises."""
        return Findings(self.violations, self.total)
