"""Panics: native code that gave up, as an error that can be caught like any other.

Lance and its relatives are written in Rust. Where that meets bytes that it holds to be impossible, it panics,
and Python gets a `PanicException`, which is no `Exception`: whoever catches errors does not catch it, and a
thread or a program ends with a traceback. Whoever calls native code on stored bytes does so in
`panics_caught()`, where a panic becomes an `OSError`, as for any other file that cannot be read.
"""

from __future__ import annotations

from types import TracebackType


def is_panic(error: BaseException | None) -> bool:
    """Say whether native code gave up; the class of its exception has no module to import it from."""
    return type(error).__name__ == "PanicException"


class panics_caught:
    """A block in which a panic is an `OSError`. A class, not a generator: it stands around every read."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and is_panic(error):
            raise OSError(f"native code gave up: {error}") from error
