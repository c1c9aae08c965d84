"""Literals: the value that `@default(...)` gives a property, read according to the property's type.

Room    language.schema. One reading, used when the schema is checked and again when it becomes a catalog.
Gives   the value as it will be stored: days and milliseconds since 1970 for Date and DateTime, F32
        already rounded; or `NOW`, which is read when a row is written.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Final, TypeAlias

from omnigraph.base.times import read_day, read_instant
from omnigraph.language.schema.tree import (
    BadType,
    EnumType,
    Ident,
    ListType,
    LiteralKind,
    LiteralSyntax,
    ScalarType,
    TypeExpr,
    VectorType,
)


class DefaultNow:
    """The time at which a row is written. There is one value, `NOW`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOW"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultNow)

    def __hash__(self) -> int:
        return hash(DefaultNow)


NOW: Final = DefaultNow()
DefaultValue: TypeAlias = str | bool | int | float | DefaultNow

RANGES = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
LONGEST_INTEGER = 20  # digits of 2**64; longer texts are refused before they are converted
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class LiteralMisfit(ValueError):
    """The literal is not a value of the type; the text says what would be."""


def default_value(argument: LiteralSyntax | Ident, expected: TypeExpr) -> DefaultValue:
    """Return the stored value of a default, or raise `LiteralMisfit`."""
    match expected.shape:
        case EnumType(values):
            text = _of_kind(argument, LiteralKind.STRING, f"one of {', '.join(sorted(values))}, in quotes")
            if text not in values:
                raise LiteralMisfit(f"one of {', '.join(sorted(values))}")
            return text
        case ScalarType("String"):
            return _of_kind(argument, LiteralKind.STRING, "a string in double quotes")
        case ScalarType("Bool"):
            return _of_kind(argument, LiteralKind.BOOLEAN, "true or false") == "true"
        case ScalarType("F32" | "F64" as name):
            return _float(argument, name)
        case ScalarType("Date" | "DateTime" as name):
            return _time(argument, name)
        case ScalarType(name) if name in RANGES:
            return _integer(argument, name)
        case ScalarType() | ListType() | VectorType() | BadType():
            raise LiteralMisfit("no default: only scalars and enums can have one")


def _of_kind(argument: LiteralSyntax | Ident, kind: LiteralKind, wanted: str) -> str:
    if not isinstance(argument, LiteralSyntax) or argument.kind is not kind:
        raise LiteralMisfit(wanted)
    return argument.text


def _integer(argument: LiteralSyntax | Ident, name: str) -> int:
    low, high = RANGES[name]
    wanted = f"a whole number from {low} to {high}"
    text = _of_kind(argument, LiteralKind.INTEGER, wanted)
    digits = text.removeprefix("-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= LONGEST_INTEGER else high + 1
    value = -value if text.startswith("-") else value
    if not low <= value <= high:
        raise LiteralMisfit(wanted)
    return value


def _float(argument: LiteralSyntax | Ident, name: str) -> float:
    wanted = f"a number within the range of {name}"
    if not isinstance(argument, LiteralSyntax) or argument.kind not in (
        LiteralKind.INTEGER,
        LiteralKind.FLOAT,
    ):
        raise LiteralMisfit(wanted)
    value = stored_float(float(argument.text), name)
    if value is None:
        raise LiteralMisfit(wanted)
    return value


def stored_float(value: float, name: str) -> float | None:
    """Return a number as F32 or F64 stores it, or None when it would not be finite.

    >>> stored_float(0.1, "F32"), stored_float(1e39, "F32")
    (0.10000000149011612, None)
    """
    if name == "F32":
        try:
            value = float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def _time(argument: LiteralSyntax | Ident, name: str) -> int | DefaultNow:
    if isinstance(argument, Ident) and argument.text == "now":
        return NOW
    wanted = 'now or a day such as "2026-01-31"'
    if name == "DateTime":
        wanted = 'now or a time such as "2026-01-31T09:00:00Z"'
    text = _of_kind(argument, LiteralKind.STRING, wanted)
    if name == "Date" and not _DATE.fullmatch(text):
        raise LiteralMisfit(wanted)
    try:
        return read_instant(text) if name == "DateTime" else read_day(text)
    except ValueError:
        raise LiteralMisfit(wanted) from None
