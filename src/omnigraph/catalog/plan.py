"""Plan: the ordered steps that turn the accepted schema into the desired one.

    accepted catalog + desired catalog -> **plan**

Room    catalog. Pure: looks at two catalogs and no data.
Given   both catalogs, which share identities (resolve.py); whether drops may destroy history; the types
        that are known to hold no rows.
Gives   `MigrationPlan`. Interfaces, then nodes, then edges; in each kind the desired types by name, then the
        dropped ones. In a type: rename, what is refused, metadata, properties by name, dropped properties,
        constraints.
Rule    no steps means no change: the same identities, with equal declarations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog import codes
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import AnyType, EdgeType, InterfaceType, NodeType, TypeKind
from omnigraph.catalog.plan_constraints import constraint_steps
from omnigraph.catalog.plan_properties import Owner, property_steps
from omnigraph.catalog.steps import (
    AddType,
    DropType,
    Effect,
    Mode,
    RenameType,
    Step,
    UnsupportedChange,
    UpdateTypeMetadata,
)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What an apply would do; it does exactly this, or nothing."""

    steps: tuple[Step, ...]

    @property
    def supported(self) -> bool:
        """Say whether the whole plan can be executed."""
        return not self.refusals

    @property
    def refusals(self) -> tuple[UnsupportedChange, ...]:
        """The changes that stand in the way."""
        return tuple(s for s in self.steps if isinstance(s, UnsupportedChange))

    @property
    def destructive(self) -> bool:
        """Say whether the plan drops anything."""
        return any(step.support.value == "destructive" for step in self.steps)

    @property
    def effect(self) -> Effect:
        """The costliest effect of the steps."""
        found = {step.effect for step in self.steps}
        return next((e for e in (Effect.REWRITE, Effect.SCAN) if e in found), Effect.METADATA)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape of the plan."""
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}


def plan(
    accepted: Catalog | None,
    desired: Catalog,
    *,
    allow_data_loss: bool = False,
    empty_types: Collection[str] = (),
) -> MigrationPlan:
    """Return the steps from one catalog to the other.

    `empty_types` are the ids of types without rows: there a required property needs no default. Whoever
    says so must see to it that they are still empty when the plan is executed.
    """
    before = Catalog() if accepted is None else accepted
    planner = _Planner(before, desired, Mode.HARD if allow_data_loss else Mode.SOFT, frozenset(empty_types))
    return MigrationPlan(tuple(planner.steps()))


@dataclass(frozen=True, slots=True)
class _Planner:
    before: Catalog
    after: Catalog
    mode: Mode
    empty: frozenset[str]

    def steps(self) -> Iterator[Step]:
        yield from self._kind(self.before.interfaces, self.after.interfaces)
        yield from self._kind(self.before.nodes, self.after.nodes)
        yield from self._kind(self.before.edges, self.after.edges)

    def _kind(self, before: Sequence[AnyType], after: Sequence[AnyType]) -> Iterator[Step]:
        old = {t.id: t for t in before}
        kept = {t.id for t in after}
        for desired in after:
            accepted = old.get(desired.id)
            if accepted is None:
                yield AddType(
                    type_kind=desired.kind, type_id=desired.id, type_name=desired.name, declared=desired
                )
            else:
                yield from self._type(accepted, desired)
        for gone in before:
            if gone.id not in kept:
                yield self._drop(gone)

    def _drop(self, gone: AnyType) -> Step:
        if gone.kind is TypeKind.INTERFACE:
            return UnsupportedChange(
                entity=f"interface:{gone.name}",
                reason=f"removing interface '{gone.name}' is not supported; it takes no space and may stay",
                code=codes.INTERFACE_DROPPED.code,
            )
        return DropType(type_kind=gone.kind, type_id=gone.id, type_name=gone.name, mode=self.mode)

    # -- one type ------------------------------------------------------------------------------------

    def _type(self, accepted: AnyType, desired: AnyType) -> Iterator[Step]:
        if accepted.name != desired.name:
            yield RenameType(
                type_kind=desired.kind,
                type_id=desired.id,
                type_name=desired.name,
                old_name=accepted.name,
            )
        yield from self._structure(accepted, desired)
        yield from self._metadata(accepted, desired)
        owner = Owner(desired.kind, desired.id, desired.name, desired.id in self.empty, self.mode)
        yield from property_steps(owner, accepted, desired)
        if isinstance(accepted, NodeType | EdgeType) and isinstance(desired, NodeType | EdgeType):
            yield from constraint_steps(owner, accepted, desired)

    def _structure(self, accepted: AnyType, desired: AnyType) -> Iterator[Step]:
        match accepted, desired:
            case NodeType(), NodeType() if accepted.key != desired.key:
                old, new = (_key(t) for t in (accepted, desired))
                yield UnsupportedChange(
                    entity=f"node:{desired.name}",
                    reason=f"changing the key from {old} to {new} is not supported: it would change every id",
                    code=codes.KEY_CHANGED.code,
                )
            case EdgeType(), EdgeType() if (accepted.source, accepted.target) != (
                desired.source,
                desired.target,
            ):
                yield UnsupportedChange(
                    entity=f"edge:{desired.name}",
                    reason="changing the endpoints of an edge type is not supported; declare a new edge type",
                    code=codes.ENDPOINTS_CHANGED.code,
                )
            case _:
                pass

    def _metadata(self, accepted: AnyType, desired: AnyType) -> Iterator[Step]:
        if isinstance(accepted, InterfaceType) or isinstance(desired, InterfaceType):
            return
        implements = self._implements(accepted, desired)
        if implements is not None or accepted.annotations != desired.annotations:
            yield UpdateTypeMetadata(
                type_kind=desired.kind,
                type_id=desired.id,
                type_name=desired.name,
                annotations=desired.annotations,
                implements=implements,
            )

    def _implements(self, accepted: AnyType, desired: AnyType) -> tuple[str, ...] | None:
        """Return the names of the interfaces, if there are other ones than before."""
        if not isinstance(accepted, NodeType) or not isinstance(desired, NodeType):
            return None
        if set(accepted.implements) == set(desired.implements):
            return None
        names = {t.id: t.name for t in self.after.interfaces}
        return tuple(sorted(names[i] for i in desired.implements))


def _key(declared: NodeType) -> str:
    # A member that the other side dropped has a name only here.
    names = sorted(declared.name_of(p) for p in declared.key)
    return f"@key({', '.join(names)})" if names else "no key"
