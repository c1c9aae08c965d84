"""Draft: what executors have written, as a change in one of the three modes for each type.

    outcomes -> **draft** -> judged on Spark, staged, published

Room    pipeline.bulk. The counterpart of engine.load.draft for rows that are not in this process.
Rule    of several rows with one id the last counts, in mode merge and where ids are not derived from keys;
        "last" is by the order of the input, which the order of the fragments keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from omnigraph.base.errors import ReadSetConflict
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import NodeType, TableType
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.load.block import Source
from omnigraph.engine.load.draft import Mode
from omnigraph.engine.receipt import TypeCount
from omnigraph.engine.validate.findings import SHOWN, Findings
from omnigraph.engine.write import Draft
from omnigraph.pipeline.bulk.change import BulkChange
from omnigraph.pipeline.bulk.piece import Outcome
from omnigraph.pipeline.bulk.places import Places, Stretch
from omnigraph.pipeline.bulk.remove import BulkRemover, Way, choose
from omnigraph.pipeline.bulk.repeated import without_repeated
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.written import Written, alone, fragments_of
from omnigraph.storage.transaction import WriteTxn


@dataclass(frozen=True)
class Modes:
    """The mode of each type, and the types that are emptied whether they are given or not."""

    every: Mode | None
    by_type: Mapping[str, Mode] = FrozenMap()
    replaced: tuple[str, ...] = ()

    def of(self, type_id: str) -> Mode:
        """Return the mode of a type; one that was not named is added to."""
        return self.by_type.get(type_id) or self.every or Mode.APPEND


@dataclass(frozen=True)
class TypeRead:
    """What an input has of one type."""

    declared: TableType
    written: Written
    minted: bool
    stretches: tuple[Stretch, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.written.num_rows


@dataclass(frozen=True)
class Read:
    """What executors made of an input, under one schema."""

    catalog: Catalog
    snapshot: PinnedSnapshot
    types: Mapping[str, TypeRead]
    outcomes: tuple[Outcome, ...]
    digest: str | None = None

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        snapshot: PinnedSnapshot,
        found: Sequence[tuple[Source | None, Outcome]],
        digest: str | None,
    ) -> Read:
        """Put outcomes together, in the order of the input."""
        names = dict.fromkeys(type_id for _, outcome in found for type_id in outcome.types)
        types = {}
        for type_id in names:
            mine = [(s, o.types[type_id]) for s, o in found if type_id in o.types]
            fragments = fragments_of(text for _, rows in mine for text in rows.fragments)
            types[type_id] = TypeRead(
                catalog.table(type_id),
                Written(fragments, snapshot.state.version),
                all(rows.minted for _, rows in mine),
                tuple(Stretch(source, rows.rows, rows.runs) for source, rows in mine),
            )
        return cls(catalog, snapshot, types, tuple(outcome for _, outcome in found), digest)

    @property
    def rows(self) -> int:
        """All rows of all types."""
        return sum(one.rows for one in self.types.values())

    def rows_of(self, kind: str) -> int:
        """Return the rows of all node types, or of all edge types."""
        return sum(one.rows for one in self.types.values() if one.declared.kind.value == kind)

    def problems(self) -> Findings:
        """Return what was wrong with single rows, in the order of the input."""
        told = [violation for outcome in self.outcomes for violation in outcome.problems]
        first = list(dict.fromkeys(told))  # each piece of a file says what is wrong with its columns
        total = sum(outcome.total_problems for outcome in self.outcomes) - (len(told) - len(first))
        return Findings(tuple(first[:SHOWN]), total)


class BulkDraft:
    """A bulk load as a drafter; the same files on every base."""

    def __init__(
        self, spark: SparkSession, store: GraphStore, read: Read, modes: Modes, upsert: Way | None
    ) -> None:
        self._spark = spark
        self._store = store
        self._read = read
        self._modes = modes
        self._upsert = upsert
        self.change = ChangeSet.of(read.catalog, self._changes())
        self.ways = {
            one.declared.name: one.remover.way
            for one in self.change.types.values()
            if isinstance(one, BulkChange) and isinstance(one.remover, BulkRemover) and one.merges
        }

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Return the change; it does not depend on the base, except that the schema must be the same."""
        if catalog.digest != self._read.catalog.digest:
            raise ReadSetConflict("schema", expected=self._read.catalog.digest, actual=catalog.digest)
        decided = frozenset(t for t, one in self.change.types.items() if one.replaces)
        nodes, edges = self._read.rows_of("node"), self._read.rows_of("edge")
        return Draft(self.change, decided, nodes, edges, values_judged=True)

    def locate(self, found: Findings, change: ChangeSet) -> Findings:
        """Say of each violation where in the input it is."""
        places = Places(self._store, self._read.catalog, self._stretches())
        return replace(found, violations=tuple(map(places.located, found.violations)))

    def foreseen(self) -> tuple[TypeCount, ...]:
        """Return what the load would do; entities that exist are not told from new ones."""
        counts = []
        for one in self.change.types.values():
            gone = self._read.snapshot.pin(one.table_id).rows if one.replaces else 0
            given = self._read.types[one.declared.id].rows if one.declared.id in self._read.types else 0
            counts.append(TypeCount(one.declared.name, one.declared.kind.value, one.count, 0, gone, given))
        return tuple(counts)

    def _stretches(self) -> dict[str, tuple[int, tuple[Stretch, ...]]]:
        return {
            type_id: (one.given_version, self._read.types[type_id].stretches)
            for type_id, one in self.change.types.items()
            if isinstance(one, BulkChange) and type_id in self._read.types
        }

    def _changes(self) -> Iterator[TypeChange]:
        for one in self._read.types.values():
            yield self._one(one, self._modes.of(one.declared.id))
        for type_id in self._emptied():
            declared = self._read.catalog.table(type_id)
            yield TypeChange(declared, declared.stored_schema.empty_table(), replaces=True)

    def _emptied(self) -> Iterable[str]:
        return (type_id for type_id in self._modes.replaced if type_id not in self._read.types)

    def _one(self, read: TypeRead, mode: Mode) -> BulkChange:
        declared, table = read.declared, read.declared.table_id
        base = self._store.table(self._read.snapshot, table)
        given = alone(base, read.written)
        self._store.opener.adopt(table, given)
        version, written = given.version, read.written
        if mode is Mode.MERGE and not read.minted and not _keyed(declared):
            settled = without_repeated(self._spark, self._store, table, given, read.written)
            if settled is not read.written:
                written, last = settled, alone(base, settled)
                self._store.opener.adopt(table, last)
                version = last.version
        way = self._upsert or choose(written.num_rows)
        location = self._store.location
        return BulkChange(
            declared,
            declared.stored_schema.empty_table(),
            replaces=mode is Mode.OVERWRITE,
            strict=mode is Mode.APPEND,
            minted=read.minted,
            written=written,
            version=version,
            given_version=given.version,
            remover=BulkRemover(self._spark, location, self._store, table, version, way),
        )


def _keyed(declared: TableType) -> bool:
    return isinstance(declared, NodeType) and bool(declared.key)
