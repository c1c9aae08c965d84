"""A delete of a branch that was interrupted leaves one that is gone, or whole until it is deleted again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.base.errors import BranchNotFound
from omnigraph.storage.durability import armed
from tests.faults.cells import Store, points_of
from tests.faults.ground import Ground, opened
from tests.faults.judge import attempt
from tests.faults.oracle import ADD
from tests.faults.writers import BY_NAME

pytestmark = pytest.mark.xdist_group("faults-local-branch-delete")
DELETE = BY_NAME["branch-delete"]


@pytest.mark.parametrize("point", points_of(DELETE, "local"))
def test_branch_whose_delete_was_interrupted_is_gone_or_complete(
    grounds: Callable[[Store], Ground], point: str
) -> None:
    """One that was only announced reads and writes; the error of a fork says that it must be finished first
    (docs/branching.md).
    """
    with opened(grounds("local").fresh(DELETE)) as (graph, _):
        with armed({point: "raise"}):
            assert attempt(DELETE.run, graph).error == "failpoint"
        if "side" in [branch.name for branch in graph.branches.list()]:
            graph.mutate(ADD, name="later", branch="side")
            refusal = ""
            try:
                graph.branches.create("child", "side")
                graph.branches.delete("child")
            except BranchNotFound as error:
                refusal = str(error)
            assert refusal == "" or "delete the branch again to finish it" in refusal
            graph.branches.delete("side")
        assert [branch.name for branch in graph.branches.list()] == ["main"]
