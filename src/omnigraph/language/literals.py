"""Literals: values as both languages write them, and what a literal is as a value of a type.

One reading, used when a schema is checked, when it becomes a catalog, and by queries. `unquote` and
`quote` are for strings. The value of a default is what will be stored: days and milliseconds since 1970 for
Date and DateTime, F32 already rounded; or `NOW`, which is read when a row is written.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.base.times import read_day, read_instant
from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.syntax import BadType, EnumType, Ident, ListType, ScalarType, TypeExpr, VectorType

RANGES = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
LONGEST_INTEGER = 20  # digits of 2**64; longer texts are refused before they are converted
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ESCAPE = re.compile(r"\\([\s\S])")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class LiteralKind(Enum):
    """What sort of literal was written."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class LiteralSyntax:
    """A literal; `text` is the decoded string or date, or the number or word as spelt."""

    kind: LiteralKind
    text: str
    span: Span = field(compare=False, repr=False)


# -- strings and numbers as text ---------------------------------------------------------------------


def unquote(text: str, span: Span, reporter: Reporter, rule: Rule) -> str:
    """Decode a string literal; an unknown escape is reported at its own place and read as its letter."""

    def decode(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in _ESCAPES:
            start = span.start + 1 + match.start()
            reporter.report(
                rule,
                f"unsupported escape sequence: \\{letter}",
                reporter.source.span(start, start + 2),
                'the escapes are \\" \\\\ \\n \\r \\t',
            )
        return _ESCAPES.get(letter, letter)

    return _ESCAPE.sub(decode, text[1:-1])


def quote(text: str) -> str:
    """Return the literal that `unquote` reads back.

    >>> print(quote('say "hi"'))
    "say \\"hi\\""
    """
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(char, escape)
    return f'"{text}"'


def read_integer(text: str, low: int, high: int) -> int | None:
    """Read a whole number, which may be of any length; None when it is not between the bounds.

    >>> read_integer("-007", *RANGES["I32"]), read_integer("9" * 9999, *RANGES["U64"])
    (-7, None)
    """
    digits = text.removeprefix("-").lstrip("0") or "0"
    if len(digits) > LONGEST_INTEGER:
        return None
    value = -int(digits) if text.startswith("-") else int(digits)
    return value if low <= value <= high else None


# -- values ------------------------------------------------------------------------------------------


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


def _of_kind(argument: LiteralSyntax | Ident, kind: LiteralKind, expected_form: str) -> str:
    if not isinstance(argument, LiteralSyntax) or argument.kind is not kind:
        raise LiteralMisfit(expected_form)
    return argument.text


def _integer(argument: LiteralSyntax | Ident, name: str) -> int:
    low, high = RANGES[name]
    expected_form = f"a whole number from {low} to {high}"
    text = _of_kind(argument, LiteralKind.INTEGER, expected_form)
    value = read_integer(text, low, high)
    if value is None:
        raise LiteralMisfit(expected_form)
    return value


def _float(argument: LiteralSyntax | Ident, name: str) -> float:
    expected_form = f"a number within the range of {name}"
    if not isinstance(argument, LiteralSyntax) or argument.kind not in (
        LiteralKind.INTEGER,
        LiteralKind.FLOAT,
    ):
        raise LiteralMisfit(expected_form)
    value = stored_float(float(argument.text), name)
    if value is None:
        raise LiteralMisfit(expected_form)
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
    expected_form = 'now or a day such as "2026-01-31"'
    if name == "DateTime":
        expected_form = 'now or a time such as "2026-01-31T09:00:00Z"'
    text = _of_kind(argument, LiteralKind.STRING, expected_form)
    if name == "Date" and not _DATE.fullmatch(text):
        raise LiteralMisfit(expected_form)
    try:
        return read_instant(text) if name == "DateTime" else read_day(text)
    except ValueError:
        raise LiteralMisfit(expected_form) from None
