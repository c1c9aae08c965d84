"""Columns of a table under other names than the schema's: mapped by the caller, on every kind of table."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: I32? }"
PEOPLE = pa.table({"Full Name": ["Ada", "Bo"], "age": [36, 41]})
MAPPED = {"Full Name": "name"}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as opened:
        yield opened


def csv(folder: Path) -> Any:
    (folder / "people.csv").write_text("Full Name,age\nAda,36\nBo,41\n")
    return folder / "people.csv"


def parquet(folder: Path) -> Any:
    pq.write_table(PEOPLE, folder / "people.parquet")
    return folder / "people.parquet"


KINDS: dict[str, Callable[[Path], Any]] = {
    "csv": csv,
    "parquet": parquet,
    "table": lambda folder: PEOPLE,
    "frame": lambda folder: pd.DataFrame({"Full Name": ["Ada", "Bo"], "age": [36, 41]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_column_is_the_property(graph: Graph, tmp_path: Path, kind: str) -> None:
    graph.load(KINDS[kind](tmp_path), type="Person", mode="append", columns=MAPPED)

    rows = graph.nodes("Person").to_arrow().to_pylist()
    assert [(row["name"], row["age"]) for row in rows] == [("Ada", 36), ("Bo", 41)]


def test_the_ends_of_edges_may_have_any_name(graph: Graph) -> None:
    graph.load(PEOPLE, type="Person", mode="append", columns=MAPPED)
    edges = pa.table({"follower": ["Ada"], "followed": ["Bo"]})

    graph.load(edges, type="Knows", mode="append", columns={"follower": "from", "followed": "to"})

    (edge,) = graph.edges("Knows").to_arrow().to_pylist()
    assert (edge["src"], edge["dst"]) == ("Ada", "Bo")


@pytest.mark.parametrize(
    ("data", "columns", "problem"),
    [
        (PEOPLE, {"Name": "name"}, "no column 'Name' to map"),
        (PEOPLE, {"Full Name": "nmae"}, "nmae"),
        (PEOPLE, {"Full Name": "name", "age": "name"}, "name"),
        (io.BytesIO(b'{"type": "Person", "data": {"name": "x"}}'), MAPPED, "no columns to map"),
    ],
)
def test_what_cannot_be_mapped_is_refused(
    graph: Graph, data: Any, columns: dict[str, str], problem: str
) -> None:
    with pytest.raises(og.GraphError, match=problem):
        graph.load(data, type="Person", mode="append", columns=columns)
    assert graph.nodes("Person").to_arrow().num_rows == 0


def test_the_error_lists_the_columns_there_are(graph: Graph) -> None:
    with pytest.raises(InvalidRequest) as caught:
        graph.load(PEOPLE, type="Person", mode="append", columns={"x": "name"})
    assert caught.value.remedy == "Its columns are Full Name, age"
