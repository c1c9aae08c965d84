"""A reply that is lost after the write took effect: the client tries again, and the write is there once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph.surfaces.client.open import open_remote
from tests.support.faults import Fault
from tests.support.proxy import S3Proxy
from tests.support.served import Served, serving

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Note { text: String }\n"
ADD = "query add($n: String) { insert Person { name: $n } }"
NOTE = "query note($t: String) { insert Note { text: $t } }"
AGE = 'query age($n: I32) { update Person set { age: $n } where name = "a" }'
Check = Callable[[Any], object]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("lost") / "kb.og"
    with og.init(place, SCHEMA, durability="os") as graph:
        graph.load([{"type": "Person", "data": {"name": "a", "age": 1}}], mode="append")
    with serving(place) as server:
        yield server


@pytest.fixture
def cut(served: Served) -> Iterator[tuple[Any, S3Proxy]]:
    """A graph behind a server and a proxy that breaks connections."""
    with S3Proxy(served.url) as proxy, open_remote(f"{proxy.endpoint}/graphs/kb") as graph:
        yield graph, proxy


def lose(proxy: S3Proxy, method: str, times: int = 1) -> None:
    """Let the next writes take effect, and lose their replies."""
    proxy.fail(lambda sent, key: sent == method, Fault.CUT_AFTER, times)


def commits(graph: Any, branch: str = "main") -> int:
    return len(graph.commits.list(branch, 1_000))


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_mutation_lands_once(cut: tuple[Any, S3Proxy], times: int) -> None:
    graph, proxy = cut
    before = commits(graph)
    lose(proxy, "POST", times)
    receipt = graph.mutate(NOTE, t=f"mutation {times}")
    assert receipt.replayed
    assert receipt.affected_nodes == 1
    assert proxy.pending_faults == 0
    assert commits(graph) == before + 1


def test_a_load_lands_once(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    before, rows = commits(graph), len(graph.nodes("Note"))
    lose(proxy, "POST", 2)
    receipt = graph.load([{"type": "Note", "data": {"text": "load"}}], mode="append")
    assert receipt.replayed
    assert (commits(graph), len(graph.nodes("Note"))) == (before + 1, rows + 1)


def test_a_merge_lands_once(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    graph.branches.create("merged")
    graph.mutate(AGE, n=7, branch="merged")
    graph.mutate(ADD, n="beside")
    before = commits(graph)
    lose(proxy, "POST")
    outcome = graph.merge("merged", delete_branch=True)
    assert proxy.pending_faults == 0
    assert commits(graph) == before + 1
    assert outcome.commit_id == graph.commits.list()[0].id or outcome.commit is None
    assert "merged" not in [branch.name for branch in graph.branches.list()]


def test_a_branch_is_made_once_and_that_is_no_conflict(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    lose(proxy, "POST")
    assert graph.branches.create("made").name == "made"
    assert proxy.pending_faults == 0
    with pytest.raises(og.BranchExists):
        graph.branches.create("made")
    lose(proxy, "DELETE")
    assert graph.branches.delete("made").name == "made"
    with pytest.raises(og.BranchNotFound):
        graph.branches.delete("made")


def test_a_branch_that_somebody_else_made_meanwhile_is_a_conflict(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    graph.branches.create("theirs")
    graph.mutate(ADD, n="x", branch="theirs")
    proxy.fail(lambda sent, key: sent == "POST", Fault.CUT_BEFORE)
    with pytest.raises(og.BranchExists):
        graph.branches.create("theirs")


def test_tags_and_names_of_branches_change_once(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    lose(proxy, "POST")
    tag = graph.tags.create("kept")
    assert [one.name for one in graph.tags.list()] == ["kept"]
    lose(proxy, "DELETE")
    assert graph.tags.delete("kept").commit_id == tag.commit_id
    graph.branches.create("old")
    lose(proxy, "PATCH")
    assert graph.branches.rename("old", "new").name == "new"


def test_a_schema_is_changed_once(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    graph.branches.create("grown")
    before = commits(graph, "grown")
    lose(proxy, "POST")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"), branch="grown")
    assert commits(graph, "grown") == before + 1


def test_a_revert_lands_once(cut: tuple[Any, S3Proxy]) -> None:
    graph, proxy = cut
    commit = graph.mutate(AGE, n=99).commit_id
    before = commits(graph)
    lose(proxy, "POST")
    graph.revert(commit)
    assert commits(graph) == before + 1
    assert graph.entity("Person", "a").get()["age"] != 99
