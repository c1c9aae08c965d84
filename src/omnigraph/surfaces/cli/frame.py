"""Frame: what all commands share: the global flags, wherever they stand, and the way from error to exit code.

Room    surfaces.cli. A command is a function of (call, its own arguments); `Call` gives it settings, output
        and the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from omnigraph.engine.graph import Graph, connect
from omnigraph.surfaces.cli.output import Output
from omnigraph.surfaces.cli.settings import Settings

SWITCHES = frozenset({"--json", "--quiet", "--yes", "--dry-run", "--trace", "--no-color"})
VALUED = frozenset({"--as", "--branch", "--profile", "--log-level"})
HELP_HEADINGS = {"Start here": ("init", "schema"), "More": ("version",)}

Address = Annotated[
    str | None, typer.Argument(help="The graph: a path, file://..., s3://..., or a configured name.")
]
GraphUri = Annotated[
    str | None,
    typer.Option("--graph-uri", "-g", "--store", "--uri", help="The graph, instead of the first argument."),
]


class GlobalFlags(TyperGroup):
    """Accepts the global flags anywhere on the line, not only before the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global flags to the front, where the root command reads them."""
        return super().parse_args(ctx, hoist(args))


def hoist(args: list[str]) -> list[str]:
    """Return the arguments with the global flags first; what follows `--` stays.

    >>> hoist(["schema", "plan", "kb.og", "--json", "--branch", "b"])
    ['--json', '--branch', 'b', 'schema', 'plan', 'kb.og']
    """
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(args)
    for one in waiting:
        name, _, value = one.partition("=")
        if one == "--":
            rest += [one, *waiting]
        elif one in SWITCHES or (name in VALUED and value):
            front.append(one)
        elif one in VALUED:
            front += [one, *([following] if (following := next(waiting, None)) is not None else [])]
        else:
            rest.append(one)
    return front + rest


@dataclass(frozen=True)
class Call:
    """One run of one command."""

    settings: Settings
    output: Output

    def connect(self, *given: str | None) -> Graph:
        """Open the graph that the call names."""
        return connect(self.settings.address(*given))


def call_of(ctx: typer.Context) -> Call:
    """Return the call that the root command prepared."""
    found = ctx.find_root().obj
    assert isinstance(found, Call)
    return found
