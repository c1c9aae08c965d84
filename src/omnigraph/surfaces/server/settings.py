"""Settings: what a server process is told once: where to listen, what to serve, which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.server.limits import Limits

DEFAULT_BIND = "127.0.0.1:8080"


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
