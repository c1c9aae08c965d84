"""Errors: every failure a caller can meet, as a typed value.

Knows nothing of storage, queries or HTTP; surfaces map `kind` and `code` once.

The class says what went wrong, `code` is stable and machine-readable, `fields` carries the facts, `remedy`
tells the caller what to do next. No caller ever parses `str(error)`.

`str(error)` is everything there is to say: message, details, remedy. `summary` is the same in one line, for
logs and `repr`.

Many precise classes inside, few kinds outside: a caller can act on `kind` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from omnigraph.base.text_table import table_lines

LISTED = 20  # faults that a rendering shows; then it says how many more there are


class Kind(Enum):
    """What the caller should do about a failure."""

    INVALID = "invalid"  # change the request
    NOT_FOUND = "not_found"  # name something that exists
    CONFLICT = "conflict"  # somebody else's work is in the way: refresh and decide again
    UNAVAILABLE = "unavailable"  # storage did not answer: try again later
    DENIED = "denied"  # get other credentials or permissions
    CORRUPT = "corrupt"  # stop: stored data contradicts itself


class GraphError(Exception):
    """Root of all errors raised on purpose by this package."""

    code: ClassVar[str] = "internal"
    kind: ClassVar[Kind] = Kind.CORRUPT
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.fields = fields

    @property
    def summary(self) -> str:
        """What went wrong and what to do about it, in one line."""
        first = self.message.partition("\n")[0]
        return first if self.remedy is None else f"{first}. {self.remedy}"

    @property
    def details(self) -> tuple[str, ...]:
        """What `str` says besides the summary, line by line: the faults, where there are several."""
        _, *lines = self.message.splitlines() or [""]
        problems: tuple[str, ...] = tuple(self.fields.get("problems", ()))
        return tuple(line.strip() for line in lines) + at_most(problems[1:])

    def __str__(self) -> str:
        details = self.details
        if not details:
            return self.summary
        shown = [self.message.partition("\n")[0], *(f"  {line}" for line in details)]
        return "\n".join(shown if self.remedy is None else [*shown, f"  {self.remedy}"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process boundaries (drivers, executors): rebuild from the parts, not from args.
        return _rebuild, (type(self), self.message, self.remedy, self.fields)


def _rebuild(cls: type[GraphError], message: str, remedy: str | None, fields: dict[str, Any]) -> GraphError:
    error = cls.__new__(cls)
    GraphError.__init__(error, message, remedy=remedy, **fields)
    return error


def at_most(lines: tuple[str, ...], total: int | None = None) -> tuple[str, ...]:
    """Return the first lines of a list, and how many there are besides."""
    more = (len(lines) if total is None else total) - min(len(lines), LISTED)
    return lines[:LISTED] + ((f"... and {more} more",) if more else ())


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(1_200, "row"), counted(0, "query", "queries")
    ('1 row', '1200 rows', '0 queries')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


# -- the request was wrong -------------------------------------------------------------------------


class InvalidRequest(GraphError):
    """The call itself cannot be right, whatever the state of the graph."""

    code = "bad_request"
    kind = Kind.INVALID


class GraphClosed(InvalidRequest):
    """The graph was closed, and what is asked now needs it: open it again."""

    code = "graph_closed"

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"the graph at {uri} was closed by this process",
            remedy="Open it again with omnigraph.connect",
            uri=uri,
        )


class BadBranchName(InvalidRequest):
    """The name breaks the naming rules."""

    code = "bad_branch_name"


class ReservedBranch(InvalidRequest):
    """The name belongs to the system."""

    code = "reserved_branch"


class BadTagName(InvalidRequest):
    """The name breaks the naming rules, or reads as another way to name a commit."""

    code = "bad_tag_name"


class CursorRejected(InvalidRequest):
    """The cursor or page token is damaged, or was given for something else than what is asked now."""

    code = "cursor_rejected"


class ParentlessCommit(InvalidRequest):
    """The first commit of a graph has nothing before it to be compared with."""

    code = "parentless_commit"


class BadMoment(InvalidRequest):
    """The text names no state of the graph in any of the forms there are."""

    code = "bad_moment"


class AmbiguousCommit(InvalidRequest):
    """Several commits begin like this short id; `candidates` are their ids."""

    code = "ambiguous_commit"

    def __init__(self, prefix: str, candidates: Sequence[str]) -> None:
        super().__init__(
            f"{len(candidates)} commits have an id that begins with {prefix!r}",
            remedy="Give more of the id",
            prefix=prefix,
            candidates=tuple(candidates),
        )

    @property
    def candidates(self) -> tuple[str, ...]:
        """The ids of the commits, newest first."""
        candidates: tuple[str, ...] = self.fields["candidates"]
        return candidates

    @property
    def details(self) -> tuple[str, ...]:
        """The candidates, a line for each."""
        return at_most(self.candidates)


class PastState(InvalidRequest):
    """A view of a past state was asked to write: only the head of a branch can change."""

    code = "past_state"


class MethodNotAllowed(InvalidRequest):
    """A server knows the path that was asked for, and does something else there."""

    code = "method_not_allowed"


class UnsupportedMedia(InvalidRequest):
    """The body of a request is in a form that the operation does not read."""

    code = "unsupported_media"


# -- the caller may not ------------------------------------------------------------------------------


class AuthenticationError(GraphError):
    """A server does not know who asks; it tells nobody why a token was refused."""

    code = "unauthenticated"
    kind = Kind.DENIED


class PermissionDenied(GraphError):
    """A policy does not allow the actor what was asked; nothing was read or written."""

    code = "forbidden"
    kind = Kind.DENIED

    @property
    def action(self) -> str:
        """What was asked for, as policy files name it."""
        return str(self.fields["action"])

    @property
    def resource(self) -> str:
        """The graph or the server that it was asked of."""
        return str(self.fields["resource"])


# -- the thing named does not exist ----------------------------------------------------------------


class NotFound(GraphError):
    """Something named by the caller does not exist."""

    code = "not_found"
    kind = Kind.NOT_FOUND


class GraphNotFound(NotFound):
    """There is no graph at this address."""

    code = "graph_not_found"


class BranchNotFound(NotFound):
    """No live branch has this name (it may have been deleted)."""

    code = "branch_not_found"


class TagNotFound(NotFound):
    """No tag has this name."""

    code = "tag_not_found"


class CommitNotFound(NotFound):
    """No live branch holds a commit with this id."""

    code = "commit_not_found"


class QueryNotFound(NotFound):
    """A file, or a server, has no query of this name."""

    code = "query_not_found"


class TypeNotFound(NotFound):
    """The schema, or a past state of the graph, has no type of this name."""

    code = "type_not_found"


class EntityNotFound(NotFound):
    """No entity of this type has, or ever had, this id."""

    code = "entity_not_found"


class HistoryReclaimed(NotFound):
    """The state existed once, but retention removed it."""

    code = "history_reclaimed"


class ChangeFeedGap(HistoryReclaimed):
    """Commits after the cursor were cleaned: start again from a baseline; trying again cannot help."""

    code = "change_feed_gap"


# -- somebody else came first ----------------------------------------------------------------------


class ConflictError(GraphError):
    """Another writer changed what this operation depended on."""

    code = "conflict"
    kind = Kind.CONFLICT


class StaleVersion(ConflictError):
    """A table (or the schema) that decided what to write has moved; read again and repeat."""

    code = "read_set_conflict"
    retryable = True

    def __init__(self, member: str, *, expected: str, actual: str) -> None:
        super().__init__(
            f"{member!r} changed while this write was being prepared: expected {expected}, found {actual}",
            remedy="Read the new state and repeat the write",
            member=member,
            expected=expected,
            actual=actual,
        )

    @property
    def member(self) -> str:
        """What has moved: the name of a type, or "schema"."""
        return str(self.fields["member"])


class StagedFilesGone(ConflictError):
    """A cleanup may have removed the files that a write made before it was published."""

    code = "staged_files_gone"
    retryable = True


class PreconditionFailed(ConflictError):
    """The caller named the head it expects, and the branch has another one."""

    code = "precondition_failed"

    def __init__(self, branch: str, *, expected: str, actual: str | None) -> None:
        super().__init__(
            f"branch {branch!r}: expected head {expected}, found {actual}",
            remedy="Read the branch again and decide on the state found",
            branch=branch,
            expected=expected,
            actual=actual,
        )

    @property
    def branch(self) -> str:
        """The branch that was to be written."""
        return str(self.fields["branch"])

    @property
    def expected(self) -> str:
        """The id of the commit that the caller expected."""
        return str(self.fields["expected"])

    @property
    def actual(self) -> str | None:
        """The id of the commit that the branch has."""
        actual: str | None = self.fields["actual"]
        return actual


class PublishContention(ConflictError):
    """The write lost the race too often; nothing was written, and trying again is safe."""

    code = "publish_contention"
    retryable = True

    def __init__(self, branch: str, *, attempts: int, elapsed_ms: int) -> None:
        super().__init__(
            f"branch {branch!r}: {attempts} attempts in {elapsed_ms} ms all lost to other writers",
            remedy="Nothing was written; try again, or batch small writes into fewer commits",
            branch=branch,
            attempts=attempts,
            elapsed_ms=elapsed_ms,
        )


class BranchExists(ConflictError):
    """A live branch already has this name."""

    code = "branch_exists"


class BranchHasDescendants(ConflictError):
    """Live branches were forked from this one; delete them first."""

    code = "branch_has_descendants"


class BranchHasTags(ConflictError):
    """Tags name commits that only this branch holds; delete them first."""

    code = "branch_has_tags"


class TagExists(ConflictError):
    """A tag already has this name; tags do not move."""

    code = "tag_exists"


class AlreadyInitialized(ConflictError):
    """There is a graph at this address already."""

    code = "already_initialized"


class DestinationRefused(ConflictError):
    """The destination of a copy holds something that the copy would not leave whole."""

    code = "destination_refused"


class CopyInterrupted(ConflictError):
    """The history of the source was taken away under a copy, again and again: try again later."""

    code = "copy_interrupted"
    retryable = True


# -- storage ---------------------------------------------------------------------------------------


class StorageError(GraphError):
    """Storage answered with a failure; `fields["storage_kind"]` says which sort."""

    code = "storage"
    kind = Kind.UNAVAILABLE


class StorageDenied(StorageError):
    """Storage refused the credentials or the permission."""

    kind = Kind.DENIED


class OutcomeUnknown(StorageError):
    """The publish may or may not have landed, and storage cannot be read to find out."""

    code = "outcome_unknown"

    def __init__(self, commit_id: str, *, branch: str) -> None:
        super().__init__(
            f"the outcome of commit {commit_id} on branch {branch!r} is unknown: "
            "publishing failed and the branch could not be read back",
            remedy="When storage answers again, look the commit id up before repeating the write",
            graph_commit_id=commit_id,
            branch=branch,
        )


class StoreUnsupported(StorageError):
    """The store lacks a capability that correctness needs."""

    code = "store_unsupported"
    kind = Kind.INVALID


class FormatMismatch(GraphError):
    """The graph was written in a storage format this release does not serve."""

    kind = Kind.INVALID


class FormatTooNew(FormatMismatch):
    """Written by a newer release."""

    code = "format_too_new"


class FormatTooOld(FormatMismatch):
    """Written by an older release."""

    code = "format_too_old"


class FormatUnreadable(FormatMismatch):
    """The format stamp is missing or is not a number."""

    code = "format_unreadable"


class IntegrityError(GraphError):
    """Stored data contradicts itself; no operation can mend it by trying again."""

    code = "integrity"
    kind = Kind.CORRUPT


# -- the schema and its constraints ----------------------------------------------------------------


class SchemaUnsupported(InvalidRequest):
    """The desired schema cannot be reached from the accepted one; nothing was changed."""

    code = "schema_unsupported"


class ConstraintViolation(InvalidRequest):
    """Rows would break a constraint; nothing was written. `violations` has the first, `total` counts all."""

    code = "constraint_violation"

    @property
    def violations(self) -> tuple[Mapping[str, Any], ...]:
        """The first of them: code, type, entity, property, value, message, and the place in an input."""
        return tuple(self.fields.get("violations", ()))

    @property
    def total(self) -> int:
        """How many there are."""
        return int(self.fields.get("total", len(self.violations)))

    @property
    def details(self) -> tuple[str, ...]:
        """The violations as a table, and what to do about each sort of them."""
        if not self.violations:
            return super().details
        rows = [_violation_row(violation) for violation in self.violations]
        header, *lines = table_lines([VIOLATION_COLUMNS, *rows])
        codes = dict.fromkeys(str(violation["code"]) for violation in self.violations)
        advice = (f"{code}: {ADVICE[code]}" for code in codes if code in ADVICE)
        return (header, *at_most(tuple(lines), self.total), *advice)


VIOLATION_COLUMNS = ("place", "code", "type", "what")
ADVICE = {
    "syntax": "a data file has one JSON object on each line",
    "envelope": 'a record is {"type": T, "data": {...}} or {"edge": E, "from": id, "to": id, "data": {...}}',
    "unknown_type": "the schema has the types: `omnigraph schema show`, or graph.schema.show()",
    "unknown_property": "the schema has the properties: `omnigraph schema show`, or graph.schema.show()",
    "orphan_edge": "load the nodes with the edges, or before them; an id is the text of the node's key",
    "unique": "one of the two must change, or both are the same entity and need the same id",
    "cardinality": "remove edges of the source, or widen @card in the schema",
}


def _violation_row(violation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells; without a place in an input the entity stands for it, and needs no second mention."""
    what, place = str(violation["message"]), violation.get("place")
    if place is None:
        place = f"{violation['entity_kind']} {violation['entity_id']!r}"
        what = what.removesuffix(f" ({place})")
    return str(place), str(violation["code"]), str(violation["type_name"] or "-"), what


class KeyConflict(ConflictError):
    """A strict insert names an id that exists. Nothing was written."""

    code = "key_conflict"

    @property
    def type_name(self) -> str | None:
        """The type of the entity that exists."""
        name: str | None = self.fields.get("type_name")
        return name

    @property
    def entity_id(self) -> str | None:
        """The id that is taken."""
        entity_id: str | None = self.fields.get("entity_id")
        return entity_id


class LimitExceeded(GraphError):
    """The work would need more memory, time or space than it may have; `fields` say which."""

    kind = Kind.UNAVAILABLE
    code = "resource_limit"


# -- not now -----------------------------------------------------------------------------------------


class Busy(GraphError):
    """Too much was asked at once by one actor or of one graph; nothing of this request was begun."""

    code = "too_many_requests"
    kind = Kind.UNAVAILABLE
    retryable = True

    @property
    def retry_after(self) -> float:
        """After how many seconds it may go better."""
        return float(self.fields["retry_after"])


class Unavailable(GraphError):
    """A server cannot be reached, or does not serve now: it starts, stops, or has lost its storage."""

    code = "unavailable"
    kind = Kind.UNAVAILABLE
    retryable = True


class DeadlineExceeded(GraphError):
    """The work did not end in the time it had; whether a write landed is told by its commit."""

    code = "timeout"
    kind = Kind.UNAVAILABLE
    retryable = True
