"""The cells of the fault matrix: writers, windows, actions and stores; and which of them run every day.

Room    tests. A cell is a value with a name; the table of writers decides how many there are.
Windows a point before or after a durable step; the first request of a step; every second request of a whole
        call; or the whole call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from omnigraph.storage.durability import Step
from tests.faults.writers import WRITERS, Writer

Store = Literal["local", "s3"]
STORES: tuple[Store, ...] = ("local", "s3")
LOCAL_ONLY = frozenset({Step.STAGED_SYNC, Step.CHECKSUM})  # object stores see to both by themselves
QUIET = frozenset({Step.HEAD_SYNC})  # sends no request
HALVES = ("odd-requests", "even-requests")
WHOLE = "call"


class Action(Enum):
    """What happens to a writer."""

    EXCEPTION = "exception"  # the call ends there; its process and its handle go on
    KILL = "kill"  # SIGKILL
    RACE = "race"  # another writer publishes there
    FAILED = "failed"  # a request is answered with 503
    CUT = "cut"  # a request never arrives
    CUT_AFTER = "cut-after"  # a request takes effect, its answer is lost
    TWICE = "twice"  # a request arrives twice, and the second answer comes back
    DELAYED = "delayed"  # a request arrives after another writer published
    DENIED = "denied"  # from there on every request is refused
    REPLY_LOST = "reply-lost"  # the swap took effect, and whatever asks about it is refused
    DISK_FULL = "disk-full"  # from there on no file can grow
    READ_ONLY = "read-only"  # nothing can be written, all the time
    RIVAL = "rival"  # another writer changes what this one is about to change
    SWEEP = "sweep"  # a cleanup without a grace period takes whatever nothing names


AT_POINTS = (Action.EXCEPTION, Action.KILL)
ONE_REQUEST = (Action.FAILED, Action.CUT, Action.CUT_AFTER, Action.TWICE)
RACES = (Action.RACE, Action.RIVAL, Action.SWEEP)  # others who come at a point, do what they do, and leave
ON_REQUESTS = (*ONE_REQUEST, Action.DELAYED, Action.DENIED, Action.REPLY_LOST)


@dataclass(frozen=True)
class Cell:
    """One case."""

    writer: Writer
    window: str
    action: Action
    store: Store

    def __str__(self) -> str:
        return f"{self.store}-{self.writer}-{self.window}-{self.action.value}"


def steps_of(writer: Writer, store: Store) -> tuple[Step, ...]:
    """Return the durable steps that a writer passes on a store."""
    return tuple(step for step in writer.steps if store == "local" or step not in LOCAL_ONLY)


def points_of(writer: Writer, store: Store) -> list[str]:
    """Return the points before and after them."""
    return [f"{step.value}.{side}" for step in steps_of(writer, store) for side in ("before", "after")]


def windows_of(writer: Writer, action: Action, store: Store) -> list[str]:
    """Return when an action is to happen to a writer; none where a store does not know such a thing."""
    if action in ON_REQUESTS and store == "local":
        return []
    steps = [step for step in steps_of(writer, store) if action not in ON_REQUESTS or step not in QUIET]
    begin = [f"{step.value}.before" for step in steps]
    decisive = f"{writer.visible.value}.before"
    if action in AT_POINTS:
        return points_of(writer, store)
    if action in ONE_REQUEST:
        return [decisive, *HALVES]
    if action is Action.DELAYED:
        return list(dict.fromkeys([begin[0], decisive]))
    if action is Action.REPLY_LOST:
        return [decisive]
    if action is Action.READ_ONLY:
        return [WHOLE]
    if action is Action.DISK_FULL and store == "s3":
        return []
    if action is Action.RIVAL and writer.rival is None:
        return []
    if action in (Action.RIVAL, Action.SWEEP) and store == "s3":
        return [decisive]
    return begin


def every_cell() -> Iterator[Cell]:
    """Yield all of them, in the order of the table."""
    for store in STORES:
        for writer in WRITERS:
            for action in Action:
                for window in windows_of(writer, action, store):
                    yield Cell(writer, window, action, store)


# -- the everyday share ------------------------------------------------------------------------------

FAMILIES = {
    Action.RACE: "races",
    Action.RIVAL: "races",
    Action.SWEEP: "races",
    Action.DELAYED: "races",
    Action.DISK_FULL: "refusals",
    Action.READ_ONLY: "refusals",
    Action.DENIED: "refusals",
    **dict.fromkeys((*ONE_REQUEST, Action.REPLY_LOST), "requests"),
}


def decides(cell: Cell) -> bool:
    """Say whether a cell is about the step that makes its writer visible."""
    return cell.window.startswith(f"{cell.writer.visible.value}.")


def everyday() -> frozenset[Cell]:
    """Return the cells that every run takes: the fewest, in a fixed order, that leave out no kind of thing.

    Every action on every store; every point, with an exception; every writer, with an exception, a race and
    a refusal; every step that makes a writer visible, with each family of actions, a death and requests that
    go wrong among them. Writers take turns in the actions of a family, and the step that makes them visible
    comes first. Spark has few: a death there is that of a Spark of its own.
    """
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for cell in sorted(every_cell(), key=_turn):
        shown = _shown_by(cell)
        if not shown <= seen:
            seen |= shown
            chosen.append(cell)
    return frozenset(chosen)


def _shown_by(cell: Cell) -> set[tuple[str, ...]]:
    action, family = cell.action.value, FAMILIES.get(cell.action, cell.action.value)
    if cell.writer.spark:  # dear: what it has in common with other loads is seen there
        chosen = cell.action is Action.EXCEPTION and cell.window == f"{cell.writer.visible.value}.before"
        return {(cell.writer.name, cell.window)} if chosen else set()
    shown: set[tuple[str, ...]] = {(action, cell.store), (cell.writer.visible.value, family)}
    if cell.action is not Action.KILL and family != "requests":  # these cost a process, or an S3, each
        shown.add((cell.writer.name, family))
    if cell.action is Action.EXCEPTION:
        shown.add((cell.window, action))
    return shown


def _turn(cell: Cell) -> tuple[object, ...]:
    actions, row = list(Action), WRITERS.index(cell.writer)
    turn = (actions.index(cell.action) - row) % len(actions)
    # On local disk first: it costs least.
    return (cell.writer.spark, not decides(cell), STORES.index(cell.store), turn, row, cell.window)
