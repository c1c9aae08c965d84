"""Plan: the ordered steps that turn the accepted schema into the desired one.

    accepted catalog + desired catalog -> **plan**

Pure: looks at two catalogs, which share identities (resolve.py), and no data; the caller says whether drops
may destroy history, and which types are known to hold no rows.

Steps come for interfaces, then nodes, then edges; in each kind for the desired types by name, then the
dropped ones. In a type: rename, what is refused, metadata, properties by name, dropped properties,
constraints. No steps means no change: the same identities, with equal declarations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog import steps
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.encode import dumps
from omnigraph.catalog.model import (
    ENDPOINTS,
    UNLIMITED,
    AnyType,
    Constraint,
    EdgeType,
    Index,
    InterfaceProperty,
    InterfaceType,
    NodeType,
    Property,
    Range,
    StoredType,
    TableType,
    TypeKind,
    Unique,
    card_json,
    constraint_json,
    properties_of,
)
from omnigraph.catalog.steps import (
    AddConstraint,
    AddKey,
    AddProperty,
    AddType,
    AlterProperty,
    AnyConstraint,
    ChangeEmbed,
    ChangeKey,
    DropConstraint,
    DropKey,
    DropMode,
    DropProperty,
    DropType,
    Effect,
    EnumSet,
    ExtendEnum,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar

# -- properties ------------------------------------------------------------------------------------
#
# Of one type that both schemas have. A change is either kept whole (values survive as they are, or rewritten)
# or refused; a drop is never a consequence of another change.


AnyProperty = Property | InterfaceProperty


@dataclass(frozen=True, slots=True)
class Owner:
    """The type whose properties are compared, and how its drops are to be done."""

    kind: TypeKind
    id: str
    name: str
    empty: bool
    mode: DropMode

    @property
    def common(self) -> dict[str, Any]:
        """The fields that every step of the type has."""
        return {"type_kind": self.kind, "type_id": self.id, "type_name": self.name}

    def of(self, declared: AnyProperty) -> dict[str, Any]:
        """The fields that every step of a property has."""
        return {**self.common, "property_id": declared.id, "property_name": declared.name}

    def entity(self, declared: AnyProperty) -> str:
        """How a refusal names a property."""
        return f"{self.kind.value}:{self.name}.{declared.name}"


def property_steps(owner: Owner, accepted: AnyType, desired: AnyType) -> Iterator[Step]:
    """Yield the steps of all properties: the desired ones by name, then the dropped ones."""
    before: dict[str, AnyProperty] = {p.id: p for p in _properties(accepted)}
    kept = {p.id for p in _properties(desired)}
    for after in _properties(desired):
        old = before.get(after.id)
        if old is None:
            yield _added(owner, after)
        else:
            yield from _changed(owner, accepted, desired, old, after)
    for gone in _properties(accepted):
        if gone.id not in kept:
            column = gone.column if isinstance(gone, Property) else None
            yield DropProperty(**owner.of(gone), column=column, mode=owner.mode)


def _properties(declared: AnyType) -> list[AnyProperty]:
    properties: list[AnyProperty] = [*declared.properties]
    return sorted(properties, key=lambda p: p.name)


def _added(owner: Owner, declared: AnyProperty) -> Step:
    if isinstance(declared, InterfaceProperty):
        return AddProperty(**owner.of(declared), declared=declared)
    fill = None if owner.empty else declared.default
    if not declared.type.nullable and declared.default is None and not owner.empty:
        return UnsupportedChange(
            entity=owner.entity(declared),
            reason=f"adding required property '{declared.name}' needs a value for existing rows: "
            f"{_remedy(declared)}",
            code=steps.REQUIRED_ADDED.code,
        )
    effect = Effect.METADATA if fill is None else Effect.REWRITE
    return AddProperty(**owner.of(declared), declared=declared, fill=fill, effect=effect)


def _remedy(declared: Property) -> str:
    """Show the property with a default, if its type can have one."""
    example = _example(declared.type)
    if example is None:
        return f"write '{declared.name}: {declared.type}?'"
    written = f"{declared.name}: {declared.type}"
    return f"write '{written} @default({example})', or '{written}?'"


def _example(declared: PropertyType) -> str | None:
    if declared.is_list or declared.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return None
    if declared.enum_values is not None:
        return f'"{declared.enum_values[0]}"'
    if declared.scalar in INTEGERS or declared.scalar in FLOATS:
        return "0" if declared.scalar in INTEGERS else "0.0"
    return {Scalar.STRING: '""', Scalar.BOOL: "false"}.get(declared.scalar, "now")


# -- a property that both have -----------------------------------------------------------------------


def _changed(
    owner: Owner, accepted: AnyType, desired: AnyType, old: AnyProperty, new: AnyProperty
) -> Iterator[Step]:
    if old.name != new.name:
        yield RenameProperty(**owner.of(new), old_name=old.name)
    yield from _retyped(owner, accepted, old, new)
    if isinstance(old, Property) and isinstance(new, Property):
        yield from _embedded(owner, accepted, desired, old, new)
    if old.annotations != new.annotations:
        yield UpdatePropertyMetadata(**owner.of(new), annotations=new.annotations)


def _retyped(owner: Owner, accepted: AnyType, old: AnyProperty, new: AnyProperty) -> Iterator[Step]:
    if old.type == new.type:
        return
    if isinstance(old, Property) and isinstance(new, Property):
        yield from _retyped_column(owner, accepted, old, new)
    elif (added := _added_values(old.type, new.type)) and old.type.extended(added) == new.type:
        yield ExtendEnum(**owner.of(new), added_values=added)
    else:
        # No rows: whether this can be done is for the nodes to say that inherit the property.
        yield AlterProperty(**owner.of(new), old_type=old.type, new_type=new.type)


def _retyped_column(owner: Owner, accepted: AnyType, old: Property, new: Property) -> Iterator[Step]:
    before, after = old.type, new.type
    widened = before.widens_to(after)
    problem = None if widened or _same_base(before, after) else f"changing its type from {before} to {after}"
    if widened and _renames_ids(accepted, old):
        problem = f"widening a key member from {before} to {after} would change every id, which"
    if problem is not None:
        yield UnsupportedChange(
            entity=owner.entity(new),
            reason=f"{problem} is not supported; add a new property and copy the values",
            code=(steps.KEY_CHANGED if widened else steps.TYPE_CHANGED).code,
        )
        return
    if added := _added_values(before, after):
        yield ExtendEnum(**owner.of(new), added_values=added)
    if widened or before.nullable != after.nullable:
        yield _altered(owner, old, new, widened)


def _added_values(before: PropertyType, after: PropertyType) -> tuple[str, ...]:
    if before.enum_values is None or after.enum_values is None:
        return ()
    return tuple(sorted(set(after.enum_values) - set(before.enum_values)))


def _same_base(before: PropertyType, after: PropertyType) -> bool:
    """Say whether only nullability or the set of enum values differs."""
    same = (before.scalar, before.is_list, before.dimension) == (after.scalar, after.is_list, after.dimension)
    return same and before.is_enum == after.is_enum


def _renames_ids(accepted: AnyType, declared: Property) -> bool:
    """Say whether a wider type would change the ids of nodes; edges can get others, nodes cannot."""
    is_key = isinstance(accepted, NodeType) and declared.id in accepted.key
    return is_key and _changes_spelling(declared.type)


def _changes_spelling(narrow: PropertyType) -> bool:
    """A wider integer is spelt the same; a float or a date is not, and the key is made of the spelling."""
    return narrow.scalar not in INTEGERS


def _altered(owner: Owner, old: Property, new: Property, widened: bool) -> Step:
    tightened = old.type.nullable and not new.type.nullable
    fill = new.default if tightened and not owner.empty else None
    effect = Effect.METADATA
    if not owner.empty and (widened or fill is not None):
        effect = Effect.REWRITE
    elif not owner.empty and tightened:
        effect = Effect.SCAN
    return AlterProperty(
        **owner.of(new),
        old_type=old.type,
        new_type=new.type,
        old_column=old.column,
        new_column=new.column,
        fill=fill,
        effect=effect,
    )


def _embedded(
    owner: Owner, accepted: AnyType, desired: AnyType, old: Property, new: Property
) -> Iterator[Step]:
    if old.embed == new.embed:
        return
    if old.embed is None or new.embed is None:
        verb = "adding @embed to" if old.embed is None else "removing @embed from"
        yield UnsupportedChange(
            entity=owner.entity(new),
            reason=f"{verb} an existing property is not supported; declare a new vector property",
            code=steps.EMBED_ADDED.code,
        )
    elif isinstance(accepted, StoredType) and isinstance(desired, StoredType):
        yield ChangeEmbed(
            **owner.of(new),
            old=old.embed,
            new=new.embed,
            column=new.column,
            old_source=accepted.name_of(old.embed.source),
            new_source=desired.name_of(new.embed.source),
            effect=Effect.METADATA if owner.empty else Effect.REWRITE,
        )


# -- constraints -----------------------------------------------------------------------------------
#
# Of one type that both schemas have; keys are not here, they never change. What admits less than before is
# added and validated against existing rows; what admits more is dropped, and needs nothing. An index is
# neither: it never looks at rows.


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


def _counterpart(constraint: Constraint, peers: set[Constraint], others: set[Constraint]) -> Range | None:
    """Return the range on the other side that is about the same property, if it is one against one."""
    if not isinstance(constraint, Range) or _only(constraint, peers) != constraint:
        return None
    return _only(constraint, others)


def _only(like: Range, among: set[Constraint]) -> Range | None:
    ranges = [c for c in among if isinstance(c, Range) and c.property == like.property]
    return ranges[0] if len(ranges) == 1 else None


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
    if isinstance(new, Unique) and desired.is_key(new):
        return Effect.METADATA  # ids keep it, or the step of the key finds out
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


# -- the plan --------------------------------------------------------------------------------------


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
        effects = {step.effect for step in self.steps}
        return next((e for e in (Effect.REWRITE, Effect.SCAN) if e in effects), Effect.METADATA)

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
    planner = _Planner(
        before, desired, DropMode.HARD if allow_data_loss else DropMode.SOFT, frozenset(empty_types)
    )
    return MigrationPlan(tuple(planner.steps()))


@dataclass(frozen=True, slots=True)
class _Planner:
    before: Catalog
    after: Catalog
    mode: DropMode
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
                code=steps.INTERFACE_DROPPED.code,
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
                    code=steps.KEY_CHANGED.code,
                )
            case EdgeType(), EdgeType():
                yield from self._edge_structure(accepted, desired)
            case _:
                pass

    def _edge_structure(self, accepted: EdgeType, desired: EdgeType) -> Iterator[Step]:
        if (accepted.source, accepted.target) != (desired.source, desired.target):
            yield UnsupportedChange(
                entity=f"edge:{desired.name}",
                reason="changing the endpoints of an edge type is not supported; declare a new edge type",
                code=steps.ENDPOINTS_CHANGED.code,
            )
        common: dict[str, Any] = {
            "type_kind": desired.kind,
            "type_id": desired.id,
            "type_name": desired.name,
        }
        old, new = accepted.key_names, desired.key_names
        effect = Effect.METADATA if desired.id in self.empty else Effect.REWRITE
        if desired.key and not accepted.key:
            yield AddKey(**common, key=new, effect=effect)
        elif accepted.key and not desired.key:
            yield DropKey(**common, old_key=old)
        elif _makes_other_ids(accepted, desired):
            yield ChangeKey(**common, old_key=old, key=new, effect=effect)

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


def _makes_other_ids(accepted: EdgeType, desired: EdgeType) -> bool:
    """Say whether a key has other members, or spells the values of one in another way."""
    before = {member.id: member.type for member in accepted.key_members}
    return accepted.key != desired.key or any(
        before[member.id].scalar != member.type.scalar and _changes_spelling(before[member.id])
        for member in desired.key_members
    )


def _key(declared: NodeType) -> str:
    # A member that the other side dropped has a name only here.
    names = sorted(declared.name_of(p) for p in declared.key)
    return f"@key({', '.join(names)})" if names else "no key"
