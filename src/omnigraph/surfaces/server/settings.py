"""Settings: what a server process is told once: where to listen, what to serve, which limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import read_duration
from omnigraph.storage.tables.compaction import OptimizePolicy
from omnigraph.surfaces.server.limits import Limits

DEFAULT_BIND = "127.0.0.1:8080"
WHEN: Mapping[str, Callable[[str], float]] = {
    "every": lambda text: read_duration(text) / 1_000_000,
    "small_fragments": int,
    "small_bytes": int,
    "deleted_share": float,
    "unindexed_share": float,
}


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """How often graphs are looked at, and what makes one due."""

    every_seconds: float = 60.0
    due: OptimizePolicy = field(
        default_factory=lambda: OptimizePolicy(small_fragments=16, deleted_share=0.25, unindexed_share=0.25)
    )

    @staticmethod
    def read(text: str) -> UpkeepPolicy:
        """Return the policy that a text names: `every=5m,small_fragments=32`.

        >>> UpkeepPolicy.read("every=5m").every_seconds
        300.0
        """
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, _, value = (word.strip() for word in part.partition("="))
            try:
                given[name] = WHEN[name](value)
            except (KeyError, ValueError):
                raise InvalidRequest(
                    f"{part.strip()!r} says nothing of when to optimize",
                    remedy=f"Give every=5m and, if you like, others of {', '.join(WHEN)}",
                ) from None
        usual = UpkeepPolicy()
        every = given.pop("every", usual.every_seconds)
        if every <= 0:
            raise InvalidRequest("graphs cannot be looked at all the time", remedy="Give every=60s or more")
        return UpkeepPolicy(every, replace(usual.due, **given))


@dataclass(frozen=True)
class ServedAddress:
    """One graph that is to be served: its name in paths, where it is, and its stored queries."""

    graph_id: str
    address: str
    queries: Path | None = None
    policy: Path | None = None


@dataclass(frozen=True)
class ServerSettings:
    """Everything that a server process is told."""

    graphs: tuple[ServedAddress, ...] = ()
    bind: str = DEFAULT_BIND
    unauthenticated: bool = False
    allow_public: bool = False
    read_only: bool = False
    require_all_graphs: bool = False
    policies: tuple[Path, ...] = ()  # one for the server, one for graphs that have none of their own
    tokens: Path | None = None
    tokens_command: str | None = None
    cors: tuple[str, ...] = ()
    workers: int = 1
    upkeep: UpkeepPolicy | None = None  # None: nobody optimizes in the background
    strict: bool = False  # no scan without an index, and no answer without a bound
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The address to listen on."""
        return split_bind(self.bind)[0]


def split_bind(bind: str) -> tuple[str, int]:
    """Return host and port.

    >>> split_bind("127.0.0.1:8080"), split_bind("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidRequest(f"{bind!r} is no place to listen on", remedy="Give HOST:PORT; port 0 picks one")
    return host.removeprefix("[").removesuffix("]"), int(port)
