"""Check: a pipeline against Spark and the schema of a graph, without running it.

    pipeline -> sources -> frames -> targets -> **verdict**

Room    pipeline.declared. Sources are opened, queries analysed, Python functions called with inputs that have
        no rows; nothing is read but what Spark needs to know columns, and nothing is written.
Gives   every problem at once, each at its place in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from omnigraph.base.errors import BranchNotFound, Conflict, InvalidRequest, NotFound
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.texts import endpoint_node
from omnigraph.language.diagnostics import Diagnostic, Reporter, Severity, in_order, render
from omnigraph.pipeline.declared.fit import check_columns, type_of
from omnigraph.pipeline.declared.frames import Frames, Unbuilt
from omnigraph.pipeline.declared.rules import BRANCH, NO_NODES, REPLACES, TWICE, UNUSED, PipelineError
from omnigraph.pipeline.declared.sources import read_sources
from omnigraph.pipeline.declared.spec import Pipeline, TargetSpec
from omnigraph.pipeline.session import own_session

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
        return tuple(one for one in self.diagnostics if one.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What a person should look at."""
        return tuple(one for one in self.diagnostics if one.severity is not Severity.ERROR)

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
            "diagnostics": [one.to_json() for one in self.diagnostics],
            "sources": [{"name": name, "columns": columns} for name, columns in self.sources.items()],
            "transforms": list(self.order),
            "targets": [
                {"type": one.type, "from": one.rows, "mode": one.mode} for one in self.pipeline.targets
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
        in_order(reporter.found),
        FrozenMap({n: frame.schema.simpleString() for n, frame in sources.items() if frame is not None}),
        frames.order,
    )


def refuse(pipeline: Pipeline, reporter: Reporter) -> None:
    """Raise what is wrong, if anything is."""
    errors = [one for one in reporter.found if one.severity is Severity.ERROR]
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
        with suppress(Unbuilt):
            frames.expectation(expectation)
    types = {} if catalog is None else _check_targets(frames, graph, pipeline, catalog, reporter)
    if not any(one.severity is Severity.ERROR for one in reporter.found):
        _advise(frames, pipeline, reporter)
    return types


def _can_make(frames: Frames, name: str) -> bool:
    try:
        frames.frame(name)
    except Unbuilt:
        return False
    return True


# -- branches and targets ----------------------------------------------------------------------------


def _catalog(graph: Graph, pipeline: Pipeline, reporter: Reporter) -> Catalog | None:
    """Return the schema that the rows will meet; the branch may have to be made first."""
    places = pipeline.places

    def tried(key: str, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except (NotFound, InvalidRequest, Conflict) as error:
            reporter.report(BRANCH, error.message, places.get(key) or places.get("branch"))
            return None

    then = pipeline.then
    if then is not None:
        tried("then", lambda: graph.store.snapshot(then.into))
    with suppress(NotFound, InvalidRequest):
        return graph.schema.catalog(pipeline.branch)
    tried("branch", lambda: graph.store.branches.check_free(pipeline.branch))
    return tried("from", lambda: graph.schema.catalog(pipeline.from_branch))


def _check_targets(
    frames: Frames, graph: Graph, pipeline: Pipeline, catalog: Catalog, reporter: Reporter
) -> dict[TargetSpec, TableType]:
    types: dict[TargetSpec, TableType] = {}
    for spec in pipeline.targets:
        declared = type_of(spec, catalog, reporter)
        if declared is None:
            continue
        other = next((one.type for one, known in types.items() if known.id == declared.id), None)
        if other is not None:
            reporter.report(TWICE, f"{spec.type!r} and {other!r} are the same type", spec.places["type"])
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
                spec.places["type"],
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
            reporter.report(UNUSED, f"nothing uses {spec.name!r}", spec.places[""])
    for target in replacing(frames, pipeline):
        reporter.report(
            REPLACES,
            f"with --since, {target.type} would be replaced by its new rows alone, so that is refused",
            target.places["mode"],
            "use mode merge, or run without --since",
        )


def replacing(frames: Frames, pipeline: Pipeline) -> list[TargetSpec]:
    """Return the targets that replace a type by rows of which a run may read only the new ones."""
    growing = {one.name for one in pipeline.watermarks}
    return [
        target
        for target in pipeline.targets
        if target.mode == "overwrite" and growing & {target.rows, *frames.behind(target.rows)}
    ]
