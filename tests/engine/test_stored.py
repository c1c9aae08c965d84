"""Queries of a folder, called by name on a graph that is opened here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import QueryNotFound

SCHEMA = "node Person { name: String @key  age: I32? }\n"
NAMED = "query named($name: String) { match { $p: Person { name: $name } } return { $p.age } }\n"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }\n"
POLICY = """
version: 1
groups: { readers: [bob], callers: [eve] }
rules:
  - id: readers-call
    allow: { actors: { group: readers }, actions: [read, invoke_query] }
  - id: callers-read
    allow: { actors: { group: callers }, actions: [read] }
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with og.init(tmp_path / "kb.og", SCHEMA, durability="os") as graph:
        graph.mutate(ADD, name="Ada", age=36)
    (tmp_path / "queries/below").mkdir(parents=True)
    (tmp_path / "queries/named.gq").write_text(NAMED)
    (tmp_path / "queries/below/add.gq").write_text(ADD)
    return tmp_path


def opened(place: Path, **options: Any) -> og.Graph:
    return og.connect(place / "kb.og", durability="os", queries=place / "queries", **options)


def test_a_query_is_called_by_its_name(place: Path) -> None:
    with opened(place, actor="ada") as graph:
        assert [entry["name"] for entry in graph.queries.list()] == ["add", "named"]
        receipt = graph.run("add", name="Bo", age=7)  # a parameter may be called as an argument of `run` is
        assert isinstance(receipt, og.Receipt)
        assert receipt.actor == "ada"
        result = graph.run("named", {"name": "Bo"})
        assert isinstance(result, og.Result)
        assert result.scalar() == 7
        with pytest.raises(og.InvalidRequest, match="'name'"):
            graph.run("named", name=5)
        with pytest.raises(og.BadArgument, match="run: argument 'name' must be text"):
            graph.run(5)  # type: ignore[arg-type]


def test_views_of_a_graph_have_its_queries(place: Path) -> None:
    with opened(place) as graph, graph.branch("side", create=True) as side:
        side.run("add", name="Bo")
        assert len(side.nodes("Person")) == 2
        assert len(graph.nodes("Person")) == 1
        assert graph.at("main~1").run("named", name="Ada").rows == []  # type: ignore[union-attr]


def test_without_a_folder_there_are_none(place: Path) -> None:
    with og.connect(place / "kb.og") as graph:
        assert graph.queries.list() == ()
        with pytest.raises(QueryNotFound, match="'named'"):
            graph.run("named", name="Ada")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("again.gq", NAMED, "named.gq and again.gq both have a query 'named'"),
        ("other.gq", NAMED.replace("Person", "Persn"), "did you mean 'Person'"),
        ("other.gq", "quarry", "other.gq:1:1"),
        ("other.gq", "\udcff", "other.gq cannot be read"),
    ],
)
def test_a_folder_with_a_fault_is_refused_when_the_graph_is_opened(
    place: Path, name: str, text: str, message: str
) -> None:
    (place / "queries" / name).write_text(text, errors="surrogateescape")
    with pytest.raises(og.InvalidRequest) as caught:
        opened(place)
    assert message in str(caught.value)


def test_a_folder_that_is_not_there_is_refused(place: Path) -> None:
    with pytest.raises(og.InvalidRequest, match="no folder"):
        og.connect(place / "kb.og", queries=place / "none")


def test_a_policy_decides_who_calls_and_what_the_call_may_do(place: Path) -> None:
    with opened(place, policy=POLICY, actor="bob") as graph:
        assert graph.run("named", name="Ada").rows == [{"p.age": 36}]  # type: ignore[union-attr]
        with pytest.raises(og.PermissionDenied):
            graph.run("add", name="Bo")
    with opened(place, policy=POLICY, actor="eve") as graph:
        for name in ("named", "nothing"):  # what may not be called is as what is not there
            with pytest.raises(QueryNotFound) as caught:
                graph.run(name, name="Ada")
            assert str(caught.value).replace(name, "NAME").startswith("there is no stored query 'NAME'")
