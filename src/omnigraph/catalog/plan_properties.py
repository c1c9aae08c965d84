"""Plan, properties: the steps for the properties of one type that both schemas have.

Room    catalog, inside plan.py.
Rule    a change is either kept whole (values survive as they are, or rewritten) or refused; a drop is
        never a consequence of another change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog import codes
from omnigraph.catalog.model import (
    AnyType,
    InterfaceProperty,
    NodeType,
    Property,
    StoredType,
    TypeKind,
)
from omnigraph.catalog.steps import (
    AddProperty,
    AlterProperty,
    ChangeEmbed,
    DropProperty,
    Effect,
    ExtendEnum,
    Mode,
    RenameProperty,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
)
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar

AnyProperty = Property | InterfaceProperty


@dataclass(frozen=True, slots=True)
class Owner:
    """The type whose properties are compared, and how its drops are to be done."""

    kind: TypeKind
    id: str
    name: str
    empty: bool
    mode: Mode

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
    found: list[AnyProperty] = [*declared.properties]
    return sorted(found, key=lambda p: p.name)


def _added(owner: Owner, declared: AnyProperty) -> Step:
    if isinstance(declared, InterfaceProperty):
        return AddProperty(**owner.of(declared), declared=declared)
    fill = None if owner.empty else declared.default
    if not declared.type.nullable and declared.default is None and not owner.empty:
        return UnsupportedChange(
            entity=owner.entity(declared),
            reason=f"adding required property '{declared.name}' needs a value for existing rows: "
            f"{_remedy(declared)}",
            code=codes.REQUIRED_ADDED.code,
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
            code=(codes.KEY_CHANGED if widened else codes.TYPE_CHANGED).code,
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
    """A wider integer is spelt the same; a float or a date is not, and the key is made of the spelling."""
    is_key = isinstance(accepted, NodeType) and declared.id in accepted.key
    return is_key and declared.type.scalar not in INTEGERS


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
            code=codes.EMBED_ADDED.code,
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
