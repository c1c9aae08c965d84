"""Pieces of an input give the rows of the whole, in its order and with its places."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.load.sources.splitting import SPLIT_RECORDS, split

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    with og.init(tmp_path_factory.mktemp("split") / "g.og", SCHEMA, durability="os") as graph:
        return graph.schema.catalog()


def opened(data: Any, catalog: Catalog, **options: Any) -> LoadSource:
    """Recognise an input."""
    return open_source(data, catalog=catalog, now_ms=0, **options)


def rows(sources: list[LoadSource], catalog: Catalog) -> list[tuple[str, str, int]]:
    """Return type, id and place of every row, read after a journey to another process and back."""
    found = []
    for source in sources:
        problems = LoadProblems()
        travelled: LoadSource = pickle.loads(pickle.dumps(source))
        for block in travelled.blocks(catalog, problems, lambda _: None):
            ids = block.rows.column("id").to_pylist()
            found += [(block.declared.name, row_id, block.position(n)) for n, row_id in enumerate(ids)]
        assert not problems
    return sorted(found, key=lambda row: row[2])


def test_parquet_is_cut_between_row_groups(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "Person.parquet"
    pq.write_table(pa.table({"name": [f"p{n}" for n in range(1000)]}), path, row_group_size=100)
    whole = opened(path, catalog)

    splits = list(split(whole, 1_000))

    assert 1 < len(splits) <= 10
    assert rows(splits, catalog) == rows([whole], catalog)
    assert rows([splits[1]], catalog)[0][2] > 1


def test_lines_are_cut_after_a_line_end(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "data.jsonl"
    lines = []
    for n in range(500):
        kind = "City" if n % 3 else "Person"
        lines.append(json.dumps({"type": kind, "data": {"name": f"ä{n}" * (n % 7 + 1)}}, ensure_ascii=False))
        if n % 11 == 0:
            lines.append("")  # counts as a line
    path.write_text("\n".join(lines), encoding="utf-8")  # the last one without an end
    whole = opened(path, catalog)

    for size in (50, 777, 5_000):
        splits = list(split(whole, size))
        assert len(splits) > 1
        assert rows(splits, catalog) == rows([whole], catalog)
    assert len(list(split(whole, 1 << 20))) == 1


def test_what_cannot_be_cut_stays_whole(tmp_path: Path, catalog: Catalog) -> None:
    record = json.dumps({"type": "City", "data": {"name": "x"}})
    packed = tmp_path / "data.jsonl.gz"
    packed.write_bytes(gzip.compress((record + "\n").encode(), mtime=0))
    framed = tmp_path / "export.jsonl"
    framed.write_text('{"og_export": {"format": 1}}\n' + (record + "\n") * 100)
    text = tmp_path / "City.csv"
    text.write_text("name\n" + '"a\nb"\n' * 50)

    for path in (packed, framed, text):
        assert len(list(split(opened(path, catalog), 10))) == 1


def test_lists_are_cut_and_iterators_are_refused(catalog: Catalog) -> None:
    records = [{"type": "City", "data": {"name": f"c{n}"}} for n in range(SPLIT_RECORDS + 5)]

    splits = list(split(opened(records, catalog)))

    assert len(splits) == 2
    assert rows(splits[1:], catalog)[0][2] == SPLIT_RECORDS + 1
    with pytest.raises(InvalidRequest, match="cannot be read by other processes"):
        list(split(opened(iter(records), catalog)))


@pytest.mark.parametrize("library", ["arrow", "pandas", "polars"])
def test_tables_in_memory_are_cut_and_travel_without_the_rest(catalog: Catalog, library: str) -> None:
    names = [f"c{n}" for n in range(SPLIT_RECORDS + 5)]
    made: dict[str, Callable[[], Any]] = {
        "arrow": lambda: pa.table({"name": names}),
        "pandas": lambda: pd.DataFrame({"name": names}),
        "polars": lambda: pl.DataFrame({"name": names}),
    }
    whole = open_source(made[library](), catalog=catalog, now_ms=0, type="City")

    splits = list(split(whole))

    assert len(splits) == 2
    assert rows(splits, catalog) == rows([whole], catalog)
    assert len(pickle.dumps(splits[1])) < 20_000
    none = open_source(made[library]()[:0], catalog=catalog, now_ms=0, type="City")
    assert len(list(split(none))) == 1


def test_a_broken_file_is_reported_by_whoever_reads_it(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "Person.parquet"
    path.write_bytes(b"PAR1 but nothing behind it")

    (part,) = split(opened(path, catalog))

    with pytest.raises(InvalidRequest, match=r"Person\.parquet: broken"):
        list(part.blocks(catalog, LoadProblems(), lambda _: None))
