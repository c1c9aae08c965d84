"""Diff: `graph.diff`: what two states of a graph do not have in common.

    two names of states -> two states -> schema steps, counts, **changes as a stream**

The diff leads from the first state to the second, whatever happened between them. Counts are made by
streaming; rows follow when they are asked for. Cost follows what changed between the states, and the rows
that folding moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

from omnigraph.base.arguments import Count, checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.identity import under_ids_of
from omnigraph.catalog.plan import plan
from omnigraph.catalog.steps import Step
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.changes import Change, ChangeFilter, Names, kind_of
from omnigraph.engine.history.comparison import StateComparison, TypeChanges
from omnigraph.engine.write import TypeCount
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

# -- diff ----------------------------------------------------------------------------------------


@checked_methods
@dataclass(frozen=True)
class Diff:
    """The way from one state to another; nothing of it is read before it is asked for."""

    reads_later: ClassVar[bool] = True  # when it is gone through: it may take long

    before: PinnedSnapshot
    after: PinnedSnapshot
    comparison: StateComparison

    def __repr__(self) -> str:
        return f"Diff({self.from_commit_id} to {self.to_commit_id})"

    @property
    def from_commit_id(self) -> str:
        """The commit that the diff starts from."""
        return self.before.commit_id

    @property
    def to_commit_id(self) -> str:
        """The commit that it leads to."""
        return self.after.commit_id

    @cached_property
    def types(self) -> tuple[TypeCount, ...]:
        """How many entities of each type changed, nodes before edges, by name; others are left out."""
        counted = [self.comparison.count(declared) for declared in self.comparison.types]
        counts = [_shown(changes) for changes in counted if changes.total]
        return tuple(sorted(counts, key=lambda count: (count.kind == "edge", count.name)))

    @cached_property
    def schema(self) -> tuple[Step, ...]:
        """What became of the schema, as the steps of a migration."""
        return schema_steps(self.comparison)

    def changes(self) -> Iterator[Change]:
        """Stream the changes: nodes before edges, by type id, by entity id."""
        return self.comparison.changes()

    def __iter__(self) -> Iterator[Change]:
        return self.changes()

    def __bool__(self) -> bool:
        return bool(self.schema) or next(self.changes(), None) is not None

    def to_json(self, limit: Count | None = None) -> dict[str, Any]:
        """Return the public shape, with at most `limit` changes; counts are of all of them."""
        shown = list(islice(self.changes(), limit))
        total = sum(count.inserted + count.updated + count.deleted for count in self.types)
        return {
            "from": self.from_commit_id,
            "to": self.to_commit_id,
            "stats": stats_json(self.types),
            "schema": steps_json(self.schema),
            "changes": [change.to_json() for change in shown],
            "truncated": len(shown) < total,
        }


class Diffs:
    """Compares the states of one graph."""

    def __init__(self, store: GraphStore, catalogs: Catalogs) -> None:
        self._store = store
        self._catalogs = catalogs

    def diff(
        self,
        before: PinnedSnapshot,
        after: PinnedSnapshot,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
    ) -> Diff:
        """Return the way from one state to another."""
        catalogs = [self._catalogs.get(state.schema) for state in (after, before)]
        change_filter = ChangeFilter.read(catalogs, kinds, types, ops)
        return Diff(
            before,
            after,
            StateComparison(self._store, self._catalogs, before.state, after.state, change_filter),
        )


def schema_steps(comparison: StateComparison) -> tuple[Step, ...]:
    """Return what became of the schema between two states."""
    if comparison.older.identity == comparison.newer.identity:
        return ()
    older = under_ids_of(comparison.older, comparison.newer)
    every = [declared.id for declared in older.tables]  # whether rows stood in the way is no matter now
    return plan(older, comparison.newer, empty_types=every).steps


def steps_json(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return schema steps in their public shape; what they cost is a matter of plans."""
    shown = [step.to_json() for step in steps]
    return [{key: value for key, value in step.items() if key not in ("effect", "mode")} for step in shown]


def stats_json(types: Iterable[TypeCount]) -> dict[str, Any]:
    """Return counts in their public shape."""
    listed = list(types)
    return {
        "inserted": sum(count.inserted for count in listed),
        "updated": sum(count.updated for count in listed),
        "deleted": sum(count.deleted for count in listed),
        "nodes": [count.to_json() for count in listed if count.kind == "node"],
        "edges": [count.to_json() for count in listed if count.kind == "edge"],
    }


def _shown(changes: TypeChanges) -> TypeCount:
    return TypeCount(
        changes.declared.name, kind_of(changes.declared), changes.inserted, changes.updated, changes.deleted
    )
