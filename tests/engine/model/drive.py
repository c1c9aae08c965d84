"""The writes of the model, carried out on a real graph, and real images as the model has them.

Room    tests.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph import Graph
from omnigraph.engine.write import Receipt
from tests.engine.model.model import Delete, Image, Insert, Load, Record, Statement, Update, Where
from tests.engine.model.schemas import SCALARS, Kind, Schema

ENDS = {"src": "from", "dst": "to"}


def load(graph: Graph, write: Load) -> Receipt:
    """Run a load."""
    mode: Any = write.mode
    return graph.load([envelope(record) for record in write.records], mode=mode, replace_types=write.empty)


def envelope(record: Record) -> dict[str, Any]:
    """Return a record as a data file has it."""
    data = {name: value for name, value in record.row.items() if name not in ENDS}
    if record.wrong == "unknown_property":
        data["nobody_declared_this"] = 1
    if record.wrong == "type":
        data[record.kind.props[0].name] = [["not", "a", "value"]]
    if record.kind.ends is None:
        return {"type": record.kind.name, "data": data}
    return {"edge": record.kind.name, "from": record.row["src"], "to": record.row["dst"], "data": data}


def mutate(graph: Graph, statements: tuple[Statement, ...]) -> Receipt:
    """Run statements as one mutation; every value is a parameter."""
    text = Text()
    body = " ".join(text.statement(statement) for statement in statements)
    return graph.mutate(f"query q({', '.join(text.declared)}) {{ {body} }}", text.params)


class Text:
    """A mutation while it is being written."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.params: dict[str, Any] = {}

    def statement(self, statement: Statement) -> str:
        """Return one statement."""
        kind = statement.kind
        match statement:
            case Insert(_, row):
                return f"insert {kind.name} {{ {self._assignments(kind, row)} }}"
            case Update(_, values, where):
                assigned = self._assignments(kind, values)
                return f"update {kind.name} set {{ {assigned} }} where {self._where(kind, where)}"
            case Delete(_, where):
                return f"delete {kind.name} where {self._where(kind, where)}"

    def _assignments(self, kind: Kind, row: Any) -> str:
        return ", ".join(f"{ENDS.get(n, n)}: {self._value(kind, n, value)}" for n, value in row.items())

    def _where(self, kind: Kind, where: Where) -> str:
        parts = []
        for test in where.tests:
            left = ENDS.get(test.name, test.name)
            right = "" if test.operator == "is null" else f" {self._value(kind, test.name, test.value)}"
            parts.append(f"{left} {test.operator}{right}")
        return (" and " if where.both else " or ").join(parts)

    def _value(self, kind: Kind, name: str, value: Any) -> str:
        """Declare a parameter and return its name."""
        scalar = "string" if name in ENDS else kind.prop(name).kind
        declared = "String" if scalar in ("enum", "code") else SCALARS[scalar]
        self.declared.append(f"$v{len(self.params)}: {declared}?")
        self.params[f"v{len(self.params)}"] = written(scalar, value)
        return f"$v{len(self.params) - 1}"


def written(scalar: str, value: Any) -> Any:
    """Return a value as a parameter takes it."""
    if value is None:
        return None
    if scalar == "day":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if scalar == "moment":
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)).isoformat()
    return value


def image(graph: Graph, schema: Schema) -> Image:
    """Return everything that a graph holds."""
    found: Image = {}
    for kind in schema.kinds:
        view = graph.nodes(kind.name) if kind.ends is None else graph.edges(kind.name)
        table = view.to_arrow()
        for number, column in enumerate(table.columns):
            if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
                stored = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
                table = table.set_column(number, table.schema.names[number], column.cast(stored))
        found[kind.name] = {row["id"]: row for row in table.to_pylist()}
    return found
