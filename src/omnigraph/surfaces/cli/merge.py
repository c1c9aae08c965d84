"""Merge commands: fold a branch into another, and undo a commit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.graph import Graph
from omnigraph.engine.merge.conflicts import TAKES, Conflict, MergeConflict, Origin, Resolve, Take
from omnigraph.engine.merge.merge import MergeOutcome, Outcome
from omnigraph.surfaces.cli.commit import shown_time
from omnigraph.surfaces.cli.support.call import Call, GraphUri, IfCommit, Message, call_of
from omnigraph.surfaces.cli.support.output import graph_and_words
from omnigraph.surfaces.cli.support.waiting import Worker, WorkerFlag, spark_here, task_bar

Source = Annotated[list[str], typer.Argument(metavar="[ADDR] SOURCE", help="The graph, and the branch.")]
CommitId = Annotated[list[str], typer.Argument(metavar="[ADDR] COMMIT", help="The graph, and the commit.")]
Into = Annotated[str | None, typer.Option("--into", metavar="BRANCH", help="The branch to merge into; main.")]
Preview = Annotated[
    bool, typer.Option("--preview", help="Say what would happen, conflicts included; write nothing.")
]
Resolution = Annotated[
    list[str] | None,
    typer.Option(
        "--resolve",
        metavar="TYPE/ID[:PROPERTY]=ours|theirs",
        help="Decide one conflict; or TYPE/ID:PROPERTY:=JSON for another value. Repeat it for more.",
    ),
]
ResolutionFile = Annotated[
    Path | None,
    typer.Option(
        "--resolve-file", metavar="FILE", help="Decisions as a JSON list: type, id, property, take or value."
    ),
]
Strategy = Annotated[
    str | None, typer.Option("--strategy", metavar="ours|theirs", help="Decide all conflicts that are left.")
]
_RESOLUTION = re.compile(
    r"(?P<type>[^/]+)/(?P<id>.+?)(?::(?P<name>[^\W\d]\w*))?(?P<sign>:?=)(?P<said>.*)", re.S
)


def merge(
    ctx: typer.Context,
    words: Source,
    graph_uri: GraphUri = None,
    into: Into = None,
    preview: Preview = False,
    resolve: Resolution = None,
    resolve_file: ResolutionFile = None,
    strategy: Strategy = None,
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete the merged branch afterwards.")
    ] = False,
    if_commit: IfCommit = None,
    message: Message = None,
    engine: WorkerFlag = Worker.LOCAL,
) -> None:
    """Fold one branch into another, three ways, as one commit. "Ours" is the branch merged into."""
    call = call_of(ctx)
    where, (source,) = graph_and_words(call.settings, words, graph_uri, "SOURCE")
    target = into or (call.settings.branch if call.settings.branch_given else "main")
    only_look = preview or call.settings.dry_run
    if not only_look:
        call.output.target("merge", where)
    with (
        call.connect(where) as graph,
        task_bar(call.output.watched if engine is Worker.SPARK else None, "merging") as progress,
    ):
        run = _on_spark(graph, progress) if engine is Worker.SPARK else graph.merge
        done = _told(
            call,
            lambda: run(
                source,
                target,
                preview=only_look,
                resolutions=_resolutions(resolve, resolve_file),
                strategy=_take(strategy),
                delete_branch=delete_branch,
                if_commit=if_commit,
                message=message,
                actor=call.settings.actor,
            ),
        )
        if done.branch_delete_error is not None:
            call.output.note(f"warning: {source} was merged but not deleted: {done.branch_delete_error}")
        call.output.result({"uri": graph.uri, **done.to_json()}, *_lines(done))
    if done.outcome is Outcome.CONFLICTS:
        raise typer.Exit(5)


def _on_spark(graph: Graph, progress: Callable[[int, int], None] | None) -> Callable[..., MergeOutcome]:
    spark = spark_here()
    from omnigraph.pipeline import merge as merge_on_spark

    return partial(merge_on_spark, spark, graph, progress=progress)


def revert(
    ctx: typer.Context,
    words: CommitId,
    graph_uri: GraphUri = None,
    preview: Preview = False,
    resolve: Resolution = None,
    resolve_file: ResolutionFile = None,
    strategy: Strategy = None,
    message: Message = None,
) -> None:
    """Undo one commit of a branch by a new one; what came after it stays, or is named as a conflict."""
    call = call_of(ctx)
    where, (commit,) = graph_and_words(call.settings, words, graph_uri, "COMMIT")
    only_look = preview or call.settings.dry_run
    if not only_look:
        call.output.target("revert", where)
    with call.connect(where) as graph:
        done = _told(
            call,
            lambda: graph.revert(
                commit,
                branch=call.settings.branch,
                preview=only_look,
                resolutions=_resolutions(resolve, resolve_file),
                strategy=_take(strategy),
                message=message,
                actor=call.settings.actor,
            ),
        )
        call.output.result({"uri": graph.uri, **done.to_json()}, *_reverted(done, commit))
    if done.outcome is Outcome.CONFLICTS:
        raise typer.Exit(5)


# -- what was decided --------------------------------------------------------------------------------


def _resolutions(given: list[str] | None, file: Path | None) -> list[Resolve | dict[str, Any]]:
    found: list[Resolve | dict[str, Any]] = []
    if file is not None:
        try:
            read = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"cannot read resolutions from {file}: {error}") from error
        if not isinstance(read, list) or not all(isinstance(one, dict) for one in read):
            raise InvalidRequest(f"{file} must hold a JSON list of objects")
        found += read
    return found + [_resolution(one) for one in given or ()]


def _resolution(text: str) -> Resolve:
    """Read one decision.

    >>> _resolution("Person/Ada:age:=41").value
    41
    >>> _resolution("Person/Ada=theirs").take
    'theirs'
    """
    form = "Write TYPE/ID=ours, TYPE/ID:PROPERTY=theirs or TYPE/ID:PROPERTY:=JSON"
    read = _RESOLUTION.fullmatch(text)
    if read is None:
        raise InvalidRequest(f"--resolve {text!r} is not understood", remedy=form)
    if read["sign"] == "=":
        return Resolve(read["type"], read["id"], read["name"], take=_take(read["said"]))
    try:
        return Resolve(read["type"], read["id"], read["name"], value=json.loads(read["said"]))
    except ValueError as error:
        raise InvalidRequest(f"--resolve {text!r}: {read['said']!r} is not JSON", remedy=form) from error


def _take(text: str | None) -> Take | None:
    if text is None:
        return None
    for one in TAKES:
        if one == text:
            return one
    raise InvalidRequest(f"{text!r} is neither 'ours' nor 'theirs'")


# -- what is said ------------------------------------------------------------------------------------


def _told(call: Call, act: Any) -> MergeOutcome:
    """Run; if there are conflicts, show them in full before the error says how many there are."""
    try:
        done: MergeOutcome = act()
    except MergeConflict as error:
        for line in _conflict_lines(error.conflicts, error.total):
            call.output.note(line)
        raise
    return done


def _lines(done: MergeOutcome) -> Iterator[str]:
    if done.outcome is Outcome.CONFLICTS:
        yield from _conflict_lines(done.conflicts, done.total_conflicts)
        yield f"{done.source} would not merge into {done.target}: {done.total_conflicts} conflicts"
        return
    said = "would merge" if done.preview else "merged"
    yield f"{said} {done.source} into {done.target}: {done.outcome.value}"
    yield from _counts(done)
    if done.commit_id is not None:
        yield f"  commit {done.commit_id}"
    if done.branch_deleted:
        yield f"  deleted branch {done.source}"


def _reverted(done: MergeOutcome, commit: str) -> Iterator[str]:
    if done.outcome is Outcome.CONFLICTS:
        yield from _conflict_lines(done.conflicts, done.total_conflicts)
        yield f"{commit} would not be reverted: {done.total_conflicts} conflicts"
        return
    yield f"{'would revert' if done.preview else 'reverted'} {commit} on {done.target}"
    yield from _counts(done)
    if done.commit_id is not None:
        yield f"  commit {done.commit_id}"


def _counts(done: MergeOutcome) -> Iterator[str]:
    width = max((len(one.name) for one in done.types), default=0)
    for one in done.types:
        yield f"  {one.kind} {one.name:<{width}}  +{one.inserted} ~{one.updated} -{one.deleted}"
    for unified in done.unified:
        name = _dotted(unified.type_name, unified.property_name)
        yield f"  {unified.kind} {name}: made on both branches, now one"
    for dropped in done.dropped:
        what = "rows" if dropped.property_name is None else "values"
        name = _dotted(dropped.type_name, dropped.property_name)
        yield f"  {dropped.kind} {name}: dropped, with {dropped.rows} {what}"


def _dotted(type_name: str, property_name: str | None) -> str:
    return type_name if property_name is None else f"{type_name}.{property_name}"


def _conflict_lines(conflicts: Iterable[Conflict], total: int) -> Iterator[str]:
    shown = 0
    for one in conflicts:
        shown += 1
        yield f"  {one.message}"
        for value in one.properties:
            sides = (("base", value.base), ("ours", value.ours), ("theirs", value.theirs))
            yield f"      {value.name}: " + ", ".join(f"{side} {_value(one)}" for side, one in sides)
        for side, origin in (("ours", one.ours), ("theirs", one.theirs)):
            if origin is not None:
                yield f"      {side} by {_origin(origin)}"
    if total > shown:
        yield f"  ... and {total - shown} more"


def _origin(origin: Origin) -> str:
    return f"{origin.actor or '-'} at {shown_time(origin.authored_at_us)}, commit {origin.commit_id}"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
