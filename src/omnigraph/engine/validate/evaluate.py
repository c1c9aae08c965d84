"""Evaluate: the one judge of every write.

    change -> **evaluate** -> findings

Room    engine.validate. Values first (values.py), then sets (questions.py by an executor). Mutation, load,
        merge and Spark all end here, so that a constraint holds on every surface or on none.
Gives   findings in the order of report, and the tables that were consulted: if one moves before the write is
        published, the publisher asks again.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.base.errors import KeyConflict
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.findings import SHOWN, Findings
from omnigraph.engine.validate.questions import Question
from omnigraph.engine.validate.relation import STORED, Executor, reads
from omnigraph.engine.validate.values import value_findings

KEY_CONFLICT = "key_conflict"


def consulted(asked: Iterable[Question]) -> frozenset[str]:
    """Return the tables whose stored rows decide whether a change is allowed."""
    every = (reads(question.relation) for question in asked)
    return frozenset(read.table for found in every for read in found if read.side in STORED)


def judge_values(change: ChangeSet) -> Findings:
    """Judge each row by itself."""
    found = Findings()
    for one in change.types.values():
        for batch in one.rows.to_batches():
            found += value_findings(batch, one.declared)
    return found


def judge_sets(asked: Iterable[Question], executor: Executor) -> Findings:
    """Judge the rows together, and against what is stored."""
    found = Findings()
    for question in asked:
        answer = executor.ask(question.relation, question.order, SHOWN)
        if answer.total:
            found += Findings.of([question.means(row) for row in answer.rows.to_pylist()], answer.total)
    return found


def refuse(found: Findings, doing: str) -> None:
    """Raise what was found, if anything: an id that exists is a conflict, the rest are violations."""
    conflicts = [one for one in found.violations if one.code == KEY_CONFLICT]
    if conflicts and len(conflicts) == len(found.violations):
        first = conflicts[0]
        more = f" (and {found.total - 1} more)" if found.total > 1 else ""
        raise KeyConflict(
            f"{doing}: {first.message}{more}",
            remedy="Nothing was written; use mode merge to replace entities that exist",
            entity_kind=first.entity_kind,
            type_name=first.type_name,
            entity_id=first.entity_id,
            total=found.total,
        )
    found.refuse(doing)
