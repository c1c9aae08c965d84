"""Watermark: where the last run of a pipeline stopped, kept in the commit that it made.

Room    pipeline.declared. Rows and watermark are published together, so either both are there or neither:
        a run that failed leaves none, and one that succeeded is never repeated.
Rule    a run reads what is above the last watermark and not above the greatest one that it saw before it
        began: rows that arrive meanwhile are for the next run, whichever job of this one would see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

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
class Slice:
    """The rows of a source that one run reads."""

    frame: DataFrame
    rows: int
    since: str | None = None
    watermark: str | None = None  # of these rows; None without any


# -- in commits --------------------------------------------------------------------------------------


def labels(pipeline: Pipeline, slices: Mapping[str, Slice]) -> dict[str, str]:
    """Return what the commit of a run remembers; a source without new rows keeps its watermark."""
    kept = {name: one.watermark or one.since for name, one in slices.items()}
    found = {_prefix(pipeline) + name: text for name, text in sorted(kept.items()) if text is not None}
    return {"pipeline": pipeline.name, **found}


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
            found = _watermarks(pipeline, commit)
            if found and commit.id not in undone:
                return LastRun(state.head, commit.id, found)
    return LastRun(state.head)


def _state(store: GraphStore, pipeline: Pipeline) -> ManifestState:
    try:
        return store.snapshot(pipeline.branch).state
    except BranchNotFound:
        return store.snapshot(pipeline.from_branch).state


def _watermarks(pipeline: Pipeline, commit: CommitRecord) -> FrozenMap[str, str]:
    prefix = _prefix(pipeline)
    found = {key.removeprefix(prefix): text for key, text in commit.labels.items() if key.startswith(prefix)}
    return FrozenMap({name: text for name, text in found.items() if NAME.fullmatch(name)})


def _prefix(pipeline: Pipeline) -> str:
    return f"pipeline.{pipeline.name}.watermark."


def _newest_first(store: GraphStore, state: ManifestState) -> Iterator[CommitRecord]:
    """Yield the commits that led to a state, merged ones too while their branch lives, newest first."""
    lines = [_line(store, state)]
    heads = [next(lines[0])]
    seen: set[str] = set()
    while heads:
        place = max(range(len(heads)), key=lambda one: heads[one].id)
        commit = heads[place]
        following = next(lines[place], None)
        if following is None or commit.id in seen:  # from a commit seen before, another line goes on
            del lines[place], heads[place]
        else:
            heads[place] = following
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


def sliced(frame: DataFrame, spec: SourceSpec, since: str | None) -> Slice:
    """Count the rows of a source that are new, and close them off above; one pass over the source."""
    if spec.watermark is None:
        return Slice(frame, frame.count())
    column = f.col(quoted(spec.watermark))
    kind = frame.schema[spec.watermark].dataType

    def value(text: str) -> Column:
        return f.lit(text).cast(kind)

    new = frame if since is None else frame.where(column > value(since))
    told = new.agg(f.count(f.lit(1)).alias("rows"), f.max(column).cast("string").alias("last")).first()
    assert told is not None
    if told["last"] is None:
        return Slice(new, told["rows"], since)
    inside = column <= value(told["last"])
    kept = new.where(inside | column.isNull() if since is None else inside)
    return Slice(kept, told["rows"], since, told["last"])


def quoted(name: str) -> str:
    """Return the name of a column as Spark takes any.

    >>> quoted("a`b.c")
    '`a``b.c`'
    """
    return "`" + name.replace("`", "``") + "`"
