"""A command prints the same, and ends with the same code, on a path and on the address of a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.surfaces.cli.app import main
from tests.parity.ground import ADD, BOTH_RANKED, BY_AGE, GROWN, KEYED, NEAREST, REFUSED, ROWS, SET, person
from tests.support.doors import Doors, Plain

ADDRESS, HEAD = "ADDR", "HEAD"
LINES: dict[str, list[list[str]]] = {
    "reads": [
        ["query", ADDRESS, "-e", ROWS],
        ["query", ADDRESS, "-e", BY_AGE, "--param", "n=30", "--format", "csv"],
        ["query", ADDRESS, "-e", BY_AGE, "--params", '{"n": 30}', "--snapshot", "main~1"],
        [
            "query",
            ADDRESS,
            "-e",
            "query q($h: F64, $m: Bool) { match { $p: Person  $p.height > $h  "
            "$p.member = $m } return { $p.name } }",
            "--param",
            "h=1.5",
            "--param",
            "m=true",
        ],
        ["query", ADDRESS, "-e", "query a() { match { $p: Persn } return { $p.name } }"],
        ["query", ADDRESS, "-e", BY_AGE, "--param", "n=x"],
        ["query", ADDRESS, "-e", BY_AGE, "--branch", "none", "--param", "n=1"],
        ["query", ADDRESS, "-e", NEAREST, "--param", "t=a dog in the park"],
        ["query", ADDRESS, "-e", BOTH_RANKED, "--param", "t=a dog in the park", "--snapshot", "v1"],
        ["explain", ADDRESS, "-e", BY_AGE, "--param", "n=30"],
        ["snapshot", ADDRESS],
        ["entity", "history", ADDRESS, "Person", "Ada"],
        ["entity", "history", ADDRESS, "Person", "nobody"],
        ["schema", "show", ADDRESS],
        ["schema", "show", ADDRESS, "--format", "json"],
        ["schema", "diagram", ADDRESS],
    ],
    "stored": [
        ["queries", "list", ADDRESS],
        ["queries", "validate", ADDRESS],
        ["query", ADDRESS, "by", "--param", "n=30"],
        ["query", ADDRESS, "by", "--param", "n=30", "--format", "csv", "--snapshot", "v1"],
        ["query", ADDRESS, "everybody", "--format", "jsonl"],
        ["query", ADDRESS, "by"],
        ["query", ADDRESS, "by", "--param", "n=x"],
        ["query", ADDRESS, "none"],
        ["query", ADDRESS, "add"],
        ["mutate", ADDRESS, "by"],
        ["mutate", ADDRESS, "add", "--param", "name=Eve", "--idempotency-key", "k", "--message", "hello"],
        ["mutate", ADDRESS, "add", "--param", "name=Eve", "--idempotency-key", "k", "--message", "hello"],
        ["mutate", ADDRESS, "add", "--param", "name=Fay", "--idempotency-key", "k"],
        ["mutate", ADDRESS, "add", "--param", "name=Fay", "--if-commit", "0" * 26],
        ["mutate", ADDRESS, "add", "--param", "name=Fay", "--dry-run"],
        ["mutate", ADDRESS, "add", "--param", "name=Gus", "--branch", "none"],
    ],
    "writes": [
        ["mutate", ADDRESS, "-e", ADD, "--param", "name=Eve", "--message", "hello"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=nobody", "--param", "age=1"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=1", "--dry-run"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=200"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=3", "--idempotency-key", "k"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=3", "--idempotency-key", "k"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=4", "--if-commit", "0" * 26],
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "merge"],
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "merge", "--idempotency-key", "l"],
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "merge", "--idempotency-key", "l"],
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "merge", "--if-commit", "0" * 26],
        ["load", ADDRESS, "--data", "Person.csv", "--mode", "merge"],
        ["load", ADDRESS, "--data", "bad.jsonl", "--mode", "append"],
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "append"],
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "merge", "--branch", "new", "--from", "main"],
        ["query", ADDRESS, "-e", ROWS, "--format", "jsonl"],
    ],
    "branches": [
        ["branch", "create", ADDRESS, "review"],
        ["branch", "create", ADDRESS, "review"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=1", "--branch", "review"],
        ["mutate", ADDRESS, "-e", SET, "--param", "name=Ada", "--param", "age=2"],
        ["branch", "diff", ADDRESS, "review"],
        ["diff", ADDRESS, "main~1", "main", "--stat"],
        ["merge", ADDRESS, "review", "--preview"],
        ["merge", ADDRESS, "review"],
        ["merge", ADDRESS, "review", "--strategy", "theirs", "--delete-branch"],
        ["branch", "list", ADDRESS, "--long"],
        ["branch", "create", ADDRESS, "other", "--from-commit", "v1"],
        ["branch", "rename", ADDRESS, "other", "another"],
        ["branch", "delete", ADDRESS, "another", "--yes"],
        ["branch", "delete", ADDRESS, "another", "--yes"],
        ["tag", "create", ADDRESS, "v2"],
        ["tag", "list", ADDRESS],
        ["tag", "delete", ADDRESS, "v2"],
    ],
    "history": [
        ["commit", "list", ADDRESS],
        ["commit", "list", ADDRESS, "--limit", "1", "--actor", "ada"],
        ["commit", "show", ADDRESS, "v1"],
        ["commit", "show", ADDRESS, "none"],
        ["commit", "changes", ADDRESS, "v1", "--kind", "node"],
        ["log", ADDRESS],
        ["revert", ADDRESS, "v1", "--preview"],
        ["revert", ADDRESS, "v1", "--message", "no"],
        ["revert", ADDRESS, "none"],
        ["changes", "poll", ADDRESS, "--start", "beginning"],
        ["changes", "poll", ADDRESS, "--cursor", "none"],
    ],
    "schema": [
        ["schema", "plan", ADDRESS, "--schema", "grown.pg"],
        ["schema", "plan", ADDRESS, "--schema", "refused.pg"],
        ["schema", "apply", ADDRESS, "--schema", "refused.pg"],
        ["schema", "apply", ADDRESS, "--schema", "grown.pg", "--dry-run"],
        ["schema", "apply", ADDRESS, "--schema", "grown.pg"],
        ["schema", "lint", ADDRESS, "--schema", "refused.pg"],
        ["export", ADDRESS],
        ["export", ADDRESS, "--type", "Person", "--type", "Knows", "--snapshot", "v1"],
        ["export", ADDRESS, "--branch", "none"],
        ["export", ADDRESS, "out.jsonl"],
        ["export", ADDRESS, "folder", "--format", "jsonl"],
        ["export", ADDRESS, "folder", "--format", "jsonl"],
    ],
    "keyed edges": [
        ["load", ADDRESS, "--data", "knows.jsonl", "--mode", "merge"],
        ["schema", "plan", ADDRESS, "--schema", "keyed.pg"],
        ["schema", "apply", ADDRESS, "--schema", "keyed.pg"],
        ["schema", "apply", ADDRESS, "--schema", "keyed.pg", "--dedupe", "equal", "--dry-run"],
        ["schema", "apply", ADDRESS, "--schema", "keyed.pg", "--dedupe", "latest"],
        ["diff", ADDRESS, "main~1", "main"],
        ["load", ADDRESS, "--data", "knows.jsonl", "--mode", "append"],
        ["schema", "diagram", ADDRESS],
    ],
}


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two working directories with the files that the lines name, and no configuration."""
    monkeypatch.setenv("OG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("EMBEDDINGS_MOCK", "1")
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        record = '{"type":"Person","data":{"name":"Eve","born":"2000-01-01"}}\n'
        (folder / "more.jsonl").write_text(record)
        (folder / "bad.jsonl").write_text(record.replace("Eve", "Fay") + '{"type":"Person"}\nx\n')
        (folder / "Person.csv").write_text("name,age\nGus,7\n")
        (folder / "grown.pg").write_text(GROWN)
        (folder / "refused.pg").write_text(REFUSED)
        (folder / "keyed.pg").write_text(KEYED)
        (folder / "knows.jsonl").write_text('{"edge":"Knows","from":"Ada","to":"Bob","data":{"since":1}}\n')
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.mark.parametrize("form", ["--json", "--no-color"])
@pytest.mark.parametrize("name", LINES)
def test_commands_are_the_same(
    name: str,
    form: str,
    both: Doors,
    desktop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    addresses = {"here": str(both.place()), "there": both.address(both.place())}
    project = {"graphs": {"kb": {"uri": addresses["here"], "queries": str(both.queries)}}}
    (desktop / "here/omnigraph.yaml").write_text(json.dumps(project))
    plain = {place: Plain() for place in addresses}
    for line in LINES[name]:
        ended = []
        for place, address in addresses.items():
            monkeypatch.chdir(desktop / place)
            code = main([*(word.replace(ADDRESS, address) for word in line), form])
            out = capsys.readouterr().out.replace(address, ADDRESS).replace(str(desktop / place), ".")
            ended.append((code, plain[place](_document(out) if form == "--json" else out)))
        assert ended[1] == ended[0], line


def _two_sides(g: Any) -> None:
    g.branches.create("side")
    g.mutate(SET, name="Ada", age=1, branch="side")
    g.mutate(SET, name="Bob", age=2)


VALUES: dict[str, tuple[list[str], Callable[[Any], Any]]] = {
    "a read": (["query", ADDRESS, "-e", ROWS], lambda g: g.query(ROWS).to_json()),
    "a read of the past": (
        ["query", ADDRESS, "-e", BY_AGE, "--param", "n=30", "--snapshot", "main~1"],
        lambda g: g.query(BY_AGE, n=30, at="main~1").to_json(),
    ),
    "a stored read": (["query", ADDRESS, "by", "--param", "n=30"], lambda g: g.run("by", n=30).to_json()),
    "a ranking": (
        ["query", ADDRESS, "-e", NEAREST, "--param", "t=a dog"],
        lambda g: g.query(NEAREST, t="a dog").to_json(),
    ),
    "a mutation": (
        ["mutate", ADDRESS, "-e", ADD, "--param", "name=Eve", "--message", "m"],
        lambda g: g.mutate(ADD, name="Eve", message="m").to_json(),
    ),
    "a mutation of nothing": (
        ["mutate", ADDRESS, "-e", SET, "--param", "name=x", "--param", "age=1"],
        lambda g: g.mutate(SET, name="x", age=1).to_json(),
    ),
    "a stored mutation": (
        ["mutate", ADDRESS, "add", "--param", "name=Eve"],
        lambda g: g.run("add", name="Eve").to_json(),
    ),
    "a load": (
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "append"],
        lambda g: g.load([person("Eve", born="2000-01-01")], mode="append").to_json(),
    ),
    "a merge": (["merge", ADDRESS, "side"], lambda g: g.merge("side").to_json()),
    "a preview": (["merge", ADDRESS, "side", "--preview"], lambda g: g.merge("side", preview=True).to_json()),
    "a revert": (["revert", ADDRESS, HEAD], lambda g: g.revert(g.commits.list()[0].id).to_json()),
    "branches": (
        ["branch", "list", ADDRESS],
        lambda g: {"branches": [branch.name for branch in g.branches.list()]},
    ),
    "a difference": (["diff", ADDRESS, "main", "side"], lambda g: g.diff("main", "side").to_json()),
    "stored queries": (["queries", "list", ADDRESS], lambda g: {"queries": list(g.queries.list())}),
}


@pytest.mark.parametrize("name", VALUES)
def test_the_command_line_prints_what_python_gives(
    name: str, both: Doors, desktop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, ask = VALUES[name]
    answers: list[Any] = []
    for address in [*(str(both.place()) for _ in range(2)), both.address(both.place())]:
        project = {"graphs": {"kb": {"uri": address, "queries": str(both.queries)}}}
        (desktop / "here/omnigraph.yaml").write_text(json.dumps(project))
        with both.opened(address) as graph:
            _two_sides(graph)
            if not answers:
                answers.append(Plain()(ask(graph)))
                continue
            head = graph.commits.list()[0].id
        words = [word.replace(ADDRESS, address).replace(HEAD, head) for word in line]
        assert main([*words, "--json"]) == 0
        answers.append(Plain()(_document(capsys.readouterr().out)))
    python, *command_line = answers
    assert command_line == [python, python]


def _document(out: str) -> Any:
    try:
        document = json.loads(out)
    except ValueError:
        return out
    details = document.get("details") if isinstance(document, dict) else None
    if isinstance(details, dict) and not details.keys() - {"request_id"}:  # which only a server has
        del document["details"]
    return document


NEEDS_STORAGE: list[list[str]] = [
    ["init", ADDRESS, "--schema", "grown.pg"],
    ["optimize", ADDRESS],
    ["embed", ADDRESS],
    ["cleanup", ADDRESS, "--keep", "1"],
    ["verify", ADDRESS],
    ["doctor", ADDRESS],
    ["repair", ADDRESS],
    ["upgrade", ADDRESS],
    ["backup", ADDRESS, "copy"],
    ["restore", ADDRESS, "copy"],
    ["clone", ADDRESS, "copy"],
    ["merge", ADDRESS, "side", "--engine", "spark"],
    ["load", ADDRESS, "--data", "more.jsonl", "--mode", "append", "--engine", "spark"],
    ["serve", ADDRESS, "--unauthenticated"],
    ["doctor", "--environment", ADDRESS],
    ["export", ADDRESS, "out", "--engine", "spark"],
]


@pytest.mark.parametrize("line", NEEDS_STORAGE, ids=" ".join)
def test_what_needs_the_storage_says_so(
    line: list[str], desktop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://127.0.0.1:9/graphs/kb"  # nobody listens: nothing is asked
    code = main([word.replace(ADDRESS, address) for word in line] + ["--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["code"]) == (2, "bad_request")
    assert "a server does not give that out" in document["error"]


def test_a_served_write_takes_no_actor(desktop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["mutate", "http://127.0.0.1:9/graphs/kb", "-e", ADD, "--param", "name=E", "--as", "ada"]
    assert main(line) == 2
    assert "the token" in capsys.readouterr().err


def test_the_configured_actor_is_not_asked_of_a_server(both: Doors, desktop: Path) -> None:
    (desktop / "home").mkdir()
    (desktop / "home/config.yaml").write_text("operator: { actor: ada }\n")
    address = both.address(both.place())
    assert main(["mutate", address, "-e", ADD, "--param", "name=Eve", "--quiet"]) == 0


def test_graphs_of_a_server_are_listed_and_a_server_of_several_asks_which(
    both: Doors, desktop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graphs", "list", both.url, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["graphs"]
    assert {"first", "second"} <= {graph["graph_id"] for graph in listed}
    assert main(["snapshot", both.url]) == 2
    assert "graphs: first, second" in capsys.readouterr().err
