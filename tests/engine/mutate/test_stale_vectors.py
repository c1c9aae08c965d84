"""A vector never outlives the text that it stands for, unless the same statement gives another one."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import InvalidRequest

SCHEMA = """
node Note {
    slug: String @key
    text: String?
    other: I32?
    vec: Vector(2)? @embed("text")
    own: Vector(2)?
}
"""
OLD, NEW = [1.0, 0.0], [0.0, 1.0]


@pytest.mark.parametrize("vector_given", [False, True], ids=["no vector given", "vector given"])
@pytest.mark.parametrize("had_vector", [False, True], ids=["had none", "had one"])
@pytest.mark.parametrize("before", ["a text", None])
@pytest.mark.parametrize("assigned", ["nothing", "a text", "another", None])
def test_an_update_of_the_text(assigned: Any, before: Any, had_vector: bool, vector_given: bool) -> None:
    """The vector afterwards: the one given; else the old one if the text is the same; else none."""
    old = OLD if had_vector else None
    sets = [] if assigned == "nothing" else ["text: $t"]
    sets += ["vec: $v"] if vector_given else []
    sets += ["other: 1"]
    query = (
        f'query u($t: String?, $v: Vector(2)?) {{ update Note set {{ {", ".join(sets)} }} where slug = "a" }}'
    )
    with og.init(None, SCHEMA) as graph:
        graph.load([note("a", before, old), note("b", before, old)], mode="append")
        graph.mutate(query, t=None if assigned == "nothing" else assigned, v=NEW)
        rows = {row["slug"]: row for row in graph.nodes("Note").to_arrow().to_pylist()}
    after = before if assigned == "nothing" else assigned
    expected = NEW if vector_given else old if after == before else None
    assert (rows["a"]["text"], rows["a"]["vec"], rows["a"]["other"]) == (after, expected, 1)
    assert rows["a"]["own"] == OLD  # stands for no text
    assert (rows["b"]["text"], rows["b"]["vec"]) == (before, old)


def note(slug: str, text: str | None, vector: list[float] | None) -> dict[str, Any]:
    return {"type": "Note", "data": {"slug": slug, "text": text, "vec": vector, "own": OLD}}


def test_only_the_rows_whose_text_changes_lose_their_vector() -> None:
    with og.init(None, SCHEMA) as graph:
        graph.load([note(slug, slug, OLD) for slug in "abc"], mode="append")
        graph.mutate('query u() { update Note set { text: "b" } where slug != "" }')
        rows = {row["slug"]: row["vec"] for row in graph.nodes("Note").to_arrow().to_pylist()}
    assert rows == {"a": None, "b": OLD, "c": None}


def test_a_row_that_the_same_mutation_inserted_is_no_exception() -> None:
    query = """query u($v: Vector(2)) {
        insert Note { slug: "a", text: "one", vec: $v }
        update Note set { text: "two" } where slug = "a"
    }"""
    with og.init(None, SCHEMA) as graph:
        graph.mutate(query, v=OLD)
        assert graph.nodes("Note").to_arrow()["vec"].to_pylist() == [None]


def test_a_row_that_is_replaced_whole_has_the_vector_it_is_given() -> None:
    with og.init(None, SCHEMA) as graph:
        graph.load([note("a", "one", OLD), note("b", "one", OLD)], mode="append")
        graph.load([note("a", "two", None), note("b", "two", NEW)], mode="merge")
        graph.mutate('query u() { insert Note { slug: "b", text: "three" } }')
        rows = {row["slug"]: row["vec"] for row in graph.nodes("Note").to_arrow().to_pylist()}
    assert rows == {"a": None, "b": None}


def test_a_required_vector_is_not_left_behind_its_text() -> None:
    schema = 'node Note { slug: String @key  text: String  vec: Vector(2) @embed("text") }'
    with og.init(None, schema) as graph:
        graph.load([{"type": "Note", "data": {"slug": "a", "text": "one", "vec": OLD}}], mode="append")
        with pytest.raises(InvalidRequest, match=r"Note\.vec is the vector of Note\.text") as caught:
            graph.mutate('query u() { update Note set { text: "two" } where slug = "a" }')
        assert "Set vec as well" in str(caught.value.remedy)
        graph.mutate('query u() { update Note set { text: "one" } where slug = "a" }')
        query = 'query u($v: Vector(2)) { update Note set { text: "two", vec: $v } where slug = "a" }'
        graph.mutate(query, v=NEW)
        assert graph.nodes("Note").to_arrow()["vec"].to_pylist() == [NEW]
