"""Plan, constraints: the steps for the constraints of one type that both schemas have.

Room    catalog, inside plan.py. Keys are not here: they never change.
Rule    what admits less than before is added and validated against existing rows; what admits more is
        dropped, and needs nothing. An index is neither: it never looks at rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from omnigraph.catalog.constraints import (
    ENDPOINTS,
    UNLIMITED,
    Constraint,
    Index,
    Range,
    card_json,
    constraint_json,
    properties_of,
)
from omnigraph.catalog.encode import dumps
from omnigraph.catalog.model import EdgeType, StoredType, TableType
from omnigraph.catalog.plan_properties import Owner
from omnigraph.catalog.steps import AddConstraint, AnyConstraint, DropConstraint, Effect, EnumSet, Step

Side = tuple[AnyConstraint, dict[str, Any]]  # a constraint, and how it is shown
S = TypeVar("S", AddConstraint, DropConstraint)


def constraint_steps(owner: Owner, accepted: TableType, desired: TableType) -> Iterator[Step]:
    """Yield the steps: narrowed enums, then constraints by kind and name, then cardinality."""
    yield from _narrowed(owner, accepted, desired)
    yield from _compared(owner, accepted, desired)
    if isinstance(accepted, EdgeType) and isinstance(desired, EdgeType) and accepted.card != desired.card:
        yield _card(owner, accepted, desired)


def _narrowed(owner: Owner, accepted: TableType, desired: TableType) -> Iterator[Step]:
    before = {p.id: p for p in accepted.properties}
    for new in desired.properties:
        old = before.get(new.id)
        if old is None or old.type.enum_values is None or new.type.enum_values is None:
            continue
        if set(old.type.enum_values) - set(new.type.enum_values):
            constraint = EnumSet(new.id, new.type.enum_values)
            shown = {"kind": "enum", "property": new.name, "values": list(new.type.enum_values)}
            yield _step(AddConstraint, owner, (constraint, shown), effect=_scan(owner))


def _compared(owner: Owner, accepted: TableType, desired: TableType) -> Iterator[Step]:
    kept = {p.id for p in desired.properties}
    gone = set(accepted.constraints) - set(desired.constraints)
    added = set(desired.constraints) - set(accepted.constraints)
    for new in sorted(added, key=lambda c: _order(c, desired)):
        old = _counterpart(new, added, gone)
        if old is not None and isinstance(new, Range) and new.covers(old):
            continue  # looser: shown as a drop, below
        other = None if old is None else (old, _shown(old, accepted))
        effect = _effect(owner, new, accepted, desired)
        yield _step(AddConstraint, owner, (new, _shown(new, desired)), other, effect)
    for removed in sorted(gone, key=lambda c: _order(c, accepted)):
        looser = _counterpart(removed, gone, added)
        if looser is not None and isinstance(removed, Range) and not looser.covers(removed):
            continue  # tighter: shown as an addition, above
        if isinstance(removed, Index) and not kept.issuperset(set(removed.properties) - set(ENDPOINTS)):
            continue  # the index goes with its property
        other = None if looser is None else (looser, _shown(looser, desired))
        yield _step(DropConstraint, owner, (removed, _shown(removed, accepted)), other)


def _counterpart(one: Constraint, peers: set[Constraint], others: set[Constraint]) -> Range | None:
    """Return the range on the other side that is about the same property, if it is one against one."""
    if not isinstance(one, Range) or _only(one, peers) != one:
        return None
    return _only(one, others)


def _only(like: Range, among: set[Constraint]) -> Range | None:
    found = [c for c in among if isinstance(c, Range) and c.property == like.property]
    return found[0] if len(found) == 1 else None


def _card(owner: Owner, accepted: EdgeType, desired: EdgeType) -> Step:
    old, new = accepted.card, desired.card
    old_side: Side = (old, card_json(old))
    new_side: Side = (new, card_json(new))
    if new.covers(old):
        return _step(DropConstraint, owner, old_side, None if new == UNLIMITED else new_side)
    return _step(AddConstraint, owner, new_side, None if old == UNLIMITED else old_side, _scan(owner))


# -- what a step costs and shows ---------------------------------------------------------------------


def _effect(owner: Owner, new: Constraint, accepted: StoredType, desired: TableType) -> Effect:
    """A row is exempt when a member is null: a property added without a fill makes all of them so."""
    known = {p.id for p in accepted.properties}
    blank = {p.id for p in desired.properties if p.id not in known and p.default is None}
    if isinstance(new, Index) or blank.intersection(properties_of(new)):
        return Effect.METADATA
    return _scan(owner)


def _scan(owner: Owner) -> Effect:
    return Effect.METADATA if owner.empty else Effect.SCAN


def _shown(constraint: Constraint, owner: TableType) -> dict[str, Any]:
    return constraint_json(constraint, owner.name_of)


def _order(constraint: Constraint, owner: TableType) -> bytes:
    return dumps(_shown(constraint, owner))


def _step(
    step: type[S], owner: Owner, side: Side, other: Side | None = None, effect: Effect = Effect.METADATA
) -> S:
    return step(
        **owner.common,
        constraint=side[0],
        shown=side[1],
        other=None if other is None else other[0],
        other_shown=None if other is None else other[1],
        effect=effect,
    )
