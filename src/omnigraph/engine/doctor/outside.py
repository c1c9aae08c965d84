"""Outside: what others left in the folders of a graph, and what nothing needs any more.

A table is read at the versions that branches pin, so whatever another program commits to the head of a table
is seen by nobody. Automatic cleanup, which such a program can switch on, would delete files that only pinned
versions need: that is a warning. Everything else here is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.base.errors import GraphError, counted
from omnigraph.engine.doctor.examination import Examination, Walked
from omnigraph.engine.doctor.lineage import RESTORE, told, walk
from omnigraph.engine.doctor.report import DoctorFinding, FindingPlace
from omnigraph.storage.manifest.chain import MANIFEST, chain_path, versions
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.retention import Retention
from omnigraph.storage.tables.files import CREATED, TABLES

AUTO_CLEANUP = "lance.auto_cleanup"
FEW_PINS = 2_000  # versions of tables that are opened to find leftovers, without `deep`
EVERY_COMMIT = 1 << 62
CLEANUP = "It is harmless; `omnigraph cleanup` deletes it once it is older than the grace period"
LEFTOVER_CODES = {  # by kind and name of what a cleanup would delete
    ("node", ""): "leftover_files",
    ("edge", ""): "leftover_files",
    ("table", ""): "leftover_table",
    ("system", "schemas"): "leftover_schema",
    ("system", "leftovers"): "leftover_files",
}


def table_ids(exam: Examination) -> list[str]:
    """Return the tables that some state pins."""
    return sorted({table.pin.table_id for table in exam.tables})


def datasets(exam: Examination) -> list[str]:
    """Return the paths of everything that Lance could clean up by itself."""
    chains = [chain_path(branch.chain.incarnation) for branch in exam.heads]
    return [REFS, *chains, *(f"{TABLES}/{table_id}" for table_id in table_ids(exam))]


def _name(exam: Examination, table_id: str) -> str | None:
    return next((table.pin.name for table in exam.tables if table.pin.table_id == table_id), None)


# -- other programs ----------------------------------------------------------------------------------


def foreign(exam: Examination, table_id: str) -> Iterator[DoctorFinding]:
    """Report commits of other programs on a table's own head."""
    commits = [
        version for version in versions(exam.store.location, f"{TABLES}/{table_id}") if version > CREATED
    ]
    if commits:
        what = (
            f"another program made {counted(len(commits), 'commit')} on the head of a table; "
            "no branch pins them, and nothing reads them"
        )
        where = FindingPlace(type=_name(exam, table_id), file=f"{TABLES}/{table_id}")
        remedy = "Write through the engine if those rows are meant to be in the graph"
        yield DoctorFinding("foreign_commit", "info", what, remedy, where)


def configuration(exam: Examination, path: str) -> Iterator[DoctorFinding]:
    """Warn where Lance would delete old versions by itself."""
    stored = versions(exam.store.location, path)
    if not stored:
        return
    try:
        config = exam.store.opener.at(path, stored[-1]).config()
    except Exception as error:  # noqa: BLE001 - reported here
        where = FindingPlace(type=_named(exam, path), file=f"{path}/_versions/{manifest_file(stored[-1])}")
        what = f"a version of a dataset cannot be opened: {told(error)}"
        yield DoctorFinding("unreadable", "error", what, RESTORE, where)
        return
    keys = frozenset(key for key in config if key.startswith(AUTO_CLEANUP))
    if not keys:
        return
    what = (
        f"automatic cleanup is configured ({', '.join(sorted(keys))}): Lance may delete files that are needed"
    )
    exam.configured[path] = keys
    remedy = "Let 'omnigraph doctor --fix' take it out"
    where = FindingPlace(type=_named(exam, path), file=path)
    yield DoctorFinding("auto_cleanup", "warning", what, remedy, where)


def _named(exam: Examination, path: str) -> str | None:
    """Return the type whose table a dataset is, if it is one."""
    return _name(exam, path.removeprefix(f"{TABLES}/")) if path.startswith(TABLES) else None


# -- leftovers ---------------------------------------------------------------------------------------


def unfinished(exam: Examination, _: None) -> Iterator[DoctorFinding]:
    """Report changes of names that began and did not end."""
    for ref in exam.refs.branches:
        if ref.deleting and exam.only in (None, ref.name):
            what = f"deleting branch {ref.name!r} began and did not end"
            remedy = "Delete it again to finish that"
            yield DoctorFinding("unfinished_branch", "info", what, remedy, FindingPlace(branch=ref.name))
    for branch in exam.heads:
        if branch.head is not None and branch.head.name not in (None, branch.name):
            what = f"renaming branch {branch.name!r} to {branch.head.name!r} began and did not end"
            remedy = "The next write takes it back; or rename it again"
            yield DoctorFinding("unfinished_branch", "info", what, remedy, branch.place)
    if exam.only is not None:
        return
    named = {ref.incarnation for ref in exam.refs.branches}
    tree = f"{MANIFEST}/tree"
    chains = {key.split("/")[2] for key, _ in exam.store.location.objects.list(tree)}
    nameless = sorted(chains - named)
    if nameless and not isinstance(exam.registry, Exception):
        what = f"{counted(len(nameless), 'chain')} of branches that were deleted, or never finished"
        yield DoctorFinding(
            "unnamed_chain", "info", what, CLEANUP, FindingPlace(file=f"{tree}/{nameless[0]}")
        )


def leftovers(exam: Examination, _: None) -> Iterator[DoctorFinding]:
    """Report files that no version that is kept needs: of crashed writers, or of writers at work."""
    if exam.only is not None:
        exam.limits.append("leftovers are looked for in whole graphs only")
        return
    walks = [walk(exam, branch) for branch in exam.heads]
    pins = {key for one in walks for key in one.pins} | {table.key for table in exam.tables}
    reason = _why_not(exam, walks, len(pins))
    if reason is not None:
        exam.limits.append(reason)
        return
    try:
        preview = exam.store.cleanup(Retention(keep=EVERY_COMMIT, grace_us=0), dry_run=True)
    except GraphError as error:  # what it could not read is reported by its own check
        exam.limits.append(f"a cleanup would delete nothing now: {told(error)}")
        return
    for part in preview.parts:
        code = LEFTOVER_CODES.get((part.kind, part.name)) or LEFTOVER_CODES.get((part.kind, ""))
        if code is not None:
            what = (
                f"{counted(part.files, 'file')}, {part.bytes} bytes, that no version that is kept needs: "
                "of writers that were interrupted, or are at work"
            )
            where = (
                FindingPlace(type=part.name)
                if part.kind in ("node", "edge")
                else FindingPlace(file=part.name)
            )
            yield DoctorFinding(code, "info", what, CLEANUP, where)


def _why_not(exam: Examination, walks: list[Walked], pins: int) -> str | None:
    """Say why nothing can be said about leftovers, if that is so."""
    if isinstance(exam.registry, Exception) or len(exam.heads) < len(exam.branches):
        return "not all branches can be read, so nobody knows what they need"
    if not all(one.every and not one.breaks for one in walks):
        return "not all of history was read; --deep reads it" if not exam.deep else "history is broken"
    if exam.broken:
        return "some tables are damaged, so nobody knows what they need"
    if pins > FEW_PINS and not exam.deep:
        return f"{pins} versions of tables; only --deep opens so many"
    return None
