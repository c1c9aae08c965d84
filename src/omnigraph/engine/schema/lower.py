"""Lower: the steps of a migration as one publish plan.

    text -> catalog -> migration plan -> **publish plan**

Room    engine.schema. Knows which step touches which table, and how little: a rename touches none, a
        dropped or empty new column only the table's metadata, a filled one adds a file per fragment; only a
        hard drop writes the table anew.
Rule    the plan carries the new schema object, the table effects and the pins together; one commit or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa

from omnigraph.base.times import DAY_MS
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType, TypeKind
from omnigraph.catalog.plan import MigrationPlan
from omnigraph.catalog.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    AlterProperty,
    ChangeEmbed,
    DropProperty,
    DropType,
    RenameType,
)
from omnigraph.engine.schema.existing import needs_rows
from omnigraph.engine.schema.hard import is_hard, rewrites
from omnigraph.engine.schema.image import ColumnSource, Image
from omnigraph.language.schema.literals import DefaultValue, Now
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import AddColumn, DropColumn, Effect, FillNulls, Several
from omnigraph.storage.transaction import NewTable, PublishPlan, WriteTxn


def lower(
    plan: MigrationPlan, desired: Catalog, txn: WriteTxn, *, now_ms: int, relied_on_empty: Iterable[str]
) -> PublishPlan:
    """Return what to publish."""
    effects = rewrites(plan.steps, txn)
    create: dict[str, NewTable] = {}
    rename: dict[str, str] = {}
    drop: set[str] = set()
    for step in plan.steps:
        match step:
            case AddType(type_kind=kind) if kind is not TypeKind.INTERFACE:
                assert step.stored_schema is not None
                create[step.type_id] = NewTable(step.type_name, kind.value, step.stored_schema)
            case RenameType(type_kind=kind) if kind is not TypeKind.INTERFACE:
                rename[step.type_id] = step.type_name
            case DropType(type_kind=kind) if kind is not TypeKind.INTERFACE:
                drop.add(step.type_id)
            case DropProperty() if is_hard(step):
                pass  # done first, for all columns of a table at once
            case AddProperty() | AlterProperty() | ChangeEmbed() | DropProperty():
                effects.setdefault(step.type_id, []).extend(_column_effects(step, desired, now_ms))
            case _:
                pass  # names, annotations and constraints live in the schema object alone
    return PublishPlan(
        CommitKind.SCHEMA,
        effects={table: Several(tuple(found)) for table, found in effects.items() if found},
        create=create,
        rename=rename,
        drop=frozenset(drop),
        schema=desired.to_json(),
        assumed=frozenset(relied_on_empty) - drop,
        consulted=frozenset(step.type_id for step in plan.steps if needs_rows(step)),
    )


def images(
    plan: MigrationPlan, desired: Catalog, table: Callable[[str], Any], *, now_ms: int
) -> dict[str, Image]:
    """Return the image of each type whose rows the plan must look at; `table` opens one by its id."""
    found: dict[str, Image] = {}
    for step in plan.steps:
        if needs_rows(step) and step.type_id not in found:
            declared = desired.table(step.type_id)
            sources = _sources(declared, plan, now_ms)
            found[step.type_id] = Image(declared, table(step.type_id), sources)
    return found


def scalar(value: DefaultValue, arrow: pa.DataType, now_ms: int) -> pa.Scalar:
    """Return a default as a stored value."""
    if isinstance(value, Now):
        return pa.scalar(now_ms // DAY_MS if pa.types.is_date32(arrow) else now_ms, arrow)
    return pa.scalar(value, arrow)


def _column_effects(
    step: AddProperty | AlterProperty | ChangeEmbed | DropProperty, desired: Catalog, now_ms: int
) -> list[Effect]:
    match step:
        case AddProperty(fill=fill) if step.field is not None:
            value = None if fill is None else scalar(fill, step.field.type, now_ms)
            return [AddColumn(step.field, value)]
        case AlterProperty(old_column=old, new_column=new, fill=fill) if step.field is not None and new:
            found: list[Effect] = []
            if old is not None and old != new:
                found += [AddColumn(step.field, copy_from=old), DropColumn(old)]
            if fill is not None:
                found.append(FillNulls(new, scalar(fill, step.field.type, now_ms)))
            return found
        case ChangeEmbed(column=column):
            # Vectors of another source are no use: the column goes, and comes back without values.
            declared = desired.table(step.type_id).property_by_id(step.property_id)
            return [DropColumn(column), AddColumn(declared.field)]
        case DropProperty(column=column) if column is not None:
            return [DropColumn(column)]
        case _:
            return []  # an interface has no table


def _sources(declared: TableType, plan: MigrationPlan, now_ms: int) -> dict[str, ColumnSource]:
    """Say where the values of each desired property come from."""
    found = {p.id: ColumnSource(p.column) for p in declared.properties}
    for step in plan.steps:
        if not isinstance(step, AddProperty | AlterProperty) or step.type_id != declared.id:
            continue
        if step.property_id not in found or step.field is None:
            continue
        value = None if step.fill is None else scalar(step.fill, step.field.type, now_ms)
        stored = step.old_column if isinstance(step, AlterProperty) else None
        found[step.property_id] = ColumnSource(stored, value)
    return found


def relied_on_empty(plan: MigrationPlan, empty: Collection[str]) -> frozenset[str]:
    """Return the types whose emptiness the plan rests on: if rows arrive meanwhile, plan again."""
    return frozenset(
        step.type_id
        for step in plan.steps
        if isinstance(step, AddProperty | AlterProperty | AddConstraint | DropProperty)
        and step.type_id in empty
        and (is_hard(step) or not isinstance(step, DropProperty))
    )
