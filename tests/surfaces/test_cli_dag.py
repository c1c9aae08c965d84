"""The drawing of `log --graph`: every commit once, above its parents, connected to both of them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.storage.manifest.records import CommitKind, CommitRecord
from omnigraph.surfaces.cli.commit import draw


def commits(parents: Mapping[str, str]) -> list[CommitRecord]:
    """Make commits from texts: the first letter is the first parent, the second the merged one."""
    return [
        CommitRecord(
            id=name,
            parent=given[0] if given else None,
            merged_parent=given[1] if len(given) > 1 else None,
            branch="main",
            incarnation="main",
            kind=CommitKind.MERGE if len(given) > 1 else CommitKind.LOAD,
            actor=None,
            message=None,
            authored_at_us=0,
            manifest_version=1,
            schema="",
        )
        for name, given in parents.items()
    ]


def drawing(parents: Mapping[str, str]) -> list[str]:
    return [f"{line} {one.id}" if one else line for line, one in draw(commits(parents))]


def test_a_line_is_a_line() -> None:
    assert drawing({"a": "", "b": "a", "c": "b"}) == ["* c", "* b", "* a"]


def test_a_merge_has_two_parents() -> None:
    assert drawing({"a": "", "b": "a", "c": "a", "d": "bc", "e": "d"}) == [
        "* e",
        "* d",
        "|\\",
        "| * c",
        "* | b",
        "|/",
        "* a",
    ]


def test_a_parent_that_is_not_shown_is_not_waited_for() -> None:
    assert drawing({"b": "a", "c": "bx"}) == ["* c", "* b"]


@st.composite
def histories(draw_from: st.DrawFn) -> dict[str, str]:
    """Make up to twenty commits, each on any earlier ones."""
    names = "abcdefghijklmnopqrst"[: draw_from(st.integers(1, 20))]
    found = {names[0]: ""}
    for at in range(1, len(names)):
        first = draw_from(st.sampled_from(names[:at]))
        others = [""] + [one for one in names[:at] if one != first]
        found[names[at]] = first + draw_from(st.sampled_from(others))
    return found


@given(histories())
def test_every_commit_stands_once_above_its_parents_and_no_lane_is_left_open(parents: dict[str, str]) -> None:
    rows = list(draw(commits(parents)))

    order = [one.id for _, one in rows if one is not None]
    assert sorted(order) == sorted(parents)
    for name, given_parents in parents.items():
        for parent in given_parents:
            assert order.index(name) < order.index(parent)
    for line, one in rows:
        assert line.count("*") == (one is not None)
    assert set(rows[-1][0]) <= {"*", " "}, "the last commit ends every lane"
