"""Entity: `graph.entity(type, id)`: one node or edge through time.

Goes back over the commits that touched the entity's table and looks it up on both sides of each: point
look-ups, whatever the table's size. A version is listed only where values differ, under the names in force at
the branch's head. `limit` bounds what is listed, not how far back it looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.arguments import checked_methods
from omnigraph.base.cancellation import stoppable
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import HistoryReclaimed, InvalidRequest
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, TableType
from omnigraph.catalog.past import columns_then
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.changes import Cause, Change, Op, kind_of
from omnigraph.engine.history.comparison import StateComparison, changes_in
from omnigraph.engine.history.delta import (
    NO_FILLS,
    Fills,
    Pair,
    compare,
    conformed,
    fills_of,
    image,
    pin_of,
    rows_moved,
    to_python,
)
from omnigraph.engine.history.resolve_at import read_state, resolve
from omnigraph.engine.options import View
from omnigraph.storage.cost import measured
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.manifest.chain import check_kept
from omnigraph.storage.manifest.records import CommitRecord, ManifestState
from omnigraph.storage.store import GraphStore

FIRST_PAGE, LATER_PAGES = 20, 200  # commits whose records are read side by side


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """What one commit did to an entity."""

    cause: Cause
    change: Change

    @property
    def op(self) -> Op:
        """What happened."""
        return self.change.op

    @property
    def fields(self) -> dict[str, tuple[Any, Any]]:
        """The old and the new value of everything that an update changed; blobs are named without values."""
        before, after = self.change.before or {}, self.change.after or {}
        return {name: (before.get(name), after.get(name)) for name in self.change.fields}

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        changed = [{"name": n, "before": old, "after": new} for n, (old, new) in self.fields.items()]
        shown = self.change.to_json()
        images: dict[str, Any] = {name: shown[name] for name in ("before", "after") if name in shown}
        return {"cause": self.cause.to_json(), "op": self.op.value, **images, "fields": changed}


@dataclass(frozen=True, slots=True)
class EntityHistory:
    """Versions of an entity, newest first."""

    kind: str
    type_id: str
    type_name: str
    id: str
    versions: tuple[EntityVersion, ...]
    more: bool = False  # there are older versions than were asked for
    reclaimed: bool = False  # older history was cleaned

    def __iter__(self) -> Iterator[EntityVersion]:
        return iter(self.versions)

    def __len__(self) -> int:
        return len(self.versions)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "kind": self.kind,
            "type": {"id": self.type_id, "name": self.type_name},
            "id": self.id,
            "versions": [version.to_json() for version in self.versions],
            "more": self.more,
            "reclaimed": self.reclaimed,
        }


@checked_methods
class Entity:
    """One entity of a graph, whether it exists now or not."""

    def __init__(
        self, store: GraphStore, catalogs: Catalogs, type_name: str, entity_id: str, view: View
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self.type_name = type_name
        self.id = entity_id
        self._view = view

    def get(self, *, branch: str | None = None, at: At | None = None) -> dict[str, Any] | None:
        """Return the entity's values, now or then, under the names of now; None if it is not there."""
        target, moment = self._view.read(branch, at)
        with measured():
            return of_the_newest(lambda: self._get(target, moment))

    def _get(self, branch: str, at: At | None) -> dict[str, Any] | None:
        snapshot, catalog = read_state(self._store, self._catalogs, branch, at)
        declared = catalog.named(self.type_name)
        then = self._catalogs.get(snapshot.schema)
        rows = _row(self._store, snapshot.state, then, declared, self.id)
        return image(to_python(rows)[0], declared) if rows.num_rows else None

    def history(self, *, branch: str | None = None, limit: int = 50) -> EntityHistory:
        """List the versions of the entity, newest first: who changed what, when and why."""
        if limit < 1:
            raise InvalidRequest(f"a history has at least 1 version, not {limit}", remedy="Raise the limit")
        with measured():
            head = resolve(self._store, *self._view.read(branch, None)).state
            declared = self._catalogs.get(head.schema).named(self.type_name)
            versions: list[EntityVersion] = []
            more = reclaimed = False
            try:
                for commit, change in _versions(self._store, self._catalogs, declared, self.id, head):
                    if len(versions) == limit:
                        more = True
                        break
                    versions.append(EntityVersion(Cause.of(commit), change))
            except HistoryReclaimed:
                reclaimed = True
            kind, name = kind_of(declared), declared.name
            return EntityHistory(
                kind, declared.table_id, name, self.id, tuple(versions), more=more, reclaimed=reclaimed
            )


def last_touched(
    store: GraphStore,
    catalogs: Catalogs,
    declared: TableType,
    entity_id: str,
    from_state: ManifestState,
    down_to_state: ManifestState,
) -> CommitRecord | None:
    """Return the newest commit on the line of a state, and not in an older one, that changed an entity.

    A change that came by a merge is the merge's. None where nothing changed it, or history was cleaned.
    """
    try:
        for commit, _ in _versions(store, catalogs, declared, entity_id, from_state, down_to_state):
            return commit
    except HistoryReclaimed:
        pass
    return None


def last_changes(
    store: GraphStore, catalogs: Catalogs, head: ManifestState, declared: TableType, ids: pa.Array
) -> dict[str, int]:
    """Say when each of some entities was changed last: a later commit of the line has a greater number.

    Those without one were changed by commits that retention has taken, which are older than all others.
    """
    left, found = ids, dict[str, int]()
    with suppress(HistoryReclaimed):
        for number, (_, (before, after)) in enumerate(_touching(store, declared, head)):
            comparison = StateComparison(store, catalogs, before, after)
            changed = [now for now in comparison.types if set(now.ids) & set(declared.ids)]
            for delta in (delta for now in changed for delta in comparison.deltas(now)):
                come = pa.chunked_array([*delta.inserted[ID].chunks, *delta.after[ID].chunks], pa.string())
                found |= dict.fromkeys(left.filter(pc.is_in(left, value_set=come)).to_pylist(), -number)
            left = left.filter(pc.invert(pc.is_in(left, value_set=pa.array(list(found), pa.string()))))
            if not len(left):
                break
    oldest = min(found.values(), default=0)
    return {entity: number - oldest for entity, number in found.items()}


def _versions(
    store: GraphStore,
    catalogs: Catalogs,
    declared: TableType,
    entity_id: str,
    head: ManifestState,
    down_to: ManifestState | None = None,
) -> Iterator[tuple[CommitRecord, Change]]:
    """Yield what commits did to an entity, newest first; raise where history was cleaned."""
    for commit, states in _touching(store, declared, head, down_to):
        schemas = [catalogs.get(state.schema) for state in states]
        if not rows_moved(*(pin_of(*both, declared) for both in zip(states, schemas, strict=True))):
            continue
        pair = Pair.of(declared, *schemas)
        before, after = (
            _row(store, state, then, pair.declared, entity_id, fills_of(pair.declared, state))
            for state, then in zip(states, schemas, strict=True)
        )
        for change in changes_in(compare(before, after), pair):
            yield commit, change


def _touching(
    store: GraphStore, declared: TableType, head: ManifestState, down_to: ManifestState | None = None
) -> Iterator[tuple[CommitRecord, tuple[ManifestState, ManifestState]]]:
    """Yield the commits that touched a type, newest first, with the states around each."""
    for commit in stoppable(_commits(store, head, down_to)):
        if commit.parent is None or all(table.table_id not in declared.ids for table in commit.tables):
            continue
        chain = store.branches.chain(commit.incarnation)
        floor = (chain.known or chain.latest()).floor
        if commit.manifest_version - 1 < floor:
            raise _cleaned()
        yield commit, (chain.at(commit.manifest_version - 1), chain.at(commit.manifest_version))


def _commits(store: GraphStore, head: ManifestState, down_to: ManifestState | None) -> Iterator[CommitRecord]:
    """Yield the commits of a line, newest first, to its start or to what an older state has."""
    limit, before = FIRST_PAGE, None
    while True:
        page = store.history.page(head, limit=limit, before=before)
        for commit in page.commits:
            if down_to is not None and _has(down_to, commit):
                return
            yield commit
        if page.next is None:
            if page.commits and page.commits[-1].parent is not None:
                raise _cleaned()
            return
        limit, before = LATER_PAGES, page.next


def _has(state: ManifestState, commit: CommitRecord) -> bool:
    """Say whether a commit is among a state's ancestors."""
    return state.ancestry.get(commit.incarnation, 0) >= commit.manifest_version


def _row(
    store: GraphStore,
    state: ManifestState,
    then: Catalog,
    declared: TableType,
    entity_id: str,
    fills: Fills = NO_FILLS,
) -> pa.Table:
    """Return the row of an entity in a state as the declaration has it: one row, or none.

    `then` is the schema of the state, which says where the values of each column are.
    """
    pin, names = pin_of(state, then, declared), columns_then(declared, then)
    if pin is None:
        return declared.stored_schema.empty_table()
    check_kept(store.branches.chain(state.line.incarnation), state, pin.table_id)
    with store.reading(state, tables=(pin.table_id,)):
        rows = store.reads.lookup(
            pin.table_id, pin.version, ID, pa.array([entity_id]), list(names.values())
        ).rename_columns(list(names))
    return conformed(rows, declared.stored_schema, fills)


def _cleaned() -> HistoryReclaimed:
    return HistoryReclaimed("older commits are below the retention floor", remedy="Choose a newer commit")
