"""Models: the bodies of requests, checked strictly; the OpenAPI document is made from the same classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import unquote_to_bytes

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from omnigraph.catalog.steps import Dedupe

MOMENT = "A past state: a commit id or the beginning of one, a version, a tag, `name~n` or a time."


def _decoded(segment: Any) -> Any:
    """Return a segment of a path as it was meant: it is matched as it was sent."""
    return unquote_to_bytes(segment).decode("utf-8") if isinstance(segment, str) else segment


Segment = Annotated[str, BeforeValidator(_decoded), Path(description="One percent-encoded segment.")]
Moment = Annotated[str | int, Field(description=MOMENT, union_mode="left_to_right")]
BranchName = Annotated[str | None, Field(description="The branch; `main` if not given.")]
BranchQuery = Annotated[str | None, Query(description="The branch; `main` if not given.")]
SnapshotQuery = Annotated[str | None, Query(description=MOMENT)]
KindQuery = Annotated[list[str] | None, Query(description="Only changes of `node` or of `edge`.")]
TypeQuery = Annotated[list[str] | None, Query(description="Only changes of this type.")]
OpQuery = Annotated[list[str] | None, Query(description="Only `insert`, `update` or `delete`.")]
Message = Annotated[str | None, Field(description="Why; recorded on the commit.")]


class Body(BaseModel):
    """What every body has in common: nothing in it is unknown, and no value is guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryBody(Body):
    """One read."""

    query: str = Field(description="The text of the query, in the query language.")
    name: str | None = Field(default=None, description="Which query of the text, if there are several.")
    params: dict[str, Any] | None = Field(default=None, description="Values by parameter name, without `$`.")
    branch: BranchName = None
    snapshot: Moment | None = None
    memory_bytes: int | None = Field(default=None, ge=1, description="The memory that it may take, at most.")


class MutateRequest(Body):
    """One mutation."""

    query: str = Field(description="The text of the mutation, in the query language.")
    name: str | None = Field(default=None, description="Which query of the text, if there are several.")
    params: dict[str, Any] | None = Field(default=None, description="Values by parameter name, without `$`.")
    branch: BranchName = None
    message: Message = None
    dry_run: bool = Field(default=False, description="Check and report, write nothing.")


class StoredCall(Body):
    """A call of a stored query."""

    params: dict[str, Any] | None = None
    branch: BranchName = None
    snapshot: Moment | None = None
    expect_mutation: bool | None = Field(
        default=None, description="Refuse the call if the query is not of this sort."
    )
    message: Message = None


class LoadBody(Body):
    """Records in a JSON document."""

    data: str = Field(description="JSON lines, as a load takes them.")
    branch: BranchName = None
    from_: str | None = Field(
        default=None, alias="from", description="Fork the branch from this one if it is not there."
    )
    mode: Literal["append", "merge", "overwrite"] = "merge"
    type: str | None = None
    message: Message = None
    dry_run: bool = False
    replace_types: list[str] = Field(default_factory=list)


class ExportRequest(Body):
    """Which entities to export."""

    branch: BranchName = None
    snapshot: Moment | None = None
    type_names: list[str] = Field(default_factory=list, description="Only these types; all if empty.")
    framed: bool = Field(default=False, description="With lines that tell whether it is whole.")


DedupeName = Annotated[
    Dedupe | None,
    Field(description="Which edges stay where several would share a key: one of equal ones, or the latest."),
]


class SchemaPlanRequest(Body):
    """A schema to compare with the accepted one."""

    schema_source: str
    branch: BranchName = None
    allow_data_loss: bool = False
    if_commit: str | None = None
    check_rows: bool = Field(default=False, description="Judge the rows that are there, as an apply does.")
    dedupe: DedupeName = None


class SchemaApplyRequest(Body):
    """A schema to change to."""

    schema_source: str
    branch: BranchName = None
    allow_data_loss: bool = Field(
        False, description="Make every drop hard: the history of its type goes too."
    )
    dedupe: DedupeName = None
    message: Message = None


class BranchRequest(Body):
    """A branch to fork."""

    name: str
    from_: str | None = Field(default=None, alias="from")
    snapshot: Moment | None = None
    dry_run: bool = False


class RenameRequest(Body):
    """Another name for a branch."""

    name: str
    dry_run: bool = False


Take = Literal["ours", "theirs"]


class ResolutionBody(Body):
    """One decision about a conflict: a side to take, or a value."""

    type: str
    id: str
    property: str | None = None
    take: Take | None = None
    value: Any = None

    def given(self) -> dict[str, Any]:
        """Return what was given: a value that is null differs from none."""
        return self.model_dump(exclude_unset=True)


class MergeRequest(Body):
    """Two branches to bring together."""

    source: str
    target: str | None = None
    preview: bool = False
    resolutions: list[ResolutionBody] | None = None
    strategy: Take | None = None
    granularity: Literal["property", "entity"] = "property"
    delete_branch: bool = False
    message: Message = None


class RevertRequest(Body):
    """How to undo a commit."""

    branch: BranchName = None
    preview: bool = False
    resolutions: list[ResolutionBody] | None = None
    strategy: Take | None = None
    message: Message = None


class TagRequest(Body):
    """A name for a commit."""

    name: str
    at: Moment | None = None
    branch: BranchName = None
    message: Message = None
    dry_run: bool = False


class BaselineRequest(Body):
    """Which entities a feed starts from."""

    branch: BranchName = None
    kind: list[str] = Field(default_factory=list)
    type: list[str] = Field(default_factory=list)


class PolicyQuestion(Body):
    """A question to a policy."""

    actor: str
    action: str = Field(description="`read`, `change`, `branch_merge` and so on.")
    branch: str | None = Field(default=None, description="The branch that is read, written, or merged from.")
    target_branch: str | None = Field(default=None, description="The branch that is made or merged into.")


# -- answers, as the document describes them -------------------------------------------------------------


class Reply(BaseModel):
    """What an answer has at least; answers may gain fields."""

    model_config = ConfigDict(extra="allow")


class Problem(Reply):
    """A failure."""

    type: str
    title: str
    status: int
    error: str
    code: str
    kind: str
    message: str
    remedy: str | None
    retryable: bool
    request_id: str


class Target(Reply):
    """What was read."""

    branch: str
    snapshot: str


class QueryReply(Reply):
    """The rows of a query."""

    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]
    graph_commit_id: str


class Commit(Reply):
    """One commit."""

    graph_commit_id: str
    graph_branch: str
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    kind: str
    actor_id: str | None
    created_at: int
    message: str | None


class WriteReply(Reply):
    """What a write did."""

    branch: str
    affected_nodes: int
    affected_edges: int
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    actor_id: str | None
    commit: Commit | None
    replayed: bool
    dry_run: bool
    warnings: list[str]
    attempts: int


class PlanReply(Reply):
    """How a query runs."""


class MergeReply(Reply):
    """What a merge did, or would do."""

    source: str
    target: str
    outcome: str
    merge_conflicts: list[dict[str, Any]]
    commit: Commit | None


class BranchReply(Reply):
    """One branch."""

    name: str
    created_at: int


class BranchesReply(Reply):
    """All branches."""

    branches: list[str]
    details: list[BranchReply]


class TagReply(Reply):
    """One tag."""

    name: str
    graph_commit_id: str


class TagsReply(Reply):
    """All tags."""

    tags: list[TagReply]


class CommitsReply(Reply):
    """A page of commits."""

    commits: list[Commit]
    next: str | None


class SchemaText(Reply):
    """The accepted schema."""

    schema_source: str
    graph_commit_id: str


class SchemaSteps(Reply):
    """What a schema change means, step by step."""

    supported: bool
    step_count: int
    steps: list[dict[str, Any]]


class Differences(Reply):
    """A page of what two states do not have in common."""

    changes: list[dict[str, Any]]
    next_page_token: str | None


class Changed(Reply):
    """What a commit changed."""

    cause: dict[str, Any]
    changes: list[dict[str, Any]]


class FeedReply(Reply):
    """A page of the change feed."""

    blocks: list[Changed]


class Snapshot(Reply):
    """A head, and how many entities it has of each type."""

    graph_branch: str
    graph_manifest_version: int
    graph_commit_id: str
    datasets: list[dict[str, Any]]


class StatsReply(Reply):
    """How the tables of a branch lie in storage, and how far indexes cover them."""

    graph_branch: str
    types: list[dict[str, Any]]


class StorageReply(Reply):
    """What a graph takes in storage."""

    graph_branch: str
    graph_commit_id: str
    files: int
    bytes: int
    system: dict[str, dict[str, int]]
    types: list[dict[str, Any]]
    other_tables: dict[str, int]
    cleanup: dict[str, Any] | None


class EntityReply(Reply):
    """One entity, or null."""

    entity: dict[str, Any] | None


class Catalogue(Reply):
    """The stored queries."""

    queries: list[dict[str, Any]]


class PolicyReply(Reply):
    """How large a policy is."""

    ok: bool
    actors: int
    rules: int


class DecisionReply(Reply):
    """What a policy decides."""

    decision: str
    actor: str | None
    action: str
    branch: str | None
    target_branch: str | None
    matched_rule: str | None
    message: str


class Graphs(Reply):
    """The graphs that are served."""

    graphs: list[dict[str, Any]]
