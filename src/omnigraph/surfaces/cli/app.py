"""The `omnigraph` command: its table of commands, its global flags, and the exit code of every outcome."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.base.ids import SystemClock
from omnigraph.surfaces.cli.settings import Settings, read_config
from omnigraph.surfaces.cli.support.call import Call, LogFormat, LogLevel, call_of, configure
from omnigraph.surfaces.cli.support.command_line import (
    GLOBAL_PANEL,
    JSON_WANTED,
    QUERY_ALIAS,
    CommandEntry,
    CommandLine,
    split,
)
from omnigraph.surfaces.cli.support.deadline import (
    DeadlineProgress,
    Expired,
    Stage,
    TimedOut,
    seconds_of,
    timeout_in,
    within,
)
from omnigraph.surfaces.cli.support.output import EXIT_BY_KIND, CommandOutput, print_document
from omnigraph.surfaces.environment import names_of, variable
from omnigraph.surfaces.wire import error_document

TIMED_OUT = EXIT_BY_KIND[TimedOut.kind]
log = logging.getLogger(__name__)


# -- the commands ------------------------------------------------------------------------------------


START = "Start here"
LINT = CommandEntry(
    "lint", "lint", START, example="omnigraph lint --query queries/ --schema schema.pg --json"
)
QUERY = CommandEntry(
    "query", "query", START, example="omnigraph query kb.og friends --query q.gq --param name=Ada"
)
MUTATE = CommandEntry(
    "query", "mutate", START, example="omnigraph mutate kb.og add --query q.gq --param name=Ada --as ada"
)


def _hidden(entry: CommandEntry) -> CommandEntry:
    return CommandEntry(entry.module, entry.attribute, hidden=True)


class OmniGraph(CommandLine):
    """The commands in the order of the help text."""

    table: ClassVar[Mapping[str, CommandEntry]] = {
        "init": CommandEntry("maintain", "init", START, example="omnigraph init kb.og --schema schema.pg"),
        "load": CommandEntry(
            "load", "load", START, example="omnigraph load kb.og --data people.jsonl --mode merge --dry-run"
        ),
        "query": QUERY,
        "mutate": MUTATE,
        "lint": LINT,
        "schema": CommandEntry("schema", "app", START),
        "branch": CommandEntry("branch", "app", START),
        "commit": CommandEntry("commit", "app", START),
        "merge": CommandEntry("merge", "merge", START, example="omnigraph merge kb.og review --preview"),
        "revert": CommandEntry(
            "merge", "revert", example="omnigraph revert kb.og 01M7P8ZYBNVXRX7P3NHXTSGM9Z --branch review"
        ),
        "log": CommandEntry("commit", "log", example="omnigraph log kb.og --graph --branch review"),
        "diff": CommandEntry("diff", "diff", example="omnigraph diff kb.og main review --stat"),
        "changes": CommandEntry("diff", "app"),
        "entity": CommandEntry("diff", "entity_app"),
        "tag": CommandEntry("branch", "tag_app"),
        "explain": CommandEntry("query", "explain", example="omnigraph explain kb.og --query q.gq"),
        "profile": CommandEntry("query", "profile", example="omnigraph profile kb.og --query q.gq --json"),
        "alias": CommandEntry("alias", "alias", example="omnigraph alias friends Ada --format csv"),
        "snapshot": CommandEntry("commit", "snapshot", example="omnigraph snapshot kb.og --branch review"),
        "export": CommandEntry("export", "export", example="omnigraph export kb.og --out backup.jsonl"),
        "serve": CommandEntry("serve", "serve", START, example="omnigraph serve kb.og --unauthenticated"),
        "pipeline": CommandEntry("pipeline", "app"),
        "embed": CommandEntry("embed", "embed", example="omnigraph embed kb.og --type Note --dry-run"),
        "policy": CommandEntry("policy", "app"),
        "optimize": CommandEntry("maintain", "optimize", example="omnigraph optimize kb.og"),
        "verify": CommandEntry("maintain", "verify", example="omnigraph verify kb.og --history"),
        "doctor": CommandEntry("doctor", "doctor", example="omnigraph doctor kb.og --deep --json"),
        "repair": CommandEntry("doctor", "repair", example="omnigraph repair kb.og --confirm"),
        "cleanup": CommandEntry(
            "maintain", "cleanup", example="omnigraph cleanup kb.og --keep 100 --older-than 30d --confirm"
        ),
        "upgrade": CommandEntry("maintain", "upgrade", example="omnigraph upgrade kb.og --dry-run"),
        "backup": CommandEntry("copy", "backup", example="omnigraph backup kb.og s3://bucket/kb-backup"),
        "restore": CommandEntry("copy", "restore", example="omnigraph restore s3://bucket/kb-backup kb.og"),
        "clone": CommandEntry("copy", "clone", example="omnigraph clone kb.og trial.og --at v1"),
        "graphs": CommandEntry("server", "graphs_app"),
        "queries": CommandEntry("server", "queries_app"),
        "login": CommandEntry("server", "login", example="omnigraph login team < token.txt"),
        "logout": CommandEntry("server", "logout", example="omnigraph logout team"),
        "token": CommandEntry("token", "app"),
        "config": CommandEntry("config", "config_app"),
        "profile list": CommandEntry("config", "list_profiles", example="omnigraph profile list --json"),
        "profile show": CommandEntry("config", "show_profile", example="omnigraph profile show staging"),
        "completion": CommandEntry("config", "completion", example="omnigraph completion bash"),
        "version": CommandEntry("app", "show_version", example="omnigraph version --json"),
        "read": _hidden(QUERY),
        "check": _hidden(LINT),
        "query lint": _hidden(LINT),
        "query check": _hidden(LINT),
        QUERY_ALIAS: CommandEntry("alias", "alias", hidden=True),
        "ingest": CommandEntry("load", "ingest", hidden=True),
        "change": _hidden(MUTATE),
    }


app = typer.Typer(
    cls=OmniGraph,
    name="omnigraph",
    help="A typed, versioned property-graph database kept as open Lance files.",
    epilog="The global options may stand anywhere on the line.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# -- global flags ------------------------------------------------------------------------------------


def _version_lines() -> tuple[dict[str, Any], str]:
    from omnigraph import __version__
    from omnigraph.storage.manifest.formats import FORMAT

    text = f"omnigraph {__version__} (storage format {FORMAT})"
    return {"version": __version__, "storage_format": FORMAT}, text


def _show_version(ctx: typer.Context, requested: bool) -> None:
    if requested:
        document, text = _version_lines()
        if ctx.meta[JSON_WANTED]:
            print_document(document)
        else:
            typer.echo(text)
        raise typer.Exit


def _global(*spellings: str, help: str, **settings: Any) -> Any:
    return typer.Option(*spellings, help=help, rich_help_panel=GLOBAL_PANEL, **settings)


@app.callback()
def root(
    ctx: typer.Context,
    actor: Annotated[
        str | None, _global("--as", metavar="ACTOR", help="Who writes; recorded on the commit: --as ada.")
    ] = None,
    server: Annotated[
        str | None,
        _global("--server", metavar="NAME|URL", help="A server, instead of an address: --server team."),
    ] = None,
    graph: Annotated[
        str | None, _global("--graph", metavar="ID", help="With --server: one of its graphs: --graph kb.")
    ] = None,
    as_json: Annotated[bool, _global("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, _global("--quiet", help="Say nothing on stderr but errors.")] = False,
    yes: Annotated[bool, _global("--yes", help="Consent to destructive writes.")] = False,
    dry_run: Annotated[bool, _global("--dry-run", help="Check and report, write nothing.")] = False,
    branch: Annotated[
        str | None,
        _global("--branch", metavar="NAME", help="Branch to work on, main if not given: --branch review."),
    ] = None,
    profile: Annotated[
        str | None,
        _global("--profile", metavar="NAME", help="A profile of the operator config: --profile staging."),
    ] = None,
    timeout: Annotated[
        str | None,
        _global(
            "--timeout",
            metavar="TIME",
            help="Stop after 30s, 5m or 1h; if not given, calls to a server after 60s: --timeout 5m.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel,
        _global(
            "--log-level",
            envvar=names_of("LOG_LEVEL"),
            help="Log on stderr from this level: --log-level debug.",
        ),
    ] = LogLevel.WARNING,
    log_format: Annotated[
        LogFormat,
        _global(
            "--log-format",
            envvar=names_of("LOG_FORMAT"),
            help="Log lines as text or as JSON: --log-format json.",
        ),
    ] = LogFormat.TEXT,
    no_color: Annotated[bool, _global("--no-color", help="Plain output.")] = False,
    trace: Annotated[bool, _global("--trace", help="Show the Python traceback on failure.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Read the global flags."""
    configure(log_level, log_format)
    config = read_config()
    settings = Settings(
        actor=actor or config.find("operator", "operator", "actor") or config.find("project", "cli", "actor"),
        actor_given=actor is not None,
        json=as_json,
        quiet=quiet,
        yes=yes,
        dry_run=dry_run,
        branch=branch or config.find("project", "cli", "branch") or "main",
        branch_given=branch is not None,
        trace=trace,
        profile=profile or variable("PROFILE"),
        timeout=None if timeout is None else seconds_of(timeout),
        server=server,
        graph=_of_server(graph, server),
        config=config,
    )
    progress: DeadlineProgress | None = ctx.obj
    ctx.obj = Call(settings, CommandOutput(settings, color=False if no_color else None, progress=progress))


def _of_server(graph: str | None, server: str | None) -> str | None:
    if graph is not None and server is None:
        raise InvalidRequest("--graph names a graph of a server", remedy="Give --server too, or an address")
    return graph


def show_version(ctx: typer.Context) -> None:
    """Show the version and the storage format."""
    call_of(ctx).output.result(*_version_lines())


# -- from a line to an exit code ----------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    After a timeout the command may still be running in its thread; `run` ends the process then.
    """
    return _watched(sys.argv[1:] if arguments is None else arguments)[0]


def run() -> None:
    """Be the console script."""
    code, left_behind = _watched(sys.argv[1:])
    if left_behind:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # an ordinary exit would wait for threads that may be waiting for storage
    sys.exit(code)


def run_server() -> None:
    """Be `omnigraph-server`: what follows are the words of `omnigraph serve`."""
    sys.argv.insert(1, "serve")
    run()


def _watched(arguments: list[str]) -> tuple[int, bool]:
    """Run a command within its deadline; return the exit code and whether it was left behind."""
    progress = DeadlineProgress()
    try:
        seconds = timeout_in(split(arguments)[0])
    except InvalidRequest as error:
        return _failed(arguments, error, progress), False
    try:
        return within(seconds, lambda: _command(arguments, progress), progress), False
    except TimedOut as error:
        return _failed(arguments, error, DeadlineProgress()), True
    except KeyboardInterrupt:
        return 130, seconds is not None


def _command(arguments: list[str], progress: DeadlineProgress) -> int:
    clock = SystemClock()
    started = clock.monotonic()
    try:
        code = _answered(arguments, progress)
    except Expired:
        return TIMED_OUT  # nobody waits for it
    log.debug("exit code %d after %.3f s", code, clock.monotonic() - started)
    return code


def _answered(arguments: list[str], progress: DeadlineProgress) -> int:
    """Run a command and answer, also when it fails."""
    try:
        result = app(arguments, standalone_mode=False, prog_name="omnigraph", obj=progress)
    except GraphError as error:
        if "--trace" in arguments:
            raise
        return _failed(arguments, error, progress)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Expired:
        raise
    except Exception as error:  # the last resort: a person gets a line, not a traceback
        shower = getattr(error, "show", None)
        if "--trace" in arguments and shower is None:
            raise
        progress.reach(Stage.ANSWERED)
        if "--json" in arguments:
            usage = InvalidRequest(str(getattr(error, "message", error)))
            print_document(error_document(usage if shower is not None else GraphError(f"{error!r}")))
        if shower is not None:  # a usage error knows how to show itself
            shower()
            return int(getattr(error, "exit_code", 2))
        sys.stderr.write(
            f"error: unexpected {type(error).__name__}: {error}\n  Run again with --trace to see where\n"
        )
        return 1
    return result if isinstance(result, int) else 0


def _failed(arguments: list[str], error: GraphError, progress: DeadlineProgress) -> int:
    settings = Settings(json="--json" in arguments)
    color = False if "--no-color" in arguments else None
    return CommandOutput(settings, color=color, progress=progress).failure(error)
