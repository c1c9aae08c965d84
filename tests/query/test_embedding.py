"""`nearest` with a text: the embedder that a graph is opened with, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.base.errors import InvalidRequest
from omnigraph.execution.search.embedding import Embeddings, HashEmbedder, MockEmbedder, embedder_of

SCHEMA = """
node Note {
    slug: String @key
    text: String
    vector: Vector(16)? @embed("text")
    named: Vector(16)? @embed("text", model="m1")
}
"""
TEXTS = {"a": "red apples and pears", "b": "a fast blue car", "c": "green apples"}
NEAR = (
    "query q($t: String) { match { $n: Note } return { $n.slug } order { nearest($n.vector, $t) } limit 2 }"
)


@pytest.fixture
def address(tmp_path: Path) -> Path:
    place = tmp_path / "graph.og"
    mock = Embeddings(MockEmbedder())
    with og.init(place, SCHEMA, durability="os") as graph:
        graph.load(
            [
                {
                    "type": "Note",
                    "data": {"slug": slug, "text": text, "vector": mock.vector(text, 16, None).tolist()},
                }
                for slug, text in TEXTS.items()
            ],
            mode="append",
        )
    return place


def test_a_text_is_embedded_once_and_ranked(address: Path) -> None:
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [list(vector) for vector in MockEmbedder()(texts, 16)]

    with og.connect(address, embedding=embed) as graph:
        for _ in range(2):
            found = [row["n.slug"] for row in graph.query(NEAR, t="apples, green")]
            assert found == ["c", "a"]
    assert asked == [["apples, green"]]


def test_the_mock_needs_nothing(address: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with og.connect(address, embedding="mock") as graph:
        assert graph.query(NEAR, t="a car").rows[0] == {"n.slug": "b"}
    monkeypatch.setenv("EMBEDDINGS_MOCK", "1")
    with og.connect(address) as graph:
        assert graph.query(NEAR, t="a car").rows[0] == {"n.slug": "b"}
        assert graph.query(NEAR.replace("$n.vector", "$n.named"), t="a car").rows == []  # of any model


def test_a_new_graph_takes_an_embedder_and_the_mock_as_an_opened_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0] * 16 for _ in texts]

    with og.init(tmp_path / "given", SCHEMA, embedding=embed) as graph:
        assert graph.query(NEAR, t="a car").rows == []
    monkeypatch.setenv("EMBEDDINGS_MOCK", "1")
    with og.init(tmp_path / "mocked", SCHEMA) as graph:
        assert graph.query(NEAR, t="a car").rows == []


def test_without_an_embedder_the_query_says_what_to_do(address: Path) -> None:
    with og.connect(address) as graph, pytest.raises(InvalidRequest, match="needs an embedder") as caught:
        graph.query(NEAR, t="x")
    assert "embedding=" in str(caught.value.remedy)


def test_the_model_of_a_property_must_be_the_embedders(address: Path) -> None:
    named = NEAR.replace("$n.vector", "$n.named")

    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0] * 16 for _ in texts]

    with og.connect(address, embedding=embed) as graph:
        with pytest.raises(InvalidRequest, match="'m1', and the embedding function does not say") as refused:
            graph.query(named, t="x")
        assert "the attribute model = 'm1'" in str(refused.value)
        assert len(graph.query(NEAR, t="x")) == 2
    embed.model = "m1"  # type: ignore[attr-defined]
    with og.connect(address, embedding=embed) as graph:
        assert graph.query(named, t="x").rows == []  # nobody has that vector


@pytest.mark.parametrize(
    "vectors", [[], [[1.0] * 15], [[float("nan")] * 16], [[0.0] * 16], [[1.0] * 16, [1.0] * 16]], ids=str
)
def test_what_is_no_vector_is_refused(vectors: list[list[float]]) -> None:
    with pytest.raises(InvalidRequest, match="vector"):
        Embeddings(embedder_of(lambda texts: vectors)).vector("x", 16, None)


def test_an_unknown_kind_is_refused(address: Path) -> None:
    with pytest.raises(InvalidRequest, match="'magic'"):
        og.connect(address, embedding="magic")


def test_the_mocks_give_the_same_vectors_everywhere() -> None:
    """Figures worked out by hand from the definitions, so that no platform may drift."""
    one = np.asarray(MockEmbedder()(["apples"], 4)[0])
    assert sorted(np.abs(one)) == [0, 0, 0, 1]
    assert MockEmbedder()(["Apples"], 4) == MockEmbedder()(["apples"], 4)
    seed = (0xCBF29CE484222325 ^ ord("a")) * 0x100000001B3 % 2**64
    seed ^= seed << 13 & (2**64 - 1)
    seed ^= seed >> 7
    seed ^= seed << 17 & (2**64 - 1)
    assert HashEmbedder()(["a"], 1) == [[2.0 * (seed / (2**64 - 1)) - 1.0]]
