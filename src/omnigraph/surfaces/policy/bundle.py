"""Bundle: a policy file as a value, and everything that can be wrong with one.

Given   the text of a file.
Gives   a `Bundle`, or `PolicyError` with everything that is wrong, each with its place.
Rule    strict: a misspelt key, group, action or scope is refused, because ignoring one could allow more than
        was meant. Rules only allow; what no rule allows is denied.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BadBranchName, InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.access import Action
from omnigraph.language import diagnostics
from omnigraph.language.diagnostics import SourceError, SourceText, did_you_mean
from omnigraph.language.yaml_document import YamlDocument, YamlMapping, YamlRules, read_text
from omnigraph.storage.manifest.refs import check_name

# == what can be wrong =============================================================================


class PolicyError(SourceError):
    """A policy bundle, or a file of its tests, was refused; `diagnostics` holds every reason."""

    code = "policy_invalid"


POLICY_FILE = YamlRules.coded("PO", PolicyError)  # PO001 to PO005
UNKNOWN_NAME = diagnostics.Rule("PO006", "unknown_name", "a rule names a group or an action there is not", 0)
SCOPE = diagnostics.Rule("PO007", "scope", "a scope stands on an action that does not take it", 0)
BRANCH = diagnostics.Rule("PO008", "branch", "a protected branch has a name that no branch can have", 0)
KIND = diagnostics.Rule("PO009", "kind", "actions on a graph and on a server stand in one bundle", 0)

# == what a bundle says ============================================================================

Scope: TypeAlias = Literal["any", "protected", "unprotected"]
BundleKind: TypeAlias = Literal["graph", "server"]
SCOPES = get_args(Scope)
BY_BRANCH = frozenset({Action.READ, Action.EXPORT, Action.CHANGE})
BY_TARGET = frozenset({Action.SCHEMA_APPLY, Action.BRANCH_CREATE, Action.BRANCH_DELETE, Action.BRANCH_MERGE})
ON_SERVER = frozenset({Action.GRAPH_LIST, Action.ADMIN})
ONLY_ON_SERVER = frozenset({Action.GRAPH_LIST})
ACTIONS = {action.value: action for action in Action}


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Allows the actors of one group some actions, perhaps on some branches only."""

    id: str
    group: str
    actions: tuple[Action, ...]
    branch_scope: Scope = "any"
    target_branch_scope: Scope = "any"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A policy file."""

    kind: BundleKind
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: tuple[str, ...]  # names; with `*` at the end, beginnings of names
    rules: tuple[PolicyRule, ...]

    @property
    def actors(self) -> Mapping[str, tuple[str, ...]]:
        """The groups of each actor."""
        groups: dict[str, list[str]] = {}
        for name, members in self.groups.items():
            for actor in members:
                groups.setdefault(actor, []).append(name)
        return FrozenMap({actor: tuple(sorted(names)) for actor, names in sorted(groups.items())})

    def protects(self, branch: str | None) -> bool:
        """Say whether a branch is protected."""
        return branch is not None and any(
            branch.startswith(pattern[:-1]) if pattern.endswith("*") else branch == pattern
            for pattern in self.protected_branches
        )


def read_bundle(source: SourceText) -> Bundle:
    """Read the text of a bundle."""
    document = YamlDocument(source, POLICY_FILE)
    bundle = _Reader(document).bundle()
    document.refuse()
    return bundle


def read_file(path: Path, what: str) -> SourceText:
    """Return the text of a file."""
    try:
        return read_text(path, POLICY_FILE)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequest(
            f"cannot read {what} {str(path)!r}: {reason}", remedy="Check the path"
        ) from error


class _Reader:
    """Reads the members of one bundle, in the order in which people meet them."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._reporter = document.reporter
        self._top = document.root("the policy")

    def bundle(self) -> Bundle:
        """Read everything; what is wrong is in the report."""
        top = self._top
        top.text("version", needed=True, one_of=("1",))
        kind = top.text("kind", one_of=("graph", "server"))
        groups = self._groups(top.mapping("groups", "'groups'"))
        if not top.has("groups"):
            top.missing("groups")
        protected = self._protected()
        rules = self._rules(groups)
        top.end()
        return Bundle(self._kind(kind, rules), FrozenMap(groups), protected, rules)

    def _groups(self, entries: YamlMapping) -> dict[str, tuple[str, ...]]:
        groups: dict[str, tuple[str, ...]] = {}
        for name in entries.names():
            actors = entries.texts(name)
            blank = [actor for actor in (name, *actors) if not actor.strip() or actor != actor.strip()]
            if blank:
                self._wrong(entries, name, f"the name {blank[0]!r} is empty, or has spaces around it")
            elif not actors:
                self._wrong(entries, name, f"group {name!r} has no members")
            elif len(set(actors)) < len(actors):
                self._report(POLICY_FILE.twice, entries, name, f"an actor stands twice in group {name!r}")
            groups[name] = actors
        return groups

    def _protected(self) -> tuple[str, ...]:
        names = []
        for name in self._top.texts("protected_branches"):
            stem = name.removesuffix("*")
            try:
                if "*" in stem:
                    raise BadBranchName("'*' may only stand at the end")
                # The beginning of a name may end in '/', which no name does.
                clean = unicodedata.normalize("NFC", stem.lstrip()) if stem != name else check_name(name)
            except BadBranchName as error:
                message = f"{name!r} of 'protected_branches': {error.message}"
                self._report(BRANCH, self._top, "protected_branches", message)
                continue
            names.append(f"{clean}*" if stem != name else clean)
        return tuple(names)

    def _rules(self, groups: Mapping[str, object]) -> tuple[PolicyRule, ...]:
        rules: dict[str, PolicyRule] = {}
        for entry in self._top.items("rules", "a rule", needed=True):
            rule_id = (entry.text("id", needed=True) or "").strip()
            if entry.has("id") and not rule_id:
                self._wrong(entry, "id", "the id of a rule is blank")
            rule = self._rule(rule_id, entry.mapping("allow", f"'allow' of rule {rule_id!r}"), groups)
            if not entry.has("allow"):
                entry.missing("allow")
            if rule_id in rules:
                self._report(POLICY_FILE.twice, entry, "id", f"two rules have the id {rule_id!r}")
            rules[rule_id] = rule
            entry.end()
        return tuple(rules.values())

    def _rule(self, rule_id: str, allow: YamlMapping, groups: Mapping[str, object]) -> PolicyRule:
        actors = allow.mapping("actors", f"'actors' of rule {rule_id!r}")
        if not allow.has("actors"):
            allow.missing("actors")
        group = actors.text("group", needed=allow.has("actors")) or ""
        actors.end()
        if group and group not in groups:
            hint = did_you_mean(group, list(groups))
            self._report(UNKNOWN_NAME, actors, "group", f"there is no group {group!r}", hint)
        actions = self._actions(rule_id, allow)
        scope = self._scope(allow, "branch_scope", BY_BRANCH, actions)
        target_scope = self._scope(allow, "target_branch_scope", BY_TARGET, actions)
        if allow.has("branch_scope") and allow.has("target_branch_scope"):
            message = f"rule {rule_id!r} has both scopes; write two rules"
            self._report(SCOPE, allow, "target_branch_scope", message)
        allow.end()
        return PolicyRule(rule_id, group, actions, scope, target_scope)

    def _actions(self, rule_id: str, allow: YamlMapping) -> tuple[Action, ...]:
        if not allow.has("actions"):
            allow.missing("actions")
            return ()
        names = allow.texts("actions")
        if not names:
            self._wrong(allow, "actions", f"rule {rule_id!r} allows no action")
        for name in names:
            if name not in ACTIONS:
                hint = did_you_mean(name, list(ACTIONS)) or f"there are {', '.join(ACTIONS)}"
                self._report(UNKNOWN_NAME, allow, "actions", f"there is no action {name!r}", hint)
        return tuple(dict.fromkeys(ACTIONS[name] for name in names if name in ACTIONS))

    def _scope(
        self, allow: YamlMapping, key: str, takes: frozenset[Action], actions: tuple[Action, ...]
    ) -> Scope:
        text = allow.text(key, one_of=SCOPES)
        unfit = [action.value for action in actions if action not in takes]
        if text is not None and unfit:
            taken = ", ".join(sorted(action.value for action in takes))
            message = f"{key!r} does not go with {', '.join(unfit)}: only with {taken}"
            self._report(SCOPE, allow, key, message)
        return next((scope for scope in SCOPES if scope == text), "any")

    def _kind(self, named: str | None, rules: tuple[PolicyRule, ...]) -> BundleKind:
        """Return what the bundle is for: as it says itself, or as its actions tell."""
        actions = {action for rule in rules for action in rule.actions}
        server, graph = actions & ONLY_ON_SERVER, actions - ON_SERVER
        kind: BundleKind = "server" if named == "server" or (named is None and server) else "graph"
        wrong = graph if kind == "server" else server
        if wrong:
            listed = ", ".join(sorted(action.value for action in wrong))
            own_key = "kind" if named is not None else "rules"
            message = f"a bundle for a {kind} cannot allow {listed}: write one bundle for each"
            self._report(KIND, self._top, own_key, message)
        return kind

    def _wrong(self, mapping: YamlMapping, key: str, message: str) -> None:
        self._report(POLICY_FILE.wrong_value, mapping, key, message)

    def _report(
        self, rule: diagnostics.Rule, mapping: YamlMapping, key: str, message: str, hint: str | None = None
    ) -> None:
        self._reporter.report(rule, message, mapping.spans().get(key) or mapping.own_span(), hint)
