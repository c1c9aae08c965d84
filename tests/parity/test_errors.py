"""What a graph refuses, it refuses the same way here, behind a server, and on the command line.

Between the two graphs of Python class, code, details and texts are compared; with the command line, on a
path and on the address of a server, what it has: code, kind and exit code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.base.errors import GraphError
from omnigraph.surfaces.cli.app import main
from tests.parity.ground import ADD, ALL, BY_AGE, REFUSED, SCHEMA, SET, knows, person
from tests.support.doors import Doors, Plain, failure

NO_ID = "0" * 26
BROKEN = "query q() { match { $p: Persn } return { $p.name } }"


def _conflict(g: Any) -> object:
    g.branches.create("side")
    g.mutate(SET, name="Ada", age=1, branch="side")
    g.mutate(SET, name="Ada", age=2)
    return g.merge("side")


def _schema_conflict(g: Any) -> object:
    g.branches.create("side")
    g.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"), branch="side")
    g.schema.apply(SCHEMA.replace("  age: I32?\n", "").replace("  @range(age, 0..120)\n", ""))
    return g.merge("side")


def _meaningless(g: Any) -> object:
    g.branches.create("side")
    g.mutate(SET, name="Ada", age=1, branch="side")
    return g.merge("side", resolutions=[{"type": "Persn", "id": "Ada", "take": "ours"}])


def _reused_key(g: Any) -> object:
    g.mutate(ADD, name="Eve", idempotency_key="k")
    return g.mutate(ADD, name="Fay", idempotency_key="k")


def _reused_key_of_a_load(g: Any) -> object:
    g.load([person("Eve")], mode="append", idempotency_key="k")
    return g.load([person("Fay")], mode="append", idempotency_key="k")


def _fork_and_delete(g: Any) -> object:
    g.branches.create("side")
    g.branches.create("below", "side")
    return g.branches.delete("side")


def _tag_and_delete(g: Any) -> object:
    g.branches.create("side")
    g.mutate(ADD, name="Eve", branch="side")
    g.tags.create("kept", branch="side")
    return g.branches.delete("side")


def _cursor_of_another_filter(g: Any) -> object:
    return g.changes(g.changes.poll().cursor, types="Person")


def _reverted_in_conflict(g: Any) -> object:
    commit = g.mutate(SET, name="Ada", age=1).commit_id
    g.mutate(SET, name="Ada", age=2)
    return g.revert(commit)


CASES: dict[str, Callable[[Any], object]] = {
    "text of no query": lambda g: g.query("quarry"),
    "unknown type": lambda g: g.query(BROKEN),
    "several faults": lambda g: g.query(BROKEN.replace("$p.name", "$q.name, $p.nme")),
    "a mutation as a query": lambda g: g.query(ADD, name="Eve"),
    "a query as a mutation": lambda g: g.mutate(ALL),
    "a fault of a mutation": lambda g: g.mutate("query q() { insert Persn { name: 1 } }"),
    "no such name": lambda g: g.query(ALL, query_name="none"),
    "several queries": lambda g: g.query(ALL + BY_AGE),
    "missing parameter": lambda g: g.query(BY_AGE),
    "unknown parameter": lambda g: g.query(BY_AGE, n=1, m=2),
    "mistyped parameter": lambda g: g.query(BY_AGE, n="x"),
    "several parameters": lambda g: g.query(BY_AGE, {"n": True, "m": 1}),
    "parameter given twice": lambda g: g.query(BY_AGE, {"n": 1}, n=2),
    "stored: none of this name": lambda g: g.run("none"),
    "stored: a read as a mutation": lambda g: g.run("everybody", expect_mutation=True),
    "stored: a mutation as a read": lambda g: g.run("add", name="Eve", expect_mutation=False),
    "stored: a mutation of the past": lambda g: g.run("add", name="Eve", at="v1"),
    "stored: a mutation in a past view": lambda g: g.at("v1").run("add", name="Eve"),
    "stored: a read with a message": lambda g: g.run("everybody", message="why"),
    "stored: a read on a head": lambda g: g.run("everybody", if_commit=NO_ID),
    "stored: a missing parameter": lambda g: g.run("by"),
    "stored: a mistyped parameter": lambda g: g.run("by", n="x"),
    "stored: a broken constraint": lambda g: g.run("add", name="Eve", age=200),
    "stored: an unknown branch": lambda g: g.run("everybody", branch="none"),
    "unknown branch": lambda g: g.query(ALL, branch="none"),
    "unknown branch to write": lambda g: g.mutate(ADD, name="Eve", branch="none"),
    "unknown branch to bind": lambda g: g.branch("none"),
    "unknown commit": lambda g: g.query(ALL, at=NO_ID),
    "unknown tag": lambda g: g.query(ALL, at="none"),
    "unknown commit to bind": lambda g: g.at(NO_ID),
    "unreadable moment": lambda g: g.at("x" * 1_000),
    "ambiguous commit": lambda g: g.commits.get(g.commits.list()[0].id[:6]),
    "writing to the past": lambda g: g.at("main~1").mutate(ADD, name="Eve"),
    "memory": lambda g: g.query(
        "query q() { match { $a: Person $b: Person $c: Person } return { $a.name, $b.name, $c.name } }",
        memory_bytes=1,
    ),
    "broken constraint": lambda g: g.mutate(ADD, name="Eve", age=200),
    "head lost": lambda g: g.mutate(ADD, name="Eve", if_commit=g.commits.list()[1].id),
    "key of another request": _reused_key,
    "key of another load": _reused_key_of_a_load,
    "load: key exists": lambda g: g.load([person("Ada")], mode="append"),
    "load: bad records": lambda g: g.load([person("Eve", age="x"), {"type": "Persn"}, {}], mode="append"),
    "load: bad line": lambda g: g.load(
        b'{"type":"Person","data":{"name":"Eve"}}\n{nonsense\n', mode="append"
    ),
    "load: orphan": lambda g: g.load([knows("xx", "Ada", "nobody")], mode="append"),
    "load: twice": lambda g: g.load([person("Eve"), person("Eve")], mode="append"),
    "load: missing branch": lambda g: g.load([person("Eve")], mode="append", branch="none"),
    "load: no such type": lambda g: g.load([{"name": "Eve"}], mode="append", type="Persn"),
    "load: no such file": lambda g: g.load("none.jsonl", mode="append"),
    "load: replaced types": lambda g: g.load([person("E")], mode="merge", replace_types=["Knows"]),
    "load: no data": lambda g: g.load(7, mode="append"),
    "branch exists": lambda g: (g.branches.create("side"), g.branches.create("side")),
    "branch of no name": lambda g: g.branches.create("x" * 1_000),
    "reserved branch": lambda g: g.branches.create("__mine"),
    "branch with descendants": _fork_and_delete,
    "branch with tags": _tag_and_delete,
    "main stays": lambda g: g.branches.delete("main"),
    "rename to one that is": lambda g: (g.branches.create("side"), g.branches.rename("side", "main")),
    "branch that is not": lambda g: g.branches.delete("none"),
    "merge of itself": lambda g: g.merge("main"),
    "merge of nothing": lambda g: g.merge("none"),
    "merge conflict": _conflict,
    "schema conflict": _schema_conflict,
    "meaningless decision": _meaningless,
    "revert in conflict": _reverted_in_conflict,
    "revert of nothing": lambda g: g.revert(NO_ID),
    "revert of the first": lambda g: g.revert(g.commits.list()[-1].id),
    "tag exists": lambda g: g.tags.create("v1"),
    "tag of no name": lambda g: g.tags.create("main~1"),
    "tag that is not": lambda g: g.tags.get("none"),
    "diff of nothing": lambda g: g.diff("none", "main"),
    "diff of no kind": lambda g: g.diff("main~1", kinds="nodes"),
    "feed of no token": lambda g: g.changes("nothing of ours"),
    "feed of another filter": _cursor_of_another_filter,
    "feed of no start": lambda g: g.changes.poll(start="yesterday"),
    "feed of two starts": lambda g: g.changes.poll("x", start="now"),
    "feed of no page": lambda g: g.changes.poll(limit=0),
    "changes of the first": lambda g: g.changes.of(g.commits.list()[-1].id),
    "changes of no commit": lambda g: g.changes.of(NO_ID),
    "nodes of no type": lambda g: g.nodes("Persn"),
    "filter of no column": lambda g: g.nodes("Person").filter(nme="Ada"),
    "history of no type": lambda g: g.entity("Persn", "Ada").history(),
    "schema with a fault": lambda g: g.schema.plan("node Person { name: Strin @key }"),
    "schema refused": lambda g: g.schema.apply(REFUSED),
    "schema on a lost head": lambda g: g.schema.apply(SCHEMA, if_commit=NO_ID),
    "export of no format": lambda g: g.export("out", format="xml"),
    "export of no type": lambda g: g.export("out", types=["Persn"]),
    "a wrong argument": lambda g: g.query(7),
    "a wrong page": lambda g: g.commits.list(limit=0),
}


@pytest.mark.parametrize("name", CASES)
def test_refusals_are_the_same(
    name: str, both: Doors, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refusals = []
    for door in (both.embedded, both.served):
        plain = Plain()
        with door() as graph, pytest.raises(GraphError) as caught:
            CASES[name](graph)
        refusals.append(failure(caught.value, plain))
    here, there = refusals
    assert there == here


# -- the same on the command line ------------------------------------------------------------------------
#
# By the name of the case above: words, of which `A` is the graph, `@name` a file with that text in it.

A = "A"
FILES = {
    "eve": json.dumps(person("Eve")),
    "ada": json.dumps(person("Ada")),
    "bad": "\n".join(map(json.dumps, [person("Eve", age="x"), {"type": "Persn"}, {}])),
    "nonsense": '{"type":"Person","data":{"name":"Eve"}}\n{nonsense\n',
    "orphan": json.dumps(knows("xx", "Ada", "nobody")),
    "twice": "\n".join(map(json.dumps, [person("Eve"), person("Eve")])),
    "refused.pg": REFUSED,
    "same.pg": SCHEMA,
    "fault.pg": "node Person { name: Strin @key }",
}
APPEND = ["--mode", "append"]
LINES: dict[str, list[str]] = {
    "text of no query": ["query", A, "-e", "quarry"],
    "unknown type": ["query", A, "-e", BROKEN],
    "several faults": ["query", A, "-e", BROKEN.replace("$p.name", "$q.name, $p.nme")],
    "a mutation as a query": ["query", A, "-e", ADD, "--param", "name=Eve"],
    "a query as a mutation": ["mutate", A, "-e", ALL],
    "a fault of a mutation": ["mutate", A, "-e", "query q() { insert Persn { name: 1 } }"],
    "no such name": ["query", A, "none", "-e", ALL],
    "several queries": ["query", A, "-e", ALL + BY_AGE],
    "missing parameter": ["query", A, "-e", BY_AGE],
    "unknown parameter": ["query", A, "-e", BY_AGE, "--params", '{"n": 1, "m": 2}'],
    "mistyped parameter": ["query", A, "-e", BY_AGE, "--param", "n=x"],
    "stored: none of this name": ["query", A, "none"],
    "stored: a read as a mutation": ["mutate", A, "everybody"],
    "stored: a mutation as a read": ["query", A, "add", "--param", "name=Eve"],
    "stored: a missing parameter": ["query", A, "by"],
    "stored: a mistyped parameter": ["query", A, "by", "--param", "n=x"],
    "stored: a broken constraint": ["mutate", A, "add", "--param", "name=Eve", "--param", "age=200"],
    "stored: an unknown branch": ["query", A, "everybody", "--branch", "none"],
    "unknown branch": ["query", A, "-e", ALL, "--branch", "none"],
    "unknown branch to write": ["mutate", A, "-e", ADD, "--param", "name=Eve", "--branch", "none"],
    "unknown commit": ["query", A, "-e", ALL, "--snapshot", NO_ID],
    "unknown tag": ["query", A, "-e", ALL, "--snapshot", "none"],
    "unreadable moment": ["query", A, "-e", ALL, "--snapshot", "x" * 1_000],
    "broken constraint": ["mutate", A, "-e", ADD, "--param", "name=Eve", "--param", "age=200"],
    "head lost": ["mutate", A, "-e", ADD, "--param", "name=Eve", "--if-commit", NO_ID],
    "key of another request": ["mutate", A, "-e", ADD, "--param", "name=Fay", "--idempotency-key", "k"],
    "load: key exists": ["load", A, "--data", "@ada", *APPEND],
    "load: bad records": ["load", A, "--data", "@bad", *APPEND],
    "load: bad line": ["load", A, "--data", "@nonsense", *APPEND],
    "load: orphan": ["load", A, "--data", "@orphan", *APPEND],
    "load: twice": ["load", A, "--data", "@twice", *APPEND],
    "load: missing branch": ["load", A, "--data", "@eve", *APPEND, "--branch", "none"],
    "load: no such file": ["load", A, "--data", "none.jsonl", *APPEND],
    "load: replaced types": ["load", A, "--data", "@eve", "--mode", "merge", "--replace-type", "Knows"],
    "branch exists": ["branch", "create", A, "side"],
    "branch of no name": ["branch", "create", A, "x" * 1_000],
    "reserved branch": ["branch", "create", A, "__mine"],
    "branch with descendants": ["branch", "delete", A, "side", "--yes"],
    "branch with tags": ["branch", "delete", A, "side", "--yes"],
    "main stays": ["branch", "delete", A, "main", "--yes"],
    "rename to one that is": ["branch", "rename", A, "side", "main"],
    "branch that is not": ["branch", "delete", A, "none", "--yes"],
    "merge of itself": ["merge", A, "main"],
    "merge of nothing": ["merge", A, "none"],
    "merge conflict": ["merge", A, "side"],
    "schema conflict": ["merge", A, "side"],
    "revert of nothing": ["revert", A, NO_ID],
    "tag exists": ["tag", "create", A, "v1"],
    "tag of no name": ["tag", "create", A, "main~1"],
    "tag that is not": ["tag", "delete", A, "none"],
    "diff of nothing": ["diff", A, "none", "main"],
    "feed of no token": ["changes", "poll", A, "--cursor", "nothing of ours"],
    "feed of no start": ["changes", "poll", A, "--start", "yesterday"],
    "feed of two starts": ["changes", "poll", A, "--cursor", "x", "--start", "now"],
    "changes of no commit": ["commit", "changes", A, NO_ID],
    "history of no type": ["entity", "history", A, "Persn", "Ada"],
    "schema with a fault": ["schema", "plan", A, "--schema", "@fault.pg"],
    "schema refused": ["schema", "apply", A, "--schema", "@refused.pg"],
    "schema on a lost head": ["schema", "apply", A, "--schema", "@same.pg", "--if-commit", NO_ID],
    "export of no type": ["export", A, "out", "--type", "Persn"],
}


@pytest.mark.parametrize("name", LINES)
def test_the_command_line_refuses_the_same(
    name: str,
    both: Doors,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for file, text in FILES.items():
        Path(file if "." in file else f"{file}.jsonl").write_text(text)
    outcomes = []
    for served in (False, True):
        place = both.place()
        project = {"graphs": {"kb": {"uri": str(place), "queries": str(both.queries)}}}
        Path("omnigraph.yaml").write_text(json.dumps(project))
        address = both.address(place) if served else str(place)
        # The case itself is what leads up to the refusal: asked once more, the command line is refused, too.
        with both.opened(address) as graph, pytest.raises(GraphError) as caught:
            CASES[name](graph)
        code = main([_word(word, address) for word in LINES[name]] + ["--json"])
        document = json.loads(capsys.readouterr().out)
        outcomes.append((document["code"], document["kind"], code))
    expected = failure(caught.value, Plain())
    assert outcomes == [(expected["code"], expected["kind"], expected["exit"])] * 2


def _word(word: str, address: str) -> str:
    if word == A:
        return address
    return word if word[0] != "@" else word[1:] if "." in word else f"{word[1:]}.jsonl"
