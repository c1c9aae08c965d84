"""Merge a branch into another, and revert a commit; conflicts are shown with the flags that decide them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.support.call import Call, GraphUri, IfCommit, Message, call_of
from omnigraph.surfaces.cli.support.output import graph_and_words, shown_time
from omnigraph.surfaces.cli.support.progress import Worker, WorkerFlag, spark_here, task_bar

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.merge.conflicts import Conflict, Origin, Resolve, Take
    from omnigraph.engine.merge.merge import MergeOutcome

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
    r"(?P<type>[^/]+)/(?P<id>.+?)(?::(?P<name>[^\W\d]\w*))?(?P<sign>:?=)(?P<decision>.*)", re.S
)
CONFLICTS = "conflicts"  # the outcome of a preview that would not merge
EXIT_CONFLICTS = 5


# -- commands ----------------------------------------------------------------------------------------


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
        if engine is Worker.SPARK:
            call.refuse_served("a merge by Spark", where)
        run = _on_spark(graph, progress) if engine is Worker.SPARK else graph.merge
        outcome = _show_conflicts(
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
                actor=call.actor(where),
            ),
        )
        if outcome.branch_delete_error is not None:
            call.output.note(f"warning: {source} was merged but not deleted: {outcome.branch_delete_error}")
        call.output.result({"uri": graph.uri, **outcome.to_json()}, *_merge_lines(outcome))
    if outcome.outcome.value == CONFLICTS:
        raise typer.Exit(EXIT_CONFLICTS)


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
        outcome = _show_conflicts(
            call,
            lambda: graph.revert(
                commit,
                branch=call.settings.branch,
                preview=only_look,
                resolutions=_resolutions(resolve, resolve_file),
                strategy=_take(strategy),
                message=message,
                actor=call.actor(where),
            ),
        )
        call.output.result({"uri": graph.uri, **outcome.to_json()}, *_revert_lines(outcome, commit))
    if outcome.outcome.value == CONFLICTS:
        raise typer.Exit(EXIT_CONFLICTS)


# -- decisions ---------------------------------------------------------------------------------------


def _resolutions(flags: list[str] | None, file: Path | None) -> list[Resolve | dict[str, Any]]:
    listed: list[Resolve | dict[str, Any]] = []
    if file is not None:
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"cannot read resolutions from {file}: {error}") from error
        if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
            raise InvalidRequest(f"{file} must hold a JSON list of objects")
        listed += document
    return listed + [_resolution(flag) for flag in flags or ()]


def _resolution(text: str) -> Resolve:
    """Read one decision.

    >>> _resolution("Person/Ada:age:=41").value
    41
    >>> _resolution("Person/Ada=theirs").take
    'theirs'
    """
    from omnigraph.engine.merge.conflicts import Resolve

    form = "Write TYPE/ID=ours, TYPE/ID:PROPERTY=theirs or TYPE/ID:PROPERTY:=JSON"
    parts = _RESOLUTION.fullmatch(text)
    if parts is None:
        raise InvalidRequest(f"--resolve {text!r} is not understood", remedy=form)
    if parts["sign"] == "=":
        return Resolve(parts["type"], parts["id"], parts["name"], take=_take(parts["decision"]))
    try:
        return Resolve(parts["type"], parts["id"], parts["name"], value=json.loads(parts["decision"]))
    except ValueError as error:
        raise InvalidRequest(f"--resolve {text!r}: {parts['decision']!r} is not JSON", remedy=form) from error


def _take(text: str | None) -> Take | None:
    match text:
        case None | "ours" | "theirs":
            return text
    raise InvalidRequest(f"{text!r} is neither 'ours' nor 'theirs'")


# -- outcomes ----------------------------------------------------------------------------------------


def _merge_lines(outcome: MergeOutcome) -> Iterator[str]:
    if outcome.outcome.value == CONFLICTS:
        yield from _conflict_lines(outcome.conflicts, outcome.total_conflicts)
        conflicts = counted(outcome.total_conflicts, "conflict")
        yield f"{outcome.source} would not merge into {outcome.target}: {conflicts}"
        return
    verb = "would merge" if outcome.preview else "merged"
    yield f"{verb} {outcome.source} into {outcome.target}: {outcome.outcome.value}"
    yield from _count_lines(outcome)
    if outcome.commit_id is not None:
        yield f"  commit {outcome.commit_id}"
    if outcome.branch_deleted:
        yield f"  deleted branch {outcome.source}"


def _revert_lines(outcome: MergeOutcome, commit: str) -> Iterator[str]:
    if outcome.outcome.value == CONFLICTS:
        yield from _conflict_lines(outcome.conflicts, outcome.total_conflicts)
        yield f"{commit} would not be reverted: {counted(outcome.total_conflicts, 'conflict')}"
        return
    yield f"{'would revert' if outcome.preview else 'reverted'} {commit} on {outcome.target}"
    yield from _count_lines(outcome)
    if outcome.commit_id is not None:
        yield f"  commit {outcome.commit_id}"


def _count_lines(outcome: MergeOutcome) -> Iterator[str]:
    width = max((len(counts.name) for counts in outcome.types), default=0)
    for counts in outcome.types:
        numbers = f"+{counts.inserted} ~{counts.updated} -{counts.deleted}"
        yield f"  {counts.kind} {counts.name:<{width}}  {numbers}"
    for unified in outcome.unified:
        name = _dotted(unified.type_name, unified.property_name)
        yield f"  {unified.kind} {name}: made on both branches, now one"
    for dropped in outcome.dropped:
        lost = counted(dropped.rows, "row" if dropped.property_name is None else "value")
        name = _dotted(dropped.type_name, dropped.property_name)
        yield f"  {dropped.kind} {name}: dropped, with {lost}"


def _dotted(type_name: str, property_name: str | None) -> str:
    return type_name if property_name is None else f"{type_name}.{property_name}"


# -- conflicts ---------------------------------------------------------------------------------------


def _show_conflicts(call: Call, act: Callable[[], MergeOutcome]) -> MergeOutcome:
    """Run; if there are conflicts, show them in full before the error says how many there are."""
    from omnigraph.engine.merge.conflicts import MergeConflict

    try:
        return act()
    except MergeConflict as error:
        for line in _conflict_lines(error.conflicts, error.total):
            call.output.note(line)
        error.remedy = "Nothing was changed; add a --resolve for each, or --strategy ours or theirs for all"
        raise


def _conflict_lines(conflicts: Iterable[Conflict], total: int) -> Iterator[str]:
    shown = 0
    for conflict in conflicts:
        shown += 1
        yield f"  {conflict.message}"
        for property_ in conflict.properties:
            sides = (("base", property_.base), ("ours", property_.ours), ("theirs", property_.theirs))
            yield f"      {property_.name}: " + ", ".join(f"{side} {_json(value)}" for side, value in sides)
        for side, origin in (("ours", conflict.ours), ("theirs", conflict.theirs)):
            if origin is not None:
                yield f"      {side} by {_origin(origin)}"
        yield from (f"      {line}" for line in _resolve_lines(conflict))
    if total > shown:
        yield f"  ... and {total - shown} more"


def _resolve_lines(conflict: Conflict) -> Iterator[str]:
    """Yield flags that decide a conflict, to be pasted into the next call."""
    if conflict.entity_id is None:
        return
    names: list[str | None] = [property_.name for property_ in conflict.properties]
    for name in names or [None]:
        choice = {"type": conflict.type_name, "id": conflict.entity_id, "property": name, "take": "theirs"}
        place = f"{conflict.type_name}/{conflict.entity_id}" + (f":{name}" if name else "")
        if _reads_as(f"{place}=theirs", choice):
            ours, theirs = (shlex.quote(f"{place}={side}") for side in ("ours", "theirs"))
            yield f"--resolve {ours}  or  --resolve {theirs}"
        else:  # the id has signs of the flag's own in it
            entry = {key: value for key, value in choice.items() if value is not None}
            yield f"in a --resolve-file: {_json(entry)}"


def _reads_as(text: str, choice: dict[str, str | None]) -> bool:
    try:
        resolution = _resolution(text)
    except InvalidRequest:
        return False
    return all(getattr(resolution, key) == value for key, value in choice.items())


def _origin(origin: Origin) -> str:
    return f"{origin.actor or '-'} at {shown_time(origin.authored_at_us)}, commit {origin.commit_id}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
