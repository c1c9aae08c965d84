"""Graphs written by earlier versions are upgraded, say what they said, and go on.

The archives in this folder were written by make_graph.py with the code of their day, each with its answers.
An archive never changes. An answer does when the rules of reading do: then "changed" beside it says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.formats.make_graph import REPEATED_CHANGE, REPEATED_LOAD, document
from tests.formats.questions import Question, answer
from tests.support.derived import EVERYTHING, derived_files, small_tiers
from tests.support.formats import answers, unpack

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("*.tar.gz"))
COUNT = "query q() { match { $d: Document } return { count($d) as n } }"


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Graph, list[Question]]]:
    """An old graph, unpacked where it never was before and upgraded, and what it answered."""
    archive: Path = request.param
    address = unpack(archive, tmp_path / "elsewhere")
    og.upgrade(address)
    with og.connect(address, durability="os") as graph:
        yield graph, answers(archive)


def differing(graph: Graph, asked: list[Question]) -> list[tuple[Question, Any]]:
    """Return the questions that are answered in another way than they were."""
    wrong = []
    for entry in asked:
        question = {name: value for name, value in entry.items() if name not in ("changed", "answer")}
        today = answer(graph, question)
        if today != entry["answer"]:
            wrong.append((entry, today))
    return wrong


def stays(question: Question) -> bool:
    """Say whether later writes leave an answer alone: it names its moment, and shows no name of today."""
    if question["call"] == "diff":
        return not {question["a"], question["b"]} & {"main", "grown", "grown/deeper", "past", "review"}
    return "at" in question and question["call"] != "nodes"  # which have the properties of today


def test_there_is_one() -> None:
    assert ARCHIVES


def test_an_old_graph_says_what_it_said_and_goes_on(stored: tuple[Graph, list[Question]]) -> None:
    graph, asked = stored
    assert differing(graph, asked) == []

    fixed = [entry for entry in asked if stays(entry)]
    assert {entry["call"] for entry in fixed} == {"query", "edges", "diff", "schema"}
    before = graph.query(COUNT).rows[0]["n"]
    graph.load([document(20, "New on a lake"), document(21, "New")], mode="append")
    graph.mutate('query q() { update Document set { text: "Newer" } where slug = "d21" }', branch="grown")
    graph.mutate('query q() { insert Document { slug: "d22", lang: "da" } }', branch="grown")
    assert graph.merge("grown").outcome.value == "merged"
    graph.ensure_indexes()

    shown = {row["slug"]: row for row in graph.nodes("Document").to_arrow().to_pylist()}
    assert len(shown) == graph.query(COUNT).rows[0]["n"] == before + 5
    languages = {slug: shown[slug]["lang"] for slug in ("d1", "d6", "d20", "d22")}
    assert languages == {"d1": "en", "d6": "de", "d20": "en", "d22": "da"}
    assert [e["id"] for e in graph.edges("Cites").to_arrow().to_pylist()] == []  # the review deleted d2
    assert differing(graph, fixed) == []


def test_keys_that_were_used_still_stand_for_their_commits(stored: tuple[Graph, list[Question]]) -> None:
    graph, _ = stored
    head = graph.store.snapshot().commit_id
    assert graph.mutate(REPEATED_CHANGE, idempotency_key="change-1", actor="bo").replayed
    with pytest.raises(og.GraphError) as caught:
        graph.mutate(REPEATED_CHANGE.replace("d8", "d80"), idempotency_key="change-1", actor="bo")
    assert caught.value.code == "idempotency_mismatch"
    assert graph.store.snapshot().commit_id == head


def test_a_load_that_had_a_key_is_never_done_twice(stored: tuple[Graph, list[Question]]) -> None:
    """Loads are told apart in another way now: the old key is refused, with the commit that it stands for."""
    graph, _ = stored
    head = graph.store.snapshot().commit_id
    with pytest.raises(og.GraphError, match="the first request has landed") as caught:
        graph.load(REPEATED_LOAD, mode="append", idempotency_key="load-1", actor="ann")
    first = graph.commits.get(caught.value.fields["first_commit_id"])
    assert (caught.value.code, first.kind.value, first.actor) == ("idempotency_mismatch", "load", "ann")
    assert graph.store.snapshot().commit_id == head


@pytest.mark.slow
def test_an_old_graph_gets_derived_files_and_says_what_it_said(
    stored: tuple[Graph, list[Question]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file counts as large: all that the release of today keeps beside such files is completed."""
    graph, asked = stored
    for branch in ("main", "grown"):
        graph.ensure_indexes(branch=branch)
    assert not derived_files(graph.uri)
    of_its_commits = differing(graph, asked)  # the indexes were commits: heads and logs show them
    small_tiers(monkeypatch, EVERYTHING)

    reports = [graph.ensure_indexes(branch=branch) for branch in ("main", "grown")]

    written = {name for report in reports for one in report.types for name in one.derived}
    assert {"id", "src", "dst", "adjacency"} <= written
    assert derived_files(graph.uri)
    assert not any(one.derived for one in graph.ensure_indexes().types)
    with og.connect(graph.uri) as fresh:
        assert differing(fresh, asked) == of_its_commits


@pytest.mark.parametrize("deep", [False, True])
def test_an_old_graph_is_sound(stored: tuple[Graph, list[Question]], deep: bool) -> None:
    graph, _ = stored
    assert [finding for finding in graph.doctor(deep=deep).findings if finding.severity != "info"] == []
