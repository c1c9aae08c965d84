"""Long lists, deep nesting, spoilt lines and pipeline files: an answer or a typed error."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.load.conform import UnreadableInput
from omnigraph.pipeline.declared.spec import PipelineError, parse_pipeline
from tests.support.fuzz import damaged_texts

SCHEMA = (
    "node Person { name: String @key  age: I32?  f: F64?  tags: [String]? }\nedge Knows: Person -> Person"
)
IN = "query q($l: [String]) { match { $p: Person  $p.name in $l } return { $p.name } }"
MANY = 100_000
PIPELINE = """
sources:
  people: {format: jsonl, path: people.jsonl}
targets:
  - type: Person
    from: people
    mode: merge
    columns: {name: name, age: age}
expectations: [{name: some, sql: select * from people}]
"""
NESTED = {
    "brackets": ("query q() { match { $p: Person ", "(", "$p.age = 1", ")", " } return { $p.name } }"),
    "blocks": ("query q() { match { $p: Person ", "not { ", "$p knows $q", " }", " } return { $p.name } }"),
    "a sum": ("query q() { match { $p: Person } return { ", "1 + ", "1", "", " as x } }"),
}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A graph with one row."""
    with og.init(tmp_path / "values.og", SCHEMA, durability="os") as opened:
        opened.load([{"type": "Person", "data": {"name": "p1", "age": 1}}], mode="append")
        yield opened


def test_a_hundred_thousand_values_in_a_list(graph: Graph) -> None:
    names = [f"p{number}" for number in range(MANY)]
    assert len(graph.query(IN, l=names)) == 1
    graph.mutate('query q($l: [String]) { insert Person { name: "list", tags: $l } }', l=names)
    assert len(graph.entity("Person", "list").get()["tags"]) == MANY  # type: ignore[index]
    gone = graph.mutate("query q($l: [String]) { delete Person where name in $l }", l=names)
    assert gone.affected_nodes == 1


@pytest.mark.parametrize("shape", NESTED)
def test_deep_nesting_is_refused_with_a_place(graph: Graph, shape: str) -> None:
    for depth in (300, 2_000):
        before, opening, middle, closing, after = NESTED[shape]
        text = before + opening * depth + middle + closing * depth + after
        with pytest.raises(og.GraphError) as caught:
            graph.query(text)
        assert caught.value.code == "compile_error"


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_json_is_refused_by_line(graph: Graph, depth: int) -> None:
    line = b'{"type": "Person", "data": {"name": "x", "tags": ' + b"[" * depth + b"]" * depth + b"}}"
    with pytest.raises(og.ConstraintViolation):
        graph.load(io.BytesIO(line), mode="append", format="jsonl")


def _spoilt(rnd: Random) -> bytes:
    """Return lines of a data file with a few things wrong with their bytes or their values."""
    values: list[Any] = [None, "x", "\x00", 10**30, 1e308, -0.0, [], ["a", None], {"a": 1}, True, "é" * 50]
    lines = []
    for number in range(rnd.randrange(1, 5)):
        data = {
            "name": f"r{number}",
            rnd.choice(["age", "f", "tags"]): rnd.choice(values) if rnd.random() < 0.3 else None,
        }
        lines.append(json.dumps({"type": rnd.choice(["Person"] * 9 + ["Nobody"]), "data": data}).encode())
    text = rnd.choice([b"\n", b"\r\n", b"\n\n"]).join(lines)
    at = rnd.randrange(len(text))
    match rnd.randrange(7):
        case 0:
            return text[:at] + bytes([rnd.randrange(256)]) + text[at + 1 :]
        case 1:
            return text[:at]
        case 2:
            return b"\xef\xbb\xbf" + text
        case 3:
            return text.replace(b'"name"', b'"name": 1, "name"', 1)
        case 4:
            return text.replace(b"null", rnd.choice([b"NaN", b"9" * 5_000, b"1e999", b'"\\ud800"', b"-"]), 1)
        case 5:
            return text[:at] + rnd.randbytes(4) + text[at:]
        case _:
            return text


@pytest.mark.parametrize(
    "rounds", [300, pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])]
)
def test_spoilt_lines_are_loaded_whole_or_change_nothing(graph: Graph, rounds: int) -> None:
    rnd, taken = Random(20_261_118), 0
    head = graph.commits.list(limit=1)[0].id
    for _ in range(rounds):
        data = _spoilt(rnd)
        try:
            receipt = graph.load(io.BytesIO(data), mode="merge", format="jsonl")
            head, taken = receipt.commit_id or head, taken + 1
        except (og.ConstraintViolation, UnreadableInput):
            pass
        assert graph.store.snapshot().commit_id == head
    print(f"{rounds} rounds, {taken} taken")
    assert 0 < taken < rounds
    assert graph.doctor(deep=True).ok, "every row that was taken is one of its type"


@pytest.mark.parametrize(
    "rounds", [300, pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])]
)
def test_spoilt_pipeline_files_are_read_or_refused(rounds: int) -> None:
    words = [
        "{",
        "}",
        "[",
        "&a",
        "*a",
        "!!python/object:os.system",
        "- ",
        ": ",
        "\t",
        "\0",
        "<<",
        "9" * 400,
        "|",
        "%",
    ]
    read = 0
    for text in damaged_texts([PIPELINE], words, rounds):
        try:
            parse_pipeline(text)
            read += 1
        except PipelineError:
            continue
    print(f"{rounds} rounds, {read} read")
    assert 0 < read < rounds
