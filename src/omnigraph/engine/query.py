"""Query: `graph.query`, `graph.explain`, `graph.profile`.

From text and parameters to a result; one snapshot from the first look to the last row.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.cancellation import current
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import bind_params, compile_query
from omnigraph.catalog.query.statements import CheckedMutation, CheckedRead
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.resolve_at import check_existed, read_state
from omnigraph.execution.answer import Answerer
from omnigraph.execution.budget import MEMORY_BYTES, Budget
from omnigraph.execution.context import Caches, Context, Traversal
from omnigraph.execution.memory import Memory
from omnigraph.execution.plan.explain import Explanation, Recorder
from omnigraph.execution.plan.rules import plan
from omnigraph.execution.plan.steps import Plan
from omnigraph.execution.plan.strict import check_strict
from omnigraph.execution.result import Result
from omnigraph.execution.search.embedding import Embedder, Embeddings
from omnigraph.storage.cost import Cost, measured, process_totals
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

# -- query text ----------------------------------------------------------------------------------
#
# `.gq` given as text or as a path.
# Shared by reads and mutations.


QueryText = str | os.PathLike[str]


class NamedQuery(str):
    """Query text that messages call by a name of the caller's."""

    file: str

    def __new__(cls, text: str, file: str) -> NamedQuery:
        """Give text a name."""
        named = super().__new__(cls, text)
        named.file = file
        return named


def read_query(gq: QueryText) -> tuple[str, str]:
    """Return the text and the name that messages use for it.

    A string that ends in `.gq` and has no brace is a path: no query is spelt like that.
    """
    if isinstance(gq, NamedQuery):
        return str(gq), gq.file
    if isinstance(gq, str) and not (gq.rstrip().endswith(".gq") and "{" not in gq):
        return gq, "query.gq"
    path = Path(gq)
    try:
        return path.read_text(encoding="utf-8"), path.name
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{path.name} is not UTF-8 text: {error.reason} at byte {error.start}", remedy="Save it as UTF-8"
        ) from error
    except OSError as error:
        raise InvalidRequest(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="Check the path"
        ) from error


def parameters(params: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call, from the mapping and from keywords."""
    both = sorted(params.keys() & named) if params else []
    if both:
        raise InvalidRequest(f"parameter {both[0]!r} is given twice, in params and as a keyword")
    return {**(params or {}), **named}


# -- answers that are kept -------------------------------------------------------------------------------
#
# The same text with the same parameters on the same version has the same answer. Small ones are kept, for
# heads only: what a past state held may be dropped for good, and must not come back from memory.


ANSWER_BYTES = 8 << 20  # of all answers that are kept
LARGEST_ANSWER = 1 << 16  # bytes of one
ANSWER_OVERHEAD = 1 << 10  # bytes that a kept answer takes beside its values
PLAIN_VALUES = frozenset({str, int, bool, type(None)})  # parameters that are equal only if they are the same
PROBE_COST = Cost(requests=1, stages=1)
_TIME_OF_REQUEST = re.compile(r"\bnow\b")


def _request_key(
    gq: QueryText, params: Mapping[str, Any] | None, query_name: str | None
) -> tuple[Any, ...] | None:
    """Return what tells a request from others on the same version; None if that cannot be said."""
    if type(gq) is not str or "{" not in gq:  # a file may change
        return None
    if not params:
        return gq, query_name
    values = (*params.values(),)
    kinds = (*map(type, values),)  # True and 1 are equal, and not the same
    return (gq, query_name, *params, *kinds, *values) if PLAIN_VALUES.issuperset(kinds) else None


class _Answers:
    """Small answers by request and version."""

    def __init__(self) -> None:
        self._kept = BoundedCache[tuple[Any, ...], Result](ANSWER_BYTES, _answer_weight)

    def get(self, request: tuple[Any, ...], branch: str, state: ManifestState) -> Result | None:
        """Return an answer as a result of its own: callers may change the lists that it makes of its rows."""
        kept = self._kept.get((branch, state.line.incarnation, state.version, request))
        if kept is None:
            return None
        return Result(kept.table, kept.described, kept.query_name, kept.branch, kept.commit_id, PROBE_COST)

    def keep(self, request: tuple[Any, ...], state: ManifestState, answer: Result) -> None:
        """Keep an answer if it is small and does not depend on the time of the request."""
        table = answer.table
        if table.nbytes >= min(LARGEST_ANSWER, ANSWER_BYTES) or _TIME_OF_REQUEST.search(request[0]):
            return
        if table.get_total_buffer_size() > 2 * table.nbytes + ANSWER_OVERHEAD:
            table = table.take(pa.array(range(len(table))))  # slices would keep whole columns in memory
        self._kept.put(
            (answer.branch, state.line.incarnation, state.version, request), replace(answer, table=table)
        )


def _answer_weight(answer: Result) -> int:
    return int(answer.table.nbytes) + ANSWER_OVERHEAD


# -- graph.query ----------------------------------------------------------------------------------------


COMPILED = 512  # queries kept ready


@dataclass(frozen=True)
class QueryOptions:
    """How a query runs; no option changes a result."""

    rules: Set[str] | None = None  # rewrite rules to apply; None means all
    traversal: Traversal = "auto"
    memory_bytes: int | None = None  # None means the limit of the graph


@dataclass(frozen=True)
class _Prepared:
    """A read that is ready to run on its snapshot."""

    context: Context
    plan: Plan


class Queries:
    """Runs reads on one graph."""

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        memory_bytes: int = MEMORY_BYTES,
        embedder: Embedder | None = None,
        memory: Memory | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self._caches = Caches.within(memory_bytes, store.clock)
        self._memory = memory
        if memory is not None:
            memory.serves(self._caches)
        self._is_strict = strict
        self._embeddings = Embeddings(embedder)
        self._compiled = BoundedCache[tuple[str, str | None, str], CheckedRead](COMPILED)
        self._answers = _Answers()
        self._plans: dict[int, tuple[CheckedRead, tuple[str, int, Set[str] | None], Plan]] = {}
        self._lock = threading.Lock()

    def run(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str = "main",
        at: At | None = None,
        rules: Set[str] | None = None,
        traversal: Traversal = "auto",
        memory_bytes: int | None = None,
    ) -> Result:
        """Run one read, or give the answer that the same one had on the same version."""
        plain = at is None and rules is None and traversal == "auto" and memory_bytes is None
        request = _request_key(gq, params, query_name) if plain else None
        if request is not None:
            head = self._store.branches.known_head(branch)
            kept = None if head is None else self._answers.get(request, branch, head)
            if head is not None and kept is not None and self._store.branches.is_unchanged(head):
                return kept
        options = QueryOptions(rules, traversal, memory_bytes)

        def answer() -> Result:
            prepared = self._prepare(gq, params, query_name, branch, at, options)
            state = prepared.context.snapshot.state
            if request is None:
                return self._answer(prepared, None)
            kept = self._answers.get(request, branch, state)
            if kept is None:
                kept = self._answer(prepared, None)
                self._answers.keep(request, state, kept)
            return kept

        with measured() as meter:
            result = of_the_newest(answer)
        return replace(result, cost=meter.cost)

    def explain(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str = "main",
        at: At | None = None,
        profile: bool = False,
    ) -> Explanation:
        """Describe the plan of a read; with `profile` run it, and say what each step did."""

        def explanation() -> Explanation:
            prepared = self._prepare(gq, params, query_name, branch, at, QueryOptions())
            recorder = Recorder(prepared.plan, _row_counts(prepared.context.snapshot))
            if profile:
                self._profile(prepared, recorder)
            read = prepared.plan.read
            return Explanation(read.name, recorder.lines, prepared.context.snapshot.commit_id)

        with measured():
            return of_the_newest(explanation)

    def _profile(self, prepared: _Prepared, recorder: Recorder) -> None:
        prepared.context.note = recorder.note
        started, before = time.perf_counter(), process_totals().requests
        result = self._answer(prepared, recorder)
        last = recorder.tail[-1]
        spent = sum(line.seconds or 0 for line in recorder.steps)
        in_steps = sum(line.requests or 0 for line in recorder.steps)
        last.rows, last.seconds = len(result), time.perf_counter() - started - spent
        last.requests = process_totals().requests - before - in_steps

    def _prepare(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None,
        query_name: str | None,
        branch: str,
        at: At | None,
        options: QueryOptions,
    ) -> _Prepared:
        text, file = read_query(gq)
        snapshot, catalog = read_state(self._store, self._catalogs, branch, at)
        read = self._compile(text, file, query_name, catalog)
        for declared in read.operation.reads if at is not None else ():
            check_existed(snapshot, declared)
        context = Context(
            snapshot=snapshot,
            catalog=catalog,
            reads=self._store.reads,
            caches=self._caches,
            values=bind_params(read.parameters, params),
            now_ms=self._store.clock.now_us() // 1000,
            embeddings=self._embeddings,
            budget=Budget(
                options.memory_bytes or self._caches.limit, self._caches.make_room, current(), self._memory
            ),
            traversal=options.traversal,
        )
        return _Prepared(context, self._plan(read, snapshot, options.rules))

    def _answer(self, prepared: _Prepared, recorder: Recorder | None) -> Result:
        context, read = prepared.context, prepared.plan.read
        if self._is_strict:
            check_strict(prepared.plan, _row_counts(context.snapshot))
        tables = [declared.table_id for declared in read.operation.reads]
        try:
            with self._store.reading(context.snapshot.state, tables=tables):
                columns = Answerer(context, prepared.plan, recorder).run()
        finally:
            context.budget.close()
        table = pa.table(columns, names=[column.name for column in read.columns])
        return Result(table, read.columns, read.name, context.snapshot.branch, context.snapshot.commit_id)

    def _plan(self, read: CheckedRead, snapshot: PinnedSnapshot, rules: Set[str] | None) -> Plan:
        """Return the plan of a read on a snapshot; the last one of each read is kept."""
        state = snapshot.state
        key = (state.line.incarnation, state.version, rules)
        kept = self._plans.get(id(read))
        if kept is not None and kept[0] is read and kept[1] == key:
            return kept[2]
        query_plan = plan(read, _row_counts(snapshot), rules)
        with self._lock:
            if len(self._plans) >= COMPILED:
                self._plans.clear()
            self._plans[id(read)] = (read, key, query_plan)
        return query_plan

    def _compile(self, text: str, file: str, name: str | None, catalog: Catalog) -> CheckedRead:
        key = (text, name, catalog.identity)
        known = self._compiled.get(key)
        if known is not None:
            return known
        checked = compile_query(text, catalog, name, file=file)
        if isinstance(checked, CheckedMutation):
            raise InvalidRequest(
                f"query {checked.name!r} changes the graph", remedy="Run it with mutate, not query"
            )
        return self._compiled.put(key, checked)


def _row_counts(snapshot: PinnedSnapshot) -> dict[str, int]:
    return {table_id: pin.rows for table_id, pin in snapshot.state.pins.items()}
