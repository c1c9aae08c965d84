"""Search: the condition of an update or delete as a typed predicate, and the look-up that serves it.

Room    engine.mutate. A condition that pins one column to some values is looked up by them, which costs the
        same in a table of any size where the column has an index; a key is looked up as the id it makes.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from omnigraph.catalog.keys import NoCanonicalText, canonical_text
from omnigraph.catalog.model import ID, NodeType, TableType
from omnigraph.catalog.query import where as ground
from omnigraph.catalog.query.operands import Stored
from omnigraph.catalog.query.where import Ground
from omnigraph.engine.mutate.pending import Search
from omnigraph.storage.tables import predicate as typed
from omnigraph.storage.tables.predicate import Operator, Predicate


def search(condition: Ground, declared: TableType) -> Search:
    """Return how to find the rows of a type that meet a condition."""
    predicate = _typed(condition)
    pinned = _pinned(condition)
    if pinned is None:
        return Search(predicate)
    exact = pinned is condition
    values = pinned.values if isinstance(pinned, ground.Among) else (pinned.value,)
    found = [value for value in values if value is not None]
    if isinstance(declared, NodeType) and len(declared.key) == 1:
        key = declared.property_by_id(declared.key[0])
        if key.column == pinned.column:
            return Search(predicate, ID, _ids(found, pinned), exact)
    return Search(predicate, pinned.column, pa.array(found, pinned.type.arrow), exact)


def _ids(values: list[Stored], pinned: ground.Compare | ground.Among) -> pa.Array:
    texts = []
    for value in values:
        try:
            texts.append(canonical_text(value, pinned.type))
        except NoCanonicalText:
            continue  # no entity has such a key
    return pa.array(texts, pa.string())


def _pinned(condition: Ground) -> ground.Compare | ground.Among | None:
    """Return a part of the condition without which it is never true, if it pins a column to values."""
    match condition:
        case ground.Compare(operator="=") | ground.Among():
            return condition
        case ground.And(operands):
            return next((found for part in operands if (found := _pinned(part)) is not None), None)
        case _:
            return None


def _typed(condition: Ground) -> Predicate:
    match condition:
        case ground.Compare(column, declared, operator, value) if _is_zero(value):
            return _with_zero(column, declared.arrow, operator)
        case ground.Compare(column, declared, operator, value):
            return typed.Compare(column, _operator(operator), pa.scalar(value, declared.arrow))
        case ground.Among(column, declared, values):
            zeros = (0.0, -0.0) if any(map(_is_zero, values)) else ()
            return typed.IsIn(column, tuple(pa.scalar(v, declared.arrow) for v in (*values, *zeros)))
        case ground.Null(column):
            return typed.IsNull(column)
        case ground.Not(operand):
            return typed.Not(_typed(operand))
        case ground.And(operands):
            return typed.And(tuple(map(_typed, operands)))
        case ground.Or(operands):
            return typed.Or(tuple(map(_typed, operands)))
        case _:
            assert_never(condition)


def _is_zero(value: object) -> bool:
    return isinstance(value, float) and value == 0


def _with_zero(column: str, kind: pa.DataType, operator: str) -> Predicate:
    """Compare with zero so that both zeros are one value, also where -0.0 is ordered below 0.0."""
    if operator in ("=", "!="):
        either = typed.IsIn(column, (pa.scalar(0.0, kind), pa.scalar(-0.0, kind)))
        return either if operator == "=" else typed.Not(either)
    zero = -0.0 if operator in ("<", ">=") else 0.0
    return typed.Compare(column, _operator(operator), pa.scalar(zero, kind))


_OPERATORS: dict[str, Operator] = {"=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _operator(text: str) -> Operator:
    return _OPERATORS[text]
