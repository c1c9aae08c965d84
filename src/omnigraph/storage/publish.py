"""Publish: how staged work becomes visible to readers, and what happens after a lost race.

`Publisher` runs a `Write`: capture, prepare, validate, stage, compare-and-swap. When the swap loses, `decide`
says from the two states how to go on. Only this module, whoever asks for a turn, the branch protocol and the
retention floor call `Chain.commit`.

An attempt that lost had no effect, so every retry starts from a fresh capture. The commit id is the same in
every attempt: a writer can always recognise its own work. After an error nothing of the write is visible;
OutcomeUnknown alone says that it cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from enum import Enum

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import (
    BranchNotFound,
    GraphClosed,
    GraphError,
    HistoryReclaimed,
    InvalidRequest,
    OutcomeUnknown,
    PreconditionFailed,
    PublishContention,
    StaleVersion,
    StorageError,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import Clock, Stopwatch, is_id, new_id, random_fraction
from omnigraph.base.panics import panics_caught
from omnigraph.storage.cost import measured
from omnigraph.storage.diagnose import Readability, of_the_newest
from omnigraph.storage.durability import NotDurable, Step
from omnigraph.storage.location import storage_failure
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import Chain, CommitInDoubt, HeadMoved
from omnigraph.storage.manifest.records import CommitRecord, ManifestState, Pin, advance
from omnigraph.storage.staging import StagedPlan, Staging
from omnigraph.storage.tables.reads import TableReads
from omnigraph.storage.transaction import PinnedSnapshot, PublishPlan, PublishReceipt, Write, WriteTxn
from omnigraph.storage.turns import FairLock, Precedences, Turn

# -- after a lost race: a pure decision ----------------------------------------------------------------
#
# (engine spec 3.4; tests/storage/test_conflict.py has one case for each row)
#
#   what moved since the base                     what happens
#   nothing the plan read or wrote                publish the same staged versions again
#   a table it only consulted                     validate again, then publish
#   a table it writes, or only by maintenance     prepare again from the new base
#   retention ran since it staged its files       prepare again: the files may be gone
#   a table whose rows decided what is written    StaleVersion
#   the schema                                    prepare again, or StaleVersion if rows decided


class Decision(Enum):
    """How a writer that lost the race goes on."""

    PUBLISH_AGAIN = "publish again"
    VALIDATE_AGAIN = "validate again"
    PREPARE_AGAIN = "prepare again"


def decide(
    base: ManifestState,
    now: ManifestState,
    *,
    staged_at: int | None = None,
    writes: Set[str],
    decided_by: Set[str],
    consulted: Set[str],
    schema_decides: bool,
) -> Decision:
    """Compare two snapshots for one plan; raise when only the caller can decide.

    `staged_at` is the version when the plan's files were written; the base's, unless said otherwise.
    """
    if base.schema != now.schema:
        if decided_by or schema_decides:
            raise StaleVersion("schema", expected=base.schema, actual=now.schema)
        return Decision.PREPARE_AGAIN
    for table in sorted(decided_by):
        if _content(base, table) != _content(now, table):
            raise StaleVersion(
                _name(base, now, table), expected=_content(base, table), actual=_content(now, table)
            )
    if now.swept > (base.version if staged_at is None else staged_at):
        return Decision.PREPARE_AGAIN
    if any(_version(base, table) != _version(now, table) for table in writes | decided_by):
        return Decision.PREPARE_AGAIN
    if any(_content(base, table) != _content(now, table) for table in consulted):
        return Decision.VALIDATE_AGAIN
    return Decision.PUBLISH_AGAIN


def _content(state: ManifestState, table: str) -> str:
    pin = state.pins.get(table)
    return "absent" if pin is None else pin.content


def _version(state: ManifestState, table: str) -> int | None:
    pin = state.pins.get(table)
    return None if pin is None else pin.version


def _name(base: ManifestState, now: ManifestState, table: str) -> str:
    pin = base.pins.get(table) or now.pins.get(table)
    return table if pin is None else pin.name


# -- the publisher ---------------------------------------------------------------------------------


Pins = Mapping[str, Pin | None]


@dataclass(frozen=True)
class RetryPolicy:
    """How long a write that keeps losing the race goes on trying."""

    attempts: int = 400
    seconds: float = 120.0  # since the first loss
    pause_s: float = 0.02  # longest pause after the first loss; shrinks with each further one
    asks_after: int = 8  # losses, each time: then the write asks other processes to let it go first
    confirm_after_s: float = 60.0  # a slower swap is read back before it is believed
    failures: int = 3  # publish calls that fail outright, with the head unmoved, before giving up


@dataclass(frozen=True)
class Intent:
    """What the commit record will say besides what the plan does."""

    actor: str | None = None
    message: str | None = None
    expected_head: str | None = None
    labels: Mapping[str, str] = FrozenMap()
    commit_id: str | None = None  # minted by an earlier call that may have landed; else a fresh one
    twins: tuple[str, ...] = ()  # commits that do the same, or a part of it: of all of them one may land
    chain: str | None = None  # the only one on which that commit may be
    by_system: bool = False  # the engine acts by itself: only then may its name begin with `system:`


@dataclass(frozen=True)
class _Attempt:
    """Where a write stands between attempts."""

    txn: WriteTxn
    chain: Chain
    plan: PublishPlan
    staged: StagedPlan


class Publisher:
    """Publishes writes to the branches of one graph."""

    def __init__(
        self,
        branches: Branches,
        reads: TableReads,
        staging: Staging,
        readability: Readability,
        clock: Clock,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._branches = branches
        self._reads = reads
        self._staging = staging
        self._readability = readability
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._losers: dict[str, FairLock] = {}  # by chain
        self._precedences = Precedences(clock)

    def publish(self, branch: str, write: Write, intent: Intent | None = None) -> PublishReceipt:
        """Run a write to its end."""
        intent = intent or Intent()
        _check(intent)
        with measured() as meter:
            receipt = self._run(branch, write, intent)
        return replace(receipt, cost=meter.cost)

    def rehearse(self, branch: str, write: Write, intent: Intent | None = None) -> WriteTxn:
        """Run a write up to the point where it would stage anything; raise what it would raise."""
        intent = intent or Intent()
        _check(intent)
        return of_the_newest(lambda: self._rehearsed(branch, write, intent))

    def _rehearsed(self, branch: str, write: Write, intent: Intent) -> WriteTxn:
        _, txn = self._capture(branch, new_id())
        expected, state = intent.expected_head, txn.snapshot.state
        if expected is not None and not state.same_content_as(expected):
            raise PreconditionFailed(branch, expected=expected, actual=state.head)
        with self._readability.judged(txn.snapshot.state):
            write.validate(txn, write.prepare(txn))
        return txn

    # -- attempts ----------------------------------------------------------------------------------

    def _run(self, branch: str, write: Write, intent: Intent) -> PublishReceipt:
        commit_id, authored_at = intent.commit_id or new_id(), self._clock.now_us()
        patience = _Patience(branch, self._policy, self._clock)
        attempts, failures = 1, 0
        while True:
            chain, txn = self._capture(branch, commit_id)
            if intent.chain not in (None, chain.incarnation):
                raise _made_anew(branch)
            if intent.commit_id is not None:
                done = _found(chain, txn.snapshot.state, (commit_id, *intent.twins))
                if done is not None:
                    return PublishReceipt(branch, done.commit, done.commit.tables, replayed=True)
            first = self._attempt(chain, txn, write, intent)
            if first is not None:
                break
            patience.lose(attempts)
            attempts += 1
        attempt, doubted, watch = first, False, Stopwatch(self._clock)
        turn = Turn(self._losers.setdefault(attempt.chain.incarnation, FairLock()))
        with turn.held:
            while True:
                pins = attempt.staged.pins(commit_id, attempt.plan.kind)
                if not (pins or attempt.staged.schema or attempt.plan.always_commit):
                    return PublishReceipt(attempt.txn.snapshot.branch, commit=None, attempts=attempts)
                record = self._record(attempt, pins, intent, commit_id, authored_at)
                failed = self._swap(attempt, record, pins)
                if failed is None:
                    return PublishReceipt(attempt.txn.snapshot.branch, record, record.tables, attempts)
                turn.wait()  # the losers of this process go on one at a time, or they would beat each other
                self._pause(attempts)
                if attempts % self._policy.asks_after == 0 and isinstance(failed, HeadMoved):
                    self._precedences.ask(attempt.chain, commit_id, watch.seconds())
                watch = Stopwatch(self._clock)
                chain, txn = self._recapture(attempt, branch, commit_id, failed)
                if self._landed(chain, txn.snapshot.state, attempt, commit_id):
                    return self._acknowledged(chain, txn, record, attempts, intent)
                doubted = doubted or isinstance(failed, CommitInDoubt)
                if doubted:
                    self._check_remembered(chain, txn.snapshot.state, attempt, commit_id)
                twin = self._twin(chain, txn.snapshot.state, attempt, intent)
                if twin is not None:
                    return PublishReceipt(branch, twin.commit, twin.commit.tables, attempts, replayed=True)
                patience.lose(attempts)
                attempts += 1
                if (chain, txn.snapshot.state.version) != (attempt.chain, attempt.txn.snapshot.state.version):
                    failures = 0
                    went_on = self._attempt(chain, txn, write, intent, lost=attempt)
                    attempt = went_on or attempt  # None: it will lose again, and look again
                    continue
                failures += 1  # nobody moved the head: the store itself refused
                if failures >= self._policy.failures:
                    raise storage_failure("publishing", failed.__cause__ or failed) from failed

    def _capture(self, branch: str, commit_id: str) -> tuple[Chain, WriteTxn]:
        chain, state = self._branches.writable(branch)
        while self._precedences.has_waited(chain, state, commit_id):
            chain, state = self._branches.writable(branch)
        return chain, WriteTxn(PinnedSnapshot(branch, state), commit_id, self._reads, self._readability)

    def _recapture(
        self, lost: _Attempt, branch: str, commit_id: str, failed: Exception
    ) -> tuple[Chain, WriteTxn]:
        """Look at the branch again; if that fails after an uncertain publish, say so."""
        if not isinstance(failed, CommitInDoubt):
            return self._capture(branch, commit_id)
        try:
            try:
                captured = self._capture(branch, commit_id)
            except BranchNotFound:
                landed = self._where_it_landed(lost, commit_id)
                if landed is None:
                    raise
                return landed
            return (
                captured if captured[0] is lost.chain else self._where_it_landed(lost, commit_id) or captured
            )
        except (StorageError, GraphClosed) as error:
            raise OutcomeUnknown(commit_id, branch=branch) from error

    def _where_it_landed(self, lost: _Attempt, commit_id: str) -> tuple[Chain, WriteTxn] | None:
        """Look for an uncertain publish on its own chain, which has another name by now, or none."""
        state = lost.chain.latest()
        if not self._landed(lost.chain, state, lost, commit_id):
            self._check_remembered(lost.chain, state, lost, commit_id)
            return None
        snapshot = replace(lost.txn.snapshot, state=state)
        return lost.chain, WriteTxn(snapshot, commit_id, self._reads, self._readability)

    def _attempt(
        self, chain: Chain, txn: WriteTxn, write: Write, intent: Intent, *, lost: _Attempt | None = None
    ) -> _Attempt | None:
        """Make an attempt, perhaps after one that lost; None if it failed because of a sweep: on a base
        whose history was reclaimed, or on files that were taken before anything named them.
        """
        state, expected = txn.snapshot.state, intent.expected_head
        try:
            if lost is not None and chain.incarnation != lost.chain.incarnation:
                raise _made_anew(txn.snapshot.branch)
            if expected is not None and not state.same_content_as(expected):
                raise PreconditionFailed(txn.snapshot.branch, expected=expected, actual=state.head)
            with panics_caught():
                return (
                    self._prepare(chain, txn, write) if lost is None else self._go_on(lost, chain, txn, write)
                )
        except Exception as error:
            reason = self._readability.reason(error, state)
            if isinstance(reason, HistoryReclaimed) and self._readability.reclaimed(state) is not None:
                return None  # else of another state that the write names
            if isinstance(reason, StorageError) and _swept_since(chain, state):
                return None  # what was being staged may be gone
            if reason is error:
                raise
            raise reason from error

    def _prepare(
        self, chain: Chain, txn: WriteTxn, write: Write, reuse: StagedPlan | None = None
    ) -> _Attempt:
        plan = write.prepare(txn)
        write.validate(txn, plan)
        return _Attempt(txn, chain, plan, self._staging.stage(txn, plan, reuse))

    def _go_on(self, lost: _Attempt, chain: Chain, txn: WriteTxn, write: Write) -> _Attempt:
        """Choose the cheapest way to a plan that is right on the new base."""
        base, head = lost.txn.snapshot.state, txn.snapshot.state
        decision = decide(
            base,
            head,
            staged_at=lost.staged.staged_at,
            writes=lost.plan.writes | lost.plan.assumed,
            decided_by=lost.plan.decisive,
            consulted=lost.plan.consulted,
            schema_decides=lost.plan.schema is not None,
        )
        if decision is Decision.PREPARE_AGAIN:
            reuse = lost.staged if head.swept <= lost.staged.staged_at else None  # else they may be gone
            return self._prepare(chain, txn, write, reuse)
        if decision is Decision.VALIDATE_AGAIN:
            write.validate(txn, lost.plan)
        return replace(lost, txn=txn, staged=lost.staged.rebased(head))

    # -- one swap ----------------------------------------------------------------------------------

    def _swap(self, attempt: _Attempt, record: CommitRecord, pins: Pins) -> HeadMoved | CommitInDoubt | None:
        """Try to publish; return what went wrong, or None."""
        base = attempt.txn.snapshot.state
        watch = Stopwatch(self._clock)
        try:
            attempt.chain.commit(*advance(base, record, pins, attempt.plan.merged), Step.PUBLISH)
        except (HeadMoved, CommitInDoubt) as error:
            return error
        except NotDurable as error:  # visible, but a power cut may still take it back
            raise OutcomeUnknown(record.id, branch=record.branch) from error
        stalled = watch.seconds() > self._policy.confirm_after_s
        try:
            landed = not stalled or self._landed(attempt.chain, attempt.chain.latest(), attempt, record.id)
        except (StorageError, GraphClosed) as error:
            raise OutcomeUnknown(record.id, branch=record.branch) from error
        if not landed:
            # It recreated a version that retention had removed meanwhile: no reader will ever see it.
            return HeadMoved("a stalled publish landed off the chain")
        return None

    def _landed(self, chain: Chain, state: ManifestState, attempt: _Attempt, commit_id: str) -> bool:
        """Say whether this write's commit is on the chain, as after a lost reply."""
        if chain.incarnation != attempt.chain.incarnation:
            return False
        answer = state.landed_since(attempt.txn.snapshot.state.version, commit_id)
        return chain.find(commit_id, state) is not None if answer is None else answer

    def _twin(
        self, chain: Chain, state: ManifestState, attempt: _Attempt, intent: Intent
    ) -> ManifestState | None:
        """Return the version of a twin that landed since an attempt began."""
        if chain.incarnation != attempt.chain.incarnation:
            return None
        since = attempt.txn.snapshot.state.version
        possible = [one for one in intent.twins if state.landed_since(since, one) is not False]
        return _found(chain, state, possible)

    def _check_remembered(
        self, chain: Chain, state: ManifestState, attempt: _Attempt, commit_id: str
    ) -> None:
        """Raise when a commit that is not found may have landed before what the chain still holds."""
        if chain.incarnation != attempt.chain.incarnation:
            return
        reaches_back = state.landed_since(attempt.txn.snapshot.state.version, commit_id) is not None
        if not reaches_back and chain.may_have_forgotten(commit_id, state):
            raise OutcomeUnknown(commit_id, branch=attempt.txn.snapshot.branch)

    def _acknowledged(
        self, chain: Chain, txn: WriteTxn, record: CommitRecord, attempts: int, intent: Intent
    ) -> PublishReceipt:
        """Return the receipt of a commit that is on the chain: ours, or that of a twin under the same id."""
        done = None if intent.commit_id is None else chain.find(record.id, txn.snapshot.state)
        commit = record if done is None else done.commit
        replayed = (commit.parent, commit.authored_at_us) != (record.parent, record.authored_at_us)
        return PublishReceipt(txn.snapshot.branch, commit, commit.tables, attempts, replayed=replayed)

    def _record(
        self, attempt: _Attempt, pins: Pins, intent: Intent, commit_id: str, authored_at: int
    ) -> CommitRecord:
        base, plan = attempt.txn.snapshot.state, attempt.plan
        tables = attempt.staged.changes(pins)
        labels = {**intent.labels, **plan.labels}
        if plan.staged_labels is not None:
            with self._readability.judged(base):
                labels |= plan.staged_labels(tables)
        return CommitRecord(
            id=commit_id,
            parent=base.commit.id,
            merged_parent=plan.merged_parent,
            branch=attempt.txn.snapshot.branch,
            incarnation=base.line.incarnation,
            kind=plan.kind,
            actor=intent.actor,
            message=intent.message,
            authored_at_us=authored_at,
            manifest_version=base.version + 1,
            schema=attempt.staged.schema or base.commit.schema,
            tables=tables,
            labels=FrozenMap(labels),
        )

    # -- retry ----------------------------------------------------------------------------------

    def _pause(self, attempts: int) -> None:
        """Wait a random moment, shorter for those who have lost more often."""
        self._clock.sleep(random_fraction() * self._policy.pause_s / attempts)


def _found(chain: Chain, state: ManifestState, ids: Sequence[str]) -> ManifestState | None:
    """Return the version that one of some commits made, or None if none of them has landed."""
    for commit_id in ids:
        done = chain.find(commit_id, state)
        if done is not None:
            return done
    for commit_id in ids:
        if chain.may_have_forgotten(commit_id, state):
            raise _forgotten(commit_id)
    return None


def _swept_since(chain: Chain, state: ManifestState) -> bool:
    """Say whether a sweep was announced after a state."""
    try:
        return chain.latest().swept > state.version
    except StorageError:
        return False


class _Patience:
    """How long a write goes on trying; the time counts from its first loss, however long it prepared."""

    def __init__(self, branch: str, policy: RetryPolicy, clock: Clock) -> None:
        self._branch = branch
        self._policy = policy
        self._clock = clock
        self._first_loss: float | None = None

    def lose(self, attempts: int) -> None:
        """Note a loss; raise when there have been too many, or for too long."""
        now = self._clock.monotonic()
        if self._first_loss is None:
            self._first_loss = now
        elapsed = now - self._first_loss
        if attempts >= self._policy.attempts or elapsed >= self._policy.seconds:
            raise PublishContention(self._branch, attempts=attempts, elapsed_ms=int(elapsed * 1000))


def _check(intent: Intent) -> None:
    """Refuse what cannot be right, whatever the state of the graph."""
    if intent.actor is not None and intent.actor.startswith("system:") and not intent.by_system:
        raise InvalidRequest(f"actor {intent.actor!r} is reserved", remedy="Choose a name without 'system:'")
    if intent.expected_head is not None and not is_id(intent.expected_head):
        raise InvalidRequest(
            f"{intent.expected_head!r} is not a commit id",
            remedy="Name the one commit that the branch must be at",
        )


def _made_anew(branch: str) -> GraphError:
    return BranchNotFound(
        f"branch {branch!r} was deleted and made anew while this write was being prepared",
        remedy="Nothing was written; repeat the write if it is meant for the new branch",
        branch=branch,
    )


def _forgotten(commit_id: str) -> GraphError:
    return HistoryReclaimed(
        f"whether commit {commit_id} has landed is no longer stored",
        remedy="Nothing was written; look whether its rows are there, and use a new key if not",
        graph_commit_id=commit_id,
    )
