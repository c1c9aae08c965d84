"""Frames: the rows of a pipeline by name, each made when it is first needed.

    pipeline -> **sources -> transforms** -> targets -> load

The order of transforms is that of need: Spark says which name a query lacks, and that one is made first. So
nothing here reads SQL, and only what a query names is visible to it.

Given   a session that nobody else has views in.
Gives   DataFrames, what each needs, and what is wrong, at its place in the file. Opening a source looks at
        headers and footers, or at what Spark needs to guess a schema. Only Python functions run.
Rule    a text of the file is a query or is refused: inside a pair of parentheses Spark takes nothing else, so
        looking at a pipeline never drops, inserts or sets anything.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from omnigraph.base.ids import new_id
from omnigraph.language.diagnostics import Reporter, Rule, SourceText, Span, did_you_mean
from omnigraph.pipeline.bulk.load_task import cause_of
from omnigraph.pipeline.declared.spec import (
    CYCLE,
    PYTHON,
    SOURCE,
    SQL,
    TAKEN_NAME,
    WATERMARK,
    ExpectationSpec,
    Pipeline,
    PythonSpec,
    SourceSpec,
    SqlSpec,
    TransformSpec,
)
from omnigraph.pipeline.options import ADDRESS, literal_path
from omnigraph.pipeline.reading.source import OmnigraphSource, register
from omnigraph.pipeline.session import active

# Values that have one order and one text. Floats have not: NaN would be the last watermark for good.
ORDERED = (IntegralType, DecimalType, StringType, DateType, TimestampType, TimestampNTZType)
GRAPH_FORMAT = OmnigraphSource.name()
SPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
OPENING, CLOSING = "SELECT * FROM (\n", "\n)"
UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
QUOTED = re.compile(r"`((?:[^`]|``)+)`")
Transform = Callable[..., Any]


# == sources =======================================================================================


def read_sources(
    session: SparkSession, pipeline: Pipeline, reporter: Reporter
) -> dict[str, DataFrame | None]:
    """Return the sources of a pipeline."""
    return {spec.name: _read(session, pipeline, spec, reporter) for spec in pipeline.sources}


def _read(
    session: SparkSession, pipeline: Pipeline, spec: SourceSpec, reporter: Reporter
) -> DataFrame | None:
    if spec.format == GRAPH_FORMAT:
        register(session)
    paths = [_path(pipeline, spec, path) for path in spec.paths]
    try:
        with unlogged():
            reader = session.read.format(spec.format).options(**spec.options)
            if spec.schema is not None:
                reader = reader.schema(spec.schema)
            frame = reader.load(paths if len(paths) > 1 else paths[0]) if paths else reader.load()
            frame.schema  # noqa: B018 - behind Spark Connect nothing was looked at yet
    except Exception as error:  # noqa: BLE001 - readers are plugins: whatever one raises is about its source
        problem = spark_words(error)
        span = spec.spans.get("path", spec.spans[""])
        reporter.report(SOURCE, f"source {spec.name!r} cannot be read: {problem}", span)
        return None
    _check_watermark(spec, frame, reporter)
    return frame


def _path(pipeline: Pipeline, spec: SourceSpec, path: str) -> str:
    """Return a path for Spark: what looks like a pattern in the name of the folder is none."""
    if spec.format == GRAPH_FORMAT or ADDRESS.match(path) or path.startswith("/"):
        return pipeline.address(path)
    return f"{literal_path(str(pipeline.folder))}/{path}"


def _check_watermark(spec: SourceSpec, frame: DataFrame, reporter: Reporter) -> None:
    if spec.watermark is None:
        return
    if spec.watermark not in frame.columns:
        message = f"source {spec.name!r} has no column {spec.watermark!r}; it has {', '.join(frame.columns)}"
        hint = did_you_mean(spec.watermark, frame.columns)
        reporter.report(WATERMARK, message, spec.spans["watermark"], hint)
    elif not isinstance(frame.schema[spec.watermark].dataType, ORDERED):
        kind = frame.schema[spec.watermark].dataType.simpleString()
        message = f"column {spec.watermark!r} of source {spec.name!r} is {kind}"
        hint = "a watermark is an integer, a decimal, a text, a day or a time"
        reporter.report(WATERMARK, message, spec.spans["watermark"], hint)


# == errors of Spark ===============================================================================


def spark_words(error: Exception) -> str:
    """Return what an error says, without its code, plan and trace."""
    if not isinstance(error, PySparkException):
        cause = getattr(error, "java_exception", None)  # what Java raised and Spark has no words for
        return (str(error) if cause is None else str(cause.toString())).partition("\n")[0]
    message = error.getMessage() or str(error)
    if "Traceback" in message:
        return cause_of(error)
    line = message.removeprefix(f"[{error.getCondition()}]").strip().partition("\n")[0]
    return SQL_STATE.sub("", line)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging what it raises in this thread."""
    thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [
        PySparkLogger.getLogger(name) for name in SPARK_LOGGERS
    ]  # a plain logger would not take its calls
    for logger in loggers:
        logger.addFilter(passes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(passes)


# == Python transforms =============================================================================


class BadTransform(Exception):
    """There is no such function, or it does not do what a transform does; the text says why."""


class TransformModules:
    """The functions of the modules in one folder; each module runs once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ModuleType] = {}

    def find(self, module: str, name: str) -> Transform:
        """Return a function."""
        if module not in self._modules:
            self._modules[module] = self._run(module)
        members = vars(self._modules[module])
        function = members.get(name)
        if not callable(function):
            hint = did_you_mean(name, (member for member in members if callable(members[member])))
            raise BadTransform(f"module {module!r} has no function {name!r}" + (f"; {hint}" if hint else ""))
        return function  # type: ignore[no-any-return]

    def _run(self, module: str) -> ModuleType:
        file = self._folder.joinpath(*module.split(".")).with_suffix(".py")
        loaded = ModuleType(f"_omnigraph_{new_id()}_{file.stem}")
        loaded.__file__ = str(file)
        try:
            code = compile(file.read_bytes(), str(file), "exec")
        except OSError as error:
            raise BadTransform(f"there is no file {str(file)!r}: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            raise BadTransform(f"{str(file)!r} is not Python: {error}") from error
        sys.modules[loaded.__name__] = loaded  # while it runs: dataclasses look their module up
        try:
            exec(code, vars(loaded))
        except Exception as error:
            raise BadTransform(f"{str(file)!r} failed: {type(error).__name__}: {error}") from error
        finally:
            del sys.modules[loaded.__name__]
        return loaded


def call(function: Transform, session: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Return what a transform makes of its inputs, which it is given by their names."""
    try:
        frame = function(session, **inputs)
        if isinstance(frame, DataFrame):
            frame.schema  # noqa: B018 - what Spark refuses only now is the fault of this transform
    except Exception as error:
        raise BadTransform(f"it raised {type(error).__name__}: {spark_words(error)}") from error
    if not isinstance(frame, DataFrame):
        raise BadTransform(f"it returned {type(frame).__name__}, not a DataFrame")
    return frame


# == rows by name ==================================================================================


class FrameUnavailable(Exception):
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
        self._specs = {spec.name: spec for spec in pipeline.transforms}
        self._made: dict[str, DataFrame | None] = dict(sources)
        self._needs: dict[str, tuple[str, ...]] = dict.fromkeys(sources, ())
        self._making: list[str] = []
        self._functions = TransformModules(pipeline.folder)
        self._refuse_taken_names()

    @property
    def order(self) -> tuple[str, ...]:
        """The transforms in the order in which they were made."""
        return tuple(name for name in self._needs if name in self._specs)

    def frame(self, name: str) -> DataFrame:
        """Return the rows of a source or transform."""
        if name not in self._made:
            self._make(self._specs[name])
        frame = self._made[name]
        if frame is None:
            raise FrameUnavailable
        return frame

    def expectation(self, spec: ExpectationSpec) -> DataFrame:
        """Return the rows that break an expectation."""
        frame, needs = self._query(f"expectation {spec.name!r}", spec.sql, spec.spans["sql"])
        self._needs[f"expectation {spec.name}"] = needs  # no name of rows has a blank in it
        return frame

    def behind(self, name: str) -> frozenset[str]:
        """Return everything that rows are made of, by name."""
        behind: set[str] = set()
        waiting = [name]
        while waiting:
            new = [need for need in self._needs.get(waiting.pop(), ()) if need not in behind]
            behind.update(new)
            waiting += new
        return frozenset(behind)

    @property
    def used(self) -> frozenset[str]:
        """The rows that other rows or expectations are made of."""
        return frozenset(name for needs in self._needs.values() for name in needs)

    # -- making ------------------------------------------------------------------------------------

    def _make(self, spec: TransformSpec) -> None:
        if spec.name in self._making:
            ring = " -> ".join([*self._making[self._making.index(spec.name) :], spec.name])
            self._report(CYCLE, f"transforms need each other: {ring}", spec.spans[""])
            raise FrameUnavailable
        self._making.append(spec.name)
        try:
            frame_and_needs = self._sql(spec) if isinstance(spec, SqlSpec) else self._python(spec)
        except FrameUnavailable:
            self._made[spec.name] = None
            raise
        finally:
            self._making.pop()
        self._made[spec.name], self._needs[spec.name] = frame_and_needs

    def _sql(self, spec: SqlSpec) -> tuple[DataFrame, tuple[str, ...]]:
        return self._query(f"transform {spec.name!r}", spec.sql, spec.spans["sql"])

    def _python(self, spec: PythonSpec) -> tuple[DataFrame, tuple[str, ...]]:
        inputs = {name: self.frame(name) for name in spec.inputs}
        if not self._with_rows:
            inputs = {name: frame.limit(0) for name, frame in inputs.items()}
        try:
            with active(self._session), unlogged():
                return call(
                    self._functions.find(spec.module, spec.function), self._session, inputs
                ), spec.inputs
        except BadTransform as error:
            self._report(PYTHON, f"transform {spec.name!r}: {error}", spec.spans["python"])
            raise FrameUnavailable from error

    def _query(self, what: str, sql: str, span: Span) -> tuple[DataFrame, tuple[str, ...]]:
        """Have Spark analyse a query, with the rows that it turns out to name, and nothing else."""
        text = OPENING + sql.rstrip().removesuffix(";") + CLOSING
        needs: dict[str, DataFrame] = {}
        while True:
            try:
                with self._visible(needs), unlogged():
                    frame = self._session.sql(text)
                    frame.schema  # noqa: B018 - behind Spark Connect it is analysed only now
                return frame, tuple(needs)
            except PySparkException as error:
                missing = _missing(error)
                if missing is None or missing in needs or not self._is_declared(missing):
                    self._refuse(what, sql, span, error)
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
                self._report(TAKEN_NAME, f"Spark has a table {spec.name!r} of its own", spec.spans[""])

    def _refuse(self, what: str, sql: str, place: Span, error: PySparkException) -> NoReturn:
        name = _missing(error)
        if name is not None:
            known = (*self._made, *self._specs)
            text, hint = f"there is no source or transform {name!r}", did_you_mean(name, known)
        else:
            text, hint = spark_words(error), None
        span = _within(self._reporter.source, place, sql, error) or place
        self._reporter.report(SQL, f"{what}: {text}", span, hint)
        raise FrameUnavailable from error

    def _report(self, rule: Rule, message: str, span: Span) -> None:
        self._reporter.report(rule, message, span)


def _missing(error: PySparkException) -> str | None:
    """Return the name of the table that a query lacks, if that is what it lacks."""
    if not isinstance(error, AnalysisException) or error.getCondition() != UNKNOWN_TABLE:
        return None
    quoted_name = QUOTED.fullmatch((error.getMessageParameters() or {}).get("relationName", ""))
    return None if quoted_name is None else quoted_name[1].replace("``", "`")


def _within(source: SourceText, query_span: Span, sql: str, error: PySparkException) -> Span | None:
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
        at = query_span.start
        for _ in range(sql.count(part, 0, start + len(part))):
            position = source.text.find(part, at, query_span.end)
            if position < 0:
                return None
            at = position + 1
        return source.span(at - 1, at - 1 + len(part))
    return None
