"""A command prints the same, and ends with the same code, on a path and on the address of a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.surfaces.cli.app import main
from tests.parity.ground import ADD, BY_AGE, GROWN, REFUSED, ROWS, SET
from tests.support.doors import Doors, Plain

ADDRESS = "ADDR"
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
        ["load", ADDRESS, "--data", "more.jsonl", "--mode", "merge"],
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
        ["export", ADDRESS, "out.jsonl"],
        ["export", ADDRESS, "folder", "--format", "jsonl"],
        ["export", ADDRESS, "folder", "--format", "jsonl"],
    ],
}


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two working directories with the files that the lines name, and no configuration."""
    monkeypatch.setenv("OG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        record = '{"type":"Person","data":{"name":"Eve","born":"2000-01-01"}}\n'
        (folder / "more.jsonl").write_text(record)
        (folder / "bad.jsonl").write_text(record.replace("Eve", "Fay") + '{"type":"Person"}\nx\n')
        (folder / "Person.csv").write_text("name,age\nGus,7\n")
        (folder / "grown.pg").write_text(GROWN)
        (folder / "refused.pg").write_text(REFUSED)
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


def _document(out: str) -> Any:
    try:
        document = json.loads(out)
    except ValueError:
        return out
    details = document.get("details")
    if details is not None and not details.keys() - {"request_id"}:  # which only a server has
        del document["details"]
    return document


NEEDS_STORAGE: list[list[str]] = [
    ["init", ADDRESS, "--schema", "grown.pg"],
    ["optimize", ADDRESS],
    ["cleanup", ADDRESS, "--keep", "1"],
    ["verify", ADDRESS],
    ["doctor", ADDRESS],
    ["repair", ADDRESS],
    ["upgrade", ADDRESS],
    ["backup", ADDRESS, "copy"],
    ["restore", ADDRESS, "copy"],
    ["clone", ADDRESS, "copy"],
    ["merge", ADDRESS, "side", "--engine", "spark"],
]


@pytest.mark.parametrize("line", NEEDS_STORAGE, ids=lambda line: line[0])
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
