"""Failures: what a server answered with, as the same typed error that an embedded graph raises.

    error document -> class by its code -> message, remedy, fields

The set of codes is open: one that this release does not know becomes an error of its own class that keeps the
code, the kind and every detail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from omnigraph.base.errors import GraphError, InvalidRequest, Kind
from omnigraph.engine.merge.conflicts import MergeConflict
from omnigraph.language.diagnostics import (
    Diagnostic,
    QueryError,
    Rule,
    SchemaError,
    Severity,
    SourceError,
    SourceText,
    Span,
)
from omnigraph.surfaces.client.decode import conflict

# A server that answers without a document of its own, such as a gateway in front of one.
KIND_BY_STATUS = {
    401: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.NOT_FOUND,
    409: Kind.CONFLICT,
    410: Kind.NOT_FOUND,
    412: Kind.CONFLICT,
    429: Kind.UNAVAILABLE,
    500: Kind.CORRUPT,
}
CODE_BY_STATUS = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    413: "resource_limit",
    429: "too_many_requests",
    503: "unavailable",
    504: "timeout",
}
MEMBERS = ("merge_conflicts",)  # details that stay lists, as the error itself has them


def failure_of(
    status: int, document: Mapping[str, Any] | None, request_id: str, source: SourceText | None = None
) -> GraphError:
    """Return the error of an answer; `source` is the text that was sent, if one was."""
    if document is None or "code" not in document:
        return _bare(status, request_id)
    code, kind = str(document["code"]), _kind(document.get("kind"), status)
    fields = {name: _value(name, value) for name, value in (document.get("details") or {}).items()}
    fields["request_id"] = document.get("request_id") or request_id
    if document.get("diagnostics"):
        found = _of_text(document, source)
        found.fields["request_id"] = fields["request_id"]
        return found
    message = str(document.get("message") or document.get("error") or document.get("title") or code)
    remedy = document.get("remedy")
    if code == MergeConflict.code and "merge_conflicts" in fields:
        return _merge_conflict(message, remedy, fields)
    return _made(class_of(code, kind, document.get("error_class")), message, remedy, fields)


def _made(cls: type[GraphError], message: str, remedy: Any, fields: Mapping[str, Any]) -> GraphError:
    error = cls.__new__(cls)
    GraphError.__init__(error, message, remedy=None if remedy is None else str(remedy), **fields)
    return error


def _bare(status: int, request_id: str) -> GraphError:
    """Return the error of an answer that no server of ours gave."""
    code = CODE_BY_STATUS.get(status, "unavailable" if status >= 500 else "bad_request")
    kind = KIND_BY_STATUS.get(status, Kind.UNAVAILABLE if status >= 500 else Kind.INVALID)
    return _made(
        class_of(code, kind),
        f"HTTP {status}, and no reason that an OmniGraph server would give",
        "Check the address: it is that of a server, or of one of its graphs (.../graphs/ID)",
        {"status": status, "request_id": request_id},
    )


def _value(name: str, value: Any) -> Any:
    return tuple(value) if isinstance(value, list) and name not in MEMBERS else value


def _kind(name: Any, status: int) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        return KIND_BY_STATUS.get(status, Kind.UNAVAILABLE if status >= 500 else Kind.INVALID)


# -- classes by code ---------------------------------------------------------------------------------


def class_of(code: str, kind: Kind, name: str | None = None) -> type[GraphError]:
    """Return the error class of a code; where several share it, that of the name, or of the kind."""
    known = [cls for cls in _descendants(GraphError) if cls.code == code]
    named = [cls for cls in known if cls.__name__ == name]
    alike = [cls for cls in known if cls.kind is kind]
    own = [cls for cls in alike or known if "code" in vars(cls)]
    for choice in (named, own, alike, known):
        if choice:
            return choice[0]
    return _unknown(code, kind)


@cache
def _unknown(code: str, kind: Kind) -> type[GraphError]:
    """Return a class for a code of a later release."""
    retryable = kind is Kind.UNAVAILABLE
    return type("UnknownError", (GraphError,), {"code": code, "kind": kind, "retryable": retryable})


def _descendants(cls: type[GraphError]) -> Iterator[type[GraphError]]:
    _load_classes()
    seen: set[type[GraphError]] = set()
    waiting = [cls]
    while waiting:
        for child in waiting.pop(0).__subclasses__():
            if child not in seen and child.__module__.startswith("omnigraph."):
                seen.add(child)
                if child.__name__ != "UnknownError":
                    yield child
                waiting.append(child)


@cache
def _load_classes() -> None:
    """Import the modules whose error classes are known only once they are imported."""
    from importlib import import_module

    for module in (
        "catalog.query.params",
        "catalog.query.values",
        "engine.export.files",
        "engine.load.conform",
        "language.query.parser",
        "storage.checksums",
        "storage.claims",
        "storage.opener",
    ):
        import_module(f"omnigraph.{module}")


# -- errors that are more than their fields ----------------------------------------------------------


def _merge_conflict(message: str, remedy: Any, fields: dict[str, Any]) -> MergeConflict:
    conflicts = [conflict(document) for document in fields["merge_conflicts"]]
    error = MergeConflict(message.rpartition(": ")[0], conflicts, int(fields.get("total", len(conflicts))))
    error.fields["request_id"] = fields["request_id"]
    error.remedy = error.remedy if remedy is None else str(remedy)
    return error


def _of_text(document: Mapping[str, Any], source: SourceText | None) -> SourceError:
    """Return the error about a text, with the text that was sent: places are shown as they are here."""
    found = [diagnostic(entry) for entry in document["diagnostics"]]
    is_schema = source is not None and source.file.endswith(".pg")
    named = document.get("error_class")
    cls = next((cls for cls in (SchemaError, QueryError) if cls.__name__ == named), None)
    if cls is None:
        cls = SchemaError if is_schema else QueryError
    return cls(source if source is not None else SourceText("", "text"), found)


def diagnostic(document: Mapping[str, Any]) -> Diagnostic:
    """Return a finding about a text."""
    place = document.get("span")
    span = None if place is None else Span(place["start"], place["end"], place["line"], place["column"])
    return Diagnostic(_rule(document), str(document["message"]), span, document.get("suggestion"))


def _rule(document: Mapping[str, Any]) -> Rule:
    code, severity = str(document["code"]), Severity(document["severity"])
    known = _rules().get(code)
    if known is not None and known.severity is severity:
        return known
    prefix = "" if known is None else known.prefix
    stage = 0 if known is None else known.stage
    return Rule(code, str(document.get("name", code)), "", stage, severity, prefix)


@cache
def _rules() -> dict[str, Rule]:
    """Return the rules of both languages by code."""
    from omnigraph.catalog import steps
    from omnigraph.language.query import rules as of_queries
    from omnigraph.language.schema import rules as of_schemas

    every = [*vars(of_queries).values(), *vars(of_schemas).values(), *steps.REGISTRY.values()]
    return {rule.code: rule for rule in every if isinstance(rule, Rule)}


def invalid_answer(what: str, request_id: str) -> GraphError:
    """Return the error about an answer that cannot be read."""
    return InvalidRequest(
        f"the answer is not what a server of OmniGraph gives: {what}",
        remedy="Check the address",
        request_id=request_id,
    )
