"""Cases: what a bundle is expected to say, as a file of questions with their answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from omnigraph.base.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.language.diagnostics import SourceText, did_you_mean
from omnigraph.language.yaml_document import YamlDocument
from omnigraph.surfaces.policy.bundle import ACTIONS, POLICY_FILE, UNKNOWN_NAME, read_file
from omnigraph.surfaces.policy.policy import PolicyDecision


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One question, and the answer that is expected."""

    id: str
    actor: str
    action: Action
    branch: str | None
    target: str | None
    allowed: bool


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What a policy said to one case."""

    case: PolicyCase
    decision: PolicyDecision

    @property
    def passed(self) -> bool:
        """Whether the policy said what was expected."""
        return self.case.allowed == self.decision.allowed

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        expected = "allow" if self.case.allowed else "deny"
        return {"id": self.case.id, "ok": self.passed, "expect": expected, **self.decision.to_json()}


def read_cases(path: str | os.PathLike[str]) -> tuple[PolicyCase, ...]:
    """Read a file of cases."""
    return parse_cases(read_file(Path(path), "the tests"))


def parse_cases(source: SourceText) -> tuple[PolicyCase, ...]:
    """Read the text of a file of cases."""
    document = YamlDocument(source, POLICY_FILE)
    top = document.root("the tests")
    top.text("version", needed=True, one_of=("1",))
    cases: dict[str, PolicyCase] = {}
    for entry in top.items("cases", "a case", needed=True):
        case_id = entry.text("id", needed=True) or ""
        action = entry.text("action", needed=True)
        if action is not None and action not in ACTIONS:
            hint = did_you_mean(action, list(ACTIONS)) or f"there are {', '.join(ACTIONS)}"
            span = entry.spans().get("action")
            document.reporter.report(UNKNOWN_NAME, f"there is no action {action!r}", span, hint)
        if case_id in cases:
            span = entry.spans().get("id")
            document.reporter.report(POLICY_FILE.twice, f"two cases have the id {case_id!r}", span)
        cases[case_id] = PolicyCase(
            case_id,
            entry.text("actor", needed=True) or "",
            ACTIONS.get(action or "", Action.READ),
            entry.text("branch"),
            entry.text("target_branch"),
            entry.text("expect", needed=True, one_of=("allow", "deny")) == "allow",
        )
        entry.end()
    top.end()
    document.refuse()
    return tuple(cases.values())


class Decides(Protocol):
    """A policy, here or behind a server."""

    def decide(
        self, actor: str | None, action: Action | str, branch: str | None = None, target: str | None = None
    ) -> PolicyDecision:
        """Say whether an actor may do something."""
        ...


def run_cases(policy: Decides, cases: tuple[PolicyCase, ...]) -> tuple[CaseOutcome, ...]:
    """Ask a policy every case."""
    return tuple(
        CaseOutcome(case, policy.decide(case.actor, case.action, case.branch, case.target)) for case in cases
    )
