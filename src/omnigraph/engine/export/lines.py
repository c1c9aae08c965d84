"""Lines: entities as the envelopes of data files, one JSON object on a line.

Room    engine.export. What schema language section 16 reads, written: `data` has the id, then every property
        in the order of names; days and moments are numbers, bytes are base64.
Rule    nothing is lost. A null is written, too; but where a property has a default, a load puts the default
        in its place, as it does for every null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.catalog.types import NUMBER_OF
from omnigraph.engine.load.cells import BASE64

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def envelope_lines(batch: pa.RecordBatch, declared: TableType) -> Iterator[str]:
    """Yield one line for each row, without its line end."""
    names = batch.schema.names
    columns = [_json_values(column) for column in batch.columns]
    if isinstance(declared, EdgeType):
        inner = [names[0], *names[3:]]
        for identity, source, target, *values in zip(*columns, strict=True):
            data = dict(zip(inner, (identity, *values), strict=True))
            yield _encode({"edge": declared.name, "from": source, "to": target, "data": data})
    else:
        for row in zip(*columns, strict=True):
            yield _encode({"type": declared.name, "data": dict(zip(names, row, strict=True))})


def _json_values(column: pa.Array) -> list[Any]:
    if pa.types.is_large_binary(column.type):
        return [
            None if value is None else BASE64 + base64.b64encode(value).decode()
            for value in column.to_pylist()
        ]
    found: list[Any] = column.cast(_number(column.type)).to_pylist()
    return found


def _number(kind: pa.DataType) -> pa.DataType:
    """Return the type that passes through Python whole: its own dates hold less than the stored ones."""
    if pa.types.is_list(kind) and kind.value_type in NUMBER_OF:
        return pa.list_(NUMBER_OF[kind.value_type])
    return NUMBER_OF.get(kind, kind)
