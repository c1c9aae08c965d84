"""Watermark: where the last run of a pipeline stopped, kept in the commit that it made.

Rows and watermark are published together, so either both are there or neither: a run that failed leaves none,
and one that succeeded is never repeated.

Rule    a run reads what is above the last watermark and not above the greatest one that it saw before it
        began: rows that arrive meanwhile are for the next run, whichever job of this one would see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BranchNotFound, InvalidRequest, NotFound
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.declared.spec import NAME, Pipeline, SourceSpec
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitRecord, ManifestState
from omnigraph.storage.store import GraphStore

LOOKED_AT = 1000  # commits back, before a run is asked to start afresh
PAGE = 16
REVERTS = "reverts"


@dataclass(frozen=True, slots=True)
class LastRun:
    """Where a branch stands, and what the newest run of a pipeline on it left there."""

    head: str
    commit_id: str | None = None
    watermarks: Mapping[str, str] = FrozenMap()  # by source, as text


@dataclass(frozen=True)
class SourceSlice:
    """The rows of a source that one run reads."""

    frame: DataFrame
    rows: int
    since: str | None = None
    watermark: str | None = None  # of these rows; None without any


# -- in commits --------------------------------------------------------------------------------------


def labels(pipeline: Pipeline, slices: Mapping[str, SourceSlice]) -> dict[str, str]:
    """Return what the commit of a run remembers; a source without new rows keeps its watermark."""
    watermarks = {name: source_slice.watermark or source_slice.since for name, source_slice in slices.items()}
    texts = {_prefix(pipeline) + name: text for name, text in sorted(watermarks.items()) if text is not None}
    return {"pipeline": pipeline.name, **texts}


def last_run(graph: Graph, pipeline: Pipeline) -> LastRun:
    """Return what the newest run left on the branch, or on the one that the branch will be made from."""
    with measured():
        state = _state(graph.store, pipeline)
        undone: set[str] = set()
        for number, commit in enumerate(_newest_first(graph.store, state)):
            if number == LOOKED_AT:
                raise InvalidRequest(
                    f"none of the last {LOOKED_AT} commits of {pipeline.branch!r} is a run of "
                    f"{pipeline.name!r}",
                    remedy="Run without --since, which reads everything and notes how far it came",
                )
            undone |= {commit.labels[REVERTS]} if REVERTS in commit.labels else set()
            watermarks = _watermarks(pipeline, commit)
            if watermarks and commit.id not in undone:
                return LastRun(state.head, commit.id, watermarks)
    return LastRun(state.head)


def _state(store: GraphStore, pipeline: Pipeline) -> ManifestState:
    try:
        return store.snapshot(pipeline.branch).state
    except BranchNotFound:
        return store.snapshot(pipeline.from_branch).state


def _watermarks(pipeline: Pipeline, commit: CommitRecord) -> FrozenMap[str, str]:
    prefix = _prefix(pipeline)
    texts = {key.removeprefix(prefix): text for key, text in commit.labels.items() if key.startswith(prefix)}
    return FrozenMap({name: text for name, text in texts.items() if NAME.fullmatch(name)})


def _prefix(pipeline: Pipeline) -> str:
    return f"pipeline.{pipeline.name}.watermark."


def _newest_first(store: GraphStore, state: ManifestState) -> Iterator[CommitRecord]:
    """Yield the commits that led to a state, merged ones too while their branch lives, newest first."""
    lines = [_line(store, state)]
    heads = [next(lines[0])]
    seen: set[str] = set()
    while heads:
        newest = max(range(len(heads)), key=lambda position: heads[position].id)
        commit = heads[newest]
        following = next(lines[newest], None)
        if following is None or commit.id in seen:  # from a commit seen before, another line goes on
            del lines[newest], heads[newest]
        else:
            heads[newest] = following
        if commit.id in seen:
            continue
        seen.add(commit.id)
        yield commit
        merged = None if commit.merged_parent is None else _find(store, commit.merged_parent)
        if merged is not None:
            lines.append(_line(store, merged))
            heads.append(next(lines[-1]))


def _line(store: GraphStore, state: ManifestState) -> Iterator[CommitRecord]:
    yield state.commit  # known already: usually it is the one looked for
    before: str | None = state.head
    while before is not None:
        page = store.history.page(state, limit=PAGE, before=before)
        yield from page
        before = page.next


def _find(store: GraphStore, commit_id: str) -> ManifestState | None:
    try:
        return store.history.get(commit_id)[1]
    except NotFound:
        return None


# -- in rows -----------------------------------------------------------------------------------------


def slice_source(frame: DataFrame, spec: SourceSpec, since: str | None) -> SourceSlice:
    """Count the rows of a source that are new, and close them off above; one pass over the source."""
    if spec.watermark is None:
        return SourceSlice(frame, frame.count())
    column = f.col(quoted(spec.watermark))
    kind = frame.schema[spec.watermark].dataType

    def value(text: str) -> Column:
        return f.lit(text).cast(kind)

    new = frame if since is None else frame.where(column > value(since))
    totals = new.agg(f.count(f.lit(1)).alias("rows"), f.max(column).cast("string").alias("last")).first()
    assert totals is not None
    if totals["last"] is None:
        return SourceSlice(new, totals["rows"], since)
    inside = column <= value(totals["last"])
    closed = new.where(inside | column.isNull() if since is None else inside)
    return SourceSlice(closed, totals["rows"], since, totals["last"])


def quoted(name: str) -> str:
    """Return the name of a column as Spark takes any.

    >>> quoted("a`b.c")
    '`a``b.c`'
    """
    return "`" + name.replace("`", "``") + "`"
