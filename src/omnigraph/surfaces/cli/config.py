"""Config and profiles: what a call here would go by, where each value is from, and how the shell completes.

Nothing is asked of a graph or a server. Tokens are never shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, BinaryIO

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, InvalidRequest, NotFound
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.surfaces.cli.settings import (
    OPERATOR_FILE,
    PROJECT_FILE,
    Settings,
    is_served,
    operator_folder,
)
from omnigraph.surfaces.cli.support.call import call_of
from omnigraph.surfaces.cli.support.command_line import Commands
from omnigraph.surfaces.environment import set_variable, variable

# -- values ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One value, and where it is from."""

    name: str
    value: Any
    source: str


# What the files may say, the stronger first; a flag or a variable comes before, a default after them.
OPERATOR, PROJECT = "operator", "project"
IN_FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "actor": ((OPERATOR, "operator", "actor"), (PROJECT, "cli", "actor")),
    "branch": ((PROJECT, "cli", "branch"),),
    "output": ((OPERATOR, "defaults", "output"), (PROJECT, "cli", "output_format")),
    "table_max_column_width": (
        (OPERATOR, "defaults", "table_max_column_width"),
        (PROJECT, "cli", "table_max_column_width"),
    ),
    "table_cell_layout": (
        (OPERATOR, "defaults", "table_cell_layout"),
        (PROJECT, "cli", "table_cell_layout"),
    ),
}
GRAPH_IN_FILES = (
    (OPERATOR, "defaults", "server"),
    (OPERATOR, "defaults", "store"),
    (PROJECT, "cli", "graph"),
)
DEFAULTS = {
    "branch": "main",
    "output": "table",
    "table_max_column_width": 80,
    "table_cell_layout": "truncate",
}


def effective(settings: Settings) -> Iterator[Setting]:
    """Yield the values that a call goes by which names nothing itself."""
    yield _graph(settings)
    flags = {
        "actor": ("--as", settings.actor if settings.actor_given else None),
        "branch": ("--branch", settings.branch if settings.branch_given else None),
    }
    for name, paths in IN_FILES.items():
        flag, given = flags.get(name, ("", None))
        told = [(given, flag), *((settings.config.find(*path), _source(path)) for path in paths)]
        told.append((DEFAULTS.get(name), "default"))
        value, source = next(((value, source) for value, source in told if value is not None), (None, "none"))
        yield Setting(name, value, source)


def _graph(settings: Settings) -> Setting:
    try:
        address = settings.address(None)
    except InvalidRequest as error:
        return Setting("graph", None, error.message)
    config = settings.config
    by_variable = settings.profile == variable("PROFILE")
    told = [
        ("--server", settings.server),
        (str(set_variable("PROFILE")) if by_variable else "--profile", settings.profile),
        (str(set_variable("GRAPH")), config.environment_graph),
        *((_source(path), config.find(*path)) for path in GRAPH_IN_FILES),
    ]
    return Setting("graph", address, next(source for source, value in told if value is not None))


def _source(path: tuple[str, ...]) -> str:
    return f"{OPERATOR_FILE if path[0] == OPERATOR else PROJECT_FILE}: {'.'.join(path[1:])}"


config_app = Commands(help="What the command line goes by: values, and the files that they are from.")


@config_app.command("show", example="omnigraph config show --json")
def show(ctx: typer.Context) -> None:
    """Show the values that a call goes by which names nothing itself, and where each is from."""
    call = call_of(ctx)
    settings = list(effective(call.settings))
    width = max(len(setting.name) for setting in settings)
    lines = (
        f"{one.name:<{width}}  {'-' if one.value is None else one.value}  ({one.source})" for one in settings
    )
    document = {
        "values": {one.name: one.value for one in settings},
        "sources": {one.name: one.source for one in settings},
    }
    call.output.result(document, *lines)


@config_app.command("path", example="omnigraph config path")
def path(ctx: typer.Context) -> None:
    """Show which files are read, whether or not they are there."""
    from omnigraph.surfaces.cli.support.served import credentials_file

    call = call_of(ctx)
    files = {
        "operator_config": operator_folder() / OPERATOR_FILE,
        "credentials": credentials_file(),
        "project_file": call.settings.config.project_folder / PROJECT_FILE,
    }
    document = {name: {"path": str(file), "exists": file.is_file()} for name, file in files.items()}
    lines = (f"{name}: {file}{'' if file.is_file() else '  (not there)'}" for name, file in files.items())
    call.output.result(document, *lines)


# -- profiles ----------------------------------------------------------------------------------------


BINDINGS = ("server", "store", "cluster")


def list_profiles(ctx: typer.Context) -> None:
    """List the profiles of the operator config: what each is bound to, and which is active."""
    call = call_of(ctx)
    profiles = [_profile(call.settings, name) for name in _profiles(call.settings)]
    call.output.result({"profiles": profiles}, *map(_profile_line, profiles))


def show_profile(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The profile; the active one if not given.")
    ] = None,
) -> None:
    """Show one profile of the operator config."""
    call = call_of(ctx)
    settings, profiles = call.settings, _profiles(call.settings)
    name = name or settings.profile
    if name is None:
        raise InvalidRequest("no profile is active", remedy="Name one; omnigraph profile list shows them")
    if name not in profiles:
        hint = did_you_mean(name, profiles) or "omnigraph profile list shows them"
        raise NotFound(f"the operator config has no profile {name!r}", remedy=hint)
    profile = _profile(settings, name)
    served = profile["target"] is not None and is_served(profile["target"])
    profile["endpoint"] = profile["target"] if served else None
    profile["output_format"] = settings.preference("output", "output_format")
    call.output.result(profile, *(f"{key}: {'-' if v is None else v}" for key, v in profile.items()))


def _profiles(settings: Settings) -> Mapping[str, Any]:
    return settings.config.find("operator", "profiles") or {}


def _profile(settings: Settings, name: str) -> dict[str, Any]:
    """Return what is known of a profile; one that is not right says why."""
    profile = _profiles(settings)[name]
    bound = [kind for kind in BINDINGS if profile.get(kind) is not None]
    target = error = None
    try:
        target = settings.of_profile(name)
    except GraphError as refused:
        error = refused.message
    return {
        "name": name,
        "binding": profile[bound[0]] if len(bound) == 1 else None,
        "scope_kind": bound[0] if len(bound) == 1 else None,
        "target": target,
        "valid": error is None,
        "error": error,
        "default_graph": profile.get("default_graph"),
        "active": name == settings.profile,
    }


def _profile_line(profile: Mapping[str, Any]) -> str:
    said = profile["target"] if profile["valid"] else f"not valid: {profile['error']}"
    return f"{'*' if profile['active'] else ' '} {profile['name']}  {said}"


# -- completion --------------------------------------------------------------------------------------


class Shell(StrEnum):
    """A shell whose words are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")]
) -> None:
    """Print the script by which a shell completes commands and flags; it is to read that as it starts."""
    from typer._completion_shared import get_completion_script

    program = ctx.find_root().info_name or "omnigraph"
    asked_by = f"_{program}_COMPLETE".replace("-", "_").upper()  # the variable by which the script asks
    script = get_completion_script(prog_name=program, complete_var=asked_by, shell=shell.value)

    def write(sink: BinaryIO) -> None:
        sink.write(f"{script}\n".encode())

    call_of(ctx).output.stream(write)
