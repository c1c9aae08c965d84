"""The schema of a branch: shown, planned and changed; and what a branch holds."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.engine.access import Action
from omnigraph.engine.schema.schema import SchemaPlan, SchemaReceipt
from omnigraph.engine.storage_report import storage_report
from omnigraph.engine.write import commit_json, cost_json
from omnigraph.storage.manifest.formats import FORMAT
from omnigraph.storage.tables.compaction import Fragmentation, coverage
from omnigraph.storage.tables.files import TABLES
from omnigraph.surfaces.server.answers import answer, replay_header
from omnigraph.surfaces.server.calls import CallOf, documented, pinned
from omnigraph.surfaces.server.contract import CONDITIONAL, KEYED, asks
from omnigraph.surfaces.server.models import (
    BranchQuery,
    SchemaApplyRequest,
    SchemaPlanRequest,
    SchemaSteps,
    SchemaText,
    Snapshot,
    SnapshotQuery,
    StatsReply,
    StorageReply,
)

router = APIRouter(tags=["schema"])


@router.get("/schema", responses=documented(SchemaText), openapi_extra=asks(Action.READ))
async def show_schema(
    call: CallOf,
    branch: BranchQuery = None,
    snapshot: SnapshotQuery = None,
    for_reads: Annotated[bool, Query(description="As reads of a past state go by.")] = False,
) -> Response:
    """Return the accepted schema, as text and resolved."""
    graph = call.graph

    def read() -> tuple[dict[str, Any], str]:
        schema = graph.schema
        show = schema.for_reads if for_reads else schema.catalog
        state = pinned(graph, branch, snapshot)
        commit_id = state.commit_id
        catalog = show(state.branch, commit_id)
        document = {
            "schema_source": catalog.source,
            "digest": catalog.declaration_digest,
            "graph_commit_id": commit_id,
            "catalog": json.loads(catalog.to_json()),
        }
        return document, commit_id

    return answer(*await call.read(read))


@router.post("/schema/plan", responses=documented(SchemaSteps), openapi_extra=asks(Action.READ))
async def plan_schema(call: CallOf, body: SchemaPlanRequest) -> Response:
    """Say what applying a schema would do; write nothing."""
    graph = call.graph

    def run() -> SchemaPlan:
        return graph.schema.plan(
            as_text(body.schema_source),
            branch=body.branch,
            allow_data_loss=body.allow_data_loss,
            if_commit=body.if_commit,
            check_rows=body.check_rows,
            dedupe=body.dedupe,
        )

    return answer(_plan(await call.read(run)))


@router.post(
    "/schema/apply",
    responses=documented(SchemaSteps),
    openapi_extra=asks(Action.SCHEMA_APPLY, Action.READ),
    dependencies=[CONDITIONAL, KEYED],
)
async def apply_schema(
    call: CallOf, body: SchemaApplyRequest, dry_run: Annotated[bool, Query(description="Only plan.")] = False
) -> Response:
    """Change the schema of a branch: one commit with all its table changes, or none."""
    graph, if_commit, key = call.graph, call.if_commit, call.idempotency_key
    source = as_text(body.schema_source)
    if dry_run:
        plan = await call.read(
            lambda: graph.schema.plan(
                source,
                branch=body.branch,
                allow_data_loss=body.allow_data_loss,
                if_commit=if_commit,
                check_rows=True,
                dedupe=body.dedupe,
            )
        )
        nothing: dict[str, Any] = {
            "applied": False,
            "commit": None,
            "graph_manifest_version": None,
            "reclaimed": [],
        }
        return answer({**_plan(plan), **nothing, "warnings": [], "dry_run": True, "uri": call.served.uri})

    def run() -> SchemaReceipt:
        return graph.schema.apply(
            source,
            branch=body.branch,
            allow_data_loss=body.allow_data_loss,
            message=body.message,
            if_commit=if_commit,
            dedupe=body.dedupe,
            idempotency_key=key,
        )

    async with call.measured() as done:
        done.op = "schema"
        receipt = done.receipt = await call.write(run, long=True)
    document = {
        **_plan(receipt.plan),
        **receipt.to_json(),
        "uri": call.served.uri,
        "replayed": receipt.replayed,
        "cost": cost_json(receipt.cost),
        "commit_record": commit_json(receipt.commit),
    }
    commit_id = None if receipt.commit is None else receipt.commit.id
    return answer(document, commit_id, **replay_header(receipt.replayed))


def _plan(plan: SchemaPlan) -> dict[str, Any]:
    return {**plan.to_json(), "notes": [note.to_json() for note in plan.notes]}


def as_text(source: str) -> str:
    """Return schema text that is never taken for the path of a file."""
    return source if "\n" in source else f"{source}\n"


# -- what there is -------------------------------------------------------------------------------------

KINDS = ("node", "edge")


@router.get("/snapshot", responses=documented(Snapshot), openapi_extra=asks(Action.READ))
async def show_snapshot(
    call: CallOf,
    branch: BranchQuery = None,
    snapshot: SnapshotQuery = None,
    physical: Annotated[bool, Query(description="Also where the tables lie in the graph.")] = False,
) -> Response:
    """Return the commit that a read would see, and the number of entities of each type."""
    graph = call.graph

    def read() -> tuple[dict[str, Any], str]:
        found = pinned(graph, branch, snapshot)
        state, commit_id = found.state, found.commit_id
        pins = sorted(state.pins.values(), key=lambda pin: (KINDS.index(pin.kind), pin.name))
        document = {
            "graph_branch": found.branch,
            "graph_manifest_version": state.version,
            "internal_schema_version": FORMAT,
            "graph_commit_id": commit_id,
            "datasets": [
                {
                    "entity_kind": pin.kind,
                    "type_name": pin.name,
                    "entity_count": pin.rows,
                    "published_dataset_version": str(pin.version),
                }
                | ({"dataset_path": f"{TABLES}/{pin.table_id}"} if physical else {})
                for pin in pins
            ],
        }
        return document, commit_id

    return answer(*await call.read(read))


@router.get("/stats", responses=documented(StatsReply), openapi_extra=asks(Action.READ))
async def show_stats(call: CallOf, branch: BranchQuery = None) -> Response:
    """Return how tables lie in storage, and how many of their rows the indexes cover."""
    graph = call.graph

    types = await call.read(lambda: [_table(table) for table in graph.fragmentation(branch=branch)])
    return answer({"graph_branch": branch or "main", "types": types})


def _table(table: Fragmentation) -> dict[str, Any]:
    return {
        "entity_kind": table.kind,
        "type_name": table.type,
        "entity_count": table.rows,
        "fragments": len(table.fragments),
        "bytes": sum(fragment.bytes for fragment in table.fragments),
        "deleted_rows": sum(fragment.deleted for fragment in table.fragments),
        "unindexed_rows": table.unindexed_rows,
        "index_coverage": coverage(table.rows, table.unindexed_rows),
        "indexes": [
            {
                "property": index.property,
                "kind": index.kind,
                "unindexed_rows": index.unindexed_rows,
                "coverage": coverage(table.rows, index.unindexed_rows),
            }
            for index in table.indexes
        ],
    }


@router.get("/storage", responses=documented(StorageReply), openapi_extra=asks(Action.ADMIN, Action.READ))
async def show_storage(
    call: CallOf,
    branch: BranchQuery = None,
    keep: Annotated[int | None, Query(ge=0, description="As if a cleanup kept so many commits.")] = None,
    older_than: Annotated[
        str | None, Query(description="As if a cleanup kept what is younger: `30d`.")
    ] = None,
    grace: Annotated[str, Query(description="The grace period of that cleanup.")] = "7d",
) -> Response:
    """Return what the whole graph takes in storage, by type and part.

    With `keep` or `older_than` also what a cleanup that is told the same would free.
    """
    graph = call.graph

    def read() -> tuple[dict[str, Any], str]:
        call.check(Action.ADMIN)
        told = keep is not None or older_than is not None
        cleanup = graph.cleanup(keep=keep, older_than=older_than, grace=grace) if told else None
        report = storage_report(graph.store, pinned(graph, branch, None), cleanup)
        return report.to_json(), report.commit_id

    return answer(*await call.read(read))
