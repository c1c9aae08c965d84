"""Settings: what a server process is told once: where to listen, what to serve, which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.server.admission import AdmissionLimits

DEFAULT_BIND = "127.0.0.1:8080"


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take."""

    max_json_bytes: int = 1 << 20
    max_load_bytes: int = 256 << 20
    spool_bytes: int = 8 << 20  # of an upload that stay in memory
    max_json_rows: int = 100_000
    deadline_seconds: float = 30.0
    long_seconds: float = 600.0  # for loads, merges and schema changes
    body_seconds: float = 60.0  # without a byte of a body that is awaited
    drain_seconds: float = 30.0
    longest_wait_seconds: float = 60.0  # of a long poll
    chunk_bytes: int = 64 << 10


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
    memory_bytes: int | None = None  # of each graph's queries; None is the engine's own default
    limits: Limits = field(default_factory=Limits)
    admission: AdmissionLimits = field(default_factory=AdmissionLimits)
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
