"""Short ways to a catalog, a plan and the text of its steps."""

from __future__ import annotations

import itertools
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.plan import MigrationPlan, plan
from omnigraph.catalog.resolve import resolve_text

_changes = itertools.count(1)


def catalog(text: str, accepted: Catalog | None = None) -> Catalog:
    """Return the catalog of a text, with ids of a change of its own."""
    return resolve_text(text, accepted, IdMinter(f"c{next(_changes):06d}")).catalog


def migration(
    before: str, after: str, *, allow_data_loss: bool = False, empty: tuple[str, ...] = ()
) -> MigrationPlan:
    """Plan from one text to another; `empty` names node or edge types without rows."""
    accepted = catalog(before)
    desired = catalog(after, accepted)
    ids = {t.id for t in accepted.tables if t.name in empty}
    return plan(accepted, desired, allow_data_loss=allow_data_loss, empty_types=ids)


def property_type(scalar: str | dict[str, int], *, nullable: bool = False, **more: Any) -> dict[str, Any]:
    """Return the JSON form of a type."""
    return {"scalar": scalar, "nullable": nullable, "list": False, "enum_values": None, **more}
