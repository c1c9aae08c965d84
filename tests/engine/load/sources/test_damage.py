"""Inputs that are broken, cut off or not what they claim: a typed error, and where."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.load.conform import InputNotFound, LoadProblems, UnreadableInput
from omnigraph.engine.load.sources.opening import open_source
from tests.engine.load.sources.reading import CATALOG, NOW_MS, lines, node, read
from tests.engine.load.sources.test_opening import zstd
from tests.engine.load.sources.test_tables import arrow_bytes, parquet_bytes

MANY = lines(*[node("Note", text=f"{n * 7919 % 10_007}") for n in range(20_000)])
TABLE = pa.table({"text": pa.array(np.arange(20_000) * 7919 % 10_007).cast(pa.string())})


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize("cut", [3, 100, -5])
def test_compressed_data_that_is_cut_off_is_an_error(
    tmp_path: Path, compress: Callable[[bytes], bytes], cut: int
) -> None:
    suffix = "gz" if compress is gzip.compress else "zst"
    path = tmp_path / f"people.jsonl.{suffix}"
    path.write_bytes(compress(MANY)[:cut])

    with pytest.raises(
        UnreadableInput, match=r"people\.jsonl\.(gz|zst): .*(cut off|not compressed)"
    ) as caught:
        read(path)

    assert caught.value.fields["file"] == path.name
    assert "byte" in caught.value.fields


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_compressed_data_with_a_flipped_byte_is_never_read_as_if_whole(
    compress: Callable[[bytes], bytes],
) -> None:
    content = bytearray(compress(MANY))
    content[len(content) // 2] ^= 0xFF

    try:
        found = read(bytes(content))
    except UnreadableInput:
        return
    assert found.report.total > 0  # zstd without a checksum may decode to other text, which is no JSON


def test_a_name_that_promises_compression_must_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl.gz"
    path.write_bytes(MANY)

    with pytest.raises(UnreadableInput, match="the name says gzip"):
        read(path)


@pytest.mark.parametrize("make", [parquet_bytes, lambda t: arrow_bytes(t, stream=False)], ids=["pq", "arrow"])
@pytest.mark.parametrize("cut", [4, 20, 1000, -1])
def test_a_table_file_that_is_cut_off_is_an_error(
    tmp_path: Path, make: Callable[[pa.Table], bytes], cut: int
) -> None:
    path = tmp_path / f"notes.{'parquet' if make is parquet_bytes else 'arrow'}"
    path.write_bytes(make(TABLE)[:cut])

    with pytest.raises(
        UnreadableInput, match=r"notes\.(parquet|arrow): broken, cut off or of another format"
    ):
        read(path, type="Note")


def test_a_stream_that_is_cut_off_is_an_error() -> None:
    content = arrow_bytes(TABLE, stream=True)

    with pytest.raises(UnreadableInput, match="cut off"):
        read(content[: len(content) // 2], type="Note")


def test_damage_inside_a_parquet_file_is_an_error() -> None:
    content = bytearray(parquet_bytes(TABLE, row_group_size=5_000, compression="zstd"))
    content[len(content) // 2 : len(content) // 2 + 200] = b"\x00" * 200

    with pytest.raises(UnreadableInput, match="broken"):
        read(bytes(content), type="Note")


def test_an_arrow_file_whose_offsets_lead_outside_is_refused_and_harmless() -> None:
    text = pa.array(["one", "two", "three"])
    offsets = np.array([0, 3, 1_000_000, 11], np.int32)
    wild = pa.StringArray.from_buffers(3, pa.py_buffer(offsets), text.buffers()[2])

    with pytest.raises(UnreadableInput, match="broken"):
        read(arrow_bytes(pa.table({"text": wild}), stream=True), type="Note")


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_text_is_no_table(format: str) -> None:
    with pytest.raises(UnreadableInput, match="of another format"):
        read(MANY, type="Note", format=format)


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_table_is_no_text(format: str) -> None:
    with pytest.raises(UnreadableInput, match="broken UTF-8"):
        read(parquet_bytes(TABLE), type="Note", format=format)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"text\nok\n\xc3\x28\n", 3), (b"text\nok\n\xff", 3), ("text\nü\n".encode("utf-16"), 1)],
)
def test_csv_that_is_not_utf8_says_its_line(content: bytes, line: int) -> None:
    with pytest.raises(UnreadableInput, match="broken UTF-8 at byte") as caught:
        read(content, type="Note", format="csv")

    assert caught.value.fields["line"] == line


def test_a_disk_that_fails_is_an_error_of_the_input() -> None:
    class Failing(io.RawIOBase):
        """A file that can be read once."""

        reads = 0

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            self.reads += 1
            if self.reads > 1:
                raise OSError(5, "Input/output error")
            return MANY[:1000]

    with pytest.raises(UnreadableInput, match=r"cannot be read at byte 1000: .*Input/output error"):
        read(Failing())


def test_an_iterator_that_changes_its_mind_is_an_error() -> None:
    def mixed() -> Iterator[Any]:
        yield MANY
        yield "text"

    with pytest.raises(UnreadableInput, match="an iterator of bytes gave str"):
        read(mixed())


def test_a_file_that_vanishes_between_opening_and_reading_is_an_error(tmp_path: Path) -> None:
    for name in ("Note.jsonl", "Note.parquet"):
        path = tmp_path / name
        path.write_bytes(b"x")
        source = open_source(path, catalog=CATALOG, now_ms=NOW_MS)
        path.unlink()

        with pytest.raises(InputNotFound, match="there is no file"):
            list(source.blocks(CATALOG, LoadProblems(), lambda _: None))


def test_what_a_caller_raises_while_reading_is_the_callers(tmp_path: Path) -> None:
    def failing() -> Iterator[Any]:
        yield node("Note", text="a")
        raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="the caller's own"):
        read(failing())


def damaged(content: bytes, random: Random) -> bytes:
    """Return the content with a few bytes changed, lost or added, or cut off."""
    found = bytearray(content)
    for _ in range(random.choice([1, 2, 10])):
        place = random.randrange(len(found))
        match random.randrange(4):
            case 0 | 1:
                found[place] = random.randrange(256)
            case 2:
                found[place : place + random.randrange(2)] = random.randbytes(random.randrange(9))
            case _:
                found = found[: place + 1]
    return bytes(found)


SMALL: list[Any] = [
    ("jsonl", MANY[:400]),
    ("csv", b'text\n"a ""b"""\nc\n'),
    ("parquet", parquet_bytes(TABLE.slice(0, 20))),
    ("arrow", arrow_bytes(TABLE.slice(0, 20), stream=False)),
    ("arrow", arrow_bytes(TABLE.slice(0, 20), stream=True)),
    ("jsonl", gzip.compress(MANY[:400], mtime=0)),
]


@pytest.mark.parametrize(
    ("format", "content"), SMALL, ids=["jsonl", "csv", "parquet", "file", "stream", "gzip"]
)
def test_no_damage_has_another_end_than_rows_problems_or_a_typed_error(format: str, content: bytes) -> None:
    random = Random(format)
    outcomes = set()
    for _ in range(150):
        try:
            found = read(damaged(content, random), type="Note", format=format)
            outcomes.add("problems" if found.report else "rows")
        except UnreadableInput:
            outcomes.add("unreadable")
    assert "unreadable" in outcomes
