"""Lineage: names, heads, the history behind them, and schemas.

The versions of a chain from its retention floor to its head are one history: none is missing, each is the
version before it with one commit more, or the same commit again (a control write). All of them are read where
they are few, or in a deep examination; of more, one in so many, whose lists of recent commits must overlap.
What a cleanup kept below the floor is read in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.base.errors import FormatMismatch, GraphError, HistoryReclaimed
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.doctor.examination import Examination, ExaminedBranch, ExaminedTag, Walked
from omnigraph.engine.doctor.report import DoctorFinding, FindingPlace
from omnigraph.storage.manifest.chain import chain_path, check_kept, kept_path, versions
from omnigraph.storage.manifest.records import RECENT, ManifestState
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS
from omnigraph.storage.tables.files import TABLES, manifest_path
from omnigraph.storage.transaction import PinnedSnapshot

FEW_VERSIONS = 512  # of a chain: so many are all read, whatever was asked for
STRIDE = RECENT - 1
RESTORE = "Restore the file from a copy of the graph"


def told(error: BaseException) -> str:
    """Return an error as one line that ends without a full stop."""
    text = error.message if isinstance(error, GraphError) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0].rstrip(".")


def remedy_of(error: BaseException, otherwise: str) -> str:
    """Return what an error says to do."""
    remedy = error.remedy if isinstance(error, GraphError) else None
    return remedy or otherwise


# -- names and heads ---------------------------------------------------------------------------------


def names(exam: Examination, _: None) -> Iterator[DoctorFinding]:
    """Check that the registry of branches and tags can be read."""
    if isinstance(exam.registry, Exception):
        error = exam.registry
        yield DoctorFinding(
            "format" if isinstance(error, FormatMismatch) else "registry_unreadable",
            "error",
            f"the names of branches and tags cannot be read, so main alone was looked at: {told(error)}",
            remedy_of(error, RESTORE),
            FindingPlace(file=REFS),
        )


def heads(exam: Examination, branch: ExaminedBranch) -> Iterator[DoctorFinding]:
    """Check that the newest version of a branch can be read, in a format of ours."""
    error = branch.error
    if error is not None:
        code = "format" if isinstance(error, FormatMismatch) else "head_unreadable"
        yield DoctorFinding(
            code,
            "error",
            f"the newest version of branch {branch.name!r} cannot be read: {told(error)}",
            remedy_of(error, RESTORE),
            FindingPlace(branch=branch.name, file=chain_path(branch.chain.incarnation)),
        )


def tags(exam: Examination, tag: ExaminedTag) -> Iterator[DoctorFinding]:
    """Check that the commit of a tag can be found."""
    where = FindingPlace(branch=tag.branch, commit=tag.ref.commit_id)
    if isinstance(tag.error, HistoryReclaimed):
        what = f"tag {tag.ref.name!r} names a commit that retention took away"
        yield DoctorFinding("tag_reclaimed", "warning", what, "Delete the tag: it cannot be read", where)
    elif tag.error is not None:
        what = f"the commit of tag {tag.ref.name!r} cannot be read: {told(tag.error)}"
        yield DoctorFinding("tag_unreadable", "error", what, remedy_of(tag.error, RESTORE), where)


# -- history -----------------------------------------------------------------------------------------


def lineage(exam: Examination, branch: ExaminedBranch) -> Iterator[DoctorFinding]:
    """Check that the versions of a branch are one connected history."""
    yield from walk(exam, branch).breaks


def walk(exam: Examination, branch: ExaminedBranch) -> Walked:
    """Walk over the versions of a chain from its floor on, once."""
    known = exam.walked.get(branch.chain.incarnation)
    if known is None:
        known = exam.walked[branch.chain.incarnation] = _walk(exam, branch)
    return known


def _walk(exam: Examination, branch: ExaminedBranch) -> Walked:
    head, walked = branch.head, Walked()
    assert head is not None
    first = max(1, head.floor)
    path = chain_path(branch.chain.incarnation)
    stored = set(versions(exam.store.location, path))
    missing = [version for version in range(first, head.version) if version not in stored]
    for version in missing[:RECENT]:
        where = FindingPlace(branch=branch.name, file=f"{path}/_versions/{manifest_file(version)}")
        walked.breaks.append(_broken(f"version {version} of the history is not stored", where))
    gap = set(missing)
    count = head.version - first + 1
    walked.every = exam.deep or count <= FEW_VERSIONS
    wanted = range(first, head.version + 1) if walked.every else _strided(first, head.version)
    if not walked.every:
        exam.limits.append(
            f"branch {branch.name}: one in {STRIDE} of {count} versions was read; --deep reads all"
        )
    before: ManifestState | None = None
    for version in wanted:
        state = None if version in gap else _read(branch, version, walked)
        if state is not None:
            _note(branch, state, walked)
            if before is not None:
                walked.breaks += _link(branch, before, state, walked.every)
        before = state
    if first == 1 and 1 not in gap:
        walked.breaks += _fork(exam, branch)
    for version in head.kept:
        state = _read_kept(branch, version, walked)
        if state is not None:
            _note(branch, state, walked)
    return walked


def _strided(first: int, last: int) -> list[int]:
    return [*range(first, last, STRIDE), last]


def _read(branch: ExaminedBranch, version: int, walked: Walked) -> ManifestState | None:
    head = branch.head
    if head is not None and version == head.version:
        return head
    try:
        return branch.chain.at(version)
    except Exception as error:  # noqa: BLE001 - reported here
        path = f"{chain_path(branch.chain.incarnation)}/_versions/{manifest_file(version)}"
        what = f"version {version} of the history cannot be read: {told(error)}"
        walked.breaks.append(_broken(what, FindingPlace(branch=branch.name, file=path)))
        return None


def _read_kept(branch: ExaminedBranch, version: int, walked: Walked) -> ManifestState | None:
    """Read a version below the floor that a cleanup kept: tags, forks and merges rest on it."""
    try:
        return branch.chain.at(version)
    except Exception as error:  # noqa: BLE001 - reported here
        if not branch.chain.latest().keeps(version):
            return None  # a cleanup gave it up just now
        path = kept_path(branch.chain.incarnation, version)
        where = FindingPlace(branch=branch.name, file=path)
        what = f"version {version}, which a cleanup kept for a tag, a fork or a merge, cannot be read"
        why = "it is not stored" if isinstance(error, HistoryReclaimed) else told(error)
        remedy = "Restore __kept/ from a copy of the graph; until then nothing can be merged or cleaned up"
        walked.breaks.append(DoctorFinding("kept_unreadable", "error", f"{what}: {why}", remedy, where))
        return None


def _note(branch: ExaminedBranch, state: ManifestState, walked: Walked) -> None:
    """Note what a version needs; the newest state that needs it stays."""
    where = FindingPlace(branch=branch.name, commit=state.head)
    walked.schemas[state.schema] = where
    for pin in state.pins.values():
        try:
            check_kept(branch.chain, state, pin.table_id)
        except HistoryReclaimed:
            continue  # a hard drop took it away, and every read says so
        file = f"{TABLES}/{pin.table_id}/{manifest_path(pin.version)}"
        walked.pins[pin.table_id, pin.version] = FindingPlace(branch.name, state.head, pin.name, file)


def _link(
    branch: ExaminedBranch, before: ManifestState, state: ManifestState, neighbours: bool
) -> Iterator[DoctorFinding]:
    """Check that a version follows from one before it."""
    if state.head == before.head:
        return  # a control write
    if neighbours:
        follows = state.commit.parent == before.head
        numbered = (state.commit.manifest_version, state.commit.incarnation) == (
            state.version,
            branch.chain.incarnation,
        )
    else:
        recent = {commit for _, commit in state.recent}  # a fork has none of the commits before it
        follows = before.head in recent or before.commit.incarnation != branch.chain.incarnation
        numbered = True
    if not follows or not numbered:
        yield _broken(
            f"commit {state.head}, version {state.version}, does not follow from commit {before.head}, "
            f"version {before.version}",
            FindingPlace(branch=branch.name, commit=state.head),
        )


def _fork(exam: Examination, branch: ExaminedBranch) -> Iterator[DoctorFinding]:
    """Check that a branch begins with the commit that it was forked at."""
    assert branch.head is not None
    line = branch.head.line
    if line.parent is None or line.fork_version is None:
        return
    parent = exam.store.branches.chain(line.parent)
    where = FindingPlace(branch=branch.name)
    try:
        first, floor = branch.chain.at(1), parent.latest().floor
        if line.fork_version < floor:
            return
        origin = parent.at(line.fork_version)
    except Exception as error:  # noqa: BLE001 - reported here
        yield _broken(f"the version that it was forked at cannot be read: {told(error)}", where)
        return
    if first.head != origin.head:
        what = f"it begins with commit {first.head}, but was forked at commit {origin.head}"
        yield _broken(what, where)


def _broken(what: str, where: FindingPlace) -> DoctorFinding:
    return DoctorFinding("lineage", "error", what, "Restore __manifest/ from a copy of the graph", where)


# -- schemas -----------------------------------------------------------------------------------------


def schemas(exam: Examination, snapshot: PinnedSnapshot) -> Iterator[DoctorFinding]:
    """Check that the schema of a state can be read, and that its types are the tables that are pinned."""
    where = FindingPlace(branch=snapshot.branch, commit=snapshot.commit_id)
    try:
        catalog = exam.catalogs.get(snapshot.schema)
    except Exception as error:  # noqa: BLE001 - reported here
        yield _schema_unreadable(snapshot.schema, error, where)
        return
    yield from _disagreements(catalog, snapshot, where)


def _disagreements(
    catalog: Catalog, snapshot: PinnedSnapshot, where: FindingPlace
) -> Iterator[DoctorFinding]:
    pins = snapshot.state.pins
    for declared in catalog.tables:
        pin = pins.get(declared.id)
        if pin is None:
            yield _mismatch(f"type {declared.name!r} has no table", where, declared.name)
        elif (pin.name, pin.kind) != (declared.name, declared.kind.value):
            said = f"{declared.kind.value} {declared.name!r}"
            what = f"table {pin.table_id} is of {pin.kind} {pin.name!r}, the schema says {said}"
            yield _mismatch(what, where, declared.name)
    declared_ids = {declared.id for declared in catalog.tables}
    for pin in pins.values():
        if pin.table_id not in declared_ids:
            yield _mismatch(f"table {pin.table_id} ({pin.name!r}) has no type in the schema", where, pin.name)


def past_schemas(exam: Examination, branch: ExaminedBranch) -> Iterator[DoctorFinding]:
    """Check that the schemas of older versions can be read."""
    now = {snapshot.schema for snapshot in exam.states}
    for digest, where in sorted(walk(exam, branch).schemas.items()):
        if digest not in now:
            try:
                exam.catalogs.get(digest)
            except Exception as error:  # noqa: BLE001 - reported here
                yield _schema_unreadable(digest, error, where)


def _schema_unreadable(digest: str, error: Exception, where: FindingPlace) -> DoctorFinding:
    place = FindingPlace(where.branch, where.commit, None, f"{SCHEMAS}/{digest}.json")
    return DoctorFinding(
        "schema_unreadable",
        "error",
        f"a schema cannot be read: {told(error)}",
        remedy_of(error, RESTORE),
        place,
    )


def _mismatch(what: str, where: FindingPlace, name: str) -> DoctorFinding:
    place = FindingPlace(where.branch, where.commit, name)
    remedy = "Restore __manifest/ and __schema/ from one copy of the graph"
    return DoctorFinding("schema_mismatch", "error", what, remedy, place)
