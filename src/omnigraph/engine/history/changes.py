"""Changes: what happened to an entity, why, which changes are asked for, and how many go on a page.

Plain values that every surface shows in these shapes; no version, fragment or path is in any of them. A
`ChangeFilter` is checked once, before anything is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog, UnknownType
from omnigraph.catalog.keys import edge_text
from omnigraph.catalog.model import END_NAMES, ID, EdgeType, TableType
from omnigraph.language.diagnostics import nearest
from omnigraph.storage.manifest.records import CommitRecord

ENDS = tuple(END_NAMES.values())


class Op(Enum):
    """What happened to an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


def ends_json(ends: tuple[str, str] | None) -> dict[str, str]:
    """Return the ends of an edge as they stand beside its id."""
    return {} if ends is None else dict(zip(ENDS, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one entity; images are plain values by name, `id` and the ends of an edge first."""

    kind: str  # "node" or "edge"
    type_id: str
    type_name: str
    id: str
    op: Op
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    fields: tuple[str, ...] = ()  # of an update: the names of what differs

    def __repr__(self) -> str:
        fields = f": {', '.join(self.fields)}" if self.fields else ""
        return f"Change({self.op.value} {self.text}{fields})"

    @property
    def ends(self) -> tuple[str, str] | None:
        """The ids at the ends of an edge; of one that moved, where it is now."""
        image = self.after or self.before
        return None if self.kind != "edge" or image is None else (image["from"], image["to"])

    @property
    def text(self) -> str:
        """The entity as people read it: an edge by its ends."""
        ends = self.ends
        return f"{self.type_name} {self.id}" if ends is None else edge_text(self.type_name, self.id, ends)

    @property
    def sort_key(self) -> tuple[bool, str, str]:
        """Where the change stands among others: nodes first, then by type, then by entity."""
        return self.kind == "edge", self.type_id, self.id

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        shown: dict[str, Any] = {
            "kind": self.kind,
            "type": {"id": self.type_id, "name": self.type_name},
            "id": self.id,
            **ends_json(self.ends),
            "op": self.op.value,
        }
        if self.before is not None:
            shown["before"] = self._image(self.before)
        if self.after is not None:
            shown["after"] = self._image(self.after)
        return {**shown, "fields": list(self.fields)} if self.op is Op.UPDATE else shown

    def _image(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        ends = ENDS if self.kind == "edge" else ()
        image = {"properties": {name: flat[name] for name in flat if name != ID and name not in ends}}
        return {**image, "endpoints": {name: flat[name] for name in ends}} if ends else image


@dataclass(frozen=True, slots=True)
class Cause(JsonFields):
    """The commit that brought changes about."""

    json_names: ClassVar = {"commit_id": "graph_commit_id", "branch": "authored_branch", "actor": "actor_id"}

    commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    branch: str
    actor: str | None
    authored_at: int
    kind: str
    message: str | None

    @classmethod
    def of(cls, commit: CommitRecord) -> Cause:
        """Return what a commit's record says."""
        return cls(
            commit.id,
            commit.parent,
            commit.merged_parent,
            commit.branch,
            commit.actor,
            commit.authored_at_us,
            commit.kind.value,
            commit.message,
        )


Names = Iterable[str] | str | None


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are asked for; None stands for all. Types are held by id, so a rename changes nothing."""

    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    ops: frozenset[Op] | None = None
    aliases: frozenset[str] = frozenset()  # of those types, in states that have them by another id

    @classmethod
    def read(cls, catalogs: Sequence[Catalog], kinds: Names, types: Names, ops: Names) -> ChangeFilter:
        """Check the names, those of types against the given schemas, the newest of them first."""
        chosen = _choices("kind", _listed(kinds), {"node": "node", "edge": "edge"})
        named = _types(catalogs, _listed(types), chosen)
        return cls(
            chosen,
            None if named is None else frozenset(declared.table_id for declared in named),
            _choices("operation", _listed(ops), {op.value: op for op in Op}),
            frozenset(alias for declared in named or () for alias in declared.aliases),
        )

    @classmethod
    def of_type(cls, declared: TableType) -> ChangeFilter:
        """Ask for the changes of one type."""
        return cls(types=frozenset([declared.table_id]), aliases=frozenset(declared.aliases))

    def takes(self, declared: TableType) -> bool:
        """Say whether changes of a type are asked for."""
        kind = self.kinds is None or declared.kind.value in self.kinds
        known = self.types is None or declared.table_id in self.types or declared.table_id in self.aliases
        return kind and known

    def does(self, op: Op) -> bool:
        """Say whether changes of a sort are asked for."""
        return self.ops is None or op in self.ops

    @property
    def digest(self) -> str:
        """A short text that is the same for the same filter."""
        parts = [self.kinds, self.types, None if self.ops is None else {op.value for op in self.ops}]
        plain = json.dumps([None if part is None else sorted(part) for part in parts])
        return hashlib.sha256(plain.encode()).hexdigest()[:16]


ALL = ChangeFilter()


def kind_of(declared: TableType) -> str:
    """Return the kind of entity that a type has."""
    return "edge" if isinstance(declared, EdgeType) else "node"


def find_type(catalogs: Sequence[Catalog], name: str, kind: str | None = None) -> TableType:
    """Return the type that a name means in the first schema that has it; a bad request if none has."""
    for catalog in catalogs:
        declared = catalog.find_table(name, kind)
        if declared is not None:
            return declared
    try:
        return catalogs[0].named(name, kind)
    except UnknownType as error:  # a part of the request is wrong, rather than what it asks for missing
        raise InvalidRequest(error.message, remedy=error.remedy, type=name) from None


def _types(
    catalogs: Sequence[Catalog], names: tuple[str, ...] | None, kinds: frozenset[str] | None
) -> list[TableType] | None:
    if names is None:
        return None
    kind = next(iter(kinds)) if kinds is not None and len(kinds) == 1 else None
    return [find_type(catalogs, name, kind) for name in names]


def _choices(what: str, names: tuple[str, ...] | None, known: Mapping[str, Any]) -> frozenset[Any] | None:
    for name in names or ():
        if name not in known:
            raise _unknown(what, name, list(known))
    return None if names is None else frozenset(known[name] for name in names)


def _listed(names: Names) -> tuple[str, ...] | None:
    """Return given names; none at all is no filter."""
    if names is None:
        return None
    listed = (names,) if isinstance(names, str) else tuple(names)
    return listed or None


def _unknown(what: str, name: str, known: list[str]) -> InvalidRequest:
    near = nearest(name, known)
    hint = f"Did you mean {near!r}?" if near else f"There is {', '.join(known) or 'none'}"
    return InvalidRequest(f"there is no {what} {name!r}", remedy=hint, **{what: name})


# -- pages -----------------------------------------------------------------------------------------
#
# The bounds are targets, not limits: a change that is larger than a page goes alone.


LIMIT, MAX_LIMIT = 1_000, 8_192  # changes of a page, by default and at most
COMMITS = 1_000
BYTES = 8 << 20  # of images, as text


def check_limit(limit: int) -> None:
    """Refuse pages of no or too many changes."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(
            f"a page has 1 to {MAX_LIMIT} changes, not {limit}", remedy="Ask for several pages"
        )


class Packer:
    """What is left of a page."""

    def __init__(self, limit: int) -> None:
        self._changes = limit
        self._commits = COMMITS
        self._bytes = BYTES

    @property
    def has_room(self) -> bool:
        """Say whether another commit may begin."""
        return self._changes > 0 and self._commits > 0 and self._bytes > 0

    def take(self, changes: Iterator[Change]) -> tuple[tuple[Change, ...], bool]:
        """Return the changes of one commit that fit, one at least, and whether there are more."""
        taken: list[Change] = []
        self._commits -= 1
        for change in changes:
            if taken and not (self._changes > 0 and self._bytes > 0):
                return tuple(taken), True
            taken.append(change)
            self._changes -= 1
            self._bytes -= len(str(change.before)) + len(str(change.after))
        return tuple(taken), False
