"""Examination: what all checks look at, read once: branches, tags, the tables that they pin, stored files.

Everything comes from a store of its own that has seen nothing yet, so nothing that this process remembers
stands in for what is stored. What cannot be read is left out here and noted: the check whose matter it is
reports it, and the others go on with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, HistoryReclaimed
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.doctor.report import DoctorFinding, FindingPlace
from omnigraph.storage.checksums import Checksum
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import MAIN, ManifestState, Pin
from omnigraph.storage.manifest.refs import BranchRef, RefsState, TagRef
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import TABLES, stored_files
from omnigraph.storage.transaction import PinnedSnapshot

TableVersion = tuple[str, int]  # table id, version


@dataclass(frozen=True, eq=False)
class ExaminedBranch:
    """A name and its chain; `head` is None if it cannot be read, and `error` says why."""

    name: str
    chain: Chain
    head: ManifestState | None
    error: Exception | None = None
    ref: BranchRef | None = None

    @property
    def place(self) -> FindingPlace:
        """Where findings about it are."""
        return FindingPlace(branch=self.name, commit=None if self.head is None else self.head.head)


@dataclass(frozen=True, eq=False)
class ExaminedTag:
    """A tag and the state that it names."""

    ref: TagRef
    branch: str
    state: ManifestState | None
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class ExaminedTable:
    """A table at one version, as the first state that pins it has it."""

    snapshot: PinnedSnapshot
    pin: Pin

    @property
    def key(self) -> TableVersion:
        """The very version."""
        return self.pin.table_id, self.pin.version

    def place(self, file: str | None = None, row: str | None = None) -> FindingPlace:
        """Where findings about it are; a file is given by its path inside the table."""
        path = None if file is None else f"{TABLES}/{self.pin.table_id}/{file}"
        return FindingPlace(self.snapshot.branch, self.snapshot.commit_id, self.pin.name, path, row)


@dataclass(eq=False)
class Walked:
    """What a walk over the versions of a chain saw (lineage.py)."""

    every: bool = True  # no version was left out
    pins: dict[TableVersion, FindingPlace] = field(default_factory=dict)  # with the newest state that has it
    schemas: dict[str, FindingPlace] = field(default_factory=dict)
    breaks: list[DoctorFinding] = field(default_factory=list)


@dataclass(eq=False)
class Examination:
    """One look at a graph. With `only`, at one branch of it."""

    store: GraphStore
    deep: bool = False
    only: str | None = None
    broken: dict[TableVersion, str] = field(default_factory=dict)  # tables whose rows are not worth reading
    unopened: set[TableVersion] = field(default_factory=set)  # those of them that do not even open
    broken_indexes: set[tuple[str, str]] = field(default_factory=set)  # table id, segment
    broken_derived: set[tuple[str, str]] = field(default_factory=set)  # table id, file
    seen_derived: set[tuple[str, str]] = field(default_factory=set)  # checked for damage
    compared: set[tuple[str, str]] = field(default_factory=set)  # worked out anew
    looked_up: set[tuple[str, tuple[str, ...], str]] = field(default_factory=set)  # column, segments, file
    reported: set[str] = field(default_factory=set)  # files that a finding names already
    seen_pins: set[TableVersion] = field(default_factory=set)  # of older versions
    behind: set[str] = field(default_factory=set)  # branches with indexes that do not cover all rows
    underived: set[str] = field(default_factory=set)  # branches with data files that lack derived ones
    configured: dict[str, frozenset[str]] = field(default_factory=dict)  # path of a dataset -> keys to strip
    walked: dict[str, Walked] = field(default_factory=dict)  # by chain (lineage.py)
    limits: list[str] = field(default_factory=list)  # what the check that runs did not look at, and why

    @cached_property
    def catalogs(self) -> Catalogs:
        """The schemas, decoded."""
        return Catalogs(self.store.schemas)

    # -- names -------------------------------------------------------------------------------------

    @cached_property
    def registry(self) -> RefsState | Exception:
        """The names of branches and tags, or why they cannot be read."""
        try:
            return self.store.refs.latest()
        except Exception as error:  # noqa: BLE001 - reported by the check of names
            return error

    @property
    def refs(self) -> RefsState:
        """The names of branches and tags, as far as they can be read."""
        return RefsState(0, ()) if isinstance(self.registry, Exception) else self.registry

    @cached_property
    def branches(self) -> tuple[ExaminedBranch, ...]:
        """Main and every registered branch that was not deleted."""
        named: list[tuple[str, str, BranchRef | None]] = [(MAIN, MAIN, None)]
        named += [(ref.name, ref.incarnation, ref) for ref in self.refs.branches]
        wanted = (one for one in named if self.only in (None, one[0]))
        branches = (self._branch(*one) for one in wanted)
        return tuple(branch for branch in branches if branch.head is None or branch.head.tombstone is None)

    def _branch(self, name: str, incarnation: str, ref: BranchRef | None) -> ExaminedBranch:
        chain = self.store.branches.chain(incarnation)
        try:
            return ExaminedBranch(name, chain, chain.latest(), None, ref)
        except Exception as error:  # noqa: BLE001 - reported by the check of heads
            return ExaminedBranch(name, chain, None, error, ref)

    @cached_property
    def tags(self) -> tuple[ExaminedTag, ...]:
        """Every tag of the branches looked at."""
        names = {branch.chain.incarnation: branch.name for branch in self.branches}
        return tuple(
            self._tag(ref, names[ref.incarnation]) for ref in self.refs.tags if ref.incarnation in names
        )

    def _tag(self, ref: TagRef, branch: str) -> ExaminedTag:
        try:
            state = self.store.history.published(ref.incarnation, ref.version, ref.commit_id)
        except Exception as error:  # noqa: BLE001 - reported by the check of tags
            return ExaminedTag(ref, branch, None, error)
        return ExaminedTag(ref, branch, state)

    # -- states and tables -------------------------------------------------------------------------

    @property
    def heads(self) -> tuple[ExaminedBranch, ...]:
        """The branches whose newest state can be read."""
        return tuple(branch for branch in self.branches if branch.head is not None)

    @cached_property
    def states(self) -> tuple[PinnedSnapshot, ...]:
        """The states that must be whole: heads, then tags; each once."""
        states: dict[tuple[str, int], PinnedSnapshot] = {}
        for branch in self.heads:
            assert branch.head is not None
            states.setdefault(
                (branch.chain.incarnation, branch.head.version), PinnedSnapshot(branch.name, branch.head)
            )
        for tag in self.tags:
            if tag.state is not None:
                states.setdefault(
                    (tag.ref.incarnation, tag.state.version), PinnedSnapshot(tag.branch, tag.state)
                )
        return tuple(states.values())

    @cached_property
    def tables(self) -> tuple[ExaminedTable, ...]:
        """Every version of a table that those states pin, once."""
        tables: dict[TableVersion, ExaminedTable] = {}
        for snapshot in self.states:
            for pin in snapshot.state.pins.values():
                tables.setdefault((pin.table_id, pin.version), ExaminedTable(snapshot, pin))
        return tuple(
            sorted(tables.values(), key=lambda table: table.pin.table_id)
        )  # files are listed by table

    def heads_of(self, table: ExaminedTable) -> tuple[str, ...]:
        """Return the branches whose newest state pins a table at this very version."""
        table_id, version = table.key
        heads = ((branch.name, branch.head) for branch in self.heads)
        pins = ((name, None if head is None else head.pins.get(table_id)) for name, head in heads)
        return tuple(name for name, pin in pins if pin is not None and pin.version == version)

    def readable(self) -> Iterator[ExaminedTable]:
        """Yield the tables whose files are all right, as far as earlier checks have seen."""
        for table in self.tables:
            if table.key not in self.broken:
                yield table

    def declared(self) -> Iterator[tuple[ExaminedTable, TableType]]:
        """Yield the tables that can be read with their type; a table is judged by each schema once."""
        seen: set[tuple[str, int, str]] = set()
        for snapshot in self.states:
            catalog = self.catalog(snapshot)
            for declared in () if catalog is None else catalog.tables:
                pin = snapshot.state.pins.get(declared.id)
                if pin is None or (pin.table_id, pin.version) in self.broken:
                    continue
                key = (pin.table_id, pin.version, snapshot.schema)
                if key not in seen:
                    seen.add(key)
                    yield ExaminedTable(snapshot, pin), declared

    def edges(self) -> Iterator[tuple[ExaminedTable, EdgeType]]:
        """Yield the edge tables that can be read, once with each version of the nodes at their ends."""
        seen: set[tuple[object, ...]] = set()
        for snapshot in self.states:
            catalog = self.catalog(snapshot)
            for edge in () if catalog is None else catalog.edges:
                pins = [snapshot.state.pins.get(table) for table in (edge.id, edge.source, edge.target)]
                key = tuple(None if pin is None else pin.version for pin in pins)
                if pins[0] is not None and pins[0].rows and (edge.id, *key) not in seen:
                    seen.add((edge.id, *key))
                    if (pins[0].table_id, pins[0].version) not in self.broken:
                        yield ExaminedTable(snapshot, pins[0]), edge

    def catalog(self, snapshot: PinnedSnapshot) -> Catalog | None:
        """Return the schema of a state; None if it cannot be read, which the check of schemas reports."""
        try:
            return self.catalogs.get(snapshot.schema)
        except Exception:  # noqa: BLE001 - reported by the check of schemas
            return None

    def handle(self, table: ExaminedTable) -> Handle:
        """Open a table."""
        return self.store.opener.table(*table.key)

    def reclaimed(self) -> GraphError | None:
        """Say why a state is no longer what it was when it was read, if one is not."""
        for snapshot in self.states:
            reason = self.store.readability.reclaimed(snapshot.state)
            if reason is not None:
                return reason
        return next((swept for swept in map(_swept, self.heads) if swept is not None), None)

    # -- files -------------------------------------------------------------------------------------

    def files(self, table_id: str) -> dict[str, int]:
        """Return every stored file of a table with its size; of one table at a time."""
        if self._listed[0] != table_id:
            self._listed = table_id, stored_files(self.store.location, table_id)
        return self._listed[1]

    def recorded(self, table_id: str) -> dict[str, Checksum]:
        """Return what is recorded of the files of a table; of one table at a time."""
        if self._recorded[0] != table_id:
            self._recorded = table_id, self.store.checksums.recorded(table_id)
        return self._recorded[1]

    _listed: tuple[str, dict[str, int]] = ("", {})
    _recorded: tuple[str, dict[str, Checksum]] = ("", {})


def _swept(branch: ExaminedBranch) -> GraphError | None:
    """Say that older versions of a branch may be gone that were noted before, if that is so."""
    head, newest = branch.head, branch.chain.latest()
    if head is None or newest.swept == head.swept:
        return None
    return HistoryReclaimed(f"files of branch {branch.name!r} were deleted meanwhile", version=newest.swept)
