"""Outside: what others left in the folders of a graph, and what nothing needs any more.

A table is read at the versions that branches pin, so whatever another program commits to the head of a table
is seen by nobody. Automatic cleanup, which such a program can switch on, would delete files that only pinned
versions need: that is a warning. Everything else here is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.base.errors import counted
from omnigraph.engine.doctor.examination import Examination, Walked
from omnigraph.engine.doctor.lineage import told, walk
from omnigraph.engine.doctor.report import DoctorFinding, FindingPlace
from omnigraph.storage.derived.adjacency import is_adjacency
from omnigraph.storage.derived.files import is_derived, is_unfinished
from omnigraph.storage.manifest.chain import MANIFEST, chain_path, versions
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS
from omnigraph.storage.tables.files import CREATED, TABLES, VERSIONS, covers, referenced

AUTO_CLEANUP = "lance.auto_cleanup"
FEW_PINS = 2_000  # versions of tables that are opened to find leftovers, without `deep`
CLEANUP = "It is harmless"


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
    found = [
        version for version in versions(exam.store.location, f"{TABLES}/{table_id}") if version > CREATED
    ]
    if found:
        what = (
            f"another program made {counted(len(found), 'commit')} on the head of a table; "
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
    config = exam.store.opener.at(path, stored[-1]).config()
    keys = frozenset(key for key in config if key.startswith(AUTO_CLEANUP))
    if not keys:
        return
    what = (
        f"automatic cleanup is configured ({', '.join(sorted(keys))}): Lance may delete files that are needed"
    )
    table_id = path.removeprefix(f"{TABLES}/") if path.startswith(TABLES) else None
    if table_id is not None:
        exam.configured[table_id] = keys
        remedy = "Let 'omnigraph doctor --fix' take it out"
    else:
        remedy = "Take these keys out of the configuration of the dataset with Lance, while nobody writes"
    name = None if table_id is None else _name(exam, table_id)
    yield DoctorFinding("auto_cleanup", "warning", what, remedy, FindingPlace(type=name, file=path))


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
    known: dict[str, list[int]] = {}
    for table_id, version in sorted(pins):
        known.setdefault(table_id, []).append(version)
    for table_id in sorted(known.keys() | _stored_tables(exam)):
        if table_id not in known:
            what = f"table {table_id} is pinned by no version that is kept"
            yield DoctorFinding(
                "leftover_table", "info", what, CLEANUP, FindingPlace(file=f"{TABLES}/{table_id}")
            )
            continue
        yield from _leftover_files(exam, table_id, known[table_id])
    named = {digest for one in walks for digest in one.schemas}
    named |= {snapshot.schema for snapshot in exam.states}
    objects = exam.store.location.objects.list(SCHEMAS)
    unused = sorted(
        key for key, _ in objects if key.removeprefix(f"{SCHEMAS}/").removesuffix(".json") not in named
    )
    if unused:
        what = f"{counted(len(unused), 'schema object')} that no version names"
        yield DoctorFinding("leftover_schema", "info", what, CLEANUP, FindingPlace(file=unused[0]))


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


def _stored_tables(exam: Examination) -> set[str]:
    keys = (key.split("/") for key, _ in exam.store.location.objects.list(TABLES))
    return {parts[1] for parts in keys if len(parts) > 2}


def _leftover_files(exam: Examination, table_id: str, pinned: list[int]) -> Iterator[DoctorFinding]:
    needed: set[str] = set()
    for version in pinned:
        try:
            needed |= referenced(exam.store.opener.at(f"{TABLES}/{table_id}", version))
        except Exception as error:  # noqa: BLE001 - its own check reports it
            exam.limits.append(f"table {table_id}: {told(error)}")
            return
    folders = {name for name in needed if name.endswith("/")}
    left = {
        name: size
        for name, size in exam.files(table_id).items()
        if name not in needed
        and not covers(folders, name)
        and not _is_foreign(name)
        and not is_adjacency(name)
    }
    left |= {
        name: size for name, size in exam.files(table_id).items() if is_derived(name) and is_unfinished(name)
    }
    if left:
        what = (
            f"{counted(len(left), 'file')}, {sum(left.values())} bytes, that no version that is kept needs: "
            "of writers that were interrupted, or are at work"
        )
        where = FindingPlace(type=_name(exam, table_id), file=f"{TABLES}/{table_id}/{min(left)}")
        yield DoctorFinding("leftover_files", "info", what, CLEANUP, where)


def _is_foreign(name: str) -> bool:
    """Say whether a file is a numbered version of a table: that of another program, reported by itself."""
    return name.startswith(VERSIONS) and name.removeprefix(VERSIONS).removesuffix(".manifest").isdigit()
