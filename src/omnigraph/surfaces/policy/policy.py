"""Policy: decisions of one bundle, the guard that asks for them, and the audit log.

An actor whom no group lists is denied before Cedar is asked. A decision is a pure function of the bundle and
the question, so the last ones are kept. Every decision of a guard is one record in the audit log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from omnigraph.base.arguments import checked, checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, PermissionDenied
from omnigraph.engine.access import Action, Guard
from omnigraph.language.diagnostics import SourceText
from omnigraph.storage.manifest.refs import check_name
from omnigraph.surfaces.policy.audit import AuditRecord, log_audit
from omnigraph.surfaces.policy.bundle import ACTIONS, Bundle, PolicyRule, read_bundle, read_file
from omnigraph.surfaces.policy.cedar import SERVER, CedarPolicies, PolicyEvaluationError, scope_of

__all__ = ["AuditRecord", "NearRule", "Policy", "PolicyDecision", "PolicyEvaluationError"]
KEPT = 4_096  # decisions


@dataclass(frozen=True, slots=True)
class NearRule:
    """A rule that would have allowed a request, but for some conditions."""

    rule: str
    failed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"rule": self.rule, "failed": list(self.failed)}


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What a policy says to one question."""

    allowed: bool
    actor: str | None
    action: Action
    branch: str | None
    target: str | None
    rule: str | None  # the first, by its id, of those that allow it
    message: str
    nearest: tuple[NearRule, ...] = ()  # of a denial: the rules that came closest

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        shown = {
            "decision": "allow" if self.allowed else "deny",
            "actor": self.actor,
            "action": self.action.value,
            "branch": self.branch,
            "target_branch": self.target,
            "matched_rule": self.rule,
            "message": self.message,
        }
        return shown if self.allowed else {**shown, "nearest_rules": [n.to_json() for n in self.nearest]}


@checked_methods
class Policy:
    """The rules of one bundle, compiled; immutable, and shared by threads."""

    @checked
    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._groups = bundle.actors
        self._cedar = CedarPolicies(bundle)
        self._kept = lru_cache(KEPT)(self._decided)

    @classmethod
    def read(cls, source: str | os.PathLike[str]) -> Policy:
        """Read a bundle: of a path, or of text given as such (several lines, or in braces)."""
        if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
            return cls(read_bundle(SourceText(source, "policy.yaml")))
        return cls(read_bundle(read_file(Path(source), "the policy")))

    @property
    def kind(self) -> str:
        """What the bundle is for: "graph" or "server"."""
        return self.bundle.kind

    @property
    def cedar(self) -> str:
        """The compiled policies in Cedar's own language."""
        return self._cedar.text

    def facts(self) -> dict[str, Any]:
        """Return how many actors and rules it has."""
        return {"ok": True, "actors": len(self._groups), "rules": len(self.bundle.rules)}

    def decide(
        self,
        actor: str | None,
        action: Action | str,
        branch: str | None = None,
        target: str | None = None,
        *,
        resource: str | None = None,
    ) -> PolicyDecision:
        """Say whether an actor may do something; `resource` is the id of the graph."""
        asked = action if isinstance(action, Action) else _action(action)
        return self._kept(actor, asked, _name(branch), _name(target), resource or SERVER)

    def guard(
        self, actor: str | None, graph_id: str, audit: Callable[[AuditRecord], None] | None = None
    ) -> Guard:
        """Return the guard of one actor on one graph; each decision is given to `audit`, or logged."""
        if self.kind != "graph":
            raise InvalidRequest("the policy is for a server, not for a graph", remedy="Give one for a graph")
        return PolicyGuard(self, actor, graph_id, audit or log_audit)

    def server_guard(self, actor: str | None, audit: Callable[[AuditRecord], None] | None = None) -> Guard:
        """Return the guard of one actor on the server, for actions that concern no single graph."""
        if self.kind != "server":
            raise InvalidRequest(
                "the policy is for a graph, not for a server", remedy="Give one for a server"
            )
        return PolicyGuard(self, actor, SERVER, audit or log_audit)

    # -- deciding ----------------------------------------------------------------------------------

    def _decided(
        self, actor: str | None, action: Action, branch: str | None, target: str | None, resource: str
    ) -> PolicyDecision:
        refused = _may(actor, action, branch, target, allowed=False)
        if actor is None or actor not in self._groups:
            why = "without an actor" if actor is None else "no group lists the actor"
            return PolicyDecision(False, actor, action, branch, target, None, f"{refused}: {why}")
        context: dict[str, bool | str] = {
            "has_branch": branch is not None,
            "branch": branch or "",
            "branch_is_protected": self.bundle.protects(branch),
            "has_target_branch": target is not None,
            "target_branch": target or "",
            "target_branch_is_protected": self.bundle.protects(target),
        }
        rules = self._cedar.permitting(actor, action, resource, context)
        if rules:
            message = f"{_may(actor, action, branch, target, allowed=True)}: by rule {rules[0]!r}"
            return PolicyDecision(True, actor, action, branch, target, rules[0], message)
        nearest = self._nearest(actor, action, branch, target)
        message = f"{refused}: no rule allows it"
        return PolicyDecision(False, actor, action, branch, target, None, message, nearest)

    def _nearest(
        self, actor: str, action: Action, branch: str | None, target: str | None
    ) -> tuple[NearRule, ...]:
        """Return the rules that fewest conditions kept from allowing something."""
        named = {"branch": branch, "target_branch": target}
        near = [
            NearRule(rule.id, tuple(self._failed(rule, actor, action, named))) for rule in self.bundle.rules
        ]
        least = min((len(rule.failed) for rule in near), default=0)
        return tuple(sorted((rule for rule in near if len(rule.failed) == least), key=lambda r: r.rule))

    def _failed(
        self, rule: PolicyRule, actor: str, action: Action, named: dict[str, str | None]
    ) -> Iterator[str]:
        if rule.group not in self._groups[actor]:
            yield f"actor {actor!r} is not in group {rule.group!r}"
        if action not in rule.actions:
            yield f"action {action.value} is not in its actions: {', '.join(a.value for a in rule.actions)}"
            return
        name, scope = scope_of(rule, action)
        branch, what = named[name], name.replace("_", " ")
        if scope == "any":
            return
        if branch is None:
            yield f"no {what} was named, and its {name}_scope is {scope}"
        elif self.bundle.protects(branch) != (scope == "protected"):
            is_so = "protected" if self.bundle.protects(branch) else "not protected"
            yield f"{what} {branch!r} is {is_so}, and its {name}_scope is {scope}"


@dataclass(frozen=True, slots=True)
class PolicyGuard:
    """Asks a policy for one actor on one graph, and records what it said."""

    policy: Policy
    actor: str | None
    resource: str
    audit: Callable[[AuditRecord], None]

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Raise PermissionDenied unless the policy allows the action."""
        decision = self.policy.decide(self.actor, action, branch, target, resource=self.resource)
        outcome = "allow" if decision.allowed else "deny"
        self.audit(
            AuditRecord(
                self.actor,
                action.value,
                self.resource,
                decision.branch,
                decision.target,
                outcome,
                decision.rule,
            )
        )
        if not decision.allowed:
            raise PermissionDenied(
                decision.message,
                remedy="Ask whoever keeps the policy of this graph",
                action=action.value,
                resource=self.resource,
            )


def _may(actor: str | None, action: Action, branch: str | None, target: str | None, *, allowed: bool) -> str:
    places = {"branch": branch, "target branch": target}
    named = [f"{what} {name!r}" for what, name in places.items() if name is not None]
    where = f" ({', '.join(named)})" if named else ""
    who = "a caller" if actor is None else repr(actor)
    return f"{who} {'may' if allowed else 'may not'} {action.value}{where}"


def _action(name: str) -> Action:
    if name not in ACTIONS:
        raise InvalidRequest(f"there is no action {name!r}", remedy=f"Name one of: {', '.join(ACTIONS)}")
    return ACTIONS[name]


def _name(branch: str | None) -> str | None:
    """Return a branch name as storage has it, so that what is decided on is what is used."""
    return None if branch is None else check_name(branch)
