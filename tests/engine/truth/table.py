"""The truth table of validation (engine contract 4.3), and the rows that wait for something."""

from __future__ import annotations

from tests.engine.truth.edge_rows import CARDINALITY, ENDPOINTS
from tests.engine.truth.unique_rows import COMPOSITE, EDGES, MORE_TYPED, TYPED, UNIQUE
from tests.engine.truth.value_rows import KEYS, VALUES
from tests.engine.truth.vocabulary import Shape

PARTS = (VALUES, KEYS, UNIQUE, COMPOSITE, TYPED, MORE_TYPED, EDGES, ENDPOINTS, CARDINALITY)

# Rows whose verdict rests on look-ups by value: they run once more on settled fragments.
LOOKED_UP = frozenset(
    f"V-0{number}" for number in (17, 30, 34, 39, 41, 42, 46, 50, 52, 53, 56, 57, 59, 62, 69, 73, 79, 80, 82)
)

TABLE = tuple(case for part in PARTS for case in part)
SETTLED = tuple(case.shaped(Shape.SETTLED) for case in TABLE if case.row in LOOKED_UP)

LATER = {
    "branch merge": ("V-006", "V-008", *(f"V-{number:03d}" for number in range(92, 103))),
    "branch merge, for the second half of the row": ("V-049",),
    "Spark": ("V-022", "V-104"),
    "Spark, for the second half of the row (the first is a test of its own)": ("V-103",),
    "lists of enums, which the schema language does not have": ("V-004",),
}
