"""A policy decides by its bundle alone, says why, and is asked for everything by the graph that it guards."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.access import Action
from omnigraph.surfaces.policy import AuditRecord, Policy, PolicyEvaluationError

SCHEMA = "node Person { slug: String @key }\n"
ALL = "query all() { match { $p: Person } return { $p.slug } }"
ADD = "query add($s: String) { insert Person { slug: $s } }"
LIBRARY = """\
version: 1
groups:
  librarians: [ada, grace]
  visitors: [kiosk]
protected_branches: [main]
rules:
  - id: visitors-look-things-up
    allow: { actors: { group: visitors }, actions: [invoke_query] }
  - id: visitors-read-published
    allow: { actors: { group: visitors }, actions: [read], branch_scope: protected }
  - id: librarians-work-on-drafts
    allow: { actors: { group: librarians }, actions: [read, export, change], branch_scope: any }
  - id: librarians-open-drafts
    allow:
      actors: { group: librarians }
      actions: [branch_create, branch_delete]
      target_branch_scope: unprotected
  - id: librarians-publish
    allow: { actors: { group: librarians }, actions: [branch_merge], target_branch_scope: protected }
"""


@pytest.fixture(scope="module")
def library() -> Policy:
    return Policy.read(LIBRARY)


@pytest.mark.parametrize(
    ("actor", "action", "branch", "target", "rule"),
    [
        ("kiosk", "read", "main", None, "visitors-read-published"),
        ("kiosk", "read", " main ", None, "visitors-read-published"),  # as storage names it
        ("kiosk", "read", "draft", None, None),
        ("kiosk", "read", None, None, None),
        ("kiosk", "invoke_query", None, None, "visitors-look-things-up"),
        ("kiosk", "change", "main", None, None),
        ("ada", "change", "main", None, "librarians-work-on-drafts"),
        ("ada", "read", None, None, "librarians-work-on-drafts"),  # any: also none
        ("ada", "branch_create", "main", "draft", "librarians-open-drafts"),
        ("ada", "branch_create", "draft", "main", None),
        ("ada", "branch_delete", None, "draft", "librarians-open-drafts"),
        ("ada", "branch_merge", "draft", "main", "librarians-publish"),
        ("ada", "branch_merge", "main", "draft", None),
        ("ada", "schema_apply", None, "main", None),
        ("ada", "admin", None, None, None),
        ("librarians", "read", "main", None, None),  # a group is nobody
        ("Ada", "read", "main", None, None),
        ("ada ", "read", "main", None, None),
        ("", "read", "main", None, None),
        (None, "read", "main", None, None),
    ],
)
def test_the_library_decides(
    library: Policy, actor: str | None, action: str, branch: str | None, target: str | None, rule: str | None
) -> None:
    decision = library.decide(actor, action, branch, target)
    assert (decision.allowed, decision.rule) == (rule is not None, rule)


def test_of_several_rules_the_first_by_its_id_is_named() -> None:
    rules = "".join(
        f"  - {{id: {name}, allow: {{actors: {{group: g}}, actions: [read]}}}}\n" for name in "cab"
    )
    policy = Policy.read(f"version: 1\ngroups: {{g: [ada]}}\nrules:\n{rules}")
    assert policy.decide("ada", Action.READ, "main").rule == "a"


def test_a_denial_names_the_nearest_rules_and_what_each_asks_for(library: Policy) -> None:
    near = {rule.rule: rule.failed for rule in library.decide("kiosk", "read", "draft").nearest}
    assert near == {
        "librarians-work-on-drafts": ("actor 'kiosk' is not in group 'librarians'",),
        "visitors-look-things-up": ("action read is not in its actions: invoke_query",),
        "visitors-read-published": ("branch 'draft' is not protected, and its branch_scope is protected",),
    }
    assert library.decide("nobody", "read", "main").nearest == ()


NASTY = [
    '") permit(principal, action, resource); //',
    'a"b',
    "a\\b",
    "two\nlines",
    "tab\there",
    "ünïcode 🦊",
    "?principal",
    "${x} {{y}} %s",
    'Omnigraph::Group::"g"',
]


@pytest.mark.parametrize("name", NASTY)
def test_no_name_is_read_as_policy_text(name: str) -> None:
    import yaml

    rule = {"actors": {"group": name}, "actions": ["read"], "branch_scope": "unprotected"}
    bundle = {
        "version": 1,
        "groups": {name: [name, "ada"], "g": ["bob"]},
        "rules": [{"id": name, "allow": rule}],
    }
    policy = Policy.read(yaml.safe_dump(bundle, allow_unicode=True))
    assert policy.decide(name, "read", "draft", resource=name).rule == name
    assert policy.decide("ada", "read", "draft").allowed
    for other in ("bob", "g", "eve", f"{name}x"):
        assert not policy.decide(other, "read", "draft").allowed
    assert not policy.decide(name, "change", "draft").allowed
    permits = [line for line in policy.cedar.splitlines() if line.startswith("permit(")]
    assert len(permits) == 1


def test_a_failing_evaluation_raises_and_never_allows(
    library: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer:
        allowed = True

        class diagnostics:
            errors = ("no such attribute",)
            reasons = ("visitors-read-published#read",)

    policy = Policy.read(LIBRARY)
    monkeypatch.setattr(policy._cedar, "_authorize", lambda *a: Answer)
    with pytest.raises(PolicyEvaluationError, match="no such attribute"):
        policy.decide("kiosk", "read", "main")
    monkeypatch.setattr(policy._cedar, "_authorize", lambda *a: 1 / 0)
    with pytest.raises(PolicyEvaluationError) as caught:
        policy.guard("kiosk", "g").check(Action.READ, branch="main")
    assert caught.value.code == "internal"


def test_a_policy_is_bound_where_it_is_for(library: Policy) -> None:
    server = Policy.read(
        "version: 1\nkind: server\ngroups: {admins: [root]}\n"
        "rules: [{id: r, allow: {actors: {group: admins}, actions: [graph_list]}}]"
    )
    server.server_guard("root", print).check(Action.GRAPH_LIST)
    with pytest.raises(InvalidRequest, match="for a server"):
        server.guard("root", "kb")
    with pytest.raises(InvalidRequest, match="for a graph"):
        library.server_guard("ada")
    with pytest.raises(InvalidRequest, match="no action 'reda'"):
        library.decide("ada", "reda")


# -- audit -----------------------------------------------------------------------------------------------


def test_each_decision_is_one_record_of_the_audit_log(
    library: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "omnigraph.audit")
    guard = library.guard("kiosk", "kb")
    guard.check(Action.READ, branch="main")
    with pytest.raises(og.PermissionDenied) as denied:
        guard.check(Action.CHANGE, branch="main")
    fields = ("actor", "action", "resource", "branch", "target", "decision", "rule")
    logged = [tuple(getattr(record, name) for name in fields) for record in caplog.records]
    assert logged == [
        ("kiosk", "read", "kb", "main", None, "allow", "visitors-read-published"),
        ("kiosk", "change", "kb", "main", None, "deny", None),
    ]
    assert (denied.value.action, denied.value.resource) == ("change", "kb")
    assert denied.value.message == "'kiosk' may not change (branch 'main'): no rule allows it"


def test_the_audit_may_go_elsewhere(library: Policy) -> None:
    records: list[AuditRecord] = []
    library.guard("ada", "kb", records.append).check(Action.BRANCH_MERGE, branch="d", target="main")
    assert records == [AuditRecord("ada", "branch_merge", "kb", "d", "main", "allow", "librarians-publish")]


# -- a graph with a policy -------------------------------------------------------------------------------


@pytest.fixture
def address(tmp_path: Path) -> Path:
    with og.init(tmp_path / "kb.og", SCHEMA, durability="os") as graph:
        graph.mutate(ADD, s="a")
    return tmp_path / "kb.og"


def opened(address: Path, actor: str | None, policy: Any = LIBRARY, **options: Any) -> og.Graph:
    return og.connect(address, policy=policy, actor=actor, durability="os", **options)


def test_people_do_what_their_rules_allow_and_nothing_else(address: Path) -> None:
    with opened(address, "ada") as graph:
        with graph.branch("draft", create=True) as draft:
            assert draft.mutate(ADD, s="b").commit is not None
        with pytest.raises(og.PermissionDenied):
            graph.schema.apply(SCHEMA.replace("slug", "name"))
        graph.merge("draft")
        assert graph.commits.list()[0].actor == "ada"
    with opened(address, "kiosk") as graph:
        assert len(graph.query(ALL)) == 2
        for refused in (
            lambda: graph.query(ALL, branch="draft"),
            lambda: graph.mutate(ADD, s="c"),
            lambda: graph.export(address.parent / "out"),
            lambda: graph.cleanup(keep=0),
        ):
            with pytest.raises(og.PermissionDenied):
                refused()


@pytest.mark.parametrize("actor", [None, "nobody", "visitors"])
def test_without_an_actor_that_is_known_everything_is_denied(address: Path, actor: str | None) -> None:
    with opened(address, actor) as graph, pytest.raises(og.PermissionDenied):
        graph.query(ALL)
    with pytest.raises(og.PermissionDenied):
        opened(address, actor, branch="draft")


def test_a_policy_is_a_path_a_text_or_read_already(address: Path, tmp_path: Path, library: Policy) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(LIBRARY)
    for policy in (file, str(file), LIBRARY, library):
        with opened(address, "kiosk", policy) as graph:
            assert len(graph.query(ALL)) == 1
    with pytest.raises(InvalidRequest, match="cannot read the policy"):
        opened(address, "kiosk", "none.yaml")
    with pytest.raises(og.GraphError) as caught:
        opened(address, "kiosk", LIBRARY.replace("any", "anny"))
    assert caught.value.code == "policy_invalid"


def test_closing_a_graph_with_a_policy_closes_it(address: Path) -> None:
    with opened(address, "kiosk") as graph:
        pass
    with pytest.raises(og.GraphClosed):
        graph.query(ALL)


def test_an_actor_without_a_policy_writes_and_may_do_everything(address: Path) -> None:
    with og.connect(address, actor="ada", durability="os") as graph:
        graph.mutate(ADD, s="b")
        assert graph.commits.list()[0].actor == "ada"


def test_each_kind_of_address_refuses_what_is_for_the_other(address: Path) -> None:
    with pytest.raises(InvalidRequest, match="on storage takes no token, retries"):
        og.connect(address, token="t", retries=1)
    options: dict[str, Any] = {"policy": LIBRARY, "actor": "ada", "storage_options": {}, "durability": "os"}
    for name, value in options.items():
        with pytest.raises(InvalidRequest, match=f"of a server takes no {name}"):
            og.connect("https://db.example/graphs/kb", **{name: value})


def test_nothing_but_a_policy_loads_cedar(address: Path) -> None:
    program = (
        "import sys, omnigraph as og\n"
        "from omnigraph.surfaces.cli.app import main\n"
        "main(['version'])\n"
        f"og.connect({str(address)!r}, actor='ada').query({ALL!r})\n"
        "print('cedarpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"
