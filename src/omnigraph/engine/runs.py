"""Runs: the methods of a graph that run a query, given as text or stored under a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.base.arguments import Positive, checked_methods
from omnigraph.base.times import At
from omnigraph.engine.mutate.mutate import Mutations
from omnigraph.engine.options import View
from omnigraph.engine.query import Queries, QueryText, parameters
from omnigraph.engine.stored import GraphQueries
from omnigraph.engine.write import Receipt
from omnigraph.execution.plan.explain import Explanation
from omnigraph.execution.result import Result
from omnigraph.storage.store import GraphStore


@checked_methods
class RunsQueries:
    """What a graph does with queries."""

    store: GraphStore
    view: View
    queries: GraphQueries
    _query: Queries
    _mutate: Mutations

    def query(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        memory_bytes: Positive | None = None,
        **named: Any,
    ) -> Result:
        """Run one read (`.gq` text, or the path of a file) on one snapshot: the head of a branch, or `at`.

        Parameters go in `params` or, where no option has their name, as keywords. A query that needs more
        memory than `memory_bytes` (by default, than the graph was opened with) ends with `LimitExceeded`.
        """
        branch, at = self.view.read(branch, at)
        return self._query.run(
            gq,
            parameters(params, named),
            query_name=query_name,
            branch=branch,
            at=at,
            memory_bytes=memory_bytes,
        )

    def explain(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        **named: Any,
    ) -> Explanation:
        """Describe how a read would run, without running it."""
        branch, at = self.view.read(branch, at)
        return self._query.explain(gq, parameters(params, named), query_name=query_name, branch=branch, at=at)

    def profile(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        **named: Any,
    ) -> Explanation:
        """Run a read and say what each step did: rows, time, requests, choices."""
        branch, at = self.view.read(branch, at)
        return self._query.explain(
            gq, parameters(params, named), query_name=query_name, branch=branch, at=at, profile=True
        )

    def mutate(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        dry_run: bool = False,
        **named: Any,
    ) -> Receipt:
        """Run one mutation (`.gq` text, or the path of a file) as one commit; parameters as of `query`."""
        options = self.view.write_options(
            self.store, self.view.write(branch), if_commit, idempotency_key, message, actor, dry_run=dry_run
        )
        return self._mutate.mutate(gq, parameters(params, named), query_name=query_name, options=options)

    def run(
        self,
        name: str,
        /,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        expect_mutation: bool | None = None,
        **named: Any,
    ) -> Result | Receipt:
        """Run a stored query by its name: a read gives its rows, a mutation its receipt.

        Stored are the queries of the folder that `connect` was given. With `expect_mutation` one of the
        other kind is refused.
        """
        stored, given = self.queries._called(name), parameters(params, named)
        state = self.view.named(branch, at)[1]
        stored.check(at=state, if_commit=if_commit, message=message, expect_mutation=expect_mutation)
        if not stored.mutation:
            return self.query(stored.text, given, query_name=name, branch=branch, at=at)
        return self.mutate(
            stored.text,
            given,
            query_name=name,
            branch=branch,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            message=message,
            actor=actor,
        )
