"""Limits: how much a server takes on, and how much of what: one table for code, variables, help and docs.

Each limit is a field: its default, its unit, what it bounds and what happens beyond it. A flag wins over a
variable, a variable over the project file, and that over the default. The variable of a limit is its name in
capitals; two have older names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, field, fields
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.surfaces.environment import LONG, variable

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BYTES, SECONDS, REQUESTS, ROWS = "bytes", "seconds", "requests", "rows"


def _limit(
    default: int | float, unit: str, bounds: str, beyond: str = "", *, named: str = "", least: int = 1
) -> Any:
    """Return the field of a limit; `named` is its variable where that has another name."""
    told = {"unit": unit, "bounds": bounds, "beyond": beyond, "named": named, "least": least}
    return field(default=default, metadata=told)


BROKEN = "the answer breaks off"
AGAIN = "503 with `Retry-After`"
LESS = "429 with `Retry-After`"
TOO_LARGE = "413"


@dataclass(frozen=True)
class Limits:
    """What one request, one actor, one graph and all of a process together may take."""

    # what a request may send
    max_head_bytes: int = _limit(64 * KIB, BYTES, "head of a request: line and headers", "431")
    max_json_bytes: int = _limit(MIB, BYTES, "JSON body", TOO_LARGE)
    max_load_bytes: int = _limit(256 * MIB, BYTES, "body of a load", TOO_LARGE)
    spool_bytes: int = _limit(8 * MIB, BYTES, "part of such a body that stays in memory", "kept on disk")
    # what an answer may hold
    max_json_rows: int = _limit(100_000, ROWS, "rows of a JSON answer", "413: ask for Arrow, or limit")
    max_json_answer_bytes: int = _limit(
        64 * MIB, BYTES, "rows of a JSON answer, as Arrow has them", "413: ask for Arrow, or limit"
    )
    chunk_bytes: int = _limit(64 * KIB, BYTES, "piece of a stream", "several pieces")
    # time
    head_seconds: float = _limit(30.0, SECONDS, "time for a head to arrive", "the connection is closed")
    body_seconds: float = _limit(
        60.0, SECONDS, "time without a byte of a body, or below 1 KiB a second", "504"
    )
    answer_seconds: float = _limit(60.0, SECONDS, "time in which nobody takes a piece of the answer", BROKEN)
    deadline_seconds: float = _limit(30.0, SECONDS, "read or mutation, its waiting included", "504")
    long_seconds: float = _limit(
        600.0,
        SECONDS,
        "load, merge or schema change",
        "504; a load is stopped until it publishes, others go on",
    )
    longest_wait_seconds: float = _limit(60.0, SECONDS, "long poll", "answered without a change")
    drain_seconds: float = _limit(30.0, SECONDS, "time that writes have to end, once told to stop", "ended")
    # reads at once
    reads: int = _limit(64, REQUESTS, "reads that run", "they wait")
    read_queue: int = _limit(256, REQUESTS, "reads that wait", AGAIN, least=0)
    heavy_reads: int = _limit(
        16, REQUESTS, "of those, reads like one that took more than a second the last time", "they wait"
    )
    actor_reads: int = _limit(128, REQUESTS, "reads of one actor, those that wait included", LESS)
    exports: int = _limit(16, REQUESTS, "exports and baselines that run", AGAIN)
    listeners: int = _limit(256, REQUESTS, "long polls and event streams", AGAIN)
    actor_listeners: int = _limit(64, REQUESTS, "those of one actor", LESS)
    memory_bytes: int = _limit(4 * GIB, BYTES, "memory of all queries and their caches", AGAIN)
    query_memory_bytes: int = _limit(4 * GIB, BYTES, "memory of one query", TOO_LARGE)
    # writes at once
    actor_writes: int = _limit(
        16, REQUESTS, "writes of one actor, those that wait included", LESS, named="PER_ACTOR_INFLIGHT_MAX"
    )
    actor_bytes: int = _limit(
        4 * GIB, BYTES, "bodies of the writes of one actor", LESS, named="PER_ACTOR_BYTES_MAX"
    )
    graph_writes: int = _limit(8, REQUESTS, "writes of one graph that run", "they wait")
    graph_write_queue: int = _limit(64, REQUESTS, "writes of one graph that wait", AGAIN, least=0)

    def __post_init__(self) -> None:
        for limit in fields(self):
            least = limit.metadata["least"] if isinstance(limit.default, int) else 0
            if not least <= getattr(self, limit.name) < float("inf"):
                raise InvalidRequest(f"{limit.name} is below {least}", remedy="Give a larger limit")

    @staticmethod
    def told(
        flags: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        file: Mapping[str, Any] | None = None,
    ) -> Limits:
        """Return the limits that flags (`NAME=VALUE`), variables and a file ask for."""
        values: dict[str, str] = {name: str(value) for name, value in (file or {}).items()}
        values |= dict(_of_environment(environment or {}))
        for flag in flags:
            name, equals, value = flag.partition("=")
            if not equals:
                raise InvalidRequest(f"{flag!r} is no limit", remedy="Give NAME=VALUE, as in reads=32")
            values[name.strip()] = value
        known = {limit.name: limit for limit in fields(Limits)}
        for name in values:
            if name not in known:
                remedy = did_you_mean(name, list(known)) or f"There are {', '.join(known)}"
                raise InvalidRequest(f"there is no limit {name!r}", remedy=remedy)
        given: dict[str, Any] = {name: _number(known[name], value) for name, value in values.items()}
        return Limits(**given)


def variable_of(limit: Field[Any]) -> str:
    """Return the name of the variable that sets a limit, without its prefix."""
    return str(limit.metadata["named"] or limit.name.upper())


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for limit in fields(Limits):
        text = variable(variable_of(limit), environment)
        if text is not None:
            yield limit.name, text


def _number(limit: Field[Any], text: str) -> int | float:
    """Read a limit: digits only, and for seconds perhaps a fraction."""
    whole, point, part = text.strip().partition(".")
    digits = whole.isascii() and whole.isdecimal() and (not point or (part.isascii() and part.isdecimal()))
    if not digits or (point and isinstance(limit.default, int)):
        asked = "digits only" if isinstance(limit.default, int) else "seconds"
        raise InvalidRequest(
            f"{limit.name} is {text!r}, which is no number", remedy=f"Give {asked}, without a unit"
        )
    return int(whole) if isinstance(limit.default, int) else float(text)


# -- as people read it -----------------------------------------------------------------------------------


def table() -> str:
    """Return all limits as a table of the docs."""
    usual = Limits()
    rows = [
        f"| `{limit.name}` | {shown(getattr(usual, limit.name), limit.metadata['unit'])} "
        f"| {limit.metadata['bounds']} | {limit.metadata['beyond']}{_older(limit)} |"
        for limit in fields(Limits)
    ]
    return "\n".join(["| Limit | Default | What it bounds | Beyond it |", "|---|---|---|---|", *rows])


def _older(limit: Field[Any]) -> str:
    named = limit.metadata["named"]
    return f"; variable `{LONG}{named}`" if named else ""


def shown(value: float, unit: str) -> str:
    """Return a value as people read it.

    >>> shown(256 << 20, "bytes"), shown(100_000, "rows"), shown(30.0, "seconds")
    ('256 MiB', '100,000', '30 s')
    """
    if unit == SECONDS:
        return f"{value:g} s"
    for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if unit == BYTES and value % size == 0:
            return f"{value // size:.0f} {name}"
    return f"{value:,}"
