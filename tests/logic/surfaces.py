"""Surfaces: the ways into one engine; every case must have the same outcome on each of them.

A new one (a server, say) is a class here and one line in `SURFACES`. `Surface` is what a case needs; `Way` is
how reads run, which may not change any answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

import omnigraph as og
from omnigraph import GraphError, SourceError
from tests.logic.cases import World
from tests.support.command_line import run_json

Place = Literal["main", "branch", "commits"]
Traversal = Literal["auto", "lookup", "csr"]
KEYED_EDGE = re.compile(r"edge\s+(\w+)\s*:[^{}]*\{[^}]*@key\(")


@dataclass(frozen=True)
class Way:
    """How reads run: no choice here may change an answer."""

    traversal: Traversal = "auto"
    rules: frozenset[str] | None = None  # None means all
    place: Place = "main"  # where the data lies: see `Embedded`

    def __str__(self) -> str:
        return f"{self.traversal}-{'rules' if self.rules is None else 'plain'}-{self.place}"


@dataclass(frozen=True)
class Answer:
    """The rows of a read, as the JSON of the specification."""

    columns: tuple[str, ...]
    rows: list[list[Any]]


class Refused(Exception):
    """What a surface says instead of an answer; of a text, the code is that of its first fault."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Surface(Protocol):
    """An open graph; every method may raise `Refused`."""

    def query(
        self, text: str, params: Mapping[str, Any], name: str | None, branch: str, at: str | None
    ) -> Answer:
        """Run a read."""

    def mutate(self, text: str, params: Mapping[str, Any], name: str | None, branch: str) -> tuple[int, int]:
        """Run a mutation; return how many nodes and edges it affected."""

    def fork(self, name: str, source: str) -> None:
        """Make a branch."""

    def head(self, branch: str) -> str:
        """Return the id of a branch's head commit."""

    def close(self) -> None:
        """Let go of the graph."""

    @property
    def base(self) -> str:
        """The branch that holds the world's data."""


Opener = Callable[[Path, World, Way], Surface]


class Embedded:
    """The library itself.

    The data is on main in one commit; or its nodes on main and its edges on a branch, in one commit for each
    type; or every record in a commit of its own.
    """

    def __init__(self, folder: Path, world: World, way: Way) -> None:
        self._graph = og.init(folder / "graph.og", world.schema, durability="os")
        self._way = way
        self.base = "side" if way.place == "branch" else "main"
        records = [*with_ids(world)]
        nodes = [record for record in records if "type" in record]
        edges = [record for record in records if "edge" in record]
        if way.place == "commits":
            for record in (*nodes, *edges):
                self._load([record])
        elif way.place == "branch":
            self._load(nodes)
            self.fork("side", "main")
            for name in dict.fromkeys(edge["edge"] for edge in edges):
                self._load([edge for edge in edges if edge["edge"] == name], "side")
        else:
            self._load(records)

    def _load(self, records: list[dict[str, Any]], branch: str = "main") -> None:
        if records:
            self._graph.load(records, mode="append", branch=branch)

    def query(
        self, text: str, params: Mapping[str, Any], name: str | None, branch: str, at: str | None
    ) -> Answer:
        with _refusing():
            found = self._graph._query.run(
                text,
                params,
                query_name=name,
                branch=branch,
                at=at,
                rules=self._way.rules,
                traversal=self._way.traversal,
            ).to_json()
        return Answer(tuple(found["columns"]), [list(row.values()) for row in found["rows"]])

    def mutate(self, text: str, params: Mapping[str, Any], name: str | None, branch: str) -> tuple[int, int]:
        with _refusing():
            receipt = self._graph.mutate(text, params, query_name=name, branch=branch)
        return receipt.affected_nodes, receipt.affected_edges

    def fork(self, name: str, source: str) -> None:
        self._graph.store.branches.create(name, source)

    def head(self, branch: str) -> str:
        return self._graph.store.snapshot(branch).commit_id

    def close(self) -> None:
        self._graph.close()


class CommandLine:
    """The `omnigraph` command, a call for each step; what it prints as JSON is the answer."""

    base = "main"

    def __init__(self, folder: Path, world: World, way: Way) -> None:
        assert way == Way(), "a command line has no flags for how to read"
        self._address = str(folder / "graph.og")
        schema, data = folder / "schema.pg", folder / "data.jsonl"
        schema.write_text(world.schema)
        data.write_text("".join(json.dumps(record) + "\n" for record in with_ids(world)))
        self._run("init", self._address, "--schema", str(schema))
        if world.records:
            self._run("load", self._address, "--data", str(data), "--mode", "append")

    def query(
        self, text: str, params: Mapping[str, Any], name: str | None, branch: str, at: str | None
    ) -> Answer:
        place = ["--branch", branch] if at is None else ["--snapshot", at]
        found = self._asked("query", text, params, name, *place)
        return Answer(tuple(found["columns"]), [list(row.values()) for row in found["rows"]])

    def mutate(self, text: str, params: Mapping[str, Any], name: str | None, branch: str) -> tuple[int, int]:
        found = self._asked("mutate", text, params, name, "--branch", branch)
        return found["affected_nodes"], found["affected_edges"]

    def fork(self, name: str, source: str) -> None:
        with og.connect(self._address) as graph:
            graph.store.branches.create(name, source)

    def head(self, branch: str) -> str:
        return str(self._run("snapshot", self._address, "--branch", branch)["graph_commit_id"])

    def close(self) -> None:
        """There is nothing open between two calls."""

    def _asked(self, command: str, text: str, params: Mapping[str, Any], name: str | None, *more: str) -> Any:
        words = [self._address] if name is None else [self._address, name]
        return self._run(command, *words, "-e", text, "--params", json.dumps(params), *more)

    def _run(self, *words: str) -> Any:
        code, document = run_json(*words)
        if code:
            faults = document.get("diagnostics")
            raise Refused(faults[0]["code"] if faults else document["code"], document["error"])
        return document


SURFACES: dict[str, Opener] = {"embedded": Embedded, "command line": CommandLine}


def with_ids(world: World) -> list[dict[str, Any]]:
    """Return the records; edges without an id or a key are numbered, so that ties follow the file."""
    numbers = count(1)

    def identified(record: dict[str, Any]) -> dict[str, Any]:
        number = next(numbers)
        if record["edge"] in keyed:
            return record
        return {**record, "data": {"id": f"edge-{number:04d}", **record["data"]}}

    keyed = set(KEYED_EDGE.findall(world.schema))
    return [identified(record) if "edge" in record else record for record in world.records]


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn an error of the library into a refusal."""
    try:
        yield
    except GraphError as error:
        code = error.diagnostics[0].code if isinstance(error, SourceError) else error.code
        raise Refused(code, str(error)) from error
