"""Keys: the canonical text of a value, and the ids made of it.

Loads, mutations, merges, uniqueness and Spark all spell values here, whole Arrow arrays or the Python values
of single rows. A key of one member is the id; a key of several is a compact JSON array of their texts: the
ends of an edge, then properties in the order of their identity, which a rename does not change.

The scalar renderer defines the spelling; the vectorised one must agree with it on every value. Floats have
the fewest digits that read back as the stored value at its width, without exponent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.errors import ConstraintViolation, InvalidRequest
from omnigraph.catalog.model import KeyMember, TableType
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


class NoCanonicalText(ConstraintViolation):
    """The value cannot be part of a key or a unique constraint: null, not finite, or of another type."""


# -- single values -----------------------------------------------------------------------------------


def canonical_text(value: object, declared: PropertyType) -> str:
    """Return the text of one stored value.

    >>> canonical_text(-0.0, PropertyType(Scalar.F64)), canonical_text(1.25, PropertyType(Scalar.F32))
    ('0', '1.25')
    """
    if declared.is_list:
        raise _no_text(declared)
    match declared.scalar, value:
        case Scalar.STRING, str():
            return value
        case Scalar.BOOL, bool():
            return "true" if value else "false"
        case Scalar.F32 | Scalar.F64, int() | float() if not isinstance(value, bool):
            return _float_text(float(value), declared.scalar)
        case Scalar.DATE, date() if not isinstance(value, datetime):
            return str((value - _EPOCH_DAY).days)
        case Scalar.DATETIME, datetime():
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return str((aware - _EPOCH) // _MILLISECOND)
        case (_, int()) if not isinstance(value, bool) and _stored_as_integer(declared.scalar):
            return str(value)
        case ((Scalar.VECTOR | Scalar.BLOB), _):
            raise _no_text(declared)
        case _:
            raise NoCanonicalText(f"{value!r} is not a value of type {declared}", type=str(declared))


def _stored_as_integer(scalar: Scalar) -> bool:
    return scalar in INTEGERS or scalar in (Scalar.DATE, Scalar.DATETIME)


def _float_text(value: float, scalar: Scalar) -> str:
    with np.errstate(over="ignore"):
        stored = np.float32(value) if scalar is Scalar.F32 else np.float64(value)
    if not math.isfinite(stored):
        raise NoCanonicalText(f"{value!r} is not finite", type=scalar.value)
    if stored == 0:
        return "0"
    return np.format_float_positional(stored, unique=True, trim="-")


def derive_id(declared: TableType, row: Mapping[str, object]) -> str:
    """Return the id of one entity from the stored values of its key, given by stored column."""
    if not declared.key:
        raise _no_key(declared)
    return join_key([canonical_text(row.get(member.column), member.type) for member in declared.key_members])


def join_key(texts: Sequence[str]) -> str:
    """Return the id that the texts of the key members make, in the order of the key.

    >>> join_key(["7", "acme"])
    '["7","acme"]'
    """
    if len(texts) == 1:
        return texts[0]
    return json.dumps(list(texts), ensure_ascii=False, separators=(",", ":"))


def edge_text(type_name: str, row_id: str, ends: tuple[str, str]) -> str:
    """Return an edge as people read it: by its ends, and by its id where that says more.

    >>> edge_text("Knows", '["Ada","Bo"]', ("Ada", "Bo")), edge_text("Knows", "e1", ("Ada", "Bo"))
    ('Knows Ada -> Bo', 'Knows Ada -> Bo #e1')
    """
    source, target = ends
    number = "" if row_id == join_key(ends) else f" #{row_id}"
    return f"{type_name} {source} -> {target}{number}"


# -- arrays ------------------------------------------------------------------------------------------


def canonical_texts(values: pa.Array | pa.ChunkedArray, declared: PropertyType) -> pa.Array:
    """Return the texts of stored values; a null stays null."""
    if declared.is_list or declared.scalar in (Scalar.VECTOR, Scalar.BLOB):
        raise _no_text(declared)
    array = _one_array(values)
    if array.type != declared.arrow:
        raise NoCanonicalText(f"a column of {array.type} holds no values of {declared}", type=str(declared))
    match declared.scalar:
        case Scalar.STRING:
            return array
        case Scalar.BOOL | Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return array.cast(pa.string())
        case Scalar.DATE:
            return array.cast(pa.int32()).cast(pa.string())
        case Scalar.DATETIME:
            return array.cast(pa.int64()).cast(pa.string())
        case _:
            return _float_texts(array, declared)


def ids_of_keys(values: pa.Array, declared: PropertyType) -> pa.Array:
    """Return the ids that values of a key of one property make, each once; what is not finite is no key."""
    if declared.scalar in FLOATS:
        values = values.filter(pc.is_finite(values))
    return pc.unique(canonical_texts(values, declared))


def derive_ids(data: pa.RecordBatch | pa.Table, declared: TableType, *, by_column: bool = True) -> pa.Array:
    """Return the id of each row, from its key columns.

    The columns are found under their stored names, or with `by_column=False` under property names.
    """
    if not declared.key:
        raise _no_key(declared)
    texts = []
    for member in declared.key_members:
        column = data.column(member.column if by_column else member.name)
        if column.null_count:
            raise NoCanonicalText(
                f"key property {declared.name}.{member.name} has null values",
                type_name=declared.name,
                property=member.name,
                row=_one_array(column).is_null().to_pylist().index(True),
            )
        texts.append(canonical_texts(column, member.type))
    return join_keys(texts)


def ids_where_whole(declared: TableType, values: Callable[[KeyMember], pa.Array]) -> pa.Array:
    """Return the id of each row; rows whose key has a null or a number that is not finite have none."""
    texts = []
    for member in declared.key_members:
        column = values(member)
        if member.type.scalar in FLOATS:
            column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
        texts.append(canonical_texts(column, member.type))
    return join_keys(texts)


def join_keys(texts: Sequence[pa.Array]) -> pa.Array:
    """Return the ids that columns of member texts make; the vectorised `join_key`."""
    if len(texts) == 1:
        return texts[0]
    parts: list[Any] = []
    for position, column in enumerate(texts):
        parts += ['["' if position == 0 else '","', _escaped(column)]
    return pc.binary_join_element_wise(*parts, '"]', "")


def _escaped(texts: pa.Array) -> pa.Array:
    """Escape for JSON; most values need nothing, so only those that do are looked at one by one."""
    unsafe = pc.match_substring_regex(texts, _NEEDS_ESCAPE)
    if not pc.any(unsafe).as_py():
        return texts
    chosen = texts.filter(unsafe).to_pylist()
    fixed = pa.array([json.dumps(text, ensure_ascii=False)[1:-1] for text in chosen], pa.string())
    return pc.replace_with_mask(texts, unsafe, fixed)


def _float_texts(array: pa.Array, declared: PropertyType) -> pa.Array:
    finite = pc.is_finite(array)
    if pc.any(pc.invert(finite)).as_py():
        row = finite.to_pylist().index(False)
        raise NoCanonicalText(f"{array[row]} is not finite", type=str(declared), row=row)
    texts = array.cast(pa.string())
    # Arrow's own spelling has the right digits; only exponents and the negative zero differ from ours.
    odd = pc.or_(pc.match_substring(texts, "e"), pc.equal(array, pa.scalar(0, array.type)))
    if not pc.any(odd).as_py():
        return texts
    fixed = [_float_text(value, declared.scalar) for value in array.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(fixed, pa.string()))


# -- shared ------------------------------------------------------------------------------------------


def _no_key(declared: TableType) -> InvalidRequest:
    return InvalidRequest(
        f"{declared.kind.value} type {declared.name!r} has no key",
        remedy=f"Give its {declared.kind.value}s generated ids (base.ids.new_id)",
        type_name=declared.name,
    )


def _no_text(declared: PropertyType) -> NoCanonicalText:
    return NoCanonicalText(f"a value of type {declared} has no canonical text", type=str(declared))


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(values.chunks)
