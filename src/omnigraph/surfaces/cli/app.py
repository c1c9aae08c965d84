"""App: the `omnigraph` command.

Room    surfaces.cli. Assembles the groups, reads the global flags, and turns every outcome into an exit code.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer

from omnigraph import __version__
from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.base.times import SystemClock
from omnigraph.storage.manifest.records import FORMAT
from omnigraph.surfaces.cli import (
    alias,
    branch,
    commit,
    diff,
    export,
    lint,
    load,
    maintain,
    merge,
    pipeline,
    query,
    schema,
)
from omnigraph.surfaces.cli.settings import Settings, read_config, variable
from omnigraph.surfaces.cli.support.call import (
    JSON_WANTED,
    QUERY_ALIAS,
    Call,
    GlobalFlags,
    LogFormat,
    LogLevel,
    call_of,
    configure,
    split,
)
from omnigraph.surfaces.cli.support.output import EXIT_BY_KIND, CommandOutput, error_document, print_document
from omnigraph.surfaces.cli.support.waiting import (
    DeadlineProgress,
    Expired,
    Stage,
    TimedOut,
    timeout_in,
    within,
)

app = typer.Typer(
    cls=GlobalFlags,
    name="omnigraph",
    help="A typed, versioned property-graph database kept as open Lance files.",
    epilog="The global flags may stand anywhere on the line.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init", rich_help_panel="Start here")(maintain.init)
app.command("load", rich_help_panel="Start here")(load.load)
app.command("query", rich_help_panel="Start here")(query.query)
app.command("mutate", rich_help_panel="Start here")(query.mutate)
app.command("lint", rich_help_panel="Start here")(lint.lint)
app.add_typer(schema.app, name="schema", rich_help_panel="Start here")
app.add_typer(branch.app, name="branch", rich_help_panel="Start here")
app.add_typer(commit.app, name="commit", rich_help_panel="Start here")
app.command("merge", rich_help_panel="Start here")(merge.merge)
branch.app.command("merge")(merge.merge)
app.command("revert", rich_help_panel="More")(merge.revert)
app.command("log", rich_help_panel="More")(commit.log)
app.command("diff", rich_help_panel="More")(diff.diff)
branch.app.command("diff")(diff.branch_diff)
commit.app.command("changes")(diff.commit_changes)
app.add_typer(diff.app, name="changes", rich_help_panel="More")
app.add_typer(diff.entity_app, name="entity", rich_help_panel="More")
app.add_typer(branch.tag_app, name="tag", rich_help_panel="More")
app.command("explain", rich_help_panel="More")(query.explain)
app.command("profile", rich_help_panel="More")(query.profile)
app.command("alias", rich_help_panel="More")(alias.alias)
app.command("snapshot", rich_help_panel="More")(commit.snapshot)
app.command("export", rich_help_panel="More")(export.export)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel="More")
app.command("optimize", rich_help_panel="More")(maintain.optimize)
app.command("verify", rich_help_panel="More")(maintain.verify)
app.command("read", hidden=True)(query.query)
for old in ("check", "query lint", "query check"):
    app.command(old, hidden=True)(lint.lint)
app.command(QUERY_ALIAS, hidden=True)(alias.alias)
app.command("ingest", hidden=True)(load.ingest)
app.command("change", hidden=True)(query.mutate)
TIMED_OUT = EXIT_BY_KIND[TimedOut.kind]
log = logging.getLogger(__name__)


def _version_lines() -> tuple[dict[str, Any], str]:
    text = f"omnigraph {__version__} (storage format {FORMAT})"
    return {"version": __version__, "storage_format": FORMAT}, text


def _show_version(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        document, text = _version_lines()
        if ctx.meta[JSON_WANTED]:
            print_document(document)
        else:
            typer.echo(text)
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    actor: Annotated[str | None, typer.Option("--as", help="Who writes; recorded on the commit.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing on stderr but errors.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Consent to destructive writes.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and report, write nothing.")] = False,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Branch to work on; main if not given.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="A profile of the operator config.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Stop after this long: 30s, 5m or 1h; never if not given.")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Log on stderr from this level.")
    ] = LogLevel.WARNING,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Log lines as text or as JSON.")
    ] = LogFormat.TEXT,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain output.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the Python traceback on failure.")] = False,
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
        json=as_json,
        quiet=quiet,
        yes=yes,
        dry_run=dry_run,
        branch=branch or config.find("project", "cli", "branch") or "main",
        branch_given=branch is not None,
        trace=trace,
        profile=profile or variable("PROFILE"),
        config=config,
    )
    progress: DeadlineProgress | None = ctx.obj
    ctx.obj = Call(settings, CommandOutput(settings, color=False if no_color else None, progress=progress))


@app.command("version", rich_help_panel="More")
def show_version(ctx: typer.Context) -> None:
    """Show the version and the storage format."""
    call_of(ctx).output.result(*_version_lines())


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


def _watched(given: list[str]) -> tuple[int, bool]:
    """Run a command within its deadline; return the exit code and whether it was left behind."""
    progress = DeadlineProgress()
    try:
        seconds = timeout_in(split(given)[0])
    except InvalidRequest as error:
        return _failed(given, error, progress), False
    try:
        return within(seconds, lambda: _command(given, progress), progress), False
    except TimedOut as error:
        return _failed(given, error, DeadlineProgress()), True
    except KeyboardInterrupt:
        return 130, seconds is not None


def _command(given: list[str], progress: DeadlineProgress) -> int:
    clock = SystemClock()
    started = clock.monotonic()
    try:
        code = _answered(given, progress)
    except Expired:
        return TIMED_OUT  # nobody waits for it
    log.debug("exit code %d after %.3f s", code, clock.monotonic() - started)
    return code


def _answered(given: list[str], progress: DeadlineProgress) -> int:
    """Run a command and answer, also when it fails."""
    try:
        result = app(given, standalone_mode=False, prog_name="omnigraph", obj=progress)
    except GraphError as error:
        if "--trace" in given:
            raise
        return _failed(given, error, progress)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Expired:
        raise
    except Exception as error:  # the last resort: a person gets a line, not a traceback
        shower = getattr(error, "show", None)
        if "--trace" in given and shower is None:
            raise
        progress.reach(Stage.ANSWERED)
        if "--json" in given:
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


def _failed(given: list[str], error: GraphError, progress: DeadlineProgress) -> int:
    settings = Settings(json="--json" in given)
    color = False if "--no-color" in given else None
    return CommandOutput(settings, color=color, progress=progress).failure(error)
