"""Columns: how results and parameters are described to machines (query spec 16.1).

Room    catalog.query. The kinds are those that callers know: widths and signs of numbers are folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.types import PropertyType, Scalar

KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}
OBJECT = "object"


@dataclass(frozen=True, slots=True)
class Column:
    """A named value: a result column or a parameter."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None  # of a list
    vector_dim: int | None = None

    @classmethod
    def of(cls, name: str, declared: PropertyType) -> Column:
        """Describe a value of a type.

        >>> Column.of("p.age", PropertyType(Scalar.I32, nullable=True)).to_json()
        {'name': 'p.age', 'kind': 'int', 'nullable': True}
        """
        kind = KINDS[declared.scalar]
        if declared.is_list:
            return cls(name, "list", declared.nullable, item_kind=kind)
        return cls(name, kind, declared.nullable, vector_dim=declared.dimension)

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values; what does not apply is left out."""
        found: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.item_kind is not None:
            found["item_kind"] = self.item_kind
        if self.vector_dim is not None:
            found["vector_dim"] = self.vector_dim
        return found | {"nullable": self.nullable}
