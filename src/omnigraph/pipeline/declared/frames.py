"""Frames: the rows of a pipeline by name, each made when it is first needed.

    pipeline -> sources -> **frames** -> targets -> load

Room    pipeline.declared. The order of transforms is that of need: Spark says which name a query lacks, and
        that one is made first. So nothing here reads SQL, and only what a query names is visible to it.
Given   the DataFrames of the sources; a session that nobody else has views in.
Gives   DataFrames, what each needs, and what is wrong, at its place in the file. Only Python functions run.
Rule    a text of the file is a query or is refused: inside a pair of parentheses Spark takes nothing else, so
        looking at a pipeline never drops, inserts or sets anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph.language.diagnostics import Reporter, Rule, Source, Span
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.declared.functions import BadFunction, Functions, call
from omnigraph.pipeline.declared.rules import CYCLE, PYTHON, SQL, TAKEN_NAME
from omnigraph.pipeline.declared.spec import ExpectationSpec, Pipeline, PythonSpec, SqlSpec, TransformSpec
from omnigraph.pipeline.declared.words import spark_words, unlogged
from omnigraph.pipeline.session import active

OPENING, CLOSING = "SELECT * FROM (\n", "\n)"
UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
QUOTED = re.compile(r"`((?:[^`]|``)+)`")


class Unbuilt(Exception):
    """There are no such rows; why is in the report."""


class Frames:
    """The rows of one pipeline, by name."""

    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        sources: Mapping[str, DataFrame | None],
        reporter: Reporter,
        *,
        with_rows: bool = True,
    ) -> None:
        self._session = session
        self._pipeline = pipeline
        self._reporter = reporter
        self._with_rows = with_rows
        self._specs = {one.name: one for one in pipeline.transforms}
        self._made: dict[str, DataFrame | None] = dict(sources)
        self._needs: dict[str, tuple[str, ...]] = dict.fromkeys(sources, ())
        self._making: list[str] = []
        self._functions = Functions(pipeline.folder)
        self._refuse_taken_names()

    @property
    def order(self) -> tuple[str, ...]:
        """The transforms in the order in which they were made."""
        return tuple(name for name in self._needs if name in self._specs)

    def frame(self, name: str) -> DataFrame:
        """Return the rows of a source or transform."""
        if name not in self._made:
            self._make(self._specs[name])
        found = self._made[name]
        if found is None:
            raise Unbuilt
        return found

    def expectation(self, spec: ExpectationSpec) -> DataFrame:
        """Return the rows that break an expectation."""
        found, needs = self._query(f"expectation {spec.name!r}", spec.sql, spec.places["sql"])
        self._needs[f"expectation {spec.name}"] = needs  # no name of rows has a blank in it
        return found

    def behind(self, name: str) -> frozenset[str]:
        """Return everything that rows are made of, by name."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = [one for one in self._needs.get(waiting.pop(), ()) if one not in found]
            found.update(new)
            waiting += new
        return frozenset(found)

    @property
    def used(self) -> frozenset[str]:
        """The rows that other rows or expectations are made of."""
        return frozenset(name for needs in self._needs.values() for name in needs)

    # -- making ------------------------------------------------------------------------------------

    def _make(self, spec: TransformSpec) -> None:
        if spec.name in self._making:
            ring = " -> ".join([*self._making[self._making.index(spec.name) :], spec.name])
            self._report(CYCLE, f"transforms need each other: {ring}", spec.places[""])
            raise Unbuilt
        self._making.append(spec.name)
        try:
            made = self._sql(spec) if isinstance(spec, SqlSpec) else self._python(spec)
        except Unbuilt:
            self._made[spec.name] = None
            raise
        finally:
            self._making.pop()
        self._made[spec.name], self._needs[spec.name] = made

    def _sql(self, spec: SqlSpec) -> tuple[DataFrame, tuple[str, ...]]:
        return self._query(f"transform {spec.name!r}", spec.sql, spec.places["sql"])

    def _python(self, spec: PythonSpec) -> tuple[DataFrame, tuple[str, ...]]:
        inputs = {name: self.frame(name) for name in spec.inputs}
        if not self._with_rows:
            inputs = {name: frame.limit(0) for name, frame in inputs.items()}
        try:
            with active(self._session), unlogged():
                return call(
                    self._functions.find(spec.module, spec.function), self._session, inputs
                ), spec.inputs
        except BadFunction as error:
            self._report(PYTHON, f"transform {spec.name!r}: {error}", spec.places["python"])
            raise Unbuilt from error

    def _query(self, what: str, sql: str, place: Span) -> tuple[DataFrame, tuple[str, ...]]:
        """Have Spark analyse a query, with the rows that it turns out to name, and nothing else."""
        text = OPENING + sql.rstrip().removesuffix(";") + CLOSING
        needs: dict[str, DataFrame] = {}
        while True:
            try:
                with self._visible(needs), unlogged():
                    found = self._session.sql(text)
                    found.schema  # noqa: B018 - behind Spark Connect it is analysed only now
                return found, tuple(needs)
            except PySparkException as error:
                missing = _missing(error)
                if missing is None or missing in needs or not self._is_declared(missing):
                    self._refuse(what, sql, place, error)
            needs[missing] = self.frame(missing)

    def _is_declared(self, name: str) -> bool:
        return name in self._made or name in self._specs

    @contextmanager
    def _visible(self, needs: Mapping[str, DataFrame]) -> Iterator[None]:
        """Let SQL see some rows for a moment: a query that is analysed holds on to what it found."""
        for name, frame in needs.items():
            frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            for name in needs:
                self._session.catalog.dropTempView(name)

    # -- what is wrong -----------------------------------------------------------------------------

    def _refuse_taken_names(self) -> None:
        """A table that Spark knows already would be read in the place of rows that are not yet made."""
        for spec in (*self._pipeline.sources, *self._pipeline.transforms):
            if self._session.catalog.tableExists(spec.name):
                self._report(TAKEN_NAME, f"Spark has a table {spec.name!r} of its own", spec.places[""])

    def _refuse(self, what: str, sql: str, place: Span, error: PySparkException) -> NoReturn:
        name = _missing(error)
        if name is not None:
            known = (*self._made, *self._specs)
            text, hint = f"there is no source or transform {name!r}", did_you_mean(name, known)
        else:
            text, hint = spark_words(error), None
        span = _within(self._reporter.source, place, sql, error) or place
        self._reporter.report(SQL, f"{what}: {text}", span, hint)
        raise Unbuilt from error

    def _report(self, rule: Rule, message: str, span: Span) -> None:
        self._reporter.report(rule, message, span)


def _missing(error: PySparkException) -> str | None:
    """Return the name of the table that a query lacks, if that is what it lacks."""
    if not isinstance(error, AnalysisException) or error.getCondition() != UNKNOWN_TABLE:
        return None
    said = QUOTED.fullmatch((error.getMessageParameters() or {}).get("relationName", ""))
    return None if said is None else said[1].replace("``", "`")


def _within(source: Source, place: Span, sql: str, error: PySparkException) -> Span | None:
    """Return where in the file the part of a query stands that Spark points at.

    YAML may fold and indent a text, so the part is looked for: the same occurrence of the same words.
    """
    for context in error.getQueryContext():
        if context.contextType().name != "SQL":
            continue
        start = context.startIndex() - len(OPENING)
        part = sql[max(start, 0) : context.stopIndex() - len(OPENING) + 1]
        if start < 0 or not part:
            continue
        at = place.start
        for _ in range(sql.count(part, 0, start + len(part))):
            found = source.text.find(part, at, place.end)
            if found < 0:
                return None
            at = found + 1
        return source.span(at - 1, at - 1 + len(part))
    return None
