"""Errors: every failure a caller can meet, as a typed value.

Room    base. Knows nothing of storage, queries or HTTP; surfaces map `kind` and `code` once.
Rule    the class says what went wrong, `code` is stable and machine-readable, `fields` carries the
        facts, `remedy` tells the caller what to do next. No caller ever parses `str(error)`.
Why     many precise classes inside, few kinds outside: a caller can act on `kind` alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


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
        super().__init__(message if remedy is None else f"{message}. {remedy}")
        self.message = message
        self.remedy = remedy
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process boundaries (drivers, executors): rebuild from the parts, not from args.
        return _rebuild, (type(self), self.message, self.remedy, self.fields)


def _rebuild(cls: type[GraphError], message: str, remedy: str | None, fields: dict[str, Any]) -> GraphError:
    error = cls.__new__(cls)
    GraphError.__init__(error, message, remedy=remedy, **fields)
    return error


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


class TableNotFound(NotFound):
    """The snapshot has no table with this id."""

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


class Conflict(GraphError):
    """Another writer changed what this operation depended on."""

    code = "conflict"
    kind = Kind.CONFLICT


class ReadSetConflict(Conflict):
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


class StagedFilesGone(Conflict):
    """A cleanup may have removed the files that a write made before it was published."""

    code = "staged_files_gone"
    retryable = True


class PreconditionFailed(Conflict):
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


class PublishContention(Conflict):
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


class BranchExists(Conflict):
    """A live branch already has this name."""

    code = "branch_exists"


class BranchHasDescendants(Conflict):
    """Live branches were forked from this one; delete them first."""

    code = "branch_has_descendants"


class BranchHasTags(Conflict):
    """Tags name commits that only this branch holds; delete them first."""

    code = "branch_has_tags"


class TagExists(Conflict):
    """A tag already has this name; tags do not move."""

    code = "tag_exists"


class AlreadyInitialized(Conflict):
    """There is a graph at this address already."""

    code = "already_initialized"


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
    """Rows would break a constraint; nothing was written. `fields["violations"]` lists them."""

    code = "constraint_violation"


class KeyConflict(Conflict):
    """A strict insert names an id that exists; `fields` say which. Nothing was written."""

    code = "key_conflict"


class ResourceLimit(GraphError):
    """The work would need more memory, time or space than it may have; `fields` say which."""

    kind = Kind.UNAVAILABLE
    code = "resource_limit"
