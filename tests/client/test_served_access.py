"""A server that asks for tokens: who is told what, which token goes where, and queries by name."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import AuthenticationError, PermissionDenied, QueryNotFound
from omnigraph.surfaces.cli.app import main
from omnigraph.surfaces.cli.settings import Config, Settings
from omnigraph.surfaces.cli.support.served import is_below, token_for
from tests.support.served import Served, serving

SCHEMA = "node Person { name: String @key  age: I32? }\n"
ADD = "query add($n: String) { insert Person { name: $n } }"
STORED = """
query everybody() @description("all of them") { match { $p: Person } return { $p.name } }
query named($n: String, $min: F64?) { match { $p: Person { name: $n } } return { $p.age } }
query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }
"""
POLICY = """
version: 1
kind: graph
groups: { writers: [ada], readers: [bob] }
rules:
  - id: all-read
    allow: { actors: { group: readers }, actions: [read, invoke_query] }
  - id: writers-write
    allow: { actors: { group: writers }, actions: [read, change, invoke_query, export] }
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tokens")
    with og.init(folder / "kb.og", SCHEMA, durability="os") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada", "age": 36}}], mode="append")
    (folder / "queries").mkdir()
    (folder / "queries/people.gq").write_text(STORED)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "tokens.json").write_text(json.dumps({"ada": "t-ada", "bob": "t-bob"}))
    os.chmod(folder / "tokens.json", 0o600)
    flags = [
        *("--tokens", str(folder / "tokens.json"), "--policy", str(folder / "policy.yaml")),
        *("--queries", str(folder / "queries")),
    ]
    with serving(folder / "kb.og", *flags, authenticated=True) as server:
        yield server


# -- from Python -------------------------------------------------------------------------------------


def test_a_token_decides_who_writes(served: Served) -> None:
    with og.connect(served.graph, token="t-ada") as graph:
        receipt = graph.mutate(ADD, n="Eve")
        assert receipt.actor == "ada"
        with pytest.raises(og.InvalidRequest, match="token"):
            graph.mutate(ADD, n="Fay", actor="bob")


@pytest.mark.parametrize("token", [None, "t-eve"])
def test_without_a_token_of_the_server_nothing_is_told(served: Served, token: str | None) -> None:
    with og.connect(served.graph, token=token) as graph, pytest.raises(AuthenticationError) as caught:
        graph.branches.list()
    assert "t-eve" not in str(caught.value)


DENIED: dict[str, Callable[[Any], object]] = {
    "change": lambda g: g.mutate(ADD, n="Eve"),
    "change by load": lambda g: g.load([], mode="merge"),
    "change by revert": lambda g: g.revert(g.commits.list()[0].id),
    "change by tag": lambda g: g.tags.create("v1"),
    "change by stored query": lambda g: g.run("add", n="Eve"),
    "export": lambda g: g.export("out"),
    "schema_apply": lambda g: g.schema.apply(SCHEMA),
    "branch_create": lambda g: g.branches.create("side"),
    "branch_create by name": lambda g: g.branch("side", create=True),
    "branch_delete": lambda g: g.branches.delete("side"),
    "branch_delete by rename": lambda g: g.branches.rename("side", "other"),
    "branch_merge": lambda g: g.merge("side"),
}


@pytest.mark.parametrize("name", DENIED)
def test_what_a_policy_denies_is_the_same_error_as_of_an_embedded_graph(
    name: str, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with og.init(tmp_path / "kb.og", SCHEMA, durability="os") as made:
        made.load([{"type": "Person", "data": {"name": "Ada", "age": 36}}], mode="append")
    (tmp_path / "people.gq").write_text(STORED)
    denied = []
    for graph in (
        og.connect(tmp_path / "kb.og", policy=POLICY, actor="bob", queries=tmp_path),
        og.connect(served.graph, token="t-bob"),
    ):
        with graph, pytest.raises(PermissionDenied) as caught:
            DENIED[name](graph)
        error = caught.value
        resource = str(error.fields.pop("resource"))
        error.fields.pop("request_id", None)
        told = str(error).replace(resource, "GRAPH")
        denied.append((type(error), error.code, error.kind, error.action, told, error.fields))
    assert denied[0] == denied[1]
    assert denied[0][3] == name.partition(" ")[0]


def test_a_stored_query_is_called_by_its_name(served: Served) -> None:
    with og.connect(served.graph, token="t-ada") as graph:
        remote: Any = graph
        listed = {entry["name"]: entry for entry in remote.queries.list()}
        assert list(listed) == ["add", "everybody", "named"]
        assert listed["everybody"]["description"] == "all of them"
        assert listed["add"]["mutation"] is True
        rows = remote.run("named", n="Ada")
        assert isinstance(rows, og.Result)
        assert rows.rows == [{"p.age": 36}]
        receipt = remote.run("add", {"n": "Gus"}, idempotency_key="g", message="why")
        again = remote.run("add", {"n": "Gus"}, idempotency_key="g", message="why")
        assert isinstance(receipt, og.Receipt)
        assert (again.replayed, again.commit_id) == (True, receipt.commit_id)
        with pytest.raises(QueryNotFound):
            remote.run("nothing")
        with pytest.raises(og.InvalidRequest):
            remote.run("add", n="x", expect_mutation=False)


# -- from the command line ---------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with an operator config that names the server, and nothing else."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("OG_", "OMNIGRAPH_")) and name != "OMNIGRAPH_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("OG_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def config(home: Path, served: Served, more: str = "") -> None:
    (home / "config.yaml").write_text(f'servers: {{ team: {{ url: "{served.url}" }} }}\n{more}')


def run(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*line, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def test_login_keeps_a_token_that_only_its_owner_can_read(
    served: Served, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config(home, served)
    assert run(capsys, "branch", "list", "team/kb")[0] == 3
    code, document = run(capsys, "login", "team", "--token", "t-ada")
    assert (code, document["server"], document["declared"]) == (0, "team", True)
    assert "t-ada" not in json.dumps(document)
    assert stat.S_IMODE((home / "credentials").stat().st_mode) == 0o600
    assert run(capsys, "branch", "list", "team/kb") == (0, {"branches": ["main"]})
    assert run(capsys, "branch", "list", "--server", "team", "--graph", "kb")[0] == 0
    assert run(capsys, "branch", "list", f"{served.url}/graphs/kb")[0] == 0
    assert run(capsys, "logout", "team")[0] == 0
    assert run(capsys, "branch", "list", "team/kb")[0] == 3


def test_a_token_is_read_from_standard_input(
    served: Served, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    config(home, served)
    monkeypatch.setattr("sys.stdin", io.StringIO("t-bob\n"))
    assert run(capsys, "login", "team")[0] == 0
    code, document = run(capsys, "mutate", "team/kb", "-e", ADD, "--param", "n=Eve")
    assert (code, document["code"]) == (3, "forbidden")


def test_credentials_that_others_can_read_are_refused(
    served: Served, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config(home, served)
    (home / "credentials").write_text("[team]\ntoken = t-ada\n")
    (home / "credentials").chmod(0o644)
    code, document = run(capsys, "branch", "list", "team/kb")
    assert code == 2
    assert "chmod 600" in document["error"]


@pytest.mark.parametrize(
    "more",
    [
        "defaults: { server: team, default_graph: kb }\n",
        "profiles: { work: { server: team, default_graph: kb } }\n",
        "defaults: { server: team }\n",
    ],
)
def test_a_default_or_a_profile_names_a_served_graph(
    served: Served,
    home: Path,
    more: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config(home, served, more)
    monkeypatch.setenv("OG_TOKEN_TEAM", "t-ada")
    profile = ["--profile", "work"] if "profiles" in more else []
    assert run(capsys, "branch", "list", *profile) == (0, {"branches": ["main"]})


ALIASES = """
aliases:
  who: { server: team, graph: kb, query: named, args: [n], format: csv }
  eve: { server: team, query: add, params: { n: Eva, a: 9 } }
  bad: { server: team }
"""


def test_an_alias_of_a_person_calls_a_stored_query(
    served: Served, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config(home, served, ALIASES)
    monkeypatch.setenv("OG_TOKEN_TEAM", "t-ada")
    assert main(["alias", "who", "Ada"]) == 0
    assert capsys.readouterr().out.split() == ["p.age", "36"]
    code, receipt = run(capsys, "alias", "eve")
    assert (code, receipt["affected_nodes"], receipt["actor_id"]) == (0, 1, "ada")
    assert run(capsys, "alias", "who", "Eva")[1]["rows"] == [{"p.age": 9}]
    for line, told, named in (
        (["alias", "bad"], "bad_request", "names no query"),
        (["alias", "wo"], "not_found", "'who'"),
        (["alias", "who", "Ada", "--explain"], "bad_request", "no plan"),
        (["alias", "who", "Ada", "--as", "bob"], "bad_request", "the token"),
    ):
        _, refused = run(capsys, *line)
        assert refused["code"] == told
        assert named in refused["error"]


def test_a_stored_query_needs_no_text(
    served: Served, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "t-ada")
    code, document = run(capsys, "query", served.graph, "named", "--param", "n=Ada")
    assert (code, document["rows"]) == (0, [{"p.age": 36}])
    code, document = run(capsys, "mutate", served.graph, "add", "--param", "n=Hal", "--param", "a=4")
    assert (code, document["affected_nodes"]) == (0, 1)
    assert run(capsys, "query", served.graph, "nothing")[0] == 6
    assert run(capsys, "queries", "validate", served.graph)[0] == 0
    code, document = run(capsys, "queries", "list", served.graph)
    assert [entry["name"] for entry in document["queries"]] == ["add", "everybody", "named"]


# -- which token goes where --------------------------------------------------------------------------

URL = "https://graphs.example.org/team"


def settings(servers: dict[str, Any] | None = None, project: dict[str, Any] | None = None) -> Settings:
    return Settings(config=Config({"servers": servers or {}}, project or {}))


@pytest.mark.parametrize(
    ("address", "token"),
    [
        (f"{URL}/graphs/kb", "own"),
        (URL, "own"),
        (f"{URL}s/graphs/kb", None),
        ("https://graphs.example.org/graphs/kb", None),
        ("https://graphs.example.org.evil.example/team/graphs/kb", None),
        ("http://graphs.example.org/team/graphs/kb", None),
        ("https://graphs.example.org:8443/team/graphs/kb", None),
        (f"{URL}/../other/graphs/kb", None),
        ("https://graphs.example.org@evil.example/team/graphs/kb", None),
        ("https://ada@graphs.example.org/team/graphs/kb", None),
    ],
)
def test_a_named_token_goes_to_its_server_only(home: Path, address: str, token: str | None) -> None:
    environment = {"OG_TOKEN_MY_TEAM": "own"}
    assert token_for(settings({"my-team": {"url": URL}}), address, environment) == token


def test_the_server_with_the_longest_address_counts(home: Path) -> None:
    servers = {"all": {"url": "https://graphs.example.org"}, "team": {"url": URL}}
    environment = {"OG_TOKEN_ALL": "all", "OG_TOKEN_TEAM": "team"}
    assert token_for(settings(servers), f"{URL}/graphs/kb", environment) == "team"


def test_a_project_file_diverts_no_token(home: Path) -> None:
    project = {
        "graphs": {
            "far": {"uri": "https://evil.example/graphs/kb", "bearer_token_env": "AWS_SECRET"},
            "near": {"uri": "http://127.0.0.1:8080/graphs/kb", "bearer_token_env": "MINE"},
            "known": {"uri": "https://graphs.example.org/x/graphs/kb", "bearer_token_env": "MINE"},
        },
        "cli": {"graph": "https://evil.example/graphs/other"},
    }
    environment = {"AWS_SECRET": "secret", "MINE": "mine", "OG_BEARER_TOKEN": "any"}
    told = settings({"team": {"url": URL}}, project)
    assert token_for(told, "https://evil.example/graphs/kb", environment) is None
    assert token_for(told, "https://evil.example/graphs/other", environment) is None
    assert token_for(told, "http://127.0.0.1:8080/graphs/kb", environment) == "mine"
    assert token_for(told, "https://graphs.example.org/x/graphs/kb", environment) == "mine"
    assert token_for(told, "https://elsewhere.example/graphs/kb", environment) == "any"


def test_a_segment_counts_whole() -> None:
    assert is_below("https://db/a/b", "https://db/a/")
    assert is_below("https://DB:443/a", "https://db/a")
    assert not is_below("https://db/ab", "https://db/a")
    assert not is_below("https://db/a/./../b", "https://db/a")
