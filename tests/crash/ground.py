"""Where operations are killed: fresh copies of one base graph, on local disk or on the S3 API.

Room    tests. Building the base takes many commits, so it is built once and copied for each case.
Gives   copies, the whole content of a graph as a value, and for each operation the content before, the
        content after, and the points it passes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from omnigraph.storage.store import GraphStore
from tests.crash.operations import LOCAL_ONLY, Operation, make_base, perform_until, trace
from tests.support.death import die_on_copies, position
from tests.support.places import Copies, Place


@dataclass(frozen=True)
class BranchView:
    """Everything one branch shows. Ids are random, so `head` differs between two runs of one operation."""

    version: int
    floor: int
    schema: bytes
    tables: tuple[tuple[str, int, str], ...]  # name, rows, digest of the rows
    tags: tuple[str, ...]  # of commits that were made on it
    head: str = field(compare=False)
    parent: str | None = field(compare=False)


View = dict[str, BranchView]


def look(place: Place) -> View:
    """Read everything: every listed branch, every table, every row. No half-made thing may be listed."""
    with GraphStore.open(place.address, **place.kwargs) as store:
        names = ["main", *(ref.name for ref in store.branches.list())]
        return {name: _look_at(store, name) for name in names}


def _look_at(store: GraphStore, branch: str) -> BranchView:
    snapshot = store.snapshot(branch)
    state = snapshot.state
    tables = []
    for table_id, pin in state.pins.items():
        columns = store.table(snapshot, table_id).to_table().to_pydict()
        rows = sorted(zip(*columns.values(), strict=True))
        assert len(rows) == pin.rows
        tables.append((pin.name, len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()))
    schema = store.schemas.get(state.schema)
    tags = tuple(tag.name for tag in store.tags.list() if tag.incarnation == state.line.incarnation)
    return BranchView(
        state.version, state.floor, schema, tuple(tables), tags, state.head, state.commit.parent
    )


@dataclass
class Ground:
    """One kind of storage, with a base graph on it."""

    copies: Copies
    local: bool
    _base: Place | None = None
    _after: dict[str, View] = field(default_factory=dict)
    _before: View | None = None
    _traces: dict[str, list[str]] = field(default_factory=dict)

    def fresh(self, operation: Operation) -> Place:
        """Return a place where the operation can start."""
        return self.copies.copy(self.base) if operation.needs_base else self.copies.empty()

    @property
    def base(self) -> Place:
        """The base graph, which nobody changes."""
        if self._base is None:
            self._base = self.copies.empty()
            make_base(self._base.address, self._base.options)
        return self._base

    @property
    def before(self) -> View:
        """What the base shows."""
        if self._before is None:
            self._before = look(self.base)
        return self._before

    def after(self, operation: Operation) -> View:
        """What the base shows once the operation is done."""
        self.trace(operation)
        return self._after[operation.name]

    def trace(self, operation: Operation) -> list[str]:
        """The points that the operation passes, in order."""
        if operation.name not in self._traces:
            place = self.fresh(operation)
            self._traces[operation.name] = trace(operation, place.address, place.options)
            self._after[operation.name] = look(place)
        return self._traces[operation.name]

    def passes(self, operation: Operation) -> set[str]:
        """The points that the operation says it passes here."""
        steps = [step for step in operation.steps if self.local or step not in LOCAL_ONLY]
        return {f"{step.value}.{side}" for step in steps for side in ("before", "after")}

    def expected(self, operation: Operation, point: str, passage: int) -> View:
        """What must be left by a process that dies at this passage of a point."""
        if self.visible_at(operation, point, passage):
            return self.after(operation)
        left = dict(self.before)
        if operation.noted is not None:
            step, branch = operation.noted
            if self._at(operation, point, passage) >= self.trace(operation).index(f"{step.value}.after"):
                left[branch] = replace(left[branch], version=left[branch].version + 1)
        return left

    def visible_at(self, operation: Operation, point: str, passage: int) -> bool:
        """Say whether a process that dies at this passage of a point has already made its change visible."""
        passed = self.trace(operation)
        return self._at(operation, point, passage) >= passed.index(f"{operation.visible.value}.after")

    def _at(self, operation: Operation, point: str, passage: int) -> int:
        return position(self.trace(operation), point, passage)

    def killed(self, operation: Operation, point: str) -> list[Place]:
        """Let processes die at the first, a middle and the last passage of a point; return their graphs."""
        total = self.trace(operation).count(point)
        deaths = die_on_copies(
            perform_until,
            lambda: self.fresh(operation),
            sorted({1, (total + 1) // 2, total}),
            lambda place, passage: (operation.name, place.address, place.options, point, passage),
        )
        return [place for place, _ in deaths]
