"""Store: one graph's storage, opened at an address.

Puts the modules of this layer together and holds what is open: the Lance session, table handles, chains.
`create` makes a graph in one atomic step (its manifest, last); `open` reads and writes nothing. What comes
from it are snapshots, branches and schema objects; `publish` is the only way to change anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from omnigraph.base.errors import (
    AlreadyInitialized,
    CommitNotFound,
    HistoryReclaimed,
    IntegrityError,
    InvalidRequest,
    StorageError,
    StoreUnsupported,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import Clock, SystemClock, new_id
from omnigraph.storage import diagnose
from omnigraph.storage.checksums import Checksums, FirstReads, Verification, Verified, verify_setting
from omnigraph.storage.cleanup import Cleaned, Cleaner, CleanupListener
from omnigraph.storage.cost import measured
from omnigraph.storage.derived.adjacency import Bases
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.derived.rows import RowFinder
from omnigraph.storage.durability import Durability, Step, Syncer
from omnigraph.storage.history import History
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import (
    AlreadyThere,
    Chain,
    CommitInDoubt,
    ControlRetry,
    HeadMoved,
    KeptStates,
    MetadataDataset,
    chain_path,
    check_kept,
    main_line,
)
from omnigraph.storage.manifest.records import (
    MAIN,
    CommitKind,
    CommitRecord,
    ManifestState,
    Pin,
    Sweep,
    TableChange,
    control,
)
from omnigraph.storage.manifest.refs import REFS, Refs, RefsState
from omnigraph.storage.manifest.tags import Tags
from omnigraph.storage.manifest.upgrade import Progress, Upgrader, UpgradeReport
from omnigraph.storage.opener import Handle, Opener, OpenFailed
from omnigraph.storage.publish import Intent, Publisher, RetryPolicy
from omnigraph.storage.reclaim import Reclaimed, Reclaimer
from omnigraph.storage.retention import Retainer, Retention
from omnigraph.storage.schema_objects import SchemaObjects
from omnigraph.storage.staging import Staging
from omnigraph.storage.sweep import Announcer, Sweeper
from omnigraph.storage.tables.differences import TailCache
from omnigraph.storage.tables.files import check_schema, create_table
from omnigraph.storage.tables.layout import Layouts
from omnigraph.storage.tables.reads import TableReads
from omnigraph.storage.transaction import (
    NewTable,
    PinnedSnapshot,
    PublishPlan,
    PublishReceipt,
    Write,
    WriteTxn,
)

THREADS = 8
T = TypeVar("T")


class _Threads(ThreadPoolExecutor):
    """Threads of a store; work that comes after `close` is told so."""

    def __init__(self, opener: Opener, name: str) -> None:
        super().__init__(THREADS, thread_name_prefix=f"omnigraph-{name}")
        self._opener = opener

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run some work, unless the store was closed."""
        try:
            return super().submit(work, *args, **kwargs)
        except RuntimeError:
            self._opener.check_open()
            raise


class GraphStore:
    """One open graph. Thread-safe; use it as a context manager or `close` it."""

    def __init__(
        self,
        location: Location,
        *,
        durability: Durability = "sync",
        clock: Clock | None = None,
        retry: RetryPolicy | None = None,
        verify: str | None = None,
    ) -> None:
        if durability not in ("sync", "os"):
            raise InvalidRequest(f"unknown durability {durability!r}", remedy="Use 'sync' or 'os'")
        self.location = location
        self.clock = clock or SystemClock()
        self.syncer = Syncer(enabled=location.is_local and durability == "sync")
        self.checksums = Checksums(location)
        self._confirm_after_s = (retry or RetryPolicy()).confirm_after_s
        first_reads = FirstReads(self.checksums) if verify_setting(verify) == "first-read" else None
        self.opener = Opener(location, first_reads)
        self.schemas = SchemaObjects(location, self.syncer)
        self._refs = Refs(self._dataset(REFS))
        kept = KeptStates(location, self.syncer)
        self.branches = Branches(
            self._refs, lambda i: Chain(i, self._dataset(chain_path(i)), kept), self.clock
        )
        self.tags = Tags(self._refs, self.branches, self.clock)
        self._tables, self._files = _Threads(self.opener, "table"), _Threads(self.opener, "file")
        tail, layouts = TailCache(), Layouts()
        derived = DerivedFiles(location)
        self.finder = RowFinder(derived, layouts, self.clock)
        self._staging = Staging(
            location,
            self.opener,
            self.schemas,
            self.syncer,
            self._tables,
            self._files,
            tail,
            layouts,
            self.checksums,
            self.finder,
        )
        self.reads = TableReads(self.opener, layouts, tail, self.finder, Bases(derived))
        self.history = History(self.branches, self._files)
        self.readability = diagnose.Readability(location, self.opener, self.branches)
        self.publisher = Publisher(
            self.branches, self.reads, self._staging, self.readability, self.clock, retry
        )
        announcer = Announcer(self.branches, self._refs, self._announce, self.clock)
        sweeper = Sweeper(location, self.opener, self._files)
        self._reclaimer = Reclaimer(location, self.branches, announcer, sweeper, self.clock)
        self._cleaner = Cleaner(
            location,
            self.branches,
            self._refs,
            Retainer(self.branches, self.history, sweeper.is_whole),
            announcer,
            sweeper,
            self.checksums,
            self.readability.being_read,
            self._files,
            self.clock,
            self._confirm_after_s,
        )

    # -- making and opening ------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        address: str | os.PathLike[str],
        *,
        schema: bytes,
        tables: Mapping[str, NewTable],
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "sync",
        clock: Clock | None = None,
        retry: RetryPolicy | None = None,
        force: bool = False,
        actor: str | None = None,
    ) -> GraphStore:
        """Make a new graph. Nothing counts until the manifest exists, and that is written last."""
        store = cls(Location.parse(address, storage_options), durability=durability, clock=clock, retry=retry)
        for table_id, new in tables.items():
            check_schema(table_id, new.schema)
        pins = {i: Pin(i, new.name, new.kind, version=1, rows=0, content="") for i, new in tables.items()}
        with measured():
            store.found(
                schema, pins, lambda: store._create_tables(tables), force=force, actor=actor, owned=True
            )
        return store

    @classmethod
    def open(
        cls,
        address: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "sync",
        clock: Clock | None = None,
        retry: RetryPolicy | None = None,
        verify: str | None = None,
    ) -> GraphStore:
        """Open a graph: reads the head of main (2 requests), writes nothing."""
        location = Location.parse(address, storage_options)
        store = cls(location, durability=durability, clock=clock, retry=retry, verify=verify)
        with measured():
            try:
                store._chain(MAIN).latest()
            except StorageError as error:
                raise diagnose.why_not_open(store.location, error) from error
        return store

    def found(
        self,
        schema: bytes,
        pins: Mapping[str, Pin],
        make_tables: Callable[[], None],
        *,
        force: bool,
        actor: str | None = None,
        message: str | None = None,
        owned: bool = False,
    ) -> ManifestState:
        """Make this store's graph: its registry, its tables as they are pinned, and last its first commit.

        Tables that are `owned` have ids that were minted for this call: what lies there under them was left
        by an earlier try of it.
        """
        leftovers = diagnose.check_free(self.location, force=force)
        self.check_create_if_absent()
        left = diagnose.left_tables(self.location) if leftovers else []
        try:
            self._take_registry(leftovers)
            if owned:
                diagnose.clear(self.location, [key for key in left if key.split("/")[1] in pins])
            make_tables()
            genesis = self._genesis(self.schemas.put(schema), pins, actor, message)
            self._publish_genesis(genesis, owned=owned)
        except (AlreadyThere, HeadMoved) as error:
            raise AlreadyInitialized(
                f"another process is making, or has made, a graph at {self.location.uri}",
                remedy="Open it, or choose another address",
                uri=self.location.uri,
            ) from error
        # The rest only now: until this manifest exists it may be what another init is making.
        diagnose.clear(self.location, [key for key in left if key.split("/")[1] not in pins])
        return self._chain(MAIN).latest()

    def close(self) -> None:
        """Stop the store's threads. Nothing needs flushing: what was acknowledged is durable."""
        self.opener.close()
        self._tables.shutdown()
        self._files.shutdown()

    def __enter__(self) -> GraphStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fresh(self) -> GraphStore:
        """Return another store of the same graph, which has seen nothing yet; it reads nothing by itself."""
        durability: Durability = "sync" if self.syncer.enabled else "os"
        return GraphStore(self.location, durability=durability, clock=self.clock, verify="off")

    @property
    def threads(self) -> Executor:
        """The threads that requests for files run on. Work there must not wait for other work there."""
        return self._files

    # -- reading -----------------------------------------------------------------------------------

    @property
    def refs(self) -> Refs:
        """The registry of the names of branches and tags."""
        return self._refs

    def snapshot(self, branch: str = MAIN, *, at: str | int | None = None) -> PinnedSnapshot:
        """Capture a branch's head (one probe when warm), or its state at a commit id or manifest version."""
        with measured():
            if isinstance(at, str):
                name, state = self.branches.find_commit(at, first=branch)
                return PinnedSnapshot(name, _readable(state, self._chain(state.line.incarnation)))
            chain, head = self.branches.head(branch)
            if at is None:
                return PinnedSnapshot(branch, head)
            if not 1 <= at <= head.version:
                raise CommitNotFound(
                    f"branch {branch!r} has versions 1 to {head.version}, not {at}", graph_commit_id=str(at)
                )
            if not head.keeps(at):
                raise _reclaimed(at, head.floor)
            return PinnedSnapshot(branch, chain.at(at))

    def registry(self) -> RefsState:
        """Return the names of branches and tags as they are now."""
        return self._refs.latest()

    def table(self, snapshot: PinnedSnapshot, table_id: str) -> Handle:
        """Return a table as a snapshot pins it, or say that its history was reclaimed."""
        pin, state = snapshot.pin(table_id), snapshot.state
        check_kept(self._chain(state.line.incarnation), state, table_id)
        with self.readability.judged(state, tables=(table_id,)):
            return self.opener.table(table_id, pin.version)

    def reading(
        self, *states: ManifestState, tables: Collection[str] | None = None
    ) -> AbstractContextManager[None]:
        """Read tables of states in a block; what a reclaim takes away meanwhile is `history_reclaimed`."""
        return self.readability.judged(*states, tables=tables)

    @property
    def verification(self) -> Verification:
        """Compares stored files with their checksums."""
        return Verification(self.location, self.checksums, self.opener, self._files)

    def verify(self, snapshots: Iterable[PinnedSnapshot] | None, *, record: bool = False) -> Verified:
        """Compare the files that snapshots need with their checksums; None stands for every stored file."""
        states = None if snapshots is None else [snapshot.state for snapshot in snapshots]
        pins = None
        if states is not None:
            pins = [(pin.table_id, pin.version) for state in states for pin in state.pins.values()]
        with measured():
            verified = self.verification.run(pins, record=record)
            if any(damage.stored is None for damage in verified.damaged):
                reasons = (self.readability.reclaimed(state) for state in states or ())
                if reason := next((why for why in reasons if why is not None), None):
                    raise reason  # not missing by damage
            return verified

    # -- writing -----------------------------------------------------------------------------------

    def rehearse(self, branch: str, write: Write, intent: Intent | None = None) -> WriteTxn:
        """Check a write without writing anything; raise what it would raise, or return the base it met."""
        with measured():
            return self.publisher.rehearse(branch, write, intent)

    def staged(self, snapshot: PinnedSnapshot, plan: PublishPlan) -> Mapping[str, Handle]:
        """Stage a plan on a snapshot without publishing it; return the tables as they would be."""
        txn = WriteTxn(snapshot, new_id(), self.reads, self.readability)
        tables = self._staging.stage(txn, plan).tables
        return {table_id: self.reads.handle(table_id, one.version) for table_id, one in tables.items()}

    def publish(self, branch: str, write: Write, intent: Intent | None = None) -> PublishReceipt:
        """Run a write: the only way to change a graph's content."""
        return self.publisher.publish(branch, write, intent)

    def raise_floor(self, branch: str, version: int) -> int:
        """Record that versions below `version` may be reclaimed; it only rises. Returns the floor in force.

        Retention lists what it will delete, calls this, and only then deletes. It is a manifest commit
        of its own, so every writer that may have files on that list loses its swap, sees that retention
        ran since it staged them, and stages again. It is written even if the floor stays where it is.
        """
        return self._announce(branch, Sweep(floor=version)).floor

    def reclaim(self, tables: Iterable[str]) -> tuple[Reclaimed, ...]:
        """Delete everything of these tables that no live branch's head needs, whatever history says."""
        with measured():
            return self._reclaimer.run(tables)

    def cleanup(
        self, retention: Retention, *, dry_run: bool, progress: CleanupListener | None = None
    ) -> Cleaned:
        """Delete what a retention gives up and what nothing names, or say what that would be."""
        with measured():
            return self._cleaner.run(retention, dry_run=dry_run, progress=progress)

    def upgrade(self, *, dry_run: bool = False, progress: Progress | None = None) -> UpgradeReport:
        """Bring a graph of an older format, which need not have been opened, to that of this release."""
        with measured():
            try:
                return Upgrader(self.location.uri, self._dataset, self.clock).run(
                    dry_run=dry_run, progress=progress
                )
            except StorageError as error:
                raise diagnose.why_not_open(self.location, error) from error

    def _announce(self, branch: str, sweep: Sweep, incarnation: str | None = None) -> ManifestState:
        """Announce a sweep on one branch, of versions below a floor or of the history of tables.

        What it says is of one chain: a branch that was made anew under the name is not found.
        """
        with measured():
            retry = ControlRetry("announcing a sweep", branch, self.clock)
            chain, head = self.branches.writable(branch, incarnation)
            called_at = head.version

            def is_announced(state: ManifestState) -> bool:
                marked = all(state.reclaimed.get(table, 0) > called_at for table in sweep.tables)
                return state.swept > called_at and marked and _says(state, sweep)

            while not is_announced(head):
                if sweep.floor > head.version:
                    raise InvalidRequest(f"the floor cannot pass the head, version {head.version}")
                try:
                    head = chain.commit(*control(head, sweep=sweep), Step.FLOOR)
                except (HeadMoved, CommitInDoubt) as error:
                    chain, head = self.branches.writable(branch, chain.incarnation)
                    if not is_announced(head):
                        retry.lose(error)
            return head

    # -- parts -------------------------------------------------------------------------------------

    def _take_registry(self, leftovers: Collection[str]) -> None:
        """Make the registry, or empty the one that was left.

        The one that was left may belong to an init that is running, and become a graph's at any time. So it
        is read before the look for a manifest, and emptied by compare-and-swap: the names of a graph that
        came to be in between are in a later version, and this init is told.
        """
        if REFS not in leftovers:
            self._refs.create()
            return
        try:
            base = self._refs.left()
        except (OpenFailed, IntegrityError) as error:
            diagnose.check_no_graph(self.location)
            raise diagnose.registry_unreadable(self.location) from error
        diagnose.check_no_graph(self.location)
        self._refs.empty(base)

    def _publish_genesis(self, genesis: ManifestState, *, owned: bool) -> None:
        """Make the manifest; if another init was first, take away the tables that this one made."""
        try:
            self._chain(MAIN).create(genesis, Step.GENESIS)
        except AlreadyThere:
            for table_id in genesis.pins if owned else ():
                diagnose.clear(self.location, diagnose.left_tables(self.location, table_id))
            raise

    def _create_tables(self, tables: Mapping[str, NewTable]) -> None:
        futures = [
            self._tables.submit(
                create_table, table_id, new.schema, self.location, self.syncer, self.checksums.record_written
            )
            for table_id, new in tables.items()
        ]
        wait(futures)  # a straggler must not go on writing after the error was told
        for future in futures:
            future.result()

    def _dataset(self, path: str) -> MetadataDataset:
        return MetadataDataset(
            path,
            location=self.location,
            opener=self.opener,
            syncer=self.syncer,
            clock=self.clock,
            confirm_after_s=self._confirm_after_s,
        )

    def _chain(self, incarnation: str) -> Chain:
        return self.branches.chain(incarnation)

    def check_create_if_absent(self) -> None:
        """Make sure that the store refuses to create an object twice: everything rests on that."""
        key = f"__probe-{new_id()}"
        objects = self.location.objects
        try:
            first, second = objects.create(key, b"1"), objects.create(key, b"2")
        finally:
            objects.delete(key)
        if not first or second:
            raise StoreUnsupported(
                f"the store at {self.location.uri} does not honour create-if-absent",
                remedy="Use a store with conditional writes; without them concurrent writers lose data",
                uri=self.location.uri,
                capability="create-if-absent",
            )

    def probe_conditional_writes(self) -> None:
        """Make sure, by trying, that of several who create one object at once exactly one is told it did."""
        self.check_create_if_absent()
        key = f"__probe-{new_id()}"
        objects = self.location.objects
        try:
            made = list(self._files.map(lambda n: objects.create(key, str(n).encode()), range(THREADS)))
            stored = objects.read(key)
        finally:
            objects.delete(key)
        if made.count(True) != 1 or stored != str(made.index(True)).encode():
            raise StoreUnsupported(
                f"of {THREADS} who created one object at once at {self.location.uri}, "
                f"{made.count(True)} were told that they did",
                remedy="Use a store with conditional writes; without them concurrent writers lose data",
                uri=self.location.uri,
                capability="create-if-absent",
            )

    def _genesis(
        self, schema: str, tables: Mapping[str, Pin], actor: str | None, message: str | None
    ) -> ManifestState:
        commit_id, now = new_id(), self.clock.now_us()
        pins = {i: replace(pin, content=commit_id) for i, pin in tables.items()}
        changes = (
            TableChange(i, pin.name, before=None, after=pin.version, inserted=pin.rows)
            for i, pin in pins.items()
        )
        commit = CommitRecord(
            id=commit_id,
            parent=None,
            merged_parent=None,
            branch=MAIN,
            incarnation=MAIN,
            kind=CommitKind.GENESIS,
            actor=actor,
            message=message,
            authored_at_us=now,
            manifest_version=1,
            schema=schema,
            tables=tuple(sorted(changes, key=lambda change: change.name)),
        )
        return ManifestState(
            version=1,
            line=main_line(now),
            commit=commit,
            pins=FrozenMap(pins),
            heads=(commit_id,),
            recent=((1, commit_id),),
            newest_id=commit_id,
        )


def _says(state: ManifestState, sweep: Sweep) -> bool:
    """Say whether a state that announces a sweep announces all of this one."""
    kept = sweep.kept is None or all(version in state.kept for version in sweep.kept)
    condemned = sweep.condemned is None or set(sweep.condemned) <= set(state.condemned)
    swept_us = state.swept_us
    in_time = swept_us is None or (sweep.before_us is not None and swept_us >= sweep.before_us)
    lineage = sweep.forgotten.isdisjoint(state.seen)
    return state.floor >= sweep.floor and kept and condemned and in_time and lineage


def _readable(state: ManifestState, chain: Chain) -> ManifestState:
    if chain.known is not None and not chain.keeps(state.version):
        raise _reclaimed(state.version, chain.known.floor)
    return state


def _reclaimed(version: int, floor: int) -> HistoryReclaimed:
    return HistoryReclaimed(
        f"version {version} is below the retention floor, {floor}",
        remedy="Choose a newer commit",
        version=version,
        floor=floor,
    )
