"""Repair: make anew what can be worked out from the data, and nothing else.

Derived files that are damaged or wrong go, and are written again. Indexes are built, extended or built anew,
as one maintenance commit of each branch that needs it. Automatic cleanup is taken out of the configuration of
datasets. No answer changes by any of this. What cannot be done is in the report, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from omnigraph.base.panics import panics_caught
from omnigraph.engine.derive import complete
from omnigraph.engine.doctor.examination import Examination
from omnigraph.engine.doctor.lineage import told
from omnigraph.engine.doctor.report import DoctorRepair
from omnigraph.engine.indexes import IndexReport, ensure_indexes
from omnigraph.storage.location import storage_failure
from omnigraph.storage.manifest.chain import versions
from omnigraph.storage.tables.files import TABLES, stored_files, strip_configuration

PREVIEWED = "this is a preview"


def repairs(exam: Examination, *, preview: bool, actor: str | None) -> Iterator[DoctorRepair]:
    """Do what an examination showed to be needed, or with `preview` say what that is."""
    yield from _derived(exam, preview)
    yield from _indexes(exam, preview, actor)
    yield from _configuration(exam, preview)


def _done(repair: DoctorRepair, preview: bool, act: Callable[[], object]) -> DoctorRepair:
    """Carry a repair out; what fails is told, and the others go on."""
    if preview:
        return DoctorRepair(repair.what, repair.branch, repair.type, done=False, reason=PREVIEWED)
    try:
        with panics_caught():
            act()
    except Exception as error:  # noqa: BLE001 - reported here
        return DoctorRepair(repair.what, repair.branch, repair.type, done=False, reason=told(error))
    return repair


# -- derived files -----------------------------------------------------------------------------------


def _derived(exam: Examination, preview: bool) -> Iterator[DoctorRepair]:
    types = {table.pin.table_id: table.pin.name for table in exam.tables}
    for table_id, name in sorted(exam.broken_derived):
        delete = DoctorRepair(f"deleted {TABLES}/{table_id}/{name}", type=types.get(table_id))
        yield _done(delete, preview, partial(_delete, exam, table_id, name))
    if not exam.broken_derived and not exam.underived:
        return
    for snapshot in exam.states:
        catalog = exam.catalog(snapshot)
        if catalog is None:
            continue
        if preview:
            if snapshot.branch in exam.underived:
                yield DoctorRepair("derived files", snapshot.branch, done=False, reason=PREVIEWED)
            continue
        for type_id, what in sorted(complete(exam.store, catalog, snapshot).items()):
            yield DoctorRepair(f"derived {', '.join(what)}", snapshot.branch, catalog.table(type_id).name)


def _delete(exam: Examination, table_id: str, name: str) -> None:
    exam.store.finder.files.delete(table_id, name)
    if name in stored_files(exam.store.location, table_id):
        raise storage_failure(f"deleting {name}", OSError("it is still there"))


# -- indexes -----------------------------------------------------------------------------------------


def _indexes(exam: Examination, preview: bool, actor: str | None) -> Iterator[DoctorRepair]:
    broken: dict[str, frozenset[str]] = {}
    for table_id, segment in sorted(exam.broken_indexes):
        broken[table_id] = broken.get(table_id, frozenset()) | {segment}
    for branch in exam.heads:
        assert branch.head is not None
        if branch.name not in exam.behind and broken.keys().isdisjoint(branch.head.pins):
            continue
        if preview:
            yield DoctorRepair("indexes", branch.name, done=False, reason=PREVIEWED)
            continue
        try:
            report = ensure_indexes(exam.store, exam.catalogs, branch.name, actor=actor, broken=broken)
        except Exception as error:  # noqa: BLE001 - reported here
            yield DoctorRepair("indexes", branch.name, done=False, reason=told(error))
            continue
        yield from _built(report)


def _built(report: IndexReport) -> Iterator[DoctorRepair]:
    for row in report.types:
        names = (*row.created, *row.extended)
        if names:
            yield DoctorRepair(f"built indexes of {', '.join(sorted(names))}", report.branch, row.type)
        if row.derived:
            yield DoctorRepair(f"derived {', '.join(row.derived)}", report.branch, row.type)
        for pending in row.pending:
            what = f"index of {pending.property}"
            yield DoctorRepair(what, report.branch, row.type, done=False, reason=pending.reason)
        failed = row.skipped or row.error
        if failed:
            yield DoctorRepair("indexes", report.branch, row.type, done=False, reason=failed)


# -- configuration -----------------------------------------------------------------------------------


def _configuration(exam: Examination, preview: bool) -> Iterator[DoctorRepair]:
    for path, keys in sorted(exam.configured.items()):
        repair = DoctorRepair(f"took automatic cleanup out of {path}")
        yield _done(repair, preview, partial(_strip, exam, path, keys))


def _strip(exam: Examination, path: str, keys: frozenset[str]) -> None:
    newest = versions(exam.store.location, path)[-1]
    strip_configuration(exam.store.opener.at(path, newest), keys)
