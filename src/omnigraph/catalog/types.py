"""Types: what a property can hold, how it is stored, how it is written down.

Pure values; the text of a type is read in language.schema.

Two types are equal when they admit the same values: enum values are kept sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, assert_never

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.language.syntax import BadType, EnumType, ListType, ScalarType, TypeExpr, VectorType


class Scalar(Enum):
    """The base of a type. An enum is a `STRING` with a closed set of values."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"
    VECTOR = "Vector"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})

_ARROW = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
    # The logical type: storage keeps blobs in Lance's own blob encoding.
    Scalar.BLOB: pa.large_binary(),
}
_NUMBERS = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}
INSTANT = pa.timestamp("ms", "UTC")  # what readers of Arrow get for a DateTime

# A change of type that keeps every value, if each is rewritten in the new one.
WIDENINGS = frozenset(
    {
        (Scalar.I32, Scalar.I64),
        (Scalar.U32, Scalar.U64),
        (Scalar.F32, Scalar.F64),
        (Scalar.DATE, Scalar.DATETIME),
    }
)


# Bytes of one row. Arrow counts the bytes of texts in 32 bits, and a row is held several times on its way.
LARGEST_ROW = 1 << 30


def row_too_large(size: int) -> str:
    """Return what is wrong with a row of this size."""
    return f"the row takes {size} bytes, and a row has at most {LARGEST_ROW}"


@dataclass(frozen=True, slots=True)
class PropertyType:
    """The type of a property."""

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None  # of a vector, and only of a vector

    @classmethod
    def of(cls, expression: TypeExpr) -> PropertyType:
        """Return the type that a checked expression denotes."""
        nullable = expression.nullable
        match expression.shape:
            case ScalarType(name):
                return cls(Scalar(name), nullable)
            case ListType(item):
                return cls(Scalar(item), nullable, is_list=True)
            case VectorType(dimension):
                return cls(Scalar.VECTOR, nullable, dimension=dimension)
            case EnumType(values):
                return cls(Scalar.STRING, nullable, enum_values=tuple(sorted(values)))
            case BadType():
                raise ValueError("a schema with errors has no catalog")
            case _:
                assert_never(expression.shape)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the stored column."""
        if self.scalar is Scalar.VECTOR:
            return pa.list_(pa.field("item", pa.float32()), self.dimension)
        base = _ARROW[self.scalar]
        return pa.list_(pa.field("item", base)) if self.is_list else base

    @property
    def is_enum(self) -> bool:
        """Say whether the values are a closed set."""
        return self.enum_values is not None

    def widens_to(self, other: PropertyType) -> bool:
        """Say whether every value of this type has a place in the other, once rewritten."""
        plain = not self.is_list and not other.is_list
        return plain and (self.scalar, other.scalar) in WIDENINGS

    def extended(self, values: tuple[str, ...]) -> PropertyType:
        """Return the enum with more values."""
        return replace(self, enum_values=tuple(sorted({*(self.enum_values or ()), *values})))

    def __str__(self) -> str:
        if self.enum_values is not None:
            text = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            text = f"Vector({self.dimension})"
        else:
            text = f"[{self.scalar.value}]" if self.is_list else self.scalar.value
        return f"{text}?" if self.nullable else text

    def to_json(self) -> dict[str, Any]:
        """Return the type as plain JSON values."""
        vector = self.scalar is Scalar.VECTOR
        return {
            "scalar": {"Vector": self.dimension} if vector else self.scalar.value,
            "nullable": self.nullable,
            "list": self.is_list,
            "enum_values": None if self.enum_values is None else list(self.enum_values),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PropertyType:
        """Read what `to_json` wrote."""
        scalar, values = value["scalar"], value["enum_values"]
        vector = isinstance(scalar, dict)
        return cls(
            Scalar.VECTOR if vector else Scalar(scalar),
            bool(value["nullable"]),
            bool(value["list"]),
            None if values is None else tuple(values),
            scalar["Vector"] if vector else None,
        )


def repeated(value: pa.Scalar, count: int) -> pa.Array:
    """Return one value for so many rows, also for none: Arrow itself repeats no list zero times."""
    return pa.repeat(value, count) if count else pa.array([], value.type)


def numbers_in(kind: pa.DataType) -> pa.DataType:
    """Return a stored type with numbers for days and instants, of which Python's own dates hold fewer."""
    return _each(kind, lambda leaf: _NUMBERS.get(leaf, leaf))


def readable(kind: pa.DataType) -> pa.DataType:
    """Return a stored type as readers of Arrow get it: an instant is a UTC timestamp, with its time."""
    return _each(kind, lambda leaf: INSTANT if pa.types.is_date64(leaf) else leaf)


def _each(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_each(kind.value_type, change)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_each(field.type, change)) for field in kind])
    return change(kind)
