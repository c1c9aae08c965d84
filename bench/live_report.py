"""Tables of figures with their bounds, and how figures grow; used by `live.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Any

Row = dict[str, Any]


@dataclass
class Table:
    """One question's figures; every row has the same columns or fewer."""

    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **row: Any) -> None:
        """Add a row; underscores in the names of columns stand for spaces."""
        self.rows.append({name.replace("_", " "): value for name, value in row.items()})

    def text(self) -> str:
        """Return the table as people read it."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = [columns, *([_cell(row.get(name)) for name in columns] for row in self.rows)]
        widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
        numbers = [
            all(isinstance(row.get(name), int | float | None) for row in self.rows) for name in columns
        ]
        lines = [
            "  "
            + "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, numbers, strict=True)
            ).rstrip()
            for line in cells
        ]
        return "\n".join([self.title, *lines, *(f"  {note}" for note in self.notes), ""])

    def data(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {"title": self.title, "rows": self.rows, "notes": self.notes}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return (
            f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


def ratio(mine: float | None, other: float | None) -> float | None:
    """Return how many times the other mine is; None where one of them is missing."""
    return None if mine is None or not other else mine / other


def verdict(value: float | None, bound: float | None, *, least: bool = False) -> str:
    """Say whether a figure is within its bound, which is the most it may be, or the least."""
    if bound is None or value is None:
        return ""
    held = value >= bound if least else value <= bound
    return f"{'>=' if least else '<='} {bound:g}: {'held' if held else 'NOT HELD'}"


def alike(mine: Any, other: Any) -> str:
    """Say whether two answers are the same; they must be."""
    if mine is None or other is None:
        return "-"
    return "same" if str(mine) == str(other) else f"DIFFER: {mine} / {other}"


def exponent(sizes: list[int], figures: list[float | None]) -> float | None:
    """Return the slope of the figures over the sizes, both as logarithms: 0 is flat, 1 is linear."""
    known = [(math.log(size), math.log(one)) for size, one in zip(sizes, figures, strict=True) if one]
    if len(known) < 2:
        return None
    return linear_regression([x for x, _ in known], [y for _, y in known]).slope
