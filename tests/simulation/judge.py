"""The judge: whether what each operation was told is true, and whether the graph is whole at the end.

Room    tests.simulation. An error is allowed only where the truth has a reason for it between the call and
        the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph import Graph
from omnigraph.base import errors
from omnigraph.engine.merge.conflicts import MergeConflict, SchemaConflict
from omnigraph.storage.manifest.records import CommitKind
from tests.simulation.operations import (
    Cleanup,
    Drop,
    Fork,
    Increment,
    Merge,
    Operation,
    Optimize,
    Read,
    ReadPast,
    Refused,
    Rename,
    Renew,
    Revert,
    RowWrite,
    Seen,
    Tag,
    Untag,
    Widen,
    parts_of,
    read_people,
)
from tests.simulation.truth import Rows, Truth, Violation, merged, reverted


@dataclass
class Call:
    """One operation: when it was called, when it was answered, and how."""

    operation: Operation
    start: int
    end: int | None = None  # None: its actor was killed
    answer: Any = None
    error: Exception | None = None
    lifetimes: dict[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """How it ended."""
        return "killed" if self.end is None else type(self.error).__name__ if self.error else "ok"

    def __str__(self) -> str:
        return f"{self.operation}: {self.outcome}"


# -- one call ----------------------------------------------------------------------------------------


def judge(call: Call, truth: Truth) -> None:
    """Raise if a call was told something that is not true."""
    landed = truth.by_operation.get(call.operation.name, [])
    if len(landed) > 1:
        raise Violation(f"{call} landed {len(landed)} times")
    for commit in landed:
        lifetime = call.lifetimes.get(commit.record.branch)
        if lifetime is not None and lifetime != commit.record.incarnation:
            raise Violation(f"{call} landed on another lifetime of {commit.record.branch!r}")
    _judge_names(call, truth)
    if call.end is None:
        return
    if call.error is not None:
        if landed:
            raise Violation(f"{call} landed, and was told {call.error!r}") from call.error
        reason = ALLOWED.get(type(call.error))
        if reason is None or not reason(call, truth):
            raise Violation(f"{call} without a reason: {call.error!r}") from call.error
        return
    _judge_answer(call, truth, landed[0].record.id if landed else None)


def _judge_names(call: Call, truth: Truth) -> None:
    """What was acknowledged was done to the names, once, and what was refused was not."""
    wanted, did = _naming(call.operation), truth.named.get(call.operation.name, [])
    deeds = [one.what for _, one in did]
    if call.outcome == "ok" and deeds != wanted and not _was_helped(call, truth, wanted):
        raise Violation(f"{call}, and of {wanted} it did {deeds}")
    if deeds != wanted[: len(deeds)]:
        raise Violation(f"{call} did {deeds}, which is not its business")
    if call.error is not None and deeds == wanted != [] and not _may_deny(call, truth):
        raise Violation(f"{call} did {deeds}, and was told {call.error!r}") from call.error
    if call.end is None:
        return
    operation = call.operation
    for _, one in did:
        if one.what.startswith("made "):
            assert isinstance(operation, Fork | Renew)
            origin, first = operation.source, truth.lines[one.of].heads[0][1]
            if first not in {head for _, head in _heads(call, truth, origin)}:
                raise Violation(f"{call} began at {first}, which was no head of {origin!r} meanwhile")
        if one.what.startswith("tagged "):
            assert isinstance(operation, Tag)
            if one.of not in {head for _, head in _heads(call, truth, operation.branch)}:
                raise Violation(f"{call} names {one.of}, which was no head of {operation.branch!r} meanwhile")


def _was_helped(call: Call, truth: Truth, wanted: list[str]) -> bool:
    """Say whether somebody did the same meanwhile: of two who rename one branch alike at once, the second
    finds the branch that it began with under the name that it wants, and is told that this is done.
    """
    if not isinstance(call.operation, Rename) or call.end is None:
        return False
    did = (deed for deeds in truth.named.values() for deed in deeds)
    return any(call.start <= step <= call.end and one.what in wanted for step, one in did)


def _may_deny(call: Call, truth: Truth) -> bool:
    """Say whether a call whose last step was done may answer with an error: it does not know, or somebody
    undid that before it had read back what became of it, and then it lost a race.
    """
    step, last = truth.named[call.operation.name][-1]
    assert call.end is not None
    return isinstance(call.error, errors.OutcomeUnknown) or any(
        not last.holds(names) for names in truth.names_between(step + 1, call.end)
    )


def _naming(operation: Operation) -> list[str]:
    """Return what an operation does to names, in this order."""
    match operation:
        case Fork():
            return [f"made {operation.new}"]
        case Drop():
            return [f"deleted {operation.branch}"]
        case Renew():
            return [f"deleted {operation.branch}", f"made {operation.new}"]
        case Rename():
            return [f"renamed {operation.branch} to {operation.new}"]
        case Tag():
            return [f"tagged {operation.tag}"]
        case Untag():
            return [f"untagged {operation.tag}"]
    return []


def _judge_answer(call: Call, truth: Truth, landed: str | None) -> None:
    operation, answer = call.operation, call.answer
    match operation:
        case Read():
            _judge_read(call, truth, {head for _, head in _heads(call, truth, operation.branch)})
        case ReadPast():
            _judge_read(call, truth, None)
        case Fork() | Drop() | Renew() | Rename() | Tag() | Untag():
            pass  # by what became of the names
        case Optimize():
            wrong = [(one.type, one.error) for one in answer.types if one.error]
            if wrong:
                raise Violation(f"{call} had trouble with {wrong}")
            if answer.commit_id != landed:
                raise Violation(f"{call} was told {answer.commit_id}, and {landed} landed")
        case Cleanup():
            if not answer.ok:
                raise Violation(f"{call}: {[part for part in answer.parts if part.error]}")
        case _:
            told = None if answer is None or answer.commit is None else answer.commit.id
            if told != landed:
                raise Violation(f"{call} was told {told}, and {landed} landed")
            if told is None and not _may_be_nothing(call, truth):
                raise Violation(f"{call} was told that there is nothing to do")


def _judge_read(call: Call, truth: Truth, heads: set[str] | None) -> None:
    seen: Seen = call.answer
    if heads is not None and seen.commit_id not in heads:
        raise Violation(f"{call} read {seen.commit_id}, which was no head meanwhile")
    expected = parts_of(truth.commits[seen.commit_id].image)
    for part, found in seen.part.items():
        if found != expected[part]:
            raise Violation(f"{call} read {found} at {seen.commit_id}, where {expected[part]} is")


def _heads(call: Call, truth: Truth, branch: str) -> Iterator[tuple[str, str]]:
    assert call.end is not None
    for incarnation, heads in truth.heads_between(branch, call.start, call.end).items():
        yield from ((incarnation, head) for head in heads)


def _may_be_nothing(call: Call, truth: Truth) -> bool:
    """Say whether an operation had nothing to do on some head that its branch had meanwhile."""
    operation = call.operation
    if isinstance(operation, Merge):
        return any(
            theirs in ours.ancestors()
            for ours, theirs in _pairs(call, truth, operation.branch, operation.source)
        )
    if isinstance(operation, RowWrite):
        images = (truth.commits[head].image for _, head in _heads(call, truth, operation.branch))
        return any(_effect(operation, image) is image for image in images)
    return False


def _effect(operation: RowWrite, image: Any) -> Any:
    try:
        return operation.effect(image)
    except Refused:
        return None


def _pairs(call: Call, truth: Truth, ours: str, theirs: str) -> Iterator[tuple[Any, Any]]:
    for _, one in _heads(call, truth, ours):
        for _, other in _heads(call, truth, theirs):
            yield truth.commits[one].model, truth.commits[other].model


# -- reasons for errors ------------------------------------------------------------------------------


def _names(call: Call, truth: Truth) -> list[Any]:
    assert call.end is not None
    return list(truth.names_between(call.start, call.end))


def _no_such_branch(call: Call, truth: Truth) -> bool:
    """The name was nobody's at some moment, or going, or somebody else's than before."""
    names = _names(call, truth)
    return any(
        any(branch not in one.branches or branch in one.deleting for one in names)
        or len({one.branches.get(branch) for one in names}) > 1
        for branch in call.operation.branches
    )


def _name_taken(call: Call, truth: Truth) -> bool:
    operation = call.operation
    new = operation.new if isinstance(operation, Fork | Rename | Renew) else getattr(operation, "tag", None)
    return any(new in one.branches or new in one.tags or new in one.deleting for one in _names(call, truth))


def _no_such_tag(call: Call, truth: Truth) -> bool:
    operation = call.operation
    return isinstance(operation, Untag) and any(operation.tag not in one.tags for one in _names(call, truth))


def _has_descendants(call: Call, truth: Truth) -> bool:
    for names in _names(call, truth):
        for branch in call.operation.branches:
            mine = names.branches.get(branch)
            lines = (truth.lines[chain].newest for chain in names.branches.values())
            if any(line is not None and line.line.parent == mine for line in lines):
                return True
    return False


def _has_tags(call: Call, truth: Truth) -> bool:
    return any(
        incarnation == names.branches.get(branch)
        for names in _names(call, truth)
        for branch in call.operation.branches
        for incarnation, _ in names.tags.values()
    )


def _moved(call: Call, truth: Truth) -> bool:
    assert call.end is not None
    return any(truth.landed_between(call.start, call.end, branch) for branch in call.operation.branches)


def _breaks_a_rule(call: Call, truth: Truth) -> bool:
    operation = call.operation
    if not isinstance(operation, RowWrite):
        return False
    images = (truth.commits[head].image for _, head in _heads(call, truth, operation.branch))
    return any(_effect(operation, image) is None for image in images)


def _conflicts(call: Call, truth: Truth) -> bool:
    operation = call.operation
    if isinstance(operation, Merge):
        pairs = _pairs(call, truth, operation.branch, operation.source)
        return any(merged(ours, theirs)[1] for ours, theirs in pairs)
    if isinstance(operation, Revert):
        heads = [truth.commits[head].model for _, head in _heads(call, truth, operation.branch)]
        undone = {commit for head in heads for commit in head.ancestors() if commit.parents}
        return any(reverted(head, commit)[1] for head in heads for commit in undone)
    return False


def _given_up(call: Call, truth: Truth) -> bool:
    """A commit that it needs was given up before the answer, or its branch was gone."""
    assert call.end is not None
    end = call.end
    return _no_such_branch(call, truth) or any(truth.given_up(one, end) for one in _needs(call, truth))


def _needs(call: Call, truth: Truth) -> Iterator[str]:
    """Yield the commits that an operation may need, whichever heads it met; reads of heads need no others."""
    operation = call.operation
    match operation:
        case ReadPast() | Revert():
            for _, head in _heads(call, truth, operation.branch):
                yield from truth.path(head, operation.back + 1 + isinstance(operation, Revert))
        case Merge():
            for _, one in _heads(call, truth, operation.branch):
                for _, other in _heads(call, truth, operation.source):
                    yield from (one, other, *truth.bases(one, other))
        case Fork() | Tag() | Renew():
            for branch in operation.branches:
                yield from (head for _, head in _heads(call, truth, branch))


def _first_commit(call: Call, truth: Truth) -> bool:
    return isinstance(call.operation, Revert)


def _schemas_differ(call: Call, truth: Truth) -> bool:
    """Both sides may have changed a type only if somebody changed the schema at all."""
    landed = any(commit.record.kind is CommitKind.SCHEMA for commit in truth.commits.values())
    return isinstance(call.operation, Merge | Revert) and landed


def _schema_moved(call: Call, truth: Truth) -> bool:
    return isinstance(call.operation, Widen) and _moved(call, truth)


ALLOWED: dict[type[Exception], Callable[[Call, Truth], bool]] = {
    errors.BranchNotFound: _no_such_branch,
    errors.BranchExists: _name_taken,
    errors.TagExists: _name_taken,
    errors.TagNotFound: _no_such_tag,
    errors.BranchHasDescendants: _has_descendants,
    errors.BranchHasTags: _has_tags,
    errors.StaleVersion: _moved,
    errors.PreconditionFailed: lambda call, truth: (
        isinstance(call.operation, Increment) and _moved(call, truth)
    ),
    errors.ConstraintViolation: _breaks_a_rule,
    MergeConflict: _conflicts,
    SchemaConflict: _schemas_differ,
    errors.HistoryReclaimed: _given_up,
    errors.CommitNotFound: _given_up,
    errors.InvalidRequest: _first_commit,
    errors.SchemaUnsupported: _schema_moved,
}


# -- the end -----------------------------------------------------------------------------------------


def judge_end(truth: Truth, fresh: Graph, survivors: Sequence[Graph]) -> None:
    """Raise unless everybody reads the truth, and all that is promised is there."""
    _judge_promises(truth, fresh)
    for graph in survivors:
        for branch, incarnation in sorted(truth.names[-1][1].branches.items()):
            _judge_head(truth, graph, branch, incarnation)


def judge_health(fresh: Graph) -> None:
    """Raise what doctor finds."""
    wrong = [finding for finding in fresh.doctor().findings if finding.severity == "error"]
    if wrong:
        raise Violation(f"doctor: {wrong}")


def judge_future(truth: Truth, fresh: Graph) -> None:
    """Raise unless a cleanup leaves every head as it was, and every branch can be written."""
    names = truth.names[-1][1]
    fresh.cleanup(keep=0, grace="0s", dry_run=False)
    for branch in sorted(names.branches):
        fresh.mutate('query q() { insert Person { name: "last", age: 1 } }', branch=branch, message="last")
        expected = truth.commits[truth.lines[names.branches[branch]].heads[-1][1]].image
        image = Rows(fresh.store).image(fresh.store.snapshot(branch).state)
        if image != {**expected, ("node", "last"): {"age": 1}}:
            raise Violation(f"{branch} holds something else after a cleanup and a write")


def _judge_head(truth: Truth, graph: Graph, branch: str, incarnation: str) -> None:
    head = truth.lines[incarnation].heads[-1][1]
    seen = read_people(graph, branch=branch)
    if (seen.commit_id, seen.part["people"]) != (head, parts_of(truth.commits[head].image)["people"]):
        raise Violation(f"{branch} is at {head}, and was read as {seen}")


def _judge_promises(truth: Truth, fresh: Graph) -> None:
    """Read every version that is promised, and what tags name."""
    names, rows = truth.names[-1][1], Rows(fresh.store)
    for branch, incarnation in sorted(names.branches.items()):
        chain = fresh.store.branches.chain(incarnation)
        head = chain.latest()
        if head.head != truth.lines[incarnation].heads[-1][1]:
            raise Violation(f"{branch} is at {head.head} for a new process")
        for commit in (truth.commits[commit_id] for _, commit_id in truth.lines[incarnation].heads):
            version = commit.record.manifest_version
            mine = commit.record.incarnation == incarnation
            if mine and head.keeps(version) and rows.image(chain.at(version)) != commit.image:
                raise Violation(f"version {version} of {branch} holds something else than it did")
    for tag, (_, commit_id) in sorted(names.tags.items()):
        seen = read_people(fresh, at=tag)
        if (
            seen.commit_id != commit_id
            or seen.part["people"] != parts_of(truth.commits[commit_id].image)["people"]
        ):
            raise Violation(f"tag {tag} was read as {seen}")
