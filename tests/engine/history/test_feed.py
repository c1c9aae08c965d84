"""What the change feed promises: order, whole commits, cursors that mean one thing, gaps that are said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import (
    BranchNotFound,
    ChangeFeedGap,
    CursorRejected,
    HistoryReclaimed,
    InvalidRequest,
    ParentlessCommit,
)
from omnigraph.engine.history import changes
from omnigraph.engine.history.changes import Change
from omnigraph.engine.history.comparison import StateComparison
from omnigraph.engine.history.feed import FeedCommit, FeedPage
from tests.support.people import head
from tests.support.two_branches import SCHEMA, change, fork, knows, person, put, world

Told = list[tuple[str, list[tuple[str, str]]]]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with world(tmp_path) as made:
        yield made


def told(blocks: tuple[FeedCommit, ...]) -> Told:
    return [(b.cause.kind, [(one.id, one.op.value) for one in b.changes]) for b in blocks]


def cursor_of(page: FeedPage) -> str:
    assert page.cursor is not None
    return page.cursor


def read_all(graph: Graph, **options: Any) -> list[FeedCommit]:
    """Read from the start to the head, however the pages fall, joining the parts of a commit."""
    page = graph.changes.poll(start="beginning", **options)
    blocks: list[FeedCommit] = list(page.blocks)
    while not page.caught_up:
        inside = page.page_token is not None
        page = (
            graph.changes.poll(page_token=page.page_token, **options)
            if inside
            else graph.changes.poll(page.cursor, **options)
        )
        first, *rest = page.blocks or (None,)
        if inside and first is not None and blocks[-1].cause == first.cause:
            last = blocks.pop()
            first = FeedCommit(last.cause, last.changes + first.changes, last.schema)
        blocks += [block for block in (first, *rest) if block is not None]
    return blocks


def test_blocks_follow_the_line_oldest_first_with_inherited_history(graph: Graph) -> None:
    put(graph, "main", person("Eve"))
    fork(graph)
    put(graph, "main", person("Mallory"))
    put(graph, "side", person("Alice", age=31))

    page = graph.changes.poll(start="beginning", branch="side")

    assert told(page.blocks) == [
        (
            "load",
            [(name, "insert") for name in ("Alice", "Bob", "Carol", "Dan")] + [("bc", "insert")],
        ),
        ("load", [("Eve", "insert")]),
        ("load", [("Alice", "update")]),
    ]
    assert [block.cause.branch for block in page.blocks] == ["main", "main", "side"]
    parents = [block.cause.parent_commit_id for block in page.blocks]
    assert parents[1:] == [block.cause.commit_id for block in page.blocks[:-1]]
    assert page.caught_up


def test_without_a_start_nothing_is_replayed(graph: Graph) -> None:
    page = graph.changes.poll()
    assert (page.blocks, page.caught_up) == ((), True)
    put(graph, "main", person("Eve"))

    following = graph.changes(after=page.cursor)

    assert told(following.blocks) == [("load", [("Eve", "insert")])]
    assert graph.changes.poll(following.cursor).blocks == ()


def test_after_a_commit_means_from_its_successor_on(graph: Graph) -> None:
    base = head(graph)
    put(graph, "main", person("Eve"))
    fork(graph)
    put(graph, "side", person("Sid"))

    assert told(graph.changes.poll(start=f"after:{base}").blocks) == [("load", [("Eve", "insert")])]
    with pytest.raises(InvalidRequest, match="did not lead"):
        graph.changes.poll(start=f"after:{head(graph, 'side')}")
    with pytest.raises(InvalidRequest, match="'beginning'"):
        graph.changes.poll(start="yesterday")


def test_a_merge_is_one_block_with_both_parents(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Eve"))
    put(graph, "side", person("Eve", age=9))
    cursor = graph.changes.poll().cursor
    side = head(graph, "side")
    graph.merge("side", actor="ada", message="bring Eve")

    (block,) = graph.changes.poll(cursor).blocks

    assert (block.cause.merged_parent_commit_id, block.cause.actor) == (side, "ada")
    assert [(one.id, one.op.value) for one in block.changes] == [("Eve", "insert")]


def test_maintenance_is_an_empty_block_and_a_schema_commit_has_its_steps(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    graph.ensure_indexes()
    graph.schema.apply(SCHEMA.replace("city: String?", 'city: String?  team: String @default("none")'))

    page = graph.changes.poll(cursor)

    assert told(page.blocks) == [("maintenance", []), ("schema", [])]
    assert [step.kind for step in page.blocks[1].schema] == ["add_property"]


def test_control_writes_are_no_blocks(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    graph.store.raise_floor("main", 1)

    page = graph.changes.poll(cursor)

    assert (page.blocks, page.caught_up, page.cursor) == ((), True, cursor)


# -- pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_pages_of_any_size_say_the_same(graph: Graph, limit: int) -> None:
    put(graph, "main", person("Eve"), knows("be", "Bob", "Eve"))
    change(graph, "main", 'delete Person where name = "Bob"')
    whole = graph.changes.poll(start="beginning").blocks

    assert read_all(graph, limit=limit) == list(whole)


def test_a_page_that_ends_inside_a_commit_has_no_cursor(graph: Graph) -> None:
    page = graph.changes.poll(start="beginning", limit=2)

    assert (page.cursor, page.caught_up) == (None, None)
    assert page.page_token is not None
    assert set(page.to_json()) == {"blocks", "next_page_token"}
    with pytest.raises(CursorRejected, match="page token"):
        graph.changes.poll(page.page_token)


def test_an_answer_ends_at_the_head_that_its_first_page_saw(graph: Graph) -> None:
    page = graph.changes.poll(start="beginning", limit=4)
    put(graph, "main", person("Eve"))

    rest = graph.changes.poll(page_token=page.page_token)

    assert told(rest.blocks) == [("load", [("bc", "insert")])]
    assert rest.caught_up is False
    assert told(graph.changes.poll(rest.cursor).blocks) == [("load", [("Eve", "insert")])]


def test_a_change_larger_than_a_page_goes_alone(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "BYTES", 1)

    blocks = read_all(graph)
    first = graph.changes.poll(start="beginning")

    assert [len(block.changes) for block in first.blocks] == [1]
    assert [one.id for one in blocks[0].changes] == ["Alice", "Bob", "Carol", "Dan", "bc"]


@pytest.mark.parametrize("limit", [0, -1, 100_000])
def test_a_page_has_a_size(graph: Graph, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to"):
        graph.changes.poll(limit=limit)


# -- cursors -----------------------------------------------------------------------------------------


def test_a_cursor_works_from_another_handle_and_repeats_when_it_is_repeated(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    put(graph, "main", person("Eve"))

    with og.connect(graph.uri) as other:
        assert told(other.changes.poll(cursor).blocks) == told(graph.changes.poll(cursor).blocks)


def test_a_cursor_is_bound_to_branch_filter_and_graph(graph: Graph, tmp_path: Path) -> None:
    fork(graph)
    cursor = cursor_of(graph.changes.poll())

    with pytest.raises(CursorRejected, match="another branch"):
        graph.changes.poll(cursor, branch="side")
    with pytest.raises(CursorRejected, match="another filter"):
        graph.changes.poll(cursor, types="Person")
    (tmp_path / "other").mkdir()
    with world(tmp_path / "other") as other, pytest.raises(CursorRejected, match="another graph"):
        other.changes.poll(cursor)


def test_a_damaged_cursor_is_rejected(graph: Graph) -> None:
    cursor = cursor_of(graph.changes.poll())

    for place in range(0, len(cursor), 7):
        other = "A" if cursor[place] != "A" else "B"
        with pytest.raises(CursorRejected):
            graph.changes.poll(cursor[:place] + other + cursor[place + 1 :])
    for text in ("", "x", "☃", cursor[:-5], cursor + cursor):
        with pytest.raises(CursorRejected):
            graph.changes.poll(text)


def test_a_branch_made_anew_does_not_take_the_old_cursor(graph: Graph) -> None:
    fork(graph)
    cursor = graph.changes.poll(branch="side").cursor
    graph.store.branches.delete("side")
    with pytest.raises(BranchNotFound):
        graph.changes.poll(cursor, branch="side")
    fork(graph)

    with pytest.raises(CursorRejected, match="earlier branch"):
        graph.changes.poll(cursor, branch="side")


def test_a_branch_made_anew_while_it_is_read_fails_the_poll(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork(graph)
    put(graph, "side", person("Eve"))
    whole = StateComparison.changes

    def meanwhile(self: StateComparison, after: Any = None) -> Iterator[Change]:
        yield from whole(self, after)
        if self.after.head == head(graph, "side"):
            graph.branches.delete("side")
            fork(graph)

    monkeypatch.setattr(StateComparison, "changes", meanwhile)

    with pytest.raises(CursorRejected, match="made anew"):
        graph.changes.poll(start="beginning", branch="side")


def test_a_filter_survives_the_renaming_of_its_type(graph: Graph) -> None:
    cursor = graph.changes.poll(types="Person").cursor
    renamed = 'node Human @rename_from("Person") { name: String @key  age: I32?  city: String? }\n'
    graph.schema.apply(renamed + "edge Knows: Human -> Human { since: I32?  note: String? }")
    graph.load([{"type": "Human", "data": {"name": "Eve"}}], mode="merge")

    page = graph.changes.poll(cursor, types="Human")

    assert told(page.blocks) == [("schema", []), ("load", [("Eve", "insert")])]


def test_one_point_to_begin(graph: Graph) -> None:
    with pytest.raises(InvalidRequest, match="one point"):
        graph.changes.poll(graph.changes.poll().cursor, start="beginning")


# -- gaps --------------------------------------------------------------------------------------------


def test_a_gap_is_said_with_the_first_commit_that_is_lost(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    put(graph, "main", person("Eve"))
    lost = head(graph)
    put(graph, "main", person("Finn"))
    kept = graph.changes.poll().cursor
    graph.store.raise_floor("main", graph.store.snapshot().state.version)

    with pytest.raises(ChangeFeedGap) as gap:
        graph.changes.poll(cursor)
    assert gap.value.fields == {"cursor": cursor, "first_unreadable_commit_id": lost}
    assert gap.value.code == "change_feed_gap"
    with pytest.raises(ChangeFeedGap):
        graph.changes.poll(start="beginning")
    assert graph.changes.poll(kept).blocks == ()
    put(graph, "main", person("Gus"))
    assert told(graph.changes.poll(kept).blocks) == [("load", [("Gus", "insert")])]


def test_the_history_of_a_hard_dropped_column_is_a_gap_after_what_is_readable(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    put(graph, "main", person("Eve"))
    put(graph, "main", knows("ae", "Alice", "Eve"))
    graph.schema.apply(SCHEMA.replace("note: String?", ""), allow_data_loss=True)

    page = graph.changes.poll(cursor)

    assert told(page.blocks) == [("load", [("Eve", "insert")])]
    with pytest.raises(ChangeFeedGap):
        graph.changes.poll(page.cursor)


def test_a_baseline_is_the_state_and_the_cursor_that_follows_it(graph: Graph) -> None:
    baseline = graph.changes.baseline(types="Person")
    assert baseline.snapshot_commit_id == head(graph)
    with pytest.raises(InvalidRequest, match="not read"):
        _ = baseline.resume_cursor
    put(graph, "main", person("Eve"), knows("ae", "Alice", "Eve"))

    assert [(one.id, one.op.value) for one in baseline] == [
        (name, "insert") for name in ("Alice", "Bob", "Carol", "Dan")
    ]
    following = graph.changes.poll(baseline.resume_cursor, types="Person")
    assert told(following.blocks) == [("load", [("Eve", "insert")])]


# -- waiting -----------------------------------------------------------------------------------------


def test_waiting_ends_with_the_first_commit(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    writer = threading.Timer(0.3, put, (graph, "main", person("Eve")))
    writer.start()
    try:
        page = graph.changes.wait(cursor, timeout=30)
    finally:
        writer.join()

    assert told(page.blocks) == [("load", [("Eve", "insert")])]


def test_waiting_in_vain_ends_with_a_cursor(graph: Graph) -> None:
    page = graph.changes.wait(timeout=0.2)

    assert (page.blocks, page.caught_up) == ((), True)
    put(graph, "main", person("Eve"))
    assert len(graph.changes.poll(page.cursor).blocks) == 1


# -- one commit --------------------------------------------------------------------------------------


def test_the_changes_of_one_commit_come_in_pages_that_are_bound_to_it(graph: Graph) -> None:
    first = head(graph)
    put(graph, "main", person("Eve"))

    page = graph.changes.of(first, limit=3)
    rest = graph.changes.of(first, limit=3, page_token=page.page_token)

    assert [one.id for one in page.block.changes + rest.block.changes] == [
        "Alice",
        "Bob",
        "Carol",
        "Dan",
        "bc",
    ]
    assert rest.page_token is None
    with pytest.raises(CursorRejected, match="another commit"):
        graph.changes.of(head(graph), page_token=page.page_token)
    with pytest.raises(CursorRejected, match="another commit or filter"):
        graph.changes.of(first, page_token=page.page_token, kinds="node")


def test_the_first_commit_of_a_graph_has_no_changes_to_tell(graph: Graph) -> None:
    genesis = graph.store.snapshot(at=1).commit_id
    with pytest.raises(ParentlessCommit, match="first"):
        graph.changes.of(genesis)


def test_the_first_commit_of_a_branch_is_told_against_its_fork(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Eve"))

    found = graph.changes.of(head(graph, "side"))

    assert [one.id for one in found.block.changes] == ["Eve"]


def test_a_commit_whose_parent_was_cleaned_cannot_be_told(graph: Graph) -> None:
    put(graph, "main", person("Eve"))
    graph.store.raise_floor("main", graph.store.snapshot().state.version)
    with pytest.raises(HistoryReclaimed):
        graph.changes.of(head(graph))
