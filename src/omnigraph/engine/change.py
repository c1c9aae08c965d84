"""Change: what a write does to the graph, before anything is stored.

    statements, records, a merge -> **change** -> validate -> stage -> publish

Values only. Every verb lowers to this, and one evaluator judges it.

`rows` is the image that will be published: whole rows, one for each id, the last one given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property

import numpy as np
import pyarrow as pa

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.catalog.past import past_catalog
from omnigraph.storage.schema_objects import SchemaObjects
from omnigraph.storage.tables.effects import Append, DeleteIds, Effect, Overwrite, Upsert

NO_IDS = pa.array([], pa.string())


@dataclass(frozen=True, eq=False)
class TypeChange:
    """What happens to one type."""

    declared: TableType
    rows: pa.Table  # the columns of `declared.stored_schema`
    given: pa.Table | None = None  # the records as they were given, where a load gave them all at once
    removed: pa.Array = field(default_factory=lambda: NO_IDS)
    replaces: bool = False  # what was committed goes, all of it
    strict: bool = False  # every id must be new
    minted: bool = False  # every id was generated for this write, so it is new

    @property
    def table_id(self) -> str:
        """The table that changes."""
        return self.declared.table_id

    @property
    def count(self) -> int:
        """How many rows are written."""
        return int(self.rows.num_rows)

    @property
    def as_given(self) -> bool:
        """Say whether the records are known as they were given, of which one id may have several."""
        return self.given is not None

    @property
    def loses_rows(self) -> bool:
        """Say whether committed rows may go."""
        return self.replaces or len(self.removed) > 0

    def effect(self) -> Effect | None:
        """Return what happens to the table, if anything does."""
        if self.replaces:
            return Overwrite(self.rows)
        if not self.count:
            return DeleteIds(self.removed) if len(self.removed) else None
        if self.minted or self.strict:
            return Append(self.rows)  # every id is new: nothing to look for
        return Upsert(self.rows, self.removed)


@dataclass(frozen=True, eq=False)
class ChangeSet:
    """What happens to every type that a write touches, by table id."""

    catalog: Catalog
    types: Mapping[str, TypeChange]

    @classmethod
    def of(cls, catalog: Catalog, changes: Iterable[TypeChange]) -> ChangeSet:
        """Collect changes, nodes before edges, by name."""
        ordered = sorted(changes, key=lambda c: (isinstance(c.declared, EdgeType), c.declared.name))
        return cls(catalog, {change.declared.id: change for change in ordered})

    def rows(self, table_id: str) -> int:
        """Return how many rows are written to a table."""
        change = self.types.get(table_id)
        return 0 if change is None else change.count

    def loses_rows(self, table_id: str) -> bool:
        """Say whether a table may lose rows."""
        change = self.types.get(table_id)
        return change is not None and change.loses_rows

    @cached_property
    def edges(self) -> tuple[EdgeType, ...]:
        """Every edge type that the change touches itself or through an endpoint that may go."""
        return tuple(
            edge
            for edge in self.catalog.edges
            if edge.id in self.types or self.loses_rows(edge.source) or self.loses_rows(edge.target)
        )


def last_of_each(rows: pa.Table) -> pa.Table:
    """Keep the last row of each id, in the order given."""
    if rows.num_rows <= 1 or len(rows[ID].unique()) == rows.num_rows:
        return rows
    numbered = pa.table({ID: rows[ID], "n": np.arange(rows.num_rows)})
    last = numbered.group_by(ID).aggregate([("n", "max")])
    return rows.take(last["n_max"].combine_chunks().sort())


# -- catalogs ------------------------------------------------------------------------------------
#
# Decoded schemas by hash.
# A snapshot names its schema by hash and a hash never changes its meaning, so a catalog is
# decoded once per process and a warm write or read asks storage nothing.


KEPT = 64


class Catalogs:
    """The catalogs of one graph."""

    def __init__(self, schemas: SchemaObjects) -> None:
        self._schemas = schemas
        self._known = BoundedCache[tuple[str, ...], Catalog](KEPT)

    def get(self, digest: str) -> Catalog:
        """Return the catalog of a schema hash."""
        known = self._known.get((digest,))
        if known is None:
            known = self._known.put((digest,), Catalog.from_json(self._schemas.get(digest)))
        return known

    def past(self, now: str, then: str) -> Catalog:
        """Return what one schema declares as a state with another schema has it."""
        if now == then:
            return self.get(now)
        return self._known.get_or_make((now, then), lambda: past_catalog(self.get(now), self.get(then)))
