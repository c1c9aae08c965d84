"""Failpoints: named points before and after every durable step, where a test can intervene.

Nothing else in the package decides whether a point is armed.

- Use: `with durable(Step.PUBLISH): ...` around each call that makes something durable; arm with
  `OMNIGRAPH_FAILPOINTS="publish.before=kill"` or, in a test, `armed({...})`.
- Actions: `raise` (FailpointHit), `sleep:SECONDS`, `kill` (SIGKILL to this process), or any callable.
- Why: crash safety is only proven by dying at every step; a source check in `tests/crash` refuses a durable
  call outside such a block.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

ENVIRONMENT = "OMNIGRAPH_FAILPOINTS"
Action = str | Callable[[], None]


class Step(Enum):
    """Every durable step there is. Each has a point `<value>.before` and `<value>.after`."""

    TABLE_CREATE = "table_create"
    TABLE_DATA = "table_data"
    TABLE_DELETIONS = "table_deletions"
    TABLE_INDEX = "table_index"
    TABLE_COMMIT = "table_commit"
    SCHEMA_PUT = "schema_put"
    REFS_CREATE = "refs_create"
    GENESIS = "genesis"
    STAGED_SYNC = "staged_sync"
    CHECKSUM = "checksum"
    PUBLISH = "publish"
    HEAD_SYNC = "head_sync"
    BRANCH_CHAIN = "branch_chain"
    BRANCH_REGISTER = "branch_register"
    BRANCH_MARK = "branch_mark"
    BRANCH_TOMBSTONE = "branch_tombstone"
    BRANCH_UNREGISTER = "branch_unregister"
    BRANCH_NAME = "branch_name"
    BRANCH_RENAME = "branch_rename"
    TAG_CREATE = "tag_create"
    TAG_DELETE = "tag_delete"
    FLOOR = "floor"
    CLAIM = "claim"
    RECLAIM_FENCE = "reclaim_fence"
    RECLAIM_FILE = "reclaim_file"


class FailpointHit(RuntimeError):
    """Raised by the action `raise`; only tests ever see it."""


def names() -> tuple[str, ...]:
    """Return the names of all points, in declaration order."""
    return tuple(f"{step.value}.{side}" for step in Step for side in ("before", "after"))


class durable:
    """Mark one durable step. A class, not a generator: it stands around every step of every write."""

    __slots__ = ("_step",)

    def __init__(self, step: Step) -> None:
        self._step = step

    def __enter__(self) -> None:
        if _armed:
            hit(f"{self._step.value}.before")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if _armed and kind is None:
            hit(f"{self._step.value}.after")


@contextmanager
def armed(actions: Mapping[str, Action]) -> Iterator[None]:
    """Arm points for the length of a block (tests only)."""
    for name in actions:
        _check(name)
    before = dict(_armed)
    _armed.update(actions)
    try:
        yield
    finally:
        _armed.clear()
        _armed.update(before)


def hit(name: str) -> None:
    """Run the action armed at this point, if any."""
    if not _armed:
        return
    action = _armed.get(name)
    if action is None:
        return
    if callable(action):
        action()
    elif action == "raise":
        raise FailpointHit(name)
    elif action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("sleep:"):
        time.sleep(float(action.removeprefix("sleep:")))
    else:
        raise ValueError(f"failpoint {name!r}: unknown action {action!r}")


def _check(name: str) -> None:
    if name not in names():
        raise ValueError(f"unknown failpoint {name!r}; the points are: {', '.join(names())}")


def _parse(text: str) -> dict[str, Action]:
    armed_points: dict[str, Action] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, _, action = item.partition("=")
        _check(name)
        armed_points[name] = action
    return armed_points


# Process-wide by nature: a child process is armed through its environment before it does anything.
_armed: dict[str, Action] = _parse(os.environ.get(ENVIRONMENT, ""))
