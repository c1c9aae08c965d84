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
from omnigraph.engine.validate.findings import SHOWN, Findings, Violation
from omnigraph.engine.validate.questions import Question
from omnigraph.engine.validate.relation import STORED, Executor, reads
from omnigraph.engine.validate.values import CODES, value_findings

KEY_CONFLICT = "key_conflict"
ORDER = (*CODES, KEY_CONFLICT, "unique", "orphan_edge", "cardinality")  # of report (engine contract E-13)


def consulted(asked: Iterable[Question]) -> frozenset[str]:
    """Return the tables whose stored rows decide whether a change is allowed."""
    every = (reads(question.relation) for question in asked)
    return frozenset(read.table for found in every for read in found if read.side in STORED)


def judge_values(change: ChangeSet) -> Findings:
    """Judge each row by itself."""
    return _in_order(
        value_findings(batch, one.declared)
        for one in change.types.values()
        for batch in one.rows.to_batches()
    )


def judge_sets(asked: Iterable[Question], executor: Executor) -> Findings:
    """Judge the rows together, and against what is stored."""
    answers = ((question, executor.ask(question.relation, question.order, SHOWN)) for question in asked)
    return _in_order(
        Findings.of([question.means(row) for row in answer.rows], answer.total)
        for question, answer in answers
        if answer.total
    )


def _in_order(parts: Iterable[Findings]) -> Findings:
    """Put findings together: by code, nodes before edges, by type and id. Each part has its first ones."""
    found = list(parts)
    every = sorted((violation for part in found for violation in part.violations), key=_place)
    return Findings.of(every, sum(part.total for part in found))


def _place(violation: Violation) -> tuple[int, bool, str, str]:
    kind, name = violation.entity_kind == "edge", violation.type_name
    return ORDER.index(violation.code), kind, name, violation.entity_id or ""


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
