"""Doctor: examine a graph, repair what is derived, report.

    a store that has seen nothing yet -> **checks** -> findings -> repairs -> checks again -> report

Reads only, unless it is told to fix. It may run beside writers: it looks at the states that it met when it
began. If retention or a hard drop takes one of them away meanwhile, it begins anew.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.base.errors import BranchNotFound
from omnigraph.engine.doctor.checks import DoctorListener, run_all
from omnigraph.engine.doctor.examination import Examination
from omnigraph.engine.doctor.repair import repairs
from omnigraph.engine.doctor.report import CheckRun, DoctorFinding, DoctorReport, gravest_first
from omnigraph.storage.cost import measured
from omnigraph.storage.diagnose import why_not_open
from omnigraph.storage.manifest.chain import MANIFEST, versions
from omnigraph.storage.opener import OpenFailed
from omnigraph.storage.store import GraphStore

TRIES = 3  # when history is reclaimed under an examination


def examine(
    store: GraphStore,
    *,
    deep: bool = False,
    fix: bool = False,
    branch: str | None = None,
    preview: bool = False,
    actor: str | None = None,
    progress: DoctorListener | None = None,
) -> DoctorReport:
    """Look at a whole graph, or at one branch of it; with `fix`, make anew what is derived.

    With `preview`, say what `fix` would do, and write nothing.
    """
    with measured():
        store.opener.check_open()
        check_there(store)
        if not fix:
            return _examined(store, deep, branch, progress)
        with store.fresh() as fresh:
            exam = _exam(fresh, deep, branch)
            first = _run(exam, progress)
            done = tuple(repairs(exam, preview=preview, actor=actor))
        after = first if preview else _examined(store, deep, branch, progress)
        return replace(after, repairs=done)


def check_there(store: GraphStore) -> None:
    """Raise if there is no graph at all: nothing can be said of it then."""
    location = store.location
    if not versions(location, MANIFEST):
        raise why_not_open(location, OpenFailed(location.uri))


def _examined(
    store: GraphStore, deep: bool, branch: str | None, progress: DoctorListener | None
) -> DoctorReport:
    report: DoctorReport | None = None
    for _ in range(TRIES):
        with store.fresh() as fresh:
            exam = _exam(fresh, deep, branch)
            report = _run(exam, progress)
            if report.ok or not _moved(exam):
                break
    assert report is not None
    return report


def _exam(store: GraphStore, deep: bool, branch: str | None) -> Examination:
    exam = Examination(store, deep, branch)
    if branch is not None and not exam.branches:
        remedy = "List the branches to see their names"
        raise BranchNotFound(f"there is no branch {branch!r}", remedy=remedy, branch=branch)
    return exam


def _run(exam: Examination, progress: DoctorListener | None) -> DoctorReport:
    checks: list[CheckRun] = []
    findings: list[DoctorFinding] = []
    for check, its_findings in run_all(exam, progress):
        checks.append(check)
        findings += its_findings
    return DoctorReport(exam.store.location.uri, exam.deep, gravest_first(findings), tuple(checks))


def _moved(exam: Examination) -> bool:
    """Say whether something that was looked at was taken away on purpose meanwhile."""
    try:
        return exam.reclaimed() is not None
    except Exception:  # noqa: BLE001 - then the findings stand
        return False
