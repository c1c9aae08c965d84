"""Where a copy ends when writers come between its first reads: nothing in it points outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.copy.cut import choose_cut
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.manifest.refs import RefsState
from tests.support.told import digest_at


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Main and a branch."""
    with og.init(tmp_path / "graph.og", "node A { n: I64? }", durability="os") as made:
        made.branches.create("work")
        yield made


def test_a_branch_that_took_in_more_of_main_raises_the_cut_of_main(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = graph.store.history.heads

    def heads_with_a_merge_between(chains: Iterable[str]) -> dict[str, ManifestState]:
        main, *others = chains
        read = really([main])
        with og.connect(graph.uri) as writer:
            writer.load([{"type": "A", "data": {"id": "a", "n": 1}}], mode="append")
            writer.merge("main", "work")
        return read | really(others)

    monkeypatch.setattr(graph.store.history, "heads", heads_with_a_merge_between)
    cut = choose_cut(graph.store)
    monkeypatch.undo()

    heads = dict(cut.branches)
    assert heads["work"].seen["main"] == heads["main"].version == graph.store.snapshot().state.version


def test_a_branch_deleted_after_the_registry_was_read_is_still_in_the_copy(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.load([{"type": "A", "data": {"id": "a", "n": 1}}], mode="append", branch="work")
    before = digest_at(graph, "work")
    really = graph.store.registry

    def registry_and_then_a_delete() -> RefsState:
        registry = really()
        if any(ref.name == "work" for ref in registry.branches):
            with og.connect(graph.uri) as writer:
                writer.branches.delete("work")
        return registry

    monkeypatch.setattr(graph.store, "registry", registry_and_then_a_delete)
    report = graph.backup(tmp_path / "copy.og")
    monkeypatch.undo()

    assert set(report.commits) == {"main", "work"}
    with og.connect(tmp_path / "copy.og") as copy:
        assert digest_at(copy, "work") == before
    graph.backup(tmp_path / "copy.og")
    with og.connect(tmp_path / "copy.og") as copy:
        assert [branch.name for branch in copy.branches.list()] == ["main"]
