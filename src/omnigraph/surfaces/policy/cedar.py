"""Cedar: a bundle compiled to Cedar policies, and one question answered by them.

Each action of each rule becomes one permit. What comes from files and callers goes to Cedar as values in JSON
and never becomes policy text, so no name can be read as policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.engine.access import Action
from omnigraph.surfaces.policy.bundle import BY_BRANCH, BY_TARGET, Bundle, PolicyRule, Scope

ACTOR, GROUP, ACTION = "Omnigraph::Actor", "Omnigraph::Group", "Omnigraph::Action"
RESOURCES = {"graph": "Omnigraph::Graph", "server": "Omnigraph::Server"}
SERVER = "root"  # the id of the one server there is


class PolicyEvaluationError(GraphError):
    """A policy could not be evaluated, so nothing was allowed: report it with its text."""


class CedarPolicies:
    """The compiled form of one bundle; immutable, and shared by threads."""

    def __init__(self, bundle: Bundle) -> None:
        cedarpy = _cedarpy()
        self._authorize = cedarpy.is_authorized
        self._resource = RESOURCES[bundle.kind]
        self._document = _policies(bundle)
        self._rules = {
            f"{rule.id}#{action.value}": rule.id for rule in bundle.rules for action in rule.actions
        }
        self._policies = cedarpy.PolicySet.from_json_str(json.dumps(self._document))
        self._entities = cedarpy.Entities.from_json_str(json.dumps(_entities(bundle)))

    def permitting(
        self, actor: str, action: Action, resource: str, context: Mapping[str, bool | str]
    ) -> tuple[str, ...]:
        """Return the ids of the rules that allow something, sorted; none if it is denied."""
        request = {
            "principal": _entity(ACTOR, actor),
            "action": _entity(ACTION, action.value),
            "resource": _entity(self._resource, resource),
            "context": dict(context),
        }
        try:
            answer = self._authorize(request, self._policies, self._entities)
            failures = [*answer.diagnostics.errors]
            allowed, reasons = answer.allowed, answer.diagnostics.reasons
        except Exception as error:
            raise PolicyEvaluationError(f"the policy engine failed: {error}") from error
        if failures or allowed != bool(reasons):
            raise PolicyEvaluationError(f"the policy cannot be evaluated: {failures or reasons}")
        return tuple(sorted({self._rules[reason] for reason in reasons}))

    @property
    def text(self) -> str:
        """The policies in Cedar's own language."""
        text: str = _cedarpy().policies_from_json_str(json.dumps(self._document))
        return text


def _cedarpy() -> Any:
    try:
        import cedarpy
    except ImportError as error:
        raise InvalidRequest(
            "policies need Cedar, which is not installed",
            remedy="Install it with: pip install 'omnigraph[policy]'",
        ) from error
    return cedarpy


def _policies(bundle: Bundle) -> dict[str, Any]:
    resource = {"op": "is", "entity_type": RESOURCES[bundle.kind]}
    permits = {
        f"{rule.id}#{action.value}": {
            "effect": "permit",
            "principal": {"op": "in", "entity": _entity(GROUP, rule.group)},
            "action": {"op": "==", "entity": _entity(ACTION, action.value)},
            "resource": resource,
            "conditions": _conditions(rule, action),
            "annotations": {"id": rule.id},
        }
        for rule in bundle.rules
        for action in rule.actions
    }
    return {"staticPolicies": permits, "templates": {}, "templateLinks": []}


def _conditions(rule: PolicyRule, action: Action) -> list[dict[str, Any]]:
    name, scope = scope_of(rule, action)
    if scope == "any":
        return []
    protected = _context(f"{name}_is_protected")
    wanted = protected if scope == "protected" else {"!": {"arg": protected}}
    return [{"kind": "when", "body": {"&&": {"left": _context(f"has_{name}"), "right": wanted}}}]


def scope_of(rule: PolicyRule, action: Action) -> tuple[str, Scope]:
    """Return which of the two branches the scope of a rule is about, for an action, and the scope."""
    if action in BY_TARGET:
        return "target_branch", rule.target_branch_scope
    return "branch", rule.branch_scope if action in BY_BRANCH else "any"


def _context(attribute: str) -> dict[str, Any]:
    return {".": {"left": {"Var": "context"}, "attr": attribute}}


def _entities(bundle: Bundle) -> list[dict[str, Any]]:
    groups = [{"uid": _entity(GROUP, name), "attrs": {}, "parents": []} for name in bundle.groups]
    actors = [
        {"uid": _entity(ACTOR, actor), "attrs": {}, "parents": [_entity(GROUP, name) for name in names]}
        for actor, names in bundle.actors.items()
    ]
    return [*groups, *actors]


def _entity(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "id": name}
