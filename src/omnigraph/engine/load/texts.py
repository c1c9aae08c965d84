"""Texts: fields of a text file, as a column of the stored type.

    line -> fields -> **texts** -> column -> block

Room    engine.load. CSV has no types: the declared type says how a field is read.
Rule    strict: no blanks around numbers, no thousands separators, no guessing. An empty field was made null
        before it comes here. Lists and vectors are JSON arrays, days and times as in times.py, or numbers.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.engine.load.cells import cell, one_by_one
from omnigraph.engine.load.column import Column, Misfit, Target
from omnigraph.engine.load.strict_json import InvalidJson, parse
from omnigraph.engine.validate.values import shown
from omnigraph.language.schema.literals import LONGEST_INTEGER

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def texts_column(texts: pa.Array, target: Target) -> Column:
    """Return fields as a column."""
    declared = target.type
    if declared.scalar is Scalar.STRING and not declared.is_list:
        return Column(texts)
    if not declared.is_list and (declared.scalar in INTEGERS or declared.scalar in FLOATS):
        found = _numbers(texts, declared)
        if found is not None:
            return Column(found)
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
        return _integer(text)
    return text


def _integer(text: str) -> int | str:
    digits = text.lstrip("-").lstrip("0")
    if len(digits) > LONGEST_INTEGER:
        raise Misfit(f"{shown(text)} exceeds Int64 range", text)
    return int(text)


def _array(text: str) -> Any:
    try:
        return parse(text)
    except InvalidJson as error:
        raise Misfit(f"expected a JSON array such as [1, 2], found {shown(text)}: {error}", text) from None
