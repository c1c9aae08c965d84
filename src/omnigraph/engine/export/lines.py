"""Lines: entities as the envelopes of data files, one JSON object on a line.

Room    engine.export. What schema language section 16 reads, written: `data` has the id, then every property
        in the order of names; days and moments are numbers, bytes are base64.
Rule    nothing is lost. A null is written, too; but where a property has a default, a load puts the default
        in its place, as it does for every null. Values become text a column at a time, which takes a fraction
        of the time of a row at a time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.errors import IntegrityError
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.catalog.types import numbers_in
from omnigraph.engine.load.cells import BASE64

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def envelope_lines(batch: pa.RecordBatch, declared: TableType) -> Iterator[str]:
    """Yield one line for each row, without its line end."""
    texts = [_json_texts(column) for column in batch.columns]
    members = [f"{_encode(name)}:%s" for name in batch.schema.names]
    head = f'"type":{_encode(declared.name)}'
    if isinstance(declared, EdgeType):  # the columns are id, src, dst; the line has its ends first
        head = f'"edge":{_encode(declared.name)},"from":%s,"to":%s'
        texts = [*texts[1:3], texts[0], *texts[3:]]
        members = [members[0], *members[3:]]
    line = f'{{{head},"data":{{{",".join(members)}}}}}'
    return map(line.__mod__, zip(*texts, strict=True))


def _json_texts(column: pa.Array) -> list[str]:
    write = _writer(column)
    plain = column.cast(numbers_in(column.type)).to_pylist()
    return ["null" if value is None else write(value) for value in plain]


def _writer(column: pa.Array) -> Callable[[Any], str]:
    """Return what makes JSON of one value of a column."""
    kind = column.type
    if pa.types.is_string(kind):
        return encode_basestring
    if pa.types.is_large_binary(kind):
        return _base64
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return str
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        return repr
    return _any


def _base64(value: bytes) -> str:
    return f'"{BASE64}{base64.b64encode(value).decode()}"'


def _any(value: Any) -> str:
    try:
        return _encode(value)
    except ValueError as error:
        raise IntegrityError(
            f"a stored number is not finite, which JSON does not have: {value}",
            remedy="Export as Parquet, and mend the values",
        ) from error
