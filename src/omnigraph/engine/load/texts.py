"""Texts: fields of a text file, as a column of the stored type.

    line -> fields -> **texts** -> column -> block

CSV has no types: the declared type says how a field is read.

Rule    strict: no blanks around numbers, no thousands separators, no guessing. An empty field was made null
        before it comes here. Lists and vectors are JSON arrays, days and times as in times.py, or numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import keys
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.engine.load.arrow import arrow_column, is_text, text_column
from omnigraph.engine.load.cells import (
    CellMisfit,
    ColumnMisfit,
    ColumnTarget,
    InputColumn,
    cell,
    cells_column,
    one_by_one,
)
from omnigraph.engine.validate.values import Breach, shown
from omnigraph.language.literals import LONGEST_INTEGER

# -- strict json -------------------------------------------------------------------------------------
#
# One value, exactly, with every member once. Python's own scanner does the work. It is narrowed to the
# standard: no NaN, no second member of the same name at any depth, nothing after the value.


BLANKS = " \t\r\n"


class InvalidJson(ValueError):
    """The text is not one JSON value; says what is wrong and, where known, at which column."""


class DuplicateMember(InvalidJson):
    """An object has two members of one name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"duplicate JSON member {shown(name)}")


def parse(text: str) -> Any:
    """Return the value of a text without blanks around it.

    >>> parse('{"a": [1, {"b": null}]}')
    {'a': [1, {'b': None}]}
    """
    try:
        value, end = _DECODER.raw_decode(text)
    except InvalidJson:
        raise
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} at column {error.pos + 1}") from None
    except RecursionError:
        raise InvalidJson("arrays and objects are nested too deeply") from None
    except ValueError:
        raise InvalidJson("a number has too many digits") from None
    if end != len(text):
        raise InvalidJson(f"more text after the value, at column {end + 1}")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise DuplicateMember(name)
            seen.add(name)
    return members


def _no_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_constant)


# -- texts -------------------------------------------------------------------------------------------


_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def texts_column(texts: pa.Array, target: ColumnTarget) -> InputColumn:
    """Return fields as a column."""
    declared = target.type
    if declared.scalar is Scalar.STRING and not declared.is_list:
        return InputColumn(texts)
    if not declared.is_list and (declared.scalar in INTEGERS or declared.scalar in FLOATS):
        numbers = _numbers(texts, declared)
        if numbers is not None:
            return InputColumn(numbers)
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) < len(texts) // 2:
        return one_by_one(encoded.dictionary.to_pylist(), target, _read).taken(encoded.indices)
    return one_by_one(texts.to_pylist(), target, _read)


def _numbers(texts: pa.Array, declared: PropertyType) -> pa.Array | None:
    """Convert all at once, or return None when one of them does not fit."""
    pattern = (_INTEGER if declared.scalar in INTEGERS else _NUMBER).pattern
    if pc.all(pc.match_substring_regex(texts, f"^({pattern})$")).as_py() is False:
        return None
    try:
        if declared.scalar in INTEGERS:
            return texts.cast(declared.arrow)
        wide = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    stored = wide.cast(declared.arrow, safe=False)
    return stored if pc.all(pc.is_finite(stored)).as_py() is not False else None


def _read(text: str, declared: PropertyType) -> Any:
    return cell(_value(text, declared), declared)


def _value(text: str, declared: PropertyType) -> Any:
    """Return the JSON value that a field stands for."""
    if declared.is_list or declared.scalar is Scalar.VECTOR:
        return _array(text)
    if declared.scalar is Scalar.BOOL:
        return _BOOLS.get(text, text)
    if declared.scalar in FLOATS:
        return float(text) if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else text
    if declared.scalar is not Scalar.BLOB and _INTEGER.fullmatch(text):
        return _integer_text(text)
    return text


def _integer_text(text: str) -> int | str:
    digits = text.lstrip("-").lstrip("0")
    if len(digits) > LONGEST_INTEGER:
        raise CellMisfit(f"{shown(text)} exceeds Int64 range", text)
    return int(text)


def _array(text: str) -> Any:
    try:
        return parse(text)
    except InvalidJson as error:
        raise CellMisfit(
            f"expected a JSON array such as [1, 2], found {shown(text)}: {error}", text
        ) from None


# -- endpoints ---------------------------------------------------------------------------------------
#
# What an input says about the ends of an edge, as node ids. An id is the canonical text of the node's key
# (catalog/keys.py). Text is an id, as it stands. Where the node has a key of one property that is not text,
# a typed value of that property (a number, a day) is rendered as the id; CSV fields are read as such a
# value, since all of CSV is text. Ids of composite keys can be given as text only.


def endpoint_node(catalog: Catalog, edge: EdgeType, end: str) -> NodeType:
    """Return the node type at the `src` or `dst` end."""
    node = catalog.by_id.get(edge.source if end == "src" else edge.target)
    assert isinstance(node, NodeType)
    return node


def cells_endpoint(values: Sequence[Any], target: ColumnTarget, node: NodeType) -> InputColumn:
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
            raise CellMisfit(str(error), value) from None

    return one_by_one(values, target, read)


def arrow_endpoint(array: pa.Array, target: ColumnTarget, node: NodeType) -> InputColumn:
    """Return ids from an Arrow column: text, or values of the node's key."""
    key = _typed_key(node)
    if key is None or is_text(array.type) or pa.types.is_null(array.type):
        try:
            return text_column(array, target)
        except ColumnMisfit:
            raise ColumnMisfit(
                f"{target.place} holds the ids of {node.name} nodes, which are text, not {array.type}"
            ) from None
    return _rendered(arrow_column(array, ColumnTarget(target.name, key, target.place)), target, key)


def texts_endpoint(texts: pa.Array, target: ColumnTarget, node: NodeType) -> InputColumn:
    """Return ids from CSV fields."""
    key = _typed_key(node)
    if key is None:
        return InputColumn(texts)
    return _rendered(texts_column(texts, ColumnTarget(target.name, key, target.place)), target, key)


def _typed_key(node: NodeType) -> PropertyType | None:
    if len(node.key) != 1:
        return None
    declared = node.property_by_id(node.key[0]).type
    return None if declared.scalar is Scalar.STRING else declared


def _rendered(column: InputColumn, target: ColumnTarget, key: PropertyType) -> InputColumn:
    values = column.values
    if key.scalar not in FLOATS:
        return InputColumn(keys.canonical_texts(values, key), column.breaches)
    finite = pc.is_finite(values)
    texts = keys.canonical_texts(pc.if_else(finite, values, pa.scalar(None, values.type)), key)
    wrong = pc.invert(pc.fill_null(finite, True))
    if not pc.any(wrong).as_py():
        return InputColumn(texts, column.breaches)

    def describe(row: int) -> tuple[str, str | None]:
        value = shown(values[row].as_py())
        return f"{target.place}: a key is a finite number, not {value}", value

    return InputColumn(texts, (*column.breaches, Breach("type", target.name, wrong, describe)))
