"""After a cleanup: what is kept answers as before, and what is not says so, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ChangeFeedGap, HistoryReclaimed
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name } }"
SET = 'query set($age: I32) { update Person set { age: $age } where name = "Ada" }'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Ten commits, a tag on the fifth, a branch from the seventh; all but the newest two given up."""
    og.init(tmp_path / "g.og", SCHEMA, durability="os").close()
    store = GraphStore.open(tmp_path / "g.og", durability="os", retry=RetryPolicy(confirm_after_s=0))
    with Graph(store) as made:
        made.load([{"type": "Person", "data": {"name": "Ada", "age": 0}}], mode="append")
        for age in range(1, 10):
            made.mutate(SET, age=age)
            if age == 4:
                made.tags.create("v1")
            if age == 6:
                made.branches.create("dev")
                made.mutate('query add() { insert Person { name: "Bob" } }', branch="dev")
        yield made


@pytest.fixture
def ids(graph: Graph) -> list[str]:
    """The commits of main before the cleanup, newest first."""
    return [commit.id for commit in graph.commits.list(limit=20)]


@pytest.fixture
def cleaned(graph: Graph, ids: list[str]) -> Iterator[Graph]:
    """The graph after a cleanup, in a process that has cached nothing."""
    assert graph.cleanup(keep=2, grace="0s", dry_run=False).files > 10
    with og.connect(graph.uri) as fresh:
        yield fresh


def ages(graph: Graph, **at: Any) -> list[int]:
    """Return Ada's age at some state."""
    return list(graph.nodes("Person", **at).to_arrow()["age"].to_pylist())


def test_what_is_kept_reads_as_before(cleaned: Graph, ids: list[str]) -> None:
    assert ages(cleaned) == [9]
    assert ages(cleaned, at=ids[1]) == ages(cleaned, at="main~1") == [8]
    assert ages(cleaned, at="v1") == ages(cleaned, at=ids[5]) == [4]
    assert [row["name"] for row in cleaned.query(NAMES, at="v1").rows] == ["Ada"]
    assert [change.after for change in cleaned.diff("v1", "main")] != []
    assert len(cleaned.query(NAMES, branch="dev")) == 2


Ask = Callable[[Graph, str], Any]  # something of a commit whose history was given up
READS: dict[str, Ask] = {
    "query": lambda g, at: g.query(NAMES, at=at),
    "nodes": lambda g, at: g.nodes("Person", at=at).to_arrow(),
    "edges": lambda g, at: g.edges("Knows", at=at).to_arrow(),
    "view": lambda g, at: g.at(at),
    "diff": lambda g, at: list(g.diff(at, "main")),
    "diff until": lambda g, at: list(g.diff("v1", at)),
    "entity": lambda g, at: g.at(at).entity("Person", "Ada").get(),
    "changes of": lambda g, at: g.changes.of(at),
    "branch": lambda g, at: g.branches.create("late", at=at),
    "tag": lambda g, at: g.tags.create("late", at=at),
    "verify": lambda g, at: g.verify(at=at),
    "export": lambda g, at: g.export(Path(g.uri).parent / "out", at=at),
    "commit": lambda g, at: g.commits.get(at),
    "revert": lambda g, at: g.revert(at),
    "feed": lambda g, at: g.changes.poll(start=f"after:{at}"),  # of an older cursor: change_feed_gap
    "clone": lambda g, at: g.clone(Path(g.uri).parent / "clone.og", at=at),
}


def check_reclaimed(ask: Ask, graph: Graph, ids: list[str]) -> None:
    """Ask for commits that were given up; the answer must say so, and what to do."""
    for at in (ids[2], ids[6]):
        with pytest.raises(og.GraphError) as caught:
            ask(graph, at)
        assert (caught.value.code, bool(caught.value.remedy)) == ("history_reclaimed", True)


@pytest.mark.parametrize("read", READS)
def test_what_is_given_up_says_so(cleaned: Graph, ids: list[str], read: str) -> None:
    check_reclaimed(READS[read], cleaned, ids)


def test_a_merge_whose_base_is_given_up_says_so(graph: Graph) -> None:
    graph.store.raise_floor("main", graph.store.snapshot().state.version)  # a cleanup keeps such bases

    with og.connect(graph.uri) as fresh, pytest.raises(HistoryReclaimed) as caught:
        fresh.merge("dev", "main")
    assert caught.value.remedy


def test_the_log_ends_where_history_was_given_up(cleaned: Graph, ids: list[str]) -> None:
    assert [commit.id for commit in cleaned.commits.list(limit=20)] == ids[:2]
    history = cleaned.entity("Person", "Ada").history()
    assert history.reclaimed


def test_a_feed_whose_cursor_is_older_starts_again_from_a_baseline(graph: Graph, ids: list[str]) -> None:
    late = graph.changes.poll(start=f"after:{ids[7]}").cursor
    assert late is not None
    old = graph.changes.poll(start=f"after:{ids[9]}", limit=1).cursor
    assert old is not None
    graph.cleanup(keep=2, grace="0s", dry_run=False)

    with og.connect(graph.uri) as fresh:
        assert fresh.changes.poll(late).blocks == (), "it had read all there was"
        with pytest.raises(ChangeFeedGap):
            fresh.changes.poll(old)
        with pytest.raises(ChangeFeedGap):
            fresh.changes.poll(start=f"after:{ids[5]}")  # it is tagged; what follows it is gone
        assert len(list(fresh.changes.baseline())) > 0


def test_a_page_that_was_cut_within_a_commit_that_is_given_up_is_a_gap(graph: Graph) -> None:
    before = graph.store.snapshot().commit_id
    graph.load([{"type": "Person", "data": {"name": f"p{n}"}} for n in range(9)], mode="append")
    token = graph.changes.poll(start=f"after:{before}", limit=2).page_token
    assert token is not None
    for age in range(3):
        graph.mutate(SET, age=age)
    graph.cleanup(keep=1, grace="0s", dry_run=False)

    with og.connect(graph.uri) as fresh, pytest.raises(ChangeFeedGap):
        fresh.changes.poll(page_token=token)


def test_branches_still_merge_from_where_they_parted(cleaned: Graph) -> None:
    outcome = cleaned.merge("dev", "main")

    assert outcome.commit is not None
    assert [row["name"] for row in cleaned.query(NAMES).rows] == ["Ada", "Bob"]
    assert sorted(filter(None, ages(cleaned))) == [9], "Ada changed on main alone"
