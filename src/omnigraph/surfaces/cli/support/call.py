"""Frame: what all commands share: the global flags, wherever they stand, and the way from error to exit code.

Room    surfaces.cli. A command is a function of (call, its own arguments); `Call` gives it settings, output
        and the graph.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.graph import Graph, connect
from omnigraph.surfaces.cli.settings import Settings, is_remote
from omnigraph.surfaces.cli.support.output import CommandOutput

# -- spellings -----------------------------------------------------------------------------------
#
# What people wrote before, read as what it is called now.
# An old spelling of two words becomes one hidden command of that name, which warns
# and goes on; old names of one word are plain hidden commands and need nothing here.


PAIRS = frozenset({("query", "lint"), ("query", "check")})
RUNNERS = frozenset({"query", "read", "mutate", "change"})
ALIAS = "--alias"
QUERY_ALIAS = "query --alias"


def today(words: Sequence[str]) -> list[str]:
    """Return a line, without its global flags, in today's spelling.

    >>> today(["query", "lint", "--query", "q.gq"])
    ['query lint', '--query', 'q.gq']
    >>> today(["query", "--alias", "friends", "Ada"])
    ['query --alias', 'friends', 'Ada']
    """
    if tuple(words[:2]) in PAIRS:
        return [" ".join(words[:2]), *words[2:]]
    if words and words[0] in RUNNERS:
        return _alias(list(words))
    return list(words)


def _alias(words: list[str]) -> list[str]:
    """Move the name of an alias to the front, if the line has one."""
    end = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words[:end]):
        name, equals, value = word.partition("=")
        if name != ALIAS:
            continue
        named = [value] if equals else words[at + 1 : at + 2]
        return [QUERY_ALIAS, *named, *words[1:at], *words[at + (1 if equals else 2) :]]
    return words


# -- frame ---------------------------------------------------------------------------------------


SWITCHES = frozenset({"--json", "--quiet", "--yes", "--dry-run", "--trace", "--no-color", "--version", "-v"})
VALUED = frozenset({"--as", "--branch", "--profile", "--timeout", "--log-level", "--log-format"})
JSON_WANTED = "omnigraph.json"

Address = Annotated[
    str | None, typer.Argument(help="The graph: a path, file://..., s3://..., or a configured name.")
]
GraphUri = Annotated[
    str | None,
    typer.Option("--graph-uri", "-g", "--store", "--uri", help="The graph, instead of the first argument."),
]

IfCommit = Annotated[
    str | None, typer.Option("--if-commit", metavar="ID", help="Only if this is the head of the branch.")
]
Message = Annotated[
    str | None, typer.Option("--message", metavar="TEXT", help="Why; recorded on the commit.")
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", metavar="KEY", help="A repeated call with the same key is not done twice."
    ),
]


class GlobalFlags(TyperGroup):
    """Accepts the global flags anywhere on the line, not only before the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global flags to the front, where the root command reads them."""
        front, rest = split(args)
        ctx.meta[JSON_WANTED] = "--json" in front  # known before any flag is acted on, --version above all
        return super().parse_args(ctx, front + today(rest))


def split(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the global flags with their values, and the rest; what follows `--` stays.

    >>> split(["schema", "plan", "kb.og", "--json", "--branch", "b"])
    (['--json', '--branch', 'b'], ['schema', 'plan', 'kb.og'])
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
    return front, rest


class ConfirmationRequired(InvalidRequest):
    """The command destroys something and was not told that this is meant."""

    code = "confirmation_required"


@dataclass(frozen=True)
class Call:
    """One run of one command."""

    settings: Settings
    output: CommandOutput

    def connect(self, *given: str | None) -> Graph:
        """Open the graph that the call names."""
        return connect(self.settings.address(*given))

    def require_consent(self, operation: str, target: str, *, destroys: str, confirmed: bool) -> None:
        """Refuse to destroy without `--confirm`, on a remote target also without `--yes`; never asks."""
        remote = is_remote(target)
        if self.settings.dry_run or (confirmed and (self.settings.yes or not remote)):
            return
        needed = "--confirm and --yes" if remote else "--confirm"
        raise ConfirmationRequired(
            f"{operation} destroys {destroys}",
            remedy=f"Look at it with --dry-run first; then repeat with {needed}",
            operation=operation,
            target=target,
        )

    def require_yes(self, operation: str, target: str, *, destroys: str, can_ask: bool = True) -> None:
        """Refuse to destroy on a remote target without `--yes`, or a typed `yes` where somebody can type."""
        if self.settings.dry_run or self.settings.yes or not is_remote(target):
            return
        question = f"{operation} on {target} destroys {destroys}. Type yes to go on:"
        if can_ask and self.output.ask(question) == "yes":
            return
        raise ConfirmationRequired(
            f"{operation} destroys {destroys}",
            remedy="Look at it with --dry-run first; then repeat with --yes",
            operation=operation,
            target=target,
        )


def call_of(ctx: typer.Context) -> Call:
    """Return the call that the root command prepared."""
    found = ctx.find_root().obj
    assert isinstance(found, Call)
    return found


def note_old_spelling(ctx: typer.Context, now: str) -> None:
    """Warn if a command was called by a name that it had before."""
    if ctx.info_name != now.partition(" ")[0]:
        call_of(ctx).output.note(f"'{ctx.info_name}' is now '{now}'")


# -- logs ----------------------------------------------------------------------------------------
#
# What the package says about its work, on stderr, for people or for machines.
# The package logs to `omnigraph` and below and configures nothing; the command line does.


LOGGER = "omnigraph"
HANDLER = "omnigraph-cli"


class LogLevel(StrEnum):
    """How much to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How to log."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: LogLevel, form: LogFormat) -> None:
    """Log to stderr as it is now; a second call in one process replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(HANDLER)
    handler.setFormatter(
        JsonFormatter()
        if form is LogFormat.JSON
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logger = logging.getLogger(LOGGER)
    for old in [one for one in logger.handlers if one.get_name() == HANDLER]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.value.upper())
