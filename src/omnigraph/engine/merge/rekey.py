"""Rekey: the edges of a state under the ids that the merged schema's key makes of them.

Where one side gave an edge type a key, or another one, the same edge has different ids in the three states.
They are merged under the ids of the merged schema; two edges of one side that get the same one conflict.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.keys import edge_text, ids_where_whole
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.engine.change import last_of_each
from omnigraph.engine.merge.conflicts import Conflict, ConflictKind

SideName = Literal["target", "source"]


def makes_other_ids(declared: TableType, then: Catalog) -> bool:
    """Say whether a state with this schema may have other ids than the key of a merged type makes."""
    known = then.same_table(declared)
    if not declared.key or not isinstance(declared, EdgeType) or known is None:
        return False  # without a key ids stay what they are

    def here(part: str) -> str | None:
        same = None if part in ENDPOINTS else declared.same_property(known.property_by_id(part))
        return part if part in ENDPOINTS else None if same is None else same.id

    before = [(here(member.id), member.type.scalar) for member in known.key_members]
    return before != [(member.id, member.type.scalar) for member in declared.key_members]


@dataclass(frozen=True, eq=False)
class KeyedState:
    """The edges of one state, by the ids that the key makes; `before` has the ids that they had."""

    declared: EdgeType
    rows: pa.Table
    before: pa.Table

    @classmethod
    def of(cls, declared: EdgeType, rows: pa.Table) -> KeyedState:
        """Give edges their ids; one without a whole key keeps its own, and is refused for what it lacks."""

        def values(column: str, kind: pa.DataType) -> pa.Array:
            narrow = rows[column].cast(kind, safe=False).combine_chunks()
            return narrow if isinstance(narrow, pa.Array) else pa.concat_arrays(narrow.chunks)

        made = ids_where_whole(declared, lambda member: values(member.column, member.type.arrow))
        ids = pc.coalesce(made, values(ID, pa.string()))
        keyed = rows.set_column(0, rows.schema.field(ID), ids)
        before = pa.table({"key": ids, **{name: rows[name] for name in (ID, *ENDPOINTS)}})
        before = before.sort_by([("key", "ascending"), (ID, "ascending")])
        return cls(declared, last_of_each(keyed).sort_by(ID), before)

    def conflicts(self, side: SideName) -> list[Conflict]:
        """Return the edges of a side that get one id."""
        if self.before.num_rows == self.rows.num_rows:
            return []
        counts = pc.value_counts(self.before["key"])
        shared = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        found: dict[str, list[dict[str, str]]] = {}
        for row in self.before.filter(pc.is_in(self.before["key"], value_set=shared)).to_pylist():
            found.setdefault(row["key"], []).append(row)
        return [self._conflict(key, rows, side) for key, rows in found.items()]

    def _conflict(self, key: str, rows: list[dict[str, str]], side: SideName) -> Conflict:
        kind, name = ConflictKind.UNIQUE, self.declared.name
        listed = " and ".join(repr(row[ID]) for row in rows)
        source, target = (rows[0][end] for end in ENDPOINTS)
        what = edge_text(name, key, (source, target))
        message = f"{kind.value}: edges {listed} on the {side} have the same key, that of {what}"
        return Conflict(self.declared.kind.value, name, kind, message, key, ends=(source, target))
