"""Moments: a commit id, a version, a tag, `name~n` or a time means the same state in every read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.arguments import BadArgument
from omnigraph.base.errors import BadMoment, BranchNotFound, CommitNotFound, GraphError, TagNotFound
from omnigraph.base.ids import minted_us
from omnigraph.base.times import AncestorAt, CommitAt, TagAt, TimeAt, VersionAt, read_moment

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person\n"
ADD = "query q($n: String) { insert Person { name: $n } }"
NAMES = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """main has a, b and then d; `dev` was forked at b and has c; `leaf` was forked from dev."""
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as made:
        for name in ("a", "b"):
            made.mutate(ADD, n=name)
        made.branches.create("dev")
        made.mutate(ADD, n="c", branch="dev")
        made.branches.create("leaf", "dev")
        made.mutate(ADD, n="d")
        yield made


def names(graph: Graph, **where: Any) -> str:
    return "".join(row["p.name"] for row in graph.query(NAMES, **where))


def commit(graph: Graph, moment: str) -> str:
    return graph.commits.get(moment).id


# -- spelling


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", CommitAt("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        ("17", VersionAt(17)),
        ("main~2", AncestorAt("main", 2)),
        ("a~1~0", AncestorAt("a~1", 0)),
        ("1970-01-02", TimeAt(86_400_000_000)),
        ("1970-01-01T00:00:01", TimeAt(1_000_000)),
        ("1970-01-01 00:00:01.5Z", TimeAt(1_500_000)),
        ("1970-01-01T01:00:01+01:00", TimeAt(1_000_000)),
        ("1970-01-01T000001Z", TimeAt(1_000_000)),
        ("v1", TagAt("v1")),
        ("2026-13-01", TagAt("2026-13-01")),
        ("main~", TagAt("main~")),
        ("~1", TagAt("~1")),
    ],
)
def test_the_spelling_tells_the_forms_apart(text: str, meaning: object) -> None:
    assert read_moment(text) == meaning
    assert read_moment(f" {text} ") == meaning


def test_a_time_without_a_zone_is_in_utc() -> None:
    east = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert read_moment(datetime(1970, 1, 1)) == read_moment(east) == TimeAt(0)  # noqa: DTZ001


@given(st.text())
def test_every_text_means_something_or_is_a_name(text: str) -> None:
    read_moment(text)


# -- every form, in every read


def test_every_form_names_its_state(graph: Graph) -> None:
    graph.tags.create("v1", "main~1")
    state = graph.store.snapshot(at=commit(graph, "main~1")).state

    for at in (state.head, state.version, str(state.version), "main~1", "dev~1", "leaf~1", "v1", "v1~0"):
        assert names(graph, at=at) == "ab", at
        assert graph.query(NAMES, at=at).commit_id == state.head


def test_ancestors_go_back_into_the_branch_that_was_forked(graph: Graph) -> None:
    assert [names(graph, at=f"leaf~{steps}") for steps in range(4)] == ["abc", "ab", "a", ""]
    assert [names(graph, at=f"main~{steps}") for steps in range(4)] == ["abd", "ab", "a", ""]
    with pytest.raises(CommitNotFound):
        names(graph, at="leaf~4")


def test_a_time_is_read_on_its_branch(graph: Graph) -> None:
    at_b, at_c = minted_us(commit(graph, "main~1")), minted_us(commit(graph, "dev~0"))
    for branch, time_us, expected in (
        ("main", at_c + 10**7, "abd"),
        ("dev", at_c + 10**7, "abc"),
        ("leaf", at_c + 10**7, "abc"),
        ("leaf", at_b, "ab"),
    ):
        time = datetime.fromtimestamp(time_us / 1e6, UTC)
        for at in (time, time.isoformat(), time.replace(tzinfo=None)):
            assert names(graph, branch=branch, at=at) == expected, (branch, at)


def test_every_read_takes_a_moment(graph: Graph) -> None:
    graph.tags.create("v1", "main~2")
    head = commit(graph, "v1")

    assert graph.explain(NAMES, at="v1").commit_id == head
    assert graph.profile(NAMES, at="main~2").commit_id == head
    assert graph.nodes("Person", at="v1").to_arrow().num_rows == 1
    assert graph.edges("Knows", at="v1").to_arrow().num_rows == 0
    assert graph.schema.show(at="v1") == graph.schema.show()


def test_a_tag_reads_the_same_after_the_branch_that_holds_it_was_renamed(graph: Graph) -> None:
    graph.tags.create("v1", "dev~0")
    graph.branches.rename("dev", "kept")

    assert names(graph, at="v1") == "abc"
    assert graph.query(NAMES, at="v1").branch == "kept"
    assert names(graph, at="kept~1") == "ab"


# -- what names nothing


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ("nope", TagNotFound),
        ("nope~1", BranchNotFound),
        ("", BadMoment),
        ("a//b", BadMoment),
        ("a//b~1", BadMoment),
        (1.5, BadArgument),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", CommitNotFound),
        (99, CommitNotFound),
        ("1970-01-01", CommitNotFound),
    ],
)
def test_what_names_no_state_is_refused_with_what_would(
    graph: Graph, at: Any, error: type[GraphError]
) -> None:
    with pytest.raises(error) as caught:
        names(graph, at=at)
    if error in (BadMoment, TagNotFound):
        assert "BRANCH~N" in str(caught.value)


def test_the_past_below_the_floor_is_reclaimed(graph: Graph) -> None:
    graph.tags.create("v1", "main~2")
    graph.store.raise_floor("main", 3)

    first = datetime.fromtimestamp(minted_us(commit(graph, "main~1")) / 1e6, UTC) - timedelta(days=1)
    for at in ("v1", "main~2", first):
        with pytest.raises(GraphError) as caught:
            names(graph, at=at)
        assert caught.value.code == "history_reclaimed", at
    assert names(graph, at="main~1") == "ab"
