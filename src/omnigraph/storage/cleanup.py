"""Cleanup: delete what no retained version of any branch needs, over the whole graph.

    retention (what stays) -> **list, plan, announce, trace, delete** -> report

- The plan is traced before anything is announced: if a version that stays cannot be read, nothing happens.
- Then the floor is raised on every branch, which is when history is given up; versions that tags, forks and
  merges need are stored apart before that. A name that came up meanwhile is heeded before the first deletion.
- What is deleted was on the listing made before the announcement, is older than the grace period, and is
  named by no version that stays (sweep.py says why that is safe beside writers). Of each table versions go
  first. A table that fails is in the report; the others go on.
- Every step can be repeated: a cleanup that was killed leaves whole heads, and the next one finishes it.

A schema or a table may come up again under the same name, written by somebody who finds it there just before
it is deleted. So their names are announced too (`condemned`), and no writer begins to use them.

The last version of a deleted branch stays: it tells a writer that stalled for long that its branch is gone.
Without it the writer's commit would succeed, on a chain that nothing names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, HistoryReclaimed
from omnigraph.base.ids import Clock
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.checksums import Checksums, RewrittenLog
from omnigraph.storage.claims import FOLDER as CLAIMS
from omnigraph.storage.location import Location, StoredObject
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import KEPT, MANIFEST, chain_path, check_kept, kept_path
from omnigraph.storage.manifest.records import MAIN, ManifestState, Sweep
from omnigraph.storage.manifest.refs import REFS, Refs
from omnigraph.storage.opener import MAX_VERSION
from omnigraph.storage.retention import DAY_US, HOUR_US, Retainer, Retention, RetentionPlan
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS
from omnigraph.storage.sweep import Announcer, Sweeper
from omnigraph.storage.tables.files import CREATED, TABLES, VERSIONS, manifest_path

BEING_WRITTEN_US = HOUR_US  # a file that is not finished is taken for one that somebody is writing
CLAIMS_STAY_US = 7 * DAY_US  # an idempotency key is good for this long at least
REGISTRY_KEPT = 16  # versions of the registry
ROUNDS = 16  # of announcing, while names come up
TREE = f"{MANIFEST}/tree/"
FilesOf = Mapping[tuple[str, int], frozenset[str]]  # a version of a table -> the files that it needs
Readers = Callable[[], Iterable[ManifestState]]  # the states that this process is reading


# -- the report --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CleanedPart:
    """What went of one table, or of one other part of the graph; `error` says what could not be deleted."""

    name: str  # of the type; the id of a table that no branch has any more; or what the part holds
    kind: str  # "node", "edge", "table" (of no type any more) or "system"
    files: int = 0
    bytes: int = 0
    versions: int = 0  # of the files, how many were versions of the table or of a branch
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "type_key": f"{self.kind}:{self.name}",
            "files_removed": self.files,
            "bytes_removed": self.bytes,
            "old_versions_removed": self.versions,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleanup deleted or, as a preview, would delete; parts of which nothing goes are left out."""

    dry_run: bool
    parts: tuple[CleanedPart, ...] = ()

    @property
    def files(self) -> int:
        """How many files went."""
        return sum(part.files for part in self.parts)

    @property
    def bytes(self) -> int:
        """How many bytes they had."""
        return sum(part.bytes for part in self.parts)

    @property
    def versions(self) -> int:
        """How many of the files were versions."""
        return sum(part.versions for part in self.parts)

    @property
    def ok(self) -> bool:
        """Say whether all that was to go is gone."""
        return all(part.error is None for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "dry_run": self.dry_run,
            "files_removed": self.files,
            "bytes_removed": self.bytes,
            "old_versions_removed": self.versions,
            "datasets": [part.to_json() for part in self.parts],
        }


# -- what goes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Doomed:
    """The files of one part that go, in the order of their deletion."""

    name: str
    kind: str
    versions: tuple[StoredObject, ...] = ()  # these first: a version that is still stored is whole
    files: tuple[StoredObject, ...] = ()
    logs: tuple[RewrittenLog, ...] = ()  # what takes the place of some of the files

    def __bool__(self) -> bool:
        return bool(self.versions or self.files)

    @property
    def report(self) -> CleanedPart:
        """What is deleted if nothing fails."""
        every = (*self.versions, *self.files)
        return CleanedPart(
            self.name,
            self.kind,
            files=len(every) - len(self.logs),
            bytes=sum(file.size for file in every) - sum(len(log.content) for log in self.logs),
            versions=len(self.versions),
        )


@dataclass(frozen=True)
class _Listing:
    """Everything that a graph stores, and the time before which a file must be written to go."""

    before_us: int
    parts: Mapping[str, tuple[StoredObject, ...]]  # by the first folder

    def old(self, part: str, below: str = "") -> list[StoredObject]:
        """Return the files of a part, or below a folder of it, that are old enough to go."""
        files = (file for file in self.parts.get(part, ()) if file.modified_us < self.before_us)
        return [file for file in files if file.key.startswith(below)]

    def tables(self) -> dict[str, dict[str, StoredObject]]:
        """Return the files of every table, by their path inside it."""
        by_table: dict[str, dict[str, StoredObject]] = {}
        for file in self.parts.get(TABLES, ()):
            _, table_id, path = file.key.split("/", 2)
            by_table.setdefault(table_id, {})[path] = file
        return by_table


@dataclass(frozen=True)
class _Needs:
    """What the versions that stay need."""

    by_version: FilesOf
    tables: Mapping[str, set[str]]
    schemas: frozenset[str]
    names: Mapping[str, tuple[str, str]]  # table -> type and kind


class Cleaner:
    """Cleans one graph."""

    def __init__(
        self,
        location: Location,
        branches: Branches,
        refs: Refs,
        retainer: Retainer,
        announcer: Announcer,
        sweeper: Sweeper,
        checksums: Checksums,
        readers: Readers,
        pool: Executor,
        clock: Clock,
        stall_s: float,
    ) -> None:
        self._location = location
        self._branches = branches
        self._refs = refs
        self._retainer = retainer
        self._announcer = announcer
        self._sweeper = sweeper
        self._checksums = checksums
        self._readers = readers
        self._pool = pool
        self._clock = clock
        # A commit that stalls for longer is read back before it is believed. Until then the version whose
        # name it is about to take must be there, so that it is refused.
        self._stall_us = round(stall_s * 2e6)

    def run(self, retention: Retention, *, dry_run: bool) -> Cleaned:
        """Delete what a retention gives up, and what nothing names; or say what that would be."""
        now_us = self._clock.now_us()
        listing = self._listing(now_us - retention.grace_us)
        plan = self._retainer.plan(retention, self._refs.latest(), now_us)
        needs = self._trace([plan])
        doomed = self._doomed(listing, plan, needs, now_us)
        if dry_run or not (plan.gives_up or any(doomed)):
            return Cleaned(dry_run, tuple(part.report for part in doomed))
        plans = self._announce(plan, listing, _condemned(listing, doomed))
        needs = self._trace(plans, needs.by_version)
        doomed = self._doomed(listing, plans[-1], needs, now_us)
        return Cleaned(dry_run, tuple(self._delete(part) for part in doomed))

    def _listing(self, before_us: int) -> _Listing:
        parts: dict[str, list[StoredObject]] = {}
        for file in self._location.objects.entries():
            parts.setdefault(file.key.split("/", 1)[0], []).append(file)
        ordered = {part: tuple(sorted(files, key=lambda file: file.key)) for part, files in parts.items()}
        return _Listing(before_us, ordered)

    # -- announcing --------------------------------------------------------------------------------

    def _announce(
        self, plan: RetentionPlan, listing: _Listing, condemned: frozenset[str]
    ) -> list[RetentionPlan]:
        """Raise the floors, until no name is left that was not heeded; return what was in force then.

        Where there are several branches all are told twice (see sweep.py).
        """
        known = {name for head in plan.heads.values() for name in head.condemned}
        going = condemned | (known & _names(listing))  # another cleanup may be deleting what it announced
        in_force: list[RetentionPlan] = []
        for _ in range(ROUNDS):
            for chain, versions in plan.kept.items():
                for version in versions:
                    self._branches.chain(chain).keep(version)
            announced = plan

            def sweep_of(chain: str, announced: RetentionPlan = announced) -> Sweep:
                return Sweep(
                    floor=announced.floors.get(chain, 0),
                    kept=announced.kept.get(chain),
                    condemned=tuple(sorted(going)),
                    before_us=listing.before_us,
                )

            refs, _heads = self._announcer.tell(sweep_of)
            plan = self._retainer.renew(announced, refs)
            in_force.append(plan)
            heeded = all(set(plan.kept[chain]) <= set(head.kept) for chain, head in plan.heads.items())
            if heeded and (len(in_force) > 1 or len(plan.heads) == 1):
                return in_force
        raise GraphError(
            "names came up faster than a cleanup could heed them",
            remedy="Nothing was deleted; run it again when fewer branches and tags are made",
        )

    # -- tracing -----------------------------------------------------------------------------------

    def _trace(self, plans: Sequence[RetentionPlan], known: FilesOf | None = None) -> _Needs:
        """Find out what the versions that stay need; raise if one of them cannot be read."""
        states = list(self._states(plans))
        pinned_in: dict[tuple[str, int], list[ManifestState]] = {}
        names: dict[str, tuple[str, str]] = {}
        for state in states:
            for table_id, version in self._pins(state):
                pinned_in.setdefault((table_id, version), []).append(state)
                names[table_id] = (state.pins[table_id].name, state.pins[table_id].kind)
        for head in (head for plan in plans for head in plan.heads.values()):
            names.update({pin.table_id: (pin.name, pin.kind) for pin in head.pins.values()})
        by_version = {key: files for key, files in (known or {}).items() if key in pinned_in}
        missing = [key for key in pinned_in if key not in by_version]
        for key, files in zip(missing, self._pool.map(self._files_of, missing), strict=True):
            if not isinstance(files, GraphError):
                by_version[key] = files
            elif any(self._is_promised(state) for state in pinned_in[key]):
                raise files
        tables: dict[str, set[str]] = {}
        for (table_id, _), files in {**by_version, **self._read_now(by_version)}.items():
            tables.setdefault(table_id, set()).update(files)
        return _Needs(by_version, tables, frozenset(state.schema for state in states), names)

    def _states(self, plans: Iterable[RetentionPlan]) -> Iterator[ManifestState]:
        positions = dict.fromkeys(position for plan in plans for position in plan.positions())
        heads = {(chain, head.version): head for plan in plans for chain, head in plan.heads.items()}
        for chain, version in positions:
            head = heads.get((chain, version))
            try:
                yield self._branches.chain(chain).at(version) if head is None else head
            except HistoryReclaimed:
                if self._keeps(chain, version):
                    raise

    def _files_of(self, key: tuple[str, int]) -> frozenset[str] | GraphError:
        try:
            return self._sweeper.needs(*key)
        except GraphError as error:
            return error

    def _is_promised(self, state: ManifestState) -> bool:
        return self._keeps(state.line.incarnation, state.version)

    def _keeps(self, chain: str, version: int) -> bool:
        """Look whether a version is still promised: another cleanup may have given it up meanwhile."""
        head = self._branches.chain(chain).latest()
        return head.tombstone is None and head.keeps(version)

    def _read_now(self, known: FilesOf) -> dict[tuple[str, int], frozenset[str]]:
        """Return what readers of this process need besides; one whose files are gone gets its own error."""
        pins = (pin for state in self._readers() for pin in state.pins.values())
        keys = {(pin.table_id, pin.version) for pin in pins} - known.keys()
        answers = ((key, self._files_of(key)) for key in sorted(keys))
        return {key: files for key, files in answers if not isinstance(files, GraphError)}

    def _pins(self, state: ManifestState) -> Iterator[tuple[str, int]]:
        """Yield what a state pins, but for tables that a hard drop took away."""
        chain = self._branches.chain(state.line.incarnation)
        for table_id, pin in state.pins.items():
            with suppress(HistoryReclaimed):
                check_kept(chain, state, table_id)
                yield table_id, pin.version

    # -- choosing ----------------------------------------------------------------------------------

    def _doomed(self, listing: _Listing, plan: RetentionPlan, needs: _Needs, now_us: int) -> list[_Doomed]:
        parts = [*self._doomed_tables(listing, needs, now_us)]
        gone = {file.key for part in parts for file in (*part.versions, *part.files)}
        parts += [
            self._doomed_chains(listing, plan, now_us),
            self._doomed_registry(listing, now_us),
            _Doomed("schemas", "system", files=_unused_schemas(listing, needs)),
            _Doomed("kept", "system", files=_unkept(listing, plan)),
            _Doomed("claims", "system", files=_past_claims(listing, now_us)),
            _Doomed("leftovers", "system", files=_leftovers(listing)),
            self._doomed_logs(listing, gone),
        ]
        return [part for part in parts if part]

    def _may_go(self, file: StoredObject, listing: _Listing, now_us: int) -> bool:
        """Say whether a file is old enough. Lance writes under a name with a dot, and renames at the end."""
        unfinished = file.key.rpartition("/")[2].startswith(".")
        before_us = min(listing.before_us, now_us - BEING_WRITTEN_US) if unfinished else listing.before_us
        return file.modified_us < before_us

    def _doomed_tables(self, listing: _Listing, needs: _Needs, now_us: int) -> Iterator[_Doomed]:
        stored = listing.tables()
        rows = []
        for table_id, files in stored.items():
            old = {path: file for path, file in files.items() if self._may_go(file, listing, now_us)}
            unneeded = self._sweeper.unneeded(table_id, old, needs.tables.get(table_id, ()))
            name, kind = needs.names.get(table_id, (table_id, "table"))
            versions = tuple(old[path] for path in unneeded if path.startswith(VERSIONS))
            others = tuple(old[path] for path in unneeded if not path.startswith(VERSIONS))
            rows.append(_Doomed(name, kind, versions, others))
        yield from sorted(rows, key=lambda part: (part.kind, part.name))

    def _doomed_chains(self, listing: _Listing, plan: RetentionPlan, now_us: int) -> _Doomed:
        """Choose the versions of chains below their floors, and chains of branches that are gone."""
        versions: list[StoredObject] = []
        others: list[StoredObject] = []
        for chain, files in self._chains(listing, now_us).items():
            if chain in plan.heads:
                first: int | None = plan.floors[chain]
            elif chain in plan.retired:
                continue
            else:
                first = self._end_of(chain, listing)
            for file in files:
                number = _version_of(file.key)
                if first is None or (number is not None and number < first):
                    (versions if file.key.endswith(".manifest") else others).append(file)
        return _Doomed("manifest", "system", tuple(versions), tuple(others))

    def _chains(self, listing: _Listing, now_us: int) -> dict[str, list[StoredObject]]:
        by_chain: dict[str, list[StoredObject]] = {}
        for file in self._settled(listing, MANIFEST, now_us):
            chain = file.key.removeprefix(TREE).split("/", 1)[0] if file.key.startswith(TREE) else MAIN
            by_chain.setdefault(chain, []).append(file)
        return by_chain

    def _end_of(self, chain: str, listing: _Listing) -> int | None:
        """Return the last version of a chain that no branch has; None if nobody can hold the chain."""
        stored = [file for file in listing.parts[MANIFEST] if file.key.startswith(f"{chain_path(chain)}/")]
        numbers = [_version_of(file.key) for file in stored if file.key.endswith(".manifest")]
        last = max((number for number in numbers if number is not None), default=0)
        if any(file.modified_us >= listing.before_us for file in stored):
            return last  # somebody may be making it
        # Only a create that never gave it a name ends a chain at its first version: whoever is about to
        # must begin again, since the registry moves.
        return None if last <= 1 else last

    def _doomed_registry(self, listing: _Listing, now_us: int) -> _Doomed:
        """Choose old versions of the registry, once there are many: nobody reads them."""
        numbers = {_version_of(file.key) for file in listing.parts[REFS] if file.key.endswith(".manifest")}
        if len(numbers) <= 2 * REGISTRY_KEPT:  # each cleanup adds some: the next must not have to begin again
            return _Doomed("registry", "system")
        first = max(number or 0 for number in numbers) - REGISTRY_KEPT
        files = self._settled(listing, REFS, now_us)
        old = [file for file in files if (_version_of(file.key) or first) < first]
        versions = tuple(file for file in old if file.key.endswith(".manifest"))
        return _Doomed("registry", "system", versions, tuple(file for file in old if file not in versions))

    def _settled(self, listing: _Listing, part: str, now_us: int) -> list[StoredObject]:
        return [file for file in listing.old(part) if file.modified_us <= now_us - self._stall_us]

    def _doomed_logs(self, listing: _Listing, gone: Collection[str]) -> _Doomed:
        """Choose the logs of checksums that hold lines of files that are gone."""
        stored = {table_id: set[str]() for table_id in listing.tables()}
        for file in listing.parts.get(TABLES, ()):
            if file.key not in gone:
                _, table_id, path = file.key.split("/", 2)
                stored[table_id].add(path)
        by_table: dict[str, list[StoredObject]] = {}
        for file in listing.old(CHECKSUMS):
            if _is_whole(file):
                by_table.setdefault(file.key.split("/")[1], []).append(file)
        files: list[StoredObject] = []
        logs: list[RewrittenLog] = []
        for table_id, old in sorted(by_table.items()):
            rewritten = self._checksums.rewritten(
                table_id, [file.key for file in old], stored.get(table_id, ())
            )
            if rewritten is not None:
                files += old
                logs += [rewritten] if rewritten.content else []
        return _Doomed("checksums", "system", files=tuple(files), logs=tuple(logs))

    # -- deleting ----------------------------------------------------------------------------------

    def _delete(self, part: _Doomed) -> CleanedPart:
        """Delete one part; what fails is told, and the rest goes on."""
        try:
            for log in part.logs:
                self._checksums.put(log)
            refused = self._sweeper.try_delete(file.key for file in part.versions)
            if not refused:
                refused = self._sweeper.try_delete(file.key for file in part.files)
            elif part.files:
                part = replace(part, files=())  # files of a version that is still stored stay
        except GraphError as error:
            return CleanedPart(part.name, part.kind, error=str(error))
        if not refused:
            return part.report
        left = replace(
            part,
            versions=tuple(file for file in part.versions if file.key not in refused),
            files=tuple(file for file in part.files if file.key not in refused),
        )
        first = str(next(iter(refused.values())))
        return replace(left.report, error=f"{len(refused)} files could not be deleted: {first}")


def _version_of(key: str) -> int | None:
    """Return the version that a file of a chain or of the registry belongs to."""
    name = key.rpartition("/")[2]
    number = name.partition("-")[0] if name.endswith(".txn") else name.removesuffix(".manifest")
    if not number.isdigit():
        return None
    return int(number) + 1 if name.endswith(".txn") else MAX_VERSION - int(number)


def _unused_schemas(listing: _Listing, needs: _Needs) -> tuple[StoredObject, ...]:
    return tuple(
        file for file in listing.old(SCHEMAS) if _is_whole(file) and _stem(file.key) not in needs.schemas
    )


def _unkept(listing: _Listing, plan: RetentionPlan) -> tuple[StoredObject, ...]:
    kept = {kept_path(chain, version) for chain, versions in plan.kept.items() for version in versions}
    return tuple(file for file in listing.old(KEPT) if _is_whole(file) and file.key not in kept)


def _past_claims(listing: _Listing, now_us: int) -> tuple[StoredObject, ...]:
    past = (file for file in listing.old(CLAIMS) if file.modified_us < now_us - CLAIMS_STAY_US)
    return tuple(file for file in past if _is_whole(file))


def _leftovers(listing: _Listing) -> tuple[StoredObject, ...]:
    """Return what processes that died while they made an object left of it."""
    unfinished = (SCHEMAS, KEPT, CLAIMS, CHECKSUMS)
    parts = [file for part in unfinished for file in listing.old(part) if file.key.endswith(".part")]
    probes = [file for part in listing.parts if part.startswith("__probe-") for file in listing.old(part)]
    return (*parts, *probes)


def _is_whole(file: StoredObject) -> bool:
    return not file.key.endswith(".part")


def _stem(key: str) -> str:
    return key.rpartition("/")[2].partition(".")[0]


def _condemned(listing: _Listing, doomed: Iterable[_Doomed]) -> frozenset[str]:
    """Return the schemas and tables that a writer could come to use again by their names."""
    names: set[str] = set()
    for part in doomed:
        for file in (*part.versions, *part.files):
            folder, _, path = file.key.partition("/")
            if folder == SCHEMAS:
                names.add(_stem(file.key))
            elif folder == TABLES and path.endswith(manifest_path(CREATED)):
                names.add(path.partition("/")[0])
    return frozenset(names)


def _names(listing: _Listing) -> set[str]:
    return {*listing.tables(), *(_stem(file.key) for file in listing.parts.get(SCHEMAS, ()))}
