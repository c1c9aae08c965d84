"""The line that says how much of the fault matrix ran, and what became of every cell that did not.

Room    tests. Reads the reports of a run by the names of its cells: under xdist that is all there is.
Counts  a cell is violated if any part of it failed, the making of its ground included; one that was skipped
        is named with its reason, and one that was not asked for is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from tests.faults.cells import STORES, Cell, every_cell, everyday

NAMED = 10  # cells of one reason that are named


class Report(Protocol):
    """What a test run says of one part of one test."""

    @property
    def nodeid(self) -> str:
        """The test."""

    @property
    def when(self) -> str | None:
        """Which part."""

    @property
    def failed(self) -> bool:
        """Whether it failed."""

    @property
    def skipped(self) -> bool:
        """Whether it was skipped."""

    @property
    def longrepr(self) -> object:
        """Why."""


class Ran(NamedTuple):
    """What became of cells, by their names."""

    ran: frozenset[str]
    violated: frozenset[str]
    skipped: Mapping[str, str]  # with the reason


def told_by(reports: Iterable[Report]) -> Ran:
    """Read reports of cells."""
    ran, violated, skipped = set[str](), set[str](), dict[str, str]()
    for report in reports:
        name = report.nodeid.partition("[")[2].partition("]")[0]
        if report.failed:
            violated.add(name)
        if report.skipped:
            skipped[name] = _reason(report.longrepr)
        elif report.when == "call":
            ran.add(name)
    return Ran(frozenset(ran), frozenset(violated), skipped)


def _reason(told: object) -> str:
    """Return why a test was skipped: pytest says where, in which line, and why."""
    return str(told[2]) if isinstance(told, tuple) and len(told) == 3 else str(told)


def lines(found: Ran) -> Iterator[str]:
    """Yield the line of the matrix, then the cells that were skipped, by reason."""
    cells, share = list(every_cell()), {str(cell) for cell in everyday()}
    names = {str(cell) for cell in cells}
    missed = names - found.ran - found.violated - found.skipped.keys()
    stores = ", ".join(_of_store(store, cells, found) for store in STORES)
    yield (
        f"fault matrix: {len(cells)} cells exist, {len(found.ran)} ran ({stores}), {len(found.violated)}"
        f" violated, {len(found.skipped)} skipped; not asked for: {len(missed & share)} of the {len(share)}"
        f" ({len(share) / len(cells):.0%}) of every day, {len(missed - share)} of those that only --full runs"
    )
    for reason, count in sorted(Counter(found.skipped.values()).items()):
        which = sorted(name for name, why in found.skipped.items() if why == reason)
        rest = f" and {count - NAMED} more" if count > NAMED else ""
        yield f"  skipped: {', '.join(which[:NAMED])}{rest}: {reason}"


def _of_store(store: str, cells: list[Cell], found: Ran) -> str:
    exist = [str(cell) for cell in cells if cell.store == store]
    return f"{store} {sum(name in found.ran for name in exist)} of {len(exist)}"
