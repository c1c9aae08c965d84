"""Which operation is stopped at which point, and in which run: the parameters of the crash tests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from omnigraph.storage.durability import Step
from tests.crash.operations import BY_NAME, LOCAL_ONLY, OPERATIONS, Operation

LIKE_WRITE = ("write-on-branch", "claimed-write", "add-table")  # they share most of their path with `write`
SIDES = ("before", "after")
INIT = BY_NAME["init"]
ON_A_BASE = tuple(operation for operation in OPERATIONS if operation.needs_base)

# The compare-and-swaps: on S3 the default run takes these, once each.
SWAPS = frozenset(
    {
        Step.PUBLISH,
        Step.BRANCH_REGISTER,
        Step.BRANCH_MARK,
        Step.BRANCH_TOMBSTONE,
        Step.BRANCH_UNREGISTER,
        Step.BRANCH_NAME,
        Step.BRANCH_RENAME,
        Step.TAG_CREATE,
        Step.TAG_DELETE,
        Step.FLOOR,
        Step.GENESIS,
    }
)
# Steps that `write` passes in the same way: locally the default run takes them once.
AS_IN_WRITE = frozenset(
    {
        Step.TABLE_DATA,
        Step.TABLE_DELETIONS,
        Step.TABLE_COMMIT,
        Step.DERIVED,
        Step.STAGED_SYNC,
        Step.CHECKSUM,
    }
)


def points(operation: Operation, *, local: bool = True) -> list[str]:
    """Return the points that an operation passes."""
    steps = (step for step in operation.steps if local or step not in LOCAL_ONLY)
    return [f"{step.value}.{side}" for step in steps for side in SIDES]


def everywhere(chosen: Iterable[Operation]) -> list[object]:
    """Return (operation, point) for every point on local disk where an error ends the operation.

    An index that cannot be built does not: it is noted, and left for later.
    """
    cases = ((one, point) for one in chosen for point in points(one))
    return [_case(*case, full=False) for case in cases if _step(case[1]) is not Step.TABLE_INDEX]


def on_local_disk(chosen: Iterable[Operation]) -> list[object]:
    """Return (operation, point) for every point on local disk; those that repeat `write` are marked full."""
    return [_case(one, point, full=_repeats(one, point)) for one in chosen for point in points(one)]


def on_s3(chosen: Iterable[Operation]) -> list[object]:
    """Return (operation, point) for every point on the S3 API; only the swaps run always."""
    return [
        _case(one, point, full=one.name in LIKE_WRITE or _step(point) not in SWAPS)
        for one in chosen
        for point in points(one, local=False)
    ]


def _step(point: str) -> Step:
    return Step(point.rpartition(".")[0])


def _repeats(operation: Operation, point: str) -> bool:
    return operation.name in LIKE_WRITE and _step(point) in AS_IN_WRITE


def _case(operation: Operation, point: str, *, full: bool) -> object:
    marks = [pytest.mark.full] if full else []
    return pytest.param(operation, point, marks=marks, id=f"{operation}-{point}")
