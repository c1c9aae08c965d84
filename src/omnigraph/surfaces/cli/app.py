"""App: the `omnigraph` command.

Room    surfaces.cli. Assembles the groups, reads the global flags, and turns every outcome into an exit code.
"""

from __future__ import annotations

import logging
import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from omnigraph import __version__
from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.storage.manifest.records import FORMAT
from omnigraph.surfaces.cli import init, schema
from omnigraph.surfaces.cli.frame import Call, GlobalFlags, call_of
from omnigraph.surfaces.cli.output import Output, error_document, print_document
from omnigraph.surfaces.cli.settings import Settings, read_config

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
app.command("init", rich_help_panel="Start here")(init.init)
app.add_typer(schema.app, name="schema", rich_help_panel="Start here")


class LogLevel(StrEnum):
    """How much to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"omnigraph {__version__} (storage format {FORMAT})")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    actor: Annotated[str | None, typer.Option("--as", help="Who writes; recorded on the commit.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing on stderr but errors.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Consent to destructive writes.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and report, write nothing.")] = False,
    branch: Annotated[str | None, typer.Option("--branch", help="Branch to work on [default: main].")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="A profile of the operator config.")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Log on stderr from this level.")
    ] = LogLevel.WARNING,
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
    logging.basicConfig(level=log_level.value.upper(), stream=sys.stderr)
    config = read_config()
    settings = Settings(
        actor=actor or config.find("operator", "operator", "actor") or config.find("project", "cli", "actor"),
        json=as_json,
        quiet=quiet,
        yes=yes,
        dry_run=dry_run,
        branch=branch or config.find("project", "cli", "branch") or "main",
        trace=trace,
        profile=profile or os.environ.get("OG_PROFILE") or os.environ.get("OMNIGRAPH_PROFILE"),
        config=config,
    )
    ctx.obj = Call(settings, Output(settings, color=False if no_color else None))


@app.command("version", rich_help_panel="More")
def show_version(ctx: typer.Context) -> None:
    """Show the version and the storage format."""
    document = {"version": __version__, "storage_format": FORMAT}
    call_of(ctx).output.result(document, f"omnigraph {__version__} (storage format {FORMAT})")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(given, standalone_mode=False, prog_name="omnigraph")
    except GraphError as error:
        if "--trace" in given:
            raise
        settings = Settings(json="--json" in given)
        return Output(settings, color=False if "--no-color" in given else None).failure(error)
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the last resort: a person gets a line, not a traceback
        shower = getattr(error, "show", None)
        if "--trace" in given and shower is None:
            raise
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


def run() -> None:
    """Be the console script."""
    sys.exit(main())
