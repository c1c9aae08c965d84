"""Assembly: a load from its request to its receipt, whoever reads the input.

    request -> modes -> input is read -> draft -> judged, staged, published -> receipt

A load in this process, a load on Spark and Spark's own writers differ in how rows are read and where they
lie meanwhile. What the modes mean, what the publisher is told, how a repetition under an idempotency key is
recognised and what the receipt says is decided here, for all three.

Modes   append     every id is new
        merge      an id that exists is replaced, whole; of several rows with one id the last counts
        overwrite  the types that appear (or are named) get exactly these rows
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import Enum
from typing import Any, Literal, Protocol

import pyarrow as pa

from omnigraph.base.cancellation import current
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import (
    BranchExists,
    BranchNotFound,
    GraphError,
    InvalidRequest,
    StaleVersion,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import NodeType, TableType
from omnigraph.engine.change import Catalogs, ChangeSet, TypeChange, last_of_each
from omnigraph.engine.derive import FAILURES, complete_adjacency
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.validate.relation import Findings
from omnigraph.engine.write import (
    KEY,
    ChangeWrite,
    Draft,
    ExecutorFor,
    Loaded,
    Receipt,
    TypeCount,
    in_order,
    landed,
    replayed,
)
from omnigraph.storage.claims import Claim, Claims, spelling
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind, CommitRecord
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot, PublishReceipt, WriteTxn

LoadMode = Literal["append", "merge", "overwrite"]
Columns = Mapping[str, Mapping[str, str]]  # type name -> column of the input -> property
REFUSED = "the load was refused"


# -- progress ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadProgress:
    """How far a load is; on Spark, by tasks that are done and known so far, which grow as it plans."""

    stage: Literal["reading", "checking", "writing", "deriving", "done"]
    rows: int
    bytes_read: int = 0
    bytes_total: int | None = None
    tasks_done: int = 0
    tasks: int = 0


Report = Callable[[LoadProgress], None]


def silent(progress: LoadProgress) -> None:
    """Report to nobody."""


# -- request -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """One call of `load`."""

    data: Any
    mode: LoadMode | Mapping[str, LoadMode]  # one for all types, or by type name
    branch: str = "main"
    from_branch: str | None = None
    type: str | None = None
    format: str | None = None
    columns: Mapping[str, Mapping[str, str]] = FrozenMap()
    replace_types: tuple[str, ...] = ()
    idempotency_key: str | None = None
    sets_aside: bool = False  # rows that break a rule are left out, and the others loaded
    dry_run: bool = False
    before_fork: Callable[[], object] | None = None  # asked whether a missing branch may be made

    def __post_init__(self) -> None:
        """Refuse modes that no schema could make right, before a branch is created for the load."""
        every = [self.mode] if isinstance(self.mode, str) else self.mode.values()
        replaces = [WriteMode.read(mode).replaces for mode in every]
        if self.replace_types and isinstance(self.mode, str) and not all(replaces):
            raise InvalidRequest(
                "replace_types empties types, which only mode overwrite does", remedy="Use mode='overwrite'"
            )

    def claim(self, fingerprint: Fingerprint, base: PinnedSnapshot, actor: str | None) -> Claim:
        """Return what the key stands for: the rows and arguments as they were given, whatever the schema."""
        assert self.idempotency_key is not None
        columns = {name: dict(mapped) for name, mapped in self.columns.items()}
        request = load_request(
            self.mode, self.replace_types, self.format, columns, fingerprint, sets_aside=self.sets_aside
        )
        return Claim(self.idempotency_key, base, actor, request)


def load_request(
    mode: LoadMode | Mapping[str, LoadMode],
    replace_types: Iterable[str],
    format: str | None,
    columns: Columns,
    fingerprint: Fingerprint,
    *,
    sets_aside: bool = False,
) -> bytes:
    """Return what tells a load from another, whichever engine carries it out."""
    request = ["load", mode, sorted(replace_types), format, columns, fingerprint.digest()]
    return spelling([*request, "reject"] if sets_aside else request).encode()


def claimed(claims: Claims, claim: Claim, intent: Intent) -> Intent:
    """Return the intent under the commit id of an idempotency key, which the commit remembers."""
    taken, labels = claims.take(claim), FrozenMap({**intent.labels, KEY: claim.key})
    return replace(intent, commit_id=taken.alone, chain=taken.chain, labels=labels)


# -- modes -------------------------------------------------------------------------------------------


class WriteMode(Enum):
    """What happens to an id that exists."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"

    @classmethod
    def read(cls, text: str) -> WriteMode:
        """Return the mode of a name."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidRequest(
                f"there is no load mode {text!r}", remedy="Use 'append', 'merge' or 'overwrite'"
            ) from None

    @property
    def strict(self) -> bool:
        """Every id must be new."""
        return self is WriteMode.APPEND

    @property
    def replaces(self) -> bool:
        """The type gets exactly the rows of the input."""
        return self is WriteMode.OVERWRITE

    def keeps_last(self, declared: TableType, *, minted: bool) -> bool:
        """Say whether of several rows with one id the last counts; rows that share a key are refused."""
        return self is WriteMode.MERGE and not minted and not declared.key


@dataclass(frozen=True)
class Modes:
    """The mode of each type, and the types that are emptied whether the input has rows of them or not."""

    every: WriteMode | None
    by_type: Mapping[str, WriteMode] = FrozenMap()
    replaced: tuple[str, ...] = ()

    @classmethod
    def read(cls, request: LoadRequest, catalog: Catalog) -> Modes:
        """Return the modes that a request names, by type id."""
        if isinstance(request.mode, Mapping):
            by_type = {catalog.named(name).id: WriteMode.read(mode) for name, mode in request.mode.items()}
            modes = cls(None, by_type)
        else:
            modes = cls(WriteMode.read(request.mode))
        # A type that is named has exactly the rows given for it, also when there are none.
        named = request.data if isinstance(request.data, Mapping) and modes.replaces else ()
        type_ids = (catalog.named(name).id for name in named)
        emptied = [type_id for type_id in type_ids if modes.of(type_id).replaces]
        replaced = [*(catalog.named(name).id for name in request.replace_types), *emptied]
        return replace(modes, replaced=tuple(dict.fromkeys(replaced)))

    def of(self, type_id: str) -> WriteMode:
        """Return the mode of a type; one that was not named is added to."""
        return self.by_type.get(type_id) or self.every or WriteMode.APPEND

    @property
    def replaces(self) -> bool:
        """Say whether rows of any type are replaced as a whole."""
        return WriteMode.OVERWRITE in (self.every, *self.by_type.values())

    def emptied(self, catalog: Catalog, type_ids: Iterable[str]) -> Iterator[TypeChange]:
        """Yield the changes of types that lose all rows, as the input has none of them."""
        for type_id in self.replaced:
            if type_id not in type_ids:
                declared = catalog.table(type_id)
                yield TypeChange(declared, declared.stored_schema.empty_table(), replaces=True)


def change_of_rows(declared: TableType, given: pa.Table, mode: WriteMode, *, minted: bool) -> TypeChange:
    """Return what rows in memory do to their type; `given` may have columns beside the stored ones."""
    rows = given.select(declared.stored_schema.names).cast(declared.stored_schema)
    return TypeChange(
        declared,
        last_of_each(rows) if mode.keeps_last(declared, minted=minted) else rows,
        given=given,
        replaces=mode.replaces,
        strict=mode.strict,
        minted=minted,
    )


# -- draft -------------------------------------------------------------------------------------------


class InputDraft(ABC):
    """An input that has been read, as a change: the same rows on every base."""

    executor: ExecutorFor  # answers the questions of the set checks
    change: ChangeSet  # under the schema that the input was read with

    def __init__(self, catalog: Catalog, facts: Mapping[str, Any]) -> None:
        self.catalog = catalog
        self._facts = facts  # how the load was asked for

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Return the change on this base."""
        change = self.change_under(txn, catalog)
        replaced = frozenset(table_id for table_id, one_type in change.types.items() if one_type.replaces)
        return Draft(change, replaced, *self._affected(), values_judged=True)

    @abstractmethod
    def change_under(self, txn: WriteTxn, catalog: Catalog) -> ChangeSet:
        """Return the change for this base and its schema."""

    @abstractmethod
    def locate(self, findings: Findings, change: ChangeSet) -> Findings:
        """Say of each violation where in the input it is."""

    @property
    @abstractmethod
    def fingerprint(self) -> Fingerprint | None:
        """What tells the input from another, where that is wanted."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """All rows that were read and break no rule by themselves."""

    @property
    @abstractmethod
    def rows_by_type(self) -> Mapping[str, int]:
        """The rows of each type id, less those that were set aside."""

    @property
    def rejected_by_type(self) -> Mapping[str, int]:
        """The rows of each type id that were set aside; "" where the type is not known."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what the receipt says besides counts."""
        return {**self._facts, "total_entities": self.rows}

    def accepted(self, *, dry_run: bool) -> None:  # noqa: B027  # most drafts have nothing to do here
        """Do what must be done before the publish, once all checks are passed."""

    def loaded(self) -> Loaded:
        """Say what the receipt has of the input; records that a later one replaces change nothing."""
        return Loaded(*self._affected(), tuple(self._counts().values()), self.facts())

    def foreseen(self, base: WriteTxn) -> tuple[TypeCount, ...]:
        """Return what the load would do on a base; entities that exist are not told from new ones."""
        counts = self._counts()
        for change in self.change.types.values():
            declared = change.declared
            count = counts.get(declared.id) or TypeCount(declared.name, declared.kind.value, given=0)
            deleted = base.rows(change.table_id) if change.replaces else 0
            counts[declared.id] = replace(count, inserted=change.count, deleted=deleted)
        return in_order(counts.values())

    def _affected(self) -> tuple[int, int]:
        """Return how many nodes and edges are written."""
        rows = self.rows_by_type
        nodes = sum(n for type_id, n in rows.items() if isinstance(self.catalog.table(type_id), NodeType))
        return nodes, sum(rows.values()) - nodes

    def _counts(self) -> dict[str, TypeCount]:
        """Return the records of each type that the input has, good or bad."""
        rows, rejected = self.rows_by_type, self.rejected_by_type
        type_ids = dict.fromkeys((*rows, *(type_id for type_id in rejected if type_id)))
        return {
            type_id: self._count(self.catalog.table(type_id), rows.get(type_id, 0), rejected.get(type_id, 0))
            for type_id in type_ids
        }

    def _count(self, declared: TableType, good: int, rejected: int) -> TypeCount:
        unchanged = good - self.change.rows(declared.table_id)
        kind = declared.kind.value
        return TypeCount(declared.name, kind, given=good + rejected, unchanged=unchanged, rejected=rejected)


# -- publish -----------------------------------------------------------------------------------------


def publish_load(
    store: GraphStore,
    catalogs: Catalogs,
    draft: InputDraft,
    branch: str,
    intent: Intent,
    *,
    dry_run: bool = False,
    report: Report = silent,
) -> Receipt:
    """Check an input as a whole, publish it, and say what it did."""

    def accepted() -> None:
        current().go_on()  # what is published now outlives its caller
        draft.accepted(dry_run=dry_run)
        report(LoadProgress("writing", draft.rows))

    write = ChangeWrite(
        draft,
        catalogs,
        CommitKind.LOAD,
        REFUSED,
        always_commit=True,
        locate=draft.locate,
        executor=draft.executor,
        # A commit under an idempotency key keeps what a repetition is told.
        labels=None if intent.commit_id is None else lambda _: draft.loaded().label(),
        accepted=accepted,
    )
    if dry_run:
        base = store.rehearse(branch, write, intent)
        report(LoadProgress("done", draft.rows))
        loaded = draft.loaded()
        nodes, edges = loaded.affected_nodes, loaded.affected_edges
        return Receipt(branch, None, draft.foreseen(base), nodes, edges, dry_run=True, facts=loaded.facts)
    done = store.publish(branch, write, intent)
    _derive(store, catalogs, done, report, draft.rows)
    report(LoadProgress("done", draft.rows))
    if done.replayed and done.commit is not None:
        return replayed(branch, done, catalogs.get(done.commit.schema))
    return draft.loaded().receipt(branch, done, write.catalog or draft.catalog)


def _derive(store: GraphStore, catalogs: Catalogs, done: PublishReceipt, report: Report, rows: int) -> None:
    """Write the adjacency of edges that a load brought, so that the first query need not work it out.

    The load has landed: it stands, whatever became of its branch or of storage since.
    """
    changed = {change.table_id for change in done.tables if change.inserted}
    if done.commit is None or done.replayed or not changed:
        return
    try:
        snapshot = store.snapshot(done.branch)
        catalog = catalogs.get(snapshot.schema)
    except FAILURES:
        return
    edges = [e.id for e in catalog.edges if changed & {e.id, e.source, e.target}]
    if edges:
        report(LoadProgress("deriving", rows))
        complete_adjacency(store, catalog, snapshot, edges)


# -- run ---------------------------------------------------------------------------------------------


class InputReader(Protocol):
    """Whoever reads the input of a load: this process, or Spark."""

    @property
    def engine(self) -> str:
        """The name that receipts have for it."""
        ...

    @property
    def repeatable(self) -> bool:
        """Say whether reading a second time gives the same."""
        ...

    def fingerprint(self, branch: str, commit: CommitRecord) -> Fingerprint:
        """Read the input under the schema of a commit, and keep nothing but its fingerprint."""
        ...

    def draft(
        self, base: PinnedSnapshot, catalog: Catalog, modes: Modes, facts: Mapping[str, Any]
    ) -> AbstractContextManager[InputDraft]:
        """Read the input and check each row by itself; what it holds is given back at the end."""
        ...


@dataclass(frozen=True, eq=False)
class LoadRun:
    """One load on its way."""

    store: GraphStore
    catalogs: Catalogs
    claims: Claims
    request: LoadRequest
    reader: InputReader
    report: Report = silent

    def run(self, intent: Intent) -> Receipt:
        """Load an input as one commit, whole or not at all."""
        request = self.request
        branch, origin = request.branch, request.from_branch
        with measured() as meter:
            missing = _is_missing(self.store, branch, origin)
            if missing and request.before_fork is not None:
                request.before_fork()
            created = missing and not request.dry_run and _create(self.store, branch, origin)
            base = origin if missing and request.dry_run and origin is not None else branch
            facts = {
                "mode": request.mode,
                "base_branch": origin,
                "branch_created": created,
                "engine": self.reader.engine,
            }
            try:
                receipt = self._landed(base, intent) or self._publish(base, intent, facts)
            except GraphError as error:
                if created:
                    _say_created(error, branch, origin)
                raise
        return replace(receipt, branch=branch, cost=meter.cost)

    def _landed(self, branch: str, intent: Intent) -> Receipt | None:
        """Return the receipt of the load that landed under the key; another request is refused.

        The input is read as it was then, under the schema that it was accepted with: names that have changed
        since are not in its way.
        """
        key = self.request.idempotency_key
        if key is None:
            return None
        base = self.store.snapshot(branch)
        first = landed(self.store, key, base, intent.actor)
        if first is None or first.commit is None:
            return None
        fingerprint = self.reader.fingerprint(branch, first.commit)
        self.claims.find(self.request.claim(fingerprint, base, intent.actor))
        return first

    def _publish(self, branch: str, intent: Intent, facts: Mapping[str, Any]) -> Receipt:
        """Read and publish; read again when the schema changed meanwhile and the input allows it."""
        while True:
            base = self.store.snapshot(branch)
            catalog = self.catalogs.get(base.schema)
            modes = Modes.read(self.request, catalog)
            try:
                with self.reader.draft(base, catalog, modes, facts) as draft:
                    return publish_load(
                        self.store,
                        self.catalogs,
                        draft,
                        branch,
                        self._claimed(draft, base, intent),
                        dry_run=self.request.dry_run,
                        report=self.report,
                    )
            except StaleVersion as conflict:
                again = self.reader.repeatable and not modes.replaces
                if conflict.fields.get("member") != "schema" or not again:
                    raise

    def _claimed(self, draft: InputDraft, base: PinnedSnapshot, intent: Intent) -> Intent:
        if draft.fingerprint is None:
            return intent
        return claimed(self.claims, self.request.claim(draft.fingerprint, base, intent.actor), intent)


def _is_missing(store: GraphStore, branch: str, origin: str | None) -> bool:
    """Say whether a branch has to be created, which only a caller who says from what can want."""
    if origin is None:
        return False
    try:
        store.snapshot(branch)
    except BranchNotFound:
        return True
    return False


def _create(store: GraphStore, branch: str, origin: str | None) -> bool:
    """Create a branch; say whether this call did it."""
    assert origin is not None
    try:
        store.branches.create(branch, origin)
    except BranchExists:
        return False  # another writer created it meanwhile
    return True


def _say_created(error: GraphError, branch: str, origin: str | None) -> None:
    """Add to an error that the branch, created in a step of its own, stays."""
    remedy = f"Branch {branch!r} was created from {origin!r} and stays"
    if error.remedy is not None:
        remedy = f"{error.remedy}. {remedy}"
    GraphError.__init__(error, error.message, remedy=remedy, **{**error.fields, "branch_created": branch})
