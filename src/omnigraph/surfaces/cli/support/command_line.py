"""Commands that load when they are called, and global flags anywhere on the line.

`CommandLine` is the group behind `omnigraph`. It knows its commands by a table of names and imports the
module of one only when that one is called, completed or shown in a help text. Those modules import the engine
inside the functions that need it, so that help, completion and `--version` start without Lance and Arrow.

Global flags may stand anywhere on the line. They are moved to the front, where the root command reads them,
and the help of every command lists them after its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from omnigraph.base.dataclass import dataclass

F = TypeVar("F", bound=Callable[..., Any])
PACKAGE = "omnigraph.surfaces.cli"
SWITCHES = frozenset({"--json", "--quiet", "--yes", "--dry-run", "--trace", "--no-color", "--version", "-v"})
VALUED = frozenset({"--as", "--branch", "--profile", "--server", "--timeout", "--log-level", "--log-format"})
OF_SERVER = "--graph"  # global beside --server; elsewhere a flag of `log` and `pipeline`
GLOBAL_PANEL = "Global options"
NOT_IN_COMMAND_HELP = frozenset({"version", "install_completion", "show_completion", "help"})
JSON_WANTED = "omnigraph.json"
SHOWING_HELP = "omnigraph.help"


# -- commands that load when they are called ---------------------------------------------------------


@dataclass(frozen=True)
class CommandEntry:
    """Where a command is: a function, or a `typer.Typer` with commands of its own."""

    module: str
    attribute: str
    panel: str = "More"
    hidden: bool = False
    example: str | None = None

    def load(self, name: str) -> Any:
        """Import the command and return it as the group calls it."""
        target = self._target()
        group = Commands()
        if isinstance(target, typer.Typer):
            group.add_typer(target, name=name, rich_help_panel=self.panel, hidden=self.hidden)
        else:
            group.command(name, example=self.example, rich_help_panel=self.panel, hidden=self.hidden)(target)
        return typer.main.get_group(group).commands[name]

    def summary(self, name: str) -> TyperCommand:
        """Return the command as a list shows it, without its parameters."""
        target = self._target()
        text = target.info.help if isinstance(target, typer.Typer) else target.__doc__
        return TyperCommand(name, help=text, rich_help_panel=self.panel, hidden=self.hidden)

    def _target(self) -> Any:
        return getattr(import_module(f"{PACKAGE}.{self.module}"), self.attribute)


class Commands(typer.Typer):
    """A group of commands; each may have an example, the last line of its help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=CommandGroup, add_completion=False, no_args_is_help=True, **settings)

    def command(
        self, name: str | None = None, *, example: str | None = None, **settings: Any
    ) -> Callable[[F], F]:
        """Register a function as a command."""
        epilog = None if example is None else f"Example: {example}"
        return super().command(name, cls=Command, epilog=epilog, **settings)


class PlainValue:
    """Reads values that need no conversion, and leaves the others to typer.

    Typer converts with pydantic, whose import takes a fifth of the time that Lance's does.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        annotation = param.type_descriptor.annotation
        if type(value) is annotation:
            return value
        if annotation == list[str]:
            return list(value)
        if annotation is Path:
            return Path(value)
        if isinstance(annotation, type) and issubclass(annotation, StrEnum) and value in {*annotation}:
            return annotation(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _plain_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        parameter._runtime_param = PlainValue()
    return parameters


class Command(TyperCommand):
    """A command whose help lists the global flags after its own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        ctx.meta[SHOWING_HELP] = True
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; in a help text, those of the root command follow."""
        own = _plain_values(super().get_params(ctx))
        if not ctx.meta.get(SHOWING_HELP):
            return own
        taken = {spelling for parameter in own for spelling in parameter.opts}
        root = ctx.find_root().command
        return own + [
            parameter
            for parameter in root.params
            if parameter.name not in NOT_IN_COMMAND_HELP and not taken.intersection(parameter.opts)
        ]


class CommandGroup(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return _plain_values(super().get_params(ctx))


class CommandLine(CommandGroup):
    """The root group: a table of commands, and global flags anywhere on the line."""

    table: ClassVar[Mapping[str, CommandEntry]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        return list(self.table)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        ctx.meta[SHOWING_HELP] = True
        super().format_help(ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported now if it was not before."""
        if ctx.meta.get(SHOWING_HELP):
            return self.table[cmd_name].summary(cmd_name)
        # An unknown name is compared with all others, for the message about it.
        for name in [cmd_name] if cmd_name in self.table else self.table:
            if name not in self.commands:
                self.commands[name] = self.table[name].load(name)
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global flags to the front, where the root command reads them."""
        front, rest = split(args)
        ctx.meta[JSON_WANTED] = "--json" in front  # known before any flag is acted on, --version above all
        return super().parse_args(ctx, front + current_spelling(rest))


def split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the global flags with their values, and the rest; what follows `--` stays.

    >>> split(["schema", "plan", "kb.og", "--json", "--branch", "b"])
    (['--json', '--branch', 'b'], ['schema', 'plan', 'kb.og'])
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    beside_server = any(word.partition("=")[0] == "--server" for word in args)
    valued = VALUED | {OF_SERVER} if beside_server else VALUED
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif word in SWITCHES or (name in valued and value):
            front.append(word)
        elif word in valued:
            front += [word, *([following] if (following := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return front, rest


# -- old spellings -----------------------------------------------------------------------------------
#
# An old spelling of two words becomes one hidden command of that name, which warns and goes on; old names of
# one word are plain hidden commands and need nothing here. `profile` alone measures a query, so that the
# commands about profiles of the operator config are of two words, too.


PAIRS = frozenset({("query", "lint"), ("query", "check"), ("profile", "list"), ("profile", "show")})
QUERY_COMMANDS = frozenset({"query", "read", "mutate", "change"})
ALIAS = "--alias"
QUERY_ALIAS = "query --alias"


def current_spelling(words: Sequence[str]) -> list[str]:
    """Return a line, without its global flags, as it is spelt now.

    >>> current_spelling(["query", "lint", "--query", "q.gq"])
    ['query lint', '--query', 'q.gq']
    >>> current_spelling(["query", "--alias", "friends", "Ada"])
    ['query --alias', 'friends', 'Ada']
    """
    if tuple(words[:2]) in PAIRS:
        return [" ".join(words[:2]), *words[2:]]
    if words and words[0] in QUERY_COMMANDS:
        return _alias_first(list(words))
    return list(words)


def _alias_first(words: list[str]) -> list[str]:
    """Move the name of an alias to the front, if the line has one."""
    end = words.index("--") if "--" in words else len(words)
    for position, word in enumerate(words[:end]):
        flag, equals, value = word.partition("=")
        if flag != ALIAS:
            continue
        alias_name = [value] if equals else words[position + 1 : position + 2]
        return [QUERY_ALIAS, *alias_name, *words[1:position], *words[position + (1 if equals else 2) :]]
    return words
