"""Every route does what the library does, over HTTP."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.surfaces.wire import ARROW, NDJSON
from tests.support.people import INSERT, person
from tests.support.served import Served

NAMES = "query names() { match { $p: Person } return { $p.name as name } order { $p.name asc } }"


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(http: httpx.Client, branch: str = "main") -> list[str]:
    return [row["name"] for row in ok(http.post("/query", json={"query": NAMES, "branch": branch}))["rows"]]


def fork(http: httpx.Client, name: str) -> str:
    """Fork a branch of a test's own, since tests share the graph."""
    ok(http.post("/branches", json={"name": name}))
    return name


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# -- reads ---------------------------------------------------------------------------------------------


def test_a_query_answers_in_three_forms(http: httpx.Client) -> None:
    asked = {"query": NAMES}
    as_json = ok(http.post("/query", json=asked))
    as_arrow = http.post("/query", json=asked, headers={"Accept": ARROW})
    as_lines = http.post("/query", json=asked, headers={"Accept": NDJSON})
    table = pa.ipc.open_stream(as_arrow.content).read_all()
    facts = json.loads(table.schema.metadata[b"omnigraph"])
    assert as_json["rows"] == table.to_pylist() == [json.loads(line) for line in as_lines.text.splitlines()]
    assert facts["graph_commit_id"] == as_json["graph_commit_id"] == as_arrow.headers["Graph-Commit-Id"]
    assert facts["columns"] == [{"name": "name", "kind": "string", "nullable": False}]


def test_a_server_of_one_graph_serves_it_at_the_root(http: httpx.Client, served: Served) -> None:
    assert ok(httpx.post(f"{served.url}/query", json={"query": NAMES})) == ok(
        http.post("/query", json={"query": NAMES})
    )


def test_a_plan_is_told_and_measured(http: httpx.Client) -> None:
    assert ok(http.post("/explain", json={"query": NAMES}))["query_name"] == "names"
    assert "rows" in json.dumps(ok(http.post("/profile", json={"query": NAMES})))


def test_rows_of_a_type_come_as_arrow(http: httpx.Client) -> None:
    answer = http.get("/rows/node/Person", params={"columns": ["name", "age"]})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column_names == ["name", "age"]
    assert {row["name"]: row["age"] for row in table.to_pylist()}["Ada"] == 36


def test_an_entity_is_found_or_null(http: httpx.Client) -> None:
    assert ok(http.get("/entities/Person/Ada"))["entity"]["age"] == 36
    assert ok(http.get("/entities/Person/Nobody")) == {"entity": None}
    history = ok(http.get("/entities/Person/Ada/history"))
    assert [version["op"] for version in history["versions"]] == ["insert"]


# -- writes --------------------------------------------------------------------------------------------


def test_a_mutation_under_a_key_is_done_once(http: httpx.Client) -> None:
    branch = fork(http, "keyed")
    asked = {"query": INSERT, "params": {"name": "Kim", "age": 1}, "branch": branch}
    first = http.post("/mutate", json=asked, headers={"Idempotency-Key": "k1"})
    again = http.post("/mutate", json=asked, headers={"Idempotency-Key": "k1"})
    other = {**asked, "params": {"name": "Kim", "age": 2}}
    refused = http.post("/mutate", json=other, headers={"Idempotency-Key": "k1"})
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert ok(again)["commit"] == ok(first)["commit"]
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_mismatch")
    assert refused.json()["idempotency"] == {
        "key": "k1",
        "first_commit_id": ok(first)["commit"]["graph_commit_id"],
    }
    receipt = http.get("/receipts/k1", params={"branch": branch})
    assert ok(receipt)["commit"] == ok(first)["commit"]
    assert http.get("/receipts/none", params={"branch": branch}).status_code == 404


def test_a_mutation_depends_on_the_head_that_it_names(http: httpx.Client) -> None:
    branch = fork(http, "conditional")
    head = ok(http.get(f"/branches/{branch}"))["graph_commit_id"]
    asked = {"query": INSERT, "params": {"name": "Lin", "age": 1}, "branch": branch}
    ok(http.post("/mutate", json=asked, headers={"If-Commit": head}))
    lost = http.post("/mutate", json=asked, headers={"Omnigraph-If-Graph-Commit": head})
    assert (lost.status_code, lost.json()["code"]) == (412, "precondition_failed")
    assert lost.json()["precondition_failure"]["expected"] == head


PEOPLE = pa.table({"name": ["Tab", "Ble"], "age": pa.array([1, 2], pa.int32())})


def _arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ARROW, _arrow(PEOPLE)),
        ("application/vnd.apache.parquet", _parquet(PEOPLE)),
        ("text/csv", b"name,age\nTab,1\nBle,2\n"),
    ],
    ids=["arrow", "parquet", "csv"],
)
def test_a_table_is_loaded_onto_a_new_branch(http: httpx.Client, kind: str, body: bytes) -> None:
    branch = f"table/{len(body)}"
    options = {"type": "Person", "branch": branch, "from": "main", "mode": "merge"}
    loaded = ok(http.post("/load", params=options, content=body, headers={"Content-Type": kind}))
    assert (loaded["branch"], loaded["branch_created"], loaded["affected_nodes"]) == (branch, True, 2)
    assert {"Tab", "Ble"} <= set(names(http, branch))


def test_columns_of_a_table_are_mapped(http: httpx.Client) -> None:
    options = {"type": "Person", "branch": fork(http, "mapped"), "columns": json.dumps({"who": "name"})}
    body = b"who,age\nMap,1\n"
    ok(http.post("/load", params=options, content=body, headers={"Content-Type": "text/csv"}))
    assert "Map" in names(http, "mapped")


def test_records_are_loaded_as_lines_or_in_a_document(http: httpx.Client) -> None:
    branch = fork(http, "records")
    as_lines = http.post(
        "/load/ndjson",
        params={"branch": branch},
        content=lines(person("Line", age=1)),
        headers={"Content-Type": NDJSON},
    )
    document = {"data": lines(person("Doc", age=1)).decode(), "branch": branch, "mode": "append"}
    assert ok(as_lines)["affected_nodes"] == ok(http.post("/load", json=document))["affected_nodes"] == 1
    assert {"Line", "Doc"} <= set(names(http, branch))


def test_an_export_is_what_a_load_takes(http: httpx.Client) -> None:
    whole = http.post("/export", json={"framed": True})
    first, *rest = whole.text.splitlines()
    assert whole.headers["Graph-Commit-Id"] in first
    assert "sha256" in rest[-1]
    branch = fork(http, "copied")
    loaded = http.post(
        "/load/ndjson",
        params={"branch": branch},
        content=whole.content,
        headers={"Content-Type": NDJSON},
    )
    assert ok(loaded)["affected_nodes"] == len(names(http)) + 1
    only = http.post("/export", json={"type_names": ["Company"]}).text.splitlines()
    assert [json.loads(line)["type"] for line in only] == ["Company"]


# -- branches ------------------------------------------------------------------------------------------


def test_a_branch_lives_under_any_name(http: httpx.Client) -> None:
    made = ok(http.post("/branches", json={"name": "etl/run-1"}))
    assert (made["name"], made["from"]) == ("etl/run-1", "main")
    assert ok(http.get("/branches/etl%2Frun-1"))["name"] == "etl/run-1"
    assert ok(http.patch("/branches/etl%2Frun-1", json={"name": "etl/done"}))["name"] == "etl/done"
    listed = ok(http.get("/branches", params={"counts": True}))
    assert "etl/done" in listed["branches"]
    assert all("graph_commit_id" in branch for branch in listed["details"])
    head = ok(http.get("/branches/etl%2Fdone"))["graph_commit_id"]
    assert ok(http.delete("/branches/etl%2Fdone", headers={"If-Commit": head}))["graph_commit_id"] == head
    assert http.get("/branches/etl%2Fdone").status_code == 404


def test_a_merge_is_previewed_refused_and_resolved(http: httpx.Client) -> None:
    ours, theirs = fork(http, "ours"), fork(http, "theirs")
    change = 'query set($n: I32) { update Person set { age: $n } where name = "Ada" }'
    for branch, age in ((ours, 50), (theirs, 60)):
        ok(http.post("/mutate", json={"query": change, "params": {"n": age}, "branch": branch}))
    asked: dict[str, Any] = {"source": theirs, "target": ours}
    preview = ok(http.post("/branches/merge", json={**asked, "preview": True}))
    assert (preview["outcome"], preview["total_conflicts"]) == ("conflicts", 1)
    refused = http.post("/branches/merge", json=asked)
    assert (refused.status_code, refused.json()["code"]) == (409, "merge_conflict")
    assert [c["entity_id"] for c in refused.json()["merge_conflicts"]] == ["Ada"]
    decided = [{"type": "Person", "id": "Ada", "property": "age", "value": 55}]
    done = ok(http.post("/branches/merge", json={**asked, "resolutions": decided, "delete_branch": True}))
    assert (done["outcome"], done["branch_deleted"]) == ("merged", True)
    undone = ok(http.post(f"/commits/{done['commit']['graph_commit_id']}/revert", json={"branch": ours}))
    assert undone["commit"] is not None
    entity = ok(http.get("/entities/Person/Ada", params={"branch": ours}))["entity"]
    assert entity["age"] == 50


def test_tags_name_commits(http: httpx.Client) -> None:
    made = ok(http.post("/tags", json={"name": "v1", "message": "first"}))
    assert ok(http.get("/tags"))["tags"] == [ok(http.get("/tags/v1"))]
    assert ok(http.get("/commits/v1"))["graph_commit_id"] == made["graph_commit_id"]
    ok(http.delete("/tags/v1"))
    assert ok(http.get("/tags")) == {"tags": []}


# -- history -------------------------------------------------------------------------------------------


def test_commits_come_in_pages(http: httpx.Client) -> None:
    branch = fork(http, "paged")
    for name in ("P1", "P2"):
        ok(http.post("/mutate", json={"query": INSERT, "params": {"name": name, "age": 1}, "branch": branch}))
    first = ok(http.get("/commits", params={"branch": branch, "limit": 1}))
    second = ok(http.get("/commits", params={"branch": branch, "limit": 1, "before": first["next"]}))
    (newest,), (older,) = first["commits"], second["commits"]
    assert newest["parent_commit_id"] == older["graph_commit_id"]
    assert newest["tables"] == [{"name": "Person", "inserted": 1, "updated": 0, "deleted": 0}]
    changed = ok(http.get(f"/commits/{newest['graph_commit_id']}/changes"))
    assert [change["id"] for change in changed["changes"]] == ["P2"]


def test_a_diff_comes_in_pages(http: httpx.Client) -> None:
    branch = fork(http, "diff/erent")
    body = lines(*(person(f"D{number}", age=1) for number in range(5)))
    ok(http.post("/load/ndjson", params={"branch": branch}, content=body, headers={"Content-Type": NDJSON}))
    ids, token, pages = [], None, 0
    while True:
        more: dict[str, Any] = {} if token is None else {"page_token": token}
        page = ok(http.get("/diff", params={"from": "main", "to": branch, "limit": 2, **more}))
        assert ("stats" in page) == (token is None)
        ids += [change["id"] for change in page["changes"]]
        pages, token = pages + 1, page["next_page_token"]
        if token is None:
            break
    assert (sorted(ids), pages) == ([f"D{number}" for number in range(5)], 3)
    named = ok(http.get("/branches/diff%2Ferent/diff/main", params={"op": "delete"}))
    assert {change["id"] for change in named["changes"]} == set(ids)


def test_a_feed_goes_on_from_its_cursor(http: httpx.Client) -> None:
    branch = fork(http, "fed")
    begin = ok(http.get("/changes", params={"branch": branch, "start": "now"}))
    ok(http.post("/mutate", json={"query": INSERT, "params": {"name": "Fed", "age": 1}, "branch": branch}))
    page = ok(http.get("/changes", params={"branch": branch, "cursor": begin["cursor"], "wait": 5}))
    assert [change["id"] for block in page["blocks"] for change in block["changes"]] == ["Fed"]
    whole = http.post("/changes/baseline", json={"branch": branch, "type": ["Company"]})
    *entities, end = [json.loads(line) for line in whole.text.splitlines()]
    assert [entity["id"] for entity in entities] == ["Acme"]
    resumed = {"branch": branch, "cursor": end["baseline"]["resume_cursor"], "type": "Company"}
    assert ok(http.get("/changes", params=resumed))["blocks"] == []


def test_a_feed_is_sent_as_events(http: httpx.Client) -> None:
    branch = fork(http, "sent")
    asked = {"branch": branch, "start": "now"}
    with http.stream("GET", "/changes", params=asked, headers={"Accept": "text/event-stream"}) as answer:
        received = answer.iter_lines()
        assert next(received).startswith(":")
        change = {"query": INSERT, "params": {"name": "Sent", "age": 1}, "branch": branch}
        ok(http.post("/mutate", json=change))
        event = _event(received)
    assert [c["id"] for block in event["data"]["blocks"] for c in block["changes"]] == ["Sent"]
    resumed = {"Accept": "text/event-stream", "Last-Event-ID": event["id"]}
    with http.stream("GET", "/changes", params={"branch": branch}, headers=resumed) as answer:
        assert next(answer.iter_lines()).startswith(":")


def _event(received: Any) -> dict[str, Any]:
    """Return the first event."""
    event: dict[str, Any] = {}
    for line in received:
        name, _, value = line.partition(": ")
        if name in ("id", "data"):
            event[name] = json.loads(value) if name == "data" else value
        if not line and "data" in event:
            return event
    raise AssertionError("the stream ended")


# -- schema --------------------------------------------------------------------------------------------


def test_a_schema_is_shown_planned_and_applied(http: httpx.Client) -> None:
    branch = fork(http, "wider")
    shown = ok(http.get("/schema", params={"branch": branch}))
    wider = shown["schema_source"].replace("note: String?", "note: String?\n  nick: String?", 1)
    asked = {"schema_source": wider, "branch": branch}
    plan = ok(http.post("/schema/plan", json=asked))
    rehearsed = ok(http.post("/schema/apply", params={"dry_run": True}, json=asked))
    assert (plan["supported"], plan["step_count"], rehearsed["applied"]) == (True, 1, False)
    applied = ok(http.post("/schema/apply", json=asked, headers={"If-Commit": shown["graph_commit_id"]}))
    assert applied["applied"]
    assert "nick" in ok(http.get("/schema", params={"branch": branch}))["schema_source"]
    assert "nick" not in ok(http.get("/schema"))["schema_source"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/query", {"query": NAMES}),
        ("POST", "/explain", {"query": NAMES}),
        ("POST", "/profile", {"query": NAMES}),
        ("GET", "/snapshot", None),
        ("GET", "/schema", None),
        ("GET", "/rows/node/Person", None),
        ("GET", "/diff?from=main~1&to=main", None),
        ("GET", "/commits/main~0", None),
        ("GET", "/commits/{head}/changes", None),
        ("POST", "/export", {}),
        ("POST", "/changes/baseline", {}),
    ],
)
def test_an_answer_about_one_state_says_which(http: httpx.Client, method: str, path: str, body: Any) -> None:
    head = ok(http.get("/snapshot"))["graph_commit_id"]
    answer = http.request(method, path.replace("{head}", head), json=body)
    assert (answer.status_code, answer.headers["Graph-Commit-Id"]) == (200, head)


def test_a_snapshot_says_where_tables_lie_if_asked(http: httpx.Client) -> None:
    plain, physical = (ok(http.get("/snapshot", params={"physical": value})) for value in (False, True))
    assert all("dataset_path" not in one for one in plain["datasets"])
    assert all(one["dataset_path"].startswith("tables/") for one in physical["datasets"])


def test_a_snapshot_counts_entities(http: httpx.Client) -> None:
    shown = ok(http.get("/snapshot"))
    assert {row["type_name"]: row["entity_count"] for row in shown["datasets"]}["Company"] == 1
    past = ok(http.get("/snapshot", params={"snapshot": "main~1"}))
    assert {row["type_name"]: row["entity_count"] for row in past["datasets"]}["Company"] == 0
    stats = {row["type_name"]: row for row in ok(http.get("/stats"))["types"]}
    assert stats["Company"]["entity_count"] == 1


# -- the server ----------------------------------------------------------------------------------------


def test_a_server_says_how_it_is(served: Served) -> None:
    assert ok(httpx.get(f"{served.url}/healthz"))["status"] == "ok"
    assert ok(httpx.get(f"{served.url}/readyz"))["graphs"] == {"kb": "ready"}
    assert ok(httpx.get(f"{served.url}/graphs")) == {"graphs": [{"graph_id": "kb", "uri": "/graphs/kb"}]}
