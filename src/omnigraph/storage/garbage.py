"""Garbage: what of a listing goes, given what stays. Nothing is deleted here.

Every file that goes is older than the grace period. For versions of chains and of the registry that is not
enough: a commit that stalls is believed for a while, so the version whose name it is about to take must be
there until then, and refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.checksums import Checksums, RewrittenLog
from omnigraph.storage.claims import FOLDER as CLAIMS
from omnigraph.storage.location import BEING_WRITTEN_US, UNFINISHED, Location, StoredObject, abandoned
from omnigraph.storage.manifest.chain import KEPT, MANIFEST, chain_path, kept_path
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.refs import REFS, REGISTRY_KEPT
from omnigraph.storage.opener import MAX_VERSION
from omnigraph.storage.retention import DAY_US, InForce, RetentionPlan
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS
from omnigraph.storage.sweep import Sweeper
from omnigraph.storage.tables.files import CREATED, TABLES, VERSIONS, manifest_path

CLAIMS_STAY_US = 7 * DAY_US  # an idempotency key is good for this long at least
TREE = f"{MANIFEST}/tree/"
FilesOf = Mapping[tuple[str, int], frozenset[str]]  # a version of a table -> the files that it needs


# -- what is stored, what is needed, what goes ---------------------------------------------------------


@dataclass(frozen=True)
class Doomed:
    """The files of one part that go, in the order of their deletion."""

    name: str
    kind: str
    versions: tuple[StoredObject, ...] = ()  # these first: a version that is still stored is whole
    files: tuple[StoredObject, ...] = ()
    logs: tuple[RewrittenLog, ...] = ()  # what takes the place of some of the files

    def __bool__(self) -> bool:
        return bool(self.versions or self.files)

    @property
    def every(self) -> tuple[StoredObject, ...]:
        """All of them."""
        return (*self.versions, *self.files)

    def only(self, keys: Collection[str]) -> Doomed:
        """Return those of the files that are among some."""
        versions, files = (
            tuple(file for file in part if file.key in keys) for part in (self.versions, self.files)
        )
        return replace(self, versions=versions, files=files, logs=self.logs if files else ())


@dataclass(frozen=True)
class Listing:
    """Everything that a graph stores, and the time before which a file must be written to go."""

    now_us: int
    before_us: int
    parts: Mapping[str, tuple[StoredObject, ...]]  # by the first folder

    @classmethod
    def of(cls, location: Location, now_us: int, grace_us: int) -> Listing:
        """List a graph."""
        parts: dict[str, list[StoredObject]] = {}
        for file in location.objects.entries():
            parts.setdefault(file.key.split("/", 1)[0], []).append(file)
        ordered = {part: tuple(sorted(files, key=lambda file: file.key)) for part, files in parts.items()}
        return cls(now_us, now_us - grace_us, ordered)

    def old(self, part: str, least_us: int = 0) -> list[StoredObject]:
        """Return the files of a part that are old enough to go; some must have an age of their own."""
        before_us = min(self.before_us, self.now_us - least_us)
        return [file for file in self.parts.get(part, ()) if file.modified_us < before_us]

    @property
    def names(self) -> set[str]:
        """The schemas and tables that are stored."""
        return {*self.tables(), *(_stem(file.key) for file in self.parts.get(SCHEMAS, ()))}

    def tables(self) -> dict[str, dict[str, StoredObject]]:
        """Return the files of every table, by their path inside it."""
        by_table: dict[str, dict[str, StoredObject]] = {}
        for file in self.parts.get(TABLES, ()):
            _, table_id, path = (*file.key.split("/", 2), "")[:3]
            if path:  # a file beside the tables is nobody's
                by_table.setdefault(table_id, {})[path] = file
        return by_table


@dataclass(frozen=True)
class Needs:
    """What the versions that stay need."""

    by_version: FilesOf
    tables: Mapping[str, set[str]]
    schemas: frozenset[str]
    names: Mapping[str, tuple[str, str]]  # table -> type and kind


class Garbage:
    """Chooses what goes."""

    def __init__(self, sweeper: Sweeper, checksums: Checksums, stall_us: int) -> None:
        self._sweeper = sweeper
        self._checksums = checksums
        self._stall_us = stall_us

    def choose(self, listing: Listing, plan: RetentionPlan, needs: Needs) -> list[Doomed]:
        """Return what goes of every part of which something does."""
        parts = self._tables(listing, needs)
        gone = {file.key for part in parts for file in part.every}
        parts += [
            self._chains(listing, plan),
            self._registry(listing),
            Doomed("schemas", "system", files=_unused_schemas(listing, needs)),
            Doomed("kept", "system", files=_unkept(listing, plan)),
            Doomed("claims", "system", files=_past_claims(listing)),
            Doomed("leftovers", "system", files=_leftovers(listing)),
            self._logs(listing, gone),
        ]
        return [part for part in parts if part]

    def _tables(self, listing: Listing, needs: Needs) -> list[Doomed]:
        parts = []
        for table_id, files in listing.tables().items():
            old = {path: file for path, file in files.items() if _may_go(file, listing)}
            unneeded = self._sweeper.unneeded(table_id, old, needs.tables.get(table_id, ()))
            name, kind = needs.names.get(table_id, (table_id, "table"))
            versions = tuple(old[path] for path in unneeded if path.startswith(VERSIONS))
            others = tuple(old[path] for path in unneeded if not path.startswith(VERSIONS))
            parts.append(Doomed(name, kind, versions, others))
        return sorted(parts, key=lambda part: (part.kind, part.name))

    def _chains(self, listing: Listing, plan: RetentionPlan) -> Doomed:
        """Choose the versions of chains below their floors, and chains of branches that are gone."""
        versions: list[StoredObject] = []
        others: list[StoredObject] = []
        for chain, files in _by_chain(listing.old(MANIFEST, self._stall_us)).items():
            if chain in plan.heads:
                first: int | None = plan.floors[chain]
            elif chain in plan.retired or chain in plan.in_force:
                continue
            else:
                first = _end_of(chain, listing)
            for file in files:
                number = _version_of(file.key)
                if first is None or (number is not None and number < first):
                    (versions if file.key.endswith(".manifest") else others).append(file)
        return Doomed("manifest", "system", tuple(versions), tuple(others))

    def _registry(self, listing: Listing) -> Doomed:
        """Choose old versions of the registry, once there are many: nobody reads them."""
        numbers = {_version_of(file.key) for file in listing.parts[REFS] if file.key.endswith(".manifest")}
        if len(numbers) <= 2 * REGISTRY_KEPT:  # each cleanup adds some: the next must not have to begin again
            return Doomed("registry", "system")
        first = max(number or 0 for number in numbers) - REGISTRY_KEPT
        files = listing.old(REFS, self._stall_us)
        old = [file for file in files if (_version_of(file.key) or first) < first]
        versions = tuple(file for file in old if file.key.endswith(".manifest"))
        return Doomed("registry", "system", versions, tuple(file for file in old if file not in versions))

    def _logs(self, listing: Listing, gone: Collection[str]) -> Doomed:
        """Choose the logs of checksums that hold lines of files that are gone."""
        stored = {
            table_id: {path for path, file in files.items() if file.key not in gone}
            for table_id, files in listing.tables().items()
        }
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
        return Doomed("checksums", "system", files=tuple(files), logs=tuple(logs))


def condemned_by(doomed: Iterable[Doomed]) -> frozenset[str]:
    """Return the schemas and tables that a writer could come to use again by their names."""
    names: set[str] = set()
    for part in doomed:
        for file in part.every:
            folder, _, path = file.key.partition("/")
            if folder == SCHEMAS:
                names.add(_stem(file.key))
            elif folder == TABLES and path.endswith(manifest_path(CREATED)):
                names.add(path.partition("/")[0])
    return frozenset(names)


def _may_go(file: StoredObject, listing: Listing) -> bool:
    """Say whether a file is old enough. Lance writes under a name with a dot, and renames at the end."""
    unfinished = file.key.rpartition("/")[2].startswith(".")
    least_us = BEING_WRITTEN_US if unfinished else 0
    return file.modified_us < min(listing.before_us, listing.now_us - least_us)


def ended(listing: Listing) -> Callable[[str], bool]:
    """Return what says of a chain that nothing of it can be read any longer; its end alone may be stored."""
    manifests = [file for file in listing.parts[MANIFEST] if file.key.endswith(".manifest")]
    stored = {chain: len(files) for chain, files in _by_chain(manifests).items()}
    kept = {file.key.split("/")[1] for file in listing.parts.get(KEPT, ())}
    return lambda chain: stored.get(chain, 0) <= 1 and chain not in kept


def in_force(listing: Listing, newest: Mapping[str, int]) -> InForce:
    """Return which versions of each chain were the newest at some time within the grace period.

    A version was until the next one came: those that are young, and the one before them. `newest` says what
    the live chains had before the listing was made: a version may be superseded without being young.
    """
    numbers = {chain: [version] for chain, version in newest.items()}
    for file in listing.parts.get(MANIFEST, ()):
        version = _version_of(file.key) if file.key.endswith(".manifest") else None
        if version is not None and file.modified_us >= listing.before_us:
            numbers.setdefault(_chain_of(file.key), []).extend((max(1, version - 1), version))
    return {chain: range(min(some), max(some) + 1) for chain, some in numbers.items()}


def _by_chain(files: Iterable[StoredObject]) -> dict[str, list[StoredObject]]:
    by_chain: dict[str, list[StoredObject]] = {}
    for file in files:
        by_chain.setdefault(_chain_of(file.key), []).append(file)
    return by_chain


def _chain_of(key: str) -> str:
    return key.removeprefix(TREE).split("/", 1)[0] if key.startswith(TREE) else MAIN


def _end_of(chain: str, listing: Listing) -> int | None:
    """Return the last version of a chain that no branch has; None if nobody can hold the chain."""
    stored = [file for file in listing.parts[MANIFEST] if file.key.startswith(f"{chain_path(chain)}/")]
    numbers = [_version_of(file.key) for file in stored if file.key.endswith(".manifest")]
    last = max((number for number in numbers if number is not None), default=0)
    if any(file.modified_us >= listing.before_us for file in stored):
        return last  # somebody may be making it
    # Only a create that never gave it a name ends a chain at its first version: whoever is about to
    # must begin again, since the registry moves.
    return None if last <= 1 else last


def _version_of(key: str) -> int | None:
    """Return the version that a file of a chain or of the registry belongs to."""
    name = key.rpartition("/")[2]
    number = name.partition("-")[0] if name.endswith(".txn") else name.removesuffix(".manifest")
    if not number.isdigit():
        return None
    return int(number) + 1 if name.endswith(".txn") else MAX_VERSION - int(number)


def _unused_schemas(listing: Listing, needs: Needs) -> tuple[StoredObject, ...]:
    return tuple(
        file for file in listing.old(SCHEMAS) if _is_whole(file) and _stem(file.key) not in needs.schemas
    )


def _unkept(listing: Listing, plan: RetentionPlan) -> tuple[StoredObject, ...]:
    """Choose states below the floor that nothing names any more.

    One that is not below it was put apart by another cleanup, which is about to raise the floor past it.
    """
    kept = {kept_path(chain, version) for chain, versions in plan.kept.items() for version in versions}
    whole = (file for file in listing.old(KEPT) if _is_whole(file) and file.key not in kept)
    return tuple(file for file in whole if _is_below(file.key, plan.floors))


def _is_below(key: str, floors: Mapping[str, int]) -> bool:
    _, chain, name = key.split("/", 2)
    number = name.removesuffix(".json")
    return chain not in floors or not number.isdigit() or int(number) < floors[chain]


def _past_claims(listing: Listing) -> tuple[StoredObject, ...]:
    return tuple(file for file in listing.old(CLAIMS, CLAIMS_STAY_US) if _is_whole(file))


def _leftovers(listing: Listing) -> tuple[StoredObject, ...]:
    """Return what processes that died while they made an object left of it."""
    unfinished = (SCHEMAS, KEPT, CLAIMS, CHECKSUMS)
    parts = [file for part in unfinished for file in listing.old(part) if file.key.endswith(".part")]
    probes = [file for part in listing.parts if part.startswith("__probe-") for file in listing.old(part)]
    copies = abandoned(listing.old(UNFINISHED), listing.now_us)
    return (*parts, *probes, *copies)


def _is_whole(file: StoredObject) -> bool:
    return not file.key.endswith(".part")


def _stem(key: str) -> str:
    return key.rpartition("/")[2].partition(".")[0]
