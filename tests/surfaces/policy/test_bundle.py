"""Bundles are read strictly: whatever is misspelt or out of place is refused where it stands, with a hint."""

from __future__ import annotations

import pytest

from omnigraph.engine.access import Action
from omnigraph.language.diagnostics import SourceText
from omnigraph.surfaces.policy.bundle import Bundle, PolicyError, read_bundle

HEAD = "version: 1\ngroups: {team: [ada, bob]}\nprotected_branches: [main]\n"
RULE = HEAD + "rules:\n  - id: r\n    allow: "
FULL = RULE + "{actors: {group: team}, actions: [read], branch_scope: protected}\n"


def read(text: str) -> Bundle:
    return read_bundle(SourceText(text, "policy.yaml"))


def test_a_bundle_is_read_whole() -> None:
    bundle = read(FULL.replace("[main]", "[main, 'team-*']"))
    (rule,) = bundle.rules
    assert (rule.id, rule.group, rule.actions, rule.branch_scope) == (
        "r",
        "team",
        (Action.READ,),
        "protected",
    )
    assert bundle.kind == "graph"
    assert dict(bundle.actors) == {"ada": ("team",), "bob": ("team",)}


@pytest.mark.parametrize(
    ("branch", "protected"),
    [("main", True), ("mainly", False), ("team-a", True), ("team-", True), ("team", False), (None, False)],
)
def test_a_name_or_the_beginning_of_names_is_protected(branch: str | None, protected: bool) -> None:
    assert read(FULL.replace("[main]", "[main, team-*]")).protects(branch) is protected


REFUSED = {
    "version: 2": (FULL.replace("version: 1", "version: 2"), "PO003", 1),
    "no version": (FULL.replace("version: 1\n", ""), "PO004", 1),
    "misspelt key": (FULL.replace("protected_branches", "protected_branch"), "PO002", 3),
    "misspelt scope key": (FULL.replace("branch_scope", "branch_scop"), "PO002", 6),
    "queries are not there yet": (FULL.replace("branch_scope: protected", "queries: [q]"), "PO002", 6),
    "no groups": (FULL.replace("groups: {team: [ada, bob]}\n", ""), "PO004", 1),
    "an empty group": (FULL.replace("[ada, bob]", "[]"), "PO003", 2),
    "a group that is no list": (FULL.replace("[ada, bob]", "{ada: 1}"), "PO003", 2),
    "a blank actor": (FULL.replace("ada", "'  '"), "PO003", 2),
    "an actor with spaces around": (FULL.replace("ada", "'ada '"), "PO003", 2),
    "a boolean for an actor": (FULL.replace("ada", "no"), "PO003", 2),
    "an actor twice": (FULL.replace("bob", "ada"), "PO005", 2),
    "no rules": (HEAD, "PO004", 1),
    "an empty list of rules": (HEAD + "rules: []\n", "PO004", 1),
    "a blank id": (FULL.replace("id: r", "id: '  '"), "PO003", 5),
    "an id twice": (FULL + "  - id: ' r'\n    allow: {actors: {group: team}, actions: [read]}\n", "PO005", 7),
    "an unknown group": (FULL.replace("group: team", "group: tema"), "PO006", 6),
    "an unknown action": (FULL.replace("[read]", "[reda]"), "PO006", 6),
    "no action": (FULL.replace("[read]", "[]"), "PO003", 6),
    "no actors": (FULL.replace("actors: {group: team}, ", ""), "PO004", 6),
    "no allow": (HEAD + "rules:\n  - id: r\n", "PO004", 5),
    "a deny rule": (FULL.replace("allow:", "deny:"), "PO002", 6),
    "an unknown scope": (FULL.replace("scope: protected", "scope: protec"), "PO003", 6),
    "a scope on an action without": (FULL.replace("[read]", "[read, invoke_query]"), "PO007", 6),
    "a scope of the other kind": (FULL.replace("branch_scope", "target_branch_scope"), "PO007", 6),
    "a star inside": (FULL.replace("[main]", "['a*b']"), "PO008", 3),
    "a name no branch has": (FULL.replace("[main]", "['/a']"), "PO008", 3),
    "both kinds of action": (
        FULL.replace("[read], branch_scope: protected", "[read, graph_list]"),
        "PO009",
        5,
    ),
    "a kind that is another": (FULL.replace("groups:", "kind: server\ngroups:"), "PO009", 2),
    "an unknown kind": (FULL.replace("groups:", "kind: sever\ngroups:"), "PO003", 2),
    "a merge key": (FULL.replace("version: 1", "<<: {version: 1}"), "PO002", 1),
    "a key twice": (FULL + "version: 1\n", "PO005", 7),
    "no YAML": ("version: [1\n", "PO001", None),
    "a list": ("- version: 1\n", "PO001", None),
    "nothing": ("", "PO001", None),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_is_wrong_is_refused_where_it_stands(case: str) -> None:
    text, code, line = REFUSED[case]
    with pytest.raises(PolicyError) as caught:
        read(text)
    found = [
        (diagnostic.rule.code, diagnostic.span and diagnostic.span.line)
        for diagnostic in caught.value.diagnostics
    ]
    assert code in [code for code, _ in found], str(caught.value)
    assert line is None or (code, line) in found, str(caught.value)


def test_all_mistakes_come_at_once_with_hints() -> None:
    with pytest.raises(PolicyError) as caught:
        read(FULL.replace("group: team", "group: tema").replace("[read]", "[reda]"))
    assert str(caught.value).count("did you mean") == 2


def test_a_bundle_says_by_its_actions_what_it_is_for() -> None:
    server = HEAD + "rules:\n  - {id: r, allow: {actors: {group: team}, actions: [graph_list, admin]}}\n"
    assert read(server).kind == "server"
    assert read(server.replace("graph_list, ", "")).kind == "graph"
    assert read(server.replace("groups:", "kind: server\ngroups:")).kind == "server"
