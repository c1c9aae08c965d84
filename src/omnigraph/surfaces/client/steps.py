"""Steps: what a schema change does, and the plan and receipt of one, as a server tells them.

A step carries here what surfaces show of it; what its execution needs (columns, ids, fills) stays with the
server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.steps import DropMode, Effect, Step, Support, UnsupportedChange
from omnigraph.engine.schema.hard_drop import ReclaimedType
from omnigraph.language.diagnostics import Diagnostic
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import CommitRecord

Json = Mapping[str, Any]
OF_PLANS = ("rows", "history")  # what a plan says of a step beside the step
DESTRUCTIVE = frozenset({"drop_type", "drop_property"})


@dataclass(frozen=True)
class RemoteStep:
    """One step of a migration by its public shape."""

    kind: str
    shown: Mapping[str, Any] = field(hash=False)

    @property
    def effect(self) -> Effect:
        """What the step costs."""
        return Effect(self.shown.get("effect", Effect.METADATA.value))

    @property
    def support(self) -> Support:
        """Whether the step can be executed."""
        return Support.DESTRUCTIVE if self.kind in DESTRUCTIVE else Support.SUPPORTED

    @property
    def type_name(self) -> str:
        """The type that the step is about."""
        return str(self.shown.get("type_name") or self.shown.get("name") or self.shown.get("to"))

    @property
    def property_name(self) -> str | None:
        """The property that the step is about, if it is about one."""
        name = self.shown.get("property_name")
        return None if name is None else str(name)

    @property
    def mode(self) -> DropMode | None:
        """How a drop treats history."""
        mode = self.shown.get("mode")
        return None if mode is None else DropMode(mode)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return dict(self.shown)


def steps(documents: Iterable[Json]) -> tuple[Step, ...]:
    """Return schema steps; their classes are those of the library only where nothing else is in them."""
    made: Any = tuple(_step(document) for document in documents)
    return made  # type: ignore[no-any-return]


def _step(document: Json) -> RemoteStep | UnsupportedChange:
    shown = {name: value for name, value in document.items() if name not in OF_PLANS}
    if document["kind"] == UnsupportedChange.kind:
        known = {name: shown.pop(name) for name in ("entity", "reason", "code")}
        details = {name: value for name, value in shown.items() if name not in ("kind", "effect")}
        return UnsupportedChange(**known, details=details)
    return RemoteStep(document["kind"], shown)


@checked_methods
@dataclass(frozen=True)
class RemoteSchemaPlan:
    """What an apply would do, with the rows that each step concerns."""

    supported: bool
    steps: tuple[Step, ...]
    notes: tuple[Diagnostic, ...]
    document: Mapping[str, Any]

    def rows(self, step: Any) -> int:
        """Rows of the type that a step concerns."""
        return int(self._shown(step).get("rows", 0))

    def takes_history(self, step: Any) -> bool:
        """Say whether the history of the step's table goes with it: earlier commits lose the whole type."""
        return "history" in self._shown(step)

    def _shown(self, step: Any) -> Mapping[str, Any]:
        shown: Mapping[str, Any] = self.document["steps"][self.steps.index(step)]
        return shown

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        listed = list(self.document["steps"])
        return {"supported": self.supported, "step_count": len(listed), "steps": listed}


@dataclass(frozen=True)
class RemoteSchemaReceipt:
    """What an apply did; `commit` is None when the schema was the accepted one already."""

    plan: RemoteSchemaPlan
    commit: CommitRecord | None
    cost: Cost
    reclaimed: tuple[ReclaimedType, ...]
    warnings: tuple[str, ...]
    replayed: bool = False  # an earlier call with the same idempotency key did it

    @property
    def applied(self) -> bool:
        """Whether anything changed."""
        return self.commit is not None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        commit = self.commit
        return {
            **self.plan.to_json(),
            "applied": self.applied,
            "commit": None if commit is None else commit.id,
            "graph_manifest_version": None if commit is None else commit.manifest_version,
            "reclaimed": [reclaimed.to_json() for reclaimed in self.reclaimed],
            "warnings": list(self.warnings),
        }
