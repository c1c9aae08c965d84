"""Params: the values that a request gives to a query's parameters, held to their declared types.

Every surface binds here, so that all of them accept and refuse the same.

`bind_params` takes the declared parameters and a JSON object keyed by their names, without `$`, and returns
stored values, one for each parameter, or raises `BadParameters` with all that is wrong. Dates and datetimes
of Python and arrays of numpy are taken for what JSON would write, a `ParamText` for what its text means as
the declared type.

Nothing is guessed and nothing is ignored: a name that is not declared, a required value that is missing or
null, and a value of another type are errors.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import OutsideYears, day_of, instant_of, read_day, read_instant
from omnigraph.catalog.query.expressions import Parameter, Stored
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.language.literals import RANGES, stored_float

INLINE = "base64:"
_DECIMAL = re.compile(r"-?[0-9]+", re.ASCII)
_SHOWN = 40
_LONGEST = 40  # characters of an integer as text; longer ones fit no type


class BadParameters(InvalidRequest):
    """The parameters do not fit the query; `fields["problems"]` lists every reason."""


class ParamText(str):
    """A value as text, read as the declared type of its parameter says: `--param age=36` is a number."""

    __slots__ = ()


class _Wrong(ValueError):
    """One value is wrong; the text says how."""


def bind_params(parameters: Sequence[Parameter], given: object) -> dict[str, Stored | None]:
    """Return the stored value of every parameter, by name and in declared order."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadParameters("params must be a JSON object", problems=("params must be a JSON object",))
    problems: list[str] = []
    bound: dict[str, Stored | None] = {}
    for parameter in parameters:
        name, declared = parameter.name, parameter.type
        value = given.get(name)
        if value is None:
            bound[name] = None
            if name in given and not declared.nullable:
                problems.append(f"param '{name}': null is not accepted for non-nullable parameter")
            elif not declared.nullable:
                problems.append(f"parameter '{name}' not provided")
            continue
        try:
            plain = _from_text(value, parameter) if isinstance(value, ParamText) else value
            bound[name] = _convert(plain, declared)
        except _Wrong as wrong:
            problems.append(f"param '{name}': {wrong}")
    names = [parameter.name for parameter in parameters]
    problems += [_undeclared(str(key), names) for key in given if key not in names]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BadParameters(f"{problems[0]}{more}", problems=tuple(problems))
    return bound


def _undeclared(name: str, names: Sequence[str]) -> str:
    declared = f"the query declares {', '.join(names)}" if names else "the query declares none"
    return f"unknown parameter '{name[:_SHOWN]}': {did_you_mean(name, names) or declared}"


# -- from JSON ---------------------------------------------------------------------------------------


def _convert(value: object, declared: PropertyType) -> Stored:
    if declared.scalar is Scalar.VECTOR:
        return _vector(value, declared.dimension or 0)
    if not declared.is_list:
        return _scalar(value, declared.scalar)
    if not isinstance(value, list | tuple):
        raise _Wrong(f"expected array for [{declared.scalar.value}], got {_json_type(value)}")
    items: list[str | bool | int | float] = []
    for position, item in enumerate(value):
        try:
            items.append(_scalar(item, declared.scalar))
        except _Wrong as wrong:
            raise _Wrong(f"element {position}: {wrong}") from None
    return tuple(items)


def _vector(value: object, size: int) -> Stored:
    listed = getattr(value, "tolist", None)
    if listed is not None:  # a numpy array
        value = listed()
    if not isinstance(value, list | tuple):
        raise _Wrong(f"expected array for Vector({size}), got {_json_type(value)}")
    if len(value) != size:
        raise _Wrong(f"expected {size} values for Vector({size}), got {len(value)}")
    plain = _plain_vector(value)
    if plain is not None:
        return plain
    items: list[float] = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise _Wrong(f"vector element is not numeric: got {_json_type(item)}")
        items.append(_float(item, Scalar.F32))
    return tuple(items)


def _plain_vector(value: Sequence[object]) -> tuple[float, ...] | None:
    """Convert all numbers at once; None where one of them is not a number that can be stored."""
    if not {*map(type, value)} <= {float, int}:
        return None
    try:
        stored = struct.unpack(f"<{len(value)}f", struct.pack(f"<{len(value)}f", *value))
    except (OverflowError, struct.error):
        return None
    return stored if all(map(math.isfinite, stored)) else None


def _scalar(value: object, scalar: Scalar) -> str | bool | int | float:
    if scalar in INTEGERS:
        return _integer(value, scalar)
    match scalar, value:
        case Scalar.STRING, str() if value.isascii():
            return value
        case Scalar.STRING, str():
            return _text(value)
        case Scalar.BOOL, bool():
            return value
        case Scalar.F32 | Scalar.F64, int() | float() if not isinstance(value, bool):
            return _float(value, scalar)
        case Scalar.DATE | Scalar.DATETIME, str():
            return _time(value, scalar)
        case Scalar.DATETIME, datetime():
            return _time(value, scalar)
        case Scalar.DATE, date() if not isinstance(value, datetime):
            return _time(value, scalar)
        case Scalar.BLOB, str():
            return _blob(_text(value))
        case _:
            raise _Wrong(f"expected {_EXPECTED[scalar]}, got {_json_type(value)}")


_EXPECTED = {
    Scalar.STRING: "string",
    Scalar.BOOL: "boolean",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date string",
    Scalar.DATETIME: "datetime string",
    Scalar.BLOB: "blob URI string",
}


def _text(value: str) -> str:
    """Refuse halves of surrogate pairs, which JSON can spell and no column can hold."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise _Wrong("expected string, got text that is not valid Unicode") from None
    return value


def _integer(value: object, scalar: Scalar) -> int:
    unsigned = scalar in (Scalar.U32, Scalar.U64)
    expected = "expected unsigned integer" if unsigned else "expected integer"
    low, high = RANGES[scalar.value]
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise _Wrong(f"{expected}, got string '{value[:_SHOWN]}'")
        digits = value.removeprefix("-").lstrip("0") or "0"
        if len(digits) > _LONGEST:
            raise _Wrong(f"{value[:_SHOWN]}... exceeds {scalar.value}")
        value = -int(digits) if value.startswith("-") else int(digits)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"{expected}, got {_json_type(value)}")
    if unsigned and value < 0:
        raise _Wrong(f"{expected}, got a negative number")
    if not low <= value <= high:
        shown = str(value) if abs(value) < 10**_SHOWN else "the number"
        raise _Wrong(f"{shown} exceeds {scalar.value}")
    return value


def _float(value: int | float, scalar: Scalar) -> float:
    try:
        wide = float(value)
    except OverflowError:
        raise _Wrong(f"the number exceeds {scalar.value}") from None
    if not math.isfinite(wide):
        raise _Wrong(f"expected float, got {wide}: a number must be finite")
    stored = stored_float(wide, scalar.value)
    if stored is None:
        raise _Wrong(f"{wide} exceeds {scalar.value}")
    return stored


def _time(value: str | date, scalar: Scalar) -> int:
    try:
        if isinstance(value, str):
            return read_day(value) if scalar is Scalar.DATE else read_instant(value)
        return day_of(value) if scalar is Scalar.DATE else instant_of(value)
    except OutsideYears as error:
        raise _Wrong(str(error)) from None
    except ValueError:
        raise _Wrong(f"invalid {scalar.value} literal '{str(value)[:_SHOWN]}'") from None


def _blob(text: str) -> str:
    if not text:
        raise _Wrong("expected blob URI string, got an empty string")
    if text.startswith(INLINE):
        try:
            base64.b64decode(text.removeprefix(INLINE), validate=True)
        except (binascii.Error, ValueError):
            raise _Wrong("expected blob URI string, got invalid base64") from None
    return text


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__


# -- from text -----------------------------------------------------------------------------------------


def _from_text(text: ParamText, parameter: Parameter) -> str | bool | int | float:
    """Return the JSON value that a text means for a declared type."""
    declared = parameter.type
    if declared.is_list or declared.scalar is Scalar.VECTOR:
        raise _Wrong(f"expected array for {declared}, got text; write it as JSON: {parameter.name}:=[...]")
    if declared.scalar is Scalar.BOOL:
        if text not in ("true", "false"):
            raise _Wrong(f"expected boolean, got '{text[:_SHOWN]}'")
        return text == "true"
    if declared.scalar in FLOATS:
        try:
            number = json.loads(text)
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise _Wrong(f"expected float, got '{text[:_SHOWN]}'")
        return number
    return str(text)
