"""Plain: a graph as dictionaries, and what the specification says of single values.

Room    tests.query, under the reference evaluator: comparing, calculating, aggregating, and values
        as JSON.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Any

from omnigraph.catalog.query.expressions import (
    AggregateFunction,
    EntityPart,
    EntityValue,
    OutputRef,
    PropertyValue,
    Stored,
    Value,
    Variable,
    type_of,
)
from omnigraph.catalog.query.statements import Output
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar


@dataclass(frozen=True)
class Thing:
    """A node or an edge; `values` hold every property, NULLs included. Ends are ids."""

    type: str
    id: str
    values: Mapping[str, Stored | None]
    source: str = ""
    target: str = ""


@dataclass(frozen=True)
class PlainGraph:
    """Nodes and edges by the names of their types."""

    nodes: Mapping[str, Sequence[Thing]] = field(default_factory=dict)
    edges: Mapping[str, Sequence[Thing]] = field(default_factory=dict)


class ArithmeticFault(Exception):
    """Division by zero, or an integer out of range: the query fails."""


def rank(value: Any) -> Any:
    """Section 10: NULL is smallest; text goes by its bytes."""
    if value is None:
        return (0, b"")
    return (1, value.encode() if isinstance(value, str) else value)


def aggregate(function: AggregateFunction, values: list[Any]) -> Any:
    """Section 9.1, and 19 for the last two; NULLs are left out already."""
    match function:
        case AggregateFunction.COUNT:
            return len(values)
        case AggregateFunction.COUNT_DISTINCT:
            return len(reduce(lambda seen, one: seen if one in seen else [*seen, one], values, []))
        case AggregateFunction.COLLECT:
            return values
        case _ if not values:
            return None
        case AggregateFunction.SUM:
            return float(sum(values))
        case AggregateFunction.AVG:
            return sum(values) / len(values)
        case AggregateFunction.MIN:
            return min(values, key=rank)
        case AggregateFunction.MAX:
            return max(values, key=rank)


# -- values ------------------------------------------------------------------------------------------


def compare(left: Any, operator: str, right: Any) -> bool:
    one, two = rank(left)[1], rank(right)[1]
    match operator:
        case "=":
            return bool(one == two)
        case "!=":
            return bool(one != two)
        case "<":
            return bool(one < two)
        case "<=":
            return bool(one <= two)
        case ">":
            return bool(one > two)
        case _:
            return bool(one >= two)


def is_column(value: Value, scalar: Scalar) -> bool:
    return isinstance(value, PropertyValue) and value.member.type.scalar is scalar


def single(number: float) -> float:
    """Round to F32, which is how F32 columns compare."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def part_of(thing: Thing, part: EntityPart) -> str:
    match part:
        case EntityPart.ID:
            return thing.id
        case EntityPart.TYPE:
            return thing.type
        case EntityPart.SRC:
            return thing.source
        case EntityPart.DST:
            return thing.target


_RANGES = {Scalar.I64: (-(2**63), 2**63 - 1), Scalar.U64: (0, 2**64 - 1)}


def calculate(operator: str, left: Any, right: Any, kind: PropertyType) -> Any:
    """Section 19: NULL in, NULL out; integers are exact or an error, their division drops the fraction."""
    if left is None or right is None:
        return None
    if operator == "/" and right == 0:
        raise ArithmeticFault
    if kind.scalar not in INTEGERS:
        left, right = float(left), float(right)
    match operator:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case _ if kind.scalar not in INTEGERS:
            result = left / right
        case _:
            whole = abs(left) // abs(right)
            result = whole if (left < 0) == (right < 0) else -whole
    low, high = _RANGES.get(kind.scalar, (-math.inf, math.inf))
    if not all(low <= number <= high for number in (left, right, result)):
        raise ArithmeticFault
    return result


def comparable(value: Any) -> Any:
    return value.id if isinstance(value, Thing) else value


# -- JSON (section 15) -------------------------------------------------------------------------------


def json_value(value: Any, written: Value, outputs: Sequence[Output]) -> Any:
    while isinstance(written, OutputRef):
        written = outputs[written.position].value
    if value is None:
        return None
    kind = type_of(written)
    if isinstance(written, EntityValue):
        return _node(value, written.variable)
    assert kind is not None
    if isinstance(value, tuple | list):
        return [json_scalar(item, kind.scalar) for item in value]
    return json_scalar(value, kind.scalar)


def _node(thing: Thing, variable: Variable) -> dict[str, Any]:
    """Return a node as an object: its id, then every property by name."""
    found: dict[str, Any] = {"id": thing.id}
    for member in sorted(variable.type.properties, key=lambda one: one.name):
        if member.type.scalar is Scalar.BLOB:
            continue
        value, scalar = thing.values[member.name], member.type.scalar
        if isinstance(value, tuple):
            found[member.name] = [json_scalar(item, scalar) for item in value]
        else:
            found[member.name] = None if value is None else json_scalar(value, scalar)
    return found


def json_scalar(value: Any, scalar: Scalar) -> Any:
    """Return one stored value as JSON."""
    if scalar is Scalar.DATE:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if scalar is Scalar.DATETIME:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    return value
