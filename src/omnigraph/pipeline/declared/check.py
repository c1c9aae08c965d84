"""Check: a pipeline against Spark and the schema of a graph, without running it.

    pipeline -> sources -> frames -> targets -> **verdict**

Sources are opened, queries analysed, Python functions called with inputs that have no rows; nothing is read
but what Spark needs to know columns, and nothing is written. Columns are put through the code that loads rows
(engine.load), without any, so that a check and a load cannot disagree.

Gives   every problem at once, each at its place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BranchNotFound, ConflictError, GraphError, InvalidRequest, NotFound
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import END_NAMES, ENDPOINTS, ID, EdgeType, TableType
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.arrow import arrow_column, text_column
from omnigraph.engine.load.cells import ColumnMisfit
from omnigraph.engine.load.conform import LoadProblems, fixed_target
from omnigraph.engine.load.conform import target as property_target
from omnigraph.engine.load.sources.tables import Header, read_header
from omnigraph.engine.load.texts import arrow_endpoint, endpoint_node
from omnigraph.engine.validate.relation import Violation
from omnigraph.language.diagnostics import (
    Diagnostic,
    Reporter,
    Rule,
    Severity,
    Span,
    did_you_mean,
    in_order,
    render,
)
from omnigraph.pipeline.declared.frames import Frames, FrameUnavailable, read_sources
from omnigraph.pipeline.declared.spec import (
    BRANCH,
    COLUMN,
    COLUMN_TWICE,
    END_TYPE,
    ENDS,
    KEY,
    MISFIT,
    NO_NODES,
    PROPERTY,
    REPLACES,
    REQUIRED,
    TWICE,
    TYPE,
    UNUSED,
    Pipeline,
    PipelineError,
    TargetSpec,
)
from omnigraph.pipeline.session import own_session

ENTRY = "<columns>"
MAX_PROBLEMS = 1 << 20  # problems that are kept: no type has as many columns
BY_CODE = {"unknown_property": PROPERTY, "envelope": COLUMN_TWICE}


# == verdict =======================================================================================

T = TypeVar("T")


@dataclass(frozen=True)
class PipelineCheck:
    """What was found in a pipeline file."""

    pipeline: Pipeline
    diagnostics: tuple[Diagnostic, ...]
    sources: FrozenMap[str, str]  # name -> columns as Spark's DDL has them; those that can be read
    order: tuple[str, ...]  # of the transforms that can be made

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What stands in the way of a run."""
        return tuple(finding for finding in self.diagnostics if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What a person should look at."""
        return tuple(finding for finding in self.diagnostics if finding.severity is not Severity.ERROR)

    def render(self) -> str:
        """Return the findings as text, each with its line underlined."""
        return render(self.pipeline.source, self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "status": "error" if self.errors else "ok",
            "pipeline": self.pipeline.name,
            "file": self.pipeline.source.file,
            "branch": self.pipeline.branch,
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "diagnostics": [finding.to_json() for finding in self.diagnostics],
            "sources": [{"name": name, "columns": columns} for name, columns in self.sources.items()],
            "transforms": list(self.order),
            "targets": [
                {"type": target.type, "from": target.rows, "mode": target.mode}
                for target in self.pipeline.targets
            ],
        }


def check(spark: SparkSession, graph: Graph, pipeline: Pipeline) -> PipelineCheck:
    """Say what is wrong with a pipeline, or that it can run on a graph as it stands."""
    reporter = Reporter(pipeline.source)
    session = own_session(spark)
    sources = read_sources(session, pipeline, reporter)
    frames = Frames(session, pipeline, sources, reporter, with_rows=False)
    examine(frames, graph, pipeline, reporter)
    return PipelineCheck(
        pipeline,
        in_order(reporter.diagnostics),
        FrozenMap({n: frame.schema.simpleString() for n, frame in sources.items() if frame is not None}),
        frames.order,
    )


def refuse(pipeline: Pipeline, reporter: Reporter) -> None:
    """Raise what is wrong, if anything is."""
    errors = [finding for finding in reporter.diagnostics if finding.severity is Severity.ERROR]
    if errors:
        raise PipelineError(pipeline.source, errors)


def examine(
    frames: Frames, graph: Graph, pipeline: Pipeline, reporter: Reporter
) -> dict[TargetSpec, TableType]:
    """Make every transform and expectation, hold the targets against the schema, and return their types."""
    catalog = _catalog(graph, pipeline, reporter)
    for transform in pipeline.transforms:
        _can_make(frames, transform.name)
    for expectation in pipeline.expectations:
        with suppress(FrameUnavailable):
            frames.expectation(expectation)
    types = {} if catalog is None else _check_targets(frames, graph, pipeline, catalog, reporter)
    if not any(finding.severity is Severity.ERROR for finding in reporter.diagnostics):
        _advise(frames, pipeline, reporter)
    return types


def _can_make(frames: Frames, name: str) -> bool:
    try:
        frames.frame(name)
    except FrameUnavailable:
        return False
    return True


# -- branches and targets ----------------------------------------------------------------------------


def _catalog(graph: Graph, pipeline: Pipeline, reporter: Reporter) -> Catalog | None:
    """Return the schema that the rows will meet; the branch may have to be made first."""
    spans = pipeline.spans

    def attempt(key: str, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except (NotFound, InvalidRequest, ConflictError) as error:
            reporter.report(BRANCH, error.message, spans.get(key) or spans.get("branch"))
            return None

    then = pipeline.then
    if then is not None:
        attempt("then", lambda: graph.store.snapshot(then.into))
    with suppress(NotFound, InvalidRequest):
        return graph.schema.catalog(pipeline.branch)
    attempt("branch", lambda: graph.store.branches.check_free(pipeline.branch))
    return attempt("from", lambda: graph.schema.catalog(pipeline.from_branch))


def _check_targets(
    frames: Frames, graph: Graph, pipeline: Pipeline, catalog: Catalog, reporter: Reporter
) -> dict[TargetSpec, TableType]:
    types: dict[TargetSpec, TableType] = {}
    for spec in pipeline.targets:
        declared = type_of(spec, catalog, reporter)
        if declared is None:
            continue
        other = next(
            (spec_before.type for spec_before, type_before in types.items() if type_before.id == declared.id),
            None,
        )
        if other is not None:
            reporter.report(TWICE, f"{spec.type!r} and {other!r} are the same type", spec.spans["type"])
        types[spec] = declared
        if _can_make(frames, spec.rows):
            check_columns(spec, declared, frames.frame(spec.rows).schema, catalog, reporter)
    loaded = frozenset(declared.id for declared in types.values())
    for spec, declared in types.items():
        if isinstance(declared, EdgeType):
            _check_ends(spec, declared, graph, pipeline, catalog, reporter, loaded)
    return types


def _check_ends(
    spec: TargetSpec,
    edge: EdgeType,
    graph: Graph,
    pipeline: Pipeline,
    catalog: Catalog,
    reporter: Reporter,
    loaded: frozenset[str],
) -> None:
    """Warn of edges that cannot find their nodes."""
    for node in dict.fromkeys(endpoint_node(catalog, edge, end) for end in ("src", "dst")):
        if node.id not in loaded and _stored_rows(graph, pipeline, node.table_id) == 0:
            reporter.report(
                NO_NODES,
                f"{edge.name} edges need {node.name} nodes: the branch has none, and no target loads them",
                spec.spans["type"],
            )


def _stored_rows(graph: Graph, pipeline: Pipeline, table_id: str) -> int:
    try:
        snapshot = graph.store.snapshot(pipeline.branch)
    except BranchNotFound:
        snapshot = graph.store.snapshot(pipeline.from_branch)
    return snapshot.pin(table_id).rows


# -- advice ------------------------------------------------------------------------------------------


def _advise(frames: Frames, pipeline: Pipeline, reporter: Reporter) -> None:
    used = frames.used | {target.rows for target in pipeline.targets}
    for spec in (*pipeline.sources, *pipeline.transforms):
        if spec.name not in used:
            reporter.report(UNUSED, f"nothing uses {spec.name!r}", spec.spans[""])
    for target in replacing(frames, pipeline):
        reporter.report(
            REPLACES,
            f"with --since, {target.type} would be replaced by its new rows alone, so that is refused",
            target.spans["mode"],
            "use mode merge, or run without --since",
        )


def replacing(frames: Frames, pipeline: Pipeline) -> list[TargetSpec]:
    """Return the targets that replace a type by rows of which a run may read only the new ones."""
    growing = {source.name for source in pipeline.watermarks}
    return [
        target
        for target in pipeline.targets
        if target.mode == "overwrite" and growing & {target.rows, *frames.behind(target.rows)}
    ]


# == columns against properties ====================================================================


def type_of(spec: TargetSpec, catalog: Catalog, reporter: Reporter) -> TableType | None:
    """Return the type that a target names."""
    try:
        return catalog.named(spec.type)
    except GraphError as error:
        reporter.report(TYPE, error.message, spec.spans["type"], error.remedy)
        return None


def check_columns(
    spec: TargetSpec, declared: TableType, schema: StructType, catalog: Catalog, reporter: Reporter
) -> None:
    """Report every column that does not fit, and everything that has none."""
    known = _mapped(spec, schema, reporter)
    names = [known.get(name, name) for name in schema.names]
    problems = LoadProblems(MAX_PROBLEMS)
    header = read_header(names, declared, problems, ENTRY, 1)
    span_of = _span_of(spec, known)
    for violation in problems.violations:
        _report(spec, declared, violation, span_of, reporter)
    _check_types(spec, declared, schema, catalog, header, span_of, reporter)


def _mapped(spec: TargetSpec, schema: StructType, reporter: Reporter) -> Mapping[str, str]:
    """Return the mappings of columns that are there."""
    for column in spec.columns:
        if column not in schema.names:
            message = (
                f"the rows of {spec.rows!r} have no column {column!r}; they have {', '.join(schema.names)}"
            )
            hint = did_you_mean(column, schema.names)
            reporter.report(COLUMN, message, spec.column_spans[column], hint)
    return {column: name for column, name in spec.columns.items() if column in schema.names}


def _span_of(spec: TargetSpec, known: Mapping[str, str]) -> Callable[[str], Span]:
    """Say where the file speaks of a property: in a mapping, or else by naming the rows."""
    spans = {name: spec.column_spans[column] for column, name in known.items()}

    def span_of_property(name: str) -> Span:
        return spans.get(name, spec.spans["from"])

    return span_of_property


def _report(
    spec: TargetSpec,
    declared: TableType,
    violation: Violation,
    span_of: Callable[[str], Span],
    reporter: Reporter,
) -> None:
    name = violation.property or ""
    if violation.code != "required":
        reporter.report(BY_CODE[violation.code], violation.message, span_of(name))
        return
    rule, what = _needed(declared, name)
    reporter.report(
        rule,
        f"{declared.name} needs {name!r}, {what}, and the rows of {spec.rows!r} have no such column",
        spec.spans["from"],
        f"select one under that name, or map one: columns: {{COLUMN: {name}}}",
    )


def _needed(declared: TableType, name: str) -> tuple[Rule, str]:
    if isinstance(declared, EdgeType) and name in (END_NAMES[end] for end in ENDPOINTS):
        return ENDS, "the id of the node where an edge starts" if name == "from" else "of that where it ends"
    if name in (member.name for member in declared.key_members):
        return KEY, "which its key has"
    return REQUIRED, "which is required and has no default"


def _check_types(
    spec: TargetSpec,
    declared: TableType,
    schema: StructType,
    catalog: Catalog,
    header: Header,
    span_of: Callable[[str], Span],
    reporter: Reporter,
) -> None:
    ends = ENDPOINTS if isinstance(declared, EdgeType) else ()
    for name, position in header.indexes.items():
        if declared.find(name) is None and name != ID and name not in ends:
            continue  # reported as unknown
        try:
            _convert(name, schema[position], catalog, declared)
        except ColumnMisfit as misfit:
            rule = END_TYPE if name in ends else MISFIT
            input_name = END_NAMES[name] if name in ends else name
            reporter.report(
                rule, str(misfit), span_of(input_name), f"cast it: {_cast(spec, schema[position])}"
            )


def _convert(name: str, field: StructField, catalog: Catalog, declared: TableType) -> None:
    """Convert a column of the type without rows, as a load would one with rows."""
    try:
        values = pa.nulls(0, to_arrow_type(field.dataType, timezone="UTC"))
    except PySparkException:
        raise ColumnMisfit(
            f"column {field.name!r} is {field.dataType.simpleString()}, which no property can hold"
        ) from None
    member = declared.find(name)
    if member is not None:
        arrow_column(values, property_target(declared, member))
    elif isinstance(declared, EdgeType) and name != ID:
        goal = fixed_target(declared, END_NAMES[name])
        arrow_endpoint(values, goal, endpoint_node(catalog, declared, name))
    else:
        text_column(values, fixed_target(declared, name))


def _cast(spec: TargetSpec, field: StructField) -> str:
    return f"select cast({field.name} as ...) from {spec.rows}"
