"""Decode: JSON of a server as the values of the library.

Everything that is a plain value becomes the same class that an embedded graph returns. What only a store can
give (the versions of tables in a commit, the proposal behind a plan) has a twin here with the same public
attributes and methods.

Fields that this release does not know are passed over: a server may be newer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph.base.dataclass import FIELDS, JsonFields
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.query.expressions import OutputColumn
from omnigraph.engine.branches import Branch
from omnigraph.engine.commits import Tag
from omnigraph.engine.history.changes import Cause, Change, Op
from omnigraph.engine.history.entity import EntityHistory, EntityVersion
from omnigraph.engine.history.feed import CommitChanges, FeedCommit, FeedPage
from omnigraph.engine.merge.conflicts import Conflict, ConflictKind, Origin, PropertyConflict
from omnigraph.engine.merge.merge import MergeOutcome, Outcome
from omnigraph.engine.merge.schemas import Unified
from omnigraph.engine.merge.threeway import Dropped
from omnigraph.engine.write import KEY, Receipt, TypeCount
from omnigraph.execution.plan.explain import ExplainLine, Explanation
from omnigraph.execution.result import Result
from omnigraph.storage.cost import Cost
from omnigraph.storage.history import Page
from omnigraph.storage.manifest.records import CommitKind, CommitRecord, TableChange
from omnigraph.surfaces.client.steps import steps

Json = Mapping[str, Any]
T = TypeVar("T", bound=JsonFields)
SERVER_NAME = "<file>"  # what a server calls the body of a load
METADATA = b"omnigraph"  # the key of what the schema of an Arrow stream says of its rows


def fields_of(cls: type[T], document: Json) -> T:
    """Return a value whose public JSON is its fields, the other way round than `to_json`."""
    names = {name: cls.json_names.get(name, name) for name in getattr(cls, FIELDS)}
    return cls(**{name: document[key] for name, key in names.items() if key in document})


# -- writes ------------------------------------------------------------------------------------------


def commit_record(document: Json | None) -> CommitRecord | None:
    """Return a commit; which files hold it is a matter of the server's."""
    if document is None:
        return None
    key = document.get(KEY)
    return CommitRecord(
        id=document["graph_commit_id"],
        parent=document["parent_commit_id"],
        merged_parent=document["merged_parent_commit_id"],
        branch=document["graph_branch"],
        incarnation="",
        kind=CommitKind(document["kind"]),
        actor=document["actor_id"],
        message=document["message"],
        authored_at_us=document["created_at"],
        manifest_version=document["graph_manifest_version"],
        schema="",
        tables=tuple(
            TableChange("", t["name"], None, None, t["inserted"], t["updated"], t["deleted"])
            for t in document.get("tables", ())
        ),
        labels=FrozenMap({} if key is None else {KEY: key}),
    )


def commit_page(document: Json) -> Page:
    """Return a page of commits."""
    commits = tuple(record for entry in document["commits"] if (record := commit_record(entry)) is not None)
    return Page(commits, document.get("next"))


def cost(document: Json | None) -> Cost:
    """Return a cost."""
    names = ("requests", "stages", "bytes_read", "bytes_written")
    return Cost(**{name: document[name] for name in names if name in document} if document else {})


def type_counts(document: Json) -> tuple[TypeCount, ...]:
    """Return what happened to entities by type, nodes first."""
    return tuple(
        TypeCount(
            entry["name"],
            kind,
            entry["inserted"],
            entry["updated"],
            entry["deleted"],
            entry.get("entities_loaded"),
            entry.get("unchanged", 0),
            entry.get("rejected", 0),
        )
        for kind, listed in (("node", document["nodes"]), ("edge", document["edges"]))
        for entry in listed
    )


# What every receipt has; the rest are the facts of one kind of write.
COMMON = frozenset(
    {
        *("branch", "query_name", "affected_nodes", "affected_edges", "nodes", "edges", "actor_id", "commit"),
        *("replayed", "dry_run", "warnings", "cost", "attempts", "uri", "request_id"),
    }
)


def receipt(document: Json) -> Receipt:
    """Return the receipt of a mutation or a load."""
    return Receipt(
        branch=document["branch"],
        commit=commit_record(document["commit"]),
        types=type_counts(document),
        affected_nodes=document["affected_nodes"],
        affected_edges=document["affected_edges"],
        query_name=document.get("query_name"),
        replayed=document["replayed"],
        dry_run=document["dry_run"],
        attempts=document.get("attempts", 1),
        warnings=tuple(document["warnings"]),
        cost=cost(document.get("cost")),
        facts=FrozenMap({name: value for name, value in document.items() if name not in COMMON}),
    )


# -- merges ------------------------------------------------------------------------------------------


def conflict(document: Json) -> Conflict:
    """Return a conflict of a merge."""
    return Conflict(
        document["entity_kind"],
        document["type_name"],
        ConflictKind(document["kind"]),
        document["message"],
        document.get("entity_id"),
        tuple(fields_of(PropertyConflict, entry) for entry in document.get("properties") or ()),
        _origin(document.get("ours")),
        _origin(document.get("theirs")),
        (document["from"], document["to"]) if "from" in document else None,
    )


def _origin(document: Json | None) -> Origin | None:
    return None if document is None else fields_of(Origin, document)


def merge_outcome(document: Json) -> MergeOutcome:
    """Return what a merge or a revert did."""
    return MergeOutcome(
        source=document["source"],
        target=document["target"],
        outcome=Outcome(document["outcome"]),
        source_commit_id=document["source_commit_id"],
        target_commit_id=document["target_commit_id"],
        base_commit_id=document["base_commit_id"],
        commit=commit_record(document["commit"]),
        types=type_counts(document),
        conflicts=tuple(conflict(entry) for entry in document["merge_conflicts"]),
        total_conflicts=document["total_conflicts"],
        unified=tuple(fields_of(Unified, entry) for entry in document["unified"]),
        dropped=tuple(fields_of(Dropped, entry) for entry in document["dropped"]),
        preview=document["preview"],
        branch_deleted=document.get("branch_deleted"),
        branch_delete_error=document.get("branch_delete_error"),
        cost=cost(document.get("cost")),
        replayed=bool(document.get("replayed")),
    )


# -- branches and tags -------------------------------------------------------------------------------


def branch(document: Json) -> Branch:
    """Return a branch."""
    return fields_of(Branch, document)


def tag(document: Json) -> Tag:
    """Return a tag."""
    return fields_of(Tag, document)


# -- changes -----------------------------------------------------------------------------------------


def change(document: Json) -> Change:
    """Return what happened to one entity."""
    return _change(document, document["kind"], document["type"], document["id"])


def _change(document: Json, kind: str, type_: Json, entity_id: str, changed: Sequence[str] = ()) -> Change:
    return Change(
        kind,
        type_["id"],
        type_["name"],
        entity_id,
        Op(document["op"]),
        _image(document.get("before"), entity_id),
        _image(document.get("after"), entity_id),
        tuple(changed or document.get("fields", ())),
    )


def _image(document: Json | None, entity_id: str) -> dict[str, Any] | None:
    if document is None:
        return None
    return {"id": entity_id, **document.get("endpoints", {}), **document["properties"]}


def cause(document: Json) -> Cause:
    """Return the commit that brought changes about."""
    return fields_of(Cause, document)


def feed_commit(document: Json) -> FeedCommit:
    """Return one commit of a feed."""
    changes = tuple(change(entry) for entry in document["changes"])
    return FeedCommit(cause(document["cause"]), changes, steps(document["schema"]))


def feed_page(document: Json) -> FeedPage:
    """Return a page of a feed."""
    return FeedPage(
        tuple(feed_commit(entry) for entry in document["blocks"]),
        document.get("cursor"),
        document.get("caught_up"),
        document.get("next_page_token"),
    )


def commit_changes(document: Json) -> CommitChanges:
    """Return what one commit changed."""
    return CommitChanges(feed_commit(document), document.get("next_page_token"))


def entity_history(document: Json) -> EntityHistory:
    """Return the versions of an entity."""
    kind, type_, entity_id = document["kind"], document["type"], document["id"]
    versions = [
        EntityVersion(
            cause(entry["cause"]),
            _change(entry, kind, type_, entity_id, [field["name"] for field in entry["fields"]]),
        )
        for entry in document["versions"]
    ]
    return EntityHistory(
        kind,
        type_["id"],
        type_["name"],
        entity_id,
        tuple(versions),
        more=document["more"],
        reclaimed=document["reclaimed"],
    )


# -- reads -------------------------------------------------------------------------------------------


def explanation(document: Json) -> Explanation:
    """Return a plan."""
    lines = tuple(_line(entry) for entry in document["plan"])
    return Explanation(document["query_name"], lines, document["graph_commit_id"])


def _line(document: Json) -> ExplainLine:
    return ExplainLine(
        document["operator"],
        document["detail"],
        document.get("estimate"),
        [_line(entry) for entry in document.get("inner", ())],
        document.get("rows"),
        document.get("seconds"),
        document.get("requests"),
        list(document.get("notes", ())),
    )


def result(table: pa.Table, about: Json) -> Result:
    """Return the rows of a query; `about` is what the schema of the stream says of them."""
    return Result(
        table.replace_schema_metadata(None),
        tuple(columns(about)),
        about["query_name"],
        about["branch"],
        about["graph_commit_id"],
        cost(about.get("cost")),
    )


def columns(about: Json) -> list[OutputColumn]:
    """Return the descriptions of columns."""
    return [
        OutputColumn(
            entry["name"], entry["kind"], entry["nullable"], entry.get("item_kind"), entry.get("vector_dim")
        )
        for entry in about["columns"]
    ]


# -- small things ------------------------------------------------------------------------------------


def text_of(document: Json) -> str:
    """Return a document as a parameter of an address."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def placed(value: Any, name: str) -> Any:
    """Return what an error says, with the places in an input under the name that the input has here."""
    match value:
        case str():
            return value.replace(SERVER_NAME, name)
        case Mapping():
            return {key: placed(item, name) for key, item in value.items()}
        case list() | tuple():
            return type(value)(placed(item, name) for item in value)
    return value
