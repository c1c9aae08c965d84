"""Checks: the table of all that is looked at, and how one check is run.

Adding a check is one entry: its name, what holds where it finds nothing, over what it runs, and the function.
It runs for each thing by itself, so one broken thing hides no other; what a check raises is a finding, too.
The order matters in one way: a table that an earlier check found broken is left out by those that read rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.panics import panics_caught
from omnigraph.engine.doctor import derived, files, indexes, lineage, outside, rows
from omnigraph.engine.doctor.examination import Examination, ExaminedBranch, ExaminedTable, ExaminedTag
from omnigraph.engine.doctor.report import CheckRun, DoctorFinding, FindingPlace
from omnigraph.storage.transaction import PinnedSnapshot

Units = Callable[[Examination], Iterable[Any]]
RunCheck = Callable[[Examination, Any], Iterator[DoctorFinding]]


def _graph(_: Examination) -> Iterable[None]:
    return (None,)


def _branches(exam: Examination) -> Iterable[ExaminedBranch]:
    return exam.branches


def _heads(exam: Examination) -> Iterable[ExaminedBranch]:
    return exam.heads


def _tags(exam: Examination) -> Iterable[ExaminedTag]:
    return exam.tags


def _states(exam: Examination) -> Iterable[PinnedSnapshot]:
    return exam.states


def _tables(exam: Examination) -> Iterable[ExaminedTable]:
    return exam.tables


def _readable(exam: Examination) -> Iterable[ExaminedTable]:
    return exam.readable()


def _declared(exam: Examination) -> Iterable[Any]:
    return exam.declared()


def _edges(exam: Examination) -> Iterable[Any]:
    return exam.edges()


def _table_ids(exam: Examination) -> Iterable[str]:
    return outside.table_ids(exam)


def _datasets(exam: Examination) -> Iterable[str]:
    return outside.datasets(exam)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One entry of the table."""

    name: str
    promise: str
    units: Units
    run: RunCheck
    only_deep: bool = False


CHECKS = (
    HealthCheck("names", "the names of branches and tags can be read", _graph, lineage.names),
    HealthCheck("heads", "the head of every branch can be read, in this format", _branches, lineage.heads),
    HealthCheck("tags", "the commit of every tag can be read", _tags, lineage.tags),
    HealthCheck("lineage", "the versions of a branch are one connected history", _heads, lineage.lineage),
    HealthCheck("schemas", "schemas can be read, and types are the tables pinned", _states, lineage.schemas),
    HealthCheck("past schemas", "schemas of older versions can be read", _heads, lineage.past_schemas),
    HealthCheck("pins", "every pinned table opens, with the rows of its pin", _tables, files.pins),
    HealthCheck("files", "every file needed is stored, with its size", _tables, files.files),
    HealthCheck("checksums", "every file is what was written", _tables, files.checksums, only_deep=True),
    HealthCheck("columns", "tables have the columns of their types", _declared, files.columns),
    HealthCheck("pages", "every row can be read", _readable, files.pages, only_deep=True),
    HealthCheck("history", "the tables of older versions are stored", _heads, files.history),
    HealthCheck("ids", "no two rows of a type have one id", _declared, rows.ids),
    HealthCheck("ends", "every edge has both its nodes", _edges, rows.ends),
    HealthCheck("keys", "ids are those that the keys make", _declared, rows.keys),
    HealthCheck("values", "every value is one that its property takes", _declared, rows.values),
    HealthCheck("indexes", "indexes find what a scan finds", _declared, indexes.indexes),
    HealthCheck("derived", "derived files are what the data files give", _declared, derived.derived),
    HealthCheck("sets", "unique values and cardinalities hold", _declared, rows.sets),
    HealthCheck("foreign commits", "no other program committed to a table", _table_ids, outside.foreign),
    HealthCheck("configuration", "no dataset cleans itself up", _datasets, outside.configuration),
    HealthCheck("unfinished names", "no change of a branch was interrupted", _graph, outside.unfinished),
    HealthCheck("leftovers", "every stored file is needed", _graph, outside.leftovers),
)


@dataclass(frozen=True, slots=True)
class DoctorProgress:
    """How far an examination is: the check that runs, and how many things it has looked at."""

    check: str
    looked_at: int
    checks_done: int
    checks: int = len(CHECKS)


DoctorListener = Callable[[DoctorProgress], None]


def run_all(
    exam: Examination, progress: DoctorListener | None = None
) -> Iterator[tuple[CheckRun, list[DoctorFinding]]]:
    """Run the whole table; whoever listens is told when a check begins, and after all that it looks at."""
    for number, check in enumerate(CHECKS):

        def looked_at(count: int, check: HealthCheck = check, number: int = number) -> None:
            if progress is not None:
                progress(DoctorProgress(check.name, count, number))

        yield run_check(check, exam, looked_at)


def run_check(
    check: HealthCheck, exam: Examination, looked_at: Callable[[int], None] = lambda count: None
) -> tuple[CheckRun, list[DoctorFinding]]:
    """Run one check over everything that it is about."""
    looked_at(0)
    exam.limits = []
    if check.only_deep and not exam.deep:
        skipped = CheckRun(check.name, check.promise, 0, 0, ("only --deep looks at it",))
        return skipped, []
    findings: list[DoctorFinding] = []
    count = 0
    try:
        with panics_caught():
            for unit in check.units(exam):
                count += 1
                findings += _of_unit(check, exam, unit)
                looked_at(count)
    except Exception as error:  # noqa: BLE001 - an examination goes on
        findings.append(_failed(check, None, error))
    return CheckRun(
        check.name, check.promise, count, len(findings), tuple(dict.fromkeys(exam.limits))
    ), findings


def _of_unit(check: HealthCheck, exam: Examination, unit: Any) -> list[DoctorFinding]:
    findings: list[DoctorFinding] = []
    try:
        with panics_caught():
            findings.extend(check.run(exam, unit))
    except Exception as error:  # noqa: BLE001 - an examination goes on
        findings.append(_failed(check, unit, error))
    return findings


def _failed(check: HealthCheck, unit: Any, error: Exception) -> DoctorFinding:
    what = f"the check of {check.name} could not be finished: {lineage.told(error)}"
    remedy = lineage.remedy_of(error, "Look at what the other checks found, and at the storage itself")
    return DoctorFinding("check_failed", "error", what, remedy, _place(unit))


def _place(unit: Any) -> FindingPlace:
    match unit:
        case ExaminedBranch():
            return unit.place
        case ExaminedTag():
            return FindingPlace(branch=unit.branch, commit=unit.ref.commit_id)
        case PinnedSnapshot():
            return FindingPlace(branch=unit.branch, commit=unit.commit_id)
        case ExaminedTable():
            return unit.place()
        case str():
            return FindingPlace(file=unit)
        case (ExaminedTable() as table, _):
            return table.place()
        case _:
            return FindingPlace()
