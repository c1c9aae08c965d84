"""What a command is given when it runs: settings, output, the graph, and the logs of the process.

A command is a function of its own arguments and a context; `call_of(ctx)` gives it its `Call`.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.cli.settings import Settings, is_remote, is_served
from omnigraph.surfaces.cli.support.output import CommandOutput

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.surfaces.client.transport import Transport

SERVED_TIMEOUT = 60.0  # seconds of a call to a server; other calls have no limit unless one is given

# -- flags that several commands share ------------------------------------------------------------------


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


# -- one run of one command --------------------------------------------------------------------------


class ConfirmationRequired(InvalidRequest):
    """The command destroys something and was not told that this is meant."""

    code = "confirmation_required"


@dataclass(frozen=True)
class Call:
    """One run of one command."""

    settings: Settings
    output: CommandOutput

    def connect(self, *addresses: str | None, stored: bool = False) -> Graph:
        """Open the graph that the call names, here or behind a server: both have the same methods.

        With `stored` one on storage has the queries that the project file names for it.
        """
        from omnigraph.surfaces.connect import connect

        address = self.settings.address(*addresses)
        if not is_served(address):
            return connect(address, queries=self.settings.config.stored_queries(address) if stored else None)
        return connect(address, token=self._token(address), timeout=self._timeout)

    def open_here(self, command: str, *addresses: str | None) -> Graph:
        """Open the graph that the call names, whose storage this process must reach itself."""
        self.refuse_served(command, *addresses)
        return self.connect(*addresses)

    def refuse_served(self, command: str, *addresses: str | None) -> str:
        """Return the address of a graph; that of a server is refused."""
        address = self.settings.address(*addresses)
        if is_served(address):
            raise InvalidRequest(
                f"{command} works on the storage of a graph, and a server does not give that out",
                remedy="Give the address of the storage: a path or s3://..., on a machine that reaches it",
                operation=command,
            )
        return address

    def transport(self, address: str) -> Transport:
        """Return calls to a server."""
        from omnigraph.surfaces.client.transport import Transport

        return Transport(address, token=self._token(address), timeout=self._timeout)

    def actor(self, *addresses: str | None) -> str | None:
        """Return who writes to the graph that the call names."""
        return self.settings.actor_for(self.settings.address(*addresses))

    def _token(self, address: str) -> str | None:
        from omnigraph.surfaces.cli.support.served import token_for

        return token_for(self.settings, address)

    @property
    def _timeout(self) -> float:
        return SERVED_TIMEOUT if self.settings.timeout is None else self.settings.timeout

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
    call = ctx.find_root().obj
    assert isinstance(call, Call)
    return call


def note_old_spelling(ctx: typer.Context, now: str) -> None:
    """Warn if a command was called by a name that it had before."""
    if ctx.info_name != now.partition(" ")[0]:
        call_of(ctx).output.note(f"'{ctx.info_name}' is now '{now}'")


# -- logs --------------------------------------------------------------------------------------------
#
# On stderr, for people or for machines. The package logs to `omnigraph` and below and configures nothing;
# the command line does.


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


_OF_EVERY_RECORD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class JsonFormatter(logging.Formatter):
    """One JSON object a line; what a record was given by `extra` are further fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


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
    for earlier in [known for known in logger.handlers if known.get_name() == HANDLER]:
        logger.removeHandler(earlier)
    logger.addHandler(handler)
    logger.setLevel(level.value.upper())
