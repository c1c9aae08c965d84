"""What a command prints, and what a failure looks like.

Results go to stdout, everything else to stderr. With `--json` stdout is one JSON document, for failures too,
so that scripts never parse text.

Exit    0 done; 1 failed, or a check found errors; 2 bad usage; 3 not allowed; 4 precondition lost;
        5 conflict; 6 not found; 7 temporary, a passed deadline too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omnigraph.base.errors import GraphError, InvalidRequest, Kind, counted
from omnigraph.language.diagnostics import SourceError
from omnigraph.surfaces.cli.settings import Settings, is_remote, is_served
from omnigraph.surfaces.cli.support.deadline import DeadlineProgress, Stage
from omnigraph.surfaces.wire import error_document

if TYPE_CHECKING:  # Rich is imported by the first line that it prints
    from rich.console import Console
    from rich.text import Text

# -- where words go ----------------------------------------------------------------------------------


EXIT_BY_KIND = {
    Kind.INVALID: 2,
    Kind.NOT_FOUND: 6,
    Kind.CONFLICT: 5,
    Kind.UNAVAILABLE: 7,
    Kind.DENIED: 3,
    Kind.CORRUPT: 1,
}
EXIT_BY_CODE = {
    "precondition_failed": 4,
    "schema_unsupported": 1,
    "constraint_violation": 1,
    "policy_invalid": 1,
    "no_graph_to_serve": 1,
}


class CommandOutput:
    """Where a command's words go."""

    def __init__(
        self, settings: Settings, *, color: bool | None = None, progress: DeadlineProgress | None = None
    ) -> None:
        self._settings = settings
        self._progress = progress or DeadlineProgress()
        self._plain = color is False

    @cached_property
    def _out(self) -> Console:
        return self._console(stderr=False)

    @cached_property
    def _err(self) -> Console:
        return self._console(stderr=True)

    def _console(self, *, stderr: bool) -> Console:
        from rich.console import Console

        return Console(stderr=stderr, highlight=False, emoji=False, no_color=self._plain, soft_wrap=True)

    def result(self, document: dict[str, Any], *lines: str | Text) -> None:
        """Print the result: the document with `--json`, the lines otherwise."""
        self._progress.reach(Stage.ANSWERED)
        if self._settings.json:
            print_document(document)
            return
        for line in lines:
            self._out.print(line, markup=False)

    def stream(self, write: Callable[[BinaryIO], None], file: Path | None = None) -> None:
        """Let a result be written to stdout as it is, or to a file, which is whole or not there."""
        self._progress.reach(Stage.ANSWERED)
        if file is not None:
            write_file(file, write)
            return
        try:
            sys.stdout.flush()
            write(sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader has seen enough; what is left must not fail at the exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def writing(self) -> None:
        """Say that a command begins to write."""
        self._progress.reach(Stage.WRITING)

    def target(self, command: str, address: str, *, writes: bool = True) -> None:
        """Say on stderr what a command works on, and that it begins to write unless it will say so later."""
        if writes:
            self.writing()
        if not self._settings.quiet:
            place = "remote" if is_remote(address) else "local"
            access = "served" if is_served(address) else "embedded"
            self._err.print(f"{command} → {address} ({access}, {place})", style="dim", markup=False)

    def note(self, text: str) -> None:
        """Say something on stderr."""
        if not self._settings.quiet:
            self._err.print(text, markup=False)

    @property
    def watched(self) -> Console | None:
        """Where to show progress: stderr, if a person looks at it."""
        return self._err if self._err.is_terminal and not self._settings.quiet else None

    def ask(self, question: str) -> str | None:
        """Ask a person; None if there is nobody to answer."""
        if self._settings.json or not (self._err.is_terminal and sys.stdin.isatty()):
            return None
        self._err.print(question, end=" ", markup=False)
        return sys.stdin.readline().strip()

    def failure(self, error: GraphError) -> int:
        """Print an error and return the exit code."""
        self._progress.reach(Stage.ANSWERED)
        if self._settings.json:
            print_document(error_document(error))
        if isinstance(error, SourceError):
            self._err.print(str(error), markup=False)
        else:
            from rich.text import Text

            first = error.message.partition("\n")[0]
            self._err.print(Text.assemble(("error", "bold red"), f" [{error.code}]: {first}"))
            for line in error.details:
                self._err.print(f"  {line}", markup=False)
            if error.remedy:
                self._err.print(f"  {in_flags(error.remedy)}", markup=False)
        return exit_code(error)


def write_file(file: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file under another name and then give it its own; a device or a pipe is written as it is."""
    from omnigraph.base.ids import new_id

    special = file.exists() and not file.is_file()
    target = file if special else file.with_name(f".{file.name}.{new_id()}")
    try:
        try:
            with target.open("wb") as sink:
                write(sink)
            if not special:
                target.replace(file)
        finally:
            if not special:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {str(file)!r}: {error.strerror}", remedy="Check the path"
        ) from error


def print_document(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n")


def exit_code(error: GraphError) -> int:
    """Return the exit code of an error."""
    return EXIT_BY_CODE.get(error.code, EXIT_BY_KIND[error.kind])


# -- words -------------------------------------------------------------------------------------------


# Arguments of Python that remedies name, and the flags for them.
FLAGS = {
    "type": "--type",
    "format": "--format",
    "mode": "--mode",
    "engine": "--engine",
    "columns": "--map",
    "rejects": "--rejects",
    "replace_types": "--replace-type",
    "on_violation": "--on-violation",
    "from_branch": "--from",
    "branch": "--branch",
    "at": "--snapshot",
    "if_commit": "--if-commit",
    "idempotency_key": "--idempotency-key",
    "allow_data_loss": "--allow-data-loss",
    "strategy": "--strategy",
    "limit": "--limit",
}
_ARGUMENT = re.compile(rf"\b({'|'.join(FLAGS)})=(?:'([^']*)'|(True)\b)?")


def in_flags(remedy: str) -> str:
    """Return a remedy with flags where it names arguments.

    >>> in_flags("Give type=, or use mode='overwrite'")
    'Give --type, or use --mode overwrite'
    """
    return _ARGUMENT.sub(lambda argument: f"{FLAGS[argument[1]]} {argument[2] or ''}".rstrip(), remedy)


def shown_time(time_us: int) -> str:
    """Return a time as people read it, in UTC."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


# -- a graph and the names after it ------------------------------------------------------------------
#
# `branch create x` takes the configured graph, `branch create kb.og x` names one.


def graph_and_words(
    settings: Settings, words: Sequence[str], graph_uri: str | None, *names: str
) -> tuple[str, list[str]]:
    """Return the address of the graph and the word of each name; one more in front is the address."""
    count = len(names)
    if not count <= len(words) <= count + 1:
        usage = " ".join(names)
        raise InvalidRequest(
            f"{counted(len(words), 'word')} on the line", remedy=f"Give {usage}, or the graph and {usage}"
        )
    address = words[0] if len(words) > count else None
    return settings.address(address, graph_uri), list(words[len(words) - count :])
