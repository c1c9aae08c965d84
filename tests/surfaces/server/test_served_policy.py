"""The policy that a server asks can be asked about, by who administers the graph, and by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from omnigraph.surfaces.cli.app import main
from tests.support.served import Served, serving
from tests.surfaces.server.conftest import make_graph

POLICY = """
version: 1
groups: { readers: [rita], admins: [ada] }
protected_branches: [main]
rules:
  - id: all-read
    allow: { actors: { group: readers }, actions: [read], branch_scope: protected }
  - id: administer
    allow: { actors: { group: admins }, actions: [admin] }
"""
TESTS = """
version: 1
cases:
  - { id: rita-reads-main, actor: rita, action: read, branch: main, expect: allow }
  - { id: rita-writes, actor: rita, action: change, branch: main, expect: EXPECTED }
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("policy")
    (folder / "tokens.json").write_text(json.dumps({"ada": "ada-token", "rita": "rita-token"}))
    (folder / "policy.yaml").write_text(POLICY)
    arguments = ["--tokens", str(folder / "tokens.json"), "--policy", str(folder / "policy.yaml")]
    with serving(make_graph(folder), *arguments, authenticated=True) as server:
        yield server


@pytest.fixture
def as_ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "ada-token")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.usefixtures("as_ada")
def test_a_decision_is_explained(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    question = ["policy", "explain", served.graph, "--actor", "rita", "--action", "read"]
    code, allowed = told(capsys, *question, "--branch", "main")
    assert (code, allowed["decision"], allowed["matched_rule"]) == (0, "allow", "all-read")
    _, denied = told(capsys, *question, "--branch", "draft")
    assert denied["decision"] == "deny"
    assert denied["nearest_rules"] == [
        {"rule": "all-read", "failed": ["branch 'draft' is not protected, and its branch_scope is protected"]}
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("as_ada")
def test_it_says_the_same_as_the_file(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    file = ["--file", str(tmp_path / "policy.yaml")]
    for expected, code in (("deny", 0), ("allow", 1)):
        (tmp_path / "tests.yaml").write_text(TESTS.replace("EXPECTED", expected))
        tests = ["policy", "test", "--tests", str(tmp_path / "tests.yaml")]
        of_server, of_file = told(capsys, *tests, served.graph), told(capsys, *tests, *file)
        assert of_server == of_file
        assert of_server[0] == code
    assert told(capsys, "policy", "validate", served.graph) == told(capsys, "policy", "validate", *file)


@pytest.mark.slow
def test_only_who_administers_the_graph_may_ask(served: Served) -> None:
    question = {"actor": "ada", "action": "read"}
    for token, status in (("ada-token", 200), ("rita-token", 403)):
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{served.graph}/policy", headers=headers).status_code == status
        answer = httpx.post(f"{served.graph}/policy/explain", headers=headers, json=question)
        assert answer.status_code == status
