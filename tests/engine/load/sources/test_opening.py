"""Which source reads what: by the caller's word, the file's name, its first bytes; and what is refused."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from omnigraph.base.errors import GraphError, InvalidRequest, NotFound
from omnigraph.engine.load.conform import InputNotFound
from omnigraph.engine.load.sources.opening import open_source
from tests.engine.load.sources.reading import CATALOG, NOW_MS, edge, lines, node, read, read_good
from tests.support.catalogs import catalog

ADA = lines(node("Person", slug="ada"))
PEOPLE = pa.table({"slug": ["bo", "cy"]})
KNOWS = b"from,to\nada,bo\n"


def zstd(content: bytes) -> bytes:
    """Compress as zstd does on the command line."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gz", "zst"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_compression_is_known_by_its_content_whatever_the_name(
    tmp_path: Path, compress: Callable[[bytes], bytes], suffix: str
) -> None:
    path = tmp_path / f"people.jsonl{suffix}"
    path.write_bytes(compress(ADA * 2 + b"\n") + compress(ADA))  # as `cat a.gz b.gz` makes it

    assert [row["slug"] for row in read_good(path)] == ["ada"] * 3
    assert [row["slug"] for row in read_good(path.read_bytes())] == ["ada"] * 3
    with path.open("rb") as file:
        assert len(read_good(file)) == 3


def test_a_folder_is_read_by_name_and_its_files_tell_their_types(tmp_path: Path) -> None:
    (tmp_path / "Person.csv.gz").write_bytes(gzip.compress(b"slug\nada\n", mtime=0))
    pq.write_table(PEOPLE, tmp_path / "Person.2.parquet")
    (tmp_path / "knows.csv").write_bytes(KNOWS)
    (tmp_path / "notes.jsonl").write_bytes(lines(node("Note", text="n")))
    (tmp_path / "Note").mkdir()
    (tmp_path / "Note" / "part-0.parquet").write_bytes(b"")
    pq.write_table(pa.table({"text": ["m"]}), tmp_path / "Note" / "part-0.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden").write_text("x")

    found = read(tmp_path)

    assert found.problems == []
    assert [(block.origin.partition("/")[2], block.declared.name) for block in found.blocks] == [
        ("part-0.parquet", "Note"),
        ("Person.2.parquet", "Person"),
        ("Person.csv.gz", "Person"),
        ("knows.csv", "Knows"),
        ("notes.jsonl", "Note"),
    ]
    source = open_source(tmp_path, catalog=CATALOG, now_ms=NOW_MS)
    assert source.size_bytes == sum(f.stat().st_size for f in tmp_path.rglob("*.*") if f.name[0] not in "._")
    assert found.progress[-1] == source.size_bytes


def test_a_folder_of_parts_of_one_type(tmp_path: Path) -> None:
    for part in range(3):
        pq.write_table(pa.table({"slug": [f"p{part}"]}), tmp_path / f"part-{part}.parquet")

    assert [row["slug"] for row in read_good(tmp_path, type="Person")] == ["p0", "p1", "p2"]


def test_a_list_of_files_keeps_its_order_and_names_every_place(tmp_path: Path) -> None:
    first, second = tmp_path / "z.jsonl", tmp_path / "Person.csv"
    first.write_bytes(ADA + lines(node("Person", slug="x", age=500)))
    second.write_bytes(b"slug,age\ny,500\nbo,3\n")

    found = read([str(first), second])

    assert [row["slug"] for row in found.rows] == ["ada", "bo"]
    assert [violation.place for violation in found.report.violations] == ["z.jsonl:2", "Person.csv:2"]


def test_a_mapping_of_types_to_any_tables() -> None:
    found = read(
        {
            "Person": pd.DataFrame({"slug": ["ada", "bo"]}),
            "Knows": io.BytesIO(KNOWS),
            "Note": [{"text": "n"}, {"text": 3}],
        }
    )

    assert [block.declared.name for block in found.blocks] == ["Person", "Knows", "Note"]
    assert [violation.place for violation in found.report.violations] == ["<Note>:2"]


def test_records_are_read_like_lines_and_may_hold_python_values() -> None:
    rows = read_good(
        [
            node(
                "Every",
                name="e",
                d=dt.date(1970, 1, 2),
                t=dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))),
                o=b"raw",
                x=np.array([1, 2, 3]),
                ls=("a",),
                i=np.int16(3),
            ),
            types.MappingProxyType(edge("Knows", "a", "b", id="k")),
        ]
    )

    assert rows[0]["d"] == dt.date(1970, 1, 2)
    assert (rows[0]["o"], rows[0]["x"], rows[0]["ls"], rows[0]["i"]) == (b"raw", [1.0, 2.0, 3.0], ["a"], 3)
    assert rows[1] == {"id": "k", "src": "a", "dst": "b"}
    [block] = read(
        iter([node("Every", name="e", t=dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None))])
    ).blocks
    assert block.rows.column("t").cast("int64").to_pylist() == [3_600_000]


BARE_BAD: list[Any] = [
    ("Note", {"txt": "x"}, "unknown_property", "unknown input field 'txt' for 'node:Note'"),
    ("Note", {"text": None}, "required", "non-nullable property 'text'"),
    ("Note", ["x"], "envelope", "expected an object"),
    ("Knows", {"from": "a"}, "required", "non-nullable property 'to'"),
    ("Knows", {"from": "a", "src": "a", "to": "b"}, "envelope", "'from' and 'src' mean the same"),
    ("Counts", {"from": "a", "to": "b", "n": 1}, "unknown_property", "'n'"),
    ("Counts", {"from": "a", "to": 1.5}, "type", "'to' of Counts: expected an integer"),
    ("Knows", {"from": "a", "to": 3}, "type", "'to' of Knows: expected a string"),
    ("Measures", {"from": "a", "to": float("nan")}, "type", "not finite"),
]


@pytest.mark.parametrize(("name", "record", "code", "words"), BARE_BAD)
def test_records_of_a_named_type_are_bare_properties(name: str, record: Any, code: str, words: str) -> None:
    found = read([{}, record], type=name)

    last = found.report.violations[-1]
    assert (last.code, last.place, last.type_name) == (code, "<records>:2", name)
    assert words in last.message


def test_records_of_a_named_edge_take_typed_keys() -> None:
    rows = read_good([{"from": "a", "to": 7, "id": "x"}, {"src": "b", "dst": "8", "id": "y"}], type="Counts")

    assert [(row["src"], row["dst"]) for row in rows] == [("a", "7"), ("b", "8")]


def test_lines_of_a_named_type_are_bare_properties(tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(lines({"slug": "ada"}))

    assert read_good(path, type="Person")[0]["id"] == "ada"


def test_nothing_is_an_empty_load() -> None:
    inputs: list[Any] = [[], iter(()), {}]
    for nothing in inputs:
        assert read(nothing).blocks == []


REFUSED: list[Any] = [
    (None, {}, InvalidRequest, "cannot load a NoneType. A load takes a path"),
    (7, {}, InvalidRequest, "cannot load a int"),
    ([1, 2], {}, InvalidRequest, "cannot load a int"),
    (["{}", 3], {}, InvalidRequest, "this looks like data"),
    (iter(["a.jsonl"]), {}, InvalidRequest, "cannot load a str"),
    ('{"type": "Note"}', {}, InvalidRequest, "this looks like data"),
    ("a,b\n1,2", {"type": "Note"}, InvalidRequest, "this looks like data"),
    ("s3://bucket/people.jsonl", {}, InvalidRequest, "s3:// addresses are not read here"),
    ("nowhere.jsonl", {}, InputNotFound, "there is no file 'nowhere.jsonl'"),
    (PEOPLE, {}, InvalidRequest, "does not say of which type its rows are. Give type="),
    (PEOPLE, {"type": "Persn"}, NotFound, "no type 'Persn'. did you mean 'Person'?"),
    (PEOPLE, {"type": "person"}, NotFound, "no type 'person'"),
    (ADA, {"format": "xml"}, InvalidRequest, "no format 'xml'. The formats are jsonl, csv"),
    ({"Person": PEOPLE}, {"type": "Person"}, InvalidRequest, "a mapping names its types itself"),
    ({"Nobody": PEOPLE}, {}, NotFound, "no type 'Nobody'"),
    ({3: PEOPLE}, {}, InvalidRequest, "keys are type names"),
    (io.StringIO("x"), {"type": "Note", "format": "parquet"}, InvalidRequest, "that can seek"),
    (gzip.compress(b"text\nx\n", mtime=0), {"type": "Note"}, InvalidRequest, "Give format="),
    (iter([b"PAR1", b"rest"]), {"type": "Note"}, InvalidRequest, "not read from an iterator"),
]


@pytest.mark.parametrize(("data", "options", "error", "words"), REFUSED)
def test_what_cannot_be_read_is_refused_with_what_could(
    data: Any, options: dict[str, Any], error: type[GraphError], words: str
) -> None:
    with pytest.raises(error) as caught:
        open_source(data, catalog=CATALOG, now_ms=NOW_MS, **options)

    assert words in str(caught.value)


def test_frames_that_are_not_there_yet_say_what_to_do() -> None:
    for library, words in (("polars", r"Call \.collect\(\) first"), ("pyspark.sql", "Spark pipeline")):
        lazy = type("LazyFrame", (), {"__module__": f"{library}.frame"})()
        with pytest.raises(InvalidRequest, match=words):
            open_source(lazy, catalog=CATALOG, now_ms=NOW_MS, type="Note")


def test_a_file_whose_format_cannot_be_told_is_refused_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("hello")

    with pytest.raises(InvalidRequest, match=r"readme\.txt: the format cannot be told from the name"):
        open_source(tmp_path, catalog=CATALOG, now_ms=NOW_MS)


def test_batches_with_other_columns_are_refused() -> None:
    batches = [pa.record_batch({"slug": ["a"]}), pa.record_batch({"name": ["a"]})]

    with pytest.raises(InvalidRequest, match="different columns"):
        read(batches, type="Person")


def test_a_name_that_is_both_a_node_and_an_edge_must_be_told_apart() -> None:
    both = catalog("node Shared { name: String @key } edge Shared: Shared -> Shared")

    assert read_good([{"name": "x"}], using=both, type="node:Shared")[0]["id"] == "x"
    assert read_good([{"from": "x", "to": "x"}], using=both, type="edge:shared")[0]["src"] == "x"
    with pytest.raises(InvalidRequest, match="both a node type and an edge type"):
        read([{"name": "x"}], using=both, type="Shared")
