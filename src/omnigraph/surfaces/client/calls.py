"""Calls: what every method of a remote graph has in common, above the transport and below the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.base.times import At
from omnigraph.engine.history.changes import Names
from omnigraph.language.diagnostics import SourceText
from omnigraph.surfaces.client.transport import Payload, RemoteRequest, Settle, Transport

Json = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Calls:
    """Reads and writes of one graph."""

    transport: Transport

    def read(self, path: str, **query: Any) -> Json:
        """Get a document."""
        return self.transport.ask(RemoteRequest("GET", path, query))

    def ask(self, path: str, source: SourceText | None = None, **body: Any) -> Json:
        """Get a document that takes a body to ask for; nothing is written."""
        return self.transport.ask(RemoteRequest("POST", path, body=Payload.of(body), source=source))

    def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        if_commit: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        settle: Settle | None = None,
        source: SourceText | None = None,
    ) -> Json:
        """Make a write. Its key is made once, so that it may be tried again; a rehearsal has none.

        Nor has a write that makes no commit: `settle` knows its effect.
        """
        request = RemoteRequest(
            method,
            path,
            query or {},
            None if body is None else Payload.of(body),
            write_headers(if_commit, key, dry_run=dry_run or settle is not None),
            source=source,
        )
        return self.transport.ask(request, settle)


def write_headers(if_commit: str | None, key: str | None, *, dry_run: bool) -> dict[str, str]:
    """Return the headers of a write."""
    headers = {} if if_commit is None else {"If-Commit": _visible(if_commit, "if_commit")}
    if not dry_run:
        headers["Idempotency-Key"] = new_id() if key is None else _visible(key, "an idempotency key")
    return headers


def _visible(text: str, what: str) -> str:
    if not text or not text.isprintable() or len(text) > 128 or not text.isascii() or text != text.strip():
        raise InvalidRequest(f"{what} has 1 to 128 visible characters", remedy="Use letters and digits")
    return text


def moment(at: At | None) -> str | None:
    """Return how a state of the past is named in a request."""
    if at is None:
        return None
    if isinstance(at, datetime):
        return at.isoformat()
    return str(at)


def listed(names: Names | Iterable[str]) -> list[str] | None:
    """Return given names as a list; none at all is no filter."""
    if names is None:
        return None
    return [names] if isinstance(names, str) else list(names)


def no_actor(actor: str | None) -> None:
    """Refuse an actor: whoever holds the token writes."""
    if actor is not None:
        raise InvalidRequest(
            "a server takes the actor from the token, so actor= cannot name another",
            remedy="Leave out actor, or connect with the token of that actor",
            actor=actor,
        )


def local_only(operation: str, instead: str) -> InvalidRequest:
    """Return the error about what only whoever reaches the storage can do."""
    return InvalidRequest(
        f"{operation} works on the storage of a graph, and a server does not give that out",
        remedy=instead,
        operation=operation,
    )
