"""Access log: one record for each request, with what is safe to keep.

A record has the template of the route, not the path: names, query strings, bodies, parameters and headers are
data of users, and tokens are among them. Its facts are attributes of the record, which a JSON formatter
writes as fields; its message says the same in one line of text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from omnigraph.base.ids import new_id
from omnigraph.surfaces.server.metrics import METHODS

ACCESS_LOGGER = "omnigraph.access"
_REQUEST_ID = re.compile(r"[!-~]{1,128}")

log = logging.getLogger(ACCESS_LOGGER)


def request_id_of(given: str | None) -> str:
    """Return the id of a request: the one it came with, if that can stand in a log, or a new one.

    >>> request_id_of("req-7")
    'req-7'
    >>> len(request_id_of("two\\nlines")), len(request_id_of(None))
    (26, 26)
    """
    return given if given is not None and _REQUEST_ID.fullmatch(given) else new_id()


def log_access(
    *,
    request_id: str,
    actor: str | None,
    method: str,
    route: str,
    status: int,
    seconds: float,
    graph: str | None = None,
    code: str | None = None,
) -> None:
    """Record a request that was answered; `code` is that of the error, if it ended with one."""
    facts: dict[str, Any] = {
        "request_id": request_id_of(request_id),
        "actor": actor,
        "method": method if method in METHODS else "OTHER",
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 3),
        **_known(graph=graph, code=code),
    }
    level = logging.ERROR if status >= 500 and status != 503 else logging.INFO
    log.log(
        level,
        "%(method)s %(route)s %(status)s %(ms)s ms actor=%(actor)r request_id=%(request_id)s",
        facts,
        extra=facts,
    )


def _known(**facts: str | None) -> Mapping[str, str]:
    return {name: value for name, value in facts.items() if value is not None}
