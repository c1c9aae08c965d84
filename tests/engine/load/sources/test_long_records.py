"""A record of a text that no memory should be spent on is refused by its line, whatever it is packed in."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.load.conform import UnreadableInput
from omnigraph.engine.load.sources.streams import LONGEST_RECORD

SCHEMA = "node P { k: String @key  s: String? }"
LONG = b"x" * (LONGEST_RECORD + (2 << 20))


JSON = b'{"k": "a"}\n{"k": "b", "s": "' + LONG + b'"}\n'
CSV = b"k,s\nb," + LONG + b"\n"
MANY_LINES = b'k,s\nb,"' + (b"x" * 99_999 + b"\n") * (len(LONG) // 100_000 + 1) + b'"\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("P.jsonl", JSON),
        ("P.jsonl.gz", gzip.compress(JSON, 1)),
        ("P.csv.zst", pa.compress(CSV, codec="zstd", asbytes=True)),
        ("P.csv", MANY_LINES),
    ],
    ids=["json lines", "packed by gzip", "csv packed by zstd", "a field of many lines"],
)
def test_a_record_that_is_too_long_is_refused_by_its_line(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        with pytest.raises(UnreadableInput, match="longer than 32 MiB") as refused:
            graph.load(file, type="P", mode="append")
        assert refused.value.fields["line"] == 2
        assert len(graph.nodes("P")) == 0
