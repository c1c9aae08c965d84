"""The table of the matrix is whole: every writer passes what it says, and no cell is left out in silence."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, cast

import pytest

from omnigraph.storage.durability import Step, names
from tests.faults.cells import AT_POINTS, ON_REQUESTS, Action, Store, every_cell, everyday, points_of
from tests.faults.ground import Ground
from tests.faults.report import Report, lines, told_by
from tests.faults.writers import WRITERS, Writer

ASKED_FOR = """
    mutation mutation-of-two-types load spark-load merge revert schema-apply index-build optimize cleanup
    embed branch-create branch-delete branch-rename tag backup restore clone export export-and-import init
"""
# An upgrade starts from what another release wrote, so it is stopped by tests of its own
# (tests/crash/test_upgrade_kill.py).
ELSEWHERE = {f"{Step.UPGRADE.value}.{side}" for side in ("before", "after")}


def rows() -> list[object]:
    """Return every writer with each store as parameters; each runs where the cells of its writer do."""
    return [
        pytest.param(
            writer,
            store,
            id=f"{store}-{writer}",
            marks=[
                pytest.mark.xdist_group(f"faults-{store}-{writer}"),
                *([pytest.mark.s3] if store == "s3" else []),
                *([pytest.mark.spark] if writer.spark else []),
                # The cells of the everyday run look at most writers on S3 through the same steps.
                *([pytest.mark.full] if store == "s3" else []),
            ],
        )
        for writer in WRITERS
        for store in ("local", "s3")
    ]


@pytest.mark.parametrize(("writer", "store"), rows())
def test_writer_passes_exactly_the_steps_of_its_row_and_shows_something_in_one(
    grounds: Callable[[Store], Ground], writer: Writer, store: Store
) -> None:
    course = grounds(store).course(writer)

    assert set(course.passed) == set(points_of(writer, store))
    for step in writer.steps:
        assert course.passed.count(f"{step.value}.before") == course.passed.count(f"{step.value}.after")
    assert course.before != course.after, "otherwise a state between them could not be told from either"
    if writer.promise in ("changes", "makes"):
        assert course.passed.count(f"{writer.visible.value}.after") == 1, "it becomes visible in one step"


def test_every_failpoint_is_passed_by_some_writer() -> None:
    """A new durable step needs a writer that is stopped there."""
    passed = {point for writer in WRITERS for point in points_of(writer, "local")}
    passed |= ELSEWHERE

    assert [point for point in names() if point not in passed] == []


def test_every_writer_has_a_rival_but_those_that_write_beside_their_graph() -> None:
    without = {writer.name for writer in WRITERS if writer.rival is None}

    assert without == {writer.name for writer in WRITERS if writer.beside}


def test_every_writer_that_was_asked_for_is_in_the_table() -> None:
    assert set(ASKED_FOR.split()) <= {writer.name for writer in WRITERS}


def test_every_writer_is_stopped_at_every_point_on_both_stores_and_meets_every_kind_of_request() -> None:
    cells = {(cell.writer.name, cell.window, cell.action, cell.store) for cell in every_cell()}
    stores: tuple[Store, ...] = ("local", "s3")
    wanted = {
        (writer.name, point, action, store)
        for writer in WRITERS
        for store in stores
        for point in points_of(writer, store)
        for action in AT_POINTS
    }

    assert wanted <= cells
    assert {(writer.name, action) for writer in WRITERS for action in ON_REQUESTS} <= {
        (name, action) for name, _, action, store in cells if store == "s3"
    }
    assert len(cells) > 400


def test_the_everyday_share_leaves_out_no_writer_no_action_and_no_point() -> None:
    cells, chosen = list(every_cell()), everyday()

    assert chosen <= set(cells)
    assert {cell.writer for cell in chosen} == set(WRITERS)
    assert {(cell.action, cell.store) for cell in chosen} == {(cell.action, cell.store) for cell in cells}
    stopped = {cell.window for cell in chosen if cell.action is Action.EXCEPTION}
    assert stopped == set(names()) - ELSEWHERE
    for action in (Action.EXCEPTION, Action.KILL):
        decided = {cell.writer.visible for cell in chosen if cell.action is action}
        assert decided == {writer.visible for writer in WRITERS}
    assert chosen == everyday(), "the same in every run"
    assert {cell.action for cell in chosen if cell.writer.spark} == {Action.EXCEPTION}


# -- the line about it ---------------------------------------------------------------------------------


class Told(NamedTuple):
    """What pytest says of one part of a test."""

    nodeid: str
    when: str = "call"
    outcome: str = "passed"
    longrepr: object = None

    @property
    def failed(self) -> bool:
        """Whether it failed."""
        return self.outcome == "failed"

    @property
    def skipped(self) -> bool:
        """Whether it was skipped."""
        return self.outcome == "skipped"


def test_the_line_counts_each_cell_once_and_names_what_was_skipped() -> None:
    local, remote, unmade, closed, left_out = [
        *[str(cell) for cell in every_cell() if cell.store == "local"][:2],
        *[str(cell) for cell in every_cell() if cell.store == "s3"][:3],
    ]
    said = [
        Told(f"tests/faults/test_matrix.py::test_cell[{local}]@faults-local-mutation"),
        Told(f"test_cell[{remote}]", outcome="failed"),
        Told(f"test_cell[{remote}]", when="teardown", outcome="failed"),
        Told(f"test_cell[{unmade}]", when="setup", outcome="failed"),
        Told(f"test_cell[{closed}]"),
        Told(f"test_cell[{closed}]", when="teardown", outcome="failed"),
        Told(f"test_cell[{left_out}]", when="setup", outcome="skipped", longrepr=("x.py", 7, "no disk")),
    ]
    found = told_by(cast("list[Report]", said))

    assert found.ran == {local, remote, closed}
    assert found.violated == {remote, unmade, closed}, "what fails before and after a cell violates it, too"
    first, *rest = lines(found)
    total = len(list(every_cell()))
    assert f"{total} cells exist, 3 ran (local 2 of " in first
    assert ", 3 violated, 1 skipped; not asked for: " in first
    assert rest == [f"  skipped: {left_out}: no disk"]
    numbers = [int(word) for word in re.findall(r"(\d+) of (?:those|the)", first)]
    assert sum(numbers) == total - 5, "every cell is in one of the numbers"
