"""Rekey: what becomes of the edges of a type that gets a key, or another one.

    stored edges, in the columns of the desired schema -> **the ids that the key makes** -> edges under them

Edges that would share an id stand in the way: they are refused, or one of each group is kept and the others
go. Groups are found by the hashes of the ids, a share of them at a time: memory follows neither the table
nor the number of duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog import steps
from omnigraph.catalog.keys import ids_where_whole
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType
from omnigraph.catalog.steps import Dedupe, UnsupportedChange
from omnigraph.engine.history.delta import differs
from omnigraph.engine.schema.existing import ColumnSource
from omnigraph.storage.derived.key_hashes import hashes_of
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle

LastChanged = Callable[[EdgeType, pa.Array], Mapping[str, int]]  # id -> when; a greater number is later
GROUPS_SHOWN = IDS_SHOWN = 20
ROWS_AT_ONCE = 500_000  # rows of groups that are compared at a time
Hashes = NDArray[np.uint64]


# -- rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """The stored edges of a type, as they will be but for their ids."""

    declared: EdgeType  # as it shall be
    handle: Handle
    sources: Mapping[str, ColumnSource]  # by property id

    def batches(self, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield some desired columns of all rows."""
        schema = pa.schema([self.declared.stored_schema.field(name) for name in columns])
        sources = {p.column: self.sources[p.id] for p in self.declared.properties}
        fixed = {name: ColumnSource(name) for name in (ID, *ENDPOINTS)}
        chosen = {name: (sources | fixed)[name] for name in schema.names}
        stored = [source.stored for source in chosen.values() if source.stored is not None]
        for batch in scanner(self.handle, columns=list(dict.fromkeys(stored))).to_batches():
            arrays = [_column(batch, chosen[field.name], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def keys(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the id that the key makes of each row."""
        return ids_where_whole(self.declared, lambda member: batch.column(member.column))


def _column(batch: pa.RecordBatch, source: ColumnSource, kind: pa.DataType) -> pa.Array:
    if source.stored is None:
        return pa.repeat(source.fill if source.fill is not None else pa.scalar(None, kind), batch.num_rows)
    values = batch.column(source.stored).cast(kind)
    return values if source.fill is None else pc.fill_null(values, source.fill)


@dataclass(frozen=True, eq=False)
class RekeyedRows:
    """The edges under their new ids, less some; read anew for each staging."""

    rows: KeyedRows
    gone: pa.Array  # ids, as they were, of those that are left out

    @property
    def schema(self) -> pa.Schema:
        """The columns of the type."""
        return self.rows.declared.stored_schema

    def reader(self) -> pa.RecordBatchReader:
        """Start reading from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        gone = _IdSet(self.gone)
        for batch in self.rows.batches(self.schema.names):
            kept = batch.filter(pc.invert(gone.has(batch.column(ID))))
            yield kept.set_column(0, self.schema.field(ID), self.rows.keys(kept))


class _IdSet:
    """Many ids, looked up a batch at a time: Arrow would make a table of all of them for each batch."""

    def __init__(self, ids: pa.Array) -> None:
        hashes = hashes_of(ids)
        order = np.argsort(hashes)
        self._ids = ids.take(pa.array(order))
        self._hashes = hashes[order]

    def has(self, ids: pa.Array) -> pa.Array:
        """Say of each id whether it is in the set."""
        places, found = _places(self._hashes, hashes_of(ids))
        if not found.any():
            return pa.array(found)
        same = np.zeros(len(ids), dtype=bool)
        equal = pc.equal(ids.filter(pa.array(found)), self._ids.take(pa.array(places[found])))
        same[found] = equal.to_numpy(zero_copy_only=False)
        if (unequal := found & ~same).any():  # of several ids with one hash the first was looked at
            rest = pc.is_in(ids.filter(pa.array(unequal)), value_set=self._ids)
            same[unequal] = rest.to_numpy(zero_copy_only=False)
        return pa.array(same)


def _places(among: Hashes, hashes: Hashes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where in sorted hashes each of some others would be, and whether it is there."""
    if not len(among):
        return np.zeros(len(hashes), np.int64), np.zeros(len(hashes), dtype=bool)
    places = np.minimum(np.searchsorted(among, hashes), len(among) - 1)
    return places, among[places] == hashes


# -- duplicates --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Some edges that share a key, and what they do not agree on."""

    key: str
    count: int
    ids: tuple[str, ...]  # the first ones
    properties: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "key": self.key,
            "count": self.count,
            "ids": list(self.ids),
            "properties": list(self.properties),
        }

    def __str__(self) -> str:
        differ = f", with different {', '.join(self.properties)}" if self.properties else ", all equal"
        shown = ", ".join(map(repr, self.ids[:3])) + (", ..." if self.count > 3 else "")
        return f"{self.key} ({self.count} edges: {shown}{differ})"


def surplus(
    rows: KeyedRows, dedupe: Dedupe | None, last_changed: LastChanged
) -> pa.Array | UnsupportedChange:
    """Return the ids of the edges that go, one of each group being kept; or the groups that stay several."""
    refused: list[Duplicates] = []
    total = 0
    gone: list[pa.Array] = [pa.array([], pa.string())]
    for groups in _shares(rows):
        several = groups.several(dedupe)
        total += len(several)
        first = [groups.duplicates(number) for number in several[:GROUPS_SHOWN]]
        refused = sorted([*refused, *first], key=lambda group: group.key)[:GROUPS_SHOWN]
        if not total:
            order = last_changed(rows.declared, groups.ids) if dedupe == "latest" else {}
            gone.append(groups.surplus(order))
    return _refusal(rows.declared, refused, total, dedupe) if total else pa.concat_arrays(gone)


def _refusal(
    declared: EdgeType, groups: Sequence[Duplicates], total: int, dedupe: Dedupe | None
) -> UnsupportedChange:
    count = "1 group of edges shares" if total == 1 else f"{total} groups of edges share"
    members = ", ".join(member.name for member in declared.key_members)
    shown = "; ".join(map(str, groups[:3])) + ("; ..." if total > 3 else "")
    ways = "'equal' makes equal edges one, " if dedupe is None else ""
    return UnsupportedChange(
        entity=f"edge:{declared.name}",
        reason=f"{count} a key ({members}): {shown}. Use dedupe: {ways}'latest' keeps what changed last",
        code=steps.EDGES_SHARE_KEY.code,
        details={"duplicates": [group.to_json() for group in groups], "total": total},
    )


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows that share a key with others: by key, then by id."""

    declared: EdgeType
    keys: pa.Array
    rows: pa.Table
    bounds: tuple[int, ...]  # where each group begins, and where the last one ends

    @classmethod
    def of(cls, declared: EdgeType, keys: pa.Array, rows: pa.Table) -> _Groups:
        order = pc.sort_indices(
            pa.table({"key": keys, ID: rows[ID]}), [("key", "ascending"), (ID, "ascending")]
        )
        keys, rows = keys.take(order), rows.take(order).combine_chunks()
        counts = pc.value_counts(keys)  # in the order in which keys come up
        sizes = np.asarray(counts.field("counts"))
        shared = np.repeat(sizes > 1, sizes)  # texts with one hash need not be equal
        bounds = np.concatenate([[0], np.cumsum(sizes[sizes > 1])])
        return cls(declared, keys.filter(pa.array(shared)), rows.filter(pa.array(shared)), tuple(bounds))

    @property
    def ids(self) -> pa.Array:
        """The ids of all rows."""
        return self.rows[ID].combine_chunks()

    def several(self, dedupe: Dedupe | None) -> list[int]:
        """Return the numbers of the groups that are not made one."""
        if dedupe == "latest":
            return []
        every = range(len(self.bounds) - 1)
        return [number for number in every if dedupe is None or self._properties(number)]

    def duplicates(self, number: int) -> Duplicates:
        """Return a group as it is reported."""
        begin, end = self.bounds[number : number + 2]
        ids = self.ids.slice(begin, min(end - begin, IDS_SHOWN)).to_pylist()
        return Duplicates(self.keys[begin].as_py(), int(end - begin), tuple(ids), self._properties(number))

    def surplus(self, order: Mapping[str, int]) -> pa.Array:
        """Return the ids of all rows but one of each group: that which comes last by order, then by id."""
        ids = self.ids.to_pylist()
        gone: list[str] = []
        for begin, end in pairwise(self.bounds):
            group = sorted(ids[begin:end], key=lambda row_id: (order.get(row_id, -1), row_id))
            gone += group[:-1]
        return pa.array(gone, pa.string())

    def _properties(self, number: int) -> tuple[str, ...]:
        """Return the names of the properties that the rows of a group do not agree on."""
        return tuple(name for name, groups in self._differing.items() if groups[number])

    @cached_property
    def _differing(self) -> dict[str, NDArray[np.bool_]]:
        """By property: in which groups a row has another value than the first."""
        begins = np.asarray(self.bounds[:-1])
        first = pa.array(np.repeat(begins, np.diff(self.bounds)))
        differing = {}
        for member in self.declared.properties if len(begins) else ():
            values = self.rows[member.column].combine_chunks()
            differing[member.name] = np.logical_or.reduceat(differs(values, values.take(first)), begins)
        return differing


def _shares(rows: KeyedRows) -> Iterator[_Groups]:
    """Yield the rows that share a key, groups whole, so many at a time as fit into memory."""
    declared = rows.declared
    parts = [
        hashes
        for batch in rows.batches([member.column for member in declared.key_members])
        for hashes in [hashes_of(rows.keys(batch).drop_null())]
    ]
    every: Hashes = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
    twice = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(twice):
        return
    number = int(_places(twice, every)[1].sum()) // ROWS_AT_ONCE + 1
    del every
    for share in range(number):
        sought = twice[twice % np.uint64(number) == share]
        if len(sought):
            yield _gathered(rows, sought)


def _gathered(rows: KeyedRows, sought: Hashes) -> _Groups:
    """Return the rows whose keys have some hashes."""
    keys: list[pa.Array] = []
    found: list[pa.RecordBatch] = []
    for batch in rows.batches(rows.declared.stored_schema.names):
        made = rows.keys(batch)
        whole = batch.filter(made.is_valid())
        made = made.drop_null()
        chosen = pa.array(_places(sought, hashes_of(made))[1])
        keys.append(made.filter(chosen))
        found.append(whole.filter(chosen))
    return _Groups.of(rows.declared, pa.concat_arrays(keys), pa.Table.from_batches(found))
