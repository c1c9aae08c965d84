"""Columns: editing a table's schema with field ids kept.

Room    storage.tables. Lance's own conversion from Arrow renumbers field ids, and a projection with
        renumbered ids silently returns another column's values (lance-facts B11). So the stored
        field messages are edited directly.
Layout  protobuf message lance.file.Field: 2 name, 3 id, 4 parent id (-1 at top level), 6 nullable;
        a schema is its fields, depth first. Only the members edited are decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from omnigraph.storage.opener import Handle

NAME, FIELD_ID, PARENT_ID = 2, 3, 4
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
TOP_LEVEL = -1
Message = list[tuple[int, int, Any]]  # (field number, wire type, value)


def with_column(handle: Handle, column: pa.Field) -> Any:
    """Return the schema plus one column, whose ids start past every id ever used here."""
    metadata, fields = _parts(handle.lance_schema)
    _, added = _parts(LanceSchema.from_pyarrow(pa.schema([column])))
    shift = handle.max_field_id + 1
    for message in added:
        _set(message, FIELD_ID, VARINT, _signed(message, FIELD_ID) + shift)
        if (parent := _signed(message, PARENT_ID)) != TOP_LEVEL:
            _set(message, PARENT_ID, VARINT, parent + shift)
    return _schema(metadata, fields + added)


def without_column(handle: Handle, name: str) -> Any:
    """Return the schema less one top-level column and everything inside it."""
    metadata, fields = _parts(handle.lance_schema)
    gone: set[int] = set()
    kept = []
    for message in fields:  # depth first: a parent comes before its children
        parent = _signed(message, PARENT_ID)
        if parent in gone or (parent == TOP_LEVEL and _text(message, NAME) == name):
            gone.add(_signed(message, FIELD_ID))
        else:
            kept.append(message)
    return _schema(metadata, kept)


def with_name(handle: Handle, name: str, to: str) -> Any:
    """Return the schema with one top-level column renamed."""
    metadata, fields = _parts(handle.lance_schema)
    for message in fields:
        if _signed(message, PARENT_ID) == TOP_LEVEL and _text(message, NAME) == name:
            _set(message, NAME, LENGTH, to.encode())
    return _schema(metadata, fields)


def fingerprint(handle: Handle) -> bytes:
    """Name the exact columns of a version, by id and name: the same files read differently after a change."""
    _, (_, *messages) = handle.lance_schema.__reduce__()
    return hashlib.sha256(b"\0".join(bytes(raw) for raw in messages)).digest()


def _parts(schema: Any) -> tuple[Any, list[Message]]:
    # The pickled form of a LanceSchema is (rebuild, (metadata, *field messages)).
    _, (metadata, *messages) = schema.__reduce__()
    return metadata, [list(_decode(bytes(raw))) for raw in messages]


def _schema(metadata: Any, fields: list[Message]) -> Any:
    return LanceSchema._from_protos(metadata, *(_encode(message) for message in fields))


def _get(message: Message, number: int) -> Any:
    return next((value for found, _, value in message if found == number), None)


def _text(message: Message, number: int) -> str:
    return bytes(_get(message, number) or b"").decode()


def _signed(message: Message, number: int) -> int:
    """Return an int32 member; absent means 0, and negatives are stored as 64-bit two's complement."""
    value = int(_get(message, number) or 0)
    return value - (1 << 64) if value >= 1 << 63 else value


def _set(message: Message, number: int, wire: int, value: Any) -> None:
    if wire == VARINT:
        value &= (1 << 64) - 1
    for position, (found, _, _) in enumerate(message):
        if found == number:
            message[position] = (number, wire, value)
            return
    message.append((number, wire, value))


def _decode(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    position = 0
    while position < len(raw):
        tag, position = _read_varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, position = _read_varint(raw, position)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, position = _read_varint(raw, position)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"unexpected wire type {wire} in a stored field")
        yield number, wire, raw[position : position + size]
        position += size


def _encode(message: Message) -> bytes:
    out = bytearray()
    for number, wire, value in message:
        out += _varint(number << 3 | wire)
        if wire == VARINT:
            out += _varint(value)
        else:
            if wire == LENGTH:
                out += _varint(len(value))
            out += value
    return bytes(out)


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
