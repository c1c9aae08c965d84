"""Wire: what a failure looks like to programs: on the command line, over HTTP, and read back by the client.

One document for each error; a server adds what `application/problem+json` asks for. Whoever serves strangers
shows `public(error)`: what happened inside the server stays in its log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from omnigraph.base.errors import GraphError, IntegrityError, Kind, StorageError
from omnigraph.language.diagnostics import SourceError

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"

# -- documents -----------------------------------------------------------------------------------------

# By code, the name of the detail object and the fields that are in it.
DETAILS_BY_CODE = {
    "precondition_failed": ("precondition_failure", ("expected", "actual")),
    "change_feed_gap": ("change_feed_gap", ("cursor", "first_unreadable_commit_id")),
    "key_conflict": ("key_conflict", ("entity_kind", "type_name", "entity_id")),
    "idempotency_mismatch": ("idempotency", ("key", "first_commit_id")),
    "read_set_conflict": ("manifest_conflict", ("member", "expected", "actual")),
    "parentless_commit": ("change_diff_refusal", ("reason", "graph_commit_id")),
    "resource_limit": ("resource_limit", ("resource", "limit", "actual")),
}


def error_document(error: GraphError) -> dict[str, Any]:
    """Return an error as scripts read it."""
    said = error.summary if isinstance(error, SourceError) else str(error)  # the faults of a text are listed
    document: dict[str, Any] = {"error": said, "code": error.code, "kind": error.kind.value}
    if isinstance(error, SourceError):
        document["diagnostics"] = [diagnostic.to_json() for diagnostic in error.diagnostics]
    elif error.fields:
        document["details"] = error.fields
    if error.code in DETAILS_BY_CODE and error.fields:
        name, keys = DETAILS_BY_CODE[error.code]
        document[name] = {key: error.fields.get(key) for key in keys}
    return document


def problem_document(error: GraphError, request_id: str) -> dict[str, Any]:
    """Return an error as the body of a response, with what a client needs to make the same error again."""
    status = status_of(error)
    document = {
        "type": f"urn:omnigraph:error:{error.code}",
        "title": TITLES.get(status, "Failed"),
        "status": status,
        **error_document(error),
        "message": error.message,
        "remedy": error.remedy,
        "retryable": error.retryable,
        "error_class": type(error).__name__,  # several share a code; a client makes the same one again
        "request_id": request_id,
    }
    if "merge_conflicts" in error.fields:
        document["merge_conflicts"] = error.fields["merge_conflicts"]
    if isinstance(error, SourceError):
        document["position"] = _position(error)
    if (seconds := retry_after(error)) is not None:
        document["retry_after"] = seconds
    return document


def _position(error: SourceError) -> dict[str, Any] | None:
    """Return where the first fault of a text is."""
    span = error.diagnostics[0].span
    if span is None:
        return None
    lines = error.source.text.splitlines()
    snippet = lines[span.line - 1] if span.line <= len(lines) else ""
    return {"line": span.line, "column": span.column, "snippet": snippet[:200]}


def retry_after(error: GraphError) -> int | None:
    """Return after how many whole seconds trying again may help, from 1 to 30; None if it is not known."""
    seconds = error.fields.get("retry_after")
    return None if seconds is None else min(30, max(1, math.ceil(float(seconds))))


# -- status --------------------------------------------------------------------------------------------

STATUS_BY_KIND = {
    Kind.INVALID: 400,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.UNAVAILABLE: 503,
    Kind.DENIED: 403,
    Kind.CORRUPT: 500,
}
STATUS_BY_CODE = {
    "unauthenticated": 401,
    "method_not_allowed": 405,
    "parentless_commit": 409,
    "schema_unsupported": 409,
    "history_reclaimed": 410,
    "change_feed_gap": 410,
    "precondition_failed": 412,
    "resource_limit": 413,
    "unsupported_media": 415,
    "too_many_requests": 429,
    "graph_closed": 503,
    "format_too_new": 503,
    "format_too_old": 503,
    "format_unreadable": 503,
    "store_unsupported": 503,
    "timeout": 504,
}
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
    504: "Timeout",
}


def status_of(error: GraphError) -> int:
    """Return the HTTP status of an error."""
    if error.code == "storage":  # also where storage refused the server: that is not the caller's matter
        return 503 if error.fields.get("storage_kind") == "transient" else 500
    if error.code == "resource_limit" and error.retryable:  # others have what it needs: not its own size
        return 503
    return STATUS_BY_CODE.get(error.code, STATUS_BY_KIND[error.kind])


class ServerFailure(GraphError):
    """A server failed in a way that it does not tell; its log has the request id."""


def public(error: BaseException) -> GraphError:
    """Return what of an error may be shown to a stranger: no paths, no internals."""
    if not isinstance(error, GraphError):
        return ServerFailure("the server failed", remedy="Its log has the reason, under the request id")
    if isinstance(error, StorageError) and error.code != "outcome_unknown":
        kind = error.fields.get("storage_kind")
        return _without_internals(error, "storage failed", {"storage_kind": kind} if kind else {})
    if isinstance(error, IntegrityError):
        return _without_internals(error, "stored data cannot be read", {})
    if error.code.startswith(("format_", "graph_closed")):
        return _without_internals(error, "the graph cannot be served now", {})
    if error.kind is Kind.CORRUPT:
        return ServerFailure("the server failed", remedy="Its log has the reason, under the request id")
    return error


def _without_internals(error: GraphError, message: str, fields: Mapping[str, Any]) -> GraphError:
    shown = type(error).__new__(type(error))
    GraphError.__init__(shown, message, remedy="The server's log has the reason, under the request id")
    shown.fields = dict(fields)
    return shown


# -- JSON ----------------------------------------------------------------------------------------------


def json_bytes(document: Any) -> bytes:
    """Return a document as UTF-8; what UTF-8 cannot hold stays an escape, and no NaN leaves the house."""
    try:
        text = json.dumps(
            document, ensure_ascii=False, default=_plain, separators=(",", ":"), allow_nan=False
        )
    except ValueError:
        text = json.dumps(_finite(document), ensure_ascii=False, default=str, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, set | frozenset) else str(value)


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value
