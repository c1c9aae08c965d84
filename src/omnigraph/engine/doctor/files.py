"""Files: everything that a state needs is stored, as long as it was when it was written, and can be read.

What a version of a table needs is what Lance's own metadata names (storage/tables/files.py). Sizes are known
from that metadata and from the checksums. The bytes themselves are looked at in a deep examination: each file
is compared with its checksum, and every row is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.base.errors import counted
from omnigraph.catalog.model import TableType
from omnigraph.engine.doctor.examination import Examination, ExaminedBranch, ExaminedTable
from omnigraph.engine.doctor.lineage import told, walk
from omnigraph.engine.doctor.report import DoctorFinding, FindingPlace
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.deletions import is_deletions
from omnigraph.storage.tables.files import TABLES, manifest_path, referenced, stored_files
from omnigraph.storage.tables.inspection import data_file_sizes, read_all

SHOWN = 20  # findings of one sort about one table; then it says how many more there are
NEEDED = ("data/", "_deletions/", "_indices/")  # what reads of a version look at, beside the version itself
RESTORE = "Restore the file from a copy of the graph"
LOOKED_BACK = 1_000  # versions of a branch that are searched for one that is whole


# -- pins and their files ----------------------------------------------------------------------------


def pins(exam: Examination, table: ExaminedTable) -> Iterator[DoctorFinding]:
    """Check that a table opens at the version that is pinned, and has the rows that its pin says."""
    try:
        handle = exam.handle(table)
        rows = exam.store.reads.layout(handle).rows
    except Exception as error:  # noqa: BLE001 - reported here
        exam.broken[table.key] = "it does not open"
        exam.unopened.add(table.key)
        what = f"{table.pin.name!r} does not open at its pinned version: {told(error)}"
        where = table.place(manifest_path(table.pin.version))
        yield DoctorFinding("pin_broken", "error", what, _way_back(exam, table), where)
        return
    if rows != table.pin.rows:
        what = f"{table.pin.name!r} has {counted(rows, 'row')}, its pin says {table.pin.rows}"
        yield DoctorFinding("row_count", "error", what, RESTORE, table.place())


def files(exam: Examination, table: ExaminedTable) -> Iterator[DoctorFinding]:
    """Check that all files of a version are stored, with their sizes."""
    if table.key in exam.broken:
        return
    handle = exam.handle(table)
    stored, known = exam.files(table.pin.table_id), exam.recorded(table.pin.table_id)
    sizes = {file: checksum.size for file, checksum in known.items()} | data_file_sizes(handle)
    needed = _needed(handle, stored, sizes)
    faults = [(file, _fault(file, stored, sizes) or _wrong_deletions(exam, table, file)) for file in needed]
    wrong = [(file, fault) for file, fault in faults if fault is not None]
    if any(not file.startswith("_indices/") for file, _ in wrong):
        exam.broken[table.key] = "its files are damaged"
    exam.reported.update(f"{TABLES}/{table.pin.table_id}/{file}" for file, _ in wrong)
    for file, (code, what) in wrong[:SHOWN]:
        if file.startswith("_indices/"):
            exam.broken_indexes.add((table.pin.table_id, file.split("/")[1]))
            what = f"{what}; it is part of an index"
            yield DoctorFinding("index_file", "error", what, REBUILD, table.place(file))
        else:
            yield DoctorFinding(code, "error", what, _way_back(exam, table), table.place(file))
    if len(wrong) > SHOWN:
        more = f"{len(wrong) - SHOWN} more files of {table.pin.name!r} are missing or damaged"
        yield DoctorFinding("file_missing", "error", more, RESTORE, table.place())


REBUILD = "Let 'omnigraph doctor --fix' build the index anew"


def _needed(handle: Handle, stored: dict[str, int], sizes: dict[str, int]) -> list[str]:
    """Return the files of a version that reads look at; a folder stands for what is known to be in it."""
    found: set[str] = set()
    for name in referenced(handle):
        if not name.startswith(NEEDED):
            continue
        if not name.endswith("/"):
            found.add(name)
            continue
        inside = {file for file in (*stored, *sizes) if file.startswith(name)}
        found |= inside
        if not inside and name.startswith("_indices/"):
            found.add(name)  # an index is never without a file
    return sorted(found)


def _fault(file: str, stored: dict[str, int], sizes: dict[str, int]) -> tuple[str, str] | None:
    if file not in stored:
        return "file_missing", "a file that is needed is not stored"
    if stored[file] != sizes.get(file, stored[file]):
        return "file_size", f"a file has {stored[file]} bytes, and was written with {sizes[file]}"
    return None


def _wrong_deletions(exam: Examination, table: ExaminedTable, file: str) -> tuple[str, str] | None:
    """Look at a deletion file, which is small, before Lance does: on a bad one it aborts the process."""
    if not file.startswith("_deletions/"):
        return None
    recorded = exam.recorded(table.pin.table_id).get(file)
    if recorded is not None:
        damaged = exam.store.checksums.check(table.pin.table_id, file, recorded)
        return None if damaged is None else ("checksum", str(damaged))
    content = exam.store.location.objects.read(f"{TABLES}/{table.pin.table_id}/{file}") or b""
    for fragment in exam.handle(table).get_fragments():
        deletion = fragment.metadata.deletion_file
        if deletion is None or str(deletion.path(fragment.fragment_id)) != file:
            continue
        deleted, rows = deletion.num_deleted_rows, fragment.metadata.physical_rows
        if not is_deletions(content, file.rpartition(".")[2], deleted, rows):
            what = f"a deletion file does not say which {deleted} of {rows} rows are deleted"
            return "damaged_deletions", what
    return None


def _way_back(exam: Examination, table: ExaminedTable) -> str:
    """Say what to do about a table that is damaged: which commit of its branch still has it whole."""
    branch = next((one for one in exam.heads if one.name == table.snapshot.branch), None)
    state, tried = table.snapshot.state, {table.pin.version}
    table_id = table.pin.table_id
    stored = stored_files(exam.store.location, table_id)
    for version in range(state.version - 1, max(state.version - LOOKED_BACK, state.floor, 0), -1):
        if branch is None:
            break
        try:
            older = branch.chain.at(version)
            pin = older.pins.get(table_id)
            if pin is None or pin.version in tried:
                continue
            tried.add(pin.version)
            needed = _needed(exam.store.opener.table(table_id, pin.version), stored, {})
        except Exception:  # noqa: BLE001 - then it is not that one
            continue
        if all(file in stored for file in needed if not file.startswith("_indices/")):
            return f"{RESTORE}; the newest commit that has this type whole is {older.head}"
    return f"{RESTORE}; no earlier commit of the branch has this type whole"


def columns(exam: Examination, unit: tuple[ExaminedTable, TableType]) -> Iterator[DoctorFinding]:
    """Check that a table has the columns of its type."""
    table, declared = unit
    stored = exam.handle(table).schema
    for column in declared.stored_schema:
        if column.name not in stored.names:
            what = f"{declared.name!r} has no column {column.name!r}, which its schema asks for"
        elif stored.field(column.name).type != column.type:
            what = (
                f"column {column.name!r} is {stored.field(column.name).type}, the schema says {column.type}"
            )
        else:
            continue
        exam.broken[table.key] = "its columns are not those of its type"
        remedy = "Restore tables/ and __schema/ from one copy of the graph"
        yield DoctorFinding("column_mismatch", "error", what, remedy, table.place())


# -- the bytes themselves ----------------------------------------------------------------------------


def checksums(exam: Examination, table: ExaminedTable) -> Iterator[DoctorFinding]:
    """Compare the files of a version with their checksums."""
    if not exam.deep:
        return
    store = exam.store
    compared = store.verification.run([table.key])
    prefix = f"{TABLES}/{table.pin.table_id}/"
    for damaged in compared.damaged[:SHOWN]:
        inside = damaged.file.removeprefix(prefix)
        if damaged.file in exam.reported or table.key in exam.unopened:
            continue
        if inside.startswith("_indices/"):
            exam.broken_indexes.add((table.pin.table_id, inside.split("/")[1]))
            yield DoctorFinding(
                "checksum", "error", f"{damaged}; it is part of an index", REBUILD, table.place(inside)
            )
        else:
            exam.broken[table.key] = "its files are damaged"
            yield DoctorFinding(
                "checksum", "error", str(damaged), _way_back(exam, table), table.place(inside)
            )
    if compared.unrecorded and store.location.is_local:
        what = f"{counted(len(compared.unrecorded), 'file')} of {table.pin.name!r} have no checksum"
        remedy = "'omnigraph verify --record' gives them one, as they are now"
        yield DoctorFinding("unrecorded", "info", what, remedy, table.place())


def pages(exam: Examination, table: ExaminedTable) -> Iterator[DoctorFinding]:
    """Read every page of a table, and count its rows."""
    if not exam.deep:
        return
    try:
        rows = read_all(exam.handle(table))
    except Exception as error:  # noqa: BLE001 - reported here
        exam.broken[table.key] = "its rows cannot be read"
        what = f"rows of {table.pin.name!r} cannot be read: {told(error)}"
        yield DoctorFinding("unreadable", "error", what, _way_back(exam, table), table.place())
        return
    if rows != table.pin.rows:
        what = f"{table.pin.name!r} gives {counted(rows, 'row')}, its pin says {table.pin.rows}"
        yield DoctorFinding("row_count", "error", what, RESTORE, table.place())


# -- what older versions need ------------------------------------------------------------------------


def history(exam: Examination, branch: ExaminedBranch) -> Iterator[DoctorFinding]:
    """Check that the tables of older versions are stored; in a deep examination, that their files are."""
    now = {table.key for table in exam.tables}
    for key, where in sorted(walk(exam, branch).pins.items()):
        if key in now or key in exam.seen_pins:
            continue
        exam.seen_pins.add(key)
        stored = exam.files(key[0])
        if manifest_path(key[1]) not in stored:
            yield _past(f"{where.type!r} of an older commit is not stored", where)
            continue
        if not exam.deep:
            continue
        try:
            needed = _needed(exam.store.opener.at(f"{TABLES}/{key[0]}", key[1]), stored, {})
        except Exception as error:  # noqa: BLE001 - reported here
            yield _past(f"{where.type!r} of an older commit does not open: {told(error)}", where)
            continue
        lost = [file for file in needed if file not in stored and not file.startswith("_indices/")]
        for file in lost[:SHOWN]:
            place = FindingPlace(where.branch, where.commit, where.type, f"{TABLES}/{key[0]}/{file}")
            yield _past("a file that an older commit needs is not stored", place)


def _past(what: str, where: FindingPlace) -> DoctorFinding:
    remedy = f"{RESTORE}; the newest state of the branch does not need it"
    return DoctorFinding("history_broken", "error", what, remedy, where)
