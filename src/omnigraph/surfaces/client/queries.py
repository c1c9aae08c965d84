"""Queries: reads, plans and mutations by their text, and the queries that a server keeps by name."""

from __future__ import annotations

import json
from typing import Any

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.times import At
from omnigraph.catalog.query.params import ParamText
from omnigraph.catalog.types import FLOATS, PropertyType, Scalar
from omnigraph.engine.options import View
from omnigraph.engine.query import QueryText, read_query
from omnigraph.engine.write import Receipt
from omnigraph.execution.plan.explain import Explanation
from omnigraph.execution.result import Result
from omnigraph.language.diagnostics import SourceText
from omnigraph.language.query import parse
from omnigraph.surfaces.client import decode
from omnigraph.surfaces.client.calls import Calls, moment, write_headers
from omnigraph.surfaces.client.failures import invalid_answer
from omnigraph.surfaces.client.rows import read_arrow
from omnigraph.surfaces.client.transport import ARROW, JSON, Payload, RemoteRequest, ServerAnswer, segment

Params = dict[str, Any]


@dataclass(frozen=True)
class QueryCalls:
    """Runs queries on a server."""

    calls: Calls
    view: View

    def query(
        self,
        gq: QueryText,
        params: Params,
        name: str | None,
        branch: str | None,
        at: At | None,
        memory_bytes: int | None,
    ) -> Result:
        """Run one read; its rows come as Arrow, in the types in which they are stored."""
        source, body = self._of_read(gq, params, name, branch, at)
        body["memory_bytes"] = memory_bytes
        request = RemoteRequest("POST", "/query", body=Payload.of(body), accept=ARROW, source=source)
        return _result(self.calls.transport.call(request))

    def explain(
        self, path: str, gq: QueryText, params: Params, name: str | None, branch: str | None, at: At | None
    ) -> Explanation:
        """Describe a read, or run and measure it."""
        source, body = self._of_read(gq, params, name, branch, at)
        return decode.explanation(self.calls.ask(path, source, **body))

    def mutate(
        self,
        gq: QueryText,
        params: Params,
        name: str | None,
        branch: str | None,
        *,
        if_commit: str | None,
        key: str | None,
        message: str | None,
        dry_run: bool,
    ) -> Receipt:
        """Run one mutation."""
        target = self.view.write(branch)
        source, body = _of_text(gq, params, name)
        body |= {"branch": target, "message": message, "dry_run": dry_run or None}
        return decode.receipt(
            self.calls.write(
                "POST", "/mutate", body, if_commit=if_commit, key=key, dry_run=dry_run, source=source
            )
        )

    def stored(
        self,
        name: str,
        params: Params,
        branch: str | None,
        at: At | None,
        *,
        if_commit: str | None,
        key: str | None,
        message: str | None,
        expect_mutation: bool | None,
    ) -> Result | Receipt:
        """Run a stored query: which of the two it is, the form of the answer says."""
        line, at = self.view.read(branch, at)
        body = {
            "params": _plain_texts(params),
            "branch": line,
            "snapshot": moment(at),
            "message": message,
            "expect_mutation": expect_mutation,
        }
        request = RemoteRequest(
            "POST",
            f"/queries/{segment(name)}",
            body=Payload.of(body),
            headers=write_headers(if_commit, key, dry_run=False),
            accept=f"{ARROW}, {JSON};q=0.5",
        )
        answer = self.calls.transport.call(request)
        if answer.headers.get("content-type", "").startswith(ARROW):
            return _result(answer)
        return decode.receipt(answer.json())

    def _of_read(
        self, gq: QueryText, params: Params, name: str | None, branch: str | None, at: At | None
    ) -> tuple[SourceText, Params]:
        line, at = self.view.read(branch, at)
        source, body = _of_text(gq, params, name)
        return source, {**body, "branch": line, "snapshot": moment(at)}


@checked_methods
class RemoteQueries:
    """The queries that a server keeps."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self) -> tuple[dict[str, Any], ...]:
        """Return what is known of each: name, parameters, whether it writes, description."""
        return tuple(self._calls.read("/queries")["queries"])


def _of_text(gq: QueryText, params: Params, name: str | None) -> tuple[SourceText, Params]:
    text, file = read_query(gq)
    if any(isinstance(value, ParamText) for value in params.values()):
        params = _as_declared(text, name, params)
    return SourceText(text, file), {"query": text, "name": name, "params": params or None}


def _result(answer: ServerAnswer) -> Result:
    table = read_arrow(answer)
    about = (table.schema.metadata or {}).get(decode.METADATA)
    if about is None:
        raise invalid_answer("the rows do not say of which query they are", answer.request_id)
    return decode.result(table, json.loads(about))


# -- parameters as texts -----------------------------------------------------------------------------
#
# `--param age=36` is read as the declared type says. Texts do for all types but truths and fractions; those
# are turned into what they mean, by the types that the query declares. A misfit is left to the server.


def _as_declared(text: str, name: str | None, params: Params) -> Params:
    queries = parse(text).file.queries
    chosen = [query for query in queries if name is None or query.name.text == name]
    if len(chosen) != 1:
        return _plain_texts(params)
    kinds = {param.name.text: PropertyType.of(param.type) for param in chosen[0].params}
    return {
        key: _typed(value, kinds.get(key)) if isinstance(value, ParamText) else value
        for key, value in params.items()
    }


def _plain_texts(params: Params) -> Params:
    return {name: str(value) if isinstance(value, ParamText) else value for name, value in params.items()}


def _typed(value: ParamText, kind: PropertyType | None) -> Any:
    if kind is None or kind.is_list:
        return str(value)
    if kind.scalar is Scalar.BOOL and value in ("true", "false"):
        return value == "true"
    if kind.scalar in FLOATS:
        try:
            number = json.loads(value)
        except ValueError:
            return str(value)
        return number if isinstance(number, int | float) else str(value)
    return str(value)
