"""Endpoints: what an input says about the ends of an edge, as node ids.

Room    engine.load. An id is the canonical text of the node's key (catalog/keys.py).
Rule    text is an id, as it stands. Where the node has a key of one property that is not text, a typed
        value of that property (a number, a day) is rendered as the id; CSV fields are read as such a value,
        since all of CSV is text. Ids of composite keys can be given as text only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import keys
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.types import FLOATS, PropertyType, Scalar
from omnigraph.engine.load.arrow import arrow_column, is_text, text_column
from omnigraph.engine.load.cells import cell, cells_column, one_by_one
from omnigraph.engine.load.column import Column, ColumnMisfit, Misfit, Target
from omnigraph.engine.load.texts import texts_column
from omnigraph.engine.validate.values import Breach, shown


def endpoint_node(catalog: Catalog, edge: EdgeType, end: str) -> NodeType:
    """Return the node type at the `src` or `dst` end."""
    found = catalog.by_id(edge.source if end == "src" else edge.target)
    assert isinstance(found, NodeType)
    return found


def cells_endpoint(values: Sequence[Any], target: Target, node: NodeType) -> Column:
    """Return ids from Python values."""
    if not set(map(type, values)) - {str, type(None)}:
        return cells_column(values, target)
    key = _typed_key(node)

    def read(value: Any, declared: PropertyType) -> Any:
        if isinstance(value, str) or key is None:
            return cell(value, declared)
        try:
            stored = pa.array([cell(value, key)], key.arrow)
            return keys.canonical_texts(stored, key)[0].as_py()
        except keys.NoCanonicalText as error:
            raise Misfit(str(error), value) from None

    return one_by_one(values, target, read)


def arrow_endpoint(array: pa.Array, target: Target, node: NodeType) -> Column:
    """Return ids from an Arrow column: text, or values of the node's key."""
    key = _typed_key(node)
    if key is None or is_text(array.type) or pa.types.is_null(array.type):
        try:
            return text_column(array, target)
        except ColumnMisfit:
            raise ColumnMisfit(
                f"{target.place} holds the ids of {node.name} nodes, which are text, not {array.type}"
            ) from None
    return _rendered(arrow_column(array, Target(target.name, key, target.place)), target, key)


def texts_endpoint(texts: pa.Array, target: Target, node: NodeType) -> Column:
    """Return ids from CSV fields."""
    key = _typed_key(node)
    if key is None:
        return Column(texts)
    return _rendered(texts_column(texts, Target(target.name, key, target.place)), target, key)


def _typed_key(node: NodeType) -> PropertyType | None:
    if len(node.key) != 1:
        return None
    declared = node.property_by_id(node.key[0]).type
    return None if declared.scalar is Scalar.STRING else declared


def _rendered(column: Column, target: Target, key: PropertyType) -> Column:
    values = column.values
    if key.scalar not in FLOATS:
        return Column(keys.canonical_texts(values, key), column.breaches)
    finite = pc.is_finite(values)
    texts = keys.canonical_texts(pc.if_else(finite, values, pa.scalar(None, values.type)), key)
    wrong = pc.invert(pc.fill_null(finite, True))
    if not pc.any(wrong).as_py():
        return Column(texts, column.breaches)

    def describe(row: int) -> tuple[str, str | None]:
        value = shown(values[row].as_py())
        return f"{target.place}: a key is a finite number, not {value}", value

    return Column(texts, (*column.breaches, Breach("type", target.name, wrong, describe)))
