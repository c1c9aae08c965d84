"""Conflicts: what a merge cannot decide by itself, as values.

Room    engine.merge. A conflict names the entity, what each side made of it, and who did it when; errors and
        previews carry the same values. "Ours" is the branch that is merged into, "theirs" the one merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from omnigraph.base.errors import Conflict as ConflictError
from omnigraph.engine.validate.findings import Violation


class ConflictKind(Enum):
    """Why it cannot be decided."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE = "unique_violation"
    CARDINALITY = "cardinality_violation"
    VALUE = "value_constraint_violation"


STRUCTURAL = frozenset(
    {ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE}
)
_BY_CODE = {
    "orphan_edge": ConflictKind.ORPHAN_EDGE,
    "unique": ConflictKind.UNIQUE,
    "cardinality": ConflictKind.CARDINALITY,
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Who last changed an entity on one side, and when."""

    commit_id: str
    actor: str | None
    authored_at_us: int

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"graph_commit_id": self.commit_id, "actor_id": self.actor, "authored_at": self.authored_at_us}


@dataclass(frozen=True, slots=True)
class PropertyConflict:
    """One property with three values, in the format of result values."""

    name: str
    base: Any
    ours: Any
    theirs: Any

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"property": self.name, "base": self.base, "ours": self.ours, "theirs": self.theirs}


@dataclass(frozen=True, slots=True)
class Conflict:
    """One entity, or one set of entities, that the sides do not agree on."""

    entity_kind: str
    type_name: str
    kind: ConflictKind
    message: str
    entity_id: str | None = None
    properties: tuple[PropertyConflict, ...] = ()
    ours: Origin | None = None
    theirs: Origin | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
            "properties": [one.to_json() for one in self.properties],
            "ours": None if self.ours is None else self.ours.to_json(),
            "theirs": None if self.theirs is None else self.theirs.to_json(),
        }

    @classmethod
    def of(cls, violation: Violation) -> Conflict:
        """Turn what the evaluator found in the merged image into a conflict."""
        kind = _BY_CODE.get(violation.code, ConflictKind.VALUE)
        return cls(violation.entity_kind, violation.type_name, kind, violation.message, violation.entity_id)


class MergeConflict(ConflictError):
    """The sides disagree; nothing was changed. `conflicts` has the first ones, `total` counts all."""

    code = "merge_conflict"
    conflicts: tuple[Conflict, ...] = ()
    total = 0

    def __init__(self, doing: str, conflicts: Sequence[Conflict], total: int) -> None:
        first = "".join(f"\n  {one.message}" for one in conflicts[:3])
        more = f"\n  ... and {total - 3} more" if total > 3 else ""
        super().__init__(
            f"{doing}: {total} conflict{'s' if total != 1 else ''}{first}{more}",
            remedy="Nothing was changed; choose a side for each with resolutions, or mend a branch",
            merge_conflicts=[one.to_json() for one in conflicts],
            total=total,
        )
        self._doing = doing
        self.conflicts = tuple(conflicts)
        self.total = total

    def with_conflicts(self, conflicts: Sequence[Conflict]) -> MergeConflict:
        """Return the same error with more said about its conflicts."""
        return MergeConflict(self._doing, conflicts, self.total)


class SchemaConflict(ConflictError):
    """Both sides changed the schema in ways that do not go together."""

    code = "schema_conflict"


def in_order(conflicts: Sequence[Conflict]) -> list[Conflict]:
    """Put conflicts in the order of report: structural ones first, nodes before edges, by type and id."""
    return sorted(
        conflicts,
        key=lambda one: (
            one.kind not in STRUCTURAL,
            one.entity_kind == "edge",
            one.type_name,
            one.entity_id or "",
        ),
    )
