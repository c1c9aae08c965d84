"""The judge of a cell: holds what a fault left against what the writer promises, goes on, and repeats it.

Room    tests. Gives an AssertionError that says what was violated; whoever calls it says where.
Order   look, compare all ways to read, ask the doctor, write at once, repeat the writer, look again, write to
        every branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError
from omnigraph.engine.indexes import IndexReport
from omnigraph.storage.durability import FailpointHit, Step
from tests.faults.ground import Course, Rivalry, Sight, beside, see
from tests.faults.oracle import (
    Known,
    Scan,
    View,
    check_agreement,
    check_next_write,
    check_past,
    check_receipt,
    check_sound,
    times,
    without,
)
from tests.faults.writers import LATER, NEXT, RACER, Writer
from tests.support.places import Place


@dataclass(frozen=True)
class Outcome:
    """What whoever called a writer was told: a receipt, an error, or nothing, because it died."""

    receipt: object = None
    error: str | None = None  # its code
    died: bool = False
    gave_up: bool = False  # a report, which says that nothing was committed, and why

    @property
    def returned(self) -> bool:
        """Whether the writer said that it was done."""
        return self.error is None and not self.died and not self.gave_up


def gave_up(receipt: object) -> bool:
    """Say whether a report of maintenance is about work that is left, with its reasons, and no commit."""
    if not isinstance(receipt, IndexReport) or receipt.commit_id is not None:
        return False
    return any(one.error or one.pending for one in receipt.types)


def attempt(run: Callable[[Graph], object], graph: Graph) -> Outcome:
    """Call a writer; an error that is neither typed nor the fault itself is a violation."""
    try:
        receipt = run(graph)
        return Outcome(receipt, gave_up=gave_up(receipt))
    except (GraphError, FailpointHit) as error:
        return Outcome(error=getattr(error, "code", "failpoint"))


class Met(Enum):
    """Who else wrote."""

    NOBODY = "nobody"
    RACER = "racer"  # inserts a company of its own on main
    OTHERS = "others"  # a rival, or a cleanup


# What a writer may be told although its change is there: that it is not known (docs/concepts.md). A publish
# says nothing else then (storage/publish.py).
UNKNOWN = "outcome_unknown"
# Of other changes, storage that refuses leaves it open as well: a delete of a branch has steps after the one
# that shows it, and whoever repeats it finishes it (docs/errors.md, docs/branching.md).
REFUSED = "storage"
# What a writer may be told because others came first; nothing of it is there then.
LOST = frozenset(
    {
        "read_set_conflict",  # rows that decide, or the schema, were changed
        "staged_files_gone",  # a cleanup took a table that it had made
    }
)


@dataclass(frozen=True)
class Left:
    """What there is to judge: the graph after a fault, a handle to go on with and one from before."""

    writer: Writer
    course: Course
    place: Place
    graph: Graph
    stale: Graph
    outcome: Outcome
    landed: bool | None = None  # None: either will do, if the writer did not say that it was done
    met: Met = Met.NOBODY
    rivalry: Rivalry | None = None  # what may come of it, if it met its rival

    def judge(self) -> None:
        """Hold it against everything that is promised."""
        known: Known = {}
        found = see(self.place, self.writer, known)
        if self.met is Met.RACER:
            assert times(found.graph, RACER) == 1, "the racing write was acknowledged, and must be there once"
        self._check_left(self._others_left_out(found), found)
        self._check_told()
        check_agreement(self.graph, found.graph, self.stale, known)
        if not self.writer.beside:
            check_receipt(self.graph, self.outcome.receipt, found.graph)
        sweeps = self.writer.promise == "sweeps"
        check_past(self.graph, self.course.before.graph, found.graph, known, reclaimed=sweeps)
        check_sound(self.graph)
        check_next_write(self.graph, ["main"], (self.stale,), NEXT)
        self._check_repeat(self._others_left_out(found))
        names = [branch.name for branch in self.graph.branches.list()]
        check_next_write(self.graph, names, (self.stale,), LATER)
        if self.writer.beside == "graph":
            self._check_beside()

    # -- what is left

    def _check_left(self, found: Sight, whole: Sight) -> None:
        before, afters, promise = self._before, self._afters, self.writer.promise
        if promise == "sweeps":
            assert found.graph.content == before.graph.content, "a sweep changed what there is to read"
            return
        if self.writer.beside:
            assert found.graph == before.graph, "the graph that was read from changed"
        if promise == "copies":
            self._check_copied(whole)
            return
        allowed = afters if self.outcome.returned or self.landed else [before]
        if not self.outcome.returned and self.landed is None:
            allowed = [before, *afters]
        assert found in allowed, f"neither as before nor as after: {self.outcome}"
        if self.landed is None and found != before:
            assert not self.outcome.gave_up, "it is done, and the report says that it is not"
            admitting = {UNKNOWN} if self.writer.visible is Step.PUBLISH else {UNKNOWN, REFUSED}
            assert self.outcome.error in {None, *admitting}, f"it is done, and was denied: {self.outcome}"

    def _check_told(self) -> None:
        """Whoever met nothing but others is told that it lost to them, and no other trouble."""
        if self.met is not Met.NOBODY:
            refused = None if self.rivalry is None else self.rivalry.refused
            assert self.outcome.error in {None, refused, *LOST}, (
                f"others cost it more than a race: {self.outcome}"
            )

    def _check_copied(self, found: Sight) -> None:
        """A copy is no graph, or each of its branches is at an exact commit of the source."""
        if self.outcome.returned:
            assert found.beside is not None, "done, and nothing is there"
            assert self._others_left_out(found).beside == self.course.after.beside, "done, and not all there"
        if found.beside is None:
            assert self.course.before.beside is None, "the copy that was there is gone"
            return
        assert isinstance(found.beside, View)
        scan = Scan(self.graph.store)
        for name, branch in found.beside.branches.items():
            assert branch.rows == scan.at(branch.ids[0]), f"{name} of the copy is not what its commit was"

    def _is_done(self, found: Sight) -> bool:
        if self.writer.beside:
            return found.beside == self.course.after.beside
        return found.graph in [after.graph for after in self._afters]

    @property
    def _before(self) -> Sight:
        return self.course.before if self.rivalry is None else self.rivalry.alone

    @property
    def _afters(self) -> list[Sight]:
        """What there is when the writer is done; if it met its rival, that came first or last."""
        return [self.course.after] if self.rivalry is None else [self.rivalry.first, self.rivalry.last]

    def _others_left_out(self, found: Sight) -> Sight:
        other = found.beside
        return Sight(_alone(found.graph), _alone(other) if isinstance(other, View) else other)

    # -- going on

    def _check_repeat(self, before: Sight) -> None:
        """Whoever repeats it gets it done, or is told that it was; it is never done twice."""
        done = self._is_done(before)
        again = attempt(self.writer.run, self.graph)
        allowed = {None, self.writer.done} if done and self.writer.done else {None}
        assert again.error in allowed, f"a repeat was answered with {again.error}"
        found = self._others_left_out(see(self.place, self.writer))
        # Whoever was not done and repeats it comes after the rival.
        after = next((one for one in self._afters if done and one.graph == before.graph), self._afters[0])
        if self._maintains:
            assert found.graph.content == after.graph.content, "a repeat changed what there is to read"
        else:
            assert found == after, "a repeat leads elsewhere"
        if self.writer.promise == "sweeps":
            rest = self.graph.cleanup(keep=1, grace="0s")
            assert rest.parts == (), f"a repeat left work: {rest}"

    @property
    def _maintains(self) -> bool:
        """Whether the writer finds new work, and commits again, once somebody wrote."""
        newest = self.course.after.graph.branches["main"].commits[0]
        return self.writer.promise == "sweeps" or newest.startswith("maintenance")

    def _check_beside(self) -> None:
        place = beside(self.place)
        with og.connect(place.address, **place.kwargs) as graph:
            check_sound(graph)
            check_next_write(graph, ["main"], (), LATER)


def _alone(view: View) -> View:
    return without(view, RACER, NEXT)
