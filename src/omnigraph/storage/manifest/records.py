"""Records: a graph version as plain values, and their one encoding. No I/O.

`decode` refuses unknown formats before it reads anything else. The manifest is a map:

    omnigraph.format   the storage format number (formats.py)
    line               which chain this is: incarnation, where it forked from
    graph_head         id of the newest commit (written by every commit and control write)
    graph_commit       that commit's record
    schema             hash of the accepted schema
    table/{table id}   one pin per table
    heads              ids that name this content: the last content commit and any maintenance since
    recent             the newest commits as [version, id]: a writer finds its own by reading the head
    newest_id          greatest commit id on the chain so far: makes search by id a binary search
    seen               other chains this one has taken in, by fork or merge, and up to which version
    control            retention floor, versions kept below it, tables with reclaimed pins, what a sweep may
                       delete, tombstone, name given by a rename, a write that is to go first
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from enum import Enum
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import IntegrityError
from omnigraph.base.frozen import FrozenMap
from omnigraph.storage.manifest.formats import chain_of_today, stamp

TABLE_PREFIX = "table/"
MAIN = "main"
RECENT = 32
ChainPosition = tuple[str, int]  # a chain, and the version that a commit was published as


class CommitKind(Enum):
    """What sort of work made a commit."""

    GENESIS = "genesis"
    MUTATION = "mutation"
    LOAD = "load"
    MERGE = "merge"
    SCHEMA = "schema"
    MAINTENANCE = "maintenance"  # provably changes no query result


@dataclass(frozen=True, slots=True)
class Pin:
    """One table at one immutable version."""

    table_id: str
    name: str
    kind: str  # "node" or "edge"
    version: int
    rows: int
    content: str  # the commit that last changed the rows; maintenance moves `version` but not this


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a commit did to one table."""

    table_id: str
    name: str
    before: int | None
    after: int | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """Who did what, when, on top of which commit."""

    id: str
    parent: str | None
    merged_parent: str | None
    branch: str
    incarnation: str
    kind: CommitKind
    actor: str | None
    message: str | None
    authored_at_us: int
    manifest_version: int
    schema: str
    tables: tuple[TableChange, ...] = ()
    labels: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def __repr__(self) -> str:
        message = "" if self.message is None else f": {self.message!r}"
        return f"Commit({self.id} on {self.branch!r}, {self.kind.value}{message})"


@dataclass(frozen=True, slots=True)
class ChainIdentity:
    """The identity of one chain of versions: main, or one lifetime of a branch name."""

    incarnation: str
    parent: str | None = None  # incarnation it was forked from
    fork_version: int | None = None  # version of the parent it was forked at
    created_us: int = 0


@dataclass(frozen=True, slots=True)
class Precedence:
    """A write that asks others to let it go first, which lost to them too often."""

    commit_id: str
    version: int  # while this one is the newest
    wait_ms: int  # and no longer than this after it was seen


@dataclass(frozen=True, slots=True)
class ManifestState:
    """Everything one manifest version says."""

    version: int
    line: ChainIdentity
    commit: CommitRecord
    pins: FrozenMap[str, Pin]
    heads: tuple[str, ...]
    recent: tuple[tuple[int, str], ...]
    newest_id: str
    floor: int = 0  # versions below it are reclaimed ...
    kept: tuple[int, ...] = ()  # ... but for these, in order: tags, forks and merge bases need them
    swept: int = 0  # the version that last announced a sweep: files staged before it may be gone ...
    swept_us: int | None = None  # ... unless they were written since this time; None: whenever that was
    condemned: tuple[str, ...] = ()  # schemas and tables that the last sweep may be deleting
    # Table id -> the version that announced its reclaim: of older pins, only the one in force then is left.
    reclaimed: FrozenMap[str, int] = field(default_factory=FrozenMap)
    tombstone: str | None = None  # the delete that ended this chain
    name: str | None = None  # the name that the last rename gave this chain, or was about to
    seen: FrozenMap[str, int] = field(default_factory=FrozenMap)  # other chain -> newest version taken in
    precedence: Precedence | None = None  # of no meaning in later versions

    @property
    def head(self) -> str:
        """Id of the newest commit."""
        return self.commit.id

    @property
    def schema(self) -> str:
        """Hash of the accepted schema."""
        return self.commit.schema

    @property
    def ancestry(self) -> FrozenMap[str, int]:
        """Every chain with commits among this state's ancestors, and the newest version of each."""
        return FrozenMap({**self.seen, self.line.incarnation: self.version})

    @property
    def position(self) -> ChainPosition:
        """The chain and the version that the head commit was published as."""
        return self.commit.incarnation, self.commit.manifest_version

    def keeps(self, version: int) -> bool:
        """Say whether retention promises that a version of this chain can be read."""
        return version >= self.floor or version in self.kept

    def same_content_as(self, commit_id: str) -> bool:
        """Say whether `commit_id` names this very content (maintenance aside)."""
        return commit_id in self.heads

    def landed_since(self, version: int, commit_id: str) -> bool | None:
        """Say whether a commit came after `version`; None when `recent` does not reach back so far."""
        if any(recent_id == commit_id for _, recent_id in self.recent):
            return True
        reaches_back = len(self.recent) < RECENT or self.recent[-1][0] <= version + 1
        return False if reaches_back else None


def advance(
    base: ManifestState,
    commit: CommitRecord,
    pins: Mapping[str, Pin | None],
    merged: Mapping[str, int] = FrozenMap[str, int](),
) -> tuple[ManifestState, dict[str, str | None]]:
    """Return the state after a commit, and the map changes that bring it about; a merge takes in chains.

    Keys whose value stays are left alone: every commit pays for what it sends.
    """
    kept = {table: pin for table, pin in {**base.pins, **pins}.items() if pin is not None}
    heads = (*base.heads, commit.id) if commit.kind is CommitKind.MAINTENANCE else (commit.id,)
    state = replace(
        base,
        version=base.version + 1,
        commit=commit,
        pins=FrozenMap(kept),
        heads=heads,
        recent=((base.version + 1, commit.id), *base.recent)[:RECENT],
        newest_id=max(base.newest_id, commit.id),
        seen=_taken_in(base, merged) if merged else base.seen,
    )
    updates: dict[str, str | None] = dict(_head_keys(state))
    if commit.schema != base.commit.schema:
        updates["schema"] = commit.schema
    if merged:
        updates["seen"] = _dump(dict(state.seen))
    for table_id, pin in pins.items():
        updates[TABLE_PREFIX + table_id] = None if pin is None else _pin_text(pin)
    return state, updates


def _taken_in(base: ManifestState, merged: Mapping[str, int]) -> FrozenMap[str, int]:
    """Return the chains seen after a merge, by the newest version of each."""
    both = {chain: max(base.seen.get(chain, 0), merged.get(chain, 0)) for chain in {*base.seen, *merged}}
    both.pop(base.line.incarnation, None)
    return FrozenMap(dict(sorted(both.items())))


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is announced on a chain before files are deleted."""

    floor: int = 0  # versions below it may go; one that is not above the floor in force changes nothing
    kept: tuple[int, ...] | None = None  # versions that stay below the floor; None: those that did
    tables: tuple[str, ...] = ()  # tables whose history goes, whatever the floor
    # Schemas and tables that go: nobody may begin to use them again. None: those that were announced before.
    condemned: tuple[str, ...] | None = None
    before_us: int | None = None  # only files written before this time go; None: all that nothing names
    forgotten: frozenset[str] = frozenset()  # chains that lineage need not name any longer


def control(
    base: ManifestState,
    *,
    sweep: Sweep | None = None,
    tombstone: str | None = None,
    name: str | None = None,
    precedence: Precedence | None = None,
) -> tuple[ManifestState, dict[str, str | None]]:
    """Return the state after a control write. It repeats the head, so every stale writer conflicts."""
    version = base.version + 1
    state = replace(
        base if sweep is None else _announced(base, sweep),
        version=version,
        tombstone=base.tombstone or tombstone,
        name=name or base.name,
        precedence=precedence,
    )
    updates: dict[str, str | None] = {"graph_head": state.head, "control": _control(state)}
    if state.seen != base.seen:
        updates["seen"] = _dump(dict(state.seen))
    return state, updates


def _announced(base: ManifestState, sweep: Sweep) -> ManifestState:
    version, floor = base.version + 1, max(base.floor, sweep.floor)
    kept = base.kept if sweep.kept is None else tuple(sorted(k for k in set(sweep.kept) if k < floor))
    marks = {**base.reclaimed, **dict.fromkeys(sorted(sweep.tables), version)}
    oldest = min((*kept, floor))  # a note says something only of versions before it
    return replace(
        base,
        floor=floor,
        kept=kept,
        swept=version,
        swept_us=_later(base, sweep.before_us),
        condemned=base.condemned if sweep.condemned is None else tuple(sorted(set(sweep.condemned))),
        reclaimed=FrozenMap({table: since for table, since in marks.items() if since > oldest}),
        seen=FrozenMap({c: v for c, v in base.seen.items() if c not in sweep.forgotten}),
    )


def _later(base: ManifestState, before_us: int | None) -> int | None:
    """Return the time before which files may be gone, after this sweep and those announced before it."""
    if base.swept == 0:
        return before_us
    return None if base.swept_us is None or before_us is None else max(base.swept_us, before_us)


def encode(state: ManifestState) -> dict[str, str]:
    """Return the whole map of a state (for creating a chain)."""
    content = {
        **stamp(),
        "line": _dump(asdict(state.line)),
        **_head_keys(state),
        "schema": state.schema,
        "seen": _dump(dict(state.seen)),
        "control": _control(state),
    }
    for pin in state.pins.values():
        content[TABLE_PREFIX + pin.table_id] = _pin_text(pin)
    return content


def decode(version: int, content: Mapping[str, str], where: str) -> ManifestState:
    """Read a state back, of this format or an older one; refuse other formats first, damage second."""
    try:
        content = chain_of_today(content, where)
        marks = json.loads(content["control"])
        commit = _commit(json.loads(content["graph_commit"]))
        if (content["graph_head"], content["schema"]) != (commit.id, commit.schema):
            raise ValueError("the head and the commit record contradict each other")
        return ManifestState(
            version=version,
            line=ChainIdentity(**json.loads(content["line"])),
            commit=commit,
            pins=FrozenMap(
                {
                    key.removeprefix(TABLE_PREFIX): _pin(key.removeprefix(TABLE_PREFIX), json.loads(value))
                    for key, value in sorted(content.items())
                    if key.startswith(TABLE_PREFIX)
                }
            ),
            heads=tuple(json.loads(content["heads"])),
            recent=tuple((int(v), str(i)) for v, i in json.loads(content["recent"])),
            newest_id=content["newest_id"],
            seen=FrozenMap(
                {chain: int(version) for chain, version in dict(json.loads(content["seen"])).items()}
            ),
            floor=int(marks["floor"]),
            kept=tuple(int(version) for version in marks.get("kept", ())),
            swept=int(marks["swept"]),
            swept_us=marks.get("swept_us"),
            condemned=tuple(marks.get("condemned", ())),
            reclaimed=FrozenMap({t: int(since) for t, since in dict(marks["reclaimed"]).items()}),
            tombstone=marks["tombstone"],
            name=marks["name"],
            precedence=Precedence(**marks["precedence"]) if "precedence" in marks else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"version {version} of the manifest at {where} is not a graph version: {error!r}",
            remedy="It was written by something else, or damaged: restore it from a copy",
            version=version,
        ) from error


def _head_keys(state: ManifestState) -> dict[str, str]:
    """Return what every commit changes."""
    return {
        "graph_head": state.commit.id,
        "graph_commit": _commit_text(state.commit),
        "heads": _dump(state.heads),
        "recent": _dump(state.recent),
        "newest_id": state.newest_id,
    }


def _control(state: ManifestState) -> str:
    marks: dict[str, Any] = {
        "floor": state.floor,
        "swept": state.swept,
        "reclaimed": dict(state.reclaimed),
        "tombstone": state.tombstone,
        "name": state.name,
    }
    rare: dict[str, Any] = {
        "kept": state.kept,
        "swept_us": state.swept_us,
        "condemned": state.condemned,
        "precedence": None if state.precedence is None else asdict(state.precedence),
    }
    return _dump(marks | {key: value for key, value in rare.items() if value not in ((), None)})


# Versions exceed int64 (detached ones are random u64), which many JSON readers cannot hold: they are text.
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _pin_text(pin: Pin) -> str:
    return _dump(
        {
            "name": pin.name,
            "kind": pin.kind,
            "version": str(pin.version),
            "rows": pin.rows,
            "content": pin.content,
        }
    )


def _commit_text(commit: CommitRecord) -> str:
    return _dump(
        {
            "id": commit.id,
            "parent": commit.parent,
            "merged_parent": commit.merged_parent,
            "branch": commit.branch,
            "incarnation": commit.incarnation,
            "kind": commit.kind.value,
            "actor": commit.actor,
            "message": commit.message,
            "authored_at_us": commit.authored_at_us,
            "manifest_version": commit.manifest_version,
            "schema": commit.schema,
            "tables": [
                {
                    "table_id": change.table_id,
                    "name": change.name,
                    "before": None if change.before is None else str(change.before),
                    "after": None if change.after is None else str(change.after),
                    "inserted": change.inserted,
                    "updated": change.updated,
                    "deleted": change.deleted,
                }
                for change in commit.tables
            ],
            "labels": dict(commit.labels),
        }
    )


def _pin(table_id: str, raw: dict[str, Any]) -> Pin:
    return Pin(table_id=table_id, **{**raw, "version": int(raw["version"])})


def _commit(raw: dict[str, Any]) -> CommitRecord:
    def number(text: str | None) -> int | None:
        return None if text is None else int(text)

    changes = tuple(
        TableChange(**{**change, "before": number(change["before"]), "after": number(change["after"])})
        for change in raw["tables"]
    )
    labels = FrozenMap(raw["labels"])
    return CommitRecord(**{**raw, "kind": CommitKind(raw["kind"]), "tables": changes, "labels": labels})
