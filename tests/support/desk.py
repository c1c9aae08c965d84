"""The command line run in this process: arguments in; exit code, stdout and stderr out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from tests.support.places import Place

SCHEMA = "node Person { slug: String @key  age: I32? }\nedge Knows: Person -> Person\n"
GROWN = "node Person { slug: String @key  age: I64?  nick: String? }\nedge Knows: Person -> Person\n"
REFUSED = "node Person { slug: String @key  age: String? }\nedge Knows: Person -> Person\n"
LESS = "node Person { slug: String @key }\nedge Knows: Person -> Person\n"
BROKEN = "node Person { slug: String @key }\nnode City {\n    name: Strin\n}\n"


@dataclass(frozen=True)
class Ran:
    """How one run of the command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on stdout, which must be all there is."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def remote_environment(place: Place) -> dict[str, str]:
    """Return the environment in which the command reaches a place on S3."""
    return {
        name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}": value
        for name, value in place.options.items()
    }


Run = Callable[..., Ran]


@dataclass(frozen=True)
class Desk:
    """A working directory with schema files, and the command."""

    folder: Path
    run: Run
    template: Path  # a graph with SCHEMA and one row, to be copied

    def file(self, name: str, text: str) -> str:
        """Write a schema file and return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    @property
    def graph(self) -> str:
        """Where the graph of this desk is, or will be."""
        return str(self.folder / "kb.og")

    def started(self, schema: str = SCHEMA) -> str:
        """Make the graph and return its address; with the usual schema it has one row, of `a`."""
        if schema == SCHEMA:
            shutil.copytree(self.template, self.graph)
        else:
            og.init(self.graph, schema, durability="os").close()
        return self.graph
